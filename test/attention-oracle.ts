// What attention must give where operands hold NaN or infinities, in plain loops: what is hidden is never looked at.

export type Row = (b: number, h: number, i: number) => ArrayLike<number>;
export interface Seen {
  readonly batch: number;
  readonly heads: number;
  readonly kvHeads: number;
  readonly tq: number;
  readonly tk: number;
  readonly dim: number;
  readonly scale: number;
  readonly q: Row;
  readonly k: Row;
  readonly v: Row;
  readonly dout?: Row;
  readonly sees: (b: number, h: number, i: number, j: number) => boolean;
  readonly softcap?: number;
  /** What is added to a score. */
  readonly bias?: (b: number, h: number, i: number, j: number) => number;
  readonly sink?: (h: number) => number;
}
export interface Wanted {
  readonly out: number[];
  readonly dq: number[];
  readonly dk: number[];
  readonly dv: number[];
}

const dot = (a: ArrayLike<number>, b: ArrayLike<number>, n: number): number => {
  let sum = 0;
  for (let d = 0; d < n; d++) sum += a[d] * b[d];
  return sum;
};
/** Results by (batch, head, row, dim), with gradients where there is one of the result. */
export function attentionOf(p: Seen): Wanted {
  const { batch, heads, kvHeads, tq, tk, dim, dout } = p;
  const zeros = (h: number, t: number): number[] => new Array(batch * h * t * dim).fill(0);
  const want = { out: zeros(heads, tq), dq: zeros(heads, tq), dk: zeros(kvHeads, tk), dv: zeros(kvHeads, tk) };
  for (let b = 0; b < batch; b++)
    for (let h = 0; h < heads; h++)
      for (let i = 0; i < tq; i++) {
        const kvHead = Math.floor((h * kvHeads) / heads);
        const [q, at] = [p.q(b, h, i), ((b * heads + h) * tq + i) * dim];
        const seen: { j: number; logit: number; slope: number }[] = [];
        for (let j = 0; j < tk; j++) {
          const bias = p.sees(b, h, i, j) ? (p.bias?.(b, h, i, j) ?? 0) : -Infinity;
          if (bias === -Infinity) continue;
          const z = dot(q, p.k(b, kvHead, j), dim) * p.scale;
          const t = p.softcap ? Math.tanh(z / p.softcap) : 0;
          const logit = (p.softcap ? p.softcap * t : z) + bias;
          if (logit !== -Infinity) seen.push({ j, logit, slope: p.scale * (1 - t * t) });
        }
        const sink = p.sink?.(h) ?? -Infinity;
        const all = [...seen.map((s) => s.logit), ...(sink === -Infinity ? [] : [sink])];
        if (all.length === 0) continue;
        const top = Math.max(...all);
        const sum = all.reduce((s, x) => s + Math.exp(x - top), 0); // NaN of an infinity less itself, as in softmax
        const weights = seen.map((s) => Math.exp(s.logit - top) / sum);
        if (Number.isNaN(sum)) for (let d = 0; d < dim; d++) want.out[at + d] = NaN;
        const weighing = seen.map((s, n) => ({ ...s, w: weights[n] })).filter((s) => s.w !== 0);
        for (const { j, w } of weighing) {
          const v = p.v(b, kvHead, j);
          for (let d = 0; d < dim; d++) want.out[at + d] += w * v[d];
        }
        if (!dout) continue;
        const g = dout(b, h, i);
        const delta = dot(g, want.out.slice(at, at + dim), dim);
        for (const { j, w, slope } of weighing) {
          const to = ((b * kvHeads + kvHead) * tk + j) * dim;
          const ds = w * (dot(g, p.v(b, kvHead, j), dim) - delta) * slope;
          const k = p.k(b, kvHead, j);
          for (let d = 0; d < dim; d++) {
            want.dq[at + d] += ds * k[d];
            want.dk[to + d] += ds * q[d];
            want.dv[to + d] += w * g[d];
          }
        }
      }
  return want;
}

/** The first place where numbers differ, in words; NaN and infinities must be where they are wanted. */
export function firstApart(got: ArrayLike<number>, want: readonly number[], bound: number): string | undefined {
  const size = want.reduce((m, w) => (Number.isFinite(w) ? Math.max(m, Math.abs(w)) : m), 1e-30);
  for (let i = 0; i < want.length; i++) {
    const same = Number.isFinite(want[i]) ? Math.abs(got[i] - want[i]) <= bound * size : Object.is(got[i], want[i]);
    if (!same) return `number ${i} is ${got[i]}, not ${want[i]}`;
  }
  return undefined;
}

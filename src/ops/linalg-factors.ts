// The factorizations behind linear algebra, as rows: by the CPU engine, on GPUs by kernels of their own or a vendor's
// library where these take matrices of the size (tensors of a GPU else go to the host and back). Their
// gradients are products and solutions of the same kind, of any order.
import type { DType } from '../base/dtype.js';
import { ShapeError } from '../base/errors.js';
import { formatShape, sizeOf, type Shape } from '../base/shape.js';
import type { Tensor } from '../tensor/tensor.js';
import { numbers } from './kernel-row.js';
import * as host from './linalg-host.js';
import { type Call, type GradContext, type Grads, type KernelRow, type RefTensor, type Sig, ulps } from './op.js';

/** Matrices of a batch one by one: their elements, and where results go. */
function each(
  inputs: readonly RefTensor[],
  outputs: readonly RefTensor[],
  ranks: readonly number[],
  f: (...matrices: number[][]) => number[][],
): void {
  const inner = [...inputs, ...outputs].map((t, i) => sizeOf(t.shape.slice(t.shape.length - ranks[i])));
  const count = inputs[0].shape.slice(0, inputs[0].shape.length - ranks[0]).reduce((a, b) => a * b, 1);
  for (let b = 0; b < count; b++) {
    const given = inputs.map((t, i) => numbers(t).slice(b * inner[i], (b + 1) * inner[i]));
    f(...given).forEach((values, k) => {
      const size = inner[inputs.length + k];
      for (let i = 0; i < size; i++) numbers(outputs[k])[b * size + i] = values[i];
    });
  }
}

type HostDef = Pick<KernelRow, 'infer' | 'reference' | 'grad' | 'custom'>;
/** The CPU engine's function of its name runs where no GPU does; the one in the row is the oracle. */
const hostRow = (name: string, def: HostDef): KernelRow => ({
  name,
  family: 'custom',
  custom: { native: true },
  mixed: true,
  formula: `${name}, in double precision`,
  dtypes: ['f32', 'f64'],
  candle: { none: 'Candle has none of it' },
  ulp: ulps(16),
  args: (x: Tensor): Call => ({ inputs: [x], params: {} }),
  samples: () => [],
  errors: () => [],
  ...def,
});
export const lead = (s: Shape): Shape => s.slice(0, -2);
export const tall = (s: Shape): { m: number; n: number } => ({ m: s[s.length - 2], n: s[s.length - 1] });
export const T = (x: Tensor): Tensor => x.transpose(-2, -1);
export const eye = (x: Tensor, n: number): Tensor => {
  const i = x.newArange(n, 'i32');
  return i.unsqueeze(1).eq(i).cast(x.dtype);
};
/** diag(d) times x, and x times diag(d). */
const rowsBy = (d: Tensor, x: Tensor): Tensor => x.mul(d.unsqueeze(-1));
const columnsBy = (x: Tensor, d: Tensor): Tensor => x.mul(d.unsqueeze(-2));
const orZero = (g: Tensor | undefined, like: Tensor): Tensor => g ?? like.zerosLike();

const SOLVE = hostRow('solve', {
  infer: ([, b]: readonly Sig[]): readonly Sig[] => [b],
  reference: (inputs, outputs): void => {
    const n = tall(inputs[0].shape).n;
    const k = tall(inputs[1].shape).n;
    each(inputs, outputs, [2, 2, 2], (a, b) => [host.solve('solve', a, b, n, k)]);
  },
  grad: ({ x, out, grad, needs }: GradContext): Grads => {
    const back = solved(T(x), grad);
    return [needs(0) ? back.matmul(T(out)).neg() : undefined, back];
  },
});
export const solved = (a: Tensor, b: Tensor): Tensor => a.onHost(SOLVE, [a, b])[0];

/** Whether a tensor's device runs a row on matrices of this size by kernels of its own. */
const runsHere = (row: KernelRow, x: Tensor): boolean => {
  const { m, n } = tall(x.shape);
  return x.size > 0 && x.device.backend.factors?.(row.name, m, n, x.dtype) === 'itself';
};

const INVERSE = hostRow('inverse', {
  infer: ([a]: readonly Sig[]): readonly Sig[] => [a],
  reference: (inputs, outputs): void => {
    const { n } = tall(inputs[0].shape);
    const one = Array.from({ length: n * n }, (_, i) => (i % (n + 1) === 0 ? 1 : 0));
    each(inputs, outputs, [2, 2], (a) => [host.solve('solve', a, one, n, n)]);
  },
  grad: ({ out, grad }: GradContext): Grads => [T(out).matmul(grad).matmul(T(out)).neg()],
});
export const inverted = (a: Tensor): Tensor =>
  runsHere(INVERSE, a) ? a.onHost(INVERSE, [a])[0] : solved(a, eye(a, tall(a.shape).n).broadcastTo(a.shape));

/** Which triangle of a matrix counts, whether it is meant transposed, and whether its diagonal counts as ones. */
export interface Triangle {
  readonly upper: boolean;
  readonly transpose: boolean;
  readonly unit: boolean;
}
const TRIANGULAR = hostRow('triangular', {
  infer: ([, b]: readonly Sig[]): readonly Sig[] => [b],
  reference: (inputs, outputs, { upper, transpose, unit }): void => {
    const n = tall(inputs[0].shape).n;
    const k = tall(inputs[1].shape).n;
    each(inputs, outputs, [2, 2, 2], (a, b) => {
      const part = a.map((value, e) => {
        const [i, j] = [Math.floor(e / n), e % n];
        return i === j && unit ? 1 : i === j || (upper ? j > i : j < i) ? value : 0;
      });
      const meant = transpose ? part.map((_, e) => part[(e % n) * n + Math.floor(e / n)]) : part;
      return [host.solve('solve', meant, b, n, k)];
    });
  },
  grad: ({ x, out, grad, params, needs }: GradContext): Grads => {
    const { upper, transpose, unit } = params as unknown as Triangle;
    const back = triangleSolved(x, grad, { upper, transpose: !transpose, unit });
    if (!needs(0)) return [undefined, back];
    const whole = (transpose ? out.matmul(T(back)) : back.matmul(T(out))).neg();
    const beside = unit ? 1 : 0;
    return [upper ? whole.triu(beside) : whole.tril(-beside), back];
  },
});
/** The triangle of a matrix that counts, with ones on the diagonal where that is asked for. */
function triangle(a: Tensor, { upper, unit }: Triangle): Tensor {
  if (!unit) return upper ? a.triu() : a.tril();
  const one = a.onesLike().tril().triu();
  return (upper ? a.triu(1) : a.tril(-1)).add(one);
}
/** X of A X = B for batches of one shape, of whose A a triangle counts. */
export function triangleSolved(a: Tensor, b: Tensor, how: Triangle): Tensor {
  if (b.size > 0 && runsHere(TRIANGULAR, a)) return a.onHost(TRIANGULAR, [a, b], { ...how })[0];
  const part = triangle(a, how);
  return solved(how.transpose ? T(part) : part, b);
}
const LOWER: Triangle = { upper: false, transpose: false, unit: false };
const UPPER: Triangle = { upper: true, transpose: false, unit: false };
const turned = (t: Triangle): Triangle => ({ ...t, transpose: !t.transpose });

export const DET = hostRow('det', {
  infer: ([a]: readonly Sig[]): readonly Sig[] => [{ shape: lead(a.shape), dtype: a.dtype }],
  reference: (inputs, outputs): void => {
    const { n } = tall(inputs[0].shape);
    each(inputs, outputs, [2, 0], (a) => {
      const { lu, sign } = host.lu(a, n);
      let product = sign;
      for (let i = 0; i < n; i++) product *= lu[i * n + i];
      return [[product]];
    });
  },
  // Of a singular matrix the solution below says that there is none.
  grad: ({ x, out, grad }: GradContext): Grads => [T(inverted(x)).mul(grad.mul(out).unsqueeze(-1).unsqueeze(-1))],
});
export const SLOGDET = hostRow('slogdet', {
  infer: ([a]: readonly Sig[]): readonly Sig[] => [0, 1].map(() => ({ shape: lead(a.shape), dtype: a.dtype })),
  reference: (inputs, outputs): void => {
    const { n } = tall(inputs[0].shape);
    each(inputs, outputs, [2, 0, 0], (a) => {
      const { lu, sign } = host.lu(a, n);
      let [side, sum] = [sign, 0];
      for (let i = 0; i < n; i++) {
        side *= Math.sign(lu[i * n + i]);
        sum += Math.log(Math.abs(lu[i * n + i]));
      }
      return [[side], [sum]];
    });
  },
  grad: ({ x, grads }: GradContext): Grads => {
    const g = grads[1];
    if (!g) return [x.zerosLike()];
    return [T(inverted(x)).mul(g.unsqueeze(-1).unsqueeze(-1))];
  },
});

export const LU = hostRow('lu', {
  infer: ([a]: readonly Sig[]): readonly Sig[] => {
    const { m, n } = tall(a.shape);
    return [a, ...[Math.min(m, n), m].map((k) => ({ shape: [...lead(a.shape), k], dtype: a.dtype }))];
  },
  reference: (inputs, outputs): void => {
    const { m, n } = tall(inputs[0].shape);
    each(inputs, outputs, [2, 2, 1, 1], (a) => {
      const { lu, swaps, order } = host.lu(a, m, n);
      return [Array.from(lu), swaps.map((i) => i + 1), order];
    });
  },
  // With the square corners L1 and U1 of L = [L1; L2] and U = [U1 U2]: the rows of A in their new order have the
  // gradient L1^-T (the triangles of L^T gL and gU U^T, less what L2 and U2 owe to the corners) U1^-T in the corner.
  grad: ({ x: a, outputs: [lu, , order], grad: g }: GradContext): Grads => {
    const { m, n } = tall(a.shape);
    const k = Math.min(m, n);
    const corner = (t: Tensor): Tensor => t.narrow(-2, 0, k).narrow(-1, 0, k);
    const lower = corner(lu).tril(-1).add(eye(lu, k));
    const upper = corner(lu).triu();
    let [below, above] = [T(lower).matmul(corner(g).tril(-1)), corner(g).triu().matmul(T(upper))];
    if (n > k) below = below.sub(g.narrow(-1, k, n - k).matmul(T(lu.narrow(-1, k, n - k))));
    if (m > k) above = above.sub(T(lu.narrow(-2, k, m - k)).matmul(g.narrow(-2, k, m - k)));
    // X U1^-T, and L1^-T X.
    const right = (t: Tensor): Tensor => T(triangleSolved(upper, T(t), UPPER));
    const left = (t: Tensor): Tensor => triangleSolved(lower, t, turned({ ...LOWER, unit: true }));
    let rows = left(right(below.tril(-1).add(above.triu())));
    if (n > k) rows = rows.cat([left(g.narrow(-1, k, n - k))], rows.rank - 1);
    if (m > k) rows = rows.cat([right(g.narrow(-2, k, m - k))], rows.rank - 2);
    return [T(orderMatrix(order.detach())).matmul(rows)];
  },
});
export const ROW_ORDER = hostRow('rowOrder', {
  infer: ([swaps]: readonly Sig[]): readonly Sig[] => [
    { shape: [...lead(swaps.shape), tall(swaps.shape).n], dtype: swaps.dtype },
  ],
  reference: (inputs, outputs): void => each(inputs, outputs, [2, 1], (swaps) => [host.rowOrder('luSolve', swaps)]),
  grad: (): Grads => [undefined],
});
/** The matrix that puts rows in an order, of which row i is the one of `order[i]`. */
export const orderMatrix = (order: Tensor): Tensor => {
  const m = order.shape[order.rank - 1];
  return order.unsqueeze(-1).eq(order.newArange(m, order.dtype)).cast(order.dtype);
};

export const CHOLESKY = hostRow('cholesky', {
  infer: ([a]: readonly Sig[]): readonly Sig[] => [a],
  reference: (inputs, outputs): void => {
    const { n } = tall(inputs[0].shape);
    each(inputs, outputs, [2, 2], (a) => [host.cholesky(a, n)]);
  },
  grad: ({ out, grad }: GradContext): Grads => {
    const l = out.tril(); // a library leaves the other triangle as it was
    const inner = T(l).matmul(grad).tril();
    const half = inner.sub(inner.diagonal().affine(0.5, 0).diagEmbed());
    // L^-T S L^-1, of which the symmetric part counts.
    const by = (x: Tensor): Tensor => triangleSolved(l, x, turned(LOWER));
    const s = T(by(T(by(half))));
    return [s.add(T(s)).affine(0.5, 0)];
  },
});

export const QR = hostRow('qr', {
  infer: ([a]: readonly Sig[]): readonly Sig[] => {
    const { n } = tall(a.shape);
    return [a, { shape: [...lead(a.shape), n, n], dtype: a.dtype }];
  },
  reference: (inputs, outputs): void => {
    const { m, n } = tall(inputs[0].shape);
    each(inputs, outputs, [2, 2, 2], (a) => {
      const { q, r } = host.qr(a, m, n);
      return [q, r];
    });
  },
  grad: ({ outputs: [q, raw], grads }: GradContext): Grads => {
    const r = raw.triu(); // a library leaves its reflections below
    const [gq, gr] = [orZero(grads[0], q), orZero(grads[1], r)];
    const inner = r.matmul(T(gr)).sub(T(gq).matmul(q));
    const low = inner.tril(-1);
    const mirrored = inner.tril().add(T(low));
    return [T(triangleSolved(r, T(gq.add(q.matmul(mirrored))), UPPER))];
  },
});

/** 1 / (b_j - b_i), 0 on the diagonal. */
function gaps(b: Tensor): Tensor {
  const n = b.shape[b.rank - 1];
  const on = eye(b, n).ne(0);
  const gap = b.unsqueeze(-2).sub(b.unsqueeze(-1));
  return on.where(0, on.where(1, gap).recip());
}

export const EIGH = hostRow('eigh', {
  custom: { native: true, columns: [1] },
  infer: ([a]: readonly Sig[]): readonly Sig[] => [{ shape: a.shape.slice(0, -1), dtype: a.dtype }, a],
  reference: (inputs, outputs): void => {
    const { n } = tall(inputs[0].shape);
    each(inputs, outputs, [2, 1, 2], (a) => {
      const { values, vectors } = host.eigh(a, n);
      return [values, vectors];
    });
  },
  grad: ({ outputs: [w, v], grads }: GradContext): Grads => {
    let inner = orZero(grads[0], w).diagEmbed();
    if (grads[1]) inner = inner.add(T(v).matmul(grads[1]).mul(gaps(w)));
    const g = v.matmul(inner).matmul(T(v));
    return [g.add(T(g)).affine(0.5, 0)];
  },
});

export const SVD = hostRow('svd', {
  custom: { native: true, columns: [2, 0] },
  infer: ([a]: readonly Sig[]): readonly Sig[] => {
    const { n } = tall(a.shape);
    return [a, { shape: [...lead(a.shape), n], dtype: a.dtype }, { shape: [...lead(a.shape), n, n], dtype: a.dtype }];
  },
  reference: (inputs, outputs): void => {
    const { m, n } = tall(inputs[0].shape);
    each(inputs, outputs, [2, 2, 1, 2], (a) => {
      const { u, s, v } = host.svd(a, m, n);
      return [u, s, v];
    });
  },
  grad: ({ outputs: [u, s, v], grads: [gu, gs, gv] }: GradContext): Grads => {
    const skew = (x: Tensor): Tensor => x.sub(T(x));
    let inner = orZero(gs, s).diagEmbed();
    if (gu) inner = inner.add(columnsBy(skew(T(u).matmul(gu)).mul(gaps(s.sqr())), s));
    if (gv) inner = inner.add(rowsBy(s, skew(T(v).matmul(gv)).mul(gaps(s.sqr()))));
    let g = u.matmul(inner).matmul(T(v));
    if (gu) {
      const rest = columnsBy(gu, s.recip());
      g = g.add(rest.sub(u.matmul(T(u).matmul(rest))).matmul(T(v)));
    }
    return [g];
  },
});

/** What of a singular value counts as nothing beside the largest: LAPACK's rule. */
export const lost = (dtype: DType, m: number, n: number): number =>
  Math.max(m, n) * (dtype === 'f64' ? 2 ** -52 : 2 ** -23);

export const PINV = hostRow('pinv', {
  infer: ([a]: readonly Sig[]): readonly Sig[] => {
    const { m, n } = tall(a.shape);
    return [{ shape: [...lead(a.shape), n, m], dtype: a.dtype }];
  },
  reference: (inputs, outputs): void => {
    const { m, n } = tall(inputs[0].shape);
    const cut = lost(inputs[0].dtype, m, n);
    each(inputs, outputs, [2, 2], (a) => [host.pinv(a, m, n, cut)]);
  },
  // dP = -P dA P + P P^T dA^T (1 - A P) + (1 - P A) dA^T P^T P.
  grad: ({ x: a, out: p, grad: g }: GradContext): Grads => {
    const first = T(p).matmul(g).matmul(T(p)).neg();
    const left = T(g)
      .sub(a.matmul(p).matmul(T(g)))
      .matmul(p)
      .matmul(T(p));
    const right = T(p)
      .matmul(p)
      .matmul(T(g).sub(T(g).matmul(p).matmul(a)));
    return [first.add(left).add(right)];
  },
});

export function requireSquare(op: string, x: Tensor): void {
  if (x.rank < 2 || tall(x.shape).m !== tall(x.shape).n)
    throw new ShapeError(`${op}: takes square matrices, not ${formatShape(x.shape)}`);
}
export function requireMatrix(op: string, x: Tensor): void {
  if (x.rank < 2) throw new ShapeError(`${op}: takes matrices, not ${formatShape(x.shape)}`);
}
/** What formulas of ops that are made of these say. */
export const DOUBLES =
  'in double precision; on GPUs by kernels to 1024 rows, f32 of more than 16 rows in f32; else on the host';
export const FEW = 'in double precision; on GPUs by kernels to 64 columns, else on the host';

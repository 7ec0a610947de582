// Problems for attention kernels: on a device of the simulation, with their numbers as doubles and plain loops over
// them.
import assert from 'node:assert/strict';
import { type DType, DTYPE } from '../src/base/dtype.js';
import type { AttentionCall } from '../src/backends/gpu/attention-kernels.js';
import { type Launch, valuesOf } from '../src/backends/gpu/plan.js';
import type { Unit } from '../src/kernels/source.js';
import { unitOf } from '../src/backends/gpu/modules.js';
import { decode, type SimRunner } from './sim-support.js';

export interface Options {
  readonly batch?: number;
  readonly heads?: number;
  readonly kvHeads?: number;
  readonly tq?: number;
  readonly tk?: number;
  readonly dim?: number;
  readonly left?: number;
  readonly right?: number;
  readonly mask?: 'bool' | 'add';
  readonly alibi?: boolean;
  readonly sinks?: boolean;
  readonly softcap?: number;
  /** (B, T, H, D) instead of (B, H, T, D). */
  readonly rowsFirst?: boolean;
  /** Row numbers where packed sequences start. */
  readonly qStarts?: readonly number[];
  readonly kStarts?: readonly number[];
  readonly page?: number;
  readonly lengths?: readonly number[];
  readonly splits?: number;
  /** All scores lie near -120, where a largest score that was not found but left at 0 makes every weight vanish. */
  readonly low?: boolean;
  /** Changes numbers, by (batch, head, row, dim), before they are given to the device. */
  readonly spoil?: (values: Record<'q' | 'k' | 'v' | 'dout', number[]>) => void;
}
export type FloatType = 'f32' | 'f64' | 'f16' | 'bf16';

let seed = 9;
const random = (): number => (seed = (Math.imul(seed, 1664525) + 1013904223) >>> 0) / 2 ** 32;
const normal = (): number => Math.sqrt(-2 * Math.log(random() + 1e-12)) * Math.cos(2 * Math.PI * random());

/** A problem on the device, its numbers as doubles, and the reference. */
export class Problem {
  readonly call: AttentionCall;
  readonly run: SimRunner;
  readonly dtype: FloatType;
  readonly o: Options;
  readonly rows: { q: number; k: number };
  readonly values: Record<'q' | 'k' | 'v' | 'dout', number[]>;
  readonly mask: number[] = [];
  readonly slopes: number[];
  readonly sinks: number[];
  readonly pages: number[] = [];
  readonly addresses: Record<'out' | 'lse' | 'dq' | 'dk' | 'dv', number>;

  constructor(run: SimRunner, dtype: FloatType, o: Options) {
    const { batch = 1, heads = 2, kvHeads = heads, tq = 8, tk = 8, dim = 16, page } = o;
    this.run = run;
    this.dtype = dtype;
    this.o = o;
    const packed = o.qStarts !== undefined;
    const b = packed ? 1 : batch;
    this.rows = { q: o.qStarts?.at(-1) ?? tq, k: o.kStarts?.at(-1) ?? tk };
    const perBatch = page ? Math.ceil(tk / page) : 0;
    const numbers = (n: number): number[] =>
      Array.from({ length: n }, () => DTYPE[dtype].decode(DTYPE[dtype].encode(normal())) as number);
    const qSize = b * heads * this.rows.q * dim;
    const kSize = page ? (perBatch * batch + 3) * kvHeads * page * dim : b * kvHeads * this.rows.k * dim;
    const whole = (n: number, from: number): number[] =>
      Array.from({ length: n }, () => from + Math.floor(random() * 2));
    this.values = {
      q: o.low ? whole(qSize, -6) : numbers(qSize),
      k: o.low ? whole(kSize, 5) : numbers(kSize),
      v: numbers(kSize),
      dout: numbers(qSize),
    };
    o.spoil?.(this.values);
    if (page) for (let i = 0; i < perBatch * batch; i++) this.pages.push(perBatch * batch + 2 - i);
    if (o.mask)
      for (let i = 0; i < batch * heads * tq * tk; i++)
        this.mask.push(o.mask === 'bool' ? Number(random() < 0.75) : numbers(1)[0]);
    this.slopes = o.alibi ? Array.from({ length: heads }, (_, h) => Math.fround(0.5 / (h + 1))) : [];
    this.sinks = o.sinks ? Array.from({ length: heads }, (_, h) => Math.fround(0.3 * h - 0.5)) : [];
    const strides = (h: number, r: number): [number, number, number] =>
      packed || o.rowsFirst ? [packed ? 0 : r * h * dim, dim, h * dim] : [h * r * dim, r * dim, dim];
    const q = strides(heads, this.rows.q);
    const k: [number, number, number] = page ? [kvHeads * page * dim, page * dim, dim] : strides(kvHeads, this.rows.k);
    const bytes = DTYPE[dtype].bytes;
    const wide = dtype === 'f64' ? 8 : 4;
    const i32 = (list: readonly number[] | undefined): number => (list ? run.buffer(Int32Array.from(list)) : 0);
    const f32 = (list: readonly number[]): number => (list.length > 0 ? run.buffer(Float32Array.from(list)) : 0);
    this.addresses = {
      out: run.buffer(qSize * bytes),
      lse: run.buffer(b * heads * this.rows.q * wide),
      dq: run.buffer(qSize * bytes),
      dk: run.buffer(kSize * bytes),
      dv: run.buffer(kSize * bytes),
    };
    const splits = o.splits ?? 0;
    const sequences = packed ? (o.qStarts?.length ?? 1) - 1 : batch;
    this.call = {
      ...this.addresses,
      q: run.of(dtype, this.values.q),
      k: run.of(dtype, this.values.k),
      v: run.of(dtype, this.values.v),
      dout: run.of(dtype, this.values.dout),
      delta: run.buffer(b * heads * this.rows.q * wide),
      mask: o.mask
        ? run.of(o.mask === 'bool' ? 'u8' : dtype, o.mask === 'bool' ? this.mask.map(BigInt) : this.mask)
        : 0,
      maskKind: o.mask === 'bool' ? 1 : o.mask ? 2 : 0,
      maskStrides: [heads * tq * tk, tq * tk, tk, 1],
      slopes: f32(this.slopes),
      sinks: f32(this.sinks),
      qStarts: i32(o.qStarts),
      kStarts: i32(o.kStarts),
      lengths: i32(o.lengths),
      pages: i32(page ? this.pages : undefined),
      partial: run.buffer(sequences * heads * tq * splits * dim * 4),
      partialLse: run.buffer(sequences * heads * tq * splits * 4),
      splits,
      qStrides: q,
      outStrides: q,
      doutStrides: q,
      dqStrides: q,
      kStrides: k,
      vStrides: k,
      dkStrides: k,
      dvStrides: k,
      lseStrides: [packed ? 0 : heads * this.rows.q, this.rows.q],
      scale: 1 / Math.sqrt(dim),
      softcap: o.softcap ?? 0,
      batch: sequences,
      heads,
      kvHeads,
      tq,
      tk,
      dim,
      left: o.left ?? -1,
      right: o.right ?? -1,
      pageRows: page ?? 0,
      pageTable: perBatch,
      pagesThere: this.pages.length + 3,
      qRows: this.rows.q,
      kRows: this.rows.k,
    };
  }

  launch(launches: readonly Launch[]): void {
    for (const l of launches) {
      const none = (): never => assert.fail('no views here');
      const values = valuesOf(l, l.kernel.entry(l.variant), none, none);
      this.run.launch(unitFor(l.kernel.module.name, l.symbol), l.symbol, l.grid, l.block, values, l.shared);
    }
  }
  read(name: 'out' | 'dq' | 'dk' | 'dv'): number[] {
    const count = name === 'dk' || name === 'dv' ? this.values.k.length : this.values.q.length;
    return decode(this.dtype, this.run.read(this.dtype, this.addresses[name], count)) as number[];
  }
  readLse(): number[] {
    const type: DType = this.dtype === 'f64' ? 'f64' : 'f32';
    return decode(
      type,
      this.run.read(type, this.addresses.lse, (this.o.qStarts ? 1 : this.call.batch) * this.call.heads * this.rows.q),
    ) as number[];
  }

  reference(): Record<'out' | 'dq' | 'dk' | 'dv' | 'lse', number[]> {
    const { call: c, o, values } = this;
    const out = values.q.map(() => 0);
    const [dq, dk, dv] = [values.q.map(() => 0), values.k.map(() => 0), values.k.map(() => 0)];
    const lse = this.readLse().map(() => NaN);
    const at = (s: readonly number[] | undefined, b: number, h: number, r: number): number =>
      (s as number[])[0] * b + (s as number[])[1] * h + (s as number[])[2] * r;
    for (let b = 0; b < c.batch; b++) {
      const [q0, q1] = o.qStarts ? [o.qStarts[b], o.qStarts[b + 1]] : [0, c.tq];
      const [k0, k1] = o.kStarts ? [o.kStarts[b], o.kStarts[b + 1]] : [0, o.lengths?.[b] ?? c.tk];
      const offset = k1 - k0 - (q1 - q0);
      const keyAt = (h: number, j: number): number =>
        o.page
          ? at(c.kStrides, this.pages[b * (c.pageTable ?? 0) + Math.floor(j / o.page)], h, j % o.page)
          : at(c.kStrides, b, h, k0 + j);
      for (let h = 0; h < c.heads; h++)
        for (let i = 0; i < q1 - q0; i++) {
          const qi = at(c.qStrides, b, h, q0 + i);
          const kh = Math.floor(h / (c.heads / c.kvHeads));
          const dot = (x: number[], xi: number, y: number[], yi: number): number => {
            let s = 0;
            for (let d = 0; d < c.dim; d++) s += x[xi + d] * y[yi + d];
            return s;
          };
          const seen: { j: number; at: number; logit: number; slope: number }[] = [];
          for (let j = 0; j < k1 - k0; j++) {
            const position = i + offset;
            if ((o.right !== undefined && j > position + o.right) || (o.left !== undefined && j < position - o.left))
              continue;
            let logit = dot(values.q, qi, values.k, keyAt(kh, j)) * c.scale;
            let slope = c.scale;
            if (o.softcap) {
              const t = Math.tanh(logit / o.softcap);
              logit = o.softcap * t;
              slope *= 1 - t * t;
            }
            if (o.alibi) logit -= this.slopes[h] * Math.abs(position - j);
            const m = this.mask[((b * c.heads + h) * c.tq + i) * c.tk + j];
            if (o.mask === 'bool' && m === 0) continue;
            if (o.mask === 'add') logit += m;
            seen.push({ j, at: keyAt(kh, j), logit, slope });
          }
          const top = Math.max(...seen.map((s) => s.logit), o.sinks ? this.sinks[h] : -Infinity);
          const sum = seen.reduce((s, e) => s + Math.exp(e.logit - top), o.sinks ? Math.exp(this.sinks[h] - top) : 0);
          lse[(o.qStarts ? 0 : b * c.heads * this.rows.q) + h * this.rows.q + q0 + i] =
            sum > 0 ? top + Math.log(sum) : -Infinity;
          for (const e of seen)
            for (let d = 0; d < c.dim; d++) out[qi + d] += (Math.exp(e.logit - top) / sum) * values.v[e.at + d];
          const delta = dot(values.dout, qi, out, qi);
          for (const e of seen) {
            const w = Math.exp(e.logit - top) / sum;
            const ds = w * (dot(values.dout, qi, values.v, e.at) - delta) * e.slope;
            for (let d = 0; d < c.dim; d++) {
              dq[qi + d] += ds * values.k[e.at + d];
              dk[e.at + d] += ds * values.q[qi + d];
              dv[e.at + d] += w * values.dout[qi + d];
            }
          }
        }
    }
    return { out, dq, dk, dv, lse };
  }
}

const units = new Map<string, Unit>();
function unitFor(module: string, symbol: string): Unit {
  const unit = units.get(symbol) ?? unitOf(module, [symbol]);
  units.set(symbol, unit);
  return unit;
}

/** The simulation answers to the name of the target whose layouts it follows. */
export const target = (run: SimRunner, arch: string) => ({ ...run.device.info, arch, sharedPerBlockOptin: 65536 });

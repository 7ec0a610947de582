// Attention kernels over their option grid against plain loops in double, run by the host simulation.
import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { type DType, DTYPE } from '../src/base/dtype.js';
import {
  type AttentionCall,
  backwardLaunches,
  deltaLaunch,
  forwardLaunch,
  forwardLaunches,
  splitLaunches,
} from '../src/backends/gpu/attention-kernels.js';
import { type Launch, valuesOf } from '../src/backends/gpu/plan.js';
import type { DeviceInfo } from '../src/driver/driver.js';
import type { Unit } from '../src/kernels/source.js';
import { unitOf } from '../src/backends/gpu/modules.js';
import { decode, SimRunner } from './sim-support.js';

interface Options {
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
}
type FloatType = 'f32' | 'f64' | 'f16' | 'bf16';

let seed = 9;
const random = (): number => (seed = (Math.imul(seed, 1664525) + 1013904223) >>> 0) / 2 ** 32;
const normal = (): number => Math.sqrt(-2 * Math.log(random() + 1e-12)) * Math.cos(2 * Math.PI * random());

/** A problem on the device, its numbers as doubles, and the reference. */
class Problem {
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

const BOUND: Readonly<Record<FloatType, number>> = { f64: 1e-12, f32: 3e-6, f16: 2e-3, bf16: 1.5e-2 };
/** Weights are powers of differences: the larger the scores, the coarser. */
const boundOf = (dtype: FloatType, o: Options): number => BOUND[dtype] * (o.low && dtype !== 'bf16' ? 16 : 1);
function assertClose(got: readonly number[], want: readonly number[], bound: number, what: string): void {
  const size = Math.max(...want.map((w) => (Number.isFinite(w) ? Math.abs(w) : 0)), 1e-30);
  want.forEach((w, i) =>
    assert.ok(
      Object.is(got[i], w) || w === got[i] || Math.abs(got[i] - w) <= bound * size || Number.isNaN(w),
      `${what}[${i}]: ${got[i]}, in double ${w}`,
    ),
  );
}

const GRID: Readonly<Record<string, Options>> = {
  'all keys': { batch: 2, tq: 70, tk: 67 },
  causal: { tq: 70, tk: 70, right: 0 },
  'causal with more keys than queries': { tq: 9, tk: 150, right: 0 },
  'causal with rows that see no key': { tq: 20, tk: 11, right: 0 },
  'grouped heads': { heads: 6, kvHeads: 2, tq: 17, tk: 33, dim: 40, right: 0 },
  'one key head': { heads: 3, kvHeads: 1, tq: 17, tk: 33, dim: 24 },
  'sliding window': { tq: 100, tk: 100, left: 20, right: 0 },
  'window on both sides': { tq: 70, tk: 80, left: 5, right: 9 },
  'boolean mask': { batch: 2, tq: 12, tk: 70, mask: 'bool' },
  'added mask': { tq: 12, tk: 70, mask: 'add' },
  alibi: { tq: 12, tk: 70, alibi: true, right: 0 },
  'capped scores': { tq: 12, tk: 70, softcap: 1.5 },
  sinks: { tq: 12, tk: 70, sinks: true, right: 0 },
  'rows before heads': { batch: 2, tq: 12, tk: 40, rowsFirst: true, right: 0 },
  'head dimension 80': { tq: 12, tk: 40, dim: 80 },
  'head dimension 200': { heads: 1, tq: 12, tk: 40, dim: 200 },
  'packed sequences': { tq: 25, tk: 40, qStarts: [0, 5, 5, 30], kStarts: [0, 40, 45, 75], right: 0 },
  pages: { batch: 2, tq: 3, tk: 70, page: 16, lengths: [70, 33], right: 0 },
  'scores far below zero': { tq: 70, tk: 70, low: true },
  'everything at once': {
    batch: 2,
    heads: 4,
    kvHeads: 2,
    tq: 12,
    tk: 70,
    dim: 24,
    left: 30,
    right: 3,
    mask: 'add',
    alibi: true,
    sinks: true,
    softcap: 2,
    rowsFirst: true,
  },
};

/** The simulation answers to the name of the target whose layouts it follows. */
const target = (run: SimRunner, arch: string) => ({ ...run.device.info, arch, sharedPerBlockOptin: 65536 });

for (const dtype of ['f32', 'f64'] as const) {
  test(`${dtype}: output, log-sum-exp and gradients over the grid`, () => {
    const run = new SimRunner(32);
    for (const [name, o] of Object.entries(GRID)) {
      const p = new Problem(run, dtype, o);
      p.launch([forwardLaunch(p.call, dtype, run.device.info)]);
      const want = p.reference();
      assertClose(p.read('out'), want.out, boundOf(dtype, o), `${name}: out`);
      assertClose(p.readLse(), want.lse, boundOf(dtype, o), `${name}: lse`);
      if (!o.page) {
        p.launch([deltaLaunch(p.call, dtype), ...backwardLaunches(p.call, dtype, run.device.info)]);
        for (const g of ['dq', 'dk', 'dv'] as const)
          assertClose(p.read(g), want[g], 4 * boundOf(dtype, o), `${name}: ${g}`);
      }
      run.free();
    }
  });
}

test('split keys and their combination give the same, whatever the number of splits', () => {
  const run = new SimRunner(64);
  for (const [name, options] of Object.entries(GRID))
    for (const splits of [1, 5]) {
      const o = { ...options, splits };
      if ((o.tq ?? 8) > 25) continue;
      const p = new Problem(run, 'f32', o);
      p.launch(splitLaunches(p.call, 'f32'));
      const want = p.reference();
      assertClose(p.read('out'), want.out, 1e-5, `${name} in ${splits}: out`);
      assertClose(p.readLse(), want.lse, 1e-5, `${name} in ${splits}: lse`);
      run.free();
    }
});

for (const [wave, arch, layout] of [
  [32, 'sm_80', 'mma'],
  [64, 'gfx90a', 'MFMA'],
] as const) {
  test(`matrix units in the layout of ${layout}: output and log-sum-exp over the grid`, () => {
    const run = new SimRunner(wave);
    for (const [name, o] of Object.entries(GRID)) {
      const dtype = name === 'causal' ? 'f16' : 'bf16';
      const p = new Problem(run, dtype, { ...o, tq: Math.min(o.tq ?? 8, 70) });
      const launch = forwardLaunch(p.call, dtype, target(run, arch));
      assert.equal(launch.kernel.module.name, 'attention-matrix');
      p.launch([launch]);
      const want = p.reference();
      assertClose(p.read('out'), want.out, boundOf(dtype, o), `${name}: out`);
      assertClose(p.readLse(), want.lse, 1e-4, `${name}: lse`);
      run.free();
    }
  });
  test(`matrix units in the layout of ${layout}: gradients over the grid`, () => {
    const run = new SimRunner(wave);
    for (const [name, o] of Object.entries(GRID)) {
      if (o.page || (o.dim ?? 16) > 128) continue;
      const dtype = name === 'causal' ? 'f16' : 'bf16';
      const p = new Problem(run, dtype, o);
      const launches = [deltaLaunch(p.call, dtype), ...backwardLaunches(p.call, dtype, target(run, arch))];
      assert.deepEqual(
        launches.slice(1).map((l) => l.kernel.module.name),
        ['attention-backward-matrix', 'attention-backward-matrix'],
      );
      p.launch([forwardLaunch(p.call, dtype, target(run, arch)), ...launches]);
      const want = p.reference();
      for (const g of ['dq', 'dk', 'dv'] as const)
        assertClose(p.read(g), want[g], 4 * boundOf(dtype, o), `${name}: ${g}`);
      run.free();
    }
  });
}

describe('which kernel Hopper gets', () => {
  const H200 = { arch: 'sm_90', warp: 32, multiprocessors: 132, sharedPerBlockOptin: 232448, tensorMaps: true };
  const rows = (heads: number, t: number, dim: number) => [heads * t * dim, t * dim, dim];
  const call = (tq: number, dim: number, more: Partial<AttentionCall> = {}): AttentionCall => ({
    ...{ q: 0, k: 0, v: 0, out: 0, scale: 0.125, batch: 2, heads: 4, kvHeads: 2, tq, tk: 500, dim, left: -1, right: 0 },
    ...{ qStrides: rows(4, tq, dim), outStrides: rows(4, tq, dim), kStrides: rows(2, 500, dim) },
    vStrides: rows(2, 500, dim),
    ...more,
  });
  const symbol = (c: AttentionCall, info: object = H200): string =>
    forwardLaunches(c, 'bf16', info as DeviceInfo)
      .launches.map((l) => l.symbol)
      .join(' ');
  test('dense problems have one of their own, by head dimension and length', () => {
    assert.equal(symbol(call(500, 128)), 'attention_dense_hopper_bf16_128');
    const of64 = (batch: number, heads: number, t: number, right = -1) =>
      symbol(call(t, 64, { batch, heads, kvHeads: heads, tk: t, right }));
    assert.equal(of64(4, 16, 2048), 'attention_dense_hopper_bf16_64');
    assert.equal(of64(4, 16, 2048, 0), 'attention_dense_hopper_bf16_64');
    assert.equal(of64(16, 16, 1024), 'attention_dense_hopper_bf16_64');
    assert.equal(of64(16, 16, 1024, 0), 'attention_dense_hopper_bf16_64_short');
    assert.equal(of64(2, 16, 2048, 0), 'attention_dense_hopper_bf16_64_short', 'by 192 blocks end later');
    assert.equal(of64(512, 12, 197), 'attention_dense_hopper_bf16_64_short');
    assert.equal(of64(4, 16, 512), 'attention_hopper_bf16_64', 'too little to make maps for');
    assert.equal(of64(2, 16, 1024, 0), 'attention_hopper_bf16_64', 'too little to make maps for');
    assert.equal(symbol(call(500, 128, { left: 9, sinks: 256 })), 'attention_dense_hopper_bf16_128');
  });
  test('a dimension of one element may have any stride, but maps take none of 0', () => {
    const one = call(500, 128, { batch: 1, kStrides: [0, 64000, 128] });
    const [l] = forwardLaunches(one, 'bf16', H200 as unknown as DeviceInfo).launches;
    assert.equal(l.symbol, 'attention_dense_hopper_bf16_128');
    assert.deepEqual((l.args.p as AttentionCall).kStrides, [128, 64000, 128]);
  });
  test('others keep the one for everything', () => {
    const others: readonly Partial<AttentionCall>[] = [
      { kStrides: [0, 64000, 128] },
      { vStrides: [128000, 64000, -128] },
      { outStrides: [256004, 64004, 128] },
      { tk: 0 },
      { lengths: 256 },
      { pages: 256 },
      { qStarts: 256, kStarts: 256 },
    ];
    for (const more of others)
      assert.equal(symbol(call(500, 128, more)), 'attention_hopper_bf16_128', JSON.stringify(more));
    assert.equal(symbol(call(500, 128, { slopes: 256 })), 'attention_hopper_bf16_128_biased');
    assert.equal(symbol(call(500, 128, { maskKind: 1 })), 'attention_hopper_bf16_128_biased');
    assert.equal(symbol(call(500, 128, { softcap: 30 })), 'attention_hopper_bf16_128_capped');
    assert.equal(symbol(call(500, 128), { ...H200, tensorMaps: false }), 'attention_hopper_bf16_128');
  });
});

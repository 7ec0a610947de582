// Attention kernels over their option grid against plain loops in double, run by the host simulation.
import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import {
  type AttentionCall,
  backwardLaunches,
  deltaLaunch,
  forwardLaunch,
  forwardLaunches,
  splitLaunches,
} from '../src/backends/gpu/attention-kernels.js';
import type { DeviceInfo } from '../src/driver/driver.js';
import { type FloatType, type Options, Problem, target } from './attention-problem.js';
import { SimRunner } from './sim-support.js';

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

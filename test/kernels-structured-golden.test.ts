// Candle's own CUDA results against our structured kernels under Candle's names and launches, run by the host
// simulation.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { isFloat } from '../src/base/dtype.js';
import { Layout } from '../src/base/layout.js';
import type { ArgValue } from '../src/kernels/declare.js';
import type { Unit } from '../src/kernels/source.js';
import { kernelModule, unitOf } from '../src/backends/gpu/modules.js';
import { type GoldenCase as Case, goldenCases, goldenTensors as stored, skip } from './golden-support.js';
import { decode, SimRunner } from './sim-support.js';

const MODULES = ['candle/reduce', 'candle/indexing', 'candle/sort', 'candle/conv', 'resample'] as const;
const moduleOf = (c: Case): (typeof MODULES)[number] | undefined =>
  MODULES.find((m) => kernelModule(m).entries.has(c.kernel));
const cases = goldenCases.filter(moduleOf);
const units = new Map<string, Unit>();
const unitFor = (module: string): Unit => {
  const unit =
    units.get(module) ?? unitOf(module, [...new Set(cases.filter((c) => moduleOf(c) === module).map((c) => c.kernel))]);
  units.set(module, unit);
  return unit;
};

const product = (n: readonly number[]): number => n.reduce((a, b) => a * b, 1);
const info = (run: SimRunner, ...shapes: (readonly number[])[]): number =>
  run.buffer(BigUint64Array.from(shapes.flatMap((s) => [...s, ...Layout.contiguous(s).strides]).map(BigInt)));

interface Launch {
  readonly grid: number | number[];
  readonly block: number | number[];
  readonly args: ArgValue[];
  readonly shared?: number;
}
type How = (
  c: Case,
  run: SimRunner,
  x: number,
  shape: number[],
  out: number,
  outShape: number[],
  input: (name: string) => number,
) => Launch;

const threads = (n: number): number => 2 ** Math.ceil(Math.log2(Math.min(1024, n)));
const reduce: How = (_c, run, x, shape, out, outShape) => {
  const n = product(shape) / product(outShape);
  return {
    grid: product(outShape),
    block: threads(n),
    args: [product(shape), n, shape.length, info(run, shape), x, out],
  };
};
const spans = (shape: readonly number[], dim: number): [number, number] => [
  product(shape.slice(0, dim)),
  product(shape.slice(dim + 1)),
];
const along: How = (c, run, x, shape, out, outShape, input) => {
  const [left, right] = spans(shape, c.params.dim);
  const ids = stored.get(c.inputs.ids)!.shape;
  const n = ids.length === 1 ? ids[0] : ids[c.params.dim];
  const sizes = [left, shape[c.params.dim], n, right];
  const args: Record<string, () => ArgValue[]> = {
    index_select: () => [product(outShape), shape.length, info(run, shape), input('ids'), x, out, ...sizes],
    gather: () => [product(outShape), input('ids'), x, out, ...sizes],
    index_add: () => [input('ids'), n, input('src'), out, left, n, shape[c.params.dim], right],
    scatter_set: () => [input('ids'), input('src'), out, left, n, shape[c.params.dim], right],
    scatter_add: () => [input('ids'), input('src'), out, left, n, shape[c.params.dim], right],
  };
  return { grid: 2, block: 64, args: args[c.op]() };
};
const norm: How = (c, _run, x, shape, out, _o, input) => {
  const cols = shape.at(-1)!;
  const block = cols < 1024 ? 32 : 1024;
  const weights =
    c.op === 'rms_norm' ? [input('alpha')] : [c.inputs.alpha ? input('alpha') : 0, c.inputs.beta ? input('beta') : 0];
  return { grid: product(shape) / cols, block, args: [x, out, ...weights, cols, block, c.params.eps] };
};
const rope: How = (c, _run, x, [b, p, q, d], out, _o, input) => {
  const [h, t] = c.op === 'rope_thd' ? [q, p] : [p, q];
  const stride = c.params.batched ? h * t * d : 0;
  const sizes: Record<string, number[]> = { rope_i: [b * h, t * d], rope: [b * h, t * d, d], rope_thd: [b, t, h, d] };
  return {
    grid: Math.ceil((b * h * t * d) / 2 / 64),
    block: 64,
    args: [x, input('cos'), input('sin'), out, ...sizes[c.op], stride],
  };
};
const conv: How = (c, run, x, shape, out, outShape, input) => {
  const { stride, padding, dilation, output_padding: extra } = c.params;
  const kernel = stored.get(c.inputs.w)!.shape;
  const sizes: Record<string, ArgValue[]> = {
    conv1d: [product(shape), 3, stride, padding, dilation],
    conv2d: [product(shape), outShape[2], outShape[3], stride, padding, dilation],
    conv_transpose1d: [product(shape), outShape[2], stride, padding, extra, dilation],
    conv_transpose2d: [product(shape), outShape[2], outShape[3], stride, padding, extra, dilation],
  };
  return { grid: 3, block: 64, args: [...sizes[c.op], info(run, shape, kernel), x, input('w'), out] };
};
const HOW: Readonly<Record<string, How>> = {
  sum: reduce,
  min: reduce,
  max: reduce,
  argmin: reduce,
  argmax: reduce,
  index_select: along,
  gather: along,
  index_add: along,
  scatter_set: along,
  scatter_add: along,
  softmax: (_c, _run, x, shape, out) => ({
    grid: product(shape) / shape.at(-1)!,
    block: [1, 32],
    args: [x, out, shape.at(-1)!],
  }),
  rms_norm: norm,
  layer_norm: norm,
  rope,
  rope_i: rope,
  rope_thd: rope,
  conv1d: conv,
  conv2d: conv,
  conv_transpose1d: conv,
  conv_transpose2d: conv,
  arg_sort: (_c, _run, x, shape, out) => {
    const cols = shape.at(-1)!;
    const padded = 2 ** Math.ceil(Math.log2(cols));
    return {
      grid: [1, product(shape) / cols],
      block: Math.min(1024, padded),
      args: [x, out, cols, padded],
      shared: padded * 4,
    };
  },
  avg_pool2d: (c, run, x, shape, out) => ({
    grid: 2,
    block: 64,
    args: [product(shape), ...c.params.kernel, ...c.params.stride, info(run, shape), x, out],
  }),
  max_pool2d: (c, run, x, shape, out) => ({
    grid: 2,
    block: 64,
    args: [product(shape), ...c.params.kernel, ...c.params.stride, info(run, shape), x, out],
  }),
  upsample_nearest2d: (c, run, x, shape, out) => {
    const [a, b] = c.params.size;
    return { grid: 2, block: 64, args: [a, b, shape[2] / a, shape[3] / b, info(run, shape), x, out] };
  },
  upsample_bilinear2d: (c, run, x, shape, out) => {
    const [h, w] = c.params.size;
    return { grid: 2, block: 64, args: [w, h, c.params.align_corners ? 1 : 0, 0, 1, 0, 1, info(run, shape), x, out] };
  },
};
const BASE_IS_X = new Set(['index_add', 'scatter_set', 'scatter_add']);
const EXACT = new Set([
  'min',
  'max',
  'index_select',
  'gather',
  'scatter_set',
  'arg_sort',
  'max_pool2d',
  'upsample_nearest2d',
]);
/** Candle's argmin and argmax give any of several equal elements; ours give the first. */
const FIRST = new Set(['argmin', 'argmax']);
/**
 * Relative to the largest magnitude: sums and products round differently there, and Candle adds 16-bit values in 16
 * bits.
 */
const BOUND: Readonly<Record<string, number>> = { f64: 2e-7, f32: 1e-6, f16: 4e-3, bf16: 3e-2, f8e4m3: 0.13 };

for (const wave of [32, 64] as const) {
  for (const module of MODULES) {
    test(`kernels/${module}.hip gives Candle's numbers with waves of ${wave}`, { skip }, () => {
      const run = new SimRunner(wave);
      const unit = unitFor(module);
      const bad: string[] = [];
      let seen = 0;
      for (const c of cases.filter((k) => moduleOf(k) === module)) {
        const input = (name: string): number => run.buffer(stored.get(c.inputs[name])!.raw);
        const x = stored.get(c.inputs.x)!;
        const y = stored.get(Object.values(c.outputs)[0])!;
        const out = BASE_IS_X.has(c.op) ? run.buffer(x.raw) : run.buffer(y.raw.byteLength);
        const how = HOW[c.op];
        assert.ok(how, `no launch is written for ${c.op}`);
        const l = how(c, run, BASE_IS_X.has(c.op) ? 0 : run.buffer(x.raw), x.shape, out, y.shape, input);
        run.launch(unit, c.kernel, l.grid, l.block, l.args, l.shared ?? 0);
        const got = decode(y.dtype, run.read(y.dtype, out, y.raw.length));
        const want = decode(y.dtype, y.raw);
        const scale = want.reduce<number>(
          (a, v) => Math.max(a, Number.isFinite(Number(v)) ? Math.abs(Number(v)) : 0),
          1e-30,
        );
        const close = (a: number, b: number): boolean =>
          Object.is(a, b) || a === b || (a !== a && b !== b) || Math.abs(a - b) <= BOUND[y.dtype] * scale;
        const values = decode(x.dtype, x.raw);
        const cols = x.shape.at(-1)!;
        const agrees = (mine: number, theirs: number, i: number): boolean =>
          mine <= theirs &&
          values[i * cols + mine] === values[i * cols + theirs] &&
          values.indexOf(values[i * cols + mine], i * cols) === i * cols + mine;
        const at = got.findIndex((v, i) =>
          FIRST.has(c.op)
            ? !agrees(Number(v), Number(want[i]), i)
            : EXACT.has(c.op) || !isFloat(y.dtype)
              ? !(v === want[i] || (v !== v && want[i] !== want[i]))
              : !close(Number(v), Number(want[i])),
        );
        if (at >= 0)
          bad.push(`${c.id} ${c.kernel} ${JSON.stringify(c.params)} [${at}]: ${got[at]} instead of ${want[at]}`);
        seen++;
        run.free();
      }
      assert.deepEqual(bad, []);
      assert.ok(seen > 0, 'no case was found');
    });
  }
}

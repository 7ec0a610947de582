// Cases of reductions, softmax and norms against plain loops.
import assert from 'node:assert/strict';
import { type DType, isFloat, sumDType } from '../src/base/dtype.js';
import { normGradLaunch, normLaunch, stream as normStream } from '../src/backends/gpu/norm.js';
import { at, launch, type Launches, single, type Target } from '../src/backends/gpu/plan.js';
import { rowStream } from '../src/backends/gpu/row-shapes.js';
import { softmaxGradLaunch, softmaxLaunch, stream as softmaxStream } from '../src/backends/gpu/softmax.js';
import { reduceLaunch, type ReduceRow } from '../src/backends/gpu/reduce.js';
import { reduceOps } from '../src/ops/reduce.js';
import { cases, random, rounded, make, floats, num, same, range, rowsOf } from './structured-data.js';

// ---- reductions ----

type Reduction = 'deviations' | 'spread' | 'sum' | 'mean' | 'prod' | 'min' | 'max' | 'argmin' | 'argmax';
const reduceRow = (op: Reduction): ReduceRow => reduceOps[op] as unknown as ReduceRow;
function reduced(op: Reduction, v: readonly number[]): number {
  const numbers = v.filter((x) => x === x);
  const sum = v.reduce((a, b) => a + b, 0);
  const best = op === 'max' || op === 'argmax' ? Math.max(...numbers) : Math.min(...numbers);
  const squares = v.reduce((a, b) => a + (b - sum / v.length) ** 2, 0);
  return {
    deviations: squares,
    spread: Math.sqrt(squares),
    sum,
    mean: sum / v.length,
    prod: v.reduce((a, b) => a * b, 1),
    min: best,
    max: best,
    argmin: v.indexOf(best),
    argmax: v.indexOf(best),
  }[op];
}
function addReduce(op: Reduction, dtype: DType, outer: number, n: number, inner: number, aligned: boolean): void {
  const src = isFloat(dtype)
    ? floats(dtype, outer * n * inner, op === 'prod' ? 0.9 : -2, op === 'prod' ? 1.1 : 2)
    : make(dtype, outer * n * inner, () => random() * 4);
  const x = num(src);
  const out = range(outer * inner).map((i) =>
    reduced(
      op,
      range(n).map((k) => x[(Math.floor(i / inner) * n + k) * inner + (i % inner)]),
    ),
  );
  const total = op === 'sum' || op === 'prod' ? sumDType(dtype) : dtype;
  const wrapped =
    op === 'argmin' || op === 'argmax'
      ? same('u32', out)
      : isFloat(dtype)
        ? { dtype, values: out }
        : { dtype: total, values: out.map((v) => rounded(total, BigInt(v))) };
  cases.push({
    name: `${op} ${dtype} [${outer}, ${n}, ${inner}]${aligned ? ' aligned' : ''}`,
    plan: (t) => reduceLaunch(reduceRow(op), dtype, outer, n, inner, t, aligned),
    inputs: { src },
    outputs: { dst: wrapped },
    bound: dtype === 'f32' && op === 'prod' ? 1e-4 : undefined,
  });
}
for (const dtype of ['f32', 'bf16'] as const) {
  for (const op of ['sum', 'argmax'] as const) {
    for (const [outer, n, inner] of [
      [5, 3, 1],
      [9, 128, 1],
      [70, 16, 1],
      [3, 2052, 1],
      [1, 40000, 1],
      [2, 7, 5],
      [3, 33, 40],
      [1, 3000, 3],
    ])
      addReduce(op, dtype, outer, n, inner, true);
  }
  addReduce('sum', dtype, 3, 1001, 1, false);
}
for (const [outer, n, inner, aligned] of [
  [5, 3, 1, true],
  [9, 128, 1, true],
  [3, 2052, 1, true],
  [3, 1001, 1, false],
  [1, 40000, 1, true],
  [2, 7, 5, true],
  [3, 33, 40, true],
  [1, 3000, 3, true],
  [1, 3000, 8, true],
] as const)
  for (const op of ['deviations', 'spread'] as const) addReduce(op, 'f32', outer, n, inner, aligned);
for (const op of ['mean', 'prod', 'min', 'max', 'argmin'] as const) {
  addReduce(op, 'f16', 4, 40, 1, true);
  addReduce(op, 'f64', 2, 19, 3, true);
}
for (const dtype of ['u8', 'i64', 'i16'] as const) {
  addReduce('sum', dtype, 3, 100, 1, false);
  addReduce('argmin', dtype, 2, 48, 1, true);
}
const nans = [NaN, 3, NaN, 7, 7, NaN, 1, NaN, NaN, NaN, NaN, NaN, NaN, NaN, NaN, NaN];
for (const [op, out] of [
  ['max', [7, NaN]],
  ['argmax', [3, 0]],
] as const) {
  cases.push({
    name: `${op} passes over NaN`,
    plan: (t) => reduceLaunch(reduceRow(op), 'f32', 2, 8, 1, t, true),
    inputs: { src: { dtype: 'f32', values: nans } },
    outputs: { dst: same(op === 'max' ? 'f32' : 'u32', out as unknown as number[]) },
  });
}
cases.push({
  name: 'max of bf16 keeps NaN',
  plan: (t) => reduceLaunch(reduceRow('max'), 'bf16', 1, 16, 1, t, true),
  inputs: { src: { dtype: 'bf16', values: nans } },
  outputs: { dst: { dtype: 'bf16', values: [NaN] } },
});

// ---- softmax and norms ----

for (const [dtype, rows, cols, aligned] of [
  ['f32', 5, 8, true],
  ['f32', 40, 128, true],
  ['f32', 3, 1000, true],
  ['f32', 3, 2049, false],
  ['f32', 2, 5000, false],
  ['f32', 1, 4, true],
  ['bf16', 3, 4096, true],
  ['f16', 9, 17, false],
  ['f64', 3, 66, true],
  ['bf16', 2, 40000, true],
  ['f32', 2, 8192 * 2, true],
] as const) {
  for (const log of [false, true]) {
    const src = floats(dtype, rows * cols, -4, 4);
    const out = rowsOf(num(src), cols).flatMap((r) => {
      const top = Math.max(...r);
      const sum = r.reduce((a, v) => a + Math.exp(v - top), 0);
      return r.map((v) => (log ? v - top - Math.log(sum) : Math.exp(v - top) / sum));
    });
    const what = `${log ? 'logSoftmax' : 'softmax'} ${dtype} [${rows}, ${cols}]`;
    cases.push({
      name: what,
      plan: (t) => softmaxLaunch(log, dtype, rows, cols, t, aligned),
      inputs: { src },
      outputs: { dst: { dtype, values: out } },
    });
    if (cols > 8000) continue;
    const y = make(dtype, out.length, (i) => out[i]);
    const grad = floats(dtype, rows * cols);
    const g = rowsOf(num(grad), cols);
    const dx = rowsOf(num(y), cols).flatMap((r, i) => {
      const sum = r.reduce((a, v, c) => a + (log ? g[i][c] : v * g[i][c]), 0);
      return r.map((v, c) => (log ? g[i][c] - Math.exp(v) * sum : v * (g[i][c] - sum)));
    });
    cases.push({
      name: `gradient of ${what}`,
      plan: (t) => softmaxGradLaunch(log, dtype, rows, cols, t, aligned),
      inputs: { out: y, grad },
      outputs: { dx: { dtype, values: dx } },
      bound: dtype === 'f32' ? 1e-5 : undefined,
    });
  }
}
/** A Hopper GPU of one multiprocessor: its launches run here too, as far as shared memory goes. */
const hopper = (t: Target): Target => ({ ...t, arch: 'sm_90', multiprocessors: 1 });
/** Rows that are short enough for the simulation's shared memory pass through it as long ones do on a GPU. */
function streamed(
  dtype: DType,
  rows: number,
  cols: number,
  t: Target,
): { block: number; grid: number; shared: number } {
  const s = rowStream(dtype, rows, cols, hopper(t));
  assert.ok(s, `rows of ${dtype} [${rows}, ${cols}] are streamed`);
  return s;
}
for (const log of [false, true]) {
  const [rows, cols] = [17, 4092];
  const src = floats('f32', rows * cols, -4, 4);
  const out = rowsOf(num(src), cols).flatMap((r) => {
    const top = Math.max(...r);
    const sum = r.reduce((a, v) => a + Math.exp(v - top), 0);
    return r.map((v) => (log ? v - top - Math.log(sum) : Math.exp(v - top) / sum));
  });
  cases.push({
    name: `${log ? 'logSoftmax' : 'softmax'} of streamed rows`,
    plan: (t) => {
      const { grid, block, shared } = streamed('f32', rows, cols, t);
      const args = { src: at('src'), dst: at('dst'), rows, cols };
      return single(launch(softmaxStream, { log, dtype: 'f32' }, grid, block, args, shared));
    },
    inputs: { src },
    outputs: { dst: { dtype: 'f32', values: out } },
  });
}
cases.push({
  name: 'softmax of rows with infinities, several blocks a row',
  plan: (t) => softmaxLaunch(false, 'f32', 1, 32768, t, true),
  inputs: { src: make('f32', 32768, (i) => (i === 20000 ? 3 : i < 9000 ? -Infinity : -200)) },
  outputs: { dst: make('f32', 32768, (i) => (i === 20000 ? 1 : 0)) },
});

for (const [dtype, rows, cols, aligned, weight, bias, long] of [
  ['f32', 17, 4092, true, true, true, true],
  ['bf16', 18, 4096, true, true, true, true],
  ['f16', 17, 2056, true, true, false, true],
  ['f32', 16, 1024, true, false, false, true],
  ['bf16', 70, 128, true, true, true],
  ['f16', 9, 24, true, true, false],
  ['bf16', 5, 8, true, false, true],
  ['f16', 33, 512, true, false, false],
  ['f32', 7, 64, true, true, true],
  ['f32', 3, 2047, false, true, false],
  ['f32', 2, 6000, false, false, false],
  ['bf16', 4, 512, true, true, true],
  ['f64', 40, 33, false, true, true],
  ['f32', 70, 12, true, false, true],
  ['f32', 2, 16384, true, true, true],
] as const) {
  for (const kind of ['layer', 'rms'] as const) {
    if (bias && kind === 'rms') continue; // RMS norms have none
    const [src, w, b, grad] = [
      floats(dtype, rows * cols, -1, 3),
      floats(dtype, cols),
      floats(dtype, cols),
      floats(dtype, rows * cols),
    ];
    const options = { kind, eps: 1e-5, weight, bias };
    const inputs = { src, ...(weight ? { weight: w } : {}), ...(bias ? { bias: b } : {}) };
    const [wn, bn, g] = [num(w), num(b), rowsOf(num(grad), cols)];
    const dw = new Array<number>(cols).fill(0);
    const db = new Array<number>(cols).fill(0);
    const y: number[] = [];
    const dx: number[] = [];
    rowsOf(num(src), cols).forEach((r, i) => {
      const mean = kind === 'layer' ? r.reduce((a, v) => a + v, 0) / cols : 0;
      const rstd = 1 / Math.sqrt(r.reduce((a, v) => a + (v - mean) ** 2, 0) / cols + options.eps);
      const hat = r.map((v) => (v - mean) * rstd);
      const gw = g[i].map((v, c) => v * (weight ? wn[c] : 1));
      const m = kind === 'layer' ? gw.reduce((a, v) => a + v, 0) / cols : 0;
      const along = gw.reduce((a, v, c) => a + v * hat[c], 0) / cols;
      hat.forEach((v, c) => {
        y.push(v * (weight ? wn[c] : 1) + (bias ? bn[c] : 0));
        dx.push(rstd * (gw[c] - m - v * along));
        dw[c] += g[i][c] * v;
        db[c] += g[i][c];
      });
    });
    const name = `${kind} norm ${dtype} [${rows}, ${cols}]${weight ? ' weight' : ''}${bias ? ' bias' : ''}`;
    const one = (t: Target): Launches => {
      if (!long || dtype === 'f64') return normLaunch(options, dtype, rows, cols, t, aligned);
      const { grid, block, shared } = streamed(dtype, rows, cols, t);
      const args = { src: at('src'), dst: at('dst'), weight: weight ? at('weight') : 0, bias: bias ? at('bias') : 0 };
      return single(
        launch(normStream, { kind, dtype }, grid, block, { ...args, rows, cols, eps: options.eps }, shared),
      );
    };
    cases.push({ name: long ? `${name} streamed` : name, plan: one, inputs, outputs: { dst: { dtype, values: y } } });
    if (long) continue;
    cases.push({
      name: `gradients of ${name}`,
      plan: (t) => normGradLaunch(options, dtype, rows, cols, t, aligned, true),
      inputs: { ...inputs, grad },
      outputs: {
        dx: { dtype, values: dx },
        ...(weight ? { dweight: { dtype, values: dw } } : {}),
        ...(bias ? { dbias: { dtype, values: db } } : {}),
      },
      bound: dtype === 'f32' ? 1e-5 : undefined,
    });
  }
}

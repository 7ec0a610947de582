// Our own structured kernels, launched by their plans on the host simulation, against plain loops: both wave sizes,
// both orders, two poisons.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { DTYPE, type DType, isFloat, type Value, sumDType } from '../src/base/dtype.js';
import { Layout } from '../src/base/layout.js';
import { simOptions } from '../src/driver/sim.js';
import type { Unit } from '../src/kernels/source.js';
import { unitOf } from '../src/backends/gpu/modules.js';
import { gatherLaunch, indexAddLaunch, scatterLaunch, selectRowsLaunch } from '../src/backends/gpu/indexing.js';
import { gemmLaunch } from '../src/backends/gpu/matmul.js';
import { poolLaunch } from '../src/backends/gpu/pool.js';
import { bilinearGradLaunch, bilinearLaunch, nearestLaunch } from '../src/backends/gpu/resample.js';
import { convLaunch } from '../src/backends/gpu/conv.js';
import { normGradLaunch, normLaunch, stream as normStream } from '../src/backends/gpu/norm.js';
import { at, launch, type Launches, single, type Target, valuesOf } from '../src/backends/gpu/plan.js';
import { ropeLaunch } from '../src/backends/gpu/rope.js';
import { rowStream } from '../src/backends/gpu/row-shapes.js';
import { scanLaunch } from '../src/backends/gpu/scan.js';
import { softmaxGradLaunch, softmaxLaunch, stream as softmaxStream } from '../src/backends/gpu/softmax.js';
import { sortLaunch } from '../src/backends/gpu/sort.js';
import { reduceLaunch, type ReduceRow } from '../src/backends/gpu/reduce.js';
import { reduceOps } from '../src/ops/reduce.js';
import { decode, SimRunner } from './sim-support.js';

interface Data {
  readonly dtype: DType;
  readonly values: readonly Value[];
}
interface Case {
  readonly name: string;
  readonly plan: (target: Target) => Launches;
  readonly inputs: Readonly<Record<string, Data>>;
  /** What must be found in buffers after the launches; a buffer that is an input too starts with it. */
  readonly outputs: Readonly<Record<string, Data>>;
  /** Relative to the largest magnitude; the dtype's own unless said. */
  readonly bound?: number;
}
const BOUND: Readonly<Record<string, number>> = { f64: 1e-13, f32: 3e-6, f16: 2e-3, bf16: 1.6e-2, f8e4m3: 0.13 };
const cases: Case[] = [];

// ---- data: the values are what the dtype really holds ----

let seed = 1;
const random = (): number => (seed = (seed * 1103515245 + 12345) % 2147483648) / 2147483648;
const rounded = (dtype: DType, v: Value): Value => DTYPE[dtype].decode(DTYPE[dtype].encode(v) as number);
const make = (dtype: DType, n: number, of: (i: number) => number): Data => ({
  dtype,
  values: Array.from({ length: n }, (_, i) => rounded(dtype, isFloat(dtype) ? of(i) : BigInt(Math.floor(of(i))))),
});
const floats = (dtype: DType, n: number, low = -2, high = 2): Data =>
  make(dtype, n, () => low + random() * (high - low));
const num = (d: Data): number[] => d.values.map(Number);
const same = (dtype: DType, values: readonly number[]): Data => ({
  dtype,
  values: values.map((v) => (isFloat(dtype) ? v : BigInt(v))),
});
const range = (n: number): number[] => Array.from({ length: n }, (_, i) => i);
const REALS: readonly DType[] = ['f32', 'f64', 'f16', 'bf16'];

// ---- reductions ----

type Reduction = 'sum' | 'mean' | 'prod' | 'min' | 'max' | 'argmin' | 'argmax';
const reduceRow = (op: Reduction): ReduceRow => reduceOps[op] as unknown as ReduceRow;
function reduced(op: Reduction, v: readonly number[]): number {
  const numbers = v.filter((x) => x === x);
  const sum = v.reduce((a, b) => a + b, 0);
  const best = op === 'max' || op === 'argmax' ? Math.max(...numbers) : Math.min(...numbers);
  return {
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

const rowsOf = (x: readonly number[], cols: number): number[][] =>
  range(x.length / cols).map((r) => x.slice(r * cols, (r + 1) * cols));
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

// ---- rope, scans ----

for (const kind of ['halves', 'pairs', 'thd'] as const) {
  for (const [dtype, d, batched, inverse] of [
    ['f32', 16, false, false],
    ['bf16', 32, true, false],
    ['f16', 6, false, true],
  ] as const) {
    const [b, h, t] = [2, 3, 5];
    const src = floats(dtype, b * h * t * d);
    const [cos, sin] = [
      floats(dtype, (batched ? b : 1) * t * (d / 2), -1, 1),
      floats(dtype, (batched ? b : 1) * t * (d / 2), -1, 1),
    ];
    const x = num(src);
    const out = new Array<number>(x.length);
    for (let row = 0; row < b * h * t; row++) {
      const time = kind === 'thd' ? Math.floor(row / h) % t : row % t;
      for (let i = 0; i < d / 2; i++) {
        const a = ((batched ? Math.floor(row / (h * t)) * t : 0) + time) * (d / 2) + i;
        const [p, q] = kind === 'pairs' ? [row * d + 2 * i, row * d + 2 * i + 1] : [row * d + i, row * d + d / 2 + i];
        const [c, s] = [num(cos)[a], num(sin)[a] * (inverse ? -1 : 1)];
        out[p] = x[p] * c - x[q] * s;
        out[q] = x[p] * s + x[q] * c;
      }
    }
    cases.push({
      name: `rope ${kind} ${dtype} d ${d}`,
      plan: () => ropeLaunch({ kind, b, h, t, d, batched, inverse }, dtype, true),
      inputs: { src, cos, sin },
      outputs: { dst: { dtype, values: out } },
    });
  }
}
for (const [dtype, outer, n, inner] of [
  ['f32', 3, 5, 1],
  ['f32', 1, 20000, 1],
  ['bf16', 2, 1500, 1],
  ['bf16', 2, 5008, 1],
  ['i64', 2, 3000, 1],
  ['u8', 2, 300, 1],
  ['f64', 2, 9, 4],
  ['f32', 1, 5000, 3],
  ['bf16', 2, 701, 5],
  ['u8', 1, 300, 7],
] as const) {
  for (const [reverse, exclusive] of [
    [false, false],
    [true, false],
    [false, true],
    [true, true],
  ]) {
    const src = isFloat(dtype)
      ? floats(dtype, outer * n * inner, 0.1, 1)
      : make(dtype, outer * n * inner, () => random() * 9);
    const x = num(src);
    const out = new Array<number>(x.length);
    for (let c = 0; c < outer * inner; c++) {
      for (let k = 0, sum = 0; k < n; k++) {
        const i = (Math.floor(c / inner) * n + (reverse ? n - 1 - k : k)) * inner + (c % inner);
        out[i] = exclusive ? sum : sum + x[i];
        sum += x[i];
      }
    }
    const dst = isFloat(dtype) ? { dtype, values: out } : { dtype: sumDType(dtype), values: out.map(BigInt) };
    cases.push({
      name: `cumsum ${dtype} [${outer}, ${n}, ${inner}] reverse ${reverse} exclusive ${exclusive}`,
      plan: (t) => scanLaunch(dtype, outer, n, inner, reverse, exclusive, t, true),
      inputs: { src },
      outputs: { dst },
    });
  }
}

// ---- sorting ----

function order(x: readonly number[], descending: boolean): number[] {
  const above = (a: number, b: number): number =>
    a !== a ? (b !== b ? 0 : 1) : b !== b ? -1 : a < b ? -1 : a > b ? 1 : 0;
  return range(x.length).sort((i, j) => (descending ? above(x[j], x[i]) : above(x[i], x[j])) || i - j);
}
for (const [dtype, rows, cols, keep] of [
  ['f32', 3, 5, 5],
  ['f32', 70, 9, 3],
  ['f32', 2, 1000, 1000],
  ['f32', 2, 4096, 10],
  ['f32', 2, 5000, 5000],
  ['bf16', 2, 4500, 7],
  ['u8', 2, 300, 300],
  ['u8', 1, 9000, 9000],
  ['f64', 2, 200, 200],
  ['f64', 1, 2100, 2100],
  ['i64', 1, 33, 33],
  ['i32', 2, 130, 130],
  ['i16', 2, 64, 64],
  ['f8e4m3', 3, 40, 40],
] as const) {
  for (const descending of [false, true]) {
    const src = isFloat(dtype)
      ? make(dtype, rows * cols, (i) =>
          i % 97 === 5 ? NaN : i % 31 === 3 ? -0 : i % 41 === 7 ? Infinity : Math.round((random() * 40 - 20) * 4) / 4,
        )
      : make(dtype, rows * cols, () => (dtype === 'u8' ? random() * 200 : random() * 60 - 30));
    const sorted = rowsOf(num(src), cols).map((r) => order(r, descending).slice(0, keep));
    cases.push({
      name: `sort ${dtype} [${rows}, ${cols}] keep ${keep}${descending ? ' descending' : ''}`,
      plan: () =>
        sortLaunch(dtype, rows, cols, keep, descending, {
          src: at('src'),
          indices: at('indices'),
          values: at('values'),
          scratch: at('scratch'),
        }),
      inputs: { src },
      outputs: {
        indices: same('u32', sorted.flat()),
        values: { dtype, values: sorted.flatMap((r, i) => r.map((c) => src.values[i * cols + c])) },
      },
    });
  }
}

// ---- indices ----

const SENTINEL: Readonly<Record<string, bigint>> = {
  u8: 255n,
  u32: 2n ** 32n - 1n,
  i64: 2n ** 63n - 1n,
  i16: 32767n,
  i32: 2n ** 31n - 1n,
};
const idsOf = (dtype: DType, n: number, size: number): Data => ({
  dtype,
  values: range(n).map((i) => (i % 5 === 3 ? SENTINEL[dtype] : BigInt(Math.floor(random() * size)))),
});
const noFault = { fault: same('u32', [0]) };
for (const [ids, dtype, left, dim, n, right, step] of [
  ['u32', 'bf16', 2, 6, 9, 24, 1],
  ['i64', 'f32', 1, 7, 3, 1000, 2],
  ['u8', 'u8', 3, 5, 4, 3, 1],
  ['i16', 'f64', 1, 5, 6, 1, 1],
] as const) {
  const index = idsOf(ids, n * step, dim);
  const src = make(dtype, left * dim * right, () => random() * 100);
  const out: Value[] = [];
  for (let l = 0; l < left; l++)
    for (let j = 0; j < n; j++)
      for (let r = 0; r < right; r++) {
        const id = index.values[j * step];
        out.push(id === SENTINEL[ids] ? (isFloat(dtype) ? 0 : 0n) : src.values[(l * dim + Number(id)) * right + r]);
      }
  cases.push({
    name: `select rows ${ids} ${dtype} right ${right} step ${step}`,
    plan: () => selectRowsLaunch(ids, left, dim, n, right * DTYPE[dtype].bytes, step, 16),
    inputs: { ids: index, src, ...noFault },
    outputs: { dst: { dtype, values: out }, ...noFault },
  });
}
cases.push({
  name: 'an index out of range reads NaN and sets the fault word',
  plan: () => selectRowsLaunch('i64', 1, 3, 2, 4, 1, 16),
  inputs: { ids: { dtype: 'i64', values: [-1n, 2n] }, src: same('f32', [1, 2, 3]), ...noFault },
  outputs: { dst: same('f32', [NaN, 3]), fault: same('u32', [1]) },
});
{
  // Indices smaller than the source in another dimension, with strides: ids [3, 2] seen through the transpose of [2,
  // 3], source [4, 5], dim 0.
  const ids = idsOf('u32', 6, 4);
  const src = floats('f16', 20);
  const info: Data = { dtype: 'i64', values: [3n, 2n, 1n, 3n, 0n, 1n] };
  const out = range(6)
    .map((i) => [Math.floor(i / 2), i % 2])
    .map(([r, c]) => {
      const id = ids.values[r + 3 * c];
      return id === SENTINEL.u32 ? 0 : src.values[Number(id) * 5 + c];
    });
  cases.push({
    name: 'gather with strided indices of another shape',
    plan: () => gatherLaunch('u32', 'f16', 2, 4, 5, 6),
    inputs: { ids, src, info, ...noFault },
    outputs: { dst: { dtype: 'f16', values: out }, ...noFault },
  });
  for (const add of [false, true]) {
    const x = floats('f32', 20);
    const from = floats('f32', 6);
    const to = num(x);
    for (let c = 0; c < 2; c++)
      for (let r = 0; r < 3; r++) {
        const id = ids.values[r + 3 * c];
        if (id !== SENTINEL.u32)
          to[Number(id) * 5 + c] = Math.fround((add ? to[Number(id) * 5 + c] : 0) + num(from)[r * 2 + c]);
      }
    cases.push({
      name: `scatter${add ? 'Add' : ''} with strided indices of another shape`,
      inputs: { ids, src: from, dst: x, info: { dtype: 'i64', values: [2n, 3n, 1n, 1n] }, ...noFault },
      plan: () =>
        scatterLaunch(add, 'u32', 'f32', {
          rank: 1,
          lanes: 2,
          count: 3,
          idsStep: 1,
          srcStep: 2,
          dstDim: 4,
          dstStep: 5,
        }),
      outputs: { dst: { dtype: 'f32', values: to } },
    });
  }
}
// Few long lanes: sorted, with the same result as one after the other.
for (const [ids, dtype, lanes, count, size, add] of [
  ['u32', 'f32', 1, 300, 40, true],
  ['i64', 'bf16', 3, 700, 20, true],
  ['u32', 'f32', 1, 5000, 4000, false],
  ['i32', 'u8', 2, 260, 9, false],
] as const) {
  const index = idsOf(ids, lanes * count, size);
  const [x, src] = isFloat(dtype)
    ? [floats(dtype, lanes * size), floats(dtype, lanes * count)]
    : [make(dtype, lanes * size, () => random() * 100), make(dtype, lanes * count, () => random() * 100)];
  const to = [...x.values];
  const plus = (p: Value, q: Value): Value =>
    rounded(dtype, isFloat(dtype) ? Number(p) + Number(q) : BigInt(p) + BigInt(q));
  // Lanes are columns: ids [count, lanes], src and dst alike.
  for (let j = 0; j < count; j++)
    for (let l = 0; l < lanes; l++) {
      const id = index.values[j * lanes + l];
      const at = Number(id) * lanes + l;
      if (id !== SENTINEL[ids]) to[at] = add ? plus(to[at], src.values[j * lanes + l]) : src.values[j * lanes + l];
    }
  cases.push({
    name: `scatter${add ? 'Add' : ''} of ${lanes} long lanes ${ids} ${dtype}`,
    inputs: { ids: index, src, dst: x, info: { dtype: 'i64', values: [BigInt(lanes), 1n, 1n, 1n] }, ...noFault },
    plan: () =>
      scatterLaunch(add, ids, dtype, {
        rank: 1,
        lanes,
        count,
        idsStep: lanes,
        srcStep: lanes,
        dstDim: size,
        dstStep: lanes,
      }),
    outputs: { dst: { dtype, values: to } },
  });
}
for (const [ids, dtype, left, dim, n, right] of [
  ['u32', 'f32', 2, 5, 40, 33],
  ['i64', 'bf16', 1, 3, 5000, 2],
] as const) {
  const index = idsOf(ids, n, dim);
  const [x, src] = [floats(dtype, left * dim * right), floats(dtype, left * n * right)];
  const out = num(x);
  for (let l = 0; l < left; l++)
    index.values.forEach((id, j) => {
      if (id !== SENTINEL[ids])
        for (let r = 0; r < right; r++) out[(l * dim + Number(id)) * right + r] += num(src)[(l * n + j) * right + r];
    });
  cases.push({
    name: `index add of sorted runs ${ids} ${dtype} n ${n}`,
    plan: () => indexAddLaunch(ids, dtype, left, dim, n, right, 1),
    inputs: { ids: index, src, dst: x, ...noFault },
    outputs: { dst: { dtype, values: out } },
  });
}

// ---- products ----

function addGemm(
  dtype: DType,
  m: number,
  n: number,
  k: number,
  order: string,
  batch: readonly [number, number, number] = [1, 1, 1],
  bias = false,
  align = 16,
): void {
  const count = batch[0] * batch[1] * batch[2];
  const [a, b, c] = [floats(dtype, count * m * k, -1, 1), floats(dtype, k * n, -1, 1), floats(dtype, n)];
  const [aM, aK] = order[0] === 'k' ? [k, 1] : [1, m];
  const [bN, bK] = order[1] === 'k' ? [k, 1] : [1, n];
  const [x, y, z] = [num(a), num(b), num(c)];
  const out = range(count * m * n).map((i) => {
    const [at, r, j] = [Math.floor(i / (m * n)), Math.floor(i / n) % m, i % n];
    let sum = bias ? z[j] : 0;
    for (let q = 0; q < k; q++) sum += x[at * m * k + r * aM + q * aK] * y[j * bN + q * bK];
    return sum;
  });
  const product = {
    m,
    n,
    k,
    batch,
    bias,
    align,
    a: { row: aM, k: aK, batch: [batch[1] * batch[2] * m * k, batch[2] * m * k, m * k] as const },
    b: { row: bN, k: bK, batch: [0, 0, 0] as const },
  };
  cases.push({
    name: `gemm ${dtype} ${count} x ${m} x ${n} x ${k} ${order}${bias ? ' bias' : ''} align ${align}`,
    plan: (t) => gemmLaunch(dtype, product, t),
    inputs: { a, b, bias: c },
    outputs: { c: { dtype, values: out } },
  });
}
for (const dtype of REALS) addGemm(dtype, 3, 9, 64, 'kk', [1, 1, 1], true);
addGemm('f32', 1, 5, 4096, 'kk');
addGemm('bf16', 8, 6, 2048, 'kk', [1, 1, 2]);
addGemm('f32', 70, 33, 20, 'kr', [2, 1, 2], true);
addGemm('f32', 130, 131, 18, 'rk');
addGemm('f32', 9, 9, 3000, 'rr');
addGemm('f64', 33, 65, 17, 'kr');
addGemm('f64', 5, 5, 0, 'kr', [1, 1, 1], true);
for (const order of ['kk', 'kr', 'rk', 'rr'])
  addGemm(order === 'kk' ? 'f16' : 'bf16', 136, 24, 40, order, [1, 1, 1], order === 'kk');
addGemm('f16', 20, 70, 33, 'kr', [2, 1, 1], true, 2);

const CONVS = [
  // batch, groups, channels, outputs, input, kernel, stride, padding, dilation, outputPadding, bias
  [2, 1, 3, 20, [7, 6], [3, 2], [1, 1], [1, 0], [1, 1], [0, 0], true],
  [1, 2, 4, 17, [6, 9], [3, 3], [2, 1], [1, 2], [1, 2], [1, 0], false],
  [2, 5, 1, 1, [8, 8], [3, 3], [1, 2], [1, 1], [2, 1], [0, 1], true],
  [1, 1, 8, 16, [1, 30], [1, 5], [1, 3], [0, 2], [1, 1], [0, 2], false],
] as const;
for (const [batch, groups, channels, outputs, input, kernel, stride, padding, dilation, extra, bias] of CONVS) {
  for (const dtype of ['f32', 'f16', 'f64', 'u32'] as const)
    for (const transposed of [false, true]) {
      const output = input.map((s, i) =>
        transposed
          ? (s - 1) * stride[i] - 2 * padding[i] + dilation[i] * (kernel[i] - 1) + 1 + extra[i]
          : Math.floor((s + 2 * padding[i] - dilation[i] * (kernel[i] - 1) - 1) / stride[i]) + 1,
      ) as [number, number];
      const area = kernel[0] * kernel[1];
      const data = (n: number): Data =>
        dtype === 'u32' ? make(dtype, n, () => random() * 9) : floats(dtype, n, -1, 1);
      const [src, w, b] = [
        data(batch * groups * channels * input[0] * input[1]),
        data(groups * channels * outputs * area),
        data(groups * outputs),
      ];
      const [x, k, bn] = [num(src), num(w), num(b)];
      const out = new Array<number>(batch * groups * outputs * output[0] * output[1]).fill(0);
      // A transposed convolution walks the same products with image and result exchanged.
      const [small, large] = transposed ? [input, output] : [output, input];
      for (let n = 0; n < batch; n++)
        for (let g = 0; g < groups; g++)
          for (let c = 0; c < channels; c++)
            for (let o = 0; o < outputs; o++) {
              const weights = (transposed ? (g * channels + c) * outputs + o : (g * outputs + o) * channels + c) * area;
              const from = (n * groups * channels + g * channels + c) * input[0] * input[1];
              const to = (n * groups * outputs + g * outputs + o) * output[0] * output[1];
              for (let y = 0; y < small[0]; y++)
                for (let z = 0; z < small[1]; z++)
                  for (let p = 0; p < kernel[0]; p++)
                    for (let q = 0; q < kernel[1]; q++) {
                      const [iy, iz] = [
                        y * stride[0] + p * dilation[0] - padding[0],
                        z * stride[1] + q * dilation[1] - padding[1],
                      ];
                      if (iy < 0 || iy >= large[0] || iz < 0 || iz >= large[1]) continue;
                      const [s, l] = [y * small[1] + z, iy * large[1] + iz];
                      out[to + (transposed ? l : s)] += x[from + (transposed ? s : l)] * k[weights + p * kernel[1] + q];
                    }
            }
      if (bias) out.forEach((v, i) => (out[i] = v + bn[Math.floor(i / (output[0] * output[1])) % (groups * outputs)]));
      const kernelShape = transposed
        ? [groups * channels, outputs, ...kernel]
        : [groups * outputs, channels, ...kernel];
      const shape = {
        batch,
        groups,
        channels,
        outputs,
        input,
        output,
        kernel,
        stride,
        padding,
        dilation,
        bias,
        inputStrides: Layout.contiguous([batch, groups * channels, ...input]).strides,
        kernelStrides: Layout.contiguous(kernelShape).strides,
      };
      cases.push({
        name: `conv${transposed ? 'Transpose' : ''} ${dtype} groups ${groups} ${channels} to ${outputs} over [${input}]`,
        plan: (t) => convLaunch(transposed, dtype, shape, t),
        inputs: { src, kernel: w, bias: b },
        outputs: { dst: same(dtype, out) },
      });
    }
}

// ---- pooling and resizing ----

for (const dtype of ['f32', 'bf16', 'u8'] as const) {
  const [planes, input, kernel, stride, padding] = [3, [5, 9], [2, 3], [3, 2], [1, 1]];
  const output = input.map((s, i) => Math.floor((s + 2 * padding[i] - kernel[i]) / stride[i]) + 1);
  const src = make(dtype, planes * 45, (i) => (dtype === 'u8' ? random() * 255 : i % 9 === 4 ? NaN : random() * 9 - 4));
  const x = num(src);
  const found = { avg: [] as number[], max: [] as number[], argmax: [] as number[] };
  for (let p = 0; p < planes; p++)
    for (let y = 0; y < output[0]; y++)
      for (let z = 0; z < output[1]; z++) {
        const inside: number[] = [];
        for (let i = 0; i < kernel[0]; i++)
          for (let j = 0; j < kernel[1]; j++) {
            const [r, c] = [y * stride[0] + i - padding[0], z * stride[1] + j - padding[1]];
            if (r >= 0 && r < input[0] && c >= 0 && c < input[1]) inside.push(r * input[1] + c);
          }
        const values = inside.map((i) => x[p * 45 + i]);
        const numbers = values.filter((v) => v === v);
        const best =
          dtype === 'bf16' && numbers.length < values.length ? NaN : numbers.length ? Math.max(...numbers) : NaN;
        const mean = values.reduce((a, v) => a + v, 0) / (kernel[0] * kernel[1]);
        found.avg.push(dtype === 'u8' ? Math.floor(mean) : mean);
        found.max.push(best);
        found.argmax.push(
          inside[
            Math.max(
              0,
              values.findIndex((v) => Object.is(v, best)),
            )
          ],
        );
      }
  for (const kind of ['avg', 'max', 'argmax'] as const) {
    cases.push({
      name: `${kind} pool ${dtype}`,
      plan: () => poolLaunch(kind, dtype, planes, input, output, kernel, stride, padding),
      inputs: { src },
      outputs: { dst: same(kind === 'argmax' ? 'u32' : dtype, found[kind]) },
    });
  }
}
{
  const src = floats('f16', 2 * 3 * 5);
  const info: Data = { dtype: 'i64', values: [2n, 3n, 5n, 15n, 5n, 1n] };
  const out = range(2 * 3 * 13).map(
    (i) => src.values[Math.floor(i / 13) * 5 + Math.min(4, Math.floor((i % 13) * (5 / 13)))],
  );
  cases.push({
    name: 'nearest neighbours in one dimension',
    plan: () => nearestLaunch('f16', 6, [5], [13]),
    inputs: { src, info },
    outputs: { dst: { dtype: 'f16', values: out } },
  });
}
for (const [input, output, corners, scale] of [
  [[4, 5], [8, 10], false, null],
  [[4, 5], [7, 3], true, null],
  [[3, 4], [1, 9], true, null],
  [[3, 4], [6, 9], false, [2.1, 2.3]],
  [[6, 7], [3, 2], false, [0.4, 0.3]],
] as const) {
  const weights = (axis: 0 | 1): number[][] =>
    range(output[axis]).map((i) => {
      const size = input[axis];
      const step = corners
        ? output[axis] > 1
          ? (size - 1) / (output[axis] - 1)
          : 0
        : scale
          ? 1 / scale[axis]
          : size / output[axis];
      const at = corners ? step * i : Math.max(0, step * (i + 0.5) - 0.5);
      const low = Math.min(Math.floor(at), size - 1);
      const part = Math.min(Math.max(at - low, 0), 1);
      const row = new Array<number>(size).fill(0);
      row[low] += 1 - part;
      row[Math.min(low + 1, size - 1)] += part;
      return row;
    });
  const [rows, cols] = [weights(0), weights(1)];
  const src = floats('f32', 2 * input[0] * input[1]);
  const grad = floats('f32', 2 * output[0] * output[1]);
  const [x, g] = [num(src), num(grad)];
  const y = range(2 * output[0] * output[1]).map((i) => {
    const [p, r, c] = [Math.floor(i / (output[0] * output[1])), Math.floor(i / output[1]) % output[0], i % output[1]];
    return range(input[0] * input[1]).reduce(
      (a, j) => a + x[p * input[0] * input[1] + j] * rows[r][Math.floor(j / input[1])] * cols[c][j % input[1]],
      0,
    );
  });
  const dx = range(2 * input[0] * input[1]).map((i) => {
    const [p, r, c] = [Math.floor(i / (input[0] * input[1])), Math.floor(i / input[1]) % input[0], i % input[1]];
    return range(output[0] * output[1]).reduce(
      (a, j) => a + g[p * output[0] * output[1] + j] * rows[Math.floor(j / output[1])][r] * cols[j % output[1]][c],
      0,
    );
  });
  const info: Data = {
    dtype: 'i64',
    values: [1, 2, ...input, 2 * input[0] * input[1], input[0] * input[1], input[1], 1].map(BigInt),
  };
  const name = `bilinear [${input}] to [${output}]${corners ? ' corners' : ''}${scale ? ' scale' : ''}`;
  cases.push({
    name,
    plan: () => bilinearLaunch('f32', 2, output, corners, scale),
    inputs: { src, info },
    outputs: { dst: { dtype: 'f32', values: y } },
  });
  cases.push({
    name: `gradient of ${name}`,
    plan: () => bilinearGradLaunch('f32', 2, input, output, corners, scale),
    inputs: { grad },
    outputs: { dx: { dtype: 'f32', values: dx } },
  });
}

// ---- running them ----

const bytesIn = (d: Data): number => d.values.length * DTYPE[d.dtype].bytes;
/** The first difference, or undefined. */
function check(run: SimRunner, c: Case, target: Target, units: ReadonlyMap<string, Unit>): string | undefined {
  const plan = c.plan(target);
  const buffers = new Map<string, number>();
  for (const [name, d] of Object.entries(c.inputs)) buffers.set(name, run.of(d.dtype, d.values));
  for (const [name, d] of Object.entries(c.outputs)) if (!buffers.has(name)) buffers.set(name, run.buffer(bytesIn(d)));
  buffers.set('scratch', run.buffer(plan.scratch));
  for (const l of plan.launches) {
    const unit = units.get(l.kernel.module.name)!;
    const entry = unit.entries.find((e) => e.symbol === l.symbol)!;
    const none = (): never => assert.fail('no views here');
    const values = valuesOf(l, entry, (name) => buffers.get(name)!, none);
    run.launch(unit, l.symbol, l.grid, l.block, values, l.shared);
  }
  for (const [name, want] of Object.entries(c.outputs)) {
    const got = decode(want.dtype, run.read(want.dtype, buffers.get(name)!, want.values.length));
    const scale = want.values.reduce<number>(
      (a, v) => (Number.isFinite(Number(v)) ? Math.max(a, Math.abs(Number(v))) : a),
      1e-30,
    );
    const bound = isFloat(want.dtype) ? (c.bound ?? BOUND[want.dtype]) * scale : 0;
    const at = got.findIndex((a, i) => {
      const b = want.values[i];
      return !(a === b || (a !== a && b !== b) || (isFloat(want.dtype) && Math.abs(Number(a) - Number(b)) <= bound));
    });
    if (at >= 0) return `${c.name}: ${name}[${at}] is ${got[at]}, not ${want.values[at]}`;
  }
  return undefined;
}
const moduleOf = (l: Launches['launches'][number]): string => l.kernel.module.name;
/** WICK_MODULES=reduce,softmax runs only what launches these. */
const only = process.env.WICK_MODULES?.split(',');
for (const wave of [32, 64] as const) {
  test(`structured kernels agree with plain loops with waves of ${wave}`, () => {
    const run = new SimRunner(wave);
    const target = run.device.info;
    const wanted = new Map<string, Set<string>>();
    const chosen = cases.filter((c) => !only || c.plan(target).launches.some((l) => only.includes(moduleOf(l))));
    for (const c of chosen)
      for (const l of c.plan(target).launches)
        wanted.set(moduleOf(l), (wanted.get(moduleOf(l)) ?? new Set()).add(l.symbol));
    const units = new Map([...wanted].map(([module, symbols]) => [module, unitOf(module, [...symbols].sort())]));
    const kept = { ...simOptions };
    const bad = new Set<string>();
    try {
      for (const [reverse, poison] of [
        [false, 0x7f],
        [true, 0xff],
      ] as const) {
        Object.assign(simOptions, { reverse, poison });
        for (const c of chosen) {
          const wrong = check(run, c, target, units);
          if (wrong) bad.add(wrong);
          run.free();
        }
      }
    } finally {
      Object.assign(simOptions, kept);
    }
    assert.deepEqual([...bad], []);
  });
}

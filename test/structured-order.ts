// Cases of rope, scans, sorting and indices against plain loops.
import { DTYPE, type DType, isFloat, type Value, sumDType } from '../src/base/dtype.js';
import { firstLaunch } from '../src/backends/gpu/choose.js';
import { gatherLaunch, selectRowsLaunch } from '../src/backends/gpu/indexing.js';
import { at } from '../src/backends/gpu/plan.js';
import { ropeLaunch } from '../src/backends/gpu/rope.js';
import { indexAddLaunch, scatterLaunch } from '../src/backends/gpu/scatter.js';
import { runningLaunch } from '../src/backends/gpu/running.js';
import { scanLaunch } from '../src/backends/gpu/scan.js';
import { sortLaunch } from '../src/backends/gpu/sort.js';
import type { RowOf } from '../src/ops/op.js';
import { runningOps } from '../src/ops/running.js';
import { type Data, cases, random, rounded, make, floats, num, same, range, rowsOf } from './structured-data.js';

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

/** Running products and the like, by plain loops. */
const RUNNING: Readonly<Record<string, (x: readonly number[]) => number[]>> = {
  runningProduct: (x) => x.map((_, k) => x.slice(0, k + 1).reduce((a, b) => a * b, 1)),
  runningLogSum: (x) => x.map((_, k) => Math.log(x.slice(0, k + 1).reduce((a, b) => a + Math.exp(b), 0))),
  runningLargest: (x) => x.map((_, k) => x.slice(0, k + 1).reduce((best, v, i) => (v >= x[best] ? i : best), 0)),
  runningSmallest: (x) => x.map((_, k) => x.slice(0, k + 1).reduce((best, v, i) => (v <= x[best] ? i : best), 0)),
};
for (const [name, dtype, outer, n, inner] of [
  ['runningProduct', 'f32', 3, 5, 1],
  ['runningProduct', 'f32', 1, 9001, 1],
  ['runningProduct', 'i64', 2, 3000, 1],
  ['runningProduct', 'f32', 1, 900, 3],
  ['runningLogSum', 'f32', 2, 1300, 1],
  ['runningLogSum', 'f32', 1, 9000, 1],
  ['runningLogSum', 'f64', 1, 701, 5],
  ['runningLargest', 'f32', 2, 1300, 1],
  ['runningLargest', 'bf16', 1, 9000, 1],
  ['runningSmallest', 'u8', 1, 9008, 1],
  ['runningSmallest', 'i64', 2, 300, 7],
  ['runningLargest', 'f16', 1, 701, 3],
] as const) {
  const row = runningOps[name] as unknown as RowOf<'running'>;
  const count = outer * n * inner;
  const src = isFloat(dtype)
    ? floats(dtype, count, name === 'runningProduct' ? 0.99 : -2, name === 'runningProduct' ? 1.01 : 2)
    : make(dtype, count, () => (name === 'runningProduct' ? 1 + 2 * Math.floor(random() * 1.01) : random() * 200));
  const x = num(src);
  const out = new Array<number>(count);
  for (let c = 0; c < outer * inner; c++) {
    const where = range(n).map((k) => (Math.floor(c / inner) * n + k) * inner + (c % inner));
    RUNNING[name](where.map((i) => x[i])).forEach((v, k) => (out[where[k]] = v));
  }
  const dst = row.kernel.place ? same('u32', out) : isFloat(dtype) ? { dtype, values: out } : same(dtype, out);
  cases.push({
    name: `${name} ${dtype} [${outer}, ${n}, ${inner}]`,
    plan: (t) => runningLaunch(row, dtype, outer, n, inner, t, true),
    inputs: { src },
    outputs: { dst },
  });
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
  ['u8', 2, 37000, 37000],
  ['f64', 2, 200, 200],
  ['f64', 1, 2100, 2100],
  ['i64', 1, 33, 33],
  ['i32', 2, 130, 130],
  ['i16', 2, 64, 64],
  ['f8e4m3', 3, 40, 40],
  ['f32', 3, 1500, 1500],
  ['f32', 2, 4095, 4095],
  ['bf16', 2, 3000, 20],
  ['u8', 1, 4096, 4096],
  ['i64', 2, 3001, 3001],
  ['f64', 1, 9001, 9001],
  ['i32', 3, 20001, 20001],
  ['f16', 1, 40000, 40000],
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
      plan: (t) =>
        sortLaunch(dtype, rows, cols, keep, descending, t, {
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

// The first few of long rows, with keys that tie at the last place.
for (const [dtype, rows, cols, keep] of [
  ['f32', 2, 9000, 3],
  ['f32', 3, 4096, 50],
  ['f32', 2, 4093, 7],
  ['bf16', 2, 2500, 256],
  ['i64', 2, 3000, 40],
  ['u8', 2, 1000, 200],
  ['f16', 1, 9000, 2000],
  ['u8', 3, 8200, 1],
  ['i64', 2, 5000, 1000],
] as const) {
  for (const descending of [false, true]) {
    const src = make(dtype, rows * cols, (i) =>
      isFloat(dtype) && i % 997 === 5 ? NaN : i % 31 === 3 ? -0 : Math.round(random() * 100),
    );
    cases.push({
      name: `the first ${keep} of ${dtype} [${rows}, ${cols}]${descending ? ' descending' : ''}`,
      plan: (t) => firstLaunch(dtype, rows, cols, keep, descending, t),
      inputs: { src },
      outputs: {
        indices: same(
          'u32',
          rowsOf(num(src), cols).flatMap((r) => order(r, descending).slice(0, keep)),
        ),
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
      plan: (t) => {
        const shape = { rank: 1, lanes: 2, count: 3, idsStep: 1, srcStep: 2, dstDim: 4, dstStep: 5 };
        return scatterLaunch(add, 'u32', 'f32', shape, t);
      },
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
    plan: (t) => {
      const steps = { idsStep: lanes, srcStep: lanes, dstDim: size, dstStep: lanes };
      return scatterLaunch(add, ids, dtype, { rank: 1, lanes, count, ...steps }, t);
    },
    outputs: { dst: { dtype, values: to } },
  });
}
for (const [ids, dtype, left, dim, n, right] of [
  ['u32', 'f32', 2, 5, 40, 33],
  ['i64', 'bf16', 1, 3, 5000, 2],
  ['i32', 'f32', 2, 50, 40, 8],
  ['i64', 'f16', 1, 300, 90, 16],
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
    plan: (t) => indexAddLaunch(ids, dtype, [left, dim, n, right], 1, t, { aligned: true }),
    inputs: { ids: index, src, x, ...noFault },
    outputs: { dst: { dtype, values: out } },
  });
}

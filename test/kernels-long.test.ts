// Kernels under Candle's names given more elements than threads, and rows longer than a block: every thread takes
// several turns.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import '../src/index.js';
import type { ArgValue } from '../src/kernels/declare.js';
import { unitOf } from '../src/backends/gpu/modules.js';
import { SimRunner } from './sim-support.js';

const only = process.env.WICK_MODULES?.split(',');
const N = 1000;
const x = Float32Array.from({ length: N }, (_, i) => (i % 37) - 18);
const NONE = [N, 1, 0] as const;

/** Module, symbol, arguments after x and before y are known, and what element i becomes. */
const SIMPLE: readonly (readonly [
  string,
  string,
  (x: number, y: number) => ArgValue[],
  (v: number, i: number) => number,
])[] = [
  ['candle/unary', 'usqr_f32', (a, y) => [...NONE, a, y], (v) => v * v],
  ['candle/binary', 'badd_f32', (a, y) => [...NONE, a, a, y], (v) => 2 * v],
  ['candle/affine', 'affine_f32', (a, y) => [...NONE, a, y, 3, 0.5], (v) => 3 * v + 0.5],
  ['candle/cast', 'cast_f32_f32', (a, y) => [...NONE, a, y], (v) => v],
  ['fill', 'fill_f32', (_a, y) => [y, 7, N], () => 7],
];
for (const wave of [32, 64] as const) {
  for (const [module, symbol, args, want] of SIMPLE) {
    test(`${symbol} with 64 threads for ${N} elements, wave ${wave}`, {
      skip: only && !only.includes(module) ? 'another module is asked for' : false,
    }, () => {
      const run = new SimRunner(wave);
      const y = run.buffer(N * 4);
      run.launch(unitOf(module, [symbol]), symbol, 1, 64, args(run.buffer(x), y));
      assert.deepEqual(run.read('f32', y, N), x.map(want));
      run.free();
    });
  }
}

test('a fill writes its elements and no others, wherever they begin and end', {
  skip: only && !only.includes('fill') ? 'another module is asked for' : false,
}, () => {
  const run = new SimRunner(32);
  for (const [from, count] of [0, 1, 5, 15, 16, 17].flatMap((from) => [0, 1, 14, 16, 40, 600].map((n) => [from, n]))) {
    const y = run.buffer(1000);
    run.launch(unitOf('fill', ['fill_u8']), 'fill_u8', 1, 32, [y + from, 7, count]);
    // A new buffer holds 127.
    const want = Uint8Array.from({ length: 1000 }, (_, i) => (i >= from && i < from + count ? 7 : 127));
    assert.deepEqual(run.read('u8', y, 1000), want, `${count} from ${from}`);
  }
  run.free();
});

const runs = (module: string): { skip: string | false } => ({
  skip: only && !only.includes(module) ? 'another module is asked for' : false,
});

test('places of flags along a dimension of 2^32 and more', runs('pick'), () => {
  const run = new SimRunner(32);
  const flags = Uint8Array.from({ length: 5000 }, (_, i) => (i % 1000 === 7 ? 1 : 0));
  const [starts, count] = [[0, 5, 5], 5];
  for (const size of [2 ** 32, 2 ** 32 + 1, 2 ** 33]) {
    const y = run.buffer(2 * count * 8);
    const info = run.buffer(BigUint64Array.from([1, size].map(BigInt)));
    run.launch(unitOf('pick', ['pick_places']), 'pick_places', 2, 256, [
      ...[run.buffer(flags), run.of('i64', starts.map(BigInt)), info],
      ...[2, y, flags.length, count],
    ]);
    const want = [0, 0, 0, 0, 0, 7, 1007, 2007, 3007, 4007].map(BigInt);
    assert.deepEqual([...run.read('i64', y, 2 * count)], want, `${size}`);
  }
  run.free();
});

test(
  'sums by atomics over the first and last of three dimensions, contiguous and turned, with fewer threads than ' +
    'elements',
  runs('candle/reduce'),
  () => {
    const run = new SimRunner(32);
    const [a, b, c] = [3, 4, 50];
    const values = Uint32Array.from({ length: a * b * c }, (_, i) => i % 11);
    // What is summed has lengths a and c, a step apart of b * c and 1 in row-major order of the logical shape.
    for (const strides of [
      [b * c, c, 1],
      [1, a, a * b],
    ]) {
      const want = new Uint32Array(b);
      for (let i = 0; i < a; i++)
        for (let j = 0; j < b; j++)
          for (let k = 0; k < c; k++) want[j] += values[i * strides[0] + j * strides[1] + k * strides[2]];
      const y = run.buffer(new Uint32Array(b));
      const info = run.buffer(BigUint64Array.from([a, b, c, ...strides, a, c, b * c, 1].map(BigInt)));
      run.launch(unitOf('candle/reduce', ['sum_u32']), 'sum_u32', 1, 64, [
        values.length,
        3,
        2,
        info,
        run.buffer(values),
        y,
      ]);
      assert.deepEqual(run.read('u32', y, b), want, `strides ${strides.join()}`);
    }
    run.free();
  },
);

for (const [cols, shared] of [
  [700, 1024 * 4],
  [9000, 0],
] as const) {
  test(`asort of rows of ${cols} by 64 threads`, runs('candle/sort'), () => {
    const run = new SimRunner(32);
    const rows = 2;
    const keys = Float32Array.from({ length: rows * cols }, (_, i) => (Math.imul(i + 1, 2654435761) >>> 0) % 5000);
    const y = run.buffer(rows * cols * 4);
    const unit = unitOf('candle/sort', ['asort_asc_f32', 'asort_desc_f32']);
    for (const [symbol, sign] of [
      ['asort_asc_f32', 1],
      ['asort_desc_f32', -1],
    ] as const) {
      run.launch(unit, symbol, [1, rows], 64, [run.buffer(keys), y, cols, 2 ** Math.ceil(Math.log2(cols))], shared);
      const got = run.read('u32', y, rows * cols) as Uint32Array;
      for (let r = 0; r < rows; r++) {
        const row = keys.subarray(r * cols, (r + 1) * cols);
        const want = Array.from(row, (_, i) => i).sort((p, q) => sign * (row[p] - row[q]) || p - q);
        assert.deepEqual(Array.from(got.subarray(r * cols, (r + 1) * cols)), want, `${symbol}, row ${r}`);
      }
    }
    run.free();
  });
}

// Ops whose kernels work by tiles, tables and parts, at the sizes where one ends and the next begins, against plain
// loops.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { unitOf } from '../src/backends/gpu/modules.js';
import { arange, type Device, type DType, ones, scope, type Tensor, tensor } from '../src/index.js';
import { testDevices } from '../src/testing/devices.js';
import { SimRunner } from './sim-support.js';

type Launch = (symbol: string, grid: number, block: number, args: readonly number[]) => void;
/** Numbers that look like no pattern, below 2^32. */
const mixed = (i: number): number => Math.imul(i + 1, 2654435761) >>> 0;
const listOf = (t: Tensor): number[] => Array.from(t.flatten().toArray<number[]>(), Number);
/** What comes before each of them. */
const ahead = (counts: readonly number[]): number[] => {
  let sum = 0;
  return counts.map((c) => (sum += c) - c);
};
const range = (n: number): number[] => Array.from({ length: n }, (_, i) => i);

for (const { name, device: found, missing } of testDevices('cpu,sim:32,sim:64')) {
  const device = found as Device;
  const run = (what: string, f: () => void): void =>
    void test(`${what} on ${name}`, { skip: missing }, () => {
      scope(f);
    });

  // Tables of eight, seven, two and one, and none; a block's share and one more; a block and several.
  for (const [rows, n, bins] of [
    [1, 1025, 1000],
    [3, 1024, 1536],
    [2, 2049, 1537],
    [1, 1500, 6144],
    [2, 700, 6145],
    [1, 5000, 12288],
    [2, 2500, 12289],
    [1, 16384, 7],
    [2, 16385, 3],
    [1, 40000, 300],
  ]) {
    const values = range(rows * n).map((i) => (mixed(i) % (bins + 3)) - 1);
    const tables = range(rows * bins).map(() => 0);
    values.forEach((v, i) => {
      if (v >= 0 && v < bins) tables[Math.floor(i / n) * bins + v]++;
    });
    run(`${bins} counts of ${rows} rows of ${n}`, () => {
      const x = tensor(values, { dtype: 'i32', device }).reshape([rows, n]);
      assert.deepEqual(listOf(x.countNumbers(bins)), tables, 'numbers');
      const halves = x.cast('f32').affine(1, 0.5);
      assert.deepEqual(listOf(halves.countBins(bins, 0, bins)), tables, 'bins');
    });
  }
  run('bins hold their lower bound, the last one its upper bound, too', () => {
    const x = tensor([-1.5, -1, -0.5, 0, 0.5, 1, 1.5, NaN, Infinity], { device });
    assert.deepEqual(listOf(x.countBins(4, -1, 1)), [1, 1, 1, 2]);
  });

  for (const shape of [[4095], [4096], [4097], [2, 4096], [3, 2731], [41, 10, 20], [20000]]) {
    const n = shape.reduce((a, b) => a * b, 1);
    for (const share of [0, 2, 7, 10])
      run(`flags of ${share} in ten of [${shape}]`, () => {
        const values = range(n).map((i) => (mixed(i) % 10 < share ? 1 : 0));
        const set = values.flatMap((f, i) => (f ? [i] : []));
        const mask = tensor(values, { dtype: 'bool', device }).reshape(shape);
        const steps = shape.map((_, d) => shape.slice(d + 1).reduce((a, b) => a * b, 1));
        const places = set.flatMap((i) => shape.map((size, d) => Math.floor(i / steps[d]) % size));
        assert.deepEqual(listOf(mask.nonzero()), places, 'nonzero');
        for (const dtype of ['u8', 'bf16', 'f32', 'f64'] as const) {
          const x = arange(n, { dtype: 'i64', device }).remainder(251).cast(dtype).reshape(shape);
          assert.deepEqual(
            listOf(x.maskedSelect(mask)),
            set.map((i) => i % 251),
            dtype,
          );
        }
        if (set.length === 0) return;
        const x = ones(shape, { device }).requireGrad();
        const grad = arange(set.length, { device }).affine(1, 1);
        const want = range(n).map(() => 0);
        set.forEach((i, k) => {
          want[i] = k + 1;
        });
        assert.deepEqual(listOf(x.maskedSelect(mask).backward({ grad }).of(x)), want, 'gradient');
      });
    run(`distinct elements of [${shape}]`, () => {
      const values = range(n).map((i) => mixed(i) % 7);
      const [found, inverse, counts] = tensor(values, { dtype: 'i32', device }).reshape(shape).unique();
      assert.deepEqual(listOf(found), range(7));
      assert.deepEqual(listOf(inverse), values);
      assert.deepEqual(
        listOf(counts),
        range(7).map((v) => values.filter((w) => w === v).length),
      );
    });
  }

  // A row that blocks keep and one that is too long for that; enough values for it and too few; rows of their own.
  for (const [dtype, n, rows, each] of [
    ['f32', 4096, 0, 16384],
    ['f32', 4096, 0, 16383],
    ['f32', 4097, 0, 17000],
    ['f64', 2048, 0, 9000],
    ['u8', 100, 0, 700],
    ['i16', 5, 0, 20],
    ['f16', 33, 3, 40],
    ['i64', 1, 1, 5],
  ] as const)
    run(`${each} values in ${rows || 'one'} sorted ${dtype} of ${n}`, () => {
      const most = dtype === 'u8' ? 200 : 2 * n;
      const sorted = range(Math.max(1, rows)).map((r) => range(n).map((i) => Math.floor(((i + r) * most) / (n + 3))));
      const values = range(Math.max(1, rows) * each).map((i) => (mixed(i) % (most + 4)) - (dtype === 'u8' ? 0 : 2));
      const x = tensor(sorted.flat(), { dtype, device }).reshape(rows ? [rows, n] : [n]);
      const given = tensor(values, { dtype, device }).reshape(rows ? [rows, each] : [each]);
      for (const right of [false, true]) {
        const want = values.map((v, i) => {
          const after = sorted[Math.floor(i / each)].findIndex((w) => (right ? w > v : w >= v));
          return after < 0 ? n : after;
        });
        assert.deepEqual(listOf(x.searchsorted(given, { right })), want, right ? 'right' : 'left');
      }
    });

  for (const [batch, n, m, k] of [
    [1, 64, 64, 16],
    [2, 65, 63, 15],
    [1, 63, 129, 17],
    [3, 1, 1, 1],
    [2, 5, 66, 33],
  ])
    for (const dtype of ['f32', 'f64'] as const)
      run(`distances of ${batch} times ${n} and ${m} rows of ${k} in ${dtype}`, () => {
        const lay = (rows: number, seed: number): number[] =>
          range(batch * rows * k).map((i) => (mixed(i + seed) % 17) - 8);
        const [a, b] = [lay(n, 1), lay(m, 5000)];
        const [x, y] = [tensor(a, { dtype, device }).reshape([batch, n, k]), tensor(b, { dtype, device })];
        for (const p of [1, 2]) {
          const got = listOf(x.cdist(y.reshape([batch, m, k]), p));
          got.forEach((d, at) => {
            const [row, column] = [Math.floor(at / m), at % m];
            const other = Math.floor(row / n) * m + column;
            const apart = range(k).map((i) => Math.abs(a[row * k + i] - b[other * k + i]));
            const want = p === 1 ? apart.reduce((u, v) => u + v, 0) : Math.hypot(...apart);
            assert.ok(Math.abs(d - want) <= 1e-6 * want, `p ${p}, ${at}: ${d}, not ${want}`);
          });
        }
      });

  // What a block sorts and what tiles sort, few and many of them; what is chosen without sorting.
  for (const [dtype, rows, n, keep] of [
    ['f32', 2, 4096, 4096],
    ['f32', 2, 4097, 1025],
    ['f64', 2, 2049, 512],
    ['f64', 1, 9000, 2048],
    ['i64', 1, 9000, 2049],
    ['u8', 1, 32768, 4096],
    ['f16', 2, 32769, 5],
    ['i32', 1, 36865, 1],
    ['bf16', 2, 8193, 8193],
  ] as [DType, number, number, number][])
    for (const largest of [false, true])
      run(`the ${keep} ${largest ? 'largest' : 'smallest'} of ${rows} rows of ${n} ${dtype}`, () => {
        const values = range(rows * n).map((i) => mixed(i) % (dtype === 'u8' ? 250 : 2000));
        const x = tensor(values, { dtype, device });
        const held = listOf(x);
        const at = (r: number) => (i: number, j: number) =>
          (largest ? -1 : 1) * (held[r * n + i] - held[r * n + j]) || i - j;
        const want = range(rows).flatMap((r) => range(n).sort(at(r)).slice(0, keep));
        assert.deepEqual(listOf(x.reshape([rows, n]).topk(keep, 1, { largest })[1]), want);
      });
}

// Rows of more tiles than a block adds up in a turn, which take more elements than a test has time for.
for (const wave of [32, 64] as const) {
  const sums = (what: string, module: string, f: (run: SimRunner, launch: Launch) => void): void =>
    void test(`${what}, wave ${wave}`, () => {
      const run = new SimRunner(wave);
      f(run, (symbol, grid, block, args) => run.launch(unitOf(module, [symbol]), symbol, grid, block, args));
      run.free();
    });
  // Two turns of each, and one more.
  const counts = range(8196).map((i) => mixed(i) % 50);
  const before = ahead(counts);
  const some = counts.slice(0, 8193);
  sums('flags before each of many tiles', 'pick', (run, launch) => {
    const at = run.of('i64', some.map(BigInt));
    launch('pick_starts', 1, 1024, [at, some.length]);
    assert.deepEqual([...run.read('i64', at, some.length)].map(Number), before.slice(0, some.length));
  });
  sums('a tile of keys goes behind what many tiles before it have told', 'radix', (run, launch) => {
    // The last of twelve tiles alone: the fourth has told what it and those before it have, the next ones their own.
    const [tile, tiles, row] = [6144, 12, 1];
    const cols = tiles * tile - 1000;
    const keys = range(row * cols + cols).map((i) => mixed(i) % 5);
    const ofRow = keys.slice(row * cols);
    const upto = (t: number): number[] => range(256).map((k) => ofRow.slice(0, t * tile).filter((v) => v === k).length);
    const sofar = range(tiles).map((t) => upto(t + 1));
    const starts = range(256).map((k) => ofRow.filter((v) => v < k).length);
    const told = range(tiles).flatMap((t) =>
      range(256).map((k) => {
        const [all, own] = [starts[k] + sofar[t][k], sofar[t][k] - (t > 0 ? sofar[t - 1][k] : 0)];
        if (t === tiles - 1 || t < 3) return 0n;
        return t === 3 ? (2n << 40n) | BigInt(all) : (1n << 40n) | BigInt(own);
      }),
    );
    const both = <T>(zero: T, list: readonly T[]): T[] => [...list.map(() => zero), ...list];
    const src = run.of('u8', keys.map(BigInt));
    const out = run.buffer(2 * cols * 4);
    const [order, made] = [run.buffer(4 * cols * 4), run.buffer(4 * cols)];
    const begin = run.of('u32', both(0n, starts.map(BigInt)));
    const turns = run.of('u32', both(1n, [6n, ...range(7).map(() => 1n)]));
    const tickets = run.of('u32', both(0n, [BigInt(tiles - 1), ...range(7).map(() => 0n)]));
    const tellings = run.of('i64', both(0n, told));
    // Blocks of the first row have nothing to do; of those of the second one only one is launched.
    const args = [src, made, order, out, 0, begin, turns, tickets, tellings, 2 * cols, cols, tiles, 0, 0];
    launch('radix_pass_u8', tiles + 1, 384, args);
    const at = [...run.read('u32', out, 2 * cols)].slice(cols).map(Number);
    const next = range(256).map((k) => starts[k] + sofar[tiles - 2][k]);
    for (let i = (tiles - 1) * tile; i < cols; i++) assert.equal(at[next[ofRow[i]]++], i);
  });
  sums('what is chosen before each of many tiles', 'choose', (run, launch) => {
    const pairs = some.flatMap((c, i) => [c, (i * 3) % 7]);
    const at = run.of('u32', [...pairs, ...pairs].map(BigInt));
    launch('choose_offsets', 2, 1024, [at, some.length]);
    const equal = ahead(some.map((_, i) => (i * 3) % 7));
    const want = equal.flatMap((e, i) => [before[i], e]);
    assert.deepEqual([...run.read('u32', at, 4 * some.length)], [...want, ...want]);
  });
}

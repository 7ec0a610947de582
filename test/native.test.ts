// The CPU engine itself: memory comes back, indices are checked, results do not depend on threads, instruction sets can
// be forced.
import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { test } from 'node:test';
import { Device, QTensor, randn, Tensor } from '../src/index.js';
import { CpuBackend } from '../src/backends/cpu.js';
import { MemoryPool, roomFor } from '../src/backends/cpu/memory.js';
import { IndexError } from '../src/base/errors.js';
import { Layout } from '../src/base/layout.js';
import { OPS } from '../src/ops/table.js';
import type { RunRow } from '../src/ops/op.js';
import type { DType } from '../src/base/dtype.js';
import type { View } from '../src/backends/backend.js';

const engine = new CpuBackend();
const row = (name: keyof typeof OPS): RunRow => OPS[name] as unknown as RunRow;

function view(dtype: DType, shape: number[], raw: Uint8Array): View {
  const memory = engine.alloc(Math.max(raw.byteLength, 1));
  engine.write(memory, 0, raw);
  return { memory, layout: Layout.contiguous(shape), dtype };
}
const floats = (shape: number[], values: readonly number[]): View =>
  view('f32', shape, new Uint8Array(Float32Array.from(values).buffer));
function bytes(v: View, length: number): Uint8Array {
  const out = new Uint8Array(length);
  engine.readSync(v.memory, 0, out);
  return out;
}
const numbers = (n: number): number[] => Array.from({ length: n }, (_, i) => Math.sin(i * 0.7) * 3);

test('blocks are aligned to 64 bytes, reused after free, and live bytes return to zero', () => {
  const pool = new CpuBackend();
  const sizes = [1, 64, 100, 4096, 4097, 1 << 20];
  const blocks = sizes.map((n) => pool.alloc(n));
  for (const b of blocks) assert.equal(b.address % 64, 0);
  assert.equal(
    pool.memory().liveBytes,
    sizes.reduce((a, b) => a + b),
  );
  for (const b of blocks) pool.free(b);
  assert.deepEqual([pool.memory().liveBytes, pool.memory().liveBlocks], [0, 0]);
  assert.equal(pool.alloc(1 << 20).address, blocks[5].address);
  pool.trim();
  assert.equal(pool.memory().cachedBytes, 0);
});

test('a block has room for what was asked and wastes at most half of a small and a quarter of a large one', () => {
  for (const n of [0, 1, 63, 64, 65, 4096, 4097, 5000, 1e6, 2 ** 31, 2 ** 31 + 1, 2 ** 33]) {
    const room = roomFor(n);
    assert.ok(room >= n && room >= 64, `${room} for ${n}`);
    if (n > 64) assert.ok(room <= Math.max(n * 2, 128) && (n <= 16384 || room <= n * 1.25), `${room} for ${n}`);
  }
});

test('a token frees the count without keeping the buffer', () => {
  const pool = new MemoryPool(
    () => 4096,
    () => undefined,
  );
  const block = pool.alloc(5000);
  pool.free(block.token);
  assert.deepEqual(pool.stats(), { liveBytes: 0, liveBlocks: 0, cachedBytes: 0, peakBytes: 5000 });
});

test('an index out of range is an IndexError that names op, index, place and size', () => {
  const x = floats([3, 2], [1, 2, 3, 4, 5, 6]);
  const ids = view('u32', [2], new Uint8Array(Uint32Array.from([1, 7]).buffer));
  const out = floats([2, 2], [0, 0, 0, 0]);
  assert.throws(
    () => engine.run(row('indexSelect'), [x, ids], [out], { dim: 0 }),
    (e: unknown) =>
      e instanceof IndexError &&
      /indexSelect: index 7 at position 1 is out of range for a dimension of size 3/.test(e.message),
  );
});

test('sums, products and softmax give the same bits with one thread, with three and with eight', () => {
  const n = 300;
  const x = floats([n, n], numbers(n * n));
  const shapes = { sum: [], bmm: [n, n], softmax: [n, n] } as const;
  const params = { sum: { dims: [0, 1], keepdim: false }, bmm: {}, softmax: { dim: 1 } } as const;
  const before = engine.threads;
  for (const op of ['sum', 'bmm', 'softmax'] as const) {
    const results = [1, 3, 8].map((threads) => {
      engine.threads = threads;
      const size = shapes[op].reduce((a: number, b) => a * b, 1);
      const out = floats([...shapes[op]], new Array<number>(size).fill(0));
      engine.run(row(op), op === 'bmm' ? [x, x] : [x], [out], params[op]);
      return bytes(out, size * 4);
    });
    for (const more of results.slice(1)) assert.deepEqual(more, results[0], op);
  }
  engine.threads = before;
});

test('products with blocks and convolutions give the same bits however threads share them out', () => {
  const shared = Device.cpu().backend as CpuBackend;
  const before = shared.threads;
  const products = ['q8_0', 'q4_k', 'q6_k'].flatMap((type) =>
    [
      [768, 256],
      [100, 49],
      [64, 193],
    ].map(([rows, m]) => {
      const weights = QTensor.quantize(randn([rows, 256], { seed: 1 }), type);
      const x = randn([m, 256], { seed: 2 });
      return { name: `${type} ${rows} by ${m}`, run: () => weights.matmul(x, { quick: true }) };
    }),
  );
  const [pictures, filters] = [randn([8, 16, 14, 14], { seed: 3 }), randn([256, 16, 3, 3], { seed: 4 })];
  const convolution = { name: 'conv2d', run: () => pictures.conv2d(filters, { padding: 1 }) };
  try {
    for (const { name, run } of [...products, convolution]) {
      const results = [1, 3, 16].map((threads) => {
        shared.threads = threads;
        return run().dataSync();
      });
      for (const more of results.slice(1)) assert.deepEqual(more, results[0], name);
    }
  } finally {
    shared.threads = before;
  }
});

test('WICK_CPU_ISA forces an instruction set, and an unknown one is refused with a sentence', () => {
  const open = (isa: string) =>
    spawnSync(
      process.execPath,
      [
        '-e',
        `import(${JSON.stringify(new URL('../src/backends/cpu.js', import.meta.url).href)}).then((m) => ` +
          'console.log(new m.CpuBackend().isa))',
      ],
      {
        encoding: 'utf8',
        env: { ...process.env, WICK_CPU_ISA: isa },
      },
    );
  const baseline = process.arch === 'x64' ? 'sse2' : 'neon';
  assert.equal(open(baseline).stdout.trim(), baseline);
  assert.match(open('mmx').stderr, /WICK_CPU_ISA is "mmx"; known are/);
});

const cpu = Device.get('cpu');
const wave = (n: number): Float64Array =>
  Float64Array.from({ length: n }, (_, i) => Math.sin(i * 0.7) * 3 + Math.cos(i * 0.013));

test('a transposed copy moves every element, in blocks of whole lines and in what is left over', () => {
  for (const [dtype, rows, columns] of [
    ['u8', 150, 5000],
    ['bf16', 70, 3000],
    ['f32', 37, 1100],
    ['f64', 21, 700],
    ['f32', 5, 9],
  ] as const) {
    const x = Tensor.from(
      Array.from({ length: rows * columns }, (_, i) => (i * 7) % 251),
      { device: cpu, dtype: 'f32' },
    )
      .cast(dtype)
      .reshape([rows, columns]);
    const [from, to] = [x.cast('f32').dataSync(), x.t().copy().cast('f32').dataSync()];
    let wrong = 0;
    for (let i = 0; i < rows; i++)
      for (let j = 0; j < columns; j++) if (from[i * columns + j] !== to[j * rows + i]) wrong++;
    assert.equal(wrong, 0, `${dtype} ${rows}x${columns}`);
  }
});

test('products of few and of many rows agree with sums in double, whatever lies transposed', () => {
  for (const [m, n, k] of [
    [5, 700, 801],
    [64, 300, 130],
    [200, 1001, 64],
    [300, 64, 500],
    [301, 13, 77],
  ]) {
    const [a, b] = [wave(m * k), wave(k * n)];
    for (const [turnA, turnB] of [
      [false, false],
      [true, false],
      [false, true],
    ]) {
      const x = Tensor.from(Float32Array.from(a), { device: cpu }).reshape(turnA ? [k, m] : [m, k]);
      const y = Tensor.from(Float32Array.from(b), { device: cpu }).reshape(turnB ? [n, k] : [k, n]);
      const got = (turnA ? x.t() : x).matmul(turnB ? y.t() : y).dataSync();
      let worst = 0;
      for (let i = 0; i < m; i += 7)
        for (let j = 0; j < n; j += 3) {
          let sum = 0;
          for (let q = 0; q < k; q++)
            sum += Math.fround(a[turnA ? q * m + i : i * k + q]) * Math.fround(b[turnB ? j * k + q : q * n + j]);
          worst = Math.max(worst, Math.abs(Number(got[i * n + j]) - sum));
        }
      assert.ok(worst < 1e-5 * k, `${m}x${k} by ${k}x${n}, ${turnA} ${turnB}: ${worst}`);
    }
  }
});

test('a column of a product has the same bits wherever it stands, in whole tiles and beside them', () => {
  for (const dtype of ['f32', 'f64', 'bf16'] as const)
    for (const m of [1, 2, 3, 4, 5, 8, 9, 16])
      for (const k of [15, 16, 33, 256]) {
        const n = 19; // more than rows, and not of whole tiles
        const a = randn([m, k], { dtype });
        const columns = randn([n, k], { dtype });
        const moved = Array.from({ length: n }, (_, j) => (j * 7 + 3) % n);
        const there = Tensor.from(moved, { dtype: 'i32' });
        const [plain, other] = [columns, columns.indexSelect(0, there)].map((b) => a.matmul(b.t()).cast('f64'));
        const expected = plain.indexSelect(1, there);
        assert.deepEqual(other.toArray(), expected.toArray(), `${m} rows of ${k} ${dtype}`);
        if (m < 3) continue; // rows of B are added to sums in memory, those beside vectors without one rounding less
        const rows = columns.t().copy();
        const [still, shifted] = [rows, rows.indexSelect(1, there)].map((b) => a.matmul(b).cast('f64'));
        assert.deepEqual(
          shifted.toArray(),
          still.indexSelect(1, there).toArray(),
          `${m} rows of ${k} by rows, ${dtype}`,
        );
      }
});

test('products of some rows by rows of a matrix have every column, of strips, of vectors and of what is left', () => {
  const small = (n: number, of: number): number[] => Array.from({ length: n }, (_, i) => ((i * 7 + (i >> 3)) % of) - 2);
  for (const dtype of ['f32', 'f64', 'f16', 'bf16'] as const)
    for (const [m, n, k] of [
      [3, 16, 16],
      [4, 97, 17],
      [5, 64, 33],
      [7, 399, 15],
      [9, 800, 31],
      [16, 415, 40],
      [20, 130, 20],
      [33, 40, 8],
      [3, 1030, 1],
    ]) {
      const [a, b] = [small(m * k, 5), small(k * n, 4)];
      const expected = Array.from({ length: m * n }, (_, e) => {
        let sum = 0; // a whole number below 256, which every one of the dtypes has
        for (let q = 0; q < k; q++) sum += a[Math.floor(e / n) * k + q] * b[q * n + (e % n)];
        return sum;
      });
      const x = Tensor.from(a, { device: cpu }).cast(dtype).reshape([m, k]);
      const y = Tensor.from(b, { device: cpu }).cast(dtype).reshape([k, n]);
      const answers = [x.matmul(y), x.t().copy().t().matmul(y), y.t().matmul(x.t()).t()];
      for (const [i, got] of answers.entries()) {
        const plain = got.castTo('f64').reshape([m * n]);
        assert.deepEqual(plain.toArray(), expected, `${m}x${k} by ${n} ${dtype}, ${i}`);
      }
    }
});

test('products of a batch are those of its matrices alone, which lie one behind the other or do not', () => {
  for (const dtype of ['f32', 'f64', 'f16', 'bf16'] as const)
    for (const [count, m, n, k] of [
      [9, 20, 30, 40],
      [33, 70, 65, 17],
      [16, 128, 128, 33],
    ]) {
      const [a, b] = [randn([count, m, k], { dtype, seed: 1 }), randn([count, k, n], { dtype, seed: 2 })];
      const spread = [a, b].map((t) => t.permute([1, 0, 2]).copy().permute([1, 0, 2]));
      const [plain, apart] = [a.matmul(b), spread[0].matmul(spread[1])].map((t) => t.cast('f64'));
      assert.deepEqual(apart.dataSync(), plain.dataSync(), `${count} of ${m}x${k} by ${n} ${dtype}`);
      for (const i of [0, 1, count - 1]) {
        const alone = a
          .narrow(0, i, 1)
          .squeeze(0)
          .matmul(b.narrow(0, i, 1).squeeze(0))
          .cast('f64');
        assert.deepEqual(plain.narrow(0, i, 1).squeeze(0).copy().dataSync(), alone.dataSync(), `${i} of ${dtype}`);
      }
    }
});

test('products of bf16 are sums in double, rounded, whatever lies transposed and however small the numbers are', () => {
  const SMALLEST = 2 ** -133;
  const values = (v: Float64Array, shape: number[], scale: number): [Tensor, ArrayLike<number>] => {
    const scaled = Float32Array.from(v, (e) => e * scale);
    const x = Tensor.from(scaled, { device: cpu }).reshape(shape).castTo('bf16');
    return [x, x.castTo('f32').dataSync() as Float32Array];
  };
  for (const [m, n, k, scale] of [
    [33, 100, 130, 1],
    [100, 70, 129, 1],
    [70, 40, 200, 2 ** -64], // products below the normal floats
    [64, 64, 64, 2 ** -63],
    [40, 50, 100, 2 ** -128], // numbers below them, times large ones
  ])
    for (const [turnA, turnB] of [
      [false, false],
      [true, false],
      [false, true],
    ]) {
      const [x, a] = values(wave(m * k), turnA ? [k, m] : [m, k], scale);
      const [y, b] = values(wave(k * n), turnB ? [n, k] : [k, n], scale < 2 ** -100 ? 2 ** 100 : scale);
      const got = (turnA ? x.t() : x)
        .matmul(turnB ? y.t() : y)
        .castTo('f32')
        .dataSync();
      for (let i = 0; i < m; i += 7)
        for (let j = 0; j < n; j += 3) {
          let [sum, all] = [0, 0];
          for (let q = 0; q < k; q++) {
            const term = a[turnA ? q * m + i : i * k + q] * b[turnB ? j * k + q : q * n + j];
            sum += term;
            all += Math.abs(term);
          }
          const off = Math.abs(Number(got[i * n + j]) - sum);
          const bound = Math.abs(sum) * 2 ** -8 + all * k * 2 ** -24 + SMALLEST;
          assert.ok(
            off <= bound,
            `${m}x${k} by ${k}x${n} at ${scale}, ${turnA} ${turnB}: ${got[i * n + j]}, not ${sum}`,
          );
        }
    }
});

test('norms hold where the first element of a row is far from the rest, and where the mean is', () => {
  const n = 1000;
  for (const [first, mean] of [
    [1e4, 0],
    [0, 0],
    [0, 300],
    [-1e6, 5],
  ]) {
    const row = wave(n).map((v, i) => Math.fround(i === 0 ? first : v + mean));
    const centre = row.reduce((s, v) => s + v, 0) / n;
    const factor = 1 / Math.sqrt(row.reduce((s, v) => s + (v - centre) ** 2, 0) / n + 1e-5);
    const got = Tensor.from(Float32Array.from(row), { device: cpu }).reshape([1, n]).layerNorm().dataSync();
    const worst = row.reduce((w, v, i) => Math.max(w, Math.abs(Number(got[i]) - (v - centre) * factor)), 0);
    assert.ok(worst < 1e-4, `first ${first}, mean ${mean}: ${worst}`);
  }
});

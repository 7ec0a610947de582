// Products with a right side of 16 bits: bit for bit those with a side that was cast first, whichever way the engine
// multiplies; the gradients of both sides too.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { CpuBackend } from '../src/backends/cpu.js';
import { Device, randn, type Tensor, tensor } from '../src/index.js';

const cpu = Device.cpu();
const NARROW = ['bf16', 'f16'] as const;
const bits = (t: Tensor): Uint8Array => t.contiguous().bytesSync();

/** Rows, columns and depth: a few rows, some, few columns, packed blocks; sizes that fill no vector. */
const SIZES = [
  [1, 1031, 517],
  [2, 70, 300],
  [3, 515, 33],
  [4, 33, 70],
  [7, 300, 65],
  [13, 77, 130],
  [40, 3, 129],
  [40, 90, 90],
  [100, 333, 270],
  [300, 290, 70],
  [260, 270, 257],
] as const;

/** The same numbers, two places apart. */
const everySecond = (t: Tensor): Tensor => t.unsqueeze(-1).repeat([1, 1, 2]).narrow(2, 0, 1).squeeze([2]);

function withThreads(n: number, f: () => void): void {
  const backend = cpu.backend as CpuBackend;
  const before = backend.threads;
  backend.threads = n;
  try {
    f();
  } finally {
    backend.threads = before;
  }
}

for (const dtype of NARROW)
  test(`f32 times ${dtype} has the bits of a product with weights cast first`, () => {
    for (const threads of [1, 4])
      withThreads(threads, () => {
        for (const [m, n, k] of SIZES) {
          const x = randn([m, k], { device: cpu, seed: 1 });
          const w = randn([n, k], { device: cpu, seed: 2 }).cast(dtype);
          const ways: Readonly<Record<string, Tensor>> = {
            turned: w.t(),
            straight: w.t().contiguous(),
            stepped: w
              .repeat([1, 2])
              .narrow(1, 0, k)
              .t()
              .contiguous()
              .repeat([1, 2])
              .slice(1, 0, 2 * n, 2),
          };
          for (const [name, y] of Object.entries(ways)) {
            const wide = y === ways.turned ? w.cast('f32').t() : y.cast('f32');
            // Strides decide how the engine multiplies: the cast side has those of the narrow one.
            const like = name === 'stepped' ? everySecond(wide) : wide;
            assert.deepEqual(like.layout.strides, y.layout.strides, name);
            const [got, want] = [x.matmulWidened(y), x.matmul(like)];
            assert.deepEqual(got.shape, [m, n]);
            assert.ok(Buffer.compare(bits(got), bits(want)) === 0, `${m} x ${n} x ${k} ${name}, ${threads} threads`);
          }
        }
      });
  });

test('every number of 16 bits is widened as a cast does it', () => {
  for (const dtype of NARROW) {
    const all = tensor(
      Int16Array.from({ length: 65536 }, (_, i) => i),
      { shape: [65536, 1], device: cpu },
    ).bitcast(dtype);
    for (const x of [tensor([[1]], { device: cpu }), tensor([[1], [-0], [Infinity]], { device: cpu })]) {
      const [got, want] = [x.matmulWidened(all.t()), x.matmul(all.cast('f32').t())];
      assert.ok(Buffer.compare(bits(got), bits(want)) === 0, `${dtype}, ${x.shape[0]} rows`);
    }
  }
});

test('stacks of products and of rows', () => {
  const x = randn([3, 5, 7, 40], { device: cpu, seed: 3 });
  for (const shape of [
    [40, 33],
    [5, 40, 33],
    [3, 1, 40, 33],
  ]) {
    const w = randn(shape, { device: cpu, seed: 4 }).cast('bf16');
    assert.ok(Buffer.compare(bits(x.matmulWidened(w)), bits(x.matmul(w.cast('f32')))) === 0, String(shape));
  }
});

test('gradients are those of a product with weights cast first', () => {
  for (const dtype of NARROW) {
    const x = randn([2, 3, 40], { device: cpu, seed: 5 }).requireGrad();
    const w = randn([17, 40], { device: cpu, seed: 6 }).cast(dtype).requireGrad();
    const by = randn([2, 3, 17], { device: cpu, seed: 7 });
    const grads = [x.matmulWidened(w.t()), x.matmul(w.cast('f32').t())].map((y) => y.mul(by).sum().backward());
    for (const t of [x, w]) {
      const [got, want] = grads.map((g) => g.get(t) as Tensor);
      assert.equal(got.dtype, t.dtype);
      assert.ok(Buffer.compare(bits(got), bits(want)) === 0, `${dtype} ${t.shape}`);
    }
  }
});

test('other dtypes are refused by name', () => {
  const [x, w] = [randn([2, 3], { device: cpu }), randn([3, 2], { device: cpu })];
  assert.throws(() => x.matmulWidened(w), {
    message: /matmulWidened: it multiplies f32 by bf16 or f16, not f32 .* by f32/,
  });
  assert.throws(() => x.cast('f16').matmulWidened(w.cast('f16')), { message: /not f16 \[2, 3\] by f16 \[3, 2\]/ });
});

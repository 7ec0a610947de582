// Convolutions with more filters than a product takes row by row: the CPU engine unrolls their pictures into panels.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { DType } from '../src/base/dtype.js';
import { Device, tensor, type Tensor } from '../src/index.js';

/** Small whole numbers, so that every sum is exact. */
const whole = (shape: readonly number[], device: string, dtype: DType, factor: number): Tensor =>
  tensor(
    Float32Array.from({ length: shape.reduce((a, b) => a * b, 1) }, (_, i) => ((i * factor) % 7) - 3),
    { shape, device: Device.get(device) },
  ).castTo(dtype);

interface Case {
  readonly says: string;
  /** Batch, channels, height, width. */
  readonly x: readonly [number, number, number, number];
  readonly filters: number;
  readonly kernel: readonly [number, number];
  readonly options: { stride?: number; padding?: number; dilation?: number; groups?: number };
  /** Another layout of the same numbers. */
  readonly view?: (x: Tensor) => Tensor;
}
const CASES: readonly Case[] = [
  { says: 'rows shorter than a vector', x: [5, 3, 7, 7], filters: 33, kernel: [3, 3], options: { padding: 1 } },
  { says: 'pictures of one pixel', x: [40, 3, 1, 1], filters: 9, kernel: [1, 1], options: {} },
  { says: 'long rows', x: [2, 2, 3, 90], filters: 17, kernel: [3, 3], options: { padding: 1 } },
  { says: 'a kernel as wide as its padding', x: [2, 3, 6, 6], filters: 6, kernel: [5, 5], options: { padding: 4 } },
  { says: 'strides', x: [3, 4, 17, 19], filters: 20, kernel: [3, 2], options: { stride: 2, padding: 1 } },
  { says: 'strides that skip', x: [2, 3, 40, 60], filters: 8, kernel: [2, 2], options: { stride: 5 } },
  { says: 'dilation', x: [3, 5, 20, 15], filters: 12, kernel: [3, 3], options: { dilation: 3, padding: 2 } },
  { says: 'groups', x: [2, 12, 9, 9], filters: 30, kernel: [3, 3], options: { groups: 3, padding: 1 } },
  { says: 'several slabs', x: [3, 90, 9, 5], filters: 40, kernel: [3, 3], options: { padding: 1 } },
  { says: 'many positions', x: [4, 3, 30, 30], filters: 70, kernel: [3, 3], options: { padding: 1 } },
  {
    says: 'channels last',
    x: [3, 6, 11, 9],
    filters: 21,
    kernel: [3, 3],
    options: { padding: 1 },
    view: (x) => x.permute([0, 2, 3, 1]).contiguous().permute([0, 3, 1, 2]),
  },
  {
    says: 'the batch innermost',
    x: [5, 3, 8, 6],
    filters: 10,
    kernel: [3, 3],
    options: { padding: 1 },
    view: (x) => x.permute([1, 2, 3, 0]).contiguous().permute([3, 0, 1, 2]),
  },
  {
    says: 'one picture as a batch',
    x: [1, 3, 8, 6],
    filters: 10,
    kernel: [3, 3],
    options: { padding: 1 },
    view: (x) => x.broadcastTo([4, 3, 8, 6]),
  },
];

for (const dtype of ['f32', 'f64', 'f16', 'bf16'] as const) {
  test(`convolutions of ${dtype} with many filters are those of plain loops, with a bias and without`, () => {
    for (const { says, x, filters, kernel, options, view } of CASES) {
      for (const biased of [false, true]) {
        const [ours, plain] = ['cpu', 'reference'].map((device) => {
          const picture = whole(x, device, dtype, 5);
          const weights = whole([filters, x[1] / (options.groups ?? 1), ...kernel], device, dtype, 3);
          const bias = biased ? whole([filters], device, dtype, 2) : undefined;
          return (view ? view(picture) : picture)
            .conv2d(weights, { ...options, bias })
            .castTo('f32')
            .toArray();
        });
        assert.deepEqual(ours, plain, `${says}${biased ? ', with a bias' : ''}`);
      }
    }
  });
}

// Pictures resized and read at places by kernels of GPUs: which pixels they show, and what the CPU makes of the same.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { arange, Device, gradOf, randn, type Tensor } from '../src/index.js';
import type { InterpolateOptions } from '../src/ops/image.js';

const DEVICES = ['cpu', 'sim:32', 'sim:64'].map((name) => Device.get(name));
const numbers = (t: Tensor): number[] => t.flatten().toArray() as number[];
function near(a: Tensor, b: Tensor, bound = 1e-5): void {
  assert.deepEqual(a.shape, b.shape);
  const [x, y] = [numbers(a), numbers(b)];
  const scale = x.reduce((most, v) => Math.max(most, Math.abs(v)), 1);
  for (const [i, v] of x.entries()) assert.ok(Math.abs(v - y[i]) <= bound * scale, `element ${i}: ${v} and ${y[i]}`);
}

test('nearest shows the elements that PyTorch shows, whose steps and places are single precision', () => {
  // Size, options, a place of the result, and what PyTorch shows there; in exact arithmetic it were one more.
  const cases: readonly [number, InterpolateOptions, number, number][] = [
    [31, { scale: 2.3 }, 69, 29],
    [16, { scale: 2.3, mode: 'nearest-exact' }, 34, 14],
    [14, { size: 46 }, 23, 6],
    [26, { size: 22 }, 11, 12],
    [10, { scale: 1.3 }, 12, 9],
  ];
  const spatial = (v: number | readonly number[] | undefined, rank: number): number[] | undefined =>
    v === undefined ? undefined : [...new Array<number>(rank - 1).fill(1), v as number];
  for (const device of DEVICES)
    for (const [n, { size, scale, ...mode }, at, shown] of cases)
      for (const rank of [1, 2, 3]) {
        const x = arange(n, { dtype: 'f32', device }).reshape([1, 1, ...new Array<number>(rank - 1).fill(1), n]);
        const [to, by] = [spatial(size, rank), spatial(scale, rank)];
        const y = x.interpolate({ ...mode, ...(to && { size: to }), ...(by && { scale: by }) });
        assert.equal(numbers(y)[at], shown, `${device.name}: ${n} ${JSON.stringify({ size, scale, ...mode })} ${rank}`);
      }
});

test('resized, padded and sampled pictures and their gradients are those of the CPU, which has other ops', () => {
  const calls: Record<string, (x: Tensor, grid: Tensor) => Tensor> = {
    cubic: (x) => x.interpolate({ size: [13, 9], mode: 'bicubic' }),
    smooth: (x) => x.interpolate({ size: [3, 4], mode: 'bicubic', antialias: true }),
    nearest: (x) => x.interpolate({ scale: [1.3, 0.6] }),
    reflected: (x) => x.padMode([2, 1, 3, 0], 'reflect'),
    wrapped: (x) => x.padMode([2, 5], 'circular'),
    replicated: (x) => x.padMode([0, 1, 0, 0, 1, 1], 'replicate'),
    sampled: (x, grid) => x.gridSample(grid),
    mirrored: (x, grid) => x.gridSample(grid, { paddingMode: 'reflection', alignCorners: true }),
    held: (x, grid) => x.gridSample(grid, { paddingMode: 'border' }),
    largest: (x) => x.maxPool2d(3, { stride: 2, padding: 1 }),
  };
  for (const [name, call] of Object.entries(calls)) {
    const [expected, ...found] = DEVICES.map((device) => {
      const x = randn([2, 5, 6, 7], { device, seed: 1 }).requireGrad();
      const grid = randn([2, 3, 4, 2], { device, seed: 2 }).requireGrad();
      const y = call(x, grid);
      const by = randn(y.shape, { device, seed: 3 });
      const of = call.length > 1 ? [x, grid] : [x];
      return [y, ...gradOf(y.mul(by).sum(), of)];
    });
    assert.ok(expected.length > 1, name);
    for (const results of found) results.forEach((t, i) => near(expected[i], t));
  }
});

test('grids with more places than shared memory holds, and few in a large picture, have the same results', () => {
  for (const [picture, places] of [
    [
      [3, 5, 4],
      [130, 131],
    ],
    [
      [9, 70, 60],
      [3, 5],
    ],
    [
      [2, 150, 140],
      [120, 100],
    ],
  ] as const) {
    const [expected, ...found] = DEVICES.map((device) => {
      const x = randn([1, ...picture], { device, seed: 4 }).requireGrad();
      const grid = randn([1, ...places, 2], { device, seed: 5 })
        .mul(0.6)
        .requireGrad();
      const y = x.gridSample(grid);
      return [y, ...gradOf(y.mul(randn(y.shape, { device, seed: 6 })).sum(), [x, grid])];
    });
    for (const results of found) results.forEach((t, i) => near(expected[i], t, 2e-5));
  }
});

test('what flows back through windows of largest elements, in planes of any size, with NaN and equal ones', () => {
  for (const [height, width, dtype] of [
    [130, 131, 'f32'],
    [9, 11, 'f32'],
    [9, 11, 'bf16'],
  ] as const)
    for (const [size, stride, padding] of [
      [3, 2, 1],
      [2, 3, 0],
      [5, 1, 2],
    ]) {
      const [expected, ...found] = DEVICES.map((device) => {
        const given = randn([2, 3, height, width], { device, seed: 9 }).affine(4, 0).round();
        const x = given.eq(3).where(NaN, given).cast(dtype).requireGrad();
        const y = x.maxPool2d(size, { stride, padding });
        const by = randn(y.shape, { device, seed: 10 }).affine(8, 0).round().cast(dtype);
        return gradOf(y.mul(by).sum(), [x])[0].cast('f32');
      });
      for (const t of found) assert.deepEqual(numbers(t), numbers(expected), `${height} ${dtype} ${size}`);
    }
});

test('gradients through the gradients of a sampled picture', () => {
  for (const paddingMode of ['zeros', 'border', 'reflection'] as const) {
    const [expected, ...found] = DEVICES.map((device) => {
      const x = randn([2, 3, 4, 5], { device, seed: 7 }).requireGrad();
      const grid = randn([2, 3, 3, 2], { device, seed: 8 }).requireGrad();
      const y = x.gridSample(grid, { paddingMode });
      const first = gradOf(y.powf(3).sum(), [x, grid], { createGraph: true });
      return gradOf(first[0].sqr().sum().add(first[1].sqr().sum()), [x, grid]);
    });
    for (const results of found) results.forEach((t, i) => near(expected[i], t));
  }
});

test('tables that are first asked for while work is recorded are there for it and for later calls', async () => {
  for (const device of DEVICES.slice(1)) {
    const x = randn([1, 2, 6, 6], { device, seed: 1 });
    const resize = (t: Tensor): Tensor => t.interpolate({ size: [11, 17], mode: 'bicubic' });
    const expected = resize(x.to('cpu'));
    const out = x.newZeros([1, 2, 11, 17]);
    const recording = device.capture(() => {
      out.assign(resize(x));
    });
    await recording.launch();
    near(expected, out);
    recording.dispose();
    device.trim();
    const others = [0, 1, 2, 3].map((seed) => randn([4000], { device, seed }));
    near(expected, resize(x));
    for (const t of others) t.dispose();
  }
});

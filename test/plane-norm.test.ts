// Batch norms and group norms over planes, by kernels of GPUs: results and gradients are those of the CPU.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { Device, gradOf, randn, type Tensor, zeros } from '../src/index.js';
import * as nn from '../src/nn/index.js';

const DEVICES = ['cpu', 'sim:32', 'sim:64'].map((name) => Device.get(name));
const numbers = (t: Tensor): number[] => t.cast('f32').flatten().toArray() as number[];
function near(a: Tensor, b: Tensor, bound: number, what: string): void {
  assert.deepEqual(a.shape, b.shape);
  const [x, y] = [numbers(a), numbers(b)];
  const scale = x.reduce((most, v) => Math.max(most, Math.abs(v)), 1);
  for (const [i, v] of x.entries())
    assert.ok(Math.abs(v - y[i]) <= bound * scale, `${what}, element ${i}: ${v} and ${y[i]}`);
}

test('norms over planes of one piece and of several, their gradients and the gradients of these', () => {
  for (const [shape, groups, dtype] of [
    [[3, 4, 5, 7], 0, 'f32'],
    [[2, 6, 8, 8], 3, 'f32'],
    [[2, 4, 33], 1, 'bf16'],
    [[3, 2, 64], 0, 'f16'],
    [[1, 2, 150, 151], 0, 'f32'],
    [[2, 2, 40, 1024], 1, 'f32'],
  ] as const) {
    const bound = dtype === 'f32' ? 2e-5 : 2e-2;
    const [expected, ...found] = DEVICES.map((device) => {
      const x = randn(shape, { device, seed: 1 }).affine(1, 3).cast(dtype).requireGrad();
      const [w, b] = [2, 3].map((seed) => randn([shape[1]], { device, seed }).cast(dtype).requireGrad());
      const y = groups === 0 ? x.batchNorm(w, b) : x.groupNorm(groups, w, b);
      const by = randn(shape, { device, seed: 4 }).cast(dtype);
      const first = gradOf(y.mul(by).sum(), [x, w, b], { createGraph: true });
      if (dtype !== 'f32') return [y, ...first];
      const squares = first.map((t) => t.sqr().mean()).reduce((p, q) => p.add(q));
      return [y, ...first, ...gradOf(squares, [x, w])];
    });
    for (const results of found)
      results.forEach((t, i) => near(expected[i], t, bound, `${shape} ${groups} ${dtype}, result ${i}`));
  }
});

test('a batch norm in training learns the same statistics', () => {
  const [expected, ...found] = DEVICES.map((device) => {
    const norm = new nn.BatchNorm2d(3);
    norm.to(device);
    for (const seed of [1, 2]) norm.forward(randn([4, 3, 6, 6], { device, seed }).affine(2, 5));
    return [norm.runningMean, norm.runningVar];
  });
  for (const results of found) results.forEach((t, i) => near(expected[i], t, 1e-5, `statistic ${i}`));
});

test('planes without variance, and with infinities', () => {
  for (const device of DEVICES) {
    const still = zeros([2, 2, 40], { device }).affine(1, 7).batchNorm();
    assert.ok(
      numbers(still).every((v) => v === 0),
      device.name,
    );
    const wild = zeros([1, 2, 40], { device })
      .affine(1, 1)
      .mul(zeros([1, 2, 1], { device }).affine(1, Infinity));
    assert.ok(numbers(wild.groupNorm(1)).every(Number.isNaN), device.name);
  }
});

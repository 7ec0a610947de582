// Where PyTorch's answer is easily missed: ends of gradients, shared memory, nothing to sum, options that nobody
// can mean.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { arange, einsum, hannWindow, linspace, meshgrid, tensor, trilIndices, zeros } from '../src/index.js';
import { OutOfMemoryError } from '../src/base/errors.js';
import * as nn from '../src/nn/index.js';

const ids = (...values: number[]) => tensor(values, { dtype: 'i64' });

test('a gradient ends where a tensor is cast to integers or truth values', () => {
  const w = tensor([2.5, -1.5]).requireGrad();
  for (const dtype of ['i32', 'i64', 'u8', 'bool'] as const) {
    const whole = w.abs().cast(dtype);
    assert.equal(whole.requiresGrad, false, dtype);
    const kept = whole.cast('f32');
    assert.deepEqual(kept.mul(w).sum().backward().of(w).toArray(), kept.toArray(), dtype);
  }
  assert.deepEqual(w.cast('f16').cast('f32').sum().backward().of(w).toArray(), [1, 1]);
});

test('assign refuses a view whose elements are one and the same in memory', () => {
  const row = arange(3).reshape([1, 3]);
  assert.throws(() => row.broadcastTo([2, 3]).assign(zeros([2, 3])), /assign: .* dimension 0 are one and the same/);
  assert.deepEqual(row.toArray(), [[0, 1, 2]]);
  assert.deepEqual(row.broadcastTo([1, 3]).assign(5).toArray(), [[5, 5, 5]]);
});

test('indexPut takes masks, alone and beside indices', () => {
  const x = arange(6).reshape([2, 3]);
  assert.deepEqual(x.indexPut([x.gt(3)], tensor(9)).toArray(), [
    [0, 1, 2],
    [3, 9, 9],
  ]);
  const some = tensor([true, false, true]);
  assert.deepEqual(x.indexPut([ids(1), some], tensor([7, 8])).toArray(), [
    [0, 1, 2],
    [7, 4, 8],
  ]);
  assert.throws(
    () => x.indexPut([tensor([true, false, true])], tensor(9)),
    /indexPut: a mask \[3\] does not lie on \[2\]/,
  );
});

test('sums over nothing, no points, halves to even, classes that are none', () => {
  assert.deepEqual(einsum('ij,jk->ik', zeros([2, 0]), zeros([0, 3])).toArray(), [
    [0, 0, 0],
    [0, 0, 0],
  ]);
  assert.deepEqual(einsum('ij,j->i', zeros([2, 1]), zeros([0])).toArray(), [0, 0]);
  assert.deepEqual(linspace(0, 1, 0).shape, [0]);
  assert.deepEqual(tensor([0.125, 0.375, -0.125], { dtype: 'f64' }).roundTo(2).toArray(), [0.12, 0.38, -0.12]);
  assert.deepEqual(ids(1, -1).oneHot(2).toArray(), [
    [0, 1],
    [0, 0],
  ]);
  for (const id of [2, -2]) assert.throws(() => ids(0, id).oneHot(2).toArray(), new RegExp(`oneHot: .*index ${id} `));
  assert.throws(() => (arange(3) as any).quantile(tensor([0.5])), /quantile: q is a number or a list of numbers/);
});

test('a variance below eps still learns, as of PyTorch', () => {
  const variance = tensor([1e-9]).requireGrad();
  const grad = nn.losses
    .gaussianNll(tensor([0]), tensor([1]), variance)
    .backward()
    .of(variance);
  assert.ok(Math.abs(grad.item() / (0.5 * 1e6 - 0.5 * 1e12) - 1) < 1e-5, `${grad.item()}`);
});

test('optimizers refuse options that cannot be meant, and results of ops', () => {
  const leaf = zeros([2]).requireGrad();
  const refused: [() => unknown, RegExp][] = [
    [() => new nn.SGD([leaf], { nesterov: true }), /nesterov .* momentum/],
    [() => new nn.SGD([leaf], { nesterov: true, momentum: 0.9, dampening: 0.1 }), /without dampening/],
    [() => new nn.SGD([leaf], { momentum: -1 }), /momentum -1/],
    [() => new nn.Adam([leaf], { beta1: 1.5 }), /Adam: beta1 1.5 is not a number from 0 to below 1/],
    [() => new nn.AdamW([{ params: [leaf], beta2: 1 }]), /beta2 1 /],
    [() => new nn.AdamW([leaf], { weightDecay: NaN }), /weightDecay NaN/],
    [() => new nn.EMA([leaf] as never), /EMA: takes a module/],
    [() => new nn.SGD([leaf.mul(2)]), /SGD: a parameter is the result of an op/],
  ];
  for (const [f, says] of refused) assert.throws(f, says);
});

test('what would fill the host with lists is refused, and what fits is not', () => {
  assert.throws(() => arange(1000).combinations(20), /combinations: 20 of 1000 elements are .* rows/);
  assert.deepEqual(arange(30).combinations(29).shape, [30, 29]);
  assert.deepEqual(arange(3).combinations(2, { withReplacement: true }).shape, [6, 2]);
  assert.deepEqual(arange(2).combinations(3).shape, [0, 3]);
  assert.throws(() => trilIndices(2 ** 24), OutOfMemoryError);
  assert.deepEqual(trilIndices(2, 0).shape, [2, 0]);
  assert.throws(() => hannWindow(2 ** 45), /hannWindow: .* it takes a whole number from 0 to 16777216/);
  assert.deepEqual(zeros([1, 1, 3]).interpolate({ size: [150_000], mode: 'linear' }).shape, [1, 1, 150_000]);
  assert.throws(() => arange(4).vander(2 ** 40), /vander: cannot take the arguments/);
  assert.deepEqual(meshgrid([arange(3)], 'xy')[0].toArray(), [0, 1, 2]);
});

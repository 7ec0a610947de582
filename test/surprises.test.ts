// What a user who knows PyTorch writes first: it means the same here, or it is refused in a sentence.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import * as nn from '../src/nn/index.js';
import { arange, blockDiag, hannWindow, kaiserWindow, tensor, trilIndices, zeros } from '../src/index.js';
import { parameterCount } from '../src/tensor/parameter-count.js';

const ids = (...values: number[]) => tensor(values, { dtype: 'i64' });
const x = arange(24).reshape([2, 3, 4]);

test('several index tensors belong together, where they stood or in front', () => {
  assert.deepEqual(x.at(ids(1, 0), ids(2, 1)).toArray(), [
    [20, 21, 22, 23],
    [4, 5, 6, 7],
  ]);
  assert.deepEqual(x.at(':', ids(2, 0), ids(3, 1)).toArray(), [
    [11, 1],
    [23, 13],
  ]);
  assert.deepEqual(x.at(ids(1, 0), ':', ids(0, 3)).toArray(), [
    [12, 16, 20],
    [3, 7, 11],
  ]);
  const grid = tensor(
    [
      [0, 1],
      [1, 0],
    ],
    { dtype: 'i64' },
  );
  assert.deepEqual(x.at(grid).shape, [2, 2, 3, 4]);
  assert.deepEqual(x.at(grid, ids(0, 2), 3).toArray(), [
    [3, 23],
    [15, 11],
  ]);
  assert.deepEqual(x.at(ids(0, 1), tensor([true, false, true])).shape, [2, 4]);
});

test('index tensors count from the end below zero, and are refused beyond it in every dimension', () => {
  assert.deepEqual(x.at(ids(-1), ids(-3)).toArray(), [[12, 13, 14, 15]]);
  assert.throws(() => x.at(ids(0), ids(3)).toArray(), /index 3 .* out of range for a dimension of size 3/);
  assert.throws(
    () =>
      zeros([3, 4])
        .indexPut([ids(0), ids(5)], tensor([1]))
        .toArray(),
    /indexPut: .*index 5 .*size 4/,
  );
});

test('gradients flow to what index tensors chose', () => {
  const leaf = arange(6).reshape([2, 3]).requireGrad();
  const grads = leaf
    .at(ids(0, 0, 1), ids(1, 1, 2))
    .sum()
    .backward();
  assert.deepEqual(grads.of(leaf).toArray(), [
    [0, 2, 0],
    [0, 0, 1],
  ]);
});

test('arguments that would be ignored are refused', () => {
  assert.throws(() => (x.relu as (n: number) => unknown).call(x, 3), /relu: takes no argument, not 1 \(number\)/);
  assert.throws(() => (x.sum as (...a: unknown[]) => unknown).call(x, 0, true, 5), /sum: takes at most 2 arguments/);
});

test('lists that were written as single numbers are named', () => {
  const loose = x as unknown as Record<string, (...n: number[]) => unknown>;
  assert.throws(() => loose.reshape(24), /reshape: takes a list: reshape\(\[24\]\)/);
  assert.throws(() => loose.reshape(2, 12), /reshape: .*a list is written reshape\(\[2, 12\]\)/);
  assert.throws(() => loose.permute(2, 0, 1), /permute: .*a list is written permute\(\[2, 0, 1\]\)/);
  assert.throws(
    () => (zeros as unknown as (...n: number[]) => unknown)(2, 3),
    /zeros: 3 stands where options do; a shape is one/,
  );
});

test("JavaScript's operators on tensors are refused instead of making text or NaN", () => {
  const loose = x as unknown as number;
  assert.throws(() => loose + 1, /JavaScript has no operators for tensors: write x.add/);
  assert.throws(() => loose * 2, /JavaScript has no operators/);
  assert.throws(() => loose < 2, /JavaScript has no operators/);
  assert.match(`${tensor([1, 2])}`, /\[1\., 2\.\]/);
});

test("PyTorch's x.where(mask, y) is refused with the way to write it", () =>
  assert.throws(() => x.where(x.gt(1) as never, 0), /where: the condition is f32.*mask\.where\(x, y\)/));

test('a number beside integers is named by the op that took it', () =>
  assert.throws(() => ids(1, 2).mul(0.5), /^DTypeError.*: mul: 0\.5 is no i64/));

test('step() without gradients says where they come from', () => {
  const optimizer = new nn.SGD([zeros([2])], { learningRate: 0.1 });
  assert.throws(
    () => optimizer.step(undefined as never),
    /SGD: step takes the gradients that loss\.backward\(\) gives/,
  );
  assert.equal(optimizer.steps, 0);
});

test('parameters are counted with their defaults, up to a rest of them', () => {
  assert.equal(
    parameterCount((a: number, b = ')', c = [1, { d: 2 }]) => [a, b, c]),
    3,
  );
  assert.equal(
    parameterCount(() => 1),
    0,
  );
  assert.equal(
    parameterCount((...all: number[]) => all),
    Infinity,
  );
});

test('bags of a list begin where offsets say; an empty one is 0', () => {
  const bag = new nn.EmbeddingBag(4, 2, { mode: 'sum' });
  bag.weight.assign(arange(8).reshape([4, 2]));
  assert.deepEqual(bag.forward(ids(1, 3, 2), ids(0, 2, 2)).toArray(), [
    [8, 10],
    [0, 0],
    [4, 5],
  ]);
  assert.throws(() => bag.forward(ids(1, 2), ids(0, 3)), /EmbeddingBag: bags begin at \[0, 3\]/);
});

test('windows, triangles and blocks hold the numbers of PyTorch', () => {
  assert.deepEqual(hannWindow(4).toArray(), [0, 0.5, 1, 0.5]);
  const kaiser = kaiserWindow(5, 3, { periodic: false, dtype: 'f64' }).toArray<number[]>();
  [0.2048, 0.7269, 1, 0.7269, 0.2048].forEach((v, i) => assert.ok(Math.abs(kaiser[i] - v) < 1e-4, String(kaiser[i])));
  assert.deepEqual(trilIndices(2, 3).toArray(), [
    [0, 1, 1],
    [0, 0, 1],
  ]);
  assert.deepEqual(blockDiag([tensor([[1, 2]]), tensor([[3], [4]])]).toArray(), [
    [1, 2, 0],
    [0, 0, 3],
    [0, 0, 4],
  ]);
});

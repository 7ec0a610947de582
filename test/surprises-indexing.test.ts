// What a user who knows PyTorch writes to index and assign: it means the same here.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { arange, tensor, zeros } from '../src/index.js';

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

test('a number is assigned to every element, of a view too', () => {
  const z = zeros([2, 2]);
  z.at(0).assign(5);
  assert.deepEqual(z.toArray(), [
    [5, 5],
    [0, 0],
  ]);
});

test('slices by text are those of numbers', () => {
  const same = (text: never, list: readonly (number | undefined)[]): void =>
    assert.deepEqual(x.at(':', text).toArray(), x.at(':', list as [number]).toArray());
  same('1:3' as never, [1, 3]);
  same(':2' as never, [0, 2]);
  same('-2:' as never, [-2]);
  same('::2' as never, [undefined, undefined, 2]);
  same('::-1' as never, [undefined, undefined, -1]);
  assert.throws(() => x.at('1;3' as never), /at: "1;3" is not an index/);
});

test('scatter takes a number for every place', () =>
  assert.deepEqual(zeros([2, 3]).scatter(1, ids(2, 0).unsqueeze(1), 7).toArray(), [
    [0, 0, 7],
    [7, 0, 0],
  ]));

test('what at() copied is not written: the tensor it came from would stay as it is', () => {
  const z = zeros([4]);
  const says = /assign: at\(\) copied this by an index tensor, a mask or a negative step/;
  assert.throws(() => z.at(ids(0, 2)).assign(5), says);
  assert.throws(() => z.at(z.eq(0)).assign(5), says);
  assert.throws(() => z.at([undefined, undefined, -1]).assign(5), says);
  assert.throws(() => z.at('::-1').assign(5), says);
  const own = z.at(ids(0, 2)).copy().assign(5);
  z.at('::2').assign(own);
  assert.deepEqual(z.toArray(), [5, 0, 5, 0]);
});

test('maskedSelect broadcasts, as PyTorch does: a mask of a row picks columns, also of a square', () => {
  const x = arange(0, 9).reshape([3, 3]);
  const mask = tensor([true, false, true]);
  assert.deepEqual(x.maskedSelect(mask).toArray(), [0, 2, 3, 5, 6, 8]);
  assert.deepEqual(x.maskedSelect(mask.unsqueeze(1)).toArray(), [0, 1, 2, 6, 7, 8]);
  assert.deepEqual(x.at(mask).toArray(), [
    [0, 1, 2],
    [6, 7, 8],
  ]);
  assert.deepEqual(
    tensor([5, 6])
      .maskedSelect(
        tensor([
          [true, false],
          [true, true],
        ]),
      )
      .toArray(),
    [5, 5, 6],
  );
  assert.throws(() => x.maskedSelect(tensor([true, false])), /maskedSelect: .*do not broadcast/);
});

test('the length of a tensor is refused: a loop up to undefined would run no time', () => {
  assert.throws(() => (zeros([3]) as unknown as { length: number }).length, /x\.length: here it is x\.shape\[0\]/);
});

// What a user who knows PyTorch writes first: it means the same here, or it is refused in a sentence.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import * as nn from '../src/nn/index.js';
import {
  arange,
  blockDiag,
  eye,
  hannWindow,
  hessian,
  jacobian,
  kaiserWindow,
  randn,
  type Tensor,
  tensor,
  trilIndices,
  vmap,
  zeros,
} from '../src/index.js';
import { missingAddresses } from '../scripts/check-publish.js';
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

test('vmap calls a function for each example, gradients flow, and what does not fit is refused', () => {
  const a = arange(6).reshape([3, 2]).requireGrad();
  const scaled = vmap((row, by) => row.mul(by).sum(), { inDims: [0, null] });
  const y = scaled(a, tensor([2, 3]));
  assert.deepEqual(y.toArray(), [3, 13, 23]);
  assert.deepEqual(y.sum().backward().of(a).toArray(), [
    [2, 3],
    [2, 3],
    [2, 3],
  ]);
  assert.deepEqual(vmap((v) => v.add(1), { inDims: 1, outDim: 1 })(x).shape, [2, 3, 4]);
  assert.throws(() => vmap((p, q) => p.add(q))(zeros([2]), zeros([3])), /vmap: .* have \[2, 3\] examples/);
  assert.throws(() => vmap((p) => p, { inDims: [null] })(zeros([2])), /vmap: inDims names no argument/);
});

test('jacobian and hessian hold all derivatives, 0 where nothing depends', () => {
  const at = tensor([1, 2]);
  assert.deepEqual(jacobian((v) => v.sqr(), at).toArray(), [
    [2, 0],
    [0, 4],
  ]);
  assert.deepEqual(hessian((v) => v.prod(), at).toArray(), [
    [0, 1],
    [1, 0],
  ]);
  assert.deepEqual(jacobian(() => tensor([5]), at).toArray(), [[0, 0]]);
  assert.throws(() => hessian((v) => v, at), /hessian: the function must answer one number, not \[2\]/);
});

test('factorizations of matrices beyond the small ones put the matrix together again', () => {
  const n = 40;
  const a = randn([n + 3, n], { seed: 1, dtype: 'f64' });
  const far = (p: Tensor, q: Tensor): number => p.sub(q).abs().max().item();
  const one = eye(n, { dtype: 'f64' });
  const [u, s, vt] = a.svd();
  assert.ok(far(u.matmul(s.diag()).matmul(vt), a) < 1e-13 && far(u.t().matmul(u), one) < 1e-13);
  const symmetric = a.t().matmul(a);
  const [values, vectors] = symmetric.eigh();
  assert.ok(far(vectors.matmul(values.diag()).matmul(vectors.t()), symmetric) < 1e-12);
  assert.ok(far(values.flip(0).sqrt(), s) < 1e-12);
  const [q, r] = a.qr();
  assert.ok(far(q.matmul(r), a) < 1e-13 && r.tril(-1).abs().max().item() === 0);
  assert.ok(far(symmetric.matmul(symmetric.inv()), one) < 1e-10);
  assert.equal(
    a
      .narrow(1, 0, 3)
      .matmul(a.narrow(0, 0, 3))
      .matrixRank()
      .item(),
    3,
  );
  assert.equal(one.mul(1e200).svd()[1].max().item(), 1e200);
});

test('a package without public addresses is not published', () => {
  assert.deepEqual(missingAddresses({}), ['repository', 'homepage', 'bugs']);
  const at = 'https://example.org/wick';
  assert.deepEqual(missingAddresses({ repository: { type: 'git', url: at }, homepage: at, bugs: { url: '' } }), [
    'bugs',
  ]);
});

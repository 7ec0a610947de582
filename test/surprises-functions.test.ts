// What a user who knows PyTorch expects of functions: the same numbers, gradients and shapes.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import * as nn from '../src/nn/index.js';
import {
  arange,
  blockDiag,
  eye,
  gradOf,
  hannWindow,
  hessian,
  jacobian,
  jvp,
  kaiserWindow,
  randn,
  scope,
  type Tensor,
  tensor,
  trilIndices,
  vmap,
  WickError,
  zeros,
} from '../src/index.js';

const ids = (...values: number[]) => tensor(values, { dtype: 'i64' });
const x = arange(24).reshape([2, 3, 4]);

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
  assert.deepEqual(vmap((v) => v.add(1), { inDims: 1, outDims: 1 })(x).shape, [2, 3, 4]);
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

test('integers of two dtypes are compared by value, floats are not mixed', () => {
  const logits = tensor([
    [1, 3, 2],
    [4, 0, 1],
  ]);
  assert.deepEqual(logits.argmax(1).eq(ids(1, 2)).toArray(), [1, 0]);
  assert.deepEqual(
    tensor([-1], { dtype: 'i8' })
      .lt(tensor([4294967295], { dtype: 'u32' }))
      .toArray(),
    [1],
  );
  assert.throws(() => logits.eq(logits.cast('f64')), /eq: operands have different dtypes, f32 .* and f64/);
  assert.throws(() => logits.eq(logits.argmax()), /eq: operands have different dtypes, f32 .* and u32/);
});

test('the gradient of x log(y) by x is log(y), where x is 0, too, and 0 where both answer 0', () => {
  const zeros = [0, 0, 0, 0, -0, 2];
  const logs = { xlogy: [1, 3, 0, -1, 0.5, 3], xlog1py: [0, 2, -1, -2, -0.5, 2] };
  const slopes = [0, Math.log(3), 0, 0, Math.log(0.5), Math.log(3)];
  for (const op of ['xlogy', 'xlog1py'] as const) {
    const x = tensor(zeros).requireGrad();
    const value = x[op](tensor(logs[op]));
    const values = value.toArray<number[]>();
    values.slice(0, 5).forEach((v) => {
      assert.ok(Object.is(v, 0), `${op} at 0 is ${v}`);
    });
    const grads = value.sum().backward().of(x).toArray<number[]>();
    grads.forEach((g, i) => {
      assert.ok(Math.abs(g - slopes[i]) < 1e-6, `${op}: slope ${i} is ${g}`);
    });
    assert.deepEqual(
      tensor([0])
        [op](tensor([NaN]))
        .toArray(),
      [NaN],
    );
    assert.deepEqual(
      tensor([0])
        [op](tensor([Infinity]))
        .toArray(),
      [0],
    );
  }
});

test("JSON of a tensor is its arrays, and an object's tensors load as a map's do", () => {
  assert.equal(JSON.stringify({ y: tensor([[1, 2]]) }), '{"y":[[1,2]]}');
  const layer = new nn.Linear(1, 1);
  assert.deepEqual(layer.loadStateDict({ weight: tensor([[3]]), bias: tensor([4]) }), { missing: [], unexpected: [] });
  assert.deepEqual(layer.forward(tensor([2])).toArray(), [10]);
});

test('the count of what is not 0 has a gradient of 0', () => {
  const a = tensor([0, 2, NaN]).requireGrad();
  const count = a.norm(0);
  assert.equal(count.item(), 2);
  assert.deepEqual(count.backward().of(a).toArray(), [0, 0, 0]);
});

test('NaN at one end of a signal stays out of what is resampled far from it', () => {
  const signal = arange(40).reshape([1, 1, 1, 40]).copy();
  signal.at(0, 0, 0, 0).assign(NaN);
  const small = signal
    .interpolate({ size: [1, 10], mode: 'bilinear', antialias: true })
    .flatten()
    .toArray<number[]>();
  assert.deepEqual(
    small.map((v) => Number.isNaN(v)),
    small.map((_, i) => i === 0),
  );
});

test('functions of functions, scopes and block types say what they take', () => {
  const x = tensor([1, 2]).requireGrad();
  for (const [call, says] of [
    [() => gradOf(x.sum(), x as never), /gradOf: takes a list of tensors .*gradOf\(y, \[x\]\)/],
    [() => jvp((t) => t.sin(), x as never, x as never), /jvp: takes .*jvp\(f, \[x\], \[v\]\)/],
    [() => jacobian(((t: Tensor) => t.sin()) as never, undefined as never), /jacobian: takes .*jacobian\(f, x\)/],
    [() => hessian(((t: Tensor) => t.sin()) as never, undefined as never), /hessian: takes .*hessian\(f, x\)/],
    [() => scope(x as never), /scope: takes a function/],
    [() => nn.quantize(new nn.Linear(2, 2), { type: 'q8_0' } as never), /quantize: takes a module and the name/],
    [() => (x as never as Record<string, unknown>).is_contiguous, /x\.is_contiguous: here it is x\.layout\.isContig/],
    [() => (x as never as Record<string, unknown>).isCuda, /x\.device\.name/],
    [() => (x as never as Record<string, unknown>).clamp_min, /x\.clamp\(0\)/],
  ] as const)
    assert.throws(call, (e) => e instanceof WickError && says.test(e.message));
});

// Modules as functions of their tensors, gradients by what was made on the way, and weights made of other tensors.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { ArgumentError, gradOf, grad, randn, ShapeError, type Tensor, tensor, vmap } from '../src/index.js';
import * as nn from '../src/nn/index.js';

const made = (): nn.Sequential => new nn.Sequential(new nn.Linear(3, 5), new nn.Tanh(), new nn.Linear(5, 2));
const close = (got: Tensor, want: Tensor, bound = 1e-5): void =>
  assert.ok(got.sub(want).abs().max().item() < bound, `${got.toArray()} for ${want.toArray()}`);

test('a module called with other tensors answers by them, and has its own again afterwards', () => {
  const [net, other] = [made(), made()];
  const x = randn([4, 3], { seed: 1 });
  const own = net.forward(x);
  const before = net.parameters();
  close(nn.functionalCall(net, other.stateDict(), x), other.forward(x));
  close(nn.functionalCall(net, { '2.bias': net.stateDict().get('2.bias')!.add(1) }, x), own.add(1));
  close(net.forward(x), own);
  assert.deepEqual(net.parameters(), before);
  assert.throws(() => nn.functionalCall(net, {}, 'x' as never));
  assert.deepEqual(net.parameters(), before, 'after an error too');
});

test('gradients of each example are those of one call a time', () => {
  const net = made();
  const weights = Object.fromEntries(net.namedParameters());
  const [xs, ys] = [randn([4, 3], { seed: 1 }), randn([4, 2], { seed: 2 })];
  const loss = (w: typeof weights, x: Tensor, y: Tensor): Tensor => nn.functionalCall(net, w, x).sub(y).sqr().mean();
  const each = vmap(grad(loss), { inDims: [null, 0, 0] })(weights, xs, ys);
  for (let i = 0; i < 4; i++) {
    const grads = net.forward(xs.at(i)).sub(ys.at(i)).sqr().mean().backward();
    for (const [name, p] of net.namedParameters()) close(each[name].at(i), grads.of(p));
  }
});

test('an ensemble runs as one call over stacked tensors', () => {
  const nets = [made(), made(), made()];
  const x = randn([4, 3], { seed: 1 });
  const state = nn.stackModuleState(nets);
  assert.deepEqual(state['0.weight'].shape, [3, 5, 3]);
  const all = vmap((s: typeof state) => nn.functionalCall(nets[0], s, x))(state);
  for (const [i, net] of nets.entries()) close(all.at(i), net.forward(x));
  assert.throws(
    () => nn.stackModuleState([nets[0], new nn.Sequential(new nn.Linear(2, 5))]),
    (e: Error) =>
      e instanceof ShapeError && /0\.weight is \[5, 3\] in the first module and \[5, 2\] in module 1/.test(e.message),
  );
});

test('a step within a step: gradients go through two steps that were differentiated by their own results', () => {
  // f(w) = w^2, two steps of 0.1 along its gradient: w (1 - 0.2)^2, and f of that has the slope 2 w 0.8^4.
  const w = tensor([3], { dtype: 'f64' }).requireGrad();
  let at: Tensor = w;
  for (let k = 0; k < 2; k++) {
    const [slope] = gradOf(at.sqr().sum(), [at], { createGraph: true });
    at = at.sub(slope.mul(0.1));
  }
  assert.ok(Math.abs(at.sqr().sum().backward().of(w).item() - 6 * 0.8 ** 4) < 1e-12);
});

test('gradOf answers for results on the way, beside leaves, and backward keeps leaves alone', () => {
  const x = tensor([1, 2]).requireGrad();
  const y = x.mul(3);
  const z = y.sqr();
  const [ofY, ofX] = gradOf(z.sum(), [y, x], { retainGraph: true });
  assert.deepEqual([ofY.toArray(), ofX.toArray()], [[6, 12], [18, 36]]); // biome-ignore format: a line
  const grads = z.sum().backward();
  assert.equal(grads.get(y), undefined);
  assert.deepEqual(grads.of(x).toArray(), [18, 36]);
});

test('a tensor with two names is given under one of them, and stands in both places', () => {
  class Tied extends nn.Module {
    first = new nn.Linear(2, 2, { bias: false });
    second = new nn.Linear(2, 2, { bias: false });
    constructor() {
      super();
      this.second.weight = this.first.weight;
    }
    forward(x: Tensor): Tensor {
      return this.second.forward(this.first.forward(x));
    }
  }
  const [net, w] = [new Tied(), tensor([[0, 2], [1, 0]])]; // biome-ignore format: a line
  close(nn.functionalCall(net, { 'second.weight': w }, tensor([[1, 1]])), tensor([[2, 2]]));
  assert.throws(
    () => nn.functionalCall(net, { 'first.weight': w, 'second.weight': w.add(1) }, w),
    /second\.weight has two names here, which are given two tensors/,
  );
});

const net = made();
const REFUSED: Readonly<Record<string, readonly [() => unknown, RegExp]>> = {
  'another name': [
    () => nn.functionalCall(net, { weight: tensor([1]) }, tensor([1])),
    /Sequential has no tensors named weight/,
  ],
  'another shape': [
    () => nn.functionalCall(net, { '2.bias': tensor([1]) }, tensor([1])),
    /2\.bias is \[2\], given \[1\]/,
  ],
  'no tensor': [() => nn.functionalCall(net, { '2.bias': 1 as never }, tensor([1])), /2\.bias is number, not a tensor/],
  'an async forward': [() => net.withTensors({}, async () => 1), /withTensors: the function is async/],
  'no module': [() => nn.functionalCall({ forward: () => 1 } as never, {}), /^functionalCall: takes a module/],
  'a name of PyTorch': [
    () => (net as unknown as { functional_call: unknown }).functional_call,
    /here it is functionalCall\(model, tensors, x\) of wick\/nn/,
  ],
};
for (const [what, [call, says]] of Object.entries(REFUSED))
  test(`refused: ${what}`, () =>
    assert.throws(call, (e: Error) => (e instanceof ArgumentError || e instanceof ShapeError) && says.test(e.message)));

test('a weight made of another tensor by a function: trained, saved and made plain again', () => {
  const layer = new nn.Linear(3, 3);
  const plain = layer.weight;
  nn.parametrize(layer, 'weight', (w) => w.triu().add(w.triu(1).t()));
  assert.deepEqual([...layer.stateDict().keys()].sort(), ['bias', 'parametrizations.weight.original']);
  close(layer.weight, plain.triu().add(plain.triu(1).t()));
  const optimizer = new nn.SGD(layer.parameters(), { learningRate: 0.1 });
  for (let i = 0; i < 3; i++)
    optimizer.backwardStep(
      layer
        .forward(randn([2, 3], { seed: i }))
        .sqr()
        .sum(),
    );
  assert.ok(!layer.weight.equal(plain));
  close(layer.weight, layer.weight.t(), 1e-7);
  const weight = layer.weight;
  nn.removeParametrization(layer);
  close(layer.weight, weight, 1e-7);
  assert.deepEqual([...layer.stateDict().keys()].sort(), ['bias', 'weight']);
});

test('a weight made by a layer trains what the layer has beside, under PyTorch’s names', () => {
  class Scaled extends nn.Layer {
    factor = tensor([2]).requireGrad();
    forward(x: Tensor): Tensor {
      return x.mul(this.factor);
    }
  }
  const layer = new nn.Linear(2, 2, { bias: false });
  nn.parametrize(layer, 'weight', new Scaled());
  assert.deepEqual([...layer.stateDict().keys()].sort(), [
    'parametrizations.weight.0.factor',
    'parametrizations.weight.original',
  ]);
  const grads = layer
    .forward(tensor([[1, 1]]))
    .sum()
    .backward();
  for (const p of layer.parameters()) assert.ok(grads.get(p));
  assert.throws(
    () => nn.parametrize(new nn.Linear(2, 3), 'weight', (w) => w.t()),
    /parametrize: Linear's weight is \[3, 2\], and what is made for it \[2, 3\]/,
  );
  assert.throws(() => nn.parametrize(new nn.Linear(2, 3), 'weight', 'abs' as never), /parametrize: takes a layer, the/);
});

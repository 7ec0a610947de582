// Arguments of another kind than an op takes are refused: as a number, an object is NaN, and as a flag it is true.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { inspect } from 'node:util';
import { ArgumentError, arange, OutOfMemoryError, ones, randn, type Tensor, tensor, WickError } from '../src/index.js';
import * as nn from '../src/nn/index.js';

const x = randn([3, 4], { seed: 1 });
/** Calls as JavaScript makes them, where no type is looked at. */
const loose = x as unknown as Record<string, (...args: unknown[]) => Tensor>;
const KINDS: Readonly<Record<string, readonly [call: () => unknown, says: RegExp]>> = {
  'x.norm("fro")': [() => loose.norm('fro'), /norm: p is string, not a number/],
  'x.variance(0, false, { correction: 0 })': [
    () => loose.variance(0, false, { correction: 0 }),
    /variance: correction is object, not a number/,
  ],
  'x.std(0, false, false)': [() => loose.std(0, false, false), /std: correction is boolean, not a number/],
  'x.std(0, { unbiased: false })': [
    () => loose.std(0, { unbiased: false }),
    /std: keepdim is object, not true or false/,
  ],
  'x.varMean(0, false, {})': [() => loose.varMean(0, false, {}), /varMean: variance: correction is object/],
  'x.cov({ correction: 0 })': [() => loose.cov({ correction: 0 }), /cov: correction is object, not a number/],
  'x.any(1, { keepdim: false })': [() => loose.any(1, { keepdim: false }), /any: keepdim is object/],
  'x.all(1, 1)': [() => loose.all(1, 1), /all: keepdim is number, not true or false/],
  'x.mode(1, { keepdim: false })': [() => loose.mode(1, { keepdim: false }), /mode: keepdim is object/],
  'x.kthvalue(1, 1, {})': [() => loose.kthvalue(1, 1, {}), /kthvalue: keepdim is object/],
  'x.trapezoid(x)': [() => loose.trapezoid(x), /trapezoid: dx is a tensor, not a number/],
  'x.cumulativeTrapezoid("1")': [() => loose.cumulativeTrapezoid('1'), /cumulativeTrapezoid: dx is string/],
  'x.gradient({ spacing: 2 })': [() => loose.gradient({ spacing: 2 }), /gradient: spacing is object/],
  'x.roundTo({ decimals: 2 })': [() => loose.roundTo({ decimals: 2 }), /roundTo: decimals .* whole numbers/],
  'x.tensordot(y, NaN)': [() => loose.tensordot(x, Number.NaN), /tensordot: dims NaN/],
  'x.gumbelSoftmax({}, u)': [() => loose.gumbelSoftmax({}, x.sigmoid()), /gumbelSoftmax: temperature is object/],
  'x.get(0).vander(4, {})': [() => x.get(0).vander(4, {} as never), /vander: increasing is object/],
  'x.sumTo({})': [() => loose.sumTo({}), /sumTo: /],
  'x.fft(16)': [() => loose.fft(16), /fft: the imaginary part is number, not a tensor/],
  'x.batchNorm(1e-5)': [() => loose.batchNorm(1e-5), /batchNorm: weight is number, not a tensor/],
  'x.groupNorm(2, NaN)': [() => loose.groupNorm(2, Number.NaN), /groupNorm: weight is number, not a tensor/],
};
for (const [call, [act, says]] of Object.entries(KINDS))
  test(`${call} is refused`, () => assert.throws(act, (e) => e instanceof WickError && says.test(e.message)));

test('clipping is no option of step(), which would take it and not clip', () => {
  const layer = new nn.Linear(4, 2);
  const optimizer = new nn.SGD(layer.parameters(), { learningRate: 1 });
  const grads = layer.forward(x).sum().backward();
  assert.throws(
    () => optimizer.step(grads, { clipNorm: 1 } as never),
    /SGD: unknown option "clipNorm"; here it is backwardStep\(loss, \{ clipNorm \}\)/,
  );
  assert.equal(optimizer.steps, 0);
  const scheduler = new nn.StepLR(optimizer, 3);
  assert.throws(
    () => (scheduler.step as (...n: unknown[]) => unknown).call(scheduler, 0.1),
    /StepLR: step takes nothing/,
  );
});

test('a module whose field leads back to it is refused by name; a private field may hold it', () => {
  class Child extends nn.Module {
    inner = new nn.Linear(2, 2);
    parent: nn.Module | undefined;
  }
  class Parent extends nn.Module {
    child = new Child();
  }
  const parent = new Parent();
  parent.child.parent = parent;
  const says = /Parent: its field child\.parent leads back to it; a private field/;
  for (const act of [
    () => parent.parameters(),
    () => parent.train(),
    () => parent.stateDict(),
    () => parent.to('cpu' as never),
  ])
    assert.throws(act, (e) => e instanceof ArgumentError && says.test(e.message));
  parent.child.parent = undefined;
  const shared = new nn.Sequential(parent.child.inner, parent.child.inner);
  assert.equal(shared.parameters().length, 2); // twice beside itself is no way back
});

test('a hole in a list is named, not taken for the end of the list', () => {
  const holes: number[] = [];
  holes[2] = 1;
  assert.throws(() => tensor(holes), /from: element \[0\] is undefined, not a number/);
});

test('a tensor that the host has no room for in one piece says how it is read', () =>
  assert.throws(
    () =>
      ones([1])
        .broadcastTo([2 ** 49])
        .dataSync(),
    (e) => e instanceof OutOfMemoryError && /read the tensor in parts/.test(e.message),
  ));

test('a tensor is not cloned into another thread, where it would have no numbers', () => {
  const says = /a tensor stays in its thread, and \(await x\.data\(\)\) goes.* could not be cloned/;
  assert.throws(() => structuredClone(x), says);
  assert.throws(() => structuredClone({ batch: [new nn.Linear(2, 2)] }), says);
  assert.deepEqual([...structuredClone(x.dataSync())], [...x.dataSync()]);
});

test('a device is shown by its name', () => {
  assert.equal(inspect(ones([1]).device), `Device ${ones([1]).device.name}`);
});

test('a range of integers ends where doubles are exact', () => {
  const from = 2 ** 53 - 3;
  assert.deepEqual(arange(from, from + 2, { dtype: 'i64' }).toArray(), [from, from + 1]);
  assert.throws(() => arange(2 ** 53, 2 ** 53 + 4, { dtype: 'i64' }), /arange: 9007199254740992 is beyond 2\^53/);
});

test('a list of modules where parameters belong says what a group is', () =>
  assert.throws(
    () => new nn.SGD([new nn.Linear(2, 2)] as never, { learningRate: 1 }),
    /SGD: a group is \{ params: \[tensors\], \.\.\.options \} with a tensor at least/,
  ));

// Steps that are recorded and repeated: the same numbers as op by op, whatever changes from step to step, and refusals
// of what a recording cannot know.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { GpuBackend } from '../src/backends/gpu/gpu.js';
import { UnsupportedError } from '../src/base/errors.js';
import {
  captured,
  defaultGenerator,
  type Device,
  Generator,
  keep,
  manualSeed,
  noGrad,
  rand,
  randn,
  scope,
  tensor,
  type Tensor,
} from '../src/index.js';
import * as nn from '../src/nn/index.js';
import { probe } from '../src/testing/devices.js';

const sim = probe('sim:32');
const device = sim.device as Device;
const skip = sim.missing ?? false;

/** Must come first: no op of this process has read indices before it. */
test('an index out of range inside a recording is told of, however often it runs afterwards', { skip }, () => {
  const [table, index] = [tensor([1, 2, 3], { device }), tensor(Int32Array.of(7), { device })];
  let out: Tensor | undefined;
  const replay = device.capture(() => {
    out = scope(() => table.indexSelect(0, index));
  });
  replay.launch();
  index.assign(tensor(Int32Array.of(1), { device }));
  replay.launch();
  assert.throws(() => out?.toArray(), /indexSelect: an index was out of range/);
  replay.dispose(); // and the words that tell of it stay
  assert.throws(() => table.indexSelect(0, tensor(Int32Array.of(9), { device })).toArray(), /indexSelect: an index/);
});

class Net extends nn.Module {
  words: nn.Embedding;
  inner: nn.Linear;
  drop: nn.Dropout;
  norm: nn.LayerNorm;
  head: nn.Linear;
  constructor(on: Device, dropout: number, generator: Generator) {
    super();
    const how = { device: on, generator };
    this.words = new nn.Embedding(16, 8, how);
    this.inner = new nn.Linear(8, 16, how);
    this.drop = new nn.Dropout(dropout);
    this.norm = new nn.LayerNorm(16, { device: on });
    this.head = new nn.Linear(16, 16, how);
  }
  forward(ids: Tensor): Tensor {
    return this.head.forward(this.norm.forward(this.drop.forward(this.inner.forward(this.words.forward(ids)).gelu())));
  }
}
const ids = (step: number, batch: number, on: Device): Tensor =>
  tensor(
    Int32Array.from({ length: batch * 5 }, (_, i) => (i * 7 + step * 3) % 16),
    { shape: [batch, 5], device: on },
  );

/** Losses and gradients' norms of some steps, batches of two sizes in turn, with a rate that changes. */
function train(on: Device, { flat, graph }: { flat: boolean; graph: boolean }): number[] {
  manualSeed(3);
  const net = new Net(on, 0.25, new Generator(1));
  const packed = flat ? new nn.FlatParameters(net, 'bf16') : undefined;
  const optimizer = new nn.AdamW(packed ? [packed.master] : net.parameters(), { learningRate: 1e-2 });
  const step = (x: Tensor): { loss: Tensor; norm: Tensor } => {
    const loss = net
      .forward(x)
      .cast('f32')
      .reshape([-1, 16])
      .crossEntropy(x.reshape([-1]));
    const norm = packed
      ? packed.backwardStep(loss, optimizer, { clipNorm: 0.5 })
      : optimizer.backwardStep(loss, { clipNorm: 0.5 });
    return { loss, norm: norm as Tensor };
  };
  const run = graph ? captured(step) : (x: Tensor) => scope(() => step(x));
  const seen: number[] = [];
  for (let i = 0; i < 9; i++) {
    optimizer.learningRate = 1e-2 / (1 + i);
    const { loss, norm } = scope(() => run(ids(i, i % 3 === 2 ? 2 : 4, on)));
    seen.push(loss.item(), norm.item());
    for (const t of [loss, norm]) t.dispose();
  }
  assert.equal(optimizer.steps, 9);
  if (graph && on.name.startsWith('sim')) assert.equal((run as unknown as ReturnType<typeof captured>).recorded, 2);
  if (graph) (run as unknown as ReturnType<typeof captured>).dispose();
  return [...seen, Number(defaultGenerator.offset)];
}

for (const name of ['sim:32', 'sim:64', 'cpu'] as const) {
  const { device: on, missing } = probe(name);
  for (const flat of [true, false])
    test(`a captured step gives the losses of steps op by op, bit for bit: ${name}, ` +
      `${flat ? 'one block of bf16' : 'f32 parameters'}`, {
      skip: missing ?? false,
    }, () => {
      const plain = train(on as Device, { flat, graph: false });
      assert.deepEqual(train(on as Device, { flat, graph: true }), plain);
      assert.ok(plain.every(Number.isFinite) && new Set(plain).size > 15, 'the steps differ');
    });
}

test('random streams go on from run to run, seeds repeat, and gradients computed again repeat their draws', {
  skip,
}, () => {
  const own = new Generator(9);
  const f = (x: Tensor): Tensor =>
    x
      .add(rand([4], { device }))
      .add(rand([4], { device, generator: own }))
      .add(rand([4], { device, seed: 5 }));
  const draws = (run: (x: Tensor) => Tensor): unknown[] => {
    manualSeed(1);
    Object.assign(own, { seed: 9n, offset: 0n });
    const x = tensor([1, 2, 3, 4], { device });
    return Array.from({ length: 5 }, (_, i) => {
      if (i === 3) manualSeed(77); // another seed between two runs counts
      return run(x).toArray();
    });
  };
  const step = captured(f);
  assert.deepEqual(draws(step), draws(f));
  assert.equal(step.recorded, 1);
  step.dispose();
});

test('a class number out of range is told of when a result of a recorded step is read', { skip }, () => {
  const weight = randn([4, 3], { device, seed: 1 });
  const step = captured((at: Tensor) => weight.indexSelect(0, at).sum());
  const good = tensor(Int32Array.of(0, 3), { device });
  for (let i = 0; i < 3; i++) assert.ok(Number.isFinite(step(good).item()));
  const bad = step(tensor(Int32Array.of(0, 4), { device }));
  assert.throws(() => bad.item(), /an index was out of range/);
  assert.ok(Number.isFinite(step(good).item()));
  step.dispose();
});

test('results are tensors of their own, tensors from outside stay, and all memory comes back', { skip }, () => {
  const step = captured((x: Tensor) => [x.mul(by), { sum: x.sum() }] as const);
  const backend = device.backend as GpuBackend;
  device.trim();
  const before = backend.context.device.memory().free;
  const by = tensor([2, 2], { device });
  const runs = [1, 2, 3, 4].map((n) => {
    if (n === 4) by.dispose(); // the recording still reads it
    return scope(() => step(tensor([n, n], { device })));
  });
  assert.deepEqual(
    runs.map(([y, { sum }]) => [...y.toArray<number[]>(), sum.item()]),
    [1, 2, 3, 4].map((n) => [2 * n, 2 * n, 2 * n]),
  );
  for (const [y, { sum }] of runs) for (const t of [y, sum]) t.dispose();
  assert.ok(backend.context.device.memory().free < before);
  step.dispose();
  device.trim();
  assert.ok(backend.context.device.memory().free >= before);
});

test('graphs that a step leaves end with it: of its answer, and of a branch that leads nowhere', { skip }, () => {
  const by = tensor([2, 3], { device }).requireGrad();
  const step = captured((x: Tensor) => (by.exp().sum(), x.mul(by).sum()));
  const sums = [1, 2, 3].map((n) => step(tensor([n, n], { device })));
  assert.deepEqual(
    sums.map((t) => [t.item(), t.requiresGrad]),
    [5, 10, 15].map((n) => [n, false]),
  );
  assert.equal(step.recorded, 1);
  step.dispose();
});

test('what a recording cannot know is refused with a sentence, and the device goes on', { skip }, () => {
  const x = tensor([1, 2, 3], { device });
  const w = keep(tensor([1, 1, 1], { device })).requireGrad();
  const second = (f: (x: Tensor) => never | Tensor | undefined, says: RegExp): void => {
    const step = captured(f as (x: Tensor) => Tensor);
    step(x).dispose?.();
    assert.throws(
      () => step(x),
      (e) => e instanceof UnsupportedError && says.test(e.message),
      String(says),
    );
  };
  second((a) => a.mul(a.sum().item()), /numbers cannot be read while work is recorded.*answer the tensor/);
  let calls = 0;
  second((a) => a.add(tensor([++calls, 2, 3], { device })), /cannot be brought to the device while work is recorded/);
  let state = keep(tensor([0, 0, 0], { device }));
  second((a) => {
    const next = keep(state.add(a));
    state.dispose();
    return (state = next).copy();
  }, /a tensor \(of 12 bytes\) that the recorded work reads was disposed of in it.*in place \(assign\)/);
  const kept: Tensor[] = [];
  second((a) => (kept.push(keep(a.add(a))), a.sum()), /a tensor made in the step outlive/);
  const sgd = new nn.SGD([w], { learningRate: 0.1 });
  second((a) => {
    const loss = a.mul(w).sum();
    sgd.backwardStep(loss);
    return loss;
  }, /SGD: its step of a parameter f32 \[3\] on sim:32 cannot be recorded/);
  second(
    (a) => (manualSeed(1), a.add(rand([3], { device })).add((manualSeed(2), rand([3], { device })))),
    /seeds its random/,
  );
  const average = new nn.EMA(new nn.Linear(2, 2, { device }), { warmup: true });
  second((a) => (average.update(), a.sum()), /EMA: with warmup/);
  assert.equal(x.sum().item(), 6);
  assert.equal(state.device.name, 'sim:32');
});

test('arguments and answers that are no tensors, and options that do not exist, are refused', () => {
  const x = tensor([1, 2]);
  const step = captured((a: Tensor) => a.sum());
  assert.throws(() => step(3 as never), /captured: argument 0 is a number, not a tensor/);
  assert.throws(() => step(x.copy().requireGrad()), /captured: argument 0 \[2\] requires a gradient/);
  assert.throws(() => captured(() => 3 as never)(), /captured: its answer is a number; a step answers tensors alone/);
  assert.throws(() => captured((async () => x) as never)(), /captured: its answer is a Promise/);
  assert.throws(() => captured((a: Tensor) => a, { warmup: 2 } as never), /unknown option "warmup"/);
  assert.throws(() => captured((a: Tensor) => a, { warmUp: 0 }), /warmUp 0 is not a whole number from 1/);
  assert.equal(noGrad(() => step(x)).item(), 3);
  assert.equal(step.recorded, 0, 'the CPU records nothing');
});

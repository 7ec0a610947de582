// What a user who knows PyTorch expects of optimizers, schedulers and norms of weights; numbers are PyTorch's.
import assert from 'node:assert/strict';
import { join } from 'node:path';
import { test } from 'node:test';
import { gradOf, type NestedInput, randn, ShapeError, type Tensor, tensor, zeros } from '../src/index.js';
import { DataLoader } from '../src/data/index.js';
import { saveTensors } from '../src/io/index.js';
import * as nn from '../src/nn/index.js';
import { fit } from '../src/train/index.js';
import { scratch } from './io-support.js';

function near(got: Tensor, want: readonly number[], message?: string): void {
  const numbers = got.cast('f64').flatten().toArray<number[]>();
  assert.equal(numbers.length, want.length, message);
  for (const [i, w] of want.entries())
    assert.ok(Math.abs(numbers[i] - w) <= 2e-5 * (1 + Math.abs(w)), `${message}: ${numbers} instead of ${want}`);
}
type Make = (params: readonly Tensor[], options: object) => nn.Optimizer;
const OPTIMIZERS: Readonly<Record<string, Make>> = {
  SGD: (p, o) => new nn.SGD(p, o),
  Adam: (p, o) => new nn.Adam(p, o),
  AdamW: (p, o) => new nn.AdamW(p, o),
  RMSprop: (p, o) => new nn.RMSprop(p, o),
  Adagrad: (p, o) => new nn.Adagrad(p, o),
  Adadelta: (p, o) => new nn.Adadelta(p, o),
  Adamax: (p, o) => new nn.Adamax(p, o),
  NAdam: (p, o) => new nn.NAdam(p, o),
  RAdam: (p, o) => new nn.RAdam(p, o),
  Rprop: (p, o) => new nn.Rprop(p, o),
  Adafactor: (p, o) => new nn.Adafactor(p, o),
};

/** Eight steps of two parameters, the second of which has a gradient from the fourth on. */
const LATE: readonly (readonly [name: string, options: object, want: readonly number[]])[] = [
  ['Adam', {}, [0.548963, -1.51404, 0.0367719, 0.513291]],
  ['AdamW', {}, [0.545635, -1.50545, 0.0357618, 0.50966]],
  ['NAdam', {}, [0.679255, -1.63412, 0.173089, 0.635264]],
  ['RAdam', {}, [0.871344, -1.02294, -0.00190574, -0.559969]],
  ['Adamax', {}, [0.633388, -1.57296, 0.119244, 0.571836]],
  ['Adagrad', { learningRateDecay: 0.1 }, [0.747376, -1.73145, 0.254827, 0.735752]],
  ['Adafactor', {}, [0.880248, -1.60523, 0.131091, 0.554344]],
];
for (const [name, options, want] of LATE)
  test(`${name}: a parameter that is trained later counts its own steps, also in a run that is taken up again`, () => {
    for (const resumed of [false, true]) {
      const a = tensor([
        [1, 2],
        [3, 4],
      ]).requireGrad();
      const b = tensor([
        [1, -2],
        [0.5, 1],
      ]).requireGrad();
      let optimizer = OPTIMIZERS[name]([a, b], { learningRate: 0.1, ...options });
      for (let step = 0; step < 8; step++) {
        const first = a.sqr().sum();
        optimizer.step((step < 3 ? first : first.add(b.mul(a.detach()).sqr().sum())).backward());
        if (!resumed || step !== 4) continue;
        const [state, steps] = [optimizer.stateDict(), optimizer.steps];
        optimizer = OPTIMIZERS[name]([a, b], { learningRate: 0.1, ...options });
        optimizer.loadStateDict(state, steps);
      }
      near(b, want, resumed ? 'taken up again' : 'in one go');
    }
  });

/** Five steps up -(a - 1)^2 with a weight decay of 0.1, where there is one. */
const CLIMBED: Readonly<Record<string, readonly number[]>> = {
  SGD: [0.967034, 1.27474, 1.58244, -0.571495],
  Adam: [0.991512, 1.5074, 2.50287, -3.50099],
  AdamW: [0.954743, 1.42236, 2.36699, -3.31528],
  RMSprop: [0.952372, 0.952381, 1.06555, -1.22092],
  Adagrad: [0.951485, 1.69668, 2.68652, -3.68072],
  Adadelta: [0.998371, 1.99836, 2.99836, -3.99836],
  Adamax: [0.986752, 1.54925, 2.52517, -3.50994],
  NAdam: [0.949922, 1.6222, 2.60813, -3.60026],
  RAdam: [0.960546, 1.13202, 1.30349, 0.103197],
  Rprop: [1, 1.25584, 2.25584, -3.25584],
  Adafactor: [0.992112, 1.08764, 1.86209, -2.73068],
};
for (const [name, want] of Object.entries(CLIMBED))
  test(`${name}: { maximize: true } climbs, with the decay of a descent`, () => {
    const a = tensor([
      [1, 2],
      [3, -4],
    ]).requireGrad();
    const decay = name === 'Rprop' ? {} : { weightDecay: 0.1 };
    const optimizer = OPTIMIZERS[name]([a], { learningRate: 0.1, maximize: true, ...decay });
    for (let step = 0; step < 5; step++) optimizer.step(a.sub(1).sqr().neg().sum().backward());
    near(a, want);
  });
test('one group may climb while another descends', () => {
  const [up, down] = [tensor([1]).requireGrad(), tensor([1]).requireGrad()];
  const optimizer = new nn.SGD([{ params: [up], maximize: true }, { params: [down] }], { learningRate: 0.5 });
  optimizer.step(up.add(down).sum().backward());
  assert.deepEqual([up.item(), down.item()], [1.5, 0.5]);
});

/** Options with which an optimizer keeps all that it may keep. */
const MOST: Readonly<Record<string, object>> = {
  SGD: { momentum: 0.9 },
  Adam: { amsgrad: true },
  AdamW: { amsgrad: true },
  RMSprop: { momentum: 0.9, centered: true },
};
const EVERY: Readonly<Record<string, Make>> = {
  ...OPTIMIZERS,
  Lion: (p, o) => new nn.Lion(p, o),
  Muon: (p, o) => new nn.Muon(p.slice(0, 1), o),
};
for (const [name, make] of Object.entries(EVERY))
  test(`${name} takes up its own state, and refuses another optimizer's`, () => {
    const params = [zeros([2, 2]).requireGrad(), zeros([4]).requireGrad()];
    const first = make(params, { learningRate: 0.1, ...MOST[name] });
    first.step(params[0].sum().add(params[1].sum()).backward());
    const state = first.stateDict();
    assert.ok(state.size > 0);
    make(params, MOST[name] ?? {}).loadStateDict(state, 1);
    assert.throws(
      () => make(params, {}).loadStateDict(new Map([['0.other', zeros([2, 2])]]), 1),
      /the state "0.other" is another optimizer's; its own are /,
    );
  });

test("a state of another parameter's shape is refused, and nothing of it is taken", () => {
  const p = zeros([4]).requireGrad();
  const optimizer = new nn.AdamW([p]);
  const other = new Map([
    ['0.m', zeros([4])],
    ['0.v', zeros([1])],
  ] as const);
  assert.throws(() => optimizer.loadStateDict(other, 3), ShapeError);
  assert.throws(() => optimizer.loadStateDict(other, 3), /AdamW: the state "0.v" is \[1\], its parameter \[4\]/);
  assert.deepEqual([optimizer.steps, optimizer.stateDict().size], [0, 0]);
});

test('a matrix optimizer and one of rows and columns refuse states that are not of their shapes', () => {
  const p = zeros([3, 4]).requireGrad();
  const load = (optimizer: nn.Optimizer, state: Readonly<Record<string, Tensor>>): void =>
    optimizer.loadStateDict(new Map(Object.entries(state)), 1);
  assert.throws(() => load(new nn.Muon([p]), { '0.momentum': zeros([1, 4]) }), ShapeError);
  assert.throws(
    () => load(new nn.Adafactor([p]), { '0.rows': zeros([3, 4]), '0.columns': zeros([1, 4]) }),
    /Adafactor: the state "0.rows" is \[3, 4\], not \[3, 1\]; its parameter \[3, 4\]/,
  );
  load(new nn.Adafactor([p]), { '0.rows': zeros([3, 1]), '0.columns': zeros([1, 4]) });
});

test('half a state is refused: what is lacking would begin at zero', () => {
  const p = zeros([2]).requireGrad();
  const load = (optimizer: nn.Optimizer, ...names: readonly string[]): void =>
    optimizer.loadStateDict(new Map(names.map((name) => [`0.${name}`, zeros([2])])), 5);
  assert.throws(() => load(new nn.Adam([p]), 'm'), /Adam: the state has no "0.v" beside what it has of that parameter/);
  assert.throws(() => load(new nn.Adam([p], { amsgrad: true }), 'm', 'v'), /no "0.top"/);
  assert.throws(() => load(new nn.RMSprop([p], { momentum: 0.9 }), 'v'), /no "0.momentum"/);
  load(new nn.Adam([p]), 'm', 'v');
  load(new nn.SGD([p]));
});

test('options out of range, and of another kind, are refused by name', () => {
  const p = zeros([2, 2]).requireGrad();
  const wrong: readonly (readonly [make: () => unknown, message: RegExp])[] = [
    [
      () => new nn.Muon([p], { adjust: 'match_rms_adamw' as never }),
      /Muon: adjust "match_rms_adamw" is not 'original'/,
    ],
    [() => new nn.Muon([p], { iterations: 2.5 }), /Muon: iterations 2.5 is not a whole number from 0 to 99/],
    [() => new nn.Muon([p], { coefficients: [1, 2] as never }), /coefficients \[1,2\] is not a list of three numbers/],
    [() => new nn.RMSprop([p], { alpha: 2 }), /RMSprop: alpha 2 is not a number from 0 to 1/],
    [() => new nn.Adadelta([p], { rho: -0.1 }), /Adadelta: rho -0.1 is not a number from 0 to 1/],
    [() => new nn.Adagrad([p], { learningRateDecay: -1 }), /learningRateDecay -1 is not a number of at least 0/],
    [() => new nn.Rprop([p], { faster: 0.5 }), /Rprop: faster 0.5 is not a number above 1/],
    [() => new nn.Rprop([p], { least: 3, most: 1 }), /Rprop: the least step, 3, is above the most, 1/],
    [() => new nn.SGD([p], { dampening: NaN }), /SGD: dampening NaN is not a number/],
    [() => new nn.Adam([p], { amsgrad: 'no' as never }), /Adam: amsgrad "no" is not true or false/],
    [() => new nn.Adam([{ params: [p], maximize: 1 as never }]), /Adam: maximize 1 is not true or false/],
    [() => new nn.LBFGS([p], { history: 0 }), /LBFGS: history 0 is not a whole number from 1/],
  ];
  for (const [make, message] of wrong) assert.throws(make, message);
  const left = new nn.Adam([{ params: [p], eps: undefined as never }], { weightDecay: undefined as never });
  assert.deepEqual(
    [left.groups[0].options.eps, left.groups[0].options.weightDecay],
    [1e-8, 0],
    'undefined is left out',
  );
});

test("Muon's steps of wide, tall and narrow matrices", () => {
  const wave = (n: number, by: number, every: number, over: number): number[] =>
    Array.from({ length: n }, (_, i) => ((i * by) % every) / over - 1);
  const steps = (shape: readonly [number, number], options: nn.MuonOptions, want: readonly number[]): void => {
    const n = shape[0] * shape[1];
    const p = tensor(wave(n, 7, 11, 5), { shape }).requireGrad();
    const c = tensor(wave(n, 5, 13, 6), { shape });
    const optimizer = new nn.Muon([p], { learningRate: 0.1, ...options });
    for (let k = 0; k < 3; k++) optimizer.backwardStep(p.mul(c).sin().sum());
    near(p, want, JSON.stringify(shape));
  };
  // PyTorch's iterations with its bfloat16 left out.
  const wide = [
    -0.845298, 0.431631, -0.546219, 1.101647, 0.154451, -0.780212, 0.860539, -0.135921, -0.597488, 0.580118,
  ];
  const tall = [
    -0.730523, 0.452602, -0.651049, 1.180198, 0.128945, -0.897504, 0.910046, -0.203432, -0.496917, 0.579105,
  ];
  steps([2, 5], {}, wide);
  steps([5, 2], {}, tall);
  steps([1, 4], {}, [-0.854759, 0.422055, -0.518679, 1.076239]);
  steps([4, 1], { adjust: 'rms' }, [-0.924922, 0.40174, -0.440702, 1.013143]);
  const other: nn.MuonOptions = { nesterov: false, iterations: 3, coefficients: [2, -1.5, 0.5], eps: 0.1 };
  steps([2, 3], other, [-0.789937, 0.572083, -0.501894, 1.04751, 0.025846, -0.799522]);
});

test('a checkpoint of another model is refused by the names of what does not fit, and nothing of it is taken', () => {
  const path = join(scratch(), 'run.safetensors');
  const save = (shape: readonly number[], names = ['w']): void => {
    const p = zeros(shape).requireGrad();
    const tensors = new Map(names.map((name) => [name, p] as const));
    nn.saveCheckpoint(path, { tensors, optimizer: new nn.SGD([p]) });
  };
  const load = (t: Tensor): unknown => {
    const tensors = new Map([['w', t]]);
    return nn.loadCheckpoint(path, { tensors, optimizer: new nn.SGD([t]) });
  };
  const p = tensor([1, 2]).requireGrad();
  save([1]);
  assert.throws(() => load(p), /loadCheckpoint: the model tensor "w" is \[2\], in .* \[1\]/);
  save([2], ['w', 'v', 'u']);
  assert.throws(() => load(p), /has 2 model tensors that the model has not: u, v/);
  assert.throws(() => load(zeros([2], { dtype: 'f64' }).requireGrad()), /tensor "w" is f64, in .* f32/);
  assert.deepEqual(p.toArray(), [1, 2]);
  for (const checkpoint of [
    '{',
    'null',
    '{"step":"x"}',
    '{"step":1,"optimizerSteps":1,"learningRate":1,"generators":{"a":["x",0]}}',
  ]) {
    saveTensors(path, new Map([['model.w', p]]), { metadata: { checkpoint } });
    assert.throws(() => load(p), /FormatError.*its record of a checkpoint is broken/);
  }
});

test('averages take up a state of their shapes alone, hooks are functions, plateaus lower the rate', () => {
  const linear = new nn.Linear(2, 3);
  const ema = new nn.EMA(linear, { decay: 0.5 });
  const state = new Map<string, Tensor>([
    ['weight', zeros([3, 2])],
    ['bias', zeros([1])],
  ]);
  assert.throws(() => ema.loadStateDict(state, 1), /EMA: the state "bias" is \[1\], in the module \[3\]/);
  assert.notDeepEqual(ema.stateDict().get('weight')?.toArray(), state.get('weight')?.toArray(), 'nothing is taken');
  assert.throws(() => linear.onForward(3 as never), /a hook is a function, not number/);
  const rate = { learningRate: 1 };
  assert.throws(() => new nn.ReduceLROnPlateau(rate, { factor: 2 }), /factor 2 is not a number from 0 to below 1/);
  assert.throws(() => new nn.ReduceLROnPlateau(rate, { patience: -1 }), /patience -1 is not a number of at least 0/);
});

test('loaders and fit name an option of another kind', async () => {
  const data = { length: 2, get: (i: number) => ({ x: i }) };
  assert.throws(() => new DataLoader(data as never, { shuffle: 'yes' as never }), /shuffle yes is not true or false/);
  assert.throws(() => new DataLoader(data as never, { collate: 3 as never }), /collate is number, not a function/);
  const model = new nn.Linear(1, 1);
  const optimizer = new nn.SGD(model.parameters());
  await assert.rejects(
    async () => fit(model, { data: [], epochs: 1, optimizer, loss: 3 as never }),
    /fit: loss is number, not a function/,
  );
});

test('a scheduler does not undo a rate that was set by hand; setting where it is goes on from there', () => {
  const optimizer = { learningRate: 1 };
  const scheduler = new nn.StepLR(optimizer, 1, 0.5);
  scheduler.step();
  optimizer.learningRate = 0.3;
  assert.throws(() => scheduler.step(), /StepLR: the optimizer's rate was set to 0.3 since/);
  scheduler.at = 2;
  assert.equal(scheduler.step(), 0.125);
  const plateau = new nn.ReduceLROnPlateau(optimizer);
  assert.throws(() => plateau.step(undefined as never), /ReduceLROnPlateau: step takes the measure/);
});

const WEIGHT = tensor(
  Array.from({ length: 12 }, (_, i) => i / 6 - 0.7),
  { shape: [3, 4] },
);
const INPUT = tensor([
  [1, -2, 0.5, 3],
  [0, 1, 2, -1],
]);
const layer = (): nn.Linear => new nn.Linear(WEIGHT.copy().requireGrad(), zeros([3]).requireGrad());

test('weightNorm trains lengths and directions, under the names of PyTorch', () => {
  const linear = nn.weightNorm(layer());
  near(linear.forward(INPUT), INPUT.matmul(WEIGHT.t()).flatten().toArray<number[]>(), 'the weight as it was');
  const state = linear.stateDict();
  const names = ['bias', 'parametrizations.weight.original0', 'parametrizations.weight.original1'];
  assert.deepEqual([...state.keys()].sort(), names);
  const [g, v] = names.slice(1).map((name) => state.get(name) as Tensor);
  assert.deepEqual([linear.parameters().length, g.shape], [3, [3, 1]]);
  g.assign(g.mul(2));
  const y = linear.forward(INPUT);
  near(y, [-0.833333, 2.5, 5.83333, -2.13333, 0.533333, 3.2]);
  const grads = y.sqr().sum().backward();
  near(grads.of(g), [5.38498, 11.4329, 24.5177]);
  const directions = [4.40601, 4.02998, -14.6794, 0.744574, 11.3336, -23.2009, -2.73538, 9.19682, 6.13318, -55.5932];
  near(grads.of(v), [...directions, 11.0138, 26.4208]);
  const again = nn.weightNorm(new nn.Linear(4, 3));
  again.loadStateDict(state);
  near(again.forward(INPUT), y.flatten().toArray<number[]>(), 'loaded');

  const single = nn.weightNorm(layer(), { dim: null }).stateDict().get(names[1]) as Tensor;
  assert.deepEqual(single.shape, []);
  near(single, [2.12968]);
  nn.removeParametrization(linear);
  assert.deepEqual([...linear.stateDict().keys()].sort(), ['bias', 'weight']);
  near(linear.forward(INPUT), y.flatten().toArray<number[]>(), 'put back');
  assert.equal(linear.weight.requiresGrad, true);
});

test('spectralNorm divides by the largest singular value, which it follows in training alone', () => {
  const linear = nn.spectralNorm(layer(), { iterations: 2 });
  const state = linear.stateDict();
  const at = (name: string): Tensor => state.get(`parametrizations.weight.${name}`) as Tensor;
  assert.deepEqual(linear.parameters().length, 2);
  at('0._u').assign(tensor([1, 0, 0]));
  at('0._v').assign(tensor([0, 1, 0, 0]));
  const want = [-0.203789, 0.611368, 1.42653, -0.521701, 0.130425, 0.782551];
  const y = linear.forward(INPUT);
  near(y, want);
  const first = [0.377499, 0.542131, -0.389631, 0.719893, 0.292374, -1.4149, 0.167, 1.23858, 0.207249, -3.37194];
  near(y.sqr().sum().backward().of(at('original')), [...first, 0.723632, 1.75727]);
  near(at('0._u'), [-0.425497, 0.225464, 0.876424]);
  near(at('0._v'), [0.413481, 0.468617, 0.523754, 0.57889]);
  linear.eval();
  near(linear.forward(INPUT), want, 'in eval');
  near(at('0._u'), [-0.425497, 0.225464, 0.876424], 'in eval');
});

test('norms of weights say what they cannot take', () => {
  const linear = nn.weightNorm(layer());
  assert.throws(() => nn.spectralNorm(linear), /spectralNorm: Linear's weight is made of other tensors already/);
  assert.throws(() => (linear.weight = WEIGHT), /weightNorm: weight is made of other tensors; removeParametrization/);
  assert.throws(() => nn.weightNorm(layer(), { name: 'wieght' }), /Linear has no tensor of floats named "wieght"/);
  assert.throws(() => nn.weightNorm(layer(), { dim: 2 }), /weightNorm: a weight of rank 2 has no dimension 2/);
  assert.throws(
    () => nn.removeParametrization(layer()),
    /removeParametrization: Linear's "weight" is made of no other/,
  );
});

test('an index of a single number on the device picks as a number does, beside lists too', () => {
  const x = tensor(
    Array.from({ length: 24 }, (_, i) => i),
    { shape: [2, 3, 4] },
  );
  const [one, list] = [tensor(1, { dtype: 'i64' }), tensor([0, 2], { dtype: 'i64' })];
  assert.deepEqual(x.at(one, ':', list).toArray(), [
    [12, 14],
    [16, 18],
    [20, 22],
  ]);
  assert.deepEqual(x.at(one, ':', list).toArray(), x.at(1, ':', list).toArray());
  assert.deepEqual(x.at(one, one).toArray(), [16, 17, 18, 19]);
});

test('what is meant otherwise is answered with what to write', () => {
  const w = tensor([1, 2]).requireGrad();
  const [g] = gradOf(w.powf(3).sum(), [w]);
  assert.throws(() => gradOf(g.sum(), [w]), /made with \{ createGraph: true \}/);
  const bad = { reduction: 'batchMean' as never };
  assert.throws(() => nn.losses.klDiv(w, w, bad), /klDiv: reduction "batchMean"; known are mean, sum, none, batchmean/);
  assert.throws(
    () => new DataLoader([{ x: 1 }] as never),
    /DataLoader: takes a dataset, an object with a whole `length`/,
  );
  const given = { weight: zeros([2, 2]), bias: [0, 0] as never };
  assert.throws(() => new nn.Linear(2, 2).loadStateDict(given), /loadStateDict: bias is no tensor/);
  const lstm = new nn.LSTM(2, 3);
  assert.throws(() => lstm.run(zeros([1, 2, 2]), { lengths: [1] } as never), /LSTM: run takes the input, a state/);
});

test('weights in quantized blocks are counted, though they are not trained', () => {
  const tied = new nn.Linear(64, 64);
  const net = new nn.Sequential(tied, new nn.ReLU(), tied);
  assert.equal(net.weightCount(), 64 * 64 + 64);
  nn.quantize(net, 'q8_0');
  assert.deepEqual([net.weightCount(), net.parameterCount()], [64 * 64 + 64, 64]);
});

test('a batch norm without a momentum is refused, not given the default', () => {
  assert.throws(() => new nn.BatchNorm1d(3, { momentum: null as never }), /BatchNorm1d: momentum null is not a number/);
});

test('a name in several files is that of the first', () => {
  const dir = scratch();
  const paths = [1, 2].map((value) => {
    const path = join(dir, `${value}.safetensors`);
    saveTensors(path, { x: tensor([value]), [`only${value}`]: tensor([value]) });
    return path;
  });
  const stored = nn.VarBuilder.fromFiles(paths);
  assert.deepEqual(
    ['x', 'only1', 'only2'].map((name) => stored.get([1], name).item()),
    [1, 1, 2],
  );
});

test('gaussianNll with its constant', () => {
  const [mean, y, variance] = [tensor([1, 2]), tensor([0.5, 3]), tensor([0.25, 4])];
  const more = nn.losses.gaussianNll(mean, y, variance, { full: true }).item();
  assert.ok(Math.abs(more - nn.losses.gaussianNll(mean, y, variance).item() - 0.9189385) < 1e-6);
});

test(
  'a parameter in f16 is stepped in f32: small gradients move it as far as large ones, and none leaves it ' + 'be',
  () => {
    const gradient = tensor([0, 1e-4, 1]).cast('f16');
    for (const [name, make] of Object.entries(OPTIMIZERS)) {
      if (name === 'SGD' || name === 'Adafactor' || name === 'Adadelta' || name === 'Rprop') continue;
      const [half, whole] = ['f16', 'f32'].map((dtype) =>
        zeros([3])
          .cast(dtype as 'f16')
          .requireGrad(),
      );
      const optimizers = [half, whole].map((p) => make([p], { learningRate: 0.0625 }));
      for (let i = 0; i < 3; i++)
        [half, whole].forEach((p, k) => optimizers[k].step(p.mul(gradient.cast(p.dtype)).sum().backward()));
      assert.equal(half.dtype, 'f16', name);
      const [got, want] = [half, whole].map((p) => p.cast('f64').toArray<number[]>());
      for (const [i, w] of want.entries())
        assert.ok(Math.abs(got[i] - w) <= 2e-3 * (Math.abs(w) + 0.01), `${name}: ${got} instead of ${want}`);
      const again = make([half], { learningRate: 0.0625 });
      const stored = new Map([...optimizers[0].stateDict()].map(([key, t]) => [key, t.cast('f16')]));
      again.loadStateDict(stored, 3);
      for (const t of again.stateDict().values()) assert.equal(t.dtype, 'f32', name);
    }
  },
);

test('poissonNll with full adds the approximation of ln(y!) for counts above 1', () => {
  const [x, y] = [tensor([0.5, 1, 2]), tensor([0, 1, 5])];
  near(nn.losses.poissonNll(x, y, { full: true, reduction: 'none' }), [1.6487212, 1.7182817, 2.1598592], 'full');
});

test('ctc takes labels as PyTorch has them, in rows with padding or all in a row', () => {
  const x = randn([6, 2, 4], { seed: 1 }).logSoftmax(2);
  const want = nn.losses.ctc(x, [[1, 2, 2], [3]], [6, 4], { reduction: 'none' }).toArray<number[]>();
  const whole = (list: NestedInput): Tensor => tensor(list, { dtype: 'i64' });
  const padded = whole([[1, 2, 2], [3, 0, 0]]); // biome-ignore format: a line
  const options = { reduction: 'none', targetLengths: whole([3, 1]) } as const;
  near(nn.losses.ctc(x, padded, whole([6, 4]), options), want, 'padded');
  near(nn.losses.ctc(x, whole([1, 2, 2, 3]), [6, 4], { ...options, targetLengths: [3, 1] }), want, 'in a row');
  near(new nn.CTCLoss({ reduction: 'none' }).forward(x, padded, [6, 4], [3, 1]), want, 'as a module');
  assert.throws(() => nn.losses.ctc(x, padded, [6, 4]), /ctc: label 0 is not a class from 0 to 3 other than the blank/);
  assert.throws(
    () => nn.losses.ctc(x, whole([1, 2]), [6, 4], { targetLengths: [3, 1] }),
    /ctc: labels \[2\] are \(batch, most labels\) or all in a row, with targetLengths that add up, not \[3, 1\]/,
  );
  assert.throws(
    () => nn.losses.ctc(x, [[1], [2]], [6, 4], { targetLengths: [1, 1] }),
    /targetLengths go with labels in/,
  );
  assert.throws(
    () => nn.losses.ctc(x, [[1], [2]], 6 as never),
    /ctc: input lengths are a list or a tensor, not number/,
  );
});

test('a state dict within a checkpoint is refused with the prefix that its names stand behind', () => {
  const layer = new nn.Linear(2, 2);
  const whole = new Map([...layer.stateDict()].map(([name, t]) => [`model.${name}`, t]));
  whole.set('optimizer.0.m', zeros([1]));
  assert.throws(() => layer.loadStateDict(whole), /they stand there behind "model\.": give \{ prefix: "model\." \}/);
  assert.deepEqual(layer.loadStateDict(whole, { prefix: 'model.' }).missing, []);
  whole.delete('model.bias');
  assert.throws(() => layer.loadStateDict(whole), /strict: false/);
  assert.throws(() => (layer as unknown as { load_state_dict(): void }).load_state_dict(), /model\.loadStateDict/);
});

test('LBFGS with a line search takes PyTorch’s steps, as often asked for the loss, and backs away from NaN', () => {
  const run = (options: nn.LbfgsOptions): { at: number[]; asked: number } => {
    const w = tensor([-1.2, 1], { dtype: 'f64' }).requireGrad();
    let asked = 0;
    new nn.LBFGS([w], { maxIterations: 100, maxEvaluations: 200, ...options }).step(() => {
      asked++;
      const [a, b] = w.unbind(0);
      return a.affine(-1, 1).sqr().add(b.sub(a.sqr()).sqr().mul(100));
    });
    return { at: w.toArray<number[]>(), asked };
  };
  const searched = run({ lineSearch: 'strong_wolfe' });
  near(tensor(searched.at, { dtype: 'f64' }), [0.9999814210791366, 0.9999619651810989], 'Rosenbrock’s valley');
  assert.equal(searched.asked, 43);
  assert.ok(run({}).asked > searched.asked);
  // The first step of 3x - ln(x) + 0.001/x from 0.5 goes below 0, where the loss is NaN.
  const x = tensor([0.5], { dtype: 'f64' }).requireGrad();
  new nn.LBFGS([x], { lineSearch: 'strong_wolfe' }).step(() => x.mul(3).sub(x.log()).add(x.recip().mul(1e-3)).sum());
  assert.ok(Math.abs(x.item() - (1 + Math.sqrt(1.012)) / 6) < 1e-4, `${x.item()}`);
  assert.throws(
    () => new nn.LBFGS([x], { lineSearch: 'wolfe' as never }),
    /LBFGS: lineSearch is 'none' or 'strong_wolfe'/,
  );
});

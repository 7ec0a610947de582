// What a user who knows PyTorch writes with layers, losses and schedulers: arguments in a row or by name.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import * as nn from '../src/nn/index.js';
import { ArgumentError, manualSeed, randn, type Tensor, tensor, zeros } from '../src/index.js';

const ids = (...values: number[]) => tensor(values, { dtype: 'i64' });

test('pools take window, stride and padding in a row or by name, as functions and as layers', () => {
  const pictures = randn([2, 3, 9, 8], { seed: 3 });
  const same = (a: Tensor, b: Tensor): void => {
    assert.deepEqual(a.shape, b.shape);
    assert.deepEqual(a.toArray(), b.toArray());
  };
  const named = { stride: 2, padding: 1 };
  for (const op of ['maxPool2d', 'avgPool2d'] as const) {
    same(pictures[op](3, named), pictures[op]([3, 3], [2, 2], { padding: [1, 1] }));
    same(pictures[op](3, 2, 1), pictures[op](3, named));
    same(pictures[op](3, { stride: 2, ceilMode: true }), pictures[op](3, 2, { ceilMode: true }));
  }
  same(new nn.MaxPool2d(3, 2, 1).forward(pictures), pictures.maxPool2d(3, named));
  same(new nn.MaxPool2d(3, named).forward(pictures), pictures.maxPool2d(3, named));
  same(new nn.AvgPool2d([3, 2], { stride: [2, 1] }).forward(pictures), pictures.avgPool2d([3, 2], [2, 1]));
  same(pictures.avgPool2d(2, { divisorOverride: 2 }), pictures.avgPool2d(2).mul(2));
  const lines = randn([2, 3, 9], { seed: 4 });
  same(new nn.MaxPool1d(2, 2).forward(lines), lines.maxPool1d([2], { stride: [2] }));
  same(new nn.MaxPool3d(2, { stride: 1 }).forward(pictures.unsqueeze(0)), pictures.unsqueeze(0).maxPool3d(2, 1));
});

test('layers that wrap weights look at them: ranks, biases, options of tables', () => {
  const table = tensor([
    [1, 2],
    [3, 4],
    [5, 6],
  ]);
  assert.throws(() => new nn.Linear(table, tensor([1])), /Linear: its bias is \[1\], and its outputs are 3/);
  assert.throws(() => new nn.Linear(table, zeros([5, 3])), /Linear: its bias is \[5, 3\]/);
  assert.throws(() => new nn.Linear(zeros([2, 2, 2])), /Linear: its weight is \(outputs, inputs\), not \[2, 2, 2\]/);
  assert.throws(() => new nn.Linear(table, { bias: false } as never), /Linear: its bias is an object, not a tensor/);
  assert.throws(() => new nn.Embedding(zeros([3])), /Embedding: its weight is \(entries, width\), not \[3\]/);
  assert.throws(() => new nn.Embedding(table, { padding: 0 } as never), /unknown option "padding"/);
  assert.throws(() => new nn.Embedding(table).forward([0] as never), /takes a tensor of numbers, not a list/);
  assert.equal(new nn.Embedding(table, { paddingIdx: -1 }).paddingIdx, 2);
  assert.deepEqual(new nn.EmbeddingBag(table, { mode: 'sum' }).forward(ids(0, 2).unsqueeze(0)).toArray(), [[6, 8]]);
  assert.throws(() => new nn.EmbeddingBag(table, { mode: 'sum', init: 0 } as never), /unknown option "init"/);
  const bilinear = new nn.Bilinear(2, 3, 4);
  assert.throws(
    () => bilinear.forward(zeros([5, 2]), zeros([6, 3])),
    /Bilinear: takes \(\.\.\., 2\) and \(\.\.\., 3\) with equal dimensions before, not \[5, 2\] and \[6, 3\]/,
  );
});

test('bags of embeddings: those in which nothing counts are 0; weights of lists, and of their shape alone', () => {
  const table = tensor([
    [1, -2],
    [3, -4],
    [5, -6],
  ]);
  for (const mode of ['sum', 'mean', 'max'] as const) {
    const bags = new nn.EmbeddingBag(table, { mode, paddingIdx: 0 });
    const two = tensor([0, 0, 0, 1], { shape: [2, 2], dtype: 'i64' });
    const [none, own] = [
      [0, 0],
      [3, -4],
    ];
    assert.deepEqual(bags.forward(two).toArray(), [none, own], mode);
    assert.deepEqual(bags.forward(ids(0, 0, 0, 1), ids(0, 2)).toArray(), [none, own], mode);
    assert.deepEqual(bags.forward(zeros([2, 0], { dtype: 'i64' })).toArray(), [none, none], mode);
  }
  const sums = new nn.EmbeddingBag(table, { mode: 'sum' });
  assert.deepEqual(sums.forward(ids(0, 1, 2), ids(0, 1, 1), tensor([2, 1, 10])).toArray(), [
    [2, -4],
    [0, 0],
    [53, -64],
  ]);
  const two = tensor([0, 1, 1, 2], { shape: [2, 2], dtype: 'i64' });
  assert.throws(
    () => sums.forward(two, tensor([[1, 2]])),
    /weights \[1, 2\] have not the shape of the numbers, \[2, 2\]/,
  );
  assert.throws(
    () => new nn.EmbeddingBag(table).forward(ids(0, 1), ids(0), tensor([1, 2])),
    /weights are for mode 'sum', this one is 'mean'/,
  );
});

test('where no target counts, no gradient is NaN; NaN among what is ignored stays out', () => {
  const x = randn([2, 4], { seed: 1 }).requireGrad();
  for (const options of [{}, { labelSmoothing: 0.1 }, { weight: tensor([1, 2, 3, 4]) }]) {
    const loss = nn.losses.crossEntropy(x, ids(2, 2), { ignoreIndex: 2, ...options });
    assert.ok(Number.isNaN(loss.item()), "PyTorch's, too, is 0 / 0");
    assert.deepEqual(loss.backward().of(x).flatten().toArray(), new Array(8).fill(0));
  }
  const spoilt = tensor([
    [NaN, 1],
    [1, 2],
  ]);
  assert.ok(Math.abs(nn.losses.crossEntropy(spoilt, ids(-100, 1)).item() - 0.313262) < 1e-6);
});

test('options of losses outside of their rules are refused by name', () => {
  const [x, y] = [randn([2, 4], { seed: 1 }), randn([2, 4], { seed: 2 })];
  const [a, b, signs] = [randn([3], { seed: 1 }), randn([3], { seed: 2 }), tensor([1, -1, 1])];
  const { losses } = nn;
  const wrong: readonly (readonly [call: () => unknown, message: RegExp])[] = [
    [
      () => losses.crossEntropy(x, ids(0, 1), { weight: tensor([1, 2]) }),
      /weight is \[2\]; the 4 classes of \[2, 4\] take/,
    ],
    [() => losses.nll(x, ids(0, 1), { weight: zeros([5]) }), /nll: weight is \[5\]/],
    [() => losses.crossEntropy(x, y.softmax(1), { weight: tensor([1]) }), /crossEntropy: weight is \[1\]/],
    [() => losses.crossEntropy(x, ids(0, 1), { labelSmoothing: 2 }), /labelSmoothing 2 is not a number from 0 to 1/],
    [
      () => losses.linearCrossEntropy(x, zeros([3, 4]), ids(0, 1), { labelSmoothing: -1 }),
      /linearCrossEntropy: labelSmoothing -1 is not/,
    ],
    [() => losses.huber(x, y, { delta: -1 }), /huber: delta -1 is not a number above 0/],
    [() => losses.multiMargin(x, ids(0, 1), { p: 3 as never }), /multiMargin: p 3 is neither 1 nor 2/],
    [() => losses.marginRanking(a, b, signs, { margin: NaN }), /marginRanking: margin NaN is not a number/],
    [() => losses.hingeEmbedding(a, signs, { margin: '1' as never }), /hingeEmbedding: margin 1 is not a number/],
    [() => losses.focal(a, b.gt(0), { alpha: 4 }), /focal: alpha 4 is not a number from 0 to 1/],
    [() => losses.focal(a, b.gt(0), { gamma: -1 }), /focal: gamma -1 is not a number of at least 0/],
    [
      () => losses.bce(x.sigmoid(), y.sigmoid(), { weight: zeros([3, 2, 4]) }),
      /weight \[3, 2, 4\] does not broadcast to/,
    ],
    [() => losses.bceWithLogits(x, y, { posWeight: zeros([3, 1, 1]) }), /posWeight \[3, 1, 1\] does not broadcast to/],
    [() => losses.gaussianNll(a, b, tensor([1, -1, 1])), /gaussianNll: -1 is no variance/],
    [() => losses.gaussianNll(a, b, zeros([2, 3])), /gaussianNll: variance \[2, 3\] does not broadcast to \[3\]/],
  ];
  for (const [call, message] of wrong) assert.throws(call, message);
  assert.equal(losses.bceWithLogits(x, y, { weight: tensor([[1], [2]]), reduction: 'none' }).shape.join(), '2,4');
});

test('recurrent layers name what does not fit: features, states', () => {
  const lstm = new nn.LSTM(3, 4, { layers: 2 });
  const x = randn([2, 5, 3], { seed: 1 });
  assert.throws(() => lstm.forward(x.narrow(2, 0, 2)), /LSTM: \[2, 5, 2\] has 2 features, and its inputs are 3/);
  assert.throws(() => lstm.run(x, { h: zeros([2, 2, 4]) } as never), /LSTM: a state is \{ h, c \}.*c is undefined/);
  const state = { h: zeros([2, 3, 4]), c: zeros([2, 3, 4]) };
  assert.throws(() => lstm.run(x, state), /h of the state is \[2, 3, 4\], not \[2, 2, 4\]/);
  lstm.run(x, lstm.run(x).state);
});

test('numbers that would be taken without a word: probabilities as text, epsilons, lengths, scales', () => {
  assert.throws(() => new nn.Dropout('0.5' as never), /Dropout: probability 0.5 is not/);
  assert.throws(() => new nn.BatchNorm1d(3, { eps: -1 }), /BatchNorm1d: eps -1 is not a finite number from 0/);
  assert.throws(() => new nn.GradScaler({ scale: -1 }), /GradScaler: scale -1 is not a number above 0/);
  assert.throws(() => new nn.GradScaler({ growth: 1 }), /GradScaler: growth 1 is not a number above 1/);
  assert.throws(() => new nn.GradScaler({ interval: 0.5 }), /GradScaler: interval 0.5 is not a whole number from 1/);
  assert.throws(() => nn.stepDecay(2.5), /stepDecay: .* is 2.5, not a whole number from 1/);
  assert.throws(() => nn.cosineRestarts(0), /cosineRestarts: the length of the first is 0/);
  assert.throws(() => nn.cosineRestarts(3, 0.5), /cosineRestarts: what each is longer by is 0.5/);
  assert.throws(
    () => nn.clipGradNorm([tensor([3, 4])], 1, ...([1] as never[])),
    /the norm is the root of squares alone/,
  );
});

test('losses as modules answer what the functions do, and their weights move with them', () => {
  const [a, b, c] = [1, 2, 3].map((seed) => randn([4, 5], { seed }));
  const [p, t] = [a.sigmoid(), b.gt(0).cast('f32')];
  const signs = b.narrow(1, 0, 1).squeeze(1).sign();
  const classes = ids(0, 4, 2, 1);
  const weight = tensor([1, 2, 3, 4, 5]);
  const { losses } = nn;
  const same: readonly (readonly [Tensor, Tensor])[] = [
    [new nn.CrossEntropyLoss({ weight }).forward(a, classes), losses.crossEntropy(a, classes, { weight })],
    [new nn.NLLLoss().forward(a.logSoftmax(-1), classes), losses.crossEntropy(a, classes)],
    [new nn.MSELoss({ reduction: 'sum' }).forward(a, b), losses.mse(a, b, { reduction: 'sum' })],
    [new nn.L1Loss().forward(a, b), losses.l1(a, b)],
    [new nn.SmoothL1Loss({ beta: 0.5 }).forward(a, b), losses.smoothL1(a, b, { beta: 0.5 })],
    [new nn.HuberLoss({ delta: 0.5 }).forward(a, b), losses.huber(a, b, { delta: 0.5 })],
    [new nn.BCELoss().forward(p, t), losses.bce(p, t)],
    [new nn.BCEWithLogitsLoss().forward(a, t), losses.bceWithLogits(a, t)],
    [new nn.KLDivLoss({ logTarget: true }).forward(a, b), losses.klDiv(a, b, { logTarget: true })],
    [new nn.CosineEmbeddingLoss().forward(a, b, signs), losses.cosineEmbedding(a, b, signs)],
    [new nn.TripletMarginLoss({ margin: 2 }).forward(a, b, c), losses.tripletMargin(a, b, c, { margin: 2 })],
    [new nn.MarginRankingLoss().forward(a, b, c.sign()), losses.marginRanking(a, b, c.sign())],
    [new nn.HingeEmbeddingLoss().forward(a, b.sign()), losses.hingeEmbedding(a, b.sign())],
    [new nn.SoftMarginLoss().forward(a, b.sign()), losses.softMargin(a, b.sign())],
    [new nn.MultiLabelSoftMarginLoss().forward(a, t), losses.multilabelSoftMargin(a, t)],
    [new nn.MultiMarginLoss({ p: 2 }).forward(a, classes), losses.multiMargin(a, classes, { p: 2 })],
    [new nn.PoissonNLLLoss().forward(a, t), losses.poissonNll(a, t)],
    [new nn.GaussianNLLLoss().forward(a, b, p), losses.gaussianNll(a, b, p)],
    [
      new nn.CTCLoss({ blank: 4 }).forward(a.logSoftmax(-1).unsqueeze(1), [[0, 1]], [4]),
      losses.ctc(a.logSoftmax(-1).unsqueeze(1), [[0, 1]], [4], { blank: 4 }),
    ],
  ];
  for (const [module, f] of same) assert.deepEqual(module.toArray(), f.toArray());
  const loss = new nn.BCEWithLogitsLoss({ posWeight: weight });
  assert.deepEqual([...loss.stateDict().keys()], ['pos_weight']);
  assert.deepEqual(loss.parameters(), []);
  assert.equal((loss.to(undefined, 'f64').options.posWeight as Tensor).dtype, 'f64');
  assert.equal(weight.dtype, 'f32');
  assert.throws(() => new nn.CrossEntropyLoss(weight as never), /CrossEntropyLoss: takes one object of options/);
});

type Maker = (optimizer: nn.HasRate) => nn.Scheduler;
// PyTorch's rates from 0.1 on, over eight steps.
const RATES: Readonly<Record<string, readonly [Maker, readonly number[]]>> = {
  StepLR: [(o) => new nn.StepLR(o, 3, 0.5), [0.1, 0.1, 0.1, 0.05, 0.05, 0.05, 0.025, 0.025, 0.025]],
  MultiStepLR: [(o) => new nn.MultiStepLR(o, [2, 5], 0.2), [0.1, 0.1, 0.02, 0.02, 0.02, 0.004, 0.004, 0.004, 0.004]],
  ExponentialLR: [
    (o) => new nn.ExponentialLR(o, 0.9),
    [0.1, 0.09, 0.081, 0.0729, 0.06561, 0.059049, 0.0531441, 0.04782969, 0.043046721],
  ],
  LambdaLR: [
    (o) => new nn.LambdaLR(o, (step) => 1 / (1 + step)),
    [0.1, 0.05, 0.0333333333, 0.025, 0.02, 0.0166666667, 0.0142857143, 0.0125, 0.0111111111],
  ],
  ConstantLR: [
    (o) => new nn.ConstantLR(o),
    [0.0333333333, 0.0333333333, 0.0333333333, 0.0333333333, 0.0333333333, 0.1, 0.1, 0.1, 0.1],
  ],
  LinearLR: [
    (o) => new nn.LinearLR(o),
    [0.0333333333, 0.0466666667, 0.06, 0.0733333333, 0.0866666667, 0.1, 0.1, 0.1, 0.1],
  ],
  PolynomialLR: [
    (o) => new nn.PolynomialLR(o, 6, 2),
    [0.1, 0.0694444444, 0.0444444444, 0.025, 0.0111111111, 0.00277777778, 0, 0, 0],
  ],
  CosineAnnealingLR: [
    (o) => new nn.CosineAnnealingLR(o, 5, 0.01),
    [0.1, 0.0914057647, 0.0689057647, 0.0410942353, 0.0185942353, 0.01, 0.0185942353, 0.0410942353, 0.0689057647],
  ],
  CosineAnnealingWarmRestarts: [
    (o) => new nn.CosineAnnealingWarmRestarts(o, 2, 2, 0.01),
    [0.1, 0.055, 0.1, 0.0868198052, 0.055, 0.0231801948, 0.1, 0.096574579, 0.0868198052],
  ],
  OneCycleLR: [
    (o) => new nn.OneCycleLR(o, { maxLr: 0.2, totalSteps: 9 }),
    [0.008, 0.130271647, 0.198883087, 0.179713332, 0.141128946, 0.0925274205, 0.0457459906, 0.012178594, 8e-7],
  ],
};
for (const [name, [make, rates]] of Object.entries(RATES))
  test(`${name}: rates of PyTorch`, () => {
    const optimizer = { learningRate: 0.1 };
    const scheduler = make(optimizer);
    for (const [step, want] of rates.entries()) {
      const rate = optimizer.learningRate;
      assert.ok(Math.abs(rate - want) <= 1e-9, `step ${step}: ${rate}, PyTorch has ${want}`);
      scheduler.step();
    }
  });

test('schedulers take their numbers in a row or by name', () => {
  const pairs: readonly (readonly [Maker, Maker])[] = [
    [(o) => new nn.StepLR(o, 3, 0.5), (o) => new nn.StepLR(o, { stepSize: 3, gamma: 0.5 })],
    [(o) => new nn.MultiStepLR(o, [2, 5], 0.2), (o) => new nn.MultiStepLR(o, [2, 5], { gamma: 0.2 })],
    [(o) => new nn.ExponentialLR(o, 0.9), (o) => new nn.ExponentialLR(o, { gamma: 0.9 })],
    [(o) => new nn.ConstantLR(o, 0.5), (o) => new nn.ConstantLR(o, { factor: 0.5 })],
    [
      (o) => new nn.LinearLR(o, 0.5, 2, 3),
      (o) => new nn.LinearLR(o, { startFactor: 0.5, endFactor: 2, totalIters: 3 }),
    ],
    [(o) => new nn.PolynomialLR(o, 6, 2), (o) => new nn.PolynomialLR(o, { totalIters: 6, power: 2 })],
    [(o) => new nn.CosineAnnealingLR(o, 5, 0.01), (o) => new nn.CosineAnnealingLR(o, { tMax: 5, etaMin: 0.01 })],
    [
      (o) => new nn.CosineAnnealingWarmRestarts(o, 2, 2, 0.01),
      (o) => new nn.CosineAnnealingWarmRestarts(o, { t0: 2, tMult: 2, etaMin: 0.01 }),
    ],
  ];
  for (const [inRow, byName] of pairs) {
    const rates = (make: Maker): number[] => {
      const optimizer = { learningRate: 0.1 };
      const scheduler = make(optimizer);
      return Array.from({ length: 8 }, () => scheduler.step());
    };
    assert.deepEqual(rates(byName), rates(inRow));
  }
  const optimizer = { learningRate: 0.1 };
  assert.throws(() => new nn.StepLR(optimizer, {}), /StepLR: stepSize is undefined, not a number/);
  assert.throws(() => new nn.StepLR(optimizer, { step: 3 } as never), /StepLR: unknown option "step"/);
});

test('convolutions take stride and padding in a row or by name', () => {
  const config = (layer: nn.Conv2d | nn.ConvTranspose2d): object => layer.config;
  assert.deepEqual(config(new nn.Conv2d(1, 32, 3, 1)), { stride: 1 });
  assert.deepEqual(config(new nn.Conv2d(1, 32, 3, 2, 1)), { stride: 2, padding: 1 });
  assert.deepEqual(config(new nn.Conv2d(1, 32, 3, [2, 1], 'valid', { dilation: 2, bias: false })), {
    stride: [2, 1],
    padding: 'valid',
    dilation: 2,
  });
  assert.deepEqual(config(new nn.ConvTranspose2d(4, 2, 2, 2)), { stride: 2 });
  assert.throws(() => new nn.Conv2d(1, 2, 3, 1, { stride: 2 } as never), /Conv2d: stride is given twice/);
  assert.throws(() => new nn.Conv2d(...([1, 2, 3, 1, 1, 1] as never as [1, 2, 3])), /a stride, padding and an object/);
  assert.equal(new nn.LSTM(3, 4, 2).layers, 2);
  assert.deepEqual(zeros([1, 1, 5]).conv1d(zeros([1, 1, 3]), { stride: [2] }).shape, [1, 1, 2]);
});

/** Rates of PyTorch from an optimizer whose rate is 0.5. */
const JOINED: Readonly<Record<string, readonly [make: (o: nn.HasRate) => nn.Scheduler, rates: readonly number[]]>> = {
  'warmup, then a cosine': [
    (o) => new nn.SequentialLR(o, [new nn.LinearLR(o, 0.1, 1, 3), new nn.CosineAnnealingLR(o, 4, 0.05)], [3]),
    [0.05, 0.2, 0.35, 0.5, 0.434099, 0.275, 0.115901, 0.05, 0.115901],
  ],
  'two at once': [
    (o) => new nn.ChainedScheduler([new nn.ConstantLR(o, 0.1, 4), new nn.ExponentialLR(o, 0.9)]),
    [0.05, 0.045, 0.0405, 0.03645, 0.32805, 0.295245, 0.2657205],
  ],
  'a factor at every step': [
    (o) => new nn.MultiplicativeLR(o, (step) => 1 - 0.1 * step),
    [0.5, 0.45, 0.36, 0.252, 0.1512],
  ],
  'peaks that halve': [
    (o) => new nn.CyclicLR(o, 0.1, 1, { stepSizeUp: 2, stepSizeDown: 1, mode: 'triangular2' }),
    [0.1, 0.55, 1, 0.1, 0.325, 0.55, 0.1, 0.2125, 0.325],
  ],
  'peaks that fall by step': [
    (o) => new nn.CyclicLR(o, 0.1, 1, { stepSizeUp: 2, mode: 'exp_range', gamma: 0.9 }),
    [0.1, 0.505, 0.829, 0.42805, 0.1, 0.3657205],
  ],
};
for (const [name, [make, rates]] of Object.entries(JOINED))
  test(`schedulers of several parts: ${name}`, () => {
    const optimizer = { learningRate: 0.5 };
    const scheduler = make(optimizer);
    for (const [i, rate] of rates.entries()) {
      assert.ok(Math.abs(optimizer.learningRate - rate) < 1e-6, `step ${i}: ${optimizer.learningRate}, not ${rate}`);
      scheduler.step();
    }
  });

test('schedulers that would undo each other are refused, one after the other is not', () => {
  const optimizer = { learningRate: 0.5 };
  const first = new nn.StepLR(optimizer, 1, 0.1);
  first.step();
  const second = new nn.ExponentialLR(optimizer, 0.5);
  assert.ok(Math.abs(second.step() - 0.025) < 1e-12);
  assert.throws(() => first.step(), /StepLR: another scheduler of this optimizer set its rate since/);
  const plateau = new nn.ReduceLROnPlateau(optimizer, { patience: 0, factor: 0.5 });
  for (const measure of [1, 2]) plateau.step(measure);
  assert.throws(() => second.step(), /ExponentialLR: another scheduler/);
  const own = { learningRate: 1 };
  const parts = [new nn.StepLR(own, 2), new nn.StepLR(own, 3)];
  assert.throws(() => new nn.SequentialLR(own, parts, [3, 2]), /SequentialLR: milestones \[3, 2\] are not 1 rising/);
  assert.throws(() => new nn.SequentialLR({ learningRate: 1 }, parts, [2]), /SequentialLR: .* schedulers of this opt/);
  assert.throws(() => new nn.CyclicLR(own, 0.1, 1, { mode: 'square' as never }), /CyclicLR: unknown mode "square"/);
});

test('sequences of other lengths in one batch run as each would alone, in every layer and direction', () => {
  const lengths = [3, 5, 1];
  const x = randn([3, 5, 4], { seed: 5, dtype: 'f64' });
  for (const make of [nn.RNN, nn.LSTM, nn.GRU]) {
    const net = new make(4, 6, { layers: 2, bidirectional: true }).to(undefined, 'f64') as nn.LSTM;
    const { output, state } = net.run(x, undefined, { lengths });
    for (const [i, n] of lengths.entries()) {
      const alone = net.run(x.at([i, i + 1], [0, n]));
      assert.ok(output.at([i, i + 1], [0, n]).allclose(alone.output, { rtol: 0, atol: 1e-12 }), `${make.name} ${n}`);
      assert.equal(output.at(i, [n]).abs().sum().item(), 0);
      for (const part of Object.keys(state) as 'h'[])
        assert.ok(state[part].at(':', [i, i + 1]).allclose(alone.state[part], { rtol: 0, atol: 1e-12 }), part);
    }
    assert.throws(() => net.run(x, undefined, { lengths: [5, 6, 1] }), /lengths \[5, 6, 1\] are not 3 whole numbers/);
  }
});

test('a probability of 0 or 1 has a gradient', () => {
  const p = tensor([0, 0, 1, 1, 0.5]).requireGrad();
  const loss = nn.losses.bce(p, tensor([0, 1, 0, 1, 0.25]), { reduction: 'sum' });
  assert.ok(Math.abs(loss.item() - (200 + Math.log(2))) < 1e-4);
  assert.deepEqual(loss.backward().of(p).toArray(), [1, Math.fround(-1e12), Math.fround(1e12), -1, 1]);
});

/** Arguments that PyTorch takes in a row and that nothing here would read. */
const IGNORED: Readonly<Record<string, readonly [() => unknown, RegExp]>> = {
  'MaxPool2d(3, 2, 1, 1, true)': [
    () => new nn.MaxPool2d(3, 2, 1, ...([1, true] as never[])),
    /^MaxPool2d: takes a size, a stride, and padding or an object of options, and no 1, true behind/,
  ],
  'AvgPool2d(2, 2, 0, true)': [() => new nn.AvgPool2d(2, 2, 0, ...([true] as never[])), /^AvgPool2d: takes .* no true/],
  'LSTM(4, 8, 2, false)': [
    () => new nn.LSTM(4 as never, 8 as never, 2 as never, false as never),
    /^LSTM: after the si/,
  ],
  'GRU(4, 8, 2, true, true)': [
    () => new nn.GRU(4 as never, 8 as never, 2 as never, true as never, true),
    /^GRU: after the sizes stands a number of layers or an object of options, no more/,
  ],
  "RNN(4, 8, 2, 'relu')": [
    () => new nn.RNN(4, 8, 2, ...(['relu'] as never[])),
    /^RNN: takes two sizes .* no relu behind/,
  ],
  'RNNCell(4, 8, false)': [() => new nn.RNNCell(4, 8, false as never), /^RNNCell: false stands where options do/],
  'Threshold(1)': [() => new nn.Threshold(1, undefined as never), /^Threshold: takes a bound and the value/],
  'StepLR(optimizer, 2, 0.5, 5)': [
    () => new nn.StepLR(fresh(), 2, 0.5, ...([5] as never[])),
    /^StepLR: takes an optimizer and stepSize, gamma; steps so far are its `at`, and no 5 behind/,
  ],
  'CosineAnnealingLR(optimizer, 10, 0, 3)': [
    () => new nn.CosineAnnealingLR(fresh(), 10, 0, ...([3] as never[])),
    /^CosineAnnealingLR: takes .* no 3 behind/,
  ],
  'LambdaLR(optimizer, [f])': [
    () => new nn.LambdaLR(fresh(), [() => 1] as never),
    /^LambdaLR: a schedule is one funct/,
  ],
  "ReduceLROnPlateau(optimizer, 'min')": [
    () => new nn.ReduceLROnPlateau(fresh(), 'min' as never),
    /^ReduceLROnPlateau: min stands where options do; they are an object of mode, factor,/,
  ],
  "ReduceLROnPlateau(optimizer, { mode: 'least' })": [
    () => new nn.ReduceLROnPlateau(fresh(), { mode: 'least' as never }),
    /mode "least" is neither 'min' nor 'max'/,
  ],
  'GradScaler(1024)': [() => new nn.GradScaler(1024 as never), /^GradScaler: 1024 stands where options do/],
  'GradScaler({ init_scale: 1024 })': [
    () => new nn.GradScaler({ init_scale: 1024 } as never),
    /^GradScaler: unknown option "init_scale"/,
  ],
  "Upsample({ scale: 2, mode: 'cubic' })": [
    () => new nn.Upsample({ scale: 2, mode: 'cubic' as never }),
    /Upsample: unknown mode "cubic"/,
  ],
  'Upsample({ scaleFactor: 2 })': [
    () => new nn.Upsample({ scaleFactor: 2 } as never),
    /^Upsample: unknown option "scal/,
  ],
};
const fresh = (): nn.SGD => new nn.SGD([zeros([2], { requiresGrad: true })], { learningRate: 1 });
for (const [call, [act, says]] of Object.entries(IGNORED))
  test(`not ignored: ${call}`, () => assert.throws(act, (e) => e instanceof ArgumentError && says.test(e.message)));

test('a plain recurrent net takes its number of layers in a row, as the others do', () => {
  for (const Kind of [nn.RNN, nn.LSTM, nn.GRU]) assert.equal(new Kind(4, 8, 2).layers, 2, Kind.name);
});

test('Upsample is interpolate of lines, pictures and volumes, with the steps of a fractional scale', () => {
  const near = (a: Tensor, b: Tensor): void => {
    assert.deepEqual(a.shape, b.shape);
    assert.ok(a.allclose(b, { rtol: 1e-5, atol: 1e-6 }));
  };
  const picture = randn([1, 2, 3, 5], { seed: 1 });
  for (const options of [
    { scale: 2 },
    { scale: 1.7 },
    { size: [4, 7] },
    { size: 6 },
    { scale: 1.7, mode: 'bilinear' },
    { scale: [2, 3], mode: 'bilinear', alignCorners: true },
    { size: [7, 9], mode: 'bicubic' },
    { scale: 2, mode: 'nearest-exact' },
  ] as const satisfies nn.UpsampleOptions[])
    near(new nn.Upsample(options).forward(picture), picture.interpolate(options));
  const line = randn([1, 2, 5], { seed: 2 });
  near(new nn.Upsample({ scale: 2, mode: 'linear' }).forward(line), line.interpolate({ scale: 2, mode: 'linear' }));
  const volume = randn([1, 1, 2, 3, 4], { seed: 3 });
  near(new nn.Upsample({ scale: 2 }).forward(volume), volume.interpolate({ scale: 2 }));
  // PyTorch's numbers: steps of 1 / 1.7, not of 3 / 5.
  const row = tensor([[[[0, 1, 2]]]]).broadcastTo([1, 1, 3, 3]);
  const [first] = new nn.Upsample({ scale: 1.7, mode: 'bilinear' }).forward(row).toArray<number[][][][]>()[0][0];
  assert.deepEqual(
    first.map((v) => Math.round(v * 1e4) / 1e4),
    UPSAMPLED,
  );
});
const UPSAMPLED = [0, 0.3824, 0.9706, 1.5588, 2];

test('what an optimizer and a scheduler are asked for by the names of PyTorch is answered with ours', () => {
  const optimizer = fresh() as nn.SGD & Record<string, unknown>;
  const scheduler = new nn.StepLR(optimizer, 2) as nn.StepLR & Record<string, unknown>;
  for (const [read, says] of [
    [() => optimizer.lr, /optimizer\.lr: here it is optimizer\.learningRate/],
    [() => (optimizer.lr = 0.1), /optimizer\.lr: here it is optimizer\.learningRate/],
    [() => optimizer.param_groups, /optimizer\.paramGroups: here it is optimizer\.groups/],
    [() => optimizer.state_dict, /optimizer\.stateDict\(\)/],
    [() => scheduler.get_last_lr, /scheduler\.getLastLr: here it is optimizer\.learningRate/],
    [() => scheduler.last_epoch, /scheduler\.at/],
    [() => scheduler.stateDict, /scheduler\.at/],
    [() => (new nn.Linear(1, 1) as never as Record<string, unknown>).get_submodule, /namedModules/],
  ] as const)
    assert.throws(read, says);
  assert.throws(() => ((optimizer.groups[0].options as { learningRate: number }).learningRate = 5), TypeError);
  optimizer.learningRate = NaN;
  const [p] = optimizer.params;
  assert.throws(() => optimizer.step(new Map([[p, p.onesLike()]])), /SGD: learningRate is NaN/);
  assert.deepEqual(p.toArray(), [0, 0]);
});

/** Losses of three tensors, the last one left out. */
const OF_THREE = new Set(['cosineEmbedding', 'marginRanking', 'gaussianNll', 'tripletMargin']);
test('every loss says what it takes where a target is left out', () => {
  const x = randn([4, 5]);
  const losses = nn.losses as unknown as Record<string, (...args: unknown[]) => unknown>;
  const named = Object.keys(losses).filter((name) => !['ctc', 'linearCrossEntropy'].includes(name));
  assert.ok(named.length > 18);
  for (const name of named) {
    const says = (e: unknown): boolean =>
      e instanceof ArgumentError && e.message.startsWith(`${name}: takes tensors of`);
    assert.throws(() => losses[name](x), says, name);
    const three = OF_THREE.has(name);
    assert.throws(() => losses[name](null, x, ...(three ? [x] : [])), says, name);
    if (three) assert.throws(() => losses[name](x, x), says, name);
  }
});

test('a scheduler without an optimizer says so', () => {
  for (const Kind of [nn.StepLR, nn.ExponentialLR, nn.CosineAnnealingLR, nn.LambdaLR, nn.LinearLR])
    assert.throws(() => new Kind(0.1 as never, 5 as never), /a scheduler takes an optimizer first|one function/);
  assert.throws(() => new nn.OneCycleLR(undefined as never, { maxLr: 1, totalSteps: 3 }), /takes an optimizer first/);
});

test('sequences of several lengths become one tensor, with gradients, and what does not fit is refused', () => {
  const [a, b] = [tensor([[1, 2], [3, 4], [5, 6]]).requireGrad(), tensor([[7, 8]]).requireGrad()]; // biome-ignore format: a line
  const whole = nn.padSequence([a, b], { value: -1 });
  assert.deepEqual(whole.toArray(), [
    [
      [1, 2],
      [3, 4],
      [5, 6],
    ],
    [
      [7, 8],
      [-1, -1],
      [-1, -1],
    ],
  ]);
  assert.deepEqual(whole.sqr().sum().backward().of(b).toArray(), [[14, 16]]);
  assert.deepEqual(nn.padSequence([ids(1, 2), ids(3)]).toArray(), [
    [1, 2],
    [3, 0],
  ]);
  assert.throws(() => nn.padSequence([a, randn([2, 3])]), /differ in their length alone: \[3, 2\] and \[2, 3\]/);
  assert.throws(() => nn.padSequence([]), /padSequence: takes a list of tensors/);
});

test('classes drawn with gradients: soft ones sum to 1, hard ones are one class, as often as the softmax says', () => {
  manualSeed(4);
  const logits = tensor([1, 0, -1]).requireGrad();
  const many = nn.gumbelSoftmax(logits.broadcastTo([20_000, 3]), { hard: true });
  const each = many.detach();
  assert.deepEqual([each.sum(1).min().item(), each.sum(1).max().item()], [1, 1]);
  assert.ok(each.mul(each.affine(-1, 1)).abs().max().item() < 1e-6, 'each is 0 or 1');
  assert.ok(each.mean(0).sub(logits.detach().softmax(0)).abs().max().item() < 0.015);
  const [own, other, third] = many.narrow(1, 0, 1).mean().backward().of(logits).toArray<number[]>();
  assert.ok(own > 0 && other < 0 && third < 0 && Math.abs(own + other + third) < 1e-6, `${own} ${other} ${third}`);
  const columns = nn.gumbelSoftmax(randn([3, 5], { seed: 1 }), { dim: 0, temperature: 0.5 });
  assert.ok(columns.sum(0).sub(1).abs().max().item() < 1e-6);
  assert.throws(() => nn.gumbelSoftmax(logits, { temperature: 0 }), /temperature 0 is not a number above 0/);
  assert.throws(() => nn.gumbelSoftmax(logits, { tau: 1 } as never), /unknown option "tau"/);
});

test('modules where no parameters are looked for are refused: they would not be trained', () => {
  for (const [held, where] of [
    [{ a: new nn.Linear(1, 1) }, 'an object'],
    [new Map([['a', new nn.Linear(1, 1)]]), 'a Map'],
    [new Set([new nn.Linear(1, 1)]), 'a Set'],
  ] as const) {
    class Net extends nn.Module {
      parts = held;
    }
    const says = new RegExp(`parameters: parts holds modules in ${where}, where they are not found`);
    assert.throws(() => new Net().parameters(), says);
    assert.throws(() => new Net().stateDict(), says);
    assert.throws(
      () => new nn.Sequential(new Net() as never, new nn.Linear(1, 1)).parameters(),
      /modules with a forward|parts/,
    );
  }
  class Plain extends nn.Module {
    layers = [new nn.Linear(1, 1)];
    named = new nn.ModuleDict({ a: new nn.Linear(1, 1) });
    options = { width: 3, names: ['a'] };
  }
  assert.equal(new Plain().parameters().length, 4);
});

test('switches are true or false: what only counts as one of them is refused by name', () => {
  const no = 'no' as never;
  const refused: Readonly<Record<string, () => unknown>> = {
    'Linear: bias is string': () => new nn.Linear(2, 3, { bias: no }),
    'Bilinear: bias is number': () => new nn.Bilinear(2, 3, 4, { bias: 0 as never }),
    'Conv2d: bias is null': () => new nn.Conv2d(2, 3, 1, { bias: null as never }),
    'LSTM: bias is string': () => new nn.LSTM(2, 3, { bias: no }),
    'GRU: bidirectional is string': () => new nn.GRU(2, 3, { bidirectional: no }),
    'GRUCell: bias is string': () => new nn.GRUCell(2, 3, { bias: no }),
    'LayerNorm: bias is string': () => new nn.LayerNorm(2, { bias: no }),
    'BatchNorm2d: affine is string': () => new nn.BatchNorm2d(2, { affine: no }),
    'MultiheadAttention: bias is string': () => new nn.MultiheadAttention(4, 2, { bias: no }),
    'TransformerEncoderLayer: normFirst is string': () => new nn.TransformerEncoderLayer(4, 2, { normFirst: no }),
    'TransformerEncoder: norm is object': () => new nn.TransformerEncoder(4, 2, 1, { norm: {} as never }),
    'MaxPool2d: ceilMode is string': () => new nn.MaxPool2d(2, { ceilMode: no }),
    'loadStateDict: strict is string': () => new nn.Linear(2, 3).loadStateDict({}, { strict: no }),
    'klDiv: logTarget is string': () => nn.losses.klDiv(zeros([2]), zeros([2]), { logTarget: no }),
  };
  for (const [says, make] of Object.entries(refused))
    assert.throws(make, (e: Error) => e instanceof ArgumentError && e.message === `${says}, not true or false`);
  assert.ok(new nn.Linear(2, 3, { bias: undefined }).bias, 'undefined is left out');
});

test('convolutions refuse strides, paddings, dilations and groups where they are made', () => {
  const refused: readonly (readonly [says: RegExp, options: object])[] = [
    [/Conv2d: stride \[0, 0\] is not made of whole numbers from 1/, { stride: 0 }],
    [/Conv2d: stride \[1, 0.5\] is not made/, { stride: [1, 0.5] }],
    [/Conv2d: 3 strides for 2 dimensions/, { stride: [1, 1, 1] }],
    [/Conv2d: padding \[-1, -1\] is not made of whole numbers from 0/, { padding: -1 }],
    [/Conv2d: padding "full" is neither a size nor 'same' nor 'valid'/, { padding: 'full' }],
    [/Conv2d: padding 'same' goes with stride 1 only/, { padding: 'same', stride: 2 }],
    [/Conv2d: paddingMode "mirror" is not known; known are zeros, reflect/, { paddingMode: 'mirror' }],
    [/Conv2d: dilation \[0, 0\] is not made of whole numbers from 1/, { dilation: 0 }],
    [/Conv2d: groups 0 is not made of whole numbers from 1/, { groups: 0 }],
    [/Conv2d: 4 and 6 channels do not divide into 3 groups/, { groups: 3 }],
  ];
  for (const [says, options] of refused) assert.throws(() => new nn.Conv2d(4, 6, 3, options), says);
  const wrapped = (config: object): unknown => new nn.Conv2d(zeros([6, 4, 3, 3]), undefined, config);
  assert.throws(() => wrapped({ stride: -1 }), /Conv2d: stride \[-1, -1\] is not made of whole numbers from 1/);
  assert.throws(() => wrapped({ strides: 2 }), /unknown option "strides"/);
  assert.throws(() => new nn.ConvTranspose1d(4, 6, 3, { outputPadding: -1 }), /outputPadding -1 is not made of whole/);
  assert.throws(() => new nn.ConvTranspose1d(4, 6, 3, { padding: 'same' as never }), /paddings are a number or a list/);
  assert.throws(() => new nn.MaxPool2d(2, { padding: -1 }), /MaxPool2d: padding .*-1.* is not made of whole numbers/);
  assert.throws(() => new nn.MaxPool2d(2, { dilation: 0 }), /MaxPool2d: dilation .*0.* is not made of whole numbers/);
  assert.throws(() => new nn.AdaptiveAvgPool2d(0), /AdaptiveAvgPool2d: size 0 is not made of whole numbers from 1/);
  assert.throws(() => new nn.LayerNorm(3, { eps: '1' as never }), /LayerNorm: eps 1 is not a finite number from 0/);
  assert.throws(() => new nn.RmsNorm(3, { eps: -1 }), /RmsNorm: eps -1 is not a finite number from 0/);
  assert.throws(() => new nn.RmsNorm(0), /RmsNorm: size 0 is not made of whole numbers from 1/);
  assert.throws(() => new nn.GroupNorm(1, 2, { eps: NaN }), /GroupNorm: eps NaN is not a finite number from 0/);
  assert.throws(() => new nn.InstanceNorm2d(2, { eps: -1 }), /InstanceNorm2d: eps -1 is not a finite number from 0/);
  assert.throws(() => new nn.PixelShuffle(0), /PixelShuffle: factor 0 is not made of whole numbers from 1/);
  assert.throws(() => new nn.PixelUnshuffle(1.5), /PixelUnshuffle: factor 1.5 is not made of whole numbers from 1/);
  assert.throws(() => new nn.ChannelShuffle(0), /ChannelShuffle: groups 0 is not made of whole numbers from 1/);
  assert.throws(() => new nn.Upsample({ scale: 2, alignCorners: true }), /Upsample: alignCorners is for linear/);
  assert.throws(() => new nn.MultiheadAttention(4, 2, { dropout: 1 }), /MultiheadAttention: probability 1 is not in/);
});
test('attention of many heads names what does not fit', () => {
  const attention = new nn.MultiheadAttention(4, 2, { kdim: 6 });
  const [q, k, v] = [zeros([2, 3, 4]), zeros([2, 5, 6]), zeros([2, 5, 4])];
  const refused = (said: RegExp, ...given: Parameters<typeof attention.forward>): void =>
    assert.throws(() => attention.forward(...given), said);
  refused(/key \[2, 3, 4\] is not \(batch, time, width\) of a width of 6/, q);
  refused(/query \[2, 3, 4\], key \[2, 5, 6\] and value \[2, 3, 4\] are not of one batch/, q, k, q);
  refused(/mask \[3, 4\] does not fit \(batch, heads, queries, keys\) \[2, 2, 3, 5\]/, q, k, v, {
    mask: zeros([3, 4]),
  });
  refused(/keyPadding \[3, 2\] is not \(batch, keys\) \[2, 5\]/, q, k, v, { keyPadding: zeros([3, 2]) });
  for (const mask of [zeros([3, 5]), zeros([2, 3, 5]), zeros([1, 2, 3, 5]), zeros([5])])
    assert.deepEqual(attention.forward(q, k, v, { mask }).shape, [2, 3, 4]);
});

test('a hook that looks on answers nothing; what is no tensor does not take a tensor’s place', () => {
  const seen: unknown[] = [];
  const x = zeros([1, 2]);
  const hooked = (hook: (layer: nn.Linear) => void): (() => Tensor) => {
    const layer = new nn.Linear(2, 2);
    hook(layer);
    return () => layer.forward(x);
  };
  const pushed = /Linear: a hook of on\w+ answered a number in the place of a tensor; one that only looks on answers/;
  assert.throws(
    hooked((l) => l.onForward((_m, _i, y) => seen.push(y))),
    pushed,
  );
  assert.throws(
    hooked((l) => l.onBeforeForward((_m, [y]) => seen.push(y))),
    pushed,
  );
  const back = hooked((l) => l.onBackward(((_m: unknown, g: Tensor) => seen.push(g)) as never))();
  assert.throws(() => back.sum().backward(), pushed);
  assert.deepEqual(hooked((l) => l.onForward(() => null))().shape, [1, 2], 'null is nothing');
  assert.equal(seen.length, 3);
});

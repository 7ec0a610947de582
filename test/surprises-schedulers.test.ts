// What a user who knows PyTorch writes with schedulers: PyTorch's rates, arguments in a row or by name.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import * as nn from '../src/nn/index.js';
import { zeros } from '../src/index.js';

const fresh = (): nn.SGD => new nn.SGD([zeros([2], { requiresGrad: true })], { learningRate: 1 });
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

test('a scheduler without an optimizer says so', () => {
  for (const Kind of [nn.StepLR, nn.ExponentialLR, nn.CosineAnnealingLR, nn.LambdaLR, nn.LinearLR])
    assert.throws(() => new Kind(0.1 as never, 5 as never), /a scheduler takes an optimizer first|one function/);
  assert.throws(() => new nn.OneCycleLR(undefined as never, { maxLr: 1, totalSteps: 3 }), /takes an optimizer first/);
});

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

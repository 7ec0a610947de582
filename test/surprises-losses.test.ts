// What a user who knows PyTorch writes with losses: as functions and as modules, and what is refused.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import * as nn from '../src/nn/index.js';
import { ArgumentError, randn, type Tensor, tensor, zeros } from '../src/index.js';

const ids = (...values: number[]) => tensor(values, { dtype: 'i64' });

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

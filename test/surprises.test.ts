// What a user who knows PyTorch writes first: it means the same here, or it is refused in a sentence.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { TensorDataset } from '../src/data/index.js';
import * as nn from '../src/nn/index.js';
import {
  arange,
  blockDiag,
  defineOp,
  eye,
  hannWindow,
  hessian,
  jacobian,
  kaiserWindow,
  noGrad,
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

test('a package without public addresses is not published', () => {
  assert.deepEqual(missingAddresses({}), ['repository', 'homepage', 'bugs']);
  const at = 'https://example.org/wick';
  assert.deepEqual(missingAddresses({ repository: { type: 'git', url: at }, homepage: at, bugs: { url: '' } }), [
    'bugs',
  ]);
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

test('the gradient of x log(y) is log(y), and 0 where x is 0', () => {
  const [a, b] = [tensor([0, 0, 2]).requireGrad(), tensor([1, 3, 3]).requireGrad()];
  for (const op of ['xlogy', 'xlog1py'] as const) {
    const y = op === 'xlogy' ? b : tensor([0, 2, 2]);
    const grads = a[op](y).sum().backward();
    const [none, zero, slope] = grads.of(a).toArray<number[]>();
    assert.deepEqual([none, zero], [0, 0]);
    assert.ok(Math.abs(slope - Math.log(3)) < 1e-6, String(slope));
  }
  assert.deepEqual(
    tensor([0])
      .xlogy(tensor([NaN]))
      .toArray(),
    [NaN],
  );
});

/** Calls that look right to someone who knows PyTorch, and what is said to them. */
const REFUSED: Readonly<Record<string, readonly [call: () => unknown, says: RegExp]>> = {
  'options where keepdim stands': [
    () => x.std(1, { correction: 0 } as never),
    /std: norm: keepdim is object, not true or false/,
  ],
  'options where keepdim stands, of a sum': [
    () => x.sum(1, { keepdim: true } as never),
    /sum: keepdim is object, not true or false/,
  ],
  'a tensor where dimensions stand': [
    () => x.max(x as never),
    /max: dimensions are a whole number or a list of them, not object/,
  ],
  'a stride given twice': [
    () => zeros([1, 1, 4, 4]).maxPool2d(2, 2, { stride: 1 }),
    /maxPool2d: stride is given twice/,
  ],
  'something after options': [
    () => zeros([1, 1, 4, 4]).avgPool2d(2, { stride: 1 }, 1),
    /avgPool2d: options stand last, and nothing follows them/,
  ],
  'a window of three numbers over a picture': [
    () => zeros([1, 1, 4, 4]).maxPool2d([2, 2, 2]),
    /maxPool2d: kernel \[2, 2, 2\] must have 2 numbers/,
  ],
  'padding by name': [
    () => zeros([1, 1, 4, 4]).conv2d(zeros([1, 1, 3, 3]), { padding: 'same' as never }),
    /conv2d: padding takes a number or a pair, not "same"/,
  ],
  'padding by name in one dimension': [
    () => zeros([1, 1, 4]).conv1d(zeros([1, 1, 3]), { padding: 'same' as never }),
    /conv1d: padding takes a number, not "same"/,
  ],
  'brackets that write': [
    () => {
      (x as unknown as number[])[0] = 5;
    },
    /x\[0\]: brackets index no tensor: read x\.at\(0\), write x\.at\(0\)\.assign/,
  ],
  'brackets that read': [() => (x as unknown as Tensor[])[-1], /x\[-1\]: brackets index no tensor/],
  'a dtype where a device stands': [() => x.to('f16'), /unknown device "f16".*x\.cast\('f16'\)/],
  'dropout without numbers': [() => x.dropout(0.5, undefined as never), /dropout: takes uniform numbers.*nn\.dropout/],
  'a module instead of its parameters': [
    () => new nn.Adam(new nn.Linear(2, 2) as never),
    /Adam: takes a list of parameters, as model\.parameters\(\)/,
  ],
  'layers as a list': [
    () => new nn.Sequential([new nn.ReLU()] as never),
    /Sequential: .*not a list of them; write \.\.\.layers/,
  ],
  'parameters to be clipped': [
    () => nn.clipGradNorm(new nn.Linear(2, 2).parameters(), 1),
    /clipGradNorm: these are parameters, not gradients/,
  ],
  'the answer of backward to be clipped': [
    () => nn.clipGradNorm(zeros([2]).requireGrad().sum().backward() as never, 1),
    /clipGradNorm: takes a list of gradients, as \[\.\.\.loss\.backward\(\)\.values\(\)\]/,
  ],
  'a schedule without its numbers': [
    () => new nn.Scheduler(new nn.SGD([zeros([2])]), (nn.linearRate as () => nn.Schedule)()),
    /Scheduler: the schedule's factor at step 0 is NaN/,
  ],
  'an option of backward that is none': [
    () =>
      zeros([2])
        .requireGrad()
        .sum()
        .backward({ retain_graph: true } as never),
    /backward: unknown option "retain_graph"; here it is retainGraph/,
  ],
  'a module where a checkpoint holds tensors': [
    () => nn.saveCheckpoint('never-written', { model: 1, optimizer: new nn.SGD([zeros([2])]) } as never),
    /saveCheckpoint: tensors are a map, as model\.stateDict\(\) gives/,
  ],
  'a batch norm of other channels': [
    () => new nn.BatchNorm2d(3).forward(zeros([2, 4, 2, 2])),
    /BatchNorm2d: \[2, 4, 2, 2\] has not 3 channels/,
  ],
  'a batch norm that trains with one value': [
    () => new nn.BatchNorm1d(3).forward(zeros([1, 3])),
    /BatchNorm1d: one value a channel in \[1, 3\] has no variance to train with/,
  ],
  'groups that channels do not divide into': [
    () => new nn.GroupNorm(2, 3),
    /GroupNorm: 3 channels do not divide into 2/,
  ],
  'tensors of a dataset without names': [
    () => new TensorDataset(zeros([2]) as never),
    /TensorDataset: takes tensors by name, as \{ x, y \}/,
  ],
  'sizes of a layer that are text': [
    () => new nn.Linear('3' as never, 2 as never),
    /Linear: takes two sizes, or a weight and a bias, not a string/,
  ],
  'a range that leads away': [() => arange(0, 5, -1), /arange: from 0 to 5 by -1; the step leads away from the end/],
  'an op without functions': [
    () => defineOp({ name: 'thrice', inputs: 1, dtypes: ['f32'] } as never),
    /defineOp "thrice": an elementwise op has `cpu`/,
  ],
  'a name before the definition of an op': [
    () => (defineOp as (...a: unknown[]) => unknown)('twice', {}),
    /defineOp: takes an object with the op's name, inputs and functions, not a string/,
  ],
};
for (const [name, [call, says]] of Object.entries(REFUSED))
  test(`${name}: refused by name`, () => assert.throws(call, says));

test('a number is assigned to every element, of a view too', () => {
  const z = zeros([2, 2]);
  z.at(0).assign(5);
  assert.deepEqual(z.toArray(), [
    [5, 5],
    [0, 0],
  ]);
});

test("JSON of a tensor is its arrays, and an object's tensors load as a map's do", () => {
  assert.equal(JSON.stringify({ y: tensor([[1, 2]]) }), '{"y":[[1,2]]}');
  const layer = new nn.Linear(1, 1);
  assert.deepEqual(layer.loadStateDict({ weight: tensor([[3]]), bias: tensor([4]) }), { missing: [], unexpected: [] });
  assert.deepEqual(layer.forward(tensor([2])).toArray(), [10]);
});

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

const linear = (): nn.Linear => new nn.Linear(2, 2);
const ANSWERS: Readonly<Record<string, readonly [() => unknown, RegExp]>> = {
  lr: [() => new nn.SGD(linear().parameters(), { lr: 0.1 } as never), /"lr"; here it is learningRate;/],
  betas: [() => new nn.Adam(linear().parameters(), { betas: [0.9, 0.99] } as never), /here it is \{ beta1, beta2 \}/],
  weight_decay: [() => new nn.Adam(linear().parameters(), { weight_decay: 1 } as never), /here it is weightDecay;/],
  numLayers: [() => new nn.GRU(2, 2, { numLayers: 2 } as never), /here it is layers;/],
  batchFirst: [() => new nn.GRU(2, 2, { batchFirst: true } as never), /here it is always so;/],
  isCausal: [() => randn([1, 1, 2, 2]).sdpa(x, x, { isCausal: true } as never), /here it is causal;/],
  'a word that is no option there': [() => zeros([1, 1, 4]).maxPool1d(2, { lr: 1 } as never), /"lr"; known are/],
  'dtype float32': [() => zeros([1], { dtype: 'float32' as never }), /unknown dtype "float32"; here it is 'f32'/],
  'device float16': [() => zeros([1]).to('float16' as never), /a dtype is x\.cast\('f16'\)/],
  'model.half': [
    () => (linear() as unknown as { half(): void }).half(),
    /model\.half: here it is model\.to\(undefined/,
  ],
  'model.zero_grad': [() => (linear() as unknown as { zero_grad(): void }).zero_grad(), /tensors keep none/],
  'x.bool': [() => (x as unknown as { bool(): void }).bool(), /x\.bool: here it is x\.ne\(0\)/],
  'x.maskedFill_': [() => (x as unknown as { maskedFill_(): void }).maskedFill_(), /x\.assign\(x\.maskedFill/],
  'noGrad()': [() => noGrad(undefined as never), /noGrad: takes a function/],
  'ModuleList of arguments': [() => new nn.ModuleList(linear() as never), /ModuleList: takes a list of modules/],
  'addLora without targets': [() => nn.addLora(linear(), { rank: 2 } as never), /addLora: targets are a list/],
  'loadStateDict(dict, false)': [
    () => linear().loadStateDict(linear().stateDict(), false as never),
    /loadStateDict: false stands where options do/,
  ],
  'classes of a list': [() => zeros([2, 3]).crossEntropy([0, 1] as never), /tensor\(list\) makes a tensor of a list/],
  'probabilities beyond 1': [
    () => nn.losses.bce(tensor([0.5, 1.25]), tensor([0, 1])),
    /bce: 1\.25 is no probability from 0 to 1; bceWithLogits takes any number/,
  ],
  'a probability that is NaN': [() => nn.losses.bce(tensor([NaN]), tensor([1])), /bce: NaN is no probability/],
  'classes second': [
    () => zeros([2, 5, 4]).crossEntropy(zeros([2, 4]).cast('i64')),
    /x\.transpose\(1, -1\) puts them last/,
  ],
};
for (const [what, [act, says]] of Object.entries(ANSWERS))
  test(`PyTorch's way is answered with ours: ${what}`, () => assert.throws(act, says));

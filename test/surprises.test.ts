// What a user who knows PyTorch writes first and means something else here: it is refused in a sentence.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { TensorDataset } from '../src/data/index.js';
import * as nn from '../src/nn/index.js';
import { arange, defineOp, noGrad, randn, type Tensor, tensor, zeros } from '../src/index.js';
import { missingAddresses } from '../scripts/check-publish.js';
import { parameterCount } from '../src/tensor/parameter-count.js';

const ids = (...values: number[]) => tensor(values, { dtype: 'i64' });
const x = arange(24).reshape([2, 3, 4]);

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

test('a package without public addresses is not published', () => {
  assert.deepEqual(missingAddresses({}), ['repository', 'homepage', 'bugs']);
  const at = 'https://example.org/wick';
  assert.deepEqual(missingAddresses({ repository: { type: 'git', url: at }, homepage: at, bugs: { url: '' } }), [
    'bugs',
  ]);
});

/** Calls that look right to someone who knows PyTorch, and what is said to them. */
const REFUSED: Readonly<Record<string, readonly [call: () => unknown, says: RegExp]>> = {
  'options where keepdim stands': [
    () => x.std(1, { correction: 0 } as never),
    /std: keepdim is object, not true or false/,
  ],
  'options where keepdim stands, of a sum': [
    () => x.sum(1, { keepdim: true } as never),
    /sum: keepdim is object, not true or false/,
  ],
  'a tensor where dimensions stand': [
    () => x.max(x as never),
    /max: dimensions are a whole number or a list of them, not a tensor/,
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
    /Linear: takes two sizes, or a weight that is there, not string/,
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

// What would be ignored, or taken for something else, without a word in wick/nn: refused by name where it is given.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import * as nn from '../src/nn/index.js';
import { ArgumentError, randn, type Tensor, tensor, zeros } from '../src/index.js';

const ids = (...values: number[]) => tensor(values, { dtype: 'i64' });

const fresh = (): nn.SGD => new nn.SGD([zeros([2], { requiresGrad: true })], { learningRate: 1 });

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

for (const [call, [act, says]] of Object.entries(IGNORED))
  test(`not ignored: ${call}`, () => assert.throws(act, (e) => e instanceof ArgumentError && says.test(e.message)));

test('numbers that would be taken without a word: probabilities as text, epsilons, lengths, scales', () => {
  assert.throws(() => new nn.Dropout('0.5' as never), /Dropout: probability "0.5" is not/);
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

test('recurrent layers name what does not fit: features, states', () => {
  const lstm = new nn.LSTM(3, 4, { layers: 2 });
  const x = randn([2, 5, 3], { seed: 1 });
  assert.throws(() => lstm.forward(x.narrow(2, 0, 2)), /LSTM: \[2, 5, 2\] has 2 features, and its inputs are 3/);
  assert.throws(() => lstm.run(x, { h: zeros([2, 2, 4]) } as never), /LSTM: a state is \{ h, c \}.*c is undefined/);
  const state = { h: zeros([2, 3, 4]), c: zeros([2, 3, 4]) };
  assert.throws(() => lstm.run(x, state), /h of the state is \[2, 3, 4\], not \[2, 2, 4\]/);
  lstm.run(x, lstm.run(x).state);
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

test('convolutions and pools refuse strides, paddings, dilations, sizes and groups where they are made', () => {
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
});

test('norms, shuffles, resizing and attention refuse sizes, eps, modes and shares where they are made', () => {
  assert.throws(() => new nn.LayerNorm(3, { eps: '1' as never }), /LayerNorm: eps "1" is not a finite number from 0/);
  assert.throws(() => new nn.RmsNorm(3, { eps: -1 }), /RmsNorm: eps -1 is not a finite number from 0/);
  assert.throws(() => new nn.RmsNorm(0), /RmsNorm: size 0 is not made of whole numbers from 1/);
  assert.throws(() => new nn.GroupNorm(1, 2, { eps: NaN }), /GroupNorm: eps NaN is not a finite number from 0/);
  assert.throws(() => new nn.InstanceNorm2d(2, { eps: -1 }), /InstanceNorm2d: eps -1 is not a finite number from 0/);
  assert.throws(() => new nn.PixelShuffle(0), /PixelShuffle: factor 0 is not made of whole numbers from 1/);
  assert.throws(() => new nn.PixelUnshuffle(1.5), /PixelUnshuffle: factor 1.5 is not made of whole numbers from 1/);
  assert.throws(() => new nn.ChannelShuffle(0), /ChannelShuffle: groups 0 is not made of whole numbers from 1/);
  assert.throws(() => new nn.Upsample({ scale: 2, alignCorners: true }), /Upsample: alignCorners is for linear/);
  assert.throws(
    () => new nn.MultiheadAttention(4, 2, { dropout: 1 }),
    /MultiheadAttention: dropout 1 is not a number in/,
  );
  const share = '0.1' as never; // JavaScript would compare and divide by it as if it were a number
  assert.throws(() => new nn.GRU(2, 3, { dropout: share }), /GRU: dropout "0.1" is not a number in \[0, 1\)/);
  assert.throws(() => new nn.EMA(new nn.Linear(2, 2), { decay: share }), /EMA: decay "0.1" is not a number in/);
  const lora = { targets: 'all-linear', dropout: share } as const;
  assert.throws(() => nn.addLora(new nn.Sequential(new nn.Linear(2, 2)), lora), /addLora: dropout "0.1" is not/);
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

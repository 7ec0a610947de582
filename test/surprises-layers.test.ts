// What a user who knows PyTorch writes with layers: arguments in a row or by name, and what PyTorch answers.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import * as nn from '../src/nn/index.js';
import { manualSeed, randn, type Tensor, tensor, zeros } from '../src/index.js';

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

test('a probability of 0 or 1 has the gradient that PyTorch gives it', () => {
  const p = tensor([0, 0, 1, 1, 0.5]).requireGrad();
  const loss = nn.losses.bce(p, tensor([0, 1, 0, 1, 0.25]), { reduction: 'sum' });
  assert.ok(Math.abs(loss.item() - (200 + Math.log(2))) < 1e-4);
  assert.deepEqual(loss.backward().of(p).toArray(), [0, Math.fround(-1e12), Math.fround(1e12), 0, 1]);
});

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

test('a decoder layer’s tensors stand in PyTorch’s order, in state dicts and lists of parameters', () => {
  const layer = new nn.TransformerDecoderLayer(4, 2, { feedforward: 8 });
  const parts = [...layer.stateDict().keys()].map((name) => name.split('.')[0]);
  const order = ['self_attn', 'multihead_attn', 'linear1', 'linear2', 'norm1', 'norm2', 'norm3'];
  assert.deepEqual([...new Set(parts)], order);
  assert.equal(layer.parameters()[4], layer.multiheadAttn.inProjWeight);
  assert.equal(parts.length, 18);
});

// Quantized weights: QTensor, layers built from it, whole modules turned over, gradients through them.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { ArgumentError, Device, QTensor, randn, ShapeError, Tensor, tensor } from '../src/index.js';
import { Embedding, Linear, Module, QEmbedding, QLinear, quantize } from '../src/nn/index.js';
import { ggmlType } from '../src/base/blocks/types.js';
import { BLOCK_TYPES } from '../src/ops/quantized.js';

const close = (got: Tensor, want: Tensor, by: number, what: string): void => {
  const scale = Math.max(...(want.abs().flatten().toArray() as number[]));
  const worst = Math.max(...(got.sub(want).abs().flatten().toArray() as number[]));
  assert.ok(worst <= by * scale, `${what}: off by ${worst / scale} of the largest`);
};

for (const type of BLOCK_TYPES) {
  test(`${type}: exact products are those of the decoded weights, quick ones near them`, () => {
    const w = randn([24, 512], { seed: 3 });
    const x = randn([5, 512], { seed: 4 });
    const q = QTensor.quantize(w, type);
    assert.deepEqual(q.shape, [24, 512]);
    const want = x.matmul(q.dequantize().t());
    close(q.matmul(x), want, 2e-6, 'exact');
    close(q.matmul(x, { quick: true }), want, 0.012, 'quick');
    const ids = tensor(Uint32Array.of(3, 0, 23));
    assert.deepEqual(q.rows(ids).toArray(), q.dequantize().indexSelect(0, ids).toArray());
    assert.ok(q.error(w) < 0.35 && q.error(w) > 0, `${q.error(w)}`);
  });
}

for (const type of BLOCK_TYPES) {
  test(`${type}: quick products of whole numbers up to 127 are exact, by one row or many, of any blocks`, () => {
    const { block } = ggmlType(type);
    for (const [rows, length] of [1, 2, 9].flatMap((m) => [block, 9 * block, 1024].map((n) => [m, n]))) {
      const q = QTensor.quantize(randn([35, length], { seed: 3 }), type);
      const x = randn([rows, length], { seed: 4 }).mul(40).clamp(-127, 127).round().reshape([-1, 32]);
      x.narrow(1, 5, 1).assign(x.narrow(1, 5, 1).mul(0).add(127)); // so that 32 values are rounded to multiples of 1
      const whole = x.reshape([rows, length]);
      close(q.matmul(whole, { quick: true }), q.matmul(whole), 2e-6, `${rows} x ${length}`);
    }
  });
}

test(
  'f8_e4m3: products, experts, rows, joining and gradients are those of the decoded weights, one byte a ' + 'weight',
  () => {
    const w = randn([40, 256], { seed: 3 });
    const q = QTensor.quantize(w, 'f8_e4m3');
    assert.equal(q.type, 'F8_E4M3');
    assert.equal(q.bytes, 40 * 256 + 40 * 2 * 4);
    assert.ok(q.error(w) > 0.01 && q.error(w) < 0.04, `${q.error(w)}`);
    const values = q.dequantize();
    const x = randn([5, 256], { seed: 4 }).requireGrad();
    close(q.matmul(x), x.matmul(values.t()), 1e-6, 'product');
    assert.deepEqual(q.matmul(x, { quick: true }).toArray(), q.matmul(x).toArray(), 'nothing is rounded');
    const grads = q.matmul(x).sum().backward();
    close(grads.get(x) as Tensor, values.sum([0], true).broadcastTo([5, 256]), 1e-5, 'gradient');
    const ids = tensor(Uint32Array.of(3, 0, 39));
    assert.deepEqual(q.rows(ids).toArray(), values.indexSelect(0, ids).toArray());
    const other = QTensor.quantize(randn([40, 256], { seed: 5 }), 'f8_e4m3');
    const both = QTensor.cat([q, other]);
    assert.deepEqual(both.dequantize().toArray(), values.cat([other.dequantize()], 0).toArray());
    const turned = q.mapRows((t) => t.indexSelect(0, ids));
    assert.deepEqual(turned.dequantize().toArray(), values.indexSelect(0, ids).toArray());
    const experts = QTensor.stack([q, other]);
    assert.deepEqual(experts.shape, [2, 40, 256]);
    for (const tokens of [3, 70]) {
      const chosen = tensor(
        Uint32Array.from({ length: tokens }, (_, i) => (i * 5 + 1) % 2),
        { shape: [tokens, 1] },
      );
      const given = randn([tokens, 1, 256], { seed: 6 });
      const want = given.matmul(
        experts
          .dequantize()
          .indexSelect(0, chosen.reshape([-1]))
          .t(),
      );
      close(experts.matmulExperts(given, chosen), want, 1e-6, `${tokens} tokens`);
    }
    const mixed = QTensor.cat([q, QTensor.quantize(w, 'q8_0')]);
    assert.equal(mixed.type, 'F8_E4M3+Q8_0');
    assert.equal(mixed.matmul(x.detach()).shape[1], 80);
    assert.throws(() => QTensor.quantize(randn([4, 96]), 'f8_e4m3'), ShapeError);
    assert.throws(() => QTensor.fromFloat8(values.cast('f8e4m3'), values), ShapeError);
    assert.throws(() => QTensor.stack([q, QTensor.quantize(w, 'q8_0')]), /types differ/);
  },
);

test('f8_e4m3: a module keeps its 8-bit floats when it is cast, saved and loaded', () => {
  const layer = new Linear(randn([16, 128], { seed: 1 }), randn([16], { seed: 2 }));
  const x = randn([3, 128], { seed: 7 });
  const holder = new (class extends Module {
    layer = layer;
  })();
  const { changed } = quantize(holder, 'f8_e4m3', { product: { quick: true } });
  assert.deepEqual([changed, layer.product.quick], [['layer'], false]);
  const want = layer.forward(x);
  const weight = layer.weight as unknown as QTensor;
  const before = weight.dequantize().toArray();
  holder.to(undefined, 'bf16');
  assert.deepEqual(weight.dequantize().toArray(), before);
  close(layer.forward(x.cast('bf16')).cast('f32'), want, 0.02, 'in bf16');
  assert.deepEqual([...holder.stateDict().keys()].sort(), [
    'layer.bias',
    'layer.weight.F8_E4M3',
    'layer.weight.F8_E4M3.scales',
  ]);
});

test('a QTensor says what it is and refuses what does not fit', () => {
  const q = QTensor.quantize(randn([4, 64], { seed: 1 }), 'q8_0');
  assert.equal(q.bytes, 4 * 2 * 34);
  assert.match(String(q), /^QTensor Q8_0 \[4, 64\] on cpu, 272 bytes$/);
  assert.throws(() => QTensor.quantize(randn([4, 60], { seed: 1 }), 'q8_0'), ShapeError);
  assert.throws(() => QTensor.fromBytes('Q8_0', [4, 64], new Uint8Array(271)), ShapeError);
  assert.throws(() => QTensor.fromBytes('IQ1_S', [1, 256], new Uint8Array(50)), /IQ1_S are not computed with/);
  assert.throws(() => q.matmul(randn([2, 32], { seed: 1 })), /inner dimensions differ/);
  assert.throws(() => new QTensor([]), ArgumentError);
});

test('parts of several types join into one product', () => {
  const [a, b, c] = [4, 6, 2].map((rows, i) => randn([rows, 256], { seed: 10 + i }));
  const parts = [QTensor.quantize(a, 'q4_k'), QTensor.quantize(b, 'q4_k'), QTensor.quantize(c, 'q6_k')];
  const joined = QTensor.cat(parts);
  assert.deepEqual([joined.shape, joined.parts.length, joined.type], [[12, 256], 2, 'Q4_K+Q6_K']);
  const x = randn([3, 256], { seed: 20 });
  const want = parts[0].matmul(x).cat([parts[1].matmul(x), parts[2].matmul(x)], -1);
  assert.deepEqual(joined.matmul(x).toArray(), want.toArray());
  assert.throws(() => joined.rows(tensor(Uint32Array.of(0))), /several types/);
});

test('experts: each token meets the weights of those chosen for it', () => {
  const w = randn([3, 8, 64], { seed: 5 });
  const q = QTensor.quantize(w, 'q8_0');
  const x = randn([4, 1, 64], { seed: 6 });
  const ids = tensor(Uint32Array.of(0, 2, 1, 1, 2, 0, 0, 1), { shape: [4, 2] });
  const y = q.matmulExperts(x, ids);
  const plain = q.dequantize();
  for (let t = 0; t < 4; t++)
    for (let j = 0; j < 2; j++) {
      const expert = Number(ids.at(t, j).item());
      close(y.at(t, j), x.at(t).matmul(plain.at(expert).t()).squeeze(0), 2e-6, `token ${t}, choice ${j}`);
    }
});

test('gradients flow to activations, so that adapters train on quantized weights', () => {
  const q = QTensor.quantize(randn([6, 64], { seed: 7 }), 'q4_0');
  const x = randn([3, 64], { seed: 8 }).requireGrad();
  const grads = q.matmul(x).sqr().sum().backward();
  const y = x.detach().requireGrad();
  const want = y.matmul(q.dequantize().t()).sqr().sum().backward();
  close(grads.of(x), want.of(y), 1e-5, 'gradient');
});

class Net extends Module {
  embed = new Embedding(randn([16, 64], { seed: 30 }));
  first = new Linear(randn([32, 64], { seed: 31 }), randn([32], { seed: 32 }));
  odd = new Linear(randn([4, 33], { seed: 33 }));
  layers = [new Linear(randn([64, 32], { seed: 34 }))];
  head = new Linear(this.embed.weight);
  forward(ids: Tensor): Tensor {
    return this.head.forward(this.layers[0].forward(this.first.forward(this.embed.forward(ids)).relu()));
  }
}

test('a module turned over keeps its answers, its ties and what does not fit', () => {
  const net = new Net();
  const ids = tensor(Uint32Array.of(1, 7, 15));
  const want = net.forward(ids);
  const report = quantize(net, 'q8_0');
  assert.deepEqual(report.changed, ['embed', 'first', 'layers.0', 'head']);
  assert.deepEqual(
    report.kept.map((k) => k.name),
    ['odd'],
  );
  assert.match(report.kept[0].why, /33 values are not whole blocks of Q8_0/);
  assert.equal(net.embed.weight as unknown, net.head.weight as unknown);
  close(net.forward(ids), want, 0.02, 'logits');
  assert.deepEqual(
    [...net.stateDict().keys()].filter((k) => k.startsWith('first')),
    ['first.weight.Q8_0', 'first.bias'],
  );
  assert.ok(!net.namedParameters().has('first.weight.Q8_0'));
  net.to(Device.reference());
  close(net.forward(ids.to('reference')).to('cpu'), want, 0.02, 'on another device');
});

test('layers are built from quantized weights directly', () => {
  const l = new Linear(randn([8, 32], { seed: 40 }), randn([8], { seed: 41 }));
  const x = randn([2, 32], { seed: 42 });
  close(QLinear.from(l, 'q8_0').forward(x), l.forward(x), 0.02, 'linear');
  const e = new Embedding(randn([8, 32], { seed: 43 }).cast('f16'));
  const rows = QEmbedding.from(e, 'q8_0').forward(tensor(Uint32Array.of(2, 5)));
  assert.equal(rows.dtype, 'f16');
  close(rows.cast('f32'), e.forward(tensor(Uint32Array.of(2, 5))).cast('f32'), 0.02, 'embedding');
});

/** Activations as quick products see them. */
function roundedRows(x: Tensor): Tensor {
  const groups = x.reshape([x.shape[0], -1, 32]);
  const scale = groups
    .abs()
    .max([2], true)
    .affine(1 / 127, 0);
  return groups.div(scale).round().mul(scale).reshape(x.shape);
}
for (const device of ['sim:32', 'sim:64'])
  for (const [type, rows, width, columns] of [
    ['Q8_0', 150, 2080, 1],
    ['Q4_0', 70, 2080, 8],
    ['MXFP4', 67, 2080, 3],
    ['MXFP4', 67, 2080, 1],
    ['MXFP4', 41, 4608, 1],
    ['Q6_K', 71, 4352, 1],
    ['Q3_K', 20, 4352, 4],
    ['Q5_K', 141, 2304, 1],
    ['Q4_K', 37, 2304, 6],
    ['Q8_0', 6, 40960, 2],
  ] as const)
    test(
      `${type} ${rows} x ${width} by ${columns} on ${device}: rows from any byte on, several tiles and ` + 'passes',
      () => {
        const w = randn([rows, width], { seed: 3 });
        const x = randn([columns, width], { seed: 4 });
        const q = QTensor.quantize(w, type);
        const want = roundedRows(x.cast('f64')).matmul(q.dequantize('f64').t()).cast('f32');
        close(q.to(device).matmul(x.to(device), { quick: true }).to('cpu'), want, 2e-5, 'quick');
      },
    );

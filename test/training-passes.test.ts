// A training step's passes over long vectors: on GPUs one kernel each, held against the ops they are made of.
import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { Device, type DType, Generator, noGrad, rand, randn, scope, tensor, type Tensor } from '../src/index.js';
import { AdamW, dropout, Embedding, FlatParameters, gradNorm, Linear, losses, Module } from '../src/nn/index.js';
import {
  adamInPlace,
  addedProduct,
  biasedProduct,
  classLosses,
  hasClassLosses,
  squaredNorm,
  trainedNorm,
  trainedSwiglu,
} from '../src/tensor/training.js';
import { trainedAttention } from '../src/tensor/trained-attention.js';

const DEVICES = ['sim:32', 'sim:64', 'emu:gfx1030'];
const list = (t: Tensor): Float32Array => t.cast('f32').to(Device.cpu()).dataSync() as Float32Array;
function near(got: Float32Array, want: Float32Array, by: number, what: string): void {
  assert.equal(got.length, want.length);
  const size = want.reduce((m, x) => Math.max(m, Math.abs(x)), 0);
  got.forEach((x, i) => assert.ok(Math.abs(x - want[i]) <= by * size, `${what}, element ${i}: ${x}, not ${want[i]}`));
}

for (const name of DEVICES) {
  const device = Device.get(name);
  describe(name, () => {
    for (const dtype of ['f32', 'bf16', 'f16'] as const)
      test(`losses of class numbers and the logits' gradient, ${dtype}`, () => {
        assert.ok(hasClassLosses(device, dtype));
        for (const [rows, classes] of [
          [3, 1048],
          [5, 77],
        ])
          for (const smoothing of [0, 0.1])
            scope(() => {
              const x = randn([rows, classes], { seed: 1, device: Device.cpu() }).affine(3, 0).cast(dtype);
              const ids = tensor(
                BigInt64Array.from({ length: rows }, (_, i) => (i === 1 ? -7n : BigInt((i * 31) % classes))),
              );
              const apart = x.cast('f32').requireGrad();
              const want = apart.crossEntropy(ids, { ignoreIndex: -7, labelSmoothing: smoothing, reduction: 'sum' });
              const logits = x.to(device).copy();
              const how = { ignore: -7, smoothing };
              const alone = classLosses(logits, ids.to(device), { ...how, grad: false });
              near(list(alone.sum().reshape([1])), list(want.reshape([1])), 1e-5, 'without a gradient');
              const each = classLosses(logits, ids.to(device), { ...how, grad: true });
              assert.deepEqual(list(each), list(alone));
              assert.equal(list(each)[1], 0, 'what is ignored has no loss');
              near(list(logits), list(want.backward().of(apart)), dtype === 'f32' ? 1e-5 : 1 / 128, 'gradient');
            });
      });
    test('an id that is no class is told of when results are read', () => {
      const logits = randn([2, 40], { seed: 1, device });
      const ids = tensor(BigInt64Array.of(3n, 40n), { device });
      const each = classLosses(logits, ids, { ignore: -100, smoothing: 0, grad: false });
      assert.throws(() => each.dataSync(), /classLosses: an index was out of range/);
    });
    for (const dtype of ['f32', 'bf16', 'f16'] as const)
      test(`cross-entropy and its gradient in a pass each are those of the op, ${dtype}`, () => {
        const [rows, classes] = [6, 301];
        const draw = (shape: number[], seed: number): Tensor => randn(shape, { seed, device: Device.cpu() });
        const x = draw([2, rows / 2, classes], 1)
          .affine(3, 0)
          .cast(dtype);
        const ids = tensor(
          BigInt64Array.from({ length: rows }, (_, i) => (i === 1 ? -7n : BigInt((i * 31) % classes))),
        );
        const target = ids.reshape([2, rows / 2]);
        const weight = draw([classes], 2).sqr();
        for (const reduction of ['mean', 'sum', 'none'] as const)
          for (const how of [{ labelSmoothing: 0.1 }, { weight }, {}]) {
            const options = { ...how, reduction, ignoreIndex: -7 };
            const apart = x.cast('f32').copy().requireGrad();
            const logits = x.to(device).copy().requireGrad();
            const there = 'weight' in how ? { ...options, weight: weight.to(device) } : options;
            const want = apart.crossEntropy(target, options);
            const got = losses.crossEntropy(logits, target.to(device), there);
            if (reduction === 'mean' && dtype === 'f32') assert.equal(got.node?.row.name, 'crossEntropyLoss');
            assert.deepEqual([got.dtype, got.shape], [dtype, want.shape]);
            const by = dtype === 'f32' ? 1e-5 : 1 / 128;
            near(list(got.flatten()), list(want.flatten()), by, reduction);
            const [a, b] = [got, want].map((t) => t.cast('f32').sqr().sum());
            const slopes = a.backward({ createGraph: true }).of(logits);
            const expected = b.backward({ createGraph: true }).of(apart);
            near(list(slopes.flatten()), list(expected.flatten()), by, `${reduction}, gradient of the graph`);
            const plain = losses.crossEntropy(logits, target.to(device), there).cast('f32').sqr().sum();
            near(list(plain.backward().of(logits).flatten()), list(expected.flatten()), by, `${reduction}, gradient`);
            if (dtype === 'f32')
              near(
                list(slopes.sqr().sum().backward().of(logits).flatten()),
                list(expected.sqr().sum().backward().of(apart).flatten()),
                1e-4,
                `${reduction}, gradient of the gradient`,
              );
          }
        const none = losses.crossEntropy(x.to(device).requireGrad(), target.to(device).zerosLike(), { ignoreIndex: 0 });
        assert.ok(Number.isNaN(none.item()), 'a mean of nothing');
      });
    for (const rows of [5, 20_000])
      test(`the loss of ${rows} rows of log-probabilities in one go is that of the op`, () => {
        const x = randn([rows, 7], { seed: 1, device: Device.cpu() }).logSoftmax(1);
        const ids = tensor(BigInt64Array.from({ length: rows }, (_, i) => (i % 5 === 1 ? 3n : BigInt(i % 7))));
        const weight = tensor(Float32Array.of(1, 0.5, 2, NaN, 0, 3, 1));
        for (const options of [{ ignoreIndex: 3 }, { ignoreIndex: 3, weight }, { reduction: 'sum' as const }]) {
          const there = 'weight' in options ? { ...options, weight: weight.to(device) } : options;
          const got = noGrad(() => losses.nll(x.to(device), ids.to(device), there));
          near(list(got.reshape([1])), list(x.nll(ids, options).reshape([1])), 2e-6, JSON.stringify(options));
        }
        const wrong = tensor(
          BigInt64Array.from({ length: rows }, (_, i) => (i === rows - 1 ? 7n : 0n)),
          { device },
        );
        const loss = noGrad(() => losses.nll(x.to(device), wrong));
        assert.throws(() => loss.item(), /nllLoss: an index was out of range/);
      });
    for (const dtype of ['f32', 'bf16', 'f16', 'f64'] as const)
      test(`what is dropped is what rand() would drop, in the gradient too; draws go on behind it, ${dtype}`, () => {
        for (const [n, offset] of [
          [5000, 0],
          [5001, 3],
        ]) {
          const x = randn([n], { seed: 1, device }).cast(dtype).requireGrad();
          const by = randn([n], { seed: 2, device }).cast(dtype);
          const [one, apart] = [new Generator(7, offset), new Generator(7, offset)];
          const got = dropout(x, 0.3, one);
          const want = x.dropout(0.3, rand([n], { device, generator: apart }));
          assert.equal(got.node?.row.name, 'droppedOut');
          assert.deepEqual(list(got), list(want));
          assert.equal(one.offset, apart.offset);
          const [a, b] = [got, want].map((y) => y.mul(by).sum().backward({ createGraph: true }).of(x));
          assert.deepEqual(list(a), list(b));
          const share = x.detach().sigmoid();
          const [hits, drawn] = [new Generator(9, offset), new Generator(9, offset)];
          const happens = share.bernoulli({ generator: hits });
          const u = rand([n], { device, generator: drawn, dtype: dtype === 'f64' ? 'f64' : 'f32' });
          assert.deepEqual(list(happens), list(u.lt(share.cast(u.dtype)).cast('f32')));
          assert.equal(hits.offset, drawn.offset);
          for (const wrong of [-0.25, 1.5, NaN])
            assert.throws(
              () =>
                share
                  .narrow(0, 1, 20)
                  .cat([share.affine(0, wrong)], 0)
                  .bernoulli({ generator: hits }),
              {
                code: 'E_ARGUMENT',
              },
            );
          assert.equal(hits.offset, drawn.offset, 'what is refused draws nothing');
        }
        assert.throws(() => dropout(randn([3], { device }), 1.5), /dropout: probability 1.5/);
      });
    for (const dtype of ['f32', 'bf16', 'f16', 'f64'] as const)
      test(`an index drawn from each row is the one that its ops draw, ${dtype}`, () => {
        for (const [rows, n, offset] of [
          [3, 35, 0],
          [5, 6001, 3],
          [1, 20_011, 8],
        ]) {
          const x = rand([rows, n], { seed: 4, device: Device.cpu() }).affine(1, -0.4).relu().cast(dtype);
          const [here, there] = [new Generator(5, offset), new Generator(5, offset)];
          const [got, want] = [
            x.to(device).multinomial(1, { generator: here }),
            x.multinomial(1, { generator: there }),
          ];
          assert.deepEqual(got.shape, [rows, 1]);
          assert.deepEqual([...got.dataSync()], [...want.dataSync()]);
          assert.equal(here.offset, there.offset);
          for (const wrong of [x.affine(0, 0), x.affine(-1, 0), x.affine(NaN, 0)])
            assert.throws(() => wrong.to(device).multinomial(1, { generator: here }), { code: 'E_ARGUMENT' });
          assert.equal(here.offset, there.offset);
        }
      });
    for (const dtype of ['f32', 'bf16', 'f16'] as const)
      test(`the sum of squares, ${dtype}`, () => {
        for (const n of [1, 1000, 70_001]) {
          const x = randn([n], { seed: 2, device }).cast(dtype);
          near(list(squaredNorm(x).reshape([1])), list(x.cast('f32').sqr().sum().reshape([1])), 1e-6, `${n} numbers`);
        }
      });
    test('a product that is trained adds its bias by itself, with the same gradients', () => {
      for (const dtype of ['f32', 'bf16'] as const) {
        const of = (shape: number[], seed: number): Tensor => randn(shape, { seed, device }).cast(dtype).requireGrad();
        const [x, w, b] = [of([2, 33, 16], 1), of([24, 16], 2), of([24], 3)];
        const one = biasedProduct(x, w, b) as Tensor;
        const apart = x.matmul(w.t()).add(b);
        const [got, want] = [one, apart].map((t) => [
          t,
          ...[x, w, b].map((p) => t.sqr().sum().backward({ retainGraph: true }).of(p)),
        ]);
        got.forEach((t, i) => near(list(t), list(want[i]), dtype === 'f32' ? 1e-5 : 1 / 64, `${dtype}, result ${i}`));
        assert.equal(
          noGrad(() => biasedProduct(x, w, b)),
          undefined,
          'what only runs rounds as it always did',
        );
        assert.equal(biasedProduct(x.narrow(1, 0, 2), w, b), undefined, 'few rows have kernels of their own');
      }
    });
    test('norms and gated products that are trained have the gradients of their ops', () => {
      for (const dtype of ['f32', 'bf16', 'f16'] as const)
        for (const [rows, n] of [
          [70, 64],
          [5, 36],
        ]) {
          const of = (shape: number[], seed: number): Tensor =>
            randn(shape, { seed, device }).cast(dtype).requireGrad();
          const [x, w, b, g] = [of([2, rows, n], 1), of([n], 2), of([n], 3), of([2, rows, n], 4)];
          const half = of([2, rows, n / 2], 5);
          const cases: readonly (readonly [string, Tensor | undefined, Tensor, readonly Tensor[], Tensor])[] = [
            ['layer', trainedNorm('layer', x, w, b, 1e-5), x.layerNorm(w, b), [x, w, b], g],
            ['layer without a bias', trainedNorm('layer', x, w, undefined, 1e-5), x.layerNorm(w), [x, w], g],
            ['rms', trainedNorm('rms', x, w, undefined, 1e-5), x.rmsNorm(w), [x, w], g],
            ['swiglu', trainedSwiglu(x), x.swiglu(), [x], half],
          ];
          for (const [what, one, apart, inputs, grad] of cases) {
            assert.ok(one, what);
            assert.deepEqual(list(one), list(apart), what);
            const [got, want] = [one, apart].map((t) => t.backward({ grad: grad.detach() }));
            for (const [i, t] of inputs.entries())
              near(
                list(got.of(t)),
                list(want.of(t)),
                dtype === 'f32' ? 2e-5 : 1 / 64,
                `${what} ${dtype}, gradient ${i}`,
              );
          }
          // What flows past a norm is added where its own gradient is made.
          const past = [trainedNorm('rms', x, w, undefined, 1e-5) as Tensor, x.rmsNorm(w)].map((y) =>
            x.mul(g.detach()).add(y),
          );
          const sums = past.map((y) => y.backward({ grad: g.detach() }));
          for (const [i, t] of [x, w].entries())
            near(
              list(sums[0].of(t)),
              list(sums[1].of(t)),
              dtype === 'f32' ? 2e-5 : 1 / 64,
              `past ${dtype}, gradient ${i}`,
            );
          // Gradients of gradients go through the ops.
          const first = (y: Tensor): Tensor => y.sqr().sum().backward({ createGraph: true }).of(x).sqr().sum();
          const again = [trainedSwiglu(x) as Tensor, x.swiglu()].map((y) => first(y).backward().of(x));
          near(list(again[0]), list(again[1]), dtype === 'f32' ? 1e-5 : 1 / 16, 'twice');
        }
    });
    test('heads that are part of wider rows are turned where they lie, columns are added up in packs', () => {
      for (const dtype of ['f32', 'bf16'] as const) {
        const wide = randn([2, 5, 7, 16], { seed: 3, device }).cast(dtype);
        const [cos, sin] = [randn([5, 8], { seed: 4, device }), randn([5, 8], { seed: 5, device })].map((t) =>
          t.cast(dtype),
        );
        const part = wide.narrow(2, 2, 3);
        assert.deepEqual(list(part.ropeThd(cos, sin)), list(part.copy().ropeThd(cos, sin)));
        for (const [rows, columns] of [
          [3, 8],
          [700, 24],
          [129, 520],
        ]) {
          const x = randn([rows, columns], { seed: 6, device: Device.cpu() }).cast(dtype);
          for (const op of ['sum', 'mean', 'max'] as const)
            near(list(x.to(device)[op](0)), list(x[op](0)), dtype === 'f32' ? 1e-6 : 1 / 256, `${op} ${rows}`);
        }
      }
    });
    test("Adam's step in place is the one of its ops, whatever dtype gradients and the copy have", () => {
      const rates = { beta1: 0.9, beta2: 0.99, shrink: 0.999, rate: 0.01, eps: 1e-8 };
      for (const gradType of ['f32', 'bf16', 'f16'] as const)
        for (const copyType of [undefined, 'bf16', 'f16'] as const)
          for (const [n, offset] of [
            [1003, 0],
            [64, 1],
          ])
            scope(() => {
              const of = (seed: number): Tensor => randn([n + offset], { seed, device }).narrow(0, offset, n);
              const [p, m, v] = [of(1), of(2), of(3).sqr().cat([], 0)];
              const grad = of(4).cast(gradType);
              const scale = tensor([0.5], { device }).reshape([]);
              const copy = copyType && randn([n], { device }).cast(copyType);
              const g = grad.cast('f32').mul(scale);
              const [m2, v2] = [m.ema(g, 0.9), v.emaSqr(g, 0.99)];
              const p2 = p.affine(0.999, 0).adamStep(m2, v2, 0.01, 1e-8);
              const want = [p2, m2, v2].map(list);
              assert.ok(adamInPlace({ p, m, v, grad, scale, ...(copy && { copy }) }, rates));
              [p, m, v].forEach((t, i) => near(list(t), want[i], 1e-6, `${gradType} ${n}, result ${i}`));
              if (copy) assert.deepEqual(list(copy), list(p.cast(copyType as DType)));
            });
    });
  });
}

class Net extends Module {
  table = new Embedding(7, 6);
  inner = new Linear(6, 5);
  unused = new Linear(2, 2);
  forward(ids: Tensor): Tensor {
    return this.inner.forward(this.table.forward(ids)).sqr().sum();
  }
}
for (const name of ['cpu', 'sim:32'])
  test(`a step from a loss is that of gathered gradients on ${name}`, () => {
    const device = Device.get(name);
    const made = (): { net: Net; flat: FlatParameters } => {
      const net = new Net();
      noGrad(() => net.replace((t) => randn(t.shape, { seed: t.size, device: Device.cpu() }).to(device).requireGrad()));
      return { net, flat: new FlatParameters(net, 'bf16') };
    };
    const ids = tensor(Int32Array.of(1, 2, 2, 5), { device });
    const [a, b] = [made(), made()];
    const [one, two] = [a, b].map(({ flat }) => new AdamW([flat.master], { learningRate: 0.1 }));
    for (let step = 0; step < 3; step++)
      scope(() => {
        const norm = a.flat.backwardStep(a.net.forward(ids), one, { clipNorm: 0.5 }) as Tensor;
        const grads = b.flat.gather(b.net.forward(ids).backward());
        const size = gradNorm([grads]);
        near(list(norm.reshape([1])), list(size.reshape([1])), 1e-5, 'norm');
        b.flat.step(two, grads.affine(Math.min(1, 0.5 / (size.item() + 1e-6)), 0));
        near(list(a.flat.master), list(b.flat.master), 1e-5, `after step ${step}`);
        assert.deepEqual(list(a.net.table.weight), list(a.flat.master.cast('bf16')).slice(0, 42));
      });
    assert.throws(() => a.flat.backwardStep(a.net.forward(ids), one, { clip: 1 } as never), /clip/);
  });

for (const name of ['cpu', 'sim:32', 'sim:32+cublaslt'])
  test(`a product and a residual are ${name.includes('+') ? 'one pass' : 'two ops'} on ${name}`, () => {
    const device = Device.get(name);
    const like = (shape: number[], seed: number): Tensor => randn(shape, { seed, device }).requireGrad();
    const [sum, x, weight] = [like([4, 16, 24], 1), like([4, 16, 8], 2), like([24, 8], 3)];
    const g = randn([4, 16, 24], { seed: 4, device });
    const one = addedProduct(sum, x, weight);
    assert.equal(one !== undefined, name.includes('+'));
    if (!one) return;
    const apart = sum.add(x.matmul(weight.t()));
    near(list(one), list(apart), 1e-6, 'values');
    const [got, want] = [one, apart].map((t) => t.backward({ grad: g }));
    for (const t of [sum, x, weight]) near(list(got.of(t)), list(want.of(t)), 1e-6, 'gradient');
    assert.equal(addedProduct(sum.narrow(1, 0, 3), x.narrow(1, 0, 3), weight), undefined, 'few rows, not contiguous');
    noGrad(() => assert.equal(addedProduct(sum, x, weight), undefined, 'nothing is recorded'));
  });

for (const left of [-1, 2])
  for (const dtype of ['f32', 'bf16'] as const)
    test(
      `attention from a product of ${dtype} is that of its turned parts, ${left < 0 ? 'all' : left} tokens ` + 'back',
      () => {
        const device = Device.get('sim:32');
        const [b, t, heads, kvHeads, dim] = [2, 9, 4, 2, 16];
        const like = (shape: number[], seed: number): Tensor => randn(shape, { seed, device }).cast(dtype);
        const product = like([b, t, (heads + 2 * kvHeads) * dim], 1).requireGrad();
        const [cos, sin, g] = [like([t, dim / 2], 2), like([t, dim / 2], 3), like([b, t, heads * dim], 4)];
        const part = (from: number, n: number): Tensor =>
          product.narrow(2, from * dim, n * dim).reshape([b, t, n, dim]);
        const [q, k] = [part(0, heads), part(heads, kvHeads)].map((x) => x.ropeThd(cos, sin));
        const v = part(heads + kvHeads, kvHeads);
        const how = {
          layout: 'bthd',
          causal: true,
          scale: 0.3,
          ...(left >= 0 && { window: [left, 0] as const }),
        } as const;
        const apart = q.sdpa(k, v, how).reshape([b, t, heads * dim]);
        const one = trainedAttention(product, cos, sin, { heads, kvHeads, dim, scale: 0.3, left }) as Tensor;
        assert.deepEqual(list(one), list(apart));
        const [got, want] = [one, apart].map((y) => y.backward({ grad: g, retainGraph: true }).of(product));
        const by = dtype === 'f32' ? 1e-5 : 1 / 64;
        near(list(got), list(want), by, 'gradient');
        const twice = [one, apart].map((y) =>
          y.backward({ grad: g, createGraph: true }).of(product).sqr().sum().backward().of(product),
        );
        near(list(twice[0]), list(twice[1]), 2 * by, 'gradient of the gradient');
        noGrad(() =>
          assert.equal(trainedAttention(product, cos, sin, { heads, kvHeads, dim, scale: 1, left }), undefined),
        );
      },
    );

for (const name of ['cpu', 'sim:32'])
  test(`a weight's gradient is written where it is wanted, unless more than a product makes it, on ${name}`, () => {
    const device = Device.get(name);
    const like = (shape: number[], seed: number): Tensor => randn(shape, { seed, device }).requireGrad();
    // Square ones, so that no shape tells them from their transposes.
    const [x, turned, plain, twice] = [like([8, 8], 1), like([8, 8], 2), like([8, 8], 3), like([8, 8], 4)];
    const loss = (): Tensor => x.matmul(turned.t()).matmul(plain).matmul(twice).matmul(twice).sqr().sum();
    const want = loss().backward();
    const places = new Map([turned, plain, twice].map((t) => [t.id, t.zerosLike()] as const));
    const got = loss().backward({ place: (leaf) => places.get(leaf.id) });
    for (const t of [x, turned, plain, twice]) assert.deepEqual(list(got.of(t)), list(want.of(t)));
    const there = [turned, plain, twice].map((t) => got.of(t).storage === places.get(t.id)?.storage);
    assert.deepEqual(there, [true, true, false]);
    for (const t of [turned, plain]) assert.deepEqual(list(places.get(t.id) as Tensor), list(want.of(t)));
  });

test('parameters that were put into one block give their memory back when they are disposed of', () => {
  const device = Device.get('sim:32');
  const net = new Linear(64, 32, { device });
  const first = net.parameters();
  const flat = new FlatParameters(net, 'bf16');
  const before = device.memory().liveBytes;
  for (const t of first) t.dispose();
  assert.equal(before - device.memory().liveBytes, 4 * flat.size);
});

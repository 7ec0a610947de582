// Layers, builders, caches and what training needs: each does what its name says.
import assert from 'node:assert/strict';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test } from 'node:test';
import { inspect } from 'node:util';
import { Device, eye, Generator, noGrad, randn, scope, Tensor, zeros } from '../src/index.js';
import { saveTensors } from '../src/io/index.js';
import {
  activation,
  ACTIVATIONS,
  AdamW,
  batchNorm,
  BatchNorm,
  BatchNorm1d,
  clipGradNorm,
  Conv2d,
  cosineDecay,
  Dropout,
  EMA,
  embedding,
  fans,
  FlatParameters,
  flowSummary,
  GradAccumulator,
  GradScaler,
  GRU,
  gru,
  initialise,
  kaiming,
  KvCache,
  Layer,
  Lion,
  Linear,
  linear,
  loadCheckpoint,
  ModuleDict,
  lstm,
  normal,
  orthogonal,
  oneCycle,
  RotatingKvCache,
  saveCheckpoint,
  seq,
  Sequential,
  Softplus,
  SGD,
  stepDecay,
  VarBuilder,
  VarMap,
  warmup,
  truncatedNormal,
} from '../src/nn/index.js';

const near = (got: Tensor, want: Tensor, tolerance = 1e-5): void => {
  assert.deepEqual(got.shape, want.shape);
  const error = got.sub(want).abs().max().item();
  assert.ok(error <= tolerance, `off by ${error}`);
};
function inFolder(f: (dir: string) => void): void {
  const dir = mkdtempSync(join(tmpdir(), 'wick-nn-'));
  try {
    f(dir);
  } finally {
    rmSync(dir, { recursive: true });
  }
}
const net = (vb: VarBuilder): Sequential => seq(linear(4, 8, vb.pp('0')), (x) => x.tanh(), linear(8, 3, vb.pp('2')));

test('Softplus has the bend and the threshold of PyTorch', () => {
  const x = Tensor.from([-1, 0.5, 30]);
  for (const [layer, want] of [
    [new Softplus(2), [0.06346400082111359, 0.65663081407547, 30]],
    [new Softplus(1, 0.1), [0.3132616877555847, 0.5, 30]],
  ] as const)
    assert.ok(layer.forward(x).allclose(Tensor.from([...want]), { rtol: 1e-6 }));
});

test('a module knows its parameters by name, each once', () => {
  const vars = new VarMap();
  const model = net(VarBuilder.fromVarMap(vars));
  assert.deepEqual([...model.namedParameters().keys()], ['0.weight', '0.bias', '2.weight', '2.bias']);
  assert.deepEqual(vars.names(), ['0.weight', '0.bias', '2.weight', '2.bias']);
  assert.equal(model.parameterCount(), 4 * 8 + 8 + 8 * 3 + 3);
  const tied = new (class extends Layer {
    a = new Linear(vars.all()[0]);
    b = new Linear(vars.all()[0]);
    forward(x: Tensor): Tensor {
      return x;
    }
  })();
  assert.equal(tied.parameters().length, 1);
});

test("linear is x W' + b and the weight (out, in)", () => {
  const l = new Linear(
    Tensor.from([
      [1, 2],
      [3, 4],
      [5, 6],
    ]),
    Tensor.from([1, 0, -1]),
  );
  assert.deepEqual(l.forward(Tensor.from([[1, 1]])).toArray(), [[4, 7, 10]]);
  assert.deepEqual(l.forward(zeros([2, 5, 2])).shape, [2, 5, 3]);
});

test('a builder reads safetensors, npz and gguf files, renames, casts, and says what is missing', () =>
  inFolder((dir) => {
    const tensors = { 'a.weight': randn([3, 4], { seed: 1 }), 'a.bias': randn([3], { seed: 2 }) };
    for (const ending of ['safetensors', 'npz', 'gguf']) {
      const path = join(dir, `w.${ending}`);
      saveTensors(path, tensors);
      const vb = VarBuilder.fromFiles(path);
      near(linear(4, 3, vb.pp('a')).weight, tensors['a.weight'], 0);
      assert.equal(vb.withDType('bf16').get([3], 'a.bias').dtype, 'bf16');
      near(
        vb
          .rename((n) => n.replace('b.', 'a.'))
          .pp('b')
          .get([3], 'bias'),
        tensors['a.bias'],
        0,
      );
      near(vb.shard('a.weight', { dim: 1, rank: 1, worldSize: 2 }), tensors['a.weight'].narrow(1, 2, 2), 0);
      assert.throws(() => vb.get([3], 'c.bias'), /no tensor "c.bias" among 2; similar names: a.bias/);
      assert.throws(() => vb.get([4], 'a.bias'), /a.bias is \[3\], asked for as \[4\]/);
    }
  }));

test('a var map saves and loads what it made', () =>
  inFolder((dir) => {
    const [one, two] = [new VarMap(), new VarMap()];
    const [a, b] = [net(VarBuilder.fromVarMap(one)), net(VarBuilder.fromVarMap(two))];
    one.save(join(dir, 'm.safetensors'));
    two.load(join(dir, 'm.safetensors'));
    const x = randn([2, 4], { seed: 3 });
    near(a.forward(x), b.forward(x), 0);
  }));

test('batch norm learns statistics while training and uses them afterwards', () => {
  const bn = batchNorm(3, VarBuilder.fromVarMap(new VarMap()), { momentum: 0.25 });
  assert.equal(bn.parameters().length, 2);
  assert.equal(bn.stateDict().size, 5);
  const x = randn([8, 3, 4], { seed: 4, mean: 2 });
  const y = bn.forward(x);
  near(y.detach().mean([0, 2], false), zeros([3]), 1e-5);
  near(bn.runningMean, x.mean([0, 2], false).affine(0.25, 0));
  near(bn.runningVar, x.variance([0, 2], false, 1).affine(0.25, 0.75));
  bn.eval();
  near(
    bn.forward(x),
    x.sub(bn.runningMean.reshape([3, 1])).div(bn.runningVar.affine(1, 1e-5).sqrt().reshape([3, 1])),
    1e-5,
  );
});

test('a convolution absorbs the batch norm after it', () => {
  const conv = new Conv2d(randn([5, 2, 3, 3], { seed: 5 }), randn([5], { seed: 6 }), { padding: 1 });
  const bn = new BatchNorm(
    randn([5], { seed: 7 }),
    randn([5], { seed: 8 }).abs(),
    randn([5], { seed: 9 }),
    randn([5], { seed: 10 }),
  ).eval();
  const x = randn([1, 2, 6, 6], { seed: 11 });
  near(conv.absorbBatchNorm(bn).forward(x), bn.forward(conv.forward(x)), 1e-4);
});

test('dropout keeps the mean while training and does nothing otherwise', () => {
  const d = new Dropout(0.25, new Generator(1));
  const x = Tensor.from(new Float32Array(4096).fill(1));
  const y = d.forward(x);
  assert.ok(Math.abs(y.mean().item() - 1) < 0.05);
  const values = y.dataSync() as Float32Array;
  assert.deepEqual([...new Set(values)].sort(), [0, Math.fround(1 / 0.75)]);
  // Four standard deviations of a count of 4096 at 1/4.
  assert.ok(Math.abs(values.filter((v) => v === 0).length - 1024) < 4 * Math.sqrt(4096 * 0.25 * 0.75));
  assert.deepEqual(new Dropout(0.25, new Generator(1)).forward(x).dataSync(), values, 'the same seed drops the same');
  assert.notDeepEqual(new Dropout(0.25, new Generator(2)).forward(x).dataSync(), values, 'another seed drops others');
  assert.equal(d.eval().forward(x), x);
});

test('every activation has its name and a finite value', () => {
  const x = randn([3, 4], { seed: 1 });
  for (const name of ACTIVATIONS) assert.ok(Number.isFinite(activation(name)(x).sum().item()), name);
  const at = (name: string): number[] => activation(name)(Tensor.from([-2, 0.5, 30])).toArray() as number[];
  const near = (got: number[], want: number[]): void =>
    got.forEach((y, i) => assert.ok(Math.abs(y - want[i]) < 1e-6, `${y} is not ${want[i]}`));
  near(at('gelu_10'), [-0.0455003, 0.3457312, 10]);
  near(at('laplace'), [0, 0.2314211, 1]);
  assert.throws(() => activation('swosh'), /unknown name "swosh"; known are gelu/);
});

test('initialisers have the spread they promise', () => {
  assert.deepEqual(fans([8, 4, 3, 3]), { in: 36, out: 72 });
  const t = initialise(kaiming('normal'), [256, 128], { generator: new Generator(1) });
  assert.ok(Math.abs(t.std().item() - Math.sqrt(2 / 128)) < 0.005);
  const u = initialise(kaiming('uniform', 'linear'), [256, 128], { generator: new Generator(1) });
  assert.ok(u.abs().max().item() <= Math.sqrt(3 / 128) && u.abs().max().item() > 0.9 * Math.sqrt(3 / 128));
  assert.equal(
    embedding(10, 4, VarBuilder.fromVarMap(new VarMap()), normal(5, 0))
      .forward(Tensor.from([3], { dtype: 'u32' }))
      .mean()
      .item(),
    5,
  );
});

test('orthogonal weights keep lengths, and normal ones that are cut stay within', () => {
  const generator = new Generator(3);
  for (const [shape, rows] of [
    [[6, 4], false],
    [[4, 6], true],
    [[3, 2, 3, 3], true],
  ] as const) {
    const w = initialise(orthogonal(2), shape, { generator }).flatten(1);
    const gram = rows ? w.matmul(w.t()) : w.t().matmul(w);
    near(gram, eye(gram.dim(0)).mul(4));
  }
  assert.throws(() => initialise(orthogonal(), [4]), /^ArgumentError.*: takes two dimensions and more, not \[4\]/s);
  // Of a normal number between -1 and 2 deviations: PyTorch's own draws have mean 0.2297 and deviation 0.7209 (times 2).
  const cut = initialise(truncatedNormal(1, 2, -1, 5), [400, 500], { generator, dtype: 'f64' });
  assert.ok(cut.min().item() >= -1 && cut.max().item() <= 5);
  assert.ok(Math.abs(cut.mean().item() - (1 + 2 * 0.22964)) < 0.01, `${cut.mean().item()}`);
  assert.ok(Math.abs(cut.std().item() - 2 * 0.7209) < 0.01, `${cut.std().item()}`);
  assert.throws(() => truncatedNormal(0, 1, 2, -2), /truncatedNormal: takes a deviation above 0 and bounds that rise/);
});

test('recurrent layers step as they run, forwards and backwards', () => {
  const vb = VarBuilder.fromVarMap(new VarMap());
  const x = randn([2, 5, 3], { seed: 2 });
  const g = gru(3, 4, vb.pp('g'));
  let state = g.zeroState(2);
  for (let t = 0; t < 5; t++) state = g.step(x.narrow(1, t, 1).squeeze([1]), state);
  near(state.h, g.forward(x).narrow(1, 4, 1).squeeze([1]));
  const { ih, hh, bih, bhh } = g.weights();
  const back = new GRU(ih, hh, bih, bhh, true);
  near(back.forward(x), g.forward(x.flip([1])).flip([1]));
  assert.deepEqual(lstm(3, 4, vb.pp('l'), { bias: false }).forward(x).shape, [2, 5, 4]);
});

test('a growing cache gives everything appended, a rotating one the last tokens', () => {
  const all = randn([1, 2, 20, 4], { seed: 1 });
  const [grow, ring] = [new KvCache(3), new RotatingKvCache(6)];
  const sizes = [5, 1, 1, 4, 1, 1, 7];
  let at = 0;
  for (const n of sizes) {
    const part = all.narrow(2, at, n);
    const [k] = grow.append(part, part);
    near(k, all.narrow(2, 0, at + n), 0);
    const [r] = ring.append(part, part);
    at += n;
    const rows = (t: Tensor): string[] =>
      (t.permute([2, 0, 1, 3]).reshape([t.shape[2], 8]).toArray() as number[][]).map(String);
    const held = Math.min(6, at - n);
    const want =
      n === 1
        ? rows(all.narrow(2, Math.max(0, at - 6), Math.min(6, at)))
        : rows(all.narrow(2, at - n - held, n + held));
    assert.deepEqual(n === 1 ? rows(r).sort() : rows(r), n === 1 ? want.sort() : want, `after ${at}`);
  }
  assert.equal(grow.length, 20);
  grow.truncate(4);
  near(grow.append(all.narrow(2, 4, 1), all.narrow(2, 4, 1))[0], all.narrow(2, 0, 5), 0);
});

test('flat parameters step like single ones, in few kernels', () => {
  const make = (): Sequential => net(VarBuilder.fromVarMap(new VarMap(), { generator: new Generator(5) }));
  const [a, b] = [make(), make()];
  const flat = new FlatParameters(b);
  const [oa, ob] = [new AdamW(a.parameters()), new AdamW([flat.master])];
  const x = randn([6, 4], { seed: 6 });
  for (let i = 0; i < 3; i++) {
    scope(() => oa.backwardStep(a.forward(x).sqr().mean()));
    scope(() => flat.step(ob, flat.gather(b.forward(x).sqr().mean().backward())));
  }
  near(a.forward(x), b.forward(x), 1e-7);
});

test('a module computes in bf16 while its master copy keeps f32', () => {
  const model = net(VarBuilder.fromVarMap(new VarMap()));
  const flat = new FlatParameters(model, 'bf16');
  const optimizer = new SGD([flat.master], { learningRate: 1e-4 });
  const before = flat.master.copy();
  scope(() =>
    flat.step(
      optimizer,
      flat.gather(
        model
          .forward(randn([2, 4]).cast('bf16'))
          .cast('f32')
          .sum()
          .backward(),
      ),
    ),
  );
  assert.equal(model.parameters()[0].dtype, 'bf16');
  assert.ok(flat.master.sub(before).abs().max().item() > 0);
});

test('clipping bounds the joint norm and leaves small gradients alone', () => {
  const grads = [Tensor.from([3, 0]), Tensor.from([0, 4])];
  const { grads: clipped, norm } = clipGradNorm(grads, 1);
  assert.equal(norm.item(), 5);
  near(clipped[1], Tensor.from([0, 0.8]), 1e-5);
  near(clipGradNorm(grads, 10).grads[0], grads[0], 0);
});

test('accumulated gradients of parts are the gradient of the whole', () => {
  const w = randn([3], { seed: 1 }).requireGrad();
  const x = randn([4, 3], { seed: 2 });
  const sum = new GradAccumulator([w]);
  for (let i = 0; i < 2; i++)
    sum.add(
      x
        .narrow(0, 2 * i, 2)
        .matmul(w)
        .sqr()
        .mean()
        .backward(),
    );
  near(sum.take().get(w) as Tensor, x.matmul(w).sqr().mean().backward().of(w), 1e-6);
  assert.throws(() => sum.take(), /nothing was added/);
});

test('a loss scaler leaves a step out when gradients overflow, and halves', () => {
  const scaler = new GradScaler({ scale: 1024, interval: 2 });
  near((scaler.unscale([Tensor.from([2048])]) as Tensor[])[0], Tensor.from([2]), 0);
  assert.equal(scaler.unscale([Tensor.from([Infinity])]), undefined);
  assert.equal(scaler.scale, 512);
  scaler.unscale([Tensor.from([1])]);
  scaler.unscale([Tensor.from([1])]);
  assert.equal(scaler.scale, 1024);
});

test('schedules begin, rise and end where they say', () => {
  assert.deepEqual([0, 9, 10, 20].map(stepDecay(10)), [1, 1, 0.1, 0.1 ** 2]);
  const w = warmup(4, cosineDecay(10, 0.1));
  assert.deepEqual([w(0), w(3), w(4)], [0.25, 1, 1]);
  assert.ok(Math.abs(w(14) - 0.1) < 1e-12);
  const c = oneCycle(100);
  assert.ok(c(0) === 0.04 && Math.abs(c(29) - 1) < 1e-9 && Math.abs(c(99) - 4e-6) < 1e-12);
});

test('Lion steps by the sign of its mix', () => {
  const p = Tensor.from([1, 1]);
  const lion = new Lion([p], { learningRate: 0.1, weightDecay: 0.5 });
  lion.step({ get: () => Tensor.from([3, -0.5]) });
  near(p, Tensor.from([1 - 0.05 - 0.1, 1 - 0.05 + 0.1]), 1e-6);
});

test('a run that stops and resumes ends bit for bit where the whole run does', () =>
  inFolder((dir) => {
    const path = join(dir, 'c.safetensors');
    const start = () => {
      const vars = new VarMap();
      const model = net(VarBuilder.fromVarMap(vars, { generator: new Generator(1) }));
      const generator = new Generator(7);
      const optimizer = new AdamW(model.parameters(), { learningRate: 0.01 });
      const step = (): void =>
        scope(() => {
          const x = randn([5, 4], { generator });
          const dropped = x.dropout(
            0.3,
            noGrad(() => randn(x.shape, { generator }).abs().clamp(0, 1)),
          );
          optimizer.backwardStep(model.forward(dropped).sqr().mean());
        });
      return { vars, step, parts: { tensors: vars.entries(), optimizer, generators: { data: generator } } };
    };
    const whole = start();
    for (let i = 0; i < 6; i++) whole.step();
    const first = start();
    for (let i = 0; i < 3; i++) first.step();
    saveCheckpoint(path, first.parts, { step: 3, extra: { note: 'half way' } });
    const second = start();
    const { step, extra } = loadCheckpoint(path, second.parts, Device.cpu());
    assert.deepEqual([step, extra], [3, { note: 'half way' }]);
    for (let i = step; i < 6; i++) second.step();
    for (const [name, t] of whole.vars.entries())
      assert.deepEqual(second.vars.entries().get(name)?.bytesSync(), t.bytesSync(), name);
  }));

/** Fields as people write them in TypeScript; names as PyTorch stores them. */
class Small extends Layer {
  fcIn = new Linear(2, 3);
  norms = [new BatchNorm1d(3), new BatchNorm1d(3)];
  heads = new ModuleDict({ wordHead: new Linear(3, 1, { bias: false }) });
  forward(x: Tensor): Tensor {
    return this.heads.get('wordHead').forward(this.norms[0].forward(this.fcIn.forward(x)));
  }
}

test('state has the names of PyTorch: snake_case, numbers in lists, names of a dictionary as they are', () => {
  const norm = (i: number): string[] =>
    ['weight', 'bias', 'running_mean', 'running_var', 'num_batches_tracked'].map((n) => `norms.${i}.${n}`);
  const names = ['fc_in.weight', 'fc_in.bias', ...norm(0), ...norm(1), 'heads.wordHead.weight'];
  assert.deepEqual([...new Small().stateDict().keys()].sort(), [...names].sort());
  assert.deepEqual([...new Small().children().keys()], ['fc_in', 'norms.0', 'norms.1', 'heads']);
});

test('loading is strict with lists of what differs, or lax and tells', () =>
  inFolder((dir) => {
    const [a, b] = [new Small(), new Small()];
    const state = a.stateDict();
    state.delete('fc_in.bias');
    state.set('other', zeros([1]));
    assert.throws(
      () => b.loadStateDict(state),
      /the names differ from those of Small; missing \(1\): fc_in.bias; unexpected \(1\): other; give \{ strict: false \}/,
    );
    assert.deepEqual(b.loadStateDict(state, { strict: false }), { missing: ['fc_in.bias'], unexpected: ['other'] });
    near(b.fcIn.weight, a.fcIn.weight, 0);
    a.save(join(dir, 'm.safetensors'));
    assert.deepEqual(b.load(join(dir, 'm.safetensors')), { missing: [], unexpected: [] });
    near(b.fcIn.bias as Tensor, a.fcIn.bias as Tensor, 0);
    state.set('fc_in.weight', zeros([9, 9]));
    assert.throws(() => b.loadStateDict(state, { strict: false }), /fc_in.weight is \[3, 2\], given \[9, 9\]/);
  }));

test('printing a model shows shapes and counts, never the weights', () => {
  const text = inspect(seq(new Linear(2, 3), (x) => x.relu(), new Small()));
  assert.match(text, /0: Linear\(2, 3\) +weight \[3, 2\], bias \[3\] +9\n/);
  assert.match(text, /\n33 parameters, .* f32 on cpu/);
  assert.doesNotMatch(text, /\d\.\d{3}/);
  assert.match(flowSummary(new Small(), randn([4, 2])), /fc_in: Linear\(2, 3\) +\[4, 2\] -> \[4, 3\]/);
});

test('looking at what flows through a model changes nothing in it', () => {
  const model = new Small();
  flowSummary(model, randn([4, 2]));
  assert.equal(model.norms[0].numBatchesTracked.item(), 0);
  assert.ok(model.training && model.norms[0].training);
});

test('hooks see inputs, outputs and gradients, may change them, and can be taken away', () => {
  const layer = new Linear(Tensor.from([[2]]).requireGrad());
  const seen: string[] = [];
  const off = [
    layer.onBeforeForward((_, [x]) => (x as Tensor).mul(10)),
    layer.onForward((_, [x], y) => {
      seen.push(`${(x as Tensor).item()} -> ${(y as Tensor).item()}`);
      return (y as Tensor).add(1);
    }),
    layer.onBackward((_, g) => {
      seen.push(`gradient ${g.item()}`);
      return g.mul(3);
    }),
  ];
  const y = layer.forward(Tensor.from([[1]]));
  assert.equal(y.item(), 21);
  assert.equal(y.sum().backward().of(layer.weight).item(), 30);
  assert.deepEqual(seen, ['10 -> 20', 'gradient 1']);
  for (const f of off) f();
  assert.equal(layer.forward(Tensor.from([[1]])).item(), 2);
  assert.deepEqual([...layer.stateDict().keys()], ['weight']);
});

test('layers made by their sizes are trained, drawn from a generator, and can come from a builder', () => {
  const options = { generator: new Generator(3) };
  const a = new Conv2d(2, 4, 3, options);
  near(a.weight, new Conv2d(2, 4, 3, { generator: new Generator(3) }).weight, 0);
  assert.ok(a.parameters().every((p) => p.requiresGrad));
  const stored = VarBuilder.fromTensors(new Map([...a.stateDict()].map(([n, t]) => [`conv.${n}`, t])));
  near(new Conv2d(2, 4, 3, { from: stored.pp('conv') }).weight, a.weight, 0);
  assert.throws(() => new Linear(3, 4, { biass: true } as never), /Linear: unknown option "biass"/);
  assert.throws(() => new Linear(3, 0), /Linear: sizes \[3, 0\]/);
  assert.throws(() => new Linear(3, 4).forward(zeros([2, 5])), /Linear: the last dimension of \[2, 5\] is not 3/);
  assert.throws(() => new Sequential(Linear as never), /not the class Linear itself; write new Linear\(...\)/);
});

test('a step clips by norm or value in one call', () => {
  const w = Tensor.from([3, 4]).requireGrad();
  const norm = new SGD([w], { learningRate: 1 }).backwardStep(w.sqr().sum(), { clipNorm: 1 });
  assert.equal(norm?.item(), 10);
  near(w, Tensor.from([3 - 0.6, 4 - 0.8]));
  new SGD([w], { learningRate: 1 }).backwardStep(w.sum(), { clipValue: 0.5 });
  near(w, Tensor.from([3 - 0.6 - 0.5, 4 - 0.8 - 0.5]));
});

test('groups keep their ratio when the rate changes', () => {
  const [a, b] = [Tensor.from([1]), Tensor.from([1])];
  const optimizer = new SGD([{ params: [a] }, { params: [b], learningRate: 1 }], { learningRate: 0.1 });
  optimizer.learningRate = 0.05;
  optimizer.step({ get: () => Tensor.from([1]) });
  near(a, Tensor.from([0.95]));
  near(b, Tensor.from([0.5]));
  assert.throws(() => new SGD([{ params: [a], rate: 1 } as never]), /unknown option "rate"/);
  assert.throws(() => new SGD([{ params: [a] }, { params: [a] }]), /a parameter stands twice/);
});

test('an average of weights follows them, serves for a while, and gives them back', () => {
  const layer = new Linear(Tensor.from([[1]]).requireGrad());
  const average = new EMA(layer, { decay: 0.5 });
  noGrad(() => layer.weight.assign(Tensor.from([[3]])));
  average.update();
  assert.equal(
    average.use(() => layer.weight.item()),
    2,
  );
  assert.equal(layer.weight.item(), 3);
  assert.throws(() =>
    average.use(() => {
      throw new Error('stop');
    }),
  );
  assert.equal(layer.weight.item(), 3);
});

// fuse: one kernel with the bits of the ops one by one, gradients as ever, and a sentence for what cannot be fused.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { GpuBackend } from '../src/backends/gpu/gpu.js';
import { ArgumentError, UnsupportedError } from '../src/base/errors.js';
import { type DType, fuse, noGrad, randn, scope, type Tensor } from '../src/index.js';
import type { Device } from '../src/tensor/device.js';
import { testDevices } from '../src/testing/devices.js';
import { IdleGpu } from '../src/testing/idle-gpu.js';

/** How often a kernel is launched by f. */
function launches(device: Device, f: () => void): number | undefined {
  const { backend } = device;
  if (!(backend instanceof GpuBackend)) return f(), undefined;
  const { context } = backend;
  const launch = context.launch.bind(context);
  let count = 0;
  context.launch = (...args) => (count++, launch(...args));
  try {
    f();
  } finally {
    Reflect.deleteProperty(context, 'launch');
  }
  return count;
}
const bits = (t: Tensor): unknown[] => [...t.castTo('f64').dataSync()];

for (const { name, device: found, missing } of testDevices('reference,cpu,sim:32,sim:64')) {
  const run = (what: string, f: (d: Device) => void): void =>
    void test(`${what} on ${name}`, { skip: missing }, () => scope(() => f(found as Device)));

  for (const dtype of ['f32', 'bf16', 'f16'] as DType[]) {
    run(`a chain of ${dtype} gives the bits of its ops in one launch`, (d) => {
      const f = (x: Tensor, w: Tensor, b: Tensor): Tensor => x.mul(w).add(b).gelu().affine(0.5, 1).div(w.abs().add(1));
      const [x, w, b] = [
        randn([33, 40], { dtype, device: d, seed: 1 }),
        randn([40], { dtype, device: d, seed: 2 }),
        randn([33, 1], { dtype, device: d, seed: 3 }),
      ];
      const fused = fuse(f);
      const plain = f(x, w, b);
      let got: Tensor | undefined;
      const count = launches(d, () => (got = fused(x, w, b)));
      assert.deepEqual(got?.shape, plain.shape);
      assert.deepEqual(bits(got as Tensor), bits(plain));
      if (count !== undefined) assert.equal(count, 1);
      // Other shapes and layouts through the same trace.
      const [xt, ones] = [
        randn([40, 7], { dtype, device: d, seed: 4 }).t(),
        randn([7, 40], { dtype, device: d, seed: 5 }),
      ];
      assert.deepEqual(bits(fused(xt, w, ones)), bits(f(xt, w, ones)));
    });
  }

  run('ops made of others are part of a chain, and their numbers are no operands of it', (d) => {
    const f = (x: Tensor, y: Tensor): Tensor =>
      x
        .lerp(y, 0.3)
        .nanToNum({ nan: 2 })
        .logAddExp(y.mul(x.eq(0).where(-0, x)));
    for (const dtype of ['f32', 'f16'] as DType[]) {
      const [x, y] = [1, 2].map((seed) => randn([33, 40], { dtype, device: d, seed }));
      x.narrow(0, 0, 1).assign(NaN);
      x.narrow(0, 1, 1).assign(0);
      let got: Tensor | undefined;
      const fused = fuse(f);
      const count = launches(d, () => (got = fused(x, y)));
      assert.deepEqual(bits(got as Tensor), bits(f(x, y)));
      if (count !== undefined) assert.equal(count, 1);
    }
  });
  run('comparisons, where and casts are part of a chain', (d) => {
    const f = (x: Tensor, y: Tensor): Tensor => x.gt(y).where(x, y).castTo('f16').sqr().castTo('f32');
    const [x, y] = [randn([100], { device: d, seed: 1 }), randn([100], { device: d, seed: 2 })];
    assert.deepEqual(bits(fuse(f)(x, y)), bits(f(x, y)));
  });

  run(
    'steps that the result does not need are left out, and a function that does nothing answers its argument',
    (d) => {
      const x = randn([10], { device: d, seed: 1 });
      const f = fuse((t: Tensor) => {
        const y = t.exp();
        t.sin();
        return y;
      });
      let got: Tensor | undefined;
      const chained = d.backend.runChain?.bind(d.backend);
      let chains = 0;
      if (chained) d.backend.runChain = (...args) => (chains++, chained(...args));
      try {
        got = f(x);
      } finally {
        if (chained) Reflect.deleteProperty(d.backend, 'runChain');
      }
      assert.equal(chains, chained ? 1 : 0);
      assert.deepEqual(bits(got), bits(x.exp()));
      assert.equal(fuse((t: Tensor) => t)(x), x);
    },
  );

  run('one step on its arguments turned around, twice or in part is not the op on all of them', (d) => {
    const [x, y] = [1, 2].map((seed) => randn([40], { device: d, seed }));
    for (const t of [x.sub(y), x.mul(y), x.cast('f16')]) t.dataSync();
    const same = (got: Tensor, want: Tensor): void => assert.deepEqual([...got.dataSync()], [...want.dataSync()]);
    same(fuse((a: Tensor, b: Tensor) => b.sub(a))(x, y), y.sub(x));
    same(fuse((a: Tensor) => a.mul(a))(x), x.sqr());
    same(fuse((a: Tensor, _: Tensor) => a.cast('f16'))(x, y), x.cast('f16'));
    same(fuse((_: Tensor, b: Tensor) => b.cast('f16'))(x, y), y.cast('f16'));
  });
  run('without a compiler for kernels the function itself runs', (d) => {
    const x = randn([40], { device: d, seed: 1 });
    const f = (t: Tensor): Tensor => t.exp().add(t).sqr();
    Object.defineProperty(d.backend, 'makesChains', { value: false, configurable: true });
    try {
      let got: Tensor | undefined;
      const count = launches(d, () => (got = fuse(f)(x)));
      assert.deepEqual(bits(got as Tensor), bits(f(x)));
      if (count !== undefined) assert.equal(count, 3);
    } finally {
      Reflect.deleteProperty(d.backend, 'makesChains');
    }
  });
  run('gradients flow as without fuse', (d) => {
    const f = (x: Tensor, y: Tensor): Tensor => x.mul(y).tanh();
    const [x, y] = [randn([5], { device: d, seed: 1, requiresGrad: true }), randn([5], { device: d, seed: 2 })];
    const want = bits(f(x, y).sum().backward().get(x) as Tensor);
    assert.deepEqual(bits(fuse(f)(x, y).sum().backward().get(x) as Tensor), want);
    assert.equal(noGrad(() => fuse(f)(x, y)).requiresGrad, false);
  });

  run('what is not elementwise is refused on GPUs', (d) => {
    const x = randn([4, 4], { device: d, seed: 1 });
    if (!d.backend.runChain) return;
    assert.throws(
      () => fuse((t: Tensor) => t.exp().sum(-1))(x),
      (e) => e instanceof UnsupportedError && /fuse: sum is not an elementwise op/.test(e.message),
    );
    assert.throws(
      () => fuse((t: Tensor) => t.unsqueeze(0).exp())(x),
      (e) => e instanceof UnsupportedError && /fuse: \w+ is not an elementwise op/.test(e.message),
    );
    const y = randn([4, 4], { device: d, seed: 2 });
    assert.throws(
      () =>
        fuse((a: Tensor, b: Tensor, c: Tensor, e: Tensor, g: Tensor) => a.add(b).add(c).add(e).add(g))(
          x,
          y,
          x.exp(),
          y.exp(),
          x.sin(),
        ),
      (e) => e instanceof ArgumentError && /5 inputs; at most 4/.test(e.message),
    );
    // The device still runs things after a refusal.
    assert.equal(x.exp().sum().shape.length, 0);
  });
}
test('a GPU whose kernels all come from a release makes no chains', () => {
  for (const [answer, makes] of [
    [true, true],
    ['there is no compiler', false],
  ] as const) {
    const backend = new GpuBackend('idle', new IdleGpu());
    backend.context.functions.compiles = () => answer;
    assert.equal(backend.makesChains, makes);
    assert.equal(backend.worthChain(2 ** 20), makes);
    assert.equal(backend.worthChain(2 ** 20 - 1), false);
  }
});

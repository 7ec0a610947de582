// Elementwise steps inside ops made of others: as many launches as there must be, and the bits of the steps one by one.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { GpuBackend } from '../src/backends/gpu/gpu.js';
import { customGrad, type DType, keep, ones, rand, randn, scope, type Tensor } from '../src/index.js';
import { losses, Module, recompute } from '../src/nn/index.js';
import { composed } from '../src/tensor/composing.js';
import type { Device } from '../src/tensor/device.js';
import { castInto, storeRows } from '../src/tensor/dispatch.js';
import { testDevices } from '../src/testing/devices.js';

/** Runs f with chains made from so many elements on, and answers how many kernels it launched. */
function launches(device: Device, from: number, f: () => void): number {
  const backend = device.backend as GpuBackend;
  const { context } = backend;
  const launch = context.launch.bind(context);
  let count = 0;
  const before = backend.chainsFrom;
  backend.chainsFrom = from;
  context.launch = (...args) => (count++, launch(...args));
  try {
    f();
  } finally {
    backend.chainsFrom = before;
    Reflect.deleteProperty(context, 'launch');
  }
  return count;
}
/** Where steps must not be taken for one chain: parts and other shapes of what waits, results that are read inside. */
const MIXED: Readonly<Record<string, (x: Tensor) => Tensor | readonly Tensor[]>> = {
  mode: (x) => x.mode(0),
  // Both sides of its products are one view of the same numbers.
  'cumprod of rows that are all the same': (x) => x.narrow(0, 0, 1).broadcastTo(x.shape).cumprod(0),
  diff: (x) => x.diff(2, 0),
  std: (x) => x.std(1),
  stdMean: (x) => x.stdMean(1),
  norm: (x) => x.norm(3, 1),
  quantile: (x) => x.quantile(0.3, 1),
  cummax: (x) => x.cummax(1),
  logcumsumexp: (x) => x.logcumsumexp(1),
  trapezoid: (x) => x.trapezoid(0.5, 0),
  crossEntropy: (x) => x.crossEntropy(x.softmax(-1)),
};
const bits = (t: Tensor): unknown[] => [...t.castTo('f64').dataSync()];

/** Formulas of one element, and how many kernels they take. */
const FORMULAS: Readonly<Record<string, (x: Tensor, y: Tensor, z: Tensor) => Tensor>> = {
  lerp: (x, y) => x.lerp(y, 0.3),
  'lerp by a tensor': (x, y, z) => x.lerp(y, z),
  nanToNum: (x) => x.nanToNum(),
  isClose: (x, y) => x.isClose(y, { rtol: 0.5 }),
  logAddExp: (x, y) => x.logAddExp(y),
  addcmul: (x, y, z) => x.addcmul(y, z, 0.5),
  addcdiv: (x, y, z) => x.addcdiv(y, z, 0.5),
  dropout: (x, y) => x.dropout(0.25, y),
  sinc: (x) => x.sinc(),
  logit: (x) => x.logit(0.1),
  xlogy: (x, y) => x.xlogy(y),
  copysign: (x, y) => x.copysign(y),
  heaviside: (x, y) => x.heaviside(y),
  softcap: (x) => x.softcap(3),
};

/** Losses with the gradient of what is predicted, and how many kernels both take. */
const LOSSES: Readonly<Record<string, readonly [f: (x: Tensor, y: Tensor) => Tensor, alone: number, both: number]>> = {
  huber: [(x, y) => losses.huber(x, y), 2, 5],
  smoothL1: [(x, y) => losses.smoothL1(x, y, { beta: 0.5 }), 2, 7],
  bce: [(x, y) => losses.bce(x, y), 2, 5],
};

for (const { name, device: found, missing } of testDevices('sim:32')) {
  const run = (what: string, f: (d: Device) => void): void =>
    void test(`${what} on ${name}`, { skip: missing }, () => scope(() => f(found as Device)));
  for (const dtype of ['f32', 'f16'] as DType[])
    for (const [what, f] of Object.entries(FORMULAS))
      run(`${what} of ${dtype} is one launch and the same bits`, (d) => {
        const [x, y, z] = [1, 2, 3].map((seed) => randn([9, 41], { dtype, device: d, seed }));
        let plain: Tensor | undefined;
        let got: Tensor | undefined;
        f(x, y, z); // numbers become constants of the device
        assert.ok(launches(d, Infinity, () => (plain = f(x, y, z))) > 1);
        assert.equal(
          launches(d, 1, () => (got = f(x, y, z))),
          1,
        );
        assert.deepEqual(bits(got as Tensor), bits(plain as Tensor));
      });
  for (const [what, [f, alone, both]] of Object.entries(LOSSES))
    run(`${what} is ${alone} launches, with its gradient ${both}`, (d) => {
      const [x, y] = [1, 2].map((seed) => rand([9, 41], { device: d, seed }));
      const step = (): unknown => f(x.requireGrad(), y).backward();
      const plain = (): unknown => f(x.requireGrad(false), y);
      for (const warm of [step, plain]) warm();
      assert.deepEqual([launches(d, 1, plain), launches(d, 1, step)], [alone, both]);
    });
  for (const [what, f] of Object.entries(MIXED))
    run(`${what} is no more launches and the same bits`, (d) => {
      const x = randn([9, 41], { device: d, seed: 1 });
      let plain: Tensor | readonly Tensor[] = [];
      let got: Tensor | readonly Tensor[] = [];
      f(x);
      const before = launches(d, Infinity, () => (plain = f(x)));
      assert.ok(launches(d, 1, () => (got = f(x))) <= before);
      assert.deepEqual([got].flat().map(bits), [plain].flat().map(bits));
    });
  run('what is written or given back while a step waits does not reach it', (d) => {
    const made = (): Tensor => ones([9, 41], { device: d });
    const WHILE: Readonly<Record<string, (x: Tensor) => Tensor>> = {
      assigned: (x) => {
        const y = x.add(1);
        x.assign(5);
        return y;
      },
      'assigned a step that reads it': (x) => {
        const y = x.add(1);
        x.assign(y.mul(3));
        return y;
      },
      'cast into': (x) => {
        const y = x.add(1);
        castInto(x, x.newFull(x.shape, 5, 'f16'));
        return y;
      },
      'rows stored': (x) => {
        const y = x.add(1);
        storeRows(x, x.newArange(9, 'i32'), x.newFull([9, 41], 5, 'f32'));
        return y;
      },
      disposed: (x) => {
        const y = x.add(1);
        x.dispose();
        return y;
      },
      'a step disposed': (x) => {
        const y = x.add(0.5);
        const z = y.add(0.5);
        y.dispose();
        return z;
      },
      'a step that ran is assigned': (x) => {
        const y = x.add(0.5);
        const z = y.add(0.5);
        y.assign(7);
        return z;
      },
    };
    for (const [what, f] of Object.entries(WHILE)) {
      let got: Tensor | undefined;
      launches(d, 1, () => (got = composed(() => f(made()))));
      assert.deepEqual(new Set(bits(got as Tensor)), new Set([2]), what);
    }
  });
  run('an op that fails leaves nothing behind', (d) => {
    const x = ones([9, 41], { device: d });
    x.add(1).exp(); // the number is a constant of the device
    const fails = (): Tensor => {
      x.add(1).exp();
      throw new Error('as it happens');
    };
    const before = d.memory().liveBytes;
    launches(d, 1, () => assert.throws(() => scope(() => composed(fails)), /as it happens/));
    assert.equal(d.memory().liveBytes, before);
    let got: Tensor | undefined;
    assert.equal(
      launches(d, 1, () => (got = composed(() => x.add(1).sub(x)))),
      1,
    );
    assert.deepEqual(new Set(bits(got as Tensor)), new Set([1]));
    assert.equal(
      launches(d, 1, () => (got = x.add(1).sub(x))),
      2,
    );
  });
  run('more operands and more steps than a kernel takes are several kernels', (d) => {
    const xs = Array.from({ length: 7 }, (_, i) => randn([9, 41], { device: d, seed: i + 1 }));
    const [x, ...rest] = xs;
    const LONG: readonly [f: () => Tensor, most: number][] = [
      [() => rest.reduce((a, b) => a.add(b), x), 2],
      // On both sides there is a step: the longer one is made first.
      [() => x.exp().add(rest[0].mul(rest[1])).sub(rest[2].div(rest[3])).mul(rest[4]), 3],
      [() => Array.from({ length: 60 }).reduce((t: Tensor) => t.sin().neg(), x), 6],
    ];
    for (const [f, most] of LONG) {
      const want = f();
      let got: Tensor | undefined;
      const count = launches(d, 1, () => (got = composed(f)));
      assert.ok(count <= most, `${count} launches`);
      assert.deepEqual(bits(got as Tensor), bits(want));
    }
  });
  run('an op with a gradient runs step by step, and its gradient is the same', (d) => {
    const [x, y] = [1, 2].map((seed) => randn([5, 7], { device: d, seed }).requireGrad());
    const gradients = (from: number): unknown[] => {
      let g: unknown[] = [];
      launches(d, from, () => {
        const grads = x.huber(y).backward();
        g = [x, y].map((t) => bits(grads.get(t) as Tensor));
      });
      return g;
    };
    assert.deepEqual(gradients(1), gradients(Infinity));
  });
  const RULES: Readonly<Record<string, (x: Tensor) => Tensor>> = {
    geluErf: (x) => x.geluErf(),
    mish: (x) => x.mish(),
    std: (x) => x.std(1),
    softcap: (x) => x.softcap(3),
  };
  for (const [what, f] of Object.entries(RULES))
    run(`the gradient of ${what} takes fewer launches and has the same bits`, (d) => {
      const x = randn([9, 41], { device: d, seed: 1 }).requireGrad();
      const gradient = (from: number): { count: number; of: unknown[] } => {
        const y = f(x);
        let of: unknown[] = [];
        const count = launches(d, from, () => (of = bits(y.backward({ grad: y.onesLike() }).get(x) as Tensor)));
        return { count, of };
      };
      gradient(Infinity); // numbers become constants of the device
      const [plain, got] = [gradient(Infinity), gradient(1)];
      assert.ok(got.count < plain.count, `${got.count} launches, ${plain.count} one by one`);
      assert.deepEqual(got.of, plain.of);
    });
  run('what a gradient rule of a user keeps is there after the pass', (d) => {
    const kept: Tensor[] = [];
    const twice = customGrad((x) => ({
      value: x.mul(2),
      grad: (g) => {
        kept.push(g.mul(3).add(1));
        return g.mul(2);
      },
    }));
    const x = randn([9, 41], { device: d, seed: 1 }).requireGrad();
    launches(d, 1, () => twice(x).sum().backward());
    assert.deepEqual(new Set(bits(kept[0])), new Set([4]));
  });
  run('what a module keeps while its forward pass is repeated is there after the pass', (d) => {
    class Counting extends Module {
      seen: Tensor | undefined;
      forward(x: Tensor): Tensor {
        this.seen = keep(x.detach().mul(2).add(1));
        return x.mul(x);
      }
    }
    const module = new Counting();
    const x = ones([9, 41], { device: d }).requireGrad();
    launches(d, 1, () => recompute(module, x).sum().backward());
    assert.deepEqual(new Set(bits(module.seen as Tensor)), new Set([3]));
  });
}

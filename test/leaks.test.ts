// Memory is owned: live bytes come back to where they were after dispose, using, scope, backward and garbage
// collection.
import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { join } from 'node:path';
import { test } from 'node:test';
import { fileURLToPath } from 'node:url';
import { noGrad, randn, scope, type Tensor, tensor, zeros } from '../src/index.js';
import * as nn from '../src/nn/index.js';
import { LBFGS } from '../src/nn/index.js';
import { testDevices } from '../src/testing/devices.js';
import type { Device } from '../src/tensor/device.js';

type Made = (params: readonly Tensor[]) => nn.Optimizer | LBFGS;
/** Every optimizer of wick/nn. */
const OPTIMIZERS: Readonly<Record<string, Made>> = Object.fromEntries(
  Object.entries(nn as Readonly<Record<string, unknown>>).flatMap(([name, kind]) => {
    const own = typeof kind === 'function' && (kind === LBFGS || kind.prototype instanceof nn.Optimizer);
    return own ? [[name, (p): nn.Optimizer | LBFGS => new (kind as new (p: readonly Tensor[]) => LBFGS)(p)]] : [];
  }),
);
assert.ok(Object.keys(OPTIMIZERS).length >= 14, 'optimizers are found');

const live = (d: Device): number => d.memory().liveBytes;
/** A little network's loss: views, broadcasting, reductions and a product. */
function loss(x: Tensor, w: Tensor, b: Tensor): Tensor {
  return x.matmul(w).add(b).gelu().reshape([-1]).sqr().mean();
}
const parts = (d: Device): [Tensor, Tensor, Tensor] => [
  randn([8, 16], { device: d, seed: 1 }),
  randn([16, 4], { device: d, seed: 2, requiresGrad: true }),
  zeros([4], { device: d, requiresGrad: true }),
];

for (const { name, device, missing } of testDevices('reference,cpu')) {
  const run = (what: string, f: (d: Device) => void): void => {
    test(`${what} on ${name}`, { skip: missing }, () => {
      const d = device as Device;
      f(d); // constants and lazily made tables are there after the first round
      const before = live(d);
      f(d);
      assert.equal(live(d), before, `${live(d) - before} bytes stayed`);
    });
  };

  run('dispose gives memory back', (d) => {
    const t = zeros([100, 100], { device: d });
    const held = live(d);
    t.dispose();
    assert.equal(live(d), held - 40000);
  });
  run('disposing twice is harmless', (d) => {
    const t = zeros([10], { device: d });
    t.dispose();
    t.dispose();
  });
  run('a view keeps its storage alive until it goes too', (d) => {
    const t = zeros([4, 4], { device: d });
    const v = t.t();
    const held = live(d);
    t.dispose();
    assert.equal(live(d), held);
    assert.equal(v.dataSync().length, 16);
    v.dispose();
    assert.equal(live(d), held - 64);
  });
  run('using disposes at the end of the block', (d) => {
    // What `using` compiles to: the method is called when the block is left, also by an error.
    const t = zeros([100], { device: d });
    try {
      t.sum().dispose();
    } finally {
      t[Symbol.dispose]();
    }
    assert.ok(t.isDisposed);
  });
  run('scope frees what it does not return', (d) => {
    const kept = scope(() => {
      const x = randn([32, 32], { device: d, seed: 3 });
      return { list: [x.matmul(x).relu().sum()] };
    });
    assert.equal(kept.list[0].size, 1);
    kept.list[0].dispose();
  });
  run('scope frees when it is left by an error', (d) => {
    assert.throws(
      () =>
        scope(() => {
          zeros([100], { device: d });
          throw new Error('out');
        }),
      /out/,
    );
  });
  run('nested scopes hand results outwards', (d) => {
    scope(() => {
      const inner = scope(() => zeros([10], { device: d }).add(1));
      assert.equal(inner.sum().item(), 10);
    });
  });
  run('backward frees its graph', (d) => {
    scope(() => {
      const [x, w, b] = parts(d);
      const grads = loss(x, w, b).backward();
      assert.deepEqual(grads.of(w).shape, [16, 4]);
    });
  });
  run('noGrad records nothing', (d) => {
    scope(() => {
      const [x, w, b] = parts(d);
      noGrad(() => loss(x, w, b));
    });
  });

  for (const [kind, optimizer] of Object.entries(OPTIMIZERS))
    run(`an optimizer gives its state back (${kind})`, (d) => {
      const w = randn([16, 4], { device: d, seed: 2, requiresGrad: true });
      const x = randn([8, 16], { device: d, seed: 1 });
      const trained = optimizer([w]);
      const lossOf = (): Tensor => x.matmul(w).sqr().mean();
      for (let i = 0; i < 3; i++)
        scope(() => {
          if (trained instanceof LBFGS) trained.step(lossOf);
          else trained.step(lossOf().backward());
        });
      trained.dispose();
      for (const t of [w, x]) t.dispose();
    });

  test(`2000 training steps on ${name} do not grow`, { skip: missing }, () => {
    const d = device as Device;
    const [x, w, b] = parts(d);
    let settled = 0;
    for (let i = 0; i < 2000; i++) {
      scope(() => {
        const grads = loss(x, w, b).backward();
        w.assign(w.detach().sub(grads.of(w).mul(0.01)));
      });
      if (i === 10) settled = live(d);
    }
    assert.equal(live(d), settled);
    for (const t of [x, w, b]) t.dispose();
  });

  // Only a process of its own can call the collector.
  const collected = (what: string, step: string): void => {
    test(`${what} on ${name}`, { skip: missing }, () => {
      const code = `
        import { Device, randn, scope } from ${JSON.stringify(join(fileURLToPath(import.meta.url), '../../src/index.js'))};
        const d = Device.get(${JSON.stringify(name)});
        const step = () => { ${step} };
        const rest = async () => { globalThis.gc(); await new Promise((r) => setTimeout(r, 2)); };
        // The collector finishes in its own time: as long as it goes on, and at least as often as it needs here.
        const settle = async (most) => {
          for (let i = 0; i < 20 || (i < 500 && d.memory().liveBytes > most); i++) await rest();
          return d.memory().liveBytes;
        };
        step();
        const before = await settle(Infinity);
        for (let i = 0; i < 2000; i++) { step(); if (i % 100 === 0) await rest(); }
        const now = await settle(before);
        console.log(now <= before ? 'collected' : now - before + ' bytes stayed');`;
      const child = spawnSync(process.execPath, ['--expose-gc', '--input-type=module', '-e', code], {
        encoding: 'utf8',
      });
      assert.equal(child.stdout.trim(), 'collected', child.stderr);
    });
  };
  collected('unreachable tensors are collected', 'randn([1000], { device: d, requiresGrad: true }).mul(2).sum();');
  // The parts of a first graph that the second does not reach wait for the collector.
  collected(
    'gradients of gradients are collected',
    `
    scope(() => {
      const w = randn([16, 4], { device: d, requiresGrad: true });
      const first = randn([8, 16], { device: d }).matmul(w).gelu().sqr().mean().backward({ createGraph: true }).of(w);
      first.sqr().sum().backward();
    });`,
  );

  test(`a tensor from data holds exactly its bytes on ${name}`, { skip: missing }, () => {
    const d = device as Device;
    const before = live(d);
    const t = tensor([1, 2, 3, 4], { dtype: 'f16', device: d });
    assert.equal(live(d) - before, 8);
    t.dispose();
    assert.equal(live(d), before);
  });
}

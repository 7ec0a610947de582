// Training in less memory: modules that are computed again in the backward pass, and a loss over the vocabulary that
// never holds all its logits. The same numbers as without, on the CPU and on a simulated GPU.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { GpuBackend } from '../src/backends/gpu/gpu.js';
import { Device, manualSeed, scope, tensor, type Tensor } from '../src/index.js';
import { Linear, losses, Module, recompute, recomputing } from '../src/nn/index.js';
import { Dropout } from '../src/nn/layers.js';

const wave = (n: number, salt = 0): Float32Array =>
  Float32Array.from({ length: n }, (_, i) => Math.sin(i * 1.7 + salt));
const list = (t: Tensor): number[] => [...(t.cast('f32').dataSync() as Float32Array)];
const near = (a: readonly number[], b: readonly number[], most: number): void => {
  assert.equal(a.length, b.length);
  const top = Math.max(...b.map(Math.abs));
  a.forEach((v, i) => assert.ok(Math.abs(v - b[i]) <= most * top, `${i}: ${v} and ${b[i]}`));
};

class Branch extends Module {
  readonly up: Linear;
  readonly down: Linear;
  readonly drop = new Dropout(0.3);
  runs = 0;
  constructor(device: Device, salt: number) {
    super();
    const make = (shape: number[], s: number): Tensor =>
      tensor(wave(shape[0] * shape[1], s), { shape, device }).requireGrad();
    this.up = new Linear(make([32, 8], salt));
    this.down = new Linear(make([8, 32], salt + 1));
  }
  forward(x: Tensor, factor: number): Tensor {
    this.runs++;
    return x.add(this.drop.forward(this.down.forward(this.up.forward(x).gelu())).affine(factor, 0));
  }
}
for (const device of ['cpu', 'sim:32'].map((name) => Device.get(name))) {
  test(
    `${device.name}: a module that is computed again has the gradients of one that is kept, dropout ` + 'included',
    () => {
      const run = (how: 'plain' | 'call' | 'always'): { grads: number[][]; live: number; runs: number } =>
        scope(() => {
          manualSeed(3);
          const parts = [0, 2, 4].map((salt) => new Branch(device, salt));
          if (how === 'always') for (const p of parts) recomputing(p);
          const x = tensor(wave(64 * 8), { shape: [64, 8], device }).requireGrad();
          const { backend } = device;
          const before = backend instanceof GpuBackend ? backend.memory().liveBytes : 0;
          const y = scope(() =>
            parts.reduce((h: Tensor, p) => (how === 'call' ? recompute(p, h, 0.5) : p.forward(h, 0.5)), x),
          );
          const live = backend instanceof GpuBackend ? backend.memory().liveBytes - before : 0;
          const grads = y.sqr().mean().backward();
          const all = [x, ...parts.flatMap((p) => p.parameters())].map((t) => list(grads.of(t)));
          return { grads: all, live, runs: parts[0].runs };
        });
      const plain = run('plain');
      assert.equal(plain.runs, 1);
      for (const how of ['call', 'always'] as const) {
        const got = run(how);
        assert.deepEqual(got.grads, plain.grads, how);
        assert.equal(got.runs, 2);
        // Only what passes from module to module stays, not the four times wider inside.
        if (plain.live > 0) assert.ok(got.live < plain.live / 4, `${got.live} of ${plain.live} bytes stay`);
      }
      const x = tensor(wave(16), { shape: [2, 8], device }).requireGrad();
      const y = recompute(new Branch(device, 0), x, 1).sum();
      assert.throws(() => y.backward({ createGraph: true }), /recompute: gradients of gradients/);
    },
  );

  test(`${device.name}: linear and cross-entropy in one, a few rows at a time, are the two apart`, () => {
    const [n, width, classes] = [24, 8, 48];
    const ids = Int32Array.from({ length: n }, (_, i) => (i % 5 === 4 ? 7 : (i * 13) % classes));
    for (const dtype of ['f32', 'bf16'] as const)
      for (const options of [
        {},
        { reduction: 'sum' as const, rows: 7 },
        { rows: 5, ignoreIndex: 7, labelSmoothing: 0.1 },
      ])
        scope(() => {
          const make = (shape: number[], salt: number): Tensor =>
            tensor(
              wave(
                shape.reduce((a, b) => a * b),
                salt,
              ),
              { shape, device },
            )
              .cast(dtype)
              .requireGrad();
          const [x, w] = [make([4, 6, width], 1), make([classes, width], 2)];
          const target = tensor(ids, { shape: [4, 6], device });
          const { rows: _, ...plain } = options as { rows?: number };
          const apart = x.matmul(w.t()).cast('f32').crossEntropy(target, plain);
          const one = losses.linearCrossEntropy(x, w, target, options);
          near(list(one), list(apart), 1e-6);
          const [a, b] = [apart.affine(3, 0).backward(), one.affine(3, 0).backward()];
          for (const t of [x, w]) near(list(b.of(t)), list(a.of(t)), dtype === 'f32' ? 1e-5 : 2e-2);
          // Without a gradient, and with one of the two alone.
          near(list(losses.linearCrossEntropy(x.detach(), w.detach(), target, options)), list(apart), 1e-6);
          const only = losses.linearCrossEntropy(x.detach(), w, target, options).backward();
          near(
            list(only.of(w)).map((v) => 3 * v),
            list(a.of(w)),
            dtype === 'f32' ? 1e-5 : 2e-2,
          );
        });
    const bad = (f: () => unknown, says: RegExp): void => assert.throws(f, says);
    const [x, w] = [tensor(wave(12), { shape: [3, 4], device }), tensor(wave(20), { shape: [5, 4], device })];
    const t = tensor(Int32Array.of(0, 1, 2), { device });
    bad(() => losses.linearCrossEntropy(x, w.t(), t), /weights \[4, 5\] must be \(classes, 4\)/);
    bad(() => losses.linearCrossEntropy(x, w, t.narrow(0, 0, 2)), /targets \[2\] must be \[3\]/);
    bad(() => losses.linearCrossEntropy(x, w, t, { rows: 0 }), /rows 0 is not a whole number from 1/);
  });
}

test('the logits of all rows are never there: memory of a simulated GPU stays below theirs', () => {
  const device = Device.get('sim:32');
  const { backend } = device;
  assert.ok(backend instanceof GpuBackend);
  const [n, width, classes] = [256, 4, 512];
  scope(() => {
    const x = tensor(wave(n * width), { shape: [n, width], device }).requireGrad();
    const w = tensor(wave(classes * width), { shape: [classes, width], device }).requireGrad();
    const target = tensor(
      Int32Array.from({ length: n }, (_, i) => i % classes),
      { device },
    );
    const before = Math.max(backend.memory().peakBytes, backend.memory().liveBytes);
    const grads = losses.linearCrossEntropy(x, w, target, { rows: 8 }).backward();
    assert.equal(grads.of(w).size, classes * width);
    const rise = backend.memory().peakBytes - before;
    assert.ok(rise < (n * classes * 4) / 2, `${rise} bytes more at the peak; all logits are ${n * classes * 4}`);
  });
});

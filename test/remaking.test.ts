// What a backward pass does not need is not kept for it, and what is quick is made again where that is asked for.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { Device, noGrad, randn, remaking, scope, type Tensor } from '../src/index.js';
import * as nn from '../src/nn/index.js';
import { trainedNorm, trainedSwiglu } from '../src/tensor/training.js';
import { probe } from '../src/testing/devices.js';

const made = (shape: number[], seed: number, device: Device): Tensor => randn(shape, { seed, device });
/** A norm, a product, a gated activation and a product, as a layer has them: the loss and every gradient. */
function layer(device: Device, how: <T>(f: () => T) => T): number[] {
  const [x, gain, up, down] = [
    made([6, 8], 1, device),
    made([8], 2, device),
    made([16, 8], 3, device),
    made([8, 8], 4, device),
  ].map((t) => t.requireGrad());
  return scope(() => {
    const loss = how(() => {
      const h = trainedNorm('rms', x, gain, undefined, 1e-5) ?? x.rmsNorm(gain);
      const wide = h.reshape([2, 3, 8]).matmul(up.t());
      const y = (trainedSwiglu(wide) ?? wide.swiglu()).matmul(down.t());
      return y
        .add(x.reshape([2, 3, 8]))
        .sqr()
        .sum();
    });
    const grads = loss.backward({ sparing: true });
    return [loss, ...[x, gain, up, down].map((t) => grads.of(t))].flatMap((t) => [...t.dataSync('f32')]);
  });
}

for (const name of ['cpu', 'sim:32']) {
  const { device, missing } = probe(name);
  const skip = missing ?? false;
  test(`gradients with remaking are the same bits: ${name}`, { skip }, () => {
    const plain = layer(device as Device, (f) => f());
    assert.deepEqual(layer(device as Device, remaking), plain);
    assert.ok(plain.every(Number.isFinite));
  });
  test(`a graph keeps what rules read and nothing else: ${name}`, { skip }, () => {
    const on = device as Device;
    const held = (how: <T>(f: () => T) => T): number => {
      const before = on.memory().liveBytes;
      const x = made([1024, 8], 1, on).requireGrad();
      const gain = made([8], 2, on).requireGrad();
      const w = made([8, 8], 3, on).requireGrad();
      // The product's result is read by nobody's rule, the norm's by the product's.
      const sum = scope(() => how(() => x.rmsNorm(gain).matmul(w).add(x).sum()));
      const bytes = on.memory().liveBytes - before - 4 * (1024 * 8 + 8 + 64 + 1);
      sum.backward().dispose();
      for (const t of [x, gain, w, sum]) t.dispose();
      return bytes / (4 * 1024 * 8);
    };
    assert.equal(Math.round(held((f) => f())), 2, "the norm's result, and what was summed");
    assert.equal(Math.round(held(remaking)), 1);
  });
}

test('an operand that no rule reads may change after its use, one that is read may not', () => {
  const [x, y] = [made([4], 1, Device.cpu()).requireGrad(), made([4], 2, Device.cpu())];
  const sum = x.add(y).sum();
  noGrad(() => y.assign(y.zerosLike()));
  assert.deepEqual(sum.backward().of(x).toArray(), [1, 1, 1, 1]);
  const product = x.mul(y).sum();
  noGrad(() => y.assign(y.onesLike()));
  assert.throws(() => product.backward(), /changed in place after it was used/);
});

test('gradients of gradients through what was not kept are refused', () => {
  const x = made([2, 4], 1, Device.cpu()).requireGrad();
  const norm = new nn.RmsNorm(4);
  const w = made([4, 4], 2, Device.cpu()).requireGrad();
  const loss = remaking(() => norm.forward(x).matmul(w).sqr().sum());
  assert.throws(() => loss.backward({ createGraph: true }), /remaking: gradients of gradients/);
});

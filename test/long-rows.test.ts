// Softmax of long rows: the row's bound holds at the length of a vocabulary and of a million, where sums of many small
// numbers lose bits.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { Tensor } from '../src/index.js';
import { boundFor } from '../src/ops/op.js';
import { OPS } from '../src/ops/table.js';
import type { Device } from '../src/tensor/device.js';
import { scope } from '../src/tensor/scope.js';
import { testDevices } from '../src/testing/devices.js';
import { randomizer } from '../src/testing/values.js';

const ulpsApart = (got: number, want: number): number =>
  Math.abs(got - want) / 2 ** (Math.floor(Math.log2(Math.abs(want))) - 23);

/** The worst distance from the result in double, and of the logarithms, in units of the largest one. */
function worst(x: Float32Array, got: Float32Array, log: boolean): number {
  const top = x.reduce((a, b) => Math.max(a, b), -Infinity);
  let sum = 0;
  let lost = 0;
  for (const v of x) {
    const e = Math.exp(v - top) - lost;
    const next = sum + e;
    lost = next - sum - e;
    sum = next;
  }
  let most = 0;
  for (let i = 0; i < x.length; i++) {
    const want = log ? x[i] - top - Math.log(sum) : Math.exp(x[i] - top) / sum;
    most = Math.max(most, ulpsApart(got[i], want));
  }
  return most;
}

for (const { name, device, missing } of testDevices('cpu,sim:32')) {
  for (const n of [4099, 128_256, 1_000_003]) {
    test(`softmax of ${n} on ${name}`, { skip: missing }, () => {
      scope(() => {
        const random = randomizer(n);
        for (const [kind, value] of [
          ['scattered', (): number => 8 * random() - 4],
          ['equal', (): number => 0.5],
          ['rising', (i: number): number => i / n],
        ] as const) {
          const x = Float32Array.from({ length: n }, (_, i) => value(i));
          const t = Tensor.from(x, { device: device as Device });
          const off = worst(x, t.softmax(0).dataSync() as Float32Array, false);
          assert.ok(off <= boundFor(OPS.softmax.ulp, 'f32'), `${kind}: ${off} ulp`);
          const log = worst(x, t.logSoftmax(0).dataSync() as Float32Array, true);
          assert.ok(log <= boundFor(OPS.logSoftmax.ulp, 'f32'), `log, ${kind}: ${log} ulp`);
        }
      });
    });
  }
}

// Inner products of long vectors, and softmax of long rows: the row's bound holds at the length of a vocabulary and of
// a million, where sums of many small numbers lose bits.
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
  for (const dtype of ['f32', 'f64', 'bf16', 'f16'] as const)
    test(`inner products of long vectors of ${dtype} at any address on ${name}`, { skip: missing }, () => {
      scope(() => {
        for (const [n, from] of [
          [32_768, 0],
          [70_001, 0],
          [70_003, 1],
        ]) {
          const [a, b] = [7, 11].map((by) =>
            Tensor.from(
              Float32Array.from({ length: n + from }, (_, i) => ((i * by) % 5) - 1),
              { device: device as Device },
            ).cast(dtype),
          );
          const [x, y] = [a, b].map((t) => t.narrow(0, from, n));
          let want = 0;
          for (let i = from; i < n + from; i++) want += (((i * 7) % 5) - 1) * (((i * 11) % 5) - 1);
          // Sums of whole numbers are exact until they are rounded to 8 or 11 bits.
          const share = { bf16: 2 ** -8, f16: 2 ** -11, f32: 0, f64: 0 }[dtype];
          const got = x.dot(y.affine(1 / 4, 0)).item();
          assert.ok(Math.abs(got - want / 4) <= share * (want / 4), `${n} from ${from}: ${got}, not ${want / 4}`);
          assert.equal(
            x
              .reshape([1, 1, n])
              .matmul(y.affine(1 / 4, 0).reshape([n, 1]))
              .item(),
            got,
          );
        }
      });
    });
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

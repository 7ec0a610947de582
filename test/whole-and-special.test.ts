// Divisors at zero, below it and at the ends of their dtype; erfinv of floats against the one in double.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { scope, tensor } from '../src/index.js';
import type { Device } from '../src/tensor/device.js';
import { testDevices } from '../src/testing/devices.js';

for (const { name, device: found, missing } of testDevices('reference,cpu,sim:32')) {
  const run = (what: string, f: (d: Device) => void): void =>
    void test(`${what} on ${name}`, { skip: missing }, () => scope(() => f(found as Device)));

  for (const [dtype, least] of [
    ['i32', -(2n ** 31n)],
    ['i64', -(2n ** 63n)],
  ] as const)
    run(`gcd and lcm of ${dtype} at zero, below it and at the least number, which has no opposite`, (device) => {
      const list = (v: readonly bigint[]) => tensor(BigInt64Array.from(v), { device }).cast(dtype);
      const x = list([0n, 0n, -12n, 12n, -7n, least, least, 1n]);
      const y = list([0n, -5n, 18n, -18n, -7n, 0n, least, least]);
      const out = (t: typeof x): bigint[] => [...t.cast('i64').dataSync('i64')];
      assert.deepEqual(out(x.gcd(y)), [0n, 5n, 6n, 6n, 7n, least, least, 1n]);
      assert.deepEqual(out(x.lcm(y)), [0n, 0n, 36n, 36n, 7n, 0n, least, least]);
    });
  if (name !== 'reference')
    run('erfinv of f32 is the one in double, rounded, from the smallest number to the last below 1', (device) => {
      const near = Array.from({ length: 4000 }, (_, i) => 1 - 2 ** (-i / 167));
      const all = [0, -0, 2 ** -149, 1e-30, 1e-8, 1 - 2 ** -24, 1, -1, ...near, ...near.map((v) => -(v ** 9))];
      const x = tensor(new Float32Array(all), { device });
      const [got, want] = [x.erfinv().dataSync(), x.cast('f64').erfinv().dataSync()];
      for (const [i, w] of want.entries()) {
        const unit = 2 ** (Math.max(Math.floor(Math.log2(Math.abs(Number(w)))), -126) - 23);
        const same = Object.is(got[i], Math.fround(Number(w)));
        assert.ok(same || Math.abs(Number(got[i]) - Number(w)) <= 0.52 * unit, `${all[i]}: ${got[i]}, not ${w}`);
      }
    });
}

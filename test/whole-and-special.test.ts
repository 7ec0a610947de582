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
  if (name === 'reference') continue;
  /** Results of f32 held against those of f64 at the same numbers. */
  const held = (op: 'erfinv' | 'lgamma' | 'digamma', all: readonly number[], units: number): void =>
    run(`${op} of f32 is the one in double, rounded or nearly so, at ${all.length} numbers`, (device) => {
      const x = tensor(new Float32Array(all), { device });
      const [got, want] = [x[op]().dataSync(), x.cast('f64')[op]().dataSync()];
      for (const [i, w] of want.entries()) {
        const unit = 2 ** (Math.max(Math.floor(Math.log2(Math.abs(Number(w)))), -126) - 23);
        const same = Object.is(got[i], Math.fround(Number(w)));
        assert.ok(same || Math.abs(Number(got[i]) - Number(w)) <= units * unit, `${all[i]}: ${got[i]}, not ${w}`);
      }
    });
  const near = Array.from({ length: 4000 }, (_, i) => 1 - 2 ** (-i / 167));
  held('erfinv', [0, -0, 2 ** -149, 1e-30, 1e-8, 1 - 2 ** -24, 1, -1, ...near, ...near.map((v) => -(v ** 9))], 0.6);
  const ends = [0, -0, NaN, Infinity, -Infinity, 2 ** -149, 2 ** -126, 1e-30, 3.4028234e38, 4.08e36, 4.0853e36];
  const spread = Array.from({ length: 6000 }, (_, i) => 1.005 ** (i - 3000));
  const close = (at: number): number[] => Array.from({ length: 400 }, (_, i) => at + ((i - 200) / 200) ** 3 / 2);
  const below = [-0.5, -1, -1.5, -2, -2.457024738220801, -7.3, -1e5 - 0.25, -(2 ** 23), -1e30];
  for (const op of ['lgamma', 'digamma'] as const)
    held(op, [...ends, ...spread, ...[1, 1.4616321325302124, 2, 3, 4, 8].flatMap(close), ...below], 0.75);
}

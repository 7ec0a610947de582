// Random rows: known Philox blocks, the normal quantile against known values, ranges, and independence of how work is
// cut.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { FLOATS } from '../src/base/dtype.js';
import { Device, Tensor } from '../src/index.js';
import { fixedLog, normalQuantile, philox, uniformRange } from '../src/ops/random.js';

const seed = Tensor.empty([1], 'f32', Device.reference());
const uniform = (shape: number[], more: object = {}): Tensor =>
  seed.randUniform({ shape, dtype: 'f32', seed: 42n, offset: 0n, lo: 0, up: 1, ...more });
const normal = (shape: number[], more: object = {}): Tensor =>
  seed.randNormal({ shape, dtype: 'f64', seed: 42n, offset: 0n, mean: 0, std: 1, ...more });
const list = (t: Tensor): number[] => Array.from(t.dataSync(), Number);

test('philox gives the published blocks', () => {
  const all = 0xffffffff;
  assert.deepEqual(philox([0, 0, 0, 0], [0, 0]), [0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8]);
  assert.deepEqual(philox([all, all, all, all], [all, all]), [0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd]);
  assert.deepEqual(
    philox([0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344], [0xa4093822, 0x299f31d0]),
    [0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1],
  );
});

test('the normal quantile has known values in the centre and both tails, and is odd', () => {
  const known: [number, number][] = [
    [0.5, 0],
    [0.975, 1.959963984540054],
    [0.25, -0.6744897501960817],
    [1e-3, -3.090232306167813],
    [1e-15, -7.941345326170997],
  ];
  for (const [p, x] of known)
    assert.ok(Math.abs(normalQuantile(p) - x) <= 4e-15 * Math.max(1, Math.abs(x)), `${p}: ${normalQuantile(p)}`);
  for (const p of [2 ** -3, 2 ** -10, 2 ** -40]) assert.equal(normalQuantile(p), -normalQuantile(1 - p));
});

test('the fixed-order logarithm is within 2 units of Math.log', () => {
  for (let i = 1; i < 2000; i++) {
    const x = i % 2 ? i / 4001 : 2 ** (-i / 40);
    assert.ok(Math.abs(fixedLog(x) - Math.log(x)) <= 2 * 2 ** -52 * Math.abs(Math.log(x)), `log ${x}`);
  }
});

test('a part of a stream equals the stream from its offset, at every alignment', () => {
  const whole = { f32: list(uniform([40])), f64: list(uniform([40], { dtype: 'f64' })), normal: list(normal([40])) };
  for (let offset = 0; offset < 9; offset++) {
    const at = { offset: BigInt(offset) };
    assert.deepEqual(list(uniform([11], at)), whole.f32.slice(offset, offset + 11));
    assert.deepEqual(list(uniform([11], { dtype: 'f64', ...at })), whole.f64.slice(offset, offset + 11));
    assert.deepEqual(list(normal([11], at)), whole.normal.slice(offset, offset + 11));
  }
});

test('uniform numbers of every float dtype stay in [lo, up), also where rounding would leave it', () => {
  for (const dtype of FLOATS) {
    for (const [lo, up] of [
      [0, 1],
      [-3, 0.3],
      [0.1, 0.3],
    ]) {
      const v = list(uniform([2000], { dtype, lo, up }));
      assert.ok(
        v.every((x) => x >= lo && x < up),
        `${dtype} [${lo}, ${up})`,
      );
    }
  }
  assert.deepEqual(uniformRange('bf16', 0, 1), { bottom: 0, top: 0.99609375 });
});

test('mean and variance are those asked for', () => {
  const stats = (v: number[]): [number, number] => {
    const m = v.reduce((a, b) => a + b, 0) / v.length;
    return [m, v.reduce((a, b) => a + (b - m) ** 2, 0) / v.length];
  };
  const [um, uv] = stats(list(uniform([20000])));
  assert.ok(Math.abs(um - 0.5) < 0.01 && Math.abs(uv - 1 / 12) < 0.002, `${um} ${uv}`);
  const [nm, nv] = stats(list(normal([20000], { mean: 2, std: 3 })));
  assert.ok(Math.abs(nm - 2) < 0.1 && Math.abs(nv - 9) < 0.4, `${nm} ${nv}`);
});

test('different seeds and kinds give different streams, and f32 normals are the f64 ones rounded', () => {
  assert.notDeepEqual(list(uniform([8])), list(uniform([8], { seed: 43n })));
  assert.notDeepEqual(list(uniform([8])), list(uniform([8], { seed: 42n + (1n << 32n) })));
  assert.deepEqual(list(normal([50], { dtype: 'f32' })), list(normal([50])).map(Math.fround));
});

for (const device of ['cpu', 'sim:32', 'sim:64'])
  test(`draws longer than a block's share are the reference's bits at every alignment, ${device}`, () => {
    const on = Tensor.empty([1], 'f32', Device.of(device));
    for (const dtype of FLOATS)
      for (const offset of [0n, 1n, 6n]) {
        const common = { shape: [2503], dtype, seed: 7n, offset };
        for (const [lo, up] of [
          [0, 1],
          [-3, 0.3],
        ])
          assert.deepEqual(
            on.randUniform({ ...common, lo, up }).bytesSync(),
            seed.randUniform({ ...common, lo, up }).bytesSync(),
            `${dtype} uniform [${lo}, ${up}) from ${offset}`,
          );
        assert.deepEqual(
          on.randNormal({ ...common, mean: 1, std: 3 }).bytesSync(),
          seed.randNormal({ ...common, mean: 1, std: 3 }).bytesSync(),
          `${dtype} normal from ${offset}`,
        );
      }
  });

for (const device of ['sim:32', 'sim:64'])
  test(`many normal numbers, which a table serves, are the bits of those made one by one, ${device}`, () => {
    const [on, exact] = [device, 'cpu'].map((name) => Tensor.empty([1], 'f32', Device.of(name)));
    for (const dtype of FLOATS)
      for (const [offset, mean, std] of [
        [0n, 0, 1],
        [3n, 0, 1],
        [8n, 0.1, 1e-3],
        [1n, -7, 3],
      ] as const) {
        const call = { shape: [2 ** 18 + 5], dtype, seed: 11n, offset, mean, std };
        assert.ok(
          Buffer.from(on.randNormal(call).bytesSync()).equals(exact.randNormal(call).bytesSync()),
          `${dtype} from ${offset}, ${mean} and ${std}`,
        );
      }
  });

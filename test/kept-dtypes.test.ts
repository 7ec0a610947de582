// i8 and f8e5m2: tensors are kept in them, ops compute on them by way of i32 and f32.
import assert from 'node:assert/strict';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test } from 'node:test';
import { DTYPE, DTYPES, KEPT, type DType, type Value } from '../src/base/dtype.js';
import { cat, DTypeError, full, Tensor, tensor, zeros } from '../src/index.js';
import { loadTensors, npyHolds, saveTensors } from '../src/io/index.js';
import { opList } from '../src/ops/table.js';
import { buildInputs, type Case, casesOf, runCase } from '../src/testing/cases.js';
import { testDevices } from '../src/testing/devices.js';
import { decodeValues } from '../src/testing/values.js';
import { Device } from '../src/tensor/device.js';

const devices = testDevices('cpu,sim:32').flatMap((p) => (p.device ? [p.device] : []));
const BYTES = Uint8Array.from({ length: 256 }, (_, i) => i);
const { decode } = DTYPE.f8e5m2;
/** By search: the nearest of all values, the even one of two. */
function nearest(x: number): number {
  if (x !== x) return 0x7f;
  const sign = x < 0 || Object.is(x, -0) ? 0x80 : 0;
  // One more step of the same size stands for infinity: what is nearer to it than to the largest value goes there.
  const values = Array.from({ length: 0x7d }, (_, b) => (b === 0x7c ? 65536 : Number(decode(b))));
  const far = (b: number): number => Math.abs(values[b] - Math.min(Math.abs(x), 1e6));
  let best = 0;
  for (let b = 1; b < values.length; b++) if (far(b) < far(best) || (far(b) === far(best) && b % 2 === 0)) best = b;
  return sign | best;
}

for (const device of devices)
  test(`casts of f8e5m2: all values and what lies between them, on ${device.name}`, () => {
    const all = Tensor.fromBytes(BYTES, [256], 'f8e5m2', device);
    const halves = Tensor.fromBytes(
      Uint8Array.from({ length: 512 }, (_, i) => (i % 2 ? i >> 1 : 0)),
      [256],
      'f16',
      device,
    );
    assert.deepEqual(all.cast('f32').toArray(), halves.cast('f32').toArray(), 'the upper half of an f16');
    const back = all.cast('f32').cast('f8e5m2').bytesSync();
    for (let b = 0; b < 256; b++) assert.ok(back[b] === b || Number.isNaN(decode(b)), `byte ${b} becomes ${back[b]}`);
    const values = Array.from(BYTES.subarray(0, 0x7c), (b) => Number(decode(b)));
    const between = values.slice(1).flatMap((v, i) => {
      const middle = (v + values[i]) / 2;
      return [middle, middle * (1 + 2 ** -20), middle * (1 - 2 ** -20)].flatMap((x) => [x, -x]);
    });
    const given = [...between, 61439, 61440, 1e9, -1e9, Infinity, -Infinity, NaN, 0, -0, 1e-9];
    const want = given.map((x) => nearest(Math.fround(x)));
    assert.deepEqual([...tensor(given, { device }).cast('f8e5m2').bytesSync()], want);
    // Rounded once: a double just above the middle must not become the middle on the way.
    const above = (values[9] + values[10]) / 2;
    const doubles = tensor([above * (1 + 2 ** -50), above * (1 - 2 ** -50)], { dtype: 'f64', device });
    assert.deepEqual([...doubles.cast('f8e5m2').bytesSync()], [10, 9]);
    const whole = tensor([1n << 40n, 20481n, 20480n, -7n], { device });
    assert.deepEqual(whole.cast('f8e5m2').toArray(), [Infinity, 20480, 20480, -7]);
  });

for (const device of devices)
  test(`casts of i8: floats saturate, integers keep their low bits, on ${device.name}`, () => {
    const all = Tensor.fromBytes(BYTES, [256], 'i8', device);
    assert.deepEqual(all.dataSync('i8'), Int8Array.from(BYTES));
    for (const dtype of DTYPES.filter((d) => !['bool', 'u8', 'u32', 'f8e4m3', 'bf16'].includes(d)))
      assert.deepEqual(all.cast(dtype).cast('f64').dataSync(), Float64Array.from(Int8Array.from(BYTES)), dtype);
    const floats = tensor([1.9, -1.9, 127.5, 128, 1e30, -129, -Infinity, NaN], { device });
    assert.deepEqual(floats.cast('i8').toArray(), [1, -1, 127, 127, 127, -128, -128, 0]);
    assert.deepEqual(tensor([300, -200, 128], { dtype: 'i32', device }).cast('i8').toArray(), [44, 56, -128]);
    assert.deepEqual(all.cast('bool').sum().item(), 255);
  });

/** The rows that kept dtypes go along with: those of i16 and of f8e4m3. */
const ALIKE = { i8: 'i16', f8e5m2: 'f8e4m3' } as const;
type Answer = readonly [dtype: DType, values: readonly Value[]];
const RAN = { i8: 0, f8e5m2: 0 };
for (const kept of KEPT)
  test(`every row that takes ${ALIKE[kept]} takes ${kept}: on the CPU as on the reference`, () => {
    for (const row of opList) {
      if (row.family === 'composite' || row.family === 'random' || !row.dtypes.includes(ALIKE[kept])) continue;
      // One sample as it lies and one turned round.
      const some = [...casesOf([row], ALIKE[kept])].filter((c) => /\/(contiguous|transposed)\/0$/.test(c.name));
      for (const c of some) {
        const answers = [Device.reference(), Device.cpu()].map((device): Tensor[] => {
          const { tensors } = buildInputs(c, device);
          const given = tensors.map((t) => (t.dtype === ALIKE[kept] ? t.cast(kept) : t));
          const params = c.sample && 'params' in c.sample ? c.sample.params : {};
          const asked = (params as { dtype?: DType }).dtype === ALIKE[kept] ? { ...params, dtype: kept } : params;
          const sample = { ...c.sample, params: asked } as Case['sample'];
          return runCase({ row, sample, dtype: kept }, given, device);
        });
        const [want, got] = answers.map((list) =>
          list.map((t): Answer => [t.dtype, decodeValues(t.bytesSync(), t.dtype)]),
        );
        // Floats of the CPU are within the row's bound, which in f8e5m2 is hardly ever another number: then by one
        // step.
        if (kept === 'i8') assert.deepEqual(got, want, c.name);
        else
          want.forEach(([dtype, values], i) => {
            assert.equal(got[i][0], dtype, c.name);
            values.forEach((v, j) => close(Number(got[i][1][j]), Number(v), c.name));
          });
        RAN[kept]++;
      }
    }
    assert.ok(RAN[kept] > 100, `${RAN[kept]} calls`);
  });
function close(got: number, want: number, name: string): void {
  if (Object.is(got, want) || (got !== got && want !== want)) return;
  assert.ok(Math.abs(got - want) <= 0.3 * Math.abs(want) + 2 ** -14, `${name}: ${got}, not ${want}`);
}

test('results are of the kept dtype where others would be of theirs; operands of two dtypes are refused', () => {
  const x = tensor(
    [
      [100, -100],
      [3, 4],
    ],
    { dtype: 'i8' },
  );
  assert.deepEqual(
    x.add(x).toArray(),
    [
      [-56, 56],
      [6, 8],
    ],
    'sums wrap',
  );
  assert.equal(x.add(1).dtype, 'i8');
  assert.equal(x.lt(0).dtype, 'bool');
  assert.equal(x.sum().dtype, 'i64');
  assert.equal(x.t().reshape([4]).narrow(0, 1, 2).dtype, 'i8');
  assert.deepEqual(cat([x, x.flip(0)], 0).toArray(), [
    [100, -100],
    [3, 4],
    [3, 4],
    [100, -100],
  ]);
  assert.throws(() => x.add(x.cast('i32')), /add: .*i8.*i32/);
  assert.throws(() => x.add(300), DTypeError);
  assert.throws(() => full([2], 200, { dtype: 'i8' }), /200 is no i8/);
  assert.throws(() => x.exp(), /exp: does not take i8/);
  assert.throws(() => x.cast('f8e5m2').matmul(x.cast('f8e5m2')), /matmul: does not take f8e5m2/);
  assert.deepEqual(zeros([2], { dtype: 'f8e5m2' }).add(0.3).toArray(), [0.3125, 0.3125]);
  assert.equal(String(tensor([1.5], { dtype: 'f8e5m2' })).includes('f8e5m2'), true);
});

test('gradients flow through f8e5m2', () => {
  const x = tensor([0.5, 2, -3], { dtype: 'f8e5m2', requiresGrad: true });
  const grads = x.mul(x).sum().backward();
  assert.deepEqual([grads.of(x).dtype, grads.of(x).toArray()], ['f8e5m2', [1, 4, -6]]);
});

test('files hold them as they are', () => {
  const dir = mkdtempSync(join(tmpdir(), 'wick-kept-'));
  try {
    const i = tensor([-128, -1, 127], { dtype: 'i8' });
    const f = tensor([0.25, -57344, Infinity], { dtype: 'f8e5m2' });
    const check = (file: string, want: Readonly<Record<string, Tensor>>): void => {
      const path = join(dir, file);
      saveTensors(path, new Map(Object.entries(want)));
      const read = loadTensors(path);
      for (const [name, t] of Object.entries(want)) {
        assert.equal(read.get(name)?.dtype, t.dtype, `${file}: ${name}`);
        assert.deepEqual(read.get(name)?.toArray(), t.toArray(), `${file}: ${name}`);
      }
    };
    check('both.safetensors', { i, f });
    check('one.npz', { i });
    assert.deepEqual([npyHolds('i8'), npyHolds('f8e5m2')], [true, false]);
  } finally {
    rmSync(dir, { recursive: true, force: true });
  }
});

// Refusals: every row's error samples throw the stated code and sentence on each device, and misuse of the API never
// crashes.
import assert from 'node:assert/strict';
import { after, test } from 'node:test';
import {
  arange,
  cat,
  einsum,
  full,
  ones,
  rand,
  stack,
  tensor,
  Tensor,
  UnsupportedError,
  WickError,
  zeros,
} from '../src/index.js';
import type { DType } from '../src/base/dtype.js';
import type { CompositeErrorSample, ErrorSample, Row } from '../src/ops/op.js';
import { opList } from '../src/ops/table.js';
import { runCase } from '../src/testing/cases.js';
import { testDevices } from '../src/testing/devices.js';
import { inputValues, randomizer } from '../src/testing/values.js';
import { LAYOUTS, placed } from '../src/testing/layouts.js';
import { Device } from '../src/tensor/device.js';
import { scope } from '../src/tensor/scope.js';

let refused = 0;
let unsupported = 0;

/** The dtype an error sample is tried in: f32 where the row takes it. */
const dtypeOf = (row: Row): DType => (row.dtypes.includes('f32') ? 'f32' : row.dtypes[0]);

function provoke(row: Row, sample: ErrorSample | CompositeErrorSample, device: Device): unknown {
  try {
    scope(() => {
      const inputs = sample.inputs.map((spec) => {
        const dtype = spec.dtype ?? dtypeOf(row);
        return placed(
          inputValues(spec, dtype, row.domain ?? [-1, 1], randomizer(1)),
          LAYOUTS.contiguous(spec.shape),
          dtype,
          device,
        );
      });
      // Devices that only enqueue may find a bad index later: reading waits for it.
      for (const t of runCase({ row, sample, dtype: dtypeOf(row) }, inputs, device)) t.bytesSync();
    });
  } catch (e) {
    return e;
  }
  return undefined;
}

for (const { name, device, missing } of testDevices('reference,cpu')) {
  for (const row of opList) {
    const samples = (row.errors?.() ?? []) as readonly (ErrorSample | CompositeErrorSample)[];
    if (samples.length === 0) continue;
    test(`${row.name} refuses on ${name}: ${samples.length} cases`, { skip: missing }, () => {
      for (const [i, s] of samples.entries()) {
        const e = provoke(row, s, device as Device);
        if (e instanceof UnsupportedError && s.code !== 'E_UNSUPPORTED') {
          unsupported++;
          continue;
        }
        assert.ok(
          e instanceof WickError,
          `${row.name} error sample ${i}: ${e === undefined ? 'nothing was thrown' : String(e)}`,
        );
        assert.equal(e.code, s.code, `${row.name} error sample ${i}: ${String(e)}`);
        assert.match(e.message, s.says, `${row.name} error sample ${i}`);
        refused++;
      }
    });
  }
}

/** What people get wrong, and the code they are told. */
const MISUSE: readonly (readonly [what: string, code: string, call: (d: Device) => unknown])[] = [
  ['mixed dtypes', 'E_DTYPE', (d) => ones([2], { device: d }).add(ones([2], { device: d, dtype: 'f64' }))],
  ['a fraction beside an integer tensor', 'E_DTYPE', (d) => ones([2], { device: d, dtype: 'i32' }).add(0.5)],
  ['a float function of integers', 'E_DTYPE', (d) => ones([2], { device: d, dtype: 'i32' }).exp()],
  ['shapes that do not broadcast', 'E_SHAPE', (d) => ones([2, 3], { device: d }).add(ones([4], { device: d }))],
  [
    'a disposed tensor',
    'E_DISPOSED',
    (d) => {
      const t = ones([2], { device: d });
      t.dispose();
      return t.add(1);
    },
  ],
  [
    'a view of a disposed tensor',
    'E_DISPOSED',
    (d) => {
      const t = ones([2, 2], { device: d });
      t.dispose();
      return t.t();
    },
  ],
  [
    'reading a disposed tensor',
    'E_DISPOSED',
    (d) => {
      const t = ones([2], { device: d });
      t.dispose();
      return t.dataSync();
    },
  ],
  ['a NaN dimension', 'E_SHAPE', (d) => zeros([2, NaN], { device: d })],
  ['a fractional dimension', 'E_SHAPE', (d) => zeros([1.5], { device: d })],
  ['a negative dimension', 'E_SHAPE', (d) => zeros([-1], { device: d })],
  ['an infinite dimension', 'E_SHAPE', (d) => zeros([Infinity], { device: d })],
  ['more elements than numbers count', 'E_SHAPE', (d) => zeros([2 ** 30, 2 ** 30], { device: d })],
  ['more memory than any machine has', 'E_MEMORY', (d) => zeros([2 ** 50], { device: d })],
  ['a dimension out of range', 'E_SHAPE', (d) => ones([2, 3], { device: d }).sum(2)],
  ['a NaN dimension argument', 'E_SHAPE', (d) => ones([2, 3], { device: d }).sum(NaN)],
  ['the same dimension twice', 'E_SHAPE', (d) => ones([2, 3], { device: d }).sum([0, -2])],
  ['a reshape that does not fit', 'E_SHAPE', (d) => ones([2, 3], { device: d }).reshape([4, 2])],
  ['two unknown dimensions', 'E_SHAPE', (d) => ones([2, 3], { device: d }).reshape([-1, -1])],
  ['a narrow beyond the end', 'E_SHAPE', (d) => ones([4], { device: d }).narrow(0, 3, 2)],
  ['a step of 0', 'E_ARGUMENT', (d) => ones([4], { device: d }).slice(0, 0, 4, 0)],
  ['an arange without end', 'E_ARGUMENT', (d) => arange(0, Infinity, 1, { device: d })],
  ['an arange with step 0', 'E_ARGUMENT', (d) => arange(0, 1, 0, { device: d })],
  ['ragged arrays', 'E_SHAPE', (d) => tensor([[1, 2], [3]] as never, { device: d })],
  ['arrays of words', 'E_ARGUMENT', (d) => tensor(['a'] as never, { device: d })],
  ['fractions in an integer tensor', 'E_DTYPE', (d) => tensor([1.5], { dtype: 'i32', device: d })],
  ['an unknown dtype', 'E_DTYPE', (d) => zeros([2], { dtype: 'f12' as never, device: d })],
  ['elements that do not fill a shape', 'E_SHAPE', (d) => tensor(new Float32Array(5), { shape: [2, 3], device: d })],
  ['cat of nothing', 'E_ARGUMENT', () => cat([])],
  ['stack of nothing', 'E_ARGUMENT', () => stack([])],
  ['cat of unlike shapes', 'E_SHAPE', (d) => cat([ones([2, 2], { device: d }), ones([3, 3], { device: d })])],
  [
    'matmul of unlike inner dimensions',
    'E_SHAPE',
    (d) => ones([2, 3], { device: d }).matmul(ones([4, 5], { device: d })),
  ],
  ['an einsum of the wrong rank', 'E_SHAPE', (d) => einsum('ijk->i', ones([2, 2], { device: d }))],
  [
    'an index out of range',
    'E_INDEX',
    (d) =>
      ones([3], { device: d })
        .indexSelect(0, tensor([7n], { device: d }))
        .dataSync(),
  ],
  ['item of many', 'E_SHAPE', (d) => ones([2], { device: d }).item()],
  ['an unknown device', 'E_DEVICE', () => Device.get('abacus:0')],
  ['backward without a graph', 'E_GRAD', (d) => ones([1], { device: d }).sum().backward()],
  ['backward of many numbers', 'E_GRAD', (d) => ones([2], { device: d, requiresGrad: true }).mul(2).backward()],
  ['a gradient for integers', 'E_GRAD', (d) => ones([2], { device: d, dtype: 'i32' }).requireGrad()],
  [
    'assign of another dtype',
    'E_DTYPE',
    (d) => ones([2], { device: d }).assign(ones([2], { device: d, dtype: 'f64' })),
  ],
  ['assign of another shape', 'E_SHAPE', (d) => ones([2], { device: d }).assign(ones([3], { device: d }))],
  ['fromBytes of the wrong length', 'E_SHAPE', (d) => Tensor.fromBytes(new Uint8Array(3), [1], 'f32', d)],
  ['random integers in no range', 'E_DTYPE', (d) => rand([2], { device: d, dtype: 'i32' })],
];

for (const { name, device, missing } of testDevices('reference,cpu')) {
  for (const [what, code, call] of MISUSE) {
    test(`${what} on ${name}: ${code}`, { skip: missing }, () => {
      assert.throws(
        () => call(device as Device),
        (e: unknown) => (e instanceof WickError && e.code === code && e.message.length > 10) || assert.fail(String(e)),
      );
    });
  }
  test(`operands on different devices, ${name} and reference`, {
    skip: missing ?? (name === 'reference' ? 'it is the other device' : false),
  }, () => {
    assert.throws(() => full([2], 1, { device: device as Device }).add(full([2], 1, { device: Device.reference() })), {
      code: 'E_DEVICE',
    });
  });
}

after(() => console.log(`errors: ${refused} samples refused as stated, ${unsupported} unsupported with a sentence`));

test('errors of an op that runs by another row name the op that was called', () => {
  const make = (dtype: DType): Tensor => full([1, 2, 3, 4], 1, { dtype, device: Device.reference() });
  const says = (call: () => unknown, text: RegExp): void =>
    assert.throws(call, (e: Error) => text.test(e.message) || assert.fail(e.message));
  says(() => make('i32').sdpa(make('i32'), make('i32')), /^sdpa: does not take i32/);
  says(() => make('f32').sdpa(make('f64'), make('f32')), /^sdpa: operands are f32, f64, f32/);
  says(() => make('f32').sdpa(undefined as never, make('f32')), /^sdpa: operand 1 is undefined/);
});

test('arguments of the wrong kind give a typed error, or a result, on every op', () => {
  const wrong: readonly unknown[] = [undefined, null, 'a', {}, [], NaN, -1, 1.5, 1e12, true, Symbol.iterator];
  for (const row of opList)
    for (const bad of wrong)
      for (const count of [1, 2, 3]) {
        const what = `${row.name}(${Array.from({ length: count }, () => (typeof bad === 'symbol' ? 'symbol' : (JSON.stringify(bad) ?? 'undefined'))).join(', ')})`;
        scope(() => {
          const x = tensor([
            [1, 2, 3],
            [4, 5, 6],
          ]) as unknown as Record<string, (...args: unknown[]) => unknown>;
          try {
            x[row.name](...Array.from({ length: count }, () => bad));
          } catch (e) {
            assert.ok(e instanceof WickError, `${what}: ${String(e)}`);
          }
        });
      }
});

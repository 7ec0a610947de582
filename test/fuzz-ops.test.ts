// Random calls of every method in the table, with arguments that fit and arguments that do not: a result or a typed
// error, never a crash.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import fc from 'fast-check';
import { type DType, NUMBERS } from '../src/base/dtype.js';
import { Tensor, WickError } from '../src/index.js';
import { opList } from '../src/ops/table.js';
import type { Device } from '../src/tensor/device.js';
import { parameterCount } from '../src/tensor/parameter-count.js';
import { scope } from '../src/tensor/scope.js';
import { testDevices } from '../src/testing/devices.js';
import { LAYOUT_NAMES, LAYOUTS, placed } from '../src/testing/layouts.js';
import { randomizer } from '../src/testing/values.js';

const RUNS = 3000;

/** A tensor described, so that a failing call can be printed. */
interface Described {
  readonly tensor: {
    readonly dtype: DType;
    readonly shape: readonly number[];
    readonly layout: string;
    readonly top: number;
  };
}
const numbers = fc.constantFrom(0, 1, 2, 3, -1, -2, 0.5, 1.5, 7, Number.NaN, Number.POSITIVE_INFINITY, -(2 ** 31), 2 ** 40, 2 ** 60); // biome-ignore format: one list
const sizes = fc.array(fc.constantFrom(0, 1, 2, 2, 3, 3, 4, 5), { maxLength: 4 });
const tensors: fc.Arbitrary<Described> = fc
  .record({
    // Most calls are worth trying at equal dtypes: the rest of the check is behind that.
    dtype: fc.oneof({ weight: 3, arbitrary: fc.constant('f32' as DType) }, fc.constantFrom(...NUMBERS)),
    shape: fc.oneof(sizes, fc.constantFrom([2, 3], [3, 4], [1, 2, 4, 4], [2, 2, 3, 4])),
    layout: fc.constantFrom(...LAYOUT_NAMES),
    top: fc.constantFrom(1, 3, 100),
  })
  .map((tensor) => ({ tensor }));
const plain = fc.oneof(
  numbers,
  fc.array(numbers, { maxLength: 4 }),
  sizes,
  fc.boolean(),
  fc.constantFrom('f32', 'sum', 'nearest', '', undefined, null, {}),
  fc.constant([[0, 2], [1, 3]]), // biome-ignore format: one line
);
const options = fc.dictionary(
  fc.constantFrom('stride', 'padding', 'dilation', 'groups', 'bias', 'causal', 'mask', 'scale', 'window', 'lengths', 'softcap', 'sinks', 'alibi', 'eps', 'size', 'alignCorners', 'maxQueries', 'maxKeys', 'layout'), // biome-ignore format: one list
  fc.oneof(numbers, fc.boolean(), tensors, fc.tuple(numbers, numbers)),
  { maxKeys: 3 },
);
/** How many arguments each op takes; one more is refused at once, so that most calls have no more. */
const MOST = new Map(opList.map((r) => [r.name, parameterCount('compose' in r ? r.compose : r.args) - 1]));
const calls = fc.record({
  op: fc.constantFrom(...MOST.keys()),
  self: tensors,
  excess: fc.oneof({ weight: 9, arbitrary: fc.constant(0) }, fc.constant(1)),
  args: fc.array(fc.oneof({ weight: 3, arbitrary: tensors }, { weight: 3, arbitrary: plain }, options), {
    maxLength: 5,
  }),
});

const isDescribed = (v: unknown): v is Described => typeof v === 'object' && v !== null && 'tensor' in v;
function real(v: unknown, device: Device): unknown {
  if (isDescribed(v)) {
    const { dtype, shape, layout, top } = v.tensor;
    const random = randomizer(shape.length + top);
    const empty = shape.includes(0); // nothing lies anywhere: gaps would mean nothing
    const place = (!empty && LAYOUTS[layout as keyof typeof LAYOUTS](shape)) || LAYOUTS.contiguous(shape);
    const whole = dtype[0] === 'u' || dtype[0] === 'i';
    const values = Array.from({ length: place.size }, () => {
      const x = Math.floor(random() * (top + 1)) - (dtype[0] === 'u' ? 0 : 1);
      return whole ? BigInt(x) : x;
    });
    return placed(values, place, dtype, device);
  }
  if (Array.isArray(v)) return v.map((x) => real(x, device));
  if (typeof v === 'object' && v !== null)
    return Object.fromEntries(Object.entries(v).map(([k, x]) => [k, real(x, device)]));
  return v;
}

function read(result: unknown): void {
  if (result instanceof Tensor) {
    assert.equal(result.dataSync().length, result.size);
  } else if (Array.isArray(result)) result.forEach(read);
}

for (const { name, device, missing } of testDevices('cpu')) {
  test(`${RUNS} random calls on ${name} end in a result or a typed error`, { skip: missing }, () => {
    let results = 0;
    fc.assert(
      fc.property(calls, ({ op, self, excess, args }) =>
        scope(() => {
          const x = real(self, device as Device) as unknown as Record<string, (...args: unknown[]) => unknown>;
          try {
            const given = args.slice(0, (MOST.get(op) as number) + excess);
            read(x[op](...given.map((a) => real(a, device as Device))));
            results++;
          } catch (e) {
            assert.ok(e instanceof WickError, `${op}: untyped ${(e as Error).stack}`);
          }
        }),
      ),
      { numRuns: RUNS, seed: 20261116, includeErrorInReport: true },
    );
    assert.ok(results > RUNS / 10, `only ${results} of ${RUNS} calls were valid: the fuzzer tries too little`);
  });
}

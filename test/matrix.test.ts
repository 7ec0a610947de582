// The matrix: every op x dtype x layout x sample of the table, on every device under test, against the reference
// engine.
// One case: WICK_CASE=exp/f32/transposed/0 npm test (a prefix such as exp/ runs all of them; several are separated by
// commas).
// A sample: WICK_SAMPLE=3 runs each op on one of its dtypes, the next op on its next dtype, with three cases spread
// over that dtype's list.
import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import '../src/index.js';
import { isFloat } from '../src/base/dtype.js';
import { UnsupportedError } from '../src/base/errors.js';
import type { Row } from '../src/ops/op.js';
import { opList } from '../src/ops/table.js';
import { type Case, casesOf, buildInputs, runCase } from '../src/testing/cases.js';
import { difference, judge } from '../src/testing/compare.js';
import { inShard, testDevices } from '../src/testing/devices.js';
import { attempt, warm } from '../src/testing/warm.js';
import { decodeValues } from '../src/testing/values.js';
import { Device } from '../src/tensor/device.js';
import { scope } from '../src/tensor/scope.js';
import type { Tensor } from '../src/tensor/tensor.js';

const only = (process.env.WICK_CASE ?? '').split(',');
const sample = Number(process.env.WICK_SAMPLE ?? 0);
const reference = Device.reference();
const totals = { passed: 0, failed: 0, unsupported: 0 };

/** The cases of the table's n-th row that were asked for. */
function chosen(row: Row, n: number): Case[] {
  const all = [...casesOf([row])].filter((c) => only.some((o) => c.name.startsWith(o)));
  if (sample === 0) return all;
  const dtypes = [...new Set(all.map((c) => c.dtype))];
  const list = all.filter((c) => c.dtype === dtypes[n % dtypes.length]);
  return list.filter((_, k) => Math.floor((k * sample) / list.length) !== Math.floor(((k - 1) * sample) / list.length));
}

/**
 * Rows whose results are sums judge errors against the largest result: cancellation makes single results meaningless.
 */
const normwise = (row: Row): boolean => row.family !== 'elementwise';

function results(
  c: Case,
  device: Device,
): { scale?: number; dtype: Tensor['dtype']; values: ReturnType<typeof decodeValues>; shape: readonly number[] }[] {
  let out: ReturnType<typeof results> = [];
  scope(() => {
    const { tensors, values } = buildInputs(c, device);
    const scale = Math.max(
      0,
      ...values.map((v) => v.reduce<number>((m, x) => Math.max(m, Math.abs(Number(x)) || 0), 0)),
    );
    out = runCase(c, tensors, device).map((t) => ({
      scale,
      dtype: t.dtype,
      shape: t.shape,
      values: decodeValues(t.bytesSync(), t.dtype),
    }));
  });
  return out;
}

function check(c: Case, device: Device): string | undefined {
  const want = results(c, reference);
  const got = results(c, device);
  for (const [i, w] of want.entries()) {
    const g = got[i];
    assert.deepEqual(g.shape, w.shape, `${c.name}: shape`);
    assert.equal(g.dtype, w.dtype, `${c.name}: dtype`);
    const d = difference(g.values, w.values, w.dtype, normwise(c.row), w.scale);
    const wrong = judge(d, isFloat(w.dtype) ? c.row.ulp : 0, w.dtype);
    if (wrong) return `${c.name} on ${device.name}: result ${i}, ${wrong}`;
  }
  return undefined;
}

/** Which kernels the cases need on an emulated GPU is found by a dry run. */
function warmFor(device: Device): void {
  const began = performance.now();
  let asked = 0;
  const kernels = warm(device, (dry) => {
    for (const [index, row] of opList.entries()) {
      if (!inShard(index)) continue;
      for (const c of chosen(row, index)) {
        asked++;
        attempt(() => scope(() => void runCase(c, buildInputs(c, dry).tensors, dry)));
      }
    }
  });
  if (kernels > 0)
    console.log(
      `${device.name}: ${kernels} kernels for ${asked} cases compiled in ` +
        `${((performance.now() - began) / 1000).toFixed(1)} s`,
    );
}

test('every op of the table has cases', () =>
  assert.deepEqual(
    opList.filter((row) => casesOf([row]).next().done).map((row) => row.name),
    [],
  ));

for (const { name, device, missing } of testDevices()) {
  if (device) before(() => warmFor(device));
  for (const [index, row] of opList.entries()) {
    if (!inShard(index)) continue;
    const cases = chosen(row, index);
    if (cases.length === 0) continue;
    test(`${row.name} on ${name}: ${cases.length} cases`, { skip: missing }, () => {
      const failures: string[] = [];
      for (const c of cases) {
        try {
          const wrong = check(c, device as Device);
          if (wrong) failures.push(wrong);
          else totals.passed++;
        } catch (e) {
          if (e instanceof UnsupportedError) {
            totals.unsupported++;
            continue;
          }
          failures.push(`${c.name} on ${name}: ${String(e)}`);
        }
      }
      totals.failed += failures.length;
      assert.equal(
        failures.length,
        0,
        `${failures.length} of ${cases.length} failed:\n  ${failures.slice(0, 12).join('\n  ')}`,
      );
    });
  }
}

after(() =>
  console.log(
    `matrix: ${totals.passed} cases passed, ${totals.failed} failed, ${totals.unsupported} unsupported with a sentence`,
  ),
);

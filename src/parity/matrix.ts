// One case of the matrix on a device, against the reference engine: how far off, and what that means.
import { isFloat, type Value } from '../base/dtype.js';
import { UnsupportedError, WickError } from '../base/errors.js';
import { boundFor } from '../ops/op.js';
import { Device } from '../tensor/device.js';
import { scope } from '../tensor/scope.js';
import { buildInputs, type Case, runCase } from '../testing/cases.js';
import { difference, judge } from '../testing/compare.js';
import { decodeValues } from '../testing/values.js';
import type { CaseResult } from './candle.js';
import type { Verdict } from './verdict.js';

interface Outcome {
  readonly dtype: Case['dtype'];
  readonly shape: readonly number[];
  readonly values: readonly Value[];
}

function outcomes(c: Case, device: Device): Outcome[] {
  let out: Outcome[] = [];
  scope(() => {
    const { tensors } = buildInputs(c, device);
    out = runCase(c, tensors, device).map((t) => ({ dtype: t.dtype, shape: t.shape, values: decodeValues(t.bytesSync(), t.dtype) }));
  });
  return out;
}

/** Results of the reference engine, kept while several devices are held against them. */
export type Wanted = Map<string, readonly Outcome[]>;

export function runMatrixCase(c: Case, device: Device, known: Wanted = new Map()): CaseResult {
  const bound = isFloat(c.dtype) ? boundFor(c.row.ulp, c.dtype) : 0;
  const head = { name: c.name, op: c.row.name, row: c.row.name, dtype: c.dtype, bound };
  try {
    const got = outcomes(c, device);
    const want = known.get(c.name) ?? outcomes(c, Device.reference());
    known.set(c.name, want);
    let ulp = 0;
    for (const [i, w] of want.entries()) {
      const g = got[i];
      if (g.dtype !== w.dtype || g.shape.join() !== w.shape.join()) {
        return { ...head, verdict: 'failed', why: `result ${i} is ${g.dtype} [${g.shape.join(', ')}], not ${w.dtype} [${w.shape.join(', ')}]` };
      }
      // Sums are judged against the largest result: cancellation makes single results meaningless.
      const d = difference(g.values, w.values, w.dtype, c.row.family !== 'elementwise');
      ulp = Math.max(ulp, d.ulp);
      const wrong = judge(d, isFloat(w.dtype) ? c.row.ulp : 0, w.dtype);
      if (wrong) return { ...head, verdict: 'failed', ulp, why: `result ${i}, ${wrong}` };
    }
    const verdict: Verdict = ulp === 0 ? 'exact' : 'within';
    return { ...head, verdict, ulp };
  } catch (e) {
    if (e instanceof UnsupportedError) return { ...head, verdict: 'unsupported', why: e.message };
    if (e instanceof WickError) return { ...head, verdict: 'failed', why: String(e) };
    throw e;
  }
}

// One case of the matrix on a device, against the reference engine: how far off, and what that means.
import { type DType, isFloat } from '../base/dtype.js';
import { boundFor } from '../ops/op.js';
import { Device } from '../tensor/device.js';
import { scope } from '../tensor/scope.js';
import { type Case, runCase, storedInputs } from '../testing/cases.js';
import { difference, judge } from '../testing/compare.js';
import { put, type Stored } from '../testing/layouts.js';
import { decodeValues } from '../testing/values.js';
import type { CaseResult } from './candle.js';
import { caught } from './verdict.js';

interface Outcome {
  readonly dtype: DType;
  readonly shape: readonly number[];
  readonly bytes: Uint8Array<ArrayBuffer>;
}

function outcomes(c: Case, inputs: readonly Stored[], device: Device): Outcome[] {
  let out: Outcome[] = [];
  scope(() => {
    out = runCase(
      c,
      inputs.map((i) => put(i, device)),
      device,
    ).map((t) => ({ dtype: t.dtype, shape: t.shape, bytes: t.bytesSync() }));
  });
  return out;
}
const sameBytes = (a: Uint8Array, b: Uint8Array): boolean => Buffer.compare(a, b) === 0;

/** A case's inputs and its wanted results, computed once for all devices. */
export class MatrixCase {
  readonly case: Case;
  readonly #inputs: readonly Stored[];
  readonly #scale: number;
  #want: readonly Outcome[] | undefined;

  constructor(c: Case) {
    this.case = c;
    const { inputs, values } = storedInputs(c);
    this.#inputs = inputs;
    this.#scale = values.reduce(
      (most, v) => v.reduce<number>((m, x) => Math.max(m, Math.abs(Number(x)) || 0), most),
      0,
    );
  }

  run(device: Device): CaseResult {
    const c = this.case;
    const bound = isFloat(c.dtype) ? boundFor(c.row.ulp, c.dtype) : 0;
    const head = { name: c.name, op: c.row.name, row: c.row.name, dtype: c.dtype, bound };
    try {
      const got = outcomes(c, this.#inputs, device);
      const want = (this.#want ??= outcomes(c, this.#inputs, Device.reference()));
      let ulp = 0;
      for (const [i, w] of want.entries()) {
        const g = got[i];
        if (g.dtype !== w.dtype || g.shape.join() !== w.shape.join()) {
          return {
            ...head,
            verdict: 'failed',
            why: `result ${i} is ${g.dtype} [${g.shape.join(', ')}], not ${w.dtype} [${w.shape.join(', ')}]`,
          };
        }
        if (sameBytes(g.bytes, w.bytes)) continue;
        // Sums are judged against the largest result: cancellation makes single results meaningless.
        const d = difference(
          decodeValues(g.bytes, g.dtype),
          decodeValues(w.bytes, w.dtype),
          w.dtype,
          c.row.family !== 'elementwise',
          this.#scale,
        );
        ulp = Math.max(ulp, d.ulp);
        const wrong = judge(d, isFloat(w.dtype) ? c.row.ulp : 0, w.dtype);
        if (wrong) return { ...head, verdict: 'failed', ulp, why: `result ${i}, ${wrong}` };
      }
      return { ...head, verdict: ulp === 0 ? 'exact' : 'within', ulp };
    } catch (e) {
      return { ...head, ...caught(e) };
    }
  }
}

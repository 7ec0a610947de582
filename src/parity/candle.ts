// Candle's cases on a device: run, judge, and say why where we mean to differ.
import { type DType, isFloat, type Value } from '../base/dtype.js';
import { boundFor, type Bound } from '../ops/op.js';
import { noGrad } from '../tensor/autograd.js';
import { Device } from '../tensor/device.js';
import { scope } from '../tensor/scope.js';
import type { Tensor } from '../tensor/tensor.js';
import { decodeValues } from '../testing/values.js';
import { type CandleCall, candleCall, rowOfCall } from './candle-calls.js';
import type { Golden, GoldenCase } from './golden.js';
import { reasonFor } from './differences.js';
import { caught, type Judged, judgeValues, unknownDType, type Verdict } from './verdict.js';

export interface CaseResult {
  readonly name: string;
  readonly op: string;
  /** Our row's name, where one row speaks for the case. */
  readonly row?: string;
  readonly dtype: DType;
  readonly verdict: Verdict;
  readonly bound: number;
  readonly ulp?: number;
  readonly ownUlp?: number;
  readonly theirUlp?: number;
  /** Why it differs, is unsupported or failed. */
  readonly why?: string;
}

const caseName = (c: GoldenCase): string => `candle/${c.op}/${c.dtype}/${c.id}`;

/** Runs a call and gives the result's values; inputs wider than they are stored where `wide`. */
function results(
  golden: Golden,
  c: GoldenCase,
  call: CandleCall,
  device: Device,
  wide: boolean,
): { dtype: DType; values: Value[] } {
  return noGrad(() => {
    let out: { dtype: DType; values: Value[] } | undefined;
    scope(() => {
      const inputs: Record<string, Tensor> = {};
      for (const [name, stored] of Object.entries(c.inputs)) {
        const t = golden.on(device, stored);
        inputs[name] = wide && isFloat(t.dtype) ? t.cast('f64') : t;
      }
      const y = call.run(inputs, c.params, wide && isFloat(c.dtype) ? { ...c, dtype: 'f64' } : c);
      // Truth values are u8 in Candle, and its sums wrap in the dtype, where ours are bool and i64: the numbers count.
      const theirs = golden.tensor(Object.values(c.outputs)[0]).dtype;
      const own = isFloat(y.dtype) || isFloat(theirs) ? y : y.cast(theirs);
      out = { dtype: own.dtype, values: decodeValues(own.bytesSync(), own.dtype) };
    });
    return out as { dtype: DType; values: Value[] };
  });
}

export function runCandleCase(golden: Golden, c: GoldenCase, device: Device): CaseResult {
  const call = candleCall(c.op);
  const row = call && rowOfCall(call);
  let head = { name: caseName(c), op: c.op, dtype: c.dtype, ...(row && { row: row.name }), bound: 0 };
  const foreign = unknownDType(c.dtype);
  if (foreign) return { ...head, verdict: 'unsupported', why: foreign };
  if (!call) return { ...head, verdict: 'unsupported', why: `no op here answers to Candle's ${c.op}` };
  try {
    const stored = golden.tensor(Object.values(c.outputs)[0]);
    const bound = row && isFloat(stored.dtype) ? boundFor(row.ulp as Bound, stored.dtype) : 0;
    head = { ...head, bound };
    const got = results(golden, c, call, device, false);
    if (got.dtype !== stored.dtype)
      return { ...head, verdict: 'failed', why: `the result is ${got.dtype}, Candle's ${stored.dtype}` };
    const judged = judge(golden, c, call, got.values, bound, stored.dtype);
    if (judged.verdict !== 'failed') return { ...head, ...judged };
    const reason = reasonFor(golden, c, got.values);
    return reason ? { ...head, ...judged, verdict: 'differs', why: reason } : { ...head, ...judged };
  } catch (e) {
    return { ...head, ...caught(e) };
  }
}

function judge(
  golden: Golden,
  c: GoldenCase,
  call: CandleCall,
  got: readonly Value[],
  bound: number,
  dtype: DType,
): Judged {
  const want = golden.values(Object.values(c.outputs)[0]);
  const normwise = rowOfCall(call)?.family !== 'elementwise';
  const plain = judgeValues({ got, want, dtype, bound, normwise });
  if (plain.verdict === 'exact' || !isFloat(dtype) || !isFloat(c.dtype) || c.op === 'cast') return plain;
  const exact = results(golden, c, call, Device.reference(), true).values;
  return judgeValues({ got, want, exact, dtype, bound, normwise });
}

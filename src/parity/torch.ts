// PyTorch's cases on a device: results and gradients, each within a share of the largest magnitude.
import { type DType, isFloat, type Value } from '../base/dtype.js';
import { boundFor } from '../ops/op.js';
import { type OpName, OPS } from '../ops/table.js';
import type { Device } from '../tensor/device.js';
import { scope } from '../tensor/scope.js';
import type { Tensor } from '../tensor/tensor.js';
import { decodeValues } from '../testing/values.js';
import type { CaseResult } from './candle.js';
import type { Golden, GoldenCase } from './golden.js';
import { opCall } from './op-cases.js';
import { torchCall, type TorchCall } from './torch-calls.js';
import { caught, judgeValues, unknownDType } from './verdict.js';

/** Largest error as a share of the largest magnitude wanted. */
const TORCH_TOLERANCE: Partial<Record<DType, number>> = { f64: 1e-9, f32: 1e-4, f16: 4e-3, bf16: 3e-2 };
/**
 * A gradient that cancels to less than this share of what flowed in holds rounding alone (a norm over one element, a
 * saturated softmax).
 */
const CANCELLED = 1e-3;

/** Where PyTorch itself is imprecise: what our gradient becomes with its constant, and the sentence. */
const IMPRECISE: Readonly<Record<string, { readonly asTheirs: (v: number) => number; readonly reason: string }>> = {
  hard_sigmoid: {
    asTheirs: (v) => v * 6 * Math.fround(1 / 6),
    reason: "PyTorch multiplies the gradient by 1/6 rounded to single precision; ours is 1/6 in the tensor's own",
  },
};

/** Our row of a PyTorch op, where its name is not simply ours spelt another way. */
const ROWS: Readonly<Record<string, string>> = {
  var: 'variance',
  scatter_set: 'scatter',
  where_cond: 'where',
  slice_step: 'slice',
  broadcast_as: 'broadcastTo',
  bce_with_logits: 'bceWithLogits',
};
export function torchRow(op: string): string | undefined {
  const name = ROWS[op] ?? op.replace(/_(\w)/g, (_, c: string) => c.toUpperCase());
  return Object.hasOwn(OPS, name) ? name : undefined;
}
function rowOf(op: string): { row?: string } {
  const row = torchRow(op);
  return row === undefined ? {} : { row };
}

const torchName = (c: GoldenCase): string => `torch/${c.op}/${c.dtype}/${c.id}`;
const callOf = (c: GoldenCase): TorchCall | undefined => (c.args ? opCall(c) : torchCall(c.op));
export const hasTorchCall = (c: GoldenCase): boolean => callOf(c) !== undefined;

/** Cases by our names hold results rounded once: elementwise ops meet them within the row's bound and that rounding. */
function boundOf(c: GoldenCase, dtype: DType): number | undefined {
  const row = c.args && Object.hasOwn(OPS, c.op) ? OPS[c.op as OpName] : undefined;
  return row?.family === 'elementwise' ? boundFor(row.ulp, dtype) + 1 : undefined;
}

const largest = (values: readonly Value[]): number =>
  values.reduce<number>((most, v) => (Number.isFinite(Number(v)) ? Math.max(most, Math.abs(Number(v))) : most), 0);

/**
 * Largest difference over the largest magnitude, or over the floor where that is more; Infinity where integers, shapes,
 * NaN or infinities differ.
 */
function share(got: readonly Value[], want: readonly Value[], dtype: DType, floor: number): number {
  if (got.length !== want.length) return Infinity;
  const scale = Math.max(largest(want), floor);
  let worst = 0;
  for (let i = 0; i < want.length; i++) {
    if (Object.is(got[i], want[i]) || got[i] === want[i]) continue;
    const d = isFloat(dtype) ? Math.abs(Number(got[i]) - Number(want[i])) / (scale || 1) : Infinity;
    worst = Math.max(worst, d !== d ? Infinity : d);
  }
  return worst;
}

interface Part {
  readonly error: number;
  readonly why?: string;
}

function compare(
  golden: Golden,
  what: string,
  got: Tensor | undefined,
  name: string,
  floor = 0,
  adjust?: (v: number) => number,
  c?: GoldenCase,
): Part {
  const stored = golden.tensor(name);
  const want = decodeValues(stored.bytes, stored.dtype);
  // PyTorch's indices are i64, ours u32: the numbers count.
  const own = got && !isFloat(got.dtype) && got.dtype !== stored.dtype ? got.cast(stored.dtype) : got;
  if (!own)
    return want.every((v) => Number(v) === 0)
      ? { error: 0 }
      : { error: Infinity, why: `${what}: nothing flowed there` };
  if (own.dtype !== stored.dtype || own.shape.join() !== stored.shape.join()) {
    return {
      error: Infinity,
      why: `${what}: ${own.dtype} [${own.shape.join(', ')}], PyTorch's is ${stored.dtype} [${stored.shape.join(', ')}]`,
    };
  }
  const values = decodeValues(own.bytesSync(), own.dtype);
  const bound = c && isFloat(stored.dtype) ? boundOf(c, stored.dtype) : undefined;
  if (c && bound !== undefined) {
    const { ulp, why } = judgeValues({ got: values, want, dtype: stored.dtype, bound, normwise: false });
    return { error: ulp, ...(why && { why: `${what}: ${why}` }) };
  }
  const error = share(adjust ? values.map((v) => adjust(Number(v))) : values, want, stored.dtype, floor);
  const allowed = TORCH_TOLERANCE[stored.dtype] ?? 0;
  return error <= allowed
    ? { error }
    : { error, why: `${what}: off by ${error.toPrecision(3)} of the largest magnitude, allowed ${allowed}` };
}

export function runTorchCase(golden: Golden, c: GoldenCase, device: Device): CaseResult {
  const head = { name: torchName(c), op: c.op, ...rowOf(c.op), dtype: c.dtype, bound: TORCH_TOLERANCE[c.dtype] ?? 0 };
  const foreign = unknownDType(c.dtype);
  if (foreign) return { ...head, verdict: 'unsupported', why: foreign };
  const call = callOf(c);
  if (!call) return { ...head, verdict: 'unsupported', why: `no op here answers to PyTorch's ${c.op}` };
  try {
    let error = 0;
    let why: string | undefined;
    const known = Object.hasOwn(IMPRECISE, c.op) ? IMPRECISE[c.op] : undefined;
    scope(() => {
      const wanted = Object.keys(c.grads ?? {});
      const inputs: Record<string, Tensor> = {};
      for (const [name, stored] of Object.entries(c.inputs)) {
        const t = golden.on(device, stored);
        inputs[name] = wanted.includes(name) ? t.requireGrad() : t;
      }
      const result = call(inputs, c.params);
      const outs = Array.isArray(result) ? (result as Tensor[]) : [result as Tensor];
      const parts = Object.values(c.outputs).map((name, i) =>
        compare(golden, `result ${i}`, outs[i], name, 0, undefined, c),
      );
      if (wanted.length > 0 && c.grad_output) {
        const grads = outs[0].backward({ grad: golden.on(device, c.grad_output).reshape(outs[0].shape) });
        const floor = CANCELLED * largest(golden.values(c.grad_output));
        for (const name of wanted)
          parts.push(
            compare(
              golden,
              `gradient of ${name}`,
              grads.get(inputs[name]),
              c.grads?.[name] as string,
              floor,
              known?.asTheirs,
            ),
          );
      }
      error = Math.max(...parts.map((p) => p.error));
      why = parts.find((p) => p.why)?.why;
    });
    if (known && !why) return { ...head, verdict: 'differs', ulp: error, why: known.reason };
    return { ...head, verdict: why ? 'failed' : error === 0 ? 'exact' : 'within', ulp: error, ...(why && { why }) };
  } catch (e) {
    return { ...head, ...caught(e) };
  }
}

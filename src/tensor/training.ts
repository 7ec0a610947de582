// A training step's passes over long vectors (src/ops/training.ts) for layers and optimizers: where an engine has none of
// them, callers take the ops they are made of.
import type { DType } from '../base/dtype.js';
import type { KernelRow } from '../ops/op.js';
import {
  adamRow,
  type AdamParams,
  type AdamRates,
  biasedRow,
  lossRow,
  type LossParams,
  squaresRow,
} from '../ops/training.js';
import { gradEnabled } from './autograd.js';
import type { Device } from './device.js';
import { apply, sameDevice } from './dispatch.js';
import { launch } from './guard.js';
import { Tensor } from './tensor.js';

const has = ({ backend }: Device, row: KernelRow<any>, dtype: DType): boolean =>
  row.dtypes.includes(dtype) && backend.supports(row, dtype) === true;

/** Rows from which a product adds its bias by itself: few rows have kernels of their own. */
const BIASED_ROWS = 64;
/**
 * x (..., k) times the transposed weight (n, k) plus a bias (n) in one pass while a net is trained; undefined where that
 * is not to be had. Nets that only run keep to one rounding for any number of rows.
 */
export function biasedProduct(x: Tensor, weight: Tensor, bias: Tensor): Tensor | undefined {
  if (!gradEnabled() || !(x.requiresGrad || weight.requiresGrad || bias.requiresGrad)) return undefined;
  const { shape, dtype, device } = x;
  const k = shape[shape.length - 1];
  const rows = x.size / k;
  if (!x.layout.isContiguous || !(rows >= BIASED_ROWS) || weight.dtype !== dtype || bias.dtype !== dtype)
    return undefined;
  if (!has(device, biasedRow, dtype)) return undefined;
  const flat = x.rank === 2 ? x : x.reshape([rows, k]);
  const [y] = apply(biasedRow, [flat, weight.t(), bias], {});
  return x.rank === 2 ? y : y.reshape([...shape.slice(0, -1), weight.shape[0]]);
}

/** Whether a device has the losses of class numbers over logits of this dtype in one pass. */
export const hasClassLosses = (device: Device, dtype: DType): boolean => has(device, lossRow, dtype);
/**
 * Losses (rows), f32, of logits (rows, classes) by class numbers (rows), i64. With `grad` the gradient of their sum takes
 * the place of the logits, which nobody else may need. Nothing is recorded.
 */
export function classLosses(logits: Tensor, ids: Tensor, params: LossParams): Tensor {
  const device = sameDevice('classLosses', [logits, ids]);
  const [sig] = lossRow.infer([logits, ids], params);
  const out = Tensor.empty(sig.shape, sig.dtype, device);
  if (logits.size > 0) launch(device.backend, lossRow, [logits, ids], params.grad ? [out, logits] : [out], params);
  if (params.grad) logits.storage.version++;
  return out;
}

/** The sum of squares as a 0-d f32 tensor; nothing is recorded. */
export function squaredNorm(x: Tensor): Tensor {
  const { device, dtype } = x;
  const flat = x.reshape([x.size]);
  if (x.size === 0 || !has(device, squaresRow, dtype)) return flat.cast('f32').sqr().sum();
  const [sig] = squaresRow.infer([flat], {});
  const out = Tensor.empty(sig.shape, sig.dtype, device);
  launch(device.backend, squaresRow, [flat], [out], {});
  return out.sum();
}

/** What Adam's step in place takes and changes; all are vectors but `scale`, a number that gradients are multiplied by. */
export interface AdamTensors {
  readonly p: Tensor;
  readonly m: Tensor;
  readonly v: Tensor;
  readonly grad: Tensor;
  readonly scale?: Tensor;
  readonly copy?: Tensor;
}
/** Whether the step was taken in place: f32 vectors that lie densely, on a device that has it. */
export function adamInPlace(t: AdamTensors, rates: AdamRates): boolean {
  const { p, m, v, grad, scale, copy } = t;
  const changed = [p, m, v, ...(copy ? [copy] : [])];
  const dense = [...changed, grad].every((x) => x.layout.isContiguous);
  const typed = [p, m, v].every((x) => x.dtype === 'f32') && (!copy || copy.dtype === 'f16' || copy.dtype === 'bf16');
  if (!dense || !typed || p.size === 0 || !has(p.device, adamRow, grad.dtype)) return false;
  const inputs = [p, m, v, grad].map((x) => x.reshape([x.size]));
  const flatCopy = copy?.reshape([copy.size]);
  const params: AdamParams = { ...rates, scaled: scale !== undefined, copied: copy !== undefined };
  const all = [...inputs, ...(scale ? [scale] : []), ...(flatCopy ? [flatCopy] : [])];
  const device = sameDevice('adamInPlace', all);
  adamRow.infer(all, params);
  launch(device.backend, adamRow, all, [...inputs.slice(0, 3), ...(flatCopy ? [flatCopy] : [])], params);
  for (const x of changed) x.storage.version++;
  return true;
}

// A training step's passes over long vectors (src/ops/training.ts) for layers and optimizers: where an engine has none
// of them, callers take the ops they are made of.
import { type DType, INTS, REALS } from '../base/dtype.js';
import { sameShape } from '../base/shape.js';
import { norm as normOps } from '../ops/norm.js';
import type { GradContext, Grads, KernelRow } from '../ops/op.js';
import {
  adamRow,
  type AdamParams,
  type AdamRates,
  addedRow,
  bernoulliRow,
  biasedRow,
  type ClassParams,
  classSlopesRow,
  crossEntropyRow,
  dropoutRow,
  lossRow,
  NORM_GRADS,
  nllRow,
  ringsRow,
  type LossParams,
  squaresRow,
  swigluGradRow,
} from '../ops/training.js';
import { gradEnabled, noGrad } from './autograd.js';
import type { Device } from './device.js';
import { apply, record, sameDevice } from './dispatch.js';
import { launch } from './guard.js';
import { innermost } from './levels.js';
import { defaultGenerator, Generator } from './random.js';
import { recorded } from './recorded.js';
import { stepRecording } from './step-recording.js';
import { Tensor } from './tensor.js';

const has = ({ backend }: Device, row: KernelRow<any>, dtype: DType): boolean =>
  row.dtypes.includes(dtype) && backend.supports(row, dtype) === true;

/** Whether a step is recorded and no vmap runs, whose examples these kernels would not tell apart. */
const alone = (): boolean => gradEnabled() && !innermost();

/** Rows from which a product adds its bias by itself: few rows have kernels of their own. */
const BIASED_ROWS = 64;
/**
 * x (..., k) times the transposed weight (n, k) plus a bias (n) in one pass while a net is trained; undefined where
 * that is not to be had. Nets that only run keep to one rounding for any number of rows.
 */
export function biasedProduct(x: Tensor, weight: Tensor, bias: Tensor): Tensor | undefined {
  if (!alone() || !(x.requiresGrad || weight.requiresGrad || bias.requiresGrad)) return undefined;
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

/**
 * sum (..., n) + x (..., k) times the transposed weight (n, k) in one pass while a net is trained; undefined where that
 * is not to be had.
 */
export function addedProduct(sum: Tensor, x: Tensor, weight: Tensor): Tensor | undefined {
  const { shape, dtype, device } = sum;
  const all = [sum, x, weight];
  if (!alone() || !all.some((t) => t.requiresGrad) || !device.backend.gpu) return undefined;
  if (!all.every((t) => t.layout.isContiguous && t.dtype === dtype && t.device === device)) return undefined;
  if (!addedRow.dtypes.includes(dtype) || sum.size < BIASED_ROWS * weight.shape[0]) return undefined;
  const flat = (t: Tensor): Tensor => (t.rank === 2 ? t : t.reshape([-1, t.shape[t.rank - 1]]));
  const inputs = [flat(x), weight.t(), flat(sum)];
  const outs = addedRow.infer(inputs, {}).map((sig) => Tensor.empty(sig.shape, sig.dtype, device));
  if (!device.backend.gpu.addProduct(inputs[2], inputs[0], weight, outs[0])) return void outs[0].dispose();
  record(addedRow, inputs, outs, {});
  return sum.rank === 2 ? outs[0] : outs[0].reshape(shape);
}

/** A norm whose gradients are made together while it is trained; undefined where that is not to be had. */
export function trainedNorm(
  kind: 'layer' | 'rms',
  x: Tensor,
  weight: Tensor,
  bias: Tensor | undefined,
  eps: number,
): Tensor | undefined {
  if (!alone() || !x.requiresGrad || !weight.requiresGrad || x.size === 0) return undefined;
  if (bias && (!bias.requiresGrad || kind === 'rms')) return undefined;
  if (weight.dtype !== x.dtype || !has(x.device, NORM_GRADS[kind], x.dtype)) return undefined;
  return apply(TRAINED[kind], [x, weight, ...(bias ? [bias] : [])], { eps, weight: true, bias: bias !== undefined })[0];
}
const trained = (kind: 'layer' | 'rms', row: KernelRow<any>): KernelRow<any> => ({
  ...row,
  joins: true,
  grad: (ctx: GradContext<any>): Grads => {
    // Gradients of gradients, and many side by side, go through ops that have some.
    if ((gradEnabled() || innermost()) && row.grad) return row.grad(ctx);
    const [x, weight] = ctx.inputs;
    const inputs = [x, ctx.grad as Tensor, weight, ...(ctx.before ? [ctx.before as Tensor] : [])];
    const params = { ...ctx.params, plus: ctx.before !== undefined };
    const outs = NORM_GRADS[kind].infer(inputs, params).map((sig) => Tensor.empty(sig.shape, sig.dtype, x.device));
    launch(x.device.backend, NORM_GRADS[kind], inputs, outs, params);
    return outs;
  },
});
const TRAINED = {
  layer: trained('layer', normOps.layerNorm as unknown as KernelRow<any>),
  rms: trained('rms', normOps.rmsNorm as unknown as KernelRow<any>),
};

/** silu(a) * b of the halves of x's last dimension, trained: both gradients are written where they belong. */
export function trainedSwiglu(x: Tensor): Tensor | undefined {
  const { device, dtype, rank } = x;
  const n = x.shape[rank - 1];
  if (!alone() || !x.requiresGrad || !x.layout.isContiguous || n % 2 !== 0 || x.size === 0) return undefined;
  if (!has(device, swigluGradRow, dtype)) return undefined;
  const halves = (t: Tensor): [Tensor, Tensor] => [t.narrow(rank - 1, 0, n / 2), t.narrow(rank - 1, n / 2, n / 2)];
  const [a, b] = noGrad(() => halves(x.detach()));
  const grad = (g: Tensor, given: Tensor): Tensor => {
    const [gate, up] = halves(given);
    if (gradEnabled() || innermost()) return gate.siluMulGrad(up, g).cat([gate.siluMul(g)], rank - 1);
    const dx = Tensor.empty(given.shape, dtype, device);
    const flat = (t: Tensor, width: number): Tensor => t.reshape([t.size / width, width]);
    launch(device.backend, swigluGradRow, [flat(given.detach(), n), flat(g, n / 2)], [flat(dx, n)], {});
    return dx;
  };
  const again = (given: Tensor): Tensor => {
    const [gate, up] = halves(given.detach());
    return gate.siluMul(up);
  };
  return recorded(
    { name: 'swiglu', formula: 'silu(a) * b', grad, again },
    x,
    noGrad(() => a.siluMul(b)),
  );
}

/** Whether a device has the losses of class numbers over logits of this dtype in one pass. */
export const hasClassLosses = (device: Device, dtype: DType): boolean => has(device, lossRow, dtype);
/**
 * Losses (rows), f32, of logits (rows, classes) by class numbers (rows), i64. With `grad` the gradient of their sum
 * takes the place of the logits, which nobody else may need. Nothing is recorded.
 */
export function classLosses(logits: Tensor, ids: Tensor, params: LossParams): Tensor {
  const device = sameDevice('classLosses', [logits, ids]);
  const [sig] = lossRow.infer([logits, ids], params);
  const out = Tensor.empty(sig.shape, sig.dtype, device);
  if (logits.size > 0) launch(device.backend, lossRow, [logits, ids], params.grad ? [out, logits] : [out], params);
  if (params.grad) logits.storage.version++;
  return out;
}

/** What losses by class number take, looked through already. */
export interface ClassLoss extends ClassParams {
  /** A factor for each class. */
  readonly weight: Tensor | undefined;
}
/** Classes from which a row of logits is worth a block of threads. */
const CLASSES = 256;
/** Rows of numbers for classes, and class numbers, as the kernels take them; undefined where they do not. */
function classRows(row: KernelRow<any>, x: Tensor, target: Tensor, o: ClassLoss): readonly Tensor[] | undefined {
  const { dtype, device, rank } = x;
  const same = rank > 0 && sameShape(x.shape.slice(0, -1), target.shape) && target.device === device;
  if (!same || x.size === 0 || innermost() || !INTS.some((d) => d === target.dtype) || !has(device, row, dtype))
    return undefined;
  const { weight } = o;
  const classes = x.shape[rank - 1];
  if (weight && (!isReal(weight.dtype) || weight.device !== device || weight.requiresGrad)) return undefined;
  if (weight && !sameShape(weight.shape, [classes])) return undefined;
  return [x.reshape([-1, classes]), target.reshape([-1]), ...(weight ? [weight] : [])];
}
const isReal = (dtype: DType): boolean => REALS.some((d) => d === dtype);
const paramsOf = ({ reduction, ignore, smoothing }: ClassLoss): ClassParams => ({ reduction, ignore, smoothing });

/** The gradient of rows of logits; of gradients of gradients, by ops that have some. */
function logitsGrad(ctx: GradContext<ClassParams>): Grads {
  const { inputs, outputs, params } = ctx;
  const [x, ids, weight] = inputs;
  const [, total, lses] = outputs;
  const grad = ctx.grad as Tensor;
  if (gradEnabled() || innermost()) {
    const { reduction, ignore, smoothing } = params;
    const wide = x.cast('f32');
    const [rows, classes] = x.shape;
    const counts = ids.ne(ignore);
    const safe = counts.where(ids, ids.constant(0));
    const hit = safe.reshape([rows, 1]).eq(ids.newArange(classes, ids.dtype)).cast('f32');
    const slope = wide
      .softmax(1)
      .affine(1, -smoothing / classes)
      .sub(hit.affine(1 - smoothing, 0));
    const one = reduction === 'none' ? grad : (reduction === 'mean' ? grad.div(total) : grad).broadcastTo([rows]);
    const by = weight ? one.mul(weight.cast('f32').indexSelect(0, safe)) : one;
    return [slope.mul(counts.where(by, by.constant(0)).reshape([rows, 1])).cast(x.dtype), undefined];
  }
  const given = [x, ids, lses, total, grad, ...(weight ? [weight] : [])];
  const out = Tensor.empty(x.shape, x.dtype, x.device);
  launch(x.device.backend, classSlopesRow, given, [out], params);
  return [out, undefined];
}
const CROSS_ENTROPY: KernelRow<any> = { ...crossEntropyRow, grad: logitsGrad };

/** The cross-entropy of class numbers in one pass over the logits, and one for their gradient; undefined elsewhere. */
export function classCrossEntropy(logits: Tensor, target: Tensor, o: ClassLoss): Tensor | undefined {
  if (o.weight && (o.smoothing !== 0 || o.reduction === 'none')) return undefined;
  const rows = logits.shape[logits.rank - 1] >= CLASSES && classRows(crossEntropyRow, logits, target, o);
  if (!rows) return undefined;
  const [out] = apply(CROSS_ENTROPY, rows, paramsOf(o));
  return (o.reduction === 'none' ? out.reshape(target.shape) : out).cast(logits.dtype);
}
/** The loss of log-probabilities in one launch where no gradient is recorded; undefined elsewhere. */
export function classNll(logs: Tensor, target: Tensor, o: ClassLoss): Tensor | undefined {
  if (o.reduction === 'none' || (gradEnabled() && logs.requiresGrad)) return undefined;
  const rows = classRows(nllRow, logs, target, o);
  return rows && apply(nllRow, rows, paramsOf(o))[0].cast(logs.dtype);
}

const DROPOUT: KernelRow<any> = {
  ...dropoutRow,
  gradReads: [1],
  grad: ({ grad, inputs: [, ...fed], params }: GradContext): Grads => [
    apply(DROPOUT, [grad as Tensor, ...fed], params)[0],
    undefined,
  ],
};
/** x with elements left out by the numbers that rand() would draw, which nobody keeps; undefined elsewhere. */
export function droppedOut(x: Tensor, p: number, generator: Generator = defaultGenerator): Tensor | undefined {
  const { device, dtype, size } = x;
  if (!(p > 0 && p < 1) || !(generator instanceof Generator) || innermost() || size === 0) return undefined;
  if (!has(device, dropoutRow, dtype)) return undefined;
  const step = stepRecording();
  const fed = step?.on(device) ? step.stream(generator) : undefined;
  const offset = generator.take(size) - (fed?.start ?? 0n);
  return apply(DROPOUT, fed ? [x, fed.words] : [x], { seed: generator.seed, offset, p })[0];
}
/** What a kernel draws beside x; null where it says that x is none of what it takes, undefined where there is none. */
function drawnBeside(row: KernelRow<any>, x: Tensor, generator: Generator): Tensor | null | undefined {
  const { device, dtype, size } = x;
  if (!(generator instanceof Generator) || innermost() || stepRecording() || size === 0) return undefined;
  if (!has(device, row, dtype)) return undefined;
  const { seed, offset: before } = generator;
  if (before >= 2n ** 62n) return undefined; // kernels count on from there
  const [out, wrong] = apply(row, [x], { seed, offset: generator.take(size), p: 0 });
  if (wrong.item() === 0) return out;
  generator.offset = before;
  return null;
}
/** 1 with the probability of each element, else 0; null where one is no probability. */
export const happened = (x: Tensor, generator: Generator): Tensor | null | undefined =>
  drawnBeside(bernoulliRow, x, generator);
/** An index drawn from each row of weights; null where a row is none of weights. */
export const firstToRing = (x: Tensor, generator: Generator): Tensor | null | undefined =>
  drawnBeside(ringsRow, x, generator);

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

/**
 * What Adam's step in place takes and changes; all are vectors but `scale`, a number that gradients are multiplied by.
 */
export interface AdamTensors {
  readonly p: Tensor;
  readonly m: Tensor;
  readonly v: Tensor;
  readonly grad: Tensor;
  readonly scale?: Tensor;
  readonly copy?: Tensor;
  /** shrink, rate and eps on the device, in the place of those given. */
  readonly fed?: Tensor;
}
/** Whether the step was taken in place: f32 vectors that lie densely, on a device that has it. */
export function adamInPlace(t: AdamTensors, rates: AdamRates): boolean {
  const { p, m, v, grad, scale, copy, fed } = t;
  const changed = [p, m, v, ...(copy ? [copy] : [])];
  const dense = [...changed, grad].every((x) => x.layout.isContiguous);
  const typed = [p, m, v].every((x) => x.dtype === 'f32') && (!copy || copy.dtype === 'f16' || copy.dtype === 'bf16');
  if (!dense || !typed || p.size === 0 || !has(p.device, adamRow, grad.dtype)) return false;
  const inputs = [p, m, v, grad].map((x) => x.reshape([x.size]));
  const flatCopy = copy?.reshape([copy.size]);
  const params: AdamParams = {
    ...rates,
    scaled: scale !== undefined,
    copied: copy !== undefined,
    fed: fed !== undefined,
  };
  const all = [...inputs, ...(scale ? [scale] : []), ...(fed ? [fed] : []), ...(flatCopy ? [flatCopy] : [])];
  const device = sameDevice('adamInPlace', all);
  adamRow.infer(all, params);
  launch(device.backend, adamRow, all, [...inputs.slice(0, 3), ...(flatCopy ? [flatCopy] : [])], params);
  for (const x of changed) x.storage.version++;
  return true;
}

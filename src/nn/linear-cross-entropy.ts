// The end of a language model in training: a product with the vocabulary and the cross-entropy of its result, a few
// rows at a time. The logits of all rows, the largest tensor of a step, are never there at once; gradients are made on
// the way.
import type { DType } from '../base/dtype.js';
import { ArgumentError, GradError, ShapeError } from '../base/errors.js';
import { formatShape } from '../base/shape.js';
import type { CrossEntropyOptions } from '../ops/functional.js';
import { requireOptions } from '../ops/kernel-row.js';
import type { GradContext, Grads } from '../ops/op.js';
import { enableGrad, gradEnabled, type GradRow, noGrad } from '../tensor/autograd.js';
import { fuse } from '../tensor/fuse.js';
import { refuseInVmap } from '../tensor/levels.js';
import { keep, scope } from '../tensor/scope.js';
import type { Tensor } from '../tensor/tensor.js';
import { classLosses, hasClassLosses } from '../tensor/training.js';

/** Options of `linearCrossEntropy`, as those of `crossEntropy` where they have the same names. */
export interface LinearCrossEntropyOptions extends Pick<CrossEntropyOptions, 'ignoreIndex' | 'labelSmoothing'> {
  /** Default 'mean', over the targets that count. */
  readonly reduction?: 'mean' | 'sum';
  /** Rows whose logits are there at a time; default: some 16 million logits. */
  readonly rows?: number;
}
/**
 * Logits at a time: few enough for caches, or, where a row's losses are one pass, so many that products are large. All
 * at once needs no sum of the weights' gradients in f32, which is as large as some logits.
 */
const LOGITS = 2 ** 24;
const LOGITS_IN_PASSES = 2 ** 28;
const LOGITS_AT_ONCE = 2 ** 29;

/** An id that is nobody's. */
const NO_CLASS = -(2 ** 31);

/** A call, looked at once: its rows one below another, without their graphs. */
interface Call {
  readonly x: Tensor;
  readonly weight: Tensor;
  readonly ids: Tensor;
  readonly how: Pick<LinearCrossEntropyOptions, 'ignoreIndex' | 'labelSmoothing'>;
  readonly ignore: number;
  /** No target can be `ignore`. */
  readonly allCount: boolean;
  /** Whether gradients of x and of the weights are wanted. */
  readonly wants: readonly [boolean, boolean];
}
/** What some rows add: the sum of their losses, and gradients. */
type Part = Readonly<Record<'dx' | 'dw', Tensor | undefined> & Record<'loss', Tensor>>;

/** Only named in graphs and errors: nothing runs. */
const ROW = {
  name: 'linearCrossEntropy',
  family: 'view',
  formula: "crossEntropy(x W', target)",
  layout: (l: unknown) => l,
};

function check(x: Tensor, weight: Tensor, target: Tensor, options: LinearCrossEntropyOptions): void {
  const op = ROW.name;
  requireOptions(op, options, ['ignoreIndex', 'labelSmoothing', 'reduction', 'rows']);
  const { reduction = 'mean', rows = 1, labelSmoothing: spread = 0 } = options;
  const width = x.shape[x.rank - 1];
  const lead = x.shape.slice(0, -1);
  if (weight.rank !== 2 || weight.shape[1] !== width)
    throw new ShapeError(
      `${op}: weights ${formatShape(weight.shape)} must be (classes, ${width}) for x ${formatShape(x.shape)}`,
    );
  if (formatShape(lead) !== formatShape(target.shape))
    throw new ShapeError(
      `${op}: targets ${formatShape(target.shape)} must be ${formatShape(lead)} for x ${formatShape(x.shape)}`,
    );
  if (reduction !== 'mean' && reduction !== 'sum')
    throw new ArgumentError(`${op}: reduction ${JSON.stringify(reduction)}; known are mean, sum`);
  if (!(typeof spread === 'number' && spread >= 0 && spread <= 1))
    throw new ArgumentError(`${op}: labelSmoothing ${String(spread)} is not a number from 0 to 1`);
  if (!Number.isInteger(rows) || rows < 1) throw new ArgumentError(`${op}: rows ${rows} is not a whole number from 1`);
}

/** Losses and gradients of some rows, where a kernel makes both in one pass over the logits. */
function inOnePass({ x, weight, ids, how, ignore, allCount, wants }: Call, from: number, count: number): Part {
  const own = x.narrow(0, from, count);
  const logits = own.matmul(weight.t());
  const losses = classLosses(logits, ids.narrow(0, from, count).cast('i64'), {
    ignore: allCount ? NO_CLASS : ignore,
    smoothing: how.labelSmoothing ?? 0,
    grad: wants.some(Boolean),
  });
  const dw = wants[1] ? logits.t().matmul(own) : undefined;
  return {
    loss: losses.sum(),
    dx: wants[0] ? logits.matmul(weight) : undefined,
    dw: dw && (count < ids.size ? dw.cast('f32') : dw),
  };
}

/** The same in tensor operations. */
function byOps({ x, weight, ids, how, wants }: Call, from: number, count: number): Part {
  const own = x.narrow(0, from, count).detach();
  const w = weight.detach();
  if (wants[0]) own.requireGrad();
  if (wants[1]) w.requireGrad();
  const chosen = ids.narrow(0, from, count);
  const value = enableGrad(() =>
    own
      .matmul(w.t())
      .cast('f32')
      .crossEntropy(chosen, { ...how, reduction: 'sum' }),
  );
  if (!wants.some(Boolean)) return { loss: value.detach().copy(), dx: undefined, dw: undefined };
  const grads = value.backward({ sparing: true });
  const dw = wants[1] ? grads.of(w).cast('f32') : undefined;
  return { loss: value.detach().copy(), dx: wants[0] ? grads.of(own) : undefined, dw };
}

/** The sum so far and more of it, which are let go. */
function added(before: Tensor | undefined, more: Tensor): Tensor {
  if (!before) return keep(more);
  const sum = keep(before.add(more));
  before.dispose();
  more.dispose();
  return sum;
}

/** The sum over all rows, `each` at a time; the gradient of x in the pieces that were made. */
function allRows(call: Call, each: number, part: typeof byOps): { loss?: Tensor; dx: Tensor[]; dw?: Tensor } {
  const n = call.ids.size;
  const dx: Tensor[] = [];
  let [loss, dw]: (Tensor | undefined)[] = [];
  for (let from = 0; from < n; from += each) {
    const made = scope(() => part(call, from, Math.min(each, n - from)));
    loss = added(loss, made.loss);
    if (made.dw) dw = added(dw, made.dw);
    if (made.dx) dx.push(made.dx);
  }
  return { loss, dx, dw };
}

/** The gradient of x, which has no piece where x has no rows. */
const joined = (first: Tensor | undefined, rest: readonly Tensor[], x: Tensor): Tensor =>
  first ? (rest.length > 0 ? first.cat(rest, 0) : first).reshape(x.shape) : x.zerosLike();

const scaling = new Map<DType, (grad: Tensor, scale: Tensor) => Tensor>();
/** A gradient times a number, computed in f32, in one pass where there are kernels to fuse. */
function scaledTo(dtype: DType): (grad: Tensor, scale: Tensor) => Tensor {
  const known = scaling.get(dtype) ?? fuse((grad: Tensor, scale: Tensor) => grad.cast('f32').mul(scale).cast(dtype));
  scaling.set(dtype, known);
  return known;
}

/** Puts the loss into the graph: its node holds the gradients, which only wait for what comes from above. */
function recorded(
  loss: Tensor,
  sources: readonly Tensor[],
  wants: readonly boolean[],
  held: readonly Tensor[],
): Tensor {
  const grad = ({ grad: above, inputs: [, , share, ...own] }: GradContext): Grads => {
    if (gradEnabled())
      throw new GradError(`${ROW.name}: gradients of gradients are not made; use matmul and crossEntropy`);
    const scale = (above as Tensor).cast('f32').mul(share as Tensor);
    let at = 0;
    return wants.map((wanted, i) => (wanted ? scaledTo(sources[i].dtype)(own[at++] as Tensor, scale) : undefined));
  };
  const row = { ...ROW, grad } as unknown as GradRow;
  loss.requiresGrad = true;
  const inputs = [...sources.map((t) => t.alias()), ...held.map((t) => keep(t))];
  const outputs = [loss.alias()];
  const versions = [...inputs, ...outputs].map((t) => t.storage.version);
  loss.node = outputs[0].node = { row, params: {}, inputs, outputs, versions };
  return loss;
}

/**
 * crossEntropy(x W', target) of x (..., width), W (classes, width) and class numbers (...), in f32 whatever the dtypes.
 * Gradients of gradients are refused.
 */
export function linearCrossEntropy(
  x: Tensor,
  weight: Tensor,
  target: Tensor,
  options: LinearCrossEntropyOptions = {},
): Tensor {
  check(x, weight, target, options);
  const { reduction = 'mean', rows, ...how } = options;
  const n = target.size;
  const inPass = hasClassLosses(x.device, x.dtype) && weight.dtype === x.dtype;
  const most = !inPass ? LOGITS : n * weight.shape[0] <= LOGITS_AT_ONCE ? LOGITS_AT_ONCE : LOGITS_IN_PASSES;
  const fits = Math.max(1, Math.floor(most / weight.shape[0]));
  const each = rows ?? Math.max(1, Math.ceil(n / Math.ceil(n / fits)));
  refuseInVmap('linearCrossEntropy', 'use crossEntropy of a product');
  const wants = [gradEnabled() && x.requiresGrad, gradEnabled() && weight.requiresGrad] as const;
  const ignore = how.ignoreIndex ?? -100;
  const allCount = (target.dtype === 'u8' || target.dtype === 'u32') && ignore < 0;

  const { loss, factor, dx, dw } = noGrad(() =>
    scope(() => {
      const call: Call = {
        x: x.detach().reshape([n, weight.shape[1]]),
        weight: weight.detach(),
        ids: target.reshape([n]),
        ...{ how, ignore, allCount, wants },
      };
      const made = allRows(call, each, inPass ? inOnePass : byOps);
      const [first, ...rest] = made.dx;
      const counted = allCount ? x.constant(n).cast('f32') : target.ne(ignore).cast('f32').sum();
      const factor = reduction === 'mean' ? counted.recip() : counted.onesLike();
      const loss = (made.loss ?? counted.zerosLike()).mul(factor);
      made.loss?.dispose(); // it was kept from part to part
      return {
        loss,
        factor,
        dx: wants[0] ? joined(first, rest, x) : undefined,
        dw: wants[1] ? (made.dw ?? weight.zerosLike()) : undefined,
      };
    }),
  );
  if (!wants.some(Boolean)) return loss;
  return recorded(
    loss,
    [x, weight],
    wants,
    [factor, dx, dw].filter((t) => t !== undefined),
  );
}

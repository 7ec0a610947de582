// The end of a language model in training: a product with the vocabulary and the cross-entropy of its result, a few rows
// at a time. The logits of all rows, the largest tensor of a step, are never there at once; gradients are made on the way.
import { ArgumentError, GradError, ShapeError } from '../base/errors.js';
import { formatShape } from '../base/shape.js';
import type { CrossEntropyOptions } from '../ops/functional.js';
import { requireOptions } from '../ops/kernel-row.js';
import type { GradContext, Grads } from '../ops/op.js';
import { enableGrad, gradEnabled, type GradRow, noGrad } from '../tensor/autograd.js';
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
/** Logits at a time: few enough for caches, or, where a row's losses are one pass, so many that products are large. */
const LOGITS = 2 ** 24;
const LOGITS_IN_PASSES = 2 ** 28;

/** An id that is nobody's. */
const NO_CLASS = -(2 ** 31);
/** What some rows add: the sum of their losses, and gradients. */
type Part = Readonly<Record<'dx' | 'dw', Tensor | undefined> & Record<'loss', Tensor>>;

/** Only named in graphs and errors: nothing runs. */
const ROW = {
  name: 'linearCrossEntropy',
  family: 'view',
  formula: "crossEntropy(x W', target)",
  layout: (l: unknown) => l,
};

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
  const op = 'linearCrossEntropy';
  requireOptions(op, options, ['ignoreIndex', 'labelSmoothing', 'reduction', 'rows']);
  const { reduction = 'mean', rows, ...how } = options;
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
  const n = target.size;
  const inPass = hasClassLosses(x.device, x.dtype) && weight.dtype === x.dtype;
  const fits = Math.max(1, Math.floor((inPass ? LOGITS_IN_PASSES : LOGITS) / weight.shape[0]));
  const each = rows ?? Math.max(1, Math.ceil(n / Math.ceil(n / fits)));
  if (!Number.isInteger(each) || each < 1) throw new ArgumentError(`${op}: rows ${rows} is not a whole number from 1`);
  const sources = [x, weight];
  const wants = gradEnabled() ? sources.map((t) => t.requiresGrad) : [false, false];
  const needed = wants.some(Boolean);

  const made = noGrad(() =>
    scope(() => {
      const [flat, ids] = [x.detach().reshape([n, width]), target.reshape([n])];
      const loose = weight.detach();
      const parts: Tensor[] = [];
      let total: Tensor | undefined;
      let dWeight: Tensor | undefined;
      const put = (before: Tensor | undefined, more: Tensor): Tensor => {
        if (!before) return keep(more);
        const sum = keep(before.add(more));
        before.dispose();
        more.dispose();
        return sum;
      };
      const ignore = how.ignoreIndex ?? -100;
      const allCount = (target.dtype === 'u8' || target.dtype === 'u32') && ignore < 0;
      const smoothing = how.labelSmoothing ?? 0;
      /** Losses and gradients of rows from `from` on, each in a pass of its own. */
      const passed = (from: number, count: number): Part => {
        const own = flat.narrow(0, from, count);
        const logits = own.matmul(loose.t());
        const losses = classLosses(logits, ids.narrow(0, from, count).cast('i64'), {
          ignore: allCount ? NO_CLASS : ignore,
          smoothing,
          grad: needed,
        });
        const dw = wants[1] ? logits.t().matmul(own) : undefined;
        return {
          loss: losses.sum(),
          dx: wants[0] ? logits.matmul(loose) : undefined,
          dw: dw && (count < n ? dw.cast('f32') : dw),
        };
      };
      for (let from = 0; from < n; from += each) {
        const { loss, dx, dw } = scope((): Part => {
          const count = Math.min(each, n - from);
          if (inPass) return passed(from, count);
          const own = flat.narrow(0, from, count).detach();
          const w = loose.detach();
          if (wants[0]) own.requireGrad();
          if (wants[1]) w.requireGrad();
          const chosen = ids.narrow(0, from, count);
          const value = enableGrad(() =>
            own
              .matmul(w.t())
              .cast('f32')
              .crossEntropy(chosen, { ...how, reduction: 'sum' }),
          );
          if (!needed) return { loss: value.detach().copy(), dx: undefined, dw: undefined };
          const grads = value.backward({ sparing: true });
          const dw = wants[1] ? grads.of(w).cast('f32') : undefined;
          return { loss: value.detach().copy(), dx: wants[0] ? grads.of(own) : undefined, dw };
        });
        total = put(total, loss);
        if (dw) dWeight = put(dWeight, dw);
        if (dx) parts.push(dx);
      }
      const [first, ...rest] = parts;
      const counted = allCount ? x.constant(n).cast('f32') : target.ne(ignore).cast('f32').sum();
      const factor = reduction === 'mean' ? counted.recip() : counted.onesLike();
      const sum = total ?? counted.zerosLike();
      return {
        loss: sum.mul(factor),
        factor,
        dx: first && (rest.length > 0 ? first.cat(rest, 0) : first).reshape(x.shape).copy(),
        dWeight: dWeight?.copy(),
      };
    }),
  );
  const { loss, factor, dx, dWeight } = made;
  if (!needed) return loss;
  const grad = ({ grad: above, inputs: [, , share, ...own] }: GradContext): Grads => {
    if (gradEnabled()) throw new GradError(`${op}: gradients of gradients are not made; use matmul and crossEntropy`);
    const scale = (above as Tensor).cast('f32').mul(share as Tensor);
    let at = 0;
    return wants.map((wanted, i) =>
      wanted ? (own[at++] as Tensor).cast('f32').mul(scale).cast(sources[i].dtype) : undefined,
    );
  };
  const row = { ...ROW, grad } as unknown as GradRow;
  loss.requiresGrad = true;
  // What the rule needs goes with the node.
  const held = [factor, dx, dWeight].flatMap((t) => (t ? [keep(t)] : []));
  const inputs = [...sources.map((t) => t.alias()), ...held];
  const outputs = [loss.alias()];
  const versions = [...inputs, ...outputs].map((t) => t.storage.version);
  loss.node = outputs[0].node = { row, params: {}, inputs, outputs, versions };
  return loss;
}

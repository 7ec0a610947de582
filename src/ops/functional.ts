// What networks use besides layers: losses, dropout, padding by mode, pixel shuffles, one-hot codes; all made of other
// rows.
import { type DType, INTS, isFloat, REALS } from '../base/dtype.js';
import { ArgumentError, DTypeError, ShapeError } from '../base/errors.js';
import { formatShape, normalizeDim, sameShape, type Shape, sizeOf } from '../base/shape.js';
import type { Tensor } from '../tensor/tensor.js';
import { wide } from './composites.js';
import { composite, requireNumbers, requireOptions, requireShare, requireTensor, requireWhole } from './kernel-row.js';
import {
  rows,
  type CompositeErrorSample,
  type CompositeRow,
  type CompositeSample,
  type InputSpec,
  ulps,
} from './op.js';
import { resampledBy } from './resampled.js';
import type { TapAxis } from './taps.js';

/** What becomes of the losses of all elements: their mean, their sum, or nothing. */
export type Reduction = 'mean' | 'sum' | 'none';
/** What losses take. */
export interface LossOptions {
  /** Default 'mean'. */
  readonly reduction?: Reduction;
}
/** What nll takes. */
export interface NllOptions extends LossOptions {
  /** One weight per class. */
  readonly weight?: Tensor;
  /** Targets that do not count; default -100. */
  readonly ignoreIndex?: number;
}
/** What crossEntropy takes. */
export interface CrossEntropyOptions extends NllOptions {
  /** Share of the target spread over all classes. */
  readonly labelSmoothing?: number;
}
/** What huber takes. */
export interface HuberOptions extends LossOptions {
  /** Where the square ends and the straight line begins; 1 unless given. */
  readonly delta?: number;
}
/** What bceWithLogits takes. */
export interface BceOptions extends LossOptions {
  /** A factor for each element. */
  readonly weight?: Tensor;
  /** A factor for the positive part of each class. */
  readonly posWeight?: Tensor;
}
/** What oneHot takes. */
export interface OneHotOptions {
  /** The value at the index; 1 unless given. */
  readonly on?: number;
  /** The value elsewhere; 0 unless given. */
  readonly off?: number;
  /** The result's dtype. */
  readonly dtype?: DType;
}
/** What stands in padding: a constant, or the tensor's own elements mirrored, repeated or wrapped around. */
export type PadMode = 'constant' | 'reflect' | 'replicate' | 'circular';

const ours = { candle: { none: 'a composite there too' } } as const;
const FLOAT = {
  dtypes: REALS,
  without: 'losses are defined for floats of 16 bits and more; cast first',
  domain: [-2, 2] as const,
  ulp: ulps(8),
};
const classes = (shape: Shape, n: number): InputSpec => ({ shape, dtype: 'i64', ints: [0, n - 1] });
const s = (...shape: number[]): InputSpec => ({ shape });

const reduced = (op: string, x: Tensor, reduction: Reduction = 'mean'): Tensor => {
  if (reduction === 'none') return x;
  if (reduction !== 'mean' && reduction !== 'sum')
    throw new ArgumentError(`${op}: reduction ${JSON.stringify(reduction)}; known are mean, sum, none`);
  return reduction === 'sum' ? x.sum() : x.mean();
};
function sameSizes(op: string, x: Tensor, y: Tensor): void {
  if (!sameShape(x.shape, y.shape))
    throw new ShapeError(`${op}: input ${formatShape(x.shape)} and target ${formatShape(y.shape)} must have one shape`);
}

/** Factors that broadcast to the losses, but do not make more of them: a mean would count the same ones repeatedly. */
export function requireWithin(op: string, x: Tensor, factors: Readonly<Record<string, unknown>>): void {
  for (const name of ['weight', 'posWeight']) {
    const t = factors[name] as Tensor | undefined;
    requireTensor(op, name, t);
    if (!t) continue;
    const from = x.rank - t.rank;
    if (from < 0 || t.shape.some((n, i) => n !== 1 && n !== x.shape[from + i]))
      throw new ShapeError(`${op}: ${name} ${formatShape(t.shape)} does not broadcast to ${formatShape(x.shape)}`);
  }
}

/** Log-probabilities (..., classes) and targets (...) as (n, classes) and (n). */
function flatten(op: string, x: Tensor, target: Tensor): [Tensor, Tensor] {
  if (x.rank < 1 || !sameShape(x.shape.slice(0, -1), target.shape)) {
    throw new ShapeError(
      `${op}: targets ${formatShape(target.shape)} must be ${formatShape(x.shape.slice(0, -1))}: ` +
        `${formatShape(x.shape)} without its last dimension, the classes` +
        (sameShape([x.shape[0], ...x.shape.slice(2)], target.shape)
          ? '; where they stand second, x.transpose(1, -1) puts them last'
          : ''),
    );
  }
  if (isFloat(target.dtype))
    throw new DTypeError(`${op}: targets are class numbers of an integer dtype, not ${target.dtype}`);
  return [x.reshape([-1, x.shape[x.rank - 1]]), target.reshape([-1])];
}

/** One weight a class, or numbers of classes would be looked up in a list that says nothing of some of them. */
function checkClassOptions(op: string, x: Tensor, { weight, labelSmoothing: spread = 0 }: CrossEntropyOptions): void {
  requireTensor(op, 'weight', weight);
  const classes = x.shape[x.rank - 1];
  if (weight && x.rank > 0 && !sameShape(weight.shape, [classes]))
    throw new ShapeError(
      `${op}: weight is ${formatShape(weight.shape)}; the ${classes} classes of ${formatShape(x.shape)} take ` +
        `${formatShape([classes])}, one number each`,
    );
  if (!(typeof spread === 'number' && spread >= 0 && spread <= 1))
    throw new ArgumentError(`${op}: labelSmoothing ${String(spread)} is not a number from 0 to 1`);
}
/** Picked log-probabilities with their weights; targets to ignore weigh nothing. */
function picked(
  x: Tensor,
  target: Tensor,
  o: NllOptions,
): { losses: Tensor; byClass: Tensor | undefined; weights: Tensor | undefined; keep: Tensor | undefined } {
  const ignore = o.ignoreIndex ?? -100;
  const unsigned = target.dtype === 'u8' || target.dtype === 'u32';
  const keep = unsigned && ignore < 0 ? undefined : target.ne(ignore);
  const safe = keep ? keep.where(target, target.constant(0)) : target;
  const losses = x.gather(1, safe.unsqueeze(1)).squeeze([1]).neg();
  const byClass = o.weight?.cast(x.dtype).indexSelect(0, safe);
  const mask = keep?.cast(x.dtype);
  return { losses, keep, byClass, weights: byClass && mask ? byClass.mul(mask) : (byClass ?? mask) };
}

function nllOf(op: string, x: Tensor, target: Tensor, o: NllOptions, shape: Shape): Tensor {
  const { losses, byClass, weights, keep } = picked(x, target, o);
  const heavy = byClass ? losses.mul(byClass) : losses;
  // Chosen, not multiplied by 0: NaN among what is ignored stays out, and where all is ignored no gradient is NaN.
  const weighted = keep ? keep.where(heavy, heavy.constant(0)) : heavy;
  if (o.reduction === 'mean' || o.reduction === undefined)
    return weights ? weighted.sum().div(weights.sum()) : weighted.mean();
  return reduced(op, weighted.reshape(shape), o.reduction);
}

/** Targets that are probabilities of all classes; the mean is over examples, whatever classes weigh. */
function softCrossEntropy(x: Tensor, target: Tensor, o: CrossEntropyOptions): Tensor {
  const op = 'crossEntropy';
  if (!sameShape(x.shape, target.shape))
    throw new ShapeError(
      `${op}: targets of ${target.dtype} are probabilities and need the shape ${formatShape(x.shape)} of the logits, ` +
        `not ${formatShape(target.shape)}; class numbers are of an integer dtype`,
    );
  if (o.ignoreIndex !== undefined)
    throw new ArgumentError(`${op}: ignoreIndex goes with class numbers, not with probabilities`);
  const { labelSmoothing: spread = 0, reduction = 'mean', weight } = o;
  return wide(x, (w) => {
    const sure = target.cast(w.dtype);
    const soft = spread ? sure.affine(1 - spread, spread / x.shape[x.rank - 1]) : sure;
    const logs = weight ? w.logSoftmax(-1).mul(weight.cast(w.dtype)) : w.logSoftmax(-1);
    return reduced(op, logs.mul(soft).sum([-1], false).neg(), reduction);
  });
}

type Mirrored = Exclude<PadMode, 'constant'>;
/** The elements that stand before a dimension, or behind it. */
const SIDES: Readonly<Record<Mirrored, (x: Tensor, dim: number, size: number, behind: boolean) => Tensor>> = {
  replicate: (x, dim, size, behind) =>
    x.narrow(dim, behind ? x.shape[dim] - 1 : 0, 1).broadcastTo(x.shape.map((n, i) => (i === dim ? size : n))),
  circular: (x, dim, size, behind) => x.narrow(dim, behind ? 0 : x.shape[dim] - size, size),
  reflect: (x, dim, size, behind) => x.narrow(dim, behind ? x.shape[dim] - 1 - size : 1, size).flip(dim),
};

function requirePads(x: Tensor, dim: number, before: number, after: number, mode: Mirrored): void {
  const n = x.shape[dim];
  if (
    before < 0 ||
    after < 0 ||
    (mode === 'reflect' && Math.max(before, after) >= n) ||
    (mode === 'circular' && Math.max(before, after) > n) ||
    (n === 0 && before + after > 0)
  ) {
    throw new ArgumentError(
      `padMode: ${mode} cannot add ${before} and ${after} to dimension ${dim} of ${formatShape(x.shape)}`,
    );
  }
}
/** All dimensions at once, where GPUs have a kernel that finds elements by tables. */
function padAtOnce(x: Tensor, pads: readonly number[], mode: Mirrored): Tensor | undefined {
  const count = pads.length / 2;
  const served = x.device.backend.gpu && REALS.some((d) => d === x.dtype);
  if (!served || x.size === 0 || count > 3 || !pads.some((n) => n > 0)) return undefined;
  const axes = x.shape.slice(x.rank - count).map((from, i): TapAxis => {
    const [before, after] = pads.slice(2 * (count - 1 - i));
    return { rule: mode, from, to: from + before + after, step: before, align: false };
  });
  const lead = x.shape.slice(0, x.rank - count);
  const planes = x.reshape([sizeOf(lead), 1, ...axes.map((a) => a.from)]);
  return planes.resampled(resampledBy(axes)).reshape([...lead, ...axes.map((a) => a.to)]);
}
function padDim(x: Tensor, dim: number, before: number, after: number, mode: Mirrored): Tensor {
  const sides = [before, after].map((size, i) => (size > 0 ? [SIDES[mode](x, dim, size, i === 1)] : []));
  const [first, ...rest] = [...sides[0], x, ...sides[1]];
  return rest.length === 0 ? first : first.cat(rest, dim);
}

const row = (
  def: { errors?: readonly CompositeErrorSample[]; samples: readonly CompositeSample[] } & Partial<
    Pick<CompositeRow, 'noGrad' | 'dtypes' | 'ulp' | 'domain' | 'without'>
  >,
) => ({
  ...FLOAT,
  ...ours,
  ...def,
  samples: (): readonly CompositeSample[] => def.samples,
  errors: (): readonly CompositeErrorSample[] => def.errors ?? [],
});

export const functional = rows({
  swiglu: composite({
    ...row({ ulp: ulps(4), samples: [{ inputs: [s(3, 8)], args: [] }] }),
    formula: 'silu(a) * b for the halves a and b of the last dimension',
    compose: (x: Tensor): Tensor => {
      const n = x.shape[x.rank - 1];
      if (n % 2 !== 0)
        throw new ShapeError(
          `swiglu: the last dimension of ${formatShape(x.shape)} is odd; it must split into two halves`,
        );
      return x.narrow(-1, 0, n / 2).siluMul(x.narrow(-1, n / 2, n / 2));
    },
  }),
  geglu: composite({
    ...row({ ulp: ulps(4), samples: [{ inputs: [s(3, 8)], args: [] }] }),
    formula: 'gelu(a) * b for the halves a and b of the last dimension',
    compose: (x: Tensor): Tensor => {
      const [a, b] = x.chunk(2, -1);
      return a.gelu().mul(b);
    },
  }),
  relu2: composite({
    ...row({ ulp: 0, samples: [{ inputs: [s(3, 5)], args: [] }] }),
    formula: 'max(x, 0)^2',
    compose: (x: Tensor): Tensor => x.relu().sqr(),
  }),
  prelu: composite({
    ...row({
      ulp: 0,
      samples: [
        { inputs: [s(2, 3, 4), s(3)], args: [{ input: 1 }] },
        { inputs: [s(2, 3), s(1)], args: [{ input: 1 }] },
      ],
    }),
    formula: 'x > 0 ? x : slope * x, one slope or one per channel',
    compose: (x: Tensor, slope: Tensor): Tensor => {
      if (slope.size !== 1 && slope.size !== x.shape[1])
        throw new ShapeError(
          `prelu: ${slope.size} slopes for ${x.shape[1]} channels of ${formatShape(x.shape)}; it takes one, or one ` +
            'per channel',
        );
      const by =
        slope.size === 1
          ? slope.reshape(x.shape.map(() => 1))
          : slope.reshape([slope.size, ...x.shape.slice(2).map(() => 1)]);
      return x.gt(0).where(x, x.mul(by));
    },
  }),
  dropout: composite({
    ...row({
      ulp: 0,
      samples: [0.25, 0.9].map((p) => ({
        inputs: [s(3, 5), { shape: [3, 5], domain: [0, 1] }],
        args: [p, { input: 1 }],
      })),
      errors: [{ inputs: [s(3)], args: [1.5], code: 'E_ARGUMENT', says: /dropout: probability 1.5/ }],
    }),
    formula: 'elements kept with probability 1 - p and divided by it; 0 elsewhere; `mask` holds uniform numbers',
    compose: (x: Tensor, p: number, mask: Tensor): Tensor => {
      requireShare('dropout', 'probability', p);
      if (mask === undefined)
        throw new ArgumentError(
          'dropout: takes uniform numbers of the shape of x too, as x.randLike(); nn.dropout(x, p) draws them',
        );
      return p === 0 ? x : mask.ge(p).where(x.affine(1 / (1 - p), 0), x.constant(0));
    },
  }),
  oneHot: composite({
    ...row({
      samples: [{ inputs: [{ shape: [2, 3], ints: [0, 3] }], args: [4] }],
      dtypes: INTS.filter((d) => d !== 'i16' && d !== 'i32'),
      noGrad: 'indices have none',
      domain: [0, 3],
    }),
    formula:
      'a new last dimension with `on` at the index and `off` elsewhere; an index of -1 gives `off` everywhere, ' +
      'any other beyond depth is refused',
    compose: (ids: Tensor, depth: number, options: OneHotOptions = {}): Tensor => {
      requireOptions('oneHot', options, ['on', 'off', 'dtype']);
      requireWhole('oneHot', 'depth', [depth], 0);
      if (isFloat(ids.dtype)) throw new DTypeError(`oneHot: indices are ${ids.dtype}; they must be integers`);
      const places = ids.newArange(depth, 'i32');
      const given = ids.cast('i64');
      // Looked up among the places, so that an index beyond them is noticed.
      const known = places.gather(0, given.ne(-1).where(given, 0).flatten()).reshape(ids.shape);
      const hit = given.ne(-1).where(known, -1).unsqueeze(-1).eq(places);
      const one = (v: number): Tensor => ids.device.constant(v, options.dtype ?? 'f32');
      return hit.where(one(options.on ?? 1), one(options.off ?? 0));
    },
  }),
  pixelShuffle: composite({
    ...row({
      samples: [{ inputs: [s(2, 8, 3, 2)], args: [2] }],
      ulp: 0,
      errors: [{ inputs: [s(1, 6, 2, 2)], args: [2], code: 'E_SHAPE', says: /6 channels do not divide by 4/ }],
    }),
    formula: '(n, c r r, h, w) to (n, c, h r, w r)',
    compose: (x: Tensor, r: number): Tensor => {
      const [n, c, h, w] = x.shape;
      requireWhole('pixelShuffle', 'factor', [r], 1);
      if (x.rank !== 4 || c % (r * r) !== 0)
        throw new ShapeError(`pixelShuffle: ${c} channels do not divide by ${r * r} in ${formatShape(x.shape)}`);
      return x
        .reshape([n, c / (r * r), r, r, h, w])
        .permute([0, 1, 4, 2, 5, 3])
        .reshape([n, c / (r * r), h * r, w * r]);
    },
  }),
  pixelUnshuffle: composite({
    ...row({
      samples: [{ inputs: [s(2, 2, 4, 6)], args: [2] }],
      ulp: 0,
      errors: [{ inputs: [s(1, 2, 3, 4)], args: [2], code: 'E_SHAPE', says: /do not divide by 2/ }],
    }),
    formula: '(n, c, h r, w r) to (n, c r r, h, w)',
    compose: (x: Tensor, r: number): Tensor => {
      const [n, c, h, w] = x.shape;
      requireWhole('pixelUnshuffle', 'factor', [r], 1);
      if (x.rank !== 4 || h % r !== 0 || w % r !== 0)
        throw new ShapeError(`pixelUnshuffle: the last dimensions of ${formatShape(x.shape)} do not divide by ${r}`);
      return x
        .reshape([n, c, h / r, r, w / r, r])
        .permute([0, 1, 3, 5, 2, 4])
        .reshape([n, c * r * r, h / r, w / r]);
    },
  }),
  padMode: composite({
    ...row({
      ulp: 0,
      samples: [
        { inputs: [s(2, 4, 5)], args: [[2, 1], 'reflect'] },
        { inputs: [s(2, 3)], args: [[2, 1, 1, 0], 'replicate'] },
        { inputs: [s(2, 3)], args: [[3, 1], 'circular'] },
      ],
      errors: [{ inputs: [s(3)], args: [[3, 0], 'reflect'], code: 'E_ARGUMENT', says: /reflect cannot add 3 and 0/ }],
    }),
    formula: 'reflected, repeated or wrapped elements around: [before, after] pairs, last dimension first',
    compose: (x: Tensor, pads: readonly number[], mode: PadMode, value: number = 0): Tensor => {
      if (mode === 'constant') return x.pad(pads, value);
      if (!Object.hasOwn(SIDES, mode))
        throw new ArgumentError(
          `padMode: unknown mode ${JSON.stringify(mode)}; known are constant, ${Object.keys(SIDES).join(', ')}`,
        );
      if (pads.length % 2 !== 0 || pads.length > 2 * x.rank || pads.some((p) => !Number.isInteger(p)))
        throw new ArgumentError(
          `padMode: ${formatShape(pads)} is not a list of whole pairs for at most ${x.rank} dimensions`,
        );
      for (let k = 0; k < pads.length; k += 2) requirePads(x, x.rank - 1 - k / 2, pads[k], pads[k + 1], mode);
      const atOnce = padAtOnce(x, pads, mode);
      if (atOnce) return atOnce;
      let out = x;
      for (let k = 0; k < pads.length; k += 2) out = padDim(out, x.rank - 1 - k / 2, pads[k], pads[k + 1], mode);
      return out;
    },
  }),
  gumbelSoftmax: composite({
    ...row({
      ulp: ulps(12),
      samples: [{ inputs: [s(3, 5), { shape: [3, 5], domain: [0.1, 0.9] }], args: [0.5, { input: 1 }] }],
    }),
    formula: 'softmax((x - ln(-ln(u))) / temperature) along dim, for uniform numbers u',
    compose: (x: Tensor, temperature: number, uniform: Tensor, dim: number = -1): Tensor => {
      requireNumbers('gumbelSoftmax', { temperature });
      return wide(x, (w) =>
        w
          .sub(uniform.cast(w.dtype).log().neg().log())
          .affine(1 / temperature, 0)
          .softmax(normalizeDim('gumbelSoftmax', dim, x.rank)),
      );
    },
  }),
  nll: composite({
    ...row({
      samples: [
        { inputs: [s(4, 5), classes([4], 5)], args: [{ input: 1 }] },
        { inputs: [s(2, 3, 4), classes([2, 3], 4)], args: [{ input: 1 }, { reduction: 'sum', ignoreIndex: 1 }] },
      ],
    }),
    formula: '-x[target], averaged; x holds log-probabilities over the last dimension',
    compose: (x: Tensor, target: Tensor, options: NllOptions = {}): Tensor => {
      requireOptions('nll', options, ['reduction', 'weight', 'ignoreIndex']);
      checkClassOptions('nll', x, options);
      const [flat, ids] = flatten('nll', x, target);
      return wide(flat, (w) => nllOf('nll', w, ids, options, target.shape));
    },
  }),
  crossEntropy: composite({
    ...row({
      samples: [
        { inputs: [s(4, 5), classes([4], 5)], args: [{ input: 1 }] },
        { inputs: [s(2, 3, 4), classes([2, 3], 4)], args: [{ input: 1 }, { labelSmoothing: 0.1, ignoreIndex: 2 }] },
      ],
      errors: [
        {
          inputs: [s(4, 5), classes([3], 5)],
          args: [{ input: 1 }],
          code: 'E_SHAPE',
          says: /targets \[3\] must be \[4\]/,
        },
        {
          inputs: [s(4, 5), s(4)],
          args: [{ input: 1 }],
          code: 'E_SHAPE',
          says: /crossEntropy: targets of f32 are probabilities and need the shape \[4, 5\]/,
        },
      ],
    }),
    formula:
      '-logSoftmax(x)[target] over the last dimension, averaged; targets are class numbers, or probabilities of ' +
      'the shape of x',
    compose: (x: Tensor, target: Tensor, options: CrossEntropyOptions = {}): Tensor => {
      requireOptions('crossEntropy', options, ['reduction', 'weight', 'ignoreIndex', 'labelSmoothing']);
      checkClassOptions('crossEntropy', x, options);
      const { labelSmoothing: spread = 0, ...rest } = options;
      if (isFloat(target.dtype)) return softCrossEntropy(x, target, options);
      const [flat, ids] = flatten('crossEntropy', x, target);
      return wide(flat, (w) => {
        const logs = w.logSoftmax(1);
        const hard = nllOf('crossEntropy', logs, ids, rest, target.shape);
        if (spread === 0) return hard;
        const { weights, keep } = picked(logs, ids, rest);
        const byClass = rest.weight ? logs.mul(rest.weight.cast(w.dtype)) : logs;
        const even = byClass.sum([1], false).affine(-1 / w.shape[1], 0);
        const counted = keep ? keep.where(even, even.constant(0)) : even;
        const soft =
          rest.reduction === undefined || rest.reduction === 'mean'
            ? weights
              ? counted.sum().div(weights.sum())
              : counted.mean()
            : reduced('crossEntropy', counted.reshape(target.shape), rest.reduction);
        return hard.affine(1 - spread, 0).add(soft.affine(spread, 0));
      });
    },
  }),
  mse: composite({
    ...row({ samples: [{ inputs: [s(3, 4), s(3, 4)], args: [{ input: 1 }] }] }),
    formula: '(x - y)^2, averaged',
    compose: (x: Tensor, y: Tensor, options: LossOptions = {}): Tensor => {
      requireOptions('mse', options, ['reduction']);
      sameSizes('mse', x, y);
      return wide(x, (w) => reduced('mse', w.sub(y.cast(w.dtype)).sqr(), options.reduction));
    },
  }),
  l1Loss: composite({
    ...row({ ulp: ulps(4), samples: [{ inputs: [s(3, 4), s(3, 4)], args: [{ input: 1 }] }] }),
    formula: '|x - y|, averaged',
    compose: (x: Tensor, y: Tensor, options: LossOptions = {}): Tensor => {
      requireOptions('l1Loss', options, ['reduction']);
      sameSizes('l1Loss', x, y);
      return wide(x, (w) => reduced('l1Loss', w.sub(y.cast(w.dtype)).abs(), options.reduction));
    },
  }),
  huber: composite({
    ...row({ samples: [{ inputs: [s(3, 4), s(3, 4)], args: [{ input: 1 }, { delta: 0.7 }] }] }),
    formula: '(x - y)^2 / 2 within delta, delta (|x - y| - delta / 2) beyond, averaged',
    compose: (x: Tensor, y: Tensor, options: HuberOptions = {}): Tensor => {
      requireOptions('huber', options, ['reduction', 'delta']);
      const { delta = 1 } = options;
      if (!(typeof delta === 'number' && delta > 0))
        throw new ArgumentError(`huber: delta ${String(delta)} is not a number above 0`);
      sameSizes('huber', x, y);
      return wide(x, (w) => reduced('huber', w.huberEach(y.cast(w.dtype), delta), options.reduction));
    },
  }),
  bceWithLogits: composite({
    ...row({ samples: [{ inputs: [s(3, 4), { shape: [3, 4], domain: [0, 1] }], args: [{ input: 1 }] }] }),
    formula: 'softplus(-x) + (1 - y) x, averaged: binary cross entropy of sigmoid(x), stable for any x',
    compose: (x: Tensor, y: Tensor, options: BceOptions = {}): Tensor => {
      requireOptions('bceWithLogits', options, ['reduction', 'weight', 'posWeight']);
      sameSizes('bceWithLogits', x, y);
      requireWithin('bceWithLogits', x, { ...options });
      return wide(x, (w) => {
        const t = y.cast(w.dtype);
        const soft = w.neg().softplus();
        const bent = options.posWeight
          ? soft.mul(t.mul(options.posWeight.cast(w.dtype).affine(1, -1)).affine(1, 1))
          : soft;
        const each = bent.add(w.mul(t.affine(-1, 1)));
        return reduced(
          'bceWithLogits',
          options.weight ? each.mul(options.weight.cast(w.dtype)) : each,
          options.reduction,
        );
      });
    },
  }),
});

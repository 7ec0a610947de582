// Losses: how far predictions are from targets, as functions; `losses.crossEntropy(logits, labels)`.
import { isFloat } from '../base/dtype.js';
import { ArgumentError, ShapeError } from '../base/errors.js';
import { formatShape, kindOf, sameShape } from '../base/shape.js';
import {
  type BceOptions,
  type CrossEntropyOptions,
  type HuberOptions,
  type LossOptions,
  type NllOptions,
  type Reduction,
  requireWithin,
} from '../ops/functional.js';
import { requireOptions } from '../ops/kernel-row.js';
import { composed } from '../tensor/composing.js';
import { innermost } from '../tensor/levels.js';
import { Tensor } from '../tensor/tensor.js';
import { classCrossEntropy, type ClassLoss, classNll } from '../tensor/training.js';

export { linearCrossEntropy, type LinearCrossEntropyOptions } from './linear-cross-entropy.js';
export { type Counts, ctc, type CtcLabels, type CtcOptions } from './loss-ctc.js';

function reduced(op: string, each: Tensor, reduction: Reduction = 'mean', more: readonly string[] = []): Tensor {
  if (reduction === 'none') return each;
  if (reduction !== 'mean' && reduction !== 'sum')
    throw new ArgumentError(
      `${op}: reduction ${JSON.stringify(reduction)}; known are ${['mean', 'sum', 'none', ...more].join(', ')}`,
    );
  return reduction === 'sum' ? each.sum() : each.mean();
}
/** Predictions and targets: what is left out would be told of as a property of undefined. */
function requireTensors(op: string, ...given: readonly unknown[]): void {
  for (const t of given)
    if (!(t instanceof Tensor))
      throw new ArgumentError(`${op}: takes tensors of predictions and of targets, not ${kindOf(t)}`);
}
function sameShapes(op: string, x: Tensor, y: Tensor): void {
  requireTensors(op, x, y);
  if (!sameShape(x.shape, y.shape))
    throw new ShapeError(`${op}: input ${formatShape(x.shape)} and target ${formatShape(y.shape)} must have one shape`);
}
/** A number within bounds; NaN makes zeros or NaN of losses, and text is found far from here. */
function requireNumber(op: string, name: string, value: unknown, least = -Infinity, most = Infinity): void {
  if (typeof value === 'number' && Number.isFinite(value) && value >= least && value <= most) return;
  const range = most < Infinity ? ` from ${least} to ${most}` : least > -Infinity ? ` of at least ${least}` : '';
  throw new ArgumentError(`${op}: ${name} ${String(value)} is not a number${range}`);
}
const positive = (x: Tensor): Tensor => x.relu();

const NLL_OPTIONS = ['reduction', 'weight', 'ignoreIndex'];
const CROSS_ENTROPY_OPTIONS = [...NLL_OPTIONS, 'labelSmoothing'];
/** What kernels take of losses by class number; undefined where something is to be refused, which the op does. */
function classLoss(options: CrossEntropyOptions, known: readonly string[]): ClassLoss | undefined {
  if (typeof options !== 'object' || options === null || Object.keys(options).some((name) => !known.includes(name)))
    return undefined;
  const { reduction = 'mean', weight, ignoreIndex = -100, labelSmoothing = 0 } = options;
  const right =
    ['none', 'sum', 'mean'].includes(reduction) &&
    (weight === undefined || weight instanceof Tensor) &&
    Number.isSafeInteger(ignoreIndex) &&
    typeof labelSmoothing === 'number' &&
    labelSmoothing >= 0 &&
    labelSmoothing <= 1;
  return right ? { reduction, weight, ignore: ignoreIndex, smoothing: labelSmoothing } : undefined;
}
/**
 * -ln of the probability of the target, from logits (..., classes). Targets are class numbers (...), or probabilities
 * (..., classes); options: labelSmoothing, weight by class, ignoreIndex, reduction.
 */
export function crossEntropy(logits: Tensor, target: Tensor, options: CrossEntropyOptions = {}): Tensor {
  requireTensors('crossEntropy', logits, target);
  const how = classLoss(options, CROSS_ENTROPY_OPTIONS);
  return (how && classCrossEntropy(logits, target, how)) ?? logits.crossEntropy(target, options);
}
/** The same from log-probabilities. */
export function nll(logProbabilities: Tensor, target: Tensor, options: NllOptions = {}): Tensor {
  requireTensors('nll', logProbabilities, target);
  const how = classLoss(options, NLL_OPTIONS);
  return (how && classNll(logProbabilities, target, how)) ?? logProbabilities.nll(target, options);
}
/** (x - y)^2. */
export function mse(x: Tensor, y: Tensor, options: LossOptions = {}): Tensor {
  requireTensors('mse', x, y);
  return x.mse(y, options);
}
/** |x - y|. */
export function l1(x: Tensor, y: Tensor, options: LossOptions = {}): Tensor {
  requireTensors('l1', x, y);
  return x.l1Loss(y, options);
}
/** Quadratic within delta, straight beyond. */
export function huber(x: Tensor, y: Tensor, options: HuberOptions = {}): Tensor {
  requireTensors('huber', x, y);
  return x.huber(y, options);
}
/** Binary cross entropy of sigmoid(x), stable for any x. */
export function bceWithLogits(x: Tensor, y: Tensor, options: BceOptions = {}): Tensor {
  requireTensors('bceWithLogits', x, y);
  return x.bceWithLogits(y, options);
}

/** Options of smoothL1. */
export interface SmoothL1Options extends LossOptions {
  /** Where the quadratic part ends; default 1. */
  readonly beta?: number;
}
/** (x - y)^2 / (2 beta) within beta, |x - y| - beta / 2 beyond. */
export function smoothL1(x: Tensor, y: Tensor, options: SmoothL1Options = {}): Tensor {
  requireOptions('smoothL1', options, ['reduction', 'beta']);
  sameShapes('smoothL1', x, y);
  const { beta = 1 } = options;
  if (!(beta >= 0)) throw new ArgumentError(`smoothL1: beta ${beta} is not a number of at least 0`);
  return composed(() => {
    const target = y.cast(x.dtype);
    if (beta === 0) return reduced('smoothL1', x.sub(target).abs(), options.reduction);
    const each = x.huberEach(target, beta);
    return reduced('smoothL1', beta === 1 ? each : each.affine(1 / beta, 0), options.reduction);
  });
}

const onHost = (t: Tensor): boolean => ['cpu', 'reference'].includes(t.device.name) && !innermost();
/** On the host, where looking costs no wait: what is no probability is refused. */
function requireProbabilities(op: string, p: Tensor): void {
  if (!onHost(p)) return;
  const x = p.detach();
  const wrong = x.ge(0).logicalAnd(x.le(1)).logicalNot();
  if (wrong.any().item() !== 0)
    throw new ArgumentError(
      `${op}: ${x.flatten().at(wrong.flatten()).at(0).item()} is no probability from 0 to 1; bceWithLogits takes ` +
        'any number',
    );
}
/**
 * Binary cross entropy of probabilities; logarithms are at least -100, as in PyTorch. A number outside of 0 to 1 is
 * refused on the CPU; on a GPU, where looking would wait for it, its loss is NaN.
 */
export function bce(p: Tensor, y: Tensor, options: Omit<BceOptions, 'posWeight'> = {}): Tensor {
  requireOptions('bce', options, ['reduction', 'weight']);
  sameShapes('bce', p, y);
  requireWithin('bce', p, { ...options });
  requireProbabilities('bce', p);
  return composed(() => {
    const each = p.bceEach(y.cast(p.dtype));
    return reduced('bce', options.weight ? each.mul(options.weight.cast(p.dtype)) : each, options.reduction);
  });
}

/** Options of klDiv. */
export interface KlDivOptions {
  /** 'batchmean' divides the sum by the first dimension: the divergence itself; default 'mean', over elements. */
  readonly reduction?: Reduction | 'batchmean';
  /** Targets are logarithms too; default false. */
  readonly logTarget?: boolean;
}
/** y (ln y - x) for log-probabilities x: how far the distribution x is from y. */
export function klDiv(x: Tensor, y: Tensor, options: KlDivOptions = {}): Tensor {
  requireOptions('klDiv', options, ['reduction', 'logTarget']);
  sameShapes('klDiv', x, y);
  const t = y.cast(x.dtype);
  const none = t.eq(0);
  const each = options.logTarget
    ? t.exp().mul(t.sub(x))
    : none.where(t.mul(x).neg(), t.mul(none.where(t.onesLike(), t).log().sub(x)));
  if (options.reduction === 'batchmean') return each.sum().affine(1 / x.shape[0], 0);
  return reduced('klDiv', each, options.reduction, ['batchmean']);
}

/** The cosine of the angle between vectors along a dimension. */
export function cosineSimilarity(x: Tensor, y: Tensor, dim = -1, eps = 1e-8): Tensor {
  requireTensors('cosineSimilarity', x, y);
  const size = (t: Tensor): Tensor => t.norm(2, [dim], false).clamp(eps, Infinity);
  return x
    .mul(y)
    .sum([dim], false)
    .div(size(x).mul(size(y)));
}
/** Options of losses with a margin. */
export interface MarginOptions extends LossOptions {
  /** How far apart things should be. */
  readonly margin?: number;
}
/** 1 - cosine where the target is 1, what the cosine has above the margin where it is -1. */
export function cosineEmbedding(a: Tensor, b: Tensor, y: Tensor, options: MarginOptions = {}): Tensor {
  requireOptions('cosineEmbedding', options, ['reduction', 'margin']);
  requireNumber('cosineEmbedding', 'margin', options.margin ?? 0);
  requireTensors('cosineEmbedding', y);
  sameShapes('cosineEmbedding', a, b);
  const eps = 1e-12;
  const size = (t: Tensor): Tensor => t.sqr().sum([-1], false).affine(1, eps);
  const cosine = a
    .mul(b)
    .sum([-1], false)
    .div(size(a).mul(size(b)).sqrt());
  sameShapes('cosineEmbedding', cosine, y);
  const each = y.gt(0).where(cosine.affine(-1, 1), positive(cosine.affine(1, -(options.margin ?? 0))));
  return reduced('cosineEmbedding', each, options.reduction);
}

/** Options of tripletMargin. */
export interface TripletOptions extends MarginOptions {
  /** The order of the norm; default 2. */
  readonly p?: number;
  /** Added to differences; default 1e-6. */
  readonly eps?: number;
  /** Takes the smaller of the distances of the negative from both others; default false. */
  readonly swap?: boolean;
  /** Another distance of two examples than the norm of their difference; p and eps do not go with it. */
  readonly distance?: (a: Tensor, b: Tensor) => Tensor;
}
/**
 * What an anchor's distance from a positive example has above its distance from a negative one, less the margin (1).
 */
export function tripletMargin(
  anchor: Tensor,
  positiveOne: Tensor,
  negative: Tensor,
  options: TripletOptions = {},
): Tensor {
  requireOptions('tripletMargin', options, ['reduction', 'margin', 'p', 'eps', 'swap', 'distance']);
  if (options.distance && (options.p !== undefined || options.eps !== undefined))
    throw new ArgumentError('tripletMargin: p and eps are of the norm, which a distance of your own replaces');
  sameShapes('tripletMargin', anchor, positiveOne);
  sameShapes('tripletMargin', anchor, negative);
  const { margin = 1, p = 2, eps = 1e-6, swap = false } = options;
  requireNumber('tripletMargin', 'margin', margin);
  requireNumber('tripletMargin', 'eps', eps, 0);
  const distance = options.distance ?? ((a: Tensor, b: Tensor): Tensor => a.sub(b).affine(1, eps).norm(p, [-1], false));
  const far = distance(anchor, negative);
  const apart = swap ? far.minimum(distance(positiveOne, negative)) : far;
  return reduced(
    'tripletMargin',
    positive(distance(anchor, positiveOne).sub(apart).affine(1, margin)),
    options.reduction,
  );
}

/** max(0, -y (a - b) + margin): a should be larger where y is 1, b where it is -1. */
export function marginRanking(a: Tensor, b: Tensor, y: Tensor, options: MarginOptions = {}): Tensor {
  requireOptions('marginRanking', options, ['reduction', 'margin']);
  requireNumber('marginRanking', 'margin', options.margin ?? 0);
  sameShapes('marginRanking', a, b);
  requireTensors('marginRanking', y);
  const each = positive(
    y
      .cast(a.dtype)
      .mul(b.sub(a))
      .affine(1, options.margin ?? 0),
  );
  return reduced('marginRanking', each, options.reduction);
}
/** x where the target is 1, what it lacks of the margin (1) where it is -1. */
export function hingeEmbedding(x: Tensor, y: Tensor, options: MarginOptions = {}): Tensor {
  requireOptions('hingeEmbedding', options, ['reduction', 'margin']);
  requireNumber('hingeEmbedding', 'margin', options.margin ?? 1);
  sameShapes('hingeEmbedding', x, y);
  return reduced('hingeEmbedding', y.gt(0).where(x, positive(x.affine(-1, options.margin ?? 1))), options.reduction);
}
/** ln(1 + e^(-y x)) for targets 1 and -1. */
export function softMargin(x: Tensor, y: Tensor, options: LossOptions = {}): Tensor {
  requireOptions('softMargin', options, ['reduction']);
  sameShapes('softMargin', x, y);
  return reduced('softMargin', x.mul(y.cast(x.dtype)).neg().softplus(), options.reduction);
}
/** Binary cross entropy with logits, (batch, classes), averaged over the classes of each example first. */
export function multilabelSoftMargin(x: Tensor, y: Tensor, options: Omit<BceOptions, 'posWeight'> = {}): Tensor {
  requireOptions('multilabelSoftMargin', options, ['reduction', 'weight']);
  sameShapes('multilabelSoftMargin', x, y);
  const each = x.bceWithLogits(y.cast(x.dtype), { ...options, reduction: 'none' });
  return reduced('multilabelSoftMargin', each.mean([-1], false), options.reduction);
}
/** Options of multiMargin. */
export interface MultiMarginOptions extends MarginOptions {
  /** The power of what is lacking; 1 or 2, default 1. */
  readonly p?: 1 | 2;
}
/** What the target's score lacks of being a margin (1) above the others, over the classes of (batch, classes). */
export function multiMargin(x: Tensor, target: Tensor, options: MultiMarginOptions = {}): Tensor {
  requireOptions('multiMargin', options, ['reduction', 'margin', 'p']);
  requireNumber('multiMargin', 'margin', options.margin ?? 1);
  if (![undefined, 1, 2].includes(options.p)) throw new ArgumentError(`multiMargin: p ${options.p} is neither 1 nor 2`);
  requireTensors('multiMargin', x, target);
  if (x.rank !== 2 || !sameShape(target.shape, [x.shape[0]]) || isFloat(target.dtype))
    throw new ShapeError(
      `multiMargin: takes scores (batch, classes) and class numbers (batch), not ${formatShape(x.shape)} and ` +
        `${target.dtype} ${formatShape(target.shape)}`,
    );
  const ids = target.cast('i64').unsqueeze(1);
  const lacking = positive(x.sub(x.gather(1, ids)).affine(1, options.margin ?? 1));
  const bent = options.p === 2 ? lacking.sqr() : lacking;
  const own = ids.eq(x.newArange(x.shape[1], 'i64'));
  const each = own
    .where(bent.zerosLike(), bent)
    .sum([1], false)
    .affine(1 / x.shape[1], 0);
  return reduced('multiMargin', each, options.reduction);
}

/** Options of focal. */
export interface FocalOptions extends LossOptions {
  /** How much sure examples lose weight; default 2. */
  readonly gamma?: number;
  /** The weight of positive examples (negative ones have the rest); default 0.25, undefined for none. */
  readonly alpha?: number | undefined;
}
/** Binary cross entropy with logits in which examples that are told apart already count less. */
export function focal(x: Tensor, y: Tensor, options: FocalOptions = {}): Tensor {
  requireOptions('focal', options, ['reduction', 'gamma', 'alpha']);
  sameShapes('focal', x, y);
  const { gamma = 2 } = options;
  const alpha = 'alpha' in options ? options.alpha : 0.25;
  requireNumber('focal', 'gamma', gamma, 0);
  if (alpha !== undefined) requireNumber('focal', 'alpha', alpha, 0, 1);
  const t = y.cast(x.dtype);
  const each = x.bceWithLogits(t, { reduction: 'none' });
  const p = x.sigmoid();
  const wrong = t.mul(p.affine(-1, 1)).add(t.affine(-1, 1).mul(p));
  const weighed = each.mul(wrong.powf(gamma));
  return reduced(
    'focal',
    alpha === undefined ? weighed : weighed.mul(t.affine(2 * alpha - 1, 1 - alpha)),
    options.reduction,
  );
}

/** Options of poissonNll. */
export interface PoissonOptions extends LossOptions {
  /** The input is the logarithm of the rate; default true. */
  readonly logInput?: boolean;
  /** Added to a rate before its logarithm; default 1e-8. */
  readonly eps?: number;
  /** Adds Stirling's approximation of ln(y!) for targets above 1, which does not depend on the input; default false. */
  readonly full?: boolean;
}
/** Stirling's approximation of ln(t!), 0 for t up to 1. */
function stirling(t: Tensor): Tensor {
  const large = t.gt(1);
  const n = large.where(t, t.onesLike());
  const term = n
    .mul(n.log())
    .sub(n)
    .add(
      n
        .affine(2 * Math.PI, 0)
        .log()
        .affine(0.5, 0),
    );
  return large.where(term, t.zerosLike());
}
/** The negative logarithm of the probability of counts; without `full` it lacks what does not depend on the input. */
export function poissonNll(x: Tensor, y: Tensor, options: PoissonOptions = {}): Tensor {
  requireOptions('poissonNll', options, ['reduction', 'logInput', 'eps', 'full']);
  sameShapes('poissonNll', x, y);
  const t = y.cast(x.dtype);
  const each =
    (options.logInput ?? true) ? x.exp().sub(t.mul(x)) : x.sub(t.mul(x.affine(1, options.eps ?? 1e-8).log()));
  return reduced('poissonNll', options.full ? each.add(stirling(t)) : each, options.reduction);
}
/** Options of gaussianNll. */
export interface GaussianOptions extends LossOptions {
  /** The least variance; default 1e-6. */
  readonly eps?: number;
  /** Adds the constant, ln(2 pi) / 2; default false. */
  readonly full?: boolean;
}
/** On the host, where looking costs no wait. */
function requireVariance(v: Tensor): void {
  if (onHost(v) && v.lt(0).any().item() !== 0)
    throw new ArgumentError(`gaussianNll: ${v.min().item()} is no variance, which is at least 0`);
}
/** The negative logarithm of the density of normal numbers of given mean and variance, without its constant. */
export function gaussianNll(mean: Tensor, y: Tensor, variance: Tensor, options: GaussianOptions = {}): Tensor {
  requireOptions('gaussianNll', options, ['reduction', 'eps', 'full']);
  sameShapes('gaussianNll', mean, y);
  requireTensors('gaussianNll', variance);
  requireNumber('gaussianNll', 'eps', options.eps ?? 1e-6, 0);
  const own =
    variance.rank <= mean.rank && variance.shape.every((n, i) => n === 1 || n === mean.shape.at(i - variance.rank));
  if (!own)
    throw new ShapeError(
      `gaussianNll: variance ${formatShape(variance.shape)} does not broadcast to ${formatShape(mean.shape)}`,
    );
  requireVariance(variance.detach());
  // Held above eps for the value alone, as in PyTorch: a variance below it still learns to grow.
  const v = variance.add(
    variance
      .affine(-1, options.eps ?? 1e-6)
      .relu()
      .detach(),
  );
  return reduced(
    'gaussianNll',
    v
      .log()
      .add(mean.sub(y).sqr().div(v))
      .affine(0.5, options.full ? Math.log(2 * Math.PI) / 2 : 0),
    options.reduction,
  );
}

// Numbers drawn beside or from a tensor: like it, by its probabilities, and permutations.
import { isFloat } from '../base/dtype.js';
import { ArgumentError, DTypeError, ShapeError } from '../base/errors.js';
import { formatShape } from '../base/shape.js';
import { requireOptions } from '../ops/kernel-row.js';
import { rand, randn, type RandomOptions } from './create.js';
import { noGrad } from './autograd.js';
import { fuse } from './fuse.js';
import { defaultGenerator, Generator } from './random.js';
import type { Tensor } from './tensor.js';
import { firstToRing, happened } from './training.js';

const OPTIONS = ['dtype', 'requiresGrad', 'generator', 'seed'];
/** What the tensor itself does not say. */
export type LikeOptions = Omit<RandomOptions, 'device'>;
/** Where random numbers come from. */
export interface DrawOptions extends Pick<RandomOptions, 'generator' | 'seed'> {}
/** What multinomial() takes. */
export interface MultinomialOptions extends DrawOptions {
  /** Whether one number may be drawn several times. */
  readonly replacement?: boolean;
}

const like = (op: string, x: Tensor, options: LikeOptions): RandomOptions => {
  requireOptions(op, options, OPTIONS);
  return { ...options, dtype: options.dtype ?? x.dtype, device: x.device };
};
/** Uniform numbers in [0, 1) of the tensor's shape, dtype and device. */
export const randLike = (x: Tensor, options: LikeOptions = {}): Tensor => rand(x.shape, like('randLike', x, options));
/** Normally distributed numbers of the tensor's shape, dtype and device. */
export const randnLike = (x: Tensor, options: LikeOptions = {}): Tensor =>
  randn(x.shape, like('randnLike', x, options));

/** 0 to n - 1 in random order, i64 unless said. */
export function randperm(n: number, options: RandomOptions = {}): Tensor {
  requireOptions('randperm', options, [...OPTIONS, 'device']);
  if (!Number.isSafeInteger(n) || n < 0) throw new ArgumentError(`randperm: ${n} is not a whole number of at least 0`);
  const { dtype = 'i64', requiresGrad: _, ...rest } = options;
  return rand([n], { ...rest, dtype: 'f64' })
    .argsort(0)
    .cast(dtype);
}

const isProbability = fuse((p: Tensor) => p.ge(0).logicalAnd(p.le(1)));
/** 1 for a weight above 0, 0 for 0, and what spoils every sum for what is no weight. */
const chances = fuse((w: Tensor) => {
  const known = w.ge(0).logicalAnd(w.lt(Infinity));
  return known.where(w.gt(0).cast('f64'), known.cast('f64').constant(-Infinity));
});
/** When clocks of these rates ring; those of rate 0 never do. */
const ringing = fuse((drawn: Tensor, w: Tensor) => {
  const never = drawn.constant(Infinity);
  return w.gt(0).where(drawn.affine(-1, 1).log().neg().div(w.cast('f64')), never);
});
/** 1 where what was drawn is below the probability, in its dtype. */
const happens = fuse((drawn: Tensor, p: Tensor) => drawn.lt(p.cast(drawn.dtype)).cast(p.dtype));

const streamOf = ({ generator, seed }: DrawOptions): Generator =>
  generator ?? (seed === undefined ? defaultGenerator : new Generator(seed));
const rowsOf = (x: Tensor): Tensor => x.reshape([-1, x.shape[x.rank - 1]]);
/** 1 with the probability that each element gives, else 0, in the tensor's dtype; no gradient flows. */
export function bernoulli(x: Tensor, options: DrawOptions = {}): Tensor {
  requireOptions('bernoulli', options, ['generator', 'seed']);
  if (!isFloat(x.dtype)) throw new DTypeError(`bernoulli: probabilities are floats, not ${x.dtype}`);
  const p = x.detach();
  const quick = noGrad(() => happened(p, streamOf(options)));
  if (quick) return quick;
  if (quick === null || (p.size > 0 && !isProbability(p).min().item()))
    throw new ArgumentError('bernoulli: the tensor holds numbers that are not probabilities from 0 to 1');
  const drawn = rand(x.shape, { ...options, dtype: x.dtype === 'f64' ? 'f64' : 'f32', device: x.device });
  return happens(drawn, p);
}

/** `count` indices (i64) of each row of weights, drawn in proportion to them. */
export function multinomial(x: Tensor, count: number, options: MultinomialOptions = {}): Tensor {
  requireOptions('multinomial', options, ['generator', 'seed', 'replacement']);
  const { replacement = false, ...stream } = options;
  if (!isFloat(x.dtype)) throw new DTypeError(`multinomial: weights are floats, not ${x.dtype}`);
  if ((x.rank !== 1 && x.rank !== 2) || x.size === 0)
    throw new ShapeError(`multinomial: takes a vector or rows of weights, not ${formatShape(x.shape)}`);
  if (!Number.isSafeInteger(count) || count < 1)
    throw new ArgumentError(`multinomial: ${count} draws; it takes a whole number from 1`);
  const own = x.detach();
  const quick = count === 1 && !replacement ? noGrad(() => firstToRing(rowsOf(own), streamOf(options))) : undefined;
  if (quick) return quick.reshape([...x.shape.slice(0, -1), 1]);
  const possible = quick === null ? 0 : chances(own).sum([-1], false).min().item();
  if (!(possible > 0))
    throw new ArgumentError('multinomial: weights must be finite, none negative, and some of each row above 0');
  const device = x.device;
  if (replacement) {
    const edges = own.cast('f64').cumsum(-1);
    const total = edges.narrow(-1, x.shape[x.rank - 1] - 1, 1);
    const drawn = rand([...x.shape.slice(0, -1), count], { ...stream, dtype: 'f64', device }).mul(total);
    return edges.searchsorted(drawn, { right: true }).clamp(0, x.shape[x.rank - 1] - 1);
  }
  if (count > possible)
    throw new ArgumentError(
      `multinomial: ${count} draws without replacement from rows with as few as ${possible} weights above 0`,
    );
  // The order in which exponential clocks of these rates ring.
  const drawn = rand(x.shape, { ...stream, dtype: 'f64', device });
  const ring = ringing(drawn, own);
  if (count === 1) return ring.argmin(-1, true).cast('i64');
  return ring.topk(count, -1, { largest: false })[1].cast('i64');
}

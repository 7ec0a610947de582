// Distributions of numbers on a line: normal, uniform, exponential and their kin.
import type { Shape } from '../../base/shape.js';
import { rand, randn } from '../../tensor/create.js';
import type { Tensor } from '../../tensor/tensor.js';
import {
  beside,
  LOG_2PI,
  type Parameter,
  parameters,
  Reparametrized,
  requireEach,
  requirePositive,
  type SampleOptions,
} from './distribution.js';

/** Euler's constant: the mean of a standard Gumbel number. */
const EULER = 0.5772156649015329;

/** The normal distribution of a mean and a standard deviation. */
export class Normal extends Reparametrized {
  readonly shape: Shape;
  readonly mean: Tensor;
  /** The standard deviation. */
  readonly scale: Tensor;
  constructor(mean: Parameter, scale: Parameter) {
    super();
    [this.mean, this.scale] = parameters('Normal', mean, scale);
    requirePositive('Normal', 'standard deviation', this.scale);
    this.shape = this.mean.shape;
  }
  get variance(): Tensor {
    return this.scale.sqr();
  }
  rsample(shape: Shape = [], options: SampleOptions = {}): Tensor {
    const { dtype, device } = this.mean;
    return this.mean.add(this.scale.mul(randn(this.drawn(shape), { ...options, dtype, device })));
  }
  logProb(x: Parameter): Tensor {
    const at = this.value(x, this.mean);
    const scale = beside(this.scale, at);
    const z = at.sub(beside(this.mean, at)).div(scale);
    return z
      .sqr()
      .affine(-0.5, -0.5 * LOG_2PI)
      .sub(scale.log());
  }
  entropy(): Tensor {
    return this.scale.log().affine(1, 0.5 + 0.5 * LOG_2PI);
  }
  override get mode(): Tensor {
    return this.mean;
  }
  override cdf(x: Parameter): Tensor {
    const at = this.value(x, this.mean);
    return at.sub(beside(this.mean, at)).div(beside(this.scale, at)).normcdf();
  }
  override icdf(share: Parameter): Tensor {
    const at = this.value(share, this.mean);
    const z = at.affine(2, -1).erfinv().affine(Math.SQRT2, 0);
    return z.mul(beside(this.scale, at)).add(beside(this.mean, at));
  }
}

/** e to the power of normal numbers. */
export class LogNormal extends Reparametrized {
  readonly shape: Shape;
  /** The distribution of the logarithms. */
  readonly normal: Normal;
  constructor(mean: Parameter, scale: Parameter) {
    super();
    this.normal = new Normal(mean, scale);
    this.shape = this.normal.shape;
  }
  get mean(): Tensor {
    return this.normal.mean.add(this.normal.variance.affine(0.5, 0)).exp();
  }
  get variance(): Tensor {
    return this.normal.variance.expm1().mul(this.mean.sqr());
  }
  rsample(shape: Shape = [], options: SampleOptions = {}): Tensor {
    return this.normal.rsample(shape, options).exp();
  }
  logProb(x: Parameter): Tensor {
    const log = this.value(x, this.normal.mean).log();
    return this.normal.logProb(log).sub(log);
  }
  entropy(): Tensor {
    return this.normal.entropy().add(this.normal.mean);
  }
  override get mode(): Tensor {
    return this.normal.mean.sub(this.normal.variance).exp();
  }
  override cdf(x: Parameter): Tensor {
    return this.normal.cdf(this.value(x, this.normal.mean).log());
  }
  override icdf(share: Parameter): Tensor {
    return this.normal.icdf(share).exp();
  }
}

/** Numbers from `low` up to `high`, all alike. */
export class Uniform extends Reparametrized {
  readonly shape: Shape;
  /** The least number. */
  readonly low: Tensor;
  /** What numbers stay below. */
  readonly high: Tensor;
  constructor(low: Parameter, high: Parameter) {
    super();
    [this.low, this.high] = parameters('Uniform', low, high);
    requireEach('Uniform', this.high.detach().sub(this.low.detach()), (v) => v.gt(0), 'a width above 0, high less low');
    this.shape = this.low.shape;
  }
  get mean(): Tensor {
    return this.low.add(this.high).affine(0.5, 0);
  }
  get variance(): Tensor {
    return this.high
      .sub(this.low)
      .sqr()
      .affine(1 / 12, 0);
  }
  rsample(shape: Shape = [], options: SampleOptions = {}): Tensor {
    const { dtype, device } = this.low;
    const share = rand(this.drawn(shape), { ...options, dtype, device });
    return this.low.add(share.mul(this.high.sub(this.low)));
  }
  logProb(x: Parameter): Tensor {
    const at = this.value(x, this.low);
    const [low, high] = [beside(this.low, at), beside(this.high, at)];
    const within = at.ge(low).logicalAnd(at.lt(high));
    const density = high.sub(low).log().neg().broadcastTo(within.shape);
    return within.where(density, density.fullLike(-Infinity));
  }
  entropy(): Tensor {
    return this.high.sub(this.low).log();
  }
  override cdf(x: Parameter): Tensor {
    const at = this.value(x, this.low);
    const [low, high] = [beside(this.low, at), beside(this.high, at)];
    return at.sub(low).div(high.sub(low)).clamp(0, 1);
  }
  override icdf(share: Parameter): Tensor {
    const at = this.value(share, this.low);
    const [low, high] = [beside(this.low, at), beside(this.high, at)];
    return at.mul(high.sub(low)).add(low);
  }
}

/** Times between events that come at a rate. */
export class Exponential extends Reparametrized {
  readonly shape: Shape;
  /** Events in a unit of time. */
  readonly rate: Tensor;
  constructor(rate: Parameter) {
    super();
    [this.rate] = parameters('Exponential', rate);
    requirePositive('Exponential', 'rate', this.rate);
    this.shape = this.rate.shape;
  }
  get mean(): Tensor {
    return this.rate.recip();
  }
  get variance(): Tensor {
    return this.rate.sqr().recip();
  }
  rsample(shape: Shape = [], options: SampleOptions = {}): Tensor {
    return this.uniform(this.rate, shape, options).log().neg().div(this.rate);
  }
  logProb(x: Parameter): Tensor {
    const at = this.value(x, this.rate);
    const rate = beside(this.rate, at);
    return rate.log().sub(rate.mul(at));
  }
  entropy(): Tensor {
    return this.rate.log().affine(-1, 1);
  }
  override get mode(): Tensor {
    return this.rate.zerosLike();
  }
  override cdf(x: Parameter): Tensor {
    const at = this.value(x, this.rate);
    return at.mul(beside(this.rate, at)).neg().expm1().neg();
  }
  override icdf(share: Parameter): Tensor {
    const at = this.value(share, this.rate);
    return at.neg().log1p().neg().div(beside(this.rate, at));
  }
}

/** Two exponential distributions back to back around a mean. */
export class Laplace extends Reparametrized {
  readonly shape: Shape;
  readonly mean: Tensor;
  /** The mean distance from the mean. */
  readonly scale: Tensor;
  constructor(mean: Parameter, scale: Parameter) {
    super();
    [this.mean, this.scale] = parameters('Laplace', mean, scale);
    requirePositive('Laplace', 'scale', this.scale);
    this.shape = this.mean.shape;
  }
  get variance(): Tensor {
    return this.scale.sqr().affine(2, 0);
  }
  rsample(shape: Shape = [], options: SampleOptions = {}): Tensor {
    const u = this.uniform(this.mean, shape, options).affine(2, -1);
    return this.mean.sub(this.scale.mul(u.sign()).mul(u.abs().neg().log1p()));
  }
  logProb(x: Parameter): Tensor {
    const at = this.value(x, this.mean);
    const scale = beside(this.scale, at);
    return at.sub(beside(this.mean, at)).abs().div(scale).add(scale.affine(2, 0).log()).neg();
  }
  entropy(): Tensor {
    return this.scale.affine(2, 0).log().affine(1, 1);
  }
  override get mode(): Tensor {
    return this.mean;
  }
  override cdf(x: Parameter): Tensor {
    const at = this.value(x, this.mean);
    const z = at.sub(beside(this.mean, at)).div(beside(this.scale, at));
    return z.sign().mul(z.abs().neg().expm1()).affine(-0.5, 0.5);
  }
  override icdf(share: Parameter): Tensor {
    const at = this.value(share, this.mean);
    const half = at.affine(1, -0.5);
    const z = half.sign().mul(half.abs().affine(-2, 0).log1p()).neg();
    return z.mul(beside(this.scale, at)).add(beside(this.mean, at));
  }
}

/** The largest of many numbers: noise that makes a softmax's classes of logits it is added to. */
export class Gumbel extends Reparametrized {
  readonly shape: Shape;
  /** The likeliest number. */
  readonly loc: Tensor;
  /** How far numbers spread. */
  readonly scale: Tensor;
  constructor(loc: Parameter, scale: Parameter) {
    super();
    [this.loc, this.scale] = parameters('Gumbel', loc, scale);
    requirePositive('Gumbel', 'scale', this.scale);
    this.shape = this.loc.shape;
  }
  get mean(): Tensor {
    return this.loc.add(this.scale.affine(EULER, 0));
  }
  get variance(): Tensor {
    return this.scale.sqr().affine(Math.PI ** 2 / 6, 0);
  }
  rsample(shape: Shape = [], options: SampleOptions = {}): Tensor {
    return this.loc.sub(this.scale.mul(this.uniform(this.loc, shape, options).log().neg().log()));
  }
  logProb(x: Parameter): Tensor {
    const at = this.value(x, this.loc);
    const scale = beside(this.scale, at);
    const y = beside(this.loc, at).sub(at).div(scale);
    return y.sub(y.exp()).sub(scale.log());
  }
  entropy(): Tensor {
    return this.scale.log().affine(1, 1 + EULER);
  }
  override get mode(): Tensor {
    return this.loc;
  }
  override cdf(x: Parameter): Tensor {
    const at = this.value(x, this.loc);
    return at.sub(beside(this.loc, at)).div(beside(this.scale, at)).neg().exp().neg().exp();
  }
  override icdf(share: Parameter): Tensor {
    const at = this.value(share, this.loc);
    return beside(this.loc, at).sub(beside(this.scale, at).mul(at.log().neg().log()));
  }
}

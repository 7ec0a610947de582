// Distributions with heavy tails, and of what lies above 0.
import type { Shape } from '../../base/shape.js';
import { noGrad } from '../../tensor/autograd.js';
import { randn } from '../../tensor/create.js';
import { Generator } from '../../tensor/random.js';
import type { Tensor } from '../../tensor/tensor.js';
import { Normal } from './continuous.js';
import {
  beside,
  Distribution,
  type Parameter,
  parameters,
  Reparametrized,
  requirePositive,
  type SampleOptions,
} from './distribution.js';
import { standardGamma } from './gamma.js';

/** Ratios of normal numbers: tails so heavy that there is no mean. */
export class Cauchy extends Reparametrized {
  readonly shape: Shape;
  /** The likeliest number, and the middle of all. */
  readonly loc: Tensor;
  /** Half of all numbers are closer to the middle. */
  readonly scale: Tensor;
  constructor(loc: Parameter, scale: Parameter) {
    super();
    [this.loc, this.scale] = parameters('Cauchy', loc, scale);
    requirePositive('Cauchy', 'scale', this.scale);
    this.shape = this.loc.shape;
  }
  /** NaN: there is none. */
  get mean(): Tensor {
    return this.loc.fullLike(NaN);
  }
  get variance(): Tensor {
    return this.loc.fullLike(Infinity);
  }
  override get mode(): Tensor {
    return this.loc;
  }
  rsample(shape: Shape = [], options: SampleOptions = {}): Tensor {
    return this.icdf(this.uniform(this.loc, shape, options));
  }
  logProb(x: Parameter): Tensor {
    const at = this.value(x, this.loc);
    const scale = beside(this.scale, at);
    const z = at.sub(beside(this.loc, at)).div(scale);
    return z.sqr().log1p().add(scale.affine(Math.PI, 0).log()).neg();
  }
  entropy(): Tensor {
    return this.scale.affine(4 * Math.PI, 0).log();
  }
  override cdf(x: Parameter): Tensor {
    const at = this.value(x, this.loc);
    const z = at.sub(beside(this.loc, at)).div(beside(this.scale, at));
    return z.atan().affine(1 / Math.PI, 0.5);
  }
  override icdf(share: Parameter): Tensor {
    const at = this.value(share, this.loc);
    const z = at.affine(Math.PI, -0.5 * Math.PI).tan();
    return z.mul(beside(this.scale, at)).add(beside(this.loc, at));
  }
}

/** How far normal numbers are from 0. */
export class HalfNormal extends Reparametrized {
  readonly shape: Shape;
  readonly #normal: Normal;
  constructor(scale: Parameter) {
    super();
    const [spread] = parameters('HalfNormal', scale);
    requirePositive('HalfNormal', 'scale', spread);
    this.#normal = new Normal(spread.zerosLike(), spread);
    this.shape = spread.shape;
  }
  /** The standard deviation of the normal numbers. */
  get scale(): Tensor {
    return this.#normal.scale;
  }
  get mean(): Tensor {
    return this.scale.affine(Math.sqrt(2 / Math.PI), 0);
  }
  get variance(): Tensor {
    return this.scale.sqr().affine(1 - 2 / Math.PI, 0);
  }
  override get mode(): Tensor {
    return this.scale.zerosLike();
  }
  rsample(shape: Shape = [], options: SampleOptions = {}): Tensor {
    return this.#normal.rsample(shape, options).abs();
  }
  logProb(x: Parameter): Tensor {
    const at = this.value(x, this.scale);
    const density = this.#normal.logProb(at).affine(1, Math.LN2);
    return at.ge(0).broadcastTo(density.shape).where(density, density.fullLike(-Infinity));
  }
  entropy(): Tensor {
    return this.#normal.entropy().affine(1, -Math.LN2);
  }
  override cdf(x: Parameter): Tensor {
    return this.#normal.cdf(x).affine(2, -1);
  }
  override icdf(share: Parameter): Tensor {
    return this.#normal.icdf(this.value(share, this.scale).affine(0.5, 0.5));
  }
}

/** What a mean of few normal numbers is off by, in its own deviations: wider tails, by degrees of freedom. */
export class StudentT extends Distribution {
  readonly shape: Shape;
  /** Degrees of freedom. */
  readonly df: Tensor;
  /** The middle. */
  readonly loc: Tensor;
  /** How far numbers spread. */
  readonly scale: Tensor;
  constructor(df: Parameter, loc: Parameter = 0, scale: Parameter = 1) {
    super();
    [this.df, this.loc, this.scale] = parameters('StudentT', df, loc, scale);
    requirePositive('StudentT', 'number of degrees of freedom', this.df);
    requirePositive('StudentT', 'scale', this.scale);
    this.shape = this.df.shape;
  }
  /** NaN up to one degree of freedom, where there is none. */
  get mean(): Tensor {
    return this.df.gt(1).where(this.loc, this.loc.fullLike(NaN));
  }
  /** Infinite up to two degrees of freedom, NaN up to one. */
  get variance(): Tensor {
    const { df } = this;
    const wide = df.gt(2);
    const some = wide.where(
      this.scale
        .sqr()
        .mul(df)
        .div(wide.where(df.affine(1, -2), 1)),
      Infinity,
    );
    return df.gt(1).where(some, NaN);
  }
  override get mode(): Tensor {
    return this.loc;
  }
  sample(shape: Shape = [], options: SampleOptions = {}): Tensor {
    const generator = options.generator ?? (options.seed === undefined ? undefined : new Generator(options.seed));
    const own = generator ? { generator } : {};
    return noGrad(() => {
      const to = this.drawn(shape);
      const { dtype, device } = this.df;
      const half = this.df.affine(0.5, 0).broadcastTo(to);
      const z = randn(to, { ...own, dtype, device });
      return z
        .mul(half.div(standardGamma(half, own)).sqrt())
        .mul(this.scale)
        .add(this.loc);
    });
  }
  logProb(x: Parameter): Tensor {
    const at = this.value(x, this.loc);
    const [df, scale] = [beside(this.df, at), beside(this.scale, at)];
    const z = at.sub(beside(this.loc, at)).div(scale);
    const up = df.affine(0.5, 0.5);
    return up
      .lgamma()
      .sub(df.affine(0.5, 0).lgamma())
      .sub(df.affine(Math.PI, 0).log().affine(0.5, 0))
      .sub(scale.log())
      .sub(up.mul(z.sqr().div(df).log1p()));
  }
  entropy(): Tensor {
    const [half, up] = [this.df.affine(0.5, 0), this.df.affine(0.5, 0.5)];
    return this.scale
      .log()
      .add(up.mul(up.digamma().sub(half.digamma())))
      .add(this.df.log().affine(0.5, 0))
      .add(half.lgamma())
      .sub(up.lgamma())
      .affine(1, 0.5 * Math.log(Math.PI));
  }
}

// Several numbers drawn together.
import { ArgumentError, UnsupportedError } from '../../base/errors.js';
import { broadcastShapes, formatShape, type Shape } from '../../base/shape.js';
import { requireOptions } from '../../ops/kernel-row.js';
import { randn } from '../../tensor/create.js';
import type { Tensor } from '../../tensor/tensor.js';
import { Distribution, LOG_2PI, type Parameter, Reparametrized, type SampleOptions } from './distribution.js';

/** Normal numbers that depend on each other: vectors by a mean (..., n) and the lower triangle of a factor. */
export class MultivariateNormal extends Reparametrized {
  readonly shape: Shape;
  override readonly event: Shape;
  readonly mean: Tensor;
  /** A lower triangle L, (..., n, n), of which L L^T is the covariance. */
  readonly scaleTril: Tensor;
  constructor(
    mean: Tensor,
    by: {
      /** The covariance, symmetric and positive. */
      readonly covariance?: Tensor;
      /** Or its Cholesky factor, a lower triangle with a diagonal above 0. */
      readonly scaleTril?: Tensor;
    },
  ) {
    super();
    requireOptions('MultivariateNormal', by, ['covariance', 'scaleTril']);
    const { covariance, scaleTril } = by;
    if ((covariance === undefined) === (scaleTril === undefined))
      throw new ArgumentError('MultivariateNormal: takes either { covariance } or { scaleTril }');
    const factor = (scaleTril?.tril() ?? covariance?.cholesky()) as Tensor;
    const n = mean.shape.at(-1);
    if (n === undefined || factor.rank < 2 || factor.shape.at(-1) !== n || factor.shape.at(-2) !== n)
      throw new ArgumentError(
        `MultivariateNormal: a mean ${formatShape(mean.shape)} is (..., n), with a matrix (..., n, n), not ` +
          formatShape(factor.shape),
      );
    this.shape = broadcastShapes('MultivariateNormal', mean.shape.slice(0, -1), factor.shape.slice(0, -2));
    this.event = [n];
    this.mean = mean.broadcastTo([...this.shape, n]);
    this.scaleTril = factor.broadcastTo([...this.shape, n, n]);
  }
  get variance(): Tensor {
    return this.scaleTril.sqr().sum([-1], false);
  }
  rsample(shape: Shape = [], options: SampleOptions = {}): Tensor {
    const { dtype, device } = this.mean;
    const noise = randn(this.drawn(shape), { ...options, dtype, device }).unsqueeze(-1);
    return this.mean.add(this.scaleTril.matmul(noise).squeeze(-1));
  }
  logProb(x: Parameter): Tensor {
    const apart = this.value(x, this.mean).sub(this.mean);
    const factor = this.scaleTril.broadcastTo([...apart.shape, ...this.event]);
    const z = factor.solveTriangular(apart.unsqueeze(-1)).squeeze(-1);
    return z
      .sqr()
      .sum([-1], false)
      .affine(-0.5, -0.5 * this.event[0] * LOG_2PI)
      .sub(this.#halfLogDet());
  }
  entropy(): Tensor {
    return this.#halfLogDet().affine(1, 0.5 * this.event[0] * (1 + LOG_2PI));
  }
  #halfLogDet(): Tensor {
    return this.scaleTril.diagonal().log().sum([-1], false);
  }
}

/** A distribution whose last dimensions are drawn together: their log-probabilities and entropies are added up. */
export class Independent extends Distribution {
  readonly shape: Shape;
  override readonly event: Shape;
  /** What is drawn from. */
  readonly base: Distribution;
  constructor(base: Distribution, dimensions: number) {
    super();
    if (
      !(base instanceof Distribution) ||
      !Number.isInteger(dimensions) ||
      dimensions < 0 ||
      dimensions > base?.shape.length
    )
      throw new ArgumentError('Independent: takes a distribution, and how many of its last dimensions belong together');
    this.base = base;
    const cut = base.shape.length - dimensions;
    this.shape = base.shape.slice(0, cut);
    this.event = [...base.shape.slice(cut), ...base.event];
  }
  /** What belongs together, added up. */
  summed(x: Tensor): Tensor {
    const dims = this.base.shape.slice(this.shape.length).map((_, i) => -1 - i);
    return dims.length > 0 ? x.sum(dims, false) : x;
  }
  get mean(): Tensor {
    return this.base.mean;
  }
  get variance(): Tensor {
    return this.base.variance;
  }
  override get mode(): Tensor {
    return this.base.mode;
  }
  sample(shape: Shape = [], options: SampleOptions = {}): Tensor {
    return this.base.sample(shape, options);
  }
  /** Numbers drawn so that gradients flow to the parameters, where the distribution has such draws. */
  rsample(shape: Shape = [], options: SampleOptions = {}): Tensor {
    const base = this.base as Partial<Reparametrized>;
    if (typeof base.rsample !== 'function')
      throw new UnsupportedError(`Independent: draws of ${this.base.constructor.name} have no gradient`);
    return base.rsample(shape, options);
  }
  logProb(x: Parameter): Tensor {
    return this.summed(this.base.logProb(x));
  }
  entropy(): Tensor {
    return this.summed(this.base.entropy());
  }
}

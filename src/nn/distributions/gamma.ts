// Gamma and beta distributions, drawn by rejection.
import { type Shape, sizeOf } from '../../base/shape.js';
import { noGrad } from '../../tensor/autograd.js';
import { rand, randn } from '../../tensor/create.js';
import { Generator } from '../../tensor/random.js';
import type { Tensor } from '../../tensor/tensor.js';
import {
  beside,
  Distribution,
  type Parameter,
  parameters,
  requirePositive,
  type SampleOptions,
  timesLog,
} from './distribution.js';

/** Sums of waiting times: numbers above 0 by a concentration and a rate. */
export class Gamma extends Distribution {
  readonly shape: Shape;
  /** The shape of the curve: 1 is an exponential distribution. */
  readonly concentration: Tensor;
  /** One over the scale. */
  readonly rate: Tensor;
  constructor(concentration: Parameter, rate: Parameter = 1) {
    super();
    [this.concentration, this.rate] = parameters('Gamma', concentration, rate);
    requirePositive('Gamma', 'concentration', this.concentration);
    requirePositive('Gamma', 'rate', this.rate);
    this.shape = this.concentration.shape;
  }
  get mean(): Tensor {
    return this.concentration.div(this.rate);
  }
  get variance(): Tensor {
    return this.mean.div(this.rate);
  }
  sample(shape: Shape = [], options: SampleOptions = {}): Tensor {
    return noGrad(() => standardGamma(this.concentration.broadcastTo(this.drawn(shape)), options).div(this.rate));
  }
  logProb(x: Parameter): Tensor {
    const at = this.value(x, this.rate);
    const [c, rate] = [beside(this.concentration, at), beside(this.rate, at)];
    return c
      .mul(rate.log())
      .add(timesLog(c.affine(1, -1), at))
      .sub(rate.mul(at))
      .sub(c.lgamma());
  }
  entropy(): Tensor {
    const c = this.concentration;
    return c.sub(this.rate.log()).add(c.lgamma()).add(c.affine(-1, 1).mul(c.digamma()));
  }
}
/**
 * Gamma numbers of rate 1 by Marsaglia and Tsang's way: cubes of stretched normal numbers, of which a few are drawn
 * again. Concentrations below 1 are drawn one higher and brought down by a power of a uniform number.
 */
export function standardGamma(concentration: Tensor, options: SampleOptions): Tensor {
  const { shape, dtype, device } = concentration;
  if (sizeOf(shape) === 0) return concentration;
  // One stream for all rounds: a seed for each would draw the same numbers again.
  const generator = options.generator ?? (options.seed === undefined ? undefined : new Generator(options.seed));
  const draw = { ...(generator && { generator }), dtype, device };
  const least = 2 ** -24;
  const small = concentration.lt(1);
  const d = small.where(concentration.affine(1, 1), concentration).affine(1, -1 / 3);
  const c = d.affine(9, 0).sqrt().recip();
  let result = concentration.zerosLike();
  let left = concentration.ge(0);
  while (left.any().item() !== 0) {
    const z = randn(shape, draw);
    const v = c.mul(z).affine(1, 1).powf(3);
    const u = rand(shape, draw).clamp(least, 1 - least);
    const positive = v.gt(0);
    const safe = positive.where(v, v.onesLike());
    const bound = z
      .sqr()
      .affine(0.5, 0)
      .add(d.mul(safe.affine(-1, 1).add(safe.log())));
    const taken = left.logicalAnd(positive).logicalAnd(u.log().lt(bound));
    result = taken.where(d.mul(safe), result);
    left = left.logicalAnd(taken.logicalNot());
  }
  const power = rand(shape, draw).clamp(least, 1).pow(concentration.recip());
  return small.where(result.mul(power), result);
}

/** Shares between 0 and 1: those of one of two gamma numbers. */
export class Beta extends Distribution {
  readonly shape: Shape;
  /** Pulls towards 1. */
  readonly concentration1: Tensor;
  /** Pulls towards 0. */
  readonly concentration0: Tensor;
  constructor(concentration1: Parameter, concentration0: Parameter) {
    super();
    [this.concentration1, this.concentration0] = parameters('Beta', concentration1, concentration0);
    requirePositive('Beta', 'concentration', this.concentration1);
    requirePositive('Beta', 'concentration', this.concentration0);
    this.shape = this.concentration1.shape;
  }
  get mean(): Tensor {
    return this.concentration1.div(this.concentration1.add(this.concentration0));
  }
  get variance(): Tensor {
    const total = this.concentration1.add(this.concentration0);
    return this.concentration1.mul(this.concentration0).div(total.sqr().mul(total.affine(1, 1)));
  }
  sample(shape: Shape = [], options: SampleOptions = {}): Tensor {
    const generator = options.generator ?? (options.seed === undefined ? undefined : new Generator(options.seed));
    const own = generator ? { generator } : {};
    return noGrad(() => {
      const to = this.drawn(shape);
      const [a, b] = [this.concentration1, this.concentration0].map((c) => standardGamma(c.broadcastTo(to), own));
      return a.div(a.add(b));
    });
  }
  logProb(x: Parameter): Tensor {
    const at = this.value(x, this.concentration1);
    const [a, b] = [beside(this.concentration1, at), beside(this.concentration0, at)];
    return timesLog(a.affine(1, -1), at)
      .add(timesLog(b.affine(1, -1), at.affine(-1, 1)))
      .sub(logBeta(a, b));
  }
  entropy(): Tensor {
    const [a, b] = [this.concentration1, this.concentration0];
    const total = a.add(b);
    return logBeta(a, b)
      .sub(a.affine(1, -1).mul(a.digamma()))
      .sub(b.affine(1, -1).mul(b.digamma()))
      .add(total.affine(1, -2).mul(total.digamma()));
  }
}
export const logBeta = (a: Tensor, b: Tensor): Tensor => a.lgamma().add(b.lgamma()).sub(a.add(b).lgamma());

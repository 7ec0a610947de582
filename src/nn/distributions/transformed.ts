// Draws of one distribution sent through a function that can be undone, such as the tanh that bounds actions.
import { ArgumentError, UnsupportedError } from '../../base/errors.js';
import type { Shape } from '../../base/shape.js';
import { Tensor } from '../../tensor/tensor.js';
import { Distribution, kind, type Parameter, Reparametrized, type SampleOptions } from './distribution.js';

/** A function that can be undone, with how much it stretches: elementwise, and rising or falling everywhere. */
export abstract class Transform {
  /** What becomes of x. */
  abstract forward(x: Tensor): Tensor;
  /** What y was made of. */
  abstract inverse(y: Tensor): Tensor;
  /** The logarithm of the absolute slope at x, where y is forward(x). */
  abstract logSlope(x: Tensor, y: Tensor): Tensor;
}
/** Numbers from -1 to 1. */
export class TanhTransform extends Transform {
  forward(x: Tensor): Tensor {
    return x.tanh();
  }
  inverse(y: Tensor): Tensor {
    return y.atanh();
  }
  /** ln(1 - tanh(x)^2), without the difference that loses all digits at the ends. */
  logSlope(x: Tensor): Tensor {
    return x.add(x.affine(-2, 0).softplus()).affine(-2, 2 * Math.LN2);
  }
}
/** Numbers from 0 to 1. */
export class SigmoidTransform extends Transform {
  forward(x: Tensor): Tensor {
    return x.sigmoid();
  }
  inverse(y: Tensor): Tensor {
    return y.log().sub(y.neg().log1p());
  }
  logSlope(x: Tensor): Tensor {
    return x.softplus().add(x.neg().softplus()).neg();
  }
}
/** Numbers above 0. */
export class ExpTransform extends Transform {
  forward(x: Tensor): Tensor {
    return x.exp();
  }
  inverse(y: Tensor): Tensor {
    return y.log();
  }
  logSlope(x: Tensor): Tensor {
    return x;
  }
}
/** loc + scale x. */
export class AffineTransform extends Transform {
  /** What is added. */
  readonly loc: Parameter;
  /** What is multiplied by first; not 0. */
  readonly scale: Parameter;
  constructor(loc: Parameter, scale: Parameter) {
    super();
    for (const p of [loc, scale])
      if (!(p instanceof Tensor) && typeof p !== 'number')
        throw new ArgumentError(`AffineTransform: takes what is added, then what is multiplied by, not ${kind(p)}`);
    this.loc = loc;
    this.scale = scale;
  }
  forward(x: Tensor): Tensor {
    return x.mul(this.scale).add(this.loc);
  }
  inverse(y: Tensor): Tensor {
    return y.sub(this.loc).div(this.scale);
  }
  logSlope(x: Tensor): Tensor {
    const { scale } = this;
    if (typeof scale === 'number') return x.fullLike(Math.log(Math.abs(scale)));
    return x.zerosLike().add(scale.abs().log());
  }
}

/**
 * Draws of a distribution, sent through functions one after another.
 *
 * ```ts
 * const actions = new TransformedDistribution(new Normal(mean, scale), [new TanhTransform()]);
 * const action = actions.rsample();
 * const logProb = actions.logProb(action).sum(-1);
 * ```
 */
export class TransformedDistribution extends Distribution {
  readonly shape: Shape;
  override readonly event: Shape;
  /** What is drawn from first. */
  readonly base: Distribution;
  /** What draws are sent through, in this order. */
  readonly transforms: readonly Transform[];
  /** What draws were made of: undoing a tanh near 1 would lose it. */
  readonly #origins = new WeakMap<Tensor, readonly Tensor[]>();
  constructor(base: Distribution, transforms: Transform | readonly Transform[]) {
    super();
    const list = Array.isArray(transforms) ? (transforms as readonly Transform[]) : [transforms as Transform];
    if (!(base instanceof Distribution) || list.some((t) => typeof t?.logSlope !== 'function'))
      throw new ArgumentError(
        'TransformedDistribution: takes a distribution, and a list of transforms, which have forward, inverse and ' +
          'logSlope',
      );
    this.base = base;
    this.transforms = list;
    this.shape = base.shape;
    this.event = base.event;
  }
  get mean(): Tensor {
    throw new UnsupportedError('TransformedDistribution: a mean does not go through transforms; draws have one');
  }
  get variance(): Tensor {
    throw new UnsupportedError('TransformedDistribution: a variance does not go through transforms; draws have one');
  }
  entropy(): Tensor {
    throw new UnsupportedError(
      'TransformedDistribution: its entropy has no formula; the mean of -logProb over draws comes close',
    );
  }
  #sent(x: Tensor): Tensor {
    const steps = [x];
    for (const t of this.transforms) steps.push(t.forward(steps[steps.length - 1]));
    const y = steps[steps.length - 1];
    this.#origins.set(y, steps);
    return y;
  }
  sample(shape: Shape = [], options: SampleOptions = {}): Tensor {
    return this.#sent(this.base.sample(shape, options));
  }
  /** Numbers drawn so that gradients flow to the parameters, where the distribution has such draws. */
  rsample(shape: Shape = [], options: SampleOptions = {}): Tensor {
    const base = this.base as Partial<Reparametrized>;
    if (typeof base.rsample !== 'function')
      throw new UnsupportedError(`TransformedDistribution: draws of ${this.base.constructor.name} have no gradient`);
    return this.#sent(base.rsample(shape, options));
  }
  logProb(y: Parameter): Tensor {
    const at = y instanceof Tensor ? y : this.value(y, this.base.sample());
    const steps = this.#origins.get(at) ?? this.#undone(at);
    let stretched: Tensor | undefined;
    for (const [i, t] of this.transforms.entries()) {
      const slope = t.logSlope(steps[i], steps[i + 1]);
      stretched = stretched ? stretched.add(slope) : slope;
    }
    const log = this.base.logProb(steps[0]);
    if (!stretched) return log;
    const together = this.event.map((_, i) => -1 - i);
    return log.sub(together.length > 0 ? stretched.sum(together, false) : stretched);
  }
  #undone(y: Tensor): readonly Tensor[] {
    const steps = [y];
    for (const t of [...this.transforms].reverse()) steps.unshift(t.inverse(steps[0]));
    return steps;
  }
  /** Of transforms that rise everywhere, as those here do (an affine one with a scale above 0). */
  override cdf(y: Parameter): Tensor {
    return this.base.cdf(this.#undone(this.value(y, this.base.mean))[0]);
  }
  override icdf(share: Parameter): Tensor {
    return this.transforms.reduce((x, t) => t.forward(x), this.base.icdf(share));
  }
}

// One of several distributions at a time, and shares of a whole.
import { ArgumentError, UnsupportedError } from '../../base/errors.js';
import { formatShape, sameShape, type Shape } from '../../base/shape.js';
import { noGrad } from '../../tensor/autograd.js';
import { Generator } from '../../tensor/random.js';
import { Tensor } from '../../tensor/tensor.js';
import { Categorical } from './discrete.js';
import { Distribution, kind, type Parameter, requirePositive, type SampleOptions, timesLog } from './distribution.js';
import { standardGamma } from './gamma.js';

/** Draws of one of several distributions of a kind, which are the last dimension of their parameters. */
export class MixtureSameFamily extends Distribution {
  readonly shape: Shape;
  override readonly event: Shape;
  /** Which distribution is drawn from. */
  readonly mixture: Categorical;
  /** The distributions, (..., how many). */
  readonly components: Distribution;
  constructor(mixture: Categorical, components: Distribution) {
    super();
    if (!(mixture instanceof Categorical) || !(components instanceof Distribution))
      throw new ArgumentError('MixtureSameFamily: takes a Categorical and the distributions that it chooses among');
    if (!sameShape(mixture.probs.shape.slice(-1), components.shape.slice(-1)))
      throw new ArgumentError(
        `MixtureSameFamily: chances of ${formatShape(mixture.probs.shape)} for distributions of ` +
          `${formatShape(components.shape)}: their last dimension is how many there are`,
      );
    this.shape = components.shape.slice(0, -1);
    this.mixture = sameShape(mixture.shape, this.shape)
      ? mixture
      : new Categorical({ logits: mixture.logits.broadcastTo(components.shape) });
    this.components = components;
    this.event = components.event;
  }
  /** The chances, with a dimension of size 1 for each of a draw's own. */
  get #chances(): Tensor {
    const p = this.mixture.probs;
    return p.reshape([...p.shape, ...this.event.map(() => 1)]);
  }
  get #place(): number {
    return -1 - this.event.length;
  }
  get mean(): Tensor {
    return this.#chances.mul(this.components.mean).sum([this.#place], false);
  }
  get variance(): Tensor {
    const { mean, variance } = this.components;
    const apart = mean.sub(this.mean.unsqueeze(this.#place)).sqr();
    return this.#chances.mul(variance.add(apart)).sum([this.#place], false);
  }
  sample(shape: Shape = [], options: SampleOptions = {}): Tensor {
    const generator = options.generator ?? (options.seed === undefined ? undefined : new Generator(options.seed));
    const own = generator ? { generator } : {};
    return noGrad(() => {
      const chosen = this.mixture.sample(shape, own);
      const all = this.components.sample(shape, own);
      const dim = chosen.rank;
      const places = chosen.reshape([...chosen.shape, 1, ...this.event.map(() => 1)]);
      return all.gather(dim, places.broadcastTo([...chosen.shape, 1, ...this.event])).squeeze(dim);
    });
  }
  logProb(x: Parameter): Tensor {
    if (!(x instanceof Tensor) && typeof x !== 'number')
      throw new ArgumentError(`MixtureSameFamily: a value to look up is a tensor or a number, not ${kind(x)}`);
    const each = this.components.logProb(x instanceof Tensor ? x.unsqueeze(this.#place) : x);
    return each.add(this.mixture.logits).logSumExp(-1);
  }
  entropy(): Tensor {
    throw new UnsupportedError(
      'MixtureSameFamily: its entropy has no formula; the mean of -logProb over draws comes close',
    );
  }
  override cdf(x: Parameter): Tensor {
    const each = this.components.cdf(x instanceof Tensor ? x.unsqueeze(this.#place) : x);
    return each.mul(this.mixture.probs).sum([-1], false);
  }
}

/** Shares of a whole, (..., n) of them that add up to 1. */
export class Dirichlet extends Distribution {
  readonly shape: Shape;
  override readonly event: Shape;
  /** How strongly each share is pulled up. */
  readonly concentration: Tensor;
  constructor(concentration: Tensor) {
    super();
    if (!(concentration instanceof Tensor) || concentration.rank === 0)
      throw new ArgumentError('Dirichlet: takes a tensor (..., n) of concentrations');
    requirePositive('Dirichlet', 'concentration', concentration);
    this.concentration = concentration;
    this.shape = concentration.shape.slice(0, -1);
    this.event = concentration.shape.slice(-1);
  }
  get #total(): Tensor {
    return this.concentration.sum([-1], true);
  }
  get mean(): Tensor {
    return this.concentration.div(this.#total);
  }
  get variance(): Tensor {
    const { mean } = this;
    return mean.mul(mean.affine(-1, 1)).div(this.#total.affine(1, 1));
  }
  sample(shape: Shape = [], options: SampleOptions = {}): Tensor {
    return noGrad(() => {
      const drawn = standardGamma(this.concentration.broadcastTo(this.drawn(shape)), options);
      return drawn.div(drawn.sum([-1], true));
    });
  }
  logProb(x: Parameter): Tensor {
    const at = this.value(x, this.concentration);
    return timesLog(this.concentration.affine(1, -1), at).sum([-1], false).sub(this.#logNorm());
  }
  entropy(): Tensor {
    const c = this.concentration;
    const total = this.#total.squeeze(-1);
    return this.#logNorm()
      .add(total.affine(1, -c.dim(-1)).mul(total.digamma()))
      .sub(c.affine(1, -1).mul(c.digamma()).sum([-1], false));
  }
  /** The logarithm of what densities are divided by. */
  #logNorm(): Tensor {
    return this.concentration.lgamma().sum([-1], false).sub(this.#total.squeeze(-1).lgamma());
  }
}

// Distributions of whole numbers from 0.
import { ArgumentError, UnsupportedError } from '../../base/errors.js';
import type { Shape } from '../../base/shape.js';
import { requireOptions } from '../../ops/kernel-row.js';
import { noGrad } from '../../tensor/autograd.js';
import { rand } from '../../tensor/create.js';
import { Generator } from '../../tensor/random.js';
import type { Tensor } from '../../tensor/tensor.js';
import { Bernoulli, type ProbsOrLogits } from './discrete.js';
import {
  beside,
  Distribution,
  type Parameter,
  parameters,
  requireEach,
  requirePositive,
  type SampleOptions,
  timesLog,
} from './distribution.js';

const isCount = (v: Tensor): Tensor => v.ge(0).logicalAnd(v.floor().eq(v));
/** How many rounds go by between two looks at whether all draws are done. */
const ROUNDS = 16;

/** How many events there are in a unit of time, at a rate. */
export class Poisson extends Distribution {
  readonly shape: Shape;
  /** Events in a unit of time, on average. */
  readonly rate: Tensor;
  constructor(rate: Parameter) {
    super();
    [this.rate] = parameters('Poisson', rate);
    requireEach('Poisson', this.rate, (v) => v.ge(0).logicalAnd(v.lt(Infinity)), 'a rate of at least 0');
    this.shape = this.rate.shape;
  }
  get mean(): Tensor {
    return this.rate;
  }
  get variance(): Tensor {
    return this.rate;
  }
  override get mode(): Tensor {
    return this.rate.floor();
  }
  /** Counted one event after another, all draws at once: the more rounds, the higher the largest rate. */
  sample(shape: Shape = [], options: SampleOptions = {}): Tensor {
    const generator = options.generator ?? (options.seed === undefined ? undefined : new Generator(options.seed));
    const { dtype, device } = this.rate;
    const draw = { ...(generator && { generator }), dtype, device };
    return noGrad(() => {
      const to = this.drawn(shape);
      let left = this.rate.broadcastTo(to);
      let count = left.zerosLike();
      do {
        for (let i = 0; i < ROUNDS; i++) {
          left = left.add(
            rand(to, draw)
              .clamp(2 ** -24, 1)
              .log(),
          );
          count = count.add(left.gt(0).cast(dtype));
        }
      } while (left.gt(0).any().item() !== 0);
      return count;
    });
  }
  logProb(x: Parameter): Tensor {
    const at = this.value(x, this.rate);
    requireEach('Poisson', at, isCount, 'a whole number from 0');
    const rate = beside(this.rate, at);
    return timesLog(at, rate).sub(rate).sub(at.affine(1, 1).lgamma());
  }
  entropy(): Tensor {
    throw new UnsupportedError('Poisson: its entropy has no formula; the mean of -logProb over draws comes close');
  }
}

/** How often a toss fails before it succeeds for the first time. */
export class Geometric extends Distribution {
  readonly shape: Shape;
  /** The toss. */
  readonly toss: Bernoulli;
  constructor(by: ProbsOrLogits<Parameter>) {
    super();
    this.toss = new Bernoulli(by);
    requirePositive('Geometric', 'probability', this.toss.probs);
    this.shape = this.toss.shape;
  }
  /** The probabilities of a success. */
  get probs(): Tensor {
    return this.toss.probs;
  }
  /** The logarithms of the odds. */
  get logits(): Tensor {
    return this.toss.logits;
  }
  get mean(): Tensor {
    return this.probs.recip().affine(1, -1);
  }
  get variance(): Tensor {
    return this.mean.div(this.probs);
  }
  override get mode(): Tensor {
    return this.probs.zerosLike();
  }
  sample(shape: Shape = [], options: SampleOptions = {}): Tensor {
    const { dtype, device } = this.probs;
    return noGrad(() => {
      const u = rand(this.drawn(shape), { ...options, dtype, device }).clamp(2 ** -24, 1 - 2 ** -24);
      return u.log().div(this.probs.neg().log1p()).floor();
    });
  }
  logProb(x: Parameter): Tensor {
    const at = this.value(x, this.probs);
    requireEach('Geometric', at, isCount, 'a whole number from 0');
    const p = beside(this.probs, at);
    return timesLog(at, p.affine(-1, 1)).add(p.log());
  }
  entropy(): Tensor {
    return this.toss.entropy().div(this.probs);
  }
}

/** How many of several tosses succeed. */
export class Binomial extends Distribution {
  readonly shape: Shape;
  /** How many tosses there are: one number for all. */
  readonly total: number;
  /** One toss. */
  readonly toss: Bernoulli;
  constructor(total: number, by: ProbsOrLogits<Parameter>) {
    super();
    if (!Number.isSafeInteger(total) || total < 0)
      throw new ArgumentError('Binomial: takes how many tosses there are, one whole number from 0, then { probs }');
    requireOptions('Binomial', by, ['probs', 'logits']);
    this.total = total;
    this.toss = new Bernoulli(by);
    this.shape = this.toss.shape;
  }
  /** The probabilities of a success. */
  get probs(): Tensor {
    return this.toss.probs;
  }
  /** The logarithms of the odds. */
  get logits(): Tensor {
    return this.toss.logits;
  }
  get mean(): Tensor {
    return this.probs.affine(this.total, 0);
  }
  get variance(): Tensor {
    return this.toss.variance.affine(this.total, 0);
  }
  override get mode(): Tensor {
    return this.probs
      .affine(this.total + 1, 0)
      .floor()
      .clamp(0, this.total);
  }
  sample(shape: Shape = [], options: SampleOptions = {}): Tensor {
    this.drawn(shape); // says what is no shape
    return noGrad(() => this.toss.sample([this.total, ...shape], options).sum(0));
  }
  logProb(x: Parameter): Tensor {
    const at = this.value(x, this.probs);
    const fits = (v: Tensor): Tensor => isCount(v).logicalAnd(v.le(this.total));
    requireEach('Binomial', at, fits, `a whole number from 0 to ${this.total}`);
    const p = beside(this.probs, at);
    const rest = at.affine(-1, this.total);
    const all = at.fullLike(this.total + 1).lgamma();
    return all
      .sub(at.affine(1, 1).lgamma())
      .sub(rest.affine(1, 1).lgamma())
      .add(timesLog(at, p))
      .add(timesLog(rest, p.affine(-1, 1)));
  }
  /** Added up over all counts. */
  entropy(): Tensor {
    let sum = this.probs.zerosLike();
    for (let k = 0; k <= this.total; k++) {
      const log = this.logProb(this.probs.fullLike(k));
      sum = sum.sub(log.exp().mul(log.eq(-Infinity).where(0, log)));
    }
    return sum;
  }
}

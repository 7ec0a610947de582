// Distributions: numbers drawn from them, the logarithm of their density, entropies and divergences, with gradients.
import { ArgumentError, UnsupportedError } from '../base/errors.js';
import { broadcastShapes, type Shape, sizeOf } from '../base/shape.js';
import { rand, randn, type RandomOptions, tensor } from '../tensor/create.js';
import { bernoulli, multinomial } from '../tensor/sampling.js';
import { Tensor } from '../tensor/tensor.js';

/** Where numbers are drawn from. */
export type SampleOptions = Pick<RandomOptions, 'generator' | 'seed'>;
const LOG_2PI = Math.log(2 * Math.PI);
const asTensor = (x: Tensor | number): Tensor => (x instanceof Tensor ? x : tensor(x));

/** A distribution over numbers, one for each element of its parameters, which broadcast. */
export abstract class Distribution {
  /** The shape of its parameters: a draw has it behind the shape that was asked for. */
  abstract readonly shape: Shape;
  /** The mean of each. */
  abstract readonly mean: Tensor;
  /** The variance of each. */
  abstract readonly variance: Tensor;
  /** Numbers drawn, (...shape, ...parameters); no gradient flows through them. */
  abstract sample(shape?: Shape, options?: SampleOptions): Tensor;
  /** The logarithm of the density, or of the probability, at x. */
  abstract logProb(x: Tensor): Tensor;
  /** The entropy, in nats. */
  abstract entropy(): Tensor;
}

/** The normal distribution of a mean and a standard deviation. */
export class Normal extends Distribution {
  readonly shape: Shape;
  readonly mean: Tensor;
  /** The standard deviation. */
  readonly scale: Tensor;
  constructor(mean: Tensor | number, scale: Tensor | number) {
    super();
    const [m, s] = [asTensor(mean), asTensor(scale)];
    this.shape = broadcastShapes('Normal', m.shape, s.shape);
    this.mean = m.broadcastTo(this.shape);
    this.scale = s.cast(m.dtype).broadcastTo(this.shape);
  }
  get variance(): Tensor {
    return this.scale.sqr();
  }
  /** Numbers drawn so that gradients flow to the mean and the deviation, as of PyTorch's rsample. */
  rsample(shape: Shape = [], options: SampleOptions = {}): Tensor {
    const { dtype, device } = this.mean;
    return this.mean.add(this.scale.mul(randn([...shape, ...this.shape], { ...options, dtype, device })));
  }
  sample(shape: Shape = [], options: SampleOptions = {}): Tensor {
    return this.rsample(shape, options).detach();
  }
  logProb(x: Tensor): Tensor {
    const z = x.sub(this.mean).div(this.scale);
    return z
      .sqr()
      .affine(-0.5, -0.5 * LOG_2PI)
      .sub(this.scale.log());
  }
  entropy(): Tensor {
    return this.scale.log().affine(1, 0.5 + 0.5 * LOG_2PI);
  }
}

/** Numbers from `low` up to `high`, all alike. */
export class Uniform extends Distribution {
  readonly shape: Shape;
  /** The least number. */
  readonly low: Tensor;
  /** What numbers stay below. */
  readonly high: Tensor;
  constructor(low: Tensor | number, high: Tensor | number) {
    super();
    const [a, b] = [asTensor(low), asTensor(high)];
    this.shape = broadcastShapes('Uniform', a.shape, b.shape);
    this.low = a.broadcastTo(this.shape);
    this.high = b.cast(a.dtype).broadcastTo(this.shape);
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
  /** Numbers drawn so that gradients flow to the bounds. */
  rsample(shape: Shape = [], options: SampleOptions = {}): Tensor {
    const { dtype, device } = this.low;
    const drawn = rand([...shape, ...this.shape], { ...options, dtype, device });
    return this.low.add(drawn.mul(this.high.sub(this.low)));
  }
  sample(shape: Shape = [], options: SampleOptions = {}): Tensor {
    return this.rsample(shape, options).detach();
  }
  logProb(x: Tensor): Tensor {
    const within = x.ge(this.low).logicalAnd(x.lt(this.high));
    const density = this.high.sub(this.low).log().neg().broadcastTo(within.shape);
    return within.where(density, density.fullLike(-Infinity));
  }
  entropy(): Tensor {
    return this.high.sub(this.low).log();
  }
}

/** 1 or 0, by logits: sigmoid(logit) is the probability of 1. */
export class Bernoulli extends Distribution {
  readonly shape: Shape;
  /** The logarithms of the odds. */
  readonly logits: Tensor;
  constructor(logits: Tensor) {
    super();
    this.logits = logits;
    this.shape = logits.shape;
  }
  /** By probabilities of 1. */
  static of(probabilities: Tensor): Bernoulli {
    return new Bernoulli(probabilities.logit(1e-7));
  }
  get mean(): Tensor {
    return this.logits.sigmoid();
  }
  get variance(): Tensor {
    return this.mean.mul(this.mean.affine(-1, 1));
  }
  sample(shape: Shape = [], options: SampleOptions = {}): Tensor {
    return bernoulli(this.mean.broadcastTo([...shape, ...this.shape]), options);
  }
  logProb(x: Tensor): Tensor {
    const shape = broadcastShapes('Bernoulli', x.shape, this.shape);
    return this.logits.broadcastTo(shape).bceWithLogits(x.broadcastTo(shape), { reduction: 'none' }).neg();
  }
  entropy(): Tensor {
    return this.logits.bceWithLogits(this.mean, { reduction: 'none' });
  }
}

/** Class numbers by logits (..., classes): softmax gives their probabilities. */
export class Categorical extends Distribution {
  readonly shape: Shape;
  /** The logarithms of the probabilities. */
  readonly logProbabilities: Tensor;
  constructor(logits: Tensor) {
    super();
    if (logits.rank === 0) throw new ArgumentError('Categorical: logits have classes as their last dimension');
    this.shape = logits.shape.slice(0, -1);
    this.logProbabilities = logits.logSoftmax(-1);
  }
  /** By probabilities, or weights, of the classes. */
  static of(probabilities: Tensor): Categorical {
    return new Categorical(probabilities.log());
  }
  get mean(): Tensor {
    throw new UnsupportedError('Categorical: classes have no mean');
  }
  get variance(): Tensor {
    throw new UnsupportedError('Categorical: classes have no variance');
  }
  sample(shape: Shape = [], options: SampleOptions = {}): Tensor {
    const classes = this.logProbabilities.shape[this.shape.length];
    const rows = this.logProbabilities.detach().exp().reshape([-1, classes]);
    const drawn = multinomial(rows, sizeOf(shape), { replacement: true, ...options });
    return drawn.t().reshape([...shape, ...this.shape]);
  }
  logProb(x: Tensor): Tensor {
    const shape = broadcastShapes('Categorical', x.shape, this.shape);
    const classes = this.logProbabilities.shape[this.shape.length];
    const places = x.broadcastTo(shape).cast('i64').unsqueeze(-1);
    return this.logProbabilities
      .broadcastTo([...shape, classes])
      .gather(shape.length, places)
      .squeeze(-1);
  }
  entropy(): Tensor {
    const p = this.logProbabilities.exp();
    return p.mul(p.gt(0).where(this.logProbabilities, p.zerosLike())).sum([-1], false).neg();
  }
}

/** How far p is from q, E[ln p - ln q] in nats, of two distributions of one kind. */
export function klDivergence(p: Distribution, q: Distribution): Tensor {
  if (p instanceof Normal && q instanceof Normal) {
    const ratio = p.scale.div(q.scale).sqr();
    const apart = p.mean.sub(q.mean).div(q.scale).sqr();
    return ratio.add(apart).affine(0.5, -0.5).sub(ratio.log().affine(0.5, 0));
  }
  if (p instanceof Bernoulli && q instanceof Bernoulli)
    return q.logits.bceWithLogits(p.mean, { reduction: 'none' }).sub(p.entropy());
  if (p instanceof Categorical && q instanceof Categorical) {
    const at = p.logProbabilities.exp();
    const apart = p.logProbabilities.sub(q.logProbabilities);
    return at.mul(at.gt(0).where(apart, at.zerosLike())).sum([-1], false);
  }
  throw new UnsupportedError(
    `klDivergence: of ${p.constructor.name} and ${q.constructor.name}; it takes two Normal, Bernoulli or Categorical`,
  );
}

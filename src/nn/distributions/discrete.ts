// Distributions of truths and classes.
import { ArgumentError, UnsupportedError } from '../../base/errors.js';
import { broadcastShapes, type Shape, sizeOf } from '../../base/shape.js';
import { requireOptions } from '../../ops/kernel-row.js';
import { noGrad } from '../../tensor/autograd.js';
import { bernoulli, multinomial } from '../../tensor/sampling.js';
import { Tensor } from '../../tensor/tensor.js';
import { Distribution, epsilon, type Parameter, parameters, requireEach, type SampleOptions } from './distribution.js';

/** By what classes are drawn: probabilities, or logits. */
export interface ProbsOrLogits<P = Tensor> {
  /** Probabilities (of Categorical also weights, which are divided by their sum). */
  readonly probs?: P;
  /** Logits: the logarithms of odds (Bernoulli), or of probabilities up to a number for all (Categorical). */
  readonly logits?: P;
}
/** Which of both was given. PyTorch's first argument is probs, and logits beside it: neither is guessed here. */
function oneOf<P>(name: string, by: ProbsOrLogits<P>): { readonly probs?: P; readonly logits?: P } {
  if (by instanceof Tensor || typeof by === 'number')
    throw new ArgumentError(`${name}: say what is given: new ${name}({ probs }) or new ${name}({ logits })`);
  requireOptions(name, by, ['probs', 'logits']);
  if ((by.probs === undefined) === (by.logits === undefined))
    throw new ArgumentError(`${name}: takes either { probs } or { logits }`);
  return by;
}

/** 1 or 0. */
export class Bernoulli extends Distribution {
  readonly shape: Shape;
  /** The probabilities of 1. */
  readonly probs: Tensor;
  /** The logarithms of the odds. */
  readonly logits: Tensor;
  constructor(by: ProbsOrLogits<Parameter>) {
    super();
    const { probs, logits } = oneOf('Bernoulli', by);
    const [given] = parameters('Bernoulli', (probs ?? logits) as Parameter);
    if (probs !== undefined)
      requireEach('Bernoulli', given, (v) => v.ge(0).logicalAnd(v.le(1)), 'a probability from 0 to 1');
    this.probs = probs === undefined ? given.sigmoid() : given;
    this.logits = probs === undefined ? given : given.logit(epsilon(given));
    this.shape = given.shape;
  }
  get mean(): Tensor {
    return this.probs;
  }
  get variance(): Tensor {
    return this.mean.mul(this.mean.affine(-1, 1));
  }
  /** 1 where it is likelier than 0. */
  override get mode(): Tensor {
    return this.probs.gt(0.5).cast(this.probs.dtype);
  }
  sample(shape: Shape = [], options: SampleOptions = {}): Tensor {
    return noGrad(() => bernoulli(this.mean.broadcastTo(this.drawn(shape)), options));
  }
  logProb(x: Parameter): Tensor {
    const at = this.value(x, this.logits);
    requireEach('Bernoulli', at, (v) => v.eq(0).logicalOr(v.eq(1)), '0 or 1');
    const shape = broadcastShapes('Bernoulli', at.shape, this.shape);
    return this.logits.broadcastTo(shape).bceWithLogits(at.broadcastTo(shape), { reduction: 'none' }).neg();
  }
  entropy(): Tensor {
    return this.logits.bceWithLogits(this.mean, { reduction: 'none' });
  }
}

/** Class numbers, by probabilities or logits (..., classes). */
export class Categorical extends Distribution {
  readonly shape: Shape;
  /** The probabilities. */
  readonly probs: Tensor;
  /** Their logarithms; given probabilities count as one unit in the last place at least, as in PyTorch. */
  readonly logProbabilities: Tensor;
  constructor(by: ProbsOrLogits) {
    super();
    const { probs, logits } = oneOf('Categorical', by);
    const [given] = parameters('Categorical', (probs ?? logits) as Tensor);
    if (given.rank === 0) throw new ArgumentError('Categorical: classes are the last dimension, and there is none');
    this.shape = given.shape.slice(0, -1);
    if (probs) {
      requireEach('Categorical', given, (v) => v.ge(0).logicalAnd(v.lt(Infinity)), 'a weight of at least 0');
      const sum = given.sum([-1], true);
      requireEach('Categorical', sum, (v) => v.gt(0), 'a sum of weights above 0');
      this.probs = given.div(sum);
      const least = epsilon(given);
      this.logProbabilities = this.probs.clamp(least, 1 - least).log();
    } else {
      this.logProbabilities = given.logSoftmax(-1);
      this.probs = this.logProbabilities.exp();
    }
  }
  /** The logits whose exponentials add up to 1: the logarithms of the probabilities. */
  get logits(): Tensor {
    return this.logProbabilities;
  }
  /** The number of the likeliest class. */
  override get mode(): Tensor {
    return this.probs.argmax(-1).cast('i64');
  }
  get #classes(): number {
    return this.logProbabilities.shape[this.shape.length];
  }
  get mean(): Tensor {
    throw new UnsupportedError('Categorical: classes have no mean');
  }
  get variance(): Tensor {
    throw new UnsupportedError('Categorical: classes have no variance');
  }
  sample(shape: Shape = [], options: SampleOptions = {}): Tensor {
    const to = this.drawn(shape);
    const rows = this.probs.detach().reshape([-1, this.#classes]);
    return multinomial(rows, sizeOf(shape), { replacement: true, ...options })
      .t()
      .reshape(to);
  }
  logProb(x: Parameter): Tensor {
    const at = this.value(x, this.logProbabilities);
    requireEach('Categorical', at, (v) => v.cast('i64').cast(v.dtype).eq(v), 'the number of a class');
    const shape = broadcastShapes('Categorical', at.shape, this.shape);
    const places = at.broadcastTo(shape).cast('i64').unsqueeze(-1);
    return this.logProbabilities
      .broadcastTo([...shape, this.#classes])
      .gather(shape.length, places)
      .squeeze(-1);
  }
  entropy(): Tensor {
    const log = this.logProbabilities;
    return this.probs
      .mul(log.eq(-Infinity).where(0, log)) // a class that a logit rules out adds nothing
      .sum([-1], false)
      .neg();
  }
}

/** One of several classes, as a vector with a 1 in its place: `Categorical` with other draws. */
export class OneHotCategorical extends Distribution {
  readonly shape: Shape;
  override readonly event: Shape;
  /** The classes by number. */
  readonly classes: Categorical;
  constructor(by: ProbsOrLogits) {
    super();
    oneOf('OneHotCategorical', by);
    this.classes = new Categorical(by);
    this.shape = this.classes.shape;
    this.event = this.classes.probs.shape.slice(-1);
  }
  /** The probabilities. */
  get probs(): Tensor {
    return this.classes.probs;
  }
  /** Their logarithms. */
  get logits(): Tensor {
    return this.classes.logits;
  }
  get mean(): Tensor {
    return this.probs;
  }
  get variance(): Tensor {
    return this.probs.mul(this.probs.affine(-1, 1));
  }
  override get mode(): Tensor {
    return this.#vectors(this.classes.mode);
  }
  #vectors(numbers: Tensor): Tensor {
    return numbers.oneHot(this.event[0]).cast(this.probs.dtype);
  }
  sample(shape: Shape = [], options: SampleOptions = {}): Tensor {
    return this.#vectors(this.classes.sample(shape, options));
  }
  logProb(x: Parameter): Tensor {
    const at = this.value(x, this.probs);
    requireEach('OneHotCategorical', at, (v) => v.eq(0).logicalOr(v.eq(1)), '0 or 1');
    return this.classes.logProb(at.argmax(-1).cast('i64'));
  }
  entropy(): Tensor {
    return this.classes.entropy();
  }
}

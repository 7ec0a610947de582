// Distributions: numbers drawn from them, the logarithm of their density, entropies and divergences, with gradients.
import { ArgumentError, UnsupportedError } from '../base/errors.js';
import { broadcastShapes, formatShape, sameShape, type Shape, sizeOf } from '../base/shape.js';
import { requireOptions } from '../ops/kernel-row.js';
import { noGrad } from '../tensor/autograd.js';
import { rand, randn, type RandomOptions, tensor } from '../tensor/create.js';
import { innermost } from '../tensor/levels.js';
import { Generator } from '../tensor/random.js';
import { bernoulli, multinomial } from '../tensor/sampling.js';
import { Tensor } from '../tensor/tensor.js';

/** Where numbers are drawn from. */
export type SampleOptions = Pick<RandomOptions, 'generator' | 'seed'>;
/** A tensor of parameters, or one number for all. */
export type Parameter = Tensor | number;
const LOG_2PI = Math.log(2 * Math.PI);
/** Euler's constant: the mean of a standard Gumbel number. */
const EULER = 0.5772156649015329;

function kind(x: unknown): string {
  return Array.isArray(x) ? 'a list, of which tensor(list) makes one' : x === null ? 'null' : typeof x;
}
/** Parameters of one shape; numbers have the dtype and the device of the tensors beside them. */
function parameters(name: string, ...given: readonly Parameter[]): Tensor[] {
  for (const p of given)
    if (!(p instanceof Tensor) && typeof p !== 'number')
      throw new ArgumentError(`${name}: a parameter is a tensor or a number, not ${kind(p)}`);
  const model = given.find((p) => p instanceof Tensor);
  const all = given.map((p) => (p instanceof Tensor ? p.cast(model?.dtype ?? p.dtype) : made(p, model)));
  const shape = all.map((t) => t.shape).reduce((a, b) => broadcastShapes(name, a, b));
  return all.map((t) => (sameShape(t.shape, shape) ? t : t.broadcastTo(shape)));
}
const made = (x: number, like?: Tensor): Tensor =>
  tensor(x, like ? { dtype: like.dtype, device: like.device } : undefined);
/** A single parameter beside many numbers takes their dtype and device: Normal(0, 1) goes with any of them. */
const beside = (p: Tensor, x: Tensor): Tensor => (p.rank === 0 && x.rank > 0 ? p.to(x.device).cast(x.dtype) : p);

/** On the host, where looking costs no wait: what no distribution can have is refused. */
function requireEach(name: string, x: Tensor, fits: (x: Tensor) => Tensor, rule: string): void {
  if ((x.device.name !== 'cpu' && x.device.name !== 'reference') || innermost() || x.size === 0) return;
  const values = x.detach();
  const wrong = fits(values).logicalNot();
  if (wrong.any().item() !== 0)
    throw new ArgumentError(`${name}: ${values.flatten().at(wrong.flatten()).at(0).item()} is not ${rule}`);
}
/** The distance from 1 to the next number: probabilities stay as far from 0 and 1, whose logarithms are infinite. */
const epsilon = ({ dtype }: Tensor): number =>
  ({ f64: 2 ** -52, f16: 2 ** -10, bf16: 2 ** -7 })[dtype as string] ?? 2 ** -23;
const requirePositive = (name: string, what: string, x: Tensor): void =>
  requireEach(name, x, (v) => v.gt(0), `a ${what} above 0`);

/** a ln(b), and 0 where a is 0 and b is 0 too; the gradient by a is ln(b) everywhere else. */
function timesLog(a: Tensor, b: Tensor): Tensor {
  const none = a.eq(0).logicalAnd(b.eq(0));
  return none.where(0, a.mul(none.where(1, b).log()));
}

/** A distribution over numbers, one for each element of its parameters, which broadcast. */
export abstract class Distribution {
  /** The shape of its parameters: a draw has it behind the shape that was asked for. */
  abstract readonly shape: Shape;
  /** The shape of one draw of one distribution: that of a vector, of several numbers drawn together; else []. */
  readonly event: Shape = [];
  /** The mean of each. */
  abstract readonly mean: Tensor;
  /** The variance of each. */
  abstract readonly variance: Tensor;
  /** Numbers drawn, (...shape, ...parameters, ...event); no gradient flows through them. */
  abstract sample(shape?: Shape, options?: SampleOptions): Tensor;
  /** The logarithm of the density, or of the probability, at x. */
  abstract logProb(x: Parameter): Tensor;
  /** The entropy, in nats. */
  abstract entropy(): Tensor;
  /** The standard deviation of each. */
  get stddev(): Tensor {
    return this.variance.sqrt();
  }
  /** A value to look up, as a tensor like a parameter. */
  protected value(x: Parameter, like: Tensor): Tensor {
    if (x instanceof Tensor) return x;
    if (typeof x === 'number') return made(x, like);
    throw new ArgumentError(`${this.constructor.name}: logProb takes a tensor or a number, not ${kind(x)}`);
  }
  /** The shape of a draw. */
  protected drawn(shape: Shape): number[] {
    if (!Array.isArray(shape))
      throw new ArgumentError(
        `${this.constructor.name}: a shape to draw is a list, as sample([3]), not ${kind(shape)}`,
      );
    return [...shape, ...this.shape, ...this.event];
  }
}
/** A distribution whose draws are a function of its parameters and of numbers without any. */
export abstract class Reparametrized extends Distribution {
  /** Numbers drawn so that gradients flow to the parameters. */
  abstract rsample(shape?: Shape, options?: SampleOptions): Tensor;
  sample(shape: Shape = [], options: SampleOptions = {}): Tensor {
    return noGrad(() => this.rsample(shape, options));
  }
  /** Uniform numbers strictly between 0 and 1, for a draw. */
  protected uniform(like: Tensor, shape: Shape, options: SampleOptions): Tensor {
    const { dtype, device } = like;
    const least = dtype === 'f64' ? 2 ** -53 : 2 ** -24;
    return rand(this.drawn(shape), { ...options, dtype, device }).clamp(least, 1 - least);
  }
}

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
}

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
function standardGamma(concentration: Tensor, options: SampleOptions): Tensor {
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
const logBeta = (a: Tensor, b: Tensor): Tensor => a.lgamma().add(b.lgamma()).sub(a.add(b).lgamma());

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
  #summed(x: Tensor): Tensor {
    const dims = this.base.shape.slice(this.shape.length).map((_, i) => -1 - i);
    return dims.length > 0 ? x.sum(dims, false) : x;
  }
  get mean(): Tensor {
    return this.base.mean;
  }
  get variance(): Tensor {
    return this.base.variance;
  }
  sample(shape: Shape = [], options: SampleOptions = {}): Tensor {
    return this.base.sample(shape, options);
  }
  /** Numbers drawn so that gradients flow to the parameters, where the distribution has such draws. */
  rsample(shape: Shape = [], options: SampleOptions = {}): Tensor {
    if (!(this.base instanceof Reparametrized))
      throw new UnsupportedError(`Independent: draws of ${this.base.constructor.name} have no gradient`);
    return this.base.rsample(shape, options);
  }
  logProb(x: Parameter): Tensor {
    return this.#summed(this.base.logProb(x));
  }
  entropy(): Tensor {
    return this.#summed(this.base.entropy());
  }
  /** How far another of the same kind is. */
  divergence(from: Independent): Tensor {
    return this.#summed(klDivergence(this.base, from.base));
  }
}

type Kl<D> = (p: D, q: D) => Tensor;
// biome-ignore lint/suspicious/noExplicitAny: a row's function takes two of the row's own kind
type Kind = abstract new (...args: any[]) => Distribution;
const row = <D extends Distribution>(of: abstract new (...args: never[]) => D, kl: Kl<D>): [Kind, Kl<Distribution>] => [
  of as unknown as Kind,
  kl as unknown as Kl<Distribution>,
];
/** A probability times how much its logarithm lies above the other's: 0 where it is 0, infinite where only q is. */
function share(p: Tensor, q: Tensor, apart: Tensor): Tensor {
  const none = p.eq(0);
  return none.where(0, p.mul(none.where(0, q.eq(0).where(Infinity, apart))));
}
const DIVERGENCES = new Map<Kind, Kl<Distribution>>([
  row(Normal, (p, q) => {
    const [mean, scale] = [beside(q.mean, p.mean), beside(q.scale, p.mean)];
    const ratio = p.scale.div(scale).sqr();
    const apart = p.mean.sub(mean).div(scale).sqr();
    return ratio.add(apart).affine(0.5, -0.5).sub(ratio.log().affine(0.5, 0));
  }),
  row(LogNormal, (p, q) => klDivergence(p.normal, q.normal)),
  row(Uniform, (p, q) => {
    const inside = q.low.le(p.low).logicalAnd(q.high.ge(p.high));
    const ratio = q.entropy().sub(p.entropy());
    return inside.where(ratio, ratio.fullLike(Infinity));
  }),
  row(Exponential, (p, q) => {
    const ratio = q.rate.div(p.rate);
    return ratio.sub(ratio.log()).affine(1, -1);
  }),
  row(Laplace, (p, q) => {
    const ratio = p.scale.div(q.scale);
    const apart = p.mean.sub(q.mean).abs();
    return ratio.mul(apart.div(p.scale).neg().exp()).add(apart.div(q.scale)).sub(ratio.log()).affine(1, -1);
  }),
  row(Gamma, (p, q) =>
    q.concentration
      .mul(p.rate.div(q.rate).log())
      .add(q.concentration.lgamma())
      .sub(p.concentration.lgamma())
      .add(p.concentration.sub(q.concentration).mul(p.concentration.digamma()))
      .add(q.rate.sub(p.rate).mul(p.concentration.div(p.rate))),
  ),
  row(Beta, (p, q) => {
    const [a, b, total] = [p.concentration1, p.concentration0, p.concentration1.add(p.concentration0)];
    const [c, d] = [q.concentration1, q.concentration0];
    return logBeta(c, d)
      .sub(logBeta(a, b))
      .add(a.sub(c).mul(a.digamma()))
      .add(b.sub(d).mul(b.digamma()))
      .add(c.add(d).sub(total).mul(total.digamma()));
  }),
  row(Bernoulli, (p, q) => {
    const [no, otherNo] = [p.probs.affine(-1, 1), q.probs.affine(-1, 1)];
    const of1 = share(p.probs, q.probs, q.logits.neg().softplus().sub(p.logits.neg().softplus()));
    return of1.add(share(no, otherNo, q.logits.softplus().sub(p.logits.softplus())));
  }),
  row(Categorical, (p, q) => share(p.probs, q.probs, p.logProbabilities.sub(q.logProbabilities)).sum([-1], false)),
  row(Independent, (p, q) => p.divergence(q)),
]);

/** How far p is from q, E[ln p - ln q] in nats, of two distributions of one kind. */
export function klDivergence(p: Distribution, q: Distribution): Tensor {
  const kl = p?.constructor === q?.constructor ? DIVERGENCES.get(p?.constructor as Kind) : undefined;
  if (kl) return kl(p, q);
  throw new UnsupportedError(
    `klDivergence: of ${p?.constructor.name} and ${q?.constructor.name}; it takes two of one kind: ` +
      [...DIVERGENCES.keys()].map((k) => k.name).join(', '),
  );
}

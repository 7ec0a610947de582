// What distributions have in common, and how their parameters are read.
import { ArgumentError, UnsupportedError } from '../../base/errors.js';
import { broadcastShapes, sameShape, type Shape } from '../../base/shape.js';
import { noGrad } from '../../tensor/autograd.js';
import { rand, type RandomOptions, tensor } from '../../tensor/create.js';
import { innermost } from '../../tensor/levels.js';
import { Tensor } from '../../tensor/tensor.js';

/** Where numbers are drawn from. */
export type SampleOptions = Pick<RandomOptions, 'generator' | 'seed'>;
/** A tensor of parameters, or one number for all. */
export type Parameter = Tensor | number;
export const LOG_2PI = Math.log(2 * Math.PI);

export function kind(x: unknown): string {
  return Array.isArray(x) ? 'a list, of which tensor(list) makes one' : x === null ? 'null' : typeof x;
}
/** Parameters of one shape; numbers have the dtype and the device of the tensors beside them. */
export function parameters(name: string, ...given: readonly Parameter[]): Tensor[] {
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
export const beside = (p: Tensor, x: Tensor): Tensor => (p.rank === 0 && x.rank > 0 ? p.to(x.device).cast(x.dtype) : p);

/** On the host, where looking costs no wait: what no distribution can have is refused. */
export function requireEach(name: string, x: Tensor, fits: (x: Tensor) => Tensor, rule: string): void {
  if ((x.device.name !== 'cpu' && x.device.name !== 'reference') || innermost() || x.size === 0) return;
  const values = x.detach();
  const wrong = fits(values).logicalNot();
  if (wrong.any().item() !== 0)
    throw new ArgumentError(`${name}: ${values.flatten().at(wrong.flatten()).at(0).item()} is not ${rule}`);
}
/** The distance from 1 to the next number: probabilities stay as far from 0 and 1, whose logarithms are infinite. */
export const epsilon = ({ dtype }: Tensor): number =>
  ({ f64: 2 ** -52, f16: 2 ** -10, bf16: 2 ** -7 })[dtype as string] ?? 2 ** -23;
export const requirePositive = (name: string, what: string, x: Tensor): void =>
  requireEach(name, x, (v) => v.gt(0), `a ${what} above 0`);

/** a ln(b), and 0 where a is 0 and b is 0 too; the gradient by a is ln(b) everywhere else. */
export function timesLog(a: Tensor, b: Tensor): Tensor {
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
  /** The likeliest value of each. */
  get mode(): Tensor {
    throw new UnsupportedError(`${this.constructor.name}: its likeliest value is not here`);
  }
  /** The probability of a number up to x. */
  cdf(x: Parameter): Tensor {
    throw new UnsupportedError(`${this.constructor.name}: no cdf is here, at ${kind(x)}`);
  }
  /** The number that this share of all draws stays below: the inverse of cdf. */
  icdf(share: Parameter): Tensor {
    throw new UnsupportedError(`${this.constructor.name}: no icdf is here, at ${kind(share)}`);
  }
  /** The standard deviation of each. */
  get stddev(): Tensor {
    return this.variance.sqrt();
  }
  /** A value to look up, as a tensor like a parameter. */
  protected value(x: Parameter, like: Tensor): Tensor {
    if (x instanceof Tensor) return x;
    if (typeof x === 'number') return made(x, like);
    throw new ArgumentError(`${this.constructor.name}: a value to look up is a tensor or a number, not ${kind(x)}`);
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

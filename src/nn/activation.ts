// Activations as layers, and by the names that configuration files use.
import { ArgumentError } from '../base/errors.js';
import { requireOptions } from '../ops/kernel-row.js';
import type { Tensor } from '../tensor/tensor.js';
import { builderOf, MAKE_OPTIONS, type MakeOptions } from './fresh.js';
import { constant } from './init.js';
import { Layer } from './module.js';
import type { VarBuilder } from './var-builder.js';

const LAPLACE_WIDTH = 0.282095 * Math.SQRT2;
type F = (x: Tensor, parameter?: number) => Tensor;
/** 'gelu' is the exact one, by the error function; Tensor.gelu is the tanh form, as in Candle. */
const BY_NAME = {
  gelu: (x) => x.geluErf(),
  gelu_new: (x) => x.gelu(),
  gelu_pytorch_tanh: (x) => x.gelu(),
  gelu_fast: (x) => x.gelu(),
  gelu_10: (x) => x.geluErf().clamp(-10, 10),
  quick_gelu: (x) => x.mul(x.affine(1.702, 0).sigmoid()),
  relu: (x) => x.relu(),
  relu2: (x) => x.relu2(),
  relu6: (x) => x.relu6(),
  silu: (x) => x.silu(),
  swish: (x) => x.silu(),
  sigmoid: (x) => x.sigmoid(),
  hard_sigmoid: (x) => x.hardSigmoid(),
  hard_swish: (x) => x.hardSwish(),
  swiglu: (x) => x.swiglu(),
  geglu: (x) => x.geglu(),
  mish: (x) => x.mish(),
  elu: (x, alpha = 1) => x.elu(alpha),
  selu: (x) => x.selu(),
  leaky_relu: (x, slope = 0.01) => x.leakyRelu(slope),
  // An error function about 0.707107, as wide as 0.282095: MEGA's.
  laplace: (x) =>
    x
      .affine(1 / LAPLACE_WIDTH, -0.707107 / LAPLACE_WIDTH)
      .erf()
      .affine(0.5, 0.5),
  tanh: (x) => x.tanh(),
  softplus: (x) => x.softplus(),
  softsign: (x) => x.softsign(),
  identity: (x) => x,
  linear: (x) => x,
} satisfies Record<string, F>;
/** A name that activation() knows. */
export type ActivationName = keyof typeof BY_NAME;
/** All names that activation() knows. */
export const ACTIVATIONS = Object.keys(BY_NAME) as ActivationName[];

const ALIASES: Readonly<Record<string, ActivationName>> = {
  newgelu: 'gelu_new',
  gelu_python: 'gelu',
  gelu_accurate: 'gelu_new',
  gelu_python_tanh: 'gelu_new',
  gelupytorchtanh: 'gelu_pytorch_tanh',
  hardsigmoid: 'hard_sigmoid',
  hardswish: 'hard_swish',
  leakyrelu: 'leaky_relu',
};

/** Whether activation() knows a name. */
export const isActivation = (name: string): boolean => Object.hasOwn(ALIASES, name) || Object.hasOwn(BY_NAME, name);

/** The function of a name, with its parameter where it has one. */
export function activation(name: string, parameter?: number): (x: Tensor) => Tensor {
  const key = Object.hasOwn(ALIASES, name) ? ALIASES[name] : name;
  if (!Object.hasOwn(BY_NAME, key))
    throw new ArgumentError(`activation: unknown name ${JSON.stringify(name)}; known are ${ACTIVATIONS.join(', ')}`);
  const f: F = BY_NAME[key as ActivationName];
  return (x) => f(x, parameter);
}

/** An activation by the name that configuration files use. */
export class Activation extends Layer {
  /** The op's name, as the layer is shown: 'ReLU'. */
  readonly name: string;
  readonly #f: (x: Tensor) => Tensor;
  constructor(name: string, parameter?: number) {
    super();
    this.name = name;
    this.#f = activation(name, parameter);
  }
  override describe(): string {
    return this.name;
  }
  forward(x: Tensor): Tensor {
    return this.#f(x);
  }
}

/** max(x, 0). */
export class ReLU extends Layer {
  forward(x: Tensor): Tensor {
    return x.relu();
  }
}
/** x between 0 and 6. */
export class ReLU6 extends Layer {
  forward(x: Tensor): Tensor {
    return x.relu6();
  }
}
/** x times the normal distribution's share below x; exact, or by its tanh form with { approximate: 'tanh' }. */
export class GELU extends Layer {
  /** 'none': by the error function, exact; 'tanh': the usual approximation. */
  readonly approximate: 'none' | 'tanh';
  constructor(
    options: {
      /** 'none' (the default): by the error function, exact; 'tanh': the usual approximation. */
      readonly approximate?: 'none' | 'tanh';
    } = {},
  ) {
    super();
    requireOptions('GELU', options, ['approximate']);
    this.approximate = options.approximate ?? 'none';
    if (this.approximate !== 'none' && this.approximate !== 'tanh')
      throw new ArgumentError(`GELU: approximate ${JSON.stringify(this.approximate)}; known are none, tanh`);
  }
  override describe(): string {
    return this.approximate === 'none' ? '' : this.approximate;
  }
  forward(x: Tensor): Tensor {
    return this.approximate === 'tanh' ? x.gelu() : x.geluErf();
  }
}
/** x * sigmoid(x). */
export class SiLU extends Layer {
  forward(x: Tensor): Tensor {
    return x.silu();
  }
}
/** 1 / (1 + e^-x). */
export class Sigmoid extends Layer {
  forward(x: Tensor): Tensor {
    return x.sigmoid();
  }
}
/** The hyperbolic tangent. */
export class Tanh extends Layer {
  forward(x: Tensor): Tensor {
    return x.tanh();
  }
}
/** x * tanh(softplus(x)). */
export class Mish extends Layer {
  forward(x: Tensor): Tensor {
    return x.mish();
  }
}
/** ELU with fixed constants that keep mean and variance. */
export class SELU extends Layer {
  forward(x: Tensor): Tensor {
    return x.selu();
  }
}
/** ln(1 + e^(beta x)) / beta; x itself where beta x is above the threshold. */
export class Softplus extends Layer {
  /** How sharp the bend at 0 is. */
  readonly beta: number;
  /** Where the curve counts as its straight line. */
  readonly threshold: number;
  constructor(beta = 1, threshold = 20) {
    super();
    if (!(Number.isFinite(beta) && beta !== 0))
      throw new ArgumentError(`Softplus: takes beta, a number other than 0, and a threshold: new Softplus(1, 20)`);
    this.beta = beta;
    this.threshold = threshold;
  }
  override describe(): string {
    return this.beta === 1 ? '' : String(this.beta);
  }
  forward(x: Tensor): Tensor {
    if (this.beta === 1 && this.threshold === 20) return x.softplus();
    const steep = x.mul(this.beta);
    return steep.gt(this.threshold).where(x, steep.softplus().div(this.beta));
  }
}
/** x / (1 + |x|). */
export class Softsign extends Layer {
  forward(x: Tensor): Tensor {
    return x.softsign();
  }
}
/** A sigmoid of straight lines. */
export class Hardsigmoid extends Layer {
  forward(x: Tensor): Tensor {
    return x.hardSigmoid();
  }
}
/** x times a sigmoid of straight lines. */
export class Hardswish extends Layer {
  forward(x: Tensor): Tensor {
    return x.hardSwish();
  }
}
/** ln(sigmoid(x)). */
export class LogSigmoid extends Layer {
  forward(x: Tensor): Tensor {
    return x.logSigmoid();
  }
}
/** x where it is positive, alpha (e^x - 1) elsewhere. */
export class ELU extends Layer {
  /** What large negative inputs approach, negated. */
  readonly alpha: number;
  constructor(alpha = 1) {
    super();
    this.alpha = alpha;
  }
  override describe(): string {
    return String(this.alpha);
  }
  forward(x: Tensor): Tensor {
    return x.elu(this.alpha);
  }
}
/** x where it is positive, slope * x elsewhere. */
export class LeakyReLU extends Layer {
  /** What negative inputs are multiplied by. */
  readonly slope: number;
  constructor(slope = 0.01) {
    super();
    this.slope = slope;
  }
  override describe(): string {
    return String(this.slope);
  }
  forward(x: Tensor): Tensor {
    return x.leakyRelu(this.slope);
  }
}
/** x where it is positive, alpha (e^(x / alpha) - 1) elsewhere. */
export class CELU extends ELU {
  override forward(x: Tensor): Tensor {
    return x.celu(this.alpha);
  }
}
/** x between two bounds. */
export class Hardtanh extends Layer {
  /** What smaller inputs become. */
  readonly min: number;
  /** What larger inputs become. */
  readonly max: number;
  constructor(min = -1, max = 1) {
    super();
    if (!(min < max)) throw new ArgumentError(`Hardtanh: ${min} is not below ${max}`);
    this.min = min;
    this.max = max;
  }
  override describe(): string {
    return `${this.min} to ${this.max}`;
  }
  forward(x: Tensor): Tensor {
    return x.hardtanh(this.min, this.max);
  }
}
/** x, but 0 for |x| up to lambda. */
export class Hardshrink extends Layer {
  /** Up to where inputs become 0. */
  readonly lambda: number;
  constructor(lambda = 0.5) {
    super();
    this.lambda = lambda;
  }
  override describe(): string {
    return String(this.lambda);
  }
  forward(x: Tensor): Tensor {
    return x.hardshrink(this.lambda);
  }
}
/** x moved towards 0 by lambda, 0 for |x| up to it. */
export class Softshrink extends Hardshrink {
  override forward(x: Tensor): Tensor {
    return x.softshrink(this.lambda);
  }
}
/** x - tanh(x). */
export class Tanhshrink extends Layer {
  forward(x: Tensor): Tensor {
    return x.tanhshrink();
  }
}
/** x where it is above a bound, else a value. */
export class Threshold extends Layer {
  /** What inputs must exceed. */
  readonly bound: number;
  /** What others become. */
  readonly value: number;
  constructor(bound: number, value: number) {
    super();
    if (typeof bound !== 'number' || typeof value !== 'number')
      throw new ArgumentError('Threshold: takes a bound and the value of what is not above it, two numbers');
    this.bound = bound;
    this.value = value;
  }
  override describe(): string {
    return `${this.bound}, ${this.value}`;
  }
  forward(x: Tensor): Tensor {
    return x.threshold(this.bound, this.value);
  }
}
/** Positive numbers that sum to 1 along a dimension. */
export class Softmax extends Layer {
  /** The dimension whose elements sum to one. */
  readonly dim: number;
  constructor(dim = -1) {
    super();
    this.dim = dim;
  }
  override describe(): string {
    return `dim ${this.dim}`;
  }
  forward(x: Tensor): Tensor {
    return x.softmax(this.dim);
  }
}
/** The logarithm of a softmax, stable. */
export class LogSoftmax extends Softmax {
  override forward(x: Tensor): Tensor {
    return x.logSoftmax(this.dim);
  }
}
/** Positive numbers that sum to 1 along a dimension, the larger the smaller the input. */
export class Softmin extends Softmax {
  override forward(x: Tensor): Tensor {
    return x.softmin(this.dim);
  }
}
/** The first half of a dimension times the sigmoid of the second. */
export class GLU extends Softmax {
  override forward(x: Tensor): Tensor {
    return x.glu(this.dim);
  }
}

/** A learned slope for negative values, one or one per channel. */
export class PReLU extends Layer {
  /** The slope for negative inputs: (1) for all, or one for each channel. */
  weight: Tensor;
  constructor(
    channels?: number,
    options?: MakeOptions & {
      /** What slopes begin with; default 0.25. */
      readonly init?: number;
    },
  );
  constructor(weight: Tensor);
  constructor(first: number | Tensor = 1, options: MakeOptions & { readonly init?: number } = {}) {
    super();
    requireOptions('PReLU', options, ['init', ...MAKE_OPTIONS]);
    this.weight =
      typeof first === 'number' ? builderOf(options).get([first], 'weight', constant(options.init ?? 0.25)) : first;
  }
  override describe(): string {
    return String(this.weight.size);
  }
  forward(x: Tensor): Tensor {
    return x.prelu(this.weight);
  }
}
/** A PReLU of a builder, in Candle's order of arguments. */
export const prelu = (channels: number | undefined, vb: VarBuilder): PReLU => new PReLU(channels ?? 1, { from: vb });

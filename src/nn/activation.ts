// Activations by the names that configuration files use.
import { ArgumentError } from '../base/errors.js';
import type { Tensor } from '../tensor/tensor.js';
import { Layer } from './module.js';

type F = (x: Tensor, parameter?: number) => Tensor;
/** 'gelu' is the exact one, by the error function; Tensor.gelu is the tanh form, as in Candle. */
const BY_NAME = {
  gelu: (x) => x.geluErf(),
  gelu_new: (x) => x.gelu(),
  gelu_pytorch_tanh: (x) => x.gelu(),
  gelu_fast: (x) => x.gelu(),
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
  tanh: (x) => x.tanh(),
  softplus: (x) => x.softplus(),
  softsign: (x) => x.softsign(),
  identity: (x) => x,
  linear: (x) => x,
} satisfies Record<string, F>;
export type ActivationName = keyof typeof BY_NAME;
export const ACTIVATIONS = Object.keys(BY_NAME) as ActivationName[];

const ALIASES: Readonly<Record<string, ActivationName>> = {
  newgelu: 'gelu_new',
  gelupytorchtanh: 'gelu_pytorch_tanh',
  hardsigmoid: 'hard_sigmoid',
  hardswish: 'hard_swish',
  leakyrelu: 'leaky_relu',
};

export function activation(name: string, parameter?: number): (x: Tensor) => Tensor {
  const key = Object.hasOwn(ALIASES, name) ? ALIASES[name] : name;
  if (!Object.hasOwn(BY_NAME, key))
    throw new ArgumentError(`activation: unknown name ${JSON.stringify(name)}; known are ${ACTIVATIONS.join(', ')}`);
  const f: F = BY_NAME[key as ActivationName];
  return (x) => f(x, parameter);
}

export class Activation extends Layer {
  readonly name: string;
  readonly #f: (x: Tensor) => Tensor;
  constructor(name: string, parameter?: number) {
    super();
    this.name = name;
    this.#f = activation(name, parameter);
  }
  forward(x: Tensor): Tensor {
    return this.#f(x);
  }
}

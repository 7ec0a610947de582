// How new parameters begin: constants, normal and uniform numbers, and Kaiming's and Xavier's choices of their spread.
import type { DType } from '../base/dtype.js';
import { ArgumentError } from '../base/errors.js';
import type { Shape } from '../base/shape.js';
import { full, rand, randn } from '../tensor/create.js';
import type { Device } from '../tensor/device.js';
import type { Generator } from '../tensor/random.js';
import type { Tensor } from '../tensor/tensor.js';

/** What follows the layer that is initialised; `{ gain }` gives the factor itself. */
export type NonLinearity = 'linear' | 'relu' | 'sigmoid' | 'tanh' | 'selu' | { readonly gain: number };
/** How a parameter begins; made by `constant`, `normal`, `uniform`, `kaiming` and `xavier`. */
export type Init =
  | { readonly kind: 'const'; readonly value: number }
  | { readonly kind: 'normal'; readonly mean: number; readonly std: number }
  | { readonly kind: 'uniform'; readonly lo: number; readonly up: number }
  | {
      readonly kind: 'kaiming';
      readonly dist: 'normal' | 'uniform';
      readonly fan: 'in' | 'out';
      readonly nonLinearity: NonLinearity;
    }
  | { readonly kind: 'xavier'; readonly dist: 'normal' | 'uniform'; readonly gain: number };

const GAINS: Readonly<Record<Exclude<NonLinearity, object>, number>> = {
  linear: 1,
  sigmoid: 1,
  relu: Math.SQRT2,
  tanh: 5 / 3,
  selu: 0.75,
};
/** The factor by which weights must be larger before a nonlinearity: sqrt(2) for relu, 5/3 for tanh. */
export const gainOf = (n: NonLinearity): number => (typeof n === 'string' ? GAINS[n] : n.gain);

/** Every element is this value. */
export const constant = (value: number): Init => ({ kind: 'const', value });
/** Zeros. */
export const ZERO = constant(0);
/** Ones. */
export const ONE = constant(1);
/** Normal numbers; default mean 0, standard deviation 1. */
export const normal = (mean = 0, std = 1): Init => ({ kind: 'normal', mean, std });
/** Uniform numbers from `lo` to `up`; default -1 to 1. */
export const uniform = (lo = -1, up = 1): Init => ({ kind: 'uniform', lo, up });
/**
 * Kaiming's choice: a spread of gain / sqrt(fan), so that signals keep their size through layers like this. Default
 * uniform, for relu, by the number of inputs.
 */
export const kaiming = (
  dist: 'normal' | 'uniform' = 'uniform',
  nonLinearity: NonLinearity = 'relu',
  fan: 'in' | 'out' = 'in',
): Init => ({ kind: 'kaiming', dist, fan, nonLinearity });
/** Xavier's choice: a spread of gain * sqrt(2 / (inputs + outputs)). Default uniform. */
export const xavier = (dist: 'normal' | 'uniform' = 'uniform', gain = 1): Init => ({ kind: 'xavier', dist, gain });
/** Kaiming's choice from uniform numbers, for relu. */
export const KAIMING_UNIFORM = kaiming('uniform');
/** Kaiming's choice from normal numbers, for relu. */
export const KAIMING_NORMAL = kaiming('normal');

/** Inputs and outputs of a unit: weights are (out, in, ...space). */
export function fans(shape: Shape): { in: number; out: number } {
  if (shape.length < 1) throw new ArgumentError('init: a rank-0 tensor has no fan');
  const space = shape.slice(2).reduce((a, b) => a * b, 1);
  return { in: (shape[1] ?? shape[0]) * space, out: shape[0] * space };
}

/** Where and as what a fresh tensor is made. */
export interface InitOptions {
  /** Default f32. */
  readonly dtype?: DType;
  /** Default `Device.default`. */
  readonly device?: Device;
  /** The stream that random numbers come from; default the device's own. */
  readonly generator?: Generator;
}

/** A tensor of fresh values; drawn in f32 and cast, so that every dtype begins at the same numbers. */
export function initialise(init: Init, shape: Shape, options: InitOptions = {}): Tensor {
  const { device, generator } = options;
  const dtype = options.dtype ?? 'f32';
  const drawn = dtype === 'f64' ? 'f64' : 'f32';
  const spread = (std: number, dist: 'normal' | 'uniform'): Tensor =>
    dist === 'normal'
      ? randn(shape, { std, dtype: drawn, device, generator })
      : rand(shape, { lo: -std * Math.sqrt(3), up: std * Math.sqrt(3), dtype: drawn, device, generator });
  const make = (): Tensor => {
    switch (init.kind) {
      case 'const':
        return full(shape, init.value, { dtype: drawn, device });
      case 'normal':
        return randn(shape, { mean: init.mean, std: init.std, dtype: drawn, device, generator });
      case 'uniform':
        return rand(shape, { lo: init.lo, up: init.up, dtype: drawn, device, generator });
      case 'kaiming':
        return spread(gainOf(init.nonLinearity) / Math.sqrt(fans(shape)[init.fan]), init.dist);
      case 'xavier':
        return spread(init.gain * Math.sqrt(2 / (fans(shape).in + fans(shape).out)), init.dist);
    }
    return init satisfies never;
  };
  return make().cast(dtype);
}

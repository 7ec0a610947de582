// How new parameters begin: constants, normal and uniform numbers, and Kaiming's and Xavier's choices of their spread.
import type { DType } from '../base/dtype.js';
import { ArgumentError } from '../base/errors.js';
import { formatShape, type Shape, sizeOf } from '../base/shape.js';
import { erf } from '../base/special.js';
import { noGrad } from '../tensor/autograd.js';
import { full, rand, randn } from '../tensor/create.js';
import type { Device } from '../tensor/device.js';
import type { Generator } from '../tensor/random.js';
import type { Tensor } from '../tensor/tensor.js';

/** What follows the layer that is initialised; `{ gain }` gives the factor itself. */
export type NonLinearity = 'linear' | 'relu' | 'sigmoid' | 'tanh' | 'selu' | { readonly gain: number };
/** How a parameter begins; made by `constant`, `normal`, `truncatedNormal`, `uniform`, `kaiming`, `xavier`, `orthogonal`. */
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
  | { readonly kind: 'xavier'; readonly dist: 'normal' | 'uniform'; readonly gain: number }
  | {
      readonly kind: 'truncated';
      readonly mean: number;
      readonly std: number;
      readonly lo: number;
      readonly up: number;
    }
  | { readonly kind: 'orthogonal'; readonly gain: number };

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
/** Normal numbers, of which those below `lo` and above `up` are left out; default those from -2 to 2. */
export function truncatedNormal(mean = 0, std = 1, lo = -2, up = 2): Init {
  if (!(std > 0 && lo < up))
    throw new ArgumentError(
      `truncatedNormal: takes a deviation above 0 and bounds that rise, not ${std}, ${lo}, ${up}`,
    );
  return { kind: 'truncated', mean, std, lo, up };
}
/**
 * Rows, or columns where there are fewer of them, that are orthogonal to each other and `gain` long: signals keep their
 * length. Of a convolution's kernel, by output channels.
 */
export const orthogonal = (gain = 1): Init => ({ kind: 'orthogonal', gain });
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

/** A kernel as a matrix, never with fewer rows than columns. */
function flattened(shape: Shape): [number, number] {
  if (shape.length < 2) throw new ArgumentError(`orthogonal: takes two dimensions and more, not ${formatShape(shape)}`);
  const rest = sizeOf(shape.slice(1));
  return shape[0] < rest ? [rest, shape[0]] : [shape[0], rest];
}
function orthogonalRows(shape: Shape, drawn: Tensor): Tensor {
  return noGrad(() => {
    const [q, r] = drawn.qr();
    // The signs of R's diagonal make every rotation as likely as every other.
    const even = q.mul(r.diagonal().ge(0).where(1, -1));
    return (shape[0] < even.dim(0) ? even.t() : even).reshape(shape);
  });
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
      case 'truncated': {
        const { mean, std, lo, up } = init;
        const share = (x: number): number => (1 + erf((x - mean) / (std * Math.SQRT2))) / 2;
        const [least, most] = [share(lo), share(up)];
        const u = rand(shape, { lo: 2 * least - 1, up: 2 * most - 1, dtype: drawn, device, generator });
        return u
          .erfinv()
          .affine(std * Math.SQRT2, mean)
          .clamp(lo, up);
      }
      case 'orthogonal':
        return orthogonalRows(shape, randn(flattened(shape), { dtype: drawn, device, generator })).affine(init.gain, 0);
    }
    return init satisfies never;
  };
  return make().cast(dtype);
}

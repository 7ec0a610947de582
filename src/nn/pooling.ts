// Pools as layers: the largest or the mean of windows over lines, pictures and volumes.
import { requireWhole } from '../ops/kernel-row.js';
import { POOL_OPTIONS, poolArguments } from '../ops/window.js';
import type { Tensor } from '../tensor/tensor.js';
import { refuseMore } from './answers.js';
import { Layer } from './module.js';

/** One number for every dimension, or one each. */
type Sizes = number | readonly number[];
/** How windows lie. */
export interface PoolLayerOptions {
  /** Steps between windows; default their size. */
  readonly stride?: Sizes;
  /** Elements added on both sides; default 0. */
  readonly padding?: Sizes;
  /** Windows that only begin inside count too; default false. */
  readonly ceilMode?: boolean;
}
/** The same for maxima. */
export interface MaxPoolLayerOptions extends PoolLayerOptions {
  /** Distance between the elements of a window; default 1. */
  readonly dilation?: Sizes;
}
/** The same for means. */
export interface AvgPoolLayerOptions extends PoolLayerOptions {
  /** Whether means count what padding added; default true. */
  readonly countIncludePad?: boolean;
  /** What the sum of a window is divided by, instead of the number of its elements. */
  readonly divisorOverride?: number;
}
type AnyOptions = MaxPoolLayerOptions & AvgPoolLayerOptions;
const sizeText = (s: Sizes): string => (typeof s === 'number' ? String(s) : s.join('x'));
const call = (x: Tensor, op: string, ...args: unknown[]): Tensor =>
  (x as unknown as Record<string, (...a: unknown[]) => Tensor>)[op](...args);

abstract class Pool extends Layer {
  /** The window: one number for all dimensions, or one each. */
  readonly size: Sizes;
  /** How far windows move on; default: their own size. */
  readonly stride: Sizes;
  /** Padding, dilation and what else was given. */
  readonly options: Omit<AnyOptions, 'stride'>;
  protected abstract readonly op: string;
  constructor(
    kind: keyof typeof POOL_OPTIONS,
    rank: number,
    size: Sizes,
    stride: Sizes | AnyOptions | undefined,
    options: Sizes | AnyOptions | undefined,
    more: readonly unknown[],
  ) {
    super();
    refuseMore(new.target.name, more, 'a size, a stride, and padding or an object of options');
    const given = poolArguments<AnyOptions>(new.target.name, rank, POOL_OPTIONS[kind], size, stride, options);
    const short = (s: readonly number[]): Sizes => (s.every((v) => v === s[0]) ? s[0] : s);
    this.size = short(given.kernel);
    this.stride = short(given.stride);
    this.options = given.options;
  }
  override describe(): string {
    const more = Object.entries(this.options).map(([key, v]) => `${key} ${Array.isArray(v) ? v.join('x') : String(v)}`);
    return [sizeText(this.size), `stride ${sizeText(this.stride)}`, ...more].join(', ');
  }
  forward(x: Tensor): Tensor {
    return call(x, this.op, this.size, this.stride, this.options);
  }
}
/** The largest of windows of (batch, channels, length). */
export class MaxPool1d extends Pool {
  protected readonly op = 'maxPool1d';
  constructor(
    size: Sizes,
    stride?: Sizes | MaxPoolLayerOptions,
    options?: Sizes | MaxPoolLayerOptions,
    ...more: never[]
  ) {
    super('max', 1, size, stride, options, more);
  }
}
/** The largest of windows of (batch, channels, height, width). */
export class MaxPool2d extends Pool {
  protected readonly op = 'maxPool2d';
  constructor(
    size: Sizes,
    stride?: Sizes | MaxPoolLayerOptions,
    options?: Sizes | MaxPoolLayerOptions,
    ...more: never[]
  ) {
    super('max', 2, size, stride, options, more);
  }
}
/** The largest of windows of (batch, channels, depth, height, width). */
export class MaxPool3d extends Pool {
  protected readonly op = 'maxPool3d';
  constructor(
    size: Sizes,
    stride?: Sizes | MaxPoolLayerOptions,
    options?: Sizes | MaxPoolLayerOptions,
    ...more: never[]
  ) {
    super('max', 3, size, stride, options, more);
  }
}
/** The mean of windows of (batch, channels, length). */
export class AvgPool1d extends Pool {
  protected readonly op = 'avgPool1d';
  constructor(
    size: Sizes,
    stride?: Sizes | AvgPoolLayerOptions,
    options?: Sizes | AvgPoolLayerOptions,
    ...more: never[]
  ) {
    super('avg', 1, size, stride, options, more);
  }
}
/** The mean of windows of (batch, channels, height, width). */
export class AvgPool2d extends Pool {
  protected readonly op = 'avgPool2d';
  constructor(
    size: Sizes,
    stride?: Sizes | AvgPoolLayerOptions,
    options?: Sizes | AvgPoolLayerOptions,
    ...more: never[]
  ) {
    super('avg', 2, size, stride, options, more);
  }
}
/** The mean of windows of (batch, channels, depth, height, width). */
export class AvgPool3d extends Pool {
  protected readonly op = 'avgPool3d';
  constructor(
    size: Sizes,
    stride?: Sizes | AvgPoolLayerOptions,
    options?: Sizes | AvgPoolLayerOptions,
    ...more: never[]
  ) {
    super('avg', 3, size, stride, options, more);
  }
}

abstract class AdaptivePool extends Layer {
  /** The size of what comes out, whatever goes in. */
  readonly size: Sizes;
  protected abstract readonly op: string;
  constructor(size: Sizes) {
    super();
    requireWhole(new.target.name, 'size', typeof size === 'number' ? [size] : size, 1);
    this.size = size;
  }
  override describe(): string {
    return sizeText(this.size);
  }
  forward(x: Tensor): Tensor {
    return call(x, this.op, this.size);
  }
}
/** Means of as many windows as the output has places: (batch, channels, length) to (..., size). */
export class AdaptiveAvgPool1d extends AdaptivePool {
  protected readonly op = 'adaptiveAvgPool1d';
}
/** The same for (batch, channels, height, width). */
export class AdaptiveAvgPool2d extends AdaptivePool {
  protected readonly op = 'adaptiveAvgPool2d';
}
/** The same for (batch, channels, depth, height, width). */
export class AdaptiveAvgPool3d extends AdaptivePool {
  protected readonly op = 'adaptiveAvgPool3d';
}
/** Maxima of as many windows as the output has places: (batch, channels, length) to (..., size). */
export class AdaptiveMaxPool1d extends AdaptivePool {
  protected readonly op = 'adaptiveMaxPool1d';
}
/** The same for (batch, channels, height, width). */
export class AdaptiveMaxPool2d extends AdaptivePool {
  protected readonly op = 'adaptiveMaxPool2d';
}
/** The same for (batch, channels, depth, height, width). */
export class AdaptiveMaxPool3d extends AdaptivePool {
  protected readonly op = 'adaptiveMaxPool3d';
}

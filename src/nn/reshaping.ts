// Layers without parameters that rearrange: flatten, unflatten, pad, shuffle pixels, resize.
import { ArgumentError, ShapeError } from '../base/errors.js';
import { formatShape } from '../base/shape.js';
import type { PadMode } from '../ops/functional.js';
import { type InterpolateOptions, requireMode } from '../ops/image.js';
import { requireOptions, requireWhole } from '../ops/kernel-row.js';
import type { Sizes } from '../ops/window.js';
import type { Tensor } from '../tensor/tensor.js';
import { Layer } from './module.js';

/** What comes in goes out. */
export class Identity extends Layer {
  forward(x: Tensor): Tensor {
    return x;
  }
}
/** Dimensions from `start` to `end` (inclusive) joined into one; as made, all but the batch. */
export class Flatten extends Layer {
  /** The first dimension that is joined; default 1, so that batches stay. */
  readonly start: number;
  /** The last dimension that is joined; default -1. */
  readonly end: number;
  constructor(start = 1, end = -1) {
    super();
    this.start = start;
    this.end = end;
  }
  override describe(): string {
    return this.start === 1 && this.end === -1 ? '' : `${this.start}, ${this.end}`;
  }
  forward(x: Tensor): Tensor {
    return x.flatten(this.start, this.end);
  }
}
/** One dimension split into several; one of the sizes may be -1. */
export class Unflatten extends Layer {
  /** The dimension that is divided. */
  readonly dim: number;
  /** What it is divided into; one of them may be -1. */
  readonly sizes: readonly number[];
  constructor(dim: number, sizes: readonly number[]) {
    super();
    this.dim = dim;
    this.sizes = [...sizes];
  }
  override describe(): string {
    return `${this.dim}, ${formatShape(this.sizes)}`;
  }
  forward(x: Tensor): Tensor {
    const at = this.dim < 0 ? this.dim + x.rank : this.dim;
    if (!Number.isInteger(at) || at < 0 || at >= x.rank)
      throw new ShapeError(`Unflatten: dimension ${this.dim} is out of range for ${formatShape(x.shape)}`);
    return x.unflatten(at, this.sizes);
  }
}

/** Elements added around: [before, after] pairs, the last dimension first, or one number for `dimensions` of them. */
export class Pad extends Layer {
  /** Elements added: [before, after] of the last dimension, then of the one before it, as in PyTorch. */
  readonly pads: readonly number[];
  /** What is added: a constant, or the tensor's own elements mirrored, repeated or wrapped around. */
  readonly mode: PadMode;
  /** The constant, where the mode is 'constant'. */
  readonly value: number;
  constructor(pads: readonly number[], mode: PadMode = 'constant', value = 0) {
    super();
    if (pads.length % 2 !== 0)
      throw new ArgumentError(`Pad: ${formatShape(pads)} is not a list of [before, after] pairs`);
    this.pads = [...pads];
    this.mode = mode;
    this.value = value;
  }
  override describe(): string {
    return `${formatShape(this.pads)}, ${this.mode === 'constant' ? this.value : this.mode}`;
  }
  forward(x: Tensor): Tensor {
    return x.padMode(this.pads, this.mode, this.value);
  }
}
function around(size: number | readonly number[], dimensions: number): readonly number[] {
  if (typeof size !== 'number' && !Array.isArray(size))
    throw new ArgumentError(`a pad is one width, or a list of ${2 * dimensions} of them, not ${typeof size}`);
  return typeof size === 'number' ? Array.from({ length: 2 * dimensions }, () => size) : size;
}
/** Zeros around pictures: one width, or [left, right, top, bottom]. */
export class ZeroPad2d extends Pad {
  constructor(size: number | readonly number[]) {
    super(around(size, 2));
  }
}
/** Pictures reflected at their edges: one width, or [left, right, top, bottom]. */
export class ReflectionPad2d extends Pad {
  constructor(size: number | readonly number[]) {
    super(around(size, 2), 'reflect');
  }
}
/** Edges of pictures repeated: one width, or [left, right, top, bottom]. */
export class ReplicationPad2d extends Pad {
  constructor(size: number | readonly number[]) {
    super(around(size, 2), 'replicate');
  }
}

/** (batch, channels r r, height, width) to (batch, channels, height r, width r). */
export class PixelShuffle extends Layer {
  /** How many times larger height and width become; channels become factor^2 times fewer. */
  readonly factor: number;
  constructor(factor: number) {
    super();
    requireWhole(new.target.name, 'factor', [factor], 1);
    this.factor = factor;
  }
  override describe(): string {
    return String(this.factor);
  }
  forward(x: Tensor): Tensor {
    return x.pixelShuffle(this.factor);
  }
}
/** (batch, channels, height r, width r) to (batch, channels r r, height, width). */
export class PixelUnshuffle extends PixelShuffle {
  override forward(x: Tensor): Tensor {
    return x.pixelUnshuffle(this.factor);
  }
}

/** How lines, pictures and volumes are made larger or smaller: `interpolate`'s options, but for its smoothing. */
export type UpsampleOptions = Omit<InterpolateOptions, 'antialias'>;
/** (batch, channels, ...sizes) at other sizes, given as such or as how many times as large they become. */
export class Upsample extends Layer {
  /** Sizes or factors and the mode, as `interpolate` takes them. */
  readonly options: UpsampleOptions;
  constructor(options: UpsampleOptions) {
    super();
    requireOptions('Upsample', options, ['size', 'scale', 'mode', 'alignCorners']);
    if ((options.size === undefined) === (options.scale === undefined))
      throw new ArgumentError('Upsample: give either { size } or { scale }');
    requireMode('Upsample', options);
    this.options = options;
  }
  override describe(): string {
    return Object.entries(this.options)
      .map(([key, v]) => `${key} ${String(v)}`)
      .join(', ');
  }
  forward(x: Tensor): Tensor {
    const { mode = 'nearest', alignCorners = false } = this.options;
    const to = this.#pictureSize(x);
    return to && mode === 'bilinear' ? x.interpolate({ size: to, mode, alignCorners }) : x.interpolate(this.options);
  }
  /** The size of pictures that two kernels reach: a given one, or whole multiples, where steps are the scale's. */
  #pictureSize({ shape }: Tensor): readonly [number, number] | undefined {
    const { size, scale } = this.options;
    const each = (of: Sizes, i: number): number => (typeof of === 'number' ? of : of[i]);
    const [height, width] = [0, 1].map((i) =>
      size === undefined ? shape[i + 2] * each(scale as Sizes, i) : each(size, i),
    );
    return shape.length === 4 && Number.isInteger(height) && Number.isInteger(width) ? [height, width] : undefined;
  }
}
/** Channels of several groups dealt out in turn. */
export class ChannelShuffle extends Layer {
  /** How many groups the channels stand in. */
  readonly groups: number;
  constructor(groups: number) {
    super();
    requireWhole('ChannelShuffle', 'groups', [groups], 1);
    this.groups = groups;
  }
  override describe(): string {
    return String(this.groups);
  }
  forward(x: Tensor): Tensor {
    return x.channelShuffle(this.groups);
  }
}

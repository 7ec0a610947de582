// Norms as layers: over features, root mean squares, groups, single examples, batches.
import { ArgumentError, ShapeError } from '../base/errors.js';
import { formatShape, said, type Shape, sizeOf } from '../base/shape.js';
import { requireOptions, requireWhole } from '../ops/kernel-row.js';
import type { LocalResponseNormOptions } from '../ops/layer-names.js';
import { goesOverPlanes } from '../ops/plane-norm.js';
import { noGrad } from '../tensor/autograd.js';
import { zeros } from '../tensor/create.js';
import { keep } from '../tensor/scope.js';
import type { Tensor } from '../tensor/tensor.js';
import { builderOf, MAKE_OPTIONS, type MakeOptions } from './fresh.js';
import { ONE, ZERO } from './init.js';
import { Layer } from './module.js';
import type { VarBuilder } from './var-builder.js';

/** What is added to a variance; checked here, since a wrong value would otherwise fail only where the layer is used. */
function epsOf(layer: string, eps: unknown): number {
  if (typeof eps === 'number' && eps >= 0 && eps < Infinity) return eps;
  throw new ArgumentError(`${layer}: eps ${said(eps)} is not a finite number from 0`);
}

/** How a norm over features is computed. */
export interface NormConfig {
  /** Added to the variance; default 1e-5. */
  readonly eps?: number;
  /** Subtract the mean; false makes it a root-mean-square norm. */
  readonly removeMean?: boolean;
  /** Whether there are weights and biases; default true. */
  readonly affine?: boolean;
}
/** Options of a layer norm that is made by its sizes. */
export interface LayerNormOptions extends NormConfig, MakeOptions {
  /** Whether there is a bias beside the weight; default true. */
  readonly bias?: boolean;
}
/** (x - mean) / sqrt(variance + eps) * weight + bias over the last dimension, or the last few. */
export class LayerNorm extends Layer {
  /** What the result is multiplied by; undefined where there is nothing to learn. */
  weight: Tensor | undefined;
  /** What is added after that. */
  bias: Tensor | undefined;
  /** Added to the variance. */
  readonly eps: number;
  /** Whether the mean is subtracted; without, it is a root-mean-square norm. */
  readonly removeMean: boolean;
  readonly #size: Shape | undefined;
  constructor(size: number | readonly number[], options?: LayerNormOptions);
  constructor(weight?: Tensor, bias?: Tensor, config?: NormConfig);
  constructor(first?: number | readonly number[] | Tensor, second?: Tensor | LayerNormOptions, given: NormConfig = {}) {
    super();
    const bySize = typeof first === 'number' || Array.isArray(first);
    const config = bySize ? ((second ?? {}) as LayerNormOptions) : given;
    this.eps = epsOf('LayerNorm', config.eps ?? 1e-5);
    this.removeMean = config.removeMean ?? true;
    if (!bySize) {
      this.weight = first as Tensor | undefined;
      this.bias = second as Tensor | undefined;
      return;
    }
    requireOptions('LayerNorm', config, ['eps', 'removeMean', 'affine', 'bias', ...MAKE_OPTIONS], ['bias']);
    const size = typeof first === 'number' ? [first] : [...(first as readonly number[])];
    requireWhole('LayerNorm', 'size', size, 1);
    this.#size = size;
    const options = config as LayerNormOptions;
    if (!(options.affine ?? true)) return;
    const vb = builderOf(options);
    this.weight = vb.get(size, 'weight', ONE);
    if (options.bias ?? true) this.bias = vb.get(size, 'bias', ZERO);
  }
  override describe(): string {
    return [(this.#size ?? this.weight?.shape)?.join('x'), `eps ${this.eps.toExponential()}`]
      .filter(Boolean)
      .join(', ');
  }
  forward(x: Tensor): Tensor {
    const size = this.#size ?? this.weight?.shape;
    if (size && x.shape.slice(-size.length).join() !== size.join())
      throw new ShapeError(`LayerNorm: ${formatShape(x.shape)} does not end in ${formatShape(size)}`);
    if (size && size.length > 1) {
      const n = sizeOf(size);
      const flat = x.reshape([...x.shape.slice(0, -size.length), n]);
      return this.#norm(flat, this.weight?.reshape([n]), this.bias?.reshape([n])).reshape(x.shape);
    }
    return this.#norm(x, this.weight, this.bias);
  }
  #norm(x: Tensor, weight: Tensor | undefined, bias: Tensor | undefined): Tensor {
    if (this.removeMean) return x.layerNorm(weight, bias, { eps: this.eps });
    const y = x.rmsNorm(weight, { eps: this.eps });
    return bias ? y.add(bias) : y;
  }
}
/** A layer norm of a builder, in Candle's order of arguments. */
export const layerNorm = (
  size: number,
  vb: VarBuilder,
  {
    useBias = true,
    ...config
  }: NormConfig & {
    /** Whether there is a bias beside the weight; default true. */
    readonly useBias?: boolean;
  } = {},
): LayerNorm => new LayerNorm(size, { ...config, bias: useBias, from: vb });

/** x / sqrt(mean of squares + eps) * weight over the last dimension. */
export class RmsNorm extends Layer {
  /** What the result is multiplied by, (features). */
  weight: Tensor;
  /** Added to the mean square. */
  readonly eps: number;
  constructor(size: number, options?: Pick<NormConfig, 'eps'> & MakeOptions);
  constructor(weight: Tensor, eps?: number);
  constructor(first: number | Tensor, second: number | (Pick<NormConfig, 'eps'> & MakeOptions) = {}) {
    super();
    if (typeof first === 'number') {
      const options = second as Pick<NormConfig, 'eps'> & MakeOptions;
      requireOptions('RmsNorm', options, ['eps', ...MAKE_OPTIONS]);
      requireWhole('RmsNorm', 'size', [first], 1);
      this.eps = epsOf('RmsNorm', options.eps ?? 1e-5);
      this.weight = builderOf(options).get([first], 'weight', ONE);
    } else {
      this.weight = first;
      this.eps = epsOf('RmsNorm', typeof second === 'number' ? second : 1e-5);
    }
  }
  override describe(): string {
    return `${this.weight.size}, eps ${this.eps.toExponential()}`;
  }
  forward(x: Tensor): Tensor {
    return x.rmsNorm(this.weight, { eps: this.eps });
  }
}
/** PyTorch's spelling. */
export { RmsNorm as RMSNorm };
/** A root-mean-square norm of a builder, in Candle's order of arguments. */
export const rmsNorm = (size: number, vb: VarBuilder, eps = 1e-5): RmsNorm => new RmsNorm(size, { eps, from: vb });

/** Options of group norms that are made by their sizes. */
export interface GroupNormOptions extends MakeOptions {
  /** Added to the variance; default 1e-5. */
  readonly eps?: number;
  /** Whether there are weights and biases; default true for GroupNorm, false for InstanceNorm. */
  readonly affine?: boolean;
}
/** Groups of channels of (batch, channels, ...), each over its own elements. */
export class GroupNorm extends Layer {
  /** A factor for each channel; undefined where there is nothing to learn. */
  weight: Tensor | undefined;
  /** Added to each channel. */
  bias: Tensor | undefined;
  /** How many groups the channels are divided into. */
  readonly groups: number;
  /** Added to the variance. */
  readonly eps: number;
  constructor(groups: number, channels: number, options?: GroupNormOptions);
  constructor(weight: Tensor | undefined, bias: Tensor | undefined, groups: number, eps?: number);
  constructor(
    first: number | Tensor | undefined,
    second: number | Tensor | undefined,
    third?: number | GroupNormOptions,
    eps = 1e-5,
  ) {
    super();
    if (typeof first !== 'number') {
      this.weight = first;
      this.bias = second as Tensor | undefined;
      this.groups = third as number;
      this.eps = epsOf(new.target.name, eps);
      requireWhole(new.target.name, 'groups', [this.groups], 1);
      return;
    }
    const options = (third ?? {}) as GroupNormOptions;
    requireOptions('GroupNorm', options, ['eps', 'affine', ...MAKE_OPTIONS]);
    requireWhole('GroupNorm', 'groups and channels', [first, second as number], 1);
    if ((second as number) % first !== 0)
      throw new ArgumentError(`GroupNorm: ${second as number} channels do not divide into ${first} groups`);
    this.groups = first;
    this.eps = epsOf(new.target.name, options.eps ?? 1e-5);
    if (!(options.affine ?? true)) return;
    const vb = builderOf(options);
    this.weight = vb.get([second as number], 'weight', ONE);
    this.bias = vb.get([second as number], 'bias', ZERO);
  }
  override describe(): string {
    return [this.groups, this.weight?.size, `eps ${this.eps.toExponential()}`]
      .filter((v) => v !== undefined)
      .join(', ');
  }
  forward(x: Tensor): Tensor {
    return x.groupNorm(this.groups, this.weight, this.bias, { eps: this.eps });
  }
}
/** A group norm of a builder, in Candle's order of arguments. */
export const groupNorm = (groups: number, channels: number, vb: VarBuilder, eps = 1e-5): GroupNorm =>
  new GroupNorm(groups, channels, { eps, from: vb });

/** Each channel of each example over its own elements. */
abstract class InstanceNorm extends GroupNorm {
  constructor(channels: number, options: GroupNormOptions = {}) {
    super(channels, channels, { affine: false, ...options });
  }
  protected abstract readonly dimensions: number;
  override forward(x: Tensor): Tensor {
    requireDimensions(this.constructor.name, x, [this.dimensions]);
    return super.forward(x);
  }
}
/** Instance norm of (batch, channels, length). */
export class InstanceNorm1d extends InstanceNorm {
  protected readonly dimensions = 3;
}
/** Instance norm of (batch, channels, height, width). */
export class InstanceNorm2d extends InstanceNorm {
  protected readonly dimensions = 4;
}
/** Instance norm of (batch, channels, depth, height, width). */
export class InstanceNorm3d extends InstanceNorm {
  protected readonly dimensions = 5;
}
function requireDimensions(name: string, x: Tensor, ranks: readonly number[]): void {
  if (!ranks.includes(x.rank))
    throw new ShapeError(
      `${name}: takes rank ${ranks.join(' or ')}, (batch, channels, ...), not ${formatShape(x.shape)}`,
    );
}

/** How a batch norm is computed. */
export interface BatchNormConfig {
  /** Added to the variance; default 1e-5. */
  readonly eps?: number;
  /** Share of a new batch in the running statistics; default 0.1. */
  readonly momentum?: number;
  /** Whether there are weights and biases; default true. */
  readonly affine?: boolean;
}
/** Statistics of the batch while training, kept ones otherwise; channels are the second dimension. */
export class BatchNorm extends Layer {
  /** A factor for each channel; undefined where there is nothing to learn. */
  weight: Tensor | undefined;
  /** Added to each channel. */
  bias: Tensor | undefined;
  /** The mean of each channel, learned while training. */
  runningMean: Tensor;
  /** The variance of each channel, learned while training. */
  runningVar: Tensor;
  /** How many batches were learned from. */
  numBatchesTracked: Tensor;
  /** Added to the variance. */
  readonly eps: number;
  /** How much of each batch goes into the running mean and variance. */
  readonly momentum: number;
  constructor(channels: number, options?: BatchNormConfig & MakeOptions);
  constructor(runningMean: Tensor, runningVar: Tensor, weight?: Tensor, bias?: Tensor, config?: BatchNormConfig);
  constructor(
    first: number | Tensor,
    second?: Tensor | (BatchNormConfig & MakeOptions),
    weight?: Tensor,
    bias?: Tensor,
    given: BatchNormConfig = {},
  ) {
    super();
    const bySize = typeof first === 'number';
    const options = (bySize ? (second ?? {}) : given) as BatchNormConfig & MakeOptions;
    requireOptions(new.target.name, options, ['eps', 'momentum', 'affine', ...(bySize ? MAKE_OPTIONS : [])]);
    const { momentum = 0.1, eps = 1e-5 } = options;
    this.eps = epsOf(new.target.name, eps);
    // PyTorch's None, a mean over all batches so far, would be taken for the default.
    if (typeof momentum !== 'number' || !(momentum >= 0 && momentum <= 1))
      throw new ArgumentError(`${new.target.name}: momentum ${String(momentum)} is not a number from 0 to 1`);
    this.momentum = momentum;
    const vb = bySize ? builderOf(options) : undefined;
    if (vb && bySize) {
      requireWhole(new.target.name, 'channels', [first], 1);
      const affine = options.affine ?? true;
      this.runningMean = vb.get([first], 'running_mean', ZERO);
      this.runningVar = vb.get([first], 'running_var', ONE);
      this.weight = affine ? vb.get([first], 'weight', ONE) : undefined;
      this.bias = affine ? vb.get([first], 'bias', ZERO) : undefined;
    } else {
      this.runningMean = first as Tensor;
      this.runningVar = second as Tensor;
      this.weight = weight;
      this.bias = bias;
    }
    this.runningMean.requireGrad(false);
    this.runningVar.requireGrad(false);
    this.numBatchesTracked =
      vb?.has('num_batches_tracked') && options.from
        ? vb.get([], 'num_batches_tracked', ZERO, 'i64')
        : keep(zeros([], { dtype: 'i64', device: this.runningMean.device }));
  }
  protected override buffers(): readonly string[] {
    return ['runningMean', 'runningVar', 'numBatchesTracked'];
  }
  override describe(): string {
    return `${this.runningMean.size}, eps ${this.eps.toExponential()}, momentum ${this.momentum}`;
  }
  /** The ranks it takes; undefined for any. */
  protected ranks(): readonly number[] | undefined {
    return undefined;
  }
  forward(x: Tensor): Tensor {
    const ranks = this.ranks();
    if (ranks) requireDimensions(this.constructor.name, x, ranks);
    const channels = this.runningMean.size;
    if (x.shape[1] !== channels)
      throw new ShapeError(`${this.constructor.name}: ${formatShape(x.shape)} has not ${channels} channels`);
    if (this.training && x.size === channels)
      throw new ShapeError(
        `${this.constructor.name}: one value a channel in ${formatShape(x.shape)} has no variance to train with; ` +
          'eval() uses the statistics learned so far',
      );
    if (!this.training)
      return x.batchNorm(this.weight, this.bias, { eps: this.eps, mean: this.runningMean, var: this.runningVar });
    if (goesOverPlanes(x)) {
      const [y, mean, variance] = x.planeNorm(this.weight?.cast('f32'), this.bias?.cast('f32'), 0, this.eps);
      const count = x.size / channels;
      noGrad(() => this.#learn(mean.detach(), variance.detach().affine(count / (count - 1), 0)));
      return y;
    }
    noGrad(() => {
      const rest = x.shape.map((_, i) => i).filter((i) => i !== 1);
      const wide = x.detach().cast(this.runningMean.dtype);
      this.#learn(wide.mean(rest, false), wide.variance(rest, false, 1));
    });
    return x.batchNorm(this.weight, this.bias, { eps: this.eps });
  }
  /** Takes the statistics of a batch up into those learned so far. */
  #learn(mean: Tensor, variance: Tensor): void {
    const { dtype } = this.runningMean;
    this.runningMean.assign(this.runningMean.ema(mean.cast(dtype), 1 - this.momentum));
    this.runningVar.assign(this.runningVar.ema(variance.cast(dtype), 1 - this.momentum));
    this.numBatchesTracked.assign(this.numBatchesTracked.affine(1, 1));
  }
}
/** Batch norm of (batch, channels) or (batch, channels, length). */
export class BatchNorm1d extends BatchNorm {
  protected override ranks(): readonly number[] {
    return [2, 3];
  }
}
/** Batch norm of (batch, channels, height, width). */
export class BatchNorm2d extends BatchNorm {
  protected override ranks(): readonly number[] {
    return [4];
  }
}
/** Batch norm of (batch, channels, depth, height, width). */
export class BatchNorm3d extends BatchNorm {
  protected override ranks(): readonly number[] {
    return [5];
  }
}
/** A batch norm of a builder, in Candle's order of arguments. */
export const batchNorm = (channels: number, vb: VarBuilder, config: BatchNormConfig = {}): BatchNorm =>
  new BatchNorm(channels, { ...config, from: vb });

/** x / (k + alpha * mean of squares over `size` neighbouring channels)^beta. */
export class LocalResponseNorm extends Layer {
  /** How many channels are looked at together. */
  readonly size: number;
  /** alpha, beta and k, where they were given. */
  readonly options: LocalResponseNormOptions;
  constructor(size: number, options: LocalResponseNormOptions = {}) {
    super();
    requireOptions('LocalResponseNorm', options, ['alpha', 'beta', 'k']);
    requireWhole('LocalResponseNorm', 'size', [size], 1);
    this.size = size;
    this.options = options;
  }
  override describe(): string {
    return [this.size, ...Object.entries(this.options).map(([name, v]) => `${name} ${v}`)].join(', ');
  }
  forward(x: Tensor): Tensor {
    return x.localResponseNorm(this.size, this.options);
  }
}

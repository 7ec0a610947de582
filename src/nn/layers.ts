// The layers everyone uses: linear, embedding, convolutions, norms, dropout; each a class over its tensors and a
// function that builds it.
import { type Init, constant, kaiming, normal, ONE, uniform, ZERO } from './init.js';
import { Layer, Module } from './module.js';
import type { DType } from '../base/dtype.js';
import { ArgumentError } from '../base/errors.js';
import type { ProductOptions } from '../ops/quantized.js';
import { noGrad } from '../tensor/autograd.js';
import { rand } from '../tensor/create.js';
import { QTensor, type Weight } from '../tensor/qtensor.js';
import type { Generator } from '../tensor/random.js';
import type { Tensor } from '../tensor/tensor.js';
import type { VarBuilder } from './var-builder.js';

/** y = x W' + b; the weight is (out, in). */
export class Linear<W extends Weight = Tensor> extends Layer {
  /** A tensor, or one in ggml's blocks. */
  weight: W;
  bias: Tensor | undefined;
  /** How products with quantized weights are computed; see QTensor.matmul. */
  product: ProductOptions = {};
  constructor(weight: W, bias?: Tensor) {
    super();
    this.weight = weight;
    this.bias = bias;
  }
  forward(x: Tensor): Tensor {
    const weight: Weight = this.weight;
    const y = weight instanceof QTensor ? weight.matmul(x, this.product) : x.matmul(weight.t());
    return this.bias ? y.add(this.bias) : y;
  }
}
/** Products that a file keeps apart and a Linear holds as one: whose rows come from which. */
export interface StoredPart {
  /** The module's name in the file: 'model.layers.0.self_attn.q_proj'. */
  readonly name: string;
  readonly rows: number;
  /** Within each run of so many rows, which stored row stands where. */
  readonly order?: readonly number[];
}
const STORED = new WeakMap<Layer, readonly StoredPart[]>();
/** Says where a Linear's rows are stored; adapters are found by these names. */
export function recordStored<L extends Layer>(layer: L, parts: readonly StoredPart[]): L {
  STORED.set(layer, parts);
  return layer;
}
export const storedParts = (layer: Layer): readonly StoredPart[] | undefined => STORED.get(layer);

/** A linear layer whatever its weights are stored in. */
export type AnyLinear = Linear<Weight>;
export interface LinearOptions {
  readonly bias?: boolean;
  readonly init?: Init;
}
export function linear(
  inputs: number,
  outputs: number,
  vb: VarBuilder,
  { bias = true, init = kaiming('normal') }: LinearOptions = {},
): Linear {
  const bound = 1 / Math.sqrt(inputs);
  const layer = new Linear(
    vb.get([outputs, inputs], 'weight', init),
    bias ? vb.get([outputs], 'bias', uniform(-bound, bound)) : undefined,
  );
  return recordStored(layer, [{ name: vb.prefix, rows: outputs }]);
}

/** Rows of a table by number. */
export class Embedding<W extends Weight = Tensor> extends Layer {
  weight: W;
  /** Of the rows that come out: the tensor's own; quantized tables have none. */
  readonly dtype: DType;
  constructor(weight: W, dtype: DType = weight instanceof QTensor ? 'f32' : (weight as Tensor).dtype) {
    super();
    this.weight = weight;
    this.dtype = dtype;
  }
  forward(ids: Tensor): Tensor {
    const weight: Weight = this.weight;
    return weight instanceof QTensor ? weight.rows(ids, this.dtype) : weight.embedding(ids);
  }
}
export const embedding = (entries: number, width: number, vb: VarBuilder, init: Init = normal()): Embedding =>
  new Embedding(vb.get([entries, width], 'weight', init));

export interface ConvConfig {
  readonly stride?: number | readonly number[];
  readonly padding?: number | readonly number[];
  readonly dilation?: number | readonly number[];
  readonly groups?: number;
}
export interface ConvTransposeConfig extends ConvConfig {
  readonly outputPadding?: number | readonly number[];
}
type ConvOp = 'conv1d' | 'conv2d' | 'convTranspose1d' | 'convTranspose2d';

abstract class Conv extends Layer {
  weight: Tensor;
  bias: Tensor | undefined;
  readonly config: ConvTransposeConfig;
  constructor(weight: Tensor, bias?: Tensor, config: ConvTransposeConfig = {}) {
    super();
    this.weight = weight;
    this.bias = bias;
    this.config = config;
  }
  protected run(op: ConvOp, x: Tensor): Tensor {
    const options = { ...this.config, ...(this.bias && { bias: this.bias }) };
    return (x[op] as (w: Tensor, o: object) => Tensor).call(x, this.weight, options);
  }
}
export class Conv1d extends Conv {
  forward(x: Tensor): Tensor {
    return this.run('conv1d', x);
  }
}
export class Conv2d extends Conv {
  forward(x: Tensor): Tensor {
    return this.run('conv2d', x);
  }
  /** One convolution that does what this one and a batch norm after it do. */
  absorbBatchNorm(bn: BatchNorm): Conv2d {
    return noGrad(() => {
      const scale = bn.runningVar.affine(1, bn.eps).rsqrt();
      const by = bn.weight ? scale.mul(bn.weight) : scale;
      const shift = (this.bias ? this.bias.sub(bn.runningMean) : bn.runningMean.neg()).mul(by);
      return new Conv2d(this.weight.mul(by.reshape([-1, 1, 1, 1])), bn.bias ? shift.add(bn.bias) : shift, this.config);
    });
  }
}
export class ConvTranspose1d extends Conv {
  forward(x: Tensor): Tensor {
    return this.run('convTranspose1d', x);
  }
}
export class ConvTranspose2d extends Conv {
  forward(x: Tensor): Tensor {
    return this.run('convTranspose2d', x);
  }
}

type ConvClass<T> = new (weight: Tensor, bias?: Tensor, config?: ConvTransposeConfig) => T;
const convolution =
  <T>(Class: ConvClass<T>, rank: 1 | 2, transposed: boolean) =>
  (
    inputs: number,
    outputs: number,
    kernel: number | readonly number[],
    vb: VarBuilder,
    config: ConvTransposeConfig & { readonly useBias?: boolean } = {},
  ): T => {
    const { useBias = true, ...rest } = config;
    const space = typeof kernel === 'number' ? Array.from({ length: rank }, () => kernel) : [...kernel];
    if (space.length !== rank)
      throw new ArgumentError(`convolution: ${space.length} kernel sizes for ${rank} dimensions`);
    const groups = rest.groups ?? 1;
    const shape = transposed ? [inputs, outputs / groups, ...space] : [outputs, inputs / groups, ...space];
    const bound = 1 / Math.sqrt((inputs / groups) * space.reduce((a, b) => a * b, 1));
    return new Class(
      vb.get(shape, 'weight', transposed ? uniform(-bound, bound) : kaiming('normal')),
      useBias ? vb.get([outputs], 'bias', uniform(-bound, bound)) : undefined,
      rest,
    );
  };
export const conv1d = convolution(Conv1d, 1, false);
export const conv2d = convolution(Conv2d, 2, false);
export const convTranspose1d = convolution(ConvTranspose1d, 1, true);
export const convTranspose2d = convolution(ConvTranspose2d, 2, true);

export interface NormConfig {
  readonly eps?: number;
  /** Subtract the mean; false makes it a root-mean-square norm. */
  readonly removeMean?: boolean;
  readonly affine?: boolean;
}
export class LayerNorm extends Layer {
  weight: Tensor | undefined;
  bias: Tensor | undefined;
  readonly eps: number;
  readonly removeMean: boolean;
  constructor(weight?: Tensor, bias?: Tensor, config: NormConfig = {}) {
    super();
    this.weight = weight;
    this.bias = bias;
    this.eps = config.eps ?? 1e-5;
    this.removeMean = config.removeMean ?? true;
  }
  forward(x: Tensor): Tensor {
    if (this.removeMean) return x.layerNorm(this.weight, this.bias, { eps: this.eps });
    const y = x.rmsNorm(this.weight, { eps: this.eps });
    return this.bias ? y.add(this.bias) : y;
  }
}
export const layerNorm = (
  size: number,
  vb: VarBuilder,
  config: NormConfig & { readonly useBias?: boolean } = {},
): LayerNorm => {
  const affine = config.affine ?? true;
  return new LayerNorm(
    affine ? vb.get([size], 'weight', ONE) : undefined,
    affine && (config.useBias ?? true) ? vb.get([size], 'bias', ZERO) : undefined,
    config,
  );
};

export class RmsNorm extends Layer {
  weight: Tensor;
  readonly eps: number;
  constructor(weight: Tensor, eps = 1e-5) {
    super();
    this.weight = weight;
    this.eps = eps;
  }
  forward(x: Tensor): Tensor {
    return x.rmsNorm(this.weight, { eps: this.eps });
  }
}
export const rmsNorm = (size: number, vb: VarBuilder, eps = 1e-5): RmsNorm =>
  new RmsNorm(vb.get([size], 'weight', ONE), eps);

export class GroupNorm extends Layer {
  weight: Tensor;
  bias: Tensor;
  readonly groups: number;
  readonly eps: number;
  constructor(weight: Tensor, bias: Tensor, groups: number, eps = 1e-5) {
    super();
    this.weight = weight;
    this.bias = bias;
    this.groups = groups;
    this.eps = eps;
  }
  forward(x: Tensor): Tensor {
    return x.groupNorm(this.groups, this.weight, this.bias, { eps: this.eps });
  }
}
export const groupNorm = (groups: number, channels: number, vb: VarBuilder, eps = 1e-5): GroupNorm =>
  new GroupNorm(vb.get([channels], 'weight', ONE), vb.get([channels], 'bias', ZERO), groups, eps);

export interface BatchNormConfig {
  readonly eps?: number;
  /** Share of a new batch in the running statistics. */
  readonly momentum?: number;
  readonly affine?: boolean;
}
/** Statistics of the batch while training, kept ones otherwise. */
export class BatchNorm extends Layer {
  weight: Tensor | undefined;
  bias: Tensor | undefined;
  runningMean: Tensor;
  runningVar: Tensor;
  readonly eps: number;
  readonly momentum: number;
  constructor(runningMean: Tensor, runningVar: Tensor, weight?: Tensor, bias?: Tensor, config: BatchNormConfig = {}) {
    super();
    this.runningMean = runningMean.requireGrad(false);
    this.runningVar = runningVar.requireGrad(false);
    this.weight = weight;
    this.bias = bias;
    this.eps = config.eps ?? 1e-5;
    this.momentum = config.momentum ?? 0.1;
  }
  protected override buffers(): readonly string[] {
    return ['runningMean', 'runningVar'];
  }
  forward(x: Tensor): Tensor {
    if (!this.training)
      return x.batchNorm(this.weight, this.bias, { eps: this.eps, mean: this.runningMean, var: this.runningVar });
    noGrad(() => {
      const rest = x.shape.map((_, i) => i).filter((i) => i !== 1);
      const wide = x.detach().cast(this.runningMean.dtype);
      this.runningMean.assign(this.runningMean.ema(wide.mean(rest, false), 1 - this.momentum));
      this.runningVar.assign(this.runningVar.ema(wide.variance(rest, false, 1), 1 - this.momentum));
    });
    return x.batchNorm(this.weight, this.bias, { eps: this.eps });
  }
}
export const batchNorm = (channels: number, vb: VarBuilder, config: BatchNormConfig = {}): BatchNorm => {
  const affine = config.affine ?? true;
  return new BatchNorm(
    vb.get([channels], 'running_mean', ZERO),
    vb.get([channels], 'running_var', ONE),
    affine ? vb.get([channels], 'weight', ONE) : undefined,
    affine ? vb.get([channels], 'bias', ZERO) : undefined,
    config,
  );
};

/** Drops elements while training. */
export class Dropout extends Layer {
  readonly p: number;
  readonly generator: Generator | undefined;
  constructor(p: number, generator?: Generator) {
    super();
    if (!(p >= 0 && p < 1)) throw new ArgumentError(`Dropout: probability ${p} is not in [0, 1)`);
    this.p = p;
    this.generator = generator;
  }
  forward(x: Tensor): Tensor {
    return this.training ? dropout(x, this.p, this.generator) : x;
  }
}
export const dropout = (x: Tensor, p: number, generator?: Generator): Tensor =>
  p === 0 ? x : x.dropout(p, rand(x.shape, { device: x.device, ...(generator && { generator }) }));

/** A learned slope for negative values, one or one per channel. */
export class PReLU extends Layer {
  weight: Tensor;
  constructor(weight: Tensor) {
    super();
    this.weight = weight;
  }
  forward(x: Tensor): Tensor {
    return x.prelu(this.weight);
  }
}
export const prelu = (channels: number | undefined, vb: VarBuilder): PReLU =>
  new PReLU(vb.get([channels ?? 1], 'weight', constant(0.25)));

export class Identity extends Layer {
  forward(x: Tensor): Tensor {
    return x;
  }
}

/** A function as a layer. */
export class Func extends Layer {
  readonly f: (x: Tensor, training: boolean) => Tensor;
  constructor(f: (x: Tensor, training: boolean) => Tensor) {
    super();
    this.f = f;
  }
  forward(x: Tensor): Tensor {
    return this.f(x, this.training);
  }
}
export const func = (f: (x: Tensor, training: boolean) => Tensor): Func => new Func(f);

/** One layer after another. */
export class Sequential extends Layer {
  readonly layers: Layer[];
  constructor(...layers: (Layer | ((x: Tensor) => Tensor))[]) {
    super();
    this.layers = layers.map((l) => (l instanceof Module ? l : new Func(l)));
  }
  add(layer: Layer | ((x: Tensor) => Tensor)): this {
    this.layers.push(layer instanceof Module ? layer : new Func(layer));
    return this;
  }
  get length(): number {
    return this.layers.length;
  }
  forward(x: Tensor): Tensor {
    return this.layers.reduce((y, layer) => layer.forward(y), x);
  }
  /** What each layer gave. */
  forwardAll(x: Tensor): Tensor[] {
    let y = x;
    return this.layers.map((layer) => (y = layer.forward(y)));
  }
}
export const seq = (...layers: (Layer | ((x: Tensor) => Tensor))[]): Sequential => new Sequential(...layers);

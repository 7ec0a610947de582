// Convolutions over lines, pictures and volumes, and the way back up, as layers.
import { ArgumentError } from '../base/errors.js';
import type { PadMode } from '../ops/functional.js';
import { requireOptions, requireWhole } from '../ops/kernel-row.js';
import { noGrad } from '../tensor/autograd.js';
import type { Tensor } from '../tensor/tensor.js';
import { builderOf, MAKE_OPTIONS, type MakeOptions } from './fresh.js';
import { type Init, kaiming, uniform } from './init.js';
import { Layer } from './module.js';
import type { BatchNorm } from './norm.js';
import type { VarBuilder } from './var-builder.js';

/** How a kernel moves over its input; a number serves every dimension. */
export interface ConvConfig {
  /** Steps between two places of the kernel; default 1. */
  readonly stride?: number | readonly number[];
  /** Elements added on both sides, or 'same' for as many as the output's size needs (stride 1); default 0. */
  readonly padding?: number | readonly number[] | 'same' | 'valid';
  /** Steps between two elements of the kernel; default 1. */
  readonly dilation?: number | readonly number[];
  /** Channels are split into so many groups that do not see each other; default 1. */
  readonly groups?: number;
  /** What is added by padding; default zeros. */
  readonly paddingMode?: 'zeros' | Exclude<PadMode, 'constant'>;
}
/** The same for transposed convolutions. */
export interface ConvTransposeConfig extends Omit<ConvConfig, 'padding' | 'paddingMode'> {
  /** Elements taken off both sides of the output; default 0. */
  readonly padding?: number | readonly number[];
  /** Elements added to the end of the output; default 0. */
  readonly outputPadding?: number | readonly number[];
}
/** Options of a convolution that is made by its sizes. */
export interface ConvOptions extends ConvConfig, MakeOptions {
  /** Whether there is a bias; default true. */
  readonly bias?: boolean;
  /** How the weight begins; default PyTorch's: uniform within 1 / sqrt(inputs of a unit). */
  readonly init?: Init;
}
/** Options of a transposed convolution that is made by its sizes. */
export interface ConvTransposeOptions extends ConvTransposeConfig, MakeOptions {
  /** Whether there is a bias; default true. */
  readonly bias?: boolean;
  /** How the weight begins; default PyTorch's. */
  readonly init?: Init;
}

type Sizes = number | readonly number[];
/** What follows the sizes: options, or stride and padding in a row before them, as in `new Conv2d(1, 32, 3, 1)`. */
export type AfterKernel<Options extends ConvConfig | ConvTransposeConfig> =
  | [options?: Options]
  | [stride: Sizes, options?: Omit<Options, 'stride'>]
  | [stride: Sizes, padding: NonNullable<Options['padding']>, options?: Omit<Options, 'stride' | 'padding'>];

type AnyConfig = ConvConfig & Pick<ConvTransposeConfig, 'outputPadding'>;
const CONFIG = ['stride', 'padding', 'dilation', 'groups'];
const PADDING_MODES: readonly string[] = ['zeros', 'reflect', 'replicate', 'circular'];
/** What a class of convolutions is. */
interface Kind {
  readonly name: string;
  /** The method of Tensor that runs it. */
  readonly op: string;
  readonly rank: number;
  readonly transposed?: boolean;
}

abstract class Conv extends Layer {
  /** (outputs, inputs / groups, ...kernel); transposed ones have inputs first. */
  weight: Tensor;
  /** (outputs), if there is one. */
  bias: Tensor | undefined;
  /** Stride, padding, dilation, groups and what else was given, defaults filled in. */
  readonly config: AnyConfig;
  readonly #kind: Kind;
  constructor(
    kind: Kind,
    first: number | Tensor,
    second: number | Tensor | undefined,
    third: Sizes | AnyConfig | undefined,
    after: readonly unknown[] = [],
  ) {
    super();
    this.#kind = kind;
    const own = kind.transposed ? ['outputPadding'] : ['paddingMode'];
    if (typeof first !== 'number') {
      this.weight = first;
      this.bias = second as Tensor | undefined;
      this.config = (third ?? {}) as AnyConfig;
      requireOptions(`${kind.name} (of a weight that is there)`, this.config, [...CONFIG, ...own]);
      this.#requireGeometry();
      return;
    }
    const options = optionsAfter(kind.name, after);
    requireOptions(kind.name, options, [...CONFIG, ...own, 'bias', 'init', ...MAKE_OPTIONS], ['bias']);
    const [inputs, outputs] = [first, second as number];
    const space = perDimension(kind, 'kernel sizes', third as number | readonly number[]);
    const { bias = true, init, dtype: _d, device: _e, generator: _g, from: _f, ...config } = options;
    this.config = config as AnyConfig;
    this.#requireGeometry();
    const groups = options.groups ?? 1;
    requireWhole(kind.name, 'channels', [inputs, outputs], 1);
    requireWhole(kind.name, 'kernel', space, 1);
    if (inputs % groups !== 0 || outputs % groups !== 0)
      throw new ArgumentError(`${kind.name}: ${inputs} and ${outputs} channels do not divide into ${groups} groups`);
    const shape = kind.transposed ? [inputs, outputs / groups, ...space] : [outputs, inputs / groups, ...space];
    const bound = 1 / Math.sqrt(shape[1] * space.reduce((a, b) => a * b, 1));
    const vb = builderOf(options);
    this.weight = vb.get(shape, 'weight', init ?? uniform(-bound, bound));
    this.bias = bias ? vb.get([outputs], 'bias', uniform(-bound, bound)) : undefined;
  }
  /** Refuses a geometry that no input could go through, where the layer is made instead of where it is used. */
  #requireGeometry(): void {
    const { name, transposed } = this.#kind;
    const { stride = 1, padding = 0, dilation = 1, groups = 1, outputPadding = 0, paddingMode = 'zeros' } = this.config;
    const each = (what: string, given: Sizes, least: number): number[] => {
      const list = perDimension(this.#kind, `${what}s`, given);
      requireWhole(name, what, list, least);
      return list;
    };
    const strides = each('stride', stride, 1);
    each('dilation', dilation, 1);
    each('outputPadding', outputPadding, 0);
    requireWhole(name, 'groups', [groups], 1);
    if (transposed || typeof padding !== 'string') each('padding', padding as Sizes, 0);
    else if (padding !== 'same' && padding !== 'valid')
      throw new ArgumentError(`${name}: padding ${JSON.stringify(padding)} is neither a size nor 'same' nor 'valid'`);
    if (padding === 'same' && strides.some((s) => s !== 1))
      throw new ArgumentError(`${name}: padding 'same' goes with stride 1 only`);
    if (!PADDING_MODES.includes(paddingMode))
      throw new ArgumentError(
        `${name}: paddingMode ${JSON.stringify(paddingMode)} is not known; known are ${PADDING_MODES.join(', ')}`,
      );
  }
  override describe(): string {
    const [a, b, ...space] = this.weight.shape;
    const groups = this.config.groups ?? 1;
    const [inputs, outputs] = this.#kind.transposed ? [a, b * groups] : [b * groups, a];
    const config = Object.entries(this.config).map(
      ([key, v]) => `${key} ${Array.isArray(v) ? v.join('x') : String(v)}`,
    );
    return [inputs, outputs, `kernel ${space.join('x')}`, ...config, ...(this.bias ? [] : ['no bias'])].join(', ');
  }
  forward(x: Tensor): Tensor {
    const { paddingMode = 'zeros', padding = 0, ...rest } = this.config;
    const sides = this.#sides(padding);
    const even = sides.every(([before, after]) => before === after);
    const padded = paddingMode === 'zeros' && even ? x : padAround(x, sides, paddingMode);
    const options = {
      ...rest,
      padding: this.#perAxis(padded === x ? sides.map(([before]) => before) : sides.map(() => 0)),
      ...(this.bias && { bias: this.bias }),
    };
    return (padded as unknown as Record<string, (w: Tensor, o: object) => Tensor>)[this.#kind.op](this.weight, options);
  }
  /** One-dimensional ops take a number. */
  #perAxis(list: readonly number[]): number | readonly number[] {
    return list.length === 1 ? list[0] : list;
  }
  #sides(padding: number | readonly number[] | 'same' | 'valid'): [number, number][] {
    const { rank } = this.#kind;
    if (padding === 'valid') return Array.from({ length: rank }, () => [0, 0]);
    if (padding !== 'same') return perDimension(this.#kind, 'paddings', padding).map((p) => [p, p]);
    const dilation = perDimension(this.#kind, 'dilations', this.config.dilation ?? 1);
    return this.weight.shape.slice(2).map((k, i) => {
      const total = dilation[i] * (k - 1);
      return [Math.floor(total / 2), total - Math.floor(total / 2)];
    });
  }
}
/** The options that follow a kernel's size, with a stride and padding that stand before them. */
function optionsAfter(name: string, after: readonly unknown[]): ConvOptions & ConvTransposeOptions {
  const inRow = after.findIndex((v) => typeof v === 'object' && !Array.isArray(v));
  const places = inRow < 0 ? after : after.slice(0, inRow);
  const options = (inRow < 0 ? {} : (after[inRow] ?? {})) as ConvOptions & ConvTransposeOptions;
  const given = places.flatMap((v, i) => (v === undefined ? [] : [[['stride', 'padding'][i], v] as const]));
  if (places.length > 2 || (inRow >= 0 && after.length > inRow + 1))
    throw new ArgumentError(`${name}: after the kernel stand a stride, padding and an object of options, no more`);
  const twice = given.find(([key]) => key in options);
  if (twice) throw new ArgumentError(`${name}: ${twice[0]} is given twice`);
  return { ...Object.fromEntries(given), ...options } as ConvOptions & ConvTransposeOptions;
}
function perDimension({ name, rank }: Kind, what: string, value: number | readonly number[]): number[] {
  if (typeof value !== 'number' && !Array.isArray(value))
    throw new ArgumentError(
      `${name}: ${what} are a number or a list of ${rank}, not ${value === null ? 'null' : typeof value}`,
    );
  const list = typeof value === 'number' ? Array.from({ length: rank }, () => value) : [...value];
  if (list.length !== rank) throw new ArgumentError(`${name}: ${list.length} ${what} for ${rank} dimensions`);
  return list;
}
const padAround = (x: Tensor, sides: readonly [number, number][], mode: string): Tensor => {
  const pads = [...sides].reverse().flat();
  return mode === 'zeros' ? x.pad(pads) : x.padMode(pads, mode as PadMode);
};

/** A convolution over lines: (batch, inputs, length) to (batch, outputs, length'). */
export class Conv1d extends Conv {
  constructor(inputs: number, outputs: number, kernel: Sizes, ...after: AfterKernel<ConvOptions>);
  constructor(weight: Tensor, bias?: Tensor, config?: ConvConfig);
  constructor(a: number | Tensor, b?: number | Tensor, c?: Sizes | ConvConfig, ...after: unknown[]) {
    super({ name: 'Conv1d', op: 'conv1d', rank: 1 }, a, b, c, after);
  }
}
/** A convolution over pictures: (batch, inputs, height, width) to (batch, outputs, height', width'). */
export class Conv2d extends Conv {
  constructor(inputs: number, outputs: number, kernel: Sizes, ...after: AfterKernel<ConvOptions>);
  constructor(weight: Tensor, bias?: Tensor, config?: ConvConfig);
  constructor(a: number | Tensor, b?: number | Tensor, c?: Sizes | ConvConfig, ...after: unknown[]) {
    super({ name: 'Conv2d', op: 'conv2d', rank: 2 }, a, b, c, after);
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
/** A convolution over volumes: (batch, inputs, depth, height, width) to (batch, outputs, depth', height', width'). */
export class Conv3d extends Conv {
  constructor(inputs: number, outputs: number, kernel: Sizes, ...after: AfterKernel<ConvOptions>);
  constructor(weight: Tensor, bias?: Tensor, config?: ConvConfig);
  constructor(a: number | Tensor, b?: number | Tensor, c?: Sizes | ConvConfig, ...after: unknown[]) {
    super({ name: 'Conv3d', op: 'conv3d', rank: 3 }, a, b, c, after);
  }
}
/** A transposed convolution over lines: what Conv1d's gradient does to its input. */
export class ConvTranspose1d extends Conv {
  constructor(inputs: number, outputs: number, kernel: Sizes, ...after: AfterKernel<ConvTransposeOptions>);
  constructor(weight: Tensor, bias?: Tensor, config?: ConvTransposeConfig);
  constructor(a: number | Tensor, b?: number | Tensor, c?: Sizes | ConvTransposeConfig, ...after: unknown[]) {
    super({ name: 'ConvTranspose1d', op: 'convTranspose1d', rank: 1, transposed: true }, a, b, c, after);
  }
}
/** A transposed convolution over pictures: what Conv2d's gradient does to its input. */
export class ConvTranspose2d extends Conv {
  constructor(inputs: number, outputs: number, kernel: Sizes, ...after: AfterKernel<ConvTransposeOptions>);
  constructor(weight: Tensor, bias?: Tensor, config?: ConvTransposeConfig);
  constructor(a: number | Tensor, b?: number | Tensor, c?: Sizes | ConvTransposeConfig, ...after: unknown[]) {
    super({ name: 'ConvTranspose2d', op: 'convTranspose2d', rank: 2, transposed: true }, a, b, c, after);
  }
}

/** A transposed convolution over volumes: what Conv3d's gradient does to its input. */
export class ConvTranspose3d extends Conv {
  constructor(inputs: number, outputs: number, kernel: Sizes, ...after: AfterKernel<ConvTransposeOptions>);
  constructor(weight: Tensor, bias?: Tensor, config?: ConvTransposeConfig);
  constructor(a: number | Tensor, b?: number | Tensor, c?: Sizes | ConvTransposeConfig, ...after: unknown[]) {
    super({ name: 'ConvTranspose3d', op: 'convTranspose3d', rank: 3, transposed: true }, a, b, c, after);
  }
}

type Sized<T, O> = new (inputs: number, outputs: number, kernel: number | readonly number[], options?: O) => T;
/** A convolution of a builder, in Candle's order of arguments; new weights begin as Candle's. */
const convolution =
  <T, O extends MakeOptions>(Class: Sized<T, O>, init?: Init) =>
  (
    inputs: number,
    outputs: number,
    kernel: number | readonly number[],
    vb: VarBuilder,
    {
      useBias = true,
      ...config
    }: Omit<O, keyof MakeOptions | 'bias' | 'init'> & {
      /** Whether there is a bias; default true. */
      readonly useBias?: boolean;
    } = {} as O,
  ): T =>
    new Class(inputs, outputs, kernel, { ...config, bias: useBias, ...(init && { init }), from: vb } as unknown as O);
/** A Conv1d whose tensors come from a builder, in Candle's order of arguments. */
export const conv1d = convolution<Conv1d, ConvOptions>(Conv1d, kaiming('normal'));
/** A Conv2d whose tensors come from a builder, in Candle's order of arguments. */
export const conv2d = convolution<Conv2d, ConvOptions>(Conv2d, kaiming('normal'));
/** A ConvTranspose1d whose tensors come from a builder, in Candle's order of arguments. */
export const convTranspose1d = convolution<ConvTranspose1d, ConvTransposeOptions>(ConvTranspose1d);
/** A ConvTranspose2d whose tensors come from a builder, in Candle's order of arguments. */
export const convTranspose2d = convolution<ConvTranspose2d, ConvTransposeOptions>(ConvTranspose2d);

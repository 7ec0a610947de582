// Transformer blocks with PyTorch's parameters and names: encoder and decoder layers, and stacks of them.
import { ArgumentError } from '../base/errors.js';
import { requireOptions } from '../ops/kernel-row.js';
import type { Tensor } from '../tensor/tensor.js';
import { activation } from './activation.js';
import { type AttendOptions, MultiheadAttention } from './attention.js';
import { Dropout } from './dropout.js';
import { MAKE_OPTIONS, type MakeOptions, within } from './fresh.js';
import { Linear } from './linear.js';
import { type Field, Module } from './module.js';
import { LayerNorm } from './norm.js';

/** Options of a transformer layer. */
export interface TransformerLayerOptions extends MakeOptions {
  /** The width between the two products after attention; default 2048. */
  readonly feedforward?: number;
  /** Default 0.1. */
  readonly dropout?: number;
  /** 'relu', 'gelu' or another name that activation() knows; default 'relu'. */
  readonly activation?: string;
  /** Added to variances; default 1e-5. */
  readonly eps?: number;
  /** Norms before each part instead of after it; default false. */
  readonly normFirst?: boolean;
  /** Whether products and norms have biases; default true. */
  readonly bias?: boolean;
}
const OPTIONS = ['feedforward', 'dropout', 'activation', 'eps', 'normFirst', 'bias', ...MAKE_OPTIONS];

/** What encoder and decoder layers share: attention among themselves and two products. */
abstract class TransformerLayer extends Module {
  /** Attention over the sequence itself. */
  selfAttn: MultiheadAttention;
  /** The feed-forward branch's way up: (inner, width). */
  linear1: Linear;
  /** Its way down: (width, inner). */
  linear2: Linear;
  /** The norm of the attention over the sequence itself. */
  norm1: LayerNorm;
  /** The norm of the next branch: feed-forward in an encoder, attention over the encoder's result in a decoder. */
  norm2: LayerNorm;
  /** On what each branch adds, while training. */
  dropout: Dropout;
  /** Norms stand in front of the branches, not behind the sums. */
  readonly normFirst: boolean;
  protected readonly bend: (x: Tensor) => Tensor;
  readonly #detail: string;
  constructor(width: number, heads: number, options: TransformerLayerOptions = {}) {
    super();
    requireOptions(new.target.name, options, OPTIONS, ['bias']);
    const { feedforward = 2048, dropout = 0.1, eps = 1e-5, bias = true } = options;
    const make = (name: string): MakeOptions => within(options, name);
    this.selfAttn = new MultiheadAttention(width, heads, { dropout, bias, ...make('self_attn') });
    this.linear1 = new Linear(width, feedforward, { bias, ...make('linear1') });
    this.linear2 = new Linear(feedforward, width, { bias, ...make('linear2') });
    this.norm1 = new LayerNorm(width, { eps, bias, ...make('norm1') });
    this.norm2 = new LayerNorm(width, { eps, bias, ...make('norm2') });
    this.dropout = new Dropout(dropout, options.generator);
    this.normFirst = options.normFirst ?? false;
    this.bend = activation(options.activation ?? 'relu');
    this.#detail = `${width}, ${heads} heads, ${feedforward}${this.normFirst ? ', norm first' : ''}`;
  }
  override describe(): string {
    return this.#detail;
  }
  /** x plus what a part makes of it, with the norm before or after. */
  protected around(x: Tensor, norm: LayerNorm, part: (x: Tensor) => Tensor): Tensor {
    if (this.normFirst) return x.add(this.dropout.forward(part(norm.forward(x))));
    return norm.forward(x.add(this.dropout.forward(part(x))));
  }
  protected products(x: Tensor): Tensor {
    return this.linear2.forward(this.dropout.forward(this.bend(this.linear1.forward(x))));
  }
}

/** Attention of a sequence to itself and two products, (batch, time, width) in and out. */
export class TransformerEncoderLayer extends TransformerLayer {
  /** x (batch, time, width) after attention over itself and the feed-forward branch; options hold masks. */
  forward(x: Tensor, options: AttendOptions = {}): Tensor {
    const y = this.around(x, this.norm1, (h) => this.selfAttn.forward(h, h, h, options));
    return this.around(y, this.norm2, (h) => this.products(h));
  }
}
/** How a decoder layer sees what it decodes from. */
export interface DecodeOptions extends AttendOptions {
  /** What the sequence may see of the memory. */
  readonly memory?: AttendOptions;
}
/** Attention of a sequence to itself, to the encoder's output, and two products. */
export class TransformerDecoderLayer extends TransformerLayer {
  /** Attention over the encoder's result. */
  multiheadAttn: MultiheadAttention;
  /** The norm of the feed-forward branch. */
  norm3: LayerNorm;
  constructor(width: number, heads: number, options: TransformerLayerOptions = {}) {
    super(width, heads, options);
    const { dropout = 0.1, eps = 1e-5, bias = true } = options;
    const attend = { dropout, bias, ...within(options, 'multihead_attn') };
    this.multiheadAttn = new MultiheadAttention(width, heads, attend);
    this.norm3 = new LayerNorm(width, { eps, bias, ...within(options, 'norm3') });
  }
  /** In PyTorch's order, in which state dicts and lists of parameters have them. */
  override *fields(): Iterable<Field> {
    for (const field of super.fields()) {
      if (field.key === 'multiheadAttn') continue;
      yield field;
      if (field.key === 'selfAttn')
        yield { ...field, name: 'multihead_attn', value: this.multiheadAttn, key: 'multiheadAttn' };
    }
  }
  /**
   * x (batch, time, width) after attention over itself, over `memory` (the encoder's result) and the feed-forward
   * branch.
   */
  forward(x: Tensor, memory: Tensor, { memory: seen = {}, ...own }: DecodeOptions = {}): Tensor {
    const a = this.around(x, this.norm1, (h) => this.selfAttn.forward(h, h, h, own));
    const b = this.around(a, this.norm2, (h) => this.multiheadAttn.forward(h, memory, memory, seen));
    return this.around(b, this.norm3, (h) => this.products(h));
  }
}

/** Options of a stack of layers. */
export interface TransformerOptions extends TransformerLayerOptions {
  /** Whether a norm stands at the end; default false. */
  readonly norm?: boolean;
}
const stack = <L>(
  name: string,
  n: number,
  options: TransformerOptions,
  make: (o: TransformerLayerOptions) => L,
): { layers: L[]; rest: TransformerLayerOptions } => {
  if (!Number.isInteger(n) || n < 0)
    throw new ArgumentError(
      `${name}: takes width, heads and the number of layers, which it makes itself; ` +
        `${String(n)} is no number of layers`,
    );
  requireOptions(name, options, [...OPTIONS, 'norm'], ['bias', 'norm']);
  const { norm: _, ...rest } = options;
  const at = (i: number): TransformerLayerOptions => (rest.from ? { ...rest, from: rest.from.pp('layers', i) } : rest);
  return { layers: Array.from({ length: n }, (_unused, i) => make(at(i))), rest };
};
const lastNorm = (width: number, { norm = false, eps = 1e-5, ...rest }: TransformerOptions): LayerNorm | undefined =>
  norm ? new LayerNorm(width, { eps, bias: rest.bias ?? true, ...within(rest, 'norm') }) : undefined;

/** Encoder layers, one after another. */
export class TransformerEncoder extends Module {
  /** The layers, in order. */
  readonly layers: TransformerEncoderLayer[];
  /** A last norm; undefined where there is none. */
  norm: LayerNorm | undefined;
  constructor(width: number, heads: number, count: number, options: TransformerOptions = {}) {
    super();
    this.layers = stack(new.target.name, count, options, (o) => new TransformerEncoderLayer(width, heads, o)).layers;
    this.norm = lastNorm(width, options);
  }
  /** x (batch, time, width) through all layers; options hold masks. */
  forward(x: Tensor, options: AttendOptions = {}): Tensor {
    const y = this.layers.reduce((h, layer) => layer.forward(h, options), x);
    return this.norm ? this.norm.forward(y) : y;
  }
}
/** Decoder layers, one after another. */
export class TransformerDecoder extends Module {
  /** The layers, in order. */
  readonly layers: TransformerDecoderLayer[];
  /** A last norm; undefined where there is none. */
  norm: LayerNorm | undefined;
  constructor(width: number, heads: number, count: number, options: TransformerOptions = {}) {
    super();
    this.layers = stack(new.target.name, count, options, (o) => new TransformerDecoderLayer(width, heads, o)).layers;
    this.norm = lastNorm(width, options);
  }
  /** x (batch, time, width) through all layers, each of which looks at `memory`, the encoder's result. */
  forward(x: Tensor, memory: Tensor, options: DecodeOptions = {}): Tensor {
    const y = this.layers.reduce((h, layer) => layer.forward(h, memory, options), x);
    return this.norm ? this.norm.forward(y) : y;
  }
}

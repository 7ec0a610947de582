// Parakeet with a head for pieces of words (CTC): convolutions make eight frames of a log-mel spectrogram one moment,
// and conformer layers follow.
import { ArgumentError, UnsupportedError } from '../../base/errors.js';
import { type Conv1d, type Conv2d, conv1d, conv2d, type Linear, linear } from '../../nn/layers.js';
import { Module } from '../../nn/module.js';
import type { VarBuilder } from '../../nn/var-builder.js';
import { tensor } from '../../tensor/create.js';
import type { Tensor } from '../../tensor/tensor.js';
import type { Config } from '../files/config.js';
import type { ModelSource } from '../files/source.js';
import type { ModelRow } from '../model-row.js';
import { ConformerBlock, type ConformerConfig, conformerPlaces } from './conformer.js';

interface FoldingConfig {
  readonly bins: number;
  readonly channels: number;
  readonly kernel: number;
  readonly stride: number;
  /** So many convolutions step over moments and bands. */
  readonly steps: number;
}
/** The half that hears: its layers, how frames become moments, and what these are multiplied by. */
export interface EarsConfig {
  readonly config: ConformerConfig;
  readonly folding: FoldingConfig;
  readonly scale: number;
}
const stepped = (n: number, { kernel, stride }: FoldingConfig): number =>
  Math.floor((n + 2 * Math.floor((kernel - 1) / 2) - kernel) / stride) + 1;

/** Some moments to one: a convolution, then pairs of one that steps, channel by channel, and one that mixes them. */
class Folding extends Module {
  readonly convs: readonly Conv2d[];
  readonly out: Linear;
  readonly #config: FoldingConfig;
  constructor(vb: VarBuilder, c: FoldingConfig, width: number) {
    super();
    this.#config = c;
    const stepping = { stride: c.stride, padding: Math.floor((c.kernel - 1) / 2) };
    const { channels, kernel } = c;
    const pairs = Array.from({ length: c.steps - 1 }, (_, i) => {
      const at = 2 + 3 * i; // activations count as layers
      return [
        conv2d(channels, channels, kernel, vb.pp('layers', at), { ...stepping, groups: channels }),
        conv2d(channels, channels, 1, vb.pp('layers', at + 1)),
      ];
    });
    this.convs = [conv2d(1, channels, kernel, vb.pp('layers.0'), stepping), ...pairs.flat()];
    let bands = c.bins;
    for (let i = 0; i < c.steps; i++) bands = stepped(bands, c);
    this.out = linear(channels * bands, width, vb.pp('linear'));
  }
  /** Of frames (b, t, bins), of which so many are real in each row: moments, and how many of them are. */
  forward(frames: Tensor, real: readonly number[]): { readonly x: Tensor; readonly real: readonly number[] } {
    let [x, counts] = [frames.unsqueeze(1), real];
    this.convs.forEach((conv, i) => {
      x = conv.forward(x);
      if (i === 0 || i % 2 === 1) counts = counts.map((n) => stepped(n, this.#config));
      x = x.mul(realMask(counts, x.shape[2], x).unsqueeze(1).unsqueeze(3));
      if (i % 2 === 0) x = x.relu();
    });
    const [b, , t] = x.shape;
    return { x: this.out.forward(x.transpose(1, 2).reshape([b, t, -1])), real: counts };
  }
}
/** 1 for the first so many of t moments in each row, 0 behind them, (b, t). */
function realMask(counts: readonly number[], t: number, like: Tensor): Tensor {
  const data = Float32Array.from({ length: counts.length * t }, (_, i) => Number(i % t < counts[Math.floor(i / t)]));
  return tensor(data, { shape: [counts.length, t], device: like.device }).cast(like.dtype);
}

/** What Parakeet's kinds have in common: log-mel spectrograms (b, t, bins) become moments. */
export abstract class ParakeetEars extends Module {
  readonly folding: Folding;
  readonly blocks: readonly ConformerBlock[];
  /** Bands of a frame. */
  readonly bins: number;
  readonly #config: ConformerConfig;
  readonly #scale: number;
  constructor(vb: VarBuilder, { config: c, folding, scale }: EarsConfig) {
    super();
    this.#config = c;
    this.#scale = scale;
    this.bins = folding.bins;
    const e = vb.pp('encoder');
    this.folding = new Folding(e.pp('subsampling'), folding, c.width);
    this.blocks = Array.from({ length: c.layers }, (_, i) => new ConformerBlock(named(e.pp('layers', i)), c));
  }
  /** Logits of pieces. */
  abstract forward(frames: Tensor, mask?: Tensor): Tensor;
  /** Of one sound: the likeliest pieces. */
  abstract pieces(frames: Tensor, mask: Tensor): number[];
  /** Vectors of moments (b, t, width), and how many of each row are real; the mask (b, frames) is 1 for those heard. */
  heard(frames: Tensor, mask?: Tensor): { readonly x: Tensor; readonly real: readonly number[] } {
    const [b, t, bins] = frames.shape;
    if (frames.rank !== 3 || bins !== this.bins || (mask && mask.shape.join() !== [b, t].join()))
      throw new ArgumentError(
        `sound: frames have shape [${frames.shape.join(', ')}]${mask ? `, the mask [${mask.shape.join(', ')}]` : ''}; ` +
          `the model takes (batch, frames, ${this.bins}) and a mask (batch, frames)`,
      );
    const counts = mask ? (mask.ne(0).cast('f32').sum(1).toArray() as number[]) : Array<number>(b).fill(t);
    const folded = this.folding.forward(frames, counts);
    let x = folded.x.affine(this.#scale, 0);
    const places = conformerPlaces(this.#config, x);
    const real = mask && realMask(folded.real, x.shape[1], x).ne(0);
    for (const block of this.blocks) x = block.forward(x, places, real);
    return { x, real: folded.real };
  }
}

/** A number a piece of words for each moment. */
export class Parakeet extends ParakeetEars {
  readonly letters: Conv1d;
  constructor(vb: VarBuilder, ears: EarsConfig, pieces: number) {
    super(vb, ears);
    this.letters = conv1d(ears.config.width, pieces, 1, vb.pp('ctc_head'));
  }
  /** Logits of pieces, (b, moments, pieces). */
  forward(frames: Tensor, mask?: Tensor): Tensor {
    return this.#spelt(this.heard(frames, mask).x);
  }
  #spelt(x: Tensor): Tensor {
    return this.letters.forward(x.transpose(1, 2).contiguous()).transpose(1, 2);
  }
  /** The likeliest piece of each real moment of one sound. */
  pieces(frames: Tensor, mask: Tensor): number[] {
    const { x, real } = this.heard(frames, mask);
    const [row] = this.#spelt(x).argmax(-1).toArray() as number[][];
    return row.slice(0, real[0]);
  }
}

/** Names of a conformer layer's parts, and Parakeet's. */
const NAMES: readonly (readonly [RegExp, string])[] = [
  [/^ffn([12])_layer_norm/, 'norm_feed_forward$1'],
  [/^ffn([12])\.intermediate_dense/, 'feed_forward$1.linear1'],
  [/^ffn([12])\.output_dense/, 'feed_forward$1.linear2'],
  [/^self_attn\.linear_([qkv])\./, 'self_attn.$1_proj.'],
  [/^self_attn\.linear_out/, 'self_attn.o_proj'],
  [/^self_attn\.linear_pos/, 'self_attn.relative_k_proj'],
  [/^self_attn\.pos_bias_/, 'self_attn.bias_'],
  [/^self_attn_layer_norm/, 'norm_self_att'],
  [/^conv_module\.layer_norm/, 'norm_conv'],
  [/^conv_module\.batch_norm/, 'conv.norm'],
  [/^conv_module\./, 'conv.'],
  [/^final_layer_norm/, 'norm_out'],
];
const named = (layer: VarBuilder): VarBuilder =>
  layer.rename((name) => {
    const [, lead, part] = /^(.*\.layers\.\d+\.)(.*)$/.exec(name) as RegExpExecArray;
    const [found, own] = NAMES.find(([pattern]) => pattern.test(part)) ?? [/^$/, ''];
    return `${lead}${part.replace(found, own)}`;
  });

/** What a config says of the half that hears. */
export function earsOf(c: Config, source: ModelSource): EarsConfig {
  const e = c.inner('encoder_config');
  if (!e) throw new UnsupportedError(`${c.where}: there is no encoder_config`);
  e.ignoreBooks();
  e.ignore('dropout_positions', 'max_position_embeddings'); // distances have no end
  source.ignore(/\.num_batches_tracked$/);
  const [width, heads] = [e.count('hidden_size', 1024, 1), e.count('num_attention_heads', 8, 1)];
  e.only('num_key_value_heads', heads);
  const [kernel, factor] = [e.count('conv_kernel_size', 9, 1), e.count('subsampling_factor', 8, 2)];
  const steps = Math.log2(factor);
  if (kernel % 2 === 0 || !Number.isInteger(steps))
    throw new UnsupportedError(
      `${c.where}: conv_kernel_size is ${kernel} and subsampling_factor ${factor}; an odd number and a power of two ` +
        'are served',
    );
  const config: ConformerConfig = {
    ...{ width, heads, kernel, causal: false, places: 'relative', speeds: [], farthest: [0, 0], silence: true },
    layers: e.count('num_hidden_layers', 24, 1),
    inner: e.count('intermediate_size', 4096),
    eps: 1e-5,
    activation: e.activation('hidden_act', 'silu'),
    bare: !e.flag('attention_bias', true),
    filterBias: e.flag('convolution_bias', true),
  };
  const folding: FoldingConfig = {
    steps,
    bins: e.count('num_mel_bins', 80, 1),
    channels: e.count('subsampling_conv_channels', 256, 1),
    kernel: e.count('subsampling_conv_kernel_size', 3, 1),
    stride: e.count('subsampling_conv_stride', 2, 2),
  };
  const scale = e.flag('scale_input', true) ? Math.sqrt(width) : 1;
  return { config, folding, scale };
}
function parakeet(c: Config, source: ModelSource): Parakeet {
  c.ignore('ctc_loss_reduction', 'ctc_zero_infinity');
  return new Parakeet(source.builder, earsOf(c, source), c.count('vocab_size', 1025, 1));
}
export const PARAKEET_FAMILIES: readonly ModelRow[] = [{ kind: 'sound', types: ['parakeet_ctc'], build: parakeet }];

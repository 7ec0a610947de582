// Moonshine: the samples of a sound through three convolutions and an encoder whose queries and keys turn; a decoder
// that writes what was said.
import { ArgumentError, UnsupportedError } from '../../base/errors.js';
import {
  type Conv1d,
  conv1d,
  type Embedding,
  embedding,
  type LayerNorm,
  layerNorm,
  Linear,
  linear,
} from '../../nn/layers.js';
import { type Layer, Module } from '../../nn/module.js';
import { type GroupNorm, groupNorm } from '../../nn/norm.js';
import type { VarBuilder } from '../../nn/var-builder.js';
import type { Tensor } from '../../tensor/tensor.js';
import type { Config } from '../files/config.js';
import type { ModelRow } from '../model-row.js';
import {
  type AttendOptions,
  chunks,
  feedForward,
  GatedFeedForward,
  keysMask,
  type MultiHead,
  multiHead,
} from '../parts.js';
import { readRope, type RopeFeature, type RopeTable, ropeTable } from '../decoder/rope.js';
import { freshAnswer, Seq2Seq, type Seq2SeqState } from '../seq2seq/seq2seq.js';
import type { ModelSource } from '../files/source.js';

/** Kernel and stride of the convolutions over samples. */
const CONVS = [
  [127, 64],
  [7, 3],
  [3, 2],
] as const;
/** Samples that a moment moves on by. */
const HOP = CONVS.reduce((n, [, stride]) => n * stride, 1);

export interface MoonshineConfig {
  readonly vocabSize: number;
  readonly width: number;
  readonly inner: number;
  readonly heads: number;
  readonly headDim: number;
  readonly encoder: { readonly layers: number; readonly activation: string };
  readonly decoder: { readonly layers: number; readonly activation: string };
  /** Products that make queries, keys and values have biases. */
  readonly biases: boolean;
  readonly rope: RopeFeature;
  /** The longest answer. */
  readonly targetPositions: number;
}

class MoonshineBlock extends Module {
  readonly norm1: LayerNorm;
  readonly self: MultiHead;
  readonly crossNorm: LayerNorm | undefined;
  readonly cross: MultiHead | undefined;
  readonly norm2: LayerNorm;
  readonly mlp: Layer;
  constructor(vb: VarBuilder, c: MoonshineConfig, decoder: boolean) {
    super();
    const { width, inner } = c;
    const biases = c.biases ? (['q', 'k', 'v'] as const) : [];
    const names = { q: 'q_proj', k: 'k_proj', v: 'v_proj', out: 'o_proj', biases };
    const attend = (name: string): MultiHead =>
      multiHead(vb.pp(name), names, width, c.heads, { inner: c.heads * c.headDim });
    const norm = (name: string): LayerNorm => layerNorm(width, vb.pp(name), { useBias: false });
    this.norm1 = norm('input_layernorm');
    this.self = attend('self_attn');
    this.crossNorm = decoder ? norm('post_attention_layernorm') : undefined;
    this.cross = decoder ? attend('encoder_attn') : undefined;
    this.norm2 = norm(decoder ? 'final_layernorm' : 'post_attention_layernorm');
    const at = vb.pp('mlp');
    if (decoder) {
      const [up, gate] = chunks(linear(width, 2 * inner, at.pp('fc1')), 2);
      this.mlp = new GatedFeedForward(gate, up, linear(inner, width, at.pp('fc2')), c.decoder.activation);
    } else this.mlp = feedForward(at, ['fc1', 'fc2'], width, inner, c.encoder.activation);
  }
  forward(x: Tensor, self: AttendOptions, across?: AttendOptions): Tensor {
    let y = x.add(this.self.forward(this.norm1.forward(x), self));
    if (this.cross && this.crossNorm) y = y.add(this.cross.forward(this.crossNorm.forward(y), across));
    return y.add(this.mlp.forward(this.norm2.forward(y)));
  }
}

export class Moonshine extends Seq2Seq {
  readonly config: MoonshineConfig;
  readonly conv1: Conv1d;
  readonly norm: GroupNorm;
  readonly conv2: Conv1d;
  readonly conv3: Conv1d;
  readonly encoderBlocks: MoonshineBlock[];
  readonly encoderNorm: LayerNorm;
  readonly words: Embedding;
  readonly decoderBlocks: MoonshineBlock[];
  readonly decoderNorm: LayerNorm;
  readonly head: Linear;
  #turns: (RopeTable & { readonly positions: number }) | undefined;

  constructor(vb: VarBuilder, c: MoonshineConfig, tied: boolean) {
    super();
    this.config = c;
    const [e, d] = [vb.pp('model.encoder'), vb.pp('model.decoder')];
    const conv = (i: number, from: number, to: number, useBias: boolean): Conv1d =>
      conv1d(from, to, CONVS[i][0], e.pp(`conv${i + 1}`), { stride: CONVS[i][1], useBias });
    const blocks = (at: VarBuilder, layers: number, decoder: boolean): MoonshineBlock[] =>
      Array.from({ length: layers }, (_, i) => new MoonshineBlock(at.pp('layers', i), c, decoder));
    this.conv1 = conv(0, 1, c.width, false);
    this.norm = groupNorm(1, c.width, e.pp('groupnorm'));
    this.conv2 = conv(1, c.width, 2 * c.width, true);
    this.conv3 = conv(2, 2 * c.width, c.width, true);
    this.encoderBlocks = blocks(e, c.encoder.layers, false);
    this.encoderNorm = layerNorm(c.width, e.pp('layer_norm'), { useBias: false });
    this.words = embedding(c.vocabSize, c.width, d.pp('embed_tokens'));
    this.decoderBlocks = blocks(d, c.decoder.layers, true);
    this.decoderNorm = layerNorm(c.width, d.pp('norm'), { useBias: false });
    this.head = tied ? new Linear(this.words.weight) : linear(c.width, c.vocabSize, vb.pp('proj_out'), { bias: false });
  }
  /** Moments that come of so many samples. */
  moments(samples: number): number {
    return CONVS.reduce((n, [kernel, stride]) => Math.floor((n - kernel) / stride) + 1, samples);
  }
  /** The fewest samples that make a moment. */
  get fewestSamples(): number {
    return CONVS.reduceRight((n, [kernel, stride]) => (n - 1) * stride + kernel, 1);
  }
  protected override forget(): void {
    this.#turns?.cos.dispose();
    this.#turns?.sin.dispose();
    this.#turns = undefined;
  }
  /** Cosines and sines of positions from `start` on; the table grows with what is asked for. */
  #rope(start: number, length: number): NonNullable<AttendOptions['rope']> {
    const positions = start + length;
    if ((this.#turns?.positions ?? 0) < positions) {
      this.forget();
      const { dtype, weight } = this.words;
      this.#turns = { positions, ...ropeTable(this.config.rope, positions, positions, dtype, weight.device) };
    }
    const rows = (table: Tensor): Tensor => table.narrow(0, start, length).contiguous();
    const { cos, sin } = this.#turns as RopeTable;
    return { cos: rows(cos), sin: rows(sin), neighbours: true };
  }
  /** Which moments are real, of which samples are: the first sample of each tells. */
  #real(mask: Tensor | undefined): Tensor | undefined {
    if (!mask) return undefined;
    const [b, n] = mask.shape;
    const moments = this.moments(n);
    const firsts = mask.narrow(1, 0, (moments - 1) * HOP + 1).pad([0, HOP - 1]);
    return keysMask(firsts.reshape([b, moments, HOP]).narrow(2, 0, 1).squeeze(2).contiguous());
  }
  /** Samples (b, n) as vectors of moments (b, t, width); the mask (b, n) is 1 for samples and 0 for padding. */
  encode(samples: Tensor, mask?: Tensor): Tensor {
    if (samples.rank !== 2 || this.moments(samples.shape[1]) < 1 || (mask && `${mask.shape}` !== `${samples.shape}`))
      throw new ArgumentError(
        `moonshine: samples have shape [${samples.shape.join(', ')}]${mask ? `, the mask [${mask.shape.join(', ')}]` : ''}` +
          `; both must be (batch, samples), with ${this.fewestSamples} samples at least`,
      );
    const first = this.norm.forward(this.conv1.forward(samples.unsqueeze(1)).tanh());
    const heard = this.conv3.forward(this.conv2.forward(first).geluErf()).geluErf();
    let x = heard.transpose(1, 2).contiguous(); // (b, t, width)
    const seen = this.#real(mask);
    const options = { rope: this.#rope(0, x.shape[1]), ...(seen && { mask: seen }) };
    for (const block of this.encoderBlocks) x = block.forward(x, options);
    return this.encoderNorm.forward(x);
  }
  begin(encoded: Tensor, mask?: Tensor): Seq2SeqState {
    const crosses = this.decoderBlocks.map((b) => b.cross as MultiHead);
    return freshAnswer(crosses, encoded, this.#real(mask));
  }
  decode(ids: Tensor, state: Seq2SeqState): Tensor {
    const start = state.caches?.[0]?.length ?? 0;
    const t = ids.shape[1];
    if (start + t > this.config.targetPositions)
      throw new ArgumentError(`moonshine: ${start + t} tokens, the model has ${this.config.targetPositions} positions`);
    let x = this.words.forward(ids);
    const rope = this.#rope(start, t);
    const { mask } = state;
    this.decoderBlocks.forEach((block, i) => {
      const cache = state.caches?.[i];
      const across = { ready: state.crossed[i], ...(mask && { mask }) };
      x = block.forward(x, { causal: true, rope, ...(cache && { cache }) }, across);
    });
    return this.head.forward(this.decoderNorm.forward(x));
  }
}

/** A number that both halves have, under either name of the decoder's. */
function ofBoth(c: Config, name: string, unsaid: number): number {
  const of = (field: string, fallback: number): number => (c.has(field) ? c.count(field, undefined, 1) : fallback);
  const read = of(`encoder_${name}`, unsaid);
  const written = of(`decoder_${name}`, of(name, unsaid));
  // transformers makes both halves with the encoder's.
  if (read !== written)
    throw new UnsupportedError(
      `${c.where}: encoder_${name} is ${read}, decoder_${name} ${written}; models whose halves differ are not served`,
    );
  return read;
}

function moonshine(c: Config, source: ModelSource): Moonshine {
  const width = c.count('hidden_size', 288, 1);
  const heads = ofBoth(c, 'num_attention_heads', 8);
  const kvHeads = ofBoth(c, 'num_key_value_heads', heads);
  if (kvHeads !== heads)
    throw new UnsupportedError(`${c.where}: ${heads} heads share keys of ${kvHeads}, which this family does not have`);
  const headDim = c.count('head_dim', Math.floor(width / heads), 1);
  c.ignore('pad_head_dim_to_multiple_of'); // zeros that some kernels ask for
  const targetPositions = c.count('max_position_embeddings', 512, 1);
  const rope = readRope(c, { headDim, maxPositions: targetPositions, partial: 0.9, interleaved: true });
  if (rope.type !== 'default')
    throw new UnsupportedError(`${c.where}: rope type ${JSON.stringify(rope.type)}; Moonshine has "default"`);
  const words = 'model.decoder.embed_tokens.weight';
  const tied = c.flag('tie_word_embeddings', true) && source.isTied('proj_out.weight', words);
  if (tied) source.ignore(/^proj_out\.weight$/);
  const half = (name: 'encoder' | 'decoder', layers: string, act: string, unsaid: string) => ({
    layers: c.count(c.has(`${name}_num_hidden_layers`) ? `${name}_num_hidden_layers` : layers, 6),
    activation: c.activation(c.has(`${name}_hidden_act`) ? `${name}_hidden_act` : act, unsaid),
  });
  const config: MoonshineConfig = {
    vocabSize: c.count('vocab_size', 32_768),
    ...{ width, heads, headDim, rope, targetPositions },
    inner: c.count('intermediate_size', 1152),
    encoder: half('encoder', 'encoder_num_hidden_layers', 'encoder_hidden_act', 'gelu'),
    decoder: half('decoder', 'num_hidden_layers', 'hidden_act', 'silu'),
    biases: c.flag('attention_bias', false),
  };
  return new Moonshine(source.builder, config, tied);
}
export const MOONSHINE_FAMILIES: readonly ModelRow[] = [{ kind: 'speech', types: ['moonshine'], build: moonshine }];

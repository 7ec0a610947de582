// T5 and its kin: an encoder and a decoder with learnt biases by distance, unscaled attention and norms without a mean.
import { KvCache } from '../nn/kv-cache.js';
import { type Embedding, embedding, linear, Linear, type RmsNorm, rmsNorm } from '../nn/layers.js';
import { type Layer, Module } from '../nn/module.js';
import type { VarBuilder } from '../nn/var-builder.js';
import { tensor } from '../tensor/create.js';
import type { Tensor } from '../tensor/tensor.js';
import type { Config } from './config.js';
import { type EncoderInput, type EncoderOutput, TextEncoder } from './encoder.js';
import type { ModelOptions, ModelRow } from './model-row.js';
import { FeedForward, GatedFeedForward, type MultiHead, multiHead } from './parts.js';
import { Seq2Seq, type Seq2SeqState } from './seq2seq.js';
import type { ModelSource } from './source.js';

interface T5Config {
  readonly vocabSize: number;
  readonly width: number;
  readonly headDim: number;
  readonly heads: number;
  readonly inner: number;
  readonly buckets: number;
  readonly maxDistance: number;
  readonly eps: number;
  readonly activation: string;
  readonly gated: boolean;
  /** Each layer has distances of its own (umt5). */
  readonly everyLayer: boolean;
}

/**
 * Distances by bucket: small ones each their own, larger ones by their logarithm; the encoder keeps both directions
 * apart.
 */
export function distanceBucket(distance: number, bidirectional: boolean, buckets: number, maxDistance: number): number {
  let [n, base] = [buckets, 0];
  let d = distance; // key's position less the query's
  if (bidirectional) {
    n = Math.floor(n / 2);
    if (d > 0) base = n;
    d = Math.abs(d);
  } else d = Math.max(0, -d);
  const exact = Math.floor(n / 2);
  if (d < exact) return base + d;
  const f = Math.fround;
  // In f32, as the trained models had it: a bucket's border moves with the rounding.
  const share = f(f(Math.log(f(d / exact))) / f(Math.log(maxDistance / exact)));
  return base + Math.min(n - 1, exact + Math.trunc(f(share * (n - exact))));
}

class T5Attention extends Module {
  readonly inner: MultiHead;
  readonly norm: RmsNorm;
  readonly distances: Embedding | undefined;
  constructor(vb: VarBuilder, name: string, c: T5Config, distances: boolean) {
    super();
    const at = vb.pp(name);
    const names = { q: 'q', k: 'k', v: 'v', out: 'o', biases: [] };
    this.inner = multiHead(at, names, c.width, c.heads, { inner: c.heads * c.headDim, scale: 1 });
    this.norm = rmsNorm(c.width, vb.pp('layer_norm'), c.eps);
    this.distances = distances ? embedding(c.buckets, c.heads, at.pp('relative_attention_bias')) : undefined;
  }
}

class T5Block extends Module {
  readonly self: T5Attention;
  readonly cross: T5Attention | undefined;
  readonly norm: RmsNorm;
  readonly mlp: Layer;
  constructor(vb: VarBuilder, c: T5Config, decoder: boolean, first: boolean) {
    super();
    this.self = new T5Attention(vb.pp('layer', 0), 'SelfAttention', c, first || c.everyLayer);
    this.cross = decoder ? new T5Attention(vb.pp('layer', 1), 'EncDecAttention', c, false) : undefined;
    const last = vb.pp('layer', decoder ? 2 : 1);
    this.norm = rmsNorm(c.width, last.pp('layer_norm'), c.eps);
    const dense = last.pp('DenseReluDense');
    const into = (name: string): Linear => linear(c.width, c.inner, dense.pp(name), { bias: false });
    const down = linear(c.inner, c.width, dense.pp('wo'), { bias: false });
    this.mlp = c.gated
      ? new GatedFeedForward(into('wi_0'), into('wi_1'), down, c.activation)
      : new FeedForward(into('wi'), down, c.activation);
  }
}

class T5Stack extends Module {
  readonly blocks: T5Block[];
  readonly norm: RmsNorm;
  readonly decoder: boolean;
  readonly #config: T5Config;
  constructor(vb: VarBuilder, c: T5Config, layers: number, decoder: boolean) {
    super();
    this.#config = c;
    this.decoder = decoder;
    this.blocks = Array.from({ length: layers }, (_, i) => new T5Block(vb.pp('block', i), c, decoder, i === 0));
    this.norm = rmsNorm(c.width, vb.pp('final_layer_norm'), c.eps);
  }
  /** What attention adds for the distance of query and key, (1, heads, queries, keys). */
  #bias(table: Embedding, start: number, queries: number, keys: number): Tensor {
    const c = this.#config;
    const ids = new Uint32Array(queries * keys);
    for (let q = 0; q < queries; q++)
      for (let k = 0; k < keys; k++)
        ids[q * keys + k] = distanceBucket(k - q - start, !this.decoder, c.buckets, c.maxDistance);
    const rows = table.forward(tensor(ids, { shape: [queries, keys], device: table.weight.device })); // (q, k, heads)
    return rows.permute([2, 0, 1]).unsqueeze(0);
  }
  forward(
    x: Tensor,
    options: {
      readonly hidden?: Tensor;
      readonly caches?: readonly KvCache[];
      readonly crossed?: readonly (readonly [Tensor, Tensor])[];
      readonly crossBias?: Tensor;
    },
  ): Tensor {
    const start = options.caches?.[0]?.length ?? 0;
    const t = x.shape[1];
    let bias: Tensor | undefined;
    let y = x;
    this.blocks.forEach((block, i) => {
      if (block.self.distances) {
        bias = this.#bias(block.self.distances, start, t, start + t);
        if (options.hidden) bias = bias.add(options.hidden);
      }
      const cache = options.caches?.[i];
      const normed = block.self.norm.forward(y);
      y = y.add(
        block.self.inner.forward(normed, {
          mask: (bias as Tensor).contiguous(),
          ...(this.decoder && { causal: true }),
          ...(cache && { cache }),
        }),
      );
      if (block.cross) {
        const ready = options.crossed?.[i];
        const mask = options.crossBias;
        y = y.add(
          block.cross.inner.forward(block.cross.norm.forward(y), { ...(ready && { ready }), ...(mask && { mask }) }),
        );
      }
      y = y.add(block.mlp.forward(block.norm.forward(y)));
    });
    return this.norm.forward(y);
  }
}

/** 0 for tokens, a large negative number for padding, (b, 1, 1, t). */
const hiddenKeys = (mask: Tensor | undefined, like: Tensor): Tensor | undefined =>
  mask?.ne(0).cast('f32').affine(1e9, -1e9).reshape([mask.shape[0], 1, 1, mask.shape[1]]).cast(like.dtype);

export class T5 extends Seq2Seq {
  readonly shared: Embedding;
  readonly encoder: T5Stack;
  readonly decoder: T5Stack;
  /** The embedding's own tensor where they are tied. */
  readonly head: Linear;
  readonly #scaled: number;

  constructor(
    vb: VarBuilder,
    c: T5Config,
    sizes: { layers: number; decoderLayers: number; tied: boolean; scaled: boolean },
  ) {
    super();
    this.shared = embedding(c.vocabSize, c.width, vb.pp('shared'));
    this.encoder = new T5Stack(vb.pp('encoder'), c, sizes.layers, false);
    this.decoder = new T5Stack(vb.pp('decoder'), c, sizes.decoderLayers, true);
    this.head = sizes.tied
      ? new Linear(this.shared.weight)
      : linear(c.width, c.vocabSize, vb.pp('lm_head'), { bias: false });
    this.#scaled = sizes.scaled ? 1 / Math.sqrt(c.width) : 1;
  }
  encode(ids: Tensor, mask?: Tensor): Tensor {
    const hidden = hiddenKeys(mask, this.shared.weight);
    return this.encoder.forward(this.shared.forward(ids), hidden ? { hidden } : {});
  }
  begin(encoded: Tensor, mask?: Tensor): Seq2SeqState {
    const crossed = this.decoder.blocks.map((b) => (b.cross as T5Attention).inner.keysAndValues(encoded));
    const crossBias = hiddenKeys(mask, encoded);
    return { caches: this.decoder.blocks.map(() => new KvCache()), crossed, ...(crossBias && { mask: crossBias }) };
  }
  decode(ids: Tensor, state: Seq2SeqState): Tensor {
    const x = this.decoder.forward(this.shared.forward(ids), {
      ...(state.caches && { caches: state.caches }),
      crossed: state.crossed,
      ...(state.mask && { crossBias: state.mask }),
    });
    return this.head.forward(this.#scaled === 1 ? x : x.affine(this.#scaled, 0));
  }
}

/** The half that reads, which makes vectors of texts by itself (Sentence-T5, GTR). */
class T5Encoder extends TextEncoder {
  readonly width: number;
  /** Distances have no end. */
  readonly maxTokens = Infinity;
  readonly words: Embedding;
  readonly encoder: T5Stack;
  constructor(vb: VarBuilder, c: T5Config, layers: number) {
    super();
    this.width = c.width;
    this.words = embedding(c.vocabSize, c.width, vb.pp(vb.has('shared.weight') ? 'shared' : 'encoder.embed_tokens'));
    this.encoder = new T5Stack(vb.pp('encoder'), c, layers, false);
  }
  forward(input: EncoderInput): EncoderOutput {
    this.checkInput(input);
    const hidden = hiddenKeys(input.mask, this.words.weight);
    return { hidden: this.encoder.forward(this.words.forward(input.ids), hidden ? { hidden } : {}) };
  }
}

function t5(c: Config, source: ModelSource, { encodes = false }: ModelOptions): T5 | T5Encoder {
  c.only('is_decoder', false);
  c.ignore('n_positions', 'output_past', 'task_specific_params', 'decoder_start_token_id');
  const name = c.activation('feed_forward_proj', 'relu', (v) => /^(?:gated-)?(\w+)$/.exec(v)?.[1]);
  const gated = c.flag('is_gated_act', c.text('feed_forward_proj', 'relu').startsWith('gated-'));
  const type = c.get('model_type');
  const width = c.count('d_model');
  const config: T5Config = {
    vocabSize: c.count('vocab_size'),
    width,
    headDim: c.count('d_kv'),
    heads: c.count('num_heads', undefined, 1),
    inner: c.count('d_ff'),
    buckets: c.count('relative_attention_num_buckets', 32),
    maxDistance: c.count('relative_attention_max_distance', 128),
    eps: c.number('layer_norm_epsilon', 1e-6),
    // The gated form was trained with the tanh approximation under the name of gelu; what is said apart counts.
    activation: c.activation('dense_act_fn', gated && name === 'gelu' ? 'gelu_new' : name),
    gated,
    everyLayer: type === 'umt5',
  };
  const layers = c.count('num_layers');
  const tied = c.flag('tie_word_embeddings', true);
  // Files of models with a head of their own say tied while they hold one: what is stored counts.
  const own = source.has('lm_head.weight');
  // T5 1.1 says so by not being tied; mT5 never scales what the head reads, uMT5 always does.
  const stated = c.has('scale_decoder_outputs') ? c.flag('scale_decoder_outputs') : tied;
  const scaled = type === 't5' ? stated : type === 'umt5';
  source.ignore(/^(encoder|decoder)\.embed_tokens\.weight$|EncDecAttention\.relative_attention_bias\.weight$/);
  if (own) c.ignore('tie_word_embeddings');
  if (encodes) {
    c.ignore('num_decoder_layers', 'scale_decoder_outputs');
    source.ignore(/^(shared|lm_head|decoder)\./);
    return new T5Encoder(source.builder, config, layers);
  }
  return new T5(source.builder, config, {
    layers,
    decoderLayers: c.count('num_decoder_layers', layers),
    tied: !own,
    scaled,
  });
}
export const T5_FAMILIES: readonly ModelRow[] = [{ kind: 'seq2seq', types: ['t5', 'mt5', 'umt5'], build: t5 }];

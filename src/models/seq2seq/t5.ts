// T5 and its kin: an encoder and a decoder with learnt biases by distance, unscaled attention and norms without a mean;
// Switch (layers of experts) and LongT5 (an encoder that sees its surroundings, and perhaps sums of blocks).
import type { DType } from '../../base/dtype.js';
import type { KvCache } from '../../nn/kv-cache.js';
import { type Embedding, embedding, linear, Linear, type RmsNorm, rmsNorm } from '../../nn/layers.js';
import { type Layer, Module } from '../../nn/module.js';
import type { VarBuilder } from '../../nn/var-builder.js';
import { tensor } from '../../tensor/create.js';
import type { Tensor } from '../../tensor/tensor.js';
import type { Config } from '../files/config.js';
import {
  classifies,
  classifiesTokens,
  type EncoderInput,
  type EncoderOutput,
  findsAnswers,
  refuseHeads,
  TextEncoder,
} from '../encoders/encoder.js';
import { tokenHead } from '../encoders/token-head.js';
import type { ModelKind, ModelOptions, ModelRow } from '../model-row.js';
import { FeedForward, GatedFeedForward, type MultiHead, multiHead } from '../parts.js';
import { type RewritingEncoder, rewritingEncoder } from './rewriting-encoder.js';
import { freshAnswer, Seq2Seq, type Seq2SeqState } from './seq2seq.js';
import type { ModelSource } from '../files/source.js';
import { SwitchExperts, type SwitchConfig, sparseLayers } from './switch-experts.js';
import { type BlockSums, blockSums, nearBias, sumsOf } from './t5-surroundings.js';

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
  /** Some layers' feed-forwards are mixtures, of which a token has one (Switch). */
  readonly experts?: SwitchConfig;
  /** The encoder's tokens see those at most so far away (LongT5) and, where there are any, sums of so many tokens. */
  readonly surroundings?: { readonly radius: number; readonly block?: number };
}
/** What a family calls the encoder's attention and its feed-forward. */
const selfName = ({ surroundings: s }: T5Config, decoder: boolean): string =>
  s && !decoder ? (s.block === undefined ? 'LocalSelfAttention' : 'TransientGlobalSelfAttention') : 'SelfAttention';

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
  /** Of sums of blocks: their norm, and their distances in blocks. */
  readonly sumNorm: RmsNorm | undefined;
  readonly sumDistances: Embedding | undefined;
  constructor(vb: VarBuilder, name: string, c: T5Config, distances: boolean) {
    super();
    const at = vb.pp(name);
    const names = { q: 'q', k: 'k', v: 'v', out: 'o', biases: [] };
    this.inner = multiHead(at, names, c.width, c.heads, { inner: c.heads * c.headDim, scale: 1 });
    this.norm = rmsNorm(c.width, vb.pp('layer_norm'), c.eps);
    this.distances = distances ? embedding(c.buckets, c.heads, at.pp('relative_attention_bias')) : undefined;
    if (name !== 'TransientGlobalSelfAttention') return;
    this.sumNorm = rmsNorm(c.width, at.pp('global_input_layer_norm'), c.eps);
    if (distances) this.sumDistances = embedding(c.buckets, c.heads, at.pp('global_relative_attention_bias'));
  }
}

class T5Block extends Module {
  readonly self: T5Attention;
  readonly cross: T5Attention | undefined;
  readonly norm: RmsNorm;
  readonly mlp: Layer;
  constructor(vb: VarBuilder, c: T5Config, decoder: boolean, index: number) {
    super();
    this.self = new T5Attention(vb.pp('layer', 0), selfName(c, decoder), c, index === 0 || c.everyLayer);
    this.cross = decoder ? new T5Attention(vb.pp('layer', 1), 'EncDecAttention', c, false) : undefined;
    const last = vb.pp('layer', decoder ? 2 : 1);
    this.norm = rmsNorm(c.width, last.pp('layer_norm'), c.eps);
    const dense = last.pp(c.experts ? 'mlp' : 'DenseReluDense');
    if (c.experts?.sparse[decoder ? 1 : 0](index)) {
      this.mlp = new SwitchExperts(dense, c.experts, c.width, c.inner, c.activation);
      return;
    }
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
    this.blocks = Array.from({ length: layers }, (_, i) => new T5Block(vb.pp('block', i), c, decoder, i));
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
  /** What is added beside that for sums of blocks, (b, heads, queries, sums). */
  #sumBias(table: Embedding, sums: BlockSums): Tensor {
    const { buckets, maxDistance } = this.#config;
    const ids = sums.distances.map((d) => distanceBucket(d, true, buckets, maxDistance));
    const shape = [sums.batch, sums.time, sums.count];
    const rows = table.forward(tensor(Uint32Array.from(ids), { shape, device: table.weight.device }));
    return rows
      .permute([0, 3, 1, 2])
      .add(
        tensor(sums.hidden, { shape: [sums.batch, 1, ...shape.slice(1)], device: table.weight.device }).cast(
          rows.dtype,
        ),
      );
  }
  forward(
    x: Tensor,
    options: {
      /** Which tokens there are, (b, t). */
      readonly mask?: Tensor;
      readonly hidden?: Tensor;
      readonly caches?: readonly KvCache[];
      readonly crossed?: readonly (readonly [Tensor, Tensor])[];
      readonly crossBias?: Tensor;
    },
  ): Tensor {
    const start = options.caches?.[0]?.length ?? 0;
    const [b, t] = x.shape;
    const near = this.decoder ? undefined : this.#config.surroundings;
    const found = near?.block === undefined ? undefined : blockSums(b, t, near.block, options.mask);
    const sums = found && found.count > 0 ? found : undefined;
    let bias: Tensor | undefined;
    let y = x;
    this.blocks.forEach((block, i) => {
      if (block.self.distances) {
        bias = this.#bias(block.self.distances, start, t, start + t);
        if (options.hidden) bias = bias.add(options.hidden);
        if (near) bias = bias.add(nearBias(t, near.radius, bias));
        if (sums) {
          const beside = this.#sumBias(block.self.sumDistances as Embedding, sums);
          bias = bias.broadcastTo([b, ...bias.shape.slice(1)]).cat([beside], 3);
        }
      }
      const cache = options.caches?.[i];
      const normed = block.self.norm.forward(y);
      y = y.add(
        block.self.inner.forward(normed, {
          ...(sums && { context: normed.cat([(block.self.sumNorm as RmsNorm).forward(sumsOf(normed, sums))], 1) }),
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
const hiddenKeys = (mask: Tensor | undefined, { dtype }: { readonly dtype: DType }): Tensor | undefined =>
  mask?.ne(0).cast('f32').affine(1e9, -1e9).reshape([mask.shape[0], 1, 1, mask.shape[1]]).cast(dtype);

export class T5 extends Seq2Seq {
  readonly shared: Embedding;
  /** The table that answers are read from, where it is another. */
  readonly answers: Embedding;
  readonly encoder: T5Stack;
  readonly decoder: T5Stack;
  /** The embedding's own tensor where they are tied. */
  readonly head: Linear;
  readonly #scaled: number;

  constructor(
    vb: VarBuilder,
    c: T5Config,
    sizes: { layers: number; decoderLayers: number; tied: boolean; scaled: boolean },
    tables: readonly [reading: string, writing: string] = ['shared', 'shared'],
  ) {
    super();
    this.shared = embedding(c.vocabSize, c.width, vb.pp(tables[0]));
    this.answers = tables[1] === tables[0] ? this.shared : embedding(c.vocabSize, c.width, vb.pp(tables[1]));
    this.encoder = new T5Stack(vb.pp('encoder'), c, sizes.layers, false);
    this.decoder = new T5Stack(vb.pp('decoder'), c, sizes.decoderLayers, true);
    this.head = sizes.tied
      ? new Linear(this.answers.weight)
      : linear(c.width, c.vocabSize, vb.pp('lm_head'), { bias: false });
    this.#scaled = sizes.scaled ? 1 / Math.sqrt(c.width) : 1;
  }
  encode(ids: Tensor, mask?: Tensor): Tensor {
    const hidden = hiddenKeys(mask, this.shared);
    return this.encoder.forward(this.shared.forward(ids), { ...(mask && { mask }), ...(hidden && { hidden }) });
  }
  begin(encoded: Tensor, mask?: Tensor): Seq2SeqState {
    const crosses = this.decoder.blocks.map((b) => (b.cross as T5Attention).inner);
    return freshAnswer(crosses, encoded, hiddenKeys(mask, encoded));
  }
  /** What was written, (b, t, width). */
  hidden(ids: Tensor, state: Seq2SeqState): Tensor {
    return this.decoder.forward(this.answers.forward(ids), {
      ...(state.caches && { caches: state.caches }),
      crossed: state.crossed,
      ...(state.mask && { crossBias: state.mask }),
    });
  }
  decode(ids: Tensor, state: Seq2SeqState): Tensor {
    const x = this.hidden(ids, state);
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
    const hidden = hiddenKeys(input.mask, this.words);
    const { mask, ids } = input;
    return {
      hidden: this.encoder.forward(this.words.forward(ids), { ...(mask && { mask }), ...(hidden && { hidden }) }),
    };
  }
}

function switchConfig(c: Config): SwitchConfig {
  c.only('router_dtype', 'float32');
  c.ignore('router_ignore_padding_tokens', 'add_router_probs', 'encoder_sparse_step', 'decoder_sparse_step');
  const layers = c.count('num_layers');
  return {
    count: c.count('num_experts', 8, 1),
    capacity: c.count('expert_capacity', 64),
    bias: c.flag('router_bias', false),
    sparse: [
      sparseLayers(layers, c.count('num_sparse_encoder_layers', 3)),
      sparseLayers(c.count('num_decoder_layers', layers), c.count('num_sparse_decoder_layers', 3)),
    ],
  };
}
function surroundingsOf(c: Config): T5Config['surroundings'] {
  c.only('encoder_attention_type', 'local', 'transient-global');
  const sums = c.text('encoder_attention_type', 'local') === 'transient-global';
  const [radius, block] = [c.count('local_radius', 127, 1), c.count('global_block_size', 16, 1)];
  return { radius, ...(sums && { block }) };
}

/** Those that transformers gives heads. */
const HEADED = ['t5', 'mt5', 'umt5'];
const reads = (c: Config): boolean => classifies(c) || findsAnswers(c);
/** Files with a head are an encoder's: texts in, classes or ends of answers out. */
const sorts = (c: Config): ModelKind => (reads(c) || classifiesTokens(c) ? 'encoder' : 'seq2seq');

function t5(c: Config, source: ModelSource, { encodes = false }: ModelOptions): T5 | T5Encoder | RewritingEncoder {
  const type = c.text('model_type');
  if (encodes || !HEADED.includes(type))
    refuseHeads(c, 'QuestionAnswering', 'TokenClassification', 'SequenceClassification');
  c.only('is_decoder', false);
  c.only('add_cross_attention', false);
  c.ignore('n_positions', 'output_past', 'task_specific_params', 'decoder_start_token_id');
  const name = c.activation('feed_forward_proj', 'relu', (v) => /^(?:gated-)?(\w+)$/.exec(v)?.[1]);
  const gated = c.flag('is_gated_act', c.text('feed_forward_proj', 'relu').startsWith('gated-'));
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
    ...(type === 'switch_transformers' && { experts: switchConfig(c) }),
    ...(type === 'longt5' && { surroundings: surroundingsOf(c) }),
  };
  const layers = c.count('num_layers');
  const tied = c.flag('tie_word_embeddings', true);
  // Files of models with a head of their own say tied while they hold one: what is stored counts.
  const own = source.has('lm_head.weight');
  // T5 1.1 says so by not being tied; mT5 never scales what the head reads, uMT5 always does.
  const stated = c.has('scale_decoder_outputs') ? c.flag('scale_decoder_outputs') : tied;
  const scaled = type === 'mt5' ? false : type === 'umt5' || stated;
  source.ignore(
    /^(transformer\.)?(encoder|decoder)\.embed_tokens\.weight$|EncDecAttention\.relative_attention_bias\.weight$/,
  );
  if (own) c.ignore('tie_word_embeddings');
  if (encodes) {
    c.ignore('num_decoder_layers', 'scale_decoder_outputs');
    source.ignore(/^(shared|lm_head|decoder)\./);
    return new T5Encoder(source.builder, config, layers);
  }
  // Heads for whole texts and for tokens stand beside the model, not in its place.
  const prefix = classifies(c) || classifiesTokens(c) ? 'transformer.' : '';
  const vb = prefix ? source.builder.pp('transformer') : source.builder;
  if (classifiesTokens(c)) {
    c.ignore('num_decoder_layers', 'scale_decoder_outputs');
    const encoder = new T5Encoder(vb, config, layers);
    encoder.tokens = tokenHead(c, source, { eps: 0, activation: 'identity' });
    return encoder;
  }
  // One table of words, unless files hold others: Switch without tied words has one a side.
  const table = (side: string): string =>
    source.isTied(`${prefix}${side}.embed_tokens.weight`, `${prefix}shared.weight`) ? 'shared' : `${side}.embed_tokens`;
  const tables = [table('encoder'), table('decoder')] as const;
  source.ignore(/^(transformer\.)?shared\.weight$/);
  const sizes = { layers, decoderLayers: c.count('num_decoder_layers', layers), tied: !own, scaled };
  const made = new T5(vb, config, sizes, tables);
  if (!reads(c)) return made;
  const padding = c.count('pad_token_id', 0);
  const [start, end] = [c.count('decoder_start_token_id', padding), c.count('eos_token_id', 1)];
  return rewritingEncoder(c, source, made, { width, room: Infinity, start, padding, end });
}
const TYPES = ['t5', 'mt5', 'umt5', 'switch_transformers', 'longt5'];
export const T5_FAMILIES: readonly ModelRow[] = [{ kind: 'seq2seq', types: TYPES, kindOf: sorts, build: t5 }];

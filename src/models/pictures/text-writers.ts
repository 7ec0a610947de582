// Decoders that write what a picture shows: TrOCR's, mBART's and BART's, BERT's and RoBERTa's, GPT-2's with attention to
// the picture between the other two.
import { ArgumentError, UnsupportedError } from '../../base/errors.js';
import { type Embedding, embedding, type LayerNorm, layerNorm, Linear } from '../../nn/layers.js';
import { Module } from '../../nn/module.js';
import type { VarBuilder } from '../../nn/var-builder.js';
import type { Tensor } from '../../tensor/tensor.js';
import { TokenHead } from '../encoders/token-head.js';
import type { Config } from '../files/config.js';
import type { ModelSource } from '../files/source.js';
import { chunks, FeedForward, madeOf, MultiHead, rowTable } from '../parts.js';
import { BART_KINDS, type BartKind, BartStack } from '../seq2seq/bart.js';
import type { Seq2SeqState } from '../seq2seq/seq2seq.js';
import { CrossBertLayer } from './blip.js';

/** What writes: its attention to the picture by layer, and logits (b, t, vocabulary) of the next tokens. */
export abstract class TextWriter extends Module {
  abstract readonly crosses: readonly MultiHead[];
  /** How wide its vectors are, and how many tokens it has positions for. */
  abstract readonly width: number;
  abstract readonly room: number;
  abstract decode(ids: Tensor, state: Seq2SeqState): Tensor;
}
/** Where the answer's next tokens begin, which have to have positions. */
function startOf(ids: Tensor, state: Seq2SeqState, room: number): number {
  const [start, t] = [state.caches?.[0]?.length ?? 0, ids.shape[1]];
  if (start + t > room) throw new ArgumentError(`image-to-text: ${start + t} tokens, the model has ${room} positions`);
  return start;
}
const own = (state: Seq2SeqState, i: number): object => ({
  causal: true,
  ...(state.caches && { cache: state.caches[i] }),
});
/** A head's weights: the words' own table, where a config ties them and the file does not hold others. */
function headOf(c: Config, source: ModelSource, words: Embedding, head: string, table: string, tied = true): Linear {
  const same = c.flag('tie_word_embeddings', tied) && source.isTied(head, table);
  if (same) source.ignore(new Set([head]));
  return new Linear(same ? words.weight : source.builder.get([...words.weight.shape], head));
}

// ---- BART's kin ----

class StackWriter extends TextWriter {
  readonly stack: BartStack;
  readonly head: Linear;
  readonly width: number;
  constructor(stack: BartStack, head: Linear, width: number) {
    super();
    this.stack = stack;
    this.head = head;
    this.width = width;
  }
  get crosses(): MultiHead[] {
    return this.stack.crosses;
  }
  get room(): number {
    return this.stack.room;
  }
  decode(ids: Tensor, state: Seq2SeqState): Tensor {
    return this.head.forward(this.stack.write(ids, state));
  }
}
/** TrOCR's switches of what BART's kin differ by. */
function trocrKind(c: Config): BartKind {
  const learnt = c.flag('use_learned_position_embeddings', true);
  if (!learnt) c.only('pad_token_id', 1);
  return {
    before: false,
    normed: c.flag('layernorm_embedding', true),
    positions: learnt ? 'learnt from the third' : 'counted',
  };
}
function stackWriter(c: Config, source: ModelSource, vb: VarBuilder, type: string): StackWriter {
  const trocr = type === 'trocr';
  const kind = trocr ? trocrKind(c) : BART_KINDS[type];
  c.ignore('encoder_layers', 'encoder_attention_heads', 'encoder_ffn_dim', 'encoder_layerdrop', 'decoder_layerdrop');
  c.ignore('init_std', 'num_hidden_layers', 'classif_dropout', 'output_past', 'force_bos_token_to_be_generated');
  // Old files spell out what their type stands for.
  c.only('normalize_before', kind.before);
  c.only('add_final_layer_norm', kind.before);
  c.only('normalize_embedding', kind.normed !== false);
  c.only('static_position_embeddings', false);
  c.only('add_bias_logits', false);
  const width = c.count('d_model', undefined, 1);
  const read = trocr ? c.optional('cross_attention_hidden_size') : undefined;
  const words = embedding(c.count('vocab_size'), width, vb.pp('model.decoder.embed_tokens'));
  const config = {
    width,
    scale: c.flag('scale_embedding', false) ? Math.sqrt(width) : 1,
    activation: c.activation('activation_function', 'gelu'),
    padding: c.count('pad_token_id', 1),
    positions: c.count('max_position_embeddings', trocr ? 512 : 1024),
    layers: c.count('decoder_layers'),
    heads: c.count('decoder_attention_heads', undefined, 1),
    inner: c.count('decoder_ffn_dim'),
    ...(read !== undefined && { read }),
  };
  const stack = new BartStack(vb.pp('model.decoder'), config, kind, words, true);
  const name = trocr ? 'output_projection' : 'lm_head';
  const head = headOf(c, source, words, `decoder.${name}.weight`, 'decoder.model.decoder.embed_tokens.weight');
  return new StackWriter(stack, head, width);
}

// ---- BERT's kin ----

class BertWriter extends TextWriter {
  readonly words: Embedding;
  readonly positions: Embedding;
  /** Every token has the first of these. */
  readonly types: Embedding;
  readonly norm: LayerNorm;
  readonly layers: CrossBertLayer[];
  readonly head: TokenHead;
  readonly width: number;
  /** Positions count the tokens that are not this one, from this number on. */
  readonly #padded: number | undefined;
  constructor(c: Config, source: ModelSource, vb: VarBuilder, type: string) {
    super();
    c.only('position_embedding_type', 'absolute');
    c.only('embedding_size', null);
    c.flag('tie_word_embeddings', true); // for the head, which looks at what is stored
    const width = (this.width = c.count('hidden_size', undefined, 1));
    const bert = type === 'bert';
    this.#padded = bert ? undefined : c.count('pad_token_id', 1);
    const eps = c.number('layer_norm_eps', 1e-12);
    const config = {
      ...{ width, eps, layers: c.count('num_hidden_layers'), heads: c.count('num_attention_heads', undefined, 1) },
      ...{ inner: c.count('intermediate_size'), activation: c.activation('hidden_act', 'gelu') },
    };
    const [body, e] = [vb.pp(type), vb.pp(type, 'embeddings')];
    this.words = embedding(c.count('vocab_size'), width, e.pp('word_embeddings'));
    this.positions = rowTable(c.count('max_position_embeddings'), width, e.pp('position_embeddings'));
    this.types = rowTable(c.count('type_vocab_size', 2, 1), width, e.pp('token_type_embeddings'));
    this.norm = layerNorm(width, e.pp('LayerNorm'), { eps });
    this.layers = Array.from({ length: config.layers }, (_, i) => {
      return new CrossBertLayer(body.pp('encoder.layer', i), config);
    });
    const at = bert ? 'decoder.cls.predictions' : 'decoder.lm_head';
    const places = bert
      ? { dense: `${at}.transform.dense`, norm: `${at}.transform.LayerNorm` }
      : { dense: `${at}.dense`, norm: `${at}.layer_norm` };
    const style = { eps, activation: bert ? config.activation : 'gelu', words: this.words.weight };
    this.head = new TokenHead(c, source, 'words', { ...places, out: `${at}.decoder`, bias: `${at}.bias` }, style);
    source.ignore(/^decoder\.(bert|roberta)\.(embeddings\.position_ids$|pooler\.)/);
    source.ignore(new Set([`${at}.bias`, `${at}.decoder.bias`]));
  }
  get crosses(): MultiHead[] {
    return this.layers.map((layer) => layer.cross);
  }
  get room(): number {
    return this.positions.weight.shape[0] - (this.#padded === undefined ? 0 : this.#padded + 1);
  }
  /** Vectors of positions from `start` on, (t, width) or (b, t, width). */
  #places(ids: Tensor, start: number): Tensor {
    const [b, t] = ids.shape;
    if (this.#padded === undefined) return this.positions.weight.narrow(0, start, t);
    const real = ids.ne(this.#padded).cast('f32');
    const rows = real.cumsum(1).affine(1, start).mul(real).affine(1, this.#padded).cast('u32');
    return this.positions.weight.indexSelect(0, rows.reshape([b * t])).reshape([b, t, -1]);
  }
  decode(ids: Tensor, state: Seq2SeqState): Tensor {
    const start = startOf(ids, state, this.room);
    const sum = this.words
      .forward(ids)
      .add(this.types.weight.narrow(0, 0, 1))
      .add(this.#places(ids, start));
    const x = this.layers.reduce(
      (h, layer, i) => layer.forward(h, own(state, i), { ready: state.crossed[i] }),
      this.norm.forward(sum),
    );
    return this.head.forward(x);
  }
}

// ---- GPT-2 ----

/** GPT-2 stores its products the other way round. */
function turned(vb: VarBuilder, from: number, to: number): Linear {
  return new Linear(
    madeOf(vb, (read) => read([from, to], 'weight').transpose(0, 1).contiguous()),
    vb.get([to], 'bias'),
  );
}
class GptLayer extends Module {
  readonly norm1: LayerNorm;
  readonly self: MultiHead;
  readonly crossNorm: LayerNorm;
  readonly cross: MultiHead;
  readonly norm2: LayerNorm;
  readonly mlp: FeedForward;
  constructor(vb: VarBuilder, c: GptConfig, scale: number) {
    super();
    const { width, heads } = c;
    const norm = (name: string): LayerNorm => layerNorm(width, vb.pp(name), { eps: c.eps });
    const [q, k, v] = chunks(turned(vb.pp('attn.c_attn'), width, 3 * width), 3);
    this.norm1 = norm('ln_1');
    this.self = new MultiHead({ q, k, v, out: turned(vb.pp('attn.c_proj'), width, width) }, heads, scale);
    const at = vb.pp('crossattention');
    const [seenK, seenV] = chunks(turned(at.pp('c_attn'), width, 2 * width), 2);
    const [asked, out] = ['q_attn', 'c_proj'].map((name) => turned(at.pp(name), width, width));
    this.crossNorm = norm('ln_cross_attn');
    this.cross = new MultiHead({ q: asked, k: seenK, v: seenV, out }, heads, scale);
    this.norm2 = norm('ln_2');
    const [up, down] = [turned(vb.pp('mlp.c_fc'), width, c.inner), turned(vb.pp('mlp.c_proj'), c.inner, width)];
    this.mlp = new FeedForward(up, down, c.activation);
  }
  forward(x: Tensor, state: Seq2SeqState, i: number): Tensor {
    const y = x.add(this.self.forward(this.norm1.forward(x), own(state, i)));
    const z = y.add(this.cross.forward(this.crossNorm.forward(y), { ready: state.crossed[i] }));
    return z.add(this.mlp.forward(this.norm2.forward(z)));
  }
}
interface GptConfig {
  readonly width: number;
  readonly heads: number;
  readonly inner: number;
  readonly eps: number;
  readonly activation: string;
}
class GptWriter extends TextWriter {
  readonly words: Embedding;
  readonly positions: Embedding;
  readonly layers: GptLayer[];
  readonly norm: LayerNorm;
  readonly head: Linear;
  readonly width: number;
  constructor(c: Config, source: ModelSource, vb: VarBuilder) {
    super();
    c.ignore('reorder_and_upcast_attn', 'n_ctx');
    const width = (this.width = c.count('n_embd', undefined, 1));
    const heads = c.count('n_head', undefined, 1);
    const config: GptConfig = {
      ...{ width, heads, inner: c.optional('n_inner') ?? 4 * width, eps: c.number('layer_norm_epsilon', 1e-5) },
      activation: c.activation('activation_function', 'gelu_new'),
    };
    const scale = c.flag('scale_attn_weights', true) ? 1 / Math.sqrt(width / heads) : 1;
    const fades = c.flag('scale_attn_by_inverse_layer_idx', false);
    const at = vb.pp('transformer');
    this.words = embedding(c.count('vocab_size'), width, at.pp('wte'));
    this.positions = rowTable(c.count('n_positions', 1024, 1), width, at.pp('wpe'));
    this.layers = Array.from({ length: c.count('n_layer') }, (_, i) => {
      return new GptLayer(at.pp('h', i), config, fades ? scale / (i + 1) : scale);
    });
    this.norm = layerNorm(width, at.pp('ln_f'), { eps: config.eps });
    this.head = headOf(c, source, this.words, 'decoder.lm_head.weight', 'decoder.transformer.wte.weight');
    // Masks that old files carry.
    source.ignore(/^decoder\.transformer\.h\.\d+\.(attn|crossattention)\.(masked_)?bias$/);
  }
  get crosses(): MultiHead[] {
    return this.layers.map((layer) => layer.cross);
  }
  get room(): number {
    return this.positions.weight.shape[0];
  }
  decode(ids: Tensor, state: Seq2SeqState): Tensor {
    const start = startOf(ids, state, this.room);
    const x = this.words.forward(ids).add(this.positions.weight.narrow(0, start, ids.shape[1]));
    const y = this.layers.reduce((h, layer, i) => layer.forward(h, state, i), x);
    return this.head.forward(this.norm.forward(y));
  }
}

type Make = (c: Config, source: ModelSource, vb: VarBuilder, type: string) => TextWriter;
const bert: Make = (c, source, vb, type) => new BertWriter(c, source, vb, type);
const WRITERS: Readonly<Record<string, Make>> = {
  ...{ trocr: stackWriter, mbart: stackWriter, bart: stackWriter, bert, roberta: bert },
  gpt2: (c, source, vb) => new GptWriter(c, source, vb),
};
/** The decoder that a config names. */
export function textWriter(c: Config, source: ModelSource): TextWriter {
  const type = c.text('model_type');
  if (!Object.hasOwn(WRITERS, type))
    throw new UnsupportedError(
      `${c.where}: decoder.model_type is ${JSON.stringify(type)}; served are ${Object.keys(WRITERS).join(', ')}`,
    );
  c.ignoreBooks();
  // Without these, transformers would not show it the picture.
  c.only('is_decoder', true);
  c.only('add_cross_attention', true);
  return WRITERS[type](c, source, source.builder.pp('decoder'), type);
}

// BART and its kin, encoder-decoders with biases everywhere: PLBART and MVP (the same), mBART (norms before), Marian
// (translation; positions by sines), Pegasus (both of these), M2M-100 and NLLB (positions that do not count padding),
// Blenderbot and its small one, LED (an encoder that sees its surroundings), Pegasus X (blocks, and tokens that see
// all).
import { ArgumentError, FormatError } from '../../base/errors.js';
import { type Embedding, embedding, type LayerNorm, layerNorm, Linear } from '../../nn/layers.js';
import { Module } from '../../nn/module.js';
import type { VarBuilder } from '../../nn/var-builder.js';
import { tensor } from '../../tensor/create.js';
import { keep, scope } from '../../tensor/scope.js';
import type { Tensor } from '../../tensor/tensor.js';
import { requireTable } from '../decoder/rope.js';
import { type RewritingEncoder, rewritingEncoder } from './rewriting-encoder.js';
import type { Config } from '../files/config.js';
import { classifies, findsAnswers, refuseHeads } from '../encoders/encoder.js';
import type { ModelKind, ModelRow } from '../model-row.js';
import {
  type AttendOptions,
  type FeedForward,
  feedForward,
  keysMask,
  type MultiHead,
  multiHead,
  type MultiHeadNames,
  reshaped,
} from '../parts.js';
import { freshAnswer, Seq2Seq, type Seq2SeqState } from './seq2seq.js';
import { type BlocksConfig, Everywhere } from './pegasus-x.js';
import type { ModelSource } from '../files/source.js';

/** A block of an encoder or, with attention to what was read, of a decoder; Whisper's is the same. */
export interface CrossBlockConfig {
  readonly width: number;
  readonly heads: number;
  readonly inner: number;
  readonly activation: string;
  readonly decoder: boolean;
  /** Norms stand before attention and feed-forward, not behind the additions. */
  readonly before: boolean;
  /** Which products of attention have a bias; default all. */
  readonly biases?: readonly ('q' | 'k' | 'v' | 'out')[];
  /** The products of attention to the text itself, where they have other names. */
  readonly selfNames?: MultiHeadNames;
  /** How wide what was read is, where it is not as wide as the text. */
  readonly read?: number;
}

export class CrossBlock extends Module {
  readonly norm1: LayerNorm;
  readonly self: MultiHead;
  readonly crossNorm: LayerNorm | undefined;
  readonly cross: MultiHead | undefined;
  readonly norm2: LayerNorm;
  readonly mlp: FeedForward;
  readonly #before: boolean;
  constructor(vb: VarBuilder, c: CrossBlockConfig) {
    super();
    const names = { q: 'q_proj', k: 'k_proj', v: 'v_proj', out: 'out_proj', ...(c.biases && { biases: c.biases }) };
    const norm = (name: string): LayerNorm => layerNorm(c.width, vb.pp(name));
    this.#before = c.before;
    this.norm1 = norm('self_attn_layer_norm');
    this.self = multiHead(vb.pp('self_attn'), c.selfNames ?? names, c.width, c.heads);
    this.crossNorm = c.decoder ? norm('encoder_attn_layer_norm') : undefined;
    const across = c.read === undefined ? {} : { read: c.read };
    this.cross = c.decoder ? multiHead(vb.pp('encoder_attn'), names, c.width, c.heads, across) : undefined;
    this.norm2 = norm('final_layer_norm');
    this.mlp = feedForward(vb, ['fc1', 'fc2'], c.width, c.inner, c.activation);
  }
  #step(x: Tensor, norm: LayerNorm, f: (x: Tensor) => Tensor): Tensor {
    return this.#before ? x.add(f(norm.forward(x))) : norm.forward(x.add(f(x)));
  }
  forward(x: Tensor, self: AttendOptions, across?: AttendOptions): Tensor {
    const { cross, crossNorm } = this;
    let y = this.#step(x, this.norm1, (h) => this.self.forward(h, self));
    if (cross && crossNorm && across) y = this.#step(y, crossNorm, (h) => cross.forward(h, across));
    return this.#step(y, this.norm2, (h) => this.mlp.forward(h));
  }
}

/** What tells the families apart. */
export interface BartKind {
  /** Norms before, and one at the end of each stack. */
  readonly before: boolean;
  /** The sum of words and positions is normed; in a decoder perhaps the words alone. */
  readonly normed: boolean | 'words of answers';
  /**
   * Learnt vectors of positions, from the third row on or from the first; or sines and cosines, which files may leave
   * out: of all positions, in speeds down to one in ten thousand or to almost that, or of those that are not padding,
   * counted from behind its number on.
   */
  readonly positions: 'learnt from the third' | 'learnt' | 'sines' | 'spread sines' | 'counted';
  /** Words are multiplied by the root of their width where a config does not say. */
  readonly scaled?: boolean;
  /** Products of attention have no biases. */
  readonly bare?: boolean;
}
const BART: BartKind = { before: false, normed: true, positions: 'learnt from the third' };
export const BART_KINDS: Readonly<Record<string, BartKind>> = {
  bart: BART,
  mvp: BART,
  plbart: { ...BART, scaled: true },
  mbart: { ...BART, before: true },
  marian: { before: false, normed: false, positions: 'sines' },
  pegasus: { before: true, normed: false, positions: 'sines' },
  m2m_100: { before: true, normed: false, positions: 'counted', scaled: true },
  blenderbot: { before: true, normed: false, positions: 'learnt' },
  led: { before: false, normed: true, positions: 'learnt' },
  pegasus_x: { before: true, normed: false, positions: 'spread sines', scaled: true, bare: true },
  'blenderbot-small': { before: false, normed: 'words of answers', positions: 'learnt' },
};
/** Rows before the first position's. */
const OFFSETS = { 'learnt from the third': 2, learnt: 0, sines: 0, 'spread sines': 0, counted: 2 } as const;

/** Sines in the first half of a row, cosines in the second. */
function sinePositions(count: number, width: number, like: Tensor): Tensor {
  requireTable(count, width);
  const half = Math.ceil(width / 2);
  const data = Float32Array.from({ length: count * width }, (_, i) => {
    const [position, at] = [Math.floor(i / width), i % width];
    const pair = at < half ? at : at - half;
    const angle = position / 10000 ** ((2 * pair) / width);
    return at < half ? Math.sin(angle) : Math.cos(angle);
  });
  return keep(scope(() => tensor(data, { shape: [count, width], device: like.device }).cast(like.dtype)));
}

/** The same for positions that are counted: speeds from 1 to one in ten thousand, and zeros at padding's number. */
function countedPositions(count: number, width: number, padding: number, like: Tensor): Tensor {
  requireTable(count, width);
  const half = Math.floor(width / 2);
  const data = Float32Array.from({ length: count * width }, (_, i) => {
    const [position, at] = [Math.floor(i / width), i % width];
    if (position === padding || at >= 2 * half) return 0;
    const angle = position * Math.exp((-(at % half) * Math.log(10000)) / (half - 1));
    return at < half ? Math.sin(angle) : Math.cos(angle);
  });
  return keep(scope(() => tensor(data, { shape: [count, width], device: like.device }).cast(like.dtype)));
}

export interface StackConfig extends Omit<CrossBlockConfig, 'before' | 'decoder'> {
  readonly layers: number;
  /** How far tokens see, by layer. */
  readonly windows?: readonly number[];
  /** Tokens that see all and are seen by all, beside blocks of tokens that see each other. */
  readonly blocks?: BlocksConfig;
  readonly positions: number;
  readonly scale: number;
  readonly padding: number;
}

export class BartStack extends Module {
  readonly words: Embedding;
  readonly positions: Tensor;
  readonly inNorm: LayerNorm | undefined;
  readonly blocks: CrossBlock[];
  readonly outNorm: LayerNorm | undefined;
  readonly #scale: number;
  readonly #offset: number;
  /** Padding's number, where it has no position. */
  readonly #padding: number | undefined;
  readonly #wordsNormed: boolean;
  readonly windows: readonly number[] | undefined;
  /** Those that see all, and their norms by layer. */
  readonly everywhere: Everywhere | undefined;
  constructor(vb: VarBuilder, c: StackConfig, kind: BartKind, words: Embedding, decoder: boolean) {
    super();
    this.words = words;
    this.windows = c.windows;
    this.everywhere = c.blocks && new Everywhere(vb, c.blocks, c.width, c.layers);
    this.#scale = c.scale;
    this.#offset = OFFSETS[kind.positions];
    const counted = kind.positions === 'counted';
    this.#padding = counted ? c.padding : undefined;
    this.#wordsNormed = kind.normed === 'words of answers' && decoder;
    const rows = c.positions + this.#offset;
    const stored = kind.positions.startsWith('learnt') || vb.has('embed_positions.weight');
    this.positions = stored
      ? vb.get([rows, c.width], 'embed_positions.weight')
      : counted || kind.positions === 'spread sines'
        ? countedPositions(rows, c.width, counted ? c.padding : -1, words.weight)
        : sinePositions(rows, c.width, words.weight);
    this.inNorm = kind.normed ? layerNorm(c.width, vb.pp('layernorm_embedding')) : undefined;
    this.blocks = Array.from(
      { length: c.layers },
      (_, i) => new CrossBlock(vb.pp('layers', i), { ...c, before: kind.before, decoder }),
    );
    this.outNorm = kind.before ? layerNorm(c.width, vb.pp('layer_norm')) : undefined;
  }
  /** How many positions there are. */
  get room(): number {
    return this.positions.shape[0] - this.#offset;
  }
  /** Words and their positions from `start` on, (b, t, width). */
  embed(ids: Tensor, start: number): Tensor {
    const t = ids.shape[1];
    const { room } = this;
    if (start + t > room) throw new ArgumentError(`bart: ${start + t} tokens, the model has ${room} positions`);
    const words = this.words.forward(ids);
    const scaled = this.#scale === 1 ? words : words.affine(this.#scale, 0);
    if (this.#wordsNormed && this.inNorm) return this.inNorm.forward(scaled).add(this.#places(ids, start));
    const x = scaled.add(this.#places(ids, start));
    return this.inNorm?.forward(x) ?? x;
  }
  /** Attention to what was read, by layer; of a decoder alone. */
  get crosses(): MultiHead[] {
    return this.blocks.map((b) => b.cross as MultiHead);
  }
  /** A decoder's vectors of the answer's next tokens, (b, t, width). */
  write(ids: Tensor, state: Seq2SeqState): Tensor {
    let x = this.embed(ids, state.caches?.[0]?.length ?? 0);
    this.blocks.forEach((block, i) => {
      const cache = state.caches?.[i];
      const across = { ready: state.crossed[i], ...(state.mask && { mask: state.mask }) };
      x = block.forward(x, { causal: true, ...(cache && { cache }) }, across);
    });
    return this.outNorm?.forward(x) ?? x;
  }
  /** Vectors of positions from `start` on, (t, width) or (b, t, width). */
  #places(ids: Tensor, start: number): Tensor {
    const [b, t] = ids.shape;
    if (this.#padding === undefined) return this.positions.narrow(0, start + this.#offset, t);
    const real = ids.ne(this.#padding).cast('f32');
    const rows = real.cumsum(1).affine(1, start).mul(real).affine(1, this.#padding).cast('u32');
    return this.positions.indexSelect(0, rows.reshape([b * t])).reshape([b, t, -1]);
  }
}

export class Bart extends Seq2Seq {
  readonly encoder: BartStack;
  readonly decoder: BartStack;
  readonly head: Linear;
  constructor(encoder: BartStack, decoder: BartStack, head: Linear) {
    super();
    this.encoder = encoder;
    this.decoder = decoder;
    this.head = head;
  }
  encode(ids: Tensor, mask?: Tensor): Tensor {
    const { windows, blocks, everywhere } = this.encoder;
    const seen = keysMask(mask);
    let x = this.encoder.embed(ids, 0);
    if (everywhere) x = everywhere.through(x, blocks, mask);
    else
      blocks.forEach((block, i) => {
        x = block.forward(x, { ...(seen && { mask: seen }), ...(windows && { window: windows[i] }) });
      });
    return this.encoder.outNorm?.forward(x) ?? x;
  }
  begin(encoded: Tensor, mask?: Tensor): Seq2SeqState {
    return freshAnswer(this.decoder.crosses, encoded, keysMask(mask));
  }
  decode(ids: Tensor, state: Seq2SeqState): Tensor {
    return this.head.forward(this.hidden(ids, state));
  }
  /** What the head reads, (b, t, width). */
  hidden(ids: Tensor, state: Seq2SeqState): Tensor {
    return this.decoder.write(ids, state);
  }
}

/** Words of both sides and of the head: one table, or tables of their own. */
function tables(c: Config, source: ModelSource, vb: VarBuilder, width: number): [Embedding, Embedding, Linear] {
  const vocabulary = c.count('vocab_size');
  const answers = c.count('decoder_vocab_size', vocabulary);
  const [tied, shared] = [c.flag('tie_word_embeddings', true), c.flag('share_encoder_decoder_embeddings', true)];
  const one = tied && shared;
  if (one && answers !== vocabulary)
    throw new FormatError(`${c.where}: decoder_vocab_size is ${answers}, and words are shared out of ${vocabulary}`);
  const at = (names: readonly string[], size: number): Embedding => {
    const name = names.find((n) => vb.has(`${n}.weight`)) ?? names[0];
    return embedding(size, width, vb.pp(name));
  };
  // Where all are one, files may hold it under any of its names, or under several.
  const spare = ['shared', 'encoder.embed_tokens', 'decoder.embed_tokens'];
  const reading = one ? at(spare, vocabulary) : at(['encoder.embed_tokens', 'shared'], vocabulary);
  const writing = one ? reading : at(['decoder.embed_tokens', 'shared'], answers);
  source.ignore(/^((model|led)\.)?(shared|(encoder|decoder)\.embed_tokens)\.weight$/);
  // Files that tie the head may hold another.
  const words = ['model', 'led'].flatMap((p) => [`${p}.shared.weight`, `${p}.decoder.embed_tokens.weight`]);
  const same = tied && words.every((n) => source.isTied('lm_head.weight', n));
  if (same) source.ignore(/^lm_head\.weight$/);
  const weight = same ? writing.weight : source.builder.get([answers, width], 'lm_head.weight');
  const bias = source.has('final_logits_bias')
    ? reshaped(source.builder.get([1, answers], 'final_logits_bias'), [answers])
    : undefined;
  return [reading, writing, new Linear(weight, bias)];
}

/** How an encoder of long texts looks around. */
function longReading(c: Config, source: ModelSource): Partial<StackConfig> {
  const type = c.get('model_type');
  if (type === 'pegasus_x')
    return {
      blocks: {
        size: c.count('block_size', 512, 2),
        count: c.count('num_global_tokens', 32, 1),
        staggered: c.flag('stagger_local_blocks', true),
      },
    };
  if (type !== 'led') return {};
  // Tokens that are to see all are named with a text, and none are here.
  source.ignore(/\.longformer_self_attn\.(query|key|value)_global\./);
  const layers = c.count('encoder_layers');
  const one = typeof c.get('attention_window') === 'object' ? undefined : c.count('attention_window', 512, 2);
  const windows = one === undefined ? c.numbers('attention_window', layers) : Array<number>(layers).fill(one);
  const inner = (name: string): string => `longformer_self_attn.${name}`;
  return {
    selfNames: { q: inner('query'), k: inner('key'), v: inner('value'), out: 'output' },
    windows: windows.map((w) => w / 2),
  };
}

/** Those that transformers gives a head for answers. */
const ANSWERING = ['bart', 'led', 'mbart', 'mvp'];
/** Those whose answers begin with the text's last token, its language, not with a token of their own. */
const WRAPPED = ['mbart', 'plbart'];

function bart(c: Config, source: ModelSource): Bart | RewritingEncoder {
  refuseHeads(c, 'TokenClassification', 'CausalLM');
  const type = c.text('model_type');
  if (!ANSWERING.includes(type)) refuseHeads(c, 'QuestionAnswering');
  const kind = BART_KINDS[c.text('model_type')];
  c.only('is_decoder', false);
  // Old files spell out what their type stands for.
  c.only('normalize_before', kind.before);
  c.only('add_final_layer_norm', kind.before);
  c.only('normalize_embedding', kind.normed !== false);
  c.only('static_position_embeddings', kind.positions === 'sines');
  c.only('use_prompt', false);
  c.ignore('prompt_length', 'prompt_mid_dim');
  c.only('add_bias_logits', false);
  c.ignore('encoder_layerdrop', 'decoder_layerdrop', 'init_std', 'num_hidden_layers', 'classif_dropout', 'output_past');
  c.ignore(
    'extra_pos_embeddings',
    'force_bos_token_to_be_generated',
    'save_step',
    '_num_labels',
    'task_specific_params',
  );
  c.ignore('tie_encoder_decoder');
  const width = c.count('d_model');
  const scale = c.flag('scale_embedding', kind.scaled ?? false) ? Math.sqrt(width) : 1;
  const led = c.get('model_type') === 'led';
  const activation = c.activation('activation_function', 'gelu');
  const padding = c.count('pad_token_id', 1);
  const prefix = ['model', 'led'].find((p) => source.names.some((n) => n.startsWith(`${p}.`)));
  const vb = prefix === undefined ? source.builder : source.builder.pp(prefix);
  const [reading, writing, head] = tables(c, source, vb, width);
  const stack = (side: 'encoder' | 'decoder', words: Embedding): BartStack => {
    const config: StackConfig = {
      ...{ width, scale, activation, padding },
      positions: c.count(led ? `max_${side}_position_embeddings` : 'max_position_embeddings'),
      layers: c.count(`${side}_layers`),
      ...(kind.bare && { biases: [] }),
      ...(side === 'encoder' && longReading(c, source)),
      heads: c.count(`${side}_attention_heads`, undefined, 1),
      inner: c.count(`${side}_ffn_dim`),
    };
    return new BartStack(vb.pp(side), config, kind, words, side === 'decoder');
  };
  const made = new Bart(stack('encoder', reading), stack('decoder', writing), head);
  if (!reads(c)) return made;
  const end = c.count('eos_token_id', 2);
  return rewritingEncoder(c, source, made, {
    ...{ width, padding, end },
    room: Math.min(made.encoder.room, made.decoder.room),
    start: WRAPPED.includes(type) ? undefined : c.count('decoder_start_token_id', end),
  });
}
/** Files with a head are an encoder's: texts in, classes or ends of answers out. */
const reads = (c: Config): boolean => classifies(c) || findsAnswers(c);
const sorts = (c: Config): ModelKind => (reads(c) ? 'encoder' : 'seq2seq');
export const BART_FAMILIES: readonly ModelRow[] = [
  { kind: 'seq2seq', types: Object.keys(BART_KINDS), kindOf: sorts, build: bart },
];

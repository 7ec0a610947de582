// BERT and its kin: ERNIE (a vector more), RoBERTa, XLM-RoBERTa, data2vec (positions counted from the padding token's
// number), Megatron's BERT, XLM-RoBERTa XL and RoBERTa with norms before, DistilBERT (other names, no token types),
// MPNet (scores by distance), ELECTRA, RemBERT and ALBERT (a narrower embedding, in ALBERT layers that share tensors).
import { FormatError, UnsupportedError } from '../../base/errors.js';
import { type Embedding, embedding, type LayerNorm, layerNorm, linear, type Linear } from '../../nn/layers.js';
import { type Layer, Module } from '../../nn/module.js';
import type { VarBuilder } from '../../nn/var-builder.js';
import { arange, tensor } from '../../tensor/create.js';
import type { Tensor } from '../../tensor/tensor.js';
import type { Config } from '../files/config.js';
import {
  ClassifierHead,
  classifies,
  type ClassifierNames,
  type EncoderInput,
  type EncoderOutput,
  TASK_HEADS,
  TextEncoder,
} from './encoder.js';
import { jinaBert } from './jina-bert.js';
import { onlyBoxes, pageRows, refusePages } from './page-places.js';
import type { ModelRow } from '../model-row.js';
import { type AttendOptions, feedForward, keysMask, multiHead, type MultiHeadNames, rowTable } from '../parts.js';
import type { RopeTable } from '../decoder/rope.js';
import type { ModelSource } from '../files/source.js';
import { tokenHead } from './token-head.js';
import { distanceBucket } from '../seq2seq/t5.js';

export interface BertConfig {
  readonly vocabSize: number;
  readonly width: number;
  readonly layers: number;
  readonly heads: number;
  readonly inner: number;
  readonly positions: number;
  /** 0: the model knows no token types. */
  readonly types: number;
  readonly eps: number;
  /** Of the norm of the words' sum and of a head's, where it is another. */
  readonly sumEps?: number;
  readonly activation: string;
  /** Positions count the tokens that are not this one, from this number on. */
  readonly padded?: number;
  /** So many rows of positions stand before the first token's. */
  readonly before?: number;
  /** The embedding's width, where a product leads from it to the others'. */
  readonly embedWidth?: number;
  /** Scores have an addition by distance, in so many kinds. */
  readonly buckets?: number;
  /** All tokens have the first of so many vectors of a task. */
  readonly tasks?: number;
  /** Words are multiplied by this. */
  readonly scale?: number;
  /** Tables of other places (a page's), of which every token of a plain text has the first row, as often as named. */
  readonly places?: { readonly rows: number; readonly names: readonly string[] };
  /** Queries and keys turn, and positions are not added. */
  readonly rope?: (vb: VarBuilder, like: Tensor) => RopeTable;
  /** Pairs that turn are neighbours. */
  readonly neighbours?: boolean;
  /** Tokens of this number are zeros, and the others as much larger as they would have been in training. */
  readonly dropped?: number;
  /** More tokens than this are refused: attention becomes of a kind that is not served. */
  readonly densest?: number;
  /** Which stored layer each one is, where several are the same. */
  readonly stored?: (layer: number) => string;
}
/** Where a family keeps its tensors. */
export interface BertNames {
  readonly layer: string;
  readonly attention: MultiHeadNames;
  readonly norm1: string;
  readonly mlp: readonly [up: string, down: string];
  readonly norm2: string;
  /** Norms stand before attention and feed-forward, and one of this name at the end. */
  readonly lastNorm?: string;
  /** The sum of words and positions is not normed. */
  readonly plainSum?: boolean;
  /** The name of its norm, where it is not LayerNorm. */
  readonly sumNorm?: string;
  /** From the embedding's width to the others'. */
  readonly embedIn?: string;
  readonly pooler?: string;
  readonly classifier: ClassifierNames;
  /** The activation of a head for words, where it is not the model's own. */
  readonly wordsBent?: string;
  /** Norms stand before attention and feed-forward, and none at the end. */
  readonly before?: boolean;
  /** A feed-forward of another kind. */
  readonly feed?: (vb: VarBuilder) => Layer;
  /** What is made of a layer's sum behind its feed-forward, before the norm that it knows. */
  readonly adapt?: (vb: VarBuilder, c: BertConfig, norm: LayerNorm) => Layer;
  /** Attention of another kind, by the layer's number. */
  readonly attend?: (vb: VarBuilder, c: BertConfig, layer: number) => Attention;
}
/** What takes a text's vectors, and which tokens are seen, to what is added to them. */
export type Attention = Module & { forward(x: Tensor, o: AttendOptions): Tensor };
export const BERT: BertNames = {
  layer: 'encoder.layer',
  attention: {
    q: 'attention.self.query',
    k: 'attention.self.key',
    v: 'attention.self.value',
    out: 'attention.output.dense',
  },
  norm1: 'attention.output.LayerNorm',
  mlp: ['intermediate.dense', 'output.dense'],
  norm2: 'output.LayerNorm',
  classifier: { out: 'classifier' },
};
export const ROBERTA: BertNames = {
  ...BERT,
  classifier: { dense: ['classifier.dense', 'tanh'], out: 'classifier.out_proj' },
  wordsBent: 'gelu',
};
const MEGATRON: BertNames = { ...BERT, norm1: 'attention.ln', norm2: 'ln', lastNorm: 'encoder.ln', plainSum: true };
const XL: BertNames = {
  ...ROBERTA,
  ...{ norm1: 'attention.self_attn_layer_norm', norm2: 'LayerNorm', lastNorm: 'encoder.LayerNorm', plainSum: true },
};
const PRE_ROBERTA: BertNames = {
  ...ROBERTA,
  ...{ norm1: 'attention.LayerNorm', norm2: 'intermediate.LayerNorm', lastNorm: 'LayerNorm' },
};
const DISTILBERT: BertNames = {
  layer: 'transformer.layer',
  attention: { q: 'attention.q_lin', k: 'attention.k_lin', v: 'attention.v_lin', out: 'attention.out_lin' },
  norm1: 'sa_layer_norm',
  mlp: ['ffn.lin1', 'ffn.lin2'],
  norm2: 'output_layer_norm',
  classifier: { dense: ['pre_classifier', 'relu'], out: 'classifier' },
};

const MPNET: BertNames = {
  layer: 'encoder.layer',
  attention: { q: 'attention.attn.q', k: 'attention.attn.k', v: 'attention.attn.v', out: 'attention.attn.o' },
  norm1: 'attention.LayerNorm',
  mlp: ['intermediate.dense', 'output.dense'],
  norm2: 'output.LayerNorm',
  classifier: { dense: ['classifier.dense', 'tanh'], out: 'classifier.out_proj' },
  wordsBent: 'gelu',
};
const ALBERT: BertNames = {
  layer: 'encoder.albert_layer_groups',
  attention: { q: 'attention.query', k: 'attention.key', v: 'attention.value', out: 'attention.dense' },
  norm1: 'attention.LayerNorm',
  mlp: ['ffn', 'ffn_output'],
  norm2: 'full_layer_layer_norm',
  embedIn: 'encoder.embedding_hidden_mapping_in',
  pooler: 'pooler',
  classifier: { out: 'classifier' },
};

/** Tokens that ESM's training did not hide. */
const KEPT_IN_TRAINING = 1 - 0.15 * 0.8;

/** Norms after the additions, or before what is added. */
export class BertBlock extends Module {
  readonly #before: boolean;
  readonly attention: Attention;
  readonly norm1: LayerNorm;
  readonly mlp: Layer;
  readonly norm2: LayerNorm;
  readonly adapter: Layer | undefined;
  constructor(vb: VarBuilder, names: BertNames, c: BertConfig, layer: number) {
    super();
    this.#before = names.before ?? names.lastNorm !== undefined;
    this.attention = names.attend?.(vb, c, layer) ?? multiHead(vb, names.attention, c.width, c.heads);
    this.norm1 = layerNorm(c.width, vb.pp(names.norm1), { eps: c.eps });
    this.mlp = names.feed?.(vb) ?? feedForward(vb, names.mlp, c.width, c.inner, c.activation);
    this.norm2 = layerNorm(c.width, vb.pp(names.norm2), { eps: c.eps });
    this.adapter = names.adapt?.(vb, c, this.norm2);
  }
  forward(x: Tensor, options: AttendOptions): Tensor {
    const attend = (h: Tensor): Tensor => this.attention.forward(h, options);
    const adapted = (h: Tensor): Tensor => this.adapter?.forward(h) ?? h;
    if (this.#before) {
      const y = x.add(attend(this.norm1.forward(x)));
      return adapted(y.add(this.mlp.forward(this.norm2.forward(y))));
    }
    const y = this.norm1.forward(x.add(attend(x)));
    return this.norm2.forward(adapted(y.add(this.mlp.forward(y))));
  }
}

/** Cosines and sines of positions, some of them stored ones: they move with the model and are not trained. */
class Turns extends Module implements RopeTable {
  readonly cos: Tensor;
  readonly sin: Tensor;
  constructor({ cos, sin }: RopeTable) {
    super();
    this.cos = cos;
    this.sin = sin;
  }
  protected override buffers(): readonly string[] {
    return ['cos', 'sin'];
  }
}

export class Bert extends TextEncoder {
  readonly width: number;
  readonly maxTokens: number;
  readonly words: Embedding;
  readonly positions: Embedding | undefined;
  readonly places: readonly Tensor[];
  readonly types: Embedding | undefined;
  readonly tasks: Embedding | undefined;
  readonly norm: LayerNorm | undefined;
  readonly lastNorm: LayerNorm | undefined;
  readonly embedIn: Linear | undefined;
  readonly distances: Embedding | undefined;
  readonly blocks: BertBlock[];
  readonly pooler: Linear | undefined;
  override readonly classifier: ClassifierHead | undefined;
  readonly #config: BertConfig;
  readonly turns: Turns | undefined;

  constructor(vb: VarBuilder, c: BertConfig, names: BertNames, classifier?: ClassifierHead) {
    super();
    this.classifier = classifier;
    this.width = c.width;
    this.#config = c;
    this.maxTokens = c.positions - (c.before ?? (c.padded === undefined || c.rope ? 0 : c.padded + 1));
    const e = vb.pp('embeddings');
    const narrow = c.embedWidth ?? c.width;
    this.words = embedding(c.vocabSize, narrow, e.pp('word_embeddings'));
    this.positions = c.rope ? undefined : embedding(c.positions, narrow, e.pp('position_embeddings'));
    const tables = new Map([...new Set(c.places?.names)].map((n) => [n, e.get([c.places?.rows ?? 0, narrow], n)]));
    this.places = (c.places?.names ?? []).map((n) => tables.get(n) as Tensor);
    this.turns = c.rope && new Turns(c.rope(vb, this.words.weight));
    this.types = c.types > 0 ? rowTable(c.types, narrow, e.pp('token_type_embeddings')) : undefined;
    this.tasks = c.tasks ? rowTable(c.tasks, narrow, e.pp('task_type_embeddings')) : undefined;
    if (!names.plainSum) this.norm = layerNorm(narrow, e.pp(names.sumNorm ?? 'LayerNorm'), { eps: c.sumEps ?? c.eps });
    if (names.lastNorm !== undefined) this.lastNorm = layerNorm(c.width, vb.pp(names.lastNorm), { eps: c.eps });
    if (c.embedWidth !== undefined) this.embedIn = linear(narrow, c.width, vb.pp(names.embedIn as string));
    if (c.buckets) this.distances = embedding(c.buckets, c.heads, vb.pp('encoder.relative_attention_bias'));
    const stored = c.stored ?? String;
    const known = new Map<string, BertBlock>();
    this.blocks = Array.from({ length: c.layers }, (_, i) => {
      const block = known.get(stored(i)) ?? new BertBlock(vb.pp(names.layer, stored(i)), names, c, i);
      known.set(stored(i), block);
      return block;
    });
    const pooler = names.pooler ?? 'pooler.dense';
    this.pooler = vb.has(`${pooler}.weight`) ? linear(c.width, c.width, vb.pp(pooler)) : undefined;
  }
  /**
   * What scores are added for the distance of two tokens and, where there are any, for padding: (b or 1, heads, t, t).
   */
  #bias(table: Embedding, t: number, mask: Tensor | undefined): Tensor {
    const ids = Uint32Array.from({ length: t * t }, (_, i) =>
      distanceBucket((i % t) - Math.floor(i / t), true, table.weight.shape[0], 128),
    );
    const rows = table.forward(tensor(ids, { shape: [t, t], device: table.weight.device }));
    const bias = rows.permute([2, 0, 1]).unsqueeze(0);
    if (!mask) return bias.contiguous();
    const closed = mask.ne(0).cast(bias.dtype).affine(1e9, -1e9);
    return bias.add(closed.reshape([mask.shape[0], 1, 1, t])).contiguous();
  }
  #positionsOf(ids: Tensor, positions: Embedding): Tensor {
    const { padded, before = 0 } = this.#config;
    if (padded === undefined)
      return positions.forward(arange(before, before + ids.shape[1], 1, { dtype: 'u32', device: ids.device }));
    return positions.forward(countedPlaces(ids, padded));
  }
  /** What tokens are at first, (b, t, width). */
  #wordsOf(ids: Tensor, mask: Tensor | undefined): Tensor {
    const { scale, dropped } = this.#config;
    const words = this.words.forward(ids);
    if (scale !== undefined) return words.affine(scale, 0);
    if (dropped === undefined) return words;
    const kept = ids.ne(dropped).cast(words.dtype);
    const all = mask ? mask.ne(0).cast(words.dtype).sum(1, true) : kept.onesLike().sum(1, true);
    const gone = kept.affine(-1, 1).sum(1, true);
    const share = gone.div(all).affine(-1, 1); // of tokens that are there
    return words.mul(kept.affine(KEPT_IN_TRAINING, 0).div(share).unsqueeze(-1));
  }
  forward(input: EncoderInput): EncoderOutput {
    this.checkInput(input);
    const { ids, mask, typeIds } = input;
    const { densest = Infinity, neighbours = false } = this.#config;
    const t = ids.shape[1];
    if (t > densest)
      throw new UnsupportedError(
        `encoder: ${t} tokens; attention_type block_sparse looks at all of up to ${densest}, and at some of more, ` +
          'which is not served',
      );
    let x = this.#wordsOf(ids, mask); // (b, t, width)
    if (this.positions) x = x.add(input.at ? this.positions.forward(input.at) : this.#positionsOf(ids, this.positions));
    const paged = this.places.length > 0;
    (paged ? onlyBoxes : refusePages)(input);
    for (const rows of paged ? pageRows(this.places, input.boxes) : []) x = x.add(rows);
    if (this.types) x = x.add(typeIds ? this.types.forward(typeIds) : this.types.weight.narrow(0, 0, 1));
    if (this.tasks) x = x.add(this.tasks.weight.narrow(0, 0, 1));
    if (this.norm) x = this.norm.forward(x);
    if (this.embedIn) x = this.embedIn.forward(x);
    const own = input.seen?.ne(0).cast('u8').unsqueeze(1);
    const seen = this.distances ? this.#bias(this.distances, t, mask) : (own ?? keysMask(mask));
    const rows = (table: Tensor): Tensor => table.narrow(0, 0, t).contiguous();
    const rope = this.turns && { cos: rows(this.turns.cos), sin: rows(this.turns.sin), neighbours };
    const options = { ...(seen && { mask: seen }), ...(rope && { rope }) };
    for (const block of this.blocks) x = block.forward(x, options);
    if (this.lastNorm) x = this.lastNorm.forward(x);
    const pooled = this.pooler?.forward(x.narrow(1, 0, 1).squeeze(1)).tanh();
    const out = { hidden: x, ...(pooled && { pooled }) };
    return this.classifier ? { ...out, logits: this.classifier.forward(out) } : out;
  }
}

/** Places counted from the padding token's number on, where it stays. */
export function countedPlaces(ids: Tensor, padded: number): Tensor {
  const real = ids.ne(padded).cast('f32');
  return real.cumsum(1).mul(real).affine(1, padded).cast('u32');
}

/** Old files call a norm's weight and bias gamma and beta. */
export function oldNorms(source: ModelSource): VarBuilder {
  if (!source.names.some((n) => n.endsWith('LayerNorm.gamma'))) return source.builder;
  return source.builder.rename((n) =>
    n.replace(/LayerNorm\.weight$/, 'LayerNorm.gamma').replace(/LayerNorm\.bias$/, 'LayerNorm.beta'),
  );
}
/** With a head of the family's kind, where the files are a classifier's. */
export function bert(c: Config, source: ModelSource, vb: VarBuilder, config: BertConfig, names: BertNames): Bert {
  const head = classifies(c) ? new ClassifierHead(c, source, config.width, names.classifier) : undefined;
  const made = new Bert(vb, config, names, head);
  const activation = names.wordsBent ?? config.activation;
  const style = { eps: config.sumEps ?? config.eps, activation, words: made.words.weight, builder: oldNorms(source) };
  made.tokens = tokenHead(c, source, style);
  return made;
}
/** The encoder inside a model with a head: 'bert.', 'roberta.'. */
export function inside(source: ModelSource, vb: VarBuilder, ...prefixes: readonly string[]): VarBuilder {
  source.ignore(TASK_HEADS);
  const prefix = prefixes.find((p) => source.has(`${p}.embeddings.word_embeddings.weight`));
  return prefix ? vb.pp(prefix) : vb;
}

/** The token that fills up, whose number a text's positions begin behind. */
export function paddingOf(c: Config, fallback?: number): number {
  const [id, positions] = [c.count('pad_token_id', fallback), c.count('max_position_embeddings')];
  if (id + 1 >= positions)
    throw new FormatError(
      `${c.where}: pad_token_id is ${id}, and of max_position_embeddings, ${positions}, none is left behind it`,
    );
  return id;
}
export function bertConfig(c: Config, padded: boolean): BertConfig {
  c.only('position_embedding_type', 'absolute');
  c.only('is_decoder', false);
  c.only('add_cross_attention', false);
  c.ignore(
    'tie_word_embeddings',
    'directionality',
    'pooler_fc_size',
    'pooler_num_attention_heads',
    'pooler_num_fc_layers',
  );
  c.ignore('pooler_size_per_head', 'pooler_type', 'gradient_checkpointing');
  return {
    vocabSize: c.count('vocab_size'),
    width: c.count('hidden_size'),
    layers: c.count('num_hidden_layers'),
    heads: c.count('num_attention_heads', undefined, 1),
    inner: c.count('intermediate_size'),
    positions: c.count('max_position_embeddings'),
    types: c.count('type_vocab_size', 2),
    eps: c.number('layer_norm_eps', 1e-12),
    activation: c.activation('hidden_act', 'gelu'),
    ...(padded && { padded: paddingOf(c, 1) }),
  };
}
/** Layers of a group share their tensors. */
function albertConfig(c: Config): BertConfig {
  const [layers, groups] = [c.count('num_hidden_layers'), c.count('num_hidden_groups', 1, 1)];
  c.ignore('net_structure_type', 'gap_size', 'num_memory_blocks', 'down_scale_factor');
  const each = c.count('inner_group_num', 1, 1);
  const config = bertConfig(c, false);
  return {
    ...config,
    layers: layers * each,
    activation: c.activation('hidden_act', 'gelu_new'),
    embedWidth: c.count('embedding_size', 128, 1),
    stored: (i) => `${Math.floor(Math.floor(i / each) / (layers / groups))}.albert_layers.${i % each}`,
  };
}

/** Those that count positions from the padding token's number on. */
const ROBERTA_KIN: Readonly<Record<string, BertNames>> = {
  ...{ roberta: ROBERTA, 'xlm-roberta': ROBERTA, camembert: ROBERTA, 'data2vec-text': ROBERTA },
  ...{ 'xlm-roberta-xl': XL, 'roberta-prelayernorm': PRE_ROBERTA },
};

export const BERT_FAMILIES: readonly ModelRow[] = [
  {
    kind: 'encoder',
    types: ['electra'],
    build: (c, source) => {
      const [config, embedWidth] = [bertConfig(c, false), c.count('embedding_size', 128, 1)];
      c.ignore('summary_last_dropout');
      source.ignore(/^(generator_\w+|discriminator_\w+)\./);
      const wide = embedWidth === config.width ? {} : { embedWidth };
      const head: ClassifierNames = { dense: ['classifier.dense', 'gelu'], out: 'classifier.out_proj' };
      const names = { ...BERT, embedIn: 'embeddings_project', classifier: head, wordsBent: 'gelu' };
      return bert(c, source, inside(source, oldNorms(source), 'electra'), { ...config, ...wide }, names);
    },
  },
  {
    kind: 'encoder',
    types: ['albert'],
    build: (c, source) => {
      source.ignore(/^(predictions|sop_classifier)\./);
      return bert(c, source, inside(source, oldNorms(source), 'albert'), albertConfig(c), ALBERT);
    },
  },
  {
    kind: 'encoder',
    types: ['mpnet'],
    build: (c, source) => {
      c.only('relative_attention_num_buckets', 32);
      c.ignore('pad_token_id');
      const config = { ...bertConfig(c, false), types: 0, padded: 1, buckets: 32 };
      return bert(c, source, inside(source, oldNorms(source), 'mpnet'), config, MPNET);
    },
  },
  {
    kind: 'encoder',
    types: ['bert'],
    build: (c, source) => {
      const vb = inside(source, oldNorms(source), 'bert');
      if (c.get('position_embedding_type') === 'alibi') return jinaBert(c, source, vb);
      c.only('embedding_size', c.count('hidden_size'));
      return bert(c, source, vb, bertConfig(c, false), BERT);
    },
  },
  {
    kind: 'encoder',
    types: ['ernie'],
    build: (c, source) => {
      const tasks = c.flag('use_task_id', false) ? c.count('task_type_vocab_size', 3, 1) : 0;
      c.ignore('task_type_vocab_size');
      return bert(c, source, inside(source, oldNorms(source), 'ernie'), { ...bertConfig(c, false), tasks }, BERT);
    },
  },
  {
    kind: 'encoder',
    types: ['rembert'],
    build: (c, source) => {
      const config = { ...bertConfig(c, false), embedWidth: c.count('input_embedding_size', 256, 1) };
      c.ignore('output_embedding_size');
      const names = { ...BERT, embedIn: 'encoder.embedding_hidden_mapping_in' };
      return bert(c, source, inside(source, oldNorms(source), 'rembert'), config, names);
    },
  },
  {
    kind: 'encoder',
    types: ['megatron-bert'],
    build: (c, source) => bert(c, source, inside(source, source.builder, 'bert'), bertConfig(c, false), MEGATRON),
  },
  ...Object.entries(ROBERTA_KIN).map(
    ([type, names]): ModelRow => ({
      kind: 'encoder',
      types: [type],
      build: (c, source) =>
        bert(
          c,
          source,
          inside(source, oldNorms(source), 'roberta', 'camembert', 'data2vec_text', 'roberta_prelayernorm'),
          bertConfig(c, true),
          names,
        ),
    }),
  ),
  {
    kind: 'encoder',
    types: ['distilbert'],
    build: (c, source) => {
      c.ignore('tie_word_embeddings', 'sinusoidal_pos_embds', 'qa_dropout', 'seq_classif_dropout');
      const config: BertConfig = {
        vocabSize: c.count('vocab_size'),
        width: c.count('dim'),
        layers: c.count('n_layers'),
        heads: c.count('n_heads', undefined, 1),
        inner: c.count('hidden_dim'),
        positions: c.count('max_position_embeddings'),
        types: 0,
        eps: 1e-12,
        activation: c.activation('activation', 'gelu'),
      };
      return bert(c, source, inside(source, source.builder, 'distilbert'), config, DISTILBERT);
    },
  },
];

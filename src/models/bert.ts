// BERT and its kin: RoBERTa, XLM-RoBERTa (positions counted from the padding token's number) and DistilBERT (other
// names, no token types).
import { type Embedding, embedding, type LayerNorm, layerNorm, linear, type Linear } from '../nn/layers.js';
import { Module } from '../nn/module.js';
import type { VarBuilder } from '../nn/var-builder.js';
import { arange } from '../tensor/create.js';
import type { Tensor } from '../tensor/tensor.js';
import type { Config } from './config.js';
import { type EncoderInput, type EncoderOutput, TASK_HEADS, TextEncoder } from './encoder.js';
import type { ModelRow } from './model-row.js';
import { type FeedForward, feedForward, keysMask, type MultiHead, multiHead, type MultiHeadNames } from './parts.js';
import type { ModelSource } from './source.js';

interface BertConfig {
  readonly vocabSize: number;
  readonly width: number;
  readonly layers: number;
  readonly heads: number;
  readonly inner: number;
  readonly positions: number;
  /** 0: the model knows no token types. */
  readonly types: number;
  readonly eps: number;
  readonly activation: string;
  /** Positions count the tokens that are not this one, from this number on. */
  readonly padded?: number;
}
/** Where a family keeps its tensors. */
interface BertNames {
  readonly layer: string;
  readonly attention: MultiHeadNames;
  readonly norm1: string;
  readonly mlp: readonly [up: string, down: string];
  readonly norm2: string;
}
const BERT: BertNames = {
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
};
const DISTILBERT: BertNames = {
  layer: 'transformer.layer',
  attention: { q: 'attention.q_lin', k: 'attention.k_lin', v: 'attention.v_lin', out: 'attention.out_lin' },
  norm1: 'sa_layer_norm',
  mlp: ['ffn.lin1', 'ffn.lin2'],
  norm2: 'output_layer_norm',
};

/** Norms after the additions. */
class BertBlock extends Module {
  readonly attention: MultiHead;
  readonly norm1: LayerNorm;
  readonly mlp: FeedForward;
  readonly norm2: LayerNorm;
  constructor(vb: VarBuilder, names: BertNames, c: BertConfig) {
    super();
    this.attention = multiHead(vb, names.attention, c.width, c.heads);
    this.norm1 = layerNorm(c.width, vb.pp(names.norm1), { eps: c.eps });
    this.mlp = feedForward(vb, names.mlp, c.width, c.inner, c.activation);
    this.norm2 = layerNorm(c.width, vb.pp(names.norm2), { eps: c.eps });
  }
  forward(x: Tensor, mask: Tensor | undefined): Tensor {
    const y = this.norm1.forward(x.add(this.attention.forward(x, mask ? { mask } : {})));
    return this.norm2.forward(y.add(this.mlp.forward(y)));
  }
}

class Bert extends TextEncoder {
  readonly width: number;
  readonly maxTokens: number;
  readonly words: Embedding;
  readonly positions: Embedding;
  readonly types: Embedding | undefined;
  readonly norm: LayerNorm;
  readonly blocks: BertBlock[];
  readonly pooler: Linear | undefined;
  readonly #padded: number | undefined;

  constructor(vb: VarBuilder, c: BertConfig, names: BertNames) {
    super();
    this.width = c.width;
    this.#padded = c.padded;
    this.maxTokens = c.positions - (c.padded === undefined ? 0 : c.padded + 1);
    const e = vb.pp('embeddings');
    this.words = embedding(c.vocabSize, c.width, e.pp('word_embeddings'));
    this.positions = embedding(c.positions, c.width, e.pp('position_embeddings'));
    this.types = c.types > 0 ? embedding(c.types, c.width, e.pp('token_type_embeddings')) : undefined;
    this.norm = layerNorm(c.width, e.pp('LayerNorm'), { eps: c.eps });
    this.blocks = Array.from({ length: c.layers }, (_, i) => new BertBlock(vb.pp(names.layer, i), names, c));
    this.pooler = vb.has('pooler.dense.weight') ? linear(c.width, c.width, vb.pp('pooler.dense')) : undefined;
  }
  #positionsOf(ids: Tensor): Tensor {
    if (this.#padded === undefined)
      return this.positions.forward(arange(0, ids.shape[1], 1, { dtype: 'u32', device: ids.device }));
    const real = ids.ne(this.#padded).cast('f32');
    return this.positions.forward(real.cumsum(1).mul(real).affine(1, this.#padded).cast('u32'));
  }
  forward(input: EncoderInput): EncoderOutput {
    this.checkInput(input);
    const { ids, mask, typeIds } = input;
    let x = this.words.forward(ids).add(this.#positionsOf(ids)); // (b, t, width)
    if (this.types) x = x.add(typeIds ? this.types.forward(typeIds) : this.types.weight.narrow(0, 0, 1));
    x = this.norm.forward(x);
    const seen = keysMask(mask);
    for (const block of this.blocks) x = block.forward(x, seen);
    if (!this.pooler) return { hidden: x };
    return { hidden: x, pooled: this.pooler.forward(x.narrow(1, 0, 1).squeeze(1)).tanh() };
  }
}

/** Old files call a norm's weight and bias gamma and beta. */
function oldNorms(source: ModelSource): VarBuilder {
  if (!source.names.some((n) => n.endsWith('LayerNorm.gamma'))) return source.builder;
  return source.builder.rename((n) =>
    n.replace(/LayerNorm\.weight$/, 'LayerNorm.gamma').replace(/LayerNorm\.bias$/, 'LayerNorm.beta'),
  );
}
/** The encoder inside a model with a head: 'bert.', 'roberta.'. */
function inside(source: ModelSource, vb: VarBuilder, ...prefixes: readonly string[]): VarBuilder {
  source.ignore(TASK_HEADS);
  const prefix = prefixes.find((p) => source.has(`${p}.embeddings.word_embeddings.weight`));
  return prefix ? vb.pp(prefix) : vb;
}

function bertConfig(c: Config, padded: boolean): BertConfig {
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
    activation: c.text('hidden_act', 'gelu'),
    ...(padded && { padded: c.count('pad_token_id', 1) }),
  };
}
export const BERT_FAMILIES: readonly ModelRow[] = [
  {
    kind: 'encoder',
    types: ['bert'],
    build: (c, source) => new Bert(inside(source, oldNorms(source), 'bert'), bertConfig(c, false), BERT),
  },
  {
    kind: 'encoder',
    types: ['roberta', 'xlm-roberta', 'camembert'],
    build: (c, source) => new Bert(inside(source, oldNorms(source), 'roberta', 'camembert'), bertConfig(c, true), BERT),
  },
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
        activation: c.text('activation', 'gelu'),
      };
      return new Bert(inside(source, source.builder, 'distilbert'), config, DISTILBERT);
    },
  },
];

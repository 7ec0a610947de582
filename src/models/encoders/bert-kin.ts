// BERT's kin with parts of their own: SqueezeBERT (products by groups of channels), I-BERT (as floats), LUKE and mLUKE
// (of words alone), Splinter, DPR, XLM and FlauBERT (parts sorted by kind, not by layer), FNet (waves in place of
// attention).
import { type Linear, linear } from '../../nn/layers.js';
import { Layer, Module } from '../../nn/module.js';
import type { VarBuilder } from '../../nn/var-builder.js';
import { tensor } from '../../tensor/create.js';
import type { Tensor } from '../../tensor/tensor.js';
import { BERT, Bert, bert, type BertConfig, bertConfig, type BertNames, inside, oldNorms, ROBERTA } from './bert.js';
import { activation } from '../../nn/activation.js';
import type { Config } from '../files/config.js';
import { TASK_HEADS, type EncoderInput, type EncoderOutput } from './encoder.js';
import type { ModelRow } from '../model-row.js';
import type { AttendOptions } from '../parts.js';
import type { ModelSource } from '../files/source.js';

/** A product of which each group of outputs reads a group of inputs of its own. */
class GroupedProduct extends Layer {
  readonly weight: Tensor;
  readonly bias: Tensor;
  readonly groups: number;
  constructor(vb: VarBuilder, [from, to]: readonly [number, number], groups: number) {
    super();
    this.weight = vb.get([to, from / groups, 1], 'weight');
    this.bias = vb.get([to], 'bias');
    this.groups = groups;
  }
  /** (b, t, from) to (b, t, to). */
  forward(x: Tensor): Tensor {
    const { groups, bias } = this;
    return x.transpose(1, 2).contiguous().conv1d(this.weight, { groups, bias }).transpose(1, 2);
  }
}
type Groups = Readonly<Record<'q' | 'k' | 'v' | 'post' | 'up' | 'down', number>>;
class GroupedAttention extends Module {
  readonly q: GroupedProduct;
  readonly k: GroupedProduct;
  readonly v: GroupedProduct;
  readonly out: GroupedProduct;
  readonly heads: number;
  constructor(vb: VarBuilder, { width, heads }: BertConfig, groups: Groups) {
    super();
    const part = (name: string, n: number): GroupedProduct => new GroupedProduct(vb.pp(name), [width, width], n);
    this.q = part('attention.query', groups.q);
    this.k = part('attention.key', groups.k);
    this.v = part('attention.value', groups.v);
    this.out = part('post_attention.conv1d', groups.post);
    this.heads = heads;
  }
  forward(x: Tensor, { mask }: AttendOptions): Tensor {
    const [b, t, width] = x.shape;
    const split = (y: Tensor): Tensor => y.reshape([b, t, this.heads, width / this.heads]).transpose(1, 2);
    const [q, k, v] = [this.q, this.k, this.v].map((part) => split(part.forward(x)));
    const y = q.sdpa(k, v, mask ? { mask } : {});
    return this.out.forward(y.transpose(1, 2).reshape([b, t, width]));
  }
}
class GroupedFeedForward extends Layer {
  readonly up: GroupedProduct;
  readonly down: GroupedProduct;
  readonly #f: (x: Tensor) => Tensor;
  constructor(vb: VarBuilder, c: BertConfig, groups: Groups) {
    super();
    this.up = new GroupedProduct(vb.pp('intermediate.conv1d'), [c.width, c.inner], groups.up);
    this.down = new GroupedProduct(vb.pp('output.conv1d'), [c.inner, c.width], groups.down);
    this.#f = activation(c.activation);
  }
  forward(x: Tensor): Tensor {
    return this.down.forward(this.#f(this.up.forward(x)));
  }
}
function squeezeBert(c: Config, source: ModelSource): Bert {
  const plain = bertConfig(c, false);
  // What a config says of norms holds for those outside of layers.
  const config: BertConfig = { ...plain, eps: 1e-12, sumEps: plain.eps };
  c.only('embedding_size', config.width);
  const of = (name: string, fallback: number): number => c.count(`${name}_groups`, fallback, 1);
  const groups: Groups = {
    ...{ q: of('q', 4), k: of('k', 4), v: of('v', 4), post: of('post_attention', 1) },
    ...{ up: of('intermediate', 4), down: of('output', 4) },
  };
  return bert(c, source, inside(source, oldNorms(source), 'transformer'), config, {
    ...BERT,
    layer: 'encoder.layers',
    norm1: 'post_attention.layernorm',
    norm2: 'output.layernorm',
    attend: (vb) => new GroupedAttention(vb, config, groups),
    feed: (vb) => new GroupedFeedForward(vb, config, groups),
    wordsBent: config.activation,
  });
}

function iBert(c: Config, source: ModelSource): Bert {
  c.only('quant_mode', false);
  c.ignore('force_dequant');
  // What rounds to whole numbers is stored even where nothing is rounded.
  source.ignore(/\.(\w+_integer|\w*scaling_factor|x_min|x_max|shift|dim_sqrt)$/);
  return bert(c, source, inside(source, oldNorms(source), 'ibert'), bertConfig(c, true), ROBERTA);
}

function luke(c: Config, source: ModelSource): Bert {
  // Texts without entities: what reads these is left aside.
  c.ignore('entity_vocab_size', 'entity_emb_size', 'use_entity_aware_attention', 'cls_entity_prediction');
  source.ignore(/(^|\.)(entity_embeddings|entity_predictions)\.|\.(w2e|e2w|e2e)_query\./);
  const names = { ...ROBERTA, classifier: { out: 'classifier' } };
  return bert(c, source, inside(source, oldNorms(source), 'luke'), bertConfig(c, true), names);
}

function splinter(c: Config, source: ModelSource): Bert {
  c.ignore('question_token_id');
  return bert(c, source, inside(source, oldNorms(source), 'splinter'), bertConfig(c, false), BERT);
}

/** A question's or a passage's vector is that of its first token, behind a product where there is one. */
class Dpr extends Bert {
  readonly projection: Linear | undefined;
  constructor(vb: VarBuilder, c: BertConfig, projection: Linear | undefined) {
    super(vb, c, BERT);
    this.projection = projection;
  }
  override forward(input: EncoderInput): EncoderOutput {
    const { hidden } = super.forward(input);
    const first = hidden.narrow(1, 0, 1).squeeze(1);
    return { hidden, pooled: this.projection ? this.projection.forward(first) : first };
  }
}
function dpr(c: Config, source: ModelSource): Bert {
  const config = bertConfig(c, false);
  source.ignore(TASK_HEADS);
  source.ignore(/\.bert_model\.pooler\./);
  const side = ['question_encoder', 'ctx_encoder'].find((n) => source.names.some((k) => k.startsWith(`${n}.`)));
  const at = oldNorms(source).pp(side ?? 'question_encoder');
  const width = c.count('projection_dim', 0);
  return new Dpr(
    at.pp('bert_model'),
    config,
    width > 0 ? linear(config.width, width, at.pp('encode_proj')) : undefined,
  );
}

/** Layers' parts are stored kind by kind. */
const XLM: BertNames = {
  layer: 'layer',
  attention: { q: 'attentions.q_lin', k: 'attentions.k_lin', v: 'attentions.v_lin', out: 'attentions.out_lin' },
  norm1: 'layer_norm1',
  mlp: ['ffns.lin1', 'ffns.lin2'],
  norm2: 'layer_norm2',
  classifier: { out: 'sequence_summary.summary', first: true },
};
const byKind = (name: string): string =>
  name
    .replace(/(^|\.)layer\.(\d+)\.(\w+)/, '$1$3.$2')
    .replace(/(^|\.)embeddings\.word_embeddings/, '$1embeddings')
    .replace(/(^|\.)embeddings\.position_embeddings/, '$1position_embeddings')
    .replace(/(^|\.)embeddings\.LayerNorm/, '$1layer_norm_emb');
function xlm(c: Config, source: ModelSource): Bert {
  c.only('causal', false);
  c.only('asm', false);
  c.only('is_encoder', true);
  c.only('summary_type', 'first');
  c.only('summary_use_proj', true);
  c.only('summary_activation', null);
  c.ignore('summary_proj_to_labels', 'summary_first_dropout', 'start_n_top', 'end_n_top', 'tie_word_embeddings');
  c.ignore('embed_init_std', 'init_std', 'lang_id', 'lang2id', 'id2lang', 'bos_index', 'eos_index', 'pad_index');
  c.ignore('unk_index', 'mask_index', 'mask_token_id', 'n_langs', 'use_lang_emb', 'sinusoidal_embeddings', 'layerdrop');
  c.ignore('asm_cutoffs', 'asm_div_value', 'max_vocab', 'min_count', 'vocab_size', 'n_words', 'use_apex', 'fp16');
  const width = c.count('emb_dim', 2048, 1);
  const before = c.flag('pre_norm', false);
  const config: BertConfig = {
    ...{ vocabSize: c.count('vocab_size', 30145), width, inner: 4 * width, types: 0 },
    layers: c.count('n_layers', 12),
    heads: c.count('n_heads', 16, 1),
    positions: c.count('max_position_embeddings', 512),
    eps: c.number('layer_norm_eps', 1e-12),
    activation: c.flag('gelu_activation', true) ? 'gelu' : 'relu',
  };
  // Tables of languages are read where a text's language is told, which nothing here does.
  source.ignore(TASK_HEADS);
  source.ignore(/(^|\.)lang_embeddings\./);
  const whole = source.builder.rename(byKind);
  const vb = source.has('transformer.embeddings.weight') ? whole.pp('transformer') : whole;
  return bert(c, source, vb, config, { ...XLM, ...(before && { before }) });
}

/** The real part of a text's waves, over tokens and over a token's numbers; padding takes part as any token does. */
class Waves extends Module {
  /** Cosines of a sum are two products: of cosines less of sines. */
  forward(x: Tensor): Tensor {
    const [, t, width] = x.shape;
    const table = (n: number, f: (turn: number) => number): Tensor => {
      const of = (i: number): number => f((2 * Math.PI * ((Math.floor(i / n) * (i % n)) % n)) / n);
      const data = Float32Array.from({ length: n * n }, (_, i) => of(i));
      return tensor(data, { shape: [n, n], device: x.device }).cast(x.dtype);
    };
    const part = (f: (turn: number) => number): Tensor =>
      table(t, f)
        .unsqueeze(0)
        .broadcastTo([x.shape[0], t, t])
        .contiguous()
        .matmul(x.matmul(table(width, f)));
    return part(Math.cos).sub(part(Math.sin));
  }
}
function fNet(c: Config, source: ModelSource): Bert {
  c.only('use_tpu_fourier_optimizations', false);
  c.ignore('tpu_short_seq_length', 'tie_word_embeddings', 'num_attention_heads');
  const width = c.count('hidden_size', 768, 1);
  const config: BertConfig = {
    ...{ width, embedWidth: width, heads: 1 },
    vocabSize: c.count('vocab_size', 32000),
    layers: c.count('num_hidden_layers', 12),
    inner: c.count('intermediate_size', 3072),
    positions: c.count('max_position_embeddings', 512),
    types: c.count('type_vocab_size', 4),
    eps: c.number('layer_norm_eps', 1e-12),
    activation: c.activation('hidden_act', 'gelu_new'),
  };
  return bert(c, source, inside(source, oldNorms(source), 'fnet'), config, {
    ...BERT,
    embedIn: 'embeddings.projection',
    norm1: 'fourier.output.LayerNorm',
    attend: () => new Waves(),
  });
}

const BUILT = { squeezebert: squeezeBert, ibert: iBert, luke, splinter, dpr, xlm, flaubert: xlm, fnet: fNet };
export const BERT_KIN_FAMILIES: readonly ModelRow[] = Object.entries(BUILT).map(([type, build]) => ({
  kind: 'encoder',
  types: [type],
  build,
}));

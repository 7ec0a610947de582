// Encoders that turn queries and keys instead of adding positions: ModernBERT (norms before, windows), EuroBERT
// (Llama's layers, looking both ways), Nomic BERT and GTE (norms after).
import { FormatError } from '../../base/errors.js';
import { type Embedding, embedding, type LayerNorm, layerNorm, type Linear, linear } from '../../nn/layers.js';
import { type Layer, Module } from '../../nn/module.js';
import { type RmsNorm, rmsNorm } from '../../nn/norm.js';
import type { VarBuilder } from '../../nn/var-builder.js';
import type { Tensor } from '../../tensor/tensor.js';
import type { Config } from '../files/config.js';
import {
  ClassifierHead,
  classifies,
  type EncoderInput,
  type EncoderOutput,
  TASK_HEADS,
  TextEncoder,
} from './encoder.js';
import type { ModelRow } from '../model-row.js';
import { type NomicMixture, NomicExperts } from './nomic-experts.js';
import { chunks, FeedForward, GatedFeedForward, keysMask, MultiHead, rowTable } from '../parts.js';
import { readRope, type RopeFeature, type RopeTable, ropeTable } from '../decoder/rope.js';
import type { ModelSource } from '../files/source.js';
import { type TokenHeadStyle, tokenHead } from './token-head.js';

interface RotaryBertConfig {
  readonly vocabSize: number;
  readonly width: number;
  readonly layers: number;
  readonly heads: number;
  readonly inner: number;
  readonly positions: number;
  readonly eps: number;
  readonly activation: string;
}

type Normed = LayerNorm | RmsNorm;

class RotaryBlock extends Module {
  /** Absent: the input is normed already (ModernBERT's first layer). */
  readonly norm1: Normed | undefined;
  readonly attention: MultiHead;
  readonly norm2: Normed;
  readonly mlp: Layer;
  readonly #before: boolean;
  readonly #window: number | undefined;
  constructor(
    parts: { norm1?: Normed; attention: MultiHead; norm2: Normed; mlp: Layer },
    before: boolean,
    window?: number,
  ) {
    super();
    this.norm1 = parts.norm1;
    this.attention = parts.attention;
    this.norm2 = parts.norm2;
    this.mlp = parts.mlp;
    this.#before = before;
    this.#window = window;
  }
  forward(x: Tensor, rope: RopeTable, mask: Tensor | undefined): Tensor {
    const options = { rope, ...(mask && { mask }), ...(this.#window !== undefined && { window: this.#window }) };
    if (this.#before) {
      const y = x.add(this.attention.forward(this.norm1?.forward(x) ?? x, options));
      return y.add(this.mlp.forward(this.norm2.forward(y)));
    }
    const added = x.add(this.attention.forward(x, options));
    const y = this.norm1?.forward(added) ?? added;
    return this.norm2.forward(y.add(this.mlp.forward(y)));
  }
}

class RotaryBert extends TextEncoder {
  readonly width: number;
  readonly maxTokens: number;
  readonly words: Embedding;
  /** Added to every token where the model has token types. */
  readonly types: Embedding | undefined;
  /** Of what tokens are at first, where there is one. */
  readonly norm: LayerNorm | undefined;
  readonly blocks: RotaryBlock[];
  readonly finalNorm: Normed | undefined;
  override readonly classifier: ClassifierHead | undefined;
  readonly #ropes: readonly RopeFeature[];
  #tables: { readonly length: number; readonly of: Map<RopeFeature, RopeTable> } | undefined;

  constructor(
    c: RotaryBertConfig,
    parts: { words: Embedding; types?: Embedding; norm?: LayerNorm; blocks: RotaryBlock[]; finalNorm?: Normed },
    ropes: readonly RopeFeature[],
    classifier?: ClassifierHead,
  ) {
    super();
    this.classifier = classifier;
    this.width = c.width;
    this.maxTokens = c.positions;
    this.words = parts.words;
    this.types = parts.types;
    this.norm = parts.norm;
    this.blocks = parts.blocks;
    this.finalNorm = parts.finalNorm;
    this.#ropes = ropes;
  }
  protected override forget(): void {
    for (const { cos, sin } of this.#tables?.of.values() ?? []) {
      cos.dispose();
      sin.dispose();
    }
    this.#tables = undefined;
  }
  /** Cosines and sines for a length, kept until another is asked for. */
  #tablesFor(length: number): Map<RopeFeature, RopeTable> {
    if (this.#tables?.length !== length) {
      this.forget();
      const { dtype, weight } = this.words;
      const { device } = weight;
      const of = new Map([...new Set(this.#ropes)].map((r) => [r, ropeTable(r, length, length, dtype, device)]));
      this.#tables = { length, of };
    }
    return this.#tables.of;
  }
  forward(input: EncoderInput): EncoderOutput {
    this.checkInput(input);
    const { ids, mask, typeIds } = input;
    const tables = this.#tablesFor(ids.shape[1]);
    let x = this.words.forward(ids); // (b, t, width)
    if (this.types) x = x.add(typeIds ? this.types.forward(typeIds) : this.types.weight.narrow(0, 0, 1));
    if (this.norm) x = this.norm.forward(x);
    const seen = keysMask(mask);
    this.blocks.forEach((block, i) => (x = block.forward(x, tables.get(this.#ropes[i]) as RopeTable, seen)));
    const out = { hidden: this.finalNorm?.forward(x) ?? x };
    return this.classifier ? { ...out, logits: this.classifier.forward(out, mask) } : out;
  }
}

/** Fields of ModernBERT's files that do not reach what is computed here; of the two epsilons norm_eps counts. */
const MODERN_WITHOUT_EFFECT = [
  ...['classifier_activation', 'classifier_bias', 'classifier_pooling', 'decoder_bias', 'deterministic_flash_attn'],
  ...['initializer_cutoff_factor', 'mlp_dropout', 'sparse_pred_ignore_index', 'sparse_prediction', 'layer_norm_eps'],
  ...['tie_word_embeddings', 'cls_token_id', 'reference_compile', 'repad_logits_with_grad', 'position_embedding_type'],
];

/** With the head for tokens that the files have. */
function withTokens(
  c: Config,
  source: ModelSource,
  made: RotaryBert,
  style: Omit<TokenHeadStyle, 'words'>,
): RotaryBert {
  made.tokens = tokenHead(c, source, { ...style, words: made.words.weight });
  return made;
}

/** Where the files are those of a classifier. */
function modernHead(c: Config, source: ModelSource, { width, eps }: RotaryBertConfig): ClassifierHead | undefined {
  if (!classifies(c)) return undefined;
  c.only('classifier_pooling', 'cls', 'mean');
  return new ClassifierHead(c, source, width, {
    dense: ['head.dense', c.activation('classifier_activation', 'gelu')],
    bare: !c.flag('classifier_bias', false),
    norm: { name: 'head.norm', eps, useBias: c.flag('norm_bias', false) },
    mean: c.text('classifier_pooling', 'cls') === 'mean',
    out: 'classifier',
  });
}
const modernConfig = (c: Config): RotaryBertConfig => ({
  vocabSize: c.count('vocab_size'),
  width: c.count('hidden_size'),
  layers: c.count('num_hidden_layers'),
  heads: c.count('num_attention_heads', undefined, 1),
  inner: c.count('intermediate_size'),
  positions: c.count('max_position_embeddings'),
  eps: c.number('norm_eps', 1e-5),
  activation: c.activation('hidden_activation', 'gelu'),
});
/** What each layer attends to, all or its surroundings, with the rope of each kind. */
function modernLayers(c: Config, { layers, width, heads, positions }: RotaryBertConfig) {
  const every = c.count('global_attn_every_n_layers', 3, 1);
  const kinds = c.has('layer_types')
    ? c.texts('layer_types')
    : Array.from({ length: layers }, (_, i) => (i % every ? 'sliding_attention' : 'full_attention'));
  const rope = (layerType: string, old: string, theta: number): RopeFeature =>
    readRope(c, { headDim: width / heads, maxPositions: positions, theta: c.number(old, theta), layerType });
  const ropes: Readonly<Record<string, RopeFeature>> = {
    full_attention: rope('full_attention', 'global_rope_theta', 160_000),
    sliding_attention: rope('sliding_attention', 'local_rope_theta', 10_000),
  };
  c.onlyKinds('layer_types', kinds, Object.keys(ropes));
  return { kinds, ropes: kinds.map((kind) => ropes[kind]) };
}
function modernBert(c: Config, source: ModelSource): RotaryBert {
  c.ignore(...MODERN_WITHOUT_EFFECT);
  source.ignore(TASK_HEADS);
  const vb = source.has('model.embeddings.tok_embeddings.weight') ? source.builder.pp('model') : source.builder;
  const config = modernConfig(c);
  const { width, heads, inner, activation } = config;
  const [bias, mlpBias] = [{ bias: c.flag('attention_bias', false) }, { bias: c.flag('mlp_bias', false) }];
  const useBias = c.flag('norm_bias', false);
  const { kinds, ropes } = modernLayers(c, config);
  const half = Math.floor(c.count('local_attention', 128) / 2);
  const norm = (at: VarBuilder): LayerNorm => layerNorm(width, at, { eps: config.eps, useBias });
  const blocks = kinds.map((kind, i) => {
    const at = vb.pp('layers', i);
    const [q, k, v] = chunks(linear(width, 3 * width, at.pp('attn.Wqkv'), bias), 3);
    const [gate, up] = chunks(linear(width, 2 * inner, at.pp('mlp.Wi'), mlpBias), 2);
    return new RotaryBlock(
      {
        ...(i > 0 && { norm1: norm(at.pp('attn_norm')) }),
        attention: new MultiHead({ q, k, v, out: linear(width, width, at.pp('attn.Wo'), bias) }, heads),
        norm2: norm(at.pp('mlp_norm')),
        mlp: new GatedFeedForward(gate, up, linear(inner, width, at.pp('mlp.Wo'), mlpBias), activation),
      },
      true,
      kind === 'sliding_attention' ? half : undefined,
    );
  });
  const made = new RotaryBert(
    config,
    {
      words: embedding(config.vocabSize, width, vb.pp('embeddings.tok_embeddings')),
      norm: norm(vb.pp('embeddings.norm')),
      blocks,
      finalNorm: norm(vb.pp('final_norm')),
    },
    ropes,
    modernHead(c, source, config),
  );
  return withTokens(c, source, made, {
    eps: config.eps,
    activation: c.activation('classifier_activation', 'gelu'),
    bare: { dense: !c.flag('classifier_bias', false), norm: !useBias, out: !c.flag('decoder_bias', true) },
  });
}

/** Fields of nomic's own files whose other values would change the result. */
const NOMIC_ONLY: Readonly<Record<string, unknown>> = {
  prenorm: false,
  use_rms_norm: false,
  parallel_block: false,
  parallel_block_tied_norm: false,
  rotary_emb_interleaved: false,
  rotary_emb_scale_base: null,
  scale_attn_weights: true,
  scale_attn_by_inverse_layer_idx: false,
  causal: false,
  rotary_emb_fraction: 1,
};
/** Of mixtures, the same. */
const MIXTURE_ONLY: Readonly<Record<string, unknown>> = {
  moe_normalize_expert_weights: false,
  expert_choice_router: false,
  num_shared_experts: 0,
  ffn_div: 1,
};

const NOMIC_WITHOUT_EFFECT = [
  ...['tie_word_embeddings', 'reorder_and_upcast_attn', 'use_xentropy', 'dense_seq_output', 'fused_bias_fc'],
  ...['fused_dropout_add_ln', 'pad_vocab_size_multiple', 'last_layer_subset', 'max_trained_positions'],
  ...['moe_every_n_layers', 'moe_top_k', 'expert_choice_router', 'ffn_div', 'moe_impl', 'moe_normalize_expert_weights'],
  ...['moe_resid_pdrop', 'num_shared_experts', 'router_aux_loss_coef', 'tie_embeddings'],
];

/** Files of the authors and of transformers name sizes and tensors differently. */
function nomicConfig(c: Config): RotaryBertConfig {
  const size = (theirs: string, ours: string): number => c.count(c.has(theirs) ? theirs : ours);
  return {
    vocabSize: c.count('vocab_size'),
    width: size('n_embd', 'hidden_size'),
    layers: size('n_layer', 'num_hidden_layers'),
    heads: size('n_head', 'num_attention_heads'),
    inner: size('n_inner', 'intermediate_size'),
    positions: size('n_positions', 'max_position_embeddings'),
    eps: c.has('layer_norm_epsilon') ? c.number('layer_norm_epsilon') : c.number('layer_norm_eps', 1e-12),
    activation: c.activation('hidden_act', 'silu'),
  };
}
/** What the authors' files say of a block: which products have biases, whether there are gates, and mixtures. */
interface NomicParts {
  readonly across: number;
  readonly gated: boolean;
  readonly biases: Readonly<Record<'attention' | 'up' | 'down', boolean>>;
  readonly mixture: NomicMixture | undefined;
}
/** A function without a gate is gelu's; swiglu has gates. */
function nomicParts(c: Config, across: number): NomicParts {
  c.only('activation_function', 'swiglu', 'gelu');
  const gated = c.text('activation_function', 'swiglu') === 'swiglu';
  const biases = {
    attention: c.flag('qkv_proj_bias', false),
    up: c.flag('mlp_fc1_bias', false),
    down: c.flag('mlp_fc2_bias', false),
  };
  const [count, every] = [c.count('num_experts', 0), c.count('moe_every_n_layers', 0)];
  const chosen = c.count('moe_top_k', 2, 1);
  if (count > 0 && chosen > count) throw new FormatError(`${c.where}: moe_top_k is ${chosen} of ${count} experts`);
  const sparse = (i: number): boolean => count > 0 && every > 0 && i % every === 1;
  const mixed = count > 0 && every > 0;
  if (mixed) for (const [field, value] of Object.entries(MIXTURE_ONLY)) c.only(field, value);
  return { across, gated, biases, mixture: mixed ? { count, chosen, sparse } : undefined };
}
/** A block's feed-forward as the authors' files name its parts, or as transformers' do. */
function nomicFed(at: VarBuilder, theirs: boolean, config: RotaryBertConfig, parts: NomicParts, i: number): Layer {
  const { width, inner, activation } = config;
  const { gated, biases, mixture } = parts;
  if (mixture?.sparse(i)) return new NomicExperts(at, mixture, width, inner, 'gelu');
  const [up, gate, down] = !theirs
    ? ['up_proj', 'gate_proj', 'down_proj']
    : gated
      ? ['fc11', 'fc12', 'fc2']
      : ['fc1', '', 'fc2'];
  const into = (name: string): Linear => linear(width, inner, at.pp(name), { bias: biases.up });
  const back = linear(inner, width, at.pp(down), { bias: biases.down });
  return gated ? new GatedFeedForward(into(gate), into(up), back, activation) : new FeedForward(into(up), back, 'gelu');
}
/** A block as the authors' files name its parts, or as transformers' do. */
function nomicBlock(
  at: VarBuilder,
  theirs: boolean,
  config: RotaryBertConfig,
  parts: NomicParts,
  layer: number,
): RotaryBlock {
  const { width, heads, eps } = config;
  const { across } = parts;
  const bias = { bias: parts.biases.attention };
  const part = (name: string): Linear => linear(width, across, at.pp('self_attn', name), bias);
  const [q, k, v] = theirs
    ? chunks(linear(width, 3 * across, at.pp('attn.Wqkv'), bias), 3)
    : ['q_proj', 'k_proj', 'v_proj'].map(part);
  const out = linear(across, width, at.pp(theirs ? 'attn.out_proj' : 'self_attn.o_proj'), bias);
  const norm = (name: string): LayerNorm => layerNorm(width, at.pp(name), { eps });
  return new RotaryBlock(
    {
      norm1: norm(theirs ? 'norm1' : 'post_attention_layernorm'),
      attention: new MultiHead({ q, k, v, out }, heads),
      norm2: norm(theirs ? 'norm2' : 'post_mlp_layernorm'),
      mlp: nomicFed(at.pp('mlp'), theirs, config, parts, layer),
    },
    false,
  );
}
function nomicBert(c: Config, source: ModelSource): RotaryBert {
  for (const [field, value] of Object.entries(NOMIC_ONLY)) c.only(field, value);
  c.ignore(...NOMIC_WITHOUT_EFFECT);
  c.only('rotary_scaling_factor', null);
  source.ignore(TASK_HEADS);
  const config = nomicConfig(c);
  const { width, heads, eps } = config;
  const headDim = c.count('head_dim', width / heads, 1);
  const parts = nomicParts(c, heads * headDim);
  const theta = c.number('rotary_emb_base', 1000);
  const rope = readRope(c, { headDim, maxPositions: config.positions, theta });
  const types = c.count('type_vocab_size', 2);
  const within = source.names.some((n) => n.startsWith('nomic_bert.'));
  const vb = within ? source.builder.pp('nomic_bert') : source.builder;
  const theirs = vb.has('emb_ln.weight');
  const blocks = Array.from({ length: config.layers }, (_, i) =>
    nomicBlock(vb.pp(theirs ? 'encoder.layers' : 'layers', i), theirs, config, parts, i),
  );
  source.ignore(/^(nomic_bert\.)?pooler\./);
  const made = new RotaryBert(
    config,
    {
      words: embedding(config.vocabSize, width, vb.pp('embeddings.word_embeddings')),
      ...(types > 0 && { types: rowTable(types, width, vb.pp('embeddings.token_type_embeddings')) }),
      norm: layerNorm(width, vb.pp(theirs ? 'emb_ln' : 'embeddings.LayerNorm'), { eps }),
      blocks,
    },
    blocks.map(() => rope),
    pooledHead(c, source, width, 'nomic_bert.pooler.dense'),
  );
  return withTokens(c, source, made, { eps, activation: config.activation });
}

/** Where the files are those of a classifier that reads the pooler's answer. */
const pooledHead = (c: Config, source: ModelSource, width: number, pooler: string): ClassifierHead | undefined =>
  classifies(c) ? new ClassifierHead(c, source, width, { dense: [pooler, 'tanh'], out: 'classifier' }) : undefined;

/** Sizes under the names that most configs have. */
const usualSizes = (c: Config): Omit<RotaryBertConfig, 'eps' | 'activation'> => ({
  vocabSize: c.count('vocab_size'),
  width: c.count('hidden_size'),
  layers: c.count('num_hidden_layers'),
  heads: c.count('num_attention_heads', undefined, 1),
  inner: c.count('intermediate_size'),
  positions: c.count('max_position_embeddings', 8192),
});

/** Where the files are those of a classifier. */
function euroHead(c: Config, source: ModelSource, width: number): ClassifierHead | undefined {
  if (!classifies(c)) return undefined;
  c.only('classifier_pooling', 'bos', 'mean', 'late');
  const pooling = c.text('classifier_pooling', 'late');
  const mean = pooling === 'late' ? pooling : pooling === 'mean';
  return new ClassifierHead(c, source, width, { dense: ['dense', 'gelu'], out: 'classifier', mean });
}
/** Llama's layers that look both ways. */
function euroBert(c: Config, source: ModelSource): RotaryBert {
  c.ignore('tie_word_embeddings', 'mask_token_id', 'classifier_pooling', 'pretraining_tp', 'clf_pooling');
  c.only('is_causal', false);
  source.ignore(TASK_HEADS);
  const vb = source.has('model.embed_tokens.weight') ? source.builder.pp('model') : source.builder;
  const config: RotaryBertConfig = {
    ...usualSizes(c),
    eps: c.number('rms_norm_eps', 1e-5),
    activation: c.activation('hidden_act', 'silu'),
  };
  const { width, heads, inner, eps } = config;
  const headDim = c.count('head_dim', width / heads, 1);
  const kvHeads = c.count('num_key_value_heads', heads, 1);
  const rope = readRope(c, { headDim, maxPositions: config.positions });
  const [bias, mlpBias] = [c.flag('attention_bias', false), c.flag('mlp_bias', false)];
  const blocks = Array.from({ length: config.layers }, (_, i) => {
    const at = vb.pp('layers', i);
    const part = (name: string, n: number): Linear => linear(width, n * headDim, at.pp('self_attn', name), { bias });
    const fed = (name: string, from: number, to: number): Linear =>
      linear(from, to, at.pp('mlp', name), { bias: mlpBias });
    return new RotaryBlock(
      {
        norm1: rmsNorm(width, at.pp('input_layernorm'), eps),
        attention: new MultiHead(
          {
            ...{ q: part('q_proj', heads), k: part('k_proj', kvHeads), v: part('v_proj', kvHeads) },
            out: linear(heads * headDim, width, at.pp('self_attn.o_proj'), { bias }),
          },
          heads,
          undefined,
          kvHeads,
        ),
        norm2: rmsNorm(width, at.pp('post_attention_layernorm'), eps),
        mlp: new GatedFeedForward(
          ...([fed('gate_proj', width, inner), fed('up_proj', width, inner), fed('down_proj', inner, width)] as const),
          config.activation,
        ),
      },
      true,
    );
  });
  const words = embedding(config.vocabSize, width, vb.pp('embed_tokens'));
  const finalNorm = rmsNorm(width, vb.pp('norm'), eps);
  const made = new RotaryBert(
    config,
    { words, blocks, finalNorm },
    blocks.map(() => rope),
    euroHead(c, source, width),
  );
  return withTokens(c, source, made, { eps, activation: 'gelu', plain: true, bare: { out: !mlpBias } });
}

/** GTE: Nomic's layers with biases, under names of its own. */
function gte(c: Config, source: ModelSource): RotaryBert {
  c.ignore('tie_word_embeddings');
  c.only('position_embedding_type', 'rope');
  source.ignore(TASK_HEADS);
  source.ignore(/(^|\.)pooler\./);
  const prefix = ['new', 'gte'].find((p) => source.has(`${p}.embeddings.word_embeddings.weight`));
  const vb = prefix ? source.builder.pp(prefix) : source.builder;
  const config: RotaryBertConfig = {
    ...usualSizes(c),
    eps: c.number('layer_norm_eps', 1e-12),
    activation: c.activation('hidden_act', 'gelu'),
  };
  const { width, heads, inner, eps } = config;
  const headDim = c.count('head_dim', width / heads, 1);
  const across = heads * headDim;
  const rope = readRope(c, { headDim, maxPositions: config.positions, theta: 160_000 });
  const types = c.count('type_vocab_size', 1);
  const blocks = Array.from({ length: config.layers }, (_, i) => {
    const at = vb.pp('encoder.layer', i);
    const [q, k, v] = chunks(linear(width, 3 * across, at.pp('attention.qkv_proj')), 3);
    const [up, gate] = chunks(linear(width, 2 * inner, at.pp('mlp.up_gate_proj'), { bias: false }), 2);
    const out = linear(across, width, at.pp('attention.o_proj'));
    return new RotaryBlock(
      {
        norm1: layerNorm(width, at.pp('attn_ln'), { eps }),
        attention: new MultiHead({ q, k, v, out }, heads),
        norm2: layerNorm(width, at.pp('mlp_ln'), { eps }),
        mlp: new GatedFeedForward(gate, up, linear(inner, width, at.pp('mlp.down_proj')), config.activation),
      },
      false,
    );
  });
  const made = new RotaryBert(
    config,
    {
      words: embedding(config.vocabSize, width, vb.pp('embeddings.word_embeddings')),
      ...(types > 0 && { types: rowTable(types, width, vb.pp('embeddings.token_type_embeddings')) }),
      norm: layerNorm(width, vb.pp('embeddings.LayerNorm'), { eps }),
      blocks,
    },
    blocks.map(() => rope),
    pooledHead(c, source, width, `${prefix}.pooler.dense`),
  );
  return withTokens(c, source, made, { eps, activation: 'gelu' });
}

export const ROTARY_BERT_FAMILIES: readonly ModelRow[] = [
  { kind: 'encoder', types: ['modernbert'], build: modernBert },
  { kind: 'encoder', types: ['nomic_bert'], build: nomicBert },
  { kind: 'encoder', types: ['eurobert'], build: euroBert },
  { kind: 'encoder', types: ['gte'], build: gte },
];

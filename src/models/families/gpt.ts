// GPT-2 and its descendants: layer norms with biases, feed-forward parts without a gate, fused projections.
import { UnsupportedError } from '../../base/errors.js';
import type { Config } from '../config.js';
import { type Features, POST_NORMS } from '../features.js';
import {
  ATTENTION_BIAS,
  activationOf,
  biasesBy,
  build,
  checked,
  experts,
  full,
  fixedRope,
  fusedQkv,
  LLAMA_NAMES,
  layerNorm,
  layerTypes,
  QKV_BY_GROUP,
  rms,
  ropeOf,
  sameWindow,
  type Sizes,
  sizesOf,
  UNGATED_BIAS,
  ungated,
  windowsBy,
} from './common.js';
import type { Tensor } from '../../tensor/tensor.js';
import { family } from './row.js';
import type { Names, Place } from '../weights.js';

const ALL_BIASES = [...ATTENTION_BIAS, ...UNGATED_BIAS];

function gptSizes(c: Config): Sizes {
  const hidden = c.count('n_embd', undefined, 1);
  const heads = c.count('n_head', undefined, 1);
  c.ignore('n_ctx');
  const maxPositions = c.count('n_positions', 1024, 1);
  return checked(c, {
    hidden,
    layers: c.count('n_layer'),
    heads,
    kvHeads: heads,
    headDim: hidden / heads,
    maxPositions,
  });
}
const inner = (c: Config, hidden: number): number => c.optional('n_inner') ?? 4 * hidden;

function gpt2(c: Config): Features {
  c.only('add_cross_attention', false);
  c.ignore('reorder_and_upcast_attn', 'attention_softmax_in_fp32', 'scale_attention_softmax_in_fp32');
  const big = c.json.model_type === 'gpt_bigcode';
  const whole = gptSizes(c);
  const s = big && c.flag('multi_query', true) ? { ...whole, kvHeads: 1 } : whole;
  c.ignore('num_key_value_heads');
  const scaled = c.flag('scale_attn_weights', true);
  const byLayer = c.flag('scale_attn_by_inverse_layer_idx', false);
  const act = activationOf(c, 'activation_function', big ? 'gelu_pytorch_tanh' : 'gelu_new');
  return build('gpt2', c, s, {
    norm: layerNorm(c, 'layer_norm_epsilon'),
    attention: (i) => ({ scale: (scaled ? 1 / Math.sqrt(s.headDim) : 1) / (byLayer ? i + 1 : 1) }),
    mlp: () => ungated(inner(c, s.hidden), act),
    tied: true,
    biases: ALL_BIASES,
    more: { learntPositions: { count: s.maxPositions, offset: 0 } },
  });
}
const GPT2_NAMES: Names = {
  embed: 'transformer.wte',
  positions: 'transformer.wpe',
  finalNorm: 'transformer.ln_f',
  head: 'lm_head',
  layer: 'transformer.h.{i}',
  beforeMixer: 'ln_1',
  beforeMlp: 'ln_2',
  ...fusedQkv('attn.c_attn', undefined, { transposed: true }),
  o: { name: 'attn.c_proj', transposed: true },
  up: { name: 'mlp.c_fc', transposed: true },
  down: { name: 'mlp.c_proj', transposed: true },
};
const gpt2Family = family({
  types: ['gpt2'],
  features: gpt2,
  names: GPT2_NAMES,
  gguf: { architectures: ['gpt2'], names: fusedQkv('attn_qkv') },
});
/** StarCoder 1: one key head for all, and matrices the usual way round. */
const bigcode = family({
  types: ['gpt_bigcode'],
  features: gpt2,
  names: (c) => ({
    ...GPT2_NAMES,
    ...fusedQkv('attn.c_attn', c.json.multi_query === false ? QKV_BY_GROUP : undefined),
    o: 'attn.c_proj',
    up: 'mlp.c_fc',
    down: 'mlp.c_proj',
  }),
  gguf: { architectures: ['starcoder'], names: fusedQkv('attn_qkv') },
});

const gptj = family({
  types: ['gptj'],
  features: (c) => {
    const s = gptSizes(c);
    const rotated = c.optional('rotary_dim') ?? s.headDim;
    return build('gptj', c, s, {
      norm: layerNorm(c, 'layer_norm_epsilon'),
      rope: fixedRope(s, rotated),
      mlp: () => ungated(inner(c, s.hidden), activationOf(c, 'activation_function', 'gelu_new')),
      biases: [...UNGATED_BIAS, 'head'],
      more: { parallel: 'shared' },
    });
  },
  names: {
    embed: 'transformer.wte',
    finalNorm: 'transformer.ln_f',
    head: 'lm_head',
    layer: 'transformer.h.{i}',
    beforeMixer: 'ln_1',
    q: 'attn.q_proj',
    k: 'attn.k_proj',
    v: 'attn.v_proj',
    o: 'attn.out_proj',
    up: 'mlp.fc_in',
    down: 'mlp.fc_out',
  },
});

/** GPT-NeoX's own names; those of the others have no effect beside the rope's parameters. */
const NEOX_ROPE = (c: Config): { readonly partial: number; readonly theta: number } => ({
  partial: c.optional('rotary_pct') ?? 0.25,
  theta: c.optional('rotary_emb_base') ?? 10_000,
});
const neox = family({
  types: ['gpt_neox'],
  features: (c) => {
    c.ignore('is_decoder');
    const s = sizesOf(c);
    const parallel = c.flag('use_parallel_residual', true);
    return build('gpt_neox', c, s, {
      norm: layerNorm(c, 'layer_norm_eps'),
      rope: ropeOf(c, s, { ...NEOX_ROPE(c), within: true }),
      mlp: () => ungated(c.count('intermediate_size'), activationOf(c, 'hidden_act', 'gelu')),
      biases: [...biasesBy(c, { attention_bias: ATTENTION_BIAS }, { attention_bias: true }), ...UNGATED_BIAS],
      more: parallel ? { parallel: 'own' } : {},
    });
  },
  names: {
    embed: 'gpt_neox.embed_in',
    finalNorm: 'gpt_neox.final_layer_norm',
    head: 'embed_out',
    layer: 'gpt_neox.layers.{i}',
    beforeMixer: 'input_layernorm',
    beforeMlp: 'post_attention_layernorm',
    ...fusedQkv('attention.query_key_value', QKV_BY_GROUP),
    o: 'attention.dense',
    up: 'mlp.dense_h_to_4h',
    down: 'mlp.dense_4h_to_h',
  },
  gguf: { architectures: ['gptneox'], names: fusedQkv('attn_qkv') },
});

/** Slopes 2^(-8h/n); with a number of heads that is not a power of two, those of the next one in between. */
function alibiSlopes(heads: number): number[] {
  const power = 2 ** Math.floor(Math.log2(heads));
  const base = 2 ** -(2 ** -(Math.log2(power) - 3));
  const extra = 2 ** -(2 ** -(Math.log2(2 * power) - 3));
  return Array.from({ length: heads }, (_, h) => (h < power ? base ** (h + 1) : extra ** (2 * (h - power) + 1)));
}

function falcon(c: Config): Features {
  const whole = sizesOf(c);
  const fresh = c.flag('new_decoder_architecture', false);
  const one = c.flag('multi_query', true);
  const kvHeads = fresh ? c.count('num_kv_heads', whole.heads) : one ? 1 : whole.heads;
  c.ignore('num_kv_heads', 'n_embed', 'n_head_kv');
  const s = checked(c, { ...whole, kvHeads });
  const norms = c.optional('num_ln_in_parallel_attn');
  const parallel = c.flag('parallel_attn', true) || fresh;
  const alibi = c.flag('alibi', false);
  const slopes = alibiSlopes(s.heads);
  if (alibi && !Number.isInteger(Math.log2(s.heads)) && fresh)
    throw new UnsupportedError(`${c.where}: alibi with ${s.heads} heads in the new architecture`);
  const scale = 1 / Math.sqrt(s.headDim);
  return build('falcon', c, s, {
    norm: layerNorm(c, 'layer_norm_epsilon'),
    ...(!alibi && { rope: ropeOf(c, s) }),
    // Falcon adds the bias before it scales.
    attention: () => (alibi ? { alibi: slopes.map((x) => x * scale) } : {}),
    mlp: () => ungated(c.count('ffn_hidden_size', 4 * s.hidden), activationOf(c, 'activation', 'gelu')),
    tied: true,
    biases: biasesBy(c, { bias: ALL_BIASES }),
    more: parallel ? { parallel: fresh && (norms ?? 2) === 2 ? 'own' : 'shared' } : {},
  });
}
const falconFamily = family({
  types: ['falcon'],
  features: (c) => {
    const f = falcon(c);
    if (f.layers[0].mixer.kind === 'attention' && f.layers[0].mixer.alibi) c.ignore('rope_parameters', 'rope_theta');
    return f;
  },
  names: (c) => ({
    embed: 'transformer.word_embeddings',
    finalNorm: 'transformer.ln_f',
    head: 'lm_head',
    layer: 'transformer.h.{i}',
    beforeMixer: ['ln_attn', 'input_layernorm'],
    beforeMlp: ['ln_mlp', 'post_attention_layernorm'],
    ...fusedQkv(
      'self_attention.query_key_value',
      c.json.multi_query !== false && !c.json.new_decoder_architecture ? undefined : QKV_BY_GROUP,
    ),
    o: 'self_attention.dense',
    up: 'mlp.dense_h_to_4h',
    down: 'mlp.dense_4h_to_h',
  }),
  gguf: {
    architectures: ['falcon'],
    names: { ...fusedQkv('attn_qkv'), beforeMixer: ['attn_norm_2', 'attn_norm'], beforeMlp: 'attn_norm' },
    written: (_, f) => (f.parallel === 'own' ? {} : { beforeMixer: 'attn_norm' }),
  },
});

const bloom = family({
  types: ['bloom'],
  features: (c) => {
    c.only('apply_residual_connection_post_layernorm', false);
    c.ignore('slow_but_exact', 'n_embed', 'seq_length', 'offset_alibi', 'attention_softmax_in_fp32', 'skip_bias_add');
    c.ignore('skip_bias_add_qkv', 'bias_dropout_fusion', 'masked_softmax_fusion', 'hidden_dropout');
    const hidden = c.has('hidden_size') ? c.count('hidden_size') : c.count('n_embed');
    const heads = c.has('n_head') ? c.count('n_head') : c.count('num_attention_heads');
    const s = checked(c, {
      hidden,
      layers: c.has('n_layer') ? c.count('n_layer') : c.count('num_hidden_layers'),
      heads,
      kvHeads: heads,
      headDim: hidden / heads,
      maxPositions: c.optional('seq_length') ?? 2048,
    });
    return build('bloom', c, s, {
      norm: layerNorm(c, 'layer_norm_epsilon'),
      attention: () => ({ alibi: alibiSlopes(heads) }),
      mlp: () => ungated(4 * hidden, 'gelu_new'),
      tied: true,
      biases: ALL_BIASES,
      more: { embedNorm: true },
    });
  },
  names: {
    embed: 'transformer.word_embeddings',
    embedNorm: 'transformer.word_embeddings_layernorm',
    finalNorm: 'transformer.ln_f',
    head: 'lm_head',
    layer: 'transformer.h.{i}',
    beforeMixer: 'input_layernorm',
    beforeMlp: 'post_attention_layernorm',
    ...fusedQkv('self_attention.query_key_value', QKV_BY_GROUP),
    o: 'self_attention.dense',
    up: 'mlp.dense_h_to_4h',
    down: 'mlp.dense_4h_to_h',
  },
  gguf: { architectures: ['bloom'], names: fusedQkv('attn_qkv') },
});

const mpt = family({
  types: ['mpt'],
  features: (c) => {
    const hidden = c.count('d_model', undefined, 1);
    const heads = c.count('n_heads', undefined, 1);
    const attn = c.inner('attn_config');
    attn?.only('attn_type', 'multihead_attention');
    attn?.only('prefix_lm', false);
    attn?.only('qk_ln', false);
    attn?.only('alibi', true);
    attn?.only('attn_uses_sequence_id', false);
    attn?.only('alibi_bias_max', 8);
    attn?.ignore('attn_impl', 'attn_pdrop', 'model_type', 'rope', 'rope_theta', 'kv_n_heads');
    const clip = attn?.optional('clip_qkv');
    const scale = attn?.optional('softmax_scale');
    c.ignore(
      'expansion_ratio', // transformers' layers are four times as wide, whatever it says; other tensors would not fit
      'init_device',
      'learned_pos_emb',
      'embedding_fraction',
      'emb_pdrop',
      'norm_type',
      'verbose',
      'init_config',
    );
    c.only('no_bias', true);
    c.only('logit_scale');
    const s = checked(c, {
      hidden,
      layers: c.count('n_layers'),
      heads,
      kvHeads: heads,
      headDim: hidden / heads,
      maxPositions: c.count('max_seq_len', 2048),
    });
    return build('mpt', c, s, {
      norm: { ...layerNorm(c, 'layer_norm_epsilon'), bias: false },
      attention: () => ({
        alibi: mptSlopes(heads),
        ...(clip !== undefined && { clip }),
        ...(scale !== undefined && { scale }),
      }),
      mlp: () => ungated(4 * hidden, 'gelu'),
      tied: true,
    });
  },
  names: {
    embed: 'transformer.wte',
    finalNorm: 'transformer.norm_f',
    head: 'lm_head',
    layer: 'transformer.blocks.{i}',
    beforeMixer: 'norm_1',
    beforeMlp: 'norm_2',
    ...fusedQkv('attn.Wqkv'),
    o: 'attn.out_proj',
    up: 'ffn.up_proj',
    down: 'ffn.down_proj',
  },
  gguf: { architectures: ['mpt'], names: fusedQkv('attn_qkv') },
});
/** MPT's slopes for other numbers of heads than powers of two: every second of the next power first. */
function mptSlopes(heads: number): number[] {
  const power = 2 ** Math.ceil(Math.log2(heads));
  const all = Array.from({ length: power }, (_, i) => 2 ** ((-8 * (i + 1)) / power));
  if (power === heads) return all;
  return [...all.filter((_, i) => i % 2 === 1), ...all.filter((_, i) => i % 2 === 0)].slice(0, heads);
}

const persimmon = family({
  types: ['persimmon'],
  features: (c) => {
    const s = sizesOf(c);
    const norm = layerNorm(c, 'layer_norm_eps');
    return build('persimmon', c, s, {
      norm,
      rope: ropeOf(c, s, { partial: 0.5 }),
      attention: () => (c.flag('qk_layernorm', true) ? { qkNorm: { norm, over: 'head' } } : {}),
      biases: ALL_BIASES,
      mlp: () => ungated(c.count('intermediate_size'), activationOf(c, 'hidden_act', 'relu2')),
    });
  },
  names: {
    ...LLAMA_NAMES,
    finalNorm: 'model.final_layernorm',
    ...fusedQkv('self_attn.query_key_value', QKV_BY_GROUP),
    o: 'self_attn.dense',
    qNorm: 'self_attn.q_layernorm',
    kNorm: 'self_attn.k_layernorm',
    up: 'mlp.dense_h_to_4h',
    down: 'mlp.dense_4h_to_h',
  },
});

const starcoder2 = family({
  types: ['starcoder2'],
  features: (c) => {
    const s = sizesOf(c);
    const windows = sameWindow(c, s.layers);
    return build('starcoder2', c, s, {
      norm: layerNorm(c, 'norm_epsilon'),
      rope: ropeOf(c, s),
      attention: (i) => ({ window: windows[i] }),
      mlp: () => ungated(c.count('intermediate_size'), activationOf(c, 'hidden_act', 'gelu_pytorch_tanh')),
      tied: true,
      biases: biasesBy(c, { use_bias: ALL_BIASES }, { use_bias: true }),
    });
  },
  names: { ...LLAMA_NAMES, up: 'mlp.c_fc', down: 'mlp.c_proj' },
  gguf: { architectures: ['starcoder2'] },
});

/** Norms of the sums. */
const SUM_NORMS = { norms: POST_NORMS, normedSums: true } as const;
const NO_LAST_NORM = { finalNorm: { kind: 'none', eps: 0 } } as const;
const OPT_NORMS = {
  ...{ beforeMixer: 'self_attn_layer_norm', afterMixer: 'self_attn_layer_norm' },
  ...{ beforeMlp: 'final_layer_norm', afterMlp: 'final_layer_norm' },
};
const opt = family({
  types: ['opt'],
  features: (c) => {
    const s = sizesOf(c);
    c.ignore('init_std');
    const width = c.count('word_embed_proj_dim', s.hidden, 1);
    const before = c.flag('do_layer_norm_before', true);
    const last = before && !c.flag('_remove_final_layer_norm', false);
    c.ignore('_remove_final_layer_norm');
    const affine = c.flag('layer_norm_elementwise_affine', true);
    return build('opt', c, s, {
      norm: { kind: 'layer', eps: 1e-5, ...(affine ? { bias: true } : { weightless: true }) },
      mlp: () => ungated(c.count('ffn_dim'), activationOf(c, 'activation_function', 'relu')),
      tied: true,
      biases: biasesBy(c, { enable_bias: ALL_BIASES }, { enable_bias: true }),
      more: {
        learntPositions: { count: s.maxPositions, offset: 2 },
        ...(!before && SUM_NORMS),
        ...(!last && NO_LAST_NORM),
        ...(width !== s.hidden && { embedWidth: width }),
      },
    });
  },
  names: {
    embed: 'model.decoder.embed_tokens',
    embedIn: 'model.decoder.project_in',
    embedOut: 'model.decoder.project_out',
    positions: 'model.decoder.embed_positions',
    finalNorm: 'model.decoder.final_layer_norm',
    head: 'lm_head',
    layer: 'model.decoder.layers.{i}',
    ...OPT_NORMS,
    q: 'self_attn.q_proj',
    k: 'self_attn.k_proj',
    v: 'self_attn.v_proj',
    o: 'self_attn.out_proj',
    up: 'fc1',
    down: 'fc2',
  },
});

const biogpt = family({
  types: ['biogpt'],
  features: (c) => {
    const s = sizesOf(c);
    c.ignore('layer_norm_eps'); // its norms do not read it
    return build('biogpt', c, s, {
      norm: { kind: 'layer', eps: 1e-5, bias: true },
      mlp: () => ungated(c.count('intermediate_size', undefined, 1), activationOf(c, 'hidden_act', 'gelu')),
      tied: true,
      biases: ALL_BIASES,
      more: {
        learntPositions: { count: s.maxPositions, offset: 2 },
        ...(c.flag('scale_embedding', true) && { embedFactor: Math.sqrt(s.hidden) }),
      },
    });
  },
  names: {
    embed: 'biogpt.embed_tokens',
    positions: 'biogpt.embed_positions',
    finalNorm: 'biogpt.layer_norm',
    head: 'output_projection',
    layer: 'biogpt.layers.{i}',
    ...OPT_NORMS,
    ...{ q: 'self_attn.q_proj', k: 'self_attn.k_proj', v: 'self_attn.v_proj', o: 'self_attn.out_proj' },
    ...{ up: 'fc1', down: 'fc2' },
  },
  ignored: () => /^output_projection\.weight$/,
});

/** The first GPT. */
const openaiGpt = family({
  types: ['openai-gpt'],
  features: (c) => {
    const s = gptSizes(c);
    const named = c.text('afn', 'gelu');
    c.only('afn', 'gelu', 'relu', 'silu', 'swish');
    return build('openai-gpt', c, s, {
      norm: layerNorm(c, 'layer_norm_epsilon'),
      mlp: () => ungated(4 * s.hidden, named === 'gelu' ? 'gelu_new' : named),
      tied: true,
      biases: ALL_BIASES,
      more: { learntPositions: { count: s.maxPositions, offset: 0 }, ...SUM_NORMS, ...NO_LAST_NORM },
    });
  },
  names: {
    ...GPT2_NAMES,
    ...{ embed: 'transformer.tokens_embed', positions: 'transformer.positions_embed' },
    ...{ beforeMixer: undefined, beforeMlp: undefined, afterMixer: 'ln_1', afterMlp: 'ln_2' },
  },
  ignored: () => /(\.attn\.bias|position_ids)$/,
});

/** GPT-OSS: sinks, windows on every other layer, experts with biases and clamped gates. */
const even = (t: Tensor, at: 0 | 1): Tensor => {
  const [e, n, ...rest] = t.shape;
  return t
    .reshape([e, n / 2, 2, ...rest])
    .narrow(2, at, 1)
    .reshape([e, n / 2, ...rest]);
};
/** In floats the matrices are turned round, in blocks of 4-bit floats they are not. */
function ossExperts(name: string, rows?: (t: Tensor) => Tensor): readonly Place[] {
  const at = `mlp.experts.${name}`;
  const more = { bare: true, ...(rows && { rows }) };
  return [
    { name: at, transposed: true, ...more },
    { name: `${at}_blocks`, bias: `${at}_bias`, ...more },
  ];
}
const OSS_ROPE = { rope_type: 'yarn', factor: 32, truncate: false, original_max_position_embeddings: 4096 };
const gptOss = family({
  types: ['gpt_oss'],
  features: (c) => {
    c.ignore('initial_context_length');
    const s = sizesOf(c);
    const types = layerTypes(c, s.layers, (i) => (i % 2 === 0 ? 'sliding_attention' : full()));
    const windows = windowsBy(c, types, c.optional('sliding_window'));
    c.ignore('swiglu_limit', 'experts_per_token');
    c.only('swiglu_limit', 7);
    return build('gpt_oss', c, s, {
      norm: rms(c, 1e-5),
      rope: ropeOf(c, s, { theta: 150_000, unsaid: OSS_ROPE }),
      attention: (i) => ({ window: windows[i], sinks: true }),
      mlp: () =>
        experts(c, {
          count: c.count('num_local_experts', undefined, 1),
          chosen: c.count('num_experts_per_tok', undefined, 1),
          inner: c.count('intermediate_size'),
          score: 'logits',
          weights: 'softmax',
          clamped: { limit: 7, alpha: 1.702 },
        }),
      biases: [
        ...biasesBy(c, { attention_bias: ATTENTION_BIAS }, { attention_bias: true }),
        ...(['router', 'expertGate', 'expertUp', 'expertDown'] as const),
      ],
    });
  },
  names: {
    ...LLAMA_NAMES,
    sinks: { name: 'self_attn.sinks', bare: true },
    router: 'mlp.router',
    expertGate: ossExperts('gate_up_proj', (t) => even(t, 0)),
    expertUp: ossExperts('gate_up_proj', (t) => even(t, 1)),
    expertDown: ossExperts('down_proj'),
  },
  gguf: { architectures: ['gpt-oss'], names: { beforeMlp: 'post_attention_norm', sinks: 'attn_sinks' } },
});

export const GPT_FAMILIES = [
  gpt2Family,
  bigcode,
  gptj,
  neox,
  falconFamily,
  bloom,
  mpt,
  persimmon,
  starcoder2,
  opt,
  biogpt,
  openaiGpt,
  gptOss,
];

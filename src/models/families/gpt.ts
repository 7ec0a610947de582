// GPT-2 and its descendants: layer norms with biases, feed-forward parts without a gate, fused projections.
import type { Config } from '../files/config.js';
import { type Features, POST_NORMS } from '../decoder/features.js';
import { bloom, falconFamily, mpt } from './alibi.js';
import {
  ATTENTION_BIAS,
  activationOf,
  biasesBy,
  build,
  checked,
  fixedRope,
  fusedQkv,
  LLAMA_NAMES,
  layerNorm,
  QKV_BY_GROUP,
  ropeOf,
  sameWindow,
  type Sizes,
  sizesOf,
  UNGATED_BIAS,
  ungated,
  ALL_BIASES,
} from './common.js';
import { gptOss, privacyFilter } from './gpt-oss.js';
import { family } from './row.js';
import type { Names } from '../decoder/weights.js';

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
  types: ['gpt2', 'gpt-sw3'],
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
    c.only('scale_attn_weights', true);
    c.only('rotary', true);
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
    // Said once more by the files of the first ones.
    c.only('activation_function', c.get('hidden_act'));
    c.only('norm_type', 'layer_norm');
    c.only('mlp_type', 'default');
    c.ignore('layer_norm_epsilon');
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
  gguf: { architectures: ['starcoder2', 'codeshell'] },
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
  privacyFilter,
];

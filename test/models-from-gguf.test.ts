// GGUF files as llama.cpp's converters write them, of architectures that are read and not written: made here from
// folders by its names and keys, and held against transformers' answers.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { loadModel } from '../src/models/index.js';
import { MODEL_TOLERANCE } from '../src/parity/model-checks.js';
import { type Case, distanceOf, type Rules, SECOND_NORM, SIZES, slides, written } from './gguf-files.js';
import { families, skipFamilies } from './models-support.js';

const GEMMA: Rules = [
  [/post_attention_layernorm/, 'post_attention_norm'],
  [/(pre|post)_feedforward_layernorm(_[12])/, '$1_ffw_norm$2'],
  [/post_feedforward_layernorm/, 'post_ffw_norm'],
  [/pre_feedforward_layernorm/, 'ffn_norm'],
  [/model\.embed_tokens_per_layer/, 'per_layer_token_embd'],
  [/model\.per_layer_model_projection/, 'per_layer_model_proj'],
  [/model\.per_layer_projection_norm/, 'per_layer_proj_norm'],
  [/per_layer_input_gate/, 'inp_gate'],
  [/per_layer_projection/, 'proj'],
  [/post_per_layer_input_norm/, 'post_norm'],
];

/** Divisors of a rope of Llama 3's kind, as the config of the folder has it. */
function divisors(theta: number, half: number, { factor, low, high, original } = LLAMA3): readonly number[] {
  return Array.from({ length: half }, (_, i) => {
    const wave = 2 * Math.PI * theta ** (i / half);
    const smooth = (original / wave - low) / (high - low);
    return wave < original / high ? 1 : wave > original / low ? factor : 1 / ((1 - smooth) / factor + smooth);
  });
}
const LLAMA3 = { factor: 8, low: 1, high: 4, original: 8192 };
const CASES: Readonly<Record<string, Case>> = {
  llama: {
    architecture: 'exaone',
    rules: SECOND_NORM,
    keys: {
      ...{ ...SIZES, block_count: 3, feed_forward_length: 80, 'rope.dimension_count': 12, 'rope.freq_base': 1e4 },
      'attention.layer_norm_rms_epsilon': 1e-6,
    },
  },
  gemma4_text: {
    architecture: 'gemma4',
    rules: [...GEMMA, [/layer_scalar/, 'layer_output_scale.weight']],
    keys: {
      ...{ ...SIZES, block_count: 6, feed_forward_length: [64, 64, 64, 64, 128, 128] },
      ...{ 'attention.key_length': 24, 'attention.key_length_swa': 16, 'attention.sliding_window': 7 },
      ...{ 'attention.shared_kv_layers': 2, embedding_length_per_layer_input: 10, 'rope.dimension_count': 24 },
      ...{ 'attention.layer_norm_rms_epsilon': 1e-6, 'rope.freq_base': 1e6, 'rope.freq_base_swa': 1e4 },
      ...slides(true, false, true, false, true, false),
    },
    made: { 'rope_freqs.weight': [1, 1, 1, ...Array<number>(9).fill(1e30)] },
  },
  'gemma4_text-b': {
    architecture: 'gemma4',
    rules: [
      ...GEMMA,
      [/layer_scalar/, 'layer_output_scale.weight'],
      [/router\.per_expert_scale/, 'ffn_down_exps.scale'],
      [/router\.scale/, 'ffn_gate_inp.scale'],
      [/router\.proj/, 'ffn_gate_inp'],
      [/experts\.gate_up_proj/, 'ffn_gate_up_exps.weight'],
      [/experts\.down_proj/, 'ffn_down_exps.weight'],
    ],
    keys: {
      ...{ ...SIZES, 'attention.head_count_kv': [2, 1, 2, 1], block_count: 4, feed_forward_length: 64 },
      ...{ 'attention.key_length': 24, 'attention.key_length_swa': 16, 'attention.sliding_window': 7 },
      ...{ 'attention.layer_norm_rms_epsilon': 1e-6, 'rope.freq_base': 1e6, 'rope.freq_base_swa': 1e4 },
      ...{ expert_count: 6, expert_used_count: 2, expert_feed_forward_length: 20, final_logit_softcapping: 30 },
      ...slides(true, false, true, false),
    },
    made: { 'rope_freqs.weight': [1, 1, 1, ...Array<number>(9).fill(1e30)] },
  },
  gemma3n_text: {
    architecture: 'gemma3n',
    rules: [
      ...GEMMA,
      [/model\.altup_projections/, 'altup_proj'],
      [/model\.altup_unembed_projections/, 'altup_unembd_proj'],
      [/altup\.correct_output_scale/, 'altup_correct_scale.weight'],
      [/altup\.correction_coefs/, 'altup_correct_coef'],
      [/altup\.prediction_coefs/, 'altup_predict_coef'],
      [/altup\.modality_router/, 'altup_router'],
      [/altup\.router_norm/, 'altup_router_norm'],
      [/laurel\.linear_left/, 'laurel_l'],
      [/laurel\.linear_right/, 'laurel_r'],
      [/laurel\.post_laurel_norm/, 'laurel_post_norm'],
    ],
    keys: {
      ...{ ...SIZES, block_count: 6, feed_forward_length: [64, 64, 64, 64, 64, 64], 'attention.key_length': 16 },
      ...{ 'attention.sliding_window': 7, 'attention.shared_kv_layers': 2, embedding_length_per_layer_input: 10 },
      ...{ 'attention.layer_norm_rms_epsilon': 1e-6, 'rope.freq_base': 1e6, 'rope.freq_base_swa': 1e4 },
      ...{ 'altup.active_idx': 0, 'altup.num_inputs': 4, final_logit_softcapping: 30 },
      // The points below which half and four fifths of a normal distribution lie.
      activation_sparsity_scale: [0, 0.8416212335729143, -Infinity, -Infinity, -Infinity, -Infinity],
      ...slides(true, false, true, false, true, false),
    },
  },
  apertus: {
    architecture: 'apertus',
    rules: SECOND_NORM,
    keys: {
      ...{ ...SIZES, block_count: 3, feed_forward_length: 80, 'attention.layer_norm_rms_epsilon': 1e-5 },
      'rope.freq_base': 12e6,
    },
    made: { 'rope_freqs.weight': divisors(12e6, 6) },
    told: /act_fn\.(alpha_p|alpha_n|beta|eps)$/,
  },
  jais2: {
    architecture: 'jais2',
    rules: SECOND_NORM,
    keys: { ...SIZES, block_count: 3, feed_forward_length: 80, 'attention.layer_norm_epsilon': 1e-5 },
  },
  exaone_moe: {
    architecture: 'exaone-moe',
    rules: [...SECOND_NORM, [/mlp\.e_score_correction_bias/, 'exp_probs_b.bias']],
    keys: {
      ...{ ...SIZES, block_count: 3, feed_forward_length: 80, 'attention.layer_norm_rms_epsilon': 1e-5 },
      ...{ expert_count: 8, expert_used_count: 2, expert_feed_forward_length: 24, expert_weights_scale: 2.5 },
      ...{ expert_shared_count: 1, expert_weights_norm: true, 'attention.sliding_window': 8 },
      ...slides(true, true, true),
    },
  },
  cohere2_moe: {
    architecture: 'cohere2moe',
    rules: [],
    keys: {
      ...{ ...SIZES, block_count: 3, 'attention.layer_norm_epsilon': 1e-5, logit_scale: 0.0625 },
      ...{ expert_count: 6, expert_used_count: 2, expert_feed_forward_length: 64, expert_gating_func: 1 },
      ...{ expert_shared_count: 2, expert_weights_norm: true, 'attention.sliding_window': 6 },
      ...slides(true, true, false),
    },
  },
  // A file without a word on how scores are made: its experts' bias tells.
  deepseek_v3: {
    architecture: 'deepseek2',
    rules: [
      ...SECOND_NORM,
      [/mlp\.gate\.e_score_correction_bias/, 'exp_probs_b.bias'],
      [/self_attn\.(q_a|q_b|kv_b)_proj/, 'attn_$1'],
      [/self_attn\.kv_a_proj_with_mqa/, 'attn_kv_a_mqa'],
      [/self_attn\.(q_a|kv_a)_layernorm/, 'attn_$1_norm'],
    ],
    keys: {},
  },
};

/** Keys of DeepSeek V3's file, from its own config: what the converter takes from there. */
function latentKeys(): Case['keys'] {
  const c = families.deepseek_v3.config as Record<string, number>;
  return {
    ...{ block_count: c.num_hidden_layers, context_length: 128, embedding_length: 48, 'attention.head_count': 4 },
    ...{ 'attention.head_count_kv': 4, feed_forward_length: c.intermediate_size },
    ...{ 'attention.kv_lora_rank': c.kv_lora_rank, 'rope.dimension_count': c.qk_rope_head_dim },
    ...(c.q_lora_rank && { 'attention.q_lora_rank': c.q_lora_rank }),
    ...{ 'attention.key_length': c.qk_nope_head_dim + c.qk_rope_head_dim, 'attention.value_length': c.v_head_dim },
    ...{ 'attention.layer_norm_rms_epsilon': c.rms_norm_eps, 'rope.freq_base': 10_000 },
    ...{ expert_count: c.n_routed_experts, expert_used_count: c.num_experts_per_tok },
    ...{ expert_feed_forward_length: c.moe_intermediate_size, expert_shared_count: c.n_shared_experts },
    ...{ expert_weights_scale: c.routed_scaling_factor, expert_weights_norm: Boolean(c.norm_topk_prob) },
    ...{ expert_group_count: c.n_group, expert_group_used_count: c.topk_group },
  };
}
for (const [name, plain] of Object.entries(CASES))
  test(`${name} as a file of the architecture ${plain.architecture}: transformers' logits`, {
    skip: skipFamilies,
  }, () => {
    const path = written(name, plain.architecture === 'deepseek2' ? { ...plain, keys: latentKeys() } : plain);
    const error = distanceOf(name, path);
    assert.ok(error <= MODEL_TOLERANCE, `off by ${error}`);
  });

test('a file of Apertus without the numbers of its activation is refused', { skip: skipFamilies }, () => {
  const path = written('apertus', { ...CASES.apertus, told: /act_fn\.(alpha_p|alpha_n|beta)$/ });
  assert.throws(() => loadModel(path, { device: 'cpu' }), /xielu\.eps must give a number for each of 3 layers/);
});

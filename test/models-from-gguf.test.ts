// GGUF files as llama.cpp's converters write them, of architectures that are read and not written: made here from
// folders by its names and keys, and held against transformers' answers.
import assert from 'node:assert/strict';
import { join } from 'node:path';
import { test } from 'node:test';
import { ggmlType } from '../src/base/blocks/types.js';
import type { GgufValue } from '../src/io/gguf-value.js';
import { writeGguf } from '../src/io/gguf-write.js';
import { SafeTensors } from '../src/io/safetensors.js';
import { type CausalLM, loadModel } from '../src/models/index.js';
import { MODEL_TOLERANCE, relativeError } from '../src/parity/model-checks.js';
import { noGrad } from '../src/tensor/autograd.js';
import { scope } from '../src/tensor/scope.js';
import { answerOf, families, familyFolder, skipFamilies } from './models-support.js';

type Rules = readonly (readonly [RegExp, string])[];
/** What nearly all architectures call their tensors. */
const PLAIN: Rules = [
  [/^model\.embed_tokens\.|^transformer\.wte\./, 'token_embd.'],
  [/^model\.norm|^transformer\.norm_f/, 'output_norm'],
  [/^lm_head/, 'output'],
  [/^model\.layers\.|^transformer\.blocks\./, 'blk.'],
  [/(input|attention)_layernorm|norm_attn_norm\.norm_1/, 'attn_norm'],
  [/self_attn\.([qkv])_proj/, 'attn_$1'],
  [/self_attn\.o_proj/, 'attn_output'],
  [/self_attn\.([qk])_norm/, 'attn_$1_norm'],
  [/mlp\.(gate|up|down)_proj/, 'ffn_$1'],
  [/mlp\.experts\.(gate|up|down)_proj/, 'ffn_$1_exps'],
  [/mlp\.shared_experts\.(gate|up|down)_proj/, 'ffn_$1_shexp'],
  [/mlp\.gate\./, 'ffn_gate_inp.'],
];
const SECOND_NORM: Rules = [[/(post_attention|feedforward)_layernorm/, 'ffn_norm']];
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

interface Case {
  readonly architecture: string;
  readonly rules: Rules;
  /** Keys of the architecture, in the order of the converter's. */
  readonly keys: Readonly<Record<string, number | boolean | readonly (number | boolean)[]>>;
  /** Tensors that the converter makes. */
  readonly made?: Readonly<Record<string, readonly number[]>>;
  /** Values that are not tensors in a file. */
  readonly told?: RegExp;
}
const SIZES = {
  ...{ context_length: 128, embedding_length: 48, 'attention.head_count': 4, 'attention.head_count_kv': 2 },
};
const slides = (...flags: readonly boolean[]): object => ({ 'attention.sliding_window_pattern': flags });
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
const bytesOf = (list: readonly number[]): Uint8Array => new Uint8Array(Float32Array.from(list).buffer);
const floats = (bytes: Uint8Array): Float32Array => new Float32Array(bytes.slice().buffer);
function valueOf(v: number | boolean | readonly (number | boolean)[]): GgufValue {
  if (typeof v === 'boolean') return { type: 'bool', value: v };
  if (typeof v === 'number') return { type: Number.isInteger(v) && v < 1e5 ? 'u32' : 'f32', value: v };
  if (typeof v[0] === 'boolean') return { type: 'array', of: 'bool', value: v as boolean[] };
  const list = v as readonly number[];
  return list.every(Number.isInteger)
    ? { type: 'array', of: 'i32', value: Int32Array.from(list) }
    : { type: 'array', of: 'f32', value: Float32Array.from(list) };
}
/** The file of a folder, as a case describes it. */
function written(name: string, { architecture, rules, keys, made = {}, told }: Case): string {
  const dir = familyFolder(name);
  const file = SafeTensors.open(dir);
  const tensors = new Map<string, { shape: number[]; parts: Uint8Array[] }>();
  const curves = new Map<string, number[]>();
  const apart = /(experts|projections)\.(\d+)\./;
  for (const key of [...file.names].sort((a, b) => Number(apart.exec(a)?.[2] ?? 0) - Number(apart.exec(b)?.[2] ?? 0))) {
    const { shape } = file.record(key);
    const bytes = file.record(key).read().slice();
    const value = told?.exec(key)?.[1];
    if (value) curves.set(value, [...(curves.get(value) ?? []), floats(bytes)[0]]);
    if (value) continue;
    const to = [...rules, ...PLAIN].reduce((n, [from, by]) => n.replace(from, by), key.replace(apart, '$1.'));
    const known = tensors.get(to);
    tensors.set(to, { shape: [...shape], parts: [...(known?.parts ?? []), bytes] });
  }
  file.close();
  const metadata = new Map<string, GgufValue>([['general.architecture', { type: 'string', value: architecture }]]);
  for (const [key, v] of Object.entries(keys)) metadata.set(`${architecture}.${key}`, valueOf(v));
  for (const [key, list] of curves)
    metadata.set(`xielu.${key}`, { type: 'array', of: 'f32', value: Float32Array.from(list) });
  const path = join(dir, 'model.gguf');
  const stored = [...tensors].map(([to, { shape, parts }]) => ({
    ...{ name: to, type: ggmlType('f32'), shape: parts.length > 1 ? [parts.length, ...shape] : shape },
    bytes: parts.length > 1 ? new Uint8Array(Buffer.concat(parts)) : parts[0],
  }));
  const more = Object.entries(made).map(([to, list]) => ({
    ...{ name: to, type: ggmlType('f32'), shape: [list.length], bytes: bytesOf(list) },
  }));
  writeGguf(path, metadata, [...stored, ...more]);
  return path;
}

for (const [name, plain] of Object.entries(CASES))
  test(
    `${name} as a file of the architecture ${plain.architecture}: transformers' logits`,
    { skip: skipFamilies },
    () =>
      scope(() => {
        const path = written(name, plain.architecture === 'deepseek2' ? { ...plain, keys: latentKeys() } : plain);
        const { model } = loadModel<CausalLM>(path, { device: 'cpu', kind: 'decoder' });
        const got = noGrad(() => model.forward(answerOf(name, 'input_ids')));
        const error = relativeError(got, answerOf(name, 'logits'));
        assert.ok(error <= MODEL_TOLERANCE, `off by ${error}`);
        model.dispose();
      }),
  );

test('a file of Apertus without the numbers of its activation is refused', { skip: skipFamilies }, () => {
  const path = written('apertus', { ...CASES.apertus, told: /act_fn\.(alpha_p|alpha_n|beta)$/ });
  assert.throws(() => loadModel(path, { device: 'cpu' }), /xielu\.eps must give a number for each of 3 layers/);
});

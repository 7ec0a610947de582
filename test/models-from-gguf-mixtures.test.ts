// GGUF files of mixtures with windows, gates, states or an indexer, as llama.cpp's converters write them, held against
// transformers' answers; and what files of any architecture may say in other words.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { FormatError, ShapeError, UnsupportedError } from '../src/base/errors.js';
import { loadModel } from '../src/models/index.js';
import { MODEL_TOLERANCE } from '../src/parity/model-checks.js';
import { type Case, distanceOf, pairs, type Rules, SECOND_NORM, SIZES, slides, written } from './gguf-files.js';
import { skipFamilies } from './models-support.js';

const EPS = 'attention.layer_norm_rms_epsilon';
const sized = (inner: number, eps: number): object => ({
  ...{ ...SIZES, block_count: 3, feed_forward_length: inner, [EPS]: eps },
});
const mixture = (count: number, used: number, inner: number): object => ({
  ...{ expert_count: count, expert_used_count: used, expert_feed_forward_length: inner },
});
const SMALL = { ...mixture(6, 2, 24), 'attention.key_length': 16 };
const HUNYUAN: Rules = [
  ...SECOND_NORM,
  [/mlp\.router\.gate/, 'ffn_gate_inp'],
  [/mlp\.expert_bias/, 'exp_probs_b'],
  [/mlp\.shared_mlp\.(gate|up|down)_proj/, 'ffn_$1_shexp'],
];
const LATENT: Rules = [
  ...SECOND_NORM,
  [/self_attn\.(q_a|q_b|kv_b)_proj/, 'attn_$1'],
  [/self_attn\.kv_a_proj_with_mqa/, 'attn_kv_a_mqa'],
  [/self_attn\.(q_a|kv_a)_layernorm/, 'attn_$1_norm'],
];
const LATENT_KEYS = {
  ...{ 'attention.head_count_kv': 1, 'attention.q_lora_rank': 20, 'attention.kv_lora_rank': 16 },
  ...{ 'attention.key_length': 24, 'attention.value_length': 16 },
  ...{ 'attention.key_length_mla': 20, 'attention.value_length_mla': 16, 'rope.dimension_count': 8 },
};
const W: Rules = [
  [/block_sparse_moe\.experts\.w1/, 'ffn_gate_exps'],
  [/block_sparse_moe\.experts\.w2/, 'ffn_down_exps'],
  [/block_sparse_moe\.experts\.w3/, 'ffn_up_exps'],
  [/block_sparse_moe\.gate\./, 'ffn_gate_inp.'],
];
const STATES: Rules = [
  [/(self_attn|mamba)\.A_log/, 'ssm_a'],
  [/(self_attn|mamba)\.dt_bias/, 'ssm_dt.bias'],
];
const rates = (numbers: Float32Array): Float32Array => numbers.map((x) => -Math.exp(x));
const CASES: Readonly<Record<string, Case>> = {
  'afmoe-b': {
    architecture: 'afmoe',
    rules: [
      ...HUNYUAN.slice(1),
      [/expert_bias|exp_probs_b$/, 'exp_probs_b.bias'],
      [/post_attention_layernorm/, 'post_attention_norm'],
      [/pre_mlp_layernorm/, 'ffn_norm'],
      [/post_mlp_layernorm/, 'post_ffw_norm'],
      [/self_attn\.gate_proj/, 'attn_gate'],
    ],
    keys: {
      ...{ ...sized(64, 1e-5), ...SMALL, expert_shared_count: 1, expert_weights_scale: 1.7 },
      ...{ leading_dense_block_count: 2, 'attention.sliding_window': 7, 'rope.freq_base': 1e4 },
      ...slides(true, false, true),
    },
  },
  // One layer more, for predicting several tokens at once.
  hy_v3: {
    architecture: 'hy_v3',
    rules: HUNYUAN,
    keys: {
      ...{ ...sized(64, 1e-5), ...SMALL, block_count: 4, nextn_predict_layers: 1, 'rope.freq_base': 11_158_840 },
      ...{ expert_shared_feed_forward_length: 24, expert_weights_norm: true, expert_weights_scale: 2.826 },
      expert_gating_func: 2,
    },
    made: { 'blk.3.nextn.enorm.weight': Array<number>(48).fill(1) },
  },
  laguna: {
    architecture: 'laguna',
    rules: [
      ...SECOND_NORM,
      [/self_attn\.g_proj/, 'attn_gate'],
      [/mlp\.shared_expert\.(gate|up|down)_proj/, 'ffn_$1_shexp'],
      [/mlp\.experts\.e_score_correction_bias/, 'exp_probs_b.bias'],
    ],
    keys: {
      ...{ ...sized(64, 1e-6), ...SMALL, 'attention.head_count': [4, 6, 2], 'attention.sliding_window': 6 },
      ...{ 'rope.dimension_count': 8, 'rope.dimension_count_swa': 16 },
      ...{ 'rope.freq_base': 5e5, 'rope.freq_base_swa': 1e4, expert_shared_feed_forward_length: 20 },
      ...{ expert_weights_norm: true, expert_weights_scale: 1, expert_gating_func: 2 },
      ...slides(false, true, false),
    },
  },
  mimo_v2_flash: {
    architecture: 'mimo2',
    rules: [
      ...SECOND_NORM,
      [/mlp\.gate\.e_score_correction_bias/, 'exp_probs_b.bias'],
      [/self_attn\.attention_sink_bias/, 'attn_sinks.weight'],
    ],
    keys: {
      ...{ ...sized(64, 1e-6), ...mixture(6, 2, 24), 'attention.head_count_kv': [2, 4, 4] },
      ...{ 'attention.key_length': 24, 'attention.value_length': 16, 'rope.dimension_count': 8 },
      ...{ 'rope.freq_base': 5e6, 'rope.freq_base_swa': 1e4, 'attention.value_scale': 0.707 },
      ...{ 'attention.sliding_window': 6, ...slides(false, true, true) },
    },
  },
  mellum: {
    architecture: 'mellum',
    rules: SECOND_NORM,
    keys: {
      ...{ ...sized(80, 1e-6), ...mixture(8, 3, 24), 'attention.key_length': 16, expert_weights_norm: false },
      ...{ 'rope.scaling.type': 'yarn', 'rope.scaling.factor': 4, 'rope.scaling.original_context_length': 16 },
      ...{ 'rope.freq_base': 5e5, 'rope.freq_base_swa': 100, 'attention.sliding_window': 5 },
      ...slides(true, false, true),
    },
  },
  phimoe: {
    architecture: 'phimoe',
    rules: [...W, ...SECOND_NORM],
    keys: { ...sized(80, 1e-5), ...mixture(4, 2, 80), 'rope.freq_base': 1e6, 'attention.sliding_window': 0 },
  },
  mistral4: {
    architecture: 'mistral4',
    rules: [
      ...LATENT,
      [/mlp\.experts\.gate_up_proj/, 'ffn_gate_up_exps.weight'],
      [/mlp\.experts\.down_proj/, 'ffn_down_exps.weight'],
    ],
    keys: {
      ...{ ...sized(64, 1e-6), ...mixture(6, 2, 24), ...LATENT_KEYS, expert_shared_count: 1 },
      ...{ 'rope.scaling.type': 'yarn', 'rope.scaling.factor': 4, 'rope.scaling.original_context_length': 8 },
      ...{ 'rope.scaling.yarn_log_multiplier': 0.1, 'attention.temperature_scale': 0.3, expert_weights_norm: true },
    },
  },
  glm_moe_dsa: {
    architecture: 'glm-dsa',
    rules: [
      ...LATENT,
      [/mlp\.gate\.e_score_correction_bias/, 'exp_probs_b.bias'],
      [/self_attn\.indexer\./, 'indexer.'],
    ],
    keys: {
      ...{ ...sized(64, 1e-5), ...mixture(6, 2, 24), ...LATENT_KEYS, expert_shared_count: 2 },
      ...{ expert_weights_norm: true, expert_weights_scale: 2.5, 'attention.indexer.top_k': 64 },
      ...{ 'attention.indexer.head_count': 2, 'attention.indexer.key_length': 12 },
    },
  },
  kimi_linear: {
    architecture: 'kimi-linear',
    rules: [
      ...W.slice(0, 3),
      ...STATES,
      ...LATENT,
      [/block_sparse_moe\.gate\.e_score_correction_bias/, 'exp_probs_b.bias'],
      ...W.slice(3),
      [/block_sparse_moe\.shared_experts\.(gate|up|down)_proj/, 'ffn_$1_shexp'],
      [/block_sparse_moe\.(gate|up|down)_proj/, 'ffn_$1'],
      [/self_attn\.(f|g)_(a|b)_proj/, 'ssm_$1_$2'],
      [/self_attn\.b_proj/, 'ssm_beta'],
      [/self_attn\.([qkv])_conv1d/, 'ssm_conv1d_$1'],
      [/self_attn\.o_norm/, 'ssm_norm'],
    ],
    keys: {
      ...{ ...sized(64, 1e-5), ...mixture(6, 2, 24), ...LATENT_KEYS, 'attention.q_lora_rank': 0 },
      ...{ 'attention.head_count_kv': [0, 1, 0], 'kda.head_dim': 8, 'ssm.conv_kernel': 4, expert_shared_count: 1 },
      ...{ expert_weights_scale: 2.446, expert_gating_func: 2 },
    },
    change: (name, numbers) => (name.endsWith('A_log') ? rates(numbers) : numbers),
  },
  bamba: {
    architecture: 'granitehybrid',
    rules: [
      ...STATES,
      [/model\.final_layernorm/, 'output_norm'],
      [/pre_ff_layernorm/, 'ffn_norm'],
      [/feed_forward\.(gate|up|down)_proj/, 'ffn_$1'],
      [/mamba\.D$/, 'ssm_d'],
      [/mamba\.(in|out)_proj/, 'ssm_$1'],
      [/mamba\.(conv1d|norm)/, 'ssm_$1'],
    ],
    keys: {
      ...{ ...sized(64, 1e-5), 'attention.head_count_kv': [0, 2, 0], 'rope.dimension_count': 6 },
      ...{ 'ssm.conv_kernel': 4, 'ssm.state_size': 8, 'ssm.group_count': 1, 'ssm.inner_size': 96 },
      ...{ 'ssm.time_step_rank': 6, 'rope.scaling.finetuned': true, 'rope.freq_base': 1e4 },
    },
    change: (name, numbers) => (name.endsWith('A_log') ? rates(numbers) : pairs(name, numbers)),
  },
  'granitemoe_swa-b': {
    architecture: 'granite_swa',
    rules: [
      ...SECOND_NORM,
      [/self_attn\.sinks/, 'attn_sinks.weight'],
      [/block_sparse_moe\.router(\.layer)?/, 'ffn_gate_inp'],
      [/block_sparse_moe\.experts\.gate_up_proj/, 'ffn_gate_up_exps.weight'],
      [/block_sparse_moe\.experts\.down_proj/, 'ffn_down_exps.weight'],
      [/shared_mlp\.input_linear/, 'ffn_up_shexp'],
      [/shared_mlp\.output_linear/, 'ffn_down_shexp'],
    ],
    keys: {
      ...{ ...sized(80, 1e-6), expert_count: 4, expert_used_count: 3, expert_shared_feed_forward_length: 20 },
      ...{ 'attention.scale': 0.2, embedding_scale: 3, residual_scale: 0.4, logit_scale: 2.5 },
      ...{ 'attention.sliding_window': 7, 'attention.rope_pattern': [true, true, true] },
      ...slides(false, true, true),
    },
    change: pairs,
  },
};

for (const [name, plain] of Object.entries(CASES))
  test(`${name} as a file of the architecture ${plain.architecture}: transformers' logits`, {
    skip: skipFamilies,
  }, () => {
    const error = distanceOf(name, written(name, plain));
    assert.ok(error <= MODEL_TOLERANCE, `off by ${error}`);
  });

test('a router of another kind than the family has is refused by its key', { skip: skipFamilies }, () => {
  const refused = (keys: object, reason: RegExp): void => {
    const path = written('hy_v3', { ...CASES.hy_v3, keys: { ...CASES.hy_v3.keys, ...keys } });
    assert.throws(
      () => loadModel(path, { device: 'cpu' }),
      (e: Error) => e instanceof UnsupportedError && reason.test(e.message),
    );
  };
  refused({ expert_gating_func: 1 }, /hy_v3\.expert_gating_func is 1; routers of this family have a sigmoid/);
  refused({ expert_gating_func: 4 }, /expert_gating_func is 4/);
  refused({ expert_weights_norm: false }, /expert_weights_norm is false; .* have weights that are normalised/);
});

const LLAMA: Case = {
  architecture: 'llama',
  rules: SECOND_NORM,
  keys: { ...sized(80, 1e-6), 'rope.freq_base': 1e4 },
  change: pairs,
};
test('queries, keys and values in one tensor are read by any architecture, and only if the rows are theirs', {
  skip: skipFamilies,
}, () => {
  const fused: Case = {
    ...LLAMA,
    architecture: 'llama',
    rules: [...SECOND_NORM, [/self_attn\.[qkv]_proj/, 'attn_qkv']],
    joined: /attn_qkv/,
  };
  const [apart, together] = [
    distanceOf('llama', written('llama', LLAMA)),
    distanceOf('llama', written('llama', fused)),
  ];
  assert.ok(apart <= MODEL_TOLERANCE && together <= MODEL_TOLERANCE, `off by ${apart}, ${together}`);
  const path = written('llama', { ...fused, keys: { ...fused.keys, 'attention.head_count_kv': 1 } });
  assert.throws(
    () => loadModel(path, { device: 'cpu' }),
    (e: Error) =>
      e instanceof ShapeError && /attn_qkv.*has 96 rows; 4 heads and 1 key heads of 12 have 72/.test(e.message),
  );
});

test('a factor of the rope without a kind stretches evenly, under its old name too', { skip: skipFamilies }, () => {
  const off = (keys: object): number =>
    distanceOf('llama', written('llama', { ...LLAMA, keys: { ...LLAMA.keys, ...keys } }));
  const even = off({ 'rope.scaling.type': 'linear', 'rope.scaling.factor': 4 });
  assert.ok(even > 0.01, `a stretch must matter: ${even}`);
  assert.equal(off({ 'rope.scaling.factor': 4 }), even);
  assert.equal(off({ 'rope.scale_linear': 4 }), even);
  assert.equal(off({ 'rope.scaling.type': 'none', 'rope.scaling.factor': 4 }), off({}));
});

test("a base of the windows' own is refused where nothing slides", { skip: skipFamilies }, () => {
  const path = written('llama', { ...LLAMA, keys: { ...LLAMA.keys, 'rope.freq_base_swa': 1e5 } });
  assert.throws(() => loadModel(path, { device: 'cpu' }), /nothing here honours llama\.rope\.freq_base_swa/);
});

test('sizes and counts that no tensors bear out are refused by their key, before memory is taken for them', {
  skip: skipFamilies,
}, () => {
  const refused = (keys: object, reason: RegExp): void => {
    const path = written('llama', { ...LLAMA, keys: { ...LLAMA.keys, ...keys } });
    assert.throws(
      () => loadModel(path, { device: 'cpu' }),
      (e: Error) => e instanceof FormatError && reason.test(e.message),
    );
  };
  refused({ block_count: 2 ** 31 }, /llama\.block_count is 2147483648: the file has no layer blk\.2147483647/);
  refused({ block_count: 0 }, /llama\.block_count is 0/);
  refused({ block_count: 4, nextn_predict_layers: 4 }, /block_count is 4, nextn_predict_layers 4/);
  refused({ 'attention.head_count': 2 ** 31 }, /llama\.attention\.head_count is 2147483648; no part is larger/);
  refused({ 'attention.head_count_kv': [2, 2, 2 ** 30] }, /llama\.attention\.head_count_kv is 1073741824/);
  refused({ 'rope.dimension_count': 3 }, /llama\.rope\.dimension_count is 3, not an even number from 2/);
  refused({ 'rope.freq_base': 0 }, /llama\.rope\.freq_base is 0, not more than 0/);
  refused({ 'rope.freq_base': Number.NaN }, /llama\.rope\.freq_base is no number/);
  refused({ 'attention.value_length': 'wide' }, /llama\.attention\.value_length is no number/);
});

test('keys of another kind are refused by their names', { skip: skipFamilies }, () => {
  const refused = (name: string, plain: Case, key: string, value: Case['keys'][string], says: string): void => {
    const path = written(name, { ...plain, keys: { ...plain.keys, [key]: value } });
    assert.throws(() => loadModel(path, { device: 'cpu' }), {
      name: FormatError.name,
      message: `${path}: ${plain.architecture}.${key} is ${says}`,
    });
  };
  const whole = 'not a whole number from 0';
  refused('llama', LLAMA, 'feed_forward_length', 0.5, `0.5, ${whole}`);
  refused('llama', LLAMA, 'attention.head_count', '4', 'no number');
  refused('llama', LLAMA, 'attention.head_count', 0, '0, not the count of heads of its layers');
  refused('llama', LLAMA, 'attention.head_count_kv', [2, 0.5], `0.5, ${whole}`);
  refused('llama', LLAMA, 'context_length', true, 'no number');
  refused('llama', LLAMA, 'leading_dense_block_count', 'x', 'no number');
  refused('hy_v3', CASES.hy_v3, 'expert_gating_func', 0.5, `0.5, ${whole}`);
});

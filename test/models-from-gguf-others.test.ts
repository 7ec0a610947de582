// GGUF files whose folders bring programs of their own, and which are layers of families that are known: made from
// such a family's folder by the names and keys of llama.cpp's converters.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { loadModel } from '../src/models/index.js';
import { MODEL_TOLERANCE } from '../src/parity/model-checks.js';
import { type Case, distanceOf, pairs, type Rules, SECOND_NORM, SIZES, written } from './gguf-files.js';
import { familyFolder, skipFamilies } from './models-support.js';

const EPS = 'attention.layer_norm_rms_epsilon';
const LAYERS = { ...SIZES, block_count: 3, feed_forward_length: 80 };
const FUSED: Rules = [...SECOND_NORM, [/self_attn\.[qkv]_proj/, 'attn_qkv']];
const CENTRED = { ...LAYERS, 'attention.layer_norm_epsilon': 1e-5 };
/** Cases, each with the folder that its file is made from. */
const CASES: readonly (Case & { readonly of: string })[] = [
  { ...{ of: 'llama', architecture: 'baichuan', rules: SECOND_NORM, change: pairs }, keys: { ...LAYERS, [EPS]: 1e-6 } },
  {
    ...{ of: 'seed_oss-b', architecture: 'pangu-embedded', rules: SECOND_NORM },
    keys: { ...LAYERS, [EPS]: 1e-6, 'attention.key_length': 12, 'attention.value_length': 12 },
  },
  {
    ...{ of: 'qwen2', architecture: 'qwen', rules: FUSED, joined: /attn_qkv/ },
    keys: { ...LAYERS, feed_forward_length: 160, [EPS]: 1e-6, 'rope.freq_base': 10_000 },
  },
  {
    ...{ of: 'stablelm-d', architecture: 'orion', rules: SECOND_NORM },
    keys: { ...CENTRED, feed_forward_length: 64 },
  },
  {
    ...{ of: 'starcoder2', architecture: 'codeshell', joined: /attn_qkv/ },
    rules: [...FUSED, [/mlp\.c_fc/, 'ffn_up'], [/mlp\.c_proj/, 'ffn_down']],
    keys: { ...CENTRED, 'rope.scaling.type': 'linear', 'rope.scaling.factor': 1, 'rope.freq_base': 10_000 },
  },
  {
    of: 'bitnet-b',
    architecture: 'bitnet',
    rules: [...SECOND_NORM, [/self_attn\.attn_sub_norm/, 'attn_sub_norm'], [/mlp\.ffn_sub_norm/, 'ffn_sub_norm']],
    keys: { ...LAYERS, feed_forward_length: 64, [EPS]: 1e-5, 'rope.freq_base': 500_000, 'rope.scaling.factor': 1 },
  },
  {
    ...{ of: 'glm4_moe-b', architecture: 'bailingmoe2', joined: /attn_qkv/ },
    rules: [...FUSED, [/mlp\.gate\.e_score_correction_bias/, 'exp_probs_b.bias']],
    keys: {
      ...{ ...LAYERS, [EPS]: 1e-5, expert_count: 8, expert_used_count: 2, expert_feed_forward_length: 24 },
      ...{ expert_shared_count: 2, expert_shared_feed_forward_length: 48, expert_weights_scale: 1.7 },
      ...{ expert_weights_norm: false, expert_gating_func: 2, expert_group_count: 2, expert_group_used_count: 1 },
      ...{ leading_dense_block_count: 0, 'rope.dimension_count': 6, 'rope.freq_base': 10_000 },
    },
  },
];
for (const { of, ...plain } of CASES)
  test(`${of} as a file of the architecture ${plain.architecture}: transformers' logits`, {
    skip: skipFamilies,
  }, () => {
    const error = distanceOf(of, written(of, plain));
    assert.ok(error <= MODEL_TOLERANCE, `off by ${error}`);
  });

test("Llama's layers that go by distances: Refact, and Baichuan of forty layers alone", { skip: skipFamilies }, () => {
  const keys = { ...LAYERS, [EPS]: 1e-6 };
  const refact: Case = { architecture: 'refact', rules: SECOND_NORM, keys };
  const error = distanceOf('llama', written('llama', refact), 'alibi_logits');
  assert.ok(error <= MODEL_TOLERANCE, `off by ${error}`);
  const repeated = (name: string): string => {
    const dir = familyFolder('llama', (f) => {
      const layers = Array.from({ length: 40 }, (_, i) => i);
      const own = Object.entries(f.tensors).filter(([key]) => !/layers\.[12]\./.test(key));
      const tensors = own.flatMap(([key, spec]) =>
        key.includes('layers.0.') ? layers.map((i) => [key.replace('layers.0.', `layers.${i}.`), spec]) : [[key, spec]],
      );
      return { ...f, tensors: Object.fromEntries(tensors) };
    });
    return written('llama', { architecture: name, rules: SECOND_NORM, keys: { ...keys, block_count: 40 } }, dir);
  };
  // Pairs of rows mean nothing where nothing turns.
  const [one, other] = ['refact', 'baichuan'].map((name) => distanceOf('llama', repeated(name), 'alibi_logits'));
  assert.equal(one, other);
});

test('a file of BitNet with factors beside its weights is refused by name', { skip: skipFamilies }, () => {
  const plain = CASES.find((c) => c.architecture === 'bitnet') as Case;
  const path = written('bitnet-b', { ...plain, made: { 'blk.0.attn_q.scale': [2] } });
  assert.throws(() => loadModel(path, { device: 'cpu' }), /attn_q\.scale/);
});

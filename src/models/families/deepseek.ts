// DeepSeek and its kin: latent attention, and mixtures whose router chooses groups of experts first.
import { FormatError } from '../../base/errors.js';
import { Config, type Json } from '../files/config.js';
import {
  type Experts,
  type Features,
  type LatentAttention,
  type Layer,
  type Mlp,
  PRE_NORMS,
} from '../decoder/features.js';
import type { RopeFeature } from '../decoder/rope.js';
import {
  ATTENTION_BIAS,
  biasesBy,
  build,
  eitherKind,
  expertNames,
  experts,
  full,
  gated,
  LLAMA_NAMES,
  MLP_BIAS,
  QKV_BIAS,
  SHARED_BIAS,
  layerTypes,
  rms,
  ropeOf,
  sharedNames,
  type Sizes,
  sizesOf,
  sparseLayers,
  windowsBy,
} from './common.js';
import { family } from './row.js';

/** The narrow products and the output; the wide ones never have biases. */
export const LATENT_BIAS = ['qA', 'kvA', 'o'] as const;

/** Heads have sizes of their own: the hidden size need not divide into them. */
export function latentSizes(c: Config): Sizes {
  const heads = c.count('num_attention_heads', undefined, 1);
  return {
    ...{ hidden: c.count('hidden_size', undefined, 1), heads, kvHeads: heads, headDim: 1 },
    layers: c.count('num_hidden_layers', undefined, 1),
    maxPositions: c.count('max_position_embeddings', 2048, 1),
  };
}
/** A yarn that stretches all dimensions raises the softmax's scale twice. */
function yarnScale(rope: RopeFeature): number {
  if (rope.type === 'default' || !rope.mscaleAllDim) return 1;
  const factor = rope.factor ?? 1;
  const m = factor <= 1 ? 1 : 0.1 * rope.mscaleAllDim * Math.log(factor) + 1;
  return m * m;
}
/** DeepSeek's values are 128 wide where a config says nothing, MiniCPM's a head's share of the hidden size. */
const unsaidValues = (c: Config): number =>
  c.json.model_type === 'minicpm3' ? c.count('hidden_size') / c.count('num_attention_heads') : 128;
export function latent(c: Config, interleaved: boolean, wide?: { readonly unsaid: Json }): LatentAttention {
  const ropeDim = c.count('qk_rope_head_dim', 64, 1);
  const nopeDim = c.count('qk_nope_head_dim', 128);
  const maxPositions = c.count('max_position_embeddings', 2048, 1);
  const headDim = wide ? nopeDim + ropeDim : ropeDim;
  const read = ropeOf(
    c,
    { headDim, maxPositions, hidden: 0, layers: 0, heads: 0, kvHeads: 0 },
    { interleaved, ...(wide && { ...wide, partial: ropeDim / headDim }) },
  );
  // Where the part that turns is said as a share of both, it must be the part that is meant to.
  if (read.rotated !== ropeDim)
    throw new FormatError(
      `${c.where}: partial_rotary_factor is ${read.rotated / headDim}, qk_rope_head_dim ${ropeDim}`,
    );
  const rope = { ...read, headDim: ropeDim };
  c.ignore('head_dim', 'qk_head_dim', 'num_key_value_heads', 'mlp_bias');
  return {
    kind: 'latent',
    heads: c.count('num_attention_heads', undefined, 1),
    ...(c.has('q_lora_rank') && { queryRank: c.count('q_lora_rank') }),
    rank: c.count('kv_lora_rank', 512, 1),
    nopeDim,
    ropeDim,
    valueDim: c.has('v_head_dim') ? c.count('v_head_dim', undefined, 1) : unsaidValues(c),
    scale: yarnScale(rope) / Math.sqrt(nopeDim + ropeDim),
    rope,
    normEps: 1e-6,
  };
}

/** Sigmoid scores, a bias in the choice, the two best of a group as its worth. */
export function biasedExperts(c: Config): Experts {
  const inner = c.count('moe_intermediate_size', undefined, 1);
  const shared = c.count('n_shared_experts', 0);
  const groups = c.optional('n_group') ?? 1;
  const kept = c.count('topk_group', 1, 1);
  return experts(c, {
    count: c.count('n_routed_experts', undefined, 1),
    chosen: c.count('num_experts_per_tok', undefined, 1),
    inner,
    score: 'sigmoid',
    choiceBias: true,
    ...(groups > 1 && { groups: { count: groups, kept, worth: 'two best' } as const }),
    weights: c.flag('norm_topk_prob', true) ? 'normalised' : 'kept',
    sumGuard: { add: 1e-20 },
    factor: c.number('routed_scaling_factor', 1),
    ...(shared > 0 && { shared: { inner: inner * shared } }),
  });
}
/** Dense layers first, then mixtures. */
export function denseFirst(c: Config, mixture: () => Experts, fallback = 0): (i: number) => Mlp {
  const dense = c.count('first_k_dense_replace', fallback);
  const sparse = sparseLayers(c, c.count('num_hidden_layers'), (i) => i >= dense);
  eitherKind(c);
  c.ignore('num_nextn_predict_layers', 'moe_layer_freq', 'scoring_func', 'topk_method');
  return (i) => (sparse(i) ? mixture() : gated(c));
}

function deepseekV2(c: Config): Features {
  const s = latentSizes(c);
  c.only('topk_method', 'greedy', 'group_limited_greedy');
  c.only('scoring_func', 'softmax');
  const grouped = c.text('topk_method', 'greedy') === 'group_limited_greedy';
  const mixer = latent(c, true);
  const inner = c.count('moe_intermediate_size', undefined, 1);
  const shared = c.count('n_shared_experts', 0);
  // transformers never normalises these, whatever norm_topk_prob says.
  c.ignore('norm_topk_prob');
  const mixture = (): Experts =>
    experts(c, {
      count: c.count('n_routed_experts', undefined, 1),
      chosen: c.count('num_experts_per_tok', undefined, 1),
      inner,
      score: 'softmax',
      ...(grouped && {
        groups: { count: c.count('n_group'), kept: c.count('topk_group', undefined, 1), worth: 'best' } as const,
      }),
      weights: 'kept',
      factor: c.number('routed_scaling_factor', 1),
      ...(shared > 0 && { shared: { inner: inner * shared } }),
    });
  const biases = biasesBy(c, { attention_bias: LATENT_BIAS, mlp_bias: [...MLP_BIAS, ...SHARED_BIAS] });
  return build('deepseek_v2', c, s, { norm: rms(c), mixer: () => mixer, mlp: denseFirst(c, mixture), biases });
}
/** Models whose queries see the keys that an indexer chooses: as many as `index_topk`, which may be all there are. */
const CHOOSING = ['deepseek_v32', 'glm_moe_dsa'];
function chosenKeys(c: Config): number | undefined {
  if (!CHOOSING.includes(c.json.model_type as string)) return undefined;
  c.ignore('index_head_dim', 'index_n_heads', 'indexer_types', 'index_topk_pattern', 'index_topk_freq');
  c.ignore('index_skip_topk_offset', 'indexer_rope_interleave', 'layer_types');
  c.only('rope_interleave', true);
  return c.count('index_topk', 2048, 1);
}
function deepseekV3(c: Config): Features {
  const mostKeys = chosenKeys(c);
  const sizes = latentSizes(c);
  const s = { ...sizes, maxPositions: Math.min(sizes.maxPositions, mostKeys ?? Infinity) };
  c.only('scoring_func', 'sigmoid');
  const mixer = latent(c, c.flag('rope_interleave', true));
  const norm = rms(c);
  const type = c.json.model_type;
  const mlp =
    type === 'youtu'
      ? () => gated(c)
      : denseFirst(c, () => biasedExperts(c), DENSE_FIRST.includes(type as string) ? 3 : 1);
  const biases = biasesBy(c, { attention_bias: LATENT_BIAS });
  // A.X K1 has a norm behind its mixtures.
  const around = { ...PRE_NORMS, afterMlp: true };
  const layer = (i: number): Partial<Layer> => (type === 'axk1' && mlp(i).kind === 'experts' ? { norms: around } : {});
  const more = mostKeys === undefined ? {} : { mostKeys };
  return build('deepseek_v3', c, s, { norm, mixer: () => mixer, mlp, layer, biases, more });
}
/** Types whose first three layers are dense where a config says nothing. */
const DENSE_FIRST = ['deepseek_v3', ...CHOOSING];

export const LATENT_NAMES = {
  ...LLAMA_NAMES,
  ...expertNames('mlp'),
  ...sharedNames('mlp.shared_experts'),
  choiceBias: { name: 'mlp.gate.e_score_correction_bias', bare: true },
  qA: 'self_attn.q_a_proj',
  qANorm: 'self_attn.q_a_layernorm',
  qB: 'self_attn.q_b_proj',
  kvA: 'self_attn.kv_a_proj_with_mqa',
  kvANorm: 'self_attn.kv_a_layernorm',
  kvB: 'self_attn.kv_b_proj',
};
/** Layers past the last are for predicting several tokens at once; a decoder does not run them. */
const EXTRA_LAYERS = (c: Config): RegExp => {
  const from = c.count('num_hidden_layers');
  const more = c.count('num_nextn_predict_layers', 0);
  const numbers = Array.from({ length: more }, (_, i) => from + i);
  return new RegExp(`^model\\.layers\\.(${numbers.join('|') || 'none'})\\.`);
};
const deepseek2 = family({
  types: ['deepseek_v2'],
  features: deepseekV2,
  names: LATENT_NAMES,
  gguf: { architectures: ['deepseek2'], yarnLog: 0.1 },
});
const deepseek3 = family({
  types: ['deepseek_v3', 'kimi_k2', 'glm4_moe_lite', 'youtu', 'axk1', ...CHOOSING],
  features: deepseekV3,
  names: { ...LATENT_NAMES, afterMlp: ['post_mlp_layernorm', 'mlp.post_mlp_layernorm'] },
  // Where all keys are chosen, nobody needs what chooses them.
  ignored: (c) => new RegExp(`${EXTRA_LAYERS(c).source}|\\.self_attn\\.indexer\\.`),
  gguf: { architectures: ['deepseek32', 'glm-dsa'], yarnLog: 0.1, ignored: /\.indexer\./ },
});

const MISTRAL4_ROPE = {
  ...{ rope_type: 'yarn', factor: 128, original_max_position_embeddings: 8192, mscale: 1, mscale_all_dim: 1 },
  ...{ rope_theta: 10_000, beta_fast: 32, beta_slow: 1, llama_4_scaling_beta: 0.1 },
};
/** Latent attention with Ministral 3's queries, and DeepSeek 2's router with the third's groups. */
const mistral4 = family({
  types: ['mistral4'],
  features: (c) => {
    const s = latentSizes(c);
    const plain = latent(c, c.flag('rope_interleave', true), { unsaid: MISTRAL4_ROPE });
    const given = c.inner('rope_parameters') ?? c.inner('rope_scaling') ?? new Config(MISTRAL4_ROPE);
    const beta = given.optional('llama_4_scaling_beta');
    given.ignore('max_position_embeddings', 'original_max_position_embeddings');
    const temperature = { beta: beta ?? 0, scale: plain.rope?.original ?? s.maxPositions, offset: 0 };
    const mixer = beta ? { ...plain, temperature } : plain;
    const mixture = (): Experts => ({ ...biasedExperts(c), score: 'softmax', choiceBias: false });
    const biases = biasesBy(c, { attention_bias: LATENT_BIAS });
    return build('mistral4', c, s, { norm: rms(c), mixer: () => mixer, mlp: denseFirst(c, mixture), biases });
  },
  names: LATENT_NAMES,
  gguf: { architectures: ['mistral4'], yarnLog: 0.1 },
});

const minicpm3 = family({
  types: ['minicpm3'],
  features: (c) => {
    const s = latentSizes(c);
    const mixer = latent(c, false);
    const depth = c.optional('scale_depth') ?? Math.sqrt(s.layers);
    return build('minicpm3', c, s, {
      norm: rms(c, 1e-5),
      mixer: () => mixer,
      mlp: () => gated(c),
      tied: true,
      biases: biasesBy(c, { attention_bias: LATENT_BIAS, mlp_bias: MLP_BIAS }),
      more: {
        embedFactor: c.number('scale_emb', 12),
        branchFactor: depth / Math.sqrt(s.layers),
        logitFactor: (c.optional('dim_model_base') ?? s.hidden) / s.hidden,
      },
    });
  },
  names: LATENT_NAMES,
  gguf: { architectures: ['minicpm3'] },
});

const glmMoe = family({
  types: ['glm4_moe', 'dots1', 'solar_open', 'glm4v_moe_text'],
  features: (c) => {
    c.ignore('max_window_layers', 'aux_loss_alpha');
    const s = sizesOf(c);
    const type = c.json.model_type as string;
    const sections = type === 'glm4v_moe_text';
    const glm = sections || type === 'glm4_moe';
    const norm = rms(c, type === 'dots1' ? 1e-6 : 1e-5);
    const qk = type === 'dots1' || c.flag('use_qk_norm', false);
    // Of these, dots1 alone has windows.
    if (type !== 'dots1') c.ignore('layer_types', 'sliding_window');
    const windows = type === 'dots1' ? windowsBy(c, layerTypes(c, s.layers, full), c.optional('sliding_window')) : [];
    return build(type, c, s, {
      norm,
      rope: ropeOf(c, s, type === 'dots1' ? {} : { partial: glm ? 0.5 : 1, sections }),
      attention: (i) => ({ window: windows[i], ...(qk && { qkNorm: { norm, over: 'head' as const } }) }),
      mlp: denseFirst(c, () => biasedExperts(c), glm ? 1 : 0),
      biases: biasesBy(c, { attention_bias: type === 'dots1' ? ATTENTION_BIAS : QKV_BIAS }),
    });
  },
  names: {
    ...LLAMA_NAMES,
    ...expertNames('mlp'),
    ...sharedNames('mlp.shared_experts'),
    choiceBias: { name: 'mlp.gate.e_score_correction_bias', bare: true },
  },
  ignored: EXTRA_LAYERS,
  wrappers: { types: ['glm4v_moe'], prefixes: ['model.language_model.'], ignored: /(^|\.)visual\./ },
  gguf: {
    architectures: ['glm4moe', 'dots1', 'bailingmoe2'],
    names: { beforeMlp: ['ffn_norm', 'post_attention_norm'] },
    written: (a) => (a === 'glm4moe' ? { beforeMlp: 'post_attention_norm' } : {}),
  },
});

export const DEEPSEEK_FAMILIES = [deepseek2, deepseek3, mistral4, minicpm3, glmMoe];

// Decoders whose layers remember a matrix that is written to by the delta rule: Qwen3-Next, Qwen3.5, OLMo Hybrid
// and Kimi Linear have such layers between attention.
import { FormatError } from '../../base/errors.js';
import type { Config } from '../files/config.js';
import {
  type ChannelDelta,
  type DeltaNet,
  type Experts,
  type Features,
  type LatentAttention,
  type Mixer,
  POST_NORMS,
} from '../decoder/features.js';
import type { Names, Place, Rows } from '../decoder/weights.js';
import {
  ATTENTION_BIAS,
  activationOf,
  biasesBy,
  build,
  eitherKind,
  expertNames,
  experts,
  gated,
  FULL_OR_LINEAR,
  layerTypes,
  LLAMA_NAMES,
  rms,
  ropeOf,
  sharedNames,
  sizesOf,
  sparseLayers,
} from './common.js';
import { QWEN_MOE_NAMES, qwenExperts, qwenMlp } from './qwen.js';
import { family } from './row.js';

// ---- Qwen ----

const deltaNet = (c: Config): DeltaNet => ({
  kind: 'delta',
  keyHeads: c.count('linear_num_key_heads', undefined, 1),
  valueHeads: c.count('linear_num_value_heads', undefined, 1),
  keyDim: c.count('linear_key_head_dim', undefined, 1),
  valueDim: c.count('linear_value_head_dim', undefined, 1),
  width: c.count('linear_conv_kernel_dim', 4, 1),
  eps: c.number('rms_norm_eps', 1e-6),
  activation: activationOf(c),
});
function checkHeads(c: Config, { valueHeads, keyHeads }: DeltaNet): void {
  if (valueHeads % keyHeads !== 0)
    throw new FormatError(`${c.where}: ${valueHeads} value heads do not divide into ${keyHeads} key heads`);
}
function qwenNext(c: Config): Features {
  const type = c.json.model_type as string;
  const mixed = type !== 'qwen3_5_text';
  const biases = biasesBy(c, { attention_bias: [...ATTENTION_BIAS, 'qGate'] });
  const s = sizesOf(c);
  const norm = { ...rms(c), plusOne: true };
  const rope = ropeOf(c, s, { partial: 0.25 });
  // Positions of text alone are the same in every section.
  (c.inner('rope_parameters') ?? c.inner('rope_scaling'))?.ignore('mrope_section', 'mrope_interleaved');
  const period = c.count('full_attention_interval', 4, 1);
  c.ignore('mtp_num_hidden_layers', 'mtp_use_dedicated_embeddings', 'mamba_ssm_dtype', 'attn_output_gate');
  const types = layerTypes(c, s.layers, (i) => ((i + 1) % period ? 'linear_attention' : 'full_attention'));
  c.onlyKinds('layer_types', types, FULL_OR_LINEAR);
  const delta = deltaNet(c);
  checkHeads(c, delta);
  const shared = mixed ? { inner: c.count('shared_expert_intermediate_size', 512), gated: true } : undefined;
  const mlp = mixed ? qwenMlp(c, () => qwenExperts(c, shared, type === 'qwen3_5_moe_text')) : () => gated(c);
  return build(type, c, s, {
    norm,
    mixer: (i): Mixer => {
      if (types[i] === 'linear_attention') return delta;
      const { heads, kvHeads, headDim } = s;
      const scale = 1 / Math.sqrt(headDim);
      const qkNorm = { norm, over: 'head' } as const;
      return { kind: 'attention', heads, kvHeads, headDim, scale, rope, qkNorm, gated: 'sigmoid' };
    },
    mlp,
    biases,
  });
}
/** The query product holds a head's queries and its gate side by side. */
const besideGate =
  (at: 0 | 1): Rows =>
  (t, s) => {
    const rest = t.shape.slice(1);
    const byHead = t.reshape([s.heads, 2, s.headDim, ...rest]);
    return byHead.narrow(1, at, 1).reshape([s.heads * s.headDim, ...rest]);
  };
/**
 * Rows of a product that is laid out by key head: `parts` rows of each, of which these are taken, one after the other.
 */
const byKeyHead =
  (heads: number, parts: readonly number[], ...taken: readonly number[]): Rows =>
  (t) => {
    const all = parts.reduce((a, b) => a + b, 0);
    const grouped = t.reshape([heads, all, t.shape[1]]);
    const rows = taken.map((i) => {
      const from = parts.slice(0, i).reduce((a, b) => a + b, 0);
      return grouped.narrow(1, from, parts[i]).reshape([heads * parts[i], t.shape[1]]);
    });
    return rows.length === 1 ? rows[0] : rows[0].cat(rows.slice(1), 0);
  };
const QWEN_NAMES: Names = {
  ...QWEN_MOE_NAMES,
  q: { name: 'self_attn.q_proj', rows: besideGate(0) },
  qGate: { name: 'self_attn.q_proj', rows: besideGate(1) },
  stateIn: 'linear_attn.in_proj_qkv',
  stateGate: 'linear_attn.in_proj_z',
  stateRate: 'linear_attn.in_proj_b',
  stateStep: 'linear_attn.in_proj_a',
  stateConv: 'linear_attn.conv1d',
  stateDecay: { name: 'linear_attn.A_log', bare: true },
  stateShift: { name: 'linear_attn.dt_bias', bare: true },
  stateNorm: 'linear_attn.norm',
  stateOut: 'linear_attn.out_proj',
};
/** Qwen3-Next keeps these products by key head. */
function fusedNames(c: Config): Names {
  const { keyHeads, valueHeads, keyDim, valueDim } = deltaNet(c);
  const each = valueHeads / keyHeads;
  const wide = [keyDim, keyDim, each * valueDim, each * valueDim];
  const qkvz = 'linear_attn.in_proj_qkvz';
  return {
    ...QWEN_NAMES,
    stateIn: { name: qkvz, rows: byKeyHead(keyHeads, wide, 0, 1, 2) },
    stateGate: { name: qkvz, rows: byKeyHead(keyHeads, wide, 3) },
    ...ratesAndSteps('linear_attn.in_proj_ba', keyHeads, each),
  };
}
const ratesAndSteps = (name: string, keyHeads: number, each: number): Partial<Names> => ({
  stateRate: { name, rows: byKeyHead(keyHeads, [each, each], 0) },
  stateStep: { name, rows: byKeyHead(keyHeads, [each, each], 1) },
});
function ratesBeside({ layers }: Pick<Features, 'layers'>): Partial<Names> {
  const delta = layers.map((l) => l.mixer).find((m): m is DeltaNet => m.kind === 'delta');
  const { keyHeads = 1, valueHeads = 1 } = delta ?? {};
  return ratesAndSteps('ssm_ba', keyHeads, valueHeads / keyHeads);
}
/** Both forms of files: Qwen3-Next's rates and steps are still by key head, Qwen3.5's stand apart. */
function fileNames(f: Features): Partial<Names> {
  const fused = ratesBeside(f);
  return {
    beforeMlp: 'post_attention_norm',
    q: { name: 'attn_q', rows: besideGate(0) },
    qGate: { name: 'attn_q', rows: besideGate(1) },
    stateIn: 'attn_qkv',
    stateGate: 'attn_gate',
    stateRate: ['ssm_beta', fused.stateRate as Place],
    stateStep: ['ssm_alpha', fused.stateStep as Place],
  };
}
const QWEN_FILE = { oneAdded: true, names: fileNames, tiled: ['qwen35', 'qwen35moe'] };
const MTP = (): RegExp => /^mtp\./;
const next = family({
  types: ['qwen3_next'],
  features: qwenNext,
  names: fusedNames,
  ignored: MTP,
  gguf: { ...QWEN_FILE, architectures: ['qwen3next'], written: (_, f) => ratesBeside(f) },
});
const wrapped = (type: string): NonNullable<Parameters<typeof family>[0]['wrappers']> => ({
  types: [type],
  prefixes: ['model.language_model.', 'language_model.model.'],
  ignored: /(^|\.)visual\.|^mtp\./,
});
const qwen35 = family({
  types: ['qwen3_5_text'],
  features: qwenNext,
  names: QWEN_NAMES,
  ignored: MTP,
  wrappers: wrapped('qwen3_5'),
  gguf: { ...QWEN_FILE, architectures: ['qwen35'] },
});
const qwen35Moe = family({
  types: ['qwen3_5_moe_text'],
  features: qwenNext,
  names: QWEN_NAMES,
  ignored: MTP,
  wrappers: wrapped('qwen3_5_moe'),
  gguf: { ...QWEN_FILE, architectures: ['qwen35moe'] },
});

// ---- OLMo ----

/** Attention with norms behind its branches, with a rope or without, between delta nets with norms in front. */
const olmoHybrid = family({
  types: ['olmo_hybrid'],
  features: (c) => {
    const s = sizesOf(c);
    const norm = rms(c);
    const rope = turnsNothing(c) ? undefined : ropeOf(c, s);
    const types = layerTypes(c, s.layers, (i) =>
      i % 4 === 3 || (i === s.layers - 1 && s.layers < 4) ? 'full_attention' : 'linear_attention',
    );
    c.onlyKinds('layer_types', types, FULL_OR_LINEAR);
    const { heads, kvHeads, headDim } = s;
    const keyHeads = c.count('linear_num_key_heads', heads, 1);
    const keyDim = c.count('linear_key_head_dim', Math.trunc((0.75 * s.hidden) / keyHeads), 1);
    const delta: DeltaNet = {
      kind: 'delta',
      keyHeads,
      valueHeads: c.count('linear_num_value_heads', heads, 1),
      keyDim,
      valueDim: c.count('linear_value_head_dim', 2 * keyDim, 1),
      width: c.count('linear_conv_kernel_dim', 4, 1),
      eps: 1e-5,
      activation: activationOf(c),
      apart: true,
      ...(c.flag('linear_allow_neg_eigval', true) && { mostWritten: 2 }),
    };
    checkHeads(c, delta);
    c.ignore('linear_a_log_min', 'linear_a_log_max', 'linear_dt_min', 'linear_dt_max', 'linear_dt_init_floor');
    return build('olmo_hybrid', c, s, {
      norm,
      mixer: (i): Mixer => {
        if (types[i] === 'linear_attention') return delta;
        const scale = 1 / Math.sqrt(headDim);
        return {
          kind: 'attention',
          heads,
          kvHeads,
          headDim,
          scale,
          ...(rope && { rope }),
          qkNorm: { norm, over: 'whole' },
        };
      },
      mlp: () => gated(c),
      layer: (i) => (types[i] === 'full_attention' ? { norms: POST_NORMS } : {}),
      biases: biasesBy(c, { attention_bias: ATTENTION_BIAS }),
    });
  },
  names: {
    ...LLAMA_NAMES,
    beforeMixer: ['input_layernorm', 'attention_layer_norm'],
    beforeMlp: ['post_attention_layernorm', 'feedforward_layer_norm'],
    afterMixer: ['post_attention_layernorm', 'feedforward_layer_norm'],
    afterMlp: 'post_feedforward_layernorm',
    stateQuery: 'linear_attn.q_proj',
    stateKey: 'linear_attn.k_proj',
    stateValue: 'linear_attn.v_proj',
    stateGate: 'linear_attn.g_proj',
    stateRate: 'linear_attn.b_proj',
    stateStep: 'linear_attn.a_proj',
    stateConv: ['linear_attn.conv1d', 'linear_attn.{p}_conv1d'],
    stateDecay: { name: 'linear_attn.A_log', bare: true },
    stateShift: { name: 'linear_attn.dt_bias', bare: true },
    stateNorm: 'linear_attn.o_norm',
    stateOut: 'linear_attn.o_proj',
  },
});
/** A base that is null says that nothing turns, whatever else is said of a rope. */
function turnsNothing(c: Config): boolean {
  const given = c.inner('rope_parameters');
  if (given?.json.rope_theta !== null) return false;
  given.ignore(...Object.keys(given.json));
  return true;
}

// ---- Kimi ----

/** Delta nets that decay by channel, between latent attention that turns nothing. */
const kimi = family({
  types: ['kimi_linear'],
  features: (c) => {
    c.ignore(
      'head_dim',
      'qk_head_dim',
      'num_key_value_heads',
      'rope_theta',
      'rope_scaling',
      'num_nextn_predict_layers',
    );
    c.only('mla_use_nope', true);
    c.only('moe_router_activation_func', 'sigmoid');
    c.only('moe_layer_freq', 1);
    c.ignore('use_grouped_topk');
    const heads = c.count('num_attention_heads', undefined, 1);
    const s = {
      ...{ heads, kvHeads: heads, headDim: 1, hidden: c.count('hidden_size', undefined, 1) },
      layers: c.count('num_hidden_layers', undefined, 1),
      maxPositions: c.count('model_max_length', 1_048_576, 1),
    };
    const [nopeDim, ropeDim] = [c.count('qk_nope_head_dim', 128, 1), c.count('qk_rope_head_dim', 64, 1)];
    const latent: LatentAttention = {
      kind: 'latent',
      heads,
      ...(c.has('q_lora_rank') && { queryRank: c.count('q_lora_rank', undefined, 1) }),
      rank: c.count('kv_lora_rank', 512, 1),
      nopeDim,
      ropeDim,
      valueDim: c.count('v_head_dim', 128, 1),
      scale: 1 / Math.sqrt(nopeDim + ropeDim),
      normEps: 1e-6,
    };
    const { delta, types } = kimiDelta(c, s.layers);
    const dense = c.count('first_k_dense_replace', 1);
    const sparse = sparseLayers(c, s.layers, (i) => i >= dense);
    const mixture = kimiExperts(c);
    eitherKind(c);
    return build('kimi_linear', c, s, {
      norm: rms(c, 1e-5),
      mixer: (i) => (types[i] === 'linear_attention' ? delta : latent),
      mlp: (i) => (sparse(i) ? mixture : gated(c)),
      biases: biasesBy(c, { attention_bias: ['qA', 'kvA', 'o'] }),
      more: { tied: false }, // whatever a config says
    });
  },
  names: {
    ...LLAMA_NAMES,
    ...expertNames('block_sparse_moe', ['w1', 'w3', 'w2']),
    ...sharedNames('block_sparse_moe.shared_experts'),
    gate: ['mlp.gate_proj', 'block_sparse_moe.gate_proj'],
    up: ['mlp.up_proj', 'block_sparse_moe.up_proj'],
    down: ['mlp.down_proj', 'block_sparse_moe.down_proj'],
    choiceBias: { name: 'block_sparse_moe.gate.e_score_correction_bias', bare: true },
    qA: 'self_attn.q_a_proj',
    qANorm: 'self_attn.q_a_layernorm',
    qB: 'self_attn.q_b_proj',
    kvA: 'self_attn.kv_a_proj_with_mqa',
    kvANorm: 'self_attn.kv_a_layernorm',
    kvB: 'self_attn.kv_b_proj',
    stateQuery: 'self_attn.q_proj',
    stateKey: 'self_attn.k_proj',
    stateValue: 'self_attn.v_proj',
    stateRate: 'self_attn.b_proj',
    stateStepIn: 'self_attn.f_a_proj',
    stateStep: 'self_attn.f_b_proj',
    stateGateIn: 'self_attn.g_a_proj',
    stateGate: 'self_attn.g_b_proj',
    stateConv: ['self_attn.conv1d', 'self_attn.{p}_conv1d'],
    stateDecay: { name: 'self_attn.A_log', bare: true, rows: (t) => t.reshape([-1]) },
    stateShift: { name: 'self_attn.dt_bias', bare: true },
    stateNorm: 'self_attn.o_norm',
    stateOut: 'self_attn.o_proj',
  },
  gguf: {
    architectures: ['kimi-linear'],
    names: {
      ...{ stateQuery: 'attn_q', stateKey: 'attn_k', stateValue: 'attn_v', stateRate: 'ssm_beta' },
      ...{ stateStepIn: 'ssm_f_a', stateStep: 'ssm_f_b', stateGateIn: 'ssm_g_a', stateGate: 'ssm_g_b' },
      stateConv: { name: 'ssm_conv1d_{p}', rows: (t) => t.reshape([-1, 1, t.shape.at(-1) as number]) },
      stateOut: 'attn_output',
    },
  },
});
function kimiExperts(c: Config): Experts {
  const inner = c.count('moe_intermediate_size', 1024, 1);
  const [groups, kept] = [c.count('num_expert_group', 1, 1), c.count('topk_group', 1, 1)];
  return experts(c, {
    count: c.count('num_experts', 256, 1),
    chosen: c.count('num_experts_per_token', 8, 1),
    inner,
    score: 'sigmoid',
    choiceBias: true,
    ...(groups > 1 && { groups: { count: groups, kept, worth: 'two best' } as const }),
    weights: c.flag('moe_renormalize', true) ? 'normalised' : 'kept',
    sumGuard: { add: 1e-20 },
    factor: c.number('routed_scaling_factor', 2.446),
    shared: { inner: inner * c.count('num_shared_experts', 1, 1) },
  });
}
/** The delta net's sizes and the kinds of layers, which files of the hub keep in a config inside, counted from one. */
function kimiDelta(c: Config, layers: number): { delta: ChannelDelta; types: readonly string[] } {
  const inner = c.inner('linear_attn_config');
  const size = (within: string, beside: string, unsaid: number): number =>
    inner?.has(within) ? inner.count(within, undefined, 1) : c.count(beside, unsaid, 1);
  const delta: ChannelDelta = {
    kind: 'channel delta',
    heads: size('num_heads', 'linear_num_heads', 32),
    headDim: size('head_dim', 'linear_head_dim', 128),
    width: size('short_conv_kernel_size', 'linear_conv_kernel_dim', 4),
    eps: c.number('rms_norm_eps', 1e-5),
    activation: activationOf(c),
  };
  c.ignore('linear_num_heads', 'linear_head_dim', 'linear_conv_kernel_dim');
  const full =
    inner?.has('full_attn_layers') && inner.has('kda_layers') ? inner.numbers('full_attn_layers') : undefined;
  const types = layerTypes(c, layers, (i) =>
    (full ? full.includes(i + 1) : i > 0 && i % 4 === 0) ? 'full_attention' : 'linear_attention',
  );
  c.onlyKinds('layer_types', types, FULL_OR_LINEAR);
  return { delta, types };
}

export const HYBRID_FAMILIES = [next, qwen35, qwen35Moe, olmoHybrid, kimi];

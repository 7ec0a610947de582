// Gemma 4 (and what it shares with Gemma 3n): layers that look at the keys of others, narrow vectors for each layer,
// dense branches beside experts.
import { FormatError } from '../../base/errors.js';
import type { Config, Json } from '../files/config.js';
import { ALL_NORMS, type DenseMlp, type Experts, type Features } from '../decoder/features.js';
import { readRope, type RopeFeature } from '../decoder/rope.js';
import {
  ATTENTION_BIAS,
  activationOf,
  biasesBy,
  build,
  lastFull,
  layerTypes,
  rms,
  ropeOf,
  type Sizes,
  sizesOf,
  stackedGateUp,
  windowsBy,
} from './common.js';
import { GEMMA_NAMES } from './gemma.js';
import { family } from './row.js';

/** What a Gemma 4 says of single layers beside what it says of all. */
function layerSizes(c: Config, s: Sizes, types: readonly string[], sameKeys: boolean): readonly Sizes[] {
  const by = c.inner('per_layer_config');
  const wide = c.count('global_head_dim', 512, 1);
  const fewer = c.optional('num_global_key_value_heads');
  return types.map((type, i) => {
    if (by) {
      const own = by.inner(String(i));
      return {
        ...s,
        headDim: own?.optional('head_dim') ?? s.headDim,
        kvHeads: own?.optional('num_key_value_heads') ?? s.kvHeads,
      };
    }
    if (type !== 'full_attention') return s;
    return { ...s, headDim: wide, kvHeads: (sameKeys ? fewer : undefined) ?? s.kvHeads };
  });
}
/** Which earlier layer's keys a layer looks at: of the last ones, the last of its kind that has its own. */
function lentKeys(types: readonly string[], shared: number): (i: number) => { keysOf?: number; lends?: boolean } {
  const first = types.length - shared;
  const last = (type: string): number => types.slice(0, first).lastIndexOf(type);
  return (i) => (i >= first ? { keysOf: last(types[i]) } : i === last(types[i]) && shared > 0 ? { lends: true } : {});
}
function gemma4Features(c: Config): Features {
  const s = sizesOf(c);
  const n = rms(c);
  const act = activationOf(c, 'hidden_activation', 'gelu_pytorch_tanh');
  c.only('use_bidirectional_attention', 'vision');
  const sameKeys = c.flag('attention_k_eq_v', false);
  const listed = layerTypes(c, s.layers, lastFull(6));
  // A kind that no layer is of may have parameters, too.
  c.inner('rope_parameters')?.ignore(...Object.keys(GEMMA4_ROPES));
  // The last is full, whatever a list says.
  const types = listed.map((t, i) => (i === s.layers - 1 ? 'full_attention' : t));
  const windows = windowsBy(c, types, c.count('sliding_window', 512, 1));
  const sizes = layerSizes(c, s, types, sameKeys);
  const nested = (i: number): RopeFeature =>
    readRope(c, {
      ...{ headDim: sizes[i].headDim, maxPositions: s.maxPositions, layerType: types[i], apart: true, within: true },
      unsaid: c.has('rope_parameters') ? {} : GEMMA4_ROPES[types[i]],
    });
  const ropes = new Map(types.map((t, i) => [t, nested(i)]));
  const shared = c.count('num_kv_shared_layers', 0);
  if (shared >= s.layers) throw new FormatError(`${c.where}: all ${s.layers} layers share the keys of others`);
  const lent = lentKeys(types, shared);
  const inner = c.count('intermediate_size', undefined, 1);
  const wide = c.flag('use_double_wide_mlp', false);
  const dense = (i: number): DenseMlp => ({
    ...{ kind: 'dense', gated: true, activation: act },
    inner: wide && i >= s.layers - shared ? 2 * inner : inner,
  });
  const mixed = c.flag('enable_moe_block', false);
  c.ignore('num_experts', 'top_k_experts', 'moe_intermediate_size', 'vocab_size_per_layer_input');
  const experts = (): Experts => ({
    ...{ kind: 'experts', activation: act, score: 'softmax', weights: 'normalised', scaled: true },
    count: c.count('num_experts', undefined, 1),
    chosen: c.count('top_k_experts', undefined, 1),
    inner: c.count('moe_intermediate_size', undefined, 1),
    routerNorm: { eps: n.eps, factor: 1 / Math.sqrt(s.hidden) },
  });
  // The unified models, which read images and sound without towers, have neither these vectors nor experts.
  const width = c.json.model_type === 'gemma4_unified_text' ? 0 : c.count('hidden_size_per_layer_input', 256);
  const cap = c.optional('final_logit_softcapping');
  return build('gemma4', c, s, {
    norm: n,
    mixer: (i) => ({
      ...{ kind: 'attention', heads: s.heads, kvHeads: sizes[i].kvHeads, headDim: sizes[i].headDim, scale: 1 },
      ...{ rope: ropes.get(types[i]), window: windows[i], qkNorm: { norm: n, over: 'head' } },
      ...{ valueNorm: { ...n, weightless: true }, ...lent(i) },
    }),
    mlp: (i) => (mixed ? { kind: 'both', dense: dense(i), experts: experts() } : dense(i)),
    tied: true,
    biases: biasesBy(c, { attention_bias: ATTENTION_BIAS }),
    more: {
      norms: ALL_NORMS,
      embedFactor: Math.sqrt(s.hidden),
      layerFactors: true,
      ...(width > 0 && {
        layerInputs: { width, vocabSize: c.count('vocab_size_per_layer_input', 262_144, 1), activation: act },
      }),
      ...(cap !== undefined && { logitSoftcap: cap }),
    },
  });
}
const GEMMA4_ROPES: Readonly<Record<string, Json>> = {
  sliding_attention: { rope_type: 'default', rope_theta: 10_000 },
  full_attention: { rope_type: 'proportional', partial_rotary_factor: 0.25, rope_theta: 1_000_000 },
};
const INPUT_NAMES = {
  layerEmbed: 'model.embed_tokens_per_layer',
  layerInputs: 'model.per_layer_model_projection',
  layerInputNorm: 'model.per_layer_projection_norm',
  inputGate: 'per_layer_input_gate',
  inputUp: 'per_layer_projection',
  inputNorm: 'post_per_layer_input_norm',
};
/** Files may hold the keys of layers that look at others'. */
const SHARED_KEYS = (c: Config): RegExp => {
  const [layers, shared] = ['num_hidden_layers', 'num_kv_shared_layers'].map((k) => c.optional(k) ?? 0);
  const numbers = Array.from({ length: shared }, (_, i) => layers - shared + i).join('|') || 'none';
  return new RegExp(`layers\\.(${numbers})\\.self_attn\\.(k_proj|v_proj|k_norm|v_norm)\\.`);
};
const GGUF_INPUT_NAMES = {
  layerEmbed: 'per_layer_token_embd',
  layerInputs: 'per_layer_model_proj',
  layerInputNorm: 'per_layer_proj_norm',
  inputGate: 'inp_gate',
  inputUp: 'proj',
  inputNorm: 'post_norm',
};
const GGUF_EXPERTS = stackedGateUp('ffn_gate_up_exps');
const gemma4 = family({
  types: ['gemma4_text', 'gemma4_unified_text'],
  features: gemma4Features,
  names: (c) => ({
    ...GEMMA_NAMES,
    ...INPUT_NAMES,
    // Where keys are values, too, a layer without a product for values takes that of its keys.
    v: c.json.attention_k_eq_v ? ['self_attn.v_proj', 'self_attn.k_proj'] : 'self_attn.v_proj',
    layerFactor: { name: 'layer_scalar', bare: true },
    router: 'router.proj',
    routerNorm: { name: 'router.scale', bare: true },
    expertScale: { name: 'router.per_expert_scale', bare: true },
    expertGate: stackedGateUp('experts.gate_up_proj', { bare: true }).gate,
    expertUp: stackedGateUp('experts.gate_up_proj', { bare: true }).up,
    expertDown: { name: 'experts.down_proj', bare: true },
    afterDense: 'post_feedforward_layernorm_1',
    beforeExperts: 'pre_feedforward_layernorm_2',
    afterExperts: 'post_feedforward_layernorm_2',
  }),
  ignored: SHARED_KEYS,
  wrappers: {
    types: ['gemma4', 'gemma4_unified'],
    prefixes: ['model.language_model.', 'language_model.model.'],
    ignored: /(vision_tower|vision_embedder|audio_tower|multi_modal_projector|embed_vision|embed_audio)\./,
  },
  gguf: {
    architectures: ['gemma4'],
    ownDivisors: true,
    names: {
      ...GGUF_INPUT_NAMES,
      v: ['attn_v', 'attn_k'],
      layerFactor: 'layer_output_scale',
      routerNorm: { name: 'ffn_gate_inp.scale', bare: true },
      expertScale: { name: 'ffn_down_exps.scale', bare: true },
      expertGate: ['ffn_gate_exps', GGUF_EXPERTS.gate],
      expertUp: ['ffn_up_exps', GGUF_EXPERTS.up],
      afterDense: 'post_ffw_norm_1',
      beforeExperts: 'pre_ffw_norm_2',
      afterExperts: 'post_ffw_norm_2',
    },
  },
});

// ---- Gemma 3n ----

/** How many deviations above the mean a share p of normally distributed numbers stays below. */
function deviations(p: number): number {
  const density = (x: number): number => Math.exp((-x * x) / 2) / Math.sqrt(2 * Math.PI);
  const below = (x: number): number => {
    let [sum, term] = [x, x];
    for (let i = 3; Math.abs(term) > 1e-17 * Math.abs(sum); i += 2) sum += term *= (x * x) / i;
    return 0.5 + sum * density(x);
  };
  let x = 0;
  for (let i = 0; i < 60; i++) x -= (below(x) - p) / density(x);
  return x;
}
/** A number for every layer, or one for all. */
function byLayer(c: Config, name: string, layers: number, unsaid: (i: number) => number): readonly number[] {
  const given = c.get(name);
  if (Array.isArray(given)) return c.numbers(name, layers);
  return Array.from({ length: layers }, (_, i) => (given === undefined ? unsaid(i) : c.number(name)));
}
function gemma3nFeatures(c: Config): Features {
  const s = sizesOf(c);
  const n = rms(c);
  const act = activationOf(c, 'hidden_activation', 'gelu_pytorch_tanh');
  const types = layerTypes(c, s.layers, lastFull(5));
  const windows = windowsBy(c, types, c.count('sliding_window', 512, 1));
  const rope = (layerType: string, base: string, unsaid: number): RopeFeature =>
    ropeOf(c, s, { layerType, apart: true, within: true, theta: c.optional(base) ?? unsaid });
  const ropes: Readonly<Record<string, RopeFeature>> = {
    full_attention: rope('full_attention', 'rope_theta', 1e6),
    sliding_attention: rope('sliding_attention', 'rope_local_base_freq', 1e4),
  };
  const shared = c.count('num_kv_shared_layers', 15);
  if (shared >= s.layers) throw new FormatError(`${c.where}: all ${s.layers} layers share the keys of others`);
  const lent = lentKeys(types, shared);
  const inner = byLayer(c, 'intermediate_size', s.layers, () => 16_384);
  const sparse = byLayer(c, 'activation_sparsity_pattern', s.layers, (i) => (s.layers > 10 && i < 10 ? 0.95 : 0));
  // GGUF files say what the share amounts to.
  const told = c.has('gates_closed_below') ? c.numbers('gates_closed_below', s.layers) : undefined;
  const closed = told ?? sparse.map((p) => (p > 0 ? deviations(p) : -Infinity));
  const cap = c.optional('final_logit_softcapping');
  c.ignore('altup_coef_clip', 'altup_lr_multiplier'); // for training
  return build('gemma3n', c, s, {
    norm: n,
    mixer: (i) => ({
      ...{ kind: 'attention', heads: s.heads, kvHeads: s.kvHeads, headDim: s.headDim, scale: 1 },
      ...{ rope: ropes[types[i]], window: windows[i], qkNorm: { norm: n, over: 'head' } },
      ...{ valueNorm: { ...n, weightless: true }, ...lent(i) },
    }),
    mlp: (i) => ({
      ...{ kind: 'dense', inner: inner[i], gated: true, activation: act },
      ...(closed[i] > -Infinity && { sparse: closed[i] }),
    }),
    tied: true,
    biases: biasesBy(c, { attention_bias: ATTENTION_BIAS }),
    more: {
      norms: ALL_NORMS,
      embedFactor: Math.sqrt(s.hidden),
      layerInputs: {
        width: c.count('hidden_size_per_layer_input', 256, 1),
        vocabSize: c.count('vocab_size_per_layer_input', 262_144, 1),
        activation: act,
      },
      streams: {
        count: c.count('altup_num_inputs', 4, 2),
        active: c.count('altup_active_idx', 0),
        rank: c.count('laurel_rank', 64, 1),
        scaled: c.flag('altup_correct_scale', true),
      },
      ...(cap !== undefined && { logitSoftcap: cap }),
    },
  });
}
const gemma3n = family({
  types: ['gemma3n_text'],
  features: gemma3nFeatures,
  names: {
    ...GEMMA_NAMES,
    ...INPUT_NAMES,
    streamsIn: 'model.altup_projections.{e}',
    streamsOut: 'model.altup_unembed_projections.{e}',
    streamNorm: 'altup.router_norm',
    streamRouter: 'altup.modality_router',
    streamPredict: 'altup.prediction_coefs',
    streamCorrect: 'altup.correction_coefs',
    streamScale: { name: 'altup.correct_output_scale', bare: true },
    besideDown: 'laurel.linear_left',
    besideUp: 'laurel.linear_right',
    besideNorm: 'laurel.post_laurel_norm',
  },
  ignored: SHARED_KEYS,
  wrappers: {
    types: ['gemma3n'],
    prefixes: ['model.language_model.', 'language_model.model.'],
    ignored: /(vision_tower|audio_tower|embed_vision|embed_audio)\./,
  },
  gguf: {
    architectures: ['gemma3n'],
    names: {
      ...GGUF_INPUT_NAMES,
      streamsIn: 'altup_proj',
      streamsOut: 'altup_unembd_proj',
      streamNorm: 'altup_router_norm',
      streamRouter: 'altup_router',
      streamPredict: 'altup_predict_coef',
      streamCorrect: 'altup_correct_coef',
      streamScale: 'altup_correct_scale',
      besideDown: 'laurel_l',
      besideUp: 'laurel_r',
      besideNorm: 'laurel_post_norm',
    },
  },
});

export const LATER_GEMMA_FAMILIES = [gemma4, gemma3n];

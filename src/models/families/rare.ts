// Families that few people run: ModernBERT's decoder, GPT-NeoX for Japanese, CTRL, Aria's text model, DiffLlama and
// Doge.
import { FormatError } from '../../base/errors.js';
import type { Config } from '../files/config.js';
import { type NormFeature, PRE_NORMS } from '../decoder/features.js';
import type { RopeFeature } from '../decoder/rope.js';
import {
  ATTENTION_BIAS,
  activationOf,
  biasesBy,
  build,
  checked,
  experts,
  full,
  fusedGateUp,
  fusedQkv,
  gated,
  LLAMA_NAMES,
  layerNorm,
  layerTypes,
  MLP_BIAS,
  QKV_BY_GROUP,
  ropeOf,
  rms,
  sameWindow,
  SHARED_BIAS,
  sharedNames,
  type Sizes,
  sizesOf,
  stackedGateUp,
  UNGATED_BIAS,
  ungated,
  windowsBy,
} from './common.js';
import { WEIGHT_ROOM } from '../decoder/weighed-keys.js';
import { family } from './row.js';
import { rwkv } from './rwkv.js';

/** One rope for full layers and one for those with windows. */
function modernRopes(c: Config, s: Sizes): Readonly<Record<string, RopeFeature>> {
  const of = (layerType: string, name: string, theta: number): RopeFeature =>
    ropeOf(c, s, { layerType, apart: true, within: true, theta: c.optional(name) ?? theta });
  return {
    full_attention: of('full_attention', 'global_rope_theta', 160_000),
    sliding_attention: of('sliding_attention', 'local_rope_theta', 10_000),
  };
}
const modernBert = family({
  types: ['modernbert-decoder'],
  features: (c) => {
    c.ignore('num_key_value_heads', 'head_dim');
    const s = sizesOf(c);
    const norm: NormFeature = {
      ...{ kind: 'layer', eps: c.number('norm_eps', 1e-5), bias: c.flag('norm_bias', false) },
    };
    const every = c.count('global_attn_every_n_layers', 3, 1);
    const types = layerTypes(c, s.layers, (i) => (i % every === 0 ? full() : 'sliding_attention'));
    // Where it is not said under the usual name, the window is half of what an encoder would see to both sides.
    const local = Math.floor(c.count('local_attention', 128, 2) / 2);
    const windows = windowsBy(c, types, c.optional('sliding_window') ?? local);
    const ropes = modernRopes(c, s);
    const activation = activationOf(c, 'hidden_activation', 'gelu');
    const inner = c.count('intermediate_size', 1152, 1);
    c.ignore('initializer_cutoff_factor', 'mlp_dropout', 'cls_token_id');
    return build('modernbert-decoder', c, s, {
      norm,
      attention: (i) => ({ rope: ropes[types[i]], window: windows[i] }),
      mlp: () => ({ kind: 'dense', inner, gated: true, activation }),
      // The embedding's norm is the first layer's.
      layer: (i) => (i === 0 ? { norms: { ...PRE_NORMS, beforeMixer: false } } : {}),
      tied: true,
      biases: biasesBy(
        c,
        {
          ...{ attention_bias: ATTENTION_BIAS, mlp_bias: MLP_BIAS },
          ...{ classifier_bias: ['headLayer'], decoder_bias: ['head'] },
        },
        { decoder_bias: true },
      ),
      more: { embedNorm: true, headLayer: { activation: activationOf(c, 'classifier_activation', 'gelu') } },
    });
  },
  names: {
    ...LLAMA_NAMES,
    embed: 'model.embeddings.tok_embeddings',
    embedNorm: 'model.embeddings.norm',
    finalNorm: 'model.final_norm',
    headLayer: 'lm_head.dense',
    headNorm: 'lm_head.norm',
    head: 'decoder',
    beforeMixer: 'attn_norm',
    beforeMlp: 'mlp_norm',
    q: 'attn.q_proj',
    k: 'attn.k_proj',
    v: 'attn.v_proj',
    o: 'attn.Wo',
    ...fusedGateUp('mlp.Wi'),
    down: 'mlp.Wo',
  },
});

const japanese = family({
  types: ['gpt_neox_japanese'],
  features: (c) => {
    c.ignore('is_decoder', 'num_key_value_heads', 'head_dim');
    const s = sizesOf(c);
    const inner = Math.trunc(s.hidden * c.number('intermediate_multiple_size', 4));
    const theta = c.optional('rotary_emb_base') ?? 10_000;
    return build('gpt_neox_japanese', c, s, {
      norm: layerNorm(c, 'layer_norm_eps'),
      // As GPT-NeoX: the names that others have for these have no effect beside the rope's parameters.
      rope: ropeOf(c, s, { partial: c.optional('rotary_pct') ?? 1, theta, within: true }),
      mlp: () => ungated(inner, activationOf(c, 'hidden_act', 'gelu')),
      // Only the last layer's attention has a bias.
      layer: (i) => (i === s.layers - 1 ? { biases: ['o'] } : {}),
      tied: true,
    });
  },
  names: {
    embed: 'gpt_neox_japanese.embed_in',
    finalNorm: 'gpt_neox_japanese.final_layer_norm',
    head: 'embed_out',
    layer: 'gpt_neox_japanese.layers.{i}',
    beforeMixer: 'input_layernorm',
    beforeMlp: 'post_attention_layernorm',
    ...fusedQkv('attention.query_key_value', QKV_BY_GROUP),
    o: { name: 'attention.dense', bias: 'attention.dense_bias' },
    up: 'mlp.dense_h_to_4h',
    down: 'mlp.dense_4h_to_h',
  },
});

const ctrl = family({
  types: ['ctrl'],
  features: (c) => {
    const [hidden, heads] = [c.count('n_embd', undefined, 1), c.count('n_head', undefined, 1)];
    const s = checked(c, {
      ...{ hidden, heads, kvHeads: heads, headDim: hidden / heads },
      layers: c.count('n_layer', undefined, 1),
      maxPositions: c.count('n_positions', 256, 1),
    });
    const last = c.number('layer_norm_epsilon', 1e-6);
    const norm = { kind: 'layer', eps: 1e-6, bias: true } as const;
    return build('ctrl', c, s, {
      norm,
      mlp: () => ungated(c.count('dff', undefined, 1), 'relu'),
      tied: true,
      biases: [...ATTENTION_BIAS, ...UNGATED_BIAS, 'head'],
      more: {
        finalNorm: { ...norm, eps: last },
        embedFactor: Math.sqrt(hidden),
        learntPositions: { count: s.maxPositions, offset: 0, waves: { open: true } },
      },
    });
  },
  names: {
    embed: 'transformer.w',
    finalNorm: 'transformer.layernorm',
    head: 'lm_head',
    layer: 'transformer.h.{i}',
    beforeMixer: 'layernorm1',
    beforeMlp: 'layernorm2',
    q: 'multi_head_attention.Wq',
    k: 'multi_head_attention.Wk',
    v: 'multi_head_attention.Wv',
    o: 'multi_head_attention.dense',
    up: 'ffn.0',
    down: 'ffn.2',
  },
});

const ARIA_EXPERTS = stackedGateUp('mlp.experts.gate_up_proj', { bare: true, transposed: true });
/** Files of the hub call these fc1 and fc2. */
const ARIA_STORED = stackedGateUp('mlp.experts.fc1', { transposed: true });
const aria = family({
  types: ['aria_text'],
  features: (c) => {
    const s = sizesOf(c);
    const inner = c.count('intermediate_size', undefined, 1);
    // The chosen experts' activation is fixed, the shared one's is not.
    c.only('hidden_act', 'silu', 'swish');
    return build('aria_text', c, s, {
      norm: rms(c),
      rope: ropeOf(c, s),
      mlp: () =>
        experts(c, {
          count: c.count('moe_num_experts', 8, 1),
          chosen: c.count('moe_topk', 2, 1),
          inner,
          score: 'logits',
          weights: 'softmax',
          shared: { inner: inner * c.count('moe_num_shared_experts', 2, 1) },
        }),
      biases: biasesBy(c, { attention_bias: ATTENTION_BIAS, mlp_bias: SHARED_BIAS }),
    });
  },
  names: {
    ...LLAMA_NAMES,
    router: 'mlp.router',
    expertGate: [ARIA_EXPERTS.gate, ARIA_STORED.gate],
    expertUp: [ARIA_EXPERTS.up, ARIA_STORED.up],
    expertDown: [
      { name: 'mlp.experts.down_proj', bare: true, transposed: true },
      { name: 'mlp.experts.fc2', transposed: true },
    ],
    ...sharedNames('mlp.shared_experts'),
  },
});

const diffLlama = family({
  types: ['diffllama'],
  features: (c) => {
    const s = sizesOf(c);
    if (s.heads % 2 !== 0 || s.kvHeads % 2 !== 0)
      throw new FormatError(`${c.where}: ${s.heads} heads and ${s.kvHeads} key heads cannot come in pairs`);
    c.ignore('lambda_std_dev');
    const norm = rms(c, 1e-5);
    return build('diffllama', c, s, {
      norm,
      rope: ropeOf(c, s),
      attention: (i) => ({
        headDim: 2 * s.headDim,
        differential: { begin: 0.8 - 0.6 * Math.exp(-0.3 * i), eps: norm.eps },
      }),
      mlp: () => gated(c),
      biases: biasesBy(c, { attention_bias: ATTENTION_BIAS }),
    });
  },
  names: {
    ...LLAMA_NAMES,
    pairQuery1: { name: 'self_attn.lambda_q1', bare: true },
    pairKey1: { name: 'self_attn.lambda_k1', bare: true },
    pairQuery2: { name: 'self_attn.lambda_q2', bare: true },
    pairKey2: { name: 'self_attn.lambda_k2', bare: true },
  },
});

/** Of up to so many keys none is left out. */
const doge = family({
  types: ['doge'],
  features: (c) => {
    // Its mixtures choose by what other tokens' routers say, so that answers change with the text's length.
    c.only('is_moe', false);
    c.ignore('num_experts', 'num_experts_per_tok', 'norm_topk_prob', 'hidden_bias');
    const s = sizesOf(c);
    const norm = rms(c);
    const windows = sameWindow(c, s.layers);
    return build('doge', c, s, {
      norm,
      rope: ropeOf(c, s),
      attention: (i) => ({
        ...{ headDim: s.headDim + WEIGHT_ROOM, qkNorm: { norm, over: 'head' }, weighedKeys: true },
        ...(windows[i] !== undefined && { window: windows[i] }),
      }),
      mlp: () => gated(c),
      biases: biasesBy(c, { attention_bias: [...ATTENTION_BIAS, 'keyStep'], mlp_bias: MLP_BIAS }),
      more: { residualFactors: true, mostKeys: c.count('keep_window_size', 2048, 1) },
    });
  },
  names: {
    ...LLAMA_NAMES,
    keyStep: 'self_attn.dt_proj',
    keyRate: { name: 'self_attn.A', bare: true },
    mixerResidual: { name: 'input_residual', bare: true },
    mlpResidual: { name: 'post_attention_residual', bare: true },
  },
});

export const RARE_FAMILIES = [modernBert, japanese, ctrl, aria, diffLlama, doge, rwkv];

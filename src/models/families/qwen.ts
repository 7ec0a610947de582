// Qwen and other families with norms on queries and keys or mixtures of experts.
import type { Tensor } from '../../tensor/tensor.js';
import type { Config } from '../files/config.js';
import type { Experts, Features, Mlp } from '../decoder/features.js';
import type { RopeFeature } from '../decoder/rope.js';
import {
  ATTENTION_BIAS,
  biasesBy,
  build,
  eitherKind,
  expertNames,
  experts,
  firstCount,
  full,
  gated,
  layerTypes,
  LLAMA_NAMES,
  MLP_BIAS,
  QKV_BIAS,
  SHARED_BIAS,
  qwenWindows,
  rms,
  ropeOf,
  sameWindow,
  sharedNames,
  sizesOf,
  sparseLayers,
  windowsBy,
} from './common.js';
import type { Names } from '../decoder/weights.js';
import { family } from './row.js';

/** Models that read images too: their text is turned as any other, by one position in all sections. */
const READERS = ['qwen2_vl_text', 'qwen2_5_vl_text', 'qwen3_vl_text', 'qwen3_vl_moe_text'];
const turns = (c: Config): { sections?: boolean } => ({ sections: READERS.includes(c.json.model_type as string) });
const readsImages = (...types: readonly string[]): NonNullable<Parameters<typeof family>[0]['wrappers']> => ({
  types,
  prefixes: ['model.language_model.', 'language_model.model.'],
  ignored: /(^|\.)visual\./,
});
const qwen2 = family({
  types: ['qwen2', 'qwen2_vl_text', 'qwen2_5_vl_text'],
  wrappers: readsImages('qwen2_vl', 'qwen2_5_vl'),
  features: (c) => {
    const s = sizesOf(c);
    const windows = qwenWindows(c, s.layers);
    return build('qwen2', c, s, {
      norm: rms(c),
      rope: ropeOf(c, s, turns(c)),
      attention: (i) => ({ window: windows[i] }),
      mlp: () => gated(c),
      biases: QKV_BIAS,
    });
  },
  names: LLAMA_NAMES,
  gguf: { architectures: ['qwen2', 'qwen2vl', 'qwen'] },
});

const qwen3 = family({
  types: ['qwen3', 'qwen3_vl_text'],
  wrappers: readsImages('qwen3_vl'),
  features: (c) => {
    const biases = biasesBy(c, { attention_bias: ATTENTION_BIAS });
    const s = sizesOf(c);
    const windows = qwenWindows(c, s.layers);
    const norm = rms(c);
    return build('qwen3', c, s, {
      norm,
      rope: ropeOf(c, s, turns(c)),
      attention: (i) => ({ window: windows[i], qkNorm: { norm, over: 'head' } }),
      mlp: () => gated(c),
      biases,
    });
  },
  names: LLAMA_NAMES,
  gguf: { architectures: ['qwen3', 'qwen3vl'] },
});

/** Experts on every `decoder_sparse_step`th layer that mlp_only_layers does not name. */
export function qwenMlp(c: Config, mixture: () => Experts): (i: number) => Mlp {
  const step = c.count('decoder_sparse_step', 1, 1);
  const only = c.has('mlp_only_layers') ? c.numbers('mlp_only_layers') : [];
  eitherKind(c);
  return (i) => (!only.includes(i) && (i + 1) % step === 0 ? mixture() : gated(c));
}
export const qwenExperts = (c: Config, shared?: Experts['shared'], always = false): Experts =>
  experts(c, {
    count: firstCount(c, 'num_experts', 'num_local_experts'),
    chosen: c.count('num_experts_per_tok', undefined, 1),
    inner: c.count('moe_intermediate_size', undefined, 1),
    score: 'softmax',
    weights: always || c.flag('norm_topk_prob', false) ? 'normalised' : 'kept',
    ...(shared && { shared }),
  });
function qwenMoe(c: Config, normed: boolean): Features {
  const biases = normed
    ? biasesBy(c, { attention_bias: ATTENTION_BIAS })
    : biasesBy(c, { qkv_bias: QKV_BIAS }, { qkv_bias: true });
  c.ignore('attention_bias', 'qkv_bias', 'intermediate_size');
  const s = sizesOf(c);
  // Qwen3's mixtures slide on all layers or on none.
  const slides = normed && !c.has('layer_types') && c.flag('use_sliding_window', false);
  const windows = slides ? sameWindow(c, s.layers) : qwenWindows(c, s.layers);
  c.ignore('max_window_layers');
  const norm = rms(c);
  const shared = normed ? undefined : { inner: c.count('shared_expert_intermediate_size'), gated: true };
  return build(normed ? 'qwen3_moe' : 'qwen2_moe', c, s, {
    norm,
    rope: ropeOf(c, s, turns(c)),
    attention: (i) => ({ window: windows[i], ...(normed && { qkNorm: { norm, over: 'head' } }) }),
    mlp: qwenMlp(c, () => qwenExperts(c, shared)),
    biases,
  });
}
export const QWEN_MOE_NAMES = {
  ...LLAMA_NAMES,
  ...expertNames('mlp'),
  ...sharedNames('mlp.shared_expert'),
  sharedSwitch: 'mlp.shared_expert_gate',
};
const qwen2Moe = family({
  types: ['qwen2_moe'],
  features: (c) => qwenMoe(c, false),
  names: QWEN_MOE_NAMES,
  gguf: { architectures: ['qwen2moe'] },
});
/** Experts that files of Qwen3-VL keep in one tensor, its last two dimensions in one order or the other. */
function turnedExperts(c: Config): Partial<Names> {
  const inner = c.count('moe_intermediate_size', undefined, 1);
  const upright = (t: Tensor, rows: number): Tensor => (t.shape[1] === rows ? t : t.t());
  const [hidden, at] = [c.count('hidden_size', undefined, 1), 'mlp.experts'];
  const part = (from: number) => (t: Tensor) => upright(t, 2 * inner).narrow(1, from * inner, inner);
  return {
    expertGate: [`${at}.{e}.gate_proj`, { name: `${at}.gate_up_proj`, bare: true, rows: part(0) }],
    expertUp: [`${at}.{e}.up_proj`, { name: `${at}.gate_up_proj`, bare: true, rows: part(1) }],
    expertDown: [`${at}.{e}.down_proj`, { name: `${at}.down_proj`, bare: true, rows: (t) => upright(t, hidden) }],
  };
}
const qwen3Moe = family({
  types: ['qwen3_moe', 'qwen3_vl_moe_text'],
  wrappers: readsImages('qwen3_vl_moe'),
  features: (c) => qwenMoe(c, true),
  names: (c) =>
    c.json.model_type === 'qwen3_vl_moe_text' ? { ...QWEN_MOE_NAMES, ...turnedExperts(c) } : QWEN_MOE_NAMES,
  gguf: { architectures: ['qwen3moe', 'qwen3vlmoe'] },
});

/** Mellum 2: Qwen3's mixture with windows by layer, and a rope of their own. */
const mellum = family({
  types: ['mellum'],
  features: (c) => {
    const biases = biasesBy(c, { attention_bias: ATTENTION_BIAS });
    const s = sizesOf(c);
    const types = layerTypes(c, s.layers, full);
    const windows = windowsBy(c, types, c.optional('sliding_window'));
    const rope = (layerType: string, theta: number): RopeFeature =>
      ropeOf(c, s, { layerType, apart: true, within: true, theta });
    const ropes = [rope('full_attention', 5e5), rope('sliding_attention', 1e4)] as const;
    const sparse = sparseLayers(c, s.layers, () => true);
    eitherKind(c);
    const norm = rms(c);
    return build('mellum', c, s, {
      norm,
      attention: (i) => ({
        rope: ropes[windows[i] === undefined ? 0 : 1],
        window: windows[i],
        qkNorm: { norm, over: 'head' },
      }),
      mlp: (i) => (sparse(i) ? qwenExperts(c) : gated(c)),
      biases,
    });
  },
  names: QWEN_MOE_NAMES,
  gguf: { architectures: ['mellum'] },
});

const MIXTRAL_NAMES = { ...LLAMA_NAMES, ...expertNames('block_sparse_moe', ['w1', 'w3', 'w2']) };
const mixtral = family({
  types: ['mixtral'],
  features: (c) => {
    const s = sizesOf(c);
    const windows = sameWindow(c, s.layers);
    return build('mixtral', c, s, {
      norm: rms(c, 1e-5),
      rope: ropeOf(c, s, { theta: 1e6 }),
      attention: (i) => ({ window: windows[i] }),
      mlp: () =>
        experts(c, {
          count: c.count('num_local_experts', undefined, 1),
          chosen: c.count('num_experts_per_tok', 2, 1),
          inner: c.count('intermediate_size'),
          score: 'softmax',
          weights: 'normalised',
        }),
    });
  },
  names: MIXTRAL_NAMES,
});

const minimaxM2 = family({
  types: ['minimax_m2'],
  features: (c) => {
    const s = sizesOf(c);
    const partial = c.has('rotary_dim') ? c.count('rotary_dim') / s.headDim : 1;
    c.ignore('scoring_func', 'use_routing_bias', 'qk_norm_type', 'use_qk_norm', 'mlp_intermediate_size');
    c.ignore('num_mtp_modules', 'mtp_transformer_layers', 'use_mtp', 'shared_intermediate_size', 'attn_type_list');
    const norm = rms(c);
    return build('minimax_m2', c, s, {
      norm,
      rope: ropeOf(c, s, { theta: 5e6, partial }),
      attention: () => ({ qkNorm: { norm, over: 'whole' } }),
      mlp: () =>
        experts(c, {
          count: c.count('num_local_experts', undefined, 1),
          chosen: c.count('num_experts_per_tok', undefined, 1),
          inner: c.count('intermediate_size'),
          score: 'sigmoid',
          choiceBias: true,
          weights: 'normalised',
        }),
    });
  },
  names: { ...MIXTRAL_NAMES, choiceBias: { name: 'block_sparse_moe.e_score_correction_bias', bare: true } },
  gguf: { architectures: ['minimax-m2'] },
});

function hunyuan(c: Config): Features {
  const biases = biasesBy(c, { attention_bias: ATTENTION_BIAS });
  c.ignore('mlp_bias', 'eod_token_id', 'sep_token_id', 'use_qk_norm', 'use_cla', 'cla_share_factor');
  const s = sizesOf(c);
  const norm = rms(c, 1e-5);
  const mixture = c.json.model_type === 'hunyuan_v1_moe';
  const each = (name: string, i: number, fallback: number): number => {
    const v = c.get(name) ?? fallback;
    return Array.isArray(v) ? (v[i] as number) : (v as number);
  };
  const inner = c.count('intermediate_size');
  return build('hunyuan', c, s, {
    norm,
    rope: ropeOf(c, s),
    attention: () => ({ qkNorm: { norm, over: 'head', afterRope: true } }),
    mlp: (i) =>
      mixture
        ? experts(c, {
            count: each('num_experts', i, 1),
            chosen: each('moe_topk', i, 1),
            inner,
            score: 'softmax',
            weights: 'normalised',
            shared: { inner },
          })
        : gated(c),
    biases,
  });
}
const hunyuanFamily = family({
  types: ['hunyuan_v1_dense', 'hunyuan_v1_moe'],
  features: hunyuan,
  names: {
    ...LLAMA_NAMES,
    ...expertNames('mlp'),
    ...sharedNames('mlp.shared_mlp'),
    router: 'mlp.gate.wg',
    qNorm: 'self_attn.query_layernorm',
    kNorm: 'self_attn.key_layernorm',
  },
  gguf: { architectures: ['hunyuan-dense', 'hunyuan-moe'] },
});

function ernie(c: Config): Features {
  const mixture = c.json.model_type === 'ernie4_5_moe';
  const dense = [...ATTENTION_BIAS, ...MLP_BIAS];
  const biases = biasesBy(c, { use_bias: mixture ? [...dense, ...SHARED_BIAS, 'head'] : dense });
  c.ignore('compression_ratio', 'moe_capacity', 'moe_dropout_prob', 'moe_use_aux_free', 'fuse_ln');
  const s = sizesOf(c);
  // Of the one that reads images pairs lie half a head apart.
  const sections = c.json.model_type === 'paddleocr_vl_text';
  const rope = ropeOf(c, s, { interleaved: !sections, sections, theta: 5e5 });
  if (!mixture) return build('ernie4_5', c, s, { norm: rms(c, 1e-5), rope, mlp: () => gated(c), tied: true, biases });
  eitherKind(c);
  const from = c.count('moe_layer_start_index', 1);
  const last = c.optional('moe_layer_end_index') ?? -1;
  const to = last === -1 ? s.layers - 1 : last;
  const every = c.count('moe_layer_interval', 1, 1);
  const count = c.count('moe_num_shared_experts', 0);
  const inner = c.count('moe_intermediate_size');
  const mixed = (i: number): boolean => (i + 1) % every === 0 && i >= from && i <= to;
  return build('ernie4_5_moe', c, s, {
    norm: rms(c, 1e-5),
    rope,
    mlp: (i) =>
      mixed(i)
        ? experts(c, {
            count: c.count('moe_num_experts', undefined, 1),
            chosen: c.count('moe_k', undefined, 1),
            inner,
            score: 'softmax',
            choiceBias: true,
            weights: 'normalised',
            sumGuard: { least: c.number('moe_norm_min', 1e-12) },
            ...(count > 0 && { shared: { inner: inner * count } }),
          })
        : gated(c),
    tied: true,
    biases,
  });
}
const ernieFamily = family({
  types: ['ernie4_5', 'ernie4_5_moe', 'paddleocr_vl_text'],
  features: ernie,
  names: {
    ...LLAMA_NAMES,
    ...expertNames('mlp'),
    ...sharedNames('mlp.shared_experts'),
    choiceBias: {
      name: 'mlp.moe_statics.e_score_correction_bias',
      bare: true,
      rows: (t) => t.reshape([-1]),
    },
  },
  wrappers: {
    types: ['paddleocr_vl'],
    prefixes: ['model.', 'model.language_model.'],
    ignored: /(^|\.)(visual|mlp_AR|projector)\./,
  },
  gguf: { architectures: ['ernie4_5', 'ernie4_5-moe'] },
});

export const QWEN_FAMILIES = [qwen2, qwen3, qwen2Moe, qwen3Moe, mellum, mixtral, minimaxM2, hunyuanFamily, ernieFamily];

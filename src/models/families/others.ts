// OLMo, Cohere, GLM, StableLM, EXAONE, Nemotron, LFM2: norms in other places and of other kinds.
import { FormatError } from '../../base/errors.js';
import type { Config } from '../files/config.js';
import { ALL_NORMS, type Features, type Mlp, POST_NORMS } from '../decoder/features.js';
import type { RopeFeature } from '../decoder/rope.js';
import type { Names } from '../decoder/weights.js';
import {
  ATTENTION_BIAS,
  activationOf,
  biasesBy,
  build,
  eitherKind,
  expertNames,
  experts,
  firstCount,
  full,
  fusedGateUp,
  gated,
  lastFull,
  layerNorm,
  layerTypes,
  LLAMA_NAMES,
  QKV_BIAS,
  rms,
  ropeOf,
  sharedNames,
  sizesOf,
  sparseLayers,
  UNGATED_BIAS,
  ungated,
  windowsBy,
} from './common.js';
import { family } from './row.js';

const FLAG = { attention_bias: ATTENTION_BIAS };

const olmo = family({
  types: ['olmo'],
  features: (c) => {
    const s = sizesOf(c);
    const clip = c.optional('clip_qkv');
    return build('olmo', c, s, {
      norm: { kind: 'layer', eps: 1e-5, weightless: true },
      rope: ropeOf(c, s),
      attention: () => (clip !== undefined ? { clip } : {}),
      mlp: () => gated(c),
      biases: biasesBy(c, FLAG),
    });
  },
  names: LLAMA_NAMES,
  gguf: { architectures: ['olmo'], permuted: ['olmo'] },
});

const POST_NAMES: Names = {
  ...LLAMA_NAMES,
  beforeMixer: undefined,
  beforeMlp: undefined,
  afterMixer: 'post_attention_layernorm',
  afterMlp: 'post_feedforward_layernorm',
};
function olmo2(c: Config): Features {
  const s = sizesOf(c);
  const norm = rms(c, 1e-5);
  const mixture = c.json.model_type === 'flex_olmo';
  const third = c.json.model_type === 'olmo3';
  if (!third) c.ignore('layer_types', 'sliding_window'); // only the third has windows, and ropes apart for them
  const windows = third ? windowsBy(c, layerTypes(c, s.layers, lastFull(4)), c.optional('sliding_window')) : [];
  const apart = (layerType: string, theta: number): RopeFeature =>
    ropeOf(c, s, { layerType, apart: true, within: true, theta });
  const rope = third
    ? apart('full_attention', c.optional('rope_theta') ?? 5e5)
    : ropeOf(c, s, mixture ? { theta: 5e5 } : {});
  // A base beside the parameters is that of full layers alone, as transformers reads it.
  const plain = third ? apart('sliding_attention', 5e5) : rope;
  return build('olmo2', c, s, {
    norm,
    attention: (i) => ({
      rope: windows[i] === undefined ? rope : plain,
      window: windows[i],
      qkNorm: { norm, over: 'whole' },
    }),
    mlp: () => (mixture ? olmoExperts(c) : gated(c)),
    biases: biasesBy(c, FLAG),
    more: { norms: POST_NORMS },
  });
}
const olmoExperts = (c: Config): ReturnType<typeof experts> =>
  experts(c, {
    count: firstCount(c, 'num_experts', 'num_local_experts'),
    chosen: c.count('num_experts_per_tok', undefined, 1),
    inner: c.count('intermediate_size'),
    score: 'softmax',
    weights: c.flag('norm_topk_prob', false) ? 'normalised' : 'kept',
  });
const olmo2Family = family({
  types: ['olmo2', 'olmo3', 'flex_olmo'],
  features: olmo2,
  names: { ...POST_NAMES, ...expertNames('mlp') },
  gguf: { architectures: ['olmo2'] },
});
const olmoe = family({
  types: ['olmoe'],
  features: (c) => {
    const s = sizesOf(c);
    const norm = rms(c, 1e-5);
    const clip = c.optional('clip_qkv');
    return build('olmoe', c, s, {
      norm,
      rope: ropeOf(c, s),
      attention: () => ({ qkNorm: { norm, over: 'whole' }, ...(clip !== undefined && { clip }) }),
      mlp: () => olmoExperts(c),
      biases: biasesBy(c, FLAG),
    });
  },
  names: { ...LLAMA_NAMES, ...expertNames('mlp') },
  gguf: { architectures: ['olmoe'] },
});

/** Cohere's mixtures: the shared expert is added, or the mean of both is taken. */
function cohereExperts(c: Config): ReturnType<typeof experts> {
  const inner = c.count('intermediate_size', undefined, 1);
  const shared = c.count('num_shared_experts', 0);
  c.only('shared_expert_combination_strategy', 'average', 'sum');
  c.only('expert_selection_fn', 'softmax', 'sigmoid');
  const mean = shared > 0 && c.text('shared_expert_combination_strategy', 'average') === 'average' ? 0.5 : 1;
  const softmax = c.text('expert_selection_fn', 'softmax') === 'softmax';
  const normed = c.flag('norm_topk_prob', true); // of the sigmoid alone
  return experts(c, {
    count: c.count('num_experts', 8, 1),
    chosen: c.count('num_experts_per_tok', 2, 1),
    inner,
    score: softmax ? 'logits' : 'sigmoid',
    weights: softmax ? 'softmax' : normed ? 'normalised' : 'kept',
    ...(mean !== 1 && { factor: mean }),
    ...(shared > 0 && { shared: { inner: inner * shared, ...(mean !== 1 && { factor: mean }) } }),
  });
}
/** Which layers of a mixture are dense, and what turns there though nothing slides. */
function cohereMixture(c: Config, layers: number): { mlp: (i: number) => Mlp; turns: (i: number) => boolean } {
  const first = c.count('first_k_dense_replace', 0);
  const sparse = sparseLayers(c, layers, (i) => i >= first);
  const period = c.count('prefix_dense_sliding_window_pattern', 1, 1);
  if (first > 0 && !c.has('layer_types'))
    throw new FormatError(`${c.where}: first_k_dense_replace is ${first}, and layer_types is missing`);
  const inner = c.optional('prefix_dense_intermediate_size') ?? c.count('intermediate_size', undefined, 1);
  const mixture = cohereExperts(c);
  return { mlp: (i) => (sparse(i) ? mixture : gated(c, inner)), turns: (i) => !sparse(i) && period === 1 };
}
function cohere(c: Config): Features {
  c.ignore('layer_switch', 'order_of_interleaved_layers', 'position_embedding_type', 'rotary_pct');
  c.ignore('use_embedding_sharing', 'use_gated_activation', 'use_parallel_block', 'use_parallel_embedding');
  const s = sizesOf(c);
  const type = c.json.model_type as string;
  const mixture = type === 'cohere2_moe' ? cohereMixture(c, s.layers) : undefined;
  const mean = { ...layerNorm(c, 'layer_norm_eps'), bias: false };
  const norm = mixture && c.has('rms_norm_eps') ? rms(c) : mean;
  // transformers reads the mixture's stretched ropes under their new name alone.
  if (mixture && !c.has('rope_parameters')) c.only('rope_scaling');
  const second = type !== 'cohere';
  const hidden = c.optional('_sliding_window_pattern');
  const period = c.optional('sliding_window_pattern') ?? hidden ?? 4;
  const windows = second
    ? windowsBy(c, layerTypes(c, s.layers, lastFull(period)), c.optional('sliding_window') ?? 4096)
    : [];
  const rope = ropeOf(c, s, { interleaved: true });
  const qk = c.flag('use_qk_norm', false);
  return build(type, c, s, {
    norm,
    attention: (i) => ({
      ...((!second || windows[i] !== undefined || mixture?.turns(i)) && { rope }),
      window: windows[i],
      ...(qk && { qkNorm: { norm, over: 'each' as const } }),
    }),
    mlp: mixture?.mlp ?? (() => gated(c)),
    tied: true,
    biases: biasesBy(c, FLAG),
    more: { parallel: 'shared', logitFactor: c.number('logit_scale', 0.0625) },
  });
}
const cohereFamily = family({
  types: ['cohere', 'cohere2', 'cohere2_moe'],
  features: cohere,
  names: { ...LLAMA_NAMES, ...expertNames('mlp'), ...sharedNames('mlp.shared_experts') },
  gguf: { architectures: ['command-r', 'cohere2', 'cohere2moe'] },
});

const glm = family({
  types: ['glm', 'glm4', 'glm4v_text', 'glm_ocr_text'],
  features: (c) => {
    const s = sizesOf(c);
    const first = c.json.model_type === 'glm';
    const sections = c.json.model_type === 'glm4v_text' || c.json.model_type === 'glm_ocr_text';
    return build(first ? 'glm' : 'glm4', c, s, {
      norm: rms(c, 1.5625e-7),
      // Those that read images turn whole heads unless told otherwise.
      rope: ropeOf(c, s, { interleaved: true, partial: sections ? 1 : 0.5, sections }),
      mlp: () => gated(c),
      biases: biasesBy(c, { attention_bias: QKV_BIAS }, { attention_bias: true }),
      more: first ? {} : { norms: ALL_NORMS },
    });
  },
  names: {
    ...LLAMA_NAMES,
    afterMixer: 'post_self_attn_layernorm',
    afterMlp: 'post_mlp_layernorm',
    ...fusedGateUp('mlp.gate_up_proj'),
  },
  wrappers: { types: ['glm4v', 'glm_ocr'], prefixes: ['model.language_model.'], ignored: /(^|\.)visual\./ },
  gguf: { architectures: ['glm4', 'chatglm'], names: fusedGateUp('ffn_up') },
});

const stablelm = family({
  types: ['stablelm'],
  features: (c) => {
    const s = sizesOf(c);
    const norm = layerNorm(c, 'layer_norm_eps');
    const qk = c.flag('qk_layernorm', false);
    c.ignore('norm_eps', 'rope_pct'); // of files' own programs, which say the same once more
    return build('stablelm', c, s, {
      norm,
      rope: ropeOf(c, s, { partial: 0.25 }),
      attention: () => (qk ? { qkNorm: { norm: { ...norm, bias: false }, over: 'each' } } : {}),
      mlp: () => gated(c),
      biases: biasesBy(c, { use_qkv_bias: QKV_BIAS }),
      more: c.flag('use_parallel_residual', false) ? { parallel: 'shared' } : {},
    });
  },
  names: { ...LLAMA_NAMES, qNorm: 'self_attn.q_layernorm.norms.{e}', kNorm: 'self_attn.k_layernorm.norms.{e}' },
  gguf: { architectures: ['stablelm', 'orion'] },
});

const exaone4 = family({
  types: ['exaone4', 'exaone_moe'],
  features: (c) => {
    c.ignore('attention_bias');
    const s = sizesOf(c);
    const norm = rms(c, 1e-5);
    const window = c.optional('sliding_window');
    const pattern = c.get('sliding_window_pattern') ?? 4;
    const slides = (i: number): boolean =>
      typeof pattern === 'string' ? pattern[i % pattern.length] === 'L' : (i + 1) % (pattern as number) !== 0;
    const rule = (i: number): string =>
      window !== undefined && slides(i) && i < s.layers ? 'sliding_attention' : full();
    const windows = windowsBy(c, layerTypes(c, s.layers, rule), window);
    const rope = ropeOf(c, s);
    const moe = c.json.model_type === 'exaone_moe';
    const mixture = moe ? exaoneExperts(c, s.layers) : undefined;
    return build('exaone4', c, s, {
      norm,
      attention: (i) => ({
        ...((window === undefined || windows[i] !== undefined) && { rope }),
        window: windows[i],
        qkNorm: { norm, over: 'head' },
      }),
      mlp: (i) => mixture?.(i) ?? gated(c),
      more: moe ? {} : { norms: POST_NORMS },
    });
  },
  names: (c) =>
    c.json.model_type === 'exaone_moe'
      ? {
          ...LLAMA_NAMES,
          ...expertNames('mlp'),
          choiceBias: { name: 'mlp.e_score_correction_bias', bare: true },
          sharedGate: 'mlp.shared_experts.gate_proj',
          sharedUp: 'mlp.shared_experts.up_proj',
          sharedDown: 'mlp.shared_experts.down_proj',
        }
      : POST_NAMES,
  gguf: { architectures: ['exaone4', 'exaone-moe'] },
});
function exaoneExperts(c: Config, layers: number): (i: number) => ReturnType<typeof experts> | undefined {
  eitherKind(c);
  const dense = c.count('first_k_dense_replace', 1);
  const sparse = sparseLayers(c, layers, (i) => i >= dense);
  const inner = c.count('moe_intermediate_size');
  const mixture = experts(c, {
    count: c.count('num_experts', undefined, 1),
    chosen: c.count('num_experts_per_tok', undefined, 1),
    inner,
    score: 'sigmoid',
    choiceBias: true,
    groups: { count: c.count('n_group', 1, 1), kept: c.count('topk_group', 1, 1), worth: 'two best' },
    weights: c.flag('norm_topk_prob', true) ? 'normalised' : 'kept',
    sumGuard: { add: 1e-20 },
    factor: c.number('routed_scaling_factor', 1),
    shared: { inner: inner * c.count('num_shared_experts', 1) },
  });
  return (i) => (sparse(i) ? mixture : undefined);
}

const nemotron = family({
  types: ['nemotron', 'jais2'],
  features: (c) => {
    const s = sizesOf(c);
    const jais = c.json.model_type === 'jais2';
    return build('nemotron', c, s, {
      norm: jais ? layerNorm(c, 'layer_norm_eps') : { ...layerNorm(c, 'norm_eps'), plusOne: true },
      rope: ropeOf(c, s, jais ? {} : { partial: 0.5 }),
      mlp: () => ungated(c.count('intermediate_size'), activationOf(c, 'hidden_act', 'relu2')),
      biases: biasesBy(c, { ...FLAG, mlp_bias: UNGATED_BIAS }, { attention_bias: jais, mlp_bias: jais }),
    });
  },
  names: LLAMA_NAMES,
  gguf: { architectures: ['nemotron', 'jais2'], oneAdded: true },
});

/** Numbers inside of a block's MLP: adjusted as the authors do unless the file says that they are. */
function lfm2Inner(c: Config, moe: boolean): number {
  const given = c.has('block_ff_dim') ? c.count('block_ff_dim') : c.count('intermediate_size');
  c.ignore('block_ffn_dim_multiplier', 'block_multiple_of', 'intermediate_size');
  if (moe || !c.flag('block_auto_adjust_ff_dim', true)) return given;
  const third = Math.trunc((2 * given) / 3);
  const scaled = Math.trunc((c.optional('block_ffn_dim_multiplier') ?? 1) * third);
  const unit = c.count('block_multiple_of', 256, 1);
  return unit * Math.ceil(scaled / unit);
}
const LFM2_WITHOUT_EFFECT = [
  ...['conv_dim', 'conv_dim_out', 'conv_use_xavier_init', 'block_dim', 'block_mlp_init_scale', 'block_ff_dim'],
  ...['block_out_init_scale', 'block_norm_eps', 'block_use_swiglu', 'block_use_xavier_init', 'num_heads'],
];
function lfm2(c: Config): Features {
  const s = sizesOf(c);
  const moe = c.json.model_type === 'lfm2_moe';
  const norm = { kind: 'rms', eps: c.number('norm_eps', 1e-5) } as const;
  const attends = c.has('full_attn_idxs') ? c.numbers('full_attn_idxs') : undefined;
  const types = layerTypes(c, s.layers, (i) => (!attends || attends.includes(i) ? full() : 'conv'));
  c.ignore(...LFM2_WITHOUT_EFFECT);
  c.only('block_use_swiglu', true);
  const width = c.count('conv_L_cache', 3, 1);
  const rope = ropeOf(c, s, { theta: 1e6 });
  const inner = lfm2Inner(c, moe);
  const dense = moe ? c.count('num_dense_layers', 0) : s.layers;
  if (moe) eitherKind(c);
  return build('lfm2', c, s, {
    norm,
    mixer: (i) =>
      types[i] === 'conv'
        ? { kind: 'conv', channels: s.hidden, width }
        : {
            kind: 'attention',
            heads: s.heads,
            kvHeads: s.kvHeads,
            headDim: s.headDim,
            scale: 1 / Math.sqrt(s.headDim),
            rope,
            qkNorm: { norm, over: 'head' },
          },
    mlp: (i) =>
      i < dense
        ? { kind: 'dense', inner, gated: true, activation: 'silu' }
        : {
            kind: 'experts',
            activation: 'silu',
            count: c.count('num_experts', undefined, 1),
            chosen: c.count('num_experts_per_tok', undefined, 1),
            inner: c.count('moe_intermediate_size'),
            score: 'sigmoid',
            choiceBias: c.flag('use_expert_bias', true),
            weights: c.flag('norm_topk_prob', true) ? 'normalised' : 'kept',
            sumGuard: { add: 1e-6 },
            factor: c.number('routed_scaling_factor', 1),
          },
    tied: c.flag('tie_embedding', true),
    biases: biasesBy(c, { conv_bias: ['convIn', 'conv', 'convOut'] }),
  });
}
const lfm2Family = family({
  types: ['lfm2', 'lfm2_moe'],
  features: lfm2,
  names: {
    ...LLAMA_NAMES,
    ...expertNames('feed_forward', ['w1', 'w3', 'w2']),
    finalNorm: 'model.embedding_norm',
    beforeMixer: 'operator_norm',
    beforeMlp: 'ffn_norm',
    o: 'self_attn.out_proj',
    qNorm: 'self_attn.q_layernorm',
    kNorm: 'self_attn.k_layernorm',
    gate: 'feed_forward.w1',
    up: 'feed_forward.w3',
    down: 'feed_forward.w2',
    choiceBias: { name: 'feed_forward.expert_bias', bare: true },
    convIn: 'conv.in_proj',
    conv: 'conv.conv',
    convOut: 'conv.out_proj',
  },
  gguf: { architectures: ['lfm2', 'lfm2moe'], names: { finalNorm: ['token_embd_norm', 'output_norm'] } },
});

export const OTHER_FAMILIES = [olmo, olmo2Family, olmoe, cohereFamily, glm, stablelm, exaone4, nemotron, lfm2Family];

// Llama and the families that differ from it by a switch or two.
import { Config } from '../files/config.js';
import { ALL_NORMS, type Attention, type Features, type Layer } from '../decoder/features.js';
import type { RopeFeature } from '../decoder/rope.js';
import {
  ATTENTION_BIAS,
  biasesBy,
  build,
  eitherKind,
  experts,
  full,
  fusedGateUp,
  gated,
  LLAMA_NAMES,
  MLP_BIAS,
  QKV_BIAS,
  UNGATED_BIAS,
  layerTypes,
  rms,
  ropeOf,
  sameWindow,
  sharedNames,
  type Sizes,
  sizesOf,
  stackedGateUp,
  ungated,
  activationOf,
  windowsBy,
  firstCount,
} from './common.js';
import type { Names } from '../decoder/weights.js';
import { alibiSlopes } from './alibi-slopes.js';
import { family } from './row.js';

/** Flags of biases that a family does not heed, whatever they say. */
const noBiases = (c: Config): void =>
  c.ignore('attention_bias', 'mlp_bias', 'use_bias', 'attention_out_bias', 'qkv_bias');
const FLAGS = { attention_bias: ATTENTION_BIAS, mlp_bias: MLP_BIAS };
/** Helium has none on its output, Seed a flag of its own for it and biases on the others unless told otherwise. */
const BIASES: Readonly<Record<string, (c: Config) => ReturnType<typeof biasesBy>>> = {
  llama: (c) => biasesBy(c, FLAGS),
  helium: (c) => biasesBy(c, { ...FLAGS, attention_bias: QKV_BIAS }),
  seed_oss: (c) =>
    biasesBy(c, { ...FLAGS, attention_bias: QKV_BIAS, attention_out_bias: ['o'] }, { attention_bias: true }),
};

export function llamaFeatures(c: Config): Features {
  const type = c.json.model_type as string;
  const biases = (BIASES[type] ?? BIASES.llama)(c);
  noBiases(c);
  c.only('use_sliding_window', false);
  const s = sizesOf(c);
  const rope = ropeOf(c, s, { interleaved: type === 'helium' });
  // Some GGUF files of these layers go by distances.
  const places = c.flag('alibi', false) ? { attention: () => ({ alibi: alibiSlopes(s.heads) }) } : { rope };
  return build('llama', c, s, { norm: rms(c), ...places, mlp: () => gated(c), biases });
}
const llama = family({
  types: ['llama', 'helium', 'seed_oss', 'emu3_text_model'],
  features: llamaFeatures,
  names: LLAMA_NAMES,
  gguf: {
    architectures: [
      'llama',
      'seed_oss',
      'internlm2',
      'exaone',
      'xverse',
      'llama-embed',
      'baichuan',
      'refact',
      'pangu-embedded',
    ],
    permuted: ['llama', 'internlm2', 'xverse', 'llama-embed', 'baichuan'],
    names: { beforeMlp: ['ffn_norm', 'post_attention_norm'] },
    written: (a) => (a === 'seed_oss' ? { beforeMlp: 'post_attention_norm' } : {}),
  },
});

const LLAMA3_ROPE = {
  ...{ rope_type: 'llama3', factor: 8, original_max_position_embeddings: 8192 },
  ...{ low_freq_factor: 1, high_freq_factor: 4 },
};
const mistral = family({
  types: ['mistral', 'ministral', 'cwm'],
  features: (c) => {
    const cwm = c.json.model_type === 'cwm';
    const biases = cwm ? biasesBy(c, { mlp_bias: MLP_BIAS }) : [];
    noBiases(c);
    const s = sizesOf(c);
    const window = c.optional('sliding_window');
    const rule = (): string => (window === undefined ? full() : 'sliding_attention');
    const rope = ropeOf(c, s, cwm ? { unsaid: { ...LLAMA3_ROPE, factor: 16, rope_theta: 1e6 } } : {});
    // Mistral itself has one window for all layers or none, whatever a list says.
    const plain = c.json.model_type === 'mistral';
    if (plain) c.ignore('layer_types');
    const types = () => layerTypes(c, s.layers, cwm ? (i) => (i % 4 === 0 ? full() : rule()) : rule);
    const windows = plain ? sameWindow(c, s.layers) : windowsBy(c, types(), window);
    return build('mistral', c, s, {
      norm: rms(c),
      rope,
      attention: (i) => ({ window: windows[i] }),
      mlp: () => gated(c),
      biases,
    });
  },
  names: LLAMA_NAMES,
});

const MINISTRAL_ROPE = {
  ...{ rope_type: 'yarn', factor: 16, original_max_position_embeddings: 16384, mscale: 1, mscale_all_dim: 1 },
  ...{ llama_4_scaling_beta: 0.1, rope_theta: 1e6 },
};
const ministral3 = family({
  types: ['ministral3'],
  features: (c) => {
    noBiases(c);
    const s = sizesOf(c);
    const windows = sameWindow(c, s.layers);
    const rope = ropeOf(c, s, { theta: 1e6, unsaid: MINISTRAL_ROPE });
    const given = c.inner('rope_parameters') ?? c.inner('rope_scaling') ?? new Config(MINISTRAL_ROPE);
    const beta = given.optional('llama_4_scaling_beta');
    given.ignore('max_position_embeddings', 'original_max_position_embeddings');
    const temperature = { beta: beta ?? 0, scale: rope.original ?? s.maxPositions, offset: 0 };
    return build('ministral3', c, s, {
      norm: rms(c),
      rope,
      attention: (i) => ({ window: windows[i], ...(beta && { temperature }) }),
      mlp: () => gated(c),
    });
  },
  names: LLAMA_NAMES,
  gguf: { architectures: ['mistral3'], permuted: ['mistral3'], yarnLog: 1 },
});

const arcee = family({
  types: ['arcee', 'apertus'],
  features: (c) => {
    const apertus = c.json.model_type === 'apertus';
    const biases = biasesBy(c, { attention_bias: ATTENTION_BIAS, ...(!apertus && { mlp_bias: UNGATED_BIAS }) });
    noBiases(c);
    const s = sizesOf(c);
    const act = c.text('hidden_act', 'relu2');
    if (act !== 'xielu') activationOf(c, 'hidden_act', 'relu2');
    else if (!apertus) c.only('hidden_act', 'relu2');
    const norm = rms(c, 1e-5);
    c.ignore('post_norm', 'qk_norm');
    const curves = c.get('xielu') as readonly (readonly number[])[] | undefined; // of a GGUF file
    return build(apertus ? 'apertus' : 'arcee', c, s, {
      norm,
      rope: ropeOf(c, s, apertus ? { unsaid: { ...LLAMA3_ROPE, rope_theta: 12e6 } } : {}),
      attention: () => (apertus ? { qkNorm: { norm, over: 'head' } } : {}),
      mlp: (i) => ({
        ...ungated(c.count('intermediate_size'), act),
        ...(curves && { curve: curves.map((x) => x[i]) }),
      }),
      biases,
    });
  },
  names: {
    ...LLAMA_NAMES,
    beforeMixer: ['input_layernorm', 'attention_layernorm'],
    beforeMlp: ['post_attention_layernorm', 'feedforward_layernorm'],
    activation: { name: 'mlp.act_fn', bare: true },
  },
  gguf: { architectures: ['arcee', 'apertus'], permuted: ['arcee'] },
});

const smollm3 = family({
  types: ['smollm3'],
  features: (c) => {
    const biases = biasesBy(c, FLAGS);
    noBiases(c);
    const s = sizesOf(c);
    const rope = ropeOf(c, s);
    const step = c.optional('no_rope_layer_interval') ?? 4;
    const turned = c.has('no_rope_layers')
      ? c.numbers('no_rope_layers', s.layers)
      : Array.from({ length: s.layers }, (_, i) => ((i + 1) % step === 0 ? 0 : 1));
    const on = c.flag('use_sliding_window', false);
    const window = c.optional('sliding_window');
    const windows = windowsBy(
      c,
      layerTypes(c, s.layers, (i) => (on && window !== undefined && !turned[i] ? 'sliding_attention' : full())),
      window,
    );
    c.ignore('max_window_layers');
    return build('smollm3', c, s, {
      norm: rms(c),
      attention: (i) => ({ window: windows[i], ...(turned[i] && { rope }) }),
      mlp: () => gated(c),
      tied: true,
      biases,
    });
  },
  names: LLAMA_NAMES,
  gguf: { architectures: ['smollm3'], permuted: ['smollm3'] },
});

export const graniteExperts = (c: Config, shared: number): ReturnType<typeof experts> =>
  experts(c, {
    count: firstCount(c, 'num_local_experts', 'num_experts'),
    chosen: c.count('num_experts_per_tok', undefined, 1),
    inner: c.count('intermediate_size'),
    score: 'logits',
    weights: 'softmax',
    ...(shared > 0 && { shared: { inner: shared } }),
  });
export const graniteFactors = (c: Config): Partial<Features> => ({
  embedFactor: c.number('embedding_multiplier', 1),
  branchFactor: c.number('residual_multiplier', 1),
  logitFactor: 1 / c.number('logits_scaling', 1),
});
const EXPERT_PARTS = stackedGateUp('block_sparse_moe.input_linear');
/** The same experts as granitemoe_swa names them. */
const NAMED_EXPERTS = stackedGateUp('block_sparse_moe.experts.gate_up_proj', { bare: true });
export const GRANITE_NAMES: Names = {
  ...LLAMA_NAMES,
  router: ['block_sparse_moe.router.layer', 'block_sparse_moe.router'],
  expertGate: [EXPERT_PARTS.gate, NAMED_EXPERTS.gate],
  expertUp: [EXPERT_PARTS.up, NAMED_EXPERTS.up],
  expertDown: ['block_sparse_moe.output_linear', { name: 'block_sparse_moe.experts.down_proj', bare: true }],
  sharedGate: fusedGateUp('shared_mlp.input_linear').gate,
  sharedUp: fusedGateUp('shared_mlp.input_linear').up,
  sharedDown: 'shared_mlp.output_linear',
};
const FUSED_SHARED = fusedGateUp('ffn_up_shexp');
const SHARED_PARTS: Partial<Names> = { sharedGate: FUSED_SHARED.gate, sharedUp: FUSED_SHARED.up };
const granite = family({
  types: ['granite', 'granitemoe', 'granitemoeshared', 'hyperclovax', 'granite_swa', 'granitemoe_swa'],
  features: (c) => graniteFeatures(c),
  names: {
    ...GRANITE_NAMES,
    ...{ afterMixer: 'post_norm1', afterMlp: 'post_norm2', sinks: { name: 'self_attn.sinks', bare: true } },
  },
  gguf: {
    architectures: ['granite', 'granitemoe', 'granite_swa', 'minicpm'],
    permuted: ['granite', 'granitemoe', 'granite_swa', 'minicpm'],
    // With windows, gates of the shared expert stand over its ups.
    names: (f) => (f.layers.some(({ mixer: m }) => m.kind === 'attention' && m.sinks) ? SHARED_PARTS : {}),
    logitsDivided: true,
  },
});
/** Granite with windows: sinks, every fourth layer full, and a base of the rope by layer, of which 0 is none. */
function graniteWindows(c: Config, s: Sizes, rope: RopeFeature): (i: number) => Partial<Attention> {
  const types = layerTypes(c, s.layers, (i) => (i % 4 === 0 ? full() : 'sliding_attention'));
  const windows = windowsBy(c, types, c.optional('sliding_window'));
  const bases = c.has('layer_rope_theta') ? c.numbers('layer_rope_theta', s.layers) : undefined;
  return (i) => ({
    window: windows[i],
    sinks: true,
    rope: bases === undefined ? rope : bases[i] === 0 ? undefined : { ...rope, theta: bases[i] },
  });
}
function graniteFeatures(c: Config): Features {
  const type = c.json.model_type as string;
  const mixture = type.startsWith('granitemoe');
  const biases = biasesBy(c, mixture ? { attention_bias: ATTENTION_BIAS } : FLAGS);
  noBiases(c);
  const s = sizesOf(c);
  const clova = c.json.model_type === 'hyperclovax';
  const around = c.flag('use_post_norm', false);
  const shared = c.optional('shared_intermediate_size') ?? 0;
  const rope = ropeOf(c, s);
  const slides = type.endsWith('_swa') ? graniteWindows(c, s, rope) : undefined;
  return build('granite', c, s, {
    norm: rms(c),
    rope,
    attention: (i) => ({
      scale: c.number('attention_multiplier', clova ? 1 / Math.sqrt(s.headDim) : 1),
      ...slides?.(i),
    }),
    mlp: () => (mixture ? graniteExperts(c, shared) : gated(c)),
    biases,
    more: {
      ...(around && { norms: ALL_NORMS }),
      ...graniteFactors(c),
      logitFactor: c.number('logits_scaling', 1) ** (clova ? 1 : -1),
    },
  });
}

/** Llama 4's text model. */
const llama4 = family({
  types: ['llama4_text'],
  features: (c) => {
    const biases = biasesBy(c, { attention_bias: ATTENTION_BIAS });
    noBiases(c);
    const s = sizesOf(c);
    const rope = ropeOf(c, s, { interleaved: true });
    const step = c.optional('no_rope_layer_interval') ?? 4;
    const given = c.has('no_rope_layers') ? c.numbers('no_rope_layers') : [];
    const turned =
      given.length > 0 ? given : Array.from({ length: s.layers }, (_, i) => ((i + 1) % step === 0 ? 0 : 1));
    eitherKind(c);
    c.ignore('for_llm_compressor', 'max_position_embeddings');
    const types = layerTypes(c, s.layers, (i) => (turned[i] ? 'chunked_attention' : full()));
    c.onlyKinds('layer_types', types, ['chunked_attention', full()]);
    const every = c.count('interleave_moe_layer_step', 1, 1);
    const mixed = c.has('moe_layers')
      ? c.numbers('moe_layers')
      : Array.from({ length: s.layers }, (_, i) => i).filter((i) => (i + 1) % every === 0);
    const chunk = c.optional('attention_chunk_size');
    const tuned = c.flag('attn_temperature_tuning', true);
    const temperature = {
      beta: c.number('attn_scale', 0.1),
      scale: c.number('floor_scale', 8192),
      offset: 1,
      withPads: true,
    };
    const qk = c.flag('use_qk_norm', true);
    const norm = rms(c, 1e-5);
    const inner = c.count('intermediate_size');
    const wide = c.count('intermediate_size_mlp', inner);
    return build('llama4', c, s, {
      norm,
      attention: (i) => ({
        ...(types[i] === 'chunked_attention' && { chunk }),
        ...(turned[i]
          ? {
              rope,
              ...(qk && { qkNorm: { norm: { ...norm, weightless: true }, over: 'head' as const, afterRope: true } }),
            }
          : tuned && { temperature }),
      }),
      mlp: (i) =>
        mixed.includes(i)
          ? experts(c, {
              count: c.count('num_local_experts', undefined, 1),
              chosen: c.count('num_experts_per_tok', undefined, 1),
              inner,
              score: 'logits',
              weights: 'sigmoid',
              onInput: true,
              shared: { inner },
            })
          : gated(c, wide),
      biases,
    });
  },
  names: {
    ...LLAMA_NAMES,
    gate: 'feed_forward.gate_proj',
    up: 'feed_forward.up_proj',
    down: 'feed_forward.down_proj',
    router: 'feed_forward.router',
    expertGate: stackedGateUp('feed_forward.experts.gate_up_proj', { bare: true, transposed: true }).gate,
    expertUp: stackedGateUp('feed_forward.experts.gate_up_proj', { bare: true, transposed: true }).up,
    expertDown: { name: 'feed_forward.experts.down_proj', bare: true, transposed: true },
    ...sharedNames('feed_forward.shared_expert'),
  },
  wrappers: {
    types: ['llama4'],
    prefixes: ['language_model.model.', 'model.language_model.'],
    ignored: /(vision_model|multi_modal_projector)\./,
  },
  gguf: { architectures: ['llama4'] },
});

/**
 * Llama 3.2's text model. Without an image its layers that look at one are passed over; the table of tokens has eight
 * rows for images, which no text reaches.
 */
const mllama = family({
  types: ['mllama_text_model'],
  features: (c) => {
    const s = sizesOf(c);
    const f = build('mllama', c, s, { norm: rms(c, 1e-5), rope: ropeOf(c, s, { theta: 5e5 }), mlp: () => gated(c) });
    const seeing = imageLayers(c);
    const nothing: Layer = { mixer: { kind: 'none' }, mlp: { kind: 'none' } };
    return { ...f, layers: f.layers.map((layer, i) => (seeing.includes(i) ? nothing : layer)) };
  },
  names: {
    ...LLAMA_NAMES,
    embed: { name: 'model.embed_tokens', rows: (t) => t.narrow(0, 0, t.shape[0] - 8) },
  },
  ignored: (c) => new RegExp(`(^|\\.)layers\\.(${imageLayers(c).join('|') || 'none'})\\.`),
  wrappers: {
    types: ['mllama'],
    prefixes: ['language_model.model.', 'model.language_model.'],
    ignored: /(^|\.)(vision_model|multi_modal_projector)\./,
    unsaid: 'mllama_text_model',
  },
});
const imageLayers = (c: Config): readonly number[] =>
  c.has('cross_attention_layers') ? c.numbers('cross_attention_layers') : [3, 8, 13, 18, 23, 28, 33, 38];

const bitnet = family({
  types: ['bitnet'],
  features: (c) => {
    const s = sizesOf(c);
    const norm = rms(c, 1e-5);
    return build('bitnet', c, s, {
      norm,
      rope: ropeOf(c, s),
      attention: () => ({ outNorm: norm }),
      mlp: () => ({ ...gated(c), innerNorm: norm }),
      biases: biasesBy(c, { attention_bias: ATTENTION_BIAS }),
    });
  },
  names: { ...LLAMA_NAMES, outNorm: 'self_attn.attn_sub_norm', innerNorm: 'mlp.ffn_sub_norm' },
  gguf: { architectures: ['bitnet'], names: { outNorm: 'attn_sub_norm', innerNorm: 'ffn_sub_norm' } },
});

export const LLAMA_FAMILIES = [bitnet, llama, mistral, ministral3, arcee, smollm3, granite, llama4, mllama];

// Gemma 1 to 3: norms around both branches with weights stored as differences from one, scaled embeddings, two ropes.
import type { Config } from '../files/config.js';
import { ALL_NORMS, type Features, type NormFeature } from '../decoder/features.js';
import type { RopeFeature } from '../decoder/rope.js';
import {
  ATTENTION_BIAS,
  activationOf,
  biasesBy,
  build,
  full,
  lastFull,
  LLAMA_NAMES,
  layerTypes,
  rms,
  ropeOf,
  type Sizes,
  sizesOf,
  windowsBy,
} from './common.js';
import { family } from './row.js';

const TANH = 'gelu_pytorch_tanh';
const norm = (c: Config): NormFeature => ({ ...rms(c), plusOne: true });
function common(c: Config): { s: Sizes; act: string; biases: ReturnType<typeof biasesBy> } {
  if (c.json.model_type !== 'gemma3_text') c.only('use_bidirectional_attention', false);
  // The first Gemma reads hidden_act, whose "gelu" means the tanh form as well; the later ones read hidden_activation.
  const first = c.json.model_type === 'gemma';
  const named = activationOf(c, first ? 'hidden_act' : 'hidden_activation', TANH);
  const act = first && named === 'gelu' ? TANH : named;
  c.ignore('hidden_act', 'hidden_activation');
  return { s: sizesOf(c), act, biases: biasesBy(c, { attention_bias: ATTENTION_BIAS }) };
}
const softcap = (c: Config, name: string): number | undefined => c.optional(name);

const gemma = family({
  types: ['gemma'],
  features: (c) => {
    const { s, act, biases } = common(c);
    return build('gemma', c, s, {
      norm: norm(c),
      rope: ropeOf(c, s),
      mlp: () => ({ kind: 'dense', inner: c.count('intermediate_size'), gated: true, activation: act }),
      tied: true,
      biases,
      more: { embedFactor: Math.sqrt(s.hidden) },
    });
  },
  names: LLAMA_NAMES,
  gguf: { architectures: ['gemma'], oneAdded: true },
});

function later(c: Config, kind: 'gemma2' | 'gemma3' | 'vaultgemma'): Features {
  const { s, act, biases } = common(c);
  const hidden = c.optional('_sliding_window_pattern');
  const period = c.optional('sliding_window_pattern') ?? hidden ?? 6;
  const rule =
    kind === 'gemma3' ? lastFull(period) : (i: number): string => (i % 2 === 0 ? 'sliding_attention' : full());
  const types = layerTypes(c, s.layers, rule);
  const bothWays = c.flag('use_bidirectional_attention', false);
  // A window that looks both ways is divided between them.
  const window = c.optional('sliding_window');
  const side = bothWays && window !== undefined ? Math.floor(window / 2) + 1 : window;
  const windows = windowsBy(c, types, side);
  const n = norm(c);
  const nested = kind === 'gemma3';
  // Sliding layers turn by a rope of their own; older files give its base alone.
  const rope = (layerType: string, base: string, unsaid: number): RopeFeature =>
    ropeOf(c, s, nested ? { layerType, apart: true, within: true, theta: c.optional(base) ?? unsaid } : {});
  const ropes = {
    full_attention: rope('full_attention', 'rope_theta', 1e6),
    sliding_attention: rope('sliding_attention', 'rope_local_base_freq', 1e4),
  };
  // Gemma 3's attention has no cap, whatever its config carries on from Gemma 2.
  const given = softcap(c, 'attn_logit_softcapping');
  const cap = kind === 'gemma3' ? undefined : given;
  const logitCap = softcap(c, 'final_logit_softcapping');
  c.ignore('cache_implementation');
  return build(kind, c, s, {
    norm: n,
    attention: (i) => ({
      rope: nested ? ropes[types[i] as keyof typeof ropes] : ropes.full_attention,
      window: windows[i],
      scale: 1 / Math.sqrt(c.number('query_pre_attn_scalar', 256)),
      ...(cap !== undefined && { softcap: cap }),
      ...(kind === 'gemma3' && { qkNorm: { norm: n, over: 'head' as const } }),
    }),
    mlp: () => ({ kind: 'dense', inner: c.count('intermediate_size'), gated: true, activation: act }),
    tied: true,
    biases,
    more: {
      ...(kind !== 'vaultgemma' && { norms: ALL_NORMS }),
      embedFactor: Math.sqrt(s.hidden),
      ...(bothWays && { bothWays }),
      ...(logitCap !== undefined && { logitSoftcap: logitCap }),
    },
  });
}
export const GEMMA_NAMES = {
  ...LLAMA_NAMES,
  afterMixer: 'post_attention_layernorm',
  beforeMlp: 'pre_feedforward_layernorm',
  afterMlp: 'post_feedforward_layernorm',
};
const gemma2 = family({
  types: ['gemma2', 'vaultgemma'],
  features: (c) => later(c, c.json.model_type === 'vaultgemma' ? 'vaultgemma' : 'gemma2'),
  names: GEMMA_NAMES,
  gguf: { architectures: ['gemma2'], oneAdded: true },
});
const gemma3 = family({
  types: ['gemma3_text'],
  features: (c) => later(c, 'gemma3'),
  names: GEMMA_NAMES,
  wrappers: {
    types: ['gemma3'],
    prefixes: ['model.language_model.', 'language_model.model.'],
    ignored: /(vision_tower|multi_modal_projector)\./,
  },
  gguf: { architectures: ['gemma3', 'gemma-embedding'], oneAdded: true, ignored: /^dense_[23]\./ },
});

export const GEMMA_FAMILIES = [gemma, gemma2, gemma3];

// GPT-OSS: sinks, windows on every other layer, experts with biases and clamped gates. OpenAI's privacy filter: the
// same layers, which look both ways within their windows and sort tokens.
import type { Tensor } from '../../tensor/tensor.js';
import type { Features } from '../decoder/features.js';
import type { Config } from '../files/config.js';
import type { Place } from '../decoder/weights.js';
import {
  ATTENTION_BIAS,
  biasesBy,
  build,
  experts,
  full,
  LLAMA_NAMES,
  layerTypes,
  rms,
  ropeOf,
  sizesOf,
  windowsBy,
} from './common.js';
import { family } from './row.js';

/** Every second row of matrices, from one or the other on. */
const even = (t: Tensor, at: 0 | 1): Tensor => {
  const [e, n, ...rest] = t.shape;
  return t
    .reshape([e, n / 2, 2, ...rest])
    .narrow(2, at, 1)
    .reshape([e, n / 2, ...rest]);
};
/** The first or the second half of the rows of matrices. */
const half = (t: Tensor, at: 0 | 1): Tensor => t.narrow(1, (at * t.shape[1]) / 2, t.shape[1] / 2);
/** In floats the matrices are turned round, in blocks of 4-bit floats they are not. */
function ossExperts(name: string, rows?: (t: Tensor) => Tensor): readonly Place[] {
  const at = `mlp.experts.${name}`;
  const more = { bare: true, ...(rows && { rows }) };
  return [
    { name: at, transposed: true, ...more },
    { name: `${at}_blocks`, bias: `${at}_bias`, ...more },
  ];
}
const OSS_ROPE = { rope_type: 'yarn', factor: 32, truncate: false, original_max_position_embeddings: 4096 };
function ossFeatures(c: Config, kind: 'gpt_oss' | 'openai_privacy_filter'): Features {
  const bothWays = kind === 'openai_privacy_filter';
  c.ignore('initial_context_length');
  const s = sizesOf(c);
  const types = layerTypes(c, s.layers, (i) => (bothWays || i % 2 === 0 ? 'sliding_attention' : full()));
  const side = c.optional('sliding_window');
  // A token that looks both ways sees so many before and behind it, besides itself.
  const windows = windowsBy(c, types, bothWays && side !== undefined ? side + 1 : side);
  c.ignore('swiglu_limit', 'experts_per_token');
  c.only('swiglu_limit', 7);
  return build(kind, c, s, {
    norm: rms(c, 1e-5),
    rope: ropeOf(c, s, { theta: 150_000, unsaid: OSS_ROPE, interleaved: bothWays }),
    attention: (i) => ({ window: windows[i], sinks: true }),
    mlp: () =>
      experts(c, {
        count: c.count('num_local_experts', undefined, 1),
        chosen: c.count('num_experts_per_tok', undefined, 1),
        inner: c.count('intermediate_size'),
        score: 'logits',
        weights: 'softmax',
        clamped: { limit: 7, alpha: 1.702 },
      }),
    biases: [
      ...biasesBy(c, { attention_bias: ATTENTION_BIAS }, { attention_bias: true }),
      ...(['router', 'expertGate', 'expertUp', 'expertDown'] as const),
    ],
    ...(bothWays && { more: { bothWays } }),
  });
}
const OSS_NAMES = {
  ...LLAMA_NAMES,
  sinks: { name: 'self_attn.sinks', bare: true },
  router: 'mlp.router',
  expertDown: ossExperts('down_proj'),
};
export const gptOss = family({
  types: ['gpt_oss'],
  features: (c) => ossFeatures(c, 'gpt_oss'),
  names: {
    ...OSS_NAMES,
    expertGate: ossExperts('gate_up_proj', (t) => even(t, 0)),
    expertUp: ossExperts('gate_up_proj', (t) => even(t, 1)),
  },
  gguf: { architectures: ['gpt-oss'], names: { beforeMlp: 'post_attention_norm', sinks: 'attn_sinks' } },
});

export const privacyFilter = family({
  types: ['openai_privacy_filter'],
  features: (c) => ossFeatures(c, 'openai_privacy_filter'),
  names: {
    ...OSS_NAMES,
    expertGate: ossExperts('gate_up_proj', (t) => half(t, 0)),
    expertUp: ossExperts('gate_up_proj', (t) => half(t, 1)),
  },
});

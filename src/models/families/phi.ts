// Phi 1 to 4 and the mixture Phi-3.5-MoE.
import { UnsupportedError } from '../../base/errors.js';
import type { Config } from '../files/config.js';
import type { NormFeature } from '../decoder/features.js';
import type { RopeFeature } from '../decoder/rope.js';
import {
  ATTENTION_BIAS,
  activationOf,
  biasesBy,
  build,
  expertNames,
  experts,
  fusedGateUp,
  fusedQkv,
  gated,
  layerNorm,
  LLAMA_NAMES,
  rms,
  ropeOf,
  sameWindow,
  sizesOf,
  UNGATED_BIAS,
  ungated,
} from './common.js';
import { family } from './row.js';

const phi = family({
  types: ['phi'],
  features: (c) => {
    const s = sizesOf(c);
    const norm = layerNorm(c, 'layer_norm_eps');
    const qk = c.flag('qk_layernorm', false);
    return build('phi', c, s, {
      norm,
      rope: ropeOf(c, s, { partial: 0.5 }),
      attention: () => (qk ? { qkNorm: { norm, over: 'head' } } : {}),
      mlp: () => ungated(c.count('intermediate_size', 4 * s.hidden), activationOf(c, 'hidden_act', 'gelu_new')),
      biases: [...ATTENTION_BIAS, ...UNGATED_BIAS, 'head'],
      more: { parallel: 'shared' },
    });
  },
  names: {
    ...LLAMA_NAMES,
    finalNorm: 'model.final_layernorm',
    o: 'self_attn.dense',
    qNorm: 'self_attn.q_layernorm',
    kNorm: 'self_attn.k_layernorm',
    up: 'mlp.fc1',
    down: 'mlp.fc2',
  },
  gguf: { architectures: ['phi2'] },
});

const phi3 = family({
  types: ['phi3'],
  features: (c) => {
    c.ignore('attention_bias');
    const s = sizesOf(c);
    const windows = sameWindow(c, s.layers);
    return build('phi3', c, s, {
      norm: rms(c, 1e-5),
      rope: ropeOf(c, s, { partial: 1 }),
      attention: (i) => ({ window: windows[i] }),
      mlp: () => gated(c),
    });
  },
  names: { ...LLAMA_NAMES, ...fusedQkv('self_attn.qkv_proj'), ...fusedGateUp('mlp.gate_up_proj') },
  gguf: { architectures: ['phi3'], names: { ...fusedQkv('attn_qkv'), ...fusedGateUp('ffn_up') } },
});

/** The short factors hold at every length; cosines and sines have a factor for each side of the border. */
function phimoeRope(c: Config, rope: RopeFeature): RopeFeature {
  if (rope.type === 'default') return rope;
  if (rope.type !== 'longrope')
    throw new UnsupportedError(`${c.where}: rope type ${rope.type}; this family has default and longrope`);
  const r = (c.inner('rope_parameters') ?? c.inner('rope_scaling')) as Config;
  return {
    ...rope,
    longFactors: rope.shortFactors,
    attentionFactor: r.number('short_mscale'),
    longAttentionFactor: r.number('long_mscale'),
  };
}
const phimoe = family({
  types: ['phimoe'],
  features: (c) => {
    const biases = biasesBy(c, { attention_bias: ATTENTION_BIAS, lm_head_bias: ['head'] });
    c.ignore('num_experts_per_tok');
    c.only('num_experts_per_tok', 2);
    const s = sizesOf(c);
    const windows = sameWindow(c, s.layers);
    const norm: NormFeature = { ...rms(c, 1e-5), kind: 'layer', bias: true };
    return build('phimoe', c, s, {
      norm,
      rope: phimoeRope(c, ropeOf(c, s, { theta: 1e6 })),
      attention: (i) => ({ window: windows[i] }),
      mlp: () =>
        experts(c, {
          count: c.count('num_local_experts', undefined, 1),
          chosen: 2,
          inner: c.count('intermediate_size'),
          score: 'logits',
          weights: 'kept',
          sparseMixer: c.number('router_jitter_noise', 0.01),
        }),
      biases,
    });
  },
  names: { ...LLAMA_NAMES, ...expertNames('block_sparse_moe', ['w1', 'w3', 'w2']) },
  gguf: { architectures: ['phimoe'] },
});

export const PHI_FAMILIES = [phi, phi3, phimoe];

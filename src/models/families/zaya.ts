// ZAYA: attention over convolved queries and keys, and mixtures of which one expert answers, chosen by a router that is
// a net and reads what the layer's before read.
import { FormatError } from '../../base/errors.js';
import type { Config, Json } from '../files/config.js';
import type { ConvolvedAttention, Experts, Features } from '../decoder/features.js';
import type { RopeFeature } from '../decoder/rope.js';
import type { Role } from '../decoder/roles.js';
import { ATTENTION_BIAS, biasesBy, build, experts, expertNames, layerTypes, LLAMA_NAMES, rms } from './common.js';
import { ropeOf, sizesOf, type Sizes } from './common.js';
import { family } from './row.js';

const KINDS = ['hybrid', 'hybrid_sliding'] as const;
const ROPES: Json = {
  hybrid: { rope_type: 'default', rope_theta: 5_000_000, partial_rotary_factor: 0.5 },
  hybrid_sliding: { rope_type: 'default', rope_theta: 10_000, partial_rotary_factor: 0.5 },
};
const ROUTER_BIAS: readonly Role[] = ['routerIn', 'routerFirst', 'routerSecond'];

function mixerOf(c: Config, s: Sizes): (i: number) => ConvolvedAttention {
  const given = layerTypes(c, s.layers, () => 'hybrid');
  c.onlyKinds('layer_types', given, KINDS, s.layers);
  const window = c.optional('sliding_window');
  if (given.includes('hybrid_sliding') && !window)
    throw new FormatError(`${c.where}: layers slide but sliding_window is ${window === 0 ? '0' : 'not given'}`);
  const [whole, slid] = KINDS.map(
    (layerType): RopeFeature => ropeOf(c, s, { layerType, apart: true, within: true, unsaid: ROPES, partial: 1 }),
  );
  if ((s.kvHeads * s.headDim) % 2 !== 0)
    throw new FormatError(`${c.where}: ${s.kvHeads} key heads of ${s.headDim} numbers have no halves`);
  const widths = [c.count('cca_time0', 2, 1), c.count('cca_time1', 2, 1)] as const;
  const biased = c.flag('attention_bias', false);
  return (i) => {
    const slides = given[i] === 'hybrid_sliding';
    return {
      ...{ kind: 'convolved', widths, biased },
      attention: {
        ...{ kind: 'attention', heads: s.heads, kvHeads: s.kvHeads, headDim: s.headDim },
        scale: 1 / Math.sqrt(s.headDim),
        rope: slides ? slid : whole,
        ...(slides && { window }),
      },
    };
  };
}
function features(c: Config): Features {
  const s = sizesOf(c);
  const norm = rms(c, 1e-5);
  const width = c.count('router_hidden_size', undefined, 1);
  c.only('num_experts_per_tok', 1);
  const mixture = (i: number): Experts =>
    experts(c, {
      count: c.count('num_experts', undefined, 1),
      idle: { count: 1, answer: 'zeros' },
      chosen: 1,
      inner: c.count('moe_intermediate_size', undefined, 1),
      score: 'softmax',
      choiceBias: true,
      weights: 'kept',
      deepRouter: { width, eps: norm.eps, takes: i > 0, leaves: i < s.layers - 1 },
    });
  return build('zaya', c, s, {
    norm,
    mixer: mixerOf(c, s),
    mlp: mixture,
    tied: true,
    biases: [...ROUTER_BIAS, ...biasesBy(c, { attention_bias: ATTENTION_BIAS, lm_head_bias: ['head'] })],
    more: { shifted: true },
  });
}

const bare = (name: string): { readonly name: string; readonly bare: true } => ({ name, bare: true });
/** What is done to a branch's answer and to what it is added to. */
const shiftsOf = (branch: 'mixer' | 'mlp', at: string) => ({
  [`${branch}Shift`]: bare(`${at}.hidden_states_bias`),
  [`${branch}Scale`]: bare(`${at}.hidden_states_scale`),
  [`${branch}ResidualShift`]: bare(`${at}.residual_bias`),
  [`${branch}Residual`]: bare(`${at}.residual_scale`),
});
const zaya = family({
  types: ['zaya'],
  features,
  names: {
    ...LLAMA_NAMES,
    ...expertNames('mlp'),
    embedShift: bare('model.input_hidden_states_bias'),
    embedScale: bare('model.input_hidden_states_scale'),
    ...shiftsOf('mixer', 'post_attention_residual_scale'),
    ...shiftsOf('mlp', 'post_mlp_residual_scale'),
    q: 'self_attn.qkv_proj.q_proj',
    k: 'self_attn.qkv_proj.k_proj',
    v: 'self_attn.qkv_proj.v_proj_current',
    lateValue: 'self_attn.qkv_proj.v_proj_delayed',
    conv: 'self_attn.qkv_proj.conv_qk_depthwise',
    convByHead: 'self_attn.qkv_proj.conv_qk_grouped',
    keyScale: bare('self_attn.qk_norm.temp'),
    routerIn: 'mlp.gate.down_proj',
    routerCarry: bare('mlp.gate.router_states_scale'),
    routerNorm: 'mlp.gate.router_mlp.norm',
    routerFirst: 'mlp.gate.router_mlp.fc1',
    routerSecond: 'mlp.gate.router_mlp.fc2',
    router: 'mlp.gate.router_mlp.out_proj',
    choiceBias: bare('mlp.gate.balancing_biases'),
  },
});
export const ZAYA_FAMILIES = [zaya];

// Mixtures whose attention differs between full layers and those with windows: Laguna and MiMo.
import { FormatError, UnsupportedError } from '../../base/errors.js';
import type { Config, Json } from '../files/config.js';
import type { Attention, Experts } from '../decoder/features.js';
import type { RopeFeature } from '../decoder/rope.js';
import {
  ATTENTION_BIAS,
  biasesBy,
  build,
  eitherKind,
  expertNames,
  experts,
  full,
  gated,
  LLAMA_NAMES,
  layerTypes,
  QKV_BIAS,
  rms,
  ropeOf,
  type Sizes,
  sizesOf,
  sparseLayers,
  windowsBy,
} from './common.js';
import { family } from './row.js';

type ByKind = Readonly<Record<'full_attention' | 'sliding_attention', Json>>;
/** A rope for each kind of layers, as the config nests them or as the family has them. */
function ropesBy(c: Config, s: Sizes, unsaid: ByKind, share: number): readonly [full: RopeFeature, slid: RopeFeature] {
  const of = (layerType: keyof ByKind): RopeFeature => {
    // Ropes that are stretched turn whole heads where nothing is said.
    const type = (c.json.rope_parameters as Json | undefined)?.[layerType]?.rope_type ?? 'default';
    const partial = type === 'default' ? share : 1;
    return ropeOf(c, s, { layerType, apart: true, within: true, unsaid, partial });
  };
  return [of('full_attention'), of('sliding_attention')];
}

const LAGUNA_ROPES: ByKind = {
  full_attention: { rope_type: 'default', rope_theta: 500_000, partial_rotary_factor: 0.5 },
  sliding_attention: { rope_type: 'default', rope_theta: 10_000, partial_rotary_factor: 1 },
};
/** One number a head, or one for each of its own, opens what attention answers. */
function lagunaGate(c: Config): NonNullable<Attention['gated']> {
  const said = c.get('gating') ?? true;
  if (said === true || said === 'per-head') return 'softplus by head';
  if (said === 'per-element') return 'softplus';
  throw new UnsupportedError(
    `${c.where}: gating is ${JSON.stringify(said)}; served are true, "per-head", "per-element"`,
  );
}
function lagunaExperts(c: Config): Experts {
  c.only('moe_apply_router_weight_on_input', false);
  const cap = c.number('moe_router_logit_softcapping', 0);
  return experts(c, {
    count: c.count('num_experts', 256, 1),
    chosen: c.count('num_experts_per_tok', 8, 1),
    inner: c.count('moe_intermediate_size', 512, 1),
    ...(cap > 0 && { cap }),
    score: 'sigmoid',
    choiceBias: true,
    weights: 'normalised',
    factor: c.number('moe_routed_scaling_factor', 1),
    shared: { inner: c.count('shared_expert_intermediate_size', 512, 1) },
  });
}
const laguna = family({
  types: ['laguna'],
  features: (c) => {
    const s = sizesOf(c);
    const heads = c.has('num_attention_heads_per_layer')
      ? c.numbers('num_attention_heads_per_layer', s.layers)
      : Array<number>(s.layers).fill(s.heads);
    const odd = heads.find((n) => n % s.kvHeads !== 0);
    if (odd !== undefined)
      throw new FormatError(`${c.where}: num_attention_heads_per_layer: ${odd} heads of ${s.kvHeads} key heads`);
    const windows = windowsBy(c, layerTypes(c, s.layers, full), c.optional('sliding_window'));
    const ropes = ropesBy(c, s, LAGUNA_ROPES, 1);
    const sparse = sparseLayers(c, s.layers, (i) => i > 0);
    const mixture = lagunaExperts(c);
    eitherKind(c);
    const norm = rms(c);
    const gate = lagunaGate(c);
    return build('laguna', c, s, {
      norm,
      attention: (i) => ({
        heads: heads[i],
        rope: ropes[windows[i] === undefined ? 0 : 1],
        window: windows[i],
        qkNorm: { norm, over: 'head' },
        gated: gate,
      }),
      mlp: (i) => (sparse(i) ? mixture : gated(c)),
      biases: biasesBy(c, { attention_bias: ATTENTION_BIAS }),
    });
  },
  names: {
    ...LLAMA_NAMES,
    ...expertNames('mlp'),
    sharedGate: ['mlp.shared_expert.gate_proj', 'mlp.shared_experts.gate_proj'],
    sharedUp: ['mlp.shared_expert.up_proj', 'mlp.shared_experts.up_proj'],
    sharedDown: ['mlp.shared_expert.down_proj', 'mlp.shared_experts.down_proj'],
    qGate: 'self_attn.g_proj',
    choiceBias: [
      { name: 'mlp.experts.e_score_correction_bias', bare: true },
      { name: 'mlp.gate.e_score_correction_bias', bare: true },
    ],
  },
  gguf: { architectures: ['laguna'], names: { qGate: 'attn_gate' } },
});

const MIMO_ROPES: ByKind = {
  full_attention: { rope_type: 'default', rope_theta: 5_000_000, partial_rotary_factor: 0.334 },
  sliding_attention: { rope_type: 'default', rope_theta: 10_000, partial_rotary_factor: 0.334 },
};
/** Layers with windows have twice as many key heads, and sinks; values are narrower than keys. */
const mimo = family({
  types: ['mimo_v2_flash'],
  features: (c) => {
    const s = sizesOf(c);
    const types = layerTypes(c, s.layers, (i) => (i === 0 || (i + 1) % 6 === 0 ? full() : 'sliding_attention'));
    const windows = windowsBy(c, types, c.optional('sliding_window'));
    const valueDim = c.count('v_head_dim', 128, 1);
    if (valueDim > s.headDim)
      throw new UnsupportedError(
        `${c.where}: v_head_dim is ${valueDim}; values wider than keys (${s.headDim}) are not served`,
      );
    const valueFactor = c.optional('attention_value_scale');
    const ropes = ropesBy(c, s, MIMO_ROPES, 0.334);
    const sparse = sparseLayers(c, s.layers, (i) => i > 0);
    const [groups, kept] = [c.optional('n_group') ?? 1, c.count('topk_group', 1, 1)];
    const mixture = experts(c, {
      count: c.count('n_routed_experts', undefined, 1),
      chosen: c.count('num_experts_per_tok', undefined, 1),
      inner: c.count('moe_intermediate_size', undefined, 1),
      score: 'sigmoid',
      choiceBias: true,
      ...(groups > 1 && { groups: { count: groups, kept, worth: 'two best' } as const }),
      weights: c.flag('norm_topk_prob', true) ? 'normalised' : 'kept',
      sumGuard: { add: 1e-20 },
      factor: c.optional('routed_scaling_factor') ?? 1,
    });
    eitherKind(c);
    return build('mimo_v2_flash', c, s, {
      norm: rms(c),
      attention: (i) => ({
        ...(windows[i] !== undefined && { window: windows[i], sinks: true, kvHeads: 2 * s.kvHeads }),
        rope: ropes[windows[i] === undefined ? 0 : 1],
        ...(valueDim < s.headDim && { valueDim }),
        ...(valueFactor !== undefined && { valueFactor }),
      }),
      mlp: (i) => (sparse(i) ? mixture : gated(c)),
      biases: biasesBy(c, { attention_bias: QKV_BIAS }),
    });
  },
  names: {
    ...LLAMA_NAMES,
    ...expertNames('mlp'),
    choiceBias: { name: 'mlp.gate.e_score_correction_bias', bare: true },
    sinks: [
      { name: 'self_attn.attention_sink_bias', bare: true },
      { name: 'self_attn.sinks', bare: true },
    ],
  },
  ignored: () => /^model\.mtp\./,
  gguf: { architectures: ['mimo2'] },
});

export const WINDOWED_MIXTURES = [laguna, mimo];

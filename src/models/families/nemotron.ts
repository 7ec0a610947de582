// Nemotron-H: Mamba 2, attention, a feed-forward part or experts, one of them a layer.
import { FormatError } from '../../base/errors.js';
import type { Config } from '../files/config.js';
import type { Experts, Mamba2, Mlp, NormFeature } from '../decoder/features.js';
import { activationOf, biasesBy, build, checked, expertNames, firstCount, ungated } from './common.js';
import { MAMBA_NAMES, BACKBONE, STATE_BIAS, noEffect, attentionOf } from './mamba-parts.js';
import { family } from './row.js';

const BLOCKS: Readonly<Record<string, string>> = {
  ...{ M: 'linear_attention', E: 'moe', '*': 'full_attention', '-': 'mlp' },
  ...{ mamba: 'linear_attention', attention: 'full_attention' },
};
function blockTypes(c: Config): readonly string[] {
  const pattern = c.has('hybrid_override_pattern') ? [...c.text('hybrid_override_pattern')] : [];
  const named = ['layers_block_type', 'layer_types'].find((n) => c.has(n));
  const types = (named ? c.texts(named) : pattern).map((t) => BLOCKS[t] ?? t);
  if (types.length === 0) throw new FormatError(`${c.where}: layers_block_type is missing`);
  c.onlyKinds(named ?? 'hybrid_override_pattern', types, [...new Set(Object.values(BLOCKS))]);
  return types;
}
function nemotronExperts(c: Config, act: string): Experts {
  const groups = c.count('n_group', 1, 1);
  const latent = c.optional('moe_latent_size');
  return {
    kind: 'experts',
    activation: act,
    ungated: true,
    count: firstCount(c, 'n_routed_experts', 'num_local_experts'),
    chosen: c.count('num_experts_per_tok', 2, 1),
    inner: c.count('moe_intermediate_size', undefined, 1),
    ...(latent !== undefined && { latent }),
    score: 'sigmoid',
    choiceBias: true,
    ...(groups > 1 && { groups: { count: groups, kept: c.count('topk_group', 1, 1), worth: 'two best' } as const }),
    weights: c.flag('norm_topk_prob', true) ? 'normalised' : 'kept',
    sumGuard: { add: 1e-20 },
    factor: c.number('routed_scaling_factor', 1),
    shared: { inner: c.count('moe_shared_expert_intermediate_size', undefined, 1) },
  };
}
const NEMOTRON_BIASES = {
  use_bias: STATE_BIAS,
  use_conv_bias: ['stateConv'] as const,
  mlp_bias: ['up', 'down', 'sharedUp', 'sharedDown', 'expertsIn', 'expertsOut'] as const,
};
export const nemotronH = family({
  types: ['nemotron_h'],
  features: (c) => {
    const types = blockTypes(c);
    c.ignore('num_hidden_layers', 'mtp_layers_block_type', 'mtp_hybrid_override_pattern', 'num_nextn_predict_layers');
    // transformers reads none of these.
    c.ignore('attention_bias', 'mamba_proj_bias', 'sliding_window', 'n_shared_experts', 'moe_shared_expert_overlap');
    c.ignore('tie_word_embeddings', 'expand', 'time_step_limit', 'rms_norm_eps', 'norm_eps', 'mamba_dt_limit');
    c.ignore('intermediate_size', 'moe_intermediate_size', 'moe_shared_expert_intermediate_size', 'moe_latent_size');
    c.ignore(
      'n_routed_experts',
      'num_experts_per_tok',
      'routed_scaling_factor',
      'n_group',
      'topk_group',
      'norm_topk_prob',
    );
    noEffect(c);
    const s = checked(c, {
      hidden: c.count('hidden_size', undefined, 1),
      layers: types.length,
      heads: c.count('num_attention_heads', undefined, 1),
      kvHeads: c.count('num_key_value_heads', undefined, 1),
      headDim: c.count('head_dim', 128, 1),
      maxPositions: c.count('max_position_embeddings', 4096, 1),
    });
    c.only('attention_head_dim', s.headDim);
    const norm: NormFeature = { kind: 'rms', eps: c.number('layer_norm_epsilon', 1e-5) };
    const groups = c.count('n_groups', 8, 1);
    const mamba: Mamba2 = {
      kind: 'mamba2',
      heads: c.count('mamba_num_heads', undefined, 1),
      headDim: c.count('mamba_head_dim', 64, 1),
      stateDim: c.count('ssm_state_size', 128, 1),
      groups,
      width: c.count('conv_kernel', 4, 1),
      eps: norm.eps,
      activation: activationOf(c, 'mamba_hidden_act', 'silu'),
      normGroups: groups,
      limits: [c.number('time_step_min', 0.001), Infinity],
    };
    const act = activationOf(c, 'mlp_hidden_act', 'relu2');
    const mlp = (i: number): Mlp =>
      types[i] === 'moe'
        ? nemotronExperts(c, act)
        : types[i] === 'mlp'
          ? ungated(c.count('intermediate_size', undefined, 1), act)
          : { kind: 'none' };
    return build('nemotron_h', c, s, {
      norm,
      mixer: (i) =>
        types[i] === 'linear_attention' ? mamba : types[i] === 'full_attention' ? attentionOf(s) : { kind: 'none' },
      mlp,
      biases: biasesBy(c, NEMOTRON_BIASES, { use_conv_bias: true }),
      more: { tied: false },
    });
  },
  names: {
    ...BACKBONE,
    ...MAMBA_NAMES('mixer'),
    ...expertNames('mixer'),
    expertUp: 'mixer.experts.{e}.up_proj',
    expertDown: 'mixer.experts.{e}.down_proj',
    choiceBias: { name: 'mixer.gate.e_score_correction_bias', bare: true },
    beforeMlp: 'norm',
    q: 'mixer.q_proj',
    k: 'mixer.k_proj',
    v: 'mixer.v_proj',
    o: 'mixer.o_proj',
    up: 'mixer.up_proj',
    down: 'mixer.down_proj',
    sharedUp: 'mixer.shared_experts.up_proj',
    sharedDown: 'mixer.shared_experts.down_proj',
    expertsIn: 'mixer.fc1_latent_proj',
    expertsOut: 'mixer.fc2_latent_proj',
  },
  ignored: () => /^mtp\./,
  gguf: {
    architectures: ['nemotron_h', 'nemotron_h_moe'],
    names: { beforeMlp: 'attn_norm' },
    writtenAs: (f) => (f.layers.some(({ mlp }) => mlp.kind === 'experts') ? 'nemotron_h_moe' : 'nemotron_h'),
  },
});

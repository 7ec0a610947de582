// Decoders with Mamba layers: Mamba and Mamba 2 themselves, and those that mix them with attention (Granite 4, Bamba,
// Falcon-H1, Jamba; Nemotron-H and Zamba 2 in files of their own).
import { FormatError } from '../../base/errors.js';
import type { Config } from '../files/config.js';
import type { Experts, Features, Mamba1, Mamba2, Mixer, NormFeature } from '../decoder/features.js';
import {
  ATTENTION_BIAS,
  activationOf,
  biasesBy,
  build,
  expertNames,
  experts,
  firstCount,
  fusedGateUp,
  gated,
  FULL_OR_LINEAR,
  layerTypes,
  LLAMA_NAMES,
  MLP_BIAS,
  rms,
  ropeOf,
  sizesOf,
} from './common.js';
import { MATRIX_RATES } from './gguf.js';
import { GRANITE_NAMES, graniteExperts, graniteFactors } from './llama.js';
import {
  MAMBA_NAMES,
  MAMBA1_NAMES,
  BACKBONE,
  FEED_FORWARD,
  STATE_BIAS,
  limitsOf,
  noEffect,
  hybridMamba,
  attentionOf,
  NO_MLP,
} from './mamba-parts.js';
import { nemotronH } from './nemotron.js';
import { family } from './row.js';
import { zamba, zamba2 } from './zamba.js';

// ---- Granite 4, Bamba ----

const MAMBA_FLAGS = { mamba_proj_bias: STATE_BIAS, mamba_conv_bias: ['stateConv'] as const };

function graniteHybrid(c: Config): Features {
  const biases = biasesBy(c, { attention_bias: ATTENTION_BIAS, ...MAMBA_FLAGS }, { mamba_conv_bias: true });
  const s = sizesOf(c);
  const norm = rms(c);
  const turned = c.text('position_embedding_type', 'nope') === 'rope';
  c.only('position_embedding_type', 'rope', 'nope');
  const rope = ropeOf(c, s);
  c.ignore('normalization_function', 'init_method', 'layers_block_type', 'attn_layer_indices');
  const mamba = hybridMamba(c, norm.eps, c.number('mamba_expand', 2) * s.hidden);
  const types = c.has('layers_block_type')
    ? c.texts('layers_block_type')
    : layerTypes(c, s.layers, () => 'linear_attention');
  const kinds = ['mamba', 'attention', ...FULL_OR_LINEAR];
  c.onlyKinds(c.has('layers_block_type') ? 'layers_block_type' : 'layer_types', types, kinds, s.layers);
  const experts = c.count('num_local_experts', 8) > 0;
  const shared = c.count('shared_intermediate_size', 1024);
  c.ignore('intermediate_size', 'num_experts_per_tok');
  const attention = attentionOf(s, { scale: c.number('attention_multiplier', 1), ...(turned && { rope }) });
  return build('granitemoehybrid', c, s, {
    norm,
    mixer: (i): Mixer => (types[i] === 'mamba' || types[i] === 'linear_attention' ? mamba : attention),
    mlp: () => (experts ? graniteExperts(c, shared) : gated(c, shared)),
    biases,
    more: graniteFactors(c),
  });
}
const granite = family({
  types: ['granitemoehybrid'],
  features: graniteHybrid,
  names: {
    ...GRANITE_NAMES,
    ...MAMBA_NAMES('mamba'),
    ...fusedGateUp('shared_mlp.input_linear'),
    down: 'shared_mlp.output_linear',
  },
  gguf: { architectures: ['granitehybrid'], permuted: ['granitehybrid'], logitsDivided: true },
});

const bamba = family({
  types: ['bamba'],
  features: (c) => {
    const flags = { attention_bias: ATTENTION_BIAS, mlp_bias: MLP_BIAS, ...MAMBA_FLAGS };
    const biases = biasesBy(c, flags, { mamba_conv_bias: true });
    const s = sizesOf(c);
    const norm = rms(c, 1e-5);
    const mamba = hybridMamba(c, norm.eps, c.number('mamba_expand', 2) * s.hidden);
    const attends = c.has('attn_layer_indices') ? c.numbers('attn_layer_indices') : [];
    const rope = ropeOf(c, s, { partial: 0.5 });
    return build('bamba', c, s, {
      norm,
      mixer: (i) => (attends.includes(i) ? attentionOf(s, { rope }) : mamba),
      mlp: () => gated(c),
      biases,
    });
  },
  names: { ...LLAMA_NAMES, ...FEED_FORWARD, ...MAMBA_NAMES('mamba') },
});

// ---- Falcon-H1 ----

/** A list of factors; none where all are one. */
function factorsOf(c: Config, name: string, count: number): readonly number[] | undefined {
  if (!c.has(name)) return undefined;
  const given = c.numbers(name, count);
  return given.every((x) => x === 1) ? undefined : given;
}
const falconH1 = family({
  types: ['falcon_h1'],
  features: (c) => {
    const flags = {
      ...{ attention_bias: ATTENTION_BIAS, mlp_bias: MLP_BIAS, mamba_proj_bias: ['stateIn'] as const },
      ...{ projectors_bias: ['stateOut'] as const, mamba_conv_bias: ['stateConv'] as const },
    };
    const biases = biasesBy(c, flags, { mamba_conv_bias: true });
    const s = sizesOf(c);
    const norm = rms(c, 1e-5);
    const expand = c.number('mamba_expand', 2);
    const normed = c.flag('mamba_rms_norm', false);
    const first = c.flag('mamba_norm_before_gate', true);
    const state = hybridMamba(c, norm.eps, c.optional('mamba_d_ssm') ?? expand * s.hidden);
    const parts = factorsOf(c, 'ssm_multipliers', 5);
    const [gateFactor, outFactor] = factorsOf(c, 'mlp_multipliers', 2) ?? [];
    // Keys times a factor are scores times a factor.
    const scale = c.number('key_multiplier', 1) / Math.sqrt(s.headDim);
    const attention = attentionOf(s, { scale, rope: ropeOf(c, s) });
    const mixer: Mixer = {
      kind: 'beside',
      state: {
        ...state,
        ...(normed
          ? { gating: first ? 'norm first' : 'norm of both', normGroups: state.groups }
          : { gating: 'no norm' }),
        inFactor: c.number('ssm_in_multiplier', 1),
        ...(parts && { partFactors: parts }),
      },
      attention,
      stateFactor: c.number('ssm_out_multiplier', 1),
      inFactor: c.number('attention_in_multiplier', 1),
      outFactor: c.number('attention_out_multiplier', 1),
    };
    return build('falcon_h1', c, s, {
      norm,
      mixer: () => mixer,
      mlp: () => ({ ...gated(c), ...(gateFactor !== undefined && { gateFactor, outFactor }) }),
      biases,
      more: {
        embedFactor: c.number('embedding_multiplier', 1),
        logitFactor: c.number('lm_head_multiplier', 1),
      },
    });
  },
  names: { ...LLAMA_NAMES, ...FEED_FORWARD, ...MAMBA_NAMES('mamba') },
  gguf: { architectures: ['falcon-h1'], names: { beforeMlp: [{ name: 'ffn_norm', bare: true }, 'ffn_norm'] } },
});

// ---- Mamba, Mamba 2, Jamba ----

/** The width that steps come from: a sixteenth of the hidden size where it is left open. */
const rankOf = (c: Config, name: string, hidden: number): number =>
  c.get(name) === undefined || c.get(name) === 'auto' ? Math.ceil(hidden / 16) : c.count(name, undefined, 1);

const jamba = family({
  types: ['jamba'],
  features: (c) => {
    const biases = [
      ...biasesBy(c, { mamba_proj_bias: STATE_BIAS, mamba_conv_bias: ['stateConv'] }, { mamba_conv_bias: true }),
      'stateSteps' as const,
    ];
    const s = sizesOf(c);
    const norm = rms(c);
    noEffect(c);
    c.ignore('layers_block_type', 'layers_num_experts', 'calc_logits_for_entire_prompt');
    const inner = c.number('mamba_expand', 2) * s.hidden;
    const mamba: Mamba1 = {
      kind: 'mamba',
      inner,
      stateDim: c.count('mamba_d_state', 16, 1),
      rank: rankOf(c, 'mamba_dt_rank', s.hidden),
      width: c.count('mamba_d_conv', 4, 1),
      activation: activationOf(c),
      norms: { eps: norm.eps },
    };
    c.only('mamba_inner_layernorms', true);
    const every = (what: string, period: number, offset: number): ((i: number) => boolean) => {
      const [of, from] = [c.count(`${what}_layer_period`, period, 1), c.count(`${what}_layer_offset`, offset)];
      return (i) => i % of === from;
    };
    const [attends, mixed] = [every('attn', 8, 4), every('expert', 2, 1)];
    const count = firstCount(c, 'num_experts', 'num_local_experts');
    const chosen = c.count('num_experts_per_tok', 2, 1);
    const mixture = (): Experts =>
      experts(c, { count, chosen, inner: c.count('intermediate_size'), score: 'softmax', weights: 'kept' });
    return build('jamba', c, s, {
      norm,
      mixer: (i) => (attends(i) ? attentionOf(s) : mamba),
      mlp: (i) => (mixed(i) && count > 1 ? mixture() : gated(c)),
      biases,
    });
  },
  names: {
    ...LLAMA_NAMES,
    ...FEED_FORWARD,
    ...MAMBA1_NAMES('mamba'),
    ...expertNames('feed_forward'),
    router: 'feed_forward.router',
  },
  gguf: { architectures: ['jamba'], names: MATRIX_RATES },
});

const mamba = family({
  types: ['mamba', 'falcon_mamba'],
  features: (c) => {
    noEffect(c);
    const hidden = c.count('hidden_size', undefined, 1);
    const norm: NormFeature = { kind: 'rms', eps: c.number('layer_norm_epsilon', 1e-5) };
    const inner = c.count('intermediate_size', Math.trunc(c.number('expand', 2) * hidden), 1);
    const falcon = c.json.model_type === 'falcon_mamba';
    const mixer: Mamba1 = {
      kind: 'mamba',
      inner,
      stateDim: c.count('state_size', 16, 1),
      rank: rankOf(c, 'time_step_rank', hidden),
      width: c.count('conv_kernel', 4, 1),
      activation: activationOf(c),
      ...(falcon && { norms: { eps: c.number('mixer_rms_eps', 1e-6), weightless: true } }),
    };
    // Fields of the first files.
    c.ignore('d_model', 'd_inner', 'n_layer', 'ssm_cfg', 'rms_norm', 'fused_add_norm', 'pad_vocab_size_multiple');
    const layers = c.count('num_hidden_layers', undefined, 1);
    const sizes = { hidden, layers, heads: 1, kvHeads: 1, headDim: hidden, maxPositions: 2 ** 20 };
    return build(falcon ? 'falcon_mamba' : 'mamba', c, sizes, {
      norm,
      mixer: () => mixer,
      mlp: () => ({ kind: 'none' }),
      tied: true,
      biases: [
        ...biasesBy(c, { use_bias: STATE_BIAS, use_conv_bias: ['stateConv'] }, { use_conv_bias: true }),
        'stateSteps',
      ],
      more: { norms: NO_MLP },
    });
  },
  names: { ...BACKBONE, ...MAMBA1_NAMES('mixer') },
  gguf: { architectures: ['mamba'], names: MATRIX_RATES },
});

const mamba2 = family({
  types: ['mamba2'],
  features: (c) => {
    noEffect(c);
    const hidden = c.count('hidden_size', undefined, 1);
    const heads = c.count('num_heads', undefined, 1);
    const headDim = c.count('head_dim', 64, 1);
    c.ignore('time_step_rank', 'rms_norm', 'norm_before_gate');
    if (c.number('expand', 2) * hidden !== heads * headDim)
      throw new FormatError(`${c.where}: ${heads} heads of ${headDim} are not expand times ${hidden}`);
    const norm: NormFeature = { kind: 'rms', eps: c.number('layer_norm_epsilon', 1e-5) };
    const mixer: Mamba2 = {
      kind: 'mamba2',
      heads,
      headDim,
      stateDim: c.count('state_size', 128, 1),
      groups: c.count('n_groups', 8, 1),
      width: c.count('conv_kernel', 4, 1),
      eps: norm.eps,
      activation: activationOf(c),
      ...limitsOf(c),
    };
    const layers = c.count('num_hidden_layers', undefined, 1);
    const sizes = { hidden, layers, heads, kvHeads: heads, headDim, maxPositions: 2 ** 20 };
    return build('mamba2', c, sizes, {
      norm,
      mixer: () => mixer,
      mlp: () => ({ kind: 'none' }),
      biases: biasesBy(c, { use_bias: STATE_BIAS, use_conv_bias: ['stateConv'] }, { use_conv_bias: true }),
      more: { norms: NO_MLP },
    });
  },
  names: { ...BACKBONE, ...MAMBA_NAMES('mixer') },
  gguf: { architectures: ['mamba2'] },
});

export const MAMBA_FAMILIES = [granite, bamba, falconH1, nemotronH, jamba, mamba, mamba2, zamba, zamba2];

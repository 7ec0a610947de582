// Decoders with Mamba layers: Mamba and Mamba 2 themselves, and those that mix them with attention (Granite 4, Bamba,
// Falcon-H1, Nemotron-H, Jamba, Zamba 2).
import { FormatError, UnsupportedError } from '../../base/errors.js';
import type { Config } from '../config.js';
import type { Attention, Experts, Features, Mamba1, Mamba2, Mixer, Mlp, NormFeature } from '../features.js';
import type { Names, Role } from '../weights.js';
import {
  ATTENTION_BIAS,
  activationOf,
  biasesBy,
  build,
  checked,
  expertNames,
  experts,
  firstCount,
  fusedGateUp,
  gated,
  layerTypes,
  LLAMA_NAMES,
  MLP_BIAS,
  rms,
  ropeOf,
  type Sizes,
  sizesOf,
  ungated,
} from './common.js';
import { MATRIX_RATES } from './gguf.js';
import { GRANITE_NAMES, graniteExperts, graniteFactors } from './llama.js';
import { family } from './row.js';

const MAMBA_NAMES = (at: string): Partial<Names> => ({
  stateIn: `${at}.in_proj`,
  stateConv: `${at}.conv1d`,
  stateDecay: { name: `${at}.A_log`, bare: true },
  stateShift: { name: `${at}.dt_bias`, bare: true },
  stateSkip: { name: `${at}.D`, bare: true },
  stateNorm: `${at}.norm`,
  stateOut: `${at}.out_proj`,
});
/** The first Mamba's. */
const MAMBA1_NAMES = (at: string): Partial<Names> => ({
  ...MAMBA_NAMES(at),
  stateParts: `${at}.x_proj`,
  stateSteps: `${at}.dt_proj`,
  stateStepNorm: `${at}.dt_layernorm`,
  stateKeyNorm: `${at}.b_layernorm`,
  stateQueryNorm: `${at}.c_layernorm`,
});
/** A model of nothing else. */
const BACKBONE: Names = {
  embed: ['backbone.embeddings', 'backbone.embedding'],
  finalNorm: 'backbone.norm_f',
  head: 'lm_head',
  layer: 'backbone.layers.{i}',
  beforeMixer: 'norm',
};
const FEED_FORWARD: Partial<Names> = {
  finalNorm: 'model.final_layernorm',
  beforeMlp: 'pre_ff_layernorm',
  gate: 'feed_forward.gate_proj',
  up: 'feed_forward.up_proj',
  down: 'feed_forward.down_proj',
};
const STATE_BIAS: readonly Role[] = ['stateIn', 'stateOut'];

/** What steps are held within; files write infinity in several ways. */
function limitsOf(c: Config): Pick<Mamba2, 'limits'> {
  const given = c.get('time_step_limit');
  if (given === undefined) return {};
  const bound = (x: unknown): number => {
    if (typeof x === 'number') return x;
    if (/infinity|inf/i.test(JSON.stringify(x))) return Infinity;
    throw new FormatError(`${c.where}: time_step_limit is ${JSON.stringify(given)}, not two numbers`);
  };
  if (!Array.isArray(given) || given.length !== 2)
    throw new FormatError(`${c.where}: time_step_limit is ${JSON.stringify(given)}, not two numbers`);
  const [least, most] = given.map(bound);
  return least === 0 && most === Infinity ? {} : { limits: [least, most] };
}
/** How weights began, and what only kernels ask for. */
const noEffect = (c: Config): void =>
  c.ignore(
    ...['time_step_min', 'time_step_max', 'time_step_floor', 'time_step_scale', 'time_step_init_scheme'],
    ...['rescale_prenorm_residual', 'residual_in_fp32', 'use_mamba_kernels', 'use_mambapy', 'use_associative_scan'],
    ...['mamba_chunk_size', 'chunk_size', 'num_logits_to_keep', 'z_loss_coefficient', 'use_falcon_mambapy'],
    ...['mamba_ssm_cache_dtype', 'mamba_dt_min', 'mamba_dt_max', 'mamba_dt_init_floor'],
  );

/** Mamba 2 under the names that hybrids give its sizes; `inner` is the width of its values. */
function hybridMamba(c: Config, eps: number, inner: number): Mamba2 {
  noEffect(c);
  const heads = c.count('mamba_n_heads', 128, 1);
  const given = c.get('mamba_d_head');
  const headDim = given === undefined || given === 'auto' ? inner / heads : (given as number);
  if (headDim * heads !== inner)
    throw new FormatError(`${c.where}: ${heads} state heads of ${headDim} are not ${inner} wide, as mamba_expand says`);
  return {
    kind: 'mamba2',
    heads,
    headDim,
    stateDim: c.count('mamba_d_state', 256, 1),
    groups: c.count('mamba_n_groups', 1, 1),
    width: c.count('mamba_d_conv', 4, 1),
    eps,
    activation: activationOf(c),
    ...limitsOf(c),
  };
}
const attentionOf = ({ heads, kvHeads, headDim }: Sizes, more: Partial<Attention> = {}): Attention => ({
  kind: 'attention',
  heads,
  kvHeads,
  headDim,
  scale: 1 / Math.sqrt(headDim),
  ...more,
});
const NO_MLP = { beforeMixer: true, afterMixer: false, beforeMlp: false, afterMlp: false } as const;

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
  const experts = c.count('num_local_experts', 8) > 0;
  const shared = c.count('shared_intermediate_size', 1024);
  c.ignore('intermediate_size', 'num_experts_per_tok');
  return build('granitemoehybrid', c, s, {
    norm,
    mixer: (i): Mixer => {
      if (types[i] === 'mamba' || types[i] === 'linear_attention') return mamba;
      if (types[i] !== 'attention' && types[i] !== 'full_attention')
        throw new UnsupportedError(`${c.where}: layer_types holds ${JSON.stringify(types[i])}`);
      return attentionOf(s, { scale: c.number('attention_multiplier', 1), ...(turned && { rope }) });
    },
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

// ---- Nemotron-H ----

const BLOCKS: Readonly<Record<string, string>> = {
  ...{ M: 'linear_attention', E: 'moe', '*': 'full_attention', '-': 'mlp' },
  ...{ mamba: 'linear_attention', attention: 'full_attention' },
};
function blockTypes(c: Config): readonly string[] {
  const pattern = c.has('hybrid_override_pattern') ? [...c.text('hybrid_override_pattern')] : [];
  const named = ['layers_block_type', 'layer_types'].find((n) => c.has(n));
  const types = (named ? c.texts(named) : pattern).map((t) => BLOCKS[t] ?? t);
  if (types.length === 0) throw new FormatError(`${c.where}: layers_block_type is missing`);
  const odd = types.find((t) => !Object.values(BLOCKS).includes(t));
  if (odd !== undefined) throw new UnsupportedError(`${c.where}: layers_block_type holds ${JSON.stringify(odd)}`);
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
const nemotronH = family({
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
    const inner = Math.trunc(c.number('expand', 2) * hidden);
    c.only('intermediate_size', inner);
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

// ---- Zamba 2 ----

function zambaTypes(c: Config): readonly string[] {
  const named = ['layers_block_type', 'layer_types'].find((n) => c.has(n));
  if (!named) throw new FormatError(`${c.where}: layers_block_type is missing`);
  const types = c.texts(named).map((t) => (t === 'mamba' ? 'linear_attention' : t));
  const odd = types.find((t) => t !== 'hybrid' && t !== 'linear_attention');
  if (odd !== undefined) throw new UnsupportedError(`${c.where}: ${named} holds ${JSON.stringify(odd)}`);
  return types;
}
const hybridLayers = (types: readonly string[]): readonly number[] =>
  types.flatMap((t, i) => (t === 'hybrid' ? [i] : []));
const zamba2 = family({
  types: ['zamba2'],
  features: (c) => {
    noEffect(c);
    c.only('use_long_context', false);
    const hidden = c.count('hidden_size', undefined, 1);
    const heads = c.count('num_attention_heads', 32, 1);
    const s = checked(c, {
      ...{ hidden, heads, kvHeads: c.count('num_key_value_heads', heads, 1) },
      headDim: c.optional('attention_head_dim') ?? (2 * hidden) / heads,
      layers: c.count('num_hidden_layers', undefined, 1),
      maxPositions: c.count('max_position_embeddings', 4096, 1),
    });
    c.only('attention_hidden_size', 2 * hidden);
    c.ignore('head_dim', 'kv_channels', 'num_query_groups', 'use_mem_eff_path', 'use_conv_bias');
    const types = zambaTypes(c);
    const hybrid = hybridLayers(types);
    c.only('hybrid_layer_ids', hybrid);
    const stored = hybrid.slice(0, c.count('num_mem_blocks', 1, 1)); // where blocks that are shared lie
    const eps = c.number('rms_norm_eps', 1e-5);
    const stateHeads = c.count('n_mamba_heads', 8, 1);
    const groups = c.count('mamba_ngroups', 1, 1);
    const width = c.number('mamba_expand', 2) * hidden;
    const stateDim = c.optional('mamba_headdim') ?? width / stateHeads;
    if (stateDim * stateHeads !== width)
      throw new FormatError(
        `${c.where}: ${stateHeads} state heads of ${stateDim} are not ${width} wide, as mamba_expand says`,
      );
    const state: Mamba2 = {
      kind: 'mamba2',
      heads: stateHeads,
      headDim: stateDim,
      stateDim: c.count('mamba_d_state', 64, 1),
      ...{ groups, normGroups: groups, width: c.count('mamba_d_conv', 4, 1), eps: 1e-5, activation: 'silu' },
      limits: [c.number('time_step_min', 0.001), Infinity],
    };
    const rope = c.flag('use_mem_rope', false) ? ropeOf(c, s) : undefined;
    if (!rope) c.ignore('rope_parameters', 'rope_theta', 'rope_scaling');
    const inner = c.count('intermediate_size', 4 * hidden, 1);
    const biases = c.flag('add_bias_linear', false);
    const attention = attentionOf(s, { scale: 1 / Math.sqrt(s.headDim / 2), ...(rope && { rope }) });
    const shared = {
      ...{ attention, inner, activation: activationOf(c, 'hidden_act', 'gelu'), biases },
      rank: c.count('adapter_rank', 128, 1),
      attentionAdapters: c.flag('use_shared_attention_adapter', false),
    };
    return build('zamba2', c, s, {
      norm: { kind: 'rms', eps },
      mixer: (i): Mixer => {
        const use = hybrid.indexOf(i);
        // Untied, a layer has a block of its own.
        const at = [i, stored[use % stored.length]].map((n) => `model.layers.${n}.shared_transformer`);
        const block = { ...shared, stored: at, last: `model.layers.${i}.linear`, use };
        return { kind: 'shared', state, eps, ...(use >= 0 && { block }) };
      },
      mlp: () => ({ kind: 'none' }),
      tied: true,
      biases: ['stateConv', ...(biases ? STATE_BIAS : [])],
      more: { norms: { beforeMixer: false, afterMixer: false, beforeMlp: false, afterMlp: false } },
    });
  },
  names: {
    ...LLAMA_NAMES,
    finalNorm: 'model.final_layernorm',
    ...Object.fromEntries(
      Object.entries({ ...MAMBA_NAMES('mamba'), beforeMixer: 'input_layernorm' }).map(([role, where]) => {
        const place = (typeof where === 'string' ? { name: where } : where) as { readonly name: string };
        return [role, [place, { ...place, name: `mamba_decoder.${place.name}` }]];
      }),
    ),
  },
  // Every stored block has the narrow products of all layers that share it.
  ignored: () =>
    /\.shared_transformer\.(self_attn\.linear_[qkv]|feed_forward\.gate_up_proj)_adapter_list\.\d+\.[01]\.weight$/,
});

export const MAMBA_FAMILIES = [granite, bamba, falconH1, nemotronH, jamba, mamba, mamba2, zamba2];

// Zamba and Zamba 2: Mamba layers, with one or a few blocks of attention that several layers share.
import { FormatError } from '../../base/errors.js';
import type { Config } from '../files/config.js';
import type { HeadedMamba, Mamba2, Mixer } from '../decoder/features.js';
import type { Names, Place } from '../decoder/weights.js';
import { activationOf, biasesBy, build, checked, LLAMA_NAMES, ropeOf, type Sizes } from './common.js';
import { MAMBA_NAMES, STATE_BIAS, noEffect, attentionOf } from './mamba-parts.js';
import { family } from './row.js';

function zambaTypes(c: Config): readonly string[] {
  const named = ['layers_block_type', 'layer_types'].find((n) => c.has(n));
  if (!named) throw new FormatError(`${c.where}: layers_block_type is missing`);
  const types = c.texts(named).map((t) => (t === 'mamba' ? 'linear_attention' : t));
  c.onlyKinds(named, types, ['hybrid', 'linear_attention']);
  return types;
}
const hybridLayers = (types: readonly string[]): readonly number[] =>
  types.flatMap((t, i) => (t === 'hybrid' ? [i] : []));
/** A layer with a shared block keeps its Mamba one level further in. */
const zambaNames = (own: Partial<Names>): Names => ({
  ...LLAMA_NAMES,
  finalNorm: 'model.final_layernorm',
  ...Object.fromEntries(
    Object.entries({ ...own, beforeMixer: 'input_layernorm' }).map(([role, where]) => {
      const place = (typeof where === 'string' ? { name: where } : where) as Place;
      const bias = place.bias === undefined ? {} : { bias: `mamba_decoder.${place.bias}` };
      return [role, [place, { ...place, ...bias, name: `mamba_decoder.${place.name}` }]];
    }),
  ),
});
/** Sizes whose heads are of twice the hidden width, where a config does not say. */
function zambaSizes(c: Config, unsaid: number): Sizes {
  const hidden = c.count('hidden_size', undefined, 1);
  const heads = c.count('num_attention_heads', unsaid, 1);
  c.only('attention_hidden_size', 2 * hidden);
  return checked(c, {
    ...{ hidden, heads, kvHeads: c.count('num_key_value_heads', heads, 1) },
    headDim: c.optional('attention_head_dim') ?? (2 * hidden) / heads,
    layers: c.count('num_hidden_layers', undefined, 1),
    maxPositions: c.count('max_position_embeddings', 4096, 1),
  });
}
const NO_NORMS = { beforeMixer: false, afterMixer: false, beforeMlp: false, afterMlp: false } as const;

export const zamba = family({
  types: ['zamba'],
  features: (c) => {
    noEffect(c);
    const s = zambaSizes(c, 16);
    c.ignore('head_dim', 'num_logits_to_keep', 'use_mamba_kernels', 'use_associative_scan');
    const period = c.count('attn_layer_period', 6, 1);
    const offset = c.count('attn_layer_offset', 4);
    const rule = (i: number): boolean => i === 2 || (i > 2 && (i - 3) % period === offset);
    const named = ['layers_block_type', 'layer_types'].some((n) => c.has(n));
    const hybrid = named ? hybridLayers(zambaTypes(c)) : Array.from({ length: s.layers }, (_, i) => i).filter(rule);
    const eps = c.number('rms_norm_eps', 1e-5);
    const inner = c.number('mamba_expand', 2) * s.hidden;
    const heads = c.count('n_mamba_heads', 2, 1);
    if (inner % heads !== 0)
      throw new FormatError(`${c.where}: ${inner} channels of a state do not divide into ${heads} heads`);
    const asked = c.get('mamba_dt_rank');
    const state: HeadedMamba = {
      ...{ kind: 'headed mamba', inner, heads },
      stateDim: c.count('mamba_d_state', 16, 1),
      rank: asked === undefined || asked === 'auto' ? Math.ceil(s.hidden / 16) : c.count('mamba_dt_rank', undefined, 1),
      width: c.count('mamba_d_conv', 4, 1),
      activation: activationOf(c, 'hidden_mamba_act', 'silu'),
    };
    const shared = {
      attention: attentionOf(s, { scale: 1 / Math.sqrt(s.headDim / 2) }),
      ...{ inner: c.count('intermediate_size', 14848, 1), activation: activationOf(c, 'hidden_act', 'gelu') },
      ...{ biases: false, rank: 0, attentionAdapters: false, apart: true },
    };
    return build('zamba', c, s, {
      norm: { kind: 'rms', eps },
      mixer: (i): Mixer => {
        const use = hybrid.indexOf(i);
        const stored = [i, hybrid[0]].map((n) => `model.layers.${n}.shared_transf`);
        const block = { ...shared, stored, last: `model.layers.${i}.linear`, use };
        return { kind: 'shared', state, eps, ...(use >= 0 && { block }) };
      },
      mlp: () => ({ kind: 'none' }),
      tied: true,
      biases: [
        'stateSteps',
        ...biasesBy(c, { mamba_conv_bias: ['stateConv'], mamba_proj_bias: STATE_BIAS }, { mamba_conv_bias: true }),
      ],
      more: { norms: NO_NORMS },
    });
  },
  names: zambaNames({
    ...MAMBA_NAMES('mamba'),
    stateParts: { name: 'mamba.x_proj_weight', bare: true },
    stateSteps: { name: 'mamba.dt_proj_weight', bare: true, bias: 'mamba.dt_proj_bias' },
  }),
});
export const zamba2 = family({
  types: ['zamba2'],
  features: (c) => {
    noEffect(c);
    c.only('use_long_context', false);
    const s = zambaSizes(c, 32);
    const { hidden } = s;
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
      more: { norms: NO_NORMS },
    });
  },
  names: zambaNames(MAMBA_NAMES('mamba')),
  // Every stored block has the narrow products of all layers that share it.
  ignored: () =>
    /\.shared_transformer\.(self_attn\.linear_[qkv]|feed_forward\.gate_up_proj)_adapter_list\.\d+\.[01]\.weight$/,
});

// Zamba 2: Mamba 2, with a few blocks of attention that several layers share.
import { FormatError } from '../../base/errors.js';
import type { Config } from '../config.js';
import type { Mamba2, Mixer } from '../features.js';
import { activationOf, build, checked, LLAMA_NAMES, ropeOf } from './common.js';
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
export const zamba2 = family({
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

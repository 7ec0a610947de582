// What the metadata of mixtures with windows, gates on attention or an indexer adds to a config.
import { UnsupportedError } from '../../base/errors.js';
import type { Json } from '../files/config.js';
import { layerTypes, partialRopesByKind, ropesByKind, sparseTypes } from './layers.js';
import type { Metadata } from './metadata.js';

/** Attention's gate has a row a head, or one for each of a head's numbers. */
function gateKind(m: Metadata, c: Json): string {
  const [rows] = m.source.shapeOf('blk.0.attn_gate.weight');
  return rows === c.num_attention_heads ? 'per-head' : 'per-element';
}

/** Layers with windows have twice the key heads of the others; a file gives the number for each. */
function fullKeyHeads(m: Metadata, types: readonly string[]): number {
  const counts = m.list('attention.head_count_kv')?.map(Number);
  if (!counts) return m.number('attention.head_count_kv');
  const of = (type: string): number[] => counts.filter((_, i) => types[i] === type);
  const [full, slid] = [of('full_attention'), of('sliding_attention')];
  const one = full[0] ?? slid[0] / 2;
  if (full.some((n) => n !== one) || slid.some((n) => n !== 2 * one))
    throw new UnsupportedError(
      `${m.source.path}: ${m.architecture}.attention.head_count_kv is ${counts.slice(0, 8).join(', ')}; served are ` +
        'layers with windows that have twice the key heads of the others',
    );
  return one;
}

export const MIXTURE_KEYS: Readonly<Record<string, (m: Metadata, c: Json) => Json>> = {
  afmoe: (m, c) => ({
    layer_types: layerTypes(m, c.num_hidden_layers, (i) => Boolean(c.sliding_window) && (i + 1) % 4 !== 0),
    // Nothing but layers with windows turns.
    rope_parameters: ropesByKind(m, c).rope_parameters.sliding_attention,
    num_dense_layers: c.first_k_dense_replace,
    num_shared_experts: c.n_shared_experts,
    route_scale: c.routed_scaling_factor,
    mup_enabled: true, // files do not say it
  }),
  hy_v3: (m, c) => ({
    mlp_layer_types: sparseTypes(m, c.num_hidden_layers),
    num_shared_experts:
      m.number('expert_shared_feed_forward_length', c.moe_intermediate_size) / c.moe_intermediate_size,
    router_scaling_factor: c.routed_scaling_factor,
  }),
  mellum: (m, c) => ({
    ...ropesByKind(m, c),
    layer_types: layerTypes(m, c.num_hidden_layers, (i) => Boolean(c.sliding_window) && (i + 1) % 4 !== 0),
    mlp_layer_types: sparseTypes(m, c.num_hidden_layers),
    norm_topk_prob: m.get('expert_weights_norm') ?? true,
  }),
  laguna: (m, c) => ({
    ...partialRopesByKind(m, c),
    layer_types: layerTypes(m, c.num_hidden_layers, (i) => Boolean(c.sliding_window) && i % 4 !== 0),
    mlp_layer_types: sparseTypes(m, c.num_hidden_layers),
    num_attention_heads_per_layer: m.list('attention.head_count')?.map(Number),
    gating: gateKind(m, c),
    moe_routed_scaling_factor: c.routed_scaling_factor,
    shared_expert_intermediate_size:
      m.optional('expert_shared_feed_forward_length') ?? c.moe_intermediate_size * (c.n_shared_experts || 1),
  }),
  mimo2: (m, c) => {
    const types = layerTypes(m, c.num_hidden_layers, () => Boolean(c.sliding_window));
    return {
      ...partialRopesByKind(m, c),
      layer_types: types,
      mlp_layer_types: sparseTypes(m, c.num_hidden_layers),
      num_key_value_heads: fullKeyHeads(m, types),
      v_head_dim: m.number('attention.value_length', c.head_dim),
      attention_value_scale: m.optional('attention.value_scale'),
      norm_topk_prob: m.get('expert_weights_norm') ?? true,
    };
  },
  phimoe: (m, c) => {
    m.get('rope.scaling.attn_factor');
    const { attention_factor: factor, ...rope } = c.rope_parameters;
    return {
      rope_parameters: rope.rope_type === 'longrope' ? { ...rope, short_mscale: factor, long_mscale: factor } : rope,
    };
  },
};

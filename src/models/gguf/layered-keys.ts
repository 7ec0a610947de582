// What a file says of models whose layers differ: sizes by layer, keys that several layers share, narrow vectors for
// each layer, several vectors a token.
import type { GgufValue } from '../../io/gguf-value.js';
import type { Features } from '../decoder/features.js';

/** Keys of a file; those that are not said are undefined. */
export type Keys = Readonly<Record<string, GgufValue | undefined>>;
const count = (n: number): GgufValue => ({ type: 'u32', value: n });

/** One number where all layers have the same, otherwise a list. */
export const sizesByLayer = (sizes: readonly number[]): GgufValue =>
  new Set(sizes).size > 1 ? { type: 'array', of: 'i32', value: Int32Array.from(sizes) } : count(sizes[0] ?? 0);

/** Where heads of layers with windows are of another width than those which see everything. */
function narrowHeads(f: Features): Keys {
  const attending = f.layers.flatMap(({ mixer: m }) => (m.kind === 'attention' ? [m] : []));
  const slid = attending.find((m) => m.window !== undefined);
  const own = slid && attending.some((m) => m.headDim !== slid.headDim) ? count(slid.headDim) : undefined;
  const turns = attending.map((m) => m.rope !== undefined);
  return {
    ...{ 'attention.key_length_swa': own, 'attention.value_length_swa': own },
    'attention.shared_kv_layers': count(attending.filter((m) => m.keysOf !== undefined).length),
    'attention.rope_pattern':
      turns.includes(false) && turns.includes(true) ? { type: 'array', of: 'bool', value: turns } : undefined,
  };
}

export function layeredKeys(f: Features): Keys {
  const closed = f.layers.map(({ mlp }) => (mlp.kind === 'dense' ? (mlp.sparse ?? -Infinity) : -Infinity));
  return {
    ...narrowHeads(f),
    embedding_length_per_layer_input: count(f.layerInputs?.width ?? 0),
    activation_sparsity_scale: { type: 'array', of: 'f32', value: Float32Array.from(closed) },
    ...(f.streams && { 'altup.num_inputs': count(f.streams.count), 'altup.active_idx': count(f.streams.active) }),
  };
}

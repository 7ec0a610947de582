// MiniMax M3's text: Gemma's norms, gates clamped as GPT-OSS clamps them in every feed-forward part, and layers whose
// queries see the blocks of keys that an indexer chooses.
import { FormatError } from '../../base/errors.js';
import type { Config, Json } from '../files/config.js';
import type { ClampedGate, DenseMlp, Experts, NormFeature } from '../decoder/features.js';
import type { Place } from '../decoder/weights.js';
import {
  build,
  full,
  fusedGateUp,
  LLAMA_NAMES,
  layerTypes,
  rms,
  ropeOf,
  sizesOf,
  sparseLayers,
  stackedGateUp,
} from './common.js';
import { family } from './row.js';

/** Layers that choose among keys. */
const CHOOSING = 'minimax_m3_sparse';
/** The indexer's numbers by their names in older configs. */
const OLDER: Readonly<Record<string, string>> = {
  index_block_size: 'sparse_block_size',
  index_topk_blocks: 'sparse_topk_blocks',
};
/** Lists of zeros and ones in older configs. */
const flagsOf = (v: unknown): readonly unknown[] | undefined => (Array.isArray(v) ? (v as unknown[]) : undefined);

/** With so many keys all of them are chosen; no bound where no layer chooses. */
function mostKeys(c: Config, layers: number): number | undefined {
  const older = (c.get('sparse_attention_config') ?? {}) as Json;
  const flags = flagsOf(older.sparse_attention_freq);
  const types = layerTypes(c, layers, (i) => (flags?.[i] ? CHOOSING : full()));
  c.onlyKinds('layer_types', types, [CHOOSING, full()], layers);
  const number = (name: string, unsaid: number): number =>
    typeof older[OLDER[name]] === 'number' ? (c.get(name), older[OLDER[name]] as number) : c.count(name, unsaid, 1);
  const keys = number('index_block_size', 128) * number('index_topk_blocks', 16);
  c.ignore('index_n_heads', 'index_head_dim', 'index_local_blocks');
  return types.includes(CHOOSING) ? keys : undefined;
}

const WIDE = fusedGateUp('mlp.gate_up_proj');
const SHARED = fusedGateUp('mlp.shared_experts.gate_up_proj');
const EXPERTS = stackedGateUp('mlp.experts.gate_up_proj', { bare: true });

/** transformers turns whole heads unless the rope's parameters say otherwise, whatever stands in rotary_dim. */
const minimaxM3 = family({
  types: ['minimax_m3_vl_text'],
  features: (c) => {
    // Configs name an activation that stands for the numbers beside it.
    c.ignore('rotary_dim', 'hidden_act', 'use_gemma_norm', 'use_qk_norm', 'qk_norm_type', 'scoring_func');
    c.ignore('use_routing_bias', 'n_shared_experts', 'num_mtp_modules', 'mtp_transformer_layers');
    const sizes = sizesOf(c);
    const most = mostKeys(c, sizes.layers);
    const s = { ...sizes, maxPositions: Math.min(sizes.maxPositions, most ?? Infinity) };
    const flags = flagsOf(c.get('moe_layer_freq'));
    if (flags && flags.length < s.layers)
      throw new FormatError(`${c.where}: moe_layer_freq has ${flags.length} entries for ${s.layers} layers`);
    const sparse = sparseLayers(c, s.layers, (i) => (flags ? Boolean(flags[i]) : true));
    const clamped: ClampedGate = { limit: c.number('swiglu_limit', 7), alpha: c.number('swiglu_alpha', 1.702) };
    const norm: NormFeature = { ...rms(c), plusOne: true };
    const dense: DenseMlp = {
      ...{ kind: 'dense', gated: true, activation: 'silu', clamped },
      inner: c.count('dense_intermediate_size', 12_288, 1),
    };
    const mixture: Experts = {
      ...{ kind: 'experts', activation: 'silu', score: 'sigmoid', choiceBias: true, weights: 'normalised', clamped },
      count: c.count('num_local_experts', 128, 1),
      chosen: c.count('num_experts_per_tok', 4, 1),
      inner: c.count('intermediate_size', undefined, 1),
      factor: c.number('routed_scaling_factor', 2),
      shared: { inner: c.count('shared_intermediate_size', 3072, 1) },
    };
    return build('minimax_m3', c, s, {
      norm,
      rope: ropeOf(c, { ...s, maxPositions: sizes.maxPositions }, { theta: 5e6, partial: 1 }),
      attention: () => ({ qkNorm: { norm, over: 'head' } }),
      mlp: (i) => (sparse(i) ? mixture : dense),
      ...(most !== undefined && { more: { mostKeys: most } }),
    });
  },
  names: {
    ...LLAMA_NAMES,
    gate: ['mlp.gate_proj', 'block_sparse_moe.gate_proj', WIDE.gate as Place],
    up: ['mlp.up_proj', 'block_sparse_moe.up_proj', WIDE.up as Place],
    down: ['mlp.down_proj', 'block_sparse_moe.down_proj'],
    // As transformers writes a text by itself, and as the hub's files of the whole model have them.
    router: ['mlp.gate', 'block_sparse_moe.gate'],
    expertGate: [EXPERTS.gate, 'block_sparse_moe.experts.{e}.w1'],
    expertUp: [EXPERTS.up, 'block_sparse_moe.experts.{e}.w3'],
    expertDown: [{ name: 'mlp.experts.down_proj', bare: true }, 'block_sparse_moe.experts.{e}.w2'],
    sharedGate: [SHARED.gate as Place, 'block_sparse_moe.shared_experts.gate_proj'],
    sharedUp: [SHARED.up as Place, 'block_sparse_moe.shared_experts.up_proj'],
    sharedDown: ['mlp.shared_experts.down_proj', 'block_sparse_moe.shared_experts.down_proj'],
    choiceBias: ['mlp.gate', 'block_sparse_moe'].map((at) => ({ name: `${at}.e_score_correction_bias`, bare: true })),
  },
  // Where all keys are chosen, nobody needs what chooses them.
  ignored: () => /\.self_attn\.(indexer\.|index_)|(^|\.)mtp\./,
});

export const MINIMAX3_FAMILIES = [minimaxM3];

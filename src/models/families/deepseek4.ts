// DeepSeek V4: keys of a window beside sums of whole runs of tokens, several vectors a token, and experts that a table
// chooses in the first layers.
import { FormatError, UnsupportedError } from '../../base/errors.js';
import { Config, isObject, type Json } from '../files/config.js';
import type { CompressedAttention, Experts, Features, RunSums } from '../decoder/features.js';
import type { RopeFeature } from '../decoder/rope.js';
import { biasesBy, build, experts, expertNames, layerTypes, LLAMA_NAMES, rms } from './common.js';
import { ropeOf, SHARED_BIAS, type Sizes } from './common.js';
import { family } from './row.js';

const [SLIDING, SPARSE, HEAVY] = [
  'sliding_attention',
  'compressed_sparse_attention',
  'heavily_compressed_attention',
] as const;
/** Older configs give a layer's kind by the tokens of its runs. */
const BY_RATIO: Readonly<Record<string, string>> = { 0: SLIDING, 4: SPARSE, 128: HEAVY };
const RUNS: Readonly<Record<string, number>> = { [SPARSE]: 4, [HEAVY]: 128 };

function kindsOf(c: Config, layers: number): readonly string[] {
  const ratios = c.get('compress_ratios');
  const older = Array.isArray(ratios) ? ratios.map((r) => BY_RATIO[String(r)] ?? String(r)) : undefined;
  const rule = (i: number): string => (i >= 2 && (i - 2) % 2 === 1 ? SPARSE : HEAVY);
  const kinds = layerTypes(c, layers, (i) => (older ? older[i] : rule(i)));
  c.onlyKinds('layer_types', kinds, [SLIDING, SPARSE, HEAVY], layers);
  return kinds;
}
/** Tokens of a run, by the kind of a layer. */
function runsOf(c: Config): (kind: string) => number {
  const given = c.inner('compress_rates');
  const older: Readonly<Record<string, string>> = { [SPARSE]: 'compress_rate_csa', [HEAVY]: 'compress_rate_hca' };
  const all = new Map<string, number>(
    [SPARSE, HEAVY].map((kind) => {
      const own = given?.has(kind) ? given.count(kind, undefined, 1) : RUNS[kind];
      return [kind, c.has(older[kind]) ? c.count(older[kind], undefined, 1) : own] as const;
    }),
  );
  return (kind) => all.get(kind) as number;
}
/** Ropes of layers with a window alone, and of those with sums: nested, or one for the latter where it is flat. */
function ropesOf(c: Config, s: Sizes): readonly [main: RopeFeature, compress: RopeFeature] {
  const ropeDim = c.optional('qk_rope_head_dim');
  const partial = c.optional('partial_rotary_factor') ?? (ropeDim === undefined ? 0.125 : ropeDim / s.headDim);
  const given = (c.get('rope_parameters') ?? c.get('rope_scaling') ?? {}) as Json;
  c.ignore('rope_scaling');
  const [theta, far] = [c.number('rope_theta', 10_000), c.number('compress_rope_theta', 160_000)];
  const { main: _, compress: __, ...flat } = given;
  const type = (flat.rope_type ?? flat.type ?? 'default') as string;
  const factor = type === 'yarn' && flat.attention_factor === undefined ? { attention_factor: 1 } : {};
  const ropes: Json =
    isObject(given.main) && isObject(given.compress)
      ? { main: given.main, compress: given.compress }
      : {
          main: { rope_type: 'default', rope_theta: theta, partial_rotary_factor: partial },
          compress: { ...flat, ...factor, rope_type: type, rope_theta: far, partial_rotary_factor: partial },
        };
  const own = new Config({ rope_parameters: ropes }, c.where);
  const [first, second] = ['main', 'compress'].map((layerType) => {
    const read = ropeOf(own, s, { layerType, apart: true, within: true, partial: 1 });
    return { ...read, headDim: read.rotated };
  });
  own.refuseUnread();
  return [first, second];
}
const SCORES: Readonly<Record<string, Experts['score']>> = {
  sqrtsoftplus: 'root of softplus',
  softmax: 'softmax',
  sigmoid: 'sigmoid',
};

function mixersOf(c: Config, s: Sizes, eps: number): (i: number) => CompressedAttention {
  const [kinds, runs, ropes] = [kindsOf(c, s.layers), runsOf(c), ropesOf(c, s)];
  const [groups, groupRank] = [c.count('o_groups', undefined, 1), c.count('o_lora_rank', undefined, 1)];
  if (s.heads % groups !== 0)
    throw new FormatError(`${c.where}: ${s.heads} heads do not divide into ${groups} o_groups`);
  const queryRank = c.count('q_lora_rank', undefined, 1);
  const window = c.count('sliding_window', undefined, 1);
  const [heads, dim] = [c.count('index_n_heads', undefined, 1), c.count('index_head_dim', undefined, 1)];
  const kept = c.count('index_topk', undefined, 1);
  if (kinds.includes(SPARSE) && dim < ropes[1].rotated)
    throw new FormatError(`${c.where}: index_head_dim is ${dim}, and ${ropes[1].rotated} numbers of it turn`);
  const sumsOf = (kind: string): RunSums => ({
    ...{ run: runs(kind), overlap: kind === SPARSE, rope: ropes[1] },
    ...(kind === SPARSE && { index: { heads, dim, kept } }),
  });
  return (i) => {
    const kind = kinds[i];
    const rope = kind === SLIDING ? ropes[0] : ropes[1];
    const sums = kind === SLIDING ? undefined : sumsOf(kind);
    const brought = sums ? (sums.overlap ? 4 : 2) * s.headDim + (sums.index ? 4 * sums.index.dim : 0) : 0;
    const nopeDim = s.headDim - rope.rotated;
    if (nopeDim === 0 && brought === 0)
      throw new UnsupportedError(`${c.where}: heads that turn as a whole in a layer of ${kind}`);
    return {
      ...{ kind: 'compressed', window, groups, groupRank, eps },
      keys: {
        ...{ kind: 'latent', heads: s.heads, queryRank, rank: nopeDim + brought, nopeDim, ropeDim: rope.rotated },
        ...{ valueDim: s.headDim, scale: 1 / Math.sqrt(s.headDim), rope, normEps: eps },
      },
      ...(sums && { sums }),
    };
  };
}
function mixturesOf(c: Config, layers: number): (i: number) => Experts {
  const hashed = c.count('num_hash_layers', 3);
  const kinds = c.has('mlp_layer_types')
    ? c.texts('mlp_layer_types')
    : Array.from({ length: layers }, (_, i) => (i < hashed ? 'hash_moe' : 'moe'));
  c.onlyKinds('mlp_layer_types', kinds, ['hash_moe', 'moe'], layers);
  const score = SCORES[c.text('scoring_func')];
  c.only('scoring_func', ...Object.keys(SCORES));
  const inner = c.count('moe_intermediate_size', undefined, 1);
  c.ignore('n_shared_experts', 'norm_topk_prob'); // one, and always
  const vocabSize = c.count('vocab_size', undefined, 1);
  return (i) =>
    experts(c, {
      count: c.count('n_routed_experts', undefined, 1),
      chosen: c.count('num_experts_per_tok', undefined, 1),
      inner,
      score,
      ...(kinds[i] === 'moe' ? { choiceBias: true } : { byToken: { vocabSize } }),
      weights: 'normalised',
      sumGuard: { add: 1e-20 },
      factor: c.number('routed_scaling_factor'),
      limit: c.number('swiglu_limit'),
      shared: { inner, limit: c.number('swiglu_limit') },
    });
}
function features(c: Config): Features {
  const heads = c.count('num_attention_heads', undefined, 1);
  const s: Sizes = {
    ...{ hidden: c.count('hidden_size', undefined, 1), heads, kvHeads: 1 },
    ...{ headDim: c.count('head_dim', undefined, 1), layers: c.count('num_hidden_layers', undefined, 1) },
    maxPositions: c.count('max_position_embeddings', undefined, 1),
  };
  const norm = rms(c);
  c.ignore('num_key_value_heads', 'attention_bias', 'num_nextn_predict_layers');
  return build('deepseek_v4', c, s, {
    norm,
    mixer: mixersOf(c, s, norm.eps),
    mlp: mixturesOf(c, s.layers),
    biases: biasesBy(c, { mlp_bias: SHARED_BIAS }),
    more: {
      hyper: {
        count: c.count('hc_mult', undefined, 1),
        rounds: c.count('hc_sinkhorn_iters', undefined, 1),
        eps: c.number('hc_eps'),
      },
    },
  });
}

const bare = (name: string): { readonly name: string; readonly bare: true } => ({ name, bare: true });
/** A part as files have it, or as the program calls it. */
const either = (stored: string, named: string): readonly string[] => [stored, named];
const eitherBare = (stored: string, named: string) => [bare(stored), bare(named)];
const STACKED = expertNames('mlp');
const mixNames = (branch: 'mixer' | 'mlp', stored: string, named: string) => ({
  [`${branch}Mix`]: eitherBare(`hc_${stored}_fn`, `${named}.fn`),
  [`${branch}MixBase`]: eitherBare(`hc_${stored}_base`, `${named}.base`),
  [`${branch}MixScale`]: eitherBare(`hc_${stored}_scale`, `${named}.scale`),
});
const deepseek4 = family({
  types: ['deepseek_v4'],
  features,
  names: {
    ...LLAMA_NAMES,
    head: ['head', 'lm_head'],
    hyperMix: bare('model.hc_head.hc_fn'),
    hyperBase: bare('model.hc_head.hc_base'),
    hyperScale: bare('model.hc_head.hc_scale'),
    beforeMixer: either('attn_norm', 'input_layernorm'),
    beforeMlp: either('ffn_norm', 'post_attention_layernorm'),
    ...mixNames('mixer', 'attn', 'attn_hc'),
    ...mixNames('mlp', 'ffn', 'ffn_hc'),
    sinks: eitherBare('attn.attn_sink', 'self_attn.sinks'),
    qA: either('attn.wq_a', 'self_attn.q_a_proj'),
    qANorm: either('attn.q_norm', 'self_attn.q_a_norm'),
    qB: either('attn.wq_b', 'self_attn.q_b_proj'),
    kv: either('attn.wkv', 'self_attn.kv_proj'),
    kvNorm: either('attn.norm', 'self_attn.kv_norm'),
    oA: either('attn.wo_a', 'self_attn.o_a_proj'),
    oB: either('attn.wo_b', 'self_attn.o_b_proj'),
    sumValue: either('attn.compressor.wkv', 'self_attn.compressor.kv_proj'),
    sumGate: either('attn.compressor.wgate', 'self_attn.compressor.gate_proj'),
    sumPlace: eitherBare('attn.compressor.ape', 'self_attn.compressor.position_bias'),
    sumNorm: either('attn.compressor.norm', 'self_attn.compressor.kv_norm'),
    indexQuery: either('attn.indexer.wq_b', 'self_attn.compressor.indexer.q_b_proj'),
    indexWeights: either('attn.indexer.weights_proj', 'self_attn.compressor.indexer.scorer.weights_proj'),
    indexValue: either('attn.indexer.compressor.wkv', 'self_attn.compressor.indexer.kv_proj'),
    indexGate: either('attn.indexer.compressor.wgate', 'self_attn.compressor.indexer.gate_proj'),
    indexPlace: eitherBare('attn.indexer.compressor.ape', 'self_attn.compressor.indexer.position_bias'),
    indexNorm: either('attn.indexer.compressor.norm', 'self_attn.compressor.indexer.kv_norm'),
    router: either('ffn.gate', 'mlp.gate'),
    choiceBias: eitherBare('ffn.gate.bias', 'mlp.gate.e_score_correction_bias'),
    tokenExperts: eitherBare('ffn.gate.tid2eid', 'mlp.gate.tid2eid'),
    expertGate: ['ffn.experts.{e}.w1', ...(STACKED.expertGate as readonly string[])],
    expertUp: ['ffn.experts.{e}.w3', ...(STACKED.expertUp as readonly string[])],
    expertDown: ['ffn.experts.{e}.w2', ...(STACKED.expertDown as readonly string[])],
    sharedGate: either('ffn.shared_experts.w1', 'mlp.shared_experts.gate_proj'),
    sharedUp: either('ffn.shared_experts.w3', 'mlp.shared_experts.up_proj'),
    sharedDown: either('ffn.shared_experts.w2', 'mlp.shared_experts.down_proj'),
  },
  ignored: () => /(^|\.)mtp\./,
});
export const DEEPSEEK4_FAMILIES = [deepseek4];

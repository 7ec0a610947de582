// A model's features as the keys that llama.cpp's converters write, and the check that a file of them reads back as the
// model it was made of.
import { UnsupportedError } from '../../base/errors.js';
import type { GgufType, GgufValue } from '../../io/gguf-value.js';
import type { Attention, Experts, Features, LatentAttention, Mixer, NormFeature } from '../decoder/features.js';
import { inverseFrequencies, type RopeFeature } from '../decoder/rope.js';
import type { GgufRow } from '../families/gguf.js';
import { yarnGain } from './config.js';
import { type Keys, layeredKeys, sizesByLayer } from './layered-keys.js';
import { gatingOf } from './router.js';

const value = (type: GgufType, v: number | boolean | string): GgufValue => ({ type, value: v });
const count = (n: number | undefined): GgufValue | undefined => (n === undefined ? undefined : value('u32', n));
const real = (x: number | undefined): GgufValue | undefined => (x === undefined ? undefined : value('f32', x));

const isAttention = (m: Mixer): m is Attention => m.kind === 'attention';
const isLatent = (m: Mixer): m is LatentAttention => m.kind === 'latent';
/** Of layers with a state beside attention, the attention. */
const mixersOf = (f: Features): readonly Mixer[] =>
  f.layers.map(({ mixer: m }) => (m.kind === 'beside' ? m.attention : m));

/** The rope that a file tells of: that of layers which see everything, where others have one of their own. */
function mainRope(f: Features): RopeFeature | undefined {
  const roped = mixersOf(f)
    .flatMap((m) => (isAttention(m) || isLatent(m) ? [m] : []))
    .filter((m) => m.rope);
  return (roped.find((m) => !isAttention(m) || m.window === undefined) ?? roped[0])?.rope;
}

function ropeKeys(f: Features, yarnLog: number | undefined): Keys {
  const r = mainRope(f);
  if (!r) return {};
  const sliding = mixersOf(f).find((m): m is Attention => isAttention(m) && m.window !== undefined)?.rope;
  // A stretch that does not depend on the length is a base.
  const theta = r.alpha === undefined ? r.theta : r.theta * r.alpha ** (r.headDim / (r.headDim - 2));
  const base: Keys = {
    // Pairs that do not turn have divisors of their own.
    'rope.dimension_count': count(r.type === 'proportional' ? r.headDim : r.rotated),
    'rope.freq_base': real(theta),
    ...(sliding && sliding.theta !== r.theta && { 'rope.freq_base_swa': real(sliding.theta) }),
    'rope.dimension_count_swa': sliding && count(sliding.rotated),
  };
  if (r.type === 'linear')
    return { ...base, 'rope.scaling.type': value('string', 'linear'), 'rope.scaling.factor': real(r.factor) };
  if (r.type === 'longrope')
    return {
      ...base,
      'rope.scaling.original_context_length': count(r.original),
      'rope.scaling.attn_factor': real(inverseFrequencies(r).factor),
    };
  if (r.type !== 'yarn') return base;
  const log = yarnLog !== undefined && r.mscaleAllDim ? yarnLog * r.mscaleAllDim : undefined;
  // A reader multiplies by what a yarn of this stretch has by itself, but for those with a multiplier.
  const more = inverseFrequencies(r).factor / (log === undefined ? yarnGain(r.factor ?? 1) : 1);
  return {
    ...base,
    'rope.scaling.type': value('string', 'yarn'),
    'rope.scaling.factor': real(r.factor),
    'rope.scaling.original_context_length': count(r.original),
    'rope.scaling.yarn_beta_fast': real(r.betaFast),
    'rope.scaling.yarn_beta_slow': real(r.betaSlow),
    'rope.scaling.yarn_log_multiplier': real(log),
    'rope.scaling.attn_factor': Math.abs(more - 1) < 1e-9 ? undefined : real(more),
  };
}

/** A window as long as the longest text hides nothing. */
const windowOf = (m: Mixer, f: Features): number | undefined =>
  isAttention(m) && m.window !== undefined && m.window < f.maxPositions ? m.window : undefined;

function attentionKeys(f: Features): Keys {
  const mixers = mixersOf(f);
  const latent = mixers.find(isLatent);
  if (latent) {
    const { heads, queryRank, rank, nopeDim, ropeDim, valueDim } = latent;
    return {
      'attention.head_count': count(heads),
      'attention.head_count_kv': count(1),
      'attention.q_lora_rank': count(queryRank),
      'attention.kv_lora_rank': count(rank),
      'attention.key_length': count(rank + ropeDim),
      'attention.value_length': count(rank),
      'attention.key_length_mla': count(nopeDim + ropeDim),
      'attention.value_length_mla': count(valueDim),
      'attention.temperature_scale': real(latent.temperature?.beta),
    };
  }
  const attending = mixers.filter(isAttention);
  const [first] = attending;
  if (!first) return { 'attention.head_count': count(0) };
  const wide = attending.find((m) => m.window === undefined) ?? first;
  const windows = mixers.map((m) => windowOf(m, f));
  const window = windows.find((w) => w !== undefined);
  const chunk = mixers.find((m): m is Attention => isAttention(m) && m.chunk !== undefined)?.chunk;
  return {
    'attention.head_count': sizesByLayer(attending.map((m) => m.heads)),
    'attention.head_count_kv': mixers.some((m) => !isAttention(m) && m.kind !== 'delta')
      ? { type: 'array', of: 'i32', value: Int32Array.from(mixers, (m) => (isAttention(m) ? m.kvHeads : 0)) }
      : sizesByLayer(attending.map((m) => m.kvHeads)),
    'shortconv.l_cache': count(mixers.find((m) => m.kind === 'conv')?.width),
    'attention.key_length': count(wide.headDim),
    'attention.value_length': count(wide.valueDim ?? wide.headDim),
    'attention.value_scale': real(first.valueFactor),
    'attention.scale': real(first.scale),
    'attention.sliding_window': count(window),
    'attention.sliding_window_pattern':
      window === undefined ? undefined : { type: 'array', of: 'bool', value: windows.map((w) => w !== undefined) },
    'attention.chunk_size': count(chunk),
    'attention.clamp_kqv': real(first.clip),
    'attention.max_alibi_bias': first.alibi ? real(8) : undefined,
    'attention.temperature_scale': real(first.temperature?.beta),
    attn_logit_softcapping: real(first.softcap),
  };
}

const mixturesOf = (f: Features): readonly Experts[] =>
  f.layers.flatMap(({ mlp }) => (mlp.kind === 'experts' ? [mlp] : mlp.kind === 'both' ? [mlp.experts] : []));

function mlpKeys(f: Features): Keys {
  // Blocks without a feed-forward part have 0 there.
  const lengths = f.layers.map(({ mlp }) => ('inner' in mlp ? mlp.inner : mlp.kind === 'both' ? mlp.dense.inner : 0));
  const some = lengths.includes(0) && lengths.some((n) => n > 0);
  const inEach = { feed_forward_length: { type: 'array', of: 'i32', value: Int32Array.from(lengths) } } as const;
  const dense = f.layers.flatMap(({ mlp }) => (mlp.kind === 'dense' ? [mlp] : mlp.kind === 'both' ? [mlp.dense] : []));
  const inner = dense.length > 0 ? dense[0].inner : undefined;
  const mixed = f.layers.map(({ mlp }) => mlp.kind === 'experts' || mlp.kind === 'both');
  const first = mixed.indexOf(true);
  const e = mixturesOf(f)[0];
  if (!e) return some ? inEach : { feed_forward_length: sizesByLayer(lengths) };
  const fits = (step: number): boolean => mixed.every((m, i) => m === (i >= first && (i + 1) % step === 0));
  const step = mixed.map((_, i) => i + 1).find(fits);
  return {
    feed_forward_length: count(inner ?? e.inner),
    expert_feed_forward_length: count(e.inner),
    expert_count: count(e.count),
    expert_used_count: count(e.chosen),
    expert_shared_count: e.shared && count(Math.round(e.shared.inner / e.inner)),
    expert_shared_feed_forward_length: e.shared && count(e.shared.inner),
    expert_gating_func: count(gatingOf(e) === 'sigmoid' ? 2 : 1),
    expert_weights_norm: value('bool', e.weights !== 'kept'),
    expert_weights_scale: e.factor === undefined || e.factor === 1 ? undefined : real(e.factor),
    expert_group_count: count(e.groups?.count),
    expert_group_used_count: count(e.groups?.kept),
    leading_dense_block_count: count(Math.max(0, mixed.indexOf(true))),
    interleave_moe_layer_step: count(step),
    moe_latent_size: count(e.latent),
    ...(some && inEach),
  };
}

/** The sizes of what layers remember. */
function stateKeys(f: Features): Keys {
  const states = f.layers.map(({ mixer: m }) => (m.kind === 'beside' ? m.state : m));
  const m = states.find((s) => s.kind === 'mamba' || s.kind === 'mamba2' || s.kind === 'delta');
  const keys = (inner: number, state: number, rank: number, groups?: number): Keys => ({
    'ssm.inner_size': count(inner),
    'ssm.state_size': count(state),
    'ssm.time_step_rank': count(rank),
    'ssm.group_count': count(groups),
  });
  if (m?.kind === 'mamba')
    return {
      'ssm.conv_kernel': count(m.width),
      ...keys(m.inner, m.stateDim, m.rank),
      'ssm.dt_b_c_rms': value('bool', m.norms?.weightless === true),
    };
  if (m?.kind === 'mamba2')
    return { 'ssm.conv_kernel': count(m.width), ...keys(m.heads * m.headDim, m.stateDim, m.heads, m.groups) };
  if (m?.kind !== 'delta') return {};
  return {
    'ssm.conv_kernel': count(m.width),
    ...keys(m.valueHeads * m.valueDim, m.keyDim, m.valueHeads, m.keyHeads),
    full_attention_interval: count(f.layers.findIndex((l) => isAttention(l.mixer)) + 1),
  };
}

/**
 * Everything that features say and a key exists for; which of them an architecture has is seen by reading them back.
 */
export function ggufKeys(architecture: string, f: Features, row: GgufRow): Map<string, GgufValue> {
  const eps = f.norm.kind === 'rms' ? 'layer_norm_rms_epsilon' : 'layer_norm_epsilon';
  const keys: Keys = {
    context_length: count(f.maxPositions),
    embedding_length: count(f.hiddenSize),
    block_count: count(f.layers.length),
    vocab_size: count(f.vocabSize),
    ...mlpKeys(f),
    ...attentionKeys(f),
    [`attention.${eps}`]: real(f.norm.eps),
    ...ropeKeys(f, row.yarnLog),
    ...stateKeys(f),
    ...layeredKeys(f),
    // Granite's word for attention without a rope.
    'rope.scaling.finetuned': value('bool', mainRope(f) !== undefined),
    final_logit_softcapping: real(f.logitSoftcap),
    embedding_scale: real(f.embedFactor),
    residual_scale: real(f.branchFactor),
    logit_scale: f.logitFactor === undefined ? undefined : real(row.logitsDivided ? 1 / f.logitFactor : f.logitFactor),
    use_parallel_residual: value('bool', f.parallel !== undefined),
  };
  return new Map(
    Object.entries(keys).flatMap(([key, v]) => (v === undefined ? [] : [[`${architecture}.${key}`, v] as const])),
  );
}

/** What a frequency is divided by that is to turn nothing. */
const ENDLESS = 1e30;
/** The stretch of a rope as divisors of its frequencies, where a file keeps it so. */
export function ropeDivisors(f: Features): Float32Array | undefined {
  const r = mainRope(f);
  if (r?.type === 'proportional')
    return Float32Array.from({ length: r.headDim / 2 }, (_, i) => (i < r.rotated / 2 ? 1 : ENDLESS));
  if (r?.type !== 'llama3') return undefined;
  const plain = inverseFrequencies({ ...r, type: 'default' }).inv;
  return Float32Array.from(inverseFrequencies(r).inv, (x, i) => plain[i] / x);
}

/** Features as the numbers they stand for: what a file says in other words is the same here. */
function meaning(f: Features): unknown {
  const rope = (r: RopeFeature | undefined): unknown => {
    if (!r) return undefined;
    const lengths = r.type === 'longrope' ? [1, (r.original as number) + 1] : [1, 4 * r.maxPositions];
    return { headDim: r.headDim, turned: r.rotated, tables: lengths.map((n) => inverseFrequencies(r, n)) };
  };
  const mixed = (m: Mixer): unknown => {
    if (m.kind === 'beside') return { ...m, state: mixed(m.state), attention: mixed(m.attention) };
    const attention = isAttention(m) && {
      window: windowOf(m, f),
      qkNorm: m.qkNorm && { ...m.qkNorm, norm: { ...m.qkNorm.norm, plusOne: false } },
    };
    const turned = isAttention(m) || isLatent(m) ? { rope: rope(m.rope) } : {};
    const factors = m.kind === 'mamba2' && { inFactor: m.inFactor ?? 1, partFactors: m.partFactors };
    return { ...m, ...attention, ...turned, ...factors, ratesStored: undefined, tiled: undefined };
  };
  const plain = (n: NormFeature | undefined): unknown => n && { ...n, plusOne: undefined };
  // Every feature counts, a new one too, but for names, marks of texts, and biases, which tensors tell.
  const { family: _, biases: _biases, bosTokenId: _bos, eosTokenIds: _eos, layers, ...rest } = f;
  return {
    ...rest,
    norm: plain(f.norm),
    finalNorm: plain(f.finalNorm),
    branchFactor: f.branchFactor ?? 1,
    embedFactor: f.embedFactor ?? 1,
    embedNorm: f.embedNorm ?? false,
    logitFactor: f.logitFactor ?? 1,
    layers: layers.map(({ biases: _, mixer, mlp, ...layer }) => {
      const experts = mlp.kind === 'experts' && {
        ...{ factor: mlp.factor ?? 1, choiceBias: mlp.choiceBias ?? false },
        groups: (mlp.groups?.count ?? 1) > 1 ? mlp.groups : undefined,
      };
      return { ...layer, mixer: mixed(mixer), mlp: { ...mlp, ...experts } };
    }),
  };
}

/** The first place where two values are not the same, numbers but for f32's rounding. */
function difference(a: unknown, b: unknown, at: string): string | undefined {
  if (typeof a === 'number' && typeof b === 'number')
    return a === b || Math.abs(a - b) <= 1e-6 * Math.max(Math.abs(a), Math.abs(b))
      ? undefined
      : `${at} is ${a}, there ${b}`;
  if (typeof a === 'object' && typeof b === 'object' && a && b) {
    for (const key of new Set([...Object.keys(a), ...Object.keys(b)])) {
      const name = Array.isArray(a) ? `${at}[${key}]` : at ? `${at}.${key}` : key;
      const found = difference((a as never)[key], (b as never)[key], name);
      if (found) return found;
    }
    return undefined;
  }
  const shown = (v: unknown): string => JSON.stringify(v)?.slice(0, 60) ?? 'nothing';
  return a === b ? undefined : `${at} is ${shown(a)}, there ${shown(b)}`;
}

/** Refuses a model that a file of the architecture would not be. */
export function checkMeaning(where: string, architecture: string, own: Features, read: Features): void {
  const found = difference(meaning(own), meaning(read), '');
  if (found)
    throw new UnsupportedError(
      `${where}: a GGUF file of the architecture ${architecture} cannot say what this model is: ${found}`,
    );
}

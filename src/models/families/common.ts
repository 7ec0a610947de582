// What family rows are written with: sizes that all configs have, ropes and masks by layer, the usual names and
// feed-forward parts.
import { FormatError, ShapeError, UnsupportedError } from '../../base/errors.js';
import type { Tensor } from '../../tensor/tensor.js';
import type { Config } from '../files/config.js';
import type { Attention, DenseMlp, Experts, Features, Layer, Mlp, NormFeature } from '../decoder/features.js';
import { PRE_NORMS } from '../decoder/features.js';
import { readRope, type RopeFeature, type RopeReading } from '../decoder/rope.js';
import type { Role } from '../decoder/roles.js';
import type { Names, Place, Rows } from '../decoder/weights.js';

export interface Sizes {
  readonly hidden: number;
  readonly layers: number;
  readonly heads: number;
  readonly kvHeads: number;
  readonly headDim: number;
  readonly maxPositions: number;
}
/** The sizes under the names that nearly every config gives them. */
export function sizesOf(c: Config): Sizes {
  const hidden = c.count('hidden_size', undefined, 1);
  const heads = c.count('num_attention_heads', undefined, 1);
  const kvHeads = c.count('num_key_value_heads', heads, 1);
  const headDim = c.has('head_dim') ? c.count('head_dim', undefined, 1) : hidden / heads;
  return checked(c, {
    hidden,
    layers: c.count('num_hidden_layers', undefined, 1),
    heads,
    kvHeads,
    headDim,
    maxPositions: c.count('max_position_embeddings', 2048, 1),
  });
}
export function checked(c: Config, s: Sizes): Sizes {
  if (!Number.isInteger(s.headDim))
    throw new FormatError(`${c.where}: hidden size ${s.hidden} does not divide into ${s.heads} heads`);
  if (s.heads % s.kvHeads !== 0)
    throw new FormatError(`${c.where}: ${s.heads} query heads do not divide into ${s.kvHeads} key heads`);
  return s;
}

export const rms = (c: Config, fallback = 1e-6): NormFeature => ({
  kind: 'rms',
  eps: c.number('rms_norm_eps', fallback),
});
export const layerNorm = (c: Config, name: string, fallback = 1e-5): NormFeature => ({
  kind: 'layer',
  eps: c.number(name, fallback),
  bias: true,
});

/** Parts that have biases together. */
export const QKV_BIAS: readonly Role[] = ['q', 'k', 'v'];
export const ATTENTION_BIAS: readonly Role[] = [...QKV_BIAS, 'o'];
export const MLP_BIAS: readonly Role[] = ['gate', 'up', 'down'];
/** The same where there is no gate. */
export const UNGATED_BIAS: readonly Role[] = ['up', 'down'];
/** Of attention and of feed-forward parts without a gate. */
export const ALL_BIASES = [...ATTENTION_BIAS, ...UNGATED_BIAS];
/** The experts that every token goes through. */
export const SHARED_BIAS: readonly Role[] = ['sharedGate', 'sharedUp', 'sharedDown'];
/**
 * Parts by the flag that gives them biases; a flag that a config leaves out is false unless `unsaid` says otherwise.
 */
export const biasesBy = (
  c: Config,
  flags: Readonly<Record<string, readonly Role[]>>,
  unsaid: Readonly<Record<string, boolean>> = {},
): readonly Role[] => {
  const roles = Object.entries(flags).flatMap(([name, own]) => (c.flag(name, unsaid[name] ?? false) ? own : []));
  // Attention's output may be told of alone, as GGUF files are read.
  return c.has('attention_out_bias') && !c.flag('attention_out_bias') ? roles.filter((r) => r !== 'o') : roles;
};

/** An activation's name, refused here if nobody knows it. */
export const activationOf = (c: Config, name = 'hidden_act', fallback = 'silu'): string => c.activation(name, fallback);
export const gated = (c: Config, inner = c.count('intermediate_size', undefined, 1)): DenseMlp => ({
  kind: 'dense',
  inner,
  gated: true,
  activation: activationOf(c),
});
export const ungated = (inner: number, activation: string): DenseMlp => ({
  kind: 'dense',
  inner,
  gated: false,
  activation,
});

/** Old files give a rule where new ones list every layer's kind. */
export function layerTypes(c: Config, layers: number, rule: (i: number) => string): readonly string[] {
  if (!c.has('layer_types')) return Array.from({ length: layers }, (_, i) => rule(i));
  const types = c.texts('layer_types');
  if (types.length < layers)
    throw new FormatError(`${c.where}: layer_types has ${types.length} entries for ${layers} layers`);
  return types;
}
/** Kinds of layers of hybrids: attention over all keys, or a state. */
export const FULL_OR_LINEAR = ['full_attention', 'linear_attention'] as const;
/** Which layers are mixtures of experts: as mlp_layer_types says, or by the rule where it is absent. */
export function sparseLayers(c: Config, layers: number, rule: (i: number) => boolean): (i: number) => boolean {
  if (!c.has('mlp_layer_types')) return rule;
  const types = c.texts('mlp_layer_types');
  if (types.length < layers || types.some((t) => t !== 'dense' && t !== 'sparse'))
    throw new FormatError(`${c.where}: mlp_layer_types must give ${layers} layers, each "dense" or "sparse"`);
  return (i) => types[i] === 'sparse';
}
export const full = (): string => 'full_attention';
/** The last of every `period` layers is full, the others slide. */
export const lastFull =
  (period: number) =>
  (i: number): string =>
    (i + 1) % period === 0 ? 'full_attention' : 'sliding_attention';

/** Windows by a layer's type; other types than those named are refused. */
export function windowsBy(c: Config, types: readonly string[], window: number | undefined): (number | undefined)[] {
  return types.map((t) => {
    if (t === 'full_attention') return undefined;
    if (t !== 'sliding_attention')
      throw new UnsupportedError(`${c.where}: layer_types holds ${JSON.stringify(t)}, which this family does not have`);
    if (!window)
      throw new FormatError(`${c.where}: layers slide but sliding_window is ${window === 0 ? '0' : 'not given'}`);
    return window;
  });
}
/** Qwen's way: a window only with use_sliding_window, on layers from max_window_layers on. */
export function qwenWindows(c: Config, layers: number): (number | undefined)[] {
  const on = c.flag('use_sliding_window', false);
  const window = c.optional('sliding_window');
  const from = c.optional('max_window_layers') ?? 28;
  const types = layerTypes(c, layers, (i) => (on && window !== undefined && i >= from ? 'sliding_attention' : full()));
  return windowsBy(c, types, on ? window : undefined);
}
/** One window for all layers, or none. */
export function sameWindow(c: Config, layers: number): (number | undefined)[] {
  const window = c.optional('sliding_window');
  return Array.from({ length: layers }, () => window);
}

export const ropeOf = (c: Config, s: Sizes, more: Partial<RopeReading> = {}): RopeFeature =>
  readRope(c, { headDim: s.headDim, maxPositions: s.maxPositions, ...more });

/** Pairs of neighbours in a head's front, at the speeds of the first ropes: a config has no word in it. */
export const fixedRope = ({ headDim, maxPositions }: Sizes, rotated: number): RopeFeature => ({
  ...{ type: 'default', theta: 10_000, interleaved: true },
  ...{ headDim, rotated, maxPositions },
});

/** What a row says about its family; the rest is Llama's. */
export interface Recipe {
  readonly norm: NormFeature;
  readonly rope?: RopeFeature;
  /** What differs by layer. */
  readonly attention?: (i: number) => Partial<Attention>;
  readonly mixer?: (i: number) => Layer['mixer'];
  readonly mlp: (i: number) => Mlp;
  /** What else is a layer's own. */
  readonly layer?: (i: number) => Partial<Layer>;
  readonly tied?: boolean;
  /** Parts with a bias; none if left out. */
  readonly biases?: readonly Role[];
  readonly more?: Partial<Features>;
}
/** A choice that cannot be made is a mistake in the config. */
function checkChoice(c: Config, { count: working, idle, chosen, groups: among }: Experts): void {
  const { count: groups, kept } = among ?? { count: 1, kept: 1 };
  const count = working + (idle?.count ?? 0);
  const open = groups > 1 ? (count / groups) * kept : count;
  if (count % groups !== 0 || kept > groups)
    throw new FormatError(
      `${c.where}: ${count} experts cannot be chosen from ${kept} of ${groups} groups (n_group, topk_group)`,
    );
  if (chosen > open)
    throw new FormatError(`${c.where}: num_experts_per_tok is ${chosen}, and ${open} experts take part in the choice`);
}
export function build(family: string, c: Config, s: Sizes, r: Recipe): Features {
  const base: Attention = {
    kind: 'attention',
    heads: s.heads,
    kvHeads: s.kvHeads,
    headDim: s.headDim,
    scale: 1 / Math.sqrt(s.headDim),
    ...(r.rope && { rope: r.rope }),
  };
  const [bos] = c.tokenIds('bos_token_id');
  const branch = (i: number): Mlp => {
    const mlp = r.mlp(i);
    if (mlp.kind === 'experts') checkChoice(c, mlp);
    return mlp;
  };
  const ownOf = (i: number): Partial<Layer> => {
    const own = r.layer?.(i) ?? {};
    if (own.late) checkChoice(c, own.late);
    return own;
  };
  return {
    family,
    vocabSize: c.count('vocab_size', undefined, 1),
    hiddenSize: s.hidden,
    maxPositions: s.maxPositions,
    layers: Array.from({ length: s.layers }, (_, i) => ({
      mixer: r.mixer ? r.mixer(i) : { ...base, ...r.attention?.(i) },
      mlp: branch(i),
      ...ownOf(i),
    })),
    norm: r.norm,
    norms: PRE_NORMS,
    tied: c.flag('tie_word_embeddings', r.tied ?? false),
    biases: r.biases ?? [],
    ...(bos !== undefined && { bosTokenId: bos }),
    eosTokenIds: c.tokenIds('eos_token_id'),
    ...r.more,
  };
}

// ---- names ----

const PLAIN = (model: string): Names => ({
  embed: `${model}embed_tokens`,
  finalNorm: `${model}norm`,
  head: 'lm_head',
  layer: `${model}layers.{i}`,
  beforeMixer: 'input_layernorm',
  beforeMlp: 'post_attention_layernorm',
  q: 'self_attn.q_proj',
  k: 'self_attn.k_proj',
  v: 'self_attn.v_proj',
  o: 'self_attn.o_proj',
  qNorm: 'self_attn.q_norm',
  kNorm: 'self_attn.k_norm',
  gate: 'mlp.gate_proj',
  up: 'mlp.up_proj',
  down: 'mlp.down_proj',
});
export const LLAMA_NAMES = PLAIN('model.');

/** Rows of the parts of a fused tensor, one after the other, given how many heads each has. */
const headRows =
  (
    from: (s: { heads: number; kvHeads: number }) => number,
    count: (s: { heads: number; kvHeads: number }) => number,
  ): Rows =>
  (t, s) => {
    const total = (s.heads + 2 * s.kvHeads) * s.headDim;
    if (t.shape[0] !== total)
      throw new ShapeError(
        `a tensor of queries, keys and values has ${t.shape[0]} rows; ${s.heads} heads and ${s.kvHeads} key heads of ` +
          `${s.headDim} have ${total}`,
      );
    return t.narrow(0, from(s) * s.headDim, count(s) * s.headDim);
  };
/** All queries, all keys, all values. */
const QKV: { readonly q: Rows; readonly k: Rows; readonly v: Rows } = {
  q: headRows(
    () => 0,
    (s) => s.heads,
  ),
  k: headRows(
    (s) => s.heads,
    (s) => s.kvHeads,
  ),
  v: headRows(
    (s) => s.heads + s.kvHeads,
    (s) => s.kvHeads,
  ),
};
/** Per group of a key head: its queries, the key, the value. With one query a group: per head q, k, v. */
export const QKV_BY_GROUP: { readonly q: Rows; readonly k: Rows; readonly v: Rows } = (() => {
  const part =
    (which: 'q' | 'k' | 'v'): Rows =>
    (t, s) => {
      const each = s.heads / s.kvHeads;
      const rest = t.shape.slice(1);
      const grouped = t.reshape([s.kvHeads, each + 2, s.headDim, ...rest]);
      const [from, n] = which === 'q' ? [0, each] : [which === 'k' ? each : each + 1, 1];
      return grouped.narrow(1, from, n).reshape([s.kvHeads * n * s.headDim, ...rest]);
    };
  return { q: part('q'), k: part('k'), v: part('v') };
})();
export const fusedQkv = (
  name: string,
  rows: { readonly q: Rows; readonly k: Rows; readonly v: Rows } = QKV,
  more: Partial<Place> = {},
): Pick<Names, 'q' | 'k' | 'v'> => ({
  q: { name, rows: rows.q, ...more },
  k: { name, rows: rows.k, ...more },
  v: { name, rows: rows.v, ...more },
});
const half =
  (dim: number, i: 0 | 1) =>
  (t: Tensor): Tensor =>
    t.narrow(dim, (t.shape[dim] / 2) * i, t.shape[dim] / 2);
/** Gates over ups in one tensor. */
export const fusedGateUp = (name: string): Pick<Names, 'gate' | 'up'> => ({
  gate: { name, rows: half(0, 0) },
  up: { name, rows: half(0, 1) },
});
/** The same for stacked experts, (experts, 2 inner, hidden). */
export const stackedGateUp = (
  name: string,
  more: Partial<Place> = {},
): { readonly gate: Place; readonly up: Place } => ({
  gate: { name, rows: half(1, 0), ...more },
  up: { name, rows: half(1, 1), ...more },
});
/** Experts as separate tensors of a prefix, or (newer files) stacked. */
export function expertNames(at: string, [gate, up, down] = ['gate_proj', 'up_proj', 'down_proj']): Partial<Names> {
  const stacked = stackedGateUp(`${at}.experts.gate_up_proj`, { bare: true });
  return {
    router: `${at}.gate`,
    expertGate: [`${at}.experts.{e}.${gate}`, stacked.gate],
    expertUp: [`${at}.experts.{e}.${up}`, stacked.up],
    expertDown: [`${at}.experts.{e}.${down}`, { name: `${at}.experts.down_proj`, bare: true }],
  };
}
export const sharedNames = (at: string): Partial<Names> => ({
  sharedGate: `${at}.gate_proj`,
  sharedUp: `${at}.up_proj`,
  sharedDown: `${at}.down_proj`,
});

/** Sizes of parts that a config may leave without a layer: all layers dense, or none. */
export const eitherKind = (c: Config): void =>
  c.ignore(
    ...['intermediate_size', 'moe_intermediate_size', 'num_experts', 'num_local_experts', 'n_routed_experts'],
    ...['n_shared_experts', 'num_experts_per_tok', 'norm_topk_prob', 'routed_scaling_factor', 'n_group', 'topk_group'],
    ...['shared_expert_intermediate_size', 'moe_num_experts', 'moe_k', 'moe_num_shared_experts', 'moe_norm_min'],
    ...['num_shared_experts', 'moe_layer_start_index', 'moe_layer_end_index', 'moe_layer_interval', 'hidden_act'],
    ...['use_expert_bias', 'interleave_moe_layer_step', 'intermediate_size_mlp', 'router_jitter_noise'],
  );
/** The common part of mixtures. */
export const experts = (c: Config, o: Omit<Experts, 'kind' | 'activation'>): Experts => ({
  kind: 'experts',
  activation: activationOf(c),
  ...o,
});
/** A count that configs give different names. */
export function firstCount(c: Config, ...names: readonly string[]): number {
  const found = names.find((n) => c.has(n));
  for (const n of names) c.get(n);
  return c.count(found ?? names[0], undefined, 1);
}

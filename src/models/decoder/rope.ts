// Rotary embeddings: inverse frequencies of every kind that configs name, and tables of cosines and sines by position.
import type { DType } from '../../base/dtype.js';
import { FormatError, UnsupportedError } from '../../base/errors.js';
import { tensor } from '../../tensor/create.js';
import type { Device } from '../../tensor/device.js';
import { keep, scope } from '../../tensor/scope.js';
import type { Tensor } from '../../tensor/tensor.js';
import { Config, isObject, type Json } from '../files/config.js';

const ROPE_TYPES = ['default', 'linear', 'dynamic', 'llama3', 'yarn', 'longrope', 'proportional'] as const;
/** A kind of rope by the name that configs give it. */
export type RopeType = (typeof ROPE_TYPES)[number];

/** A rotary embedding as configs describe it. */
export interface RopeFeature {
  /** How frequencies are stretched for longer contexts. */
  readonly type: RopeType;
  /** The base of the frequencies: theta^(-2i / rotated). */
  readonly theta: number;
  /** The head's width, and how much of its front turns. */
  readonly headDim: number;
  /** How many of the head's numbers turn. */
  readonly rotated: number;
  /** What exponents count with, where it is odd: its last pair is cut short. */
  readonly span?: number;
  /** Pairs are neighbours (2i, 2i + 1) in the stored rows, not (i, i + rotated / 2). */
  readonly interleaved?: boolean;
  /** Whole heads are stored in pairs of neighbours, though a part of each turns: other pairs than those that turn. */
  readonly pairedHeads?: boolean;
  /** Turned the other way round. */
  readonly backward?: boolean;
  /** The longest context it was made for. */
  readonly maxPositions: number;
  /** How many times longer contexts are than those it was first trained with. */
  readonly factor?: number;
  /** The context it was first trained with. */
  readonly original?: number;
  /** llama3: waves longer than original / lowFactor are stretched in full. */
  readonly lowFactor?: number;
  /** llama3: waves shorter than original / highFactor stay as they are. */
  readonly highFactor?: number;
  /** yarn: frequencies that turn more often than this stay as they are. */
  readonly betaFast?: number;
  /** yarn: frequencies that turn less often than this are stretched in full. */
  readonly betaSlow?: number;
  /** yarn: whether the bounds between the two are rounded to whole dimensions. */
  readonly truncate?: boolean;
  /** yarn: DeepSeek's factor of cosines and sines. */
  readonly mscale?: number;
  /** yarn: DeepSeek's factor by which that is divided. */
  readonly mscaleAllDim?: number;
  /** What cosines and sines are multiplied by; default by type. */
  readonly attentionFactor?: number;
  /** longrope's past its border, where it is another. */
  readonly longAttentionFactor?: number;
  /** longrope: divisors of the frequencies within the original context. */
  readonly shortFactors?: readonly number[];
  /** longrope: divisors of the frequencies beyond it. */
  readonly longFactors?: readonly number[];
  /** dynamic with a fixed stretch of theta (hunyuan). */
  readonly alpha?: number;
  /** Frequencies are divided by these (GGUF's rope_freqs). */
  readonly divisors?: readonly number[];
}

export interface RopeReading {
  readonly headDim: number;
  readonly maxPositions: number;
  readonly interleaved?: boolean;
  readonly backward?: boolean;
  /** Sections for images' two directions: all of them hold the position of a text's token. */
  readonly sections?: boolean;
  readonly theta?: number;
  /**
   * The part that turns where the config does not say. Families without it turn whole heads, whatever a config says.
   */
  readonly partial?: number;
  /** Only what stands within the rope's parameters counts, not the same names beside them. */
  readonly within?: boolean;
  /** Nested parameters of one kind of layers: 'sliding_attention'. */
  readonly layerType?: string;
  /** Parameters that are not nested hold for full layers under their old name alone. */
  readonly apart?: boolean;
  /** Parameters that the family takes where the config gives none. */
  readonly unsaid?: Json;
}

/** The name under which GGUF files' keys say which part turns: of all families, unlike the hub's configs. */
export const GGUF_PARTIAL = 'rope.dimension_count / key_length';

/** The part of a head that turns, of what a config says within and beside the rope's parameters. */
function partialOf(given: readonly number[], type: string, o: RopeReading, where: string): number {
  const [share = o.partial ?? 1] = given;
  if (o.partial !== undefined || type === 'proportional' || share === 1) return share;
  if (type === 'default') return 1;
  throw new UnsupportedError(`${where}: partial_rotary_factor is ${share}; heads of this family turn as a whole`);
}

const isNumber = (v: number | undefined): v is number => v !== undefined;

/**
 * Reads rope parameters as transformers 5 writes them (rope_parameters) and as older files do (rope_theta,
 * rope_scaling, ...).
 */
export function readRope(config: Config, o: RopeReading): RopeFeature {
  const none = new Config(o.unsaid ?? {}, config.where);
  const old = (): Config | undefined => config.inner('rope_scaling');
  const given = config.inner('rope_parameters') ?? old() ?? none;
  const nested = o.layerType !== undefined ? given.inner(o.layerType) : undefined;
  const flat = !o.apart ? given : ((o.layerType === 'full_attention' ? old() : undefined) ?? none);
  const r = nested ?? flat;
  // Beside parameters by kind of layer transformers writes, and does not read, those that a caller gave for all.
  if (nested) given.ignore(...Object.keys(given.json).filter((name) => !isObject(given.json[name])));
  // Every name is asked for, so that none counts as overlooked; the first that is given holds.
  const both = (name: string): number[] =>
    [r.optional(name), ...[config.optional(name)].filter(() => !o.within)].filter(isNumber);
  const [theta = o.theta ?? 10_000] = both('rope_theta');
  const { headDim, maxPositions, interleaved } = o;
  // Where parameters lie apart, transformers does not know the oldest name of the type: it stays unread and is refused.
  let type = r.has('rope_type') || o.apart ? r.text('rope_type', 'default') : r.text('type', 'default');
  if (r.has('rope_type')) r.ignore('type');
  const partial = config.optional(GGUF_PARTIAL) ?? partialOf(both('partial_rotary_factor'), type, o, config.where);
  if (type === 'su') type = 'longrope';
  if (o.sections) {
    r.ignore('mrope_section', 'mrope_interleaved');
    if (type === 'mrope') type = 'default';
  }
  if (!(ROPE_TYPES as readonly string[]).includes(type))
    throw new UnsupportedError(
      `${config.where}: rope type ${JSON.stringify(type)}; served are ${ROPE_TYPES.join(', ')}`,
    );
  const span = Math.trunc(headDim * partial);
  const rotated = type === 'proportional' ? headDim : span + (span % 2);
  if (headDim % 2 !== 0 || rotated > headDim)
    throw new FormatError(`${config.where}: ${rotated} of ${headDim} numbers of a head cannot turn in pairs`);
  if (span !== rotated && type === 'yarn')
    throw new UnsupportedError(`${config.where}: a yarn rope that turns ${span} numbers of a head, which is odd`);
  // Where both are given, the one outside of the rope's parameters counts (phi3).
  const inside = r.optional('original_max_position_embeddings');
  const original = config.optional('original_max_position_embeddings') ?? inside;
  const base: RopeFeature = {
    type: type as RopeType,
    theta,
    headDim,
    rotated,
    maxPositions,
    ...(interleaved && { interleaved }),
    ...(o.backward && { backward: true }),
    ...(span !== rotated && { span }),
  };
  return { ...base, ...READ[base.type](r, { ...base, partial, original, nested: nested !== undefined }) };
}

/** What a type's reader knows besides its own fields. */
interface ReadSoFar extends RopeFeature {
  readonly partial: number;
  /** The parameters are those of one kind of layers. */
  readonly nested: boolean;
}
/** The fields of each type. */
const READ: Readonly<Record<RopeType, (r: Config, b: ReadSoFar) => Partial<RopeFeature>>> = {
  default: (r) => {
    // Old files carry these beside a default type; without a scaling they say nothing.
    r.ignore('factor', 'original_max_position_embeddings');
    return {};
  },
  linear: (r) => ({ factor: r.number('factor') }),
  proportional: (r, { partial, headDim }) => ({
    factor: r.optional('factor') ?? 1,
    rotated: 2 * Math.trunc((partial * headDim) / 2),
  }),
  dynamic: (r) => {
    const alpha = r.optional('alpha');
    // Hunyuan's files carry yarn's numbers beside alpha; its rope does not read them.
    if (alpha !== undefined) r.ignore('factor', 'beta_fast', 'beta_slow', 'mscale', 'mscale_all_dim');
    return { factor: r.optional('factor') ?? 1, ...(alpha !== undefined && { alpha }) };
  },
  llama3: (r, { original, maxPositions }) => ({
    factor: r.number('factor'),
    lowFactor: r.number('low_freq_factor'),
    highFactor: r.number('high_freq_factor'),
    original: original ?? maxPositions,
  }),
  yarn: (r, { original, maxPositions, nested }) => ({
    original: original ?? maxPositions,
    factor: r.optional('factor') ?? maxPositions / (original ?? maxPositions),
    betaFast: r.optional('beta_fast') || 32,
    betaSlow: r.optional('beta_slow') || 1,
    // transformers looks for `truncate` outside of nested parameters only.
    truncate: nested ? (r.get('truncate'), true) : r.flag('truncate', true),
    mscale: r.optional('mscale'),
    mscaleAllDim: r.optional('mscale_all_dim'),
    attentionFactor: r.optional('attention_factor'),
  }),
  longrope: (r, { original, maxPositions, rotated }) => {
    r.ignore('mscale', 'short_mscale', 'long_mscale'); // the first Phi-3 files; transformers does not read them
    return {
      original: original ?? maxPositions,
      factor: r.optional('factor') ?? maxPositions / (original ?? maxPositions),
      shortFactors: r.numbers('short_factor', rotated / 2),
      longFactors: r.numbers('long_factor', rotated / 2),
      attentionFactor: r.optional('attention_factor'),
    };
  },
};

/** Which of the tables for lengths so far holds: those of one regime share a table. */
export function ropeRegime(r: RopeFeature, length: number): number {
  if (r.type === 'dynamic' && r.alpha === undefined) return Math.max(length, r.maxPositions);
  if (r.type === 'longrope') return length > (r.original as number) ? 1 : 0;
  return 0;
}

const gain = (factor: number, m = 1): number => (factor <= 1 ? 1 : 0.1 * m * Math.log(factor) + 1);

/** Frequencies by pair, and what cosines and sines are multiplied by. */
export interface Frequencies {
  readonly inv: number[];
  readonly factor: number;
}
/** 1 / theta^(2i / width) of the pairs that turn. */
const powers = (r: RopeFeature, theta = r.theta, width = r.span ?? r.rotated): number[] =>
  Array.from({ length: r.rotated / 2 }, (_, i) => 1 / theta ** ((2 * i) / width));

/** What each type makes of the plain frequencies; `length`: tokens so far. */
const STRETCH: Readonly<Record<RopeType, (r: RopeFeature, inv: number[], length: number) => Frequencies>> = {
  default: (r, inv) => ({ inv, factor: r.attentionFactor ?? 1 }),
  linear: ({ factor = 1 }, inv) => ({ inv: inv.map((f) => f / factor), factor: 1 }),
  proportional: (r) => ({ inv: powers(r, r.theta, r.headDim).map((f) => f / (r.factor ?? 1)), factor: 1 }),
  dynamic: (r, _inv, length) => {
    const { alpha, theta, headDim, rotated, maxPositions, factor = 1 } = r;
    if (alpha !== undefined) return { inv: powers(r, theta * alpha ** (headDim / (headDim - 2))), factor: 1 };
    const stretch = (factor * Math.max(length, maxPositions)) / maxPositions - (factor - 1);
    return { inv: powers(r, theta * stretch ** (rotated / (rotated - 2))), factor: 1 };
  },
  llama3: ({ lowFactor: low = 1, highFactor: high = 4, original = 8192, factor = 1 }, inv) => {
    const scaled = inv.map((f) => {
      const wave = (2 * Math.PI) / f;
      if (wave < original / high) return f;
      if (wave > original / low) return f / factor;
      const smooth = (original / wave - low) / (high - low);
      return ((1 - smooth) * f) / factor + smooth * f;
    });
    return { inv: scaled, factor: 1 };
  },
  yarn: (r, inv) => {
    const { original = r.maxPositions, betaFast = 32, betaSlow = 1, mscale, mscaleAllDim, factor = 1, rotated: n } = r;
    const border = (b: number): number => (n * Math.log(original / (b * 2 * Math.PI))) / (2 * Math.log(r.theta));
    const rounded = r.truncate ?? true;
    const lo = Math.max(rounded ? Math.floor(border(betaFast)) : border(betaFast), 0);
    const top = Math.min(rounded ? Math.ceil(border(betaSlow)) : border(betaSlow), n - 1);
    const hi = top === lo ? top + 0.001 : top;
    const ramp = (i: number): number => Math.min(1, Math.max(0, (i - lo) / (hi - lo)));
    const own = mscale && mscaleAllDim ? gain(factor, mscale) / gain(factor, mscaleAllDim) : gain(factor);
    return {
      inv: inv.map((f, i) => f * (1 - ramp(i)) + (f / factor) * ramp(i)),
      factor: r.attentionFactor ?? own,
    };
  },
  longrope: (r, inv, length) => {
    const { original = r.maxPositions, factor = 1 } = r;
    const long = length > original;
    const by = (long ? r.longFactors : r.shortFactors) as readonly number[];
    const own = factor <= 1 ? 1 : Math.sqrt(1 + Math.log(factor) / Math.log(original));
    const given = (long ? r.longAttentionFactor : undefined) ?? r.attentionFactor;
    return { inv: inv.map((f, i) => f / by[i]), factor: given ?? own };
  },
};

/** Frequencies of the pairs that turn, and what cosines and sines are multiplied by. `length`: tokens so far. */
export const inverseFrequencies = (r: RopeFeature, length = 0): Frequencies =>
  STRETCH[r.type](
    r,
    powers(r).map((f, i) => f / (r.divisors?.[i] ?? 1)),
    length,
  );

/**
 * The order in which a head's stored rows are read so that pairs stand at (i, i + headDim / 2), as every kernel here
 * turns them: neighbours are taken apart, and the part that does not turn fills the rest of both halves. Undefined
 * where the rows are in that order already.
 */
export function rowOrder(r: RopeFeature | undefined): number[] | undefined {
  // The other way round is the same way with a pair's halves exchanged.
  if (r?.backward) {
    const half = r.headDim / 2;
    const plain = rowOrder({ ...r, backward: false }) ?? Array.from({ length: r.headDim }, (_, i) => i);
    return [...plain.slice(half), ...plain.slice(0, half)];
  }
  if (r?.pairedHeads) {
    const half = r.headDim / 2;
    const plain = rowOrder({ ...r, pairedHeads: false }) ?? Array.from({ length: r.headDim }, (_, i) => i);
    return plain.map((i) => (i < half ? 2 * i : 2 * (i - half) + 1));
  }
  if (!r || (!r.interleaved && (r.rotated === r.headDim || r.type === 'proportional'))) return undefined;
  const { headDim: d, rotated: n } = r;
  const first = Array.from({ length: n / 2 }, (_, i) => (r.interleaved ? 2 * i : i));
  const second = Array.from({ length: n / 2 }, (_, i) => (r.interleaved ? 2 * i + 1 : i + n / 2));
  const rest = Array.from({ length: d - n }, (_, i) => n + i);
  return [...first, ...rest.slice(0, (d - n) / 2), ...second, ...rest.slice((d - n) / 2)];
}

/** Cosines and sines by position, (positions, headDim / 2); the part that does not turn has cosine 1. */
export interface RopeTable {
  readonly cos: Tensor;
  readonly sin: Tensor;
}
export function ropeTable(r: RopeFeature, length: number, positions: number, dtype: DType, device: Device): RopeTable {
  const { inv, factor } = inverseFrequencies(r, length);
  const half = r.headDim / 2;
  const freqs = inv.map(Math.fround);
  const table = (f: (x: number) => number, still: number): Tensor => {
    const data = new Float32Array(positions * half).fill(still);
    for (let p = 0; p < positions; p++)
      for (let i = 0; i < freqs.length; i++) data[p * half + i] = f(Math.fround(p * freqs[i])) * factor;
    return keep(scope(() => tensor(data, { shape: [positions, half], device }).cast(dtype)));
  };
  return { cos: table(Math.cos, 1), sin: table(Math.sin, 0) };
}

/** Numbers of a table of all positions that is made at once: some times what the longest such models have. */
const LARGEST = 2 ** 26;
/** Refuses a table of all positions that would fill the memory before a tensor bears it out. */
export function requireTable(positions: number, width: number): void {
  if (positions * width > LARGEST)
    throw new FormatError(
      `a table of ${positions} positions (max_position_embeddings, n_positions) of ${width} numbers each is larger ` +
        "than any model's",
    );
}
/** The table of all positions that a model takes. */
export function wholeRope(r: RopeFeature, dtype: DType, device: Device): RopeTable {
  requireTable(r.maxPositions, r.headDim);
  return ropeTable(r, r.maxPositions, r.maxPositions, dtype, device);
}

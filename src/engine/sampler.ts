// From logits to a token: greedy, or drawn after temperature, top-k, top-p, min-p and a repetition penalty; the same
// seed draws the same.
import { ArgumentError } from '../base/errors.js';

/** How tokens are drawn. */
export interface SamplingOptions {
  /** 0 is greedy; default 0.8. */
  readonly temperature?: number;
  /** Only the k likeliest; 0: all. */
  readonly topK?: number;
  /** Only the likeliest whose probabilities add up to p; the one that crosses it counts. */
  readonly topP?: number;
  /** Only those at least this share as likely as the likeliest. */
  readonly minP?: number;
  /** Logits of tokens already there are divided (or multiplied, if negative) by it; 1: none. */
  readonly repetitionPenalty?: number;
  /** How many of the last tokens the penalty looks at. */
  readonly repetitionWindow?: number;
  /** Equal seeds draw equal tokens; default: one drawn by chance. */
  readonly seed?: number;
}

const limits: readonly (readonly [keyof SamplingOptions, (v: number) => boolean, string])[] = [
  ['temperature', (v) => v >= 0 && Number.isFinite(v), 'a number from 0'],
  ['topK', (v) => Number.isInteger(v) && v >= 0, 'a whole number from 0'],
  ['topP', (v) => v > 0 && v <= 1, 'in (0, 1]'],
  ['minP', (v) => v >= 0 && v <= 1, 'in [0, 1]'],
  ['repetitionPenalty', (v) => v > 0, 'above 0'],
  ['repetitionWindow', (v) => Number.isInteger(v) && v >= 0, 'a whole number from 0'],
  ['seed', (v) => Number.isSafeInteger(v), 'a whole number'],
];
function checkSampling(o: SamplingOptions): void {
  for (const [name, fits, rule] of limits) {
    const v = o[name];
    if (v !== undefined && !fits(v)) throw new ArgumentError(`sampling: ${name} ${v} is not ${rule}`);
  }
}

const GAMMA = 0x9e3779b97f4a7c15n;
const word = (x: bigint): bigint => BigInt.asUintN(64, x);
/** Where the stream of a seed begins. */
export const origin = (seed: number): bigint => word(BigInt(seed) * GAMMA + 0x632be59bd9b4e019n);
/** 53 random bits of a state as a number in [0, 1). */
function mixed(state: bigint): number {
  let z = word((state ^ (state >> 30n)) * 0xbf58476d1ce4e5b9n);
  z = word((z ^ (z >> 27n)) * 0x94d049bb133111ebn);
  return Number((z ^ (z >> 31n)) >> 11n) / 2 ** 53;
}
/** Number `index` of the stream of a seed, the same whoever asks and in whatever order. */
export const uniformAt = (seed: number, index: number): number => mixed(word(origin(seed) + BigInt(index + 1) * GAMMA));
/** The same numbers one after another. */
export function randomStream(seed: number): () => number {
  let state = origin(seed);
  return () => mixed((state = word(state + GAMMA)));
}

export const argmax = (x: Float32Array): number => {
  let best = 0;
  for (let i = 1; i < x.length; i++) if (x[i] > x[best] || x[best] !== x[best]) best = i;
  return best;
};

function penalise(logits: Float32Array, recent: readonly number[], penalty: number): void {
  for (const id of new Set(recent)) logits[id] = logits[id] >= 0 ? logits[id] / penalty : logits[id] * penalty;
}

/**
 * Where something is filtered, tokens whose logits lie this far below the largest, in units of the temperature, are
 * never drawn: e^-32.
 */
const REACH = 32;
const BINS = 1024;
/** e^-d where each bin begins, and where the last one ends. */
const AT_BIN = Float64Array.from({ length: BINS + 1 }, (_, bin) => Math.exp((-bin * REACH) / BINS));
/**
 * e^-d for 0 <= d < REACH, from where d's bin begins by its series: twice as fast as Math.exp, and 2 ulp off at most.
 */
function decay(d: number): number {
  // 32 bins a unit; numbers stand here as they are, since compilers know these alone.
  const bin = (d * 32) | 0;
  const r = bin * 0.03125 - d;
  const s = r * r;
  const high = 1 / 24 + r * (1 / 120) + s * (1 / 720 + r * (1 / 5040));
  return AT_BIN[bin] * (1 + r + s * (1 / 2 + r * (1 / 6) + s * high));
}

/** What is left of a distribution before a token is drawn from it. */
export interface Filter {
  readonly temperature: number;
  readonly topK: number;
  readonly topP: number;
  readonly minP: number;
  /** 1: all. */
  readonly typicalP?: number;
}
interface Weighed {
  readonly id: number;
  readonly weight: number;
}
/** The first `count` of these, and the weight of all that min-p leaves; the next draw overwrites them. */
interface Shortlist {
  readonly ids: Int32Array;
  readonly weights: Float64Array;
  readonly count: number;
  readonly mass: number;
}
/** Kept between draws: a vocabulary of 128 thousand is a megabyte. */
let scratch = new Float64Array(0);
const bins = new Uint32Array(BINS);
/**
 * Tokens that top-k, top-p and min-p may leave, likeliest first, and the weight of all that min-p leaves. Distances are
 * counted in bins first, so that only as much of a large vocabulary is sorted as it takes. kernels/decode-sample.hip
 * does the same.
 */
function shortlist(logits: Float32Array, top: number, { temperature, topK, topP, minP }: Filter): Shortlist {
  const begins = bins.fill(0);
  if (scratch.length < logits.length) scratch = new Float64Array(logits.length);
  const far = scratch;
  let mass = 0;
  for (let i = 0; i < logits.length; i++) {
    const d = (far[i] = (top - logits[i]) / temperature);
    const weight = d < REACH ? decay(d) : 0;
    if (!(d < REACH && weight >= minP)) far[i] = Infinity;
    else {
      mass += weight;
      begins[(d * 32) | 0]++;
    }
  }
  let [count, least, bin] = [0, 0, 0];
  for (; bin < BINS && (topK > 0 ? count < topK : least < topP * mass); bin++) {
    count += begins[bin];
    least += begins[bin] * AT_BIN[bin + 1];
  }
  for (let i = 0, at = 0; i < bin; i++) {
    const n = begins[i];
    begins[i] = at;
    at += n;
  }
  return { ...placed(far, begins, bin, logits.length), mass };
}
/** Longer bins are sorted by the library: insertion takes the square of the length. */
const FEW = 32;
let ids = new Int32Array(0);
let weights = new Float64Array(0);
/** What lies in the first bins, nearest first: bins stand in order, so that each is sorted by itself. */
function placed(far: Float64Array, begins: Uint32Array, bin: number, size: number): Omit<Shortlist, 'mass'> {
  if (ids.length < size) [ids, weights] = [new Int32Array(size), new Float64Array(size)];
  const list = { ids, weights, count: 0 };
  const furthest = (bin * REACH) / BINS;
  for (let id = 0; id < size; id++) {
    const d = far[id];
    if (!(d < furthest)) continue;
    const at = begins[(d * 32) | 0]++;
    list.ids[at] = id;
    list.weights[at] = decay(d);
    list.count++;
  }
  // Each now says where its bin ends.
  for (let i = 0, from = 0; i < bin; from = begins[i++]) if (begins[i] - from > 1) sortBin(list, from, begins[i]);
  return list;
}
/** By weight, the largest first, and among equals by number, in which order they stand already. */
function sortBin({ ids, weights }: Pick<Shortlist, 'ids' | 'weights'>, from: number, to: number): void {
  if (to - from > FEW) {
    const pairs = Array.from(ids.subarray(from, to), (id, i) => ({ id, weight: weights[from + i] }));
    pairs.sort((a, b) => b.weight - a.weight);
    pairs.forEach(({ id, weight }, i) => {
      ids[from + i] = id;
      weights[from + i] = weight;
    });
    return;
  }
  for (let i = from + 1; i < to; i++) {
    const id = ids[i];
    const weight = weights[i];
    let at = i;
    for (; at > from && weights[at - 1] < weight; at--) {
      ids[at] = ids[at - 1];
      weights[at] = weights[at - 1];
    }
    ids[at] = id;
    weights[at] = weight;
  }
}

/** Those whose surprise is nearest to the expected one, until they are together as likely as asked for. */
function typical(list: readonly Weighed[], share: number): Weighed[] {
  const total = list.reduce((a, { weight }) => a + weight, 0);
  const surprise = ({ weight }: Weighed): number => -Math.log(weight / total);
  const expected = list.reduce((a, w) => a + (w.weight / total) * surprise(w), 0);
  const ordered = list
    .map((w) => ({ w, off: Math.abs(surprise(w) - expected) }))
    .sort((a, b) => a.off - b.off || a.w.id - b.w.id);
  let [sum, n] = [0, 0];
  while (n < ordered.length && (n === 0 || sum < share * total)) sum += ordered[n++].w.weight;
  return ordered.slice(0, n).map(({ w }) => w);
}

/**
 * A token by a number in [0, 1). The same logits and number always give the same token; where all are -Infinity, it is
 * one of these.
 */
export function draw(logits: Float32Array, filter: Filter, uniform: number): number {
  const { temperature, topK, topP, minP, typicalP = 1 } = filter;
  const best = argmax(logits);
  if (temperature === 0) return best;
  const top = logits[best];
  if (top === -Infinity) return best; // distances from it are no numbers
  if (topK === 0 && topP === 1 && minP === 0 && typicalP === 1) {
    if (scratch.length < logits.length) scratch = new Float64Array(logits.length);
    let sum = 0;
    for (let i = 0; i < logits.length; i++) {
      const d = (top - logits[i]) / temperature;
      sum += scratch[i] = d < REACH ? decay(d) : Math.exp(-d);
    }
    let left = uniform * sum;
    for (let i = 0; i < logits.length; i++) if ((left -= scratch[i]) < 0) return i;
    return best;
  }
  const { ids, weights, count, mass } = shortlist(logits, top, filter);
  const most = topK > 0 ? Math.min(topK, count) : count;
  let total = mass;
  if (topK > 0) {
    total = 0;
    for (let i = 0; i < most; i++) total += weights[i];
  }
  let sum = 0;
  let n = 0;
  while (n < most && (n === 0 || topP === 1 || sum < topP * total)) sum += weights[n++];
  if (typicalP < 1) return drawTypical(ids, weights, n, typicalP, uniform);
  let left = uniform * sum;
  for (let i = 0; i < n; i++) if ((left -= weights[i]) < 0) return ids[i];
  return ids[n - 1];
}
function drawTypical(ids: Int32Array, weights: Float64Array, n: number, share: number, uniform: number): number {
  const list = Array.from(ids.subarray(0, n), (id, i) => ({ id, weight: weights[i] }));
  const open = typical(list, share);
  let left = uniform * open.reduce((a, { weight }) => a + weight, 0);
  for (const { id, weight } of open) if ((left -= weight) < 0) return id;
  return open[open.length - 1].id;
}

/** Options with nothing left open. */
export type Resolved = Required<SamplingOptions>;
const DEFAULTS: Resolved = {
  temperature: 0.8,
  topK: 0,
  topP: 1,
  minP: 0,
  repetitionPenalty: 1,
  repetitionWindow: 64,
  seed: 0,
};

/** Draws tokens from logits: penalties, temperature, top-k, top-p, min-p, typical-p, with a seed. */
export class Sampler {
  /** The options in force, defaults filled in. */
  readonly options: Resolved;
  /** Tokens drawn so far: each has a random number of its own. */
  drawn = 0;
  constructor(options: SamplingOptions = {}) {
    checkSampling(options);
    const given = Object.fromEntries(
      Object.keys(DEFAULTS).flatMap((k) =>
        options[k as keyof Resolved] === undefined ? [] : [[k, options[k as keyof Resolved]]],
      ),
    );
    this.options = { ...DEFAULTS, ...given };
  }
  /** Whether it always takes the likeliest token. */
  get greedy(): boolean {
    return this.options.temperature === 0;
  }
  /** Whether the largest logit is all it needs to know. */
  get plainGreedy(): boolean {
    return this.greedy && this.options.repetitionPenalty === 1;
  }
  /** The random number of token `index` in [0, 1). */
  uniform(index: number): number {
    return uniformAt(this.options.seed, index);
  }

  /** Changes logits in place. */
  sample(logits: Float32Array, history: readonly number[] = []): number {
    const { temperature, topK, topP, minP, repetitionPenalty, repetitionWindow } = this.options;
    if (repetitionPenalty !== 1)
      penalise(logits, history.slice(Math.max(0, history.length - repetitionWindow)), repetitionPenalty);
    if (temperature === 0) return argmax(logits);
    return draw(logits, { temperature, topK, topP, minP }, this.uniform(this.drawn++));
  }
}

// Orders drawn from a seed: the same seed gives the same order everywhere.
import { ArgumentError } from '../base/errors.js';
import { requireOptions } from '../ops/kernel-row.js';

/** Numbers in [0, 1) from a seed: splitmix's steps on 32 bits. */
export function randomNumbers(seed: number): () => number {
  if (!Number.isSafeInteger(seed)) throw new ArgumentError(`seed: ${seed} is not a whole number`);
  let state = (seed ^ Math.floor(seed / 2 ** 32)) >>> 0;
  return () => {
    state = (state + 0x9e3779b9) >>> 0;
    let z = state;
    z = Math.imul(z ^ (z >>> 16), 0x21f0aaad);
    z = Math.imul(z ^ (z >>> 15), 0x735a2d97);
    return ((z ^ (z >>> 15)) >>> 0) / 2 ** 32;
  };
}

/** The numbers 0 to n - 1 in an order drawn from a seed; each `round` is another order. */
export function permutation(n: number, seed: number, round = 0): number[] {
  const random = randomNumbers(seed + Math.imul(round, 0x85ebca6b));
  const order = Array.from({ length: n }, (_, i) => i);
  for (let i = n - 1; i > 0; i--) {
    const j = Math.floor(random() * (i + 1));
    [order[i], order[j]] = [order[j], order[i]];
  }
  return order;
}

/** Which samples an epoch takes, by their numbers, in their order. */
export type Sampler = (epoch: number) => readonly number[];
/** Options of weightedSampler. */
export interface WeightedOptions {
  /** Samples of an epoch; default as many as there are weights. */
  readonly count?: number;
  /** Whether a sample may be drawn several times; default true. */
  readonly replacement?: boolean;
  /** What is drawn from; default 0. */
  readonly seed?: number;
}
/** Samples in proportion to their weights, as for classes that are rare: each epoch draws anew. */
export function weightedSampler(weights: readonly number[], options: WeightedOptions = {}): Sampler {
  requireOptions('weightedSampler', options, ['count', 'replacement', 'seed']);
  const { count = weights.length, replacement = true, seed = 0 } = options;
  if (!Array.isArray(weights) || weights.some((w) => !(w >= 0 && w < Infinity)) || !weights.some((w) => w > 0))
    throw new ArgumentError('weightedSampler: takes a list of weights, finite, none negative, and some above 0');
  const possible = replacement ? Infinity : weights.filter((w) => w > 0).length;
  if (!Number.isSafeInteger(count) || count < 0 || count > possible)
    throw new ArgumentError(
      `weightedSampler: count ${count} is no whole number from ` +
        `0${replacement ? '' : ` to the ${possible} weights above 0`}`,
    );
  let sum = 0;
  const edges = weights.map((w) => (sum += w));
  return (epoch) => {
    const random = randomNumbers(seed + Math.imul(epoch, 0x85ebca6b));
    if (replacement) return Array.from({ length: count }, () => placeOf(edges, random() * sum));
    // The order in which exponential clocks of these rates ring.
    const rings = weights.flatMap((w, i) => (w > 0 ? [[-Math.log(1 - random()) / w, i] as const] : []));
    return rings
      .sort(([a], [b]) => a - b)
      .slice(0, count)
      .map(([, i]) => i);
  };
}
/** The first place whose edge lies above x. */
function placeOf(edges: readonly number[], x: number): number {
  let [low, high] = [0, edges.length - 1];
  while (low < high) {
    const middle = (low + high) >> 1;
    if (edges[middle] > x) high = middle;
    else low = middle + 1;
  }
  return low;
}

// From logits to a token: greedy, or drawn after temperature, top-k, top-p, min-p and a repetition penalty; the same seed draws the same.
import { ArgumentError } from '../base/errors.js';

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
  readonly seed?: number;
}

const limits: readonly (readonly [keyof SamplingOptions, (v: number) => boolean, string])[] = [
  ['temperature', (v) => v >= 0 && Number.isFinite(v), 'a number from 0'],
  ['topK', (v) => Number.isInteger(v) && v >= 0, 'a whole number from 0'],
  ['topP', (v) => v > 0 && v <= 1, 'in (0, 1]'],
  ['minP', (v) => v >= 0 && v <= 1, 'in [0, 1]'],
  ['repetitionPenalty', (v) => v > 0, 'above 0'],
  ['seed', (v) => Number.isSafeInteger(v), 'a whole number'],
];
export function checkSampling(o: SamplingOptions): void {
  for (const [name, fits, rule] of limits) {
    const v = o[name];
    if (v !== undefined && !fits(v)) throw new ArgumentError(`sampling: ${name} ${v} is not ${rule}`);
  }
}

/** A small counter-based generator: 53 random bits a call. */
export function randomStream(seed: number): () => number {
  let state = BigInt.asUintN(64, BigInt(seed) * 0x9e3779b97f4a7c15n + 0x632be59bd9b4e019n);
  return () => {
    state = BigInt.asUintN(64, state + 0x9e3779b97f4a7c15n);
    let z = state;
    z = BigInt.asUintN(64, (z ^ (z >> 30n)) * 0xbf58476d1ce4e5b9n);
    z = BigInt.asUintN(64, (z ^ (z >> 27n)) * 0x94d049bb133111ebn);
    return Number((z ^ (z >> 31n)) >> 11n) / 2 ** 53;
  };
}

export const argmax = (x: Float32Array): number => {
  let best = 0;
  for (let i = 1; i < x.length; i++) if (x[i] > x[best] || x[best] !== x[best]) best = i;
  return best;
};

export function penalise(logits: Float32Array, recent: readonly number[], penalty: number): void {
  for (const id of new Set(recent)) logits[id] = logits[id] >= 0 ? logits[id] / penalty : logits[id] * penalty;
}

/** The k likeliest, or as many as have the mass asked for, best first. Only as much of a large vocabulary is sorted as it takes. */
function likeliest(p: Float64Array, k: number, mass: number, minP: number): number[] {
  for (let floor = 1e-3; ; floor = floor < 1e-18 ? 0 : floor * 1e-3) {
    const least = Math.max(floor, minP);
    const ids: number[] = [];
    let sum = 0;
    for (let id = 0; id < p.length; id++) if (p[id] >= least) ids.push(id), (sum += p[id]);
    if (floor > minP && ids.length < k && sum < mass && floor > 0) continue;
    return ids.sort((a, b) => p[b] - p[a] || a - b).slice(0, k);
  }
}

export class Sampler {
  readonly options: SamplingOptions;
  readonly #random: () => number;
  constructor(options: SamplingOptions = {}) {
    checkSampling(options);
    this.options = options;
    this.#random = randomStream(options.seed ?? 0);
  }
  get greedy(): boolean {
    return (this.options.temperature ?? 0.8) === 0;
  }
  /** Whether the largest logit is all it needs to know. */
  get plainGreedy(): boolean {
    return this.greedy && (this.options.repetitionPenalty ?? 1) === 1;
  }

  /** Changes logits in place. */
  sample(logits: Float32Array, history: readonly number[] = []): number {
    const { temperature = 0.8, topK = 0, topP = 1, minP = 0, repetitionPenalty = 1, repetitionWindow = 64 } = this.options;
    if (repetitionPenalty !== 1) penalise(logits, history.slice(-repetitionWindow), repetitionPenalty);
    if (temperature === 0) return argmax(logits);
    const top = logits[argmax(logits)];
    const all = topK === 0 && topP === 1 && minP === 0;
    if (all) {
      let sum = 0;
      for (let i = 0; i < logits.length; i++) sum += logits[i] = Math.exp((logits[i] - top) / temperature);
      let left = this.#random() * sum;
      for (let i = 0; i < logits.length; i++) if ((left -= logits[i]) < 0) return i;
      return logits.length - 1;
    }
    const p = new Float64Array(logits.length);
    let mass = 0;
    for (let i = 0; i < p.length; i++) if ((p[i] = Math.exp((logits[i] - top) / temperature)) >= minP) mass += p[i];
    const few = likeliest(p, topK || p.length, topP === 1 ? Infinity : topP * mass, minP);
    const total = few.reduce((a, id) => a + p[id], 0);
    let sum = 0;
    let n = 0;
    while (n < few.length && (n === 0 || sum < topP * total)) sum += p[few[n++]];
    let left = this.#random() * sum;
    for (let i = 0; i < n; i++) if ((left -= p[few[i]]) < 0) return few[i];
    return few[n - 1];
  }
}

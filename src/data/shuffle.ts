// Orders drawn from a seed: the same seed gives the same order everywhere.
import { ArgumentError } from '../base/errors.js';

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

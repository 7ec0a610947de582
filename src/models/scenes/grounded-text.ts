// A text of several phrases with a point behind each: what its tokens see of each other, and where a phrase begins.
import { tensor } from '../../tensor/create.js';
import type { Tensor } from '../../tensor/tensor.js';

/** What parts phrases, in BERT's words: where a text begins and ends, a point, a question mark. */
const BETWEEN = new Set([101, 102, 1012, 1029]);

export interface Phrases {
  /** (b, t, t): 1 where a token sees another. */
  readonly seen: Tensor;
  /** (b, t): a token's place in its phrase. */
  readonly at: Tensor;
}
/** A token sees those of its phrase and the mark behind it; places are counted from each phrase's beginning. */
export function phrasesOf(ids: Tensor): Phrases {
  const [b, t] = ids.shape;
  const rows = ids.toArray() as number[][];
  const seen = new Uint8Array(b * t * t);
  const at = new Uint32Array(b * t);
  rows.forEach((row, i) => {
    let next = t;
    const ends = row.map(() => t);
    for (let k = t - 1; k >= 0; k--) {
      if (BETWEEN.has(row[k])) next = k;
      ends[k] = next;
    }
    // What the first and the last mark end is no phrase.
    const whole = (end: number): boolean => end !== 0 && end !== t - 1 && end !== t;
    let before = -1;
    for (let k = 0; k < t; k++) {
      for (let other = 0; other < t; other++)
        seen[(i * t + k) * t + other] = Number(other === k || (ends[k] === ends[other] && whole(ends[other])));
      if (BETWEEN.has(row[k])) before = k;
      at[i * t + k] = whole(ends[k]) ? Math.max(0, k - before - 1) : 0;
    }
  });
  const { device } = ids;
  return { seen: tensor(seen, { shape: [b, t, t], device }), at: tensor(at, { shape: [b, t], device }) };
}

/** Sines and cosines side by side of numbers (b, n, k), `width` of each; of two and more, the second comes first. */
export function sinesOf(numbers: Tensor, width: number): Tensor {
  const of = (f: (i: number) => number): Tensor =>
    tensor(
      Float32Array.from({ length: width }, (_, i) => f(i)),
      { device: numbers.device },
    );
  const [b, n, count] = numbers.shape;
  const waves = numbers
    .cast('f32')
    .unsqueeze(3)
    .mul(of((i) => (2 * Math.PI) / 10000 ** ((2 * Math.floor(i / 2)) / width)))
    .add(of((i) => (i % 2 === 0 ? 0 : Math.PI / 2)))
    .sin();
  if (count === 1) return waves.reshape([b, n, width]);
  const [first, second] = [0, 1].map((i) => waves.narrow(2, i, 1));
  const rest = count > 2 ? [waves.narrow(2, 2, count - 2)] : [];
  return second.cat([first, ...rest], 2).reshape([b, n, count * width]);
}

// Patches of several pictures, or of windows of them, in one row: each looks at its own part of the row alone.
import type { Tensor } from '../../tensor/tensor.js';

/** Rows `from` to `from + count * length` are `count` parts of one length, each of which looks at itself. */
export interface Run {
  readonly from: number;
  readonly count: number;
  readonly length: number;
}
/** Parts of these lengths, one after the other; equal neighbours go together. */
export function runsOf(lengths: readonly number[]): Run[] {
  const runs: Run[] = [];
  let from = 0;
  for (const length of lengths) {
    const last = runs.at(-1);
    if (last?.length === length) runs[runs.length - 1] = { ...last, count: last.count + 1 };
    else runs.push({ from, count: 1, length });
    from += length;
  }
  return runs;
}
/** What queries find, (1, patches, width); all are (1, patches, heads, width of a head). */
export function attended(q: Tensor, k: Tensor, v: Tensor, runs: readonly Run[]): Tensor {
  const [, , heads, width] = q.shape;
  const answers = runs.map(({ from, count, length }) => {
    const [a, b, c] = [q, k, v].map((t) => t.narrow(1, from, count * length).reshape([count, length, heads, width]));
    return a.sdpa(b, c, { layout: 'bthd' }).reshape([1, count * length, heads * width]);
  });
  return answers.length === 1 ? answers[0] : answers[0].cat(answers.slice(1), 1);
}

// Where we mean to differ from Candle: which case, which very values, and the reason in the row's own words.
import type { Value } from '../base/dtype.js';
import { OPS } from '../ops/table.js';
import type { Golden, GoldenCase } from './golden.js';

interface Difference {
  readonly ops: readonly string[];
  /** Whether these are the deliberate values: a listed difference excuses nothing else in its case. */
  readonly holds: (golden: Golden, c: GoldenCase, got: readonly Value[]) => boolean;
  readonly reason: (c: GoldenCase) => string;
}

/** Wherever the indices differ, ours is the earlier of two equal elements. */
function firstOfTies(golden: Golden, c: GoldenCase, got: readonly Value[]): boolean {
  const x = golden.values(c.inputs.x);
  const n = golden.tensor(c.inputs.x).shape.at(-1) as number;
  return golden.values(c.outputs.y).every((want, row) => {
    const [a, b] = [Number(got[row]), Number(want)];
    return a === b || (a < b && x[row * n + a] === x[row * n + b]);
  });
}

const DIFFERENCES: readonly Difference[] = [
  { ops: ['argmax', 'argmin'], holds: firstOfTies, reason: (c) => OPS[c.op as 'argmax'].differs as string },
];

export const reasonFor = (golden: Golden, c: GoldenCase, got: readonly Value[]): string | undefined =>
  DIFFERENCES.find((d) => d.ops.includes(c.op) && d.holds(golden, c, got))?.reason(c);

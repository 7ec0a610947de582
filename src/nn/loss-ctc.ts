// Connectionist temporal classification: the probability of a short sequence of labels over all ways to spread it over
// a longer one, with blanks between.
import { ArgumentError, ShapeError } from '../base/errors.js';
import { formatShape, kindOf } from '../base/shape.js';
import type { Reduction } from '../ops/functional.js';
import { requireOptions } from '../ops/kernel-row.js';
import { cat, tensor } from '../tensor/create.js';
import { Tensor } from '../tensor/tensor.js';

/** Options of ctc. */
export interface CtcOptions {
  /** The class that stands for no label; default 0. */
  readonly blank?: number;
  /** 'mean' divides each loss by its number of labels first, as PyTorch does; default 'mean'. */
  readonly reduction?: Reduction;
  /** Labels that do not fit into their input cost nothing instead of infinitely much; default false. */
  readonly zeroInfinity?: boolean;
  /** How many labels of each example count, of labels that are a tensor, as PyTorch has them; default all. */
  readonly targetLengths?: Counts;
}
/** Whole numbers as a list, or as a tensor that is read. */
export type Counts = readonly number[] | Tensor;
/** Labels of each example as lists, or as PyTorch has them: a tensor (batch, most labels), or all in a row. */
export type CtcLabels = readonly (readonly number[])[] | Tensor;
const asList = (counts: Counts): readonly number[] =>
  counts instanceof Tensor ? counts.cast('f64').toArray<number[]>() : counts;

/** Labels as lists, of which so many count. */
function listed(labels: CtcLabels, targetLengths: Counts | undefined): readonly (readonly number[])[] {
  if (!(labels instanceof Tensor)) {
    if (targetLengths !== undefined)
      throw new ArgumentError('ctc: targetLengths go with labels in a tensor; of lists, each has its own length');
    return labels;
  }
  const counts = targetLengths && asList(targetLengths);
  const whole = (sum: number): boolean => counts?.every((n) => Number.isInteger(n) && n >= 0 && n <= sum) ?? true;
  if (labels.rank === 2 && whole(labels.dim(1)) && (counts?.length ?? labels.dim(0)) === labels.dim(0))
    return labels
      .cast('f64')
      .toArray<number[][]>()
      .map((row, i) => row.slice(0, counts?.[i]));
  const row = labels.rank === 1 && counts && whole(labels.size) ? asList(labels) : undefined;
  if (!row || !counts || counts.reduce((a, b) => a + b, 0) !== row.length)
    throw new ShapeError(
      `ctc: labels ${formatShape(labels.shape)} are (batch, most labels) or all in a row, with targetLengths that ` +
        `add up${counts ? `, not [${counts.join(', ')}]` : ''}`,
    );
  let at = 0;
  return counts.map((n) => row.slice(at, (at += n)));
}
/** Stands for ln 0: far below any sum of logarithms, yet differences of it are numbers. */
const NEVER = -1e30;

function lengths(what: string, list: readonly number[], batch: number, most: number): readonly number[] {
  if (list.length !== batch || list.some((n) => !Number.isInteger(n) || n < 1 || n > most))
    throw new ArgumentError(`ctc: ${what} ${formatShape(list)} must be ${batch} whole numbers from 1 to ${most}`);
  return list;
}

function check(
  x: Tensor,
  labels: readonly (readonly number[])[],
  inputLengths: readonly number[],
  blank: number,
): void {
  if (x.rank !== 3)
    throw new ShapeError(`ctc: log-probabilities are (time, batch, classes), not ${formatShape(x.shape)}`);
  const [time, batch, classes] = x.shape;
  for (const [what, list] of Object.entries({ labels, 'input lengths': inputLengths }))
    if (!Array.isArray(list)) throw new ArgumentError(`ctc: ${what} are a list or a tensor, not ${kindOf(list)}`);
  if (labels.length !== batch) throw new ArgumentError(`ctc: ${labels.length} lists of labels for a batch of ${batch}`);
  lengths('input lengths', inputLengths, batch, time);
  for (const list of labels)
    for (const k of list)
      if (!Number.isInteger(k) || k < 0 || k >= classes || k === blank)
        throw new ArgumentError(
          `ctc: label ${k} is not a class from 0 to ${classes - 1} other than the blank, ${blank}`,
        );
  if (time === 0) throw new ShapeError('ctc: the log-probabilities have no step of time; there must be one at least');
}

/**
 * -ln of the probability of labels: log-probabilities (time, batch, classes), the class numbers of each example, as
 * lists or in a tensor, and how much of each input counts.
 */
export function ctc(
  logProbabilities: Tensor,
  targets: CtcLabels,
  lengthsOfInputs: Counts,
  options: CtcOptions = {},
): Tensor {
  const x = logProbabilities;
  requireOptions('ctc', options, ['blank', 'reduction', 'zeroInfinity', 'targetLengths']);
  const [labels, inputLengths] = [listed(targets, options.targetLengths), asList(lengthsOfInputs)];
  check(x, labels, inputLengths, options.blank ?? 0);
  const { blank = 0, reduction = 'mean', zeroInfinity = false } = options;
  const [time, batch] = x.shape;

  // States are the labels with blanks around: blank, a, blank, b, blank.
  const most = Math.max(0, ...labels.map((l) => l.length));
  const states = 2 * most + 1;
  const state = (n: number, s: number): number => (s % 2 === 0 ? blank : (labels[n][(s - 1) / 2] ?? blank));
  const table = <T>(f: (n: number, s: number) => T): T[][] =>
    labels.map((_, n) => Array.from({ length: states }, (_unused, s) => f(n, s)));
  const on = (rows: number[][]): Tensor => tensor(rows, { dtype: x.dtype, device: x.device });
  const classOf = tensor(table(state), { dtype: 'i64', device: x.device });
  // 0 where a step may come from two states before (over a blank between different labels), else never.
  const skips = on(table((n, s) => (s % 2 === 1 && s > 1 && state(n, s) !== state(n, s - 2) ? 0 : NEVER)));
  const begins = on(table((n, s) => (s === 0 || (s === 1 && labels[n].length > 0) ? 0 : NEVER)));
  const ends = on(table((n, s) => (s === 2 * labels[n].length || s === 2 * labels[n].length - 1 ? 0 : NEVER)));

  const emitted = (t: number): Tensor => x.narrow(0, t, 1).squeeze([0]).gather(1, classOf); // (batch, states)
  const before = (a: Tensor, by: number): Tensor =>
    states > by
      ? cat([a.newFull([batch, by], NEVER), a.narrow(1, 0, states - by)], 1)
      : a.newFull([batch, states], NEVER);
  let alpha = begins.add(emitted(0));
  for (let t = 1; t < time; t++) {
    const ways = [alpha, before(alpha, 1), before(alpha, 2).add(skips)].map((w) => w.unsqueeze(0));
    const next = cat(ways, 0)
      .logSumExp([0], false)
      .add(emitted(t))
      .clamp(2 * NEVER, Infinity);
    const running = inputLengths.map((n) => [t < n ? 1 : 0]);
    alpha = running.every(([r]) => r === 1)
      ? next
      : tensor(running, { dtype: 'u8', device: x.device }).broadcastTo([batch, states]).where(next, alpha);
  }
  const each = alpha.add(ends).logSumExp([1], false).neg(); // (batch)
  const never = each.gt(-NEVER / 2);
  const shown = never.where(each.newFull([], zeroInfinity ? 0 : Infinity), each);
  if (reduction === 'none') return shown;
  if (reduction === 'sum') return shown.sum();
  if (reduction !== 'mean')
    throw new ArgumentError(`ctc: reduction ${JSON.stringify(reduction)}; known are mean, sum, none`);
  const counts = labels.map((l) => Math.max(1, l.length));
  return shown.div(tensor(counts, { dtype: x.dtype, device: x.device })).mean();
}

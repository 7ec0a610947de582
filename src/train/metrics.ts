// Measures of a model's answers: shares of right ones, errors, and what a table of confusions tells.
import { ArgumentError, ShapeError } from '../base/errors.js';
import { formatShape, sameShape } from '../base/shape.js';
import { noGrad } from '../tensor/autograd.js';
import { scope } from '../tensor/scope.js';
import type { Tensor } from '../tensor/tensor.js';

/** The share of rows whose largest score is the target's: scores (..., classes), class numbers (...). */
export const accuracy = (scores: Tensor, target: Tensor): Tensor =>
  noGrad(() => {
    requireRows('accuracy', scores, target);
    return scores.argmax(-1).cast('i64').eq(target.cast('i64')).cast('f32').mean();
  });
/** The share of rows whose target is among the k largest scores. */
export const topAccuracy = (scores: Tensor, target: Tensor, k: number): Tensor =>
  noGrad(() => {
    requireRows('topAccuracy', scores, target);
    const [, ids] = scores.topk(k, -1);
    return ids.cast('i64').eq(target.cast('i64').unsqueeze(-1)).cast('f32').sum([-1], false).mean();
  });
/** The share of logits on the right side of 0, for targets of 0 and 1. */
export const binaryAccuracy = (logits: Tensor, target: Tensor): Tensor =>
  noGrad(() => logits.gt(0).cast('f32').eq(target.cast('f32')).cast('f32').mean());
/** The mean distance. */
export const meanAbsoluteError = (x: Tensor, y: Tensor): Tensor => noGrad(() => x.sub(y).abs().mean());
/** The share of the variance of y that x explains. */
export const rSquared = (x: Tensor, y: Tensor): Tensor =>
  noGrad(() => y.sub(x).sqr().sum().div(y.sub(y.mean()).sqr().sum()).affine(-1, 1));

function requireRows(op: string, scores: Tensor, target: Tensor): void {
  if (scores.rank < 1 || !sameShape(scores.shape.slice(0, -1), target.shape))
    throw new ShapeError(
      `${op}: targets ${formatShape(target.shape)} must be ${formatShape(scores.shape.slice(0, -1))}: the scores ` +
        `${formatShape(scores.shape)} without their classes`,
    );
}

/** Counts which class was taken for which, over as many batches as it is told. */
export class ConfusionMatrix {
  /** How many classes. */
  readonly classes: number;
  /** Rows are the true classes, columns what was answered. */
  readonly counts: number[][];
  constructor(classes: number) {
    if (!Number.isInteger(classes) || classes < 1)
      throw new ArgumentError(`ConfusionMatrix: ${classes} classes; it takes a whole number from 1`);
    this.classes = classes;
    this.counts = Array.from({ length: classes }, () => new Array<number>(classes).fill(0));
  }
  /** Adds scores (..., classes), or class numbers, with their targets. */
  add(answers: Tensor, target: Tensor): this {
    const [got, want] = scope(() =>
      noGrad(() => {
        const ids = answers.rank > target.rank ? answers.argmax(-1) : answers;
        if (!sameShape(ids.shape, target.shape)) requireRows('ConfusionMatrix', answers, target);
        return [ids, target].map((t) => Array.from(t.cast('i64').dataSync() as BigInt64Array, Number));
      }),
    );
    want.forEach((t, i) => {
      for (const k of [t, got[i]])
        if (k < 0 || k >= this.classes)
          throw new ArgumentError(`ConfusionMatrix: class ${k} is none of ${this.classes}`);
      this.counts[t][got[i]]++;
    });
    return this;
  }
  /** The share of right answers. */
  accuracy(): number {
    const all = this.counts.flat().reduce((a, b) => a + b, 0);
    return this.counts.reduce((n, row, k) => n + row[k], 0) / all;
  }
  /** Of the answers `k`, the share that is right; 0 where there are none. */
  precision(k: number): number {
    const answered = this.counts.reduce((n, row) => n + row[k], 0);
    return answered ? this.counts[k][k] / answered : 0;
  }
  /** Of the examples of class `k`, the share that was found; 0 where there are none. */
  recall(k: number): number {
    const there = this.counts[k].reduce((a, b) => a + b, 0);
    return there ? this.counts[k][k] / there : 0;
  }
  /** The harmonic mean of precision and recall of a class, or the mean of all classes'. */
  f1(k?: number): number {
    if (k === undefined) return this.counts.reduce((n, _, i) => n + this.f1(i), 0) / this.classes;
    const [p, r] = [this.precision(k), this.recall(k)];
    return p + r ? (2 * p * r) / (p + r) : 0;
  }
}

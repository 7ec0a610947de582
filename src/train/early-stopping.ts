// Early stopping: a run ends when a measure has not improved for a while.
import { requireOptions } from '../ops/kernel-row.js';

/** When a run should end early. */
export interface EarlyStoppingOptions {
  /** The measure that is watched: 'loss', 'validation.loss', 'validation.accuracy'; default 'validation.loss'. */
  readonly monitor?: string;
  /** Whether a smaller or a larger one is better; default 'min' for losses, 'max' else. */
  readonly mode?: 'min' | 'max';
  /** How many epochs in a row may bring nothing; default 3. */
  readonly patience?: number;
  /** How much better counts; default 0. */
  readonly minDelta?: number;
  /** Takes the best weights back at the end; default true. */
  readonly restoreBest?: boolean;
}
/** Watches a measure. */
export class EarlyStopping {
  /** The measure that is watched: 'validation.loss'. */
  readonly monitor: string;
  /** Whether smaller or larger is better. */
  readonly mode: 'min' | 'max';
  /** Epochs without improvement before training ends. */
  readonly patience: number;
  /** What counts as an improvement: more than this. */
  readonly minDelta: number;
  /** Whether the weights of the best epoch are put back at the end. */
  readonly restoreBest: boolean;
  /** The best measure so far. */
  best: number;
  /** Epochs since. */
  waited = 0;
  constructor(options: EarlyStoppingOptions = {}) {
    requireOptions('EarlyStopping', options, ['monitor', 'mode', 'patience', 'minDelta', 'restoreBest']);
    this.monitor = options.monitor ?? 'validation.loss';
    this.mode = options.mode ?? (this.monitor.endsWith('loss') ? 'min' : 'max');
    this.patience = options.patience ?? 3;
    this.minDelta = options.minDelta ?? 0;
    this.restoreBest = options.restoreBest ?? true;
    this.best = this.mode === 'min' ? Infinity : -Infinity;
  }
  /** Takes a measure in: whether it is the best so far, and whether it is time to stop. */
  tell(value: number): { readonly better: boolean; readonly stop: boolean } {
    const better = this.mode === 'min' ? value < this.best - this.minDelta : value > this.best + this.minDelta;
    if (better) [this.best, this.waited] = [value, 0];
    else this.waited++;
    return { better, stop: this.waited > this.patience };
  }
}

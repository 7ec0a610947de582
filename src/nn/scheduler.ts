// Schedulers as objects: they set an optimizer's learning rate, step by step or when a measure stops improving.
import { ArgumentError } from '../base/errors.js';
import { requireOptions } from '../ops/kernel-row.js';
import type { Schedule } from './schedule.js';

/** Anything with a learning rate: every optimizer. */
export interface HasRate {
  /** What a scheduler sets; optimizers read it at every step. */
  learningRate: number;
}

/**
 * Follows a schedule: the rate is what the optimizer had at first, times the schedule's factor of the step.
 *
 * ```ts
 * const scheduler = new Scheduler(optimizer, warmup(100, cosineDecay(1000)));
 * // after each step
 * scheduler.step();
 * ```
 */
export class Scheduler {
  /** Whose learning rate is set. */
  readonly optimizer: HasRate;
  /** Learning rate by step. */
  readonly schedule: Schedule;
  /** The rate that factors are of. */
  readonly base: number;
  #at = 0;
  constructor(optimizer: HasRate, schedule: Schedule) {
    this.optimizer = optimizer;
    this.schedule = schedule;
    this.base = optimizer.learningRate;
    this.#set();
  }
  #set(): void {
    const factor = this.schedule(this.#at);
    if (!Number.isFinite(factor))
      throw new ArgumentError(`Scheduler: the schedule's factor at step ${this.#at} is ${factor}, not a number`);
    this.optimizer.learningRate = this.base * factor;
  }
  /** Steps so far; setting it goes there, as after loading a checkpoint. */
  get at(): number {
    return this.#at;
  }
  set at(step: number) {
    if (!Number.isInteger(step) || step < 0)
      throw new ArgumentError(`Scheduler: step ${step} is not a whole number of at least 0`);
    this.#at = step;
    this.#set();
  }
  /** One step on; answers the new rate. */
  step(): number {
    this.at = this.#at + 1;
    return this.optimizer.learningRate;
  }
}

/** Options of ReduceOnPlateau. */
export interface PlateauOptions {
  /** Whether a smaller or a larger measure is better; default 'min'. */
  readonly mode?: 'min' | 'max';
  /** What the rate is multiplied by; default 0.1. */
  readonly factor?: number;
  /** How many measures in a row may bring nothing; default 10. */
  readonly patience?: number;
  /** How much better counts, as a share of the best; default 1e-4. */
  readonly threshold?: number;
  /** Measures after a reduction that do not count; default 0. */
  readonly cooldown?: number;
  /** The least rate; default 0. */
  readonly min?: number;
}
/** What a ReduceOnPlateau remembers, as plain data. */
export interface PlateauState {
  /** The best measure so far. */
  readonly best: number;
  /** Measures in a row that brought nothing. */
  readonly bad: number;
  /** Measures to come that do not count. */
  readonly cooling: number;
}
/** Makes the rate smaller when a measure stops improving. */
export class ReduceOnPlateau {
  /** Whose learning rate is set. */
  readonly optimizer: HasRate;
  /** The options in force, defaults filled in. */
  readonly options: Required<PlateauOptions>;
  /** The best measure so far. */
  best: number;
  #bad = 0;
  #cooling = 0;
  constructor(optimizer: HasRate, options: PlateauOptions = {}) {
    this.optimizer = optimizer;
    this.options = { mode: 'min', factor: 0.1, patience: 10, threshold: 1e-4, cooldown: 0, min: 0, ...options };
    requireOptions('ReduceOnPlateau', options, Object.keys(this.options));
    this.best = this.options.mode === 'min' ? Infinity : -Infinity;
  }
  /** What it remembers: plain data to save and restore. */
  get state(): PlateauState {
    return { best: this.best, bad: this.#bad, cooling: this.#cooling };
  }
  set state({ best, bad, cooling }: PlateauState) {
    [this.best, this.#bad, this.#cooling] = [best, bad, cooling];
  }
  /** Tells it a measure; answers the rate from here on. */
  step(measure: number): number {
    const { mode, factor, patience, threshold, cooldown, min } = this.options;
    const better = mode === 'min' ? measure < this.best * (1 - threshold) : measure > this.best * (1 + threshold);
    if (better || !Number.isFinite(this.best)) {
      this.best = measure;
      this.#bad = 0;
    } else this.#bad++;
    if (this.#cooling > 0) {
      this.#cooling--;
      this.#bad = 0;
    }
    if (this.#bad > patience) {
      this.optimizer.learningRate = Math.max(min, this.optimizer.learningRate * factor);
      this.#cooling = cooldown;
      this.#bad = 0;
    }
    return this.optimizer.learningRate;
  }
}

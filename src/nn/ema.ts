// A moving average of a module's weights, to evaluate and save instead of the last ones.
import { isFloat } from '../base/dtype.js';
import { ArgumentError, ShapeError, UnsupportedError } from '../base/errors.js';
import { formatShape, sameShape } from '../base/shape.js';
import { requireOptions, requireShare } from '../ops/kernel-row.js';
import { noGrad } from '../tensor/autograd.js';
import { keep, scope } from '../tensor/scope.js';
import { stepRecording } from '../tensor/step-recording.js';
import type { Tensor } from '../tensor/tensor.js';
import type { Module } from './module.js';

/** Options of the average. */
export interface EmaOptions {
  /** The share of the old average that stays at an update; default 0.999. */
  readonly decay?: number;
  /** Early updates take more of the new weights: at most (1 + updates) / (10 + updates) of the old stays. */
  readonly warmup?: boolean;
}
/**
 * A copy of a module's parameters that follows them slowly; buffers are copied as they are.
 *
 * ```ts
 * const average = new EMA(model);
 * // after each step
 * average.update();
 * // to evaluate
 * average.use(() => evaluate(model));
 * ```
 */
export class EMA {
  /** The module whose weights are averaged. */
  readonly module: Module;
  /** How much of the average stays at each update. */
  readonly decay: number;
  /** Whether early updates count more: the decay is at most (1 + n) / (10 + n). */
  readonly warmup: boolean;
  /** Updates so far. */
  updates = 0;
  readonly #average: ReadonlyMap<string, Tensor>;
  readonly #trained: ReadonlySet<string>;
  constructor(module: Module, options: EmaOptions = {}) {
    if (typeof (module as Partial<Module>)?.namedParameters !== 'function')
      throw new ArgumentError('EMA: takes a module, whose weights it averages by name, not a list of tensors');
    requireOptions('EMA', options, ['decay', 'warmup']);
    const { decay = 0.999, warmup = false } = options;
    requireShare('EMA', 'decay', decay);
    this.module = module;
    this.decay = decay;
    this.warmup = warmup;
    this.#trained = new Set(module.namedParameters().keys());
    this.#average = new Map([...module.stateDict()].map(([name, t]) => [name, noGrad(() => keep(t.detach().copy()))]));
  }
  /** Takes the module's weights of now into the average. */
  update(): void {
    const recorded = stepRecording();
    if (recorded && this.warmup)
      throw new UnsupportedError(
        'EMA: with warmup the decay changes from update to update, which a recorded step would not see; call ' +
          'update() ' +
          'outside of the captured function',
      );
    if (recorded) recorded.before(() => this.updates++);
    else this.updates++;
    const decay = this.warmup ? Math.min(this.decay, (1 + this.updates) / (10 + this.updates)) : this.decay;
    const now = this.module.stateDict();
    noGrad(() =>
      scope(() => {
        for (const [name, average] of this.#average) {
          const t = now.get(name);
          if (!t) throw new ArgumentError(`EMA: the module has no ${name} any more`);
          const follow = this.#trained.has(name) && isFloat(t.dtype);
          average.assign(follow ? average.ema(t.detach(), decay) : t.detach());
        }
      }),
    );
  }
  /** The average by name: what to save. */
  stateDict(): Map<string, Tensor> {
    return new Map(this.#average);
  }
  /** Takes up the average of an earlier run. */
  loadStateDict(from: ReadonlyMap<string, Tensor>, updates: number): void {
    for (const [name, average] of this.#average) {
      const t = from.get(name);
      if (!t) throw new ArgumentError(`EMA: the state has no ${JSON.stringify(name)}, which the module has`);
      if (!sameShape(t.shape, average.shape))
        throw new ShapeError(
          `EMA: the state ${JSON.stringify(name)} is ${formatShape(t.shape)}, ` +
            `in the module ${formatShape(average.shape)}`,
        );
    }
    for (const [name, average] of this.#average)
      noGrad(() => average.assign((from.get(name) as Tensor).to(average.device)));
    this.updates = updates;
  }
  /** Copies the average into the module for good. */
  copyTo(): void {
    this.module.loadStateDict(this.#average);
  }
  /** Runs f, which may be async, with the average in the module; its own weights come back afterwards. */
  use<T>(f: () => T): T {
    const own = new Map([...this.module.stateDict()].map(([name, t]) => [name, noGrad(() => keep(t.detach().copy()))]));
    const restore = (): void => {
      this.module.loadStateDict(own);
      for (const t of own.values()) t.dispose();
    };
    this.copyTo();
    let pending = false;
    try {
      const result = f();
      if (result instanceof Promise) {
        pending = true;
        return result.finally(restore) as T;
      }
      return result;
    } finally {
      if (!pending) restore();
    }
  }
  /** Gives the averages' memory back. */
  dispose(): void {
    for (const t of this.#average.values()) t.dispose();
  }
}

// Schedulers as objects: they set an optimizer's learning rate, step by step or when a measure stops improving.
import { ArgumentError } from '../base/errors.js';
import { requireOptions } from '../ops/kernel-row.js';
import { answerNames, refuseMore } from './answers.js';
import {
  cosineRestarts,
  exponentialDecay,
  heldRate,
  linearRate,
  multiStepDecay,
  oneCycle,
  polynomialDecay,
  type Schedule,
  stepDecay,
  triangle,
} from './schedule.js';

/** Anything with a learning rate: every optimizer. */
export interface HasRate {
  /** What a scheduler sets; optimizers read it at every step. */
  learningRate: number;
}

/** Which scheduler set an optimizer's rate last, and to what. */
const lastSet = new WeakMap<HasRate, { readonly by: object; readonly rate: number }>();
function requireRate(optimizer: HasRate): void {
  if (typeof optimizer?.learningRate !== 'number')
    throw new ArgumentError('a scheduler takes an optimizer first, whose learning rate it sets');
}
function setRate(optimizer: HasRate, rate: number, by: object = optimizer): void {
  requireRate(optimizer);
  optimizer.learningRate = rate;
  lastSet.set(optimizer, { by, rate });
}
/**
 * The rate that factors are of: what the optimizer has, or had before schedulers were made for it one after another.
 */
function firstRate(optimizer: HasRate): number {
  requireRate(optimizer);
  const last = lastSet.get(optimizer);
  const fresh = last?.by instanceof Scheduler && last.by.at === 0 && last.rate === optimizer.learningRate;
  return fresh ? (last.by as Scheduler).base : optimizer.learningRate;
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
    if (typeof schedule !== 'function')
      throw new ArgumentError(
        `${new.target.name}: a schedule is one function of the step, for every group; ` +
          'rates of groups keep their ratio to that of the optimizer',
      );
    this.optimizer = optimizer;
    this.schedule = schedule;
    this.base = firstRate(optimizer);
    this.#set();
  }
  #set(): void {
    const factor = this.schedule(this.#at);
    if (!Number.isFinite(factor))
      throw new ArgumentError(`Scheduler: the schedule's factor at step ${this.#at} is ${factor}, not a number`);
    setRate(this.optimizer, this.base * factor, this);
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
  step(...more: never[]): number {
    if (more.length > 0)
      throw new ArgumentError(
        `${this.constructor.name}: step takes nothing, not ${String(more[0])}; set \`at\` to go to a step, and ` +
          'ReduceLROnPlateau watches a measure',
      );
    const last = lastSet.get(this.optimizer);
    if (last?.by === this && last.rate !== this.optimizer.learningRate)
      throw new ArgumentError(
        `${this.constructor.name}: the optimizer's rate was set to ${this.optimizer.learningRate} since, by hand or ` +
          'by a checkpoint, which a step would undo; set `at` of the scheduler to the step to go on from, or make a ' +
          'new one',
      );
    if (last?.by !== this)
      throw new ArgumentError(
        `${this.constructor.name}: another scheduler of this optimizer set its rate since, which this one would ` +
          'undo; join them: SequentialLR for one after another, ChainedScheduler for all at once',
      );
    this.at = this.#at + 1;
    return this.optimizer.learningRate;
  }
}

/** A schedule's numbers by their names; those with a default may be left out. */
export type ScheduleNumbers<K extends string> = { readonly [N in K]?: number };
/** Numbers given one after another, or in one object by their names, as PyTorch's callers write them. */
function numbersOf<K extends string>(
  schedule: string,
  defaults: Readonly<Record<K, number | undefined>>,
  given: readonly unknown[],
): Record<K, number> {
  const names = Object.keys(defaults) as K[];
  const [first] = given;
  refuseMore(schedule, given.slice(names.length), `an optimizer and ${names.join(', ')}; steps so far are its \`at\``);
  const byName = typeof first === 'object' && first !== null ? (first as ScheduleNumbers<K>) : undefined;
  if (byName) requireOptions(schedule, byName, names);
  const numbers = names.map((name, i) => {
    const value = (byName ? byName[name] : given[i]) ?? defaults[name];
    if (typeof value !== 'number' || !Number.isFinite(value))
      throw new ArgumentError(`${schedule}: ${name} is ${value}, not a number`);
    return [name, value] as const;
  });
  return Object.fromEntries(numbers) as Record<K, number>;
}

/** The rate times gamma every stepSize steps: `Scheduler` with `stepDecay`. */
export class StepLR extends Scheduler {
  constructor(
    optimizer: HasRate,
    stepSize: number | ScheduleNumbers<'stepSize' | 'gamma'>,
    gamma?: number,
    ...more: never[]
  ) {
    const n = numbersOf('StepLR', { stepSize: undefined, gamma: 0.1 }, [stepSize, gamma, ...more]);
    super(optimizer, stepDecay(n.stepSize, n.gamma));
  }
}
/** The rate times gamma at each milestone: `Scheduler` with `multiStepDecay`. */
export class MultiStepLR extends Scheduler {
  constructor(
    optimizer: HasRate,
    milestones: readonly number[],
    gamma: number | ScheduleNumbers<'gamma'> = 0.1,
    ...more: never[]
  ) {
    super(optimizer, multiStepDecay(milestones, numbersOf('MultiStepLR', { gamma: 0.1 }, [gamma, ...more]).gamma));
  }
}
/** The rate times gamma at every step: `Scheduler` with `exponentialDecay`. */
export class ExponentialLR extends Scheduler {
  constructor(optimizer: HasRate, gamma: number | ScheduleNumbers<'gamma'>, ...more: never[]) {
    super(optimizer, exponentialDecay(numbersOf('ExponentialLR', { gamma: undefined }, [gamma, ...more]).gamma));
  }
}
/** The rate times a function of the step. */
export class LambdaLR extends Scheduler {}
/** The rate times a factor for the first steps, then as it is: `Scheduler` with `heldRate`. */
export class ConstantLR extends Scheduler {
  constructor(
    optimizer: HasRate,
    factor?: number | ScheduleNumbers<'factor' | 'totalIters'>,
    totalIters?: number,
    ...more: never[]
  ) {
    const n = numbersOf('ConstantLR', { factor: 1 / 3, totalIters: 5 }, [factor, totalIters, ...more]);
    super(optimizer, heldRate(n.factor, n.totalIters));
  }
}
/** Straight from one factor to another over the first steps: `Scheduler` with `linearRate`. */
export class LinearLR extends Scheduler {
  constructor(
    optimizer: HasRate,
    startFactor?: number | ScheduleNumbers<'startFactor' | 'endFactor' | 'totalIters'>,
    endFactor?: number,
    totalIters?: number,
    ...more: never[]
  ) {
    const defaults = { startFactor: 1 / 3, endFactor: 1, totalIters: 5 };
    const n = numbersOf('LinearLR', defaults, [startFactor, endFactor, totalIters, ...more]);
    super(optimizer, linearRate(n.startFactor, n.endFactor, n.totalIters));
  }
}
/** (1 - step / totalIters)^power: `Scheduler` with `polynomialDecay`. */
export class PolynomialLR extends Scheduler {
  constructor(
    optimizer: HasRate,
    totalIters?: number | ScheduleNumbers<'totalIters' | 'power'>,
    power?: number,
    ...more: never[]
  ) {
    const n = numbersOf('PolynomialLR', { totalIters: 5, power: 1 }, [totalIters, power, ...more]);
    super(optimizer, polynomialDecay(n.totalIters, n.power));
  }
}
/** A cosine from the rate down to etaMin over tMax steps and up again, as in PyTorch; `cosineDecay` stays down. */
export class CosineAnnealingLR extends Scheduler {
  constructor(
    optimizer: HasRate,
    tMax: number | ScheduleNumbers<'tMax' | 'etaMin'>,
    etaMin?: number,
    ...more: never[]
  ) {
    const n = numbersOf('CosineAnnealingLR', { tMax: undefined, etaMin: 0 }, [tMax, etaMin, ...more]);
    const end = n.etaMin / firstRate(optimizer);
    super(optimizer, (step) => end + ((1 - end) * (1 + Math.cos((Math.PI * step) / n.tMax))) / 2);
  }
}
/** Cosines that begin anew after t0 steps, each tMult as long as the one before: `Scheduler` with `cosineRestarts`. */
export class CosineAnnealingWarmRestarts extends Scheduler {
  constructor(
    optimizer: HasRate,
    t0: number | ScheduleNumbers<'t0' | 'tMult' | 'etaMin'>,
    tMult?: number,
    etaMin?: number,
    ...more: never[]
  ) {
    const defaults = { t0: undefined, tMult: 1, etaMin: 0 };
    const n = numbersOf('CosineAnnealingWarmRestarts', defaults, [t0, tMult, etaMin, ...more]);
    super(optimizer, cosineRestarts(n.t0, n.tMult, n.etaMin / firstRate(optimizer)));
  }
}
/** Options of OneCycleLR. */
export interface OneCycleOptions {
  /** The largest rate. */
  readonly maxLr: number;
  /** Steps in all. */
  readonly totalSteps: number;
  /** The share of steps on the way up; default 0.3. */
  readonly pctStart?: number;
  /** The first rate is the largest divided by this; default 25. */
  readonly divFactor?: number;
  /** The last rate is the first divided by this; default 1e4. */
  readonly finalDivFactor?: number;
}
/** Up to the largest rate and down, by cosines: `Scheduler` with `oneCycle`; the momentum stays as it is. */
export class OneCycleLR extends Scheduler {
  constructor(optimizer: HasRate, options: OneCycleOptions) {
    requireOptions('OneCycleLR', options, ['maxLr', 'totalSteps', 'pctStart', 'divFactor', 'finalDivFactor']);
    const { maxLr, totalSteps, pctStart = 0.3, divFactor = 25, finalDivFactor = 1e4 } = options;
    setRate(optimizer, maxLr);
    super(optimizer, oneCycle(totalSteps, pctStart, 1 / divFactor, 1 / (divFactor * finalDivFactor)));
  }
}

/** What CyclicLR takes besides its two rates. */
export interface CyclicOptions {
  /** Steps on the way up; default 2000. */
  readonly stepSizeUp?: number;
  /** Steps on the way down; default as many as up. */
  readonly stepSizeDown?: number;
  /** Whether peaks stay, halve with every cycle, or fall by gamma with every step; default 'triangular'. */
  readonly mode?: 'triangular' | 'triangular2' | 'exp_range';
  /** The factor of 'exp_range'; default 1. */
  readonly gamma?: number;
}
const PEAKS: Readonly<
  Record<NonNullable<CyclicOptions['mode']>, (cycle: number, step: number, gamma: number) => number>
> = {
  triangular: () => 1,
  triangular2: (cycle) => 0.5 ** cycle,
  exp_range: (_, step, gamma) => gamma ** step,
};
/** Between two rates, straight up and down: `Scheduler` with `triangle`, whose peaks may fall; no momentum moves. */
export class CyclicLR extends Scheduler {
  constructor(optimizer: HasRate, baseLr: number, maxLr: number, options: CyclicOptions = {}) {
    requireOptions('CyclicLR', options, ['stepSizeUp', 'stepSizeDown', 'mode', 'gamma']);
    const { stepSizeUp = 2000, stepSizeDown = stepSizeUp, mode = 'triangular', gamma = 1 } = options;
    numbersOf('CyclicLR', { baseLr: undefined, maxLr: undefined }, [baseLr, maxLr]);
    const peak = PEAKS[mode];
    if (!peak) throw new ArgumentError(`CyclicLR: unknown mode "${mode}"; known are ${Object.keys(PEAKS).join(', ')}`);
    const up = triangle(stepSizeUp, 0, stepSizeDown);
    setRate(optimizer, maxLr);
    super(optimizer, (step) => {
      const cycle = Math.floor(step / (stepSizeUp + stepSizeDown));
      return (baseLr + (maxLr - baseLr) * up(step) * peak(cycle, step, gamma)) / maxLr;
    });
  }
}
/** The rate times a function of the step, at every step anew. */
export class MultiplicativeLR extends Scheduler {
  constructor(optimizer: HasRate, factor: Schedule) {
    const products = [1];
    super(optimizer, (step) => {
      for (let i = products.length; i <= step; i++) products.push(products[i - 1] * factor(i));
      return products[step];
    });
  }
}
/** Schedulers that a list holds, of one optimizer. */
function requireOwn(name: string, optimizer: HasRate, schedulers: readonly Scheduler[]): void {
  if (schedulers.length === 0 || schedulers.some((s) => !(s instanceof Scheduler) || s.optimizer !== optimizer))
    throw new ArgumentError(`${name}: takes a list of schedulers of this optimizer, with one at least`);
}
/** One scheduler after another, each counting its steps from its milestone: warmup first, for instance. */
export class SequentialLR extends Scheduler {
  constructor(optimizer: HasRate, schedulers: readonly Scheduler[], milestones: readonly number[]) {
    requireOwn('SequentialLR', optimizer, schedulers);
    const rising = milestones.every((m, i) => Number.isInteger(m) && m > (i > 0 ? milestones[i - 1] : 0));
    if (milestones.length !== schedulers.length - 1 || !rising)
      throw new ArgumentError(
        `SequentialLR: milestones [${milestones.join(', ')}] are not ${schedulers.length - 1} rising whole ` +
          'numbers above 0',
      );
    super(optimizer, (step) => {
      const now = milestones.filter((m) => m <= step).length;
      const { schedule, base } = schedulers[now];
      return (schedule(step - (now > 0 ? milestones[now - 1] : 0)) * base) / schedulers[0].base;
    });
  }
}
/** All schedulers at once: their factors are multiplied. */
export class ChainedScheduler extends Scheduler {
  constructor(schedulers: readonly Scheduler[]) {
    requireOwn('ChainedScheduler', schedulers[0]?.optimizer, schedulers);
    super(schedulers[0].optimizer, (step) => schedulers.reduce((product, s) => product * s.schedule(step), 1));
  }
}

/** Options of ReduceLROnPlateau. */
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
/** What a ReduceLROnPlateau remembers, as plain data. */
export interface PlateauState {
  /** The best measure so far. */
  readonly best: number;
  /** Measures in a row that brought nothing. */
  readonly bad: number;
  /** Measures to come that do not count. */
  readonly cooling: number;
}
/** Makes the rate smaller when a measure stops improving. */
export class ReduceLROnPlateau {
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
    const defaults = { mode: 'min', factor: 0.1, patience: 10, threshold: 1e-4, cooldown: 0, min: 0 } as const;
    requireOptions('ReduceLROnPlateau', options, Object.keys(defaults));
    this.options = { ...defaults, ...options };
    if (this.options.mode !== 'min' && this.options.mode !== 'max')
      throw new ArgumentError(
        `ReduceLROnPlateau: mode ${JSON.stringify(this.options.mode)} is neither 'min' nor 'max'`,
      );
    const { factor, patience, cooldown, threshold, min } = this.options;
    if (!(factor >= 0 && factor < 1))
      throw new ArgumentError(`ReduceLROnPlateau: factor ${factor} is not a number from 0 to below 1`);
    for (const [name, value] of Object.entries({ patience, cooldown, threshold, min }))
      if (!(typeof value === 'number' && value >= 0))
        throw new ArgumentError(`ReduceLROnPlateau: ${name} ${String(value)} is not a number of at least 0`);
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
    if (typeof measure !== 'number')
      throw new ArgumentError(`ReduceLROnPlateau: step takes the measure that it watches, not ${typeof measure}`);
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
      setRate(this.optimizer, Math.max(min, this.optimizer.learningRate * factor), this);
      this.#cooling = cooldown;
      this.#bad = 0;
    }
    return this.optimizer.learningRate;
  }
}

for (const kind of [Scheduler, ReduceLROnPlateau])
  answerNames(kind.prototype, 'scheduler', {
    getLastLr: "optimizer.learningRate, times a group's share of it",
    lastEpoch: 'scheduler.at, the steps so far',
    stateDict: kind === Scheduler ? 'scheduler.at, a number to save and set' : 'scheduler.state, plain data',
    loadStateDict: kind === Scheduler ? 'scheduler.at = steps' : 'scheduler.state = saved',
  });

// What an optimizer's options may be: a value that is no number, or leaves the range in which the rule of an optimizer
// means something, is refused when the optimizer is made. Later it would be told of as NaN in the parameters.
import { ArgumentError } from '../base/errors.js';

interface Rule {
  readonly holds: (value: unknown) => boolean;
  readonly says: string;
}
const number = (says: string, holds: (v: number) => boolean): Rule => ({
  says,
  holds: (v) => typeof v === 'number' && holds(v),
});
const finite = number('a number', Number.isFinite);
const fromZero = number('a number of at least 0', (v) => v >= 0 && v < Infinity);
const aboveZero = number('a number above 0', (v) => v > 0 && v < Infinity);
const share = number('a number from 0 to below 1', (v) => v >= 0 && v < 1);
const shareOrAll = number('a number from 0 to 1', (v) => v >= 0 && v <= 1);
const flag: Rule = { says: 'true or false', holds: (v) => typeof v === 'boolean' };

/** By name: an option means the same in every optimizer that has it. */
const RULES: Readonly<Record<string, Rule>> = {
  learningRate: fromZero,
  maximize: flag,
  weightDecay: fromZero,
  eps: fromZero,
  momentum: fromZero,
  dampening: finite,
  nesterov: flag,
  beta1: share,
  beta2: share,
  amsgrad: flag,
  alpha: shareOrAll,
  centered: flag,
  rho: shareOrAll,
  learningRateDecay: fromZero,
  initialAccumulator: fromZero,
  momentumDecay: fromZero,
  decoupled: flag,
  slower: number('a number above 0 and below 1', (v) => v > 0 && v < 1),
  faster: number('a number above 1', (v) => v > 1 && v < Infinity),
  least: fromZero,
  most: number('a number of at least 0', (v) => v >= 0),
  beta2Decay: number('a number of at most 0', (v) => v <= 0 && v > -Infinity),
  eps1: { says: 'a number of at least 0, or undefined', holds: (v) => v === undefined || fromZero.holds(v) },
  eps2: fromZero,
  clip: aboveZero,
  iterations: number('a whole number from 0 to 99', (v) => Number.isInteger(v) && v >= 0 && v < 100),
  coefficients: {
    says: 'a list of three numbers',
    holds: (v) => Array.isArray(v) && v.length === 3 && v.every((c) => finite.holds(c)),
  },
  adjust: { says: "'original' or 'rms'", holds: (v) => v === 'original' || v === 'rms' },
  maxIterations: number('a whole number from 1', (v) => Number.isInteger(v) && v >= 1),
  maxEvaluations: number('a whole number from 1', (v) => Number.isInteger(v) && v >= 1),
  toleranceGrad: fromZero,
  toleranceChange: fromZero,
  history: number('a whole number from 1', (v) => Number.isInteger(v) && v >= 1),
};

/** Refuses values outside of the rules; options of optimizers that are written elsewhere have none. */
export function checkOptions(optimizer: string, options: object): void {
  for (const [name, value] of Object.entries(options)) {
    const rule = Object.hasOwn(RULES, name) ? RULES[name] : undefined;
    if (rule && !rule.holds(value))
      throw new ArgumentError(`${optimizer}: ${name} ${shown(value)} is not ${rule.says}`);
  }
  const { least, most } = options as { least?: number; most?: number };
  if (least !== undefined && most !== undefined && least > most)
    throw new ArgumentError(`${optimizer}: the least step, ${least}, is above the most, ${most}`);
}
/** Options without those that are given as undefined, which are left out like the others. */
export const given = <O extends object>(options: O): Partial<O> =>
  Object.fromEntries(Object.entries(options).filter(([, value]) => value !== undefined)) as Partial<O>;
const shown = (value: unknown): string =>
  typeof value === 'string' || Array.isArray(value) ? JSON.stringify(value) : String(value);

// Learning-rate schedules: functions from the step number to a factor.
import { ArgumentError } from '../base/errors.js';

function requireSteps(schedule: string, what: string, steps: number): void {
  if (!(Number.isInteger(steps) && steps > 0))
    throw new ArgumentError(`${schedule}: ${what} is ${String(steps)}, not a whole number from 1`);
}
/** From a step number, counted from 0, to what the rate is multiplied by. */
export type Schedule = (step: number) => number;

/** The rate as it is. */
export const constantRate = (): Schedule => () => 1;
/** Multiplied by `factor` every so many steps. */
export const stepDecay = (every: number, factor = 0.1): Schedule => {
  requireSteps('stepDecay', 'the number of steps between two', every);
  return (step) => factor ** Math.floor(step / every);
};
/** Multiplied by `factor` at every step. */
export const exponentialDecay =
  (factor: number): Schedule =>
  (step) =>
    factor ** step;
/** Straight from 1 to `end` over `total` steps. */
export const linearDecay =
  (total: number, end = 0): Schedule =>
  (step) =>
    1 + (end - 1) * Math.min(1, step / total);
/** Half a cosine from 1 to `end` over `total` steps. */
export const cosineDecay =
  (total: number, end = 0): Schedule =>
  (step) =>
    end + ((1 - end) * (1 + Math.cos(Math.PI * Math.min(1, step / total)))) / 2;
/** 1 for the first steps, then falling with the root of the step number. */
export const inverseSqrt =
  (from: number): Schedule =>
  (step) =>
    Math.sqrt(from / Math.max(from, step + 1));
/** From a small factor up to 1 over the first steps, then the given schedule. */
export const warmup =
  (steps: number, then: Schedule): Schedule =>
  (step) =>
    step < steps ? (step + 1) / steps : then(step - steps);
/** Up, flat, and down over the last part. */
export const warmupStableDecay =
  (total: number, up: number, down: number, end = 0): Schedule =>
  (step) =>
    step < up ? (step + 1) / up : step < total - down ? 1 : 1 + (end - 1) * Math.min(1, (step - (total - down)) / down);
/**
 * Up to 1 over the first share of all steps and down, both by cosines: PyTorch's OneCycleLR of an optimizer whose rate
 * is the largest one. `start` is its 1 / div_factor, `end` that by final_div_factor.
 */
export const oneCycle =
  (total: number, share = 0.3, start = 0.04, end = start * 1e-4): Schedule =>
  (step) => {
    const top = share * total - 1;
    const wave = (x: number): number => (1 + Math.cos(Math.PI * x)) / 2;
    return step <= top
      ? start + (1 - start) * (1 - wave(top > 0 ? step / top : 1))
      : end + (1 - end) * wave(Math.min(1, (step - top) / (total - 1 - top)));
  };
/** The rate times `factor` for the first steps, then as it is. */
export const heldRate =
  (factor: number, steps: number): Schedule =>
  (step) =>
    step < steps ? factor : 1;
/** Straight from `start` to `end` over the first steps, then `end`: PyTorch's LinearLR. */
export const linearRate =
  (start: number, end: number, steps: number): Schedule =>
  (step) =>
    start + (end - start) * Math.min(1, step / steps);
/** Multiplied by `factor` at each of the given steps. */
export const multiStepDecay =
  (steps: readonly number[], factor = 0.1): Schedule =>
  (step) =>
    factor ** steps.filter((s) => s <= step).length;
/** (1 - step / total)^power. */
export const polynomialDecay =
  (total: number, power = 1): Schedule =>
  (step) =>
    (1 - Math.min(1, step / total)) ** power;
/** Cosines that begin anew after `first` steps, each `times` as long as the one before. */
export const cosineRestarts = (first: number, times = 1, end = 0): Schedule => {
  // Without these rules the search below might never come to the step.
  requireSteps('cosineRestarts', 'the length of the first', first);
  requireSteps('cosineRestarts', 'what each is longer by', times);
  return (step) => {
    let [at, length] = [step, first];
    while (at >= length) {
      at -= length;
      length *= times;
    }
    return end + ((1 - end) * (1 + Math.cos((Math.PI * at) / length))) / 2;
  };
};
/** From `start` up to 1 and down again, over and over. */
export const triangle =
  (up: number, start = 0.1, down = up): Schedule =>
  (step) => {
    const at = step % (up + down);
    return start + (1 - start) * (at < up ? at / up : 1 - (at - up) / down);
  };

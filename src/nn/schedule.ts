// Learning-rate schedules: functions from the step number to a factor.
export type Schedule = (step: number) => number;

export const constantRate = (): Schedule => () => 1;
export const stepDecay =
  (every: number, factor = 0.1): Schedule =>
  (step) =>
    factor ** Math.floor(step / every);
export const exponentialDecay =
  (factor: number): Schedule =>
  (step) =>
    factor ** step;
export const linearDecay =
  (total: number, end = 0): Schedule =>
  (step) =>
    1 + (end - 1) * Math.min(1, step / total);
export const cosineDecay =
  (total: number, end = 0): Schedule =>
  (step) =>
    end + ((1 - end) * (1 + Math.cos(Math.PI * Math.min(1, step / total)))) / 2;
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
/** Up to 1 over the first share of all steps and down by a cosine. */
export const oneCycle =
  (total: number, share = 0.3, start = 0.04, end = 1e-4): Schedule =>
  (step) => {
    const up = total * share;
    const wave = (x: number): number => (1 + Math.cos(Math.PI * x)) / 2;
    return step < up
      ? start + (1 - start) * (1 - wave(step / up))
      : end + (1 - end) * wave(Math.min(1, (step - up) / (total - up)));
  };

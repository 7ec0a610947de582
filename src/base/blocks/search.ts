// The searches behind ggml's encoders: which scale, and which minimum, makes whole numbers stand for values best.
// Every operation rounds to f32 in ggml's order, so that the bytes come out the same.

const { fround, abs, min: least, max: most } = Math;
/** Below this a group counts as all zero. */
export const EPSILON = fround(1e-15);
const MAGIC = 12582912; // 1.5 * 2^23: adding it rounds an f32 to a whole number, ties to even

export const nearest = (x: number): number => fround(fround(x) + MAGIC) - MAGIC;
const clamp = (x: number, lo: number, hi: number): number => most(lo, least(hi, x));

/** Weights of a group: given ones, or undefined for the square of each value. */
export type Weights = Float32Array | undefined;
const weightOf = (w: Weights, x: Float32Array, i: number): number => (w ? w[i] : fround(x[i] * x[i]));

/** The value of largest magnitude, sign kept; the first of equals; 0 where all are (nearly) zero. */
export function extremeOf(x: Float32Array, n: number): number {
  let best = 0;
  for (let i = 0; i < n; i++) if (abs(x[i]) > abs(best)) best = x[i];
  return abs(best) < EPSILON ? 0 : best;
}

interface Fit {
  /** Sums of weight * value * level and weight * level^2. */
  lx: number;
  l2: number;
}

function fitLevels(x: Float32Array, n: number, w: Weights, level: (i: number) => number): Fit {
  const fit = { lx: 0, l2: 0 };
  for (let i = 0; i < n; i++) {
    const l = level(i);
    const wi = weightOf(w, x, i);
    fit.lx = fround(fit.lx + fround(fround(wi * x[i]) * l));
    fit.l2 = fround(fit.l2 + fround(fround(wi * l) * l));
  }
  return fit;
}

/**
 * x ~ scale * (level - half), levels 0 to 2 half - 1: the best of 19 scales around the one that maps the extreme to
 * level 0.
 */
export function symmetric(x: Float32Array, n: number, half: number, levels: Uint8Array, w: Weights): number {
  const extreme = extremeOf(x, n);
  if (extreme === 0) return levels.fill(0, 0, n), 0;
  const at = (inverse: number) => (i: number) => clamp(nearest(fround(inverse * x[i])), -half, half - 1);
  let level = at(fround(-half / extreme));
  let fit = fitLevels(x, n, w, level);
  let scale = fit.l2 > 0 ? fround(fit.lx / fit.l2) : 0;
  let best = fround(scale * fit.lx);
  for (let i = 0; i < n; i++) levels[i] = level(i) + half;
  for (let step = -9; step <= 9; step++) {
    if (step === 0) continue;
    level = at(fround(-fround(half + fround(fround(0.1) * step)) / extreme));
    fit = fitLevels(x, n, w, level);
    if (fit.l2 > 0 && fround(fit.lx * fit.lx) > fround(best * fit.l2)) {
      for (let i = 0; i < n; i++) levels[i] = level(i) + half;
      scale = fround(fit.lx / fit.l2);
      best = fround(scale * fit.lx);
    }
  }
  return scale;
}

/** Moves one level after another where that lowers the error, up to five rounds; sums are kept in step. */
function refine(
  x: Float32Array,
  n: number,
  w: Weights,
  fit: Fit,
  get: (i: number) => number,
  set: (i: number, l: number) => void,
  limit: (l: number) => number,
  alsoSquares: boolean,
): void {
  for (let round = 0; round < 5; round++) {
    let changed = false;
    for (let i = 0; i < n; i++) {
      const wi = weightOf(w, x, i);
      const l = get(i);
      let lx = fround(fit.lx - fround(fround(wi * x[i]) * l));
      let l2 = fround(fit.l2 - fround(fround(wi * l) * l));
      if (!(lx > 0) || (alsoSquares && !(l2 > 0))) continue;
      const moved = limit(nearest(fround(fround(x[i] * l2) / lx)));
      if (moved === l) continue;
      lx = fround(lx + fround(fround(wi * x[i]) * moved));
      l2 = fround(l2 + fround(fround(wi * moved) * moved));
      if (l2 > 0 && fround(fround(lx * lx) * fit.l2) > fround(fround(fit.lx * fit.lx) * l2)) {
        set(i, moved);
        fit.lx = lx;
        fit.l2 = l2;
        changed = true;
      }
    }
    if (!changed) return;
  }
}

/** As symmetric, but from one scale whose levels are then moved one by one (Q3_K without a matrix). */
export function symmetricByMoves(x: Float32Array, n: number, half: number, levels: Uint8Array): number {
  const extreme = extremeOf(x, n);
  if (extreme === 0) return levels.fill(0, 0, n), 0;
  const inverse = fround(-half / extreme);
  const limit = (l: number): number => clamp(l, -half, half - 1);
  for (let i = 0; i < n; i++) levels[i] = limit(nearest(fround(inverse * x[i]))) + half;
  const get = (i: number): number => levels[i] - half;
  const fit = fitLevels(x, n, undefined, get);
  refine(x, n, undefined, fit, get, (i, l) => (levels[i] = l + half), limit, false);
  return fit.l2 > 0 ? fround(fit.lx / fit.l2) : 0;
}

/** Scales and minima themselves, none negative: x ~ scale * level, levels 0 to top. */
export function positive(x: Float32Array, n: number, top: number, levels: Uint8Array, w: Float32Array): number {
  let largest = 0;
  for (let i = 0; i < n; i++) largest = most(largest, x[i]);
  if (largest < EPSILON) return levels.fill(0, 0, n), 0;
  const errorOf = (inverse: number, limit: number): number => {
    const scale = fround(1 / inverse);
    let sum = 0;
    for (let i = 0; i < n; i++) {
      const diff = fround(x[i] - fround(scale * least(limit, nearest(fround(inverse * x[i])))));
      sum = fround(sum + fround(fround(w[i] * diff) * diff));
    }
    return sum;
  };
  let inverse = fround(top / largest);
  let best = errorOf(inverse, Infinity);
  for (let step = -4; step <= 4; step++) {
    if (step === 0) continue;
    const other = fround(fround(fround(fround(0.1) * step) + top) / largest);
    const error = errorOf(other, top);
    if (error < best) {
      best = error;
      inverse = other;
    }
  }
  const limit = (l: number): number => least(top, l);
  for (let i = 0; i < n; i++) levels[i] = limit(nearest(fround(inverse * x[i])));
  const fit = fitLevels(x, n, w, (i) => levels[i]);
  refine(
    x,
    n,
    w,
    fit,
    (i) => levels[i],
    (i, l) => (levels[i] = l),
    limit,
    true,
  );
  return fit.l2 > 0 ? fround(fit.lx / fit.l2) : 0;
}

export interface Steps {
  readonly from: number;
  readonly by: number;
  readonly count: number;
  /** Errors count by magnitude instead of by square. */
  readonly magnitude?: boolean;
}

/** How far scale * level + base lies from x, with weights. */
function affineError(
  x: Float32Array,
  n: number,
  w: Float32Array,
  levels: Uint8Array,
  scale: number,
  base: number,
  magnitude = false,
): number {
  let sum = 0;
  for (let i = 0; i < n; i++) {
    const diff = fround(fround(fround(scale * levels[i]) + base) - x[i]);
    sum = fround(sum + fround(w[i] * (magnitude ? abs(diff) : fround(diff * diff))));
  }
  return sum;
}

/** The smallest and the largest number, and the sums of weights and of weighted numbers. */
function extent(
  x: Float32Array,
  n: number,
  w: Float32Array,
): { low: number; high: number; sumW: number; sumX: number } {
  let [low, high, sumW] = [x[0], x[0], w[0]];
  let sumX = fround(sumW * x[0]);
  for (let i = 1; i < n; i++) {
    if (x[i] < low) low = x[i];
    if (x[i] > high) high = x[i];
    sumW = fround(sumW + w[i]);
    sumX = fround(sumX + fround(w[i] * x[i]));
  }
  return { low, high, sumW, sumX };
}

const candidate = new Uint8Array(32);
/**
 * x ~ scale * level - minimum, levels 0 to top: least squares over a walk of scales. The minimum (never negative) goes
 * to `minimum[0]`.
 */
export function affine(
  x: Float32Array,
  n: number,
  top: number,
  levels: Uint8Array,
  w: Float32Array,
  steps: Steps,
  minimum: Float32Array,
): number {
  const { low: least, high, sumW, sumX } = extent(x, n, w);
  let low = Math.min(least, 0);
  if (high <= low) {
    levels.fill(0, 0, n);
    minimum[0] = -low;
    return 0;
  }
  let inverse = fround(top / fround(high - low));
  let scale = fround(1 / inverse);
  for (let i = 0; i < n; i++) levels[i] = clamp(nearest(fround(inverse * fround(x[i] - low))), 0, top);
  let best = affineError(x, n, w, levels, scale, low, steps.magnitude);
  // A better fit moves the lower end, and the next step starts from there.
  for (let step = 0; step <= steps.count; step++) {
    inverse = fround(fround(fround(steps.from + fround(steps.by * step)) + top) / fround(high - low));
    let sumL = 0;
    let sumL2 = 0;
    let sumXL = 0;
    for (let i = 0; i < n; i++) {
      const l = clamp(nearest(fround(inverse * fround(x[i] - low))), 0, top);
      candidate[i] = l;
      const wl = fround(w[i] * l);
      sumL = fround(sumL + wl);
      sumL2 = fround(sumL2 + fround(wl * l));
      sumXL = fround(sumXL + fround(wl * x[i]));
    }
    const det = fround(fround(sumW * sumL2) - fround(sumL * sumL));
    if (!(det > 0)) continue;
    let s = fround(fround(fround(sumW * sumXL) - fround(sumX * sumL)) / det);
    let base = fround(fround(fround(sumL2 * sumX) - fround(sumL * sumXL)) / det);
    if (base > 0) {
      base = 0;
      s = fround(sumXL / sumL2);
    }
    const error = affineError(x, n, w, candidate, s, base, steps.magnitude);
    if (error < best) {
      levels.set(candidate.subarray(0, n));
      best = error;
      scale = s;
      low = base;
    }
  }
  minimum[0] = -low;
  return scale;
}

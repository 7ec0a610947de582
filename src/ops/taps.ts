// Which elements of a line make each element of another, and with what weights: lines resized, smoothed and padded.

/** How an axis is read. */
export type TapRule =
  | 'same'
  | 'nearest'
  | 'nearest-exact'
  | 'linear'
  | 'bicubic'
  | 'smooth-linear'
  | 'smooth-bicubic'
  | 'area'
  | 'reflect'
  | 'replicate'
  | 'circular';
/** One axis of `from` elements that becomes one of `to`. */
export interface TapAxis {
  readonly rule: TapRule;
  readonly from: number;
  readonly to: number;
  /** Elements of the source from one of the result to the next; of pads, how many stand before the first. */
  readonly step: number;
  /** The outer elements of both stand on each other. */
  readonly align: boolean;
}
/** Element i of the result is the sum of weights[k] times element places[k], k from starts[i] to starts[i + 1]. */
export interface Taps {
  readonly starts: readonly number[];
  readonly places: readonly number[];
  readonly weights: readonly number[];
}

const clampTo = (i: number, n: number): number => Math.min(n - 1, Math.max(0, i));
/** Keys' cubic: near (up to 1) and far (1 to 2) from the place. */
const cubic = (t: number, a: number): number => {
  const x = Math.abs(t);
  if (x <= 1) return ((a + 2) * x - (a + 3)) * x * x + 1;
  return x < 2 ? ((a * x - 5 * a) * x + 8 * a) * x - 4 * a : 0;
};

/**
 * The element that element i of a resized line shows. The step, its product with the place and nothing else are rounded
 * to single precision, whatever the dtype: so PyTorch finds it, and other steps of the sum would show other elements.
 */
export function nearestPlace(i: number, n: number, step: number, exact: boolean): number {
  return Math.min(n - 1, Math.floor(Math.fround(Math.fround(exact ? i + 0.5 : i) * Math.fround(step))));
}

type Take = (at: number, weight: number) => void;
type TapsAt = (axis: TapAxis) => (i: number, take: Take) => void;
const placeOf = ({ step, align }: TapAxis, i: number): number => (align ? i * step : (i + 0.5) * step - 0.5);
const single =
  (at: (axis: TapAxis, i: number) => number): TapsAt =>
  (axis) =>
  (i, take) =>
    take(at(axis, i), 1);
/** A filter stretched over all elements that a smaller result leaves out. */
const smooth =
  (reaches: number, filter: (t: number) => number): TapsAt =>
  ({ from: n, step }) => {
    const wideness = Math.max(1, step);
    const reach = reaches * wideness;
    return (i, take) => {
      const center = (i + 0.5) * step;
      const from = Math.max(0, Math.trunc(center - reach + 0.5));
      const to = Math.min(n, Math.trunc(center + reach + 0.5));
      const weights = Array.from({ length: to - from }, (_, k) => filter((from + k - center + 0.5) / wideness));
      const total = weights.reduce((a, b) => a + b, 0);
      weights.forEach((w, k) => {
        take(from + k, w / total);
      });
    };
  };

const RULES: Readonly<Record<TapRule, TapsAt>> = {
  same: single((_, i) => i),
  nearest: single(({ from, step }, i) => nearestPlace(i, from, step, false)),
  'nearest-exact': single(({ from, step }, i) => nearestPlace(i, from, step, true)),
  linear: (axis) => (i, take) => {
    const at = Math.max(0, placeOf(axis, i));
    const low = clampTo(Math.floor(at), axis.from);
    const share = Math.min(1, at - low);
    take(low, 1 - share);
    take(clampTo(low + 1, axis.from), share);
  },
  bicubic: (axis) => (i, take) => {
    const place = placeOf(axis, i);
    const low = Math.floor(place);
    for (let k = -1; k <= 2; k++) take(clampTo(low + k, axis.from), cubic(place - low - k, -0.75));
  },
  'smooth-linear': smooth(1, (t) => Math.max(0, 1 - Math.abs(t))),
  'smooth-bicubic': smooth(2, (t) => cubic(t, -0.5)),
  area:
    ({ from, to }) =>
    (i, take) => {
      const [first, end] = [Math.floor((i * from) / to), Math.ceil(((i + 1) * from) / to)];
      for (let k = first; k < end; k++) take(k, 1 / (end - first));
    },
  reflect: single(({ from, step }, i) => {
    const at = Math.abs(i - step);
    return at < from ? at : 2 * (from - 1) - at;
  }),
  replicate: single(({ from, step }, i) => clampTo(i - step, from)),
  circular: single(({ from, step }, i) => (i - step + from) % from),
};
/** Rules by which every element shows one other. */
const SINGLE: readonly TapRule[] = ['same', 'nearest', 'nearest-exact', 'reflect', 'replicate', 'circular'];
export const showsOne = ({ rule }: TapAxis): boolean => SINGLE.includes(rule);

export function tapsOf(axis: TapAxis): Taps {
  const [starts, places, weights]: [number[], number[], number[]] = [[0], [], []];
  const at = RULES[axis.rule](axis);
  for (let i = 0; i < axis.to; i++) {
    at(i, (place, weight) => {
      places.push(place);
      weights.push(weight);
    });
    starts.push(places.length);
  }
  return { starts, places, weights };
}
/**
 * What goes back the other way: which results an element is part of, in their order, with the same weights. What has no
 * weight counts nowhere, be it infinite.
 */
export function transposedTaps({ starts, places, weights }: Taps, from: number): Taps {
  const into: number[][] = Array.from({ length: from }, () => []);
  const shares: number[][] = Array.from({ length: from }, () => []);
  for (let i = 0; i + 1 < starts.length; i++)
    for (let k = starts[i]; k < starts[i + 1]; k++) {
      if (weights[k] === 0) continue;
      into[places[k]].push(i);
      shares[places[k]].push(weights[k]);
    }
  const begins = [0];
  for (const list of into) begins.push(begins[begins.length - 1] + list.length);
  return { starts: begins, places: into.flat(), weights: shares.flat() };
}

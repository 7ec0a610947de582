// How far to go along a direction: until the loss has fallen enough and the slope has become flat enough (the strong
// conditions of Wolfe), by trial, with cubic curves through what is known.

/** What is known of a point on the line. */
export interface Trial<G> {
  /** How far along the line it is. */
  readonly t: number;
  /** The loss there. */
  readonly loss: number;
  /** How fast the loss rises along the line there. */
  readonly slope: number;
  /** What else is known there, which the search does not look at. */
  readonly known: G;
}
/** The share of the first slope that the loss must have fallen by, on average. */
const FALL = 1e-4;
/** The share of the first slope that may be left. */
const LEFT = 0.9;
/** How near to an end of a bracket a trial may be, as a share of its width: nearer ones would hardly narrow it. */
const MARGIN = 0.1;

/** The lowest point of the cubic curve through two points with their slopes; NaN where it has none. */
function lowest<G>(a: Trial<G>, b: Trial<G>): number {
  const chord = a.slope + b.slope - (3 * (a.loss - b.loss)) / (a.t - b.t);
  const root = Math.sqrt(chord * chord - a.slope * b.slope) * Math.sign(b.t - a.t);
  return b.t - ((b.t - a.t) * (b.slope + root - chord)) / (b.slope - a.slope + 2 * root);
}
const between = (t: number, least: number, most: number): number => Math.min(most, Math.max(least, t));

/**
 * A point that fulfils both conditions, found from the first guess on; where trials or the width of the bracket run out,
 * the lowest point found. `start` is at 0 and slopes down. A loss that is no number counts as too high.
 */
export function strongWolfe<G>(
  start: Trial<G>,
  guess: number,
  trial: (t: number) => Trial<G>,
  limits: { readonly trials: number; readonly width: number },
): Trial<G> {
  let left = limits.trials;
  const at = (t: number): Trial<G> => {
    left--;
    return trial(t);
  };
  const high = (p: Trial<G>): boolean => !(p.loss <= start.loss + FALL * p.t * start.slope);
  const flat = (p: Trial<G>): boolean => Math.abs(p.slope) <= -LEFT * start.slope;

  const narrow = (first: Trial<G>, other: Trial<G>): Trial<G> => {
    let [low, end] = [first, other];
    while (left > 0 && Math.abs(end.t - low.t) > limits.width) {
      const [from, to] = [Math.min(low.t, end.t), Math.max(low.t, end.t)];
      const margin = MARGIN * (to - from);
      const curve = lowest(low, end);
      const p = at(Number.isFinite(curve) ? between(curve, from + margin, to - margin) : (from + to) / 2);
      if (high(p) || p.loss >= low.loss) end = p;
      else {
        if (flat(p)) return p;
        if (p.slope * (end.t - low.t) >= 0) end = low;
        low = p;
      }
    }
    return low;
  };

  let before = start;
  let p = at(guess);
  while (true) {
    if (high(p) || (before !== start && p.loss >= before.loss)) return narrow(before, p);
    if (flat(p)) return p;
    if (p.slope >= 0) return narrow(p, before);
    if (left <= 0) return p;
    const curve = lowest(before, p);
    const least = p.t + 0.01 * (p.t - before.t);
    const next = Number.isFinite(curve) ? between(curve, least, 10 * p.t) : 2 * p.t;
    before = p;
    p = at(next);
  }
}

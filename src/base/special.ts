// Special functions in double that JavaScript lacks, for the reference engine: accurate to a few units in the last
// place.

const TWO_OVER_SQRT_PI = 2 / Math.sqrt(Math.PI);

/** exp(-x*x) without the error of rounding x*x: the square is split into an exact head and a small tail. */
function expMinusSquare(x: number): number {
  const head = Math.round(x * 1024) / 1024; // few enough bits that head*head is exact for |x| < 2^15
  return Math.exp(-head * head) * Math.exp((head - x) * (head + x));
}

/** Continued fraction of erfc for x >= 1, evaluated from the tail. */
function erfcTail(x: number): number {
  if (x > 27.3) return 0;
  const terms = x < 2 ? 400 : x < 4 ? 120 : 60;
  let f = 0;
  for (let k = terms; k >= 1; k--) f = k / 2 / (x + f);
  return expMinusSquare(x) / (Math.sqrt(Math.PI) * (x + f));
}

export function erf(x: number): number {
  if (x !== x || x === 0) return x; // -0 stays
  const a = Math.abs(x);
  if (a >= 1) return Math.sign(x) * (1 - erfcTail(a));
  // Taylor's series: below 1 its terms fall from the start, so hardly anything cancels.
  let power = x;
  let sum = 0;
  const terms: number[] = [];
  for (let n = 0; n < 40; n++) {
    terms.push(power / (2 * n + 1));
    power *= -(x * x) / (n + 1);
  }
  for (let n = terms.length - 1; n >= 0; n--) sum += terms[n]; // small ones first
  return TWO_OVER_SQRT_PI * sum;
}

export function erfc(x: number): number {
  return x >= 1 ? erfcTail(x) : 1 - erf(x);
}

/** What rounding lost in a * b: both are split into halves whose products are exact. */
function productError(a: number, b: number): number {
  const p = a * b;
  const split = (v: number): [number, number] => {
    const c = 134217729 * v;
    const head = c - (c - v);
    return [head, v - head];
  };
  const [ah, al] = split(a);
  const [bh, bl] = split(b);
  return al * bl - (p - ah * bh - al * bh - ah * bl);
}
/** sqrt(1/2) less its double. */
const SQRT1_2_TAIL = -4.833646656726457e-17;

/**
 * Standard normal distribution function. Its argument's own rounding is put right to first order: it would cost 2 t^2
 * units.
 */
export function normcdf(x: number): number {
  const t = -x * Math.SQRT1_2;
  const base = 0.5 * erfc(t);
  if (!(Math.abs(x) < 40)) return base;
  const lost = productError(-x, Math.SQRT1_2) - x * SQRT1_2_TAIL;
  return base - 0.5 * TWO_OVER_SQRT_PI * expMinusSquare(t) * lost;
}

/** C's pow: 1 to any power and anything to the 0 is 1, also with NaN; (-1)^inf is 1. */
export function cpow(x: number, y: number): number {
  if (x === 1 || (x === -1 && Math.abs(y) === Infinity)) return 1;
  return x ** y;
}

/** Round half away from zero, keeping -0. */
export function roundAway(x: number): number {
  const r = Math.sign(x) * Math.floor(Math.abs(x) + 0.5);
  if (Math.abs(x) < 0.5) return x < 0 || Object.is(x, -0) ? -0 : 0;
  return Math.abs(x) >= 2 ** 52 ? x : Math.abs(Math.abs(x) - Math.trunc(Math.abs(x))) < 0.5 ? Math.trunc(x) : r;
}

/** Round half to even, keeping -0. */
export function roundEven(x: number): number {
  if (!(Math.abs(x) < 2 ** 52)) return x;
  const magic = 2 ** 52;
  const r = Math.abs(x) + magic - magic;
  return x < 0 || Object.is(x, -0) ? -r : r;
}

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

function erfc(x: number): number {
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

/** Bernoulli's numbers over factorials: B2/2!, B4/4!, ... */
const BERNOULLI = [
  8.333333333333333e-2, -1.388888888888889e-3, 3.306878306878307e-5, -8.267195767195767e-7, 2.08767569878681e-8,
  -5.284190138687493e-10, 1.338253653068468e-11, -3.389680296322583e-13,
];
/** Sum of (x + k)^-s over k from 0, for whole s from 2: Euler and Maclaurin's formula once x is large. */
function hurwitz(s: number, from: number): number {
  let sum = 0;
  let x = from;
  for (; x < 10 + s; x++) sum += x ** -s;
  const last = x ** -s;
  sum += (x * last) / (s - 1) + last / 2;
  let term = (s * last) / x;
  BERNOULLI.forEach((b, k) => {
    sum += b * term;
    term *= ((s + 2 * k + 1) * (s + 2 * k + 2)) / (x * x);
  });
  return sum;
}

const EULER = 0.5772156649015329;
/** zeta(k) - 1 for whole k from 2. */
const ZETA_LESS_ONE = Array.from({ length: 60 }, (_, i) => hurwitz(i + 2, 2));
/** ln Gamma(2 + z) for |z| up to 1/2, by its Taylor series: nothing cancels at its zero. */
function logGammaNearTwo(z: number): number {
  let sum = 0;
  for (let k = ZETA_LESS_ONE.length + 1; k >= 2; k--) sum = ZETA_LESS_ONE[k - 2] / k - z * sum;
  return z * (1 - EULER) + z * z * sum;
}
/** x less the nearest whole number, exactly: what the sine and tangent of pi x depend on. */
const turn = (x: number): number => x - roundEven(x);

/** ln |Gamma(x)|. */
export function logGamma(x: number): number {
  if (x !== x) return x;
  if (Math.abs(x) === Infinity) return Infinity;
  if (x <= 0 && turn(x) === 0) return Infinity;
  if (x < 0) return Math.log(Math.PI / Math.abs(Math.sin(Math.PI * turn(x)))) - logGamma(1 - x);
  if (x < 0.5) return logGammaNearTwo(x) - Math.log1p(x) - Math.log(x);
  if (x < 1.5) return logGammaNearTwo(x - 1) - Math.log1p(x - 1);
  if (x < 10) {
    let product = 1;
    let near = x;
    for (; near > 2.5; product *= near) near--;
    return logGammaNearTwo(near - 2) + Math.log(product);
  }
  const z = 1 / (x * x);
  const tail = [1 / 12, -1 / 360, 1 / 1260, -1 / 1680, 1 / 1188, -691 / 360360, 1 / 156].reduceRight(
    (sum, c) => sum * z + c,
    0,
  );
  return (x - 0.5) * (Math.log(x) - 1) - 0.5 + 0.9189385332046728 + tail / x;
}

function digamma(x: number): number {
  if (x === 0) return 1 / -x;
  let sum = 0;
  let at = x;
  if (x < 0) {
    const r = turn(x);
    if (r === 0 || x === -Infinity) return NaN;
    sum = -Math.PI / Math.tan(Math.PI * r);
    at = 1 - x;
  }
  for (; at < 10; at++) sum -= 1 / at;
  if (!(at < 1e17)) return sum + Math.log(at);
  const z = 1 / (at * at);
  const tail = [1 / 12, -1 / 120, 1 / 252, -1 / 240, 1 / 132, -691 / 32760, 1 / 12].reduceRight(
    (total, c) => total * z + c,
    0,
  );
  return sum + Math.log(at) - 0.5 / at - z * tail;
}

/** The n-th derivative of digamma, ln Gamma's own; from the second on, NaN below -10000. */
export function polygamma(x: number, n: number): number {
  if (n === 0) return digamma(x);
  if (x !== x) return x;
  const sign = n % 2 === 1 ? 1 : -1;
  if (x === Infinity) return sign * 0;
  if (x <= 0 && turn(x) === 0) return sign * Infinity;
  if (n === 1 && x < 0) return (Math.PI / Math.sin(Math.PI * turn(x))) ** 2 - hurwitz(2, 1 - x);
  if (x < -10000) return NaN;
  let factorial = 1;
  for (let k = 2; k <= n; k++) factorial *= k;
  return sign * factorial * hurwitz(n + 1, x);
}

/** Modified Bessel function of the first kind, of order 0 or 1. */
export function besselI(order: 0 | 1, x: number): number {
  const a = Math.abs(x);
  if (!(a < Infinity)) return order === 0 ? a : x;
  if (a > 30) {
    let sum = 1;
    let term = 1;
    for (let k = 1; k < 40 && Math.abs(term) > 1e-18; k++) {
      term *= ((2 * k - 1) ** 2 - 4 * order) / (8 * k * a);
      sum += term;
    }
    const half = Math.exp(a / 2);
    const value = half * (sum / Math.sqrt(2 * Math.PI * a)) * half;
    return order === 1 && x < 0 ? -value : value;
  }
  let term = order === 0 ? 1 : x / 2;
  let sum = term;
  for (let k = 1; k < 120 && Math.abs(term) > Math.abs(sum) * 1e-18; k++) {
    term *= (a * a) / 4 / (k * (k + order));
    sum += term;
  }
  return sum;
}

/** The y with erf(y) = x, by Newton's method from a start that is near everywhere. */
export function erfinv(x: number): number {
  const a = Math.abs(x);
  if (!(a < 1)) return a === 1 ? x * Infinity : NaN;
  if (a < 1e-8) return x / TWO_OVER_SQRT_PI;
  // Winitzki's approximation, good to a few thousandths.
  const w = Math.log((1 - a) * (1 + a));
  const b = 2 / (Math.PI * 0.147) + w / 2;
  let y = Math.sqrt(Math.sqrt(b * b - w / 0.147) - b);
  for (let i = 0; i < 5; i++) {
    const miss = a < 0.5 ? erf(y) - a : 1 - a - erfc(y);
    const u = (miss / TWO_OVER_SQRT_PI) * Math.exp(y * y);
    y -= u / (1 + y * u);
  }
  return x < 0 ? -y : y;
}

/** The floor of a quotient, from the exact remainder, as Python and PyTorch compute it. */
export function floorDivide(x: number, y: number): number {
  if (y === 0) return x / y;
  const r = x % y;
  const quotient = (x - r) / y - (r !== 0 && r < 0 !== y < 0 ? 1 : 0);
  if (quotient === 0) return x / y < 0 || Object.is(x / y, -0) ? -0 : 0;
  const whole = Math.floor(quotient);
  return quotient - whole > 0.5 ? whole + 1 : whole;
}

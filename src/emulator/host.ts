// The host's side of generated code: exact arithmetic that WebAssembly lacks and the constants of range reduction.

/** A double as sign * mantissa * 2^exponent, exactly. */
function parts(x: number): { m: bigint; e: number } {
  const v = new DataView(new ArrayBuffer(8));
  v.setFloat64(0, x);
  const bits = v.getBigUint64(0);
  const e = Number((bits >> 52n) & 2047n);
  const f = bits & ((1n << 52n) - 1n);
  const m = e ? f | (1n << 52n) : f;
  return { m: bits >> 63n ? -m : m, e: (e || 1) - 1075 };
}

/** m * 2^e rounded to nearest even, or as the mode says: 1 up, 2 down, 3 toward zero. */
function roundBig(m: bigint, e: number, mode = 0): number {
  if (m === 0n) return 0;
  const sign = m < 0n ? -1 : 1;
  let a = m < 0n ? -m : m;
  const length = a.toString(2).length;
  // Keep 53 bits, fewer where the result is denormal.
  const drop = Math.max(length - 53, -1074 - e);
  if (drop > 0) {
    const unit = 1n << BigInt(drop);
    const rest = a & (unit - 1n);
    a >>= BigInt(drop);
    const half = unit >> 1n;
    const away = (mode === 1 && sign > 0) || (mode === 2 && sign < 0);
    if (mode === 0 ? rest > half || (rest === half && a & 1n) : away && rest > 0n) a += 1n;
    e += drop;
  }
  let out = Number(a);
  while (e > 900) {
    out *= 2 ** 900;
    e -= 900;
  }
  while (e < -900) {
    // Exact: a has no bits below the smallest denormal.
    out *= 2 ** -900;
    e += 900;
    if (e >= -900 || out === 0) break;
  }
  const result = sign * out * 2 ** e;
  // Rounding toward the finite side never reaches infinity.
  const inward = mode === 3 || (mode === 1 && sign < 0) || (mode === 2 && sign > 0);
  return inward && !Number.isFinite(result) ? sign * Number.MAX_VALUE : result;
}

/** a*b+c rounded once, as the mode says. */
export function fmaDirected64(a: number, b: number, c: number, mode: number): number {
  const plain = a * b + c;
  if (!Number.isFinite(a) || !Number.isFinite(b) || !Number.isFinite(c)) return plain;
  const [x, y, z] = [parts(a), parts(b), parts(c)];
  const e = Math.min(x.e + y.e, z.e);
  const sum = ((x.m * y.m) << BigInt(x.e + y.e - e)) + (z.m << BigInt(z.e - e));
  if (sum !== 0n) {
    const r = roundBig(sum, e, mode);
    return r === 0 && sum < 0n ? -0 : r;
  }
  // An exact zero: of like signs it keeps the sign, else it is -0 only when rounding down.
  const product = x.m * y.m === 0n ? a * b : NaN;
  return Object.is(product, c) ? c : mode === 2 ? -0 : 0;
}

/** (a*b+c) * 2^n, rounded once. */
export function fmaScaled64(a: number, b: number, c: number, n: number): number {
  if (!Number.isFinite(a) || !Number.isFinite(b) || !Number.isFinite(c)) return a * b + c;
  const [x, y, z] = [parts(a), parts(b), parts(c)];
  const e = Math.min(x.e + y.e, z.e);
  const sum = ((x.m * y.m) << BigInt(x.e + y.e - e)) + (z.m << BigInt(z.e - e));
  return sum === 0n ? (a * b + c) * 0 : roundBig(sum, e + n);
}

export function fma64(a: number, b: number, c: number): number {
  if (!Number.isFinite(a) || !Number.isFinite(b) || !Number.isFinite(c)) return a * b + c;
  if (a === 0 || b === 0) return a * b + c;
  if (c === 0) {
    const { m: ma, e: ea } = parts(a);
    const { m: mb, e: eb } = parts(b);
    const r = roundBig(ma * mb, ea + eb);
    return r === 0 ? a * b : r; // a product that underflows keeps its sign
  }
  const [x, y, z] = [parts(a), parts(b), parts(c)];
  const e = Math.min(x.e + y.e, z.e);
  const sum = ((x.m * y.m) << BigInt(x.e + y.e - e)) + (z.m << BigInt(z.e - e));
  return sum === 0n ? 0 : roundBig(sum, e);
}

/** The first 1201 bits of 2/pi after the point, by Machin's formula. */
let twoOverPi: bigint | undefined;
function twoOverPiBits(): bigint {
  if (twoOverPi === undefined) {
    const p = 1400n;
    const one = 1n << p;
    const arctan = (n: bigint): bigint => {
      let term = one / n;
      let sum = term;
      for (let k = 3n, s = -1n; term !== 0n; k += 2n, s = -s) {
        term /= n * n;
        sum += (s * term) / k;
      }
      return sum;
    };
    const pi = 4n * (4n * arctan(5n) - arctan(239n));
    twoOverPi = ((2n * one * one) / pi) >> (p - 1201n);
  }
  return twoOverPi;
}

/** v_trig_preop_f64: 53 bits of 2/pi at a place the argument's exponent and a segment choose. */
export function trigPreop(x: number, segment: number): number {
  const v = new DataView(new ArrayBuffer(8));
  v.setFloat64(0, x);
  const exponent = (v.getUint32(0) >>> 20) & 2047;
  let shift = (segment & 31) * 53;
  if (exponent > 1077) shift += exponent - 1077;
  const bits = (twoOverPiBits() << BigInt(shift)) & ((1n << 1201n) - 1n);
  const value = Number(bits >> 1148n);
  let scale = -53 - shift;
  if (exponent >= 1968) scale += 128;
  return roundBig(BigInt(value), scale);
}

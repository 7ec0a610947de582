// Exact conversions between doubles and the small float formats: round to nearest even, NaN, infinities, denormals.

const scratch = new DataView(new ArrayBuffer(8));
const f32 = new Float32Array(1);
const u32 = new Uint32Array(f32.buffer);

export function f32Bits(x: number): number {
  f32[0] = x;
  return u32[0];
}

function bitsF32(bits: number): number {
  u32[0] = bits;
  return f32[0];
}

/**
 * Rounds a finite double to `mantissa` stored bits with smallest normal exponent `minExp`, nearest even, in one step.
 */
function roundTo(x: number, mantissa: number, minExp: number): number {
  scratch.setFloat64(0, x);
  const exponent = ((scratch.getUint32(0) >>> 20) & 0x7ff) - 1023;
  const unit = 2 ** (Math.max(exponent, minExp) - mantissa); // the spacing of representable values around x
  const q = x / unit; // exact: a power of two
  const r = Math.round(q);
  const even = Math.abs(q - Math.trunc(q)) === 0.5 && r % 2 !== 0 ? r - 1 : r; // Math.round goes up on ties
  return even * unit;
}

export function toF16Bits(x: number): number {
  if (x !== x) return 0x7fff; // CUDA's canonical NaN
  const sign = x < 0 || Object.is(x, -0) ? 0x8000 : 0;
  const a = Math.abs(x);
  if (a >= 65520) return sign | 0x7c00; // half way to the next power rounds to infinity
  const r = roundTo(a, 10, -14);
  if (r === 0) return sign;
  if (r < 2 ** -14) return sign | (r * 2 ** 24); // denormal
  const e = Math.floor(Math.log2(r));
  return sign | ((e + 15) << 10) | ((r / 2 ** e - 1) * 1024);
}

export function fromF16Bits(b: number): number {
  const sign = b & 0x8000 ? -1 : 1;
  const e = (b >> 10) & 31;
  const m = b & 1023;
  if (e === 31) return m ? NaN : sign * Infinity;
  return sign * (e ? (1 + m / 1024) * 2 ** (e - 15) : m * 2 ** -24);
}

export function toBf16Bits(x: number): number {
  if (x !== x) return 0x7fff;
  const sign = x < 0 || Object.is(x, -0) ? 0x8000 : 0;
  const a = Math.abs(x);
  if (a === Infinity) return sign | 0x7f80;
  const r = roundTo(a, 7, -126);
  return sign | (f32Bits(r) >>> 16); // r fits f32 exactly; beyond its range it is infinity there
}

export function fromBf16Bits(b: number): number {
  return bitsF32((b << 16) >>> 0);
}

/** f8e4m3 (no infinities): values beyond 448 saturate to 448, as NVIDIA's SATFINITE conversion does; NaN is 0x7f. */
export function toF8Bits(x: number): number {
  if (x !== x) return 0x7f;
  const sign = x < 0 || Object.is(x, -0) ? 0x80 : 0;
  const a = Math.abs(x);
  if (a >= 448) return sign | 0x7e;
  const r = roundTo(a, 3, -6);
  if (r === 0) return sign;
  if (r < 2 ** -6) return sign | (r * 2 ** 9);
  const e = Math.floor(Math.log2(r));
  return sign | ((e + 7) << 3) | ((r / 2 ** e - 1) * 8);
}

export function fromF8Bits(b: number): number {
  const sign = b & 0x80 ? -1 : 1;
  const e = (b >> 3) & 15;
  const m = b & 7;
  if (e === 15 && m === 7) return NaN;
  return sign * (e ? (1 + m / 8) * 2 ** (e - 7) : m * 2 ** -9);
}

/** f8e5m2, the upper half of an f16: values from 61440 on round to infinity; NaN is 0x7f. */
export function toE5m2Bits(x: number): number {
  if (x !== x) return 0x7f;
  const sign = x < 0 || Object.is(x, -0) ? 0x80 : 0;
  const a = Math.abs(x);
  if (a >= 61440) return sign | 0x7c;
  const r = roundTo(a, 2, -14);
  if (r === 0) return sign;
  if (r < 2 ** -14) return sign | (r * 2 ** 16);
  const e = Math.floor(Math.log2(r));
  return sign | ((e + 15) << 2) | ((r / 2 ** e - 1) * 4);
}

export const fromE5m2Bits = (b: number): number => fromF16Bits(b << 8);

/** A finite double as mantissa * 2^exponent. */
function parts(x: number): [mantissa: bigint, exponent: number] {
  scratch.setFloat64(0, x);
  const bits = scratch.getBigUint64(0);
  const e = Number((bits >> 52n) & 0x7ffn);
  const m = (bits & 0xfffffffffffffn) | (e ? 0x10000000000000n : 0n);
  return [bits >> 63n ? -m : m, (e || 1) - 1075];
}

/** a * b + c with one rounding; results below the smallest normal number may be rounded twice. */
export function fma(a: number, b: number, c: number): number {
  if (!Number.isFinite(a) || !Number.isFinite(b) || !Number.isFinite(c) || a === 0 || b === 0) return a * b + c;
  const [[ma, ea], [mb, eb], [mc, ec]] = [parts(a), parts(b), parts(c)];
  const low = Math.min(ea + eb, ec);
  const sum = ((ma * mb) << BigInt(ea + eb - low)) + (mc << BigInt(ec - low));
  if (sum === 0n) return a * b + c; // the sign of zero
  // Sixty-odd bits and a sticky one: all that rounding to a double can see.
  const size = sum < 0n ? -sum : sum;
  const cut = BigInt(Math.max(0, size.toString(2).length - 64));
  const kept = (size >> cut) | ((size >> cut) << cut === size ? 0n : 1n);
  return Math.sign(Number(sum)) * Number(kept) * 2 ** (low + Number(cut));
}

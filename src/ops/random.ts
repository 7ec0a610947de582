// Random numbers from a counter: the same seed gives the same bits in TypeScript, C++ and on GPUs, however the work is
// cut.
//
// Element e (= offset + its row-major position) of a stream is made from one or two words of a Philox4x32-10 block:
//   key     = (low, high) 32 bits of the seed
//   counter = (low, high) 32 bits of the block number, then STREAM.x, then 0
//   uniform, 24 bits (f32 and smaller): block e / 4, word e % 4                 u = (word >> 8) * 2^-24
//   uniform, 53 bits (f64):             block e / 2, words a, b = 2 (e % 2), +1  u = ((a >> 5) * 2^26 + (b >> 6)) *
// 2^-53
//   normal, 52 bits (every dtype):      block e / 2, words a, b as above         u = ((a >> 6) * 2^26 + (b >> 6) + 0.5)
// * 2^-52
// A uniform number is lo + u * (up - lo), clamped to [bottom, top] (see uniformRange); a normal one mean + std *
// quantile(u).
// All of it is done in double with + - * / and sqrt, each rounded on its own (no fused multiply-add), then rounded once
// to the dtype.
import { DTYPE, FLOATS, isFloat, type DType } from '../base/dtype.js';
import { ArgumentError, DTypeError } from '../base/errors.js';
import { checkShape, sizeOf, type Shape } from '../base/shape.js';
import type { Tensor } from '../tensor/tensor.js';
import { kernel } from './kernel-row.js';
import { rows, type Call, type ErrorSample, type RefTensor, type Sample, type Sig } from './op.js';

declare module './op.js' {
  interface KernelFacts {
    /** How the numbers are distributed. */
    random: { readonly distribution: 'uniform' | 'normal' | 'dropout' | 'bernoulli' | 'rings' };
  }
}

interface RandomParams extends Record<string, unknown> {
  readonly shape: Shape;
  readonly dtype: DType;
  /** 64 bits. */
  readonly seed: bigint;
  /** Elements of the stream to pass over; 64 bits. */
  readonly offset: bigint;
}
export interface UniformParams extends RandomParams {
  readonly lo: number;
  readonly up: number;
}
export interface NormalParams extends RandomParams {
  readonly mean: number;
  readonly std: number;
}

/** Numbers of the 24-bit stream drawn beside a tensor. */
export interface BesideParams extends Record<string, unknown> {
  readonly seed: bigint;
  readonly offset: bigint;
  /** What share is left out. */
  readonly p: number;
}

/** Third word of the counter: streams of one seed that never meet. */
const STREAM = { uniform24: 0, uniform53: 1, normal: 2 } as const;

const low = (v: bigint): number => Number(v & 0xffffffffn);
const high = (v: bigint): number => Number((v >> 32n) & 0xffffffffn);

/** What f makes of each number of the 24-bit stream beside a tensor of that shape. */
export function besideUniform(shape: Shape, p: BesideParams, f: (u: number, i: number) => void): void {
  eachDraw({ ...p, shape, dtype: 'f32' }, STREAM.uniform24, 1, (i, a) => f((a >>> 8) * 2 ** -24, i));
}

/** The same of the 53-bit stream. */
export function besideFine(shape: Shape, p: BesideParams, f: (u: number, i: number) => void): void {
  eachDraw({ ...p, shape, dtype: 'f64' }, STREAM.uniform53, 2, (i, a, b) =>
    f(((a >>> 5) * 2 ** 26 + (b >>> 6)) * 2 ** -53, i),
  );
}

/** Upper half of a 32 x 32 bit product. */
function mulHigh(a: number, b: number): number {
  const [ah, al, bh, bl] = [a >>> 16, a & 0xffff, b >>> 16, b & 0xffff];
  const t = ah * bl + ((al * bl) >>> 16);
  const u = al * bh + (t & 0xffff);
  return (ah * bh + (t >>> 16) + (u >>> 16)) >>> 0;
}

/** One block of Philox4x32-10 (Salmon et al. 2011): four words from a counter of four and a key of two. */
export function philox(counter: readonly number[], key: readonly number[]): [number, number, number, number] {
  let [c0, c1, c2, c3] = counter;
  let [k0, k1] = key;
  for (let round = 0; round < 10; round++) {
    const [h0, l0] = [mulHigh(0xd2511f53, c0), Math.imul(0xd2511f53, c0)];
    const [h1, l1] = [mulHigh(0xcd9e8d57, c2), Math.imul(0xcd9e8d57, c2)];
    [c0, c1, c2, c3] = [(h1 ^ c1 ^ k0) >>> 0, l1 >>> 0, (h0 ^ c3 ^ k1) >>> 0, l0 >>> 0];
    k0 = (k0 + 0x9e3779b9) >>> 0;
    k1 = (k1 + 0xbb67ae85) >>> 0;
  }
  return [c0, c1, c2, c3];
}

/** The words of elements offset, offset + 1, ...: `per` of them (1 or 2) for each. */
function eachDraw(p: RandomParams, stream: number, per: 1 | 2, visit: (i: number, a: number, b: number) => void): void {
  const key = [low(p.seed), high(p.seed)];
  const inBlock = BigInt(4 / per);
  let block = -1n;
  let words: readonly number[] = [];
  for (let i = 0, n = sizeOf(p.shape); i < n; i++) {
    const e = BigInt.asUintN(64, p.offset + BigInt(i));
    if (e / inBlock !== block) {
      block = e / inBlock;
      words = philox([low(block), high(block), stream, 0], key);
    }
    const at = Number(e % inBlock) * per;
    visit(i, words[at], words[at + per - 1]);
  }
}

/**
 * The normal distribution's quantile by Wichura's algorithm AS 241 (PPND16), relative error about 1e-16: quotients of
 * polynomials, lowest coefficient first, in the centre, the near tail and the far tail; and the series of the
 * logarithm.
 */
const NORMAL_TABLE = {
  centre: {
    over: [
      3.387132872796366608, 133.14166789178437745, 1971.5909503065514427, 13731.693765509461125, 45921.953931549871457,
      67265.770927008700853, 33430.575583588128105, 2509.0809287301226727,
    ],
    under: [
      1, 42.313330701600911252, 687.1870074920579083, 5394.1960214247511077, 21213.794301586595867,
      39307.89580009271061, 28729.085735721942674, 5226.495278852854561,
    ],
  },
  near: {
    over: [
      1.42343711074968357734, 4.6303378461565452959, 5.7694972214606914055, 3.64784832476320460504,
      1.27045825245236838258, 0.24178072517745061177, 0.0227238449892691845833, 7.7454501427834140764e-4,
    ],
    under: [
      1, 2.05319162663775882187, 1.6763848301838038494, 0.68976733498510000455, 0.14810397642748007459,
      0.0151986665636164571966, 5.475938084995344946e-4, 1.05075007164441684324e-9,
    ],
  },
  far: {
    over: [
      6.6579046435011037772, 5.4637849111641143699, 1.7848265399172913358, 0.29656057182850489123,
      0.026532189526576123093, 0.0012426609473880784386, 2.71155556874348757815e-5, 2.01033439929228813265e-7,
    ],
    under: [
      1, 0.59983220655588793769, 0.13692988092273580531, 0.0148753612908506148525, 7.868691311456132591e-4,
      1.8463183175100546818e-5, 1.4215117583164458887e-7, 2.04426310338993978564e-15,
    ],
  },
  /** ln m = 2 s (1 + s^2/3 + s^4/5 + ...) with s = (m - 1) / (m + 1); |s| < 0.172, so 13 terms leave nothing. */
  log: [1, 1 / 3, 1 / 5, 1 / 7, 1 / 9, 1 / 11, 1 / 13, 1 / 15, 1 / 17, 1 / 19, 1 / 21, 1 / 23, 1 / 25],
  ln2: 0.6931471805599453,
} as const;

/** Horner's rule from the highest coefficient down. */
function poly(c: readonly number[], x: number): number {
  let y = c[c.length - 1];
  for (let i = c.length - 2; i >= 0; i--) y = y * x + c[i];
  return y;
}

const bits = new DataView(new ArrayBuffer(8));

/** Natural logarithm of a positive normal double by basic operations in a fixed order. */
export function fixedLog(x: number): number {
  bits.setFloat64(0, x);
  const head = bits.getUint32(0);
  let exponent = (head >>> 20) - 1023;
  bits.setUint32(0, (head & 0xfffff) | 0x3ff00000);
  let m = bits.getFloat64(0); // 1 <= m < 2
  if (m > 1.4142135623730951) {
    m = m * 0.5;
    exponent++;
  }
  const s = (m - 1) / (m + 1);
  return exponent * NORMAL_TABLE.ln2 + 2 * s * poly(NORMAL_TABLE.log, s * s);
}

/** The x below which a standard normal number lies with probability p, 0 < p < 1. */
export function normalQuantile(p: number): number {
  const q = p - 0.5;
  if (Math.abs(q) <= 0.425) {
    const r = 0.180625 - q * q;
    return (q * poly(NORMAL_TABLE.centre.over, r)) / poly(NORMAL_TABLE.centre.under, r);
  }
  const r = Math.sqrt(-fixedLog(q < 0 ? p : 1 - p));
  const tail = r <= 5 ? NORMAL_TABLE.near : NORMAL_TABLE.far;
  const t = r <= 5 ? r - 1.6 : r - 5;
  const x = poly(tail.over, t) / poly(tail.under, t);
  return q < 0 ? -x : x;
}

const round = (dtype: DType, x: number): number => {
  const raw = new DTYPE[dtype].Raw(new ArrayBuffer(8), 0, 1);
  raw[0] = DTYPE[dtype].encode(x) as never;
  return DTYPE[dtype].decode(raw[0]) as number;
};

/** The neighbour of a representable value: `way` 1 above, -1 below. */
function neighbour(dtype: DType, x: number, way: 1 | -1): number {
  const { encode, decode, Raw } = DTYPE[dtype];
  const buffer = new ArrayBuffer(8);
  const raw = new Raw(buffer, 0, 1);
  const bitsOf = new BigUint64Array(buffer);
  raw[0] = encode(Math.abs(x)) as never;
  bitsOf[0] += x === 0 || x > 0 === way > 0 ? 1n : -1n; // magnitudes are ordered like their bits
  const magnitude = decode(raw[0]) as number;
  return x < 0 || (x === 0 && way < 0) ? -magnitude : magnitude;
}

/**
 * The smallest value of the dtype not below lo and the largest below up: what a uniform number is clamped to before
 * rounding.
 */
export function uniformRange(dtype: DType, lo: number, up: number): { bottom: number; top: number } {
  if (!isFloat(dtype))
    throw new DTypeError(`randUniform: ${dtype} is not a float; random numbers are floats: cast them, or use randint`);
  const near = { lo: round(dtype, lo), up: round(dtype, up) };
  const bottom = near.lo >= lo ? near.lo : neighbour(dtype, near.lo, 1);
  const top = near.up < up ? near.up : neighbour(dtype, near.up, -1);
  if (!(lo < up) || !Number.isFinite(up - lo) || !(bottom <= top)) {
    throw new ArgumentError(`randUniform: no ${dtype} lies in [${lo}, ${up}); it takes finite bounds with lo below up`);
  }
  return { bottom, top };
}

function inferRandom(op: string, p: RandomParams): Sig[] {
  checkShape(op, p.shape);
  for (const [name, v] of [
    ['seed', p.seed],
    ['offset', p.offset],
  ] as const) {
    if (typeof v !== 'bigint' || v < 0n || v >= 1n << 64n)
      throw new ArgumentError(`${op}: ${name} ${String(v)} is not a bigint of 64 bits`);
  }
  return [{ shape: p.shape, dtype: p.dtype }];
}

const uniform = (shape: Shape, dtype: DType, lo: number, up: number, seed = 42n, offset = 0n): UniformParams => ({
  shape,
  dtype,
  seed,
  offset,
  lo,
  up,
});
const normal = (shape: Shape, dtype: DType, mean: number, std: number, seed = 42n, offset = 0n): NormalParams => ({
  shape,
  dtype,
  seed,
  offset,
  mean,
  std,
});

export const random = rows({
  randUniform: kernel({
    internal: true,
    family: 'random',
    kernel: { distribution: 'uniform' },
    formula: 'numbers spread evenly over [lo, up), by seed and offset',
    dtypes: FLOATS,
    without: 'random numbers are floats; cast them',
    candle: { none: 'Candle calls cuRAND' },
    differs: 'The same numbers on every device, in every float dtype; up itself never comes.',
    ulp: 0,
    noGrad: 'random numbers have no inputs',
    infer: (_: readonly Sig[], p: UniformParams): readonly Sig[] => {
      uniformRange(p.dtype, p.lo, p.up);
      return inferRandom('randUniform', p);
    },
    reference: (_: readonly RefTensor[], [out]: readonly RefTensor[], p: UniformParams): void => {
      const { bottom, top } = uniformRange(p.dtype, p.lo, p.up);
      const place = (i: number, u: number): void => {
        const v = p.lo + u * (p.up - p.lo);
        out.data[i] = v < bottom ? bottom : v > top ? top : v;
      };
      if (p.dtype === 'f64')
        eachDraw(p, STREAM.uniform53, 2, (i, a, b) => place(i, ((a >>> 5) * 2 ** 26 + (b >>> 6)) * 2 ** -53));
      else eachDraw(p, STREAM.uniform24, 1, (i, a) => place(i, (a >>> 8) * 2 ** -24));
    },
    // The tensor only lends its device.
    args: (_: Tensor, p: UniformParams): Call<UniformParams> => ({ inputs: [], params: p }),
    samples: (): readonly Sample<UniformParams>[] => [
      ...FLOATS.map((dtype) => ({ inputs: [], params: uniform([7, 5], dtype, 0, 1) })),
      { inputs: [], params: uniform([33], 'f32', -3, 5, 0x123456789abcdefn, 6n) },
      { inputs: [], params: uniform([9], 'f64', -3, 5, 7n, 0x1fffffffdn) },
      { inputs: [], params: uniform([0], 'f32', 0, 1) },
    ],
    errors: (): readonly ErrorSample<UniformParams>[] => [
      { inputs: [], params: uniform([3], 'f32', 1, 1), code: 'E_ARGUMENT', says: /no f32 lies in \[1, 1\)/ },
      {
        inputs: [],
        params: uniform([3], 'f32', 0, 1, -1n),
        code: 'E_ARGUMENT',
        says: /seed -1 is not a bigint of 64 bits/,
      },
      { inputs: [], params: uniform([-3], 'f32', 0, 1), code: 'E_SHAPE', says: /holds -3/ },
    ],
  }),

  randNormal: kernel({
    internal: true,
    family: 'random',
    kernel: { distribution: 'normal' },
    formula: 'mean + std * standard normal numbers, by seed and offset',
    dtypes: FLOATS,
    without: 'random numbers are floats; cast them',
    candle: { none: 'Candle calls cuRAND' },
    differs: 'The same numbers on every device; those of a smaller dtype are those of f64, rounded.',
    ulp: 0,
    noGrad: 'random numbers have no inputs',
    infer: (_: readonly Sig[], p: NormalParams): readonly Sig[] => {
      if (!Number.isFinite(p.mean) || !Number.isFinite(p.std) || p.std < 0) {
        throw new ArgumentError(`randNormal: mean ${p.mean} and std ${p.std} must be finite, std from 0`);
      }
      return inferRandom('randNormal', p);
    },
    reference: (_: readonly RefTensor[], [out]: readonly RefTensor[], p: NormalParams): void =>
      eachDraw(p, STREAM.normal, 2, (i, a, b) => {
        out.data[i] = p.mean + p.std * normalQuantile(((a >>> 6) * 2 ** 26 + (b >>> 6) + 0.5) * 2 ** -52);
      }),
    args: (_: Tensor, p: NormalParams): Call<NormalParams> => ({ inputs: [], params: p }),
    samples: (): readonly Sample<NormalParams>[] => [
      ...FLOATS.map((dtype) => ({ inputs: [], params: normal([7, 5], dtype, 0, 1) })),
      { inputs: [], params: normal([33], 'f32', 3, 0.25, 0x123456789abcdefn, 5n) },
      { inputs: [], params: normal([9], 'f64', -3, 5, 7n, 0x1fffffffdn) },
    ],
    errors: (): readonly ErrorSample<NormalParams>[] => [
      { inputs: [], params: normal([3], 'f32', 0, -1), code: 'E_ARGUMENT', says: /mean 0 and std -1/ },
      {
        inputs: [],
        params: normal([3], 'f32', 0, 1, 0n, 1n << 64n),
        code: 'E_ARGUMENT',
        says: /offset 18446744073709551616/,
      },
    ],
  }),
});

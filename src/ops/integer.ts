// Whole quotients, remainders, bits and shifts.
import { type DType, INTS, isFloat, NUMBERS } from '../base/dtype.js';
import { floorDivide } from '../base/special.js';
import type { Tensor } from '../tensor/tensor.js';
import { binary, ours } from './elementwise.js';
import { composite, requireDType } from './kernel-row.js';
import { type CompositeErrorSample, type CompositeSample, type GradContext, type Grads, rows, ulps } from './op.js';

const noArithmetic = 'truth values have no arithmetic; cast first';
const BITS: readonly DType[] = ['bool', ...INTS];
const bits = {
  dtypes: BITS,
  without: 'only integers are made of bits that mean something by themselves; bitcast shows those of a float',
  ulp: 0,
  candle: ours,
  noGrad: 'the result is made of bits',
} as const;
const byZero =
  'an integer divided by zero is 0, and its remainder the integer itself, on every device (PyTorch raises an error)';

const remainder = (x: number, y: number): number => {
  const r = x % y;
  return r !== 0 && r < 0 !== y < 0 ? r + y : r;
};
const bigMod = (x: bigint, y: bigint): bigint => (y === 0n ? x : x % y);
const bigRemainder = (x: bigint, y: bigint): bigint => {
  const r = bigMod(x, y);
  return r !== 0n && r < 0n !== y < 0n ? r + y : r;
};

/** What divides whole numbers. */
const whole = {
  dtypes: ['i32', 'i64'],
  without: 'it takes i32 and i64; cast first',
  ulp: 0,
  candle: ours,
  noGrad: 'whole numbers have none',
  exact: (x: number) => x,
  domain: [1, 60],
} as const;
function divisor(x: bigint, y: bigint): bigint {
  let [a, b] = [x < 0n ? -x : x, y < 0n ? -y : y];
  while (b !== 0n) [a, b] = [b, a % b];
  return a;
}

export const integerOps = rows({
  fmod: binary({
    formula: 'x - y * trunc(x / y): the remainder with the sign of x',
    dtypes: NUMBERS,
    without: noArithmetic,
    exact: (x, y) => x % y,
    int: bigMod,
    kernel: 'fmodg(x, y)',
    ulp: 0,
    domain: [0.3, 4],
    candle: ours,
    differs: byZero,
    grad: ({ x, y, grad, needs }: GradContext): Grads => [
      grad,
      needs(1) ? grad.mul(x.div(y).trunc()).neg() : undefined,
    ],
  }),
  remainder: binary({
    formula: 'x - y * floor(x / y): the remainder with the sign of y',
    dtypes: NUMBERS,
    without: noArithmetic,
    exact: remainder,
    int: bigRemainder,
    kernel: 'remainderg(x, y)',
    ulp: ulps(1),
    domain: [0.3, 4],
    candle: ours,
    differs: byZero,
    grad: ({ x, y, grad, needs }: GradContext): Grads => [
      grad,
      needs(1) ? grad.mul(x.floorDivide(y)).neg() : undefined,
    ],
  }),
  floorDivide: binary({
    formula: 'floor(x / y)',
    dtypes: NUMBERS,
    without: noArithmetic,
    exact: floorDivide,
    int: (x, y) => (y === 0n ? 0n : (x - bigRemainder(x, y)) / y),
    kernel: 'floordivg(x, y)',
    ulp: ulps(1),
    domain: [0.3, 4],
    candle: ours,
    differs: byZero,
    grad: ({ x, y }: GradContext): Grads => [x.zerosLike(), y.zerosLike()],
  }),
  bitwiseAnd: binary({
    ...bits,
    formula: 'bits set in both x and y',
    exact: (x) => x,
    int: (x, y) => x & y,
    kernel: 'x & y',
    domain: [0, 100],
  }),
  bitwiseOr: binary({
    ...bits,
    formula: 'bits set in x or y',
    exact: (x) => x,
    int: (x, y) => x | y,
    kernel: 'x | y',
    domain: [0, 100],
  }),
  bitwiseXor: binary({
    ...bits,
    formula: 'bits set in one of x and y',
    exact: (x) => x,
    int: (x, y) => x ^ y,
    kernel: 'x ^ y',
    domain: [0, 100],
  }),
  leftShift: binary({
    ...bits,
    dtypes: INTS,
    formula: 'x * 2^y, low bits kept; 0 where y is negative or no less than the bits of x',
    exact: (x) => x,
    int: (x, y) => (y >= 0n && y < 64n ? x << y : 0n),
    kernel: 'shlg(x, y)',
    domain: [0, 12],
  }),
  rightShift: binary({
    ...bits,
    dtypes: INTS,
    formula: 'floor(x / 2^y); 0 or -1 where y is negative or no less than the bits of x',
    exact: (x) => x,
    int: (x, y) => (y >= 0n && y < 64n ? x >> y : x < 0n ? -1n : 0n),
    kernel: 'shrg(x, y)',
    domain: [0, 12],
  }),
  gcd: binary({
    ...whole,
    formula: 'the largest whole number that divides both, by Euclid; 0 for 0 and 0',
    int: divisor,
    kernel: 'gcdg(x, y)',
  }),
  lcm: binary({
    ...whole,
    formula: 'the least whole number that both divide',
    int: (x, y) => {
      const common = divisor(x, y);
      const product = common === 0n ? 0n : (x / common) * y;
      return product < 0n ? -product : product;
    },
    kernel: 'lcmg(x, y)',
  }),
  bitwiseNot: composite({
    ...bits,
    formula: 'every bit turned over: -x - 1, or the other truth value',
    compose: (x: Tensor): Tensor => {
      requireDType('bitwiseNot', x, BITS, bits.without);
      return x.dtype === 'bool' ? x.logicalNot() : x.affine(-1, -1);
    },
    samples: (): readonly CompositeSample[] => [{ inputs: [{ shape: [3, 5] }], args: [] }],
    errors: (): readonly CompositeErrorSample[] => [
      { inputs: [{ shape: [3], dtype: 'f32' }], args: [], code: 'E_DTYPE', says: /bitwiseNot: does not take f32/ },
    ],
  }),
  isFinite: composite({
    formula: 'x is neither an infinity nor NaN; true of every integer',
    dtypes: NUMBERS,
    ulp: 0,
    candle: ours,
    noGrad: 'the result is a truth value',
    compose: (x: Tensor): Tensor => (isFloat(x.dtype) ? x.sub(x).eq(0) : x.newFull(x.shape, 1, 'bool')),
    samples: (): readonly CompositeSample[] => [{ inputs: [{ shape: [3, 5] }], args: [] }],
    errors: (): readonly CompositeErrorSample[] => [],
  }),
});

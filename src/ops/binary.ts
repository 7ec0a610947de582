// Binary, comparison and choice rows: operands broadcast against each other.
import { type DType, DTYPES, FLOATS, isFloat, NUMBERS } from '../base/dtype.js';
import { DTypeError } from '../base/errors.js';
import { cpow } from '../base/special.js';
import type { Tensor } from '../tensor/tensor.js';
import { binary, comparison, type Operand, ours } from './elementwise.js';
import { type Call, type ElementwiseRow, type Grads, type GradContext, rows } from './op.js';

const binaryCu = (symbol: string) => ({ file: 'binary.cu', symbol });
const noArithmetic = 'truth values have no arithmetic; use logicalAnd, logicalOr and logicalXor, or cast first';
const truth = 'the result is a truth value';
const bool = (b: boolean): number => (b ? 1 : 0);
const bigBool = (b: boolean): bigint => (b ? 1n : 0n);

/** Half of the gradient to each side where both are equal, as PyTorch does. */
const share = ({ x, y, out, grad }: GradContext): Grads => {
  const mine = (side: Tensor, other: Tensor): Tensor =>
    grad.mul(side.eq(out).cast(x.dtype)).mul(other.eq(out).logicalAnd(side.eq(out)).cast(x.dtype).affine(-0.5, 1));
  return [mine(x, y), mine(y, x)];
};

export const binaryOps = rows({
  add: binary({
    formula: 'x + y',
    dtypes: NUMBERS,
    without: noArithmetic,
    exact: (x, y) => x + y,
    int: (x, y) => x + y,
    kernel: 'x + y',
    ulp: 0,
    candle: binaryCu('badd'),
    grad: ({ grad }): Grads => [grad, grad],
    gradReads: [],
  }),
  sub: binary({
    formula: 'x - y',
    dtypes: NUMBERS,
    without: noArithmetic,
    exact: (x, y) => x - y,
    int: (x, y) => x - y,
    kernel: 'x - y',
    ulp: 0,
    candle: binaryCu('bsub'),
    grad: ({ grad, needs }): Grads => [grad, needs(1) ? grad.neg() : undefined],
    gradReads: [],
  }),
  mul: binary({
    formula: 'x * y',
    dtypes: NUMBERS,
    without: noArithmetic,
    exact: (x, y) => x * y,
    int: (x, y) => x * y,
    kernel: 'x * y',
    ulp: 0,
    candle: binaryCu('bmul'),
    grad: ({ x, y, grad, needs }): Grads => [needs(0) ? grad.mul(y) : undefined, needs(1) ? grad.mul(x) : undefined],
  }),
  div: binary({
    formula: 'x / y',
    dtypes: NUMBERS,
    without: noArithmetic,
    exact: (x, y) => x / y,
    int: (x, y) => (y === 0n ? 0n : x / y),
    kernel: 'divg(x, y)',
    small: 'small_div<S>(x, y)',
    ulp: 0,
    domain: [0.25, 4],
    candle: binaryCu('bdiv'),
    differs:
      'an integer divided by zero is 0 on every device (CUDA leaves it open, Candle on the CPU panics); a scalar ' +
      'divisor divides, it is not turned into 1/v',
    grad: ({ y, out, grad, needs }): Grads => {
      const g = grad.div(y);
      return [g, needs(1) ? g.mul(out).neg() : undefined];
    },
  }),
  minimum: binary({
    formula: 'the smaller of x and y',
    dtypes: DTYPES,
    exact: (x, y) => (x !== x ? y : y !== y ? x : Math.min(x, y)),
    exact16: (x, y) => Math.min(x, y),
    int: (x, y) => (y < x ? y : x),
    kernel: 'ming<S>(x, y)',
    ulp: 0,
    candle: binaryCu('bminimum'),
    differs:
      'on every device NaN is ignored, except in f16 and bf16 where it wins: Candle on CUDA (its CPU keeps NaN of ' +
      'the left operand only)',
    grad: share,
  }),
  maximum: binary({
    formula: 'the larger of x and y',
    dtypes: DTYPES,
    exact: (x, y) => (x !== x ? y : y !== y ? x : Math.max(x, y)),
    exact16: (x, y) => Math.max(x, y),
    int: (x, y) => (y > x ? y : x),
    kernel: 'maxg<S>(x, y)',
    ulp: 0,
    candle: binaryCu('bmaximum'),
    differs:
      'on every device NaN is ignored, except in f16 and bf16 where it wins: Candle on CUDA (its CPU keeps NaN of ' +
      'the left operand only)',
    grad: share,
  }),
  pow: binary({
    formula: 'x^y',
    dtypes: FLOATS,
    without: 'integer powers overflow at once; cast to a float dtype first',
    exact: cpow,
    kernel: 'powg(x, y)',
    small: 'small_pow<S>(x, y)',
    ulp: { f32: 4, f64: 4, f16: 1, bf16: 1, f8e4m3: 1 },
    domain: [0.25, 3],
    candle: { none: 'Candle computes exp(y * log(x))' },
    differs: 'negative bases work, as in C (Candle gives NaN)',
    grad: ({ x, y, out, grad, needs }): Grads => {
      // Where a power of 0 is constant on one side (0^0 by its base, 0^y by y from 0 on), the slope is 0 and not 0
      // times an infinity.
      const zero = x.eq(0);
      const flatBase = zero.logicalAnd(y.eq(0));
      const flatExponent = zero.logicalAnd(y.ge(0));
      return [
        needs(0) ? grad.mul(y).mul(x.pow(flatBase.where(1, y).affine(1, -1))) : undefined,
        needs(1) ? grad.mul(out).mul(flatExponent.where(1, x).log()) : undefined,
      ];
    },
  }),
});

export const compareOps = rows({
  eq: comparison({
    formula: 'x == y',
    dtypes: DTYPES,
    exact: (x, y) => bool(x === y),
    int: (x, y) => bigBool(x === y),
    kernel: 'x == y',
    ulp: 0,
    candle: binaryCu('eq'),
    noGrad: truth,
  }),
  ne: comparison({
    formula: 'x != y',
    dtypes: DTYPES,
    exact: (x, y) => bool(x !== y),
    int: (x, y) => bigBool(x !== y),
    kernel: 'x != y',
    ulp: 0,
    candle: binaryCu('ne'),
    noGrad: truth,
  }),
  lt: comparison({
    formula: 'x < y',
    dtypes: DTYPES,
    exact: (x, y) => bool(x < y),
    int: (x, y) => bigBool(x < y),
    kernel: 'x < y',
    ulp: 0,
    candle: binaryCu('lt'),
    noGrad: truth,
  }),
  le: comparison({
    formula: 'x <= y',
    dtypes: DTYPES,
    exact: (x, y) => bool(x <= y),
    int: (x, y) => bigBool(x <= y),
    kernel: 'x <= y',
    ulp: 0,
    candle: binaryCu('le'),
    noGrad: truth,
  }),
  gt: comparison({
    formula: 'x > y',
    dtypes: DTYPES,
    exact: (x, y) => bool(x > y),
    int: (x, y) => bigBool(x > y),
    kernel: 'x > y',
    ulp: 0,
    candle: binaryCu('gt'),
    noGrad: truth,
  }),
  ge: comparison({
    formula: 'x >= y',
    dtypes: DTYPES,
    exact: (x, y) => bool(x >= y),
    int: (x, y) => bigBool(x >= y),
    kernel: 'x >= y',
    ulp: 0,
    candle: binaryCu('ge'),
    noGrad: truth,
  }),
  logicalAnd: comparison({
    formula: 'x != 0 and y != 0',
    dtypes: DTYPES,
    exact: (x, y) => bool(x !== 0 && y !== 0),
    int: (x, y) => bigBool(x !== 0n && y !== 0n),
    kernel: '(x != C(0)) & (y != C(0))',
    ulp: 0,
    candle: ours,
    noGrad: truth,
  }),
  logicalOr: comparison({
    formula: 'x != 0 or y != 0',
    dtypes: DTYPES,
    exact: (x, y) => bool(x !== 0 || y !== 0),
    int: (x, y) => bigBool(x !== 0n || y !== 0n),
    kernel: '(x != C(0)) | (y != C(0))',
    ulp: 0,
    candle: ours,
    noGrad: truth,
  }),
  logicalXor: comparison({
    formula: 'x != 0 differs from y != 0',
    dtypes: DTYPES,
    exact: (x, y) => bool((x !== 0) !== (y !== 0)),
    int: (x, y) => bigBool((x !== 0n) !== (y !== 0n)),
    kernel: '(x != C(0)) != (y != C(0))',
    ulp: 0,
    candle: ours,
    noGrad: truth,
  }),
});

type WhereRow = Omit<ElementwiseRow<any>, 'name' | 'args'> & {
  readonly args: (cond: Tensor, onTrue: Operand, onFalse: Operand) => Call<Record<never, never>>;
};
const CONDITIONS: readonly DType[] = ['bool', 'u8'];

export const choiceOps = rows({
  where: {
    family: 'elementwise',
    arity: 3,
    masked: true,
    result: 'same',
    scalars: [],
    formula: 'condition != 0 ? y : z',
    dtypes: DTYPES,
    exact: (x, y, z) => (x !== 0 ? y : z),
    int: (x, y, z) => (x !== 0n ? y : z),
    kernel: 'select(x, y, z)',
    ulp: 0,
    candle: { file: 'ternary.cu', symbol: 'where' },
    args: (cond: Tensor, onTrue: Operand, onFalse: Operand): Call<Record<never, never>> => {
      if (isFloat(cond.dtype))
        throw new DTypeError(
          `where: the condition is ${cond.dtype}; it is called of truth values, x.gt(0).where(x, y): PyTorch's ` +
            'x.where(mask, y) is mask.where(x, y)',
        );
      const like =
        typeof onTrue !== 'number' ? onTrue : typeof onFalse !== 'number' ? onFalse : cond.newFull([], 0, 'f32');
      const tensor = (v: Operand): Tensor => (typeof v === 'number' ? like.constant(v) : v);
      return {
        inputs: [CONDITIONS.includes(cond.dtype) ? cond : cond.ne(0), tensor(onTrue), tensor(onFalse)],
        params: {},
      };
    },
    grad: ({ inputs: [cond], grad, needs }: GradContext): Grads => [
      undefined,
      needs(1) ? cond.where(grad, grad.zerosLike()) : undefined,
      needs(2) ? cond.where(grad.zerosLike(), grad) : undefined,
    ],
  } satisfies WhereRow as WhereRow,
});

// Builders of elementwise rows: what unary, binary and comparison rows have in common.
import { type DType, INTS } from '../base/dtype.js';
import type { Tensor } from '../tensor/tensor.js';
import type { Bound, Call, ElementwiseRow, ErrorSample, GradContext, Params, Sample } from './op.js';

type NoParams = Readonly<Record<never, never>>;
/** A tensor, or a number that takes the dtype and device of the tensor beside it. */
export type Operand = Tensor | number;

interface Common {
  readonly formula: string;
  readonly dtypes: readonly DType[];
  readonly without?: string;
  readonly exact: (...values: number[]) => number;
  readonly int?: (...values: bigint[]) => bigint;
  readonly exact16?: (...values: number[]) => number;
  readonly kernel: string;
  readonly small?: string;
  readonly byExp?: ElementwiseRow['byExp'];
  readonly far?: string;
  readonly candle: ElementwiseRow['candle'];
  readonly differs?: string;
  readonly domain?: readonly [number, number];
  readonly ulp: Bound;
  readonly loose?: string;
  readonly noGrad?: string;
  readonly gradReads?: readonly number[];
  readonly cheap?: true;
  readonly bounds?: true;
  readonly internal?: true;
}
interface OneGrad<P extends Params> {
  readonly grad?: (ctx: GradContext<P>) => Tensor;
}

export type UnaryRow = Omit<ElementwiseRow<NoParams>, 'name' | 'args'> & {
  readonly args: (x: Tensor) => Call<NoParams>;
};
export type BinaryRow = Omit<ElementwiseRow<NoParams>, 'name' | 'args'> & {
  readonly args: (x: Tensor, y: Operand) => Call<NoParams>;
};
export type ScalarRow<A extends readonly unknown[]> = Omit<ElementwiseRow<any>, 'name' | 'args'> & {
  readonly args: (x: Tensor, ...rest: A) => Call<any>;
};

const oneInput = (x: Tensor): Call<NoParams> => ({ inputs: [x], params: {} });
const twoInputs = (x: Tensor, y: Operand): Call<NoParams> => ({
  inputs: [x, typeof y === 'number' ? x.constant(y) : y],
  params: {},
});

export function unary(def: Common & OneGrad<NoParams>): UnaryRow {
  const { grad, ...rest } = def;
  return {
    family: 'elementwise',
    arity: 1,
    result: 'same',
    scalars: [],
    args: oneInput,
    ...rest,
    ...(grad && { grad: (ctx) => [grad(ctx)] }),
  };
}

/** A unary op that answers true or false. */
export const predicate = (def: Common): UnaryRow => ({
  family: 'elementwise',
  arity: 1,
  result: 'bool',
  scalars: [],
  args: oneInput,
  ...def,
});

export function scalar<A extends readonly unknown[], P extends Params>(
  def: Common &
    OneGrad<P> & {
      readonly scalars: readonly (keyof P & string)[];
      readonly args: (x: Tensor, ...rest: A) => Call<P>;
      readonly samples: () => readonly Sample<P>[];
      readonly errors?: () => readonly ErrorSample<P>[];
    },
): ScalarRow<A> {
  const { grad, ...rest } = def;
  return {
    family: 'elementwise',
    arity: 1,
    result: 'same',
    ...rest,
    ...(grad && { grad: (ctx: GradContext<P>) => [grad(ctx)] }),
  };
}

export const binary = (
  def: Common & { readonly grad?: (ctx: GradContext<NoParams>) => readonly (Tensor | undefined)[] },
): BinaryRow => ({ family: 'elementwise', arity: 2, result: 'same', scalars: [], args: twoInputs, ...def });

/** Integers of two dtypes are compared by value, in i64, which holds them all: argmax (u32) beside labels (i64). */
function compared(x: Tensor, y: Operand): Call<NoParams> {
  const both = typeof y === 'object' && y !== null && x.dtype !== y.dtype && isWhole(x.dtype) && isWhole(y.dtype);
  return both ? twoInputs(x.cast('i64'), y.cast('i64')) : twoInputs(x, y);
}
const isWhole = (d: DType): boolean => d === 'i8' || (INTS as readonly DType[]).includes(d);

export const comparison = (def: Common): BinaryRow => ({
  family: 'elementwise',
  arity: 2,
  result: 'bool',
  scalars: [],
  args: compared,
  ...def,
});

// ---- what unary rows say in the same words ----

export const floatsOnly = 'the result of this function on integers is not an integer; cast to a float dtype first';
export const unaryCu = (symbol: string) => ({ file: 'unary.cu', symbol });
export const ours = { none: 'Candle has no kernel for it' };
export const TINY = { f32: 2, f64: 2, f16: 1, bf16: 1, f8e4m3: 1 };
export const INV_SQRT_2PI = 1 / Math.sqrt(2 * Math.PI);

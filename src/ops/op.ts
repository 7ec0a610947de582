// What a row of the op table holds. Rows are data: no shared code names an op, and every function in a row is
// annotated.
import type { DType, Value } from '../base/dtype.js';
import type { ErrorCode } from '../base/errors.js';
import type { Layout } from '../base/layout.js';
import type { Shape } from '../base/shape.js';
import type { Tensor } from '../tensor/tensor.js';

/** What shape inference sees of a tensor. */
export interface Sig {
  /** Sizes of all dimensions; [] for a single number. */
  readonly shape: Shape;
  /** The element type. */
  readonly dtype: DType;
}

/** Parameters are plain data, so that they can be printed, cached by and packed for kernels. */
export type Params = Readonly<Record<string, unknown>>;
/** A method's arguments sorted into tensors and parameters. */
export interface Call<P extends Params = Params> {
  readonly inputs: readonly Tensor[];
  readonly params: P;
  /** The result itself, where options ask for what the row's kernels lack and other rows serve it. */
  readonly answer?: Tensor;
}

/** What a gradient rule is given; it answers one gradient (or undefined) per input. */
export interface GradContext<P extends Params = Params> {
  /** The op's operands, as they were when it ran. */
  readonly inputs: readonly Tensor[];
  /** The op's results. */
  readonly outputs: readonly Tensor[];
  /** The first operand. */
  readonly x: Tensor;
  /** The second operand, for ops that have one. */
  readonly y: Tensor;
  /** The first result. */
  readonly out: Tensor;
  /** Gradient of the first output; `grads` has all (undefined where nothing flowed). */
  readonly grad: Tensor;
  /** A gradient for each result; undefined where nothing flowed. */
  readonly grads: readonly (Tensor | undefined)[];
  /** The parameters that the op was called with. */
  readonly params: P;
  /** Whether input i wants a gradient, so that a rule can skip costly work. */
  readonly needs: (i: number) => boolean;
  /**
   * For rows that join gradients: what has flowed to the first operand so far, which is part of their answer for it.
   */
  readonly before?: Tensor | undefined;
  /** Runs f, which makes one product, the gradient of operand i: it is written where the caller wants that, if it can. */
  readonly placed: (i: number, f: () => Tensor) => Tensor;
}
/** A gradient for each operand, in their order; undefined where none flows. */
export type Grads = readonly (Tensor | undefined)[];

/** A contiguous operand in the reference engine: integers are bigint, floats are double. */
export interface RefTensor {
  readonly shape: Shape;
  readonly dtype: DType;
  readonly data: Value[];
}

/** Where Candle has the op: file and symbol stem (dtype suffix left out), or why it has none. */
export type CandleOrigin = { readonly file: string; readonly symbol: string } | { readonly none: string };

/** How one test input is made: numbers over the row's domain unless said otherwise. */
export interface InputSpec {
  readonly shape: Shape;
  /** Default: the dtype under test. */
  readonly dtype?: DType;
  /** Whole numbers lo..hi (inclusive) instead of the domain: indices, conditions. */
  readonly ints?: readonly [number, number];
  readonly domain?: readonly [number, number];
  /** All elements different: for sort and max, whose gradient is not defined on ties. */
  readonly distinct?: boolean;
  /** The whole numbers themselves, where they must fit together: starts of sequences, page numbers. */
  readonly values?: readonly number[];
  /** Bytes of this ggml type's blocks, made by encoding numbers of the domain; the last dimension counts bytes. */
  readonly blocks?: string;
}
export interface Sample<P extends Params = Params> {
  readonly inputs: readonly InputSpec[];
  readonly params: P;
}
/** Arguments that must be refused, and how. */
export interface ErrorSample<P extends Params = Params> {
  readonly inputs: readonly InputSpec[];
  readonly params: P;
  readonly code: ErrorCode;
  readonly says: RegExp;
}

/** Largest allowed error in units in the last place, by dtype; a number serves all; 0 is bit for bit. */
export type Bound = number | { readonly [D in DType]?: number };

interface RowBase<P extends Params> {
  readonly name: string;
  /** One line of mathematics, for the documentation. */
  readonly formula: string;
  readonly dtypes: readonly DType[];
  /**
   * Operands differ in dtype by design (indices, masks, starts), and `infer` checks each; all others must have one
   * dtype.
   */
  readonly mixed?: true;
  readonly candle: CandleOrigin;
  /** Deliberate differences from Candle, with the reason. */
  readonly differs?: string;
  readonly domain?: readonly [number, number];
  readonly ulp: Bound;
  /** Why the bound is more than four times the worst error seen. */
  readonly loose?: string;
  /** Why a dtype is left out, said by errors, skips and docs. */
  readonly without?: string;
  readonly grad?: (ctx: GradContext<P>) => Grads;
  /** The inputs whose numbers the rule reads, where it reads no result: others are not kept for it. */
  readonly gradReads?: readonly number[];
  /** The rule adds what has flowed to the first operand before (`before`) to its gradient. */
  readonly joins?: boolean;
  /** Quick enough to be run again in a backward pass where memory is short (`remaking`). */
  readonly cheap?: true;
  /** Why there is no gradient: integer results, indices. */
  readonly noGrad?: string;
  /** A call for the documentation, where the first sample's parameters do not tell it: operands are x, y, z. */
  readonly example?: string;
  /** A part of other ops: editors do not offer it as a method (scripts/method-docs.ts). */
  readonly internal?: true;
  /** The op that users call and this row serves: errors name it. */
  readonly serves?: string;
  /**
   * A user's op: CPU engines run the function in the row; `kernel` is its GPU source where it is not elementwise.
   * `native` marks ours that have no GPU kernels: the CPU engine has a function of the row's name.
   */
  readonly custom?: {
    readonly kernel?: CustomKernel;
    readonly native?: true;
    /** Results whose columns may be negated together; the largest component of the first one's is positive. */
    readonly columns?: readonly number[];
  };
}

/** GPU source of a user's op, in the language of kernels/README.md; ELEMENT stands for the first input's type. */
export interface CustomKernel {
  /** HIP C++ with at least one `extern "C" __global__` function. */
  readonly source: string;
  /** Which kernel runs with what; operands among `args` become pointers to contiguous elements. */
  readonly launch: (call: CustomCall) => CustomLaunch | readonly CustomLaunch[];
}
/** An operand or result of a custom op as its launch sees it. */
export interface CustomOperand extends Sig {
  /** How many elements it has. */
  readonly size: number;
}
/** What a custom op is called with: its operands, its results and where it runs. */
export interface CustomCall {
  /** The operands, in the order of the call; their memory is contiguous. */
  readonly inputs: readonly CustomOperand[];
  /** The results to be written; their memory is there already. */
  readonly outputs: readonly CustomOperand[];
  /** The parameters of the call, as the op's `args` sorted them. */
  readonly params: Params;
  /** What the launch may depend on: the GPU at hand. */
  readonly device: {
    /** Lanes of a wave: 32 or 64. */
    readonly warp: number;
    /** Compute units (AMD) or multiprocessors (NVIDIA). */
    readonly multiprocessors: number;
    /** The target that kernels are compiled for: 'gfx90a', 'sm_90a'. */
    readonly arch: string;
  };
}
/** One launch of a kernel of a custom op. */
export interface CustomLaunch {
  /** The kernel's name in the source. */
  readonly kernel: string;
  /** Work-groups (blocks), in up to three dimensions. */
  readonly grid: number | readonly number[];
  /** Work-items (threads) of a group, in up to three dimensions. */
  readonly block: number | readonly number[];
  /** Bytes of dynamic shared memory. */
  readonly shared?: number;
  /** The kernel's arguments in its own order: operands become addresses, numbers are passed by value. */
  readonly args: readonly (CustomOperand | number | bigint)[];
}

/** out[i] = f(x[i], y[i], ...; params). One expression serves GPU kernels and the CPU engine; `exact` is the oracle. */
export interface ElementwiseRow<P extends Params = Params> extends RowBase<P> {
  readonly family: 'elementwise';
  readonly arity: 1 | 2 | 3;
  /** The first operand is a mask, bool or u8 (where); the dtype under test is that of the others. */
  readonly masked?: true;
  /** 'same' as the value operands, or a fixed dtype (comparisons give bool). */
  readonly result: 'same' | 'bool';
  /** Names of scalar parameters in order; in the expression they are a, b. */
  readonly scalars: readonly string[];
  /**
   * The scalars are bounds: beyond an integer dtype they saturate. Others must be whole there and wrap as arithmetic
   * does.
   */
  readonly bounds?: true;
  /** One element in double. */
  readonly exact: (...values: number[]) => number;
  /** One element of an integer dtype. */
  readonly int?: (...values: bigint[]) => bigint;
  /** The dtypes whose NaN rule differs (Candle's 16-bit max, min and relu propagate NaN). */
  readonly exact16?: (...values: number[]) => number;
  /** Why edge values (infinities, denormals, overflow) are not compared with the double result. */
  readonly noEdges?: string;
  /** The expression in the kernel language (kernels/README.md): operands x, y, z; scalars a, b. */
  readonly kernel: string;
  /**
   * The same for the CPU engine's vectors of f32, where it is one exponential and a few steps: result(x, e), where e is
   * e^power(x). `fine` asks for an exponential within 1.4 ulp; without it the row's bound leaves room for 5.
   */
  readonly byExp?: { readonly power: string; readonly result: string; readonly fine: boolean };
  /**
   * Where the expression leaves the range of f32 before its result does: what the CPU engine's vectors V of f32 compute
   * there instead, as statements of C++.
   */
  readonly far?: string;
  /** A quicker one for kernels whose result is rounded to f16, bf16 or f8 (kernels/portable/small.h). */
  readonly small?: string;
  readonly args: (x: Tensor, ...rest: never[]) => Call<P>;
  readonly samples?: () => readonly Sample<P>[];
  readonly errors?: () => readonly ErrorSample<P>[];
}

/** Runs in a backend's own code for its family; the reference lives in the row. */
export interface KernelRow<P extends Params = Params> extends RowBase<P> {
  readonly family: KernelFamily;
  /** What the family's GPU plan must know to tell this row from others. */
  readonly kernel?: KernelFacts[KernelFamily];
  /**
   * Parameters that the CPU engine's function reads, in this order: numbers, and truth values as 0 or 1. What else
   * families must say is in src/backends/cpu/pack.ts.
   */
  readonly engineParams?: readonly (keyof P & string)[];
  /** Shapes and dtypes of the results; the only place that throws this op's shape errors. */
  readonly infer: (inputs: readonly Sig[], params: P) => readonly Sig[];
  readonly reference: (inputs: readonly RefTensor[], outputs: readonly RefTensor[], params: P) => void;
  readonly args: (x: Tensor, ...rest: never[]) => Call<P>;
  readonly samples: () => readonly Sample<P>[];
  readonly errors: () => readonly ErrorSample<P>[];
}

/** A new layout over the same storage: nothing runs. */
export interface ViewRow<P extends Params = Params> extends RowBase<P> {
  readonly family: 'view';
  readonly layout: (layout: Layout, params: P) => Layout;
  /** Where the view is a run of whole slices: gradients of several such views of a tensor are put together at once. */
  readonly span?: (params: P) => Span;
  readonly args: (x: Tensor, ...rest: never[]) => Call<P>;
  readonly samples: () => readonly Sample<P>[];
  readonly errors: () => readonly ErrorSample<P>[];
}
export interface Span {
  readonly dim: number;
  readonly start: number;
  readonly length: number;
}

/**
 * Fills the result where `fill` says so, then copies inputs into slices of it: cat, pad, repeat, roll need no kernel of
 * their own.
 */
export interface AssembleRow<P extends Params = Params> extends RowBase<P> {
  readonly family: 'assemble';
  readonly infer: (inputs: readonly Sig[], params: P) => readonly Sig[];
  readonly fill?: (params: P) => number | undefined;
  /** Which part of which input goes where, as layouts derived from the input's and the result's. */
  readonly pieces: (inputs: readonly Sig[], params: P) => readonly Piece[];
  readonly args: (x: Tensor, ...rest: never[]) => Call<P>;
  readonly samples: () => readonly Sample<P>[];
  readonly errors: () => readonly ErrorSample<P>[];
}
export interface Piece {
  readonly input: number;
  readonly from?: (input: Layout) => Layout;
  readonly into: (result: Layout) => Layout;
}

/** Made of other rows, so its gradient comes by itself. */
export interface CompositeRow extends Omit<RowBase<Params>, 'grad'> {
  readonly family: 'composite';
  readonly compose: (x: Tensor, ...rest: never[]) => Tensor | readonly Tensor[];
  readonly samples: () => readonly CompositeSample[];
  readonly errors: () => readonly CompositeErrorSample[];
}
/** Composite samples call the method itself: `args` follow the first input; `{ input: i }` stands for input i. */
export interface CompositeSample {
  readonly inputs: readonly InputSpec[];
  readonly args: readonly unknown[];
}
export interface CompositeErrorSample extends CompositeSample {
  readonly code: ErrorCode;
  readonly says: RegExp;
}

/**
 * Families a backend implements besides 'elementwise', and what a row of each tells the plans of GPU kernels, which
 * never ask for an op's name.
 * A family with something to tell adds itself here from the file of its rows (`declare module './op.js'`).
 */
export interface KernelFacts {
  cast: undefined;
  copy: undefined;
  fill: undefined;
  scan: undefined;
  matmul: undefined;
  quantized: undefined;
  experts: undefined;
  custom: undefined;
}
export type KernelFamily = keyof KernelFacts;
/** A row of one family. */
export type RowOf<F extends KernelFamily> = KernelRow<any> & { readonly family: F; readonly kernel: KernelFacts[F] };
export type Row = ElementwiseRow<any> | KernelRow<any> | ViewRow<any> | AssembleRow<any> | CompositeRow;
/** Rows a backend runs. */
export type RunRow = ElementwiseRow<any> | KernelRow<any>;

/** The method a row gives Tensor: its arguments without the first. */
export type MethodOf<R> = R extends { family: 'composite'; compose: (x: Tensor, ...rest: infer A) => infer T }
  ? (...rest: A) => T
  : R extends { args: (x: Tensor, ...rest: infer A) => unknown; many: true }
    ? (...rest: A) => Tensor[]
    : R extends { args: (x: Tensor, ...rest: infer A) => unknown }
      ? (...rest: A) => Tensor
      : never;
export type MethodsOf<T> = { [K in keyof T]: MethodOf<T[K]> };

/** Names rows by their keys, keeping the exact type of each row for its method. */
export function rows<const T extends Record<string, Omit<Row, 'name'>>>(
  table: T,
): { [K in keyof T]: T[K] & { name: string } } {
  for (const [name, row] of Object.entries(table)) Object.assign(row, { name });
  return table as { [K in keyof T]: T[K] & { name: string } };
}

/**
 * One bound for f32 and f64, whose errors have one cause, and one for smaller floats, which are rounded once at the
 * end.
 */
export const ulps = (wide: number, narrow = 1): Bound => ({
  f32: wide,
  f64: wide,
  f16: narrow,
  bf16: narrow,
  f8e4m3: narrow,
});
export const boundFor = (bound: Bound, dtype: DType): number =>
  typeof bound === 'number' ? bound : (bound[dtype] ?? 0);

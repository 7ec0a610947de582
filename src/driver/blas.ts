// The seam to matrix-product libraries (cuBLASLt, hipBLASLt, rocBLAS): plan a product once per shape, run it with
// addresses.
import type { Address, Maybe, Stream } from './driver.js';
import { Planned } from './library-plans.js';

export const GEMM_DTYPES = ['f16', 'bf16', 'f32', 'f64'] as const;
export type GemmDType = (typeof GEMM_DTYPES)[number];

/**
 * A batch of matrices in memory. `ld` is the step (in elements) of the dimension that is not dense; batchStride 0
 * repeats one.
 */
export interface MatrixLayout {
  /** 'row': the last dimension is dense; 'col': the first is. */
  readonly order: 'row' | 'col';
  readonly ld: number;
  readonly batchStride: number;
}

/** d[m,n] = alpha * a[m,k] b[k,n] + beta * c[m,n] (+ bias[n]). f16 and bf16 accumulate in f32. */
export interface GemmSpec {
  readonly dtype: GemmDType;
  /** What d is stored as: the inputs' dtype unless said (f32 from f16 or bf16). */
  readonly outDtype?: GemmDType;
  readonly batch: number;
  readonly m: number;
  readonly n: number;
  readonly k: number;
  readonly a: MatrixLayout;
  readonly b: MatrixLayout;
  readonly d: MatrixLayout;
  /** A vector of n values of d's dtype added to every row. */
  readonly bias: boolean;
  /** Lets f32 inputs be rounded to TF32 for the matrix units. */
  readonly tf32: boolean;
}

/** What a library keeps for a shape: descriptors, the algorithm, its workspace need. */
export interface GemmPlan {
  readonly spec: GemmSpec;
  /** For people: which algorithm, how much workspace. */
  readonly description: string;
}

export interface Blas {
  /** 'cuBLASLt 13.1.0', ... */
  readonly name: string;
  /** Whether `run` may throw UnsupportedError for a product that was planned. */
  readonly refuses?: boolean;
  /** true, or the sentence that says why this product cannot be run; an answer of true makes the plan. */
  supports(spec: GemmSpec): true | string;
  /** Cached by the spec's values. Throws UnsupportedError with the sentence of `supports`. */
  plan(spec: GemmSpec): GemmPlan;
  /** Enqueues; `bias` is ignored (give 0) where the spec has none, `c` lies as d does and is d itself unless given. */
  run(
    plan: GemmPlan,
    a: Address,
    b: Address,
    d: Address,
    bias: Address,
    alpha: number,
    beta: number,
    stream: Stream,
    c?: Address,
  ): void;
  /**
   * Runs all algorithms that the library offers for a product without a bias and keeps the quickest for it; for what
   * comes again and again, since the device is waited for. `room` takes the results.
   */
  measure?(plan: GemmPlan, a: Address, b: Address, room: Address, stream: Stream): void;
  dispose(): void;
}

/** The first library, and the second for what the first does not take; the second is opened when it is first needed. */
export function withFallback(first: Maybe<Blas>, openSecond: () => Maybe<Blas>): Maybe<Blas> {
  if (typeof first !== 'string') return new BlasPair(first, openSecond);
  const second = openSecond();
  return typeof second === 'string' ? `${first}; ${second}` : second;
}

interface PairPlan extends GemmPlan {
  readonly library: Blas;
  readonly plan: GemmPlan;
}

class BlasPair extends Planned<GemmSpec, PairPlan> implements Blas {
  readonly name: string;
  readonly refuses = true;
  readonly #first: Blas;
  readonly #openSecond: () => Maybe<Blas>;
  #second: Maybe<Blas> | undefined;

  constructor(first: Blas, openSecond: () => Maybe<Blas>) {
    super('matmul', gemmKey);
    this.name = first.name;
    this.#first = first;
    this.#openSecond = openSecond;
  }

  protected make(spec: GemmSpec): PairPlan | string {
    const planned = (library: Blas): PairPlan => {
      const plan = library.plan(spec);
      return { spec, description: `${library.name}: ${plan.description}`, library, plan };
    };
    const why = this.#first.supports(spec);
    if (why === true) return planned(this.#first);
    const second = (this.#second ??= this.#openSecond());
    const whyNot = typeof second === 'string' ? second : second.supports(spec);
    return whyNot === true ? planned(second as Blas) : `${why}; ${whyNot}`;
  }

  readonly run: Blas['run'] = (plan, ...call) => {
    const p = plan as PairPlan;
    p.library.run(p.plan, ...call);
  };
  readonly measure: NonNullable<Blas['measure']> = (plan, ...call) => {
    const p = plan as PairPlan;
    p.library.measure?.(p.plan, ...call);
  };
  dispose(): void {
    this.clearPlans();
    this.#first.dispose();
    if (this.#second && typeof this.#second !== 'string') this.#second.dispose();
  }
}

/**
 * The product as the libraries' column-major view has it: d' = a' b' with rows and columns exchanged when d is
 * row-major.
 */
export interface ColumnMajor {
  readonly m: number;
  readonly n: number;
  readonly k: number;
  /** Whether a and b change places. */
  readonly swap: boolean;
  readonly a: { readonly transposed: boolean; readonly ld: number; readonly batchStride: number };
  readonly b: { readonly transposed: boolean; readonly ld: number; readonly batchStride: number };
  readonly d: { readonly ld: number; readonly batchStride: number };
}

/** Row-major memory is the column-major transpose: D^T = B^T A^T needs no copy. */
export function columnMajor(s: GemmSpec): ColumnMajor {
  const swap = s.d.order === 'row';
  const side = (l: MatrixLayout) => ({
    transposed: (l.order === 'row') !== swap,
    ld: l.ld,
    batchStride: l.batchStride,
  });
  return {
    m: swap ? s.n : s.m,
    n: swap ? s.m : s.n,
    k: s.k,
    swap,
    a: side(swap ? s.b : s.a),
    b: side(swap ? s.a : s.b),
    d: { ld: s.d.ld, batchStride: s.d.batchStride },
  };
}

/** The spec's values as one string, the key plans are kept under. */
export function gemmKey(s: GemmSpec): string {
  const l = (x: MatrixLayout) => `${x.order}${x.ld}/${x.batchStride}`;
  return `${s.dtype},${s.outDtype ?? s.dtype},${s.batch},${s.m},${s.n},${s.k},${l(s.a)},${l(s.b)},${l(s.d)},${s.bias ? 1 : 0}${s.tf32 ? 1 : 0}`;
}

/** Rules that hold for every library; the sentence names the one that is broken. */
export function checkGemm(s: GemmSpec): true | string {
  for (const name of ['batch', 'm', 'n', 'k'] as const) {
    if (!Number.isInteger(s[name]) || s[name] < 1 || s[name] > 0x7fffffff)
      return `${name} is ${s[name]}; it must be 1 to 2^31-1`;
  }
  const sizes = { a: [s.m, s.k], b: [s.k, s.n], d: [s.m, s.n] } as const;
  for (const name of ['a', 'b', 'd'] as const) {
    const l = s[name];
    const least = sizes[name][l.order === 'row' ? 1 : 0];
    if (l.ld < least || l.ld > 0x7fffffff)
      return `leading dimension of ${name} is ${l.ld}; it must be ${least} to 2^31-1`;
  }
  if (s.batch > 1 && s.d.batchStride === 0) return 'the result repeats one matrix (batch stride 0)';
  const out = s.outDtype ?? s.dtype;
  if (out !== s.dtype && !(out === 'f32' && (s.dtype === 'f16' || s.dtype === 'bf16')))
    return `no product of ${s.dtype} gives ${out}`;
  if (s.bias && s.d.order !== 'row') return 'a bias needs a row-major result';
  return true;
}

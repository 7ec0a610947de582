// Data of the cases of structured kernels, and the list that the files of their families fill, always in one order.
import { DTYPE, type DType, isFloat, type Value } from '../src/base/dtype.js';
import type { GemmTarget } from '../src/backends/gpu/matmul.js';
import type { Launches } from '../src/backends/gpu/plan.js';

export interface Data {
  readonly dtype: DType;
  readonly values: readonly Value[];
}
export interface Case {
  readonly name: string;
  readonly plan: (target: GemmTarget) => Launches;
  readonly inputs: Readonly<Record<string, Data>>;
  /** What must be found in buffers after the launches; a buffer that is an input too starts with it. */
  readonly outputs: Readonly<Record<string, Data>>;
  /** Relative to the largest magnitude; the dtype's own unless said. */
  readonly bound?: number;
}
export const BOUND: Readonly<Record<string, number>> = { f64: 1e-13, f32: 3e-6, f16: 2e-3, bf16: 1.6e-2, f8e4m3: 0.13 };
export const cases: Case[] = [];

// ---- data: the values are what the dtype really holds ----

let seed = 1;
export const random = (): number => (seed = (seed * 1103515245 + 12345) % 2147483648) / 2147483648;
export const rounded = (dtype: DType, v: Value): Value => DTYPE[dtype].decode(DTYPE[dtype].encode(v) as number);
export const make = (dtype: DType, n: number, of: (i: number) => number): Data => ({
  dtype,
  values: Array.from({ length: n }, (_, i) => rounded(dtype, isFloat(dtype) ? of(i) : BigInt(Math.floor(of(i))))),
});
export const floats = (dtype: DType, n: number, low = -2, high = 2): Data =>
  make(dtype, n, () => low + random() * (high - low));
export const num = (d: Data): number[] => d.values.map(Number);
export const same = (dtype: DType, values: readonly number[]): Data => ({
  dtype,
  values: values.map((v) => (isFloat(dtype) ? v : BigInt(v))),
});
export const range = (n: number): number[] => Array.from({ length: n }, (_, i) => i);
export const REALS: readonly DType[] = ['f32', 'f64', 'f16', 'bf16'];
export const rowsOf = (x: readonly number[], cols: number): number[][] =>
  range(x.length / cols).map((r) => x.slice(r * cols, (r + 1) * cols));

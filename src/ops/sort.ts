// Sorting along a dimension: stable, of any length, NaN counting as the largest value.
import { DTYPES, type Value } from '../base/dtype.js';
import { ArgumentError } from '../base/errors.js';
import { normalizeDim } from '../base/shape.js';
import type { Tensor } from '../tensor/tensor.js';
import { composite, eachLane, kernel, type Kernel, lanes, replaceDim, requireOptions } from './kernel-row.js';
import {
  rows,
  type Call,
  type CompositeErrorSample,
  type CompositeSample,
  type ErrorSample,
  type RefTensor,
  type Sample,
  type Sig,
} from './op.js';

declare module './op.js' {
  interface KernelFacts {
    /** Whether the sorted values are a result, too, the first one. */
    sort: { readonly values?: true } | undefined;
  }
}

export interface ArgsortParams extends Record<string, unknown> {
  readonly dim: number;
  readonly descending: boolean;
}
export interface TopParams extends ArgsortParams {
  /** How many are wanted. */
  readonly keep: number;
}
export interface RankParams extends Record<string, unknown> {
  readonly dim: number;
  /** Which place of the order is asked for, from 0. */
  readonly rank: number;
  /** Whether NaN takes the place of what stands there. */
  readonly nan: boolean;
}
/** How elements are ordered. */
export interface SortOptions {
  /** Largest first. */
  readonly descending?: boolean;
}

/** Ascending with NaN last; signed zeros are equal. */
const order = (a: Value, b: Value): number => (a !== a ? (b !== b ? 0 : 1) : b !== b ? -1 : a < b ? -1 : a > b ? 1 : 0);

const NAN = 'NaN is the largest value: last ascending, first descending.';

type Many<A extends readonly unknown[]> = Kernel<A, ArgsortParams> & { readonly many: true };
const many = <A extends readonly unknown[]>(row: Kernel<A, ArgsortParams>): Many<A> => ({ ...row, many: true });

export const sort = rows({
  argsort: kernel({
    family: 'sort',
    engineParams: ['dim', 'descending'],
    formula: 'indices (u32) that sort x along dim; equal elements keep their order',
    dtypes: DTYPES,
    candle: { file: 'sort.cu', symbol: 'asort' },
    differs: `Stable, along any dimension, of any length (Candle's is unstable and ends at 8192). ${NAN}`,
    ulp: 0,
    noGrad: 'the result is an index',
    infer: ([x]: readonly Sig[], { dim }: ArgsortParams): readonly Sig[] => {
      normalizeDim('argsort', dim, x.shape.length);
      return [{ shape: x.shape, dtype: 'u32' }];
    },
    reference: ([x]: readonly RefTensor[], [out]: readonly RefTensor[], { dim, descending }: ArgsortParams): void =>
      eachLane(x.shape, dim, (start, step, n) => {
        const value = (i: number): Value => x.data[start + i * step];
        const sorted = Array.from({ length: n }, (_, i) => i).sort((a, b) =>
          descending ? order(value(b), value(a)) : order(value(a), value(b)),
        );
        sorted.forEach((from, to) => (out.data[start + to * step] = BigInt(from)));
      }),
    args: (x: Tensor, dim: number = -1, options: SortOptions = {}): Call<ArgsortParams> => {
      requireOptions('argsort', options, ['descending']);
      return {
        inputs: [x],
        params: { dim: normalizeDim('argsort', dim, x.shape.length), descending: options.descending ?? false },
      };
    },
    samples: (): readonly Sample<ArgsortParams>[] => [
      { inputs: [{ shape: [4, 9] }], params: { dim: 1, descending: false } },
      { inputs: [{ shape: [5, 3, 2] }], params: { dim: 0, descending: true } },
      { inputs: [{ shape: [2, 70], ints: [0, 3] }], params: { dim: 1, descending: true } },
      { inputs: [{ shape: [3, 1] }], params: { dim: 1, descending: false } },
      { inputs: [{ shape: [1, 1500] }], params: { dim: 1, descending: false } },
    ],
    errors: (): readonly ErrorSample<ArgsortParams>[] => [
      {
        inputs: [{ shape: [4, 9] }],
        params: { dim: 2, descending: false },
        code: 'E_SHAPE',
        says: /argsort: dimension 2 is out of range for rank 2/,
      },
      { inputs: [{ shape: [] }], params: { dim: 0, descending: false }, code: 'E_SHAPE', says: /rank-0/ },
    ],
  }),

  argTop: kernel({
    internal: true,
    serves: 'topk',
    family: 'sort',
    engineParams: ['dim', 'descending', 'keep'],
    formula: 'the first `keep` indices (u32) of those that sort x along dim; equal elements keep their order',
    dtypes: DTYPES,
    candle: { none: 'Candle has no top-k' },
    ulp: 0,
    noGrad: 'the result is an index',
    infer: ([x]: readonly Sig[], { dim, keep }: TopParams): readonly Sig[] => {
      normalizeDim('topk', dim, x.shape.length);
      if (!Number.isInteger(keep) || keep < 0 || keep > x.shape[dim])
        throw new ArgumentError(
          `topk: k ${keep} must be a whole number from 0 to ${x.shape[dim]}, the size of dimension ${dim}`,
        );
      return [{ shape: replaceDim(x.shape, dim, keep), dtype: 'u32' }];
    },
    reference: ([x]: readonly RefTensor[], [out]: readonly RefTensor[], { dim, descending, keep }: TopParams): void => {
      const { left, n, right } = lanes(x.shape, dim);
      for (let l = 0; l < left; l++)
        for (let r = 0; r < right; r++) {
          const value = (i: number): Value => x.data[(l * n + i) * right + r];
          Array.from({ length: n }, (_, i) => i)
            .sort((a, b) => (descending ? order(value(b), value(a)) : order(value(a), value(b))))
            .slice(0, keep)
            .forEach((from, to) => (out.data[(l * keep + to) * right + r] = BigInt(from)));
        }
    },
    args: (x: Tensor, dim: number, keep: number, descending: boolean): Call<TopParams> => ({
      inputs: [x],
      params: { dim, descending, keep },
    }),
    samples: (): readonly Sample<TopParams>[] => [
      { inputs: [{ shape: [4, 9] }], params: { dim: 1, descending: true, keep: 3 } },
      { inputs: [{ shape: [6, 4], ints: [0, 2] }], params: { dim: 0, descending: false, keep: 2 } },
      { inputs: [{ shape: [2, 9000] }], params: { dim: 1, descending: true, keep: 5 } },
      { inputs: [{ shape: [9000], ints: [0, 3] }], params: { dim: 0, descending: false, keep: 2100 } },
    ],
    errors: (): readonly ErrorSample<TopParams>[] => [
      {
        inputs: [{ shape: [4, 9] }],
        params: { dim: 1, descending: true, keep: 10 },
        code: 'E_ARGUMENT',
        says: /topk: k 10 must be a whole number from 0 to 9/,
      },
    ],
  }),

  sortPairs: many({
    internal: true,
    serves: 'sort',
    family: 'sort',
    kernel: { values: true },
    engineParams: ['dim', 'descending'],
    formula: 'x sorted along dim, and the indices (u32) that sort it so; equal elements keep their order',
    dtypes: DTYPES,
    candle: { none: 'Candle sorts indices' },
    ulp: 0,
    noGrad: 'sort gathers what it gives a gradient to',
    infer: ([x]: readonly Sig[], { dim }: ArgsortParams): readonly Sig[] => {
      normalizeDim('sort', dim, x.shape.length);
      return [x, { shape: x.shape, dtype: 'u32' }];
    },
    reference: (
      [x]: readonly RefTensor[],
      [out, ids]: readonly RefTensor[],
      { dim, descending }: ArgsortParams,
    ): void =>
      eachLane(x.shape, dim, (start, step, n) => {
        const value = (i: number): Value => x.data[start + i * step];
        const sorted = Array.from({ length: n }, (_, i) => i).sort((a, b) =>
          descending ? order(value(b), value(a)) : order(value(a), value(b)),
        );
        sorted.forEach((from, to) => {
          out.data[start + to * step] = value(from);
          ids.data[start + to * step] = BigInt(from);
        });
      }),
    args: (x: Tensor, dim: number, descending: boolean): Call<ArgsortParams> => ({
      inputs: [x],
      params: { dim: normalizeDim('sort', dim, x.rank), descending: descending === true },
    }),
    samples: (): readonly Sample<ArgsortParams>[] => [
      { inputs: [{ shape: [4, 9] }], params: { dim: 1, descending: false } },
      { inputs: [{ shape: [5, 3, 2], ints: [0, 3] }], params: { dim: 0, descending: true } },
      { inputs: [{ shape: [2, 700], ints: [0, 3] }], params: { dim: 1, descending: true } },
      { inputs: [{ shape: [2, 9000] }], params: { dim: 1, descending: false } },
    ],
    errors: (): readonly ErrorSample<ArgsortParams>[] => [
      {
        inputs: [{ shape: [4, 9] }],
        params: { dim: 2, descending: false },
        code: 'E_SHAPE',
        says: /sort: dimension 2 is out of range for rank 2/,
      },
    ],
  }),

  argRank: kernel({
    internal: true,
    serves: 'median',
    family: 'sort',
    engineParams: ['dim', 'rank', 'nan'],
    formula:
      'the index (u32) that stands at place `rank` among those that sort x along dim, or with `nan` that of the ' +
      'first NaN where there is one',
    dtypes: DTYPES,
    candle: { none: 'Candle has none of it' },
    ulp: 0,
    noGrad: 'the result is an index',
    infer: ([x]: readonly Sig[], { dim, rank }: RankParams): readonly Sig[] => {
      normalizeDim('argRank', dim, x.shape.length);
      if (!Number.isInteger(rank) || rank < 0 || rank >= x.shape[dim])
        throw new ArgumentError(`argRank: place ${rank} is not from 0 to ${x.shape[dim] - 1}`);
      return [{ shape: replaceDim(x.shape, dim, 1), dtype: 'u32' }];
    },
    reference: ([x]: readonly RefTensor[], [out]: readonly RefTensor[], { dim, rank, nan }: RankParams): void => {
      const { left, n, right } = lanes(x.shape, dim);
      for (let l = 0; l < left; l++)
        for (let r = 0; r < right; r++) {
          const row = Array.from({ length: n }, (_, i) => x.data[(l * n + i) * right + r]);
          const sorted = row.map((_, i) => i).sort((a, b) => order(row[a], row[b]));
          const none = nan ? row.findIndex((v) => v !== v) : -1;
          out.data[l * right + r] = BigInt(none < 0 ? sorted[rank] : none);
        }
    },
    args: (x: Tensor, dim: number, rank: number, nan: boolean = false): Call<RankParams> => ({
      inputs: [x],
      params: { dim: normalizeDim('argRank', dim, x.rank), rank, nan: nan === true },
    }),
    samples: (): readonly Sample<RankParams>[] => [
      { inputs: [{ shape: [4, 9] }], params: { dim: 1, rank: 3, nan: true } },
      { inputs: [{ shape: [6, 4], ints: [0, 2] }], params: { dim: 0, rank: 5, nan: false } },
      { inputs: [{ shape: [3, 1500], ints: [0, 9] }], params: { dim: 1, rank: 700, nan: true } },
      { inputs: [{ shape: [2, 5000] }], params: { dim: 1, rank: 2499, nan: false } },
    ],
    errors: (): readonly ErrorSample<RankParams>[] => [
      {
        inputs: [{ shape: [4, 9] }],
        params: { dim: 1, rank: 9, nan: false },
        code: 'E_ARGUMENT',
        says: /argRank: place 9 is not from 0 to 8/,
      },
    ],
  }),

  sort: composite({
    formula: '[values, indices] with x sorted along dim',
    dtypes: DTYPES,
    candle: { none: 'argsort and gather there too' },
    differs: `It has a gradient. ${NAN}`,
    ulp: 0,
    compose: (x: Tensor, dim: number = -1, options: SortOptions = {}): readonly [values: Tensor, indices: Tensor] => {
      requireOptions('sort', options, ['descending']);
      const d = normalizeDim('sort', dim, x.shape.length);
      const [values, ids] = x.detach().sortPairs(d, options.descending ?? false);
      return [x.requiresGrad ? x.gather(d, ids) : values, ids];
    },
    samples: (): readonly CompositeSample[] => [
      { inputs: [{ shape: [4, 9], distinct: true }], args: [] },
      { inputs: [{ shape: [5, 3, 2], distinct: true }], args: [0, { descending: true }] },
    ],
    errors: (): readonly CompositeErrorSample[] => [
      { inputs: [{ shape: [4, 9] }], args: [2], code: 'E_SHAPE', says: /dimension 2 is out of range/ },
      {
        inputs: [{ shape: [4, 9] }],
        args: [1, { ascending: true }],
        code: 'E_ARGUMENT',
        says: /unknown option "ascending"/,
      },
    ],
  }),

  topk: composite({
    formula: '[values, indices] of the k largest (or smallest) elements along dim, best first',
    dtypes: DTYPES,
    candle: { none: 'Candle has no top-k' },
    differs: NAN,
    ulp: 0,
    compose: (
      x: Tensor,
      k: number,
      dim: number = -1,
      options: { readonly largest?: boolean } = {},
    ): readonly [values: Tensor, indices: Tensor] => {
      requireOptions('topk', options, ['largest']);
      const d = normalizeDim('topk', dim, x.shape.length);
      if (!Number.isInteger(k) || k < 0 || k > x.shape[d]) {
        throw new ArgumentError(
          `topk: k ${k} must be a whole number from 0 to ${x.shape[d]}, the size of dimension ${dim}`,
        );
      }
      const ids = x.detach().argTop(d, k, options.largest ?? true);
      return [x.gather(d, ids), ids];
    },
    samples: (): readonly CompositeSample[] => [
      { inputs: [{ shape: [4, 9], distinct: true }], args: [3] },
      { inputs: [{ shape: [6, 4], distinct: true }], args: [2, 0, { largest: false }] },
      { inputs: [{ shape: [5], distinct: true }], args: [5] },
    ],
    errors: (): readonly CompositeErrorSample[] => [
      { inputs: [{ shape: [4, 9] }], args: [10], code: 'E_ARGUMENT', says: /k 10 must be a whole number from 0 to 9/ },
    ],
  }),
});

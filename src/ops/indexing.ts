// Reading and writing at indices: gather, scatter, rows by number, slices. The index dtype's largest value means "no
// element".
import { DTYPES, maxInt, NUMBERS, type DType, type Value } from '../base/dtype.js';
import { ArgumentError, DTypeError, ShapeError } from '../base/errors.js';
import { formatShape, normalizeDim, sizeOf, type Shape } from '../base/shape.js';
import type { Tensor } from '../tensor/tensor.js';
import type { Operand } from './elementwise.js';
import {
  alongside,
  extremesInto,
  inferScatter,
  placeOf,
  requireIndex,
  requireInside,
  scatterInto,
} from './index-places.js';
import { composite, kernel, lanes, replaceDim, requireRank, requireSameDType, requireWhole } from './kernel-row.js';
import {
  rows,
  type Call,
  type CompositeErrorSample,
  type CompositeSample,
  type ErrorSample,
  type GradContext,
  type Grads,
  type InputSpec,
  type RefTensor,
  type Sample,
  type Sig,
  ulps,
} from './op.js';

declare module './op.js' {
  interface KernelFacts {
    /** How indices are used; `add`: what is scattered is added to what is there. */
    index: {
      readonly kind: 'select' | 'gather' | 'scatter' | 'extreme' | 'indexAdd' | 'sliceScatter' | 'store' | 'experts';
      readonly add?: boolean;
      /** Indices below 0 count from the end. */
      readonly wrap?: true;
    };
  }
}

export interface DimParams extends Record<string, unknown> {
  readonly dim: number;
}
export interface ExtremeParams extends DimParams {
  /** The largest is kept, else the smallest. */
  readonly most: boolean;
  /** Whether what x holds counts; where nothing goes it stays anyway. */
  readonly self: boolean;
}
export interface SliceScatterParams extends DimParams {
  readonly start: number;
}

const SENTINEL =
  "The largest value of the index dtype reads 0 and writes nothing, for every value dtype (Candle's f8 kernels " +
  'skip that check).';
const ANY_LAYOUT = 'Operands and indices may have any layout, and indices may be i16 and i32 as well.';
// Sums of a few values, rounded once by the reference: bounds count units of the largest partial sum.
const SUM_ULP = { f8e4m3: 2, bf16: 2, f16: 2, f32: 4, f64: 4 } as const;

/** Ones where a scattered element is the last one written to its place, so only it receives a gradient. */
function lastWriters(x: Tensor, dim: number, ids: Tensor): Tensor {
  const n = ids.shape[dim];
  const order = x
    .newArange(n, 'u32')
    .reshape(ids.shape.map((_, i) => (i === dim ? n : 1)))
    .broadcastTo(ids.shape);
  return x.newZeros(x.shape, 'u32').scatter(dim, ids, order).gather(dim, ids).eq(order);
}

/** What sums of a gradient begin with: one zero seen many times, which nobody writes out. */
const zerosFor = (x: Tensor): Tensor => x.device.constant(0, x.dtype).broadcastTo(x.shape);

/** Indices 0..n-1 for a test. */
const ids = (shape: Shape, n: number, dtype: DType = 'u32'): InputSpec => ({ shape, dtype, ints: [0, n - 1] });
/** What every op refuses of a (3, 4) x: indices that are floats, a dimension that is none, an index beyond the rows. */
function badIndices(
  shape: Shape,
  dtype: DType,
  beyond: number,
  ...more: readonly InputSpec[]
): ErrorSample<DimParams>[] {
  const inputs = (indices: InputSpec): InputSpec[] => [{ shape: [3, 4] }, indices, ...more];
  const says = new RegExp(`index ${beyond} at position 0 is out of range for a dimension of size 3`);
  return [
    { inputs: inputs({ shape, dtype: 'f32' }), params: { dim: 0 }, code: 'E_DTYPE', says: /indices are f32/ },
    {
      inputs: inputs(ids(shape, 3)),
      params: { dim: 3 },
      code: 'E_SHAPE',
      says: /dimension 3 is out of range for rank 2/,
    },
    { inputs: inputs({ shape, dtype, ints: [beyond, beyond] }), params: { dim: 0 }, code: 'E_INDEX', says },
  ];
}

const scatterSamples = (): readonly Sample<DimParams>[] => [
  { inputs: [{ shape: [5, 4] }, ids([3, 4], 5), { shape: [3, 4] }], params: { dim: 0 } },
  { inputs: [{ shape: [2, 7, 3] }, ids([2, 5, 3], 7, 'i64'), { shape: [2, 5, 3] }], params: { dim: 1 } },
  { inputs: [{ shape: [3, 4, 6] }, ids([2, 3, 9], 6, 'u8'), { shape: [2, 3, 9] }], params: { dim: 2 } },
  { inputs: [{ shape: [4, 5] }, ids([0, 5], 4), { shape: [0, 5] }], params: { dim: 0 } },
];
const scatterErrors = (): readonly ErrorSample<DimParams>[] => [
  {
    inputs: [{ shape: [3, 4] }, ids([2, 4], 3), { shape: [3, 4] }],
    params: { dim: 0 },
    code: 'E_SHAPE',
    says: /must have one shape/,
  },
  {
    inputs: [{ shape: [3, 4] }, ids([2, 5], 3), { shape: [2, 5] }],
    params: { dim: 0 },
    code: 'E_SHAPE',
    says: /no larger except in dimension 0/,
  },
  ...badIndices([3, 4], 'u32', 7, { shape: [3, 4] }),
];

export const indexing = rows({
  gather: kernel({
    family: 'index',
    mixed: true,
    kernel: { kind: 'gather' },
    formula: 'out[i][j] = x[ids[i][j]][j] for dim 0',
    dtypes: DTYPES,
    candle: { file: 'indexing.cu', symbol: 'gather' },
    differs:
      `Indices smaller than x on other dimensions read the matching corner of x (Candle's kernel takes its ` +
      `strides from x). ${SENTINEL} ${ANY_LAYOUT}`,
    ulp: 0,
    infer: ([x, ids]: readonly Sig[], { dim }: DimParams): readonly Sig[] => {
      normalizeDim('gather', dim, x.shape.length);
      requireIndex('gather', ids);
      requireInside('gather', 'indices', ids.shape, x.shape, dim);
      return [{ shape: ids.shape, dtype: x.dtype }];
    },
    reference: ([x, ids]: readonly RefTensor[], [out]: readonly RefTensor[], { dim }: DimParams): void => {
      const sentinel = maxInt(ids.dtype);
      alongside(ids.shape, x.shape, dim, (at, base, step) => {
        const place = placeOf('gather', ids.data[at], at, x.shape[dim], sentinel);
        out.data[at] = place < 0 ? 0 : x.data[base + place * step];
      });
    },
    grad: ({ inputs: [x, ids], grad, params: { dim } }: GradContext<DimParams>): Grads => [
      zerosFor(x).scatterAdd(dim, ids, grad),
      undefined,
    ],
    args: (x: Tensor, dim: number, ids: Tensor): Call<DimParams> => ({
      inputs: [x, ids],
      params: { dim: normalizeDim('gather', dim, x.shape.length) },
    }),
    samples: (): readonly Sample<DimParams>[] => [
      { inputs: [{ shape: [5, 4] }, ids([3, 4], 5)], params: { dim: 0 } },
      { inputs: [{ shape: [2, 7, 3] }, ids([2, 5, 3], 7, 'i64')], params: { dim: 1 } },
      { inputs: [{ shape: [4, 5, 6] }, ids([3, 2, 9], 6, 'u8')], params: { dim: 2 } },
      { inputs: [{ shape: [3, 4] }, ids([3, 0], 4)], params: { dim: 1 } },
    ],
    errors: (): readonly ErrorSample<DimParams>[] => [
      {
        inputs: [{ shape: [3, 4] }, ids([3, 5], 3)],
        params: { dim: 0 },
        code: 'E_SHAPE',
        says: /no larger except in dimension 0/,
      },
      ...badIndices([3, 4], 'u32', 9),
    ],
  }),

  indexSelect: kernel({
    family: 'index',
    mixed: true,
    kernel: { kind: 'select' },
    formula: 'out[i] = x[ids[i]] along dim',
    dtypes: DTYPES,
    candle: { file: 'indexing.cu', symbol: 'is' },
    differs:
      `Arguments are (dim, ids). Strided indices are read by their stride (Candle's kernel ignores ` +
      `it). ${SENTINEL} ${ANY_LAYOUT}`,
    ulp: 0,
    infer: ([x, ids]: readonly Sig[], { dim }: DimParams): readonly Sig[] => {
      normalizeDim('indexSelect', dim, x.shape.length);
      requireIndex('indexSelect', ids);
      requireRank('indexSelect', 'indices', ids.shape, 1, '(n)');
      return [{ shape: replaceDim(x.shape, dim, ids.shape[0]), dtype: x.dtype }];
    },
    reference: ([x, ids]: readonly RefTensor[], [out]: readonly RefTensor[], { dim }: DimParams): void => {
      const { left, n, right } = lanes(x.shape, dim);
      const sentinel = maxInt(ids.dtype);
      const places = ids.data.map((id, at) => placeOf('indexSelect', id, at, n, sentinel));
      for (let l = 0, to = 0; l < left; l++) {
        for (const p of places)
          for (let r = 0; r < right; r++) out.data[to++] = p < 0 ? 0 : x.data[(l * n + p) * right + r];
      }
    },
    grad: ({ inputs: [x, ids], grad, params: { dim } }: GradContext<DimParams>): Grads => [
      zerosFor(x).indexAdd(dim, ids, grad),
      undefined,
    ],
    args: (x: Tensor, dim: number, ids: Tensor): Call<DimParams> => ({
      inputs: [x, ids],
      params: { dim: normalizeDim('indexSelect', dim, x.shape.length) },
    }),
    samples: (): readonly Sample<DimParams>[] => [
      { inputs: [{ shape: [5, 4] }, ids([7], 5)], params: { dim: 0 } },
      { inputs: [{ shape: [2, 6, 3] }, ids([4], 6, 'i64')], params: { dim: 1 } },
      { inputs: [{ shape: [3, 7] }, ids([3], 7, 'u8')], params: { dim: 1 } },
      { inputs: [{ shape: [3, 7] }, ids([0], 7)], params: { dim: 0 } },
    ],
    errors: (): readonly ErrorSample<DimParams>[] => [
      {
        inputs: [{ shape: [3, 4] }, ids([2, 2], 3)],
        params: { dim: 0 },
        code: 'E_SHAPE',
        says: /indices \[2, 2\] has rank 2; it takes rank 1/,
      },
      ...badIndices([2], 'i64', -1),
    ],
  }),

  takeWrapped: kernel({
    internal: true,
    serves: 'take',
    family: 'index',
    mixed: true,
    kernel: { kind: 'select', wrap: true },
    engineParams: ['dim'],
    formula: 'out[i] = x[ids[i]] along dim, where indices below 0 count from the end',
    dtypes: DTYPES,
    candle: { none: 'Candle has none of it' },
    differs: SENTINEL,
    ulp: 0,
    infer: ([x, ids]: readonly Sig[], { dim }: DimParams): readonly Sig[] => {
      normalizeDim('take', dim, x.shape.length);
      requireIndex('take', ids);
      if (ids.dtype !== 'i64') throw new DTypeError(`take: indices are ${ids.dtype}, not i64`);
      requireRank('take', 'indices', ids.shape, 1, '(n)');
      return [{ shape: replaceDim(x.shape, dim, ids.shape[0]), dtype: x.dtype }];
    },
    reference: ([x, ids]: readonly RefTensor[], [out]: readonly RefTensor[], { dim }: DimParams): void => {
      const { left, n, right } = lanes(x.shape, dim);
      const sentinel = maxInt(ids.dtype);
      const from = (id: Value): Value => (id < 0 ? BigInt(id) + BigInt(n) : id);
      const places = ids.data.map((id, at) => placeOf('take', from(id), at, n, sentinel));
      for (let l = 0, to = 0; l < left; l++) {
        for (const p of places)
          for (let r = 0; r < right; r++) out.data[to++] = p < 0 ? 0 : x.data[(l * n + p) * right + r];
      }
    },
    grad: ({ inputs: [x, ids], grad, params: { dim } }: GradContext<DimParams>): Grads => [
      zerosFor(x).indexAdd(dim, ids.lt(0).where(ids.affine(1, x.shape[dim]), ids), grad),
      undefined,
    ],
    args: (x: Tensor, dim: number, ids: Tensor): Call<DimParams> => ({ inputs: [x, ids], params: { dim } }),
    samples: (): readonly Sample<DimParams>[] => [
      { inputs: [{ shape: [5, 4] }, { shape: [7], dtype: 'i64', ints: [-5, 4] }], params: { dim: 0 } },
      { inputs: [{ shape: [40] }, { shape: [300], dtype: 'i64', ints: [-40, 39] }], params: { dim: 0 } },
      { inputs: [{ shape: [3, 7] }, ids([300], 7, 'i64')], params: { dim: 1 } },
    ],
    errors: (): readonly ErrorSample<DimParams>[] => [
      {
        inputs: [{ shape: [3] }, { shape: [1], dtype: 'i64', ints: [-4, -4] }],
        params: { dim: 0 },
        code: 'E_INDEX',
        says: /index -1 at position 0 is out of range for a dimension of size 3/,
      },
    ],
  }),

  indexSelectOr: kernel({
    internal: true,
    serves: 'indexCopy',
    family: 'index',
    mixed: true,
    kernel: { kind: 'select' },
    engineParams: ['dim'],
    formula: 'out[i] = x[ids[i]] along dim, and rest[i] where ids[i] is the largest of its dtype',
    dtypes: DTYPES,
    candle: { none: 'Candle has none of it' },
    ulp: 0,
    noGrad: 'indexCopy says which of the two it comes from',
    infer: ([x, ids, rest]: readonly Sig[], { dim }: DimParams): readonly Sig[] => {
      normalizeDim('indexCopy', dim, x.shape.length);
      requireIndex('indexCopy', ids);
      requireRank('indexCopy', 'indices', ids.shape, 1, '(n)');
      requireSameDType('indexCopy', [x, rest]);
      const shape = replaceDim(x.shape, dim, ids.shape[0]);
      if (formatShape(rest.shape) !== formatShape(shape))
        throw new ShapeError(`indexCopy: the others ${formatShape(rest.shape)} must be ${formatShape(shape)}`);
      return [{ shape, dtype: x.dtype }];
    },
    reference: ([x, ids, rest]: readonly RefTensor[], [out]: readonly RefTensor[], { dim }: DimParams): void => {
      const { left, n, right } = lanes(x.shape, dim);
      const sentinel = maxInt(ids.dtype);
      const places = ids.data.map((id, at) => placeOf('indexCopy', id, at, n, sentinel));
      for (let l = 0, to = 0; l < left; l++) {
        for (const p of places)
          for (let r = 0; r < right; r++, to++) out.data[to] = p < 0 ? rest.data[to] : x.data[(l * n + p) * right + r];
      }
    },
    args: (x: Tensor, dim: number, ids: Tensor, rest: Tensor): Call<DimParams> => ({
      inputs: [x, ids, rest],
      params: { dim },
    }),
    samples: (): readonly Sample<DimParams>[] => [
      {
        inputs: [
          { shape: [2, 4] },
          { shape: [5], dtype: 'i32', values: [1, 2 ** 31 - 1, 0, 1, 2 ** 31 - 1] },
          { shape: [5, 4] },
        ],
        params: { dim: 0 },
      },
      {
        inputs: [{ shape: [3, 2] }, { shape: [4], dtype: 'u8', values: [255, 1, 0, 255] }, { shape: [3, 4] }],
        params: { dim: 1 },
      },
    ],
    errors: (): readonly ErrorSample<DimParams>[] => [
      {
        inputs: [{ shape: [2, 4] }, ids([3], 2, 'i32'), { shape: [2, 4] }],
        params: { dim: 0 },
        code: 'E_SHAPE',
        says: /indexCopy: the others \[2, 4\] must be \[3, 4\]/,
      },
    ],
  }),

  indexAdd: kernel({
    family: 'index',
    mixed: true,
    kernel: { kind: 'indexAdd' },
    formula: 'out = x, then out[ids[i]] += src[i] along dim',
    dtypes: NUMBERS,
    candle: { file: 'indexing.cu', symbol: 'ia' },
    differs: `Arguments are (dim, ids, src). ${SENTINEL} ${ANY_LAYOUT}`,
    ulp: ulps(4),
    domain: [0.25, 4],
    infer: ([x, ids, src]: readonly Sig[], { dim }: DimParams): readonly Sig[] => {
      normalizeDim('indexAdd', dim, x.shape.length);
      requireIndex('indexAdd', ids);
      requireRank('indexAdd', 'indices', ids.shape, 1, '(n)');
      requireSameDType('indexAdd', [x, src]);
      const want = replaceDim(x.shape, dim, ids.shape[0]);
      if (formatShape(src.shape) !== formatShape(want)) {
        throw new ShapeError(
          `indexAdd: source ${formatShape(src.shape)} must be ${formatShape(want)}: x ${formatShape(x.shape)} with ` +
            `${ids.shape[0]} indices in dimension ${dim}`,
        );
      }
      return [x];
    },
    reference: ([x, ids, src]: readonly RefTensor[], [out]: readonly RefTensor[], { dim }: DimParams): void => {
      const { left, n, right } = lanes(x.shape, dim);
      const sentinel = maxInt(ids.dtype);
      const places = ids.data.map((id, at) => placeOf('indexAdd', id, at, n, sentinel));
      const data = out.data as number[];
      x.data.forEach((v, i) => (out.data[i] = v));
      for (let l = 0, from = 0; l < left; l++) {
        for (const p of places) {
          for (let r = 0; r < right; r++, from++) if (p >= 0) data[(l * n + p) * right + r] += src.data[from] as number;
        }
      }
    },
    grad: ({ inputs: [, ids], grad, params: { dim }, needs }: GradContext<DimParams>): Grads => [
      grad,
      undefined,
      needs(2) ? grad.indexSelect(dim, ids) : undefined,
    ],
    args: (x: Tensor, dim: number, ids: Tensor, src: Tensor): Call<DimParams> => ({
      inputs: [x, ids, src],
      params: { dim: normalizeDim('indexAdd', dim, x.shape.length) },
    }),
    samples: (): readonly Sample<DimParams>[] => [
      { inputs: [{ shape: [5, 4] }, ids([7], 5), { shape: [7, 4] }], params: { dim: 0 } },
      { inputs: [{ shape: [2, 6, 3] }, ids([4], 6, 'i64'), { shape: [2, 4, 3] }], params: { dim: 1 } },
      { inputs: [{ shape: [3, 7] }, ids([3], 7, 'u8'), { shape: [3, 3] }], params: { dim: 1 } },
    ],
    errors: (): readonly ErrorSample<DimParams>[] => [
      {
        inputs: [{ shape: [3, 4] }, ids([2], 3), { shape: [3, 4] }],
        params: { dim: 0 },
        code: 'E_SHAPE',
        says: /source \[3, 4\] must be \[2, 4\]/,
      },
      ...badIndices([2], 'u8', 3, { shape: [2, 4] }),
    ],
  }),

  scatter: kernel({
    family: 'index',
    mixed: true,
    kernel: { kind: 'scatter', add: false },
    formula: 'out = x, then out[ids[i][j]][j] = src[i][j] for dim 0; the last write wins',
    dtypes: DTYPES,
    candle: { file: 'indexing.cu', symbol: 's' },
    differs:
      `Arguments are (dim, ids, src); source and indices may be smaller than x. Overwritten elements of x ` +
      `and src get no gradient (Candle passes it through). ${SENTINEL} ${ANY_LAYOUT}`,
    ulp: 0,
    infer: (inputs: readonly Sig[], { dim }: DimParams): readonly Sig[] => inferScatter('scatter', inputs, dim),
    reference: (inputs: readonly RefTensor[], [out]: readonly RefTensor[], { dim }: DimParams): void =>
      scatterInto('scatter', inputs, out, dim, false),
    grad: ({ inputs: [x, ids, src], grad, params: { dim }, needs }: GradContext<DimParams>): Grads => [
      needs(0) ? grad.scatter(dim, ids, src.zerosLike()) : undefined,
      undefined,
      needs(2) ? lastWriters(x, dim, ids).where(grad.gather(dim, ids), src.zerosLike()) : undefined,
    ],
    args: (x: Tensor, dim: number, ids: Tensor, src: Tensor | number): Call<DimParams> => ({
      inputs: [x, ids, typeof src === 'number' ? x.newFull(ids.shape, src, x.dtype) : src],
      params: { dim: normalizeDim('scatter', dim, x.shape.length) },
    }),
    samples: scatterSamples,
    errors: scatterErrors,
  }),

  scatterAdd: kernel({
    family: 'index',
    mixed: true,
    kernel: { kind: 'scatter', add: true },
    formula: 'out = x, then out[ids[i][j]][j] += src[i][j] for dim 0',
    dtypes: NUMBERS,
    candle: { file: 'indexing.cu', symbol: 'sa' },
    differs:
      `Arguments are (dim, ids, src); source and indices may be smaller than x. The gradient of x is not ` +
      `masked, for nothing is overwritten (Candle masks it). ${SENTINEL} ${ANY_LAYOUT}`,
    ulp: SUM_ULP,
    domain: [0.25, 4],
    infer: (inputs: readonly Sig[], { dim }: DimParams): readonly Sig[] => inferScatter('scatterAdd', inputs, dim),
    reference: (inputs: readonly RefTensor[], [out]: readonly RefTensor[], { dim }: DimParams): void =>
      scatterInto('scatterAdd', inputs, out, dim, true),
    grad: ({ inputs: [, ids], grad, params: { dim }, needs }: GradContext<DimParams>): Grads => [
      grad,
      undefined,
      needs(2) ? grad.gather(dim, ids) : undefined,
    ],
    args: (x: Tensor, dim: number, ids: Tensor, src: Tensor): Call<DimParams> => ({
      inputs: [x, ids, src],
      params: { dim: normalizeDim('scatterAdd', dim, x.shape.length) },
    }),
    samples: scatterSamples,
    errors: scatterErrors,
  }),

  scatterExtreme: kernel({
    internal: true,
    serves: 'scatterReduce',
    family: 'index',
    mixed: true,
    kernel: { kind: 'extreme' },
    engineParams: ['dim', 'most', 'self'],
    formula:
      'out = x, then out[ids[i][j]][j] = the largest or smallest of it and src[i][j] for dim 0, or of src alone; NaN ' +
      'wins, and 0 is above -0',
    dtypes: NUMBERS,
    candle: { none: 'Candle has none of it' },
    ulp: 0,
    noGrad: 'scatterReduce shares it among equal elements',
    infer: (inputs: readonly Sig[], { dim }: ExtremeParams): readonly Sig[] =>
      inferScatter('scatterReduce', inputs, dim),
    reference: (inputs: readonly RefTensor[], [out]: readonly RefTensor[], { dim, most, self }: ExtremeParams): void =>
      extremesInto('scatterReduce', inputs, out, dim, most, self),
    args: (x: Tensor, dim: number, ids: Tensor, src: Tensor, most: boolean, self: boolean): Call<ExtremeParams> => ({
      inputs: [x, ids, src],
      params: { dim: normalizeDim('scatterReduce', dim, x.shape.length), most, self },
    }),
    samples: (): readonly Sample<ExtremeParams>[] => [
      ...[true, false].flatMap((most) =>
        scatterSamples().map(({ inputs, params }, i) => ({ inputs, params: { ...params, most, self: i % 2 === 0 } })),
      ),
      // Long lanes, of which several indices share a place; and lanes with more places than a block holds.
      ...[true, false].map((self) => ({
        inputs: [{ shape: [3, 300] }, ids([3, 700], 300, 'i64'), { shape: [3, 700] }],
        params: { dim: 1, most: self, self },
      })),
      {
        inputs: [{ shape: [5000] }, ids([600], 5000, 'i32'), { shape: [600] }],
        params: { dim: 0, most: true, self: false },
      },
    ],
    errors: (): readonly ErrorSample<ExtremeParams>[] =>
      scatterErrors().map((e) => ({ ...e, params: { ...e.params, most: true, self: true } })),
  }),

  sliceScatter: kernel({
    family: 'index',
    kernel: { kind: 'sliceScatter' },
    formula: 'out = x with elements start.. of dim replaced by src',
    dtypes: DTYPES,
    candle: { none: 'a composite there, for dimension 0 only with a gradient' },
    ulp: 0,
    infer: ([x, src]: readonly Sig[], { dim, start }: SliceScatterParams): readonly Sig[] => {
      normalizeDim('sliceScatter', dim, x.shape.length);
      requireSameDType('sliceScatter', [x, src]);
      requireWhole('sliceScatter', 'start', [start], 0);
      const fits =
        src.shape.length === x.shape.length &&
        src.shape.every((d, i) => (i === dim ? start + d <= x.shape[i] : d === x.shape[i]));
      if (!fits) {
        throw new ShapeError(
          `sliceScatter: source ${formatShape(src.shape)} does not fit x ${formatShape(x.shape)} from ${start} in ` +
            `dimension ${dim}`,
        );
      }
      return [x];
    },
    reference: (
      [x, src]: readonly RefTensor[],
      [out]: readonly RefTensor[],
      { dim, start }: SliceScatterParams,
    ): void => {
      const { left, n, right } = lanes(x.shape, dim);
      const run = src.shape[dim] * right;
      x.data.forEach((v, i) => (out.data[i] = v));
      for (let l = 0; l < left; l++) {
        for (let i = 0; i < run; i++) out.data[(l * n + start) * right + i] = src.data[l * run + i];
      }
    },
    grad: ({ inputs: [, src], grad, params: { dim, start }, needs }: GradContext<SliceScatterParams>): Grads => [
      needs(0) ? grad.sliceScatter(dim, start, src.zerosLike()) : undefined,
      needs(1) ? grad.narrow(dim, start, src.shape[dim]) : undefined,
    ],
    args: (x: Tensor, dim: number, start: number, src: Tensor): Call<SliceScatterParams> => ({
      inputs: [x, src],
      params: { dim: normalizeDim('sliceScatter', dim, x.shape.length), start },
    }),
    samples: (): readonly Sample<SliceScatterParams>[] => [
      { inputs: [{ shape: [5, 4] }, { shape: [2, 4] }], params: { dim: 0, start: 3 } },
      { inputs: [{ shape: [2, 7, 3] }, { shape: [2, 3, 3] }], params: { dim: 1, start: 1 } },
      { inputs: [{ shape: [3, 6] }, { shape: [3, 6] }], params: { dim: 1, start: 0 } },
    ],
    errors: (): readonly ErrorSample<SliceScatterParams>[] => [
      {
        inputs: [{ shape: [5, 4] }, { shape: [3, 4] }],
        params: { dim: 0, start: 3 },
        code: 'E_SHAPE',
        says: /source \[3, 4\] does not fit x \[5, 4\] from 3 in dimension 0/,
      },
      {
        inputs: [{ shape: [5, 4] }, { shape: [3, 4] }],
        params: { dim: 0, start: -1 },
        code: 'E_ARGUMENT',
        says: /start -1/,
      },
    ],
  }),

  sliceAssign: composite({
    formula: 'out = x with the block of ranges [from, to) replaced by src',
    dtypes: DTYPES,
    candle: { none: 'a composite there too' },
    ulp: 0,
    compose: (x: Tensor, ranges: readonly (readonly [number, number])[], src: Tensor): Tensor => {
      if (ranges.length > x.shape.length) {
        throw new ArgumentError(
          `sliceAssign: ${ranges.length} ranges for ${formatShape(x.shape)}, which has rank ${x.shape.length}`,
        );
      }
      ranges.forEach(([from, to], i) => {
        if (!(from >= 0 && from <= to && to <= x.shape[i])) {
          throw new ShapeError(
            `sliceAssign: range ${from} to ${to} of dimension ${i} is outside ${formatShape(x.shape)}`,
          );
        }
      });
      const place = (whole: Tensor, dim: number): Tensor => {
        if (dim === ranges.length) return src;
        const [from, to] = ranges[dim];
        return whole.sliceScatter(dim, from, place(whole.narrow(dim, from, to - from), dim + 1));
      };
      return place(x, 0);
    },
    samples: (): readonly CompositeSample[] => [
      {
        inputs: [{ shape: [5, 4] }, { shape: [2, 3] }],
        args: [
          [
            [1, 3],
            [0, 3],
          ],
          { input: 1 },
        ],
      },
      {
        inputs: [{ shape: [3, 4, 5] }, { shape: [3, 2, 5] }],
        args: [
          [
            [0, 3],
            [2, 4],
          ],
          { input: 1 },
        ],
      },
    ],
    errors: (): readonly CompositeErrorSample[] => [
      {
        inputs: [{ shape: [5, 4] }, { shape: [2, 3] }],
        args: [[[4, 6]], { input: 1 }],
        code: 'E_SHAPE',
        says: /range 4 to 6 of dimension 0/,
      },
      {
        inputs: [{ shape: [5] }, { shape: [2, 3] }],
        args: [
          [
            [0, 2],
            [0, 3],
          ],
          { input: 1 },
        ],
        code: 'E_ARGUMENT',
        says: /2 ranges for \[5\]/,
      },
    ],
  }),

  embedding: composite({
    formula: 'out[..., :] = x[ids[...], :]',
    dtypes: DTYPES,
    candle: { none: 'index_select there too' },
    ulp: 0,
    compose: (x: Tensor, ids: Tensor): Tensor => {
      requireRank('embedding', 'table', x.shape, 2, '(entries, width)');
      return x.indexSelect(0, ids.reshape([sizeOf(ids.shape)])).reshape([...ids.shape, x.shape[1]]);
    },
    samples: (): readonly CompositeSample[] => [
      { inputs: [{ shape: [9, 4] }, ids([2, 3], 9)], args: [{ input: 1 }] },
      { inputs: [{ shape: [5, 3] }, ids([], 5, 'i64')], args: [{ input: 1 }] },
    ],
    errors: (): readonly CompositeErrorSample[] => [
      { inputs: [{ shape: [9] }, ids([2], 9)], args: [{ input: 1 }], code: 'E_SHAPE', says: /table \[9\] has rank 1/ },
    ],
  }),

  maskedFill: composite({
    formula: 'out = value where mask is not 0, else x',
    dtypes: DTYPES,
    candle: { none: 'where_cond with a full tensor there' },
    ulp: 0,
    compose: (x: Tensor, mask: Tensor, value: Operand): Tensor => mask.broadcastTo(x.shape).where(value, x),
    samples: (): readonly CompositeSample[] => [
      { inputs: [{ shape: [3, 4] }, { shape: [3, 4], dtype: 'bool' }], args: [{ input: 1 }, 1] },
      { inputs: [{ shape: [2, 3, 4] }, { shape: [1, 4], dtype: 'u8', ints: [0, 1] }], args: [{ input: 1 }, 1] },
    ],
    errors: (): readonly CompositeErrorSample[] => [
      {
        inputs: [{ shape: [3, 4] }, { shape: [3, 5], dtype: 'u8', ints: [0, 1] }],
        args: [{ input: 1 }, 3],
        code: 'E_SHAPE',
        says: /\[3, 5\] does not broadcast to \[3, 4\]/,
      },
    ],
  }),
});

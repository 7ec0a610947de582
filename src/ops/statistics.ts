// Order and counts: medians, quantiles, histograms, searches, distinct elements, reductions by index; made of sorting
// and indexing.
import { DTYPES, isFloat, NUMBERS, REALS } from '../base/dtype.js';
import { ArgumentError, ShapeError } from '../base/errors.js';
import { formatShape, normalizeDim, type Shape } from '../base/shape.js';
import type { Tensor } from '../tensor/tensor.js';
import { alike, composite, requireDType, requireFlag, requireOptions, requireWhole } from './kernel-row.js';
import { type CompositeSample, rows, ulps } from './op.js';
import { type Counted, counted } from './pick.js';
import type { SearchOptions } from './search.js';

const INTERPOLATIONS = ['linear', 'lower', 'higher', 'midpoint', 'nearest'] as const;
export interface QuantileOptions {
  /** Whether the dimension stays, with size 1. */
  readonly keepdim?: boolean;
  /** What stands between two elements; default 'linear'. */
  readonly interpolation?: (typeof INTERPOLATIONS)[number];
}
export interface HistcOptions {
  /** Bounds of all bins; both equal: the smallest and the largest element. */
  readonly min?: number;
  /** The upper of these bounds. */
  readonly max?: number;
}
const REDUCTIONS = ['sum', 'prod', 'mean', 'amax', 'amin'] as const;
export type ScatterReduction = (typeof REDUCTIONS)[number];
export interface ScatterReduceOptions {
  /** Whether what x holds counts among what is reduced; default true. */
  readonly includeSelf?: boolean;
}

const on = (shape: Shape, ...args: unknown[]): CompositeSample => ({ inputs: [{ shape }], args });
const different = (shape: Shape, ...args: unknown[]): CompositeSample => ({
  inputs: [{ shape, distinct: true }],
  args,
});
const few = (shape: Shape, ...args: unknown[]): CompositeSample => ({ inputs: [{ shape, ints: [0, 3] }], args });
/** What these rows have in common. */
const row = alike({
  dtypes: DTYPES,
  ulp: 0,
  candle: { none: 'made of other ops' },
});

/** A dimension, or all elements as one, and nothing but non-empty. */
function along(op: string, x: Tensor, dim: number | undefined): { flat: Tensor; d: number; n: number } {
  const flat = dim === undefined ? x.flatten() : x;
  const d = dim === undefined ? 0 : normalizeDim(op, dim, x.rank);
  if (flat.shape[d] === 0) throw new ShapeError(`${op}: ${formatShape(x.shape)} has nothing along dimension ${d}`);
  return { flat, d, n: flat.shape[d] };
}
const numbered = (x: Tensor, n: number, d: number): Tensor =>
  x.newArange(n, 'i64').reshape(x.shape.map((_, i) => (i === d ? n : 1)));
/** True where an element differs from the one before it along d; the first differs. */
const starts = (x: Tensor, d: number): Tensor => {
  const n = x.shape[d];
  const first = x.newFull(x.narrow(d, 0, Math.min(1, n)).shape, 1, 'bool');
  return n > 1 ? first.cat([x.narrow(d, 1, n - 1).ne(x.narrow(d, 0, n - 1))], d) : first;
};

/**
 * Of runs of equal elements, where each begins by its flag: those flags with their counts, where runs begin, and how
 * long they are.
 */
function runsFrom(begin: Tensor): Counted & { readonly firsts: Tensor; readonly counts: Tensor } {
  const found = counted(begin);
  const { flags, before, count } = found;
  if (count === 0) return { ...found, firsts: begin.newZeros([0], 'i64'), counts: begin.newZeros([0], 'i64') };
  const firsts = flags.flagPlaces(before, count).flatten();
  const ends = firsts.narrow(0, 1, count - 1).cat([begin.newFull([1], begin.size, 'i64')], 0);
  return { ...found, firsts, counts: ends.sub(firsts) };
}

/** What unique takes. */
export interface UniqueOptions {
  /** Whole slices along this dimension are compared, in lexicographic order; default: single elements. */
  readonly dim?: number;
}
/** The same of slices along a dimension, where equal ones stand together unless they are to be sorted. */
function sliceRuns(op: string, x: Tensor, dim: number, sorted: boolean): readonly [Tensor, Tensor, Tensor] {
  const d = normalizeDim(op, dim, x.rank);
  const n = x.shape[d];
  const front = x.detach().movedim(d, 0);
  const slices = front.reshape([n, front.size / Math.max(1, n)]);
  let order = x.newArange(n, 'i64');
  // Stable sorts by one column after another, the first one last, put rows in lexicographic order.
  if (sorted)
    for (let c = slices.shape[1] - 1; c >= 0; c--)
      order = order.gather(0, slices.narrow(1, c, 1).reshape([n]).gather(0, order).argsort(0).cast('i64'));
  const lined = slices.indexSelect(0, order);
  const first = x.newFull([Math.min(1, n)], 1, 'bool');
  const begin =
    n > 1
      ? first.cat(
          [
            lined
              .narrow(0, 1, n - 1)
              .ne(lined.narrow(0, 0, n - 1))
              .any(1),
          ],
          0,
        )
      : first;
  const { flags, before, firsts, counts } = runsFrom(begin);
  const chosen = order.indexSelect(0, firsts);
  return [x.detach().indexSelect(d, chosen), flags.flagRuns(before, order.cast('u32')), counts];
}

/** An extremum of what is scattered to each place. */
function best(
  x: Tensor,
  d: number,
  ids: Tensor,
  src: Tensor,
  touched: () => Tensor,
  most: boolean,
  self: boolean,
): Tensor {
  const [mine, given] = [x.detach(), src.detach()];
  const found = mine.scatterExtreme(d, ids, given, most, self);
  if (!x.requiresGrad && !src.requiresGrad) return found;
  // Equal elements share the gradient: the mean of those that won is the result, and differs from it by nothing.
  const won = given.eq(found.gather(d, ids));
  const held = self ? mine.eq(found) : touched().logicalNot();
  const zeros = x.zerosLike();
  const count = held.cast(x.dtype).scatterAdd(d, ids, won.cast(x.dtype));
  const mean = held.where(x, zeros).scatterAdd(d, ids, won.where(src, src.zerosLike())).div(count);
  return found.isFinite().where(found.add(mean.sub(mean.detach())), found);
}

/** Products of what goes to each place, 1 elsewhere: a running product over runs of equal indices, in sorted order. */
function products(x: Tensor, d: number, ids: Tensor, src: Tensor): Tensor {
  const order = ids.argsort(d);
  const sorted = ids.gather(d, order);
  let values = src.gather(d, order);
  const n = src.shape[d];
  for (let by = 1; by < n; by *= 2) {
    const same = sorted.narrow(d, by, n - by).eq(sorted.narrow(d, 0, n - by));
    const later = values.narrow(d, by, n - by);
    const joined = same.where(later.mul(values.narrow(d, 0, n - by)), later);
    values = values.narrow(d, 0, by).cat([joined], d);
  }
  return x.onesLike().scatter(d, sorted, values);
}

const scattered = (reduce: ScatterReduction, options?: ScatterReduceOptions): CompositeSample => ({
  inputs: [
    { shape: [3, 4], distinct: true },
    { shape: [3, 5], dtype: 'i64', ints: [0, 3] },
    { shape: [3, 5], distinct: true },
  ],
  args: [1, { input: 1 }, { input: 2 }, reduce, ...(options ? [options] : [])],
});

export const statisticsOps = rows({
  median: composite({
    ...row('[values, indices] of the middle element along dim (the lower of two), or of all; NaN where there is one', [
      different([3, 5], 1),
      different([4, 3], 0, true),
      different([2, 3]),
    ]),
    compose: (x: Tensor, dim?: number, keepdim: boolean = false): readonly [values: Tensor, indices: Tensor] => {
      requireFlag('median', 'keepdim', keepdim);
      const { flat, d, n } = along('median', x, dim);
      const ids = flat.detach().argRank(d, Math.floor((n - 1) / 2), isFloat(x.dtype));
      const values = flat.gather(d, ids);
      return keepdim && dim !== undefined ? [values, ids] : [values.squeeze(d), ids.squeeze(d)];
    },
  }),
  quantile: composite({
    ...row(
      'the element at share q of the sorted dimension (or of all), between two by interpolation; NaN where there ' +
        'is one; a list of shares gives a first dimension',
      [
        different([3, 5], 0.3, 1),
        different([4, 3], [0, 0.5, 1], 0, { keepdim: true }),
        different([2, 3], 0.61, undefined, { interpolation: 'midpoint' }),
      ],
      {
        dtypes: REALS,
        ulp: ulps(1),
        errors: [
          { ...on([3], 1.5), code: 'E_ARGUMENT', says: /quantile: 1.5 is not a share from 0 to 1/ },
          {
            ...on([3], 0.5, 0, { interpolation: 'cubic' }),
            code: 'E_ARGUMENT',
            says: /quantile: interpolation "cubic"/,
          },
        ],
      },
    ),
    compose: (x: Tensor, q: number | readonly number[], dim?: number, options: QuantileOptions = {}): Tensor => {
      requireOptions('quantile', options, ['keepdim', 'interpolation']);
      requireDType('quantile', x, REALS);
      const { keepdim = false, interpolation = 'linear' } = options;
      if (!INTERPOLATIONS.includes(interpolation))
        throw new ArgumentError(
          `quantile: interpolation ${JSON.stringify(interpolation)}; known are ${INTERPOLATIONS.join(', ')}`,
        );
      const shares = typeof q === 'number' ? [q] : q;
      if (!Array.isArray(shares))
        throw new ArgumentError(`quantile: q is a number or a list of numbers; of a tensor give toArray()`);
      for (const share of shares)
        if (!(share >= 0 && share <= 1)) throw new ArgumentError(`quantile: ${share} is not a share from 0 to 1`);
      const { flat, d, n } = along('quantile', x, dim);
      const [sorted] = flat.sort(d);
      const nan = sorted.narrow(d, n - 1, 1).isNan();
      const at = (i: number): Tensor => sorted.narrow(d, i, 1);
      const one = (share: number): Tensor => {
        const place = share * (n - 1);
        const low = Math.floor(place);
        const even = low + (place - low === 0.5 ? low % 2 : Math.round(place - low));
        const found = {
          lower: () => at(low),
          higher: () => at(Math.ceil(place)),
          nearest: () => at(even),
          midpoint: () => at(low).lerp(at(Math.ceil(place)), 0.5),
          linear: () => at(low).lerp(at(Math.ceil(place)), place - low),
        }[interpolation]();
        const value = nan.where(NaN, found);
        return dim === undefined && keepdim ? value.reshape(x.shape.map(() => 1)) : keepdim ? value : value.squeeze(d);
      };
      const [first, ...rest] = shares.map(one);
      return typeof q === 'number' ? first : first.stack(rest, 0);
    },
  }),
  mode: composite({
    ...row(
      '[values, indices] of the most frequent element along dim (the smallest of several), its last index',
      [few([3, 7], 1), few([6, 2], 0, true)],
      { noGrad: 'moving one of several equal elements changes which are equal' },
    ),
    compose: (x: Tensor, dim: number = -1, keepdim: boolean = false): readonly [values: Tensor, indices: Tensor] => {
      requireFlag('mode', 'keepdim', keepdim);
      const { flat, d, n } = along('mode', x, dim);
      const [sorted, order] = flat.detach().sort(d);
      const place = numbered(sorted, n, d);
      const [begin] = starts(sorted, d).where(place, 0).cummax(d);
      const ids = order.gather(d, place.sub(begin).argmax(d, true));
      const values = flat.detach().gather(d, ids);
      return keepdim ? [values, ids] : [values.squeeze(d), ids.squeeze(d)];
    },
  }),
  bucketize: composite({
    ...row(
      'number of the bucket between sorted boundaries that each element falls into (i64)',
      [
        {
          inputs: [
            { shape: [2, 3], ints: [0, 10] },
            { shape: [4], values: [1, 3, 5, 7] },
          ],
          args: [{ input: 1 }],
        },
        {
          inputs: [
            { shape: [2, 3], ints: [0, 10] },
            { shape: [4], values: [1, 3, 5, 7] },
          ],
          args: [{ input: 1 }, { right: true }],
        },
      ],
      { dtypes: NUMBERS, noGrad: 'the result is an index' },
    ),
    compose: (x: Tensor, boundaries: Tensor, options: SearchOptions = {}): Tensor => {
      if (boundaries.rank !== 1)
        throw new ShapeError(`bucketize: boundaries ${formatShape(boundaries.shape)} are not a vector`);
      return boundaries.searchsorted(x, options);
    },
  }),
  histc: composite({
    ...row(
      'how many elements fall into each of equally wide bins; those outside count nowhere',
      [on([4, 5], 6, { min: -2, max: 2 }), few([11], 4)],
      {
        dtypes: REALS,
        noGrad: 'the result is a count',
        errors: [{ ...on([3], 0), code: 'E_ARGUMENT', says: /histc: bins 0/ }],
      },
    ),
    compose: (x: Tensor, bins: number = 100, options: HistcOptions = {}): Tensor => {
      requireOptions('histc', options, ['min', 'max']);
      requireDType('histc', x, REALS);
      requireWhole('histc', 'bins', [bins], 1);
      let { min = 0, max = 0 } = options;
      const flat = x.detach().flatten();
      if (min === max && flat.size > 0) [min, max] = flat.min().stack([flat.max()], 0).toArray() as [number, number];
      if (min === max) [min, max] = [min - 1, max + 1];
      if (!(Number.isFinite(min) && Number.isFinite(max) && min < max))
        throw new ArgumentError(`histc: bins from ${min} to ${max}; both must be finite, the first below the second`);
      return flat.countBins(bins, min, max).cast(x.dtype);
    },
  }),
  unique: composite({
    ...row(
      '[values, inverse, counts]: distinct elements sorted, which of them each element is, how often each occurs; ' +
        'with { dim } of slices along it',
      [few([3, 4]), few([9]), few([6, 2], { dim: 0 }), few([2, 6], { dim: 1 })],
      { noGrad: 'the result is chosen by comparing' },
    ),
    compose: (x: Tensor, options: UniqueOptions = {}): readonly [Tensor, Tensor, Tensor] => {
      requireOptions('unique', options, ['dim']);
      if (options.dim !== undefined) return sliceRuns('unique', x, options.dim, true);
      const flat = x.detach().flatten();
      const [sorted, order] = flat.sort(0);
      const { flags, before, count, counts } = runsFrom(starts(sorted, 0));
      return [sorted.flagTake(flags, before, count), flags.flagRuns(before, order).reshape(x.shape), counts];
    },
  }),
  uniqueConsecutive: composite({
    ...row(
      '[values, inverse, counts]: the first of each run of equal elements, which run each element is in, their ' +
        'lengths; with { dim } of slices along it',
      [few([3, 4]), few([9]), few([6, 1], { dim: 0 })],
      { noGrad: 'the result is chosen by comparing' },
    ),
    compose: (x: Tensor, options: UniqueOptions = {}): readonly [Tensor, Tensor, Tensor] => {
      requireOptions('uniqueConsecutive', options, ['dim']);
      if (options.dim !== undefined) return sliceRuns('uniqueConsecutive', x, options.dim, false);
      const flat = x.detach().flatten();
      const { flags, before, count, counts } = runsFrom(starts(flat, 0));
      return [flat.flagTake(flags, before, count), flags.cumsum(0).affine(1, -1).reshape(x.shape), counts];
    },
  }),
  scatterReduce: composite({
    ...row(
      'out = x, then out[ids[i][j]][j] reduced with src[i][j] for dim 0, by sum, prod, mean, amax or amin; tied ' +
        'elements share the gradient',
      [...REDUCTIONS.map((r) => scattered(r)), ...REDUCTIONS.map((r) => scattered(r, { includeSelf: false }))],
      {
        dtypes: NUMBERS,
        ulp: 4,
        domain: [0.5, 1.5],
        errors: [
          {
            ...scattered('sum'),
            args: [1, { input: 1 }, { input: 2 }, 'max'],
            code: 'E_ARGUMENT',
            says: /scatterReduce: unknown reduction "max"/,
          },
        ],
      },
    ),
    compose: (
      x: Tensor,
      dim: number,
      ids: Tensor,
      src: Tensor,
      reduce: ScatterReduction,
      options: ScatterReduceOptions = {},
    ): Tensor => {
      requireOptions('scatterReduce', options, ['includeSelf']);
      if (!REDUCTIONS.includes(reduce))
        throw new ArgumentError(
          `scatterReduce: unknown reduction ${JSON.stringify(reduce)}; known are ${REDUCTIONS.join(', ')}`,
        );
      const d = normalizeDim('scatterReduce', dim, x.rank);
      const self = options.includeSelf ?? true;
      if (reduce === 'sum' && self) return x.scatterAdd(d, ids, src);
      const counted = (): Tensor => x.newZeros(x.shape, 'i64').scatterAdd(d, ids, src.newFull(src.shape, 1, 'i64'));
      if (reduce === 'amax' || reduce === 'amin')
        return best(x, d, ids, src, () => counted().gt(0), reduce === 'amax', self);
      const count = counted();
      const touched = count.gt(0);
      if (reduce === 'prod') {
        const product = products(x, d, ids, src);
        return self ? x.mul(product) : touched.where(product, x);
      }
      const sum = (self ? x : touched.where(0, x)).scatterAdd(d, ids, src);
      if (reduce === 'sum') return sum;
      const parts = (self ? count.affine(1, 1) : count.clamp(1)).cast(x.dtype);
      return isFloat(x.dtype) ? sum.div(parts) : sum.floorDivide(parts);
    },
  }),
});

// Parts of tensors taken out and put back under the names that PyTorch has for them, made of other rows.
import { DTYPES } from '../base/dtype.js';
import { ArgumentError, ShapeError } from '../base/errors.js';
import { formatShape, normalizeDim, sameShape, type Shape } from '../base/shape.js';
import type { Tensor } from '../tensor/tensor.js';
import { atLeast } from './arrange.js';
import { alike, composite, requireOptions, requireWhole } from './kernel-row.js';
import { type CompositeSample, type InputSpec, rows, ulps } from './op.js';

/** What put takes. */
export interface PutOptions {
  /** Add to what is there; several at one place are summed. */
  readonly accumulate?: boolean;
}
/** What combinations takes. */
export interface CombinationOptions {
  /** Whether an element may stand several times in one; default false. */
  readonly withReplacement?: boolean;
}

const s = (...shape: number[]): InputSpec => ({ shape });
const ids = (...values: number[]): InputSpec => ({ shape: [values.length], dtype: 'i64', values });
const on = (shape: Shape, ...args: unknown[]): CompositeSample => ({ inputs: [{ shape }], args });
/** What these rows have in common. */
const row = alike({
  dtypes: DTYPES.filter((d) => d !== 'bool'),
  ulp: 0,
  candle: { none: 'made of other ops' },
});

/** The largest i32, an index that reads nothing. */
const NO_SLICE = 2 ** 31 - 1;
/** How many elements `combinations` lists. */
const MOST_CHOSEN = 2 ** 24;
/** Rows of index numbers, each a choice of `count` of n; ascending, or never descending where repeats are allowed. */
function choices(n: number, count: number, repeats: boolean): number[][] {
  let found: number[][] = [[]];
  for (let k = 0; k < count; k++)
    found = found.flatMap((part) => {
      const first = part.length === 0 ? 0 : part[part.length - 1] + (repeats ? 0 : 1);
      const kept = repeats ? 0 : count - 1 - k; // for those that come after
      return Array.from({ length: Math.max(n - kept - first, 0) }, (_, i) => [...part, first + i]);
    });
  return found;
}
const requireShape = (op: string, src: Tensor, shape: Shape): void => {
  if (!sameShape(src.shape, shape))
    throw new ShapeError(`${op}: the source ${formatShape(src.shape)} must be ${formatShape(shape)}`);
};

export const placingOps = rows({
  unflatten: composite({
    ...row('dimension dim as several of these sizes, one of which may be -1', [
      on([2, 6], 1, [2, 3]),
      on([2, 6, 2], -2, [-1, 3]),
    ]),
    compose: (x: Tensor, dim: number, sizes: readonly number[]): Tensor => {
      const d = normalizeDim('unflatten', dim, x.rank);
      const known = sizes.filter((n) => n !== -1).reduce((a, b) => a * b, 1);
      const filled = sizes.map((n) => (n === -1 ? x.shape[d] / known : n));
      if (sizes.filter((n) => n === -1).length > 1 || filled.reduce((a, b) => a * b, 1) !== x.shape[d])
        throw new ShapeError(
          `unflatten: ${formatShape(sizes)} does not make up dimension ${d} of ${formatShape(x.shape)}`,
        );
      return x.reshape([...x.shape.slice(0, d), ...filled, ...x.shape.slice(d + 1)]);
    },
  }),
  tensorSplit: composite({
    ...row('parts along dim: so many, as equal as can be, the first ones longer; or cut before each given place', [
      on([7, 2], 3),
      on([2, 7], [1, 4], 1),
    ]),
    compose: (x: Tensor, parts: number | readonly number[], dim: number = 0): readonly Tensor[] => {
      const d = normalizeDim('tensorSplit', dim, x.rank);
      const n = x.shape[d];
      if (typeof parts === 'number') requireWhole('tensorSplit', 'number of parts', [parts], 1);
      const bounded = (at: number): number => Math.min(n, Math.max(0, at < 0 ? at + n : at));
      const cuts =
        typeof parts === 'number'
          ? Array.from({ length: parts - 1 }, (_, i) => (i + 1) * Math.floor(n / parts) + Math.min(i + 1, n % parts))
          : parts.map(bounded);
      const ends = [...cuts, n];
      return ends.map((end, i) => {
        const begin = i === 0 ? 0 : ends[i - 1];
        return x.narrow(d, begin, Math.max(end - begin, 0));
      });
    },
  }),
  columnStack: composite({
    ...row('tensors side by side along dimension 1; vectors stand as columns', [
      { inputs: [s(3), s(3, 2)], args: [[{ input: 1 }]] },
    ]),
    compose: (x: Tensor, others: readonly Tensor[]): Tensor => {
      const [first, ...rest] = [x, ...others].map((t) => (t.rank < 2 ? t.reshape([t.size, 1]) : t));
      return first.cat(rest, 1);
    },
  }),
  atLeast: composite({
    ...row('x with at least so many dimensions (1, 2 or 3), as NumPy adds them: in front, the third behind', [
      on([3], 2),
      on([3, 2], 3),
      on([3, 2], 1),
    ]),
    compose: (x: Tensor, rank: 1 | 2 | 3): Tensor => {
      if (![1, 2, 3].includes(rank)) throw new ArgumentError(`atLeast: rank ${String(rank)} is not 1, 2 or 3`);
      return atLeast(x, rank);
    },
  }),
  indexCopy: composite({
    ...row('x with src at the places `ids` of dim', [
      { inputs: [s(4, 3), ids(2, 0), s(2, 3)], args: [0, { input: 1 }, { input: 2 }] },
      { inputs: [s(2, 4), ids(3), s(2, 1)], args: [1, { input: 1 }, { input: 2 }] },
    ]),
    compose: (x: Tensor, dim: number, places: Tensor, src: Tensor): Tensor => {
      const d = normalizeDim('indexCopy', dim, x.rank);
      requireShape(
        'indexCopy',
        src,
        x.shape.map((n, i) => (i === d ? places.size : n)),
      );
      if (places.size === 0) return x.copy();
      // Which slice of src each place takes, the last that names it: slices then move whole.
      const none = x.newFull([x.shape[d]], NO_SLICE, 'i32');
      const taken = none.scatter(0, places.flatten(), x.newArange(places.size, 'i32'));
      if (!x.requiresGrad && !src.requiresGrad) return src.indexSelectOr(d, taken, x);
      const kept = taken.eq(NO_SLICE).reshape(x.shape.map((n, i) => (i === d ? n : 1)));
      return kept.where(x, src.indexSelect(d, taken));
    },
  }),
  put: composite({
    ...row(
      'x with values at the places of x read row by row, or added there',
      [
        { inputs: [s(2, 3), ids(5, 0), s(2)], args: [{ input: 1 }, { input: 2 }] },
        { inputs: [s(2, 3), ids(4, 4, 1), s(3)], args: [{ input: 1 }, { input: 2 }, { accumulate: true }] },
      ],
      { ulp: ulps(2) },
    ),
    compose: (x: Tensor, places: Tensor, values: Tensor, options: PutOptions = {}): Tensor => {
      requireOptions('put', options, ['accumulate']);
      requireShape('put', values, places.shape);
      return x
        .reshape([x.size])
        .indexPut([places.flatten()], values.flatten(), { accumulate: options.accumulate ?? false })
        .reshape(x.shape);
    },
  }),
  selectScatter: composite({
    ...row('x with src at one index of dim', [{ inputs: [s(3, 4), s(3)], args: [{ input: 1 }, 1, -2] }]),
    compose: (x: Tensor, src: Tensor, dim: number, index: number): Tensor => {
      const d = normalizeDim('selectScatter', dim, x.rank);
      const at = index < 0 ? index + x.shape[d] : index;
      if (!Number.isInteger(at) || at < 0 || at >= x.shape[d])
        throw new ArgumentError(`selectScatter: index ${index} is not in dimension ${d} of ${formatShape(x.shape)}`);
      requireShape(
        'selectScatter',
        src,
        x.shape.filter((_, i) => i !== d),
      );
      return x.sliceScatter(d, at, src.unsqueeze(d));
    },
  }),
  diagonalScatter: composite({
    ...row('x with src on a diagonal', [
      { inputs: [s(3, 4), s(3)], args: [{ input: 1 }] },
      { inputs: [s(3, 2, 4), s(2, 2)], args: [{ input: 1 }, 2, 0, 2] },
    ]),
    compose: (x: Tensor, src: Tensor, offset: number = 0, dim1: number = 0, dim2: number = 1): Tensor => {
      const places = x.newArange(x.size, 'i64').reshape(x.shape).diagonal(offset, dim1, dim2);
      requireShape('diagonalScatter', src, places.shape);
      return x.put(places, src);
    },
  }),
  combinations: composite({
    ...row('rows of every choice of `count` elements of a list, in order', [
      on([4]),
      on([3], 2, { withReplacement: true }),
    ]),
    compose: (x: Tensor, count: number = 2, options: CombinationOptions = {}): Tensor => {
      requireOptions('combinations', options, ['withReplacement']);
      if (x.rank !== 1) throw new ShapeError(`combinations: ${formatShape(x.shape)} is no list`);
      requireWhole('combinations', 'count', [count], 1);
      const repeats = options.withReplacement ?? false;
      // They are listed on the host: n (n - 1) ... / count! rows, or of n + count - 1 where elements may repeat.
      let rows = 1;
      for (let k = 0; k < count; k++) rows *= Math.max(repeats ? x.size + k : x.size - k, 0) / (k + 1);
      if (!(rows * count <= MOST_CHOSEN))
        throw new ArgumentError(
          `combinations: ${count} of ${x.size} elements are ${rows} rows; it lists up to ${MOST_CHOSEN} elements`,
        );
      const found = choices(x.size, count, repeats);
      if (found.length === 0) return x.newZeros([0, count]);
      const places = x.newTensor(found.flat(), { dtype: 'i64' });
      return x.indexSelect(0, places).reshape([found.length, count]);
    },
  }),
});

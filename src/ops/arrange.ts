// Shapes and places: what NumPy and PyTorch have for taking tensors apart and putting them together, made of other
// rows.
import { DTYPES, INDEX_DTYPES } from '../base/dtype.js';
import { ArgumentError, DTypeError, ShapeError } from '../base/errors.js';
import { broadcastShapes, formatShape, normalizeDim, sameShape, type Shape } from '../base/shape.js';
import type { Tensor } from '../tensor/tensor.js';
import { alike, composite, requireDType, requireOptions, requireWhole } from './kernel-row.js';
import { type CompositeSample, type InputSpec, rows, ulps } from './op.js';

const s = (...shape: number[]): InputSpec => ({ shape });
const ids = (shape: Shape, most: number): InputSpec => ({ shape, dtype: 'i64', ints: [0, most] });
const on = (shape: Shape, ...args: unknown[]): CompositeSample => ({ inputs: [{ shape }], args });

/** What these rows have in common. */
const row = alike({
  dtypes: DTYPES,
  ulp: 0,
  candle: { none: 'made of other ops' },
});

const listOf = <T>(v: T | readonly T[]): readonly T[] => (Array.isArray(v) ? (v as readonly T[]) : [v as T]);

/** Dimensions that a list names, each once. */
function dimsOf(op: string, dims: number | readonly number[], rank: number): number[] {
  const list = listOf(dims).map((d) => normalizeDim(op, d, rank));
  if (new Set(list).size !== list.length)
    throw new ArgumentError(`${op}: the dimensions ${formatShape(listOf(dims))} name one twice`);
  return list;
}

/**
 * Elements of the last dimension of x on diagonal k of rows x cols matrices, 0 elsewhere. What diagonal reads, this
 * writes.
 */
export function onDiagonal(x: Tensor, rows: number, cols: number, k: number): Tensor {
  const n = x.shape[x.rank - 1];
  const shape = [...x.shape.slice(0, -1), rows, cols];
  if (n === 0 || rows === 0 || cols === 0) return x.newZeros(shape);
  const from = x
    .newArange(rows, 'i64')
    .affine(1, Math.min(0, k))
    .clamp(0, n - 1);
  const here = x.newArange(cols, 'i32').eq(x.newArange(rows, 'i32').affine(1, k).unsqueeze(1));
  return here.where(x.indexSelect(-1, from).unsqueeze(-1).broadcastTo(shape), x.constant(0));
}

function wide(op: string, index: Tensor): Tensor {
  if (!INDEX_DTYPES.some((d) => d === index.dtype))
    throw new DTypeError(`${op}: indices are ${index.dtype}; they must be one of ${INDEX_DTYPES.join(', ')}`);
  return index.cast('i64');
}
/** Negative indices count from the end. */
function wrapped(op: string, index: Tensor, n: number): Tensor {
  const all = wide(op, index);
  return index.dtype.startsWith('u') ? all : all.lt(0).where(all.affine(1, n), all);
}

/**
 * Where tuples of indices point in the dimensions of these sizes joined into one, and the shape that the indices
 * broadcast to. Each index is looked up in a list of its dimension's places, so that one out of range is noticed, and
 * does not become a place in another row.
 */
export function flatPlaces(
  op: string,
  indices: readonly Tensor[],
  sizes: readonly number[],
): { readonly places: Tensor; readonly shape: Shape } {
  const shape = broadcastShapes(op, ...indices.map((t) => t.shape));
  const steps = sizes.map((_, i) => sizes.slice(i + 1).reduce((a, b) => a * b, 1));
  const parts = indices.map((t, i) => {
    const own = wrapped(op, t, sizes[i]);
    if (indices.length === 1) return own.flatten();
    const known = own.newArange(sizes[i], 'i64').affine(steps[i], 0);
    return known.indexSelect(0, own.flatten()).reshape(t.shape).broadcastTo(shape).flatten();
  });
  return { places: parts.reduce((sum, t) => sum.add(t)), shape };
}

/** Indices with each mask among them replaced by the places where it is true, an index a dimension that it lies on. */
function placesOf(op: string, x: Tensor, named: readonly Tensor[]): Tensor[] {
  const indices: Tensor[] = [];
  for (const t of named) {
    const on = x.shape.slice(indices.length, indices.length + t.rank);
    if (t.dtype === 'bool' && !sameShape(t.shape, on))
      throw new ShapeError(`${op}: a mask ${formatShape(t.shape)} does not lie on ${formatShape(on)}`);
    indices.push(...(t.dtype === 'bool' ? t.nonzero().unbind(1) : [t]));
  }
  return indices;
}

/** Indices beside x: broadcast to x's shape but for dim, where they keep their own size, and x to theirs. */
function beside(op: string, x: Tensor, index: Tensor, dim: number): { x: Tensor; index: Tensor; shape: Shape } {
  if (index.rank !== x.rank)
    throw new ShapeError(`${op}: indices ${formatShape(index.shape)} must have the rank of ${formatShape(x.shape)}`);
  const without = (t: Tensor): Shape => t.shape.map((d, i) => (i === dim ? 1 : d));
  const common = broadcastShapes(op, without(x), without(index));
  const at = (n: number): Shape => common.map((d, i) => (i === dim ? n : d));
  return {
    x: x.broadcastTo(at(x.shape[dim])),
    index: wrapped(op, index, x.shape[dim]).broadcastTo(at(index.shape[dim])),
    shape: at(index.shape[dim]),
  };
}

/** At least so many dimensions, as NumPy adds them: in front, the third behind. */
export function atLeast(x: Tensor, rank: 1 | 2 | 3): Tensor {
  if (x.rank === 0) return x.reshape(new Array<number>(rank).fill(1));
  if (x.rank >= rank) return x;
  const two = x.rank === 1 ? x.unsqueeze(0) : x;
  return rank === 3 ? two.unsqueeze(-1) : two;
}
const stacked = (x: Tensor, others: Tensor | readonly Tensor[], rank: 1 | 2 | 3, dim: number): Tensor => {
  const [first, ...rest] = [x, ...listOf(others)].map((t) => atLeast(t, rank));
  return first.cat(rest, dim);
};
const pair = { inputs: [s(2, 3), s(2, 3)], args: [[{ input: 1 }]] };
const vectors = { inputs: [s(4), s(4)], args: [[{ input: 1 }]] };

export const arrangeOps = rows({
  unbind: composite({
    ...row('the slices along dim, without it', [on([3, 4]), on([3, 4], 1), on([0, 2])]),
    compose: (x: Tensor, dim: number = 0): Tensor[] => {
      const d = normalizeDim('unbind', dim, x.rank);
      return Array.from({ length: x.shape[d] }, (_, i) => x.get(i, d));
    },
  }),
  movedim: composite({
    ...row(
      'dimensions moved to other places, the rest in their order',
      [on([2, 3, 4], 0, 2), on([2, 3, 4], [0, 1], [-1, 0])],
      {
        errors: [
          { ...on([2, 3], [0, 1], [0]), code: 'E_ARGUMENT', says: /movedim: 2 dimensions cannot move to 1 places/ },
        ],
      },
    ),
    compose: (x: Tensor, from: number | readonly number[], to: number | readonly number[]): Tensor => {
      const [a, b] = [dimsOf('movedim', from, x.rank), dimsOf('movedim', to, x.rank)];
      if (a.length !== b.length)
        throw new ArgumentError(`movedim: ${a.length} dimensions cannot move to ${b.length} places`);
      const rest = x.shape.map((_, i) => i).filter((i) => !a.includes(i));
      return x.permute(x.shape.map((_, i) => (b.includes(i) ? a[b.indexOf(i)] : (rest.shift() as number))));
    },
  }),
  outer: composite({
    ...row('x[i] * y[j] of two vectors', [{ inputs: [s(3), s(4)], args: [{ input: 1 }] }], {
      dtypes: DTYPES.filter((d) => d !== 'bool'),
      errors: [{ inputs: [s(2, 3), s(4)], args: [{ input: 1 }], code: 'E_SHAPE', says: /outer: takes two vectors/ }],
    }),
    compose: (x: Tensor, y: Tensor): Tensor => {
      if (x.rank !== 1 || y.rank !== 1)
        throw new ShapeError(`outer: takes two vectors, not ${formatShape(x.shape)} and ${formatShape(y.shape)}`);
      return x.unsqueeze(1).mul(y);
    },
  }),
  diagEmbed: composite({
    ...row('the last dimension on diagonal k of square matrices, 0 elsewhere', [on([2, 3]), on([3], 1), on([3], -2)]),
    compose: (x: Tensor, k: number = 0): Tensor => {
      if (x.rank < 1) throw new ShapeError('diagEmbed: a tensor of rank 0 has no dimension to put on a diagonal');
      const n = x.shape[x.rank - 1] + Math.abs(k);
      return onDiagonal(x, n, n, k);
    },
  }),
  diag: composite({
    ...row(
      "a vector on diagonal k of a square matrix, or a matrix's diagonal k",
      [on([3], 1), on([3, 4]), on([3, 4], -1)],
      {
        errors: [{ ...on([2, 2, 2]), code: 'E_SHAPE', says: /diag: takes a vector or a matrix/ }],
      },
    ),
    compose: (x: Tensor, k: number = 0): Tensor => {
      if (x.rank !== 1 && x.rank !== 2)
        throw new ShapeError(`diag: takes a vector or a matrix, not ${formatShape(x.shape)}; see diagonal, diagEmbed`);
      return x.rank === 1 ? x.diagEmbed(k) : x.diagonal(k);
    },
  }),
  trace: composite({
    ...row('sum of the elements on the diagonal of matrices', [on([3, 4]), on([2, 3, 3])], {
      ulp: ulps(4),
      domain: [0.1, 2],
    }),
    compose: (x: Tensor): Tensor => x.diagonal().sum([-1], false),
  }),
  rot90: composite({
    ...row(
      'turned k times by a quarter, from the first of two dimensions to the second',
      [on([2, 3]), on([2, 3, 4], 2, [1, 2]), on([2, 3], -1)],
      { errors: [{ ...on([2, 3], 1, [0]), code: 'E_ARGUMENT', says: /rot90: takes two dimensions/ }] },
    ),
    compose: (x: Tensor, k: number = 1, dims: readonly number[] = [0, 1]): Tensor => {
      const [a, b, ...more] = dimsOf('rot90', dims, x.rank);
      if (b === undefined || more.length > 0)
        throw new ArgumentError(`rot90: takes two dimensions, not ${formatShape(dims)}`);
      if (!Number.isSafeInteger(k)) throw new ArgumentError(`rot90: ${String(k)} is not a whole number of turns`);
      const turns = ((k % 4) + 4) % 4;
      if (turns === 0) return x;
      if (turns === 2) return x.flip([a, b]);
      return turns === 1 ? x.flip([b]).transpose(a, b) : x.transpose(a, b).flip([b]);
    },
  }),
  hstack: composite({
    ...row('tensors side by side: along dimension 1, vectors one after another', [pair, vectors]),
    compose: (x: Tensor, others: Tensor | readonly Tensor[]): Tensor => stacked(x, others, 1, x.rank <= 1 ? 0 : 1),
  }),
  vstack: composite({
    ...row('tensors below each other, vectors as rows', [pair, vectors]),
    compose: (x: Tensor, others: Tensor | readonly Tensor[]): Tensor => stacked(x, others, 2, 0),
  }),
  dstack: composite({
    ...row('tensors behind each other: along the third dimension', [pair, vectors]),
    compose: (x: Tensor, others: Tensor | readonly Tensor[]): Tensor => stacked(x, others, 3, 2),
  }),
  cartesianProd: composite({
    ...row('all combinations of the elements of vectors, a row each', [
      { inputs: [s(3), s(2), s(4)], args: [[{ input: 1 }, { input: 2 }]] },
      { inputs: [s(3)], args: [[]] },
    ]),
    compose: (x: Tensor, others: Tensor | readonly Tensor[]): Tensor => {
      const all = [x, ...listOf(others)];
      const bad = all.find((t) => t.rank !== 1);
      if (bad) throw new ShapeError(`cartesianProd: takes vectors, not ${formatShape(bad.shape)}`);
      if (all.length === 1) return x;
      const shape = all.map((t) => t.size);
      const grids = all.map((t, k) =>
        t
          .reshape(shape.map((n, i) => (i === k ? n : 1)))
          .broadcastTo(shape)
          .flatten(),
      );
      return grids[0].stack(grids.slice(1), 1);
    },
  }),
  repeatInterleave: composite({
    ...row(
      'each element repeated, along dim or of all; one count, or one for each element',
      [on([2, 3], 2, 1), on([2, 3], [2, 0, 1], 1), on([2, 3], 3)],
      {
        errors: [
          { ...on([2, 3], [1, 2], 1), code: 'E_SHAPE', says: /repeatInterleave: 2 counts for 3 elements/ },
          { ...on([3], -1), code: 'E_ARGUMENT', says: /repeatInterleave: counts -1/ },
        ],
      },
    ),
    compose: (x: Tensor, counts: number | readonly number[] | Tensor, dim?: number): Tensor => {
      const flat = dim === undefined ? x.flatten() : x;
      const d = dim === undefined ? 0 : normalizeDim('repeatInterleave', dim, x.rank);
      const n = flat.shape[d];
      const list =
        typeof counts === 'number'
          ? [counts]
          : Array.isArray(counts)
            ? (counts as number[])
            : ((counts as Tensor).flatten().toArray() as number[]);
      requireWhole('repeatInterleave', 'counts', list, 0);
      if (list.length === 1) {
        const wide = flat.unsqueeze(d + 1);
        const to = wide.shape.map((v, i) => (i === d + 1 ? list[0] : v));
        return wide.broadcastTo(to).reshape(flat.shape.map((v, i) => (i === d ? v * list[0] : v)));
      }
      if (list.length !== n)
        throw new ShapeError(
          `repeatInterleave: ${list.length} counts for ${n} elements of dimension ${d} of ${formatShape(flat.shape)}`,
        );
      const parts = list.flatMap((times, i) =>
        times === 0 ? [] : [flat.narrow(d, i, 1).broadcastTo(flat.shape.map((v, k) => (k === d ? times : v)))],
      );
      return parts.length === 0 ? flat.narrow(d, 0, 0) : parts[0].cat(parts.slice(1), d);
    },
  }),
  take: composite({
    ...row('elements by their number in row-major order', [
      { inputs: [s(3, 4), ids([2, 3], 11)], args: [{ input: 1 }] },
    ]),
    compose: (x: Tensor, index: Tensor): Tensor => x.flatten().takeWrapped(0, index.flatten()).reshape(index.shape),
  }),
  asStrided: composite({
    ...row(
      "x's elements in row-major order, read at offset + the sum of index times stride: a copy, as withLayout makes the view",
      [on([3, 4], [2, 3], [4, 1], 1), on([9], [4, 3], [2, 1])],
      {
        errors: [
          { ...on([5], [2, 3], [3, 1]), code: 'E_SHAPE', says: /asStrided: .* reads element 5 of 5/ },
          { ...on([5], [2], [-1]), code: 'E_ARGUMENT', says: /asStrided: strides -1/ },
        ],
      },
    ),
    compose: (x: Tensor, shape: Shape, strides: readonly number[], offset: number = 0): Tensor => {
      if (strides.length !== shape.length)
        throw new ShapeError(`asStrided: ${strides.length} strides for shape ${formatShape(shape)}`);
      requireWhole('asStrided', 'shape', shape, 0);
      requireWhole('asStrided', 'strides', strides, 0);
      requireWhole('asStrided', 'offset', [offset], 0);
      const last = shape.reduce((at, d, i) => at + (d - 1) * strides[i], offset);
      if (shape.includes(0)) return x.newZeros(shape);
      if (last >= x.size)
        throw new ShapeError(
          `asStrided: shape ${formatShape(shape)} with strides ${formatShape(strides)} from ${offset} reads ` +
            `element ${last} of ${x.size}`,
        );
      const along = (d: number, i: number): Tensor =>
        x.newArange(d, 'i64', 0, strides[i]).reshape(shape.map((_, k) => (k === i ? d : 1)));
      const places = shape.reduce((at, d, i) => at.add(along(d, i)), x.newFull([], offset, 'i64'));
      return x.flatten().indexSelect(0, places.flatten()).reshape(shape);
    },
  }),
  takeAlongDim: composite({
    ...row('out[i][j] = x[ids[i][j]][j] for dim 0, indices broadcasting against x; of all elements without dim', [
      { inputs: [s(3, 4), ids([2, 1], 2)], args: [{ input: 1 }, 0] },
      { inputs: [s(3, 4), ids([3, 2], 3)], args: [{ input: 1 }, 1] },
      { inputs: [s(3, 4), ids([5], 11)], args: [{ input: 1 }] },
    ]),
    compose: (x: Tensor, index: Tensor, dim?: number): Tensor => {
      if (dim === undefined) return x.take(index.flatten());
      const d = normalizeDim('takeAlongDim', dim, x.rank);
      const wide = beside('takeAlongDim', x, index, d);
      return wide.x.gather(d, wide.index);
    },
  }),
  putAlongDim: composite({
    ...row('x with out[ids[i][j]][j] = values[i][j] for dim 0; indices and values broadcast', [
      { inputs: [s(3, 4), ids([1, 4], 2), s(1, 4)], args: [{ input: 1 }, { input: 2 }, 0] },
      {
        inputs: [s(3, 4), { shape: [3, 2], dtype: 'i64', values: [0, 2, 1, 3, 3, 1] }, s(2)],
        args: [{ input: 1 }, { input: 2 }, 1],
      },
    ]),
    compose: (x: Tensor, index: Tensor, values: Tensor, dim: number): Tensor => {
      const d = normalizeDim('putAlongDim', dim, x.rank);
      const wide = beside('putAlongDim', x, index, d);
      return wide.x.scatter(d, wide.index, values.broadcastTo(wide.shape));
    },
  }),
  maskedScatter: composite({
    ...row('elements of source one after another where the mask is true, x elsewhere', [
      { inputs: [s(2, 3), { shape: [2, 3], dtype: 'bool' }, s(6)], args: [{ input: 1 }, { input: 2 }] },
      { inputs: [s(2, 3), { shape: [3], dtype: 'bool' }, s(2, 4)], args: [{ input: 1 }, { input: 2 }] },
    ]),
    compose: (x: Tensor, mask: Tensor, source: Tensor): Tensor => {
      requireDType('maskedScatter', mask, ['bool', 'u8'], 'a mask');
      const wide = mask.ne(0).broadcastTo(x.shape);
      const flat = wide.flatten();
      const found = source.size < x.size ? flat.sum().item() : 0;
      if (found > source.size)
        throw new ShapeError(
          `maskedScatter: the mask is true at ${found} places, and source ${formatShape(source.shape)} has ` +
            `${source.size} elements`,
        );
      if (x.size === 0 || source.size === 0) return x;
      // Where the mask is false, any place will do.
      const place = flat
        .cumsum(0)
        .affine(1, -1)
        .clamp(0, source.size - 1)
        .cast('u32');
      const from = source.flatten().indexSelect(0, place);
      return wide.where(from.reshape(x.shape), x);
    },
  }),
  indexPut: composite({
    ...row(
      'x with x[i0[k]][i1[k]]... = values[k], or added to it; the indices broadcast to one shape, and values to ' +
        'that of what they name; a mask names where it is true',
      [
        {
          inputs: [
            s(3, 4),
            { shape: [3], dtype: 'i64', values: [0, 2, 1] },
            { shape: [3], dtype: 'i64', values: [3, 0, 0] },
            s(3),
          ],
          args: [[{ input: 1 }, { input: 2 }], { input: 3 }],
        },
        { inputs: [s(3, 4), ids([5], 2), s(5, 4)], args: [[{ input: 1 }], { input: 2 }, { accumulate: true }] },
      ],
      { ulp: ulps(4), dtypes: DTYPES.filter((d) => d !== 'bool') },
    ),
    compose: (x: Tensor, named: readonly Tensor[], values: Tensor, options: IndexPutOptions = {}): Tensor => {
      requireOptions('indexPut', options, ['accumulate'], ['accumulate']);
      const indices = placesOf('indexPut', x, named);
      if (indices.length === 0 || indices.length > x.rank)
        throw new ArgumentError(
          `indexPut: ${indices.length} indices for ${formatShape(x.shape)}; it takes 1 to ${x.rank}`,
        );
      const lead = x.shape.slice(0, indices.length);
      const rest = x.shape.slice(indices.length);
      const { places, shape: common } = flatPlaces('indexPut', indices, lead);
      const flat = x.reshape([lead.reduce((a, b) => a * b, 1), ...rest]);
      const given = values.broadcastTo([...common, ...rest]).reshape([places.size, ...rest]);
      const out = options.accumulate
        ? flat.indexAdd(0, places, given)
        : rest.length > 0
          ? flat.indexCopy(0, places, given)
          : flat.scatter(0, places, given);
      return out.reshape(x.shape);
    },
  }),
});
/** What indexPut takes. */
export interface IndexPutOptions {
  /** Add to what is there; several at one place are summed. */
  readonly accumulate?: boolean;
}

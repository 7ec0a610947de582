// What indices may be, and the places that they name: rules and the reference's loops.
import { INDEX_DTYPES, maxInt, type Value } from '../base/dtype.js';
import { DTypeError, IndexError, ShapeError } from '../base/errors.js';
import { formatShape, normalizeDim, sizeOf, type Shape } from '../base/shape.js';
import { requireSameDType } from './kernel-row.js';
import type { RefTensor, Sig } from './op.js';

/** An index as a place in 0..n-1, -1 for the sentinel; anything else is an error that names where it stands. */
export function placeOf(op: string, id: Value, at: number, n: number, sentinel: bigint): number {
  if (id === sentinel) return -1;
  if (id >= 0 && id < n) return Number(id);
  throw new IndexError(`${op}: index ${id} at position ${at} is out of range for a dimension of size ${n}`);
}

export function requireIndex(op: string, ids: Sig): void {
  if (INDEX_DTYPES.some((d) => d === ids.dtype)) return;
  throw new DTypeError(`${op}: indices are ${ids.dtype}; they must be one of ${INDEX_DTYPES.join(', ')}`);
}

/** ids has the rank of x and is no larger than x except along dim. */
export function requireInside(op: string, what: string, inner: Shape, x: Shape, dim: number): void {
  if (inner.length === x.length && inner.every((d, i) => i === dim || d <= x[i])) return;
  throw new ShapeError(
    `${op}: ${what} ${formatShape(inner)} must have the rank of ${formatShape(x)} and be no larger except in ` +
      `dimension ${dim}`,
  );
}

export function inferScatter(op: string, [x, ids, src]: readonly Sig[], dim: number): Sig[] {
  normalizeDim(op, dim, x.shape.length);
  requireIndex(op, ids);
  requireSameDType(op, [x, src]);
  if (formatShape(ids.shape) !== formatShape(src.shape)) {
    throw new ShapeError(
      `${op}: indices ${formatShape(ids.shape)} and source ${formatShape(src.shape)} must have one shape`,
    );
  }
  requireInside(op, 'source', src.shape, x.shape, dim);
  return [x];
}

/** Calls visit(position in the small tensor, position in the large one of its lane's start, step of the large one). */
export function alongside(
  small: Shape,
  large: Shape,
  dim: number,
  visit: (at: number, base: number, step: number) => void,
): void {
  const rank = small.length;
  const step = new Array<number>(rank);
  for (let i = rank - 1, s = 1; i >= 0; i--) {
    step[i] = s;
    s *= large[i];
  }
  const counter = new Array<number>(rank).fill(0);
  for (let at = 0, base = 0, size = sizeOf(small); at < size; at++) {
    visit(at, base, step[dim]);
    for (let d = rank - 1; d >= 0; d--) {
      if (d !== dim) base += step[d];
      if (++counter[d] < small[d]) break;
      if (d !== dim) base -= step[d] * small[d];
      counter[d] = 0;
    }
  }
}

/** Row-major order along dim makes the last write win, as in Candle's serial loop. */
export function scatterInto(
  op: string,
  [x, ids, src]: readonly RefTensor[],
  out: RefTensor,
  dim: number,
  add: boolean,
): void {
  const sentinel = maxInt(ids.dtype);
  const data = out.data as number[];
  x.data.forEach((v, i) => (out.data[i] = v));
  alongside(ids.shape, x.shape, dim, (at, base, step) => {
    const place = placeOf(op, ids.data[at], at, x.shape[dim], sentinel);
    if (place < 0) return;
    const to = base + place * step;
    data[to] = add ? data[to] + (src.data[at] as number) : (src.data[at] as number);
  });
}

/** Whether a is better than b: larger or smaller, 0 above -0, NaN above all. */
const better = (a: Value, b: Value, most: boolean): boolean => {
  if (b !== b) return false;
  if (a !== a) return true;
  if (a === 0 && b === 0) return Object.is(most ? b : a, -0) && !Object.is(most ? a : b, -0);
  return most ? a > b : a < b;
};
/** The largest or smallest of what goes to each place, with what x holds or without. */
export function extremesInto(
  op: string,
  [x, ids, src]: readonly RefTensor[],
  out: RefTensor,
  dim: number,
  most: boolean,
  self: boolean,
): void {
  const sentinel = maxInt(ids.dtype);
  const named = new Set<number>();
  x.data.forEach((v, i) => (out.data[i] = v));
  alongside(ids.shape, x.shape, dim, (at, base, step) => {
    const place = placeOf(op, ids.data[at], at, x.shape[dim], sentinel);
    if (place < 0) return;
    const to = base + place * step;
    if ((!self && !named.has(to)) || better(src.data[at], out.data[to], most)) out.data[to] = src.data[at];
    named.add(to);
  });
}

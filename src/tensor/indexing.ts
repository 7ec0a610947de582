// Indexing as people write it: numbers, slices, new axes, ellipsis, index tensors and boolean masks.
import { ArgumentError, ShapeError } from '../base/errors.js';
import { formatShape, sameShape } from '../base/shape.js';
import { tensor } from './create.js';
import type { Tensor } from './tensor.js';

/**
 * A number picks, [start, end, step] slices, ':' takes all, null adds a dimension, '...' fills up, a tensor selects
 * (bool and u8: as a mask).
 */
export type Index =
  | number
  | readonly [start?: number | undefined, end?: number | undefined, step?: number | undefined]
  | ':'
  | null
  | '...'
  | Tensor;

/** A view or copy by indices, as in NumPy; Tensor's `at` with the tensor as an argument. */
export function at(x: Tensor, ...indices: Index[]): Tensor {
  const used = indices
    .filter((i) => i !== null && i !== '...')
    .reduce((n: number, i) => n + (isMask(i) ? (i as Tensor).rank : 1), 0);
  if (used > x.rank || indices.filter((i) => i === '...').length > 1) {
    throw new ShapeError(
      `at: ${indices.length} indices do not fit shape ${formatShape(x.shape)}, or more than one is '...'`,
    );
  }
  let dim = 0;
  let out = x;
  for (const index of indices) {
    if (index === null) out = out.unsqueeze(dim++);
    else if (index === '...') dim += x.rank - used;
    else if (index === ':') dim++;
    else if (typeof index === 'number') out = out.narrow(dim, checkIndex(out, dim, index), 1).squeeze(dim);
    else if (Array.isArray(index)) out = out.slice(dim++, ...bounds(index));
    else if (typeof index !== 'object' || !('dtype' in index))
      throw new ArgumentError(`at: ${String(index)} is not an index: ${INDICES}`);
    else if (isMask(index)) out = selectMasked(out, index as Tensor, dim++);
    else out = out.indexSelect(dim++, index as Tensor);
  }
  return out;
}

const INDICES = "a number, [start, end, step], ':', null, '...' or a tensor";
/** A slice's start, end and step. Longer lists and truth values are meant as something else, and are refused. */
function bounds(index: readonly unknown[]): [start: number | undefined, end: number | undefined, step: number] {
  if (index.length > 3 || index.some((v) => typeof v !== 'number' && v !== undefined))
    throw new ArgumentError(
      `at: [${index.join(', ')}] is not a slice [start, end, step]; for a list of positions or a mask give a tensor`,
    );
  const [start, end, step = 1] = index as (number | undefined)[];
  return [start, end, step];
}

const isMask = (i: unknown): boolean =>
  typeof i === 'object' &&
  i !== null &&
  'dtype' in i &&
  ((i as Tensor).dtype === 'bool' || (i as Tensor).dtype === 'u8');

function checkIndex(x: Tensor, dim: number, i: number): number {
  const n = x.shape[dim];
  if (!Number.isInteger(i) || i < -n || i >= n)
    throw new ShapeError(`at: index ${i} is out of range for dimension ${dim} of ${formatShape(x.shape)}`);
  return i < 0 ? i + n : i;
}

/** Positions of the elements that are not 0, as [count, rank] i64. The host reads x, since the count is in the data. */
export function nonzero(x: Tensor): Tensor {
  const flags = x.ne(0).bytesSync();
  const found: bigint[] = [];
  const strides = x.shape.map((_, i) => x.shape.slice(i + 1).reduce((a, b) => a * b, 1));
  flags.forEach((f, i) => {
    if (f) x.shape.forEach((d, k) => found.push(BigInt(Math.floor(i / strides[k]) % d)));
  });
  const count = x.rank === 0 ? flags[0] : found.length / x.rank;
  return tensor(BigInt64Array.from(found), { shape: [count, x.rank], device: x.device });
}

/** Elements of x along dims dim..dim+mask.rank where the mask is not 0, those dimensions joined into one. */
function selectMasked(x: Tensor, mask: Tensor, dim: number): Tensor {
  const covered = x.shape.slice(dim, dim + mask.rank);
  if (!sameShape(covered, mask.shape))
    throw new ShapeError(
      `mask: shape ${formatShape(mask.shape)} does not lie on dimensions ${dim}... of ${formatShape(x.shape)}`,
    );
  const flags = mask.ne(0).bytesSync();
  const ids: bigint[] = [];
  flags.forEach((f, i) => {
    if (f) ids.push(BigInt(i));
  });
  const joined =
    mask.rank === 0
      ? x.unsqueeze(dim)
      : x.reshape([...x.shape.slice(0, dim), mask.size, ...x.shape.slice(dim + mask.rank)]);
  return joined.indexSelect(dim, tensor(BigInt64Array.from(ids), { device: x.device }));
}

/** Elements where the mask is not 0, as a vector (or along the leading dimensions the mask covers). */
export function maskedSelect(x: Tensor, mask: Tensor): Tensor {
  if (mask.rank > x.rank)
    throw new ArgumentError(
      `maskedSelect: mask ${formatShape(mask.shape)} has more dimensions than ${formatShape(x.shape)}`,
    );
  return selectMasked(x, mask, 0);
}

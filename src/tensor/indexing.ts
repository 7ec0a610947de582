// Indexing as people write it: numbers, slices, new axes, ellipsis, index tensors and boolean masks.
import { ArgumentError, ShapeError } from '../base/errors.js';
import { broadcastShapes, formatShape, sameShape } from '../base/shape.js';
import { flatPlaces } from '../ops/arrange.js';
import { counted } from '../ops/pick.js';
import type { Tensor } from './tensor.js';

/**
 * A number picks, [start, end, step] or '1:3' slices, ':' takes all, null adds a dimension, '...' fills up, a tensor
 * selects (bool and u8: as a mask).
 */
export type Index =
  | number
  | readonly [start?: number | undefined, end?: number | undefined, step?: number | undefined]
  | ':'
  | `${number | ''}:${number | ''}`
  | `${number | ''}:${number | ''}:${number}`
  | null
  | '...'
  | Tensor;

/** Index tensors by the dimension that they select along. */
type Chosen = Map<number, Tensor>;

/** What index tensors, masks and negative steps gave: copies, so that writing there would change nothing else. */
const copies = new WeakSet<Tensor>();
const isCopied = (i: Index): boolean =>
  typeof i === 'string' ? /:.*:-/.test(i) : Array.isArray(i) ? (i[2] ?? 1) < 0 : isTensor(i);
/** Refuses to write into what `at` has copied, which in PyTorch's brackets would write into the tensor itself. */
export function requireView(x: Tensor): void {
  if (copies.has(x))
    throw new ArgumentError(
      'assign: at() copied this by an index tensor, a mask or a negative step, and the tensor itself would stay as ' +
        'it is; write x.assign(x.indexPut([rows], y)) or x.assign(x.maskedFill(mask, 0)), or at(...).copy() for a ' +
        'tensor of its own',
    );
}

/**
 * A view or copy by indices, as in PyTorch; Tensor's `at` with the tensor as an argument. Several index tensors belong
 * together: `x.at(rows, columns)` picks an element for each pair.
 */
export function at(x: Tensor, ...indices: Index[]): Tensor {
  const used = indices
    .filter((i) => i !== null && i !== '...')
    .reduce((n: number, i) => n + (isMask(i) ? i.rank : 1), 0);
  if (used > x.rank || indices.filter((i) => i === '...').length > 1) {
    throw new ShapeError(
      `at: ${indices.length} indices do not fit shape ${formatShape(x.shape)}, or more than one is '...'`,
    );
  }
  let dim = 0;
  let out = x;
  const chosen: Chosen = new Map();
  const several = indices.filter((i) => isTensor(i) && !isSingle(i)).length > 1;
  for (const index of indices) {
    if (index === null) out = out.unsqueeze(dim++);
    else if (index === '...') dim += x.rank - used;
    else if (typeof index === 'string') out = out.slice(dim++, ...bounds(sliceOf(index)));
    else if (typeof index === 'number') out = out.narrow(dim, checkIndex(out, dim, index), 1).squeeze(dim);
    else if (Array.isArray(index)) out = out.slice(dim++, ...bounds(index));
    else if (!isTensor(index)) throw new ArgumentError(`at: ${String(index)} is not an index: ${INDICES}`);
    // A single number on the device picks as a number does: its dimension goes, and it is no list beside others.
    else if (isSingle(index)) out = choose(out, new Map([[dim, index]]));
    else if (!isMask(index)) chosen.set(dim++, index);
    else if (several) for (const places of placesOf(out, index, dim)) chosen.set(dim++, places);
    else out = selectMasked(out, index, dim++);
  }
  const found = chosen.size > 0 ? choose(out, chosen) : out;
  if (indices.some(isCopied)) copies.add(found);
  return found;
}

/** The positions where a mask is not 0: for every dimension that it lies on, a list of numbers. */
function placesOf(x: Tensor, mask: Tensor, dim: number): Tensor[] {
  requireOn(x, mask, dim);
  return nonzero(mask).unbind(1) as Tensor[];
}

/**
 * Elements by index tensors, broadcast to one shape, which stands where they stood; in front where something stands
 * between them.
 */
function choose(x: Tensor, chosen: Chosen): Tensor {
  const dims = [...chosen.keys()];
  const sizes = dims.map((d) => x.shape[d]);
  const { places, shape } = flatPlaces('at', [...chosen.values()], sizes);
  const rest = x.shape.map((_, d) => d).filter((d) => !chosen.has(d));
  const together = dims.every((d, i) => d === dims[0] + i);
  const before = together ? dims[0] : 0;
  const order = [...rest.slice(0, before), ...dims, ...rest.slice(before)];
  const kept = rest.map((d) => x.shape[d]);
  const [left, right] = [kept.slice(0, before), kept.slice(before)];
  const joined = x.permute(order).reshape([...left, sizes.reduce((a, b) => a * b, 1), ...right]);
  return joined.indexSelect(before, places).reshape([...left, ...shape, ...right]);
}

const INDICES = "a number, [start, end, step], '1:3', null, '...' or a tensor";
/** [start, end, step] of '1:3', '::2' or ':'. */
function sliceOf(text: string): (number | undefined)[] {
  if (!/^(?:-?\d+)?:(?:-?\d+)?(?::-?\d+)?$/.test(text))
    throw new ArgumentError(`at: ${JSON.stringify(text)} is not an index: ${INDICES}`);
  return text.split(':').map((part) => (part === '' ? undefined : Number(part)));
}
/** A slice's start, end and step. Longer lists and truth values are meant as something else, and are refused. */
function bounds(index: readonly unknown[]): [start: number | undefined, end: number | undefined, step: number] {
  if (index.length > 3 || index.some((v) => typeof v !== 'number' && v !== undefined))
    throw new ArgumentError(
      `at: [${index.join(', ')}] is not a slice [start, end, step]; for a list of positions or a mask give a tensor`,
    );
  const [start, end, step = 1] = index as (number | undefined)[];
  return [start, end, step];
}

const isTensor = (i: unknown): i is Tensor => typeof i === 'object' && i !== null && 'dtype' in i;
const isMask = (i: unknown): i is Tensor => isTensor(i) && (i.dtype === 'bool' || i.dtype === 'u8');

/** A whole number that lies on the device. */
const isSingle = (i: unknown): i is Tensor => isTensor(i) && i.rank === 0 && i.dtype !== 'bool' && i.dtype !== 'u8';

function checkIndex(x: Tensor, dim: number, i: number): number {
  const n = x.shape[dim];
  if (!Number.isInteger(i) || i < -n || i >= n)
    throw new ShapeError(`at: index ${i} is out of range for dimension ${dim} of ${formatShape(x.shape)}`);
  return i < 0 ? i + n : i;
}

/** Positions of the elements that are not 0, as [count, rank] i64. The host waits for their number alone. */
export function nonzero(x: Tensor): Tensor {
  const { flags, before, count } = counted(x);
  if (count === 0 || x.rank === 0) return x.detach().newZeros([count, x.rank], 'i64');
  return flags.flagPlaces(before, count).t();
}

function requireOn(x: Tensor, mask: Tensor, dim: number): void {
  if (!sameShape(x.shape.slice(dim, dim + mask.rank), mask.shape))
    throw new ShapeError(
      `mask: shape ${formatShape(mask.shape)} does not lie on dimensions ${dim}... of ${formatShape(x.shape)}`,
    );
}

/** Elements of x along dims dim..dim+mask.rank where the mask is not 0, those dimensions joined into one. */
function selectMasked(x: Tensor, mask: Tensor, dim: number): Tensor {
  requireOn(x, mask, dim);
  const joined =
    mask.rank === 0
      ? x.unsqueeze(dim)
      : x.reshape([...x.shape.slice(0, dim), mask.size, ...x.shape.slice(dim + mask.rank)]);
  return joined.indexSelect(dim, nonzero(mask.flatten()).squeeze(1));
}

/** Elements where the mask is not 0, as a vector; both are broadcast to one shape. Rows by a mask are `x.at(mask)`. */
export function maskedSelect(x: Tensor, mask: Tensor): Tensor {
  const shape = broadcastShapes('maskedSelect', x.shape, mask.shape);
  const { flags, before, count } = counted(mask.broadcastTo(shape).flatten());
  return x.broadcastTo(shape).flatten().flagTake(flags, before, count);
}

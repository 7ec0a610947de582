// A layout maps a shape onto storage: strides and offset in elements. Views are new layouts over the same storage.
import { ArgumentError, ShapeError } from './errors.js';
import { checkShape, contiguousStrides, formatShape, type Shape } from './shape.js';

/** A shape over storage: strides and offset in elements. */
export class Layout {
  /** Sizes of the dimensions. */
  readonly shape: Shape;
  /** Elements from one index of a dimension to the next. */
  readonly strides: readonly number[];
  /** Elements before the first. */
  readonly offset: number;
  /** The number of elements. */
  readonly size: number;
  /** Row-major without gaps; dimensions of size 1 do not count. */
  readonly isContiguous: boolean;
  /** Made from the shape alone, so that a tensor of the same shape in memory of its own may share it. */
  readonly isPlain: boolean;

  /** The layout takes the lists over: the caller must not keep them. */
  constructor(shape: Shape, strides: readonly number[], offset = 0, plain = false) {
    this.shape = shape;
    this.strides = strides;
    this.offset = offset;
    this.isPlain = plain;
    let size = 1;
    let dense = true;
    for (let i = shape.length - 1; i >= 0; i--) {
      if (shape[i] !== 1 && strides[i] !== size) dense = false;
      size *= shape[i];
    }
    this.size = size;
    this.isContiguous = dense || size === 0;
  }

  /** Row-major without gaps. */
  static contiguous(shape: Shape, offset = 0): Layout {
    return new Layout(shape.slice(), contiguousStrides(shape), offset, offset === 0);
  }

  /**
   * Whether every element lies within a storage of `room` elements. Looks at the lists as they are now, because nothing
   * but this stands between a list that somebody changed and memory that belongs to others.
   */
  fits(room: number): boolean {
    const { shape, strides } = this;
    let size = 1;
    let begin = this.offset;
    let end = this.offset;
    for (let i = 0; i < shape.length; i++) {
      const d = shape[i];
      const stride = strides[i];
      if (!Number.isSafeInteger(d) || d < 0 || !Number.isSafeInteger(stride)) return false;
      if (stride < 0) begin += (d - 1) * stride;
      else end += (d - 1) * stride;
      size *= d;
    }
    return size === this.size && (size === 0 || (Number.isSafeInteger(begin) && begin >= 0 && end < room));
  }

  /** The number of dimensions. */
  get rank(): number {
    return this.shape.length;
  }

  /** One past the largest element index that is read, 0 when empty. */
  get end(): number {
    if (this.size === 0) return 0;
    return this.shape.reduce((e, d, i) => e + (d - 1) * this.strides[i], this.offset) + 1;
  }

  /** The dimensions in another order. */
  permute(dims: readonly number[]): Layout {
    const shape = dims.slice();
    const strides = dims.slice();
    for (let i = 0; i < dims.length; i++) {
      shape[i] = this.shape[dims[i]];
      strides[i] = this.strides[dims[i]];
    }
    return new Layout(shape, strides, this.offset);
  }

  /** Two dimensions exchanged. */
  transpose(a: number, b: number): Layout {
    const shape = this.shape.slice();
    const strides = this.strides.slice();
    shape[a] = this.shape[b];
    shape[b] = this.shape[a];
    strides[a] = this.strides[b];
    strides[b] = this.strides[a];
    return new Layout(shape, strides, this.offset);
  }

  /** Elements start, start+step, ... of a dimension, `length` of them. */
  slice(dim: number, start: number, length: number, step = 1): Layout {
    const shape = [...this.shape];
    const strides = [...this.strides];
    shape[dim] = length;
    strides[dim] *= step;
    return new Layout(shape, strides, length === 0 ? this.offset : this.offset + start * this.strides[dim]);
  }

  /** Without these dimensions of size 1. */
  squeeze(dims: readonly number[]): Layout {
    const keep = (_: number, i: number) => !dims.includes(i);
    return new Layout(this.shape.filter(keep), this.strides.filter(keep), this.offset);
  }

  /** With a dimension of size 1 in this place. */
  unsqueeze(dim: number): Layout {
    const shape = [...this.shape];
    const strides = [...this.strides];
    shape.splice(dim, 0, 1);
    strides.splice(dim, 0, 1);
    return new Layout(shape, strides, this.offset);
  }

  /** The same elements repeated to a larger shape, with strides of 0. */
  broadcastTo(op: string, shape: Shape): Layout {
    checkShape(op, shape);
    if (this.rank === 0) return new Layout(shape.slice(), new Array<number>(shape.length).fill(0), this.offset);
    const lead = shape.length - this.rank;
    const strides = shape.map((d, i) => {
      const own = i < lead ? 1 : this.shape[i - lead];
      if (own === d) return i < lead ? 0 : this.strides[i - lead];
      if (own === 1) return 0;
      throw new ShapeError(`${op}: ${formatShape(this.shape)} does not broadcast to ${formatShape(shape)}`);
    });
    if (lead < 0) throw new ShapeError(`${op}: ${formatShape(this.shape)} does not broadcast to ${formatShape(shape)}`);
    return new Layout(shape.slice(), strides, this.offset);
  }

  /** The same elements under another shape, or undefined when strides do not allow it without a copy. */
  reshape(shape: Shape): Layout | undefined {
    if (this.isContiguous) return Layout.contiguous(shape, this.offset);
    const strides = new Array<number>(shape.length).fill(1);
    const old = this.shape.map((d, i) => [d, this.strides[i]] as const).filter(([d]) => d !== 1);
    // Walk both shapes in runs of equal element count; each run must be one merged stride in the old layout.
    let n = 0;
    let i = 0;
    while (n < old.length) {
      let have = old[n][0];
      const from = n++;
      let start = i;
      while (start < shape.length && shape[start] === 1) start++;
      i = start;
      let want = shape[i++];
      while (have !== want) {
        if (have < want) {
          if (n >= old.length) return undefined;
          have *= old[n++][0];
        } else {
          if (i >= shape.length) return undefined;
          want *= shape[i++];
        }
      }
      for (let k = from; k + 1 < n; k++) {
        if (old[k][1] !== old[k + 1][0] * old[k + 1][1]) return undefined;
      }
      for (let k = i - 1, s = old[n - 1][1]; k >= start; k--) {
        strides[k] = s;
        s *= shape[k];
      }
    }
    return new Layout(shape.slice(), strides, this.offset);
  }

  /** Calls visit(position, element index) in row-major order. */
  forEach(visit: (at: number, index: number) => void): void {
    const { shape, strides, rank, size } = this;
    if (size === 0) return;
    const counter = new Array<number>(rank).fill(0);
    let index = this.offset;
    for (let at = 0; at < size; at++) {
      visit(at, index);
      for (let d = rank - 1; d >= 0; d--) {
        index += strides[d];
        if (++counter[d] < shape[d]) break;
        index -= strides[d] * shape[d];
        counter[d] = 0;
      }
    }
  }
}

/**
 * Several layouts of one shape with adjacent dimensions merged wherever all of them allow it, and size-1 dimensions
 * dropped.
 */
export function mergeDims(layouts: readonly Layout[]): { shape: number[]; strides: number[][] } {
  const { shape } = layouts[0];
  const outShape: number[] = [];
  const outStrides: number[][] = layouts.map(() => []);
  for (let d = 0; d < shape.length; d++) {
    if (shape[d] === 1) continue;
    const last = outShape.length - 1;
    const mergeable = last >= 0 && layouts.every((l, k) => outStrides[k][last] === l.strides[d] * shape[d]);
    if (mergeable) {
      outShape[last] *= shape[d];
      layouts.forEach((l, k) => (outStrides[k][last] = l.strides[d]));
    } else {
      outShape.push(shape[d]);
      layouts.forEach((l, k) => outStrides[k].push(l.strides[d]));
    }
  }
  return { shape: outShape, strides: outStrides };
}

/** Python-like slice bounds on one dimension: negatives count from the end, bounds are clamped. */
export function sliceBounds(
  op: string,
  length: number,
  start: number | undefined,
  end: number | undefined,
  step: number,
): { start: number; length: number } {
  if (!Number.isInteger(step) || step < 1)
    throw new ArgumentError(`${op}: step ${step} is not a whole number other than 0`);
  const clamp = (v: number) => Math.min(Math.max(v < 0 ? v + length : v, 0), length);
  const from = clamp(start ?? 0);
  const to = clamp(end ?? length);
  if (!Number.isInteger(from) || !Number.isInteger(to)) {
    throw new ArgumentError(`${op}: bounds ${start} and ${end} are not whole numbers`);
  }
  return { start: from, length: Math.max(0, Math.ceil((to - from) / step)) };
}

/**
 * The same for a negative step, in places of the reversed dimension: start, start+step, ... down to what follows end.
 */
export function backwards(
  op: string,
  length: number,
  start: number | undefined,
  end: number | undefined,
  step: number,
): { start: number; length: number } {
  const clamp = (v: number) => Math.min(Math.max(v < 0 ? v + length : v, -1), length - 1);
  const from = clamp(start ?? length - 1);
  const to = end === undefined ? -1 : clamp(end);
  if (!Number.isInteger(from) || !Number.isInteger(to))
    throw new ArgumentError(`${op}: bounds ${start} and ${end} are not whole numbers`);
  return { start: length - 1 - from, length: Math.max(0, Math.ceil((from - to) / -step)) };
}

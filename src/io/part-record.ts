// A part of a stored tensor as a record of its own: only its bytes are read.
import { bytesOf } from '../base/dtype.js';
import { ShapeError } from '../base/errors.js';
import { formatShape, type Shape, sizeOf } from '../base/shape.js';
import type { TensorRecord } from './stored-dtype.js';

/** The `index`-th of `count` equal parts. */
export interface Share {
  readonly index: number;
  readonly count: number;
}
/** One of several equal parts along a dimension. */
export interface Part extends Share {
  readonly dim: number;
  /** The dimension's size where it need not divide: parts are rounded up, and past its end there are zeros. */
  readonly whole?: number;
  /** Things that stand one after another in the dimension, each divided for itself: a part has one piece of each. */
  readonly sections?: readonly (Share & { readonly size: number })[];
}
/** A run of a dimension: where it begins in the whole, and how long it is. */
export interface Run {
  readonly from: number;
  readonly length: number;
}

/** What a part has of a dimension of this size: runs one after another, and how many zeros after them. */
export function runsOf(
  part: Part,
  shape: Shape,
  name: string,
): { readonly runs: readonly Run[]; readonly zeros: number } {
  const { dim, index, count, whole, sections } = part;
  const size = shape[dim];
  const share = (n: number, s: Share, from: number): Run => {
    if (size === undefined || n % s.count !== 0)
      throw new ShapeError(`${name}: dimension ${dim} of ${formatShape(shape)} does not divide into ${s.count} parts`);
    return { from: from + (n / s.count) * s.index, length: n / s.count };
  };
  const check = (wanted: number): void => {
    if (size !== wanted)
      throw new ShapeError(`${name}: dimension ${dim} of ${formatShape(shape)}; by the config it is ${wanted}`);
  };
  if (sections) {
    let at = 0;
    const runs = sections.map((s) => share(s.size, s, (at += s.size) - s.size));
    check(at);
    return { runs, zeros: 0 };
  }
  if (whole === undefined) return { runs: [share(size, part, 0)], zeros: 0 };
  check(whole);
  const each = Math.ceil(whole / count);
  const from = Math.min(index * each, whole);
  const length = Math.min(each, whole - from);
  return { runs: [{ from, length }], zeros: each - length };
}
/** The whole tensor's shape from that of a part. */
export function wholeShape(shape: Shape, { dim, count, whole, sections }: Part): Shape {
  const size = sections ? sections.reduce((n, s) => n + s.size, 0) : (whole ?? shape[dim] * count);
  return shape.map((n, i) => (i === dim ? size : n));
}

/** One of several parts of a stored tensor. */
export function partRecord(record: TensorRecord, part: Part): TensorRecord {
  const { runs, zeros } = runsOf(part, record.shape, record.name);
  return runsRecord(record, part.dim, runs, zeros);
}

/** Runs of a dimension of a stored tensor, one after another, and zeros after them. */
export function runsRecord(record: TensorRecord, dim: number, runs: readonly Run[], zeros = 0): TensorRecord {
  const { shape, dtype, name } = record;
  const length = runs.reduce((n, r) => n + r.length, zeros);
  const own = shape.map((n, i) => (i === dim ? length : n));
  // Bytes of one index of the dimension, and of all of it: in the file, and in the part.
  const unit = sizeOf(shape.slice(dim + 1)) * bytesOf(dtype);
  const [stored, row] = [unit * shape[dim], unit * length];
  let at = 0;
  const pieces = runs.map((r) => ({ start: (at += r.length * unit) - r.length * unit, end: at, from: r.from * unit }));
  const byteLength = sizeOf(own) * bytesOf(dtype);
  return {
    name,
    dtype,
    shape: own,
    byteLength,
    read: (start = 0, end = byteLength) => {
      const out: { readonly to: number; readonly bytes: Uint8Array }[] = [];
      for (let i = Math.floor(start / row); i * row < end; i++)
        for (const p of pieces) {
          const [a, b] = [Math.max(start, i * row + p.start), Math.min(end, i * row + p.end)];
          if (a >= b) continue;
          const there = i * stored + p.from + (a - i * row - p.start);
          const bytes = record.read(there, there + b - a);
          // What lies together in the file is not copied.
          if (b - a === end - start) return bytes;
          out.push({ to: a - start, bytes });
        }
      const joined = new Uint8Array(end - start);
      for (const { to, bytes } of out) joined.set(bytes, to);
      return joined;
    },
  };
}

// A part of a stored tensor as a record of its own: only its bytes are read.
import { bytesOf } from '../base/dtype.js';
import { ShapeError } from '../base/errors.js';
import { formatShape, sizeOf } from '../base/shape.js';
import type { TensorRecord } from './stored-dtype.js';

/** The `index`-th of `count` equal parts along a dimension. */
export interface Part {
  readonly dim: number;
  readonly index: number;
  readonly count: number;
}

export function partRecord(record: TensorRecord, { dim, index, count }: Part): TensorRecord {
  const { shape, dtype, name } = record;
  if (!(dim >= 0 && dim < shape.length) || shape[dim] % count !== 0)
    throw new ShapeError(`${name}: dimension ${dim} of ${formatShape(shape)} does not divide into ${count} parts`);
  const part = shape.map((n, i) => (i === dim ? n / count : n));
  // Runs of bytes that lie together, one for every index of the dimensions before.
  const run = sizeOf(part.slice(dim)) * bytesOf(dtype);
  const apart = run * count;
  const byteLength = sizeOf(part) * bytesOf(dtype);
  return {
    name,
    dtype,
    shape: part,
    byteLength,
    read: (start = 0, end = byteLength) => {
      const first = Math.floor(start / run);
      if (end <= (first + 1) * run) {
        const at = first * apart + index * run - first * run;
        return record.read(at + start, at + end);
      }
      const out = new Uint8Array(end - start);
      for (let i = first; i * run < end; i++) {
        const [from, to] = [Math.max(start, i * run), Math.min(end, (i + 1) * run)];
        const at = i * apart + index * run - i * run;
        out.set(record.read(at + from, at + to), from - start);
      }
      return out;
    },
  };
}

// Tensors made of stored ones as they are read: rows in another order, matrices turned round, numbers changed. Nothing
// is held between reads but the one matrix that is being turned.
import { bytesOf, DTYPE, type DType } from '../base/dtype.js';
import { ShapeError } from '../base/errors.js';
import { formatShape, sameShape, type Shape, sizeOf } from '../base/shape.js';
import type { TensorRecord } from './stored-dtype.js';

/** Rows of one stored tensor, by number, in the order in which they are wanted. */
export interface RowsOf {
  readonly record: TensorRecord;
  readonly rows: ArrayLike<number>;
}
/** Sources up to this size are read whole where their rows are wanted one by one. */
const SMALL = 2 ** 24;

/**
 * Gathers `width` elements a row from where each lies. Which rows, in all as many as the shape has, is asked when
 * reading begins and forgotten when it ends.
 */
export function rowsRecord(
  name: string,
  dtype: DType,
  shape: Shape,
  width: number,
  partsOf: () => readonly RowsOf[],
): TensorRecord {
  const run = width * bytesOf(dtype);
  const byteLength = sizeOf(shape) * bytesOf(dtype);
  let held: readonly RowsOf[] | undefined;
  const parts = (): readonly RowsOf[] => {
    if (held) return held;
    held = partsOf();
    const odd = held.find((p) => p.record.dtype !== dtype);
    if (odd) throw new ShapeError(`${name}: its parts are ${dtype} and ${odd.record.dtype} (${odd.record.name})`);
    const all = held.reduce((n, p) => n + p.rows.length, 0);
    if (all * run !== byteLength)
      throw new ShapeError(`${name}: ${all} rows of ${width} do not make ${formatShape(shape)}`);
    return held;
  };
  return {
    name,
    dtype,
    shape,
    byteLength,
    read: (start = 0, end = byteLength) => {
      const [first, last] = [Math.floor(start / run), Math.ceil(end / run)];
      const out = new Uint8Array((last - first) * run);
      let before = 0;
      for (const { record, rows } of parts()) {
        const [from, to] = [Math.max(first, before) - before, Math.min(last, before + rows.length) - before];
        if (from < to) gather(record, rows, from, to, run, out.subarray((before + from - first) * run));
        before += rows.length;
      }
      if (end === byteLength) held = undefined;
      return out.subarray(start - first * run, end - first * run);
    },
  };
}

/** Rows that lie together are read together. */
function gather(
  record: TensorRecord,
  rows: ArrayLike<number>,
  from: number,
  to: number,
  run: number,
  out: Uint8Array,
): void {
  let whole: Uint8Array | undefined;
  for (let i = from; i < to; ) {
    let n = 1;
    while (i + n < to && rows[i + n] === rows[i] + n) n++;
    const [start, end] = [rows[i] * run, (rows[i] + n) * run];
    if (n < to - from && record.byteLength <= SMALL) whole ??= record.read();
    out.set(whole ? whole.subarray(start, end) : record.read(start, end), (i - from) * run);
    i += n;
  }
}

function turned(bytes: Uint8Array, rows: number, columns: number, width: number): Uint8Array {
  const Raw = width === 4 ? Uint32Array : width === 2 ? Uint16Array : width === 1 ? Uint8Array : BigUint64Array;
  const from = new Raw(bytes.slice().buffer) as Uint32Array;
  const to = new Raw(bytes.length / width) as Uint32Array;
  // Small squares at a time, so that neither side leaves the caches.
  for (let r0 = 0; r0 < rows; r0 += 32)
    for (let c0 = 0; c0 < columns; c0 += 32)
      for (let r = r0; r < Math.min(r0 + 32, rows); r++)
        for (let c = c0; c < Math.min(c0 + 32, columns); c++) to[c * rows + r] = from[r * columns + c];
  return new Uint8Array(to.buffer);
}

/** The last two dimensions change places. */
export function turnedRecord(record: TensorRecord): TensorRecord {
  const { name, dtype, byteLength } = record;
  const [rows, columns] = record.shape.slice(-2);
  if (columns === undefined) throw new ShapeError(`${name}: ${formatShape(record.shape)} is no matrix to turn round`);
  const size = rows * columns * bytesOf(dtype);
  let held: { readonly matrix: number; readonly bytes: Uint8Array } | undefined;
  const matrixAt = (matrix: number): Uint8Array => {
    if (held?.matrix !== matrix) {
      held = undefined; // before the next is made
      const bytes = turned(record.read(matrix * size, (matrix + 1) * size), rows, columns, bytesOf(dtype));
      held = { matrix, bytes };
    }
    return held.bytes;
  };
  return {
    name,
    dtype,
    shape: [...record.shape.slice(0, -2), columns, rows],
    byteLength,
    read: (start = 0, end = byteLength) => {
      const out = new Uint8Array(end - start);
      for (let at = start; at < end; ) {
        const matrix = Math.floor(at / size);
        const to = Math.min(end, (matrix + 1) * size);
        out.set(matrixAt(matrix).subarray(at - matrix * size, to - matrix * size), at - start);
        at = to;
      }
      if (end === byteLength) held = undefined;
      return out;
    },
  };
}

/** A record's numbers as f32, each changed by `change`. */
export function floatRecord(record: TensorRecord, change: (x: number) => number = (x) => x): TensorRecord {
  const { name, shape, dtype } = record;
  const info = DTYPE[dtype];
  const byteLength = sizeOf(shape) * 4;
  return {
    name,
    dtype: 'f32' satisfies DType,
    shape,
    byteLength,
    read: (start = 0, end = byteLength) => {
      const [first, last] = [Math.floor(start / 4), Math.ceil(end / 4)];
      const raw = new info.Raw(record.read(first * info.bytes, last * info.bytes).slice().buffer) as ArrayLike<number>;
      const out = Float32Array.from(raw, (v) => change(Number(info.decode(v))));
      return new Uint8Array(out.buffer).subarray(start - 4 * first, end - 4 * first);
    },
  };
}

/** The same bytes under another name or in another shape. */
export const renamed = (record: TensorRecord, name: string, shape: Shape = record.shape): TensorRecord => ({
  ...record,
  name,
  shape,
});

/** Tensors of one shape as one, with a dimension before theirs; in f32 where their dtypes differ. */
export function stackedRecord(name: string, list: readonly TensorRecord[]): TensorRecord {
  const records = list.every((r) => r.dtype === list[0].dtype) ? list : list.map((r) => floatRecord(r));
  const [first] = records;
  const odd = records.find((r) => !sameShape(r.shape, first.shape));
  if (odd)
    throw new ShapeError(
      `${name}: ${first.name} is ${formatShape(first.shape)}, ${odd.name} ${formatShape(odd.shape)}; they must be ` +
        `alike`,
    );
  const each = first.byteLength;
  const byteLength = records.length * each;
  return {
    name,
    dtype: first.dtype,
    shape: [records.length, ...first.shape],
    byteLength,
    read: (start = 0, end = byteLength) => {
      const from = Math.floor(start / each);
      if (end <= (from + 1) * each) return records[from].read(start - from * each, end - from * each);
      const out = new Uint8Array(end - start);
      for (let at = start; at < end; ) {
        const which = Math.floor(at / each);
        const to = Math.min(end, (which + 1) * each);
        out.set(records[which].read(at - which * each, to - which * each), at - start);
        at = to;
      }
      return out;
    },
  };
}

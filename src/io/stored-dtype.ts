// Element types that files may hold: ours, and foreign ones that are refused by name or widened without loss.
import { DTYPE, EVERY_DTYPE, bytesOf, type DType } from '../base/dtype.js';
import { ArgumentError, DTypeError } from '../base/errors.js';
import type { Shape } from '../base/shape.js';

interface Foreign {
  readonly bits: number;
  /** The smallest of our types that holds every value, and how to get there. */
  readonly widen?: { readonly to: DType; readonly convert: (bytes: Uint8Array) => Uint8Array };
}

const bytesOfView = (a: ArrayBufferView): Uint8Array => new Uint8Array(a.buffer, a.byteOffset, a.byteLength);
// Typed arrays need aligned starts, slices of files have none.
const aligned = (b: Uint8Array): ArrayBuffer => b.slice().buffer;

/** Files may hold any byte for true; kernels rely on 1. */
const truths = (b: Uint8Array): Uint8Array => (b.some((x) => x > 1) ? b.map((x) => (x ? 1 : 0)) : b);

const FOREIGN = {
  u16: { bits: 16, widen: { to: 'u32', convert: (b) => bytesOfView(Uint32Array.from(new Uint16Array(aligned(b)))) } },
  u64: { bits: 64 },
  f8e8m0: { bits: 8 },
  f8e4m3fnuz: { bits: 8 },
  f8e5m2fnuz: { bits: 8 },
  f4: { bits: 4 },
  f6e2m3: { bits: 6 },
  f6e3m2: { bits: 6 },
  c32: { bits: 32 },
  c64: { bits: 64 },
  c128: { bits: 128 },
} as const satisfies Record<string, Foreign>;

/** Types that files may hold: ours and some that are widened or refused. */
export type StoredDType = DType | keyof typeof FOREIGN;

const isOurs = (d: StoredDType): d is DType => (EVERY_DTYPE as readonly string[]).includes(d);
export const bitsOf = (d: StoredDType): number => (isOurs(d) ? DTYPE[d].bytes * 8 : FOREIGN[d].bits);

/** The type that reading gives, or a DTypeError that names the foreign one. */
export function targetDType(where: string, stored: StoredDType, widen: boolean): DType {
  if (isOurs(stored)) return stored;
  const to = (FOREIGN[stored] as Foreign).widen?.to;
  if (widen && to) return to;
  throw new DTypeError(
    `${where}: dtype ${stored} is none of ${EVERY_DTYPE.join(', ')}` +
      (to ? `; { widen: true } reads it as ${to}` : '; no type here holds it without loss'),
  );
}

/**
 * Product of dimensions as bytes, or undefined where it or a product on the way is not a whole number of bytes below
 * 2^53.
 */
export function storedBytes(stored: StoredDType, shape: Shape): number | undefined {
  const bits = BigInt(bitsOf(stored));
  let elements = 1n;
  for (const d of shape) {
    elements *= BigInt(d);
    // Checked at every step: a 0 further on must not hide dimensions that overflow.
    if ((elements * bits) / 8n > BigInt(Number.MAX_SAFE_INTEGER)) return undefined;
  }
  return (elements * bits) % 8n ? undefined : Number((elements * bits) / 8n);
}

/** How types that are not ours are read. */
export interface ReadOptions {
  /** Read u16 as u32, the smallest type here that holds every value, instead of refusing it. */
  widen?: boolean;
}

/** What a file says about a tensor, whether its type is ours or not. */
export interface StoredInfo {
  readonly dtype: StoredDType;
  readonly shape: Shape;
  readonly bytes: number;
}

/** A tensor in a file: its type and shape at once, its bytes when asked. */
export interface TensorRecord {
  /** Its name in the file. */
  readonly name: string;
  /** The element type that its bytes have when they are read. */
  readonly dtype: DType;
  /** Its shape. */
  readonly shape: Shape;
  /** How many bytes reading gives. */
  readonly byteLength: number;
  /** Row-major little-endian bytes, all or those from start to end. */
  read(start?: number, end?: number): Uint8Array;
}

/** A record over stored bytes that converts where the stored type is foreign. */
export function storedRecord(
  where: string,
  name: string,
  stored: StoredDType,
  shape: Shape,
  options: ReadOptions,
  readStored: (start: number, end: number) => Uint8Array,
): TensorRecord {
  const dtype = targetDType(where, stored, options.widen ?? false);
  const ratio = bytesOf(dtype) / (bitsOf(stored) / 8);
  const byteLength = storedBytes(stored, shape)! * ratio;
  const convert = stored === 'bool' ? truths : isOurs(stored) ? undefined : (FOREIGN[stored] as Foreign).widen!.convert;
  return {
    name,
    dtype,
    shape,
    byteLength,
    read(start = 0, end = byteLength) {
      checkRange(where, start, end, byteLength);
      if (!convert) return readStored(start, end);
      // Whole elements, wherever the range begins.
      const width = bytesOf(dtype);
      const first = Math.floor(start / width);
      const wide = convert(readStored((first * width) / ratio, (Math.ceil(end / width) * width) / ratio));
      return wide.subarray(start - first * width, end - first * width);
    },
  };
}

export function checkRange(where: string, start: number, end: number, length: number): void {
  if (Number.isSafeInteger(start) && Number.isSafeInteger(end) && start >= 0 && start <= end && end <= length) return;
  throw new ArgumentError(`${where}: bytes ${start} to ${end} are outside its ${length} bytes`);
}

const SLICE = 256 * 2 ** 20;

/** A record's bytes piece by piece, so that tensors longer than a typed array can be moved. */
export function* slices(record: TensorRecord, bytes = SLICE): Generator<Uint8Array> {
  for (let at = 0; at < record.byteLength; at += bytes) yield record.read(at, Math.min(at + bytes, record.byteLength));
}

/** A record over bytes in memory. */
export function memoryRecord(name: string, dtype: DType, shape: Shape, bytes: Uint8Array): TensorRecord {
  const want = storedBytes(dtype, shape);
  if (want !== bytes.length)
    throw new ArgumentError(`${name}: ${bytes.length} bytes given, ${dtype} [${shape.join(', ')}] takes ${want}`);
  return storedRecord(name, name, dtype, shape, {}, (start, end) => bytes.subarray(start, end));
}

/** Reverses the bytes of each element in place. */
export function swapBytes(bytes: Uint8Array, elementBytes: number): Uint8Array {
  if (elementBytes > 1)
    for (let i = 0; i < bytes.length; i += elementBytes) bytes.subarray(i, i + elementBytes).reverse();
  return bytes;
}

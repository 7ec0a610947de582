// NumPy arrays: .npy files and .npz archives, read in either byte and memory order, written row-major little-endian.
import type { DType } from '../base/dtype.js';
import { DTypeError } from '../base/errors.js';
import { Layout } from '../base/layout.js';
import { collect, writeAtomic, type Write } from './atomic-file.js';
import { Cursor, badFormat, opening, readBytes, type ByteSource, type From } from './byte-source.js';
import { Budget, MAX_RANK } from './limits.js';
import { parseLiteral } from './python-literal.js';
import {
  bitsOf,
  slices,
  storedBytes,
  storedRecord,
  swapBytes,
  type ReadOptions,
  type StoredDType,
  type StoredInfo,
  type TensorRecord,
} from './stored-dtype.js';
import { gatherBytes } from './strided.js';
import { ZipFile, writeZip } from './zip.js';

const MAGIC = [0x93, 0x4e, 0x55, 0x4d, 0x50, 0x59];
/** NumPy itself trusts headers up to 10,000 bytes. */
const MAX_HEADER = 65536;
const KINDS: Record<string, StoredDType> = {
  u1: 'u8',
  u4: 'u32',
  i2: 'i16',
  i4: 'i32',
  i8: 'i64',
  f2: 'f16',
  f4: 'f32',
  f8: 'f64',
  b1: 'bool',
  i1: 'i8',
  u2: 'u16',
  u8: 'u64',
  c8: 'c64',
  c16: 'c128',
};
const CODE: Partial<Record<DType, string>> = {
  bool: '|b1',
  u8: '|u1',
  u32: '<u4',
  i8: '|i1',
  i16: '<i2',
  i32: '<i4',
  i64: '<i8',
  f16: '<f2',
  f32: '<f4',
  f64: '<f8',
};

/** Bytes of objects that a byte of header can become. */
const HEADER_COST = 16;

interface NpyHeader extends StoredInfo {
  readonly fortran: boolean;
  readonly order: string;
  /** Where the numbers begin. */
  readonly data: number;
}

function parseHeader(source: ByteSource, budget?: Budget): NpyHeader {
  const cursor = new Cursor(source, 0, budget);
  const magic = cursor.bytes(6, 'magic');
  if (MAGIC.some((b, i) => magic[i] !== b)) throw badFormat(source.name, 0, 'magic: must be \\x93NUMPY');
  const version = cursor.u8('version');
  cursor.u8('version');
  if (version < 1 || version > 3) throw badFormat(source.name, 6, `version ${version} is not known (1, 2 and 3 are)`);
  const length = version === 1 ? cursor.u16('header length') : cursor.u32('header length');
  if (length > MAX_HEADER) throw cursor.fail(`header length ${length} is beyond ${MAX_HEADER}`);
  const at = cursor.at;
  cursor.pay(length * HEADER_COST, length);
  const header = parseLiteral(
    new TextDecoder(version === 3 ? 'utf-8' : 'latin1').decode(cursor.bytes(length, 'header')),
    source.name,
    at,
  );
  if (!(header instanceof Map)) throw badFormat(source.name, at, 'header: must be a dict');
  const descr = header.get('descr');
  const fortran = header.get('fortran_order');
  const shape = header.get('shape');
  if (typeof fortran !== 'boolean') throw badFormat(source.name, at, 'header: fortran_order must be True or False');
  if (
    !Array.isArray(shape) ||
    shape.length > MAX_RANK ||
    !shape.every((d): d is number => Number.isSafeInteger(d) && (d as number) >= 0)
  ) {
    throw badFormat(source.name, at, `header: shape must be a tuple of at most ${MAX_RANK} whole numbers from 0`);
  }
  const match = typeof descr === 'string' ? /^([<>|=])([a-z]\d+)$/.exec(descr) : null;
  const stored = match && Object.hasOwn(KINDS, match[2]) ? KINDS[match[2]] : undefined;
  if (!stored)
    throw new DTypeError(
      `${source.name}: at byte ${at}: descr ${JSON.stringify(descr)} is none of the number types that are read`,
    );
  const bytes = storedBytes(stored, shape);
  if (bytes !== cursor.left) {
    throw cursor.fail(
      `data: ${String(descr)} of shape [${shape.join(', ')}] takes ${bytes ?? 'too many'} bytes, the file holds ` +
        `${cursor.left}`,
    );
  }
  return { dtype: stored, shape, bytes, fortran, order: match![1], data: cursor.at };
}

function parseNpy(source: ByteSource, name: string, options: ReadOptions, budget?: Budget): TensorRecord {
  const { dtype: stored, shape, bytes, fortran, order, data } = parseHeader(source, budget);
  const width = bitsOf(stored) / 8;
  const range = (start: number, end: number) => readBytes(source, data + start, end - start);
  if (fortran && shape.length > 1) {
    const layout = Layout.contiguous([...shape].reverse()).permute(shape.map((_, i) => shape.length - 1 - i));
    return storedRecord(source.name, name, stored, shape, options, (start, end) =>
      native(gatherBytes(range(0, bytes), layout, width), order, width).slice(start, end),
    );
  }
  return storedRecord(source.name, name, stored, shape, options, (start, end) => {
    const first = Math.floor(start / width) * width; // whole elements, so that swapping sees them
    return native(range(first, Math.ceil(end / width) * width), order, width).subarray(start - first, end - first);
  });
}

const native = (bytes: Uint8Array, order: string, width: number): Uint8Array =>
  order === '>' ? swapBytes(bytes, width) : bytes;

/** The one tensor of an .npy file, by its path or bytes. */
export function openNpy(from: From, options: ReadOptions = {}): TensorRecord {
  return opening(from, (source) => parseNpy(source, '', options));
}

/** The arrays of an .npz archive by name (without .npy); each is inflated when it is opened here. */
export const openNpz = (from: From, options: NpzOptions = {}): Map<string, TensorRecord> =>
  members(from, options, (source, name, budget) => parseNpy(source, name, options, budget));

/** What an .npy file or an .npz archive holds, foreign types included: headers alone. */
export const numpyInfos = (format: 'npy' | 'npz', from: From): Map<string, StoredInfo> =>
  format === 'npz'
    ? members(from, {}, (source, _, budget) => parseHeader(source, budget))
    : opening(from, (source) => new Map([['', parseHeader(source)]]));

type NpzOptions = ReadOptions & { maxGrowth?: number };

function members<T>(
  from: From,
  options: NpzOptions,
  parse: (source: ByteSource, name: string, budget: Budget) => T,
): Map<string, T> {
  return opening(from, (source) => {
    const budget = new Budget(source.name, source.stored ?? source.size);
    const zip = new ZipFile(source, { maxGrowth: options.maxGrowth, budget });
    const out = new Map<string, T>();
    for (const [member, { headerAt }] of zip.entries) {
      if (!member.endsWith('.npy'))
        throw badFormat(source.name, headerAt, `member ${JSON.stringify(member)} is no .npy file`);
      const name = member.slice(0, -4);
      out.set(name, parse(zip.open(member), name, budget));
    }
    return out;
  });
}

function npyHeader({ dtype, shape, name }: TensorRecord): Uint8Array {
  const descr = CODE[dtype];
  if (!descr) throw new DTypeError(`npy: NumPy has no ${dtype} to hold tensor ${JSON.stringify(name)}; cast it first`);
  const tuple = shape.length === 1 ? `(${shape[0]},)` : `(${shape.join(', ')})`;
  const text = `{'descr': '${descr}', 'fortran_order': False, 'shape': ${tuple}, }`;
  // Data starts at a multiple of 64 bytes, the header ends with a newline.
  const lead = 10;
  const total = Math.ceil((lead + text.length + 1) / 64) * 64;
  const out = Buffer.alloc(total, ' ');
  out.set(MAGIC);
  out[6] = 1;
  out[7] = 0;
  out.writeUInt16LE(total - lead, 8);
  out.write(text, lead, 'latin1');
  out[total - 1] = 0x0a;
  return out;
}

function* npyParts(record: TensorRecord): Generator<Uint8Array> {
  yield npyHeader(record);
  yield* slices(record);
}

const emit = (record: TensorRecord) => (write: Write) => {
  for (const part of npyParts(record)) write(part);
};

const emitZip = (records: Iterable<TensorRecord>, deflate: boolean) => (write: Write) =>
  writeZip(
    [...records].map((r) => ({
      name: `${r.name}.npy`,
      size: npyHeader(r).length + r.byteLength,
      slices: () => npyParts(r),
    })),
    deflate,
    write,
  );

/** Writes an .npy file; it appears whole or not at all. */
export const writeNpy = (path: string, record: TensorRecord): void => writeAtomic(path, emit(record));
/** A record as the bytes of an .npy file. */
export const npyBytes = (record: TensorRecord): Uint8Array => collect(emit(record));
/** Writes an .npz file; it appears whole or not at all. */
export const writeNpz = (
  path: string,
  records: Iterable<TensorRecord>,
  options: {
    /** Compress the members; default false. */
    deflate?: boolean;
  } = {},
): void => writeAtomic(path, emitZip(records, options.deflate ?? false));
/** Records as the bytes of an .npz file. */
export const npzBytes = (
  records: Iterable<TensorRecord>,
  options: {
    /** Compress the members; default false. */
    deflate?: boolean;
  } = {},
): Uint8Array => collect(emitZip(records, options.deflate ?? false));
/** Whether NumPy has this dtype; bf16 and 8-bit floats it has not. */
export const npyHolds = (dtype: DType): boolean => CODE[dtype] !== undefined;

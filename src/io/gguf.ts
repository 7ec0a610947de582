// GGUF files, versions 1 to 3: metadata and tensor table checked against the file's size, tensor bytes read when asked.
import { ArgumentError, DTypeError } from '../base/errors.js';
import { sizeOf, type Shape } from '../base/shape.js';
import { Cursor, opening, readBytes, type ByteSource } from './byte-source.js';
import { dequantize } from '../base/blocks/decode.js';
import { ggmlTypeById, type GgmlType } from '../base/blocks/types.js';
import {
  ALIGNMENT_KEY,
  GGUF_ALIGNMENT,
  GGUF_MAGIC,
  MAX_GGUF_RANK,
  MAX_KEY_BYTES,
  MAX_NAME_BYTES,
  readGgufValue,
  type GgufScalar,
  type GgufValue,
} from './gguf-value.js';
import { checkRange, storedRecord, type ReadOptions, type TensorRecord } from './stored-dtype.js';

/** Bytes that an entry of the metadata or of the table takes in memory. */
const ENTRY = 400;
const MAX_ALIGNMENT = 2 ** 20;
const MAX_ELEMENTS = 2n ** 63n - 1n;

/** What the file says about a tensor. */
export interface GgufTensorInfo {
  /** Its name. */
  readonly name: string;
  /** Its type: floats, integers or quantized blocks. */
  readonly type: GgmlType;
  /** Row-major: the reverse of the order in the file. */
  readonly shape: Shape;
  /** Where the bytes lie in the file. */
  readonly start: number;
  /** How many bytes it takes. */
  readonly bytes: number;
}

/** A GGUF file: metadata and tensors, which are read when they are asked for. */
export class Gguf {
  /** The format's version: 1, 2 or 3. */
  readonly version: number;
  /** Tensors begin at multiples of so many bytes. */
  readonly alignment: number;
  /** All metadata by key, with the types that the file gives. */
  readonly metadata: ReadonlyMap<string, GgufValue>;
  readonly #infos: ReadonlyMap<string, GgufTensorInfo>;
  readonly #source: ByteSource;

  private constructor(source: ByteSource) {
    const cursor = new Cursor(source);
    this.#source = source;
    this.version = readVersion(cursor);
    const count = (what: string, least: number): number => readCount(cursor, this.version, what, least);
    // A tensor's entry takes 4 fields at least, a metadata entry 3.
    const tensors = count('number of tensors', 20);
    const entries = count('number of metadata entries', 9);
    this.metadata = readMetadata(cursor, entries, this.version);
    this.alignment = Number(this.get(ALIGNMENT_KEY) ?? GGUF_ALIGNMENT);
    const table = Array.from({ length: tensors }, () => readInfo(cursor, this.version));
    const data = Math.ceil(cursor.at / this.alignment) * this.alignment;
    this.#infos = place(cursor, table, data, this.alignment);
  }

  /** Opens a file by its path, or bytes in memory. */
  static open(from: string | Uint8Array): Gguf {
    return opening(from, (source) => new Gguf(source));
  }

  /** Names of all tensors, in the file's order. */
  get names(): string[] {
    return [...this.#infos.keys()];
  }

  /** Whether there is a tensor of this name. */
  has(name: string): boolean {
    return this.#infos.has(name);
  }

  /** A metadata value by key: number, bigint beyond 2^53, boolean, string or array; undefined where there is none. */
  get(key: string): GgufScalar | undefined {
    return this.metadata.get(key)?.value;
  }

  /** Type, shape and place of a tensor; one that is not there is refused. */
  info(name: string): GgufTensorInfo {
    const info = this.#infos.get(name);
    if (info) return info;
    throw new ArgumentError(`Gguf: no tensor ${JSON.stringify(name)} in ${this.#source.name}`);
  }

  /** The tensor's bytes as they are in the file, quantized or not; all, or a range. */
  raw(name: string, start = 0, end?: number): Uint8Array {
    const info = this.info(name);
    const to = end ?? info.bytes;
    checkRange(`${this.#source.name}: ${name}`, start, to, info.bytes);
    return readBytes(this.#source, info.start + start, to - start);
  }

  /** A tensor of plain numbers; quantized ones are read with raw() or dequantize(). */
  record(name: string, options: ReadOptions = {}): TensorRecord {
    const { type, shape } = this.info(name);
    const where = `${this.#source.name}: ${name}`;
    if (!type.plain)
      throw new DTypeError(
        `${where}: is quantized as ${type.name}; dequantize("${name}") gives f32, raw("${name}") its blocks`,
      );
    return storedRecord(where, name, type.plain, shape, options, (start, end) => this.raw(name, start, end));
  }

  /** A quantized tensor's blocks as bytes: its shape, but for rows of bytes instead of values. */
  blocks(name: string): TensorRecord {
    const { type, shape, bytes } = this.info(name);
    const row = ((shape.at(-1) ?? 1) / type.block) * type.bytes;
    const read = (start = 0, end = bytes): Uint8Array => this.raw(name, start, end);
    return { name, dtype: 'u8', shape: [...shape.slice(0, -1), row], byteLength: bytes, read };
  }

  /** A quantized tensor as an f32 record, decoded block by block as it is read; plain ones as they are. */
  dequantize(name: string, options: ReadOptions = {}): TensorRecord {
    const { type, shape } = this.info(name);
    if (type.plain) return this.record(name, options);
    const where = `${this.#source.name}: ${name}`;
    const byteLength = sizeOf(shape) * 4;
    const wide = type.block * 4;
    return {
      name,
      dtype: 'f32',
      shape,
      byteLength,
      read: (start = 0, end = byteLength) => {
        checkRange(where, start, end, byteLength);
        const first = Math.floor(start / wide);
        const blocks = this.raw(name, first * type.bytes, Math.ceil(end / wide) * type.bytes);
        const values = dequantize(type, blocks);
        return new Uint8Array(values.buffer).subarray(start - first * wide, end - first * wide);
      },
    };
  }

  /** Closes the file. */
  close(): void {
    this.#source.close();
  }

  [Symbol.dispose](): void {
    this.close();
  }
}

function readVersion(cursor: Cursor): number {
  if (cursor.u32('magic') !== GGUF_MAGIC) throw cursor.fail('magic: must be "GGUF"', 0);
  const version = cursor.u32('version');
  if (version >= 1 && version <= 3) return version;
  // A big-endian file shows its version in the upper byte.
  throw cursor.fail(
    version & 0xffff ? `version ${version} is not known (1, 2 and 3 are)` : 'big-endian files are not read',
    4,
  );
}

/** A count that the rest of the file can hold, `least` bytes each. */
function readCount(cursor: Cursor, version: number, what: string, least: number): number {
  const at = cursor.at;
  const n = version === 1 ? BigInt(cursor.u32(what)) : cursor.u64(what);
  const room = Math.floor(cursor.left / least);
  if (n > BigInt(room)) throw cursor.fail(`${what} is ${n}, the rest of the file has room for ${room}`, at);
  return Number(n);
}

/** A text whose length the format bounds. */
function readName(cursor: Cursor, version: number, what: string, shortest: number, longest: number): string {
  const at = cursor.at;
  const length = readCount(cursor, version, `length of ${what}`, 1);
  if (length < shortest || length > longest)
    throw cursor.fail(`${what} has ${length} bytes, the format allows ${shortest} to ${longest}`, at);
  return cursor.text(length, what);
}

function readMetadata(cursor: Cursor, entries: number, version: number): Map<string, GgufValue> {
  const out = new Map<string, GgufValue>();
  const length = (what: string, least: number) => readCount(cursor, version, what, least);
  for (let i = 0; i < entries; i++) {
    const at = cursor.at;
    cursor.pay(ENTRY, 10);
    const key = readName(cursor, version, `key ${i}`, 1, MAX_KEY_BYTES);
    if (out.has(key)) throw cursor.fail(`metadata key ${JSON.stringify(key)} is there twice`, at);
    const value = readGgufValue(cursor, key, length);
    if (key === ALIGNMENT_KEY) checkAlignment(cursor, at, value);
    out.set(key, value);
  }
  return out;
}

function checkAlignment(cursor: Cursor, at: number, { type, value: n }: GgufValue): void {
  if (type !== 'u32') throw cursor.fail(`${ALIGNMENT_KEY} must be a u32, here it is of type ${type}`, at);
  if (typeof n === 'number' && n >= 1 && n <= MAX_ALIGNMENT && Number.isInteger(Math.log2(n))) return;
  throw cursor.fail(`${ALIGNMENT_KEY} ${String(n)} is not a power of two up to ${MAX_ALIGNMENT}`, at);
}

interface Entry {
  name: string;
  type: GgmlType;
  shape: number[];
  offset: number;
  bytes: number;
  at: number;
}

function readInfo(cursor: Cursor, version: number): Entry {
  const at = cursor.at;
  cursor.pay(ENTRY, 10);
  const name = readName(cursor, version, 'tensor name', 0, MAX_NAME_BYTES);
  const bad = (rule: string) => cursor.fail(`tensor ${JSON.stringify(name)}: ${rule}`, at);
  const rank = cursor.u32('rank');
  if (rank > MAX_GGUF_RANK) throw bad(`rank ${rank} is beyond ${MAX_GGUF_RANK}`);
  const dims = Array.from({ length: rank }, () => (version === 1 ? cursor.u32('dimension') : cursor.size('dimension')));
  const id = cursor.u32('type');
  const offset = cursor.size('offset');
  const type = ggmlTypeById(id);
  if (!type) throw bad(`type ${id} is not known`);
  if ((dims[0] ?? 1) % type.block)
    throw bad(`rows of ${dims[0] ?? 1} elements are not whole blocks of ${type.name}, which have ${type.block}`);
  // Without the zeros first: they must not hide dimensions that overflow.
  const most = dims.reduce((n, d) => n * BigInt(d || 1), 1n);
  if (most > MAX_ELEMENTS) throw bad(`shape [${dims.join(', ')}] has more elements than a 64-bit number counts`);
  const elements = dims.includes(0) ? 0n : most;
  const bytes = (elements / BigInt(type.block)) * BigInt(type.bytes);
  if (bytes > BigInt(cursor.source.size))
    throw bad(`${type.name} of shape [${dims.join(', ')}] takes ${bytes} bytes, more than the file has`);
  return { name, type, shape: dims.reverse(), offset, bytes: Number(bytes), at };
}

/** Checks that tensors lie aligned inside the file, apart from one another, and gives them their places. */
function place(cursor: Cursor, table: readonly Entry[], data: number, alignment: number): Map<string, GgufTensorInfo> {
  const out = new Map<string, GgufTensorInfo>();
  for (const { name, type, shape, offset, bytes, at } of table) {
    const bad = (rule: string) => cursor.fail(`tensor ${JSON.stringify(name)}: ${rule}`, at);
    if (out.has(name)) throw bad('is there twice');
    if (offset % alignment) throw bad(`offset ${offset} is not a multiple of ${alignment}`);
    if (data + offset + bytes > cursor.source.size)
      throw bad(`bytes ${data + offset} to ${data + offset + bytes} leave the file of ${cursor.source.size}`);
    out.set(name, { name, type, shape, start: data + offset, bytes });
  }
  let free = data;
  for (const t of [...out.values()].filter((i) => i.bytes > 0).sort((a, b) => a.start - b.start)) {
    if (t.start < free) throw cursor.fail(`tensor ${JSON.stringify(t.name)} overlaps another`, t.start);
    free = t.start + t.bytes;
  }
  return out;
}

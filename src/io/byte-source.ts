// Random access to bytes, on disk or in memory, and a cursor that parses them with every length checked first.
import { closeSync, constants, fstatSync, openSync, readSync, statSync, type Stats } from 'node:fs';
import { ArgumentError, FormatError, OutOfMemoryError } from '../base/errors.js';
import { Budget } from './limits.js';

export interface ByteSource {
  /** What error messages call it: a path, or a path and a member of an archive. */
  readonly name: string;
  readonly size: number;
  /** Bytes that really take room, where that is less than the size: a sparse file's, a deflated member's. */
  readonly stored?: number;
  /** Fills target with the bytes from offset on; the range must lie inside the source. */
  readInto(offset: number, target: Uint8Array): void;
  close(): void;
}

// One readSync moves at most 2^31 - 1 bytes, so longer ranges go in slices.
const SLICE = 2 ** 30;
/** The longest Uint8Array of the oldest supported Node. */
const MAX_BYTES = 2 ** 32;

export const badFormat = (source: string, offset: number, message: string, cause?: unknown): FormatError =>
  new FormatError(`${source}: at byte ${offset}: ${message}`, cause === undefined ? undefined : { cause });

export function allocate(bytes: number, what: string): Uint8Array {
  if (bytes > MAX_BYTES) {
    throw new OutOfMemoryError(
      `${what}: ${bytes} bytes do not fit one Uint8Array (at most ${MAX_BYTES}); read it in slices`,
    );
  }
  try {
    return new Uint8Array(bytes);
  } catch (cause) {
    throw new OutOfMemoryError(`${what}: no memory for ${bytes} bytes`, { cause });
  }
}

export function readBytes(source: ByteSource, offset: number, length: number): Uint8Array {
  if (offset < 0 || length < 0 || offset + length > source.size) {
    throw badFormat(source.name, offset, `${length} bytes wanted, the data ends at byte ${source.size}`);
  }
  const out = allocate(length, source.name);
  source.readInto(offset, out);
  return out;
}

// A source dropped without close() must not keep its descriptor.
const forgotten = new FinalizationRegistry<{ fd: number }>((held) => release(held));

function release(held: { fd: number }): void {
  if (held.fd < 0) return;
  closeSync(held.fd);
  held.fd = -1;
}

const cannotOpen = (path: string, cause: unknown): FormatError =>
  new FormatError(`${path}: cannot be opened: ${(cause as Error).message.split(', ')[0]}`, { cause });

/** What lies at a path, undefined where nothing does; a path that cannot be followed is a FormatError. */
export function pathKind(path: string): Stats | undefined {
  try {
    return statSync(path, { throwIfNoEntry: false });
  } catch (cause) {
    throw cannotOpen(path, cause);
  }
}

class FileSource implements ByteSource {
  readonly name: string;
  readonly size: number;
  readonly stored: number;
  readonly #held: { fd: number };

  constructor(path: string) {
    this.name = path;
    // A pipe would wait for a writer and a device may act on being opened: both are refused before that.
    const before = pathKind(path);
    if (before && !before.isFile()) throw new FormatError(`${path}: is not a regular file`);
    try {
      this.#held = { fd: openSync(path, constants.O_RDONLY | (constants.O_NONBLOCK ?? 0)) };
    } catch (cause) {
      throw cannotOpen(path, cause);
    }
    const stat = fstatSync(this.#held.fd);
    if (!stat.isFile()) {
      release(this.#held);
      throw new FormatError(`${path}: is not a regular file`);
    }
    this.size = stat.size;
    // Some file systems count no blocks at all.
    this.stored = stat.blocks > 0 ? Math.min(stat.size, stat.blocks * 512) : stat.size;
    forgotten.register(this, this.#held, this);
  }

  readInto(offset: number, target: Uint8Array): void {
    if (this.#held.fd < 0) throw new ArgumentError(`${this.name}: read after close()`);
    for (let done = 0; done < target.length; ) {
      const n = this.#readSome(target, done, offset + done);
      if (n === 0) throw badFormat(this.name, offset + done, `the file ends here, ${target.length - done} bytes short`);
      done += n;
    }
  }

  #readSome(target: Uint8Array, at: number, offset: number): number {
    try {
      return readSync(this.#held.fd, target, at, Math.min(SLICE, target.length - at), offset);
    } catch (cause) {
      throw badFormat(this.name, offset, `cannot be read: ${(cause as Error).message}`, cause);
    }
  }

  close(): void {
    forgotten.unregister(this);
    release(this.#held);
  }
}

export class MemorySource implements ByteSource {
  readonly name: string;
  readonly bytes: Uint8Array;
  readonly stored: number;

  constructor(bytes: Uint8Array, name = 'buffer', stored = bytes.length) {
    this.bytes = bytes;
    this.name = name;
    this.stored = stored;
  }

  get size(): number {
    return this.bytes.length;
  }

  readInto(offset: number, target: Uint8Array): void {
    if (offset + target.length > this.size) {
      throw badFormat(this.name, offset, `${target.length} bytes wanted, the data ends at byte ${this.size}`);
    }
    target.set(this.bytes.subarray(offset, offset + target.length));
  }

  close(): void {}
}

/** A part of another source under its own name; offsets in it start at 0. */
export function windowOf(source: ByteSource, name: string, start: number, size: number): ByteSource {
  if (start < 0 || size < 0 || start + size > source.size) {
    throw badFormat(source.name, start, `${name} is said to take ${size} bytes, the file ends at byte ${source.size}`);
  }
  return {
    name,
    size,
    stored: Math.min(size, source.stored ?? source.size),
    close: () => {},
    readInto(offset, target) {
      if (offset + target.length > size)
        throw badFormat(name, offset, `${target.length} bytes wanted, ${size - offset} are there`);
      source.readInto(start + offset, target);
    },
  };
}

/** What can be opened: a path, bytes in memory, or a source of one's own. */
export type From = string | Uint8Array | ByteSource;

export function openSource(from: From): ByteSource {
  if (typeof from === 'string') return new FileSource(from);
  if (from instanceof Uint8Array) return new MemorySource(from);
  if (typeof (from as Partial<ByteSource> | null | undefined)?.readInto === 'function') return from;
  throw new ArgumentError(
    `a file is given by its path, its bytes or a source of bytes, not by ${from === null ? 'null' : typeof from}`,
  );
}

/** Opens, reads, and closes what was opened here if reading fails. */
export function opening<T>(from: From, read: (source: ByteSource) => T): T {
  const source = openSource(from);
  try {
    return read(source);
  } catch (error) {
    if (source !== from) source.close();
    throw error;
  }
}

/** A small text file as a whole: an index, a configuration. */
export function readText(path: string, most: number): string {
  const source = new FileSource(path);
  try {
    if (source.size > most) throw badFormat(path, most, `goes on beyond the ${most} bytes that are read`);
    new Budget(path, source.stored).memory(source.size, 0);
    return decodeUtf8(readBytes(source, 0, source.size), path, 0, 'text');
  } finally {
    source.close();
  }
}

const utf8 = new TextDecoder('utf-8', { fatal: true, ignoreBOM: true });
/** Bytes as text; what is no UTF-8 is refused, since two different names could become one. */
function decodeUtf8(bytes: Uint8Array, source: string, at: number, what: string): string {
  try {
    return utf8.decode(bytes);
  } catch (cause) {
    throw badFormat(source, at, `${what}: is no UTF-8 text`, cause);
  }
}

const WINDOW = 1 << 16;

/** Reads little-endian fields one after another; every error says the byte where the field began. */
export class Cursor {
  readonly source: ByteSource;
  /** What reading from here on may cost; cursors over parts of one file share it. */
  readonly budget: Budget;
  at: number;
  #view: DataView = new DataView(new ArrayBuffer(0));
  #start = 0;

  constructor(source: ByteSource, at = 0, budget = new Budget(source.name, source.stored ?? source.size)) {
    this.source = source;
    this.at = at;
    this.budget = budget;
  }

  get left(): number {
    return this.source.size - this.at;
  }

  fail(message: string, at = this.at): FormatError {
    return badFormat(this.source.name, at, message);
  }

  need(bytes: number, what: string): void {
    if (bytes > this.left) throw this.fail(`${what} needs ${bytes} bytes, ${Math.max(0, this.left)} are left`);
  }

  /** A view whose byte 0 is the next field of the given small size. */
  #field(bytes: number, what: string): number {
    this.need(bytes, what);
    if (this.at < this.#start || this.at + bytes > this.#start + this.#view.byteLength) {
      const window = readBytes(this.source, this.at, Math.min(WINDOW, this.left));
      this.#view = new DataView(window.buffer);
      this.#start = this.at;
    }
    const local = this.at - this.#start;
    this.at += bytes;
    return local;
  }

  u8(what = 'a byte'): number {
    const at = this.#field(1, what);
    return this.#view.getUint8(at);
  }

  u16(what = 'a 16-bit number'): number {
    const at = this.#field(2, what);
    return this.#view.getUint16(at, true);
  }

  u32(what = 'a 32-bit number'): number {
    const at = this.#field(4, what);
    return this.#view.getUint32(at, true);
  }

  i32(what = 'a 32-bit number'): number {
    return this.u32(what) | 0;
  }

  u64(what = 'a 64-bit number'): bigint {
    const at = this.#field(8, what);
    return this.#view.getBigUint64(at, true);
  }

  f64(what = 'a double', littleEndian = true): number {
    const at = this.#field(8, what);
    return this.#view.getFloat64(at, littleEndian);
  }

  /** A 64-bit length or count that must be at most `limit`. */
  size(what: string, limit = Number.MAX_SAFE_INTEGER): number {
    const at = this.at;
    const value = this.u64(what);
    if (value > BigInt(limit)) throw this.fail(`${what} is ${value}, at most ${limit} can be`, at);
    return Number(value);
  }

  /** Pays for objects that what was read here takes. */
  pay(bytes: number, steps = 1): void {
    this.budget.memory(bytes, this.at, this.source.name);
    this.budget.work(steps, this.at, this.source.name);
  }

  text(length: number, what: string): string {
    const at = this.at;
    this.pay(2 * length + 32);
    return decodeUtf8(this.bytes(length, what), this.source.name, at, what);
  }

  /** The next bytes in memory of their own. */
  bytes(length: number, what = 'bytes'): Uint8Array {
    this.need(length, what);
    this.pay(length);
    if (length <= 256) {
      const at = this.#field(length, what);
      return new Uint8Array(this.#view.buffer, at, length).slice();
    }
    const out = readBytes(this.source, this.at, length);
    this.at += length;
    return out;
  }
}

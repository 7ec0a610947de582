// Random access to bytes, on disk or in memory, and a cursor that parses them with every length checked first.
import { closeSync, fstatSync, openSync, readSync } from 'node:fs';
import { ArgumentError, FormatError, OutOfMemoryError } from '../base/errors.js';

export interface ByteSource {
  /** What error messages call it: a path, or a path and a member of an archive. */
  readonly name: string;
  readonly size: number;
  /** Fills target with the bytes from offset on; the range must lie inside the source. */
  readInto(offset: number, target: Uint8Array): void;
  close(): void;
}

// One readSync moves at most 2^31 - 1 bytes, so longer ranges go in slices.
const SLICE = 2 ** 30;
/** The longest Uint8Array of the oldest supported Node. */
export const MAX_BYTES = 2 ** 32;

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

export class FileSource implements ByteSource {
  readonly name: string;
  readonly size: number;
  readonly #held: { fd: number };

  constructor(path: string) {
    this.name = path;
    try {
      this.#held = { fd: openSync(path, 'r') };
    } catch (cause) {
      throw new FormatError(`${path}: cannot be opened: ${(cause as Error).message}`, { cause });
    }
    const stat = fstatSync(this.#held.fd);
    if (!stat.isFile()) {
      release(this.#held);
      throw new FormatError(`${path}: is not a regular file`);
    }
    this.size = stat.size;
    forgotten.register(this, this.#held, this);
  }

  readInto(offset: number, target: Uint8Array): void {
    if (this.#held.fd < 0) throw new ArgumentError(`${this.name}: read after close()`);
    for (let done = 0; done < target.length; ) {
      const n = readSync(this.#held.fd, target, done, Math.min(SLICE, target.length - done), offset + done);
      if (n === 0) throw badFormat(this.name, offset + done, `the file ends here, ${target.length - done} bytes short`);
      done += n;
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

  constructor(bytes: Uint8Array, name = 'buffer') {
    this.bytes = bytes;
    this.name = name;
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

export const openSource = (from: From): ByteSource =>
  typeof from === 'string' ? new FileSource(from) : from instanceof Uint8Array ? new MemorySource(from) : from;

const WINDOW = 1 << 16;

/** Reads little-endian fields one after another; every error says the byte where the field began. */
export class Cursor {
  readonly source: ByteSource;
  at: number;
  #view: DataView = new DataView(new ArrayBuffer(0));
  #start = 0;

  constructor(source: ByteSource, at = 0) {
    this.source = source;
    this.at = at;
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

  bytes(length: number, what = 'bytes'): Uint8Array {
    this.need(length, what);
    if (length <= 256) {
      const at = this.#field(length, what);
      return new Uint8Array(this.#view.buffer, at, length).slice();
    }
    const out = readBytes(this.source, this.at, length);
    this.at += length;
    return out;
  }
}

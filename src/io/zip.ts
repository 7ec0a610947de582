// Zip archives: a strict reader (stored and deflated members, zip64, checksums, no bombs) and a writer.
import { crc32, deflateRawSync, inflateRawSync } from 'node:zlib';
import { ArgumentError, UnsupportedError } from '../base/errors.js';
import type { Write } from './atomic-file.js';
import { Cursor, MemorySource, badFormat, readBytes, windowOf, type ByteSource } from './byte-source.js';
import { Budget, MAX_ENTRIES, MAX_GROWTH, checkGrowth } from './limits.js';

const LOCAL = 0x04034b50;
const CENTRAL = 0x02014b50;
const END = 0x06054b50;
const END64 = 0x06064b50;
const LOCATOR64 = 0x07064b50;
const STORED = 0;
const DEFLATED = 8;
const MAX32 = 0xffffffff;
/** Longest output of one synchronous inflate on the oldest supported Node. */
const MAX_INFLATE = 2 ** 32 - 1;
const CRC_SLICE = 2 ** 26;

export interface ZipEntry {
  readonly name: string;
  readonly method: number;
  readonly crc: number;
  /** Bytes in the archive and bytes of the member. */
  readonly packed: number;
  readonly size: number;
  readonly headerAt: number;
}

export interface ZipOptions {
  /** Most bytes of inflated members for a byte of file. */
  maxGrowth?: number;
  /** What opening may cost; shared with whoever reads the members. */
  budget?: Budget;
}

export class ZipFile {
  readonly entries: ReadonlyMap<string, ZipEntry>;
  readonly #source: ByteSource;
  readonly #maxGrowth: number;
  readonly #budget: Budget;
  readonly #opened = new Map<string, ByteSource>();

  constructor(source: ByteSource, options: ZipOptions = {}) {
    this.#source = source;
    this.#maxGrowth = options.maxGrowth ?? MAX_GROWTH;
    this.#budget = options.budget ?? new Budget(source.name, source.stored ?? source.size);
    this.entries = readDirectory(source, this.#maxGrowth, this.#budget);
  }

  /** A member's content, its checksum verified; stored members stay on disk, deflated ones are inflated once. */
  open(name: string): ByteSource {
    const ready = this.#opened.get(name);
    if (ready) return ready;
    const entry = this.entries.get(name);
    if (!entry) throw new ArgumentError(`${this.#source.name}: no member ${JSON.stringify(name)} in the archive`);
    const packed = this.#packed(entry);
    this.#budget.scan(entry.packed + entry.size, entry.headerAt);
    const content =
      entry.method === STORED
        ? packed
        : new MemorySource(inflate(entry, packed, this.#maxGrowth), packed.name, packed.stored);
    verify(entry, content);
    this.#opened.set(name, content);
    return content;
  }

  #packed(entry: ZipEntry): ByteSource {
    const cursor = new Cursor(this.#source, entry.headerAt, this.#budget);
    if (cursor.u32('local header') !== LOCAL) throw cursor.fail(`${entry.name}: no local header here`, entry.headerAt);
    cursor.bytes(22, 'local header');
    const names = cursor.u16() + cursor.u16();
    return windowOf(this.#source, `${this.#source.name}: ${entry.name}`, cursor.at + names, entry.packed);
  }
}

function inflate(entry: ZipEntry, packed: ByteSource, maxGrowth: number): Uint8Array {
  checkGrowth(packed.name, entry.size, packed.stored ?? entry.packed, maxGrowth);
  if (entry.size > MAX_INFLATE)
    throw new UnsupportedError(`${packed.name}: deflated members over ${MAX_INFLATE} bytes cannot be read`);
  try {
    // The stated size bounds the output: a stream that goes on is an error, never more memory.
    const out = inflateRawSync(readBytes(packed, 0, packed.size), { maxOutputLength: Math.max(1, entry.size) });
    if (out.length === entry.size) return new Uint8Array(out.buffer, out.byteOffset, out.length);
    throw badFormat(packed.name, 0, `inflates to ${out.length} bytes, the directory says ${entry.size}`);
  } catch (cause) {
    if (cause instanceof Error && cause.name === 'FormatError') throw cause;
    throw badFormat(packed.name, 0, `cannot be inflated to ${entry.size} bytes: ${(cause as Error).message}`, cause);
  }
}

function verify(entry: ZipEntry, content: ByteSource): void {
  let crc = 0;
  for (let at = 0; at < content.size; at += CRC_SLICE) {
    crc = crc32(readBytes(content, at, Math.min(CRC_SLICE, content.size - at)), crc);
  }
  if (crc >>> 0 !== entry.crc) {
    throw badFormat(content.name, 0, `checksum is ${hex(crc >>> 0)}, the directory says ${hex(entry.crc)}`);
  }
}

const hex = (x: number): string => x.toString(16).padStart(8, '0');

/** Bytes that a member's entry takes. */
const ENTRY = 400;

function readDirectory(source: ByteSource, maxGrowth: number, budget: Budget): Map<string, ZipEntry> {
  const { at, size, count, end } = findDirectory(source);
  if (at + size > end)
    throw badFormat(
      source.name,
      end,
      `the directory of ${size} bytes at byte ${at} does not end before its end record`,
    );
  // A directory record has 46 bytes at least.
  if (count * 46 > size) throw badFormat(source.name, end, `${count} members do not fit a directory of ${size} bytes`);
  if (count > MAX_ENTRIES) throw badFormat(source.name, end, `${count} members, at most ${MAX_ENTRIES} are read`);
  const entries = new Map<string, ZipEntry>();
  const cursor = new Cursor(windowOf(source, source.name, 0, at + size), at, budget);
  for (let i = 0; i < count; i++) {
    cursor.pay(ENTRY, 10);
    const entry = readEntry(cursor);
    if (entries.has(entry.name)) throw cursor.fail(`member ${JSON.stringify(entry.name)} is listed twice`);
    entries.set(entry.name, entry);
  }
  let free = 0;
  for (const e of [...entries.values()].sort((a, b) => a.headerAt - b.headerAt)) {
    // Overlapping members are how small archives unpack to huge ones.
    if (e.headerAt < free)
      throw badFormat(source.name, e.headerAt, `member ${JSON.stringify(e.name)} overlaps another`);
    free = e.headerAt + 30 + e.packed;
    if (free > at)
      throw badFormat(
        source.name,
        e.headerAt,
        `member ${JSON.stringify(e.name)} of ${e.packed} bytes runs into the directory`,
      );
  }
  // Inflated members stay in memory, so their sum counts as well as each.
  const inflated = [...entries.values()].reduce((n, e) => n + (e.method === STORED ? 0 : e.size), 0);
  checkGrowth(source.name, inflated, source.stored ?? source.size, maxGrowth, at);
  return entries;
}

function findDirectory(source: ByteSource): { at: number; size: number; count: number; end: number } {
  const tailAt = Math.max(0, source.size - 65557);
  const tail = readBytes(source, tailAt, source.size - tailAt);
  let i = tail.length - 22;
  while (i >= 0 && !(tail[i] === 0x50 && tail[i + 1] === 0x4b && tail[i + 2] === 5 && tail[i + 3] === 6)) i--;
  if (i < 0) throw badFormat(source.name, source.size, 'the archive has no end record: it is cut short or no zip file');
  const end = tailAt + i;
  const cursor = new Cursor(source, end);
  if (cursor.u32() !== END) throw cursor.fail('no end record', end);
  const disks = [cursor.u16(), cursor.u16()];
  const counts = [cursor.u16(), cursor.u16()];
  const size = cursor.u32();
  const at = cursor.u32();
  const is64 = counts[1] === 0xffff || size === MAX32 || at === MAX32;
  if (is64 && end >= 20) {
    const locator = new Cursor(source, end - 20);
    if (locator.u32() === LOCATOR64) {
      locator.u32();
      return readEnd64(new Cursor(source, locator.size('zip64 end record', end)));
    }
  }
  if (disks.some((d) => d !== 0) || counts[0] !== counts[1])
    throw badFormat(source.name, end, 'archives in several parts are not read');
  return { at, size, count: counts[1], end };
}

function readEnd64(cursor: Cursor): { at: number; size: number; count: number; end: number } {
  const end = cursor.at;
  if (cursor.u32() !== END64) throw cursor.fail('no zip64 end record here', end);
  cursor.bytes(20);
  cursor.u64();
  const limit = cursor.source.size;
  const count = cursor.size('number of members', limit);
  const size = cursor.size('size of the directory', limit);
  return { count, size, at: cursor.size('place of the directory', limit), end };
}

function readEntry(cursor: Cursor): ZipEntry {
  const start = cursor.at;
  if (cursor.u32('directory record') !== CENTRAL) throw cursor.fail('no directory record here', start);
  cursor.u32();
  const flags = cursor.u16();
  const method = cursor.u16();
  cursor.u32();
  const crc = cursor.u32();
  const fields = [cursor.u32(), cursor.u32()];
  const [nameLength, extraLength, commentLength] = [cursor.u16(), cursor.u16(), cursor.u16()];
  cursor.bytes(8);
  fields.push(cursor.u32());
  const name = new TextDecoder().decode(cursor.bytes(nameLength, 'member name'));
  const extra = new Cursor(
    new MemorySource(cursor.bytes(extraLength, 'extra fields'), `${cursor.source.name}: extra fields of ${name}`),
  );
  cursor.bytes(commentLength, 'comment');
  const [packed, size, headerAt] = wideFields(fields, extra);
  const bad = (rule: string) => cursor.fail(`member ${JSON.stringify(name)}: ${rule}`, start);
  if (flags & 1) throw bad('is encrypted');
  if (method !== STORED && method !== DEFLATED)
    throw bad(`compression method ${method} is not read, only stored and deflated`);
  if (method === STORED && packed !== size) throw bad(`is stored, but ${packed} bytes are to be ${size}`);
  return { name, method, crc, packed, size, headerAt };
}

/** packed, size and place, taken from the zip64 extra field where the short field overflows. */
function wideFields([packed, size, headerAt]: readonly number[], extra: Cursor): number[] {
  const out = [packed, size, headerAt];
  while (extra.left >= 4) {
    const id = extra.u16();
    const next = extra.at + 2 + extra.u16();
    // The field's own order is size, packed, place.
    if (id === 1) for (const k of [1, 0, 2]) if (out[k] === MAX32) out[k] = extra.size('zip64 field');
    extra.at = next;
  }
  return out;
}

export interface ZipMember {
  readonly name: string;
  readonly size: number;
  readonly slices: () => Iterable<Uint8Array>;
  /** Its content begins at a multiple of so many bytes, by a field in front of it that means nothing. */
  readonly align?: number;
}

interface Written {
  name: Buffer;
  method: number;
  crc: number;
  packed: number;
  size: number;
  at: number;
  align: number;
}

/**
 * Writes members one after another; deflated ones are packed in memory, stored ones streamed twice (checksum, bytes).
 */
export function writeZip(members: Iterable<ZipMember>, deflate: boolean, write: Write): void {
  let at = 0;
  const put = (bytes: Uint8Array) => {
    write(bytes);
    at += bytes.length;
  };
  const done: Written[] = [];
  for (const member of members) {
    const name = Buffer.from(member.name);
    let crc = 0;
    for (const part of member.slices()) crc = crc32(part, crc);
    const body = deflate ? deflateRawSync(Buffer.concat([...member.slices()])) : undefined;
    const w = {
      name,
      method: deflate ? DEFLATED : STORED,
      crc: crc >>> 0,
      packed: body?.length ?? member.size,
      size: member.size,
      at,
      align: member.align ?? 1,
    };
    put(localHeader(w));
    if (body) put(body);
    else for (const part of member.slices()) put(part);
    done.push(w);
  }
  const directory = at;
  for (const w of done) put(centralRecord(w));
  put(endRecords(done.length, directory, at - directory));
}

const UTF8 = 1 << 11;
const DATE = 0x21; // 1 January 1980, so that equal content gives equal files

function record(parts: readonly (readonly [bytes: number, value: number])[]): Buffer {
  const out = Buffer.alloc(parts.reduce((n, [bytes]) => n + bytes, 0));
  let at = 0;
  for (const [bytes, value] of parts) {
    if (bytes === 8) out.writeBigUInt64LE(BigInt(value), at);
    else out.writeUIntLE(value, at, bytes);
    at += bytes;
  }
  return out;
}

const clip = (x: number): number => Math.min(x, MAX32);

/** A field of no meaning (PyTorch's number for it) after which a multiple of `align` begins. */
function padding(at: number, align: number): Buffer {
  if (at % align === 0) return Buffer.alloc(0);
  const zeros = (align - ((at + 4) % align)) % align;
  return Buffer.concat([
    record([
      [2, 0x4246],
      [2, zeros],
    ]),
    Buffer.alloc(zeros),
  ]);
}

function localHeader(w: Written): Buffer {
  const wide = w.size >= MAX32 || w.packed >= MAX32;
  const sizesField = wide
    ? record([
        [2, 1],
        [2, 16],
        [8, w.size],
        [8, w.packed],
      ])
    : Buffer.alloc(0);
  const extra = Buffer.concat([sizesField, padding(w.at + 30 + w.name.length + sizesField.length, w.align)]);
  const sizes = wide ? [MAX32, MAX32] : [w.packed, w.size];
  return Buffer.concat([
    record([
      [4, LOCAL],
      [2, wide ? 45 : 20],
      [2, UTF8],
      [2, w.method],
      [2, 0],
      [2, DATE],
      [4, w.crc],
      [4, sizes[0]],
      [4, sizes[1]],
      [2, w.name.length],
      [2, extra.length],
    ]),
    w.name,
    extra,
  ]);
}

function centralRecord(w: Written): Buffer {
  const wide = [w.size, w.packed, w.at].filter((x) => x >= MAX32);
  const extra = wide.length
    ? record([[2, 1], [2, wide.length * 8], ...wide.map((x) => [8, x] as const)])
    : Buffer.alloc(0);
  const version = wide.length ? 45 : 20;
  return Buffer.concat([
    record([
      [4, CENTRAL],
      [2, version],
      [2, version],
      [2, UTF8],
      [2, w.method],
      [2, 0],
      [2, DATE],
      [4, w.crc],
      [4, clip(w.packed)],
      [4, clip(w.size)],
      [2, w.name.length],
      [2, extra.length],
      [2, 0],
      [2, 0],
      [2, 0],
      [4, 0],
      [4, clip(w.at)],
    ]),
    w.name,
    extra,
  ]);
}

function endRecords(count: number, at: number, size: number): Buffer {
  const short = record([
    [4, END],
    [2, 0],
    [2, 0],
    [2, Math.min(count, 0xffff)],
    [2, Math.min(count, 0xffff)],
    [4, clip(size)],
    [4, clip(at)],
    [2, 0],
  ]);
  if (count < 0xffff && at < MAX32 && size < MAX32) return short;
  const wide = record([
    [4, END64],
    [8, 44],
    [2, 45],
    [2, 45],
    [4, 0],
    [4, 0],
    [8, count],
    [8, count],
    [8, size],
    [8, at],
  ]);
  return Buffer.concat([
    wide,
    record([
      [4, LOCATOR64],
      [4, 0],
      [8, at + size],
      [4, 1],
    ]),
    short,
  ]);
}

// safetensors files: headers checked to the last byte, tensors read by range, shards joined, files written atomically.
import { existsSync, readdirSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { ArgumentError, FormatError } from '../base/errors.js';
import { bytesOf } from '../base/dtype.js';
import type { Shape } from '../base/shape.js';
import { collect, writeAtomic, type Write } from './atomic-file.js';
import { Cursor, badFormat, openSource, pathKind, readBytes, type ByteSource, type From } from './byte-source.js';
import { MAX_RANK } from './limits.js';
import { readIndex } from './shard-index.js';
import { headerCount, headerText, parseHeaderJson, type Header, type HeaderValue } from './safetensors-header.js';
import {
  slices,
  storedBytes,
  storedRecord,
  type ReadOptions,
  type StoredDType,
  type TensorRecord,
} from './stored-dtype.js';

const NAMES: Record<string, StoredDType> = {
  U8: 'u8',
  U32: 'u32',
  I16: 'i16',
  I32: 'i32',
  I64: 'i64',
  F8_E4M3: 'f8e4m3',
  BF16: 'bf16',
  F16: 'f16',
  F32: 'f32',
  F64: 'f64',
  BOOL: 'bool',
  I8: 'i8',
  U16: 'u16',
  U64: 'u64',
  F8_E5M2: 'f8e5m2',
  F8_E8M0: 'f8e8m0',
  F8_E4M3FNUZ: 'f8e4m3fnuz',
  F8_E5M2FNUZ: 'f8e5m2fnuz',
  F4: 'f4',
  F6_E2M3: 'f6e2m3',
  F6_E3M2: 'f6e3m2',
  C64: 'c64',
};
const NAME_OF = new Map(Object.entries(NAMES).map(([name, stored]) => [stored, name]));
/** The format's own limit on headers. */
const MAX_HEADER = 100_000_000;
/** Bytes that a tensor's description takes in memory. */
const ENTRY = 400;
/** The file that says which shard of a folder holds which tensor. */
const INDEX = 'model.safetensors.index.json';

/** What the file says about a tensor. */
export interface SafeTensorInfo {
  /** The type by our name; foreign ones are kept as they are. */
  readonly dtype: StoredDType;
  /** Its shape. */
  readonly shape: Shape;
  /** Where the bytes lie in the file. */
  readonly start: number;
  /** Where its bytes end. */
  readonly end: number;
  /** The file that holds it. */
  readonly source: ByteSource;
}

/** A safetensors file, or several that belong together: tensors are read when they are asked for. */
export class SafeTensors {
  /** The texts of `__metadata__`. */
  readonly metadata: ReadonlyMap<string, string>;
  readonly #infos: ReadonlyMap<string, SafeTensorInfo>;
  readonly #sources: readonly ByteSource[];

  private constructor(
    infos: ReadonlyMap<string, SafeTensorInfo>,
    metadata: ReadonlyMap<string, string>,
    sources: readonly ByteSource[],
  ) {
    this.#infos = infos;
    this.metadata = metadata;
    this.#sources = sources;
  }

  /** Opens a file, its bytes, a source of them, a shard index (`*.index.json`) or a directory with one of these. */
  static open(from: From): SafeTensors {
    if (typeof from !== 'string') return SafeTensors.#single(openSource(from));
    const path = pathKind(from)?.isDirectory() ? fileOf(from) : from;
    if (Array.isArray(path)) return SafeTensors.#together((open) => SafeTensors.#join(path.map(open)));
    if (path.endsWith('.json')) return SafeTensors.#sharded(path);
    return SafeTensors.#single(openSource(path));
  }

  static #single(source: ByteSource): SafeTensors {
    try {
      const { infos, metadata } = parseHeader(source);
      return new SafeTensors(infos, metadata, [source]);
    } catch (error) {
      source.close();
      throw error;
    }
  }

  static #join(files: readonly SafeTensors[]): SafeTensors {
    const all = new Map<string, SafeTensorInfo>();
    for (const file of files) {
      for (const [name, info] of file.#infos) {
        const other = all.get(name);
        if (other)
          throw new FormatError(`${info.source.name}: tensor ${JSON.stringify(name)} is also in ${other.source.name}`);
        all.set(name, info);
      }
    }
    return new SafeTensors(
      all,
      new Map(files.flatMap((f) => [...f.metadata])),
      files.flatMap((f) => f.#sources),
    );
  }

  static #sharded(path: string): SafeTensors {
    const index = readIndex(path, '.safetensors');
    return SafeTensors.#together((open) => {
      const shards = new Map<string, SafeTensors>();
      const infos = new Map<string, SafeTensorInfo>();
      const listed = new Set(index.map(([name]) => name));
      for (const [name, file] of index) {
        if (!shards.has(file)) shards.set(file, open(join(dirname(path), file)));
        const info = shards.get(file)!.#infos.get(name);
        if (!info) throw new FormatError(`${path}: weight_map: tensor ${JSON.stringify(name)} is not in ${file}`);
        infos.set(name, info);
      }
      const files = [...shards.values()];
      // What a shard holds beyond its index is a tensor of the model like any other; the index decides between equal
      // names.
      for (const [name, info] of files.flatMap((f) => [...f.#infos])) {
        const known = infos.get(name);
        if (known && known !== info && !listed.has(name))
          throw new FormatError(
            `${path}: tensor ${JSON.stringify(name)}, which weight_map does not name, is in ${known.source.name} and ` +
              `in ${info.source.name}`,
          );
        if (!known) infos.set(name, info);
      }
      return new SafeTensors(
        infos,
        new Map(files.flatMap((f) => [...f.metadata])),
        files.flatMap((f) => f.#sources),
      );
    });
  }

  /** Makes one of several files; where that fails, none stays open. */
  static #together(make: (open: (path: string) => SafeTensors) => SafeTensors): SafeTensors {
    const opened: SafeTensors[] = [];
    try {
      return make((path) => {
        const file = SafeTensors.#single(openSource(path));
        opened.push(file);
        return file;
      });
    } catch (error) {
      for (const file of opened) file.close();
      throw error;
    }
  }

  /** Names of all tensors. */
  get names(): string[] {
    return [...this.#infos.keys()];
  }

  /** Whether there is a tensor of this name. */
  has(name: string): boolean {
    return this.#infos.has(name);
  }

  /** Type, shape and place of a tensor; one that is not there is refused. */
  info(name: string): SafeTensorInfo {
    const info = this.#infos.get(name);
    if (info) return info;
    throw new ArgumentError(
      `SafeTensors: no tensor ${JSON.stringify(name)} in ${this.#sources.map((s) => s.name).join(', ')}`,
    );
  }

  /** A tensor's type, shape and bytes. */
  record(name: string, options: ReadOptions = {}): TensorRecord {
    const { dtype, shape, start, source } = this.info(name);
    return storedRecord(`${source.name}: ${name}`, name, dtype, shape, options, (from, to) =>
      readBytes(source, start + from, to - from),
    );
  }

  /** All tensors, as `record` gives them. */
  records(options: ReadOptions = {}): TensorRecord[] {
    return this.names.map((name) => this.record(name, options));
  }

  /** The tensor's bytes: row-major, little-endian. */
  read(name: string, options: ReadOptions = {}): Uint8Array {
    return this.record(name, options).read();
  }

  /** Closes the files. */
  close(): void {
    for (const source of this.#sources) source.close();
  }

  [Symbol.dispose](): void {
    this.close();
  }
}

/** What a model directory means: its index, else the one file, else every safetensors file in it. */
function fileOf(dir: string): string | string[] {
  for (const name of [INDEX, 'model.safetensors']) if (existsSync(join(dir, name))) return join(dir, name);
  const files = readdirSync(dir)
    .filter((f) => f.endsWith('.safetensors'))
    .sort();
  if (files.length === 0) throw new FormatError(`${dir}: holds no ${INDEX} and no *.safetensors file`);
  return files.map((f) => join(dir, f));
}

function parseHeader(source: ByteSource): { infos: Map<string, SafeTensorInfo>; metadata: Map<string, string> } {
  const cursor = new Cursor(source);
  const length = cursor.size('header length', Math.min(MAX_HEADER, Math.max(0, source.size - 8)));
  const { entries, placeOf } = parseHeaderJson(cursor.text(length, 'header'), 8, cursor);
  const data = 8 + length;
  const metadata = new Map<string, string>();
  const infos = new Map<string, SafeTensorInfo>();
  for (const [name, entry] of entries) {
    if (name === '__metadata__') {
      if (!('entries' in entry)) throw cursor.fail('header: __metadata__ must be an object of strings', placeOf(entry));
      for (const [key, value] of entry.entries) {
        if (!('text' in value))
          throw cursor.fail(`header: __metadata__: ${JSON.stringify(key)} must be a string`, placeOf(value));
        metadata.set(key, value.text);
      }
    } else {
      cursor.pay(ENTRY, 10);
      infos.set(name, parseEntry(source, name, entry, data, placeOf));
    }
  }
  checkTiling(source, infos, data);
  return { infos, metadata };
}

function parseEntry(
  source: ByteSource,
  name: string,
  entry: HeaderValue,
  data: number,
  placeOf: Header['placeOf'],
): SafeTensorInfo {
  const bad = (rule: string, value: HeaderValue | undefined = entry) =>
    badFormat(source.name, placeOf(value), `header: tensor ${JSON.stringify(name)}: ${rule}`);
  if (!('entries' in entry)) throw bad('must be an object');
  const [label, dims, range] = ['dtype', 'shape', 'data_offsets'].map((key) => entry.entries.get(key));
  if (!label || !('text' in label) || !Object.hasOwn(NAMES, label.text))
    throw bad(`dtype ${headerText(label)} is not known`, label);
  if (!dims || !('list' in dims) || dims.list.length > MAX_RANK)
    throw bad(`shape must be a list of at most ${MAX_RANK} dimensions`, dims);
  const shape = dims.list.map((d) => headerCount(d));
  if (!shape.every((d) => d !== undefined)) throw bad(`shape ${headerText(dims)} must be whole numbers from 0`, dims);
  const places = range && 'list' in range ? range.list.map((d) => headerCount(d)) : [];
  if (places.length !== 2 || !places.every((d) => d !== undefined))
    throw bad(`data_offsets ${headerText(range)} must be two whole numbers`, range);
  const [start, end] = places as number[];
  if (start > end || end > source.size - data)
    throw bad(`data_offsets [${start}, ${end}] leave the ${source.size - data} bytes of data`, range);
  const dtype = NAMES[label.text];
  const want = storedBytes(dtype, shape);
  if (want !== end - start) {
    throw bad(
      `${label.text} of shape [${shape.join(', ')}] takes ${
        want ?? 'no possible number of'
      } bytes, data_offsets hold ${end - start}`,
      dims,
    );
  }
  return { dtype, shape, start: data + start, end: data + end, source };
}

/** Tensors must cover the data without gap or overlap, so that no byte is hidden or read twice. */
function checkTiling(source: ByteSource, infos: ReadonlyMap<string, SafeTensorInfo>, data: number): void {
  let at = data;
  for (const [name, { start, end }] of [...infos].sort(([, a], [, b]) => a.start - b.start || a.end - b.end)) {
    if (start !== at) {
      throw badFormat(
        source.name,
        at,
        `tensor ${JSON.stringify(name)} starts at byte ${start}: ${
          start < at ? 'it overlaps another' : 'a gap lies before it'
        }`,
      );
    }
    at = end;
  }
  if (at !== source.size)
    throw badFormat(source.name, at, `${source.size - at} bytes after the last tensor belong to none`);
}

/** Header and data of a file; wide elements first, so that every tensor is aligned to its element. */
function emit(
  records: Iterable<TensorRecord>,
  metadata: Readonly<Record<string, string>> | undefined,
  write: Write,
): void {
  const sorted = [...records].sort((a, b) => bytesOf(b.dtype) - bytesOf(a.dtype) || (a.name < b.name ? -1 : 1));
  const entries: [string, unknown][] = metadata && Object.keys(metadata).length ? [['__metadata__', metadata]] : [];
  let at = 0;
  for (const { name, dtype, shape, byteLength } of sorted) {
    if (name === '__metadata__') throw new ArgumentError('writeSafetensors: a tensor cannot be named "__metadata__"');
    entries.push([name, { dtype: NAME_OF.get(dtype), shape, data_offsets: [at, (at += byteLength)] }]);
  }
  const names = new Set(entries.map(([name]) => name));
  if (names.size !== entries.length) throw new ArgumentError('writeSafetensors: two tensors have one name');
  // Written pair by pair: an object would move keys that look like numbers to the front and lose "__proto__".
  const json = Buffer.from(
    `{${entries.map(([name, entry]) => `${JSON.stringify(name)}:${JSON.stringify(entry)}`).join(',')}}`,
  );
  const length = Math.ceil(json.length / 8) * 8;
  if (length > MAX_HEADER)
    throw new ArgumentError(`writeSafetensors: a header of ${length} bytes, the format allows ${MAX_HEADER}`);
  const head = Buffer.alloc(8 + length, ' ');
  head.writeBigUInt64LE(BigInt(length));
  json.copy(head, 8);
  write(head);
  for (const record of sorted) for (const part of slices(record)) write(part);
}

/** Writes a safetensors file; it appears whole or not at all. */
export function writeSafetensors(
  path: string,
  records: Iterable<TensorRecord>,
  metadata?: Readonly<Record<string, string>>,
): void {
  writeAtomic(path, (write) => emit(records, metadata, write));
}

/** Records as the bytes of a safetensors file. */
export const safetensorsBytes = (
  records: Iterable<TensorRecord>,
  metadata?: Readonly<Record<string, string>>,
): Uint8Array => collect((write) => emit(records, metadata, write));

// PyTorch checkpoints (.pt, .pth, .tar): the zip format, the pickle sequence before it, and the tar before that.
import { ArgumentError, DTypeError, UnsupportedError } from '../base/errors.js';
import type { Shape } from '../base/shape.js';
import { Layout } from '../base/layout.js';
import { Cursor, badFormat, opening, readBytes, windowOf, type ByteSource } from './byte-source.js';
import { Budget, MAX_RANK, checkGrowth } from './limits.js';
import { PickleGlobal, keyText, unpickle } from './pickle.js';
import {
  bitsOf,
  storedBytes,
  storedRecord,
  swapBytes,
  targetDType,
  type ReadOptions,
  type StoredDType,
  type TensorRecord,
} from './stored-dtype.js';
import { gatherBytes } from './strided.js';
import { isTar, readTar } from './tar.js';
import { flattenCheckpoint } from './torch-flatten.js';
import { TorchStorage, TorchTensor, storageDType, storageOf, torchCall } from './torch-types.js';
import { ZipFile } from './zip.js';

const MAGIC = 0x1950a86a20f9469cfc6cn;
const LEGACY_PROTOCOL = 1001;
/** Bytes that the description of a storage takes. */
const STORAGE = 400;

/** A tensor of a checkpoint. */
export interface TorchRecord extends TensorRecord {
  /** As stored: in elements, over the storage named `storage`. `read()` gives row-major bytes whatever they are. */
  readonly strides: readonly number[];
  /** Where it begins in its storage, in elements. */
  readonly offset: number;
  /** The storage's key; tensors that share memory share it. */
  readonly storage: string;
  /** Whether it was being trained. */
  readonly requiresGrad: boolean;
}

/** What each of the three formats boils down to. */
interface Checkpoint {
  root: unknown;
  /** The pickle's cursor at its end: its name and budget. */
  pickle: Cursor;
  /** Length of a storage in bytes, undefined where there is none. */
  sizeOf: (key: string) => number | undefined;
  storage: (key: string) => ByteSource;
  bigEndian: boolean;
}

/** A PyTorch checkpoint (zip, tar or plain pickle), read without running code. */
export class TorchFile {
  /**
   * The whole structure: dicts as Map, lists and tuples as arrays, tensors as TorchTensor, unknown objects as
   * PickleObject.
   */
  readonly root: unknown;
  /** Everything that is not a tensor, by dotted name. */
  readonly metadata: ReadonlyMap<string, unknown>;
  /** Names whose tensor only foreign code could build, with the call it names. */
  readonly opaque: ReadonlyMap<string, string>;
  readonly #tensors: ReadonlyMap<string, TorchTensor>;
  readonly #file: Checkpoint;
  readonly #source: ByteSource;

  private constructor(source: ByteSource, file: Checkpoint) {
    const flat = flattenCheckpoint(file.root, file.pickle);
    this.root = file.root;
    this.metadata = flat.metadata;
    this.opaque = flat.opaque;
    this.#tensors = flat.tensors;
    this.#file = file;
    this.#source = source;
    let total = 0;
    for (const [name, tensor] of flat.tensors) total += this.#check(name, tensor);
    checkGrowth(source.name, total, source.stored ?? source.size, undefined, file.pickle.at);
  }

  /** Opens a file by its path, or bytes in memory. */
  static open(from: string | Uint8Array): TorchFile {
    return opening(from, (source) => new TorchFile(source, readCheckpoint(source)));
  }

  /** Dotted names of all tensors. */
  get names(): string[] {
    return [...this.#tensors.keys()];
  }

  /** Whether there is a tensor of this name. */
  has(name: string): boolean {
    return this.#tensors.has(name);
  }

  /** What is stored, foreign types included; of a type that is not known its name, and no length. */
  info(name: string): { dtype: string; shape: Shape; bytes: number | undefined } {
    const { dtype, type, storage, shape } = this.#tensor(name);
    const known = dtype && storage.dtype;
    return { dtype: known ? dtype : dtype ? storage.type : type, shape, bytes: known && storedBytes(dtype, shape) };
  }

  #tensor(name: string): TorchTensor {
    const tensor = this.#tensors.get(name);
    if (tensor) return tensor;
    const call = this.opaque.get(name);
    if (call)
      throw new UnsupportedError(
        `${this.#source.name}: ${name}: is built by ${call}, which is not understood and never run`,
      );
    throw new ArgumentError(`TorchFile: no tensor ${JSON.stringify(name)} in ${this.#source.name}`);
  }

  /** A tensor's type, shape, strides and bytes. */
  record(name: string, options: ReadOptions = {}): TorchRecord {
    const tensor = this.#tensor(name);
    const where = `${this.#source.name}: ${name}`;
    const built = `${this.#file.pickle.source.name}: at byte ${tensor.at}: tensor ${JSON.stringify(name)}`;
    const dtype = knownDType(built, tensor);
    targetDType(built, dtype, options.widen ?? false);
    const { shape, strides, offset, storage, requiresGrad } = tensor;
    const read = this.#reader(tensor, dtype);
    return {
      ...storedRecord(where, name, dtype, shape, options, read),
      strides,
      offset,
      storage: storage.key,
      requiresGrad,
    };
  }

  /** All tensors. */
  records(options: ReadOptions = {}): TorchRecord[] {
    const first = this.opaque.keys().next();
    return [...this.names, ...(first.done ? [] : [first.value])].map((name) => this.record(name, options));
  }

  /** A tensor's bytes, row-major, whatever its strides. */
  read(name: string, options: ReadOptions = {}): Uint8Array {
    return this.record(name, options).read();
  }

  /** Closes the file. */
  close(): void {
    this.#source.close();
  }

  [Symbol.dispose](): void {
    this.close();
  }

  /** Bounds of a tensor in its storage; returns the bytes it takes when read. */
  #check(name: string, { storage, dtype, shape, strides, offset, at }: TorchTensor): number {
    if (!dtype || !storage.dtype) return 0;
    const { pickle, sizeOf } = this.#file;
    const bad = (rule: string) => pickle.fail(`tensor ${JSON.stringify(name)}: ${rule}`, at);
    const bytes = storedBytes(dtype, shape);
    const { end } = new Layout(shape, strides, offset);
    const held = (storage.count * bitsOf(storage.dtype)) / 8;
    if (bytes === undefined || !Number.isSafeInteger(end) || (end * bitsOf(dtype)) / 8 > held) {
      throw bad(
        `shape [${shape.join(', ')}], strides [${strides.join(', ')}] and offset ${offset} reach element ${end}, ` +
          `storage ${storage.key} holds ${held} bytes`,
      );
    }
    const size = sizeOf(storage.key);
    const need = (storage.start * bitsOf(storage.dtype)) / 8 + held;
    if (size === undefined) throw bad(`storage ${JSON.stringify(storage.key)} is not in the file`);
    if (!(need <= size))
      throw bad(`storage ${JSON.stringify(storage.key)} should hold ${need} bytes, ${size} are there`);
    checkGrowth(`${pickle.source.name}: tensor ${JSON.stringify(name)}`, bytes, held, undefined, at);
    return bytes;
  }

  #reader(tensor: TorchTensor, dtype: StoredDType): (start: number, end: number) => Uint8Array {
    const { storage, shape, strides, offset } = tensor;
    const width = bitsOf(dtype) / 8;
    const base = (storage.start * bitsOf(storage.dtype!)) / 8 + offset * width;
    // Complex numbers are two floats each, and swap as such.
    const unit = dtype === 'c64' || dtype === 'c128' ? width / 2 : width;
    const layout = new Layout(shape, strides);
    const fetch = (start: number, end: number): Uint8Array => {
      const bytes = readBytes(this.#file.storage(storage.key), base + start, end - start);
      return this.#file.bigEndian ? swapBytes(bytes, unit) : bytes;
    };
    if (!layout.isContiguous) {
      return (start, end) => gatherBytes(fetch(0, layout.end * width), layout, width).subarray(start, end);
    }
    return (start, end) => {
      if (start === end) return new Uint8Array(0);
      const first = Math.floor(start / width) * width;
      return fetch(first, Math.ceil(end / width) * width).subarray(start - first, end - first);
    };
  }
}

function knownDType(where: string, tensor: TorchTensor): StoredDType {
  if (tensor.dtype && tensor.storage.dtype) return tensor.dtype;
  throw new DTypeError(`${where}: elements of type ${tensor.dtype ? tensor.storage.type : tensor.type} are not known`);
}

function readCheckpoint(source: ByteSource): Checkpoint {
  const lead = readBytes(source, 0, Math.min(4, source.size));
  if (lead[0] === 0x50 && lead[1] === 0x4b) return readZipFormat(source);
  if (isTar(source)) return readTarFormat(source);
  if (lead[0] === 0x80) return readLegacyFormat(source);
  throw badFormat(source.name, 0, 'is no PyTorch file: neither a zip archive, a tar archive nor a pickle');
}

const persistent =
  (cursor: Cursor) =>
  (id: unknown): unknown => {
    const storage = storageOf(id);
    if (storage) return storage;
    // ('module', class, file, source): the class is all that data can need.
    if (Array.isArray(id) && id[0] === 'module') return (id as unknown[])[1];
    throw cursor.fail('pickle: a persistent id that is not a storage');
  };

function readObject(cursor: Cursor): unknown {
  return unpickle(cursor, { call: torchCall, persistent: persistent(cursor) });
}

function readZipFormat(source: ByteSource): Checkpoint {
  const budget = new Budget(source.name, source.stored ?? source.size);
  const zip = new ZipFile(source, { budget });
  const main = [...zip.entries.keys()].find((name) => name === 'data.pkl' || /^[^/]*\/data\.pkl$/.test(name));
  if (main === undefined) throw badFormat(source.name, 0, 'the archive holds no data.pkl, so it is no PyTorch file');
  const folder = main.slice(0, -'data.pkl'.length);
  const order = zip.entries.has(`${folder}byteorder`) ? zip.open(`${folder}byteorder`) : undefined;
  const endian = order ? new TextDecoder().decode(readBytes(order, 0, Math.min(16, order.size))).trim() : 'little';
  if (endian !== 'little' && endian !== 'big')
    throw badFormat(order!.name, 0, `byte order ${JSON.stringify(endian)} is neither little nor big`);
  const cursor = new Cursor(zip.open(main), 0, budget);
  const root = readObject(cursor);
  const place = (key: string) => `${folder}data/${key}`;
  return {
    root,
    pickle: cursor,
    bigEndian: endian === 'big',
    sizeOf: (key) => zip.entries.get(place(key))?.size,
    storage: (key) => zip.open(place(key)),
  };
}

function readLegacyFormat(source: ByteSource): Checkpoint {
  const cursor = new Cursor(source);
  if (unpickle(cursor) !== MAGIC)
    throw badFormat(source.name, 0, 'is a pickle, but not one that PyTorch wrote: its magic number is missing');
  const at = cursor.at;
  const protocol = unpickle(cursor);
  if (protocol !== LEGACY_PROTOCOL)
    throw cursor.fail(`protocol ${keyText(protocol)} is not known, ${LEGACY_PROTOCOL} is`, at);
  unpickle(cursor); // the writing machine's sizes; numbers are little-endian whatever it was
  const widths = new Map<string, number>();
  const root = unpickle(cursor, {
    call: torchCall,
    persistent: (id) => {
      const made = persistent(cursor)(id);
      if (made instanceof TorchStorage && made.dtype) widths.set(made.key, bitsOf(made.dtype) / 8);
      return made;
    },
  });
  const keys = unpickle(cursor);
  if (!Array.isArray(keys)) throw cursor.fail('the list of storages is missing');
  const found = new Map<string, ByteSource>();
  for (const key of keys as unknown[]) {
    const width = widths.get(keyText(key));
    if (width === undefined)
      throw cursor.fail(`storage ${keyText(key)} has no known type, so its length cannot be told`);
    cursor.pay(STORAGE);
    found.set(keyText(key), rawStorage(cursor, keyText(key), width));
  }
  return {
    root,
    pickle: cursor,
    bigEndian: false,
    sizeOf: (key) => found.get(key)?.size,
    storage: (key) => found.get(key)!,
  };
}

/** A count of elements, then the elements. */
function rawStorage(cursor: Cursor, key: string, width: number): ByteSource {
  const count = cursor.size(`length of storage ${key}`, Math.floor(Math.max(0, cursor.left - 8) / width));
  const found = windowOf(cursor.source, `${cursor.source.name}: storage ${key}`, cursor.at, count * width);
  cursor.at += count * width;
  return found;
}

function readTarFormat(source: ByteSource): Checkpoint {
  const budget = new Budget(source.name, source.stored ?? source.size);
  const members = readTar(source, budget);
  const member = (name: string): Cursor => {
    const found = members.get(name);
    if (!found)
      throw badFormat(source.name, 0, `the tar archive holds no ${JSON.stringify(name)}, so it is no PyTorch file`);
    return new Cursor(found, 0, budget);
  };
  const cursor = member('storages');
  const storages = new Map<string, TorchStorage>();
  const found = new Map<string, ByteSource>();
  for (let left = count(cursor, 'number of storages'); left > 0; left--) {
    const head = unpickle(cursor);
    const [key, , type] = Array.isArray(head) ? (head as unknown[]) : [];
    const dtype = type instanceof PickleGlobal ? storageDType(type) : undefined;
    if (!dtype) throw cursor.fail(`storage ${keyText(key)} has no known type, so its length cannot be told`);
    cursor.pay(STORAGE);
    const bytes = rawStorage(cursor, keyText(key), bitsOf(dtype) / 8);
    found.set(keyText(key), bytes);
    storages.set(
      keyText(key),
      new TorchStorage(keyText(key), (type as PickleGlobal).id, dtype, (bytes.size * 8) / bitsOf(dtype)),
    );
  }
  if (cursor.left > 0) addViews(cursor, storages);
  const tensors = members.has('tensors') ? readTensors(member('tensors'), storages) : new Map<string, TorchTensor>();
  const main = member('pickle');
  const root = unpickle(main, {
    call: torchCall,
    persistent: (id) =>
      tensors.get(keyText(Array.isArray(id) ? id[0] : id)) ?? storages.get(keyText(id)) ?? persistent(main)(id),
  });
  return {
    root,
    pickle: main,
    bigEndian: false,
    sizeOf: (key) => found.get(key)?.size,
    storage: (key) => found.get(key)!,
  };
}

function count(cursor: Cursor, what: string): number {
  const n = unpickle(cursor);
  if (typeof n === 'number' && Number.isSafeInteger(n) && n >= 0 && n <= cursor.left) return n;
  throw cursor.fail(`${what} is ${keyText(n)}, which the file cannot hold`);
}

/** (key of the view, key of its root, offset, size) for storages that are parts of others. */
function addViews(cursor: Cursor, storages: Map<string, TorchStorage>): void {
  const views = unpickle(cursor);
  for (const view of Array.isArray(views) ? (views as unknown[]) : []) {
    const [key, root, offset, size] = Array.isArray(view) ? (view as unknown[]) : [];
    const base = storages.get(keyText(root));
    const fits =
      Number.isSafeInteger(offset) && Number.isSafeInteger(size) && (offset as number) >= 0 && (size as number) >= 0;
    if (!base || !fits || (offset as number) + (size as number) > base.count)
      throw cursor.fail(`view ${keyText(key)} does not lie in a storage`);
    storages.set(
      keyText(key),
      new TorchStorage(base.key, base.type, base.dtype, size as number, base.start + (offset as number)),
    );
  }
}

/** For each tensor a pickle (key, storage, type), then rank, padding, sizes, strides and offset. */
function readTensors(cursor: Cursor, storages: ReadonlyMap<string, TorchStorage>): Map<string, TorchTensor> {
  const out = new Map<string, TorchTensor>();
  for (let left = count(cursor, 'number of tensors'); left > 0; left--) {
    const head = unpickle(cursor);
    const [key, storageKey] = Array.isArray(head) ? (head as unknown[]) : [];
    const storage = storages.get(keyText(storageKey));
    if (!storage) throw cursor.fail(`tensor ${keyText(key)}: storage ${keyText(storageKey)} is not in the file`);
    cursor.pay(STORAGE);
    const rank = cursor.u32('rank');
    cursor.u32('padding');
    if (rank > MAX_RANK) throw cursor.fail(`tensor ${keyText(key)}: rank ${rank} is beyond ${MAX_RANK}`);
    const shape = Array.from({ length: rank }, () => cursor.size('dimension'));
    const strides = Array.from({ length: rank }, () => cursor.size('stride'));
    out.set(
      keyText(key),
      new TorchTensor(storage, storage.dtype, storage.type, cursor.size('offset'), shape, strides, false, 0),
    );
  }
  return out;
}

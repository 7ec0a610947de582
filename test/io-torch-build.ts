// Builds PyTorch files by hand for the tests: pickles opcode by opcode, in each of the three formats.
import { collect } from '../src/io/atomic-file.js';
import { writeZip } from '../src/io/zip.js';

/** Bytes of pickle that push one value. */
export type Pickled = Buffer;

const u32 = (n: number): Buffer => {
  const b = Buffer.alloc(4);
  b.writeUInt32LE(n);
  return b;
};
const i64 = (n: number): Buffer => {
  const b = Buffer.alloc(8);
  b.writeBigInt64LE(BigInt(n));
  return b;
};
const op = (c: string | number, ...rest: Buffer[]): Buffer =>
  Buffer.concat([typeof c === 'string' ? Buffer.from(c, 'latin1') : Buffer.from([c]), ...rest]);

export const str = (s: string): Pickled => op('X', u32(Buffer.byteLength(s)), Buffer.from(s));
export const int = (n: number): Pickled =>
  n >= 0 && n < 256 ? op('K', Buffer.from([n])) : op(0x8a, Buffer.from([8]), i64(n));
export const none = (): Pickled => op('N');
export const yes = (v: boolean): Pickled => op(v ? 0x88 : 0x89);
export const tuple = (...items: Pickled[]): Pickled => Buffer.concat([Buffer.from('('), ...items, Buffer.from('t')]);
export const list = (...items: Pickled[]): Pickled => Buffer.concat([Buffer.from(']('), ...items, Buffer.from('e')]);
export const dict = (...pairs: [Pickled, Pickled][]): Pickled =>
  Buffer.concat([Buffer.from('}('), ...pairs.flat(), Buffer.from('u')]);
export const global = (module: string, name: string): Pickled => Buffer.from(`c${module}\n${name}\n`);
export const call = (callable: Pickled, ...args: Pickled[]): Pickled =>
  Buffer.concat([callable, tuple(...args), Buffer.from('R')]);
export const build = (object: Pickled, state: Pickled): Pickled => Buffer.concat([object, state, Buffer.from('b')]);
export const persistent = (id: Pickled): Pickled => Buffer.concat([id, Buffer.from('Q')]);
export const put = (value: Pickled, key: number): Pickled => Buffer.concat([value, Buffer.from([0x71, key])]);
export const get = (key: number): Pickled => Buffer.from([0x68, key]);
export const pickle = (value: Pickled, protocol = 2): Buffer =>
  Buffer.concat([Buffer.from([0x80, protocol]), value, Buffer.from('.')]);

export const storage = (type: string, key: string, count: number, view?: Pickled): Pickled =>
  persistent(tuple(str('storage'), global('torch', type), str(key), str('cpu'), int(count), ...(view ? [view] : [])));

export const tensor = (from: Pickled, offset: number, shape: number[], strides: number[]): Pickled =>
  call(
    global('torch._utils', '_rebuild_tensor_v2'),
    from,
    int(offset),
    tuple(...shape.map(int)),
    tuple(...strides.map(int)),
    yes(false),
    call(global('collections', 'OrderedDict')),
  );

export function zipFile(
  root: Pickled | Buffer,
  storages: Record<string, Uint8Array>,
  extra: Record<string, Uint8Array> = {},
): Uint8Array {
  const members = {
    'archive/data.pkl': pickle(root),
    ...extra,
    ...Object.fromEntries(Object.entries(storages).map(([k, v]) => [`archive/data/${k}`, v])),
  };
  return collect((write) =>
    writeZip(
      Object.entries(members).map(([name, bytes]) => ({ name, size: bytes.length, slices: () => [bytes] })),
      false,
      write,
    ),
  );
}

const MAGIC = Buffer.from([0x80, 2, 0x8a, 10, 0x6c, 0xfc, 0x9c, 0x46, 0xf9, 0x20, 0x6a, 0xa8, 0x50, 0x19, 0x2e]);

export function legacyFile(root: Pickled, storages: [key: string, count: number, bytes: Uint8Array][]): Uint8Array {
  return new Uint8Array(
    Buffer.concat([
      MAGIC,
      pickle(op('M', Buffer.from([0xe9, 3]))),
      pickle(dict()),
      pickle(root),
      pickle(list(...storages.map(([key]) => str(key)))),
      ...storages.flatMap(([, count, bytes]) => [i64(count), Buffer.from(bytes)]),
    ]),
  );
}

function tarMember(name: string, bytes: Buffer, kind: number): Buffer {
  const head = Buffer.alloc(512);
  head.write(name);
  head.write('0000644\0', 100);
  head.write(`${bytes.length.toString(8).padStart(11, '0')}\0`, 124);
  head.fill(32, 148, 156);
  head[156] = kind;
  head.write(
    `${head
      .reduce((n, b) => n + b, 0)
      .toString(8)
      .padStart(6, '0')}\0 `,
    148,
  );
  return Buffer.concat([head, bytes, Buffer.alloc((512 - (bytes.length % 512)) % 512)]);
}

/**
 * PyTorch's first format: storages with views of them, tensors over both, and a pickle that names tensors by number.
 */
export function tarFile(members: Record<string, Buffer>, kind = 0x30): Uint8Array {
  return new Uint8Array(
    Buffer.concat([...Object.entries(members).map(([n, b]) => tarMember(n, b, kind)), Buffer.alloc(1024)]),
  );
}

export const tarStorages = (
  storages: [key: number, type: string, count: number, bytes: Uint8Array][],
  views: Pickled = list(),
): Buffer =>
  Buffer.concat([
    pickle(int(storages.length)),
    ...storages.flatMap(([key, type, count, bytes]) => [
      pickle(tuple(int(key), str('cpu'), global('torch', type))),
      i64(count),
      Buffer.from(bytes),
    ]),
    pickle(views),
  ]);

export const tarTensors = (
  tensors: [key: number, storage: number, type: string, shape: number[], strides: number[], offset: number][],
): Buffer =>
  Buffer.concat([
    pickle(int(tensors.length)),
    ...tensors.flatMap(([key, from, type, shape, strides, offset]) => [
      pickle(tuple(int(key), int(from), global('torch', type))),
      u32(shape.length),
      u32(0),
      ...shape.map(i64),
      ...strides.map(i64),
      i64(offset),
    ]),
  ]);

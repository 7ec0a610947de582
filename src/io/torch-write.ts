// PyTorch's zip format, written: a state dict that torch.load reads, also with weights_only and mmap.
import { type DType, DTYPE } from '../base/dtype.js';
import { sizeOf } from '../base/shape.js';
import { collect, type Write, writeAtomic } from './atomic-file.js';
import { slices, type TensorRecord } from './stored-dtype.js';
import { writeZip, type ZipMember } from './zip.js';

/** Storages by the dtype of their elements; what has none lies in bytes, with the dtype named beside them. */
const STORAGE: Readonly<Partial<Record<DType, string>>> = {
  f32: 'FloatStorage',
  f64: 'DoubleStorage',
  f16: 'HalfStorage',
  bf16: 'BFloat16Storage',
  u8: 'ByteStorage',
  i8: 'CharStorage',
  i16: 'ShortStorage',
  i32: 'IntStorage',
  i64: 'LongStorage',
  bool: 'BoolStorage',
};
const UNTYPED: Readonly<Partial<Record<DType, string>>> = {
  u32: 'uint32',
  f8e4m3: 'float8_e4m3fn',
  f8e5m2: 'float8_e5m2',
};

const bytes = (...values: number[]): Buffer => Buffer.from(values);
const text = (s: string): Buffer => {
  const body = Buffer.from(s);
  const length = Buffer.alloc(4);
  length.writeUInt32LE(body.length);
  return Buffer.concat([Buffer.from('X'), length, body]);
};
/** A whole number of at least 0: in a byte, in four, or in eight. */
function whole(n: number): Buffer {
  if (n < 2 ** 8) return bytes(0x4b, n);
  const out = Buffer.alloc(10);
  if (n < 2 ** 31) {
    out[0] = 0x4a;
    out.writeInt32LE(n, 1);
    return out.subarray(0, 5);
  }
  out.set([0x8a, 8]);
  out.writeBigInt64LE(BigInt(n), 2);
  return out;
}
const global = (module: string, name: string): Buffer => Buffer.from(`c${module}\n${name}\n`);
const tuple = (...items: readonly Buffer[]): Buffer => Buffer.concat([Buffer.from('('), ...items, Buffer.from('t')]);
const called = (callable: Buffer, args: Buffer): Buffer => Buffer.concat([callable, args, Buffer.from('R')]);
const emptyDict = called(global('collections', 'OrderedDict'), Buffer.from(')'));

function tensorPickle({ dtype, shape, byteLength }: TensorRecord, key: string): Buffer {
  const typed = STORAGE[dtype];
  const of = typed ? global('torch', typed) : global('torch.storage', 'UntypedStorage');
  const count = typed ? byteLength / DTYPE[dtype].bytes : byteLength;
  const storage = tuple(text('storage'), of, text(key), text('cpu'), whole(count));
  const strides = shape.map((_, i) => sizeOf(shape.slice(i + 1)));
  const [FALSE, ASK] = [bytes(0x89), Buffer.from('Q')];
  const parts = [Buffer.concat([storage, ASK]), whole(0), ...[shape, strides].map((s) => tuple(...s.map(whole)))];
  const kind = typed ? [] : [global('torch', UNTYPED[dtype] as string)];
  const rebuild = global('torch._utils', typed ? '_rebuild_tensor_v2' : '_rebuild_tensor_v3');
  return called(rebuild, tuple(...parts, FALSE, emptyDict, ...kind));
}

/** An ordered dictionary of tensors, protocol 2. */
const dictPickle = (records: readonly TensorRecord[]): Buffer =>
  Buffer.concat([
    bytes(0x80, 2),
    emptyDict,
    Buffer.from('('),
    ...records.flatMap((r, i) => [text(r.name), tensorPickle(r, String(i))]),
    Buffer.from('u.'),
  ]);

/** Where a storage begins in the file, so that it can be mapped into memory. */
const ALIGNMENT = 64;

const emit =
  (given: Iterable<TensorRecord>) =>
  (write: Write): void => {
    const records = [...given];
    const small = (name: string, content: Buffer): ZipMember => ({
      name: `archive/${name}`,
      size: content.length,
      slices: () => [content],
    });
    const members = [
      small('data.pkl', dictPickle(records)),
      small('byteorder', Buffer.from('little')),
      ...records.map((r, i) => ({
        name: `archive/data/${i}`,
        size: r.byteLength,
        slices: () => slices(r),
        align: ALIGNMENT,
      })),
      small('version', Buffer.from('3\n')),
    ];
    writeZip(members, false, write);
  };

/** Writes a state dict as PyTorch's torch.save does; the file appears whole or not at all. */
export const writeTorch = (path: string, records: Iterable<TensorRecord>): void => writeAtomic(path, emit(records));
/** A state dict as the bytes of such a file. */
export const torchBytes = (records: Iterable<TensorRecord>): Uint8Array => collect(emit(records));

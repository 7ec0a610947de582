// What PyTorch files are made of: storages, tensors over them, and the few calls that are understood as data.
import type { Shape } from '../base/shape.js';
import type { Cursor } from './byte-source.js';
import { MAX_ENTRIES, MAX_RANK } from './limits.js';
import { PickleDict, PickleGlobal } from './pickle.js';
import type { StoredDType } from './stored-dtype.js';

const STORAGES: Record<string, StoredDType> = {
  FloatStorage: 'f32',
  DoubleStorage: 'f64',
  HalfStorage: 'f16',
  BFloat16Storage: 'bf16',
  ByteStorage: 'u8',
  CharStorage: 'i8',
  ShortStorage: 'i16',
  IntStorage: 'i32',
  LongStorage: 'i64',
  BoolStorage: 'bool',
  ComplexFloatStorage: 'c64',
  ComplexDoubleStorage: 'c128',
  UntypedStorage: 'u8',
};
const DTYPES: Record<string, StoredDType> = {
  float32: 'f32',
  float: 'f32',
  float64: 'f64',
  double: 'f64',
  float16: 'f16',
  half: 'f16',
  bfloat16: 'bf16',
  uint8: 'u8',
  int8: 'i8',
  int16: 'i16',
  short: 'i16',
  int32: 'i32',
  int: 'i32',
  int64: 'i64',
  long: 'i64',
  bool: 'bool',
  uint16: 'u16',
  uint32: 'u32',
  uint64: 'u64',
  complex32: 'c32',
  complex64: 'c64',
  complex128: 'c128',
  float8_e4m3fn: 'f8e4m3',
  float8_e5m2: 'f8e5m2',
  float8_e4m3fnuz: 'f8e4m3fnuz',
  float8_e5m2fnuz: 'f8e5m2fnuz',
  float8_e8m0fnu: 'f8e8m0',
};

/** Memory of a checkpoint that tensors lie in. */
export class TorchStorage {
  /** Its name in the file. */
  readonly key: string;
  /** undefined: a type of storage that is not known, an error only when it is read. */
  readonly dtype: StoredDType | undefined;
  /** Its type as PyTorch names it. */
  readonly type: string;
  /** Elements, and where they begin in the stored bytes of `key`. */
  readonly count: number;
  /** Where it begins in the stored bytes of `key`, in elements. */
  readonly start: number;
  constructor(key: string, type: string, dtype: StoredDType | undefined, count: number, start = 0) {
    this.key = key;
    this.type = type;
    this.dtype = dtype;
    this.count = count;
    this.start = start;
  }
}

/** A tensor of a checkpoint, as its pickle describes it. */
export class TorchTensor {
  /** The memory it lies in. */
  readonly storage: TorchStorage;
  /** Its element type; undefined: one that is not known. */
  readonly dtype: StoredDType | undefined;
  /** Its type as PyTorch names it. */
  readonly type: string;
  /** In elements of dtype, from the storage's beginning. */
  readonly offset: number;
  /** Its shape. */
  readonly shape: Shape;
  /** Its strides, in elements. */
  readonly strides: readonly number[];
  /** Whether it was being trained. */
  readonly requiresGrad: boolean;
  /** Where in its pickle the tensor was built. */
  readonly at: number;
  constructor(
    storage: TorchStorage,
    dtype: StoredDType | undefined,
    type: string,
    offset: number,
    shape: Shape,
    strides: readonly number[],
    requiresGrad: boolean,
    at: number,
  ) {
    this.storage = storage;
    this.dtype = dtype;
    this.type = type;
    this.offset = offset;
    this.shape = shape;
    this.strides = strides;
    this.requiresGrad = requiresGrad;
    this.at = at;
  }
}

const lookup = (table: Record<string, StoredDType>, name: string) =>
  Object.hasOwn(table, name) ? table[name] : undefined;
const isCount = (x: unknown): x is number => Number.isSafeInteger(x) && (x as number) >= 0;
const isCounts = (x: unknown): x is number[] => Array.isArray(x) && x.length <= MAX_RANK && x.every(isCount);

export const storageDType = (type: PickleGlobal): StoredDType | undefined => lookup(STORAGES, type.name);

/**
 * ('storage', type, key, location, count[, view]) as PyTorch writes it, or undefined where the tuple is something else.
 */
export function storageOf(id: unknown): TorchStorage | undefined {
  if (!Array.isArray(id) || id[0] !== 'storage') return undefined;
  const [, type, key, , count, view] = id as unknown[];
  if (!(type instanceof PickleGlobal) || (typeof key !== 'string' && typeof key !== 'number') || !isCount(count))
    return undefined;
  const dtype = storageDType(type);
  if (!Array.isArray(view)) return new TorchStorage(String(key), type.id, dtype, count);
  const [, start, size] = view as unknown[];
  return isCount(start) && isCount(size) ? new TorchStorage(String(key), type.id, dtype, size, start) : undefined;
}

/** Bytes that a tensor's or a storage's description takes. */
const TENSOR = 400;
const ENTRY = 48;

function tensorOf(args: readonly unknown[], cursor: Cursor, dtype?: PickleGlobal): TorchTensor | undefined {
  const [first, offset, shape, strides, requiresGrad] = args;
  // The tar files of some writers hold the storage's tuple in place of a persistent id.
  const storage = first instanceof TorchStorage ? first : storageOf(first);
  if (!storage || !isCount(offset) || !isCounts(shape) || !isCounts(strides) || shape.length !== strides.length)
    return undefined;
  cursor.pay(TENSOR, MAX_RANK);
  const type = dtype ? lookup(DTYPES, dtype.name) : storage.dtype;
  const name = dtype?.id ?? storage.type;
  return new TorchTensor(storage, type, name, offset, shape, strides, requiresGrad === true, cursor.at);
}

type Call = (args: readonly unknown[], cursor: Cursor) => unknown;
const first: Call = ([data]) => (data instanceof TorchTensor ? data : undefined);
const isPair = (p: unknown): p is [unknown, unknown] => Array.isArray(p) && p.length === 2;
/** A dict of a dict's or a list's pairs; each call copies them, so each pays for the copy. */
const pairs: Call = ([items], cursor) => {
  if (items === undefined) {
    cursor.pay(5 * ENTRY);
    return new PickleDict();
  }
  const count = items instanceof Map ? items.size : Array.isArray(items) ? items.length : undefined;
  if (count === undefined) return undefined;
  if (count > MAX_ENTRIES) throw cursor.fail(`pickle: a dict of ${count} entries, more than ${MAX_ENTRIES}`);
  cursor.pay((5 + count) * ENTRY, count);
  if (items instanceof Map) return new PickleDict(items);
  return (items as unknown[]).every(isPair) ? new PickleDict(items as [unknown, unknown][]) : undefined;
};
/** A subclass of Tensor: built by another call with arguments of its own. */
const fromType: Call = ([inner, , args], cursor) => {
  const build = inner instanceof PickleGlobal && Array.isArray(args) ? CALLS.get(inner.id) : undefined;
  // Never itself: arguments that hold themselves would go round for ever.
  return build && build !== fromType ? build(args as unknown[], cursor) : undefined;
};

const CALLS: ReadonlyMap<string, Call> = new Map<string, Call>([
  ['collections.OrderedDict', pairs],
  ['builtins.dict', pairs],
  ['collections.defaultdict', (_, cursor) => pairs([], cursor)],
  ['torch.Size', ([shape]) => (Array.isArray(shape) ? shape : undefined)],
  ['torch._utils._rebuild_tensor', (args, cursor) => tensorOf(args, cursor)],
  ['torch._utils._rebuild_tensor_v2', (args, cursor) => tensorOf(args, cursor)],
  [
    'torch._utils._rebuild_tensor_v3',
    (args, cursor) => (args[6] instanceof PickleGlobal ? tensorOf(args, cursor, args[6]) : undefined),
  ],
  ['torch._utils._rebuild_parameter', first],
  ['torch._utils._rebuild_parameter_with_state', first],
  ['torch.nn.parameter.Parameter', first],
  ['torch._tensor._rebuild_from_type', fromType],
  ['torch._tensor._rebuild_from_type_v2', fromType],
]);

/** The data a call stands for, or undefined: then it stays an inert record. */
export function torchCall(callable: PickleGlobal, args: readonly unknown[], cursor: Cursor): unknown {
  return CALLS.get(callable.id)?.(args, cursor);
}

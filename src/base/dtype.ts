// The element types, eleven that ops compute in and two that are kept: sizes, kinds, storage views, exact encoding.
import { ArgumentError, DTypeError } from './errors.js';
import {
  fromBf16Bits,
  fromE5m2Bits,
  fromF16Bits,
  fromF8Bits,
  toBf16Bits,
  toE5m2Bits,
  toF16Bits,
  toF8Bits,
} from './float.js';

/** What can be added up; bool is the one dtype besides. */
export const NUMBERS = ['u8', 'u32', 'i16', 'i32', 'i64', 'f8e4m3', 'bf16', 'f16', 'f32', 'f64'] as const;
/** What ops compute in. */
export const DTYPES = ['bool', ...NUMBERS] as const;
/** What tensors are kept in besides; ops compute on them by way of their carriers. */
export const KEPT = ['i8', 'f8e5m2'] as const;
/** All element types. */
export const EVERY_DTYPE = [...DTYPES, ...KEPT] as const;
/** An element type by its name. */
export type DType = (typeof EVERY_DTYPE)[number];
export type KeptDType = (typeof KEPT)[number];
/** What holds every value and is computed in: kept types are rounded to from there, once. */
export const CARRIER = { i8: 'i32', f8e5m2: 'f32' } as const satisfies { [D in KeptDType]: DType };
export const isKept = (d: DType): d is KeptDType => d === 'i8' || d === 'f8e5m2';
/**
 * Dtypes as engines know them: truth values lie in memory as u8, 0 or 1, and share its kernels. Of kept types engines
 * know casts and copies alone.
 */
export type KernelDType = (typeof NUMBERS)[number];
export const kernelDType = (d: DType): KernelDType => (d === 'bool' ? 'u8' : (d as KernelDType));
/** The engines' numbers of dtypes. */
const IDS: readonly DType[] = [...NUMBERS, ...KEPT];

/** Typed arrays that hold an element type's raw bits. */
export type RawArray =
  | Uint8Array
  | Int8Array
  | Uint16Array
  | Uint32Array
  | Int16Array
  | Int32Array
  | BigInt64Array
  | Float32Array
  | Float64Array;
/** Integers are bigint, floats are double: the rule of the reference engine. */
export type Value = number | bigint;

export interface DTypeInfo {
  readonly name: DType;
  /** The engines' number of it: bool has that of u8. */
  readonly id: number;
  readonly bytes: number;
  readonly kind: 'uint' | 'int' | 'float';
  /** The typed array over raw storage; small floats are seen as their bits. */
  readonly Raw: new (
    buffer: ArrayBufferLike,
    byteOffset?: number,
    length?: number,
  ) => RawArray;
  /** Bits of one raw element to its value. */
  readonly decode: (raw: number | bigint) => Value;
  /** A value to the raw element: floats round to nearest even, integers wrap. */
  readonly encode: (value: Value) => number | bigint;
}

const same = (x: number | bigint): Value => x;
const big = (x: number | bigint): bigint => BigInt(x);
const wrap =
  (bits: number, signed: boolean) =>
  (v: Value): number =>
    Number((signed ? BigInt.asIntN : BigInt.asUintN)(bits, toBig(v)));

/** A double or bigint as bigint: truncation toward zero, NaN is 0, infinities saturate to 64 bits. */
function toBig(v: Value): bigint {
  if (typeof v === 'bigint') return v;
  if (v !== v) return 0n;
  if (v >= 2 ** 63) return 2n ** 63n - 1n;
  if (v <= -(2 ** 63)) return -(2n ** 63n);
  return BigInt(Math.trunc(v));
}

const info = (
  name: DType,
  bytes: number,
  kind: DTypeInfo['kind'],
  Raw: unknown,
  decode: DTypeInfo['decode'],
  encode: DTypeInfo['encode'],
): DTypeInfo => ({
  name,
  id: IDS.indexOf(kernelDType(name)),
  bytes,
  kind,
  Raw: Raw as DTypeInfo['Raw'],
  decode,
  encode,
});
const fp = (decode: (bits: number) => number, encode: (x: number) => number) =>
  [(r: number | bigint) => decode(r as number), (v: Value) => encode(Number(v))] as const;

export const DTYPE: { readonly [D in DType]: DTypeInfo } = {
  bool: info('bool', 1, 'uint', Uint8Array, big, (v) => (Number(v) === 0 ? 0 : 1)),
  u8: info('u8', 1, 'uint', Uint8Array, big, wrap(8, false)),
  u32: info('u32', 4, 'uint', Uint32Array, big, wrap(32, false)),
  i8: info('i8', 1, 'int', Int8Array, big, wrap(8, true)),
  i16: info('i16', 2, 'int', Int16Array, big, wrap(16, true)),
  i32: info('i32', 4, 'int', Int32Array, big, wrap(32, true)),
  i64: info('i64', 8, 'int', BigInt64Array, same, (v) => BigInt.asIntN(64, toBig(v))),
  f8e4m3: info('f8e4m3', 1, 'float', Uint8Array, ...fp(fromF8Bits, toF8Bits)),
  f8e5m2: info('f8e5m2', 1, 'float', Uint8Array, ...fp(fromE5m2Bits, toE5m2Bits)),
  bf16: info('bf16', 2, 'float', Uint16Array, ...fp(fromBf16Bits, toBf16Bits)),
  f16: info('f16', 2, 'float', Uint16Array, ...fp(fromF16Bits, toF16Bits)),
  f32: info('f32', 4, 'float', Float32Array, same, Number),
  f64: info('f64', 8, 'float', Float64Array, same, Number),
};

export const FLOATS = ['f8e4m3', 'bf16', 'f16', 'f32', 'f64'] as const satisfies readonly DType[];
/** Floats with products and sums of their own: what matmul, convolutions and norms take. */
export const REALS = ['bf16', 'f16', 'f32', 'f64'] as const satisfies readonly DType[];
export const INTS = ['u8', 'u32', 'i16', 'i32', 'i64'] as const satisfies readonly DType[];
/** What may index: the largest value of each is the sentinel "no element". */
export const INDEX_DTYPES = INTS;

/** What sums and products of a dtype are: of truth values and integers below 64 bits i64, as in NumPy and PyTorch. */
export const sumDType = (d: DType): DType => (DTYPE[d].kind === 'float' ? d : 'i64');

export const isFloat = (d: DType): boolean => DTYPE[d].kind === 'float';
export const bytesOf = (d: DType): number => DTYPE[d].bytes;

/** Names that NumPy, PyTorch and ONNX have. */
const OTHER_NAMES: Readonly<Record<string, DType>> = {
  float: 'f32',
  float16: 'f16',
  half: 'f16',
  bfloat16: 'bf16',
  float32: 'f32',
  float64: 'f64',
  double: 'f64',
  float8_e4m3fn: 'f8e4m3',
  float8_e5m2: 'f8e5m2',
  boolean: 'bool',
  uint8: 'u8',
  int8: 'i8',
  int16: 'i16',
  int32: 'i32',
  int: 'i32',
  int64: 'i64',
  long: 'i64',
  uint32: 'u32',
};

/** The dtype of a name here or elsewhere. */
export const dtypeCalled = (name: string): DType | undefined =>
  Object.hasOwn(DTYPE, name) ? (name as DType) : OTHER_NAMES[String(name).replace(/^torch\./, '')];

export function asDType(name: string, op = 'dtype'): DType {
  const ours = dtypeCalled(name);
  if (ours === name) return ours;
  if (ours) throw new DTypeError(`${op}: unknown dtype ${JSON.stringify(name)}; here it is '${ours}'`);
  throw new DTypeError(`${op}: unknown dtype ${JSON.stringify(name)}; known are ${EVERY_DTYPE.join(', ')}`);
}

/** Largest value of an integer dtype: as an index it means "no element". */
export function maxInt(d: DType): bigint {
  if (d === 'bool') return 1n;
  const { bytes, kind } = DTYPE[d];
  return 2n ** BigInt(bytes * 8 - (kind === 'int' ? 1 : 0)) - 1n;
}
const minInt = (d: DType): bigint => (DTYPE[d].kind === 'int' ? -maxInt(d) - 1n : 0n);

/** A number or bigint as the nearest value of an integer dtype: truncated toward zero, saturated, NaN is 0. */
export function saturate(v: Value, d: DType): bigint {
  const [whole, min, max] = [toBig(v), minInt(d), maxInt(d)];
  return whole < min ? min : whole > max ? max : whole;
}

/**
 * Refuses a number that the dtype does not hold: a value to fill with must not change on its way into an integer
 * tensor.
 */
export function checkValue(op: string, value: Value, d: DType): void {
  if (DTYPE[d].kind === 'float') return;
  const whole = typeof value === 'bigint' || Number.isInteger(value);
  if (!whole || BigInt(value) > maxInt(d) || BigInt(value) < minInt(d)) {
    throw new DTypeError(
      `${op}: ${value} is no ${d} (whole numbers ${minInt(d)} to ${maxInt(d)}); cast the tensor to a float dtype first`,
    );
  }
}

/**
 * A scalar parameter as every engine takes it for elements of an integer dtype. A bound saturates: beyond the dtype it
 * bounds nothing.
 * Other scalars are whole and are taken modulo 2^bits, as the products and sums they go into. Floats are passed on.
 */
export function scalarFor(op: string, name: string, value: Value, d: DType, bound: boolean): Value {
  const { kind, bytes } = DTYPE[d];
  if (bound && value !== value) throw new ArgumentError(`${op}: ${name} is NaN, which bounds nothing`);
  if (kind === 'float') return value;
  const infinite = value === Infinity || value === -Infinity;
  if (!(typeof value === 'bigint' || Number.isInteger(value) || (bound && infinite)))
    throw new DTypeError(
      `${op}: ${name} ${value} is not a whole number, and the elements are ${d}; cast to a float dtype first`,
    );
  if (typeof value === 'bigint' && BigInt(Number(value)) !== value)
    throw new DTypeError(`${op}: ${name} ${value} is beyond 2^53 and no exact number, as scalar parameters are`);
  if (bound) return saturate(value, d);
  return (kind === 'int' ? BigInt.asIntN : BigInt.asUintN)(bytes * 8, BigInt(value));
}

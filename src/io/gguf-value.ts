// GGUF metadata values: thirteen types, arrays of them as typed arrays where they are numbers.
import { ArgumentError } from '../base/errors.js';
import type { Cursor } from './byte-source.js';

export const GGUF_MAGIC = 0x46554747; // "GGUF"
export const GGUF_ALIGNMENT = 32;
export const ALIGNMENT_KEY = 'general.alignment';
/** The format's bounds, as llama.cpp holds to them: dimensions, bytes of a tensor's name, bytes of a key. */
export const MAX_GGUF_RANK = 4;
export const MAX_NAME_BYTES = 63;
export const MAX_KEY_BYTES = 65535;
export const GGUF_TYPES = [
  'u8',
  'i8',
  'u16',
  'i16',
  'u32',
  'i32',
  'f32',
  'bool',
  'string',
  'array',
  'u64',
  'i64',
  'f64',
] as const;
/** A type of GGUF's metadata by name. */
export type GgufType = (typeof GGUF_TYPES)[number];

type NumberArray =
  | Uint8Array
  | Int8Array
  | Uint16Array
  | Int16Array
  | Uint32Array
  | Int32Array
  | Float32Array
  | Float64Array
  | BigUint64Array
  | BigInt64Array;
/** A value of GGUF's metadata; lists of numbers are typed arrays. */
export type GgufScalar = number | bigint | boolean | string | NumberArray | boolean[] | string[] | GgufValue[];

/** A value with its type; arrays also say the type of their elements. */
export interface GgufValue {
  /** Its type. */
  readonly type: GgufType;
  /** The type of a list's elements. */
  readonly of?: GgufType;
  /** The value itself. */
  readonly value: GgufScalar;
}

interface Numeric {
  readonly bytes: number;
  readonly Raw: new (buffer: ArrayBufferLike) => NumberArray;
}
const NUMERIC: Partial<Record<GgufType, Numeric>> = {
  u8: { bytes: 1, Raw: Uint8Array },
  i8: { bytes: 1, Raw: Int8Array },
  u16: { bytes: 2, Raw: Uint16Array },
  i16: { bytes: 2, Raw: Int16Array },
  u32: { bytes: 4, Raw: Uint32Array },
  i32: { bytes: 4, Raw: Int32Array },
  f32: { bytes: 4, Raw: Float32Array },
  u64: { bytes: 8, Raw: BigUint64Array },
  i64: { bytes: 8, Raw: BigInt64Array },
  f64: { bytes: 8, Raw: Float64Array },
};
const MAX_DEPTH = 4;
/** What values take in memory: an element of an array of booleans, an array in an array. */
const COST = { slot: 8, nested: 400 } as const;

/** Reads a length that must leave `least` bytes for each. */
type ReadLength = (what: string, least: number) => number;

const small = (v: number | bigint): number | bigint =>
  typeof v === 'bigint' && v >= Number.MIN_SAFE_INTEGER && v <= Number.MAX_SAFE_INTEGER ? Number(v) : v;

function readType(cursor: Cursor, key: string): GgufType {
  const at = cursor.at;
  const id = cursor.u32('type');
  if (id >= GGUF_TYPES.length) throw cursor.fail(`metadata ${JSON.stringify(key)}: type ${id} is not known`, at);
  return GGUF_TYPES[id];
}

function readText(cursor: Cursor, key: string, length: ReadLength): string {
  return cursor.text(length(`length of ${key}`, 1), `metadata ${JSON.stringify(key)}`);
}

function readBool(cursor: Cursor, key: string): boolean {
  const b = cursor.u8(key);
  if (b > 1) throw cursor.fail(`metadata ${JSON.stringify(key)}: a bool is 0 or 1, not ${b}`, cursor.at - 1);
  return b === 1;
}

export function readGgufValue(
  cursor: Cursor,
  key: string,
  length: ReadLength,
  type = readType(cursor, key),
  depth = 0,
): GgufValue {
  const numeric = NUMERIC[type];
  if (numeric) return { type, value: small(new numeric.Raw(cursor.bytes(numeric.bytes, key).buffer)[0]) };
  if (type === 'bool') return { type, value: readBool(cursor, key) };
  if (type === 'string') return { type, value: readText(cursor, key, length) };
  if (depth >= MAX_DEPTH)
    throw cursor.fail(`metadata ${JSON.stringify(key)}: arrays are nested deeper than ${MAX_DEPTH}`);
  const of = readType(cursor, key);
  return { type, of, value: readArray(cursor, key, length, of, depth) };
}

function readArray(cursor: Cursor, key: string, length: ReadLength, of: GgufType, depth: number): GgufScalar {
  const numeric = NUMERIC[of];
  // An array in an array needs its type and a 32-bit length at least, a string its length.
  const least = numeric?.bytes ?? (of === 'bool' ? 1 : of === 'string' ? 4 : 8);
  const count = length(`length of ${key}`, least);
  if (numeric) return new numeric.Raw(cursor.bytes(count * numeric.bytes, key).buffer);
  // Paid for before the array is made: a hole in the file reads as so many zeros.
  cursor.pay(count * (of === 'array' ? COST.nested : COST.slot), count);
  if (of === 'bool') return Array.from({ length: count }, () => readBool(cursor, key));
  if (of === 'string') return Array.from({ length: count }, () => readText(cursor, key, length));
  return Array.from({ length: count }, () => readGgufValue(cursor, key, length, 'array', depth + 1));
}

function u(bytes: 4 | 8, n: number): Buffer {
  const out = Buffer.alloc(bytes);
  if (bytes === 4) out.writeUInt32LE(n);
  else out.writeBigUInt64LE(BigInt(n));
  return out;
}

export const ggufU32 = (n: number): Buffer => u(4, n);
export const ggufU64 = (n: number): Buffer => u(8, n);
export function ggufText(s: string): Buffer {
  const bytes = Buffer.from(s);
  return Buffer.concat([ggufU64(bytes.length), bytes]);
}

/** A value without its type, as versions 2 and 3 write it. */
export function ggufValueBytes(key: string, { type, of, value }: GgufValue): Buffer {
  const numeric = NUMERIC[type];
  if (numeric) {
    const cell = new numeric.Raw(new ArrayBuffer(numeric.bytes));
    if (numeric.bytes === 8 && type !== 'f64') (cell as BigInt64Array)[0] = BigInt(value as number | bigint);
    else (cell as Float64Array)[0] = value as number;
    return Buffer.from(cell.buffer);
  }
  if (type === 'bool') return Buffer.from([value ? 1 : 0]);
  if (type === 'string') return ggufText(value as string);
  if (of === undefined)
    throw new ArgumentError(`gguf: metadata ${JSON.stringify(key)}: an array must say what it is of`);
  const items = value as ArrayLike<number | bigint | boolean | string | GgufValue>;
  const parts = Array.from(items, (item) =>
    ggufValueBytes(key, of === 'array' ? (item as GgufValue) : { type: of, value: item as GgufScalar }),
  );
  return Buffer.concat([ggufU32(GGUF_TYPES.indexOf(of)), ggufU64(items.length), ...parts]);
}

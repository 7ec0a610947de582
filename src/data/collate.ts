// Samples put together: values of one name become one block of elements, ready to be sent to a thread or a device.
import { DTYPE, type DType, isFloat } from '../base/dtype.js';
import { ArgumentError, DTypeError, ShapeError } from '../base/errors.js';
import { formatShape, sameShape, type Shape } from '../base/shape.js';
import type { Device } from '../tensor/device.js';
import { Tensor } from '../tensor/tensor.js';
import type { Batch, Elements, Sample, Shaped, Value } from './dataset.js';

/** A block of elements as bytes, which travel between threads without a copy. */
export interface Packed {
  /** The element type. */
  readonly dtype: DType;
  /** The shape, batch first. */
  readonly shape: Shape;
  /** The elements, row-major: can be moved between threads. */
  readonly bytes: Uint8Array<ArrayBuffer>;
}
/** A batch before it is on a device. */
export type PackedBatch = Record<string, Packed | string[]>;
/** What a collate function gives: blocks of elements, strings, or tensors as they are. */
export type CollatedBatch = Record<string, Packed | string[] | Tensor>;

const TYPED: readonly (readonly [unknown, DType])[] = [
  [Uint8Array, 'u8'],
  [Int8Array, 'i8'],
  [Int16Array, 'i16'],
  [Int32Array, 'i32'],
  [Uint32Array, 'u32'],
  [BigInt64Array, 'i64'],
  [Float32Array, 'f32'],
  [Float64Array, 'f64'],
];
const isShaped = (v: Value): v is Shaped =>
  typeof v === 'object' && 'shape' in v && 'data' in v && ArrayBuffer.isView((v as Shaped).data);

interface Part {
  readonly shape: Shape;
  readonly dtype: DType;
  readonly values: ArrayLike<number | bigint> | undefined;
  readonly bytes: Uint8Array | undefined;
}
function partOf(name: string, v: Value, given: DType | undefined): Part {
  if (v instanceof Tensor) return { shape: v.shape, dtype: v.dtype, values: undefined, bytes: v.bytesSync() };
  if (typeof v === 'number') return { shape: [], dtype: given ?? 'f32', values: [v], bytes: undefined };
  if (typeof v === 'bigint') return { shape: [], dtype: given ?? 'i64', values: [v], bytes: undefined };
  if (typeof v === 'boolean') return { shape: [], dtype: given ?? 'bool', values: [v ? 1 : 0], bytes: undefined };
  if (Array.isArray(v)) return { shape: [v.length], dtype: given ?? 'f32', values: v as number[], bytes: undefined };
  const { data, shape } = isShaped(v) ? v : { data: v as Elements, shape: [(v as Elements).length] };
  const natural = TYPED.find(([Class]) => data?.constructor === Class)?.[1];
  if (!natural)
    throw new DTypeError(
      `collate: ${name} is ${v === null ? 'null' : ((v as object)?.constructor?.name ?? typeof v)}; samples hold ` +
        'numbers, booleans, strings, lists of numbers, typed arrays and tensors',
    );
  if (given && given !== natural) return { shape, dtype: given, values: data, bytes: undefined };
  return {
    shape,
    dtype: natural,
    values: undefined,
    bytes: new Uint8Array(data.buffer, data.byteOffset, data.byteLength),
  };
}

/** Samples as one batch; every sample has the same names, shapes and dtypes. */
export function pack(samples: readonly Sample[], dtypes: Readonly<Record<string, DType>> = {}): PackedBatch {
  const names = Object.keys(samples[0] ?? {});
  samples.forEach((s, i) => {
    const own = Object.keys(s ?? {});
    const odd = names.find((n) => !own.includes(n)) ?? own.find((n) => !names.includes(n));
    if (odd !== undefined)
      throw new ArgumentError(
        `collate: samples hold values by one set of names, and ${odd} is not in sample ${names.includes(odd) ? i : 0} ` +
          'of a batch',
      );
  });
  return Object.fromEntries(
    names.map((name) => {
      const values = samples.map((s) => s[name]);
      if (typeof values[0] === 'string') return [name, values.map(String)];
      const parts = values.map((v) => partOf(name, v, dtypes[name]));
      const [{ shape, dtype }] = parts;
      const odd = parts.findIndex((p) => !sameShape(p.shape, shape) || p.dtype !== dtype);
      if (odd > 0)
        throw new ShapeError(
          `collate: ${name} is ${dtype} ${formatShape(shape)} in the first sample of a batch and ` +
            `${parts[odd].dtype} ${formatShape(parts[odd].shape)} in sample ${odd}; give a collate function that ` +
            'pads, or samples of one shape',
        );
      const info = DTYPE[dtype];
      const per = shape.reduce((a, b) => a * b, 1);
      const bytes = new Uint8Array(per * parts.length * info.bytes);
      const raw = new info.Raw(bytes.buffer);
      parts.forEach((p, i) => {
        if (p.bytes) bytes.set(p.bytes, i * per * info.bytes);
        else
          for (let k = 0; k < per; k++) {
            const v = (p.values as ArrayLike<number | bigint>)[k];
            raw[i * per + k] = info.encode(isFloat(dtype) ? Number(v) : asWhole(name, v, dtype)) as never;
          }
      });
      return [name, { dtype, shape: [samples.length, ...shape], bytes }];
    }),
  );
}
function asWhole(name: string, v: number | bigint, dtype: DType): bigint {
  if (typeof v === 'number' && !Number.isInteger(v))
    throw new DTypeError(`collate: ${name} holds ${v}, which is not whole; it is ${dtype}`);
  return BigInt(v);
}

/** A packed batch as tensors on a device. */
export const unpack = (batch: CollatedBatch, device: Device): Batch =>
  Object.fromEntries(Object.entries(batch).map(([name, v]) => [name, unpacked(name, v, device)])) as Batch;

function unpacked(name: string, v: CollatedBatch[string], device: Device): Tensor | string[] {
  if (Array.isArray(v)) return v;
  if (v instanceof Tensor) return v.to(device);
  if (!(v?.bytes instanceof Uint8Array))
    throw new DTypeError(`collate: ${name} is none of tensors, blocks of elements as pack() makes them, and strings`);
  return Tensor.fromBytes(v.bytes, v.shape, v.dtype, device);
}

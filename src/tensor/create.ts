// Functions that make tensors: from data, filled, counted, random.
import { asDType, CARRIER, checkValue, DTYPE, type DType, isFloat, isKept } from '../base/dtype.js';
import { ArgumentError, DTypeError, ShapeError } from '../base/errors.js';
import { checkShape, formatShape, said, type Shape, sizeOf } from '../base/shape.js';
import { requireOptions } from '../ops/kernel-row.js';
import { movementOps } from '../ops/movement.js';
import type { KernelRow, Params } from '../ops/op.js';
import { random } from '../ops/random.js';
import type { GradRow } from './autograd.js';
import { Device } from './device.js';
import { drawn as drawnForExamples } from './batched.js';
import { apply, drawInto } from './dispatch.js';
import { defaultGenerator, draw, Generator } from './random.js';
import { stepRecording } from './step-recording.js';
import { Tensor } from './tensor.js';

/** What every function that makes tensors takes. */
export interface TensorOptions {
  /** The element type; f32 where nothing else follows from the data. */
  dtype?: DType;
  /** Where the tensor lies: a device or its name; Device.default unless given. */
  device?: Device | string;
  /** Marks it as a leaf whose gradient is wanted. */
  requiresGrad?: boolean;
}
/** What functions that draw random numbers take besides. */
export interface RandomOptions extends TensorOptions {
  /** A stream of one's own; a plain seed is one that starts here. */
  generator?: Generator;
  /** The same seed gives the same numbers on every device. */
  seed?: number | bigint;
}
/** Numbers, booleans and bigints, nested to any depth; typed arrays, alone or as innermost rows. */
export type NestedInput = number | boolean | bigint | readonly NestedInput[] | ArrayBufferView;

const TYPED = new Map<unknown, DType>([
  [Uint8Array, 'u8'],
  [Uint8ClampedArray, 'u8'],
  [Uint32Array, 'u32'],
  [Int8Array, 'i8'],
  [Int16Array, 'i16'],
  [Int32Array, 'i32'],
  [BigInt64Array, 'i64'],
  [Float32Array, 'f32'],
  [Float64Array, 'f64'],
]);

const OPTIONS = ['dtype', 'device', 'requiresGrad'];
const RANDOM_OPTIONS = [...OPTIONS, 'generator', 'seed'];
/** Refuses options that would be ignored: misspelt ones, or a dtype given alone. */
function checkOptions(op: string, options: TensorOptions, known: readonly string[] = OPTIONS): void {
  if (typeof options === 'number')
    throw new ArgumentError(
      `${op}: ${String(options)} stands where options do; a shape is one list, as in zeros([2, 3])`,
    );
  requireOptions(op, options, known);
  if (options.dtype !== undefined) asDType(options.dtype, op);
}

function finish(t: Tensor, { requiresGrad }: TensorOptions): Tensor {
  return requiresGrad ? t.requireGrad() : t;
}

/** The dtype that a typed array holds; Node's Buffer holds bytes. */
function typedDType(data: ArrayBufferView): DType {
  const natural = TYPED.get(data.constructor) ?? (data instanceof Uint8Array ? 'u8' : undefined);
  if (natural) return natural;
  throw new DTypeError(
    `from: ${data.constructor.name} holds no dtype of ours; use one of ` +
      `${[...TYPED.keys()].map((k) => (k as { name: string }).name).join(', ')}`,
  );
}

function fromTyped(data: ArrayBufferView, shape: Shape | undefined, options: TensorOptions): Tensor {
  const natural = typedDType(data);
  const { length } = data as unknown as { length: number };
  const dims = shape ?? [length];
  if (sizeOf(dims) !== length) throw new ShapeError(`from: ${length} elements do not fill shape ${formatShape(dims)}`);
  const device = Device.of(options.device);
  const t = Tensor.fromBytes(bytesOfView(data), dims, natural, device);
  return finish(options.dtype && options.dtype !== natural ? t.castTo(options.dtype) : t, options);
}

function bytesOfView(data: ArrayBufferView): Uint8Array {
  try {
    return new Uint8Array(data.buffer, data.byteOffset, data.byteLength);
  } catch (cause) {
    throw new ArgumentError(`from: the ${data.constructor.name}'s buffer was transferred away`, { cause });
  }
}

/** As deep as NumPy's and PyTorch's arrays go; an array that holds itself goes deeper. */
const MAX_DEPTH = 64;

/** A tensor from numbers nested as deep as the rank, or from a typed array with a shape. */
export function tensor(
  data: NestedInput,
  options: TensorOptions & {
    /** The shape that flat data is given; default: that of the nested arrays. */
    shape?: Shape;
  } = {},
): Tensor {
  checkOptions('from', options, [...OPTIONS, 'shape']);
  if (ArrayBuffer.isView(data)) return fromTyped(data, options.shape, options);
  const found: number[] = [];
  const flat: (number | bigint | boolean)[] = [];
  let typed: DType | undefined;
  const rowOf = (v: ArrayBufferView, path: string): (number | bigint)[] => {
    const own = typedDType(v);
    if (typed !== undefined && typed !== own)
      throw new DTypeError(`from: element ${path} holds ${own} where others hold ${typed}`);
    typed = own;
    return Array.from(v as unknown as ArrayLike<number | bigint>);
  };
  const walk = (given: NestedInput, depth: number, path: string): void => {
    const v = ArrayBuffer.isView(given) ? rowOf(given, path) : given;
    if (!Array.isArray(v)) {
      if (depth !== found.length && flat.length > 0)
        throw new ShapeError(
          `from: element ${path} is a number where others are arrays: nested arrays must all be equally deep`,
        );
      if (typeof v !== 'number' && typeof v !== 'bigint' && typeof v !== 'boolean')
        throw new ArgumentError(
          `from: ${path === '' ? 'the input' : `element ${path}`} is ${v === null ? 'null' : typeof v}, not a ` +
            'number; it takes numbers, booleans and bigints, arrays of them nested to any depth, or a typed array',
        );
      flat.push(v);
      return;
    }
    if (depth >= MAX_DEPTH)
      throw new ShapeError(`from: arrays are nested deeper than ${MAX_DEPTH}, or one holds itself`);
    if (flat.length === 0 && depth === found.length) found.push(v.length);
    if (depth >= found.length || found[depth] !== v.length) {
      throw new ShapeError(
        `from: array ${path || 'at the top'} has ${v.length} elements where others at its depth have ` +
          `${found[depth] ?? 'none'}`,
      );
    }
    for (let i = 0; i < v.length; i++) walk(v[i] as NestedInput, depth + 1, `${path}[${i}]`); // holes, too
  };
  walk(data, 0, '');
  const natural: DType = typed ?? (typeof flat[0] === 'bigint' ? 'i64' : typeof flat[0] === 'boolean' ? 'bool' : 'f32');
  const dtype = options.dtype ?? natural;
  const info = DTYPE[dtype];
  const raw = new info.Raw(new ArrayBuffer(flat.length * info.bytes));
  flat.forEach((v, i) => {
    if (!isFloat(dtype) && typeof v === 'number' && !Number.isInteger(v))
      throw new DTypeError(`from: ${v} is no ${dtype}; it is not whole`);
    if (!isFloat(dtype)) checkValue('from', BigInt(v), dtype);
    raw[i] = info.encode(isFloat(dtype) ? Number(v) : BigInt(v)) as never;
  });
  return finish(
    Tensor.fromBytes(new Uint8Array(raw.buffer), options.shape ?? found, dtype, Device.of(options.device)),
    options,
  );
}

const make = (row: unknown, params: Record<string, unknown>, options: TensorOptions): Tensor =>
  finish(apply(row as GradRow, [], params, Device.of(options.device))[0], options);

function filled(op: string, shape: Shape, value: number, options: TensorOptions): Tensor {
  checkOptions(op, options);
  checkShape(op, shape);
  return make(movementOps.newFull, { shape, dtype: options.dtype ?? 'f32', value }, options);
}
/** A tensor that holds one value everywhere. */
export const full = (shape: Shape, value: number, options: TensorOptions = {}): Tensor =>
  filled('full', shape, value, options);
/** A tensor of zeros. */
export const zeros = (shape: Shape, options: TensorOptions = {}): Tensor => filled('zeros', shape, 0, options);
/** A tensor of ones. */
export const ones = (shape: Shape, options: TensorOptions = {}): Tensor => filled('ones', shape, 1, options);

/** arange(end), arange(start, end) or arange(start, end, step): start included, end not. f32 unless said. */
export function arange(end: number, options?: TensorOptions): Tensor;
export function arange(start: number, end: number, options?: TensorOptions): Tensor;
export function arange(start: number, end: number | undefined, step?: number, options?: TensorOptions): Tensor;
export function arange(first: number, ...rest: (number | TensorOptions | undefined)[]): Tensor {
  const last = rest.findIndex((v) => typeof v === 'object');
  const [end, step = 1] = (last < 0 ? rest : rest.slice(0, last)) as (number | undefined)[];
  const options = (last < 0 ? {} : rest[last]) as TensorOptions;
  const [from, to] = end === undefined ? [0, first] : [first, end];
  if (!Number.isFinite(from) || !Number.isFinite(to) || !Number.isFinite(step) || step === 0) {
    throw new ArgumentError(`arange: from ${from} to ${to} by ${step}; bounds must be finite and the step not 0`);
  }
  checkOptions('arange', options);
  const dtype = options.dtype ?? 'f32';
  if (!isFloat(dtype) && !(Number.isInteger(from) && Number.isInteger(step)))
    throw new DTypeError(`arange: from ${from} by ${step} gives no ${dtype}; both must be whole`);
  if ((to - from) * step < 0)
    throw new ArgumentError(`arange: from ${from} to ${to} by ${step}; the step leads away from the end`);
  const size = Math.max(0, Math.ceil((to - from) / step));
  for (const v of size > 0 ? [from, from + (size - 1) * step] : []) {
    if (!isFloat(dtype) && !Number.isSafeInteger(v))
      throw new DTypeError(`arange: ${v} is beyond 2^53 and no exact number; bigints in a list are`);
    checkValue('arange', v, dtype);
  }
  return make(movementOps.newArange, { size, dtype, start: from, step }, options);
}
/** n evenly spaced numbers from start to end, both included. */
export function linspace(start: number, end: number, n: number, options: TensorOptions = {}): Tensor {
  if (!Number.isInteger(n) || n < 0) throw new ArgumentError(`linspace: ${n} points; it takes a whole number from 0`);
  if (!Number.isFinite(start) || !Number.isFinite(end))
    throw new ArgumentError(`linspace: from ${start} to ${end}; both must be finite`);
  checkOptions('linspace', options);
  return make(
    movementOps.newArange,
    { size: n, dtype: options.dtype ?? 'f32', start, step: n > 1 ? (end - start) / (n - 1) : 0 },
    options,
  );
}
/** The identity matrix. */
export function eye(n: number, options: TensorOptions = {}): Tensor {
  if (!Number.isSafeInteger(n) || n < 0) throw new ArgumentError(`eye: size ${n}; it takes a whole number from 0`);
  checkOptions('eye', options);
  const i = arange(0, n, 1, { dtype: 'i32', device: options.device });
  return finish(
    i
      .unsqueeze(1)
      .eq(i)
      .cast(options.dtype ?? 'f32'),
    options,
  );
}

const stream = ({ generator, seed }: RandomOptions): Generator | undefined =>
  generator ?? (seed === undefined ? undefined : new Generator(seed));
const drawn = (row: KernelRow<any>, shape: Shape, options: RandomOptions, how: Params): Tensor =>
  drawnForExamples(shape, (all) => drawnHere(row, all, options, how));
function drawnHere(row: KernelRow<any>, shape: Shape, options: RandomOptions, how: Params): Tensor {
  const generator = stream(options);
  // A seed gives the same numbers in every run of a recorded step; a stream goes on.
  const step = options.generator || options.seed === undefined ? stepRecording() : undefined;
  const device = Device.of(options.device);
  const fed = step?.on(device) ? step.stream(generator ?? defaultGenerator) : undefined;
  const params = { ...draw(shape, options.dtype ?? 'f32', generator), ...how };
  if (!fed) return make(row, params, options);
  const { dtype } = params;
  const narrow = isKept(dtype) ? { ...params, dtype: CARRIER[dtype] } : params;
  const out = drawInto(row, device, fed.words, { ...narrow, offset: params.offset - fed.start });
  return finish(isKept(dtype) ? out.castTo(dtype) : out, options);
}
/** Uniform numbers in [lo, up). */
export function rand(
  shape: Shape,
  options: RandomOptions & {
    /** The smallest value; default 0. */
    lo?: number;
    /** The bound above, which is never drawn; default 1. */
    up?: number;
  } = {},
): Tensor {
  checkOptions('rand', options, [...RANDOM_OPTIONS, 'lo', 'up']);
  return drawn(random.randUniform, shape, options, { lo: options.lo ?? 0, up: options.up ?? 1 });
}
/** Normally distributed numbers. */
export function randn(
  shape: Shape,
  options: RandomOptions & {
    /** The mean; default 0. */
    mean?: number;
    /** The standard deviation; default 1. */
    std?: number;
  } = {},
): Tensor {
  checkOptions('randn', options, [...RANDOM_OPTIONS, 'mean', 'std']);
  checkShape('randn', shape);
  return drawn(random.randNormal, shape, options, { mean: options.mean ?? 0, std: options.std ?? 1 });
}
/** Whole numbers in [lo, up). */
export function randint(lo: number, up: number, shape: Shape, options: RandomOptions = {}): Tensor {
  checkOptions('randint', options, RANDOM_OPTIONS);
  checkShape('randint', shape);
  if (!Number.isSafeInteger(lo) || !Number.isSafeInteger(up) || lo >= up)
    throw new ArgumentError(`randint: from ${lo} up to ${up}; both must be whole, the first below the second`);
  const { requiresGrad: _, ...rest } = options;
  return rand(shape, { ...rest, dtype: 'f64', lo, up })
    .floor()
    .castTo(options.dtype ?? 'i64');
}

function requireTensors(op: string, tensors: readonly Tensor[]): void {
  if (!Array.isArray(tensors) || tensors.length === 0 || !tensors.every((t) => t instanceof Tensor))
    throw new ArgumentError(`${op}: needs an array of at least one tensor`);
}

/** Tensors along an existing dimension, and along a new one. */
export function cat(tensors: readonly Tensor[], dim = 0): Tensor {
  requireTensors('cat', tensors);
  return tensors[0].cat(tensors.slice(1), dim);
}
/** Tensors of one shape joined along a new dimension. */
export function stack(tensors: readonly Tensor[], dim = 0): Tensor {
  requireTensors('stack', tensors);
  return tensors[0].stack(tensors.slice(1), dim);
}
/** Coordinate grids of vectors; 'xy' exchanges the first two dimensions. */
export function meshgrid(vectors: readonly Tensor[], indexing: 'ij' | 'xy' = 'ij'): Tensor[] {
  if (!Array.isArray(vectors) || vectors.length === 0 || vectors.some((v) => !(v instanceof Tensor) || v.rank !== 1))
    throw new ArgumentError('meshgrid: takes a list of vectors');
  if (indexing !== 'ij' && indexing !== 'xy')
    throw new ArgumentError(`meshgrid: indexing is 'ij' or 'xy', as in meshgrid([a, b], 'xy'), not ${said(indexing)}`);
  const plain = vectors.map((_, i) => i);
  const order = indexing === 'xy' && plain.length > 1 ? [1, 0, ...plain.slice(2)] : plain;
  const shape = order.map((i) => vectors[i].size);
  return vectors.map((v, i) => v.reshape(shape.map((_, d) => (order[d] === i ? v.size : 1))).broadcastTo(shape));
}

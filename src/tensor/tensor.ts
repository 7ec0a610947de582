// Tensor: a dtype, a layout and shared storage on a device. Its math methods come from the op table.
import { asDType, bytesOf, DTYPE, type DType, isFloat } from '../base/dtype.js';
import { ArgumentError, DisposedError, DTypeError, GradError, OutOfMemoryError, ShapeError } from '../base/errors.js';
import { Layout } from '../base/layout.js';
import { checkShape, formatShape, normalizeDim, type Shape, sizeOf } from '../base/shape.js';
import type { Memory } from '../backends/backend.js';
import type { TableMethods } from '../ops/table.js';
import type { Node } from './autograd.js';
import { backward, type BackwardOptions, type Gradients } from './backward.js';
import type { NestedInput, tensor } from './create.js';
import type { Device } from './device.js';
import type { CloseOptions } from '../ops/numeric.js';
import type { KernelRow, Params } from '../ops/op.js';
import type { Index } from './indexing.js';
import type { DrawOptions, LikeOptions, MultinomialOptions } from './sampling.js';
import { track } from './scope.js';
import { Storage } from './storage.js';

/** What data() gives: the dtype's typed array; small floats as Float32Array. */
export interface DataOf extends Record<DType, Data> {
  /** 0 or 1 a byte. */
  bool: Uint8Array<ArrayBuffer>;
  /** Whole numbers 0 to 255. */
  u8: Uint8Array<ArrayBuffer>;
  /** Whole numbers 0 to 2^32 - 1. */
  u32: Uint32Array<ArrayBuffer>;
  /** Whole numbers -128 to 127. */
  i8: Int8Array<ArrayBuffer>;
  /** Whole numbers of 16 bits. */
  i16: Int16Array<ArrayBuffer>;
  /** Whole numbers of 32 bits. */
  i32: Int32Array<ArrayBuffer>;
  /** bigint, since a number holds only 53 bits. */
  i64: BigInt64Array<ArrayBuffer>;
  /** Widened to f32, which holds every value. */
  f8e4m3: Float32Array<ArrayBuffer>;
  /** Widened to f32, which holds every value. */
  f8e5m2: Float32Array<ArrayBuffer>;
  /** Widened to f32, which holds every value. */
  bf16: Float32Array<ArrayBuffer>;
  /** Widened to f32, which holds every value. */
  f16: Float32Array<ArrayBuffer>;
  /** As they lie in memory. */
  f32: Float32Array<ArrayBuffer>;
  /** As they lie in memory. */
  f64: Float64Array<ArrayBuffer>;
}
/** Any of these. */
export type Data =
  | Uint8Array
  | Int8Array
  | Uint32Array
  | Int16Array
  | Int32Array
  | BigInt64Array
  | Float32Array
  | Float64Array;
/** Nested arrays of numbers, as deep as the rank. */
export type Nested = number | Nested[];

let nextId = 1;

/** Numbers of one dtype in a shape on a device. Math methods come from the op table: `wick ops` lists them. */
export interface Tensor extends TableMethods {
  /**
   * Numbers pick, [start, end, step] slices, ':' takes all, null adds a dimension, '...' fills up, tensors select or
   * mask. Several index tensors belong together, as in PyTorch: `x.at(rows, columns)` is an element for each pair.
   */
  at(...indices: Index[]): Tensor;
  /** Elements where the mask is not 0. */
  maskedSelect(mask: Tensor): Tensor;
  /** Positions of elements that are not 0, [count, rank] i64. */
  nonzero(): Tensor;
  /** Uniform numbers in [0, 1) of this shape, dtype and device. */
  randLike(options?: LikeOptions): Tensor;
  /** Normally distributed numbers of this shape, dtype and device. */
  randnLike(options?: LikeOptions): Tensor;
  /** 1 with the probability that each element gives, else 0. */
  bernoulli(options?: DrawOptions): Tensor;
  /** `count` indices (i64) of each row of weights, drawn in proportion to them. */
  multinomial(count: number, options?: MultinomialOptions): Tensor;
  /** A tensor of the given numbers on this device, of this dtype unless said. */
  newTensor(
    data: NestedInput,
    options?: {
      /** Default: this tensor's dtype. */
      readonly dtype?: DType;
    },
  ): Tensor;
  /** Not for users: a row without kernels of its own, run where there is a function for it: here or on the CPU. */
  onHost(row: KernelRow, inputs: readonly Tensor[], params?: Params): Tensor[];
  /** Whether shape, dtype and every element are equal; NaN equals nothing. Waits for the device. */
  equal(other: Tensor): boolean;
  /** Whether every element is close to the other's: |x - y| <= atol + rtol * |y|. Waits for the device. */
  allclose(other: Tensor, options?: CloseOptions): boolean;
}
type N = number;
/** The sizes of tensors of up to six dimensions, by their number. */
interface Sizes {
  0: [];
  1: [N];
  2: [N, N];
  3: [N, N, N];
  4: [N, N, N, N];
  5: [N, N, N, N, N];
  6: [N, N, N, N, N, N];
}

/** Room for a tensor's elements on the host, which takes less in one piece than a device does. */
function hostBytes(size: number): Uint8Array<ArrayBuffer> {
  try {
    return new Uint8Array(size);
  } catch (cause) {
    throw new OutOfMemoryError(
      `reading ${size} bytes: Node has no room for them in one piece; read the tensor in parts, as x.narrow(0, at, n)`,
      { cause },
    );
  }
}

/** Numbers of one dtype in a shape on a device; views share memory. Made by tensor(), zeros(), randn() and the like. */
export class Tensor {
  /** A tensor from nested arrays or a typed array. */
  declare static from: typeof tensor;
  /** Identity for gradients; views and results have ids of their own. */
  readonly id: number;
  /** Where the numbers lie and where ops on them run. */
  readonly device: Device;
  /** The type of every element. */
  readonly dtype: DType;
  /** How the shape lies in memory: strides and offset in elements. */
  readonly layout: Layout;
  /** The block of memory, shared with views. */
  readonly storage: Storage;
  /** Whether gradients flow to or through this tensor; requireGrad() marks a leaf. */
  requiresGrad = false;
  /** The op this came from, when recorded. */
  node: Node | undefined = undefined;
  /** Keep this tensor's gradient although it is not a leaf. */
  retainsGrad = false;
  #disposed = false;
  #lent = false;

  /** Not for users: see the functions and static methods that make tensors. */
  constructor(device: Device, storage: Storage, layout: Layout, dtype: DType, id = nextId++, tracked = true) {
    if (!(storage instanceof Storage))
      throw new ArgumentError(
        'new Tensor: takes a device and its storage, for wick itself; make tensors with Tensor.from([[1, 2], [3, ' +
          '4]]) (nested arrays, a typed array with { shape }, a number), zeros, ones, full, arange, rand or randn',
      );
    this.id = id;
    this.device = device;
    this.storage = storage.retain();
    this.layout = layout;
    this.dtype = dtype;
    if (tracked) track(this);
  }

  /** Uninitialised memory. */
  static empty(shape: Shape, dtype: DType, device: Device): Tensor {
    checkShape('empty', shape);
    return Tensor.ofLayout(Layout.contiguous(shape), dtype, device);
  }
  /** The same for a plain layout, which tensors may share. */
  static ofLayout(layout: Layout, dtype: DType, device: Device): Tensor {
    return new Tensor(device, new Storage(device.backend, layout.size * bytesOf(dtype)), layout, dtype);
  }

  /** Memory that is taken and filled when it is first asked for. */
  static later(shape: Shape, dtype: DType, device: Device, fill: (memory: Memory) => void): Tensor {
    const layout = Layout.contiguous(shape);
    return new Tensor(device, new Storage(device.backend, layout.size * bytesOf(dtype), fill), layout, dtype);
  }

  /** Raw little-endian elements. */
  static fromBytes(bytes: Uint8Array, shape: Shape, dtype: DType, device: Device): Tensor {
    const want = sizeOf(shape) * bytesOf(dtype);
    if (bytes.byteLength !== want) {
      throw new ShapeError(
        `fromBytes: shape ${formatShape(shape)} of ${dtype} needs ${want} bytes, got ${bytes.byteLength}`,
      );
    }
    const t = Tensor.empty(shape, dtype, device);
    // Kernels rely on 0 and 1 for truth values.
    const held = dtype === 'bool' && bytes.some((b) => b > 1) ? bytes.map((b) => (b ? 1 : 0)) : bytes;
    if (want > 0) device.backend.write(t.memory, 0, held);
    return t;
  }

  /**
   * A copy: whoever changes it changes nothing of the tensor. (A frozen list would make slices of shapes twenty times
   * as slow.)
   */
  get shape(): Shape {
    return this.layout.shape.slice();
  }
  /** The number of dimensions. */
  get rank(): number {
    return this.layout.shape.length;
  }
  /** The size of a dimension; negative ones count from the end. */
  dim(i: number): number {
    if (i === undefined) throw new ArgumentError('dim: which one? x.dim(-1) is the last; x.rank is how many there are');
    return this.layout.shape[normalizeDim('dim', i, this.rank)];
  }
  /** The sizes of a tensor of so many dimensions: `const [batch, time, width] = x.dims(3)`; another rank is refused. */
  dims<N extends keyof Sizes>(rank: N): Sizes[N] {
    if (rank !== this.rank)
      throw new ShapeError(`dims: ${formatShape(this.shape)} has ${this.rank} dimensions, not ${String(rank)}`);
    return this.shape as unknown as Sizes[N];
  }
  /** The number of elements. */
  get size(): number {
    return this.layout.size;
  }
  /** The memory as backends see it; an error after dispose(). */
  get memory(): Memory {
    if (this.#disposed)
      throw new DisposedError(
        `this tensor of shape ${formatShape(this.shape)} was disposed of: by dispose(), at the end of a \`using\`, or ` +
          'of a scope, which leaves what its function returns and what keep(x) was called with',
      );
    return this.storage.memory;
  }
  /** Whether dispose() was called. */
  get isDisposed(): boolean {
    return this.#disposed;
  }

  /** Another tensor over the same storage. */
  withLayout(layout: Layout): Tensor {
    if (this.#disposed) void this.memory; // says so
    const { bytes } = this.storage;
    if (!layout.fits(bytes / bytesOf(this.dtype)))
      throw new ShapeError(
        `withLayout: shape ${formatShape(layout.shape)} with strides ${formatShape(layout.strides)} from ` +
          `${layout.offset} does not lie within the ${bytes} bytes of this ${this.dtype} tensor`,
      );
    return new Tensor(this.device, this.storage, layout, this.dtype);
  }
  /**
   * The same bits seen as another dtype, without a gradient: one of the same size, or of another, where the last
   * dimension counts the smaller or larger elements. Memory is shared where the layout allows it.
   */
  bitcast(dtype: DType): Tensor {
    const [from, to] = [bytesOf(this.dtype), bytesOf(asDType(dtype, 'bitcast'))];
    if (dtype === 'bool' && this.dtype !== 'bool')
      throw new DTypeError(`bitcast: truth values are 0 and 1 alone, and ${this.dtype} has other bits; compare with 0`);
    if (from === to) return new Tensor(this.device, this.storage, this.layout, dtype);
    const shape = this.rank === 0 ? [1] : [...this.layout.shape];
    const bytes = shape[shape.length - 1] * from;
    if (bytes % to !== 0)
      throw new ShapeError(
        `bitcast: the last dimension of ${formatShape(this.shape)} holds ${bytes} bytes, no whole number of ${dtype}`,
      );
    const fits = this.layout.isContiguous && (this.layout.offset * from) % to === 0;
    const dense = fits ? this : detached(this).copy();
    shape[shape.length - 1] = bytes / to;
    return new Tensor(this.device, dense.storage, Layout.contiguous(shape, (dense.layout.offset * from) / to), dtype);
  }
  /** Slices along the first dimension. */
  *[Symbol.iterator](): Generator<Tensor, void> {
    if (this.rank === 0) throw new ShapeError('iteration: a tensor of rank 0 has no dimension to go along');
    for (let i = 0; i < this.layout.shape[0]; i++) yield this.get(i);
  }
  /** Another handle of this very tensor, same id: what graphs hold. */
  alias(): Tensor {
    const t = new Tensor(this.device, this.storage, this.layout, this.dtype, this.id, false);
    t.requiresGrad = this.requiresGrad;
    t.node = this.node;
    t.retainsGrad = this.retainsGrad;
    held(t);
    return t;
  }
  /** The same values cut off from the graph. */
  detach(): Tensor {
    return this.withLayout(this.layout);
  }

  /** Marks a leaf whose gradient is wanted. */
  requireGrad(on = true): this {
    if (on && !isFloat(this.dtype))
      throw new GradError(`requireGrad: only floats have gradients, this is ${this.dtype}`);
    this.requiresGrad = on;
    return this;
  }
  /** Keeps the gradient of an intermediate result. */
  retainGrad(): this {
    this.retainsGrad = true;
    if (this.node) for (const o of this.node.outputs) if (o.id === this.id) o.retainsGrad = true;
    return this;
  }
  /** Gradients of this result by every leaf it depends on; a result that is not a single number needs `grad`. */
  backward(options?: BackwardOptions): Gradients {
    return backward(this, options);
  }

  /** A 0-d tensor of this dtype on this device, kept for reuse: what numbers become beside a tensor. */
  constant(value: number): Tensor {
    return this.device.constant(value, this.dtype);
  }

  /** Writes a tensor, broadcast, or a number into this tensor's elements, in place, outside any graph. */
  assign(src: Tensor | number): this {
    assignInto(this, typeof src === 'number' ? this.constant(src) : src);
    return this;
  }

  /** The same values on another device; this tensor where it is there already. The graph follows. */
  /** On another device, given itself or by its name. */
  to(device: Device | string): Tensor {
    return device === this.device ? this : moveTo(this, device);
  }

  #contiguousBytes<T>(read: (memory: Memory, offset: number, target: Uint8Array) => T): {
    target: Uint8Array<ArrayBuffer>;
    done: T | undefined;
  } {
    const size = this.size * bytesOf(this.dtype);
    const target = hostBytes(size);
    if (size === 0) return { target, done: undefined };
    const dense = this.layout.isContiguous ? this : detached(this).copy();
    const done = read(dense.memory, dense.layout.offset * bytesOf(this.dtype), target);
    if (dense !== this) dense.dispose();
    return { target, done };
  }

  /** Raw little-endian elements in row-major order. */
  async bytes(): Promise<Uint8Array<ArrayBuffer>> {
    const { target, done } = this.#contiguousBytes((m, o, t) => this.device.backend.read(m, o, t));
    await done;
    return target;
  }
  /** The same, waiting for the device. */
  bytesSync(): Uint8Array<ArrayBuffer> {
    return this.#contiguousBytes((m, o, t) => this.device.backend.readSync(m, o, t)).target;
  }
  /**
   * Elements in row-major order; bool as 0 and 1 in a Uint8Array, i64 as BigInt64Array, f16, bf16 and f8e4m3 widened to
   * Float32Array.
   */
  async data(): Promise<Data>;
  /** The same, typed by the dtype that is expected; another dtype is an error. */
  async data<D extends DType>(dtype: D): Promise<DataOf[D]>;
  async data(dtype?: DType): Promise<Data> {
    this.#expect('data', dtype);
    return decode(await this.bytes(), this.dtype);
  }
  /** The same, waiting for the device. */
  dataSync(): Data;
  /** The same, typed by the dtype that is expected; another dtype is an error. */
  dataSync<D extends DType>(dtype: D): DataOf[D];
  dataSync(dtype?: DType): Data {
    this.#expect('dataSync', dtype);
    return decode(this.bytesSync(), this.dtype);
  }
  #expect(op: string, dtype: DType | undefined): void {
    if (dtype !== undefined && dtype !== this.dtype)
      throw new DTypeError(`${op}: ${dtype} is expected, this tensor is ${this.dtype}; cast it first`);
  }
  /**
   * Nested arrays of numbers, as deep as the rank. Who knows it says so: `x.toArray<number[][]>()`.
   */
  toArray<T extends Nested = Nested>(): T {
    return nest(this.#numbers(), this.shape) as T;
  }
  /** What JSON.stringify writes of a tensor: its nested arrays. */
  toJSON(): Nested {
    return this.toArray();
  }
  /** The single element of a tensor that has one. */
  item(): number {
    if (this.size !== 1)
      throw new ShapeError(`item: shape ${formatShape(this.shape)} has ${this.size} elements, not one`);
    return this.#numbers()[0];
  }
  #numbers(): ArrayLike<number> {
    const data = this.dataSync();
    return data instanceof BigInt64Array ? Array.from(data, safeNumber) : data;
  }

  /** Not for users: a constant that its device keeps and lends; only the device lets it go. */
  lend(on = true): this {
    this.#lent = on;
    return this;
  }

  /**
   * Gives the memory back once no other tensor shares it. Using a disposed tensor is an error; disposing twice is not.
   */
  dispose(): void {
    if (this.#disposed || this.#lent) return;
    this.#disposed = true;
    this.storage.release();
  }
  /** What `using` calls at the end of a block. */
  [Symbol.dispose](): void {
    this.dispose();
  }

  /** The numbers as text, large tensors by their edges; printOptions say how. */
  toString(): string {
    return display(this);
  }
  /** Text for `${x}`; operators of JavaScript would make text or NaN of a tensor, and are refused. */
  [Symbol.toPrimitive](hint: string): string {
    if (hint === 'string') return this.toString();
    throw new ArgumentError(
      'JavaScript has no operators for tensors: write x.add(y), x.sub(y), x.mul(y), x.lt(y), x.eq(y); `${x}` or ' +
        'String(x) for text, x.item() for the number in it',
    );
  }
  [Symbol.for('nodejs.util.inspect.custom')](): string {
    return this.#disposed ? `Tensor ${formatShape(this.shape)} ${this.dtype} (disposed)` : display(this);
  }
}

function safeNumber(v: bigint): number {
  const n = Number(v);
  if (!Number.isSafeInteger(n))
    throw new DTypeError(`toArray: ${v} is beyond 2^53 and no exact number; data() gives bigint`);
  return n;
}

function decode(bytes: Uint8Array<ArrayBuffer>, dtype: DType): Data {
  const { Raw, decode: one } = DTYPE[dtype];
  const raw = new Raw(bytes.buffer);
  if (!isFloat(dtype) || dtype === 'f32' || dtype === 'f64') return raw as Data;
  const out = new Float32Array(raw.length);
  for (let i = 0; i < out.length; i++) out[i] = one(raw[i]) as number;
  return out;
}

function nest(flat: ArrayLike<number>, shape: Shape): Nested {
  let at = 0;
  const build = (depth: number): Nested => {
    if (depth === shape.length) return flat[at++];
    return Array.from({ length: shape[depth] }, () => build(depth + 1));
  };
  return build(0);
}

// Filled in by methods.ts, which needs this class first: one place where the circle closes.
let display: (t: Tensor) => string;
let assignInto: (dst: Tensor, src: Tensor) => void;
let moveTo: (t: Tensor, device: Device | string) => Tensor;
let held: (t: Tensor) => void;
const detached = (t: Tensor): Tensor => (t.requiresGrad ? t.detach() : t);

export function connect(parts: {
  display: typeof display;
  assignInto: typeof assignInto;
  moveTo: typeof moveTo;
  held: typeof held;
}): void {
  ({ display, assignInto, moveTo, held } = parts);
}

// Where layers get their tensors: fresh ones from a VarMap, stored ones from files of any format, under nested names.
import type { DType } from '../base/dtype.js';
import { ArgumentError, ShapeError } from '../base/errors.js';
import { formatShape, sameShape, type Shape, sizeOf } from '../base/shape.js';
import { loadTensors, saveTensors, toTensor } from '../io/load.js';
import { type Part, partRecord } from '../io/part-record.js';
import { openTensors, type OpenOptions, type TensorFile } from '../io/open.js';
import type { TensorRecord } from '../io/stored-dtype.js';
import type { BlockType } from '../ops/quantized.js';
import { noGrad } from '../tensor/autograd.js';
import { Device } from '../tensor/device.js';
import { QTensor } from '../tensor/qtensor.js';
import type { Generator } from '../tensor/random.js';
import { keep, scope } from '../tensor/scope.js';
import { isFloatType } from '../tensor/stored-floats.js';
import type { Tensor } from '../tensor/tensor.js';
import { type Init, initialise, ZERO } from './init.js';
import { partOf } from './part-of.js';

/** As what and where a tensor is wanted. */
export interface VarOptions {
  /** The element type to give. */
  readonly dtype: DType;
  /** The device to give it on. */
  readonly device: Device;
  /** The stream that a new tensor is drawn from. */
  readonly generator?: Generator;
}
/** Gives tensors by full name; `shape` is undefined where the caller takes any. */
export interface VarSource {
  /** The tensor of a full name; `init` says how it begins where the source makes new ones. */
  get(name: string, shape: Shape | undefined, init: Init, options: VarOptions): Tensor;
  /** Whether there is a tensor of this full name. */
  has(name: string): boolean;
  /** A stored tensor, of which only what is asked for is read; sources that hold tensors in memory have none. */
  record?(name: string): TensorRecord;
  /** The tensor in the blocks it is stored in; undefined where it is stored as floats. */
  blocks?(name: string): StoredBlocks | undefined;
  /** Is told how many bytes of a record, as floats of 4 bytes where they are in blocks, have come to a device. */
  loaded?(bytes: number): void;
}
/**
 * A tensor in quantized blocks, as it is stored: rows of bytes, of 8-bit floats with scales beside them, or of 16-bit
 * floats.
 */
export interface StoredBlocks {
  /** The blocks' type. */
  readonly type: BlockType;
  /** Of the values: [..., rows, values of a row]. */
  readonly shape: Shape;
  /** [..., rows, bytes of a row]. */
  readonly blocks: TensorRecord;
  /** Of 8-bit floats: [..., rows, scales of a row]. */
  readonly scales?: TensorRecord;
}

/** Trainable tensors by name, in the order they were made. */
export class VarMap implements VarSource {
  readonly #vars = new Map<string, Tensor>();

  /** The variable of this name, made as `init` says where there is none. */
  get(name: string, shape: Shape | undefined, init: Init, options: VarOptions): Tensor {
    const known = this.#vars.get(name);
    if (known) {
      if (shape && !sameShape(shape, known.shape))
        throw new ShapeError(`VarMap: ${name} is ${formatShape(known.shape)}, asked for as ${formatShape(shape)}`);
      return known;
    }
    if (!shape)
      throw new ArgumentError(`VarMap: there is no ${JSON.stringify(name)}, and without a shape none can be made`);
    const made = keep(initialise(init, shape, options)).requireGrad();
    this.#vars.set(name, made);
    return made;
  }
  /** Whether there is a variable of this name. */
  has(name: string): boolean {
    return this.#vars.has(name);
  }
  /** Gives a variable this value, or adds one. */
  set(name: string, value: Tensor): void {
    const known = this.#vars.get(name);
    if (known) noGrad(() => known.assign(value.to(known.device).cast(known.dtype)));
    else this.#vars.set(name, keep(value.detach()).requireGrad());
  }
  /** All names, in the order the variables were made in. */
  names(): string[] {
    return [...this.#vars.keys()];
  }
  /** All variables, in that order: what an optimizer takes. */
  all(): Tensor[] {
    return [...this.#vars.values()];
  }
  /** All variables by name. */
  entries(): ReadonlyMap<string, Tensor> {
    return this.#vars;
  }
  /** The ending of the path names the format. */
  save(path: string): void {
    saveTensors(path, this.#vars);
  }
  /** Every variable's value from a file; names the file lacks are an error. */
  load(path: string): void {
    const stored = loadTensors(path, { device: this.all()[0]?.device });
    for (const name of this.#vars.keys()) {
      const value = stored.get(name);
      if (!value) throw new ArgumentError(`VarMap.load: ${path} has no ${JSON.stringify(name)}`);
      this.set(name, value);
    }
    for (const t of stored.values()) t.dispose();
  }
}

/** Tensors that are there already. */
const fromMap = (tensors: ReadonlyMap<string, Tensor>): VarSource => ({
  has: (name) => tensors.has(name),
  get: (name, shape, _init, { dtype, device }) => {
    const t = tensors.get(name);
    if (!t) throw missing(name, [...tensors.keys()]);
    return checked(name, t.to(device).cast(dtype), shape);
  },
});

/** Tensors read when they are asked for, one at a time. */
const fromFiles = (files: readonly TensorFile[]): VarSource => {
  const where = new Map<string, TensorFile>();
  for (const file of files) for (const name of file.names) if (!where.has(name)) where.set(name, file);
  const record = (name: string): TensorRecord => {
    const file = where.get(name);
    if (!file) throw missing(name, [...where.keys()]);
    return file.record(name);
  };
  return {
    has: (name) => where.has(name),
    record,
    get: (name, shape, _init, { dtype, device }) => {
      const stored = toTensor(record(name), device);
      const t = checked(name, stored.cast(dtype), shape);
      if (t !== stored) stored.dispose();
      return keep(t);
    },
  };
};

const FRESH: VarSource = {
  has: () => false,
  get: (name, shape, init, options) => {
    if (!shape) throw new ArgumentError(`VarBuilder: ${JSON.stringify(name)} is to be made, but no shape is given`);
    return keep(initialise(init, shape, options)).requireGrad();
  },
};

function missing(name: string, known: readonly string[]): ArgumentError {
  const last = name.split('.').pop() as string;
  const near = known.filter((k) => k.endsWith(last)).slice(0, 4);
  return new ArgumentError(
    `VarBuilder: there is no tensor ${JSON.stringify(name)} among ${known.length}${
      near.length ? `; similar names: ${near.join(', ')}` : ''
    }`,
  );
}
const unlike = (name: string, stored: Shape, asked: Shape): ShapeError =>
  new ShapeError(`VarBuilder: ${name} is ${formatShape(stored)}, asked for as ${formatShape(asked)}`);
function checked(name: string, t: Tensor, shape: Shape | undefined): Tensor {
  if (shape && !sameShape(shape, t.shape)) throw unlike(name, t.shape, shape);
  return t;
}

/** As what and where tensors are made or read. */
export interface BuilderOptions extends OpenOptions {
  /** Default f32. */
  readonly dtype?: DType;
  /** A device or its name. */
  readonly device?: Device | string;
  /** The stream that new tensors are drawn from; default the device's own. */
  readonly generator?: Generator;
}
/** A part of a tensor for one of several workers. */
export interface Shard {
  /** The dimension that is divided. */
  readonly dim: number;
  /** Which part, from 0. */
  readonly rank: number;
  /** How many parts. */
  readonly worldSize: number;
}

/**
 * Where layers get their tensors by nested names: new ones, those of files, or those of a map. `vb.pp('layers').pp(0)`
 * goes down, `vb.get(shape, 'weight')` answers layers.0.weight.
 */
export class VarBuilder {
  readonly #source: VarSource;
  readonly #path: readonly string[];
  readonly #rename: (name: string) => string;
  /** What tensors are given as. */
  readonly dtype: DType;
  /** Where tensors are given. */
  readonly device: Device;
  /** The stream that new tensors are drawn from. */
  readonly generator: Generator | undefined;

  constructor(
    source: VarSource,
    options: BuilderOptions = {},
    path: readonly string[] = [],
    rename: (name: string) => string = (n) => n,
  ) {
    this.#source = source;
    this.#path = path;
    this.#rename = rename;
    this.dtype = options.dtype ?? 'f32';
    this.device = Device.of(options.device);
    this.generator = options.generator;
  }
  /** Makes what is asked for and remembers it: for training. */
  static fromVarMap(map: VarMap, options: BuilderOptions = {}): VarBuilder {
    return new VarBuilder(map, options);
  }
  /** Tensors that are there already, by their full names. */
  static fromTensors(tensors: ReadonlyMap<string, Tensor>, options: BuilderOptions = {}): VarBuilder {
    return new VarBuilder(fromMap(tensors), options);
  }
  /** safetensors (a file, an index of shards or a folder), npz, pt and gguf files; several are searched in order. */
  static fromFiles(paths: string | readonly string[], options: BuilderOptions = {}): VarBuilder {
    const list = typeof paths === 'string' ? [paths] : paths;
    return new VarBuilder(fromFiles(list.map((p) => openTensors(p, options))), options);
  }
  /** New trainable tensors that nothing else holds: what a layer made by its sizes begins with. */
  static fresh(options: BuilderOptions = {}): VarBuilder {
    return new VarBuilder(FRESH, options);
  }
  /** Zeros of every shape asked for. */
  static zeros(options: BuilderOptions = {}): VarBuilder {
    return new VarBuilder(
      { has: () => true, get: (_name, shape, _init, o) => initialise(ZERO, shape ?? [], o) },
      options,
    );
  }

  #with(change: {
    path?: readonly string[];
    dtype?: DType;
    device?: Device;
    rename?: (name: string) => string;
  }): VarBuilder {
    const options = {
      dtype: change.dtype ?? this.dtype,
      device: change.device ?? this.device,
      generator: this.generator,
    };
    return new VarBuilder(this.#source, options, change.path ?? this.#path, change.rename ?? this.#rename);
  }
  /** The same builder inside `name`; several names at once are joined by dots. */
  pp(...names: readonly (string | number)[]): VarBuilder {
    return this.#with({ path: [...this.#path, ...names.map(String)] });
  }
  /** The names gone down, joined by dots: 'layers.0'. */
  get prefix(): string {
    return this.#path.join('.');
  }
  /** The same source from the top. */
  root(): VarBuilder {
    return this.#with({ path: [] });
  }
  /** The same source and prefix, giving another dtype. */
  withDType(dtype: DType): VarBuilder {
    return this.#with({ dtype });
  }
  /** The same source and prefix, giving on another device. */
  withDevice(device: Device): VarBuilder {
    return this.#with({ device });
  }
  /** A stored tensor of this name under the prefix; undefined where the source holds its tensors in memory. */
  record(name: string): TensorRecord | undefined {
    return this.#source.record?.(this.#full(name));
  }
  /** The tensor of this name under the prefix in the blocks it is stored in; undefined where those are floats. */
  blocks(name: string): StoredBlocks | undefined {
    return this.#source.blocks?.(this.#full(name));
  }
  /** A stored tensor, or what was made of one, on the builder's device. */
  load(record: TensorRecord, dtype: DType = this.dtype): Tensor {
    const stored = toTensor(record, this.device);
    const t = stored.cast(dtype);
    if (t !== stored) stored.dispose();
    this.#source.loaded?.(record.byteLength);
    return keep(t);
  }
  /** The same for blocks. */
  loadBlocks({ type, shape, blocks, scales }: StoredBlocks): QTensor {
    const [own, by] = [blocks, scales].map((r) => r && keep(toTensor(r, this.device)));
    this.#source.loaded?.(isFloatType(type) ? blocks.byteLength : 4 * sizeOf(shape));
    return new QTensor([{ type, blocks: own as Tensor, ...(by && { scales: by }) }]);
  }
  /** A stored tensor in ggml's blocks, or undefined where the source holds floats (or decodes them). */
  quantized(name: string): QTensor | undefined {
    const stored = this.blocks(name);
    return stored && this.loadBlocks(stored);
  }
  /** Whether the tensor of this name is stored in quantized blocks. */
  hasBlocks(name: string): boolean {
    return this.blocks(name) !== undefined;
  }
  /** Asks the source for other names: f is given the full one. */
  rename(f: (name: string) => string): VarBuilder {
    const before = this.#rename;
    return this.#with({ rename: (name) => before(f(name)) });
  }
  #full(name: string): string {
    return this.#rename([...this.#path, name].join('.'));
  }
  /** Whether there is a tensor of this name under the prefix. */
  has(name: string): boolean {
    return this.#source.has(this.#full(name));
  }
  /** The tensor of this name under the prefix; a stored one must have this shape, a new one begins as `init` says. */
  get(shape: Shape | undefined, name: string, init: Init = ZERO, dtype: DType = this.dtype): Tensor {
    return this.#source.get(this.#full(name), shape, init, { dtype, device: this.device, generator: this.generator });
  }
  /** One worker's part of a stored tensor. */
  shard(name: string, { dim, rank, worldSize }: Shard): Tensor {
    return this.part(undefined, name, { dim, index: rank, count: worldSize });
  }
  /** One of several parts of a stored tensor, whose whole shape is given; files are read no further. */
  part(shape: Shape | undefined, name: string, part: Part, dtype: DType = this.dtype): Tensor {
    const record = this.record(name);
    if (record) {
      if (shape && !sameShape(shape, record.shape)) throw unlike(name, record.shape, shape);
      return this.load(partRecord(record, part), dtype);
    }
    const whole = this.get(shape, name, ZERO, dtype);
    const own = keep(scope(() => partOf(whole, part, name).copy()));
    whole.dispose();
    return own;
  }
}

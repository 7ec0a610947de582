// Where a model comes from: a Hugging Face folder or a GGUF file (in shards, too), its tensors handed out once and
// counted.
import { existsSync, statSync } from 'node:fs';
import { basename, dirname, join } from 'node:path';
import type { DType } from '../../base/dtype.js';
import { ArgumentError, FormatError, ShapeError, UnsupportedError } from '../../base/errors.js';
import { formatShape, sameShape, type Shape } from '../../base/shape.js';
import { Gguf } from '../../io/gguf.js';
import { readJsonFile } from '../../io/json-file.js';
import { toTensor } from '../../io/load.js';
import { openFolder } from '../../io/model-folder.js';
import type { TensorRecord } from '../../io/stored-dtype.js';
import type { BuilderOptions, StoredBlocks, VarOptions, VarSource } from '../../nn/var-builder.js';
import { VarBuilder } from '../../nn/var-builder.js';
import type { Init } from '../../nn/init.js';
import { keep } from '../../tensor/scope.js';
import { type BlockType, isBlockType } from '../../ops/quantized.js';
import { floatType } from '../../tensor/stored-floats.js';
import type { Tensor } from '../../tensor/tensor.js';
import { isObject, type Json } from './config.js';
import { withScales } from './scaled-weights.js';

export type ModelFormat = 'huggingface' | 'gguf';
/** The config's names of dtypes. */
const STORED_DTYPES: Readonly<Record<string, DType>> = { float32: 'f32', bfloat16: 'bf16', float16: 'f16' };

export interface LoadProgress {
  /** Called with how many bytes of tensors are on the device, and how many there are in all. */
  readonly onProgress?: (done: number, total: number) => void;
}

/** What PyTorch's DataParallel writes before all names. */
const WRAPPER = 'module.';

/** Bytes of two tensors that are compared at a time. */
const COMPARED = 2 ** 22;

/** Tensors by name; remembers which were asked for. */
export class ModelSource implements VarSource {
  /** Whether it is a Hugging Face folder or a GGUF file. */
  readonly format: ModelFormat;
  /** The folder or file, as errors call it. */
  readonly path: string;
  /** GGUF's metadata; empty for folders. */
  readonly metadata: ReadonlyMap<string, unknown>;
  /** A builder over its tensors, as layers take them. */
  readonly builder: VarBuilder;
  readonly #records: ReadonlyMap<string, () => TensorRecord>;
  readonly #blocks: ReadonlyMap<string, () => StoredBlocks>;
  readonly #keepFloats: boolean;
  readonly #used = new Set<string>();
  readonly #close: () => void;
  readonly #onProgress: LoadProgress['onProgress'];
  #done = 0;
  #total: number | undefined;

  constructor(
    format: ModelFormat,
    path: string,
    records: ReadonlyMap<string, () => TensorRecord>,
    options: BuilderOptions & LoadProgress & Pick<OpenModelOptions, 'keepFloats'>,
    close: () => void = () => {},
    metadata: ReadonlyMap<string, unknown> = new Map(),
    blocks: ReadonlyMap<string, () => StoredBlocks> = new Map(),
  ) {
    this.#blocks = blocks;
    this.#keepFloats = options.keepFloats === true && (options.dtype ?? 'f32') === 'f32';
    this.format = format;
    this.path = path;
    this.metadata = metadata;
    this.#records = records;
    this.#close = close;
    this.#onProgress = options.onProgress;
    this.builder = new VarBuilder(this, options);
  }
  /** Names of all tensors. */
  get names(): string[] {
    return [...this.#records.keys()];
  }
  /** Whether there is a tensor of this name. */
  has(name: string): boolean {
    return this.#records.has(name);
  }
  /** A tensor as it is stored; counts as used. */
  record(name: string): TensorRecord {
    const open = this.#records.get(name);
    if (!open) throw new FormatError(`${this.path}: there is no tensor ${JSON.stringify(name)}${this.#near(name)}`);
    this.#used.add(name);
    return open();
  }
  #near(name: string): string {
    const last = name.split('.').slice(-2).join('.');
    const near = this.names.filter((k) => k.endsWith(last)).slice(0, 3);
    return near.length ? `; there are ${near.join(', ')}` : ` among ${this.#records.size}`;
  }
  /** The shape of a tensor, without reading it. */
  shapeOf(name: string): Shape {
    const open = this.#records.get(name);
    if (!open) throw new FormatError(`${this.path}: there is no tensor ${JSON.stringify(name)}${this.#near(name)}`);
    return open().shape;
  }
  /**
   * Whether a part that a config ties to another is that other: not stored, or stored with the same numbers. Where both
   * are stored and differ, the file counts, as it does for transformers.
   */
  isTied(name: string, to: string): boolean {
    const [own, other] = [this.#records.get(name)?.(), this.#records.get(to)?.()];
    if (!own || !other) return true;
    if (own.dtype !== other.dtype || !sameShape(own.shape, other.shape)) return false;
    for (let at = 0; at < own.byteLength; at += COMPARED) {
      const end = Math.min(at + COMPARED, own.byteLength);
      if (Buffer.compare(own.read(at, end), other.read(at, end)) !== 0) return false;
    }
    return true;
  }
  /** A tensor as floats on a device; it counts as used. */
  get(name: string, shape: Shape | undefined, _init: Init, { dtype, device }: VarOptions): Tensor {
    const record = this.record(name);
    this.#checkShape(name, record.shape, shape);
    const stored = toTensor(record, device);
    const t = stored.cast(dtype);
    if (t !== stored) stored.dispose();
    this.loaded(record.byteLength);
    return keep(t);
  }
  #checkShape(name: string, stored: Shape, shape: Shape | undefined): void {
    if (shape && !sameShape(shape, stored))
      throw new ShapeError(
        `${this.path}: ${name} is ${formatShape(stored)}; by the config it is ${formatShape(shape)}`,
      );
  }
  /** The same for a matrix of 16-bit floats, where those are kept. */
  #floats(name: string): StoredBlocks | undefined {
    if (!this.#keepFloats) return undefined;
    const blocks = this.#records.get(name)?.();
    const type = blocks && floatType(blocks.dtype);
    return type && blocks.shape.length > 1 ? { type: type as BlockType, shape: blocks.shape, blocks } : undefined;
  }
  /** A tensor in the quantized blocks it is stored in, where products take them; counts as used. */
  blocks(name: string): StoredBlocks | undefined {
    const open = this.#blocks.get(name);
    const stored = open ? open() : this.#floats(name);
    if (stored) this.#used.add(name);
    return stored;
  }
  /** Tells of progress. */
  loaded(bytes: number): void {
    if (!this.#onProgress) return;
    this.#total ??= [...this.#records.values()].reduce((n, open) => n + open().byteLength, 0);
    this.#done += bytes;
    this.#onProgress(Math.min(this.#done, this.#total), this.#total);
  }
  /** A small tensor's numbers on the host. */
  numbers(name: string): number[] {
    const record = this.record(name);
    if (record.dtype !== 'f32') throw new FormatError(`${this.path}: ${name} is ${record.dtype}, expected f32`);
    const bytes = record.read();
    return Array.from(new Float32Array(bytes.slice().buffer, 0, bytes.length / 4));
  }
  /** Tensors that are known to be of no use: masks and tables that old files carry. */
  ignore(which: RegExp | ReadonlySet<string>): void {
    const of = (name: string): boolean => (which instanceof RegExp ? which.test(name) : which.has(name));
    for (const name of this.names) if (of(name)) this.#used.add(name);
  }
  /** Throws where tensors are left that nobody asked for: a model that ignores some of its weights would be wrong. */
  refuseUnused(): void {
    // What has no elements says nothing.
    const left = this.names.filter((n) => !this.#used.has(n) && !this.shapeOf(n).includes(0));
    if (left.length > 0)
      throw new UnsupportedError(
        `${this.path}: nothing used ${left.length === 1 ? 'the tensor' : `${left.length} tensors:`} ` +
          `${left.slice(0, 4).join(', ')}${left.length > 4 ? ', ...' : ''}; the model would not be the one that was ` +
          'stored',
      );
  }
  /** Closes the files. */
  close(): void {
    this.#close();
  }
}

export interface OpenedModel {
  /** The config as Hugging Face writes it; for GGUF the families make it from the metadata. */
  readonly json: Json;
  readonly source: ModelSource;
}

/** All files of a sharded GGUF model, from any of them. */
export function ggufShards(path: string): string[] {
  const m = /^(.*)-(\d{5})-of-(\d{5})\.gguf$/.exec(basename(path));
  if (!m) return [path];
  return Array.from({ length: Number(m[3]) }, (_, i) =>
    join(dirname(path), `${m[1]}-${String(i + 1).padStart(5, '0')}-of-${m[3]}.gguf`),
  );
}

/** How a model's tensors are read; 'stored' is the files' own float of 16 bits, else f32. */
export type OpenModelOptions = Omit<BuilderOptions, 'dtype'> &
  LoadProgress & {
    readonly dtype?: DType | 'stored';
    /** Weights stored in ggml's blocks stay in them (the default) or are decoded to floats. */
    readonly quantized?: boolean;
    /** Matrices stored in 16 bits stay so beside activations of f32. */
    readonly keepFloats?: boolean;
  };

function openGguf(path: string, options: OpenModelOptions): OpenedModel {
  const shards = ggufShards(path);
  const absent = shards.find((p) => !existsSync(p));
  if (absent) throw new ArgumentError(`model: ${absent} is not there; the model has ${shards.length} files`);
  const files = shards.map((p) => Gguf.open(p));
  const close = (): void => files.forEach((f) => f.close());
  const records = new Map(
    files.flatMap((f) => f.names.map((name) => [name, (): TensorRecord => f.dequantize(name)] as const)),
  );
  const kept = (f: Gguf, name: string): boolean =>
    options.quantized !== false && isBlockType(f.info(name).type.name) && f.info(name).shape.length > 1;
  const blocks = new Map(
    files.flatMap((f) =>
      f.names
        .filter((name) => kept(f, name))
        .map((name) => {
          const { type, shape } = f.info(name);
          const open = (): StoredBlocks => ({ type: type.name as BlockType, shape, blocks: f.blocks(name) });
          return [name, open] as const;
        }),
    ),
  );
  const metadata = new Map([...files[0].metadata].map(([k, v]) => [k, v.value as unknown]));
  const [kind] = files.flatMap((f) => (f.has('token_embd.weight') ? [f.info('token_embd.weight').type.plain] : []));
  const dtype = options.dtype === 'stored' ? (kind === 'f16' || kind === 'bf16' ? kind : 'f32') : options.dtype;
  return { json: {}, source: new ModelSource('gguf', path, records, { ...options, dtype }, close, metadata, blocks) };
}

/** A folder with config.json and safetensors (or PyTorch's files), or a GGUF file. */
export function openModel(path: string, options: OpenModelOptions = {}): OpenedModel {
  if (path.endsWith('.gguf')) return openGguf(path, options);
  const config = join(path, 'config.json');
  if (!statSync(path, { throwIfNoEntry: false })?.isDirectory() || !existsSync(config))
    throw new ArgumentError(
      `model: ${config} is not there; give a folder with config.json and safetensors files, or a .gguf file`,
    );
  const { quantization_config: kept, ...json } = readJsonFile(config) as Json;
  const text = (isObject(json.text_config) ? json.text_config : {}) as Json;
  const named = (json.dtype ?? json.torch_dtype ?? text.dtype ?? text.torch_dtype) as string;
  const dtype = options.dtype === 'stored' ? (STORED_DTYPES[named] ?? 'f32') : options.dtype;
  const file = openFolder(path);
  const close = (): void => file.close();
  try {
    const wrapped = file.names.length > 0 && file.names.every((name) => name.startsWith(WRAPPER));
    const own = (name: string): string => (wrapped ? name.slice(WRAPPER.length) : name);
    const stored = new Map(file.names.map((name) => [own(name), (): TensorRecord => file.record(name)] as const));
    const { records, blocks } =
      kept === undefined || kept === null ? { records: stored, blocks: undefined } : withScales(config, kept, stored);
    const inBlocks = options.quantized === false ? undefined : blocks;
    const source = new ModelSource('huggingface', path, records, { ...options, dtype }, close, new Map(), inBlocks);
    return { json, source };
  } catch (e) {
    close();
    throw e;
  }
}

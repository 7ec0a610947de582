// Datasets in files of other kinds: JSON lines, IDX (MNIST), folders of pictures.
import { existsSync, statSync } from 'node:fs';
import { join } from 'node:path';
import { gunzipSync } from 'node:zlib';
import { namesIn, readWhole, textOf } from '../base/read-file.js';
import type { DType } from '../base/dtype.js';
import { ArgumentError, FormatError } from '../base/errors.js';
import { readPicture } from '../media/pictures.js';
import { centerCrop, resize } from '../media/resize.js';
import { Tensor } from '../tensor/tensor.js';
import { Device } from '../tensor/device.js';
import { checkIndex, Dataset, type Sample, type Shaped, TensorDataset } from './dataset.js';

/** A file of one JSON object a line; lines are parsed when they are asked for. */
export class JsonLines<S extends Sample = Sample> extends Dataset<S> {
  readonly #bytes: Buffer;
  readonly #starts: number[] = [];
  readonly #path: string;
  constructor(path: string) {
    super();
    this.#path = path;
    this.#bytes = readWhole(path);
    // A mark of the encoding, as editors on Windows leave it, is no part of the first record.
    let at = this.#bytes.subarray(0, 3).equals(Buffer.from('\ufeff')) ? 3 : 0;
    while (at < this.#bytes.length) {
      const end = this.#bytes.indexOf(10, at);
      const stop = end < 0 ? this.#bytes.length : end;
      if (this.#bytes.subarray(at, stop).toString('latin1').trim() !== '') this.#starts.push(at);
      at = stop + 1;
    }
  }
  get length(): number {
    return this.#starts.length;
  }
  get(i: number): S {
    checkIndex(i, this.length);
    const end = this.#bytes.indexOf(10, this.#starts[i]);
    const line = this.#bytes.subarray(this.#starts[i], end < 0 ? this.#bytes.length : end);
    let value: unknown;
    try {
      value = JSON.parse(textOf(line));
    } catch (cause) {
      throw new FormatError(`${this.#path}: record ${i} is no JSON: ${(cause as Error).message}`, { cause });
    }
    if (typeof value !== 'object' || value === null || Array.isArray(value))
      throw new FormatError(`${this.#path}: record ${i} is no JSON object`);
    return value as S;
  }
}
/** A file of one JSON object a line. */
export const readJsonLines = <S extends Sample = Sample>(path: string): JsonLines<S> => new JsonLines<S>(path);

/** The element types of IDX files: their dtype here and how one is read, most significant byte first. */
const IDX_TYPES: Readonly<Record<number, { dtype: DType; bytes: number; read: (v: DataView, at: number) => number }>> =
  {
    0x08: { dtype: 'u8', bytes: 1, read: (v, at) => v.getUint8(at) },
    0x09: { dtype: 'i16', bytes: 1, read: (v, at) => v.getInt8(at) },
    0x0b: { dtype: 'i16', bytes: 2, read: (v, at) => v.getInt16(at) },
    0x0c: { dtype: 'i32', bytes: 4, read: (v, at) => v.getInt32(at) },
    0x0d: { dtype: 'f32', bytes: 4, read: (v, at) => v.getFloat32(at) },
    0x0e: { dtype: 'f64', bytes: 8, read: (v, at) => v.getFloat64(at) },
  };
const ARRAYS = { u8: Uint8Array, i16: Int16Array, i32: Int32Array, f32: Float32Array, f64: Float64Array } as const;

/** A file in the format of MNIST (IDX), packed by gzip or not, as a tensor; signed bytes become i16. */
export function readIdx(path: string, device: Device = Device.of(undefined)): Tensor {
  const stored = readWhole(path);
  let file: Buffer = stored;
  if (stored[0] === 0x1f && stored[1] === 0x8b)
    try {
      file = gunzipSync(stored, { maxOutputLength: Math.max(64 * 2 ** 20, stored.length * 1100) });
    } catch (cause) {
      throw new FormatError(`${path}: its gzip stream is broken: ${(cause as Error).message}`, { cause });
    }
  const type = IDX_TYPES[file[2]];
  const rank = file[3];
  if (file.length < 4 || file[0] !== 0 || file[1] !== 0 || !type || file.length < 4 + 4 * rank)
    throw new FormatError(`${path}: is no IDX file: it begins with bytes ${[...file.subarray(0, 4)].join(' ')}`);
  const shape = Array.from({ length: rank }, (_, i) => file.readUInt32BE(4 + 4 * i));
  const size = shape.reduce((a, b) => a * b, 1);
  const start = 4 + 4 * rank;
  if (file.length !== start + size * type.bytes)
    throw new FormatError(
      `${path}: ${shape.join('x')} elements of ${type.bytes} bytes need ${start + size * type.bytes} bytes, the ` +
        `file has ${file.length}`,
    );
  const view = new DataView(file.buffer, file.byteOffset + start, size * type.bytes);
  const out = new ARRAYS[type.dtype as keyof typeof ARRAYS](size);
  for (let i = 0; i < size; i++) out[i] = type.read(view, i * type.bytes);
  return Tensor.fromBytes(new Uint8Array(out.buffer), shape, type.dtype, device);
}

/** The names of MNIST's files, as its makers gave them. */
const MNIST = {
  train: ['train-images-idx3-ubyte', 'train-labels-idx1-ubyte'],
  test: ['t10k-images-idx3-ubyte', 't10k-labels-idx1-ubyte'],
} as const;
/**
 * MNIST, or a set in its files (Fashion-MNIST), from a folder: { image, label } with images as u8 of (count, 1, height,
 * width).
 */
export function readMnist(
  folder: string,
  part: 'train' | 'test',
  device?: Device,
): TensorDataset<{ image: Tensor; label: Tensor }> {
  const [image, label] = MNIST[part].map((name) => {
    const found = [name, `${name}.gz`, name.replace('-idx', '.idx')]
      .map((n) => join(folder, n))
      .find((p) => existsSync(p));
    if (!found) throw new ArgumentError(`readMnist: ${folder} has no ${name} and no ${name}.gz`);
    return readIdx(found, device);
  });
  return new TensorDataset({ image: image.unsqueeze(1), label: label.cast('i64') });
}

/** How pictures of a folder become samples. */
export interface PictureOptions {
  /** [height, width] that every picture is brought to: its shorter side scaled, the middle kept. */
  readonly size: readonly [height: number, width: number];
  /** Taken off red, green and blue after they are brought to 0..1; default 0. */
  readonly mean?: readonly [number, number, number];
  /** What they are divided by then; default 1. */
  readonly std?: readonly [number, number, number];
}
const PICTURE = /\.(png|jpe?g)$/i;
const BILINEAR = 2;
/** A picture as f32 of (3, height, width), scaled and cropped to a size. */
export function loadPicture(path: string, { size, mean = [0, 0, 0], std = [1, 1, 1] }: PictureOptions): Shaped {
  const [height, width] = size;
  const picture = readPicture(path);
  const scale = Math.max(height / picture.height, width / picture.width);
  const [w, h] = [
    Math.max(width, Math.round(picture.width * scale)),
    Math.max(height, Math.round(picture.height * scale)),
  ];
  const fitting = picture.width === w && picture.height === h ? picture : resize(picture, w, h, BILINEAR);
  const { rgb } = w === width && h === height ? fitting : centerCrop(fitting, width, height);
  const data = new Float32Array(3 * height * width);
  for (let c = 0; c < 3; c++)
    for (let i = 0; i < height * width; i++) data[c * height * width + i] = (rgb[3 * i + c] / 255 - mean[c]) / std[c];
  return { data, shape: [3, height, width] };
}

/** A folder with a folder of PNG and JPEG pictures for every class: { image, label, path }. */
export class PictureFolder extends Dataset<{ image: Shaped; label: number; path: string }> {
  /** The names of the classes; a label is a number of one. */
  readonly classes: readonly string[];
  readonly #files: { readonly path: string; readonly label: number }[];
  readonly #options: PictureOptions;
  override readonly dtypes: Readonly<Record<string, DType>> = { label: 'i64' };
  constructor(folder: string, options: PictureOptions) {
    super();
    this.classes = namesIn(folder).filter((name) => statSync(join(folder, name)).isDirectory());
    this.#files = this.classes.flatMap((name, label) =>
      namesIn(join(folder, name))
        .filter((f) => PICTURE.test(f))
        .map((f) => ({ path: join(folder, name, f), label })),
    );
    if (this.#files.length === 0)
      throw new ArgumentError(`PictureFolder: ${folder} holds no folder of PNG or JPEG pictures`);
    this.#options = options;
  }
  get length(): number {
    return this.#files.length;
  }
  get(i: number): { image: Shaped; label: number; path: string } {
    checkIndex(i, this.length);
    const { path, label } = this.#files[i];
    return { image: loadPicture(path, this.#options), label, path };
  }
}

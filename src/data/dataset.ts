// Datasets: samples by number, and what can be made of them: mapped, filtered, split, joined.
import { ArgumentError, IndexError, ShapeError } from '../base/errors.js';
import type { DType } from '../base/dtype.js';
import { formatShape, type Shape } from '../base/shape.js';
import { noGrad } from '../tensor/autograd.js';
import { tensor } from '../tensor/create.js';
import type { Device } from '../tensor/device.js';
import { Tensor } from '../tensor/tensor.js';
import { permutation } from './shuffle.js';

/** Typed arrays whose elements have a dtype. */
export type Elements =
  | Uint8Array
  | Int8Array
  | Int16Array
  | Int32Array
  | Uint32Array
  | BigInt64Array
  | Float32Array
  | Float64Array;
/** A typed array with a shape: a picture, a window of a series. */
export interface Shaped {
  /** The elements, row-major. */
  readonly data: Elements;
  /** Their shape. */
  readonly shape: Shape;
}
/** What a sample may hold under a name: numbers, arrays of them, tensors; strings stay a list of strings. */
export type Value = number | bigint | boolean | string | readonly number[] | Elements | Shaped | Tensor;
/** A sample: values by name. */
export type Sample = Readonly<Record<string, Value>>;
/** Samples put together: tensors with a new first dimension by name; strings as a list. */
export type Batch = Record<string, Tensor> & { readonly [strings: string]: Tensor | string[] };
/** The batch of samples whose names are known: a tensor under each, or a list of strings. */
export type BatchOf<S> = string extends keyof S ? Batch : { [K in keyof S]: S[K] extends string ? string[] : Tensor };

/** What a DataLoader takes: a Dataset, or anything with a length and samples by number. */
export interface Samples<S extends Sample = Sample> {
  /** How many samples there are. */
  readonly length: number;
  /** The sample of a number; it may be read when it is asked for. */
  get(i: number): S | Promise<S>;
  /** The dtypes of values given as plain numbers, by name; f32 where nothing is said. */
  readonly dtypes?: Readonly<Record<string, DType>>;
  /** Several samples as tensors at once, where there is a faster way than one by one. */
  batch?(indices: readonly number[], device: Device): Batch;
}

/**
 * Samples by number, from 0 to length - 1.
 *
 * ```ts
 * class Squares extends Dataset {
 *   get length() { return 100; }
 *   get(i: number) { return { x: [i], y: [i * i] }; }
 * }
 * ```
 */
export abstract class Dataset<S extends Sample = Sample> implements Samples<S> {
  /** How many samples there are. */
  abstract get length(): number;
  /** The sample of a number; it may be read when it is asked for. */
  abstract get(i: number): S | Promise<S>;
  /** The dtypes of values given as plain numbers, by name; f32 where nothing is said. */
  readonly dtypes: Readonly<Record<string, DType>> = {};
  /** Several samples as tensors at once; only datasets that have a faster way than one by one define it. */
  batch?(indices: readonly number[], device: Device): Batch;

  /** The samples of a list. */
  static of<S extends Sample>(samples: readonly S[], dtypes: Readonly<Record<string, DType>> = {}): Dataset<S> {
    return new ListDataset(samples, dtypes);
  }
  /** Rows of tensors that have one first dimension: { x: [100, 3], y: [100] } are 100 samples. */
  static fromTensors<T extends Readonly<Record<string, Tensor>>>(tensors: T): TensorDataset<T> {
    return new TensorDataset(tensors);
  }
  /** Samples as a function makes them, each time they are asked for. */
  map<T extends Sample>(f: (sample: S, i: number) => T | Promise<T>): Dataset<T> {
    return new Derived(this.length, async (i) => f(await this.get(i), i), this.dtypes);
  }
  /** Only the samples of these numbers, in this order. */
  subset(indices: readonly number[]): Dataset<S> {
    for (const i of indices) checkIndex(i, this.length);
    return new Derived(indices.length, (i) => this.get(indices[i]), this.dtypes, this, indices);
  }
  /** The samples from `start` up to `end`; negative numbers count from the end. */
  slice(start = 0, end = this.length): Dataset<S> {
    return this.subset(Array.from({ length: this.length }, (_, i) => i).slice(start, end));
  }
  /** Parts that share no sample, by their shares (0.8, 0.2) or sizes, shuffled by a seed; undefined keeps the order. */
  split(parts: readonly number[], seed?: number): Dataset<S>[] {
    const shares = parts.every((p) => p > 0 && p < 1);
    const sizes = shares ? parts.map((p) => Math.floor(p * this.length)) : [...parts];
    if (shares && Math.abs(parts.reduce((a, b) => a + b, 0) - 1) < 1e-9)
      sizes[0] += this.length - sizes.reduce((a, b) => a + b, 0);
    const total = sizes.reduce((a, b) => a + b, 0);
    if (sizes.some((n) => !Number.isInteger(n) || n < 0) || total > this.length)
      throw new ArgumentError(
        `split: ${formatShape(parts)} are neither shares below 1 nor sizes that fit ${this.length} samples`,
      );
    const order = seed === undefined ? Array.from({ length: total }, (_, i) => i) : permutation(this.length, seed);
    let at = 0;
    return sizes.map((n) => this.subset(order.slice(at, (at += n))));
  }
  /** These samples and then those of others. */
  concat<T extends Sample = S>(...others: readonly Dataset<T>[]): Dataset<S | T> {
    const all = [this, ...others] as readonly Dataset<S | T>[];
    const total = all.reduce((n, d) => n + d.length, 0);
    const find = (i: number): S | T | Promise<S | T> => {
      let at = i;
      for (const d of all) {
        if (at < d.length) return d.get(at);
        at -= d.length;
      }
      throw new IndexError(`dataset: there is no sample ${i} among ${total}`);
    };
    return new Derived(total, find, this.dtypes);
  }
}
export function checkIndex(i: number, length: number): void {
  if (!Number.isInteger(i) || i < 0 || i >= length)
    throw new IndexError(`dataset: there is no sample ${i} among ${length}`);
}

class ListDataset<S extends Sample> extends Dataset<S> {
  readonly #samples: readonly S[];
  override readonly dtypes: Readonly<Record<string, DType>>;
  constructor(samples: readonly S[], dtypes: Readonly<Record<string, DType>>) {
    super();
    this.#samples = samples;
    this.dtypes = dtypes;
  }
  get length(): number {
    return this.#samples.length;
  }
  get(i: number): S {
    checkIndex(i, this.length);
    return this.#samples[i];
  }
}

class Derived<S extends Sample> extends Dataset<S> {
  readonly length: number;
  readonly #get: (i: number) => S | Promise<S>;
  override readonly dtypes: Readonly<Record<string, DType>>;
  constructor(
    length: number,
    get: (i: number) => S | Promise<S>,
    dtypes: Readonly<Record<string, DType>>,
    from?: Dataset<S>,
    indices?: readonly number[],
  ) {
    super();
    this.length = length;
    this.#get = get;
    this.dtypes = dtypes;
    if (from?.batch && indices)
      this.batch = (list, device) =>
        from.batch?.(
          list.map((i) => indices[i]),
          device,
        ) as Batch;
  }
  get(i: number): S | Promise<S> {
    checkIndex(i, this.length);
    return this.#get(i);
  }
}

/** Rows of tensors: batches are gathered on the device, nothing goes sample by sample. */
export class TensorDataset<T extends Readonly<Record<string, Tensor>> = Record<string, Tensor>> extends Dataset<T> {
  /** The tensors by name; row i of each is sample i. */
  readonly tensors: T;
  readonly length: number;
  constructor(tensors: T) {
    super();
    if (typeof tensors !== 'object' || !tensors || (tensors as unknown) instanceof Tensor || Array.isArray(tensors))
      throw new ArgumentError('TensorDataset: takes tensors by name, as { x, y }, which batches have too');
    const [first, ...rest] = Object.entries(tensors);
    if (!first) throw new ArgumentError('TensorDataset: there are no tensors');
    for (const [name, t] of [first, ...rest]) {
      if (!(t instanceof Tensor)) throw new ArgumentError(`TensorDataset: ${name} is no tensor`);
      if (t.rank === 0 || t.shape[0] !== first[1].shape[0])
        throw new ShapeError(
          `TensorDataset: ${name} ${formatShape(t.shape)} has not as many rows as ${first[0]} ` +
            `${formatShape(first[1].shape)}`,
        );
    }
    this.tensors = tensors;
    this.length = first[1].shape[0];
  }
  get(i: number): T {
    checkIndex(i, this.length);
    return Object.fromEntries(Object.entries(this.tensors).map(([name, t]) => [name, t.get(i)])) as unknown as T;
  }
  override batch(indices: readonly number[], device: Device): Batch {
    return noGrad(() => {
      const ids = new Map<Device, Tensor>();
      const on = (d: Device): Tensor => {
        const known = ids.get(d) ?? tensor(Int32Array.from(indices), { device: d }).cast('i64');
        ids.set(d, known);
        return known;
      };
      return Object.fromEntries(
        Object.entries(this.tensors).map(([name, t]) => [name, t.indexSelect(0, on(t.device)).to(device)]),
      ) as Batch;
    });
  }
}

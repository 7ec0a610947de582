// DataLoader: a dataset in batches, in an order drawn from a seed, made ready ahead of time, in threads if wanted.
import { ArgumentError, IndexError } from '../base/errors.js';
import { requireOptions } from '../ops/kernel-row.js';
import { Device } from '../tensor/device.js';
import type { Tensor } from '../tensor/tensor.js';
import { type CollatedBatch, pack, type Packed, unpack } from './collate.js';
import type { Batch, BatchOf, Sample, Samples } from './dataset.js';
import { permutation, type Sampler } from './shuffle.js';
import { WorkerPool } from './workers.js';

/** A batch as a loader gives it: blocks of elements that a collate function answers have become tensors. */
export type Unpacked<C> = { [K in keyof C]: C[K] extends Packed ? Tensor : C[K] };
/** Options of a loader. */
export interface LoaderOptions<S extends Sample = Sample, C = BatchOf<S>> {
  /** Samples in a batch; default 1. */
  readonly batch?: number;
  /** Another order in every epoch; default false. */
  readonly shuffle?: boolean;
  /** The numbers of an epoch's samples in their order, in place of `shuffle`; `weightedSampler` makes one. */
  readonly sampler?: Sampler;
  /** What orders are drawn from; default 0. */
  readonly seed?: number;
  /** Leave out the last batch where it is smaller; default false. */
  readonly dropLast?: boolean;
  /** The device of the batches; default the default device. */
  readonly device?: Device | string;
  /** How many batches are made ready ahead; default 2. */
  readonly prefetch?: number;
  /** Samples to a batch of tensors, where they have not one shape: pad them here. */
  readonly collate?: (samples: readonly S[]) => C;
  /** The last touch, on the device: scales pictures, adds noise. */
  readonly transform?: (batch: Unpacked<C>) => Unpacked<C>;
}
/** Options of a loader whose dataset lives in worker threads. */
export interface WorkerOptions extends Omit<LoaderOptions, 'collate'> {
  /** How many threads; default 2. */
  readonly workers?: number;
  /** Plain data that the module's `dataset` function is called with. */
  readonly options?: unknown;
}
const OPTIONS = ['batch', 'shuffle', 'sampler', 'seed', 'dropLast', 'device', 'prefetch', 'collate', 'transform'];

/**
 * A dataset in batches.
 *
 * ```ts
 * const loader = new DataLoader(dataset, { batch: 32, shuffle: true });
 * for await (const { x, y } of loader) ...
 * ```
 *
 * Each pass over it is an epoch with an order of its own; `loader.epoch` says which comes next, so that a resumed run
 * sees what the whole one would have.
 */
export class DataLoader<S extends Sample = Sample, C = BatchOf<S>> implements AsyncIterable<Unpacked<C>> {
  /** The number of the epoch that comes next. */
  epoch = 0;
  /** Samples of a batch; the last one may have fewer. */
  readonly batchSize: number;
  readonly #samples: number;
  readonly #options: LoaderOptions<S, C>;
  readonly #device: Device;
  readonly #make: (indices: readonly number[]) => Promise<Unpacked<C>>;
  readonly #pool: WorkerPool | undefined;

  constructor(dataset: Samples<S>, options: LoaderOptions<S, C> = {}, pool?: WorkerPool) {
    requireOptions('DataLoader', options, OPTIONS);
    if (typeof dataset?.get !== 'function' || !Number.isInteger(dataset.length))
      throw new ArgumentError(
        'DataLoader: takes a dataset, an object with a whole `length` and `get(i)`; a list is one as ' +
          '{ length: list.length, get: (i) => list[i] }',
      );
    this.batchSize = options.batch ?? 1;
    for (const [name, value, least] of [
      ['batch', this.batchSize, 1],
      ['prefetch', options.prefetch ?? 2, 0],
    ] as const)
      if (!Number.isInteger(value) || value < least)
        throw new ArgumentError(`DataLoader: ${name} ${value} is not a whole number of at least ${least}`);
    if (options.sampler && (typeof options.sampler !== 'function' || options.shuffle))
      throw new ArgumentError(
        'DataLoader: sampler is a function of the epoch that answers numbers of samples, and takes the place of ' +
          'shuffle',
      );
    for (const name of ['shuffle', 'dropLast'] as const)
      if (!['boolean', 'undefined'].includes(typeof options[name]))
        throw new ArgumentError(`DataLoader: ${name} ${String(options[name])} is not true or false`);
    for (const name of ['collate', 'transform'] as const)
      if (!['function', 'undefined'].includes(typeof options[name]))
        throw new ArgumentError(`DataLoader: ${name} is ${typeof options[name]}, not a function`);
    this.#options = options;
    this.#device = Device.of(options.device);
    this.#samples = dataset.length;
    this.#pool = pool;
    const whole = dataset.batch?.bind(dataset);
    const put = (options.collate ?? ((samples) => pack(samples, dataset.dtypes))) as (
      samples: readonly S[],
    ) => CollatedBatch;
    this.#make = async (indices) => {
      if (pool) return unpack(await pool.pack(indices), this.#device) as Unpacked<C>;
      if (whole && !options.collate) return whole(indices, this.#device) as Unpacked<C>;
      return unpack(put(await Promise.all(indices.map((i) => dataset.get(i)))), this.#device) as Unpacked<C>;
    };
  }

  /**
   * A loader whose samples are made in threads: the module at `url` exports `dataset`, a Dataset or a function of
   * `options` that answers one. Give it back with `await loader.close()`.
   */
  static async inWorkers(url: URL | string, options: WorkerOptions = {}): Promise<DataLoader> {
    const { workers = 2, options: given, ...rest } = options;
    const pool = await WorkerPool.start(url, workers, given);
    return new DataLoader(pool.dataset, rest, pool);
  }

  /** Batches in an epoch. */
  get length(): number {
    return this.#batches(this.#options.sampler ? this.#numbers(this.epoch).length : this.#samples);
  }
  #batches(samples: number): number {
    const n = samples / this.batchSize;
    return this.#options.dropLast ? Math.floor(n) : Math.ceil(n);
  }
  /** The numbers of an epoch's samples. */
  #numbers(epoch: number): readonly number[] {
    const { shuffle = false, seed = 0, sampler } = this.#options;
    if (!sampler)
      return shuffle ? permutation(this.#samples, seed, epoch) : Array.from({ length: this.#samples }, (_, i) => i);
    const drawn = sampler(epoch);
    const wrong = [...drawn].find((i) => !Number.isInteger(i) || i < 0 || i >= this.#samples);
    if (wrong === undefined) return drawn;
    throw new IndexError(`DataLoader: the sampler answers ${wrong}, and there are ${this.#samples} samples`);
  }
  /** The numbers of the samples of each batch of an epoch. */
  order(epoch: number): number[][] {
    const all = this.#numbers(epoch);
    const from = (i: number): number => i * this.batchSize;
    return Array.from({ length: this.#batches(all.length) }, (_, i) => all.slice(from(i), from(i + 1)));
  }
  /** The batches of the next epoch; a batch that was made ahead and not asked for is let go. */
  async *[Symbol.asyncIterator](): AsyncIterator<Unpacked<C>> {
    const order = this.order(this.epoch++);
    const ahead: Promise<Unpacked<C>>[] = [];
    let next = 0;
    const fill = (): void => {
      while (next < order.length && ahead.length <= (this.#options.prefetch ?? 2)) {
        const made = this.#make(order[next++]);
        made.catch(() => {}); // told to whoever waits for it
        ahead.push(made);
      }
    };
    try {
      fill();
      while (ahead.length > 0) {
        const batch = await (ahead.shift() as Promise<Unpacked<C>>);
        fill();
        yield this.#options.transform ? this.#options.transform(batch) : batch;
      }
    } finally {
      for (const rest of ahead)
        void rest.then(
          (batch) => disposeBatch(batch as Batch),
          () => {},
        );
    }
  }
  /** Batches are made ready ahead of time: a loop that does not wait for them is refused. */
  [Symbol.iterator](): never {
    throw new ArgumentError('DataLoader: its batches are waited for: for await (const batch of loader)');
  }
  /** Ends the threads of a loader in workers. */
  async close(): Promise<void> {
    await this.#pool?.close();
  }
}
/** Gives the memory of a batch's tensors back. */
export function disposeBatch(batch: Readonly<Record<string, Tensor | string[]>>): void {
  for (const v of Object.values(batch)) if (!Array.isArray(v)) v.dispose();
}

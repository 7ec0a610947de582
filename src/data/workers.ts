// Threads that make batches: each holds the dataset of a module, packs the samples it is asked for and sends their
// bytes.
import { Worker } from 'node:worker_threads';
import { ArgumentError, WickError } from '../base/errors.js';
import type { DType } from '../base/dtype.js';
import type { PackedBatch } from './collate.js';
import { Dataset, type Sample } from './dataset.js';

/** What a worker says. */
export type WorkerMessage =
  | { readonly kind: 'ready'; readonly length: number; readonly dtypes: Readonly<Record<string, DType>> }
  | { readonly kind: 'batch'; readonly id: number; readonly batch: PackedBatch }
  | { readonly kind: 'failed'; readonly id: number; readonly message: string };
/** What a worker is asked for. */
export interface WorkerRequest {
  readonly id: number;
  readonly indices: readonly number[];
}

/** Knows how many samples there are; they themselves stay in the threads. */
class RemoteDataset extends Dataset<Sample> {
  readonly length: number;
  constructor(length: number) {
    super();
    this.length = length;
  }
  get(): never {
    throw new ArgumentError('DataLoader: samples of a dataset in workers come in batches only');
  }
}

interface Waiting {
  readonly resolve: (batch: PackedBatch) => void;
  readonly reject: (e: Error) => void;
  readonly worker: Worker;
}
/** Threads that hold one dataset each and take batches in turn. */
export class WorkerPool {
  readonly dataset: Dataset;
  readonly #workers: readonly Worker[];
  readonly #waiting = new Map<number, Waiting>();
  #next = 0;
  #closed = false;
  private constructor(workers: readonly Worker[], length: number) {
    this.#workers = workers;
    this.dataset = new RemoteDataset(length);
    for (const worker of workers) {
      worker.on('message', (m: WorkerMessage) => this.#heard(m));
      worker.on('error', (e) => this.#lost(worker, e as Error));
      worker.on('exit', (code) => this.#lost(worker, new Error(`a worker ended with code ${code}`)));
      worker.unref();
    }
  }
  static async start(url: URL | string, count: number, options: unknown): Promise<WorkerPool> {
    if (!Number.isInteger(count) || count < 1)
      throw new ArgumentError(`DataLoader: workers ${count} is not a whole number of at least 1`);
    const entry = new URL('./worker.js', import.meta.url);
    const workers = Array.from(
      { length: count },
      () => new Worker(entry, { workerData: { url: String(url), options } }),
    );
    const ready = workers.map(
      (w) =>
        new Promise<WorkerMessage>((resolve, reject) => {
          w.once('message', resolve);
          w.once('error', reject);
        }),
    );
    try {
      const [first] = await Promise.all(ready);
      if (first.kind === 'failed') throw new ArgumentError(`DataLoader: ${first.message}`);
      return new WorkerPool(workers, first.kind === 'ready' ? first.length : 0);
    } catch (e) {
      await Promise.all(workers.map((w) => w.terminate()));
      throw e instanceof WickError
        ? e
        : new ArgumentError(`DataLoader: a worker failed: ${(e as Error).message}`, { cause: e });
    }
  }
  #heard(m: WorkerMessage): void {
    if (m.kind === 'ready') return;
    const waiting = this.#waiting.get(m.id);
    this.#waiting.delete(m.id);
    if (this.#waiting.size === 0) for (const w of this.#workers) w.unref();
    if (m.kind === 'batch') waiting?.resolve(m.batch);
    else waiting?.reject(new ArgumentError(`DataLoader: a worker failed: ${m.message}`));
  }
  #lost(worker: Worker, cause: Error): void {
    for (const [id, w] of this.#waiting)
      if (w.worker === worker) {
        this.#waiting.delete(id);
        w.reject(new ArgumentError(`DataLoader: a worker failed: ${cause.message}`, { cause }));
      }
  }
  /** The samples of these numbers, packed in one of the threads. */
  pack(indices: readonly number[]): Promise<PackedBatch> {
    if (this.#closed) return Promise.reject(new ArgumentError('DataLoader: its workers were closed'));
    const id = this.#next++;
    const worker = this.#workers[id % this.#workers.length];
    return new Promise((resolve, reject) => {
      this.#waiting.set(id, { resolve, reject, worker });
      worker.ref(); // while somebody waits, the process stays
      worker.postMessage({ id, indices } satisfies WorkerRequest);
    });
  }
  async close(): Promise<void> {
    this.#closed = true;
    await Promise.all(this.#workers.map((w) => w.terminate()));
  }
}

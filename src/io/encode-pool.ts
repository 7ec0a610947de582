// Worker threads that encode pieces of tensors: one piece at a thread, more wait in line.
import { Worker } from 'node:worker_threads';
import { ArgumentError, WickError } from '../base/errors.js';
import type { EncodedPiece, Piece } from './encode-rows.js';

interface Waiting {
  readonly piece: Piece;
  readonly done: (made: EncodedPiece) => void;
  readonly failed: (error: WickError) => void;
}

export class EncodePool {
  readonly #workers: Worker[];
  readonly #idle: Worker[];
  readonly #busy = new Map<Worker, Waiting>();
  readonly #line: Waiting[] = [];

  constructor(threads: number) {
    this.#workers = Array.from({ length: threads }, () => this.#start());
    this.#idle = [...this.#workers];
  }

  /** The piece's own bytes are moved to the thread. */
  encode(piece: Piece): Promise<EncodedPiece> {
    return new Promise((done, failed) => {
      this.#line.push({ piece, done, failed });
      this.#next();
    });
  }

  async close(): Promise<void> {
    await Promise.all(this.#workers.map((w) => w.terminate()));
  }

  #start(): Worker {
    const worker = new Worker(new URL('./encode-worker.js', import.meta.url));
    worker.on('message', (answer: EncodedPiece | { error: string }) => {
      const job = this.#busy.get(worker);
      this.#busy.delete(worker);
      this.#idle.push(worker);
      if ('error' in answer) job?.failed(new ArgumentError(answer.error));
      else job?.done(answer);
      this.#next();
    });
    worker.on('error', (cause) =>
      this.#busy.get(worker)?.failed(new ArgumentError(`a thread of the encoder ended: ${cause.message}`, { cause })),
    );
    return worker;
  }

  #next(): void {
    while (this.#idle.length > 0 && this.#line.length > 0) {
      const worker = this.#idle.pop() as Worker;
      const job = this.#line.shift() as Waiting;
      this.#busy.set(worker, job);
      worker.postMessage(job.piece, [job.piece.bytes.buffer as ArrayBuffer]);
    }
  }
}

// The main thread's side of the watch: meeting the other ranks, and saying goodbye however the process ends.
import { MessageChannel, type MessagePort, Worker } from 'node:worker_threads';
import { DistributedError } from '../base/errors.js';
import { HubClient } from './hub-client.js';

/**
 * Words shared with the watch: the first is the signal of replies; this one says LEFT when goodbye was said, ENDED when
 * another rank has failed and this one must end.
 */
export const STATE = 1;
export const LEFT = 1;
export const ENDED = 2;
/** How long a process that ends waits for its goodbye to be heard. */
const GOODBYE_MS = 5000;

export interface WatchOptions {
  readonly rank: number;
  readonly size: number;
  /** Where rank 0 listens and the others call; port 0 lets rank 0 find a free one. */
  readonly host: string;
  readonly at: number;
  /** How long a rank waits for the others in a call, for all to meet, and for a sign of life. */
  readonly timeoutMs: number;
  readonly meetMs: number;
  readonly silenceMs: number;
  /** Runs that meet by mistake are told apart by this. */
  readonly job: string;
}
export interface WatchStart extends WatchOptions {
  readonly port: MessagePort;
  readonly words: Int32Array;
}
export type WatchMessage =
  | { readonly kind: 'listening'; readonly port: number }
  | { readonly kind: 'ready' }
  | { readonly kind: 'failed'; readonly text: string };

export class Watch {
  readonly hub: HubClient;
  /** The port that rank 0 listens on; never settled on other ranks. */
  readonly listening: Promise<number>;
  /** All ranks have met. */
  readonly ready: Promise<void>;
  readonly #port: MessagePort;
  readonly #words = new Int32Array(new SharedArrayBuffer(8));
  readonly #options: WatchOptions;
  readonly #onExit = (code: number): void => {
    // A program that takes the signal for a wish to end, and does so in order, has failed all the same.
    if (code === 0 && Atomics.load(this.#words, STATE) === ENDED) process.exitCode = 1;
    else this.leave(code);
  };
  #left = false;

  constructor(options: WatchOptions) {
    this.#options = options;
    const { rank, size, timeoutMs } = options;
    const { port1, port2 } = new MessageChannel();
    this.#port = port1;
    this.hub = new HubClient(rank, size, { port: port1, signal: this.#words }, timeoutMs);
    const start: WatchStart = { ...options, port: port2, words: this.#words };
    const worker = new Worker(new URL('./watch-worker.js', import.meta.url), {
      workerData: start,
      transferList: [port2],
    });
    let heard: (port: number) => void;
    this.listening = new Promise((resolve) => (heard = resolve));
    this.ready = new Promise((resolve, reject) => {
      const fail = (text: string): void => reject(new DistributedError(`rank ${rank} of ${size}: ${text}`));
      worker.on('message', (m: WatchMessage) => {
        if (m.kind === 'listening') heard(m.port);
        else if (m.kind === 'ready') {
          worker.unref(); // until then nothing else keeps the process alive
          resolve();
        } else {
          worker.unref();
          fail(m.text);
        }
      });
      worker.on('error', (e) => fail(`the watch failed: ${e.message}`));
    });
    process.on('exit', this.#onExit);
  }

  /** Says goodbye, or with a code other than 0 that this rank has failed; the other ranks then end too. */
  leave(code: number, why = `ended with exit code ${code}`): void {
    if (this.#left) return;
    this.#left = true;
    process.off('exit', this.#onExit);
    this.#port.postMessage({ kind: 'leave', code, why });
    // Rank 0 holds the hub: it stays as long as others may need it.
    const patience = this.#options.rank === 0 && code === 0 ? this.#options.timeoutMs : GOODBYE_MS;
    Atomics.wait(this.#words, STATE, 0, patience);
  }
}

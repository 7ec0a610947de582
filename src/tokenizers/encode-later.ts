// Long texts become token numbers on a thread of their own, so that timers, sockets and signals do not wait for a
// megabyte; short ones take their turn on this one.
import { readdirSync, statSync } from 'node:fs';
import { join } from 'node:path';
import { Worker } from 'node:worker_threads';
import { NativeError } from '../base/errors.js';
import { receiveError } from '../base/sent-error.js';
import type { EncodeLaterOptions, EncodeOptions, EncodeReply, EncodeTask } from './encode-options.js';

/** Characters that are encoded here in one turn of the event loop: some ten milliseconds. */
export const TURN = 8192;
/** Milliseconds after which a thread that nobody asks ends, and with it its copy of the vocabulary. */
const IDLE = 300_000;

let spent = 0;
let turns: Promise<void> | undefined;
/** A turn for so many characters: this one where there is room, or one after all who came before. */
async function turnFor(characters: number): Promise<void> {
  if (turns || (spent > 0 && spent + characters > TURN)) {
    const mine = (turns ?? Promise.resolve()).then(() => new Promise<void>((next) => setImmediate(next)));
    turns = mine;
    await mine;
    if (turns === mine) turns = undefined;
    spent = 0;
  }
  if (spent === 0) setImmediate(() => (spent = 0));
  spent += characters;
}

/** As a list; `Array.from` takes three times as long. */
function listOf(ids: Int32Array): number[] {
  const list = new Array<number>(ids.length);
  for (let i = 0; i < ids.length; i++) list[i] = ids[i];
  return list;
}

interface Waiting {
  readonly text: string;
  readonly options: EncodeOptions;
  readonly signal: AbortSignal | undefined;
  readonly resolve: (ids: number[]) => void;
  readonly reject: (error: unknown) => void;
}

/** The thread of one tokenizer: it is told one text at a time, so that those whose askers have gone are left out. */
class EncodingThread {
  readonly #path: string;
  readonly #waiting: Waiting[] = [];
  #worker: Worker | undefined;
  #asked: Waiting | undefined;
  #clock: NodeJS.Timeout | undefined;
  constructor(path: string) {
    this.#path = path;
  }
  encode(text: string, options: EncodeOptions, signal: AbortSignal | undefined): Promise<number[]> {
    return new Promise((resolve, reject) => {
      this.#waiting.push({ text, options, signal, resolve, reject });
      this.#next();
    });
  }
  #next(): void {
    clearTimeout(this.#clock);
    while (!this.#asked && this.#waiting.length > 0) {
      const next = this.#waiting.shift() as Waiting;
      if (next.signal?.aborted) next.reject(next.signal.reason);
      else this.#asked = next;
      if (next === this.#asked) {
        this.start().ref();
        const text = new TextEncoder().encode(next.text);
        this.#worker?.postMessage({ text, options: next.options } satisfies EncodeTask, [text.buffer]);
      }
    }
    if (this.#asked) return;
    this.#worker?.unref(); // it must not keep a program running that waits for nothing of it
    this.#clock = setTimeout(() => this.#end(), IDLE).unref();
  }
  /** Where it does not run yet, it begins. */
  start(): Worker {
    this.#worker ??= this.#begun();
    return this.#worker;
  }
  #begun(): Worker {
    const worker = new Worker(new URL('./encode-thread.js', import.meta.url), {
      workerData: this.#path,
      name: 'wick: tokens',
    });
    const answered = (how: (asked: Waiting) => void): void => {
      const asked = this.#asked;
      this.#asked = undefined;
      if (asked) how(asked);
      this.#next();
    };
    worker.on('message', (reply: EncodeReply) =>
      answered(({ resolve, reject }) =>
        'ids' in reply ? resolve(listOf(reply.ids)) : reject(receiveError(reply.error)),
      ),
    );
    worker.on('error', (cause) => {
      this.#worker = undefined;
      answered(({ reject }) => reject(new NativeError('tokenizer: its thread has ended by an error', { cause })));
    });
    worker.unref();
    return worker;
  }
  #end(): void {
    void this.#worker?.terminate();
    this.#worker = undefined;
  }
}

/** Where a tokenizer came from, and what lay there. */
interface Source {
  readonly path: string;
  readonly stamp: string;
  thread?: EncodingThread;
}
/** A tokenizer, as far as this file knows it. */
interface Encoder {
  encode(text: string, options: EncodeOptions): number[];
}
const sources = new WeakMap<Encoder, Source>();
/** Sizes and times of the files: a thread that read others would make other numbers. */
function stampOf(path: string): string {
  const one = (file: string): string => {
    const stat = statSync(file, { throwIfNoEntry: false });
    return `${file}:${stat?.size}:${stat?.mtimeMs}`;
  };
  const folder = statSync(path, { throwIfNoEntry: false })?.isDirectory();
  return folder
    ? readdirSync(path)
        .map((name) => one(join(path, name)))
        .join('\n')
    : one(path);
}
/** Says which files a tokenizer was made of. */
export function cameFrom<T extends Encoder>(tokenizer: T, path: string): T {
  sources.set(tokenizer, { path, stamp: stampOf(path) });
  return tokenizer;
}
/** The thread beside a tokenizer; none where it was made by hand, or its files are others by now. */
export function threadOf(tokenizer: Encoder): EncodingThread | undefined {
  const source = sources.get(tokenizer);
  if (!source) return undefined;
  if (!source.thread && stampOf(source.path) === source.stamp) source.thread = new EncodingThread(source.path);
  return source.thread;
}

/** The numbers that `tokenizer.encode` has for the text, without holding up the event loop. */
export async function encodeLater(
  tokenizer: Encoder,
  text: string,
  { signal, ...options }: EncodeLaterOptions,
): Promise<number[]> {
  signal?.throwIfAborted();
  const characters = text.length + (options.pair?.length ?? 0);
  const thread = characters > TURN ? threadOf(tokenizer) : undefined;
  if (thread) return thread.encode(text, options, signal);
  await turnFor(characters);
  signal?.throwIfAborted();
  return tokenizer.encode(text, options);
}

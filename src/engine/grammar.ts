// Answers that keep to a grammar: compiled and matched by xgrammar on a thread of its own, so that neither the engine's
// loop nor anyone's socket waits; masks are made while the model computes.
import { Worker } from 'node:worker_threads';
import { ArgumentError, DisposedError } from '../base/errors.js';
import { BYTE_CHARACTERS } from '../tokenizers/byte-level.js';
import type { Tokenizer } from '../tokenizers/index.js';
import type { TokenMask } from './choose.js';
import { keptSchema } from './kept-schema.js';
import type { Grammar } from './request.js';

/** One answer's place in its grammar. */
export interface GrammarState {
  /** Kept when the mask of the next token is there. */
  ready(): Promise<void>;
  /** Tokens that may come next. */
  readonly mask: TokenMask;
  /** The text is complete and nothing may follow, not even an end token. */
  readonly complete: boolean;
  /** Moves on by a token; the next mask is under way. */
  accept(token: number): void;
  close(): void;
}
export interface GrammarCompiler {
  /** `ends`: tokens that may stand where the grammar is complete. */
  open(grammar: Grammar, ends: readonly number[]): Promise<GrammarState>;
  dispose(): Promise<void>;
}

/** To the worker. */
export type GrammarTask =
  | { readonly vocabulary: readonly string[]; readonly vocabSize: number }
  | {
      readonly open: number;
      readonly grammar: Grammar;
      readonly ends: readonly number[];
      readonly mask: SharedArrayBuffer;
    }
  | { readonly accept: number; readonly token: number }
  | { readonly close: number };
/** From it: the mask of a state is there, or what is wrong. */
export interface GrammarReply {
  readonly id: number;
  readonly complete: boolean;
  readonly error?: string;
}

/** Longest time that a grammar may take to compile. */
const PATIENCE_MS = 30_000;

class State implements GrammarState {
  readonly mask: TokenMask;
  complete = false;
  readonly #id: number;
  readonly #send: (task: GrammarTask) => void;
  #waiting = true;
  #error: Error | undefined;
  #wake: (() => void) | undefined;
  readonly #gone: () => void;
  constructor(id: number, mask: SharedArrayBuffer, send: (task: GrammarTask) => void, gone: () => void) {
    this.#id = id;
    this.mask = new Int32Array(mask);
    this.#send = send;
    this.#gone = gone;
  }
  async ready(): Promise<void> {
    if (this.#waiting) await new Promise<void>((resolve) => (this.#wake = resolve));
    if (this.#error) throw this.#error;
  }
  accept(token: number): void {
    this.#waiting = true;
    this.#send({ accept: this.#id, token });
  }
  /** The worker has answered. */
  told(complete: boolean, error?: Error): void {
    this.#waiting = false;
    this.complete = complete;
    this.#error ??= error;
    this.#wake?.();
    this.#wake = undefined;
  }
  close(): void {
    this.#send({ close: this.#id });
    this.#gone();
  }
}

/** Grammars over one vocabulary. The worker starts with the first of them. */
export class GrammarWorker implements GrammarCompiler {
  readonly #tokenizer: Tokenizer;
  readonly #vocabSize: number;
  readonly #states = new Map<number, State>();
  #worker: Worker | undefined;
  #next = 0;
  /** Answers of the worker that are awaited: it must not keep a program running that waits for none. */
  #asked = 0;
  #disposed = false;

  constructor(tokenizer: Tokenizer, vocabSize: number) {
    this.#tokenizer = tokenizer;
    this.#vocabSize = vocabSize;
  }
  #start(): Worker {
    const worker = new Worker(new URL('./grammar-thread.js', import.meta.url), { stderr: true });
    worker.unref();
    worker.on('message', ({ id, complete, error }: GrammarReply) => {
      if (--this.#asked === 0) worker.unref();
      this.#states.get(id)?.told(complete, error === undefined ? undefined : new ArgumentError(`grammar: ${error}`));
    });
    worker.on('error', (e) => this.#fail(worker, e instanceof Error ? e.message : String(e)));
    // Every token as the bytes it adds; special ones are not text.
    const vocabulary = Array.from({ length: this.#vocabSize }, (_, id) =>
      this.#tokenizer.isSpecial(id) ? '' : [...this.#tokenizer.bytes(id)].map((b) => BYTE_CHARACTERS[b]).join(''),
    );
    worker.postMessage({ vocabulary, vocabSize: this.#vocabSize } satisfies GrammarTask);
    return worker;
  }
  /** All grammars of a worker that is gone are over; the next one starts another. */
  #fail(worker: Worker, why: string): void {
    if (this.#worker !== worker) return;
    this.#worker = undefined;
    this.#asked = 0;
    void worker.terminate();
    for (const state of [...this.#states.values()]) state.told(true, new ArgumentError(`grammar: ${why}`));
    this.#states.clear();
  }
  async open(grammar: Grammar, ends: readonly number[]): Promise<GrammarState> {
    if (this.#disposed) throw new DisposedError('grammar: its engine was disposed of');
    const kept =
      grammar.kind === 'schema' ? { ...grammar, schema: keptSchema(grammar.schema, grammar.loose) } : grammar;
    const worker = (this.#worker ??= this.#start());
    const id = this.#next++;
    const mask = new SharedArrayBuffer(4 * Math.ceil(this.#vocabSize / 32));
    const send = (task: GrammarTask): void => {
      if (this.#worker !== worker) return;
      worker.postMessage(task);
      if (!('close' in task) && this.#asked++ === 0) worker.ref(); // somebody waits for it
    };
    const state = new State(id, mask, send, () => this.#states.delete(id));
    this.#states.set(id, state);
    send({ open: id, grammar: kept, ends, mask });
    const tooLong = setTimeout(
      () => this.#fail(worker, `it takes longer than ${PATIENCE_MS / 1000} seconds to compile`),
      PATIENCE_MS,
    );
    try {
      await state.ready();
      return state;
    } catch (e) {
      this.#states.delete(id);
      throw e;
    } finally {
      clearTimeout(tooLong);
    }
  }
  async dispose(): Promise<void> {
    this.#disposed = true;
    const worker = this.#worker;
    this.#worker = undefined;
    await worker?.terminate();
  }
}

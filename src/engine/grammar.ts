// Answers that keep to a grammar: compiled and matched by xgrammar on a thread of its own, so that neither the engine's
// loop nor anyone's socket waits; masks are made while the model computes.
import { ArgumentError, DisposedError } from '../base/errors.js';
import { BYTE_CHARACTERS } from '../tokenizers/byte-level.js';
import type { Tokenizer } from '../tokenizers/index.js';
import type { TokenMask } from './choose.js';
import { MatcherThread } from './grammar-queue.js';
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

/** To the thread. */
export type GrammarTask =
  | { readonly vocabulary: readonly string[]; readonly vocabSize: number }
  | {
      readonly open: number;
      readonly grammar: Grammar;
      readonly ends: readonly number[];
      /** What was written before: a thread that takes over for another goes on from there. */
      readonly tokens: readonly number[];
      readonly mask: SharedArrayBuffer;
    }
  | { readonly accept: number; readonly token: number }
  | { readonly close: number };
/** From it, for every task but the first kind and the last: the mask of a state is there, or what is wrong. */
export interface GrammarReply {
  readonly id: number;
  readonly complete: boolean;
  readonly error?: string;
}
export interface GrammarOptions {
  /** Longest time in milliseconds that the thread may take for one thing; default half a minute. */
  readonly patience?: number;
  /** The script of the thread. */
  readonly thread?: URL;
}

/** One answer: what any thread must know to be where it is, and what the last one said. */
class State implements GrammarState {
  readonly mask: TokenMask;
  readonly grammar: Grammar;
  complete = false;
  /** Compiled once, whatever became of the thread. */
  compiled = false;
  error: Error | undefined;
  readonly #id: number;
  readonly #ends: readonly number[];
  readonly #tokens: number[] = [];
  readonly #ask: (task: GrammarTask) => void;
  readonly #gone: () => void;
  /** Where the thread writes: each has its own, since one that was given up may write on. */
  #shared: TokenMask = new Int32Array(0);
  /** Answers that are to come; the mask is of what all of them say. */
  #awaited = 0;
  #wake: (() => void) | undefined;

  constructor(
    id: number,
    words: number,
    { grammar, ends }: { grammar: Grammar; ends: readonly number[] },
    { ask, gone }: { ask: (task: GrammarTask) => void; gone: () => void },
  ) {
    this.#id = id;
    this.mask = new Int32Array(words);
    this.grammar = grammar;
    this.#ends = ends;
    this.#ask = ask;
    this.#gone = gone;
  }
  async ready(): Promise<void> {
    if (this.#awaited > 0 && !this.error) await new Promise<void>((resolve) => (this.#wake = resolve));
    if (this.error) throw this.error;
  }
  /** Goes on, or begins, on a thread that knows nothing of it. */
  place(): void {
    const mask = new SharedArrayBuffer(this.mask.byteLength);
    this.#shared = new Int32Array(mask);
    this.#awaited = 1;
    const tokens = [...this.#tokens];
    this.#ask({ open: this.#id, grammar: this.grammar, ends: this.#ends, tokens, mask });
  }
  accept(token: number): void {
    this.#tokens.push(token);
    if (this.error) return;
    this.#awaited++;
    this.#ask({ accept: this.#id, token });
  }
  /** The thread has answered. */
  told(complete: boolean): void {
    this.compiled = true;
    if (--this.#awaited > 0) return;
    this.complete = complete;
    this.mask.set(this.#shared);
    this.#wake?.();
  }
  fail(error: Error): void {
    this.complete = true;
    this.error ??= error;
    this.#wake?.();
  }
  close(): void {
    this.#gone();
  }
}

/** Grammars over one vocabulary. The thread starts with the first of them. */
export class GrammarWorker implements GrammarCompiler {
  readonly #tokenizer: Tokenizer;
  readonly #vocabSize: number;
  readonly #patience: number;
  readonly #script: URL;
  readonly #states = new Map<number, State>();
  #vocabulary: readonly string[] | undefined;
  #thread: MatcherThread | undefined;
  #next = 0;
  #disposed = false;

  constructor(tokenizer: Tokenizer, vocabSize: number, options: GrammarOptions = {}) {
    this.#tokenizer = tokenizer;
    this.#vocabSize = vocabSize;
    this.#patience = options.patience ?? 30_000;
    this.#script = options.thread ?? new URL('./grammar-thread.js', import.meta.url);
  }
  #start(): MatcherThread {
    const thread: MatcherThread = new MatcherThread(this.#script, this.#patience, {
      told: ({ id, complete, error }) => {
        const state = this.#states.get(id);
        if (error === undefined) state?.told(complete);
        else state?.fail(new ArgumentError(`grammar: ${error}`));
      },
      late: (id) =>
        this.#giveUp(thread, id, (what) => `it takes longer than ${this.#patience / 1000} seconds to ${what}`),
      died: (id, why) => this.#giveUp(thread, id, () => why),
    });
    // Every token as the bytes it adds; special ones are not text.
    this.#vocabulary ??= Array.from({ length: this.#vocabSize }, (_, id) =>
      this.#tokenizer.isSpecial(id) ? '' : [...this.#tokenizer.bytes(id)].map((b) => BYTE_CHARACTERS[b]).join(''),
    );
    thread.tell({ vocabulary: this.#vocabulary, vocabSize: this.#vocabSize });
    return thread;
  }
  /** The answer whose turn it was is over, and those that wait for the same grammar; the others go on elsewhere. */
  #giveUp(thread: MatcherThread, id: number | undefined, why: (what: string) => string): void {
    if (this.#thread !== thread) return;
    this.#thread = undefined;
    const guilty = id === undefined ? undefined : this.#states.get(id);
    const written = (s: State): string => JSON.stringify(s.grammar);
    const same = (s: State): boolean =>
      s === guilty || (!!guilty && !s.compiled && !guilty.compiled && written(s) === written(guilty));
    for (const state of this.#states.values()) {
      if (state.error) continue;
      if (same(state)) state.fail(new ArgumentError(`grammar: ${why(guilty?.compiled ? 'go on' : 'compile')}`));
      else state.place();
    }
  }
  async open(grammar: Grammar, ends: readonly number[]): Promise<GrammarState> {
    if (this.#disposed) throw new DisposedError('grammar: its engine was disposed of');
    const kept =
      grammar.kind === 'schema' ? { ...grammar, schema: keptSchema(grammar.schema, grammar.loose) } : grammar;
    const id = this.#next++;
    const ask = (task: GrammarTask): void => (this.#thread ??= this.#start()).ask(id, task);
    const gone = (): void => {
      if (this.#states.delete(id)) this.#thread?.tell({ close: id });
    };
    const words = Math.ceil(this.#vocabSize / 32);
    const state = new State(id, words, { grammar: kept, ends }, { ask, gone });
    this.#states.set(id, state);
    state.place();
    try {
      await state.ready();
      return state;
    } catch (e) {
      state.close();
      throw e;
    }
  }
  async dispose(): Promise<void> {
    this.#disposed = true;
    const thread = this.#thread;
    this.#thread = undefined;
    for (const state of this.#states.values()) state.fail(new DisposedError('grammar: its engine was disposed of'));
    this.#states.clear();
    await thread?.end();
  }
}

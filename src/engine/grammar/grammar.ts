// Answers that keep to a grammar: compiled and matched by xgrammar on threads of their own, so that neither the
// engine's loop nor anyone's socket waits; masks are made while the model computes. One thread serves while grammars
// compile quickly; whoever waits behind one that does not goes on elsewhere.
import { ArgumentError, DisposedError } from '../../base/errors.js';
import { BYTE_CHARACTERS } from '../../tokenizers/byte-level.js';
import type { Tokenizer } from '../../tokenizers/index.js';
import type { TokenMask } from '../choose.js';
import { BEGINNING, MatcherThread, type Patience } from './grammar-queue.js';
import { keptGrammar } from './kept-schema.js';
import type { Grammar } from '../request.js';

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
  /** `ends`: tokens that may stand where the grammar is complete. Nobody waits any more once the signal is aborted. */
  open(grammar: Grammar, ends: readonly number[], signal?: AbortSignal): Promise<GrammarState>;
  dispose(): Promise<void>;
}

export interface GrammarOptions {
  /**
   * Milliseconds that a thread may take over one thing until others go elsewhere (default one second), and until it is
   * given up (default half a minute).
   */
  readonly patience?: Patience;
  /** The script of the thread. */
  readonly thread?: URL;
}

/** A thread, and the answers whose places in their grammars it keeps. */
interface Host {
  readonly thread: MatcherThread;
  readonly states: Map<number, State>;
  /** Grammars that it has compiled or is asked to. */
  readonly known: Set<string>;
}

/** One answer: what any thread must know to be where it is, and what the last one said. */
class State implements GrammarState {
  readonly mask: TokenMask;
  readonly grammar: Grammar;
  /** The same grammar has the same. */
  readonly key: string;
  complete = false;
  /** Compiled once, whatever became of the thread. */
  compiled = false;
  error: Error | undefined;
  readonly #ends: readonly number[];
  readonly #tokens: number[] = [];
  readonly #gone: () => void;
  host: Host | undefined;
  #id = 0;
  /** Where the thread writes: each has its own, since one that was given up may write on. */
  #shared: TokenMask = new Int32Array(0);
  /** Answers that are to come; the mask is of what all of them say. */
  #awaited = 0;
  #wake: (() => void) | undefined;

  constructor(words: number, grammar: Grammar, ends: readonly number[], gone: (state: State) => void) {
    this.mask = new Int32Array(words);
    this.grammar = grammar;
    this.key = JSON.stringify(grammar);
    this.#ends = ends;
    this.#gone = () => gone(this);
  }
  async ready(): Promise<void> {
    if (this.#awaited > 0 && !this.error) await new Promise<void>((resolve) => (this.#wake = resolve));
    if (this.error) throw this.error;
  }
  /** Goes on, or begins, on a thread that knows nothing of it. */
  place(host: Host, id: number): void {
    this.leave();
    [this.host, this.#id] = [host, id];
    host.states.set(id, this);
    const mask = new SharedArrayBuffer(this.mask.byteLength);
    this.#shared = new Int32Array(mask);
    this.#awaited = 1;
    const tokens = [...this.#tokens];
    host.thread.ask(id, { open: id, grammar: this.grammar, ends: this.#ends, tokens, mask });
  }
  /** What its thread still says of it counts no more. */
  leave(): void {
    if (this.host?.states.delete(this.#id)) this.host.thread.tell({ close: this.#id });
    this.host = undefined;
  }
  accept(token: number): void {
    this.#tokens.push(token);
    if (this.error || !this.host) return;
    this.#awaited++;
    this.host.thread.ask(this.#id, { accept: this.#id, token });
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

/** Threads that are started at most, each with the vocabulary: some hundred megabytes where that is large. */
const MOST_THREADS = 4;
/** As many are kept, once they were needed. */
const KEPT_THREADS = 2;
const PATIENCE: Patience = { slow: 1000, late: 30_000 };
const fewest = (hosts: readonly Host[]): Host | undefined =>
  hosts.reduce<Host | undefined>((a, b) => (a && a.states.size <= b.states.size ? a : b), undefined);

/** Grammars over one vocabulary. Their thread starts with the first of them. */
export class GrammarWorker implements GrammarCompiler {
  readonly #tokenizer: Tokenizer;
  readonly #vocabSize: number;
  readonly #patience: Patience;
  readonly #script: URL;
  readonly #hosts = new Set<Host>();
  #vocabulary: readonly string[] | undefined;
  #next = 0;
  #disposed = false;

  constructor(tokenizer: Tokenizer, vocabSize: number, options: GrammarOptions = {}) {
    this.#tokenizer = tokenizer;
    this.#vocabSize = vocabSize;
    this.#patience = options.patience ?? PATIENCE;
    this.#script = options.thread ?? new URL('./grammar-thread.js', import.meta.url);
  }
  #start(): Host {
    const thread = new MatcherThread(this.#script, this.#patience, {
      told: ({ id, complete, error }) => {
        const state = host.states.get(id);
        if (error === undefined) state?.told(complete);
        else state?.fail(new ArgumentError(`grammar: ${error}`));
      },
      slow: (id) => this.#moveOthers(host, id),
      late: (id) =>
        this.#giveUp(host, id, (what) => `it takes longer than ${this.#patience.late / 1000} seconds to ${what}`),
      died: (id, why) => this.#giveUp(host, id, () => why),
    });
    const host: Host = { thread, states: new Map(), known: new Set() };
    this.#hosts.add(host);
    // Every token as the bytes it adds; special ones are not text.
    this.#vocabulary ??= Array.from({ length: this.#vocabSize }, (_, id) =>
      this.#tokenizer.isSpecial(id) ? '' : [...this.#tokenizer.bytes(id)].map((b) => BYTE_CHARACTERS[b]).join(''),
    );
    thread.ask(BEGINNING, { vocabulary: this.#vocabulary, vocabSize: this.#vocabSize });
    return host;
  }
  /** Threads that do not take long over something at the moment. */
  get #quick(): Host[] {
    return [...this.#hosts].filter(({ thread }) => !thread.slow);
  }
  /** Finds a thread for an answer: one that knows its grammar already, or has the fewest to keep waiting. */
  #place(state: State): void {
    const quick = this.#quick;
    const mayStart = this.#hosts.size < MOST_THREADS;
    const host =
      quick.find(({ known }) => known.has(state.key)) ??
      fewest(quick) ??
      (mayStart ? this.#start() : (fewest([...this.#hosts]) as Host));
    // Nobody knows yet how long it takes: who would wait for it has another thread to go to by then.
    const holdsUp = !host.known.has(state.key) && host.states.size > 0;
    if (holdsUp && quick.length === 1 && mayStart) this.#start();
    host.known.add(state.key);
    state.place(host, this.#next++);
  }
  /** The one that a thread is at, and those that wait for the same grammar to be compiled. */
  #concerned(host: Host, id: number | undefined): Set<State> {
    const guilty = host.states.get(id ?? BEGINNING);
    if (!guilty) return new Set();
    const same = (s: State): boolean => !guilty.compiled && !s.compiled && s.key === guilty.key;
    return new Set([guilty, ...[...host.states.values()].filter(same)]);
  }
  /** A thread takes long over one thing: all that has nothing to do with it goes on elsewhere. */
  #moveOthers(host: Host, id: number): void {
    const staying = this.#concerned(host, id);
    if (this.#quick.length > 0 || this.#hosts.size < MOST_THREADS)
      for (const state of [...host.states.values()]) if (!staying.has(state) && !state.error) this.#place(state);
    this.#endUnused(host);
  }
  /** The answer whose turn it was is over, and those that wait for the same grammar; the others go on elsewhere. */
  #giveUp(host: Host, id: number | undefined, why: (what: string) => string): void {
    if (!this.#hosts.delete(host)) return;
    // A thread that does not begin would not the next time either.
    const over = id === BEGINNING ? new Set(host.states.values()) : this.#concerned(host, id);
    for (const state of [...host.states.values()]) {
      if (state.error) continue;
      if (over.has(state)) state.fail(new ArgumentError(`grammar: ${why(state.compiled ? 'go on' : 'compile')}`));
      else this.#place(state);
    }
  }
  /** Ends a thread that works for nobody, or that stays idle beside others. */
  #endUnused(host: Host): void {
    if (host.states.size > 0 || !(host.thread.slow || this.#hosts.size > KEPT_THREADS)) return;
    if (this.#hosts.delete(host)) void host.thread.end();
  }
  async open(grammar: Grammar, ends: readonly number[], signal?: AbortSignal): Promise<GrammarState> {
    if (this.#disposed) throw new DisposedError('grammar: its engine was disposed of');
    const gone = (state: State): void => {
      const { host } = state;
      state.leave();
      if (host) this.#endUnused(host);
    };
    const state = new State(Math.ceil(this.#vocabSize / 32), keptGrammar(grammar), ends, gone);
    const abort = (): void => state.fail(new ArgumentError('grammar: nobody waits for it'));
    signal?.addEventListener('abort', abort);
    this.#place(state);
    try {
      await state.ready();
      return state;
    } catch (e) {
      state.close();
      throw e;
    } finally {
      signal?.removeEventListener('abort', abort);
    }
  }
  async dispose(): Promise<void> {
    this.#disposed = true;
    const hosts = [...this.#hosts];
    this.#hosts.clear();
    const error = new DisposedError('grammar: its engine was disposed of');
    for (const { states } of hosts) for (const state of states.values()) state.fail(error);
    await Promise.all(hosts.map(({ thread }) => thread.end()));
  }
}

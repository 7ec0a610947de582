// A thread of grammars as its owner sees it: tasks are answered in their order, so what it is at is known, and for how
// long. A thread that takes long over one thing does not hear anyone: others go elsewhere, and at last it is ended.
import { Worker } from 'node:worker_threads';
import type { GrammarReply, GrammarTask } from './grammar-messages.js';

/** Who is told what the thread says. */
interface Listener {
  told(reply: GrammarReply): void;
  /** It takes long over a task of this place: others should not wait for it. */
  slow(id: number): void;
  /** It takes too long over a task of this place, and was ended. */
  late(id: number): void;
  /** It ended by an error, perhaps over a task of this place. */
  died(id: number | undefined, why: string): void;
}
/** Milliseconds that a thread may take over one thing: while others wait behind it, and at all. */
export interface Patience {
  readonly slow: number;
  readonly late: number;
}
/** The place whose task is the vocabulary, which a thread is at before anything else. */
export const BEGINNING = -1;

export class MatcherThread {
  readonly #worker: Worker;
  readonly #patience: Patience;
  readonly #listener: Listener;
  /** Whose tasks are to be answered, in their order: the thread is at the first. */
  readonly #asked: number[] = [];
  #clock: NodeJS.Timeout | undefined;
  #last: NodeJS.Immediate | undefined;
  /** It is at one thing for long. */
  slow = false;

  constructor(script: URL, patience: Patience, listener: Listener) {
    this.#patience = patience;
    this.#listener = listener;
    this.#worker = new Worker(script, { stderr: true });
    this.#worker.unref(); // it must not keep a program running that waits for none of its answers
    this.#worker.on('message', (reply: GrammarReply) => {
      this.#asked.shift();
      this.#watch();
      listener.told(reply);
    });
    this.#worker.on('error', (e) => {
      const [head] = this.#asked;
      void this.end();
      listener.died(head, e instanceof Error ? e.message : String(e));
    });
  }
  /** Sends what is answered. */
  ask(id: number, task: GrammarTask): void {
    this.#worker.postMessage(task);
    if (this.#asked.push(id) === 1) this.#watch();
  }
  /** Sends what is not. */
  tell(task: GrammarTask): void {
    this.#worker.postMessage(task);
  }
  /** Another task is its first now, or none is left. */
  #watch(): void {
    this.#stopClock();
    this.slow = false;
    const [head] = this.#asked;
    if (head === undefined) return this.#worker.unref();
    this.#worker.ref();
    const { slow, late } = this.#patience;
    const giveUp = (): void => {
      void this.end();
      this.#listener.late(head);
    };
    if (head === BEGINNING) return this.#after(late, giveUp);
    this.#after(slow, () => {
      this.slow = true;
      this.#after(late - slow, giveUp);
      this.#listener.slow(head);
    });
  }
  /** This thread may have slept itself: what was answered by now is heard before anything is given up. */
  #after(ms: number, then: () => void): void {
    this.#clock = setTimeout(() => (this.#last = setImmediate(then)), ms);
  }
  #stopClock(): void {
    clearTimeout(this.#clock);
    clearImmediate(this.#last);
  }
  async end(): Promise<void> {
    this.#stopClock();
    this.#worker.removeAllListeners();
    this.#worker.on('error', () => {}); // nobody waits for it
    await this.#worker.terminate();
  }
}

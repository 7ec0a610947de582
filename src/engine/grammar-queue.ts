// The thread of grammars as its owner sees it: tasks are answered in their order, so what it is at is known, and for
// how long. A thread that takes too long over one thing does not hear anyone, so that it can only be ended.
import { Worker } from 'node:worker_threads';
import type { GrammarReply, GrammarTask } from './grammar.js';

/** Who is told what the thread says. */
interface Listener {
  told(reply: GrammarReply): void;
  /** It takes too long over a task of this state, and was ended. */
  late(id: number): void;
  /** It ended by an error, perhaps over a task of this state. */
  died(id: number | undefined, why: string): void;
}

export class MatcherThread {
  readonly #worker: Worker;
  readonly #patience: number;
  readonly #listener: Listener;
  /** Whose tasks are to be answered, in their order: the thread is at the first. */
  readonly #asked: number[] = [];
  #clock: NodeJS.Timeout | undefined;
  #last: NodeJS.Immediate | undefined;

  constructor(script: URL, patience: number, listener: Listener) {
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
    clearTimeout(this.#clock);
    clearImmediate(this.#last);
    if (this.#asked.length === 0) return this.#worker.unref();
    this.#worker.ref();
    // This thread may have slept itself: what was answered by now is heard before anything is given up.
    this.#clock = setTimeout(() => (this.#last = setImmediate(() => this.#late())), this.#patience);
  }
  #late(): void {
    const [head] = this.#asked;
    void this.end();
    this.#listener.late(head);
  }
  async end(): Promise<void> {
    clearTimeout(this.#clock);
    clearImmediate(this.#last);
    this.#worker.removeAllListeners();
    this.#worker.on('error', () => {}); // nobody waits for it
    await this.#worker.terminate();
  }
}

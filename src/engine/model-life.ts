// How long a model lives: what reads its weights, perhaps on another thread, ends before they are given back.
import { DisposedError } from '../base/errors.js';
import type { CausalLM } from '../models/index.js';

export class ModelLife {
  readonly #model: CausalLM;
  #ended = false;
  /** What reads the weights at the moment, and what waits for its end. */
  #reading = 0;
  #whenQuiet: (() => void) | undefined;

  constructor(model: CausalLM) {
    this.#model = model;
  }
  /** Whether somebody has disposed of the model. */
  get ended(): boolean {
    return this.#ended;
  }
  /** Refuses what would begin or go on after that. */
  check(what: string): void {
    if (this.#ended) throw new DisposedError(`${what}: the model ${this.#model.config.family} was disposed of`);
  }
  /** Runs what reads the weights, perhaps on another thread; a model disposed of meanwhile keeps them until the end. */
  async during<T>(f: () => Promise<T>): Promise<T> {
    this.#reading++;
    try {
      return await f();
    } finally {
      if (--this.#reading === 0) this.#whenQuiet?.();
    }
  }
  /** Nothing begins from now on. */
  end(): void {
    this.#ended = true;
  }
  /** Gives the weights back, once nothing reads them. */
  free(): void {
    if (this.#reading === 0) this.#model.dispose();
    else this.#whenQuiet = () => this.#model.dispose();
  }
}

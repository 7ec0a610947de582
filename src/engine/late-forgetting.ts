// What is held for a sequence goes when no step is under way: a step on another thread still reads and writes it, and
// its memory must not be somebody else's by then.
import type { Sequence } from './sequence.js';

export class LateForgetting {
  readonly #forget: (sequence: Sequence) => void;
  readonly #late = new Set<Sequence>();
  #steps = 0;
  constructor(forget: (sequence: Sequence) => void) {
    this.#forget = forget;
  }
  /** Now, or when the steps that are under way are over. */
  forget(sequence: Sequence): void {
    if (this.#steps > 0) this.#late.add(sequence);
    else this.#forget(sequence);
  }
  async during<T>(step: () => Promise<T>): Promise<T> {
    this.#steps++;
    try {
      return await step();
    } finally {
      if (--this.#steps === 0) {
        for (const sequence of this.#late) this.#forget(sequence);
        this.#late.clear();
      }
    }
  }
}

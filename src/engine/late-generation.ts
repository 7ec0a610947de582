// A request whose prompt is still being encoded: who reads it waits, who cancels it does not.
import type { Generation, Piece, Usage } from './request.js';
import { NOTHING_USED } from './stream.js';

export class LateGeneration implements Omit<Generation, 'id'> {
  readonly usage: Promise<Usage>;
  readonly #gone = new AbortController();
  /** None where it was cancelled before it began. */
  readonly #begun: Promise<Generation | undefined>;

  constructor(
    encode: (signal: AbortSignal) => Promise<number[]>,
    submit: (prompt: number[]) => Generation,
    given?: AbortSignal,
  ) {
    const signal = given ? AbortSignal.any([given, this.#gone.signal]) : this.#gone.signal;
    const cancelled = new Promise<undefined>((resolve) => {
      if (signal.aborted) resolve(undefined);
      signal.addEventListener('abort', () => resolve(undefined), { once: true });
    });
    const begun = encode(signal).then((prompt) => (signal.aborted ? undefined : submit(prompt)));
    this.#begun = Promise.race([cancelled, begun]);
    const usage = (generation: Generation | undefined): Promise<Usage> | Usage => generation?.usage ?? NOTHING_USED;
    this.usage = this.#begun.then(usage, () => NOTHING_USED); // an error is its reader's
  }
  cancel(): void {
    this.#gone.abort();
    void this.#begun.then(
      (generation) => generation?.cancel(),
      () => {},
    );
  }
  async *[Symbol.asyncIterator](): AsyncGenerator<Piece, void> {
    const generation = await this.#begun;
    if (generation) yield* generation;
  }
}

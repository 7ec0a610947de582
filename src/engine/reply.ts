// What a model answers to a caller of the library: text as it comes, and the whole of it with its numbers at the end.
import type { FinishReason, Generation, Piece, TokenLogprob, Usage } from './request.js';

/** A whole answer. */
export interface Completion {
  /** The text. */
  readonly text: string;
  /** Its tokens. */
  readonly tokens: readonly number[];
  /** Where they were asked for, one for each token. */
  readonly logprobs?: readonly TokenLogprob[];
  /** Why it ended. */
  readonly reason: FinishReason;
  /** The stop text that was found. */
  readonly stopText?: string;
  /** Tokens and seconds of the whole request. */
  readonly usage: Usage;
}

/**
 * One answer: `for await (const text of reply)` as it is written, `await reply.done` for all of it, or both, in any
 * order: every loop begins with the first piece. Who leaves a loop ends the answer; text waits for a slow reader in one
 * piece.
 */
export class Reply implements AsyncIterable<string> {
  readonly #generation: Omit<Generation, 'id'>;
  readonly #source: AsyncIterator<Piece>;
  /** What was read so far, by whomever. */
  readonly #pieces: Piece[] = [];
  /** The next piece, while somebody waits for it; an error stays. */
  #coming: Promise<boolean> | undefined;
  #done: Promise<Completion> | undefined;
  constructor(generation: Omit<Generation, 'id'>) {
    this.#generation = generation;
    this.#source = generation[Symbol.asyncIterator]();
  }
  /** Ends the answer within one token. */
  cancel(): void {
    this.#generation.cancel();
  }
  /** Reads one piece more for all who wait; whether there was one. */
  #more(): Promise<boolean> {
    this.#coming ??= this.#source.next().then(({ value, done }) => {
      this.#coming = undefined;
      if (!done) this.#pieces.push(value);
      return !done;
    });
    return this.#coming;
  }
  async *[Symbol.asyncIterator](): AsyncGenerator<string, void> {
    let over = false;
    try {
      for (let at = 0; !over; over = at === this.#pieces.length && !(await this.#more()))
        while (at < this.#pieces.length) {
          const { text } = this.#pieces[at++];
          if (text) yield text;
        }
    } finally {
      if (!over) this.cancel();
    }
  }
  /** The whole answer, once it is written. */
  get done(): Promise<Completion> {
    this.#done ??= this.#collect();
    return this.#done;
  }
  async #collect(): Promise<Completion> {
    while (await this.#more());
    return completionOf(this.#pieces, await this.#generation.usage);
  }
}

/** Pieces of one answer as one. */
export function completionOf(pieces: readonly Piece[], usage: Usage): Completion {
  const last = pieces.at(-1);
  const logprobs = pieces.some((p) => p.logprobs) ? pieces.flatMap((p) => p.logprobs ?? []) : undefined;
  return {
    text: pieces.map((p) => p.text).join(''),
    tokens: pieces.flatMap((p) => p.tokens),
    ...(logprobs && { logprobs }),
    reason: last?.finish ?? 'aborted',
    ...(last?.stopText !== undefined && { stopText: last.stopText }),
    usage,
  };
}

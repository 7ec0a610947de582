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
 * One answer: `for await (const text of reply)` as it is written, or `await reply.done` for all of it. Who leaves the
 * loop ends the answer; text waits for a slow reader in one piece.
 */
export class Reply implements AsyncIterable<string> {
  readonly #generation: Generation;
  readonly #pieces: Piece[] = [];
  #done: Promise<Completion> | undefined;
  #reading = false;
  constructor(generation: Generation) {
    this.#generation = generation;
  }
  /** Ends the answer within one token. */
  cancel(): void {
    this.#generation.cancel();
  }
  async *[Symbol.asyncIterator](): AsyncGenerator<string, void> {
    this.#reading = true;
    for await (const piece of this.#generation) {
      this.#pieces.push(piece);
      if (piece.text) yield piece.text;
    }
  }
  /** The whole answer, once it is written; what was read before is part of it. */
  get done(): Promise<Completion> {
    this.#done ??= this.#collect();
    return this.#done;
  }
  async #collect(): Promise<Completion> {
    if (!this.#reading) for await (const piece of this.#generation) this.#pieces.push(piece);
    const usage = await this.#generation.usage;
    return completionOf(this.#pieces, usage);
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

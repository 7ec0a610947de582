// A request's answers from the engine, step by step: counted for log and metrics, and ended with its client.
import type { Engine, Generation, GenerationRequest, Piece, TokenLogprob, Usage } from '../engine/request.js';
import { ArgumentError } from '../base/errors.js';
import { keptGrammar } from '../engine/grammar/kept-schema.js';
import type { AnswerParser, AnswerPart } from './answer-parser.js';
import { badRequest, tookTooLong } from './errors.js';
import type { ServerContext } from './exchange.js';
import type { Metrics } from './metrics.js';

/** What one step added to one answer, read. */
export interface AnswerStep {
  readonly choice: number;
  readonly parts: readonly AnswerPart[];
  readonly logprobs?: readonly TokenLogprob[];
  readonly finish?: 'stop' | 'length' | 'tool_calls';
  readonly stopText?: string;
}
export interface ServerTools {
  readonly metrics: Metrics;
  readonly requestSeconds: number;
}

/** Answers under way: pieces as the engine gives them, then what they took. */
export class Answers {
  readonly #generation: Generation;
  readonly #context: ServerContext;
  readonly #tools: ServerTools;
  readonly #begin = performance.now();
  readonly #model: string;
  readonly #answers: number;
  readonly #grammarField: string | undefined;
  /** Whether a grammar binds it, which somebody else compiles. */
  readonly #bound: boolean;

  /**
   * Throws what the engine has against the request, before a byte is sent, and what a schema says in vain. Faults of
   * other grammars come with the first step; all of these name the field that the grammar stands in.
   */
  constructor(c: ServerContext, engine: Engine, request: GenerationRequest, tools: ServerTools, grammarField?: string) {
    this.#grammarField = grammarField;
    this.#context = c;
    this.#tools = tools;
    this.#model = engine.name;
    this.#answers = request.n ?? 1;
    this.#bound = request.grammar !== undefined;
    try {
      if (request.grammar) keptGrammar(request.grammar);
    } catch (error) {
      throw this.#placed(error);
    }
    c.var.tally.model = engine.name;
    c.var.tally.promptTokens = (c.var.tally.promptTokens ?? 0) + request.prompt.length;
    this.#generation = engine.submit({ ...request, signal: c.var.ending.signal });
  }
  #placed(error: unknown): unknown {
    const ofGrammar = error instanceof ArgumentError && error.message.startsWith('grammar: ');
    return ofGrammar ? badRequest(error.message, this.#grammarField) : error;
  }
  cancel(): void {
    this.#generation.cancel();
  }
  get usage(): Promise<Usage> {
    return this.#generation.usage;
  }

  async *pieces(): AsyncGenerator<Piece> {
    const { metrics } = this.#tools;
    const { tally } = this.#context.var;
    let last = 0;
    try {
      for await (const piece of this.#generation) {
        const now = performance.now();
        if (piece.tokens.length > 0) {
          if (last === 0) {
            tally.firstTokenSeconds = (now - this.#begin) / 1000;
            metrics.firstToken(this.#model, tally.firstTokenSeconds);
          } else metrics.nextTokens(this.#model, (now - last) / 1000, piece.tokens.length);
          last = now;
        }
        if (piece.finish) {
          tally.finish = piece.finish;
          metrics.finished(this.#model, piece.finish);
        }
        yield piece;
      }
      if (this.#context.var.ending.timedOut) throw tookTooLong(this.#tools.requestSeconds);
    } catch (error) {
      throw this.#placed(error);
    } finally {
      const usage = await this.#generation.usage;
      tally.tokens = (tally.tokens ?? 0) + usage.tokens;
      tally.cachedTokens = (tally.cachedTokens ?? 0) + usage.cachedTokens;
      metrics.used(this.#model, usage, (performance.now() - this.#begin) / 1000);
    }
  }
  /**
   * Its steps for a stream that is about to begin. A grammar that cannot be compiled is still told by the status: the
   * first step of a bound answer is waited for, as long as a connection may be silent.
   */
  async streamed(parser: () => AnswerParser, silentSeconds: number): Promise<AsyncGenerator<AnswerStep>> {
    const steps = this.steps(parser);
    return this.#bound ? withFirst(steps, silentSeconds * 1000) : steps;
  }
  /** The same, split into text, reasoning and calls. */
  async *steps(parser: () => AnswerParser): AsyncGenerator<AnswerStep> {
    const parsers = Array.from({ length: this.#answers }, parser);
    for await (const piece of this.pieces()) {
      const { choice, logprobs, stopText, finish } = piece;
      const reading = parsers[choice];
      const parts = [...reading.push(piece.text), ...(finish ? reading.end() : [])];
      const reason = finish === 'length' ? 'length' : reading.calls > 0 ? 'tool_calls' : 'stop';
      yield {
        choice,
        parts,
        ...(logprobs && { logprobs }),
        ...(stopText !== undefined && { stopText }),
        ...(finish && { finish: reason }),
      };
    }
  }
}

/** The same values, once the first is there or has failed; longer than so many milliseconds it is not waited for. */
async function withFirst<T>(all: AsyncGenerator<T, void>, ms: number): Promise<AsyncGenerator<T, void>> {
  const first = all.next();
  let clock: NodeJS.Timeout | undefined;
  try {
    await Promise.race([first, new Promise<void>((resolve) => (clock = setTimeout(resolve, ms)))]);
  } finally {
    clearTimeout(clock);
  }
  return (async function* () {
    try {
      const { value, done } = await first;
      if (done) return;
      yield value;
      yield* all;
    } finally {
      await all.return();
    }
  })();
}

// A request's answers from the engine, step by step: counted for log and metrics, and ended with its client.
import type { Engine, Generation, GenerationRequest, Piece, TokenLogprob, Usage } from '../engine/request.js';
import { ArgumentError } from '../base/errors.js';
import { keptGrammar } from '../engine/kept-schema.js';
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

  /**
   * Throws what the engine has against the request, before a byte is sent, and what a schema says in vain. Faults of
   * other grammars come later; all of these name the field that the grammar stands in.
   */
  constructor(c: ServerContext, engine: Engine, request: GenerationRequest, tools: ServerTools, grammarField?: string) {
    this.#grammarField = grammarField;
    this.#context = c;
    this.#tools = tools;
    this.#model = engine.name;
    this.#answers = request.n ?? 1;
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

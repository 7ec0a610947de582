// One answer at a time, a token after another, by a decoder that is kept for the next one.
import { ArgumentError, IndexError } from '../base/errors.js';
import type { CausalLM } from '../models/index.js';
import { StopWatch, TextStream, type Tokenizer } from '../tokenizers/index.js';
import { checkGenerateOptions } from './check-request.js';
import type { Decoder } from './decoder.js';
import type { GenerateOptions, GenerateStats } from './language-model-options.js';
import type { ModelLife } from './model-life.js';
import { LoopTurns } from './off-thread.js';
import { Sampler } from './sampler.js';

/** Refuses prompts and limits that make no sense. */
export function checkPrompt({ config }: CausalLM, prompt: readonly number[], maxTokens: number): void {
  const { maxPositions, vocabSize } = config;
  if (maxTokens !== Infinity && (!Number.isSafeInteger(maxTokens) || maxTokens < 0))
    throw new ArgumentError(`generate: maxTokens ${String(maxTokens)} is not a whole number from 0, nor Infinity`);
  if (prompt.length === 0) throw new ArgumentError('generate: an empty prompt and no start token; give some text');
  if (prompt.length >= maxPositions)
    throw new ArgumentError(
      `generate: the prompt has ${prompt.length} tokens, the model has ${maxPositions} positions`,
    );
  prompt.forEach((token, i) => {
    if (!Number.isSafeInteger(token) || token < 0 || token >= vocabSize)
      throw new IndexError(`generate: token ${token} at position ${i} is none of the model's ${vocabSize}`);
  });
}

export interface LoneAnswersParts {
  readonly model: CausalLM;
  readonly tokenizer: Tokenizer;
  readonly life: ModelLife;
  readonly make: (model: CausalLM) => Decoder;
  /** Refuses by an error where others could not take part. */
  readonly mayDraw: () => void;
}
export class LoneAnswers {
  readonly #model: CausalLM;
  readonly #tokenizer: Tokenizer;
  readonly #life: ModelLife;
  readonly #make: (model: CausalLM) => Decoder;
  readonly #mayDraw: () => void;
  /** A decoder that no answer uses at the moment: what it captured serves the next one. */
  #idle: Decoder | undefined;

  constructor({ model, tokenizer, life, make, mayDraw }: LoneAnswersParts) {
    this.#model = model;
    this.#tokenizer = tokenizer;
    this.#life = life;
    this.#make = make;
    this.#mayDraw = mayDraw;
  }
  /** Token numbers, one by one. */
  async *tokens(prompt: readonly number[], options: GenerateOptions): AsyncGenerator<number, GenerateStats> {
    const tally = new Tally(prompt.length);
    yield* this.#draw(prompt, options, tally);
    return tally.stats();
  }
  async *#draw(prompt: readonly number[], options: GenerateOptions, tally: Tally): AsyncGenerator<number, void> {
    const { maxTokens = 256, signal } = options;
    const { eosTokenIds, maxPositions } = this.#model.config;
    this.#life.check('generate');
    checkGenerateOptions(options);
    checkPrompt(this.#model, prompt, maxTokens);
    this.#mayDraw();
    const sampler = new Sampler(options);
    const decoder = this.#idle ?? this.#make(this.#model);
    this.#idle = undefined;
    const history = [...prompt];
    const limit = Math.min(maxTokens, maxPositions - prompt.length);
    const turns = new LoopTurns();
    tally.begin();
    try {
      let next: readonly number[] = prompt;
      while (tally.tokens < limit) {
        await turns.next();
        this.#life.check('generate');
        if (signal?.aborted) {
          tally.reason = 'aborted';
          break;
        }
        const token = await this.#life.during(() =>
          sampler.plainGreedy ? decoder.runGreedy(next) : decoder.runSampled(next, sampler, history),
        );
        this.#life.check('generate');
        tally.ran();
        if (eosTokenIds.includes(token)) {
          tally.reason = 'end';
          break;
        }
        tally.tokens++;
        history.push(token);
        yield token;
        next = [token];
      }
    } finally {
      if (this.#idle || this.#life.ended) decoder.dispose();
      else {
        decoder.reset();
        this.#idle = decoder;
      }
    }
  }
  /** Text, piece by piece. */
  async *text(ids: readonly number[], options: GenerateOptions): AsyncGenerator<string, GenerateStats> {
    const stream = new TextStream(this.#tokenizer, ids);
    const stops = new StopWatch(options.stop ?? []);
    const tally = new Tally(ids.length);
    let over: 'read' | 'left' | 'failed' = 'left';
    try {
      for await (const token of this.#draw(ids, options, tally)) {
        const shown = stops.push(stream.push(token));
        if (shown) yield shown;
        if (stops.found === undefined) continue;
        tally.reason = 'stop';
        break;
      }
      const rest = tally.reason === 'stop' ? '' : stops.push(stream.flush()) + stops.flush();
      if (rest) yield rest;
      over = 'read';
    } catch (e) {
      over = 'failed';
      throw e;
    } finally {
      // The loop above has ended the source, and with it the decoder, whichever way it was left.
      if (over === 'left') tally.reason = 'aborted';
      if (over !== 'failed') options.onDone?.(tally.stats());
    }
    return tally.stats();
  }
  /** Gives the decoder back that no answer uses; the others go with their answers. */
  dispose(): void {
    this.#idle?.dispose();
    this.#idle = undefined;
  }
}

/** What one answer took, counted while it is made. */
class Tally {
  readonly #promptTokens: number;
  #begin = 0;
  #prefillEnd = 0;
  #end = 0;
  tokens = 0;
  reason: GenerateStats['reason'] = 'length';

  constructor(promptTokens: number) {
    this.#promptTokens = promptTokens;
  }
  begin(): void {
    this.#begin = this.#prefillEnd = this.#end = performance.now();
  }
  /** A token came. */
  ran(): void {
    this.#end = performance.now();
    if (this.tokens === 0) this.#prefillEnd = this.#end;
  }
  stats(): GenerateStats {
    return {
      promptTokens: this.#promptTokens,
      tokens: this.tokens,
      prefillSeconds: (this.#prefillEnd - this.#begin) / 1000,
      decodeSeconds: (this.#end - this.#prefillEnd) / 1000,
      reason: this.reason,
    };
  }
}

// What is asked of an engine and what it answers: the contract between those who schedule tokens and those who serve
// them.
import { ArgumentError, WickError } from '../base/errors.js';
import type { ChatTemplates, Tokenizer } from '../tokenizers/index.js';

/**
 * What an answer must look like: any JSON, JSON that a schema describes, a text that a regular expression matches in
 * whole, one of a grammar in GBNF's notation (`root ::= ...`), or one of several such things.
 */
export type Grammar =
  | { readonly kind: 'json' }
  | {
      readonly kind: 'schema';
      readonly schema: unknown;
      /** Words of the schema that no grammar expresses are passed over; they are refused unless this is said. */
      readonly loose?: boolean;
      /** Blanks in a row between the parts of a value, at most (default 16). */
      readonly blanks?: number;
    }
  | { readonly kind: 'regex'; readonly pattern: string }
  | { readonly kind: 'ebnf'; readonly grammar: string }
  | { readonly kind: 'either'; readonly of: readonly Grammar[] }
  | {
      readonly kind: 'marked';
      /** Texts between marks: one of them, or several in any order. */
      readonly texts: readonly MarkedText[];
      /** What stands between several; without it there is one. */
      readonly separator?: string;
    };
/** What an answer must look like between two marks. */
export interface MarkedText {
  /** The mark before it. */
  readonly begin: string;
  /** What it must look like. */
  readonly content: Grammar;
  /** The mark behind it. */
  readonly end: string;
}

/** A request of an engine: a prompt, how tokens are drawn, and when to end. */
export interface GenerationRequest {
  /** Token numbers. */
  readonly prompt: readonly number[];
  /** Default: as many as the context has room for. */
  readonly maxTokens?: number;
  /**
   * Until so many tokens are written, neither an end token nor a stop token is drawn, unless its grammar leaves nothing
   * else; default 0.
   */
  readonly minTokens?: number;
  /** How many answers; answer i draws with seed + i. Default 1. */
  readonly n?: number;
  /** 0: always the likeliest token. Default 0.8. */
  readonly temperature?: number;
  /** Only the k likeliest tokens; 0: all. */
  readonly topK?: number;
  /** Only the likeliest tokens that together have this probability; 1: all. */
  readonly topP?: number;
  /** Only tokens at least this likely, relative to the likeliest; 0: all. */
  readonly minP?: number;
  /** Only tokens whose surprise is near what is expected, together this likely; 1: all. */
  readonly typicalP?: number;
  /** Logits of tokens seen so far, prompt included, are divided (or multiplied, if negative) by it; 1: none. */
  readonly repetitionPenalty?: number;
  /** How many of the last tokens the repetition penalty looks at; default: all. */
  readonly repetitionWindow?: number;
  /** Taken off the logit of each token of the answer; 0: none. */
  readonly presencePenalty?: number;
  /** Taken off the logit of each token of the answer, once for every time it stands there; 0: none. */
  readonly frequencyPenalty?: number;
  /** Added to the logits of these tokens, by number. */
  readonly logitBias?: ReadonlyMap<number, number>;
  /** Only these tokens are drawn. */
  readonly allowedTokens?: readonly number[];
  /** Default: one drawn by chance. */
  readonly seed?: number;
  /**
   * Log-probabilities of the raw logits: how many of the best beside the chosen token's own; 0: only its own. Tokens of
   * a stop text have none: they are those of the text that is shown.
   */
  readonly logprobs?: number;
  /** Log-probabilities of the prompt's own tokens, in the first piece of answer 0. */
  readonly promptLogprobs?: boolean;
  /** Texts that end the answer and are left out of it. */
  readonly stop?: readonly string[];
  /** Tokens that end the answer as its end token does. */
  readonly stopTokens?: readonly number[];
  /** The model's end tokens are tokens like others. */
  readonly ignoreEnd?: boolean;
  /** Special tokens stay in the text; default false. */
  readonly keepSpecial?: boolean;
  /** What the answer must look like: JSON, a JSON schema, a regular expression or a grammar. */
  readonly grammar?: Grammar;
  /** Guesses checked several at a time; the answer is the same. */
  readonly speculate?: 'prompt-lookup' | 'draft' | false;
  /** Smaller goes first; default 0. */
  readonly priority?: number;
  /** Prompts share what was computed only with requests of the same salt. */
  readonly cacheSalt?: string;
  /** Takes effect within one token; what was written stays. */
  readonly signal?: AbortSignal;
}

/** A token with its log-probability. */
export interface LikelyToken {
  /** Its number. */
  readonly token: number;
  /** Its text; half a character is shown as U+FFFD. */
  readonly text: string;
  /** Its bytes. */
  readonly bytes: readonly number[];
  /** Its natural log-probability. */
  readonly logprob: number;
}
/** A token's log-probability, and those of the likeliest in its place. */
export interface TokenLogprob extends LikelyToken {
  /** The likeliest tokens at this place, best first. */
  readonly top: readonly LikelyToken[];
}
/** 'end': an end token of the model; 'stop': a stop text or a stop token; 'length': no room or the limit. */
export type FinishReason = 'end' | 'stop' | 'length' | 'aborted';

/** What one step added to one answer. */
export interface Piece {
  /** Which of the n answers. */
  readonly choice: number;
  /** The text that was added. */
  readonly text: string;
  /** The tokens that were added. */
  readonly tokens: readonly number[];
  /** One for each token whose text is shown by now, where they were asked for. */
  readonly logprobs?: readonly TokenLogprob[];
  /** One for each token of the prompt but the first, in answer 0's first piece, where they were asked for. */
  readonly promptLogprobs?: readonly TokenLogprob[];
  /** In an answer's last piece. */
  readonly finish?: FinishReason;
  /** The stop text that was found, or the text of the stop token. */
  readonly stopText?: string;
}
/** What a request took. */
export interface Usage {
  /** Tokens of the prompt. */
  readonly promptTokens: number;
  /** Tokens of the prompt that were computed before, by others. */
  readonly cachedTokens: number;
  /** Tokens written, of all answers; an end or stop token is not among them. */
  readonly tokens: number;
  /** Time before it began. */
  readonly queuedSeconds: number;
  /** Time for the prompt. */
  readonly prefillSeconds: number;
  /** Time for the tokens after the first. */
  readonly decodeSeconds: number;
}
/**
 * A request under way. Pieces wait here for their reader, joined where several wait; who leaves the loop cancels it.
 * An error ends the loop by being thrown there.
 */
export interface Generation extends AsyncIterable<Piece> {
  /** A number of its own among those of its engine. */
  readonly id: number;
  /** Ends it within one token: its last pieces say 'aborted'. */
  cancel(): void;
  /** Known when all answers have ended, whichever way; it never fails. */
  readonly usage: Promise<Usage>;
}

/** What an engine takes at most. */
export interface EngineLimits {
  /** Tokens of prompt and answer together. */
  readonly contextTokens: number;
  /** Sequences that run at a time. */
  readonly maxRunning: number;
  /** Requests that may wait. */
  readonly maxWaiting: number;
  /** Pages of keys and values. */
  readonly pages: number;
  /** Tokens of a page. */
  readonly pageTokens: number;
}
/** What an engine is doing. */
export interface EngineStatus {
  /** Sequences that run. */
  readonly running: number;
  /** Requests that wait. */
  readonly waiting: number;
  /** Pages that sequences or shared prompts hold. */
  readonly pagesUsed: number;
  /** All pages. */
  readonly pagesTotal: number;
  /** Tokens written a second, over the last seconds. */
  readonly tokensPerSecond: number;
  /** Tokens of prompts computed a second, over the last seconds. */
  readonly promptTokensPerSecond: number;
  /** Counted since the start: tokens written, tokens of prompts computed, tokens of prompts found in the cache. */
  readonly tokens: number;
  /** Tokens of prompts computed since the start. */
  readonly promptTokens: number;
  /** Tokens of prompts found in the cache since the start. */
  readonly prefixHits: number;
  /** Sequences that had to give their pages up and begin again, since the start. */
  readonly preemptions: number;
  /** Requests that ended since the start. */
  readonly finished: number;
}
/** What answers requests; `TextEngine` is one, servers take any. */
export interface Engine {
  /** What APIs call the model. */
  readonly name: string;
  /** How text becomes tokens and back. */
  readonly tokenizer: Tokenizer;
  /** The model's chat templates; undefined where it has none. */
  readonly chatTemplate: ChatTemplates | undefined;
  /** How long, how many at a time, how many may wait. */
  readonly limits: EngineLimits;
  /** Throws at once: ArgumentError and IndexError for bad parameters, ContextError, QueueFullError. */
  submit(request: GenerationRequest): Generation;
  /** Texts as vectors, where the model makes them. */
  embed?(texts: readonly string[]): Promise<Float32Array[]>;
  /** What it is doing, for metrics. */
  status(): EngineStatus;
  /** Ends all requests and gives the memory back. */
  dispose(): Promise<void>;
}

/** No more requests may wait. */
export class QueueFullError extends WickError {
  /** When to try again. */
  readonly retryAfterSeconds: number;
  constructor(message: string, retryAfterSeconds: number) {
    super('E_BUSY', message);
    this.retryAfterSeconds = retryAfterSeconds;
  }
}
/** A prompt that the context has no room for. */
export class ContextError extends ArgumentError {
  /** Tokens of the prompt. */
  readonly promptTokens: number;
  /** Tokens that the context has room for. */
  readonly contextTokens: number;
  constructor(promptTokens: number, contextTokens: number) {
    super(
      `generate: the prompt has ${promptTokens} tokens; with one more for the answer it must fit the context of ` +
        `${contextTokens}`,
    );
    this.promptTokens = promptTokens;
    this.contextTokens = contextTokens;
  }
}

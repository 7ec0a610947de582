// How one answer chooses its next token from a row of logits. What is asked for is applied in one order:
// log-probabilities of the raw row, allowed tokens, bias, penalties, temperature, filters, the draw.
import { ArgumentError } from '../base/errors.js';
import type { GenerationRequest } from './request.js';
import { argmax, draw, type Filter, uniformAt } from './sampler.js';

export const NONE_LEFT = 'generate: no token is left that all of the given rules allow';

/** A set of tokens as bits, as grammars give them: bit t of word t / 32. */
export type TokenMask = Int32Array;

/** How the tokens of an answer are drawn, with nothing left open, for who draws them elsewhere. */
export interface DrawRule extends Required<Filter> {
  readonly seed: number;
  readonly repetitionPenalty: number;
  readonly repetitionWindow: number;
  readonly presencePenalty: number;
  readonly frequencyPenalty: number;
  readonly logitBias: ReadonlyMap<number, number>;
  readonly allowedTokens: readonly number[] | undefined;
  /** Tokens that may not be drawn before the shortest length. */
  readonly ends: readonly number[];
  readonly minTokens: number;
  readonly logprobs: number | undefined;
}

/** What one answer remembers between its tokens. */
export class Chooser {
  readonly #request: GenerationRequest;
  readonly #filter: Required<Filter>;
  readonly #seed: number;
  readonly #allowed: Uint8Array | undefined;
  /** How often each token stands in the answer. */
  readonly #written = new Map<number, number>();
  readonly #counting: boolean;
  /** Tokens that may not be drawn before the shortest length. */
  readonly #ends: readonly number[];
  #copy: Float32Array | undefined;

  constructor(request: GenerationRequest, seed: number, ends: readonly number[], vocabSize: number) {
    const { temperature = 0.8, topK = 0, topP = 1, minP = 0, typicalP = 1 } = request;
    this.#request = request;
    this.#filter = { temperature, topK, topP, minP, typicalP };
    this.#seed = seed;
    this.#ends = ends;
    this.#counting = (request.presencePenalty ?? 0) !== 0 || (request.frequencyPenalty ?? 0) !== 0;
    if (request.allowedTokens) {
      this.#allowed = new Uint8Array(vocabSize);
      for (const token of request.allowedTokens) this.#allowed[token] = 1;
    }
  }
  /** The same for who draws elsewhere; none where a grammar has a say before every token. */
  get rule(): DrawRule | undefined {
    const r = this.#request;
    if (r.grammar) return undefined;
    return {
      ...this.#filter,
      seed: this.#seed,
      repetitionPenalty: r.repetitionPenalty ?? 1,
      repetitionWindow: r.repetitionWindow ?? Infinity,
      presencePenalty: r.presencePenalty ?? 0,
      frequencyPenalty: r.frequencyPenalty ?? 0,
      logitBias: r.logitBias ?? new Map(),
      allowedTokens: r.allowedTokens,
      ends: this.#ends,
      minTokens: r.minTokens ?? 0,
      logprobs: r.logprobs,
    };
  }
  /** Whether the largest logit is all it needs to know, at this length of the answer. */
  plain(written: number): boolean {
    const { logitBias, repetitionPenalty = 1, minTokens = 0, logprobs, promptLogprobs, grammar } = this.#request;
    return (
      this.#filter.temperature === 0 &&
      !this.#allowed &&
      !logitBias?.size &&
      repetitionPenalty === 1 &&
      !this.#counting &&
      written >= minTokens &&
      logprobs === undefined &&
      !promptLogprobs &&
      !grammar
    );
  }
  /** The next token of an answer, after `tokens` of which the last `written` are its own. The row stays as it is. */
  choose(row: Float32Array, tokens: readonly number[], written: number, mask?: TokenMask): number {
    const early = this.#ends.length > 0 && written < (this.#request.minTokens ?? 0);
    const drawn = this.#draw(this.#changed(row, tokens, early, mask), written);
    // Where a grammar has nothing but the end left, an answer is as long as it can be.
    const token = drawn ?? (early && mask ? this.#draw(this.#changed(row, tokens, false, mask), written) : undefined);
    if (token === undefined) throw new ArgumentError(NONE_LEFT);
    return token;
  }
  #draw(row: Float32Array, written: number): number | undefined {
    const token = draw(row, this.#filter, this.#filter.temperature === 0 ? 0 : uniformAt(this.#seed, written));
    return row[token] === -Infinity ? undefined : token;
  }
  /** Counts a token that was written. */
  wrote(token: number): void {
    if (this.#counting) this.#written.set(token, (this.#written.get(token) ?? 0) + 1);
  }
  /** A row under all rules; `early`: without the tokens that end an answer. */
  #changed(row: Float32Array, tokens: readonly number[], early: boolean, mask: TokenMask | undefined): Float32Array {
    const { logitBias, repetitionPenalty = 1, repetitionWindow = Infinity } = this.#request;
    if (!this.#allowed && !mask && !logitBias?.size && repetitionPenalty === 1 && !this.#counting && !early) return row;
    this.#copy ??= new Float32Array(row.length);
    const x = this.#copy;
    x.set(row);
    if (this.#allowed) for (let i = 0; i < x.length; i++) if (this.#allowed[i] === 0) x[i] = -Infinity;
    if (mask) for (let i = 0; i < x.length; i++) if (((mask[i >> 5] >>> (i & 31)) & 1) === 0) x[i] = -Infinity;
    for (const [token, bias] of logitBias ?? []) x[token] += bias;
    if (repetitionPenalty !== 1) {
      const recent = tokens.slice(Math.max(0, tokens.length - repetitionWindow));
      for (const id of new Set(recent)) x[id] = x[id] >= 0 ? x[id] / repetitionPenalty : x[id] * repetitionPenalty;
    }
    if (this.#counting) {
      const { presencePenalty = 0, frequencyPenalty = 0 } = this.#request;
      for (const [token, times] of this.#written) x[token] -= presencePenalty + frequencyPenalty * times;
    }
    if (early) for (const token of this.#ends) x[token] = -Infinity;
    return x;
  }
}

export interface RawLogprob {
  readonly token: number;
  readonly logprob: number;
}
/** Log-probabilities of a raw row: the token's own, and the `count` likeliest, best first, ties by number. */
export function rawLogprobs(row: Float32Array, token: number, count: number): { own: number; top: RawLogprob[] } {
  const most = row[argmax(row)];
  let sum = 0;
  for (let i = 0; i < row.length; i++) sum += Math.exp(row[i] - most);
  const level = most + Math.log(sum);
  // A short list kept in order costs one comparison for nearly every token.
  const top: RawLogprob[] = [];
  for (let i = 0; count > 0 && i < row.length; i++) {
    const logprob = row[i];
    if (top.length === count && !(logprob > top[count - 1].logprob)) continue;
    let at = top.length;
    while (at > 0 && top[at - 1].logprob < logprob) at--;
    top.splice(at, 0, { token: i, logprob });
    if (top.length > count) top.pop();
  }
  return { own: row[token] - level, top: top.map((t) => ({ token: t.token, logprob: t.logprob - level })) };
}

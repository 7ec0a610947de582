// One answer: from rows of logits to tokens, from tokens to pieces of text, until something ends it.
import type { Tokenizer } from '../tokenizers/index.js';
import { Chooser, rawLogprobs } from './choose.js';
import type { Rows } from './executor.js';
import type { GrammarCompiler, GrammarState } from './grammar.js';
import { lookUp } from './lookup.js';
import type { FinishReason, TokenLogprob } from './request.js';
import type { Request } from './running-request.js';
import type { Item } from './scheduler.js';
import type { Sequence } from './sequence.js';
import { AnswerText, PieceDraft, type TokenTexts } from './stream.js';

export interface AnswerShared {
  readonly tokenizer: Tokenizer;
  readonly texts: TokenTexts;
  /** The model's end tokens. */
  readonly ends: readonly number[];
  readonly vocabSize: number;
  readonly grammars: GrammarCompiler | undefined;
  /** Whether guesses can be checked and taken back. */
  readonly guesses: boolean;
}

export class Answer {
  readonly sequence: Sequence;
  readonly request: Request;
  readonly choice: number;
  finished = false;
  /** Tokens of the answer that were told: all but an end or stop token. */
  shownTokens = 0;
  readonly #shared: AnswerShared;
  readonly #chooser: Chooser;
  readonly #text: AnswerText;
  readonly #ends: ReadonlySet<number>;
  readonly #stops: ReadonlySet<number>;
  readonly #grammar: Promise<GrammarState> | undefined;
  #state: GrammarState | undefined;
  #draft = new PieceDraft();
  #promptLogprobs: TokenLogprob[] | undefined;

  constructor(sequence: Sequence, request: Request, choice: number, seed: number, shared: AnswerShared) {
    const { asked } = request;
    this.sequence = sequence;
    this.request = request;
    this.choice = choice;
    this.#shared = shared;
    this.#ends = new Set(asked.ignoreEnd ? [] : shared.ends);
    this.#stops = new Set(asked.stopTokens ?? []);
    this.#chooser = new Chooser(asked, seed, [...this.#ends, ...this.#stops], shared.vocabSize);
    this.#text = new AnswerText(shared.tokenizer, asked);
    this.#promptLogprobs = asked.promptLogprobs && choice === 0 ? [] : undefined;
    if (asked.grammar) {
      this.#grammar = shared.grammars?.open(asked.grammar, [...this.#ends]);
      this.#grammar?.catch(() => undefined); // told when it is waited for
    }
  }
  /** Whether the largest logit is all it needs. */
  get plain(): boolean {
    return this.#chooser.plain(this.sequence.written);
  }
  /** How many rows of logits it wants of an item. */
  rowsOf(item: Item): number {
    if (this.#promptLogprobs && item.start < this.sequence.promptLength) return item.tokens.length;
    return item.draws ? 1 + item.guesses : 0;
  }
  /** What must be known before the next token is chosen, begun while the model computes. */
  async prepare(): Promise<void> {
    if (this.#grammar && !this.#state) this.#state = await this.#grammar;
  }
  /** Guesses for the next step, where they are asked for. */
  guess(most: number): void {
    const { sequence } = this;
    if (!this.#shared.guesses || this.request.asked.speculate !== 'prompt-lookup' || !sequence.decoding) return;
    if (this.#grammar || sequence.written === 0) return;
    const room = Math.min(most - 1, sequence.maxLength - sequence.tokens.length - 1);
    sequence.guesses = room > 0 ? lookUp(sequence.tokens, room) : [];
  }

  /** Takes a step's rows: how many tokens it wrote, and how many of the item's count as computed. */
  take(item: Item, rows: Rows): { written: number; computed: number } {
    const { sequence } = this;
    const { vocabSize } = this.#shared;
    const known = item.tokens.length - item.guesses;
    const rowAt = (i: number): Float32Array =>
      (rows.logits as Float32Array).subarray(i * vocabSize, (i + 1) * vocabSize);
    if (this.#promptLogprobs && item.start < sequence.promptLength) this.#aboutPrompt(item, rowAt);
    if (!item.draws) return { written: 0, computed: item.tokens.length };
    const first = this.rowsOf(item) - 1 - item.guesses;
    let written = 0;
    for (let g = 0; g <= item.guesses && !this.finished; g++) {
      const row = first + g;
      const token = rows.best ? rows.best[row] : this.#choose(rowAt(row));
      if (sequence.tokens.length >= sequence.maxLength) {
        this.end('length'); // nothing was to be written: the prompt's own log-probabilities were asked for
        break;
      }
      sequence.tokens.push(token);
      written++;
      this.#add(token, rows.logits ? rowAt(row) : undefined);
      if (token !== item.tokens[known + g]) break;
    }
    // All drawn tokens but the last were guessed rightly, so they are computed.
    return { written, computed: known + Math.max(0, written - 1) };
  }
  #choose(row: Float32Array): number {
    const { tokens, written } = this.sequence;
    return this.#chooser.choose(row, tokens, written, this.#state?.mask());
  }
  #add(token: number, row: Float32Array | undefined): void {
    const { sequence, request } = this;
    this.#chooser.wrote(token);
    const complete = this.#state?.accept(token);
    if (this.#ends.has(token)) return this.end('end');
    if (this.#stops.has(token)) {
      this.#draft.stopText = this.#shared.tokenizer.decode([token], { special: true });
      return this.end('stop');
    }
    this.shownTokens++;
    this.#draft.tokens.push(token);
    if (request.asked.logprobs !== undefined && row) this.#draft.logprobs.push(this.#logprob(row, token));
    this.#draft.text += this.#text.push(token);
    if (this.#text.found !== undefined) {
      this.#draft.stopText = this.#text.found;
      this.end('stop');
    } else if (complete) this.end('end');
    else if (sequence.tokens.length >= sequence.maxLength) this.end('length');
  }
  #logprob(row: Float32Array, token: number): TokenLogprob {
    const { own, top } = rawLogprobs(row, token, this.request.asked.logprobs ?? 0);
    const { texts } = this.#shared;
    return { ...texts.likely({ token, logprob: own }), top: top.map((t) => texts.likely(t)) };
  }
  /** Row i of an item speaks of the token after position start + i. */
  #aboutPrompt(item: Item, rowAt: (i: number) => Float32Array): void {
    const { promptLength, tokens } = this.sequence;
    const list = this.#promptLogprobs as TokenLogprob[];
    item.tokens.forEach((_, i) => {
      const position = item.start + i + 1;
      if (position < promptLength && list.length === position - 1) list.push(this.#logprob(rowAt(i), tokens[position]));
    });
    if (list.length < promptLength - 1) return;
    this.#draft.promptLogprobs = list;
    this.#promptLogprobs = undefined;
  }
  /** The answer is over; what waited for more text is told now. */
  end(reason: FinishReason): void {
    if (this.finished) return;
    this.finished = true;
    if (reason !== 'stop' || this.#text.found === undefined) this.#draft.text += this.#text.flush();
    this.#draft.finish = reason;
  }
  flush(): void {
    const piece = this.#draft.of(this.choice, this.request.asked.logprobs !== undefined);
    if (!piece) return;
    this.#draft = new PieceDraft();
    this.request.stream.push(piece);
  }
  /** Lets go of what it held beside its pages. */
  close(): void {
    void this.#grammar?.then((g) => g.close()).catch(() => undefined);
  }
}

// An answer while it is written: from rows of logits to tokens, at once, and from tokens to pieces of text, while the
// next step runs; until something ends it.
import type { Tokenizer } from '../tokenizers/index.js';
import { ArgumentError } from '../base/errors.js';
import { Chooser, type DrawRule, NONE_LEFT, type RawLogprob, rawLogprobs } from './choose.js';
import { DeviceDraws } from './steps/device-draws.js';
import type { DraftModel } from './draft.js';
import type { Rows } from './executor.js';
import type { GrammarCompiler, GrammarState } from './grammar/grammar.js';
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
  readonly grammars: GrammarCompiler;
  /** Whether guesses can be checked and taken back. */
  readonly guesses: boolean;
  readonly draft: DraftModel | undefined;
}
/** A token that was drawn and not yet told. */
interface Drawn {
  readonly token: number;
  readonly logprob: TokenLogprob | undefined;
}

/** A token's own log-probability, then those of the likeliest. */
function likely(row: Float32Array, token: number, count: number): RawLogprob[] {
  const { own, top } = rawLogprobs(row, token, count);
  return [{ token, logprob: own }, ...top];
}

export class Answer {
  readonly sequence: Sequence;
  readonly request: Request<Answer>;
  readonly choice: number;
  /** Nothing more is drawn. */
  finished = false;
  /** Its grammar, where it has one, is compiled. */
  readonly opened: Promise<void> | undefined;
  /** Tokens of the answer that were told: all but an end or stop token, and what came after a stop text. */
  shownTokens = 0;
  readonly #shared: AnswerShared;
  readonly #chooser: Chooser;
  readonly #text: AnswerText;
  readonly #ends: ReadonlySet<number>;
  readonly #stops: ReadonlySet<number>;
  readonly #rule: DrawRule | undefined;
  #state: GrammarState | undefined;
  #closing: AbortController | undefined;
  /** Its mask is not there yet. */
  #unprepared = false;
  #problem: unknown;
  #drawn: Drawn[] = [];
  #finish: FinishReason | undefined;
  #stopToken: number | undefined;
  #told = false;
  /** What is known of the prompt's tokens, until all of it is. */
  #promptLogprobs: TokenLogprob[] | undefined;
  #aboutPrompt: readonly TokenLogprob[] | undefined;

  constructor(sequence: Sequence, request: Request<Answer>, choice: number, seed: number, shared: AnswerShared) {
    const { asked } = request;
    this.sequence = sequence;
    this.request = request;
    this.choice = choice;
    this.#shared = shared;
    this.#ends = new Set(asked.ignoreEnd ? [] : shared.ends);
    this.#stops = new Set(asked.stopTokens ?? []);
    this.#chooser = new Chooser(asked, seed, [...this.#ends, ...this.#stops], shared.vocabSize);
    const { rule } = this.#chooser;
    this.#rule = rule && DeviceDraws.serves(rule) ? rule : undefined;
    this.#text = new AnswerText(shared.tokenizer, asked);
    this.#promptLogprobs = asked.promptLogprobs && choice === 0 ? [] : undefined;
    if (asked.grammar) {
      this.#closing = new AbortController();
      this.opened = shared.grammars.open(asked.grammar, [...this.#ends], this.#closing.signal).then((state) => {
        this.#state = state;
        if (this.finished) state.close();
      });
      this.opened.catch(() => {}); // who waits is told
    }
  }
  /** Whether the largest logit is all it needs. */
  get plain(): boolean {
    return this.#chooser.plain(this.sequence.written);
  }
  /** How its tokens are drawn, where a device may do so. */
  get rule(): DrawRule | undefined {
    return this.#rule;
  }
  /** Whether what its next step needs is known before the last one's token is. */
  get foreseen(): boolean {
    return this.#rule !== undefined && !this.request.asked.speculate && !this.#promptLogprobs;
  }
  /** How many rows of logits it wants of an item. */
  rowsOf(item: Item): number {
    if (this.#promptLogprobs && item.start < this.sequence.promptLength) return item.tokens.length;
    return item.draws ? 1 + item.guesses : 0;
  }
  /** What must be known before the next token is chosen, made while the model computes; undefined: nothing. */
  prepare(): Promise<void> | undefined {
    if (!this.#state) return undefined;
    this.#unprepared = true;
    return this.#state
      .ready()
      .catch((e: unknown) => (this.#problem = e))
      .then(() => void (this.#unprepared = false));
  }
  /** Whether that is still under way. */
  get unprepared(): boolean {
    return this.#unprepared;
  }
  /** Guesses for the next step, where they are asked for. */
  async guess(most: number): Promise<void> {
    const { sequence } = this;
    const { speculate } = this.request.asked;
    if (!speculate || !this.#shared.guesses || !sequence.decoding || this.#state || sequence.written === 0) return;
    const room = Math.min(most - 1, sequence.maxLength - sequence.tokens.length - 1);
    if (room <= 0) return;
    const { draft } = this.#shared;
    sequence.guesses =
      speculate === 'draft' && draft ? await draft.guess(sequence, room) : lookUp(sequence.tokens, room);
  }

  /** Takes a step's rows: how many tokens it wrote, and how many of the item's count as computed. */
  take(item: Item, rows: Rows): { written: number; computed: number } {
    if (this.#problem !== undefined) throw this.#problem;
    const { sequence } = this;
    const { vocabSize } = this.#shared;
    const known = item.tokens.length - item.guesses;
    const rowAt = (i: number): Float32Array =>
      (rows.logits as Float32Array).subarray(i * vocabSize, (i + 1) * vocabSize);
    const first = this.rowsOf(item) - 1 - item.guesses;
    if (this.#promptLogprobs && item.start < sequence.promptLength) this.#seePrompt(item, rowAt);
    if (!item.draws) return { written: 0, computed: item.tokens.length };
    let written = 0;
    for (let g = 0; g <= item.guesses && !this.finished; g++) {
      const at = item.start + known + g;
      // Nothing was to be written: the prompt's own log-probabilities were asked for, or its grammar has no more.
      if (at >= sequence.maxLength || this.#state?.complete) {
        this.end(this.#state?.complete ? 'end' : 'length');
        break;
      }
      const row = rows.logits ? rowAt(first + g) : undefined;
      const token = rows.drawn?.token ?? (row ? this.#choose(row) : (rows.best as Int32Array)[first + g]);
      if (token < 0) throw new ArgumentError(NONE_LEFT);
      sequence.put(at, token);
      written++;
      const { logprobs } = this.request.asked;
      const told =
        logprobs === undefined ? undefined : rows.drawn ? rows.drawn.told : row && likely(row, token, logprobs);
      this.#wrote(token, at, told);
      if (token !== item.tokens[known + g]) break;
    }
    // All drawn tokens but the last were guessed rightly, so they are computed.
    return { written, computed: known + Math.max(0, written - 1) };
  }
  #choose(row: Float32Array): number {
    const { tokens, written } = this.sequence;
    return this.#chooser.choose(row, tokens, written, this.#state?.mask);
  }
  #wrote(token: number, at: number, told: readonly RawLogprob[] | undefined): void {
    this.#chooser.wrote(token);
    if (this.#ends.has(token)) return this.end('end');
    if (this.#stops.has(token)) {
      this.#stopToken = token;
      return this.end('stop');
    }
    this.#state?.accept(token);
    this.#drawn.push({ token, logprob: told && this.#logprob(told) });
    if (at + 1 >= this.sequence.maxLength) this.end('length');
  }
  #logprob([own, ...top]: readonly RawLogprob[]): TokenLogprob {
    const { texts } = this.#shared;
    return { ...texts.likely(own), top: top.map((t) => texts.likely(t)) };
  }
  /** Row i of an item speaks of the token after position start + i. */
  #seePrompt(item: Item, rowAt: (i: number) => Float32Array): void {
    const { promptLength, tokens } = this.sequence;
    const list = this.#promptLogprobs as TokenLogprob[];
    item.tokens.forEach((_, i) => {
      const position = item.start + i + 1;
      if (position < promptLength && list.length === position - 1)
        list.push(this.#logprob(likely(rowAt(i), tokens[position], this.request.asked.logprobs ?? 0)));
    });
    if (list.length < promptLength - 1) return;
    this.#aboutPrompt = list;
    this.#promptLogprobs = undefined;
  }
  /** Nothing more is drawn. */
  end(reason: FinishReason): void {
    if (this.finished) return;
    this.finished = true;
    this.#finish = reason;
  }

  /** Tells what was drawn since the last time; a stop text among it ends the answer. */
  flush(): void {
    if (this.#told) return;
    const draft = new PieceDraft();
    const asked = this.request.asked.logprobs !== undefined;
    if (this.#aboutPrompt) {
      draft.promptLogprobs = this.#aboutPrompt;
      this.#aboutPrompt = undefined;
    }
    for (const { token, logprob } of this.#drawn.splice(0)) {
      this.shownTokens++;
      draft.tokens.push(token);
      draft.text += this.#text.push(token, logprob);
      if (this.#text.found === undefined) continue;
      this.finished = true;
      this.#finish = 'stop';
      draft.stopText = this.#text.found;
      break;
    }
    if (this.finished && this.#finish) {
      this.#told = true;
      draft.finish = this.#finish;
      if (this.#text.found === undefined) draft.text += this.#text.flush();
      if (this.#text.found !== undefined && draft.finish !== 'stop') {
        draft.finish = 'stop';
        draft.stopText = this.#text.found;
      }
      if (this.#stopToken !== undefined && this.#text.found === undefined)
        draft.stopText = this.#shared.tokenizer.decode([this.#stopToken], { special: true });
    }
    draft.logprobs.push(...this.#text.logprobs());
    const piece = draft.of(this.choice, asked);
    if (piece) this.request.sink.push(piece);
  }
  /** Lets go of what it held beside its pages. */
  close(): void {
    this.#shared.draft?.forget(this.sequence);
    this.#closing?.abort();
    this.#state?.close();
    this.#state = undefined;
  }
}

// What a request's reader sees: pieces in the order they were written, joined where several wait.
import { ArgumentError } from '../base/errors.js';
import type { DecodeOptions, Tokenizer } from '../tokenizers/index.js';
import { StopWatch, TextStream } from '../tokenizers/index.js';
import type { RawLogprob } from './choose.js';
import type {
  FinishReason,
  Generation,
  GenerationRequest,
  LikelyToken,
  Piece,
  TokenLogprob,
  Usage,
} from './request.js';

/** Pieces of one answer as one. */
function joined(a: Piece, b: Piece): Piece {
  const logprobs = a.logprobs || b.logprobs ? [...(a.logprobs ?? []), ...(b.logprobs ?? [])] : undefined;
  const promptLogprobs = a.promptLogprobs ?? b.promptLogprobs;
  return {
    choice: a.choice,
    text: a.text + b.text,
    tokens: [...a.tokens, ...b.tokens],
    ...(logprobs && { logprobs }),
    ...(promptLogprobs && { promptLogprobs }),
    ...(b.finish && { finish: b.finish }),
    ...(b.stopText !== undefined && { stopText: b.stopText }),
  };
}

/** What a request took that never began. */
export const NOTHING_USED: Usage = {
  ...{ promptTokens: 0, cachedTokens: 0, tokens: 0 },
  ...{ queuedSeconds: 0, prefillSeconds: 0, decodeSeconds: 0 },
};
/** Where the pieces of a request go, until it ends, perhaps by an error. */
export interface PieceSink {
  push(piece: Piece): void;
  end(usage: Usage, error?: unknown): void;
}

export class PieceStream implements Generation, PieceSink {
  readonly id: number;
  readonly usage: Promise<Usage>;
  readonly #onCancel: () => void;
  /** The latest piece of each answer that nobody has read yet. */
  readonly #waiting = new Map<number, Piece>();
  #wake: (() => void) | undefined;
  /** Somebody reads. */
  #read = false;
  #ended = false;
  #error: unknown;
  #told: (usage: Usage) => void = () => {};
  #unlisten = (): void => {};

  constructor(id: number, onCancel: () => void) {
    this.id = id;
    this.#onCancel = onCancel;
    this.usage = new Promise((resolve) => (this.#told = resolve));
  }
  cancel(): void {
    this.#onCancel();
  }
  /** Cancels when the signal says so, now or later. */
  listen(signal: AbortSignal | undefined): void {
    if (!signal || this.#ended) return;
    if (signal.aborted) return this.cancel();
    const cancel = (): void => this.cancel();
    signal.addEventListener('abort', cancel, { once: true });
    this.#unlisten = () => signal.removeEventListener('abort', cancel);
  }
  push(piece: Piece): void {
    const before = this.#waiting.get(piece.choice);
    this.#waiting.set(piece.choice, before ? joined(before, piece) : piece);
    this.#wake?.();
  }
  end(usage: Usage, error?: unknown): void {
    if (this.#ended) return;
    this.#ended = true;
    this.#unlisten();
    this.#error = error;
    this.#told(usage);
    this.#wake?.();
  }
  async *[Symbol.asyncIterator](): AsyncGenerator<Piece, void> {
    if (this.#read)
      throw new ArgumentError('generation: somebody reads it already, and two readers would have half of it each');
    this.#read = true;
    try {
      for (;;) {
        for (const [choice, piece] of [...this.#waiting]) {
          // More of this answer may have come while the reader looked at another.
          const latest = this.#waiting.get(choice) ?? piece;
          this.#waiting.delete(choice);
          yield latest;
        }
        if (this.#waiting.size > 0) continue;
        if (this.#ended) break;
        await new Promise<void>((resolve) => (this.#wake = resolve));
        this.#wake = undefined;
      }
      if (this.#error !== undefined) throw this.#error;
    } finally {
      this.#read = false;
      if (!this.#ended) this.cancel();
    }
  }
}

/** Bytes and text of single tokens, each looked up once. */
export class TokenTexts {
  readonly #tokenizer: Tokenizer;
  readonly #known = new Map<number, { text: string; bytes: readonly number[] }>();
  constructor(tokenizer: Tokenizer) {
    this.#tokenizer = tokenizer;
  }
  of(token: number): { text: string; bytes: readonly number[] } {
    let known = this.#known.get(token);
    if (!known) {
      // A lone token's bytes may be half a character: the tokenizer knows them where it has bytes at all.
      const bytes = this.#tokenizer.bytes(token);
      known = { text: Buffer.from(bytes).toString(), bytes: [...bytes] };
      this.#known.set(token, known);
    }
    return known;
  }
  likely({ token, logprob }: RawLogprob): LikelyToken {
    return { token, ...this.of(token), logprob };
  }
}

/** Text of one answer, cut at stop texts, and the log-probabilities of the tokens that it shows. */
export class AnswerText {
  readonly #stream: TextStream;
  readonly #stops: StopWatch;
  /** Characters that tokens have made so far, and those that were shown. */
  #made = 0;
  #shown = 0;
  /** Log-probabilities of tokens whose text waits, and where that begins. */
  readonly #waiting: { readonly from: number; readonly logprob: TokenLogprob }[] = [];
  constructor(tokenizer: Tokenizer, request: GenerationRequest) {
    const options: DecodeOptions = request.keepSpecial ? { special: true } : {};
    this.#stream = new TextStream(tokenizer, request.prompt, options);
    this.#stops = new StopWatch(request.stop ?? []);
  }
  /** What a token adds to what can be shown. */
  push(token: number, logprob?: TokenLogprob): string {
    if (logprob) this.#waiting.push({ from: this.#made, logprob });
    return this.#show(this.#stream.push(token));
  }
  #show(made: string): string {
    this.#made += made.length;
    const shown = this.#stops.push(made);
    this.#shown += shown.length;
    return shown;
  }
  /** Log-probabilities that may be told by now: those of a stop text's tokens never are. */
  logprobs(): TokenLogprob[] {
    const all = this.#shown === this.#made;
    const waits = this.#waiting.findIndex(({ from }) => !all && from >= this.#shown);
    return this.#waiting.splice(0, waits < 0 ? this.#waiting.length : waits).map((w) => w.logprob);
  }
  get found(): string | undefined {
    return this.#stops.found;
  }
  /** What still waited, at the end of the answer. */
  flush(): string {
    const shown = this.#show(this.#stream.flush());
    const held = this.#stops.flush();
    this.#shown += held.length;
    return shown + held;
  }
}

/** One step's additions to an answer, gathered before they are sent. */
export class PieceDraft {
  text = '';
  readonly tokens: number[] = [];
  readonly logprobs: TokenLogprob[] = [];
  promptLogprobs: readonly TokenLogprob[] | undefined;
  finish: FinishReason | undefined;
  stopText: string | undefined;
  of(choice: number, withLogprobs: boolean): Piece | undefined {
    const { text, tokens, logprobs, promptLogprobs, finish, stopText } = this;
    if (text === '' && tokens.length === 0 && !promptLogprobs && !finish) return undefined;
    return {
      choice,
      text,
      tokens,
      ...(withLogprobs && { logprobs }),
      ...(promptLogprobs && { promptLogprobs }),
      ...(finish && { finish }),
      ...(stopText !== undefined && { stopText }),
    };
  }
}

// What crosses from an engine's thread after a step: everything that it wrote, for all requests, in one message.
import type { EngineStatus, FinishReason, Piece, Usage } from './request.js';
import type { SentError } from '../base/sent-error.js';

/** What few pieces have. */
type Rest = Pick<Piece, 'logprobs' | 'promptLogprobs' | 'stopText'>;
/** A request that is over. */
interface End {
  readonly request: number;
  readonly usage: Usage;
  readonly error?: SentError;
}
export interface StepMessage {
  /** Of each piece: its request, its choice, how it ended, how many characters, how many tokens, and these. */
  readonly words: Int32Array<ArrayBuffer>;
  /** Their texts, one after another. */
  readonly text: string;
  /** By the piece's number in the message. */
  readonly rest: ReadonlyMap<number, Rest>;
  readonly ends: readonly End[];
  readonly status: EngineStatus;
}
const FINISHES: readonly (FinishReason | undefined)[] = [undefined, 'end', 'stop', 'length', 'aborted'];
const HEAD = 5;

/** Gathers what a step wrote. */
export class Outbox {
  #words = new Int32Array(4096);
  #used = 0;
  #pieces = 0;
  #text = '';
  #rest = new Map<number, Rest>();
  #ends: End[] = [];

  piece(request: number, { choice, text, tokens, finish, ...rest }: Piece): void {
    this.#makeRoom(HEAD + tokens.length);
    const words = this.#words;
    let at = this.#used;
    words[at++] = request;
    words[at++] = choice;
    words[at++] = FINISHES.indexOf(finish);
    words[at++] = text.length;
    words[at++] = tokens.length;
    for (const token of tokens) words[at++] = token;
    this.#used = at;
    this.#text += text;
    for (const _ in rest) {
      this.#rest.set(this.#pieces, rest);
      break;
    }
    this.#pieces++;
  }
  end(end: End): void {
    this.#ends.push(end);
  }
  #makeRoom(words: number): void {
    if (this.#used + words <= this.#words.length) return;
    const larger = new Int32Array(2 * (this.#used + words));
    larger.set(this.#words);
    this.#words = larger;
  }
  /** All of it as a message, and nothing is left. */
  take(status: EngineStatus): StepMessage {
    const words = this.#words.slice(0, this.#used);
    const message = { words, text: this.#text, rest: this.#rest, ends: this.#ends, status };
    this.#used = this.#pieces = 0;
    this.#text = '';
    this.#rest = new Map();
    this.#ends = [];
    return message;
  }
}

/** The pieces of a message, each with its request's number, in the order they were written. */
export function readPieces({ words, text, rest }: StepMessage, take: (request: number, piece: Piece) => void): void {
  let [at, from, number] = [0, 0, 0];
  while (at < words.length) {
    const [request, choice, how, length, count] = [
      words[at],
      words[at + 1],
      words[at + 2],
      words[at + 3],
      words[at + 4],
    ];
    const tokens = Array.from(words.subarray((at += HEAD), (at += count)));
    const finish = FINISHES[how];
    const piece = { choice, text: text.slice(from, (from += length)), tokens, ...(finish && { finish }) };
    take(request, rest.has(number) ? { ...piece, ...rest.get(number) } : piece);
    number++;
  }
}

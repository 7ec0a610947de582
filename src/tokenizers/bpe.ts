// Byte-pair encoding by a list of merges: the pair that comes first in the list is joined first, from left to right.
import { FormatError } from '../base/errors.js';
import { byteToken } from './byte-level.js';
import { PairMap } from './pair-map.js';
import { MinHeap, PLACES, remembering, type TokenModel, type Vocabulary } from './vocabulary.js';

export interface BpeOptions {
  /** For characters without a token; without it they are left out. */
  readonly unknown?: number;
  /** Several unknown characters in a row are one. */
  readonly fuseUnknown?: boolean;
  /** Unknown characters as `<0x0A>` tokens, where the vocabulary has them. */
  readonly byteFallback?: boolean;
  /** A piece that is a token is taken whole. */
  readonly ignoreMerges?: boolean;
  /** Before every character of a piece but the first. */
  readonly prefix?: string;
  /** After the last character of a piece. */
  readonly suffix?: string;
}

export class Bpe implements TokenModel {
  readonly vocabulary: Vocabulary;
  readonly encode: (piece: string) => readonly number[];
  readonly #options: BpeOptions;
  readonly #ranks: PairMap;
  readonly #joined: Int32Array;

  constructor(
    vocabulary: Vocabulary,
    merges: readonly (readonly [left: string, right: string])[],
    options: BpeOptions = {},
  ) {
    this.vocabulary = vocabulary;
    this.#options = options;
    this.#ranks = new PairMap(merges.length);
    this.#joined = new Int32Array(merges.length);
    const id = (token: string): number => {
      const found = vocabulary.id(token);
      if (found === undefined) throw new FormatError(`tokenizer: a merge needs the token ${JSON.stringify(token)}`);
      return found;
    };
    merges.forEach(([left, right], rank) => {
      this.#ranks.set(id(left), id(right), rank);
      this.#joined[rank] = id(left + right.slice(options.prefix?.length ?? 0));
    });
    this.encode = remembering((piece) => this.#encode(piece));
  }

  #encode(piece: string): readonly number[] {
    if (this.#options.ignoreMerges) {
      const whole = this.vocabulary.id(piece);
      if (whole !== undefined) return [whole];
    }
    return this.#merge(this.#characters(piece));
  }
  /** A token for every character, as good as there are any. */
  #characters(piece: string): number[] {
    const { unknown, fuseUnknown, byteFallback, prefix = '', suffix = '' } = this.#options;
    const ids: number[] = [];
    let waiting = false; // an unknown token that the next unknown character may join
    const flush = (): void => {
      if (waiting) ids.push(unknown as number);
      waiting = false;
    };
    for (let at = 0; at < piece.length; ) {
      const c = String.fromCodePoint(piece.codePointAt(at) as number);
      const text = `${at > 0 ? prefix : ''}${c}${at + c.length === piece.length ? suffix : ''}`;
      at += c.length;
      const id = this.vocabulary.id(text);
      if (id !== undefined) {
        flush();
        ids.push(id);
        continue;
      }
      const bytes = byteFallback ? [...Buffer.from(text)].map((b) => this.vocabulary.id(byteToken(b))) : [undefined];
      if (bytes.every((b) => b !== undefined)) ids.push(...(bytes as number[]));
      else if (unknown !== undefined) {
        if (!fuseUnknown) flush();
        waiting = true;
      }
    }
    flush();
    return ids;
  }
  #merge(ids: number[]): number[] {
    const n = ids.length;
    if (n < 2) return ids;
    const next = Int32Array.from({ length: n }, (_, i) => (i + 1 < n ? i + 1 : -1));
    const before = Int32Array.from({ length: n }, (_, i) => i - 1);
    const queue = new MinHeap();
    const offer = (at: number): void => {
      if (at < 0 || next[at] < 0) return;
      const rank = this.#ranks.get(ids[at], ids[next[at]]);
      if (rank >= 0) queue.push(rank * PLACES + at);
    };
    for (let i = 0; i + 1 < n; i++) offer(i);
    while (queue.size > 0) {
      const key = queue.pop();
      const at = key % PLACES;
      const rank = (key - at) / PLACES;
      // What was queued may be gone by now: joined to its left, or with another neighbour.
      if (ids[at] < 0 || next[at] < 0 || this.#ranks.get(ids[at], ids[next[at]]) !== rank) continue;
      const right = next[at];
      ids[at] = this.#joined[rank];
      ids[right] = -1;
      next[at] = next[right];
      if (next[at] >= 0) before[next[at]] = at;
      offer(before[at]);
      offer(at);
    }
    return ids.filter((id) => id >= 0);
  }
}

// Tokens and their numbers, and what every kind of model answers.
import { FormatError } from '../base/errors.js';
import { byteToken } from './byte-level.js';

export class Vocabulary {
  readonly tokens: (string | undefined)[] = [];
  readonly #ids = new Map<string, number>();
  add(token: string, id: number): void {
    if (!Number.isInteger(id) || id < 0 || id > 2 ** 24)
      throw new FormatError(`tokenizer: the token ${JSON.stringify(token)} has the number ${id}`);
    this.tokens[id] = token;
    this.#ids.set(token, id);
  }
  static of(entries: Iterable<readonly [token: string, id: number]>): Vocabulary {
    const v = new Vocabulary();
    for (const [token, id] of entries) v.add(token, id);
    return v;
  }
  id(token: string): number | undefined {
    return this.#ids.get(token);
  }
  get size(): number {
    return this.tokens.length;
  }
  /** The tokens `<0x00>` to `<0xFF>`; undefined where one is missing. */
  byteIds(): number[] | undefined {
    const ids = Array.from({ length: 256 }, (_, b) => this.#ids.get(byteToken(b)));
    return ids.every((id) => id !== undefined) ? (ids as number[]) : undefined;
  }
}

export interface TokenModel {
  readonly vocabulary: Vocabulary;
  encode(piece: string): readonly number[];
}

/** Texts seen before, up to a bound; long ones are not kept. */
export function remembering(encode: (piece: string) => readonly number[]): (piece: string) => readonly number[] {
  const seen = new Map<string, readonly number[]>();
  return (piece) => {
    if (piece.length > 64) return encode(piece);
    let ids = seen.get(piece);
    if (!ids) {
      if (seen.size >= 65536) seen.clear();
      ids = encode(piece);
      seen.set(piece, ids);
    }
    return ids;
  };
}

/** Numbers, smallest first. */
export class MinHeap {
  readonly #keys: number[] = [];
  get size(): number {
    return this.#keys.length;
  }
  push(key: number): void {
    const k = this.#keys;
    let i = k.push(key) - 1;
    while (i > 0) {
      const up = (i - 1) >> 1;
      if (k[up] <= key) break;
      k[i] = k[up];
      i = up;
    }
    k[i] = key;
  }
  pop(): number {
    const k = this.#keys;
    const least = k[0];
    const last = k.pop() as number;
    if (k.length === 0) return least;
    let i = 0;
    for (;;) {
      let down = 2 * i + 1;
      if (down >= k.length) break;
      if (down + 1 < k.length && k[down + 1] < k[down]) down++;
      if (k[down] >= last) break;
      k[i] = k[down];
      i = down;
    }
    k[i] = last;
    return least;
  }
}
/** A merge in the queue: by rank, then from left to right. */
export const PLACES = 2 ** 26;

// SentencePiece's two models over pieces with scores: pairs joined by the best score (BPE), and the most likely path
// (unigram).
import { FormatError } from '../base/errors.js';
import { Trie } from './pair-map.js';
import { MinHeap, PLACES, remembering, type TokenModel, type Vocabulary } from './vocabulary.js';

export interface ScoredOptions {
  readonly scores: ArrayLike<number>;
  readonly unknown: number | undefined;
  /** The numbers of `<0x00>` to `<0xFF>`, when unknown characters are spelt with them. */
  readonly byteIds?: readonly number[];
  /** What a run of characters that no piece covers becomes; default the bytes' numbers, or the unknown token. */
  readonly spelt?: (text: string) => readonly number[];
  /** Pieces that text may become; default all. */
  readonly usable?: (id: number) => boolean;
  /** Pieces that joining passes through but that are taken apart again at the end. */
  readonly unused?: (id: number) => boolean;
  /** Pieces that are taken whole wherever they stand. */
  readonly userDefined?: (id: number) => boolean;
}

const spell = (text: string, o: ScoredOptions): readonly number[] => {
  if (o.spelt) return o.spelt(text);
  if (o.byteIds) return [...Buffer.from(text)].map((b) => (o.byteIds as readonly number[])[b]);
  if (o.unknown === undefined)
    throw new FormatError(`tokenizer: ${JSON.stringify(text)} has no token, and there is none for unknown text`);
  return [o.unknown];
};

/** Joins the pair whose joined piece has the highest score, from left to right among equals. */
export class ScoredBpe implements TokenModel {
  readonly vocabulary: Vocabulary;
  readonly encode: (piece: string) => readonly number[];
  readonly #options: ScoredOptions;
  /** The place of a piece among all by score; equal scores share one. */
  readonly #rank: Int32Array;
  readonly #fixed: Trie | undefined;

  constructor(vocabulary: Vocabulary, options: ScoredOptions) {
    this.vocabulary = vocabulary;
    this.#options = options;
    const { scores, usable = () => true } = options;
    const order = vocabulary.tokens
      .map((_, id) => id)
      .filter((id) => vocabulary.tokens[id] !== undefined && usable(id));
    order.sort((a, b) => scores[b] - scores[a]);
    this.#rank = new Int32Array(vocabulary.size).fill(-1);
    let rank = 0;
    order.forEach((id, i) => {
      if (i > 0 && scores[id] !== scores[order[i - 1]]) rank++;
      this.#rank[id] = rank;
    });
    if (options.userDefined) {
      this.#fixed = new Trie();
      vocabulary.tokens.forEach((t, id) => t && options.userDefined?.(id) && this.#fixed?.add(t, id));
    }
    this.encode = remembering((piece) => this.#encode(piece));
  }
  #find(text: string): number {
    const id = this.vocabulary.id(text);
    return id !== undefined && this.#rank[id] >= 0 ? id : -1;
  }
  /** A piece as characters and user-defined pieces, which nothing joins: where each begins and ends. */
  #symbols(piece: string): { readonly starts: number[]; readonly ends: number[]; readonly fixed: boolean[] } {
    const starts: number[] = [];
    const ends: number[] = [];
    const fixed: boolean[] = [];
    for (let at = 0; at < piece.length; ) {
      const whole = this.#fixed?.longest(piece, at);
      const end = whole ? whole[0] : at + ((piece.codePointAt(at) as number) > 0xffff ? 2 : 1);
      starts.push(at);
      ends.push(end);
      fixed.push(whole !== undefined);
      at = end;
    }
    return { starts, ends, fixed };
  }
  #encode(piece: string): readonly number[] {
    const { starts, ends, fixed } = this.#symbols(piece);
    const n = starts.length;
    const next = Int32Array.from({ length: n }, (_, i) => (i + 1 < n ? i + 1 : -1));
    const before = Int32Array.from({ length: n }, (_, i) => i - 1);
    const madeOf = new Map<string, readonly [string, string]>(); // how unused pieces came about
    const queue = new MinHeap();
    const pair = (at: number): number => this.#find(piece.slice(starts[at], ends[next[at]]));
    const offer = (at: number): void => {
      if (at < 0 || next[at] < 0 || fixed[at] || fixed[next[at]]) return;
      const id = pair(at);
      if (id < 0) return;
      queue.push(this.#rank[id] * PLACES + at);
      if (this.#options.unused?.(id))
        madeOf.set(piece.slice(starts[at], ends[next[at]]), [
          piece.slice(starts[at], ends[at]),
          piece.slice(starts[next[at]], ends[next[at]]),
        ]);
    };
    for (let i = 0; i + 1 < n; i++) offer(i);
    while (queue.size > 0) {
      const key = queue.pop();
      const at = key % PLACES;
      if (ends[at] < 0 || next[at] < 0 || fixed[next[at]]) continue;
      const id = pair(at);
      if (id < 0 || this.#rank[id] !== (key - at) / PLACES) continue;
      const right = next[at];
      ends[at] = ends[right];
      ends[right] = -1;
      next[at] = next[right];
      if (next[at] >= 0) before[next[at]] = at;
      offer(before[at]);
      offer(at);
    }
    const texts: string[] = [];
    for (let i = n > 0 ? 0 : -1; i >= 0; i = next[i]) texts.push(piece.slice(starts[i], ends[i]));
    return this.#numbers(texts, madeOf);
  }
  /** Token numbers of texts; unused pieces as the parts they were made of, unknown ones spelt. */
  #numbers(texts: readonly string[], madeOf: ReadonlyMap<string, readonly [string, string]>): readonly number[] {
    const out: number[] = [];
    let unknown = ''; // neighbours that no piece covers are one
    const endRun = (): void => {
      if (unknown !== '') out.push(...spell(unknown, this.#options));
      unknown = '';
    };
    const put = (text: string): void => {
      const id = this.#find(text);
      const parts = id >= 0 && this.#options.unused?.(id) ? madeOf.get(text) : undefined;
      if (parts) {
        put(parts[0]);
        put(parts[1]);
      } else if (id >= 0) {
        endRun();
        out.push(id);
      } else unknown += text;
    };
    texts.forEach(put);
    endRun();
    return out;
  }
}

export interface UnigramOptions extends ScoredOptions {
  /** Sums in f32, as SentencePiece has them; Hugging Face's library sums in doubles. */
  readonly single?: boolean;
  /** The score of a user-defined piece of so many bytes; default its own. */
  readonly userScore?: (bytes: number) => number;
}

const UNKNOWN_PENALTY = 10;

/** The path of pieces with the largest sum of scores. */
export class Unigram implements TokenModel {
  readonly vocabulary: Vocabulary;
  readonly encode: (piece: string) => readonly number[];
  readonly #options: UnigramOptions;
  readonly #trie = new Trie();
  readonly #scores: Float64Array;
  readonly #unknownScore: number;

  constructor(vocabulary: Vocabulary, options: UnigramOptions) {
    this.vocabulary = vocabulary;
    this.#options = options;
    const { scores, usable = () => true, unused, userDefined, userScore } = options;
    this.#scores = Float64Array.from(scores);
    let least = Infinity;
    vocabulary.tokens.forEach((token, id) => {
      if (token === undefined || !usable(id)) return;
      if (!userDefined?.(id) && !unused?.(id)) least = Math.min(least, scores[id]);
      if (userDefined?.(id) && userScore) this.#scores[id] = userScore(Buffer.byteLength(token));
      if (token !== '' && !unused?.(id)) this.#trie.add(token, id);
    });
    this.#unknownScore = (least === Infinity ? 0 : least) - UNKNOWN_PENALTY;
    this.encode = remembering((piece) => this.#encode(piece));
  }
  #encode(piece: string): readonly number[] {
    const n = piece.length;
    const round = this.#options.single ? Math.fround : (x: number): number => x;
    const best = new Float64Array(n + 1).fill(-Infinity);
    const from = new Int32Array(n + 1).fill(-1);
    const chosen = new Int32Array(n + 1).fill(-1); // -1: unknown
    best[0] = 0;
    for (let at = 0; at < n; ) {
      const width = (piece.codePointAt(at) as number) > 0xffff ? 2 : 1;
      const here = best[at];
      let known = false;
      const offer = (end: number, score: number, id: number): void => {
        const sum = round(score + here);
        if (from[end] >= 0 && !(sum > best[end])) return;
        best[end] = sum;
        from[end] = at;
        chosen[end] = id;
      };
      this.#trie.prefixes(piece, at, (end, id) => {
        offer(end, this.#scores[id], id);
        known ||= end === at + width;
      });
      if (!known) offer(at + width, this.#unknownScore, -1);
      at += width;
    }
    const path: (number | readonly [start: number, end: number])[] = [];
    for (let end = n; end > 0; end = from[end]) {
      const last = path.at(-1);
      if (chosen[end] >= 0) path.push(chosen[end]);
      else if (typeof last === 'object') path[path.length - 1] = [from[end], last[1]];
      else path.push([from[end], end]);
    }
    return path.reverse().flatMap((p) => (typeof p === 'number' ? [p] : spell(piece.slice(p[0], p[1]), this.#options)));
  }
}

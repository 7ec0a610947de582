// Tokens that are found in a text before anything else looks at it: the leftmost, and of those the longest.
import { Trie } from './pair-map.js';

/** A token that stands beside the vocabulary: special ones, and words that are never cut. */
export interface AddedToken {
  /** Its number. */
  readonly id: number;
  /** Its text. */
  readonly content: string;
  /** Left out of decoded text, and a token that only its writer means: `<|im_end|>`. */
  readonly special: boolean;
  /** Found in the text after its normalization. */
  readonly normalized?: boolean;
  /** Only where no letter or digit is beside it. */
  readonly singleWord?: boolean;
  /** Takes the white space before it. */
  readonly lstrip?: boolean;
  /** Takes the white space after it. */
  readonly rstrip?: boolean;
}
export type Segment = { readonly text: string; readonly start: number } | { readonly id: number };

const WORD_BEFORE = /[\p{Alphabetic}\p{M}\p{Nd}\p{Pc}\u200c\u200d]$/u;
const WORD_AFTER = /^[\p{Alphabetic}\p{M}\p{Nd}\p{Pc}\u200c\u200d]/u;
const SPACE = /\p{White_Space}/u;

export class TokenFinder {
  readonly #tokens: readonly AddedToken[];
  readonly #trie = new Trie();
  constructor(tokens: readonly AddedToken[], contentOf: (t: AddedToken) => string = (t) => t.content) {
    this.#tokens = tokens;
    tokens.forEach((t, i) => contentOf(t) !== '' && this.#trie.add(contentOf(t), i));
  }
  /** The text cut at its added tokens; special ones are passed over where `special` is false. */
  split(text: string, special: boolean): Segment[] {
    if (this.#trie.empty) return text === '' ? [] : [{ text, start: 0 }];
    const out: Segment[] = [];
    let done = 0;
    for (let at = 0; at < text.length; ) {
      const match = this.#trie.longest(text, at);
      if (!match) {
        at++;
        continue;
      }
      const [end, index] = match;
      const token = this.#tokens[index];
      const alone =
        !token.singleWord ||
        (!WORD_BEFORE.test(text.slice(Math.max(0, at - 2), at)) && !WORD_AFTER.test(text.slice(end, end + 2)));
      if (alone && (special || !token.special)) {
        let [from, to] = [at, end];
        if (token.lstrip) while (from > done && SPACE.test(text[from - 1])) from--;
        if (token.rstrip) while (to < text.length && SPACE.test(text[to])) to++;
        if (from > done) out.push({ text: text.slice(done, from), start: done });
        out.push({ id: token.id });
        done = to;
      }
      at = end; // what a token took of the space around it may still hold others
    }
    if (done < text.length) out.push({ text: text.slice(done), start: done });
    return out;
  }
}

// WordPiece (the longest piece that fits, from left to right) and WordLevel (a word is a token or unknown).
import { FormatError } from '../base/errors.js';
import { remembering, type TokenModel, type Vocabulary } from './vocabulary.js';

const missing = (word: string): FormatError =>
  new FormatError(`tokenizer: ${JSON.stringify(word)} has no token, and there is none for unknown text`);

export class WordPiece implements TokenModel {
  readonly vocabulary: Vocabulary;
  readonly encode: (piece: string) => readonly number[];
  constructor(
    vocabulary: Vocabulary,
    options: { readonly unknown: number | undefined; readonly prefix?: string; readonly longestWord?: number },
  ) {
    const { unknown, prefix = '##', longestWord = 100 } = options;
    this.vocabulary = vocabulary;
    const longest = vocabulary.tokens.reduce((n, t) => Math.max(n, t?.length ?? 0), 0);
    const giveUp = (word: string): readonly number[] => {
      if (unknown === undefined) throw missing(word);
      return [unknown];
    };
    this.encode = remembering((word) => {
      if (word.length > longestWord && [...word].length > longestWord) return giveUp(word);
      const ids: number[] = [];
      for (let at = 0; at < word.length; ) {
        let found: number | undefined;
        let end = Math.min(word.length, at + longest);
        for (; end > at; end--) {
          found = vocabulary.id(`${at > 0 ? prefix : ''}${word.slice(at, end)}`);
          if (found !== undefined) break;
        }
        if (found === undefined) return giveUp(word);
        ids.push(found);
        at = end;
      }
      return ids;
    });
  }
}

export class WordLevel implements TokenModel {
  readonly vocabulary: Vocabulary;
  readonly #unknown: number | undefined;
  constructor(vocabulary: Vocabulary, unknown: number | undefined) {
    this.vocabulary = vocabulary;
    this.#unknown = unknown;
  }
  encode(word: string): readonly number[] {
    const id = this.vocabulary.id(word) ?? this.#unknown;
    if (id === undefined) throw missing(word);
    return [id];
  }
}

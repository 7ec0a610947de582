// A small trainer of byte-level BPE vocabularies; what it gives is a tokenizer.json that others read too.
import { ArgumentError } from '../base/errors.js';
import { BYTE_CHARACTERS } from '../tokenizers/byte-level.js';

/** Words with the space before them, numbers, runs of marks, spaces: how byte-level vocabularies split a text first. */
const SPLIT = /'(?:[sdmt]|ll|ve|re)| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+/gu;

/** The token that `trainBpe` adds to end texts with. */
export const END_OF_TEXT = '<|endoftext|>';

interface Word {
  symbols: string[];
  readonly count: number;
}

function countWords(text: string): Word[] {
  const counts = new Map<string, number>();
  for (const [word] of text.matchAll(SPLIT)) counts.set(word, (counts.get(word) ?? 0) + 1);
  return [...counts].map(([word, count]) => ({
    symbols: [...Buffer.from(word)].map((b) => BYTE_CHARACTERS[b]),
    count,
  }));
}

/**
 * The merges that shorten the text most, one after another; ties go to the smaller pair, so that a text always gives
 * one vocabulary.
 */
function learnMerges(words: readonly Word[], wanted: number): [string, string][] {
  const merges: [string, string][] = [];
  const counts = new Map<string, number>();
  const where = new Map<string, Set<Word>>();
  const key = (a: string, b: string): string => `${a} ${b}`;
  const each = (w: Word, sign: 1 | -1): void => {
    for (let i = 0; i + 1 < w.symbols.length; i++) {
      const k = key(w.symbols[i], w.symbols[i + 1]);
      counts.set(k, (counts.get(k) ?? 0) + sign * w.count);
      if (sign === 1) {
        const set = where.get(k);
        if (set) set.add(w);
        else where.set(k, new Set([w]));
      }
    }
  };
  for (const w of words) each(w, 1);
  while (merges.length < wanted) {
    let best = '';
    let most = 1; // a pair seen once saves nothing
    for (const [k, n] of counts) if (n > most || (n === most && best !== '' && k < best)) [best, most] = [k, n];
    if (best === '') break;
    const [a, b] = best.split(' ');
    merges.push([a, b]);
    for (const w of where.get(best) ?? []) {
      each(w, -1);
      const joined: string[] = [];
      for (let i = 0; i < w.symbols.length; i++) {
        if (w.symbols[i] === a && w.symbols[i + 1] === b) joined.push(a + b), i++;
        else joined.push(w.symbols[i]);
      }
      w.symbols = joined;
      each(w, 1);
    }
    counts.delete(best);
    where.delete(best);
  }
  return merges;
}

const START = { SpecialToken: { id: END_OF_TEXT, type_id: 0 } };
const part = (id: 'A' | 'B', type_id: number): object => ({ Sequence: { id, type_id } });

/** tokenizer.json for a vocabulary of a given size: an end token, 256 bytes, then merges. */
export function trainBpe(text: string, vocabSize: number): object {
  if (!Number.isInteger(vocabSize) || vocabSize < 257)
    throw new ArgumentError(`trainBpe: a vocabulary of ${vocabSize}; it takes 257 or more: an end token and all bytes`);
  const merges = learnMerges(countWords(text), vocabSize - 257);
  const vocab = Object.fromEntries(
    [END_OF_TEXT, ...BYTE_CHARACTERS, ...merges.map(([a, b]) => a + b)].map((token, id) => [token, id]),
  );
  return {
    version: '1.0',
    truncation: null,
    padding: null,
    added_tokens: [
      {
        id: 0,
        content: END_OF_TEXT,
        single_word: false,
        lstrip: false,
        rstrip: false,
        normalized: false,
        special: true,
      },
    ],
    normalizer: null,
    pre_tokenizer: { type: 'ByteLevel', add_prefix_space: false, trim_offsets: true, use_regex: true },
    // Every text begins with the end token, as the windows of training do.
    post_processor: {
      type: 'TemplateProcessing',
      single: [START, part('A', 0)],
      pair: [START, part('A', 0), part('B', 1)],
      special_tokens: { [END_OF_TEXT]: { id: END_OF_TEXT, ids: [0], tokens: [END_OF_TEXT] } },
    },
    decoder: { type: 'ByteLevel', add_prefix_space: true, trim_offsets: true, use_regex: true },
    model: {
      type: 'BPE',
      dropout: null,
      unk_token: null,
      continuing_subword_prefix: null,
      end_of_word_suffix: null,
      fuse_unk: false,
      byte_fallback: false,
      ignore_merges: false,
      vocab,
      merges: merges.map((m) => m.join(' ')),
    },
  };
}

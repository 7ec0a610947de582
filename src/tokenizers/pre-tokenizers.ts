// How tokenizer.json cuts a text into pieces that no token crosses, by the names of its `pre_tokenizer` section.
import { byteText, GPT2_PATTERN } from './byte-level.js';
import { type Component, component, type Kind } from './component.js';
import { type Finder, finder, literalFinder, patternOf } from './pattern.js';

export interface Piece {
  readonly text: string;
  /** It begins where the whole input begins. */
  readonly first: boolean;
}
export type PreTokenizer = (pieces: readonly Piece[]) => Piece[];

const BEHAVIORS = ['Removed', 'Isolated', 'MergedWithPrevious', 'MergedWithNext', 'Contiguous'] as const;
export type Behavior = (typeof BEHAVIORS)[number];
interface Part {
  start: number;
  end: number;
  match: boolean;
}

/** Matches and what lies between them, in order. */
function partsOf(text: string, find: Finder, invert: boolean): Part[] {
  const parts: Part[] = [];
  let at = 0;
  for (const { start, end } of find(text)) {
    if (start > at) parts.push({ start: at, end: start, match: invert });
    parts.push({ start, end, match: !invert });
    at = end;
  }
  if (at < text.length) parts.push({ start: at, end: text.length, match: invert });
  return parts;
}
/** A match joins the part before it, unless that is a match too. */
function merged(parts: readonly Part[]): Part[] {
  const out: Part[] = [];
  let before = false;
  for (const p of parts) {
    const last = out.at(-1);
    if (p.match && !before && last) [last.start, last.end] = [Math.min(last.start, p.start), Math.max(last.end, p.end)];
    else out.push({ ...p });
    before = p.match;
  }
  return out;
}
function contiguous(parts: readonly Part[]): Part[] {
  const out: Part[] = [];
  let before = false;
  for (const p of parts) {
    const last = out.at(-1);
    if (p.match === before && last) last.end = p.end;
    else out.push({ ...p });
    before = p.match;
  }
  return out;
}
const BEHAVE: Readonly<Record<Behavior, (parts: Part[]) => Part[]>> = {
  Removed: (parts) => parts.filter((p) => !p.match),
  Isolated: (parts) => parts,
  MergedWithPrevious: merged,
  MergedWithNext: (parts) => merged(parts.reverse()).reverse(),
  Contiguous: contiguous,
};

export const split =
  (find: Finder, behavior: Behavior, invert = false): PreTokenizer =>
  (pieces) => {
    const out: Piece[] = [];
    for (const { text, first } of pieces)
      for (const { start, end } of BEHAVE[behavior](partsOf(text, find, invert)))
        if (end > start) out.push({ text: text.slice(start, end), first: first && start === 0 });
    return out;
  };
export const eachPiece =
  (f: (text: string, first: boolean) => string): PreTokenizer =>
  (pieces) =>
    pieces.map((p) => ({ text: f(p.text, p.first), first: p.first }));
export const inOrder =
  (...all: readonly PreTokenizer[]): PreTokenizer =>
  (pieces) =>
    all.reduce<readonly Piece[]>((p, f) => f(p), pieces) as Piece[];

const WHITESPACE = finder('\\s');
const PUNCTUATION = finder('[\\p{P}!-/:-@\\[-`{-~]');
const NUMBERS = finder('\\p{N}');

export type PrependScheme = 'always' | 'first' | 'never';
/** Metaspace's older files say `add_prefix_space` where newer ones have a scheme. */
export const prependScheme = (c: Component): PrependScheme =>
  c.oneOf('prepend_scheme', ['always', 'first', 'never'], c.flag('add_prefix_space', true) ? 'always' : 'never');

const KINDS: Readonly<Record<string, Kind<PreTokenizer>>> = {
  Sequence: { keys: ['pretokenizers'], make: (c) => inOrder(...c.list('pretokenizers').map(preTokenizer)) },
  BertPreTokenizer: {
    keys: [],
    make: () => inOrder(split(WHITESPACE, 'Removed'), split(PUNCTUATION, 'Isolated')),
  },
  ByteLevel: {
    keys: ['add_prefix_space', 'trim_offsets', 'use_regex'],
    make: (c) => {
      const steps: PreTokenizer[] = [];
      if (c.flag('add_prefix_space', true)) steps.push(eachPiece((t) => (t.startsWith(' ') ? t : ` ${t}`)));
      if (c.flag('use_regex', true)) steps.push(split(finder(GPT2_PATTERN), 'Isolated'));
      return inOrder(...steps, eachPiece(byteText));
    },
  },
  CharDelimiterSplit: { keys: ['delimiter'], make: (c) => split(literalFinder(c.text('delimiter')), 'Removed') },
  Metaspace: {
    keys: ['replacement', 'add_prefix_space', 'prepend_scheme', 'split', 'str_rep'],
    make: (c) => {
      const mark = c.text('replacement');
      const scheme = prependScheme(c);
      const marked = eachPiece((text, first) => {
        const t = text.replaceAll(' ', mark);
        const wanted = scheme === 'always' || (scheme === 'first' && first);
        return wanted && !t.startsWith(mark) ? mark + t : t;
      });
      return c.flag('split', true) ? inOrder(marked, split(literalFinder(mark), 'MergedWithNext')) : marked;
    },
  },
  Whitespace: {
    keys: [],
    make: () => split(finder('[[:word:]\\u200c\\u200d]+|[^[:word:]\\s\\u200c\\u200d]+'), 'Removed', true),
  },
  WhitespaceSplit: { keys: [], make: () => split(WHITESPACE, 'Removed') },
  Punctuation: {
    keys: ['behavior'],
    make: (c) => split(PUNCTUATION, c.oneOf('behavior', BEHAVIORS, 'Isolated')),
  },
  Split: {
    keys: ['pattern', 'behavior', 'invert'],
    make: (c) =>
      split(
        patternOf(c.value('pattern'), c.where),
        c.oneOf('behavior', BEHAVIORS, 'Isolated'),
        c.flag('invert', false),
      ),
  },
  Digits: {
    keys: ['individual_digits'],
    make: (c) => split(NUMBERS, c.flag('individual_digits', false) ? 'Isolated' : 'Contiguous'),
  },
  FixedLength: {
    keys: ['length'],
    make: (c) => split(finder(`(?:.|\\n){1,${c.number('length', 5)}}`), 'Isolated'),
  },
};

export const preTokenizer = (json: unknown): PreTokenizer => component('pre-tokenizer', json, KINDS);

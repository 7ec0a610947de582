// What tokenizer.json does to a text before anything else, by the names of its `normalizer` section.
import { FormatError } from '../base/errors.js';
import { byteText } from './byte-level.js';
import { CharsMap } from './charsmap.js';
import { type Component, component } from './component.js';
import { patternOf, replaceAll } from './pattern.js';

export interface Normalizer {
  (text: string): string;
  /** Whether it takes something from the beginning of a text away; what is left no longer begins where the text did. */
  readonly uncovers?: (text: string) => boolean;
}
const uncovering = (normal: (text: string) => string, uncovers: (text: string) => boolean): Normalizer =>
  Object.assign(normal, { uncovers });

/** Character by character: a final sigma is no exception. */
const lowercase = (text: string): string => {
  let out = '';
  for (const c of text) out += c.toLowerCase();
  return out;
};
const IDEOGRAPH =
  /[\u4e00-\u9fff\u3400-\u4dbf\u{20000}-\u{2a6df}\u{2a700}-\u{2b73f}\u{2b740}-\u{2b81f}\u{2b920}-\u{2ceaf}\uf900-\ufaff\u{2f800}-\u{2fa1f}]/gu;

export interface BertOptions {
  readonly clean?: boolean;
  readonly chinese?: boolean;
  readonly stripAccents: boolean;
  readonly lowercase: boolean;
}
export const bertNormalizer = ({
  clean = true,
  chinese = true,
  stripAccents,
  lowercase: lower,
}: BertOptions): Normalizer => {
  const normal = (input: string): string => {
    let text = input;
    if (clean)
      text = text
        .replace(/[\t\n\r]/g, ' ')
        .replace(/[\0\ufffd\p{Cc}\p{Cf}\p{Co}]/gu, '')
        .replace(/\p{White_Space}/gu, ' ');
    if (chinese) text = text.replace(IDEOGRAPH, ' $& ');
    if (stripAccents) text = text.normalize('NFD').replace(/\p{Mn}/gu, '');
    return lower ? lowercase(text) : text;
  };
  return uncovering(
    normal,
    (text) =>
      (clean && /^(?![\t\n\r])[\0\ufffd\p{Cc}\p{Cf}\p{Co}]/u.test(text)) || (stripAccents && /^\p{Mn}/u.test(text)),
  );
};

const NMT_SPACES = /[\t\n\f\r\u1680\u200b-\u200f\u2028\u2029\u2581\ufeff\ufffd]/gu;
const NMT_REMOVED = /[\x01-\x08\x0b\x0e-\x1f\x7f\x8f\x9f]/g;

const KINDS: Readonly<Record<string, { keys: readonly string[]; make: (c: Component) => Normalizer }>> = {
  Sequence: {
    keys: ['normalizers'],
    make: (c) => {
      const all = c.list('normalizers').map(normalizer);
      return uncovering(
        (text) => all.reduce((t, f) => f(t), text),
        (text) => {
          let t = text;
          return all.some((f) => {
            const uncovered = f.uncovers?.(t);
            t = f(t);
            return uncovered;
          });
        },
      );
    },
  },
  NFC: { keys: [], make: () => (t) => t.normalize('NFC') },
  NFD: { keys: [], make: () => (t) => t.normalize('NFD') },
  NFKC: { keys: [], make: () => (t) => t.normalize('NFKC') },
  NFKD: { keys: [], make: () => (t) => t.normalize('NFKD') },
  Lowercase: { keys: [], make: () => lowercase },
  StripAccents: {
    keys: [],
    make: () =>
      uncovering(
        (t) => t.replace(/\p{M}/gu, ''),
        (t) => /^\p{M}/u.test(t),
      ),
  },
  Strip: {
    keys: ['strip_left', 'strip_right'],
    make: (c) => {
      const [left, right] = [c.flag('strip_left', false), c.flag('strip_right', false)];
      return uncovering(
        (text) => {
          const from = left ? text.replace(/^\p{White_Space}+/u, '') : text;
          return right ? trimEnd(from) : from;
        },
        (text) => left && /^\p{White_Space}/u.test(text),
      );
    },
  },
  Prepend: {
    keys: ['prepend'],
    make: (c) => {
      const before = c.text('prepend');
      return (text) => (text === '' ? '' : before + text);
    },
  },
  Replace: {
    keys: ['pattern', 'content'],
    make: (c) => {
      const find = patternOf(c.value('pattern'), c.where);
      const content = c.text('content');
      return uncovering(
        (text) => replaceAll(text, find, content),
        (text) => {
          // What is put there counts as standing where the last character was that went.
          for (const { start, end } of find(text))
            return start === 0 && [...text.slice(0, end)].length > (content === '' ? 0 : 1);
          return false;
        },
      );
    },
  },
  BertNormalizer: {
    keys: ['clean_text', 'handle_chinese_chars', 'strip_accents', 'lowercase'],
    make: (c) => {
      const lower = c.flag('lowercase', true);
      return bertNormalizer({
        clean: c.flag('clean_text', true),
        chinese: c.flag('handle_chinese_chars', true),
        stripAccents: c.value('strip_accents') == null ? lower : c.flag('strip_accents', lower),
        lowercase: lower,
      });
    },
  },
  Precompiled: {
    keys: ['precompiled_charsmap'],
    make: (c) => {
      const blob = c.value('precompiled_charsmap');
      if (blob == null || blob === '') return (text) => text;
      if (typeof blob !== 'string') throw new FormatError(`${c.where}: precompiled_charsmap is not base64 text`);
      const map = new CharsMap(Buffer.from(blob, 'base64'));
      return (text) => map.replaceClusters(text);
    },
  },
  ByteLevel: { keys: [], make: () => byteText },
  Nmt: {
    keys: [],
    make: () =>
      uncovering(
        (t) => t.replace(NMT_REMOVED, '').replace(NMT_SPACES, ' '),
        (t) => t.search(NMT_REMOVED) === 0,
      ),
  },
};

/** In one pass over the end, not a regular expression that begins anew at every space. */
function trimEnd(text: string): string {
  let end = text.length;
  while (end > 0 && /\p{White_Space}/u.test(text[end - 1])) end--;
  return text.slice(0, end);
}

export const normalizer = (json: unknown): Normalizer => component('normalizer', json, KINDS);

// Tokens back to text, by the names of tokenizer.json's `decoder` section; each step answers a list that the next one
// takes.
import { byteOfToken, bytesOfToken } from './byte-level.js';
import { component, type Kind } from './component.js';
import { patternOf, replaceAll } from './pattern.js';
import { prependScheme } from './pre-tokenizers.js';

export type DecodeStep = (tokens: readonly string[]) => string[];

/** Bytes as text where they are whole characters; else one replacement character a byte. */
function bytesToText(bytes: readonly number[]): string {
  try {
    return new TextDecoder('utf-8', { fatal: true, ignoreBOM: true }).decode(Uint8Array.from(bytes));
  } catch {
    return '\ufffd'.repeat(bytes.length);
  }
}
/** Runs of `<0x0A>` tokens become the text that their bytes spell. */
export const byteFallback: DecodeStep = (tokens) => {
  const out: string[] = [];
  let bytes: number[] = [];
  const flush = (): void => {
    if (bytes.length > 0) out.push(bytesToText(bytes));
    bytes = [];
  };
  for (const token of tokens) {
    const b = byteOfToken(token);
    if (b !== undefined) bytes.push(b);
    else {
      flush();
      out.push(token);
    }
  }
  flush();
  return out;
};
const UTF8 = new TextDecoder('utf-8', { ignoreBOM: true });
/** Byte-level tokens, as one text. */
export const byteLevel: DecodeStep = (tokens) => [UTF8.decode(Buffer.concat(tokens.map(bytesOfToken)))];

const CLEANUP: readonly (readonly [string, string])[] = [
  [' .', '.'],
  [' ?', '?'],
  [' !', '!'],
  [' ,', ','],
  [" ' ", "'"],
  [" n't", "n't"],
  [" 'm", "'m"],
  [' do not', " don't"],
  [" 's", "'s"],
  [" 've", "'ve"],
  [" 're", "'re"],
];
const cleaned = (text: string): string => CLEANUP.reduce((t, [from, to]) => t.replaceAll(from, to), text);

const wordPiece =
  (prefix: string, cleanup: boolean): DecodeStep =>
  (tokens) =>
    tokens.map((token, i) => {
      const joined = i === 0 ? token : token.startsWith(prefix) ? token.slice(prefix.length) : ` ${token}`;
      return cleanup ? cleaned(joined) : joined;
    });

function strip(token: string, content: string, start: number, stop: number): string {
  const c = [...token];
  let [from, to] = [0, c.length];
  while (from < start && from < to && c[from] === content) from++;
  while (c.length - to < stop && to > from && c[to - 1] === content) to--;
  return c.slice(from, to).join('');
}

const KINDS: Readonly<Record<string, Kind<DecodeStep>>> = {
  Sequence: {
    keys: ['decoders'],
    make: (c) => {
      const all = c.list('decoders').map(decoder);
      return (tokens) => all.reduce<readonly string[]>((t, f) => f(t), tokens) as string[];
    },
  },
  ByteLevel: { keys: ['add_prefix_space', 'trim_offsets', 'use_regex'], make: () => byteLevel },
  ByteFallback: { keys: [], make: () => byteFallback },
  Fuse: { keys: [], make: () => (tokens) => [tokens.join('')] },
  Replace: {
    keys: ['pattern', 'content'],
    make: (c) => {
      const find = patternOf(c.value('pattern'), c.where);
      const content = c.text('content');
      return (tokens) => tokens.map((t) => replaceAll(t, find, content));
    },
  },
  Strip: {
    keys: ['content', 'start', 'stop'],
    make: (c) => {
      const [content, start, stop] = [c.text('content'), c.number('start'), c.number('stop')];
      return (tokens) => tokens.map((t) => strip(t, content, start, stop));
    },
  },
  Metaspace: {
    keys: ['replacement', 'add_prefix_space', 'prepend_scheme', 'split', 'str_rep'],
    make: (c) => {
      const mark = c.text('replacement');
      const scheme = prependScheme(c);
      return (tokens) => tokens.map((t, i) => t.replaceAll(mark, i === 0 && scheme !== 'never' ? '' : ' '));
    },
  },
  WordPiece: {
    keys: ['prefix', 'cleanup'],
    make: (c) => wordPiece(c.text('prefix', '##'), c.flag('cleanup', true)),
  },
  BPEDecoder: {
    keys: ['suffix'],
    make: (c) => {
      const suffix = c.text('suffix', '</w>');
      return (tokens) => tokens.map((t, i) => t.replaceAll(suffix, i === tokens.length - 1 ? '' : ' '));
    },
  },
  CTC: {
    keys: ['pad_token', 'word_delimiter_token', 'cleanup'],
    make: (c) => {
      const [pad, delimiter] = [c.text('pad_token', '<pad>'), c.text('word_delimiter_token', '|')];
      const cleanup = c.flag('cleanup', true);
      return (tokens) =>
        tokens
          .filter((t, i) => i === 0 || t !== tokens[i - 1])
          .map((t) => t.replaceAll(pad, ''))
          .map((t) => (cleanup ? cleaned(t).replaceAll(delimiter, ' ') : t))
          .filter((t) => t !== '');
    },
  },
};

export const decoder = (json: unknown): DecodeStep => component('decoder', json, KINDS);

// Python literals as NumPy headers use them: dicts, tuples, lists, strings, whole numbers, True, False, None.
import { badFormat } from './byte-source.js';

export type Literal = string | number | boolean | null | Literal[] | Map<string, Literal>;

const MAX_DEPTH = 8;
const WORDS = new Map<string, Literal>([
  ['True', true],
  ['False', false],
  ['None', null],
]);
const TOKEN =
  /\s*(?:'([^'\\]*(?:\\.[^'\\]*)*)'|"([^"\\]*(?:\\.[^"\\]*)*)"|(-?\d{1,20})L?\b|(True|False|None)\b|([{}()[\],:]))/y;

export function parseLiteral(text: string, source: string, offset: number): Literal {
  let at = 0;
  const fail = (rule: string) => badFormat(source, offset + at, `header: ${rule}`);
  const next = (): { punct?: string; value?: Literal } => {
    TOKEN.lastIndex = at;
    const m = TOKEN.exec(text);
    if (!m) throw fail('is no Python literal');
    at = TOKEN.lastIndex;
    if (m[5]) return { punct: m[5] };
    if (m[4]) return { value: WORDS.get(m[4])! };
    return { value: m[3] !== undefined ? Number(m[3]) : (m[1] ?? m[2]).replace(/\\(.)/g, '$1') };
  };
  const sequence = (close: string, depth: number): Literal[] => {
    const items: Literal[] = [];
    for (;;) {
      const before = at;
      if (next().punct === close) return items;
      at = before;
      items.push(value(depth));
      const { punct } = next();
      if (punct === close) return items;
      if (punct !== ',') throw fail(`"," or "${close}" expected`);
    }
  };
  const dict = (depth: number): Map<string, Literal> => {
    const out = new Map<string, Literal>();
    for (;;) {
      const key = next();
      if (key.punct === '}') return out;
      if (typeof key.value !== 'string') throw fail('a dict key must be a string');
      if (next().punct !== ':') throw fail('":" expected');
      if (out.has(key.value)) throw fail(`key ${JSON.stringify(key.value)} is there twice`);
      out.set(key.value, value(depth));
      const { punct } = next();
      if (punct === '}') return out;
      if (punct !== ',') throw fail('"," or "}" expected');
    }
  };
  const value = (depth: number): Literal => {
    if (depth > MAX_DEPTH) throw fail('is nested too deep');
    const token = next();
    if (token.value !== undefined) return token.value;
    if (token.punct === '{') return dict(depth + 1);
    if (token.punct === '(') return sequence(')', depth + 1);
    if (token.punct === '[') return sequence(']', depth + 1);
    throw fail('a value expected');
  };
  const out = value(0);
  if (text.slice(at).trim() !== '') throw fail('goes on after its dict');
  return out;
}

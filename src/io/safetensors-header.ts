// The header of a safetensors file: JSON read strictly, since what a lenient parser mends the format refuses.
import type { Cursor } from './byte-source.js';

/** A value of the header with the character where it begins; numbers keep their spelling. */
export type HeaderValue =
  | { readonly at: number; readonly text: string }
  | { readonly at: number; readonly number: string }
  | { readonly at: number; readonly list: readonly HeaderValue[] }
  | { readonly at: number; readonly entries: ReadonlyMap<string, HeaderValue> }
  | { readonly at: number; readonly word: string };

/** Bytes that a value, and an entry of an object, take in memory. */
const COST = { value: 64, entry: 96 } as const;
/** A header is an object of objects whose lists are flat. */
const MAX_DEPTH = 3;
const SPACE = /[ \t\n\r]*/y;
const QUOTE = 0x22;
const BACKSLASH = 0x5c;
const NUMBER = /-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][+-]?\d+)?/y;
const WORD = /true|false|null/y;

export interface Header {
  readonly entries: ReadonlyMap<string, HeaderValue>;
  /** The byte of the file where a value begins. */
  readonly placeOf: (value: HeaderValue) => number;
}

/**
 * Reads the header's text, which began at byte `start` of the cursor's source. Keys that come twice, arrays in arrays
 * and objects deeper than the format's are errors at their byte.
 */
export function parseHeaderJson(text: string, start: number, cursor: Cursor): Header {
  let i = 0;
  // Texts beyond ASCII have more bytes than characters: places are counted only when they are told.
  const byteAt = (at: number): number => start + Buffer.byteLength(text.slice(0, at));
  const fail = (rule: string, at = i) => cursor.fail(`header: ${rule}`, byteAt(at));
  const take = (pattern: RegExp): string | undefined => {
    pattern.lastIndex = i;
    const found = pattern.exec(text)?.[0];
    if (found !== undefined) i = pattern.lastIndex;
    return found;
  };
  const next = (): string => {
    take(SPACE);
    return text[i] ?? '';
  };
  const string = (): string => {
    const at = i;
    let escaped = false;
    for (i++; text.charCodeAt(i) !== QUOTE; i++) {
      // NaN, past the end, compares with nothing.
      if (!(text.charCodeAt(i) >= 0x20)) throw fail('a text is not closed, or holds what JSON does not allow', at);
      if (text.charCodeAt(i) === BACKSLASH) {
        escaped = true;
        i++;
      }
    }
    i++;
    cursor.pay(2 * (i - at));
    if (!escaped) return text.slice(at + 1, i - 1);
    try {
      return JSON.parse(text.slice(at, i)) as string;
    } catch {
      throw fail('a text holds an escape that JSON does not know', at);
    }
  };
  /** What stands between the brackets, item by item. */
  const items = (close: string, item: () => void): void => {
    i++;
    if (next() === close) {
      i++;
      return;
    }
    for (;;) {
      item();
      const c = next();
      if (c !== ',' && c !== close) throw fail(`"," or "${close}" expected`);
      i++;
      if (c === close) return;
      next();
    }
  };
  const object = (depth: number): Map<string, HeaderValue> => {
    if (depth > MAX_DEPTH - 1) throw fail('must be an object of objects with flat lists');
    const out = new Map<string, HeaderValue>();
    items('}', () => {
      const at = i;
      if (next() !== '"') throw fail('a key expected');
      const key = string();
      if (out.has(key)) throw fail(`key ${JSON.stringify(key)} is there twice`, at);
      if (next() !== ':') throw fail('":" expected');
      i++;
      cursor.pay(COST.entry);
      out.set(key, value(depth + 1));
    });
    return out;
  };
  const value = (depth: number): HeaderValue => {
    const c = next();
    const at = i;
    cursor.pay(COST.value);
    if (c === '"') return { at, text: string() };
    if (c === '{') return { at, entries: object(depth) };
    if (c === '[') {
      if (depth !== MAX_DEPTH) throw fail('must be an object of objects with flat lists');
      const list: HeaderValue[] = [];
      items(']', () => void list.push(value(depth + 1)));
      return { at, list };
    }
    const number = take(NUMBER);
    if (number !== undefined) return { at, number };
    const word = take(WORD);
    if (word !== undefined) return { at, word };
    throw fail(c === '' ? 'ends in the middle' : 'is no JSON');
  };
  if (text[0] !== '{') throw fail('must begin with "{"', 0);
  const entries = object(1);
  if (next() !== '') throw fail('goes on after its object');
  return { entries, placeOf: ({ at }) => byteAt(at) };
}

/**
 * A whole number from 0, written as the format wants it: no sign, no point, no exponent; undefined for anything else.
 */
export function headerCount(value: HeaderValue): number | undefined {
  if (!('number' in value) || !/^\d+$/.test(value.number)) return undefined;
  const n = Number(value.number);
  return Number.isSafeInteger(n) ? n : undefined;
}

/** A value as it was written, for messages. */
export function headerText(value: HeaderValue | undefined): string {
  if (value === undefined) return 'nothing';
  if ('text' in value) return JSON.stringify(value.text);
  if ('number' in value) return value.number;
  if ('word' in value) return value.word;
  return 'list' in value ? `[${value.list.slice(0, 64).map(headerText).join(', ')}]` : 'an object';
}

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

/** Reads from the front; what it refuses, it refuses at its byte. */
class HeaderReader {
  readonly #text: string;
  readonly #start: number;
  readonly #cursor: Cursor;
  #at = 0;

  constructor(text: string, start: number, cursor: Cursor) {
    this.#text = text;
    this.#start = start;
    this.#cursor = cursor;
  }

  /** Texts beyond ASCII have more bytes than characters: places are counted only when they are told. */
  byteAt(at: number): number {
    return this.#start + Buffer.byteLength(this.#text.slice(0, at));
  }

  #fail(rule: string, at = this.#at): Error {
    return this.#cursor.fail(`header: ${rule}`, this.byteAt(at));
  }

  #take(pattern: RegExp): string | undefined {
    pattern.lastIndex = this.#at;
    const found = pattern.exec(this.#text)?.[0];
    if (found !== undefined) this.#at = pattern.lastIndex;
    return found;
  }

  /** The next character behind white space, or '' at the end. */
  #next(): string {
    this.#take(SPACE);
    return this.#text[this.#at] ?? '';
  }

  /** The one object that the text is. */
  whole(): Map<string, HeaderValue> {
    if (this.#text[0] !== '{') throw this.#fail('must begin with "{"', 0);
    const entries = this.#object(1);
    if (this.#next() !== '') throw this.#fail('goes on after its object');
    return entries;
  }

  #string(): string {
    const text = this.#text;
    const at = this.#at;
    let escaped = false;
    let i = at + 1;
    for (; text.charCodeAt(i) !== QUOTE; i++) {
      // NaN, past the end, compares with nothing.
      if (!(text.charCodeAt(i) >= 0x20))
        throw this.#fail('a text is not closed, or holds what JSON does not allow', at);
      if (text.charCodeAt(i) === BACKSLASH) {
        escaped = true;
        i++;
      }
    }
    this.#at = i + 1;
    this.#cursor.pay(2 * (this.#at - at));
    if (!escaped) return text.slice(at + 1, i);
    try {
      return JSON.parse(text.slice(at, i + 1)) as string;
    } catch {
      throw this.#fail('a text holds an escape that JSON does not know', at);
    }
  }

  /** What stands between the brackets, item by item. */
  #items(close: string, item: () => void): void {
    this.#at++;
    if (this.#next() === close) {
      this.#at++;
      return;
    }
    for (;;) {
      item();
      const c = this.#next();
      if (c !== ',' && c !== close) throw this.#fail(`"," or "${close}" expected`);
      this.#at++;
      if (c === close) return;
      this.#next();
    }
  }

  #object(depth: number): Map<string, HeaderValue> {
    if (depth > MAX_DEPTH - 1) throw this.#fail('must be an object of objects with flat lists');
    const out = new Map<string, HeaderValue>();
    this.#items('}', () => {
      const at = this.#at;
      if (this.#next() !== '"') throw this.#fail('a key expected');
      const key = this.#string();
      if (out.has(key)) throw this.#fail(`key ${JSON.stringify(key)} is there twice`, at);
      if (this.#next() !== ':') throw this.#fail('":" expected');
      this.#at++;
      this.#cursor.pay(COST.entry);
      out.set(key, this.#value(depth + 1));
    });
    return out;
  }

  #value(depth: number): HeaderValue {
    const c = this.#next();
    const at = this.#at;
    this.#cursor.pay(COST.value);
    if (c === '"') return { at, text: this.#string() };
    if (c === '{') return { at, entries: this.#object(depth) };
    if (c === '[') {
      if (depth !== MAX_DEPTH) throw this.#fail('must be an object of objects with flat lists');
      const list: HeaderValue[] = [];
      this.#items(']', () => void list.push(this.#value(depth + 1)));
      return { at, list };
    }
    const number = this.#take(NUMBER);
    if (number !== undefined) return { at, number };
    const word = this.#take(WORD);
    if (word !== undefined) return { at, word };
    throw this.#fail(c === '' ? 'ends in the middle' : 'is no JSON');
  }
}

/**
 * Reads the header's text, which began at byte `start` of the cursor's source. Keys that come twice, arrays in arrays
 * and objects deeper than the format's are errors at their byte.
 */
export function parseHeaderJson(text: string, start: number, cursor: Cursor): Header {
  const reader = new HeaderReader(text, start, cursor);
  return { entries: reader.whole(), placeOf: ({ at }) => reader.byteAt(at) };
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

// Regular expressions of tokenizer files (Oniguruma's, in Ruby's syntax) as JavaScript's.
import { FormatError } from '../base/errors.js';

const WORD = '\\p{Alphabetic}\\p{M}\\p{Nd}\\p{Pc}\\u{b2}\\u{b3}\\u{b9}\\u{bc}-\\u{be}';
/** What stands for a set of characters, as the inside of a class. */
const SETS: Readonly<Record<string, string>> = {
  s: '\\p{White_Space}',
  w: WORD,
  d: '\\p{Nd}',
  h: '0-9a-fA-F',
};
const POSIX: Readonly<Record<string, string>> = {
  alnum: '\\p{Alphabetic}\\p{Nd}',
  alpha: '\\p{Alphabetic}',
  ascii: '\\x00-\\x7f',
  blank: '\\p{Zs}\\t',
  cntrl: '\\p{Cc}',
  digit: '\\p{Nd}',
  graph: '[\\p{Any}--[\\p{White_Space}\\p{Cc}\\p{Cn}\\p{Cs}]]',
  lower: '\\p{Lowercase}',
  print: '[\\p{Any}--[\\p{Cc}\\p{Cn}\\p{Cs}\\p{Zl}\\p{Zp}]]',
  punct: '\\p{P}\\p{S}',
  space: '\\p{White_Space}',
  upper: '\\p{Uppercase}',
  word: '\\p{Alphabetic}\\p{M}\\p{Nd}\\p{Pc}',
  xdigit: '0-9a-fA-F',
};
const CONTROLS: Readonly<Record<string, string>> = {
  n: '\n',
  r: '\r',
  t: '\t',
  f: '\f',
  v: '\v',
  a: '\x07',
  e: '\x1b',
};
/** Characters besides the other case that fold to an ASCII letter. */
const FOLDS: Readonly<Record<string, string>> = { s: '\u017f', k: '\u212a' };

const literal = (c: string): string =>
  /^[A-Za-z0-9]$/.test(c) ? c : `\\u{${(c.codePointAt(0) as number).toString(16)}}`;

function cases(c: string): string {
  const lower = c.toLowerCase();
  const all = new Set([c, lower, c.toUpperCase(), FOLDS[lower] ?? c].filter((x) => [...x].length === 1));
  return [...all].map(literal).join('');
}

function property(name: string, fail: (why: string) => FormatError): string {
  const posix = POSIX[name.toLowerCase()];
  if (posix) return posix;
  const title = name.replace(/(^|[_ ])([a-z])/g, (_, before: string, c: string) => before + c.toUpperCase());
  for (const body of [name, title, `Script=${name}`, `Script=${title}`]) {
    try {
      new RegExp(`\\p{${body}}`, 'v');
      return `\\p{${body}}`;
    } catch {
      // the next spelling
    }
  }
  throw fail(`the property ${JSON.stringify(name)} is not known`);
}

class Translator {
  readonly #source: readonly string[];
  #at = 0;
  #groups = 0;
  readonly #start: string;
  constructor(source: string, start: string) {
    this.#source = [...source];
    this.#start = start;
  }
  fail(why: string): FormatError {
    return new FormatError(
      `regular expression ${JSON.stringify(this.#source.join(''))}: at character ${this.#at}: ${why}`,
    );
  }
  #looking(text: string): boolean {
    return this.#source.slice(this.#at, this.#at + text.length).join('') === text;
  }
  #take(text: string): boolean {
    if (!this.#looking(text)) return false;
    this.#at += text.length;
    return true;
  }
  #until(end: string): string {
    const from = this.#at;
    while (this.#at < this.#source.length && !this.#looking(end)) this.#at++;
    if (this.#at >= this.#source.length) throw this.fail(`${JSON.stringify(end)} is missing`);
    const text = this.#source.slice(from, this.#at).join('');
    this.#at += end.length;
    return text;
  }
  translate(): string {
    const out = this.#alternatives(false);
    if (this.#at < this.#source.length) throw this.fail('")" without "("');
    return out;
  }
  #alternatives(insensitive: boolean): string {
    let out = '';
    let folded = insensitive;
    while (this.#at < this.#source.length && !this.#looking(')')) {
      if (this.#take('|')) {
        out += '|';
        continue;
      }
      const switched = /^\(\?(i|-i|m|x)\)/.exec(this.#source.slice(this.#at, this.#at + 5).join(''));
      if (switched) {
        if (!switched[1].endsWith('i')) throw this.fail(`the option ${switched[1]} is not known`);
        folded = switched[1] === 'i';
        this.#at += switched[0].length;
        continue;
      }
      const [before, groups] = [this.#at, this.#groups];
      const atom = this.#atom(folded);
      out += this.#quantified(atom, before, groups);
    }
    return out;
  }
  #quantified(atom: string, before: number, groups: number): string {
    let out = atom;
    for (;;) {
      const rest = this.#source.slice(this.#at, this.#at + 24).join('');
      const m = /^([*+?])([+?]?)|^\{(\d*)(,?)(\d*)\}(\??)/.exec(rest);
      if (!m || m[0] === '{}' || m[0] === '{,}') return out;
      this.#at += m[0].length;
      if (m[1]) {
        if (m[2] !== '+') out = `${this.#unit(out)}${m[1]}${m[2]}`;
        else {
          // Possessive: what a lookahead took cannot be given back. Groups inside have their numbers already.
          if (this.#groups !== groups)
            throw this.fail(`a possessive quantifier over a group (from character ${before})`);
          out = `(?=(${this.#unit(out)}${m[1]}))\\${++this.#groups}`;
        }
      } else out = `${this.#unit(out)}{${m[3] || '0'}${m[4]}${m[5]}}${m[6]}`;
    }
  }
  /** Something that a quantifier may follow. */
  #unit(text: string): string {
    return /^(\\p\{[^}]*\}|\\u\{[^}]*\}|\w|\[.*\]|\(\?[:].*\)|\((?!\?).*\))$/su.test(text) && balanced(text)
      ? text
      : `(?:${text})`;
  }
  #atom(insensitive: boolean): string {
    if (this.#take('(')) return this.#group(insensitive);
    if (this.#take('[')) return this.#class(insensitive);
    if (this.#take('\\')) return this.#escape(insensitive);
    if (this.#take('.')) return '[^\\n]';
    if (this.#take('^')) return '(?:^|(?<=\\n)(?!$))';
    if (this.#take('$')) return '(?=\\n|$)';
    const c = this.#source[this.#at++];
    return insensitive && cases(c).length > literal(c).length ? `[${cases(c)}]` : literal(c);
  }
  #group(insensitive: boolean): string {
    const close = (open: string, folded = insensitive): string => {
      const inner = this.#alternatives(folded);
      if (!this.#take(')')) throw this.fail('")" is missing');
      return `${open}${inner})`;
    };
    for (const open of ['?:', '?=', '?!', '?<=', '?<!']) if (this.#take(open)) return close(`(${open}`);
    if (this.#take('?>')) {
      const number = ++this.#groups;
      return `${close('(?=(')})\\${number}`;
    }
    if (this.#take('?i:')) return close('(?:', true);
    if (this.#take('?-i:')) return close('(?:', false);
    if (this.#take('?#')) {
      this.#until(')');
      return '';
    }
    if (this.#looking('?')) throw this.fail('this kind of group is not known');
    this.#groups++;
    return close('(');
  }
  /** The character that an escape stands for, where it stands for one. */
  #escapedCharacter(c: string): string | undefined {
    if (c === 'x' || c === 'u') {
      if (this.#take('{')) return String.fromCodePoint(parseInt(this.#until('}'), 16));
      const digits = this.#source.slice(this.#at, this.#at + (c === 'x' ? 2 : 4)).join('');
      this.#at += digits.length;
      if (!/^[0-9a-fA-F]+$/.test(digits)) throw this.fail(`\\${c} without hexadecimal digits`);
      return String.fromCodePoint(parseInt(digits, 16));
    }
    if (Object.hasOwn(CONTROLS, c)) return CONTROLS[c];
    return /[A-Za-z0-9]/.test(c) ? undefined : c;
  }
  /** A set that an escape stands for: the inside of a class, and whether it is meant turned round. */
  #escapedSet(c: string): readonly [inside: string, negated: boolean] | undefined {
    if (c === 'p' || c === 'P') {
      if (!this.#take('{')) throw this.fail(`\\${c} without {`);
      const name = this.#until('}');
      const turned = name.startsWith('^');
      const inside = property(name.slice(turned ? 1 : 0), (why) => this.fail(why));
      return [inside, (c === 'P') !== turned];
    }
    const set = SETS[c.toLowerCase()];
    return set === undefined ? undefined : [set, c !== c.toLowerCase()];
  }
  #escape(insensitive: boolean): string {
    const c = this.#source[this.#at++];
    if (c === undefined) throw this.fail('it ends with a backslash');
    if (c === 'b') return `(?:(?<=[${WORD}])(?![${WORD}])|(?<![${WORD}])(?=[${WORD}]))`;
    if (c === 'B') return `(?:(?<=[${WORD}])(?=[${WORD}])|(?<![${WORD}])(?![${WORD}]))`;
    if (c === 'A') return '(?:^)';
    if (c === 'z') return '(?:$)';
    if (c === 'Z') return '(?=\\n?$)';
    if (c === 'G') return this.#start;
    if (c === 'R') return '(?:\\r\\n|[\\n-\\r\\x85\\u2028\\u2029])';
    const set = this.#escapedSet(c);
    if (set) return `[${set[1] ? '^' : ''}${set[0]}]`;
    const character = this.#escapedCharacter(c);
    if (character === undefined) throw this.fail(`\\${c} is not known`);
    return insensitive ? `[${cases(character)}]` : literal(character);
  }
  /** A class; "&&" binds weaker than everything beside it. */
  #class(insensitive: boolean): string {
    const negated = this.#take('^');
    const operands: string[] = [];
    let inside = '';
    let first = true;
    for (; ; first = false) {
      if (this.#at >= this.#source.length) throw this.fail('"]" is missing');
      if (!first && this.#take(']')) break;
      if (this.#take('&&')) {
        operands.push(inside);
        inside = '';
      } else if (this.#take('[:')) {
        const name = this.#until(':]');
        const turned = name.startsWith('^');
        const set = POSIX[name.slice(turned ? 1 : 0)];
        if (!set) throw this.fail(`[:${name}:] is not known`);
        inside += turned ? `[^${set}]` : set;
      } else if (this.#take('[')) inside += this.#class(insensitive);
      else inside += this.#member(insensitive);
    }
    operands.push(inside);
    const body = operands.length === 1 ? inside : operands.map((o) => `[${o}]`).join('&&');
    return `[${negated ? '^' : ''}${body}]`;
  }
  #member(insensitive: boolean): string {
    const one = (): string | { readonly set: string } => {
      const c = this.#source[this.#at++];
      if (c !== '\\') return c;
      const e = this.#source[this.#at++];
      if (e === undefined) throw this.fail('it ends with a backslash');
      if (e === 'b') return '\b';
      // Within a class Oniguruma does not count the small numbers of Latin-1 among letters, as it does outside.
      const set = /^w$/i.test(e) ? ([POSIX.word, e === 'W'] as const) : this.#escapedSet(e);
      if (set) return { set: set[1] ? `[^${set[0]}]` : set[0] };
      const character = this.#escapedCharacter(e);
      if (character === undefined) throw this.fail(`\\${e} is not known`);
      return character;
    };
    const from = one();
    if (typeof from !== 'string') return from.set;
    const range = this.#looking('-') && this.#source[this.#at + 1] !== ']' && this.#source[this.#at + 1] !== undefined;
    if (!range) return insensitive ? cases(from) : literal(from);
    this.#at++;
    const to = one();
    if (typeof to !== 'string') return `${literal(from)}\\u{2d}${to.set}`;
    if (!insensitive) return `${literal(from)}-${literal(to)}`;
    const [a, b] = [from.codePointAt(0) as number, to.codePointAt(0) as number];
    if (b - a > 512) throw this.fail('a long range in a part that ignores case');
    return Array.from({ length: b - a + 1 }, (_, i) => cases(String.fromCodePoint(a + i))).join('');
  }
}

/** Whether the bracket that opens a text closes at its end. */
function balanced(text: string): boolean {
  if (!/^[[(]/.test(text)) return true;
  let depth = 0;
  let inClass = 0;
  for (let i = 0; i < text.length; i++) {
    const c = text[i];
    if (c === '\\') i++;
    else if (c === '[') inClass++;
    else if (c === ']') inClass--;
    else if (!inClass && c === '(') depth++;
    else if (!inClass && c === ')') depth--;
    if (depth === 0 && inClass === 0 && i < text.length - 1) return false;
  }
  return true;
}

export interface Match {
  readonly start: number;
  readonly end: number;
}
export type Finder = (text: string) => Iterable<Match>;

const compile = (source: string, start: string, flags: string): RegExp => {
  const body = new Translator(source, start).translate();
  try {
    return new RegExp(body, flags);
  } catch (cause) {
    throw new FormatError(`regular expression ${JSON.stringify(source)}: ${(cause as Error).message}`, { cause });
  }
};

/** All matches, one after another, as Oniguruma finds them. */
export function finder(source: string): Finder {
  if (!source.includes('\\G')) {
    const all = compile(source, '', 'gv');
    return function* (text) {
      for (const m of text.matchAll(all)) yield { start: m.index, end: m.index + m[0].length };
    };
  }
  // \G holds only where a search begins: right there it is true, farther on never.
  const here = compile(source, '(?:)', 'yv');
  const later = compile(source, '(?!)', 'gv');
  return function* (text) {
    for (let at = 0; at <= text.length; ) {
      here.lastIndex = at;
      let m = here.exec(text);
      if (!m) {
        later.lastIndex = at;
        m = later.exec(text);
      }
      if (!m) return;
      yield { start: m.index, end: m.index + m[0].length };
      at = m[0].length > 0 ? m.index + m[0].length : m.index + 1;
    }
  };
}

/** All places of a text, none overlapping. */
export function literalFinder(wanted: string): Finder {
  return function* (text) {
    if (wanted === '') return;
    for (let at = text.indexOf(wanted); at >= 0; at = text.indexOf(wanted, at + wanted.length))
      yield { start: at, end: at + wanted.length };
  };
}

/** A file's `{ String }` or `{ Regex }`. */
export function patternOf(pattern: unknown, where: string): Finder {
  const p = pattern as { String?: string; Regex?: string } | string;
  if (typeof p === 'string') return literalFinder(p);
  if (typeof p?.String === 'string') return literalFinder(p.String);
  if (typeof p?.Regex === 'string') return finder(p.Regex);
  throw new FormatError(`${where}: pattern ${JSON.stringify(pattern)} is neither a String nor a Regex`);
}

export function replaceAll(text: string, find: Finder, content: string): string {
  let out = '';
  let at = 0;
  for (const { start, end } of find(text)) {
    out += text.slice(at, start) + content;
    at = end;
  }
  return at === 0 && out === '' ? text : out + text.slice(at);
}

// Leaves out of a kernel's source what it does not use: compilers spend most of a small kernel's time on reading
// headers.
import { closing, expand, type Macro, readMacros } from './macros.js';

/** A directive, a macro's definition or use, or a declaration at file scope. */
interface Item {
  readonly text: string;
  /** Where it ends in the text it was taken from. */
  readonly end: number;
  /** What it declares; undefined where it must stay in any case. */
  readonly names: readonly string[] | undefined;
  /** Every identifier in it. */
  readonly refs: readonly string[];
}

const identifiers = (text: string): string[] => [...new Set(text.match(/[A-Za-z_]\w*/g) ?? [])];

/** Past the angle brackets that open at `open`; parentheses inside are skipped whole. */
function closingAngle(text: string, open: number): number {
  let depth = 0;
  for (let i = open; i < text.length; i++) {
    if (text[i] === '(') i = closing(text, i) - 1;
    else if (text[i] === '<') depth++;
    else if (text[i] === '>' && --depth === 0) return i + 1;
  }
  throw new SyntaxError(`kernel source: no closing bracket for ${JSON.stringify(text.slice(open, open + 60))}`);
}

/** The names a declaration declares; undefined where they are not plain to see. */
function declared(text: string): string[] | undefined {
  let t = text.trim();
  for (let m = /^template\s*</.exec(t); m; m = /^template\s*</.exec(t))
    t = t.slice(closingAngle(t, m[0].length - 1)).trim();
  const type =
    /^(?:struct|class|union)\s+(?:alignas\((?:[^()]|\([^()]*\))*\)\s*)?(\w+)/.exec(t) ?? /^using\s+(\w+)\s*=/.exec(t);
  if (type) return [type[1]];
  if (t.startsWith('typedef'))
    return /(\w+)\s*;\s*$/.exec(t.replace(/__attribute__\s*\(\(.*?\)\)\s*(?=;|\w)/g, ''))?.slice(1);
  const head = /^[^=({;]*/.exec(t)?.[0] ?? '';
  if (/^(static_assert|enum|extern|namespace)\b|\boperator\b|\b(__attribute__|decltype|alignas)\s*$/.test(head))
    return undefined;
  const first = /(\w+)\s*(?:<[^=]*>)?\s*(?:\[[^\]]*\]\s*)*$/.exec(head);
  if (!first) return undefined;
  // One declaration may give several constants their values.
  const others = t[head.length] === '=' ? [...t.matchAll(/,\s*(\w+)\s*=/g)].map((m) => m[1]) : [];
  return [first[1], ...others];
}

const SPACE = /\s*/y;
const WORD = /\w*/y;
/** What may stand in a declaration without ending it or opening anything. */
const PLAIN = /[^#([{";]*/y;
const TYPE = /(?:template\s*<[^{;]*>\s*)*(?:struct|class|union|typedef|enum)\b/y;
/** The place after what matches at `from`, which is `from` where nothing does. */
function past(pattern: RegExp, text: string, from: number): number {
  pattern.lastIndex = from;
  return pattern.test(text) ? pattern.lastIndex : from;
}
/** The end of a directive's line, continued lines included. */
function lineEnd(text: string, from: number): number {
  let end = text.indexOf('\n', from);
  while (end > 0 && text[end - 1] === '\\') end = text.indexOf('\n', end + 1);
  return end < 0 ? text.length : end;
}
/** The end of a declaration; undefined where a directive or the text's own end cuts it in two. */
function declarationEnd(text: string, from: number): number | undefined {
  const isType = past(TYPE, text, from) > from;
  for (let i = from; ; ) {
    i = past(PLAIN, text, i);
    const c = text[i];
    if (c === undefined || c === '#') return undefined;
    if (c === ';') return i + 1;
    if (c === '"') i = text.indexOf('"', i + 1) + 1;
    else i = closing(text, i);
    if (c !== '{') continue;
    const next = past(SPACE, text, i);
    if (text[next] === ';') return next + 1;
    if (!isType) return i;
  }
}

/**
 * A text without comments as items in order, the first of which are known; undefined where a directive cuts a
 * declaration in two.
 */
function splitItems(text: string, macros: ReadonlyMap<string, Macro>, first: readonly Item[] = []): Item[] | undefined {
  const items = [...first];
  let end = items.at(-1)?.end ?? 0;
  for (let from = past(SPACE, text, end); from < text.length; from = past(SPACE, text, end)) {
    if (text[from] === '#') {
      end = lineEnd(text, from);
      const line = text.slice(from, end);
      const define = /^#\s*define\s+(\w+)/.exec(line);
      items.push({
        text: line,
        end,
        names: define ? [define[1]] : undefined,
        refs: /^#\s*(pragma|error)/.test(line) ? [] : identifiers(line),
      });
      continue;
    }
    const wordEnd = past(WORD, text, from);
    const word = text.slice(from, wordEnd);
    if (text[wordEnd] === '(' && macros.has(word)) {
      end = closing(text, wordEnd);
      const use = text.slice(from, end);
      const made = splitItems(
        expand(use, macros, () => true),
        NO_MACROS,
      );
      items.push({
        text: use,
        end,
        names: made?.every((m) => m.names) ? made.flatMap((m) => m.names as string[]) : undefined,
        refs: [word, ...(made ?? []).flatMap((m) => m.refs)],
      });
      continue;
    }
    const whole = declarationEnd(text, from);
    if (whole === undefined) return undefined;
    end = whole;
    const own = text.slice(from, end);
    items.push({ text: own, end, names: declared(own), refs: identifiers(own) });
  }
  return items;
}
const NO_MACROS: ReadonlyMap<string, Macro> = new Map();

/** Comments and blank lines go: compilers need not read them either. */
export const stripped = (text: string): string =>
  text.replace(/\/\/[^\n]*|\/\*[\s\S]*?\*\//g, '').replace(/\n\s*\n+/g, '\n');

/** A text taken apart. */
interface Part {
  readonly code: string;
  readonly items: readonly Item[];
  readonly byName: ReadonlyMap<string, readonly Item[]>;
}
/** A text and what is known of it: it is read once, and taken apart once for every set of macros. */
interface Read {
  readonly number: number;
  readonly code: string;
  readonly macros: ReadonlyMap<string, Macro>;
  readonly parts: Map<string, Part | undefined>;
}
/** How many characters two texts have in common at their beginning. */
function commonLength(a: string, b: string): number {
  let [same, most] = [0, Math.min(a.length, b.length)];
  while (same < most) {
    const middle = (same + most + 1) >> 1;
    if (a.startsWith(b.slice(same, middle), same)) same = middle;
    else most = middle - 1;
  }
  return same;
}
/** Long texts that were taken apart. */
const apart: Part[] = [];
const LONG = 8192;
/**
 * The items with which a text begins like one that was taken apart before: most begin with portable.h, and a macro is
 * defined before it is used. The last is left out, since what follows may belong to it.
 */
function begunAlike(code: string): readonly Item[] {
  let best: readonly Item[] = [];
  for (const { code: other, items } of apart) {
    const same = commonLength(code, other);
    const after = items.findIndex((i) => i.end > same);
    const alike = items.slice(0, Math.max(0, (after < 0 ? items.length : after) - 1));
    if (alike.length > best.length) best = alike;
  }
  return best;
}
function partOf(code: string, macros: ReadonlyMap<string, Macro>): Part | undefined {
  const items = splitItems(code, macros, code.length < LONG ? [] : begunAlike(code));
  if (!items) return undefined;
  const byName = new Map<string, Item[]>();
  for (const item of items)
    for (const name of item.names ?? []) {
      const same = byName.get(name);
      if (same) same.push(item);
      else byName.set(name, [item]);
    }
  const part = { code, items, byName };
  if (code.length >= LONG) apart.push(part);
  return part;
}
const known = new Map<string, Read>();
function read(text: string): Read {
  let r = known.get(text);
  if (!r) {
    const code = stripped(text);
    known.set(text, (r = { number: known.size, code, macros: readMacros(code), parts: new Map() }));
  }
  return r;
}
/** Texts that stand together, so that the macros of each serve all. */
function partsOf(texts: readonly string[]): (Part | undefined)[] {
  const all = texts.map(read);
  const having = all.filter((r) => r.macros.size > 0);
  const key = having.map((r) => r.number).join();
  return all.map(({ code, parts }) => {
    if (!parts.has(key)) parts.set(key, partOf(code, new Map(having.flatMap((r) => [...r.macros]))));
    return parts.get(key);
  });
}

/** Conditionals with nothing in them. */
function dropEmpty(text: string): string {
  const empty = /^#[ \t]*if(?:def|ndef)?\b[^\n]*\n(?:#[ \t]*(?:elif|else)\b[^\n]*\n)*#[ \t]*endif[^\n]*\n/gm;
  for (let before = ''; before !== text; ) {
    before = text;
    text = text.replace(empty, '');
  }
  return text;
}

/**
 * The parts of `texts` (in order) that `kernels` reach by name, all declarations of a name together: overloads and
 * specialisations stay with what they belong to, so that what is left means the same.
 */
export function needed(texts: readonly string[], kernels: string): string {
  const found = partsOf(texts);
  if (found.some((p) => p === undefined)) return stripped(texts.join('\n'));
  const parts = found as Part[];
  const kept = new Set<Item>();
  const seen = new Set<string>();
  const queue = identifiers(kernels);
  const keep = (item: Item): void => {
    if (kept.has(item)) return;
    kept.add(item);
    for (const name of item.refs) if (!seen.has(name)) queue.push(name);
  };
  for (const { items } of parts) for (const item of items) if (item.names === undefined) keep(item);
  for (let name = queue.pop(); name !== undefined; name = queue.pop()) {
    if (seen.has(name)) continue;
    seen.add(name);
    for (const { byName } of parts) byName.get(name)?.forEach(keep);
  }
  return dropEmpty(
    parts
      .flatMap(({ items }) => items.filter((i) => kept.has(i)))
      .map((i) => `${i.text}\n`)
      .join(''),
  );
}

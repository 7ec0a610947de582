// Leaves out of a kernel's source what it does not use: compilers spend most of a small kernel's time on reading
// headers.
import { closing, expand, type Macro, readMacros } from './macros.js';

/** A directive, a macro's definition or use, or a declaration at file scope. */
interface Item {
  readonly text: string;
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
  const type = /^(?:struct|class|union)\s+(?:alignas\(\d+\)\s*)?(\w+)/.exec(t) ?? /^using\s+(\w+)\s*=/.exec(t);
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

/** A text without comments as items in order; undefined where a directive cuts a declaration in two. */
function splitItems(text: string, macros: ReadonlyMap<string, Macro>): Item[] | undefined {
  const items: Item[] = [];
  const skipSpace = (i: number): number => i + (/^\s*/.exec(text.slice(i, i + 4096))?.[0].length ?? 0);
  for (let i = skipSpace(0); i < text.length; i = skipSpace(i)) {
    const from = i;
    if (text[i] === '#') {
      while (i < text.length && !(text[i] === '\n' && text[i - 1] !== '\\')) i++;
      const line = text.slice(from, i);
      const define = /^#\s*define\s+(\w+)/.exec(line);
      items.push({
        text: line,
        names: define ? [define[1]] : undefined,
        refs: /^#\s*(pragma|error)/.test(line) ? [] : identifiers(line),
      });
      continue;
    }
    const word = /^\w+/.exec(text.slice(i, i + 100))?.[0] ?? '';
    if (macros.has(word) && text[i + word.length] === '(') {
      i = closing(text, i + word.length);
      const use = text.slice(from, i);
      const made = splitItems(
        expand(use, macros, () => true),
        new Map(),
      );
      items.push({
        text: use,
        names: made?.every((m) => m.names) ? made.flatMap((m) => m.names as string[]) : undefined,
        refs: [word, ...(made ?? []).flatMap((m) => m.refs)],
      });
      continue;
    }
    const isType = /^(template\s*<[^{;]*>\s*)*(struct|class|union|typedef|enum)\b/.test(text.slice(i, i + 2000));
    for (let done = false; !done; ) {
      const c = text[i];
      if (i >= text.length || c === '#') return undefined;
      if (c === '(' || c === '[') i = closing(text, i);
      else if (c === '"') i = text.indexOf('"', i + 1) + 1;
      else if (c === '{') {
        i = closing(text, i);
        const next = skipSpace(i);
        if (text[next] === ';') i = next + 1;
        done = text[i - 1] === ';' || !isType;
      } else {
        i++;
        done = c === ';';
      }
    }
    const whole = text.slice(from, i);
    items.push({ text: whole, names: declared(whole), refs: identifiers(whole) });
  }
  return items;
}

/** Comments and blank lines go: compilers need not read them either. */
export const stripped = (text: string): string =>
  text.replace(/\/\/[^\n]*|\/\*[\s\S]*?\*\//g, '').replace(/\n\s*\n+/g, '\n');

const known = new Map<string, Item[] | undefined>();
/** The items of a text whose macros may be those of `all`; texts that many units share are taken apart once. */
function itemsOf(text: string, all: string): Item[] | undefined {
  const key = `${all.length} ${text}`;
  if (!known.has(key)) known.set(key, splitItems(stripped(text), readMacros(stripped(all))));
  return known.get(key);
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
  const all = texts.join('\n');
  const parts = texts.map((text) => itemsOf(text, all));
  if (parts.some((p) => p === undefined)) return stripped(all);
  const items = (parts as Item[][]).flat();
  const byName = new Map<string, Item[]>();
  for (const item of items) for (const name of item.names ?? []) byName.set(name, [...(byName.get(name) ?? []), item]);
  const kept = new Set<Item>();
  const seen = new Set<string>();
  const queue = identifiers(kernels);
  const keep = (item: Item): void => {
    if (kept.has(item)) return;
    kept.add(item);
    queue.push(...item.refs);
  };
  items.filter((i) => i.names === undefined).forEach(keep);
  for (let name = queue.pop(); name !== undefined; name = queue.pop()) {
    if (seen.has(name)) continue;
    seen.add(name);
    byName.get(name)?.forEach(keep);
  }
  return dropEmpty(
    items
      .filter((i) => kept.has(i))
      .map((i) => `${i.text}\n`)
      .join(''),
  );
}

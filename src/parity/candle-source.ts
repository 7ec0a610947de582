// Reads a Candle checkout's .cu files as text: its kernel symbols, their parameters and where they stand. Nothing of it
// is compiled.
import { existsSync, readdirSync, readFileSync } from 'node:fs';
import { basename, dirname, join } from 'node:path';
import { ArgumentError } from '../base/errors.js';
import { closing, expand, type Macro, readMacros, splitArgs, stripComments } from '../kernels/macros.js';
import type { CandleSymbol } from './manifest.js';

const HEAD =
  /extern\s+"C"\s+__global__\s+(?:void\s+)?(?:__launch_bounds__\s*\([^()]*(?:\([^()]*\)[^()]*)*\)\s*)?(?:void\s+)?(\w+)\s*\(/g;

/** A file and the headers of its own folder, headers first. */
function withHeaders(path: string, seen: Set<string>): string {
  if (seen.has(path) || !existsSync(path)) return '';
  seen.add(path);
  const text = readFileSync(path, 'utf8');
  const headers = [...text.matchAll(/^[ \t]*#[ \t]*include[ \t]*"([^"]+)"/gm)].map((m) =>
    withHeaders(join(dirname(path), m[1]), seen),
  );
  return `${headers.join('\n')}\n${text}`;
}

/** Macros that make kernels: the extern "C" stands in them or in a macro they use. */
function makers(macros: ReadonlyMap<string, Macro>): Set<string> {
  const found = new Set<string>();
  for (let grown = true; grown; ) {
    grown = false;
    for (const m of macros.values()) {
      if (
        found.has(m.name) ||
        !(m.body.includes('__global__') || [...m.body.matchAll(/\b(\w+)\s*\(/g)].some((c) => found.has(c[1])))
      )
        continue;
      found.add(m.name);
      grown = true;
    }
  }
  return found;
}

/** 'const float * x' as the manifest spells it: 'const float* x'. */
const tidy = (param: string): string =>
  param
    .replace(/\s+/g, ' ')
    .replace(/\s*\*\s*/g, '* ')
    .replace(/\* (?=\*)/g, '*')
    .replace(/\b__restrict__ ?/g, '')
    .trim();

/** Object-like macros inside parameter lists: #define dfloat float. */
function constants(text: string): Map<string, string> {
  return new Map(
    [...text.matchAll(/^[ \t]*#[ \t]*define[ \t]+([a-z]\w*)[ \t]+([A-Za-z_][\w ]*?)[ \t]*$/gm)].map((m) => [
      m[1],
      m[2],
    ]),
  );
}

function readCandleFile(path: string, file: string): CandleSymbol[] {
  const all = stripComments(withHeaders(path, new Set()));
  const macros = readMacros(all);
  const aliases = constants(all);
  const making = makers(macros);
  // Directives go, lines stay: what is left is what stands in the file itself. A guarded kernel counts, whatever its
  // guard.
  const code = stripComments(readFileSync(path, 'utf8')).replace(/^[ \t]*#(?:[^\n]*\\\n)*[^\n]*/gm, (m) =>
    m.replace(/[^\n]/g, ''),
  );
  const symbols = new Map<string, CandleSymbol>();
  const collect = (text: string, lineOf: (at: number) => number): void => {
    for (const m of text.matchAll(HEAD)) {
      const open = m.index + m[0].length - 1;
      const list = text.slice(open + 1, closing(text, open) - 1);
      if (symbols.has(m[1])) continue; // a fallback for older devices repeats the name
      const params = splitArgs(list, true)
        .filter(Boolean)
        .map((p) => tidy(p.replace(/\b\w+\b/g, (w) => aliases.get(w) ?? w)));
      symbols.set(m[1], { symbol: m[1], file, line: lineOf(m.index), kind: 'global', params });
    }
  };
  const line = (at: number): number => code.slice(0, at).split('\n').length;
  collect(code, line);
  for (const m of code.matchAll(/\b([A-Za-z_]\w*)\s*\(/g)) {
    if (!making.has(m[1])) continue;
    const open = m.index + m[0].length - 1;
    const made = expand(code.slice(m.index, closing(code, open)), macros, (n) => making.has(n));
    collect(made, () => line(m.index));
  }
  return [...symbols.values()];
}

/** All kernels of a checkout, by file: the crate's root, candle-kernels or its src. */
export function readCandle(dir: string): { symbols: CandleSymbol[]; commit?: string } {
  const src = [join(dir, 'candle-kernels', 'src'), join(dir, 'src'), dir].find((d) => existsSync(join(d, 'unary.cu')));
  if (!src)
    throw new ArgumentError(
      `parity signatures: ${dir} holds no Candle checkout: no candle-kernels/src/unary.cu under it`,
    );
  const files = readdirSync(src, { recursive: true, encoding: 'utf8' })
    .map((f) => f.replaceAll('\\', '/'))
    .filter((f) => f.endsWith('.cu'))
    .sort();
  const commit = headCommit(dir);
  return { symbols: files.flatMap((f) => readCandleFile(join(src, f), f)), ...(commit && { commit }) };
}

/** The checkout's commit, where its .git says so. */
function headCommit(dir: string): string | undefined {
  const git = [dir, dirname(dir), dirname(dirname(dir))]
    .map((d) => join(d, '.git'))
    .find((d) => existsSync(join(d, 'HEAD')));
  if (!git) return undefined;
  const head = readFileSync(join(git, 'HEAD'), 'utf8').trim();
  const ref = /^ref: (.+)$/.exec(head)?.[1];
  if (!ref) return head;
  if (existsSync(join(git, ref))) return readFileSync(join(git, ref), 'utf8').trim();
  const packed = existsSync(join(git, 'packed-refs')) ? readFileSync(join(git, 'packed-refs'), 'utf8') : '';
  return new RegExp(`^(\\w{40}) ${ref}$`, 'm').exec(packed)?.[1] ?? basename(ref);
}

// Our kernel symbols beside Candle's: the pinned manifest, and a checkout where the user has one.
import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { kernelsDir } from '../base/paths.js';
import { type CandleSymbol, compareWithCandle, type Comparison, ourSymbols, readManifest } from './manifest.js';
import { readCandle } from './candle-source.js';

export interface Signatures {
  /** What the comparison is with: the manifest's source, or the checkout. */
  readonly source: string;
  readonly files: readonly Comparison[];
  /** 'unary.cu:41 uexp_f32 is missing', 'binary.cu:5 badd_f32: parameter 4 is ...'. */
  readonly problems: readonly string[];
  /** Kernels of our own. */
  readonly extra: readonly string[];
  /** How the checkout differs from the manifest; undefined without one. */
  readonly moved?: {
    readonly commit: string | undefined;
    readonly added: readonly string[];
    readonly removed: readonly string[];
    readonly changed: readonly string[];
  };
}

/** Candle's files with kernels that have names; those in folders hold templates behind host functions. */
const isModule = (file: string): boolean => !file.includes('/');
export const manifestSource = (): string =>
  (JSON.parse(readFileSync(join(kernelsDir, 'candle-manifest.json'), 'utf8')) as { source: string }).source;
const place = (s: CandleSymbol): string => `${s.file}${s.line ? `:${s.line}` : ''}`;

export function compareSignatures(candleDir?: string): Signatures {
  const pinned = readManifest().filter((s) => s.kind === 'global');
  const checkout = candleDir === undefined ? undefined : readCandle(candleDir);
  const theirs = checkout?.symbols ?? pinned;
  const files = compareWithCandle(theirs).filter((f) => isModule(f.file));
  const bySymbol = new Map(theirs.map((s) => [s.symbol, s]));
  const at = (symbol: string): string => {
    const s = bySymbol.get(symbol);
    return s ? place(s) : '';
  };
  return {
    source: checkout ? `${candleDir}${checkout.commit ? ` at ${checkout.commit.slice(0, 12)}` : ''}` : manifestSource(),
    files,
    problems: files.flatMap((f) => [
      ...f.missing.map((s) => `${at(s)} ${s}: missing here`),
      ...f.different.map((d) => `${at(d.slice(0, d.indexOf(':')))} ${d}`),
    ]),
    extra: [...ourSymbols().keys()].filter((s) => !bySymbol.has(s)).sort(),
    ...(checkout && { moved: movement(pinned, checkout.symbols, checkout.commit) }),
  };
}

function movement(
  pinned: readonly CandleSymbol[],
  now: readonly CandleSymbol[],
  commit: string | undefined,
): NonNullable<Signatures['moved']> {
  const before = new Map(pinned.map((s) => [s.symbol, s]));
  const after = new Map(now.map((s) => [s.symbol, s]));
  const same = (a: CandleSymbol, b: CandleSymbol): boolean =>
    a.file === b.file && a.params.join(';') === b.params.join(';');
  return {
    commit,
    added: now.filter((s) => !before.has(s.symbol)).map((s) => `${place(s)} ${s.symbol}`),
    removed: pinned.filter((s) => !after.has(s.symbol)).map((s) => `${place(s)} ${s.symbol}`),
    changed: now
      .filter((s) => {
        const b = before.get(s.symbol);
        return b && !same(b, s);
      })
      .map((s) => `${place(s)} ${s.symbol}(${s.params.join(', ')}), was (${before.get(s.symbol)?.params.join(', ')})`),
  };
}

/** Pins the manifest to a checkout: symbols, parameters, files and lines; host functions stay as they were. */
export function pinManifest(candleDir: string, source?: string): number {
  const { symbols, commit } = readCandle(candleDir);
  const hosts = readManifest().filter((s) => s.kind !== 'global');
  const header = source ?? (commit ? `huggingface/candle ${commit}, candle-kernels/src` : manifestSource());
  const lines = [...symbols, ...hosts].map(
    ({ symbol, file, line, kind, params }) =>
      `    ${JSON.stringify({ symbol, file, ...(line && { line }), kind, params })
        .replaceAll('":', '": ')
        .replaceAll(',"', ', "')}`,
  );
  writeFileSync(
    join(kernelsDir, 'candle-manifest.json'),
    `{\n  "source": ${JSON.stringify(header)},\n  "symbols": [\n${lines.join(',\n')}\n  ]\n}\n`,
  );
  return symbols.length;
}

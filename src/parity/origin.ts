// Where a row comes from: the Candle kernels that correspond to it, with file and lines, and our own source.
import { rowFunction } from '../kernels/expressions.js';
import { type CandleSymbol, ourSymbols, readManifest } from './manifest.js';
import type { CompositeRow, ElementwiseRow, Row } from '../ops/op.js';

export interface Origin {
  /** 'unary.cu' */
  readonly file: string;
  /** Lines of the first and the last kernel of the op. */
  readonly lines: readonly [number, number];
  readonly symbols: readonly string[];
}

const SUFFIX = /^(_asc|_desc)?(_(u8|u32|i16|i32|i64|f16|bf16|f32|f64|f8_e4m3|fp8_e4m3|f8e4m3))+$/;
let manifest: readonly CandleSymbol[] | undefined;

/** Candle's kernels of a row, or the sentence why there are none. */
export function originOf(row: Row): Origin | string {
  if ('none' in row.candle) return row.candle.none;
  const { file, symbol } = row.candle;
  manifest ??= readManifest();
  const own = manifest.filter(
    (s) =>
      s.kind === 'global' &&
      s.file === file &&
      s.symbol.startsWith(symbol) &&
      SUFFIX.test(s.symbol.slice(symbol.length)),
  );
  const lines = own.map((s) => s.line ?? 0);
  return { file, lines: [Math.min(...lines), Math.max(...lines)], symbols: own.map((s) => s.symbol) };
}

export const originText = (row: Row): string => {
  const o = originOf(row);
  if (typeof o === 'string') return o;
  return (
    `candle-kernels/src/${o.file}:${o.lines[0]}${o.lines[1] > o.lines[0] ? `-${o.lines[1]}` : ''} ` +
    `(${o.symbols.length} kernels, ${o.symbols[0]} ...)`
  );
};

/**
 * Our source for a row: its expression, the ops it is made of, or the kernel that bears Candle's name in f32 (or its
 * first dtype).
 */
export function sourceOf(row: Row): { readonly file: string; readonly text: string } | undefined {
  if (row.family === 'elementwise')
    return { file: 'the op table, compiled into every engine', text: rowFunction(row as ElementwiseRow<any>) };
  if (row.family === 'composite')
    return { file: 'src/ops, made of other ops', text: String((row as CompositeRow).compose) };
  const o = originOf(row);
  if (typeof o === 'string') return undefined;
  const ours = ourSymbols();
  const symbol = o.symbols.find((s) => s.endsWith('_f32') && ours.has(s)) ?? o.symbols.find((s) => ours.has(s));
  const found = symbol ? ours.get(symbol) : undefined;
  return found && { file: `kernels/${found.module}.hip`, text: found.entry.text.trim() };
}

// Candle's kernel symbols beside ours: which are there, which differ in their parameters, which are missing.
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { kernelModule, moduleNames } from '../backends/gpu/modules.js';
import { kernelsDir } from '../base/paths.js';
import type { Entry } from '../kernels/declare.js';

export interface CandleSymbol {
  readonly symbol: string;
  /** 'unary.cu' */
  readonly file: string;
  /** Where the kernel, or the macro use that makes it, stands. */
  readonly line?: number;
  readonly kind: 'global' | 'host_launcher';
  /** 'const float* inp' */
  readonly params: readonly string[];
}
export interface Comparison {
  readonly file: string;
  readonly total: number;
  readonly present: number;
  readonly missing: readonly string[];
  /** 'badd_f32: parameter 4 is float*, Candle has half*' */
  readonly different: readonly string[];
}

/** Both sides' spellings of one type. */
const SPELLINGS: Readonly<Record<string, string>> = {
  size_t: 'u64',
  uint8_t: 'u8',
  uint32_t: 'u32',
  'unsigned int': 'u32',
  unsigned: 'u32',
  int16_t: 'i16',
  int32_t: 'i32',
  int: 'i32',
  int64_t: 'i64',
  __half: 'half',
  __nv_bfloat16: 'bfloat',
  __nv_fp8_e4m3: 'fp8',
};

export const readManifest = (): CandleSymbol[] =>
  (JSON.parse(readFileSync(join(kernelsDir, 'candle-manifest.json'), 'utf8')) as { symbols: CandleSymbol[] }).symbols;

/** 'const __half* inp' and 'half*' alike become 'half*'. */
function plainType(text: string): string {
  const clean = text
    .replace(/\b(const|__restrict__|volatile)\b/g, ' ')
    .replace(/\s+/g, ' ')
    .trim();
  const pointer = clean.includes('*');
  const base = pointer ? clean.slice(0, clean.indexOf('*')).trim() : clean;
  return (SPELLINGS[base] ?? base) + (pointer ? '*' : '');
}
/** Reductions name their result by their operator: an index for ArgMin and ArgMax, else the element type. */
const resultType = (type: string): string =>
  type.replace(/^Arg\w+<\w+>::Out\*$/, 'u32*').replace(/^\w+<(\w+)>::Out\*$/, '$1*');
/**
 * Quantized kernels of Candle take untyped pointers where ours name the block: any two pointers of equal place agree
 * there.
 */
const agree = (ours: string, theirs: string): boolean =>
  ours === theirs ||
  (ours.endsWith('*') && theirs.endsWith('*') && (theirs === 'void*' || theirs === 'dfloat*' || ours === 'void*'));

const typeOf = (param: string): string =>
  plainType(param.includes('*') ? param.slice(0, param.lastIndexOf('*') + 1) : param.replace(/\s*\w+$/, ''));

function differences(entry: Entry, c: CandleSymbol): string | undefined {
  if (entry.params.length !== c.params.length)
    return `${c.symbol}: ${entry.params.length} parameters, Candle has ${c.params.length}`;
  for (const [i, p] of entry.params.entries()) {
    const [ours, theirs] = [plainType(resultType(p.type)), typeOf(c.params[i])];
    if (!agree(ours, theirs)) return `${c.symbol}: parameter ${i} is ${ours}, Candle has ${theirs}`;
  }
  return undefined;
}

/** All our symbols by name, whatever module they are in. */
export function ourSymbols(): Map<string, { module: string; entry: Entry }> {
  const out = new Map<string, { module: string; entry: Entry }>();
  for (const module of moduleNames())
    for (const [symbol, entry] of kernelModule(module).entries) out.set(symbol, { module, entry });
  return out;
}

/** Per file of Candle's; host launchers are functions of its host library, not kernels, and are left out. */
export function compareWithCandle(symbols: readonly CandleSymbol[] = readManifest()): Comparison[] {
  const ours = ourSymbols();
  const files = new Map<string, CandleSymbol[]>();
  for (const s of symbols) if (s.kind === 'global') files.set(s.file, [...(files.get(s.file) ?? []), s]);
  return [...files].map(([file, list]) => {
    const missing = list.filter((s) => !ours.has(s.symbol)).map((s) => s.symbol);
    const different = list.flatMap((s) => {
      const found = ours.get(s.symbol);
      return (found && differences(found.entry, s)) ?? [];
    });
    return { file, total: list.length, present: list.length - missing.length, missing, different };
  });
}

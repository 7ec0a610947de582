// What a parity run leaves behind: cells of op x dtype x device, where they come from, and what stays unproved.
import { createHash } from 'node:crypto';
import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { packageRoot } from '../kernels/source.js';
import { elementwiseRows, opList } from '../ops/table.js';
import type { CaseResult } from './candle.js';
import { type Counts, noCounts, type Verdict, VERDICTS, worse } from './verdict.js';

export const AGAINST = ['reference', 'candle', 'torch', 'models'] as const;
export type Against = (typeof AGAINST)[number];

/** Largest error by layout: of the matrix only. */
export type ByLayout = Record<string, { cases: number; ulp: number | null }>;
export interface Cell {
  readonly device: string;
  readonly against: Against;
  readonly op: string;
  readonly dtype: string;
  verdict: Verdict;
  cases: number;
  counts: Counts;
  /** Largest error: ulp, or a share of the largest magnitude for PyTorch and models; null where something is altogether different. */
  error: number | null;
  /** The other side's own distance from the double-precision result, where that was measured. */
  theirs?: number | null;
  bound: number;
  layouts?: ByLayout;
  /** Reasons and failures, the first few, each once. */
  why?: string[];
}
export interface DeviceEntry {
  readonly name: string;
  readonly description: string;
}
export interface Report {
  readonly version: 1;
  readonly wick: string;
  readonly commit: string;
  readonly date: string;
  readonly node: string;
  readonly host: string;
  /** Hashes of what the numbers speak of; evidence older than these is stale. */
  readonly sources: Sources;
  readonly devices: DeviceEntry[];
  /** Devices asked for that are not there, with the sentence why. */
  readonly missing: { readonly name: string; readonly why: string }[];
  readonly golden: Partial<Record<Against, string>>;
  readonly unproved: readonly string[];
  complete: boolean;
  seconds: number;
  cells: Cell[];
}

export interface Sources {
  readonly kernels: string;
  readonly native: string;
  readonly table: string;
}
const sha = (parts: Iterable<string | Uint8Array>): string => {
  const h = createHash('sha256');
  for (const p of parts) h.update(p).update('\0');
  return h.digest('hex').slice(0, 16);
};
const folder = (name: string, ends: RegExp): string => {
  const dir = join(packageRoot, name);
  return sha(readdirSync(dir).filter((f) => ends.test(f)).sort().flatMap((f) => [f, readFileSync(join(dir, f))]));
};
/** The table's part is what devices compute by: names, dtypes, bounds and expressions. */
export const sourcesNow = (): Sources => ({
  kernels: folder('kernels', /\.(hip|h)$/),
  native: folder('native', /\.(cpp|h)$/),
  table: sha([...opList.map((r) => JSON.stringify([r.name, r.dtypes, r.ulp])), ...elementwiseRows.map((r) => r.gpu)]),
});

/** What no run here can show: said in the report itself. */
export function unprovedOn(devices: readonly DeviceEntry[]): string[] {
  if (devices.some((d) => d.name.startsWith('rocm:'))) return [];
  return [
    'No AMD GPU took part in this run. The kernels are the very source that HIP compiles, and sim:32 and sim:64 run it with both wave sizes; what they cannot show is listed here.',
    'AMD hardware: the code the HIP compiler makes (instruction selection, denormal modes, the accuracy of its own math library), and the timing of memory ordering between blocks.',
    'AMD libraries: results of rocBLAS, hipBLASLt and MIOpen where they are used instead of our kernels.',
    'AMD driver: allocation, streams, events and graph capture of the HIP runtime beyond its interface, which is checked against its headers.',
  ];
}

export const keyOf = (c: Pick<Cell, 'device' | 'against' | 'op' | 'dtype'>): string => `${c.device}|${c.against}|${c.op}|${c.dtype}`;
const finite = (v: number | undefined): number | null => (v === undefined || Number.isFinite(v) ? (v ?? 0) : null);
const larger = (a: number | null, b: number | null): number | null => (a === null || b === null ? null : Math.max(a, b));

/** Adds a case's result to its cell. */
export function addTo(cells: Map<string, Cell>, device: string, against: Against, r: CaseResult, layout?: string): Cell {
  const op = r.row ?? r.op;
  const key = keyOf({ device, against, op, dtype: r.dtype });
  let cell = cells.get(key);
  if (!cell) cells.set(key, (cell = { device, against, op, dtype: r.dtype, verdict: 'exact', cases: 0, counts: noCounts(), error: 0, bound: r.bound }));
  cell.cases++;
  cell.counts[r.verdict]++;
  cell.verdict = worse(cell.verdict, r.verdict);
  cell.bound = Math.max(cell.bound, r.bound);
  const error = finite(r.ulp);
  if (r.verdict !== 'unsupported') cell.error = larger(cell.error, error);
  if (r.theirUlp !== undefined) cell.theirs = larger(cell.theirs ?? 0, finite(r.theirUlp));
  if (layout && r.verdict !== 'unsupported') {
    const at = ((cell.layouts ??= {})[layout] ??= { cases: 0, ulp: 0 });
    at.cases++;
    at.ulp = larger(at.ulp, error);
  }
  const says = r.why && (r.verdict === 'failed' ? `${r.name}: ${r.why}` : r.why);
  if (says && (cell.why ??= []).length < 5 && !cell.why.includes(says)) cell.why.push(says);
  return cell;
}

export const totals = (cells: readonly Cell[]): Counts => {
  const sum = noCounts();
  for (const c of cells) for (const v of VERDICTS) sum[v] += c.counts[v];
  return sum;
};
export const failed = (r: Report): boolean => r.cells.some((c) => c.verdict === 'failed');

// What a parity run leaves behind: cells of op x dtype x device, where they come from, and what stays unproved.
import { DTYPES } from '../base/dtype.js';
import { opList } from '../ops/table.js';
import type { CaseResult } from './candle.js';
import type { Sources } from './provenance.js';
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
  /**
   * Largest error: ulp, or a share of the largest magnitude for PyTorch and models; null where something is altogether
   * different.
   */
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
  /** Where several reports were joined: when and where this device was measured. */
  readonly measured?: { readonly date: string; readonly commit: string; readonly host: string; readonly node: string };
  /** Ops measured before what computes them changed, with what changed. */
  readonly stale?: Readonly<Record<string, string>>;
}
export interface Report {
  readonly version: 1;
  readonly wick: string;
  readonly commit: string;
  readonly date: string;
  readonly node: string;
  readonly host: string;
  readonly sources: Sources;
  /** Kernel modules that were launched for an op, on GPUs of any kind. */
  uses: Record<string, string[]>;
  readonly devices: DeviceEntry[];
  /** Devices asked for that are not there, with the sentence why. */
  readonly missing: { readonly name: string; readonly why: string }[];
  readonly golden: Partial<Record<Against, string>>;
  readonly unproved: readonly string[];
  complete: boolean;
  seconds: number;
  cells: Cell[];
}

const KINDS = {
  cpu: 'CPU',
  reference: 'the oracle, in double precision',
  sim: 'simulated',
  emu: 'emulated',
  cuda: 'NVIDIA GPU',
  rocm: 'AMD GPU',
} as const;
/**
 * What kind of thing a device is: simulated and emulated ones are not hardware, and are said so wherever they are
 * named.
 */
export const kindOf = (device: string): string => KINDS[/^[a-z]*/.exec(device)?.[0] as keyof typeof KINDS] ?? 'device';

/** What no run here can show: said in the report itself. */
export function unprovedOn(devices: readonly DeviceEntry[]): string[] {
  const has = (kind: string): boolean => devices.some((d) => d.name.startsWith(kind));
  if (has('rocm:')) return [];
  return [
    'No AMD GPU took part in this run. The kernels are the very source that HIP compiles; sim:32 and sim:64 run it ' +
      'with both wave sizes, and the emulated targets (emu:gfx1030 and others) run the machine code that the HIP ' +
      'compiler made of it. What these cannot show is listed here.',
    has('emu:')
      ? 'AMD hardware: that the chip executes its instructions as its manuals say (denormal modes, the accuracy of ' +
        'its transcendental instructions), and the timing of memory ordering between blocks.'
      : 'AMD hardware: the code the HIP compiler makes (instruction selection, denormal modes, the accuracy of its ' +
        'own math library), and the timing of memory ordering between blocks.',
    'AMD libraries: results of rocBLAS, hipBLASLt and MIOpen where they are used instead of our kernels.',
    'AMD driver: allocation, streams, events and graph capture of the HIP runtime beyond its interface, which is ' +
      'checked against its headers.',
  ];
}

const MOST_REASONS = 5;
const keyOf = (c: Pick<Cell, 'device' | 'against' | 'op' | 'dtype'>): string =>
  `${c.device}|${c.against}|${c.op}|${c.dtype}`;
const finite = (v: number | undefined): number | null => (v === undefined || Number.isFinite(v) ? (v ?? 0) : null);
const larger = (a: number | null, b: number | null): number | null =>
  a === null || b === null ? null : Math.max(a, b);

/** Adds a case's result to its cell. */
export function addTo(
  cells: Map<string, Cell>,
  device: string,
  against: Against,
  r: CaseResult,
  layout?: string,
): Cell {
  const op = r.row ?? r.op;
  const key = keyOf({ device, against, op, dtype: r.dtype });
  let cell = cells.get(key);
  if (!cell)
    cells.set(
      key,
      (cell = {
        device,
        against,
        op,
        dtype: r.dtype,
        verdict: 'exact',
        cases: 0,
        counts: noCounts(),
        error: 0,
        bound: r.bound,
      }),
    );
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
  if (says && (cell.why ??= []).length < MOST_REASONS && !cell.why.includes(says)) cell.why.push(says);
  return cell;
}

/** Joins what another process measured of a cell. */
export function mergeInto(cells: Map<string, Cell>, other: Cell): void {
  const key = keyOf(other);
  const cell = cells.get(key);
  if (!cell) {
    cells.set(key, other);
    return;
  }
  cell.cases += other.cases;
  for (const v of VERDICTS) cell.counts[v] += other.counts[v];
  cell.verdict = worse(cell.verdict, other.verdict);
  cell.bound = Math.max(cell.bound, other.bound);
  cell.error = larger(cell.error, other.error);
  if (other.theirs !== undefined) cell.theirs = larger(cell.theirs ?? 0, other.theirs);
  for (const [name, l] of Object.entries(other.layouts ?? {})) {
    const at = ((cell.layouts ??= {})[name] ??= { cases: 0, ulp: 0 });
    at.cases += l.cases;
    at.ulp = larger(at.ulp, l.ulp);
  }
  if (other.why) cell.why = [...new Set([...(cell.why ?? []), ...other.why])].slice(0, MOST_REASONS);
}

/** Cells in the order of devices, sides, the op table and dtypes, whatever order they were measured in. */
export function inOrder(cells: Iterable<Cell>, devices: readonly DeviceEntry[]): Cell[] {
  const rank = new Map<string, number>(opList.map((r, i) => [r.name, i]));
  const place = (c: Cell): (number | string)[] => [
    devices.findIndex((d) => d.name === c.device),
    AGAINST.indexOf(c.against),
    rank.get(c.op) ?? rank.size,
    c.op,
    DTYPES.indexOf(c.dtype as (typeof DTYPES)[number]),
  ];
  return Array.from(cells, (c) => [place(c), c] as const)
    .sort(([a], [b]) => {
      const i = a.findIndex((v, k) => v !== b[k]);
      return i < 0 ? 0 : a[i] < b[i] ? -1 : 1;
    })
    .map(([, c]) => c);
}

export const totals = (cells: readonly Cell[]): Counts => {
  const sum = noCounts();
  for (const c of cells) for (const v of VERDICTS) sum[v] += c.counts[v];
  return sum;
};
export const failed = (r: Report): boolean => r.cells.some((c) => c.verdict === 'failed');

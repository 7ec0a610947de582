// The report as one self-contained page: data, style and script in a single file, nothing from the network.
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { FormatError } from '../base/errors.js';
import { packageRoot } from '../base/paths.js';
import { boundFor, type Row } from '../ops/op.js';
import { DTYPES } from '../base/dtype.js';
import { opList } from '../ops/table.js';
import { slim } from './json.js';
import { originOf, sourceOf } from './origin.js';
import type { Mutation } from './evidence.js';
import { kindOf, type Report } from './report.js';
import { manifestSource } from './signatures.js';

/** What a benchmark's file says of bandwidths, as the page shows it. */
export interface Bench {
  readonly device: string;
  readonly date: string;
  readonly results: readonly { readonly name: string; readonly gbPerSecond: number; readonly ofCopy?: number }[];
}
/** Reads what `npm run bench` wrote, on a GPU or the CPU. */
export function readBench(text: string, name: string): Bench {
  const b = JSON.parse(text) as {
    device?: string;
    hardware?: string;
    engine?: string;
    date?: string;
    results?: { name: string; gbPerSecond?: number; ofCopy?: number; share?: number }[];
  };
  if (!Array.isArray(b.results)) throw new FormatError(`${name}: no list "results" of a benchmark`);
  const results = b.results.flatMap((r) =>
    r.gbPerSecond ? [{ name: r.name, gbPerSecond: r.gbPerSecond, ofCopy: r.ofCopy ?? r.share }] : [],
  );
  return { device: b.device ?? [b.hardware, b.engine].filter(Boolean).join(', '), date: b.date ?? '', results };
}

/** What the page says of an op beside the numbers. */
function opEntry(row: Row): object {
  const origin = originOf(row);
  const source = sourceOf(row);
  return {
    name: row.name,
    family: row.family,
    formula: row.formula,
    dtypes: row.dtypes,
    bounds: Object.fromEntries(row.dtypes.map((d) => [d, boundFor(row.ulp, d)])),
    gradient: row.noGrad ? `none: ${row.noGrad}` : 'yes',
    ...(row.differs && { differs: row.differs }),
    ...(row.without && { without: row.without }),
    candle:
      typeof origin === 'string'
        ? { none: origin }
        : { file: origin.file, lines: origin.lines, symbols: origin.symbols },
    ...(source && { source }),
  };
}

/** The page's parts; the whole is one file that needs nothing beside it. */
const pageFile = (name: string): string => readFileSync(join(packageRoot, 'src', 'parity', 'pages', name), 'utf8');

/** JSON that cannot end its own script element. */
const embed = (value: unknown): string => JSON.stringify(value).replaceAll('<', '\\u003c');
const escape = (s: string): string => s.replace(/[&<>"]/g, (c) => `&#${c.charCodeAt(0)};`);

export function reportPage(
  report: Report,
  beside: { readonly benches?: readonly Bench[]; readonly mutation?: Mutation | undefined } = {},
): string {
  const used = new Set(report.cells.map((c) => c.op));
  const known = opList.filter((r) => used.has(r.name)).map(opEntry);
  const others = [...used]
    .filter((op) => !opList.some((r) => r.name === op))
    .map((name) => ({
      name,
      family: 'golden',
      formula: 'cases of the golden set',
      dtypes: [],
      bounds: {},
      gradient: '',
      candle: { none: '' },
    }));
  const foreign = [...new Set(report.cells.map((c) => c.dtype))].filter(
    (d) => !(DTYPES as readonly string[]).includes(d),
  );
  const kinds = Object.fromEntries(report.devices.map((d) => [d.name, kindOf(d.name)]));
  const data = {
    report: { ...report, uses: undefined, sources: undefined, cells: report.cells.map(slim) },
    kinds,
    ops: [...known, ...others],
    dtypes: [...[...DTYPES].reverse(), ...foreign],
    candle: manifestSource(),
    benches: beside.benches ?? [],
    ...(beside.mutation && { mutation: beside.mutation }),
  };
  const parts: Readonly<Record<string, string>> = {
    date: escape(report.date.slice(0, 10)),
    style: pageFile('report.css'),
    data: embed(data),
    script: pageFile('report.js'),
  };
  return pageFile('report.html').replace(/%(\w+)%/g, (_, part: string) => parts[part]);
}

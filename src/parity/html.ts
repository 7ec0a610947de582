// The report as one self-contained page: data, style and script in a single file, nothing from the network.
import { FormatError } from '../base/errors.js';
import { boundFor, type Row } from '../ops/op.js';
import { DTYPES } from '../base/dtype.js';
import { opList } from '../ops/table.js';
import { slim } from './json.js';
import { originOf, sourceOf } from './origin.js';
import { pageScript } from './page-script.js';
import { pageStyle } from './page-style.js';
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
  return `<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>wick parity, ${escape(report.date.slice(0, 10))}</title>
<style>${pageStyle}</style>
</head>
<body>
<a class="skip" href="#matrix">Skip to the matrix</a>
<header>
  <h1>wick parity</h1>
  <p id="about"></p>
</header>
<main>
  <section aria-labelledby="summary-title"><h2 id="summary-title">Summary</h2><div id="summary"></div></section>
  <section aria-labelledby="matrix-title">
    <h2 id="matrix-title">Ops by dtype</h2>
    <form id="filters" role="search" aria-label="Filter the matrix"></form>
    <p id="shown" role="status" aria-live="polite"></p>
    <div class="scroll" id="matrix" tabindex="-1"></div>
  </section>
  <section aria-labelledby="plot-title"><h2 id="plot-title">Error against the bound</h2><p id="plot-text"></p><div class="scroll" id="plot"></div></section>
  <section aria-labelledby="bench-title" id="bench" hidden><h2 id="bench-title">Bandwidth by op</h2><div id="bench-plot"></div></section>
  <section aria-labelledby="devices-title"><h2 id="devices-title">Devices</h2><div class="scroll" id="devices" tabindex="0" role="group" aria-label="Table of devices"></div></section>
  <section aria-labelledby="mutants-title" id="mutants" hidden><h2 id="mutants-title">Mutants</h2><p id="mutants-text"></p><ul id="survivors"></ul></section>
  <section aria-labelledby="unproved-title"><h2 id="unproved-title">Unproved</h2><ul id="unproved"></ul></section>
</main>
<dialog id="detail" aria-labelledby="detail-title"></dialog>
<noscript><p>This page draws its tables with a script that is part of the file; the numbers are in the JSON report too.</p></noscript>
<script type="application/json" id="data">${embed(data)}</script>
<script>${pageScript}</script>
</body>
</html>
`;
}

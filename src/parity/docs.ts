// Pages made from the op table and committed evidence: docs/ops.md, docs/kernels.md and the table of docs/devices.md. A
// check says what is stale.
import { existsSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { environmentPage } from '../base/environment.js';
import { packageRoot } from '../base/paths.js';
import type { Row } from '../ops/op.js';
import { opList } from '../ops/table.js';
import { type Evidence, type Mutation, readEvidence, readMutation, staleEvidence, staleText } from './evidence.js';
import { readCompiled, readRan, staleCompiled, staleRan } from './compiled.js';
import { KERNELS_PAGE, kernelsPage } from './kernels-page.js';
import { originText } from './origin.js';
import { type Cell, type DeviceEntry, kindOf, type Report, totals } from './report.js';
import { vouchers, vouchersText } from './sources.js';
import { type Verdict, worse } from './verdict.js';

/** One measured device: of several evidence files, each may know a device of the same name. */
interface Column {
  readonly label: string;
  readonly device: DeviceEntry;
  readonly evidence: Evidence;
  readonly cells: readonly Cell[];
}
const columnsOf = (evidence: readonly Evidence[]): Column[] =>
  evidence.flatMap((e) =>
    e.report.devices.map((device) => ({
      label: e.report.devices.length === 1 ? e.file.replace(/.*\/|\.json$/g, '') : device.name,
      device,
      evidence: e,
      cells: e.report.cells.filter((c) => c.device === device.name),
    })),
  );

const MARK: Readonly<Record<Verdict, string>> = {
  exact: '=',
  within: '≈',
  closer: '≈',
  differs: '≠',
  unsupported: '–',
  failed: '✗',
};

/** Marks of an op on a device: one where all dtypes agree, else the dtypes of each and "else" for the most common. */
function marks(cells: readonly Cell[], row: Row): string {
  const byMark = new Map<string, string[]>();
  for (const dtype of row.dtypes) {
    const own = cells.filter((c) => c.op === row.name && c.dtype === dtype);
    const mark = own.length ? MARK[own.map((c) => c.verdict).reduce(worse)] : '';
    byMark.set(mark, [...(byMark.get(mark) ?? []), dtype]);
  }
  const groups = [...byMark].sort((a, b) => a[1].length - b[1].length);
  return groups
    .map(([mark, dtypes], i) =>
      groups.length === 1
        ? mark
        : i === groups.length - 1
          ? `else ${mark || 'not measured'}`
          : `${mark || 'not measured'} ${dtypes.join(' ')}`,
    )
    .join(', ');
}
const escape = (s: string): string => s.replaceAll('|', '\\|').replaceAll('<', '&lt;');
const bound = (row: Row): string =>
  typeof row.ulp === 'number'
    ? row.ulp === 0
      ? 'exact'
      : String(row.ulp)
    : Object.entries(row.ulp)
        .map(([d, u]) => `${d} ${u}`)
        .join(', ');

function opLine(row: Row, columns: readonly Column[], by: readonly string[] | undefined): string {
  const gradient = row.noGrad ? `none: ${row.noGrad}` : 'yes';
  return (
    `| \`${row.name}\` | ${escape(row.formula)} | ${bound(row)} | ${escape(gradient)} | ${escape(originText(row))} | ` +
    `${by?.join(', ') ?? 'none: below'} | ${columns.map((c) => marks(c.cells, row)).join(' | ')} |`
  );
}

const provenance = (r: Report): string =>
  `${r.date.slice(0, 10)}, commit ${r.commit || 'unknown'}, Node ${r.node}, ${r.host}`;

function mutants(m: Mutation): string {
  const survivors = m.results.filter((r) => !r.killed);
  const areas = [...new Set(m.results.map((r) => r.area ?? 'kernels'))];
  const lines = areas.map((area) => {
    const all = m.results.filter((r) => (r.area ?? 'kernels') === area);
    const alive = all.filter((r) => !r.killed);
    return (
      `| ${area} | ${all.length} | ${all.length - alive.length} | ${alive.filter((r) => r.reason).length} | ` +
      `${alive.filter((r) => !r.reason).length} |`
    );
  });
  return [
    `## Mutants\n\nKernels and host code changed on purpose, one change at a time (\`npm run mutate\`, ` +
      `commit ${m.commit}, ${m.date.slice(0, 10)}): the suite ` +
      `noticed ${m.killed} of ${m.total}${
        m.notRun ? `; ${m.notRun} more that the rules give are not judged by the ` + `whole suite` : ''
      }.`,
    `| area | mutants | noticed | survive with a reason | survive |\n|---|---|---|---|---|\n${lines.join('\n')}`,
    ...(survivors.length ? [survivors.map((s) => `- ${s.name}: ${s.reason ?? 'not noticed'}`).join('\n')] : []),
  ].join('\n\n');
}

export function opsPage(evidence: readonly Evidence[], mutation?: Mutation): string {
  const columns = columnsOf(evidence);
  const families = [...new Set(opList.map((r) => r.family))];
  const sources = vouchers();
  const measured = columns.map(
    (c) =>
      `- ${c.label}: ${c.device.description} (${kindOf(c.device.name)}); ${provenance(c.evidence.report)}; ` +
      `[${c.evidence.file}](${c.evidence.file.replace('docs/', '')})`,
  );
  const head =
    `| op | what it computes | bound (ulp) | gradient | Candle's kernel | numbers by ` +
    `| ${columns.map((c) => c.label).join(' | ')} |\n|---|---|---|---|---|---|${columns.map(() => '---|').join('')}`;
  const differing = opList.filter((r) => r.differs).map((r) => `- \`${r.name}\`: ${r.differs}`);
  return (
    [
      '<!-- Made by `npm run docs` from the op table and docs/parity; do not edit. -->',
      `# Ops\n\n${opList.length} ops, declared once each in [src/ops](../src/ops/table.ts); \`wick ops NAME\` ` +
        'tells more. ' +
        `Marks, as measured over all dtypes or those named: \`=\` bit for bit, \`≈\` within the op's bound, \`≠\` ` +
        `a deliberate difference from Candle, \`–\` unsupported with a sentence, \`✗\` failed.`,
      `Evidence:\n\n${measured.join('\n') || '- none measured'}`,
      ...families.map(
        (f) =>
          `## ${f}\n\n${head}\n${opList
            .filter((r) => r.family === f)
            .map((r) => opLine(r, columns, sources.get(r.name)))
            .join('\n')}`,
      ),
      `## Deliberate differences from Candle\n\n${differing.join('\n')}`,
      `## Numbers of outside programs\n\n${vouchersText(sources)}`,
      ...(mutation ? [mutants(mutation)] : []),
      `## Unproved\n\n${
        unprovedBy(evidence)
          .map((u) => `- ${u}`)
          .join('\n') || '- nothing: AMD hardware is part of the evidence'
      }`,
    ].join('\n\n') + '\n'
  );
}

/** What no evidence shows: of the reports' lists, the one of the run that had most. */
function unprovedBy(evidence: readonly Evidence[]): readonly string[] {
  const lists = evidence.map((e) => e.report.unproved);
  return lists.some((l) => l.length === 0) ? [] : [...new Set(lists.flat())];
}

/** A line a device: what it is, how much was measured and how it came out. */
export function supportTable(evidence: readonly Evidence[]): string {
  const columns = columnsOf(evidence);
  const lines = columns.map(({ label, device, evidence: e, cells }) => {
    const own = cells.filter((c) => c.against === 'reference' || c.against === 'candle' || c.against === 'torch');
    const t = totals(own);
    const ops = new Set(own.filter((c) => c.against === 'reference').map((c) => c.op)).size;
    return (
      `| ${label} | ${kindOf(device.name)}: ${escape(device.description)} | ${ops} of ${opList.length} | ` +
      `${own.reduce((n, c) => n + c.cases, 0)} | ${t.exact} | ${t.within + t.closer} | ${t.differs} | ` +
      `${t.unsupported} | ${t.failed} | [${e.report.date.slice(0, 10)}](${e.file.replace('docs/', '')}) |`
    );
  });
  const amd = columns.some((c) => c.device.name.startsWith('rocm:'))
    ? []
    : ['| rocm | AMD GPU | 0 of ' + opList.length + ' | | | | | | | not yet: no AMD GPU has run it |'];
  return [
    '| device | what | ops | cases | bit for bit | within the bound | deliberately different | unsupported | ' +
      'failed | measured |',
    '|---|---|---|---|---|---|---|---|---|---|',
    ...lines,
    ...amd,
  ].join('\n');
}

const OPS = 'docs/ops.md';
const ENVIRONMENT = 'docs/environment.md';
const DEVICES = 'docs/devices.md';
const BEGIN = '<!-- support: made by `npm run docs`, do not edit -->';
const END = '<!-- /support -->';
/** The page of devices with its table as the evidence gives it. */
function devicesWith(text: string, table: string): string {
  const [a, b] = [text.indexOf(BEGIN), text.indexOf(END)];
  return a < 0 || b < a ? text : `${text.slice(0, a + BEGIN.length)}\n${table}\n${text.slice(b)}`;
}

/** Every page by its path, as it should be. */
export function pages(): Map<string, string> {
  const evidence = readEvidence();
  const devices = join(packageRoot, DEVICES);
  return new Map([
    [OPS, opsPage(evidence, readMutation())],
    [ENVIRONMENT, environmentPage()],
    [KERNELS_PAGE, kernelsPage(evidence, readCompiled(), readRan())],
    ...(existsSync(devices)
      ? [[DEVICES, devicesWith(readFileSync(devices, 'utf8'), supportTable(evidence))] as const]
      : []),
  ]);
}

export function writeDocs(): string[] {
  const all = pages();
  for (const [file, text] of all) writeFileSync(join(packageRoot, file), text);
  return [...all.keys()];
}

export interface DocsState {
  /** Pages that are not what the op table and the evidence give. */
  readonly pages: readonly string[];
  /** Sentences about evidence older than what it speaks of. */
  readonly evidence: readonly string[];
}

export function checkDocs(): DocsState {
  const differs = ([file, text]: readonly [string, string]): boolean =>
    !existsSync(join(packageRoot, file)) || readFileSync(join(packageRoot, file), 'utf8') !== text;
  return {
    pages: [...pages()].filter(differs).map(([file]) => `${file}: not what the op table and the evidence give`),
    evidence: [...staleEvidence(readEvidence()).flatMap(staleText), ...staleCompiled(), ...staleRan()],
  };
}

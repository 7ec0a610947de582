// Pages made from the op table and committed evidence: docs/ops.md. A check says what is stale.
import { existsSync, readdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { DTYPES } from '../base/dtype.js';
import { packageRoot } from '../kernels/source.js';
import type { Row } from '../ops/op.js';
import { opList } from '../ops/table.js';
import { parseReport } from './json.js';
import { originText } from './origin.js';
import { type Sources, sourcesNow } from './provenance.js';
import type { Cell, Report } from './report.js';
import { type Verdict, worse } from './verdict.js';

export interface Evidence {
  /** 'docs/parity/cpu.json' */
  readonly file: string;
  readonly report: Report;
}

export function readEvidence(dir = join(packageRoot, 'docs', 'parity')): Evidence[] {
  if (!existsSync(dir)) return [];
  return readdirSync(dir).filter((f) => f.endsWith('.json')).sort()
    .map((f) => ({ file: `docs/parity/${f}`, report: parseReport(readFileSync(join(dir, f), 'utf8'), f) }));
}

/** Why a device's numbers of an op are old: what it is computed by has changed since; undefined where nothing has. */
export function staleReason(report: Report, device: string, op: string, now: Sources = sourcesNow()): string | undefined {
  const { sources, uses } = report;
  if (!Object.hasOwn(now.rows, op)) return undefined; // a golden set's own name: judged by the rows it stands for
  if (!sources.rows || sources.rows[op] !== now.rows[op]) return 'the row of the op table';
  if (device === 'reference') return undefined;
  if (device === 'cpu') return sources.native === now.native ? undefined : 'native/';
  const changed = (uses[op] ?? []).filter((m) => sources.modules[m] !== now.modules[m]);
  return changed.length ? changed.map((m) => `kernels/${m}.hip`).join(', ') : undefined;
}

export interface Stale {
  readonly file: string;
  readonly device: string;
  /** Ops by what changed. */
  readonly ops: ReadonlyMap<string, readonly string[]>;
  /** Ops of the table that were never measured. */
  readonly absent: readonly string[];
}

/** Evidence older than what it speaks of, op by op: a change to one kernel file leaves the rest as good as it was. */
export function staleEvidence(evidence: readonly Evidence[], now: Sources = sourcesNow()): Stale[] {
  return evidence.flatMap(({ file, report }) => report.devices.flatMap((d) => {
    const measured = new Set(report.cells.filter((c) => c.device === d.name && c.against === 'reference').map((c) => c.op));
    const ops = new Map<string, string[]>();
    for (const op of measured) {
      const why = staleReason(report, d.name, op, now);
      if (why) ops.set(why, [...(ops.get(why) ?? []), op]);
    }
    // A part of the table may be measured on purpose (an emulator is slow); what claims the whole must hold it.
    const absent = measured.size * 2 > opList.length ? opList.map((r) => r.name).filter((n) => !measured.has(n)) : [];
    return ops.size + absent.length > 0 ? [{ file, device: d.name, ops, absent }] : [];
  }));
}
export const staleText = ({ file, device, ops, absent }: Stale): string[] => [
  ...[...ops].map(([why, names]) => `${file}: ${device}: measured before ${why} changed: ${names.join(' ')}`),
  ...(absent.length ? [`${file}: ${device}: never measured: ${absent.join(' ')}`] : []),
];

const MARK: Readonly<Record<Verdict, string>> = { exact: '=', within: '≈', closer: '≈', differs: '≠', unsupported: '–', failed: '✗' };

/** The worst verdict of an op and dtype over all cells given. */
function mark(cells: readonly Cell[], op: string, dtype: string): string {
  const own = cells.filter((c) => c.op === op && c.dtype === dtype);
  return own.length ? MARK[own.map((c) => c.verdict).reduce(worse)] : '';
}
const escape = (s: string): string => s.replaceAll('|', '\\|').replaceAll('<', '&lt;');
const bound = (row: Row): string => (typeof row.ulp === 'number' ? (row.ulp === 0 ? 'exact' : String(row.ulp)) : Object.entries(row.ulp).map(([d, u]) => `${d} ${u}`).join(', '));

function opLine(row: Row, devices: readonly string[], cells: ReadonlyMap<string, readonly Cell[]>): string {
  const gradient = row.noGrad ? `none: ${row.noGrad}` : 'yes';
  const measured = devices.map((d) => DTYPES.map((t) => [t, mark(cells.get(d) ?? [], row.name, t)] as const).filter(([, m]) => m).reduce<Map<string, string[]>>((m, [t, k]) => m.set(k, [...(m.get(k) ?? []), t]), new Map()))
    .map((byMark) => [...byMark].map(([m, types]) => `${m} ${types.join(' ')}`).join('; '));
  return `| \`${row.name}\` | ${escape(row.formula)} | ${bound(row)} | ${escape(gradient)} | ${escape(originText(row))} | ${measured.map(escape).join(' | ')} |`;
}

export function opsPage(evidence: readonly Evidence[]): string {
  const devices = [...new Set(evidence.flatMap((e) => e.report.devices.map((d) => d.name)))];
  const cells = new Map(devices.map((d) => [d, evidence.flatMap((e) => e.report.cells.filter((c) => c.device === d))]));
  const families = [...new Set(opList.map((r) => r.family))];
  const sources = evidence.map(({ file, report: r }) => `- [${file}](${file.replace('docs/', '')}): ${r.devices.map((d) => `${d.name} (${d.description})`).join(', ')}; ${r.date.slice(0, 10)}, commit ${r.commit || 'unknown'}, Node ${r.node}, ${r.host}`);
  const head = `| op | what it computes | bound (ulp) | gradient | Candle's kernel | ${devices.join(' | ')} |\n|---|---|---|---|---|${devices.map(() => '---|').join('')}`;
  const differing = opList.filter((r) => r.differs).map((r) => `- \`${r.name}\`: ${r.differs}`);
  return [
    '<!-- Made by `wick parity docs` from the op table and docs/parity; do not edit. -->',
    `# Ops\n\n${opList.length} ops, declared once each in [src/ops](../src/ops). Marks by dtype, as measured: \`=\` bit for bit, \`≈\` within the op's bound, \`≠\` a deliberate difference from Candle, \`–\` unsupported with a sentence, \`✗\` failed.`,
    `Evidence:\n\n${sources.join('\n') || '- none measured'}`,
    ...families.map((f) => `## ${f}\n\n${head}\n${opList.filter((r) => r.family === f).map((r) => opLine(r, devices, cells)).join('\n')}`),
    `## Deliberate differences from Candle\n\n${differing.join('\n')}`,
    `## Unproved\n\n${[...new Set(evidence.flatMap((e) => e.report.unproved))].map((u) => `- ${u}`).join('\n') || '- nothing: AMD hardware is part of the evidence'}`,
  ].join('\n\n') + '\n';
}

const PAGE = join('docs', 'ops.md');

export function writeDocs(): string[] {
  writeFileSync(join(packageRoot, PAGE), opsPage(readEvidence()));
  return [PAGE];
}

export interface DocsState {
  /** Pages that are not what they would be. */
  readonly pages: readonly string[];
  /** Sentences about old evidence that whoever changed something can measure anew: the CPU and the simulation are everywhere. */
  readonly here: readonly string[];
  /** Sentences about old evidence of devices that not everybody has. */
  readonly elsewhere: readonly string[];
}

export function checkDocs(): DocsState {
  const evidence = readEvidence();
  const path = join(packageRoot, PAGE);
  const stale = staleEvidence(evidence);
  const anywhere = (s: Stale): boolean => s.device === 'cpu' || s.device.startsWith('sim:');
  return {
    pages: existsSync(path) && readFileSync(path, 'utf8') === opsPage(evidence) ? [] : [`${PAGE}: not what the op table and the evidence give`],
    here: stale.filter(anywhere).flatMap(staleText),
    elsewhere: stale.filter((s) => !anywhere(s)).flatMap(staleText),
  };
}

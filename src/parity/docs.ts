// Pages made from the op table and committed evidence: docs/ops.md. A check says what is stale.
import { existsSync, readdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { DTYPES } from '../base/dtype.js';
import { packageRoot } from '../kernels/source.js';
import type { Row } from '../ops/op.js';
import { opList } from '../ops/table.js';
import { parseReport } from './json.js';
import { originText } from './origin.js';
import { type Cell, type Report, type Sources, sourcesNow } from './report.js';
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

/** What each kind of device computes by: evidence about it is old once that changes. */
const SPEAKS_OF = (device: string): readonly (keyof Sources)[] =>
  device === 'cpu' ? ['native', 'table'] : device === 'reference' ? ['table'] : ['kernels', 'table'];

/** Sentences about evidence older than what it speaks of. */
export function staleEvidence(evidence: readonly Evidence[], now: Sources = sourcesNow()): string[] {
  return evidence.flatMap(({ file, report }) => report.devices.flatMap((d) => {
    const old = SPEAKS_OF(d.name).filter((s) => report.sources[s] !== now[s]);
    return old.length ? [`${file}: measured on ${d.name} at ${report.commit || 'an unknown commit'}; since then ${old.join(' and ')} changed`] : [];
  }));
}

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

/** Sentences about pages that are not what they would be, and evidence that is too old. */
export function checkDocs(): string[] {
  const evidence = readEvidence();
  const path = join(packageRoot, PAGE);
  const stale = staleEvidence(evidence);
  if (!existsSync(path) || readFileSync(path, 'utf8') !== opsPage(evidence)) stale.unshift(`${PAGE}: not what the op table and the evidence give`);
  return stale;
}

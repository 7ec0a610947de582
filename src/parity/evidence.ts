// Committed evidence: reports of real runs in docs/parity, and which of their numbers are older than what they speak
// of.
import { existsSync, readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { platformOf } from './platform.js';
import { packageRoot } from '../base/paths.js';
import type { Row } from '../ops/op.js';
import { opList } from '../ops/table.js';
import { casesOf } from '../testing/cases.js';
import { parseReport } from './json.js';
import { launchFiles } from './launch-files.js';
import { type Sources, sourcesNow } from './provenance.js';
import type { DeviceEntry, Report } from './report.js';

export interface Evidence {
  /** 'docs/parity/cpu.json' */
  readonly file: string;
  readonly report: Report;
}

/** The file that evidence of a device belongs in: 'cpu-neon', 'sim', 'cuda-h200', 'emu-gfx1030'. */
export function evidenceName({ name, description }: DeviceEntry): string {
  const [kind, which = ''] = name.split(':');
  if (kind === 'sim') return kind;
  const part =
    kind === 'cpu'
      ? /with (\w+) instructions/.exec(description)?.[1]
      : kind === 'emu'
        ? which
        : description
            .split('(')[0]
            .replace(/nvidia|amd|geforce|radeon/gi, '')
            .trim()
            .toLowerCase()
            .replace(/[^a-z0-9]+/g, '-');
  return part ? `${kind}-${part}` : kind;
}

export function readEvidence(dir = join(packageRoot, 'docs', 'parity')): Evidence[] {
  if (!existsSync(dir)) return [];
  return readdirSync(dir)
    .filter((f) => f.endsWith('.json'))
    .sort()
    .map((f) => ({ file: `docs/parity/${f}`, report: parseReport(readFileSync(join(dir, f), 'utf8'), f) }));
}

const rowNamed = new Map(opList.map((r) => [r.name, r]));
/** Why a device's numbers of an op are old: what it is computed by has changed since; undefined where nothing has. */
export function staleReason(
  report: Report,
  device: string,
  op: string,
  now: Sources = sourcesNow(),
): string | undefined {
  const { sources, uses } = report;
  if (!Object.hasOwn(now.rows, op)) return undefined; // a golden set's own name: judged by the rows it stands for
  if (!sources.rows || sources.rows[op] !== now.rows[op]) return 'the row of the op table';
  if (device === 'cpu') {
    if (sources.native !== now.native) return 'native/';
    return sources.host?.cpu === now.host?.cpu ? undefined : 'src/backends/cpu';
  }
  const platform = platformOf(device);
  if (!platform) return undefined;
  const changed = (uses[op] ?? []).filter((m) => sources.modules[platform]?.[m] !== now.modules[platform][m]);
  if (changed.length) return changed.map((m) => `kernels/${m}.hip`).join(', ');
  if (sources.host?.gpu === now.host?.gpu) return undefined;
  if (!sources.launch) return 'the code that launches (src/backends/gpu, src/kernels)';
  const libraries = platform === 'nvidia' || device.startsWith('rocm');
  const files = launchFiles(rowNamed.get(op) as Row, uses[op] ?? [], libraries);
  return files.filter((f) => sources.launch?.[f] !== now.launch?.[f]).join(', ') || undefined;
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
  return evidence.flatMap(({ file, report }) =>
    report.devices.flatMap((d) => {
      const measured = new Set(
        report.cells.filter((c) => c.device === d.name && c.against === 'reference').map((c) => c.op),
      );
      const ops = new Map<string, string[]>();
      for (const op of measured) {
        const why = staleReason(report, d.name, op, now);
        if (why) ops.set(why, [...(ops.get(why) ?? []), op]);
      }
      // A part of the table may be measured on purpose (an emulator is slow); what claims the whole must hold it.
      const absent =
        measured.size * 2 > opList.length
          ? opList.filter((r) => !measured.has(r.name) && !casesOf([r]).next().done).map((r) => r.name)
          : [];
      return ops.size + absent.length > 0 ? [{ file, device: d.name, ops, absent }] : [];
    }),
  );
}
const few = (names: readonly string[]): string =>
  names.length > 6 ? `${names.slice(0, 5).join(' ')} and ${names.length - 5} more` : names.join(' ');
export const staleText = ({ file, device, ops, absent }: Stale): string[] => [
  ...[...ops].map(([why, names]) => `${file}: ${device}: measured before ${why} changed: ${few(names)}`),
  ...(absent.length ? [`${file}: ${device}: never measured: ${few(absent)}`] : []),
];

/** What the mutation run found: docs/mutation.json. */
export interface Mutation {
  readonly commit: string;
  readonly date: string;
  readonly killed: number;
  readonly total: number;
  /** Mutants listed by the rules that no run has judged. */
  readonly notRun: number;
  readonly results: readonly {
    readonly name: string;
    readonly hash: string;
    readonly commit: string;
    /** Where it is; kernels unless said. */
    readonly area?: string;
    readonly killed: boolean;
    readonly by?: string;
    readonly reason?: string;
  }[];
}
export function readMutation(file = join(packageRoot, 'docs', 'mutation.json')): Mutation | undefined {
  return existsSync(file) ? (JSON.parse(readFileSync(file, 'utf8')) as Mutation) : undefined;
}

// Several reports as one: the devices of all of them side by side, each with where and when it was measured.
import { readdirSync, readFileSync, statSync } from 'node:fs';
import { basename, join } from 'node:path';
import { ArgumentError } from '../base/errors.js';
import { staleReason } from './evidence.js';
import { parseReport } from './json.js';
import { type DeviceEntry, inOrder, type Report, unprovedOn } from './report.js';

/** Reports by path: files, or folders of them. */
export function readReports(paths: readonly string[]): { readonly name: string; readonly report: Report }[] {
  const files = paths.flatMap((p) =>
    statSync(p, { throwIfNoEntry: false })?.isDirectory()
      ? readdirSync(p)
          .filter((f) => f.endsWith('.json'))
          .sort()
          .map((f) => join(p, f))
      : [p],
  );
  if (files.length === 0) throw new ArgumentError(`parity: no report in ${paths.join(', ')}`);
  return files.map((f) => ({ name: basename(f, '.json'), report: parseReport(readFileSync(f, 'utf8'), f) }));
}

/** Of a report, only these devices; all of them where none is named. */
export function onlyDevices(report: Report, names: readonly string[] | undefined): Report {
  if (!names) return report;
  const devices = report.devices.filter((d) => names.includes(d.name));
  return {
    ...report,
    devices,
    missing: names
      .filter((n) => !devices.some((d) => d.name === n))
      .map((name) => ({ name, why: 'not in the reports given' })),
    cells: report.cells.filter((c) => names.includes(c.device)),
    unproved: unprovedOn(devices),
  };
}

/**
 * A report with every device saying where its numbers come from, and which of its ops were measured before something
 * changed.
 */
function told(report: Report): DeviceEntry[] {
  return report.devices.map((d) => {
    const ops = [...new Set(report.cells.filter((c) => c.device === d.name).map((c) => c.op))];
    const stale = Object.fromEntries(
      ops.flatMap((op) => {
        const why = staleReason(report, d.name, op);
        return why ? [[op, why] as const] : [];
      }),
    );
    return {
      measured: { date: report.date, commit: report.commit, host: report.host, node: report.node },
      ...d,
      ...(Object.keys(stale).length > 0 && { stale }),
    };
  });
}

/** Joins reports; devices of the same name are called by their files'. */
export function mergeReports(parts: readonly { readonly name: string; readonly report: Report }[]): Report {
  if (parts.length === 1) return parts[0].report;
  const devices: DeviceEntry[] = [];
  const twice = (device: string): boolean =>
    parts.filter((p) => p.report.devices.some((d) => d.name === device)).length > 1;
  const cells = parts.flatMap(({ name, report }) => {
    const own = new Map(
      told(report).map((d) => {
        const label = twice(d.name) ? name : d.name;
        devices.push({ ...d, name: label });
        return [d.name, label];
      }),
    );
    return report.cells.map((c) => ({ ...c, device: own.get(c.device) as string }));
  });
  const latest = parts.map((p) => p.report).reduce((a, b) => (a.date >= b.date ? a : b));
  const here = new Set(devices.map((d) => d.name));
  return {
    ...latest,
    devices,
    missing: latest.missing.filter((m) => !here.has(m.name)),
    unproved: unprovedOn(devices),
    golden: Object.assign({}, ...parts.map((p) => p.report.golden)) as Report['golden'],
    uses: Object.assign({}, ...parts.map((p) => p.report.uses)) as Report['uses'],
    complete: parts.every((p) => p.report.complete),
    seconds: Math.round(parts.reduce((n, p) => n + p.report.seconds, 0) * 10) / 10,
    cells: inOrder(cells, devices),
  };
}

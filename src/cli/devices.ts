// `wick devices`: what there is, with library versions, and why anything is missing.
import { parseArgs } from 'node:util';
import { libraryReports } from '../driver/ffi.js';
import { machineReport } from '../driver/report.js';
import { prebuiltDirs, prebuiltTargets } from '../kernels/prebuilt.js';
import { describeSimulated, openSimulated } from '../backends/registry.js';
import { WickError } from '../base/errors.js';
import { probe } from '../testing/devices.js';
import { bytes, fit, wrap } from './table.js';

/** As its loader reports it. */
const ENGINE = 'the CPU engine';
interface Row {
  readonly device: string;
  readonly here: boolean;
  readonly what: string;
  /** Why it is missing. */
  readonly why?: string;
}

const engineRow = (name: string): Row => {
  const { device, missing } = probe(name);
  return { device: name, here: device !== undefined, what: device?.description ?? '', why: missing };
};
const simulationRow = (wave: number): Row => {
  const device = `sim:${wave}`;
  try {
    openSimulated(wave);
    return { device, here: true, what: describeSimulated(wave) };
  } catch (e) {
    if (e instanceof WickError) return { device, here: false, what: '', why: e.message };
    throw e;
  }
};

type Machine = ReturnType<typeof machineReport>;
const gpuRows = (drivers: Machine['drivers']): Row[] =>
  drivers.flatMap((d): Row[] => {
    const { kind } = d;
    if (d.devices.length === 0)
      return [
        { device: `${kind}:0`, here: false, what: d.version ?? '', why: d.missing ?? 'the driver sees no device' },
      ];
    return d.devices.map(({ ordinal, info, freeBytes }) => ({
      device: `${kind}:${ordinal}`,
      here: true,
      what:
        `${info.name} (${info.fullArch}), ${bytes(freeBytes)} of ${bytes(info.totalBytes)} free, ` +
        `${info.multiprocessors} multiprocessors, waves of ${info.warp}, ${d.version}`,
    }));
  });

/** Why devices and libraries are missing. */
function tellMissing(rows: readonly Row[], libraries: Machine['libraries']): void {
  const reasons = [
    ...new Set(
      [...rows.map((r) => (r.here ? undefined : `${r.device}: ${r.why}`)), ...libraries.map((l) => l.missing)].filter(
        (s): s is string => s !== undefined,
      ),
    ),
  ];
  // A device's reason often is its library's: that is said once.
  const said = reasons.filter((r) => !reasons.some((o) => o !== r && o.includes(r)));
  if (said.length > 0)
    console.log(`\nwhat is missing, and where it was looked for:\n${said.map((r) => wrap(`- ${r}`)).join('\n')}`);
}

export function run(argv: readonly string[]): number {
  const { values } = parseArgs({
    args: [...argv],
    options: { help: { type: 'boolean', short: 'h' }, json: { type: 'boolean' } },
  });
  if (values.help) {
    console.log(
      'wick devices          the devices found here, library versions, and why anything is missing\nwick devices ' +
        '--json   the same for programs',
    );
    return 0;
  }
  const report = machineReport();
  const terminal = process.stderr.isTTY;
  // A clone compiles the simulation when it is first asked for, which takes seconds.
  if (terminal) process.stderr.write('looking at the devices; the first time, the simulation is compiled ...');
  const host = [...['cpu', 'reference'].map(engineRow), ...[32, 64].map(simulationRow)];
  if (terminal) process.stderr.write('\r\x1b[2K');
  const gpus = gpuRows(report.drivers);
  const prebuilt = prebuiltDirs().map((dir) => ({ dir, targets: prebuiltTargets(dir) }));
  if (values.json) {
    console.log(JSON.stringify({ host, drivers: report.drivers, libraries: report.libraries, prebuilt }, null, 2));
    return 0;
  }
  const rows = [...host.slice(0, 2), ...gpus, ...host.slice(2)];
  console.log(
    fit(
      ['device', 'here', 'what'],
      rows.map((r) => [r.device, r.here ? 'yes' : 'no', r.what]),
      2,
    ),
  );
  const libraries = report.libraries.filter((l) => l.name !== ENGINE);
  const engine = libraryReports().find((l) => l.name === ENGINE)?.found;
  if (engine) console.log(`\n${ENGINE}: ${engine}`);
  console.log(
    `\n${fit(
      ['library', 'version', 'file'],
      libraries.map((l) => [
        l.name,
        l.missing === undefined ? (l.version ?? '') : '',
        l.missing === undefined ? (l.found ?? '') : 'missing',
      ]),
      2,
    )}`,
  );
  for (const d of report.drivers.filter((r) => r.devices.length > 0)) {
    console.log(wrap(`\n${d.kind}: matrix products by ${d.blas}; convolutions by ${d.dnn}`.trimStart()));
  }
  console.log(
    `\nkernels made ahead of time: ${prebuilt.map((p) => `${p.dir}: ${p.targets.join(', ') || 'none'}`).join('; ')}`,
  );
  tellMissing(rows, libraries);
  return 0;
}

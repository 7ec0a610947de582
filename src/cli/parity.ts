// `wick parity`: measures how far every device is from the reference, from Candle's CUDA kernels and from PyTorch.
import '../index.js';
import { mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { parseArgs } from 'node:util';
import { asDType } from '../base/dtype.js';
import { ArgumentError } from '../base/errors.js';
import { packageRoot } from '../base/paths.js';
import { opList } from '../ops/table.js';
import { checkDocs, writeDocs } from '../parity/docs.js';
import { evidenceName, readMutation } from '../parity/evidence.js';
import { readBench, reportPage } from '../parity/html.js';
import { reportJson } from '../parity/json.js';
import { mergeReports, onlyDevices, readReports } from '../parity/merge.js';
import { AGAINST, type Against, failed, type Report, totals } from '../parity/report.js';
import { runParity } from '../parity/run.js';
import { compareSignatures, pinManifest } from '../parity/signatures.js';
import { VERDICTS } from '../parity/verdict.js';
import { wholeOf } from './options.js';
import { watched } from './progress.js';
import { table } from './table.js';

const HELP = `wick parity [options]: every op x dtype x layout on every device present, against the
double-precision reference, Candle's CUDA output and PyTorch's numbers; exit status 1 if anything failed
  --device NAME     cpu, sim:32, sim:64, cuda:0, rocm:0, emu:gfx1030, reference (repeatable; default: those
                    present of the first five)
  --against WHAT    ${AGAINST.join(', ')} (repeatable; default: all)
  --op NAME         only this op (repeatable)
  --dtype NAME      only this dtype (repeatable)
  --model NAME      only this model of the golden folder's hf/ (repeatable)
  --jobs N          processes (default: as many as there are cores)
  --bail            the first failure ends the run
  --golden DIR      a folder in the formats of test/golden
  --json            the report as JSON on the standard output
  --save FILE       the report as JSON in a file
  --html FILE       the report as one page
  --bench FILE      what npm run bench -- --json FILE wrote, for the page's bandwidths (repeatable)
  --from PATH       no run: reports saved before, or a folder of them such as docs/parity, shown as one (repeatable;
                    --device picks)
wick parity signatures [--candle DIR] [--json]    our kernel symbols and parameters against Candle's
  --pin             rewrites the manifest from the checkout
wick parity evidence [--device NAME] [--jobs N] [--out DIR]    measures, and keeps a report a kind of device in
                    docs/parity (default: cpu, sim:32, sim:64)
wick parity docs    writes docs/ops.md and the table of docs/devices.md from the op table and the evidence in
                    docs/parity
  --check           says what is stale, and fails where a page is
  --strict          with --check: fails where evidence is older than what it speaks of, too`;

const DEFAULT_DEVICES = ['cpu', 'sim:32', 'sim:64', 'cuda:0', 'rocm:0'];

export async function run(argv: readonly string[]): Promise<number> {
  const [first, ...rest] = argv;
  if (argv.includes('--help') || argv.includes('-h')) {
    console.log(HELP);
    return 0;
  }
  if (first === 'signatures') return signatures(rest);
  if (first === 'docs') return docs(rest);
  if (first === 'evidence') return evidence(rest);
  return measure(argv);
}

const OPTIONS = {
  device: { type: 'string', multiple: true },
  against: { type: 'string', multiple: true },
  op: { type: 'string', multiple: true },
  dtype: { type: 'string', multiple: true },
  model: { type: 'string', multiple: true },
  golden: { type: 'string' },
  jobs: { type: 'string' },
  bail: { type: 'boolean' },
  json: { type: 'boolean' },
  save: { type: 'string' },
  html: { type: 'string' },
  bench: { type: 'string', multiple: true },
  from: { type: 'string', multiple: true },
} as const;

async function measure(argv: readonly string[]): Promise<number> {
  const { values } = parseArgs({ args: [...argv], options: OPTIONS });
  const against = (values.against?.flatMap((a) => a.split(',')) ??
    (values.model ? ['models'] : values.op ? AGAINST.filter((a) => a !== 'models') : AGAINST)) as Against[];
  const bad = against.find((a) => !AGAINST.includes(a));
  if (bad) throw new ArgumentError(`parity: --against ${bad}; it takes ${AGAINST.join(', ')}`);
  const unknown = values.op?.find((o) => !opList.some((r) => r.name === o));
  if (unknown) throw new ArgumentError(`parity: --op ${unknown} is not a row of the op table; wick ops lists them`);
  for (const d of values.dtype ?? []) asDType(d, 'parity: --dtype');
  if (values.from) return show(onlyDevices(mergeReports(readReports(values.from)), values.device), values);
  const report = await watched((w) =>
    runParity({
      devices: values.device ?? DEFAULT_DEVICES,
      against,
      ...(values.op && { ops: values.op }),
      ...(values.dtype && { dtypes: values.dtype }),
      ...(values.model && { models: values.model }),
      ...(values.golden && { golden: values.golden }),
      ...(values.bail && { bail: true }),
      ...(values.jobs && { jobs: wholeOf('parity', 'jobs', values.jobs, 1) }),
      ...w,
    }),
  );
  return show(report, values);
}

function show(
  report: Report,
  values: { save?: string; html?: string; json?: boolean; bench?: string[]; device?: string[] },
): number {
  const benches = (values.bench ?? []).map((file) => readBench(readFileSync(file, 'utf8'), file));
  if (values.save) writeFileSync(values.save, reportJson(report));
  if (values.html) writeFileSync(values.html, reportPage(report, { benches, mutation: readMutation() }));
  if (values.json) process.stdout.write(reportJson(report));
  else print(report, values.device !== undefined);
  if (failed(report)) return 1;
  if (!report.complete) return 130;
  return values.device && report.missing.length > 0 ? 1 : 0;
}

/** A row a device and side, with how many cases got each verdict. */
function verdictRows(report: Report): (string | number)[][] {
  const groups = report.devices.flatMap((d) =>
    AGAINST.map((a) => ({
      device: d.name,
      against: a,
      cells: report.cells.filter((c) => c.device === d.name && c.against === a),
    })),
  );
  return groups
    .filter((g) => g.cells.length > 0)
    .map((g) => {
      const t = totals(g.cells);
      return [
        g.device,
        g.against,
        new Set(g.cells.map((c) => c.op)).size,
        g.cells.reduce((n, c) => n + c.cases, 0),
        ...VERDICTS.map((v) => t[v]),
      ];
    });
}

export function print(report: Report, asked: boolean): void {
  console.log(table(['device', 'against', 'ops', 'cases', ...VERDICTS], verdictRows(report)));
  const say = (title: string, lines: readonly string[], most = 20): void => {
    if (lines.length === 0) return;
    console.log(`\n${title}`);
    for (const l of lines.slice(0, most)) console.log(`  ${l}`);
    if (lines.length > most) console.log(`  and ${lines.length - most} more: see --json or --html`);
  };
  const cells = (v: string): string[] => [
    ...new Set(
      report.cells
        .filter((c) => c.verdict === v)
        .flatMap((c) => (c.why ?? []).map((w) => `${c.device} ${c.op} ${v === 'failed' ? '' : `${c.dtype} `}${w}`)),
    ),
  ];
  say('Failed:', cells('failed'));
  say('Deliberate differences:', [
    ...new Set(
      report.cells.filter((c) => c.verdict === 'differs').flatMap((c) => (c.why ?? []).map((w) => `${c.op}: ${w}`)),
    ),
  ]);
  say(
    'Unsupported:',
    [
      ...new Set(
        report.cells
          .filter((c) => c.counts.unsupported > 0)
          .flatMap((c) => (c.why ?? []).map((w) => `${c.device}: ${w}`)),
      ),
    ],
    12,
  );
  say(
    asked ? 'Not here, though asked for:' : 'Not here:',
    report.missing.map((m) => `${m.name}: ${m.why.split('\n')[0]}`),
  );
  if (!report.cells.some((c) => c.against !== 'reference'))
    say('No golden numbers took part:', ['a clone has them in test/golden; --golden DIR names another folder']);
  say('Unproved:', report.unproved);
  const t = totals(report.cells);
  console.log(
    `\n${
      report.complete ? 'Done' : 'Stopped early, what is above holds'
    }: ${report.cells.reduce((n, c) => n + c.cases, 0)} cases in ${report.seconds} s, ${t.failed} failed.`,
  );
}

async function evidence(argv: readonly string[]): Promise<number> {
  const { values } = parseArgs({
    args: [...argv],
    options: { device: { type: 'string', multiple: true }, jobs: { type: 'string' }, out: { type: 'string' } },
  });
  const out = values.out ?? join(packageRoot, 'docs', 'parity');
  const report = await watched((w) =>
    runParity({
      devices: values.device ?? ['cpu', 'sim:32', 'sim:64'],
      against: AGAINST,
      ...(values.jobs && { jobs: wholeOf('parity', 'jobs', values.jobs, 1) }),
      ...w,
    }),
  );
  print(report, true);
  if (!report.complete || report.missing.length > 0) return 1; // half a run is not evidence
  mkdirSync(out, { recursive: true });
  for (const file of new Set(report.devices.map(evidenceName))) {
    const path = join(out, `${file}.json`);
    writeFileSync(
      path,
      reportJson(
        onlyDevices(
          report,
          report.devices.filter((d) => evidenceName(d) === file).map((d) => d.name),
        ),
      ),
    );
    console.log(`wrote ${path}`);
  }
  return failed(report) ? 1 : 0;
}

function signatures(argv: readonly string[]): number {
  const { values } = parseArgs({
    args: [...argv],
    options: { candle: { type: 'string' }, json: { type: 'boolean' }, pin: { type: 'boolean' } },
  });
  if (values.pin) {
    if (!values.candle) throw new ArgumentError('parity signatures: --pin needs --candle DIR, the checkout to pin');
    console.log(`pinned ${pinManifest(values.candle)} kernels`);
  }
  const s = compareSignatures(values.candle);
  const wrong = s.problems.length > 0;
  if (values.json) {
    console.log(JSON.stringify(s, null, 1));
    return wrong ? 1 : 0;
  }
  const total = s.files.reduce((n, f) => n + f.total, 0);
  const good = s.files.reduce((n, f) => n + f.present - f.different.length, 0);
  console.log(`Candle: ${s.source}\n`);
  console.log(
    table(
      ['file', 'kernels', 'present', 'missing', 'different'],
      s.files.map((f) => [f.file, f.total, f.present, f.missing.length, f.different.length]),
    ),
  );
  for (const p of s.problems) console.log(p);
  console.log(`\n${good} of ${total} kernels are here with Candle's parameters; ${s.extra.length} more are our own.`);
  if (s.moved) {
    const { added, removed, changed, commit } = s.moved;
    if (added.length + removed.length + changed.length === 0)
      console.log(
        `The checkout${commit ? ` (${commit.slice(0, 12)})` : ''} and the pinned manifest hold the same kernels.`,
      );
    else {
      console.log(
        `Candle has moved on from the manifest: ${added.length} kernels added, ${removed.length} removed, ` +
          `${changed.length} changed.`,
      );
      for (const [sign, list] of [
        ['+', added],
        ['-', removed],
        ['~', changed],
      ] as const)
        for (const l of list.slice(0, 40)) console.log(`  ${sign} ${l}`);
    }
  }
  return wrong ? 1 : 0;
}

function docs(argv: readonly string[]): number {
  const { values } = parseArgs({
    args: [...argv],
    options: { check: { type: 'boolean' }, strict: { type: 'boolean' } },
  });
  if (!values.check) {
    for (const file of writeDocs()) console.log(`wrote ${file}`);
    return 0;
  }
  const { pages, evidence: old } = checkDocs();
  for (const s of pages) console.error(s);
  for (const s of old) console.error(`stale: ${s}`);
  const wrong = pages.length > 0 || (values.strict === true && old.length > 0);
  if (pages.length > 0) console.log('wick parity docs writes the pages');
  if (old.length > 0)
    console.log(
      'npm run evidence measures the CPU and the simulation anew and writes the pages; wick parity evidence ' +
        '--device NAME measures others',
    );
  if (pages.length + old.length === 0) console.log('pages and evidence are up to date');
  return wrong ? 1 : 0;
}

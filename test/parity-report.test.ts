// The ledger's own logic: verdicts, cells, partial reports, stale evidence, pages, and the command around them.
import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { test } from 'node:test';
import '../src/index.js';
import { packageRoot } from '../src/base/paths.js';
import { PLANNED } from '../src/backends/gpu/families.js';
import { moduleNames } from '../src/backends/gpu/modules.js';
import { opList } from '../src/ops/table.js';
import { opsPage, supportTable } from '../src/parity/docs.js';
import { staleEvidence, staleReason, staleText } from '../src/parity/evidence.js';
import { launchFiles, planFile } from '../src/parity/launch-files.js';
import type { Platform } from '../src/parity/platform.js';
import { hostHash, launchHashes, sourceName, sourcesNow } from '../src/parity/provenance.js';
import { Golden, goldenFolder } from '../src/parity/golden.js';
import { reasonFor } from '../src/parity/differences.js';
import { parseReport, reportJson } from '../src/parity/json.js';
import { mergeReports, onlyDevices } from '../src/parity/merge.js';
import { failed, kindOf, type Report, totals, unprovedOn } from '../src/parity/report.js';
import { runParity } from '../src/parity/run.js';
import { judgeValues, noCounts } from '../src/parity/verdict.js';
import { main, scratch, wick } from './cli-support.js';

const judge = (got: number[], want: number[], exact?: number[], bound = 1) =>
  judgeValues({ got, want, ...(exact && { exact }), dtype: 'f32', bound, normwise: false }).verdict;
const next = (v: number, ulps: number): number => v + ulps * 2 ** (Math.floor(Math.log2(v)) - 23);

test('verdicts: exact, within, closer and failed, the worst element deciding', () => {
  assert.equal(judge([1, NaN, -0], [1, NaN, -0]), 'exact');
  assert.equal(judge([1, next(2, 1)], [1, 2]), 'within');
  assert.equal(judge([1, next(2, 3)], [1, 2]), 'failed');
  assert.equal(judge([1, next(2, 3)], [1, 2], [1, next(2, 3)]), 'closer');
  assert.equal(judge([next(2, 3)], [2], [2]), 'failed');
  assert.equal(judge([next(2, 2), next(2, 9)], [2, 2], [next(2, 2), 2]), 'failed');
  assert.equal(judge([NaN], [1]), 'failed');
  assert.equal(judge([Infinity], [NaN], [Infinity]), 'closer');
  assert.equal(judge([1], [1, 2]), 'failed');
});
test('zeros of different sign are half a unit apart: exact ops do not mix them', () => {
  assert.equal(judge([-0], [0], undefined, 0), 'failed');
  assert.equal(judge([-0], [0], undefined, 1), 'within');
});
test('integers agree or fail', () => {
  const ints = (got: bigint[], want: bigint[]) =>
    judgeValues({ got, want, dtype: 'i64', bound: 5, normwise: true }).verdict;
  assert.equal(ints([2n], [2n]), 'exact');
  assert.equal(ints([2n], [3n]), 'failed');
});

test('a deliberate difference excuses only the values it speaks of', {
  skip: goldenFolder() ? false : 'no golden folder',
}, () => {
  const golden = new Golden(goldenFolder() as string, 'candle-cuda');
  const c = golden.cases.find((k) => k.op === 'argmin' && k.dtype === 'f32');
  assert.ok(c);
  const theirs = golden.values(c.outputs.y) as bigint[];
  const first = theirs.map((v, row) => (row === 2 ? 5n : v)); // row 2 holds its minimum at 5 and at 30
  assert.match(reasonFor(golden, c, first) ?? '', /first index/);
  assert.equal(
    reasonFor(
      golden,
      c,
      theirs.map((v, row) => (row === 2 ? 6n : v)),
    ),
    undefined,
  );
  assert.equal(
    reasonFor(
      golden,
      c,
      theirs.map((v, row) => (row === 0 ? 0n : v)),
    ),
    undefined,
  );
});

const small = { devices: ['reference', 'abacus:0'], against: ['candle', 'torch'] as const, ops: ['relu', 'add'] };

test('a run counts cases, names missing devices and what is unproved', async () => {
  const r = await runParity(small);
  assert.equal(r.complete, true);
  assert.equal(failed(r), false);
  assert.deepEqual(
    r.missing.map((m) => m.name),
    ['abacus:0'],
  );
  assert.equal(totals(r.cells).failed, 0);
  assert.equal(
    r.cells.filter((c) => c.against === 'candle').reduce((n, c) => n + c.cases, 0),
    15,
  );
  assert.ok(r.unproved.some((u) => u.includes('AMD')));
  assert.deepEqual(unprovedOn([{ name: 'rocm:0', description: '' }]), []);
});
test('a run that is stopped leaves a report that holds', async () => {
  let steps = 0;
  const r = await runParity({ ...small, stopped: () => steps++ >= 1 });
  assert.equal(r.complete, false);
  assert.ok(r.cells.length > 0);
  assert.equal(parseReport(reportJson(r), 'test').complete, false);
});
test('reports survive JSON, with infinite errors as null', async () => {
  const r = await runParity(small);
  r.cells[0].error = null;
  const back = parseReport(reportJson(r), 'test');
  assert.equal(back.cells.length, r.cells.length);
  assert.equal(back.cells[0].error, null);
  assert.deepEqual(
    back.cells.map((c) => c.counts),
    r.cells.map((c) => c.counts),
  );
  assert.throws(() => parseReport('{"version":9}', 'x.json'), /x\.json: not a parity report/);
});

test('evidence is stale once what it speaks of changes, op by op, and only then', async () => {
  const report = await runParity({ ...small, devices: ['sim:32'], against: ['reference'], dtypes: ['f32'] });
  if (report.devices.length === 0) return; // no host compiler: other tests say so
  assert.deepEqual(report.uses, { relu: ['elementwise'], add: ['elementwise'] });
  const on = (name: string) => [
    {
      file: 'docs/parity/x.json',
      report: {
        ...report,
        devices: [{ name, description: '' }],
        cells: report.cells.map((c) => ({ ...c, device: name })),
      },
    },
  ];
  const now = sourcesNow();
  const changed = (platform: Platform, module: string): typeof now => ({
    ...now,
    modules: { ...now.modules, [platform]: { ...now.modules[platform], [module]: 'changed' } },
  });
  const kernels = changed('host', 'elementwise');
  const table = { ...now, rows: { ...now.rows, relu: 'changed' } };
  const says = (device: string, sources: typeof now) => staleEvidence(on(device), sources).flatMap(staleText);
  assert.deepEqual(says('cpu', now), []);
  assert.deepEqual(says('cpu', kernels), []);
  assert.deepEqual(says('cpu', { ...now, native: 'changed' }), [
    'docs/parity/x.json: cpu: measured before native/ changed: relu add',
  ]);
  assert.deepEqual(says('sim:64', kernels), [
    'docs/parity/x.json: sim:64: measured before kernels/elementwise.hip changed: relu add',
  ]);
  assert.deepEqual(says('sim:64', changed('host', 'sort')), []);
  assert.deepEqual(says('cuda:0', changed('amd', 'elementwise')), []);
  assert.deepEqual(says('emu:gfx90a', changed('amd', 'elementwise')), [
    'docs/parity/x.json: emu:gfx90a: measured before kernels/elementwise.hip changed: relu add',
  ]);
  assert.deepEqual(says('rocm:0', table), [
    'docs/parity/x.json: rocm:0: measured before the row of the op table changed: relu',
  ]);
  assert.deepEqual(says('rocm:0', { ...now, native: 'changed' }), []);
  const launches = { ...now, host: { cpu: 'changed', gpu: now.host!.gpu } };
  assert.deepEqual(says('cpu', launches), [
    'docs/parity/x.json: cpu: measured before src/backends/cpu changed: relu add',
  ]);
  assert.deepEqual(says('cuda:0', launches), []);
  const { launch: _, ...whole } = report.sources; // a report from before files were told apart
  const [old] = on('cuda:0').map((e) => ({ ...e, report: { ...e.report, sources: whole } }));
  assert.deepEqual(staleEvidence([old], { ...now, host: { cpu: now.host!.cpu, gpu: 'changed' } }).flatMap(staleText), [
    'docs/parity/x.json: cuda:0: measured before the code that launches (src/backends/gpu, src/kernels) changed: ' +
      'relu add',
  ]);
});

const SIM = join(packageRoot, 'docs/parity/sim.json');
let sim: Report | undefined;
const simulated = (): Report => (sim ??= parseReport(readFileSync(SIM, 'utf8'), SIM));
/** The ops of a whole report that a change to one compiled file makes old. */
function oldAfter(change: string, device = 'sim:32'): string[] {
  const touched = (file: string): string => readFileSync(file, 'utf8') + (file.endsWith(`/${change}`) ? '\nmore;' : '');
  const before = sourcesNow();
  const after = { ...before, host: { ...before.host!, gpu: hostHash('gpu', touched) }, launch: launchHashes(touched) };
  return opList
    .filter((r) => staleReason({ ...simulated(), sources: before }, device, r.name, after))
    .map((r) => r.name);
}
test("a plan's change makes its family old and no other, a shared part's change all", () => {
  const of = (...families: string[]) => opList.filter((r) => families.includes(r.family)).map((r) => r.name);
  const { uses } = simulated();
  for (const [file, families, modules] of [
    ['gpu/scan.js', ['scan'], ['scan']],
    ['gpu/rope.js', ['rope'], ['rope']],
    ['gpu/norm.js', ['norm'], ['norm']],
    ['gpu/attention-trial.js', ['attention'], ['attention', 'attention-backward']],
    [
      'gpu/sort.js',
      ['sort', 'index', 'attention', 'resample'],
      'sort radix choose indexing scatter extremes resample grid attention attention-backward'.split(' '),
    ],
  ] as const) {
    const launching = opList.filter((r) => uses[r.name]?.some((m) => modules.includes(m as never)));
    const want = new Set([...of(...families), ...launching.map((r) => r.name)]);
    assert.deepEqual(
      oldAfter(file),
      opList.map((r) => r.name).filter((n) => want.has(n)),
      file,
    );
    assert.ok(want.size > 0 && want.size < opList.length / 2, file);
  }
  for (const file of ['gpu/run-plan.js', 'kernels/declare.js', 'gpu/movement.js', 'driver/args.js'])
    assert.equal(oldAfter(file).length, opList.length, file);
  assert.deepEqual(oldAfter('gpu/decode.js'), [], 'no op of the table goes through recorded decoding');
  const made = opList.filter((r) => r.family === 'composite').map((r) => r.name);
  const product = new Set(oldAfter('gpu/matmul.js', 'cuda:0'));
  assert.ok(
    made.every((n) => product.has(n)),
    'a library that served a part leaves no module to tell of it',
  );
});
test('every file that launches is of all ops, of a family, or named here as of none', () => {
  const none = [
    ...'families modules decode decode-blocks decode-experts decode-few decode-latent decode-sample decode-tiles'.split(
      ' ',
    ),
    ...'attention-prompts add-product sample side-stream'.split(' '),
  ]
    .map((f) => `src/backends/gpu/${f}.ts`)
    .concat(['candle', 'candle-elementwise', 'candle-quantized'].map((f) => `src/kernels/${f}.ts`));
  const all = Object.keys(launchHashes());
  const own = moduleNames().filter((m) => !/^(candle|decode|sample)/.test(m));
  for (const name of [...PLANNED, ...own]) assert.ok(all.includes(sourceName(planFile(name))), name);
  const counted = new Set(opList.flatMap((r) => launchFiles(r, own, true)));
  counted.add('src/backends/gpu/custom.ts'); // of ops that users define
  assert.deepEqual([...counted, ...none].sort(), all.sort());
});
test('swapping two arguments of a launch makes evidence old, a comment does not', () => {
  const now = hostHash('gpu');
  const swapped = hostHash('gpu', (file) => {
    const text = readFileSync(file, 'utf8');
    const [order, other] = ['gpu.launch(fn, l.grid, l.block', 'gpu.launch(fn, l.block, l.grid'];
    assert.ok(!file.endsWith('/run-plan.js') || text.includes(order), 'the launch that this test changes is there');
    return file.endsWith('/run-plan.js') ? text.replace(order, other) : text;
  });
  assert.notEqual(swapped, now);
  assert.equal(
    hostHash('gpu', (file) => `${readFileSync(file, 'utf8')}\n// a word more\n`),
    now,
  );
  const cpu = hostHash('cpu', (file) => `void 0;\n${readFileSync(file, 'utf8')}`);
  assert.notEqual(cpu, hostHash('cpu'));
});

test('reports are joined with devices side by side, each with its own date, and parted again', async () => {
  const report = await runParity({ ...small, devices: ['reference'], against: ['candle'] });
  const older = {
    ...report,
    date: '2020-01-01T00:00:00Z',
    commit: 'old',
    sources: { ...report.sources, rows: { ...report.sources.rows, relu: 'other' } },
  };
  const both = mergeReports([
    { name: 'new', report },
    { name: 'old', report: older },
  ]);
  assert.deepEqual(
    both.devices.map((d) => [d.name, d.measured?.date]),
    [
      ['new', report.date],
      ['old', older.date],
    ],
  );
  assert.deepEqual(both.devices[1].stale, { relu: 'the row of the op table' });
  assert.equal(both.cells.length, 2 * report.cells.length);
  assert.deepEqual(
    onlyDevices(both, ['old']).cells.map((c) => c.device),
    report.cells.map(() => 'old'),
  );
});
test('processes share a run and find what one finds', async () => {
  const scope = {
    devices: ['cpu'],
    against: ['reference', 'candle'] as const,
    ops: ['relu', 'add', 'sum', 'gather'],
    dtypes: ['f32', 'i64'],
  };
  const [one, two] = [await runParity({ ...scope, jobs: 1 }), await runParity({ ...scope, jobs: 2 })];
  assert.equal(two.complete, true);
  assert.deepEqual(two.cells, one.cells);
});
test('the page of ops has a line for every op and the marks of the evidence', async () => {
  const report = await runParity({ ...small, devices: ['reference'] });
  report.cells.push({
    device: 'reference',
    against: 'candle',
    op: 'tanh',
    dtype: 'f32',
    verdict: 'failed',
    cases: 1,
    counts: { ...noCounts(), failed: 1 },
    error: 9,
    bound: 2,
  });
  const page = opsPage([{ file: 'docs/parity/x.json', report }]);
  for (const row of opList) assert.ok(page.includes(`| \`${row.name}\` |`), row.name);
  assert.match(page, /\| `tanh` \|.*\| ✗ f32, else not measured \|/);
  assert.match(page, /\| `relu` \|.*\| not measured u32, else = \|/);
});
test('the table of devices has a line a device, and one for the hardware that nobody has run', async () => {
  const report = await runParity({ ...small, devices: ['reference'], against: ['candle'] });
  const table = supportTable([{ file: 'docs/parity/x.json', report }]);
  assert.match(table, /\| x \| the oracle, in double precision: .* \| 0 of \d+ \| 15 \| \d+ \|/);
  assert.deepEqual(['cpu-neon', 'sim:32', 'emu:gfx1030'].map(kindOf), ['CPU', 'simulated', 'emulated']);
  assert.match(table, /\| rocm \| AMD GPU \| 0 of .*no AMD GPU has run it/);
});

test('wick ops NAME tells formula, bound, gradient, origin and source', () => {
  const { stdout, status } = wick('ops', 'tanh');
  assert.equal(status, 0);
  for (const part of [/tanh x/, /unary\.cu:\d+-\d+/, /utanh_f32/, /op_tanh/, /gradient +yes/])
    assert.match(stdout, part);
  const wrong = wick('ops', 'tan');
  assert.equal(wrong.status, 0);
  assert.equal(wick('ops', 'nothing').status, 1);
});
test('wick ops tells of every op what it computes, its dtypes, bound, gradient, origin and differences', async () => {
  const { describe } = await import('../src/cli/ops.js');
  for (const row of opList) {
    const text = describe(row);
    for (const what of ['computes', 'dtypes', 'bound', 'gradient', 'candle', 'differs'])
      assert.match(text, new RegExp(`^  ${what} +\\S`, 'm'), `${row.name}: ${what}`);
    assert.doesNotMatch(text, /undefined \(|:(Infinity|0)-/, row.name);
  }
});
test('wick parity refuses what it does not know', () => {
  assert.match(wick('parity', '--op', 'nothing').stderr, /--op nothing is not a row/);
  assert.match(wick('parity', '--against', 'luck').stderr, /--against luck/);
  assert.equal(wick('parity', '--golden', '/nowhere').status, 1);
  assert.match(wick('parity', '--device', 'reference', '--model', 'nobody').stderr, /no model "nobody"/);
  assert.match(wick('parity', '--dtype', 'f99').stderr, /unknown dtype "f99"/);
  assert.match(wick('parity', '--jobs', '0').stderr, /--jobs "0" is not a whole number/);
});
test('a device asked for that is not there makes the exit status 1', () => {
  const { status, stdout } = wick('parity', '--device', 'abacus:0');
  assert.equal(status, 1);
  assert.match(stdout, /abacus:0: .*unknown device/);
});
test('Ctrl-C leaves a valid partial report', async () => {
  const file = join(scratch(), 'report.json');
  // A run of many minutes, so that the signal comes before its end on any machine.
  const child = spawn(
    process.execPath,
    [main, 'parity', '--device', 'cpu', '--device', 'reference', '--against', 'reference,candle,torch', '--save', file],
    { stdio: ['ignore', 'pipe', 'pipe'] },
  );
  child.stderr.once('data', () => child.kill('SIGINT'));
  const status = await new Promise((done) => child.on('exit', done));
  assert.equal(status, 130);
  const report = parseReport(readFileSync(file, 'utf8'), file);
  assert.equal(report.complete, false);
});

// `wick certify`: everything wick can check, on the GPU at hand, in about ten minutes; ends with a table and one file
// to send in.
import '../index.js';
import { writeFileSync } from 'node:fs';
import { availableParallelism, homedir } from 'node:os';
import { resolve } from 'node:path';
import { parseArgs } from 'node:util';
import { GpuBackend } from '../backends/gpu/gpu.js';
import { ArgumentError, WickError } from '../base/errors.js';
import { machineReport } from '../driver/report.js';
import { evidenceName } from '../parity/evidence.js';
import { GOLDEN_PACKAGE, goldenFolder } from '../parity/golden.js';
import { reportJson } from '../parity/json.js';
import { goldenModels } from '../parity/models.js';
import { AGAINST, type Cell, failed, type Report, totals } from '../parity/report.js';
import { runParity } from '../parity/run.js';
import { Device } from '../tensor/device.js';
import { measureSpeed, type Speed } from './certify-speed.js';
import { compileAll } from './kernels.js';
import { wholeOf } from './options.js';
import { clock, progressBar, watched } from './progress.js';
import { table, wrap } from './table.js';

const HELP = `wick certify [options]: checks wick on your GPU and writes one file to send in. About ten minutes on a
GPU and eight cores; only the driver's user-space libraries are needed. It compiles every kernel, runs every op in every
dtype and layout, compares with Candle's and PyTorch's numbers and with whole models, runs our own kernels where a
library would serve, and takes a dozen times.
  --device NAME   rocm:0, cuda:0 (default: the first GPU found); emu:gfx1030 and sim:32 run without a GPU, slowly:
                  add --quick
  --quick         a sample: two kernels of each module, one case of each op in f32, f16 and f64, one model
  --out FILE      where the file goes (default: wick-certify-DEVICE.json)
  --jobs N        processes (default: as many as there are cores)`;

/** What the libraries serve where they are there: asked a second time with our own kernels. */
const BY_LIBRARY = ['bmm', 'matmul', 'conv1d', 'conv2d', 'convTranspose1d', 'convTranspose2d'];
const QUICK = { kernels: 2, cases: 1, dtypes: ['f32', 'f16', 'f64'], model: 'llama' } as const;

interface Line {
  readonly step: string;
  readonly result: string;
  readonly ok: boolean;
  readonly seconds: number;
}
/** What a certificate adds to a report. */
interface Certificate {
  readonly quick: boolean;
  readonly machine: unknown;
  readonly steps: readonly Line[];
  readonly speed: readonly Speed[];
}

export async function run(argv: readonly string[]): Promise<number> {
  const { values } = parseArgs({
    args: [...argv],
    options: {
      help: { type: 'boolean', short: 'h' },
      device: { type: 'string' },
      quick: { type: 'boolean', default: false },
      out: { type: 'string' },
      jobs: { type: 'string' },
    },
  });
  if (values.help) {
    console.log(HELP);
    return 0;
  }
  const jobs = wholeOf('certify', 'jobs', values.jobs, 1) ?? availableParallelism();
  return certify(deviceFor(values.device), values.quick, jobs, values.out);
}

/** The device named, or the first GPU there is. */
function deviceFor(name: string | undefined): Device {
  const device = Device.get(name ?? firstGpu());
  if (device.backend instanceof GpuBackend) return device;
  throw new ArgumentError(`certify: ${device.name} is no GPU; wick parity --device ${device.name} measures it`);
}
function firstGpu(): string {
  const { drivers } = machineReport();
  const found = drivers.find((d) => d.devices.length > 0);
  if (found) return `${found.kind}:0`;
  throw new ArgumentError(
    `certify: there is no GPU here. ${drivers.map((d) => d.missing).join('; ')}. To see what it does: wick certify ` +
      '--device emu:gfx1030 --quick',
  );
}

/** What a step says, and what it leaves. */
interface Done<T> {
  readonly says: readonly Omit<Line, 'seconds'>[];
  readonly value?: T;
}
/** Steps one after another: one that throws is a failed one, and the others go on. */
class Steps {
  readonly lines: Line[] = [];
  readonly #start = Date.now();

  get elapsed(): string {
    return clock((Date.now() - this.#start) / 1000);
  }
  get ok(): boolean {
    return this.lines.every((l) => l.ok);
  }
  async take<T>(title: string, work: () => Promise<Done<T>>): Promise<T | undefined> {
    const began = Date.now();
    process.stderr.write(`${this.elapsed}  ${title}\n`);
    let done: Done<T>;
    try {
      done = await work();
    } catch (e) {
      if (!(e instanceof WickError)) throw e;
      done = { says: [{ step: title, result: e.message.split('\n')[0], ok: false }] };
    }
    const seconds = Math.round((Date.now() - began) / 100) / 10;
    done.says.forEach((l, i) => this.lines.push({ ...l, seconds: i === 0 ? seconds : 0 }));
    return done.value;
  }
}

async function compiled(arch: string, jobs: number, quick: boolean): Promise<Done<void>> {
  const [s] = await compileAll(arch, jobs, quick ? QUICK.kernels : undefined);
  const result = `${s.kernels} kernels by ${s.compiler}, ${s.failed.length} failed`;
  return { says: [{ step: 'kernels', result, ok: s.failed.length === 0 }] };
}

const scopeOf = (quick: boolean) => (quick ? { sample: QUICK.cases, dtypes: QUICK.dtypes } : {});

async function allNumbers(device: Device, jobs: number, quick: boolean): Promise<Done<Report>> {
  const golden = goldenFolder();
  const models = golden ? goldenModels(golden).filter((m) => m === QUICK.model) : [];
  const of = { devices: [device.name], against: AGAINST, jobs, ...scopeOf(quick), ...(quick && { models }) };
  const value = await watched((w) => runParity({ ...of, ...w }));
  const says = AGAINST.map((a) =>
    summary(
      `against ${a}`,
      value.cells.filter((c) => c.against === a),
    ),
  );
  return { says: value.complete ? says : [...says, { step: 'numbers', result: 'stopped early', ok: false }], value };
}

/** Adds to the report what our own kernels give where a library serves. */
async function ownKernels(device: Device, jobs: number, quick: boolean, report: Report): Promise<Done<void>> {
  const own = `${device.name}+own`;
  const against = ['reference', 'candle', 'torch'] as const;
  const value = await watched((w) =>
    runParity({ devices: [own], against, ops: BY_LIBRARY, jobs, ...scopeOf(quick), ...w }),
  );
  report.cells.push(...value.cells);
  report.devices.push({ name: own, description: `${device.description}, without libraries` });
  return { says: [summary('own products', value.cells)] };
}

async function timed(device: Device): Promise<Done<readonly Speed[]>> {
  const bar = progressBar('kinds of work');
  const value = measureSpeed(device, bar.show);
  bar.end();
  const share = Math.min(...value.flatMap((s) => s.ofCopy ?? []));
  return {
    says: [{ step: 'speed', result: `${value.length} times; slowest share of copy ${share}`, ok: true }],
    value,
  };
}

async function certify(device: Device, quick: boolean, jobs: number, out: string | undefined): Promise<number> {
  const steps = new Steps();
  const { arch } = (device.backend as GpuBackend).context.device.info;
  const real = /^(cuda|rocm):/.test(device.name);
  const machine = await steps.take('the machine', async () => ({
    says: [{ step: 'device', result: `${device.name}: ${device.description}`, ok: true }],
    value: withoutHome(machineReport()),
  }));
  if (arch !== 'sim') await steps.take('compiling every kernel', () => compiled(arch, jobs, quick));
  const report = (await steps.take('every op, Candle, PyTorch, models', () =>
    allNumbers(device, jobs, quick),
  )) as Report;
  if (real) await steps.take("our own kernels in the libraries' place", () => ownKernels(device, jobs, quick, report));
  const speed = (real ? await steps.take('speed', () => timed(device)) : undefined) ?? [];

  const certificate: Certificate = { quick, machine, steps: steps.lines, speed };
  const name = evidenceName({ name: device.name, description: device.description });
  const file = resolve(out ?? `wick-certify-${name}.json`);
  writeFileSync(file, reportJson({ ...report, certificate } as Report));
  tell(steps.lines, speed, report);
  const verdict = steps.ok ? 'Everything holds' : 'Not everything holds: the table says what';
  const send = wrap(
    `Send it in: ${file} holds all of it (numbers, versions, no names or paths of yours). Open an issue in wick's ` +
      'repository, named after your GPU, and attach the file; failures are as welcome as successes. wick parity ' +
      `--from ${file} --html page.html shows it.`,
  );
  console.log(`\n${verdict}, in ${steps.elapsed}.\n\n${send}`);
  return steps.ok ? 0 : 1;
}

function summary(step: string, cells: readonly Cell[]): Omit<Line, 'seconds'> {
  const t = totals(cells);
  const cases = cells.reduce((n, c) => n + c.cases, 0);
  const result =
    cases === 0
      ? `no numbers to compare with; they come with npx -p wick -p ${GOLDEN_PACKAGE} wick certify`
      : `${cases} cases of ${new Set(cells.map((c) => c.op)).size}: ${Object.entries(t)
          .filter(([, n]) => n > 0)
          .map(([v, n]) => `${n} ${v}`)
          .join(', ')}`;
  return { step, result, ok: t.failed === 0 };
}

function tell(lines: readonly Line[], speed: readonly Speed[], report: Report): void {
  console.log(
    table(
      ['check', 'holds', 'result', 'seconds'],
      lines.map((l) => [l.step, l.ok ? 'yes' : 'NO', l.result, l.seconds === 0 ? '' : l.seconds]),
    ),
  );
  if (speed.length > 0)
    console.log(
      `\n${table(
        ['work', 'ms', 'GB/s', 'of copy', 'TFLOP/s'],
        speed.map((s) => [s.work, s.ms, s.gbPerSecond ?? '', s.ofCopy ?? '', s.tflops ?? '']),
      )}`,
    );
  if (!failed(report)) return;
  const said = report.cells.filter((c) => c.verdict === 'failed').flatMap((c) => c.why ?? []);
  console.log(
    `\nFailed:\n${said
      .slice(0, 20)
      .map((s) => `  ${s}`)
      .join('\n')}`,
  );
  if (said.length > 20) console.log(`  and ${said.length - 20} more, in the file`);
}

/** The report of the machine with the user's folder called ~. */
const withoutHome = (report: object): unknown =>
  JSON.parse(JSON.stringify(report).replaceAll(JSON.stringify(homedir()).slice(1, -1), '~'));

// A parity run: plans the cells of every device, fills them one by one, and can be stopped between any two.
import { execFileSync } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { arch, cpus, platform } from 'node:os';
import { join } from 'node:path';
import { packageRoot } from '../kernels/source.js';
import type { Row } from '../ops/op.js';
import { opList } from '../ops/table.js';
import type { Device } from '../tensor/device.js';
import { casesOf } from '../testing/cases.js';
import { probe } from '../testing/devices.js';
import { warm } from '../testing/warm.js';
import { runCandleCase } from './candle.js';
import { CANDLE_CALLS } from './candle-calls.js';
import { Golden, type GoldenCase, goldenFolder, hasGolden } from './golden.js';
import { runMatrixCase, type Wanted } from './matrix.js';
import { goldenModels, runModel } from './models.js';
import { addTo, type Against, type Cell, type Report, sourcesNow, unprovedOn } from './report.js';
import { runTorchCase } from './torch.js';

export interface RunOptions {
  readonly devices: readonly string[];
  readonly against: readonly Against[];
  /** Only these ops, by our name or the golden set's. */
  readonly ops?: readonly string[];
  /** Only these dtypes. */
  readonly dtypes?: readonly string[];
  /** Only these models of the golden folder. */
  readonly models?: readonly string[];
  readonly golden?: string;
  /** Called after every step. */
  readonly progress?: (done: number, all: number, what: string) => void;
  /** Asked between steps: true ends the run, and the report stands as far as it came. */
  readonly stopped?: () => boolean;
}

/** A step fills the cells of one op on one device. */
interface Step {
  readonly what: string;
  readonly run: (cells: Map<string, Cell>) => void;
}

const git = (...args: string[]): string => {
  try {
    return execFileSync('git', args, { cwd: packageRoot, encoding: 'utf8', stdio: ['ignore', 'pipe', 'ignore'] }).trim();
  } catch {
    return ''; // an installed package has no history
  }
};
export const commitNow = (): string => {
  const commit = git('rev-parse', '--short=12', 'HEAD');
  return commit && `${commit}${git('status', '--porcelain', '--', 'kernels', 'native', 'src/ops') ? '+' : ''}`;
};
const versionNow = (): string => (JSON.parse(readFileSync(join(packageRoot, 'package.json'), 'utf8')) as { version: string }).version;

function matrixSteps(device: Device, rows: readonly Row[], known: Map<string, Wanted>, wants: (c: { dtype: string }) => boolean): Step[] {
  return rows.map((row) => ({
    what: `${row.name} on ${device.name}`,
    run: (cells) => {
      const wanted = known.get(row.name) ?? new Map();
      known.set(row.name, wanted);
      for (const c of casesOf([row])) if (wants(c)) addTo(cells, device.name, 'reference', runMatrixCase(c, device, wanted), c.values ? 'edges' : c.layout);
    },
  }));
}

function goldenSteps(golden: Golden, device: Device, against: 'candle' | 'torch', wants: (c: GoldenCase) => boolean): Step[] {
  const one = against === 'candle' ? runCandleCase : runTorchCase;
  return [...golden.byOp()].filter(([, cases]) => cases.some(wants)).map(([op, cases]) => ({
    what: `${op} of ${against} on ${device.name}`,
    run: (cells) => { for (const c of cases) if (wants(c)) addTo(cells, device.name, against, one(golden, c, device)); },
  }));
}

/** What goes wrong in a dry run goes wrong again, and is seen, in the run itself. */
function attempt(run: () => void): void {
  try {
    run();
  } catch {
    return;
  }
}

const camel = (name: string): string => name.replace(/_(\w)/g, (_, c: string) => c.toUpperCase());
const named = (ops: readonly string[] | undefined) => (c: GoldenCase): boolean =>
  !ops || ops.includes(c.op) || ops.includes(camel(c.op)) || (Object.hasOwn(CANDLE_CALLS, c.op) && ops.includes(CANDLE_CALLS[c.op].row ?? ''));

export async function runParity(options: RunOptions): Promise<Report> {
  const start = Date.now();
  const found = options.devices.map(probe);
  const present = found.flatMap((p) => (p.device ? [p.device] : []));
  const dir = goldenFolder(options.golden);
  const sets = { candle: 'candle-cuda', torch: 'torch' } as const;
  const goldens: Partial<Record<Against, Golden>> = {};
  for (const a of ['candle', 'torch'] as const) {
    if (options.against.includes(a) && dir && hasGolden(dir, `${sets[a]}.json`)) goldens[a] = new Golden(dir, sets[a]);
  }
  const rows = opList.filter((r) => !options.ops || options.ops.includes(r.name));
  const known = new Map<string, Wanted>();
  const wanted = named(options.ops);
  const models = options.against.includes('models') && dir ? goldenModels(dir).filter((m) => !options.models || options.models.includes(m)) : [];
  const ofDtype = (c: { dtype: string }): boolean => !options.dtypes || options.dtypes.includes(c.dtype);
  const stepsOf = (d: Device): Step[] => [
    ...(options.against.includes('reference') && d.name !== 'reference' ? matrixSteps(d, rows, known, ofDtype) : []),
    ...(['candle', 'torch'] as const).flatMap((a) => { const g = goldens[a]; return g ? goldenSteps(g, d, a, (c) => ofDtype(c) && wanted(c)) : []; }),
    ...models.map((m) => ({ what: `${m} on ${d.name}`, run: (cells: Map<string, Cell>) => void addTo(cells, d.name, 'models', runModel(dir as string, m, d)) })),
  ];
  const steps = present.flatMap(stepsOf);
  for (const d of present) warm(d, (dry) => { for (const step of stepsOf(dry)) attempt(() => step.run(new Map())); });

  const devices = present.map((d) => ({ name: d.name, description: d.description }));
  const cells = new Map<string, Cell>();
  const report: Report = {
    version: 1, wick: versionNow(), commit: commitNow(), date: new Date().toISOString(), node: process.version,
    host: `${cpus()[0]?.model ?? 'unknown'}, ${cpus().length} cores, ${platform()} ${arch()}`, sources: sourcesNow(), devices,
    missing: found.filter((p) => p.missing).map((p) => ({ name: p.name, why: p.missing as string })),
    golden: Object.fromEntries(Object.entries(goldens).map(([a, g]) => [a, g.source])), unproved: unprovedOn(devices),
    complete: false, seconds: 0, cells: [],
  };
  let done = 0;
  let rest = Date.now();
  for (const step of steps) {
    if (options.stopped?.()) break;
    step.run(cells);
    done++;
    options.progress?.(done, steps.length, step.what);
    if (Date.now() - rest > 50) {
      await new Promise((r) => setImmediate(r)); // lets signals in
      rest = Date.now();
    }
  }
  report.complete = done === steps.length;
  report.seconds = Math.round((Date.now() - start) / 100) / 10;
  report.cells = [...cells.values()];
  return report;
}

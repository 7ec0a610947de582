// What a parity run consists of: steps of one op each, the same list in every process that shares the run.
import { isFloat } from '../base/dtype.js';
import { ArgumentError } from '../base/errors.js';
import type { Row } from '../ops/op.js';
import { opList } from '../ops/table.js';
import type { Device } from '../tensor/device.js';
import { casesOf } from '../testing/cases.js';
import { probe, type Probe } from '../testing/devices.js';
import { warm } from '../testing/warm.js';
import { runCandleCase } from './candle.js';
import { candleCall } from './candle-calls.js';
import { Golden, type GoldenCase, goldenFolder, hasGolden } from './golden.js';
import { MatrixCase } from './matrix.js';
import { goldenModels, runModel } from './models.js';
import { sourcesNow } from './provenance.js';
import { addTo, type Against, type Cell } from './report.js';
import { runTorchCase } from './torch.js';

/** What to measure; plain data, so that it can be handed to another process. */
export interface Scope {
  readonly devices: readonly string[];
  readonly against: readonly Against[];
  /** Only these ops, by our name or the golden set's. */
  readonly ops?: readonly string[];
  /** Only these dtypes. */
  readonly dtypes?: readonly string[];
  /** Only these models of the golden folder. */
  readonly models?: readonly string[];
  readonly golden?: string;
  /** At most so many cases of an op in a dtype, spread over all of them. */
  readonly sample?: number;
}

/** At most `most` of a list, spread over it. */
const spread = <T>(all: readonly T[], most: number | undefined): readonly T[] =>
  most === undefined || all.length <= most
    ? all
    : Array.from({ length: most }, (_, i) => all[Math.floor((i * all.length) / most)]);

/**
 * A step fills the cells of one op on all devices; it may be left between any two cases, and yields after each whether
 * all is well.
 */
export interface Step {
  readonly what: string;
  readonly against: Against;
  readonly op: string;
  readonly dtype: string;
  readonly cases: number;
  readonly run: (cells: Map<string, Cell>, devices: readonly Device[]) => Generator<boolean>;
}

export interface Plan {
  readonly found: readonly Probe[];
  readonly devices: readonly Device[];
  readonly goldens: Partial<Record<Against, Golden>>;
  readonly steps: readonly Step[];
}

const count = (all: Iterable<unknown>): number => {
  let n = 0;
  for (const _ of all) n++;
  return n;
};

/**
 * Compilers that are slow to start are given an op's kernels of all dtypes at once; elsewhere a dtype is a step of its
 * own.
 */
const compilesByOp = (d: Device): boolean => /^(sim|emu):/.test(d.name);

function matrixSteps(
  rows: readonly Row[],
  wants: (c: { dtype: string }) => boolean,
  whole: boolean,
  sample: number | undefined,
): Step[] {
  return rows.flatMap((row) => {
    const dtypes = row.dtypes.filter((dtype) => wants({ dtype }));
    const parts = whole ? [dtypes] : dtypes.map((d) => [d]);
    return parts
      .filter((p) => p.length > 0)
      .map(
        (part): Step => ({
          what: whole ? row.name : `${row.name} ${part[0]}`,
          against: 'reference',
          op: row.name,
          dtype: part[0],
          cases: part.reduce((n, d) => n + spread([...casesOf([row], d)], sample).length, 0),
          *run(cells, devices) {
            for (const dtype of part) {
              for (const c of spread([...casesOf([row], dtype)], sample)) {
                const one = new MatrixCase(c);
                let well = true;
                for (const d of devices) {
                  if (d.name === 'reference') continue;
                  const result = one.run(d);
                  addTo(cells, d.name, 'reference', result, c.values ? 'edges' : c.layout);
                  well &&= result.verdict !== 'failed';
                }
                yield well;
              }
            }
          },
        }),
      );
  });
}

function goldenSteps(
  golden: Golden,
  against: 'candle' | 'torch',
  wants: (c: GoldenCase) => boolean,
  sample: number | undefined,
): Step[] {
  const one = against === 'candle' ? runCandleCase : runTorchCase;
  return [...golden.byOp()]
    .map(([op, all]) => [op, spread(all.filter(wants), sample)] as const)
    .filter(([, cases]) => cases.length > 0)
    .map(
      ([op, cases]): Step => ({
        what: `${op} of ${against}`,
        against,
        op,
        dtype: cases[0].dtype,
        cases: cases.length,
        *run(cells, devices) {
          for (const c of cases) {
            const results = devices.map((d) => one(golden, c, d));
            results.forEach((r, i) => addTo(cells, devices[i].name, against, r));
            yield results.every((r) => r.verdict !== 'failed');
          }
        },
      }),
    );
}

const modelStep = (dir: string, name: string): Step => ({
  what: `model ${name}`,
  against: 'models',
  op: name,
  dtype: 'f32',
  cases: 1,
  *run(cells, devices) {
    for (const d of devices) {
      const result = runModel(dir, name, d);
      addTo(cells, d.name, 'models', result);
      yield result.verdict !== 'failed';
    }
  },
});

const camel = (name: string): string => name.replace(/_(\w)/g, (_, c: string) => c.toUpperCase());
const named =
  (ops: readonly string[] | undefined) =>
  (c: GoldenCase): boolean =>
    !ops || ops.includes(c.op) || ops.includes(camel(c.op)) || ops.includes(candleCall(c.op)?.row ?? '');

/**
 * Rows that take longest stand first, so that no process is left with one of them at the end: those that are not
 * elementwise, by their cases.
 */
const longestFirst = (a: Row, b: Row): number =>
  Number(a.family === 'elementwise') - Number(b.family === 'elementwise') ||
  b.dtypes.filter(isFloat).length - a.dtypes.filter(isFloat).length;

export function planParity(scope: Scope): Plan {
  const found = scope.devices.map(probe);
  const devices = found.flatMap((p) => (p.device ? [p.device] : []));
  const dir = goldenFolder(scope.golden);
  const sets = { candle: ['candle-cuda'], torch: ['torch', 'ops', 'breadth'] } as const;
  const goldens: Partial<Record<Against, Golden>> = {};
  for (const a of ['candle', 'torch'] as const) {
    if (scope.against.includes(a) && dir && sets[a].some((set) => hasGolden(dir, `${set}.json`)))
      goldens[a] = new Golden(dir, ...sets[a]);
  }
  const rows = opList.filter((r) => !scope.ops || scope.ops.includes(r.name)).sort(longestFirst);
  const wanted = named(scope.ops);
  const served = scope.against.includes('models') && dir ? goldenModels(dir) : [];
  const unknown = scope.models?.find((m) => !served.includes(m));
  if (unknown !== undefined)
    throw new ArgumentError(
      `parity: there is no model ${JSON.stringify(unknown)} in ${
        dir ? `hf/ of ${dir}` : 'any golden folder'
      }; there are ${served.join(', ') || 'none'}`,
    );
  const models = served.filter((m) => !scope.models || scope.models.includes(m));
  const ofDtype = (c: { dtype: string }): boolean => !scope.dtypes || scope.dtypes.includes(c.dtype);
  const steps = [
    ...models.map((m) => modelStep(dir as string, m)),
    ...(scope.against.includes('reference') && devices.some((d) => d.name !== 'reference')
      ? matrixSteps(rows, ofDtype, devices.some(compilesByOp), scope.sample)
      : []),
    ...(['candle', 'torch'] as const).flatMap((a) => {
      const g = goldens[a];
      return g ? goldenSteps(g, a, (c) => ofDtype(c) && wanted(c), scope.sample) : [];
    }),
  ];
  return { found, devices, goldens, steps };
}

/** What goes wrong in a dry run goes wrong again, and is seen, in the run itself. */
function attempt(run: () => void): void {
  try {
    run();
  } catch {
    return;
  }
}

/** Units made from rows bear the rows' names: their kernels are those of elementwise.hip. */
const moduleOf = (unit: string): string => (Object.hasOwn(sourcesNow().modules.host, unit) ? unit : 'elementwise');

/**
 * Runs a step, telling which kernel modules it launched; `rest` is told after each case whether all is well, and says
 * whether to stop. Resolves to whether it came to its end.
 */
export async function runStep(
  step: Step,
  devices: readonly Device[],
  cells: Map<string, Cell>,
  uses: Record<string, string[]>,
  rest: (well: boolean) => Promise<boolean>,
): Promise<boolean> {
  for (const d of devices) warm(d, (dry) => attempt(() => count(step.run(new Map(), [dry]))));
  const gpus = devices.flatMap((d) => d.backend.gpu?.context ?? []);
  for (const gpu of gpus) gpu.launched = new Set();
  try {
    for (const well of step.run(cells, devices)) if (await rest(well)) return false;
    return true;
  } finally {
    for (const gpu of gpus) {
      const modules = [...(gpu.launched ?? [])].map((fn) => moduleOf(gpu.functions.moduleOf.get(fn) as string));
      if (step.against === 'reference' && modules.length > 0)
        uses[step.op] = [...new Set([...(uses[step.op] ?? []), ...modules])].sort();
      gpu.launched = undefined;
    }
  }
}

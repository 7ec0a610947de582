// A parity run: measures step by step, here or in several processes at once, and can be stopped between any two cases.
import { arch, availableParallelism, cpus, platform } from 'node:os';
import { planParity, runStep, type Scope } from './plan.js';
import { type Meter, runShared } from './processes.js';
import { commitNow, sourcesNow, versionNow } from './provenance.js';
import { type Cell, inOrder, type Report, unprovedOn } from './report.js';

export interface RunOptions extends Scope {
  /** Processes; as many as the machine has cores where there is enough to do. */
  readonly jobs?: number;
  /** The first failure ends the run. */
  readonly bail?: boolean;
  /** Called as cases are done. */
  readonly progress?: Meter;
  /** Asked between cases: true ends the run, and the report stands as far as it came. */
  readonly stopped?: () => boolean;
}

/** Another process costs as much as this many cases. */
const CASES_A_JOB = 400;
/** How often a run looks up: signals come in, the bar moves. */
const REST_MS = 50;

/** A report of nothing so far. */
function emptyReport(plan: ReturnType<typeof planParity>, devices: Report['devices']): Report {
  return {
    version: 1,
    wick: versionNow(),
    commit: commitNow(),
    date: new Date().toISOString(),
    node: process.version,
    host: `${cpus()[0]?.model ?? 'unknown'}, ${cpus().length} cores, ${platform()} ${arch()}`,
    sources: sourcesNow(),
    devices,
    missing: plan.found.filter((p) => p.missing).map((p) => ({ name: p.name, why: p.missing as string })),
    golden: Object.fromEntries(Object.entries(plan.goldens).map(([a, g]) => [a, g.source])),
    unproved: unprovedOn(devices),
    uses: {},
    complete: false,
    seconds: 0,
    cells: [],
  };
}

export async function runParity(options: RunOptions): Promise<Report> {
  const start = Date.now();
  const { jobs, bail, progress, stopped: _, ...scope } = options;
  let broken = false;
  const stopped = (): boolean => (bail === true && broken) || (options.stopped?.() ?? false);
  const plan = planParity(scope);
  const all = plan.steps.reduce((n, s) => n + s.cases, 0);
  const processes = Math.min(
    jobs ?? availableParallelism(),
    plan.steps.length,
    jobs ? Infinity : Math.ceil((all * plan.devices.length) / CASES_A_JOB),
  );
  const devices = plan.devices.map((d) => ({ name: d.name, description: d.description }));
  const cells = new Map<string, Cell>();
  const report = emptyReport(plan, devices);
  if (processes > 1)
    report.complete = await runShared(plan, scope, processes, {
      cells,
      uses: report.uses,
      all,
      stopped,
      failed: () => {
        broken = true;
      },
      ...(progress && { progress }),
    });
  else {
    let done = 0;
    let looked = Date.now();
    let what = '';
    const rest = async (well: boolean): Promise<boolean> => {
      broken ||= !well;
      done++;
      if (Date.now() - looked > REST_MS) {
        await new Promise((r) => setImmediate(r));
        looked = Date.now();
      }
      progress?.(done, all, what);
      return stopped();
    };
    report.complete = true;
    for (const step of plan.steps) {
      what = step.what;
      report.complete = !stopped() && (await runStep(step, plan.devices, cells, report.uses, rest));
      if (!report.complete) break;
    }
  }
  report.seconds = Math.round((Date.now() - start) / 100) / 10;
  report.cells = inOrder(cells.values(), devices);
  return report;
}

// A parity run over several processes: each asks for the next step when it is done with one, and what it measured is
// joined here.
import { fork, type ChildProcess } from 'node:child_process';
import { fileURLToPath } from 'node:url';
import type { Plan, Scope, Step } from './plan.js';
import { addTo, type Cell, mergeInto } from './report.js';

export type Meter = (done: number, all: number, what: string) => void;

/** From here to a process. */
export type Order = { readonly scope: Scope } | { readonly step: number } | { readonly stop: true };
/** From a process to here. */
export type Answer =
  | { readonly cases: number; readonly what: string }
  | { readonly done: number; readonly whole: boolean; readonly cells: Cell[]; readonly uses: Record<string, string[]> };

interface Joined {
  readonly cells: Map<string, Cell>;
  readonly uses: Record<string, string[]>;
  readonly all: number;
  readonly progress?: Meter;
  readonly stopped: () => boolean;
  /** Called with every step that failed. */
  readonly failed: () => void;
}

/** A process that died took its step's numbers with it: that is a failure of the op on every device. */
function lost(step: Step, plan: Plan, how: string, cells: Map<string, Cell>): void {
  for (const d of plan.devices) {
    addTo(cells, d.name, step.against, {
      name: step.what,
      op: step.op,
      dtype: step.dtype as never,
      verdict: 'failed',
      bound: 0,
      why: `the process that ran it ended with ${how}`,
    });
  }
}

/** Resolves to whether every step came to its end. */
export async function runShared(plan: Plan, scope: Scope, processes: number, joined: Joined): Promise<boolean> {
  const queue = plan.steps.map((_, i) => i);
  let done = 0;
  let whole = true;
  let live: ChildProcess[] = [];
  const stopping = joined.stopped;
  const watch = setInterval(() => {
    if (stopping()) for (const c of live) if (c.connected) c.send({ stop: true } satisfies Order);
  }, 100);

  const worker = (): Promise<void> =>
    new Promise((resolve) => {
      const child = fork(fileURLToPath(new URL('./worker.js', import.meta.url)), {
        stdio: ['ignore', 'ignore', 'inherit', 'ipc'],
      });
      live.push(child);
      let at: number | undefined;
      const next = (): void => {
        at = stopping() ? undefined : queue.shift();
        if (at === undefined) child.disconnect();
        else child.send({ step: at } satisfies Order);
      };
      child.on('message', (m: Answer) => {
        if ('cases' in m) {
          done += m.cases;
          joined.progress?.(done, joined.all, m.what);
          return;
        }
        for (const c of m.cells) mergeInto(joined.cells, c);
        if (m.cells.some((c) => c.verdict === 'failed')) joined.failed();
        for (const [op, modules] of Object.entries(m.uses))
          joined.uses[op] = [...new Set([...(joined.uses[op] ?? []), ...modules])].sort();
        whole &&= m.whole;
        at = undefined;
        next();
      });
      child.on('exit', (code, signal) => {
        live = live.filter((c) => c !== child);
        if (at === undefined) return resolve();
        joined.failed();
        lost(plan.steps[at], plan, signal ?? `status ${code}`, joined.cells);
        resolve(queue.length > 0 && !stopping() ? worker() : undefined);
      });
      child.send({ scope } satisfies Order);
      next();
    });
  const kill = (): void => {
    for (const c of live) c.kill('SIGKILL');
  };
  process.on('exit', kill); // a second Ctrl-C ends everything at once
  await Promise.all(Array.from({ length: processes }, worker));
  process.off('exit', kill);
  clearInterval(watch);
  return whole && queue.length === 0;
}

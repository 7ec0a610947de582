// One of the processes of a parity run: measures the steps it is given and tells what it found.
import '../index.js';
import { planParity, runStep, type Plan } from './plan.js';
import type { Answer, Order } from './processes.js';
import type { Cell } from './report.js';

const TELL_MS = 100;
const tell = (a: Answer): void => void process.send?.(a);
let plan: Plan | undefined;
let stop = false;

async function measure(at: number): Promise<void> {
  const { steps, devices } = plan as Plan;
  const cells = new Map<string, Cell>();
  const uses: Record<string, string[]> = {};
  let cases = 0;
  let told = Date.now();
  const report = (): void => {
    tell({ cases, what: steps[at].what });
    cases = 0;
    told = Date.now();
  };
  const whole = await runStep(steps[at], devices, cells, uses, async () => {
    cases++;
    if (Date.now() - told > TELL_MS) {
      report();
      await new Promise((r) => setImmediate(r));
    }
    return stop;
  });
  report();
  tell({ done: at, whole, cells: [...cells.values()], uses });
}

process.on('SIGINT', () => {}); // Ctrl-C reaches the whole group: the first process decides
process.on('disconnect', () => process.exit(0));
process.on('message', (order: Order) => {
  if ('scope' in order) plan = planParity(order.scope);
  else if ('stop' in order) stop = true;
  else void measure(order.step);
});

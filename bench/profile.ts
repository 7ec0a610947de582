// Where a step's time goes on a GPU: an event behind every op, the time between two is the later one's.
import type { View } from '../src/backends/backend.js';
import { GpuBackend } from '../src/backends/gpu/gpu.js';
import { table } from '../src/cli/table.js';
import type { Device } from '../src/index.js';

interface Seen {
  count: number;
  ms: number;
}
const shapes = (views: readonly View[]): string =>
  views
    .slice(0, 3)
    .map((v) => `${v.dtype}[${v.layout.shape.join('x')}]${v.layout.isContiguous ? '' : '*'}`)
    .join(' ');

/** A table of ops, the longest first: by name, and by name and shapes (a star: not dense). GPUs alone have events. */
export async function profiled(device: Device, step: () => void, lines = 40): Promise<string> {
  const { backend } = device;
  if (!(backend instanceof GpuBackend)) return `${device.name} has no events to measure by`;
  const { context } = backend;
  const marks: { readonly label: string; readonly op: string; readonly event: number }[] = [];
  const mark = (op: string, label: string): void => {
    const event = context.device.createEvent(true);
    context.device.record(event, context.stream);
    marks.push({ op, label, event });
  };
  const [run, runChain] = [backend.run.bind(backend), backend.runChain.bind(backend)];
  step(); // the GPU falls behind, so that what follows does not wait for the host
  step();
  mark('', '');
  backend.run = (row, inputs, outputs, params) => {
    run(row, inputs, outputs, params);
    mark(row.name, `${row.name} ${shapes(inputs)}`);
  };
  backend.runChain = (steps, inputs, out) => {
    runChain(steps, inputs, out);
    const name = steps.map((s) => s.row.name).join('+');
    mark(name, `${name} ${shapes(inputs)}`);
  };
  try {
    step();
  } finally {
    Object.assign(backend, { run, runChain });
  }
  await device.sync();
  const [byOp, byLabel] = [new Map<string, Seen>(), new Map<string, Seen>()];
  let total = 0;
  for (let i = 1; i < marks.length; i++) {
    const ms = context.device.elapsed(marks[i - 1].event, marks[i].event);
    total += ms;
    for (const [map, key] of [
      [byOp, marks[i].op],
      [byLabel, marks[i].label],
    ] as const) {
      const seen = map.get(key) ?? { count: 0, ms: 0 };
      map.set(key, { count: seen.count + 1, ms: seen.ms + ms });
    }
  }
  for (const { event } of marks) context.device.destroyEvent(event);
  const show = (map: Map<string, Seen>): string =>
    table(
      ['op', 'times', 'ms', 'share'],
      [...map]
        .sort((a, b) => b[1].ms - a[1].ms)
        .slice(0, lines)
        .map(([key, { count, ms }]) => [key, String(count), ms.toFixed(3), `${((100 * ms) / total).toFixed(1)} %`]),
    );
  return `${marks.length - 1} ops, ${total.toFixed(2)} ms\n${show(byOp)}\n${show(byLabel)}`;
}

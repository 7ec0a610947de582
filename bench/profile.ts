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

type Mark = { readonly label: string; readonly op: string; readonly event: number };

/** Marks ops while it is on; recorded work has none. */
export class OpMarks {
  readonly #backend: GpuBackend;
  readonly #marks: Mark[] = [];
  readonly #plain: Pick<GpuBackend, 'run' | 'runChain'>;
  /** GPUs alone have events. */
  static on(device: Device): OpMarks | undefined {
    return device.backend instanceof GpuBackend ? new OpMarks(device.backend) : undefined;
  }
  private constructor(backend: GpuBackend) {
    this.#backend = backend;
    const { run, runChain } = backend;
    this.#plain = { run: run.bind(backend), runChain: runChain.bind(backend) };
    this.#mark('', '');
    backend.run = (row, inputs, outputs, params) => {
      this.#plain.run(row, inputs, outputs, params);
      this.#mark(row.name, `${row.name} ${shapes(inputs)}`);
    };
    backend.runChain = (steps, inputs, out) => {
      this.#plain.runChain(steps, inputs, out);
      const name = steps.map((s) => ('row' in s ? s.row.name : 'number')).join('+');
      this.#mark(name, `${name} ${shapes(inputs)}`);
    };
  }
  #mark(op: string, label: string): void {
    const { device, stream, recording } = this.#backend.context;
    if (recording) return;
    const event = device.createEvent(true);
    device.record(event, stream);
    this.#marks.push({ op, label, event });
  }
  off(): void {
    Object.assign(this.#backend, this.#plain);
  }
  /** Two tables, the longest first: by name, and by name and shapes (a star: not dense). */
  async tables(lines: number): Promise<string> {
    await this.#backend.sync();
    const { device } = this.#backend.context;
    const marks = this.#marks;
    const [byOp, byLabel] = [new Map<string, Seen>(), new Map<string, Seen>()];
    let total = 0;
    for (let i = 1; i < marks.length; i++) {
      const ms = device.elapsed(marks[i - 1].event, marks[i].event);
      total += ms;
      for (const [map, key] of [
        [byOp, marks[i].op],
        [byLabel, marks[i].label],
      ] as const) {
        const seen = map.get(key) ?? { count: 0, ms: 0 };
        map.set(key, { count: seen.count + 1, ms: seen.ms + ms });
      }
    }
    for (const { event } of marks) device.destroyEvent(event);
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
}

/** Tables of a step's ops. */
export async function profiled(device: Device, step: () => void, lines = 40): Promise<string> {
  step(); // the GPU falls behind, so that what follows does not wait for the host
  step();
  const marks = OpMarks.on(device);
  if (!marks) return `${device.name} has no events to measure by`;
  try {
    step();
  } finally {
    marks.off();
  }
  return marks.tables(lines);
}

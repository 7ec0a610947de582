// Says on stderr what a benchmark is about to do, before it does it, and ends the process when one step takes too long:
// a device that hangs stops this thread, so another one watches.
import { writeSync } from 'node:fs';
import { Worker } from 'node:worker_threads';

const WATCH = `
const { workerData: { clock, name, limit } } = require('node:worker_threads');
const { writeSync } = require('node:fs');
const at = new Int32Array(clock), text = new Uint8Array(name);
for (;;) {
  const seen = Atomics.load(at, 0);
  if (Atomics.wait(at, 0, seen, limit * 1000) !== 'timed-out') { if (Atomics.load(at, 0) < 0) break; continue; }
  const step = Buffer.from(text.slice(0, Atomics.load(at, 1))).toString();
  writeSync(2, 'no end of this step after ' + limit + ' s, the process is killed: ' + step + '\\n');
  process.kill(process.pid, 'SIGKILL');
}`;
const MOST_BYTES = 256;

export interface Steps {
  /** The step that begins now. */
  begin(name: string): void;
  /** No step is under way any more. */
  end(): void;
}

/** Watches steps, each for `limit` seconds at most. */
export function watchSteps(limit: number): Steps {
  const [clock, name] = [new SharedArrayBuffer(8), new SharedArrayBuffer(MOST_BYTES)];
  const at = new Int32Array(clock);
  const start = performance.now();
  const worker = new Worker(WATCH, { eval: true, workerData: { clock, name, limit } });
  worker.unref();
  return {
    begin: (step) => {
      writeSync(2, `${((performance.now() - start) / 1000).toFixed(1).padStart(7)} s  ${step}\n`);
      const bytes = Buffer.from(step).subarray(0, MOST_BYTES);
      new Uint8Array(name).set(bytes);
      Atomics.store(at, 1, bytes.length);
      Atomics.add(at, 0, 1);
      Atomics.notify(at, 0);
    },
    end: () => {
      Atomics.store(at, 0, -1);
      Atomics.notify(at, 0);
    },
  };
}

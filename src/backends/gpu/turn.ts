// Work waits its turn while a kernel before it is being compiled: the host goes on, comes to further kernels and has
// them compiled meanwhile. Whoever reads results, gives memory back to the driver or records work waits for all of it.
import type { Device } from '../../driver/driver.js';

interface Waiting {
  readonly run: () => void;
  /** Whether it can run without waiting. */
  readonly ready: () => boolean;
}
const always = (): boolean => true;

export class Turn {
  readonly #waiting: Waiting[] = [];
  #next = 0;
  #running = false;
  #collected: (() => void)[] | undefined;
  readonly #around: (f: () => void) => void;

  /** `around` is given what runs work that has waited. */
  constructor(around: (f: () => void) => void) {
    this.#around = around;
  }
  /** Whether new work must wait behind other. */
  get taken(): boolean {
    return this.#collected !== undefined || (this.#waiting.length > 0 && !this.#running);
  }
  /** Runs f behind all that waits, once it is ready. */
  wait(run: () => void, ready: () => boolean = always): void {
    if (this.#collected) return void this.#collected.push(run);
    this.#waiting.push({ run, ready });
    this.#goOn(false);
  }
  /** Runs f: now, or behind what waits. */
  take(f: () => void): void {
    if (this.taken) this.wait(f);
    else f();
  }
  /** What f would enqueue, to be run when its turn comes, as often as is wanted. */
  collect(f: () => void): () => void {
    const runs: (() => void)[] = (this.#collected = []);
    try {
      f();
    } finally {
      this.#collected = undefined;
    }
    return () => {
      for (const run of runs) run();
    };
  }
  /** Runs all that waits. Work that fails stays the first: whoever comes later is told of it again. */
  finish(): void {
    if (this.#waiting.length > 0) this.#goOn(true);
  }
  #goOn(all: boolean): void {
    if (this.#running || !(all || this.#waiting[this.#next].ready())) return;
    this.#running = true;
    try {
      this.#around(() => {
        for (; this.#next < this.#waiting.length; this.#next++) {
          const { run, ready } = this.#waiting[this.#next];
          if (!all && !ready()) return;
          run();
        }
        this.#waiting.length = this.#next = 0;
      });
    } finally {
      this.#running = false;
    }
  }
}

/** Calls that enqueue something, or let go of what may be enqueued. */
const IN_TURN = [
  ...(['memset', 'copyInAsync', 'copyOutAsync', 'copy', 'freeAsync'] as const),
  ...(['streamWait', 'record', 'destroyEvent', 'launchGraph', 'destroyGraphExec'] as const),
] as const;
/** Calls that wait for the device, or after which it must have all. */
const AFTER_ALL = [
  ...(['free', 'freeHost', 'copyIn', 'copyOut', 'copyTo', 'synchronizeStream', 'destroyStream'] as const),
  ...(['queryEvent', 'synchronizeEvent', 'elapsed', 'beginCapture'] as const),
] as const;

/** The device as seen by those who keep to the turn. */
export function inTurn(device: Device, turn: Turn): Device {
  type Any = Record<string, (...args: unknown[]) => unknown>;
  const calls = device as unknown as Any;
  const seen: Any = {};
  for (const name of IN_TURN) seen[name] = (...args) => turn.take(() => void calls[name](...args));
  for (const name of AFTER_ALL)
    if (device[name])
      seen[name] = (...args) => {
        turn.finish();
        return calls[name](...args);
      };
  return new Proxy(device, {
    get: (_, name) => {
      const own = seen[name as string];
      if (own) return own;
      const value = Reflect.get(device, name) as unknown;
      return typeof value === 'function' ? (seen[name as string] = (...args) => calls[name as string](...args)) : value;
    },
  });
}

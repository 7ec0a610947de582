// Work that would hold up the event loop, done on another thread where the backend can.
import type { CausalLM } from '../models/index.js';

/** Milliseconds for which timers, sockets and Ctrl-C may wait for steps that this thread computes. */
const PATIENCE = 20;
/** The event loop's turns between steps: where they are computed here, promises alone never let it go on. */
export class LoopTurns {
  #last = performance.now();
  /** Lets the event loop go on where it has not for a while. */
  async next(): Promise<void> {
    if (performance.now() - this.#last < PATIENCE) return;
    await new Promise(setImmediate);
    this.#last = performance.now();
  }
}

/** What f asks of a model's device. Ranks that share a model talk to each other on the way, so theirs stays here. */
export function offThread<T>({ device: { backend }, shard, stage }: CausalLM, f: () => T): Promise<T> {
  return backend.elsewhere && !shard && !stage ? backend.elsewhere(f) : Promise.resolve().then(f);
}

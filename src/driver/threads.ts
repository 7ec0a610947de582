// Native calls on other threads: a compiler is busy for a tenth of a second, and this thread need not wait for it.
import { availableParallelism } from 'node:os';
import { Worker } from 'node:worker_threads';
import type { Native, NativeArg } from './ffi.js';

/** A call of a library that is open in this process already. Arguments must be numbers or texts. */
export interface NativeCall {
  readonly library: string;
  readonly prototype: string;
  readonly args: readonly NativeArg[];
}
/** A call for whoever takes it first. */
export interface SharedCall extends NativeCall {
  /** What another thread calls before it; any status but 0 is the answer to both. */
  readonly before?: NativeCall | undefined;
  /** How far it is, and what it answered. */
  readonly state: Int32Array;
}
/** What a call will answer. */
export interface Answer {
  readonly done: boolean;
  /** Waits for it, or makes the call here where nobody has begun it. */
  wait(): number;
}

const [STAGE, STATUS] = [0, 1];
const [GIVEN, TAKEN, OVER] = [0, 1, 2];
/** Makes a call unless another thread has taken it; -1 is what it answers if it throws. */
export function takeCall({ args, state }: SharedCall, fn: () => Native): void {
  if (Atomics.compareExchange(state, STAGE, GIVEN, TAKEN) !== GIVEN) return;
  state[STATUS] = -1;
  try {
    state[STATUS] = fn()(...args);
  } finally {
    Atomics.store(state, STAGE, OVER);
    Atomics.notify(state, STAGE);
  }
}

/** A compiler holds some hundred megabytes while it works. */
const MOST = 8;
const workers: { readonly worker: Worker; calls: Answer[] }[] = [];

/** The worker with the least to do; one more where all are busy and there are cores for it. */
function idlest(): (typeof workers)[number] {
  for (const w of workers) w.calls = w.calls.filter((c) => !c.done);
  const [best] = [...workers].sort((a, b) => a.calls.length - b.calls.length);
  if (best && (best.calls.length === 0 || workers.length >= Math.min(MOST, availableParallelism() - 1))) return best;
  const worker = new Worker(new URL('./call-thread.js', import.meta.url), { name: 'wick: native calls' });
  worker.unref(); // a process may end while they wait for more
  workers.push({ worker, calls: [] });
  return workers[workers.length - 1];
}

/** Makes a call on another thread; `here` is the function for this one, which needs no call before it. */
export function callElsewhere(here: Native, asked: NativeCall, before?: NativeCall): Answer {
  const state = new Int32Array(new SharedArrayBuffer(8));
  const call: SharedCall = { ...asked, before, state };
  const answer: Answer = {
    get done() {
      return Atomics.load(state, STAGE) === OVER;
    },
    wait: () => {
      takeCall(call, () => here);
      Atomics.wait(state, STAGE, TAKEN);
      return state[STATUS];
    },
  };
  const w = idlest();
  w.calls.push(answer);
  w.worker.postMessage(call);
  return answer;
}

/** Ends the threads; a later call begins new ones. */
export function endThreads(): void {
  for (const { worker } of workers.splice(0)) worker.postMessage(undefined);
}

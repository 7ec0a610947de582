// Worker threads that share a launch's groups with the calling thread: they sleep on a word of shared memory between
// launches.
import { MessageChannel, receiveMessageOnPort, Worker, type MessagePort } from 'node:worker_threads';
import { type Counts, noCounts } from './counts.js';
import { EmulatorError, type Executor, type Launch, type LoadedProgram } from './executor.js';
import type { Finding } from './checker.js';
import type { WasmMemory } from '../base/webassembly.js';

/** Words of the control block: job number, groups taken, workers still busy. */
export const CONTROL = { JOB: 0, NEXT: 1, BUSY: 2 } as const;

export interface Job {
  readonly launch: Launch;
  readonly arena: { at: number; bytes: number } | undefined;
  readonly groups: number;
  readonly program: LoadedProgram | undefined;
  readonly forget: readonly number[];
}
export type Answer = { readonly counts: Counts } | { readonly finding: Finding } | { readonly error: string };

export class ThreadPool {
  private readonly control = new Int32Array(new SharedArrayBuffer(64));
  private readonly workers: { readonly worker: Worker; readonly port: MessagePort; readonly programs: Set<number> }[] =
    [];
  private forgotten: number[] = [];

  constructor(memory: WasmMemory, workers: number) {
    for (let k = 0; k < workers; k++) {
      const { port1, port2 } = new MessageChannel();
      const worker = new Worker(new URL('./worker.js', import.meta.url), {
        workerData: { memory, control: this.control, port: port2 },
        transferList: [port2],
      });
      worker.unref();
      port1.unref();
      this.workers.push({ worker, port: port1, programs: new Set() });
    }
  }
  forget(program: number): void {
    this.forgotten.push(program);
  }

  run(
    executor: Executor,
    launch: Launch,
    program: LoadedProgram,
    arenas: readonly { at: number; bytes: number }[],
    groups: number,
  ): Counts {
    const { control } = this;
    Atomics.store(control, CONTROL.NEXT, 0);
    Atomics.store(control, CONTROL.BUSY, this.workers.length);
    this.workers.forEach((w, k) => {
      const job: Job = {
        launch,
        arena: arenas[k + 1],
        groups,
        program: w.programs.has(launch.program) ? undefined : program,
        forget: this.forgotten,
      };
      for (const id of this.forgotten) w.programs.delete(id);
      w.programs.add(launch.program);
      w.port.postMessage(job);
    });
    this.forgotten = [];
    Atomics.add(control, CONTROL.JOB, 1);
    Atomics.notify(control, CONTROL.JOB);
    let failure: unknown;
    let total = noCounts();
    try {
      total = executor.run(launch, arenas[0], () => takeGroup(control, groups));
    } catch (e) {
      failure = e;
      Atomics.store(control, CONTROL.NEXT, groups); // nobody starts another
    }
    for (let busy = Atomics.load(control, CONTROL.BUSY); busy > 0; busy = Atomics.load(control, CONTROL.BUSY))
      Atomics.wait(control, CONTROL.BUSY, busy);
    for (const w of this.workers) {
      const answer = receiveMessageOnPort(w.port)?.message as Answer | undefined;
      if (!answer) failure ??= new Error('emulator: a worker gave no answer');
      else if ('counts' in answer) for (const k of Object.keys(total) as (keyof Counts)[]) total[k] += answer.counts[k];
      else failure ??= 'finding' in answer ? new EmulatorError(answer.finding) : new Error(answer.error);
    }
    if (failure) throw failure;
    return total;
  }
  close(): void {
    for (const w of this.workers) void w.worker.terminate();
    this.workers.length = 0;
  }
}

export function takeGroup(control: Int32Array, groups: number): number {
  const g = Atomics.add(control, CONTROL.NEXT, 1);
  return g < groups ? g : -1;
}

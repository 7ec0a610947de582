// The body of a worker thread: waits for a launch, runs the groups it can take, answers with counts or the error.
import { receiveMessageOnPort, workerData, type MessagePort } from 'node:worker_threads';
import { noCounts } from './counts.js';
import { EmulatorError, Executor } from './executor.js';
import { CONTROL, takeGroup, type Answer, type Job } from './threads.js';
import type { WasmMemory } from '../base/webassembly.js';

const { memory, control, port } = workerData as { memory: WasmMemory; control: Int32Array; port: MessagePort };
const executor = new Executor(memory);

function work(job: Job): Answer {
  try {
    for (const id of job.forget) executor.removeProgram(id);
    if (job.program) executor.addProgram(job.launch.program, job.program);
    if (!job.arena) return { counts: noCounts() };
    return { counts: executor.run(job.launch, job.arena, () => takeGroup(control, job.groups)) };
  } catch (e) {
    Atomics.store(control, CONTROL.NEXT, job.groups);
    return e instanceof EmulatorError ? { finding: e.finding } : { error: String((e as Error).stack) };
  }
}

for (let seen = 0; ; ) {
  Atomics.wait(control, CONTROL.JOB, seen);
  seen = Atomics.load(control, CONTROL.JOB);
  const message = receiveMessageOnPort(port);
  if (!message) continue;
  port.postMessage(work(message.message as Job));
  Atomics.sub(control, CONTROL.BUSY, 1);
  Atomics.notify(control, CONTROL.BUSY);
}

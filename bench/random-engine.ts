// The thread of bench/random-server.js that computes: a model of random weights behind an engine.
import { parentPort, workerData, type MessagePort } from 'node:worker_threads';
import { runEngineThread } from '../src/engine/engine-thread.js';
import { TextEngine } from '../src/engine/index.js';
import { Device } from '../src/index.js';
import { IdleGpu } from '../src/testing/idle-gpu.js';
import { StepBreakdown } from './breakdown.js';
import { randomModel, wordTokenizer } from './random-model.js';

export interface RandomEngine {
  readonly shape: string;
  readonly device: string;
  readonly maxRunning: number;
  readonly stepTokens: number | undefined;
  readonly copying: boolean;
  readonly breakdown: boolean;
}

/** Writes where the steps' time went whenever all requests are answered. */
function tell(engine: TextEngine, breakdown: StepBreakdown): void {
  let seen = 0;
  setInterval(() => {
    const { running, waiting, finished } = engine.status();
    if (running + waiting > 0 || finished === seen) return;
    console.error(`${finished - seen} requests\n${breakdown}`);
    seen = finished;
    breakdown.clear();
  }, 200).unref();
}

/** A GPU that computes nothing and draws token after token: what is left is the host's work. */
async function idleDevice(): Promise<Device> {
  const { GpuBackend } = await import('../src/backends/gpu/gpu.js');
  const gpu = new IdleGpu(undefined, ['blas']);
  const { allocHost } = gpu;
  gpu.allocHost = (bytes) => {
    const made = allocHost.call(gpu, bytes);
    new Int32Array(made.bytes.buffer, 0, bytes >> 2).forEach((_, i, all) => (all[i] = 300 + ((i * 7919) % 3000)));
    return made;
  };
  return new (Device as unknown as new (b: object) => Device)(new GpuBackend('idle', gpu));
}

await runEngineThread(parentPort as MessagePort, async () => {
  const { shape, maxRunning, stepTokens, ...v } = workerData as RandomEngine;
  const device = v.device === 'idle' ? await idleDevice() : Device.get(v.device);
  const model = randomModel(shape, { device, copying: v.copying });
  const breakdown = new StepBreakdown();
  const engine = new TextEngine(model, wordTokenizer(model.config.vocabSize), {
    ...{ name: shape, maxRunning },
    ...(stepTokens !== undefined && { stepTokens }),
    ...(v.breakdown && { onStep: breakdown.add }),
  });
  engine.owns = model;
  if (v.breakdown) tell(engine, breakdown);
  return { engine, told: device.backend.description, dispose: () => engine.dispose() };
});

// The thread of `wick serve` that computes: the model, its ranks and its engine. src/cli/serve.ts listens.
import { parentPort, workerData, type MessagePort } from 'node:worker_threads';
import { runEngineThread } from '../engine/engine-thread.js';
import type { ExpertDivision } from '../models/index.js';
import { type EngineValues, openEngine } from './open-engine.js';
import { worldOf } from './world.js';

/** What it is to open. */
export interface ServedEngine {
  /** Which command asks. */
  readonly command: string;
  readonly values: EngineValues;
  readonly name: string;
  readonly maxWaiting?: number | undefined;
  readonly experts?: ExpertDivision | undefined;
}
/** What it has opened. */
export interface ServedFacts {
  readonly device: string;
  readonly parameters: number;
  readonly dtype: string;
  readonly loadSeconds: number;
  /** The ranks that share the model, in words. */
  readonly world?: string;
}

await runEngineThread<ServedFacts>(parentPort as MessagePort, async ({ progress, broken }) => {
  const { command, values, ...more } = workerData as ServedEngine;
  const world = await worldOf(values.device);
  const bar = { show: progress, end: () => {} };
  const open = await openEngine(command, values, { ...more, bar, ...(world && { world, onBroken: broken }) });
  const { engine, device, parameters, dtype, loadSeconds } = open;
  return {
    engine,
    told: { device: device.name, parameters, dtype, loadSeconds, ...(world && { world: String(world) }) },
    dispose: async () => {
      await open.dispose();
      world?.close();
    },
  };
});

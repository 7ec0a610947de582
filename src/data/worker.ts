// The thread of a loader in workers: imports the module, makes its dataset, packs what it is asked for.
import { parentPort, workerData } from 'node:worker_threads';
import '../tensor/methods.js';
import { pack, type PackedBatch } from './collate.js';
import type { Dataset } from './dataset.js';
import type { WorkerMessage, WorkerRequest } from './workers.js';

const port = parentPort as NonNullable<typeof parentPort>;
const say = (message: WorkerMessage, buffers: ArrayBuffer[] = []): void => port.postMessage(message, buffers);
const buffersOf = (batch: PackedBatch): ArrayBuffer[] =>
  Object.values(batch).flatMap((v) => (Array.isArray(v) ? [] : [v.bytes.buffer]));

try {
  const { url, options } = workerData as { url: string; options: unknown };
  const module = (await import(url)) as { dataset?: Dataset | ((options: unknown) => Dataset | Promise<Dataset>) };
  if (!module.dataset) throw new Error(`${url} exports no \`dataset\``);
  const dataset = typeof module.dataset === 'function' ? await module.dataset(options) : module.dataset;
  port.on('message', async ({ id, indices }: WorkerRequest) => {
    try {
      const batch = pack(await Promise.all(indices.map((i) => dataset.get(i))), dataset.dtypes);
      say({ kind: 'batch', id, batch }, buffersOf(batch));
    } catch (e) {
      say({ kind: 'failed', id, message: (e as Error).message });
    }
  });
  say({ kind: 'ready', length: dataset.length, dtypes: dataset.dtypes });
} catch (e) {
  say({ kind: 'failed', id: -1, message: (e as Error).message });
}

// Ranks as threads of this process, for tests and for trying things out: a module's function runs once per rank.
import { MessageChannel, Worker } from 'node:worker_threads';
import { ArgumentError, DistributedError } from '../base/errors.js';
import { deliver } from './hub-client.js';
import { Hub, type Request } from './hub.js';

/** How many ranks run as threads of this process, and on which devices. */
export interface LocalOptions {
  /** Given to every rank's function; plain data. */
  readonly data?: unknown;
  /** How long a rank waits for the others; default ten minutes. */
  readonly timeoutMs?: number;
}
/** What a rank's thread is started with. */
export interface LocalStart {
  readonly rank: number;
  readonly size: number;
  readonly module: string;
  readonly function: string;
  readonly data: unknown;
  readonly timeoutMs: number;
  readonly signal: Int32Array;
  readonly port: import('node:worker_threads').MessagePort;
}

/**
 * Runs `export function NAME(world, data)` of a module (a file: URL) on `size` ranks; answers what each returned, which
 * must be plain data. The first rank that fails ends the others.
 */
export async function runLocal(
  size: number,
  module: URL | string,
  name: string,
  options: LocalOptions = {},
): Promise<unknown[]> {
  if (!Number.isInteger(size) || size < 1)
    throw new ArgumentError(`runLocal: ${size} ranks; there must be one or more`);
  const timeoutMs = options.timeoutMs ?? 600_000;
  const channels = Array.from({ length: size }, () => ({
    channel: new MessageChannel(),
    signal: new Int32Array(new SharedArrayBuffer(4)),
  }));
  const hub = new Hub(timeoutMs, (rank, reply) => deliver(channels[rank].channel.port1, channels[rank].signal, reply));
  const workers = channels.map(({ channel, signal }, rank) => {
    channel.port1.on('message', (r: Request) => hub.receive(rank, r));
    const start: LocalStart = {
      ...{ rank, size, module: String(module), function: name, data: options.data, timeoutMs, signal },
      port: channel.port2,
    };
    return new Worker(new URL('./local-rank.js', import.meta.url), {
      workerData: start,
      transferList: [channel.port2],
    });
  });
  try {
    return await Promise.all(
      workers.map(
        (worker, rank) =>
          new Promise<unknown>((resolve, reject) => {
            worker.once('message', resolve);
            worker.once('error', reject);
            worker.once('exit', (code) =>
              reject(new DistributedError(`rank ${rank} of ${size}: ended with code ${code} and no answer`)),
            );
          }),
      ),
    );
  } finally {
    for (const { channel } of channels) channel.port1.close();
    await Promise.all(workers.map((w) => w.terminate()));
  }
}

// A server on an address: who may reach it is decided here; it ends in order, answers under way first.
import type { ServerResponse } from 'node:http';
import { getRequestListener } from '@hono/node-server';
import { type TakenAddress, takeAddress } from './address.js';
import { createApp } from './app.js';
import { isLoopback, type WantedAddress } from './keys.js';
import { DEFAULT_LIMITS, type Limits } from './limits.js';
import { type Log, silentLog } from './log.js';
import type { ServedModels } from './served.js';
import { ServerParts } from './server-parts.js';

/** Where to listen, who may ask, and how much. */
export interface ServeOptions extends WantedAddress {
  /** Limits other than the default ones. */
  readonly limits?: Partial<Limits>;
  /** Where lines of the log go; default: nowhere. */
  readonly log?: Log;
  /** The version that the API's description and status show. */
  readonly version?: string;
}
/** A server that listens. */
export interface RunningServer {
  /** Where it is reached: 'http://127.0.0.1:8080'. */
  readonly url: string;
  /** The port that it was given. */
  readonly port: number;
  /** What its routes share: models, limits, metrics. */
  readonly parts: ServerParts;
  /** Takes no new requests, waits for answers under way, then ends what is left. */
  close(graceSeconds?: number): Promise<void>;
}

/**
 * Listens with the APIs of OpenAI and Anthropic over these models. Only this machine can reach it unless a host is
 * given, and then a key is needed.
 */
export async function serve(models: ServedModels, options: ServeOptions = {}): Promise<RunningServer> {
  const address = await takeAddress(options);
  try {
    return serveAt(address, models, options);
  } catch (error) {
    await address.close();
    throw error;
  }
}

/** The same at an address that is taken. */
export function serveAt(
  { server, keys, host, port, url, answerBy }: TakenAddress,
  models: ServedModels,
  { limits, log = silentLog, version = '0' }: Omit<ServeOptions, keyof WantedAddress> = {},
): RunningServer {
  const parts = new ServerParts(models, { ...DEFAULT_LIMITS, ...limits }, log, version);
  const app = createApp(parts, { keys, onlyLocalNames: isLoopback(host) && !keys.required });
  // Bodies are read or discarded by our own routes, and the program's Request and Response stay its own.
  const own = { autoCleanupIncoming: false, overrideGlobalObjects: false };
  // Requests of HTTP/1.0 may name no host.
  answerBy(getRequestListener(app.fetch, { ...own, hostname: 'localhost' }));
  // Connections without a request, and those that never had one, do not count as answers under way.
  const unanswered = new Set<ServerResponse>();
  const endIfAnswered = (): void => {
    if (parts.closing && unanswered.size === 0) server.closeAllConnections();
  };
  server.on('request', (_, response: ServerResponse) => {
    unanswered.add(response);
    response.on('close', () => {
      unanswered.delete(response);
      endIfAnswered();
    });
  });
  let closed: Promise<void> | undefined;
  return {
    url,
    port,
    parts,
    close: (graceSeconds = 30) => {
      parts.closing = true;
      return (closed ??= new Promise((resolve) => {
        const hurry = setTimeout(() => server.closeAllConnections(), graceSeconds * 1000);
        server.close(() => {
          clearTimeout(hurry);
          resolve();
        });
        endIfAnswered();
      }));
    },
  };
}

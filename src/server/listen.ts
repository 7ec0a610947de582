// A server on an address: who may reach it is decided here; it ends in order, answers under way first.
import type { Server, ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import { createAdaptorServer } from '@hono/node-server';
import { ArgumentError } from '../base/errors.js';
import { createApp } from './app.js';
import { checkedAddress, isLoopback } from './keys.js';
import { DEFAULT_LIMITS, type Limits } from './limits.js';
import { type Log, silentLog } from './log.js';
import type { ServedModels } from './served.js';
import { ServerParts } from './server-parts.js';

/** Where to listen, who may ask, and how much. */
export interface ServeOptions {
  /** Default 127.0.0.1: this machine alone. */
  readonly host?: string;
  /** Default 8080; 0 takes a free one. */
  readonly port?: number;
  /** Keys of which one must be sent; none: this machine may ask without one. */
  readonly keys?: readonly string[];
  /** Listen for others without a key. */
  readonly withoutKeys?: boolean;
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
  const { log = silentLog, version = '0' } = options;
  const { host, port, keys } = checkedAddress(options);
  const limits = { ...DEFAULT_LIMITS, ...options.limits };
  const parts = new ServerParts(models, limits, log, version);
  const app = createApp(parts, { keys, onlyLocalNames: isLoopback(host) && !keys.required });
  const server = createAdaptorServer({
    fetch: app.fetch,
    // Bodies are read or discarded by our own routes, and the program's Request and Response stay its own.
    autoCleanupIncoming: false,
    overrideGlobalObjects: false,
    // The defaults of Node, said aloud: slow senders of headers and bodies are let go.
    serverOptions: { headersTimeout: 60_000, requestTimeout: 300_000, keepAliveTimeout: 65_000 },
  }) as Server;
  await new Promise<void>((resolve, reject) => {
    server.once('error', (error: NodeJS.ErrnoException) =>
      reject(new ArgumentError(`serve: ${host}:${port} cannot be listened on: ${error.code ?? error.message}`)),
    );
    server.listen(port, host, () => resolve());
  });
  const bound = (server.address() as AddressInfo).port;
  const shown = host.includes(':') ? `[${host.replace(/^\[|\]$/g, '')}]` : host;
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
    url: `http://${shown}:${bound}`,
    port: bound,
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

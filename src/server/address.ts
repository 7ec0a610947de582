// An address taken before a model is read for it: one that is not to be had is told at once. Until there is something
// to serve, whoever asks is told to come back, by /health as well.
import { createServer, type RequestListener, type Server } from 'node:http';
import type { AddressInfo } from 'node:net';
import { ArgumentError } from '../base/errors.js';
import { anthropicError, ApiError, openaiError } from './errors.js';
import { checkedAddress, type Keys, type WantedAddress } from './keys.js';
import { answerable, answerUnreadable } from './unreadable.js';

/** An address where this program listens. */
export interface TakenAddress {
  readonly server: Server;
  readonly keys: Keys;
  readonly host: string;
  readonly port: number;
  readonly url: string;
  /** From now on this answers. */
  answerBy(listener: RequestListener): void;
  /** Nobody serves there after all. */
  close(): Promise<void>;
}

const WHY: Readonly<Record<string, string>> = {
  EADDRINUSE: 'another program listens there; choose another port',
  EADDRNOTAVAIL: 'it is no address of this machine',
  EACCES: 'this user may not listen there',
  ENOTFOUND: 'there is no host of this name',
};
const SECONDS = '2';
/** Browsers come back by themselves; clients of the API read retry-after. */
const notYet: RequestListener = (request, response) => {
  const loading = new ApiError(503, 'the model is being loaded', { code: 'loading' });
  const shape = request.headers['anthropic-version'] === undefined ? openaiError : anthropicError;
  const body = request.url === '/health' ? { status: 'loading' } : shape(loading);
  response.writeHead(503, {
    'content-type': 'application/json',
    'retry-after': SECONDS,
    refresh: SECONDS,
    connection: 'close', // a body that nobody reads ends with it
  });
  response.end(JSON.stringify(body));
};

/** Listens there, or says why not. */
export async function takeAddress(wanted: WantedAddress): Promise<TakenAddress> {
  const { host, port, keys } = checkedAddress(wanted);
  let answer = notYet;
  // The defaults of Node, said aloud: slow senders of headers and bodies are let go.
  const timeouts = { headersTimeout: 60_000, requestTimeout: 300_000, keepAliveTimeout: 65_000 };
  // Node would refuse a request without a host as well, without a word.
  const server = createServer(
    { ...timeouts, requireHostHeader: false },
    answerable((request, response) => answer(request, response)),
  );
  answerUnreadable(server);
  await new Promise<void>((resolve, reject) => {
    server.once('error', ({ code = '', message }: NodeJS.ErrnoException) =>
      reject(new ArgumentError(`serve: ${host}:${port} cannot be listened on: ${WHY[code] ?? (code || message)}`)),
    );
    server.listen(port, host, () => resolve());
  });
  const bound = (server.address() as AddressInfo).port;
  const shown = host.includes(':') ? `[${host.replace(/^\[|\]$/g, '')}]` : host;
  return {
    ...{ server, keys, host, port: bound, url: `http://${shown}:${bound}` },
    answerBy: (listener) => {
      answer = listener;
    },
    close: () =>
      new Promise((resolve) => {
        server.close(() => resolve());
        server.closeAllConnections();
      }),
  };
}

// What cannot be read as HTTP is answered as well: by JSON that clients of both APIs understand, where Node by itself
// would send a status alone.
import {
  type IncomingMessage,
  maxHeaderSize,
  type RequestListener,
  type Server,
  type ServerResponse,
  STATUS_CODES,
} from 'node:http';
import type { Duplex } from 'node:stream';
import { anthropicError, ApiError, badRequest, openaiError } from './errors.js';

/** What Node's parser calls what is wrong, as clients read it; of the rest it is enough that it is no HTTP. */
const FAULTS: Readonly<Record<string, ApiError>> = {
  HPE_HEADER_OVERFLOW: new ApiError(431, `address and headers are longer than ${maxHeaderSize} bytes`),
  HPE_CHUNK_EXTENSIONS_OVERFLOW: new ApiError(413, "the body's chunks have too much beside their lengths"),
  HPE_INVALID_EOF_STATE: badRequest('the connection was closed before the request had ended'),
  ERR_HTTP_REQUEST_TIMEOUT: new ApiError(408, 'the request did not come to its end in time'),
};
const NO_HTTP = badRequest('the request is not valid HTTP/1.1');
/** Milliseconds for the client to read the answer and close. */
const PATIENCE = 1000;

/** The answer that ends a connection: its headers and its body. */
function lastAnswer(fault: ApiError): [headers: Record<string, string | number>, body: Buffer] {
  const body = Buffer.from(JSON.stringify({ ...anthropicError(fault), ...openaiError(fault) }));
  return [{ connection: 'close', 'content-type': 'application/json', 'content-length': body.length }, body];
}

/** What is HTTP, and still no request that a path could answer. */
function unanswerable({ httpVersion, headers, url = '' }: IncomingMessage): ApiError | undefined {
  if (httpVersion !== '1.0' && headers.host === undefined) return badRequest('a request of HTTP/1.1 names its host');
  if (!/^(\/|https?:\/\/)/i.test(url)) return badRequest(`${url} is no path of this server`);
  return undefined;
}
const refuse = (response: ServerResponse, fault: ApiError): void => {
  const [headers, body] = lastAnswer(fault);
  response.writeHead(fault.status, headers).end(body);
};
/** Requests that a path can answer come to `next`. */
export const answerable =
  (next: RequestListener): RequestListener =>
  (request, response) => {
    const fault = unanswerable(request);
    return fault ? refuse(response, fault) : next(request, response);
  };

/** From now on the server answers what its parser refuses, and expectations that nobody here knows. */
export function answerUnreadable(server: Server): void {
  server.on('checkExpectation', ({ headers }: IncomingMessage, response: ServerResponse) =>
    refuse(response, new ApiError(417, `no expectation is known here but 100-continue, not ${headers.expect}`)),
  );
  const latest = new WeakMap<Duplex, ServerResponse>();
  server.on('request', (request, response) => latest.set(request.socket, response));
  server.on('clientError', (error: NodeJS.ErrnoException, socket) => {
    const response = latest.get(socket);
    // Nothing can be put into the middle of another answer.
    const inside = response !== undefined && response.headersSent && !response.writableFinished;
    if (inside || !socket.writable || error.code === 'ECONNRESET') return void socket.destroy();
    const fault = FAULTS[error.code ?? ''] ?? NO_HTTP;
    const [headers, body] = lastAnswer(fault);
    const lines = Object.entries(headers).map((header) => header.join(': '));
    const head = [`HTTP/1.1 ${fault.status} ${STATUS_CODES[fault.status]}`, ...lines];
    socket.end(Buffer.concat([Buffer.from(`${head.join('\r\n')}\r\n\r\n`), body]));
    setTimeout(() => socket.destroy(), PATIENCE).unref();
  });
}

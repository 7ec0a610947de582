// One request on its way through the server: its id, body, the signal of its end, and the tally for log and metrics.
import { randomUUID } from 'node:crypto';
import type { IncomingMessage, ServerResponse } from 'node:http';
import type { HttpBindings } from '@hono/node-server';
import type { Context } from 'hono';
import type { z } from 'zod';
import { textOf } from '../base/read-file.js';
import { ApiError, badRequest, tookTooLong } from './errors.js';
import { deepest, faultOf } from './faults.js';

export interface Tally {
  model?: string;
  promptTokens?: number;
  cachedTokens?: number;
  tokens?: number;
  firstTokenSeconds?: number;
  finish?: string;
  error?: string;
}
export interface ServerEnv {
  Bindings: HttpBindings;
  Variables: { requestId: string; caller: string; tally: Tally; ending: Ending };
}
export type ServerContext = Context<ServerEnv>;

/** A client's own id is kept where it is plain, so that its log and ours agree. */
export const requestIdOf = (given: string | undefined): string =>
  given !== undefined && /^[\w.:-]{1,128}$/.test(given) ? given : `req_${randomUUID().replaceAll('-', '')}`;

/** Deeper objects than anyone sends would exhaust the stack of whoever walks them. */
const MAX_DEPTH = 64;
/** Schemas look at every object, list and member, which takes microseconds each; nobody else is answered meanwhile. */
const MAX_PARTS = 65_536;
/** What is too much about a body; nothing where it can be looked at more closely. */
function excess(body: unknown): string | undefined {
  let parts = 0;
  // No lists are made on the way: bodies of megabytes have millions of values.
  const look = (value: unknown, depth: number): string | undefined => {
    if (typeof value !== 'object' || value === null) return undefined;
    if (depth > MAX_DEPTH) return `is nested deeper than ${MAX_DEPTH}`;
    if (++parts > MAX_PARTS) return `has more than ${MAX_PARTS} objects, lists and members`;
    if (Array.isArray(value)) {
      for (const item of value) {
        const found = look(item, depth + 1);
        if (found) return found;
      }
    } else
      for (const key in value) {
        parts++;
        const found = look((value as Record<string, unknown>)[key], depth + 1);
        if (found) return found;
      }
    return parts > MAX_PARTS ? `has more than ${MAX_PARTS} objects, lists and members` : undefined;
  };
  return look(body, 1);
}

/** Everything a client sends, told piece by piece; ends early where `take` says so, and leaves the rest unread. */
function readAll(incoming: IncomingMessage, take: (chunk: Buffer) => boolean): Promise<'end' | 'stopped' | 'broken'> {
  if (incoming.readableEnded) return Promise.resolve('end');
  if (incoming.destroyed) return Promise.resolve('broken');
  return new Promise((resolve) => {
    const onData = (chunk: Buffer): void => {
      if (!take(chunk)) done('stopped');
    };
    const onEnd = (): void => done('end');
    const onBroken = (): void => done('broken');
    const done = (how: 'end' | 'stopped' | 'broken'): void => {
      incoming.off('data', onData).off('end', onEnd).off('error', onBroken).off('close', onBroken);
      incoming.pause();
      resolve(how);
    };
    incoming.on('data', onData).on('end', onEnd).on('error', onBroken).on('close', onBroken);
    incoming.resume(); // it may have been paused by who read before
  });
}

async function readBytes(c: ServerContext, limit: number): Promise<Buffer> {
  const { incoming } = c.env;
  const tooLarge = (): ApiError => new ApiError(413, `the body is larger than ${limit} bytes`, { code: 'too_large' });
  if (Number(incoming.headers['content-length'] ?? 0) > limit) throw tooLarge();
  const chunks: Buffer[] = [];
  let size = 0;
  const how = await readAll(incoming, (chunk) => {
    chunks.push(chunk);
    return (size += chunk.length) <= limit;
  });
  if (how === 'stopped') throw tooLarge();
  if (how === 'broken') throw badRequest('the body could not be read to its end');
  return Buffer.concat(chunks);
}

/**
 * Reads what nobody wants of a body, so that the connection can serve the next request; whether it can. A body that is
 * too large is left unread.
 */
export async function discardBody({ incoming }: HttpBindings, limit: number): Promise<boolean> {
  if (incoming.method === 'GET' || incoming.method === 'HEAD') return true;
  if (Number(incoming.headers['content-length'] ?? 0) > limit) return false;
  let size = 0;
  return (await readAll(incoming, (chunk) => (size += chunk.length) <= limit)) === 'end';
}

/** The body as a schema has it, or an error that names the field. */
export async function readBody<T>(c: ServerContext, schema: z.ZodType<T>, limit: number): Promise<T> {
  // Browsers send other types to other sites without asking; JSON they ask about first.
  if (!/^application\/([\w.-]+\+)?json\b/i.test(c.req.header('content-type') ?? ''))
    throw new ApiError(415, 'the body must be JSON, and content-type application/json');
  const coding = c.req.header('content-encoding') ?? 'identity';
  if (coding.toLowerCase() !== 'identity')
    throw new ApiError(415, `the body must come as it is, not by content-encoding ${coding.slice(0, 100)}`);
  let value: unknown;
  try {
    value = JSON.parse(textOf(await readBytes(c, limit)));
  } catch (error) {
    if (error instanceof ApiError) throw error;
    throw badRequest('the body is not valid JSON');
  }
  const tooMuch = excess(value);
  if (tooMuch) throw badRequest(`the body ${tooMuch}`);
  const result = schema.safeParse(value, { error: faultOf });
  if (result.success) return result.data;
  const issue = deepest(result.error.issues);
  const path = issue.path
    .map((p) => (typeof p === 'number' ? `[${p}]` : `.${String(p)}`))
    .join('')
    .replace(/^\./, '');
  throw badRequest(`${path.slice(0, 200) || 'body'}: ${issue.message.slice(0, 300)}`, String(issue.path[0] ?? ''));
}

/** Why answers to a request are broken off: its client has gone, or they took too long. */
export class Ending {
  readonly #controller = new AbortController();
  readonly #outgoing: ServerResponse;
  readonly #timer: NodeJS.Timeout;
  timedOut = false;
  constructor(outgoing: ServerResponse, timeoutSeconds: number) {
    this.#outgoing = outgoing;
    this.#timer = setTimeout(() => {
      this.timedOut = true;
      this.#controller.abort(tookTooLong(timeoutSeconds));
    }, timeoutSeconds * 1000);
    outgoing.on('close', this.#gone);
    if (outgoing.destroyed || outgoing.socket?.destroyed) this.#gone();
  }
  readonly #gone = (): void => {
    if (!this.#outgoing.writableFinished) this.#controller.abort(badRequest('the client has gone'));
  };
  get signal(): AbortSignal {
    return this.#controller.signal;
  }
  /** The request is over. */
  release(): void {
    clearTimeout(this.#timer);
    this.#outgoing.off('close', this.#gone);
  }
}

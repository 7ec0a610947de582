// Server-sent events on a response: what comes in one turn of the event loop is one write, and where many streams are
// open, what comes within a few steps; a slow reader is waited for, and comments keep a quiet connection open.
import type { ServerResponse } from 'node:http';

export interface StreamOptions {
  readonly pingSeconds: number;
  /** A reader that takes nothing for so long is given up. */
  readonly stallSeconds: number;
  /** What keeps the connection open; a comment by default. */
  readonly ping?: string;
  readonly headers?: Readonly<Record<string, string>>;
}

/** Characters that are joined at most. */
const MAX_JOINED = 65536;
/**
 * With more streams than this a write waits for others of its stream, which costs less than writing each, but not long.
 */
const MANY = 64;
const JOIN_MS = 20;
let open = 0;

export class EventStream {
  readonly #response: ServerResponse;
  readonly #options: StreamOptions;
  readonly #pinger: NodeJS.Timeout;
  #pending = '';
  #scheduled = false;
  #writes = 0;
  #ended = false;
  #wrote = Date.now();

  constructor(response: ServerResponse, options: StreamOptions) {
    this.#response = response;
    this.#options = options;
    open++;
    response.on('error', () => {}); // whoever has gone is seen by 'close'
    response.writeHead(200, {
      'content-type': 'text/event-stream; charset=utf-8',
      'cache-control': 'no-cache, no-transform',
      'x-accel-buffering': 'no',
      ...options.headers,
    });
    response.flushHeaders();
    const every = options.pingSeconds * 1000;
    this.#pinger = setInterval(() => {
      if (Date.now() - this.#wrote >= every) this.send(options.ping ?? ': ping\n\n');
    }, every);
    this.#pinger.unref();
  }
  /** A whole frame, its blank line included. */
  send(frame: string): void {
    this.#pending += frame;
    if (this.#pending.length > MAX_JOINED) this.#flush();
    if (this.#scheduled) return;
    this.#scheduled = true;
    const flush = (): void => {
      this.#scheduled = false;
      this.#flush();
    };
    // The first words are what people wait for.
    if (open <= MANY || this.#writes < 2) setImmediate(flush);
    else setTimeout(flush, JOIN_MS);
  }
  data(value: object): void {
    this.send(`data: ${JSON.stringify(value)}\n\n`);
  }
  event(name: string, value: object): void {
    this.send(`event: ${name}\ndata: ${JSON.stringify(value)}\n\n`);
  }
  #flush(): void {
    const text = this.#pending;
    this.#pending = '';
    this.#wrote = Date.now();
    this.#writes++;
    if (text !== '' && !this.#response.destroyed && !this.#response.writableEnded) this.#response.write(text);
  }
  /** Waits while the reader has not taken what was written; a reader that stalls loses its connection. */
  async ready(): Promise<void> {
    const response = this.#response;
    if (!response.writableNeedDrain || response.destroyed) return;
    await new Promise<void>((resolve) => {
      const done = (): void => {
        clearTimeout(timer);
        response.off('drain', done);
        response.off('close', done);
        resolve();
      };
      const timer = setTimeout(() => response.destroy(), this.#options.stallSeconds * 1000);
      response.on('drain', done);
      response.on('close', done);
    });
  }
  end(): void {
    if (!this.#ended) open--;
    this.#ended = true;
    clearInterval(this.#pinger);
    this.#flush();
    if (!this.#response.destroyed) this.#response.end();
  }
}

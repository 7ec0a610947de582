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
 * With many streams a write waits for others of its stream, which costs less than writing each, but not long: streams
 * from which on it does, and for how many milliseconds.
 */
const JOINED = [
  { from: 385, ms: 80 },
  { from: 193, ms: 40 },
  { from: 65, ms: 20 },
] as const;
let open = 0;

export class EventStream {
  readonly #response: ServerResponse;
  readonly #options: StreamOptions;
  readonly #pinger: NodeJS.Timeout;
  #pending = '';
  #scheduled = false;
  /** Called when what waits to be joined is written. */
  #onWritten: (() => void) | undefined;
  #joining: NodeJS.Timeout | undefined;
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
    // The first words are what people wait for.
    const joined = this.#writes < 2 ? undefined : JOINED.find(({ from }) => open >= from);
    if (joined) this.#joining = setTimeout(this.#due, joined.ms);
    else setImmediate(this.#due);
  }
  readonly #due = (): void => {
    this.#scheduled = false;
    this.#flush();
  };
  data(value: object): void {
    this.send(`data: ${JSON.stringify(value)}\n\n`);
  }
  event(name: string, value: object): void {
    this.send(`event: ${name}\ndata: ${JSON.stringify(value)}\n\n`);
  }
  #flush(): void {
    if (this.#joining) {
      clearTimeout(this.#joining);
      this.#joining = undefined;
      this.#scheduled = false;
    }
    this.#onWritten?.();
    this.#onWritten = undefined;
    const text = this.#pending;
    this.#pending = '';
    this.#wrote = Date.now();
    this.#writes++;
    if (text !== '' && !this.#response.destroyed && !this.#response.writableEnded) this.#response.write(text);
  }
  /**
   * Waits while what was sent waits to be joined, so that meanwhile pieces become one where they are made, and while
   * the reader has not taken what was written; a reader that stalls loses its connection.
   */
  async ready(): Promise<void> {
    const response = this.#response;
    if (this.#joining) await new Promise<void>((resolve) => (this.#onWritten = resolve));
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

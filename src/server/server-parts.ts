// What every route needs: models, limits, metrics, log.
import { toApiError } from './errors.js';
import type { ServerContext } from './exchange.js';
import type { Limits } from './limits.js';
import type { Log } from './log.js';
import { Metrics } from './metrics.js';
import { Served, type ServedModels } from './served.js';
import type { StreamOptions } from './sse.js';

export class ServerParts {
  readonly served: Served;
  readonly limits: Limits;
  readonly metrics: Metrics;
  readonly log: Log;
  readonly version: string;
  /** Set while the server ends: new requests are sent elsewhere. */
  closing = false;
  constructor(models: ServedModels, limits: Limits, log: Log, version: string) {
    this.served = new Served(models);
    this.limits = limits;
    this.metrics = new Metrics(models.engine);
    this.log = log;
    this.version = version;
  }
  get requestSeconds(): number {
    return this.limits.requestSeconds;
  }
  get fingerprint(): string {
    return `wick-${this.version}`;
  }
  /** How a stream of this request is kept open, and the headers it begins with. */
  streaming(c: ServerContext, ping?: string): StreamOptions {
    const { pingSeconds, stallSeconds } = this.limits;
    return {
      pingSeconds,
      stallSeconds,
      ...(ping !== undefined && { ping }),
      headers: { 'x-request-id': c.var.requestId, ...this.corsOf(c) },
    };
  }
  /** Headers that let pages of chosen origins read answers. */
  corsOf(c: ServerContext): Record<string, string> {
    const origin = c.req.header('origin');
    const allowed = origin !== undefined && this.limits.origins.some((o) => o === '*' || o === origin);
    return allowed ? { 'access-control-allow-origin': origin, vary: 'origin' } : {};
  }
  /** Notes an error: ours with its stack, the client's in a word. */
  failed(c: ServerContext, error: unknown): void {
    const known = toApiError(error);
    c.var.tally.error = known.message;
    if (known.status >= 500 && known !== error)
      this.log.error('request failed', { id: c.var.requestId, error: String((error as Error)?.stack ?? error) });
  }
}

// What every route needs: models, limits, metrics, log.
import { toApiError } from './errors.js';
import type { ServerContext } from './exchange.js';
import { ItemMemory } from './item-memory.js';
import { checkedLimits, type Limits } from './limits.js';
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
  /** What clients of /v1/responses may name instead of sending it. */
  readonly items = new ItemMemory();
  /** Set while the server ends: new requests are sent elsewhere. */
  closing = false;
  constructor(models: ServedModels, limits: Limits, log: Log, version: string) {
    this.served = new Served(models);
    this.limits = checkedLimits(limits);
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
      headers: { ...this.idsOf(c), ...this.corsOf(c) },
    };
  }
  /** The request's id under the names that OpenAI's and Anthropic's clients read. */
  idsOf({ var: { requestId } }: ServerContext): Record<string, string> {
    return { 'x-request-id': requestId, 'request-id': requestId };
  }
  /** Headers that let pages of chosen origins read answers. */
  corsOf(c: ServerContext): Record<string, string> {
    const origin = c.req.header('origin');
    const allowed = origin !== undefined && this.limits.origins.some((o) => o === '*' || o === origin);
    if (!allowed) return {};
    const exposed = 'x-request-id, request-id, retry-after, x-should-retry';
    return { 'access-control-allow-origin': origin, 'access-control-expose-headers': exposed, vary: 'origin' };
  }
  /** Notes an error: ours with its stack, the client's in a word. */
  failed(c: ServerContext, error: unknown): void {
    const known = toApiError(error);
    c.var.tally.error = known.message;
    if (known.status >= 500 && known !== error)
      this.log.error('request failed', { id: c.var.requestId, error: String((error as Error)?.stack ?? error) });
  }
}

// What one client may ask for, and how often.
import { ArgumentError } from '../base/errors.js';
import { ApiError } from './errors.js';

/** What one client may ask for, and how often. */
export interface Limits {
  /** The largest body of a request; default 8 MiB. */
  readonly bodyBytes: number;
  /** A whole answer may take so long. */
  readonly requestSeconds: number;
  /** A stream that is silent so long gets a comment, so that nobody between cuts it; default 15. */
  readonly pingSeconds: number;
  /** A client that reads nothing for so long is let go; default 60. */
  readonly stallSeconds: number;
  /** Requests a minute for each key, or each address where there are no keys; 0: any number. */
  readonly requestsPerMinute: number;
  /** Other sites whose pages may call: their origins, or * for all. */
  readonly origins: readonly string[];
}
/** What holds where nothing else is said: bodies of 8 MiB, ten minutes an answer, any number of requests. */
export const DEFAULT_LIMITS: Limits = {
  bodyBytes: 8 * 2 ** 20,
  requestSeconds: 600,
  pingSeconds: 15,
  stallSeconds: 60,
  requestsPerMinute: 0,
  origins: [],
};

/** Timers of Node take no more; with more they end at once. */
const MAX_SECONDS = 2_147_483;
const SECONDS = {
  fits: (n: number) => n > 0 && n <= MAX_SECONDS,
  rule: `more than 0 and at most ${MAX_SECONDS} seconds`,
};
/** A longer text than V8 has. */
const MAX_BODY = 511 * 2 ** 20;
const RULES: Readonly<Record<Exclude<keyof Limits, 'origins'>, { fits: (n: number) => boolean; rule: string }>> = {
  bodyBytes: { fits: (n) => n >= 1 && n <= MAX_BODY, rule: `at least 1 and at most ${MAX_BODY} bytes` },
  requestSeconds: SECONDS,
  pingSeconds: SECONDS,
  stallSeconds: SECONDS,
  requestsPerMinute: { fits: (n) => n === 0 || (n >= 1 && n < Infinity), rule: '0, or at least 1 a minute' },
};
/** Browsers say null for pages from files, and name the pages of programs by schemes of their own. */
const isOrigin = (text: string): boolean =>
  /^https?:/.test(text)
    ? URL.canParse(text) && new URL(text).origin === text
    : /^(\*|null|[a-z][a-z\d+.-]*:\/\/[^\s/?#]+)$/.test(text);

/** The same, if a server can keep to them. */
export function checkedLimits(limits: Limits): Limits {
  for (const [name, { fits, rule }] of Object.entries(RULES)) {
    const value = limits[name as keyof typeof RULES];
    if (!fits(value)) throw new ArgumentError(`serve: ${name} is ${value}, and must be ${rule}`);
  }
  const other = limits.origins.find((o) => !isOrigin(o));
  if (other !== undefined)
    throw new ArgumentError(
      `serve: ${JSON.stringify(other)} is no origin, which pages are known by: https://example.org, ` +
        'without a path; or *',
    );
  return limits;
}

/** A bucket of requests for each caller, filled again as time goes. */
export class RateLimiter {
  readonly #perMinute: number;
  readonly #buckets = new Map<string, { left: number; at: number }>();
  readonly #now: () => number;
  constructor(perMinute: number, now: () => number = Date.now) {
    this.#perMinute = perMinute;
    this.#now = now;
  }
  /** Takes one request off the caller's bucket, or says when to come back. */
  check(caller: string): void {
    if (this.#perMinute <= 0) return;
    const now = this.#now();
    const rate = this.#perMinute / 60_000;
    const known = this.#buckets.get(caller);
    const left = known ? Math.min(this.#perMinute, known.left + (now - known.at) * rate) : this.#perMinute;
    if (left < 1) {
      const seconds = Math.max(1, Math.ceil((1 - left) / rate / 1000));
      throw new ApiError(429, `more than ${this.#perMinute} requests a minute; try again in ${seconds} s`, {
        code: 'rate_limit_exceeded',
        headers: { 'retry-after': String(seconds) },
      });
    }
    // The map stays small: those who were seen longest ago have full buckets.
    this.#buckets.delete(caller);
    this.#buckets.set(caller, { left: left - 1, at: now });
    for (const [name, { at }] of this.#buckets) {
      if (now - at < 60_000) break;
      this.#buckets.delete(name);
    }
  }
}

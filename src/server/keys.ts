// Who may ask: keys, addresses that are open to others, and the names under which a private server is called.
import { createHash, timingSafeEqual } from 'node:crypto';
import { isIPv4 } from 'node:net';
import { ArgumentError } from '../base/errors.js';
import { ApiError } from './errors.js';

const digest = (text: string): Buffer => createHash('sha256').update(text).digest();

export class Keys {
  readonly #digests: readonly Buffer[];
  constructor(keys: readonly string[]) {
    for (const key of keys)
      if (!/^[\x21-\x7e]{8,512}$/.test(key))
        throw new ArgumentError('serve: a key has 8 to 512 printable characters and no spaces');
    this.#digests = keys.map(digest);
  }
  get required(): boolean {
    return this.#digests.length > 0;
  }
  /** The caller's name for limits and the log, from the headers that OpenAI's and Anthropic's clients send. */
  caller(authorization: string | undefined, apiKey: string | undefined, address: string): string {
    if (!this.required) return address;
    const given = /^Bearer\s+(\S+)$/i.exec(authorization ?? '')?.[1] ?? apiKey;
    if (given === undefined)
      throw new ApiError(401, 'a key is needed: Authorization: Bearer KEY', { code: 'invalid_api_key' });
    const seen = digest(given);
    // Every key is compared, so that the time tells nothing.
    const found = this.#digests.reduce((at, key, i) => (timingSafeEqual(key, seen) ? i : at), -1);
    if (found < 0) throw new ApiError(401, 'this key is not known here', { code: 'invalid_api_key' });
    return `key ${found + 1}`;
  }
}

export const isLoopback = (host: string): boolean => {
  const bare = host.replace(/^\[|\]$/g, '').toLowerCase();
  return bare === 'localhost' || bare === '::1' || (isIPv4(bare) && bare.startsWith('127.'));
};

/** Where to listen, and who may ask. */
export interface WantedAddress {
  /** Default 127.0.0.1: this machine alone. */
  readonly host?: string;
  /** Default 8080; 0 takes a free one. */
  readonly port?: number;
  /** Keys of which one must be sent; none: this machine may ask without one. */
  readonly keys?: readonly string[];
  /** Listen for others without a key. */
  readonly withoutKeys?: boolean;
}

/** The same, if a server may listen there. */
export function checkedAddress(given: WantedAddress): { host: string; port: number; keys: Keys } {
  const { host = '127.0.0.1', port = 8080 } = given;
  const keys = new Keys(given.keys ?? []);
  if (!Number.isInteger(port) || port < 0 || port > 65535)
    throw new ArgumentError(`serve: port ${port} is not a whole number from 0 to 65535`);
  if (!isLoopback(host) && !keys.required && !given.withoutKeys)
    throw new ArgumentError(
      `serve: ${host} is open to others, and there is no key; give one (--api-key-file, WICK_API_KEYS), or say ` +
        '--without-keys',
    );
  return { host, port, keys };
}

/**
 * A server without keys that listens to this machine alone is called by this machine's names: a page of another site
 * whose name was made to point here is turned away.
 */
export function checkHost(header: string | undefined): void {
  // Probes of load balancers speak HTTP/1.0 and call nobody; every browser sends a name.
  if (header === undefined) return;
  const host = header.replace(/:\d+$/, '');
  if (!isLoopback(host))
    throw new ApiError(403, `the name ${JSON.stringify(host.slice(0, 100))} is none of this machine's own`, {
      code: 'host_not_allowed',
    });
}

// The second step of every binding: a call whose status is checked and whose failure names the call, its arguments and
// the status.
import { DriverError, OutOfMemoryError } from '../base/errors.js';
import type { Bound, Native, NativeArg, Table } from './ffi.js';
import { symbolOf } from './ffi.js';

/** Arguments as people read them: cells that receive results are left out, data is its size. */
export function formatArgs(args: readonly NativeArg[]): string {
  return args
    .filter((a) => !(ArrayBuffer.isView(a) && !(a instanceof Uint8Array)))
    .map((a) =>
      ArrayBuffer.isView(a) || a instanceof ArrayBuffer
        ? `[${a.byteLength} bytes]`
        : typeof a === 'string'
          ? JSON.stringify(a.slice(0, 60))
          : typeof a === 'object' && a !== null && 'internal' in a
            ? `[${a.internal.byteLength} bytes by value]`
            : `${a}`,
    )
    .join(', ');
}

export interface CallRules {
  /** The status's own name: 'hipErrorOutOfMemory'. */
  readonly errorName: (status: number) => string;
  /** Statuses that mean the device or host is full. */
  readonly outOfMemory: readonly number[];
}

function callError(
  symbol: string,
  args: readonly NativeArg[],
  status: number,
  rules: CallRules,
  detail = '',
): DriverError | OutOfMemoryError {
  const message = `${symbol}(${formatArgs(args)}): ${rules.errorName(status)} (${status})${detail && `\n${detail}`}`;
  return rules.outOfMemory.includes(status) ? new OutOfMemoryError(message) : new DriverError(message);
}

/** A bound table with checked calls; `raw` stays reachable for hot paths that check by hand. */
export class Calls<T extends Table> {
  readonly raw: Bound<T>;
  readonly rules: CallRules;
  readonly #table: T;

  constructor(table: T, raw: Bound<T>, rules: CallRules) {
    this.#table = table;
    this.raw = raw;
    this.rules = rules;
  }

  prototype(name: keyof T): string {
    const p = this.#table[name];
    return typeof p === 'string' ? p : p.optional;
  }
  symbol(name: keyof T): string {
    return symbolOf(this.prototype(name));
  }

  has(name: keyof T): boolean {
    return this.raw[name] !== undefined;
  }

  /** Calls and throws on any status but 0. */
  call(name: keyof T & string, ...args: NativeArg[]): void {
    const status = this.status(name, ...args);
    if (status !== 0) throw this.error(name, args, status);
  }

  /** Calls and answers the status, for the calls where some are not failures. */
  status(name: keyof T & string, ...args: NativeArg[]): number {
    const fn = this.raw[name] as Native | undefined;
    const p = this.#table[name];
    if (fn === undefined)
      throw new DriverError(`${this.symbol(name)}: not in this library; ${typeof p === 'string' ? '' : p.since}`);
    return fn(...args);
  }

  error(name: keyof T, args: readonly NativeArg[], status: number, detail = ''): DriverError | OutOfMemoryError {
    return callError(this.symbol(name), args, status, this.rules, detail);
  }
}

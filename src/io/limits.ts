// What a file may ask for: one budget of memory and work in proportion to the bytes it really holds, against files far
// costlier to read than they are long.
import { getHeapStatistics } from 'node:v8';
import { FormatError } from '../base/errors.js';

/** Below this any growth is harmless. */
const FREE_BYTES = 64 * 2 ** 20;
/** Above it, at most this many bytes of tensors or inflated members for a byte of file. */
export const MAX_GROWTH = 100;

export function checkGrowth(where: string, bytes: number, stored: number, maxGrowth = MAX_GROWTH, at = 0): void {
  if (bytes <= Math.max(FREE_BYTES, stored * maxGrowth)) return;
  throw new FormatError(
    `${where}: at byte ${at}: ${stored} bytes of file claim to be ${bytes} bytes of data; beyond ${FREE_BYTES} bytes ` +
      `at most ${maxGrowth} for 1 are believed`,
  );
}

/** The most dimensions of a tensor in any format; NumPy's and PyTorch's own limit. */
export const MAX_RANK = 64;
/** The most entries of a Map or Set; one more is a RangeError. */
export const MAX_ENTRIES = 2 ** 24 - 1;

// Real headers take some ten bytes of objects for a byte of file: short strings, each remembered, are the worst.
const MEMORY_PER_BYTE = 32;
/** A step is something like a string compared or an entry copied: 100 ns. */
const FREE_STEPS = 4_000_000;
const STEPS_PER_BYTE = 16;
/** Bytes that are read and checked for one step. */
const BYTES_PER_STEP = 64;

/** What opening one file may cost. Every copy, name, entry and visit is paid for before it is made. */
export class Budget {
  readonly name: string;
  readonly #stored: number;
  readonly #bytes: number;
  readonly #steps: number;
  #bytesLeft: number;
  #stepsLeft: number;

  /** @param stored Bytes that the file really takes, which may be far below its length. */
  constructor(name: string, stored: number) {
    this.name = name;
    this.#stored = stored;
    const most = getHeapStatistics().heap_size_limit / 2;
    this.#bytes = this.#bytesLeft = Math.min(most, Math.max(FREE_BYTES, stored * MEMORY_PER_BYTE));
    this.#steps = this.#stepsLeft = Math.max(FREE_STEPS, stored * STEPS_PER_BYTE);
  }

  /** Pays for memory that what is read here will take. */
  memory(bytes: number, at: number, where = this.name): void {
    this.#bytesLeft -= bytes;
    if (this.#bytesLeft < 0) throw this.#over(where, at, `${this.#bytes} bytes of memory`);
  }

  /** Pays for work: visits, comparisons, copies. */
  work(steps: number, at: number, where = this.name): void {
    this.#stepsLeft -= steps;
    if (this.#stepsLeft < 0) throw this.#over(where, at, `${this.#steps} steps of work`);
  }

  /** Pays for bytes that are read through, a checksum's say. */
  scan(bytes: number, at: number, where = this.name): void {
    this.work(bytes / BYTES_PER_STEP, at, where);
  }

  #over(where: string, at: number, what: string): FormatError {
    return new FormatError(
      `${where}: at byte ${at}: reading takes more than ${what}, the most that a file of ${this.#stored} bytes may ` +
        'cost',
    );
  }
}

// Pages of keys and values: who holds them, which hold a known beginning of a text, and which may be taken next.
// Numbers only; the memory itself is the executor's.
import { createHash } from 'node:crypto';
import { ArgumentError } from '../base/errors.js';

/** Names of full pages: each stands for all tokens up to its end, so that equal names mean equal keys and values. */
export class PageNames {
  readonly #pageTokens: number;
  readonly #names: string[] = [];
  readonly #root: string;
  constructor(pageTokens: number, salt = '') {
    this.#pageTokens = pageTokens;
    this.#root = createHash('sha256').update(salt).digest('base64');
  }
  /** How many are made. */
  get made(): number {
    return this.#names.length;
  }
  /** The name of page `at` of these tokens; those before it are made on the way. */
  of(tokens: readonly number[], at: number): string {
    const n = this.#pageTokens;
    for (let i = this.#names.length; i <= at; i++) {
      const words = Int32Array.from(tokens.slice(i * n, (i + 1) * n));
      const before = i === 0 ? this.#root : this.#names[i - 1];
      const hash = createHash('sha256').update(before).update(new Uint8Array(words.buffer));
      this.#names.push(hash.digest('base64'));
    }
    return this.#names[at];
  }
}

/**
 * Every page is held by some sequences or in the list of free ones, which is ordered by last use: the front is taken
 * first. A free page keeps its name, and so what it holds, until it is taken.
 */
export class Pages {
  readonly count: number;
  readonly #holders: Int32Array;
  readonly #names: (string | undefined)[];
  readonly #byName = new Map<string, number>();
  /** The free list, doubly linked; the last index is its beginning and end. */
  readonly #before: Int32Array;
  readonly #after: Int32Array;
  #free: number;

  constructor(count: number) {
    if (!Number.isSafeInteger(count) || count < 1)
      throw new ArgumentError(`pages: ${count} is not a whole number from 1`);
    this.count = this.#free = count;
    this.#holders = new Int32Array(count);
    this.#names = new Array<string | undefined>(count);
    this.#before = Int32Array.from({ length: count + 1 }, (_, i) => (i === 0 ? count : i - 1));
    this.#after = Int32Array.from({ length: count + 1 }, (_, i) => (i === count ? 0 : i + 1));
  }
  get free(): number {
    return this.#free;
  }
  get used(): number {
    return this.count - this.#free;
  }
  holders(page: number): number {
    return this.#holders[page];
  }
  /** The page that holds what a name says, if one does. */
  find(name: string): number | undefined {
    return this.#byName.get(name);
  }
  #unlink(page: number): void {
    const [before, after] = [this.#before[page], this.#after[page]];
    this.#after[before] = after;
    this.#before[after] = before;
    this.#free--;
  }
  /** One more holder of a page that is known by name. */
  hold(page: number): void {
    if (this.#holders[page]++ === 0) this.#unlink(page);
  }
  /** The page that was not used for longest, for new content. */
  take(): number | undefined {
    if (this.#free === 0) return undefined;
    const page = this.#after[this.count];
    this.#unlink(page);
    this.#holders[page] = 1;
    const name = this.#names[page];
    if (name !== undefined) this.#byName.delete(name);
    this.#names[page] = undefined;
    return page;
  }
  /** Says what a held page holds. Where another page holds the same, that one keeps the name. */
  name(page: number, name: string): void {
    if (this.#holders[page] === 0) throw new ArgumentError(`pages: page ${page} is free; only held pages are named`);
    if (this.#names[page] !== undefined || this.#byName.has(name)) return;
    this.#names[page] = name;
    this.#byName.set(name, page);
  }
  /** One holder less of each; the last page of a sequence becomes free first, so that ends go before beginnings. */
  release(pages: readonly number[]): void {
    for (let i = pages.length - 1; i >= 0; i--) {
      const page = pages[i];
      if (this.#holders[page] === 0) throw new ArgumentError(`pages: page ${page} is released once too often`);
      if (--this.#holders[page] > 0) continue;
      const last = this.#before[this.count];
      this.#after[last] = page;
      this.#before[page] = last;
      this.#after[page] = this.count;
      this.#before[this.count] = page;
      this.#free++;
    }
  }
  /** Forgets what free pages hold. */
  forget(): void {
    for (let page = 0; page < this.count; page++) {
      const name = this.#names[page];
      if (this.#holders[page] > 0 || name === undefined) continue;
      this.#byName.delete(name);
      this.#names[page] = undefined;
    }
  }
}

// Keys and values of earlier tokens: growing, rotating (a window) and paged (many sequences in one pool of pages).
import type { DType } from '../base/dtype.js';
import { ArgumentError, ShapeError } from '../base/errors.js';
import { formatShape } from '../base/shape.js';
import type { SdpaOptions } from '../ops/attention-calls.js';
import { noGrad } from '../tensor/autograd.js';
import { tensor } from '../tensor/create.js';
import type { Device } from '../tensor/device.js';
import { keep } from '../tensor/scope.js';
import { Tensor } from '../tensor/tensor.js';

/** What attention over a cache needs: (batch, heads, time, dim) in, all keys and values to look at out. */
export interface Cache {
  /** Tokens seen so far. */
  readonly length: number;
  /** Adds keys and values of new tokens; answers all that attention is to look at, the new ones included. */
  append(k: Tensor, v: Tensor): readonly [k: Tensor, v: Tensor];
  /** Forgets all tokens. */
  reset(): void;
}

/** What caches may keep keys and values in besides their own dtype: 8 bits a number. */
export const CACHE_TYPES = ['q8_0', 'f8e4m3'] as const;
/** A type that caches may keep keys and values in: 'q8_0' or 'f8e4m3'. */
export type CacheType = (typeof CACHE_TYPES)[number];
/** Keys or values as a cache of this type keeps them; attention reads them so. */
export const inCache = (x: Tensor, type: CacheType | undefined): Tensor =>
  type === undefined ? x : type === 'q8_0' ? x.q8Blocks() : x.cast('f8e4m3');
/** Elements that a head's numbers take in a cache. */
export const cacheWidth = (headDim: number, type: CacheType | undefined): number =>
  type === 'q8_0' ? (headDim / 32) * 34 : headDim;
export const cacheDType = (dtype: DType, type: CacheType | undefined): DType =>
  type === undefined ? dtype : type === 'q8_0' ? 'u8' : 'f8e4m3';
/** The type of a cache's memory for numbers like these. */
export const cacheTypeOf = (kept: Tensor, like: Tensor): CacheType | undefined =>
  kept.dtype === like.dtype ? undefined : kept.dtype === 'u8' ? 'q8_0' : 'f8e4m3';

const spaceFor = (like: Tensor, time: number): Tensor => {
  const [b, h, , d] = like.shape;
  return keep(Tensor.empty([b, h, time, d], like.dtype, like.device));
};

/**
 * Grows by doubling; what append answers are views of its buffers, no copies. Keys and values may differ in width. With
 * a window it keeps the keys that later tokens can still see, in order: when its room is full, the last ones move to
 * the front.
 */
export class KvCache implements Cache {
  #k: Tensor | undefined;
  #v: Tensor | undefined;
  #capacity: number;
  #length = 0;
  /** Tokens that were dropped from the front. */
  #first = 0;
  /** How many of the last tokens later ones can see; undefined: all. */
  readonly window: number | undefined;
  /** What keys and values are kept in; undefined: their own dtype. */
  readonly type: CacheType | undefined;
  constructor(initialCapacity = 64, window?: number, type?: CacheType) {
    if (window !== undefined && (!Number.isInteger(window) || window < 1))
      throw new ArgumentError(`KvCache: window ${window} is not a whole number from 1`);
    this.#capacity = initialCapacity;
    this.window = window;
    this.type = type;
  }
  /** Tokens seen so far. */
  get length(): number {
    return this.#length;
  }
  /** Set by whoever writes into the buffers itself. */
  set length(n: number) {
    this.#length = n;
  }
  /** The number of the first token that is still held. */
  get first(): number {
    return this.#first;
  }
  /** Adds keys and values (batch, heads, time, dim); answers views of all that are kept. */
  append(newKeys: Tensor, newValues: Tensor): readonly [Tensor, Tensor] {
    return noGrad(() => {
      const [k, v] = [inCache(newKeys, this.type), inCache(newValues, this.type)];
      const t = k.shape[2];
      this.#makeRoom(k, v, t);
      const [kb, vb] = [this.#k as Tensor, this.#v as Tensor];
      const at = this.#length - this.#first;
      kb.narrow(2, at, t).assign(k);
      vb.narrow(2, at, t).assign(v);
      this.#length += t;
      return [kb.narrow(2, 0, at + t), vb.narrow(2, 0, at + t)] as const;
    });
  }
  /** Room for t more: the window's part moves to the front, or the buffers grow. */
  #makeRoom(k: Tensor, v: Tensor, t: number): void {
    const held = this.#length - this.#first;
    const room = this.#k?.shape[2] ?? 0;
    if (held + t <= room) return;
    const kept = this.window === undefined ? held : Math.min(held, this.window - 1);
    const need = kept + t;
    // A window is moved once in a while, not at every token.
    const wanted = this.window === undefined ? need : Math.max(need, kept + Math.min(this.window, 256));
    if (this.window === undefined) while (this.#capacity < wanted) this.#capacity *= 2;
    const size = this.window === undefined ? this.#capacity : wanted;
    const moved = (old: Tensor | undefined, like: Tensor): Tensor => {
      const part = old && kept > 0 ? old.narrow(2, held - kept, kept) : undefined;
      if (old && room >= wanted) {
        if (part && held > kept) old.narrow(2, 0, kept).assign(part.copy());
        return old;
      }
      const fresh = spaceFor(like, size);
      if (part) fresh.narrow(2, 0, kept).assign(part);
      old?.dispose();
      return fresh;
    };
    this.#k = moved(this.#k, k);
    this.#v = moved(this.#v, v);
    this.#first = this.#length - kept;
  }
  /** All its room, (batch, heads, capacity, dim); there is none before the first append. */
  buffers(): readonly [k: Tensor, v: Tensor] {
    if (!this.#k || !this.#v) throw new ArgumentError('KvCache: nothing was appended yet');
    return [this.#k, this.#v];
  }
  /** Sequences go on from those of the numbers given, which may be fewer or more, or one several times. */
  reorder(rows: Tensor): void {
    noGrad(() => {
      const chosen = (old: Tensor | undefined): Tensor | undefined => old && keep(old.indexSelect(0, rows));
      const [k, v] = [chosen(this.#k), chosen(this.#v)];
      this.#k?.dispose();
      this.#v?.dispose();
      [this.#k, this.#v] = [k, v];
    });
  }
  /** Forgets tokens from `length` on. */
  truncate(length: number): void {
    if (length < 0 || length > this.#length)
      throw new ArgumentError(`KvCache: cannot truncate ${this.#length} tokens to ${length}`);
    if (this.#first > 0 && length - this.#first < (this.window as number) - 1)
      throw new ArgumentError(
        `KvCache: cannot go back to ${length} tokens; of a window of ${this.window} those before ${this.#first} are ` +
          'gone',
      );
    this.#length = length;
  }
  /** Forgets all tokens and keeps the memory. */
  reset(): void {
    this.#length = this.#first = 0;
  }
  /** Gives the memory back. */
  dispose(): void {
    this.#k?.dispose();
    this.#v?.dispose();
    this.#k = this.#v = undefined;
    this.reset();
  }
}

/**
 * Keeps the last `window` tokens. A single step answers the ring as it lies: positions are in the keys, order does not
 * matter.
 */
export class RotatingKvCache implements Cache {
  /** How many of the last tokens are kept. */
  readonly window: number;
  #k: Tensor | undefined;
  #v: Tensor | undefined;
  /** Tokens seen so far, those that were dropped included. */
  length = 0;
  constructor(window: number) {
    if (!Number.isInteger(window) || window < 1)
      throw new ArgumentError(`RotatingKvCache: window ${window} is not a whole number from 1`);
    this.window = window;
  }
  /** Adds keys and values (batch, heads, time, dim); answers the last `window` of them, in order. */
  append(k: Tensor, v: Tensor): readonly [Tensor, Tensor] {
    return noGrad(() => {
      this.#k ??= spaceFor(k, this.window);
      this.#v ??= spaceFor(v, this.window);
      const [kb, vb, t] = [this.#k, this.#v, k.shape[2]];
      const held = Math.min(this.length, this.window);
      if (t === 1) {
        const at = this.length % this.window;
        kb.narrow(2, at, 1).assign(k);
        vb.narrow(2, at, 1).assign(v);
        this.length++;
        const n = Math.min(this.length, this.window);
        return [kb.narrow(2, 0, n), vb.narrow(2, 0, n)] as const;
      }
      // Several at once look at everything kept, in time order; what the window will still hold is written back.
      const all = [inOrder(kb, this.length, held).cat([k], 2), inOrder(vb, this.length, held).cat([v], 2)] as const;
      const kept = Math.min(this.window, held + t);
      const start = (this.length + t - kept) % this.window;
      const first = Math.min(kept, this.window - start);
      for (const [buffer, whole] of [
        [kb, all[0]],
        [vb, all[1]],
      ] as const) {
        const from = whole.shape[2] - kept;
        buffer.narrow(2, start, first).assign(whole.narrow(2, from, first));
        if (kept > first) buffer.narrow(2, 0, kept - first).assign(whole.narrow(2, from + first, kept - first));
      }
      this.length += t;
      return all;
    });
  }
  /** Forgets all tokens. */
  reset(): void {
    this.length = 0;
  }
}
function inOrder(ring: Tensor, length: number, held: number): Tensor {
  const start = length > held ? length % ring.shape[2] : 0;
  return start === 0 ? ring.narrow(2, 0, held) : ring.narrow(2, start, held - start).cat([ring.narrow(2, 0, start)], 2);
}

export interface PagedOptions {
  readonly pages: number;
  readonly pageRows?: number;
  readonly kvHeads: number;
  readonly headDim: number;
  readonly dtype: DType;
  readonly device: Device;
}
/** One pool of pages for many sequences: a sequence takes pages as it grows and gives them back at its end. */
export class PagedKvCache {
  /** Tokens of a page. */
  readonly pageRows: number;
  /** All pages of keys, as kernels read them. */
  readonly k: Tensor;
  /** All pages of values. */
  readonly v: Tensor;
  readonly #free: number[];
  readonly #tables = new Map<number, number[]>();
  readonly #lengths = new Map<number, number>();
  #next = 0;
  constructor(o: PagedOptions) {
    this.pageRows = o.pageRows ?? 16;
    const shape = [o.pages, o.kvHeads, this.pageRows, o.headDim];
    this.k = keep(Tensor.empty(shape, o.dtype, o.device));
    this.v = keep(Tensor.empty(shape, o.dtype, o.device));
    this.#free = Array.from({ length: o.pages }, (_, i) => o.pages - 1 - i);
  }
  /** Pages that no sequence holds. */
  get freePages(): number {
    return this.#free.length;
  }
  /** A new sequence's number. */
  open(): number {
    this.#tables.set(this.#next, []);
    this.#lengths.set(this.#next, 0);
    return this.#next++;
  }
  /** Ends a sequence: its pages are free again. */
  close(sequence: number): void {
    this.#free.push(...this.#table(sequence));
    this.#tables.delete(sequence);
    this.#lengths.delete(sequence);
  }
  #table(sequence: number): number[] {
    const table = this.#tables.get(sequence);
    if (!table) throw new ArgumentError(`PagedKvCache: there is no open sequence ${sequence}`);
    return table;
  }
  /** How many tokens a sequence has. */
  lengthOf(sequence: number): number {
    this.#table(sequence);
    return this.#lengths.get(sequence) as number;
  }
  /** Keys and values of one sequence's next tokens, (heads, time, dim). */
  append(sequence: number, k: Tensor, v: Tensor): void {
    const table = this.#table(sequence);
    const [h, t, d] = k.shape;
    if (h !== this.k.shape[1] || d !== this.k.shape[3])
      throw new ShapeError(
        `PagedKvCache: ${formatShape(k.shape)} must be (${this.k.shape[1]}, time, ${this.k.shape[3]})`,
      );
    let at = this.lengthOf(sequence);
    noGrad(() => {
      for (let done = 0; done < t; ) {
        if (at % this.pageRows === 0) table.push(this.#take());
        const page = table[Math.floor(at / this.pageRows)];
        const n = Math.min(t - done, this.pageRows - (at % this.pageRows));
        for (const [pool, x] of [
          [this.k, k],
          [this.v, v],
        ] as const) {
          pool
            .narrow(0, page, 1)
            .squeeze([0])
            .narrow(1, at % this.pageRows, n)
            .assign(x.narrow(1, done, n));
        }
        done += n;
        at += n;
      }
    });
    this.#lengths.set(sequence, at);
  }
  #take(): number {
    const page = this.#free.pop();
    if (page === undefined)
      throw new ArgumentError(`PagedKvCache: all ${this.k.shape[0]} pages are in use; close a sequence`);
    return page;
  }
  /** Attention of (sequences, heads, time, dim) queries over everything each sequence holds. */
  attend(
    q: Tensor,
    sequences: readonly number[],
    options: Omit<SdpaOptions, 'mask' | 'lengths' | 'layout'> = {},
  ): Tensor {
    const tables = sequences.map((s) => this.#table(s));
    const width = Math.max(1, ...tables.map((t) => t.length));
    const pages = tensor(
      Int32Array.from(tables.flatMap((t) => [...t, ...new Array<number>(width - t.length).fill(0)])),
      { shape: [tables.length, width], device: q.device },
    );
    const lengths = tensor(
      Int32Array.from(sequences, (s) => this.lengthOf(s)),
      { device: q.device },
    );
    return q.sdpaPaged(this.k, this.v, pages, { ...options, lengths });
  }
}

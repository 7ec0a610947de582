// Memory of the CPU engine: ArrayBuffers, so that the garbage collector counts and frees them, with freed blocks kept
// for reuse.
import { freemem, totalmem } from 'node:os';
import { OutOfMemoryError } from '../../base/errors.js';
import type { Memory, MemoryStats, MemoryToken } from '../backend.js';

const ALIGN = 64;
const SMALL = 4096;
const SLAB = 1 << 18;
/** From here on huge pages are asked for. */
const HUGE = 4 << 20;
const KEPT_LIMIT = Math.min(2 ** 31, Math.max(2 ** 28, totalmem() / 8));

/**
 * Blocks this large are held against what the machine (or its container) has left: a system that promises more than it
 * has kills later.
 */
const LARGE = 2 ** 30;
const availableBytes = (): number => process.availableMemory?.() ?? freemem();

/** What a finaliser may hold: it must not keep the buffer alive, or a busy loop would never see memory come back. */
class Token implements MemoryToken {
  /** Bytes in use; undefined while the block is free. */
  used: number | undefined;
  readonly address: number;
  readonly pool: MemoryPool;
  watched = false;
  constructor(address: number, pool: MemoryPool) {
    this.address = address;
    this.pool = pool;
  }
  get bytes(): number {
    return this.used ?? 0;
  }
}

/** A piece of an ArrayBuffer, aligned to a cache line. One object for the block's whole life, in use or kept. */
export class CpuMemory implements Memory {
  bytes = 0;
  readonly address: number;
  readonly token: Token;
  readonly buffer: ArrayBuffer;
  readonly start: number;
  /** Bytes of the block, at least `bytes`. */
  readonly room: number;
  /** The pool it goes back to. */
  readonly pool: MemoryPool;
  constructor(buffer: ArrayBuffer, start: number, address: number, room: number, pool: MemoryPool) {
    this.pool = pool;
    this.address = address;
    this.buffer = buffer;
    this.start = start;
    this.room = room;
    this.token = new Token(address, pool);
  }
}

/** Powers of two for small blocks; four steps between powers for large ones, so that at most a quarter is wasted. */
export function roomFor(bytes: number): number {
  if (bytes <= ALIGN) return ALIGN;
  const power = 2 ** (31 - Math.clz32(Math.min(bytes - 1, 2 ** 31 - 1)));
  if (bytes <= SMALL) return power * 2;
  const step = bytes > 2 ** 31 ? 2 ** 28 : Math.max(power / 4, SMALL);
  return Math.ceil(bytes / step) * step;
}

/** What all pools of a backend hold together. */
export class MemoryCounters {
  liveBytes = 0;
  liveBlocks = 0;
  cachedBytes = 0;
  peakBytes = 0;
}

/** Gives memory out and takes it back. */
export interface Pool {
  alloc(bytes: number): Memory;
  /** Takes a block back, or a token of one whose buffer is gone. */
  free(memory: Memory): void;
  /** Another pool with the same counters. */
  beside(): Pool;
  /** What comes back from now on is not kept. */
  close(): void;
  stats(): MemoryStats;
  trim(): void;
}

/** The pool of a block or of what stands for one. */
export const poolOf = (memory: Memory): Pool => (memory as CpuMemory | Token).pool;

export class MemoryPool implements Pool {
  readonly #address: (buffer: ArrayBuffer) => number;
  readonly #advise: (address: number, bytes: number) => void;
  readonly #kept = new Map<number, CpuMemory[]>();
  #slab: CpuMemory | undefined;
  #used = 0;
  readonly #count: MemoryCounters;
  /** Bytes of #kept. */
  #keptBytes = 0;
  /** What comes back to a closed pool goes to the collector. */
  #closed = false;

  constructor(
    address: (buffer: ArrayBuffer) => number,
    advise: (address: number, bytes: number) => void,
    counters = new MemoryCounters(),
  ) {
    this.#address = address;
    this.#advise = advise;
    this.#count = counters;
  }
  beside(): MemoryPool {
    return new MemoryPool(this.#address, this.#advise, this.#count);
  }

  alloc(bytes: number): CpuMemory {
    const room = roomFor(bytes);
    const kept = this.#kept.get(room);
    let block = kept?.pop();
    if (block) this.#keep(-room);
    else block = room <= SMALL ? this.#cut(room) : this.#fresh(room);
    const count = this.#count;
    count.liveBlocks++;
    count.liveBytes += bytes;
    if (count.liveBytes > count.peakBytes) count.peakBytes = count.liveBytes;
    block.bytes = block.token.used = bytes;
    return block;
  }

  free(memory: Memory): void {
    const token = memory instanceof CpuMemory ? memory.token : (memory as Token);
    if (token.used === undefined) return; // a kept block was let go of
    this.#count.liveBlocks--;
    this.#count.liveBytes -= token.used;
    token.used = undefined;
    if (!(memory instanceof CpuMemory) || this.#closed || this.#keptBytes + memory.room > KEPT_LIMIT) return;
    let kept = this.#kept.get(memory.room);
    if (!kept) this.#kept.set(memory.room, (kept = []));
    kept.push(memory);
    this.#keep(memory.room);
  }
  #keep(bytes: number): void {
    this.#keptBytes += bytes;
    this.#count.cachedBytes += bytes;
  }
  close(): void {
    this.#closed = true;
    this.trim();
  }

  stats(): MemoryStats {
    return { ...this.#count };
  }

  trim(): void {
    this.#kept.clear();
    this.#keep(-this.#keptBytes);
    this.#slab = undefined;
  }

  /** A piece of the current slab. A full slab is let go: it lives as long as one of its pieces does. */
  #cut(room: number): CpuMemory {
    if (!this.#slab || this.#used + room > this.#slab.room) {
      this.#slab = this.#fresh(SLAB);
      this.#used = 0;
    }
    const { buffer, start, address } = this.#slab;
    const at = this.#used;
    this.#used += room;
    return new CpuMemory(buffer, start + at, address + at, room, this);
  }

  #fresh(room: number): CpuMemory {
    if (room >= LARGE && room > availableBytes())
      throw new OutOfMemoryError(
        `cpu: no memory for a block of ${room} bytes: the machine has ${availableBytes()} left ` +
          `(${this.#count.liveBytes} bytes are in use by tensors)`,
      );
    let buffer: ArrayBuffer;
    try {
      buffer = new ArrayBuffer(room + ALIGN);
    } catch (cause) {
      throw new OutOfMemoryError(
        `cpu: no memory for a block of ${room} bytes (${this.#count.liveBytes} bytes are in use by tensors)`,
        { cause },
      );
    }
    const base = this.#address(buffer);
    const address = Math.ceil(base / ALIGN) * ALIGN;
    if (room >= HUGE) this.#advise(address, room);
    return new CpuMemory(buffer, address - base, address, room, this);
  }
}

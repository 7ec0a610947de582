// A caching allocator: freed blocks are kept by size and reused, since freeing on a GPU waits for it.
import { OutOfMemoryError } from '../../base/errors.js';
import type { Address, Device, Event, Stream } from '../../driver/driver.js';
import type { Memory, MemoryStats } from '../backend.js';

export interface Suspect {
  readonly op: string;
  readonly look: number;
}

/** A block of device memory; `capacity` is what was really taken. */
export class GpuMemory implements Memory {
  readonly address: Address;
  readonly bytes: number;
  readonly capacity: number;
  /** The pool it goes back to. */
  readonly pool: Pool;
  /** Written at indices that only the device has seen: the op, and how many looks at its fault word there had been. */
  suspect: Suspect | undefined = undefined;
  /** Recordings that use it, and whether its owner has given it back meanwhile. */
  holders = 0;
  returned = false;
  constructor(address: Address, bytes: number, capacity: number, pool: Pool) {
    this.address = address;
    this.bytes = bytes;
    this.capacity = capacity;
    this.pool = pool;
  }
}

/**
 * Free blocks by capacity. Work of one stream is ordered, so a block freed after its last use may be given out at once.
 */
export class Pool {
  readonly free = new Map<number, Address[]>();
  bytes = 0;
  /** A graph's pool after the graph is gone: what comes back goes to the driver. */
  closed = false;
  /** Graphs that use it: those that never run at the same time may share one. */
  graphs = 0;
  /** Blocks of it that are in use. */
  live = 0;
  take(capacity: number): Address | undefined {
    const address = this.free.get(capacity)?.pop();
    if (address !== undefined) this.bytes -= capacity;
    return address;
  }
  give(address: Address, capacity: number): void {
    const list = this.free.get(capacity);
    if (list) list.push(address);
    else this.free.set(capacity, [address]);
    this.bytes += capacity;
  }
  drain(each: (address: Address) => void): void {
    for (const list of this.free.values()) list.forEach(each);
    this.free.clear();
    this.bytes = 0;
  }
}

/** Sizes are rounded up to eighths of a power of two, so that nearly equal ones share blocks and little is lost. */
export function capacityOf(bytes: number): number {
  if (bytes <= 4096) return Math.max(512, Math.ceil(bytes / 512) * 512);
  const step = 2 ** (Math.floor(Math.log2(bytes)) - 3);
  return Math.ceil(bytes / step) * step;
}

/** Work on another stream. */
export interface SideUse {
  readonly done: boolean;
  finish(): void;
}

const gib = (n: number): string => `${(n / 2 ** 30).toFixed(2)} GiB`;

export class Allocator {
  readonly #device: Device;
  readonly #stream: Stream;
  readonly #shared = new Pool();
  /** While a graph is recorded its blocks come from, and go back to, a pool that belongs to the graph. */
  #current = this.#shared;
  readonly #sides = new Set<SideUse>();
  readonly #heldBack: GpuMemory[] = [];
  /** Reached when all is done that was enqueued before the stream began to be recorded, while it is. */
  #before: Event | undefined;
  #live = 0;
  #blocks = 0;
  #peak = 0;

  constructor(device: Device, stream: Stream) {
    this.#device = device;
    this.#stream = stream;
  }

  alloc(bytes: number): GpuMemory {
    const capacity = capacityOf(bytes);
    const address = this.#current.take(capacity) ?? this.#fresh(capacity, bytes);
    this.#live += bytes;
    this.#blocks++;
    if (this.#live > this.#peak) this.#peak = this.#live;
    this.#current.live++;
    return new GpuMemory(address, bytes, capacity, this.#current);
  }

  free(m: GpuMemory): void {
    if (m.holders > 0) m.returned = true;
    else this.#giveBack(m);
    m.pool.live--;
    this.#live -= m.bytes;
    this.#blocks--;
  }
  #giveBack(m: GpuMemory): void {
    if (m.pool.closed) this.#device.free(m.address);
    else if (this.#sides.size > 0 && m.pool === this.#shared) this.#heldBack.push(m);
    else m.pool.give(m.address, m.capacity);
  }
  /** A recording uses the block: it stays where it is, whoever gives it back, until the recording is gone. */
  hold(m: GpuMemory): void {
    m.holders++;
  }
  unhold(m: GpuMemory): void {
    if (--m.holders === 0 && m.returned) this.#giveBack(m);
  }

  /** Work on another stream may read blocks of this one: those that are freed meanwhile are not given out again. */
  holdBack(work: SideUse): void {
    this.#sides.add(work);
  }
  letGo(work: SideUse): void {
    this.#sides.delete(work);
    if (this.#sides.size > 0) return;
    for (const m of this.#heldBack.splice(0)) m.pool.give(m.address, m.capacity);
  }
  /** The same for work that the device has done, though nobody asked for it. */
  letGoOfDone(): void {
    for (const work of [...this.#sides]) if (work.done) work.finish();
  }

  /** Asks the driver; under memory pressure gives cached blocks back and asks once more. */
  #fresh(capacity: number, wanted: number): Address {
    try {
      return this.#take(capacity);
    } catch (e) {
      if (!(e instanceof OutOfMemoryError)) throw e;
    }
    const cached = this.#shared.bytes;
    this.trim();
    try {
      return this.#take(capacity);
    } catch (cause) {
      if (!(cause instanceof OutOfMemoryError)) throw cause;
      const { free, total } = this.#device.memory();
      throw new OutOfMemoryError(
        `${this.#device.info.name}: no room for ${wanted} bytes (${gib(wanted)}): ${gib(free)} of ${gib(total)} are ` +
          `free, tensors here hold ${gib(this.#live)} in ${this.#blocks} blocks, ${gib(cached)} kept for reuse were ` +
          'given back before the second try; dispose of tensors, or use a scope',
        { cause },
      );
    }
  }
  #take(capacity: number): Address {
    // Ordered allocations made while a stream is recorded would become part of the graph, which then runs only once.
    return this.#current === this.#shared
      ? this.#device.allocAsync(capacity, this.#stream)
      : this.#device.alloc(capacity);
  }

  /** Runs f with a pool of its own, which the caller keeps as long as what was recorded may run. */
  withPool<T>(pool: Pool, f: () => T): T {
    const before = this.#current;
    this.#current = pool;
    try {
      return f();
    } finally {
      this.#current = before;
    }
  }
  /** The same for an f that records the stream. */
  record(pool: Pool, f: () => void): void {
    const before = this.#device.createEvent(false);
    this.#device.record(before, this.#stream);
    this.#before = before;
    try {
      this.withPool(pool, f);
    } finally {
      this.#before = undefined;
      this.#device.destroyEvent(before);
    }
  }
  /** Lets a recorded graph's blocks go. */
  release(pool: Pool): void {
    this.#device.synchronizeStream(this.#stream); // the last replay may still run
    pool.closed = true;
    pool.drain((address) => this.#device.free(address));
  }

  /** Gives cached blocks back to the driver. */
  trim(): void {
    for (const work of [...this.#sides]) work.finish();
    if (this.#before === undefined) return this.#drain(this.#stream);
    // A stream that is recorded takes no frees but of what the graph itself allocates: another one does it.
    const beside = this.#device.createStream();
    try {
      this.#device.streamWait(beside, this.#before);
      this.#drain(beside);
    } finally {
      this.#device.destroyStream(beside);
    }
  }
  #drain(stream: Stream): void {
    this.#shared.drain((address) => this.#device.freeAsync(address, stream));
    this.#device.synchronizeStream(stream);
  }

  stats(): MemoryStats {
    return { liveBytes: this.#live, liveBlocks: this.#blocks, cachedBytes: this.#shared.bytes, peakBytes: this.#peak };
  }
}

// The CPU engine as WebAssembly with SIMD: for machines that have neither its shared library nor a compiler. It
// computes in memory of its own, on the thread that calls it and on workers that share that memory.
import { readFileSync } from 'node:fs';
import { availableParallelism } from 'node:os';
import { setImmediate } from 'node:timers/promises';
import { Worker } from 'node:worker_threads';
import { env } from '../../base/environment.js';
import { NativeError, OutOfMemoryError } from '../../base/errors.js';
import { Wasm, type WasmGlobal, type WasmImports, type WasmMemory, type WasmModule } from '../../base/webassembly.js';
import { noteLibrary } from '../../driver/ffi.js';
import type { Memory, MemoryStats, MemoryToken } from '../backend.js';
import { BLOCK_SLOTS, type Engine } from './engine.js';
import { WASM_MEMORY } from './instruction-sets.js';
import { MemoryCounters, type Pool, roomFor } from './memory.js';

interface Exports {
  readonly __stack_pointer: WasmGlobal<number>;
  readonly __wasm_init_tls: (address: number) => void;
  readonly __tls_size: WasmGlobal<number>;
  readonly _initialize: () => void;
  readonly wick_select: (isa: number) => number;
  readonly wick_find: (name: number) => number;
  readonly wick_threads: (n: number) => number;
  readonly wick_run: (block: number) => number;
  readonly wick_run_list: (list: number) => number;
  readonly wick_alloc: (bytes: number) => number;
  readonly wick_free: (address: number) => void;
  readonly wick_memcpy: (to: number, from: number, bytes: number) => void;
  readonly wick_read: (from: number, bytes: number) => void;
  readonly wick_peak: (rounds: number) => number;
  readonly wick_join: () => number;
  readonly wick_serve: (id: number) => void;
  readonly wick_fell: () => void;
  readonly wick_recover: () => void;
}
/** A module's instance in this thread, and the memory that it shares with others. */
interface Instance extends Exports {
  readonly memory: WasmMemory;
}
/** What a worker thread is made of: its stack and its thread-local variables lie in the heap. */
export interface WorkerParts {
  readonly module: WasmModule;
  readonly memory: WasmMemory;
  readonly stack: number;
  readonly locals: number;
}
/** A module of 32 bits sees no more; what lies below is its stack and its tables. */
const MOST = 2 ** 32 - 2 ** 24;

/** The engine in the WebAssembly module at `path`. */
export function openWasm(path: string): Engine {
  const module = compile(path);
  const memory = new Wasm.Memory({ ...WASM_MEMORY, shared: true });
  let workers = 0;
  const grow = (wanted: number): void => {
    for (; workers < wanted; workers++) startWorker(engine, module);
  };
  const engine = instantiate(module, memory, grow);
  engine._initialize();
  engine.wick_threads(threadsHere());
  const checked = trapsAsErrors(engine);
  if (engine.wick_select(0) !== 0) throw new NativeError(`${path}: the CPU engine holds no instruction set`);
  noteLibrary({ name: 'the CPU engine', found: path });
  const pool = new WasmPool(engine);
  const blockAddress = engine.wick_alloc(BLOCK_SLOTS * 8);
  const block = new Float64Array(BLOCK_SLOTS);
  // Memory that grows is seen through a new buffer, so that none is kept.
  const slotsAt = (address: number, n: number): Float64Array => new Float64Array(engine.memory.buffer, address, n);
  return {
    kind: 'C++ engine as WebAssembly with SIMD',
    isa: 'wasm',
    block,
    run(length) {
      slotsAt(blockAddress, length).set(block.subarray(0, length));
      const status = checked(() => engine.wick_run(blockAddress));
      if (status !== 0) block.set(slotsAt(blockAddress, BLOCK_SLOTS));
      return status;
    },
    place(slots) {
      const address = taken(engine, slots.byteLength, 0);
      slotsAt(address, slots.length).set(slots);
      const runHere = (): number => checked(() => engine.wick_run_list(address));
      return {
        async run() {
          await setImmediate(); // others of this thread have their turn between two lists
          return runHere();
        },
        runHere,
        get slots() {
          return slotsAt(address, slots.length);
        },
        release: () => engine.wick_free(address),
      };
    },
    find(name) {
      const bytes = Buffer.from(`${name}\0`);
      const address = taken(engine, bytes.length, 0);
      new Uint8Array(engine.memory.buffer).set(bytes, address);
      const found = engine.wick_find(address);
      engine.wick_free(address);
      return found;
    },
    threads: (n) => engine.wick_threads(n),
    pool,
    memcpy: engine.wick_memcpy,
    read: engine.wick_read,
    peak: engine.wick_peak,
  };
}

function compile(path: string): WasmModule {
  try {
    return new Wasm.Module(readFileSync(path));
  } catch (cause) {
    throw new NativeError(`the CPU engine ${path} cannot be loaded: ${(cause as Error).message}`, { cause });
  }
}

/**
 * The module in this thread. The C library asks for files that the engine never uses: an error names what was called.
 */
function instantiate(module: WasmModule, memory: WasmMemory, grow: (workers: number) => void): Instance {
  const imports: WasmImports = {};
  for (const { module: from, name } of Wasm.Module.imports(module))
    (imports[from] ??= {})[name] = () => {
      throw new NativeError(`the CPU engine as WebAssembly called ${name}, which it has no use for`);
    };
  Object.assign((imports.env ??= {}), { memory, wick_grow: grow });
  return { ...(new Wasm.Instance(module, imports).exports as unknown as Exports), memory };
}

const threadsHere = (): number => {
  const wanted = Number(env('WICK_THREADS'));
  return Number.isInteger(wanted) && wanted > 0 ? wanted : availableParallelism();
};

const WORKER_STACK = 1 << 20;
/** A thread that joins the pool when it has come; where none can start, the caller's does all the work. */
function startWorker(engine: Instance, module: WasmModule): void {
  const stack = engine.wick_alloc(WORKER_STACK);
  const locals = engine.wick_alloc(engine.__tls_size.value);
  if (stack === 0 || locals === 0) return;
  const workerData: WorkerParts = { module, memory: engine.memory, stack: stack + WORKER_STACK, locals };
  const worker = new Worker(new URL('./wasm-worker.js', import.meta.url), { workerData });
  worker.on('error', () => {}); // a thread that does not come is not waited for
  worker.unref();
}
/** The body of a worker thread. */
export function serve({ module, memory, stack, locals }: WorkerParts): never {
  const engine = instantiate(module, memory, () => {});
  engine.__stack_pointer.value = stack;
  engine.__wasm_init_tls(locals);
  const id = engine.wick_join();
  for (;;)
    try {
      engine.wick_serve(id);
    } catch (e) {
      if (!(e instanceof Wasm.RuntimeError)) throw e;
      engine.__stack_pointer.value = stack;
      engine.wick_fell();
    }
}

/** A trap is memory that is not there: every size and index was looked at before. */
function trapsAsErrors(engine: Instance): (run: () => number) => number {
  const stack = engine.__stack_pointer.value;
  return (run) => {
    try {
      return run();
    } catch (cause) {
      if (!(cause instanceof Wasm.RuntimeError)) throw cause;
      engine.__stack_pointer.value = stack;
      engine.wick_recover();
      throw new OutOfMemoryError(
        `cpu: the CPU engine as WebAssembly ended in "${cause.message}": most likely no memory was left of its 4 GiB`,
        { cause },
      );
    }
  };
}

function taken(engine: Exports, bytes: number, live: number): number {
  const address = bytes <= MOST ? engine.wick_alloc(Math.max(bytes, 1)) : 0;
  if (address === 0)
    throw new OutOfMemoryError(
      `cpu: no memory for a block of ${bytes} bytes: the CPU engine as WebAssembly has at most 4 GiB ` +
        `(${live} bytes are in use by tensors)`,
    );
  return address;
}

/** What a finaliser may hold. */
class WasmToken implements MemoryToken {
  readonly address: number;
  readonly pool: WasmPool;
  /** Bytes in use; undefined while nobody uses the block. */
  used: number | undefined;
  watched = false;
  constructor(address: number, pool: WasmPool) {
    this.address = address;
    this.pool = pool;
  }
  get bytes(): number {
    return this.used ?? 0;
  }
}

class WasmBlock implements Memory {
  bytes = 0;
  readonly address: number;
  readonly token: WasmToken;
  readonly pool: WasmPool;
  /** Bytes of the block, at least `bytes`. */
  readonly room: number;
  constructor(address: number, room: number, pool: WasmPool) {
    this.address = address;
    this.room = room;
    this.pool = pool;
    this.token = new WasmToken(address, pool);
  }
  /** The module's memory as it is now: a view of it does not outlive the next allocation. */
  get buffer(): ArrayBufferLike {
    return this.pool.buffer;
  }
  get start(): number {
    return this.address;
  }
}

/**
 * Blocks of the module's own heap. A pool beside the first keeps what comes back to it for itself: recorded work still
 * computes in memory that was free when it was recorded.
 */
class WasmPool implements Pool {
  readonly #engine: Instance;
  readonly #count: MemoryCounters;
  #keeps: boolean;
  readonly #kept = new Map<number, WasmBlock[]>();
  constructor(engine: Instance, counters = new MemoryCounters(), keeps = false) {
    this.#engine = engine;
    this.#count = counters;
    this.#keeps = keeps;
  }
  get buffer(): ArrayBufferLike {
    return this.#engine.memory.buffer;
  }
  beside(): WasmPool {
    return new WasmPool(this.#engine, this.#count, true);
  }
  alloc(bytes: number): WasmBlock {
    const count = this.#count;
    const room = this.#keeps ? roomFor(bytes) : bytes;
    const kept = this.#kept.get(room)?.pop();
    if (kept) count.cachedBytes -= room;
    const block = kept ?? new WasmBlock(taken(this.#engine, room, count.liveBytes), room, this);
    count.liveBlocks++;
    count.liveBytes += bytes;
    count.peakBytes = Math.max(count.peakBytes, count.liveBytes);
    block.bytes = block.token.used = bytes;
    return block;
  }
  free(memory: Memory): void {
    const token = memory instanceof WasmBlock ? memory.token : (memory as WasmToken);
    if (token.used === undefined) return;
    this.#count.liveBlocks--;
    this.#count.liveBytes -= token.used;
    token.used = undefined;
    // A token stands for a block that no tensor and no recorded call reaches any more.
    if (!(memory instanceof WasmBlock) || !this.#keeps) return this.#engine.wick_free(token.address);
    const kept = this.#kept.get(memory.room);
    if (kept) kept.push(memory);
    else this.#kept.set(memory.room, [memory]);
    this.#count.cachedBytes += memory.room;
  }
  close(): void {
    this.#keeps = false;
    this.trim();
  }
  stats(): MemoryStats {
    return { ...this.#count };
  }
  trim(): void {
    for (const blocks of this.#kept.values())
      for (const block of blocks) {
        this.#count.cachedBytes -= block.room;
        this.#engine.wick_free(block.address);
      }
    this.#kept.clear();
  }
}

// The CPU engine as the backend sees it, and the one in a shared library; wasm-engine.ts has the same as WebAssembly.
import { env } from '../../base/environment.js';
import { NativeError } from '../../base/errors.js';
import { nativeString, openLibrary } from '../../driver/ffi.js';
import { MemoryPool, type Pool } from './memory.js';

/** Slots of the block that holds one call; native/engine/engine.cpp reads the same. */
export const BLOCK_SLOTS = 1024;
export const MESSAGE = 960;
export const MESSAGE_BYTES = 512;

/** A list of calls where the engine can read it. */
export interface PlacedCalls {
  /** Works the list through, on another thread where there is one; answers the status. */
  run(): Promise<number>;
  /** The same on the thread that asks. */
  runHere(): number;
  /** The list with what the engine wrote into it. */
  readonly slots: Float64Array;
  release(): void;
}

export interface Engine {
  /** What it is, for people, before its threads: 'C++ engine with neon instructions'. */
  readonly kind: string;
  /** 'avx512', 'avx2', 'sse2', 'neon' or 'wasm'. */
  readonly isa: string;
  /** The call to run; after a status other than 0 it holds a message. */
  readonly block: Float64Array;
  /** Runs the call in the first `length` slots of the block. */
  run(length: number): number;
  place(slots: Float64Array<ArrayBuffer>): PlacedCalls;
  /** An op's number; negative when the engine lacks it. */
  find(name: string): number;
  /** Sets how many threads there are, unless n is 0; answers how many there are. */
  threads(n: number): number;
  /** Memory that the engine can compute on. */
  readonly pool: Pool;
  memcpy(to: number, from: number, bytes: number): void;
  read(from: number, bytes: number): void;
  /** Operations that multiply-adds alone did. */
  peak(rounds: number): number;
}

type RunList = { async: (list: number, done: (error: Error | null, status: number) => void) => void };

/** The engine in the shared library at `path`. */
export function openNative(path: string): Engine {
  const library = openLibrary({ name: 'the CPU engine', sonames: [path], vendor: 'host' });
  if (typeof library === 'string') throw new NativeError(library);
  const select = library.func('int wick_select(const char *isa)');
  // An engine built elsewhere may hold other instruction sets than this CPU has.
  const wanted = env('WICK_CPU_ISA') ?? '';
  const status = select(wanted);
  if (status === 1)
    throw new NativeError(
      wanted
        ? `WICK_CPU_ISA is ${wanted}, but this CPU lacks those instructions`
        : `the CPU engine ${library.path} was built for instructions that this CPU lacks`,
    );
  if (status !== 0)
    throw new NativeError(
      `WICK_CPU_ISA is ${JSON.stringify(wanted)}, which the CPU engine ${library.path} was not built for`,
    );
  const run = library.func('int wick_run(double block)');
  const runList = library.func('int wick_run_list(double list)') as unknown as RunList & ((list: number) => number);
  const address = library.func('double wick_address(void *p)') as (buffer: ArrayBuffer) => number;
  const advise = library.func('void wick_advise(double address, double bytes)') as (a: number, n: number) => unknown;
  const isa = nativeString(library.func('uintptr_t wick_isa()')());
  const block = new Float64Array(BLOCK_SLOTS);
  const blockAddress = address(block.buffer);
  return {
    kind: `C++ engine with ${isa} instructions`,
    isa,
    block,
    run: () => run(blockAddress),
    place(slots) {
      const list = address(slots.buffer);
      const work = (): Promise<number> =>
        new Promise((done, failed) => runList.async(list, (error, result) => (error ? failed(error) : done(result))));
      return { run: work, runHere: () => runList(list), slots, release: () => undefined };
    },
    find: library.func('int wick_find(const char *name)'),
    threads: library.func('int wick_threads(int n)'),
    pool: new MemoryPool(address, advise),
    memcpy: library.func('void wick_memcpy(double to, double from, double bytes)'),
    read: library.func('void wick_read(double from, double bytes)'),
    peak: library.func('double wick_peak(double rounds)'),
  };
}

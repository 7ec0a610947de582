// The seam between tensors and devices: memory, copies, and running a row on operands of any layout.
import type { DType, Value } from '../base/dtype.js';
import type { Layout } from '../base/layout.js';
import type { Params, RunRow } from '../ops/op.js';
import type { GpuBackend } from './gpu/gpu.js';

/** A block of device memory. `address` is what kernels are given; element offsets live in layouts. */
export interface Memory {
  readonly bytes: number;
  readonly address: number;
  /**
   * Where the collector frees the block: what a finaliser gives to `free` instead, since it must not keep the block
   * alive. A block that is used again brings the token that it had.
   */
  readonly token?: MemoryToken;
}
export interface MemoryToken extends Memory {
  /** A finaliser waits for the block already. */
  watched: boolean;
}

/** One operand of an op: memory seen through a layout. */
export interface View {
  readonly memory: Memory;
  readonly layout: Layout;
  readonly dtype: DType;
}

export interface MemoryStats {
  /** Bytes held by live tensors, and blocks they are in. */
  readonly liveBytes: number;
  readonly liveBlocks: number;
  /** Bytes kept for reuse. */
  readonly cachedBytes: number;
  readonly peakBytes: number;
}

/** One step of a chain: a row on values numbered inputs first, then the results of the steps before; or a number. */
export type ChainStep = RowStep | { readonly constant: Value; readonly dtype: DType };
export interface RowStep {
  /** Elementwise, or a cast, whose `dtype` is then the one cast to. */
  readonly row: RunRow;
  readonly dtype: DType;
  readonly args: readonly number[];
  readonly params: Params;
}

/** Recorded work that can be repeated: the same kernels on the same memory. */
export interface Recorded {
  /** Begins it; what is enqueued later comes after it. Where a promise is answered, it is done when that is. */
  launch(): Promise<void> | void;
  dispose(): void;
}

/** How a factorization runs: by kernels of the device's own, by its vendor's library, or not here. */
export type Factors = 'itself' | 'by library' | 'elsewhere';

export interface Backend {
  /** 'cpu', 'reference', 'cuda:0', 'rocm:1', 'sim:64', 'emu:gfx1030'. */
  readonly name: string;
  /** One line about the device, for people. */
  readonly description: string;
  /** The backend itself where it is a GPU's: what only those have is found there. */
  readonly gpu?: GpuBackend;
  /** Uninitialised memory; free returns it, at most once, and the backend may keep it for reuse. */
  alloc(bytes: number): Memory;
  free(memory: Memory): void;
  /** Host to device. The bytes are taken before the call returns. */
  write(memory: Memory, byteOffset: number, data: Uint8Array): void;
  /** Device to host, after everything enqueued before it. */
  read(memory: Memory, byteOffset: number, target: Uint8Array): Promise<void>;
  readSync(memory: Memory, byteOffset: number, target: Uint8Array): void;
  /** Runs a row: outputs are allocated and never overlap inputs; any layout on either side; may only enqueue. */
  run(row: RunRow, inputs: readonly View[], outputs: readonly View[], params: Params): void;
  /**
   * Runs elementwise rows and casts on operands of one shape as one kernel; the last step is the result. Absent where
   * nothing is gained.
   */
  runChain?(steps: readonly ChainStep[], inputs: readonly View[], out: View): void;
  /** Whether chains can be made: where a release brought all kernels and there is no compiler, they cannot. */
  readonly makesChains?: boolean;
  /** Whether results of so many elements are worth a kernel of their own for the steps of one op. */
  worthChain?(elements: number): boolean;
  /** true, or the sentence that errors, skips and docs print. */
  supports(row: RunRow, dtype: DType): true | string;
  /** How it runs a factorization (a row of src/ops/linalg-factors.ts) of m x n; absent where `supports` says it all. */
  factors?(name: string, m: number, n: number, dtype: DType): Factors;
  /**
   * Records what f asks for instead of running it. Memory made inside is the recording's as long as that lives. Absent
   * where a device cannot. One that never runs at the same time as another, and whose results nobody wants once that
   * runs, may be recorded `beside` it: they then share what memory they have no need of between runs.
   */
  capture?(f: () => void, beside?: Recorded): Recorded;
  /**
   * What f asks for, run on another thread: its results may be read once the promise is kept. Absent where run only
   * enqueues.
   */
  elsewhere?<T>(f: () => T): Promise<T>;
  /** Runs f at once though work is being recorded: for what outlives the recording, such as tables kept for all. */
  outside?<T>(f: () => T): T;
  sync(): Promise<void>;
  memory(): MemoryStats;
  /** Gives cached memory back. */
  trim(): void;
}

// The seam between the GPU backend and a way to reach a GPU: cuda, hip, sim (host C++), emu (AMD code objects emulated)
// and dry (nothing runs).
//
// Handles and addresses are plain numbers (both fit 2^53), so that the hot path holds no BigInt and makes no garbage.
// Calls without "async" in their description return when done; everything that takes a stream is only enqueued on it.
// Failures throw: DeviceError (no such device, no driver), OutOfMemoryError, DriverError (any other failed call),
// ArgumentError.

/** A device address, in bytes; 0 is the null pointer. */
export type Address = number;
/** Opaque handles: each is valid only on the device that made it. 0 is the default stream. */
export type Stream = number;
export type Event = number;
export type Module = number;
export type Fn = number;
export type Graph = number;
export type GraphExec = number;

export interface DeviceInfo {
  /** The product's name. */
  readonly name: string;
  /** What the compiler is asked for: 'sm_90', 'gfx1100' (without ':sramecc+' suffixes), 'sim'. */
  readonly arch: string;
  /** The target as the driver spells it, suffixes included. */
  readonly fullArch: string;
  /** Threads that run in lockstep: 32 or 64. */
  readonly warp: number;
  readonly multiprocessors: number;
  readonly maxThreadsPerBlock: number;
  readonly maxThreadsPerMultiprocessor: number;
  /** Shared memory a block may use as is, and after setMaxDynamicShared. */
  readonly sharedPerBlock: number;
  readonly sharedPerBlockOptin: number;
  readonly registersPerBlock: number;
  readonly l2Bytes: number;
  readonly totalBytes: number;
  /** The GPU shares memory with the host (APUs). */
  readonly integrated: boolean;
  /** allocAsync and freeAsync are stream-ordered rather than device-wide. */
  readonly memoryPools: boolean;
  /** The driver takes kernels that make tensor maps: CUDA's from 12.5 on. */
  readonly tensorMaps?: boolean;
}

/** A library that was looked for: what was tried, what was found and why it is missing. */
export interface LibraryReport {
  /** 'libcuda', 'NVRTC', 'hipBLASLt', ... */
  readonly name: string;
  readonly found?: string;
  readonly version?: string;
  /** Why it cannot be used; undefined when it can. */
  readonly missing?: string;
}

export interface Driver {
  /** 'cuda', 'hip', 'sim', 'emu' or 'dry'. */
  readonly name: string;
  /** 'CUDA driver 13.0', 'HIP 5.2.21153': one line for people. */
  readonly version: string;
  readonly deviceCount: number;
  info(ordinal: number): DeviceInfo;
  /** One object per ordinal, however often asked. */
  open(ordinal: number): Device;
}

/** Page-locked host memory, which asynchronous copies need; `bytes` is a view of it and must not outlive freeHost. */
export interface HostBuffer {
  readonly address: Address;
  readonly bytes: Uint8Array;
}

/** Sizes along x, y and z. */
export type Triple = readonly [x: number, y: number, z: number];

/**
 * Packed kernel arguments at a stable address: each at its natural alignment, as a C struct would hold them (args.ts
 * makes them).
 */
export interface Arguments {
  readonly address: Address;
  readonly size: number;
}

/** One device: its memory, streams, events, modules, launches and graphs. */
export interface Device {
  readonly driver: Driver;
  readonly ordinal: number;
  readonly info: DeviceInfo;

  /** Device memory, uninitialised, aligned to 256 bytes or more. */
  alloc(bytes: number): Address;
  /** Waits for the device, so blocks are better kept and reused. */
  free(address: Address): void;
  /**
   * Ordered by the stream where info.memoryPools; else the same as alloc and free. Not on a stream that is recorded:
   * blocks would be part of the graph, and others cannot be freed there.
   */
  allocAsync(bytes: number, stream: Stream): Address;
  freeAsync(address: Address, stream: Stream): void;
  memory(): { readonly free: number; readonly total: number };
  allocHost(bytes: number): HostBuffer;
  freeHost(buffer: HostBuffer): void;

  /** Sets bytes. */
  memset(address: Address, byte: number, bytes: number, stream: Stream): void;

  /** From ordinary memory, after what is on the stream; the bytes are on the device when it returns. */
  copyIn(dst: Address, src: Uint8Array, stream: Stream): void;
  /** To ordinary memory, after what is on the stream; done when it returns. */
  copyOut(target: Uint8Array, src: Address, stream: Stream): void;
  /** From pinned memory: enqueued only; the host buffer must stay as it is until the stream gets there. */
  copyInAsync(dst: Address, host: Address, bytes: number, stream: Stream): void;
  /** To pinned memory: enqueued only; the host buffer is in use until the stream gets there. */
  copyOutAsync(host: Address, src: Address, bytes: number, stream: Stream): void;
  /** Device to device. */
  copy(dst: Address, src: Address, bytes: number, stream: Stream): void;

  /** Whether this device reads and writes the other's memory over a link of their own. */
  canReach?(other: Device): boolean;
  /** To another device of the same driver, enqueued here; where there is no link the driver goes through the host. */
  copyTo?(other: Device, dst: Address, src: Address, bytes: number, stream: Stream): void;

  createStream(): Stream;
  destroyStream(stream: Stream): void;
  synchronizeStream(stream: Stream): void;

  /** Events without timing are cheaper; elapsed needs timing. */
  createEvent(timing: boolean): Event;
  destroyEvent(event: Event): void;
  record(event: Event, stream: Stream): void;
  /** What is enqueued on the stream from now on begins after the event, which may be another stream's or device's. */
  streamWait(stream: Stream, event: Event): void;
  /** Whether the work before it is done; true for one never recorded. */
  queryEvent(event: Event): boolean;
  synchronizeEvent(event: Event): void;
  /** Milliseconds between two recorded events. */
  elapsed(start: Event, end: Event): number;

  /** From what the compiler made: cubin, PTX or an AMD code object. */
  loadModule(code: Uint8Array, name: string): Module;
  /** A DriverError says so where the module has no such kernel. */
  getFunction(module: Module, symbol: string): Fn;
  /** Allows launches with up to so many bytes of dynamic shared memory (at most info.sharedPerBlockOptin). */
  setMaxDynamicShared(fn: Fn, bytes: number): void;
  /**
   * Grid in blocks, block in threads; empty grids are refused. The arguments are taken before it returns.
   * With `early` it may begin while the launch before it ends, for kernels that wait by themselves; drivers that cannot
   * do so begin in turn.
   */
  launch(fn: Fn, grid: Triple, block: Triple, shared: number, stream: Stream, args: Arguments, early?: boolean): void;

  /** Work enqueued on the stream between the two is recorded, not run; the stream must not be the default one. */
  beginCapture(stream: Stream): void;
  endCapture(stream: Stream): Graph;
  instantiate(graph: Graph): GraphExec;
  launchGraph(exec: GraphExec, stream: Stream): void;
  destroyGraph(graph: Graph): void;
  destroyGraphExec(exec: GraphExec): void;

  /**
   * Makes it the current device of this thread; the calls above do so themselves, libraries beside the driver need it.
   */
  makeCurrent(): void;
  /** Vendor libraries for matrix products, convolutions and factorizations: opened on first use. */
  readonly libraries: DeviceLibraries;
}

/** A value, or the sentence that says why there is none. */
export type Maybe<T> = T | string;
export interface DeviceLibraries {
  readonly blas: Maybe<import('./blas.js').Blas>;
  readonly dnn: Maybe<import('./dnn.js').Dnn>;
  readonly solver?: Maybe<import('./solver.js').Solver>;
}

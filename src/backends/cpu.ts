// The CPU device: C++ kernels behind one call that takes one preallocated block of numbers.
import { setImmediate as turn } from 'node:timers/promises';
import { env } from '../base/environment.js';
import { DTYPE, type DType } from '../base/dtype.js';
import {
  ArgumentError,
  IndexError,
  NativeError,
  OutOfMemoryError,
  UnsupportedError,
  type WickError,
} from '../base/errors.js';
import { Layout } from '../base/layout.js';
import { cText } from '../driver/ffi.js';
import { movementOps } from '../ops/movement.js';
import type { Params, RunRow } from '../ops/op.js';
import type { Backend, Memory, MemoryStats, Recorded, View } from './backend.js';
import { type Engine, MESSAGE, MESSAGE_BYTES, openNative } from './cpu/engine.js';
import { nativePlatform } from './cpu/instruction-sets.js';
import { type CpuMemory, type Pool, poolOf } from './cpu/memory.js';
import { type Arrange, arrangeFor, type Pack, packFor } from './cpu/pack.js';
import { Recording, RecordedCalls } from './cpu/recording.js';
import { openWasm } from './cpu/wasm-engine.js';
import { ensureNative } from './native-build.js';
import { ReferenceBackend, runReference } from './reference.js';
import { findWasm } from './wasm-build.js';

// Slots of the call block; native/engine/engine.cpp reads the same.
const OP = 0;
const INPUTS = 1;
const OPERANDS = 2;
const PARAMS = 4;
const FIRST_OPERAND = 52;
const MAX_RANK = 16;
const MAX_OPERANDS = 16;

/**
 * Milliseconds within which repeated work is done on the thread that asks: the way to another one and back takes some
 * tenths of one, and twice as long beside other programs.
 */
const BRIEF = 2;
/** Milliseconds that such work may take until timers, sockets and signals have had their turn. */
const TURN = 5;

interface Binding {
  /** Negative when the engine lacks the op. */
  readonly id: number;
  readonly pack: Pack;
  readonly arrange: Arrange | undefined;
  readonly elementwise: boolean;
}

const FAILURES: Record<number, new (message: string) => WickError> = {
  1: IndexError,
  2: UnsupportedError,
  3: OutOfMemoryError,
  4: ArgumentError,
};

export class CpuBackend implements Backend {
  readonly name = 'cpu';
  readonly #engine: Engine;
  readonly #pool: Pool;
  /** Memory of work that runs elsewhere: given out in the order in which that work runs. */
  readonly #aside: Pool;
  #recording: Recording | undefined;
  /** Kept when all work elsewhere that was asked for so far has run. */
  #last: Promise<unknown> = Promise.resolve();
  #underWay = 0;
  /** Milliseconds of brief work since the event loop's last turn. */
  #brief = 0;
  readonly #block: Float64Array;
  readonly #bindings = new Map<RunRow, Binding>();

  constructor(engine: Engine = openEngine()) {
    this.#engine = engine;
    this.#block = engine.block;
    this.#pool = engine.pool;
    this.#aside = this.#pool.beside();
  }

  get description(): string {
    return `${this.#engine.kind}, ${this.threads} thread${this.threads === 1 ? '' : 's'}`;
  }
  /** The instruction set in use: 'avx512', 'avx2', 'sse2', 'neon' or 'wasm'. */
  get isa(): string {
    return this.#engine.isa;
  }
  get threads(): number {
    return this.#engine.threads(0);
  }
  set threads(n: number) {
    this.#engine.threads(n);
  }

  /**
   * What the machine can do with these threads, for benchmarks: a plain copy, reading alone, and multiply-adds (the
   * answer is how many operations).
   */
  copyBytes(to: Memory, from: Memory, bytes: number): void {
    this.#engine.memcpy(to.address, from.address, bytes);
  }
  readBytes(from: Memory, bytes: number): void {
    this.#engine.read(from.address, bytes);
  }
  multiplyAdds(rounds: number): number {
    return this.#engine.peak(rounds);
  }

  alloc(bytes: number): Memory {
    return (this.#recording?.pool ?? this.#pool).alloc(bytes);
  }
  free(memory: Memory): void {
    const pool = poolOf(memory);
    if (this.#recording && pool !== this.#recording.pool) this.#recording.freed.push(memory);
    else pool.free(memory);
  }
  write(memory: Memory, byteOffset: number, data: Uint8Array): void {
    if (this.#recording) return this.#writeLater(this.#recording, memory, byteOffset, data);
    bytesOf(memory, byteOffset, data.byteLength).set(data);
  }
  /** Bytes wait in memory of their own until the recorded copy runs. */
  #writeLater(recording: Recording, memory: Memory, byteOffset: number, data: Uint8Array): void {
    const waiting = this.#pool.alloc(data.byteLength);
    bytesOf(waiting, 0, data.byteLength).set(data);
    recording.freed.push(waiting);
    const bytes = Layout.contiguous([data.byteLength]);
    const to: View = { memory, layout: Layout.contiguous([data.byteLength], byteOffset), dtype: 'u8' };
    this.run(COPY, [{ memory: waiting, layout: bytes, dtype: 'u8' }], [to], {});
  }
  readSync(memory: Memory, byteOffset: number, target: Uint8Array): void {
    if (this.#recording) throw new UnsupportedError('cpu: nothing can be read while work is recorded');
    target.set(bytesOf(memory, byteOffset, target.byteLength));
  }
  async read(memory: Memory, byteOffset: number, target: Uint8Array): Promise<void> {
    this.readSync(memory, byteOffset, target);
  }

  run(row: RunRow, inputs: readonly View[], outputs: readonly View[], params: Params): void {
    if (row.custom && !row.custom.native) return this.#runOwn(row, inputs, outputs, params);
    const binding = this.#bindings.get(row) ?? this.#bind(row);
    if (binding.id < 0) throw new UnsupportedError(`${row.name}: ${lacking(row)}`);
    const block = this.#block;
    const ins = binding.arrange ? binding.arrange(inputs, outputs) : inputs;
    block[OP] = binding.id;
    block[INPUTS] = ins.length;
    block[OPERANDS] = ins.length + outputs.length;
    binding.pack(block, PARAMS, params);
    let at = FIRST_OPERAND;
    if (binding.elementwise && dense(ins) && outputs[0].layout.isContiguous) {
      const { size } = outputs[0].layout;
      for (let i = 0; i < ins.length; i++) at = putLine(block, at, ins[i], size);
      at = putLine(block, at, outputs[0], size);
    } else {
      if (ins.length + outputs.length > MAX_OPERANDS)
        throw new UnsupportedError(
          `${row.name}: ${ins.length + outputs.length} operands; the CPU engine takes ${MAX_OPERANDS}`,
        );
      for (const v of ins) at = putView(block, at, v, row);
      for (const v of outputs) at = putView(block, at, v, row);
    }
    if (this.#recording) return this.#recording.add(row, block, at, inputs, outputs);
    const status = this.#engine.run(at);
    if (status !== 0) this.#fail(status, row);
  }
  /** A user's op: its own function. */
  #runOwn(row: RunRow, inputs: readonly View[], outputs: readonly View[], params: Params): void {
    if (this.#recording) throw new UnsupportedError(`${row.name}: functions in JavaScript cannot be recorded`);
    runReference(row, inputs, outputs, params);
  }

  #record<T>(pool: Pool, f: () => T): { recording: Recording; result: T } {
    if (this.#recording) throw new UnsupportedError('cpu: work is being recorded already');
    const recording = (this.#recording = new Recording(pool));
    try {
      return { recording, result: f() };
    } catch (e) {
      recording.release();
      throw e;
    } finally {
      this.#recording = undefined;
    }
  }
  capture(f: () => void): Recorded {
    const { recording } = this.#record(this.#pool.beside(), f);
    const calls = recording.finish(this.#engine.place);
    const launch = (): Promise<void> => {
      if (this.#underWay > 0 || calls.milliseconds >= BRIEF) return this.#enqueue(calls);
      return this.#brief + calls.milliseconds < TURN ? this.#runHere(calls) : this.#runNextTurn(calls);
    };
    const dispose = (): void => {
      void this.#last.then(() => {
        calls.release();
        recording.pool.close();
      });
    };
    return { launch, dispose };
  }
  async elsewhere<T>(f: () => T): Promise<T> {
    const { recording, result } = this.#record(this.#aside, f);
    const calls = recording.finish(this.#engine.place);
    try {
      await this.#enqueue(calls);
    } finally {
      calls.release();
    }
    return result;
  }
  outside<T>(f: () => T): T {
    const recording = this.#recording;
    this.#recording = undefined;
    try {
      return f();
    } finally {
      this.#recording = recording;
    }
  }
  async #runHere(calls: RecordedCalls): Promise<void> {
    if (this.#brief === 0) setImmediate(() => (this.#brief = 0));
    const status = calls.runHere();
    this.#brief += calls.milliseconds;
    if (status !== 0) throw failure(status, calls.failedRow, calls.message);
  }
  /** The same when timers, sockets and signals have had their turn, which takes less than the way to another thread. */
  #runNextTurn(calls: RecordedCalls): Promise<void> {
    return this.#inOrder(async () => {
      await turn();
      await this.#runHere(calls);
    });
  }
  /** On a thread of the system's. */
  #enqueue(calls: RecordedCalls): Promise<void> {
    return this.#inOrder(async () => {
      const status = await calls.run();
      if (status !== 0) throw failure(status, calls.failedRow, calls.message);
    });
  }
  /** One after another, as they were asked for; at once where nothing runs. */
  #inOrder(start: () => Promise<void>): Promise<void> {
    this.#underWay++;
    const run = this.#underWay === 1 ? start() : this.#last.then(start);
    const over = (): void => void this.#underWay--;
    this.#last = run.then(over, over); // whoever launched it is told of errors
    return run;
  }

  supports(row: RunRow, _dtype: DType): true | string {
    if (row.custom && !row.custom.native) return true;
    const { id } = this.#bindings.get(row) ?? this.#bind(row);
    return id >= 0 ? true : lacking(row);
  }

  async sync(): Promise<void> {
    // Every run is finished when it returns.
  }
  memory(): MemoryStats {
    return this.#pool.stats();
  }
  trim(): void {
    this.#pool.trim();
    void this.#last.then(() => this.#aside.trim());
  }

  #bind(row: RunRow): Binding {
    const pack = packFor(row);
    const binding: Binding = {
      id: pack ? this.#engine.find(row.name) : -1,
      pack: pack ?? (() => undefined),
      arrange: arrangeFor(row),
      elementwise: row.family === 'elementwise',
    };
    this.#bindings.set(row, binding);
    return binding;
  }

  #fail(status: number, row: RunRow): never {
    const bytes = new Uint8Array(this.#block.buffer, MESSAGE * 8, MESSAGE_BYTES);
    throw failure(status, row, cText(bytes));
  }
}

function failure(status: number, row: RunRow, text: string): WickError {
  const Failure = FAILURES[status] ?? NativeError;
  return new Failure(text.startsWith(row.name) ? text : `${row.name}: ${text}`);
}

const COPY = movementOps.copy as unknown as RunRow;
const lacking = (row: RunRow): string => `the CPU engine has no kernel of this name (family ${row.family})`;

function bytesOf(memory: Memory, byteOffset: number, length: number): Uint8Array {
  const { buffer, start } = memory as CpuMemory;
  return new Uint8Array(buffer, start + byteOffset, length);
}

function dense(views: readonly View[]): boolean {
  for (let i = 0; i < views.length; i++) if (!views[i].layout.isContiguous) return false;
  return true;
}

/** A contiguous operand as one dimension. */
function putLine(block: Float64Array, at: number, view: View, size: number): number {
  const { id, bytes } = DTYPE[view.dtype];
  block[at] = view.memory.address + view.layout.offset * bytes;
  block[at + 1] = id;
  block[at + 2] = 1;
  block[at + 3] = size;
  block[at + 4] = 1;
  return at + 5;
}

function putView(block: Float64Array, at: number, view: View, row: RunRow): number {
  const { id, bytes } = DTYPE[view.dtype];
  const { shape, strides, offset } = view.layout;
  const rank = shape.length;
  if (rank > MAX_RANK) throw new UnsupportedError(`${row.name}: rank ${rank}; the CPU engine goes up to ${MAX_RANK}`);
  block[at] = view.memory.address + offset * bytes;
  block[at + 1] = id;
  block[at + 2] = rank;
  at += 3;
  for (let d = 0; d < rank; d++) {
    block[at + d] = shape[d];
    block[at + rank + d] = strides[d];
  }
  return at + 2 * rank;
}

/** The instruction set's name of the engine as WebAssembly. */
const WASM = 'wasm';

/** The shared library, or as WebAssembly where that is asked for by WICK_CPU_ISA. */
const openEngine = (): Engine => (env('WICK_CPU_ISA') === WASM ? openWasm(findWasm()) : openNative(ensureNative()));

/** The instruction set's name for none: the reference engine. */
const REFERENCE = 'reference';

/** What WICK_CPU_ISA asks for, or else the shared library; an error where that cannot be had. */
export const openChosen = (): Backend =>
  env('WICK_CPU_ISA') === REFERENCE ? new ReferenceBackend('cpu') : new CpuBackend();

/**
 * The engine; as WebAssembly where there is no shared library of it and none can be built, and the reference engine
 * where there is neither. What could be better is said once.
 */
export function openCpu(): Backend {
  try {
    return openChosen();
  } catch (e) {
    if (!(e instanceof NativeError) || env('WICK_CPU_ISA')) throw e;
    try {
      const backend = new CpuBackend(openWasm(findWasm()));
      // On other platforms there is no better one to be had, so that `wick devices` saying so is enough.
      if (nativePlatform()) warn(`${e.message}. The CPU engine runs as WebAssembly, with at most 4 GiB of tensors.`);
      return backend;
    } catch (second) {
      if (!(second instanceof NativeError)) throw second;
      warn(`${e.message}; ${second.message}. Tensors on 'cpu' are computed by the slow reference engine.`);
      return new ReferenceBackend('cpu');
    }
  }
}
const warn = (message: string): void => process.emitWarning(message, 'WickWarning');

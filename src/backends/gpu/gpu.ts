// The GPU backend: one for every driver. HIP, CUDA, the simulation and the emulator differ below the driver seam only.
import type { DType } from '../../base/dtype.js';
import { DisposedError, DriverError, UnsupportedError } from '../../base/errors.js';
import type { Device, DeviceLibraries, HostBuffer } from '../../driver/driver.js';
import type { Params, RunRow } from '../../ops/op.js';
import type { Backend, ChainStep, Factors, Memory, MemoryStats, Recorded, View } from '../backend.js';
import type { DrawSizes } from '../generation.js';
import { addProduct } from './add-product.js';
import { capacityOf, type GpuMemory, Pool } from './allocator.js';
import { attendPrompts, type PagedPrompts } from './attention-prompts.js';
import { type Dependent, GpuContext } from './context.js';
import { DecodeSteps } from './decode.js';
import { launchChain, tracedChain } from './elementwise.js';
import { factorsOf } from './factor.js';
import { planRow, supportsRow } from './families.js';
import type { CodeSource } from './functions.js';
import { PlanMemo } from './plan-memo.js';
import { runPlan } from './run-plan.js';
import { BatchDraws, drawBytes } from './sample.js';
import { SideStream } from './side-stream.js';
import { Touched } from './touched.js';
import { Uploads } from './uploads.js';

/** Pinned memory for reads: larger reads go through it in pieces. */
const STAGING_BYTES = 16 << 20;
const READ_LATER = 'answer the tensor and read it afterwards';

/** What is known of recorded work besides its graph. */
interface RecordedFacts {
  readonly told: ReadonlySet<Set<Dependent>>;
  readonly indexed: boolean;
  readonly touched: Touched | undefined;
}

/** A captured graph. */
export class Replay implements Recorded, Dependent {
  readonly #gpu: GpuContext;
  readonly #exec: number;
  readonly #pool: Pool;
  /** Lists of those who must outlive it. */
  readonly #told: ReadonlySet<Set<Dependent>>;
  /** Whether ops that read indices are part of it. */
  readonly #indexed: boolean;
  readonly #touched: Touched | undefined;
  /** Why it cannot be launched any more. */
  #over: string | undefined;
  #disposed = false;
  constructor(gpu: GpuContext, exec: number, pool: Pool, { told, indexed, touched }: RecordedFacts) {
    this.#gpu = gpu;
    this.#exec = exec;
    this.#pool = pool;
    this.#told = told;
    this.#indexed = indexed;
    this.#touched = touched;
    for (const list of told) list.add(this);
    pool.graphs++;
  }
  /** The memory that the recorded work uses. */
  get pool(): Pool {
    return this.#pool;
  }
  /** Runs the recorded work once more, on the same memory; it is enqueued, not waited for. */
  launch(): void {
    if (this.#over !== undefined) throw new DisposedError(`launch: recorded work that is gone: ${this.#over}`);
    this.#gpu.device.launchGraph(this.#exec, this.#gpu.stream);
    if (this.#indexed) this.#gpu.unseen = true;
  }
  /** Ends it with a reason, which a later launch says; its memory stays until it is disposed of. */
  stop(why: string): void {
    if (this.#over !== undefined) return;
    this.#over = why;
    for (const list of this.#told) list.delete(this);
    this.#gpu.device.destroyGraphExec(this.#exec);
  }
  /** Gives the recording and the memory it held back. */
  dispose(): void {
    if (this.#disposed) return;
    this.#disposed = true;
    this.stop('it was disposed of');
    if (--this.#pool.graphs === 0) this.#gpu.allocator.release(this.#pool);
    this.#touched?.release();
  }
  [Symbol.dispose](): void {
    this.dispose();
  }
}

function refuseReplaced({ replaced }: Touched): void {
  if (replaced.length > 0)
    throw new UnsupportedError(
      `capture: ${replaced.length === 1 ? 'a tensor' : `${replaced.length} tensors`} (of ` +
        `${replaced.map((m) => `${m.bytes} bytes`).join(', ')}) that the recorded work reads was disposed of in it: every ` +
        'run would read the same old numbers. What one run leaves for the next must be written in place (assign)',
    );
}

export class GpuBackend implements Backend {
  readonly name: string;
  readonly description: string;
  readonly gpu = this;
  /**
   * Elements from which on moving them several times costs more than a kernel's compilation is worth; smaller steps
   * have the kernels that every op has.
   */
  chainsFrom = 2 ** 20;
  #compiles: boolean | undefined;
  readonly context: GpuContext;
  readonly #staging: HostBuffer[] = [];
  readonly #uploads: Uploads;
  readonly #plans: PlanMemo;

  constructor(name: string, device: Device, description?: string, libraries?: DeviceLibraries, code?: CodeSource) {
    this.name = name;
    this.context = new GpuContext(device, libraries, code);
    this.#uploads = new Uploads(this.context.device, this.context.stream);
    this.#plans = new PlanMemo(device.info, this.context.libraries);
    const { info, driver } = device;
    this.description =
      description ?? `${info.name} (${info.arch}), ${(info.totalBytes / 2 ** 30).toFixed(0)} GiB, ${driver.version}`;
  }

  alloc(bytes: number): Memory {
    return this.context.allocator.alloc(bytes);
  }
  free(memory: Memory): void {
    this.context.allocator.free(memory as GpuMemory);
  }
  /** Few bytes are enqueued, many waited for. */
  write(memory: Memory, byteOffset: number, data: Uint8Array): void {
    this.#refuseWhileRecorded('brought to the device', 'make them before');
    const { device, stream, onSide } = this.context;
    const to = memory.address + byteOffset;
    if (onSide || !Uploads.takes(data.byteLength)) device.copyIn(to, data, stream);
    else this.#uploads.write(to, data);
  }
  #refuseWhileRecorded(what: string, instead: string): void {
    if (this.context.recording)
      throw new UnsupportedError(
        `${this.name}: numbers cannot be ${what} while work is recorded, since nothing runs then; ${instead}`,
      );
  }
  readSync(memory: Memory, byteOffset: number, target: Uint8Array): void {
    this.#refuseWhileRecorded('read', READ_LATER);
    this.context.device.copyOut(target, memory.address + byteOffset, this.context.stream);
    this.context.checkFaults(memory);
  }

  /** Copies through pinned memory and waits by polling, so that the event loop goes on. */
  async read(memory: Memory, byteOffset: number, target: Uint8Array): Promise<void> {
    this.#refuseWhileRecorded('read', READ_LATER);
    const { device, stream } = this.context;
    const staging = this.#staging.pop() ?? device.allocHost(STAGING_BYTES);
    const event = device.createEvent(false);
    try {
      for (let at = 0; at < target.byteLength; at += STAGING_BYTES) {
        const n = Math.min(STAGING_BYTES, target.byteLength - at);
        device.copyOutAsync(staging.address, memory.address + byteOffset + at, n, stream);
        device.record(event, stream);
        await this.#reached(event);
        target.set(staging.bytes.subarray(0, n), at);
      }
    } finally {
      device.destroyEvent(event);
      this.#staging.push(staging);
    }
    this.context.checkFaults(memory);
  }
  async #reached(event: number): Promise<void> {
    const { device } = this.context;
    for (let spin = 0; !device.queryEvent(event); spin++) {
      // A few quick looks for short work, then sleeps that cost nothing.
      await (spin < 200 ? new Promise<void>((r) => setImmediate(r)) : new Promise<void>((r) => setTimeout(r, 1)));
    }
  }

  run(row: RunRow, inputs: readonly View[], outputs: readonly View[], params: Params): void {
    const { bare, libraries, touched } = this.context;
    touched?.note(inputs, outputs);
    const plan =
      this.#plans.find(row, inputs, outputs, params) ?? planRow(row, inputs, outputs, params, bare.info, libraries);
    runPlan(this.context, plan, row.name, outputs, inputs);
  }
  runChain(steps: readonly ChainStep[], inputs: readonly View[], out: View): void {
    this.context.touched?.note(inputs, [out]);
    launchChain(this.context, { ...tracedChain(steps, inputs), inputs, out });
  }
  get makesChains(): boolean {
    return (this.#compiles ??= this.context.functions.compiles() === true);
  }
  worthChain(elements: number): boolean {
    return elements >= this.chainsFrom && this.makesChains;
  }
  factors(name: string, m: number, n: number, dtype: DType): Factors {
    const { bare, libraries } = this.context;
    return factorsOf(bare.info, libraries, name, m, n, dtype);
  }
  supports(row: RunRow, dtype: DType): true | string {
    if (row.family === 'custom' && row.custom?.native) return true; // whoever calls it has asked `factors`
    return supportsRow(row, dtype);
  }

  // ---- what engines make generation of ----

  decodeSteps(dtype: DType, sequences?: number): DecodeSteps {
    return new DecodeSteps(this, dtype, sequences);
  }
  /** out = sum + x times the transposed weight; false, and nothing done, where no library does it. */
  addProduct(sum: View, x: View, weight: View, out = sum): boolean {
    return addProduct(this.context, sum, x, weight, out);
  }
  /**
   * Runs f with products of our own: what a library saves in few small ones is less than it costs to read it, hundreds
   * of megabytes, and a program that has no others never opens it.
   */
  withOwnProducts<T>(f: () => T): T {
    const { libraries } = this.context;
    const { products } = libraries;
    libraries.products = false;
    try {
      return f();
    } finally {
      libraries.products = products;
    }
  }
  /**
   * Runs f, whose work will come again and again: of a library's algorithms for large products the quickest are kept.
   */
  measuringProducts<T>(f: () => T): T {
    const { context } = this;
    context.libraries.measuring = (bytes, use) => context.scratch(bytes, use);
    try {
      const made = f();
      context.turn.finish(); // what waits for its kernels is measured, too
      return made;
    } finally {
      context.libraries.measuring = undefined;
    }
  }
  attendPrompts(prompts: PagedPrompts): void {
    attendPrompts(this.context, prompts);
  }
  batchDraws(sizes: DrawSizes): BatchDraws {
    return new BatchDraws(this, sizes);
  }
  /** Bytes that `batchDraws` takes. */
  drawBytes(sizes: DrawSizes): number {
    return drawBytes(sizes);
  }
  /** Bytes that a block of so many really takes. */
  blockBytes(bytes: number): number {
    return capacityOf(bytes);
  }

  /** A second line of work. */
  stream(): SideStream {
    return new SideStream(this.context);
  }
  /** Whether memory can be copied to another backend's without the host in between waiting. */
  reaches(other: Backend): other is GpuBackend {
    if (!(other instanceof GpuBackend)) return false;
    const { device } = this.context;
    return device.copyTo !== undefined && device.driver === other.context.device.driver;
  }
  /** Copies to another GPU: after what is enqueued here, before what is enqueued there from now on. Nothing waits. */
  copyTo(other: GpuBackend, from: Memory, byteOffset: number, to: Memory, bytes: number): void {
    const [here, there] = [this.context, other.context];
    for (const { turn } of [here, there]) turn.finish();
    // Results of an index out of range are told of here: the other device does not know of them.
    if ((from as GpuMemory).suspect) here.checkFaults(from);
    const [free, done] = [there.device.createEvent(false), here.device.createEvent(false)];
    // The block may have served something before that is still enqueued there.
    there.device.record(free, there.stream);
    here.device.streamWait(here.stream, free);
    here.device.copyTo?.(there.device, to.address, from.address + byteOffset, bytes, here.stream);
    here.device.record(done, here.stream);
    there.device.streamWait(there.stream, done);
    there.device.destroyEvent(free);
    here.device.destroyEvent(done);
  }

  /**
   * Records what f enqueues instead of running it. Tensors made inside keep their memory as long as the replay lives;
   * with `hold` so do those from outside that ops in it use, and f is refused if it has put others in their places.
   */
  capture(f: () => void, beside?: Recorded, { hold = false }: { readonly hold?: boolean } = {}): Replay {
    const { device, allocator } = this.context;
    const pool = beside instanceof Replay && !beside.pool.closed ? beside.pool : new Pool();
    const touched = hold ? new Touched(allocator, pool) : undefined;
    const { unseen } = this.context;
    try {
      const told = new Set<Set<Dependent>>();
      this.context.unseen = false;
      const graph = this.#recorded(f, pool, told, touched);
      const indexed = this.context.unseen;
      try {
        if (touched) refuseReplaced(touched);
        return new Replay(this.context, device.instantiate(graph), pool, { told, indexed, touched });
      } finally {
        device.destroyGraph(graph);
      }
    } catch (e) {
      if (pool.graphs === 0) allocator.release(pool);
      touched?.release();
      throw e;
    } finally {
      this.context.unseen = unseen;
    }
  }
  #recorded(f: () => void, pool: Pool, told: Set<Set<Dependent>>, touched: Touched | undefined): number {
    const { context } = this;
    const { device, stream, allocator } = context;
    let graph = 0;
    context.faultWords();
    allocator.record(pool, () => {
      device.beginCapture(stream);
      context.recording = told;
      context.touched = touched;
      let whole = false;
      try {
        f();
        whole = true;
      } finally {
        context.recording = undefined;
        context.touched = undefined;
        // Where f failed its error is what is told.
        if (whole) graph = device.endCapture(stream);
        else this.#abandon();
      }
    });
    return graph;
  }
  #abandon(): void {
    const { device, stream } = this.context;
    try {
      device.destroyGraph(device.endCapture(stream));
    } catch (e) {
      if (!(e instanceof DriverError)) throw e; // the driver had given the recording up already
    }
  }

  async sync(): Promise<void> {
    const { device, stream } = this.context;
    const event = device.createEvent(false);
    device.record(event, stream);
    await this.#reached(event);
    device.destroyEvent(event);
    this.context.checkFaults();
  }
  memory(): MemoryStats {
    return this.context.allocator.stats();
  }
  trim(): void {
    this.context.allocator.trim();
  }
}

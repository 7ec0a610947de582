// A second stream of a GPU: work on it goes on beside the device's own, which waits for it where that is asked for.
import { ArgumentError } from '../../base/errors.js';
import type { Event, Stream } from '../../driver/driver.js';
import { Pool } from './allocator.js';
import type { GpuContext } from './context.js';

/** Work that was given to a side stream: what its function answered comes out by waiting for it. */
class SideWork<T> {
  readonly #gpu: GpuContext;
  readonly #event: Event;
  readonly #result: T;
  #over = false;
  constructor(gpu: GpuContext, event: Event, result: T) {
    this.#gpu = gpu;
    this.#event = event;
    this.#result = result;
    gpu.allocator.holdBack(this);
  }
  /** Whether the device has done it. */
  get done(): boolean {
    return this.#over || this.#gpu.device.queryEvent(this.#event);
  }
  /** Whatever is enqueued from now on begins after it; the host does not wait. Answers what its function did. */
  wait(): T {
    if (!this.#over) {
      this.#gpu.device.streamWait(this.#gpu.stream, this.#event);
      this.#end();
    }
    return this.#result;
  }
  /** The host waits: when memory is short, or when the work was never waited for. */
  finish(): void {
    if (this.#over) return;
    this.#gpu.device.synchronizeEvent(this.#event);
    this.#end();
  }
  #end(): void {
    this.#over = true;
    this.#gpu.device.destroyEvent(this.#event);
    this.#gpu.allocator.letGo(this);
  }
}

export class SideStream {
  readonly #gpu: GpuContext;
  readonly #stream: Stream;
  /** Blocks made on this stream are used again on it alone. */
  readonly #pool = new Pool();

  constructor(gpu: GpuContext) {
    this.#gpu = gpu;
    this.#stream = gpu.device.createStream();
  }
  /** Enqueues what f does on this stream, after all that the device was given so far. */
  run<T>(f: () => T): SideWork<T> {
    const { device, stream: own, allocator } = this.#gpu;
    if (this.#gpu.onSide)
      throw new ArgumentError('stream.run: work of a stream cannot be given to another from within');
    allocator.letGoOfDone();
    const given = device.createEvent(false);
    device.record(given, own);
    device.streamWait(this.#stream, given);
    device.destroyEvent(given);
    let result: T | undefined;
    try {
      this.#gpu.withStream(this.#stream, () => allocator.withPool(this.#pool, () => void (result = f())));
    } catch (e) {
      device.synchronizeStream(this.#stream); // what was enqueued before the failure may use blocks that go now
      throw e;
    }
    const done = device.createEvent(false);
    device.record(done, this.#stream);
    return new SideWork(this.#gpu, done, result as T);
  }
  dispose(): void {
    this.#gpu.device.synchronizeStream(this.#stream);
    this.#gpu.allocator.release(this.#pool);
    this.#gpu.device.destroyStream(this.#stream);
  }
}

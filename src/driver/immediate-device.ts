// What the devices that live in this process share: work is done when it is enqueued, so streams and events are numbers
// and a graph is a list of work.
import { ArgumentError, DriverError } from '../base/errors.js';
import type { Address, DeviceInfo, Driver, Event, Fn, Graph, GraphExec, Module, Stream } from './driver.js';

type Work = () => void;

export abstract class ImmediateDevice {
  readonly driver: Driver;
  readonly ordinal: number;
  readonly info: DeviceInfo;
  readonly #events: number[] = [];
  #streams = 1;
  /** Streams that record, with what they recorded; graphs are such lists. */
  readonly #capturing = new Map<Stream, Work[]>();
  readonly #graphs: (readonly Work[])[] = [];

  constructor(driver: Driver, ordinal: number, info: DeviceInfo) {
    this.driver = driver;
    this.ordinal = ordinal;
    this.info = info;
  }

  /** Device memory filled with something, and its return. */
  abstract alloc(bytes: number): Address;
  abstract free(address: Address): void;
  protected abstract findFunction(module: Module, symbol: string): Fn | undefined;
  protected abstract moduleName(module: Module): string;

  /** Does it now, or writes it down where the stream records. */
  enqueue(stream: Stream, work: Work): void {
    const recording = this.#capturing.get(stream);
    if (recording) recording.push(work);
    else work();
  }
  /** Whether a stream that records, a graph or one that can be launched has this work in it. */
  isHeld(work: Work): boolean {
    return [...this.#capturing.values(), ...this.#graphs].some((list) => list.includes(work));
  }
  protected isRecorded(stream: Stream): boolean {
    return this.#capturing.has(stream);
  }
  protected refuseWhileRecorded(stream: Stream, call: string, why = 'ordinary memory cannot be copied'): void {
    if (this.#capturing.has(stream)) throw new DriverError(`${call}: ${why} while the stream is recorded`);
  }
  protected checkBytes(bytes: number): void {
    if (!Number.isSafeInteger(bytes) || bytes <= 0)
      throw new ArgumentError(`alloc: ${bytes} bytes; a whole number from 1 is needed`);
  }

  /** Threads share the memory, so there is nothing to switch. */
  makeCurrent(): void {}
  allocAsync(bytes: number, stream: Stream): Address {
    this.refuseWhileRecorded(stream, 'allocAsync', 'no memory is allocated');
    return this.alloc(bytes);
  }
  freeAsync(address: Address, stream: Stream): void {
    this.refuseWhileRecorded(stream, 'freeAsync', 'no memory is freed');
    this.free(address);
  }

  createStream(): Stream {
    return this.#streams++;
  }
  destroyStream(stream: Stream): void {
    this.#capturing.delete(stream);
  }
  synchronizeStream(stream: Stream): void {
    this.refuseWhileRecorded(stream, 'synchronizeStream', 'nothing can be waited for');
  }
  /** Work is done when it is enqueued, in the order of the calls. */
  streamWait(): void {}
  createEvent(): Event {
    return this.#events.push(-1);
  }
  destroyEvent(): void {}
  record(event: Event, stream: Stream): void {
    this.enqueue(stream, () => (this.#events[event - 1] = performance.now()));
  }
  queryEvent(): boolean {
    return true;
  }
  synchronizeEvent(): void {}
  elapsed(start: Event, end: Event): number {
    const [a, b] = [this.#events[start - 1], this.#events[end - 1]];
    if (!(a >= 0 && b >= 0)) throw new DriverError('elapsed: both events must have been recorded');
    return b - a;
  }

  getFunction(module: Module, symbol: string): Fn {
    const fn = this.findFunction(module, symbol);
    if (fn === undefined)
      throw new DriverError(`getFunction(${symbol}): the module ${this.moduleName(module)} has no such kernel`);
    return fn;
  }

  beginCapture(stream: Stream): void {
    if (stream === 0) throw new DriverError('beginCapture: the default stream cannot be recorded');
    this.#capturing.set(stream, []);
  }
  endCapture(stream: Stream): Graph {
    const work = this.#capturing.get(stream);
    if (!work) throw new DriverError(`endCapture(${stream}): this stream is not being recorded`);
    this.#capturing.delete(stream);
    return this.#graphs.push(work);
  }
  instantiate(graph: Graph): GraphExec {
    return this.#graphs.push(this.#graphs[graph - 1]);
  }
  launchGraph(exec: GraphExec, stream: Stream): void {
    for (const work of this.#graphs[exec - 1]) this.enqueue(stream, work);
  }
  destroyGraph(graph: Graph): void {
    this.#graphs[graph - 1] = [];
  }
  destroyGraphExec(exec: GraphExec): void {
    this.#graphs[exec - 1] = [];
  }
}

// Collectives on GPUs by NCCL or RCCL: enqueued on the device's own stream, or on one beside it that goes on meanwhile.
import type { Dependent } from '../backends/gpu/context.js';
import type { GpuBackend } from '../backends/gpu/gpu.js';
import { bytesOf, type DType } from '../base/dtype.js';
import { ArgumentError, DisposedError, DistributedError } from '../base/errors.js';
import type { Stream } from '../driver/driver.js';
import { type Nccl, NCCL_TYPES, type NcclBuffers, type NcclComm, type NcclType } from '../driver/nccl.js';
import type { Device } from '../tensor/device.js';
import { Tensor } from '../tensor/tensor.js';
import type { HubClient } from './hub-client.js';
import { DONE, type Reduction, type Transport, who, type Work } from './transport.js';

/** How long a process that ends waits for its device, before kernels that wait for other ranks are ended. */
const ABANDON_MS = 5000;

export class NcclTransport implements Transport {
  readonly name = 'nccl';
  readonly rank: number;
  readonly size: number;
  readonly device: Device;
  readonly #nccl: Nccl;
  readonly #hub: HubClient;
  readonly #members: readonly number[];
  readonly #group: string;
  readonly #gpu: GpuBackend['context'];
  readonly #comm: NcclComm;
  #beside: Stream | undefined;
  /** Recorded work with calls of this communicator inside: the library ends a communicator only after all of it. */
  readonly #recordings = new Set<Dependent>();
  /** Groups that were split off, in the order of all ranks: the library's threads for them end with this one. */
  readonly #parts: NcclTransport[] = [];
  #ended = false;

  constructor(nccl: Nccl, device: Device, hub: HubClient, members: readonly number[], group = 'world') {
    if (!device.backend.gpu)
      throw new ArgumentError(`NCCL works on GPUs, and ${device.name} is none; MPI and sockets serve the CPU`);
    this.device = device;
    this.#nccl = nccl;
    this.#hub = hub;
    this.#members = members;
    this.#group = group;
    this.#gpu = device.backend.gpu.context;
    this.rank = members.indexOf(hub.rank);
    this.size = members.length;
    const mine = this.rank === 0 ? nccl.uniqueId() : new Uint8Array(0);
    const [id] = hub.exchange(group, members, `the start of ${nccl.name}`, mine);
    this.#comm = nccl.join(id, this.rank, this.size);
  }

  /** f8 and i16 have no number of their own there, and truth values no sum. */
  reduces(dtype: DType): boolean {
    return Object.hasOwn(NCCL_TYPES, dtype);
  }
  /** What only moves is bytes where the dtype has no number. */
  #buffers(src: Tensor, dst: Tensor, elements: number): NcclBuffers {
    for (const t of [src, dst])
      if (t.device !== this.device)
        throw new ArgumentError(
          `${who(this)}: a tensor is on ${t.device.name}; this group works on ${this.device.name}`,
        );
    const at = (t: Tensor): number => t.memory.address + t.layout.offset * bytesOf(t.dtype);
    const known = Object.hasOwn(NCCL_TYPES, src.dtype);
    return {
      src: at(src),
      dst: at(dst),
      count: known ? elements : elements * bytesOf(src.dtype),
      type: known ? (src.dtype as NcclType) : 'u8',
    };
  }
  #run(overlap: boolean, call: (stream: Stream) => void): Work {
    const { device, stream, turn } = this.#gpu;
    this.#mustBeOpen();
    turn.finish();
    this.#gpu.recording?.add(this.#recordings);
    if (!overlap) {
      call(stream);
      return DONE;
    }
    // The stream beside waits for what was enqueued so far; whoever waits for the work makes the device's stream wait.
    this.#beside ??= device.createStream();
    const [ready, done] = [device.createEvent(false), device.createEvent(false)];
    device.record(ready, stream);
    device.streamWait(this.#beside, ready);
    call(this.#beside);
    device.record(done, this.#beside);
    let over = false;
    return {
      wait: () => {
        if (over) return;
        over = true;
        device.streamWait(stream, done);
        device.destroyEvent(ready);
        device.destroyEvent(done);
      },
    };
  }

  allReduce(src: Tensor, dst: Tensor, op: Reduction, overlap: boolean): Work {
    if (src.size === 0) return DONE;
    const b = this.#buffers(src, dst, src.size);
    return this.#run(overlap, (stream) => this.#comm.allReduce(b, op, stream));
  }
  reduceScatter(src: Tensor, dst: Tensor, op: Reduction, overlap: boolean): Work {
    if (dst.size === 0) return DONE;
    const b = this.#buffers(src, dst, dst.size);
    return this.#run(overlap, (stream) => this.#comm.reduceScatter(b, op, stream));
  }
  allGather(src: Tensor, dst: Tensor, overlap: boolean): Work {
    if (src.size === 0) return DONE;
    const b = this.#buffers(src, dst, src.size);
    return this.#run(overlap, (stream) => this.#comm.allGather(b, stream));
  }
  broadcast(x: Tensor, root: number): Work {
    if (x.size === 0) return DONE;
    const b = this.#buffers(x, x, x.size);
    return this.#run(false, (stream) => this.#comm.broadcast(b, root, stream));
  }
  send(x: Tensor, to: number): Work {
    if (x.size === 0) return DONE;
    const b = this.#buffers(x, x, x.size);
    return this.#run(false, (stream) => this.#comm.send(b, to, stream));
  }
  recv(x: Tensor, from: number): Work {
    if (x.size === 0) return DONE;
    const b = this.#buffers(x, x, x.size);
    return this.#run(false, (stream) => this.#comm.recv(b, from, stream));
  }
  #mustBeOpen(): void {
    if (this.#ended) throw new DisposedError(`${who(this)}: this group was closed`);
  }
  /** Waits until the device has done what it was given; answers what kept it from that, undefined for nothing. */
  #settled(limitMs: number): string | undefined {
    const { device, stream } = this.#gpu;
    const event = device.createEvent(false);
    try {
      device.record(event, stream);
      const nap = new Int32Array(new SharedArrayBuffer(4));
      const begun = performance.now();
      while (!device.queryEvent(event)) {
        const failed = this.#comm.failure();
        if (failed) return `${this.#nccl.name}: ${failed}`;
        if (performance.now() - begun > limitMs) return `the device has not finished within ${limitMs / 1000} s`;
        Atomics.wait(nap, 0, 0, 0.2);
      }
      return undefined;
    } finally {
      device.destroyEvent(event);
    }
  }
  /** Ranks wait for each other and for their devices; this is where a late rank or a failed one is told of. */
  barrier(): void {
    this.#mustBeOpen();
    const wrong = this.#settled(this.#hub.timeoutMs);
    if (wrong) this.#giveUp(`barrier: ${wrong}; another rank may have failed, or not have made the same calls`);
    this.#hub.exchange(this.#group, this.#members, 'barrier', new Uint8Array(0));
  }
  /** Kernels that wait for another rank would keep the device busy for ever, and the process with it. */
  #giveUp(why: string): never {
    this.#ended = true;
    this.#stopRecordings();
    this.#comm.abort();
    throw new DistributedError(`${who(this)}: ${why}`);
  }
  split(members: readonly number[], name: string): Transport {
    const numbers = members.map((m) => this.#members[m]);
    const part = new NcclTransport(this.#nccl, this.device, this.#hub, numbers, `${this.#group}/${name}`);
    this.#parts.push(part);
    return part;
  }
  /** First: the library waits, for ever if need be, until no graph holds the communicator; an abort waits as well. */
  #stopRecordings(): void {
    for (const recording of [...this.#recordings]) recording.stop(`${who(this)}: the group it talks to has ended`);
  }
  close(): void {
    if (this.#ended) return;
    for (const part of this.#parts) part.close();
    this.#ended = true;
    this.#gpu.device.synchronizeStream(this.#gpu.stream);
    this.#stopRecordings();
    if (this.#beside !== undefined) this.#gpu.device.destroyStream(this.#beside);
    this.#comm.destroy();
  }
  /**
   * For a process that ends without having closed its groups: the library has threads of its own for each, which must
   * not run while the process is taken down around them. No other rank needs to take part.
   */
  abandon(): void {
    if (this.#ended) return;
    for (const part of this.#parts) part.abandon();
    this.#ended = true;
    this.#settled(ABANDON_MS); // what it says changes nothing: the communicator ends
    this.#stopRecordings();
    this.#comm.abort();
  }
}

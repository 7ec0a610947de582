// A stand-in of NCCL and RCCL: ranks of a test meet through what it is given, sums are made in doubles, misuse throws.
import { DTYPE, type DType } from '../base/dtype.js';
import type { NativeArg } from '../driver/ffi.js';
import { NCCL_NUMBERS as N, NCCL_TYPES, UNIQUE_ID_BYTES } from '../driver/nccl.js';
import {
  checkMemory,
  Handles,
  hostMemory,
  type HostedDevice,
  Misuse,
  Numbers,
  StandIn,
  type Symbols,
  textAddress,
  typeOf,
} from './library.js';

/** How ranks of a test reach each other: everyone's bytes, and bytes from one to another. */
export interface Meeting {
  exchange(ranks: number, what: string, bytes: Uint8Array): readonly Uint8Array[];
  send(to: number, bytes: Uint8Array): void;
  recv(from: number): Uint8Array;
}
interface Comm {
  readonly rank: number;
  readonly size: number;
  /** Calls that recordings hold. */
  readonly recorded: (() => void)[];
}

const JOIN: Readonly<Record<number, (a: number, b: number) => number>> = {
  [N.ncclSum]: (a, b) => a + b,
  [N.ncclProd]: (a, b) => a * b,
  [N.ncclMax]: (a, b) => Math.max(a, b),
  [N.ncclMin]: (a, b) => Math.min(a, b),
  [N.ncclAvg]: (a, b) => a + b,
};

/** The communicators of one rank, and what their collectives do with its memory. */
class Communicators {
  readonly handles = new Handles();
  readonly #device: HostedDevice;
  readonly #meeting: Meeting;

  constructor(device: HostedDevice, meeting: Meeting) {
    this.#device = device;
    this.#meeting = meeting;
  }

  of(h: number): Comm {
    return this.handles.get<Comm>(h, 'communicator');
  }

  join(cell: NativeArg, size: number, id: Uint8Array, rank: number): number {
    if (!(size > 0 && rank >= 0 && rank < size)) throw new Misuse(`rank ${rank} of ${size}`);
    if (id.some((b) => b === 0)) throw new Misuse('an id that ncclGetUniqueId did not give');
    const ids = this.#meeting.exchange(size, 'ncclCommInitRank', id);
    if (ids.some((other) => Buffer.compare(other, id) !== 0)) throw new Misuse('ranks with different ids');
    return this.handles.make(cell, 'communicator', { rank, size, recorded: [] } satisfies Comm);
  }

  /**
   * The library waits until the last graph with a call of this communicator is gone; in one thread that is for ever.
   */
  end(h: number): number {
    const held = this.of(h).recorded.filter((work) => this.#device.isHeld(work)).length;
    if (held > 0)
      throw new Misuse(`a communicator that ends while graphs hold ${held} of its calls: it waits for ever`);
    return this.handles.destroy(h, 'communicator');
  }

  /** Enqueued as a library does: now, or when a recorded stream is replayed. */
  enqueue(comm: Comm, stream: number, work: () => void): number {
    if (stream === 0) throw new Misuse('the default stream, which other streams do not wait for');
    this.#device.enqueue(stream, work);
    if (this.#device.isHeld(work)) comm.recorded.push(work);
    return 0;
  }

  /** Everyone's bytes; `what` must be the same on every rank. */
  everyone(comm: Comm, what: string, mine: Uint8Array): readonly Uint8Array[] {
    return this.#meeting.exchange(comm.size, what, mine);
  }

  /** Everyone's numbers, joined in doubles. */
  reduced(comm: Comm, what: string, src: number, count: number, type: number, op: number): Float64Array {
    if (!JOIN[op]) throw new Misuse(`operation ${op}`);
    const mine = new Numbers(this.#device, 'src', src, count, typeOf(NCCL_TYPES, type)).values;
    const all = this.everyone(comm, `${what} ${count} ${type} ${op}`, new Uint8Array(mine.buffer));
    const sums = new Float64Array(count);
    const doubles = all.map((b) => new Float64Array(b.slice().buffer));
    for (let i = 0; i < count; i++) {
      sums[i] = doubles.map((d) => d[i]).reduce(JOIN[op]);
      if (op === N.ncclAvg) sums[i] /= comm.size;
    }
    return sums;
  }

  bytesAt(address: number, count: number, dtype: DType): Uint8Array {
    const bytes = new Uint8Array(count * DTYPE[dtype].bytes);
    checkMemory(this.#device, 'src', address, bytes.length);
    this.#device.copyOut(bytes, address, 0);
    return bytes;
  }

  write(address: number, bytes: Uint8Array): void {
    checkMemory(this.#device, 'dst', address, bytes.length);
    this.#device.copyIn(address, bytes, 0);
  }

  writeNumbers(address: number, values: Float64Array, dtype: DType): void {
    const numbers = new Numbers(this.#device, 'dst', address, values.length, dtype);
    numbers.values.set(values);
    numbers.write();
  }

  /** The communicator of a message, and its dtype. */
  pair(h: number, peer: number, type: number): readonly [Comm, DType] {
    const comm = this.of(h);
    if (peer === comm.rank || peer < 0 || peer >= comm.size) throw new Misuse(`peer ${peer} of ${comm.size}`);
    return [comm, typeOf(NCCL_TYPES, type)];
  }
}

const collectives = (all: Communicators): Symbols => ({
  ncclAllReduce: (src: number, dst: number, count: number, type: number, op: number, h: number, stream: number) => {
    const comm = all.of(h);
    return all.enqueue(comm, stream, () =>
      all.writeNumbers(dst, all.reduced(comm, 'all-reduce', src, count, type, op), typeOf(NCCL_TYPES, type)),
    );
  },
  ncclReduceScatter: (src: number, dst: number, n: number, type: number, op: number, h: number, stream: number) => {
    const comm = all.of(h);
    return all.enqueue(comm, stream, () => {
      const sums = all.reduced(comm, 'reduce-scatter', src, n * comm.size, type, op);
      all.writeNumbers(dst, sums.slice(comm.rank * n, (comm.rank + 1) * n), typeOf(NCCL_TYPES, type));
    });
  },
  ncclAllGather: (src: number, dst: number, count: number, type: number, h: number, stream: number) => {
    const [comm, dtype] = [all.of(h), typeOf(NCCL_TYPES, type)];
    return all.enqueue(comm, stream, () =>
      all.write(dst, Buffer.concat(all.everyone(comm, `all-gather ${count} ${type}`, all.bytesAt(src, count, dtype)))),
    );
  },
  ncclBroadcast: (src: number, dst: number, n: number, type: number, root: number, h: number, stream: number) => {
    const [comm, dtype] = [all.of(h), typeOf(NCCL_TYPES, type)];
    if (root < 0 || root >= comm.size) throw new Misuse(`root ${root} of ${comm.size}`);
    return all.enqueue(comm, stream, () =>
      all.write(dst, all.everyone(comm, `broadcast ${n} ${type} ${root}`, all.bytesAt(src, n, dtype))[root]),
    );
  },
});

const messages = (all: Communicators, meeting: Meeting): Symbols => ({
  ncclSend: (src: number, count: number, type: number, peer: number, h: number, stream: number) => {
    const [comm, dtype] = all.pair(h, peer, type);
    return all.enqueue(comm, stream, () => meeting.send(peer, all.bytesAt(src, count, dtype)));
  },
  ncclRecv: (dst: number, count: number, type: number, peer: number, h: number, stream: number) => {
    const [comm, dtype] = all.pair(h, peer, type);
    return all.enqueue(comm, stream, () => {
      const bytes = meeting.recv(peer);
      if (bytes.length !== count * DTYPE[dtype].bytes)
        throw new Misuse(`${bytes.length} bytes came for ${count} of ${dtype}`);
      all.write(dst, bytes);
    });
  },
});

export function ncclStandIn(device: HostedDevice, meeting: Meeting): StandIn {
  const all = new Communicators(device, meeting);
  return new StandIn('NCCL', {
    ncclGetVersion: (cell: NativeArg) => {
      hostMemory(cell, 4).setInt32(0, 22105, true);
      return 0;
    },
    ncclGetErrorString: (status: number) => textAddress(`NCCL stand-in status ${status}`),
    ncclGetLastError: () => textAddress(''),
    ncclGetUniqueId: (id: NativeArg) => {
      const view = hostMemory(id, UNIQUE_ID_BYTES);
      for (let i = 0; i < UNIQUE_ID_BYTES; i++) view.setUint8(i, Math.floor(Math.random() * 255) + 1);
      return 0;
    },
    ncclCommInitRank: (cell: NativeArg, size: number, id: { internal: Uint8Array }, rank: number) =>
      all.join(cell, size, id.internal, rank),
    ncclCommDestroy: (h: number) => all.end(h),
    ncclCommAbort: (h: number) => all.end(h),
    ncclCommGetAsyncError: (h: number, cell: NativeArg) => {
      all.of(h);
      hostMemory(cell, 4).setInt32(0, 0, true);
      return 0;
    },
    ncclGroupStart: () => 0,
    ncclGroupEnd: () => 0,
    ...collectives(all),
    ...messages(all, meeting),
  });
}

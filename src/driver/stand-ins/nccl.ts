// A stand-in of NCCL and RCCL: ranks of a test meet through what it is given, sums are made in doubles, misuse throws.
import type { DType } from '../../base/dtype.js';
import { DTYPE } from '../../base/dtype.js';
import type { NativeArg } from '../ffi.js';
import { NCCL_NUMBERS as N, NCCL_TYPES, UNIQUE_ID_BYTES } from '../nccl.js';
import {
  checkMemory,
  Handles,
  hostMemory,
  type HostedDevice,
  Misuse,
  Numbers,
  StandIn,
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

export function ncclStandIn(device: HostedDevice, meeting: Meeting): StandIn {
  const handles = new Handles();
  const of = (h: number): Comm => handles.get<Comm>(h, 'communicator');
  const bytesAt = (what: string, address: number, count: number, dtype: DType): Uint8Array => {
    const bytes = new Uint8Array(count * DTYPE[dtype].bytes);
    checkMemory(device, what, address, bytes.length);
    device.copyOut(bytes, address, 0);
    return bytes;
  };
  /** Enqueued as a library does: now, or when a recorded stream is replayed. */
  const enqueue = (comm: Comm, stream: number, work: () => void): number => {
    if (stream === 0) throw new Misuse('the default stream, which other streams do not wait for');
    device.enqueue(stream, work);
    if (device.isHeld(work)) comm.recorded.push(work);
    return 0;
  };
  /**
   * The library waits until the last graph with a call of this communicator is gone; in one thread that is for ever.
   */
  const end = (h: number): number => {
    const held = of(h).recorded.filter((work) => device.isHeld(work)).length;
    if (held > 0)
      throw new Misuse(`a communicator that ends while graphs hold ${held} of its calls: it waits for ever`);
    return handles.destroy(h, 'communicator');
  };
  const put = (address: number, values: Float64Array, dtype: DType): void => {
    const numbers = new Numbers(device, 'dst', address, values.length, dtype);
    numbers.values.set(values);
    numbers.write();
  };
  const reduced = (comm: Comm, what: string, src: number, count: number, type: number, op: number): Float64Array => {
    const dtype = typeOf(NCCL_TYPES, type);
    if (!JOIN[op]) throw new Misuse(`operation ${op}`);
    const mine = new Numbers(device, 'src', src, count, dtype).values;
    const all = meeting.exchange(comm.size, `${what} ${count} ${type} ${op}`, new Uint8Array(mine.buffer));
    const sums = new Float64Array(count);
    const doubles = all.map((b) => new Float64Array(b.slice().buffer));
    for (let i = 0; i < count; i++) {
      sums[i] = doubles.map((d) => d[i]).reduce(JOIN[op]);
      if (op === N.ncclAvg) sums[i] /= comm.size;
    }
    return sums;
  };
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
    ncclCommInitRank: (cell: NativeArg, size: number, id: { internal: Uint8Array }, rank: number) => {
      if (!(size > 0 && rank >= 0 && rank < size)) throw new Misuse(`rank ${rank} of ${size}`);
      if (id.internal.some((b) => b === 0)) throw new Misuse('an id that ncclGetUniqueId did not give');
      const ids = meeting.exchange(size, 'ncclCommInitRank', id.internal);
      if (ids.some((other) => Buffer.compare(other, id.internal) !== 0)) throw new Misuse('ranks with different ids');
      return handles.make(cell, 'communicator', { rank, size, recorded: [] } satisfies Comm);
    },
    ncclCommDestroy: end,
    ncclCommAbort: end,
    ncclCommGetAsyncError: (h: number, cell: NativeArg) => {
      of(h);
      hostMemory(cell, 4).setInt32(0, 0, true);
      return 0;
    },
    ncclGroupStart: () => 0,
    ncclGroupEnd: () => 0,
    ncclAllReduce: (src: number, dst: number, count: number, type: number, op: number, h: number, stream: number) => {
      const comm = of(h);
      return enqueue(comm, stream, () =>
        put(dst, reduced(comm, 'all-reduce', src, count, type, op), typeOf(NCCL_TYPES, type)),
      );
    },
    ncclReduceScatter: (src: number, dst: number, n: number, type: number, op: number, h: number, stream: number) => {
      const comm = of(h);
      return enqueue(comm, stream, () => {
        const all = reduced(comm, 'reduce-scatter', src, n * comm.size, type, op);
        put(dst, all.slice(comm.rank * n, (comm.rank + 1) * n), typeOf(NCCL_TYPES, type));
      });
    },
    ncclAllGather: (src: number, dst: number, count: number, type: number, h: number, stream: number) => {
      const [comm, dtype] = [of(h), typeOf(NCCL_TYPES, type)];
      return enqueue(comm, stream, () => {
        const mine = bytesAt('src', src, count, dtype);
        const all = Buffer.concat(meeting.exchange(comm.size, `all-gather ${count} ${type}`, mine));
        checkMemory(device, 'dst', dst, all.length);
        device.copyIn(dst, all, 0);
      });
    },
    ncclBroadcast: (src: number, dst: number, n: number, type: number, root: number, h: number, stream: number) => {
      const [comm, dtype] = [of(h), typeOf(NCCL_TYPES, type)];
      if (root < 0 || root >= comm.size) throw new Misuse(`root ${root} of ${comm.size}`);
      return enqueue(comm, stream, () => {
        const all = meeting.exchange(comm.size, `broadcast ${n} ${type} ${root}`, bytesAt('src', src, n, dtype));
        checkMemory(device, 'dst', dst, all[root].length);
        device.copyIn(dst, all[root], 0);
      });
    },
    ncclSend: (src: number, count: number, type: number, peer: number, h: number, stream: number) => {
      const [comm, dtype] = [of(h), typeOf(NCCL_TYPES, type)];
      if (peer === comm.rank || peer < 0 || peer >= comm.size) throw new Misuse(`peer ${peer} of ${comm.size}`);
      return enqueue(comm, stream, () => meeting.send(peer, bytesAt('src', src, count, dtype)));
    },
    ncclRecv: (dst: number, count: number, type: number, peer: number, h: number, stream: number) => {
      const [comm, dtype] = [of(h), typeOf(NCCL_TYPES, type)];
      if (peer === comm.rank || peer < 0 || peer >= comm.size) throw new Misuse(`peer ${peer} of ${comm.size}`);
      return enqueue(comm, stream, () => {
        const bytes = meeting.recv(peer);
        if (bytes.length !== count * DTYPE[dtype].bytes)
          throw new Misuse(`${bytes.length} bytes came for ${count} of ${dtype}`);
        checkMemory(device, 'dst', dst, bytes.length);
        device.copyIn(dst, bytes, 0);
      });
    },
  });
}

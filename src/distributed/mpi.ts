// Collectives by MPI, on host memory: tensors of the CPU as they lie, those of other devices through a copy.
import { bytesOf, type DType } from '../base/dtype.js';
import { DistributedError, UnsupportedError } from '../base/errors.js';
import { nativeBlock, type NativeArg, type NativeBlock } from '../driver/ffi.js';
import { type Mpi, MPI_IN_PLACE, MPI_MOST, type MPI_TABLE, type MpiOp, type MpiType } from '../driver/mpi.js';
import type { Tensor } from '../tensor/tensor.js';
import { DONE, type Reduction, type Transport, who, type Work } from './transport.js';

const NATIVE: readonly DType[] = ['u8', 'u32', 'i16', 'i32', 'i64', 'f32', 'f64'];

/** Sleeps without giving the thread away: MPI answers only when it is asked. */
const nap = new Int32Array(new SharedArrayBuffer(4));
const QUICK_LOOKS = 2000;

/** Blocks of native memory for tensors that are not in the CPU's: kept and reused. */
class Staging {
  readonly #free: { readonly bytes: number; readonly block: NativeBlock }[] = [];
  take(bytes: number): { bytes: number; block: NativeBlock } {
    const at = this.#free.findIndex((b) => b.bytes >= bytes);
    if (at >= 0) return this.#free.splice(at, 1)[0];
    const room = Math.max(4096, 2 ** Math.ceil(Math.log2(bytes)));
    return { bytes: room, block: nativeBlock(room) };
  }
  give(b: { bytes: number; block: NativeBlock }): void {
    this.#free.push(b);
  }
}

interface HostSide {
  readonly address: number;
  /** Copies back what was received, and gives the block back. */
  readonly done: (written: boolean) => void;
}

export class MpiTransport implements Transport {
  readonly name = 'mpi';
  readonly rank: number;
  readonly size: number;
  readonly #mpi: Mpi;
  readonly #comm: number;
  readonly #timeoutMs: number;
  readonly #staging: Staging;

  constructor(mpi: Mpi, comm: number, timeoutMs: number, staging = new Staging()) {
    this.#mpi = mpi;
    this.#comm = comm;
    this.#timeoutMs = timeoutMs;
    this.#staging = staging;
    const cell = new Int32Array(2);
    mpi.calls.call('rank', comm, cell);
    this.rank = cell[0];
    mpi.calls.call('size', comm, cell);
    this.size = cell[0];
  }

  reduces(dtype: DType, op: Reduction): boolean {
    return op !== 'avg' && NATIVE.includes(dtype);
  }

  #host(x: Tensor, read: boolean): HostSide {
    const { backend } = x.device;
    const offset = x.layout.offset * bytesOf(x.dtype);
    if (backend.name === 'cpu') {
      const { address } = x.memory;
      return { address: address + offset, done: () => {} };
    }
    const bytes = x.size * bytesOf(x.dtype);
    const taken = this.#staging.take(bytes);
    const view = new Uint8Array(taken.block.buffer, 0, bytes);
    if (read) backend.readSync(x.memory, offset, view);
    return {
      address: taken.block.address,
      done: (written) => {
        if (written) backend.write(x.memory, offset, view);
        this.#staging.give(taken);
      },
    };
  }
  /** Bytes where nothing is reduced, so that every dtype can be moved. */
  #count(what: string, elements: number, width = 1): number {
    const n = elements * width;
    if (n > MPI_MOST)
      throw new UnsupportedError(
        `${who(this)}: ${what}: MPI counts to ${MPI_MOST}, and these are ${n}; send it in smaller parts`,
      );
    return n;
  }

  /** Starts a call and gives the work that ends it. */
  #begin(name: keyof typeof MPI_TABLE, args: readonly NativeArg[], end: () => void): Work {
    const request = new BigUint64Array(1);
    this.#checked(name, ...args, this.#comm, request);
    let over = false;
    return {
      wait: () => {
        if (over) return;
        this.#finish(name, request);
        over = true;
        end();
      },
    };
  }
  #checked(name: keyof typeof MPI_TABLE, ...args: NativeArg[]): void {
    const status = this.#mpi.calls.status(name, ...args);
    if (status !== 0)
      throw new DistributedError(
        `${who(this)}: ${this.#mpi.calls.symbol(name)}: ${this.#mpi.calls.rules.errorName(status)}`,
      );
  }
  #finish(name: keyof typeof MPI_TABLE, request: BigUint64Array): void {
    const flag = new Int32Array(2);
    const begun = performance.now();
    for (let looks = 0; ; looks++) {
      this.#checked('test', request, flag, 0);
      if (flag[0] !== 0) return;
      if (looks < QUICK_LOOKS) continue;
      if (performance.now() - begun > this.#timeoutMs)
        throw new DistributedError(
          `${who(this)}: ${this.#mpi.calls.symbol(name)}: not all ranks came within ${this.#timeoutMs / 1000} s`,
        );
      Atomics.wait(nap, 0, 0, 0.05);
    }
  }
  #type(x: Tensor): number {
    return this.#mpi.types[x.dtype as MpiType];
  }

  allReduce(src: Tensor, dst: Tensor, op: Reduction, overlap: boolean): Work {
    if (src.size === 0) return DONE;
    const count = this.#count('allReduce', src.size);
    const [from, to] = this.#pair(src, dst);
    return this.#run(
      this.#begin('allReduce', [from.address, to.address, count, this.#type(src), this.#mpi.ops[op as MpiOp]], () =>
        this.#done(from, to),
      ),
      overlap,
    );
  }
  reduceScatter(src: Tensor, dst: Tensor, op: Reduction, overlap: boolean): Work {
    if (dst.size === 0) return DONE;
    const count = this.#count('reduceScatter', dst.size);
    const [from, to] = this.#pair(src, dst);
    const args = [from.address, to.address, count, this.#type(src), this.#mpi.ops[op as MpiOp]];
    return this.#run(
      this.#begin('reduceScatter', args, () => this.#done(from, to)),
      overlap,
    );
  }
  allGather(src: Tensor, dst: Tensor, overlap: boolean): Work {
    if (src.size === 0) return DONE;
    const count = this.#count('allGather', src.size, bytesOf(src.dtype));
    const [from, to] = this.#pair(src, dst);
    const { u8 } = this.#mpi.types;
    return this.#run(
      this.#begin('allGather', [from.address, count, u8, to.address, count, u8], () => this.#done(from, to)),
      overlap,
    );
  }
  /** In place means one block: MPI refuses buffers that overlap. */
  #pair(src: Tensor, dst: Tensor): readonly [HostSide, HostSide] {
    const to = this.#host(dst, src === dst);
    if (src === dst) return [{ address: MPI_IN_PLACE, done: () => {} }, to];
    return [this.#host(src, true), to];
  }
  #done(from: HostSide, to: HostSide): void {
    from.done(false);
    to.done(true);
  }
  #run(work: Work, overlap: boolean): Work {
    if (overlap) return work;
    work.wait();
    return DONE;
  }
  broadcast(x: Tensor, root: number): Work {
    return this.#move('broadcast', x, this.rank === root, root);
  }
  send(x: Tensor, to: number): Work {
    return this.#move('send', x, true, to, 0);
  }
  recv(x: Tensor, from: number): Work {
    return this.#move('recv', x, false, from, 0);
  }
  #move(name: 'broadcast' | 'send' | 'recv', x: Tensor, mine: boolean, ...rest: number[]): Work {
    if (x.size === 0) return DONE;
    const count = this.#count(name, x.size, bytesOf(x.dtype));
    const side = this.#host(x, mine);
    this.#begin(name, [side.address, count, this.#mpi.types.u8, ...rest], () => side.done(!mine)).wait();
    return DONE;
  }
  barrier(): void {
    this.#begin('barrier', [], () => {}).wait();
  }
  split(members: readonly number[]): Transport {
    const cell = new BigUint64Array(1);
    this.#checked('split', this.#comm, members[0], members.indexOf(this.rank), cell);
    return new MpiTransport(this.#mpi, Number(cell[0]), this.#timeoutMs, this.#staging);
  }
  close(): void {}
}

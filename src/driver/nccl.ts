// NVIDIA's NCCL and AMD's RCCL: one interface under two names of files.
import type { DType } from '../base/dtype.js';
import { Calls } from './checked-calls.js';
import type { Device, Stream } from './driver.js';
import { Cell, type FindLibrary, koffi, type LibrarySpec, type NativeArg, nativeString, openLibrary } from './ffi.js';

const NCCL: LibrarySpec = { name: 'NCCL', sonames: ['libnccl.so.2'], vendor: 'cuda' };
const RCCL: LibrarySpec = { name: 'RCCL', sonames: ['librccl.so.1'], vendor: 'rocm' };

/** What a rank that calls others together gives them: NCCL_UNIQUE_ID_BYTES, passed by value. */
export const UNIQUE_ID_BYTES = 128;
koffi.struct('ncclUniqueId', { internal: koffi.array('uint8_t', UNIQUE_ID_BYTES, 'Typed') });

export const NCCL_TABLE = {
  version: 'int ncclGetVersion(void *version)',
  uniqueId: 'int ncclGetUniqueId(void *id)',
  initRank: 'int ncclCommInitRank(void *comm, int count, ncclUniqueId id, int rank)',
  destroy: 'int ncclCommDestroy(uintptr_t comm)',
  abort: 'int ncclCommAbort(uintptr_t comm)',
  asyncError: 'int ncclCommGetAsyncError(uintptr_t comm, void *error)',
  errorString: 'uintptr_t ncclGetErrorString(int status)',
  lastError: {
    optional: 'uintptr_t ncclGetLastError(uintptr_t comm)',
    since: 'it came with NCCL 2.13',
  },
  allReduce:
    'int ncclAllReduce(uintptr_t src, uintptr_t dst, size_t count, int type, int op, uintptr_t comm, uintptr_t stream)',
  reduceScatter:
    'int ncclReduceScatter(uintptr_t src, uintptr_t dst, size_t count, int type, int op, uintptr_t comm, uintptr_t ' +
    'stream)',
  allGather:
    'int ncclAllGather(uintptr_t src, uintptr_t dst, size_t count, int type, uintptr_t comm, uintptr_t stream)',
  broadcast:
    'int ncclBroadcast(uintptr_t src, uintptr_t dst, size_t count, int type, int root, uintptr_t comm, uintptr_t ' +
    'stream)',
  send: 'int ncclSend(uintptr_t x, size_t count, int type, int peer, uintptr_t comm, uintptr_t stream)',
  recv: 'int ncclRecv(uintptr_t x, size_t count, int type, int peer, uintptr_t comm, uintptr_t stream)',
} as const;

/** Types and operations as both headers number them; averages came with 2.10. */
export const NCCL_NUMBERS = {
  ncclInt8: 0,
  ncclUint8: 1,
  ncclInt32: 2,
  ncclUint32: 3,
  ncclInt64: 4,
  ncclUint64: 5,
  ncclFloat16: 6,
  ncclFloat32: 7,
  ncclFloat64: 8,
  ncclBfloat16: 9,
  ncclSum: 0,
  ncclProd: 1,
  ncclMax: 2,
  ncclMin: 3,
  ncclAvg: 4,
  ncclSuccess: 0,
  ncclInvalidUsage: 5,
  ncclRemoteError: 6,
  ncclInProgress: 7,
} as const;
const N = NCCL_NUMBERS;

export const NCCL_TYPES = {
  u8: N.ncclUint8,
  u32: N.ncclUint32,
  i32: N.ncclInt32,
  i64: N.ncclInt64,
  f16: N.ncclFloat16,
  f32: N.ncclFloat32,
  f64: N.ncclFloat64,
  bf16: N.ncclBfloat16,
} as const satisfies Partial<Record<DType, number>>;
export type NcclType = keyof typeof NCCL_TYPES;
const NCCL_OPS = { sum: N.ncclSum, prod: N.ncclProd, max: N.ncclMax, min: N.ncclMin, avg: N.ncclAvg } as const;
export type NcclOp = keyof typeof NCCL_OPS;

/** A pair of addresses and how many elements of a type they hold. */
export interface NcclBuffers {
  readonly src: number;
  readonly dst: number;
  readonly count: number;
  readonly type: NcclType;
}

/** One rank's end of a communicator, on one device. */
export class NcclComm {
  readonly #calls: Calls<typeof NCCL_TABLE>;
  readonly #device: Device;
  readonly #comm: number;
  constructor(calls: Calls<typeof NCCL_TABLE>, device: Device, comm: number) {
    this.#calls = calls;
    this.#device = device;
    this.#comm = comm;
  }
  #call(name: keyof typeof NCCL_TABLE, ...args: NativeArg[]): void {
    this.#device.makeCurrent();
    const status = this.#calls.status(name, ...args);
    if (status === N.ncclSuccess) return;
    const last = this.#calls.has('lastError') ? nativeString(this.#calls.status('lastError', this.#comm)) : '';
    throw this.#calls.error(name, args, status, last);
  }
  allReduce({ src, dst, count, type }: NcclBuffers, op: NcclOp, stream: Stream): void {
    this.#call('allReduce', src, dst, count, NCCL_TYPES[type], NCCL_OPS[op], this.#comm, stream);
  }
  /** `count` is that of the result. */
  reduceScatter({ src, dst, count, type }: NcclBuffers, op: NcclOp, stream: Stream): void {
    this.#call('reduceScatter', src, dst, count, NCCL_TYPES[type], NCCL_OPS[op], this.#comm, stream);
  }
  /** `count` is that of what is sent. */
  allGather({ src, dst, count, type }: NcclBuffers, stream: Stream): void {
    this.#call('allGather', src, dst, count, NCCL_TYPES[type], this.#comm, stream);
  }
  broadcast({ src, dst, count, type }: NcclBuffers, root: number, stream: Stream): void {
    this.#call('broadcast', src, dst, count, NCCL_TYPES[type], root, this.#comm, stream);
  }
  send({ src, count, type }: NcclBuffers, peer: number, stream: Stream): void {
    this.#call('send', src, count, NCCL_TYPES[type], peer, this.#comm, stream);
  }
  recv({ dst, count, type }: NcclBuffers, peer: number, stream: Stream): void {
    this.#call('recv', dst, count, NCCL_TYPES[type], peer, this.#comm, stream);
  }
  /** What went wrong on the device or with a peer since: '' for nothing. */
  failure(): string {
    const cell = new Cell();
    this.#call('asyncError', this.#comm, cell.raw);
    return cell.int === N.ncclSuccess || cell.int === N.ncclInProgress ? '' : this.#calls.rules.errorName(cell.int);
  }
  /** Graphs that hold its calls must be gone before. */
  destroy(): void {
    this.#call('destroy', this.#comm);
  }
  abort(): void {
    this.#call('abort', this.#comm);
  }
}

export interface Nccl {
  /** 'NCCL 2.28.3'. */
  readonly name: string;
  uniqueId(): Uint8Array;
  /** Returns when all ranks have called it. */
  join(id: Uint8Array, rank: number, size: number): NcclComm;
}

/** 22803 is 2.28.3; before 2.9 it was 2804. */
export const ncclVersion = (v: number): string =>
  v < 10000
    ? `${Math.floor(v / 1000)}.${Math.floor(v / 100) % 10}.${v % 100}`
    : `${Math.floor(v / 10000)}.${Math.floor(v / 100) % 100}.${v % 100}`;

/** The library of the device's vendor, or the sentence that says why there is none. */
export function openNccl(device: Device, find: FindLibrary = openLibrary): Nccl | string {
  const spec = device.driver.name === 'hip' ? RCCL : NCCL;
  const library = find(spec);
  if (typeof library === 'string') return library;
  const raw = library.bind(NCCL_TABLE);
  const calls = new Calls(NCCL_TABLE, raw, {
    errorName: (status) => nativeString(raw.errorString(status)) || 'unknown error',
    outOfMemory: [],
  });
  const cell = new Cell();
  calls.call('version', cell.raw);
  const version = ncclVersion(cell.int);
  library.note(version);
  return {
    name: `${spec.name} ${version}`,
    uniqueId: () => {
      const id = new Uint8Array(UNIQUE_ID_BYTES);
      calls.call('uniqueId', id);
      return id;
    },
    join: (id, rank, size) => {
      device.makeCurrent();
      const out = new Cell();
      // By value: the FFI library takes a struct as an object of its fields.
      calls.call('initRank', out.raw, size, { internal: id }, rank);
      return new NcclComm(calls, device, out.value);
    },
  };
}

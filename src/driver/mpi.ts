// OpenMPI's C interface: handles are addresses of objects that the library exports.
import { DeviceError } from '../base/errors.js';
import { Cell, cText, type FindLibrary, type Library, openLibrary, type LibrarySpec } from './ffi.js';
import { Calls } from './checked-calls.js';

const LIBMPI: LibrarySpec = { name: 'OpenMPI', sonames: ['libmpi.so.40', 'libmpi.so.80'], vendor: 'host' };

/** Communicators, types and operations are addresses; `request` and `count` are cells that are written. */
export const MPI_TABLE = {
  initialized: 'int MPI_Initialized(void *flag)',
  initThread: 'int MPI_Init_thread(uintptr_t argc, uintptr_t argv, int required, void *provided)',
  finalize: 'int MPI_Finalize()',
  abort: 'int MPI_Abort(uintptr_t comm, int code)',
  rank: 'int MPI_Comm_rank(uintptr_t comm, void *rank)',
  size: 'int MPI_Comm_size(uintptr_t comm, void *size)',
  setErrorHandler: 'int MPI_Comm_set_errhandler(uintptr_t comm, uintptr_t handler)',
  errorString: 'int MPI_Error_string(int code, void *text, void *length)',
  version: 'int MPI_Get_library_version(void *text, void *length)',
  split: 'int MPI_Comm_split(uintptr_t comm, int color, int key, void *newComm)',
  free: 'int MPI_Comm_free(void *comm)',
  allReduce:
    'int MPI_Iallreduce(uintptr_t src, uintptr_t dst, int count, uintptr_t type, uintptr_t op, uintptr_t comm, ' +
    'void *request)',
  reduceScatter:
    'int MPI_Ireduce_scatter_block(uintptr_t src, uintptr_t dst, int count, uintptr_t type, uintptr_t op, ' +
    'uintptr_t comm, void *request)',
  allGather:
    'int MPI_Iallgather(uintptr_t src, int count, uintptr_t type, uintptr_t dst, int each, uintptr_t into, ' +
    'uintptr_t comm, void *request)',
  broadcast: 'int MPI_Ibcast(uintptr_t x, int count, uintptr_t type, int root, uintptr_t comm, void *request)',
  send: 'int MPI_Isend(uintptr_t x, int count, uintptr_t type, int to, int tag, uintptr_t comm, void *request)',
  recv: 'int MPI_Irecv(uintptr_t x, int count, uintptr_t type, int from, int tag, uintptr_t comm, void *request)',
  barrier: 'int MPI_Ibarrier(uintptr_t comm, void *request)',
  test: 'int MPI_Test(void *request, void *flag, uintptr_t status)',
} as const;

/** MPI_IN_PLACE: the result takes the place of what is sent. */
export const MPI_IN_PLACE = 1;
/** What MPI counts with is an int. */
export const MPI_MOST = 2 ** 31 - 1;
const FUNNELED = 1;

/** Data symbols by what they are. */
const TYPES = {
  u8: 'ompi_mpi_uint8_t',
  u32: 'ompi_mpi_uint32_t',
  i16: 'ompi_mpi_int16_t',
  i32: 'ompi_mpi_int32_t',
  i64: 'ompi_mpi_int64_t',
  f32: 'ompi_mpi_float',
  f64: 'ompi_mpi_double',
} as const;
const OPS = {
  sum: 'ompi_mpi_op_sum',
  prod: 'ompi_mpi_op_prod',
  max: 'ompi_mpi_op_max',
  min: 'ompi_mpi_op_min',
} as const;
export type MpiType = keyof typeof TYPES;
export type MpiOp = keyof typeof OPS;

export interface Mpi {
  readonly calls: Calls<typeof MPI_TABLE>;
  readonly world: number;
  readonly types: Readonly<Record<MpiType, number>>;
  readonly ops: Readonly<Record<MpiOp, number>>;
  /** 'Open MPI v4.1.4'. */
  readonly version: string;
}

let started: Mpi | undefined;

/** Opens and starts MPI in this process, once, or answers why not. */
export function openMpi(find: FindLibrary = openLibrary): Mpi | string {
  if (started) return started;
  const library = find(LIBMPI);
  if (typeof library === 'string') return library;
  if (!('address' in library)) throw new DeviceError('MPI: a library without data symbols cannot be bound');
  const at = (symbol: string): number => (library as Library).address(symbol);
  const raw = library.bind(MPI_TABLE);
  const errorName = (status: number): string => {
    const text = new Uint8Array(1024);
    return raw.errorString(status, text, new Cell().raw) === 0 ? cText(text) : 'MPI error';
  };
  const calls = new Calls(MPI_TABLE, raw, { errorName, outOfMemory: [] });
  const cell = new Cell();
  calls.call('initialized', cell.raw);
  if (cell.int === 0) calls.call('initThread', 0, 0, FUNNELED, cell.clear().raw);
  const world = at('ompi_mpi_comm_world');
  // Failures come back as numbers and become errors; MPI's own way is to end the process at once.
  calls.call('setErrorHandler', world, at('ompi_mpi_errors_return'));
  const text = new Uint8Array(8192);
  calls.call('version', text, cell.clear().raw);
  const version = cText(text).split(',')[0];
  library.note(version);
  const addresses = <T extends Record<string, string>>(symbols: T): Record<keyof T, number> =>
    Object.fromEntries(Object.entries(symbols).map(([k, s]) => [k, at(s)])) as Record<keyof T, number>;
  return (started = { calls, world, types: addresses(TYPES), ops: addresses(OPS), version });
}

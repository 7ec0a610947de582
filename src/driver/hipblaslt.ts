// hipBLASLt: symbols and numbers of AMD's matrix-product library with epilogues, ROCm 6.2 to 7.
import type { Blas } from './blas.js';
import { Calls } from './checked-calls.js';
import type { Device, Maybe } from './driver.js';
import { Cell, type FindLibrary, openLibrary, type LibrarySpec } from './ffi.js';
import { LtBlas, ltTable, made, type LtNumbers } from './lt.js';

export const HIPBLASLT: LibrarySpec = {
  name: 'hipBLASLt',
  sonames: ['libhipblaslt.so.1', 'libhipblaslt.so.0', 'libhipblaslt.so'],
  vendor: 'rocm',
};

export const HIPBLASLT_TABLE = {
  ...ltTable('hipblasLt'),
  version: 'int hipblasLtGetVersion(uintptr_t handle, void *version)',
} as const;

export const HIPBLASLT_NUMBERS = {
  layout: { batchCount: 0, batchStride: 1 },
  desc: { transA: 0, transB: 1, epilogue: 2, biasPointer: 3 },
  pref: { maxWorkspace: 1, minAlignment: [] },
  epilogueBias: 4,
  opN: 111,
  opT: 112,
  compute: { f32: 2, tf32: 6, f64: 7 },
  result: { size: 56, workspaceSize: 24 },
} as const satisfies LtNumbers;

const HIPBLAS_STATUS = (
  'SUCCESS NOT_INITIALIZED ALLOC_FAILED INVALID_VALUE MAPPING_ERROR EXECUTION_FAILED INTERNAL_ERROR ' +
  'NOT_SUPPORTED ARCH_MISMATCH HANDLE_IS_NULLPTR INVALID_ENUM UNKNOWN'
).split(' ');
const ALLOC_FAILED = HIPBLAS_STATUS.indexOf('ALLOC_FAILED');
/** ROCm 6.2: the data type and compute type numbers before it were others. */
const OLDEST = 800;

export function openHipblasLt(device: Device, find: FindLibrary = openLibrary): Maybe<Blas> {
  const library = find(HIPBLASLT);
  if (typeof library === 'string') return library;
  const raw = library.bind(HIPBLASLT_TABLE);
  const rules = {
    errorName: (s: number) => `HIPBLAS_STATUS_${HIPBLAS_STATUS[s] ?? 'UNKNOWN'}`,
    outOfMemory: [ALLOC_FAILED],
  };
  const calls = new Calls(HIPBLASLT_TABLE, raw, rules);
  const handle = made((cell) => calls.call('create', cell));
  const cell = new Cell();
  calls.call('version', handle, cell.raw);
  calls.call('destroy', handle);
  const v = cell.int;
  const version = `${Math.floor(v / 100000)}.${Math.floor(v / 100) % 1000}.${v % 100}`;
  library.note(version);
  if (v < OLDEST)
    return `hipBLASLt ${version} at ${library.path} is older than 0.8 (ROCm 6.2), the oldest wick speaks to`;
  return new LtBlas(`hipBLASLt ${version}`, device, calls, HIPBLASLT_NUMBERS);
}

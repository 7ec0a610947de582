// cuBLASLt: symbols and numbers of NVIDIA's matrix-product library, CUDA 12 and 13.
import type { Blas } from './blas.js';
import { Calls } from './checked-calls.js';
import { forDriver } from './cuda-version.js';
import type { Device, Maybe } from './driver.js';
import { type FindLibrary, nativeString, openLibrary, type LibrarySpec } from './ffi.js';
import { LtBlas, ltTable, type LtNumbers } from './lt.js';

export const CUBLASLT: LibrarySpec = {
  name: 'cuBLASLt',
  sonames: ['libcublasLt.so.13', 'libcublasLt.so.12', 'libcublasLt.so'],
  vendor: 'cuda',
};

export const CUBLASLT_TABLE = {
  ...ltTable('cublasLt'),
  version: 'size_t cublasLtGetVersion()',
  statusName: 'uintptr_t cublasLtGetStatusName(int status)',
} as const;

export const CUBLASLT_NUMBERS = {
  layout: { batchCount: 5, batchStride: 6 },
  desc: { transA: 3, transB: 4, epilogue: 7, biasPointer: 8 },
  pref: { maxWorkspace: 1, minAlignment: [5, 6, 7, 8] },
  epilogueBias: 4,
  opN: 0,
  opT: 1,
  compute: { f32: 68, tf32: 77, f64: 70 },
  result: { size: 96, workspaceSize: 64 },
} as const satisfies LtNumbers;

const ALLOC_FAILED = 3;

export function openCublasLt(device: Device, find: FindLibrary = openLibrary): Maybe<Blas> {
  const library = find(forDriver(CUBLASLT));
  if (typeof library === 'string') return library;
  const raw = library.bind(CUBLASLT_TABLE);
  const v = raw.version();
  const version = `${Math.floor(v / 10000)}.${Math.floor(v / 100) % 100}.${v % 100}`;
  library.note(version);
  const calls = new Calls(CUBLASLT_TABLE, raw, {
    errorName: (s) => nativeString(raw.statusName(s)),
    outOfMemory: [ALLOC_FAILED],
  });
  return new LtBlas(`cuBLASLt ${version}`, device, calls, CUBLASLT_NUMBERS);
}

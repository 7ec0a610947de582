// The seam to libraries of factorizations, cuSOLVER and hipSOLVER, whose calls have the same names and parameters:
// matrices of doubles in device memory, column after column, one call each.
import { Calls } from './checked-calls.js';
import { forDriver } from './cuda-version.js';
import type { Address, Device, Maybe, Stream } from './driver.js';
import { Cell, type FindLibrary, type LibrarySpec, openLibrary } from './ffi.js';
import { made } from './lt.js';
import { Workspaces } from './workspace.js';

export const CUSOLVER: LibrarySpec = {
  name: 'cuSOLVER',
  sonames: ['libcusolver.so.12', 'libcusolver.so.11', 'libcusolver.so'],
  vendor: 'cuda',
};
export const HIPSOLVER: LibrarySpec = {
  name: 'hipSOLVER',
  sonames: ['libhipsolver.so.1', 'libhipsolver.so.0', 'libhipsolver.so'],
  vendor: 'rocm',
};

const solverTable = (prefix: 'cusolverDn' | 'hipsolverDn') => {
  const [room, work] = ['void *elements', 'uintptr_t work, int elements, uintptr_t info'];
  const call = (name: string, parameters: string): string => `int ${prefix}${name}(uintptr_t handle, ${parameters})`;
  const [symmetric, rectangular] = ['int uplo, int n, uintptr_t a, int lda', 'int m, int n, uintptr_t a, int lda'];
  const eigen = 'int vectors, int uplo, int n, uintptr_t a, int lda, uintptr_t values';
  const reflected = 'int m, int n, int k, uintptr_t a, int lda, uintptr_t tau';
  const singular =
    'int vectors, int economy, int m, int n, uintptr_t a, int lda, uintptr_t values, uintptr_t u, int ldu, ' +
    'uintptr_t v, int ldv';
  return {
    create: `int ${prefix}Create(void *handle)`,
    destroy: `int ${prefix}Destroy(uintptr_t handle)`,
    setStream: call('SetStream', 'uintptr_t stream'),
    choleskyRoom: call('Dpotrf_bufferSize', `${symmetric}, ${room}`),
    cholesky: call('Dpotrf', `${symmetric}, ${work}`),
    luRoom: call('Dgetrf_bufferSize', `${rectangular}, ${room}`),
    lu: call('Dgetrf', `${rectangular}, uintptr_t work, uintptr_t pivots, uintptr_t info`),
    luSolve: call(
      'Dgetrs',
      'int trans, int n, int columns, uintptr_t a, int lda, uintptr_t pivots, uintptr_t b, int ldb, uintptr_t info',
    ),
    eighRoom: call('Dsyevd_bufferSize', `${eigen}, ${room}`),
    eigh: call('Dsyevd', `${eigen}, ${work}`),
    reflectRoom: call('Dgeqrf_bufferSize', `${rectangular}, ${room}`),
    reflect: call('Dgeqrf', `${rectangular}, uintptr_t tau, ${work}`),
    orthogonalRoom: call('Dorgqr_bufferSize', `${reflected}, ${room}`),
    orthogonal: call('Dorgqr', `${reflected}, ${work}`),
    createRotations: `int ${prefix}CreateGesvdjInfo(void *rotations)`,
    svdRoom: call('Dgesvdj_bufferSize', `${singular}, ${room}, uintptr_t rotations`),
    svd: call('Dgesvdj', `${singular}, ${work}, uintptr_t rotations`),
  } as const;
};
type SolverTable = ReturnType<typeof solverTable>;

export interface SolverNumbers {
  readonly upper: number;
  readonly transpose: number;
  readonly vectors: number;
}
export const CUSOLVER_NUMBERS: SolverNumbers = { upper: 1, transpose: 1, vectors: 1 };
export const HIPSOLVER_NUMBERS: SolverNumbers = { upper: 121, transpose: 112, vectors: 202 };

export const openCusolver = (device: Device, find: FindLibrary = openLibrary): Maybe<Solver> =>
  open(device, find(forDriver(CUSOLVER)), 'cusolverDn', CUSOLVER_NUMBERS);
export const openHipsolver = (device: Device, find: FindLibrary = openLibrary): Maybe<Solver> =>
  open(device, find(HIPSOLVER), 'hipsolverDn', HIPSOLVER_NUMBERS);

function open(
  device: Device,
  library: ReturnType<FindLibrary>,
  prefix: 'cusolverDn' | 'hipsolverDn',
  numbers: SolverNumbers,
): Maybe<Solver> {
  if (typeof library === 'string') return library;
  const table = solverTable(prefix);
  const calls = new Calls(table, library.bind(table), { errorName: () => 'status', outOfMemory: [] });
  return new Solver(device, calls, numbers);
}

/**
 * What is done to `batch` matrices of m x n doubles (n x n where one size tells it), at the addresses given:
 * - cholesky (a): U of U^T U = A in the upper triangle, the other one as it was;
 * - solve (a, b): X of A^T X = B in the place of B of m columns, A's factors in its own;
 * - eigh (a, values): eigenvectors as columns in the place of A;
 * - reflect (a, tau): R in the upper triangle, below it the reflections that make Q;
 * - orthogonal (a, tau): Q in their place;
 * - svd (a, values, u, v): A = U diag(values) V^T, A lost.
 */
export type Factor = 'cholesky' | 'solve' | 'eigh' | 'reflect' | 'orthogonal' | 'svd';

const room = (bytes: number): number => Math.ceil(bytes / 256) * 256;

export class Solver {
  readonly #device: Device;
  readonly #calls: Calls<SolverTable>;
  readonly #numbers: SolverNumbers;
  readonly #handle: number;
  readonly #workspaces: Workspaces;
  #rotations: number | undefined;

  constructor(device: Device, calls: Calls<SolverTable>, numbers: SolverNumbers) {
    this.#device = device;
    this.#calls = calls;
    this.#numbers = numbers;
    device.makeCurrent();
    this.#handle = made((cell) => calls.call('create', cell));
    this.#workspaces = new Workspaces(device);
  }

  /** Runs and waits; answers what the first call that failed has found (the library's info), or 0. */
  run(factor: Factor, m: number, n: number, batch: number, at: readonly Address[], stream: Stream): number {
    const { upper, transpose, vectors } = this.#numbers;
    const [calls, handle] = [this.#calls, this.#handle];
    this.#device.makeCurrent();
    calls.call('setStream', handle, stream);
    const [a, b] = at;
    /** Bytes from one matrix's part to the next one's. */
    const step = (i: number, elements: number, k: number): Address => at[k] + i * elements * 8;
    switch (factor) {
      case 'cholesky':
        return this.#each('choleskyRoom', [upper, n, a, n], 0, batch, stream, (i, work, info) =>
          calls.call('cholesky', handle, upper, n, step(i, n * n, 0), n, ...work, info),
        );
      case 'solve':
        return this.#each('luRoom', [n, n, a, n], n, batch, stream, (i, [work], info, pivots, unused) => {
          const matrix = step(i, n * n, 0);
          calls.call('lu', handle, n, n, matrix, n, work, pivots, info);
          calls.call('luSolve', handle, transpose, n, m, matrix, n, pivots, step(i, n * m, 1), n, unused);
        });
      case 'eigh':
        return this.#each('eighRoom', [vectors, upper, n, a, n, b], 0, batch, stream, (i, work, info) =>
          calls.call('eigh', handle, vectors, upper, n, step(i, n * n, 0), n, step(i, n, 1), ...work, info),
        );
      case 'reflect':
        return this.#each('reflectRoom', [m, n, a, m], 0, batch, stream, (i, work, info) =>
          calls.call('reflect', handle, m, n, step(i, m * n, 0), m, step(i, n, 1), ...work, info),
        );
      case 'orthogonal':
        return this.#each('orthogonalRoom', [m, n, n, a, m, b], 0, batch, stream, (i, work, info) =>
          calls.call('orthogonal', handle, m, n, n, step(i, m * n, 0), m, step(i, n, 1), ...work, info),
        );
      case 'svd': {
        const rotations = (this.#rotations ??= made((cell) => calls.call('createRotations', cell)));
        const parts = (i: number): number[] => [
          ...[vectors, 1, m, n, step(i, m * n, 0), m],
          ...[step(i, n, 1), step(i, m * n, 2), m, step(i, n * n, 3), n],
        ];
        return this.#each('svdRoom', parts(0), 0, batch, stream, (i, work, info) =>
          calls.call('svd', handle, ...parts(i), ...work, info, rotations),
        );
      }
    }
  }

  /** Asks how much room a call needs, and calls it for each matrix of the batch. */
  #each(
    asked: keyof SolverTable & `${string}Room`,
    args: readonly number[],
    pivots: number,
    batch: number,
    stream: Stream,
    call: (i: number, work: [Address, number], info: Address, pivots: Address, unused: Address) => void,
  ): number {
    const cell = new Cell();
    this.#calls.call(
      asked,
      this.#handle,
      ...args,
      cell.raw,
      ...(asked === 'svdRoom' ? [this.#rotations as number] : []),
    );
    const elements = cell.int;
    const [first, second] = [room(elements * 8), room(pivots * 4)];
    const work = this.#workspaces.get(stream, first + second + room((batch + 1) * 4));
    const infos = work + first + second;
    for (let i = 0; i < batch; i++) call(i, [work, elements], infos + i * 4, work + first, infos + batch * 4);
    const bytes = new Uint8Array(batch * 4);
    this.#device.copyOut(bytes, infos, stream);
    return new Int32Array(bytes.buffer).find((info) => info !== 0) ?? 0;
  }

  dispose(): void {
    this.#workspaces.dispose();
    this.#calls.call('destroy', this.#handle);
  }
}

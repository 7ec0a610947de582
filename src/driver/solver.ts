// The seam to libraries of factorizations, cuSOLVER and hipSOLVER, whose calls have the same names and parameters:
// matrices of doubles in device memory, column after column, one call each.
import { Calls } from './checked.js';
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

export const solverTable = (prefix: 'cusolverDn' | 'hipsolverDn') =>
  ({
    create: `int ${prefix}Create(void *handle)`,
    destroy: `int ${prefix}Destroy(uintptr_t handle)`,
    setStream: `int ${prefix}SetStream(uintptr_t handle, uintptr_t stream)`,
    choleskyRoom: `int ${prefix}Dpotrf_bufferSize(uintptr_t handle, int uplo, int n, uintptr_t a, int lda, void *elements)`,
    cholesky:
      `int ${prefix}Dpotrf(uintptr_t handle, int uplo, int n, uintptr_t a, int lda, uintptr_t work, int elements, ` +
      'uintptr_t info)',
    luRoom: `int ${prefix}Dgetrf_bufferSize(uintptr_t handle, int m, int n, uintptr_t a, int lda, void *elements)`,
    lu:
      `int ${prefix}Dgetrf(uintptr_t handle, int m, int n, uintptr_t a, int lda, uintptr_t work, uintptr_t pivots, ` +
      'uintptr_t info)',
    luSolve:
      `int ${prefix}Dgetrs(uintptr_t handle, int trans, int n, int columns, uintptr_t a, int lda, uintptr_t pivots, ` +
      'uintptr_t b, int ldb, uintptr_t info)',
  }) as const;

export interface SolverNumbers {
  readonly upper: number;
  readonly transpose: number;
}
export const CUSOLVER_NUMBERS: SolverNumbers = { upper: 1, transpose: 1 };
export const HIPSOLVER_NUMBERS: SolverNumbers = { upper: 121, transpose: 112 };

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

const room = (bytes: number): number => Math.ceil(bytes / 256) * 256;

export class Solver {
  readonly #device: Device;
  readonly #calls: Calls<ReturnType<typeof solverTable>>;
  readonly #numbers: SolverNumbers;
  readonly #handle: number;
  readonly #workspaces: Workspaces;

  constructor(device: Device, calls: Calls<ReturnType<typeof solverTable>>, numbers: SolverNumbers) {
    this.#device = device;
    this.#calls = calls;
    this.#numbers = numbers;
    device.makeCurrent();
    this.#handle = made((cell) => calls.call('create', cell));
    this.#workspaces = new Workspaces(device);
  }

  /**
   * The upper factor U of U^T U = A takes the place of the upper triangle of each n x n matrix: the lower one of a
   * matrix that lies row after row. Answers the order of the first leading minor that is not positive, or 0.
   */
  cholesky(n: number, batch: number, a: Address, stream: Stream): number {
    const { upper } = this.#numbers;
    const elements = this.#room('choleskyRoom', upper, n, a, n);
    const infos = this.#begin(stream, elements, 0, batch);
    for (let i = 0; i < batch; i++)
      this.#calls.call(
        'cholesky',
        this.#handle,
        upper,
        n,
        a + i * n * n * 8,
        n,
        infos.work,
        elements,
        infos.at + i * 4,
      );
    return this.#first(infos.at, batch, stream);
  }

  /**
   * X of A^T X = B in the place of B, for n x n matrices A, whose factors take their place, and B of some columns.
   * Answers the number of the first pivot that is 0, or 0.
   */
  solve(n: number, columns: number, batch: number, a: Address, b: Address, stream: Stream): number {
    const elements = this.#room('luRoom', n, n, a, n);
    const infos = this.#begin(stream, elements, n, batch);
    const [call, handle] = [this.#calls, this.#handle];
    for (let i = 0; i < batch; i++) {
      const [matrix, right, info] = [a + i * n * n * 8, b + i * n * columns * 8, infos.at + i * 4];
      call.call('lu', handle, n, n, matrix, n, infos.work, infos.pivots, info);
      const { transpose } = this.#numbers;
      call.call('luSolve', handle, transpose, n, columns, matrix, n, infos.pivots, right, n, infos.unused);
    }
    return this.#first(infos.at, batch, stream);
  }

  #room(name: 'choleskyRoom' | 'luRoom', ...args: number[]): number {
    this.#device.makeCurrent();
    const cell = new Cell();
    this.#calls.call(name, this.#handle, ...args, cell.raw);
    return cell.int;
  }
  /** Places for the work, the pivots of one matrix and what each call found. */
  #begin(stream: Stream, elements: number, pivots: number, batch: number) {
    this.#calls.call('setStream', this.#handle, stream);
    const [first, second] = [room(elements * 8), room(pivots * 4)];
    const work = this.#workspaces.get(stream, first + second + room((batch + 1) * 4));
    return { work, pivots: work + first, at: work + first + second, unused: work + first + second + batch * 4 };
  }
  /** What the first call that failed has found; waits for the stream. */
  #first(infos: Address, batch: number, stream: Stream): number {
    const bytes = new Uint8Array(batch * 4);
    this.#device.copyOut(bytes, infos, stream);
    return new Int32Array(bytes.buffer).find((info) => info !== 0) ?? 0;
  }

  dispose(): void {
    this.#workspaces.dispose();
    this.#calls.call('destroy', this.#handle);
  }
}

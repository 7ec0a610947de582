// The seam to libraries of factorizations, cuSOLVER and hipSOLVER, whose calls have the same names and parameters:
// matrices of floats in device memory, column after column, one call each.
import { bytesOf } from '../base/dtype.js';
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

const solverTable = (prefix: 'cusolverDn' | 'hipsolverDn', letter: 'D' | 'S') => {
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
    choleskyRoom: call(`${letter}potrf_bufferSize`, `${symmetric}, ${room}`),
    cholesky: call(`${letter}potrf`, `${symmetric}, ${work}`),
    luRoom: call(`${letter}getrf_bufferSize`, `${rectangular}, ${room}`),
    lu: call(`${letter}getrf`, `${rectangular}, uintptr_t work, uintptr_t pivots, uintptr_t info`),
    luSolve: call(
      `${letter}getrs`,
      'int trans, int n, int columns, uintptr_t a, int lda, uintptr_t pivots, uintptr_t b, int ldb, uintptr_t info',
    ),
    eighRoom: call(`${letter}syevd_bufferSize`, `${eigen}, ${room}`),
    eigh: call(`${letter}syevd`, `${eigen}, ${work}`),
    reflectRoom: call(`${letter}geqrf_bufferSize`, `${rectangular}, ${room}`),
    reflect: call(`${letter}geqrf`, `${rectangular}, uintptr_t tau, ${work}`),
    orthogonalRoom: call(`${letter}orgqr_bufferSize`, `${reflected}, ${room}`),
    orthogonal: call(`${letter}orgqr`, `${reflected}, ${work}`),
    createRotations: `int ${prefix}CreateGesvdjInfo(void *rotations)`,
    svdRoom: call(`${letter}gesvdj_bufferSize`, `${singular}, ${room}, uintptr_t rotations`),
    svd: call(`${letter}gesvdj`, `${singular}, ${work}, uintptr_t rotations`),
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
  const calls = (letter: 'D' | 'S'): Calls<SolverTable> => {
    const table = solverTable(prefix, letter);
    return new Calls(table, library.bind(table), { errorName: () => 'status', outOfMemory: [] });
  };
  return new Solver(device, { f64: calls('D'), f32: calls('S') }, numbers);
}

/**
 * What is done to `batch` matrices of m x n floats (n x n where one size tells it), at the addresses given:
 * - cholesky (a): U of U^T U = A in the upper triangle, the other one as it was;
 * - solve (a, b): X of A^T X = B in the place of B of m columns, A's factors in its own;
 * - eigh (a, values): eigenvectors as columns in the place of A;
 * - reflect (a, tau): R in the upper triangle, below it the reflections that make Q;
 * - orthogonal (a, tau): Q in their place;
 * - svd (a, values, u, v): A = U diag(values) V^T, A lost.
 */
export type Factor = 'cholesky' | 'solve' | 'eigh' | 'reflect' | 'orthogonal' | 'svd';

export type Float = 'f32' | 'f64';
/** A factorization of so many matrices. */
export interface Factoring {
  readonly factor: Factor;
  readonly m: number;
  readonly n: number;
  readonly batch: number;
  readonly dtype: Float;
}
type Room = keyof SolverTable & `${string}Room`;
/** A call for matrix i: its work, where it tells what it found, its pivots. */
type OneCall = (i: number, work: [Address, number], info: Address, pivots: Address, unused: Address) => void;
type Each = (asked: Room, args: readonly number[], pivots: number, call: OneCall) => number;

const room = (bytes: number): number => Math.ceil(bytes / 256) * 256;

export class Solver {
  readonly #device: Device;
  readonly #both: Readonly<Record<Float, Calls<SolverTable>>>;
  readonly #numbers: SolverNumbers;
  readonly #handle: number;
  readonly #workspaces: Workspaces;
  #rotations: number | undefined;

  constructor(device: Device, calls: Readonly<Record<Float, Calls<SolverTable>>>, numbers: SolverNumbers) {
    this.#device = device;
    this.#both = calls;
    this.#numbers = numbers;
    device.makeCurrent();
    this.#handle = made((cell) => calls.f64.call('create', cell));
    this.#workspaces = new Workspaces(device);
  }

  /**
   * Runs, and waits where that tells anything; answers what the first call that failed has found (the library's info),
   * or 0.
   */
  run({ factor, m, n, batch, dtype }: Factoring, at: readonly Address[], stream: Stream): number {
    const { upper, transpose, vectors } = this.#numbers;
    const [calls, handle] = [this.#both[dtype], this.#handle];
    const bytes = bytesOf(dtype);
    this.#device.makeCurrent();
    calls.call('setStream', handle, stream);
    const [a, b] = at;
    /** Bytes from one matrix's part to the next one's. */
    const step = (i: number, elements: number, k: number): Address => at[k] + i * elements * bytes;
    const each: Each = (asked, args, pivots, call) =>
      this.#each(asked, args, pivots, { factor, m, n, batch, dtype }, stream, call);
    switch (factor) {
      case 'cholesky':
        return each('choleskyRoom', [upper, n, a, n], 0, (i, work, info) =>
          calls.call('cholesky', handle, upper, n, step(i, n * n, 0), n, ...work, info),
        );
      case 'solve':
        return each('luRoom', [n, n, a, n], n, (i, [work], info, pivots, unused) => {
          const matrix = step(i, n * n, 0);
          calls.call('lu', handle, n, n, matrix, n, work, pivots, info);
          calls.call('luSolve', handle, transpose, n, m, matrix, n, pivots, step(i, n * m, 1), n, unused);
        });
      case 'eigh':
        return each('eighRoom', [vectors, upper, n, a, n, b], 0, (i, work, info) =>
          calls.call('eigh', handle, vectors, upper, n, step(i, n * n, 0), n, step(i, n, 1), ...work, info),
        );
      case 'reflect':
        return each('reflectRoom', [m, n, a, m], 0, (i, work, info) =>
          calls.call('reflect', handle, m, n, step(i, m * n, 0), m, step(i, n, 1), ...work, info),
        );
      case 'orthogonal':
        return each('orthogonalRoom', [m, n, n, a, m, b], 0, (i, work, info) =>
          calls.call('orthogonal', handle, m, n, n, step(i, m * n, 0), m, step(i, n, 1), ...work, info),
        );
      case 'svd': {
        const rotations = (this.#rotations ??= made((cell) => calls.call('createRotations', cell)));
        const parts = (i: number): number[] => [
          ...[vectors, 1, m, n, step(i, m * n, 0), m],
          ...[step(i, n, 1), step(i, m * n, 2), m, step(i, n * n, 3), n],
        ];
        return each('svdRoom', parts(0), 0, (i, work, info) =>
          calls.call('svd', handle, ...parts(i), ...work, info, rotations),
        );
      }
    }
  }

  /** Asks how much room a call needs, and calls it for each matrix of the batch. */
  #each(
    asked: Room,
    args: readonly number[],
    pivots: number,
    { factor, batch, dtype }: Factoring,
    stream: Stream,
    call: OneCall,
  ): number {
    const cell = new Cell();
    this.#both[dtype].call(
      asked,
      this.#handle,
      ...args,
      cell.raw,
      ...(asked === 'svdRoom' ? [this.#rotations as number] : []),
    );
    const elements = cell.int;
    const [first, second] = [room(elements * bytesOf(dtype)), room(pivots * 4)];
    const work = this.#workspaces.get(stream, first + second + room((batch + 1) * 4));
    const infos = work + first + second;
    for (let i = 0; i < batch; i++) call(i, [work, elements], infos + i * 4, work + first, infos + batch * 4);
    // Of these the library says nothing but that its parameters are wrong, and they are not.
    if (factor === 'reflect' || factor === 'orthogonal') return 0;
    const bytes = new Uint8Array(batch * 4);
    this.#device.copyOut(bytes, infos, stream);
    return new Int32Array(bytes.buffer).find((info) => info !== 0) ?? 0;
  }

  dispose(): void {
    this.#workspaces.dispose();
    this.#both.f64.call('destroy', this.#handle);
  }
}

// A stand-in of cuSOLVER and hipSOLVER: factorizations of matrices of doubles that lie column after column, by plain
// loops.
import type { NativeArg } from '../ffi.js';
import { CUSOLVER_NUMBERS, HIPSOLVER_NUMBERS } from '../solver.js';
import {
  checkMemory,
  Handles,
  hostMemory,
  type HostedDevice,
  Misuse,
  Numbers,
  StandIn,
  useWorkspace,
} from './library.js';

const KINDS = {
  cusolverDn: CUSOLVER_NUMBERS,
  hipsolverDn: HIPSOLVER_NUMBERS,
};
interface Handle {
  stream: number;
}
/** Elements of work that a matrix needs here: enough to notice who gives none. */
const roomOf = (n: number): number => 32 * n;

export function solverStandIn(prefix: keyof typeof KINDS, device: HostedDevice): StandIn {
  const N = KINDS[prefix];
  const handles = new Handles();
  const of = (h: number): Handle => handles.get<Handle>(h, 'handle');
  const streamOf = (h: number): number => {
    if (of(h).stream === 0) throw new Misuse('no stream was set');
    return of(h).stream;
  };
  const matrix = (what: string, at: number, rows: number, columns: number, ld: number): Numbers => {
    if (ld !== rows) throw new Misuse(`${what}: columns are ${ld} apart where rows are ${rows}`);
    return new Numbers(device, what, at, rows * columns, 'f64');
  };
  const integers = (what: string, at: number, count: number): Int32Array => {
    checkMemory(device, what, at, count * 4);
    const bytes = new Uint8Array(count * 4);
    device.copyOut(bytes, at, 0);
    return new Int32Array(bytes.buffer);
  };
  const answer = (at: number, values: ArrayLike<number>): void => {
    checkMemory(device, 'info or pivots', at, values.length * 4);
    device.copyIn(at, new Uint8Array(Int32Array.from(values).buffer), 0);
  };
  const room = (h: number, n: number, cell: NativeArg): number => {
    of(h);
    hostMemory(cell, 4).setInt32(0, roomOf(n), true);
    return 0;
  };
  return new StandIn(prefix, {
    [`${prefix}Create`]: (cell: NativeArg) => handles.make(cell, 'handle', { stream: 0 } satisfies Handle),
    [`${prefix}Destroy`]: (h: number) => handles.destroy(h, 'handle'),
    [`${prefix}SetStream`]: (h: number, stream: number) => {
      of(h).stream = stream;
      return 0;
    },
    [`${prefix}Dpotrf_bufferSize`]: (h: number, _uplo: number, n: number, _a: number, _lda: number, cell: NativeArg) =>
      room(h, n, cell),
    [`${prefix}Dpotrf`]: (h, uplo, n, a, lda, work, elements, info) => {
      if (uplo !== N.upper) throw new Misuse(`triangle ${uplo}`);
      device.enqueue(streamOf(h), () => {
        useWorkspace(device, work, elements * 8, roomOf(n) * 8);
        const numbers = matrix('a', a, n, n, lda);
        answer(info, [upperFactor(numbers.values, n)]);
        numbers.write();
      });
      return 0;
    },
    [`${prefix}Dgetrf_bufferSize`]: (h: number, _m: number, n: number, _a: number, _lda: number, cell: NativeArg) =>
      room(h, n, cell),
    [`${prefix}Dgetrf`]: (h, m, n, a, lda, work, pivots, info) => {
      if (m !== n) throw new Misuse(`${m} rows and ${n} columns`);
      device.enqueue(streamOf(h), () => {
        useWorkspace(device, work, roomOf(n) * 8, roomOf(n) * 8);
        const numbers = matrix('a', a, n, n, lda);
        const exchanged = factors(numbers.values, n);
        const zero = Array.from({ length: n }, (_, i) => numbers.values[i * n + i]).indexOf(0);
        answer(pivots, exchanged);
        answer(info, [zero + 1]);
        numbers.write();
      });
      return 0;
    },
    [`${prefix}Dgetrs`]: (h, trans, n, columns, a, lda, pivots, b, ldb, info) => {
      if (trans !== N.transpose) throw new Misuse(`operation ${trans}`);
      device.enqueue(streamOf(h), () => {
        const right = matrix('b', b, n, columns, ldb);
        const exchanged = integers('pivots', pivots, n);
        solveTransposed(matrix('a', a, n, n, lda).values, exchanged, right.values, n, columns);
        answer(info, [0]);
        right.write();
      });
      return 0;
    },
  } as Record<string, (...args: number[]) => number>);
}

/** U of U^T U = A in the upper triangle, the lower one untouched; the order of a minor that is not positive, or 0. */
function upperFactor(x: Float64Array, n: number): number {
  for (let j = 0; j < n; j++)
    for (let i = 0; i <= j; i++) {
      let sum = x[j * n + i];
      for (let k = 0; k < i; k++) sum -= x[i * n + k] * x[j * n + k];
      if (i === j && !(sum > 0)) return j + 1;
      x[j * n + i] = i === j ? Math.sqrt(sum) : sum / x[i * n + i];
    }
  return 0;
}

/** L and U in one; the row that each was exchanged with, counted from 1. */
function factors(x: Float64Array, n: number): number[] {
  const exchanged: number[] = [];
  for (let k = 0; k < n; k++) {
    let top = k;
    for (let i = k + 1; i < n; i++) if (Math.abs(x[k * n + i]) > Math.abs(x[k * n + top])) top = i;
    exchanged.push(top + 1);
    for (let j = 0; j < n; j++) [x[j * n + k], x[j * n + top]] = [x[j * n + top], x[j * n + k]];
    if (x[k * n + k] === 0) continue;
    for (let i = k + 1; i < n; i++) x[k * n + i] /= x[k * n + k];
    for (let j = k + 1; j < n; j++) for (let i = k + 1; i < n; i++) x[j * n + i] -= x[k * n + i] * x[j * n + k];
  }
  return exchanged;
}

/** (P L U)^T X = B: U^T, then L^T, then the exchanges back. */
function solveTransposed(lu: Float64Array, exchanged: Int32Array, b: Float64Array, n: number, columns: number): void {
  for (let c = 0; c < columns; c++) {
    const x = b.subarray(c * n, (c + 1) * n);
    for (let i = 0; i < n; i++) {
      for (let j = 0; j < i; j++) x[i] -= lu[i * n + j] * x[j];
      x[i] /= lu[i * n + i];
    }
    for (let i = n - 1; i >= 0; i--) for (let j = i + 1; j < n; j++) x[i] -= lu[i * n + j] * x[j];
    for (let i = n - 1; i >= 0; i--) [x[i], x[exchanged[i] - 1]] = [x[exchanged[i] - 1], x[i]];
  }
}

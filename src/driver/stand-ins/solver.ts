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
    [`${prefix}Dsyevd_bufferSize`]: (h: number, _v: number, _u: number, n: number, ...rest: NativeArg[]) =>
      room(h, n, rest[3]),
    [`${prefix}Dsyevd`]: (h, vectors, uplo, n, a, lda, values, work, elements, info) => {
      if (vectors !== N.vectors || uplo !== N.upper) throw new Misuse(`vectors ${vectors}, triangle ${uplo}`);
      device.enqueue(streamOf(h), () => {
        useWorkspace(device, work, elements * 8, roomOf(n) * 8);
        const [numbers, found] = [matrix('a', a, n, n, lda), matrix('values', values, n, 1, n)];
        const { lengths, left } = rotated(shifted(numbers.values, n), n, n);
        const order = lengths.map((_, i) => i).sort((i, j) => lengths[i] - lengths[j]);
        const shift = largestSum(numbers.values, n);
        order.forEach((from, to) => {
          found.values[to] = lengths[from] - shift;
          for (let i = 0; i < n; i++) numbers.values[to * n + i] = -left[from][i];
        });
        found.write();
        numbers.write();
        answer(info, [0]);
      });
      return 0;
    },
    [`${prefix}Dgeqrf_bufferSize`]: (h: number, _m: number, n: number, _a: number, _lda: number, cell: NativeArg) =>
      room(h, n, cell),
    [`${prefix}Dgeqrf`]: (h, m, n, a, lda, tau, work, elements, info) => {
      device.enqueue(streamOf(h), () => {
        useWorkspace(device, work, elements * 8, roomOf(n) * 8);
        const [numbers, scales] = [matrix('a', a, m, n, lda), matrix('tau', tau, n, 1, n)];
        reflections(numbers.values, scales.values, m, n);
        numbers.write();
        scales.write();
        answer(info, [0]);
      });
      return 0;
    },
    [`${prefix}Dorgqr_bufferSize`]: (h: number, _m: number, n: number, _k: number, ...rest: NativeArg[]) =>
      room(h, n, rest[3]),
    [`${prefix}Dorgqr`]: (h, m, n, k, a, lda, tau, work, elements, info) => {
      if (k !== n) throw new Misuse(`${k} reflections for ${n} columns`);
      device.enqueue(streamOf(h), () => {
        useWorkspace(device, work, elements * 8, roomOf(n) * 8);
        const numbers = matrix('a', a, m, n, lda);
        unfolded(numbers.values, matrix('tau', tau, n, 1, n).values, m, n);
        numbers.write();
        answer(info, [0]);
      });
      return 0;
    },
    [`${prefix}CreateGesvdjInfo`]: (cell: NativeArg) => handles.make(cell, 'rotations', {}),
    [`${prefix}Dgesvdj_bufferSize`]: (
      h: number,
      _v: number,
      _e: number,
      _m: number,
      n: number,
      ...rest: NativeArg[]
    ) => {
      handles.get(rest[8] as number, 'rotations');
      return room(h, n, rest[7]);
    },
    [`${prefix}Dgesvdj`]: (h, vectors, economy, m, n, a, lda, values, u, ldu, v, ldv, work, elements, info, by) => {
      handles.get(by, 'rotations');
      if (vectors !== N.vectors || economy !== 1 || m < n) throw new Misuse(`${m} x ${n}, economy ${economy}`);
      device.enqueue(streamOf(h), () => {
        useWorkspace(device, work, elements * 8, roomOf(n) * 8);
        const [given, found] = [matrix('a', a, m, n, lda), matrix('values', values, n, 1, n)];
        const [us, vs] = [matrix('u', u, m, n, ldu), matrix('v', v, n, n, ldv)];
        const { lengths, left, right } = rotated(given.values, m, n);
        const order = lengths.map((_, i) => i).sort((i, j) => lengths[j] - lengths[i]);
        order.forEach((from, to) => {
          found.values[to] = lengths[from];
          us.values.set(left[from], to * m);
          vs.values.set(right[from], to * n);
        });
        for (const numbers of [found, us, vs]) numbers.write();
        answer(info, [0]);
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

/** The largest sum of a row's sizes: no eigenvalue is larger. */
const largestSum = (x: Float64Array, n: number): number =>
  Math.max(...Array.from({ length: n }, (_, i) => x.subarray(i * n, (i + 1) * n).reduce((s, v) => s + Math.abs(v), 0)));
/** A symmetric matrix with so much on its diagonal that its singular values are its eigenvalues. */
function shifted(x: Float64Array, n: number): Float64Array {
  const out = x.slice();
  const shift = largestSum(x, n);
  for (let i = 0; i < n; i++) out[i * n + i] += shift;
  return out;
}

/** Columns turned in pairs until all are orthogonal: their lengths, directions, and how they were turned. */
function rotated(
  x: Float64Array,
  m: number,
  n: number,
): { lengths: number[]; left: Float64Array[]; right: Float64Array[] } {
  const columns = Array.from({ length: n }, (_, j) => x.slice(j * m, (j + 1) * m));
  const right = columns.map((_, j) => Float64Array.from({ length: n }, (_unused, i) => (i === j ? 1 : 0)));
  const dot = (a: Float64Array, b: Float64Array): number => a.reduce((s, v, i) => s + v * b[i], 0);
  const turn = (a: Float64Array, b: Float64Array, c: number, s: number): void => {
    for (let i = 0; i < a.length; i++) [a[i], b[i]] = [c * a[i] - s * b[i], s * a[i] + c * b[i]];
  };
  for (let sweep = 0, turned = true; turned && sweep < 40; sweep++) {
    turned = false;
    for (let p = 0; p < n - 1; p++)
      for (let q = p + 1; q < n; q++) {
        const [pp, qq, pq] = [dot(columns[p], columns[p]), dot(columns[q], columns[q]), dot(columns[p], columns[q])];
        if (Math.abs(pq) <= 1e-15 * Math.sqrt(pp * qq)) continue;
        turned = true;
        const theta = (qq - pp) / (2 * pq);
        const t = Math.sign(theta || 1) / (Math.abs(theta) + Math.hypot(theta, 1));
        const c = 1 / Math.hypot(t, 1);
        turn(columns[p], columns[q], c, t * c);
        turn(right[p], right[q], c, t * c);
      }
  }
  const lengths = columns.map((c) => Math.sqrt(dot(c, c)));
  return { lengths, left: columns.map((c, j) => c.map((v) => v / lengths[j])), right };
}

/** R above and on the diagonal, reflections (1, v) below it, in LAPACK's form. */
function reflections(x: Float64Array, tau: Float64Array, m: number, n: number): void {
  for (let k = 0; k < n; k++) {
    const column = x.subarray(k * m, (k + 1) * m);
    const below = Math.hypot(...column.subarray(k + 1));
    tau[k] = 0;
    if (below === 0) continue;
    const beta = -Math.sign(column[k] || 1) * Math.hypot(column[k], below);
    tau[k] = (beta - column[k]) / beta;
    const scale = column[k] - beta;
    for (let i = k + 1; i < m; i++) column[i] /= scale;
    column[k] = beta;
    for (let j = k + 1; j < n; j++) mirror(x.subarray(j * m, (j + 1) * m), column, k, tau[k]);
  }
}
function mirror(target: Float64Array, v: Float64Array, k: number, tau: number): void {
  let share = target[k];
  for (let i = k + 1; i < target.length; i++) share += v[i] * target[i];
  target[k] -= tau * share;
  for (let i = k + 1; i < target.length; i++) target[i] -= tau * share * v[i];
}
/** Q of the reflections, in their place. */
function unfolded(x: Float64Array, tau: Float64Array, m: number, n: number): void {
  const kept = x.slice();
  for (let j = 0; j < n; j++) {
    const column = x.subarray(j * m, (j + 1) * m).fill(0);
    column[j] = 1;
    for (let k = n - 1; k >= 0; k--) mirror(column, kept.subarray(k * m, (k + 1) * m), k, tau[k]);
  }
}

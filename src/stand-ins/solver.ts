// A stand-in of cuSOLVER and hipSOLVER: factorizations of matrices of either float that lie column after column, by
// plain loops.
import { bytesOf } from '../base/dtype.js';
import type { NativeArg } from '../driver/ffi.js';
import { CUSOLVER_NUMBERS, HIPSOLVER_NUMBERS } from '../driver/solver.js';
import {
  checkMemory,
  Handles,
  hostMemory,
  type HostedDevice,
  Misuse,
  Numbers,
  StandIn,
  type Symbols,
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

/** Calls by the end of their symbols. */
type Calls = Record<string, (...args: any[]) => number>;

export const solverStandIn = (prefix: keyof typeof KINDS, device: HostedDevice): StandIn =>
  new StandIn(
    prefix,
    inBothFloats((dtype, handles) => new SolverLibrary(prefix, device, dtype, handles).symbols()),
  );

/** Calls of each precision, on handles that they share. */
function inBothFloats(symbols: (dtype: Float, handles: Handles) => Symbols): Symbols {
  const handles = new Handles();
  return { ...symbols('f64', handles), ...symbols('f32', handles) };
}
type Float = 'f32' | 'f64';
/** The letter by which LAPACK's names say it. */
const LETTER: Readonly<Record<Float, string>> = { f64: 'D', f32: 'S' };

class SolverLibrary {
  readonly #prefix: keyof typeof KINDS;
  readonly #device: HostedDevice;
  readonly #numbers: (typeof KINDS)[keyof typeof KINDS];
  readonly #dtype: Float;
  readonly #handles: Handles;

  constructor(prefix: keyof typeof KINDS, device: HostedDevice, dtype: Float, handles: Handles) {
    this.#dtype = dtype;
    this.#handles = handles;
    this.#prefix = prefix;
    this.#device = device;
    this.#numbers = KINDS[prefix];
  }
  symbols(): Symbols {
    const calls: Calls = {
      ...this.#handleCalls(),
      ...this.#choleskyCalls(),
      ...this.#luCalls(),
      ...this.#eighCalls(),
      ...this.#qrCalls(),
      ...this.#svdCalls(),
    };
    const named = (name: string): string => (/^[a-z]/.test(name) ? LETTER[this.#dtype] + name : name);
    return Object.fromEntries(Object.entries(calls).map(([name, call]) => [`${this.#prefix}${named(name)}`, call]));
  }
  get #bytes(): number {
    return bytesOf(this.#dtype);
  }

  #of(h: number): Handle {
    return this.#handles.get<Handle>(h, 'handle');
  }
  #streamOf(h: number): number {
    const { stream } = this.#of(h);
    if (stream === 0) throw new Misuse('no stream was set');
    return stream;
  }
  #matrix(what: string, at: number, rows: number, columns: number, ld: number): Numbers {
    if (ld !== rows) throw new Misuse(`${what}: columns are ${ld} apart where rows are ${rows}`);
    return new Numbers(this.#device, what, at, rows * columns, this.#dtype);
  }
  #integers(what: string, at: number, count: number): Int32Array {
    checkMemory(this.#device, what, at, count * 4);
    const bytes = new Uint8Array(count * 4);
    this.#device.copyOut(bytes, at, 0);
    return new Int32Array(bytes.buffer);
  }
  #answer(at: number, values: ArrayLike<number>): void {
    checkMemory(this.#device, 'info or pivots', at, values.length * 4);
    this.#device.copyIn(at, new Uint8Array(Int32Array.from(values).buffer), 0);
  }
  #room(h: number, n: number, cell: NativeArg): number {
    this.#of(h);
    hostMemory(cell, 4).setInt32(0, roomOf(n), true);
    return 0;
  }

  /** Handles, and the stream that their calls go to. */
  #handleCalls(): Calls {
    return {
      Create: (cell: NativeArg) => this.#handles.make(cell, 'handle', { stream: 0 } satisfies Handle),
      Destroy: (h: number) => this.#handles.destroy(h, 'handle'),
      SetStream: (h: number, stream: number) => {
        this.#of(h).stream = stream;
        return 0;
      },
    };
  }
  /** Cholesky factors. */
  #choleskyCalls(): Calls {
    return {
      potrf_bufferSize: (h: number, _uplo: number, n: number, _a: number, _lda: number, cell: NativeArg) =>
        this.#room(h, n, cell),
      potrf: (h, uplo, n, a, lda, work, elements, info) => {
        if (uplo !== this.#numbers.upper) throw new Misuse(`triangle ${uplo}`);
        this.#device.enqueue(this.#streamOf(h), () => {
          useWorkspace(this.#device, work, elements * this.#bytes, roomOf(n) * this.#bytes);
          const numbers = this.#matrix('a', a, n, n, lda);
          this.#answer(info, [upperFactor(numbers.values, n)]);
          numbers.write();
        });
        return 0;
      },
    };
  }
  /** LU factors, and what is solved with them. */
  #luCalls(): Calls {
    return {
      getrf_bufferSize: (h: number, _m: number, n: number, _a: number, _lda: number, cell: NativeArg) =>
        this.#room(h, n, cell),
      getrf: (h, m, n, a, lda, work, pivots, info) => {
        if (m !== n) throw new Misuse(`${m} rows and ${n} columns`);
        this.#device.enqueue(this.#streamOf(h), () => {
          useWorkspace(this.#device, work, roomOf(n) * this.#bytes, roomOf(n) * this.#bytes);
          const numbers = this.#matrix('a', a, n, n, lda);
          const exchanged = factors(numbers.values, n);
          const zero = Array.from({ length: n }, (_, i) => numbers.values[i * n + i]).indexOf(0);
          this.#answer(pivots, exchanged);
          this.#answer(info, [zero + 1]);
          numbers.write();
        });
        return 0;
      },
      getrs: (h, trans, n, columns, a, lda, pivots, b, ldb, info) => {
        if (trans !== this.#numbers.transpose) throw new Misuse(`operation ${trans}`);
        this.#device.enqueue(this.#streamOf(h), () => {
          const right = this.#matrix('b', b, n, columns, ldb);
          const exchanged = this.#integers('pivots', pivots, n);
          solveTransposed(this.#matrix('a', a, n, n, lda).values, exchanged, right.values, n, columns);
          this.#answer(info, [0]);
          right.write();
        });
        return 0;
      },
    };
  }
  /** Eigenvalues and vectors of symmetric matrices. */
  #eighCalls(): Calls {
    return {
      syevd_bufferSize: (h: number, _v: number, _u: number, n: number, ...rest: NativeArg[]) =>
        this.#room(h, n, rest[3]),
      syevd: (h, vectors, uplo, n, a, lda, values, work, elements, info) => {
        if (vectors !== this.#numbers.vectors || uplo !== this.#numbers.upper)
          throw new Misuse(`vectors ${vectors}, triangle ${uplo}`);
        this.#device.enqueue(this.#streamOf(h), () => {
          useWorkspace(this.#device, work, elements * this.#bytes, roomOf(n) * this.#bytes);
          const [numbers, found] = [this.#matrix('a', a, n, n, lda), this.#matrix('values', values, n, 1, n)];
          const { lengths, left } = rotated(shifted(numbers.values, n), n, n);
          const order = lengths.map((_, i) => i).sort((i, j) => lengths[i] - lengths[j]);
          const shift = largestSum(numbers.values, n);
          order.forEach((from, to) => {
            found.values[to] = lengths[from] - shift;
            for (let i = 0; i < n; i++) numbers.values[to * n + i] = -left[from][i];
          });
          found.write();
          numbers.write();
          this.#answer(info, [0]);
        });
        return 0;
      },
    };
  }
  /** QR: reflections, and the matrix that they make. */
  #qrCalls(): Calls {
    return {
      geqrf_bufferSize: (h: number, _m: number, n: number, _a: number, _lda: number, cell: NativeArg) =>
        this.#room(h, n, cell),
      geqrf: (h, m, n, a, lda, tau, work, elements, info) => {
        this.#device.enqueue(this.#streamOf(h), () => {
          useWorkspace(this.#device, work, elements * this.#bytes, roomOf(n) * this.#bytes);
          const [numbers, scales] = [this.#matrix('a', a, m, n, lda), this.#matrix('tau', tau, n, 1, n)];
          reflections(numbers.values, scales.values, m, n);
          numbers.write();
          scales.write();
          this.#answer(info, [0]);
        });
        return 0;
      },
      orgqr_bufferSize: (h: number, _m: number, n: number, _k: number, ...rest: NativeArg[]) =>
        this.#room(h, n, rest[3]),
      orgqr: (h, m, n, k, a, lda, tau, work, elements, info) => {
        if (k !== n) throw new Misuse(`${k} reflections for ${n} columns`);
        this.#device.enqueue(this.#streamOf(h), () => {
          useWorkspace(this.#device, work, elements * this.#bytes, roomOf(n) * this.#bytes);
          const numbers = this.#matrix('a', a, m, n, lda);
          unfolded(numbers.values, this.#matrix('tau', tau, n, 1, n).values, m, n);
          numbers.write();
          this.#answer(info, [0]);
        });
        return 0;
      },
    };
  }
  /** Singular values by rotations. */
  #svdCalls(): Calls {
    return {
      CreateGesvdjInfo: (cell: NativeArg) => this.#handles.make(cell, 'rotations', {}),
      gesvdj_bufferSize: (h: number, _v: number, _e: number, _m: number, n: number, ...rest: NativeArg[]) => {
        this.#handles.get(rest[8] as number, 'rotations');
        return this.#room(h, n, rest[7]);
      },
      gesvdj: (h, vectors, economy, m, n, a, lda, values, u, ldu, v, ldv, work, elements, info, by) => {
        this.#handles.get(by, 'rotations');
        if (vectors !== this.#numbers.vectors || economy !== 1 || m < n)
          throw new Misuse(`${m} x ${n}, economy ${economy}`);
        this.#device.enqueue(this.#streamOf(h), () => {
          useWorkspace(this.#device, work, elements * this.#bytes, roomOf(n) * this.#bytes);
          const [given, found] = [this.#matrix('a', a, m, n, lda), this.#matrix('values', values, n, 1, n)];
          const [us, vs] = [this.#matrix('u', u, m, n, ldu), this.#matrix('v', v, n, n, ldv)];
          const { lengths, left, right } = rotated(given.values, m, n);
          const order = lengths.map((_, i) => i).sort((i, j) => lengths[j] - lengths[i]);
          order.forEach((from, to) => {
            found.values[to] = lengths[from];
            us.values.set(left[from], to * m);
            vs.values.set(right[from], to * n);
          });
          for (const numbers of [found, us, vs]) numbers.write();
          this.#answer(info, [0]);
        });
        return 0;
      },
    };
  }
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

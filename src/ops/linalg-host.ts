// Factorizations of one small or middling matrix in double precision on the host: plain loops over row-major numbers.
import { ArgumentError } from '../base/errors.js';

export type Matrix = number[];

/**
 * L and U of an m x n matrix in one, the row that became each row, the exchanges (row i with row swaps[i], in turn) and
 * the sign of their order. Pivots are the largest of their column.
 */
export function lu(
  a: Matrix,
  m: number,
  n: number = m,
): { lu: Float64Array; order: number[]; swaps: number[]; sign: number } {
  const x = Float64Array.from(a);
  const order = Array.from({ length: m }, (_, i) => i);
  const swaps: number[] = [];
  let sign = 1;
  for (let k = 0; k < Math.min(m, n); k++) {
    let top = k;
    for (let i = k + 1; i < m; i++) if (Math.abs(x[i * n + k]) > Math.abs(x[top * n + k])) top = i;
    swaps.push(top);
    if (top !== k) {
      for (let j = 0; j < n; j++) [x[k * n + j], x[top * n + j]] = [x[top * n + j], x[k * n + j]];
      [order[k], order[top]] = [order[top], order[k]];
      sign = -sign;
    }
    const pivot = x[k * n + k];
    if (pivot === 0) continue;
    for (let i = k + 1; i < m; i++) {
      const f = (x[i * n + k] /= pivot);
      if (f !== 0) for (let j = k + 1; j < n; j++) x[i * n + j] -= f * x[k * n + j];
    }
  }
  return { lu: x, order, swaps, sign };
}

/** The row that becomes each row by exchanges with the rows `swaps`, counted from 1. */
export function rowOrder(op: string, swaps: readonly number[]): number[] {
  const order = swaps.map((_, i) => i);
  swaps.forEach((row, i) => {
    if (!(row > i && row <= swaps.length))
      throw new ArgumentError(`${op}: pivot ${i + 1} is none of the rows ${i + 1} to ${swaps.length}`);
    [order[i], order[row - 1]] = [order[row - 1], order[i]];
  });
  return order;
}

/** X of A X = B, B having k columns. */
export function solve(op: string, a: Matrix, b: Matrix, n: number, k: number): Matrix {
  const { lu: m, order } = lu(a, n);
  for (let i = 0; i < n; i++)
    if (m[i * n + i] === 0) throw new ArgumentError(`${op}: the matrix is singular: pivot ${i + 1} of ${n} is 0`);
  const x = new Float64Array(n * k);
  // Whole rows at a time, which lie one after another in memory.
  const lessRows = (i: number, from: number, to: number): void => {
    for (let j = from; j < to; j++) {
      const f = m[i * n + j];
      if (f !== 0) for (let c = 0; c < k; c++) x[i * k + c] -= f * x[j * k + c];
    }
  };
  for (let i = 0; i < n; i++) {
    for (let c = 0; c < k; c++) x[i * k + c] = b[order[i] * k + c];
    lessRows(i, 0, i);
  }
  for (let i = n - 1; i >= 0; i--) {
    lessRows(i, i + 1, n);
    for (let c = 0; c < k; c++) x[i * k + c] /= m[i * n + i];
  }
  return Array.from(x);
}

/** The lower triangular L with L L^T = A. */
export function cholesky(a: Matrix, n: number): Matrix {
  const l = new Float64Array(n * n);
  for (let j = 0; j < n; j++) {
    let d = a[j * n + j];
    for (let k = 0; k < j; k++) d -= l[j * n + k] ** 2;
    if (!(d > 0))
      throw new ArgumentError(
        `cholesky: the matrix is not positive definite: its leading minor of order ${j + 1} is not above 0`,
      );
    l[j * n + j] = Math.sqrt(d);
    for (let i = j + 1; i < n; i++) {
      let sum = a[i * n + j];
      for (let k = 0; k < j; k++) sum -= l[i * n + k] * l[j * n + k];
      l[i * n + j] = sum / l[j * n + j];
    }
  }
  return Array.from(l);
}

/** The columns of a row-major matrix, each on its own: what rotations and reflections go along. */
const columnsOf = (a: Matrix, m: number, n: number, scale = 1): Float64Array[] =>
  Array.from({ length: n }, (_, j) => Float64Array.from({ length: m }, (_unused, i) => a[i * n + j] / scale));
const fromColumns = (columns: readonly Float64Array[], m: number): Matrix => {
  const n = columns.length;
  const out = new Array<number>(m * n);
  columns.forEach((column, j) => {
    for (let i = 0; i < m; i++) out[i * n + j] = column[i];
  });
  return out;
};
/** The length of a vector's elements from `start`, scaled on the way so that no square overflows. */
function lengthFrom(x: Float64Array, start: number): number {
  let most = 0;
  for (let i = start; i < x.length; i++) most = Math.max(most, Math.abs(x[i]));
  if (most === 0 || !Number.isFinite(most)) return most;
  let sum = 0;
  for (let i = start; i < x.length; i++) sum += (x[i] / most) ** 2;
  return most * Math.sqrt(sum);
}
/** x less tau times its part along (1 at k, v below it). */
function reflect(x: Float64Array, v: Float64Array, k: number, tau: number): void {
  let share = x[k];
  for (let i = k + 1; i < x.length; i++) share += v[i] * x[i];
  share *= tau;
  x[k] -= share;
  for (let i = k + 1; i < x.length; i++) x[i] -= share * v[i];
}

/** Q (m x n) and R (n x n) of a tall A by Householder's reflections, with LAPACK's signs. */
export function qr(a: Matrix, m: number, n: number): { q: Matrix; r: Matrix } {
  const w = columnsOf(a, m, n);
  const tau = new Array<number>(n).fill(0);
  for (let k = 0; k < Math.min(n, m - 1); k++) {
    const below = lengthFrom(w[k], k + 1);
    if (below === 0) continue;
    const alpha = w[k][k];
    const beta = alpha > 0 || Object.is(alpha, 0) ? -Math.hypot(alpha, below) : Math.hypot(alpha, below);
    tau[k] = (beta - alpha) / beta;
    for (let i = k + 1; i < m; i++) w[k][i] /= alpha - beta;
    w[k][k] = beta;
    for (let j = k + 1; j < n; j++) reflect(w[j], w[k], k, tau[k]);
  }
  const q = Array.from({ length: n }, (_, j) => {
    const column = new Float64Array(m);
    column[j] = 1;
    for (let k = j; k >= 0; k--) if (tau[k] !== 0) reflect(column, w[k], k, tau[k]);
    return column;
  });
  const r = new Array<number>(n * n).fill(0);
  for (let j = 0; j < n; j++) for (let i = 0; i <= j; i++) r[i * n + j] = w[j][i];
  return { q: fromColumns(q, m), r };
}

const SWEEPS = 60;

/** Up to this size Jacobi's rotations are quick, and they are the most accurate. */
const SMALL = 32;

/**
 * Eigenvalues in ascending order and eigenvectors (columns) of a symmetric matrix: of a small one by Jacobi's
 * rotations, of a larger one by way of three diagonals.
 */
export function eigh(a: Matrix, n: number): { values: number[]; vectors: Matrix } {
  if (a.some((x) => !Number.isFinite(x))) throw new ArgumentError('eigh: the matrix holds NaN or infinities');
  const most = a.reduce((top, x) => Math.max(top, Math.abs(x)), 0);
  const scale = most > 0 ? 2 ** Math.floor(Math.log2(most)) : 1; // so that no square overflows
  const { values, rows } = (n > SMALL ? eighByDiagonals : eighByRotations)(
    a.map((x) => x / scale),
    n,
  );
  const order = Array.from({ length: n }, (_, i) => i).sort((i, j) => values[i] - values[j]);
  const columns = order.map((from) => {
    const sign = signOf((i) => rows[from][i], n);
    return sign < 0 ? rows[from].map((x) => -x) : rows[from];
  });
  return { values: order.map((i) => values[i] * scale), vectors: fromColumns(columns, n) };
}
/** Eigenvalues in any order, and each one's vector as a row. */
interface Eigen {
  readonly values: ArrayLike<number>;
  readonly rows: readonly Float64Array[];
}

function eighByRotations(a: Matrix, n: number): Eigen {
  const m = Float64Array.from(a);
  const v = new Float64Array(n * n);
  for (let i = 0; i < n; i++) v[i * n + i] = 1;
  for (let sweep = 0; ; sweep++) {
    let off = 0;
    let all = 0;
    for (let i = 0; i < n; i++)
      for (let j = 0; j < n; j++) {
        all += m[i * n + j] ** 2;
        if (i !== j) off += m[i * n + j] ** 2;
      }
    if (off <= all * 1e-31 * n) break;
    if (sweep === SWEEPS) throw new ArgumentError(`eigh: no convergence in ${SWEEPS} sweeps`);
    for (let p = 0; p < n - 1; p++)
      for (let q = p + 1; q < n; q++) {
        const x = m[p * n + q];
        if (x === 0) continue;
        const theta = (m[q * n + q] - m[p * n + p]) / (2 * x);
        const t =
          Math.abs(theta) > 1e150
            ? 0.5 / theta
            : Math.sign(theta || 1) / (Math.abs(theta) + Math.sqrt(theta * theta + 1));
        const c = 1 / Math.sqrt(t * t + 1);
        const s = t * c;
        for (let k = 0; k < n; k++) {
          const [mp, mq] = [m[k * n + p], m[k * n + q]];
          m[k * n + p] = c * mp - s * mq;
          m[k * n + q] = s * mp + c * mq;
        }
        for (let k = 0; k < n; k++) {
          const [mp, mq] = [m[p * n + k], m[q * n + k]];
          m[p * n + k] = c * mp - s * mq;
          m[q * n + k] = s * mp + c * mq;
          const [vp, vq] = [v[k * n + p], v[k * n + q]];
          v[k * n + p] = c * vp - s * vq;
          v[k * n + q] = s * vp + c * vq;
        }
        m[p * n + q] = m[q * n + p] = 0;
      }
  }
  return {
    values: Array.from({ length: n }, (_, i) => m[i * n + i]),
    rows: Array.from({ length: n }, (_, j) => Float64Array.from({ length: n }, (_unused, i) => v[i * n + j])),
  };
}

/** Householder's reflections to three diagonals, then QL steps with shifts until two of them are 0. */
function eighByDiagonals(a: Matrix, n: number): Eigen {
  const m = Array.from({ length: n }, (_, i) => Float64Array.from({ length: n }, (_unused, j) => a[i * n + j]));
  const [d, e, betas] = [new Float64Array(n), new Float64Array(n), new Float64Array(n)];
  const w = new Float64Array(n);
  for (let k = 0; k < n - 2; k++) {
    const v = m[k]; // a reflection's vector takes the place of the row that it clears
    const size = lengthFrom(v, k + 1);
    e[k] = v[k + 1] > 0 ? -size : size;
    if (size === 0) continue;
    v[k + 1] -= e[k];
    betas[k] = -1 / (e[k] * v[k + 1]);
    let along = 0;
    for (let i = k + 1; i < n; i++) {
      const row = m[i];
      let sum = 0;
      for (let j = k + 1; j < n; j++) sum += row[j] * v[j];
      w[i] = betas[k] * sum;
      along += w[i] * v[i];
    }
    for (let i = k + 1; i < n; i++) w[i] -= 0.5 * betas[k] * along * v[i];
    for (let i = k + 1; i < n; i++) {
      const row = m[i];
      const vi = v[i];
      const wi = w[i];
      for (let j = k + 1; j < n; j++) row[j] -= vi * w[j] + wi * v[j];
    }
  }
  if (n > 1) e[n - 2] = m[n - 2][n - 1];
  for (let i = 0; i < n; i++) d[i] = m[i][i];
  const rows = Array.from({ length: n }, (_, i) => {
    const row = new Float64Array(n);
    row[i] = 1;
    for (let k = n - 3; k >= 0; k--) {
      if (betas[k] === 0 || i <= k) continue;
      const v = m[k];
      let sum = 0;
      for (let j = k + 1; j < n; j++) sum += row[j] * v[j];
      sum *= betas[k];
      for (let j = k + 1; j < n; j++) row[j] -= sum * v[j];
    }
    return row;
  });
  clearSides(d, e, rows);
  return { values: d, rows };
}

/** Rotates the side diagonal e away; d becomes the eigenvalues, and `rows` turns with it. */
function clearSides(d: Float64Array, e: Float64Array, rows: readonly Float64Array[]): void {
  const n = d.length;
  const noise = 1e-17 * d.reduce((most, x, i) => Math.max(most, Math.abs(x) + Math.abs(e[i])), 0);
  for (let l = 0; l < n; l++)
    for (let step = 0; ; step++) {
      let end = l;
      while (end < n - 1 && Math.abs(e[end]) > 1.2e-16 * (Math.abs(d[end]) + Math.abs(d[end + 1])) + noise) end++;
      if (end === l) break;
      if (step === SWEEPS) throw new ArgumentError(`eigh: no convergence in ${SWEEPS} steps`);
      const ahead = (d[l + 1] - d[l]) / (2 * e[l]);
      let g = d[end] - d[l] + e[l] / (ahead + (ahead < 0 ? -1 : 1) * Math.hypot(ahead, 1));
      let [sin, cos, taken] = [1, 1, 0];
      let i = end - 1;
      for (; i >= l; i--) {
        const [f, b] = [sin * e[i], cos * e[i]];
        const r = Math.sqrt(f * f + g * g);
        e[i + 1] = r;
        if (r === 0) {
          d[i + 1] -= taken;
          e[end] = 0;
          break;
        }
        sin = f / r;
        cos = g / r;
        const left = d[i + 1] - taken;
        const t = (d[i] - left) * sin + 2 * cos * b;
        taken = sin * t;
        d[i + 1] = left + taken;
        g = cos * t - b;
        rotate(rows[i], rows[i + 1], cos, sin);
      }
      if (i >= l) continue;
      d[l] -= taken;
      e[l] = g;
      e[end] = 0;
    }
}

/** The sign that makes a vector's largest component positive: one answer where two would do. */
function signOf(at: (i: number) => number, n: number): number {
  let top = 0;
  for (let i = 1; i < n; i++) if (Math.abs(at(i)) > Math.abs(at(top)) * (1 + 1e-9)) top = i;
  return n > 0 && at(top) < 0 ? -1 : 1;
}

/** U (m x n), descending S (n) and V (n x n) of a tall A = U diag(S) V^T, by one-sided rotations (Hestenes). */
export function svd(a: Matrix, m: number, n: number): { u: Matrix; s: number[]; v: Matrix } {
  if (a.some((x) => !Number.isFinite(x))) throw new ArgumentError('svd: the matrix holds NaN or infinities');
  const most = a.reduce((top, x) => Math.max(top, Math.abs(x)), 0);
  const scale = most > 0 ? 2 ** Math.floor(Math.log2(most)) : 1; // so that no square overflows
  const { w, v } = begun(columnsOf(a, m, n, scale));
  // Columns of rounding alone, beside the whole matrix, have no direction to make orthogonal.
  const noise = w.reduce((sum, column) => sum + dot(column, column), 0) * 1e-30;
  for (let sweep = 0, turned = true; turned; sweep++) {
    if (sweep === SWEEPS) throw new ArgumentError(`svd: no convergence in ${SWEEPS} sweeps`);
    turned = false;
    const squares = w.map((column) => dot(column, column));
    for (let p = 0; p < n - 1; p++)
      for (let q = p + 1; q < n; q++) {
        const [pp, qq, pq] = [squares[p], squares[q], dot(w[p], w[q])];
        if (Math.abs(pq) <= 1e-15 * Math.sqrt(pp) * Math.sqrt(qq) || Math.min(pp, qq) <= noise) continue;
        turned = true;
        const theta = (qq - pp) / (2 * pq);
        const t = Math.sign(theta || 1) / (Math.abs(theta) + Math.sqrt(theta * theta + 1));
        const c = 1 / Math.sqrt(t * t + 1);
        rotate(w[p], w[q], c, t * c);
        rotate(v[p], v[q], c, t * c);
        squares[p] = dot(w[p], w[p]);
        squares[q] = dot(w[q], w[q]);
      }
  }
  const lengths = w.map((column) => Math.sqrt(dot(column, column)));
  const order = lengths.map((_, i) => i).sort((i, j) => lengths[j] - lengths[i]);
  const s = order.map((i) => lengths[i]);
  const floor = n > 0 ? s[0] * m * 1e-15 : 0;
  const columns = order.map((from) => {
    const sign = signOf((i) => v[from][i], n);
    return { v: v[from].map((x) => sign * x), u: w[from].map((x) => (sign * x) / lengths[from]) };
  });
  const us = complete(
    columns.map(({ u }, j) => (s[j] > floor ? u : undefined)),
    m,
  );
  return {
    u: fromColumns(us, m),
    s: s.map((x) => x * scale),
    v: fromColumns(
      columns.map((c) => c.v),
      n,
    ),
  };
}

/**
 * Columns of A V and of V to rotate from: V is 1 for small matrices. For larger ones the eigenvectors of A^T A come
 * close, so that a sweep or two are left, which make the result as accurate as rotations from the start.
 */
function begun(columns: Float64Array[]): { w: Float64Array[]; v: Float64Array[] } {
  const n = columns.length;
  if (n <= SMALL) {
    const unit = (j: number): Float64Array => Float64Array.from({ length: n }, (_, i) => (i === j ? 1 : 0));
    return { w: columns, v: columns.map((_, j) => unit(j)) };
  }
  const products = new Array<number>(n * n);
  for (let i = 0; i < n; i++)
    for (let j = i; j < n; j++) products[i * n + j] = products[j * n + i] = dot(columns[i], columns[j]);
  const v = [...eighByDiagonals(products, n).rows];
  const w = v.map((direction) => {
    const column = new Float64Array(columns[0].length);
    for (let j = 0; j < n; j++) addTo(column, columns[j], direction[j]);
    return column;
  });
  return { w, v };
}
function addTo(sum: Float64Array, x: Float64Array, share: number): void {
  for (let i = 0; i < sum.length; i++) sum[i] += share * x[i];
}

/** The pseudo-inverse (n x m); singular values up to `cut` of the largest count as 0. */
export function pinv(a: Matrix, m: number, n: number, cut: number): Matrix {
  const wide = n > m;
  const given = wide ? Array.from({ length: m * n }, (_, k) => a[(k % m) * n + Math.floor(k / m)]) : a;
  const [rows, k] = wide ? [n, m] : [m, n];
  const { u, s, v } = svd(given, rows, k);
  const out = new Array<number>(k * rows).fill(0); // V diag(1 / S) U^T
  for (let j = 0; j < k; j++) {
    if (!(s[j] > cut * s[0])) continue;
    for (let i = 0; i < k; i++) {
      const share = v[i * k + j] / s[j];
      for (let l = 0; l < rows; l++) out[i * rows + l] += share * u[l * k + j];
    }
  }
  return wide ? Array.from({ length: n * m }, (_, at) => out[(at % m) * n + Math.floor(at / m)]) : out;
}

function dot(a: Float64Array, b: Float64Array): number {
  let sum = 0;
  for (let i = 0; i < a.length; i++) sum += a[i] * b[i];
  return sum;
}
function rotate(a: Float64Array, b: Float64Array, c: number, s: number): void {
  for (let i = 0; i < a.length; i++) {
    const x = a[i];
    const y = b[i];
    a[i] = c * x - s * y;
    b[i] = s * x + c * y;
  }
}

/** Columns that belong to no singular value become any that are orthogonal to the others. */
function complete(columns: readonly (Float64Array | undefined)[], m: number): Float64Array[] {
  const known = columns.filter((c) => c !== undefined);
  let next = 0;
  return columns.map((given) => {
    if (given) return given;
    for (; ; next++) {
      const column = new Float64Array(m);
      column[next % m] = 1;
      for (let round = 0; round < 2; round++)
        for (const other of known) {
          const share = dot(column, other);
          for (let i = 0; i < m; i++) column[i] -= share * other[i];
        }
      const length = Math.sqrt(dot(column, column));
      if (length < 0.5 / Math.sqrt(m)) continue;
      known.push(column.map((x) => x / length));
      return known[known.length - 1];
    }
  });
}

// Factorizations of one small or middling matrix in double precision on the host: plain loops over row-major numbers.
import { ArgumentError } from '../base/errors.js';

export type Matrix = number[];

/** L and U in one matrix, with the order of rows and the sign of that order. Pivots are the largest of their column. */
export function lu(a: Matrix, n: number): { lu: Matrix; order: number[]; sign: number } {
  const m = a.slice();
  const order = Array.from({ length: n }, (_, i) => i);
  let sign = 1;
  for (let k = 0; k < n; k++) {
    let top = k;
    for (let i = k + 1; i < n; i++) if (Math.abs(m[i * n + k]) > Math.abs(m[top * n + k])) top = i;
    if (top !== k) {
      for (let j = 0; j < n; j++) [m[k * n + j], m[top * n + j]] = [m[top * n + j], m[k * n + j]];
      [order[k], order[top]] = [order[top], order[k]];
      sign = -sign;
    }
    const pivot = m[k * n + k];
    if (pivot === 0) continue;
    for (let i = k + 1; i < n; i++) {
      const f = (m[i * n + k] /= pivot);
      if (f !== 0) for (let j = k + 1; j < n; j++) m[i * n + j] -= f * m[k * n + j];
    }
  }
  return { lu: m, order, sign };
}

/** X of A X = B, B having k columns. */
export function solve(op: string, a: Matrix, b: Matrix, n: number, k: number): Matrix {
  const { lu: m, order } = lu(a, n);
  for (let i = 0; i < n; i++)
    if (m[i * n + i] === 0) throw new ArgumentError(`${op}: the matrix is singular: pivot ${i + 1} of ${n} is 0`);
  const x = new Array<number>(n * k);
  for (let c = 0; c < k; c++) {
    for (let i = 0; i < n; i++) {
      let sum = b[order[i] * k + c];
      for (let j = 0; j < i; j++) sum -= m[i * n + j] * x[j * k + c];
      x[i * k + c] = sum;
    }
    for (let i = n - 1; i >= 0; i--) {
      let sum = x[i * k + c];
      for (let j = i + 1; j < n; j++) sum -= m[i * n + j] * x[j * k + c];
      x[i * k + c] = sum / m[i * n + i];
    }
  }
  return x;
}

/** The lower triangular L with L L^T = A. */
export function cholesky(a: Matrix, n: number): Matrix {
  const l = new Array<number>(n * n).fill(0);
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
  return l;
}

/** Q (m x n) and R (n x n) of a tall A by Householder's reflections, with LAPACK's signs. */
export function qr(a: Matrix, m: number, n: number): { q: Matrix; r: Matrix } {
  const w = a.slice();
  const tau = new Array<number>(n).fill(0);
  for (let k = 0; k < Math.min(n, m - 1); k++) {
    let below = 0;
    for (let i = k + 1; i < m; i++) below = Math.hypot(below, w[i * n + k]);
    if (below === 0) continue;
    const alpha = w[k * n + k];
    const beta = alpha > 0 || Object.is(alpha, 0) ? -Math.hypot(alpha, below) : Math.hypot(alpha, below);
    tau[k] = (beta - alpha) / beta;
    for (let i = k + 1; i < m; i++) w[i * n + k] /= alpha - beta;
    w[k * n + k] = beta;
    for (let j = k + 1; j < n; j++) {
      let dot = w[k * n + j];
      for (let i = k + 1; i < m; i++) dot += w[i * n + k] * w[i * n + j];
      dot *= tau[k];
      w[k * n + j] -= dot;
      for (let i = k + 1; i < m; i++) w[i * n + j] -= dot * w[i * n + k];
    }
  }
  const q = new Array<number>(m * n).fill(0);
  for (let k = 0; k < n; k++) q[k * n + k] = 1;
  for (let k = n - 1; k >= 0; k--) {
    if (tau[k] === 0) continue;
    for (let j = k; j < n; j++) {
      let dot = q[k * n + j];
      for (let i = k + 1; i < m; i++) dot += w[i * n + k] * q[i * n + j];
      dot *= tau[k];
      q[k * n + j] -= dot;
      for (let i = k + 1; i < m; i++) q[i * n + j] -= dot * w[i * n + k];
    }
  }
  const r = new Array<number>(n * n).fill(0);
  for (let i = 0; i < n; i++) for (let j = i; j < n; j++) r[i * n + j] = w[i * n + j];
  return { q, r };
}

const SWEEPS = 60;

/** Eigenvalues in ascending order and eigenvectors (columns) of a symmetric matrix, by Jacobi's rotations. */
export function eigh(a: Matrix, n: number): { values: number[]; vectors: Matrix } {
  const m = Float64Array.from(a);
  const v = new Float64Array(n * n);
  for (let i = 0; i < n; i++) v[i * n + i] = 1;
  if (m.some((x) => !Number.isFinite(x))) throw new ArgumentError('eigh: the matrix holds NaN or infinities');
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
  const order = Array.from({ length: n }, (_, i) => i).sort((i, j) => m[i * n + i] - m[j * n + j]);
  const vectors = new Array<number>(n * n);
  order.forEach((from, to) => {
    const sign = signOf((i) => v[i * n + from], n);
    for (let i = 0; i < n; i++) vectors[i * n + to] = sign * v[i * n + from];
  });
  return { values: order.map((i) => m[i * n + i]), vectors };
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
  // Columns lie one after another here, since rotations go along them.
  const w = Array.from({ length: n }, (_, j) => Float64Array.from({ length: m }, (_, i) => a[i * n + j]));
  const v = Array.from({ length: n }, (_, j) => Float64Array.from({ length: n }, (_, i) => (i === j ? 1 : 0)));
  // Columns of rounding alone, beside the whole matrix, have no direction to make orthogonal.
  const noise = w.reduce((sum, column) => sum + dot(column, column), 0) * 1e-30;
  for (let sweep = 0, turned = true; turned; sweep++) {
    if (sweep === SWEEPS) throw new ArgumentError(`svd: no convergence in ${SWEEPS} sweeps`);
    turned = false;
    for (let p = 0; p < n - 1; p++)
      for (let q = p + 1; q < n; q++) {
        const [pp, qq, pq] = [dot(w[p], w[p]), dot(w[q], w[q]), dot(w[p], w[q])];
        if (Math.abs(pq) <= 1e-15 * Math.sqrt(pp) * Math.sqrt(qq) || Math.min(pp, qq) <= noise) continue;
        turned = true;
        const theta = (qq - pp) / (2 * pq);
        const t = Math.sign(theta || 1) / (Math.abs(theta) + Math.sqrt(theta * theta + 1));
        const c = 1 / Math.sqrt(t * t + 1);
        rotate(w[p], w[q], c, t * c);
        rotate(v[p], v[q], c, t * c);
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
  const flat = (list: readonly Float64Array[], rows: number): Matrix =>
    Array.from({ length: rows * n }, (_, k) => list[k % n][Math.floor(k / n)]);
  return {
    u: flat(us, m),
    s,
    v: flat(
      columns.map((c) => c.v),
      n,
    ),
  };
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
    const [x, y] = [a[i], b[i]];
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

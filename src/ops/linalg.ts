// Linear algebra: ops made of the factorizations that run on the host (linalg-factors.ts).
import { REALS } from '../base/dtype.js';
import { ArgumentError, ShapeError } from '../base/errors.js';
import { broadcastShapes, formatShape } from '../base/shape.js';
import type { Tensor } from '../tensor/tensor.js';
import { alike, composite, requireDType, requireSameDType } from './kernel-row.js';
import {
  CHOLESKY,
  DET,
  DOUBLES,
  EIGH,
  eye,
  FEW,
  inverted,
  lead,
  lost,
  LU,
  orderMatrix,
  PINV,
  QR,
  requireMatrix,
  requireSquare,
  ROW_ORDER,
  SLOGDET,
  solved,
  SVD,
  T,
  tall,
} from './linalg-factors.js';
import { type InputSpec, rows } from './op.js';

const s = (...shape: number[]): InputSpec => ({ shape });
/** What these rows have in common. */
const row = alike({
  dtypes: REALS,
  without: 'it takes floats of 16 bits and more; cast first',
  ulp: { f32: 16, f64: 256, f16: 2, bf16: 2 },
  loose: 'engines factor in orders of their own, and what rounding makes of that depends on the matrix',
  candle: { none: 'Candle has none of it' },
});

/** 16-bit floats are widened, and results rounded back. */
function widened<R extends readonly Tensor[]>(op: string, x: Tensor, f: (x: Tensor) => R): R {
  requireDType(op, x, REALS, 'it takes floats of 16 bits and more; cast first');
  if (x.dtype === 'f32' || x.dtype === 'f64') return f(x);
  return f(x.cast('f32')).map((t) => t.cast(x.dtype)) as unknown as R;
}
const LIBRARY = 'cuSOLVER or hipSOLVER where there is one; else on the host';
const LARGE =
  'in double precision; on GPUs by kernels to 1024 rows, f32 of more than 16 rows in f32; beyond by ' + LIBRARY;
const SPECTRAL = `in double precision; on GPUs by kernels to 64 columns, from 128 on in the type itself by ${LIBRARY}`;
const symmetric = (x: Tensor): Tensor => x.add(T(x)).affine(0.5, 0);

/** A and B with one batch shape, B as matrices. */
export function solveOf(op: string, a: Tensor, b: Tensor, solve: typeof solved = solved): Tensor {
  requireSquare(op, a);
  requireSameDType(op, [a, b]);
  const n = tall(a.shape).n;
  const vector = b.rank === 1 || (b.rank === a.rank - 1 && formatShape(b.shape) === formatShape(a.shape.slice(0, -1)));
  const right = vector ? b.unsqueeze(-1) : b;
  if (tall(right.shape).m !== n)
    throw new ShapeError(`${op}: ${formatShape(b.shape)} has not the ${n} rows of ${formatShape(a.shape)}`);
  const batch = broadcastShapes(op, lead(a.shape), lead(right.shape));
  const [x] = widened(op, a, (w) => [
    solve(w.broadcastTo([...batch, n, n]), right.cast(w.dtype).broadcastTo([...batch, ...right.shape.slice(-2)])),
  ]);
  return vector ? x.squeeze(-1) : x;
}

function qrOf(op: string, x: Tensor): readonly [Tensor, Tensor] {
  requireMatrix(op, x);
  return widened(op, x, (w): readonly [Tensor, Tensor] => {
    const { m, n } = tall(w.shape);
    const square = m >= n ? w : w.narrow(-1, 0, m);
    const [q, raw] = square.onHost(QR, [square]);
    const r = raw.triu();
    if (m >= n) return [q, r];
    return [q, r.cat([T(q).matmul(w.narrow(-1, m, n - m))], r.rank - 1)];
  });
}

/** Matrices of samples: any, symmetric and positive definite, with more rows than columns. */
const square = (...values: number[]): InputSpec => ({ shape: [3, 3], values });
export const SPD = square(4, 1, 0, 1, 5, 2, 0, 2, 6);
export const PLAIN = square(2, 1, 3, 0, 4, 1, 5, 2, 1);
export const TALL: InputSpec = { shape: [4, 3], values: [2, 1, 3, 0, 4, 1, 5, 2, 1, 1, 7, 0] };

export const linalgOps = rows({
  solve: composite({
    ...row(
      `X of A X = B for square A; B a vector or columns; ${LARGE}`,
      [
        { inputs: [PLAIN, s(3, 2)], args: [{ input: 1 }] },
        { inputs: [PLAIN, s(3)], args: [{ input: 1 }] },
        { inputs: [PLAIN, s(2, 3, 1)], args: [{ input: 1 }] },
      ],
      {
        errors: [
          {
            inputs: [square(1, 2, 3, 2, 4, 6, 1, 0, 1), s(3)],
            args: [{ input: 1 }],
            code: 'E_ARGUMENT',
            says: /solve: the matrix is singular/,
          },
          { inputs: [s(2, 3), s(3)], args: [{ input: 1 }], code: 'E_SHAPE', says: /solve: takes square matrices/ },
        ],
      },
    ),
    compose: (a: Tensor, b: Tensor): Tensor => solveOf('solve', a, b),
  }),
  inv: composite({
    ...row(`the inverse of square matrices; ${LARGE}`, [{ inputs: [PLAIN], args: [] }]),
    compose: (x: Tensor): Tensor => {
      requireSquare('inv', x);
      return widened('inv', x, (w) => [inverted(w)])[0];
    },
  }),
  det: composite({
    ...row(`determinant; no gradient where it is 0; ${DOUBLES}`, [{ inputs: [PLAIN], args: [] }]),
    compose: (x: Tensor): Tensor => {
      requireSquare('det', x);
      return widened('det', x, (w) => [w.onHost(DET, [w])[0]])[0];
    },
  }),
  logdet: composite({
    ...row(`ln of the determinant, NaN where it is negative; ${DOUBLES}`, [{ inputs: [SPD], args: [] }]),
    compose: (x: Tensor): Tensor => {
      requireSquare('logdet', x);
      const [sign, log] = x.slogdet();
      return sign.lt(0).where(NaN, log);
    },
  }),
  slogdet: composite({
    ...row(`[sign, ln |determinant|]; ${DOUBLES}`, [{ inputs: [PLAIN], args: [] }]),
    compose: (x: Tensor): readonly [sign: Tensor, logabsdet: Tensor] => {
      requireSquare('slogdet', x);
      return widened('slogdet', x, (w): readonly [Tensor, Tensor] => {
        const [sign, log] = w.onHost(SLOGDET, [w]);
        return [sign.detach(), log];
      });
    },
  }),
  lu: composite({
    ...row(
      `[P, L, U]: rows put in order (a matrix of ones and zeros), a lower triangle with ones, an upper one; ${DOUBLES}`,
      [
        { inputs: [PLAIN], args: [] },
        { inputs: [TALL], args: [] },
        { inputs: [{ shape: [2, 4], values: [2, 1, 3, 0, 4, 1, 5, 2] }], args: [] },
      ],
    ),
    compose: (x: Tensor): readonly [p: Tensor, l: Tensor, u: Tensor] => {
      requireMatrix('lu', x);
      return widened('lu', x, (w): readonly [Tensor, Tensor, Tensor] => {
        const { m, n } = tall(w.shape);
        const k = Math.min(m, n);
        const [both, , order] = w.onHost(LU, [w]);
        const ones = w.newFull([m, k], 1).tril().triu();
        const lower = both.narrow(-1, 0, k).tril(-1).add(ones);
        return [T(orderMatrix(order.detach())), lower, both.narrow(-2, 0, k).triu()];
      });
    },
  }),
  luFactor: composite({
    ...row(
      `[L and U in one matrix, the row (counted from 1, i32) that each row was exchanged with, in turn]; ${DOUBLES}`,
      [
        { inputs: [PLAIN], args: [] },
        { inputs: [TALL], args: [] },
      ],
    ),
    compose: (x: Tensor): readonly [lu: Tensor, pivots: Tensor] => {
      requireMatrix('luFactor', x);
      const wide = widened('luFactor', x, (w): readonly [Tensor, Tensor] => {
        const [both, swaps] = w.onHost(LU, [w]);
        return [both, swaps.detach()];
      });
      return [wide[0], wide[1].cast('i32')];
    },
  }),
  luSolve: composite({
    ...row(
      `X of A X = B, given what luFactor answers of A; B a vector or columns; ${DOUBLES}`,
      [
        {
          inputs: [PLAIN, { shape: [3], dtype: 'i32', values: [3, 2, 3] }, s(3, 2)],
          args: [{ input: 1 }, { input: 2 }],
        },
        { inputs: [PLAIN, { shape: [3], dtype: 'i32', values: [1, 3, 3] }, s(3)], args: [{ input: 1 }, { input: 2 }] },
      ],
      {
        errors: [
          {
            inputs: [PLAIN, { shape: [3], dtype: 'i32', values: [3, 1, 3] }, s(3)],
            args: [{ input: 1 }, { input: 2 }],
            code: 'E_ARGUMENT',
            says: /pivot 2 is none of the rows 2 to 3/,
          },
        ],
      },
    ),
    compose: (x: Tensor, pivots: Tensor, b: Tensor): Tensor => {
      requireSquare('luSolve', x);
      requireSameDType('luSolve', [x, b]);
      if (formatShape(pivots.shape) !== formatShape(x.shape.slice(0, -1)))
        throw new ShapeError(
          `luSolve: the pivots of ${formatShape(x.shape)} are ${formatShape(x.shape.slice(0, -1))}, ` +
            `not ${formatShape(pivots.shape)}`,
        );
      const vector = b.rank === 1;
      const right = vector ? b.unsqueeze(-1) : b;
      const found = widened('luSolve', x, (w) => {
        const [order] = pivots.onHost(ROW_ORDER, [pivots.cast(w.dtype).unsqueeze(-2)]);
        const ordered = orderMatrix(order).matmul(right.cast(w.dtype));
        return [w.solveTriangular(w.solveTriangular(ordered, { unit: true }), { upper: true })];
      })[0];
      return vector ? found.squeeze(-1) : found;
    },
  }),
  cholesky: composite({
    ...row(
      `lower triangular L with L L^T = (A + A^T) / 2, which must be positive definite; ${LARGE}`,
      [{ inputs: [SPD], args: [] }],
      {
        errors: [
          {
            inputs: [square(1, 2, 0, 2, 1, 0, 0, 0, 1)],
            args: [],
            code: 'E_ARGUMENT',
            says: /cholesky: the matrix is not positive definite: its leading minor of order 2/,
          },
        ],
      },
    ),
    compose: (x: Tensor): Tensor => {
      requireSquare('cholesky', x);
      return widened('cholesky', x, (w) => [w.onHost(CHOLESKY, [symmetric(w)])[0].tril()])[0];
    },
  }),
  qr: composite({
    ...row(`[Q, R]: orthonormal columns times an upper triangle; ${SPECTRAL}`, [
      { inputs: [TALL], args: [] },
      { inputs: [PLAIN], args: [] },
      { inputs: [{ shape: [2, 4], values: [2, 1, 3, 0, 4, 1, 5, 2] }], args: [] },
    ]),
    compose: (x: Tensor): readonly [q: Tensor, r: Tensor] => qrOf('qr', x),
  }),
  eigh: composite({
    ...row(
      '[ascending eigenvalues, eigenvectors as columns, their largest component positive] of (A + A^T) / 2; ' +
        SPECTRAL,
      [{ inputs: [SPD], args: [] }],
    ),
    compose: (x: Tensor): readonly [values: Tensor, vectors: Tensor] => {
      requireSquare('eigh', x);
      return widened('eigh', x, (w) => w.onHost(EIGH, [symmetric(w)]) as unknown as readonly [Tensor, Tensor]);
    },
  }),
  svd: composite({
    ...row(`[U, S, V^T] with U diag(S) V^T = A and descending S, reduced; ${SPECTRAL}`, [
      { inputs: [TALL], args: [] },
      { inputs: [{ shape: [2, 4], values: [2, 1, 3, 0, 4, 1, 5, 2] }], args: [] },
    ]),
    compose: (x: Tensor): readonly [u: Tensor, s: Tensor, vt: Tensor] => {
      requireMatrix('svd', x);
      return widened('svd', x, (w): readonly [Tensor, Tensor, Tensor] => {
        const { m, n } = tall(w.shape);
        const [u, values, v] = w.onHost(SVD, [m >= n ? w : T(w)]);
        return m >= n ? [u, values, T(v)] : [v, values, T(u)];
      });
    },
  }),
  pinv: composite({
    ...row(
      `the pseudo-inverse (Moore-Penrose); singular values below max(m, n) eps of the largest count as 0; ${FEW}`,
      [
        { inputs: [TALL], args: [] },
        { inputs: [{ shape: [2, 4], values: [2, 1, 3, 0, 4, 1, 5, 2] }], args: [] },
        // Without full rank a step in any direction may add to the rank, and there is no derivative to check.
        { inputs: [{ ...square(1, 2, 3, 2, 4, 6, 1, 0, 1), dtype: 'f64' }], args: [] },
      ],
      { ulp: { f32: 64, f64: 1024, f16: 4, bf16: 4 } },
    ),
    compose: (x: Tensor): Tensor => {
      requireMatrix('pinv', x);
      return widened('pinv', x, (w) => w.onHost(PINV, [w]))[0];
    },
  }),
  matrixRank: composite({
    ...row(
      `how many singular values are above max(m, n) eps of the largest (i64); ${FEW}`,
      [
        { inputs: [TALL], args: [] },
        { inputs: [square(1, 2, 3, 2, 4, 6, 1, 0, 1)], args: [] },
      ],
      { ulp: 0, noGrad: 'the result is a count' },
    ),
    compose: (x: Tensor): Tensor => {
      requireMatrix('matrixRank', x);
      const { m, n } = tall(x.shape);
      if (m === 0 || n === 0) return x.newZeros(lead(x.shape), 'i64');
      const [, values] = x.detach().svd();
      const most = values.narrow(-1, 0, 1);
      return values.gt(most.affine(lost(x.dtype, m, n), 0)).sum([-1], false);
    },
  }),
  lstsq: composite({
    ...row(
      `X with the least |A X - B|, of several the shortest; by QR, or the pseudo-inverse where the rank is not ` +
        `full; ${FEW}`,
      [
        { inputs: [TALL, s(4, 2)], args: [{ input: 1 }] },
        { inputs: [{ shape: [2, 4], values: [2, 1, 3, 0, 4, 1, 5, 2] }, s(2, 1)], args: [{ input: 1 }] },
      ],
      { ulp: { f32: 256, f64: 1024, f16: 4, bf16: 4 } },
    ),
    compose: (a: Tensor, b: Tensor): Tensor => {
      requireMatrix('lstsq', a);
      requireSameDType('lstsq', [a, b]);
      const { m, n } = tall(a.shape);
      if (b.rank < 2 || tall(b.shape).m !== m)
        throw new ShapeError(`lstsq: ${formatShape(b.shape)} has not the ${m} rows of ${formatShape(a.shape)}`);
      return widened('lstsq', a, (w) => {
        const right = b.cast(w.dtype);
        const [q, r] = qrOf('lstsq', m >= n ? w : T(w));
        const ends = r.detach().diagonal().abs();
        const short = ends.le(ends.max([-1], true).affine(lost(w.dtype, m, n), 0));
        if (ends.size > 0 && short.any().item() === 1) return [w.onHost(PINV, [w])[0].matmul(right)];
        if (m >= n) return [solveOf('lstsq', r, T(q).matmul(right))];
        return [q.matmul(solveOf('lstsq', T(r), right))];
      })[0];
    },
  }),
  matrixExp: composite({
    ...row('e^A of square matrices: a series of A / 2^k, squared k times, in double precision', [
      { inputs: [{ shape: [3, 3], domain: [-1, 1] }], args: [] },
      { inputs: [{ shape: [2, 2, 2], domain: [-3, 3] }], args: [] },
    ]),
    compose: (x: Tensor): Tensor => {
      requireSquare('matrixExp', x);
      requireDType('matrixExp', x, REALS, 'it takes floats of 16 bits and more; cast first');
      if (x.size === 0) return x;
      const a = x.cast('f64');
      const size = a.detach().abs().sum([-1], false).max().item();
      if (!Number.isFinite(size)) throw new ArgumentError('matrixExp: the matrix holds NaN or infinities');
      const halvings = Math.max(0, Math.ceil(Math.log2(size / 0.25)));
      const small = a.affine(2 ** -halvings, 0);
      const one = eye(a, tall(a.shape).n).broadcastTo(a.shape);
      // Horner's rule: 1 + A (1 + A/2 (1 + A/3 ...)).
      let sum = one.add(small.affine(1 / 13, 0));
      for (let k = 12; k >= 1; k--) sum = one.add(small.affine(1 / k, 0).matmul(sum));
      for (let k = 0; k < halvings; k++) sum = sum.matmul(sum);
      return sum.cast(x.dtype);
    },
  }),
});

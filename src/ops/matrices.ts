// Linear algebra made of factorizations, solutions and products: triangles, norms, conditions, products of many.
import { REALS } from '../base/dtype.js';
import { ArgumentError, ShapeError } from '../base/errors.js';
import { formatShape, normalizeDim } from '../base/shape.js';
import type { Tensor } from '../tensor/tensor.js';
import { alike, composite, requireFlag, requireOptions } from './kernel-row.js';
import { PLAIN, solveOf, SPD, TALL } from './linalg.js';
import { DOUBLES, FEW, requireMatrix, requireSquare, triangleSolved } from './linalg-factors.js';
import { type CompositeErrorSample, type CompositeSample, type InputSpec, rows } from './op.js';

/** What solveTriangular takes. */
export interface TriangularOptions {
  /** Whether the upper triangle counts; default false, the lower one. */
  readonly upper?: boolean;
  /** Whether the matrix is meant transposed; default false. */
  readonly transpose?: boolean;
  /** Whether the diagonal counts as ones, whatever stands there; default false. */
  readonly unit?: boolean;
}
/** What choleskySolve takes. */
export interface CholeskySolveOptions {
  /** Whether the factor is an upper triangle R with R^T R = A; default false: L with L L^T = A. */
  readonly upper?: boolean;
}
/** A norm of matrices. */
export type MatrixNorm = 'fro' | 'nuc' | number;

const NORMS: readonly MatrixNorm[] = ['fro', 'nuc', 1, -1, 2, -2, Infinity, -Infinity];

function requireNorm(op: string, ord: MatrixNorm): void {
  if (!NORMS.includes(ord)) throw new ArgumentError(`${op}: ${String(ord)} is no norm; known are ${NORMS.join(', ')}`);
}

/** The parts of a product in the order with the fewest multiplications. */
function inBestOrder(op: string, parts: readonly Tensor[]): Tensor {
  const n = parts.length;
  const sizes = [parts[0].shape[0], ...parts.map((t) => t.shape[1])];
  parts.forEach((t, i) => {
    if (t.shape[0] !== sizes[i])
      throw new ShapeError(`${op}: ${formatShape(parts[i - 1].shape)} and ${formatShape(t.shape)} do not multiply`);
  });
  const cost = parts.map(() => new Array<number>(n).fill(0));
  const cut = parts.map(() => new Array<number>(n).fill(0));
  for (let width = 1; width < n; width++)
    for (let i = 0; i + width < n; i++) {
      cost[i][i + width] = Infinity;
      for (let k = i; k < i + width; k++) {
        const c = cost[i][k] + cost[k + 1][i + width] + sizes[i] * sizes[k + 1] * sizes[i + width + 1];
        if (c < cost[i][i + width]) [cost[i][i + width], cut[i][i + width]] = [c, k];
      }
    }
  const product = (i: number, j: number): Tensor =>
    i === j ? parts[i] : product(i, cut[i][j]).matmul(product(cut[i][j] + 1, j));
  return product(0, n - 1);
}

const s = (...shape: number[]): InputSpec => ({ shape });
const common = alike({
  dtypes: REALS,
  without: 'it takes floats of 16 bits and more; cast first',
  ulp: { f32: 16, f64: 256, f16: 8, bf16: 8 },
  loose: 'engines factor in orders of their own, and what rounding makes of that depends on the matrix',
  domain: [0.5, 2],
  candle: { none: 'Candle has none of it' },
});
const row = (
  formula: string,
  samples: readonly CompositeSample[],
  errors: readonly CompositeErrorSample[] = [],
): ReturnType<typeof common> => common(formula, samples, { errors });

export const matrixOps = rows({
  solveTriangular: composite({
    ...row(
      `X of A X = B, of whose square A one triangle counts; B a vector or columns; ${DOUBLES}`,
      [
        { inputs: [PLAIN, s(3, 2)], args: [{ input: 1 }] },
        { inputs: [PLAIN, s(3, 2)], args: [{ input: 1 }, { upper: true, transpose: true }] },
        { inputs: [PLAIN, s(3)], args: [{ input: 1 }, { upper: true, unit: true }] },
      ],
      [{ inputs: [s(2, 3), s(3)], args: [{ input: 1 }], code: 'E_SHAPE', says: /solveTriangular: takes square/ }],
    ),
    compose: (a: Tensor, b: Tensor, options: TriangularOptions = {}): Tensor => {
      requireOptions('solveTriangular', options, ['upper', 'transpose', 'unit']);
      requireSquare('solveTriangular', a);
      const { upper = false, transpose = false, unit = false } = options;
      return solveOf('solve', a, b, (m, right) => triangleSolved(m, right, { upper, transpose, unit }));
    },
  }),
  choleskySolve: composite({
    ...row(`X of A X = B, given the factor L of A = L L^T; ${DOUBLES}`, [
      { inputs: [s(3, 2), SPD], args: [{ input: 1 }] },
      { inputs: [s(3, 2), SPD], args: [{ input: 1 }, { upper: true }] },
    ]),
    compose: (b: Tensor, factor: Tensor, options: CholeskySolveOptions = {}): Tensor => {
      requireOptions('choleskySolve', options, ['upper']);
      requireSquare('choleskySolve', factor);
      const { upper = false } = options;
      const half = factor.solveTriangular(b, { upper, transpose: upper });
      return factor.solveTriangular(half, { upper, transpose: !upper });
    },
  }),
  eigvalsh: composite({
    ...row(`ascending eigenvalues of (A + A^T) / 2; ${FEW}`, [{ inputs: [SPD], args: [] }]),
    compose: (x: Tensor): Tensor => x.eigh()[0],
  }),
  svdvals: composite({
    ...row(`descending singular values; ${FEW}`, [{ inputs: [TALL], args: [] }]),
    compose: (x: Tensor): Tensor => x.svd()[1],
  }),
  matrixNorm: composite({
    ...row(
      "norm of the last two dimensions: 'fro' (default), 'nuc', 2 and -2 of singular values, 1, -1 and ±Infinity of " +
        'sums of columns and rows',
      [
        { inputs: [TALL], args: [] },
        { inputs: [TALL], args: ['nuc'] },
        { inputs: [TALL], args: [2] },
        { inputs: [s(2, 3, 4)], args: [1, true] },
        { inputs: [s(2, 3)], args: [-Infinity] },
      ],
      [{ inputs: [s(2, 3)], args: [3], code: 'E_ARGUMENT', says: /matrixNorm: 3 is no norm/ }],
    ),
    compose: (x: Tensor, ord: MatrixNorm = 'fro', keepdim = false): Tensor => {
      requireNorm('matrixNorm', ord);
      requireFlag('matrixNorm', 'keepdim', keepdim);
      requireMatrix('matrixNorm', x);
      const shaped = (t: Tensor): Tensor => (keepdim ? t.unsqueeze(-1).unsqueeze(-1) : t);
      if (ord === 'fro') return shaped(x.flatten(-2, -1).norm(2, -1));
      if (ord === 'nuc') return shaped(x.svdvals().sum(-1));
      if (Math.abs(ord) === 2) return shaped(ord > 0 ? x.svdvals().max(-1) : x.svdvals().min(-1));
      const sums = x.abs().sum(Math.abs(ord) === 1 ? -2 : -1);
      return shaped(ord > 0 ? sums.max(-1) : sums.min(-1));
    },
  }),
  cond: composite({
    ...row(`the condition: the norm of A times that of its inverse; by singular values for 2 (default) and -2`, [
      { inputs: [TALL], args: [] },
      { inputs: [PLAIN], args: ['fro'] },
    ]),
    compose: (x: Tensor, ord: MatrixNorm = 2): Tensor => {
      requireNorm('cond', ord);
      if (ord === 2) return x.matrixNorm(2).div(x.matrixNorm(-2));
      if (ord === -2) return x.matrixNorm(-2).div(x.matrixNorm(2));
      requireSquare('cond', x);
      return x.matrixNorm(ord).mul(x.inv().matrixNorm(ord));
    },
  }),
  multiDot: composite({
    ...row(
      'the product of this and other matrices in the order with the fewest multiplications; the first and last ' +
        'may be ' +
        'vectors',
      [
        { inputs: [s(2, 5), s(5, 3), s(3, 4)], args: [[{ input: 1 }, { input: 2 }]] },
        { inputs: [s(5), s(5, 3), s(3)], args: [[{ input: 1 }, { input: 2 }]] },
      ],
      [{ inputs: [s(2, 5), s(4, 3)], args: [[{ input: 1 }]], code: 'E_SHAPE', says: /multiDot: .* do not multiply/ }],
    ),
    compose: (x: Tensor, others: readonly Tensor[]): Tensor => {
      const all = [x, ...others];
      const last = all.length - 1;
      const fits = (t: Tensor, i: number): boolean => t.rank === 2 || (t.rank === 1 && (i === 0 || i === last));
      if (last === 0 || !all.every(fits))
        throw new ShapeError(
          `multiDot: takes two matrices or more, the first and last perhaps vectors, not ` +
            all.map((t) => formatShape(t.shape)).join(', '),
        );
      const parts = all.map((t, i) => (t.rank === 2 ? t : t.unsqueeze(i === 0 ? 0 : 1)));
      const product = inBestOrder('multiDot', parts);
      const rowless = all[0].rank === 1 ? product.squeeze(0) : product;
      return all[last].rank === 1 ? rowless.squeeze(-1) : rowless;
    },
  }),
  vecdot: composite({
    ...row('products of vectors along dim (default the last); other dimensions broadcast', [
      { inputs: [s(2, 3), s(3)], args: [{ input: 1 }] },
      { inputs: [s(3, 2), s(3, 2)], args: [{ input: 1 }, 0] },
    ]),
    compose: (x: Tensor, y: Tensor, dim: number = -1): Tensor => {
      const product: Tensor = x.mul(y);
      return product.sum(normalizeDim('vecdot', dim, product.rank));
    },
  }),
});

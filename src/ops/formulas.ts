// Small formulas under PyTorch's names, made of other rows: bent lines, differences, distances, sums of logarithms.
import { isFloat } from '../base/dtype.js';
import { ArgumentError, ShapeError } from '../base/errors.js';
import { formatShape, normalizeDim, type Shape } from '../base/shape.js';
import type { Tensor } from '../tensor/tensor.js';
import { wide } from './composites.js';
import { formulaRow } from './formula-row.js';
import { composite, requireFlag, requireNumbers, requireWhole } from './kernel-row.js';
import { type CompositeSample, rows, ulps } from './op.js';

const on = (shape: Shape, ...args: unknown[]): CompositeSample => ({ inputs: [{ shape }], args });

/** Differences of neighbours at the ends, of both neighbours within. */
function slopes(x: Tensor, d: number, spacing: number): Tensor {
  const n = x.shape[d];
  const apart = (from: number, to: number, count: number): Tensor =>
    x
      .narrow(d, to, count)
      .sub(x.narrow(d, from, count))
      .affine(1 / ((to - from) * spacing), 0);
  const ends = [apart(0, 1, 1), ...(n > 2 ? [apart(0, 2, n - 2)] : []), apart(n - 2, n - 1, 1)];
  return ends[0].cat(ends.slice(1), d);
}

export const formulaOps = rows({
  hardtanh: composite({
    ...formulaRow('x between min (-1) and max (1)', [on([2, 3]), on([2, 3], -0.5, 0.25)], { ulp: 0 }),
    compose: (x: Tensor, min: number = -1, max: number = 1): Tensor => x.clamp(min, max),
  }),
  logSigmoid: composite({
    ...formulaRow('ln(1 / (1 + e^-x)), without overflow', [on([2, 3])]),
    compose: (x: Tensor): Tensor => x.neg().softplus().neg(),
  }),
  glu: composite({
    ...formulaRow('a * sigmoid(b) for the halves a and b of dim', [on([2, 4]), on([4, 3], 0)], {
      errors: [{ ...on([2, 3]), code: 'E_SHAPE', says: /glu: dimension 1 of \[2, 3\] is odd/ }],
    }),
    compose: (x: Tensor, dim: number = -1): Tensor => {
      const d = normalizeDim('glu', dim, x.rank);
      if (x.shape[d] % 2 !== 0) throw new ShapeError(`glu: dimension ${d} of ${formatShape(x.shape)} is odd`);
      const half = x.shape[d] / 2;
      return wide(x, (w) => w.narrow(d, 0, half).mul(w.narrow(d, half, half).sigmoid()));
    },
  }),
  gradient: composite({
    ...formulaRow(
      'slopes along dim: half the difference of both neighbours, at the ends the difference to the only one',
      [on([5]), on([4, 3], 0.5, 0)],
      { ulp: ulps(1) },
    ),
    compose: (x: Tensor, spacing: number = 1, dim: number = -1): Tensor => {
      requireNumbers('gradient', { spacing });
      const d = normalizeDim('gradient', dim, x.rank);
      if (x.shape[d] < 2)
        throw new ShapeError(`gradient: dimension ${d} of ${formatShape(x.shape)} has fewer than two elements`);
      return wide(x, (w) => slopes(w, d, spacing));
    },
  }),
  pdist: composite({
    ...formulaRow('the distances of every two rows, by the norm p', [on([4, 3]), on([3, 2], 1)]),
    compose: (x: Tensor, p: number = 2): Tensor => {
      if (x.rank !== 2) throw new ShapeError(`pdist: ${formatShape(x.shape)} is no list of rows`);
      const pairs = x.newArange(x.shape[0], 'i64').combinations(2);
      const side = (k: number): Tensor => x.indexSelect(0, pairs.narrow(1, k, 1).reshape([-1]));
      const [a, b] = [side(0), side(1)];
      return wide(a, (w) => w.sub(b.cast(w.dtype)).norm(p, -1));
    },
  }),
  renorm: composite({
    ...formulaRow('slices of dim scaled down to the norm `most` (by p) where theirs is larger', [on([3, 4], 2, 0, 1)]),
    compose: (x: Tensor, p: number, dim: number, most: number): Tensor => {
      const d = normalizeDim('renorm', dim, x.rank);
      const others = x.shape.map((_, i) => i).filter((i) => i !== d);
      return wide(x, (w) => {
        const size = w.norm(p, others, true);
        return w.mul(size.gt(most).where(size.affine(1, 1e-7).recip().affine(most, 0), size.onesLike()));
      });
    },
  }),
  xlog1py: composite({
    ...formulaRow('x ln(1 + y), 0 where x is 0 and y is no NaN', [
      { inputs: [{ shape: [2, 3] }, { shape: [3], domain: [-0.5, 2] }], args: [{ input: 1 }] },
    ]),
    compose: (x: Tensor, y: Tensor): Tensor =>
      wide(x, (w) => {
        const other = y.cast(w.dtype);
        const none = w.eq(0).logicalAnd(other.le(-1).logicalOr(other.eq(Infinity)));
        return w.mul(none.where(0, other).log1p()).add(0); // -0 becomes 0
      }),
  }),
  nanmedian: composite({
    ...formulaRow(
      '[values, indices] of the middle element along dim, or of all, NaN left out',
      [
        { inputs: [{ shape: [3, 5], distinct: true }], args: [1] },
        { inputs: [{ shape: [2, 4], distinct: true }], args: [] },
      ],
      { ulp: ulps(1) },
    ),
    compose: (x: Tensor, dim?: number, keepdim: boolean = false): readonly [values: Tensor, indices: Tensor] => {
      requireFlag('nanmedian', 'keepdim', keepdim);
      if (!isFloat(x.dtype)) return x.median(dim, keepdim);
      const flat = dim === undefined ? x.reshape([x.size]) : x;
      const d = dim === undefined ? 0 : normalizeDim('nanmedian', dim, x.rank);
      if (flat.shape[d] === 0) throw new ShapeError(`nanmedian: ${formatShape(x.shape)} has nothing along ${d}`);
      const holes = flat.detach().isNan();
      const left = holes.logicalNot().sum([d], true);
      const order = holes.where(Infinity, flat.detach()).argsort(d);
      const middle = left.affine(1, -1).clamp(0, Number.MAX_SAFE_INTEGER).floorDivide(2);
      const indices = order.gather(d, middle);
      const values = flat.gather(d, indices);
      return keepdim ? [values, indices] : [values.squeeze(d), indices.squeeze(d)];
    },
  }),
  unravelIndex: composite({
    ...formulaRow(
      'the numbers along each dimension of a shape that row-by-row numbers stand for, along a new last dimension',
      [{ inputs: [{ shape: [2, 3], ints: [0, 23] }], args: [[2, 3, 4]] }],
      { dtypes: ['i64'], ulp: 0, noGrad: 'whole numbers have none', without: 'it takes i64; cast first' },
    ),
    compose: (x: Tensor, shape: Shape): Tensor => {
      requireWhole('unravelIndex', 'shape', shape, 1);
      if (shape.length === 0) throw new ArgumentError('unravelIndex: a shape without dimensions has no places');
      const steps = shape.map((_, i) => shape.slice(i + 1).reduce((a, b) => a * b, 1));
      const [first, ...rest] = shape.map((n, i) => x.floorDivide(steps[i]).remainder(n));
      return first.stack(rest, -1);
    },
  }),
});

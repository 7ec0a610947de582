// Names that PyTorch's users reach for and that are a line or two of other rows.
import { type DType, INTS, REALS } from '../base/dtype.js';
import { ArgumentError, ShapeError } from '../base/errors.js';
import { broadcastShapes, formatShape, normalizeDim } from '../base/shape.js';
import type { Tensor } from '../tensor/tensor.js';
import { wide } from './composites.js';
import { formulaRow } from './formula-row.js';
import { composite, requireFlag, requireNumbers, requireOptions, requireWhole } from './kernel-row.js';
import { exact, layerNames, on, sizeAlong, together, two } from './layer-names.js';
import { type CompositeSample, rows, ulps } from './op.js';

/** Factors of addmm. */
export interface AddmmOptions {
  /** Of the tensor that is added to; default 1. With 0 its values do not count, NaN included. */
  readonly beta?: number;
  /** Of the product; default 1. */
  readonly alpha?: number;
}

const three = (shapes: readonly (readonly number[])[], ...args: unknown[]): CompositeSample => ({
  inputs: shapes.map((shape) => ({ shape })),
  args: [{ input: 1 }, { input: 2 }, ...args],
});
const truths = { noGrad: 'the result is a truth value' } as const;
const signbitOf = (x: Tensor): Tensor => x.lt(0).logicalOr(x.eq(0).logicalAnd(x.recip().lt(0)));
function trapezoidAreas(x: Tensor, dx: number, d: number): Tensor {
  const n = Math.max(x.shape[d] - 1, 0);
  return x
    .narrow(d, 0, n)
    .add(x.narrow(d, Math.min(1, x.shape[d]), n))
    .affine(dx / 2, 0);
}
function covariance(x: Tensor, correction: number): Tensor {
  if (x.rank > 2)
    throw new ShapeError(
      `cov: ${formatShape(x.shape)} has more than two dimensions: a variable a row, an observation a column`,
    );
  const m = x.rank === 2 ? x : x.reshape([1, -1]);
  const centred = m.sub(m.mean(1, true));
  const c = centred.matmul(centred.t()).affine(1 / Math.max(m.shape[1] - correction, 0), 0);
  return x.rank === 2 ? c : c.reshape([]);
}

export const shorthandOps = rows({
  addmm: composite({
    ...formulaRow('beta x + alpha a @ b; batches and vectors as in matmul', [
      three(
        [
          [2, 4],
          [2, 3],
          [3, 4],
        ],
        { beta: 0.5, alpha: 2 },
      ),
      three([[4], [2, 2, 3], [2, 3, 4]]),
    ]),
    compose: (x: Tensor, a: Tensor, b: Tensor, options: AddmmOptions = {}): Tensor => {
      requireOptions('addmm', options, ['beta', 'alpha']);
      const { beta = 1, alpha = 1 } = options;
      return together([x, a, b], (base, l, r) => {
        const product = l.matmul(r).affine(alpha, 0);
        return beta === 0 ? product : product.add(base.affine(beta, 0));
      });
    },
  }),
  addcmul: composite({
    ...formulaRow('x + value a b', [three([[2, 3], [3], [2, 1]], 0.5)], { ulp: ulps(1) }),
    compose: (x: Tensor, a: Tensor, b: Tensor, value: number = 1): Tensor =>
      together([x, a, b], (base, l, r) => base.add(l.mul(r).affine(value, 0))),
  }),
  addcdiv: composite({
    ...formulaRow('x + value a / b', [three([[2, 3], [3], [2, 1]], 0.5)], {
      domain: [0.5, 2],
      ulp: ulps(1),
    }),
    compose: (x: Tensor, a: Tensor, b: Tensor, value: number = 1): Tensor =>
      together([x, a, b], (base, l, r) => base.add(l.div(r).affine(value, 0))),
  }),
  signbit: composite({
    ...formulaRow('whether x is below zero, or -0; NaN is not', [on([2, 3])], { ...truths, ulp: 0 }),
    compose: (x: Tensor): Tensor => signbitOf(x.detach()),
  }),
  copysign: composite({
    ...formulaRow('|x| with the sign of y; no gradient reaches y', [two([2, 3], [3])], { ulp: 0, domain: [0.5, 2] }),
    compose: (x: Tensor, y: Tensor): Tensor => {
      const turn = signbitOf(y.detach()).ne(signbitOf(x.detach()));
      return turn.where(x.neg(), x);
    },
  }),
  fmax: composite({
    ...formulaRow('the larger of both; NaN only where both are', [two([2, 3], [3])], { ulp: 0 }),
    compose: (x: Tensor, y: Tensor): Tensor => x.ge(y).logicalOr(y.isNan()).where(x, y),
  }),
  fmin: composite({
    ...formulaRow('the smaller of both; NaN only where both are', [two([2, 3], [3])], { ulp: 0 }),
    compose: (x: Tensor, y: Tensor): Tensor => x.le(y).logicalOr(y.isNan()).where(x, y),
  }),
  frac: composite({
    ...formulaRow('x - trunc(x)', [on([2, 3])], { ulp: 0 }),
    compose: (x: Tensor): Tensor => x.sub(x.detach().trunc()),
  }),
  heaviside: composite({
    ...formulaRow('0 below zero, 1 above, `values` at zero', [two([2, 3], [3])], {
      ulp: 0,
      noGrad: 'a step has no slope',
    }),
    compose: (x: Tensor, values: Tensor): Tensor => x.eq(0).where(values.detach(), x.gt(0).cast(x.dtype)),
  }),
  logAddExp2: composite({
    ...formulaRow('log2(2^x + 2^y)', [two([2, 3], [3])]),
    compose: (x: Tensor, y: Tensor): Tensor =>
      together([x, y], (a, b) =>
        a
          .affine(Math.LN2, 0)
          .logAddExp(b.affine(Math.LN2, 0))
          .affine(1 / Math.LN2, 0),
      ),
  }),
  logit: composite({
    ...formulaRow('log(x / (1 - x)), x first held in [eps, 1 - eps] if eps is given', [on([2, 3]), on([2, 3], 0.1)], {
      domain: [0.2, 0.45],
    }),
    compose: (x: Tensor, eps?: number): Tensor =>
      wide(x, (w) => {
        const held = eps === undefined ? w : w.clamp(eps, 1 - eps);
        return held.log().sub(held.neg().log1p());
      }),
  }),
  xlogy: composite({
    ...formulaRow('x log(y), 0 where x is 0 and y is no NaN', [two([2, 3], [3])], { domain: [1.2, 4] }),
    compose: (x: Tensor, y: Tensor): Tensor =>
      together([x, y], (a, b) => {
        // Only where the logarithm is not finite: elsewhere the gradient by x is the logarithm, at 0, too.
        const none = a.eq(0).logicalAnd(b.le(0).logicalOr(b.eq(Infinity)));
        return a.mul(none.where(1, b).log()).add(0); // -0 becomes 0
      }),
  }),
  sinc: composite({
    ...formulaRow('sin(pi x) / (pi x), 1 at zero', [on([2, 3])], { domain: [0.1, 0.9] }),
    compose: (x: Tensor): Tensor =>
      wide(x, (w) => {
        const none = w.eq(0);
        const turned = none.where(1, w).affine(Math.PI, 0);
        return none.where(1, turned.sin().div(turned));
      }),
  }),
  erfc: composite({
    ...formulaRow('1 - erf(x), right where erf is near 1', [on([2, 3])]),
    compose: (x: Tensor): Tensor => wide(x, (w) => w.affine(-Math.SQRT2, 0).normcdf().affine(2, 0)),
  }),
  deg2rad: composite({
    ...formulaRow('x pi / 180', [on([2, 3])], { ulp: ulps(1) }),
    compose: (x: Tensor): Tensor => x.affine(Math.PI / 180, 0),
  }),
  rad2deg: composite({
    ...formulaRow('x 180 / pi', [on([2, 3])], { ulp: ulps(1) }),
    compose: (x: Tensor): Tensor => x.affine(180 / Math.PI, 0),
  }),
  countNonzero: composite({
    ...formulaRow('how many elements along dims (or of all) are not 0', [on([3, 4]), on([3, 4], 1)], {
      ...exact,
      noGrad: 'a count',
    }),
    compose: (x: Tensor, dims?: number | readonly number[]): Tensor =>
      x
        .ne(0)
        .cast('i64')
        .sum(dims === undefined ? undefined : typeof dims === 'number' ? [dims] : [...dims]),
  }),
  bincount: composite({
    ...formulaRow(
      'how often each number from 0 on occurs; at least `minLength` of them',
      [{ inputs: [{ shape: [9], ints: [0, 5] }], args: [8] }],
      {
        dtypes: INTS,
        without: 'it counts whole numbers',
        ulp: 0,
        noGrad: 'a count',
        errors: [
          { ...on([2, 3]), code: 'E_SHAPE', says: /bincount: \[2, 3\] is no list of whole numbers/ },
          {
            inputs: [{ shape: [3], ints: [-3, -1], dtype: 'i32' }],
            args: [],
            code: 'E_ARGUMENT',
            says: /bincount: -\d is below zero/,
          },
        ],
      },
    ),
    compose: (x: Tensor, minLength: number = 0): Tensor => {
      if (x.rank !== 1) throw new ShapeError(`bincount: ${formatShape(x.shape)} is no list of whole numbers`);
      requireWhole('bincount', 'minLength', [minLength], 0);
      const [least, most] =
        x.size > 0 ? (x.min().stack([x.max()], 0).toArray() as (number | bigint)[]).map(Number) : [0, -1];
      if (least < 0) throw new ArgumentError(`bincount: ${least} is below zero`);
      return x.countNumbers(Math.max(minLength, most + 1));
    },
  }),
  diff: composite({
    ...formulaRow('differences of neighbours along dim, n times', [on([3, 5]), on([5, 3], 2, 0)], {
      dtypes: [...REALS, 'i32', 'i64'],
      ulp: ulps(1),
    }),
    compose: (x: Tensor, n: number = 1, dim: number = -1): Tensor => {
      requireWhole('diff', 'n', [n], 0);
      const [d] = sizeAlong('diff', x, dim);
      let out = x;
      for (let i = 0; i < n && out.shape[d] > 0; i++) {
        const left = out.shape[d] - 1;
        out = out.narrow(d, 1, left).sub(out.narrow(d, 0, left));
      }
      return out;
    },
  }),
  cross: composite({
    ...formulaRow('the vector product along dim, whose size is 3', [two([2, 3], [2, 3]), two([3, 2], [3, 2], 0)], {
      ulp: ulps(1),
      errors: [
        { ...two([2, 4], [2, 4]), code: 'E_SHAPE', says: /cross: dimension 1 of \[2, 4\] has 4 elements, not 3/ },
      ],
    }),
    compose: (x: Tensor, y: Tensor, dim: number = -1): Tensor => {
      for (const t of [x, y]) {
        const [d, n] = sizeAlong('cross', t, dim);
        if (n !== 3) throw new ShapeError(`cross: dimension ${d} of ${formatShape(t.shape)} has ${n} elements, not 3`);
      }
      return together([x, y], (a, b) => {
        const turned = (t: Tensor, by: number): Tensor => t.roll(by, normalizeDim('cross', dim, t.rank));
        return turned(a, -1)
          .mul(turned(b, -2))
          .sub(turned(a, -2).mul(turned(b, -1)));
      });
    },
  }),
  cdist: composite({
    ...formulaRow('distances between all rows of x and all rows of y, by the norm p', [
      two([2, 3, 4], [2, 5, 4]),
      two([3, 4], [2, 4], 1),
    ]),
    compose: (x: Tensor, y: Tensor, p: number = 2): Tensor =>
      together([x, y], (a, b) => {
        if (a.rank < 2 || b.rank < 2 || (p !== 1 && p !== 2)) return a.unsqueeze(-2).sub(b.unsqueeze(-3)).norm(p, -1);
        const lead = broadcastShapes('cdist', a.shape.slice(0, -2), b.shape.slice(0, -2));
        const spread = (t: Tensor): Tensor => t.broadcastTo([...lead, ...t.shape.slice(-2)]);
        return spread(a).rowDistances(spread(b), p);
      }),
  }),
  cov: composite({
    ...formulaRow('the covariances of variables, one a row, over observations, one a column', [
      on([3, 6]),
      on([3, 6], 0),
    ]),
    compose: (x: Tensor, correction: number = 1): Tensor => {
      requireNumbers('cov', { correction });
      return wide(x, (w) => covariance(w, correction));
    },
  }),
  corrcoef: composite({
    ...formulaRow('the correlations of variables, one a row, over observations, one a column', [on([3, 6])], {}),
    compose: (x: Tensor): Tensor =>
      wide(x, (w) => {
        const c = covariance(w, 1);
        if (c.rank === 0) return c.div(c);
        const deviation = c.diagonal().sqrt();
        return c.div(deviation.unsqueeze(1)).div(deviation.unsqueeze(0)).clamp(-1, 1);
      }),
  }),
  kron: composite({
    ...formulaRow('Kronecker product: every element of x times all of y', [two([2, 3], [3, 2]), two([2], [2, 3])], {
      ulp: ulps(1),
    }),
    compose: (x: Tensor, y: Tensor): Tensor => {
      const rank = Math.max(x.rank, y.rank);
      const filled = (t: Tensor): number[] => [...new Array<number>(rank - t.rank).fill(1), ...t.shape];
      const [a, b] = [filled(x), filled(y)];
      const left = x.reshape(a.flatMap((n) => [n, 1]));
      const right = y.reshape(b.flatMap((n) => [1, n]));
      return left.mul(right).reshape(a.map((n, i) => n * b[i]));
    },
  }),
  kthvalue: composite({
    ...formulaRow(
      '[values, indices] of the k-th smallest element along dim',
      [
        { inputs: [{ shape: [3, 5], distinct: true }], args: [2] },
        { inputs: [{ shape: [4, 3], distinct: true }], args: [4, 0, true] },
      ],
      {
        ulp: 0,
        errors: [{ ...on([3], 4), code: 'E_ARGUMENT', says: /kthvalue: k 4 is not from 1 to 3/ }],
      },
    ),
    compose: (
      x: Tensor,
      k: number,
      dim: number = -1,
      keepdim: boolean = false,
    ): readonly [values: Tensor, indices: Tensor] => {
      requireFlag('kthvalue', 'keepdim', keepdim);
      const [d, n] = sizeAlong('kthvalue', x, dim);
      if (!Number.isSafeInteger(k) || k < 1 || k > n) throw new ArgumentError(`kthvalue: k ${k} is not from 1 to ${n}`);
      const indices = x.detach().argRank(d, k - 1);
      const values = x.gather(d, indices);
      return keepdim ? [values, indices] : [values.squeeze(d), indices.squeeze(d)];
    },
  }),
  tile: composite({
    ...formulaRow('x repeated along its last dimensions', [on([2, 3], [2]), on([2, 3], [2, 1, 2])], { ...exact }),
    compose: (x: Tensor, times: readonly number[]): Tensor =>
      x.repeat([...new Array<number>(Math.max(x.rank - times.length, 0)).fill(1), ...times]),
  }),
  tensordot: composite({
    ...formulaRow(
      'the product summed over the last `dims` dimensions of x and the first of y, or over the pairs named',
      [
        two([2, 3, 4], [3, 4, 5], 2),
        two(
          [3, 2, 4],
          [4, 3],
          [
            [0, 2],
            [1, 0],
          ],
        ),
      ],
    ),
    compose: (x: Tensor, y: Tensor, dims: number | readonly [readonly number[], readonly number[]] = 2): Tensor => {
      const ends = (n: number): [number[], number[]] => [
        Array.from({ length: n }, (_, i) => x.rank - n + i),
        Array.from({ length: n }, (_, i) => i),
      ];
      if (typeof dims === 'number') requireWhole('tensordot', 'dims', [dims], 0);
      const [left, right] = typeof dims === 'number' ? ends(dims) : dims;
      const a = left.map((d) => normalizeDim('tensordot', d, x.rank));
      const b = right.map((d) => normalizeDim('tensordot', d, y.rank));
      if (a.length !== b.length || a.some((d, i) => x.shape[d] !== y.shape[b[i]]))
        throw new ShapeError(
          `tensordot: dimensions ${formatShape(a)} of ${formatShape(x.shape)} and ${formatShape(b)} of ` +
            `${formatShape(y.shape)} differ`,
        );
      const restA = x.shape.map((_, i) => i).filter((i) => !a.includes(i));
      const restB = y.shape.map((_, i) => i).filter((i) => !b.includes(i));
      const n = a.reduce((size, d) => size * x.shape[d], 1);
      const rowsOf = restA.map((d) => x.shape[d]);
      const columns = restB.map((d) => y.shape[d]);
      const size = (shape: readonly number[]): number => shape.reduce((k, m) => k * m, 1);
      const l = x.permute([...restA, ...a]).reshape([size(rowsOf), n]);
      const r = y.permute([...b, ...restB]).reshape([n, size(columns)]);
      return l.matmul(r).reshape([...rowsOf, ...columns]);
    },
  }),
  trapezoid: composite({
    ...formulaRow('the area under straight lines between neighbours dx apart', [on([3, 5]), on([5, 3], 0.5, 0)]),
    compose: (x: Tensor, dx: number = 1, dim: number = -1): Tensor => {
      requireNumbers('trapezoid', { dx });
      const [d] = sizeAlong('trapezoid', x, dim);
      return wide(x, (w) => trapezoidAreas(w, dx, d).sum(d));
    },
  }),
  cumulativeTrapezoid: composite({
    ...formulaRow('the areas of trapezoid up to each element but the first', [on([3, 5], 0.5)]),
    compose: (x: Tensor, dx: number = 1, dim: number = -1): Tensor => {
      requireNumbers('cumulativeTrapezoid', { dx });
      const [d] = sizeAlong('cumulativeTrapezoid', x, dim);
      return wide(x, (w) => trapezoidAreas(w, dx, d).cumsum(d));
    },
  }),
  vander: composite({
    ...formulaRow('columns of powers, the highest first (or last, if increasing)', [on([4]), on([4], 3, true)], {
      domain: [0.5, 1.5],
    }),
    compose: (x: Tensor, n?: number, increasing: boolean = false): Tensor => {
      if (x.rank !== 1) throw new ShapeError(`vander: ${formatShape(x.shape)} is no list of numbers`);
      const columns = n === undefined ? x.shape[0] : n;
      requireWhole('vander', 'n', [columns], 0);
      requireFlag('vander', 'increasing', increasing);
      if (columns === 0) return x.newFull([x.shape[0], 0], 0);
      const made = Array.from({ length: columns }, (_, i) => (i === 0 ? x.onesLike() : x.powf(i)));
      const [first, ...rest] = increasing ? made : made.reverse();
      return first.stack(rest, 1);
    },
  }),
  varMean: composite({
    ...formulaRow('[variance, mean] along dim', [on([3, 5], 1), on([3, 5], 0, false, 0)]),
    compose: (
      x: Tensor,
      dim: number,
      keepdim: boolean = false,
      correction: number = 1,
    ): readonly [variance: Tensor, mean: Tensor] => [x.variance(dim, keepdim, correction), x.mean(dim, keepdim)],
  }),
  stdMean: composite({
    ...formulaRow('[standard deviation, mean] along dim', [on([3, 5], 1)]),
    compose: (
      x: Tensor,
      dim: number,
      keepdim: boolean = false,
      correction: number = 1,
    ): readonly [std: Tensor, mean: Tensor] => [x.std(dim, keepdim, correction), x.mean(dim, keepdim)],
  }),
  aminmax: composite({
    ...formulaRow('[smallest, largest] along dim', [{ inputs: [{ shape: [3, 4], distinct: true }], args: [1] }], {
      ...exact,
    }),
    compose: (x: Tensor, dim: number, keepdim: boolean = false): readonly [min: Tensor, max: Tensor] => [
      x.min(dim, keepdim),
      x.max(dim, keepdim),
    ],
  }),
  isIn: composite({
    ...formulaRow(
      'whether each element is one of `values`',
      [
        {
          inputs: [
            { shape: [3, 4], ints: [0, 5] },
            { shape: [2], ints: [0, 5] },
          ],
          args: [{ input: 1 }],
        },
      ],
      { ...exact, ...truths },
    ),
    compose: (x: Tensor, values: Tensor): Tensor =>
      x
        .unsqueeze(-1)
        .eq(values.reshape([-1]))
        .any(-1),
  }),
  indexFill: composite({
    ...formulaRow(
      'x with `value` at the places `ids` of dim',
      [{ inputs: [{ shape: [3, 4] }, { shape: [2], values: [0, 2], dtype: 'i64' }], args: [0, { input: 1 }, 3] }],
      { ...exact },
    ),
    compose: (x: Tensor, dim: number, ids: Tensor, value: number): Tensor => {
      const [d] = sizeAlong('indexFill', x, dim);
      const marks = ids
        .newFull([x.shape[d]], 0, 'u8')
        .scatter(0, ids, ids.newFull(ids.shape, 1, 'u8'))
        .ne(0);
      return marks.reshape(x.shape.map((n, i) => (i === d ? n : 1))).where(value, x);
    },
  }),
  ...layerNames,
  matrixPower: composite({
    ...formulaRow(
      'the matrix multiplied by itself n times; its inverse for n below 0',
      [on([2, 3, 3], 3), on([3, 3], 0)],
      {
        ulp: ulps(8),
      },
    ),
    compose: (x: Tensor, n: number): Tensor => {
      if (!Number.isSafeInteger(n)) throw new ArgumentError(`matrixPower: ${n} is no whole number`);
      if (x.rank < 2 || x.shape[x.rank - 1] !== x.shape[x.rank - 2])
        throw new ShapeError(`matrixPower: ${formatShape(x.shape)} is no square matrix`);
      return wide(x, (w) => {
        let base = n < 0 ? w.inv() : w;
        let left = Math.abs(n);
        let out: Tensor | undefined;
        for (; left > 0; left = Math.floor(left / 2)) {
          if (left % 2 === 1) out = out ? out.matmul(base) : base;
          if (left > 1) base = base.matmul(base);
        }
        if (out) return out;
        const identity = w.onesLike().tril().triu();
        return identity.ge(0).where(identity, w); // x stays in the graph, with a gradient of 0
      });
    },
  }),
  fullLike: composite({
    ...formulaRow('`value` in the shape and dtype of x', [on([2, 3], 3)], { ...exact, noGrad: 'a constant' }),
    compose: (x: Tensor, value: number, dtype?: DType): Tensor => x.newFull(x.shape, value, dtype),
  }),
});

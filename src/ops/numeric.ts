// Arithmetic with a rule of its own (NaN, tolerances, stable logarithms) and running combinations along a dimension,
// made of other rows.
import { DTYPES, FLOATS, isFloat, NUMBERS, REALS, sumDType } from '../base/dtype.js';
import { ArgumentError } from '../base/errors.js';
import { normalizeDim, normalizeDims, type Shape } from '../base/shape.js';
import type { Tensor } from '../tensor/tensor.js';
import { wide } from './composites.js';
import type { Operand } from './elementwise.js';
import { alike, composite, requireDType, requireOptions } from './kernel-row.js';
import { type CompositeSample, type InputSpec, rows, ulps } from './op.js';
import type { Dims } from './reduce.js';

export interface NanToNumOptions {
  /** Instead of NaN; default 0. */
  readonly nan?: number;
  /** Instead of infinity; default the largest number of the dtype. */
  readonly posinf?: number;
  /** Instead of minus infinity; default the smallest number of the dtype. */
  readonly neginf?: number;
}
export interface CloseOptions {
  /** Share of |y| by which x may differ; default 1e-5. */
  readonly rtol?: number;
  /** Difference that is allowed besides; default 1e-8. */
  readonly atol?: number;
  /** Whether NaN is close to NaN. */
  readonly equalNan?: boolean;
}

const s = (...shape: number[]): InputSpec => ({ shape });
const on = (shape: Shape, ...args: unknown[]): CompositeSample => ({ inputs: [{ shape }], args });
/** What these rows have in common. */
const row = alike({
  dtypes: REALS,
  ulp: ulps(4),
  candle: { none: 'made of other ops' },
});

const LARGEST: Readonly<Record<string, number>> = {
  f8e4m3: 448,
  f16: 65504,
  bf16: (2 - 2 ** -7) * 2 ** 127,
  f32: (2 - 2 ** -23) * 2 ** 127,
  f64: Number.MAX_VALUE,
};
const truth = 'the result is a truth value';

/** Running extremum with its place. The later of equal elements counts, and NaN above all, as in PyTorch. */
function running(op: 'cummax' | 'cummin', x: Tensor, dim: number): [Tensor, Tensor] {
  const d = normalizeDim(op, dim, x.rank);
  const at = op === 'cummax' ? x.detach().runningLargest(d) : x.detach().runningSmallest(d);
  return [x.gather(d, at), at];
}
const scanSamples = [on([3, 5], 1), on([4, 3, 2], 0), on([7], -1)];
const distinct = [
  { inputs: [{ shape: [3, 5], distinct: true }], args: [1] },
  { inputs: [{ shape: [4, 3], distinct: true }], args: [0] },
];

export const numericOps = rows({
  lerp: composite({
    ...row(
      'x + weight * (end - x); the weight a number or a tensor',
      [
        { inputs: [s(3, 4), s(3, 4)], args: [{ input: 1 }, 0.25] },
        { inputs: [s(3, 4), s(4)], args: [{ input: 1 }, 0.75] },
        { inputs: [s(3, 4), s(3, 4), { shape: [4], domain: [0.6, 1] }], args: [{ input: 1 }, { input: 2 }] },
      ],
      { ulp: ulps(1) },
    ),
    // From whichever end is nearer, so that both ends are met exactly.
    compose: (x: Tensor, end: Tensor, weight: Operand): Tensor =>
      wide(x, (w) => {
        const to = end.cast(w.dtype);
        const way = to.sub(w);
        if (typeof weight === 'number')
          return weight < 0.5 ? w.add(way.affine(weight, 0)) : to.sub(way.affine(1 - weight, 0));
        const by = weight.cast(w.dtype);
        return by.lt(0.5).where(w.add(way.mul(by)), to.sub(way.mul(by.affine(-1, 1))));
      }),
  }),
  nanToNum: composite({
    ...row(
      'x with NaN, infinity and minus infinity replaced',
      [on([3, 4]), on([3], { nan: 7, posinf: 1, neginf: -1 })],
      {
        dtypes: FLOATS,
        without: 'integers are always finite numbers',
        ulp: 0,
      },
    ),
    compose: (x: Tensor, options: NanToNumOptions = {}): Tensor => {
      requireOptions('nanToNum', options, ['nan', 'posinf', 'neginf']);
      requireDType('nanToNum', x, FLOATS, 'integers are always finite numbers');
      const { nan = 0, posinf = LARGEST[x.dtype], neginf = -LARGEST[x.dtype] } = options;
      return x.isNan().where(nan, x.eq(Infinity).where(posinf, x.eq(-Infinity).where(neginf, x)));
    },
  }),
  nansum: composite({
    ...row('sum over dims of what is not NaN', [on([3, 5], 1), on([2, 3, 4], [0, 2], true)], { domain: [0.1, 2] }),
    compose: (x: Tensor, dims?: Dims, keepdim: boolean = false): Tensor => {
      requireDType('nansum', x, REALS);
      return x.isNan().where(0, x).sum(dims, keepdim);
    },
  }),
  nanmean: composite({
    ...row('mean over dims of what is not NaN', [on([3, 5], 1), on([2, 3, 4], [0, 2], true)], {
      domain: [0.1, 2],
      ulp: ulps(4),
    }),
    compose: (x: Tensor, dims?: Dims, keepdim: boolean = false): Tensor =>
      wide(x, (w) => {
        const list = normalizeDims('nanmean', dims, w.rank);
        const none = w.isNan();
        const count = none.logicalNot().sum(list, keepdim).cast(w.dtype);
        return none.where(0, w).sum(list, keepdim).div(count);
      }),
  }),
  isClose: composite({
    ...row(
      '|x - y| <= atol + rtol * |y|, or x and y are equal',
      [{ inputs: [s(3, 4), s(3, 4)], args: [{ input: 1 }, { rtol: 0.5, atol: 0.25 }] }],
      { dtypes: NUMBERS, ulp: 0, noGrad: truth },
    ),
    compose: (x: Tensor, y: Operand, options: CloseOptions = {}): Tensor => {
      requireOptions('isClose', options, ['rtol', 'atol', 'equalNan']);
      const { rtol = 1e-5, atol = 1e-8, equalNan = false } = options;
      if (!(rtol >= 0 && atol >= 0))
        throw new ArgumentError(`isClose: rtol ${rtol} and atol ${atol} must be numbers from 0`);
      const other = typeof y === 'number' ? x.constant(y) : y;
      const same = x.eq(other);
      // In double, where tolerances and differences of small dtypes are exact.
      const [a, b] = [x.detach().cast('f64'), other.detach().cast('f64')];
      const near = a.sub(b).abs().le(b.abs().affine(rtol, atol)).logicalAnd(a.isFinite()).logicalAnd(b.isFinite());
      const close = same.logicalOr(near);
      return equalNan ? close.logicalOr(a.isNan().logicalAnd(b.isNan())) : close;
    },
  }),
  logAddExp: composite({
    ...row('ln(e^x + e^y), stable', [
      { inputs: [s(3, 4), s(3, 4)], args: [{ input: 1 }] },
      { inputs: [s(3, 4), s(4)], args: [{ input: 1 }] },
    ]),
    compose: (x: Tensor, y: Operand): Tensor =>
      wide(x, (l) => {
        const r = typeof y === 'number' ? l.constant(y) : y.cast(l.dtype);
        const first = l.gt(r);
        const [top, low] = [first.where(l, r), first.where(r, l)];
        // The distance from an infinity to itself counts as none.
        return top.add(top.abs().eq(Infinity).where(0, low.sub(top)).softplus());
      }),
  }),
  cumprod: composite({
    ...row('running product along dim', scanSamples, {
      dtypes: DTYPES,
      // Products of doubles are rounded in another order on every device; others are products of doubles.
      ulp: { f32: 1, f64: 4, f16: 1, bf16: 1, f8e4m3: 1 },
      domain: [0.5, 1.5],
    }),
    compose: (x: Tensor, dim: number): Tensor => {
      const d = normalizeDim('cumprod', dim, x.rank);
      const run = (w: Tensor): Tensor => w.runningProduct(d);
      return isFloat(x.dtype) ? wide(x, run) : run(x.cast(sumDType(x.dtype)));
    },
  }),
  cummax: composite({
    ...row('[values, indices] of the largest element so far along dim', distinct, { dtypes: DTYPES, ulp: 0 }),
    compose: (x: Tensor, dim: number): readonly [values: Tensor, indices: Tensor] => running('cummax', x, dim),
  }),
  cummin: composite({
    ...row('[values, indices] of the smallest element so far along dim', distinct, { dtypes: DTYPES, ulp: 0 }),
    compose: (x: Tensor, dim: number): readonly [values: Tensor, indices: Tensor] => running('cummin', x, dim),
  }),
  logcumsumexp: composite({
    ...row('ln of the running sum of e^x along dim, stable', scanSamples, { ulp: ulps(4) }),
    compose: (x: Tensor, dim: number): Tensor =>
      wide(x, (w) => w.runningLogSum(normalizeDim('logcumsumexp', dim, w.rank))),
  }),
});

// Ops made of other rows: their gradients come by themselves.
import { type DType, DTYPES, FLOATS, REALS } from '../base/dtype.js';
import { ArgumentError, ShapeError } from '../base/errors.js';
import { formatShape, normalizeDim, normalizeDims, resolveReshape, type Shape } from '../base/shape.js';
import type { Tensor } from '../tensor/tensor.js';
import { requireFlag, requireNumbers, requireWhole } from './kernel-row.js';
import { type CompositeErrorSample, type CompositeRow, type CompositeSample, rows, ulps } from './op.js';
import { type Dims, EUCLID_DTYPES, reducedShape } from './reduce.js';

type Composite<A extends readonly unknown[], R> = Omit<CompositeRow, 'name' | 'compose'> & {
  readonly compose: (x: Tensor, ...rest: A) => R;
};
const of = <A extends readonly unknown[], R extends Tensor | readonly Tensor[]>(
  formula: string,
  compose: (x: Tensor, ...rest: A) => R,
  samples: readonly CompositeSample[],
  more: Partial<Pick<CompositeRow, 'dtypes' | 'ulp' | 'domain' | 'noGrad' | 'without'>> & {
    errors?: readonly CompositeErrorSample[];
  } = {},
): Composite<A, R> => ({
  family: 'composite',
  formula,
  compose,
  dtypes: DTYPES,
  ulp: 0,
  candle: { none: 'made of other ops' },
  ...more,
  samples: () => samples,
  errors: () => more.errors ?? [],
});
const on = (shape: Shape, ...args: unknown[]): CompositeSample => ({ inputs: [{ shape }], args });
const sums = { ulp: ulps(4), domain: [0.1, 2] as const };

/** Small floats are widened for a computation of several steps and rounded once at its end. */
export const wide = (x: Tensor, f: (x: Tensor) => Tensor): Tensor =>
  x.dtype === 'f32' || x.dtype === 'f64' ? f(x) : f(x.cast('f32')).cast(x.dtype);

/** Whether distances from a mean are summed without another pass for the mean: by a kernel of GPUs, of f32. */
const inOnePass = (x: Tensor): boolean => x.dtype === 'f32' && x.size > 0 && x.device.backend.gpu !== undefined;

/**
 * f(x) where x is not 0; where it is, `zero`, with no gradient: the slope of a root is infinite there, and PyTorch's
 * choice is 0.
 */
const rootOrZero = (x: Tensor, f: (x: Tensor) => Tensor, zero = 0): Tensor => {
  const none = x.eq(0);
  return none.where(zero, f(none.where(1, x)));
};

export const compositeOps = rows({
  cast: of(
    'x in another dtype; x itself where it has it already',
    (x: Tensor, dtype: DType): Tensor => (x.dtype === dtype ? x : x.castTo(dtype)),
    [on([2, 3], 'f32')],
    { ulp: { f16: 0 } },
  ),
  contiguous: of(
    'x, copied only if its layout has gaps',
    (x: Tensor): Tensor => (x.layout.isContiguous ? x : x.copy()),
    [on([2, 3])],
  ),
  zerosLike: of('zeros of the same shape and dtype', (x: Tensor): Tensor => x.newFull(x.shape, 0), [on([2, 3])], {
    noGrad: 'a constant',
  }),
  onesLike: of('ones of the same shape and dtype', (x: Tensor): Tensor => x.newFull(x.shape, 1), [on([2, 3])], {
    noGrad: 'a constant',
  }),
  newZeros: of(
    'zeros on the same device',
    (x: Tensor, shape: Shape, dtype?: DType): Tensor => x.newFull(shape, 0, dtype),
    [on([2], [3, 4])],
    { noGrad: 'a constant' },
  ),
  reshape: of(
    'the same elements in row-major order under another shape; one dimension may be -1; copies only where strides ' +
      'demand it',
    (x: Tensor, shape: Shape): Tensor => {
      const to = resolveReshape('reshape', x.shape, shape);
      return (x.layout.reshape(to) ? x : x.copy()).viewAs(to);
    },
    [on([2, 3, 4], [4, 6]), on([2, 3, 4], [-1, 2]), on([2, 1, 3], [6]), on([0, 3], [3, 0])],
    {
      errors: [
        {
          ...on([2, 3], [4, -1]),
          code: 'E_SHAPE',
          says: /reshape: \[2, 3\] has 6 elements, \[4, -1\] needs a multiple of 4/,
        },
      ],
    },
  ),
  transpose: of(
    'two dimensions exchanged',
    (x: Tensor, a: number = -2, b: number = -1): Tensor => {
      const dims = x.layout.shape.slice();
      const p = normalizeDim('transpose', a, dims.length);
      const q = normalizeDim('transpose', b, dims.length);
      for (let i = 0; i < dims.length; i++) dims[i] = i === p ? q : i === q ? p : i;
      return x.permute(dims);
    },
    [on([2, 3, 4], 0, 2), on([2, 3, 4], -1, -2)],
    { errors: [{ ...on([2, 3], 0, 2), code: 'E_SHAPE', says: /transpose: dimension 2 is out of range for rank 2/ }] },
  ),
  t: of('the transposed matrix', (x: Tensor): Tensor => x.transpose(-2, -1), [on([2, 3])]),
  flatten: of(
    'dimensions from..to (inclusive) joined into one',
    (x: Tensor, from: number = 0, to: number = -1): Tensor => {
      if (x.rank === 0) return x.reshape([1]);
      const [a, b] = [normalizeDim('flatten', from, x.rank), normalizeDim('flatten', to, x.rank)];
      const size = x.shape.slice(a, b + 1).reduce((p, d) => p * d, 1);
      return x.reshape([...x.shape.slice(0, a), size, ...x.shape.slice(b + 1)]);
    },
    [on([2, 3, 4]), on([2, 3, 4], 1)],
  ),
  get: of(
    'element i along the first dimension',
    (x: Tensor, i: number, dim: number = 0): Tensor => {
      const n = x.shape[normalizeDim('get', dim, x.rank)];
      if (!Number.isInteger(i) || i < -n || i >= n)
        throw new ShapeError(
          `get: index ${i} is out of range for dimension ${dim} of ${formatShape(x.shape)} (allowed: ${-n} to ` +
            `${n - 1})`,
        );
      return x.narrow(dim, i, 1).squeeze(dim);
    },
    [on([3, 4], 1), on([3, 4], -1, 1)],
  ),
  chunk: of(
    'n nearly equal parts along dim',
    (x: Tensor, n: number, dim: number = 0): Tensor[] => {
      if (!Number.isInteger(n) || n < 1) throw new ArgumentError(`chunk: ${n} parts; it takes a whole number from 1`);
      const d = normalizeDim('chunk', dim, x.rank);
      const per = Math.ceil(x.shape[d] / n) || 1;
      return x.split(
        Array.from({ length: Math.ceil(x.shape[d] / per) }, (_, i) => Math.min(per, x.shape[d] - i * per)),
        d,
      );
    },
    [on([7, 2], 3)],
  ),
  split: of(
    'parts of the given sizes along dim',
    (x: Tensor, sizes: number | readonly number[], dim: number = 0): Tensor[] => {
      const d = normalizeDim('split', dim, x.rank);
      const n = x.shape[d];
      if (typeof sizes === 'number') requireWhole('split', 'size', [sizes], 1);
      else requireWhole('split', 'sizes', sizes, 0);
      const list =
        typeof sizes === 'number'
          ? Array.from({ length: Math.ceil(n / sizes) }, (_, i) => Math.min(sizes, n - i * sizes))
          : sizes;
      if (list.reduce((a, b) => a + b, 0) !== n)
        throw new ShapeError(
          `split: sizes ${formatShape(list)} do not add up to ${n}, dimension ${d} of ${formatShape(x.shape)}`,
        );
      let at = 0;
      return list.map((s) => x.narrow(d, (at += s) - s, s));
    },
    [on([7, 2], [3, 4]), on([2, 7], 3, 1)],
    {
      errors: [
        { ...on([4], 0), code: 'E_ARGUMENT', says: /split: size 0 is not made of whole numbers from 1/ },
        { ...on([4], [6, -2]), code: 'E_ARGUMENT', says: /split: sizes \[6, -2\]/ },
      ],
    },
  ),
  stack: of(
    'tensors along a new dimension',
    (x: Tensor, others: readonly Tensor[] | Tensor, dim: number): Tensor => {
      const all = [x, ...(Array.isArray(others) ? (others as Tensor[]) : [others as Tensor])];
      const bad = all.find((t) => t.rank !== x.rank || t.shape.some((s, i) => s !== x.shape[i]));
      if (bad)
        throw new ShapeError(
          `stack: ${formatShape(bad.shape)} differs from ${formatShape(x.shape)}; all shapes must be equal`,
        );
      const d = normalizeDim('stack', dim, x.rank, 1);
      const [first, ...rest] = all.map((t) => t.unsqueeze(d));
      return first.cat(rest, d);
    },
    [{ inputs: [{ shape: [2, 3] }, { shape: [2, 3] }], args: [{ input: 1 }, 1] }],
  ),
  sumTo: of(
    'summed over the dimensions that broadcasting from `shape` added',
    (x: Tensor, shape: Shape): Tensor => {
      requireWhole('sumTo', 'shape', shape, 0);
      const lead = x.rank - shape.length;
      const dims = x.shape.map((_, i) => i).filter((i) => i < lead || (shape[i - lead] === 1 && x.shape[i] !== 1));
      if (dims.length === 0) return x;
      return x.sum(dims, true).reshape(shape);
    },
    [on([2, 3, 4], [3, 1])],
    sums,
  ),
  variance: of(
    'mean squared distance from the mean over dims, with n - correction in the denominator',
    (x: Tensor, dims?: Dims, keepdim: boolean = false, correction: number = 1): Tensor =>
      wide(x, (w) => {
        requireNumbers('variance', { correction });
        const list = normalizeDims('variance', dims, w.rank);
        const n = list.reduce((a, d) => a * w.shape[d], 1);
        const sum = inOnePass(w) ? w.deviations(list, keepdim) : w.sub(w.mean(list, true)).sqr().sum(list, keepdim);
        return sum.affine(1 / Math.max(0, n - correction), 0);
      }),
    [on([3, 5], 1), on([3, 5], 0, true, 0)],
    { ...sums, dtypes: FLOATS, ulp: ulps(8) },
  ),
  std: of(
    'square root of the variance',
    (x: Tensor, dims?: Dims, keepdim: boolean = false, correction: number = 1): Tensor =>
      wide(x, (w) => {
        requireNumbers('std', { correction });
        requireFlag('std', 'keepdim', keepdim);
        const list = normalizeDims('std', dims, w.rank);
        const n = list.reduce((a, d) => a * w.shape[d], 1);
        // The norm keeps its range where squares would leave it, and has a gradient where all is equal.
        const length = inOnePass(w) ? w.spread(list, keepdim) : w.sub(w.mean(list, true)).norm(2, list, keepdim);
        return length.affine(1 / Math.sqrt(Math.max(0, n - correction)), 0);
      }),
    [on([3, 5], 1), on([3, 5], [0, 1], true, 0)],
    { ...sums, dtypes: FLOATS },
  ),
  logSumExp: of(
    'ln of the sum of e^x over dims, stable',
    (x: Tensor, dims?: Dims, keepdim: boolean = false): Tensor =>
      wide(x, (w) => {
        requireFlag('logSumExp', 'keepdim', keepdim);
        const list = normalizeDims('logSumExp', dims, w.rank);
        if (list.some((d) => w.shape[d] === 0)) return w.sum(list, keepdim).log(); // of nothing: minus infinity
        const top = w.detach().max(list, true);
        // An infinite maximum must not be subtracted from itself.
        const m = top.abs().eq(Infinity).where(top.zerosLike(), top);
        const s = w.sub(m).exp().sum(list, true).log().add(m);
        return keepdim ? s : s.squeeze(list);
      }),
    [on([3, 5], 1), on([2, 3, 4], [0, 2], true)],
    { ...sums, dtypes: FLOATS },
  ),
  norm: of(
    '(sum of |x|^p)^(1/p) over dims; p = 0 counts what is not 0, infinite p is the largest or smallest |x|',
    (x: Tensor, p: number = 2, dims?: Dims, keepdim: boolean = false): Tensor => {
      requireNumbers('norm', { p });
      if (Number.isNaN(p)) throw new ArgumentError('norm: the order is NaN');
      requireFlag('norm', 'keepdim', keepdim);
      if (p === 2 && EUCLID_DTYPES.includes(x.dtype)) return x.euclid(dims, keepdim);
      return wide(x, (w) => {
        const list = normalizeDims('norm', dims, w.rank);
        if (p === 0) return w.ne(0).where(w.onesLike(), w.sign()).sum(list, keepdim); // sign: a gradient of 0
        const size = w.abs();
        if (p === 1 || list.some((d) => w.shape[d] === 0)) return size.sum(list, keepdim);
        if (p === Infinity || p === -Infinity) {
          const found = p > 0 ? size.max(list, keepdim) : size.min(list, keepdim);
          return w.isNan().any(list, keepdim).where(NaN, found); // max and min pass over NaN, a norm does not
        }
        // Powers of numbers around 1, so that neither large nor small ones leave the range.
        const top = p > 0 ? size.detach().max(list, true) : size.detach().min(list, true);
        const unit = top.gt(0).logicalAnd(top.lt(Infinity)).where(top, top.onesLike());
        // Squares need no |x|, whose first derivative at 0 would take the second one of the norm with it.
        const ratio = (p === 2 ? w : size).div(unit);
        const root = (s: Tensor): Tensor => (p === 2 ? s.sqrt() : s.powf(1 / p));
        const power = p === 2 ? ratio.sqr() : rootOrZero(ratio, (r) => r.powf(p), p < 0 ? Infinity : 0);
        const length = rootOrZero(power.sum(list, true), root).mul(unit);
        return keepdim ? length : length.squeeze(list);
      });
    },
    [
      on([3, 5]),
      on([3, 5], 1, 1),
      on([3, 5], 3, 0),
      on([3, 5], -2, 1),
      on([3, 5], 0.5, 1),
      on([3, 5], Infinity, 1),
      on([3, 5], -Infinity, 1, true),
      { inputs: [{ shape: [3, 5], domain: [-3e4, 3e4] }], args: [2, 1] },
      on([0, 5], 2, 0),
    ],
    { ...sums, dtypes: FLOATS },
  ),
  dot: of(
    'inner product of two vectors',
    (x: Tensor, y: Tensor): Tensor => {
      if (x.rank !== 1 || y.rank !== 1)
        throw new ShapeError(`dot: takes two vectors, not ${formatShape(x.shape)} and ${formatShape(y.shape)}`);
      return x.matmul(y);
    },
    [{ inputs: [{ shape: [5] }, { shape: [5] }], args: [{ input: 1 }] }],
    { ...sums, dtypes: REALS },
  ),
  pad: of(
    '`value` added around: [before, after] pairs, last dimension first',
    (x: Tensor, pads: readonly number[], value: number = 0): Tensor => {
      if (pads.length % 2 !== 0 || pads.length > 2 * x.rank || pads.some((p) => !Number.isInteger(p))) {
        throw new ArgumentError(
          `pad: ${formatShape(pads)} is not a list of whole [before, after] pairs for at most ${x.rank} dimensions`,
        );
      }
      const side = (i: number, after: 0 | 1): number => pads[2 * (x.rank - 1 - i) + after] ?? 0;
      const gone = x.shape.findIndex((n, i) => n + Math.min(0, side(i, 0)) + Math.min(0, side(i, 1)) < 0);
      if (gone >= 0)
        throw new ShapeError(
          `pad: ${formatShape(pads)} crops more than dimension ${gone} of ${formatShape(x.shape)} has`,
        );
      const cut = x.shape.reduce(
        (t, n, i) =>
          side(i, 0) < 0 || side(i, 1) < 0 ? t.slice(i, Math.max(0, -side(i, 0)), n + Math.min(0, side(i, 1))) : t,
        x,
      ); // negative pads crop
      const shape = cut.shape.map((d, i) => d + Math.max(0, side(i, 0)) + Math.max(0, side(i, 1)));
      return cut.place(
        shape,
        cut.shape.map((_, i) => Math.max(0, side(i, 0))),
        undefined,
        value,
      );
    },
    [on([2, 3], [1, 2]), on([2, 3], [1, 2, 0, 3])],
    {
      errors: [
        { ...on([3], [1, 2, 3]), code: 'E_ARGUMENT', says: /pad: \[1, 2, 3\]/ },
        { ...on([2, 3], [-2, -2]), code: 'E_SHAPE', says: /pad: \[-2, -2\] crops more than dimension 1 of \[2, 3\]/ },
      ],
    },
  ),
  padSame: of(
    'edge elements repeated before and after along dim',
    (x: Tensor, dim: number, before: number, after: number): Tensor => {
      const d = normalizeDim('padSame', dim, x.rank);
      const n = x.shape[d];
      if (n === 0 && before + after > 0)
        throw new ShapeError(`padSame: dimension ${d} of ${formatShape(x.shape)} is empty and has no edge to repeat`);
      const edge = (at: number, times: number): Tensor =>
        x.narrow(d, at, 1).broadcastTo(x.shape.map((s, i) => (i === d ? times : s)));
      return (before ? edge(0, before).cat([x], d) : x).cat(after ? [edge(n - 1, after)] : [], d);
    },
    [on([2, 3], 1, 2, 1)],
  ),
  tril: of(
    'the part on and below diagonal k; 0 elsewhere',
    (x: Tensor, k: number = 0): Tensor => triangle(x, k, true),
    [on([3, 4]), on([3, 4], 1)],
  ),
  triu: of(
    'the part on and above diagonal k; 0 elsewhere',
    (x: Tensor, k: number = 0): Tensor => triangle(x, k, false),
    [on([3, 4]), on([3, 4], -1)],
  ),
  any: of(
    '1 where any element over dims is not 0',
    (x: Tensor, dims?: Dims, keepdim: boolean = false): Tensor => holds('any', x, dims, keepdim),
    [on([3, 5], 1), on([0, 5], 0), on([2, 0], 0)],
    { noGrad: 'the result is a truth value' },
  ),
  all: of(
    '1 where all elements over dims are not 0',
    (x: Tensor, dims?: Dims, keepdim: boolean = false): Tensor => holds('all', x, dims, keepdim),
    [on([3, 5], 1), on([0, 5], 0), on([2, 0], 0)],
    { noGrad: 'the result is a truth value' },
  ),
  roundTo: of(
    'rounded to `decimals` places, halves to even',
    (x: Tensor, decimals: number): Tensor => {
      requireWhole('roundTo', 'decimals', [decimals], -Infinity);
      return x
        .affine(10 ** decimals, 0)
        .roundEven()
        .div(10 ** decimals);
    },
    [on([3, 5], 2)],
    { dtypes: REALS, ulp: ulps(1) },
  ),
  softcap: of(
    'cap * tanh(x / cap)',
    (x: Tensor, cap: number): Tensor => x.div(cap).tanh().affine(cap, 0),
    [on([3, 5], 3)],
    { dtypes: REALS, ulp: ulps(4) },
  ),
});

/** Whether any or all elements over dims are not 0: of nothing, all are and not any. */
function holds(op: 'any' | 'all', x: Tensor, dims: Dims | undefined, keepdim: boolean): Tensor {
  requireFlag(op, 'keepdim', keepdim);
  const list = normalizeDims(op, dims, x.rank);
  if (list.some((d) => x.shape[d] === 0))
    return x.newFull(reducedShape(x.shape, { dims: list, keepdim }), op === 'all' ? 1 : 0, 'bool');
  const held = x.dtype === 'bool' ? x : x.ne(0);
  return op === 'any' ? held.max(list, keepdim) : held.min(list, keepdim);
}

function triangle(x: Tensor, k: number, lower: boolean): Tensor {
  if (x.rank < 2)
    throw new ShapeError(`${lower ? 'tril' : 'triu'}: ${formatShape(x.shape)} has fewer than two dimensions`);
  const [m, n] = x.shape.slice(-2);
  const col = x.newArange(n, 'i32');
  const row = x.newArange(m, 'i32').affine(1, k).unsqueeze(1);
  return (lower ? col.le(row) : col.ge(row)).where(x, x.constant(0));
}

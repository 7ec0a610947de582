// Names of PyTorch's functions for networks that are a line or two of other rows.
import { DTYPES } from '../base/dtype.js';
import { ShapeError } from '../base/errors.js';
import { normalizeDim } from '../base/shape.js';
import type { Tensor } from '../tensor/tensor.js';
import { wide } from './composites.js';
import { formulaRow } from './formula-row.js';
import { composite, requireOptions, requireWhole } from './kernel-row.js';
import { type CompositeSample, ulps } from './op.js';

/** What normalize takes. */
export interface NormalizeOptions {
  /** Default 2. */
  readonly p?: number;
  /** Default 1. */
  readonly dim?: number;
  /** Norms below it count as it; default 1e-12. */
  readonly eps?: number;
}
/** What localResponseNorm takes. */
export interface LocalResponseNormOptions {
  /** Default 1e-4. */
  readonly alpha?: number;
  /** Default 0.75. */
  readonly beta?: number;
  /** Default 1. */
  readonly k?: number;
}

// Words of samples and rows, which shorthand.ts has too.
const NUMBERS = DTYPES.filter((d) => d !== 'bool' && d !== 'f8e4m3');
export const on = (shape: readonly number[], ...args: unknown[]): CompositeSample => ({ inputs: [{ shape }], args });
export const two = (a: readonly number[], b: readonly number[], ...args: unknown[]): CompositeSample => ({
  inputs: [{ shape: a }, { shape: b }],
  args: [{ input: 1 }, ...args],
});
/** For every number: nothing but choices and moves. */
export const exact = { dtypes: NUMBERS, without: 'cast it first', ulp: 0 } as const;
/** Several tensors widened together, the result rounded once. */
export const together = (xs: readonly Tensor[], f: (...xs: Tensor[]) => Tensor): Tensor =>
  xs[0].dtype === 'f32' || xs[0].dtype === 'f64' ? f(...xs) : f(...xs.map((x) => x.cast('f32'))).cast(xs[0].dtype);
export const sizeAlong = (op: string, x: Tensor, dim: number): [d: number, n: number] => {
  const d = normalizeDim(op, dim, x.rank);
  return [d, x.shape[d]];
};

export const layerNames = {
  hardshrink: composite({
    ...formulaRow('x, but 0 for |x| up to lambda', [on([2, 3])], { ulp: 0 }),
    compose: (x: Tensor, lambda: number = 0.5): Tensor => x.abs().le(lambda).where(0, x),
  }),
  softshrink: composite({
    ...formulaRow('x moved towards 0 by lambda, 0 for |x| up to it', [on([2, 3])], { ulp: ulps(1) }),
    compose: (x: Tensor, lambda: number = 0.5): Tensor =>
      x.gt(lambda).where(x.affine(1, -lambda), x.lt(-lambda).where(x.affine(1, lambda), x.affine(0, 0))),
  }),
  tanhshrink: composite({
    ...formulaRow('x - tanh(x)', [on([2, 3])], { domain: [0.5, 2] }),
    compose: (x: Tensor): Tensor => wide(x, (w) => w.sub(w.tanh())),
  }),
  threshold: composite({
    ...formulaRow('x where it is above `bound`, else `value`', [on([2, 3], 0.5, -1)], { ulp: 0 }),
    compose: (x: Tensor, bound: number, value: number): Tensor => x.le(bound).where(value, x),
  }),
  celu: composite({
    ...formulaRow('x above 0, alpha (exp(x / alpha) - 1) below', [on([2, 3]), on([2, 3], 0.5)]),
    compose: (x: Tensor, alpha: number = 1): Tensor =>
      wide(x, (w) =>
        w.gt(0).where(
          w,
          w
            .clamp(-Infinity, 0)
            .affine(1 / alpha, 0)
            .expm1()
            .affine(alpha, 0),
        ),
      ),
  }),
  softmin: composite({
    ...formulaRow('softmax of -x along dim', [on([2, 5], 1)]),
    compose: (x: Tensor, dim: number = -1): Tensor => x.neg().softmax(dim),
  }),
  normalize: composite({
    ...formulaRow('x divided by its norm along dim, which counts as eps where it is smaller', [
      on([3, 4]),
      on([3, 4], { p: 1, dim: 0 }),
    ]),
    compose: (x: Tensor, options: NormalizeOptions = {}): Tensor => {
      requireOptions('normalize', options, ['p', 'dim', 'eps']);
      const { p = 2, dim = 1, eps = 1e-12 } = options;
      return wide(x, (w) => w.div(w.norm(p, dim, true).clamp(eps, Infinity)));
    },
  }),
  pairwiseDistance: composite({
    ...formulaRow('the norm p of x - y + eps along the last dimension', [two([3, 4], [3, 4]), two([3, 4], [4], 1)]),
    compose: (x: Tensor, y: Tensor, p: number = 2, eps: number = 1e-6): Tensor =>
      together([x, y], (a, b) => a.sub(b).affine(1, eps).norm(p, -1)),
  }),
  channelShuffle: composite({
    ...formulaRow('channels of `groups` groups dealt out in turn', [on([2, 6, 2], 3)], {
      ...exact,
      errors: [{ ...on([1, 4, 2], 3), code: 'E_SHAPE', says: /channelShuffle: 4 channels do not split into 3 groups/ }],
    }),
    compose: (x: Tensor, groups: number): Tensor => {
      const [, channels] = sizeAlong('channelShuffle', x, 1);
      requireWhole('channelShuffle', 'groups', [groups], 1);
      if (channels % groups !== 0)
        throw new ShapeError(`channelShuffle: ${channels} channels do not split into ${groups} groups`);
      const split = x.reshape([x.shape[0], groups, channels / groups, ...x.shape.slice(2)]);
      return split.transpose(1, 2).reshape(x.shape);
    },
  }),
  localResponseNorm: composite({
    ...formulaRow('x / (k + alpha * mean of squares over `size` neighbouring channels)^beta', [
      on([2, 5, 3], 3),
      on([1, 4, 2, 2], 2, { alpha: 0.1, k: 2 }),
    ]),
    compose: (x: Tensor, size: number, options: LocalResponseNormOptions = {}): Tensor => {
      requireOptions('localResponseNorm', options, ['alpha', 'beta', 'k']);
      requireWhole('localResponseNorm', 'size', [size], 1);
      const { alpha = 1e-4, beta = 0.75, k = 1 } = options;
      sizeAlong('localResponseNorm', x, 1);
      return wide(x, (w) => {
        const rest = new Array<number>(2 * (w.rank - 2)).fill(0);
        const squares = w.sqr().pad([...rest, Math.floor(size / 2), Math.floor((size - 1) / 2)]);
        const mean = squares.unfold(1, size, 1).mean(-1);
        return w.div(mean.affine(alpha, k).powf(beta));
      });
    },
  }),
};

// Distances between rows, all with all: what cdist computes without the differences in memory.
import { DTypeError, ShapeError } from '../base/errors.js';
import { formatShape, sameShape } from '../base/shape.js';
import type { Tensor } from '../tensor/tensor.js';
import { kernel, numbers } from './kernel-row.js';
import { exactSum } from './reduce.js';
import {
  rows,
  type Call,
  type ErrorSample,
  type GradContext,
  type Grads,
  type InputSpec,
  type RefTensor,
  type Sample,
  type Sig,
  ulps,
} from './op.js';

declare module './op.js' {
  interface KernelFacts {
    distance: undefined;
  }
}

export interface DistanceParams extends Record<string, unknown> {
  /** The norm: sums of magnitudes, or roots of sums of squares. */
  readonly p: 1 | 2;
}

const s = (...shape: number[]): InputSpec => ({ shape });

export const distanceOps = rows({
  rowDistances: kernel({
    internal: true,
    serves: 'cdist',
    family: 'distance',
    engineParams: ['p'],
    formula: 'norm of x[..., i, :] - y[..., j, :] for all i and j, p being 1 or 2',
    dtypes: ['f32', 'f64'],
    without: 'distances of 16-bit floats are made in f32',
    ulp: ulps(16),
    candle: { none: 'Candle has none of it' },
    infer: ([x, y]: readonly Sig[]): readonly Sig[] => {
      const [a, b] = [x.shape, y.shape];
      if (x.dtype !== y.dtype) throw new DTypeError(`cdist: rows of ${x.dtype} and ${y.dtype}`);
      if (a.length < 2 || !sameShape(a.slice(0, -2), b.slice(0, -2)) || a[a.length - 1] !== b[b.length - 1])
        throw new ShapeError(
          `cdist: ${formatShape(a)} and ${formatShape(b)} must be rows of one length, batch by batch`,
        );
      return [{ shape: [...a.slice(0, -1), b[b.length - 2]], dtype: x.dtype }];
    },
    reference: ([x, y]: readonly RefTensor[], [out]: readonly RefTensor[], { p }: DistanceParams): void => {
      const [n, k] = x.shape.slice(-2);
      const m = y.shape[y.shape.length - 2];
      const [a, b] = [numbers(x), numbers(y)];
      for (let at = 0; at < out.data.length; at++) {
        const row = Math.floor(at / m);
        const other = Math.floor(row / n) * m + (at % m);
        const d = Array.from({ length: k }, (_, i) => Math.abs(a[row * k + i] - b[other * k + i]));
        out.data[at] = p === 1 ? Number(exactSum(d)) : Math.hypot(...d);
        if (d.some(Number.isNaN)) out.data[at] = NaN;
      }
    },
    grad: ({ x, y, out, grad, params: { p }, needs }: GradContext<DistanceParams>): Grads => {
      const apart = x.unsqueeze(-2).sub(y.unsqueeze(-3));
      const length = out.unsqueeze(-1);
      // Rows that are equal have no direction: nothing flows to them.
      const none = length.eq(0);
      const way = p === 1 ? apart.sign() : none.where(x.constant(0), apart.div(none.where(x.constant(1), length)));
      const part = way.mul(grad.unsqueeze(-1));
      return [needs(0) ? part.sum(-2) : undefined, needs(1) ? part.sum(-3).neg() : undefined];
    },
    args: (x: Tensor, y: Tensor, p: 1 | 2): Call<DistanceParams> => ({ inputs: [x, y], params: { p } }),
    samples: (): readonly Sample<DistanceParams>[] => [
      { inputs: [s(2, 3, 4), s(2, 5, 4)], params: { p: 2 } },
      { inputs: [s(3, 7), s(2, 7)], params: { p: 1 } },
      { inputs: [s(70, 33), s(65, 33)], params: { p: 2 } },
      { inputs: [s(2, 3, 0), s(2, 4, 0)], params: { p: 2 } },
    ],
    errors: (): readonly ErrorSample<DistanceParams>[] => [
      {
        inputs: [s(3, 4), s(2, 5)],
        params: { p: 2 },
        code: 'E_SHAPE',
        says: /cdist: \[3, 4\] and \[2, 5\] must be rows of one length/,
      },
    ],
  }),
});

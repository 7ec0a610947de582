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
    /** Distances, or what flows back from them to x. */
    distance: { readonly kind: 'distances' | 'backward' };
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
    kernel: { kind: 'distances' },
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
      const turned = (t: Tensor): Tensor => t.transpose(-2, -1);
      return [
        needs(0) ? x.rowDistancesBackward(y, out, grad, p) : undefined,
        needs(1) ? y.rowDistancesBackward(x, turned(out), turned(grad), p) : undefined,
      ];
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

  rowDistancesBackward: kernel({
    internal: true,
    serves: 'cdist',
    family: 'distance',
    kernel: { kind: 'backward' },
    engineParams: ['p'],
    formula:
      'sums over j of g[..., i, j] (x[..., i, :] - y[..., j, :]) / d[..., i, j], of signs of the differences for p = 1; ' +
      'rows of no distance have no direction',
    dtypes: ['f32', 'f64'],
    without: 'distances of 16-bit floats are made in f32',
    ulp: { f32: 4096, f64: 4096 },
    loose: 'sums of many terms that cancel to nothing are measured by a single one of them',
    domain: [0.25, 2],
    candle: { none: 'Candle has none of it' },
    infer: ([x, y, d, g]: readonly Sig[]): readonly Sig[] => {
      const [n, k] = x.shape.slice(-2);
      const m = y.shape[y.shape.length - 2];
      const pairs = [...x.shape.slice(0, -1), m];
      if (!sameShape(y.shape, [...x.shape.slice(0, -2), m, k]) || ![d, g].every((t) => sameShape(t.shape, pairs)))
        throw new ShapeError(
          `rowDistancesBackward: distances ${formatShape(d.shape)} and gradients ${formatShape(g.shape)} of ${n} and ` +
            `${m} rows must be ${formatShape(pairs)}`,
        );
      return [{ shape: x.shape, dtype: x.dtype }];
    },
    reference: ([x, y, d, g]: readonly RefTensor[], [out]: readonly RefTensor[], { p }: DistanceParams): void => {
      const [n, k] = x.shape.slice(-2);
      const m = y.shape[y.shape.length - 2];
      const [a, b, far, flow] = [x, y, d, g].map(numbers);
      for (let at = 0; at < out.data.length; at++) {
        const row = Math.floor(at / k);
        const terms = Array.from({ length: m }, (_, j) => {
          const [apart, length] = [a[at] - b[(Math.floor(row / n) * m + j) * k + (at % k)], far[row * m + j]];
          const way = p === 1 ? (apart > 0 ? 1 : apart < 0 ? -1 : 0) : length === 0 ? 0 : apart / length;
          return way * flow[row * m + j];
        });
        out.data[at] = Number(exactSum(terms));
      }
    },
    grad: ({ inputs: [x, y, d, g], grad, params: { p } }: GradContext<DistanceParams>): Grads => {
      const apart = x.unsqueeze(-2).sub(y.unsqueeze(-3));
      const along = (t: Tensor): Tensor => t.mul(grad.unsqueeze(-2)).sum(-1);
      if (p === 1) return [undefined, undefined, undefined, along(apart.sign())];
      const none = d.eq(0);
      const share = (t: Tensor): Tensor => none.where(d.constant(0), t.div(none.where(d.constant(1), d)));
      const [part, flow] = [share(g), share(along(apart))];
      return [grad.mul(part.sum(-1, true)), part.transpose(-2, -1).matmul(grad).neg(), flow.mul(part).neg(), flow];
    },
    args: (x: Tensor, y: Tensor, d: Tensor, g: Tensor, p: 1 | 2): Call<DistanceParams> => ({
      inputs: [x, y, d, g],
      params: { p },
    }),
    samples: (): readonly Sample<DistanceParams>[] => [
      { inputs: [s(2, 3, 4), s(2, 5, 4), s(2, 3, 5), s(2, 3, 5)], params: { p: 2 } },
      { inputs: [s(3, 7), s(2, 7), s(3, 2), s(3, 2)], params: { p: 1 } },
      { inputs: [s(19, 70), s(130, 70), s(19, 130), s(19, 130)], params: { p: 2 } },
      { inputs: [s(2, 3, 4), s(2, 0, 4), s(2, 3, 0), s(2, 3, 0)], params: { p: 2 } },
    ],
    errors: (): readonly ErrorSample<DistanceParams>[] => [
      {
        inputs: [s(3, 4), s(5, 4), s(3, 4), s(3, 4)],
        params: { p: 2 },
        code: 'E_SHAPE',
        says: /distances \[3, 4\] and gradients \[3, 4\] of 3 and 5 rows must be \[3, 5\]/,
      },
    ],
  }),
});

// Softmax and its logarithm along a dimension, with backward rows that have gradients of their own.
import { REALS } from '../base/dtype.js';
import { ShapeError } from '../base/errors.js';
import { formatShape, normalizeDim, sameShape } from '../base/shape.js';
import type { Tensor } from '../tensor/tensor.js';
import { eachLane, kernel, numbers, requireSameDType } from './kernel-row.js';
import {
  rows,
  type Call,
  type ErrorSample,
  type GradContext,
  type Grads,
  type RefTensor,
  type Sample,
  type Sig,
  ulps,
} from './op.js';

declare module './op.js' {
  interface KernelFacts {
    /** Whether the result is the logarithm, and whether the row is the gradient. */
    softmax: { readonly log: boolean; readonly backward: boolean };
  }
}

export interface SoftmaxParams extends Record<string, unknown> {
  readonly dim: number;
}

const WITHOUT = 'softmax is defined for floats of 16 bits and more; cast first';
const DIFFERS =
  'Any dimension and layout, with a gradient. 16-bit floats are computed in f32 and rounded once (Candle rounds ' +
  'exponentials and the inverse sum to the dtype).';

const inferOne =
  (op: string) =>
  ([x]: readonly Sig[], { dim }: SoftmaxParams): readonly Sig[] => {
    normalizeDim(op, dim, x.shape.length);
    return [x];
  };
const inferTwo =
  (op: string) =>
  (inputs: readonly Sig[], { dim }: SoftmaxParams): readonly Sig[] => {
    const [y, g] = inputs;
    normalizeDim(op, dim, y.shape.length);
    requireSameDType(op, inputs);
    if (!sameShape(y.shape, g.shape))
      throw new ShapeError(
        `${op}: result ${formatShape(y.shape)} and gradient ${formatShape(g.shape)} must have one shape`,
      );
    return [y];
  };

/** Runs f over each lane's values. */
function mapLanes(
  from: readonly RefTensor[],
  out: RefTensor,
  dim: number,
  f: (...lanes: number[][]) => number[],
): void {
  eachLane(out.shape, dim, (start, step, n) => {
    const lanes = from.map((t) => Array.from({ length: n }, (_, i) => numbers(t)[start + i * step]));
    f(...lanes).forEach((v, i) => (out.data[start + i * step] = v));
  });
}
const total = (v: readonly number[]): number => v.reduce((a, b) => a + b, 0);
/** Exponentials over the largest; NaN anywhere makes all NaN. */
const shiftedExp = (v: readonly number[]): { exps: number[]; max: number } => {
  const max = v.reduce((a, b) => Math.max(a, b), -Infinity);
  return { exps: v.map((x) => Math.exp(x - max)), max };
};

const samples = (): readonly Sample<SoftmaxParams>[] => [
  { inputs: [{ shape: [4, 7] }], params: { dim: 1 } },
  { inputs: [{ shape: [3, 5, 2] }], params: { dim: 0 } },
  { inputs: [{ shape: [2, 3, 33] }], params: { dim: 2 } },
  { inputs: [{ shape: [2, 1500] }], params: { dim: 1 } },
  { inputs: [{ shape: [3, 1] }], params: { dim: 1 } },
];
const twoSamples = (): readonly Sample<SoftmaxParams>[] =>
  samples().map(({ inputs: [x], params }) => ({ inputs: [x, { ...x, domain: [-1, 1] }], params }));
const errors = (op: string) => (): readonly ErrorSample<SoftmaxParams>[] => [
  {
    inputs: [{ shape: [4, 7] }],
    params: { dim: 2 },
    code: 'E_SHAPE',
    says: new RegExp(`${op}: dimension 2 is out of range for rank 2`),
  },
];
const twoErrors = (): readonly ErrorSample<SoftmaxParams>[] => [
  {
    inputs: [{ shape: [4, 7] }, { shape: [4, 6] }],
    params: { dim: 1 },
    code: 'E_SHAPE',
    says: /result \[4, 7\] and gradient \[4, 6\] must have one shape/,
  },
];

export const softmax = rows({
  softmax: kernel({
    family: 'softmax',
    engineParams: ['dim'],
    kernel: { log: false, backward: false },
    formula: 'exp(x - max) / sum(exp(x - max)) along dim',
    dtypes: REALS,
    without: WITHOUT,
    differs: DIFFERS,
    candle: { file: 'reduce.cu', symbol: 'softmax' },
    domain: [-8, 8],
    ulp: ulps(8),
    infer: inferOne('softmax'),
    reference: ([x]: readonly RefTensor[], [out]: readonly RefTensor[], { dim }: SoftmaxParams): void =>
      mapLanes([x], out, dim, (v) => {
        const { exps } = shiftedExp(v);
        const sum = total(exps);
        return exps.map((e) => e / sum);
      }),
    grad: ({ out, grad, params: { dim } }: GradContext<SoftmaxParams>): Grads => [out.softmaxBackward(grad, dim)],
    args: (x: Tensor, dim: number): Call<SoftmaxParams> => ({
      inputs: [x],
      params: { dim: normalizeDim('softmax', dim, x.shape.length) },
    }),
    samples,
    errors: errors('softmax'),
  }),

  logSoftmax: kernel({
    family: 'softmax',
    engineParams: ['dim'],
    kernel: { log: true, backward: false },
    formula: 'x - max - ln(sum(exp(x - max))) along dim',
    dtypes: REALS,
    without: WITHOUT,
    differs: DIFFERS,
    candle: { none: 'a composite there' },
    // Where one element holds nearly all, the result is near 0 and its units are small: the bound is wide for that.
    domain: [-8, 8],
    ulp: ulps(4),
    infer: inferOne('logSoftmax'),
    reference: ([x]: readonly RefTensor[], [out]: readonly RefTensor[], { dim }: SoftmaxParams): void =>
      mapLanes([x], out, dim, (v) => {
        const { exps, max } = shiftedExp(v);
        const log = Math.log(total(exps));
        return v.map((e) => e - max - log);
      }),
    grad: ({ out, grad, params: { dim } }: GradContext<SoftmaxParams>): Grads => [out.logSoftmaxBackward(grad, dim)],
    args: (x: Tensor, dim: number): Call<SoftmaxParams> => ({
      inputs: [x],
      params: { dim: normalizeDim('logSoftmax', dim, x.shape.length) },
    }),
    samples,
    errors: errors('logSoftmax'),
  }),

  softmaxBackward: kernel({
    internal: true,
    family: 'softmax',
    engineParams: ['dim'],
    kernel: { log: false, backward: true },
    formula: 'y * (g - sum(g * y)) for y = softmax(x)',
    dtypes: REALS,
    without: WITHOUT,
    candle: { none: "Candle's fused softmax has no gradient" },
    // g - sum(g * y) cancels; the bound counts units of the largest result.
    domain: [0.01, 1],
    ulp: { bf16: 2, f16: 2, f32: 64, f64: 64 },
    infer: inferTwo('softmaxBackward'),
    reference: ([y, g]: readonly RefTensor[], [out]: readonly RefTensor[], { dim }: SoftmaxParams): void =>
      mapLanes([y, g], out, dim, (ys, gs) => {
        const dot = total(ys.map((v, i) => v * gs[i]));
        return ys.map((v, i) => v * (gs[i] - dot));
      }),
    grad: ({ inputs: [y, g], grad: h, params: { dim }, needs }: GradContext<SoftmaxParams>): Grads => [
      needs(0) ? h.mul(g.sub(g.mul(y).sum([dim], true))).sub(g.mul(h.mul(y).sum([dim], true))) : undefined,
      needs(1) ? y.softmaxBackward(h, dim) : undefined,
    ],
    args: (y: Tensor, grad: Tensor, dim: number): Call<SoftmaxParams> => ({
      inputs: [y, grad],
      params: { dim: normalizeDim('softmaxBackward', dim, y.shape.length) },
    }),
    samples: twoSamples,
    errors: twoErrors,
  }),

  logSoftmaxBackward: kernel({
    internal: true,
    family: 'softmax',
    engineParams: ['dim'],
    kernel: { log: true, backward: true },
    formula: 'g - exp(y) * sum(g) for y = logSoftmax(x)',
    dtypes: REALS,
    without: WITHOUT,
    candle: { none: 'Candle differentiates its composite' },
    domain: [-4, 0],
    ulp: ulps(28),
    infer: inferTwo('logSoftmaxBackward'),
    reference: ([y, g]: readonly RefTensor[], [out]: readonly RefTensor[], { dim }: SoftmaxParams): void =>
      mapLanes([y, g], out, dim, (ys, gs) => {
        const sum = total(gs);
        return ys.map((v, i) => gs[i] - Math.exp(v) * sum);
      }),
    grad: ({ inputs: [y, g], grad: h, params: { dim }, needs }: GradContext<SoftmaxParams>): Grads => [
      needs(0)
        ? h
            .mul(y.exp())
            .mul(g.sum([dim], true))
            .neg()
        : undefined,
      needs(1) ? h.sub(h.mul(y.exp()).sum([dim], true)) : undefined,
    ],
    args: (y: Tensor, grad: Tensor, dim: number): Call<SoftmaxParams> => ({
      inputs: [y, grad],
      params: { dim: normalizeDim('logSoftmaxBackward', dim, y.shape.length) },
    }),
    samples: twoSamples,
    errors: twoErrors,
  }),
});

// Lines, pictures and volumes resized, smoothed and padded axis by axis: what GPUs do of it, and its gradient.
import { REALS } from '../base/dtype.js';
import { ArgumentError, ShapeError } from '../base/errors.js';
import { formatShape, sizeOf } from '../base/shape.js';
import type { Tensor } from '../tensor/tensor.js';
import { eachLane, kernel, numbers, replaceDim, requireWhole } from './kernel-row.js';
import { rows, type Call, type ErrorSample, type GradContext, type Grads, type RefTensor, type Sample } from './op.js';
import { type InputSpec, type Sig, ulps } from './op.js';
import { type TapAxis, type Taps, tapsOf, transposedTaps } from './taps.js';

/** By axes behind batch and channels; the row reads from sizes `from` and makes sizes `to`, or goes back. */
export interface ResampledParams extends Record<string, unknown> {
  readonly rules: readonly TapAxis['rule'][];
  readonly from: readonly number[];
  readonly to: readonly number[];
  readonly steps: readonly number[];
  readonly align: boolean;
  readonly backward: boolean;
}

/** The axes of a call, each as if it stood alone. */
export const axesOf = (p: ResampledParams): TapAxis[] =>
  p.rules.map((rule, i) => ({ rule, from: p.from[i], to: p.to[i], step: p.steps[i], align: p.align }));
/** What makes one axis of the result, whichever way the row goes. */
export const tapsAlong = (axis: TapAxis, backward: boolean): Taps =>
  backward ? transposedTaps(tapsOf(axis), axis.from) : tapsOf(axis);

const s = (...shape: number[]): InputSpec => ({ shape });
/** What the row takes. */
export const resampledBy = (axes: readonly TapAxis[], backward = false): ResampledParams => ({
  rules: axes.map((a) => a.rule),
  from: axes.map((a) => a.from),
  to: axes.map((a) => a.to),
  steps: axes.map((a) => a.step),
  align: axes.some((a) => a.align),
  backward,
});
const axis = (rule: TapAxis['rule'], from: number, to: number, step = from / to, align = false): TapAxis => ({
  ...{ rule, from, to, step, align },
});

export const resampledOps = rows({
  resampled: kernel({
    internal: true,
    serves: 'interpolate',
    family: 'resample',
    kernel: { kind: 'taps' },
    formula: 'every axis behind batch and channels made of weighted elements of its own: resized, smoothed, padded',
    dtypes: REALS,
    without: 'it takes floats of 16 bits and more; cast first',
    candle: { none: 'Candle has none of it' },
    domain: [0.25, 4],
    ulp: ulps(4),
    infer: ([x]: readonly Sig[], p: ResampledParams): readonly Sig[] => {
      const [given, made] = p.backward ? [p.to, p.from] : [p.from, p.to];
      requireWhole('interpolate', 'size', made, 1);
      if (x.shape.length !== given.length + 2 || given.some((n, i) => x.shape[i + 2] !== n))
        throw new ShapeError(
          `interpolate: input ${formatShape(x.shape)} must have a batch, channels and ${formatShape(given)}`,
        );
      if (sizeOf(given) === 0) throw new ArgumentError(`interpolate: input size ${formatShape(given)} holds nothing`);
      return [{ shape: [x.shape[0], x.shape[1], ...made], dtype: x.dtype }];
    },
    reference: ([x]: readonly RefTensor[], [out]: readonly RefTensor[], p: ResampledParams): void => {
      let [shape, data] = [x.shape, numbers(x)];
      axesOf(p).forEach((a, i) => {
        const { starts, places, weights } = tapsAlong(a, p.backward);
        const to = replaceDim(shape, i + 2, starts.length - 1);
        const made = new Array<number>(sizeOf(to)).fill(0);
        const begins: number[] = [];
        eachLane(shape, i + 2, (start) => begins.push(start));
        let lane = 0;
        eachLane(to, i + 2, (start, step, n) => {
          const first = begins[lane++];
          for (let k = 0; k < n; k++)
            for (let t = starts[k]; t < starts[k + 1]; t++)
              made[start + k * step] += data[first + places[t] * step] * weights[t];
        });
        [shape, data] = [to, made];
      });
      for (let i = 0; i < data.length; i++) out.data[i] = data[i];
    },
    grad: ({ grad, params: p }: GradContext<ResampledParams>): Grads => [
      grad.resampled({ ...p, backward: !p.backward }),
    ],
    args: (x: Tensor, p: ResampledParams): Call<ResampledParams> => ({ inputs: [x], params: p }),
    samples: (): readonly Sample<ResampledParams>[] => [
      { inputs: [s(2, 3, 5, 6)], params: resampledBy([axis('bicubic', 5, 8), axis('bicubic', 6, 9)]) },
      { inputs: [s(1, 2, 3, 4)], params: resampledBy([axis('nearest', 3, 7), axis('nearest-exact', 4, 8)]) },
      { inputs: [s(1, 2, 7, 8)], params: resampledBy([axis('nearest', 3, 7), axis('nearest-exact', 4, 8)], true) },
      { inputs: [s(2, 1, 4, 3)], params: resampledBy([axis('reflect', 4, 8, 3), axis('circular', 3, 6, 1)]) },
      { inputs: [s(1, 9, 3, 3, 5)], params: resampledBy([3, 3, 5].map((n) => axis('linear', n, 2 * n - 1))) },
      { inputs: [s(1, 3, 11)], params: resampledBy([axis('smooth-bicubic', 11, 4)]) },
      { inputs: [s(1, 3, 4, 4)], params: resampledBy([axis('smooth-linear', 9, 4), axis('same', 4, 4)], true) },
      { inputs: [s(2, 2, 7, 4)], params: resampledBy([axis('area', 7, 3), axis('replicate', 4, 7, 2)]) },
    ],
    errors: (): readonly ErrorSample<ResampledParams>[] => [
      {
        inputs: [s(2, 3, 5, 6)],
        params: resampledBy([axis('bicubic', 5, 8), axis('bicubic', 7, 9)]),
        code: 'E_SHAPE',
        says: /interpolate: input \[2, 3, 5, 6\] must have a batch, channels and \[5, 7\]/,
      },
    ],
  }),
});

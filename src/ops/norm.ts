// Normalisation: layer and root-mean-square norms over the last dimension as kernels, group and batch norms made of
// them.
import { REALS } from '../base/dtype.js';
import { ArgumentError, ShapeError } from '../base/errors.js';
import { formatShape, sameShape, sizeOf, type Shape } from '../base/shape.js';
import type { Tensor } from '../tensor/tensor.js';
import { composite, kernel, numbers, requireOptions, requireSameDType, requireTensor } from './kernel-row.js';
import { goesOverPlanes } from './plane-norm.js';
import { backward, bentRows, plain } from './norm-gradients.js';
import {
  rows,
  type Call,
  type CompositeErrorSample,
  type CompositeSample,
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
    /** Whether the mean is taken away first (layer), and whether the row is the gradient: of x alone, or of all. */
    norm: { readonly kind: 'layer' | 'rms'; readonly backward: boolean; readonly weights?: true };
  }
}

export interface NormParams extends Record<string, unknown> {
  readonly eps: number;
  /** Whether inputs hold a weight (after x, or after x and the gradient) and a bias (last). */
  readonly weight: boolean;
  readonly bias: boolean;
}
/** What layerNorm, rmsNorm and groupNorm take. */
export interface NormOptions {
  /** Added to the variance or mean square; default 1e-5. */
  readonly eps?: number;
}
/** What batchNorm takes. */
export interface BatchNormOptions extends NormOptions {
  /** Given statistics, one value per channel; without them those of the batch are used. */
  readonly mean?: Tensor;
  /** Variances to use in the place of the batch's own. */
  readonly var?: Tensor;
}

const WITHOUT = 'norms are defined for floats of 16 bits and more; cast first';
// x - mean cancels near the mean; bounds count units of the largest result.
const ULP = { bf16: 2, f16: 2, f32: 32, f64: 32 } as const;
const DIFFERS =
  'It has a gradient, takes any layout, sums f64 in f64 and finds the variance in two passes (Candle: f32, E[x^2] ' +
  '- E[x]^2).';

function inferNorm(op: string, inputs: readonly Sig[], p: NormParams): Sig[] {
  const [x] = inputs;
  requireSameDType(op, inputs);
  if (!(p.eps >= 0) || !Number.isFinite(p.eps))
    throw new ArgumentError(`${op}: eps ${p.eps} is not a finite number from 0`);
  if (x.shape.length === 0) throw new ShapeError(`${op}: a rank-0 tensor has no last dimension to normalise`);
  const width = x.shape[x.shape.length - 1];
  for (const s of inputs.slice(inputs.length - Number(p.weight) - Number(p.bias))) {
    if (s.shape.length !== 1 || s.shape[0] !== width) {
      throw new ShapeError(
        `${op}: weight and bias must be [${width}], the last dimension of ${formatShape(x.shape)}, not ` +
          `${formatShape(s.shape)}`,
      );
    }
  }
  return [x];
}

function inferBackward(op: string, inputs: readonly Sig[], p: NormParams): Sig[] {
  const [x, g] = inputs;
  if (!sameShape(x.shape, g.shape))
    throw new ShapeError(
      `${op}: input ${formatShape(x.shape)} and gradient ${formatShape(g.shape)} must have one shape`,
    );
  return inferNorm(op, inputs, p);
}

const mean = (v: readonly number[]): number => v.reduce((a, b) => a + b, 0) / v.length;
/** A row's normalised values and the factor that made them. */
function normalise(row: readonly number[], eps: number, centre: boolean): { y: number[]; r: number } {
  const m = centre ? mean(row) : 0;
  const r = 1 / Math.sqrt(mean(row.map((v) => (v - m) ** 2)) + eps);
  return { y: row.map((v) => (v - m) * r), r };
}

function eachRow(x: RefTensor, visit: (start: number, row: number[]) => void): void {
  const n = x.shape[x.shape.length - 1];
  for (let at = 0, size = sizeOf(x.shape); at < size; at += n) visit(at, numbers(x).slice(at, at + n));
}

function referenceNorm(
  inputs: readonly RefTensor[],
  [out]: readonly RefTensor[],
  p: NormParams,
  centre: boolean,
): void {
  const weight = p.weight ? numbers(inputs[1]) : undefined;
  const bias = p.bias ? numbers(inputs[inputs.length - 1]) : undefined;
  eachRow(inputs[0], (at, row) =>
    normalise(row, p.eps, centre).y.forEach((y, i) => (out.data[at + i] = y * (weight?.[i] ?? 1) + (bias?.[i] ?? 0))),
  );
}

/**
 * dx = r (g - mean(g) - y mean(g y)) for g the gradient times the weight; without centring the middle term is absent.
 */
function referenceBackward(
  [x, grad, w]: readonly RefTensor[],
  [out]: readonly RefTensor[],
  p: NormParams,
  centre: boolean,
): void {
  eachRow(x, (at, row) => {
    const { y, r } = normalise(row, p.eps, centre);
    const g = row.map((_, i) => numbers(grad)[at + i] * (p.weight ? numbers(w)[i] : 1));
    const shift = centre ? mean(g) : 0;
    const slope = mean(g.map((v, i) => v * y[i]));
    g.forEach((v, i) => (out.data[at + i] = r * (v - shift - y[i] * slope)));
  });
}

const leading = (x: Tensor): number[] => x.shape.slice(1).map((_, i) => i);
function normGrads({ inputs, grad, params: p, needs }: GradContext<NormParams>, centre: boolean): Grads {
  const [x] = inputs;
  const w = p.weight ? inputs[1] : undefined;
  const last = inputs.length - 1;
  return inputs.map((_, i) => {
    if (!needs(i)) return undefined;
    if (i === 0) return backward(x, grad, p.eps, centre, w);
    return p.bias && i === last
      ? grad.sum(leading(x), false)
      : grad.mul(plain(x, p.eps, centre)).sum(leading(x), false);
  });
}

/** Gradients of <h, J(x) (w g)>, where the norm's Jacobian J is symmetric. */
function backwardGrads(
  { inputs: [x, g, w], grad: h, params: p, needs }: GradContext<NormParams>,
  centre: boolean,
): Grads {
  const jh = needs(1) || (p.weight && needs(2)) ? backward(x, h, p.eps, centre) : undefined;
  return [
    needs(0) ? bentRows(x, w ? g.mul(w) : g, h, p.eps, centre) : undefined,
    needs(1) ? (w ? jh?.mul(w) : jh) : undefined,
    w && needs(2) ? jh?.mul(g).sum(leading(x), false) : undefined,
  ].slice(0, w ? 3 : 2);
}

function normCall(op: string, inputs: readonly (Tensor | undefined)[], options: NormOptions): Call<NormParams> {
  requireOptions(op, options, ['eps']);
  const [, weight, bias] = inputs;
  return {
    inputs: inputs.filter((t): t is Tensor => t !== undefined),
    params: { eps: options.eps ?? 1e-5, weight: weight !== undefined, bias: bias !== undefined },
  };
}

function backwardCall(
  op: string,
  x: Tensor,
  grad: Tensor,
  weight: Tensor | undefined,
  options: NormOptions,
): Call<NormParams> {
  requireOptions(op, options, ['eps']);
  return {
    inputs: weight ? [x, grad, weight] : [x, grad],
    params: { eps: options.eps ?? 1e-5, weight: weight !== undefined, bias: false },
  };
}

const of = (weight: boolean, bias: boolean, eps = 1e-5): NormParams => ({ eps, weight, bias });
const shapes = (...list: Shape[]): InputSpec[] => list.map((shape) => ({ shape }));
const rmsSamples = (): readonly Sample<NormParams>[] => [
  { inputs: shapes([4, 7], [7]), params: of(true, false) },
  { inputs: shapes([2, 3, 33]), params: of(false, false, 1e-3) },
  { inputs: shapes([3, 1500], [1500]), params: of(true, false, 1e-6) },
  { inputs: shapes([5], [5]), params: of(true, false) },
];
const layerSamples = (): readonly Sample<NormParams>[] => [
  ...rmsSamples(),
  { inputs: shapes([4, 7], [7], [7]), params: of(true, true) },
  { inputs: shapes([2, 2, 9], [9]), params: of(false, true) },
];
const backwardSamples = (): readonly Sample<NormParams>[] =>
  rmsSamples().map(({ inputs: [x, ...w], params }) => ({ inputs: [x, x, ...w], params }));
const errors = (): readonly ErrorSample<NormParams>[] => [
  {
    inputs: shapes([4, 7], [6]),
    params: of(true, false),
    code: 'E_SHAPE',
    says: /must be \[7\], the last dimension of \[4, 7\], not \[6\]/,
  },
  { inputs: shapes([4, 7]), params: of(false, false, -1), code: 'E_ARGUMENT', says: /eps -1/ },
  { inputs: shapes([]), params: of(false, false), code: 'E_SHAPE', says: /rank-0 tensor has no last dimension/ },
];
const backwardErrors = (): readonly ErrorSample<NormParams>[] => [
  {
    inputs: shapes([4, 7], [4, 6]),
    params: of(false, false),
    code: 'E_SHAPE',
    says: /input \[4, 7\] and gradient \[4, 6\] must have one shape/,
  },
];

/** 16-bit floats pass through a composite in f32 and are rounded once. */
const isSmall = (x: Tensor): boolean => x.dtype === 'f16' || x.dtype === 'bf16';
const f32 = (t: Tensor | undefined): Tensor | undefined => t?.cast('f32');

/** A vector over the channels, dimension 1, shaped to broadcast over x. */
function perChannel(op: string, x: Tensor, v: Tensor): Tensor {
  if (v.shape.length !== 1 || v.shape[0] !== x.shape[1]) {
    throw new ShapeError(
      `${op}: ${formatShape(v.shape)} must be [${x.shape[1]}], one value per channel of ${formatShape(x.shape)}`,
    );
  }
  return v.reshape([x.shape[1], ...x.shape.slice(2).map(() => 1)]);
}
function affineChannels(
  op: string,
  x: Tensor,
  y: Tensor,
  weight: Tensor | undefined,
  bias: Tensor | undefined,
): Tensor {
  requireTensor(op, 'weight', weight);
  requireTensor(op, 'bias', bias);
  const scaled = weight ? y.mul(perChannel(op, x, weight)) : y;
  return bias ? scaled.add(perChannel(op, x, bias)) : scaled;
}

/** A statistic a channel (0 groups), or a group of channels of each sample, by a kernel of GPUs. */
function overPlanes(
  op: string,
  x: Tensor,
  weight: Tensor | undefined,
  bias: Tensor | undefined,
  groups: number,
  eps: number,
): Tensor {
  requireTensor(op, 'weight', weight);
  requireTensor(op, 'bias', bias);
  for (const v of [weight, bias]) if (v) perChannel(op, x, v);
  return x.planeNorm(f32(weight), f32(bias), groups, eps)[0];
}

export const norm = rows({
  layerNorm: kernel({
    family: 'norm',
    kernel: { kind: 'layer', backward: false },
    formula: '(x - mean) / sqrt(variance + eps) * weight + bias over the last dimension',
    dtypes: REALS,
    without: WITHOUT,
    differs: DIFFERS,
    domain: [-2, 2],
    ulp: ULP,
    candle: { file: 'reduce.cu', symbol: 'layernorm' },
    infer: (inputs: readonly Sig[], p: NormParams): readonly Sig[] => inferNorm('layerNorm', inputs, p),
    reference: (inputs: readonly RefTensor[], outputs: readonly RefTensor[], p: NormParams): void =>
      referenceNorm(inputs, outputs, p, true),
    grad: (ctx: GradContext<NormParams>): Grads => normGrads(ctx, true),
    gradReads: [0, 1, 2],
    cheap: true,
    args: (x: Tensor, weight?: Tensor, bias?: Tensor, options: NormOptions = {}): Call<NormParams> =>
      normCall('layerNorm', [x, weight, bias], options),
    samples: layerSamples,
    errors,
  }),

  rmsNorm: kernel({
    family: 'norm',
    kernel: { kind: 'rms', backward: false },
    formula: 'x / sqrt(mean(x^2) + eps) * weight over the last dimension',
    dtypes: REALS,
    without: WITHOUT,
    differs: DIFFERS,
    domain: [-2, 2],
    ulp: ULP,
    candle: { file: 'reduce.cu', symbol: 'rmsnorm' },
    infer: (inputs: readonly Sig[], p: NormParams): readonly Sig[] => inferNorm('rmsNorm', inputs, p),
    reference: (inputs: readonly RefTensor[], outputs: readonly RefTensor[], p: NormParams): void =>
      referenceNorm(inputs, outputs, p, false),
    grad: (ctx: GradContext<NormParams>): Grads => normGrads(ctx, false),
    gradReads: [0, 1, 2],
    cheap: true,
    args: (x: Tensor, weight?: Tensor, options: NormOptions = {}): Call<NormParams> =>
      normCall('rmsNorm', [x, weight], options),
    samples: rmsSamples,
    errors,
  }),

  layerNormBackward: kernel({
    internal: true,
    family: 'norm',
    kernel: { kind: 'layer', backward: true },
    formula: 'r (g - mean(g) - y mean(g y)) for g = weight * grad, y the normalised x and r its factor',
    dtypes: REALS,
    without: WITHOUT,
    domain: [-2, 2],
    ulp: ulps(36, 8),
    candle: { none: "Candle's fused norm has no gradient" },
    infer: (inputs: readonly Sig[], p: NormParams): readonly Sig[] => inferBackward('layerNormBackward', inputs, p),
    reference: (inputs: readonly RefTensor[], outputs: readonly RefTensor[], p: NormParams): void =>
      referenceBackward(inputs, outputs, p, true),
    grad: (ctx: GradContext<NormParams>): Grads => backwardGrads(ctx, true),
    args: (x: Tensor, grad: Tensor, weight?: Tensor, options: NormOptions = {}): Call<NormParams> =>
      backwardCall('layerNormBackward', x, grad, weight, options),
    samples: backwardSamples,
    errors: backwardErrors,
  }),

  rmsNormBackward: kernel({
    internal: true,
    family: 'norm',
    kernel: { kind: 'rms', backward: true },
    formula: 'r (g - y mean(g y)) for g = weight * grad, y the normalised x and r its factor',
    dtypes: REALS,
    without: WITHOUT,
    domain: [-2, 2],
    ulp: ulps(70, 2),
    candle: { none: "Candle's fused norm has no gradient" },
    infer: (inputs: readonly Sig[], p: NormParams): readonly Sig[] => inferBackward('rmsNormBackward', inputs, p),
    reference: (inputs: readonly RefTensor[], outputs: readonly RefTensor[], p: NormParams): void =>
      referenceBackward(inputs, outputs, p, false),
    grad: (ctx: GradContext<NormParams>): Grads => backwardGrads(ctx, false),
    args: (x: Tensor, grad: Tensor, weight?: Tensor, options: NormOptions = {}): Call<NormParams> =>
      backwardCall('rmsNormBackward', x, grad, weight, options),
    samples: backwardSamples,
    errors: backwardErrors,
  }),

  groupNorm: composite({
    formula: 'layer norm over each group of channels, then weight and bias per channel',
    dtypes: REALS,
    without: WITHOUT,
    domain: [-2, 2],
    ulp: ulps(12),
    candle: { none: 'a composite there too' },
    compose: (x: Tensor, groups: number, weight?: Tensor, bias?: Tensor, options: NormOptions = {}): Tensor => {
      requireOptions('groupNorm', options, ['eps']);
      if (x.shape.length < 2)
        throw new ShapeError(`groupNorm: ${formatShape(x.shape)} has no channels; it takes (batch, channels, ...)`);
      if (!Number.isInteger(groups) || groups < 1 || x.shape[1] % groups !== 0) {
        throw new ArgumentError(`groupNorm: ${x.shape[1]} channels do not divide into ${groups} groups`);
      }
      if (goesOverPlanes(x)) return overPlanes('groupNorm', x, weight, bias, groups, options.eps ?? 1e-5);
      if (isSmall(x)) return x.cast('f32').groupNorm(groups, f32(weight), f32(bias), options).cast(x.dtype);
      const width = sizeOf(x.shape.slice(1)) / groups;
      const y = x.reshape([x.shape[0], groups, width]).layerNorm(undefined, undefined, options).reshape(x.shape);
      return affineChannels('groupNorm', x, y, weight, bias);
    },
    samples: (): readonly CompositeSample[] => [
      { inputs: shapes([2, 6, 5], [6], [6]), args: [3, { input: 1 }, { input: 2 }] },
      { inputs: shapes([2, 4, 3, 3]), args: [2] },
    ],
    errors: (): readonly CompositeErrorSample[] => [
      { inputs: shapes([2, 6, 5]), args: [4], code: 'E_ARGUMENT', says: /6 channels do not divide into 4 groups/ },
      {
        inputs: shapes([2, 6, 5], [5]),
        args: [3, { input: 1 }],
        code: 'E_SHAPE',
        says: /\[5\] must be \[6\], one value per channel/,
      },
    ],
  }),

  batchNorm: composite({
    formula: '(x - mean) / sqrt(variance + eps) per channel, then weight and bias per channel',
    dtypes: REALS,
    without: WITHOUT,
    domain: [-2, 2],
    ulp: ulps(12),
    candle: { none: 'a composite there too' },
    compose: (x: Tensor, weight?: Tensor, bias?: Tensor, options: BatchNormOptions = {}): Tensor => {
      const op = 'batchNorm';
      requireOptions(op, options, ['eps', 'mean', 'var']);
      if (x.shape.length < 2)
        throw new ShapeError(`${op}: ${formatShape(x.shape)} has no channels; it takes (batch, channels, ...)`);
      if ((options.mean === undefined) !== (options.var === undefined))
        throw new ArgumentError(`${op}: mean and var go together; only one was given`);
      const eps = options.eps ?? 1e-5;
      if (!options.mean && goesOverPlanes(x)) return overPlanes(op, x, weight, bias, 0, eps);
      if (isSmall(x)) {
        const given =
          options.mean && options.var ? { mean: options.mean.cast('f32'), var: options.var.cast('f32') } : {};
        return x
          .cast('f32')
          .batchNorm(f32(weight), f32(bias), { eps, ...given })
          .cast(x.dtype);
      }
      if (options.mean && options.var) {
        const y = x.sub(perChannel(op, x, options.mean)).mul(perChannel(op, x, options.var.affine(1, eps).rsqrt()));
        return affineChannels(op, x, y, weight, bias);
      }
      // A channel's values over the whole batch are one row of a layer norm.
      const swap = [1, 0, ...x.shape.slice(2).map((_, i) => i + 2)];
      const [n, c, ...space] = x.shape;
      const y = x
        .permute(swap)
        .reshape([c, n * sizeOf(space)])
        .layerNorm(undefined, undefined, { eps })
        .reshape([c, n, ...space])
        .permute(swap);
      return affineChannels(op, x, y, weight, bias);
    },
    samples: (): readonly CompositeSample[] => [
      { inputs: shapes([4, 3, 5], [3], [3]), args: [{ input: 1 }, { input: 2 }] },
      { inputs: shapes([6, 2]), args: [] },
    ],
    errors: (): readonly CompositeErrorSample[] => [
      {
        inputs: shapes([4, 3, 5], [4]),
        args: [{ input: 1 }],
        code: 'E_SHAPE',
        says: /\[4\] must be \[3\], one value per channel/,
      },
      { inputs: shapes([4]), args: [], code: 'E_SHAPE', says: /has no channels/ },
    ],
  }),
});

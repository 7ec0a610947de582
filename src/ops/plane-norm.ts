// Batch norms and group norms as GPUs do them: over planes as they lie, with their statistics beside the result.
import type { DType } from '../base/dtype.js';
import { ArgumentError, DTypeError, ShapeError } from '../base/errors.js';
import { formatShape, sameShape, sizeOf, type Shape } from '../base/shape.js';
import type { Tensor } from '../tensor/tensor.js';
import { type Kernel, kernel, numbers } from './kernel-row.js';
import { bentRows } from './norm-gradients.js';
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
} from './op.js';

declare module './op.js' {
  interface KernelFacts {
    /** Norms over planes, or their gradients. */
    planes: { readonly backward: boolean };
  }
}

export interface PlaneNormParams extends Record<string, unknown> {
  readonly eps: number;
  /** Groups of channels that share a statistic in each sample; 0: a statistic a channel over all samples. */
  readonly groups: number;
  readonly weight: boolean;
  readonly bias: boolean;
}

export const PLANE_DTYPES = ['f32', 'f16', 'bf16'] as const satisfies readonly DType[];
/** Smaller planes leave most of a block idle. */
const LEAST = 32;
/** Whether the norm of x goes over its planes. */
export const goesOverPlanes = (x: Tensor): boolean =>
  x.device.backend.gpu !== undefined &&
  PLANE_DTYPES.some((d) => d === x.dtype) &&
  x.size > 0 &&
  sizeOf(x.shape.slice(2)) >= LEAST;

type Many<A extends readonly unknown[]> = Kernel<A, PlaneNormParams> & { readonly many: true };
const many = <A extends readonly unknown[]>(row: Kernel<A, PlaneNormParams>): Many<A> => ({
  ...kernel(row),
  many: true,
});

const statsOf = (shape: Shape, { groups }: PlaneNormParams): number => (groups === 0 ? shape[1] : shape[0] * groups);
/** Which statistic element i belongs to, and which channel. */
function belongs(shape: Shape, { groups }: PlaneNormParams): (i: number) => { stat: number; channel: number } {
  const [, c] = shape;
  const space = sizeOf(shape.slice(2));
  return (i) => {
    const plane = Math.floor(i / space);
    const [sample, channel] = [Math.floor(plane / c), plane % c];
    return { stat: groups === 0 ? channel : sample * groups + Math.floor((channel * groups) / c), channel };
  };
}

function requirePlanes(op: string, x: Sig, p: PlaneNormParams, perChannel: readonly Sig[], perStat: readonly Sig[]) {
  if (x.shape.length < 2)
    throw new ShapeError(`${op}: ${formatShape(x.shape)} has no channels; it takes (batch, channels, ...)`);
  const [, c] = x.shape;
  if (!Number.isInteger(p.groups) || p.groups < 0 || (p.groups > 0 && c % p.groups !== 0))
    throw new ArgumentError(`${op}: ${c} channels do not divide into ${p.groups} groups`);
  for (const [list, size, what] of [
    [perChannel, c, 'channel'],
    [perStat, statsOf(x.shape, p), 'statistic'],
  ] as const)
    for (const t of list) {
      if (t.dtype !== 'f32') throw new DTypeError(`${op}: numbers of each ${what} are ${t.dtype}; they must be f32`);
      if (!sameShape(t.shape, [size]))
        throw new ShapeError(`${op}: ${formatShape(t.shape)} must be [${size}], one value per ${what}`);
    }
}

/** Means and variances in double. */
function statistics(x: RefTensor, p: PlaneNormParams): { mean: number[]; variance: number[] } {
  const count = statsOf(x.shape, p);
  const of = belongs(x.shape, p);
  const each = numbers(x).length / count;
  const add = (f: (v: number, stat: number) => number): number[] => {
    const sums = new Array<number>(count).fill(0);
    numbers(x).forEach((v, i) => {
      const { stat } = of(i);
      sums[stat] += f(v, stat) / each;
    });
    return sums;
  };
  const mean = add((v) => v);
  return { mean, variance: add((v, stat) => (v - mean[stat]) ** 2) };
}

/** x as rows of a statistic each, and back. */
function rowsOf(x: Tensor, { groups }: PlaneNormParams): Tensor {
  const [n, c] = x.shape;
  const flat = x.reshape([n, c, -1]);
  return groups === 0 ? flat.permute([1, 0, 2]).reshape([c, -1]) : flat.reshape([n * groups, -1]);
}
function planesOf(t: Tensor, shape: Shape, { groups }: PlaneNormParams): Tensor {
  const [n, c] = shape;
  return groups === 0 ? t.reshape([c, n, -1]).permute([1, 0, 2]).reshape(shape) : t.reshape(shape);
}
const perChannel = (t: Tensor, { shape }: Tensor): Tensor => t.reshape([shape[1], ...shape.slice(2).map(() => 1)]);
const overChannels = (t: Tensor): Tensor =>
  t.sum(
    t.shape.map((_, i) => i).filter((i) => i !== 1),
    false,
  );

/**
 * Gradients of the gradients, by layer norms of the rows: for a = weight g they are those of layerNormBackward, and the
 * sums of channels are of g and of g times the normalised x.
 */
function secondGrads({ inputs, grads, params: p, needs }: GradContext<PlaneNormParams>): Grads {
  const [x0, g0, , , w] = inputs;
  const [x, g] = [x0.cast('f32'), g0.cast('f32')];
  const by = (t: Tensor): Tensor => (w ? t.mul(perChannel(w, x)) : t);
  const eps = { eps: p.eps };
  const lines = rowsOf(x, p);
  const back = (t: Tensor): Tensor => planesOf(lines.layerNormBackward(rowsOf(t, p), undefined, eps), x.shape, p);
  const [h, hw, hb] = [grads[0]?.cast('f32'), grads[1], grads[2]];
  const normal = (): Tensor => planesOf(lines.layerNorm(undefined, undefined, eps), x.shape, p);
  const sum = (...parts: (Tensor | undefined)[]): Tensor => {
    const given = parts.filter((t): t is Tensor => t !== undefined);
    return given.length > 0 ? given.reduce((a, b) => a.add(b)) : x.zerosLike();
  };
  const jh = h && (needs(1) || needs(4)) ? back(h) : undefined;
  const dx = (): Tensor =>
    sum(
      h && planesOf(bentRows(lines, rowsOf(by(g), p), rowsOf(h, p), p.eps, true), x.shape, p),
      hw && back(g.mul(perChannel(hw, x))),
    );
  const dg = (): Tensor =>
    sum(jh && by(jh), hw && normal().mul(perChannel(hw, x)), hb && perChannel(hb, x).broadcastTo(x.shape));
  const means = [undefined, undefined]; // they are x's, whose gradient has their part
  return [
    needs(0) ? dx().cast(x0.dtype) : undefined,
    needs(1) ? dg().cast(g0.dtype) : undefined,
    ...means,
    ...(w ? [jh && needs(4) ? overChannels(jh.mul(g)) : needs(4) ? w.zerosLike() : undefined] : []),
  ];
}

const s = (...shape: number[]): InputSpec => ({ shape });
const f = (...shape: number[]): InputSpec => ({ shape, dtype: 'f32' });
/** Variances are above 0. */
const above = (...shape: number[]): InputSpec => ({ shape, dtype: 'f32', domain: [0.25, 2] });
const of = (groups: number, weight: boolean, bias = weight): PlaneNormParams => ({ eps: 1e-5, groups, weight, bias });
const FACTS = {
  internal: true,
  family: 'planes',
  mixed: true,
  dtypes: PLANE_DTYPES,
  without: 'sums are f32, and f64 asks for more',
  candle: { none: 'Candle has none of it' },
  domain: [-2, 2],
} as const;

export const planeNormOps = rows({
  planeNorm: many({
    ...FACTS,
    serves: 'batchNorm',
    kernel: { backward: false },
    formula:
      '(x - mean) / sqrt(variance + eps) * weight + bias of each channel, or group of channels of a sample, and the ' +
      'means and variances (f32)',
    ulp: { f32: 32, f16: 3, bf16: 3 },
    infer: ([x, ...rest]: readonly Sig[], p: PlaneNormParams): readonly Sig[] => {
      requirePlanes('batchNorm', x, p, rest, []);
      const stats: Sig = { shape: [statsOf(x.shape, p)], dtype: 'f32' };
      return [x, stats, stats];
    },
    reference: (
      inputs: readonly RefTensor[],
      [y, means, variances]: readonly RefTensor[],
      p: PlaneNormParams,
    ): void => {
      const [x, ...rest] = inputs;
      const { mean, variance } = statistics(x, p);
      const weight = p.weight ? numbers(rest[0]) : undefined;
      const bias = p.bias ? numbers(rest[rest.length - 1]) : undefined;
      const at = belongs(x.shape, p);
      numbers(x).forEach((v, i) => {
        const { stat, channel } = at(i);
        y.data[i] =
          ((v - mean[stat]) / Math.sqrt(variance[stat] + p.eps)) * (weight?.[channel] ?? 1) + (bias?.[channel] ?? 0);
      });
      mean.forEach((v, i) => (means.data[i] = v));
      variance.forEach((v, i) => (variances.data[i] = v));
    },
    grad: ({ inputs, outputs, grads, params: p, needs }: GradContext<PlaneNormParams>): Grads => {
      const [x, ...rest] = inputs;
      const [grad] = grads;
      if (!grad) return inputs.map(() => undefined);
      const [dx, dweight, dbias] = x.planeNormBackward(grad, outputs[1], outputs[2], p.weight ? rest[0] : undefined, p);
      const all = [dx, ...(p.weight ? [dweight] : []), ...(p.bias ? [dbias] : [])];
      return all.map((t, i) => (needs(i) ? t : undefined));
    },
    args: (
      x: Tensor,
      weight: Tensor | undefined,
      bias: Tensor | undefined,
      groups: number,
      eps: number,
    ): Call<PlaneNormParams> => ({
      inputs: [x, weight, bias].filter((t) => t !== undefined),
      params: { eps, groups, weight: weight !== undefined, bias: bias !== undefined },
    }),
    samples: (): readonly Sample<PlaneNormParams>[] => [
      { inputs: [s(3, 4, 5), f(4), f(4)], params: of(0, true) },
      { inputs: [s(2, 6, 3, 4), f(6)], params: of(3, true, false) },
      { inputs: [s(2, 2, 4, 10)], params: of(1, false) },
    ],
    errors: (): readonly ErrorSample<PlaneNormParams>[] => [
      {
        inputs: [s(3, 4, 5), f(5)],
        params: of(0, true, false),
        code: 'E_SHAPE',
        says: /\[5\] must be \[4\], one value/,
      },
      {
        inputs: [s(3, 4, 5)],
        params: of(3, false),
        code: 'E_ARGUMENT',
        says: /4 channels do not divide into 3 groups/,
      },
    ],
  }),
  planeNormBackward: many({
    ...FACTS,
    serves: 'batchNorm',
    kernel: { backward: true },
    formula:
      'r (g - mean(g) - y mean(g y)) for g = weight * grad, and the sums over channels of grad y and of grad (f32)',
    ulp: { f32: 512, f16: 64, bf16: 64 },
    loose: 'sums of gradients cancel',
    infer: ([x, g, mean, variance, ...weight]: readonly Sig[], p: PlaneNormParams): readonly Sig[] => {
      if (!sameShape(x.shape, g.shape) || x.dtype !== g.dtype)
        throw new ShapeError(
          `batchNorm: input ${formatShape(x.shape)} and gradient ${formatShape(g.shape)} must have one shape and dtype`,
        );
      requirePlanes('batchNorm', x, p, weight, [mean, variance]);
      const sums: Sig = { shape: [x.shape[1]], dtype: 'f32' };
      return [x, sums, sums];
    },
    reference: (
      [x, grad, mean, variance, weight]: readonly RefTensor[],
      [dx, dweight, dbias]: readonly RefTensor[],
      p: PlaneNormParams,
    ): void => {
      const at = belongs(x.shape, p);
      const stats = statsOf(x.shape, p);
      const [sums, slopes] = [0, 1].map(() => new Array<number>(stats).fill(0));
      const each = numbers(x).length / stats;
      const r = numbers(variance).map((v) => 1 / Math.sqrt(v + p.eps));
      const y = numbers(x).map((v, i) => (v - numbers(mean)[at(i).stat]) * r[at(i).stat]);
      const g = numbers(grad).map((v, i) => v * (weight ? numbers(weight)[at(i).channel] : 1));
      for (const t of [dweight, dbias]) t.data.fill(0);
      g.forEach((v, i) => {
        const { stat, channel } = at(i);
        sums[stat] += v / each;
        slopes[stat] += (v * y[i]) / each;
        numbers(dweight)[channel] += numbers(grad)[i] * y[i];
        numbers(dbias)[channel] += numbers(grad)[i];
      });
      g.forEach((v, i) => {
        const { stat } = at(i);
        dx.data[i] = r[stat] * (v - sums[stat] - y[i] * slopes[stat]);
      });
    },
    grad: secondGrads,
    args: (
      x: Tensor,
      grad: Tensor,
      mean: Tensor,
      variance: Tensor,
      weight: Tensor | undefined,
      p: PlaneNormParams,
    ): Call<PlaneNormParams> => ({
      inputs: [x, grad, mean, variance, ...(weight ? [weight] : [])],
      params: { eps: p.eps, groups: p.groups, weight: weight !== undefined, bias: false },
    }),
    samples: (): readonly Sample<PlaneNormParams>[] => [
      { inputs: [s(3, 4, 5), s(3, 4, 5), f(4), above(4), f(4)], params: of(0, true, false) },
      { inputs: [s(2, 6, 3, 4), s(2, 6, 3, 4), f(6), above(6)], params: of(3, false) },
    ],
    errors: (): readonly ErrorSample<PlaneNormParams>[] => [
      {
        inputs: [s(3, 4, 5), s(3, 4, 4), f(4), f(4)],
        params: of(0, false),
        code: 'E_SHAPE',
        says: /input \[3, 4, 5\] and gradient \[3, 4, 4\] must have one shape/,
      },
    ],
  }),
});

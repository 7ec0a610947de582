// Average and maximum over sliding windows of pictures (batch, channels, height, width).
import { isFloat, REALS } from '../base/dtype.js';
import { ArgumentError, DTypeError, ShapeError } from '../base/errors.js';
import { formatShape, pair, sameShape, type Shape } from '../base/shape.js';
import type { Tensor } from '../tensor/tensor.js';
import { composite, kernel, numbers, requireRank, requireWhole, zeroOf } from './kernel-row.js';
import {
  rows,
  type Call,
  type CompositeErrorSample,
  type CompositeSample,
  type ErrorSample,
  type GradContext,
  type Grads,
  type RefTensor,
  type Sample,
  type Sig,
  ulps,
} from './op.js';
import {
  avgWindows,
  type AvgWindowOptions,
  maxWindows,
  type MaxWindowOptions,
  POOL_OPTIONS,
  poolArguments,
  type Sizes,
  sizesOf,
  type WindowOptions,
} from './window.js';

declare module './op.js' {
  interface KernelFacts {
    /** What is made of a window. */
    pool: { readonly kind: 'avg' | 'max' | 'argmax' | 'back' };
  }
}

/** Pairs are [height, width]. */
export interface PoolParams extends Record<string, unknown> {
  readonly kernel: readonly [number, number];
  readonly stride: readonly [number, number];
  readonly padding: readonly [number, number];
}

const DTYPES = [...REALS, 'u8', 'u32'] as const;
const WITHOUT = 'pooling takes f16, bf16, f32, f64, u8 and u32, as in Candle';
const DIFFERS =
  'Padding is an option, and the gradient exists for every stride (Candle: only where it equals the kernel).';

/** What maxUnpool2d takes. */
export interface UnpoolOptions {
  /** The stride of the pool; default the window's size. */
  readonly stride?: Sizes;
  /** The padding of the pool; default 0. */
  readonly padding?: Sizes;
  /** Height and width of the result, where the pool's windows did not reach all of it. */
  readonly outputSize?: readonly [number, number];
}
/** Options that the kernels lack: views of windows serve them. */
const isPlain = ({ ceilMode = false, dilation = 1, countIncludePad = true, divisorOverride }: WindowOptions): boolean =>
  !ceilMode && countIncludePad && divisorOverride === undefined && [dilation].flat().every((d) => d === 1);

const poolCall =
  (op: string, kind: 'max' | 'avg', known: readonly string[] = POOL_OPTIONS[kind]) =>
  (x: Tensor, size: Sizes, second?: Sizes | WindowOptions, third?: Sizes | WindowOptions): Call<PoolParams> => {
    const { kernel: window, stride, options } = poolArguments(op, 2, known, size, second, third);
    const answer = isPlain(options)
      ? undefined
      : (kind === 'max' ? maxWindows : avgWindows)(op, x, 2, window, stride, options);
    return {
      ...(answer && { answer }),
      inputs: [x],
      params: {
        kernel: pair(op, 'kernel', window),
        stride: pair(op, 'stride', stride),
        padding: pair(op, 'padding', options.padding ?? 0),
      },
    };
  };
/** Lines by the pool of pictures of height 1. */
const linePool =
  (op: 'maxPool1d' | 'avgPool1d', kind: 'max' | 'avg') =>
  (x: Tensor, size: Sizes, second?: Sizes | WindowOptions, third?: Sizes | WindowOptions): Tensor => {
    const { kernel: window, stride, options } = poolArguments(op, 1, POOL_OPTIONS[kind], size, second, third);
    if (!isPlain(options)) return (kind === 'max' ? maxWindows : avgWindows)(op, x, 1, window, stride, options);
    const padding = [0, ...sizesOf(op, 'padding', options.padding ?? 0, 1, 0)];
    const picture = asPicture(op, x);
    const [k, s] = [
      [1, ...window],
      [1, ...stride],
    ];
    return asLine(kind === 'max' ? picture.maxPool2d(k, s, { padding }) : picture.avgPool2d(k, s, { padding }));
  };

function inferPool(op: string, x: Sig, p: PoolParams): number[] {
  requireRank(op, 'input', x.shape, 4, '(batch, channels, height, width)');
  requireWhole(op, 'kernel', p.kernel, 1);
  requireWhole(op, 'stride', p.stride, 1);
  requireWhole(op, 'padding', p.padding, 0);
  const size = p.kernel.map((k, i) => {
    if (2 * p.padding[i] > k)
      throw new ArgumentError(
        `${op}: padding ${p.padding[i]} is more than half the kernel ${k}, so a window could hold nothing else`,
      );
    const padded = x.shape[i + 2] + 2 * p.padding[i];
    if (padded < k)
      throw new ShapeError(
        `${op}: kernel ${formatShape(p.kernel)} is larger than the padded input ${formatShape(x.shape)}`,
      );
    return Math.floor((padded - k) / p.stride[i]) + 1;
  });
  return [x.shape[0], x.shape[1], ...size];
}

/** Calls visit(result position, positions in the input plane, where the plane starts) for every window. */
function eachWindow(
  x: Shape,
  out: Shape,
  p: PoolParams,
  visit: (to: number, inside: readonly number[], plane: number) => void,
): void {
  const [, , H, W] = x;
  const [n, c, h, w] = out;
  for (let plane = 0, to = 0; plane < n * c; plane++)
    for (let y = 0; y < h; y++)
      for (let z = 0; z < w; z++, to++) {
        const inside: number[] = [];
        for (let i = 0; i < p.kernel[0]; i++)
          for (let j = 0; j < p.kernel[1]; j++) {
            const r = y * p.stride[0] + i - p.padding[0];
            const s = z * p.stride[1] + j - p.padding[1];
            if (r >= 0 && r < H && s >= 0 && s < W) inside.push(r * W + s);
          }
        visit(to, inside, plane * H * W);
      }
}

/** Position of a window's first maximum; NaN is passed over, but wins in f16 and bf16: the rule of maximum. */
function firstMax(x: RefTensor, inside: readonly number[], plane: number): number {
  const data = numbers(x);
  const nanWins = x.dtype === 'f16' || x.dtype === 'bf16';
  let best = inside[0];
  for (const at of inside) {
    const v = data[plane + at];
    const b = data[plane + best];
    if (v !== v ? nanWins && b === b : b !== b ? !nanWins : v > b) best = at;
  }
  return best;
}

/** Every input element receives its windows' gradients: a transposed convolution with ones, plane by plane. */
function spreadEvenly(x: Tensor, grad: Tensor, p: PoolParams): Tensor {
  const [n, c, H, W] = x.shape;
  const [, , h, w] = grad.shape;
  const [kh, kw] = p.kernel;
  const rest = (size: number, out: number, i: number): number =>
    size + 2 * p.padding[i] - p.kernel[i] - (out - 1) * p.stride[i];
  return grad
    .reshape([n * c, 1, h, w])
    .convTranspose2d(x.newFull([1, 1, kh, kw], 1, x.dtype), {
      stride: p.stride,
      padding: p.padding,
      outputPadding: [rest(H, h, 0), rest(W, w, 1)],
    })
    .affine(1 / (kh * kw), 0) // after the sum: 1 / 9 rounded to 16 bits would cost more
    .reshape(x.shape);
}

const pooled = (
  kernelSize: [number, number],
  stride: [number, number],
  padding: [number, number] = [0, 0],
): PoolParams => ({ kernel: kernelSize, stride, padding });
const samples = (): readonly Sample<PoolParams>[] => [
  { inputs: [{ shape: [2, 3, 6, 8], distinct: true }], params: pooled([2, 2], [2, 2]) },
  { inputs: [{ shape: [1, 2, 7, 5], distinct: true }], params: pooled([3, 2], [1, 2]) },
  { inputs: [{ shape: [2, 1, 5, 9], distinct: true }], params: pooled([2, 3], [3, 2], [1, 1]) },
  { inputs: [{ shape: [1, 4, 3, 3], distinct: true }], params: pooled([3, 3], [3, 3]) },
];
const errors = (): readonly ErrorSample<PoolParams>[] => [
  {
    inputs: [{ shape: [2, 3, 2, 4] }],
    params: pooled([3, 3], [1, 1]),
    code: 'E_SHAPE',
    says: /kernel \[3, 3\] is larger than the padded input \[2, 3, 2, 4\]/,
  },
  {
    inputs: [{ shape: [3, 5, 4] }],
    params: pooled([2, 2], [1, 1]),
    code: 'E_SHAPE',
    says: /has rank 3; it takes rank 4/,
  },
  { inputs: [{ shape: [2, 3, 5, 4] }], params: pooled([2, 2], [0, 1]), code: 'E_ARGUMENT', says: /stride \[0, 1\]/ },
  {
    inputs: [{ shape: [2, 3, 5, 4] }],
    params: pooled([2, 2], [1, 1], [2, 0]),
    code: 'E_ARGUMENT',
    says: /padding 2 is more than half the kernel 2/,
  },
];

/** Means of `out` windows along a dimension, which overlap where its size is not a multiple of `out`. */
function adaptiveMean(x: Tensor, dim: number, out: number): Tensor {
  const n = x.shape[dim];
  if (n % out === 0) {
    return x.reshape([...x.shape.slice(0, dim), out, n / out, ...x.shape.slice(dim + 1)]).mean([dim + 1]);
  }
  const [first, ...rest] = Array.from({ length: out }, (_, i) => {
    const start = Math.floor((i * n) / out);
    return x.narrow(dim, start, Math.ceil(((i + 1) * n) / out) - start).mean([dim], true);
  });
  return first.cat(rest, dim);
}

/** A line is a picture of height 1. */
const asPicture = (op: string, x: Tensor): Tensor => {
  requireRank(op, 'input', x.shape, 3, '(batch, channels, length)');
  return x.reshape([x.shape[0], x.shape[1], 1, x.shape[2]]);
};
const asLine = (y: Tensor): Tensor => y.reshape([y.shape[0], y.shape[1], y.shape[3]]);
const lineSamples = (): readonly CompositeSample[] => [
  { inputs: [{ shape: [2, 3, 8], distinct: true }], args: [2] },
  { inputs: [{ shape: [1, 2, 9], distinct: true }], args: [3, 2, { padding: 1 }] },
  { inputs: [{ shape: [1, 2, 9], distinct: true }], args: [[3], { stride: [2], padding: [1] }] },
];
const lineErrors = (): readonly CompositeErrorSample[] => [
  { inputs: [{ shape: [3, 8] }], args: [2], code: 'E_SHAPE', says: /input \[3, 8\] has rank 2; it takes rank 3/ },
  { inputs: [{ shape: [2, 3, 8] }], args: [9], code: 'E_SHAPE', says: /is larger than the padded input/ },
];

export const pool = rows({
  avgPool2d: kernel({
    example: 'x.avgPool2d(2)',
    family: 'pool',
    kernel: { kind: 'avg' },
    formula: 'sum of a window / (kernel height * kernel width)',
    dtypes: DTYPES,
    without: WITHOUT,
    candle: { file: 'conv.cu', symbol: 'avg_pool2d' },
    differs:
      `${DIFFERS} The sum of integers does not wrap and its quotient is exact, truncated; f64 divides in ` +
      `f64 (Candle multiplies by a rounded float).`,
    // Positive domain: no cancellation in the sum of a window.
    domain: [0.25, 4],
    ulp: ulps(4),
    infer: ([x]: readonly Sig[], p: PoolParams): readonly Sig[] => [
      { shape: inferPool('avgPool2d', x, p), dtype: x.dtype },
    ],
    reference: ([x]: readonly RefTensor[], [out]: readonly RefTensor[], p: PoolParams): void => {
      const [data, to] = [numbers(x), numbers(out)];
      const zero = zeroOf(x);
      const area = p.kernel[0] * p.kernel[1];
      const count = isFloat(x.dtype) ? area : (BigInt(area) as unknown as number);
      eachWindow(
        x.shape,
        out.shape,
        p,
        (at, inside, plane) => (to[at] = inside.reduce((sum, i) => sum + data[plane + i], zero) / count),
      );
    },
    grad: ({ x, grad, params }: GradContext<PoolParams>): Grads => [spreadEvenly(x, grad, params)],
    args: (
      x: Tensor,
      size: Sizes,
      stride?: Sizes | AvgWindowOptions,
      options?: Sizes | AvgWindowOptions,
    ): Call<PoolParams> => poolCall('avgPool2d', 'avg')(x, size, stride, options),
    samples,
    errors,
  }),

  maxPool2d: kernel({
    example: 'x.maxPool2d(2)',
    family: 'pool',
    kernel: { kind: 'max' },
    formula: 'largest element of a window',
    dtypes: DTYPES,
    without: WITHOUT,
    candle: { file: 'conv.cu', symbol: 'max_pool2d' },
    differs:
      `${DIFFERS} Of equal maxima the first takes the whole gradient, as in PyTorch. NaN is passed over, ` +
      `but wins in f16 and bf16: the rule of maximum.`,
    ulp: 0,
    infer: ([x]: readonly Sig[], p: PoolParams): readonly Sig[] => [
      { shape: inferPool('maxPool2d', x, p), dtype: x.dtype },
    ],
    reference: ([x]: readonly RefTensor[], [out]: readonly RefTensor[], p: PoolParams): void =>
      eachWindow(
        x.shape,
        out.shape,
        p,
        (at, inside, plane) => (out.data[at] = x.data[plane + firstMax(x, inside, plane)]),
      ),
    grad: ({ x, grad, params }: GradContext<PoolParams>): Grads => {
      const [n, c, H, W] = x.shape;
      if (x.device.backend.gpu) return [x.maxPool2dBackward(grad, params)];
      const ids = x.argMaxPool2d(params);
      const flat = [n, c, grad.shape[2] * grad.shape[3]];
      return [
        x
          .newZeros([n, c, H * W], x.dtype)
          .scatterAdd(2, ids.reshape(flat), grad.reshape(flat))
          .reshape(x.shape),
      ];
    },
    args: (
      x: Tensor,
      size: Sizes,
      stride?: Sizes | MaxWindowOptions,
      options?: Sizes | MaxWindowOptions,
    ): Call<PoolParams> => poolCall('maxPool2d', 'max')(x, size, stride, options),
    samples,
    errors,
  }),

  argMaxPool2d: kernel({
    internal: true,
    family: 'pool',
    kernel: { kind: 'argmax' },
    formula: 'row * width + column (u32) of the first largest element of a window',
    dtypes: DTYPES,
    without: WITHOUT,
    candle: { none: 'Candle compares with the upsampled result instead' },
    ulp: 0,
    noGrad: 'the result is an index',
    infer: ([x]: readonly Sig[], p: PoolParams): readonly Sig[] => [
      { shape: inferPool('argMaxPool2d', x, p), dtype: 'u32' },
    ],
    reference: ([x]: readonly RefTensor[], [out]: readonly RefTensor[], p: PoolParams): void =>
      eachWindow(x.shape, out.shape, p, (at, inside, plane) => (out.data[at] = BigInt(firstMax(x, inside, plane)))),
    args: (x: Tensor, p: PoolParams): Call<PoolParams> => ({
      inputs: [x],
      params: { kernel: p.kernel, stride: p.stride, padding: p.padding },
    }),
    samples,
    errors,
  }),

  maxPool2dBackward: kernel({
    internal: true,
    serves: 'maxPool2d',
    family: 'pool',
    kernel: { kind: 'back' },
    formula: 'zeros with what flows back from each window added at its first largest element',
    dtypes: REALS,
    without: 'gradients are floats of 16 bits and more',
    candle: { none: 'Candle compares with the upsampled result instead' },
    domain: [0.25, 4],
    ulp: ulps(4),
    infer: ([x, g]: readonly Sig[], p: PoolParams): readonly Sig[] => {
      const made = inferPool('maxPool2d', x, p);
      if (g.dtype !== x.dtype) throw new DTypeError(`maxPool2d: a gradient of ${g.dtype} for ${x.dtype}`);
      if (!sameShape(g.shape, made))
        throw new ShapeError(`maxPool2d: gradient ${formatShape(g.shape)} is not of shape ${formatShape(made)}`);
      return [x];
    },
    reference: ([x, g]: readonly RefTensor[], [out]: readonly RefTensor[], p: PoolParams): void => {
      out.data.fill(0);
      eachWindow(x.shape, g.shape, p, (at, inside, plane) => {
        numbers(out)[plane + firstMax(x, inside, plane)] += numbers(g)[at];
      });
    },
    grad: ({ x, y: flow, grad, params, needs }: GradContext<PoolParams>): Grads => [
      needs(0) ? x.zerosLike() : undefined,
      needs(1) ? grad.flatten(2).gather(2, x.argMaxPool2d(params).flatten(2)).reshape(flow.shape) : undefined,
    ],
    args: (x: Tensor, grad: Tensor, p: PoolParams): Call<PoolParams> => ({
      inputs: [x, grad],
      params: { kernel: p.kernel, stride: p.stride, padding: p.padding },
    }),
    samples: (): readonly Sample<PoolParams>[] => [
      {
        inputs: [{ shape: [2, 3, 6, 8], distinct: true }, { shape: [2, 3, 3, 4] }],
        params: pooled([2, 2], [2, 2]),
      },
      {
        inputs: [{ shape: [1, 5, 7, 5], distinct: true }, { shape: [1, 5, 7, 3] }],
        params: pooled([3, 3], [1, 2], [1, 1]),
      },
    ],
    errors: (): readonly ErrorSample<PoolParams>[] => [
      {
        inputs: [{ shape: [1, 2, 4, 4] }, { shape: [1, 2, 2, 3] }],
        params: pooled([2, 2], [2, 2]),
        code: 'E_SHAPE',
        says: /maxPool2d: gradient \[1, 2, 2, 3\] is not of shape \[1, 2, 2, 2\]/,
      },
    ],
  }),

  maxPool2dWithIndices: composite({
    formula: '[values, indices]: the largest element of a window, and its row * width + column (i64) for maxUnpool2d',
    dtypes: DTYPES,
    without: WITHOUT,
    candle: { none: 'Candle answers the values alone' },
    ulp: 0,
    compose: (
      x: Tensor,
      size: Sizes,
      stride?: Sizes | Pick<MaxWindowOptions, 'stride' | 'padding'>,
      options?: Sizes | Pick<MaxWindowOptions, 'padding'>,
    ): readonly [values: Tensor, indices: Tensor] => {
      requireRank('maxPool2dWithIndices', 'input', x.shape, 4, '(batch, channels, height, width)');
      const { params } = poolCall('maxPool2dWithIndices', 'max', ['stride', 'padding'])(x, size, stride, options);
      const ids = x.detach().argMaxPool2d(params).cast('i64');
      const [n, c, h, w] = ids.shape;
      const values = x.flatten(2).gather(2, ids.reshape([n, c, h * w]));
      return [values.reshape(ids.shape), ids];
    },
    samples: (): readonly CompositeSample[] => [
      { inputs: [{ shape: [2, 3, 4, 6], distinct: true }], args: [2] },
      { inputs: [{ shape: [1, 2, 5, 5], distinct: true }], args: [3, { stride: 2, padding: 1 }] },
    ],
    errors: (): readonly CompositeErrorSample[] => [
      {
        inputs: [{ shape: [3, 4, 5] }],
        args: [2],
        code: 'E_SHAPE',
        says: /maxPool2dWithIndices: .*rank 3; it takes rank 4/,
      },
    ],
  }),
  maxUnpool2d: composite({
    formula: 'zeros with each value where maxPool2dWithIndices found it; { outputSize } where pooling left rows out',
    dtypes: DTYPES,
    without: WITHOUT,
    candle: { none: 'Candle has none of it' },
    ulp: 0,
    compose: (
      x: Tensor,
      indices: Tensor,
      size: Sizes,
      second?: Sizes | UnpoolOptions,
      third?: Sizes | UnpoolOptions,
    ): Tensor => {
      const known = ['stride', 'padding', 'outputSize'];
      const given = poolArguments<UnpoolOptions>('maxUnpool2d', 2, known, size, second, third);
      const { kernel: window, stride: steps, options } = given;
      requireRank('maxUnpool2d', 'input', x.shape, 4, '(batch, channels, height, width)');
      if (!sameShape(x.shape, indices.shape))
        throw new ShapeError(
          `maxUnpool2d: values ${formatShape(x.shape)} and indices ${formatShape(indices.shape)} must have one shape`,
        );
      const padding = pair('maxUnpool2d', 'padding', options.padding ?? 0);
      const [n, c, ...space] = x.shape;
      const plain = space.map((d, i) => (d - 1) * steps[i] - 2 * padding[i] + window[i]);
      const [h, w] = options.outputSize ?? plain;
      requireWhole('maxUnpool2d', 'outputSize', [h, w], 1);
      const flat = [n, c, space[0] * space[1]];
      const out = x.newZeros([n, c, h * w], x.dtype);
      return out.scatter(2, indices.reshape(flat), x.reshape(flat)).reshape([n, c, h, w]);
    },
    samples: (): readonly CompositeSample[] => [
      {
        inputs: [{ shape: [1, 1, 2, 2] }, { shape: [1, 1, 2, 2], dtype: 'i64', values: [1, 6, 8, 15] }],
        args: [{ input: 1 }, 2],
      },
      {
        inputs: [{ shape: [1, 1, 2, 2] }, { shape: [1, 1, 2, 2], dtype: 'i64', values: [1, 7, 10, 24] }],
        args: [{ input: 1 }, 2, { stride: 2, outputSize: [5, 5] }],
      },
    ],
    errors: (): readonly CompositeErrorSample[] => [
      {
        inputs: [{ shape: [1, 1, 2, 2] }, { shape: [1, 1, 2, 1], dtype: 'i64', values: [0, 1] }],
        args: [{ input: 1 }, 2],
        code: 'E_SHAPE',
        says: /maxUnpool2d: values .* must have one shape/,
      },
    ],
  }),

  avgPool1d: composite({
    formula: 'sum of a window / its length',
    dtypes: DTYPES,
    without: WITHOUT,
    candle: { none: 'Candle pools in two dimensions only' },
    domain: [0.25, 4],
    ulp: ulps(4),
    compose: (x: Tensor, size: Sizes, stride?: Sizes | AvgWindowOptions, options?: Sizes | AvgWindowOptions): Tensor =>
      linePool('avgPool1d', 'avg')(x, size, stride, options),
    samples: lineSamples,
    errors: lineErrors,
  }),

  maxPool1d: composite({
    formula: 'largest element of a window',
    dtypes: DTYPES,
    without: WITHOUT,
    candle: { none: 'Candle pools in two dimensions only' },
    ulp: 0,
    compose: (x: Tensor, size: Sizes, stride?: Sizes | MaxWindowOptions, options?: Sizes | MaxWindowOptions): Tensor =>
      linePool('maxPool1d', 'max')(x, size, stride, options),
    samples: lineSamples,
    errors: lineErrors,
  }),

  globalAvgPool2d: composite({
    formula: 'mean of each channel, as (batch, channels, 1, 1)',
    dtypes: REALS,
    without: 'the mean of integers is not an integer, and f8e4m3 has no arithmetic of its own; cast first',
    candle: { none: 'mean over two dimensions there' },
    domain: [0.25, 4],
    ulp: ulps(4),
    compose: (x: Tensor): Tensor => {
      requireRank('globalAvgPool2d', 'input', x.shape, 4, '(batch, channels, height, width)');
      return x.mean([2, 3], true);
    },
    samples: (): readonly CompositeSample[] => [{ inputs: [{ shape: [2, 3, 4, 5] }], args: [] }],
    errors: (): readonly CompositeErrorSample[] => [
      { inputs: [{ shape: [3, 4, 5] }], args: [], code: 'E_SHAPE', says: /has rank 3; it takes rank 4/ },
    ],
  }),

  adaptiveAvgPool2d: composite({
    formula: 'means of size[0] x size[1] windows from floor(i * in / out) to ceil((i + 1) * in / out)',
    dtypes: REALS,
    without: 'the mean of integers is not an integer, and f8e4m3 has no arithmetic of its own; cast first',
    candle: { none: 'Candle has no adaptive pooling' },
    domain: [0.25, 4],
    ulp: ulps(4),
    compose: (x: Tensor, size: Sizes): Tensor => {
      requireRank('adaptiveAvgPool2d', 'input', x.shape, 4, '(batch, channels, height, width)');
      const [h, w] = pair('adaptiveAvgPool2d', 'size', size);
      requireWhole('adaptiveAvgPool2d', 'size', [h, w], 1);
      return adaptiveMean(adaptiveMean(x, 3, w), 2, h);
    },
    samples: (): readonly CompositeSample[] => [
      { inputs: [{ shape: [2, 3, 6, 8] }], args: [[3, 2]] },
      { inputs: [{ shape: [1, 2, 7, 5] }], args: [[3, 6]] },
    ],
    errors: (): readonly CompositeErrorSample[] => [
      { inputs: [{ shape: [1, 2, 7, 5] }], args: [0], code: 'E_ARGUMENT', says: /size \[0, 0\]/ },
    ],
  }),
});

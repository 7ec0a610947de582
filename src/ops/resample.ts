// Resizing: nearest neighbour in one and two dimensions, bilinear in two.
import { REALS } from '../base/dtype.js';
import { ArgumentError } from '../base/errors.js';
import { fma } from '../base/float.js';
import { sizeOf } from '../base/shape.js';
import type { Tensor } from '../tensor/tensor.js';
import { kernel, numbers, requireOptions, requireRank, requireWhole } from './kernel-row.js';
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
    /** How places between pixels are filled. */
    resample: {
      readonly kind: 'nearest' | 'bilinear' | 'bilinearBackward' | 'taps' | 'grid' | 'gridInput' | 'gridMoved';
    };
  }
}

export interface NearestParams extends Record<string, unknown> {
  /** [length] or [height, width] of the result. */
  readonly size: readonly number[];
}
export interface BilinearParams extends Record<string, unknown> {
  readonly size: readonly [number, number];
  readonly alignCorners: boolean;
  /** Source pixels are 1 / scale apart instead of in / out; null without. */
  readonly scale: readonly [number, number] | null;
}
export interface BilinearBackwardParams extends BilinearParams {
  /** [height, width] of the picture that was resized. */
  readonly inputSize: readonly [number, number];
}
/** What upsampleBilinear2d takes. */
export interface BilinearOptions {
  /** Corners of input and result lie on each other. */
  readonly alignCorners?: boolean;
  /** The factor that places are computed with, where it is not the ratio of the sizes. */
  readonly scale?: readonly [number, number];
}

const DTYPES = [...REALS, 'u8', 'u32'] as const;
const WITHOUT = 'resizing takes f16, bf16, f32, f64, u8 and u32, as in Candle';

/** The element that place i of `out` shows; the quotient is taken first, in double, on every device. */
const nearestSource = (i: number, size: number, out: number): number =>
  Math.min(Math.floor(i * (size / out)), size - 1);

/** Where place i of a resized axis lies: between `low` and `high`, `weight` of the way. */
function bilinearSource(
  i: number,
  size: number,
  out: number,
  alignCorners: boolean,
  scale: number | undefined,
): { low: number; high: number; weight: number } {
  const step = alignCorners ? (out > 1 ? (size - 1) / (out - 1) : 0) : scale ? 1 / scale : size / out;
  const at = alignCorners ? step * i : Math.max(0, fma(step, i + 0.5, -0.5));
  const low = Math.min(Math.floor(at), size - 1);
  return { low, high: Math.min(low + 1, size - 1), weight: Math.min(Math.max(at - low, 0), 1) };
}

const PLANE = ['height', 'width'];

function inferResize(op: string, x: Sig, size: readonly number[], dims: readonly string[]): Sig[] {
  if (!Array.isArray(size) || size.length !== dims.length)
    throw new ArgumentError(`${op}: size [${size}] must hold ${dims.join(' and ')}`);
  requireRank(op, 'input', x.shape, dims.length + 2, `(batch, channels, ${dims.join(', ')})`);
  requireWhole(op, 'size', size, 1);
  requireWhole(op, 'input size', x.shape.slice(2), 1);
  return [{ shape: [x.shape[0], x.shape[1], ...size], dtype: x.dtype }];
}

/** Gradients of all places that show one element are added up, axis by axis. */
function nearestBackward(x: Tensor, grad: Tensor): Tensor {
  let g = grad;
  for (let dim = x.shape.length - 1; dim >= 2; dim--) {
    const [size, out] = [x.shape[dim], g.shape[dim]];
    if (size === out) continue;
    const ids = x
      .newArange(out, 'f64')
      .affine(size / out, 0)
      .floor()
      .cast('u32');
    g = g
      .newZeros(
        g.shape.map((d, i) => (i === dim ? size : d)),
        g.dtype,
      )
      .indexAdd(dim, ids, g);
  }
  return g;
}

function referenceNearest([x]: readonly RefTensor[], [out]: readonly RefTensor[]): void {
  const [h, w] = out.shape.length === 3 ? [1, out.shape[2]] : [out.shape[2], out.shape[3]];
  const [H, W] = x.shape.length === 3 ? [1, x.shape[2]] : [x.shape[2], x.shape[3]];
  for (let plane = 0, to = 0; plane < x.shape[0] * x.shape[1]; plane++) {
    for (let y = 0; y < h; y++)
      for (let z = 0; z < w; z++) {
        out.data[to++] = x.data[(plane * H + nearestSource(y, H, h)) * W + nearestSource(z, W, w)];
      }
  }
}

/** Calls visit(large-side plane position, input position, weight) for the four neighbours of every resized pixel. */
function eachNeighbour(
  [H, W]: readonly number[],
  p: BilinearParams,
  visit: (to: number, from: number, weight: number) => void,
): void {
  const [h, w] = p.size;
  for (let y = 0; y < h; y++)
    for (let z = 0; z < w; z++) {
      const r = bilinearSource(y, H, h, p.alignCorners, p.scale?.[0]);
      const c = bilinearSource(z, W, w, p.alignCorners, p.scale?.[1]);
      visit(y * w + z, r.low * W + c.low, (1 - r.weight) * (1 - c.weight));
      visit(y * w + z, r.low * W + c.high, (1 - r.weight) * c.weight);
      visit(y * w + z, r.high * W + c.low, r.weight * (1 - c.weight));
      visit(y * w + z, r.high * W + c.high, r.weight * c.weight);
    }
}

function requireScale(op: string, { scale }: BilinearParams): void {
  if (scale && !scale.every((s) => Number.isFinite(s) && s > 0))
    throw new ArgumentError(`${op}: scale [${scale.join(', ')}] must be two positive numbers`);
}

const bilinear = (
  h: number,
  w: number,
  alignCorners: boolean,
  scale: [number, number] | null = null,
): BilinearParams => ({ size: [h, w], alignCorners, scale });

export const resample = rows({
  upsampleNearest1d: kernel({
    example: 'x.upsampleNearest1d(13)',
    family: 'resample',
    kernel: { kind: 'nearest' },
    formula: 'out[n,c,i] = x[n,c,floor(i * in / out)]',
    dtypes: DTYPES,
    without: WITHOUT,
    ulp: 0,
    candle: { none: 'Candle has it on the CPU only' },
    differs: 'Any size has a gradient (Candle: whole factors), and gradients add up.',
    infer: ([x]: readonly Sig[], { size }: NearestParams): readonly Sig[] =>
      inferResize('upsampleNearest1d', x, size, ['length']),
    reference: (inputs: readonly RefTensor[], outputs: readonly RefTensor[]): void => referenceNearest(inputs, outputs),
    grad: ({ x, grad }: GradContext<NearestParams>): Grads => [nearestBackward(x, grad)],
    args: (x: Tensor, size: number): Call<NearestParams> => ({ inputs: [x], params: { size: [size] } }),
    samples: (): readonly Sample<NearestParams>[] => [
      { inputs: [{ shape: [2, 3, 5] }], params: { size: [13] } },
      { inputs: [{ shape: [1, 2, 9] }], params: { size: [4] } },
    ],
    errors: (): readonly ErrorSample<NearestParams>[] => [
      {
        inputs: [{ shape: [2, 5] }],
        params: { size: [3] },
        code: 'E_SHAPE',
        says: /input \[2, 5\] has rank 2; it takes rank 3/,
      },
      { inputs: [{ shape: [2, 3, 5] }], params: { size: [0] }, code: 'E_ARGUMENT', says: /size 0/ },
    ],
  }),

  upsampleNearest2d: kernel({
    family: 'resample',
    kernel: { kind: 'nearest' },
    formula: 'out[n,c,y,x] = in[n,c,floor(y * H / h),floor(x * W / w)]',
    dtypes: DTYPES,
    without: WITHOUT,
    ulp: 0,
    candle: { file: 'conv.cu', symbol: 'upsample_nearest2d' },
    differs: 'Any size has a gradient (Candle: one whole factor), and gradients add up.',
    infer: ([x]: readonly Sig[], { size }: NearestParams): readonly Sig[] =>
      inferResize('upsampleNearest2d', x, size, PLANE),
    reference: (inputs: readonly RefTensor[], outputs: readonly RefTensor[]): void => referenceNearest(inputs, outputs),
    grad: ({ x, grad }: GradContext<NearestParams>): Grads => [nearestBackward(x, grad)],
    args: (x: Tensor, size: readonly [number, number]): Call<NearestParams> => ({ inputs: [x], params: { size } }),
    samples: (): readonly Sample<NearestParams>[] => [
      { inputs: [{ shape: [2, 3, 4, 5] }], params: { size: [8, 10] } },
      { inputs: [{ shape: [1, 2, 4, 5] }], params: { size: [7, 3] } },
      { inputs: [{ shape: [2, 1, 3, 3] }], params: { size: [3, 9] } },
      { inputs: [{ shape: [3, 7, 2, 3] }], params: { size: [3, 4] } },
    ],
    errors: (): readonly ErrorSample<NearestParams>[] => [
      {
        inputs: [{ shape: [2, 5, 4] }],
        params: { size: [3, 3] },
        code: 'E_SHAPE',
        says: /has rank 3; it takes rank 4/,
      },
      { inputs: [{ shape: [2, 3, 5, 4] }], params: { size: [3, 1.5] }, code: 'E_ARGUMENT', says: /size \[3, 1.5\]/ },
      {
        inputs: [{ shape: [3, 4] }],
        params: { size: [] },
        code: 'E_ARGUMENT',
        says: /size \[\] must hold height and width/,
      },
    ],
  }),

  upsampleBilinear2d: kernel({
    family: 'resample',
    kernel: { kind: 'bilinear' },
    formula: "weighted mean of the four source pixels around each place (PyTorch's pixel areas)",
    dtypes: DTYPES,
    without: WITHOUT,
    candle: { file: 'conv.cu', symbol: 'upsample_bilinear2d' },
    differs: 'It has a gradient.',
    domain: [0.25, 4],
    ulp: ulps(1),
    infer: ([x]: readonly Sig[], p: BilinearParams): readonly Sig[] => {
      requireScale('upsampleBilinear2d', p);
      return inferResize('upsampleBilinear2d', x, p.size, PLANE);
    },
    reference: ([x]: readonly RefTensor[], [out]: readonly RefTensor[], p: BilinearParams): void => {
      const [n, c, H, W] = x.shape;
      const area = p.size[0] * p.size[1];
      out.data.fill(0);
      for (let plane = 0; plane < n * c; plane++) {
        for (let y = 0; y < p.size[0]; y++)
          for (let z = 0; z < p.size[1]; z++) {
            const r = bilinearSource(y, H, p.size[0], p.alignCorners, p.scale?.[0]);
            const c = bilinearSource(z, W, p.size[1], p.alignCorners, p.scale?.[1]);
            // Candle's order, with the multiply-adds its compiler makes of it: integers are cut off, and a last bit
            // would show.
            const at = (row: number): number => {
              const [a, b] = [c.low, c.high].map((col) => Number(x.data[(plane * H + row) * W + col]));
              return fma(a, 1 - c.weight, b * c.weight);
            };
            out.data[plane * area + y * p.size[1] + z] = fma(at(r.low), 1 - r.weight, at(r.high) * r.weight);
          }
      }
    },
    grad: ({ x, grad, params }: GradContext<BilinearParams>): Grads => [
      grad.upsampleBilinear2dBackward({ ...params, inputSize: [x.shape[2], x.shape[3]] }),
    ],
    args: (x: Tensor, size: readonly [number, number], options: BilinearOptions = {}): Call<BilinearParams> => {
      requireOptions('upsampleBilinear2d', options, ['alignCorners', 'scale']);
      return {
        inputs: [x],
        params: { size, alignCorners: options.alignCorners ?? false, scale: options.scale ?? null },
      };
    },
    samples: (): readonly Sample<BilinearParams>[] => [
      { inputs: [{ shape: [2, 3, 4, 5] }], params: bilinear(8, 10, false) },
      { inputs: [{ shape: [1, 2, 4, 5] }], params: bilinear(7, 3, true) },
      { inputs: [{ shape: [1, 1, 3, 4] }], params: bilinear(1, 9, true) },
      { inputs: [{ shape: [1, 2, 3, 4] }], params: bilinear(6, 9, false, [2.1, 2.3]) },
      { inputs: [{ shape: [3, 7, 2, 3] }], params: bilinear(3, 4, false) },
    ],
    errors: (): readonly ErrorSample<BilinearParams>[] => [
      {
        inputs: [{ shape: [2, 5, 4] }],
        params: bilinear(3, 3, true),
        code: 'E_SHAPE',
        says: /has rank 3; it takes rank 4/,
      },
      { inputs: [{ shape: [2, 3, 5, 4] }], params: bilinear(3, 0, true), code: 'E_ARGUMENT', says: /size \[3, 0\]/ },
      {
        inputs: [{ shape: [2, 3, 5, 4] }],
        params: bilinear(3, 3, false, [0, 1]),
        code: 'E_ARGUMENT',
        says: /scale \[0, 1\]/,
      },
    ],
  }),

  upsampleBilinear2dBackward: kernel({
    internal: true,
    family: 'resample',
    kernel: { kind: 'bilinearBackward' },
    formula: "every resized pixel's gradient, shared among its four source pixels by their weights",
    dtypes: REALS,
    without: 'gradients are floats of 16 bits and more',
    candle: { none: 'Candle has no gradient of it' },
    domain: [0.25, 4],
    ulp: ulps(1),
    infer: ([g]: readonly Sig[], p: BilinearBackwardParams): readonly Sig[] => {
      const like = { shape: [g.shape[0], g.shape[1], ...p.inputSize], dtype: g.dtype };
      const [out] = inferResize('upsampleBilinear2dBackward', g.shape.length === 4 ? like : g, p.size, PLANE);
      if (sizeOf(out.shape) !== sizeOf(g.shape))
        throw new ArgumentError(
          `upsampleBilinear2dBackward: gradient [${g.shape.join(', ')}] is not of size [${p.size.join(', ')}]`,
        );
      return [like];
    },
    reference: ([g]: readonly RefTensor[], [out]: readonly RefTensor[], p: BilinearBackwardParams): void => {
      const [n, c, H, W] = out.shape;
      const area = p.size[0] * p.size[1];
      out.data.fill(0);
      for (let plane = 0; plane < n * c; plane++) {
        eachNeighbour(
          [H, W],
          p,
          // What has no weight counts nowhere, be it infinite or NaN.
          (to, from, weight) =>
            weight !== 0 && (numbers(out)[plane * H * W + from] += numbers(g)[plane * area + to] * weight),
        );
      }
    },
    grad: ({ grad, params: { size, alignCorners, scale } }: GradContext<BilinearBackwardParams>): Grads => [
      grad.upsampleBilinear2d(size, scale ? { alignCorners, scale } : { alignCorners }),
    ],
    args: (g: Tensor, p: BilinearBackwardParams): Call<BilinearBackwardParams> => ({
      inputs: [g],
      params: { size: p.size, alignCorners: p.alignCorners, scale: p.scale, inputSize: p.inputSize },
    }),
    samples: (): readonly Sample<BilinearBackwardParams>[] => [
      { inputs: [{ shape: [2, 3, 8, 10] }], params: { ...bilinear(8, 10, false), inputSize: [4, 5] } },
      { inputs: [{ shape: [1, 2, 7, 3] }], params: { ...bilinear(7, 3, true), inputSize: [4, 5] } },
      { inputs: [{ shape: [3, 7, 3, 4] }], params: { ...bilinear(3, 4, false), inputSize: [2, 3] } },
    ],
    errors: (): readonly ErrorSample<BilinearBackwardParams>[] => [
      {
        inputs: [{ shape: [2, 3, 8, 9] }],
        params: { ...bilinear(8, 10, false), inputSize: [4, 5] },
        code: 'E_ARGUMENT',
        says: /gradient \[2, 3, 8, 9\] is not of size \[8, 10\]/,
      },
    ],
  }),
});

// Convolutions and their transposes in one and two dimensions; each one's gradients are convolutions of the other kind.
import { REALS } from '../base/dtype.js';
import { ArgumentError, ShapeError } from '../base/errors.js';
import { formatShape, pair, sizeOf, type Shape } from '../base/shape.js';
import type { Tensor } from '../tensor/tensor.js';
import { kernel, numbers, requireOptions, requireRank, requireSameDType, requireWhole, zeroOf } from './kernel-row.js';
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
    /** A transposed convolution spreads each pixel over the result; the third kind is the kernel's gradient. */
    conv: { readonly transposed: boolean; readonly filter?: true };
  }
}

/** One entry per spatial dimension: [l] in 1-D, [h, w] in 2-D. */
export interface ConvParams extends Record<string, unknown> {
  readonly stride: readonly number[];
  readonly padding: readonly number[];
  readonly dilation: readonly number[];
  readonly groups: number;
}
/** Of the kernel's gradient: its spatial size, which strides leave open. */
export interface ConvFilterParams extends ConvParams {
  readonly size: readonly number[];
}
export interface ConvTransposeParams extends ConvParams {
  readonly outputPadding: readonly number[];
}
/** What convolutions take. */
export interface ConvOptions<N> {
  /** Steps between windows; 1 unless given. */
  readonly stride?: N;
  /** Zeros around the input; 0 unless given. */
  readonly padding?: N;
  /** Distance between the kernel's elements; 1 unless given. */
  readonly dilation?: N;
  /** Groups of channels that are convolved apart; 1 unless given. */
  readonly groups?: number;
  /** One value per output channel. */
  readonly bias?: Tensor;
}
/** What transposed convolutions take. */
export interface ConvTransposeOptions<N> extends ConvOptions<N> {
  /** Elements added at one end of the result, where the stride leaves its size open. */
  readonly outputPadding?: N;
}
type Axes = number | readonly [number] | readonly [number, number];

const DTYPES = [...REALS, 'u8', 'u32'] as const;
const WITHOUT = 'convolutions take f16, bf16, f32, f64, u8 and u32, as in Candle';
// Sums of channels x kernel products over a positive domain; the reference sums in double and rounds once.
const DOMAIN = [0.25, 2] as const;
const DIFFERS =
  'Stride, padding and dilation may differ by axis, groups run in one call, a bias may be added, and any layout is ' +
  'accepted (Candle reads a non-contiguous kernel wrongly).';

const spread = (rank: 1 | 2, op: string, name: string, v: Axes | undefined, or: number): number[] => {
  if (rank === 2) return pair(op, name, v ?? or);
  if (Array.isArray(v) && v.length === 1) return [v[0] as number];
  if (v !== undefined && typeof v !== 'number')
    throw new ArgumentError(
      `${op}: ${name} takes a number, not ${Array.isArray(v) ? formatShape(v) : JSON.stringify(v)}`,
    );
  return [v ?? or];
};

function convCall(op: string, rank: 1 | 2, x: Tensor, weight: Tensor, o: ConvOptions<Axes>): Call<ConvParams> {
  requireOptions(op, o, ['stride', 'padding', 'dilation', 'groups', 'bias']);
  return { inputs: o.bias ? [x, weight, o.bias] : [x, weight], params: commonParams(op, rank, o) };
}

function transposeCall(
  op: string,
  rank: 1 | 2,
  x: Tensor,
  weight: Tensor,
  o: ConvTransposeOptions<Axes>,
): Call<ConvTransposeParams> {
  requireOptions(op, o, ['stride', 'padding', 'dilation', 'groups', 'bias', 'outputPadding']);
  const outputPadding = spread(rank, op, 'outputPadding', o.outputPadding, 0);
  return {
    inputs: o.bias ? [x, weight, o.bias] : [x, weight],
    params: { ...commonParams(op, rank, o), outputPadding },
  };
}

const commonParams = (op: string, rank: 1 | 2, o: ConvOptions<Axes>): ConvParams => ({
  stride: spread(rank, op, 'stride', o.stride, 1),
  padding: spread(rank, op, 'padding', o.padding, 0),
  dilation: spread(rank, op, 'dilation', o.dilation, 1),
  groups: o.groups ?? 1,
});

/** Checks what both directions share; `cin` is the kernel's channel count as the input must have it. */
function requireConv(op: string, rank: 1 | 2, inputs: readonly Sig[], p: ConvParams, transposed: boolean): void {
  const [x, w, b] = inputs;
  const dims = rank === 1 ? 'length' : 'height, width';
  requireSameDType(op, inputs);
  requireRank(op, 'input', x.shape, rank + 2, `(batch, channels, ${dims})`);
  requireRank(
    op,
    'kernel',
    w.shape,
    rank + 2,
    transposed ? `(in, out / groups, ${dims})` : `(out, in / groups, ${dims})`,
  );
  requireWhole(op, 'stride', p.stride, 1);
  requireWhole(op, 'padding', p.padding, 0);
  requireWhole(op, 'dilation', p.dilation, 1);
  requireWhole(op, 'groups', [p.groups], 1);
  requireWhole(op, 'kernel size', w.shape.slice(2), 1);
  const cin = transposed ? w.shape[0] : w.shape[1] * p.groups;
  if (x.shape[1] !== cin || w.shape[0] % p.groups !== 0) {
    throw new ShapeError(
      `${op}: input ${formatShape(x.shape)} has ${x.shape[1]} channels, kernel ${formatShape(w.shape)} with ` +
        `${p.groups} groups takes ${cin}, and ${w.shape[0]} must be a multiple of the groups`,
    );
  }
  const cout = transposed ? w.shape[1] * p.groups : w.shape[0];
  if (b && (b.shape.length !== 1 || b.shape[0] !== cout)) {
    throw new ShapeError(`${op}: bias ${formatShape(b.shape)} must be [${cout}], one value per output channel`);
  }
}

function inferConv(op: string, rank: 1 | 2, inputs: readonly Sig[], p: ConvParams): Sig[] {
  requireConv(op, rank, inputs, p, false);
  const [x, w] = inputs;
  const spatial = p.stride.map((s, i) => {
    const padded = x.shape[i + 2] + 2 * p.padding[i];
    const reach = p.dilation[i] * (w.shape[i + 2] - 1) + 1;
    if (padded < reach) {
      throw new ShapeError(
        `${op}: kernel ${formatShape(w.shape)} with dilation ${p.dilation[i]} reaches over ${reach} elements, the ` +
          `padded input ${formatShape(x.shape)} has ${padded}`,
      );
    }
    return Math.floor((padded - reach) / s) + 1;
  });
  return [{ shape: [x.shape[0], w.shape[0], ...spatial], dtype: x.dtype }];
}

function inferFilter([x, r]: readonly Sig[], p: ConvFilterParams): Sig[] {
  const op = 'convFilter';
  requireRank(op, 'result', r.shape, p.stride.length + 2, '(batch, channels, ...)');
  const shape = [r.shape[1], Math.floor(x.shape[1] / p.groups), ...p.size];
  const [made] = inferConv(op, p.stride.length as 1 | 2, [x, { shape, dtype: r.dtype }], p);
  if (formatShape(made.shape) !== formatShape(r.shape))
    throw new ShapeError(
      `${op}: a kernel ${formatShape(shape)} makes ${formatShape(made.shape)} of ${formatShape(x.shape)}, not ` +
        formatShape(r.shape),
    );
  return [{ shape, dtype: x.dtype }];
}

function inferTranspose(op: string, rank: 1 | 2, inputs: readonly Sig[], p: ConvTransposeParams): Sig[] {
  requireConv(op, rank, inputs, p, true);
  requireWhole(op, 'outputPadding', p.outputPadding, 0);
  const [x, w] = inputs;
  const spatial = p.stride.map((s, i) => {
    if (p.outputPadding[i] >= Math.max(s, p.dilation[i])) {
      throw new ArgumentError(
        `${op}: outputPadding ${p.outputPadding[i]} must be smaller than stride ${s} or dilation ${p.dilation[i]}`,
      );
    }
    const size =
      (x.shape[i + 2] - 1) * s - 2 * p.padding[i] + p.dilation[i] * (w.shape[i + 2] - 1) + 1 + p.outputPadding[i];
    if (x.shape[i + 2] < 1 || size < 0) {
      throw new ShapeError(
        `${op}: input ${formatShape(x.shape)} with kernel ${formatShape(w.shape)} and padding ${p.padding[i]} leaves ` +
          'no output',
      );
    }
    return size;
  });
  return [{ shape: [x.shape[0], w.shape[1] * p.groups, ...spatial], dtype: x.dtype }];
}

/** [h, w] from either rank: one dimension is a picture of height 1. */
const plane = (v: readonly number[], or: number): [number, number] => (v.length === 1 ? [or, v[0]] : [v[0], v[1]]);

/**
 * Visits every product of a convolution: (image position, kernel position, result position), where the image is the
 * larger side (n, cImage, H, W), the result the smaller (n, cResult, h, w) and the kernel (cResult, cImage / groups,
 * kh, kw). A transposed convolution is the same walk with image and result exchanged.
 */
function eachProduct(
  image: Shape,
  kernelShape: Shape,
  result: Shape,
  p: ConvParams,
  visit: (i: number, k: number, r: number) => void,
): void {
  const [batch, cImage] = image;
  const cResult = result[1];
  const [H, W] = plane(image.slice(2), 1);
  const [h, w] = plane(result.slice(2), 1);
  const [kh, kw] = plane(kernelShape.slice(2), 1);
  const [sh, sw] = plane(p.stride, 1);
  const [ph, pw] = plane(p.padding, 0);
  const [dh, dw] = plane(p.dilation, 1);
  const per = cImage / p.groups;
  for (let n = 0; n < batch; n++)
    for (let r = 0; r < cResult; r++) {
      const first = Math.floor((r * p.groups) / cResult) * per;
      for (let y = 0; y < h; y++)
        for (let x = 0; x < w; x++) {
          const to = ((n * cResult + r) * h + y) * w + x;
          for (let c = 0; c < per; c++)
            for (let ky = 0; ky < kh; ky++) {
              const iy = y * sh + ky * dh - ph;
              if (iy < 0 || iy >= H) continue;
              for (let kx = 0; kx < kw; kx++) {
                const ix = x * sw + kx * dw - pw;
                if (ix < 0 || ix >= W) continue;
                visit(((n * cImage + first + c) * H + iy) * W + ix, ((r * per + c) * kh + ky) * kw + kx, to);
              }
            }
        }
    }
}

/** Every output starts from its channel's bias, or zero. */
function start(out: RefTensor, bias: RefTensor | undefined): number[] {
  const data = numbers(out);
  const zero = zeroOf(out);
  const area = sizeOf(out.shape.slice(2));
  const channels = out.shape[1];
  for (let i = 0, n = sizeOf(out.shape); i < n; i++)
    data[i] = bias ? numbers(bias)[Math.floor(i / area) % channels] : zero;
  return data;
}

function referenceConv([x, w, b]: readonly RefTensor[], [out]: readonly RefTensor[], p: ConvParams): void {
  const [from, by, to] = [numbers(x), numbers(w), start(out, b)];
  eachProduct(x.shape, w.shape, out.shape, p, (i, k, r) => (to[r] += from[i] * by[k]));
}

function referenceTranspose(
  [x, w, b]: readonly RefTensor[],
  [out]: readonly RefTensor[],
  p: ConvTransposeParams,
): void {
  const [from, by, to] = [numbers(x), numbers(w), start(out, b)];
  eachProduct(out.shape, w.shape, x.shape, p, (i, k, r) => (to[i] += from[r] * by[k]));
}

function referenceFilter([x, r]: readonly RefTensor[], [out]: readonly RefTensor[], p: ConvFilterParams): void {
  const [image, result, to] = [numbers(x), numbers(r), start(out, undefined)];
  eachProduct(x.shape, out.shape, r.shape, p, (i, k, at) => (to[k] += image[i] * result[at]));
}

/**
 * The kernel's gradient is itself a convolution: images become the batch, the batch becomes channels, the result's
 * gradient becomes the kernel, and stride and dilation change places. Answers (cResult, cImage / groups, ...size).
 */
function kernelGrad(image: Tensor, result: Tensor, size: Shape, p: ConvParams): Tensor {
  if (image.device.backend.gpu) return image.convFilter(result, size, p); // vendors' libraries have it as such
  const [n, c, ...space] = image.shape;
  const { groups } = p;
  const tail = space.map((_, i) => i + 3);
  const swapped = image
    .reshape([n, groups, c / groups, ...space])
    .permute([2, 1, 0, ...tail])
    .reshape([c / groups, groups * n, ...space]);
  const back = [1, 0, ...space.map((_, i) => i + 2)];
  const kernelOf = result.permute(back);
  let out =
    space.length === 1
      ? swapped.conv1d(kernelOf, { stride: p.dilation[0], padding: p.padding[0], dilation: p.stride[0], groups })
      : swapped.conv2d(kernelOf, { stride: two(p.dilation), padding: two(p.padding), dilation: two(p.stride), groups });
  // A remainder of the stride makes it longer.
  size.forEach((k, i) => (out = out.shape[i + 2] === k ? out : out.narrow(i + 2, 0, k)));
  return out.permute(back);
}
const two = (v: readonly number[]): [number, number] => [v[0], v[1]];
const sumBias = (grad: Tensor): Tensor =>
  grad.sum(
    grad.shape.flatMap((_, i) => (i === 1 ? [] : [i])),
    false,
  );

/** The gradient of the images x of a convolution with w, from that of its result. */
function imageGrad(x: Tensor, w: Tensor, grad: Tensor, p: ConvParams): Tensor {
  // What the floor in the output size dropped has to be given back.
  const outputPadding = p.stride.map(
    (s, i) =>
      x.shape[i + 2] - ((grad.shape[i + 2] - 1) * s - 2 * p.padding[i] + p.dilation[i] * (w.shape[i + 2] - 1) + 1),
  );
  const { groups } = p;
  return p.stride.length === 1
    ? grad.convTranspose1d(w, {
        stride: p.stride[0],
        padding: p.padding[0],
        dilation: p.dilation[0],
        groups,
        outputPadding: outputPadding[0],
      })
    : grad.convTranspose2d(w, {
        stride: two(p.stride),
        padding: two(p.padding),
        dilation: two(p.dilation),
        groups,
        outputPadding: two(outputPadding),
      });
}

function convGrads({ inputs: [x, w, b], grad, params: p, needs }: GradContext<ConvParams>): Grads {
  return [
    needs(0) ? imageGrad(x, w, grad, p) : undefined,
    needs(1) ? kernelGrad(x, grad, w.shape.slice(2), p) : undefined,
    b && needs(2) ? sumBias(grad) : undefined,
  ];
}

/** The convolution that p describes. */
const convolved = (x: Tensor, w: Tensor, { stride, padding, dilation, groups }: ConvParams): Tensor =>
  stride.length === 1
    ? x.conv1d(w, { stride: stride[0], padding: padding[0], dilation: dilation[0], groups })
    : x.conv2d(w, { stride: two(stride), padding: two(padding), dilation: two(dilation), groups });

function transposeGrads({ inputs: [x, w, b], grad, params: p, needs }: GradContext<ConvTransposeParams>): Grads {
  const gx = (): Tensor => {
    let out = convolved(grad, w, p);
    // An outputPadding beyond the stride is cut off.
    x.shape.forEach((d, i) => (out = i < 2 || out.shape[i] === d ? out : out.narrow(i, 0, d)));
    return out;
  };
  const gw = (): Tensor => {
    // What lies beyond the stride came of no element: zeros there give the kernel nothing.
    const whole = x.shape.map((d, i) => (i < 2 ? d : d + Math.floor(p.outputPadding[i - 2] / p.stride[i - 2])));
    const result =
      formatShape(whole) === formatShape(x.shape)
        ? x
        : x.place(
            whole,
            whole.map(() => 0),
          );
    return kernelGrad(grad, result, w.shape.slice(2), p);
  };
  return [needs(0) ? gx() : undefined, needs(1) ? gw() : undefined, b && needs(2) ? sumBias(grad) : undefined];
}

const p1 = (stride = 1, padding = 0, dilation = 1, groups = 1): ConvParams => ({
  stride: [stride],
  padding: [padding],
  dilation: [dilation],
  groups,
});
const p2 = (stride: number[], padding: number[], dilation: number[], groups = 1): ConvParams => ({
  stride,
  padding,
  dilation,
  groups,
});
const shapes = (...list: Shape[]): InputSpec[] => list.map((shape) => ({ shape }));

export const conv = rows({
  conv1d: kernel({
    family: 'conv',
    kernel: { transposed: false },
    formula: 'out[n,o,l] = b[o] + sum_{c,k} x[n,c,l*stride + k*dilation - padding] * w[o,c,k]',
    dtypes: DTYPES,
    without: WITHOUT,
    ulp: ulps(8, 2),
    domain: DOMAIN,
    candle: { file: 'conv.cu', symbol: 'conv1d' },
    differs: `${DIFFERS} Dilation multiplies the kernel position alone (Candle's direct kernel multiplies both).`,
    infer: (inputs: readonly Sig[], p: ConvParams): readonly Sig[] => inferConv('conv1d', 1, inputs, p),
    reference: (inputs: readonly RefTensor[], outputs: readonly RefTensor[], p: ConvParams): void =>
      referenceConv(inputs, outputs, p),
    grad: (ctx: GradContext<ConvParams>): Grads => convGrads(ctx),
    args: (x: Tensor, weight: Tensor, options: ConvOptions<number | readonly [number]> = {}): Call<ConvParams> =>
      convCall('conv1d', 1, x, weight, options),
    samples: (): readonly Sample<ConvParams>[] => [
      { inputs: shapes([2, 3, 9], [4, 3, 3]), params: p1() },
      { inputs: shapes([1, 4, 11], [6, 2, 3], [6]), params: p1(2, 1, 1, 2) },
      { inputs: shapes([2, 4, 10], [4, 1, 2]), params: p1(3, 2, 2, 4) },
      { inputs: shapes([3, 2, 5], [1, 2, 5]), params: p1() },
    ],
    errors: (): readonly ErrorSample<ConvParams>[] => [
      {
        inputs: shapes([2, 3, 9], [4, 2, 3]),
        params: p1(),
        code: 'E_SHAPE',
        says: /has 3 channels, kernel \[4, 2, 3\] with 1 groups takes 2/,
      },
      {
        inputs: shapes([2, 3, 2], [4, 3, 3]),
        params: p1(),
        code: 'E_SHAPE',
        says: /reaches over 3 elements, the padded input \[2, 3, 2\] has 2/,
      },
      {
        inputs: shapes([3, 9], [4, 3, 3]),
        params: p1(),
        code: 'E_SHAPE',
        says: /input \[3, 9\] has rank 2; it takes rank 3/,
      },
      { inputs: shapes([2, 3, 9], [4, 3, 3]), params: p1(0), code: 'E_ARGUMENT', says: /stride 0/ },
      { inputs: shapes([2, 3, 9], [4, 3, 3], [3]), params: p1(), code: 'E_SHAPE', says: /bias \[3\] must be \[4\]/ },
    ],
  }),

  convFilter: kernel({
    family: 'conv',
    kernel: { transposed: false, filter: true },
    serves: 'conv2d',
    formula:
      "the gradient of a convolution's kernel: out[o,c,i,j] = sum_{n,y,x} in[n,c,y*sh + i*dh - ph, ...] * r[n,o,y,x]",
    dtypes: REALS,
    without: 'gradients are floats',
    ulp: ulps(16, 2),
    domain: DOMAIN,
    candle: { none: 'Candle convolves with exchanged dimensions' },
    infer: (inputs: readonly Sig[], p: ConvFilterParams): readonly Sig[] => inferFilter(inputs, p),
    reference: (inputs: readonly RefTensor[], outputs: readonly RefTensor[], p: ConvFilterParams): void =>
      referenceFilter(inputs, outputs, p),
    grad: ({ inputs: [x, r], grad, params, needs }: GradContext<ConvFilterParams>): Grads => [
      needs(0) ? imageGrad(x, grad, r, params) : undefined,
      needs(1) ? convolved(x, grad, params) : undefined,
    ],
    args: (x: Tensor, result: Tensor, size: Shape, p: ConvParams): Call<ConvFilterParams> => ({
      inputs: [x, result],
      params: { ...p, size: [...size] },
    }),
    samples: (): readonly Sample<ConvFilterParams>[] => [
      { inputs: shapes([2, 3, 9], [2, 4, 7]), params: { ...p1(), size: [3] } },
      { inputs: shapes([2, 3, 5, 6], [2, 4, 3, 4]), params: { ...p2([1, 1], [0, 0], [1, 1]), size: [3, 3] } },
      { inputs: shapes([2, 4, 7, 6], [2, 4, 4, 8]), params: { ...p2([2, 1], [1, 2], [1, 2], 2), size: [3, 2] } },
      { inputs: shapes([1, 3, 8, 9], [1, 3, 2, 5]), params: { ...p2([3, 2], [0, 1], [2, 1], 3), size: [2, 3] } },
    ],
    errors: (): readonly ErrorSample<ConvFilterParams>[] => [
      {
        inputs: shapes([2, 3, 9], [2, 4, 6]),
        params: { ...p1(), size: [3] },
        code: 'E_SHAPE',
        says: /a kernel \[4, 3, 3\] makes \[2, 4, 7\] of \[2, 3, 9\], not \[2, 4, 6\]/,
      },
    ],
  }),

  conv2d: kernel({
    family: 'conv',
    kernel: { transposed: false },
    formula: 'out[n,o,y,x] = b[o] + sum_{c,i,j} in[n,c,y*sh + i*dh - ph, x*sw + j*dw - pw] * w[o,c,i,j]',
    dtypes: DTYPES,
    without: WITHOUT,
    ulp: ulps(12, 2),
    domain: DOMAIN,
    candle: { file: 'conv.cu', symbol: 'conv2d' },
    differs: DIFFERS,
    infer: (inputs: readonly Sig[], p: ConvParams): readonly Sig[] => inferConv('conv2d', 2, inputs, p),
    reference: (inputs: readonly RefTensor[], outputs: readonly RefTensor[], p: ConvParams): void =>
      referenceConv(inputs, outputs, p),
    grad: (ctx: GradContext<ConvParams>): Grads => convGrads(ctx),
    args: (x: Tensor, weight: Tensor, options: ConvOptions<Axes> = {}): Call<ConvParams> =>
      convCall('conv2d', 2, x, weight, options),
    samples: (): readonly Sample<ConvParams>[] => [
      { inputs: shapes([2, 3, 5, 6], [4, 3, 3, 3]), params: p2([1, 1], [0, 0], [1, 1]) },
      { inputs: shapes([1, 2, 7, 5], [3, 2, 1, 1], [3]), params: p2([1, 1], [0, 0], [1, 1]) },
      { inputs: shapes([2, 4, 7, 6], [4, 2, 3, 2], [4]), params: p2([2, 1], [1, 2], [1, 2], 2) },
      { inputs: shapes([1, 3, 8, 9], [3, 1, 2, 3]), params: p2([3, 2], [0, 1], [2, 1], 3) },
    ],
    errors: (): readonly ErrorSample<ConvParams>[] => [
      {
        inputs: shapes([2, 3, 5, 5], [4, 3, 7, 3]),
        params: p2([1, 1], [0, 0], [1, 1]),
        code: 'E_SHAPE',
        says: /reaches over 7 elements/,
      },
      {
        inputs: shapes([2, 3, 5, 5], [4, 3, 3, 3]),
        params: p2([1, 1], [0, 0], [1, 1], 2),
        code: 'E_SHAPE',
        says: /with 2 groups takes 6/,
      },
      {
        inputs: shapes([2, 3, 5, 5], [4, 3, 3, 3]),
        params: p2([1, 1], [-1, 0], [1, 1]),
        code: 'E_ARGUMENT',
        says: /padding \[-1, 0\]/,
      },
    ],
  }),

  convTranspose1d: kernel({
    family: 'conv',
    kernel: { transposed: true },
    formula: 'out[n,o,l*stride + k*dilation - padding] = b[o] + sum x[n,c,l] * w[c,o,k]',
    dtypes: DTYPES,
    without: WITHOUT,
    ulp: ulps(8, 2),
    domain: DOMAIN,
    candle: { file: 'conv.cu', symbol: 'conv_transpose1d' },
    differs: `${DIFFERS} It has a gradient.`,
    infer: (inputs: readonly Sig[], p: ConvTransposeParams): readonly Sig[] =>
      inferTranspose('convTranspose1d', 1, inputs, p),
    reference: (inputs: readonly RefTensor[], outputs: readonly RefTensor[], p: ConvTransposeParams): void =>
      referenceTranspose(inputs, outputs, p),
    grad: (ctx: GradContext<ConvTransposeParams>): Grads => transposeGrads(ctx),
    args: (
      x: Tensor,
      weight: Tensor,
      options: ConvTransposeOptions<number | readonly [number]> = {},
    ): Call<ConvTransposeParams> => transposeCall('convTranspose1d', 1, x, weight, options),
    samples: (): readonly Sample<ConvTransposeParams>[] => [
      { inputs: shapes([2, 3, 5], [3, 4, 3]), params: { ...p1(), outputPadding: [0] } },
      { inputs: shapes([1, 4, 6], [4, 3, 3], [6]), params: { ...p1(3, 2, 1, 2), outputPadding: [1] } },
      { inputs: shapes([2, 2, 4], [2, 3, 2]), params: { ...p1(1, 0, 2), outputPadding: [1] } },
    ],
    errors: (): readonly ErrorSample<ConvTransposeParams>[] => [
      {
        inputs: shapes([2, 3, 5], [3, 4, 3]),
        params: { ...p1(2), outputPadding: [2] },
        code: 'E_ARGUMENT',
        says: /outputPadding 2 must be smaller than stride 2 or dilation 1/,
      },
      {
        inputs: shapes([2, 3, 5], [4, 3, 3]),
        params: { ...p1(), outputPadding: [0] },
        code: 'E_SHAPE',
        says: /has 3 channels, kernel \[4, 3, 3\] with 1 groups takes 4/,
      },
    ],
  }),

  convTranspose2d: kernel({
    family: 'conv',
    kernel: { transposed: true },
    formula: 'out[n,o,y*sh + i*dh - ph, x*sw + j*dw - pw] = b[o] + sum in[n,c,y,x] * w[c,o,i,j]',
    dtypes: DTYPES,
    without: WITHOUT,
    ulp: ulps(8, 2),
    domain: DOMAIN,
    candle: { file: 'conv.cu', symbol: 'conv_transpose2d' },
    differs: DIFFERS,
    infer: (inputs: readonly Sig[], p: ConvTransposeParams): readonly Sig[] =>
      inferTranspose('convTranspose2d', 2, inputs, p),
    reference: (inputs: readonly RefTensor[], outputs: readonly RefTensor[], p: ConvTransposeParams): void =>
      referenceTranspose(inputs, outputs, p),
    grad: (ctx: GradContext<ConvTransposeParams>): Grads => transposeGrads(ctx),
    args: (x: Tensor, weight: Tensor, options: ConvTransposeOptions<Axes> = {}): Call<ConvTransposeParams> =>
      transposeCall('convTranspose2d', 2, x, weight, options),
    samples: (): readonly Sample<ConvTransposeParams>[] => [
      { inputs: shapes([2, 3, 4, 3], [3, 2, 3, 3]), params: { ...p2([1, 1], [0, 0], [1, 1]), outputPadding: [0, 0] } },
      {
        inputs: shapes([1, 4, 3, 5], [4, 3, 2, 3], [6]),
        params: { ...p2([2, 3], [1, 0], [1, 1], 2), outputPadding: [1, 2] },
      },
      { inputs: shapes([2, 2, 3, 4], [2, 3, 2, 2]), params: { ...p2([2, 1], [0, 1], [1, 2]), outputPadding: [0, 1] } },
    ],
    errors: (): readonly ErrorSample<ConvTransposeParams>[] => [
      {
        inputs: shapes([2, 3, 5, 5], [3, 4, 3, 3]),
        params: { ...p2([1, 1], [4, 4], [1, 1]), outputPadding: [0, 0] },
        code: 'E_SHAPE',
        says: /padding 4 leaves no output/,
      },
      {
        inputs: shapes([2, 3, 5, 5], [3, 4, 3]),
        params: { ...p2([1, 1], [0, 0], [1, 1]), outputPadding: [0, 0] },
        code: 'E_SHAPE',
        says: /kernel \[3, 4, 3\] has rank 3; it takes rank 4/,
      },
    ],
  }),
});

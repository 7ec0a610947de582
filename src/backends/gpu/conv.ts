// Convolutions: the vendor's library where it serves, else kernels/conv.hip.
import type { DType } from '../../base/dtype.js';
import { Layout } from '../../base/layout.js';
import { CONV_ALIGNMENT, CONV_DTYPES, type ConvDType, type ConvPlan } from '../../driver/dnn.js';
import { CTYPE, KernelModule, REAL_TYPES, Struct, typed } from '../../kernels/declare.js';
import { binaryOps } from '../../ops/binary.js';
import type { RowOf } from '../../ops/op.js';
import type { View } from '../backend.js';
import { planElementwiseRow } from './elementwise.js';
import type { Served } from './libraries.js';
import { hasMatrixUnits, MMA_THREADS } from './matmul.js';
import {
  at,
  ceilDiv,
  type FamilyPlan,
  launch,
  type Launches,
  permuted,
  type Planner,
  single,
  strideGrid,
  type Target,
  viewOf,
} from './plan.js';

export const CONV = new KernelModule('conv');
/** Shapes of a convolution; channels count within a group, pairs are height then width, 1-D is height 1. */
const SHAPE = new Struct('Conv', {
  ...typed('i32', 'batch', 'groups', 'channels', 'outputs'),
  kernel: ['i32', 2],
  stride: ['i32', 2],
  padding: ['i32', 2],
  dilation: ['i32', 2],
  input: ['i64', 2],
  output: ['i64', 2],
  inputStrides: ['i64', 4],
  kernelStrides: ['i64', 4],
});
export const CONV_TYPES = [...REAL_TYPES, 'u8', 'u32'] as const;
const operands = (S: string) =>
  ({ src: `const ${S}*`, kernel: `const ${S}*`, bias: `const ${S}*`, dst: `${S}*`, s: SHAPE }) as const;
const stem = ({ transposed }: { readonly transposed: boolean }): string => (transposed ? 'conv_transpose' : 'conv');

const direct = CONV.declare({
  each: { transposed: [false, true], dtype: CONV_TYPES },
  symbol: (v) => `${stem(v)}_direct_${v.dtype}`,
  body: ({ transposed, dtype }) => ({
    threads: 256,
    params: operands(CTYPE[dtype]),
    call: `conv_direct<${transposed}>`,
  }),
});
const byProducts = CONV.declare({
  each: { transposed: [false, true], dtype: CONV_TYPES },
  symbol: (v) => `${stem(v)}_fma_${v.dtype}`,
  body: ({ transposed, dtype }) => ({
    threads: 256,
    params: operands(CTYPE[dtype]),
    call: `conv_tiles<false, ${transposed}>`,
  }),
});
const byMatrixUnits = CONV.declare({
  each: { transposed: [false, true], dtype: ['f16', 'bf16'] },
  symbol: (v) => `${stem(v)}_mma_${v.dtype}`,
  body: ({ transposed, dtype }) => ({
    threads: MMA_THREADS,
    params: operands(CTYPE[dtype]),
    call: `conv_tiles<true, ${transposed}>`,
  }),
  launchedOn: (_, arch) => hasMatrixUnits({ arch }),
});

type Pair = readonly [number, number];
/** Pairs are [height, width]; 1-D is height 1. Channels count within a group. */
export interface ConvShape {
  readonly batch: number;
  readonly groups: number;
  readonly channels: number;
  readonly outputs: number;
  readonly input: Pair;
  readonly output: Pair;
  readonly kernel: Pair;
  readonly stride: Pair;
  readonly padding: Pair;
  readonly dilation: Pair;
  /** Strides of (batch, channel, y, x) and of the kernel's four dimensions, in elements. */
  readonly inputStrides: readonly number[];
  readonly kernelStrides: readonly number[];
  readonly bias: boolean;
}
/**
 * Convolution, or transposed convolution (the kernel's first dimension is then the input channel). Buffers: src,
 * kernel, bias, dst (contiguous).
 */
export function convLaunch(transposed: boolean, d: DType, { bias, ...s }: ConvShape, target: Target): Launches {
  const dtype = d as (typeof CONV_TYPES)[number];
  const args = { src: at('src'), kernel: at('kernel'), bias: bias ? at('bias') : 0, dst: at('dst'), s };
  const pixels = s.batch * s.output[0] * s.output[1];
  // Places in images as tiles count them: in 32 bits, padding and dilation included.
  const reach = [0, 1].map((i) =>
    Math.max(
      s.input[i] + 2 * s.padding[i],
      s.output[i] + s.padding[i],
      (s.output[i] - 1) * s.stride[i] + (s.kernel[i] - 1) * s.dilation[i] + 1,
    ),
  );
  const wide = pixels >= 2 ** 31 || reach.some((n) => n >= 2 ** 31);
  // Tiles pay when a group fills a good part of one.
  if (wide || s.outputs < 16 || s.channels * s.kernel[0] * s.kernel[1] < 16 || s.groups > 65535)
    return single(launch(direct, { transposed, dtype }, strideGrid(pixels * s.groups * s.outputs), 256, args));
  const grid = (tile: number): number[] => [ceilDiv(s.outputs, tile) * ceilDiv(pixels, tile), s.groups];
  if ((dtype === 'f16' || dtype === 'bf16') && hasMatrixUnits(target))
    return single(launch(byMatrixUnits, { transposed, dtype }, grid(64), 4 * target.warp, args));
  return single(launch(byProducts, { transposed, dtype }, grid(dtype === 'f64' ? 64 : 128), 256, args));
}

interface ConvParams {
  readonly stride: readonly number[];
  readonly padding: readonly number[];
  readonly dilation: readonly number[];
  readonly groups: number;
}
/** One spatial dimension is two with height 1. */
const pairOf = (list: readonly number[], fill: number): Pair =>
  list.length === 2 ? [list[0], list[1]] : [fill, list[0]];
const asPlane = (v: View): View => (v.layout.rank === 4 ? v : { ...viewOf(v), layout: v.layout.unsqueeze(2) });
const four = (v: View): readonly [number, number, number, number] => v.layout.shape as [number, number, number, number];
const settings = (p: ConvParams) => ({
  stride: pairOf(p.stride, 1),
  padding: pairOf(p.padding, 0),
  dilation: pairOf(p.dilation, 1),
  groups: p.groups,
});

/** Our own kernel on planes of any layout. */
function planOwn(p: Planner, transposed: boolean, [x, w, bias]: readonly View[], out: View, params: ConvParams): void {
  const [batch, c, ih, iw] = four(x);
  const [, o, oh, ow] = four(out);
  const [, , kh, kw] = four(w);
  const set = settings(params);
  const shape: ConvShape = {
    ...set,
    batch,
    channels: c / set.groups,
    outputs: o / set.groups,
    input: [ih, iw],
    output: [oh, ow],
    kernel: [kh, kw],
    inputStrides: x.layout.strides,
    kernelStrides: w.layout.strides,
    bias: bias !== undefined,
  };
  const dense = bias && p.dense(bias);
  p.run(convLaunch(transposed, x.dtype, shape, p.device), { src: x, kernel: w, bias: dense, dst: out });
}

export const planConv: FamilyPlan<RowOf<'conv'>, ConvParams> = (p, row, inputs, outputs, params) => {
  const { transposed, filter: ofKernel } = row.kernel;
  if (ofKernel) return planFilter(p, inputs.map(asPlane), asPlane(outputs[0]), params);
  const [x, w, out] = [asPlane(inputs[0]), asPlane(inputs[1]), asPlane(outputs[0])];
  const bias = inputs[2] as View | undefined;
  const empty = x.layout.size === 0 || w.layout.size === 0;
  const library = empty ? undefined : libraryConv(p.served, transposed, x, w, out, params);
  if (!empty && !library) return planOwn(p, transposed, bias ? [x, w, bias] : [x, w], out, params);
  if (library) {
    const [dx, filter] = [p.dense(x, CONV_ALIGNMENT), p.dense(w, CONV_ALIGNMENT)];
    const [data, result] = transposed ? [out, dx] : [dx, out];
    p.steps.push({ convolution: library, x: data, filter, y: result });
  } else p.fill(out, 0);
  if (bias && out.layout.size > 0) planBias(p, out, bias);
};

/**
 * The kernel's gradient from images and the result's: our own kernel has images for its batch, the batch for its
 * channels and the result's gradient for its kernel, and stride and dilation change places.
 */
function planFilter(p: Planner, [x, y]: readonly View[], out: View, params: ConvParams): void {
  if (x.layout.size === 0 || y.layout.size === 0) return p.fill(out, 0);
  const kinds = { x: four(x), filter: four(out), y: four(y) };
  const library =
    (CONV_DTYPES as readonly string[]).includes(x.dtype) &&
    p.served.convolution({ kind: 'backward-filter', dtype: x.dtype as ConvDType, ...kinds, ...settings(params) });
  if (library) {
    const [dx, dy] = [p.dense(x, CONV_ALIGNMENT), p.dense(y, CONV_ALIGNMENT)];
    p.steps.push({ convolution: library, x: dx, filter: out, y: dy });
    return;
  }
  const { groups, stride, dilation } = params;
  const [n, c, h, w] = four(x);
  const [sn, sc, sh, sw] = x.layout.strides;
  const per = c / groups;
  const apart = {
    ...viewOf(x),
    layout: new Layout([per, groups, n, h, w], [sc, per * sc, sn, sh, sw], x.layout.offset),
  };
  const joined = (v: View): View => ({
    ...viewOf(v),
    layout: Layout.contiguous([per, groups * n, h, w], v.layout.offset),
  });
  const swapped = groups === 1 ? permuted(x, [1, 0, 2, 3]) : joined(p.dense(apart));
  const [made, channels, kh, kw] = four(out);
  const turned = p.make([channels, made, kh, kw], out.dtype);
  const exchanged = { ...params, stride: dilation, dilation: stride };
  planOwn(p, false, [swapped, permuted(y, [1, 0, 2, 3])], turned, exchanged);
  p.copy(permuted(turned, [1, 0, 2, 3]), out);
}

/** out + bias in place: elementwise kernels read before they write. */
function planBias(p: Planner, out: View, bias: View): void {
  const layout = bias.layout.unsqueeze(0).unsqueeze(2).unsqueeze(3).broadcastTo('conv', out.layout.shape);
  planElementwiseRow(p, binaryOps.add, [out, { ...viewOf(bias), layout }], [out], {});
}

function libraryConv(
  served: Served,
  transposed: boolean,
  x: View,
  w: View,
  out: View,
  p: ConvParams,
): ConvPlan | undefined {
  if (!(CONV_DTYPES as readonly string[]).includes(x.dtype)) return undefined;
  // A transposed convolution is the gradient of a convolution with respect to its input.
  const [data, result] = transposed ? [out, x] : [x, out];
  return served.convolution({
    kind: transposed ? 'backward-data' : 'forward',
    dtype: x.dtype as ConvDType,
    x: four(data),
    filter: four(w),
    y: four(result),
    ...settings(p),
  });
}

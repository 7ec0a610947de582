// Convolutions, pooling and resizing on a GPU: the vendor's library where it serves, else our own kernels.
import {
  CONV_ALIGNMENT,
  CONV_DTYPES,
  type ConvDType,
  type ConvPlan,
  type ConvSpec,
  type Dnn,
} from '../../driver/dnn.js';
import { bilinearGradLaunch, bilinearLaunch, convLaunch, nearestLaunch, poolLaunch } from '../../kernels/launch.js';
import type { KernelRow } from '../../ops/op.js';
import type { View } from '../backend.js';
import type { GpuContext } from './context.js';
import { launchRow } from './elementwise.js';
import { addressOf, infoAddress, runPlan, viewOf, withTemporaries } from './plans.js';

interface ConvParams {
  readonly stride: readonly number[];
  readonly padding: readonly number[];
  readonly dilation: readonly number[];
  readonly groups: number;
  readonly outputPadding?: readonly number[];
}
type Pair = readonly [number, number];
/** One spatial dimension is two with height 1. */
const pairOf = (list: readonly number[], fill: number): Pair =>
  list.length === 2 ? [list[0], list[1]] : [fill, list[0]];
const asPlane = (v: View): View => (v.layout.rank === 4 ? v : { ...viewOf(v), layout: v.layout.unsqueeze(2) });
const four = (v: View): readonly [number, number, number, number] => v.layout.shape as [number, number, number, number];

export function runConv(
  gpu: GpuContext,
  row: KernelRow,
  inputs: readonly View[],
  outputs: readonly View[],
  p: ConvParams,
): void {
  const [x, w, out] = [asPlane(inputs[0]), asPlane(inputs[1]), asPlane(outputs[0])];
  const bias = inputs[2];
  if (x.layout.size === 0 || w.layout.size === 0) return fillWithBias(gpu, out, bias);
  if (byLibrary(gpu, row.name.startsWith('convTranspose'), x, w, out, p)) {
    if (bias) addBias(gpu, out, bias);
    return;
  }
  own(gpu, row.name.startsWith('convTranspose'), x, w, bias, out, p);
}

const biasView = (bias: View, out: View): View => ({
  ...viewOf(bias),
  layout: bias.layout.unsqueeze(0).unsqueeze(2).unsqueeze(3).broadcastTo('conv', out.layout.shape),
});
/** out + bias in place: elementwise kernels read before they write. */
const addBias = (gpu: GpuContext, out: View, bias: View): void =>
  launchRow(gpu, 'add', [out, biasView(bias, out)], out);
function fillWithBias(gpu: GpuContext, out: View, bias: View | undefined): void {
  gpu.fill(out, 0);
  if (bias && out.layout.size > 0) addBias(gpu, out, bias);
}

const known = new WeakMap<Dnn, Map<string, ConvPlan | undefined>>();

function byLibrary(gpu: GpuContext, transposed: boolean, x: View, w: View, out: View, p: ConvParams): boolean {
  const { dnn } = gpu.libraries;
  if (typeof dnn === 'string' || !(CONV_DTYPES as readonly string[]).includes(x.dtype)) return false;
  // A transposed convolution is the gradient of a convolution with respect to its input.
  const [data, result] = transposed ? [out, x] : [x, out];
  const spec: ConvSpec = {
    kind: transposed ? 'backward-data' : 'forward',
    dtype: x.dtype as ConvDType,
    x: four(data),
    filter: four(w),
    y: four(result),
    padding: pairOf(p.padding, 0),
    stride: pairOf(p.stride, 1),
    dilation: pairOf(p.dilation, 1),
    groups: p.groups,
    tf32: gpu.tf32,
  };
  let plans = known.get(dnn);
  if (!plans) known.set(dnn, (plans = new Map()));
  const key = JSON.stringify(spec);
  const fresh = !plans.has(key);
  if (fresh) plans.set(key, dnn.supports(spec) === true ? dnn.plan(spec) : undefined);
  const plan = plans.get(key);
  if (!plan) return false;
  withTemporaries(gpu, (t) => {
    const placed = (v: View): View => (v.layout.isContiguous && addressOf(v) % CONV_ALIGNMENT === 0 ? v : t.copy(v));
    const [dx, dw] = [placed(x), placed(w)];
    const [px, py] = transposed ? [addressOf(out), addressOf(dx)] : [addressOf(dx), addressOf(out)];
    if (fresh) dnn.tune(plan, px, addressOf(dw), py, gpu.stream);
    dnn.run(plan, px, addressOf(dw), py, gpu.stream);
  });
  return true;
}

function own(
  gpu: GpuContext,
  transposed: boolean,
  x: View,
  w: View,
  bias: View | undefined,
  out: View,
  p: ConvParams,
): void {
  const [n, c, ih, iw] = four(x);
  const [, o, oh, ow] = four(out);
  const [, , kh, kw] = four(w);
  withTemporaries(gpu, (t) => {
    const b = bias ? t.dense(bias) : undefined;
    const plan = convLaunch(
      transposed,
      x.dtype,
      {
        batch: n,
        groups: p.groups,
        channels: c / p.groups,
        outputs: o / p.groups,
        input: [ih, iw],
        output: [oh, ow],
        kernel: [kh, kw],
        stride: pairOf(p.stride, 1),
        padding: pairOf(p.padding, 0),
        dilation: pairOf(p.dilation, 1),
        inputStrides: x.layout.strides,
        kernelStrides: w.layout.strides,
        bias: b !== undefined,
      },
      gpu.device.info,
    );
    runPlan(gpu, plan, { src: addressOf(x), kernel: addressOf(w), bias: b ? addressOf(b) : 0, dst: addressOf(out) });
  });
}

const POOLS: Readonly<Record<string, 'avg' | 'max' | 'argmax'>> = {
  avgPool2d: 'avg',
  maxPool2d: 'max',
  argMaxPool2d: 'argmax',
};
export function runPool(
  gpu: GpuContext,
  row: KernelRow,
  [x]: readonly View[],
  [out]: readonly View[],
  p: { kernel: number[]; stride: number[]; padding: number[] },
): void {
  withTemporaries(gpu, (t) => {
    const dense = t.dense(x);
    const [n, c, h, w] = four(x);
    const plan = poolLaunch(
      POOLS[row.name],
      x.dtype,
      n * c,
      [h, w],
      out.layout.shape.slice(2),
      p.kernel,
      p.stride,
      p.padding,
    );
    runPlan(gpu, plan, { src: addressOf(dense), dst: addressOf(out) });
  });
}

interface ResampleParams {
  readonly size: readonly number[];
  readonly alignCorners?: boolean;
  readonly scale?: readonly number[] | null;
  readonly inputSize?: readonly number[];
}
export function runResample(
  gpu: GpuContext,
  row: KernelRow,
  [x]: readonly View[],
  [out]: readonly View[],
  p: ResampleParams,
): void {
  const { shape, strides } = x.layout;
  const planes = shape[0] * shape[1];
  if (row.name.endsWith('Backward')) {
    withTemporaries(gpu, (t) => {
      const dense = t.dense(x);
      const plan = bilinearGradLaunch(
        x.dtype,
        planes,
        out.layout.shape.slice(2),
        shape.slice(2),
        p.alignCorners ?? false,
        p.scale ?? null,
      );
      runPlan(gpu, plan, { grad: addressOf(dense), dx: addressOf(out) });
    });
    return;
  }
  const buffers = { src: addressOf(x), dst: addressOf(out), info: infoAddress(gpu, [...shape, ...strides]) };
  const plan = row.name.startsWith('upsampleNearest')
    ? nearestLaunch(x.dtype, planes, shape.slice(2), out.layout.shape.slice(2))
    : bilinearLaunch(x.dtype, planes, out.layout.shape.slice(2), p.alignCorners ?? false, p.scale ?? null);
  runPlan(gpu, plan, buffers);
}

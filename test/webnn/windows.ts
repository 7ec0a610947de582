// WebNN's convolutions and pools: any layout of input and filter, uneven padding, dilated windows, composed of our
// rows.
import type { Tensor } from '../../src/tensor/tensor.js';
import { type Call, wide } from './operators.js';

const NHWC = [0, 3, 1, 2];
const BACK = [0, 2, 3, 1];
/** Filters of each layout permuted to what our rows take: (out, in, h, w), and (in, out, h, w) when transposed. */
const FILTER: Readonly<Record<string, readonly number[]>> = {
  oihw: [0, 1, 2, 3],
  hwio: [3, 2, 0, 1],
  ohwi: [0, 3, 1, 2],
  ihwo: [3, 0, 1, 2],
};
const TRANSPOSED: Readonly<Record<string, readonly number[]>> = {
  iohw: [0, 1, 2, 3],
  hwoi: [3, 2, 0, 1],
  ohwi: [3, 0, 1, 2],
  oihw: [1, 0, 2, 3],
};

const inPlanes = (x: Tensor, layout: string | undefined, f: (x: Tensor) => Tensor): Tensor =>
  layout === 'nhwc' ? f(x.permute(NHWC)).permute(BACK) : f(x);
/** WebNN's [top, bottom, left, right] as pairs from the last dimension. */
const padded = (x: Tensor, [top, bottom, left, right]: readonly number[], value = 0): Tensor =>
  x.pad([left, right, top, bottom], value);
const addBias = (y: Tensor, bias?: Tensor): Tensor => (bias ? y.add(bias.reshape([1, bias.size, 1, 1])) : y);

export function convolve({ args: [x, filter], options: o }: Call): Tensor {
  return inPlanes(x, o.inputLayout, (p) => {
    const w = filter.permute(FILTER[o.filterLayout ?? 'oihw']);
    return addBias(
      padded(p, o.padding ?? [0, 0, 0, 0]).conv2d(w, {
        stride: o.strides ?? 1,
        dilation: o.dilations ?? 1,
        groups: o.groups ?? 1,
      }),
      o.bias,
    );
  });
}

export function convolveTransposed({ args: [x, filter], options: o }: Call): Tensor {
  return inPlanes(x, o.inputLayout, (p) => {
    const w = filter.permute(TRANSPOSED[o.filterLayout ?? 'iohw']);
    const full = p.convTranspose2d(w, { stride: o.strides ?? 1, dilation: o.dilations ?? 1, groups: o.groups ?? 1 });
    const [top, bottom, left, right] = o.padding ?? [0, 0, 0, 0];
    const [h, v] = [full.shape[2] - top - bottom, full.shape[3] - left - right];
    // Room added at the end is what the padding cut off there, then zeros.
    const more: readonly [number, number] = o.outputSizes
      ? [o.outputSizes[0] - h, o.outputSizes[1] - v]
      : (o.outputPadding ?? [0, 0]);
    return addBias(padded(full, [-top, more[0] - bottom, -left, more[1] - right]), o.bias);
  });
}

/** How many windows fit, and how much padding at the end the last one needs. */
function extent(
  size: number,
  window: number,
  stride: number,
  dilation: number,
  [before, after]: readonly [number, number],
  ceil: boolean,
  wanted?: number,
): { count: number; after: number } {
  const span = (window - 1) * dilation + 1;
  const free = (size + before + after - span) / stride;
  const count = wanted ?? (ceil ? Math.ceil(free) : Math.floor(free)) + 1;
  return { count, after: Math.max(after, (count - 1) * stride + span - size - before) };
}

/** One tensor for each place in the window: that place's element of every window. */
function windows(x: Tensor, o: Call['options'], fill: number): Tensor[] {
  const size: readonly number[] = o.windowDimensions ?? x.shape.slice(2);
  const stride: readonly number[] = o.strides ?? [1, 1];
  const dilation: readonly number[] = o.dilations ?? [1, 1];
  const p: readonly number[] = o.padding ?? [0, 0, 0, 0];
  const ceil = o.outputShapeRounding === 'ceil';
  const [v, h] = [0, 1].map((i) =>
    extent(x.shape[2 + i], size[i], stride[i], dilation[i], [p[2 * i], p[2 * i + 1]], ceil, o.outputSizes?.[i]),
  );
  const wideX = padded(x, [p[0], v.after, p[2], h.after], fill);
  const at = (t: Tensor, dim: number, k: number, count: number): Tensor => {
    const start = k * dilation[dim - 2];
    return t.slice(dim, start, start + (count - 1) * stride[dim - 2] + 1, stride[dim - 2]);
  };
  return Array.from({ length: size[0] * size[1] }, (_, k) =>
    at(at(wideX, 2, Math.floor(k / size[1]), v.count), 3, k % size[1], h.count),
  );
}
const total = (parts: readonly Tensor[]): Tensor => parts.reduce((a, b) => a.add(b));

/** Our own row where the window is plain; padding never counts for the average. */
const plain = (o: Call['options']): boolean =>
  !o.padding && !o.dilations && !o.outputSizes && o.outputShapeRounding !== 'ceil';
export const averagePool = ({ args: [x], options: o }: Call): Tensor =>
  inPlanes(x, o.layout, (p) => {
    if (plain(o)) return p.avgPool2d(o.windowDimensions ?? (p.shape.slice(2) as [number, number]), o.strides ?? 1);
    return wide(p, (w) => total(windows(w, o, 0)).div(total(windows(w.onesLike(), o, 0))));
  });
export const maxPool = ({ args: [x], options: o }: Call): Tensor =>
  inPlanes(x, o.layout, (p) => {
    if (plain(o)) return p.maxPool2d(o.windowDimensions ?? (p.shape.slice(2) as [number, number]), o.strides ?? 1);
    // A window that lies in the padding alone gives 0.
    const covered = total(windows(p.onesLike(), o, 0)).gt(0);
    return covered.where(
      windows(p, o, -Infinity).reduce((a, b) => a.maximum(b)),
      0,
    );
  });
export const l2Pool = ({ args: [x], options: o }: Call): Tensor =>
  inPlanes(x, o.layout, (p) => wide(p, (w) => total(windows(w.sqr(), o, 0)).sqrt()));

// The layouts every op is tried on: the same logical values, stored in different ways.
import { bytesOf, DTYPE, type DType, type Value } from '../base/dtype.js';
import { Layout } from '../base/layout.js';
import type { Shape } from '../base/shape.js';
import type { Device } from '../tensor/device.js';
import { Tensor } from '../tensor/tensor.js';
import { encodeValues } from './values.js';

type Place = (shape: Shape) => Layout | undefined;

/** Where logical elements lie in storage; undefined where the layout says nothing new for this shape. */
export const LAYOUTS = {
  contiguous: (shape: Shape): Layout => Layout.contiguous(shape),
  offset: (shape: Shape): Layout => Layout.contiguous(shape, 3),
  transposed: (shape: Shape): Layout | undefined => {
    if (shape.filter((d) => d > 1).length < 2) return undefined;
    const reversed = shape.map((_, i) => shape.length - 1 - i);
    return Layout.contiguous(reversed.map((d) => shape[d])).permute(reversed);
  },
  stepped: (shape: Shape): Layout | undefined => {
    if (shape.length === 0) return undefined;
    const last = shape.length - 1;
    return Layout.contiguous(
      shape.map((d, i) => (i === last ? d * 2 : d)),
      1,
    ).slice(last, 0, shape[last], 2);
  },
  gapped: (shape: Shape): Layout | undefined => {
    if (shape.length < 2) return undefined;
    const wide = Layout.contiguous(shape.map((d, i) => (i === 0 ? d : d + 2)));
    return shape.reduce((l, d, i) => (i === 0 ? l : l.slice(i, 1, d)), wide);
  },
} satisfies Record<string, Place>;
export type LayoutName = keyof typeof LAYOUTS;
export const LAYOUT_NAMES = Object.keys(LAYOUTS) as LayoutName[];

/** An input as it lies in memory, the same for every device. */
export interface Stored {
  readonly dtype: DType;
  readonly layout: Layout;
  readonly bytes: Uint8Array<ArrayBuffer>;
}

/** Logical values in a layout; gaps hold a pattern that no op may let through. */
export function stored(values: readonly Value[], layout: Layout, dtype: DType): Stored {
  const size = Math.max(layout.end, 1) + 2;
  const bytes = new Uint8Array(size * bytesOf(dtype)).fill(0x55);
  const raw = encodeValues(values, dtype);
  if (layout.isContiguous) bytes.set(raw, layout.offset * bytesOf(dtype));
  else {
    const { Raw } = DTYPE[dtype];
    const [from, to] = [new Raw(raw.buffer), new Raw(bytes.buffer)];
    layout.forEach((at, index) => (to[index] = from[at]));
  }
  return { dtype, layout, bytes };
}

/** The tensor of a stored input on a device. */
export function put({ bytes, layout, dtype }: Stored, device: Device): Tensor {
  const base = Tensor.fromBytes(bytes, [bytes.length / bytesOf(dtype)], dtype, device);
  const t = base.withLayout(layout);
  base.dispose();
  return t;
}

/** A tensor with these logical values in this layout. */
export const placed = (values: readonly Value[], layout: Layout, dtype: DType, device: Device): Tensor =>
  put(stored(values, layout, dtype), device);

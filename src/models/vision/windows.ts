// Pictures cut into square windows, and put together again.
import type { Tensor } from '../../tensor/tensor.js';

export type Size = readonly [height: number, width: number];
/** A picture (b, h, w, c) as windows (b * windows, area, c). */
export function windowsOf(x: Tensor, side: number): Tensor {
  const [b, h, w, c] = x.shape;
  const cut = x.reshape([b, h / side, side, w / side, side, c]).permute([0, 1, 3, 2, 4, 5]);
  return cut.reshape([(b * h * w) / (side * side), side * side, c]);
}
export function fromWindows(x: Tensor, side: number, [h, w]: Size): Tensor {
  const c = x.shape[2];
  const cut = x.reshape([-1, h / side, w / side, side, side, c]).permute([0, 1, 3, 2, 4, 5]);
  return cut.reshape([-1, h, w, c]);
}
/** Zeros below and right of (b, h, w, c), up to a size. */
export function padded(x: Tensor, [height, width]: Size): Tensor {
  const [, h, w] = x.shape;
  return h === height && w === width ? x : x.pad([0, 0, 0, width - w, 0, height - h]);
}

// Where a matrix product goes when the caller has a place for it: gradients of weights are written among all others.
import type { DType } from '../base/dtype.js';
import { sameShape, type Shape } from '../base/shape.js';
import type { Device } from './device.js';
import type { Tensor } from './tensor.js';

let place: Tensor | undefined;
/** Runs f, which makes one matrix product: it goes to `at` where its shape and dtype are that tensor's. */
export function productAt<T>(at: Tensor, f: () => T): T {
  place = at;
  try {
    return f();
  } finally {
    place = undefined;
  }
}
/** The place of a product of this kind, which then is taken. */
export function takePlace(shape: Shape, dtype: DType, device: Device): Tensor | undefined {
  if (!place || place.dtype !== dtype || place.device !== device || !sameShape(place.layout.shape, shape))
    return undefined;
  const taken = place.detach();
  place = undefined;
  return taken;
}

// A library's product and a sum in one: a residual needs no launch of its own.
import type { GemmDType } from '../../driver/blas.js';
import type { View } from '../backend.js';
import type { GpuContext } from './context.js';
import { addressOf } from './plan.js';

/**
 * out = sum (m, n) + x (m, k) times the transposed weight (n, k), all contiguous, rounded once; `out` may be the sum
 * itself. False where no library does it: nothing has happened then.
 */
export function addProduct(context: GpuContext, sum: View, x: View, weight: View, out: View): boolean {
  const { libraries, stream, turn } = context;
  const [[m, n], k] = [sum.layout.shape, x.layout.shape[1]];
  const one = { batchStride: 0 };
  const product = libraries.product({
    ...{ dtype: sum.dtype as GemmDType, batch: 1, m, n, k, bias: false },
    a: { ...one, order: 'row', ld: k },
    b: { ...one, order: 'col', ld: k },
    d: { ...one, order: 'row', ld: n },
  });
  if (!product || libraries.productsRefused) return false;
  const [from, by, onto, to] = [x, weight, sum, out].map(addressOf);
  turn.take(() => {
    if (!libraries.runProduct(product, from, by, to, 0, stream, onto))
      throw new Error('addProduct: a library that never refuses has refused');
  });
  return true;
}

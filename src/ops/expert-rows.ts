// Rows times the matrix of the expert that each has chosen, where the choice stays on the device: the CPU engine's way.
// GPUs gather matrices instead, so it is not a method of tensors and stands in no table.
import { REALS } from '../base/dtype.js';
import { DTypeError, ShapeError } from '../base/errors.js';
import { formatShape } from '../base/shape.js';
import { numbers } from './kernel-row.js';
import { type KernelRow, type RefTensor, type Sig, ulps } from './op.js';

export const expertRow: KernelRow = {
  name: 'expertRows',
  family: 'index',
  mixed: true,
  kernel: { kind: 'experts' },
  formula: 'out[r] = w[ids[r]] x[r]',
  dtypes: REALS,
  ulp: ulps(16),
  noGrad: 'models that are trained take one product an expert',
  candle: { none: 'candle sorts rows by expert on the host' },
  infer: ([x, w, ids]: readonly Sig[]): readonly Sig[] => {
    const fits = x.shape.length === 2 && w.shape.length === 3 && ids.shape.length === 1;
    if (!fits || w.shape[2] !== x.shape[1] || ids.shape[0] !== x.shape[0])
      throw new ShapeError(
        `expertRows: ${formatShape(x.shape)} with matrices ${formatShape(w.shape)} and choices ` +
          `${formatShape(ids.shape)}; it takes (rows, in), (experts, out, in) and (rows)`,
      );
    // Matrices of 16 bits beside rows of f32 are widened where they are read.
    const widened = x.dtype === 'f32' && (w.dtype === 'bf16' || w.dtype === 'f16');
    if (w.dtype !== x.dtype && !widened) throw new DTypeError(`expertRows: rows are ${x.dtype}, matrices ${w.dtype}`);
    return [{ shape: [x.shape[0], w.shape[1]], dtype: x.dtype }];
  },
  reference: ([x, w, ids]: readonly RefTensor[], [out]: readonly RefTensor[]): void => {
    const [, n, k] = w.shape;
    const [xs, ws, ys] = [numbers(x), numbers(w), numbers(out)];
    ids.data.forEach((id, r) => {
      for (let j = 0; j < n; j++) {
        let sum = 0;
        for (let i = 0; i < k; i++) sum += xs[r * k + i] * ws[(Number(id) * n + j) * k + i];
        ys[r * n + j] = sum;
      }
    });
  },
  args: () => {
    throw new DTypeError('expertRows: it is not a method');
  },
  samples: () => [],
  errors: () => [],
};

// Rows written to their places in memory that keeps its others: how an engine appends keys and values. It changes its
// first operand, so it is not a method of tensors and stands in no table.
import { DTYPES, maxInt } from '../base/dtype.js';
import { DTypeError, ShapeError } from '../base/errors.js';
import { formatShape } from '../base/shape.js';
import { placeOf } from './index-places.js';
import { type KernelRow, type RefTensor, type Sig, ulps } from './op.js';

export const storeRow: KernelRow = {
  name: 'storeRows',
  family: 'index',
  kernel: { kind: 'store' },
  formula: 'x[ids[i]] = src[i], in place',
  dtypes: DTYPES,
  ulp: ulps(0),
  noGrad: 'it changes its operand in place',
  candle: { none: 'candle_nn::kv_cache::ScatteredKvCache writes by scatter_set, an element at a time' },
  infer: ([x, ids, src]: readonly Sig[]): readonly Sig[] => {
    if (ids.dtype !== 'i32' || src.dtype !== x.dtype)
      throw new DTypeError(
        `storeRows: indices are ${ids.dtype}, rows ${src.dtype} for ${x.dtype}; it takes i32 and one dtype`,
      );
    const [rows, width] = src.shape;
    if (x.shape.length !== 2 || src.shape.length !== 2 || ids.shape.length !== 1 || ids.shape[0] !== rows)
      throw new ShapeError(
        `storeRows: ${formatShape(src.shape)} with indices ${formatShape(ids.shape)} into ` +
          `${formatShape(x.shape)}; it takes (n, width), (n) and (rows, width)`,
      );
    if (x.shape[1] !== width) throw new ShapeError(`storeRows: rows of ${width} do not fit ${formatShape(x.shape)}`);
    return [x];
  },
  reference: ([x, ids, src]: readonly RefTensor[], [out]: readonly RefTensor[]): void => {
    const [n, width] = x.shape;
    x.data.forEach((v, i) => (out.data[i] = v));
    ids.data.forEach((id, i) => {
      const at = placeOf('storeRows', id, i, n, maxInt(ids.dtype));
      for (let j = 0; at >= 0 && j < width; j++) out.data[at * width + j] = src.data[i * width + j];
    });
  },
  args: () => {
    throw new DTypeError('storeRows: it is not a method');
  },
  samples: () => [],
  errors: () => [],
};

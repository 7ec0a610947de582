// Matrix products: a batched kernel row of rank 2 and up, and the general product made of it; and both with a right
// side that is stored in 16 bits and read so.
import { type DType, REALS } from '../base/dtype.js';
import { DTypeError, ShapeError } from '../base/errors.js';
import { Layout } from '../base/layout.js';
import { broadcastShapes, formatShape, type Shape, sizeOf } from '../base/shape.js';
import type { Tensor } from '../tensor/tensor.js';
import {
  type Call,
  type CompositeRow,
  type GradContext,
  type Grads,
  type KernelRow,
  type RefTensor,
  rows,
  type Sample,
  type Sig,
  ulps,
} from './op.js';

type BmmRow = Omit<KernelRow<{}>, 'name' | 'args'> & { readonly args: (x: Tensor, y: Tensor) => Call<{}> };
type MatmulRow = Omit<CompositeRow, 'name' | 'compose'> & { readonly compose: (x: Tensor, y: Tensor) => Tensor };

/** It lies as the operand does: that of a transposed weight, turned back, is dense. */
export function secondGrad(x: Tensor, y: Tensor, grad: Tensor): Tensor {
  const { strides, rank } = y.layout;
  return strides[rank - 2] === 1 && strides[rank - 1] > 1
    ? grad.transpose(-1, -2).bmm(x).transpose(-1, -2)
    : x.transpose(-1, -2).bmm(grad);
}

function productOf(op: string, [x, y]: readonly Sig[]): readonly Sig[] {
  const [rx, ry] = [x.shape.length, y.shape.length];
  if (rx < 2 || ry < 2)
    throw new ShapeError(
      `${op}: both sides need two dimensions or more: lhs ${formatShape(x.shape)}, rhs ${formatShape(y.shape)}`,
    );
  const [m, k] = [x.shape[rx - 2], x.shape[rx - 1]];
  const [k2, n] = [y.shape[ry - 2], y.shape[ry - 1]];
  if (k !== k2)
    throw new ShapeError(
      `${op}: inner dimensions differ: lhs ${formatShape(x.shape)} has ${k}, rhs ${formatShape(y.shape)} has ` +
        `${k2}`,
    );
  if (rx === 2 && ry === 2) return [{ shape: [m, n], dtype: x.dtype }];
  const batch = broadcastShapes(op, x.shape.slice(0, -2), y.shape.slice(0, -2));
  return [{ shape: [...batch, m, n], dtype: x.dtype }];
}
function multiply([x, y]: readonly RefTensor[], [out]: readonly RefTensor[]): void {
  const [m, k] = x.shape.slice(-2);
  const n = y.shape[y.shape.length - 1];
  const batch = out.shape.slice(0, -2);
  const starts = (shape: readonly number[], unit: number): number[] => {
    const list: number[] = [];
    Layout.contiguous(shape.slice(0, -2))
      .broadcastTo('matmul', batch)
      .forEach((_, i) => list.push(i * unit));
    return list;
  };
  const xs = starts(x.shape, m * k);
  const ys = starts(y.shape, k * n);
  for (let b = 0; b < sizeOf(batch); b++) {
    for (let i = 0; i < m; i++) {
      for (let j = 0; j < n; j++) {
        let sum = 0;
        for (let c = 0; c < k; c++)
          sum += (x.data[xs[b] + i * k + c] as number) * (y.data[ys[b] + c * n + j] as number);
        out.data[(b * m + i) * n + j] = sum;
      }
    }
  }
}
const pair = (x: Shape, y: Shape): readonly [Shape, Shape] => [x, y];
const SHAPES = [
  pair([3, 5], [5, 4]),
  pair([2, 3, 5], [2, 5, 4]),
  pair([2, 1, 3, 5], [4, 5, 2]),
  pair([1, 7], [7, 1]),
  pair([2, 1, 2, 1, 3, 4], [2, 3, 4, 3]),
  pair([33, 65], [65, 17]),
  pair([3, 0], [0, 2]),
];
/** One row or some, and few columns: engines have a way of their own for each. */
const WAYS = [
  ...SHAPES,
  pair([1, 70], [70, 50]),
  pair([4, 40], [40, 33]),
  pair([12, 70], [70, 40]),
  pair([9, 33], [33, 2]),
];
const samplesOf = (shapes: readonly (readonly [Shape, Shape])[], right?: DType): Sample<{}>[] =>
  shapes.map(([x, y]) => ({ inputs: [{ shape: x }, { shape: y, ...(right && { dtype: right }) }], params: {} }));
/** A product of any ranks, made of one of matrices. */
function anyRanks(op: string, x: Tensor, y: Tensor, by: (x: Tensor, y: Tensor) => Tensor): Tensor {
  if (x.rank === 0 || y.rank === 0)
    throw new ShapeError(
      `${op}: a rank-0 tensor has no dimension to multiply along: lhs ${formatShape(x.shape)}, rhs ` +
        `${formatShape(y.shape)}`,
    );
  if (x.rank === 1) return anyRanks(op, x.unsqueeze(0), y, by).squeeze(y.rank === 1 ? -1 : -2);
  if (y.rank === 1) return anyRanks(op, x, y.unsqueeze(1), by).squeeze(-1);
  // A stack of rows times one matrix is one larger product.
  if (x.rank > 2 && y.rank === 2 && x.layout.isContiguous) {
    const k = x.shape[x.rank - 1];
    if (k === y.shape[0] && k > 0)
      return by(x.reshape([x.size / k, k]), y).reshape([...x.shape.slice(0, -1), y.shape[1]]);
  }
  return by(x, y);
}
/** What a right side is stored in that is widened where it is read. */
const NARROW = ['bf16', 'f16'] as const satisfies readonly DType[];
const WIDENED: Pick<MatmulRow, 'dtypes' | 'without' | 'mixed' | 'candle' | 'domain'> = {
  dtypes: ['f32'],
  without: 'activations are f32 and weights bf16 or f16; of one dtype they are multiplied by matmul',
  mixed: true,
  candle: { none: 'Candle casts weights first' },
  domain: [-1, 1],
};
function requireNarrow(op: string, { shape: xs, dtype: x }: Sig, { shape: ys, dtype: y }: Sig): void {
  if (x === 'f32' && (NARROW as readonly DType[]).includes(y)) return;
  throw new DTypeError(
    `${op}: it multiplies f32 by bf16 or f16, not ${x} ${formatShape(xs)} by ${y} ${formatShape(ys)}`,
  );
}

const without = 'matrix products are defined for floats of 16 bits and more; cast first';

export const matmulOps = rows({
  bmm: {
    family: 'matmul',
    serves: 'matmul',
    formula: 'out[..., m, n] = sum over k of x[..., m, k] * y[..., k, n]',
    dtypes: REALS,
    without,
    ulp: ulps(28),
    candle: { none: 'Candle calls the BLAS' },
    differs: 'any rank and strides; 16-bit floats add up in f32',
    domain: [-1, 1],
    args: (x: Tensor, y: Tensor): Call<{}> => ({ inputs: [x, y], params: {} }),
    infer: (inputs: readonly Sig[]): readonly Sig[] => productOf('matmul', inputs),
    reference: multiply,
    samples: () => samplesOf(SHAPES),
    errors: () => [
      {
        inputs: [{ shape: [2, 3] }, { shape: [4, 5] }],
        params: {},
        code: 'E_SHAPE',
        says: /matmul: inner dimensions differ: lhs \[2, 3\] has 3, rhs \[4, 5\] has 4/,
      },
      { inputs: [{ shape: [2, 2, 3] }, { shape: [3, 3, 5] }], params: {}, code: 'E_SHAPE', says: /do not broadcast/ },
      {
        inputs: [{ shape: [2, 3] }, { shape: [3, 5], dtype: 'u8' }],
        params: {},
        code: 'E_DTYPE',
        says: /matmul: operands have different dtypes, \w+ \[2, 3\] and u8 \[3, 5\]; cast one/,
      },
    ],
    grad: ({ x, y, grad, needs, placed }: GradContext): Grads => [
      needs(0) ? grad.bmm(y.transpose(-1, -2)).sumTo(x.shape) : undefined,
      needs(1) ? placed(1, () => secondGrad(x, y, grad)).sumTo(y.shape) : undefined,
    ],
    gradReads: [0, 1],
  } satisfies BmmRow as BmmRow,
  matmul: {
    family: 'composite',
    formula: 'matrix product of any ranks; a vector is a row on the left, a column on the right',
    dtypes: REALS,
    without,
    ulp: ulps(8),
    candle: { none: 'Candle calls the BLAS' },
    domain: [-1, 1],
    compose: (x: Tensor, y: Tensor): Tensor => anyRanks('matmul', x, y, (a, b) => a.bmm(b)),
    samples: () => [
      { inputs: [{ shape: [5] }, { shape: [5] }], args: [{ input: 1 }] },
      { inputs: [{ shape: [5] }, { shape: [2, 5, 3] }], args: [{ input: 1 }] },
      { inputs: [{ shape: [2, 3, 5] }, { shape: [5] }], args: [{ input: 1 }] },
      { inputs: [{ shape: [2, 3, 5] }, { shape: [5, 4] }], args: [{ input: 1 }] },
    ],
    errors: () => [{ inputs: [{ shape: [] }, { shape: [3] }], args: [{ input: 1 }], code: 'E_SHAPE', says: /rank-0/ }],
  } satisfies MatmulRow as MatmulRow,
  bmmWidened: {
    ...WIDENED,
    family: 'matmul',
    serves: 'matmulWidened',
    formula: 'bmm of x and y.cast(f32), bit for bit on the CPU; y is widened where it is read',
    ulp: 28,
    args: (x: Tensor, y: Tensor): Call<{}> => ({ inputs: [x, y], params: {} }),
    infer: (inputs: readonly Sig[]): readonly Sig[] => {
      requireNarrow('matmulWidened', inputs[0], inputs[1]);
      return productOf('matmulWidened', inputs);
    },
    reference: multiply,
    samples: () => NARROW.flatMap((right) => samplesOf(WAYS, right)),
    errors: () => [
      {
        inputs: [{ shape: [2, 3] }, { shape: [4, 5], dtype: 'bf16' }],
        params: {},
        code: 'E_SHAPE',
        says: /matmulWidened: inner dimensions differ: lhs \[2, 3\] has 3, rhs \[4, 5\] has 4/,
      },
      {
        inputs: [{ shape: [2, 3] }, { shape: [3, 5], dtype: 'f32' }],
        params: {},
        code: 'E_DTYPE',
        says: /matmulWidened: it multiplies f32 by bf16 or f16, not f32 \[2, 3\] by f32 \[3, 5\]/,
      },
    ],
    grad: ({ x, y, grad, needs }: GradContext): Grads => [
      needs(0) ? grad.bmmWidened(y.transpose(-1, -2)).sumTo(x.shape) : undefined,
      needs(1) ? secondGrad(x, y, grad).sumTo(y.shape).cast(y.dtype) : undefined,
    ],
    gradReads: [0, 1],
  } satisfies BmmRow as BmmRow,
  matmulWidened: {
    ...WIDENED,
    family: 'composite',
    formula: 'x.matmul(y.cast(f32)) for weights y stored in 16 bits, which stay so: half the bytes are read',
    ulp: 8,
    compose: (x: Tensor, y: Tensor): Tensor => anyRanks('matmulWidened', x, y, (a, b) => a.bmmWidened(b)),
    samples: () => [
      { inputs: [{ shape: [5] }, { shape: [5, 4], dtype: 'bf16' }], args: [{ input: 1 }] },
      { inputs: [{ shape: [5] }, { shape: [5], dtype: 'f16' }], args: [{ input: 1 }] },
      { inputs: [{ shape: [2, 3, 5] }, { shape: [5, 4], dtype: 'f16' }], args: [{ input: 1 }] },
    ],
    errors: () => [
      { inputs: [{ shape: [] }, { shape: [3], dtype: 'bf16' }], args: [{ input: 1 }], code: 'E_SHAPE', says: /rank-0/ },
    ],
  } satisfies MatmulRow as MatmulRow,
});

// Mixtures of experts: each row of activations times the matrix of the expert that an index names.
import { INDEX_DTYPES, maxInt, REALS } from '../base/dtype.js';
import { DTypeError, ShapeError } from '../base/errors.js';
import { formatShape } from '../base/shape.js';
import type { Tensor } from '../tensor/tensor.js';
import { placeOf } from './index-places.js';
import { kernel, numbers, requireRank, requireSameDType } from './kernel-row.js';
import { type Call, type GradContext, type Grads, type InputSpec, rows, type Sig } from './op.js';

/** Checks x [tokens, 1 or chosen, n], weights [experts, rows, ...] and indices [tokens, chosen]. */
export function requireExperts(op: string, [x, weights, indices]: readonly Sig[], n: number): void {
  requireRank(op, 'activations', x.shape, 3, 'tokens, 1 or chosen experts, values');
  requireRank(op, 'weights', weights.shape, 3, 'experts, rows, values');
  requireRank(op, 'indices', indices.shape, 2, 'tokens, chosen experts');
  if (!INDEX_DTYPES.some((d) => d === indices.dtype))
    throw new DTypeError(`${op}: indices are ${indices.dtype}; they must be one of ${INDEX_DTYPES.join(', ')}`);
  const [tokens, chosen] = indices.shape;
  if (x.shape[2] !== n || x.shape[0] !== tokens || (x.shape[1] !== 1 && x.shape[1] !== chosen))
    throw new ShapeError(
      `${op}: activations ${formatShape(x.shape)} do not fit indices ${formatShape(indices.shape)} and rows of ` +
        `${n} values: they are [${tokens}, 1 or ${chosen}, ${n}]`,
    );
}

const ids = (shape: readonly number[], n: number, dtype: 'u32' | 'i64' = 'u32'): InputSpec => ({
  shape,
  dtype,
  ints: [0, n - 1],
});

export const experts = rows({
  matmulExperts: kernel<[weights: Tensor, indices: Tensor], {}>({
    family: 'experts',
    mixed: true,
    formula: 'out[t, j] = x[t, j or 0] times the transpose of weights[ids[t, j]]; only chosen experts are read',
    dtypes: REALS,
    without: 'matrix products are defined for floats of 16 bits and more; cast first',
    ulp: { f32: 16, f64: 28, f16: 2, bf16: 2 },
    domain: [-1, 1],
    candle: { none: 'its kernels for experts take quantized weights, or bf16 sorted by expert' },
    args: (x: Tensor, weights: Tensor, indices: Tensor): Call<{}> => ({ inputs: [x, weights, indices], params: {} }),
    infer: (inputs) => {
      const [x, weights, indices] = inputs;
      requireSameDType('matmulExperts', [x, weights]);
      requireExperts('matmulExperts', inputs, weights.shape[2]);
      return [{ shape: [...indices.shape, weights.shape[1]], dtype: x.dtype }];
    },
    reference: ([x, weights, indices], [out]) => {
      const [, chosen] = indices.shape;
      const [count, outputs, n] = weights.shape;
      const given = x.shape[1];
      const [a, w] = [numbers(x), numbers(weights)];
      indices.data.forEach((id, i) => {
        const expert = placeOf('matmulExperts', id, i, count, maxInt(indices.dtype));
        const from = (Math.floor(i / chosen) * given + (given === 1 ? 0 : i % chosen)) * n;
        for (let r = 0; r < outputs; r++) {
          let sum = 0;
          const row = (expert * outputs + r) * n;
          if (expert >= 0) for (let k = 0; k < n; k++) sum += a[from + k] * w[row + k];
          out.data[i * outputs + r] = sum;
        }
      });
    },
    grad: ({ inputs: [x, weights, indices], grad, needs }: GradContext<{}>): Grads => {
      const [tokens, chosen, outputs] = grad.shape;
      const [all, n] = [tokens * chosen, x.shape[2]];
      const flat = indices.reshape([all]);
      const each = grad.reshape([all, 1, outputs]);
      let [toX, toWeights]: (Tensor | undefined)[] = [];
      if (needs(0)) {
        // The chosen experts' weights, one matrix a choice.
        const back = each.matmul(weights.indexSelect(0, flat)).reshape([tokens, chosen, n]);
        toX = x.shape[1] === 1 ? back.sum(1, true) : back;
      }
      if (needs(1)) {
        const rows = x.broadcastTo([tokens, chosen, n]).reshape([all, 1, n]);
        toWeights = weights.zerosLike().indexAdd(0, flat, each.transpose(1, 2).matmul(rows));
      }
      return [toX, toWeights, undefined];
    },
    samples: () => [
      { inputs: [{ shape: [3, 1, 32] }, { shape: [4, 5, 32] }, ids([3, 2], 4)], params: {} },
      { inputs: [{ shape: [3, 2, 24] }, { shape: [4, 18, 24] }, ids([3, 2], 4, 'i64')], params: {} },
      { inputs: [{ shape: [1, 1, 13] }, { shape: [2, 3, 13] }, ids([1, 2], 2)], params: {} },
      // More rows are sorted by expert on GPUs.
      { inputs: [{ shape: [48, 1, 40] }, { shape: [3, 20, 40] }, ids([48, 3], 3)], params: {} },
      { inputs: [{ shape: [35, 2, 21] }, { shape: [5, 7, 21] }, ids([35, 2], 5, 'i64')], params: {} },
    ],
    errors: () => [
      {
        inputs: [{ shape: [4, 3, 8] }, { shape: [3, 5, 8] }, ids([4, 2], 3)],
        params: {},
        code: 'E_SHAPE',
        says: /activations \[4, 3, 8\] do not fit indices \[4, 2\]/,
      },
      {
        inputs: [{ shape: [4, 1, 8] }, { shape: [3, 5, 8] }, { shape: [4, 2], dtype: 'f32' }],
        params: {},
        code: 'E_DTYPE',
        says: /indices are f32/,
      },
    ],
  }),
});

// Views: new layouts over the same storage.
import { DTYPES } from '../base/dtype.js';
import { ArgumentError, ShapeError } from '../base/errors.js';
import { backwards, Layout, sliceBounds } from '../base/layout.js';
import { formatShape, normalizeDim, normalizeDims, resolveReshape, type Shape } from '../base/shape.js';
import type { Tensor } from '../tensor/tensor.js';
import { onDiagonal } from './arrange.js';
import { type Call, type GradContext, type Grads, type Params, rows, type Span, type ViewRow } from './op.js';

type View<A extends readonly unknown[], P extends Params> = Omit<ViewRow<P>, 'name' | 'args'> & {
  readonly args: (x: Tensor, ...rest: A) => Call<P>;
};
const view = <A extends readonly unknown[], P extends Params>(
  def: Omit<View<A, P>, 'family' | 'dtypes' | 'ulp' | 'candle' | 'gradReads'>,
): View<A, P> => ({
  family: 'view',
  dtypes: DTYPES,
  ulp: 0,
  gradReads: [],
  candle: { none: 'a view: nothing runs' },
  ...def,
});
const one = (shape: Shape) => [{ shape }];

export const viewOps = rows({
  permute: view({
    formula: 'dimensions in another order',
    args: (x: Tensor, dims: readonly number[]): Call<{ dims: number[] }> => {
      const list = dims.slice();
      let distinct = list.length === x.rank;
      for (let i = 0; i < list.length; i++) {
        list[i] = normalizeDim('permute', list[i], x.rank);
        distinct &&= list.indexOf(list[i]) === i;
      }
      if (!distinct) {
        throw new ShapeError(
          `permute: ${formatShape(dims)} does not name each of the ${x.rank} dimensions of ${formatShape(x.shape)} ` +
            'once',
        );
      }
      return { inputs: [x], params: { dims: list } };
    },
    layout: (l: Layout, { dims }: { dims: number[] }): Layout => l.permute(dims),
    samples: () => [{ inputs: one([2, 3, 4]), params: { dims: [2, 0, 1] } }],
    errors: () => [],
    grad: ({ grad, params: { dims } }: GradContext<{ dims: number[] }>): Grads => [
      grad.permute(dims.map((_, i) => dims.indexOf(i))),
    ],
  }),
  slice: view({
    example: 'x.slice(0, 1, 7, 2)',
    formula:
      'elements start, start+step, ... before end along dim; negative bounds count from the end. A negative step ' +
      'goes backwards, in a copy',
    args: (x: Tensor, dim: number, start?: number, end?: number, step: number = 1): Call<SliceParams> => {
      const d = normalizeDim('slice', dim, x.rank);
      if (Number.isInteger(step) && step < 0) {
        const back = backwards('slice', x.shape[d], start, end, step);
        return { inputs: [x.flip(d)], params: { dim: d, step: -step, ...back } };
      }
      return { inputs: [x], params: { dim: d, step, ...sliceBounds('slice', x.shape[d], start, end, step) } };
    },
    layout: (l: Layout, { dim, start, length, step }: SliceParams): Layout => l.slice(dim, start, length, step),
    samples: () => [
      { inputs: one([7, 3]), params: { dim: 0, start: 1, length: 3, step: 2 } },
      { inputs: one([2, 9]), params: { dim: 1, start: 0, length: 0, step: 1 } },
    ],
    errors: () => [],
    grad: ({ x, grad, params: { dim, start, step } }: GradContext<SliceParams>): Grads => [
      grad.place(
        x.shape,
        x.shape.map((_, i) => (i === dim ? start : 0)),
        x.shape.map((_, i) => (i === dim ? step : 1)),
      ),
    ],
  }),
  narrow: view({
    formula: '`length` elements along dim from `start`',
    args: (x: Tensor, dim: number, start: number, length: number): Call<SliceParams> => {
      const d = normalizeDim('narrow', dim, x.rank);
      const from = start < 0 ? start + x.shape[d] : start;
      if (
        !Number.isInteger(from) ||
        !Number.isInteger(length) ||
        from < 0 ||
        length < 0 ||
        from + length > x.shape[d]
      ) {
        throw new ShapeError(
          `narrow: ${length} elements from ${start} do not lie within dimension ${d} of ${formatShape(x.shape)}, ` +
            `which has ${x.shape[d]}`,
        );
      }
      return { inputs: [x], params: { dim: d, start: from, length, step: 1 } };
    },
    layout: (l: Layout, { dim, start, length }: SliceParams): Layout => l.slice(dim, start, length),
    span: ({ dim, start, length }: SliceParams): Span => ({ dim, start, length }),
    samples: () => [{ inputs: one([2, 9]), params: { dim: 1, start: 3, length: 4, step: 1 } }],
    errors: () => [],
    grad: ({ x, grad, params: { dim, start } }: GradContext<SliceParams>): Grads => [
      grad.place(
        x.shape,
        x.shape.map((_, i) => (i === dim ? start : 0)),
      ),
    ],
  }),
  squeeze: view({
    formula: 'dimensions of size 1 removed: those named (others stay), or all',
    args: (x: Tensor, dims?: number | readonly number[]): Call<{ dims: number[] }> => ({
      inputs: [x],
      params: { dims: normalizeDims('squeeze', dims, x.rank).filter((d) => x.shape[d] === 1) },
    }),
    layout: (l: Layout, { dims }: { dims: number[] }): Layout => l.squeeze(dims),
    samples: () => [{ inputs: one([2, 1, 4, 1]), params: { dims: [1, 3] } }],
    errors: () => [],
    grad: ({ x, grad }: GradContext<any>): Grads => [grad.reshape(x.shape)],
  }),
  unsqueeze: view({
    formula: 'a dimension of size 1 inserted at dim',
    args: (x: Tensor, dim: number): Call<{ dim: number }> => ({
      inputs: [x],
      params: { dim: normalizeDim('unsqueeze', dim, x.rank, 1) },
    }),
    layout: (l: Layout, { dim }: { dim: number }): Layout => l.unsqueeze(dim),
    samples: () => [{ inputs: one([2, 3]), params: { dim: 1 } }],
    errors: () => [],
    grad: ({ x, grad }: GradContext<any>): Grads => [grad.reshape(x.shape)],
  }),
  broadcastTo: view({
    formula: 'dimensions of size 1, and new leading ones, repeated without copying',
    args: (x: Tensor, shape: Shape): Call<{ shape: Shape }> => ({ inputs: [x], params: { shape } }),
    layout: (l: Layout, { shape }: { shape: Shape }): Layout => l.broadcastTo('broadcastTo', shape),
    samples: () => [{ inputs: one([3, 1]), params: { shape: [2, 3, 4] } }],
    errors: () => [
      { inputs: one([3]), params: { shape: [2, 4] }, code: 'E_SHAPE', says: /\[3\] does not broadcast to \[2, 4\]/ },
    ],
    grad: ({ x, grad }: GradContext<any>): Grads => [grad.sumTo(x.shape)],
  }),
  viewAs: view({
    formula: 'the same elements in row-major order under another shape, where strides allow it without a copy',
    args: (x: Tensor, shape: Shape): Call<{ shape: Shape }> => ({
      inputs: [x],
      params: { shape: resolveReshape('viewAs', x.shape, shape) },
    }),
    layout: (l: Layout, { shape }: { shape: Shape }): Layout => {
      const view = l.reshape(shape);
      if (view) return view;
      throw new ShapeError(
        `viewAs: ${formatShape(l.shape)} with strides ${formatShape(l.strides)} is not a view of shape ` +
          `${formatShape(shape)}; reshape copies where it must`,
      );
    },
    // Dimensions taken apart, and ones of size 1: views whatever the strides are.
    samples: () => [
      { inputs: one([4, 6]), params: { shape: [2, 2, 3, 2] } },
      { inputs: one([3, 5]), params: { shape: [3, 1, 5] } },
    ],
    errors: () => [],
    grad: ({ x, grad }: GradContext<any>): Grads => [grad.reshape(x.shape)],
  }),
  unfold: view({
    formula: 'windows of `size` elements every `step` along dim, as a new last dimension',
    args: (x: Tensor, dim: number, size: number, step: number): Call<UnfoldParams> => {
      const d = normalizeDim('unfold', dim, x.rank);
      if (!(Number.isInteger(size) && size >= 1 && size <= x.shape[d] && Number.isInteger(step) && step >= 1)) {
        throw new ShapeError(
          `unfold: windows of ${size} every ${step} do not fit dimension ${d} of ${formatShape(x.shape)}`,
        );
      }
      return { inputs: [x], params: { dim: d, size, step } };
    },
    layout: (l: Layout, { dim, size, step }: UnfoldParams): Layout => {
      const windows = l.slice(dim, 0, Math.floor((l.shape[dim] - size) / step) + 1, step);
      return new Layout([...windows.shape, size], [...windows.strides, l.strides[dim]], l.offset);
    },
    samples: () => [{ inputs: one([2, 9]), params: { dim: 1, size: 3, step: 2 } }],
    errors: () => [],
    grad: ({ x, grad, params: { dim, size, step } }: GradContext<UnfoldParams>): Grads => {
      // Windows may overlap: each position of the window is a strided slice that is added back.
      const count = grad.shape[dim];
      let sum: Tensor | undefined;
      for (let k = 0; k < size; k++) {
        const part = grad
          .narrow(-1, k, 1)
          .squeeze(-1)
          .place(
            x.shape,
            x.shape.map((_, i) => (i === dim ? k : 0)),
            x.shape.map((_, i) => (i === dim && count > 1 ? step : 1)),
          );
        sum = sum ? sum.add(part) : part;
      }
      return [sum];
    },
  }),
  diagonal: view({
    example: 'x.diagonal()',
    formula: 'elements of diagonal k (above the main one where positive) of two dimensions, as a new last dimension',
    args: (x: Tensor, k: number = 0, dim1: number = -2, dim2: number = -1): Call<DiagonalParams> => {
      if (x.rank < 2) throw new ShapeError(`diagonal: ${formatShape(x.shape)} has fewer than two dimensions`);
      const [a, b] = [normalizeDim('diagonal', dim1, x.rank), normalizeDim('diagonal', dim2, x.rank)];
      if (a === b) throw new ArgumentError(`diagonal: both dimensions are ${a}; they must differ`);
      if (!Number.isSafeInteger(k)) throw new ArgumentError(`diagonal: ${String(k)} is not the number of a diagonal`);
      return { inputs: [x], params: { k, a, b } };
    },
    layout: (l: Layout, { k = 0, a = l.rank - 2, b = l.rank - 1 }: Partial<DiagonalParams>): Layout => {
      const size = Math.max(0, Math.min(l.shape[a] + Math.min(0, k), l.shape[b] - Math.max(0, k)));
      const start = size === 0 ? 0 : Math.max(0, -k) * l.strides[a] + Math.max(0, k) * l.strides[b];
      const rest = l.shape.map((_, i) => i).filter((i) => i !== a && i !== b);
      return new Layout(
        [...rest.map((i) => l.shape[i]), size],
        [...rest.map((i) => l.strides[i]), l.strides[a] + l.strides[b]],
        l.offset + start,
      );
    },
    samples: () => [
      { inputs: one([3, 4]), params: { k: 0, a: 0, b: 1 } },
      { inputs: one([3, 4]), params: { k: 2, a: 0, b: 1 } },
      { inputs: one([2, 4, 3]), params: { k: -1, a: 1, b: 0 } },
      { inputs: one([2, 2]), params: { k: 5, a: 0, b: 1 } },
    ],
    errors: () => [],
    grad: ({ x, grad, params: { k, a, b } }: GradContext<DiagonalParams>): Grads => {
      const rest = x.shape.map((_, i) => i).filter((i) => i !== a && i !== b);
      const order = [...rest, a, b];
      const full = onDiagonal(grad, x.shape[a], x.shape[b], k);
      return [full.permute(order.map((_, i) => order.indexOf(i)))];
    },
  }),
});

type DiagonalParams = { k: number; a: number; b: number };
type SliceParams = { dim: number; start: number; length: number; step: number };
type UnfoldParams = { dim: number; size: number; step: number };

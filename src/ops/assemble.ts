// Rows that put tensors together by copying them into slices of a result.
import { DTYPES } from '../base/dtype.js';
import { ArgumentError, ShapeError } from '../base/errors.js';
import type { Layout } from '../base/layout.js';
import { formatShape, normalizeDim, normalizeDims, type Shape } from '../base/shape.js';
import type { Tensor } from '../tensor/tensor.js';
import { requireNumbers, requireWhole } from './kernel-row.js';
import {
  type AssembleRow,
  type Call,
  type GradContext,
  type Grads,
  type Params,
  type Piece,
  rows,
  type Sig,
} from './op.js';
import type { Dims } from './reduce.js';

type Assemble<A extends readonly unknown[], P extends Params> = Omit<AssembleRow<P>, 'name' | 'args'> & {
  readonly args: (x: Tensor, ...rest: A) => Call<P>;
};
const copies = { none: 'made of strided copies (Candle: copy2d, or indexing)' };
type PlaceParams = { shape: Shape; starts: readonly number[]; steps: readonly number[]; value: number };

const assemble = <A extends readonly unknown[], P extends Params>(
  def: Omit<Assemble<A, P>, 'family' | 'dtypes' | 'ulp' | 'candle'>,
): Assemble<A, P> => ({ family: 'assemble', dtypes: DTYPES, ulp: 0, candle: copies, ...def });

export const assembleOps = rows({
  cat: assemble({
    example: 'x.cat(y, 1)',
    formula: 'tensors one after another along dim',
    args: (x: Tensor, others: readonly Tensor[] | Tensor, dim: number = 0): Call<{ dim: number }> => ({
      inputs: [x, ...(Array.isArray(others) ? others : [others as Tensor])],
      params: { dim: normalizeDim('cat', dim, x.rank) },
    }),
    infer: (inputs: readonly Sig[], { dim }: { dim: number }): readonly Sig[] => {
      const first = inputs[0];
      for (const t of inputs) {
        if (
          t.dtype !== first.dtype ||
          t.shape.length !== first.shape.length ||
          t.shape.some((d, i) => i !== dim && d !== first.shape[i])
        ) {
          throw new ShapeError(
            `cat: ${formatShape(t.shape)} ${t.dtype} does not fit ${formatShape(first.shape)} ${first.dtype}: dtypes ` +
              `and all dimensions but ${dim} must be equal`,
          );
        }
      }
      const shape = [...first.shape];
      shape[dim] = inputs.reduce((n, t) => n + t.shape[dim], 0);
      return [{ shape, dtype: first.dtype }];
    },
    pieces: (inputs: readonly Sig[], { dim }: { dim: number }): readonly Piece[] => {
      let at = 0;
      return inputs.map((t, input) => {
        const start = at;
        at += t.shape[dim];
        return { input, into: (l: Layout): Layout => l.slice(dim, start, t.shape[dim]) };
      });
    },
    samples: () => [
      { inputs: [{ shape: [2, 3] }, { shape: [2, 1] }, { shape: [2, 4] }], params: { dim: 1 } },
      { inputs: [{ shape: [2, 3] }, { shape: [0, 3] }, { shape: [1, 3] }], params: { dim: 0 } },
    ],
    errors: () => [
      {
        inputs: [{ shape: [2, 3] }, { shape: [3, 3] }],
        params: { dim: 1 },
        code: 'E_SHAPE',
        says: /cat: \[3, 3\] \w+ does not fit \[2, 3\]/,
      },
    ],
    grad: ({ inputs, grad, params: { dim } }: GradContext<{ dim: number }>): Grads => {
      let at = 0;
      return inputs.map((t) => grad.narrow(dim, (at += t.shape[dim]) - t.shape[dim], t.shape[dim]));
    },
  }),
  place: assemble({
    internal: true,
    formula: 'x at `starts`, every `steps`, in a tensor of `shape` filled with `value`',
    args: (
      x: Tensor,
      shape: Shape,
      starts: readonly number[],
      steps?: readonly number[],
      value: number = 0,
    ): Call<PlaceParams> => ({
      inputs: [x],
      params: { shape, starts, steps: steps ?? shape.map(() => 1), value },
    }),
    infer: ([x]: readonly Sig[], { shape, starts, steps, value }: PlaceParams): readonly Sig[] => {
      requireNumbers('place', { value });
      requireWhole('place', 'starts', starts, 0);
      requireWhole('place', 'steps', steps, 1);
      const rank = x.shape.length;
      const fits =
        shape.length === rank &&
        starts.length === rank &&
        steps.length === rank &&
        shape.every((d, i) => x.shape[i] === 0 || starts[i] + (x.shape[i] - 1) * steps[i] < d);
      if (!fits)
        throw new ShapeError(
          `place: ${formatShape(x.shape)} at ${formatShape(starts)} every ${formatShape(steps)} does not lie within ` +
            `${formatShape(shape)}`,
        );
      return [{ shape, dtype: x.dtype }];
    },
    fill: ({ value }: PlaceParams): number => value,
    pieces: ([x]: readonly Sig[], { starts, steps }: PlaceParams): readonly Piece[] => [
      { input: 0, into: (l: Layout): Layout => x.shape.reduce((a, n, i) => a.slice(i, starts[i], n, steps[i]), l) },
    ],
    samples: () => [
      { inputs: [{ shape: [2, 3] }], params: { shape: [5, 7], starts: [1, 0], steps: [2, 3], value: 0 } },
    ],
    errors: () => [
      {
        inputs: [{ shape: [4] }],
        params: { shape: [5], starts: [2], steps: [1], value: 0 },
        code: 'E_SHAPE',
        says: /place: \[4\] at \[2\]/,
      },
      {
        inputs: [{ shape: [4] }],
        params: { shape: [4], starts: [3], steps: [-1], value: 0 },
        code: 'E_ARGUMENT',
        says: /place: steps -1 is not made of whole numbers from 1/,
      },
    ],
    grad: ({ x, grad, params: { starts, steps } }: GradContext<PlaceParams>): Grads => [
      x.shape.reduce(
        (g, n, i) => g.slice(i, starts[i], n === 0 ? starts[i] : starts[i] + (n - 1) * steps[i] + 1, steps[i]),
        grad,
      ),
    ],
  }),
  repeat: assemble({
    formula: 'x tiled `repeats` times along each dimension; missing leading ones count as 1',
    args: (x: Tensor, repeats: readonly number[]): Call<{ repeats: number[] }> => {
      const rank = Math.max(x.rank, repeats.length);
      if (repeats.some((r) => !Number.isInteger(r) || r < 0))
        throw new ArgumentError(`repeat: ${formatShape(repeats)} holds no counts from 0`);
      const wide = x.rank < rank ? x.reshape([...new Array<number>(rank - x.rank).fill(1), ...x.shape]) : x;
      return { inputs: [wide], params: { repeats: [...new Array<number>(rank - repeats.length).fill(1), ...repeats] } };
    },
    infer: ([x]: readonly Sig[], { repeats }: { repeats: number[] }): readonly Sig[] => [
      { shape: x.shape.map((d, i) => d * repeats[i]), dtype: x.dtype },
    ],
    // One copy: x seen as [1, d0, 1, d1, ...] broadcast onto the result seen as [r0, d0, r1, d1, ...].
    pieces: ([x]: readonly Sig[], { repeats }: { repeats: number[] }): readonly Piece[] => {
      const split = x.shape.flatMap((d, i) => [repeats[i], d]);
      return [
        {
          input: 0,
          from: (l: Layout): Layout => x.shape.reduce((a, _, i) => a.unsqueeze(2 * i), l).broadcastTo('repeat', split),
          into: (l: Layout): Layout => l.reshape(split) as Layout,
        },
      ];
    },
    samples: () => [
      { inputs: [{ shape: [2, 3] }], params: { repeats: [2, 3] } },
      { inputs: [{ shape: [2, 3] }], params: { repeats: [1, 0] } },
    ],
    errors: () => [],
    grad: ({ x, grad, params: { repeats } }: GradContext<{ repeats: number[] }>): Grads => [
      grad.reshape(x.shape.flatMap((d, i) => [repeats[i], d])).sum(x.shape.map((_, i) => 2 * i)),
    ],
  }),
  flip: assemble({
    formula: 'order reversed along dims',
    args: (x: Tensor, dims?: Dims): Call<{ dims: number[] }> => ({
      inputs: [x],
      params: { dims: normalizeDims('flip', dims, x.rank) },
    }),
    infer: ([x]: readonly Sig[]): readonly Sig[] => [x],
    pieces: ([x]: readonly Sig[], { dims }: { dims: number[] }): readonly Piece[] => [
      {
        input: 0,
        from: (l: Layout): Layout => dims.reduce((a, d) => a.slice(d, x.shape[d] - 1, x.shape[d], -1), l),
        into: (l: Layout): Layout => l,
      },
    ],
    samples: () => [
      { inputs: [{ shape: [3, 5] }], params: { dims: [1] } },
      { inputs: [{ shape: [3, 5] }], params: { dims: [0, 1] } },
      { inputs: [{ shape: [2, 4, 8] }], params: { dims: [0] } },
      { inputs: [{ shape: [2, 0] }], params: { dims: [0, 1] } },
    ],
    errors: () => [],
    grad: ({ grad, params: { dims } }: GradContext<{ dims: number[] }>): Grads => [grad.flip(dims)],
    gradReads: [],
  }),
  roll: assemble({
    formula:
      'elements moved by `shift` along dim, those that leave coming back at the other end; lists move along ' +
      'several dimensions',
    args: (
      x: Tensor,
      shift: number | readonly number[],
      dim?: number | readonly number[],
    ): Call<{ shift: number; dim: number }> => {
      if (dim === undefined && x.rank !== 1)
        throw new ArgumentError(`roll: without dim it takes a vector, not ${formatShape(x.shape)}; flatten first`);
      if (Array.isArray(shift) || Array.isArray(dim)) {
        const [shifts, dims] = [[shift].flat() as number[], [dim ?? 0].flat() as number[]];
        if (shifts.length !== dims.length || shifts.length === 0)
          throw new ArgumentError(`roll: ${shifts.length} shifts for ${dims.length} dimensions`);
        const last = shifts.length - 1;
        const moved = shifts.slice(0, last).reduce((t, by, i) => t.roll(by, dims[i]), x);
        return rolled(moved, shifts[last], dims[last]);
      }
      return rolled(x, shift as number, (dim ?? 0) as number);
    },
    infer: ([x]: readonly Sig[]): readonly Sig[] => [x],
    pieces: ([x]: readonly Sig[], { shift, dim }: { shift: number; dim: number }): readonly Piece[] => {
      const n = x.shape[dim];
      return [
        [0, n - shift, shift],
        [n - shift, shift, 0],
      ].map(([start, length, to]) => ({
        input: 0,
        from: (l: Layout): Layout => l.slice(dim, start, length),
        into: (l: Layout): Layout => l.slice(dim, to, length),
      }));
    },
    samples: () => [
      { inputs: [{ shape: [3, 5] }], params: { shift: 2, dim: 1 } },
      { inputs: [{ shape: [3, 5] }], params: { shift: 0, dim: 0 } },
    ],
    errors: () => [],
    grad: ({ grad, params: { shift, dim } }: GradContext<{ shift: number; dim: number }>): Grads => [
      grad.roll(-shift, dim),
    ],
  }),
});

function rolled(x: Tensor, shift: number, dim: number): Call<{ shift: number; dim: number }> {
  if (!Number.isSafeInteger(shift)) throw new ArgumentError(`roll: shift ${String(shift)} is not a whole number`);
  const d = normalizeDim('roll', dim, x.rank);
  const n = x.shape[d] || 1;
  return { inputs: [x], params: { shift: ((shift % n) + n) % n, dim: d } };
}

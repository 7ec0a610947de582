// Where values would be inserted into sorted rows.
import { NUMBERS } from '../base/dtype.js';
import { ShapeError } from '../base/errors.js';
import { formatShape, sameShape } from '../base/shape.js';
import type { Tensor } from '../tensor/tensor.js';
import { kernel, numbers, requireOptions } from './kernel-row.js';
import { rows, type Call, type ErrorSample, type RefTensor, type Sample, type Sig } from './op.js';

declare module './op.js' {
  interface KernelFacts {
    search: undefined;
  }
}

export interface SearchOptions {
  /** Count elements equal to the value as before it. */
  readonly right?: boolean;
}
export interface SearchParams extends Record<string, unknown> {
  readonly right: boolean;
}
const LONG = Array.from({ length: 40 }, (_, i) => Math.floor((i * 7) / 3));

export const searchOps = rows({
  searchsorted: kernel({
    family: 'search',
    engineParams: ['right'],
    formula: 'how many elements of the sorted last dimension come before each value (i64): where it would be inserted',
    dtypes: NUMBERS,
    ulp: 0,
    noGrad: 'the result is an index',
    candle: { none: 'not in Candle' },
    infer: ([x, values]: readonly Sig[]): readonly Sig[] => {
      const rank = x.shape.length;
      if (rank === 0 || (rank > 1 && !sameShape(x.shape.slice(0, -1), values.shape.slice(0, -1))))
        throw new ShapeError(
          `searchsorted: values ${formatShape(values.shape)} do not fit ${formatShape(x.shape)}: a vector, or ` +
            'rows alike',
        );
      return [{ shape: values.shape, dtype: 'i64' }];
    },
    reference: ([x, values]: readonly RefTensor[], [out]: readonly RefTensor[], { right }: SearchParams): void => {
      const n = x.shape[x.shape.length - 1];
      const each = x.shape.length === 1 ? values.data.length : values.shape[values.shape.length - 1];
      const sorted = numbers(x);
      numbers(values).forEach((value, i) => {
        const from = Math.floor(i / each) * n;
        let [low, high] = [0, n];
        while (low < high) {
          const middle = (low + high) >> 1;
          const probe = sorted[from + middle];
          if (right ? probe > value : probe >= value) high = middle;
          else low = middle + 1;
        }
        out.data[i] = BigInt(low);
      });
    },
    args: (x: Tensor, values: Tensor, options: SearchOptions = {}): Call<SearchParams> => {
      requireOptions('searchsorted', options, ['right']);
      return { inputs: [x, values], params: { right: options.right ?? false } };
    },
    samples: (): readonly Sample<SearchParams>[] =>
      [false, true].flatMap((right) => [
        {
          inputs: [
            { shape: [5], values: [0, 2, 2, 5, 9] },
            { shape: [2, 3], ints: [0, 10] },
          ],
          params: { right },
        },
        {
          inputs: [
            { shape: [2, 4], values: [0, 2, 3, 5, 1, 1, 4, 7] },
            { shape: [2, 3], ints: [0, 8] },
          ],
          params: { right },
        },
        {
          inputs: [
            { shape: [40], values: LONG },
            { shape: [7, 50], ints: [0, 100] },
          ],
          params: { right },
        },
        {
          inputs: [
            { shape: [0], values: [] },
            { shape: [3], ints: [0, 1] },
          ],
          params: { right },
        },
      ]),
    errors: (): readonly ErrorSample<SearchParams>[] => [
      {
        inputs: [{ shape: [2, 4] }, { shape: [3, 2] }],
        params: { right: false },
        code: 'E_SHAPE',
        says: /searchsorted: values \[3, 2\]/,
      },
    ],
  }),
});

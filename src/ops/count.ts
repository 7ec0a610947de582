// How often numbers occur, or fall into bins: counts in whole numbers, the same in every run.
import { INTS, REALS } from '../base/dtype.js';
import { ShapeError } from '../base/errors.js';
import { sizeOf } from '../base/shape.js';
import type { Tensor } from '../tensor/tensor.js';
import { kernel, numbers, requireWhole } from './kernel-row.js';
import { rows, type Call, type ErrorSample, type RefTensor, type Sample, type Sig } from './op.js';

declare module './op.js' {
  interface KernelFacts {
    /** Whole numbers are places themselves, others fall into bins. */
    count: { readonly kind: 'numbers' | 'bins' };
  }
}

export interface CountParams extends Record<string, unknown> {
  readonly bins: number;
}
export interface BinParams extends CountParams {
  /** Bounds of all bins, the second above the first. */
  readonly min: number;
  readonly max: number;
}

const infer =
  (op: string) =>
  ([x]: readonly Sig[], { bins }: CountParams): readonly Sig[] => {
    requireWhole(op, 'bins', [bins], 0);
    if (x.shape.length === 0) throw new ShapeError(`${op}: a single number is no list`);
    return [{ shape: [...x.shape.slice(0, -1), bins], dtype: 'i64' }];
  };
function tally(out: RefTensor, x: RefTensor, bins: number, place: (v: number) => number): void {
  const n = x.shape[x.shape.length - 1];
  const counts = new Array<number>(sizeOf(out.shape)).fill(0);
  numbers(x).forEach((v, i) => {
    const at = place(Number(v));
    if (at >= 0 && at < bins) counts[Math.floor(i / n) * bins + at]++;
  });
  counts.forEach((c, i) => (out.data[i] = BigInt(c)));
}
const common = {
  family: 'count',
  internal: true,
  ulp: 0,
  noGrad: 'a count',
  candle: { none: 'not in Candle' },
} as const;

export const countOps = rows({
  countNumbers: kernel({
    ...common,
    serves: 'bincount',
    kernel: { kind: 'numbers' },
    engineParams: ['bins'],
    formula: 'how often each number from 0 below `bins` occurs along the last dimension; others count nowhere',
    dtypes: INTS,
    without: 'it counts whole numbers',
    infer: infer('bincount'),
    reference: ([x]: readonly RefTensor[], [out]: readonly RefTensor[], { bins }: CountParams): void =>
      tally(out, x, bins, (v) => v),
    args: (x: Tensor, bins: number): Call<CountParams> => ({ inputs: [x], params: { bins } }),
    samples: (): readonly Sample<CountParams>[] => [
      { inputs: [{ shape: [50], ints: [0, 9] }], params: { bins: 8 } },
      { inputs: [{ shape: [3, 700], ints: [0, 100] }], params: { bins: 20000 } },
      { inputs: [{ shape: [40], dtype: 'i32', ints: [-3, 3] }], params: { bins: 4 } },
      { inputs: [{ shape: [0], ints: [0, 1] }], params: { bins: 3 } },
    ],
    errors: (): readonly ErrorSample<CountParams>[] => [
      { inputs: [{ shape: [3], ints: [0, 1] }], params: { bins: -1 }, code: 'E_ARGUMENT', says: /bincount: bins -1/ },
    ],
  }),
  countBins: kernel({
    ...common,
    serves: 'histc',
    kernel: { kind: 'bins' },
    engineParams: ['bins', 'min', 'max'],
    formula:
      'how many elements of the last dimension fall into each of equally wide bins from min to max; others count nowhere',
    dtypes: REALS,
    infer: infer('histc'),
    // Rounded as kernels do, step by step: an element near a border falls into the same bin everywhere.
    reference: ([x]: readonly RefTensor[], [out]: readonly RefTensor[], { bins, min, max }: BinParams): void => {
      const round = x.dtype === 'f64' ? (v: number): number => v : Math.fround;
      const [least, most, width] = [round(min), round(max), round(max - min)];
      const place = (v: number): number => {
        if (!(v >= least && v <= most)) return -1;
        const share = round(round(round(v - least) * bins) / width);
        return share < bins - 1 ? Math.trunc(share) : bins - 1;
      };
      tally(out, x, bins, place);
    },
    args: (x: Tensor, bins: number, min: number, max: number): Call<BinParams> => ({
      inputs: [x],
      params: { bins, min, max },
    }),
    samples: (): readonly Sample<BinParams>[] => [
      { inputs: [{ shape: [6, 9] }], params: { bins: 7, min: -2, max: 1.5 } },
      { inputs: [{ shape: [3000], ints: [-4, 4] }], params: { bins: 8, min: -4, max: 4 } },
    ],
    errors: (): readonly ErrorSample<BinParams>[] => [
      { inputs: [{ shape: [3] }], params: { bins: -1, min: 0, max: 1 }, code: 'E_ARGUMENT', says: /histc: bins -1/ },
    ],
  }),
});

// Rows that move values without computing: cast, copy, fill.
import {
  asDType,
  checkValue,
  type DType,
  DTYPES,
  EVERY_DTYPE,
  isFloat,
  NUMBERS,
  saturate,
  type Value,
} from '../base/dtype.js';
import type { Shape } from '../base/shape.js';
import type { Tensor } from '../tensor/tensor.js';
import { requireNumbers } from './kernel-row.js';
import { type Call, type Grads, type GradContext, type KernelRow, type RefTensor, rows, type Sig } from './op.js';

/**
 * Nearest-even rounding of a 64-bit integer to a float with few bits: a sticky bit stands for what the double cannot
 * hold.
 */
function bigToNumber(v: bigint): number {
  const a = v < 0n ? -v : v;
  if (a < 2n ** 53n) return Number(v);
  const shift = BigInt(a.toString(2).length - 53);
  const head = a >> shift;
  const sticky = head << shift !== a ? 1n : 0n;
  const n = Number(head | sticky) * 2 ** Number(shift);
  return v < 0n ? -n : n;
}

/**
 * One value from dtype to dtype: floats truncate and saturate to integers, NaN is 0; integers keep their low bits; what
 * is not 0 is true.
 */
export function castValue(v: Value, to: DType): Value {
  if (isFloat(to)) return typeof v === 'number' ? v : to === 'f64' ? Number(v) : bigToNumber(v);
  if (to === 'bool') return Number(v) === 0 ? 0n : 1n;
  if (typeof v === 'bigint') return v; // integers wrap when they are stored
  return saturate(v, to);
}

type CastRow = Omit<KernelRow<{ dtype: DType }>, 'name' | 'args'> & {
  readonly args: (x: Tensor, dtype: DType) => Call<{ dtype: DType }>;
};
type CopyRow = Omit<KernelRow<{}>, 'name' | 'args'> & { readonly args: (x: Tensor) => Call<{}> };
type FillParams = { shape: Shape; dtype: DType; value: number };
type ArangeParams = { size: number; dtype: DType; start: number; step: number };
type ArangeRow = Omit<KernelRow<ArangeParams>, 'name' | 'args'> & {
  readonly args: (x: Tensor, size: number, dtype: DType, start?: number, step?: number) => Call<ArangeParams>;
};
type FillRow = Omit<KernelRow<FillParams>, 'name' | 'args'> & {
  readonly args: (x: Tensor, shape: Shape, value: number, dtype?: DType) => Call<FillParams>;
};

export const movementOps = rows({
  castTo: {
    internal: true,
    family: 'cast',
    formula: 'x in another dtype',
    dtypes: EVERY_DTYPE,
    ulp: 0,
    candle: { file: 'cast.cu', symbol: 'cast' },
    differs:
      'all pairs of dtypes (Candle lacks i16, i32 and i64 with 16-bit floats). Floats beyond an integer dtype ' +
      'saturate and NaN is 0 (Candle, and its kernels by name here, keep the low bits for u8 and i16)',
    domain: [0, 100],
    args: (x: Tensor, dtype: DType): Call<{ dtype: DType }> => ({
      inputs: [x],
      params: { dtype: asDType(dtype, 'cast') },
    }),
    infer: ([x], { dtype }): readonly Sig[] => [{ shape: x.shape, dtype }],
    reference: ([x], [out], { dtype }): void => {
      for (let i = 0; i < x.data.length; i++) out.data[i] = castValue(x.data[i], dtype);
    },
    samples: () =>
      EVERY_DTYPE.flatMap((dtype) => [
        { inputs: [{ shape: [3, 5] }], params: { dtype } },
        // Beyond every integer dtype but the widest, on both sides.
        { inputs: [{ shape: [41], domain: [-70000, 70000] }], params: { dtype } },
        { inputs: [{ shape: [131], domain: [-2e10, 2e10] }], params: { dtype } },
      ]),
    errors: () => [],
    grad: ({ x, grad }: GradContext<any>): Grads => [grad.cast(x.dtype)],
    gradReads: [],
  } satisfies CastRow as CastRow,
  copy: {
    family: 'copy',
    formula: 'x, contiguous in memory of its own',
    dtypes: EVERY_DTYPE,
    ulp: 0,
    candle: { file: 'unary.cu', symbol: 'ucopy' },
    args: (x: Tensor): Call<{}> => ({ inputs: [x], params: {} }),
    infer: ([x]): readonly Sig[] => [x],
    reference: ([x]: readonly RefTensor[], [out]: readonly RefTensor[]): void => {
      for (let i = 0; i < x.data.length; i++) out.data[i] = x.data[i];
    },
    samples: () => [{ inputs: [{ shape: [3, 5] }], params: {} }],
    errors: () => [],
    grad: ({ grad }: GradContext<any>): Grads => [grad],
    gradReads: [],
  } satisfies CopyRow as CopyRow,
  newFull: {
    internal: true,
    family: 'fill',
    formula: 'a tensor of one value',
    dtypes: DTYPES,
    ulp: 0,
    candle: { file: 'fill.cu', symbol: 'const_set' },
    // The tensor only lends its device and, if none is given, its dtype.
    args: (x: Tensor, shape: Shape, value: number, dtype?: DType): Call<FillParams> => ({
      inputs: [],
      params: { shape, dtype: dtype ?? x.dtype, value },
    }),
    infer: (_: readonly Sig[], { shape, dtype, value }: FillParams): readonly Sig[] => {
      requireNumbers('full', { value });
      checkValue('full', value, dtype);
      return [{ shape, dtype }];
    },
    reference: (_: readonly RefTensor[], [out]: readonly RefTensor[], { value, dtype }: FillParams): void => {
      out.data.fill(castValue(value, dtype));
    },
    samples: () => [{ inputs: [], params: { shape: [3, 5], dtype: 'f32', value: 1 } }],
    errors: () => [],
    noGrad: 'a constant',
  } satisfies FillRow as FillRow,
  newArange: {
    internal: true,
    family: 'fill',
    formula: 'start + i * step',
    dtypes: NUMBERS,
    ulp: 0,
    candle: { none: 'Candle fills it on the host' },
    differs: 'each element is computed from its index (Candle adds up the step, and its error)',
    args: (_: Tensor, size: number, dtype: DType, start: number = 0, step: number = 1): Call<ArangeParams> => ({
      inputs: [],
      params: { size, dtype, start, step },
    }),
    infer: (_: readonly Sig[], { size, dtype, start, step }: ArangeParams): readonly Sig[] => {
      requireNumbers('arange', { start, step });
      return [{ shape: [size], dtype }];
    },
    reference: (
      _: readonly RefTensor[],
      [out]: readonly RefTensor[],
      { size, dtype, start, step }: ArangeParams,
    ): void => {
      for (let i = 0; i < size; i++) out.data[i] = castValue(start + i * step, dtype);
    },
    samples: () => [{ inputs: [], params: { size: 7, dtype: 'f32', start: 2, step: 3 } }],
    errors: () => [],
    noGrad: 'a constant',
  } satisfies ArangeRow as ArangeRow,
});

// What flags choose, in its order. How many there are is in the data: the flags before each tile are counted on the
// device, the host reads the last number, and what is chosen is written in one pass more.
import { DTYPES } from '../base/dtype.js';
import { DTypeError, ShapeError } from '../base/errors.js';
import { formatShape, sameShape, sizeOf, type Shape } from '../base/shape.js';
import type { Tensor } from '../tensor/tensor.js';
import { kernel } from './kernel-row.js';
import {
  rows,
  type Call,
  type ErrorSample,
  type GradContext,
  type Grads,
  type RefTensor,
  type Sample,
  type Sig,
} from './op.js';

declare module './op.js' {
  interface KernelFacts {
    /** Counts of flags, or what is written by them. */
    pick: { readonly kind: 'starts' | 'places' | 'take' | 'put' | 'runs' };
  }
}

/** Flags of a tile: kernels/pick.hip and native/ops/pick.cpp know the number, too. */
export const PICK_TILE = 4096;
const tilesOf = (shape: Shape): number => Math.ceil(sizeOf(shape) / PICK_TILE);

export interface PickParams extends Record<string, unknown> {
  /** How many flags are set. */
  readonly count: number;
}
type NoParams = Record<string, never>;

const FLAGS = ['bool', 'u8'] as const;
const WITHOUT = 'flags are truth values or u8';
const CANDLE = { none: 'Candle chooses on the host' };

function requireFlags(op: string, mask: Sig, before: Sig): void {
  if (!FLAGS.some((d) => d === mask.dtype) || before.dtype !== 'i64')
    throw new DTypeError(`${op}: flags are ${mask.dtype}, counts ${before.dtype}; they are bool or u8, and i64`);
  const tiles = tilesOf(mask.shape);
  if (mask.shape.length === 0 || !sameShape(before.shape, [tiles + 1]))
    throw new ShapeError(
      `${op}: counts ${formatShape(before.shape)} are not those of flags ${formatShape(mask.shape)}: it takes ` +
        `(${tiles + 1})`,
    );
}
/** Flags one after another, the counts by which kernels find their places, and how many are set. */
export interface Counted {
  readonly flags: Tensor;
  readonly before: Tensor;
  readonly count: number;
}
/** Counts what is not 0; the host waits for that one number. */
export function counted(x: Tensor): Counted {
  void x.memory; // an example of a vmap says here that its numbers are asked for
  const own = x.detach();
  const flags = (own.dtype === 'bool' || own.dtype === 'u8' ? own : own.ne(0)).contiguous();
  const before = flags.flagStarts();
  return { flags, before, count: before.narrow(0, before.size - 1, 1).item() };
}
/** Numbers of the flags that are set. */
const chosen = (mask: RefTensor): number[] => mask.data.flatMap((f, i) => (f ? [i] : []));

/** Every third flag but some, over more than one tile. */
const LONG = Array.from({ length: 4200 }, (_, i) => (i % 3 === 0 && i % 7 !== 0 ? 1 : 0));
const sum = (flags: readonly number[]): number => flags.reduce((a, b) => a + b, 0);
const LONG_STARTS = [0, sum(LONG.slice(0, PICK_TILE)), sum(LONG)];
const flags = (shape: Shape, values: readonly number[]) => ({ shape, values, dtype: 'bool' as const });
const counts = (values: readonly number[]) => ({ shape: [values.length], values, dtype: 'i64' as const });
const order = (values: readonly number[]) => ({ shape: [values.length], values, dtype: 'u32' as const });
const BEGINS = LONG.map((f, i) => (i === 0 ? 1 : f));
const BEGINS_STARTS = [0, LONG_STARTS[1] + 1, LONG_STARTS[2] + 1];
const TURNED = LONG.map((_, i) => (i * 11) % LONG.length);
const SHORT = [flags([2, 3], [0, 1, 1, 0, 0, 1]), counts([0, 3])] as const;
/** A call that writes must come with the counts of its own flags. */
const WRONG_COUNTS = /counts \[3\] are not those of flags \[2, 3\]: it takes \(2\)/;

export const pickOps = rows({
  flagStarts: kernel({
    internal: true,
    serves: 'nonzero',
    family: 'pick',
    kernel: { kind: 'starts' },
    formula: 'how many flags that are not 0 come before each tile of 4096; the last number counts all',
    dtypes: FLAGS,
    without: WITHOUT,
    ulp: 0,
    candle: CANDLE,
    noGrad: 'a count',
    infer: ([mask]: readonly Sig[]): readonly Sig[] => [{ shape: [tilesOf(mask.shape) + 1], dtype: 'i64' }],
    reference: ([mask]: readonly RefTensor[], [out]: readonly RefTensor[]): void => {
      out.data.fill(0n);
      for (const i of chosen(mask))
        for (let t = Math.floor(i / PICK_TILE) + 1; t < out.data.length; t++)
          out.data[t] = (out.data[t] as bigint) + 1n;
    },
    args: (mask: Tensor): Call<NoParams> => ({ inputs: [mask], params: {} }),
    samples: (): readonly Sample<NoParams>[] => [
      { inputs: [{ shape: [7, 5], ints: [0, 2] }], params: {} },
      { inputs: [{ shape: [3, 3000], ints: [0, 1] }], params: {} },
      { inputs: [{ shape: [0, 3], ints: [0, 1] }], params: {} },
    ],
    errors: (): readonly ErrorSample<NoParams>[] => [],
  }),
  flagPlaces: kernel({
    internal: true,
    serves: 'nonzero',
    family: 'pick',
    mixed: true,
    kernel: { kind: 'places' },
    engineParams: ['count'],
    formula: 'a row for each dimension: the places along it of the flags that are not 0',
    dtypes: FLAGS,
    without: WITHOUT,
    ulp: 0,
    candle: CANDLE,
    noGrad: 'the result is an index',
    infer: ([mask, before]: readonly Sig[], { count }: PickParams): readonly Sig[] => {
      requireFlags('nonzero', mask, before);
      return [{ shape: [mask.shape.length, count], dtype: 'i64' }];
    },
    reference: ([mask]: readonly RefTensor[], [out]: readonly RefTensor[], { count }: PickParams): void =>
      chosen(mask).forEach((i, k) => {
        for (let d = mask.shape.length - 1, rest = i; d >= 0; rest = Math.floor(rest / mask.shape[d--]))
          out.data[d * count + k] = BigInt(rest % mask.shape[d]);
      }),
    args: (mask: Tensor, before: Tensor, count: number): Call<PickParams> => ({
      inputs: [mask, before],
      params: { count },
    }),
    samples: (): readonly Sample<PickParams>[] => [
      { inputs: [...SHORT], params: { count: 3 } },
      { inputs: [flags([4200], LONG), counts(LONG_STARTS)], params: { count: LONG_STARTS[2] } },
      { inputs: [flags([6, 7, 100], LONG), counts(LONG_STARTS)], params: { count: LONG_STARTS[2] } },
    ],
    errors: (): readonly ErrorSample<PickParams>[] => [
      { inputs: [SHORT[0], counts([0, 3, 3])], params: { count: 3 }, code: 'E_SHAPE', says: WRONG_COUNTS },
    ],
  }),
  flagTake: kernel({
    internal: true,
    serves: 'maskedSelect',
    family: 'pick',
    mixed: true,
    kernel: { kind: 'take' },
    engineParams: ['count'],
    formula: 'the elements of x whose flags are not 0, one after another',
    dtypes: DTYPES,
    ulp: 0,
    candle: CANDLE,
    infer: ([x, mask, before]: readonly Sig[], { count }: PickParams): readonly Sig[] => {
      requireFlags('maskedSelect', mask, before);
      if (!sameShape(x.shape, mask.shape))
        throw new ShapeError(`maskedSelect: ${formatShape(x.shape)} with flags ${formatShape(mask.shape)}`);
      return [{ shape: [count], dtype: x.dtype }];
    },
    reference: ([x, mask]: readonly RefTensor[], [out]: readonly RefTensor[]): void =>
      chosen(mask).forEach((i, k) => (out.data[k] = x.data[i])),
    grad: ({ inputs: [, mask, before], grad }: GradContext<PickParams>): Grads => [
      grad.flagPut(mask, before),
      undefined,
      undefined,
    ],
    gradReads: [1, 2],
    args: (x: Tensor, mask: Tensor, before: Tensor, count: number): Call<PickParams> => ({
      inputs: [x, mask, before],
      params: { count },
    }),
    samples: (): readonly Sample<PickParams>[] => [
      { inputs: [{ shape: [2, 3] }, ...SHORT], params: { count: 3 } },
      { inputs: [{ shape: [4200] }, flags([4200], LONG), counts(LONG_STARTS)], params: { count: LONG_STARTS[2] } },
    ],
    errors: (): readonly ErrorSample<PickParams>[] => [
      {
        inputs: [{ shape: [3, 2] }, ...SHORT],
        params: { count: 3 },
        code: 'E_SHAPE',
        says: /maskedSelect: \[3, 2\] with flags \[2, 3\]/,
      },
    ],
  }),
  flagPut: kernel({
    internal: true,
    serves: 'maskedSelect',
    family: 'pick',
    mixed: true,
    kernel: { kind: 'put' },
    formula: 'the elements of the vector x one after another where flags are not 0, 0 elsewhere',
    dtypes: DTYPES,
    ulp: 0,
    candle: CANDLE,
    infer: ([x, mask, before]: readonly Sig[]): readonly Sig[] => {
      requireFlags('maskedSelect', mask, before);
      if (x.shape.length !== 1) throw new ShapeError(`maskedSelect: ${formatShape(x.shape)} is no vector`);
      return [{ shape: mask.shape, dtype: x.dtype }];
    },
    reference: ([x, mask]: readonly RefTensor[], [out]: readonly RefTensor[]): void => {
      let k = 0;
      const zero = typeof x.data[0] === 'bigint' ? 0n : 0;
      mask.data.forEach((f, i) => (out.data[i] = f ? x.data[k++] : zero));
    },
    grad: ({ inputs: [x, mask, before], grad }: GradContext<NoParams>): Grads => [
      grad.flagTake(mask, before, x.size),
      undefined,
      undefined,
    ],
    gradReads: [1, 2],
    args: (x: Tensor, mask: Tensor, before: Tensor): Call<NoParams> => ({ inputs: [x, mask, before], params: {} }),
    samples: (): readonly Sample<NoParams>[] => [
      { inputs: [{ shape: [3] }, ...SHORT], params: {} },
      { inputs: [{ shape: [LONG_STARTS[2]] }, flags([4200], LONG), counts(LONG_STARTS)], params: {} },
    ],
    errors: (): readonly ErrorSample<NoParams>[] => [
      {
        inputs: [{ shape: [3] }, SHORT[0], counts([0, 3, 3])],
        params: {},
        code: 'E_SHAPE',
        says: WRONG_COUNTS,
      },
    ],
  }),
  flagRuns: kernel({
    internal: true,
    serves: 'unique',
    family: 'pick',
    mixed: true,
    kernel: { kind: 'runs' },
    formula: 'out[order[i]] = the number of the run that i is in, where each begins by a flag, the first with flag 0',
    dtypes: FLAGS,
    without: WITHOUT,
    ulp: 0,
    candle: CANDLE,
    noGrad: 'the result is an index',
    infer: ([mask, before, order]: readonly Sig[]): readonly Sig[] => {
      requireFlags('unique', mask, before);
      if (order.dtype !== 'u32') throw new DTypeError(`unique: the order is ${order.dtype}, not u32`);
      if (mask.shape.length !== 1 || !sameShape(order.shape, mask.shape))
        throw new ShapeError(`unique: the order ${formatShape(order.shape)} is not that of ${formatShape(mask.shape)}`);
      return [{ shape: mask.shape, dtype: 'i64' }];
    },
    reference: ([mask, , order]: readonly RefTensor[], [out]: readonly RefTensor[]): void => {
      let run = -1n;
      mask.data.forEach((f, i) => {
        if (f) run++;
        out.data[Number(order.data[i])] = run;
      });
    },
    args: (mask: Tensor, before: Tensor, order: Tensor): Call<NoParams> => ({
      inputs: [mask, before, order],
      params: {},
    }),
    samples: (): readonly Sample<NoParams>[] => [
      { inputs: [flags([6], [1, 1, 0, 0, 1, 0]), counts([0, 3]), order([2, 5, 0, 1, 4, 3])], params: {} },
      { inputs: [flags([4200], BEGINS), counts(BEGINS_STARTS), order(TURNED)], params: {} },
    ],
    errors: (): readonly ErrorSample<NoParams>[] => [
      {
        inputs: [flags([3], [1, 0, 1]), counts([0, 2]), order([1, 0])],
        params: {},
        code: 'E_SHAPE',
        says: /the order \[2\] is not that of \[3\]/,
      },
    ],
  }),
});

// Reductions over any dimensions, and running sums.
import { DTYPES, isFloat, REALS, sumDType, type DType, type Value } from '../base/dtype.js';
import { ShapeError } from '../base/errors.js';
import { Layout } from '../base/layout.js';
import { formatShape, normalizeDim, normalizeDims, type Shape } from '../base/shape.js';
import type { Tensor } from '../tensor/tensor.js';
import { requireFlag, requireOptions } from './kernel-row.js';
import {
  type Call,
  type ErrorSample,
  type GradContext,
  type Grads,
  type KernelRow,
  type RefTensor,
  rows,
  type Sample,
  type Sig,
  ulps,
} from './op.js';

export type Dims = number | readonly number[];
export type ReduceParams = { readonly dims: readonly number[]; readonly keepdim: boolean };
declare module './op.js' {
  interface KernelFacts {
    reduce: {
      /** The struct template of kernels/block.h that joins elements. */
      readonly functor: string;
      /**
       * What it keeps on the way: a sum in the wide type or in double, two of them, a value in the type computed in, or a value with
       * its place.
       */
      readonly accumulator: 'sum' | 'double' | 'doubles' | 'value' | 'place';
      /** The result over no elements. */
      readonly empty: number;
    };
  }
}
type ReduceDef<A extends readonly unknown[]> = Omit<KernelRow<ReduceParams>, 'name' | 'args'> & {
  readonly args: (x: Tensor, ...rest: A) => Call<ReduceParams>;
};

export const reducedShape = (shape: Shape, { dims, keepdim }: ReduceParams): number[] =>
  keepdim ? shape.map((d, i) => (dims.includes(i) ? 1 : d)) : shape.filter((_, i) => !dims.includes(i));

const inferLike =
  (dtype?: DType) =>
  (inputs: readonly Sig[], params: ReduceParams): readonly Sig[] => [
    { shape: reducedShape(inputs[0].shape, params), dtype: dtype ?? inputs[0].dtype },
  ];

/** Sums and products of truth values and integers are i64. */
const inferSum = (inputs: readonly Sig[], params: ReduceParams): readonly Sig[] => [
  { shape: reducedShape(inputs[0].shape, params), dtype: sumDType(inputs[0].dtype) },
];

/** Calls each(outIndex, values of the group) for every result element. */
function groups(x: RefTensor, dims: readonly number[], each: (at: number, values: Value[]) => void): void {
  const kept = x.shape.map((_, i) => i).filter((i) => !dims.includes(i));
  const { shape, strides } = Layout.contiguous(x.shape);
  const pick = (which: readonly number[], offset: number) =>
    new Layout(
      which.map((i) => shape[i]),
      which.map((i) => strides[i]),
      offset,
    );
  pick(kept, 0).forEach((at, base) => {
    const values: Value[] = [];
    pick(dims, base).forEach((_, index) => values.push(x.data[index]));
    each(at, values);
  });
}

/** Sum in double with compensation (Neumaier), so that the oracle's own rounding does not matter. */
export function exactSum(values: readonly Value[]): Value {
  if (typeof values[0] === 'bigint') return (values as bigint[]).reduce((a, b) => a + b, 0n);
  let sum = 0;
  let lost = 0;
  for (const v of values as number[]) {
    const t = sum + v;
    lost += Math.abs(sum) >= Math.abs(v) ? sum - t + v : v - t + sum;
    sum = t;
  }
  return Number.isFinite(lost) ? sum + lost : sum;
}

const overDims =
  (op: string) =>
  (x: Tensor, dims?: Dims, keepdim = false): Call<ReduceParams> => {
    requireFlag(op, 'keepdim', keepdim);
    return { inputs: [x], params: { dims: normalizeDims(op, dims, x.shape.length), keepdim } };
  };
const samples =
  (distinct = false) =>
  (): readonly Sample<ReduceParams>[] => [
    { inputs: [{ shape: [3, 5], distinct }], params: { dims: [1], keepdim: false } },
    { inputs: [{ shape: [3, 5], distinct }], params: { dims: [0], keepdim: true } },
    { inputs: [{ shape: [2, 3, 4], distinct }], params: { dims: [0, 2], keepdim: false } },
    { inputs: [{ shape: [2, 3, 4], distinct }], params: { dims: [0, 1, 2], keepdim: false } },
    { inputs: [{ shape: [7, 33], distinct }], params: { dims: [1], keepdim: false } },
  ];
const noErrors = (): readonly ErrorSample<ReduceParams>[] => [];

/** A gradient of the reduced shape, spread back over the input's. */
const spread = (x: Tensor, g: Tensor, { dims, keepdim }: ReduceParams): Tensor =>
  (keepdim ? g : g.reshape(reducedShape(x.shape, { dims, keepdim: true }))).broadcastTo(x.shape);

/**
 * g times the product of all other elements over dims, for each element. A tree of products serves where dividing by
 * the element would not: at zeros, and in gradients of any order.
 */
function timesOthers(x: Tensor, g: Tensor, dims: readonly number[]): Tensor {
  if (x.size === 0) return x.zerosLike();
  const order = [...x.shape.map((_, i) => i).filter((i) => !dims.includes(i)), ...dims];
  const turned = x.permute(order);
  const n = dims.reduce((p, d) => p * x.shape[d], 1);
  const levels = [turned.reshape([-1, n])]; // (groups, elements), then halves multiplied until one is left
  for (let size = n; size > 1; size = levels[levels.length - 1].shape[1]) {
    const last = levels.length - 1;
    if (size % 2 === 1) levels[last] = levels[last].pad([0, 1], 1);
    const half = levels[last].shape[1] / 2;
    levels.push(levels[last].narrow(1, 0, half).mul(levels[last].narrow(1, half, half)));
  }
  let back = g.reshape([-1, 1]);
  for (const level of levels.slice(0, -1).reverse()) {
    const half = level.shape[1] / 2;
    const [a, b] = [level.narrow(1, 0, half), level.narrow(1, half, half)];
    const down = back.narrow(1, 0, half);
    back = down.mul(b).cat([down.mul(a)], 1);
  }
  const inverse = order.map((_, i) => order.indexOf(i));
  return back.narrow(1, 0, n).reshape(turned.shape).permute(inverse);
}

type OverDims = [dims?: Dims, keepdim?: boolean];
const sumBound = { f32: 8, f64: 8, f16: 1, bf16: 1, f8e4m3: 1 };

function refuseEmpty(op: string, x: Sig, dims: readonly number[]): void {
  if (dims.some((d) => x.shape[d] === 0)) {
    throw new ShapeError(
      `${op}: shape ${formatShape(x.shape)} has nothing along dimensions ${formatShape(dims)}; only sums of nothing ` +
        'are defined',
    );
  }
}

function extremum(op: 'max' | 'min', candleSymbol: string): ReduceDef<OverDims> {
  const better = op === 'max' ? (a: Value, b: Value): boolean => a > b : (a: Value, b: Value): boolean => a < b;
  return {
    family: 'reduce',
    // Never asked for: nothing is refused.
    kernel: { functor: op === 'max' ? 'Max' : 'Min', accumulator: 'value', empty: 0 },
    formula: `${op === 'max' ? 'largest' : 'smallest'} element over dims`,
    dtypes: DTYPES,
    ulp: 0,
    candle: { file: 'reduce.cu', symbol: candleSymbol },
    differs:
      'NaN is ignored unless all are NaN, but wins in f16 and bf16: the rule of maximum. Tied elements share the ' +
      'gradient (Candle gives each the whole)',
    args: overDims(op),
    infer: (inputs: readonly Sig[], params: ReduceParams): readonly Sig[] => {
      refuseEmpty(op, inputs[0], params.dims);
      return inferLike()(inputs, params);
    },
    reference: ([x], [out], { dims }): void => {
      const wins = x.dtype === 'f16' || x.dtype === 'bf16';
      groups(x, dims, (at, values) => {
        let best = values[0];
        for (const v of values) {
          if (v !== v ? wins : best !== best ? !wins : better(v, best)) best = v;
        }
        out.data[at] = best;
      });
    },
    samples: samples(true),
    errors: () => [
      {
        inputs: [{ shape: [2, 0] }],
        params: { dims: [1], keepdim: false },
        code: 'E_SHAPE',
        says: /nothing along dimensions \[1\]/,
      },
    ],
    grad: ({ x, out, grad, params }: GradContext<ReduceParams>): Grads => {
      const mask = x.eq(spread(x, out, params)).cast(x.dtype);
      const share = grad.div(mask.sum(params.dims, params.keepdim));
      return [mask.mul(spread(x, share, params))];
    },
  };
}

function argExtremum(op: 'argmax' | 'argmin', candleSymbol: string): ReduceDef<[dim?: number, keepdim?: boolean]> {
  const better = op === 'argmax' ? (a: Value, b: Value): boolean => a > b : (a: Value, b: Value): boolean => a < b;
  return {
    family: 'reduce',
    kernel: { functor: op === 'argmax' ? 'ArgMax' : 'ArgMin', accumulator: 'place', empty: 0 },
    example: `x.${op}(1)`,
    formula: `index (u32) of the first ${op === 'argmax' ? 'largest' : 'smallest'} element along dim`,
    dtypes: DTYPES,
    ulp: 0,
    candle: { file: 'reduce.cu', symbol: candleSymbol },
    differs:
      'ties give the first index at every length; NaN is passed over unless the row begins with it and holds ' +
      'nothing else (Candle: by position)',
    args: (x: Tensor, dim?: number, keepdim = false): Call<ReduceParams> => {
      requireFlag(op, 'keepdim', keepdim);
      return dim === undefined
        ? { inputs: [x.reshape([x.size])], params: { dims: [0], keepdim: false } }
        : { inputs: [x], params: { dims: [normalizeDim(op, dim, x.shape.length)], keepdim } };
    },
    infer: (inputs: readonly Sig[], params: ReduceParams): readonly Sig[] => {
      refuseEmpty(op, inputs[0], params.dims);
      return inferLike('u32')(inputs, params);
    },
    reference: ([x], [out], { dims }): void =>
      groups(x, dims, (at, values) => {
        let best = 0;
        values.forEach((v, i) => {
          if (values[best] !== values[best] ? v === v : better(v, values[best])) best = i;
        });
        out.data[at] = BigInt(best);
      }),
    samples: () => samples()().filter((s) => s.params.dims.length === 1),
    errors: () => [
      { inputs: [{ shape: [0, 3] }], params: { dims: [0], keepdim: false }, code: 'E_SHAPE', says: /nothing along/ },
    ],
    noGrad: 'the result is an index',
  };
}

/** Distances from the mean in one pass over memory, for f32 on GPUs. */
function fromMean(
  functor: 'Deviations' | 'Spread',
  serves: string,
  formula: string,
  put: (sum: number) => number,
): ReduceDef<OverDims> {
  return {
    internal: true,
    serves,
    family: 'reduce',
    kernel: { functor, accumulator: 'doubles', empty: 0 },
    formula,
    dtypes: ['f32'],
    without: 'smaller floats are widened, and f64 takes two passes',
    ulp: ulps(1),
    candle: { none: 'Candle takes two passes' },
    args: overDims(serves),
    infer: inferLike(),
    reference: ([x], [out], { dims }): void =>
      groups(x, dims, (at, values) => {
        const mean = (exactSum(values) as number) / values.length;
        out.data[at] = values.length ? put(exactSum((values as number[]).map((v) => (v - mean) ** 2)) as number) : 0;
      }),
    samples: (): readonly Sample<ReduceParams>[] => [
      ...samples()(),
      { inputs: [{ shape: [3, 700], domain: [1e6, 1e6 + 1] }], params: { dims: [1], keepdim: false } },
      { inputs: [{ shape: [300, 8], domain: [1e6, 1e6 + 1] }], params: { dims: [0], keepdim: false } },
    ],
    errors: noErrors,
    grad: ({ x, out, grad, params }: GradContext<ReduceParams>): Grads => {
      const away = x.sub(x.mean(params.dims, true));
      const g = spread(x, grad, params);
      if (functor === 'Deviations') return [away.mul(g).affine(2, 0)];
      // 0 where all are equal, as of a norm.
      const length = spread(x, out, params);
      return [away.div(length.eq(0).where(1, length)).mul(g)];
    },
  };
}

/** Whose squares double holds. */
export const EUCLID_DTYPES: readonly DType[] = ['f32', 'bf16', 'f16'];

export const reduceOps = rows({
  sum: {
    family: 'reduce',
    kernel: { functor: 'Total', accumulator: 'sum', empty: 0 },
    formula: 'sum over dims',
    dtypes: DTYPES,
    ulp: ulps(4),
    candle: { file: 'reduce.cu', symbol: 'fast_sum' },
    differs:
      '16-bit floats add up in f32 and round once (Candle adds in 16 bits); truth values and integers give i64 ' +
      '(Candle wraps in the dtype, and so do its kernels by name)',
    domain: [0.1, 2],
    args: overDims('sum'),
    infer: inferSum,
    reference: ([x], [out], { dims }): void =>
      groups(x, dims, (at, values) => {
        out.data[at] = values.length ? exactSum(values) : isFloat(x.dtype) ? 0 : 0n;
      }),
    samples: samples(),
    errors: noErrors,
    grad: ({ x, grad, params }: GradContext<ReduceParams>): Grads => [spread(x, grad, params)],
  } satisfies ReduceDef<OverDims> as ReduceDef<OverDims>,
  mean: {
    family: 'reduce',
    kernel: { functor: 'Mean', accumulator: 'sum', empty: NaN },
    formula: 'sum over dims / count',
    dtypes: REALS,
    without: 'the mean of integers or truth values is none, and f8e4m3 has no arithmetic of its own; cast first',
    ulp: sumBound,
    candle: { none: 'Candle multiplies the sum by 1/n' },
    domain: [0.1, 2],
    args: overDims('mean'),
    infer: inferLike(),
    reference: ([x], [out], { dims }): void =>
      groups(x, dims, (at, values) => {
        out.data[at] = values.length ? (exactSum(values) as number) / values.length : NaN;
      }),
    samples: samples(),
    errors: noErrors,
    grad: ({ x, out, grad, params }: GradContext<ReduceParams>): Grads => [
      spread(x, grad.affine(out.size / x.size, 0), params),
    ],
  } satisfies ReduceDef<OverDims> as ReduceDef<OverDims>,
  prod: {
    family: 'reduce',
    kernel: { functor: 'Prod', accumulator: 'sum', empty: 1 },
    formula: 'product over dims',
    dtypes: DTYPES,
    ulp: { f32: 16, f64: 16, f16: 1, bf16: 1, f8e4m3: 1 },
    candle: { none: 'Candle has no product' },
    domain: [0.5, 1.5],
    args: overDims('prod'),
    infer: inferSum,
    reference: ([x], [out], { dims }): void =>
      groups(x, dims, (at, values) => {
        out.data[at] = isFloat(x.dtype)
          ? (values as number[]).reduce((a, b) => a * b, 1)
          : (values as bigint[]).reduce((a, b) => BigInt.asIntN(64, a * b), 1n);
      }),
    samples: samples(),
    errors: noErrors,
    grad: ({ x, grad, params }: GradContext<ReduceParams>): Grads => [timesOthers(x, grad, params.dims)],
  } satisfies ReduceDef<OverDims> as ReduceDef<OverDims>,
  euclid: {
    family: 'reduce',
    serves: 'norm',
    kernel: { functor: 'Euclid', accumulator: 'double', empty: 0 },
    formula: 'square root of the sum of squares over dims',
    dtypes: EUCLID_DTYPES,
    without: 'squares add up in double, whose range those of f64 leave: norm scales them',
    ulp: ulps(1),
    candle: { none: 'Candle takes the root of a sum of squares, which may leave the range' },
    args: overDims('euclid'),
    infer: inferLike(),
    reference: ([x], [out], { dims }): void =>
      groups(x, dims, (at, values) => {
        out.data[at] = Math.sqrt(exactSum((values as number[]).map((v) => v * v)) as number);
      }),
    samples: (): readonly Sample<ReduceParams>[] => [
      ...samples()(),
      { inputs: [{ shape: [3, 5], domain: [-3e4, 3e4] }], params: { dims: [1], keepdim: false } },
    ],
    errors: noErrors,
    // 0 where all is 0, as of |x|.
    grad: ({ x, out, grad, params }: GradContext<ReduceParams>): Grads => {
      const [length, g, w] = [spread(x, out, params), spread(x, grad, params), x].map((t) => t.cast('f32'));
      return [w.div(length.eq(0).where(1, length)).mul(g).cast(x.dtype)];
    },
  } satisfies ReduceDef<OverDims> as ReduceDef<OverDims>,
  deviations: fromMean('Deviations', 'variance', 'sum of squared distances from the mean over dims', (x) => x),
  spread: fromMean('Spread', 'std', 'root of the sum of squared distances from the mean over dims', Math.sqrt),
  max: extremum('max', 'fast_max'),
  min: extremum('min', 'fast_min'),
  argmax: argExtremum('argmax', 'fast_argmax'),
  argmin: argExtremum('argmin', 'fast_argmin'),
});

export type ScanParams = { readonly dim: number; readonly reverse: boolean; readonly exclusive: boolean };
type ScanRow = Omit<KernelRow<ScanParams>, 'name' | 'args'> & {
  readonly args: (x: Tensor, dim: number, options?: { reverse?: boolean; exclusive?: boolean }) => Call<ScanParams>;
};

export const scanOps = rows({
  cumsum: {
    family: 'scan',
    engineParams: ['dim', 'reverse', 'exclusive'],
    formula: 'running sum along dim',
    dtypes: DTYPES,
    ulp: ulps(4),
    candle: { none: 'Candle multiplies by a triangular matrix: quadratic time, floats only' },
    domain: [0.1, 2],
    args: (x: Tensor, dim: number, options: { reverse?: boolean; exclusive?: boolean } = {}): Call<ScanParams> => {
      requireOptions('cumsum', options, ['reverse', 'exclusive']);
      const { reverse = false, exclusive = false } = options;
      return { inputs: [x], params: { dim: normalizeDim('cumsum', dim, x.shape.length), reverse, exclusive } };
    },
    infer: ([x]: readonly Sig[]): readonly Sig[] => [{ shape: x.shape, dtype: sumDType(x.dtype) }],
    reference: ([x], [out], { dim, reverse, exclusive }): void => {
      const { shape, strides } = Layout.contiguous(x.shape);
      const n = shape[dim];
      const zero: Value = isFloat(x.dtype) ? 0 : 0n;
      new Layout(
        shape.map((d, i) => (i === dim ? 1 : d)),
        strides,
      ).forEach((_, base) => {
        let acc: any = zero;
        for (let k = 0; k < n; k++) {
          const at = base + (reverse ? n - 1 - k : k) * strides[dim];
          const before = acc;
          acc += x.data[at] as any;
          out.data[at] = exclusive ? before : acc;
        }
      });
    },
    samples: () =>
      [
        { reverse: false, exclusive: false },
        { reverse: true, exclusive: false },
        { reverse: false, exclusive: true },
        { reverse: true, exclusive: true },
      ].flatMap((o) => [
        { inputs: [{ shape: [3, 5] }], params: { dim: 1, ...o } },
        { inputs: [{ shape: [4, 3, 2] }], params: { dim: 0, ...o } },
      ]),
    errors: () => [],
    grad: ({ grad, params: { dim, reverse, exclusive } }: GradContext<ScanParams>): Grads => [
      grad.cumsum(dim, { reverse: !reverse, exclusive }),
    ],
  } satisfies ScanRow as ScanRow,
});

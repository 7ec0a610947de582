// What runs along one dimension besides sums: parts of cumprod, cummax, cummin and logcumsumexp.
import { DTYPES, type DType, isFloat, type Value } from '../base/dtype.js';
import { normalizeDim } from '../base/shape.js';
import type { Tensor } from '../tensor/tensor.js';
import { eachLane, kernel, numbers } from './kernel-row.js';
import { type Call, type GradContext, type Grads, rows, type Sample, type Sig, ulps } from './op.js';

export interface RunningParams extends Record<string, unknown> {
  readonly dim: number;
}
declare module './op.js' {
  interface KernelFacts {
    running: {
      /** The struct template of kernels/running.hip that joins elements. */
      readonly joins: 'Product' | 'LogSum' | 'LargestPlace' | 'SmallestPlace';
      /** Bytes of what it keeps on the way. */
      readonly kept: (dtype: DType) => number;
      /** The result is the place of an element, u32. */
      readonly place?: true;
    };
  }
}

const samples =
  (distinct = false) =>
  (): readonly Sample<RunningParams>[] => [
    { inputs: [{ shape: [3, 5], distinct }], params: { dim: 1 } },
    { inputs: [{ shape: [4, 3, 2], distinct }], params: { dim: 0 } },
    { inputs: [{ shape: [2, 1100], distinct }], params: { dim: 1 } },
  ];
const like = ([x]: readonly Sig[], { dim }: RunningParams): readonly Sig[] => {
  normalizeDim('running', dim, x.shape.length);
  return [x];
};
const common = {
  internal: true,
  family: 'running',
  engineParams: ['dim'],
  candle: { none: 'Candle has running sums alone' },
  errors: () => [],
  args: (x: Tensor, dim: number): Call<RunningParams> => ({
    inputs: [x],
    params: { dim: normalizeDim('running', dim, x.rank) },
  }),
} as const;

/** x with every element in its neighbour's place, `first` in front. */
const delayed = (x: Tensor, dim: number, first: number): Tensor => {
  const n = x.shape[dim];
  const shape = x.shape.map((d, i) => (i === dim ? 1 : d));
  return x.newFull(shape, first).cat(n > 1 ? [x.narrow(dim, 0, n - 1)] : [], dim);
};
/** h of h[k] = a[k] h[k - 1] + b[k] along dim, in as many steps as its size has bits. */
function recurrence(a: Tensor, b: Tensor, dim: number): Tensor {
  const n = a.shape[dim];
  let [factors, sums] = [a, b];
  for (let by = 1; by < n; by *= 2) {
    const later = factors.narrow(dim, by, n - by);
    const joined = sums.narrow(dim, by, n - by).add(later.mul(sums.narrow(dim, 0, n - by)));
    sums = sums.narrow(dim, 0, by).cat([joined], dim);
    factors = factors.narrow(dim, 0, by).cat([later.mul(factors.narrow(dim, 0, n - by))], dim);
  }
  return sums;
}

const place = (largest: boolean) =>
  kernel({
    ...common,
    serves: largest ? 'cummax' : 'cummin',
    kernel: {
      joins: largest ? 'LargestPlace' : 'SmallestPlace',
      kept: (d) => (d === 'f64' || d === 'i64' ? 16 : 8),
      place: true,
    },
    formula: `place (u32) of the ${largest ? 'largest' : 'smallest'} element so far along dim; the later of equal ones`,
    dtypes: DTYPES,
    differs: 'NaN is above all, as in PyTorch',
    ulp: 0,
    noGrad: 'the result is an index',
    infer: (inputs: readonly Sig[], params: RunningParams): readonly Sig[] => [
      { shape: like(inputs, params)[0].shape, dtype: 'u32' },
    ],
    reference: ([x], [out], { dim }): void =>
      eachLane(x.shape, dim, (start, step, n) => {
        let best = 0;
        for (let k = 0; k < n; k++) {
          const [v, b]: Value[] = [x.data[start + k * step], x.data[start + best * step]];
          if (v !== v || (largest ? v >= b : v <= b)) best = k;
          out.data[start + k * step] = BigInt(best);
        }
      }),
    samples: (): readonly Sample<RunningParams>[] => [
      ...samples(true)(),
      { inputs: [{ shape: [2, 70], ints: [0, 3] }], params: { dim: 1 } },
    ],
  });

export const runningOps = rows({
  runningProduct: kernel({
    ...common,
    serves: 'cumprod',
    kernel: { joins: 'Product', kept: () => 8 },
    formula: 'running product along dim, of floats in double',
    dtypes: ['f32', 'f64', 'i64'],
    without: 'cumprod widens the others',
    domain: [0.9, 1.1],
    ulp: { f32: 1, f64: 64, f16: 1, bf16: 1, f8e4m3: 1 },
    loose: 'products of doubles are rounded in another order on every device',
    infer: like,
    reference: ([x], [out], { dim }): void =>
      eachLane(x.shape, dim, (start, step, n) => {
        let so: Value = isFloat(x.dtype) ? 1 : 1n;
        for (let k = 0; k < n; k++) {
          const v = x.data[start + k * step];
          so = typeof so === 'bigint' ? BigInt.asIntN(64, so * (v as bigint)) : so * (v as number);
          out.data[start + k * step] = so;
        }
      }),
    samples: samples(),
    // Products of what stands before, by sums of what those behind make of it: no element is divided by, so zeros count.
    grad: ({ x, out, grad, params: { dim } }: GradContext<RunningParams>): Grads => {
      const [from, factors] = [grad.flip(dim), delayed(x.flip(dim), dim, 1)];
      return [delayed(out, dim, 1).mul(recurrence(factors, from, dim).flip(dim))];
    },
  }),
  runningLogSum: kernel({
    ...common,
    serves: 'logcumsumexp',
    kernel: { joins: 'LogSum', kept: (d) => (d === 'f64' ? 16 : 8) },
    formula: 'ln of the running sum of e^x along dim, stable',
    dtypes: ['f32', 'f64'],
    without: 'logcumsumexp widens the others',
    domain: [0.1, 2],
    ulp: ulps(4),
    infer: like,
    reference: ([x], [out], { dim }): void =>
      eachLane(x.shape, dim, (start, step, n) => {
        const [from, to] = [numbers(x), numbers(out)];
        let [top, sum] = [-Infinity, 0];
        for (let k = 0; k < n; k++) {
          const v = from[start + k * step];
          const share = top === v ? 1 : Math.exp(-Math.abs(top - v));
          sum = top > v ? sum + share : 1 + sum * share;
          if (!(top > v)) top = v;
          to[start + k * step] = top + Math.log(sum);
        }
      }),
    samples: samples(),
    // Sums of g e^-out from the end, apart by sign, as logarithms.
    grad: ({ x, out, grad, params: { dim } }: GradContext<RunningParams>): Grads => {
      const base = out.eq(-Infinity).where(0, out);
      const share = (g: Tensor): Tensor => {
        const any = g.gt(0);
        const logs = any.where(any.where(g, 1).log().sub(base), -Infinity);
        return logs.flip(dim).runningLogSum(dim).flip(dim).add(x).exp();
      };
      return [share(grad).sub(share(grad.neg()))];
    },
  }),
  runningLargest: place(true),
  runningSmallest: place(false),
});

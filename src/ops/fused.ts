// Elementwise steps worth one kernel: gated activations and the updates of optimizers.
import { FLOATS, REALS } from '../base/dtype.js';
import type { Tensor } from '../tensor/tensor.js';
import type { Call, ElementwiseRow, GradContext, Grads, Params } from './op.js';
import { rows, ulps } from './op.js';

type Fused<A extends readonly unknown[], P extends Params> = Omit<ElementwiseRow<P>, 'name' | 'args'> & {
  readonly args: (x: Tensor, ...rest: A) => Call<P>;
};
const fused = <A extends readonly unknown[], P extends Params>(
  row: Omit<Fused<A, P>, 'family' | 'result' | 'candle'>,
): Fused<A, P> => ({
  family: 'elementwise',
  result: 'same',
  candle: { none: 'composed of several ops there' },
  ...row,
});

const WITHOUT = 'only floats have fractions';
const sigmoid = (x: number): number => 1 / (1 + Math.exp(-x));
const SIGMOID = 'select(x < C(0), expg(-absg(x)), C(1)) / (C(1) + expg(-absg(x)))';
const GELU_SLOPE = 2 * Math.sqrt(2 / Math.PI);
const GELU_BEND = 0.044715;
/** Beyond 30 the slope of gelu is 0 or 1, and cubes would leave the range of f32. */
const GELU_X = 'select(x > C(30), C(30), select(x < C(-30), C(-30), x))';
const GELU_V = `${GELU_X} * fmag(${GELU_X} * ${GELU_X}, C(${GELU_SLOPE * GELU_BEND}), C(${GELU_SLOPE}))`;
const GELU_DV = `fmag(${GELU_X} * ${GELU_X}, C(${3 * GELU_SLOPE * GELU_BEND}), C(${GELU_SLOPE}))`;
const GELU_E = `expg(-absg(${GELU_V}))`;
/** s + x s (1 - s) v' for s = sigmoid(v); s (1 - s) is e / (1 + e)^2, which loses nothing where s comes near 1. */
const GELU_GRAD =
  `(select(${GELU_X} < C(0), ${GELU_E}, C(1)) / (C(1) + ${GELU_E}) + ` +
  `${GELU_X} * ${GELU_DV} * ${GELU_E} / ((C(1) + ${GELU_E}) * (C(1) + ${GELU_E})))`;
const GELU_S = `small_sigmoid<S>(${GELU_V})`;
const noEdges = 'steps in between leave the range of f32 where double does not';
const ULP = { f32: 6, f64: 6, f16: 1, bf16: 1, f8e4m3: 1 } as const;
type None = Record<never, never>;
export interface Decay extends Record<string, unknown> {
  decay: number;
  /** 1 - decay, taken in double: near 1 a difference in the tensor's own precision would lose most of its digits. */
  rest: number;
}
export interface Huber extends Record<string, unknown> {
  delta: number;
}
/** Below 0 NaN, which stays. */
const bounded = (log: number): number => (log < -100 ? -100 : log);
const BOUNDED = (log: string): string => `select(${log} < C(-100), C(-100), ${log})`;
const decayed = (decay: number): Decay => ({ decay, rest: 1 - decay });
export interface Step extends Record<string, unknown> {
  rate: number;
  eps: number;
}
const decaySamples = (): readonly { inputs: { shape: number[] }[]; params: Decay }[] => [
  { inputs: [{ shape: [3, 5] }, { shape: [3, 5] }], params: decayed(0.9) },
  { inputs: [{ shape: [3, 5] }, { shape: [3, 5] }], params: decayed(0.999) },
];

export const fusedOps = rows({
  siluMul: fused({
    arity: 2,
    noEdges,
    scalars: [],
    formula: 'silu(x) * y',
    dtypes: FLOATS,
    without: WITHOUT,
    domain: [-6, 6],
    ulp: ULP,
    exact: (x, y) => x * sigmoid(x) * y,
    kernel: `x * (${SIGMOID}) * y`,
    small: 'x * small_sigmoid<S>(x) * y',
    args: (x: Tensor, y: Tensor): Call<None> => ({ inputs: [x, y], params: {} }),
    grad: ({ x, y, grad, needs }: GradContext<None>): Grads => [
      needs(0) ? x.siluMulGrad(y, grad) : undefined,
      needs(1) ? x.siluMul(grad) : undefined,
    ],
    gradReads: [0, 1],
    cheap: true,
  }),
  siluMulGrad: fused({
    internal: true,
    arity: 3,
    noEdges,
    scalars: [],
    formula: "silu'(x) * y * z",
    dtypes: FLOATS,
    without: WITHOUT,
    domain: [-1, 4],
    ulp: { f32: 16, f64: 16, f16: 1, bf16: 1, f8e4m3: 1 }, // silu' is 0 at -1.28: no unit to measure by near it
    exact: (x, y, z) => sigmoid(x) * (1 + x * (1 - sigmoid(x))) * y * z,
    kernel: `(${SIGMOID}) * (C(1) + x * (C(1) - (${SIGMOID}))) * y * z`,
    small: 'small_sigmoid<S>(x) * (C(1) + x * (C(1) - small_sigmoid<S>(x))) * y * z',
    args: (x: Tensor, y: Tensor, z: Tensor): Call<None> => ({ inputs: [x, y, z], params: {} }),
    grad: ({ inputs: [x, y, z], grad, needs }: GradContext<None>): Grads => {
      const bent = (): Tensor => {
        const s = x.sigmoid();
        return s
          .mul(s.affine(-1, 1))
          .mul(x.mul(s.affine(-2, 1)).affine(1, 2))
          .mul(y)
          .mul(z)
          .mul(grad);
      };
      return [
        needs(0) ? bent() : undefined,
        needs(1) ? x.siluMulGrad(grad, z) : undefined,
        needs(2) ? x.siluMulGrad(y, grad) : undefined,
      ];
    },
  }),
  geluGrad: fused({
    internal: true,
    arity: 2,
    noEdges,
    scalars: [],
    formula: "gelu'(x) * y",
    dtypes: FLOATS,
    without: WITHOUT,
    domain: [-0.5, 4],
    ulp: { f32: 16, f64: 32, f16: 1, bf16: 1, f8e4m3: 1 }, // gelu' is 0 at -0.75: no unit to measure by near it
    exact: (x, y) => {
      const c = Math.max(-30, Math.min(30, x));
      const s = sigmoid(GELU_SLOPE * (c + GELU_BEND * c ** 3));
      return y * (s + c * s * (1 - s) * GELU_SLOPE * (1 + 3 * GELU_BEND * c * c));
    },
    kernel: `y * ${GELU_GRAD}`,
    small: `y * (${GELU_S} + ${GELU_X} * ${GELU_S} * (C(1) - ${GELU_S}) * ${GELU_DV})`,
    args: (x: Tensor, y: Tensor): Call<None> => ({ inputs: [x, y], params: {} }),
    grad: ({ x, y, grad, needs }: GradContext<None>): Grads => {
      const bent = (): Tensor => {
        const c = x.clamp(-30, 30);
        const s = c.mul(c.sqr().affine(GELU_BEND, 1)).affine(GELU_SLOPE, 0).sigmoid();
        const dv = c.sqr().affine(3 * GELU_BEND * GELU_SLOPE, GELU_SLOPE);
        const bend = c
          .mul(s.affine(-2, 1))
          .mul(dv.sqr())
          .add(c.sqr().affine(6 * GELU_BEND * GELU_SLOPE, 0));
        return s.mul(s.affine(-1, 1)).mul(dv.affine(2, 0).add(bend));
      };
      return [needs(0) ? bent().mul(y).mul(grad) : undefined, needs(1) ? x.geluGrad(grad) : undefined];
    },
  }),
  ema: fused({
    internal: true,
    arity: 2,
    noEdges,
    scalars: ['decay', 'rest'],
    formula: 'decay * x + (1 - decay) * y',
    dtypes: REALS,
    without: WITHOUT,
    domain: [0.1, 2],
    ulp: ulps(4),
    exact: (x, y, decay, rest) => decay * x + rest * y,
    kernel: 'fmag(a, x, b * y)',
    args: (x: Tensor, y: Tensor, decay: number): Call<Decay> => ({ inputs: [x, y], params: decayed(decay) }),
    samples: decaySamples,
    grad: ({ grad, params: { decay, rest } }: GradContext<Decay>): Grads => [
      grad.affine(decay, 0),
      grad.affine(rest, 0),
    ],
  }),
  emaSqr: fused({
    internal: true,
    arity: 2,
    noEdges,
    scalars: ['decay', 'rest'],
    formula: 'decay * x + (1 - decay) * y^2',
    dtypes: REALS,
    without: WITHOUT,
    domain: [0.1, 2],
    ulp: ulps(4),
    exact: (x, y, decay, rest) => decay * x + rest * y * y,
    kernel: 'fmag(a, x, b * y * y)',
    args: (x: Tensor, y: Tensor, decay: number): Call<Decay> => ({ inputs: [x, y], params: decayed(decay) }),
    samples: decaySamples,
    grad: ({ y, grad, params: { decay, rest } }: GradContext<Decay>): Grads => [
      grad.affine(decay, 0),
      grad.mul(y).affine(2 * rest, 0),
    ],
  }),
  adamStep: fused({
    internal: true,
    arity: 3,
    noEdges,
    scalars: ['rate', 'eps'],
    formula: 'x - rate * y / (sqrt(z) + eps)',
    dtypes: REALS,
    without: WITHOUT,
    domain: [0.1, 2],
    ulp: ulps(4),
    exact: (x, y, z, rate, eps) => x - (rate * y) / (Math.sqrt(z) + eps),
    kernel: 'x - divg(a * y, sqrtg(z) + b)',
    small: 'x - a * y * small_recip<S>(small_root(z) + b)',
    args: (x: Tensor, y: Tensor, z: Tensor, rate: number, eps: number): Call<Step> => ({
      inputs: [x, y, z],
      params: { rate, eps },
    }),
    samples: () => [
      { inputs: [{ shape: [3, 5] }, { shape: [3, 5] }, { shape: [3, 5] }], params: { rate: 2 ** -6, eps: 0.125 } },
    ],
    grad: ({ inputs: [, y, z], grad, params: { rate, eps }, needs }: GradContext<Step>): Grads => {
      const d = z.sqrt().affine(1, eps);
      return [
        grad,
        needs(1) ? grad.div(d).affine(-rate, 0) : undefined,
        needs(2)
          ? grad
              .mul(y)
              .div(d.sqr().mul(z.sqrt()))
              .affine(rate / 2, 0)
          : undefined,
      ];
    },
  }),
  huberEach: fused({
    internal: true,
    arity: 2,
    noEdges,
    scalars: ['delta'],
    formula: '(x - y)^2 / 2 within delta, delta (|x - y| - delta / 2) beyond',
    dtypes: REALS,
    without: WITHOUT,
    domain: [-2, 2],
    ulp: ulps(4),
    exact: (x, y, delta) => {
      const d = Math.abs(x - y);
      return d <= delta ? 0.5 * d * d : delta * (d - 0.5 * delta);
    },
    kernel: 'select(absg(x - y) <= a, C(0.5) * (x - y) * (x - y), a * (absg(x - y) - C(0.5) * a))',
    args: (x: Tensor, y: Tensor, delta: number): Call<Huber> => ({ inputs: [x, y], params: { delta } }),
    samples: () => [0.7, 8].map((delta) => ({ inputs: [{ shape: [3, 5] }, { shape: [3, 5] }], params: { delta } })),
    grad: ({ x, y, grad, params: { delta }, needs }: GradContext<Huber>): Grads => {
      const slope = x.sub(y).clamp(-delta, delta).mul(grad);
      return [needs(0) ? slope : undefined, needs(1) ? slope.neg() : undefined];
    },
  }),
  bceEach: fused({
    internal: true,
    arity: 2,
    noEdges,
    scalars: [],
    formula: '-(y ln x + (1 - y) ln(1 - x)), the logarithms at least -100',
    dtypes: REALS,
    without: WITHOUT,
    domain: [0.1, 0.9],
    ulp: ulps(6),
    exact: (x, y) => -(y * bounded(Math.log(x)) + (1 - y) * bounded(Math.log1p(-x))),
    kernel: `-(y * ${BOUNDED('logg(x)')} + (C(1) - y) * ${BOUNDED('log1pg(-x)')})`,
    args: (x: Tensor, y: Tensor): Call<None> => ({ inputs: [x, y], params: {} }),
    // As steep at 0 and 1 as PyTorch lets it be, so that such a probability has a gradient to leave by, and not NaN.
    grad: ({ x, y, grad, needs }: GradContext<None>): Grads => {
      const [p, t, g] = x.dtype === 'f64' ? [x, y, grad] : [x, y, grad].map((v) => v.cast('f32'));
      const least = x.dtype === 'f16' ? 1 / 65504 : 1e-12;
      const log = (v: Tensor): Tensor => v.log().maximum(-100);
      return [
        needs(0)
          ? p
              .sub(t)
              .div(p.mul(p.affine(-1, 1)).clamp(least, Infinity))
              .mul(g)
              .cast(x.dtype)
          : undefined,
        needs(1) ? log(p.affine(-1, 1)).sub(log(p)).mul(g).cast(x.dtype) : undefined,
      ];
    },
  }),
});

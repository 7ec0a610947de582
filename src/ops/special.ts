// Inverse, hyperbolic and special functions: elementwise rows like those of unary.ts, less often asked for.
import { FLOATS } from '../base/dtype.js';
import { ArgumentError } from '../base/errors.js';
import { besselI, erfinv, logGamma, polygamma } from '../base/special.js';
import type { Tensor } from '../tensor/tensor.js';
import { binary, scalar, unary } from './elementwise.js';
import { composite } from './kernel-row.js';
import {
  type Bound,
  type Call,
  type CompositeErrorSample,
  type CompositeSample,
  type GradContext,
  type Grads,
  rows,
  ulps,
} from './op.js';

const floats = {
  dtypes: FLOATS,
  without: 'the result of this function on integers is not an integer; cast to a float dtype first',
  candle: { none: 'Candle has no kernel for it' },
} as const;
/** The C libraries of GPU vendors promise up to four units. */
const LIBRARY = ulps(4);
const loose = 'the libraries of GPU vendors promise four units at most, though most results are nearer';
const SPECIAL: Bound = { f32: 1, f64: 64, f16: 1, bf16: 1, f8e4m3: 1 };
const specialLoose = 'in f64 terms cancel near the zeros of these functions; other dtypes are rounded from double';

/** (1 - x)(1 + x), exact where 1 - x^2 would lose its last bits. */
const oneLessSquare = (x: Tensor): Tensor => x.affine(-1, 1).mul(x.affine(1, 1));

export const specialOps = rows({
  exp2: unary({
    ...floats,
    formula: '2^x',
    exact: (x) => 2 ** x,
    kernel: 'exp2g(x)',
    ulp: ulps(2),
    domain: [-4, 4],
    grad: ({ out, grad }): Tensor => grad.mul(out).affine(Math.LN2, 0),
  }),
  log2: unary({
    ...floats,
    formula: 'logarithm to base 2',
    exact: Math.log2,
    kernel: 'log2g(x)',
    ulp: ulps(2),
    domain: [0.1, 8],
    grad: ({ x, grad }): Tensor => grad.div(x).affine(Math.LOG2E, 0),
  }),
  log10: unary({
    ...floats,
    formula: 'logarithm to base 10',
    exact: Math.log10,
    kernel: 'log10g(x)',
    ulp: ulps(3),
    loose,
    domain: [0.1, 8],
    grad: ({ x, grad }): Tensor => grad.div(x).affine(Math.LOG10E, 0),
  }),
  sinh: unary({
    ...floats,
    formula: '(e^x - e^-x) / 2',
    exact: Math.sinh,
    kernel: 'sinhg(x)',
    ulp: LIBRARY,
    loose,
    domain: [-4, 4],
    grad: ({ x, grad }): Tensor => grad.mul(x.cosh()),
  }),
  cosh: unary({
    ...floats,
    formula: '(e^x + e^-x) / 2',
    exact: Math.cosh,
    kernel: 'coshg(x)',
    ulp: LIBRARY,
    loose,
    domain: [-4, 4],
    grad: ({ x, grad }): Tensor => grad.mul(x.sinh()),
  }),
  asin: unary({
    ...floats,
    formula: 'the angle from -pi/2 to pi/2 whose sine is x',
    exact: Math.asin,
    kernel: 'asing(x)',
    ulp: LIBRARY,
    loose,
    domain: [-0.9, 0.9],
    grad: ({ x, grad }): Tensor => grad.mul(oneLessSquare(x).rsqrt()),
  }),
  acos: unary({
    ...floats,
    formula: 'the angle from 0 to pi whose cosine is x',
    exact: Math.acos,
    kernel: 'acosg(x)',
    ulp: LIBRARY,
    loose,
    domain: [-0.9, 0.9],
    grad: ({ x, grad }): Tensor => grad.mul(oneLessSquare(x).rsqrt()).neg(),
  }),
  atan: unary({
    ...floats,
    formula: 'the angle from -pi/2 to pi/2 whose tangent is x',
    exact: Math.atan,
    kernel: 'atang(x)',
    ulp: LIBRARY,
    loose,
    domain: [-4, 4],
    grad: ({ x, grad }): Tensor => grad.div(x.sqr().affine(1, 1)),
  }),
  asinh: unary({
    ...floats,
    formula: 'the number whose sinh is x',
    exact: Math.asinh,
    kernel: 'asinhg(x)',
    ulp: LIBRARY,
    loose,
    domain: [-4, 4],
    grad: ({ x, grad }): Tensor => grad.mul(x.sqr().affine(1, 1).rsqrt()),
  }),
  acosh: unary({
    ...floats,
    formula: 'the number from 0 on whose cosh is x',
    exact: Math.acosh,
    kernel: 'acoshg(x)',
    ulp: LIBRARY,
    loose,
    domain: [1.2, 8],
    grad: ({ x, grad }): Tensor => grad.mul(oneLessSquare(x).neg().rsqrt()),
  }),
  atanh: unary({
    ...floats,
    formula: 'the number whose tanh is x',
    exact: Math.atanh,
    kernel: 'atanhg(x)',
    ulp: LIBRARY,
    loose,
    domain: [-0.9, 0.9],
    grad: ({ x, grad }): Tensor => grad.div(oneLessSquare(x)),
  }),
  erfinv: unary({
    ...floats,
    formula: 'the number whose erf is x; infinite at 1 and -1, NaN beyond',
    exact: erfinv,
    kernel: 'erfinvg(x)',
    ulp: SPECIAL,
    loose: specialLoose,
    domain: [-0.95, 0.95],
    grad: ({ out, grad }): Tensor =>
      grad.mul(
        out
          .sqr()
          .exp()
          .affine(Math.sqrt(Math.PI) / 2, 0),
      ),
  }),
  lgamma: unary({
    ...floats,
    formula: 'ln |Gamma(x)|',
    exact: logGamma,
    kernel: 'lgammag(x)',
    ulp: SPECIAL,
    loose: specialLoose,
    domain: [0.2, 8],
    grad: ({ x, grad }): Tensor => grad.mul(x.polygamma(0)),
  }),
  i0: unary({
    ...floats,
    formula: 'modified Bessel function of the first kind, order 0',
    exact: (x) => besselI(0, x),
    kernel: 'i0g(x)',
    ulp: SPECIAL,
    loose: specialLoose,
    domain: [-6, 6],
    grad: ({ x, grad }): Tensor => grad.mul(x.i1()),
  }),
  i1: unary({
    ...floats,
    formula: 'modified Bessel function of the first kind, order 1',
    exact: (x) => besselI(1, x),
    kernel: 'i1g(x)',
    ulp: SPECIAL,
    loose: specialLoose,
    domain: [-6, 6],
    // i1(x) / x is 1/2 at 0.
    grad: ({ x, out, grad }): Tensor => {
      const zero = x.eq(0);
      return grad.mul(x.i0().sub(zero.where(0.5, out.div(zero.where(1, x)))));
    },
  }),
  polygamma: scalar({
    ...floats,
    formula: 'derivative of digamma of the given order, 0 being digamma; orders from 2 on are NaN below -10000',
    scalars: ['order'],
    args: (x: Tensor, order: number): Call<{ order: number }> => {
      if (!Number.isInteger(order) || order < 0 || order > 20)
        throw new ArgumentError(`polygamma: the order ${order} is not a whole number from 0 to 20`);
      return { inputs: [x], params: { order } };
    },
    exact: (x, order) => polygamma(x, order),
    kernel: 'polygammag(a, x)',
    ulp: SPECIAL,
    loose: specialLoose,
    domain: [2, 8],
    samples: () => [0, 1, 2].map((order) => ({ inputs: [{ shape: [3, 5] }], params: { order } })),
    grad: ({ x, grad, params }): Tensor => grad.mul(x.polygamma(params.order + 1)),
  }),
  atan2: binary({
    ...floats,
    formula: 'the angle of the point (y, x), x being the tensor and y the operand: its sign and quadrant are kept',
    exact: Math.atan2,
    kernel: 'atan2g(x, y)',
    ulp: LIBRARY,
    loose,
    domain: [0.2, 4],
    grad: ({ x, y, grad, needs }: GradContext): Grads => {
      const size = x.sqr().add(y.sqr());
      const zero = size.eq(0);
      const by = grad.div(zero.where(1, size));
      return [needs(0) ? by.mul(y) : undefined, needs(1) ? by.mul(x).neg() : undefined];
    },
  }),
  hypot: binary({
    ...floats,
    formula: 'sqrt(x^2 + y^2), without leaving the range on the way',
    exact: Math.hypot,
    kernel: 'hypotg(x, y)',
    ulp: LIBRARY,
    loose,
    domain: [0.2, 4],
    grad: ({ x, y, out, grad, needs }: GradContext): Grads => {
      const by = grad.div(out.eq(0).where(1, out));
      return [needs(0) ? by.mul(x) : undefined, needs(1) ? by.mul(y) : undefined];
    },
  }),
  digamma: composite({
    ...floats,
    formula: 'derivative of ln Gamma(x)',
    ulp: SPECIAL,
    loose: specialLoose,
    domain: [2, 8],
    compose: (x: Tensor): Tensor => x.polygamma(0),
    samples: (): readonly CompositeSample[] => [{ inputs: [{ shape: [3, 5] }], args: [] }],
    errors: (): readonly CompositeErrorSample[] => [],
  }),
});

// Activations: unary rows that networks are made of. Those with a number of their own (elu, leakyRelu) are in unary.ts.
import { FLOATS, NUMBERS } from '../base/dtype.js';
import { normcdf } from '../base/special.js';
import type { Tensor } from '../tensor/tensor.js';
import { floatsOnly, INV_SQRT_2PI, ours, TINY, unary, unaryCu } from './elementwise.js';

const SQRT_2_OVER_PI = Math.sqrt(2 / Math.PI);
const SELU_SCALE = 1.0507009873554805;
const SELU_ALPHA = 1.6732632423543772;
const sigmoid = (x: number): number => 1 / (1 + Math.exp(-x));
const softplus = (x: number): number => (x > 0 ? x + Math.log1p(Math.exp(-x)) : Math.log1p(Math.exp(x)));

export const activations = {
  relu: unary({
    formula: 'max(x, 0)',
    dtypes: NUMBERS,
    exact: (x) => (x > 0 ? x : 0),
    exact16: (x) => (x <= 0 ? 0 : x),
    int: (x) => (x > 0n ? x : 0n),
    kernel: 'maxg<S>(x, C(0))',
    ulp: 0,
    candle: unaryCu('urelu'),
    differs: 'the gradient at 0 is 0 (Candle: 1). NaN gives 0, but stays NaN in f16 and bf16, as in Candle',
    grad: ({ x, grad }): Tensor => grad.mul(x.gt(0).cast(x.dtype)),
  }),
  relu6: unary({
    formula: 'min(max(x, 0), 6)',
    dtypes: FLOATS,
    without: floatsOnly,
    exact: (x) => (x < 0 ? 0 : x > 6 ? 6 : x),
    kernel: 'select(x < C(0), C(0), select(x > C(6), C(6), x))',
    ulp: 0,
    domain: [-8, 8],
    candle: { none: 'Candle composes it of maximum and minimum' },
    differs: 'NaN stays NaN; the gradient at 0 and at 6 is 0',
    grad: ({ x, grad }): Tensor => grad.mul(x.gt(0).logicalAnd(x.lt(6)).cast(x.dtype)),
  }),
  sigmoid: unary({
    formula: '1 / (1 + e^-x)',
    dtypes: FLOATS,
    without: floatsOnly,
    exact: sigmoid,
    kernel: 'select(x < C(0), expg(-absg(x)), C(1)) / (C(1) + expg(-absg(x)))',
    small: 'small_sigmoid<S>(x)',
    byExp: { power: '-x', result: 'F(1.f) / (F(1.f) + e)', fine: true },
    ulp: { ...TINY, f32: 3, f64: 3 }, // no overflow on either side
    domain: [-6, 6],
    candle: unaryCu('usigmoid'),
    grad: ({ out, grad }): Tensor => grad.mul(out.mul(out.affine(-1, 1))),
  }),
  silu: unary({
    formula: 'x / (1 + e^-x)',
    dtypes: FLOATS,
    without: floatsOnly,
    exact: (x) => x / (1 + Math.exp(-x)),
    kernel: 'x * select(x < C(0), expg(-absg(x)), C(1)) / (C(1) + expg(-absg(x)))',
    small: 'x * small_sigmoid<S>(x)',
    byExp: { power: '-x', result: 'x / (F(1.f) + e)', fine: true },
    ulp: { ...TINY, f32: 3, f64: 3 },
    domain: [-6, 6],
    candle: unaryCu('usilu'),
    // sigmoid(-x) is 1 - sigmoid(x) to the last bit, where the difference would leave nothing of large x.
    grad: ({ x, grad }): Tensor => grad.mul(x.sigmoid().mul(x.mul(x.neg().sigmoid()).affine(1, 1))),
  }),
  gelu: unary({
    formula: 'x/2 * (1 + tanh(sqrt(2/pi) * (x + 0.044715 x^3)))',
    dtypes: FLOATS,
    without: floatsOnly,
    // 1 + tanh(u) is 2 / (1 + e^-2u), which loses nothing where tanh(u) comes near -1.
    exact: (x) => x / (1 + Math.exp(-2 * SQRT_2_OVER_PI * (x + 0.044715 * x * x * x))),
    // e^v is 2^(v log2 e), and GPUs have powers of two: half the instructions.
    kernel:
      `x / (C(1) + exp2g(x * fmag(x * x, C(${-2 * SQRT_2_OVER_PI * 0.044715 * Math.LOG2E}), ` +
      `C(${-2 * SQRT_2_OVER_PI * Math.LOG2E}))))`,
    small:
      `x * small_logistic2<S>(x * fmag(x * x, C(${2 * SQRT_2_OVER_PI * 0.044715 * Math.LOG2E}), ` +
      `C(${2 * SQRT_2_OVER_PI * Math.LOG2E})), C(1))`,
    // The double oracle's own rounding counts too: it has no fused multiply-add.
    byExp: {
      power: 'x * mad(x * x, F(-0.07135481627260025f), F(-1.5957691216057308f))',
      result: 'x / (F(1.f) + e)',
      fine: false,
    },
    // x / (1 + 2^v): a power beyond what f32 holds is taken in two.
    far:
      'const V v = x * fmag(x * x, V(-0.10294324f), V(-2.3022082f)), most(120.f); return x / (V(1.f) + ' +
      'exp2g(ming<float>(v, most))) * exp2g(ming<float>(most - v, V(0.f)));',
    ulp: { f32: 24, f64: 48, f16: 1, bf16: 1, f8e4m3: 1 },
    domain: [-4, 4],
    candle: unaryCu('ugelu'),
    differs: 'the tail for negative x keeps its precision (Candle subtracts nearly equal numbers)',
    grad: ({ x, grad }): Tensor => x.geluGrad(grad),
  }),
  geluErf: unary({
    formula: 'x * normcdf(x)',
    dtypes: FLOATS,
    without: floatsOnly,
    exact: (x) => x * normcdf(x),
    kernel: 'x * normcdfg(x)',
    small: 'x * small_normcdf<S>(x)',
    ulp: { f32: 8, f64: 256, f16: 1, bf16: 1, f8e4m3: 1 },
    loose: 'the CPU engine is up to 118 ulp from Candle in the far tail, where no case of our own lies',
    domain: [-4, 4],
    candle: unaryCu('ugelu_erf') /* as normcdf */,
    grad: ({ x, grad }): Tensor =>
      grad.mul(x.normcdf().add(x.mul(x.sqr().affine(-0.5, 0).exp().affine(INV_SQRT_2PI, 0)))),
  }),
  softplus: unary({
    formula: 'ln(1 + e^x)',
    dtypes: FLOATS,
    without: floatsOnly,
    exact: softplus,
    kernel: 'select(x > C(0), x, C(0)) + log1pg(expg(-absg(x)))',
    small: 'small_softplus<S>(x)',
    ulp: { ...TINY, f32: 3, f64: 3 },
    domain: [-6, 6],
    candle: ours,
    grad: ({ x, grad }): Tensor => grad.mul(x.sigmoid()),
  }),
  softsign: unary({
    formula: 'x / (1 + |x|)',
    dtypes: FLOATS,
    without: floatsOnly,
    exact: (x) => x / (1 + Math.abs(x)),
    kernel: 'x / (C(1) + absg(x))',
    small: 'x * small_recip<S>(C(1) + absg(x))',
    ulp: TINY,
    domain: [-4, 4],
    candle: ours,
    grad: ({ x, grad }): Tensor => grad.div(x.abs().affine(1, 1).sqr()),
  }),
  mish: unary({
    formula: 'x * tanh(softplus(x))',
    dtypes: FLOATS,
    without: floatsOnly,
    exact: (x) => x * Math.tanh(softplus(x)),
    kernel: 'x * tanhg(select(x > C(0), x, C(0)) + log1pg(expg(-absg(x))))',
    small: 'small_mish<S>(x)',
    ulp: { ...TINY, f32: 6, f64: 6 },
    domain: [-6, 6],
    candle: ours,
    grad: ({ x, grad }): Tensor => {
      const t = x.softplus().tanh();
      return grad.mul(t.add(x.mul(x.sigmoid()).mul(t.sqr().affine(-1, 1))));
    },
  }),
  hardSigmoid: unary({
    formula: 'min(max(x/6 + 1/2, 0), 1)',
    dtypes: FLOATS,
    without: floatsOnly,
    exact: (x) => Math.min(Math.max((x + 3) / 6, 0), 1),
    kernel: 'select(x <= C(-3), C(0), select(x >= C(3), C(1), (x + C(3)) / C(6)))',
    small: 'select(x <= C(-3), C(0), select(x >= C(3), C(1), fmag(x, C(0.16666667), C(0.5))))',
    ulp: TINY,
    domain: [-5, 5],
    candle: ours,
    grad: ({ x, grad }): Tensor => grad.mul(x.abs().lt(3).cast(x.dtype)).affine(1 / 6, 0),
  }),
  hardSwish: unary({
    formula: 'x * min(max(x/6 + 1/2, 0), 1)',
    dtypes: FLOATS,
    without: floatsOnly,
    exact: (x) => x * Math.min(Math.max((x + 3) / 6, 0), 1),
    kernel: 'x * select(x <= C(-3), C(0), select(x >= C(3), C(1), (x + C(3)) / C(6)))',
    small: 'x * select(x <= C(-3), C(0), select(x >= C(3), C(1), fmag(x, C(0.16666667), C(0.5))))',
    ulp: { ...TINY, f32: 3, f64: 3 },
    domain: [-5, 5],
    candle: ours,
    grad: ({ x, grad }): Tensor =>
      grad.mul(
        x
          .abs()
          .lt(3)
          .where(x.affine(1 / 3, 0.5), x.hardSigmoid()),
      ),
  }),
  selu: unary({
    formula: 'scale * (x > 0 ? x : alpha * (e^x - 1))',
    dtypes: FLOATS,
    without: floatsOnly,
    exact: (x) => SELU_SCALE * (x > 0 ? x : SELU_ALPHA * Math.expm1(x)),
    kernel: `C(${SELU_SCALE}) * select(x > C(0), x, C(${SELU_ALPHA}) * expm1g(x))`,
    small: `C(${SELU_SCALE}) * select(x > C(0), x, C(${SELU_ALPHA}) * small_expm1(x))`,
    ulp: { ...TINY, f32: 4, f64: 4 },
    domain: [-4, 4],
    candle: ours,
    grad: ({ x, grad }): Tensor =>
      grad.mul(x.gt(0).where(x.onesLike(), x.exp().affine(SELU_ALPHA, 0))).affine(SELU_SCALE, 0),
  }),
};

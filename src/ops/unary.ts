// Unary rows: one element in, one out.
import { DTYPES, FLOATS, NUMBERS } from '../base/dtype.js';
import { cpow, erf, normcdf, roundAway, roundEven } from '../base/special.js';
import type { Tensor } from '../tensor/tensor.js';
import { predicate, scalar, unary } from './elementwise.js';
import { type Call, rows } from './op.js';

const floatsOnly = 'the result of this function on integers is not an integer; cast to a float dtype first';
const unaryCu = (symbol: string) => ({ file: 'unary.cu', symbol });
const ours = { none: 'Candle has no kernel for it' };
const TINY = { f32: 2, f64: 2, f16: 1, bf16: 1, f8e4m3: 1 };
const big = {
  abs: (x: bigint): bigint => (x < 0n ? -x : x),
  sign: (x: bigint): bigint => (x > 0n ? 1n : x < 0n ? -1n : 0n),
};
const same = (x: bigint): bigint => x;
const INV_SQRT_2PI = 1 / Math.sqrt(2 * Math.PI);
const SQRT_2_OVER_PI = Math.sqrt(2 / Math.PI);
const SELU_SCALE = 1.0507009873554805;
const SELU_ALPHA = 1.6732632423543772;
const sigmoid = (x: number): number => 1 / (1 + Math.exp(-x));
const softplus = (x: number): number => (x > 0 ? x + Math.log1p(Math.exp(-x)) : Math.log1p(Math.exp(x)));

export const unaryOps = rows({
  neg: unary({
    formula: '-x',
    dtypes: NUMBERS,
    exact: (x) => -x,
    int: (x) => -x,
    kernel: '-x',
    ulp: 0,
    candle: unaryCu('uneg'),
    grad: ({ grad }): Tensor => grad.neg(),
  }),
  recip: unary({
    formula: '1 / x',
    dtypes: FLOATS,
    without: floatsOnly,
    exact: (x) => 1 / x,
    kernel: 'C(1) / x',
    small: 'small_recip<S>(x)',
    ulp: 0,
    domain: [0.1, 4],
    candle: unaryCu('urecip'),
    grad: ({ out, grad }): Tensor => grad.mul(out.sqr()).neg(),
  }),
  exp: unary({
    formula: 'e^x',
    dtypes: FLOATS,
    without: floatsOnly,
    exact: Math.exp,
    kernel: 'expg(x)',
    small: 'small_exp<S>(x)',
    byExp: { power: 'x', result: 'e', fine: true },
    ulp: TINY,
    domain: [-4, 4],
    candle: unaryCu('uexp'),
    grad: ({ out, grad }): Tensor => grad.mul(out),
  }),
  expm1: unary({
    formula: 'e^x - 1',
    dtypes: FLOATS,
    without: floatsOnly,
    exact: Math.expm1,
    kernel: 'expm1g(x)',
    small: 'small_expm1(x)',
    ulp: TINY,
    domain: [-4, 4],
    candle: ours,
    grad: ({ x, grad }): Tensor => grad.mul(x.exp()),
  }),
  log: unary({
    formula: 'ln x',
    dtypes: FLOATS,
    without: floatsOnly,
    exact: Math.log,
    kernel: 'logg(x)',
    small: 'small_log<S>(x)',
    ulp: TINY,
    domain: [0.1, 8],
    candle: unaryCu('ulog'),
    grad: ({ x, grad }): Tensor => grad.div(x),
  }),
  log1p: unary({
    formula: 'ln(1 + x)',
    dtypes: FLOATS,
    without: floatsOnly,
    exact: Math.log1p,
    kernel: 'log1pg(x)',
    small: 'small_log1p(x)',
    ulp: TINY,
    domain: [-0.5, 4],
    candle: ours,
    grad: ({ x, grad }): Tensor => grad.div(x.affine(1, 1)),
  }),
  sin: unary({
    formula: 'sin x',
    dtypes: FLOATS,
    without: floatsOnly,
    exact: Math.sin,
    kernel: 'sing(x)',
    small: 'small_sin<S>(x)',
    ulp: TINY,
    domain: [-4, 4],
    candle: unaryCu('usin'),
    grad: ({ x, grad }): Tensor => grad.mul(x.cos()),
  }),
  cos: unary({
    formula: 'cos x',
    dtypes: FLOATS,
    without: floatsOnly,
    exact: Math.cos,
    kernel: 'cosg(x)',
    small: 'small_cos<S>(x)',
    ulp: TINY,
    domain: [-4, 4],
    candle: unaryCu('ucos'),
    grad: ({ x, grad }): Tensor => grad.mul(x.sin()).neg(),
  }),
  tan: unary({
    formula: 'tan x',
    dtypes: FLOATS,
    without: floatsOnly,
    exact: Math.tan,
    kernel: 'tang(x)',
    small: 'small_tan<S>(x)',
    ulp: { ...TINY, f32: 4, f64: 4 },
    domain: [-1.4, 1.4],
    candle: ours,
    grad: ({ out, grad }): Tensor => grad.mul(out.sqr().affine(1, 1)),
  }),
  tanh: unary({
    formula: 'tanh x',
    dtypes: FLOATS,
    without: floatsOnly,
    exact: Math.tanh,
    kernel: 'tanhg(x)',
    small: 'small_tanh(x)',
    byExp: { power: 'absg(x + x)', result: 'tanhBy(x, F(2.f) / (e + F(1.f)))', fine: true },
    ulp: TINY,
    domain: [-4, 4],
    candle: unaryCu('utanh'),
    grad: ({ out, grad }): Tensor => grad.mul(out.sqr().affine(-1, 1)),
  }),
  erf: unary({
    formula: '2/sqrt(pi) * integral of e^(-t^2) from 0 to x',
    dtypes: FLOATS,
    without: floatsOnly,
    exact: erf,
    kernel: 'erfg(x)',
    small: 'small_erf(x)',
    ulp: { ...TINY, f64: 4 },
    domain: [-3, 3],
    candle: unaryCu('uerf'),
    grad: ({ x, grad }): Tensor =>
      grad.mul(
        x
          .sqr()
          .neg()
          .exp()
          .affine(2 / Math.sqrt(Math.PI), 0),
      ),
  }),
  normcdf: unary({
    formula: '(1 + erf(x / sqrt(2))) / 2',
    dtypes: FLOATS,
    without: floatsOnly,
    exact: normcdf,
    kernel: 'normcdfg(x)',
    small: 'small_normcdf<S>(x)',
    ulp: { f32: 8, f64: 256, f16: 1, bf16: 1, f8e4m3: 1 },
    loose: 'the CPU engine is up to 118 ulp from Candle in the far tail, where no case of our own lies',
    domain: [-4, 4],
    candle: unaryCu('unormcdf') /* far out, x^2 magnifies the rounding of x / sqrt(2) */,
    grad: ({ x, grad }): Tensor => grad.mul(x.sqr().affine(-0.5, 0).exp().affine(INV_SQRT_2PI, 0)),
  }),
  ceil: unary({
    formula: 'smallest whole number >= x',
    dtypes: NUMBERS,
    exact: Math.ceil,
    int: same,
    kernel: 'ceilg(x)',
    ulp: 0,
    candle: unaryCu('uceil'),
    grad: ({ x }): Tensor => x.zerosLike(),
  }),
  floor: unary({
    formula: 'largest whole number <= x',
    dtypes: NUMBERS,
    exact: Math.floor,
    int: same,
    kernel: 'floorg(x)',
    ulp: 0,
    candle: unaryCu('ufloor'),
    grad: ({ x }): Tensor => x.zerosLike(),
  }),
  round: unary({
    formula: 'nearest whole number, halves away from zero',
    dtypes: NUMBERS,
    exact: roundAway,
    int: same,
    kernel: 'roundg(x)',
    ulp: 0,
    candle: unaryCu('uround'),
    grad: ({ x }): Tensor => x.zerosLike(),
  }),
  roundEven: unary({
    formula: 'nearest whole number, halves to even',
    dtypes: NUMBERS,
    exact: roundEven,
    int: same,
    kernel: 'rintg(x)',
    ulp: 0,
    candle: ours,
    grad: ({ x }): Tensor => x.zerosLike(),
  }),
  trunc: unary({
    formula: 'whole part of x',
    dtypes: NUMBERS,
    exact: Math.trunc,
    int: same,
    kernel: 'truncg(x)',
    ulp: 0,
    candle: ours,
    grad: ({ x }): Tensor => x.zerosLike(),
  }),
  abs: unary({
    formula: '|x|',
    dtypes: NUMBERS,
    exact: Math.abs,
    int: big.abs,
    kernel: 'absg(x)',
    ulp: 0,
    candle: unaryCu('uabs'),
    differs: 'the gradient at 0 is 0 (Candle: 1)',
    grad: ({ x, grad }): Tensor => grad.mul(x.sign()),
  }),
  sign: unary({
    formula: '1, 0 or -1; 0 for NaN and -0',
    dtypes: NUMBERS,
    exact: (x) => (x > 0 ? 1 : x < 0 ? -1 : 0),
    int: big.sign,
    kernel: 'select(x > C(0), C(1), select(x < C(0), C(0) - C(1), C(0)))',
    ulp: 0,
    candle: unaryCu('usign'),
    grad: ({ x }): Tensor => x.zerosLike(),
  }),
  sqr: unary({
    formula: 'x * x',
    dtypes: NUMBERS,
    exact: (x) => x * x,
    int: (x) => x * x,
    kernel: 'x * x',
    ulp: 0,
    candle: unaryCu('usqr'),
    grad: ({ x, grad }): Tensor => grad.mul(x).affine(2, 0),
  }),
  sqrt: unary({
    formula: 'square root of x',
    dtypes: FLOATS,
    without: floatsOnly,
    exact: Math.sqrt,
    kernel: 'sqrtg(x)',
    small: 'small_sqrt<S>(x)',
    ulp: 0,
    domain: [0.1, 8],
    candle: unaryCu('usqrt'),
    grad: ({ out, grad }): Tensor => grad.div(out.affine(2, 0)),
  }),
  rsqrt: unary({
    formula: '1 / sqrt(x)',
    dtypes: FLOATS,
    without: floatsOnly,
    exact: (x) => 1 / Math.sqrt(x),
    kernel: 'C(1) / sqrtg(x)',
    small: 'small_rsqrt<S>(x)',
    ulp: { f32: 1, f64: 1, f16: 1, bf16: 1, f8e4m3: 1 },
    domain: [0.1, 8],
    candle: ours,
    grad: ({ x, out, grad }): Tensor => grad.mul(out.div(x)).affine(-0.5, 0),
  }),
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
    grad: ({ x, grad }): Tensor => {
      // Beyond 30 the slope is 0 or 1, and squares would leave the range of f16.
      const c = x.clamp(-30, 30);
      const s = c
        .mul(c.sqr().affine(0.044715, 1))
        .affine(2 * SQRT_2_OVER_PI, 0)
        .sigmoid();
      const du = c
        .sqr()
        .affine(3 * 0.044715, 1)
        .affine(2 * SQRT_2_OVER_PI, 0);
      return grad.mul(s.add(c.mul(s).mul(s.affine(-1, 1)).mul(du)));
    },
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
  logicalNot: predicate({
    formula: 'x == 0',
    dtypes: DTYPES,
    exact: (x) => (x === 0 ? 1 : 0),
    int: (x) => (x === 0n ? 1n : 0n),
    kernel: 'x == C(0)',
    ulp: 0,
    candle: ours,
    noGrad: 'the result is a truth value',
  }),
  isNan: predicate({
    formula: 'x is not a number',
    dtypes: FLOATS,
    without: 'integers are always numbers',
    exact: (x) => (x !== x ? 1 : 0),
    kernel: 'x != x',
    ulp: 0,
    candle: ours,
    noGrad: 'the result is a truth value',
  }),
  isInf: predicate({
    formula: 'x is an infinity',
    dtypes: FLOATS,
    without: 'integers are always finite',
    exact: (x) => (Math.abs(x) === Infinity ? 1 : 0),
    kernel: '(x == x) & (absg(x) * C(0) != C(0))',
    ulp: 0,
    candle: ours,
    noGrad: 'the result is a truth value',
  }),
  elu: scalar({
    formula: 'x > 0 ? x : alpha * (e^x - 1)',
    dtypes: FLOATS,
    without: floatsOnly,
    scalars: ['alpha'],
    args: (x: Tensor, alpha: number = 1): Call<{ alpha: number }> => ({ inputs: [x], params: { alpha } }),
    exact: (x, alpha) => (x > 0 ? x : alpha * Math.expm1(x)),
    kernel: 'select(x > C(0), x, a * expm1g(x))',
    small: 'select(x > C(0), x, a * small_expm1(x))',
    ulp: { ...TINY, f32: 3, f64: 3 },
    domain: [-4, 4],
    candle: unaryCu('uelu'),
    samples: () => [
      { inputs: [{ shape: [3, 5] }], params: { alpha: 1 } },
      { inputs: [{ shape: [7] }], params: { alpha: 0.25 } },
    ],
    grad: ({ x, grad, params }): Tensor => grad.mul(x.gt(0).where(x.onesLike(), x.exp().affine(params.alpha, 0))),
  }),
  leakyRelu: scalar({
    formula: 'x >= 0 ? x : slope * x',
    dtypes: FLOATS,
    without: floatsOnly,
    scalars: ['slope'],
    args: (x: Tensor, slope: number = 0.01): Call<{ slope: number }> => ({ inputs: [x], params: { slope } }),
    exact: (x, slope) => (x >= 0 ? x : slope * x),
    kernel: 'select(x >= C(0), x, a * x)',
    ulp: { ...TINY, f32: 1, f64: 1 },
    domain: [-4, 4],
    candle: ours,
    samples: () => [{ inputs: [{ shape: [3, 5] }], params: { slope: 0.1 } }],
    grad: ({ x, grad, params }): Tensor => grad.mul(x.gt(0).where(x.onesLike(), x.newFull(x.shape, params.slope))),
  }),
  powf: scalar({
    formula: 'x^exponent',
    dtypes: FLOATS,
    without: floatsOnly,
    scalars: ['exponent'],
    args: (x: Tensor, exponent: number): Call<{ exponent: number }> => ({ inputs: [x], params: { exponent } }),
    exact: cpow,
    kernel: 'powg(x, a)',
    small: 'small_pow<S>(x, a)',
    ulp: { ...TINY, f32: 4, f64: 4 },
    domain: [0.1, 4],
    candle: unaryCu('upowf'),
    samples: () => [2, 0.5, -1.5, 3].map((exponent) => ({ inputs: [{ shape: [3, 5] }], params: { exponent } })),
    grad: ({ x, grad, params: { exponent } }): Tensor =>
      exponent === 0 ? x.zerosLike() : grad.mul(x.powf(exponent - 1)).affine(exponent, 0),
  }),
  affine: scalar({
    formula: 'x * mul + add',
    dtypes: NUMBERS,
    scalars: ['mul', 'add'],
    args: (x: Tensor, mul: number, add: number): Call<{ mul: number; add: number }> => ({
      inputs: [x],
      params: { mul, add },
    }),
    exact: (x, mul, add) => x * mul + add,
    int: (x, mul, add) => x * mul + add,
    kernel: 'fmag(x, a, b)',
    ulp: { f32: 1, f64: 1, f16: 1, bf16: 1, f8e4m3: 1 },
    candle: { file: 'affine.cu', symbol: 'affine' },
    differs: '16-bit types round once (Candle rounds the product, then the sum)',
    samples: () => [
      { inputs: [{ shape: [3, 5] }], params: { mul: 2, add: 3 } },
      { inputs: [{ shape: [9] }], params: { mul: 5, add: 1 } },
      { inputs: [{ shape: [9] }], params: { mul: -1, add: 255 } },
    ],
    errors: () => [
      {
        inputs: [{ shape: [3], dtype: 'i32', ints: [0, 3] }],
        params: { mul: 0.5, add: 1.5 },
        code: 'E_DTYPE',
        says: /affine: mul 0.5 is not a whole number/,
      },
    ],
    grad: ({ grad, params }): Tensor => grad.affine(params.mul, 0),
  }),
  clamp: scalar({
    formula: 'min(max(x, min), max); a bound left out bounds nothing',
    dtypes: NUMBERS,
    scalars: ['min', 'max'],
    bounds: true,
    args: (x: Tensor, min: number = -Infinity, max: number = Infinity): Call<{ min: number; max: number }> => ({
      inputs: [x],
      params: { min, max },
    }),
    // In this order: where min is above max, every number becomes max.
    exact: (x, min, max) => {
      const raised = x < min ? min : x;
      return raised > max ? max : raised;
    },
    int: (x, min, max) => {
      const raised = x < min ? min : x;
      return raised > max ? max : raised;
    },
    kernel: 'select(select(x < a, a, x) > b, b, select(x < a, a, x))',
    ulp: 0,
    candle: { none: 'Candle composes it of maximum and minimum' },
    domain: [-4, 4],
    differs: 'NaN stays NaN',
    samples: () => [
      { inputs: [{ shape: [3, 5] }], params: { min: 1, max: 2 } },
      { inputs: [{ shape: [3, 5] }], params: { min: 2, max: 1 } },
      { inputs: [{ shape: [3, 5] }], params: { min: -1, max: 300 } },
      { inputs: [{ shape: [3, 5] }], params: { min: 0, max: Infinity } },
      { inputs: [{ shape: [3, 5] }], params: { min: -(2 ** 70), max: 2 } },
    ],
    errors: () => [
      { inputs: [{ shape: [3] }], params: { min: NaN, max: 1 }, code: 'E_ARGUMENT', says: /clamp: min is NaN/ },
      {
        inputs: [{ shape: [3], dtype: 'i32', ints: [0, 3] }],
        params: { min: 0.5, max: 1 },
        code: 'E_DTYPE',
        says: /clamp: min 0.5 is not a whole number/,
      },
    ],
    grad: ({ x, grad, params: { min, max } }): Tensor => grad.mul(x.ge(min).logicalAnd(x.le(max)).cast(x.dtype)),
  }),
});

// ONNX operators element by element, and the tensors that nodes make.
import { Tensor } from '../../src/index.js';
import {
  type Handler,
  NotServed,
  dtypeOf,
  saturating,
  input,
  int,
  text,
  list,
  whole,
  same,
  unary,
  binary,
  many,
} from './node.js';

const INTEGER_DIVISION: Handler = binary((x, y) =>
  whole(x) ? x.cast('f64').div(y.cast('f64')).trunc().cast(x.dtype) : x.div(y),
);

export const ELEMENTWISE: Readonly<Record<string, Handler>> = {
  Abs: unary((x) => (x.dtype.startsWith('u') ? x : x.abs())),
  Neg: unary((x) => x.neg()),
  Sign: unary((x) => x.sign()),
  Floor: unary((x) => x.floor()),
  Ceil: unary((x) => x.ceil()),
  Round: unary((x) => x.roundEven()),
  Sqrt: unary((x) => x.sqrt()),
  Reciprocal: unary((x) => x.recip()),
  Exp: unary((x) => x.exp()),
  Log: unary((x) => x.log()),
  Sin: unary((x) => x.sin()),
  Cos: unary((x) => x.cos()),
  Tan: unary((x) => x.tan()),
  Asin: unary((x) => x.asin()),
  Acos: unary((x) => x.acos()),
  Atan: unary((x) => x.atan()),
  Sinh: unary((x) => x.sinh()),
  Cosh: unary((x) => x.cosh()),
  Tanh: unary((x) => x.tanh()),
  Asinh: unary((x) => x.asinh()),
  Acosh: unary((x) => x.acosh()),
  Atanh: unary((x) => x.atanh()),
  Erf: unary((x) => x.erf()),
  Relu: unary((x) => (whole(x) ? x.maximum(x.zerosLike()) : x.relu())),
  Sigmoid: unary((x) => x.sigmoid()),
  Softplus: unary((x) => x.softplus()),
  Softsign: unary((x) => x.softsign()),
  Elu: unary((x, n) => x.elu((n.attributes.alpha as number | undefined) ?? 1)),
  Celu: unary((x, n) => x.celu((n.attributes.alpha as number | undefined) ?? 1)),
  Selu: unary((x, n) => {
    const alpha = (n.attributes.alpha as number | undefined) ?? 1.67326319217681884765625;
    const gamma = (n.attributes.gamma as number | undefined) ?? 1.05070102214813232421875;
    return x.elu(alpha).affine(gamma, 0);
  }),
  LeakyRelu: unary((x, n) => x.leakyRelu((n.attributes.alpha as number | undefined) ?? 0.01)),
  ThresholdedRelu: unary((x, n) => x.threshold((n.attributes.alpha as number | undefined) ?? 1, 0)),
  HardSigmoid: unary((x, n) =>
    x
      .affine((n.attributes.alpha as number | undefined) ?? 0.2, (n.attributes.beta as number | undefined) ?? 0.5)
      .clamp(0, 1),
  ),
  HardSwish: unary((x) => x.hardSwish()),
  Mish: unary((x) => x.mish()),
  Swish: unary((x, n) => x.mul(x.affine((n.attributes.alpha as number | undefined) ?? 1, 0).sigmoid())),
  Gelu: unary((x, n) => (text(n, 'approximate', 'none') === 'tanh' ? x.gelu() : x.geluErf())),
  Shrink: unary((x, n) => {
    const [l, b] = [(n.attributes.lambd as number | undefined) ?? 0.5, (n.attributes.bias as number | undefined) ?? 0];
    return x.lt(-l).where(x.affine(1, b), x.gt(l).where(x.affine(1, -b), x.zerosLike()));
  }),
  PRelu: binary((x, s) => x.lt(0).where(x.mul(s), x)),
  Not: unary((x) => x.logicalNot()),
  IsNaN: unary((x) => x.isNan()),
  IsInf: unary((x, n) => {
    const [low, high] = [int(n, 'detect_negative', 1), int(n, 'detect_positive', 1)];
    const found = x.isInf();
    return low && high
      ? found
      : low
        ? found.logicalAnd(x.lt(0))
        : high
          ? found.logicalAnd(x.gt(0))
          : found.logicalAnd(found.logicalNot());
  }),
  Identity: unary((x) => x),
  BitwiseNot: unary((x) => x.bitwiseNot()),
  Add: binary((x, y) => x.add(y)),
  Sub: binary((x, y) => x.sub(y)),
  Mul: binary((x, y) => x.mul(y)),
  Div: INTEGER_DIVISION,
  Pow: binary((x, y) => (whole(x) || whole(y) ? x.cast('f64').pow(y.cast('f64')).cast(x.dtype) : x.pow(same(x, y)))),
  Mod: binary((x, y, n) => (int(n, 'fmod', 0) === 1 ? x.fmod(y) : x.remainder(y))),
  Equal: binary((x, y) => x.eq(y)),
  Less: binary((x, y) => x.lt(y)),
  LessOrEqual: binary((x, y) => x.le(y)),
  Greater: binary((x, y) => x.gt(y)),
  GreaterOrEqual: binary((x, y) => x.ge(y)),
  And: binary((x, y) => x.logicalAnd(y)),
  Or: binary((x, y) => x.logicalOr(y)),
  Xor: binary((x, y) => x.logicalXor(y)),
  BitwiseAnd: binary((x, y) => x.bitwiseAnd(y)),
  BitwiseOr: binary((x, y) => x.bitwiseOr(y)),
  BitwiseXor: binary((x, y) => x.bitwiseXor(y)),
  BitShift: (n) => {
    const [x, by] = [input(n, 0), list(input(n, 1))];
    const data = list(x).map((v, i) =>
      text(n, 'direction', '') === 'LEFT' ? v * 2 ** by[i] : Math.floor(v / 2 ** by[i]),
    );
    return Tensor.from(
      data.map((v) => v % 2 ** (x.dtype === 'u8' ? 8 : 32)),
      { dtype: 'i64' },
    )
      .cast(x.dtype)
      .reshape(x.shape);
  },
  Max: many((x, y) => x.maximum(y)),
  Min: many((x, y) => x.minimum(y)),
  Sum: many((x, y) => x.add(y)),
  Mean: (n) => (ELEMENTWISE.Sum(n) as Tensor).affine(1 / n.inputs.length, 0),
  Where: (n) => input(n, 0).where(input(n, 1), input(n, 2)),
  Clip: (n) => {
    let x = input(n, 0);
    const bound = (i: number, name: string): Tensor | undefined =>
      n.inputs[i] ?? (n.attributes[name] === undefined ? undefined : x.fullLike(n.attributes[name] as number));
    const [low, high] = [bound(1, 'min'), bound(2, 'max')];
    if (low) x = x.maximum(low);
    return high ? x.minimum(high) : x;
  },
  Cast: unary((x, n) => saturating(x, dtypeOf(int(n, 'to', 1)), n)),
  CastLike: binary((x, y, n) => saturating(x, y.dtype, n)),
  BitCast: unary((x, n) => x.bitcast(dtypeOf(int(n, 'to', 1)))),
  Constant: (n) => {
    const { value, value_float, value_floats, value_int, value_ints } = n.attributes;
    if (value instanceof Tensor) return value;
    if (value_float !== undefined) return Tensor.from(value_float as number, { dtype: 'f32' });
    if (value_floats !== undefined) return Tensor.from(value_floats as number[], { dtype: 'f32' });
    if (value_int !== undefined) return Tensor.from(value_int as number, { dtype: 'i64' });
    if (value_ints !== undefined) return Tensor.from(value_ints as number[], { dtype: 'i64' });
    throw new NotServed('a constant of another kind');
  },
  ConstantOfShape: (n) => {
    const value = n.attributes.value as Tensor | undefined;
    return (value ?? Tensor.from([0])).reshape([]).broadcastTo(list(input(n, 0)));
  },
  Shape: unary((x, n) =>
    Tensor.from(
      x.shape.slice(int(n, 'start', 0), n.attributes.end === undefined ? undefined : int(n, 'end', 0)) as number[],
      { dtype: 'i64' },
    ),
  ),
  Size: unary((x) => Tensor.from(x.size, { dtype: 'i64' })),
  Range: (n) => {
    const [start, end, step] = [0, 1, 2].map((i) => list(input(n, i))[0]);
    const count = Math.max(0, Math.ceil((end - start) / step));
    return Tensor.from(
      Array.from({ length: count }, (_, i) => start + i * step),
      { dtype: 'f64' },
    ).cast(input(n, 0).dtype);
  },
  EyeLike: unary((x, n) => {
    const d = n.attributes.dtype === undefined ? x.dtype : dtypeOf(int(n, 'dtype', 1));
    const ones = x.newFull(x.shape, 1, 'f32');
    const k = int(n, 'k', 0);
    return ones.tril(k).triu(k).cast(d);
  }),
};

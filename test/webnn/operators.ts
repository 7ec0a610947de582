// WebNN operators on our tensors: a table, one entry an operator, composed where we have no row of that name.
import { DTYPE, isFloat, maxInt } from '../../src/base/dtype.js';
import { cat, tensor } from '../../src/tensor/create.js';
import type { Device } from '../../src/tensor/device.js';
import type { Tensor } from '../../src/tensor/tensor.js';
import { TYPES } from './graph.js';
import { gru, gruCell, lstm, lstmCell } from './recurrent.js';
import { averagePool, convolve, convolveTransposed, l2Pool, maxPool } from './windows.js';

/** Tensors, numbers, strings and lists of them: what an operator's arguments resolve to. */
export type Argument = any;
export interface Call {
  readonly args: readonly Argument[];
  readonly options: Readonly<Record<string, Argument>>;
  /** WebNN's own type of each argument, where it is an operand of the graph. */
  readonly declared: readonly (string | undefined)[];
  readonly device: Device;
}
type Operator = (call: Call) => Tensor | readonly Tensor[];

const method = (t: Tensor, name: string): ((...args: unknown[]) => Tensor) =>
  (t as unknown as Record<string, (...a: unknown[]) => Tensor>)[name].bind(t);
/** WebNN's truth values are uint8. */
const asBytes = (t: Tensor): Tensor => (t.dtype === 'bool' ? t.cast('u8') : t);
const unary =
  (name: string): Operator =>
  ({ args: [x] }) =>
    asBytes(method(x, name)());
const binary =
  (name: string): Operator =>
  ({ args: [x, y] }) =>
    asBytes(method(x, name)(y));
const table = (make: (name: string) => Operator, names: Readonly<Record<string, string>>): Record<string, Operator> =>
  Object.fromEntries(Object.entries(names).map(([theirs, ours]) => [theirs, make(ours)]));

/** 16-bit floats are widened for a computation of several steps. */
export const wide = (x: Tensor, f: (x: Tensor) => Tensor): Tensor =>
  x.dtype === 'f16' ? f(x.cast('f32')).cast('f16') : f(x);
const ids = (list: readonly number[], device: Device): Tensor => tensor(BigInt64Array.from(list, BigInt), { device });
const axesOf = (x: Tensor, axes?: readonly number[]): readonly number[] => axes ?? x.shape.map((_, i) => i);

const reduce =
  (f: (x: Tensor, axes: readonly number[], keep: boolean) => Tensor): Operator =>
  ({ args: [x], options: o }) =>
    wide(x, (w) => f(w, axesOf(x, o.axes), o.keepDimensions ?? false)).cast(x.dtype); // its sums keep their dtype
const arg =
  (name: 'argmax' | 'argmin'): Operator =>
  ({ args: [x, axis], options: o }) =>
    x[name](axis, o.keepDimensions ?? false).cast(TYPES[o.outputDataType ?? 'int32']);

/** Negative indices count from the end; those out of range are clamped into it. */
function wrapped(indices: Tensor, n: number): Tensor {
  const i = indices.cast('i64').clamp(-n, n - 1);
  return i.lt(0).where(i.add(n), i);
}
/** Index tuples over the first k dimensions as positions in those dimensions joined. */
function positions(x: Tensor, indices: Tensor): { flat: Tensor; rest: readonly number[]; k: number } {
  const k = indices.shape.at(-1) as number;
  const parts = Array.from({ length: k }, (_, d) =>
    wrapped(indices.narrow(-1, d, 1).squeeze(-1), x.shape[d]).affine(
      x.shape.slice(d + 1, k).reduce((a, b) => a * b, 1),
      0,
    ),
  );
  return { flat: parts.reduce((a, b) => a.add(b)).reshape([-1]), rest: x.shape.slice(k), k };
}
const sizeOf = (s: readonly number[]): number => s.reduce((a, b) => a * b, 1);

const RANGE: Readonly<Record<string, readonly [number, number]>> = {
  int8: [-128, 127],
  uint8: [0, 255],
  int4: [-8, 7],
  uint4: [0, 15],
  int32: [-(2 ** 31), 2 ** 31 - 1],
};
/** A scale or zero point per block, repeated over the block's elements. */
function spread(s: Tensor, shape: readonly number[]): Tensor {
  return s.shape.reduce((t: Tensor, d, i) => {
    const n = shape[shape.length - s.rank + i];
    return d === n || d === 1
      ? t
      : t.indexSelect(
          i,
          ids(
            Array.from({ length: n }, (_, k) => Math.floor((k * d) / n)),
            s.device,
          ),
        );
  }, s);
}
const dequantize: Operator = ({ args: [x, scale, zero] }) => {
  const s = spread(scale, x.shape);
  const wideInt = x.cast('i64');
  const centred = zero ? wideInt.sub(spread(zero.cast('i64'), x.shape)) : wideInt;
  return centred.cast('f32').mul(s.cast('f32')).cast(scale.dtype);
};
const quantize: Operator = ({ args: [x, scale, zero], declared }) => {
  const [lo, up] = RANGE[declared[2] ?? 'uint8'];
  const q = x
    .cast('f32')
    .div(spread(scale, x.shape).cast('f32'))
    .roundEven()
    .cast('i64')
    .add(spread(zero, x.shape).cast('i64'));
  return q.clamp(lo, up).cast(zero.dtype);
};

function normalize(x: Tensor, axes: readonly number[], eps: number): Tensor {
  const centred = axes.length ? x.sub(x.mean(axes, true)) : x.sub(x);
  const spreadOut = axes.length ? centred.sqr().mean(axes, true) : centred;
  return centred.div(spreadOut.affine(1, eps).sqrt());
}
/** A vector (or block) placed on the named axes of a rank. */
function onAxes(t: Tensor, axes: readonly number[], rank: number): Tensor {
  const order = axes.map((_, i) => i).sort((a, b) => axes[a] - axes[b]);
  const sorted = t.permute(order);
  const shape = Array.from({ length: rank }, (_, d) => {
    const at = order.findIndex((i) => axes[i] === d);
    return at < 0 ? 1 : sorted.shape[at];
  });
  return sorted.reshape(shape);
}
const scaled = (y: Tensor, o: Call['options'], axes: readonly number[]): Tensor => {
  const on = (t: Tensor): Tensor => onAxes(t.cast(y.dtype), axes, y.rank);
  const z = o.scale ? y.mul(on(o.scale)) : y;
  return o.bias ? z.add(on(o.bias)) : z;
};

function reflected(n: number, before: number, after: number): number[] {
  return Array.from({ length: n + before + after }, (_, i) => {
    const k = i - before;
    return k < 0 ? -k : k >= n ? 2 * (n - 1) - k : k;
  });
}
const clampTo = (n: number, before: number, after: number): number[] =>
  Array.from({ length: n + before + after }, (_, i) => Math.min(Math.max(i - before, 0), n - 1));
const pad: Operator = ({ args: [x, begin, end], options: o, device }) => {
  if (o.mode === 'reflection' || o.mode === 'edge') {
    const place = o.mode === 'edge' ? clampTo : reflected;
    return x.shape.reduce(
      (t: Tensor, n: number, d: number) =>
        begin[d] + end[d] ? t.indexSelect(d, ids(place(n, begin[d], end[d]), device)) : t,
      x,
    );
  }
  return x.pad(
    x.shape.flatMap((_: number, i: number) => [begin[x.rank - 1 - i], end[x.rank - 1 - i]]),
    Number(o.value ?? 0),
  );
};

const TYPE_LIMITS: Readonly<Record<string, readonly [bigint, bigint]>> = {
  int8: [-128n, 127n],
  uint64: [0n, 2n ** 64n - 1n],
};
/** A bound as the operand's type holds it: fractions are cut off and what lies beyond the type's range is its end. */
function asBound(v: number | bigint, x: Tensor, type: string | undefined): Tensor {
  if (isFloat(x.dtype)) return x.newFull([], Number(v));
  const max = maxInt(x.dtype);
  const [lo, up] = TYPE_LIMITS[type ?? ''] ?? [DTYPE[x.dtype].kind === 'uint' ? 0n : -max - 1n, max];
  const whole = typeof v === 'bigint' ? v : v === Infinity ? up : v === -Infinity ? lo : BigInt(Math.trunc(v));
  const held = whole < lo ? lo : whole > up ? up : whole;
  return tensor([held], { dtype: x.dtype, shape: [], device: x.device });
}
const clamp: Operator = ({ args: [x], options: o, declared }) => {
  const given = (name: string): Tensor | undefined =>
    o[name] === undefined ? undefined : asBound(o[name], x, declared[0]);
  const [lo, up] = [given('minValue'), given('maxValue')];
  const low = lo ? x.lt(lo).where(lo, x) : x;
  return up ? low.gt(up).where(up, low) : low;
};

const resample: Operator = ({ args: [x], options: o }) => {
  const axes: number[] = o.axes ?? [2, 3];
  const order = [...x.shape.map((_: number, i: number) => i).filter((i: number) => !axes.includes(i)), ...axes];
  const moved = x.permute(order);
  const size = o.sizes ?? axes.map((a, i) => Math.floor(x.shape[a] * (o.scales?.[i] ?? 1)));
  const y = o.mode === 'linear' ? moved.upsampleBilinear2d(size) : moved.upsampleNearest2d(size);
  return y.permute(order.map((_: number, i: number) => order.indexOf(i)));
};

const sliceOf: Operator = ({ args: [x, starts, sizes], options: o }) =>
  starts.reduce((t: Tensor, s: number, d: number) => t.slice(d, s, s + sizes[d], o.strides?.[d] ?? 1), x);

export const OPERATORS: Readonly<Record<string, Operator>> = {
  ...table(unary, {
    abs: 'abs',
    ceil: 'ceil',
    cos: 'cos',
    erf: 'erf',
    exp: 'exp',
    floor: 'floor',
    identity: 'copy',
    log: 'log',
    neg: 'neg',
    reciprocal: 'recip',
    sin: 'sin',
    sqrt: 'sqrt',
    tan: 'tan',
    tanh: 'tanh',
    sigmoid: 'sigmoid',
    softplus: 'softplus',
    softsign: 'softsign',
    relu: 'relu',
    gelu: 'geluErf',
    hardSwish: 'hardSwish',
    roundEven: 'roundEven',
    sign: 'sign',
    logicalNot: 'logicalNot',
    isNaN: 'isNan',
    isInfinite: 'isInf',
  }),
  ...table(binary, {
    add: 'add',
    sub: 'sub',
    mul: 'mul',
    div: 'div',
    max: 'maximum',
    min: 'minimum',
    pow: 'pow',
    matmul: 'matmul',
    equal: 'eq',
    notEqual: 'ne',
    greater: 'gt',
    greaterOrEqual: 'ge',
    lesser: 'lt',
    lesserOrEqual: 'le',
    logicalAnd: 'logicalAnd',
    logicalOr: 'logicalOr',
    logicalXor: 'logicalXor',
  }),
  argMax: arg('argmax'),
  argMin: arg('argmin'),
  averagePool2d: averagePool,
  l2Pool2d: l2Pool,
  maxPool2d: maxPool,
  conv2d: convolve,
  convTranspose2d: convolveTransposed,
  gru,
  gruCell,
  lstm,
  lstmCell,
  batchNormalization: ({ args: [x, mean, variance], options: o }) => {
    const axis = o.axis ?? 1;
    return wide(x, (w) => {
      const [m, v] = [mean, variance].map((t: Tensor) => onAxes(t.cast(w.dtype), [axis], w.rank));
      return scaled(w.sub(m).div(v.affine(1, o.epsilon ?? 1e-5).sqrt()), o, [axis]);
    });
  },
  cast: ({ args: [x, type] }) => (type === 'int8' ? x.cast('i64').cast('i16') : x.cast(TYPES[type])),
  clamp,
  concat: ({ args: [list, axis] }) => cat(list, axis),
  cumulativeSum: ({ args: [x, axis], options: o }) =>
    x.cumsum(axis, { exclusive: o.exclusive ?? false, reverse: o.reversed ?? false }).cast(x.dtype),
  dequantizeLinear: dequantize,
  quantizeLinear: quantize,
  elu: ({ args: [x], options: o }) => x.elu(o.alpha ?? 1),
  expand: ({ args: [x, shape] }) => x.broadcastTo(shape),
  gather: ({ args: [x, indices], options: o }) => {
    const axis = o.axis ?? 0;
    const picked = x.indexSelect(axis, wrapped(indices, x.shape[axis]).reshape([-1]));
    return picked.reshape([...x.shape.slice(0, axis), ...indices.shape, ...x.shape.slice(axis + 1)]);
  },
  gatherElements: ({ args: [x, indices], options: o }) => x.gather(o.axis ?? 0, wrapped(indices, x.shape[o.axis ?? 0])),
  gatherND: ({ args: [x, indices] }) => {
    const { flat, rest, k } = positions(x, indices);
    return x
      .reshape([sizeOf(x.shape.slice(0, k)), sizeOf(rest)])
      .indexSelect(0, flat)
      .reshape([...indices.shape.slice(0, -1), ...rest]);
  },
  gemm: ({ args: [a, b], options: o }) => {
    const product = (o.aTranspose ? a.t() : a)
      .cast('f32')
      .matmul((o.bTranspose ? b.t() : b).cast('f32'))
      .affine(o.alpha ?? 1, 0);
    return (o.c ? product.add(o.c.cast('f32').affine(o.beta ?? 1, 0)) : product).cast(a.dtype);
  },
  hardSigmoid: ({ args: [x], options: o }) => wide(x, (w) => w.affine(o.alpha ?? 0.2, o.beta ?? 0.5).clamp(0, 1)),
  instanceNormalization: ({ args: [x], options: o }) => {
    const [channel, axes] = o.layout === 'nhwc' ? [3, [1, 2]] : [1, [2, 3]];
    return wide(x, (w) => scaled(normalize(w, axes, o.epsilon ?? 1e-5), o, [channel]));
  },
  layerNormalization: ({ args: [x], options: o }) => {
    const axes = o.axes ?? x.shape.map((_: number, i: number) => i).slice(1);
    return wide(x, (w) => scaled(normalize(w, axes, o.epsilon ?? 1e-5), o, axes));
  },
  leakyRelu: ({ args: [x], options: o }) => x.leakyRelu(o.alpha ?? 0.01),
  linear: ({ args: [x], options: o }) => x.affine(o.alpha ?? 1, o.beta ?? 0),
  pad,
  prelu: ({ args: [x, slope] }) => x.lt(0).where(x.mul(slope), x),
  reduceL1: reduce((x, a, k) => x.abs().sum(a, k)),
  reduceL2: reduce((x, a, k) => x.sqr().sum(a, k).sqrt()),
  reduceLogSum: reduce((x, a, k) => x.sum(a, k).log()),
  reduceLogSumExp: reduce((x, a, k) => x.logSumExp(a, k)),
  reduceMax: reduce((x, a, k) => x.max(a, k)),
  reduceMean: reduce((x, a, k) => x.mean(a, k)),
  reduceMin: reduce((x, a, k) => x.min(a, k)),
  reduceProduct: reduce((x, a, k) => x.prod(a, k)),
  reduceSum: reduce((x, a, k) => x.sum(a, k)),
  reduceSumSquare: reduce((x, a, k) => x.sqr().sum(a, k)),
  resample2d: resample,
  reshape: ({ args: [x, shape] }) => x.reshape(shape),
  reverse: ({ args: [x], options: o }) => x.flip(axesOf(x, o.axes)),
  scatterElements: ({ args: [x, indices, updates], options: o }) =>
    x.scatter(o.axis ?? 0, wrapped(indices, x.shape[o.axis ?? 0]), updates),
  scatterND: ({ args: [x, indices, updates] }) => {
    const { flat, rest, k } = positions(x, indices);
    const table = x.reshape([sizeOf(x.shape.slice(0, k)), sizeOf(rest)]);
    const where = flat.unsqueeze(1).broadcastTo([flat.size, sizeOf(rest)]);
    return table.scatter(0, where, updates.reshape([flat.size, sizeOf(rest)])).reshape(x.shape);
  },
  slice: sliceOf,
  softmax: ({ args: [x, axis] }) => x.softmax(axis ?? -1),
  split: ({ args: [x, splits], options: o }) =>
    x.split(typeof splits === 'number' ? x.shape[o.axis ?? 0] / splits : splits, o.axis ?? 0),
  tile: ({ args: [x, repetitions] }) => x.repeat(repetitions),
  transpose: ({ args: [x], options: o }) =>
    x.permute(o.permutation ?? x.shape.map((_: number, i: number) => x.rank - 1 - i)),
  triangular: ({ args: [x], options: o }) => ((o.upper ?? true) ? x.triu(o.diagonal ?? 0) : x.tril(o.diagonal ?? 0)),
  where: ({ args: [c, t, f] }) => c.where(t, f),
};

// What a step of training does to long vectors in one pass. Some change their operands, so none is a method of tensors
// and they stand in no table; engines without them take the ops they are made of (src/tensor/training.ts).
import { type DType, INTS, REALS } from '../base/dtype.js';
import { DTypeError, IndexError, ShapeError } from '../base/errors.js';
import { formatShape } from '../base/shape.js';
import { numbers } from './kernel-row.js';
import { secondGrad } from './matmul.js';
import { type GradContext, type Grads, type KernelRow, type RefTensor, type Sig, ulps } from './op.js';
import { besideFine, type BesideParams, besideUniform } from './random.js';
import { RECURRENT_ROWS } from './recurrent.js';

declare module './op.js' {
  interface KernelFacts {
    training: { readonly kind: 'losses' | 'crossEntropy' | 'slopes' | 'nll' | 'squares' | 'adam' | 'swiglu' };
  }
}

export interface LossParams extends Record<string, unknown> {
  /** The class number that does not count. */
  readonly ignore: number;
  readonly smoothing: number;
  /** The gradient of the losses' sum takes the place of the logits. */
  readonly grad: boolean;
}
/** What becomes of losses by class number. */
export interface ClassParams extends Record<string, unknown> {
  readonly reduction: 'none' | 'sum' | 'mean';
  /** The class number that does not count. */
  readonly ignore: number;
  readonly smoothing: number;
}
/** A step is p * shrink - rate * m / (sqrt(v) + eps). */
export interface AdamRates {
  readonly beta1: number;
  readonly beta2: number;
  readonly shrink: number;
  readonly rate: number;
  readonly eps: number;
}
export interface AdamParams extends AdamRates, Record<string, unknown> {
  /** Whether gradients are multiplied by a number in device memory, and whether p is copied in another dtype. */
  readonly scaled: boolean;
  readonly copied: boolean;
  /** Whether shrink, rate and eps are read from device memory in the place of those given. */
  readonly fed: boolean;
}
/** Sums that a vector's squares are left in, on any device. */
export const SQUARE_SUMS = 1024;

const SMALL: readonly DType[] = ['f32', 'f16', 'bf16'];
const IN_BACKWARD = 'it is part of a backward pass';
const common = {
  family: 'training' as const,
  mixed: true as const,
  dtypes: SMALL,
  ulp: ulps(4),
  candle: { none: 'composed of several ops there' },
  args: (): never => {
    throw new DTypeError('training: it is not a method');
  },
  errors: () => [],
};
function want(op: string, name: string, { shape, dtype }: Sig, rank: number, dtypes: readonly DType[]): void {
  if (shape.length !== rank) throw new ShapeError(`${op}: ${name} ${formatShape(shape)} must have rank ${rank}`);
  if (!dtypes.includes(dtype)) throw new DTypeError(`${op}: ${name} is ${dtype}; it takes ${dtypes.join(', ')}`);
}

/** x (m, k), y (k, n) and what is added before a sum is rounded: a bias (n) for every row, or a sum (m, n). */
const productPlus = (name: string, plus: 'bias' | 'sum'): KernelRow<{}> => ({
  ...common,
  name,
  family: 'matmul',
  formula: `x y + ${plus}`,
  infer: (inputs: readonly Sig[]): readonly Sig[] => {
    const [x, y, added] = inputs;
    want(name, 'x', x, 2, SMALL);
    const [[m, k], n] = [x.shape, y.shape[1]];
    for (const [what, t, shape] of [['y', y, [k, n]] as const, [plus, added, plus === 'bias' ? [n] : [m, n]] as const])
      if (t.dtype !== x.dtype || formatShape(t.shape) !== formatShape(shape))
        throw new ShapeError(
          `${name}: ${what} ${t.dtype} ${formatShape(t.shape)} must be ${x.dtype} ${formatShape(shape)}`,
        );
    return [{ shape: [m, n], dtype: x.dtype }];
  },
  reference: ([x, y, added]: readonly RefTensor[], [out]: readonly RefTensor[]): void => {
    const [[m, k], n] = [x.shape, y.shape[1]];
    for (let i = 0; i < m; i++)
      for (let j = 0; j < n; j++) {
        let sum = numbers(added)[plus === 'bias' ? j : i * n + j];
        for (let c = 0; c < k; c++) sum += numbers(x)[i * k + c] * numbers(y)[c * n + j];
        out.data[i * n + j] = sum;
      }
  },
  grad: ({ inputs: [x, y], grad, needs, placed }: GradContext): Grads => [
    needs(0) ? grad.bmm(y.transpose(-1, -2)) : undefined,
    needs(1) ? placed(1, () => secondGrad(x, y, grad)) : undefined,
    needs(2) ? (plus === 'bias' ? grad.sum([0], false) : grad) : undefined,
  ],
  gradReads: [0, 1],
  samples: () => [
    { inputs: [{ shape: [9, 8] }, { shape: [8, 16] }, { shape: plus === 'bias' ? [16] : [9, 16] }], params: {} },
  ],
});
export const biasedRow = productPlus('biasedProduct', 'bias');
/** Run by libraries alone. */
export const addedRow = productPlus('addedProduct', 'sum');

/**
 * x and the gradient (..., n) and a weight (n) to the gradients of x, of the weight and, with `bias`, of a bias; with
 * `plus` a fourth operand like x is added to that of x.
 */
const normGrads = (kind: 'layer' | 'rms'): KernelRow<any> => ({
  ...common,
  name: `${kind}NormGrads`,
  family: 'norm',
  noGrad: IN_BACKWARD,
  kernel: { kind, backward: true, weights: true },
  formula: 'all gradients of a norm',
  infer: ([x, , weight]: readonly Sig[], { bias }: { bias: boolean }): readonly Sig[] => [
    x,
    weight,
    ...(bias ? [weight] : []),
  ],
  reference: (
    [x, grad, weight, plus]: readonly RefTensor[],
    outputs: readonly RefTensor[],
    { eps }: { eps: number },
  ): void => {
    const n = weight.shape[0];
    const [dx, ...sums] = outputs;
    for (const t of sums) t.data.forEach((_, i) => (t.data[i] = 0));
    for (let at = 0; at < numbers(x).length; at += n) {
      const row = numbers(x).slice(at, at + n);
      const mean = kind === 'layer' ? row.reduce((a, b) => a + b, 0) / n : 0;
      const r = 1 / Math.sqrt(row.reduce((a, b) => a + (b - mean) ** 2, 0) / n + eps);
      const hat = row.map((v) => (v - mean) * r);
      const g = hat.map((_, i) => numbers(grad)[at + i] * numbers(weight)[i]);
      const [m, along] = [
        kind === 'layer' ? g.reduce((a, b) => a + b, 0) / n : 0,
        g.reduce((a, b, i) => a + b * hat[i], 0) / n,
      ];
      hat.forEach((h, i) => {
        dx.data[at + i] = r * (g[i] - m - h * along) + (plus ? numbers(plus)[at + i] : 0);
        [h, 1].forEach((by, k) => sums[k] && ((sums[k].data as number[])[i] += numbers(grad)[at + i] * by));
      });
    }
  },
  samples: () => [
    {
      inputs: [{ shape: [9, 16] }, { shape: [9, 16] }, { shape: [16] }],
      params: { eps: 1e-5, weight: true, bias: kind === 'layer' },
    },
    {
      inputs: [{ shape: [3, 7] }, { shape: [3, 7] }, { shape: [7] }, { shape: [3, 7] }],
      params: { eps: 1e-5, weight: true, bias: kind === 'layer', plus: true },
    },
  ],
});
export const NORM_GRADS = { layer: normGrads('layer'), rms: normGrads('rms') } as const;

/** x (rows, classes) and ids (rows) to losses (rows), f32; with `grad` x becomes their gradient. */
export const lossRow: KernelRow<any> = {
  ...common,
  name: 'classLosses',
  kernel: { kind: 'losses' },
  formula: 'log(sum(exp(x))) - x[id] by row',
  noGrad: IN_BACKWARD,
  samples: () => [
    {
      inputs: [{ shape: [3, 16] }, { shape: [3], dtype: 'i64' }],
      params: { ignore: -100, smoothing: 0.1, grad: true },
    },
  ],
  infer: ([x, ids]: readonly Sig[], { grad }: LossParams): readonly Sig[] => {
    want('classLosses', 'logits', x, 2, SMALL);
    want('classLosses', 'ids', ids, 1, ['i64']);
    if (ids.shape[0] !== x.shape[0])
      throw new ShapeError(`classLosses: ${ids.shape[0]} ids for the rows of ${formatShape(x.shape)}`);
    return [{ shape: [x.shape[0]], dtype: 'f32' }, ...(grad ? [x] : [])];
  },
  reference: (
    [x, ids]: readonly RefTensor[],
    [losses, into]: readonly RefTensor[],
    { ignore, smoothing, grad }: LossParams,
  ): void => {
    const [rows, n] = x.shape;
    for (let r = 0; r < rows; r++) {
      const id = Number(ids.data[r]);
      const counts = id !== ignore;
      if (counts && (id < 0 || id >= n)) throw new IndexError(`classLosses: id ${id} is none of ${n} classes`);
      const row = numbers(x).slice(r * n, (r + 1) * n);
      const top = row.reduce((a, b) => Math.max(a, b), -Infinity);
      const lse = top + Math.log(row.reduce((a, b) => a + Math.exp(b - top), 0));
      const even = row.reduce((a, b) => a + b, 0) / n;
      losses.data[r] = counts ? (1 - smoothing) * (lse - row[id]) + (smoothing && smoothing * (lse - even)) : 0;
      if (grad)
        row.forEach((v, c) => {
          const g = Math.exp(v - lse) - smoothing / n - (c === id ? 1 - smoothing : 0);
          into.data[r * n + c] = counts ? g : 0;
        });
    }
  },
};

function wantClasses(op: string, [x, ids, weight]: readonly Sig[]): void {
  want(op, 'x', x, 2, SMALL);
  want(op, 'ids', ids, 1, INTS);
  if (ids.shape[0] !== x.shape[0])
    throw new ShapeError(`${op}: ${ids.shape[0]} ids for the rows of ${formatShape(x.shape)}`);
  if (!weight) return;
  want(op, 'weight', weight, 1, REALS);
  if (weight.shape[0] !== x.shape[1])
    throw new ShapeError(`${op}: ${weight.shape[0]} weights for the classes of ${formatShape(x.shape)}`);
}
/** Weights of rows by their classes; 0 where a row does not count. */
function rowWeights(op: string, [x, ids, weight]: readonly RefTensor[], ignore: number): number[] {
  return ids.data.map((value) => {
    const id = Number(value);
    if (id === ignore) return 0;
    if (id < 0 || id >= x.shape[1]) throw new IndexError(`${op}: id ${id} is none of ${x.shape[1]} classes`);
    return weight ? numbers(weight)[id] : 1;
  });
}
const sumOf = (v: readonly number[]): number => v.reduce((a, b) => a + b, 0);
/** ln(sum(exp)) of each row. */
const logSums = (x: RefTensor): number[] =>
  Array.from({ length: x.shape[0] }, (_, r) => {
    const row = numbers(x).slice(r * x.shape[1], (r + 1) * x.shape[1]);
    const top = row.reduce((a, b) => Math.max(a, b), -Infinity);
    return top + Math.log(sumOf(row.map((v) => Math.exp(v - top))));
  });
const REDUCED: readonly ClassParams[] = (['mean', 'sum', 'none'] as const).map((reduction) => ({
  ...{ reduction, ignore: 2, smoothing: reduction === 'none' ? 0.1 : 0 },
}));
const CLASS_IDS = { shape: [3], dtype: 'i64' } as const;

/**
 * Logits (rows, classes), class numbers (rows) and perhaps a weight a class to the cross-entropy: its mean or sum, or
 * that of each row; besides the sum of the rows' weights and, for the gradient, ln(sum(exp(x))) of each row.
 */
export const crossEntropyRow: KernelRow<any> = {
  ...common,
  name: 'crossEntropyLoss',
  serves: 'crossEntropy',
  kernel: { kind: 'crossEntropy' },
  formula: 'log(sum(exp(x))) - x[id], reduced',
  samples: () =>
    REDUCED.map((params) => ({
      inputs: [{ shape: [3, 16] }, CLASS_IDS, ...(params.reduction === 'none' ? [] : [{ shape: [16] }])],
      params,
    })),
  infer: (inputs: readonly Sig[], { reduction }: ClassParams): readonly Sig[] => {
    wantClasses('crossEntropy', inputs);
    const lses: Sig = { shape: [inputs[0].shape[0]], dtype: 'f32' };
    return [reduction === 'none' ? lses : { shape: [], dtype: 'f32' }, { shape: [], dtype: 'f32' }, lses];
  },
  reference: (
    inputs: readonly RefTensor[],
    [out, total, lses]: readonly RefTensor[],
    { reduction, ignore, smoothing }: ClassParams,
  ): void => {
    const [x, ids] = inputs;
    const n = x.shape[1];
    const weights = rowWeights('crossEntropy', inputs, ignore);
    const logs = logSums(x);
    const losses = logs.map((lse, r) => {
      const row = numbers(x).slice(r * n, (r + 1) * n);
      if (Number(ids.data[r]) === ignore) return 0;
      return (1 - smoothing) * (lse - row[Number(ids.data[r])]) + (smoothing && smoothing * (lse - sumOf(row) / n));
    });
    logs.forEach((lse, r) => (lses.data[r] = lse));
    total.data[0] = reduction === 'none' ? 1 : sumOf(weights);
    if (reduction === 'none') losses.forEach((v, r) => (out.data[r] = v));
    else {
      const sum = sumOf(losses.map((v, r) => v && v * weights[r]));
      out.data[0] = reduction === 'mean' ? sum / sumOf(weights) : sum;
    }
  },
};
/**
 * The gradient of its logits: they, class numbers, ln(sum(exp(x))), the sum of weights, the result's gradient, weights.
 */
export const classSlopesRow: KernelRow<any> = {
  ...common,
  name: 'classSlopes',
  serves: 'crossEntropy',
  kernel: { kind: 'slopes' },
  formula: '(softmax(x) - [id]) * grad by row',
  noGrad: IN_BACKWARD,
  samples: () =>
    REDUCED.map((params) => ({
      inputs: [
        ...[{ shape: [3, 16] }, CLASS_IDS, { shape: [3], dtype: 'f32' as const }, { shape: [], dtype: 'f32' as const }],
        { shape: params.reduction === 'none' ? [3] : [], dtype: 'f32' as const },
        ...(params.reduction === 'none' ? [] : [{ shape: [16] }]),
      ],
      params,
    })),
  infer: ([x, ids, lses, total, grad, weight]: readonly Sig[], { reduction }: ClassParams): readonly Sig[] => {
    wantClasses('crossEntropy', weight ? [x, ids, weight] : [x, ids]);
    want('crossEntropy', 'lses', lses, 1, ['f32']);
    want('crossEntropy', 'total', total, 0, ['f32']);
    want('crossEntropy', 'grad', grad, reduction === 'none' ? 1 : 0, ['f32']);
    return [x];
  },
  reference: (
    [x, ids, lses, total, grad, weight]: readonly RefTensor[],
    [out]: readonly RefTensor[],
    { reduction, ignore, smoothing }: ClassParams,
  ): void => {
    const n = x.shape[1];
    rowWeights('crossEntropy', weight ? [x, ids, weight] : [x, ids], ignore).forEach((w, r) => {
      const id = Number(ids.data[r]);
      const g = numbers(grad)[reduction === 'none' ? r : 0] / (reduction === 'mean' ? numbers(total)[0] : 1);
      for (let c = 0; c < n; c++) {
        const slope = Math.exp(numbers(x)[r * n + c] - numbers(lses)[r]) - smoothing / n;
        out.data[r * n + c] = id === ignore ? 0 : (slope - (c === id ? 1 - smoothing : 0)) * g * w;
      }
    });
  },
};
/**
 * Log-probabilities (rows, classes), class numbers and perhaps weights to the sum or mean of -x[id], and of weights.
 */
export const nllRow: KernelRow<any> = {
  ...common,
  name: 'nllLoss',
  serves: 'nll',
  kernel: { kind: 'nll' },
  formula: '-x[id], reduced',
  noGrad: 'it stands for its ops where no gradient is recorded',
  samples: () =>
    REDUCED.slice(0, 2).map((params, i) => ({
      inputs: [{ shape: [3, 16] }, CLASS_IDS, ...(i === 0 ? [] : [{ shape: [16] }])],
      params,
    })),
  infer: (inputs: readonly Sig[]): readonly Sig[] => {
    wantClasses('nll', inputs);
    return [
      { shape: [], dtype: 'f32' },
      { shape: [], dtype: 'f32' },
    ];
  },
  reference: (
    inputs: readonly RefTensor[],
    [out, total]: readonly RefTensor[],
    { reduction, ignore }: ClassParams,
  ): void => {
    const [x, ids] = inputs;
    const weights = rowWeights('nll', inputs, ignore);
    const each = weights.map((w, r) => {
      const id = Number(ids.data[r]);
      return id === ignore ? 0 : -numbers(x)[r * x.shape[1] + id] * w;
    });
    total.data[0] = sumOf(weights);
    out.data[0] = reduction === 'mean' ? sumOf(each) / sumOf(weights) : sumOf(each);
  },
};

/** x (rows, 2 n) and the gradient (rows, n) of silu(a) * b, a and b the halves of a row, to the gradient of x. */
export const swigluGradRow: KernelRow<any> = {
  ...common,
  name: 'swigluGrad',
  kernel: { kind: 'swiglu' },
  formula: "[silu'(a) b grad | silu(a) grad] by row",
  noGrad: IN_BACKWARD,
  samples: () => [
    { inputs: [{ shape: [3, 32] }, { shape: [3, 16] }], params: {} },
    { inputs: [{ shape: [2, 6] }, { shape: [2, 3] }], params: {} },
  ],
  infer: ([x, grad]: readonly Sig[]): readonly Sig[] => {
    want('swigluGrad', 'x', x, 2, SMALL);
    if (grad.dtype !== x.dtype || formatShape(grad.shape) !== formatShape([x.shape[0], x.shape[1] / 2]))
      throw new ShapeError(
        `swigluGrad: ${grad.dtype} ${formatShape(grad.shape)} must be half as wide as ` +
          `${x.dtype} ${formatShape(x.shape)}`,
      );
    return [x];
  },
  reference: ([x, grad]: readonly RefTensor[], [out]: readonly RefTensor[]): void => {
    const n = grad.shape[1];
    numbers(grad).forEach((g, i) => {
      const at = Math.floor(i / n) * 2 * n + (i % n);
      const [a, b] = [numbers(x)[at], numbers(x)[at + n]];
      const s = 1 / (1 + Math.exp(-a));
      out.data[at] = s * (1 + a * (1 - s)) * b * g;
      out.data[at + n] = a * s * g;
    });
  },
};

/** x (n) to sums of its squares, f32 (SQUARE_SUMS): which of them an element joins is the device's matter. */
export const squaresRow: KernelRow<any> = {
  ...common,
  name: 'squareSums',
  kernel: { kind: 'squares' },
  formula: 'sums of x^2',
  noGrad: IN_BACKWARD,
  samples: () => [{ inputs: [{ shape: [40] }], params: {} }],
  infer: ([x]: readonly Sig[]): readonly Sig[] => {
    want('squareSums', 'x', x, 1, SMALL);
    return [{ shape: [SQUARE_SUMS], dtype: 'f32' }];
  },
  reference: ([x]: readonly RefTensor[], [out]: readonly RefTensor[]): void => {
    for (let i = 0; i < SQUARE_SUMS; i++) out.data[i] = 0;
    numbers(x).forEach((v, i) => ((out.data as number[])[i % SQUARE_SUMS] += v * v));
  },
};

/**
 * p, m, v (n), f32, gradients (n) and what is named by `scaled`, `fed`, `copied`: p, m, v and the copy change in
 * place.
 */
export const adamRow: KernelRow<any> = {
  ...common,
  name: 'adamInPlace',
  kernel: { kind: 'adam' },
  formula: 'p * shrink - rate * m / (sqrt(v) + eps), in place, with both averages',
  noGrad: IN_BACKWARD,
  samples: () => [
    {
      inputs: [{ shape: [9] }, { shape: [9] }, { shape: [9] }, { shape: [9] }],
      params: { beta1: 0.5, beta2: 0.5, shrink: 1, rate: 0.25, eps: 0.125, scaled: false, copied: false, fed: false },
    },
  ],
  infer: (inputs: readonly Sig[], { scaled, copied, fed }: AdamParams): readonly Sig[] => {
    const [p, m, v, grad, ...rest] = inputs;
    for (const [name, t] of [['p', p] as const, ['m', m] as const, ['v', v] as const])
      want('adamInPlace', name, t, 1, ['f32']);
    want('adamInPlace', 'gradient', grad, 1, SMALL);
    const scale = scaled ? rest[0] : undefined;
    const rates = fed ? rest[scaled ? 1 : 0] : undefined;
    const copy = copied ? rest[rest.length - 1] : undefined;
    if (scale) want('adamInPlace', 'scale', scale, 0, ['f32']);
    if (rates) want('adamInPlace', 'rates', rates, 1, ['f32']);
    if (copy) want('adamInPlace', 'copy', copy, 1, ['f16', 'bf16']);
    for (const t of [m, v, grad, copy])
      if (t && t.shape[0] !== p.shape[0])
        throw new ShapeError(`adamInPlace: ${formatShape(t.shape)} beside parameters ${formatShape(p.shape)}`);
    return [p, m, v, ...(copy ? [copy] : [])];
  },
  reference: (inputs: readonly RefTensor[], outputs: readonly RefTensor[], o: AdamParams): void => {
    const [p, m, v, grad, ...rest] = inputs.map(numbers);
    const scale = rest[0];
    const [shrink, rate, eps] = o.fed ? rest[o.scaled ? 1 : 0] : [o.shrink, o.rate, o.eps];
    outputs[0].data.forEach((_, i) => {
      const g = grad[i] * (o.scaled ? scale[0] : 1);
      const [average, square] = [o.beta1 * m[i] + (1 - o.beta1) * g, o.beta2 * v[i] + (1 - o.beta2) * g * g];
      const next = p[i] * shrink - (rate * average) / (Math.sqrt(square) + eps);
      [next, average, square, next].forEach((x, k) => outputs[k] && (outputs[k].data[i] = x));
    });
  },
};

const BESIDE: BesideParams = { seed: 42n, offset: 0n, p: 0.25 };
/** x with elements left out by the numbers of the uniform stream, which nobody keeps: the gradient draws them again. */
export const dropoutRow: KernelRow<any> = {
  ...common,
  name: 'droppedOut',
  serves: 'dropout',
  family: 'random',
  kernel: { distribution: 'dropout' },
  dtypes: REALS,
  formula: 'x / (1 - p) with probability 1 - p, else 0',
  samples: () => [{ inputs: [{ shape: [7, 5] }], params: BESIDE }],
  infer: ([x]: readonly Sig[]): readonly Sig[] => [x],
  reference: ([x]: readonly RefTensor[], [out]: readonly RefTensor[], params: BesideParams): void =>
    besideUniform(x.shape, params, (u, i) => {
      out.data[i] = u >= Math.fround(params.p) ? numbers(x)[i] / (1 - params.p) : 0;
    }),
};
/** 1 with the probability that each element gives, else 0; and whether one is no probability. */
export const bernoulliRow: KernelRow<any> = {
  ...common,
  name: 'happens',
  serves: 'bernoulli',
  family: 'random',
  kernel: { distribution: 'bernoulli' },
  formula: '1 with probability x, else 0',
  noGrad: 'what is drawn does not depend on x smoothly',
  samples: () => [{ inputs: [{ shape: [7, 5], domain: [0, 1] }], params: BESIDE }],
  infer: ([x]: readonly Sig[]): readonly Sig[] => [x, { shape: [], dtype: 'u32' }],
  reference: ([x]: readonly RefTensor[], [out, wrong]: readonly RefTensor[], params: BesideParams): void => {
    besideUniform(x.shape, params, (u, i) => (out.data[i] = u < numbers(x)[i] ? 1 : 0));
    wrong.data[0] = numbers(x).every((v) => v >= 0 && v <= 1) ? 0 : 1;
  },
};

/** A draw from each row of weights: whose clock, of that rate, rings first; and whether a row is none of weights. */
export const ringsRow: KernelRow<any> = {
  ...common,
  name: 'firstToRing',
  serves: 'multinomial',
  family: 'random',
  kernel: { distribution: 'rings' },
  dtypes: REALS,
  formula: 'the least of -ln(1 - u) / x by row',
  noGrad: 'the result is an index',
  samples: () => [{ inputs: [{ shape: [3, 35], domain: [0, 1] }], params: BESIDE }],
  infer: ([x]: readonly Sig[]): readonly Sig[] => [
    { shape: [x.shape[0]], dtype: 'i64' },
    { shape: [], dtype: 'u32' },
  ],
  reference: ([x]: readonly RefTensor[], [out, wrong]: readonly RefTensor[], params: BesideParams): void => {
    const n = x.shape[1];
    const best = new Array<number>(x.shape[0]).fill(Infinity);
    out.data.fill(-1n);
    besideFine(x.shape, params, (u, i) => {
      const [row, w] = [Math.floor(i / n), numbers(x)[i]];
      const rings = w > 0 ? -Math.log(1 - u) / w : Infinity;
      if (rings < best[row]) [best[row], out.data[row]] = [rings, BigInt(i % n)];
    });
    wrong.data[0] = numbers(x).every((v) => v >= 0 && v < Infinity) && !out.data.includes(-1n) ? 0 : 1;
  },
};

export const TRAINING_ROWS: readonly KernelRow<any>[] = [
  crossEntropyRow,
  classSlopesRow,
  nllRow,
  biasedRow,
  NORM_GRADS.layer,
  NORM_GRADS.rms,
  lossRow,
  swigluGradRow,
  squaresRow,
  adamRow,
  dropoutRow,
  bernoulliRow,
  ringsRow,
  ...RECURRENT_ROWS,
];

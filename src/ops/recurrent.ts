// Steps of recurrent nets behind their products, and the same backwards: parts of a pass over a sequence
// (src/tensor/recurrent.ts), no methods of tensors. Engines without them take the ops that a step is made of.
import type { DType } from '../base/dtype.js';
import { DTypeError, ShapeError } from '../base/errors.js';
import { formatShape } from '../base/shape.js';
import { numbers } from './kernel-row.js';
import { type InputSpec, type KernelRow, type RefTensor, type Sample, type Sig, ulps } from './op.js';

declare module './op.js' {
  interface KernelFacts {
    recurrent: { readonly back: boolean };
  }
}

/** Kinds of nets; a plain one bends by tanh or relu. */
export const RECURRENT_KINDS = ['lstm', 'gru', 'tanh', 'relu'] as const;
export type RecurrentKind = (typeof RECURRENT_KINDS)[number];
export interface RecurrentParams extends Record<string, unknown> {
  readonly kind: RecurrentKind;
  /** Whether what gradients read is kept: the last result of a step. */
  readonly kept: boolean;
}
/** Gates that both products have, and numbers of the state that each step keeps for gradients. */
export const GATES: Readonly<Record<RecurrentKind, number>> = { lstm: 4, gru: 3, tanh: 1, relu: 1 };
export const KEPT_PARTS: Readonly<Record<RecurrentKind, number>> = { lstm: 4, gru: 4, tanh: 0, relu: 0 };

/** A matrix (batch, width state): an operand's or result's name, and its width. */
type Part = readonly [name: string, width: number];
interface Parts {
  readonly inputs: readonly Part[];
  readonly outputs: readonly Part[];
}
/** What a step takes and gives: kernels/recurrent.hip says what each is. */
const STEP: Readonly<Record<RecurrentKind, Parts>> = {
  lstm: {
    inputs: [
      ['x', 4],
      ['y', 4],
      ['c', 1],
    ],
    outputs: [
      ['h', 1],
      ['now', 1],
      ['next', 1],
      ['kept', 4],
    ],
  },
  gru: {
    inputs: [
      ['x', 3],
      ['y', 3],
      ['bias', 3],
      ['before', 1],
    ],
    outputs: [
      ['h', 1],
      ['now', 1],
      ['kept', 4],
    ],
  },
  tanh: {
    inputs: [
      ['x', 1],
      ['y', 1],
    ],
    outputs: [
      ['h', 1],
      ['now', 1],
    ],
  },
  relu: {
    inputs: [
      ['x', 1],
      ['y', 1],
    ],
    outputs: [
      ['h', 1],
      ['now', 1],
    ],
  },
};
const PLAIN_BACK: Parts = {
  inputs: [
    ['h', 1],
    ['given', 1],
    ['later', 1],
  ],
  outputs: [
    ['dx', 1],
    ['now', 1],
  ],
};
const BACK: Readonly<Record<RecurrentKind, Parts>> = {
  lstm: {
    inputs: [
      ['kept', 4],
      ['before', 1],
      ['c', 1],
      ['given', 1],
      ['cells', 1],
      ['later', 1],
      ['carry', 1],
    ],
    outputs: [
      ['next', 1],
      ['dx', 4],
      ['now', 4],
    ],
  },
  gru: {
    inputs: [
      ['kept', 4],
      ['before', 1],
      ['given', 1],
      ['later', 1],
      ['carry', 1],
    ],
    outputs: [
      ['next', 1],
      ['dx', 3],
      ['dy', 3],
      ['now', 3],
    ],
  },
  tanh: PLAIN_BACK,
  relu: PLAIN_BACK,
};
/** Names of a row's operands and results, in their order. */
export function recurrentParts(back: boolean, { kind, kept }: RecurrentParams): Parts {
  const { inputs, outputs } = (back ? BACK : STEP)[kind];
  return { inputs, outputs: kept || back ? outputs : outputs.filter(([name]) => name !== 'kept') };
}

const DTYPES: readonly DType[] = ['f32', 'f64', 'f16', 'bf16'];
const sigmoid = (x: number): number => 1 / (1 + Math.exp(-x));
type Numbers = Readonly<Record<string, number>>;
/** One number of the state, from what the parts have there: `x0` is the first gate's. */
const STEP_OF: Readonly<Record<RecurrentKind, (v: Numbers) => Numbers>> = {
  lstm: (v) => {
    const [i, f, o] = [0, 1, 3].map((k) => sigmoid(v[`x${k}`] + v[`y${k}`]));
    const g = Math.tanh(v.x2 + v.y2);
    const next = f * v.c + i * g;
    const h = o * Math.tanh(next);
    return { h, now: h, next, kept0: i, kept1: f, kept2: g, kept3: o };
  },
  gru: (v) => {
    const [r, z] = [0, 1].map((k) => sigmoid(v[`x${k}`] + v[`y${k}`] + v[`bias${k}`]));
    const own = v.y2 + v.bias2;
    const made = Math.tanh(v.x2 + r * own);
    const h = made + z * (v.before - made);
    return { h, now: h, kept0: r, kept1: z, kept2: made, kept3: own };
  },
  tanh: ({ x, y }) => ({ h: Math.tanh(x + y), now: Math.tanh(x + y) }),
  relu: ({ x, y }) => ({ h: Math.max(0, x + y), now: Math.max(0, x + y) }),
};
const BACK_OF: Readonly<Record<RecurrentKind, (v: Numbers) => Numbers>> = {
  lstm: ({ kept0: i, kept1: f, kept2: g, kept3: o, before, c, given, cells, later, carry }) => {
    const dh = given + later;
    const bent = Math.tanh(c);
    const dc = carry + cells + dh * o * (1 - bent * bent);
    const d = [dc * g * i * (1 - i), dc * before * f * (1 - f), dc * i * (1 - g * g), dh * bent * o * (1 - o)];
    return { next: dc * f, ...eachGate('dx', d), ...eachGate('now', d) };
  },
  gru: ({ kept0: r, kept1: z, kept2: made, kept3: own, before, given, later, carry }) => {
    const dh = given + later + carry;
    const last = dh * (1 - z) * (1 - made * made);
    const both = [last * own * r * (1 - r), dh * (before - made) * z * (1 - z)];
    const dy = [...both, last * r];
    return { next: dh * z, ...eachGate('dx', [...both, last]), ...eachGate('dy', dy), ...eachGate('now', dy) };
  },
  tanh: ({ h, given, later }) => {
    const d = (given + later) * (1 - h * h);
    return { dx: d, now: d };
  },
  relu: ({ h, given, later }) => {
    const d = h > 0 ? given + later : 0;
    return { dx: d, now: d };
  },
};
const eachGate = (name: string, list: readonly number[]): Numbers =>
  Object.fromEntries(list.map((v, k) => [`${name}${k}`, v]));

function recurrentRow(name: string, back: boolean): KernelRow<any> {
  const op = name;
  const checked = (inputs: readonly Sig[], p: RecurrentParams): readonly number[] => {
    const parts = recurrentParts(back, p);
    const [batch, n] = inputs[parts.inputs.findIndex(([, width]) => width === 1)].shape;
    parts.inputs.forEach(([part, width], i) => {
      const { shape, dtype } = inputs[i];
      if (formatShape(shape) !== formatShape([batch, width * n]))
        throw new ShapeError(`${op}: ${part} is ${formatShape(shape)}, not ${formatShape([batch, width * n])}`);
      if (dtype !== inputs[0].dtype) throw new DTypeError(`${op}: ${part} is ${dtype} beside ${inputs[0].dtype}`);
    });
    return [batch, n];
  };
  const sample = (kind: RecurrentKind, batch: number, n: number): Sample<RecurrentParams> => {
    const params = { kind, kept: true };
    const inputs = recurrentParts(back, params).inputs.map(([, width]): InputSpec => ({ shape: [batch, width * n] }));
    return { inputs, params };
  };
  return {
    name,
    family: 'recurrent',
    kernel: { back },
    formula: back ? 'gradients of a step of a recurrent net' : 'gates of a recurrent net, and the states behind them',
    noGrad: 'it is part of a pass that has a gradient',
    dtypes: DTYPES,
    ulp: ulps(16, 2),
    candle: { none: 'composed of several ops there' },
    args: (): never => {
      throw new DTypeError(`${op}: it is not a method`);
    },
    errors: () => [],
    samples: () => RECURRENT_KINDS.flatMap((kind) => [sample(kind, 3, 5), sample(kind, 2, 64)]),
    infer: (inputs: readonly Sig[], p: RecurrentParams): readonly Sig[] => {
      const [batch, n] = checked(inputs, p);
      return recurrentParts(back, p).outputs.map(([, width]) => ({
        shape: [batch, width * n],
        dtype: inputs[0].dtype,
      }));
    },
    reference: (inputs: readonly RefTensor[], outputs: readonly RefTensor[], p: RecurrentParams): void => {
      const parts = recurrentParts(back, p);
      const [batch, n] = outputs[0].shape;
      const given = inputs.map(numbers);
      const key = (name: string, width: number, k: number): string => (width > 1 ? `${name}${k}` : name);
      for (let b = 0; b < batch; b++)
        for (let j = 0; j < n; j++) {
          const at = (width: number, k: number): number => (b * width + k) * n + j;
          const all: Record<string, number> = {};
          parts.inputs.forEach(([name, width], i) => {
            for (let k = 0; k < width; k++) all[key(name, width, k)] = given[i][at(width, k)];
          });
          const made = (back ? BACK_OF : STEP_OF)[p.kind](all);
          parts.outputs.forEach(([name, width], i) => {
            for (let k = 0; k < width; k++) outputs[i].data[at(width, k)] = made[key(name, width, k)];
          });
        }
    },
  };
}
export const stepRow = recurrentRow('recurrentStep', false);
export const stepBackRow = recurrentRow('recurrentStepBack', true);
export const RECURRENT_ROWS: readonly KernelRow<any>[] = [stepRow, stepBackRow];

// Rotary position embeddings: pairs of a head's elements turned by the angle of their position.
import { REALS } from '../base/dtype.js';
import { ShapeError } from '../base/errors.js';
import { formatShape, sameShape, type Shape } from '../base/shape.js';
import type { Tensor } from '../tensor/tensor.js';
import { kernel, numbers, requireRank, requireSameDType } from './kernel-row.js';
import {
  rows,
  type Call,
  type ErrorSample,
  type GradContext,
  type Grads,
  type InputSpec,
  type RefTensor,
  type Sample,
  type Sig,
} from './op.js';

declare module './op.js' {
  interface KernelFacts {
    /** Which elements turn together: halves of a head, neighbours, or halves over (batch, time, heads, width). */
    rope: { readonly kind: 'halves' | 'pairs' | 'thd' };
  }
}

export type RopeParams = Record<never, never>;
/** How a variant lays out x: where time stands, and whether a pair is neighbours or lies half a head apart. */
interface Variant {
  readonly op: 'rope' | 'ropeI' | 'ropeThd';
  readonly time: 1 | 2;
  readonly interleaved: boolean;
}
const HALF: Variant = { op: 'rope', time: 2, interleaved: false };
const INTERLEAVED: Variant = { op: 'ropeI', time: 2, interleaved: true };
const THD: Variant = { op: 'ropeThd', time: 1, interleaved: false };

const WITHOUT = 'rotary embeddings are defined for floats of 16 bits and more; cast first';
const DIFFERS =
  'It has a gradient. 16-bit floats are computed in f32 and rounded once. Tables longer than the sequence are read ' +
  'by their own length for every batch (Candle offsets batches by the sequence length).';
// A difference of two products may cancel; bounds count units of the largest operand product.
const ULP = { bf16: 1, f16: 1, f32: 4, f64: 4 } as const;

function inferRope({ op, time }: Variant, inputs: readonly Sig[]): Sig[] {
  const [x, cos, sin] = inputs;
  requireSameDType(op, inputs);
  requireRank(op, 'input', x.shape, 4, time === 2 ? '(batch, heads, time, width)' : '(batch, time, heads, width)');
  const [b, t, d] = [x.shape[0], x.shape[time], x.shape[3]];
  if (d % 2 !== 0)
    throw new ShapeError(`${op}: width ${d} of ${formatShape(x.shape)} is odd; it must split into pairs`);
  const table = cos.shape;
  const shared = table.length === 2 && table[0] >= t && table[1] === d / 2;
  const batched = table.length === 3 && table[0] === b && table[1] >= t && table[2] === d / 2;
  if (!sameShape(table, sin.shape) || !(shared || batched)) {
    throw new ShapeError(
      `${op}: cos ${formatShape(table)} and sin ${formatShape(sin.shape)} must both be [${t} or more, ${d / 2}], or ` +
        `with ${b} in front, for ${formatShape(x.shape)}`,
    );
  }
  return [x];
}

function referenceRope(
  { time, interleaved }: Variant,
  [x, cos, sin]: readonly RefTensor[],
  [out]: readonly RefTensor[],
): void {
  const [, d1, d2, d] = x.shape;
  const half = d / 2;
  const perBatch = cos.shape.length === 3 ? cos.shape[1] * half : 0;
  const [from, c, s] = [numbers(x), numbers(cos), numbers(sin)];
  for (let b = 0, row = 0; b < x.shape[0]; b++)
    for (let i = 0; i < d1; i++)
      for (let j = 0; j < d2; j++, row++) {
        const angle = b * perBatch + (time === 1 ? i : j) * half;
        for (let k = 0; k < half; k++) {
          const p = row * d + (interleaved ? 2 * k : k);
          const q = interleaved ? p + 1 : p + half;
          out.data[p] = from[p] * c[angle + k] - from[q] * s[angle + k];
          out.data[q] = from[p] * s[angle + k] + from[q] * c[angle + k];
        }
      }
}

/** First and second elements of all pairs, each (.., d / 2). */
function split(x: Tensor, interleaved: boolean): [Tensor, Tensor] {
  const half = x.shape[3] / 2;
  if (!interleaved) return [x.narrow(3, 0, half), x.narrow(3, half, half)];
  const pairs = x.reshape([...x.shape.slice(0, 3), half, 2]);
  return [0, 1].map((i) => pairs.narrow(4, i, 1).reshape([...x.shape.slice(0, 3), half])) as [Tensor, Tensor];
}

/** Adds up what all heads (and batches, if the table is shared) gave, and pads to the table's length. */
function toTable({ time }: Variant, g: Tensor, table: Shape): Tensor {
  const summed = g.sum(table.length === 3 ? [3 - time] : [0, 3 - time], false);
  const at = table.length - 2;
  return summed.shape[at] === table[at] ? summed : g.newZeros(table, g.dtype).sliceScatter(at, 0, summed);
}

function ropeGrads(variant: Variant, { inputs: [x, cos, sin], grad, needs }: GradContext<RopeParams>): Grads {
  const [x1, x2] = split(x, variant.interleaved);
  const [g1, g2] = split(grad, variant.interleaved);
  return [
    needs(0) ? grad[variant.op](cos, sin.neg()) : undefined, // turning back
    needs(1) ? toTable(variant, g1.mul(x1).add(g2.mul(x2)), cos.shape) : undefined,
    needs(2) ? toTable(variant, g2.mul(x1).sub(g1.mul(x2)), sin.shape) : undefined,
  ];
}

const three = (x: Shape, table: Shape): InputSpec[] => [
  { shape: x },
  { shape: table, domain: [-1, 1] },
  { shape: table, domain: [-1, 1] },
];
const samples =
  ({ time }: Variant) =>
  (): readonly Sample<RopeParams>[] => {
    const x = (b: number, h: number, t: number, d: number): number[] => (time === 2 ? [b, h, t, d] : [b, t, h, d]);
    return [
      { inputs: three(x(2, 3, 5, 8), [5, 4]), params: {} },
      { inputs: three(x(2, 1, 3, 6), [2, 3, 3]), params: {} },
      { inputs: three(x(1, 2, 3, 2), [7, 1]), params: {} },
      { inputs: three(x(2, 2, 3, 4), [2, 5, 2]), params: {} },
    ];
  };
const errors = (): readonly ErrorSample<RopeParams>[] => [
  { inputs: three([2, 3, 4, 7], [4, 3]), params: {}, code: 'E_SHAPE', says: /width 7 of \[2, 3, 4, 7\] is odd/ },
  {
    inputs: three([2, 3, 3, 8], [2, 4]),
    params: {},
    code: 'E_SHAPE',
    says: /cos \[2, 4\] and sin \[2, 4\] must both be \[3 or more, 4\]/,
  },
  { inputs: three([3, 4, 8], [4, 4]), params: {}, code: 'E_SHAPE', says: /has rank 3; it takes rank 4/ },
];
const common = {
  family: 'rope',
  dtypes: REALS,
  without: WITHOUT,
  differs: DIFFERS,
  domain: [-2, 2],
  ulp: ULP,
} as const;

export const rope = rows({
  rope: kernel({
    ...common,
    kernel: { kind: 'halves' },
    formula: '(x1, x2) -> (x1 cos - x2 sin, x1 sin + x2 cos), x = [x1 | x2] halves of (batch, heads, time, width)',
    candle: { file: 'reduce.cu', symbol: 'rope' },
    infer: (inputs: readonly Sig[]): readonly Sig[] => inferRope(HALF, inputs),
    reference: (inputs: readonly RefTensor[], outputs: readonly RefTensor[]): void =>
      referenceRope(HALF, inputs, outputs),
    grad: (ctx: GradContext<RopeParams>): Grads => ropeGrads(HALF, ctx),
    args: (x: Tensor, cos: Tensor, sin: Tensor): Call<RopeParams> => ({ inputs: [x, cos, sin], params: {} }),
    samples: samples(HALF),
    errors,
  }),

  ropeI: kernel({
    ...common,
    kernel: { kind: 'pairs' },
    formula: 'as rope, with neighbours x[2k], x[2k+1] as pairs',
    candle: { file: 'reduce.cu', symbol: 'rope_i' },
    infer: (inputs: readonly Sig[]): readonly Sig[] => inferRope(INTERLEAVED, inputs),
    reference: (inputs: readonly RefTensor[], outputs: readonly RefTensor[]): void =>
      referenceRope(INTERLEAVED, inputs, outputs),
    grad: (ctx: GradContext<RopeParams>): Grads => ropeGrads(INTERLEAVED, ctx),
    args: (x: Tensor, cos: Tensor, sin: Tensor): Call<RopeParams> => ({ inputs: [x, cos, sin], params: {} }),
    samples: samples(INTERLEAVED),
    errors,
  }),

  ropeThd: kernel({
    ...common,
    kernel: { kind: 'thd' },
    formula: 'as rope, for (batch, time, heads, width)',
    candle: { file: 'reduce.cu', symbol: 'rope_thd' },
    infer: (inputs: readonly Sig[]): readonly Sig[] => inferRope(THD, inputs),
    reference: (inputs: readonly RefTensor[], outputs: readonly RefTensor[]): void =>
      referenceRope(THD, inputs, outputs),
    grad: (ctx: GradContext<RopeParams>): Grads => ropeGrads(THD, ctx),
    args: (x: Tensor, cos: Tensor, sin: Tensor): Call<RopeParams> => ({ inputs: [x, cos, sin], params: {} }),
    samples: samples(THD),
    errors,
  }),
});

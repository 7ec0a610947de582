// The kernels of scaled-dot-product attention: forward, backward, and what the backward pass needs of the result.
// attention-calls.ts has the methods that people call.
import { type DType, REALS } from '../base/dtype.js';
import { ArgumentError, DTypeError, ShapeError } from '../base/errors.js';
import { formatShape, sameShape } from '../base/shape.js';
import type { Tensor } from '../tensor/tensor.js';
import { gradBackward, gradForward } from './attention-gradient.js';
import {
  checkCall,
  type Extra,
  extent,
  extrasOf,
  isResult,
  referenceBackward,
  referenceDelta,
  referenceForward,
  type SdpaParams,
  shapeOf,
  sizesOf,
  WITHOUT,
  wideOf,
} from './attention-reference.js';
import { backwardSamples, kept, keptSamples, of, s, samples } from './attention-samples.js';
import { type Kernel, kernel } from './kernel-row.js';
import {
  type Call,
  type ErrorSample,
  type GradContext,
  type Grads,
  type RefTensor,
  rows,
  type Sample,
  type Sig,
  ulps,
} from './op.js';

declare module './op.js' {
  interface KernelFacts {
    /** The pass a row makes over the keys; `delta` is what the backward pass needs of the result. */
    attention: { readonly pass: 'forward' | 'backward' | 'delta' };
  }
}

/** What keys and values may be kept in besides the queries' dtype; u8 are blocks of Q8_0. */
const KEPT_IN_8_BITS: readonly DType[] = ['f8e4m3', 'u8'];

/** Rows whose method answers all results. */
type Many<A extends readonly unknown[]> = Kernel<A, SdpaParams> & { readonly many: true };
const many = <A extends readonly unknown[]>(row: Kernel<A, SdpaParams>): Many<A> => ({ ...row, many: true });

function infer(
  op: string,
  inputs: readonly Sig[],
  p: SdpaParams,
  rest: readonly Sig[],
): { out: Sig; lse: Sig; k: Sig } {
  const [q, k, v] = inputs;
  if (v.dtype !== k.dtype || (k.dtype !== q.dtype && !(op === 'sdpa' && KEPT_IN_8_BITS.includes(k.dtype))))
    throw new DTypeError(
      `${op}: operands are ${q.dtype}, ${k.dtype}, ${v.dtype}; they must have one dtype` +
        (op === 'sdpa' ? `, or keys and values both be ${KEPT_IN_8_BITS.join(' or ')} (blocks of Q8_0)` : ''),
    );
  const { q: qs } = checkCall(op, inputs, rest, p);
  if (!Number.isFinite(p.scale) || !(p.softcap >= 0))
    throw new ArgumentError(`${op}: scale ${p.scale} must be finite and softcap ${p.softcap} not negative`);
  const extra = extrasOf(rest, p.extras);
  const { batch, tq, tk } = extent(q, k, p, extra);
  const want = (name: Extra, shape: readonly number[], dtypes: readonly DType[]): void => {
    const t = extra[name];
    if (t && !sameShape(t.shape, shape))
      throw new ShapeError(`${op}: ${name} ${formatShape(t.shape)} must be ${formatShape(shape)}`);
    if (t && !dtypes.includes(t.dtype))
      throw new DTypeError(`${op}: ${name} is ${t.dtype}; it must be ${dtypes.join(' or ')}`);
  };
  want('mask', [batch, qs.heads, tq, tk], ['bool', 'u8', q.dtype]);
  want('slopes', [qs.heads], ['f32']);
  want('sinks', [qs.heads], ['f32']);
  if ((extra.qStarts && extra.qStarts.shape.length !== 1) || batch < 0)
    throw new ShapeError(`${op}: qStarts ${formatShape(extra.qStarts?.shape ?? [])} must be (batch + 1)`);
  want('qStarts', [batch + 1], ['i32']);
  want('kStarts', [batch + 1], ['i32']);
  want('lengths', [batch], ['i32']);
  if (extra.pages) want('pages', [batch, extra.pages.shape[1] ?? 0], ['i32']);
  const lse: Sig = { shape: [qs.batch, qs.heads, qs.rows], dtype: wideOf(q.dtype) };
  return { out: { shape: shapeOf(qs, p.layout), dtype: q.dtype }, lse, k };
}

export const attention = rows({
  sdpaRun: many({
    family: 'attention',
    mixed: true,
    kernel: { pass: 'forward' },
    serves: 'sdpa',
    formula: "softmax(f(scale q k') + bias) v over the keys a query sees, and the log of the sum of exponentials",
    dtypes: REALS,
    without: WITHOUT,
    domain: [-1, 1],
    ulp: ulps(64, 4),
    candle: { none: 'Candle has attention for Metal, for the CPU and in a separate crate for CUDA' },
    infer: (inputs: readonly Sig[], p: SdpaParams): readonly Sig[] => {
      const { out, lse } = infer('sdpa', inputs, p, inputs.slice(3));
      return [out, lse];
    },
    reference: (inputs: readonly RefTensor[], outputs: readonly RefTensor[], p: SdpaParams): void =>
      referenceForward(inputs, outputs, p),
    grad: gradForward,
    args: (q: Tensor, k: Tensor, v: Tensor, p: SdpaParams, extras: readonly Tensor[]): Call<SdpaParams> => ({
      inputs: [q, k, v, ...extras],
      params: p,
    }),
    samples: () => [...samples(), ...keptSamples()],
    errors: (): readonly ErrorSample<SdpaParams>[] => [
      {
        inputs: [s(1, 3, 2, 4), s(1, 2, 2, 4), s(1, 2, 2, 4)],
        params: of(),
        code: 'E_SHAPE',
        says: /3 query heads do not divide into groups over 2 key heads/,
      },
      {
        inputs: [s(1, 2, 2, 4), s(1, 2, 2, 3), s(1, 2, 2, 3)],
        params: of(),
        code: 'E_SHAPE',
        says: /must have one head dimension/,
      },
      {
        inputs: [s(1, 2, 2, 4), s(1, 2, 2, 4), s(1, 2, 3, 4)],
        params: of(),
        code: 'E_SHAPE',
        says: /keys \[1, 2, 2, 4\] and values \[1, 2, 3, 4\] must have one shape/,
      },
      {
        inputs: [s(1, 2, 2, 4), s(1, 2, 2, 4), s(1, 2, 2, 4), s(1, 2, 2, 3)],
        params: of({ extras: ['mask'] }),
        code: 'E_SHAPE',
        says: /mask \[1, 2, 2, 3\] must be \[1, 2, 2, 2\]/,
      },
      {
        inputs: [s(1, 2, 2, 32), kept(1, 2, 2, 32)[1], kept(1, 2, 2, 32)[0]],
        params: of(),
        code: 'E_DTYPE',
        says: /keys and values both be f8e4m3 or u8/,
      },
    ],
  }),

  sdpaBackward: many({
    family: 'attention',
    mixed: true,
    kernel: { pass: 'backward' },
    serves: 'sdpa',
    formula:
      "dq = H k, dk = H' q, dv = P' dout with P = exp(logit - lse) and H = P (dout v' - delta) f'; " +
      'delta is given or made of the result',
    dtypes: REALS,
    without: WITHOUT,
    domain: [-1, 1],
    ulp: ulps(24, 4),
    candle: { none: "Candle's attention has no gradient" },
    infer: (inputs: readonly Sig[], p: SdpaParams): readonly Sig[] => {
      const { out, lse, k } = infer('sdpaBackward', inputs, p, inputs.slice(6));
      for (const [i, want] of [
        [3, out],
        [4, lse],
        [5, isResult(inputs[5]) ? out : lse],
      ] as const) {
        if (!sameShape(inputs[i].shape, want.shape))
          throw new ShapeError(
            `sdpaBackward: input ${i} ${formatShape(inputs[i].shape)} must be ${formatShape(want.shape)}`,
          );
        if (inputs[i].dtype !== want.dtype && inputs[i].dtype !== out.dtype)
          throw new DTypeError(`sdpaBackward: input ${i} is ${inputs[i].dtype}; it must be ${want.dtype}`);
      }
      return [out, k, k];
    },
    reference: (inputs: readonly RefTensor[], outputs: readonly RefTensor[], p: SdpaParams): void =>
      referenceBackward(inputs, outputs, p),
    grad: gradBackward,
    args: (
      q: Tensor,
      k: Tensor,
      v: Tensor,
      dout: Tensor,
      lse: Tensor,
      delta: Tensor,
      p: SdpaParams,
      extras: readonly Tensor[],
    ): Call<SdpaParams> => ({ inputs: [q, k, v, dout, lse, delta, ...extras], params: p }),
    samples: backwardSamples,
    errors: (): readonly ErrorSample<SdpaParams>[] => [
      {
        inputs: [s(1, 2, 2, 4), s(1, 2, 2, 4), s(1, 2, 2, 4), s(1, 2, 3, 4), s(1, 2, 2), s(1, 2, 2)],
        params: of(),
        code: 'E_SHAPE',
        says: /input 3 \[1, 2, 3, 4\] must be \[1, 2, 2, 4\]/,
      },
    ],
  }),

  sdpaDelta: kernel({
    family: 'attention',
    kernel: { pass: 'delta' },
    serves: 'sdpa',
    formula: 'sum of out * dout over the head dimension, as (batch, heads, time)',
    dtypes: REALS,
    without: WITHOUT,
    domain: [-1, 1],
    ulp: ulps(10, 4),
    candle: { none: 'part of a gradient Candle does not have' },
    infer: ([out, dout]: readonly Sig[], p: { layout: 'bhtd' | 'bthd' }): readonly Sig[] => {
      if (!sameShape(out.shape, dout.shape))
        throw new ShapeError(`sdpaDelta: ${formatShape(out.shape)} and ${formatShape(dout.shape)} must have one shape`);
      const { batch, heads, rows: n } = sizesOf(out.shape, p.layout);
      return [{ shape: [batch, heads, n], dtype: wideOf(out.dtype) }];
    },
    reference: (inputs: readonly RefTensor[], outputs: readonly RefTensor[], p: { layout: 'bhtd' | 'bthd' }): void =>
      referenceDelta(inputs, outputs, p.layout),
    grad: ({ x, y, grad, params: p, needs }: GradContext<{ layout: 'bhtd' | 'bthd' }>): Grads => {
      const g = p.layout === 'bhtd' ? grad.unsqueeze(3) : grad.permute([0, 2, 1]).unsqueeze(3);
      const times = (t: Tensor): Tensor => t.cast(g.dtype).mul(g).cast(t.dtype);
      return [needs(0) ? times(y) : undefined, needs(1) ? times(x) : undefined];
    },
    args: (out: Tensor, dout: Tensor, layout: 'bhtd' | 'bthd'): Call<{ layout: 'bhtd' | 'bthd' }> => ({
      inputs: [out, dout],
      params: { layout },
    }),
    samples: (): readonly Sample<{ layout: 'bhtd' | 'bthd' }>[] => [
      { inputs: [s(1, 2, 3, 5), s(1, 2, 3, 5)], params: { layout: 'bhtd' } },
      { inputs: [s(2, 4, 3, 40), s(2, 4, 3, 40)], params: { layout: 'bthd' } },
    ],
    errors: (): readonly ErrorSample<{ layout: 'bhtd' | 'bthd' }>[] => [
      {
        inputs: [s(2, 3, 4, 5), s(2, 3, 4, 4)],
        params: { layout: 'bhtd' },
        code: 'E_SHAPE',
        says: /must have one shape/,
      },
    ],
  }),
});

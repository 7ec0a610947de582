// Rotary embeddings: kernels/rope.hip.
import type { DType } from '../../base/dtype.js';
import { CTYPE, KernelModule, REAL_TYPES, typed } from '../../kernels/declare.js';
import type { RowOf } from '../../ops/op.js';
import type { View } from '../backend.js';
import {
  aligned16,
  type FamilyPlan,
  launch,
  type Launches,
  packOf,
  places,
  single,
  strideGrid,
  viewOf,
} from './plan.js';

export const ROPE = new KernelModule('rope');
const turn = ROPE.declare({
  each: { pairs: [false, true], access: ['single', 'packed'], dtype: REAL_TYPES },
  symbol: ({ pairs, access, dtype }) => `rope_${pairs ? 'pairs' : 'rows'}_${dtype}_${access}`,
  body: ({ pairs, access, dtype }) => {
    const S = CTYPE[dtype];
    return {
      threads: 1024,
      params: {
        ...typed(`const ${S}*`, 'src', 'cos', 'sin'),
        dst: `${S}*`,
        ...typed('u32', 'rows', 'h', 't', 'd', 'thd', 'batched'),
        sign: 'float',
        ...typed('u64', 'step', 'outStep'),
      },
      call: `rope_rows<${pairs}, ${S}, ${access === 'packed' ? `pack_size<${S}>` : 1}>`,
    };
  },
});

export interface RopeShape {
  /**
   * halves: (x[i], x[i + d/2]) turn together, over [b, h, t, d]; pairs: (x[2i], x[2i+1]); thd: halves over [b, t, h,
   * d].
   */
  readonly kind: 'halves' | 'pairs' | 'thd';
  readonly b: number;
  readonly h: number;
  readonly t: number;
  readonly d: number;
  /** cos and sin are [b, t, d / 2] rather than [t, d / 2]. */
  readonly batched: boolean;
  /** Turns back: the gradient. */
  readonly inverse: boolean;
  /** Elements between tokens of x, and of the result, in layout thd, where they are more than its heads'. */
  readonly step?: number;
  readonly outStep?: number;
}
/** Buffers: src, cos, sin, dst. */
export function ropeLaunch(
  { kind, b, h, t, d, batched, inverse, step = h * d, outStep = h * d }: RopeShape,
  dtype: DType,
  aligned: boolean,
): Launches {
  const pack = aligned && [d / 2, step, outStep].every((n) => n % packOf(dtype) === 0) ? packOf(dtype) : 1;
  const rows = b * h * t;
  const variant = {
    pairs: kind === 'pairs',
    access: pack === 1 ? 'single' : 'packed',
    dtype: dtype as (typeof REAL_TYPES)[number],
  } as const;
  const flags = { thd: kind === 'thd' ? 1 : 0, batched: batched ? 1 : 0, sign: inverse ? -1 : 1 };
  const args = { ...places('src', 'cos', 'sin', 'dst'), rows, h, t, d, ...flags, step, outStep };
  return single(launch(turn, variant, strideGrid((rows * d) / 2 / pack), 256, args));
}

/** Elements between tokens where heads of a token lie together in layout thd, and batches as if they were one. */
function stepOf({ layout }: View): number | undefined {
  const [[b, t, h, d], [batchStep, step, head, unit]] = [layout.shape, layout.strides];
  return unit === 1 && head === d && step >= h * d && (b === 1 || batchStep === t * step) ? step : undefined;
}
/** `back` turns the other way. A result that is a part of wider rows is written where it lies, be it x itself. */
export const planRope: FamilyPlan<RowOf<'rope'>, unknown> = (p, row, [x, cos, sin], [out], params) => {
  const { kind } = row.kernel;
  const { back = false } = params as { readonly back?: boolean };
  const [b, second, third, d] = x.layout.shape;
  const [h, t] = kind === 'thd' ? [third, second] : [second, third];
  const batched = cos.layout.rank === 3;
  // Tables longer than the sequence are cut to it, so that batches lie where the kernel looks.
  const cut = (v: View): View => ({ ...viewOf(v), layout: v.layout.slice(batched ? 1 : 0, 0, t) });
  // Heads that lie together are read where they are: queries and keys are parts of one product.
  const [step, outStep] = kind === 'thd' ? [stepOf(x), stepOf(out)] : [];
  if (outStep === undefined && !out.layout.isContiguous)
    throw new Error(`${row.name}: a result of strides ${out.layout.strides} is not to be written`);
  const [src, c, s] = [step === undefined ? p.dense(x) : x, p.dense(cut(cos)), p.dense(cut(sin))];
  const steps = { ...(step !== undefined && { step }), ...(outStep !== undefined && { outStep }) };
  const launches = ropeLaunch(
    { kind, b, h, t, d, batched, inverse: back, ...steps },
    x.dtype,
    aligned16(src, c, s, out),
  );
  p.run(launches, { src, cos: c, sin: s, dst: out });
};

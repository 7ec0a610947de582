// Which attention a vendor's library is asked for: 16-bit floats, plain scores, rows that it can copy.
import { ATTENTION_ALIGNMENT, type AttentionHalf, type RowStrides } from '../../driver/attention.js';
import type { SdpaParams } from '../../ops/attention-reference.js';
import type { View } from '../backend.js';
import type { AttentionCall } from './attention-kernels.js';
import type { Served } from './libraries.js';
import { addressOf, type AttentionRun } from './plan.js';

const WRITTEN = { forward: ['out', 'lse'], backward: ['dq', 'dk', 'dv'] } as const;
const READ = { forward: ['q', 'k', 'v'], backward: ['q', 'k', 'v', 'out', 'lse', 'dout'] } as const;
const isView = (v: AttentionCall['q']): v is View => typeof v === 'object' && 'layout' in v;

/** The library's plan for a call with the views it takes, or undefined where our own kernels serve. */
export function libraryAttention(
  served: Served,
  kind: 'forward' | 'backward',
  c: AttentionCall,
  { softcap, extras, trained }: SdpaParams,
): Omit<AttentionRun, 'otherwise'> | undefined {
  if (softcap !== 0 || extras.length > 0) return undefined;
  const at: Record<string, View> = {};
  for (const name of [...READ[kind], ...WRITTEN[kind]]) {
    const v = c[name];
    if (!isView(v) || addressOf(v) % ATTENTION_ALIGNMENT !== 0) return undefined;
    at[name] = v;
  }
  if (at.lse.dtype !== 'f32' || !at.lse.layout.isContiguous) return undefined;
  const { dtype } = at.q;
  if (dtype !== 'f16' && dtype !== 'bf16') return undefined;
  if (Object.entries(at).some(([name, v]) => name !== 'lse' && v.dtype !== dtype)) return undefined;
  const strides = (name: string): RowStrides | undefined =>
    at[name] && ([0, 1, 2].map((i) => at[name].layout.strides[i]) as unknown as RowStrides);
  const { batch, heads, kvHeads, tq, tk, dim, scale, left, right } = c;
  const plan = served.attention(
    {
      kind,
      dtype: dtype satisfies AttentionHalf,
      batch,
      heads,
      kvHeads,
      tq,
      tk,
      dim,
      scale,
      left,
      right,
      strides: Object.fromEntries(
        ['q', 'k', 'v', 'out', 'dout', 'dq', 'dk', 'dv'].flatMap((name) => {
          const s = strides(name);
          return s ? [[name, s]] : [];
        }),
      ),
      counted: false,
    },
    kind === 'backward' || trained === true,
  );
  return plan && { attention: plan, at, written: WRITTEN[kind].map((name) => at[name]) };
}

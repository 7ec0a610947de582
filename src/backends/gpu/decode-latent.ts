// Latent attention in a decoding step, three launches. kernels/decode-latent.hip.
import { CTYPE, KernelModule, Struct } from '../../kernels/declare.js';
import type { View } from '../backend.js';
import { DECODE_TYPES, type DecodeType, LATENT_PARTS, type LatentSizes } from '../generation.js';
import { ceilDiv, type Launch, launch } from './plan.js';

export const DECODE_LATENT = new KernelModule('decode-latent');
/** Columns of a block, and heads and rows of one. */
const [COLUMNS, HEADS, ROWS] = [128, 16, 16];
const THREADS = { constant: 'LATENT_THREADS', threads: 256 } as const;

const NEW_LATENT = new Struct('NewLatent', {
  queries: 'pointer',
  latent: 'pointer',
  norm: 'pointer',
  keyUp: 'pointer',
  valueUp: 'pointer',
  cos: 'pointer',
  sin: 'pointer',
  state: 'pointer',
  latents: 'pointer',
  keys: 'pointer',
  lifted: 'pointer',
  partial: 'pointer',
  tops: 'pointer',
  sums: 'pointer',
  out: 'pointer',
  heads: 'i32',
  nope: 'i32',
  turned: 'i32',
  rank: 'i32',
  values: 'i32',
  scale: 'float',
  eps: 'float',
});
const kernelOf = (step: 'queries' | 'attention') =>
  DECODE_LATENT.declare({
    each: { dtype: DECODE_TYPES },
    symbol: ({ dtype }) => `latent_${step}_${dtype}`,
    body: ({ dtype }) => ({ threads: THREADS, params: { p: NEW_LATENT }, call: `latent_${step}<${CTYPE[dtype]}>` }),
  });
const [queries, attention] = [kernelOf('queries'), kernelOf('attention')];
const values = DECODE_LATENT.declare({
  each: { dtype: DECODE_TYPES },
  symbol: ({ dtype }) => `latent_values_${dtype}`,
  body: ({ dtype }) => ({
    threads: THREADS,
    params: { p: NEW_LATENT, parts: 'i32' },
    call: `latent_values<${CTYPE[dtype]}>`,
  }),
});

/** A new token's latent attention: what the kernel's struct NewLatent holds. */
export interface NewLatent extends LatentSizes {
  /** (heads, nope + turned), and (rank + turned): a latent and a key as products gave them. */
  readonly queries: View;
  readonly latent: View;
  /** f32, of the norm over the latent. */
  readonly norm: View;
  readonly eps: number;
  /** (heads, nope, rank) and (heads, values, rank) */
  readonly keyUp: View;
  readonly valueUp: View;
  readonly cos: View;
  readonly sin: View;
  readonly state: View;
  /** What is kept by token: (room, rank) and (room, turned). */
  readonly latents: View;
  readonly keys: View;
  /** (heads, rank + turned) */
  readonly lifted: View;
  /** LATENT_PARTS * heads * rank floats, and twice LATENT_PARTS * heads. */
  readonly partial: View;
  readonly tops: View;
  readonly sums: View;
  /** (heads, values) */
  readonly out: View;
  readonly scale: number;
}

export function latentLaunches(dtype: DecodeType, p: NewLatent): readonly Launch[] {
  const { threads } = THREADS;
  return [
    launch(queries, { dtype }, [ceilDiv(p.rank, COLUMNS), p.heads + 1], threads, { p }),
    launch(attention, { dtype }, [LATENT_PARTS, ceilDiv(p.heads, HEADS)], threads, { p }),
    launch(values, { dtype }, [p.heads, ceilDiv(p.values, ROWS)], threads, { p, parts: LATENT_PARTS }),
  ];
}

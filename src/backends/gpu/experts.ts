// Rows times the matrices of chosen experts. kernels/experts.hip.
import { maxInt } from '../../base/dtype.js';
import { CTYPE, KernelModule, REAL_TYPES, suffixOf } from '../../kernels/declare.js';
import type { KernelRow } from '../../ops/op.js';
import { inType } from './movement.js';
import { aligned16, at, ceilDiv, FAULT, type FamilyPlan, launch, packOf, single } from './plan.js';

export const EXPERTS = new KernelModule('experts');
const BLOCK = 256;
/** Rows of an expert's matrix that a block makes. */
const ROWS = 8;

const chosenRows = EXPERTS.declare({
  each: { dtype: REAL_TYPES, by: ['words', 'elements'] },
  symbol: ({ dtype, by }) => `experts_${suffixOf(dtype)}_by_${by}`,
  body: ({ dtype, by }) => ({
    threads: { constant: 'EXPERT_THREADS', threads: BLOCK },
    params: {
      x: `const ${CTYPE[dtype]}*`,
      w: `const ${CTYPE[dtype]}*`,
      ids: 'const i64*',
      out: `${CTYPE[dtype]}*`,
      fault: 'u32*',
      experts: 'i64',
      rows: 'i64',
      chosen: 'i64',
      given: 'i64',
      n: 'i64',
      none: 'i64',
    },
    call: `experts_rows<${CTYPE[dtype]}, ${by === 'words' ? packOf(dtype) : 1}>`,
  }),
});

export const planExperts: FamilyPlan<KernelRow, {}> = (p, _row, [activations, weights, indices], [result]) => {
  const x = p.dense(activations);
  const w = p.dense(weights);
  const out = result.layout.isContiguous ? result : p.make(result.layout.shape, result.dtype);
  const [experts, rows, n] = w.layout.shape;
  const [tokens, chosen] = indices.layout.shape;
  if (tokens * chosen * rows === 0) return;
  const words = aligned16(x, w) && n % packOf(x.dtype) === 0;
  const loads = words ? n / packOf(x.dtype) : n;
  const { warp } = p.device;
  const block = Math.min(BLOCK, Math.max(1, ceilDiv(loads, warp)) * warp);
  const args = {
    ...{ x: at('x'), w: at('w'), ids: at('ids'), out: at('out'), fault: at('fault') },
    ...{ experts, rows, chosen, given: x.layout.shape[1], n, none: maxInt(indices.dtype) },
  };
  const variant = {
    dtype: x.dtype as (typeof REAL_TYPES)[number],
    by: words ? ('words' as const) : ('elements' as const),
  };
  const l = launch(chosenRows, variant, [ceilDiv(rows, ROWS), tokens * chosen], block, args);
  p.run(single({ ...l, early: true }), { x, w, ids: inType(p, indices, 'i64'), out, fault: FAULT });
  if (out !== result) p.copy(out, result);
};

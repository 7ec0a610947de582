// Rows times the matrices of chosen experts: a few read them one by one, many are sorted by expert.
// kernels/experts.hip, grouped.ts.
import { maxInt } from '../../base/dtype.js';
import { CTYPE, KernelModule, REAL_TYPES, suffixOf, typed } from '../../kernels/declare.js';
import type { KernelRow } from '../../ops/op.js';
import type { View } from '../backend.js';
import { groupedLaunch, groupedWay } from './grouped.js';
import { inType } from './movement.js';
import {
  aligned16,
  ceilDiv,
  FAULT,
  type FamilyPlan,
  inTurns,
  launch,
  MOST_BLOCKS,
  packOf,
  places,
  type Planner,
  rowsFrom,
  single,
} from './plan.js';

export const EXPERTS = new KernelModule('experts');
const BLOCK = 256;
/** Rows of an expert's matrix that a block makes. */
const ROWS = 8;
/** Up to this many rows of results, each reads its expert's matrix by itself. */
const LONE_ROWS = 64;
/** Experts whose rows one block counts in shared memory. */
const MOST_EXPERTS = 4000;

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
      ...typed('i64', 'experts', 'rows', 'chosen', 'given', 'n', 'none'),
    },
    call: `experts_rows<${CTYPE[dtype]}, ${by === 'words' ? packOf(dtype) : 1}>`,
  }),
});

const sorted = EXPERTS.declare({
  each: {},
  symbol: () => 'experts_sort',
  body: () => ({
    threads: { constant: 'EXPERT_SORT', threads: 1024 },
    params: {
      ids: 'const i64*',
      order: 'u32*',
      tiles: 'RowTile*',
      fault: 'u32*',
      ...typed('i64', 'rows', 'experts', 'none', 'height', 'most'),
    },
    call: 'sort_by_expert',
  }),
});

function planGrouped(p: Planner, x: View, w: View, indices: View, out: View): void {
  const [experts, n, k] = w.layout.shape;
  const [tokens, chosen] = indices.layout.shape;
  const rows = tokens * chosen;
  const { way, height } = groupedWay(x.dtype, aligned16(x, w, out) && k % packOf(x.dtype) === 0, p.device);
  const most = Math.floor(rows / height) + Math.min(experts + 2, rows);
  const [order, tiles] = [p.make([rows], 'u32'), p.make([most, 4], 'i32')];
  const args = places('ids', 'order', 'tiles', 'fault');
  const sizes = { rows, experts, none: maxInt(indices.dtype), height, most };
  const sort = launch(sorted, {}, 1, 1024, { ...args, ...sizes }, 12 * (experts + 2));
  p.run(single({ ...sort, early: true }), { ids: inType(p, indices, 'i64'), order, tiles, fault: FAULT });
  const share = x.layout.shape[1] === 1 ? chosen : 1;
  p.run(single(groupedLaunch({ x, w, out, order, tiles, share, experts, n, k }, way, most, p.device)));
}

export const planExperts: FamilyPlan<KernelRow, {}> = (p, _row, [activations, weights, indices], [result]) => {
  const x = p.dense(activations);
  const w = p.dense(weights);
  const out = result.layout.isContiguous ? result : p.make(result.layout.shape, result.dtype);
  const [experts, rows, n] = w.layout.shape;
  const [tokens, chosen] = indices.layout.shape;
  if (tokens * chosen * rows === 0) return;
  if (tokens * chosen > LONE_ROWS && experts <= MOST_EXPERTS && n > 0) {
    planGrouped(p, x, w, indices, out);
    if (out !== result) p.copy(out, result);
    return;
  }
  const words = aligned16(x, w) && n % packOf(x.dtype) === 0;
  const loads = words ? n / packOf(x.dtype) : n;
  const { warp } = p.device;
  const block = Math.min(BLOCK, Math.max(1, ceilDiv(loads, warp)) * warp);
  const args = {
    ...places('x', 'w', 'ids', 'out', 'fault'),
    ...{ experts, rows, chosen, given: x.layout.shape[1], n, none: maxInt(indices.dtype) },
  };
  const variant = {
    dtype: x.dtype as (typeof REAL_TYPES)[number],
    by: words ? ('words' as const) : ('elements' as const),
  };
  const ids = inType(p, indices, 'i64');
  inTurns(tokens, Math.max(1, Math.floor(MOST_BLOCKS[1] / chosen)), (from, size) => {
    const l = launch(chosenRows, variant, [ceilDiv(rows, ROWS), size * chosen], block, args);
    const [some, chosenHere, to] = [x, ids, out].map((v) => rowsFrom(v, from, size));
    p.run(single({ ...l, early: true }), { x: some, w, ids: chosenHere, out: to, fault: FAULT });
  });
  if (out !== result) p.copy(out, result);
};

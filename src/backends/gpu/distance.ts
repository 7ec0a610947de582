// Distances between rows, all with all: kernels/distance.hip.
import { sizeOf } from '../../base/shape.js';
import { CTYPE, KernelModule, Struct, typed } from '../../kernels/declare.js';
import type { DistanceParams } from '../../ops/distance.js';
import type { RowOf } from '../../ops/op.js';
import type { View } from '../backend.js';
import { ceilDiv, clamp, type FamilyPlan, launch, places, single } from './plan.js';

export const DISTANCE = new KernelModule('distance');
const distances = DISTANCE.declare({
  each: { p: [1, 2], dtype: ['f32', 'f64'] },
  symbol: ({ p, dtype }) => `row_distances_${p}_${dtype}`,
  body: ({ p, dtype }) => ({
    threads: 256,
    params: {
      ...typed(`const ${CTYPE[dtype]}*`, 'x', 'y'),
      out: `${CTYPE[dtype]}*`,
      ...typed('i64', 'batch', 'n', 'm', 'k'),
    },
    call: `row_distances<${p}>`,
  }),
});
/** Where a matrix for each batch lies. */
const PAIRS = new Struct('Pairs', { batch: 'i64', row: 'i64', column: 'i64' });
const backwards = DISTANCE.declare({
  each: { p: [1, 2], dtype: ['f32', 'f64'] },
  symbol: ({ p, dtype }) => `row_distances_backward_${p}_${dtype}`,
  body: ({ p, dtype }) => ({
    threads: 256,
    params: {
      ...typed(`const ${CTYPE[dtype]}*`, 'x', 'y', 'd', 'g'),
      out: `${CTYPE[dtype]}*`,
      ...typed('i64', 'batch', 'n', 'm', 'k'),
      far: PAIRS,
      flow: PAIRS,
    },
    call: `row_distances_backward<${p}>`,
  }),
});
/** Rows and columns of a tile. */
const TILE = 64;
/** Rows and columns of a tile of what flows back: BACK_ROWS, BACK_DEEP. */
const BACK = [16, 64] as const;

type Plan = FamilyPlan<RowOf<'distance'>, DistanceParams>;
const backward: Plan = (plan, _row, [x, y, d, g], [out], { p }) => {
  if (out.layout.size === 0) return;
  const [n, k] = x.layout.shape.slice(-2);
  const m = y.layout.shape[y.layout.rank - 2];
  const batch = sizeOf(x.layout.shape.slice(0, -2));
  // Matrices may lie in any way where there is one of each: transposed ones, and one number for all.
  const pairs = (v: View): View => (batch === 1 ? v : plan.dense(v));
  const lie = ({ layout: { strides, rank } }: View) => ({
    batch: batch === 1 ? 0 : n * m,
    row: strides[rank - 2],
    column: strides[rank - 1],
  });
  const [far, flow] = [pairs(d), pairs(g)];
  const grid = clamp(ceilDiv(n, BACK[0]) * ceilDiv(k, BACK[1]) * batch, 1, 2 ** 22);
  const args = { ...places('x', 'y', 'd', 'g', 'out'), batch, n, m, k, far: lie(far), flow: lie(flow) };
  const buffers = { x: plan.dense(x), y: plan.dense(y), d: far, g: flow, out };
  plan.run(single(launch(backwards, { p, dtype: x.dtype as 'f32' | 'f64' }, grid, 256, args)), buffers);
};

export const planDistance: Plan = (plan, row, inputs, outputs, params) => {
  if (row.kernel.kind === 'backward') return backward(plan, row, inputs, outputs, params);
  const [[x, y], [out], { p }] = [inputs, outputs, params];
  if (out.layout.size === 0) return;
  const [n, k] = x.layout.shape.slice(-2);
  const m = y.layout.shape[y.layout.rank - 2];
  const batch = sizeOf(x.layout.shape.slice(0, -2));
  const grid = clamp(ceilDiv(n, TILE) * ceilDiv(m, TILE) * batch, 1, 2 ** 22);
  const args = { ...places('x', 'y', 'out'), batch, n, m, k };
  const variant = { p, dtype: x.dtype as 'f32' | 'f64' };
  plan.run(single(launch(distances, variant, grid, 256, args)), { x: plan.dense(x), y: plan.dense(y), out });
};

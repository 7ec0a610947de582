// Distances between rows, all with all: kernels/distance.hip.
import { sizeOf } from '../../base/shape.js';
import { CTYPE, KernelModule, typed } from '../../kernels/declare.js';
import type { DistanceParams } from '../../ops/distance.js';
import type { RowOf } from '../../ops/op.js';
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
/** Rows and columns of a tile. */
const TILE = 64;

export const planDistance: FamilyPlan<RowOf<'distance'>, DistanceParams> = (plan, _row, [x, y], [out], { p }) => {
  if (out.layout.size === 0) return;
  const [n, k] = x.layout.shape.slice(-2);
  const m = y.layout.shape[y.layout.rank - 2];
  const batch = sizeOf(x.layout.shape.slice(0, -2));
  const grid = clamp(ceilDiv(n, TILE) * ceilDiv(m, TILE) * batch, 1, 2 ** 22);
  const args = { ...places('x', 'y', 'out'), batch, n, m, k };
  const variant = { p, dtype: x.dtype as 'f32' | 'f64' };
  plan.run(single(launch(distances, variant, grid, 256, args)), { x: plan.dense(x), y: plan.dense(y), out });
};

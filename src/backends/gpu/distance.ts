// Distances between rows, all with all: kernels/distance.hip.
import { bytesOf } from '../../base/dtype.js';
import { sizeOf } from '../../base/shape.js';
import { CTYPE, KernelModule, Struct, typed } from '../../kernels/declare.js';
import type { DistanceParams } from '../../ops/distance.js';
import type { RowOf } from '../../ops/op.js';
import type { View } from '../backend.js';
import { at, ceilDiv, clamp, type FamilyPlan, launch, type Launch, places, single, strideGrid } from './plan.js';

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
    // Doubles need all the registers there are.
    threads: dtype === 'f32' ? { constant: 'BACK_BOUND', threads: 256 } : 256,
    params: {
      ...typed(`const ${CTYPE[dtype]}*`, 'x', 'y', 'd', 'g'),
      out: `${CTYPE[dtype]}*`,
      ...typed('i64', 'batch', 'n', 'm', 'k', 'parts'),
      far: PAIRS,
      flow: PAIRS,
    },
    call: `row_distances_backward<${p}>`,
  }),
});
const sumParts = DISTANCE.forTypes(['f32', 'f64'], 'sum_parts', (T) => ({
  threads: 256,
  params: { parts: `const ${T}*`, out: `${T}*`, numel: 'u64', count: 'u32' },
  call: 'sum_parts',
}));
/** Rows and columns of a tile. */
const TILE = 64;
/** Rows (bytes of a column) and columns of a tile of what flows back: back_rows, BACK_DEEP. */
const [BACK_BYTES, BACK_DEEP] = [128, 64];
/** Others that a part of them has at least. */
const SHARED = 512;

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
  const tiles = ceilDiv(n, BACK_BYTES / bytesOf(x.dtype)) * ceilDiv(k, BACK_DEEP) * batch;
  // Two blocks a multiprocessor: where tiles are fewer, several look at a part of the others each.
  const wanted = Math.floor((2 * plan.device.multiprocessors) / tiles);
  const parts = clamp(wanted, 1, Math.max(1, Math.floor(m / SHARED)));
  const dtype = x.dtype as 'f32' | 'f64';
  const numel = out.layout.size;
  const to = parts > 1 ? at('scratch') : at('out');
  const args = { ...places('x', 'y', 'd', 'g'), out: to, batch, n, m, k, parts, far: lie(far), flow: lie(flow) };
  const launches: Launch[] = [launch(backwards, { p, dtype }, clamp(tiles * parts, 1, 2 ** 22), 256, args)];
  if (parts > 1) {
    const sums = { parts: at('scratch'), out: at('out'), numel, count: parts };
    launches.push(launch(sumParts, { dtype }, strideGrid(numel), 256, sums));
  }
  const scratch = parts > 1 ? parts * numel * bytesOf(dtype) : 0;
  plan.run({ launches, scratch }, { x: plan.dense(x), y: plan.dense(y), d: far, g: flow, out });
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

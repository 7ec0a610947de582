// Pictures read at the places of a grid, and the gradients: kernels/grid.hip.
import { bytesOf } from '../../base/dtype.js';
import { sizeOf } from '../../base/shape.js';
import { CTYPE, KernelModule, Struct, typed } from '../../kernels/declare.js';
import { GRID_DTYPES, GRID_PADDINGS, type GridParams } from '../../ops/grid.js';
import type { RowOf } from '../../ops/op.js';
import type { View } from '../backend.js';
import { at, ceilDiv, type FamilyPlan, launch, places, type Planner, single, strideGrid } from './plan.js';
import { sortLaunch } from './sort.js';

export const GRID = new KernelModule('grid');
const SIZES = new Struct('Grid', {
  ...typed('i64', 'n', 'c', 'h', 'w', 'count'),
  ...typed('i32', 'padding', 'corners'),
});
const MODES = ['bilinear', 'nearest'] as const;
const isNearest = (mode: (typeof MODES)[number]): boolean => mode === 'nearest';
type Picture = (typeof GRID_DTYPES)[number];
const BLOCK = 512;
/** Where a block has a multiprocessor for itself. */
const INPUT_BLOCK = 1024;

const reads = GRID.declare({
  each: { mode: MODES, dtype: GRID_DTYPES },
  symbol: ({ mode, dtype }) => `grid_planes_${mode}_${dtype}`,
  body: ({ mode, dtype: d }) => ({
    threads: BLOCK,
    params: {
      ...{ src: `const ${CTYPE[d]}*`, grid: 'const float*', dst: `${CTYPE[d]}*` },
      each: 'u32',
      s: SIZES,
    },
    call: `grid_planes<${isNearest(mode)}>`,
  }),
});
const readsEach = GRID.declare({
  each: { mode: MODES, dtype: GRID_DTYPES },
  symbol: ({ mode, dtype }) => `grid_each_${mode}_${dtype}`,
  body: ({ mode, dtype: d }) => ({
    threads: 256,
    params: { src: `const ${CTYPE[d]}*`, grid: 'const float*', dst: `${CTYPE[d]}*`, s: SIZES },
    call: `grid_each<${isNearest(mode)}>`,
  }),
});
const keysOf = GRID.declare({
  each: { mode: MODES },
  symbol: ({ mode }) => `grid_keys_${mode}`,
  body: ({ mode }) => ({
    threads: 256,
    params: { grid: 'const float*', keys: 'u32*', s: SIZES },
    call: `grid_keys<${isNearest(mode)}>`,
  }),
});
const startsOf = GRID.declare({
  each: { mode: MODES },
  symbol: ({ mode }) => `grid_starts_${mode}`,
  body: ({ mode }) => ({
    threads: 256,
    params: { sorted: 'const u32*', starts: 'u32*', s: SIZES },
    call: `grid_starts<${isNearest(mode)}>`,
  }),
});
const spotsOf = GRID.declare({
  each: {},
  symbol: () => 'grid_spots_sorted',
  body: () => ({
    threads: 256,
    params: {
      ...{ grid: 'const float*', order: 'const u32*', spots: 'Spot<float>*' },
      s: SIZES,
    },
    call: 'grid_spots',
  }),
});
const gathered = (d: Picture) =>
  ({
    grad: `const ${CTYPE[d]}*`,
    spots: 'const Spot<float>*',
    starts: 'const u32*',
    dx: `${CTYPE[d]}*`,
  }) as const;
const input = GRID.declare({
  each: { mode: MODES, dtype: GRID_DTYPES },
  symbol: ({ mode, dtype }) => `grid_input_${mode}_${dtype}`,
  body: ({ mode, dtype }) => ({
    threads: INPUT_BLOCK,
    params: { ...gathered(dtype), each: 'u32', s: SIZES },
    call: `grid_input<${isNearest(mode)}>`,
  }),
});
const inputEach = GRID.declare({
  each: { mode: MODES, dtype: GRID_DTYPES },
  symbol: ({ mode, dtype }) => `grid_input_each_${mode}_${dtype}`,
  body: ({ mode, dtype }) => ({
    threads: 256,
    params: { ...gathered(dtype), s: SIZES },
    call: `grid_input_each<${isNearest(mode)}>`,
  }),
});
const moved = GRID.declare({
  each: { dtype: GRID_DTYPES },
  symbol: ({ dtype }) => `grid_moved_${dtype}`,
  body: ({ dtype: d }) => ({
    threads: 256,
    params: {
      ...{ src: `const ${CTYPE[d]}*`, grid: 'const float*', grad: `const ${CTYPE[d]}*` },
      dst: 'float*',
      s: SIZES,
    },
    call: 'grid_moved',
  }),
});

/** Planes of a thread: GRID_PLANES. */
const PLANES = 4;
/** Shared memory that leaves room for a second block. */
const SHARED = 104 << 10;
/** How many planes of so many bytes a block takes, where it leaves `room` to others if it can; 0 where none fits. */
function planesOfBlock(p: Planner, bytes: number, room = SHARED): number {
  const most = p.device.sharedPerBlockOptin;
  if (bytes > most) return 0;
  return Math.min(PLANES, Math.max(1, Math.floor(Math.min(room, most) / bytes)));
}

/** Places in the order of the cells that they lie in, for each picture. */
function planSpots(p: Planner, grid: View, mode: (typeof MODES)[number], s: Record<string, number>) {
  const { n, h, w, count } = s;
  const cells = mode === 'nearest' ? h * w : (h + 1) * (w + 1);
  const [keys, sorted, order] = [0, 1, 2].map(() => p.make([n, count], 'u32'));
  const starts = p.make([n, cells + 1], 'u32');
  const spots = p.make([16 * n * count], 'u8');
  const threads = strideGrid(n * count);
  p.run(single(launch(keysOf, { mode }, threads, 256, { ...places('grid', 'keys'), s })), { grid, keys });
  const by = { src: at('keys'), indices: at('order'), values: at('sorted'), scratch: at('scratch') };
  p.run(sortLaunch('u32', n, count, count, false, p.device, by), { keys, order, sorted });
  const begin = launch(startsOf, { mode }, strideGrid(n * (cells + 1)), 256, { ...places('sorted', 'starts'), s });
  p.run(single(begin), { sorted, starts });
  const put = launch(spotsOf, {}, threads, 256, { ...places('grid', 'order', 'spots'), s });
  p.run(single(put), { grid, order, spots });
  return { spots, starts };
}

export const planGrid: FamilyPlan<RowOf<'resample'>, GridParams> = (p, { kernel: { kind } }, inputs, [out], params) => {
  const { mode, padding, align, size } = params;
  const [x, grid] = kind === 'gridInput' ? [inputs[1], inputs[0]] : inputs;
  const [n, c] = x.layout.shape;
  const [h, w] = kind === 'gridInput' ? size : x.layout.shape.slice(2);
  const count = sizeOf(grid.layout.shape.slice(1, -1));
  const s = { n, c, h, w, count, padding: GRID_PADDINGS.indexOf(padding), corners: align ? 1 : 0 };
  const dtype = x.dtype as Picture;
  if (out.layout.size === 0) return;
  if (kind === 'gridInput') {
    if (count === 0) return p.fill(out, 0);
    const found = planSpots(p, p.dense(grid), mode, s);
    const buffers = { grad: p.dense(x), ...found, dx: out };
    const args = { ...places('grad', 'spots', 'starts', 'dx'), s };
    // Lists of places are read once for all planes of a block, which then has the multiprocessor for itself.
    const each = Math.min(c, planesOfBlock(p, count * bytesOf(dtype), p.device.sharedPerBlockOptin));
    if (each === 0)
      return p.run(
        single(launch(inputEach, { mode, dtype }, strideGrid(n * ceilDiv(c, PLANES) * h * w), 256, args)),
        buffers,
      );
    const shared = Math.ceil((each * count * bytesOf(dtype)) / 16) * 16;
    return p.run(
      single(
        launch(
          input,
          { mode, dtype },
          n * ceilDiv(c, each),
          shared > SHARED ? INPUT_BLOCK : BLOCK,
          { ...args, each },
          shared,
        ),
      ),
      buffers,
    );
  }
  const [src, told] = [p.dense(x), p.dense(grid)];
  if (kind === 'gridMoved') {
    const args = { ...places('src', 'grid', 'grad', 'dst'), s };
    const buffers = { src, grid: told, grad: p.dense(inputs[2]), dst: out };
    return p.run(single(launch(moved, { dtype }, strideGrid(n * count), 256, args)), buffers);
  }
  const args = { ...places('src', 'grid', 'dst'), s };
  const each = Math.min(c, planesOfBlock(p, h * w * bytesOf(dtype)));
  const shared = Math.ceil((each * h * w * bytesOf(dtype)) / 16) * 16;
  // Planes that are read here and there are not worth fetching whole.
  const l =
    each > 0 && 2 * count >= h * w
      ? launch(reads, { mode, dtype }, n * ceilDiv(c, each), BLOCK, { ...args, each }, shared)
      : launch(readsEach, { mode, dtype }, strideGrid(n * ceilDiv(c, 2 * PLANES) * count), 256, args);
  p.run(single(l), { src, grid: told, dst: out });
};

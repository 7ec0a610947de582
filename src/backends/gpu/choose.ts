// The first of a row in the order of a sort: kernels/choose.hip; and the plan of sorts.
import { bytesOf, type DType, kernelDType } from '../../base/dtype.js';
import { ALL_TYPES, KernelModule, typed } from '../../kernels/declare.js';
import type { RowOf } from '../../ops/op.js';
import {
  aligned16,
  at,
  ceilDiv,
  clamp,
  type FamilyPlan,
  type Launch,
  launch,
  type Launches,
  permuted,
  places,
  single,
  strideGrid,
  type Target,
} from './plan.js';
import { LONGEST_IN_BLOCK, NETWORK_UPTO, sortLaunch, takeSorted } from './sort.js';

export const CHOOSE = new KernelModule('choose');
/** The first of rows that a block holds. */
const chooseRows = CHOOSE.forTypes(ALL_TYPES, 'choose_rows', (T) => ({
  threads: 256,
  params: {
    ...{ src: `const ${T}*`, indices: 'u32*', rows: 'i64' },
    ...typed('u32', 'cols', 'keep', 'descending', 'packed'),
  },
  call: 'choose_rows',
}));
const chooseRank = CHOOSE.forTypes(ALL_TYPES, 'choose_rank', (T) => ({
  threads: 256,
  params: {
    ...{ src: `const ${T}*`, indices: 'u32*', rows: 'i64' },
    ...typed('u32', 'cols', 'rank', 'nan', 'packed'),
  },
  call: 'choose_rank',
}));
const takeRank = CHOOSE.forTypes(ALL_TYPES, 'take_rank', (T) => ({
  threads: 256,
  params: {
    ...{ src: `const ${T}*`, order: 'const u32*', indices: 'u32*' },
    ...{ ...typed('i64', 'rows', 'cols', 'rank'), nan: 'u32' },
  },
  call: 'take_rank',
}));
/** How many of a row that a block holds it finds at most. */
const MOST_CHOSEN = 256;

// ---- long rows ----

/** The highest bytes of the last key that is kept, how many of those that begin so, and how many are below. */
const KNOWN_BYTES = 16;
const chooseCount = CHOOSE.forTypes(ALL_TYPES, 'choose_count', (T) => ({
  threads: 256,
  params: {
    ...{ src: `const ${T}*`, known: 'const Chosen*', counts: 'u32*', cols: 'i64' },
    ...typed('u32', 'blocks', 'shift', 'first', 'descending'),
  },
  call: 'choose_count',
}));
const chooseByte = CHOOSE.declare({
  each: {},
  symbol: () => 'choose_bytes',
  body: () => ({
    threads: 256,
    params: { known: 'Chosen*', counts: 'u32*', ...typed('u32', 'shift', 'first', 'keep') },
    call: 'choose_byte',
  }),
});
const chooseTiles = CHOOSE.forTypes(ALL_TYPES, 'choose_tiles', (T) => ({
  threads: 256,
  params: {
    ...{ src: `const ${T}*`, known: 'const Chosen*', found: 'u32*', cols: 'i64' },
    ...typed('u32', 'tiles', 'descending'),
  },
  call: 'choose_tiles',
}));
const chooseStarts = CHOOSE.declare({
  each: {},
  symbol: () => 'choose_offsets',
  body: () => ({ threads: 1024, params: { found: 'u32*', tiles: 'u32' }, call: 'choose_starts' }),
});
const chooseWrite = CHOOSE.forTypes(ALL_TYPES, 'choose_write', (T) => ({
  threads: 256,
  params: {
    ...{ src: `const ${T}*`, known: 'const Chosen*', found: 'const u32*', values: `${T}*`, indices: 'u32*' },
    ...{ cols: 'i64', ...typed('u32', 'tiles', 'keep', 'descending') },
  },
  call: 'choose_write',
}));
const clear = CHOOSE.declare({
  each: {},
  symbol: () => 'choose_clear',
  body: () => ({ threads: 256, params: { counts: 'u32*', n: 'u64' }, call: 'clear_counts' }),
});
const CHOOSE_TILE = 4096;

/**
 * The indices of the first `keep` of each sorted row: of few of a long one without sorting it. Buffers: src, indices.
 */
export function firstLaunch(
  elements: DType,
  rowCount: number,
  cols: number,
  keep: number,
  down: boolean,
  target: Target,
  aligned = false,
): Launches {
  const dtype = kernelDType(elements);
  const bytes = bytesOf(dtype);
  const descending = down ? 1 : 0;
  if (cols <= LONGEST_IN_BLOCK) {
    if (cols <= NETWORK_UPTO || keep > MOST_CHOSEN || keep > cols / 4 || keep === 0)
      return sortLaunch(elements, rowCount, cols, keep, down, target);
    const packed = aligned && bytes === 4 && cols % 4 === 0 ? 1 : 0;
    const args = { ...places('src', 'indices'), rows: rowCount, cols, keep, descending, packed };
    return single(launch(chooseRows, { dtype }, clamp(rowCount, 1, 2 ** 22), 256, args));
  }
  if (keep > LONGEST_IN_BLOCK || keep > cols / 4) return sortLaunch(elements, rowCount, cols, keep, down, target);
  const tiles = ceilDiv(cols, CHOOSE_TILE);
  const sizes = [KNOWN_BYTES, 1024, tiles * 8, keep * bytes, keep * 4, keep * 4].map(
    (size) => ceilDiv(rowCount * size, 256) * 256,
  );
  const starts = sizes.map((_, i) => sizes.slice(0, i).reduce((a, b) => a + b, 0));
  const [known, counts, found, values, chosen, order] = starts.map((offset) => at('scratch', offset));
  const src = at('src');
  const blocks = clamp(ceilDiv(cols, 8192), 1, Math.max(1, ceilDiv(8 * target.multiprocessors, rowCount)));
  const launches: Launch[] = [launch(clear, {}, strideGrid(rowCount * 256), 256, { counts, n: rowCount * 256 })];
  for (let byte = bytes - 1; byte >= 0; byte--) {
    const step = { shift: byte * 8, first: byte === bytes - 1 ? 1 : 0 };
    launches.push(
      launch(chooseCount, { dtype }, blocks * rowCount, 256, { src, known, counts, cols, blocks, ...step, descending }),
      launch(chooseByte, {}, rowCount, 256, { known, counts, ...step, keep }),
    );
  }
  const grid = tiles * rowCount;
  const kept = { values, indices: chosen, cols, tiles, keep, descending };
  const sorted = sortLaunch(elements, rowCount, keep, keep, down, target, {
    src: values,
    indices: order,
    values: 0,
    scratch: at('scratch'),
  });
  launches.push(
    launch(chooseTiles, { dtype }, grid, 256, { src, known, found, cols, tiles, descending }),
    launch(chooseStarts, {}, rowCount, 1024, { found, tiles }),
    launch(chooseWrite, { dtype }, grid, 256, { src, known, found, ...kept }),
    ...sorted.launches,
    launch(takeSorted, { bytes: 4 }, strideGrid(rowCount * keep), 256, {
      ...{ src: chosen, order, dst: at('indices'), rows: rowCount, cols: keep, keep },
    }),
  );
  return { launches, scratch: starts[5] + sizes[5] };
}
/**
 * The index at one place of the order of each row, or with `nan` that of the first NaN where there is one. Buffers:
 * src, indices.
 */
export function rankLaunch(
  elements: DType,
  rowCount: number,
  cols: number,
  rank: number,
  nan: boolean,
  target: Target,
  aligned = false,
): Launches {
  const dtype = kernelDType(elements);
  const sizes = { rows: rowCount, cols, rank, nan: nan ? 1 : 0 };
  if (cols > NETWORK_UPTO && cols <= LONGEST_IN_BLOCK) {
    const packed = aligned && bytesOf(dtype) === 4 && cols % 4 === 0 ? 1 : 0;
    const args = { ...places('src', 'indices'), ...sizes, packed };
    return single(launch(chooseRank, { dtype }, clamp(rowCount, 1, 2 ** 22), 256, args));
  }
  // The order of all is at the front of the scratch memory.
  const orderBytes = ceilDiv(rowCount * cols, 4) * 16;
  const order = at('scratch');
  const to = { src: at('src'), indices: order, values: 0, scratch: at('scratch', orderBytes) } as const;
  const sorted = sortLaunch(elements, rowCount, cols, cols, false, target, to);
  const args = { ...places('src', 'indices'), order, ...sizes };
  const taken = launch(takeRank, { dtype }, strideGrid(rowCount), 256, args);
  return { launches: [...sorted.launches, taken], scratch: orderBytes + sorted.scratch };
}

interface Params {
  readonly dim: number;
  readonly descending?: boolean;
  /** How many of each row are wanted; all where it is left out. */
  readonly keep?: number;
  /** The one place of the order that is asked for, and whether NaN takes it. */
  readonly rank?: number;
  readonly nan?: boolean;
}
/** Indices that sort along a dimension. */
export const planSort: FamilyPlan<RowOf<'sort'>, Params> = (p, row, [x], outputs, params) => {
  const { shape, rank } = x.layout;
  const { dim, descending = false, nan = false } = params;
  const last = rank === 0 || dim === rank - 1;
  const order = last ? [] : [...shape.map((_, i) => i).filter((i) => i !== dim), dim];
  const src = p.dense(last ? x : permuted(x, order));
  const targets = outputs.map((out) => (last ? out : permuted(out, order)));
  const made = last ? outputs : targets.map((to) => p.make(to.layout.shape, to.dtype));
  const cols = rank === 0 ? 1 : shape[dim];
  const [rowCount, aligned] = [x.layout.size / cols, aligned16(src)];
  const indices = made[made.length - 1];
  if (row.kernel?.values) {
    const to = { ...places('src', 'indices', 'values', 'scratch') };
    p.run(sortLaunch(x.dtype, rowCount, cols, cols, descending, p.device, to), { src, indices, values: made[0] });
  } else if (params.rank !== undefined)
    p.run(rankLaunch(x.dtype, rowCount, cols, params.rank, nan, p.device, aligned), { src, indices });
  else {
    const keep = params.keep ?? cols;
    p.run(firstLaunch(x.dtype, rowCount, cols, keep, descending, p.device, aligned), { src, indices });
  }
  if (!last) made.forEach((from, i) => p.copy(from, targets[i]));
};

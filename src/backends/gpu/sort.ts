// Sorting rows: kernels/sort.hip.
import { bytesOf, type DType, kernelDType } from '../../base/dtype.js';
import { ALL_TYPES, KernelModule, WORDS, typed } from '../../kernels/declare.js';
import type { RowOf } from '../../ops/op.js';
import {
  at,
  ceilDiv,
  clamp,
  type FamilyPlan,
  type Launch,
  launch,
  type Launches,
  permuted,
  type Pointer,
  powerAbove,
  single,
  strideGrid,
  type Target,
} from './plan.js';
import { rowGrid } from './row-shapes.js';

export const SORT = new KernelModule('sort');
/**
 * Rows up to 4096 (8-byte keys: 2048) in one block: a bitonic network; writes the first `keep` indices, and values
 * where asked.
 */
const rows = SORT.forTypes(ALL_TYPES, 'sort_rows', (T) => ({
  threads: 1024,
  params: {
    src: `const ${T}*`,
    indices: 'u32*',
    values: `${T}*`,
    ...typed('i64', 'rows', 'cols', 'keep'),
    descending: 'u32',
    lanes: 'u32',
  },
  call: 'sort_rows',
}));
/** Longer rows, 8 bits of the keys a pass: count, scan, scatter. The first pass reads the values and makes the keys. */
const countFirst = SORT.forTypes(ALL_TYPES, 'radix_count_first', (T) => ({
  threads: 256,
  params: { src: `const ${T}*`, counts: 'u32*', cols: 'i64', tiles: 'i64', descending: 'u32' },
  call: 'radix_count',
  given: `KeysOf<${T}>{src, descending != 0}, counts, cols, tiles, 0`,
}));
const SCATTER_THREADS = { constant: 'SCATTER_THREADS', threads: 512 } as const;
const scatterFirst = SORT.forTypes(ALL_TYPES, 'radix_scatter_first', (T) => ({
  threads: SCATTER_THREADS,
  params: {
    src: `const ${T}*`,
    starts: 'const u32*',
    totals: 'const u32*',
    keys_out: `key_t_of<${T}>*`,
    order_out: 'u32*',
    cols: 'i64',
    tiles: 'i64',
    descending: 'u32',
  },
  call: 'radix_scatter',
  given: `KeysOf<${T}>{src, descending != 0}, (const u32*)nullptr, starts, totals, keys_out, order_out, cols, tiles, 0`,
}));
const BYTES = [1, 2, 4, 8] as const;
const count = SORT.declare({
  each: { bytes: BYTES },
  symbol: ({ bytes }) => `radix_count_k${bytes}`,
  body: ({ bytes }) => ({
    threads: 256,
    params: { keys: `const ${WORDS[bytes]}*`, counts: 'u32*', cols: 'i64', tiles: 'i64', shift: 'u32' },
    call: 'radix_count',
    given: `MadeKeys<${WORDS[bytes]}>{keys}, counts, cols, tiles, shift`,
  }),
});
const scatter = SORT.declare({
  each: { bytes: BYTES },
  symbol: ({ bytes }) => `radix_scatter_k${bytes}`,
  body: ({ bytes }) => ({
    threads: SCATTER_THREADS,
    params: {
      keys: `const ${WORDS[bytes]}*`,
      order: 'const u32*',
      starts: 'const u32*',
      totals: 'const u32*',
      keys_out: `${WORDS[bytes]}*`,
      order_out: 'u32*',
      cols: 'i64',
      tiles: 'i64',
      shift: 'u32',
    },
    call: 'radix_scatter',
    given: `MadeKeys<${WORDS[bytes]}>{keys}, order, starts, totals, keys_out, order_out, cols, tiles, shift`,
  }),
});
const scan = SORT.declare({
  each: {},
  symbol: () => 'radix_scan',
  body: () => ({ threads: 1024, params: { counts: 'u32*', size: 'i64' }, call: 'radix_starts' }),
});
/** The same for rows of many tiles: a block a byte. */
const spread = SORT.declare({
  each: {},
  symbol: () => 'radix_totals',
  body: () => ({ threads: 256, params: { counts: 'u32*', totals: 'u32*', tiles: 'i64' }, call: 'radix_spread' }),
});
/** Tiles from which on a block a byte beats one a row, and rows whose blocks are enough by themselves. */
const [MANY_TILES, MANY_ROWS] = [8, 1024];
/** Values in the order of the indices, and the first indices of each row. */
const takeSorted = SORT.declare({
  each: { bytes: BYTES },
  symbol: ({ bytes }) => `take_sorted_b${bytes}`,
  body: ({ bytes }) => ({
    threads: 256,
    params: {
      src: `const ${WORDS[bytes]}*`,
      order: 'const u32*',
      dst: `${WORDS[bytes]}*`,
      ...typed('u64', 'rows', 'cols', 'keep'),
    },
    call: 'take_values',
  }),
});
const takeFront = SORT.declare({
  each: {},
  symbol: () => 'take_front',
  body: () => ({
    threads: 256,
    params: { order: 'const u32*', dst: 'u32*', rows: 'u64', cols: 'u64', keep: 'u64' },
    call: 'take_indices',
  }),
});

/** Where a sort reads and writes; values are 0 when only indices are wanted. */
export interface SortPlaces {
  readonly src: Pointer;
  readonly indices: Pointer;
  readonly values: Pointer | 0;
  readonly scratch: Pointer;
}
const PLACES: SortPlaces = { src: at('src'), indices: at('indices'), values: 0, scratch: at('scratch') };

/** Longest row that is sorted inside a block. */
const longestInBlock = (bytes: number): number => (bytes === 8 ? 2048 : 4096);

/** The first `keep` of each sorted row of contiguous [rows, cols]: indices (u32) and, where asked for, values. */
export function sortLaunch(
  elements: DType,
  rowCount: number,
  cols: number,
  keep: number,
  down: boolean,
  { src, indices, values, scratch }: SortPlaces = PLACES,
): Launches {
  const dtype = kernelDType(elements);
  const bytes = bytesOf(dtype) as (typeof BYTES)[number];
  const descending = down ? 1 : 0;
  if (cols <= longestInBlock(bytes)) {
    const lanes = powerAbove(ceilDiv(cols, 4));
    const { grid, block } = rowGrid(rowCount, lanes);
    const shared = lanes > 32 ? lanes * 4 * (bytes === 8 ? 16 : 8) : 0;
    const args = { src, indices, values, rows: rowCount, cols, keep, descending, lanes };
    return single(launch(rows, { dtype }, grid, block, args, shared));
  }
  const tiles = ceilDiv(cols, longestInBlock(bytes));
  const round = (n: number): number => ceilDiv(n, 16) * 16;
  const numel = rowCount * cols;
  const within = (offset: number): Pointer => at(scratch.buffer, scratch.offset + offset);
  // scratch: two key buffers, two order buffers, the counts.
  const keysBytes = round(numel * bytes);
  const ordersAt = 2 * keysBytes;
  const keys = [within(0), within(keysBytes)];
  const orders = [within(ordersAt), within(ordersAt + round(numel * 4))];
  const countsAt = ordersAt + 2 * round(numel * 4);
  const totalsAt = countsAt + rowCount * 256 * tiles * 4;
  const [counts, totals] = [within(countsAt), within(totalsAt)];
  const many = tiles > MANY_TILES && rowCount < MANY_ROWS;
  const launches: Launch[] = [];
  for (let pass = 0; pass < bytes; pass++) {
    const [from, to] = [pass % 2, 1 - (pass % 2)];
    const last = pass === bytes - 1;
    const results = {
      starts: counts,
      totals: many ? totals : 0,
      keys_out: last ? 0 : keys[to],
      order_out: last && keep === cols ? indices : orders[to],
      cols,
      tiles,
    };
    const shift = pass * 8;
    const blocks = tiles * rowCount;
    launches.push(
      pass === 0
        ? launch(countFirst, { dtype }, blocks, 256, { src, counts, cols, tiles, descending })
        : launch(count, { bytes }, blocks, 256, { keys: keys[from], counts, cols, tiles, shift }),
      many
        ? launch(spread, {}, 256 * rowCount, 256, { counts, totals, tiles })
        : launch(scan, {}, rowCount, 1024, { counts, size: 256 * tiles }),
      pass === 0
        ? launch(scatterFirst, { dtype }, blocks, 512, { src, ...results, descending })
        : launch(scatter, { bytes }, blocks, 512, { keys: keys[from], order: orders[from], ...results, shift }),
    );
    if (!last) continue;
    const order = keep === cols ? indices : orders[to];
    const kept = { order, rows: rowCount, cols, keep };
    const grid = strideGrid(rowCount * keep);
    if (keep !== cols) launches.push(launch(takeFront, {}, grid, 256, { ...kept, dst: indices }));
    if (values !== 0) launches.push(launch(takeSorted, { bytes }, grid, 256, { ...kept, src, dst: values }));
  }
  return { launches, scratch: totalsAt + (many ? rowCount * 1024 : 0) };
}

// ---- the first of long rows ----

/** The highest bytes of the last key that is kept, how many of those that begin so, and how many are below. */
const KNOWN_BYTES = 16;
const chooseCount = SORT.forTypes(ALL_TYPES, 'choose_count', (T) => ({
  threads: 256,
  params: {
    ...{ src: `const ${T}*`, known: 'const Chosen*', counts: 'u32*', cols: 'i64' },
    ...typed('u32', 'blocks', 'shift', 'first', 'descending'),
  },
  call: 'choose_count',
}));
const chooseByte = SORT.declare({
  each: {},
  symbol: () => 'choose_bytes',
  body: () => ({
    threads: 256,
    params: { known: 'Chosen*', counts: 'u32*', ...typed('u32', 'shift', 'first', 'keep') },
    call: 'choose_byte',
  }),
});
const chooseTiles = SORT.forTypes(ALL_TYPES, 'choose_tiles', (T) => ({
  threads: 256,
  params: {
    ...{ src: `const ${T}*`, known: 'const Chosen*', found: 'u32*', cols: 'i64' },
    ...typed('u32', 'tiles', 'descending'),
  },
  call: 'choose_tiles',
}));
const chooseStarts = SORT.declare({
  each: {},
  symbol: () => 'choose_offsets',
  body: () => ({ threads: 1024, params: { found: 'u32*', tiles: 'u32' }, call: 'choose_starts' }),
});
const chooseWrite = SORT.forTypes(ALL_TYPES, 'choose_write', (T) => ({
  threads: 256,
  params: {
    ...{ src: `const ${T}*`, known: 'const Chosen*', found: 'const u32*', values: `${T}*`, indices: 'u32*' },
    ...{ cols: 'i64', ...typed('u32', 'tiles', 'keep', 'descending') },
  },
  call: 'choose_write',
}));
const clear = SORT.declare({
  each: {},
  symbol: () => 'choose_clear',
  body: () => ({ threads: 256, params: { counts: 'u32*', n: 'u64' }, call: 'clear_counts' }),
});
const CHOOSE_TILE = 4096;

/** The indices of the first `keep` of each sorted row: of few of a long one without sorting it. Buffers: src, indices. */
export function firstLaunch(
  elements: DType,
  rowCount: number,
  cols: number,
  keep: number,
  down: boolean,
  target: Target,
): Launches {
  const dtype = kernelDType(elements);
  const bytes = bytesOf(dtype) as (typeof BYTES)[number];
  const longest = longestInBlock(bytes);
  if (cols <= longest || keep > longest || keep > cols / 4) return sortLaunch(elements, rowCount, cols, keep, down);
  const descending = down ? 1 : 0;
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
  const sorted = sortLaunch(elements, rowCount, keep, keep, down, {
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
interface Params {
  readonly dim: number;
  readonly descending: boolean;
  /** How many of each row are wanted; all where it is left out. */
  readonly keep?: number;
}
/** Indices that sort along a dimension. */
export const planSort: FamilyPlan<RowOf<'sort'>, Params> = (p, _row, [x], [out], { dim, descending, keep }) => {
  const { shape, rank } = x.layout;
  const last = rank === 0 || dim === rank - 1;
  const order = last ? [] : [...shape.map((_, i) => i).filter((i) => i !== dim), dim];
  const src = p.dense(last ? x : permuted(x, order));
  const target = last ? out : permuted(out, order);
  const indices = last ? out : p.make(target.layout.shape, 'u32');
  const cols = rank === 0 ? 1 : shape[dim];
  p.run(firstLaunch(x.dtype, x.layout.size / cols, cols, keep ?? cols, descending, p.device), { src, indices });
  if (!last) p.copy(indices, target);
};

// Sorting rows: kernels/sort.hip.
import { bytesOf, type DType, kernelDType } from '../../base/dtype.js';
import { ALL_TYPES, KernelModule, WORDS, typed } from '../../kernels/declare.js';
import type { RowOf } from '../../ops/op.js';
import {
  at,
  ceilDiv,
  type FamilyPlan,
  type Launch,
  launch,
  type Launches,
  permuted,
  type Pointer,
  powerAbove,
  single,
  strideGrid,
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
    keys_out: `key_t_of<${T}>*`,
    order_out: 'u32*',
    cols: 'i64',
    tiles: 'i64',
    descending: 'u32',
  },
  call: 'radix_scatter',
  given: `KeysOf<${T}>{src, descending != 0}, (const u32*)nullptr, starts, keys_out, order_out, cols, tiles, 0`,
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
      keys_out: `${WORDS[bytes]}*`,
      order_out: 'u32*',
      cols: 'i64',
      tiles: 'i64',
      shift: 'u32',
    },
    call: 'radix_scatter',
    given: `MadeKeys<${WORDS[bytes]}>{keys}, order, starts, keys_out, order_out, cols, tiles, shift`,
  }),
});
const scan = SORT.declare({
  each: {},
  symbol: () => 'radix_scan',
  body: () => ({ threads: 1024, params: { counts: 'u32*', size: 'i64' }, call: 'radix_starts' }),
});
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
  const counts = within(countsAt);
  const launches: Launch[] = [];
  for (let pass = 0; pass < bytes; pass++) {
    const [from, to] = [pass % 2, 1 - (pass % 2)];
    const last = pass === bytes - 1;
    const results = {
      starts: counts,
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
      launch(scan, {}, rowCount, 1024, { counts, size: 256 * tiles }),
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
  return { launches, scratch: countsAt + rowCount * 256 * tiles * 4 };
}

interface Params {
  readonly dim: number;
  readonly descending: boolean;
}
/** Indices that sort along a dimension. */
export const planSort: FamilyPlan<RowOf<'sort'>, Params> = (p, _row, [x], [out], { dim, descending }) => {
  const { shape, rank } = x.layout;
  const last = rank === 0 || dim === rank - 1;
  const order = last ? [] : [...shape.map((_, i) => i).filter((i) => i !== dim), dim];
  const src = p.dense(last ? x : permuted(x, order));
  const target = last ? out : permuted(out, order);
  const indices = last ? out : p.make(target.layout.shape, 'u32');
  const cols = rank === 0 ? 1 : shape[dim];
  p.run(sortLaunch(x.dtype, x.layout.size / cols, cols, cols, descending), { src, indices });
  if (!last) p.copy(indices, target);
};

// Sorting rows: kernels/sort.hip.
import { bytesOf, type DType, kernelDType } from '../../base/dtype.js';
import { ALL_TYPES, CTYPE, KernelModule, WORDS, typed } from '../../kernels/declare.js';
import {
  at,
  ceilDiv,
  clamp,
  launch,
  type Launches,
  type Pointer,
  powerAbove,
  single,
  strideGrid,
  type Target,
} from './plan.js';
import { radixLaunch } from './radix.js';
import { rowGrid } from './row-shapes.js';

export const SORT = new KernelModule('sort');
/** Short rows: a bitonic network; writes the first `keep` indices, and values where asked. */
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
/** Longer ones, a block a row: threads, and keys that each of them has. */
const BLOCKS = { block1024: [256, 4], block2048: [256, 8], block4096: [256, 16] } as const;
const blockRows = SORT.declare({
  each: { size: Object.keys(BLOCKS) as readonly (keyof typeof BLOCKS)[], dtype: ALL_TYPES },
  symbol: ({ size, dtype }) => `sort_${size}_${dtype}`,
  body: ({ size, dtype }) => ({
    threads: BLOCKS[size][0],
    params: {
      ...{ src: `const ${CTYPE[dtype]}*`, indices: 'u32*', values: `${CTYPE[dtype]}*` },
      ...typed('i64', 'rows', 'cols', 'keep'),
      descending: 'u32',
    },
    call: `sort_block<${CTYPE[dtype]}, ${BLOCKS[size].join(', ')}>`,
  }),
});
const BYTES = [1, 2, 4, 8] as const;
/** Values in the order of the indices, and the first indices of each row. */
export const takeSorted = SORT.declare({
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

/** Longest row that is sorted inside a block, and longest that goes through a network there. */
export const LONGEST_IN_BLOCK = 4096;
export const NETWORK_UPTO = 512;

/** The first `keep` of each sorted row of contiguous [rows, cols]: indices (u32) and, where asked for, values. */
export function sortLaunch(
  elements: DType,
  rowCount: number,
  cols: number,
  keep: number,
  down: boolean,
  target: Pick<Target, 'multiprocessors'>,
  { src, indices, values, scratch }: SortPlaces = PLACES,
): Launches {
  const dtype = kernelDType(elements);
  const bytes = bytesOf(dtype) as (typeof BYTES)[number];
  const descending = down ? 1 : 0;
  if (cols <= NETWORK_UPTO) {
    const lanes = powerAbove(ceilDiv(cols, 4));
    const { grid, block } = rowGrid(rowCount, lanes);
    const shared = lanes > 32 ? lanes * 4 * (bytes === 8 ? 16 : 8) : 0;
    const args = { src, indices, values, rows: rowCount, cols, keep, descending, lanes };
    return single(launch(rows, { dtype }, grid, block, args, shared));
  }
  if (cols <= LONGEST_IN_BLOCK) {
    const size = cols <= 1024 ? 'block1024' : cols <= 2048 ? 'block2048' : 'block4096';
    const args = { src, indices, values, rows: rowCount, cols, keep, descending };
    return single(launch(blockRows, { size, dtype }, clamp(rowCount, 1, 2 ** 22), BLOCKS[size][0], args));
  }
  if (keep === cols) return radixLaunch(dtype, rowCount, cols, down, target, { src, indices, values, scratch });
  // The order of all is at the front of the scratch memory.
  const orderBytes = ceilDiv(rowCount * cols, 4) * 16;
  const rest = at(scratch.buffer, scratch.offset + orderBytes);
  const order = scratch;
  const sorted = radixLaunch(dtype, rowCount, cols, down, target, { src, indices: order, values: 0, scratch: rest });
  const kept = { order, rows: rowCount, cols, keep };
  const grid = strideGrid(rowCount * keep);
  const launches = [...sorted.launches, launch(takeFront, {}, grid, 256, { ...kept, dst: indices })];
  if (values !== 0) launches.push(launch(takeSorted, { bytes }, grid, 256, { ...kept, src, dst: values }));
  return { launches, scratch: orderBytes + sorted.scratch };
}

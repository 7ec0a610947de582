// Sorting long rows: kernels/radix.hip.
import { bytesOf, type KernelDType } from '../../base/dtype.js';
import { ALL_TYPES, CTYPE, KernelModule, typed } from '../../kernels/declare.js';
import {
  at,
  ceilDiv,
  clamp,
  type Launch,
  launch,
  type Launches,
  type Pointer,
  strideGrid,
  type Target,
} from './plan.js';

export const RADIX = new KernelModule('radix');
const clear = RADIX.declare({
  each: {},
  symbol: () => 'radix_clear',
  body: () => ({ threads: 256, params: { words: 'u32*', n: 'u64' }, call: 'clear_words' }),
});
const histogram = RADIX.forTypes(ALL_TYPES, 'radix_histogram', (T) => ({
  threads: 256,
  params: { src: `const ${T}*`, counts: 'u32*', cols: 'i64', blocks: 'u32', descending: 'u32' },
  call: 'radix_histogram',
}));
const turns = RADIX.declare({
  each: {},
  symbol: () => 'radix_turns_of_rows',
  body: () => ({
    threads: 256,
    params: { counts: 'u32*', turns: 'u32*', cols: 'i64', passes: 'u32' },
    call: 'radix_turns',
  }),
});
/** Threads of a pass, and keys that each of them has. */
const shapeOf = (dtype: KernelDType): readonly [threads: number, items: number] =>
  bytesOf(dtype) === 8 ? [384, 12] : [384, 16];
const pass = RADIX.declare({
  each: { dtype: ALL_TYPES },
  symbol: ({ dtype }) => `radix_pass_${dtype}`,
  body: ({ dtype }) => ({
    threads: shapeOf(dtype)[0],
    params: {
      ...{ src: `const ${CTYPE[dtype]}*`, keys: `key_t_of<${CTYPE[dtype]}>*`, orders: 'u32*', indices: 'u32*' },
      ...{ values: `${CTYPE[dtype]}*`, ...typed('const u32*', 'starts', 'turns'), tickets: 'u32*', tellings: 'u64*' },
      ...{ ...typed('i64', 'numel', 'cols'), ...typed('u32', 'tiles', 'pass', 'descending') },
    },
    call: `radix_pass<${CTYPE[dtype]}, ${shapeOf(dtype).join(', ')}>`,
  }),
});

/** MOST_PASSES of the kernels. */
const MOST_PASSES = 8;
/** Keys that a block counts at least. */
const COUNTED = 8192;

/** All of each row of contiguous [rows, cols] in order: indices (u32) and, where `values` is not 0, values. */
export function radixLaunch(
  dtype: KernelDType,
  rows: number,
  cols: number,
  down: boolean,
  { multiprocessors }: Pick<Target, 'multiprocessors'>,
  places: { readonly src: Pointer; readonly indices: Pointer; readonly values: Pointer | 0; readonly scratch: Pointer },
): Launches {
  const passes = bytesOf(dtype);
  const [threads, items] = shapeOf(dtype);
  const tiles = ceilDiv(cols, threads * items);
  const numel = rows * cols;
  // What begins as 0 (counts, tickets, what tiles tell), what the passes do, two buffers of keys, two of orders.
  const sizes = [rows * passes * 1024, rows * MOST_PASSES * 4, rows * tiles * 2048, rows * MOST_PASSES * 4];
  const parts = [...sizes, 2 * numel * passes, 2 * numel * 4].map((size) => ceilDiv(size, 16) * 16);
  const starts = parts.map((_, i) => parts.slice(0, i).reduce((a, b) => a + b, 0));
  const { src, indices, values, scratch } = places;
  const [counts, tickets, tellings, turn, keys, orders] = starts.map((from) =>
    at(scratch.buffer, scratch.offset + from),
  );
  const descending = down ? 1 : 0;
  const words = starts[3] / 4;
  const blocks = clamp(ceilDiv(cols, COUNTED), 1, Math.max(1, ceilDiv(8 * multiprocessors, rows)));
  const launches: Launch[] = [
    launch(clear, {}, strideGrid(words), 256, { words: counts, n: words }),
    launch(histogram, { dtype }, blocks * rows, 256, { src, counts, cols, blocks, descending }),
    launch(turns, {}, rows, 256, { counts, turns: turn, cols, passes }),
  ];
  const buffers = { src, keys, orders, indices, values, starts: counts, turns: turn, tickets, tellings };
  for (let p = 0; p < passes; p++)
    launches.push(
      launch(pass, { dtype }, tiles * rows, threads, { ...buffers, numel, cols, tiles, pass: p, descending }),
    );
  return { launches, scratch: starts[5] + parts[5] };
}

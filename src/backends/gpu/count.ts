// Counts of numbers and bins: kernels/count.hip.
import { kernelDType } from '../../base/dtype.js';
import { CTYPE, INT_TYPES, KernelModule, REAL_TYPES } from '../../kernels/declare.js';
import type { BinParams } from '../../ops/count.js';
import type { RowOf } from '../../ops/op.js';
import { ceilDiv, clamp, type FamilyPlan, launch, places } from './plan.js';

export const COUNT = new KernelModule('count');
const TABLES = { out: 'u64*', n: 'i64', bins: 'i64', blocks: 'u32', copies: 'u32' } as const;
const numbers = COUNT.declare({
  each: { dtype: INT_TYPES },
  symbol: ({ dtype }) => `count_numbers_${dtype}`,
  body: ({ dtype }) => ({
    threads: 256,
    params: { src: `const ${CTYPE[dtype]}*`, ...TABLES },
    call: 'count_places',
    given: 'src, out, n, bins, blocks, copies, NumberPlace()',
  }),
});
const bins = COUNT.declare({
  each: { dtype: REAL_TYPES },
  symbol: ({ dtype }) => `count_bins_${dtype}`,
  body: ({ dtype }) => ({
    threads: 256,
    params: { src: `const ${CTYPE[dtype]}*`, ...TABLES, min: 'double', max: 'double' },
    call: 'count_places',
    given:
      `src, out, n, bins, blocks, copies, BinPlace<compute_t<${CTYPE[dtype]}>>` +
      `{(compute_t<${CTYPE[dtype]}>)min, (compute_t<${CTYPE[dtype]}>)max, (compute_t<${CTYPE[dtype]}>)(max - min)}`,
  }),
});

/** Counts that a block may hold in shared memory, 32 bits each, and tables for its waves where they are short. */
const [HELD, MOST_COPIES] = [12288, 8];
/** Elements that a block is worth its table for. */
const ELEMENTS_A_BLOCK = 16384;

export const planCount: FamilyPlan<RowOf<'count'>, BinParams> = (p, { kernel }, [x], [out], params) => {
  p.fill(out, 0);
  const { size, shape, rank } = x.layout;
  if (size === 0) return;
  const n = shape[rank - 1];
  const copies = Math.min(MOST_COPIES, Math.floor(HELD / params.bins));
  const blocks = clamp(ceilDiv(n, copies ? ELEMENTS_A_BLOCK : 1024), 1, 8 * p.device.multiprocessors);
  const grid = (size / n) * blocks;
  const args = { ...places('src', 'out'), n, bins: params.bins, blocks, copies };
  const shared = copies * params.bins * 4;
  const dtype = kernelDType(x.dtype) as never;
  const launches = [
    kernel.kind === 'numbers'
      ? launch(numbers, { dtype }, grid, 256, args, shared)
      : launch(bins, { dtype }, grid, 256, { ...args, min: params.min, max: params.max }, shared),
  ];
  p.run({ launches, scratch: 0 }, { src: p.dense(x), out });
};

// Searches in sorted rows: kernels/search.hip.
import { bytesOf, kernelDType } from '../../base/dtype.js';
import { ALL_TYPES, KernelModule } from '../../kernels/declare.js';
import type { RowOf } from '../../ops/op.js';
import type { SearchParams } from '../../ops/search.js';
import { ceilDiv, clamp, type FamilyPlan, launch, places, strideGrid } from './plan.js';

export const SEARCH = new KernelModule('search');
const search = SEARCH.forTypes(ALL_TYPES, 'search_sorted', (T) => ({
  threads: 256,
  params: {
    ...{ sorted: `const ${T}*`, values: `const ${T}*`, out: 'i64*', numel: 'u64', each: 'u64' },
    ...{ n: 'i64', right: 'u32', held: 'u32' },
  },
  call: 'search_sorted',
}));

/** Bytes of a row that each block reads whole, since it is probed many times. */
const HELD_BYTES = 16384;

export const planSearch: FamilyPlan<RowOf<'search'>, SearchParams> = (p, _row, [x, values], [out], { right }) => {
  const n = x.layout.shape[x.layout.rank - 1];
  const numel = values.layout.size;
  const rowCount = x.layout.rank === 1 ? 1 : x.layout.shape.slice(0, -1).reduce((a, b) => a * b, 1);
  const bytes = n * bytesOf(x.dtype);
  const held = rowCount === 1 && bytes <= HELD_BYTES && numel >= 4 * n;
  // Blocks that hold the row go round, so that it is read once for many values.
  const grid = held ? clamp(ceilDiv(numel, 256), 1, 8 * p.device.multiprocessors) : strideGrid(numel);
  const args = { ...places('sorted', 'values', 'out'), numel, each: numel / rowCount, n };
  const flags = { right: right ? 1 : 0, held: held ? 1 : 0 };
  const launches = [
    launch(search, { dtype: kernelDType(x.dtype) }, grid, 256, { ...args, ...flags }, held ? bytes : 0),
  ];
  p.run({ launches, scratch: 0 }, { sorted: p.dense(x), values: p.dense(values), out });
};

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
    ...{ n: 'i64', right: 'u32' },
  },
  call: 'search_sorted',
}));
const kept = SEARCH.forTypes(ALL_TYPES, 'search_kept', (T) => ({
  threads: { constant: 'SEARCH_THREADS', threads: 512 },
  params: {
    ...{ sorted: `const ${T}*`, values: `const ${T}*`, out: 'i64*', numel: 'u64', n: 'u32', right: 'u32' },
    levels: 'u32',
  },
  call: 'search_kept',
}));

/** Bytes of a row that each block keeps; elements that it finds places for at a time: SEARCH_THREADS, SEARCH_EACH. */
const [KEPT_BYTES, PART] = [32768, 2048];

export const planSearch: FamilyPlan<RowOf<'search'>, SearchParams> = (p, _row, [x, values], [out], { right }) => {
  const n = x.layout.shape[x.layout.rank - 1];
  const numel = values.layout.size;
  const rowCount = x.layout.rank === 1 ? 1 : x.layout.shape.slice(0, -1).reduce((a, b) => a * b, 1);
  const buffers = { sorted: p.dense(x), values: p.dense(values), out };
  const [dtype, at] = [kernelDType(x.dtype), places('sorted', 'values', 'out')];
  const flag = right ? 1 : 0;
  // Every block reads what it keeps of the row, so values must be many beside that.
  if (rowCount === 1 && n < 2 ** 31 && numel >= 4 * n && numel >= PART) {
    const steps = Math.ceil(Math.log2(n + 1));
    const levels = clamp(Math.floor(Math.log2(KEPT_BYTES / bytesOf(x.dtype))), 0, steps);
    const grid = clamp(ceilDiv(numel, PART), 1, 2 * p.device.multiprocessors);
    const shared = 2 ** levels * bytesOf(x.dtype);
    const launches = [launch(kept, { dtype }, grid, 512, { ...at, numel, n, right: flag, levels }, shared)];
    return p.run({ launches, scratch: 0 }, buffers);
  }
  const args = { ...at, numel, each: numel / rowCount, n, right: flag };
  p.run({ launches: [launch(search, { dtype }, strideGrid(numel), 256, args)], scratch: 0 }, buffers);
};

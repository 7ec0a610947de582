// Running sums: kernels/scan.hip.
import { type DType, kernelDType, sumDType } from '../../base/dtype.js';
import { sizeOf } from '../../base/shape.js';
import { ALL_TYPES, CTYPE, KernelModule, suffixOf } from '../../kernels/declare.js';
import type { RowOf } from '../../ops/op.js';
import type { ScanParams } from '../../ops/reduce.js';
import {
  aligned16,
  at,
  ceilDiv,
  clamp,
  type FamilyPlan,
  launch,
  type Launches,
  packOf,
  single,
  strideGrid,
  type Target,
} from './plan.js';

export const SCAN = new KernelModule('scan');
/** Rows, a block a chunk; `offsets` holds what stands before each chunk, or is null. */
const rows = SCAN.declare({
  each: { dtype: ALL_TYPES },
  symbol: ({ dtype }) => `cumsum_rows_${suffixOf(dtype)}`,
  body: ({ dtype: d }) => ({
    threads: 256,
    params: {
      src: `const ${CTYPE[d]}*`,
      dst: `TotalOf<${CTYPE[d]}>::result*`,
      offsets: `const TotalOf<${CTYPE[d]}>::sum*`,
      n: 'i64',
      size: 'i64',
      reverse: 'u32',
      exclusive: 'u32',
    },
    call: 'cumsum_rows',
    given: 'src, dst, offsets, n, size, reverse != 0, exclusive != 0',
  }),
});
/** The sum of each chunk. */
const sums = SCAN.declare({
  each: { dtype: ALL_TYPES },
  symbol: ({ dtype }) => `cumsum_sums_${suffixOf(dtype)}`,
  body: ({ dtype: d }) => ({
    threads: 256,
    params: { src: `const ${CTYPE[d]}*`, sums: `TotalOf<${CTYPE[d]}>::sum*`, n: 'i64', size: 'i64', reverse: 'u32' },
    call: 'cumsum_sums',
    given: 'src, sums, n, size, reverse != 0',
  }),
});
/** Running sums of the chunks' sums, in the type sums are kept in. */
const SPINES = { f32: 'float', f64: 'double', u64: 'u64' } as const;
const spine = SCAN.declare({
  each: { sum: ['f32', 'f64', 'u64'] },
  symbol: ({ sum }) => `cumsum_spine_${sum}`,
  body: ({ sum }) => ({
    threads: 256,
    params: { sums: `${SPINES[sum]}*`, chunks: 'i64' },
    call: 'cumsum_rows',
    given: `sums, sums, (const ${SPINES[sum]}*)nullptr, chunks, chunks, false, true`,
  }),
});
/** A thread a column of [outer, n, inner]. */
const columns = SCAN.declare({
  each: { dtype: ALL_TYPES },
  symbol: ({ dtype }) => `cumsum_cols_${suffixOf(dtype)}`,
  body: ({ dtype: d }) => ({
    threads: 256,
    params: {
      src: `const ${CTYPE[d]}*`,
      dst: `TotalOf<${CTYPE[d]}>::result*`,
      outer: 'i64',
      n: 'i64',
      inner: 'i64',
      reverse: 'u32',
      exclusive: 'u32',
    },
    call: 'cumsum_cols',
  }),
});

/** Forwards with 16-byte accesses. */
const PACKED = ['f32', 'f16', 'bf16'] as const;
const rowPacks = SCAN.declare({
  each: { dtype: PACKED },
  symbol: ({ dtype }) => `cumsum_packs_${suffixOf(dtype)}`,
  body: ({ dtype }) => ({
    threads: 256,
    params: {
      src: `const ${CTYPE[dtype]}*`,
      dst: `${CTYPE[dtype]}*`,
      offsets: `const compute_t<${CTYPE[dtype]}>*`,
      n: 'i64',
      size: 'i64',
      exclusive: 'u32',
    },
    call: 'cumsum_packs',
    given: 'src, dst, offsets, n, size, exclusive != 0',
  }),
});

/** Running sums of [outer, n, inner] along n. Buffers: src, dst; `aligned`: both are 16-byte aligned. */
export function scanLaunch(
  elements: DType,
  outer: number,
  n: number,
  inner: number,
  backward: boolean,
  without: boolean,
  target: Target,
  aligned = false,
): Launches {
  const dtype = kernelDType(elements);
  const [src, dst] = [at('src'), at('dst')];
  const [reverse, exclusive] = [backward ? 1 : 0, without ? 1 : 0];
  if (inner > 1 || outer > 65535)
    return single(
      launch(columns, { dtype }, strideGrid(outer * inner), 256, { src, dst, outer, n, inner, reverse, exclusive }),
    );
  const chunks =
    outer < 2 * target.multiprocessors
      ? clamp(ceilDiv(4 * target.multiprocessors, outer), 1, Math.max(1, Math.floor(n / 4096)))
      : 1;
  const size = chunks > 1 ? ceilDiv(ceilDiv(n, chunks), 1024) * 1024 : n;
  const used = Math.max(1, ceilDiv(n, size));
  const offsets = used > 1 ? at('scratch') : 0;
  const packed = PACKED.find((d) => d === dtype && aligned && !backward && n % packOf(d) === 0);
  const run = packed
    ? launch(rowPacks, { dtype: packed }, [used, outer], 256, { src, dst, offsets, n, size, exclusive })
    : launch(rows, { dtype }, [used, outer], 256, { src, dst, offsets, n, size, reverse, exclusive });
  if (used === 1) return single(run);
  const total = sumDType(dtype);
  const sum = total === 'i64' ? 'u64' : total === 'f64' ? 'f64' : 'f32';
  return {
    launches: [
      launch(sums, { dtype }, [used, outer], 256, { src, sums: at('scratch'), n, size, reverse }),
      launch(spine, { sum }, [1, outer], 256, { sums: at('scratch'), chunks: used }),
      run,
    ],
    scratch: outer * used * (sum === 'f32' ? 4 : 8),
  };
}

export const planScan: FamilyPlan<RowOf<'scan'>, ScanParams> = (p, _row, [x], [out], { dim, reverse, exclusive }) => {
  const { shape } = x.layout;
  const [outer, inner] = [sizeOf(shape.slice(0, dim)), sizeOf(shape.slice(dim + 1))];
  const src = p.dense(x);
  const aligned = aligned16(src, out);
  const launches = scanLaunch(x.dtype, outer, shape[dim], inner, reverse, exclusive, p.device, aligned);
  p.run(launches, { src, dst: out });
};

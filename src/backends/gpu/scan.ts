// Running sums: kernels/scan.hip.
import { bytesOf, type DType, type KernelDType, kernelDType, sumDType } from '../../base/dtype.js';
import { sizeOf } from '../../base/shape.js';
import { ALL_TYPES, KernelModule, typed } from '../../kernels/declare.js';
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
  type Pointer,
  single,
  strideGrid,
  type Target,
} from './plan.js';

export const SCAN = new KernelModule('scan');
/**
 * What running sums of a chunk read and write; `offsets` holds what stands before each chunk (or what each adds up to,
 * `raw`), or is null.
 */
const summed = (T: string) =>
  ({ src: `const ${T}*`, dst: `TotalOf<${T}>::result*`, offsets: `const TotalOf<${T}>::sum*` }) as const;
const direction = typed('u32', 'reverse', 'exclusive');
/** Rows, a block a chunk. */
const rows = SCAN.forTypes(ALL_TYPES, 'cumsum_rows', (T) => ({
  threads: 256,
  params: { ...summed(T), ...typed('i64', 'n', 'size'), raw: 'u32', ...direction },
  call: 'cumsum_rows',
  given: 'src, dst, offsets, n, size, raw != 0, reverse != 0, exclusive != 0',
}));
/** The sum of each chunk. */
const sums = SCAN.forTypes(ALL_TYPES, 'cumsum_sums', (T) => ({
  threads: 256,
  params: { src: `const ${T}*`, sums: `TotalOf<${T}>::sum*`, n: 'i64', size: 'i64', reverse: 'u32' },
  call: 'cumsum_sums',
  given: 'src, sums, n, size, reverse != 0',
}));
/** Running sums of the chunks' sums, in the type sums are kept in. */
const SPINES = { f32: 'float', f64: 'double', u64: 'u64' } as const;
const spine = SCAN.declare({
  each: { sum: ['f32', 'f64', 'u64'] },
  symbol: ({ sum }) => `cumsum_spine_${sum}`,
  body: ({ sum }) => ({
    threads: 256,
    params: { sums: `${SPINES[sum]}*`, chunks: 'i64' },
    call: 'cumsum_rows',
    given: `sums, sums, (const ${SPINES[sum]}*)nullptr, chunks, chunks, false, false, true`,
  }),
});
/** A thread a chunk of a column, of `all` chunks. */
const columns = SCAN.forTypes(ALL_TYPES, 'cumsum_cols', (T) => ({
  threads: 256,
  params: { ...summed(T), ...typed('i64', 'all', 'n', 'inner', 'size'), ...direction },
  call: 'cumsum_cols',
}));
const columnSums = SCAN.forTypes(ALL_TYPES, 'cumsum_col_sums', (T) => ({
  threads: 256,
  params: {
    src: `const ${T}*`,
    sums: `TotalOf<${T}>::sum*`,
    ...typed('i64', 'all', 'n', 'inner', 'size'),
    reverse: 'u32',
  },
  call: 'cumsum_col_sums',
}));

/** Forwards with 16-byte accesses. */
const PACKED = ['f32', 'f16', 'bf16'] as const;
const rowPacks = SCAN.forTypes(PACKED, 'cumsum_packs', (T) => ({
  threads: 256,
  params: {
    ...{ src: `const ${T}*`, dst: `${T}*`, offsets: `const compute_t<${T}>*` },
    ...{ n: 'i64', size: 'i64', raw: 'u32', exclusive: 'u32' },
  },
  call: 'cumsum_packs',
  given: 'src, dst, offsets, n, size, raw != 0, exclusive != 0',
}));

/** Chunks' sums that a block adds up by itself, in one round. */
const RAW_CHUNKS = 1024;
/** The type in which sums of a type are kept. */
const keptIn = (dtype: DType): 'f32' | 'f64' | 'i64' => {
  const total = sumDType(dtype);
  return total === 'i64' || total === 'f64' ? total : 'f32';
};
/** Threads a multiprocessor from which columns are taken whole, and how many chunks of them make otherwise. */
const [WHOLE_COLUMNS, CHUNK_THREADS] = [1024, 2048];
/** Rows of a chunk at least. */
const CHUNK_ROWS = 32;
/** Columns of [outer, n, inner]: where they are few, chunks of them, whose sums are columns again. */
function columnLaunches(
  dtype: KernelDType,
  { src, dst }: Readonly<Record<'src' | 'dst', Pointer>>,
  [outer, n, inner]: readonly [number, number, number],
  [reverse, exclusive]: readonly [number, number],
  target: Target,
  scratch = 0,
): Launches {
  const { multiprocessors } = target;
  const few = inner > 1 && outer * inner < WHOLE_COLUMNS * multiprocessors;
  const most = Math.max(1, Math.floor(n / CHUNK_ROWS));
  const wanted = few ? clamp(ceilDiv(CHUNK_THREADS * multiprocessors, outer * inner), 1, most) : 1;
  const size = Math.max(1, ceilDiv(n, wanted));
  const chunks = ceilDiv(n, size);
  const all = outer * chunks * inner;
  const offsets = chunks > 1 ? at('scratch', scratch) : 0;
  const run = launch(columns, { dtype }, strideGrid(all), 256, {
    src,
    dst,
    offsets,
    all,
    n,
    inner,
    size,
    reverse,
    exclusive,
  });
  if (!offsets) return { launches: [run], scratch };
  const kept = keptIn(dtype);
  const bytes = ceilDiv(all * bytesOf(kept), 256) * 256;
  const sums = launch(columnSums, { dtype }, strideGrid(all), 256, {
    src,
    sums: offsets,
    all,
    n,
    inner,
    size,
    reverse,
  });
  const places = { src: offsets, dst: offsets };
  const spine = columnLaunches(kept, places, [outer, chunks, inner], [0, 1], target, scratch + bytes);
  return { launches: [sums, ...spine.launches, run], scratch: spine.scratch };
}

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
    return columnLaunches(dtype, { src, dst }, [outer, n, inner], [reverse, exclusive], target);
  const chunks =
    outer < 2 * target.multiprocessors
      ? clamp(ceilDiv(4 * target.multiprocessors, outer), 1, Math.max(1, Math.floor(n / 4096)))
      : 1;
  const size = chunks > 1 ? ceilDiv(ceilDiv(n, chunks), 1024) * 1024 : n;
  const used = Math.max(1, ceilDiv(n, size));
  const offsets = used > 1 ? at('scratch') : 0;
  const raw = Number(used <= RAW_CHUNKS);
  const packed = PACKED.find((d) => d === dtype && aligned && !backward && n % packOf(d) === 0);
  const run = packed
    ? launch(rowPacks, { dtype: packed }, [used, outer], 256, { src, dst, offsets, n, size, raw, exclusive })
    : launch(rows, { dtype }, [used, outer], 256, { src, dst, offsets, n, size, raw, reverse, exclusive });
  if (used === 1) return single(run);
  const kept = keptIn(dtype);
  const sum = kept === 'i64' ? 'u64' : kept;
  return {
    launches: [
      launch(sums, { dtype }, [used, outer], 256, { src, sums: at('scratch'), n, size, reverse }),
      ...(raw ? [] : [launch(spine, { sum }, [1, outer], 256, { sums: at('scratch'), chunks: used })]),
      run,
    ],
    scratch: outer * used * bytesOf(kept),
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

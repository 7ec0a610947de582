// Running products, logarithms of sums and places of the best so far: kernels/running.hip.
import { type DType, kernelDType } from '../../base/dtype.js';
import { sizeOf } from '../../base/shape.js';
import { ALL_TYPES, CTYPE, KernelModule, suffixOf, typed } from '../../kernels/declare.js';
import type { RowOf } from '../../ops/op.js';
import { type RunningParams, runningOps } from '../../ops/running.js';
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

type RunningRow = RowOf<'running'>;
export const RUNNING = new KernelModule('running');
const ops = Object.values(runningOps) as unknown as readonly RunningRow[];
interface Variant {
  readonly op: RunningRow;
  readonly dtype: DType;
}
const functor = ({ op, dtype }: Variant): string => `${op.kernel.joins}<${CTYPE[dtype]}>`;
const taken = ({ op, dtype }: Variant): boolean => op.dtypes.includes(dtype);
const nameOf = ({ op, dtype }: Variant): string => `${op.name}_${suffixOf(dtype)}`;
const given = (v: Variant) =>
  ({ src: `const ${CTYPE[v.dtype]}*`, dst: `${functor(v)}::Out*`, before: `const ${functor(v)}::A*` }) as const;
const packOfAccess = (access: 'single' | 'packed', dtype: DType): string =>
  access === 'packed' ? `pack_size<${CTYPE[dtype]}>` : '1';

/** Rows, a block a chunk; packed: 16-byte accesses, n being a multiple of them. */
const rows = RUNNING.declare({
  each: { op: ops, access: ['single', 'packed'], dtype: ALL_TYPES },
  only: taken,
  symbol: (v) => `${nameOf(v)}_rows_${v.access}`,
  body: (v) => ({
    threads: 256,
    params: { ...given(v), ...typed('i64', 'n', 'size') },
    call: `running_rows<${functor(v)}, ${packOfAccess(v.access, v.dtype)}>`,
  }),
});
const totals = RUNNING.declare({
  each: { op: ops, access: ['single', 'packed'], dtype: ALL_TYPES },
  only: taken,
  symbol: (v) => `${nameOf(v)}_totals_${v.access}`,
  body: (v) => ({
    threads: 256,
    params: { src: `const ${CTYPE[v.dtype]}*`, totals: `${functor(v)}::A*`, ...typed('i64', 'n', 'size') },
    call: `running_totals<${functor(v)}, ${packOfAccess(v.access, v.dtype)}>`,
  }),
});
const spine = RUNNING.declare({
  each: { op: ops, dtype: ALL_TYPES },
  only: taken,
  symbol: (v) => `${nameOf(v)}_spine`,
  body: (v) => ({
    threads: 256,
    params: { totals: `${functor(v)}::A*`, chunks: 'i64' },
    call: `running_spine<${functor(v)}>`,
  }),
});
/** A thread a chunk of a column, of `all` chunks. */
const columns = RUNNING.declare({
  each: { op: ops, dtype: ALL_TYPES },
  only: taken,
  symbol: (v) => `${nameOf(v)}_columns`,
  body: (v) => ({
    threads: 256,
    params: { ...given(v), ...typed('i64', 'all', 'n', 'inner', 'size') },
    call: `running_cols<${functor(v)}>`,
  }),
});
const columnTotals = RUNNING.declare({
  each: { op: ops, dtype: ALL_TYPES },
  only: taken,
  symbol: (v) => `${nameOf(v)}_column_totals`,
  body: (v) => ({
    threads: 256,
    params: {
      src: `const ${CTYPE[v.dtype]}*`,
      totals: `${functor(v)}::A*`,
      ...typed('i64', 'all', 'n', 'inner', 'size'),
    },
    call: `running_col_totals<${functor(v)}>`,
  }),
});
const columnSpine = RUNNING.declare({
  each: { op: ops, dtype: ALL_TYPES },
  only: taken,
  symbol: (v) => `${nameOf(v)}_column_spine`,
  body: (v) => ({
    threads: 256,
    params: { totals: `${functor(v)}::A*`, ...typed('i64', 'outer', 'chunks', 'inner') },
    call: `running_col_spine<${functor(v)}>`,
  }),
});

/** Threads a multiprocessor from which columns are taken whole, how many chunks of them make otherwise, and their rows. */
const [WHOLE_COLUMNS, CHUNK_THREADS, CHUNK_ROWS] = [1024, 2048, 32];
/** Blocks a multiprocessor that chunks of few rows make, and elements of a chunk at least. */
const [CHUNK_BLOCKS, CHUNK_ELEMENTS] = [8, 4096];
const [src, dst, before] = [at('src'), at('dst'), at('scratch')];

/** Along n of [outer, n, inner]. Buffers: src, dst; `aligned`: both are 16-byte aligned. */
export function runningLaunch(
  op: RunningRow,
  elements: DType,
  outer: number,
  n: number,
  inner: number,
  target: Target,
  aligned = false,
): Launches {
  const dtype = kernelDType(elements);
  const bytes = op.kernel.kept(dtype);
  const { multiprocessors } = target;
  if (inner > 1 || outer > 65535) {
    const few = inner > 1 && outer * inner < WHOLE_COLUMNS * multiprocessors;
    const most = Math.max(1, Math.floor(n / CHUNK_ROWS));
    const wanted = few ? clamp(ceilDiv(CHUNK_THREADS * multiprocessors, outer * inner), 1, most) : 1;
    const size = Math.max(1, ceilDiv(n, wanted));
    const chunks = ceilDiv(n, size);
    const all = outer * chunks * inner;
    const run = (from: typeof before | 0) =>
      launch(columns, { op, dtype }, strideGrid(all), 256, { src, dst, before: from, all, n, inner, size });
    if (chunks <= 1) return single(run(0));
    return {
      launches: [
        launch(columnTotals, { op, dtype }, strideGrid(all), 256, { src, totals: before, all, n, inner, size }),
        launch(columnSpine, { op, dtype }, strideGrid(outer * inner), 256, { totals: before, outer, chunks, inner }),
        run(before),
      ],
      scratch: all * bytes,
    };
  }
  const pack = packOf(dtype);
  const access = aligned && n % pack === 0 ? 'packed' : 'single';
  const most = Math.max(1, Math.floor(n / CHUNK_ELEMENTS));
  const chunks = outer < 2 * multiprocessors ? clamp(ceilDiv(CHUNK_BLOCKS * multiprocessors, outer), 1, most) : 1;
  const size = chunks > 1 ? ceilDiv(ceilDiv(n, chunks), 256 * pack) * 256 * pack : n;
  const used = Math.max(1, ceilDiv(n, size));
  const run = (from: typeof before | 0) =>
    launch(rows, { op, access, dtype }, [used, outer], 256, { src, dst, before: from, n, size });
  if (used === 1) return single(run(0));
  return {
    launches: [
      launch(totals, { op, access, dtype }, [used, outer], 256, { src, totals: before, n, size }),
      launch(spine, { op, dtype }, outer, 256, { totals: before, chunks: used }),
      run(before),
    ],
    scratch: outer * used * bytes,
  };
}

export const planRunning: FamilyPlan<RunningRow, RunningParams> = (p, row, [x], [out], { dim }) => {
  const { shape } = x.layout;
  const [outer, inner] = [sizeOf(shape.slice(0, dim)), sizeOf(shape.slice(dim + 1))];
  const from = p.dense(x);
  const launches = runningLaunch(row, x.dtype, outer, shape[dim], inner, p.device, aligned16(from, out));
  p.run(launches, { src: from, dst: out });
};

// Reductions over any dimensions: kernels/reduce.hip.
import { bytesOf, type DType, kernelDType, sumDType } from '../../base/dtype.js';
import { sizeOf } from '../../base/shape.js';
import { ALL_TYPES, CTYPE, KernelModule, suffixOf, typed } from '../../kernels/declare.js';
import type { RowOf } from '../../ops/op.js';
import { type ReduceParams, reduceOps } from '../../ops/reduce.js';
import type { View } from '../backend.js';
import {
  aligned16,
  at,
  ceilDiv,
  clamp,
  type FamilyPlan,
  type Launch,
  launch,
  type Launches,
  packOf,
  permuted,
  type Planner,
  powerAbove,
  single,
  type Target,
} from './plan.js';
import { rowGrid } from './row-shapes.js';

export type ReduceRow = RowOf<'reduce'>;

export const REDUCE = new KernelModule('reduce');
const ops = Object.values(reduceOps) as unknown as readonly ReduceRow[];
/** An op and a dtype as the kernels name them: the row's functor over the element type. */
const functor = (op: ReduceRow, dtype: DType): string => `${op.kernel.functor}<${CTYPE[dtype]}>`;
const taken = ({ op, dtype }: { op: ReduceRow; dtype: DType }): boolean => op.dtypes.includes(dtype);
const nameOf = ({ op, dtype }: { op: ReduceRow; dtype: DType }): string => `${op.name}_${suffixOf(dtype)}`;

/** [rows, cols] contiguous, `lanes` threads a row; packed: 16-byte accesses, cols being a multiple of them. */
const rows = REDUCE.declare({
  each: { op: ops, access: ['single', 'packed'], dtype: ALL_TYPES },
  only: taken,
  symbol: (v) => `reduce_rows_${nameOf(v)}_${v.access}`,
  body: ({ op, dtype, access }) => ({
    threads: 1024,
    params: {
      src: `const ${CTYPE[dtype]}*`,
      dst: `${functor(op, dtype)}::Out*`,
      rows: 'i64',
      cols: 'i64',
      lanes: 'u32',
    },
    call: `row_reduce<${functor(op, dtype)}, ${access === 'packed' ? `pack_size<${CTYPE[dtype]}>` : 1}>`,
  }),
});
/**
 * The same where a row is at most four packs a lane, all of them under way at once: loops over lanes would be the
 * larger part of short rows.
 */
const rowsHeld = REDUCE.declare({
  each: { op: ops, lanes: [4, 8, 16, 32], dtype: ALL_TYPES },
  only: taken,
  symbol: (v) => `reduce_rows_${nameOf(v)}_held_by_${v.lanes}`,
  body: ({ op, dtype, lanes }) => ({
    threads: 256,
    params: { src: `const ${CTYPE[dtype]}*`, dst: `${functor(op, dtype)}::Out*`, rows: 'i64', cols: 'i64' },
    call: `row_reduce_held<${functor(op, dtype)}, ${lanes}>`,
  }),
});
/** Few long rows: block (chunk, row) leaves one accumulator in scratch [rows, chunks]. */
const parts = REDUCE.declare({
  each: { op: ops, access: ['single', 'packed'], dtype: ALL_TYPES },
  only: taken,
  symbol: (v) => `reduce_parts_${nameOf(v)}_${v.access}`,
  body: ({ op, dtype, access }) => ({
    threads: 1024,
    params: { src: `const ${CTYPE[dtype]}*`, part: `${functor(op, dtype)}::A*`, rows: 'i64', cols: 'i64', size: 'i64' },
    call: `part_reduce<${functor(op, dtype)}, ${access === 'packed' ? `pack_size<${CTYPE[dtype]}>` : 1}>`,
  }),
});
const columnParams = (op: Parameters<typeof functor>[0], dtype: keyof typeof CTYPE) =>
  ({
    src: `const ${CTYPE[dtype]}*`,
    dst: `${functor(op, dtype)}::Out*`,
    part: `${functor(op, dtype)}::A*`,
    ...typed('i64', 'outer', 'n', 'inner', 'size'),
  }) as const;
/**
 * [outer, n, inner] over n: block (x, 256 / x), x neighbouring columns read together; grid y > 1 leaves accumulators.
 */
const columns = REDUCE.declare({
  each: { op: ops, dtype: ALL_TYPES },
  only: taken,
  symbol: (v) => `reduce_columns_${nameOf(v)}`,
  body: ({ op, dtype }) => ({
    threads: 256,
    params: columnParams(op, dtype),
    call: `col_reduce<${functor(op, dtype)}>`,
  }),
});
/** The same with 16 bytes of columns a thread. */
const PACKED_COLUMNS = ['f32', 'f16', 'bf16'] as const;
const columnPacks = REDUCE.declare({
  each: { op: ops.filter((op) => op.kernel.accumulator !== 'place'), dtype: PACKED_COLUMNS },
  only: taken,
  symbol: (v) => `reduce_column_packs_${nameOf(v)}`,
  body: ({ op, dtype }) => ({
    threads: 256,
    params: columnParams(op, dtype),
    call: `col_reduce_packs<${functor(op, dtype)}>`,
  }),
});
/** Accumulators [outer, chunks, inner] to results, a group of 32 threads each. */
const merge = REDUCE.declare({
  each: { op: ops, dtype: ALL_TYPES },
  only: taken,
  symbol: (v) => `reduce_merge_${nameOf(v)}`,
  body: ({ op, dtype }) => ({
    threads: { constant: 'MERGE_BOUND', threads: 256 },
    params: {
      part: `const ${functor(op, dtype)}::A*`,
      dst: `${functor(op, dtype)}::Out*`,
      ...typed('i64', 'outer', 'chunks', 'inner', 'n'),
    },
    call: `merge_parts<${functor(op, dtype)}>`,
  }),
});

const isWide = (d: DType): boolean => d === 'f64' || d === 'i64';
const isSmall = (d: DType): boolean => d === 'f16' || d === 'bf16' || d === 'f8e4m3';
/** Bytes of an accumulator: a sum, a value in the type computed in, or a value with its index. */
const ACCUMULATOR: Readonly<Record<ReduceRow['kernel']['accumulator'], (d: DType) => number>> = {
  sum: (d) => (isWide(sumDType(d)) ? 8 : 4),
  double: () => 8,
  doubles: () => 16,
  value: (d) => (isSmall(d) ? 4 : bytesOf(d)),
  place: (d) => (isWide(d) ? 16 : 8),
};

/** x as [outer, n, inner], contiguous, reduced over n (from 1) into [outer, inner]. */
interface Reduction {
  readonly op: ReduceRow;
  readonly dtype: ReturnType<typeof kernelDType>;
  readonly outer: number;
  readonly n: number;
  readonly inner: number;
  readonly target: Target;
  /** x is 16-byte aligned. */
  readonly aligned: boolean;
}
const [src, dst, scratch] = [at('src'), at('dst'), at('scratch')];

/** A launch that leaves `chunks` accumulators a result in scratch, and the one that joins them. */
function inParts(part: Launch, { op, dtype, outer, n, inner }: Reduction, chunks: number): Launches {
  const count = outer * inner;
  const args = { part: scratch, dst, outer, chunks, inner, n };
  const joined = launch(merge, { op, dtype }, clamp(ceilDiv(count, 8), 1, 2 ** 22), 256, args);
  return { launches: [part, joined], scratch: count * chunks * ACCUMULATOR[op.kernel.accumulator](dtype) };
}

/** inner is 1: the elements of a result lie side by side. */
function overRows(r: Reduction): Launches {
  const { op, dtype, outer, n, target } = r;
  const pack = r.aligned && n % packOf(dtype) === 0 ? packOf(dtype) : 1;
  const access = pack === 1 ? 'single' : 'packed';
  // Few long rows leave most of the device idle with a block each.
  const chunks =
    outer < 2 * target.multiprocessors
      ? clamp(ceilDiv(4 * target.multiprocessors, outer), 1, Math.min(1024, Math.floor(n / 8192)))
      : 1;
  if (chunks > 1) {
    const size = ceilDiv(ceilDiv(n, chunks), 16) * 16;
    const used = ceilDiv(n, size);
    const args = { src, part: scratch, rows: outer, cols: n, size };
    return inParts(launch(parts, { op, access, dtype }, [used, Math.min(outer, 65535)], 256, args), r, used);
  }
  const vectors = ceilDiv(n, pack);
  const short = vectors <= 128;
  // Places are looked for at the end of a lane's share, so shares are longer there.
  const lanes = clamp(powerAbove(ceilDiv(vectors, short ? 4 : op.kernel.accumulator === 'place' ? 16 : 8)), 1, 512);
  const { grid, block } = rowGrid(outer, lanes);
  if (short && pack > 1 && (lanes === 4 || lanes === 8 || lanes === 16 || lanes === 32))
    return single(launch(rowsHeld, { op, lanes, dtype }, grid, block, { src, dst, rows: outer, cols: n }));
  return single(launch(rows, { op, access, dtype }, grid, block, { src, dst, rows: outer, cols: n, lanes }));
}

/** The elements of a result are `inner` apart; neighbouring results are read together. */
function overColumns(r: Reduction): Launches {
  const { op, dtype, outer, n, inner, target } = r;
  const packed = PACKED_COLUMNS.find(
    (d) => d === dtype && r.aligned && inner % packOf(d) === 0 && op.kernel.accumulator !== 'place',
  );
  const each = packed ? packOf(packed) : 1;
  // A thread takes eight of a column in turns; a few that are left over are not worth joining over threads.
  const x = Math.min(256 / Math.min(8, powerAbove(ceilDiv(n, 8))), powerAbove(inner / each));
  const y = 256 / x;
  const tiles = ceilDiv(inner, x * each) * outer;
  const chunks =
    tiles < 2 * target.multiprocessors
      ? clamp(ceilDiv(4 * target.multiprocessors, tiles), 1, Math.max(1, Math.min(1024, Math.floor(n / (y * 8)))))
      : 1;
  const size = ceilDiv(n, chunks);
  const used = ceilDiv(n, size);
  const args = { src, dst, part: used > 1 ? scratch : 0, outer, n, inner, size };
  const grid = [clamp(tiles, 1, 2 ** 22), used];
  const main = packed
    ? launch(columnPacks, { op, dtype: packed }, grid, [x, y], args)
    : launch(columns, { op, dtype }, grid, [x, y], args);
  return used > 1 ? inParts(main, r, used) : single(main);
}

/** Buffers: src, dst. */
export function reduceLaunch(
  op: ReduceRow,
  elements: DType,
  outer: number,
  n: number,
  inner: number,
  target: Target,
  aligned: boolean,
): Launches {
  const reduction = { op, dtype: kernelDType(elements), outer, n, inner, target, aligned };
  return inner === 1 ? overRows(reduction) : overColumns(reduction);
}

/**
 * A contiguous operand as [outer, n, inner] around the given dimensions; copied into that order where they do not lie
 * side by side.
 */
function threeParts(
  p: Planner,
  x: View,
  dims: readonly number[],
): { x: View; outer: number; n: number; inner: number } {
  const { shape } = x.layout;
  const n = sizeOf(dims.map((d) => shape[d]));
  const between =
    dims.length === 0
      ? []
      : shape.slice(dims[0], dims[dims.length - 1] + 1).filter((_, i) => !dims.includes(dims[0] + i));
  if (x.layout.isContiguous && between.every((d) => d === 1)) {
    const first = dims[0] ?? shape.length;
    const last = dims[dims.length - 1] ?? shape.length - 1;
    return { x, n, outer: sizeOf(shape.slice(0, first)), inner: sizeOf(shape.slice(last + 1)) };
  }
  const kept = shape.map((_, i) => i).filter((i) => !dims.includes(i));
  const dense = p.dense(permuted(x, [...kept, ...dims]));
  return { x: dense, n, outer: sizeOf(kept.map((d) => shape[d])), inner: 1 };
}

export const planReduce: FamilyPlan<ReduceRow, ReduceParams> = (p, row, [given], [out], { dims }) => {
  const { x, outer, n, inner } = threeParts(p, given, dims);
  if (n === 0) return p.fill(out, row.kernel.empty);
  p.run(reduceLaunch(row, x.dtype, outer, n, inner, p.device, aligned16(x)), { src: x, dst: out });
};

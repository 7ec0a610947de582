// Gathers, and rows by number: kernels/indexing.hip; and the plan of all that reads and writes at indices.
import { bytesOf, type DType } from '../../base/dtype.js';
import { UnsupportedError } from '../../base/errors.js';
import { sizeOf } from '../../base/shape.js';
import { CTYPE, INT_TYPES, KernelModule, WORDS, typed } from '../../kernels/declare.js';
import type { RowOf } from '../../ops/op.js';
import { extreme } from './extremes.js';
import { type Ids, type Plan, WALK } from './index-kinds.js';
import {
  alignmentOf,
  at,
  ceilDiv,
  clamp,
  FAULT,
  launch,
  type Launches,
  places,
  powerAbove,
  single,
  strideGrid,
  viewOf,
} from './plan.js';
import { indexAdd, scatter } from './scatter.js';

export const INDEXING = new KernelModule('indexing');
/** Rows are moved as words, so dtypes do not matter, only the largest word that divides a row and its addresses. */
const ROW_WORDS = [16, 8, 4, 2, 1] as const;
const ROW_TYPES = { ...WORDS, 16: 'word4' } as const;
const selectRows = INDEXING.declare({
  each: { word: ROW_WORDS, ids: INT_TYPES },
  symbol: ({ word, ids }) => `select_rows_w${word}_${ids}`,
  body: ({ word, ids }) => ({
    threads: 256,
    params: {
      ...{ ids: `const ${CTYPE[ids]}*`, step: 'i64', ...typed(`const ${ROW_TYPES[word]}*`, 'src', 'rest') },
      ...{ dst: `${ROW_TYPES[word]}*`, fault: 'u32*', ...typed('i64', 'left', 'src_dim', 'ids_dim', 'words') },
      ...typed('u32', 'lanes', 'wrap'),
    },
    call: 'select_rows',
  }),
});
/** The same words the other way: rows of src, `src_step` words apart, to their places in dst. */
const storeRows = INDEXING.declare({
  each: { word: ROW_WORDS },
  symbol: ({ word }) => `store_rows_w${word}`,
  body: ({ word }) => ({
    threads: 256,
    params: {
      ...{ ids: 'const i32*', src: `const ${ROW_TYPES[word]}*`, src_step: 'i64', dst: `${ROW_TYPES[word]}*` },
      ...{ fault: 'u32*', ...typed('i64', 'dst_dim', 'n', 'words'), lanes: 'u32' },
    },
    call: 'store_rows',
  }),
});
/** info: dims of ids, strides of ids, strides of src with 0 along the dimension. */
const gatherAny = INDEXING.declare({
  each: { ids: INT_TYPES, bytes: [8, 4, 2, 1] },
  symbol: ({ ids, bytes }) => `gather_any_${ids}_b${bytes}`,
  body: ({ ids, bytes }) => ({
    threads: 256,
    params: {
      ids: `const ${CTYPE[ids]}*`,
      src: `const ${WORDS[bytes]}*`,
      dst: `${WORDS[bytes]}*`,
      ...WALK,
      ...typed('u64', 'dim_size', 'dim_stride', 'numel'),
    },
    call: 'gather_any',
  }),
});
/** A lane along the last dimension at a time; info has the other dimensions. */
const gatherLanes = INDEXING.declare({
  each: { ids: INT_TYPES, bytes: [8, 4, 2, 1] },
  symbol: ({ ids, bytes }) => `gather_lanes_${ids}_b${bytes}`,
  body: ({ ids, bytes }) => ({
    threads: 256,
    params: {
      ids: `const ${CTYPE[ids]}*`,
      src: `const ${WORDS[bytes]}*`,
      dst: `${WORDS[bytes]}*`,
      ...WALK,
      ...typed('u64', 'lanes', 'count', 'ids_step', 'src_step', 'dim_size', 'dim_stride'),
      ...typed('u32', 'across', 'wrap'),
    },
    call: 'gather_lanes',
  }),
});
/** How many of `count` rows move at once: the word that divides all of these bytes, and lanes for a row of it. */
function rowMoves(count: number, rowBytes: number, ...others: readonly number[]) {
  const word = ROW_WORDS.find((w) => [rowBytes, ...others].every((bytes) => bytes % w === 0)) ?? 1;
  const words = rowBytes / word;
  const lanes = clamp(powerAbove(ceilDiv(words, 4)), 1, 256);
  return { word, words, lanes, grid: clamp(ceilDiv(count, 256 / lanes), 1, 2 ** 22) };
}
/**
 * out[l, j, :] = src[l, ids[j * step], :] over contiguous [left, srcDim, rowBytes], or rest[l, j, :] where there is one
 * and ids name none. Buffers: ids, src, dst, fault, rest.
 * Addresses are multiples of `align`.
 */
export function selectRowsLaunch(
  ids: DType,
  left: number,
  srcDim: number,
  idsDim: number,
  rowBytes: number,
  step: number,
  align: number,
  { wrap = false, rest = false }: { readonly wrap?: boolean | undefined; readonly rest?: boolean | undefined } = {},
): Launches {
  const { word, words, lanes, grid } = rowMoves(left * idsDim, rowBytes, align);
  const sizes = { left, src_dim: srcDim, ids_dim: idsDim, words, lanes, wrap: wrap ? 1 : 0 };
  const buffers = { ...places('src', 'dst', 'fault'), rest: rest ? at('rest') : 0 } as const;
  const args = { ids: at('ids'), step, ...buffers, ...sizes };
  return single(launch(selectRows, { word, ids: ids as Ids }, grid, 256, args));
}

/**
 * dst[ids[j], :] = src[j, :] over contiguous dst; rows of src lie `stepBytes` apart. Buffers: ids (i32), src, dst,
 * fault.
 */
function storeRowsLaunch(dstDim: number, n: number, rowBytes: number, stepBytes: number, align: number): Launches {
  const { word, words, lanes, grid } = rowMoves(n, rowBytes, stepBytes, align);
  const source = { ...places('ids', 'src'), src_step: stepBytes / word };
  const args = { ...source, ...places('dst', 'fault'), dst_dim: dstDim, n, words, lanes };
  return single(launch(storeRows, { word }, grid, 256, args));
}

/** Buffers: ids, src, dst (contiguous in the shape of ids), fault, info. */
export function gatherLaunch(
  ids: DType,
  dtype: DType,
  rank: number,
  dimSize: number,
  dimStride: number,
  numel: number,
): Launches {
  const bytes = bytesOf(dtype) as 1 | 2 | 4 | 8;
  const buffers = places('ids', 'src', 'dst', 'fault', 'info');
  const args = { ...buffers, rank, dim_size: dimSize, dim_stride: dimStride, numel };
  return single(launch(gatherAny, { ids: ids as Ids, bytes }, strideGrid(numel), 256, args));
}

/** Lanes from which finding a lane's place once pays. */
const LANE_PAYS = 256;
/** Elements that a block reads of a lane: LANE_THREADS, LANE_EACH each. */
const LANE_PART = 1024;
/** Where lanes along the last dimension lie, and steps within them. */
interface Lanes {
  readonly rank: number;
  readonly lanes: number;
  readonly count: number;
  readonly idsStep: number;
  readonly srcStep: number;
}
/** Buffers: ids, src, dst (lanes one after another), fault, info. */
function gatherLanesLaunch(
  ids: DType,
  dtype: DType,
  l: Lanes,
  dimSize: number,
  dimStride: number,
  wrap = false,
): Launches {
  const buffers = places('ids', 'src', 'dst', 'fault', 'info');
  const { rank, lanes, count } = l;
  const args = {
    rank,
    lanes,
    count,
    ids_step: l.idsStep,
    src_step: l.srcStep,
    dim_size: dimSize,
    dim_stride: dimStride,
    across: dimStride > 1 && l.srcStep > 0 ? 1 : 0,
    wrap: wrap ? 1 : 0,
  };
  const grid = clamp(lanes * ceilDiv(count, LANE_PART), 1, 2 ** 22);
  const bytes = bytesOf(dtype) as 1 | 2 | 4 | 8;
  return single(launch(gatherLanes, { ids: ids as Ids, bytes }, grid, 256, { ...buffers, ...args }));
}

/** Whole rows along the last kept dimensions move at copy speed. */
const select: Plan = (p, { kernel: { wrap } }, [x, ids, others], [out], { dim }) => {
  const src = p.dense(x);
  const rest = others && p.dense(others);
  const { shape } = x.layout;
  const rowBytes = sizeOf(shape.slice(dim + 1)) * bytesOf(x.dtype);
  const left = sizeOf(shape.slice(0, dim));
  const step = ids.layout.strides[0] ?? 1;
  if (rowBytes === bytesOf(x.dtype) && ids.layout.size >= LANE_PAYS && !rest) {
    const lanes = { rank: 1, lanes: left, count: ids.layout.size, idsStep: step, srcStep: 0 };
    const upload = [left, 0, shape[dim]];
    const launches = gatherLanesLaunch(ids.dtype, x.dtype, lanes, shape[dim], 1, wrap);
    return p.run(launches, { ids, src, dst: out, fault: FAULT, info: { upload } });
  }
  const align = alignmentOf(src, out, ...(rest ? [rest] : []));
  const more = { wrap, rest: rest !== undefined };
  const launches = selectRowsLaunch(ids.dtype, left, shape[dim], ids.layout.size, rowBytes, step, align, more);
  p.run(launches, { ids, src, rest, dst: out, fault: FAULT });
};

const gather: Plan = (p, _row, [x, ids], [out], { dim }) => {
  const { shape, strides, size } = ids.layout;
  const steps = x.layout.strides.map((s, i) => (i === dim ? 0 : s));
  const last = shape.length - 1;
  if (shape[last] >= LANE_PAYS) {
    const [count, dimSize] = [shape[last], x.layout.shape[dim]];
    const lanes = { rank: last, lanes: size / count, count, idsStep: strides[last], srcStep: steps[last] };
    const upload = [shape, strides, steps].flatMap((list) => list.slice(0, -1));
    const launches = gatherLanesLaunch(ids.dtype, x.dtype, lanes, dimSize, x.layout.strides[dim]);
    return p.run(launches, { ids, src: x, dst: out, fault: FAULT, info: { upload } });
  }
  const upload = [...shape, ...strides, ...steps];
  const launches = gatherLaunch(ids.dtype, x.dtype, shape.length, x.layout.shape[dim], x.layout.strides[dim], size);
  p.run(launches, { ids, src: x, dst: out, fault: FAULT, info: { upload } });
};

const sliceScatter: Plan = (p, _row, [x, src], [out], { dim, start = 0 }) => {
  p.copy(x, out);
  if (src.layout.size === 0) return;
  p.copy(src, { ...viewOf(out), layout: out.layout.slice(dim, start, src.layout.shape[dim]) });
};

/** In place: dst keeps its other rows. */
const store: Plan = (p, _row, [, ids, src], [dst]) => {
  const [rows, width] = dst.layout.shape;
  const bytes = bytesOf(dst.dtype);
  const from = src.layout.strides[1] === 1 ? src : p.dense(src);
  const step = from.layout.strides[0] * bytes;
  const launches = storeRowsLaunch(rows, src.layout.shape[0], width * bytes, step, alignmentOf(from, dst));
  p.run(launches, { ids: p.dense(ids), src: from, dst, fault: FAULT });
};

const KINDS: Readonly<Record<RowOf<'index'>['kernel']['kind'], Plan>> = {
  select,
  gather,
  scatter,
  extreme,
  indexAdd,
  sliceScatter,
  store,
  experts: (_p, row) => {
    throw new UnsupportedError(`${row.name}: GPUs gather the matrices of experts`);
  },
};
export const planIndex: Plan = (p, row, inputs, outputs, params) =>
  KINDS[row.kernel.kind](p, row, inputs, outputs, params);

// Gathers and scatters: kernels/indexing.hip.
import { bytesOf, DTYPE, type DType, kernelDType } from '../../base/dtype.js';
import { UnsupportedError } from '../../base/errors.js';
import { sameShape, sizeOf } from '../../base/shape.js';
import { ALL_TYPES, CTYPE, INT_TYPES, KernelModule, suffixOf, WORDS, typed } from '../../kernels/declare.js';
import type { RowOf } from '../../ops/op.js';
import type { View } from '../backend.js';
import {
  alignmentOf,
  at,
  ceilDiv,
  clamp,
  type FamilyPlan,
  FAULT,
  type Launch,
  launch,
  type Launches,
  MOST_BLOCKS,
  permuted,
  places,
  type Planner,
  type Pointer,
  powerAbove,
  single,
  strideGrid,
  viewOf,
} from './plan.js';
import { sortLaunch } from './sort.js';

export const INDEXING = new KernelModule('indexing');
/** Element types in the order of Candle's own list. */
const VALUE_TYPES = ['f32', 'f64', 'f16', 'bf16', 'f8e4m3', 'u8', 'u32', 'i16', 'i32', 'i64'] as const;
type Ids = (typeof INT_TYPES)[number];

/** Rows are moved as words, so dtypes do not matter, only the largest word that divides a row and its addresses. */
const ROW_WORDS = [16, 8, 4, 2, 1] as const;
const ROW_TYPES = { ...WORDS, 16: 'word4' } as const;
const selectRows = INDEXING.declare({
  each: { word: ROW_WORDS, ids: INT_TYPES },
  symbol: ({ word, ids }) => `select_rows_w${word}_${ids}`,
  body: ({ word, ids }) => ({
    threads: 256,
    params: {
      ...{ ids: `const ${CTYPE[ids]}*`, step: 'i64', src: `const ${ROW_TYPES[word]}*`, dst: `${ROW_TYPES[word]}*` },
      ...{ fault: 'u32*', ...typed('i64', 'left', 'src_dim', 'ids_dim', 'words'), lanes: 'u32' },
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
/** Where an index was out of range is said, and how dimensions lie. */
const WALK = { fault: 'u32*', info: 'const u64*', rank: 'u32' } as const;
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
    },
    call: 'gather_lanes',
  }),
});
const addPart = ({ add }: { readonly add: boolean }): string => (add ? 'add_' : '');
/**
 * A thread a lane, in the lane's order. info: dims, then strides of ids, src and dst, without the scattered dimension.
 */
const scatterAny = INDEXING.declare({
  each: { add: [false, true], ids: INT_TYPES, dtype: VALUE_TYPES },
  symbol: (v) => `scatter_${addPart(v)}any_${v.ids}_${suffixOf(v.dtype)}`,
  body: ({ add, ids, dtype }) => ({
    threads: 256,
    params: {
      ids: `const ${CTYPE[ids]}*`,
      src: `const ${CTYPE[dtype]}*`,
      dst: `${CTYPE[dtype]}*`,
      ...WALK,
      ...typed('u64', 'lanes', 'count', 'ids_step', 'src_step', 'dst_dim', 'dst_step'),
    },
    call: `scatter_any<${add}>`,
  }),
});
/** The places of every lane as keys for a sort, what is none as the two largest. */
const scatterKeys = INDEXING.declare({
  each: { ids: INT_TYPES },
  symbol: ({ ids }) => `scatter_keys_${ids}`,
  body: ({ ids }) => ({
    threads: 256,
    params: {
      ids: `const ${CTYPE[ids]}*`,
      keys: 'u32*',
      ...WALK,
      ...typed('u64', 'lanes', 'count', 'ids_step', 'dst_dim'),
    },
    call: 'scatter_keys',
  }),
});
/** One thread does each run of equal places. */
const scatterSorted = INDEXING.declare({
  each: { add: [false, true], dtype: ALL_TYPES },
  symbol: (v) => `scatter_${addPart(v)}sorted_${suffixOf(v.dtype)}`,
  body: ({ add, dtype }) => ({
    threads: 256,
    params: {
      ...{ ...typed('const u32*', 'order', 'sorted'), src: `const ${CTYPE[dtype]}*`, dst: `${CTYPE[dtype]}*` },
      ...{ info: 'const u64*', rank: 'u32' },
      ...typed('u64', 'lanes', 'count', 'src_step', 'dst_dim', 'dst_step'),
    },
    call: `scatter_sorted<${add}>`,
  }),
});
/** Claims on places, a word each, and whether a lane has a bad index, a word a lane. */
const scatterClear = INDEXING.declare({
  each: {},
  symbol: () => 'scatter_clear',
  body: () => ({ threads: 256, params: { words: 'u32*', n: 'u64' }, call: 'clear_claims' }),
});
const scatterClaim = INDEXING.declare({
  each: { ids: INT_TYPES },
  symbol: ({ ids }) => `scatter_claim_${ids}`,
  body: ({ ids }) => ({
    threads: 256,
    params: {
      ids: `const ${CTYPE[ids]}*`,
      claims: 'u32*',
      ...WALK,
      ...typed('u64', 'lanes', 'count', 'ids_step', 'dst_dim'),
    },
    call: 'scatter_claim',
  }),
});
/** Every place takes what its claim names. */
const scatterClaimed = INDEXING.declare({
  each: { bytes: [8, 4, 2, 1] },
  symbol: ({ bytes }) => `scatter_claimed_b${bytes}`,
  body: ({ bytes }) => ({
    threads: 256,
    params: {
      ...{ claims: 'const u32*', src: `const ${WORDS[bytes]}*`, dst: `${WORDS[bytes]}*` },
      ...{ info: 'const u64*', rank: 'u32' },
      ...typed('u64', 'lanes', 'src_step', 'dst_dim', 'dst_step'),
    },
    call: 'scatter_claimed',
  }),
});
/** A block holds a part of a contiguous lane's places (held_places) and sees all of its indices. */
const scatterHeld = INDEXING.declare({
  each: { add: [false, true], ids: INT_TYPES, dtype: VALUE_TYPES },
  symbol: (v) => `scatter_${addPart(v)}held_${v.ids}_${suffixOf(v.dtype)}`,
  body: ({ add, ids, dtype }) => ({
    threads: 256,
    params: {
      ...{ ids: `const ${CTYPE[ids]}*`, src: `const ${CTYPE[dtype]}*`, dst: `${CTYPE[dtype]}*`, fault: 'u32*' },
      ...typed('u64', 'lanes', 'count', 'ids_lane', 'ids_step', 'dst_dim'),
    },
    call: `scatter_held<${add}>`,
  }),
});
/** Indices of any dtype as keys for a sort, what is not a place as the two largest. */
const indexKeys = INDEXING.declare({
  each: { ids: INT_TYPES },
  symbol: ({ ids }) => `index_keys_${ids}`,
  body: ({ ids }) => ({
    threads: 256,
    params: { ids: `const ${CTYPE[ids]}*`, step: 'i64', keys: 'u32*', fault: 'u32*', n: 'u64', dim: 'u64' },
    call: 'index_keys',
  }),
});
/** Each run of equal indices adds its rows of src up in the order they came. */
const addSorted = INDEXING.forTypes(ALL_TYPES, 'add_sorted', (T) => ({
  threads: 256,
  params: {
    ...{ ...typed('const u32*', 'order', 'sorted'), src: `const ${T}*`, dst: `${T}*` },
    ...typed('u64', 'left', 'n', 'dst_dim', 'right'),
  },
  call: 'add_sorted',
}));

/** How many of `count` rows move at once: the word that divides all of these bytes, and lanes for a row of it. */
function rowMoves(count: number, rowBytes: number, ...others: readonly number[]) {
  const word = ROW_WORDS.find((w) => [rowBytes, ...others].every((bytes) => bytes % w === 0)) ?? 1;
  const words = rowBytes / word;
  const lanes = clamp(powerAbove(ceilDiv(words, 4)), 1, 256);
  return { word, words, lanes, grid: clamp(ceilDiv(count, 256 / lanes), 1, 2 ** 22) };
}
/**
 * out[l, j, :] = src[l, ids[j * step], :] over contiguous [left, srcDim, rowBytes]. Buffers: ids, src, dst, fault.
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
): Launches {
  const { word, words, lanes, grid } = rowMoves(left * idsDim, rowBytes, align);
  const sizes = { left, src_dim: srcDim, ids_dim: idsDim, words, lanes };
  const args = { ids: at('ids'), step, ...places('src', 'dst', 'fault'), ...sizes };
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
function gatherLanesLaunch(ids: DType, dtype: DType, l: Lanes, dimSize: number, dimStride: number): Launches {
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
  };
  const grid = clamp(lanes * ceilDiv(count, LANE_PART), 1, 2 ** 22);
  const bytes = bytesOf(dtype) as 1 | 2 | 4 | 8;
  return single(launch(gatherLanes, { ids: ids as Ids, bytes }, grid, 256, { ...buffers, ...args }));
}

export interface ScatterShape {
  /** Dimensions of ids but the scattered one. */
  readonly rank: number;
  /** Their product: independent lanes. */
  readonly lanes: number;
  /** Indices in a lane. */
  readonly count: number;
  readonly idsStep: number;
  readonly srcStep: number;
  readonly dstDim: number;
  readonly dstStep: number;
}
/**
 * Fewer lanes than this leave most of a device idle with a thread each, once they are long enough for a sort to pay.
 */
const FEW_LANES = 16384;
const LONG_LANE = 256;
/** Places for an index up to which each has a claim of its own: more are cleared and looked at in vain. */
const CLAIMS_PER_INDEX = 16;
/** dst already holds x. Buffers: ids, src, dst, fault, info. */
export function scatterLaunch(add: boolean, ids: DType, elements: DType, s: ScatterShape): Launches {
  const dtype = kernelDType(elements);
  const { rank, lanes, count } = s;
  const lookup = { ...places('ids', 'fault', 'info'), rank, lanes, count, ids_step: s.idsStep };
  const target = { ...places('src', 'dst'), src_step: s.srcStep, dst_dim: s.dstDim, dst_step: s.dstStep };
  if (lanes >= FEW_LANES || count < LONG_LANE)
    return single(
      launch(scatterAny, { add, ids: ids as Ids, dtype }, strideGrid(lanes), 256, { ...lookup, ...target }),
    );
  const n = lanes * count;
  if (!add && s.dstDim <= CLAIMS_PER_INDEX * count && count < 2 ** 32 - 1) {
    const claims = at('scratch');
    const words = lanes * (s.dstDim + 1);
    const bytes = bytesOf(elements) as 1 | 2 | 4 | 8;
    const taken = { claims, info: at('info'), rank, lanes };
    return {
      launches: [
        launch(scatterClear, {}, strideGrid(words), 256, { words: claims, n: words }),
        launch(scatterClaim, { ids: ids as Ids }, strideGrid(n), 256, { ...lookup, claims, dst_dim: s.dstDim }),
        launch(scatterClaimed, { bytes }, strideGrid(lanes * s.dstDim), 256, { ...taken, ...target }),
      ],
      scratch: words * 4,
    };
  }
  // The same results from sorted indices, with a thread for each place that is written.
  const { sort, keys, sorted, order, scratch } = sortedKeys(lanes, count);
  const found = { order, sorted, info: at('info'), rank, lanes, count };
  return {
    launches: [
      launch(scatterKeys, { ids: ids as Ids }, strideGrid(n), 256, { ...lookup, keys, dst_dim: s.dstDim }),
      ...sort,
      launch(scatterSorted, { add, dtype }, strideGrid(n), 256, { ...found, ...target }),
    ],
    scratch,
  };
}

/**
 * u32 keys [rows, cols] at the front of the scratch buffer, the launches that sort each row, and where sorted keys and
 * their order are.
 */
function sortedKeys(
  rows: number,
  cols: number,
): { sort: readonly Launch[]; keys: Pointer; sorted: Pointer; order: Pointer; scratch: number } {
  const words = ceilDiv(rows * cols * 4, 16) * 16;
  const [keys, sorted, order, rest] = [0, 1, 2, 3].map((i) => at('scratch', i * words));
  const inner = sortLaunch('u32', rows, cols, cols, false, {
    src: keys,
    indices: order,
    values: sorted,
    scratch: rest,
  });
  return { sort: inner.launches, keys, sorted, order, scratch: 3 * words + inner.scratch };
}

/**
 * dst[l, ids[j], :] += src[l, j, :] over contiguous [left, dstDim, right], where dst already holds x: indices are
 * sorted, then each run of equal ones is added up in its order. Buffers: ids, src, dst, fault.
 */
export function indexAddLaunch(
  ids: DType,
  dtype: DType,
  left: number,
  dstDim: number,
  n: number,
  right: number,
  step: number,
): Launches {
  const { sort, keys, sorted, order, scratch } = sortedKeys(1, n);
  const source = { ids: at('ids'), step, keys, fault: at('fault'), n, dim: dstDim };
  const sums = { order, sorted, ...places('src', 'dst'), left, n, dst_dim: dstDim, right };
  // Long rows are shared by several blocks, of 128 elements each where there are not many of them anyway.
  const across = clamp(ceilDiv(right, 128), 1, ceilDiv(65536, ceilDiv(n, 8) * Math.min(left, MOST_BLOCKS[1])));
  const grid = [ceilDiv(n, 8), Math.min(left, MOST_BLOCKS[1]), Math.min(across, MOST_BLOCKS[2])];
  return {
    launches: [
      launch(indexKeys, { ids: ids as Ids }, strideGrid(n), 256, source),
      ...sort,
      launch(addSorted, { dtype: kernelDType(dtype) }, grid, [32, 8], sums),
    ],
    scratch,
  };
}

type Plan = FamilyPlan<RowOf<'index'>, { readonly dim: number; readonly start?: number }>;
const without = <T>(list: readonly T[], dim: number): T[] => list.filter((_, i) => i !== dim);

/** Whole rows along the last kept dimensions move at copy speed. */
const select: Plan = (p, _row, [x, ids], [out], { dim }) => {
  const src = p.dense(x);
  const { shape } = x.layout;
  const rowBytes = sizeOf(shape.slice(dim + 1)) * bytesOf(x.dtype);
  const left = sizeOf(shape.slice(0, dim));
  const step = ids.layout.strides[0] ?? 1;
  if (rowBytes === bytesOf(x.dtype) && ids.layout.size >= LANE_PAYS) {
    const lanes = { rank: 1, lanes: left, count: ids.layout.size, idsStep: step, srcStep: 0 };
    const upload = [left, 0, shape[dim]];
    const launches = gatherLanesLaunch(ids.dtype, x.dtype, lanes, shape[dim], 1);
    return p.run(launches, { ids, src, dst: out, fault: FAULT, info: { upload } });
  }
  const align = alignmentOf(src, out);
  const launches = selectRowsLaunch(ids.dtype, left, shape[dim], ids.layout.size, rowBytes, step, align);
  p.run(launches, { ids, src, dst: out, fault: FAULT });
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

/** Parts of a lane that see all of its indices each: more would read them too often. */
const MOST_PARTS = 8;
/** Indices that a block sees one after another, where there are few lanes to share the work. */
const LONG_WALK = 65536;
const partsOf = (dtype: DType, dstDim: number): number => ceilDiv(dstDim, bytesOf(dtype) === 8 ? 2048 : 4096);

/** Whether lanes are worth putting side by side for blocks that hold their places. */
function heldServes(dtype: DType, lanes: number, count: number, dstDim: number, last: boolean): boolean {
  const parts = partsOf(dtype, dstDim);
  if (count < LONG_LANE || count >= 2 ** 32 - 1 || parts > MOST_PARTS) return false;
  // Threads of neighbouring lanes read side by side where the scattered dimension is not the last.
  if (!last && lanes >= FEW_LANES) return false;
  return count <= LONG_WALK || lanes * parts >= 128;
}

const HELD_BUFFERS = places('ids', 'src', 'dst', 'fault');
const scatterIntoHeld = (p: Planner, add: boolean, [x, ids, src]: readonly View[], out: View, dim: number): void => {
  const { shape } = out.layout;
  const order = [...shape.keys()].filter((d) => d !== dim).concat(dim);
  const last = dim === shape.length - 1;
  const [index, to] = [permuted(ids, order), permuted(out, order)];
  const kept = index.layout.strides.slice(0, -1);
  const shared = kept.every((stride, d) => stride === 0 || index.layout.shape[d] === 1);
  const given = shared ? index : p.dense(index);
  const dst = last ? viewOf(out) : p.make(to.layout.shape, out.dtype);
  p.copy(permuted(x, order), dst);
  const dtype = kernelDType(out.dtype);
  const [dstDim, count] = [shape[dim], ids.layout.shape[dim]];
  const lanes = out.layout.size / dstDim;
  const sizes = { lanes, count, ids_lane: shared ? 0 : count, ids_step: given.layout.strides[shape.length - 1] };
  const args = { ...HELD_BUFFERS, ...sizes, dst_dim: dstDim };
  const grid = Math.min(lanes * partsOf(dtype, dstDim), 2 ** 22);
  p.run(single(launch(scatterHeld, { add, ids: ids.dtype as Ids, dtype }, grid, 256, args)), {
    ids: given,
    src: p.dense(permuted(src, order)),
    dst,
    fault: FAULT,
  });
  if (!last) p.copy(dst, to);
};

const scatter: Plan = (p, { kernel }, [x, ids, src], [out], { dim }) => {
  const own = without(ids.layout.shape, dim);
  const all = sameShape(own, without(out.layout.shape, dim)); // and not only a part of the lanes
  const last = dim === out.layout.shape.length - 1;
  if (
    all &&
    ids.layout.size > 0 &&
    heldServes(kernelDType(x.dtype), sizeOf(own), ids.layout.shape[dim], out.layout.shape[dim], last)
  )
    return scatterIntoHeld(p, kernel.add ?? false, [x, ids, src], out, dim);
  p.copy(x, out);
  if (ids.layout.size === 0) return;
  const dims = without(ids.layout.shape, dim);
  const upload = [...dims, ...[ids, src, out].flatMap((v) => without(v.layout.strides, dim))];
  const launches = scatterLaunch(kernel.add ?? false, ids.dtype, x.dtype, {
    rank: dims.length,
    lanes: sizeOf(dims),
    count: ids.layout.shape[dim],
    idsStep: ids.layout.strides[dim],
    srcStep: src.layout.strides[dim],
    dstDim: out.layout.shape[dim],
    dstStep: out.layout.strides[dim],
  });
  p.run(launches, { ids, src, dst: out, fault: FAULT, info: { upload } });
};

const indexAdd: Plan = (p, _row, [x, ids, src], [out], { dim }) => {
  const { shape } = out.layout;
  const [left, right] = [sizeOf(shape.slice(0, dim)), sizeOf(shape.slice(dim + 1))];
  const dtype = kernelDType(x.dtype);
  // Rows of one element leave most threads of a run idle. (Small floats are rounded once below, and each time here.)
  const exact = DTYPE[dtype].kind !== 'float' || dtype === 'f32' || dtype === 'f64';
  if (dim === shape.length - 1 && left > 1 && exact && heldServes(dtype, left, ids.layout.size, shape[dim], true)) {
    const each = { ...viewOf(ids), layout: ids.layout.broadcastTo('indexAdd', src.layout.shape) };
    return scatterIntoHeld(p, true, [x, each, src], out, dim);
  }
  p.copy(x, out);
  if (src.layout.size === 0) return;
  const step = ids.layout.strides[0] ?? 1;
  const launches = indexAddLaunch(ids.dtype, x.dtype, left, shape[dim], ids.layout.size, right, step);
  p.run(launches, { ids, src: p.dense(src), dst: out, fault: FAULT });
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
  indexAdd,
  sliceScatter,
  store,
  experts: (_p, row) => {
    throw new UnsupportedError(`${row.name}: GPUs gather the matrices of experts`);
  },
};
export const planIndex: Plan = (p, row, inputs, outputs, params) =>
  KINDS[row.kernel.kind](p, row, inputs, outputs, params);

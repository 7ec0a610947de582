// Scatters and sums by index: kernels/scatter.hip.
import { bytesOf, DTYPE, type DType, kernelDType } from '../../base/dtype.js';
import { sameShape, sizeOf } from '../../base/shape.js';
import { ALL_TYPES, CTYPE, INT_TYPES, KernelModule, Struct, suffixOf, WORDS, typed } from '../../kernels/declare.js';
import type { View } from '../backend.js';
import { type Ids, type Plan, VALUE_TYPES, WALK, without } from './index-kinds.js';
import {
  aligned16,
  at,
  ceilDiv,
  FAULT,
  type Launch,
  launch,
  type Launches,
  packOf,
  permuted,
  places,
  type Planner,
  type Pointer,
  single,
  strideGrid,
  type Target,
  viewOf,
} from './plan.js';
import { sortLaunch } from './sort.js';

export const SCATTER = new KernelModule('scatter');
const addPart = ({ add }: { readonly add: boolean }): string => (add ? 'add_' : '');
/**
 * A thread a lane, in the lane's order. info: dims, then strides of ids, src and dst, without the scattered dimension.
 */
const scatterAny = SCATTER.declare({
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
/**
 * The places of every index of every lane, to words: as keys for a sort, what is none as the two largest; as claims.
 */
const overPlaces = <W extends string>(name: string, words: W) =>
  SCATTER.declare({
    each: { ids: INT_TYPES },
    symbol: ({ ids }) => `${name}_${ids}`,
    body: ({ ids }) => ({
      threads: 256,
      params: {
        ids: `const ${CTYPE[ids]}*`,
        ...({ [words]: 'u32*' } as { readonly [K in W]: 'u32*' }),
        ...WALK,
        ...typed('u64', 'lanes', 'count', 'ids_step', 'dst_dim'),
      },
      call: name,
    }),
  });
const scatterKeys = overPlaces('scatter_keys', 'keys');
const scatterClaim = overPlaces('scatter_claim', 'claims');
/** One thread does each run of equal places. */
const scatterSorted = SCATTER.declare({
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
const scatterClear = SCATTER.declare({
  each: {},
  symbol: () => 'scatter_clear',
  body: () => ({ threads: 256, params: { words: 'u32*', n: 'u64' }, call: 'clear_claims' }),
});
/** Every place takes what its claim names. */
const scatterClaimed = SCATTER.declare({
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
const scatterHeld = SCATTER.declare({
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
const indexKeys = SCATTER.declare({
  each: { ids: INT_TYPES },
  symbol: ({ ids }) => `index_keys_${ids}`,
  body: ({ ids }) => ({
    threads: 256,
    params: { ids: `const ${CTYPE[ids]}*`, step: 'i64', keys: 'u32*', fault: 'u32*', n: 'u64', dim: 'u64' },
    call: 'index_keys',
  }),
});
const runStarts = SCATTER.declare({
  each: {},
  symbol: () => 'index_starts',
  body: () => ({
    threads: 256,
    params: { sorted: 'const u32*', starts: 'u32*', n: 'u64', dst_dim: 'u64' },
    call: 'run_starts',
  }),
});
/** How a thread's neighbours in a row are read: single ones, or as many as 16 bytes hold. */
const STEPS = new Struct('RowSteps', { left: 'i64', row: 'i64', step: 'i64' });
const addRows = SCATTER.declare({
  each: { access: ['singles', 'packs'], dtype: ALL_TYPES },
  symbol: ({ access, dtype }) => `add_rows_${access}_${suffixOf(dtype)}`,
  body: ({ access, dtype }) => ({
    threads: 256,
    params: {
      ...{ ...typed('const u32*', 'order', 'sorted', 'starts'), ...typed(`const ${CTYPE[dtype]}*`, 'x', 'src') },
      ...{ out: `${CTYPE[dtype]}*`, ...typed('u64', 'left', 'n', 'dst_dim', 'right'), from: STEPS, add: STEPS },
    },
    call: `add_rows<${access === 'packs' ? `pack_size<${CTYPE[dtype]}>` : 1}>`,
  }),
});

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
export function scatterLaunch(add: boolean, ids: DType, elements: DType, s: ScatterShape, device: Target): Launches {
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
  const { sort, keys, sorted, order, scratch } = sortedKeys(lanes, count, device);
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
  target: Target,
): { sort: readonly Launch[]; keys: Pointer; sorted: Pointer; order: Pointer; scratch: number } {
  const words = ceilDiv(rows * cols * 4, 16) * 16;
  const [keys, sorted, order, rest] = [0, 1, 2, 3].map((i) => at('scratch', i * words));
  const inner = sortLaunch('u32', rows, cols, cols, false, target, {
    src: keys,
    indices: order,
    values: sorted,
    scratch: rest,
  });
  return { sort: inner.launches, keys, sorted, order, scratch: 3 * words + inner.scratch };
}

/** Rows of x or src: contiguous, or one number for all of them. */
export interface AddedRows {
  readonly left: number;
  readonly row: number;
  readonly step: number;
}
/**
 * out[l, i, :] = x[l, i, :] and all src[l, j, :] where ids[j] is i, over contiguous out [left, dstDim, right]: indices
 * are sorted, then each place adds its run of them up in its order. Buffers: ids, x, src, dst, fault.
 */
export function indexAddLaunch(
  ids: DType,
  elements: DType,
  [left, dstDim, n, right]: readonly [left: number, dstDim: number, n: number, right: number],
  step: number,
  target: Target,
  {
    from = rowsOf(dstDim, right),
    add = rowsOf(n, right),
    aligned = false,
  }: {
    readonly from?: AddedRows | undefined;
    readonly add?: AddedRows | undefined;
    readonly aligned?: boolean;
  } = {},
): Launches {
  const dtype = kernelDType(elements);
  const { sort, keys, sorted, order, scratch } = sortedKeys(1, n, target);
  const startsAt = ceilDiv(scratch, 16) * 16;
  const starts = at('scratch', startsAt);
  const source = { ids: at('ids'), step, keys, fault: at('fault'), n, dim: dstDim };
  const packed = aligned && right % packOf(dtype) === 0;
  const vectors = left * dstDim * (packed ? right / packOf(dtype) : right);
  const sums = {
    order,
    sorted,
    starts,
    ...places('x', 'src'),
    out: at('dst'),
    left,
    n,
    dst_dim: dstDim,
    right,
    from,
    add,
  };
  return {
    launches: [
      launch(indexKeys, { ids: ids as Ids }, strideGrid(n), 256, source),
      ...sort,
      launch(runStarts, {}, strideGrid(dstDim + 1), 256, { sorted, starts, n, dst_dim: dstDim }),
      launch(addRows, { access: packed ? 'packs' : 'singles', dtype }, strideGrid(vectors), 256, sums),
    ],
    scratch: startsAt + (dstDim + 1) * 4,
  };
}
const rowsOf = (rows: number, right: number): AddedRows => ({ left: rows * right, row: right, step: 1 });

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

export const scatter: Plan = (p, { kernel }, [x, ids, src], [out], { dim }) => {
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
  const launches = scatterLaunch(
    kernel.add ?? false,
    ids.dtype,
    x.dtype,
    {
      rank: dims.length,
      lanes: sizeOf(dims),
      count: ids.layout.shape[dim],
      idsStep: ids.layout.strides[dim],
      srcStep: src.layout.strides[dim],
      dstDim: out.layout.shape[dim],
      dstStep: out.layout.strides[dim],
    },
    p.device,
  );
  p.run(launches, { ids, src, dst: out, fault: FAULT, info: { upload } });
};

export const indexAdd: Plan = (p, _row, [x, ids, src], [out], { dim }) => {
  const { shape } = out.layout;
  const [left, right] = [sizeOf(shape.slice(0, dim)), sizeOf(shape.slice(dim + 1))];
  const dtype = kernelDType(x.dtype);
  // Rows of one element leave most threads of a run idle. (Small floats are rounded once below, and each time here.)
  const exact = DTYPE[dtype].kind !== 'float' || dtype === 'f32' || dtype === 'f64';
  if (dim === shape.length - 1 && left > 1 && exact && heldServes(dtype, left, ids.layout.size, shape[dim], true)) {
    const each = { ...viewOf(ids), layout: ids.layout.broadcastTo('indexAdd', src.layout.shape) };
    return scatterIntoHeld(p, true, [x, each, src], out, dim);
  }
  if (src.layout.size === 0) return p.copy(x, out);
  const step = ids.layout.strides[0] ?? 1;
  // One number for all, as zeros that gradients begin with and gradients of a sum are, is not written out first.
  const [from, add] = [x, src].map((v) => (v.layout.strides.every((s) => s === 0) ? ONE_FOR_ALL : undefined));
  const [own, added] = [from ? x : p.dense(x), add ? src : p.dense(src)];
  const aligned = aligned16(out, ...(from ? [] : [own]), ...(add ? [] : [added]));
  const sizes = [left, shape[dim], ids.layout.size, right] as const;
  const launches = indexAddLaunch(ids.dtype, x.dtype, sizes, step, p.device, { from, add, aligned });
  p.run(launches, { ids, x: own, src: added, dst: out, fault: FAULT });
};
const ONE_FOR_ALL: AddedRows = { left: 0, row: 0, step: 0 };

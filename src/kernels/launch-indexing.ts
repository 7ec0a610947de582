// Launches of row moves, gathers, scatters, sorts and transposes.
import { bytesOf, type DType } from '../base/dtype.js';
import {
  at,
  ceilDiv,
  clamp,
  launch,
  type Launch,
  type Plan,
  type Pointer,
  powerAbove,
  rowGrid,
  single,
  strideGrid,
  suffixOf,
} from './launch-plan.js';

/** The largest power of two up to 16 that divides all numbers. */
function commonWord(...numbers: readonly number[]): number {
  let word = 16;
  while (word > 1 && numbers.some((n) => n % word !== 0)) word /= 2;
  return word;
}

/** out[l, j, :] = src[l, ids[j * idsStep], :] over contiguous [left, srcDim, rowBytes]. Buffers: ids, src, dst, fault. Addresses are multiples of `align`. */
export function selectRowsLaunch(
  ids: DType,
  left: number,
  srcDim: number,
  idsDim: number,
  rowBytes: number,
  idsStep: number,
  align: number,
): Plan {
  const word = commonWord(rowBytes, align);
  const words = rowBytes / word;
  const lanes = clamp(powerAbove(ceilDiv(words, 4)), 1, 256);
  const block = 256;
  const grid = clamp(ceilDiv(left * idsDim, block / lanes), 1, 2 ** 22);
  return single(
    launch('indexing', `select_rows_w${word}_${ids}`, [grid], block, [
      at('ids'),
      idsStep,
      at('src'),
      at('dst'),
      at('fault'),
      left,
      srcDim,
      idsDim,
      words,
      lanes,
    ]),
  );
}

/** Buffers: ids, src, dst (contiguous in the shape of ids), fault, info: ids dims, ids strides, src strides with 0 along the dimension. */
export function gatherLaunch(
  ids: DType,
  dtype: DType,
  rank: number,
  dimSize: number,
  dimStride: number,
  numel: number,
): Plan {
  return single(
    launch('indexing', `gather_any_${ids}_b${bytesOf(dtype)}`, [strideGrid(numel)], 256, [
      at('ids'),
      at('src'),
      at('dst'),
      at('fault'),
      at('info'),
      rank,
      dimSize,
      dimStride,
      numel,
    ]),
  );
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
/** Fewer lanes than this leave most of a device idle with a thread each, once they are long enough for a sort to pay. */
const FEW_LANES = 16384;
const LONG_LANE = 256;
/** dst already holds x. Buffers: ids, src, dst, fault, info: dims, then strides of ids, src and dst, without the scattered dimension. */
export function scatterLaunch(add: boolean, ids: DType, dtype: DType, s: ScatterShape): Plan {
  const stem = `scatter_${add ? 'add_' : ''}`;
  const shape = [s.srcStep, s.dstDim, s.dstStep];
  if (s.lanes >= FEW_LANES || s.count < LONG_LANE) {
    return single(
      launch('indexing', `${stem}any_${ids}_${suffixOf(dtype)}`, [strideGrid(s.lanes)], 256, [
        at('ids'),
        at('src'),
        at('dst'),
        at('fault'),
        at('info'),
        s.rank,
        s.lanes,
        s.count,
        s.idsStep,
        ...shape,
      ]),
    );
  }
  // The same results from sorted indices, with a thread for each place that is written.
  const n = s.lanes * s.count;
  const { sort, keys, sorted, order, scratch } = sortedKeys(s.lanes, s.count);
  return {
    launches: [
      launch('indexing', `scatter_keys_${ids}`, [strideGrid(n)], 256, [
        at('ids'),
        keys,
        at('fault'),
        at('info'),
        s.rank,
        s.lanes,
        s.count,
        s.idsStep,
        s.dstDim,
      ]),
      ...sort,
      launch('indexing', `${stem}sorted_${suffixOf(dtype)}`, [strideGrid(n)], 256, [
        order,
        sorted,
        at('src'),
        at('dst'),
        at('info'),
        s.rank,
        s.lanes,
        s.count,
        ...shape,
      ]),
    ],
    scratch,
  };
}

/** u32 keys [rows, cols] at the front of the scratch buffer, the launches that sort each row, and where sorted keys and their order are. */
function sortedKeys(
  rows: number,
  cols: number,
): { sort: readonly Launch[]; keys: Pointer; sorted: Pointer; order: Pointer; scratch: number } {
  const words = ceilDiv(rows * cols * 4, 16) * 16;
  const inner = sortLaunch(
    'u32',
    rows,
    cols,
    cols,
    false,
    { src: 'scratch', indices: 'scratch', values: 'scratch', scratch: 'scratch' },
    {
      src: 0,
      indices: 2 * words,
      values: words,
      scratch: 3 * words,
    },
  );
  return {
    sort: inner.launches,
    keys: at('scratch'),
    sorted: at('scratch', words),
    order: at('scratch', 2 * words),
    scratch: 3 * words + inner.scratch,
  };
}

/**
 * dst[l, ids[j], :] += src[l, j, :] over contiguous [left, dstDim, right], where dst already holds x: indices are sorted, then each run of
 * equal ones is added up in its order. Buffers: ids, src, dst, fault.
 */
export function indexAddLaunch(
  ids: DType,
  dtype: DType,
  left: number,
  dstDim: number,
  n: number,
  right: number,
  idsStep: number,
): Plan {
  const { sort, keys, sorted, order, scratch } = sortedKeys(1, n);
  return {
    launches: [
      launch('indexing', `index_keys_${ids}`, [strideGrid(n)], 256, [at('ids'), idsStep, keys, at('fault'), n, dstDim]),
      ...sort,
      launch(
        'indexing',
        `add_sorted_${suffixOf(dtype)}`,
        [ceilDiv(n, 8), left],
        [32, 8],
        [order, sorted, at('src'), at('dst'), n, dstDim, right],
      ),
    ],
    scratch,
  };
}

interface SortNames {
  readonly src: string;
  readonly indices: string;
  readonly values: string;
  readonly scratch: string;
}
type SortOffsets = Readonly<Record<keyof SortNames, number>>;

/** Longest row that is sorted inside a block. */
export const sortInBlock = (dtype: DType): number => (bytesOf(dtype) === 8 ? 2048 : 4096);

/**
 * The first `keep` of each sorted row of contiguous [rows, cols]: indices (u32) and, where `values` is a buffer, values.
 * Buffers: src, indices, values; give values '' when only indices are wanted.
 */
export function sortLaunch(
  dtype: DType,
  rows: number,
  cols: number,
  keep: number,
  descending: boolean,
  names: SortNames = { src: 'src', indices: 'indices', values: '', scratch: 'scratch' },
  offsets: SortOffsets = { src: 0, indices: 0, values: 0, scratch: 0 },
): Plan {
  const bytes = bytesOf(dtype);
  const name = suffixOf(dtype);
  const of = (what: keyof SortNames, offset = 0) => at(names[what], offsets[what] + offset);
  const values = names.values === '' ? 0 : of('values');
  const down = descending ? 1 : 0;
  if (cols <= sortInBlock(dtype)) {
    const lanes = powerAbove(ceilDiv(cols, 4));
    const { grid, block } = rowGrid(rows, lanes);
    const shared = lanes > 32 ? lanes * 4 * (bytes === 8 ? 16 : 8) : 0;
    return single(
      launch(
        'sort',
        `sort_rows_${name}`,
        [grid],
        block,
        [of('src'), of('indices'), values, rows, cols, keep, down, lanes],
        shared,
      ),
    );
  }
  const tiles = ceilDiv(cols, bytes === 8 ? 2048 : 4096);
  const round = (n: number): number => ceilDiv(n, 16) * 16;
  const numel = rows * cols;
  // scratch: two key buffers, two order buffers, the counts.
  const keys = [0, round(numel * bytes)];
  const orders = [2 * keys[1], 2 * keys[1] + round(numel * 4)];
  const counts = orders[1] + round(numel * 4);
  const launches: Launch[] = [];
  for (let pass = 0; pass < bytes; pass++) {
    const [from, to] = [pass % 2, 1 - (pass % 2)];
    const last = pass === bytes - 1;
    const whole = last && keep === cols;
    const scanned = of('scratch', counts);
    const results = [
      last ? 0 : of('scratch', keys[to]),
      whole ? of('indices') : of('scratch', orders[to]),
      cols,
      tiles,
    ];
    // The first pass makes the keys from the values.
    const [count, scatter] =
      pass === 0
        ? [
            launch('sort', `radix_count_first_${name}`, [tiles * rows], 256, [of('src'), scanned, cols, tiles, down]),
            launch('sort', `radix_scatter_first_${name}`, [tiles * rows], 512, [of('src'), scanned, ...results, down]),
          ]
        : [
            launch('sort', `radix_count_k${bytes}`, [tiles * rows], 256, [
              of('scratch', keys[from]),
              scanned,
              cols,
              tiles,
              pass * 8,
            ]),
            launch('sort', `radix_scatter_k${bytes}`, [tiles * rows], 512, [
              of('scratch', keys[from]),
              of('scratch', orders[from]),
              scanned,
              ...results,
              pass * 8,
            ]),
          ];
    launches.push(count, launch('sort', 'radix_scan', [rows], 1024, [scanned, 256 * tiles]), scatter);
    if (!last) continue;
    const order = whole ? of('indices') : of('scratch', orders[to]);
    if (!whole)
      launches.push(
        launch('sort', 'take_front', [strideGrid(rows * keep)], 256, [order, of('indices'), rows, cols, keep]),
      );
    if (values !== 0)
      launches.push(
        launch('sort', `take_sorted_b${bytes}`, [strideGrid(rows * keep)], 256, [
          of('src'),
          order,
          values,
          rows,
          cols,
          keep,
        ]),
      );
  }
  return { launches, scratch: counts + rows * 256 * tiles * 4 };
}

/** Rows contiguous in src become contiguous columns in dst: see transpose.hip. Buffers: src, dst. `align`: what addresses are multiples of. */
export function transposeLaunch(
  bytes: number,
  rows: number,
  cols: number,
  srcStride: number,
  dstStride: number,
  batch: number,
  srcBatch: number,
  dstBatch: number,
  align: number,
): Plan {
  const pack = 16 / bytes;
  const vector =
    align % 16 === 0 && [rows, cols, srcStride, dstStride, srcBatch, dstBatch].every((n) => n % pack === 0);
  const tile = bytes === 8 ? 32 : 64;
  return single(
    launch(
      'transpose',
      `transpose_b${bytes}_${vector ? 'v' : 'v1'}`,
      [ceilDiv(rows, tile) * ceilDiv(cols, tile), batch],
      256,
      [at('src'), at('dst'), rows, cols, srcStride, dstStride, srcBatch, dstBatch],
    ),
  );
}

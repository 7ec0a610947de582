// Weights in ggml's blocks: decoding, rows by number, products with up to eight rows at a time, experts.
// kernels/weights.hip.
import { type DType, maxInt } from '../../base/dtype.js';
import { ggmlType } from '../../base/blocks/types.js';
import { Layout } from '../../base/layout.js';
import { type Shape, sizeOf } from '../../base/shape.js';
import type { DeviceInfo } from '../../driver/driver.js';
import { CTYPE, KernelModule, REAL_TYPES, suffixOf } from '../../kernels/declare.js';
import type { KernelRow } from '../../ops/op.js';
import {
  BLOCK_TYPES,
  type BlockParams,
  type BlockType,
  type DecodeParams,
  type ProductParams,
  quantized,
} from '../../ops/quantized.js';
import type { View } from '../backend.js';
import { hasMatrixUnits, planMatmul } from './matmul.js';
import { inType } from './movement.js';
import {
  addressOf,
  at,
  ceilDiv,
  FAULT,
  type FamilyPlan,
  inTurns,
  launch,
  MOST_BLOCKS,
  permuted,
  type Planner,
  rowsFrom,
  single,
  strideGrid,
  type Target,
  viewOf,
} from './plan.js';
import { hasLongCopies, ROW_TYPES, type RowType, rowsBlock, rowsBody } from './weight-rows.js';

export const WEIGHTS = new KernelModule('weights');
const SMALL_REALS = ['f32', 'f16', 'bf16'] as const satisfies readonly DType[];
/** Groups of 32 threads in a block. */
const GROUPS = 4;
/** Rows of activations that a kernel takes at once, and rows of weights a group owns then. */
const COLUMNS = [1, 2, 4, 8] as const;
type Columns = (typeof COLUMNS)[number];
/** Chunks of 32 values that a lane takes at a time (kernels/weight-stream.h). */
const unitOf = (type: BlockType, columns: Columns): number =>
  ['Q2_K', 'Q3_K', 'Q6_K'].includes(type) || (type === 'MXFP4' && columns === 1) ? 4 : 2;
/** Bytes of shared memory for what 32 lanes take of one row. */
const tileOf = (type: BlockType, columns: Columns): number => {
  const { bytes, block } = ggmlType(type);
  return 32 * unitOf(type, columns) * (32 / block) * bytes + 32;
};
/** Rows of weights that a group multiplies at once: as many rows share what is read of the activations. */
export const rowsFor = (type: BlockType, columns: Columns): number =>
  (columns < 4 ? 1 : 2) * (tileOf(type, columns) <= 1536 || columns === 2 ? 2 : 1);
/** Groups of 32 lanes a block has at most in products with rounded activations; sums of many rows take registers. */
const mostGroups = (columns: Columns): number => ({ 1: 16, 2: 16, 4: 12, 8: 10 })[columns];
/** Threads of a block in products of one row with rounded activations. */
export const QUICK_THREADS = 32 * mostGroups(1);
/** Tiles in a group's ring of so many rows: bytes under way are what counts, and large units are few. */
export const stagesFor = (type: BlockType, rows: number, columns: Columns = 1): number =>
  Math.min(4, Math.max(type === 'MXFP4' && columns === 1 ? 3 : 2, Math.floor(8900 / (tileOf(type, columns) * rows))));
const mostExact = (dtype: DType): number => (dtype === 'f64' ? 1 : 4);
const named = (type: BlockType): string => type.toLowerCase();

const decode = WEIGHTS.declare({
  each: { type: BLOCK_TYPES, dtype: REAL_TYPES },
  symbol: (v) => `weights_decode_${named(v.type)}_${suffixOf(v.dtype)}`,
  body: ({ type, dtype }) => ({
    threads: 256,
    params: { w: 'const u8*', out: `${CTYPE[dtype]}*`, quads: 'i64' },
    call: `decode_rows<${type}>`,
  }),
});
const pick = WEIGHTS.declare({
  each: { type: BLOCK_TYPES, dtype: REAL_TYPES },
  symbol: (v) => `weights_rows_${named(v.type)}_${suffixOf(v.dtype)}`,
  body: ({ type, dtype }) => ({
    threads: 256,
    params: {
      w: 'const u8*',
      ids: 'const i64*',
      out: `${CTYPE[dtype]}*`,
      fault: 'u32*',
      count: 'i64',
      rows: 'i64',
      quads: 'i64',
      rowBytes: 'i64',
      none: 'i64',
    },
    call: `pick_rows<${type}>`,
  }),
});
const encode = WEIGHTS.declare({
  each: { dtype: REAL_TYPES },
  symbol: (v) => `weights_encode_q8_0_${suffixOf(v.dtype)}`,
  body: ({ dtype }) => ({
    threads: 256,
    params: { x: `const ${CTYPE[dtype]}*`, out: 'u8*', blocks: 'i64' },
    call: 'encode_q8',
  }),
});
const round = WEIGHTS.declare({
  each: { dtype: SMALL_REALS },
  symbol: (v) => `weights_round_${suffixOf(v.dtype)}`,
  body: ({ dtype }) => ({
    threads: 256,
    params: { x: `const ${CTYPE[dtype]}*`, out: 'Rounded64*', rows: 'i64', n: 'i64' },
    call: 'round_values',
  }),
});
/** Activations rounded to whole numbers. */
const quick = WEIGHTS.declare({
  each: { type: BLOCK_TYPES, columns: COLUMNS, dtype: SMALL_REALS },
  symbol: (v) => `weights_quick_${named(v.type)}_by_${v.columns}_${suffixOf(v.dtype)}`,
  body: ({ type, columns, dtype }) => ({
    threads: 32 * mostGroups(columns),
    params: {
      w: 'const u8*',
      x: `const ${CTYPE[dtype]}*`,
      rounded: 'const Rounded64*',
      out: `${CTYPE[dtype]}*`,
      rows: 'i64',
      rowBytes: 'i64',
      columns: 'i64',
      n: 'i64',
      held: 'i32',
    },
    call: `weights_quick<${type}, ${rowsFor(type, columns)}, ${columns}, ${stagesFor(type, rowsFor(type, columns), columns)}>`,
  }),
});
/** One row of them by whole rows of weights. */
const wholeRows = WEIGHTS.declare({
  each: { type: ROW_TYPES, dtype: SMALL_REALS },
  launchedOn: (_, arch) => hasLongCopies(arch),
  symbol: (v) => `weights_whole_${named(v.type)}_${suffixOf(v.dtype)}`,
  body: ({ type, dtype }) => rowsBody(type, dtype, dtype),
});
/** Activations as they are. */
const exact = WEIGHTS.declare({
  each: { type: BLOCK_TYPES, columns: COLUMNS, dtype: REAL_TYPES },
  // Floats leave registers for fewer rows of activations than whole numbers do.
  only: ({ columns, dtype }) => columns <= mostExact(dtype),
  symbol: (v) => `weights_exact_${named(v.type)}_by_${v.columns}_${suffixOf(v.dtype)}`,
  body: ({ type, columns, dtype }) => ({
    threads: 32 * GROUPS,
    params: {
      w: 'const u8*',
      x: `const ${CTYPE[dtype]}*`,
      out: `${CTYPE[dtype]}*`,
      rows: 'i64',
      rowBytes: 'i64',
      columns: 'i64',
      n: 'i64',
    },
    call: `weights_product<${type}, Exact<${CTYPE[dtype]}>, 2, ${columns}>`,
    given: `w, Exact<${CTYPE[dtype]}>{x, n}, out, rows, rowBytes, columns, n`,
  }),
});

/** Of kernels/weight-matrix.h: bytes from one row of a tile to the next in shared memory, by type. */
const MATRIX_PITCH = { Q8_0: 288, Q4_0: 160, Q4_K: 160, Q5_K: 192, Q6_K: 240, MXFP4: 160 } as const;
type MatrixType = keyof typeof MATRIX_PITCH;
/** Of a tile: rows, columns and values; tiles in a wave's ring, waves of a block, bytes of a wave's part of the sums. */
const MATRIX = { rows: 16, columns: 8, values: 256, stages: 2, waves: 16, part: 512 } as const;
const matrixTypes = Object.keys(MATRIX_PITCH) as MatrixType[];
const MATRIX_REALS = ['f16', 'bf16'] as const satisfies readonly DType[];
type MatrixReal = (typeof MATRIX_REALS)[number];
/** Targets whose matrix units have the layout that these kernels are written for. */
const hasTiles = ({ arch }: Pick<Target, 'arch'>): boolean => hasMatrixUnits({ arch }) && !arch.startsWith('gfx');
/** On the matrix units up to eight rows of 16-bit activations, as they are, take as long as one. */
const matrix = WEIGHTS.declare({
  each: { type: matrixTypes, dtype: MATRIX_REALS },
  launchedOn: (_, arch) => hasTiles({ arch }),
  symbol: (v) => `weights_matrix_${named(v.type)}_${suffixOf(v.dtype)}`,
  body: ({ type, dtype }) => ({
    threads: 32 * MATRIX.waves,
    params: {
      w: 'const u8*',
      x: `const ${CTYPE[dtype]}*`,
      out: `${CTYPE[dtype]}*`,
      rows: 'i64',
      rowBytes: 'i64',
      columns: 'i64',
      n: 'i64',
      slices: 'i32',
    },
    call: `weights_matrix<${type}, ${MATRIX.stages}>`,
  }),
});

/** Rows of 8-bit floats that a block multiplies at once with a row of activations. */
const FLOAT8_ROWS = 4;
const float8 = WEIGHTS.declare({
  each: { dtype: REAL_TYPES },
  symbol: (v) => `weights_float8_${suffixOf(v.dtype)}`,
  body: ({ dtype }) => ({
    threads: 256,
    params: {
      w: 'const u8*',
      scales: 'const float*',
      x: `const ${CTYPE[dtype]}*`,
      out: `${CTYPE[dtype]}*`,
      rows: 'i64',
      columns: 'i64',
      n: 'i64',
    },
    call: `float8_rows<${FLOAT8_ROWS}, 1>`,
  }),
});

/** Each row of activations with the weights of the expert that an index names. */
const EXPERTS = {
  w: 'const u8*',
  ids: 'const i64*',
  fault: 'u32*',
  experts: 'i64',
  rows: 'i64',
  rowBytes: 'i64',
  chosen: 'i64',
  given: 'i64',
  n: 'i64',
  none: 'i64',
} as const;
const expertArguments = 'out, fault, experts, rows, rowBytes, chosen, given, n, none';
const quickExperts = WEIGHTS.declare({
  each: { type: BLOCK_TYPES, dtype: SMALL_REALS },
  symbol: (v) => `weights_experts_quick_${named(v.type)}_${suffixOf(v.dtype)}`,
  body: ({ type, dtype }) => ({
    threads: QUICK_THREADS,
    params: { ...EXPERTS, x: `const ${CTYPE[dtype]}*`, out: `${CTYPE[dtype]}*` },
    call: `experts_quick<${type}, ${stagesFor(type, 1)}>`,
    given: `w, ids, x, ${expertArguments}`,
  }),
});
const exactExperts = WEIGHTS.declare({
  each: { type: BLOCK_TYPES, dtype: REAL_TYPES },
  symbol: (v) => `weights_experts_exact_${named(v.type)}_${suffixOf(v.dtype)}`,
  body: ({ type, dtype }) => ({
    threads: 32 * GROUPS,
    params: { ...EXPERTS, x: `const ${CTYPE[dtype]}*`, out: `${CTYPE[dtype]}*` },
    call: `weights_experts<${type}>`,
    given: `w, ids, Exact<${CTYPE[dtype]}>{x, n}, ${expertArguments}`,
  }),
});

type Real = (typeof REAL_TYPES)[number];
type SmallReal = (typeof SMALL_REALS)[number];

/** Blocks where kernels can read them as structs: dense, from an address that is a multiple of 16. */
const blocksOf = (p: Planner, v: View): View => p.dense(v, 16);

export const planDecode = (p: Planner, blocks: View, out: View, type: BlockType): void => {
  const quads = sizeOf(out.layout.shape) / 4;
  p.run(
    single(
      launch(decode, { type, dtype: out.dtype as Real }, strideGrid(quads), 256, { w: at('w'), out: at('out'), quads }),
    ),
    { w: blocksOf(p, blocks), out },
  );
};

const planEncode: FamilyPlan<KernelRow, BlockParams> = (p, _row, [given], [out]) => {
  const x = p.dense(given);
  const blocks = sizeOf(x.layout.shape) / 32;
  // Blocks are written as words of 16 bits.
  const to = addressOf(out) % 2 === 0 ? out : p.make(out.layout.shape, 'u8');
  const args = { x: at('x'), out: at('to'), blocks };
  p.run(single(launch(encode, { dtype: x.dtype as Real }, strideGrid(blocks * 8), 256, args)), { x, to });
  if (to !== out) p.copy(to, out);
};

const planDequantize: FamilyPlan<KernelRow, DecodeParams> = (p, _row, [blocks], [out], { type }) =>
  planDecode(p, blocks, out, type);

/** Indices as 64-bit numbers, and the one that stands for none. */
const idsOf = (p: Planner, ids: View): { ids: View; none: bigint } => ({
  ids: inType(p, ids, 'i64'),
  none: maxInt(ids.dtype),
});

const planRows: FamilyPlan<KernelRow, DecodeParams> = (p, _row, [blocks, given], [out], { type }) => {
  const { ids, none } = idsOf(p, given);
  const count = sizeOf(given.layout.shape);
  const [rows, rowBytes] = blocks.layout.shape;
  const quads = (out.layout.shape.at(-1) as number) / 4;
  const l = launch(pick, { type, dtype: out.dtype as Real }, strideGrid(count * quads), 256, {
    w: at('w'),
    ids: at('ids'),
    out: at('out'),
    fault: at('fault'),
    count,
    rows,
    quads,
    rowBytes,
    none,
  });
  p.run(single(l), { w: blocksOf(p, blocks), ids, out, fault: FAULT });
};

/** Bytes of 64 activations that are rounded. */
const RECORD = 80;
/** Rows of weights by rows of activations that a group multiplies at once, and how many such sets there are. */
interface QuickWork {
  readonly rows: number;
  readonly columns: Columns;
  readonly sets: number;
  readonly n: number;
}
/**
 * Shared memory with which a block has a multiprocessor to itself. Launches begin early where they can: were there room
 * for two blocks, those of the next launch might meet on one multiprocessor while another has none.
 */
const alone = ({ arch, sharedPerBlockOptin }: DeviceInfo): number =>
  arch.startsWith('gfx') ? 0 : sharedPerBlockOptin / 2 + 1024;
/**
 * The block for products with rounded activations: as many groups as there is shared memory for rings and the
 * activations themselves, where these leave room for four.
 */
export function quickBlock(device: DeviceInfo, type: BlockType, { rows, columns, sets, n }: QuickWork) {
  const ring = stagesFor(type, rows, columns) * rows * tileOf(type, columns);
  // Less what kernels declare by themselves.
  const room = device.sharedPerBlockOptin - 256;
  // Lanes that read two records of the one row have some room between these.
  const space = columns === 1 && unitOf(type, columns) === 4 ? 16 * ceilDiv(n, 128) : 0;
  const records = columns * ceilDiv(n, 64) * RECORD + space;
  const held = room - records >= 4 * ring;
  const fit = Math.floor((room - (held ? records : 0)) / ring);
  // Waves of 64 lanes are two groups.
  const most = Math.max(2, Math.min(mostGroups(columns), fit, sets + (sets % 2)) & ~1);
  // Fewer groups where all of them are busy to the end.
  const turns = (groups: number): number => ceilDiv(sets, device.multiprocessors * groups) * groups;
  let groups = most;
  for (let fewer = most - 2; fewer >= 0.6 * most; fewer -= 2) if (turns(fewer) < 0.95 * turns(groups)) groups = fewer;
  const blocks = Math.min(ceilDiv(sets, groups), device.multiprocessors);
  const need = groups * ring + (held ? records : 0);
  return { held, groups, blocks, threads: 32 * groups, shared: columns === 1 ? Math.max(need, alone(device)) : need };
}

/** Rounded activations in temporary memory: whole records a row, and as many rows as kernels take at once. */
function rounded(p: Planner, x: View, m: number, n: number, columns: Columns): View {
  const to = p.make([ceilDiv(m, columns) * columns * ceilDiv(n, 64), RECORD], 'u8');
  const args = { x: at('x'), out: at('to'), rows: m, n };
  const l = launch(round, { dtype: x.dtype as SmallReal }, strideGrid((m * n) / 8), 256, args);
  p.run(single({ ...l, early: true }), { x, to });
  return to;
}

/**
 * How waves share out a product on the matrix units: each has the same values of all rows, several tiles of them one
 * after the other where there are more tiles than waves. A block takes as many rows as it has room for parts of sums.
 */
function matrixBlock(device: DeviceInfo, type: MatrixType, rows: number, n: number) {
  const ring = MATRIX.stages * MATRIX.rows * MATRIX_PITCH[type];
  // Less what kernels declare by themselves.
  const room = device.sharedPerBlockOptin - 256;
  const most = Math.min(MATRIX.waves, Math.floor(room / (ring + MATRIX.part)));
  const tiles = n / MATRIX.values;
  const slices = ceilDiv(tiles, ceilDiv(tiles, most));
  const sets = ceilDiv(rows, MATRIX.rows);
  const together = Math.min(Math.floor(most / slices), ceilDiv(sets, device.multiprocessors));
  const waves = slices * together;
  // As many turns of all multiprocessors as are needed, with as little to do in each.
  const each = ceilDiv(sets, device.multiprocessors * together);
  const turns = ceilDiv(each, Math.floor((room / waves - ring) / MATRIX.part));
  const passes = ceilDiv(each, turns);
  const blocks = ceilDiv(sets, passes * together);
  return { slices, blocks, threads: 32 * waves, shared: waves * (ring + passes * MATRIX.part) };
}

const columnsFor = (m: number): Columns => COLUMNS.find((c) => c >= m) ?? 8;
/** Activations are read in words of 16 bytes. */
const activationsOf = (p: Planner, given: View): View => p.dense(given, 16);

/** How a product runs on the matrix units, where its types, rows and length allow that. */
function tileWork(p: Planner, type: BlockType, dtype: DType, rows: number, rowBytes: number, n: number) {
  const fits = rows >= MATRIX.rows && n % MATRIX.values === 0 && rowBytes % 16 === 0;
  const known = Object.hasOwn(MATRIX_PITCH, type) && MATRIX_REALS.includes(dtype as MatrixReal);
  if (!fits || !known || !hasTiles(p.device) || p.device.warp !== 32) return undefined;
  const variant = { type: type as MatrixType, dtype: dtype as MatrixReal };
  return { ...matrixBlock(p.device, variant.type, rows, n), variant };
}

const planProduct: FamilyPlan<KernelRow, ProductParams> = (p, _row, [given, blocks], [out], params) => {
  const x = activationsOf(p, given);
  const n = x.layout.shape.at(-1) as number;
  const m = sizeOf(x.layout.shape) / n;
  const [rows, rowBytes] = blocks.layout.shape;
  const { type } = params;
  const shared = { w: at('w'), x: at('x'), out: at('out'), rows, rowBytes, columns: m, n };
  const buffers = { w: blocksOf(p, blocks), x, out };
  const kind = params.quick && x.dtype !== 'f64' ? 'quick' : 'exact';
  const tiled = kind === 'quick' && m === 1 ? undefined : tileWork(p, type, x.dtype, rows, rowBytes, n);
  const whole = kind === 'quick' && m === 1 ? rowsBlock(p.device, type, rows, n) : undefined;
  if (whole) {
    const { slots, each, underWay, blocks, threads } = whole;
    const none = { norm: 0, eps: 0, bias: 0, residual: 0, best: 0 };
    const args = { ...none, w: at('w'), x: at('x'), out: at('out'), rows, rowBytes, n, slots, each, underWay };
    const variant = { type: type as RowType, dtype: x.dtype as SmallReal };
    const l = launch(wholeRows, variant, blocks, threads, args, whole.shared);
    p.run(single({ ...l, early: true, ahead: 'w' }), buffers);
  } else if (tiled) {
    const { slices, blocks, threads } = tiled;
    const grid = [blocks, ceilDiv(m, MATRIX.columns)];
    const l = launch(matrix, tiled.variant, grid, threads, { ...shared, slices }, tiled.shared);
    p.run(single({ ...l, early: true, ahead: 'w' }), buffers);
  } else if (kind === 'quick') {
    const blockFor = (columns: Columns) => {
      const each = rowsFor(type, columns);
      return { columns, ...quickBlock(p.device, type, { rows: each, columns, sets: ceilDiv(rows, each), n }) };
    };
    // One row is rounded where it is used; one that is too long for that is the first of two.
    const one = blockFor(columnsFor(m));
    const { columns, ...block } = one.columns === 1 && !one.held ? blockFor(2) : one;
    const ready = columns === 1 ? undefined : rounded(p, x, m, n, columns);
    const args = { ...shared, rounded: ready ? at('ready') : 0, held: Number(block.held) };
    const grid = [block.blocks, ceilDiv(m, columns)];
    const l = launch(quick, { type, columns, dtype: x.dtype as SmallReal }, grid, block.threads, args, block.shared);
    p.run(single({ ...l, early: true, ahead: 'w' }), { ...buffers, ready });
  } else {
    const columns = Math.min(columnsFor(m), mostExact(x.dtype)) as Columns;
    const grid = [ceilDiv(rows, GROUPS * 2), ceilDiv(m, columns)];
    p.run(single(launch(exact, { type, columns, dtype: x.dtype as Real }, grid, 32 * GROUPS, shared)), buffers);
  }
};

const planExperts: FamilyPlan<KernelRow, ProductParams> = (p, _row, [activations, blocks, indices], [out], params) => {
  const x = activationsOf(p, activations);
  const { ids, none } = idsOf(p, indices);
  const [experts, rows, rowBytes] = blocks.layout.shape;
  const [tokens, chosen] = indices.layout.shape;
  const [, given, n] = x.layout.shape;
  const { type } = params;
  const all = tokens * chosen;
  const args = {
    ...{ w: at('w'), ids: at('ids'), x: at('x'), out: at('out'), fault: at('fault') },
    ...{ experts, rows, rowBytes, chosen, given, n, none },
  };
  const buffers = { w: blocksOf(p, blocks), ids, x, out, fault: FAULT };
  const block = quickBlock(p.device, type, { rows: 1, columns: 1, sets: rows, n });
  const quick = params.quick && x.dtype !== 'f64' && block.held;
  const blocksOfRow = quick
    ? Math.min(block.blocks, ceilDiv(p.device.multiprocessors, all))
    : ceilDiv(rows, GROUPS * 2);
  inTurns(tokens, Math.max(1, Math.floor(MOST_BLOCKS[1] / chosen)), (from, size) => {
    const grid = [blocksOfRow, size * chosen];
    const l = quick
      ? launch(quickExperts, { type, dtype: x.dtype as SmallReal }, grid, block.threads, args, block.shared)
      : launch(exactExperts, { type, dtype: x.dtype as Real }, grid, 32 * GROUPS, args);
    const [some, chosenHere, to] = [x, ids, out].map((v) => rowsFrom(v, from, size));
    p.run(single(quick ? { ...l, early: true } : l), { ...buffers, ids: chosenHere, x: some, out: to });
  });
};

/**
 * More rows of activations than this are multiplied with decoded weights: decoding them once costs less than reading
 * them again.
 */
const MOST_COLUMNS = { exact: 16, quick: 64 } as const;

/** A contiguous view in another shape. */
const flat = (v: View, shape: Shape): View => ({ ...viewOf(v), layout: Layout.contiguous(shape, v.layout.offset) });

/** A matrix product with the weights decoded into memory of their own. */
function planDecoded(p: Planner, given: View, blocks: View, out: View, type: BlockType): void {
  const x = p.dense(given);
  const n = x.layout.shape.at(-1) as number;
  const rows = blocks.layout.shape[0];
  const m = sizeOf(x.layout.shape) / n;
  const w = p.make([rows, n], x.dtype);
  planDecode(p, blocks, w, type);
  planMatmul(p, undefined, [flat(x, [m, n]), permuted(w, [1, 0])], [flat(out, [m, rows])], undefined);
}

const planFloat8: FamilyPlan<KernelRow, unknown> = (p, _row, [given, values, scales], [out]) => {
  const x = activationsOf(p, given);
  const [rows, n] = values.layout.shape;
  const m = sizeOf(x.layout.shape) / n;
  // As many rounds as are needed, with as many threads as have work in each.
  const words = n / 16;
  const threads = Math.ceil(words / ceilDiv(words, 256) / p.device.warp) * p.device.warp;
  const [w, weightScales] = [p.dense(values, 16), p.dense(scales)];
  const [from, to] = [flat(x, [m, n]), flat(out, [m, rows])];
  inTurns(m, MOST_BLOCKS[1], (first, size) => {
    const args = { w: at('w'), scales: at('scales'), x: at('x'), out: at('out'), rows, columns: size, n };
    const l = launch(float8, { dtype: x.dtype as Real }, [ceilDiv(rows, FLOAT8_ROWS), size], threads, args);
    const [some, here] = [from, to].map((v) => rowsFrom(v, first, size));
    p.run(single({ ...l, early: true }), { w, scales: weightScales, x: some, out: here });
  });
};

const PLANS = new Map<unknown, FamilyPlan<KernelRow, any>>([
  [quantized.dequantize, planDequantize],
  [quantized.q8Blocks, planEncode],
  [quantized.qrows, planRows],
  [quantized.qmatmul, planProduct],
  [quantized.f8matmul, planFloat8],
  [quantized.qmatmulExperts, planExperts],
]);

export const planQuantized: FamilyPlan<KernelRow, BlockParams | DecodeParams | ProductParams> = (
  p,
  row,
  inputs,
  [out],
  params,
) => {
  const [x, blocks] = inputs;
  const most = MOST_COLUMNS['quick' in params && params.quick && x.dtype !== 'f64' ? 'quick' : 'exact'];
  const many = row === (quantized.qmatmul as unknown) && sizeOf(x.layout.shape) > most * x.layout.shape.at(-1)!;
  // Kernels write dense results.
  const dense = out.layout.isContiguous ? out : p.make(out.layout.shape, out.dtype);
  if (many) planDecoded(p, x, blocks, dense, params.type);
  else (PLANS.get(row) as FamilyPlan<KernelRow, unknown>)(p, row, inputs, [dense], params);
  if (dense !== out) p.copy(dense, out);
};

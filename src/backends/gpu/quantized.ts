// Weights in ggml's blocks: decoding, rows by number, products with up to eight rows at a time, experts.
// kernels/weights.hip.
import { type DType, maxInt } from '../../base/dtype.js';
import { Layout } from '../../base/layout.js';
import { type Shape, sizeOf } from '../../base/shape.js';
import { CTYPE, KernelModule, REAL_TYPES, suffixOf } from '../../kernels/declare.js';
import type { KernelRow } from '../../ops/op.js';
import { BLOCK_TYPES, type BlockType, type DecodeParams, type ProductParams, quantized } from '../../ops/quantized.js';
import type { View } from '../backend.js';
import { planMatmul } from './matmul.js';
import { inType } from './movement.js';
import {
  at,
  ceilDiv,
  FAULT,
  type FamilyPlan,
  launch,
  permuted,
  type Planner,
  single,
  strideGrid,
  viewOf,
} from './plan.js';

export const WEIGHTS = new KernelModule('weights');
const SMALL_REALS = ['f32', 'f16', 'bf16'] as const satisfies readonly DType[];
/** Groups of 32 threads in a block. */
const GROUPS = 4;
/** Rows of activations that a kernel takes at once, and rows of weights a group owns then. */
const COLUMNS = [1, 2, 4, 8] as const;
type Columns = (typeof COLUMNS)[number];
const rowsFor = (columns: Columns): number => (columns === 4 ? 4 : 2);
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
const round = WEIGHTS.declare({
  each: { dtype: SMALL_REALS },
  symbol: (v) => `weights_round_${suffixOf(v.dtype)}`,
  body: ({ dtype }) => ({
    threads: 256,
    params: { x: `const ${CTYPE[dtype]}*`, q: 'i8*', scale: 'float*', sum: 'float*', count: 'i64' },
    call: 'round_values',
  }),
});
/** Activations rounded to whole numbers. */
const quick = WEIGHTS.declare({
  each: { type: BLOCK_TYPES, columns: COLUMNS, dtype: SMALL_REALS },
  symbol: (v) => `weights_quick_${named(v.type)}_by_${v.columns}_${suffixOf(v.dtype)}`,
  body: ({ type, columns, dtype }) => ({
    threads: 32 * GROUPS,
    params: {
      w: 'const u8*',
      q: 'const i8*',
      scale: 'const float*',
      sum: 'const float*',
      out: `${CTYPE[dtype]}*`,
      rows: 'i64',
      rowBytes: 'i64',
      columns: 'i64',
      n: 'i64',
    },
    call: `weights_product<${type}, Quick, ${rowsFor(columns)}, ${columns}>`,
    given: 'w, Quick{q, scale, sum, n}, out, rows, rowBytes, columns, n',
  }),
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
    threads: 32 * GROUPS,
    params: { ...EXPERTS, q: 'const i8*', scale: 'const float*', sum: 'const float*', out: `${CTYPE[dtype]}*` },
    call: `weights_experts<${type}>`,
    given: `w, ids, Quick{q, scale, sum, n}, ${expertArguments}`,
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

const planDecode = (p: Planner, blocks: View, out: View, type: BlockType): void => {
  const quads = sizeOf(out.layout.shape) / 4;
  p.run(
    single(
      launch(decode, { type, dtype: out.dtype as Real }, strideGrid(quads), 256, { w: at('w'), out: at('out'), quads }),
    ),
    { w: blocksOf(p, blocks), out },
  );
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

/** Rounded activations in temporary memory. */
function rounded(p: Planner, x: View): { q: View; scale: View; sum: View } {
  const count = sizeOf(x.layout.shape);
  const parts = { q: p.make([count], 'u8'), scale: p.make([count / 32], 'f32'), sum: p.make([count / 16], 'f32') };
  const l = launch(round, { dtype: x.dtype as SmallReal }, strideGrid(count), 256, {
    x: at('x'),
    q: at('q'),
    scale: at('scale'),
    sum: at('sum'),
    count,
  });
  p.run(single(l), { x, ...parts });
  return parts;
}

const columnsFor = (m: number): Columns => COLUMNS.find((c) => c >= m) ?? 8;

const planProduct: FamilyPlan<KernelRow, ProductParams> = (p, _row, [given, blocks], [out], params) => {
  const x = p.dense(given);
  const n = x.layout.shape.at(-1) as number;
  const m = sizeOf(x.layout.shape) / n;
  const [rows, rowBytes] = blocks.layout.shape;
  const { type } = params;
  const isQuick = params.quick && x.dtype !== 'f64';
  const columns = isQuick ? columnsFor(m) : (Math.min(columnsFor(m), mostExact(x.dtype)) as Columns);
  const grid = [ceilDiv(rows, GROUPS * (isQuick ? rowsFor(columns) : 2)), ceilDiv(m, columns)];
  const shared = { w: at('w'), out: at('out'), rows, rowBytes, columns: m, n };
  const buffers = { w: blocksOf(p, blocks), out };
  if (isQuick) {
    const l = launch(quick, { type, columns, dtype: x.dtype as SmallReal }, grid, 32 * GROUPS, {
      ...shared,
      q: at('q'),
      scale: at('scale'),
      sum: at('sum'),
    });
    p.run(single(l), { ...buffers, ...rounded(p, x) });
  } else {
    const l = launch(exact, { type, columns, dtype: x.dtype as Real }, grid, 32 * GROUPS, { ...shared, x: at('x') });
    p.run(single(l), { ...buffers, x });
  }
};

const planExperts: FamilyPlan<KernelRow, ProductParams> = (p, _row, [activations, blocks, indices], [out], params) => {
  const x = p.dense(activations);
  const { ids, none } = idsOf(p, indices);
  const [experts, rows, rowBytes] = blocks.layout.shape;
  const [tokens, chosen] = indices.layout.shape;
  const [, given, n] = x.layout.shape;
  const { type } = params;
  const grid = [ceilDiv(rows, GROUPS * 2), tokens * chosen];
  const shared = {
    w: at('w'),
    ids: at('ids'),
    out: at('out'),
    fault: at('fault'),
    ...{ experts, rows, rowBytes, chosen, given, n, none },
  };
  const buffers = { w: blocksOf(p, blocks), ids, out, fault: FAULT };
  if (params.quick && x.dtype !== 'f64') {
    const args = { ...shared, q: at('q'), scale: at('scale'), sum: at('sum') };
    const l = launch(quickExperts, { type, dtype: x.dtype as SmallReal }, grid, 32 * GROUPS, args);
    p.run(single(l), { ...buffers, ...rounded(p, x) });
  } else {
    const args = { ...shared, x: at('x') };
    p.run(single(launch(exactExperts, { type, dtype: x.dtype as Real }, grid, 32 * GROUPS, args)), { ...buffers, x });
  }
};

/**
 * More rows of activations than this are multiplied with decoded weights: decoding them once costs less than reading
 * them again.
 */
const MOST_COLUMNS = 16;

/** A matrix product with the weights decoded into memory of their own. */
function planDecoded(p: Planner, given: View, blocks: View, out: View, type: BlockType): void {
  const x = p.dense(given);
  const n = x.layout.shape.at(-1) as number;
  const rows = blocks.layout.shape[0];
  const m = sizeOf(x.layout.shape) / n;
  const w = p.make([rows, n], x.dtype);
  planDecode(p, blocks, w, type);
  const flat = (v: View, shape: Shape): View => ({ ...viewOf(v), layout: Layout.contiguous(shape, v.layout.offset) });
  planMatmul(p, undefined, [flat(x, [m, n]), permuted(w, [1, 0])], [flat(out, [m, rows])], undefined);
}

const PLANS = new Map<unknown, FamilyPlan<KernelRow, any>>([
  [quantized.dequantize, planDequantize],
  [quantized.qrows, planRows],
  [quantized.qmatmul, planProduct],
  [quantized.qmatmulExperts, planExperts],
]);

export const planQuantized: FamilyPlan<KernelRow, DecodeParams | ProductParams> = (p, row, inputs, [out], params) => {
  const [x, blocks] = inputs;
  const many = row === (quantized.qmatmul as unknown) && sizeOf(x.layout.shape) > MOST_COLUMNS * x.layout.shape.at(-1)!;
  const isQuick = 'quick' in params && params.quick && x.dtype !== 'f64';
  if (many && !isQuick && out.layout.isContiguous) return planDecoded(p, x, blocks, out, params.type);
  // Kernels write dense results.
  const dense = out.layout.isContiguous ? out : p.make(out.layout.shape, out.dtype);
  (PLANS.get(row) as FamilyPlan<KernelRow, unknown>)(p, row, inputs, [dense], params);
  if (dense !== out) p.copy(dense, out);
};

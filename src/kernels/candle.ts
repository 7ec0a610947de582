// Candle's kernels that serve its names alone (kernels/candle/README.md): declared so that whoever launches Candle's
// symbols finds them here.
import type { DType } from '../base/dtype.js';
import { CANDLE_ELEMENTWISE } from './candle-elementwise.js';
import { CANDLE_MMVQ, CANDLE_QUANTIZED } from './candle-quantized.js';
import { ALL_TYPES, CTYPE, INT_TYPES, KernelModule, REAL_TYPES, suffixOf, typed } from './declare.js';

const symbolOf =
  (stem: string) =>
  ({ dtype }: { readonly dtype: DType }): string =>
    `${stem}_${suffixOf(dtype)}`;

// ---- reduce.cu ----

const REDUCE = new KernelModule('candle/reduce');
REDUCE.declare({
  each: { op: ['Sum', 'Min', 'Max', 'ArgMin', 'ArgMax'], dtype: ALL_TYPES },
  symbol: ({ op, dtype }) => `fast_${op.toLowerCase()}_${suffixOf(dtype)}`,
  body: ({ op, dtype }) => ({
    threads: 1024,
    params: {
      src_numel: 'size_t',
      el_to_sum_per_block: 'size_t',
      num_dims: 'size_t',
      info: 'const size_t*',
      src: `const ${CTYPE[dtype]}*`,
      dst: op.startsWith('Arg') ? 'u32*' : `${CTYPE[dtype]}*`,
    },
    call: `fast_reduce<${op}<${CTYPE[dtype]}>>`,
    given: 'src_numel, el_to_sum_per_block, num_dims, (const u64*)info, src, dst',
  }),
});
REDUCE.declare({
  each: { dtype: [...REAL_TYPES, 'u32'] },
  symbol: symbolOf('sum'),
  body: ({ dtype }) => ({
    threads: 1024,
    params: {
      ...typed('size_t', 'numel', 'num_dims', 'num_sum_dims'),
      info: 'const size_t*',
      inp: `const ${CTYPE[dtype]}*`,
      out: `${CTYPE[dtype]}*`,
    },
    call: 'atomic_sum',
    given: 'numel, num_dims, num_sum_dims, (const u64*)info, inp, out',
  }),
});
REDUCE.declare({
  each: { dtype: REAL_TYPES },
  symbol: symbolOf('softmax'),
  body: ({ dtype }) => ({
    threads: 32,
    params: { src: `const ${CTYPE[dtype]}*`, dst: `${CTYPE[dtype]}*`, n_cols: 'int' },
    call: 'softmax32',
  }),
});
REDUCE.declare({
  each: { dtype: REAL_TYPES },
  symbol: symbolOf('rmsnorm'),
  body: ({ dtype }) => ({
    threads: 1024,
    params: {
      src: `const ${CTYPE[dtype]}*`,
      dst: `${CTYPE[dtype]}*`,
      alpha: `const ${CTYPE[dtype]}*`,
      n_cols: 'int',
      block_size: 'int',
      eps: 'float',
    },
    call: 'norm_row<false>',
    given: `src, dst, alpha, (const ${CTYPE[dtype]}*)nullptr, n_cols, (u32)block_size, eps`,
  }),
});
REDUCE.declare({
  each: { dtype: REAL_TYPES },
  symbol: symbolOf('layernorm'),
  body: ({ dtype }) => ({
    threads: 1024,
    params: {
      src: `const ${CTYPE[dtype]}*`,
      dst: `${CTYPE[dtype]}*`,
      alpha: `const ${CTYPE[dtype]}*`,
      beta: `const ${CTYPE[dtype]}*`,
      n_cols: 'int',
      block_size: 'int',
      eps: 'float',
    },
    call: 'norm_row<true>',
    given: 'src, dst, alpha, beta, n_cols, (u32)block_size, eps',
  }),
});
/** Sizes after the four tables. */
const ROPES = {
  rope_i: { bh: 'u32', td: 'u32', stride_b: 'u32' },
  rope: { bh: 'u32', td: 'u32', d: 'u32', stride_b: 'u32' },
  rope_thd: { b: 'u32', t: 'u32', h: 'u32', d: 'u32', stride_b: 'u32' },
} as const;
REDUCE.declare({
  each: { kind: ['rope_i', 'rope', 'rope_thd'], dtype: REAL_TYPES },
  symbol: ({ kind, dtype }) => `${kind}_${dtype}`,
  body: ({ kind, dtype }) => {
    const S = CTYPE[dtype];
    const tables = { src: `const ${S}*`, cos: `const ${S}*`, sin: `const ${S}*`, dst: `${S}*` };
    return { threads: 1024, params: { ...tables, ...ROPES[kind] }, call: kind };
  },
});

// ---- fill.cu: fill itself is launched by the backend (src/backends/gpu/movement.ts) ----

const FILL = new KernelModule('candle/fill');
FILL.declare({
  each: { dtype: ALL_TYPES },
  symbol: symbolOf('copy2d'),
  body: ({ dtype: d }) => ({
    threads: 1024,
    params: { src: `const ${CTYPE[d]}*`, dst: `${CTYPE[d]}*`, d1: 'u32', d2: 'u32', src_s: 'u32', dst_s: 'u32' },
    call: 'copy2d',
  }),
});
FILL.declare({
  each: { dtype: ALL_TYPES },
  symbol: symbolOf('const_set'),
  body: ({ dtype: d }) => ({
    threads: 1024,
    params: { numel: 'u64', num_dims: 'u64', info: 'const u64*', inp: CTYPE[d], out: `${CTYPE[d]}*` },
    call: 'const_set',
  }),
});

// ---- indexing.cu ----

const INDEXING = new KernelModule('candle/indexing');
const INDEXED = { ids: INT_TYPES, dtype: ALL_TYPES } as const;
interface Indexed {
  readonly ids: DType;
  readonly dtype: DType;
}
const indexed =
  (stem: string) =>
  ({ ids, dtype }: Indexed): string =>
    `${stem}_${ids}_${suffixOf(dtype)}`;
const operands = ({ ids, dtype }: Indexed) =>
  ({ ids: `const ${CTYPE[ids]}*`, inp: `const ${CTYPE[dtype]}*`, out: `${CTYPE[dtype]}*` }) as const;
INDEXING.declare({
  each: INDEXED,
  symbol: indexed('is'),
  body: (v) => ({
    threads: 1024,
    params: {
      numel: 'size_t',
      num_dims: 'size_t',
      info: 'const size_t*',
      ...operands(v),
      ...typed('size_t', 'left_size', 'src_dim_size', 'ids_dim_size', 'right_size'),
    },
    call: 'index_select',
    given: 'numel, num_dims, (const u64*)info, ids, inp, out, src_dim_size, ids_dim_size, right_size',
  }),
});
INDEXING.declare({
  each: INDEXED,
  symbol: indexed('gather'),
  body: (v) => ({
    threads: 1024,
    params: {
      numel: 'size_t',
      ...operands(v),
      ...typed('size_t', 'left_size', 'src_dim_size', 'ids_dim_size', 'right_size'),
    },
    call: 'gather',
    given: 'numel, ids, inp, out, src_dim_size, ids_dim_size, right_size',
  }),
});
INDEXING.declare({
  each: INDEXED,
  symbol: indexed('ia'),
  body: ({ ids, dtype }) => ({
    threads: 1024,
    params: {
      ids: `const ${CTYPE[ids]}*`,
      ids_dim_size: 'size_t',
      inp: `const ${CTYPE[dtype]}*`,
      out: `${CTYPE[dtype]}*`,
      ...typed('size_t', 'left_size', 'src_dim_size', 'dst_dim_size', 'right_size'),
    },
    call: 'index_add',
    given: 'ids, ids_dim_size, inp, out, left_size, dst_dim_size, right_size',
  }),
});
INDEXING.declare({
  each: { add: [false, true], ...INDEXED },
  symbol: (v) => indexed(v.add ? 'sa' : 's')(v),
  body: (v) => ({
    threads: 1024,
    params: { ...operands(v), ...typed('size_t', 'left_size', 'src_dim_size', 'dst_dim_size', 'right_size') },
    call: `scatter<${v.add}>`,
  }),
});

// ---- sort.cu ----

const SORT = new KernelModule('candle/sort');
SORT.declare({
  each: { order: ['asc', 'desc'], dtype: ALL_TYPES },
  symbol: ({ order, dtype }) => `asort_${order}_${suffixOf(dtype)}`,
  body: ({ order, dtype }) => ({
    threads: 1024,
    params: { x: `const ${CTYPE[dtype]}*`, dst: 'u32*', ncols: 'int', ncols_pad: 'int' },
    call: 'asort',
    given: `x, dst, ncols, ncols_pad, ${order === 'desc'}`,
  }),
});

// ---- conv.cu: its resizing is launched by the backend (src/backends/gpu/resample.ts) ----

const CONV = new KernelModule('candle/conv');
const CONV_TYPES = [...REAL_TYPES, 'u8', 'u32'] as const;
const WINDOW = { stride: 'size_t', padding: 'size_t' } as const;
const LAST = { dilation: 'size_t', info: 'const size_t*' } as const;
const STEPS = '(i64)stride, (i64)padding, (i64)dilation, (const u64*)info';
/** Parameters before the operands, and what the function is given of them. */
const CONVS = {
  conv1d: { sizes: { src_numel: 'size_t', num_dims: 'size_t', ...WINDOW, ...LAST }, given: STEPS },
  conv2d: {
    sizes: { src_numel: 'size_t', w_out: 'size_t', h_out: 'size_t', ...WINDOW, ...LAST },
    given: `w_out, h_out, ${STEPS}`,
  },
  conv_transpose1d: {
    sizes: { src_numel: 'size_t', l_out: 'size_t', ...WINDOW, out_padding: 'size_t', ...LAST },
    given: `l_out, ${STEPS}`,
  },
  conv_transpose2d: {
    sizes: { src_numel: 'size_t', w_out: 'size_t', h_out: 'size_t', ...WINDOW, out_padding: 'size_t', ...LAST },
    given: `w_out, h_out, ${STEPS}`,
  },
} as const;
CONV.declare({
  each: { kind: Object.keys(CONVS) as (keyof typeof CONVS)[], dtype: CONV_TYPES },
  symbol: ({ kind, dtype }) => `${kind}_${dtype}`,
  body: ({ kind, dtype: d }) => ({
    threads: 1024,
    params: { ...CONVS[kind].sizes, src: `const ${CTYPE[d]}*`, kernel: `const ${CTYPE[d]}*`, dst: `${CTYPE[d]}*` },
    call: `candle_${kind}`,
    given: `${CONVS[kind].given}, src, kernel, dst`,
  }),
});
CONV.declare({
  each: { dtype: CONV_TYPES },
  symbol: symbolOf('im2col'),
  body: ({ dtype: d }) => ({
    threads: 1024,
    params: {
      ...typed('size_t', 'dst_numel', 'h_out', 'w_out', 'h_k', 'w_k'),
      ...WINDOW,
      ...LAST,
      src: `const ${CTYPE[d]}*`,
      dst: `${CTYPE[d]}*`,
    },
    call: 'candle_im2col2d',
    given: `dst_numel, h_out, w_out, h_k, w_k, ${STEPS}, src, dst`,
  }),
});
CONV.declare({
  each: { dtype: CONV_TYPES },
  symbol: symbolOf('im2col1d'),
  body: ({ dtype: d }) => ({
    threads: 1024,
    params: {
      ...typed('size_t', 'dst_numel', 'l_out', 'l_k'),
      ...WINDOW,
      ...LAST,
      src: `const ${CTYPE[d]}*`,
      dst: `${CTYPE[d]}*`,
    },
    call: 'candle_im2col1d',
    given: `dst_numel, l_out, l_k, ${STEPS}, src, dst`,
  }),
});
CONV.declare({
  each: { dtype: CONV_TYPES },
  symbol: symbolOf('col2im1d'),
  body: ({ dtype: d }) => ({
    threads: 1024,
    params: {
      ...typed('size_t', 'dst_el', 'l_out', 'l_in', 'c_out', 'k_size', 'stride'),
      src: `const ${CTYPE[d]}*`,
      dst: `${CTYPE[d]}*`,
    },
    call: 'candle_col2im1d',
  }),
});
CONV.declare({
  each: { kind: ['avg', 'max'], dtype: CONV_TYPES },
  symbol: ({ kind, dtype }) => `${kind}_pool2d_${dtype}`,
  body: ({ kind, dtype: d }) => ({
    threads: 1024,
    params: {
      ...typed('size_t', 'src_numel', 'w_k', 'h_k', 'w_stride', 'h_stride'),
      info: 'const size_t*',
      src: `const ${CTYPE[d]}*`,
      dst: `${CTYPE[d]}*`,
    },
    call: `candle_pool<${kind === 'avg'}>`,
    given: 'w_k, h_k, w_stride, h_stride, (const u64*)info, src, dst',
  }),
});

export const CANDLE_MODULES: readonly KernelModule[] = [
  CONV,
  REDUCE,
  FILL,
  INDEXING,
  SORT,
  ...CANDLE_ELEMENTWISE,
  CANDLE_QUANTIZED,
  CANDLE_MMVQ,
];

// Candle's kernels that serve its names alone (kernels/candle/README.md): declared so that whoever launches Candle's
// symbols finds them here.
import { CANDLE_ELEMENTWISE } from './candle-elementwise.js';
import { CANDLE_MMVQ, CANDLE_QUANTIZED } from './candle-quantized.js';
import { ALL_TYPES, type Body, CTYPE, INT_TYPES, KernelModule, REAL_TYPES, suffixOf, typed } from './declare.js';

/** What a kernel of one element type is, for blocks of up to 1024 threads unless said. */
type Declared = Omit<Body, 'threads'>;
const forTypes = (
  module: KernelModule,
  stem: string,
  dtypes: readonly (typeof ALL_TYPES)[number][],
  declared: (T: string) => Declared,
  threads = 1024,
) => module.forTypes(dtypes, stem, (T) => ({ threads, ...declared(T) }));
/** The buffers that most kernels end with or begin with. */
const io = (T: string) => ({ src: `const ${T}*`, dst: `${T}*` }) as const;

// ---- reduce.cu ----

const REDUCE = new KernelModule('candle/reduce');
for (const op of ['Sum', 'Min', 'Max', 'ArgMin', 'ArgMax'])
  forTypes(REDUCE, `fast_${op.toLowerCase()}`, ALL_TYPES, (T) => ({
    params: {
      ...typed('size_t', 'src_numel', 'el_to_sum_per_block', 'num_dims'),
      info: 'const size_t*',
      src: `const ${T}*`,
      dst: op.startsWith('Arg') ? 'u32*' : `${T}*`,
    },
    call: `fast_reduce<${op}<${T}>>`,
    given: 'src_numel, el_to_sum_per_block, num_dims, (const u64*)info, src, dst',
  }));
forTypes(REDUCE, 'sum', [...REAL_TYPES, 'u32'], (T) => ({
  params: {
    ...typed('size_t', 'numel', 'num_dims', 'num_sum_dims'),
    info: 'const size_t*',
    inp: `const ${T}*`,
    out: `${T}*`,
  },
  call: 'atomic_sum',
  given: 'numel, num_dims, num_sum_dims, (const u64*)info, inp, out',
}));
forTypes(REDUCE, 'softmax', REAL_TYPES, (T) => ({ params: { ...io(T), n_cols: 'int' }, call: 'softmax32' }), 32);
const NORM_SIZES = { n_cols: 'int', block_size: 'int', eps: 'float' } as const;
forTypes(REDUCE, 'rmsnorm', REAL_TYPES, (T) => ({
  params: { ...io(T), alpha: `const ${T}*`, ...NORM_SIZES },
  call: 'norm_row<false>',
  given: `src, dst, alpha, (const ${T}*)nullptr, n_cols, (u32)block_size, eps`,
}));
forTypes(REDUCE, 'layernorm', REAL_TYPES, (T) => ({
  params: { ...io(T), ...typed(`const ${T}*`, 'alpha', 'beta'), ...NORM_SIZES },
  call: 'norm_row<true>',
  given: 'src, dst, alpha, beta, n_cols, (u32)block_size, eps',
}));
/** Sizes after the four tables. */
const ROPES = {
  rope_i: typed('u32', 'bh', 'td', 'stride_b'),
  rope: typed('u32', 'bh', 'td', 'd', 'stride_b'),
  rope_thd: typed('u32', 'b', 't', 'h', 'd', 'stride_b'),
} as const;
for (const [kind, sizes] of Object.entries(ROPES))
  forTypes(REDUCE, kind, REAL_TYPES, (T) => ({
    params: { ...typed(`const ${T}*`, 'src', 'cos', 'sin'), dst: `${T}*`, ...sizes },
    call: kind,
  }));

// ---- fill.cu: fill itself is launched by the backend (src/backends/gpu/movement.ts) ----

const FILL = new KernelModule('candle/fill');
forTypes(FILL, 'copy2d', ALL_TYPES, (T) => ({
  params: { ...io(T), ...typed('u32', 'd1', 'd2', 'src_s', 'dst_s') },
  call: 'copy2d',
}));
forTypes(FILL, 'const_set', ALL_TYPES, (T) => ({
  params: { numel: 'u64', num_dims: 'u64', info: 'const u64*', inp: T, out: `${T}*` },
  call: 'const_set',
}));

// ---- indexing.cu ----

const INDEXING = new KernelModule('candle/indexing');
const READ = typed('size_t', 'left_size', 'src_dim_size', 'ids_dim_size', 'right_size');
const WRITTEN = typed('size_t', 'left_size', 'src_dim_size', 'dst_dim_size', 'right_size');
/** By Candle's stem, for indices I of elements T. */
const INDEXED: Readonly<Record<string, (I: string, T: string) => Declared>> = {
  is: (I, T) => ({
    params: { numel: 'size_t', num_dims: 'size_t', info: 'const size_t*', ...indexed(I, T), ...READ },
    call: 'index_select',
    given: 'numel, num_dims, (const u64*)info, ids, inp, out, src_dim_size, ids_dim_size, right_size',
  }),
  gather: (I, T) => ({
    params: { numel: 'size_t', ...indexed(I, T), ...READ },
    call: 'gather',
    given: 'numel, ids, inp, out, src_dim_size, ids_dim_size, right_size',
  }),
  ia: (I, T) => ({
    params: { ids: `const ${I}*`, ids_dim_size: 'size_t', inp: `const ${T}*`, out: `${T}*`, ...WRITTEN },
    call: 'index_add',
    given: 'ids, ids_dim_size, inp, out, left_size, dst_dim_size, right_size',
  }),
  s: (I, T) => ({ params: { ...indexed(I, T), ...WRITTEN }, call: 'scatter<false>' }),
  sa: (I, T) => ({ params: { ...indexed(I, T), ...WRITTEN }, call: 'scatter<true>' }),
};
const indexed = (I: string, T: string) => ({ ids: `const ${I}*`, inp: `const ${T}*`, out: `${T}*` }) as const;
for (const [stem, declared] of Object.entries(INDEXED))
  INDEXING.declare({
    each: { ids: INT_TYPES, dtype: ALL_TYPES },
    symbol: ({ ids, dtype }) => `${stem}_${ids}_${suffixOf(dtype)}`,
    body: ({ ids, dtype }) => ({ threads: 1024, ...declared(CTYPE[ids], CTYPE[dtype]) }),
  });

// ---- sort.cu ----

const SORT = new KernelModule('candle/sort');
for (const order of ['asc', 'desc'])
  forTypes(SORT, `asort_${order}`, ALL_TYPES, (T) => ({
    params: { x: `const ${T}*`, dst: 'u32*', ncols: 'int', ncols_pad: 'int' },
    call: 'asort',
    given: `x, dst, ncols, ncols_pad, ${order === 'desc'}`,
  }));

// ---- conv.cu: its resizing is launched by the backend (src/backends/gpu/resample.ts) ----

const CONV = new KernelModule('candle/conv');
const CONV_TYPES = [...REAL_TYPES, 'u8', 'u32'] as const;
const WINDOW = { stride: 'size_t', padding: 'size_t' } as const;
const LAST = { dilation: 'size_t', info: 'const size_t*' } as const;
const STEPS = '(i64)stride, (i64)padding, (i64)dilation, (const u64*)info';
/** Parameters before the operands, and what the function is given of them. */
const CONVS = {
  conv1d: { sizes: { ...typed('size_t', 'src_numel', 'num_dims'), ...WINDOW, ...LAST }, given: STEPS },
  conv2d: {
    sizes: { ...typed('size_t', 'src_numel', 'w_out', 'h_out'), ...WINDOW, ...LAST },
    given: `w_out, h_out, ${STEPS}`,
  },
  conv_transpose1d: {
    sizes: { ...typed('size_t', 'src_numel', 'l_out'), ...WINDOW, out_padding: 'size_t', ...LAST },
    given: `l_out, ${STEPS}`,
  },
  conv_transpose2d: {
    sizes: { ...typed('size_t', 'src_numel', 'w_out', 'h_out'), ...WINDOW, out_padding: 'size_t', ...LAST },
    given: `w_out, h_out, ${STEPS}`,
  },
} as const;
for (const [kind, { sizes, given }] of Object.entries(CONVS))
  forTypes(CONV, kind, CONV_TYPES, (T) => ({
    params: { ...sizes, ...typed(`const ${T}*`, 'src', 'kernel'), dst: `${T}*` },
    call: `candle_${kind}`,
    given: `${given}, src, kernel, dst`,
  }));
forTypes(CONV, 'im2col', CONV_TYPES, (T) => ({
  params: { ...typed('size_t', 'dst_numel', 'h_out', 'w_out', 'h_k', 'w_k'), ...WINDOW, ...LAST, ...io(T) },
  call: 'candle_im2col2d',
  given: `dst_numel, h_out, w_out, h_k, w_k, ${STEPS}, src, dst`,
}));
forTypes(CONV, 'im2col1d', CONV_TYPES, (T) => ({
  params: { ...typed('size_t', 'dst_numel', 'l_out', 'l_k'), ...WINDOW, ...LAST, ...io(T) },
  call: 'candle_im2col1d',
  given: `dst_numel, l_out, l_k, ${STEPS}, src, dst`,
}));
forTypes(CONV, 'col2im1d', CONV_TYPES, (T) => ({
  params: { ...typed('size_t', 'dst_el', 'l_out', 'l_in', 'c_out', 'k_size', 'stride'), ...io(T) },
  call: 'candle_col2im1d',
}));
for (const kind of ['avg', 'max'])
  forTypes(CONV, `${kind}_pool2d`, CONV_TYPES, (T) => ({
    params: { ...typed('size_t', 'src_numel', 'w_k', 'h_k', 'w_stride', 'h_stride'), info: 'const size_t*', ...io(T) },
    call: `candle_pool<${kind === 'avg'}>`,
    given: 'w_k, h_k, w_stride, h_stride, (const u64*)info, src, dst',
  }));

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

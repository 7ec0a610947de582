// Candle's kernels that serve its names alone (kernels/candle/README.md): declared so that whoever launches Candle's symbols finds them here.
import type { DType } from '../base/dtype.js';
import { ALL_TYPES, CTYPE, KernelModule, REAL_TYPES, suffixOf } from './declare.js';

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
      numel: 'size_t',
      num_dims: 'size_t',
      num_sum_dims: 'size_t',
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

export const CANDLE_MODULES: readonly KernelModule[] = [REDUCE];

// Candle's quantized.cu and mmvq_gguf.cu, declared under their names (kernels/candle/README.md). Ours:
// src/backends/gpu/quantized.ts.
import { CTYPE, KernelModule, typed } from './declare.js';

export const CANDLE_QUANTIZED = new KernelModule('candle/quantized');
/** Blocks of 32 values, and of 256. */
const SMALL = ['q4_0', 'q4_1', 'q5_0', 'q5_1', 'q8_0'] as const;
const LARGE = ['q2_K', 'q3_K', 'q4_K', 'q5_K', 'q6_K'] as const;
const BLOCKS = [...SMALL, ...LARGE] as const;
/** The block's struct: Q4_0, Q4_K. */
const structOf = (block: string): string => block.toUpperCase();

CANDLE_QUANTIZED.declare({
  each: { block: SMALL, dtype: ['f32', 'f16'] },
  symbol: ({ block, dtype }) => `dequantize_block_${block}_${dtype}`,
  body: ({ block, dtype }) => ({
    threads: 256,
    params: { vx: 'const void*', y: `${CTYPE[dtype]}*`, k: 'int' },
    call: `dequantize<${structOf(block)}>`,
    given: block.startsWith('q5') ? 'vx, y, 2 * (int)blockDim.x, (u64)k' : 'vx, y, 256, (u64)k * 32',
  }),
});
CANDLE_QUANTIZED.declare({
  each: { block: [...LARGE, 'q8_K'], dtype: ['f32', 'f16'] },
  symbol: ({ block, dtype }) => `dequantize_block_${block}_${dtype}`,
  body: ({ block, dtype }) => ({
    threads: 256,
    params: { vx: 'const void*', y: `${CTYPE[dtype]}*` },
    call: `dequantize<${structOf(block)}>`,
    given: 'vx, y, 256, (u64)gridDim.x * 256',
  }),
});
const ROWS = { src1: 'const u32*', dst: 'float*', ne00: 'i64', nb01: 'u64' } as const;
CANDLE_QUANTIZED.declare({
  each: { block: BLOCKS },
  symbol: ({ block }) => `get_rows_${block}`,
  body: ({ block }) => ({
    threads: 256,
    params: { src0: 'const void*', ...ROWS },
    call: `get_rows<${structOf(block)}>`,
  }),
});
CANDLE_QUANTIZED.forTypes(['f32', 'f16', 'bf16'], 'get_rows', (T) => ({
  threads: 256,
  params: { src0: `const ${T}*`, ...ROWS },
  call: 'get_float_rows',
  given: 'src0, src1, dst, ne00',
}));
/** Weights times a float vector; Candle writes k small here, and its q5_k takes no number of rows. */
CANDLE_QUANTIZED.declare({
  each: { block: [...SMALL, 'q2_K', 'q3_K', 'q4_K', 'q6_K'] },
  symbol: ({ block }) =>
    `dequantize_mul_mat_vec_${(LARGE as readonly string[]).includes(block) ? block.toLowerCase() : `${block}_cuda`}`,
  body: ({ block }) => ({
    threads: 128,
    params: { vx: 'const void*', y: 'const float*', dst: 'float*', ncols: 'int', nrows: 'int' },
    call: `dequantize_mul_mat_vec<${structOf(block)}>`,
  }),
});
CANDLE_QUANTIZED.declare({
  each: {},
  symbol: () => 'dequantize_mul_mat_vec_q5_k',
  body: () => ({
    threads: 128,
    params: { vx: 'const void*', yy: 'const float*', dst: 'float*', ncols: 'int' },
    call: 'dequantize_mul_mat_vec<Q5_K>',
    given: 'vx, yy, dst, ncols, gridDim.x * blockDim.y',
  }),
});
CANDLE_QUANTIZED.declare({
  each: {},
  symbol: () => 'quantize_q8_1',
  body: () => ({
    threads: 256,
    params: { x: 'const float*', vy: 'void*', kx: 'int', kx_padded: 'int' },
    call: 'quantize_values',
  }),
});
/** Products with rounded columns: so many columns at once, rows a warp owns, warps of a block. */
const vectorProduct = (block: string, columns: number): string =>
  `mul_mat_vec<${structOf(block)}, ${columns}, ${columns === 1 ? 1 : 2}, ${columns <= 4 ? 4 : 2}>`;
CANDLE_QUANTIZED.declare({
  each: { block: BLOCKS, columns: [1, 2, 3, 4, 5, 6, 7, 8] },
  symbol: ({ block, columns }) => `mul_mat_vec_${block}_q8_1_cuda${columns}`,
  body: ({ block, columns }) => ({
    threads: 128,
    params: {
      ...{ vx: 'const void*', vy: 'const void*', dst: 'float*' },
      ...typed('int', 'ncols_x', 'nrows_x', 'nrows_y', 'nrows_dst'),
    },
    call: vectorProduct(block, columns),
    given: 'vx, vy, dst, ncols_x, nrows_x, nrows_y / 32, nrows_dst',
  }),
});
const EXPERTS = { q2k: 'Q2_K', q3k: 'Q3_K', q4k: 'Q4_K', q5k: 'Q5_K', q6k: 'Q6_K', q8_0: 'Q8_0' } as const;
CANDLE_QUANTIZED.declare({
  each: { name: Object.keys(EXPERTS) as (keyof typeof EXPERTS)[] },
  symbol: ({ name }) => `indexed_moe_forward_${name}_q8_1`,
  body: ({ name }) => ({
    threads: 128,
    params: {
      all_weights: 'const void*',
      all_inputs: 'const void*',
      indices: 'const u32*',
      all_outputs: 'float*',
      ...typed('int', 'n', 'k', 'batch', 'topk', 'k_padded', 'input_dim1'),
    },
    call: `indexed_moe_forward<${EXPERTS[name]}>`,
    given: 'all_weights, all_inputs, indices, all_outputs, n, k, k_padded, input_dim1',
  }),
});
/** Tiles of a matrix product: columns by rows. */
const TILES: Readonly<Record<(typeof BLOCKS)[number], string>> = {
  q4_0: '64, 128',
  q4_1: '64, 128',
  q5_0: '128, 64',
  q5_1: '128, 64',
  q8_0: '128, 64',
  q2_K: '64, 128',
  q3_K: '128, 128',
  q4_K: '64, 128',
  q5_K: '64, 128',
  q6_K: '64, 64',
};
CANDLE_QUANTIZED.declare({
  each: { block: BLOCKS },
  symbol: ({ block }) => `mul_mat_${block}`,
  body: ({ block }) => ({
    threads: 128,
    params: {
      ...{ vx: 'const void*', vy: 'const void*', dst: 'float*' },
      ...typed('int', 'ncols_x', 'nrows_x', 'ncols_y', 'nrows_y', 'nrows_dst'),
    },
    call: `mul_mat<${structOf(block)}, ${TILES[block]}>`,
  }),
});

// ---- mmvq_gguf.cu: the same products with results of three types ----

export const CANDLE_MMVQ = new KernelModule('candle/mmvq_gguf');
CANDLE_MMVQ.forTypes(['f32', 'f16', 'bf16'], 'mmvq_gguf_quantize_q8_1', (T) => ({
  threads: 256,
  params: { x: `const ${T}*`, vy: 'void*', kx: 'int', kx_padded: 'int' },
  call: 'quantize_values',
}));
CANDLE_MMVQ.declare({
  each: { block: BLOCKS, columns: [1, 2, 3, 4, 5, 6, 7, 8], dtype: ['f32', 'f16', 'bf16'] },
  symbol: ({ block, columns, dtype }) => `mmvq_gguf_${block.toLowerCase()}_${dtype}_plain_cuda${columns}`,
  body: ({ block, columns, dtype }) => ({
    threads: 128,
    params: {
      ...{ vx: 'const void*', vy: 'const void*', dst: `${CTYPE[dtype]}*` },
      ...typed('int', 'ncols_x', 'nrows_x', 'stride_col_y', 'stride_col_dst'),
    },
    call: vectorProduct(block, columns),
  }),
});

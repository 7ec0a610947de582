// What Candle's kernels for vectors share: activations rounded to q8_1, and products of a few of them with ggml's
// blocks.
#pragma once
#include "quant-blocks.h"
#include "settle.h"

WICK_FN float sum32(float v) {
  for (int mask = 16; mask > 0; mask /= 2) v += shfl_xor(v, mask, 32);
  return v;
}
WICK_FN float max32(float v) {
  for (int mask = 16; mask > 0; mask /= 2) v = fmaxf(v, shfl_xor(v, mask, 32));
  return v;
}

// ---- activations to q8_1: a group of 32 lanes a block
// ----------------------------------------------------------------------

template <class T> WICK_FN void quantize_values(const T* x, void* vy, int kx, int kx_padded) {
  int ix = blockIdx.x * blockDim.x + threadIdx.x;
  if (ix >= kx_padded) return;  // whole groups of 32 leave together: kx_padded is a multiple of 512
  u64 iy = (u64)blockIdx.y * blockDim.y + threadIdx.y;
  float xi = ix < kx ? (float)to_compute(x[iy * kx + ix]) : 0.0f;
  float amax = max32(fabsf(xi)), sum = sum32(xi);
  float d = amax / 127;
  Q8_1::Block& b = ((Q8_1::Block*)vy)[(iy * kx_padded + ix) / 32];
  ((i8*)b.qs)[ix % 32] = amax == 0 ? 0 : (i8)(int)roundf(xi / d);
  if (ix % 32) return;
  b.d = float_to_half(d).bits;
  b.s = float_to_half(sum).bits;
}

// ---- matrix-vector products with 1 to 8 columns: a thread takes a chunk of 32 values of every row and column of its
// block ---

// A column of activations has y_blocks blocks, a column of results nrows_dst numbers.
template <class Q, int Cols, int Rows, int Warps, class T>
WICK_FN void mul_mat_vec(const void* x, const void* y, T* dst, int ncols, int nrows, int y_blocks, int nrows_dst) {
  __shared__ float partial[Warps][Cols][Rows];
  int t = 32 * threadIdx.y + threadIdx.x, row0 = Rows * blockIdx.x, chunks = ncols / 32;
  const typename Q::Block* blocks = (const typename Q::Block*)x;
  const Q8_1::Block* activations = (const Q8_1::Block*)y;
  float sum[Cols][Rows] = {};
  for (int c = t; c < chunks; c += 32 * Warps) {
    Chunk<Q> w[Rows];
#pragma unroll
    for (int i = 0; i < Rows; i++) {
      int row = row0 + i < nrows ? row0 + i : nrows - 1;
      w[i] = load_chunk<Q>(blocks + (u64)row * (chunks / Q::chunks), c);
    }
#pragma unroll
    for (int j = 0; j < Cols; j++) {
      const Q8_1::Block& u = activations[(u64)j * y_blocks + c];
      Activation<Q> a = load_activation<Q, false>(u);
#pragma unroll
      for (int i = 0; i < Rows; i++) sum[j][i] += dot_chunk<Q, false>(w[i].v, w[i].d, w[i].m, (const int*)u.qs, a);
    }
  }
  UNROLL(5, 5)
  for (int mask = 16; mask > 0; mask /= 2) {
#pragma unroll
    for (int j = 0; j < Cols; j++)
#pragma unroll
      for (int i = 0; i < Rows; i++) sum[j][i] += shfl_xor(sum[j][i], mask, 32);
  }
  if (threadIdx.x == 0) {
#pragma unroll
    for (int j = 0; j < Cols; j++)
#pragma unroll
      for (int i = 0; i < Rows; i++) partial[threadIdx.y][j][i] = sum[j][i];
  }
  __syncthreads();
  if (t >= Cols * Rows) return;
  int j = t / Rows, i = t % Rows;
  if (row0 + i >= nrows) return;
  float total = 0;
  for (int w = 0; w < Warps; w++) total += partial[w][j][i];
  dst[(u64)j * nrows_dst + row0 + i] = from_compute<T>(total);
}

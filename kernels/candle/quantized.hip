// Candle's quantized.cu: dequantize, rows by index, and products of ggml blocks with floats or q8_1 activations.
//
// Launches are Candle's: activations are rows of q8_1 blocks padded to a multiple of 512 values; blocks of threads are
// (32, warps). Where Candle reads and writes past the last odd row, or strides q8_0 experts as if their blocks held 256
// values, these do not.
#include "quant-vectors.h"

// ---- dequantize: a thread writes four values
// -------------------------------------------------------------------------------

template <class Q, class T> WICK_FN void dequantize(const void* x, T* y, int values_per_block, u64 values) {
  for (int i = threadIdx.x; i < values_per_block / 4; i += blockDim.x) {
    u64 q = (u64)blockIdx.x * (values_per_block / 4) + i;
    if (4 * q >= values) return;
    float v[4];
    dequantize_quad<Q>((const typename Q::Block*)x, q, v);
    for (int j = 0; j < 4; j++) y[4 * q + j] = from_compute<T>(v[j]);
  }
}

// k counts blocks of 32 for q4_0, q4_1 and q8_0, and values for q5_0 and q5_1, whose thread blocks take two values a
// thread.

// ---- rows by index: blockIdx.x is the id, blocks along y share the row
// ------------------------------------------------------

template <class Q> WICK_FN void get_rows(const void* table, const u32* ids, float* dst, i64 width, u64 row_bytes) {
  const typename Q::Block* row = (const typename Q::Block*)((const char*)table + ids[blockIdx.x] * row_bytes);
  float* out = dst + (u64)blockIdx.x * width;
  u64 step = (u64)gridDim.y * blockDim.x;
  for (u64 q = (u64)blockIdx.y * blockDim.x + threadIdx.x; q < (u64)width / 4; q += step) {
    float v[4];
    dequantize_quad<Q>(row, q, v);
    for (int j = 0; j < 4; j++) out[4 * q + j] = v[j];
  }
}

template <class T> WICK_FN void get_float_rows(const T* table, const u32* ids, float* dst, i64 width) {
  const T* row = table + (u64)ids[blockIdx.x] * width;
  float* out = dst + (u64)blockIdx.x * width;
  u64 step = (u64)gridDim.y * blockDim.x;
  for (u64 i = (u64)blockIdx.y * blockDim.x + threadIdx.x; i < (u64)width; i += step) out[i] = to_compute(row[i]);
}

// ---- weights times a float vector: 32 lanes a row, eight values a lane and step
// ---------------------------------------------

template <class Q>
WICK_FN void dequantize_mul_mat_vec(const void* x, const float* y, float* dst, int ncols, int nrows) {
  int row = blockIdx.x * blockDim.y + threadIdx.y;
  int quads = row < nrows ? ncols / 4 : 0;
  const typename Q::Block* blocks = (const typename Q::Block*)x + (u64)row * (ncols / (32 * Q::chunks));
  float sum = 0;
  for (int q0 = 2 * threadIdx.x; q0 < quads; q0 += 64) {
    for (int q = q0; q < q0 + 2; q++) {
      float v[4];
      dequantize_quad<Q>(blocks, q, v);
      for (int i = 0; i < 4; i++) sum = fmaf(v[i], y[4 * q + i], sum);
    }
  }
  sum = sum32(sum);
  if (threadIdx.x == 0 && row < nrows) dst[row] = sum;
}

// ---- experts: grid (rows, batch, topk); an input is shared by the experts of a batch entry when input_dim1 is 1
// --------------

template <class Q>
WICK_FN void indexed_moe_forward(const void* weights, const void* inputs, const u32* ids, float* outputs, int n, int k,
                                 int k_padded, int input_dim1) {
  u64 task = (u64)blockIdx.y * gridDim.z + blockIdx.z;
  u64 input = input_dim1 == 1 ? blockIdx.y : task;
  const typename Q::Block* expert = (const typename Q::Block*)weights + (u64)ids[task] * n * (k / (32 * Q::chunks));
  const Q8_1::Block* activations = (const Q8_1::Block*)inputs + input * (k_padded / 32);
  mul_mat_vec<Q, 1, 1, 4>(expert, activations, outputs + task * n, k, n, k_padded / 32, n);
}

// ---- matrix products: X columns by Y rows a block of (32, 4) threads, two chunks of both staged unpacked in shared
// memory ----

template <class Q, int X, int Y>
WICK_FN void mul_mat(const void* x, const void* y, float* dst, int ncols_x, int nrows_x, int ncols_y, int nrows_y,
                     int nrows_dst) {
  constexpr int Depth = 2, H = Q::halves;
  __shared__ int weights[Y][8 * Depth + 1];  // the odd row length keeps a column of rows off one bank
  __shared__ float scales[2 * H][Depth][Y];
  __shared__ __attribute__((aligned(16))) int activations[X][8 * Depth];
  __shared__ float sums[1 + H][Depth][X];
  int t = 32 * threadIdx.y + threadIdx.x, row0 = Y * blockIdx.x, col0 = X * blockIdx.y, chunks = ncols_x / 32;
  const typename Q::Block* blocks = (const typename Q::Block*)x;
  const Q8_1::Block* columns = (const Q8_1::Block*)y;
  float sum[X / 4][Y / 32] = {};

  for (int c0 = 0; c0 < chunks; c0 += Depth) {
    UNROLL(2, 1)
    for (int i = t; i < Y * Depth; i += 128) {
      int r = i / Depth, s = i % Depth, row = row0 + r < nrows_x ? row0 + r : nrows_x - 1;
      Chunk<Q> w = {};
      if (c0 + s < chunks) w = load_chunk<Q>(blocks + (u64)row * (chunks / Q::chunks), c0 + s);
#pragma unroll
      for (int k = 0; k < 8; k++) weights[r][8 * s + k] = w.v[k];
#pragma unroll
      for (int h = 0; h < H; h++) scales[h][s][r] = w.d[h], scales[H + h][s][r] = w.m[h];
    }
    UNROLL(2, 1)
    for (int i = t; i < X * Depth; i += 128) {
      int j = i / Depth, s = i % Depth, col = col0 + j < ncols_y ? col0 + j : ncols_y - 1;
      Q8_1::Block u = {};
      if (c0 + s < chunks) u = columns[(u64)col * (nrows_y / 32) + c0 + s];
      Activation<Q> a = load_activation<Q, true>(u);
#pragma unroll
      for (int k = 0; k < 8; k++) activations[j][8 * s + k] = (int)u.qs[k];
      sums[0][s][j] = a.d;
#pragma unroll
      for (int h = 0; h < H; h++) sums[1 + h][s][j] = a.sum[h];
    }
    __syncthreads();
    UNROLL(2, 1)
    for (int s = 0; s < Depth; s++) {
      Chunk<Q> w[Y / 32];
#pragma unroll
      for (int i = 0; i < Y / 32; i++) {
        int r = threadIdx.x + 32 * i;
#pragma unroll
        for (int k = 0; k < 8; k++) w[i].v[k] = weights[r][8 * s + k];
#pragma unroll
        for (int h = 0; h < H; h++) w[i].d[h] = scales[h][s][r], w[i].m[h] = scales[H + h][s][r];
      }
#pragma unroll
      for (int j = 0; j < X / 4; j++) {
        int col = threadIdx.y + 4 * j;
        Activation<Q> a;
        a.d = sums[0][s][col];
#pragma unroll
        for (int h = 0; h < H; h++) a.sum[h] = sums[1 + h][s][col];
        int u[8];
#pragma unroll
        for (int k = 0; k < 8; k++) u[k] = activations[col][8 * s + k];
#pragma unroll
        for (int i = 0; i < Y / 32; i++) sum[j][i] += dot_chunk<Q, true>(w[i].v, w[i].d, w[i].m, u, a);
        settle(sum[j]);
      }
    }
    __syncthreads();
  }

  int cols = ncols_y - col0 - (int)threadIdx.y, rows = nrows_dst - row0 - (int)threadIdx.x;
  float* to = dst + (i64)(col0 + (int)threadIdx.y) * nrows_dst + row0 + threadIdx.x;
#pragma unroll
  for (int j = 0; j < X / 4; j++) {
#pragma unroll
    for (int i = 0; i < Y / 32; i++)
      if (4 * j < cols && 32 * i < rows) to[32 * i] = sum[j][i];
    to += (i64)4 * nrows_dst;
  }
}

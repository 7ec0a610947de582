// Candle's quantized.cu: dequantize, rows by index, and products of ggml blocks with floats or q8_1 activations.
//
// Launches are Candle's: activations are rows of q8_1 blocks padded to a multiple of 512 values; blocks of threads are (32, warps).
// Where Candle reads and writes past the last odd row, or strides q8_0 experts as if their blocks held 256 values, these do not.
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

// ---- dequantize: a thread writes four values -------------------------------------------------------------------------------

template <class Q, class T> WICK_FN void dequantize(const void* x, T* y, int values_per_block, u64 values) {
  for (int i = threadIdx.x; i < values_per_block / 4; i += blockDim.x) {
    u64 q = (u64)blockIdx.x * (values_per_block / 4) + i;
    if (4 * q >= values) return;
    float v[4];
    dequantize_quad<Q>((const typename Q::Block*)x, q, v);
    for (int j = 0; j < 4; j++) y[4 * q + j] = from_compute<T>(v[j]);
  }
}

// k counts blocks of 32 for q4_0, q4_1 and q8_0, and values for q5_0 and q5_1, whose thread blocks take two values a thread.
#define DEQUANTIZE(name, Q, T, suffix, per_block, values)                                                             \
  KERNEL(256) dequantize_block_##name##_##suffix(const void* vx, T* y, const int k) { dequantize<Q>(vx, y, per_block, values); }
#define DEQUANTIZE_BOTH(name, Q, per_block, values)        \
  DEQUANTIZE(name, Q, float, f32, per_block, values)       \
  DEQUANTIZE(name, Q, half, f16, per_block, values)
DEQUANTIZE_BOTH(q4_0, Q4_0, 256, (u64)k * 32)
DEQUANTIZE_BOTH(q4_1, Q4_1, 256, (u64)k * 32)
DEQUANTIZE_BOTH(q5_0, Q5_0, 2 * (int)blockDim.x, (u64)k)
DEQUANTIZE_BOTH(q5_1, Q5_1, 2 * (int)blockDim.x, (u64)k)
DEQUANTIZE_BOTH(q8_0, Q8_0, 256, (u64)k * 32)

#define DEQUANTIZE_K(name, Q)                                                                                                  \
  KERNEL(256) dequantize_block_##name##_f32(const void* vx, float* y) { dequantize<Q>(vx, y, 256, (u64)gridDim.x * 256); } \
  KERNEL(256) dequantize_block_##name##_f16(const void* vx, half* y) { dequantize<Q>(vx, y, 256, (u64)gridDim.x * 256); }
DEQUANTIZE_K(q2_K, Q2_K)
DEQUANTIZE_K(q3_K, Q3_K)
DEQUANTIZE_K(q4_K, Q4_K)
DEQUANTIZE_K(q5_K, Q5_K)
DEQUANTIZE_K(q6_K, Q6_K)
DEQUANTIZE_K(q8_K, Q8_K)

// ---- rows by index: blockIdx.x is the id, blocks along y share the row ------------------------------------------------------

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

#define GET_ROWS(name, Q)                                                                                                            \
  KERNEL(256) get_rows_##name(const void* src0, const u32* src1, float* dst, const i64 ne00, const u64 nb01) { \
    get_rows<Q>(src0, src1, dst, ne00, nb01);                                                                                        \
  }
#define GET_FLOAT_ROWS(name, T)                                                                                                   \
  KERNEL(256) get_rows_##name(const T* src0, const u32* src1, float* dst, const i64 ne00, const u64 nb01) { \
    get_float_rows(src0, src1, dst, ne00);                                                                                        \
  }
GET_ROWS(q4_0, Q4_0)
GET_ROWS(q4_1, Q4_1)
GET_ROWS(q5_0, Q5_0)
GET_ROWS(q5_1, Q5_1)
GET_ROWS(q8_0, Q8_0)
GET_ROWS(q2_K, Q2_K)
GET_ROWS(q3_K, Q3_K)
GET_ROWS(q4_K, Q4_K)
GET_ROWS(q5_K, Q5_K)
GET_ROWS(q6_K, Q6_K)
GET_FLOAT_ROWS(f32, float)
GET_FLOAT_ROWS(f16, half)
GET_FLOAT_ROWS(bf16, bfloat)

// ---- weights times a float vector: 32 lanes a row, eight values a lane and step ---------------------------------------------

template <class Q> WICK_FN void dequantize_mul_mat_vec(const void* x, const float* y, float* dst, int ncols, int nrows) {
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

#define DEQUANTIZE_MUL_MAT_VEC(name, Q)                                                                        \
  KERNEL(128) dequantize_mul_mat_vec_##name(const void* vx, const float* y, float* dst, const int ncols, const int nrows) { \
    dequantize_mul_mat_vec<Q>(vx, y, dst, ncols, nrows);                                                                    \
  }
DEQUANTIZE_MUL_MAT_VEC(q4_0_cuda, Q4_0)
DEQUANTIZE_MUL_MAT_VEC(q4_1_cuda, Q4_1)
DEQUANTIZE_MUL_MAT_VEC(q5_0_cuda, Q5_0)
DEQUANTIZE_MUL_MAT_VEC(q5_1_cuda, Q5_1)
DEQUANTIZE_MUL_MAT_VEC(q8_0_cuda, Q8_0)
DEQUANTIZE_MUL_MAT_VEC(q2_k, Q2_K)
DEQUANTIZE_MUL_MAT_VEC(q3_k, Q3_K)
DEQUANTIZE_MUL_MAT_VEC(q4_k, Q4_K)
DEQUANTIZE_MUL_MAT_VEC(q6_k, Q6_K)
KERNEL(128) dequantize_mul_mat_vec_q5_k(const void* vx, const float* yy, float* dst, const int ncols) {
  dequantize_mul_mat_vec<Q5_K>(vx, yy, dst, ncols, gridDim.x * blockDim.y);
}

// ---- activations to q8_1: a group of 32 lanes a block ----------------------------------------------------------------------

KERNEL(256) quantize_q8_1(const float* x, void* vy, const int kx, const int kx_padded) {
  int ix = blockIdx.x * blockDim.x + threadIdx.x;
  if (ix >= kx_padded) return;  // whole groups of 32 leave together: kx_padded is a multiple of 512
  u64 iy = (u64)blockIdx.y * blockDim.y + threadIdx.y;
  float xi = ix < kx ? x[iy * kx + ix] : 0.0f;
  float amax = max32(fabsf(xi)), sum = sum32(xi);
  float d = amax / 127;
  Q8_1::Block& b = ((Q8_1::Block*)vy)[(iy * kx_padded + ix) / 32];
  ((i8*)b.qs)[ix % 32] = amax == 0 ? 0 : (i8)(int)roundf(xi / d);
  if (ix % 32) return;
  b.d = float_to_half(d).bits;
  b.s = float_to_half(sum).bits;
}

// ---- matrix-vector products with 1 to 8 columns: a thread takes a chunk of 32 values of every row and column of its block ---

template <class Q, int Cols, int Rows, int Warps>
WICK_FN void mul_mat_vec(const void* x, const void* y, float* dst, int ncols, int nrows, int nrows_y, int nrows_dst) {
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
      const Q8_1::Block& u = activations[(u64)j * (nrows_y / 32) + c];
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
  dst[(u64)j * nrows_dst + row0 + i] = total;
}

#define MUL_MAT_VEC(name, Q, cols, rows, warps)                                                                              \
  KERNEL(128) mul_mat_vec_##name##_q8_1_cuda##cols(const void* vx, const void* vy, float* dst, const int ncols_x,            \
                                                   const int nrows_x, const int nrows_y, const int nrows_dst) {              \
    mul_mat_vec<Q, cols, rows, warps>(vx, vy, dst, ncols_x, nrows_x, nrows_y, nrows_dst);                                    \
  }
#define MUL_MAT_VEC_COLUMNS(name, Q) \
  MUL_MAT_VEC(name, Q, 1, 1, 4)      \
  MUL_MAT_VEC(name, Q, 2, 2, 4)      \
  MUL_MAT_VEC(name, Q, 3, 2, 4)      \
  MUL_MAT_VEC(name, Q, 4, 2, 4)      \
  MUL_MAT_VEC(name, Q, 5, 2, 2)      \
  MUL_MAT_VEC(name, Q, 6, 2, 2)      \
  MUL_MAT_VEC(name, Q, 7, 2, 2)      \
  MUL_MAT_VEC(name, Q, 8, 2, 2)
MUL_MAT_VEC_COLUMNS(q4_0, Q4_0)
MUL_MAT_VEC_COLUMNS(q4_1, Q4_1)
MUL_MAT_VEC_COLUMNS(q5_0, Q5_0)
MUL_MAT_VEC_COLUMNS(q5_1, Q5_1)
MUL_MAT_VEC_COLUMNS(q8_0, Q8_0)
MUL_MAT_VEC_COLUMNS(q2_K, Q2_K)
MUL_MAT_VEC_COLUMNS(q3_K, Q3_K)
MUL_MAT_VEC_COLUMNS(q4_K, Q4_K)
MUL_MAT_VEC_COLUMNS(q5_K, Q5_K)
MUL_MAT_VEC_COLUMNS(q6_K, Q6_K)

// ---- experts: grid (rows, batch, topk); an input is shared by the experts of a batch entry when input_dim1 is 1 --------------

template <class Q>
WICK_FN void indexed_moe_forward(const void* weights, const void* inputs, const u32* ids, float* outputs, int n, int k, int k_padded,
                                 int input_dim1) {
  u64 task = (u64)blockIdx.y * gridDim.z + blockIdx.z;
  u64 input = input_dim1 == 1 ? blockIdx.y : task;
  const typename Q::Block* expert = (const typename Q::Block*)weights + (u64)ids[task] * n * (k / (32 * Q::chunks));
  const Q8_1::Block* activations = (const Q8_1::Block*)inputs + input * (k_padded / 32);
  mul_mat_vec<Q, 1, 1, 4>(expert, activations, outputs + task * n, k, n, k_padded, n);
}

#define INDEXED_MOE_FORWARD(name, Q)                                                                                           \
  KERNEL(128) indexed_moe_forward_##name##_q8_1(const void* all_weights, const void* all_inputs, const u32* indices,      \
                                                float* all_outputs, const int n, const int k, const int batch, const int topk, \
                                                const int k_padded, const int input_dim1) {                                    \
    indexed_moe_forward<Q>(all_weights, all_inputs, indices, all_outputs, n, k, k_padded, input_dim1);                         \
  }
INDEXED_MOE_FORWARD(q2k, Q2_K)
INDEXED_MOE_FORWARD(q3k, Q3_K)
INDEXED_MOE_FORWARD(q4k, Q4_K)
INDEXED_MOE_FORWARD(q5k, Q5_K)
INDEXED_MOE_FORWARD(q6k, Q6_K)
INDEXED_MOE_FORWARD(q8_0, Q8_0)

// ---- matrix products: X columns by Y rows a block of (32, 4) threads, two chunks of both staged unpacked in shared memory ----

template <class Q, int X, int Y>
WICK_FN void mul_mat(const void* x, const void* y, float* dst, int ncols_x, int nrows_x, int ncols_y, int nrows_y, int nrows_dst) {
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

#define MUL_MAT(name, Q, X, Y)                                                                                               \
  KERNEL(128) mul_mat_##name(const void* vx, const void* vy, float* dst, const int ncols_x, const int nrows_x,               \
                             const int ncols_y, const int nrows_y, const int nrows_dst) {                                    \
    mul_mat<Q, X, Y>(vx, vy, dst, ncols_x, nrows_x, ncols_y, nrows_y, nrows_dst);                                            \
  }
MUL_MAT(q4_0, Q4_0, 64, 128)
MUL_MAT(q4_1, Q4_1, 64, 128)
MUL_MAT(q5_0, Q5_0, 128, 64)
MUL_MAT(q5_1, Q5_1, 128, 64)
MUL_MAT(q8_0, Q8_0, 128, 64)
MUL_MAT(q2_K, Q2_K, 64, 128)
MUL_MAT(q3_K, Q3_K, 128, 128)
MUL_MAT(q4_K, Q4_K, 64, 128)
MUL_MAT(q5_K, Q5_K, 64, 128)
MUL_MAT(q6_K, Q6_K, 64, 64)

// Products of tiles for the plain attention kernels: 256 threads as 16 x 16, each with a square of rows and columns 16
// apart.
#pragma once
#include "attention.h"
#include "settle.h"

// Rows and columns a thread has of a tile; doubles take half as many, to stay within 48 KiB.
template <class T> constexpr int tile_side = sizeof(compute_t<T>) == 8 ? 2 : 4;

// Where the rows of two tiles begin, in elements from their tensor's own beginning. One thread finds one row, so that
// pages are looked up once a tile. Rows past the end are the last one again: their weights are zero, and loads need no
// test.
template <class T, int B>
WICK_FN void find_queries(i64 (&rows)[2][B], const Attention& p, const Sequence& s, int head, int i0) {
  const int which = threadIdx.x / B, r = threadIdx.x % B;
  const i64 strides[3] = {which ? p.dout_strides[0] : p.q_strides[0], which ? p.dout_strides[1] : p.q_strides[1],
                          which ? p.dout_strides[2] : p.q_strides[2]};
  if (which < 2)
    rows[which][r] =
        query_row<const T>(nullptr, strides, s, head, i0 + r < s.nq ? i0 + r : s.nq - 1) - (const T*)nullptr;
}
template <class T, int B>
WICK_FN void find_keys(i64 (&rows)[2][B], const Attention& p, const Sequence& s, int kv_head, int j0) {
  const int which = threadIdx.x / B, r = threadIdx.x % B;
  const i64 strides[3] = {which ? p.v_strides[0] : p.k_strides[0], which ? p.v_strides[1] : p.k_strides[1],
                          which ? p.v_strides[2] : p.k_strides[2]};
  if (which < 2)
    rows[which][r] =
        key_row<const T>(p, nullptr, strides, s, kv_head, j0 + r < s.nk ? j0 + r : s.nk - 1) - (const T*)nullptr;
}

// 32 numbers of all rows from number `first` on, zeros past the end.
template <class T, class A, int B>
WICK_FN void stage_rows(A (&to)[B][33], const void* base, const i64 (&rows)[B], int first, int dim) {
  const int c = threadIdx.x % 32, r0 = threadIdx.x / 32;
  const bool in = first + c < dim;
  const T* from = (const T*)base + (in ? first + c : 0);
  UNROLL(4, 8)
  for (int n = 0; n < B / 8; n++) {
    const A x = to_compute(from[rows[r0 + 8 * n]]);
    to[r0 + 8 * n][c] = in ? x : A(0);
  }
}

// acc[r][c] += row ty+16r of x times row tx+16c of y.
template <class T, int R, class A, int B>
WICK_FN void tile_dot(A (&acc)[R][R], A (&stage)[2][B][33], int dim, const void* x, const i64 (&x_rows)[B],
                      const void* y, const i64 (&y_rows)[B]) {
  const int tx = threadIdx.x % 16, ty = threadIdx.x / 16;
  UNROLL(1, 1)
  for (int d0 = 0; d0 < dim; d0 += 32) {
    __syncthreads();
    stage_rows<T>(stage[0], x, x_rows, d0, dim);
    stage_rows<T>(stage[1], y, y_rows, d0, dim);
    __syncthreads();
    UNROLL(2, 4)
    for (int d = 0; d < 32; d++) {
      A a[R], b[R];
#pragma unroll
      for (int r = 0; r < R; r++) a[r] = stage[0][ty + 16 * r][d], b[r] = stage[1][tx + 16 * r][d];
#pragma unroll
      for (int r = 0; r < R; r++) {
#pragma unroll
        for (int c = 0; c < R; c++) acc[r][c] = fmag(a[r], b[c], acc[r][c]);
      }
    }
  }
}

// out[r][e] += sum over j of weights(ty+16r, j) times number tx+16e of row j; Transposed reads weights[j][row]. 64
// numbers of a row at a time, or 32 where AMD's compilers would run out of registers.
#ifdef WICK_AMD
template <int E> constexpr int SUM_CHUNK = E == 16 ? 2 : 4;
#else
template <int E> constexpr int SUM_CHUNK = 4;
#endif
template <class T, bool Transposed, int R, int E, class A, int B>
WICK_FN void tile_sum(A (&out)[R][E], A (&weights)[B][B + 1], A (&stage)[2][B][33], int dim, const void* x,
                      const i64 (&rows)[B]) {
  constexpr int Chunk = SUM_CHUNK<E>;
  const int tx = threadIdx.x % 16, ty = threadIdx.x / 16;
#pragma unroll
  for (int e0 = 0; e0 < E; e0 += Chunk) {
    __syncthreads();
    stage_rows<T>(stage[0], x, rows, 16 * e0, dim);
    if constexpr (Chunk == 4) stage_rows<T>(stage[1], x, rows, 16 * e0 + 32, dim);
    __syncthreads();
    UNROLL(2, 2)
    for (int j = 0; j < B; j++) {
      A v[Chunk];
#pragma unroll
      for (int e = 0; e < Chunk; e++) v[e] = stage[e / 2][j][tx + 16 * (e % 2)];
#pragma unroll
      for (int r = 0; r < R; r++) {
        const A w = Transposed ? weights[j][ty + 16 * r] : weights[ty + 16 * r][j];
#pragma unroll
        for (int e = 0; e < Chunk; e++) out[r][e0 + e] = fmag(w, v[e], out[r][e0 + e]);
      }
    }
  }
}

// Calls store(row, d, number) for the first `count` rows, by way of `tile`, so that neighbours in a row are written
// together.
template <int R, int E, class A, int B, class F>
WICK_FN void tile_store(const A (&out)[R][E], A (&tile)[B][B + 1], int count, int dim, F store) {
  int thread = threadIdx.x;
  settle(thread);  // what is made from it here is not made, and kept, before the loops that come first
  const int tx = thread % 16, ty = thread / 16;
#pragma unroll
  for (int e0 = 0; e0 < E; e0 += R) {
    __syncthreads();
#pragma unroll
    for (int r = 0; r < R; r++)
#pragma unroll
      for (int c = 0; c < R; c++) tile[ty + 16 * r][tx + 16 * c] = out[r][e0 + c];
    __syncthreads();
    const int c = thread % B, d = 16 * e0 + c;
    UNROLL(1, 1)
    for (int r = thread / B; r < B; r += 256 / B)
      if (r < count && d < dim) store(r, d, tile[r][c]);
  }
}

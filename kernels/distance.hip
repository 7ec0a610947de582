// Distances between rows, all with all: a block makes tiles of 64 x 64 of them, a thread 4 x 4 of a tile. Launches:
// src/backends/gpu/distance.ts.
#include "block.h"

constexpr int DISTANCE_TILE = 64, DISTANCE_DEEP = 16, DISTANCE_EACH = 4;

/** Magnitudes so large or small that their squares, or sums of them, may leave the range of T. */
template <class T> WICK_FN bool out_of_range(T squares) {
  const T most = sizeof(T) == 4 ? (T)1e37 : (T)1e300;
  return squares > most || squares < (T)1 / most * (T)1e7;
}
/** The same distance by squares of numbers around 1. */
template <class T> WICK_FN T distance_scaled(const T* a, const T* b, i64 k) {
  T top = 0, sum = 0;
  ROLLED
  for (i64 i = 0; i < k; i++) {
    const T d = absg(a[i] - b[i]);
    if (d > top) top = d;
  }
  if (top + top == top) return top;  // 0 or infinity
  ROLLED
  for (i64 i = 0; i < k; i++) {
    const T d = (a[i] - b[i]) / top;
    sum = fmag(d, d, sum);
  }
  return sqrtg(sum) * top;
}

template <int P, class T> WICK_FN void row_distances(const T* x, const T* y, T* out, i64 batch, i64 n, i64 m, i64 k) {
  __shared__ T left[DISTANCE_DEEP][DISTANCE_TILE + 4], right[DISTANCE_DEEP][DISTANCE_TILE + 4];
  const i64 across = (m + DISTANCE_TILE - 1) / DISTANCE_TILE, down = (n + DISTANCE_TILE - 1) / DISTANCE_TILE;
  const int tx = threadIdx.x % 16, ty = threadIdx.x / 16;
  ROLLED
  for (i64 tile = blockIdx.x; tile < batch * across * down; tile += gridDim.x) {
    const i64 b = tile / (across * down), i0 = tile / across % down * DISTANCE_TILE, j0 = tile % across * DISTANCE_TILE;
    const T *from = x + b * n * k, *other = y + b * m * k;
    T sums[DISTANCE_EACH][DISTANCE_EACH] = {};
    ROLLED
    for (i64 k0 = 0; k0 < k; k0 += DISTANCE_DEEP) {
      __syncthreads();
      // Sixteen neighbours of a row after another; what is not there counts 0 on both sides.
      ROLLED
      for (int r = ty; r < DISTANCE_TILE; r += 16) {
        const bool deep = k0 + tx < k;
        left[tx][r] = deep && i0 + r < n ? from[(i0 + r) * k + k0 + tx] : (T)0;
        right[tx][r] = deep && j0 + r < m ? other[(j0 + r) * k + k0 + tx] : (T)0;
      }
      __syncthreads();
#pragma unroll
      for (int d = 0; d < DISTANCE_DEEP; d++) {
        T a[DISTANCE_EACH], c[DISTANCE_EACH];
#pragma unroll
        for (int e = 0; e < DISTANCE_EACH; e++) a[e] = left[d][ty * 4 + e], c[e] = right[d][tx + 16 * e];
#pragma unroll
        for (int i = 0; i < DISTANCE_EACH; i++)
#pragma unroll
          for (int j = 0; j < DISTANCE_EACH; j++) {
            const T apart = a[i] - c[j];
            sums[i][j] = P == 1 ? sums[i][j] + absg(apart) : fmag(apart, apart, sums[i][j]);
          }
      }
    }
#pragma unroll
    for (int i = 0; i < DISTANCE_EACH; i++)
#pragma unroll
      for (int j = 0; j < DISTANCE_EACH; j++) {
        const i64 row = i0 + ty * 4 + i, column = j0 + tx + 16 * j;
        if (row >= n || column >= m) continue;
        T sum = sums[i][j];
        if (P == 2) sum = out_of_range(sum) ? distance_scaled(from + row * k, other + column * k, k) : sqrtg(sum);
        out[(b * n + row) * m + column] = sum;
      }
  }
}

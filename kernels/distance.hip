// Distances between rows, all with all: a block makes tiles of 64 x 64 of them, a thread 4 x 4 of a tile. And what
// flows back from them to the rows of x: a block makes 16 rows by 64 columns of that. Launches:
// src/backends/gpu/distance.ts.
#include "block.h"
#include "settle.h"

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

constexpr int BACK_ROWS = 16, BACK_DEEP = 64, BACK_OTHERS = 64, BACK_GROUPS = 4;

/** Whether a gradient divided by a length, which a difference is multiplied by then, stays within the range of T. */
template <class T> WICK_FN bool fits(T gradient, T quotient) {
  const T most = sizeof(T) == 4 ? (T)1e30 : (T)1e280, size = absg(quotient);
  return (size < most && size > 1 / most) || gradient == 0;
}
/** Where a matrix for each batch lies. */
struct Pairs {
  i64 batch, row, column;
};
/**
 * out[i] = sum over j of g[i][j] (x[i] - y[j]) / d[i][j], or of g[i][j] times the signs of the differences. Four groups
 * of threads see a quarter of the others each, and their sums are added in order.
 */
template <int P, class T>
WICK_FN void row_distances_backward(const T* x, const T* y, const T* d, const T* g, T* out, i64 batch, i64 n, i64 m,
                                    i64 k, Pairs far, Pairs flow) {
  __shared__ T weight[BACK_OTHERS][BACK_ROWS + 1], other[BACK_OTHERS][BACK_DEEP];
  __shared__ u32 unlike[2];
  const i64 down = (n + BACK_ROWS - 1) / BACK_ROWS, deep = (k + BACK_DEEP - 1) / BACK_DEEP;
  const int group = threadIdx.x / 64, ty = threadIdx.x % 64 / 16, tx = threadIdx.x % 16;
  const bool by_rows = far.row < far.column || flow.row < flow.column;
  ROLLED
  for (i64 tile = blockIdx.x; tile < batch * down * deep; tile += gridDim.x) {
    const i64 b = tile / (down * deep), i0 = tile / deep % down * BACK_ROWS, k0 = tile % deep * BACK_DEEP;
    const T *from = x + b * n * k, *others = y + b * m * k, *lengths = d + b * far.batch, *flows = g + b * flow.batch;
    T own[4][4], sums[4][4] = {};
#pragma unroll
    for (int i = 0; i < 4; i++)
#pragma unroll
      for (int e = 0; e < 4; e++) {
        const i64 row = i0 + ty * 4 + i, column = k0 + tx + 16 * e;
        own[i][e] = row < n && column < k ? from[row * k + column] : (T)0;
      }
    __syncthreads();
    if (threadIdx.x < 2) unlike[threadIdx.x] = 0;
    u32 turn = 0;
    ROLLED
    for (i64 j0 = 0; j0 < m; j0 += BACK_OTHERS, turn ^= 1) {
      __syncthreads();
      if (threadIdx.x == 0) unlike[turn ^ 1] = 0;
      ROLLED
      for (int e = threadIdx.x; e < BACK_OTHERS * BACK_ROWS; e += 256) {
        const int i = by_rows ? e % BACK_ROWS : e / BACK_OTHERS, j = by_rows ? e / BACK_ROWS : e % BACK_OTHERS;
        T w = 0;
        if (i0 + i < n && j0 + j < m) {
          const T part = flows[(i0 + i) * flow.row + (j0 + j) * flow.column];
          if constexpr (P == 1) w = part;
          else {
            const T length = lengths[(i0 + i) * far.row + (j0 + j) * far.column], quotient = part / length;
            if (length != 0) {
              if (fits(part, quotient)) w = quotient;
              else unlike[turn] = 1;
            }
          }
        }
        weight[j][i] = w;
      }
      ROLLED
      for (int e = threadIdx.x; e < BACK_OTHERS * BACK_DEEP; e += 256) {
        const int j = e / BACK_DEEP, c = e % BACK_DEEP;
        other[j][c] = j0 + j < m && k0 + c < k ? others[(j0 + j) * k + k0 + c] : (T)0;
      }
      __syncthreads();
      UNROLL(1, 4)
      for (int j = group * (BACK_OTHERS / BACK_GROUPS); j < (group + 1) * (BACK_OTHERS / BACK_GROUPS); j++) {
        T w[4], c[4];
#pragma unroll
        for (int e = 0; e < 4; e++) w[e] = weight[j][ty * 4 + e], c[e] = other[j][tx + 16 * e];
#pragma unroll
        for (int i = 0; i < 4; i++)
#pragma unroll
          for (int e = 0; e < 4; e++) {
            const T apart = own[i][e] - c[e];
            if constexpr (P == 1) sums[i][e] += apart > 0 ? w[i] : apart < 0 ? -w[i] : (T)0;
            else sums[i][e] = fmag(apart, w[i], sums[i][e]);
          }
      }
      // Where the quotient would leave the range of T, the difference is divided first.
      if (unlike[turn]) ROLLED
      for (i64 j = j0 + group * (BACK_OTHERS / BACK_GROUPS);
           j < j0 + (group + 1) * (BACK_OTHERS / BACK_GROUPS) && j < m; j++)
        for (int i = 0; i < 4; i++) {
          const i64 row = i0 + ty * 4 + i;
          if (row >= n) continue;
          const T length = lengths[row * far.row + j * far.column], part = flows[row * flow.row + j * flow.column];
          if (length == 0 || fits(part, part / length)) continue;
#pragma unroll
          for (int e = 0; e < 4; e++)
            sums[i][e] = fmag((own[i][e] - other[j - j0][tx + 16 * e]) / length, part, sums[i][e]);
        }
    }
    // The sums of the other groups, in the room of the others' rows.
    __syncthreads();
    T* const joined = &other[0][0];
    if (group > 0)
#pragma unroll
      for (int i = 0; i < 4; i++)
#pragma unroll
        for (int e = 0; e < 4; e++)
          joined[((group - 1) * BACK_ROWS + ty * 4 + i) * BACK_DEEP + tx + 16 * e] = sums[i][e];
    __syncthreads();
    if (group > 0) continue;
#pragma unroll
    for (int i = 0; i < 4; i++)
#pragma unroll
      for (int e = 0; e < 4; e++) {
        const i64 row = i0 + ty * 4 + i, column = k0 + tx + 16 * e;
        if (row >= n || column >= k) continue;
        T sum = sums[i][e];
#pragma unroll
        for (int part = 0; part < BACK_GROUPS - 1; part++)
          sum += joined[(part * BACK_ROWS + ty * 4 + i) * BACK_DEEP + tx + 16 * e];
        out[(b * n + row) * k + column] = sum;
      }
  }
}

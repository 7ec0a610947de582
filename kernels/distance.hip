// Distances between rows, all with all: a block makes tiles of 64 x 64 of them, a thread 4 x 4 of a tile. And what
// flows back from them to the rows of x: a block makes 32 rows (16 of doubles) by 64 columns of that, of a part of all
// others where they are shared among several blocks; the sums of parts are added in order. Launches:
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

constexpr int BACK_DEEP = 64, BACK_GROUPS = 4;
/** Rows that a block makes, and others that it looks at in a turn. */
template <class T> constexpr int back_rows = 128 / sizeof(T);
template <class T> constexpr int back_others = 256 / sizeof(T);
/** The block that bounds registers: on NVIDIA two blocks are to have room side by side. */
#ifdef WICK_NVIDIA
constexpr int BACK_BOUND = 512;
#else
constexpr int BACK_BOUND = 256;
#endif

/** Whether a gradient divided by a length, which a difference is multiplied by then, stays within the range of T. */
template <class T> WICK_FN bool fits(T gradient, T quotient) {
  const T most = sizeof(T) == 4 ? (T)1e30 : (T)1e280, size = absg(quotient);
  return (size < most && size > 1 / most) || gradient == 0;
}
/** Where a matrix for each batch lies. */
struct Pairs {
  i64 batch, row, column;
};
constexpr int BACK_EACH_DEEP = 4;

/**
 * out[part][i] = sum over the part's j of g[i][j] (x[i] - y[j]) / d[i][j], or of g[i][j] times the signs of the
 * differences. Four groups of threads see a quarter of the others each, and their sums are added in order; what a block
 * reads of the next others is on its way while it adds up these.
 */
template <int P, class T>
WICK_FN void row_distances_backward(const T* x, const T* y, const T* d, const T* g, T* out, i64 batch, i64 n, i64 m,
                                    i64 k, i64 parts, Pairs far, Pairs flow) {
  constexpr int AT_ONCE = back_others<T>, ROWS = back_rows<T>, EACH_ROWS = ROWS / 4, WEIGHTS = AT_ONCE * ROWS / 256,
                OTHERS = AT_ONCE * BACK_DEEP / 256;
  __shared__ __attribute__((aligned(16))) T weight[AT_ONCE][ROWS + 4], other[AT_ONCE][BACK_DEEP];
  __shared__ u32 unlike[2];
  const i64 down = (n + ROWS - 1) / ROWS, deep = (k + BACK_DEEP - 1) / BACK_DEEP;
  const i64 tiles = (m + AT_ONCE - 1) / AT_ONCE, share = (tiles + parts - 1) / parts * AT_ONCE;
  const int group = threadIdx.x / 64, ty = threadIdx.x % 64 / 16, tx = threadIdx.x % 16;
  const bool by_rows = far.row < far.column || flow.row < flow.column;
  ROLLED
  for (i64 tile = blockIdx.x; tile < batch * parts * down * deep; tile += gridDim.x) {
    const i64 b = tile / (parts * down * deep), part = tile / (down * deep) % parts;
    const i64 i0 = tile / deep % down * ROWS, k0 = tile % deep * BACK_DEEP;
    const i64 begin = part * share, end = begin + share < m ? begin + share : m;
    const T *from = x + b * n * k, *others = y + b * m * k, *lengths = d + b * far.batch, *flows = g + b * flow.batch;
    T own[EACH_ROWS][BACK_EACH_DEEP], sums[EACH_ROWS][BACK_EACH_DEEP] = {};
#pragma unroll
    for (int i = 0; i < EACH_ROWS; i++)
#pragma unroll
      for (int e = 0; e < BACK_EACH_DEEP; e++) {
        const i64 row = i0 + ty * EACH_ROWS + i, column = k0 + tx * BACK_EACH_DEEP + e;
        own[i][e] = row < n && column < k ? from[row * k + column] : (T)0;
      }
    // What this thread brings of each tile of others: weights of a row or a column, and a column of their rows.
    const int i_first = by_rows ? threadIdx.x % ROWS : threadIdx.x / AT_ONCE, i_step = by_rows ? 0 : 256 / AT_ONCE;
    const int j_first = by_rows ? threadIdx.x / ROWS : threadIdx.x % AT_ONCE, j_step = by_rows ? 256 / ROWS : 0;
    const int row_first = threadIdx.x / BACK_DEEP, column_of = threadIdx.x % BACK_DEEP;
    T length[WEIGHTS], gradient[WEIGHTS], next[OTHERS];
    const auto fetch = [&](i64 j0) {
      const int rows_left = (int)(n - i0 < ROWS ? n - i0 : ROWS), left = (int)(end - j0 < AT_ONCE ? end - j0 : AT_ONCE);
      const T* flow_at = flows + (i0 + i_first) * flow.row + (j0 + j_first) * flow.column;
      const T* far_at = lengths + (i0 + i_first) * far.row + (j0 + j_first) * far.column;
      const i64 flow_step = i_step * flow.row + j_step * flow.column, far_step = i_step * far.row + j_step * far.column;
#pragma unroll
      for (int u = 0; u < WEIGHTS; u++) {
        const bool there = i_first + u * i_step < rows_left && j_first + u * j_step < left;
        gradient[u] = there ? *flow_at : (T)0;
        if constexpr (P == 2) length[u] = there ? *far_at : (T)0;
        flow_at += flow_step;
        far_at += far_step;
      }
      const T* other_at = others + (j0 + row_first) * k + k0 + column_of;
      const bool column_there = k0 + column_of < k;
#pragma unroll
      for (int u = 0; u < OTHERS; u++) {
        next[u] = column_there && row_first + u * (256 / BACK_DEEP) < left ? *other_at : (T)0;
        other_at += 256 / BACK_DEEP * k;
      }
    };
    __syncthreads();
    if (threadIdx.x < 2) unlike[threadIdx.x] = 0;
    if (begin < end) fetch(begin);
    u32 turn = 0;
    ROLLED
    for (i64 j0 = begin; j0 < end; j0 += AT_ONCE, turn ^= 1) {
      __syncthreads();
      if (threadIdx.x == 0) unlike[turn ^ 1] = 0;
#pragma unroll
      for (int u = 0; u < WEIGHTS; u++) {
        T w = gradient[u];
        if constexpr (P == 2) {
          const T quotient = w / length[u];
          if (length[u] == 0) w = 0;
          else if (fits(w, quotient)) w = quotient;
          else unlike[turn] = 1, w = 0;
        }
        weight[j_first + u * j_step][i_first + u * i_step] = w;
      }
#pragma unroll
      for (int u = 0; u < OTHERS; u++) { other[row_first + u * (256 / BACK_DEEP)][column_of] = next[u]; }
      __syncthreads();
      if (j0 + AT_ONCE < end) fetch(j0 + AT_ONCE);
      UNROLL(1, 4)
      for (int j = group * (AT_ONCE / BACK_GROUPS); j < (group + 1) * (AT_ONCE / BACK_GROUPS); j++) {
        T w[EACH_ROWS], c[BACK_EACH_DEEP];
        constexpr int V = pack_size<T>;
#pragma unroll
        for (int e = 0; e < EACH_ROWS; e += V) {
          const Pack<T> pack = load_pack(&weight[j][ty * EACH_ROWS + e]);
#pragma unroll
          for (int v = 0; v < V; v++) w[e + v] = pack.v[v];
        }
#pragma unroll
        for (int e = 0; e < BACK_EACH_DEEP; e += V) {
          const Pack<T> pack = load_pack(&other[j][tx * BACK_EACH_DEEP + e]);
#pragma unroll
          for (int v = 0; v < V; v++) c[e + v] = pack.v[v];
        }
#pragma unroll
        for (int i = 0; i < EACH_ROWS; i++)
#pragma unroll
          for (int e = 0; e < BACK_EACH_DEEP; e++) {
            const T apart = own[i][e] - c[e];
            if constexpr (P == 1) sums[i][e] += apart > 0 ? w[i] : apart < 0 ? -w[i] : (T)0;
            else sums[i][e] = fmag(apart, w[i], sums[i][e]);
          }
      }
      // Where the quotient would leave the range of T, the difference is divided first.
      if (unlike[turn]) ROLLED
      for (i64 j = j0 + group * (AT_ONCE / BACK_GROUPS); j < j0 + (group + 1) * (AT_ONCE / BACK_GROUPS) && j < end; j++)
#pragma unroll
        for (int i = 0; i < EACH_ROWS; i++) {
          const i64 row = i0 + ty * EACH_ROWS + i;
          if (row >= n) continue;
          const T far_off = lengths[row * far.row + j * far.column], part_of = flows[row * flow.row + j * flow.column];
          if (far_off == 0 || fits(part_of, part_of / far_off)) continue;
#pragma unroll
          for (int e = 0; e < BACK_EACH_DEEP; e++)
            sums[i][e] = fmag((own[i][e] - other[j - j0][tx * BACK_EACH_DEEP + e]) / far_off, part_of, sums[i][e]);
        }
    }
    // The sums of the other groups one after another, in the room of the others' rows.
    T* const joined = &other[0][0];
    ROLLED
    for (int from_group = 1; from_group < BACK_GROUPS; from_group++) {
      __syncthreads();
      if (group == from_group)
#pragma unroll
        for (int i = 0; i < EACH_ROWS; i++)
#pragma unroll
          for (int e = 0; e < BACK_EACH_DEEP; e++)
            joined[(ty * EACH_ROWS + i) * BACK_DEEP + tx * BACK_EACH_DEEP + e] = sums[i][e];
      __syncthreads();
      if (group == 0)
#pragma unroll
        for (int i = 0; i < EACH_ROWS; i++)
#pragma unroll
          for (int e = 0; e < BACK_EACH_DEEP; e++)
            sums[i][e] += joined[(ty * EACH_ROWS + i) * BACK_DEEP + tx * BACK_EACH_DEEP + e];
    }
    if (group > 0) continue;
    T* const to = out + part * batch * n * k;
#pragma unroll
    for (int i = 0; i < EACH_ROWS; i++)
#pragma unroll
      for (int e = 0; e < BACK_EACH_DEEP; e++) {
        const i64 row = i0 + ty * EACH_ROWS + i, column = k0 + tx * BACK_EACH_DEEP + e;
        if (row < n && column < k) to[(b * n + row) * k + column] = sums[i][e];
      }
  }
}
/** The sums of parts, in order. */
template <class T> WICK_FN void sum_parts(const T* parts, T* out, u64 numel, u32 count) {
  GRID_STRIDE(i, numel) {
    T sum = parts[i];
    ROLLED
    for (u32 p = 1; p < count; p++) sum += parts[p * numel + i];
    out[i] = sum;
  }
}

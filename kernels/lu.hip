// LU factors with the largest element of each column as its pivot; what is made of them: solutions, inverses,
// determinants. S is stored, T computed in. Kernels and launches: src/backends/gpu/lu.ts.
//
// Rows do not move: each has a place, which pivots exchange, and what comes out is written by place.
//   lu_small    a matrix in the registers of Q x Q threads, R x R elements each, and C x R of the right-hand side; 256
//               threads a block. x: solutions, `columns` of them (of the unit matrix where b is null), Q * C a block of
//               grid y; lu, swaps, order: the factors; value, size: the determinant, or its sign and ln of its size
//   lu_begin    [A | B] column after column, places and the state of each matrix
//   lu_panel    `width` columns from `first`, a block a matrix, R rows a thread; pivots' rows go to `done`
//               in their final places, with what stands in these columns of them
//   lu_update   the columns behind a panel: pivots' rows by the triangle of the panel, into `done`; the other rows less
//               the product, in tiles of 64 x 64: grid (matrices, columns, rows)
//   lu_finish   L and U of rows in their places, and the determinant
//   row_order   the row that becomes each row by exchanges with the rows `swaps`, counted from 1; a wave a matrix
#include "factor.h"

WICK_FN double sign_of(double v) { return v < 0 ? -1 : v > 0 ? 1 : v; }

constexpr int LU_BLOCK = 256;

template <class S, class T, int Q, int R, int C>
WICK_FN void lu_small(const S* a, i64 a_step, i64 a_row, i64 a_column, const S* b, i64 b_step, i64 b_row, i64 b_column,
                      S* x, S* lu, S* swaps, S* order, S* value, S* size, u64* trouble, i32 m, i32 n, i32 columns,
                      i64 batch) {
  constexpr int TOGETHER = LU_BLOCK / (Q * Q), N = Q * R, W = N < 32 ? N : 32, EACH = N / W, CC = C ? C : 1;
  __shared__ T column[2][TOGETHER][N], row[2][TOGETHER][N + Q * CC], pivots[TOGETHER][N];
  const int group = threadIdx.x / (Q * Q), t = threadIdx.x % (Q * Q), ty = t / Q, tx = t % Q;
  const i64 matrix = (i64)blockIdx.x * TOGETHER + group;
  const bool live = matrix < batch;
  const int from = blockIdx.y * Q * C, steps = m < n ? m : n;
  T v[R][R], w[R][CC];
  int mine[R], seen[EACH];
  const Given<S> A = {a, a_step, a_row, a_column}, B = {b, b_step, b_row, b_column};
#pragma unroll
  for (int r = 0; r < R; r++) {
    const int i = ty + Q * r;
    mine[r] = i < m ? i : -1;
#pragma unroll
    for (int c = 0; c < R; c++) {
      const int j = tx + Q * c;
      v[r][c] = live && i < m && j < n ? (T)A.at(matrix, i, j) : (T)0;
    }
    if constexpr (C > 0)
#pragma unroll
      for (int c = 0; c < C; c++) {
        const int j = from + tx + Q * c;
        const bool in = live && i < m && j < columns;
        w[r][c] = !in ? (T)0 : b ? (T)B.at(matrix, i, j) : (T)(i == j);
      }
  }
#pragma unroll
  for (int e = 0; e < EACH; e++) seen[e] = t % W + e * W < m ? t % W + e * W : -1;
  double product = 1, sum = 0;
  int wrong = 0;
#pragma unroll
  for (int c = 0; c < R; c++) ROLLED
  for (int s = 0; s < Q; s++) {
    const int k = c * Q + s, side = k & 1;
    if (k >= steps) break;
    if (tx == s)
#pragma unroll
      for (int r = 0; r < R; r++) column[side][group][ty + Q * r] = v[r][c];
    __syncthreads();
    Candidate best = {0, 0, 0};
#pragma unroll
    for (int e = 0; e < EACH; e++)
      if (seen[e] >= k) best = better(best, candidate(column[side][group][t % W + e * W], seen[e]));
    const int chosen = place_of(best_of<T, W>(best));
#pragma unroll
    for (int e = 0; e < EACH; e++) seen[e] = seen[e] == chosen ? k : seen[e] == k ? chosen : seen[e];
#pragma unroll
    for (int r = 0; r < R; r++) {
      mine[r] = mine[r] == chosen ? k : mine[r] == k ? chosen : mine[r];
      if (mine[r] != k) continue;
#pragma unroll
      for (int d = c; d < R; d++) row[0][group][tx + Q * d] = v[r][d];
      if constexpr (C > 0)
#pragma unroll
        for (int d = 0; d < C; d++) row[0][group][N + tx + Q * d] = w[r][d];
    }
    __syncthreads();
    const T pivot = row[0][group][k], share = reciprocal(pivot);
    if (t == 0) {
      pivots[group][k] = pivot;
      const double factor = size ? sign_of(pivot) : (double)pivot;
      product *= chosen == k ? factor : -factor;
      if (size) sum += logg((double)absg(pivot));
      if (pivot == 0 && wrong == 0) wrong = k + 1;
      if (swaps && live) swaps[matrix * steps + k] = (S)(chosen + 1);
    }
#pragma unroll
    for (int r = 0; r < R; r++) {
      if (mine[r] <= k) continue;
      const T l = column[side][group][ty + Q * r] * share;
      v[r][c] = tx > s ? fmag(-l, row[0][group][tx + Q * c], v[r][c]) : tx == s ? l : v[r][c];
#pragma unroll
      for (int d = c + 1; d < R; d++) v[r][d] = fmag(-l, row[0][group][tx + Q * d], v[r][d]);
      if constexpr (C > 0)
#pragma unroll
        for (int d = 0; d < C; d++) w[r][d] = fmag(-l, row[0][group][N + tx + Q * d], w[r][d]);
    }
  }
  if (t == 0 && live) {
    if (x && wrong) tell(trouble, matrix, n, wrong);
    if (value) value[matrix] = (S)product;
    if (size) size[matrix] = (S)sum;
  }
  if (lu && live)
#pragma unroll
    for (int r = 0; r < R; r++) {
      const int i = ty + Q * r;
      if (i >= m) continue;
      if (tx == 0) order[matrix * m + mine[r]] = (S)i;
#pragma unroll
      for (int c = 0; c < R; c++)
        if (tx + Q * c < n) lu[(matrix * m + mine[r]) * n + tx + Q * c] = (S)v[r][c];
    }
  if constexpr (C > 0) {
    __syncthreads();
#pragma unroll
    for (int c = R - 1; c >= 0; c--) ROLLED
    for (int s = Q - 1; s >= 0; s--) {
      const int k = c * Q + s, side = k & 1;
      if (k >= n) continue;
#pragma unroll
      for (int r = 0; r < R; r++) {
        if (tx == s) column[side][group][ty + Q * r] = v[r][c];
        if (mine[r] != k) continue;
#pragma unroll
        for (int d = 0; d < C; d++) row[side][group][N + tx + Q * d] = w[r][d] = w[r][d] / pivots[group][k];
      }
      __syncthreads();
#pragma unroll
      for (int r = 0; r < R; r++)
        if (mine[r] < k)
#pragma unroll
          for (int d = 0; d < C; d++)
            w[r][d] = fmag(-column[side][group][ty + Q * r], row[side][group][N + tx + Q * d], w[r][d]);
    }
    if (live)
#pragma unroll
      for (int r = 0; r < R; r++)
#pragma unroll
        for (int d = 0; d < C; d++) {
          const int j = from + tx + Q * d;
          if (mine[r] >= 0 && j < columns) x[(matrix * n + mine[r]) * columns + j] = (S)w[r][d];
        }
  }
}

/** What is known of a matrix on the way: the determinant so far, its sign, and ln of its size. */
struct LuState {
  double product, sign, sum;
};

/** Columns of [A | B] one after another, and so the elements of a row `m` apart. */
template <class S>
WICK_FN void lu_begin(const S* a, i64 a_step, i64 a_row, i64 a_column, const S* b, i64 b_step, i64 b_row, i64 b_column,
                      S* work, i32* place, LuState* state, i32 m, i32 n, i32 columns, i64 batch) {
  const i64 each = (i64)m * (n + columns);
  const Given<S> A = {a, a_step, a_row, a_column}, B = {b, b_step, b_row, b_column};
  GRID_STRIDE(at, batch * each) {
    const i64 matrix = (i64)at / each, j = ((i64)at - matrix * each) / m, i = (i64)at % m;
    work[at] = j < n ? A.at(matrix, i, j) : b ? B.at(matrix, i, j - n) : (S)(i == j - n);
    if (j == 0) place[matrix * m + i] = (i32)i;
    if (j == 0 && i == 0) state[matrix] = {1, 1, 0};
  }
}

template <class S, int R, int P>
WICK_FN void lu_panel(S* work, S* done, i32* place, i32* order, LuState* state, S* swaps, u64* trouble, i32 m, i32 n,
                      i32 columns, i32 first, i32 width) {
  constexpr int PARTS = LU_BLOCK / 32;
  __shared__ __attribute__((aligned(16))) S row[P];
  __shared__ Candidate bests[PARTS];
  __shared__ S pivots[P];
  __shared__ double logarithms[P];
  const i64 matrix = blockIdx.x, pitch = n + columns;
  const int steps = m < n ? m : n, lane = threadIdx.x % 32;
  work += matrix * m * pitch, done += matrix * m * pitch, place += matrix * m, order += matrix * m;
  S v[R][P];
  int mine[R];
  bool active[R];
#pragma unroll
  for (int r = 0; r < R; r++) {
    const int i = threadIdx.x + LU_BLOCK * r;
    mine[r] = i < m ? place[i] : -1;
    active[r] = mine[r] >= first;
#pragma unroll
    for (int q = 0; q < P; q++) v[r][q] = active[r] && q < width ? work[(i64)(first + q) * m + i] : (S)0;
  }
  double product = 1, sign = 1;
  int wrong = 0;
#pragma unroll
  for (int q = 0; q < P; q++) {
    const int k = first + q;
    if (q >= width) break;
    Candidate best = {0, 0, 0};
#pragma unroll
    for (int r = 0; r < R; r++)
      if (mine[r] >= k) best = better(best, candidate(v[r][q], mine[r]));
    best = best_of<S, 32>(best);
    if (lane == 0) bests[threadIdx.x / 32] = best;
    __syncthreads();
    best = {0, 0, 0};
    if (lane < PARTS) best = bests[lane];
    const int chosen = place_of(best_of<S, 32>(best));
#pragma unroll
    for (int r = 0; r < R; r++) {
      mine[r] = mine[r] == chosen ? k : mine[r] == k ? chosen : mine[r];
      if (mine[r] == k)
#pragma unroll
        for (int j = q; j < P; j++) row[j] = v[r][j];
    }
    __syncthreads();
    const S pivot = row[q], share = reciprocal(pivot);
#pragma unroll
    for (int r = 0; r < R; r++)
      if (mine[r] > k) {
        const S l = v[r][q] = v[r][q] * share;
#pragma unroll
        for (int j = q + 1; j < P; j++) v[r][j] = fmag(-l, row[j], v[r][j]);
      }
    if (threadIdx.x == 0) {
      pivots[q] = pivot;
      product *= chosen == k ? pivot : -pivot;
      sign *= chosen == k ? sign_of(pivot) : -sign_of(pivot);
      if (pivot == 0 && wrong == 0) wrong = k + 1;
      if (swaps) swaps[matrix * steps + k] = (S)(chosen + 1);
    }
  }
  __syncthreads();
  if (threadIdx.x < P) logarithms[threadIdx.x] = (int)threadIdx.x < width ? logg((double)absg(pivots[threadIdx.x])) : 0;
  __syncthreads();
  if (threadIdx.x == 0) {
    LuState s = state[matrix];
    s.product *= product, s.sign *= sign;
    for (int q = 0; q < width; q++) s.sum += logarithms[q];
    state[matrix] = s;
    if (trouble && wrong) tell(trouble, matrix, n, wrong);
  }
#pragma unroll
  for (int r = 0; r < R; r++) {
    if (!active[r]) continue;
    const int i = threadIdx.x + LU_BLOCK * r;
    place[i] = mine[r];
    const bool ready = mine[r] < first + width;
    if (ready) order[mine[r]] = i;
#pragma unroll
    for (int q = 0; q < P; q++)
      if (q < width) {
        if (ready) done[mine[r] * pitch + first + q] = v[r][q];
        else work[(i64)(first + q) * m + i] = v[r][q];
      }
  }
}

template <class S, int P>
WICK_FN void lu_update(S* work, S* done, const i32* place, const i32* order, i32 m, i32 n, i32 columns, i32 first,
                       i32 width) {
  constexpr int TILE = 64;
  __shared__ S right[P][TILE + 1], left[P][TILE + 1], triangle[P][P + 1];
  __shared__ i32 places[TILE];
  const i64 matrix = blockIdx.x, pitch = n + columns;
  work += matrix * m * pitch, done += matrix * m * pitch, place += matrix * m, order += matrix * m;
  const int t = threadIdx.x, at = first + width + blockIdx.y * TILE, top = blockIdx.z * TILE;
  for (int e = t; e < P * P; e += LU_BLOCK) {
    const int q = e / P, j = e % P;
    triangle[q][j] = q < width && j < q ? done[(first + q) * pitch + first + j] : (S)0;
  }
  for (int e = t; e < P * TILE; e += LU_BLOCK) {
    const int q = e % P, j = at + e / P;
    right[q][e / P] = q < width && j < pitch ? work[(i64)j * m + order[first + q]] : (S)0;
  }
  for (int e = t; e < P * TILE; e += LU_BLOCK) {
    const int i = top + e % TILE, q = e / TILE;
    left[q][e % TILE] = i < m && q < width ? work[(i64)(first + q) * m + i] : (S)0;
  }
  if (t < TILE) places[t] = top + t < m ? place[top + t] : -1;
  __syncthreads();
  // Four threads a column, which tell one another what they have found.
  const int column = t / 4, part = t % 4;
  S y[P / 4];
#pragma unroll
  for (int e = 0; e < P / 4; e++) y[e] = right[e * 4 + part][column];
#pragma unroll
  for (int q = 0; q < P; q++) {
    const S found = shfl(y[q / 4], (u32)(q % 4), 4u);
#pragma unroll
    for (int e = q / 4; e < P / 4; e++)
      if (e * 4 + part > q) y[e] = fmag(-triangle[e * 4 + part][q], found, y[e]);
  }
#pragma unroll
  for (int e = 0; e < P / 4; e++) right[e * 4 + part][column] = y[e];
  __syncthreads();
  if (blockIdx.z == 0)
    for (int e = t; e < P * TILE; e += LU_BLOCK) {
      const int q = e / TILE, j = at + e % TILE;
      if (q < width && j < pitch) done[(first + q) * pitch + j] = right[q][e % TILE];
    }
  const int ty = t % 16, tx = t / 16;
  S sum[4][4] = {};
#pragma unroll 4
  for (int q = 0; q < P; q++) {
    S l[4], u[4];
#pragma unroll
    for (int e = 0; e < 4; e++) l[e] = left[q][ty + 16 * e], u[e] = right[q][tx + 16 * e];
#pragma unroll
    for (int r = 0; r < 4; r++)
#pragma unroll
      for (int c = 0; c < 4; c++) sum[r][c] = fmag(l[r], u[c], sum[r][c]);
  }
#pragma unroll
  for (int r = 0; r < 4; r++) {
    if (places[ty + 16 * r] < first + width) continue;
#pragma unroll
    for (int c = 0; c < 4; c++)
      if (at + tx + 16 * c < pitch) work[(i64)(at + tx + 16 * c) * m + top + ty + 16 * r] -= sum[r][c];
  }
}

template <class S>
WICK_FN void lu_finish(const S* work, const S* done, const i32* place, const LuState* state, S* lu, S* order, S* value,
                       S* size, i32 m, i32 n, i32 panel, i64 batch) {
  const i64 each = (i64)m * n, steps = m < n ? m : n;
  GRID_STRIDE(at, lu ? batch * each : batch) {
    if ((i64)at < batch) {
      const LuState s = state[at];
      if (value) value[at] = (S)(size ? s.sign : s.product);
      if (size) size[at] = (S)s.sum;
    }
    if (!lu) continue;
    const i64 matrix = (i64)at / each, i = ((i64)at - matrix * each) / n, j = (i64)at % n, to = place[matrix * m + i];
    // A row has its part of L where it stood until the panel of its own place.
    const bool before = to >= steps || j < to / panel * panel;
    const i64 there = (matrix * m + to) * n + j;
    lu[there] = before ? work[matrix * each + j * m + i] : done[there];
    if (j == 0) order[matrix * m + to] = (S)i;
  }
}

template <class S> WICK_FN void row_order(const S* swaps, i64 step, i64 each, S* order, u64* trouble, i32 n) {
  DYNAMIC_SHARED(i32, rows);
  const i64 matrix = blockIdx.x;
  for (int i = threadIdx.x; i < n; i += blockDim.x) rows[i] = i;
  __syncthreads();
  if (threadIdx.x == 0) {
    int wrong = 0;
    for (int i = 0; i < n && !wrong; i++) {
      const double row = (double)swaps[matrix * step + i * each];
      if (!(row >= i + 1 && row <= n)) wrong = i + 1;
      const int other = wrong ? i : (int)row - 1, kept = rows[i];
      rows[i] = rows[other], rows[other] = kept;
    }
    if (wrong) tell(trouble, matrix, n, wrong);
  }
  __syncthreads();
  for (int i = threadIdx.x; i < n; i += blockDim.x) order[matrix * n + i] = (S)rows[i];
}

// Cholesky factors and what triangles solve; S is stored, T computed in. Launches: src/backends/gpu/triangles.ts.
//
//   cholesky    step `step` of a factorization in tiles of Q * R rows, each in the registers of Q x Q threads: tiles
//               (i, j) from `step` on, less what the tiles of the step before make; those of column `step` become
//               results, each block with a factor of the corner of its own. grid (matrices, columns, rows); one tile is
//               one step, and where Q is small several matrices a block. `low`: results, for later steps. LONE: one
//               step
//   triangular  X of L X = B, for COLUMNS columns a block and all rows, 32 at a time: grid (matrices, columns). Upper
//               triangles are lower ones counted from the other end: strides may be negative. `unit`: ones on the
//               diagonal
#include "factor.h"

constexpr int TRIANGLE_BLOCK = 256;

template <class S, class T, int Q, int R, bool LONE>
WICK_FN void cholesky(const S* a, i64 a_step, i64 a_row, i64 a_column, T* work, T* low, S* out, u64* trouble, i32 n,
                      i32 step, i64 batch) {
  constexpr int TOGETHER = TRIANGLE_BLOCK / (Q * Q), N = Q * R, DEPTH = 16;
  __shared__ T corner[2][TOGETHER][N], below[2][TOGETHER][LONE ? 1 : N];
  const int group = threadIdx.x / (Q * Q), t = threadIdx.x % (Q * Q), ty = t / Q, tx = t % Q;
  const i64 matrix = (i64)blockIdx.x * TOGETHER + group;
  const bool live = matrix < batch;
  const int column = step + blockIdx.y, line = step + blockIdx.z;
  if (column > line) return;
  const bool ends = column == step;  // its columns become results
  const Given<S> A = {a, a_step, a_row, a_column};
  const i64 mine = matrix * n * n;
  const int top = line * N, left = column * N;
  T d[R][R], v[R][R];
#pragma unroll
  for (int r = 0; r < R; r++)
#pragma unroll
    for (int c = 0; c < R; c++) {
      const int i = top + ty + Q * r, j = left + tx + Q * c, k = left + ty + Q * r;
      const bool in = live && i < n && j < n, corners = live && k < n && j < n;
      if constexpr (!LONE) v[r][c] = !in ? (T)0 : step == 0 ? (T)A.at(matrix, i, j) : work[mine + (i64)i * n + j];
      d[r][c] = !corners ? (T)(k == j) : step == 0 ? (T)A.at(matrix, k, j) : work[mine + (i64)k * n + j];
    }
  if constexpr (!LONE)
    if (step > 0) {
      __shared__ T lines[N][DEPTH + 1], columns[N][DEPTH + 1];
      const int from = (step - 1) * N;
      ROLLED
      for (int k = 0; k < N; k += DEPTH) {
        __syncthreads();
        for (int e = threadIdx.x; e < N * DEPTH; e += TRIANGLE_BLOCK) {
          const int i = e / DEPTH, j = from + k + e % DEPTH;
          lines[i][e % DEPTH] = top + i < n ? low[mine + (i64)(top + i) * n + j] : (T)0;
          columns[i][e % DEPTH] = left + i < n ? low[mine + (i64)(left + i) * n + j] : (T)0;
        }
        __syncthreads();
#pragma unroll 4
        for (int q = 0; q < DEPTH; q++) {
          T x[R], y[R], z[R];
#pragma unroll
          for (int r = 0; r < R; r++)
            x[r] = lines[ty + Q * r][q], y[r] = columns[tx + Q * r][q], z[r] = columns[ty + Q * r][q];
#pragma unroll
          for (int r = 0; r < R; r++)
#pragma unroll
            for (int c = 0; c < R; c++) {
              v[r][c] = fmag(-x[r], y[c], v[r][c]);
              if (ends) d[r][c] = fmag(-z[r], y[c], d[r][c]);
            }
        }
      }
    }
  if (!LONE && !ends) {
#pragma unroll
    for (int r = 0; r < R; r++)
#pragma unroll
      for (int c = 0; c < R; c++) {
        const int i = top + ty + Q * r, j = left + tx + Q * c;
        if (i < n && j < n) work[mine + (i64)i * n + j] = v[r][c];
      }
    return;
  }
  int wrong = 0;
#pragma unroll
  for (int c = 0; c < R; c++) ROLLED
  for (int s = 0; s < Q; s++) {
    const int j = c * Q + s, side = j & 1;
    if (left + j >= n) break;
    if (tx == s)
#pragma unroll
      for (int r = 0; r < R; r++) {
        corner[side][group][ty + Q * r] = d[r][c];
        if constexpr (!LONE) below[side][group][ty + Q * r] = v[r][c];
      }
    __syncthreads();
    const T square = corner[side][group][j], root = sqrtg(square), share = (T)1 / root;
    if (!(square > 0) && wrong == 0) wrong = left + j + 1;
    T x[R], y[R], z[R];
#pragma unroll
    for (int r = 0; r < R; r++) {
      x[r] = LONE ? (T)0 : below[side][group][ty + Q * r] * share;
      y[r] = corner[side][group][tx + Q * r] * share;
      z[r] = corner[side][group][ty + Q * r] * share;
    }
#pragma unroll
    for (int r = 0; r < R; r++) {
      if constexpr (!LONE) v[r][c] = tx > s ? fmag(-x[r], y[c], v[r][c]) : tx == s ? x[r] : v[r][c];
      d[r][c] = tx > s ? fmag(-z[r], y[c], d[r][c]) : tx < s ? d[r][c] : ty + Q * r == j ? root : z[r];
#pragma unroll
      for (int e = c + 1; e < R; e++) {
        if constexpr (!LONE) v[r][e] = fmag(-x[r], y[e], v[r][e]);
        d[r][e] = fmag(-z[r], y[e], d[r][e]);
      }
    }
  }
  if (t == 0 && live && wrong && line == column) tell(trouble, matrix, n, wrong);
  if (!live) return;
#pragma unroll
  for (int r = 0; r < R; r++)
#pragma unroll
    for (int c = 0; c < R; c++) {
      const i64 i = top + ty + Q * r, j = left + tx + Q * c;
      if (i >= n || j >= n) continue;
      T found = d[r][c];
      if constexpr (!LONE)
        if (line != column) found = v[r][c];
      if (i >= j) out[mine + i * n + j] = (S)found;
      if (i > j) out[mine + j * n + i] = 0;
      if (low && i >= j) low[mine + i * n + j] = found;
    }
}

template <class S>
WICK_FN void triangular(const S* a, i64 a_step, i64 a_row, i64 a_column, const S* b, i64 b_step, i64 b_row,
                        i64 b_column, S* x, i64 x_step, i64 x_row, u64* trouble, i32 n, i32 columns, u32 unit) {
  constexpr int COLUMNS = 8, D = 32, LINES = 128, HALF = COLUMNS / 2;
  DYNAMIC_SHARED(S, room);
  S(*corner)[D + 1] = (S(*)[D + 1]) room, (*lines)[D + 1] = corner + D;
  S* held = room + (D + LINES) * (D + 1);
  const i64 matrix = blockIdx.x;
  const int t = threadIdx.x, from = blockIdx.y * COLUMNS, lane = t % D, mine = t / D;
  const int here = columns - from < COLUMNS ? columns - from : COLUMNS;
  const bool along = a_column == 1 || a_column == -1;
  const Given<S> L = {a, a_step, a_row, a_column}, B = {b, b_step, b_row, b_column};
  ROLLED
  for (int e = t; e < n * COLUMNS; e += TRIANGLE_BLOCK)
    held[e] = e % COLUMNS < here ? B.at(matrix, e / COLUMNS, from + e % COLUMNS) : (S)0;
  int wrong = 0;
  ROLLED
  for (int top = 0; top < n; top += D) {
    const int count = n - top < D ? n - top : D;
    for (int e = t; e < D * D; e += TRIANGLE_BLOCK) {
      const int i = along ? e / D : e % D, j = along ? e % D : e / D;
      const bool in = i < count && j <= i && !(unit && i == j);
      corner[i][j] = in ? L.at(matrix, top + i, top + j) : (S)(i == j);
    }
    __syncthreads();
    // A column of the right-hand side to 32 lanes.
    const S diagonal = corner[lane][lane], share = reciprocal(diagonal);
    if (t < D && diagonal == 0 && wrong == 0) wrong = top + lane + 1;
    S value = lane < count ? held[(top + lane) * COLUMNS + mine] : (S)0;
#pragma unroll 8
    for (int q = 0; q < D; q++) {
      const S found = shfl(value * share, (u32)q, (u32)D);
      value = lane > q ? fmag(-corner[lane][q], found, value) : lane == q ? found : value;
    }
    if (lane < count) held[(top + lane) * COLUMNS + mine] = value;
    // The rows below, so many at a time, two threads a row.
    ROLLED
    for (int line = top + D; line < n; line += LINES) {
      const int some = n - line < LINES ? n - line : LINES;
#pragma unroll 8
      for (int e = t; e < LINES * D; e += TRIANGLE_BLOCK) {
        const int i = along ? e / D : e % LINES, j = along ? e % D : e / LINES;
        if (i < some) lines[i][j] = L.at(matrix, line + i, top + j);
      }
      __syncthreads();
      const int i = t % LINES, side = t / LINES * HALF;
      if (i < some) {
        S sum[HALF];
        S* const to = held + (line + i) * COLUMNS + side;
#pragma unroll
        for (int c = 0; c < HALF; c++) sum[c] = to[c];
#pragma unroll 8
        for (int q = 0; q < D; q++) {
          const S l = -lines[i][q];
#pragma unroll
          for (int c = 0; c < HALF; c++) sum[c] = fmag(l, held[(top + q) * COLUMNS + side + c], sum[c]);
        }
#pragma unroll
        for (int c = 0; c < HALF; c++) to[c] = sum[c];
      }
      __syncthreads();
    }
    __syncthreads();
  }
  if (wrong && blockIdx.y == 0) tell(trouble, matrix, n, wrong);
  ROLLED
  for (int e = t; e < n * COLUMNS; e += TRIANGLE_BLOCK)
    if (e % COLUMNS < here) x[matrix * x_step + (e / COLUMNS) * x_row + from + e % COLUMNS] = held[e];
}

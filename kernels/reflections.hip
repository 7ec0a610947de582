// Q and R of small matrices by Householder's reflections, in double precision. Launches: src/backends/gpu/spectra.ts.
//
//   qr_small    a matrix of m x n, m >= n, in the registers of Q x Q threads, R x R elements each, neighbours along a
//               column; 256 threads a block. q: m x n, r: n x n. Signs are LAPACK's
#include "factor.h"

constexpr int QR_BLOCK = 256;

template <int Q> WICK_FN double column_sum(double v) {
#pragma unroll
  for (int d = Q / 2; d > 0; d /= 2) v += shfl_xor(v, (u32)d, (u32)Q);
  return v;
}

template <class S, int Q, int R>
WICK_FN void qr_small(const S* a, i64 a_step, i64 a_row, i64 a_column, S* q, S* r, i32 m, i32 n, i64 batch) {
  constexpr int TOGETHER = QR_BLOCK / (Q * Q), N = Q * R;
  __shared__ double column[2][TOGETHER][N], taus[TOGETHER][N];
  const int group = threadIdx.x / (Q * Q), t = threadIdx.x % (Q * Q), ty = t % Q, tx = t / Q;
  const i64 matrix = (i64)blockIdx.x * TOGETHER + group;
  const bool live = matrix < batch;
  const Given<S> A = {a, a_step, a_row, a_column};
  double v[R][R];
#pragma unroll
  for (int e = 0; e < R; e++)
#pragma unroll
    for (int c = 0; c < R; c++) {
      const int i = ty + Q * e, j = tx + Q * c;
      v[e][c] = live && i < m && j < n ? A.at(matrix, i, j) : 0;
    }
#pragma unroll
  for (int c = 0; c < R; c++) ROLLED
  for (int s = 0; s < Q; s++) {
    const int k = c * Q + s;
    if (k >= n) break;
    double* const x = column[k & 1][group];
    if (tx == s)
#pragma unroll
      for (int e = 0; e < R; e++) x[ty + Q * e] = v[e][c];
    __syncthreads();
    // The length below the diagonal, on a way on which no square overflows or vanishes.
    double y[R], most = 0, sum = 0;
#pragma unroll
    for (int e = 0; e < R; e++) {
      y[e] = ty + Q * e > k ? x[ty + Q * e] : 0;
      most = absg(y[e]) > most || y[e] != y[e] ? absg(y[e]) : most;
    }
    double scale = 1;
    if constexpr (same<S, double>) {
#pragma unroll
      for (int d = Q / 2; d > 0; d /= 2) {
        const double other = shfl_xor(most, (u32)d, (u32)Q);
        most = other > most || other != other ? other : most;
      }
      scale = most == 0 || most - most != 0 ? 1 : most;
    }
#pragma unroll
    for (int e = 0; e < R; e++) sum = fmag(y[e] / scale, y[e] / scale, sum);
    const double below = column_sum<Q>(sum), alpha = x[k] / scale;
    const double length = sqrtg(fmag(alpha, alpha, below)),
                 beta = alpha > 0 || (alpha == 0 && !signbitg(alpha)) ? -length : length;
    const double tau = below == 0 ? 0 : (beta - alpha) / beta, share = below == 0 ? 0 : 1 / ((alpha - beta) * scale);
    if (t == 0) taus[group][k] = tau;
#pragma unroll
    for (int e = 0; e < R; e++) y[e] = ty + Q * e == k ? 1 : y[e] * share;
#pragma unroll
    for (int d = c; d < R; d++) {
      double along = 0;
#pragma unroll
      for (int e = 0; e < R; e++) along = fmag(y[e], v[e][d], along);
      along = tau * column_sum<Q>(along);
      const bool behind = d > c || tx > s;
#pragma unroll
      for (int e = 0; e < R; e++)
        if (behind && tau != 0) v[e][d] = fmag(-along, y[e], v[e][d]);
    }
    if (tx == s && tau != 0)
#pragma unroll
      for (int e = 0; e < R; e++) {
        const int i = ty + Q * e;
        v[e][c] = i == k ? beta * scale : i > k ? y[e] : v[e][c];
      }
  }
  double w[R][R];
#pragma unroll
  for (int e = 0; e < R; e++)
#pragma unroll
    for (int c = 0; c < R; c++) {
      const int i = ty + Q * e, j = tx + Q * c;
      if (live && i < n && j < n) r[(matrix * n + i) * n + j] = i <= j ? (S)v[e][c] : (S)0;
      w[e][c] = i == j ? 1 : 0;
    }
  __syncthreads();
#pragma unroll
  for (int c = R - 1; c >= 0; c--) ROLLED
  for (int s = Q - 1; s >= 0; s--) {
    const int k = c * Q + s;
    if (k >= n) continue;
    double* const x = column[k & 1][group];
    if (tx == s)
#pragma unroll
      for (int e = 0; e < R; e++) x[ty + Q * e] = v[e][c];
    __syncthreads();
    const double tau = taus[group][k];
    double y[R];
#pragma unroll
    for (int e = 0; e < R; e++) y[e] = ty + Q * e == k ? 1 : ty + Q * e > k && ty + Q * e < m ? x[ty + Q * e] : 0;
#pragma unroll
    for (int d = c; d < R; d++) {
      double along = 0;
#pragma unroll
      for (int e = 0; e < R; e++) along = fmag(y[e], w[e][d], along);
      along = tau * column_sum<Q>(along);
#pragma unroll
      for (int e = 0; e < R; e++)
        if (tau != 0) w[e][d] = fmag(-along, y[e], w[e][d]);
    }
  }
  if (!live) return;
#pragma unroll
  for (int e = 0; e < R; e++)
#pragma unroll
    for (int c = 0; c < R; c++) {
      const int i = ty + Q * e, j = tx + Q * c;
      if (i < m && j < n) q[(matrix * m + i) * n + j] = (S)w[e][c];
    }
}

// Products of tiles for the plain attention kernels: 256 threads as 16 x 16, each with a square of rows and columns 16 apart.
#pragma once
#include "attention.h"
#include "settle.h"

// Rows and columns a thread has of a tile; doubles take half as many, to stay within 48 KiB.
template <class T> constexpr int tile_side = sizeof(compute_t<T>) == 8 ? 2 : 4;

// acc[r][c] += row ty+16r of `rows` times row tx+16c of `columns`, staged 32 numbers of all rows at a time. Null rows are zeros.
template <class T, int R, class A, int B, class F, class G>
WICK_FN void tile_dot(A (&acc)[R][R], A (&left)[B][33], A (&right)[B][33], int dim, F rows, G columns) {
  int tx = threadIdx.x % 16, ty = threadIdx.x / 16;
  for (int d0 = 0; d0 < dim; d0 += 32) {
    __syncthreads();
    for (int at = threadIdx.x; at < B * 32; at += 256) {
      int r = at / 32, d = d0 + at % 32;
      const T *x = rows(r), *y = columns(r);
      left[r][at % 32] = x && d < dim ? to_compute(x[d]) : A(0);
      right[r][at % 32] = y && d < dim ? to_compute(y[d]) : A(0);
    }
    __syncthreads();
    UNROLL(2, 4)
    for (int d = 0; d < 32; d++) {
      A x[R], y[R];
#pragma unroll
      for (int r = 0; r < R; r++) x[r] = left[ty + 16 * r][d], y[r] = right[tx + 16 * r][d];
#pragma unroll
      for (int r = 0; r < R; r++) {
#pragma unroll
        for (int c = 0; c < R; c++) acc[r][c] = fmag(x[r], y[c], acc[r][c]);
      }
    }
  }
}

// out[r][e] += sum over j of weights(ty+16r, j) times number tx+16e of row j; Transposed reads weights[j][row].
template <class T, bool Transposed, int R, int E, class A, int B, class F>
WICK_FN void tile_sum(A (&out)[R][E], A (&weights)[B][B + 1], A (&stage)[B][33], int dim, F rows) {
  int tx = threadIdx.x % 16, ty = threadIdx.x / 16;
#pragma unroll
  for (int e0 = 0; e0 < E; e0 += 2) {
    __syncthreads();
    for (int at = threadIdx.x; at < B * 32; at += 256) {
      int r = at / 32, d = 16 * e0 + at % 32;
      const T* x = rows(r);
      stage[r][at % 32] = x && d < dim ? to_compute(x[d]) : A(0);
    }
    __syncthreads();
    UNROLL(4, 4)
    for (int j = 0; j < B; j++) {
      A v0 = stage[j][tx], v1 = stage[j][tx + 16];
#pragma unroll
      for (int r = 0; r < R; r++) {
        A w = Transposed ? weights[j][ty + 16 * r] : weights[ty + 16 * r][j];
        out[r][e0] = fmag(w, v0, out[r][e0]);
        out[r][e0 + 1] = fmag(w, v1, out[r][e0 + 1]);
      }
    }
  }
}

// Takes a sink into a finished row: it adds to the sum only.
template <class A, int E> WICK_FN void add_sink(float sink, A& top, A& sum, A (&out)[E]) {
  A best = (A)sink > top ? (A)sink : top, keep = top == best ? A(1) : expg(top - best);
  sum = sum * keep + expg((A)sink - best);
  top = best;
  for (int e = 0; e < E; e++) out[e] *= keep;
}

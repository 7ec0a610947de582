// Gradients of layer and RMS norms; norm.hip says how they are launched.
#pragma once
#include "norm.h"

template <bool CENTER, class S, int V, int P, bool BLOCK>
WICK_FN void norm_grad_rows(const S* src, const S* grad, const S* weight, S* dx, Stats<compute_t<S>>* kept, i64 rows,
                            i64 cols, u32 lanes, double eps) {
  typedef compute_t<S> A;
  __shared__ A slots[2][WAVE_SLOTS];
  Walk<BLOCK> walk(lanes);
  EACH_ROW(walk, row, live, rows) {
    const i64 n = live ? cols : 0, at = (live ? row : 0) * cols;
    A along = 0, mean = 0, w[V];  // means of gw * xhat and of gw
    if constexpr (P == 0) {
      const Stats<A> stats = row_stats<CENTER, V>(src + at, walk, n, cols, eps, slots);
      if (kept && live && walk.lane == 0) kept[row] = stats;
      const i64 first = (i64)walk.lane * V, step = (i64)walk.lanes * V;
      A xhat[V], gw[V];
      const auto both = [&](i64 c) {
        load_v<V>(src + at + c, xhat);
        load_v<V>(grad + at + c, gw);
        load_or<V>(weight, c, (A)1, w);
#pragma unroll
        for (int i = 0; i < V; i++) gw[i] *= w[i], xhat[i] = (xhat[i] - stats.mean) * stats.rstd;
      };
      ROLLED
      for (i64 c = first; c < n; c += step) {
        both(c);
#pragma unroll
        for (int i = 0; i < V; i++) {
          along += gw[i] * xhat[i];
          if constexpr (CENTER) mean += gw[i];
        }
      }
      along = walk.join(along, slots, Add()) / (A)cols;
      if constexpr (CENTER) mean = walk.join(mean, slots, Add()) / (A)cols;
      ROLLED
      for (i64 c = first; c < n; c += step) {
        both(c);
#pragma unroll
        for (int i = 0; i < V; i++) gw[i] = stats.rstd * (gw[i] - mean - xhat[i] * along);
        store_v<V>(dx + at + c, gw);
      }
    } else {
      // Packed, and small floats' weights too: registers decide how many rows are under way. What is wider is read
      // again instead.
      Share<S, V, P, 0> x(n, walk.lane, walk.lanes), g(n, walk.lane, walk.lanes);
      constexpr bool HOLD = is_small_float<S> && V > 1;
      x.open(src + at, (A)0);
      g.open(grad + at, (A)0);
      const Stats<A> stats = share_stats<CENTER>(x, walk, cols, eps, slots);
      if (kept && live && walk.lane == 0) kept[row] = stats;
      decltype(load_some<V>(src)) held[HOLD ? P : 1];
      if constexpr (HOLD) open_factors<V>(held, weight, (A)1, x);
      A xhat[V], gw[V];
      const auto both = [&](int p) {
        if constexpr (HOLD) unpack(held[p], w);
        else load_or<V>(weight, x.has(p) ? x.column(p) : 0, (A)1, w);
        const A *u = x.at(p), *d = g.at(p);
#pragma unroll
        for (int i = 0; i < V; i++) xhat[i] = (CENTER ? u[i] - stats.mean : u[i]) * stats.rstd, gw[i] = d[i] * w[i];
      };
#pragma unroll
      for (int p = 0; p < P; p++) {
        both(p);
#pragma unroll
        for (int i = 0; i < V; i++) {
          along += gw[i] * xhat[i];
          if constexpr (CENTER) mean += gw[i];
        }
      }
      along = walk.join(along, slots, Add()) / (A)cols;
      if constexpr (CENTER) mean = walk.join(mean, slots, Add()) / (A)cols;
#pragma unroll
      for (int p = 0; p < P; p++) {
        both(p);
#pragma unroll
        for (int i = 0; i < V; i++) gw[i] = stats.rstd * (gw[i] - mean - xhat[i] * along);
        if (x.has(p)) store_v<V>(dx + at + x.column(p), gw);
      }
    }
  }
}

/** A chunk of `size` rows: sums of dy * xhat and of dy down 32 neighbouring columns. Either target may be null. */
template <class S>
WICK_FN void norm_grad_weights(const S* src, const S* grad, const Stats<compute_t<S>>* stats, compute_t<S>* dw,
                               compute_t<S>* db, i64 rows, i64 cols, i64 size) {
  typedef compute_t<S> A;
  __shared__ A slots[2][256];
  const i64 c = (i64)blockIdx.x * 32 + threadIdx.x;
  const i64 from = (i64)blockIdx.y * size, to = from + size < rows ? from + size : rows;
  const u32 rank = thread_rank();
  A w = 0, b = 0;
  if (c < cols)
    for (i64 r = from + threadIdx.y; r < to; r += 8) {
      const A g = to_compute(grad[r * cols + c]);
      const Stats<A> s = stats[r];
      w += g * ((to_compute(src[r * cols + c]) - s.mean) * s.rstd);
      b += g;
    }
  slots[0][rank] = w;
  slots[1][rank] = b;
  for (u32 half_rows = 4; half_rows; half_rows >>= 1) {
    __syncthreads();
    if (threadIdx.y < half_rows) {
      slots[0][rank] += slots[0][rank + half_rows * 32];
      slots[1][rank] += slots[1][rank + half_rows * 32];
    }
  }
  if (threadIdx.y == 0 && c < cols) {
    if (dw) dw[(i64)blockIdx.y * cols + c] = slots[0][rank];
    if (db) db[(i64)blockIdx.y * cols + c] = slots[1][rank];
  }
}
/** The same with 16 bytes of columns a thread: block (32, 8). */
template <class S>
WICK_FN void norm_grad_weight_packs(const S* src, const S* grad, const Stats<compute_t<S>>* stats, compute_t<S>* dw,
                                    compute_t<S>* db, i64 rows, i64 cols, i64 size) {
  typedef compute_t<S> A;
  constexpr int V = pack_size<S>;
  __shared__ A slots[V][256];
  const i64 c = ((i64)blockIdx.x * 32 + threadIdx.x) * V;
  const i64 from = (i64)blockIdx.y * size, to = from + size < rows ? from + size : rows;
  const u32 rank = thread_rank();
  A sums[2][V], x[V], g[V];
#pragma unroll
  for (int i = 0; i < V; i++) sums[0][i] = sums[1][i] = 0;
  if (c < cols)
    for (i64 r = from + threadIdx.y; r < to; r += 8) {
      load_v<V>(src + r * cols + c, x);
      load_v<V>(grad + r * cols + c, g);
      const Stats<A> s = stats[r];
#pragma unroll
      for (int i = 0; i < V; i++) {
        sums[0][i] += g[i] * ((x[i] - s.mean) * s.rstd);
        sums[1][i] += g[i];
      }
    }
#pragma unroll
  for (int which = 0; which < 2; which++) {
    A* into = which ? db : dw;
    __syncthreads();
#pragma unroll
    for (int i = 0; i < V; i++) slots[i][rank] = sums[which][i];
    for (u32 half_rows = 4; half_rows; half_rows >>= 1) {
      __syncthreads();
      if (threadIdx.y < half_rows)
#pragma unroll
        for (int i = 0; i < V; i++) slots[i][rank] += slots[i][rank + half_rows * 32];
    }
    if (threadIdx.y == 0 && c < cols && into)
#pragma unroll
      for (int i = 0; i < V; i++) into[(i64)blockIdx.y * cols + c + i] = slots[i][rank];
  }
}
/** Sums over the whole block with one barrier: calls in a row must not be given the same slots. */
template <int N> WICK_FN void block_sums(float (&v)[N], float (*slots)[WAVE_SLOTS]) {
#pragma unroll
  for (int k = 0; k < N; k++) {
    for (u32 m = WICK_WAVE / 2; m; m >>= 1) v[k] += shfl_xor(v[k], m, WICK_WAVE);
    if (lane_id() == 0) slots[k][wave_id()] = v[k];
  }
  __syncthreads();
  const u32 waves = blockDim.x / WICK_WAVE;
#pragma unroll
  for (int k = 0; k < N; k++) {
    v[k] = slots[k][lane_id() % waves];
    for (u32 m = waves / 2; m; m >>= 1) v[k] += shfl_xor(v[k], m, waves);
  }
}
/**
 * All gradients of the rows that a block goes through, P vectors a thread; with AHEAD the next row is on its way while
 * one is worked on, which pays where blocks are small enough for the registers.
 */
template <bool CENTER, class S, int P, bool AHEAD>
WICK_FN void norm_grads(const S* src, const S* grad, const S* weight, const S* plus, S* dx, float* dw, float* db,
                        i64 rows, i64 cols, double eps) {
  constexpr int V = pack_size<S>, SUMS = CENTER ? 3 : 2;
  __shared__ float slots[4][WAVE_SLOTS];
  float w[P][V], weights[P][V], biases[CENTER ? P : 1][V];
  const i64 first = (i64)threadIdx.x * V, step = (i64)blockDim.x * V;
#pragma unroll
  for (int p = 0; p < P; p++) {
    const i64 c = first + p * step;
    load_v<V>(weight + (c < cols ? c : 0), w[p]);
#pragma unroll
    for (int i = 0; i < V; i++) {
      weights[p][i] = 0;
      if constexpr (CENTER) biases[p][i] = 0;
    }
  }
  Pack<S> held[AHEAD ? 3 : 1][AHEAD ? P : 1];
  const auto fetch = [&](i64 row) {
#pragma unroll
    for (int p = 0; p < P; p++) {
      const i64 c = first + p * step, at = row * cols + c;
      if (c >= cols || row >= rows) continue;
      held[0][p] = load_pack(src + at);
      held[1][p] = load_pack(grad + at);
      if (plus) held[2][p] = load_pack(plus + at);
    }
  };
  if constexpr (AHEAD) fetch(blockIdx.x);
  u32 turn = 0;
  for (i64 row = blockIdx.x; row < rows; row += gridDim.x, turn ^= 2) {
    float x[P][V], g[P][V], more[P][V], mean = 0, sums[SUMS];
#pragma unroll
    for (int p = 0; p < P; p++) {
      const i64 c = first + p * step, at = row * cols + c;
#pragma unroll
      for (int i = 0; i < V; i++) x[p][i] = g[p][i] = more[p][i] = 0;
      if (c >= cols) continue;
      if constexpr (AHEAD) {
        unpack(held[0][p], x[p]);
        unpack(held[1][p], g[p]);
        if (plus) unpack(held[2][p], more[p]);
      } else {
        load_v<V>(src + at, x[p]);
        load_v<V>(grad + at, g[p]);
        if (plus) load_v<V>(plus + at, more[p]);
      }
    }
    if constexpr (AHEAD) fetch(row + gridDim.x);
    if constexpr (CENTER) {
#pragma unroll
      for (int p = 0; p < P; p++)
#pragma unroll
        for (int i = 0; i < V; i++) mean += x[p][i];
      mean = block_sum(mean, slots[3]) / (float)cols;
    }
#pragma unroll
    for (int k = 0; k < SUMS; k++) sums[k] = 0;
#pragma unroll
    for (int p = 0; p < P; p++)
#pragma unroll
      for (int i = 0; i < V; i++) {
        if (CENTER && first + p * step < cols) x[p][i] -= mean;
        const float gw = g[p][i] * w[p][i];
        sums[0] = fmag(x[p][i], x[p][i], sums[0]);
        sums[1] = fmag(gw, x[p][i], sums[1]);
        if constexpr (CENTER) sums[2] += gw;
      }
    block_sums(sums, CENTER ? slots : slots + turn);  // a layer norm's mean keeps rows apart
    const float rstd = rsqrtg(sums[0] / (float)cols + (float)eps), along = sums[1] * rstd / (float)cols;
    const float middle = CENTER ? sums[SUMS - 1] / (float)cols : 0.0f;
#pragma unroll
    for (int p = 0; p < P; p++) {
      const i64 c = first + p * step;
      if (c >= cols) continue;
#pragma unroll
      for (int i = 0; i < V; i++) {
        const float hat = x[p][i] * rstd;
        weights[p][i] = fmag(g[p][i], hat, weights[p][i]);
        if constexpr (CENTER) biases[p][i] += g[p][i];
        more[p][i] += rstd * (g[p][i] * w[p][i] - middle - hat * along);
      }
      store_v<V>(dx + row * cols + c, more[p]);
    }
  }
#pragma unroll
  for (int p = 0; p < P; p++) {
    const i64 c = first + p * step, at = (i64)blockIdx.x * cols + c;
    if (c >= cols) continue;
#pragma unroll
    for (int i = 0; i < V; i++) {
      dw[at + i] = weights[p][i];
      if constexpr (CENTER)
        if (db) db[at + i] = biases[p][i];
    }
  }
}
/** Sums of chunks: block (32, 32) has 32 columns. */
template <class S> WICK_FN void norm_merge(const compute_t<S>* part, S* dst, i64 chunks, i64 cols) {
  typedef compute_t<S> A;
  __shared__ A slots[32][33];
  const i64 c = (i64)blockIdx.x * 32 + threadIdx.x, mine = (i64)blockIdx.x * 32 + threadIdx.y;
  A sum = 0;
  if (c < cols)
    for (i64 k = threadIdx.y; k < chunks; k += 32) sum += part[k * cols + c];
  slots[threadIdx.y][threadIdx.x] = sum;
  __syncthreads();
  sum = slots[threadIdx.x][threadIdx.y];
  for (u32 m = 16; m; m >>= 1) sum += shfl_xor(sum, m, 32);
  if (threadIdx.x == 0 && mine < cols) dst[mine] = from_compute<S>(sum);
}

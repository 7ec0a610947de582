// Layer norm and RMS norm over contiguous rows, forward and backward, each row read once where it fits registers.
//
// Kernels and launches (src/backends/gpu/norm.ts): [rows, cols], `lanes` threads a row, block 256 (or lanes when more);
// CENTER is the layer norm.
//   norm_rows           y = (x - mean) * rstd * w + b; w and b may be null, and RMS norms have no b; V and P as in
//                       softmax.hip
//   norm_grad_rows      dx; leaves (mean, rstd) of each row in stats unless it is null
//   norm_short          16-bit norms of rows of at most 2 vectors a lane, 4 to 32 lanes, two rows a group at a time
//   norm_stream         the same for long rows of which there are many: a block a row, as many blocks as the device
//                       holds, the weights in
//                       registers, the next rows on their way (stream.h)
//   norm_grad_weights   dw and db partial sums [chunks, cols] from stats: block (32, 8), grid (cols / 32, chunks)
//   norm_grads          all of that in one pass over rows that a block holds, as many blocks as the device holds: dx, to
//                       which `plus` is added unless it is null, and partial sums [blocks, cols]
//   norm_merge          partial sums to dw or db, 32 columns a block
// Variances are of the differences from the mean (two passes over registers); f16 and bf16 are computed in float.
#include "stream.h"

template <class A> struct Stats { A mean, rstd; };

/**
 * Mean and reciprocal deviation of a row of which every lane has a share; deviations take the place of a share that is
 * unpacked.
 */
template <bool CENTER, class X, class W, class A>
WICK_FN Stats<A> share_stats(X& x, W& walk, i64 cols, double eps, A (&slots)[2][WAVE_SLOTS]) {
  A mean = 0, square = 0;
  if constexpr (CENTER) {
#pragma unroll
    for (int p = 0; p < X::VECTORS; p++) {
      const A* v = x.at(p);
#pragma unroll
      for (int i = 0; i < X::WIDTH; i++) mean += v[i];
    }
    mean = walk.join(mean, slots, Add()) / (A)cols;
  }
#pragma unroll
  for (int p = 0; p < X::VECTORS; p++) {
    A* v = x.at(p);
    const A middle = CENTER && x.has(p) ? mean : (A)0;
#pragma unroll
    for (int i = 0; i < X::WIDTH; i++) {
      if constexpr (CENTER) v[i] -= middle;
      square = fmag(v[i], v[i], square);
    }
  }
  Stats<A> stats = {mean, rsqrtg(walk.join(square, slots, Add()) / (A)cols + (A)eps)};
  return stats;
}
/** The same of a row that is read again at each use. */
template <bool CENTER, int V, class S, class W, class A>
WICK_FN Stats<A> row_stats(const S* row, W& walk, i64 n, i64 cols, double eps, A (&slots)[2][WAVE_SLOTS]) {
  const i64 first = (i64)walk.lane * V, step = (i64)walk.lanes * V;
  A mean = 0, square = 0, v[V];
  if constexpr (CENTER) {
    ROLLED
    for (i64 c = first; c < n; c += step) {
      load_v<V>(row + c, v);
#pragma unroll
      for (int i = 0; i < V; i++) mean += v[i];
    }
    mean = walk.join(mean, slots, Add()) / (A)cols;
  }
  ROLLED
  for (i64 c = first; c < n; c += step) {
    load_v<V>(row + c, v);
#pragma unroll
    for (int i = 0; i < V; i++) square = fmag(v[i] - mean, v[i] - mean, square);
  }
  Stats<A> stats = {mean, rsqrtg(walk.join(square, slots, Add()) / (A)cols + (A)eps)};
  return stats;
}

/**
 * V weights or biases, `otherwise` where there are none: asked anew each time, for compilers would make a loop for
 * every answer.
 */
template <int V, class S, class A> WICK_FN void load_or(const S* from, i64 c, A otherwise, A (&v)[V]) {
#ifdef WICK_NVIDIA
  asm volatile("" : "+l"(from));
#endif
  if (from) load_v<V>(from + c, v);
  else
#pragma unroll
    for (int i = 0; i < V; i++) v[i] = otherwise;
}
/** The weights or biases of a share as they are stored, all on their way at once. */
template <int V, int P, class S, class X>
WICK_FN void open_factors(decltype(load_some<V>((const S*)nullptr)) (&held)[P], const S* from, compute_t<S> otherwise,
                          const X& x) {
  if (from) {
#pragma unroll
    for (int p = 0; p < P; p++) held[p] = load_some<V>(from + (x.has(p) ? x.column(p) : 0));
  } else {
    compute_t<S> v[V];
    x.fill(v, otherwise);
    store_v<V>((S*)&held[0], v);
#pragma unroll
    for (int p = 1; p < P; p++) held[p] = held[0];
  }
}

template <bool CENTER, class S, int V, int P, bool BLOCK>
WICK_FN void norm_rows(const S* src, S* dst, const S* weight, const S* bias, i64 rows, i64 cols, u32 lanes,
                       double eps) {
  typedef compute_t<S> A;
  __shared__ A slots[2][WAVE_SLOTS];
  Walk<BLOCK> walk(lanes);
  EACH_ROW(walk, row, live, rows) {
    const i64 n = live ? cols : 0, at = (live ? row : 0) * cols;
    A scale[V], shift[V];
    if constexpr (P == 0) {
      const Stats<A> stats = row_stats<CENTER, V>(src + at, walk, n, cols, eps, slots);
      ROLLED
      for (i64 c = (i64)walk.lane * V; c < n; c += (i64)walk.lanes * V) {
        A v[V];
        load_v<V>(src + at + c, v);
        load_or<V>(weight, c, (A)1, scale);
        if constexpr (CENTER) load_or<V>(bias, c, -(A)0, shift);  // leaves the sign of a zero alone
#pragma unroll
        for (int i = 0; i < V; i++) {
          const A y = (v[i] - stats.mean) * stats.rstd;
          v[i] = CENTER ? fmag(y, scale[i], shift[i]) : y * scale[i];
        }
        store_v<V>(dst + at + c, v);
      }
    } else {
      Share<S, V, P> x(n, walk.lane, walk.lanes);
      x.open(src + at, (A)0);
      const Stats<A> stats = share_stats<CENTER>(x, walk, cols, eps, slots);
      const auto put = [&](const A* v, u32 c) {
        A y[V];
#pragma unroll
        for (int i = 0; i < V; i++) {
          y[i] = (x.WIDE || !CENTER ? v[i] : v[i] - stats.mean) * stats.rstd;
          y[i] = CENTER ? fmag(y[i], scale[i], shift[i]) : y[i] * scale[i];
        }
        store_v<V>(dst + at + c, y);
      };
      if constexpr (BLOCK) {
        // One vector after the other from the same registers: unrolled, this would be most of the code.
        ROLLED
        for (int p = 0; p < P; p++, x.next()) {
          const u32 c = x.column(p);
          if (c >= x.n) break;
          load_or<V>(weight, c, (A)1, scale);
          if constexpr (CENTER) load_or<V>(bias, c, -(A)0, shift);  // leaves the sign of a zero alone
          put(x.at(0), c);
        }
      } else {
        // A wave's rows are short: waiting for weights one by one would be a third of their time.
        decltype(load_some<V>(src)) w[P], b[P];
        open_factors<V>(w, weight, (A)1, x);
        if constexpr (CENTER) open_factors<V>(b, bias, -(A)0, x);
#pragma unroll
        for (int p = 0; p < P; p++) {
          unpack(w[p], scale);
          if constexpr (CENTER) unpack(b[p], shift);
          if (x.has(p)) put(x.at(p), x.column(p));
        }
      }
    }
  }
}
/** P vectors of weights or biases in registers, `otherwise` where there are none: no choice is left to the rows. */
template <int P, class S>
WICK_FN void hold(Pack<S> (&held)[P], const S* from, float otherwise, i64 cols, u32 lane, u32 lanes) {
  constexpr int V = pack_size<S>;
#pragma unroll
  for (int p = 0; p < P; p++)
#pragma unroll
    for (int i = 0; i < V; i++) held[p].v[i] = from_compute<S>((compute_t<S>)otherwise);
  if (from) each_vector<V, P>(cols, lane, lanes, [&](int p, i64 c) { held[p] = load_pack(from + c); });
}
/** Deviations from the mean in place of one lane's share of a row, and the sum of their squares; `sum` joins lanes. */
template <bool CENTER, int P, int V, class A, class F>
WICK_FN A deviate(A (&x)[P][V], i64 n, i64 cols, u32 lane, u32 lanes, F sum) {
  A mean = 0, square = 0;
  if constexpr (CENTER) {
    each_vector<V, P>(n, lane, lanes, [&](int p, i64) {
#pragma unroll
      for (int i = 0; i < V; i++) mean += x[p][i];
    });
    mean = sum(mean, 0) / (A)cols;
  }
  each_vector<V, P>(n, lane, lanes, [&](int p, i64) {
#pragma unroll
    for (int i = 0; i < V; i++) {
      if constexpr (CENTER) x[p][i] -= mean;
      square = fmag(x[p][i], x[p][i], square);
    }
  });
  return sum(square, 1);
}
/** One lane's share of a row of deviations, scaled; `b` counts only where CENTER says so. */
template <bool CENTER, int P, class S, int V, class A>
WICK_FN void put_deviations(S* dst, A (&x)[P][V], A rstd, const Pack<S> (&w)[P], const Pack<S> (&b)[P], i64 n, u32 lane,
                            u32 lanes) {
  each_vector<V, P>(n, lane, lanes, [&](int p, i64 c) {
    A scale[V], shift[V];
    unpack(w[p], scale);
    if constexpr (CENTER) unpack(b[p], shift);
#pragma unroll
    for (int i = 0; i < V; i++) {
      const A y = x[p][i] * rstd;
      x[p][i] = CENTER ? fmag(y, scale[i], shift[i]) : y * scale[i];
    }
    store_v<V>(dst + c, x[p]);
  });
}

/**
 * Short rows: two at a time, so that one's loads run beside the other's arithmetic, with the weights read once for
 * both.
 */
template <bool CENTER, u32 lanes, class S>
WICK_FN void norm_short(const S* src, S* dst, const S* weight, const S* bias, i64 rows, i64 cols, double eps) {
  typedef compute_t<S> A;
  constexpr int V = pack_size<S>, P = 2, R = 2;
  const RowWalk walk(lanes);
  Pack<S> w[P], b[P];
  hold(w, weight, 1, cols, walk.lane, lanes);
  if constexpr (CENTER) hold(b, bias, 0, cols, walk.lane, lanes);
  const i64 first = (i64)blockIdx.x * walk.groups * R + walk.group;
  Pack<S> held[R][P];
#pragma unroll
  for (int r = 0; r < R; r++) {
    const i64 row = first + r * walk.groups;
    each_vector<V, P>(row < rows ? cols : 0, walk.lane, lanes,
                      [&](int p, i64 c) { held[r][p] = load_pack(src + row * cols + c); });
  }
#pragma unroll
  for (int r = 0; r < R; r++) {
    const i64 row = first + r * walk.groups, n = row < rows ? cols : 0;
    A x[P][V];
#pragma unroll
    for (int p = 0; p < P; p++) unpack(held[r][p], x[p]);
    const A square =
        deviate<CENTER>(x, n, cols, walk.lane, lanes, [](A v, int) { return group_sum(v, lanes, (A*)nullptr); });
    put_deviations<CENTER>(dst + row * cols, x, rsqrtg(square / (A)cols + (A)eps), w, b, n, walk.lane, lanes);
  }
}

/**
 * The same element by element: one block a multiprocessor waits for nothing but its own arithmetic, and this way it is
 * scheduled best.
 */
template <bool CENTER, int P, class S, int V, class A>
WICK_FN void stream_deviations(S* dst, A (&x)[P][V], A rstd, const Pack<S> (&w)[P], const Pack<S> (&b)[P], i64 n,
                               u32 lane, u32 lanes) {
  each_vector<V, P>(n, lane, lanes, [&](int p, i64 c) {
#pragma unroll
    for (int i = 0; i < V; i++) {
      const A y = x[p][i] * rstd, weight = to_compute(w[p].v[i]);
      x[p][i] = CENTER ? fmag(y, weight, to_compute(b[p].v[i])) : y * weight;
    }
    Pack<S> pack;
#pragma unroll
    for (int v = 0; v < V; v++) pack.v[v] = from_compute<S>(x[p][v]);
    store_pack(dst + c, pack);
  });
}
template <bool CENTER, class S>
WICK_FN void norm_stream(const S* src, S* dst, const S* weight, const S* bias, i64 rows, i64 cols, double eps) {
  typedef compute_t<S> A;
  constexpr int V = pack_size<S>, P = stream_vectors<S>;
  __shared__ A slots[4][WAVE_SLOTS];
  DYNAMIC_SHARED(word4, ring);
  const u32 lane = threadIdx.x, lanes = blockDim.x;
  Pack<S> w[P], b[P];
  hold(w, weight, 1, cols, lane, lanes);
  if constexpr (CENTER) hold(b, bias, 0, cols, lane, lanes);
  RowStream<S> stream(src, rows, cols, ring);
  int turn = 0;  // rows use slots by turns, so that a barrier a sum is enough
  for (i64 row = blockIdx.x; row < rows; row += gridDim.x, turn ^= 2) {
    A x[P][V];
    stream.take(x);
    const A square =
        deviate<CENTER>(x, cols, cols, lane, lanes, [&](A v, int which) { return block_sum(v, slots[turn + which]); });
    stream_deviations<CENTER>(dst + row * cols, x, rsqrtg(square / (A)cols + (A)eps), w, b, cols, lane, lanes);
  }
}

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

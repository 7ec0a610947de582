// Layer norm and RMS norm over contiguous rows, forward and backward, each row read once where it fits registers.
//
// Launch (src/kernels/launch.ts, normLaunch, normGradLaunch): [rows, cols], `lanes` threads a row, block 256 (or lanes when more).
//   layernorm_rows_T_vVpP, rmsnorm_rows_T_vVpP             y = (x - mean) * rstd * w + b; w and b may be null
//   layernorm_grad_rows_T_vVpP, rmsnorm_grad_rows_T_vVpP   dx; leaves (mean, rstd) of each row in stats unless it is null
//     V and P as in softmax.hip
//   layernorm_short_T                                      16-bit layer norms of rows of at most 2 vectors a lane, 4 to 32 lanes, two rows a group at a time
//   layernorm_stream_T, rmsnorm_stream_T                   the same for long rows of which there are many: a block a row, as many blocks as the device
//                                                          holds, the weights in registers, the next rows on their way (stream.h); RMS norms without a bias
//   norm_grad_weights_T                                    dw and db partial sums [chunks, cols] from stats: block (32, 8), grid (cols / 32, chunks)
//   norm_merge_T                                           partial sums to dw or db, a thread a column
// Variances are of the differences from the mean (two passes over registers); f16 and bf16 are computed in float.
#include "stream.h"

template <class A> struct Stats {
  A mean, rstd;
};

/** The sum over each group of lanes, which every thread gets, with one barrier at most: calls in a row must not be given the same slots. */
template <class A> WICK_FN A row_sum(A v, u32 lanes, A* slots) {
  return lanes > WICK_WAVE ? block_sum(v, slots) : group_sum(v, lanes, slots);
}

/** Mean and reciprocal deviation of a row; `sum` joins lanes. */
template <bool CENTER, int V, int P, class R, class A, class F> WICK_FN Stats<A> row_stats(const R& x, i64 n, i64 cols, u32 lane, u32 lanes, A eps, F sum) {
  A mean = 0, square = 0;
  if constexpr (CENTER) {
    each_vector<V, P>(n, lane, lanes, [&](int p, i64 c) {
      A v[V];
      x.get(p, c, v);
#pragma unroll
      for (int i = 0; i < V; i++) mean += v[i];
    });
    mean = sum(mean) / (A)cols;
  }
  each_vector<V, P>(n, lane, lanes, [&](int p, i64 c) {
    A v[V];
    x.get(p, c, v);
#pragma unroll
    for (int i = 0; i < V; i++) square = fmag(v[i] - mean, v[i] - mean, square);
  });
  Stats<A> stats = {mean, rsqrtg(sum(square) / (A)cols + eps)};
  return stats;
}

/** V weights or biases, `otherwise` where there are none: the choice stands outside the arithmetic, where every element would pay for it. */
template <int V, class S, class A> WICK_FN void load_or(const S* from, i64 c, A otherwise, A (&v)[V]) {
  if (from) load_v<V>(from + c, v);
  else
#pragma unroll
    for (int i = 0; i < V; i++) v[i] = otherwise;
}

/** Weights are there, and biases where the norm is centred. */
template <bool YES> struct Usual {
  static constexpr bool value = YES;
};

template <bool CENTER, class S, int V, int P>
WICK_FN void norm_rows(const S* src, S* dst, const S* weight, const S* bias, i64 rows, i64 cols, u32 lanes, double eps) {
  typedef compute_t<S> A;
  __shared__ A slots[2][WAVE_SLOTS];
  const RowWalk walk(lanes);
  int turn = 0;
  const auto sum = [&](A v) { return row_sum(v, lanes, slots[turn ^= 1]); };
  EACH_ROW(walk, row, live, rows) {
    const i64 n = live ? cols : 0, at = (live ? row : 0) * cols;
    Row<S, V, P> x;
    x.open(src + at, n, walk.lane, lanes);
    const Stats<A> stats = row_stats<CENTER, V, P>(x, n, cols, walk.lane, lanes, (A)eps, sum);
    const auto put = [&](auto usual) {
      each_vector<V, P>(n, walk.lane, lanes, [&](int p, i64 c) {
        A v[V], w[V], b[V];
        x.get(p, c, v);
        if constexpr (decltype(usual)::value) {
          load_v<V>(weight + c, w);
          if constexpr (CENTER) load_v<V>(bias + c, b);
        } else {
          load_or<V>(weight, c, (A)1, w);
          load_or<V>(bias, c, -(A)0, b);  // leaves the sign of a zero alone
        }
#pragma unroll
        for (int i = 0; i < V; i++) {
          const A y = (v[i] - stats.mean) * stats.rstd;
          v[i] = decltype(usual)::value && !CENTER ? y * w[i] : fmag(y, w[i], b[i]);
        }
        store_v<V>(dst + at + c, v);
      });
    };
    // Asked once: a choice between loads makes each wait for the one before.
    if (weight && (CENTER ? bias != nullptr : bias == nullptr)) put(Usual<true>());
    else put(Usual<false>());
  }
}
/** P vectors of weights or biases in registers, `otherwise` where there are none: no choice is left to the rows. */
template <int P, class S> WICK_FN void hold(Pack<S> (&held)[P], const S* from, float otherwise, i64 cols, u32 lane, u32 lanes) {
  constexpr int V = pack_size<S>;
#pragma unroll
  for (int p = 0; p < P; p++)
#pragma unroll
    for (int i = 0; i < V; i++) held[p].v[i] = from_compute<S>((compute_t<S>)otherwise);
  if (from) each_vector<V, P>(cols, lane, lanes, [&](int p, i64 c) { held[p] = load_pack(from + c); });
}
/** Deviations from the mean in place of one lane's share of a row, and the sum of their squares; `sum` joins lanes. */
template <bool CENTER, int P, int V, class A, class F> WICK_FN A deviate(A (&x)[P][V], i64 n, i64 cols, u32 lane, u32 lanes, F sum) {
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
WICK_FN void put_deviations(S* dst, A (&x)[P][V], A rstd, const Pack<S> (&w)[P], const Pack<S> (&b)[P], i64 n, u32 lane, u32 lanes) {
  each_vector<V, P>(n, lane, lanes, [&](int p, i64 c) {
#pragma unroll
    for (int i = 0; i < V; i++) {
      const A y = x[p][i] * rstd, weight = to_compute(w[p].v[i]);
      x[p][i] = CENTER ? fmag(y, weight, to_compute(b[p].v[i])) : y * weight;
    }
    store_v<V>(dst + c, x[p]);
  });
}

/** Short rows: two at a time, so that one's loads run beside the other's arithmetic, with the weights read once for both. */
template <u32 lanes, class S>
WICK_FN void norm_short(const S* src, S* dst, const S* weight, const S* bias, i64 rows, i64 cols, double eps) {
  typedef compute_t<S> A;
  constexpr int V = pack_size<S>, P = 2, R = 2;
  const RowWalk walk(lanes);
  Pack<S> w[P], b[P];
  hold(w, weight, 1, cols, walk.lane, lanes);
  hold(b, bias, 0, cols, walk.lane, lanes);
  const i64 first = (i64)blockIdx.x * walk.groups * R + walk.group;
  Pack<S> held[R][P];
#pragma unroll
  for (int r = 0; r < R; r++) {
    const i64 row = first + r * walk.groups;
    each_vector<V, P>(row < rows ? cols : 0, walk.lane, lanes, [&](int p, i64 c) { held[r][p] = load_pack(src + row * cols + c); });
  }
#pragma unroll
  for (int r = 0; r < R; r++) {
    const i64 row = first + r * walk.groups, n = row < rows ? cols : 0;
    A x[P][V];
#pragma unroll
    for (int p = 0; p < P; p++)
#pragma unroll
      for (int i = 0; i < V; i++) x[p][i] = to_compute(held[r][p].v[i]);
    const A square = deviate<true>(x, n, cols, walk.lane, lanes, [](A v, int) { return group_sum(v, lanes, (A*)nullptr); });
    put_deviations<true>(dst + row * cols, x, rsqrtg(square / (A)cols + (A)eps), w, b, n, walk.lane, lanes);
  }
}
#define NORM_SHORT(NAME, S)                                                                                                         \
  KERNEL(256) NAME(const S* src, S* dst, const S* weight, const S* bias, const i64 rows, const i64 cols, const u32 lanes,           \
                   const double eps) {                                                                                              \
    with_lanes(lanes, [&](auto l) { norm_short<decltype(l)::value>(src, dst, weight, bias, rows, cols, eps); });                    \
  }

#define NORM_ROWS(NAME, S, CENTER, V, P, THREADS)                                                                                        \
  KERNEL(THREADS) NAME(const S* src, S* dst, const S* weight, const S* bias, const i64 rows, const i64 cols, const u32 lanes,       \
                    const double eps) {                                                                                         \
    norm_rows<CENTER, S, V, P>(src, dst, weight, bias, rows, cols, lanes, eps);                                                 \
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
    const A square = deviate<CENTER>(x, cols, cols, lane, lanes, [&](A v, int which) { return block_sum(v, slots[turn + which]); });
    put_deviations<CENTER>(dst + row * cols, x, rsqrtg(square / (A)cols + (A)eps), w, b, cols, lane, lanes);
  }
}
#define NORM_STREAM(NAME, S, CENTER)                                                                                                \
  KERNEL(512) NAME(const S* src, S* dst, const S* weight, const S* bias, const i64 rows, const i64 cols, const double eps) {        \
    norm_stream<CENTER>(src, dst, weight, bias, rows, cols, eps);                                                                   \
  }

template <bool CENTER, class S, int V, int P>
WICK_FN void norm_grad_rows(const S* src, const S* grad, const S* weight, S* dx, Stats<compute_t<S>>* kept, i64 rows, i64 cols, u32 lanes,
                            double eps) {
  typedef compute_t<S> A;
  __shared__ A slots[2][WAVE_SLOTS];
  const RowWalk walk(lanes);
  int turn = 0;
  const auto sum = [&](A v) { return row_sum(v, lanes, slots[turn ^= 1]); };
  EACH_ROW(walk, row, live, rows) {
    const i64 n = live ? cols : 0, at = (live ? row : 0) * cols;
    Row<S, V, P> x, g;
    x.open(src + at, n, walk.lane, lanes);
    g.open(grad + at, n, walk.lane, lanes);
    const Stats<A> stats = row_stats<CENTER, V, P>(x, n, cols, walk.lane, lanes, (A)eps, sum);
    if (kept && live && walk.lane == 0) kept[row] = stats;
    A along = 0, mean = 0;  // means of gw * xhat and of gw
    const auto both = [&](int p, i64 c, A (&xhat)[V], A (&gw)[V]) {
      A w[V];
      x.get(p, c, xhat);
      g.get(p, c, gw);
      if (weight) {
        load_v<V>(weight + c, w);
#pragma unroll
        for (int i = 0; i < V; i++) gw[i] *= w[i];
      }
#pragma unroll
      for (int i = 0; i < V; i++) xhat[i] = (xhat[i] - stats.mean) * stats.rstd;
    };
    each_vector<V, P>(n, walk.lane, lanes, [&](int p, i64 c) {
      A xhat[V], gw[V];
      both(p, c, xhat, gw);
#pragma unroll
      for (int i = 0; i < V; i++) {
        along += gw[i] * xhat[i];
        if constexpr (CENTER) mean += gw[i];
      }
    });
    along = sum(along) / (A)cols;
    if constexpr (CENTER) mean = sum(mean) / (A)cols;
    each_vector<V, P>(n, walk.lane, lanes, [&](int p, i64 c) {
      A xhat[V], gw[V];
      both(p, c, xhat, gw);
#pragma unroll
      for (int i = 0; i < V; i++) gw[i] = stats.rstd * (gw[i] - mean - xhat[i] * along);
      store_v<V>(dx + at + c, gw);
    });
  }
}
#define NORM_GRAD_ROWS(NAME, S, CENTER, V, P, THREADS)                                                                                    \
  KERNEL(THREADS) NAME(const S* src, const S* grad, const S* weight, S* dx, Stats<compute_t<S>>* stats, const i64 rows, const i64 cols, \
                    const u32 lanes, const double eps) {                                                                         \
    norm_grad_rows<CENTER, S, V, P>(src, grad, weight, dx, stats, rows, cols, lanes, eps);                                       \
  }

/** A chunk of `size` rows: sums of dy * xhat and of dy down 32 neighbouring columns. Either target may be null. */
template <class S>
WICK_FN void norm_grad_weights(const S* src, const S* grad, const Stats<compute_t<S>>* stats, compute_t<S>* dw, compute_t<S>* db, i64 rows,
                               i64 cols, i64 size) {
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
#define NORM_GRAD_WEIGHTS(NAME, S)                                                                                                  \
  KERNEL(256) NAME(const S* src, const S* grad, const Stats<compute_t<S>>* stats, compute_t<S>* dw, compute_t<S>* db, const i64 rows, \
                   const i64 cols, const i64 size) {                                                                                \
    norm_grad_weights(src, grad, stats, dw, db, rows, cols, size);                                                                  \
  }
template <class S> WICK_FN void norm_merge(const compute_t<S>* part, S* dst, i64 chunks, i64 cols) {
  GRID_STRIDE(c, cols) {
    compute_t<S> sum = 0;
    for (i64 k = 0; k < chunks; k++) sum += part[k * cols + (i64)c];
    dst[c] = from_compute<S>(sum);
  }
}
#define NORM_MERGE(NAME, S) \
  KERNEL(1024) NAME(const compute_t<S>* part, S* dst, const i64 chunks, const i64 cols) { norm_merge(part, dst, chunks, cols); }

// ---- symbols ----

// Rows held in registers need more of them a thread, so their blocks are smaller.
#define EACH_WIDTH(M, NAME, S, ...)                    \
  M(NAME##_v1p0, S, __VA_ARGS__, 1, 0, 1024)           \
  M(NAME##_v1p4, S, __VA_ARGS__, 1, 4, 512)            \
  M(NAME##_vp0, S, __VA_ARGS__, pack_size<S>, 0, 1024) \
  M(NAME##_vp1, S, __VA_ARGS__, pack_size<S>, 1, 512)  \
  M(NAME##_vp4, S, __VA_ARGS__, pack_size<S>, 4, 512)  \
  M(NAME##_vp8, S, __VA_ARGS__, pack_size<S>, 8, 512)
#define ALL_NORMS(NAME, S)                                         \
  EACH_WIDTH(NORM_ROWS, layernorm_rows##NAME, S, true)             \
  EACH_WIDTH(NORM_ROWS, rmsnorm_rows##NAME, S, false)              \
  EACH_WIDTH(NORM_GRAD_ROWS, layernorm_grad_rows##NAME, S, true)   \
  EACH_WIDTH(NORM_GRAD_ROWS, rmsnorm_grad_rows##NAME, S, false)    \
  NORM_GRAD_WEIGHTS(norm_grad_weights##NAME, S)                    \
  NORM_MERGE(norm_merge##NAME, S)
FOR_REALS(ALL_NORMS, )
#define ALL_STREAMS(NAME, S)                       \
  NORM_STREAM(layernorm_stream##NAME, S, true)     \
  NORM_STREAM(rmsnorm_stream##NAME, S, false)
FOR_STREAMS(ALL_STREAMS)
NORM_SHORT(layernorm_short_f16, half)
NORM_SHORT(layernorm_short_bf16, bfloat)

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
#include "norm-gradients.h"
#include "norm.h"

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

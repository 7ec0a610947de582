// Softmax and log-softmax over contiguous rows, forward and backward, each row read once where it fits registers.
//
// Launch (src/kernels/launch.ts, softmaxLaunch): [rows, cols], `lanes` threads a row, block 256 (or lanes when more), grid-stride over rows.
//   softmax_rows_T_vVpP, log_softmax_rows_T_vVpP                  y from x
//   softmax_grad_rows_T_vVpP, log_softmax_grad_rows_T_vVpP        dx from y and dy
//     V: v = 16-byte accesses (cols a multiple of the pack, aligned pointers), v1 = any; P: vectors a thread holds (1, 4, 8), 0 = reads again
//   softmax_stream_f32, log_softmax_stream_f32                    long rows of which there are many: a block a row, the next rows on their way (stream.h)
//   softmax_part_T, softmax_apply_T and the same with log_        few long rows: grid (chunks, rows), block 512; scratch [rows, chunks, 2]
// f16 and bf16 are computed in float and rounded once.
#include "stream.h"

/** exp for results of S: what rounds to 16 bits needs no more than the hardware's exp2. */
template <class S> WICK_FN compute_t<S> exp_for(compute_t<S> x) {
  if constexpr (is_small_float<S>) return fast_exp(x);
  else return expg(x);
}

/** exp(x - top) / sum, or x - top - log(sum) without leaving the logarithm, for the first n columns of one row. */
template <bool LOG, class S, int V, int P> WICK_FN void softmax_row(Row<S, V, P>& x, S* out, i64 n, u32 lane, u32 lanes, compute_t<S>* slots) {
  typedef compute_t<S> A;
  A top = Limits<A>::lowest(), sum = 0;
  each_vector<V, P>(n, lane, lanes, [&](int p, i64 c) {
    A v[V];
    x.get(p, c, v);
#pragma unroll
    for (int i = 0; i < V; i++) top = Larger()(top, v[i]);
  });
  top = group_max(top, lanes, slots);
  // Exponentials take the place of x where the types agree; small floats are cheaper to compute again than to hold.
  constexpr bool IN_PLACE = P && !LOG && same<S, A>;
  each_vector<V, P>(n, lane, lanes, [&](int p, i64 c) {
    A v[V];
    x.get(p, c, v);
#pragma unroll
    for (int i = 0; i < V; i++) {
      const A e = exp_for<S>(v[i] - top);
      sum += e;
      if constexpr (IN_PLACE) x.put(p, i, e);
    }
  });
  sum = group_sum(sum, lanes, slots);
  const A scale = LOG ? logg(sum) : A(1) / sum;
  each_vector<V, P>(n, lane, lanes, [&](int p, i64 c) {
    A v[V];
    x.get(p, c, v);
#pragma unroll
    for (int i = 0; i < V; i++) {
      if constexpr (LOG) v[i] = v[i] - top - scale;
      else if constexpr (IN_PLACE) v[i] *= scale;
      else v[i] = exp_for<S>(v[i] - top) * scale;
    }
    store_v<V>(out + c, v);
  });
}

template <bool LOG, class S, int V, int P> WICK_FN void softmax_rows(const S* src, S* dst, i64 rows, i64 cols, u32 lanes) {
  __shared__ compute_t<S> slots[WAVE_SLOTS];
  const RowWalk walk(lanes);
  EACH_ROW(walk, row, live, rows) {
    const i64 n = live ? cols : 0;
    Row<S, V, P> x;
    x.open(src + (live ? row : 0) * cols, n, walk.lane, lanes);
    softmax_row<LOG>(x, dst + row * cols, n, walk.lane, lanes, slots);
  }
}
#define SOFTMAX_ROWS(NAME, S, LOG, V, P, THREADS)                                                    \
  KERNEL(THREADS) NAME(const S* src, S* dst, const i64 rows, const i64 cols, const u32 lanes) { \
    softmax_rows<LOG, S, V, P>(src, dst, rows, cols, lanes);                                \
  }

template <bool LOG, class S> WICK_FN void softmax_stream(const S* src, S* dst, i64 rows, i64 cols) {
  __shared__ compute_t<S> slots[WAVE_SLOTS];
  DYNAMIC_SHARED(word4, ring);
  RowStream<S> stream(src, rows, cols, ring);
  for (i64 row = blockIdx.x; row < rows; row += gridDim.x) {
    Row<S, pack_size<S>, stream_vectors<S>> x;
    stream.take(x);
    softmax_row<LOG>(x, dst + row * cols, cols, threadIdx.x, blockDim.x, slots);
  }
}
#define SOFTMAX_STREAM(NAME, S, LOG) \
  KERNEL(512) NAME(const S* src, S* dst, const i64 rows, const i64 cols) { softmax_stream<LOG>(src, dst, rows, cols); }

/** dx = y (dy - sum(y dy)), or dy - exp(y) sum(dy). */
template <bool LOG, class S, int V, int P> WICK_FN void softmax_grad_rows(const S* out, const S* grad, S* dx, i64 rows, i64 cols, u32 lanes) {
  typedef compute_t<S> A;
  __shared__ A slots[WAVE_SLOTS];
  const RowWalk walk(lanes);
  EACH_ROW(walk, row, live, rows) {
    const i64 n = live ? cols : 0, at = (live ? row : 0) * cols;
    Row<S, V, P> y, g;
    y.open(out + at, n, walk.lane, lanes);
    g.open(grad + at, n, walk.lane, lanes);
    A sum = 0;
    each_vector<V, P>(n, walk.lane, lanes, [&](int p, i64 c) {
      A a[V], b[V];
      y.get(p, c, a);
      g.get(p, c, b);
#pragma unroll
      for (int i = 0; i < V; i++) sum += LOG ? b[i] : a[i] * b[i];
    });
    sum = group_sum(sum, lanes, slots);
    each_vector<V, P>(n, walk.lane, lanes, [&](int p, i64 c) {
      A a[V], b[V];
      y.get(p, c, a);
      g.get(p, c, b);
#pragma unroll
      for (int i = 0; i < V; i++) a[i] = LOG ? b[i] - exp_for<S>(a[i]) * sum : a[i] * (b[i] - sum);
      store_v<V>(dx + at + c, a);
    });
  }
}
#define SOFTMAX_GRAD_ROWS(NAME, S, LOG, V, P, THREADS)                                                                   \
  KERNEL(THREADS) NAME(const S* out, const S* grad, S* dx, const i64 rows, const i64 cols, const u32 lanes) {       \
    softmax_grad_rows<LOG, S, V, P>(out, grad, dx, rows, cols, lanes);                                          \
  }

// ---- few long rows: several blocks a row, in two launches ----

/** Largest value so far and the sum of exponentials relative to it. */
template <class A> struct Online {
  A top, sum;
};
struct JoinOnline {
  template <class A> WICK_MEMBER Online<A> operator()(Online<A> a, Online<A> b) const {
    const A top = b.top > a.top ? b.top : a.top;
    // Nothing seen on one side: its sum is 0, and infinity minus infinity must not be formed.
    const A l = a.top == top ? a.sum : a.sum * expg(a.top - top), r = b.top == top ? b.sum : b.sum * expg(b.top - top);
    Online<A> joined = {top, l + r};
    return joined;
  }
};
template <class S> WICK_FN void softmax_part(const S* src, Online<compute_t<S>>* part, i64 cols, i64 size) {
  typedef compute_t<S> A;
  __shared__ Online<A> slots[WAVE_SLOTS];
  const S* row = src + (i64)blockIdx.y * cols;
  const i64 from = (i64)blockIdx.x * size, to = from + size < cols ? from + size : cols;
  A top = Limits<A>::lowest(), sum = 0;
  for (i64 c = from + threadIdx.x; c < to; c += blockDim.x) top = Larger()(top, to_compute(row[c]));
  const A base = top == Limits<A>::lowest() ? (A)0 : top;  // a chunk of nothing but -infinity adds 0
  for (i64 c = from + threadIdx.x; c < to; c += blockDim.x) sum += expg(to_compute(row[c]) - base);
  Online<A> all = {top, sum};
  all = group_reduce(all, blockDim.x, slots, JoinOnline());
  if (threadIdx.x == 0) part[(i64)blockIdx.y * gridDim.x + blockIdx.x] = all;
}
#define SOFTMAX_PART(NAME, S)                                                                           \
  KERNEL(1024) NAME(const S* src, Online<compute_t<S>>* part, const i64 cols, const i64 size) {         \
    softmax_part(src, part, cols, size);                                                                \
  }
template <bool LOG, class S> WICK_FN void softmax_apply(const S* src, const Online<compute_t<S>>* part, S* dst, i64 cols, i64 size) {
  typedef compute_t<S> A;
  const i64 base = (i64)blockIdx.y * cols, from = (i64)blockIdx.x * size, to = from + size < cols ? from + size : cols;
  Online<A> all = part[(i64)blockIdx.y * gridDim.x];
  for (u32 k = 1; k < gridDim.x; k++) all = JoinOnline()(all, part[(i64)blockIdx.y * gridDim.x + k]);
  const A scale = LOG ? logg(all.sum) : A(1) / all.sum;
  for (i64 c = from + threadIdx.x; c < to; c += blockDim.x) {
    const A x = to_compute(src[base + c]) - all.top;
    dst[base + c] = from_compute<S>(LOG ? x - scale : expg(x) * scale);
  }
}
#define SOFTMAX_APPLY(NAME, S, LOG)                                                                                     \
  KERNEL(1024) NAME(const S* src, const Online<compute_t<S>>* part, S* dst, const i64 cols, const i64 size) {           \
    softmax_apply<LOG>(src, part, dst, cols, size);                                                                     \
  }

// ---- symbols ----

// Held rows need registers, so blocks end at 512 threads; on NVIDIA MOST keeps the forward pass at 64 a thread, two such blocks a multiprocessor.
#ifndef WICK_NVIDIA
constexpr int FORWARD_BOUND = 512;
#else
constexpr int FORWARD_BOUND = 1024;
#endif
#define EACH_WIDTH(M, NAME, S, MOST, ...)              \
  M(NAME##_v1p0, S, __VA_ARGS__, 1, 0, 1024)           \
  M(NAME##_v1p4, S, __VA_ARGS__, 1, 4, 512)            \
  M(NAME##_vp0, S, __VA_ARGS__, pack_size<S>, 0, 1024) \
  M(NAME##_vp1, S, __VA_ARGS__, pack_size<S>, 1, 512)  \
  M(NAME##_vp4, S, __VA_ARGS__, pack_size<S>, 4, 512)  \
  M(NAME##_vp8, S, __VA_ARGS__, pack_size<S>, 8, MOST)
#define ALL_SOFTMAX(NAME, S)                                      \
  EACH_WIDTH(SOFTMAX_ROWS, softmax_rows##NAME, S, FORWARD_BOUND, false)          \
  EACH_WIDTH(SOFTMAX_ROWS, log_softmax_rows##NAME, S, FORWARD_BOUND, true)       \
  EACH_WIDTH(SOFTMAX_GRAD_ROWS, softmax_grad_rows##NAME, S, 512, false) \
  EACH_WIDTH(SOFTMAX_GRAD_ROWS, log_softmax_grad_rows##NAME, S, 512, true) \
  SOFTMAX_PART(softmax_part##NAME, S)                             \
  SOFTMAX_APPLY(softmax_apply##NAME, S, false)                    \
  SOFTMAX_APPLY(log_softmax_apply##NAME, S, true)
FOR_REALS(ALL_SOFTMAX, )
SOFTMAX_STREAM(softmax_stream_f32, float, false)
SOFTMAX_STREAM(log_softmax_stream_f32, float, true)

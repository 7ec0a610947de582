// Softmax and log-softmax over contiguous rows, forward and backward, each row read once where it fits registers.
//
// Kernels and launches (src/backends/gpu/softmax.ts): [rows, cols], `lanes` threads a row, block 256 (or lanes when
// more), grid-stride over rows.
//   softmax_rows        y from x
//   softmax_grad_rows   dx from y and dy
//     V: elements of an access, 16 bytes (cols a multiple of the pack, aligned pointers) or one; P: vectors a thread
//     holds (1, 4, 8), 0 = reads again
//   softmax_stream      long rows of which there are many: a block a row, the next rows on their way (stream.h)
//   softmax_part, softmax_apply   few long rows: grid (chunks, rows), block 512; scratch [rows, chunks, 2]
// f16 and bf16 are computed in float and rounded once.
#include "stream.h"

/** exp for results of S: what rounds to 16 bits needs no more than the hardware's exp2. */
template <class S> WICK_FN compute_t<S> exp_for(compute_t<S> x) {
  if constexpr (is_small_float<S>) return fast_exp(x);
  else return expg(x);
}

/** A sum of many numbers: what each addition rounds away is given to the next (Kahan). */
template <class A> struct CarefulSum {
  A sum, lost;
  WICK_MEMBER CarefulSum() : sum(0), lost(0) {}
  WICK_MEMBER void add(A x) {
    const A y = x - lost, next = sum + y;
    const A rounded = next - sum;
    lost = rounded - y;
    sum = next;
  }
};

/** exp(x - top) / sum, or x - top - log(sum) without leaving the logarithm. */
template <bool LOG, class S, int V, int P, class W>
WICK_FN void softmax_share(Share<S, V, P>& x, S* out, W& walk, compute_t<S> (&slots)[2][WAVE_SLOTS]) {
  typedef compute_t<S> A;
  A top = Limits<A>::lowest(), sum = 0;
#pragma unroll
  for (int p = 0; p < P; p++) {
    const A* v = x.at(p);
#pragma unroll
    for (int i = 0; i < V; i++) top = Larger()(top, v[i]);
  }
  top = walk.join(top, slots, Larger());
  // Exponentials take the place of x where it is unpacked.
  constexpr bool IN_PLACE = Share<S, V, P>::WIDE && !LOG;
#pragma unroll
  for (int p = 0; p < P; p++) {
    A* v = x.at(p);
#pragma unroll
    for (int i = 0; i < V; i++) {
      const A e = exp_for<S>(v[i] - top);
      sum += e;
      if constexpr (IN_PLACE) v[i] = e;
    }
  }
  sum = walk.join(sum, slots, Add());
  const A scale = LOG ? logg(sum) : A(1) / sum;
#pragma unroll
  for (int p = 0; p < P; p++) {
    const A* v = x.at(p);
    A y[V];
#pragma unroll
    for (int i = 0; i < V; i++) y[i] = LOG ? v[i] - top - scale : (IN_PLACE ? v[i] : exp_for<S>(v[i] - top)) * scale;
    if (x.has(p)) store_v<V>(out + x.column(p), y);
  }
}
/** The same for a row that is read again at each use. */
template <bool LOG, int V, class S, class W>
WICK_FN void softmax_again(const S* row, S* out, i64 n, W& walk, compute_t<S> (&slots)[2][WAVE_SLOTS]) {
  typedef compute_t<S> A;
  const i64 first = (i64)walk.lane * V, step = (i64)walk.lanes * V;
  A top = Limits<A>::lowest(), v[V];
  ROLLED
  for (i64 c = first; c < n; c += step) {
    load_v<V>(row + c, v);
#pragma unroll
    for (int i = 0; i < V; i++) top = Larger()(top, v[i]);
  }
  top = walk.join(top, slots, Larger());
  CarefulSum<A> shares;
  ROLLED
  for (i64 c = first; c < n; c += step) {
    load_v<V>(row + c, v);
    A few = 0;
#pragma unroll
    for (int i = 0; i < V; i++) few += exp_for<S>(v[i] - top);
    shares.add(few);
  }
  const A sum = walk.join(shares.sum, slots, Add());
  const A scale = LOG ? logg(sum) : A(1) / sum;
  ROLLED
  for (i64 c = first; c < n; c += step) {
    load_v<V>(row + c, v);
#pragma unroll
    for (int i = 0; i < V; i++) v[i] = LOG ? v[i] - top - scale : exp_for<S>(v[i] - top) * scale;
    store_v<V>(out + c, v);
  }
}

template <bool LOG, class S, int V, int P, bool BLOCK>
WICK_FN void softmax_rows(const S* src, S* dst, i64 rows, i64 cols, u32 lanes) {
  __shared__ compute_t<S> slots[2][WAVE_SLOTS];
  Walk<BLOCK> walk(lanes);
  EACH_ROW(walk, row, live, rows) {
    const i64 n = live ? cols : 0;
    const S* from = src + (live ? row : 0) * cols;
    if constexpr (P == 0) softmax_again<LOG, V>(from, dst + row * cols, n, walk, slots);
    else {
      Share<S, V, P> x(n, walk.lane, walk.lanes);
      x.open(from, Limits<compute_t<S>>::lowest());
      softmax_share<LOG>(x, dst + row * cols, walk, slots);
    }
  }
}

template <bool LOG, class S> WICK_FN void softmax_stream(const S* src, S* dst, i64 rows, i64 cols) {
  __shared__ compute_t<S> slots[2][WAVE_SLOTS];
  Walk<true> walk(blockDim.x);
  DYNAMIC_SHARED(word4, ring);
  RowStream<S> stream(src, rows, cols, ring);
  for (i64 row = blockIdx.x; row < rows; row += gridDim.x) {
    Share<S, pack_size<S>, stream_vectors<S>> x(cols, threadIdx.x, blockDim.x);
    stream.take(x.x, Limits<compute_t<S>>::lowest());
    softmax_share<LOG>(x, dst + row * cols, walk, slots);
  }
}

/** dx = y (dy - sum(y dy)), or dy - exp(y) sum(dy). */
template <bool LOG, class S, int V, int P, bool BLOCK>
WICK_FN void softmax_grad_rows(const S* out, const S* grad, S* dx, i64 rows, i64 cols, u32 lanes) {
  typedef compute_t<S> A;
  __shared__ A slots[2][WAVE_SLOTS];
  Walk<BLOCK> walk(lanes);
  EACH_ROW(walk, row, live, rows) {
    const i64 n = live ? cols : 0, at = (live ? row : 0) * cols;
    A sum = 0;
    if constexpr (P == 0) {
      const i64 first = (i64)walk.lane * V, step = (i64)lanes * V;
      A a[V], b[V];
      CarefulSum<A> shares;
      ROLLED
      for (i64 c = first; c < n; c += step) {
        load_v<V>(out + at + c, a);
        load_v<V>(grad + at + c, b);
        A few = 0;
#pragma unroll
        for (int i = 0; i < V; i++) few += LOG ? b[i] : a[i] * b[i];
        shares.add(few);
      }
      sum = walk.join(shares.sum, slots, Add());
      ROLLED
      for (i64 c = first; c < n; c += step) {
        load_v<V>(out + at + c, a);
        load_v<V>(grad + at + c, b);
#pragma unroll
        for (int i = 0; i < V; i++) a[i] = LOG ? b[i] - exp_for<S>(a[i]) * sum : a[i] * (b[i] - sum);
        store_v<V>(dx + at + c, a);
      }
    } else {
      Share<S, V, P> y(n, walk.lane, walk.lanes), g(n, walk.lane, walk.lanes);
      y.open(out + at, (A)0);
      g.open(grad + at, (A)0);
#pragma unroll
      for (int p = 0; p < P; p++) {
        const A *a = y.at(p), *b = g.at(p);
#pragma unroll
        for (int i = 0; i < V; i++) sum += LOG ? b[i] : a[i] * b[i];
      }
      sum = walk.join(sum, slots, Add());
#pragma unroll
      for (int p = 0; p < P; p++) {
        const A *a = y.at(p), *b = g.at(p);
        A d[V];
#pragma unroll
        for (int i = 0; i < V; i++) d[i] = LOG ? b[i] - exp_for<S>(a[i]) * sum : a[i] * (b[i] - sum);
        if (y.has(p)) store_v<V>(dx + at + y.column(p), d);
      }
    }
  }
}

// ---- few long rows: several blocks a row, in two launches ----

/** Largest value so far and the sum of exponentials relative to it. */
template <class A> struct Online { A top, sum; };
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
  A top = Limits<A>::lowest();
  for (i64 c = from + threadIdx.x; c < to; c += blockDim.x) top = Larger()(top, to_compute(row[c]));
  const A base = top == Limits<A>::lowest() ? (A)0 : top;  // a chunk of nothing but -infinity adds 0
  CarefulSum<A> shares;
  for (i64 c = from + threadIdx.x; c < to; c += blockDim.x) shares.add(expg(to_compute(row[c]) - base));
  Online<A> all = {top, shares.sum};
  all = group_reduce(all, blockDim.x, slots, JoinOnline());
  if (threadIdx.x == 0) part[(i64)blockIdx.y * gridDim.x + blockIdx.x] = all;
}
template <bool LOG, class S>
WICK_FN void softmax_apply(const S* src, const Online<compute_t<S>>* part, S* dst, i64 cols, i64 size) {
  typedef compute_t<S> A;
  const i64 base = (i64)blockIdx.y * cols, from = (i64)blockIdx.x * size, to = from + size < cols ? from + size : cols;
  const Online<A>* chunks = part + (i64)blockIdx.y * gridDim.x;
  A top = chunks[0].top;
  for (u32 k = 1; k < gridDim.x; k++) top = chunks[k].top > top ? chunks[k].top : top;
  CarefulSum<A> all;
  for (u32 k = 0; k < gridDim.x; k++)
    all.add(chunks[k].top == top ? chunks[k].sum : chunks[k].sum * expg(chunks[k].top - top));
  const A scale = LOG ? logg(all.sum) : A(1) / all.sum;
  for (i64 c = from + threadIdx.x; c < to; c += blockDim.x) {
    const A x = to_compute(src[base + c]) - top;
    dst[base + c] = from_compute<S>(LOG ? x - scale : expg(x) * scale);
  }
}

// Held rows need registers, so blocks end at 512 threads; on NVIDIA a larger bound keeps the forward pass at 64 a
// thread, two such blocks a multiprocessor.
#ifndef WICK_NVIDIA
constexpr int FORWARD_BOUND = 512;
#else
constexpr int FORWARD_BOUND = 1024;
#endif

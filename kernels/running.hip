// What runs along one dimension besides sums: products, logarithms of sums of exponentials, places of the best so far.
//
// Kernels and launches: src/backends/gpu/running.ts. Op joins what stands before an element with the element.
//   running_rows        [rows, n] contiguous: grid (chunks, rows), block 256; V elements a thread and round; one chunk
//                       walks its row carrying the join along; with several, `before` [rows, chunks] says where each
//                       begins
//   running_totals      joins of the chunks, same grid
//   running_spine       those to what stands before each chunk: block a row
//   running_cols        [outer, n, inner]: a thread a chunk of a column, neighbours read together; with several chunks,
//                       `before` [outer, chunks, inner] says where each begins
//   running_col_totals  joins of the chunks
//   running_col_spine   those to what stands before each chunk: a thread a column
#include "block.h"

/** Products of floats in double, whose range holds what f32 leaves on the way; integers wrap in 64 bits. */
template <class S> struct ProductOf { typedef double type; };
template <> struct ProductOf<i64> { typedef u64 type; };
template <class S> struct Product {
  typedef S Out;
  typedef typename ProductOf<S>::type A;
  static WICK_MEMBER A identity() { return 1; }
  static WICK_MEMBER A take(S x, i64) { return (A)x; }
  static WICK_MEMBER A join(A l, A r) { return l * r; }
  static WICK_MEMBER Out put(A a) { return (Out)a; }
};
/** The sum is that of e^(x - top), so that no exponential leaves the range. */
template <class S> struct Exponentials { S top, sum; };
template <class S> struct LogSum {
  typedef S Out;
  typedef Exponentials<S> A;
  static WICK_MEMBER A identity() {
    A none = {Limits<S>::lowest(), 0};
    return none;
  }
  static WICK_MEMBER A take(S x, i64) {
    A one = {x, 1};
    return one;
  }
  static WICK_MEMBER A join(A l, A r) {
    const bool left = l.top > r.top;
    const S top = left ? l.top : r.top, low = left ? r.top : l.top;
    // An infinity is at no distance from itself.
    const S share = low == top ? (S)1 : expg(low - top);
    A both = {top, left ? l.sum + r.sum * share : r.sum + l.sum * share};
    return both;
  }
  static WICK_MEMBER Out put(A a) { return a.top + logg(a.sum); }
};
/** The place of the best so far: the later of equal elements, and NaN above all. */
template <class S, bool LARGEST> struct BestPlace {
  typedef u32 Out;
  typedef At<compute_t<S>> A;
  static constexpr u32 NONE = 0xffffffffu;
  static WICK_MEMBER A identity() {
    A none = {0, NONE};
    return none;
  }
  static WICK_MEMBER A take(compute_t<S> x, i64 i) {
    A at = {x, (u32)i};
    return at;
  }
  /** l stands before r. */
  static WICK_MEMBER A join(A l, A r) {
    const bool best = LARGEST ? r.value >= l.value : r.value <= l.value;
    return r.index != NONE && (l.index == NONE || best || r.value != r.value) ? r : l;
  }
  static WICK_MEMBER Out put(A a) { return a.index; }
};
template <class S> struct LargestPlace : BestPlace<S, true> {};
template <class S> struct SmallestPlace : BestPlace<S, false> {};

constexpr int RUNNING_THREADS = 256, RUNNING_WAVES = RUNNING_THREADS / WICK_WAVE;

/** The join of what the threads before this one in a block hold, and of all. */
template <class Op>
WICK_FN typename Op::A join_before(typename Op::A value, typename Op::A* slots, typename Op::A& total) {
  typedef typename Op::A A;
  const u32 lane = lane_id(), wave = wave_id();
  A upto = value;
  for (u32 d = 1; d < WICK_WAVE; d *= 2) {
    const A before = shfl_up(upto, d, WICK_WAVE);
    if (lane >= d) upto = Op::join(before, upto);
  }
  const A ahead = shfl_up(upto, 1, WICK_WAVE);
  __syncthreads();  // the slots may still be read from the call before
  if (lane == WICK_WAVE - 1) slots[wave] = upto;
  __syncthreads();
  A waves = slots[lane % RUNNING_WAVES];
  for (u32 d = 1; d < RUNNING_WAVES; d *= 2) {
    const A before = shfl_up(waves, d, RUNNING_WAVES);
    if (lane % RUNNING_WAVES >= d) waves = Op::join(before, waves);
  }
  total = shfl(waves, RUNNING_WAVES - 1, RUNNING_WAVES);
  const A base = shfl(waves, wave ? wave - 1 : 0, RUNNING_WAVES);
  if (lane == 0) return wave ? base : Op::identity();
  return wave ? Op::join(base, ahead) : ahead;
}

/** V neighbouring results: 16 bytes at a time where V fills them. */
template <int V, class D> WICK_FN void put_some(D* p, const D (&x)[V]) {
  constexpr int whole = 16 / sizeof(D);
  if constexpr (V % whole == 0) {
#pragma unroll
    for (int at = 0; at < V; at += whole) {
      Pack<D> pack;
#pragma unroll
      for (int i = 0; i < whole; i++) pack.v[i] = x[at + i];
      store_pack(p + at, pack);
    }
  } else {
#pragma unroll
    for (int i = 0; i < V; i++) p[i] = x[i];
  }
}

template <class Op, int V, class S>
WICK_FN void running_rows(const S* src, typename Op::Out* dst, const typename Op::A* before, i64 n, i64 size) {
  typedef typename Op::A A;
  __shared__ A slots[RUNNING_WAVES];
  const i64 row = blockIdx.y, from = (i64)blockIdx.x * size, to = from + size < n ? from + size : n;
  const S* line = src + row * n;
  A carry = before ? before[row * gridDim.x + blockIdx.x] : Op::identity();
  typedef decltype(load_some<V>(line)) X;
  X next = X();
  i64 mine = from + (i64)threadIdx.x * V;
  if (mine < to) next = load_some<V>(line + mine);
  for (i64 base = from; base < to; base += RUNNING_THREADS * V, mine += RUNNING_THREADS * V) {
    compute_t<S> x[V];
    unpack(next, x);
    if (mine + RUNNING_THREADS * V < to) next = load_some<V>(line + mine + RUNNING_THREADS * V);
    A v[V], total;
#pragma unroll
    for (int e = 0; e < V; e++) {
      v[e] = Op::take(x[e], mine + e);
      if (e) v[e] = Op::join(v[e - 1], v[e]);
    }
    const A at = Op::join(carry, join_before<Op>(mine < to ? v[V - 1] : Op::identity(), slots, total));
    typename Op::Out out[V];
#pragma unroll
    for (int e = 0; e < V; e++) out[e] = Op::put(Op::join(at, v[e]));
    if (mine < to) put_some<V>(dst + row * n + mine, out);
    carry = Op::join(carry, total);
  }
}
template <class Op, int V, class S> WICK_FN void running_totals(const S* src, typename Op::A* totals, i64 n, i64 size) {
  typedef typename Op::A A;
  __shared__ A slots[RUNNING_WAVES];
  const i64 row = blockIdx.y, from = (i64)blockIdx.x * size, to = from + size < n ? from + size : n;
  const S* line = src + row * n;
  // Each thread joins a stretch of neighbours, so that the order stays.
  const i64 each = (size + RUNNING_THREADS * V - 1) / (RUNNING_THREADS * V) * V;
  i64 i = from + threadIdx.x * each;
  const i64 end = i + each < to ? i + each : to;
  A sum = Op::identity(), total;
  ROLLED
  for (; i < end; i += V) {
    compute_t<S> x[V];
    unpack(load_some<V>(line + i), x);
#pragma unroll
    for (int e = 0; e < V; e++) sum = Op::join(sum, Op::take(x[e], i + e));
  }
  join_before<Op>(sum, slots, total);
  if (threadIdx.x == 0) totals[row * gridDim.x + blockIdx.x] = total;
}
template <class Op> WICK_FN void running_spine(typename Op::A* totals, i64 chunks) {
  typedef typename Op::A A;
  __shared__ A slots[RUNNING_WAVES];
  A* line = totals + (i64)blockIdx.x * chunks;
  A carry = Op::identity();
  for (i64 base = 0; base < chunks; base += RUNNING_THREADS) {
    const i64 i = base + threadIdx.x;
    A total;
    const A ahead = join_before<Op>(i < chunks ? line[i] : Op::identity(), slots, total);
    if (i < chunks) line[i] = Op::join(carry, ahead);
    carry = Op::join(carry, total);
  }
}

constexpr int RUNNING_AHEAD = 8;  // loads under way
/** Calls f(where it lies, place along n, element) for a chunk of a column; chunk c counts [outer, chunks, inner]. */
template <class S, class F> WICK_FN void along_chunk(const S* src, i64 c, i64 n, i64 inner, i64 size, F f) {
  const i64 chunks = (n + size - 1) / size, line = c / inner, from = line % chunks * size;
  const i64 to = from + size < n ? from + size : n;
  i64 at = (line / chunks * n + from) * inner + c % inner, k = from;
  ROLLED
  for (; k + RUNNING_AHEAD <= to; k += RUNNING_AHEAD) {
    S v[RUNNING_AHEAD];
#pragma unroll
    for (int e = 0; e < RUNNING_AHEAD; e++) v[e] = src[at + e * inner];
#pragma unroll
    for (int e = 0; e < RUNNING_AHEAD; e++, at += inner) f(at, k + e, to_compute(v[e]));
  }
  ROLLED
  for (; k < to; k++, at += inner) f(at, k, to_compute(src[at]));
}
template <class Op, class S>
WICK_FN void running_cols(const S* src, typename Op::Out* dst, const typename Op::A* before, i64 all, i64 n, i64 inner,
                          i64 size) {
  GRID_STRIDE(c, all) {
    typename Op::A sum = before ? before[c] : Op::identity();
    along_chunk(src, c, n, inner, size, [&](i64 i, i64 place, auto x) {
      sum = Op::join(sum, Op::take(x, place));
      dst[i] = Op::put(sum);
    });
  }
}
template <class Op, class S>
WICK_FN void running_col_totals(const S* src, typename Op::A* totals, i64 all, i64 n, i64 inner, i64 size) {
  GRID_STRIDE(c, all) {
    typename Op::A sum = Op::identity();
    along_chunk(src, c, n, inner, size, [&](i64, i64 place, auto x) { sum = Op::join(sum, Op::take(x, place)); });
    totals[c] = sum;
  }
}
template <class Op> WICK_FN void running_col_spine(typename Op::A* totals, i64 outer, i64 chunks, i64 inner) {
  typedef typename Op::A A;
  GRID_STRIDE(c, outer * inner) {
    A* line = totals + c / inner * chunks * inner + c % inner;
    A sum = Op::identity();
    ROLLED
    for (i64 k = 0; k < chunks; k += RUNNING_AHEAD) {
      A v[RUNNING_AHEAD];
#pragma unroll
      for (int e = 0; e < RUNNING_AHEAD; e++)
        if (k + e < chunks) v[e] = line[(k + e) * inner];
#pragma unroll
      for (int e = 0; e < RUNNING_AHEAD; e++)
        if (k + e < chunks) {
          line[(k + e) * inner] = sum;
          sum = Op::join(sum, v[e]);
        }
    }
  }
}

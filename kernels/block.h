// What the structured kernels share: reductions over groups of threads, rows held in registers, and the operators of
// reductions. A group is `lanes` consecutive threads (a power of two): part of a wave, a wave, or, above that, the
// whole block.
#pragma once
#include "portable.h"

// ---- groups ----

/** Slots a block needs to join its waves. */
constexpr int WAVE_SLOTS = 1024 / WICK_WAVE;

/** Joins the values of all threads of each group; every thread of the block takes part and gets the result. */
template <class A, class F> WICK_FN A group_reduce(A v, u32 lanes, A* slots, F join) {
  const u32 width = lanes < WICK_WAVE ? lanes : WICK_WAVE;
  for (u32 m = width / 2; m; m >>= 1) v = join(v, shfl_xor(v, m, width));
  if (lanes > WICK_WAVE) {
    const u32 waves = lanes / WICK_WAVE;
    __syncthreads();  // the slots may still be read from the call before
    if (lane_id() == 0) slots[wave_id()] = v;
    __syncthreads();
    v = slots[lane_id() % waves];
    for (u32 m = waves / 2; m; m >>= 1) v = join(v, shfl_xor(v, m, waves));
  }
  return v;
}

struct Add {
  template <class A> WICK_MEMBER A operator()(A a, A b) const { return a + b; }
};
/** The same where only the launch knows how many lanes a group has. */
template <class A, class F> WICK_FN A row_join(A v, u32 lanes, A* slots, F join) {
  ROLLED
  for (u32 m = (lanes < WICK_WAVE ? lanes : WICK_WAVE) / 2; m; m >>= 1) v = join(v, shfl_xor(v, m, WICK_WAVE));
  if (lanes > WICK_WAVE) {
    const u32 waves = lanes / WICK_WAVE;
    __syncthreads();  // the slots may still be read from the call before
    if (threadIdx.x % WICK_WAVE == 0) slots[threadIdx.x / WICK_WAVE] = v;
    __syncthreads();
    v = slots[threadIdx.x & (waves - 1)];
    ROLLED
    for (u32 m = waves / 2; m; m >>= 1) v = join(v, shfl_xor(v, m, WICK_WAVE));
  }
  return v;
}

/** The better of two with NaN passed over. */
template <bool LARGEST> WICK_FN float better_of(float a, float b) { return LARGEST ? fmaxf(a, b) : fminf(a, b); }
template <bool LARGEST> WICK_FN double better_of(double a, double b) { return LARGEST ? fmax(a, b) : fmin(a, b); }
template <bool LARGEST, class T> WICK_FN T better_of(T a, T b) { return (LARGEST ? b > a : b < a) ? b : a; }
struct Larger {
  template <class A> WICK_MEMBER A operator()(A a, A b) const { return better_of<true>(a, b); }
};
template <class A> WICK_FN A group_sum(A v, u32 lanes, A* slots) { return group_reduce(v, lanes, slots, Add()); }
template <class A> WICK_FN A group_max(A v, u32 lanes, A* slots) { return group_reduce(v, lanes, slots, Larger()); }

// ---- vectors of V elements: V is pack_size<S> (16-byte aligned accesses) or 1 ----

template <int V, class S> WICK_FN void load_v(const S* p, compute_t<S> (&x)[V]) {
  if constexpr (V == 1) x[0] = to_compute(*p);
  else {
    static_assert(V == pack_size<S>, "load_v: a whole 16-byte word or one element");
    unpack(load_pack(p), x);
  }
}
template <int V, class S> WICK_FN void store_v(S* p, const compute_t<S> (&x)[V]) {
  if constexpr (V == 1) *p = from_compute<S>(x[0]);
  else store_pack(p, packed<S>(x));
}

/**
 * Calls f(slot, column) for the vectors of a row that belong to this lane: P of them unrolled, or any number when P is
 * 0.
 */
template <int V, int P, class F> WICK_FN void each_vector(i64 cols, u32 lane, u32 lanes, F f) {
  if constexpr (P == 0) {
    ROLLED
    for (i64 c = (i64)lane * V; c < cols; c += (i64)lanes * V) f(0, c);
  } else {
    // A held row is short: 32 bits count its columns.
    const i32 n = (i32)cols;
#pragma unroll
    for (int p = 0; p < P; p++) {
      const i32 c = (i32)((u32)p * lanes + lane) * V;
      if (c < n) f(p, c);
    }
  }
}

/** From here on a pack is not known to be what it was: what was unpacked of it before is not held on to. */
template <class S> WICK_FN void keep_packed(Pack<S>& pack) {
#ifdef WICK_NVIDIA
  asm("" : "+r"(pack.words.x), "+r"(pack.words.y), "+r"(pack.words.z), "+r"(pack.words.w));
#endif
}
/** V elements as they are stored. */
template <int V, class S> WICK_FN auto load_some(const S* p) {
  if constexpr (V == 1) return *p;
  else return load_pack(p);
}
template <class S> WICK_FN void keep_packed(S&) {}
template <class S> WICK_FN void unpack(S one, compute_t<S> (&x)[1]) { x[0] = to_compute(one); }

/**
 * One lane's share of a row in registers: P vectors, unpacked where they are ROOM numbers at most. What the row does
 * not fill is `missing`, so that nothing is asked later.
 */
template <class S, int V, int P, int ROOM = 32> struct Share {
  typedef compute_t<S> A;
  static constexpr int VECTORS = P, WIDTH = V;
  static constexpr bool WIDE = P * V <= ROOM;
  A x[WIDE ? P : 1][V];
  typedef decltype(load_some<V>((const S*)nullptr)) Stored;
  Stored packs[WIDE ? 1 : P];
  u32 n, lane, lanes;
  WICK_MEMBER Share(i64 cols, u32 at, u32 of) : n((u32)cols), lane(at), lanes(of) {}
  /** The column where vector p begins; a held row is short, so 32 bits count its columns. */
  WICK_MEMBER u32 column(int p) const { return ((u32)p * lanes + lane) * V; }
  WICK_MEMBER bool has(int p) const { return column(p) < n; }
  WICK_MEMBER void open(const S* row, A missing) {
    if constexpr (WIDE) {
#pragma unroll
      for (int p = 0; p < P; p++) {
        fill(x[p], missing);
        if (has(p)) load_v<V>(row + column(p), x[p]);
      }
    } else {
      fill(x[0], missing);
      Stored none;
      store_v<V>((S*)&none, x[0]);
#pragma unroll
      for (int p = 0; p < P; p++) {
        packs[p] = none;
        if (has(p)) packs[p] = load_some<V>(row + column(p));
      }
    }
  }
  /** Vector p as numbers; what is changed in it stays where WIDE. */
  WICK_MEMBER A* at(int p) {
    if constexpr (WIDE) return x[p];
    else {
      keep_packed(packs[p]);
      unpack(packs[p], x[0]);
      return x[0];
    }
  }
  /** Every vector becomes the one after it: loops that stay rolled find theirs at 0. */
  WICK_MEMBER void next() {
#pragma unroll
    for (int p = 0; p + 1 < P; p++) {
      if constexpr (WIDE) {
#pragma unroll
        for (int i = 0; i < V; i++) x[p][i] = x[p + 1][i];
      } else packs[p] = packs[p + 1];
    }
  }
  static WICK_MEMBER void fill(A (&v)[V], A value) {
#pragma unroll
    for (int i = 0; i < V; i++) v[i] = value;
  }
};

/** Where this thread's group stands: rows are dealt to groups, blocks go round until none is left. */
struct RowWalk {
  u32 lane, group, groups;
  WICK_MEMBER RowWalk(u32 lanes) : RowWalk(lanes, 31 - clz32(lanes)) {}
  WICK_MEMBER RowWalk(u32 lanes, u32 power)
      : lane(threadIdx.x & (lanes - 1)), group(threadIdx.x >> power), groups(blockDim.x >> power) {}
};
/** The same with a row a BLOCK, or with groups of at most 32 lanes: each is simpler than both in one. */
template <bool BLOCK> struct Walk : RowWalk {
  u32 lanes, turn;
  WICK_MEMBER Walk(u32 count) : RowWalk(count), lanes(count), turn(0) {}
  /**
   * Joins the values of each group, and all its threads get the result; one barrier a call at most, so that two sets of
   * slots are used by turns.
   */
  template <class A, class F> WICK_MEMBER A join(A v, A (&slots)[2][WAVE_SLOTS], F f) {
    ROLLED
    for (u32 m = lanes / 2; m; m >>= 1) v = f(v, shfl_xor(v, m, WICK_WAVE));
    return v;
  }
};
template <> struct Walk<true> {
  static constexpr u32 group = 0, groups = 1;
  u32 lane, lanes, turn;
  WICK_MEMBER Walk(u32) : lane(threadIdx.x), lanes(blockDim.x), turn(0) {}
  template <class A, class F> WICK_MEMBER A join(A v, A (&slots)[2][WAVE_SLOTS], F f) {
#pragma unroll
    for (u32 m = WICK_WAVE / 2; m; m >>= 1) v = f(v, shfl_xor(v, m, WICK_WAVE));
    const u32 waves = lanes / WICK_WAVE;
    A* mine = slots[turn];
    turn ^= 1;
    if (lane % WICK_WAVE == 0) mine[lane / WICK_WAVE] = v;
    __syncthreads();
    v = mine[lane & (waves - 1)];
    ROLLED
    for (u32 m = waves / 2; m; m >>= 1) v = f(v, shfl_xor(v, m, WICK_WAVE));
    return v;
  }
};
/**
 * Uniform over the block, so that its body may hold barriers; rows past the end have `live` false and still take part.
 */
#define EACH_ROW(walk, row, live, rows)                                              \
  for (i64 wick_base = (i64)blockIdx.x * (walk).groups, row = 0; wick_base < (rows); \
       wick_base += (i64)gridDim.x * (walk).groups)                                  \
    if (bool live = (row = wick_base + (walk).group) < (rows); true)

// ---- operators of reductions: from storage S to an accumulator and back ----

/** Small floats add up in float; integers wrap, so they add without a sign. */
template <class S> struct SumOf { typedef u32 type; };
template <> struct SumOf<i64> { typedef u64 type; };
template <> struct SumOf<u64> { typedef u64 type; };
template <> struct SumOf<float> { typedef float type; };
template <> struct SumOf<double> { typedef double type; };
template <> struct SumOf<half> { typedef float type; };
template <> struct SumOf<bfloat> { typedef float type; };
template <> struct SumOf<fp8> { typedef float type; };

/** maxg or ming; floats by the one instruction that does it on NVIDIA. */
template <class S, bool LARGEST, class A> WICK_FN A best_of(A a, A b) {
#if defined(WICK_NVIDIA) && defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
  if constexpr (same<A, float> && !nan_wins<S>) return better_of<LARGEST>(a, b);
  else if constexpr (same<A, float>) {
    if constexpr (LARGEST) asm("max.NaN.f32 %0, %0, %1;" : "+f"(a) : "f"(b));
    else asm("min.NaN.f32 %0, %0, %1;" : "+f"(a) : "f"(b));
    return a;
  }
#endif
  if constexpr (LARGEST) return maxg<S>(a, b);
  else return ming<S>(a, b);
}

/**
 * What our own sums and products come to: 64 bits for truth values and integers, whose results are i64. Candle's wrap
 * in their type.
 */
template <class S> struct TotalOf {
  typedef u64 sum;
  typedef i64 result;
};
template <> struct TotalOf<float> {
  typedef float sum;
  typedef float result;
};
template <> struct TotalOf<double> {
  typedef double sum;
  typedef double result;
};
template <> struct TotalOf<half> {
  typedef float sum;
  typedef half result;
};
template <> struct TotalOf<bfloat> {
  typedef float sum;
  typedef bfloat result;
};
template <> struct TotalOf<fp8> {
  typedef float sum;
  typedef fp8 result;
};

template <class S> struct Sum {
  static constexpr bool PLACES = false, CENTERED = false;
  typedef S Out;
  typedef typename SumOf<S>::type A;
  static WICK_MEMBER A identity() { return 0; }
  static WICK_MEMBER A take(compute_t<S> x, i64) { return (A)x; }
  static WICK_MEMBER A join(A a, A b) { return a + b; }
  static WICK_MEMBER Out put(A a, i64) { return from_compute<S>(a); }
};
template <class S> struct Mean : Sum<S> {
  typedef typename SumOf<S>::type A;
  static WICK_MEMBER S put(A a, i64 n) { return from_compute<S>(a / (A)n); }
};
template <class S> struct Total {
  static constexpr bool PLACES = false, CENTERED = false;
  typedef typename TotalOf<S>::result Out;
  typedef typename TotalOf<S>::sum A;
  static WICK_MEMBER A identity() { return 0; }
  static WICK_MEMBER A take(compute_t<S> x, i64) { return (A)x; }
  static WICK_MEMBER A join(A a, A b) { return a + b; }
  static WICK_MEMBER Out put(A a, i64) { return from_compute<Out>(a); }
};
template <class S> struct Prod : Total<S> {
  typedef typename TotalOf<S>::sum A;
  static WICK_MEMBER A identity() { return 1; }
  static WICK_MEMBER A join(A a, A b) { return a * b; }
};
/** The length of a vector: squares of these types stay within the range of double. */
template <class S> struct Euclid {
  static constexpr bool PLACES = false, CENTERED = false;
  typedef S Out;
  typedef double A;
  static WICK_MEMBER A identity() { return 0; }
  static WICK_MEMBER A take(compute_t<S> x, i64) { return (A)x * (A)x; }
  static WICK_MEMBER A join(A a, A b) { return a + b; }
  static WICK_MEMBER Out put(A a, i64) { return round_to<S>(sqrtg(a)); }
};
/** Sums of distances from one of the elements, and of their squares. */
struct Distances {
  double sum, squares;
};
/**
 * The sum of squared distances from the mean. Distances are taken from the group's first element: what then cancels is
 * never more than the group's size times the result, which double holds.
 */
template <class S> struct Deviations {
  static constexpr bool PLACES = false, CENTERED = true;
  typedef S Out;
  typedef Distances A;
  static WICK_MEMBER A identity() {
    A none = {0, 0};
    return none;
  }
  static WICK_MEMBER A take(compute_t<S> x, compute_t<S> first) {
    const double d = (double)x - (double)first;
    A one = {d, d * d};
    return one;
  }
  static WICK_MEMBER A join(A a, A b) {
    A both = {a.sum + b.sum, a.squares + b.squares};
    return both;
  }
  static WICK_MEMBER double total(A a, i64 n) {
    const double found = a.squares - a.sum * a.sum / (double)n;
    return found < 0 ? 0 : found;
  }
  static WICK_MEMBER Out put(A a, i64 n) { return round_to<S>(total(a, n)); }
};
template <class S> struct Spread : Deviations<S> {
  static WICK_MEMBER S put(Distances a, i64 n) { return round_to<S>(sqrtg(Deviations<S>::total(a, n))); }
};
/** Where NaN is ignored it is the neutral element too: only a row of nothing but NaN gives NaN. */
template <class S> struct Max {
  static constexpr bool PLACES = false, CENTERED = false;
  typedef S Out;
  typedef compute_t<S> A;
  static WICK_MEMBER A identity() {
    if constexpr (is_float<S> && !nan_wins<S>) return Limits<A>::nan();
    else return Limits<A>::lowest();
  }
  static WICK_MEMBER A take(A x, i64) { return x; }
  static WICK_MEMBER A join(A a, A b) { return best_of<S, true>(a, b); }
  static WICK_MEMBER Out put(A a, i64) { return from_compute<S>(a); }
};
template <class S> struct Min : Max<S> {
  typedef compute_t<S> A;
  static WICK_MEMBER A identity() {
    if constexpr (is_float<S> && !nan_wins<S>) return Limits<A>::nan();
    else return Limits<A>::highest();
  }
  static WICK_MEMBER A join(A a, A b) { return best_of<S, false>(a, b); }
};
/** A value and where it stands; the largest index means none yet. */
template <class A> struct At {
  A value;
  u32 index;
};
/** The lowest index wins ties at every length; NaN is passed over, and a row of nothing else gives 0. */
template <class S, bool LARGEST> struct ArgBest {
  /** Kernels look for the best value first and for its place afterwards, which is cheaper than carrying both. */
  static constexpr bool PLACES = true, CENTERED = false;
  typedef u32 Out;
  typedef compute_t<S> T;
  typedef At<T> A;
  static WICK_MEMBER A identity() {
    A none = {LARGEST ? Limits<T>::lowest() : Limits<T>::highest(), 0xffffffffu};
    return none;
  }
  /** Where a search for the best value begins: below every number. */
  static WICK_MEMBER T nothing() {
    if constexpr (is_float<S>) return Limits<T>::nan();
    else return LARGEST ? Limits<T>::lowest() : Limits<T>::highest();
  }
  static WICK_MEMBER T better(T a, T b) { return better_of<LARGEST>(a, b); }
  static WICK_MEMBER A take(T x, i64 i) {
    A at = {x, (u32)i};
    return at.value != at.value ? identity() : at;
  }
  static WICK_MEMBER A join(A a, A b) {
    const bool better = LARGEST ? b.value > a.value : b.value < a.value;
    return better || (b.value == a.value && b.index < a.index) ? b : a;
  }
  static WICK_MEMBER Out put(A a, i64) { return a.index == 0xffffffffu ? 0 : a.index; }
};
template <class S> struct ArgMax : ArgBest<S, true> {};
template <class S> struct ArgMin : ArgBest<S, false> {};

struct Smaller {
  template <class A> WICK_MEMBER A operator()(A a, A b) const { return b < a ? b : a; }
};
template <class Op> struct Better {
  WICK_MEMBER typename Op::T operator()(typename Op::T a, typename Op::T b) const { return Op::better(a, b); }
};
template <class Op> struct Join {
  WICK_MEMBER typename Op::A operator()(typename Op::A a, typename Op::A b) const { return Op::join(a, b); }
};

// What the structured kernels share: reductions over groups of threads, rows held in registers, and the operators of reductions.
// A group is `lanes` consecutive threads (a power of two): part of a wave, a wave, or, above that, the whole block.
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
/** The plain maximum of numbers that are not NaN. */
struct Larger {
  template <class A> WICK_MEMBER A operator()(A a, A b) const { return b > a ? b : a; }
};
template <class A> WICK_FN A group_sum(A v, u32 lanes, A* slots) { return group_reduce(v, lanes, slots, Add()); }
template <class A> WICK_FN A group_max(A v, u32 lanes, A* slots) { return group_reduce(v, lanes, slots, Larger()); }

// ---- vectors of V elements: V is pack_size<S> (16-byte aligned accesses) or 1 ----

template <int V, class S> WICK_FN void load_v(const S* p, compute_t<S> (&x)[V]) {
  if constexpr (V == 1) x[0] = to_compute(*p);
  else {
    static_assert(V == pack_size<S>, "load_v: a whole 16-byte word or one element");
    Pack<S> pack = load_pack(p);
#pragma unroll
    for (int v = 0; v < V; v++) x[v] = to_compute(pack.v[v]);
  }
}
template <int V, class S> WICK_FN void store_v(S* p, const compute_t<S> (&x)[V]) {
  if constexpr (V == 1) *p = from_compute<S>(x[0]);
  else {
    Pack<S> pack;
#pragma unroll
    for (int v = 0; v < V; v++) pack.v[v] = from_compute<S>(x[v]);
    store_pack(p, pack);
  }
}

/** Calls f(slot, column) for the vectors of a row that belong to this lane: P of them unrolled, or any number when P is 0. */
template <int V, int P, class F> WICK_FN void each_vector(i64 cols, u32 lane, u32 lanes, F f) {
  if constexpr (P == 0) {
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

/** A row read once into registers (P vectors a lane), or read again at each use when P is 0. */
template <class S, int V, int P> struct Row {
  typedef compute_t<S> A;
  const S* src;
  Pack<S> held[P ? P : 1];
  S one[P ? P : 1];
  WICK_MEMBER void open(const S* row, i64 cols, u32 lane, u32 lanes) {
    src = row;
    if constexpr (P > 0) each_vector<V, P>(cols, lane, lanes, [&](int p, i64 c) {
      if constexpr (V == 1) one[p] = src[c];
      else held[p] = load_pack(src + c);
    });
  }
  /** Replaces an element of a held row, where S is what it is computed in. */
  WICK_MEMBER void put(int p, int i, A value) {
    if constexpr (V == 1) one[p] = value;
    else held[p].v[i] = value;
  }
  WICK_MEMBER void get(int p, i64 c, A (&x)[V]) const {
    if constexpr (P == 0) load_v<V>(src + c, x);
    else if constexpr (V == 1) x[0] = to_compute(one[p]);
    else {
#pragma unroll
      for (int v = 0; v < V; v++) x[v] = to_compute(held[p].v[v]);
    }
  }
};

/** A number of lanes that is known when the kernel is compiled. */
template <u32 N> struct Lanes {
  static constexpr u32 value = N;
};
/** f(Lanes<lanes>()) for 4 to 32 lanes: short rows are a few instructions each, of which loops over lanes would be the larger part. */
template <class F> WICK_FN void with_lanes(u32 lanes, F f) {
  switch (lanes) {
    case 4: return f(Lanes<4>());
    case 8: return f(Lanes<8>());
    case 16: return f(Lanes<16>());
    default: return f(Lanes<32>());
  }
}

/** Where this thread's group stands: rows are dealt to groups, blocks go round until none is left. */
struct RowWalk {
  u32 lane, group, groups;
  WICK_MEMBER RowWalk(u32 lanes) : lane(threadIdx.x % lanes), group(threadIdx.x / lanes), groups(blockDim.x / lanes) {}
};
/** Uniform over the block, so that its body may hold barriers; rows past the end have `live` false and still take part. */
#define EACH_ROW(walk, row, live, rows)                                                              \
  for (i64 wick_base = (i64)blockIdx.x * (walk).groups, row = 0; wick_base < (rows);                 \
       wick_base += (i64)gridDim.x * (walk).groups)                                                  \
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

template <class S> struct Sum {
  static constexpr bool PLACES = false;
  typedef S Out;
  typedef typename SumOf<S>::type A;
  static WICK_MEMBER A identity() { return 0; }
  static WICK_MEMBER A take(S x, i64) { return (A)to_compute(x); }
  static WICK_MEMBER A join(A a, A b) { return a + b; }
  static WICK_MEMBER Out put(A a, i64) { return from_compute<S>(a); }
};
template <class S> struct Mean : Sum<S> {
  typedef typename SumOf<S>::type A;
  static WICK_MEMBER S put(A a, i64 n) { return from_compute<S>(a / (A)n); }
};
template <class S> struct Prod : Sum<S> {
  typedef typename SumOf<S>::type A;
  static WICK_MEMBER A identity() { return 1; }
  static WICK_MEMBER A join(A a, A b) { return a * b; }
};
/** Where NaN is ignored it is the neutral element too: only a row of nothing but NaN gives NaN. */
template <class S> struct Max {
  static constexpr bool PLACES = false;
  typedef S Out;
  typedef compute_t<S> A;
  static WICK_MEMBER A identity() {
    if constexpr (is_float<S> && !nan_wins<S>) return Limits<A>::nan();
    else return Limits<A>::lowest();
  }
  static WICK_MEMBER A take(S x, i64) { return to_compute(x); }
  static WICK_MEMBER A join(A a, A b) { return maxg<S>(a, b); }
  static WICK_MEMBER Out put(A a, i64) { return from_compute<S>(a); }
};
template <class S> struct Min : Max<S> {
  typedef compute_t<S> A;
  static WICK_MEMBER A identity() {
    if constexpr (is_float<S> && !nan_wins<S>) return Limits<A>::nan();
    else return Limits<A>::highest();
  }
  static WICK_MEMBER A join(A a, A b) { return ming<S>(a, b); }
};
/** A value and where it stands; the largest index means none yet. */
template <class A> struct At {
  A value;
  u32 index;
};
/** The better of two with NaN passed over. */
template <bool LARGEST> WICK_FN float better_of(float a, float b) { return LARGEST ? fmaxf(a, b) : fminf(a, b); }
template <bool LARGEST> WICK_FN double better_of(double a, double b) { return LARGEST ? fmax(a, b) : fmin(a, b); }
template <bool LARGEST, class T> WICK_FN T better_of(T a, T b) { return (LARGEST ? b > a : b < a) ? b : a; }
/** The lowest index wins ties at every length; NaN is passed over, and a row of nothing else gives 0. */
template <class S, bool LARGEST> struct ArgBest {
  /** Kernels look for the best value first and for its place afterwards, which is cheaper than carrying both. */
  static constexpr bool PLACES = true;
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
  static WICK_MEMBER A take(S x, i64 i) {
    A at = {to_compute(x), (u32)i};
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

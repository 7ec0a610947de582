// Elementwise rows compiled for vectors, one kernel per row and storage type. The rows themselves, expressions of the
// op table, stand in generated files that include this one, a few rows each: a changed row compiles its own file and no
// other.
#pragma once
#include "isa.h"

namespace {

#include "runs.h"
#include "special.h"

// Rows that are one exponential and a few steps, as they say in `byExp`: result(x, e^power(x)), where every power is
// small; many chains at once fill the pipes.
template <class Row> struct ByExp { static constexpr bool ON = false; };

// A row whose expression leaves the range of f32 before its result does: what its `far` says stands in for it there.
template <class Row> struct Far { static constexpr bool ON = false; };

// Integer rows with scalars compute in 64 bits: a bound or factor beyond the storage type keeps its meaning.
template <class S, int SCALARS> constexpr bool wide = SCALARS > 0 && !isFloating<typename ComputeOf<S>::type>;

template <class S, class R, int SCALARS> WICK_FN void put(S* p, R r) {
  if constexpr (wide<S, SCALARS>) storeWide(p, r);
  else store(p, r);
}
template <class S, class R, int SCALARS, int B> WICK_FN void put(uint8_t* p, Mask<B> r) { store(p, r); }

template <class S, class Row> struct Loop {
  static constexpr bool WIDE = wide<S, Row::SCALARS>;
  typedef typename ComputeOf<S>::type E;
  typedef Vec<decltype(WIDE ? int64_t() : E())> Wide;
  template <bool W, class = void> struct Pick { typedef Vec<E> type; };
  template <class X> struct Pick<true, X> { typedef Vec<int64_t> type; };
  typedef typename Pick<WIDE>::type T;
  static constexpr int N = T::N;

  // Rows computed in float take four vectors a step; V is then F4.
  static constexpr bool BY_FOUR = Same<E, float>::value && !Row::MASKED;

  template <class V> WICK_FN V get(const void* p, int64_t i) {
    if constexpr (WIDE) return loadWide(static_cast<const S*>(p) + i);
    else if constexpr (Same<V, F4>::value) return loadQuad(static_cast<const S*>(p) + i);
    else return load(static_cast<const S*>(p) + i);
  }
  template <class V> WICK_FN auto step(const void* const* in, int64_t i, V a, V b) {
    if constexpr (Row::MASKED)
      return Row::template apply<S, V>(loadMask<typename V::element>(static_cast<const uint8_t*>(in[0]) + i),
                                       get<V>(in[1], i), get<V>(in[2], i));
    else if constexpr (Far<Row>::ON && Same<E, float>::value) return Far<Row>::apply(get<V>(in[0], i));
    else if constexpr (Row::ARITY == 1) return Row::template apply<S, V>(get<V>(in[0], i), a, b);
    else if constexpr (Row::ARITY == 2) return Row::template apply<S, V>(get<V>(in[0], i), get<V>(in[1], i), a, b);
    else return Row::template apply<S, V>(get<V>(in[0], i), get<V>(in[1], i), get<V>(in[2], i), a, b);
  }
  template <class O, int B> WICK_FN void put(O* p, Mask<B> m) { store(p, m); }
  template <class O, int B> WICK_FN void put(O* p, QuadMask<B> m) { store(p, m); }
  template <class O> WICK_FN void put(O* p, F4 v) { store(p, v); }
  template <class O, class V> WICK_FN void put(O* p, Vec<V> v) {
    if constexpr (WIDE) storeWide(p, v);
    else store(p, v);
  }

  // Whole vectors from element i on; answers where it ended. Not inlined: the expression is compiled once for the three
  // places that use it.
  template <class O>
  static __attribute__((noinline)) int64_t vectors(const void* const* given, O* out, int64_t i, int64_t n, T a, T b) {
    const void* in[Row::ARITY];
    for (int k = 0; k < Row::ARITY; k++) in[k] = given[k];
    for (; i + N <= n; i += N) put(out + i, step<T>(in, i, a, b));
    return i;
  }

  template <class O> static void over(const void* const* given, O* out, int64_t n, T a, T b) {
    // A copy that nothing else can reach: stores to `out` cannot change it.
    const void* in[Row::ARITY];
    for (int k = 0; k < Row::ARITY; k++) in[k] = given[k];
    int64_t i = 0;
    if constexpr (ByExp<Row>::ON && Same<E, float>::value) {
      constexpr int K = CHAINS;
      auto x = [&](int u) { return load(static_cast<const S*>(in[0]) + i + u * F::N); };
      for (; i + K * F::N <= n; i += K * F::N) {
        F v[K];
        WICK_EACH(K) v[u] = ByExp<Row>::power(x(u));
        if (allNear(v)) {
          expNear<ByExp<Row>::FINE>(v);
          WICK_EACH(K) store(out + i + u * F::N, ByExp<Row>::result(x(u), v[u]));
        } else {
          vectors(in, out, i, i + K * F::N, a, b);
        }
      }
    } else if constexpr (BY_FOUR) {
      const F4 a4(a, a, a, a), b4(b, b, b, b);
      for (; i + F4::N <= n; i += F4::N) {
        // Several streams outrun what the hardware fetches ahead by itself.
        if constexpr (Row::ARITY > 1)
          for (int k = 0; k < Row::ARITY; k++) __builtin_prefetch(static_cast<const S*>(in[k]) + i + 512 / sizeof(S));
        put(out + i, step<F4>(in, i, a4, b4));
      }
    }
    i = vectors(in, out, i, n, a, b);
    if (i == n) return;
    // The tail runs in a copy of one vector.
    alignas(WIDTH) char copy[Row::ARITY][N * sizeof(S)] = {};
    const void* inputs[Row::ARITY];
    for (int k = 0; k < Row::ARITY; k++) {
      size_t bytes = Row::MASKED && k == 0 ? 1 : sizeof(S);
      __builtin_memcpy(copy[k], static_cast<const char*>(in[k]) + i * bytes, (n - i) * bytes);
      inputs[k] = copy[k];
    }
    alignas(WIDTH) O result[N];
    vectors(inputs, result, 0, N, a, b);
    __builtin_memcpy(out + i, result, (n - i) * sizeof(O));
  }

  static void run(const void* const* in, void* out, int64_t n, const double* scalars) {
    T a(Row::SCALARS > 0 ? scalars[0] : 0.0), b(Row::SCALARS > 1 ? scalars[1] : 0.0);
    if constexpr (Row::TRUTH) over(in, static_cast<uint8_t*>(out), n, a, b);
    else over(in, static_cast<S*>(out), n, a, b);
  }
};

// 8-bit floats are widened into the first-level cache and computed there as float: their conversions are long, and
// would be most of the engine's code if every row had them inline. 16-bit floats go the same way through rows that call
// functions, which take far longer than a pass over the cache, and so does compiling them once more for each type.
template <class S> __attribute__((noinline)) void widenBlock(const S* from, float* to, int64_t n) {
  widenRun(from, to, n);
}
template <class S> __attribute__((noinline)) void narrowBlock(const float* from, S* to, int64_t n) {
  narrowRun(from, to, n);
}
template <class S, class Row> struct Blocks {
  static void run(const void* const* in, void* out, int64_t n, const double* scalars) {
    constexpr int64_t BLOCK = 512;
    alignas(WIDTH) float wide[Row::ARITY][BLOCK], result[BLOCK];
    for (int64_t i = 0; i < n; i += BLOCK) {
      const int64_t count = n - i < BLOCK ? n - i : BLOCK;
      const void* inputs[Row::ARITY];
      for (int k = 0; k < Row::ARITY; k++) {
        inputs[k] = Row::MASKED && k == 0 ? static_cast<const void*>(static_cast<const uint8_t*>(in[0]) + i) : wide[k];
        if (inputs[k] == wide[k]) widenBlock(static_cast<const S*>(in[k]) + i, wide[k], count);
      }
      if constexpr (Row::TRUTH) {
        Loop<float, Row>::run(inputs, static_cast<uint8_t*>(out) + i, count, scalars);
      } else {
        Loop<float, Row>::run(inputs, result, count, scalars);
        narrowBlock(result, static_cast<S*>(out) + i, count);
      }
    }
  }
};

template <class S, class Row, bool ON> constexpr wick::Kernel kernelOf() {
  constexpr bool BLOCKS = Same<S, fp8>::value || (isSmallFloat<S> && Row::CALLS);
  if constexpr (ON && BLOCKS) return &Blocks<S, Row>::run;
  else if constexpr (ON) return &Loop<S, Row>::run;
  else return nullptr;
}

// A row's kernels; `DTYPES` has a bit for each dtype that the row has.
template <class Row, int DTYPES> constexpr wick::ElementwiseRow rowOf(const char* name) {
  using namespace wick;
  ElementwiseRow r{name, {}};
  r.kernel[U8] = kernelOf<uint8_t, Row, (DTYPES >> U8) & 1>();
  r.kernel[U32] = kernelOf<uint32_t, Row, (DTYPES >> U32) & 1>();
  r.kernel[I16] = kernelOf<int16_t, Row, (DTYPES >> I16) & 1>();
  r.kernel[I32] = kernelOf<int32_t, Row, (DTYPES >> I32) & 1>();
  r.kernel[I64] = kernelOf<int64_t, Row, (DTYPES >> I64) & 1>();
  r.kernel[F8] = kernelOf<fp8, Row, (DTYPES >> F8) & 1>();
  r.kernel[BF16] = kernelOf<bfloat, Row, (DTYPES >> BF16) & 1>();
  r.kernel[F16] = kernelOf<half, Row, (DTYPES >> F16) & 1>();
  r.kernel[F32] = kernelOf<float, Row, (DTYPES >> F32) & 1>();
  r.kernel[F64] = kernelOf<double, Row, (DTYPES >> F64) & 1>();
  return r;
}

}  // namespace

// The list that a generated file exports: WICK_ELEMENTWISE(3, WICK_ROW(exp, 960) WICK_ROW(log, 960)).
#define WICK_ROW(name, dtypes) rowOf<Row_##name, dtypes>(#name),
#define WICK_ELEMENTWISE(PART, ROWS) \
  extern "C" const wick::ElementwiseRow WICK_EXPORT(wick_elementwise_##PART)[] = {ROWS{nullptr, {}}};

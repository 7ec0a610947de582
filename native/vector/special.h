// Functions of the kernel language that are seldom asked for: the C library, or kernels/portable/special.h, lane by
// lane. Included after isa.h inside an unnamed namespace, by elementwise rows alone.
#include "../kernels/portable/special.h"

#define WICK_LANES(NAME, FLOAT, DOUBLE)                  \
  WICK_CALL F NAME(F x) {                                \
    return eachLane(x, [](float v) { return FLOAT; });   \
  }                                                      \
  WICK_CALL D NAME(D x) {                                \
    return eachLane(x, [](double v) { return DOUBLE; }); \
  }                                                      \
  template <class E> WICK_FN Quad<E> NAME(Quad<E> x) { return {NAME(x.a), NAME(x.b), NAME(x.c), NAME(x.d)}; }
#define WICK_LIBRARY(NAME, F) WICK_LANES(NAME, __builtin_##F##f(v), __builtin_##F(v))
WICK_LIBRARY(asing, asin)
WICK_LIBRARY(acosg, acos)
WICK_LIBRARY(atang, atan)
WICK_LIBRARY(sinhg, sinh)
WICK_LIBRARY(coshg, cosh)
WICK_LIBRARY(asinhg, asinh)
#if defined(__wasm__)  // whose C library answers numbers below 1, too
WICK_LANES(acoshg, v < 1 ? __builtin_nanf("") : __builtin_acoshf(v), v < 1 ? __builtin_nan("") : __builtin_acosh(v))
#else
WICK_LIBRARY(acoshg, acosh)
#endif
WICK_LIBRARY(atanhg, atanh)
WICK_LIBRARY(log2g, log2)
WICK_LIBRARY(log10g, log10)
WICK_LANES(lgammag, float(__builtin_lgamma(v)), __builtin_lgamma(v))
WICK_LANES(erfinvg, float(special_erfinv_short(v)), special_erfinv(v))
WICK_LANES(i0g, float(special_bessel_i(0, v)), special_bessel_i(0, v))
WICK_LANES(i1g, float(special_bessel_i(1, v)), special_bessel_i(1, v))
#undef WICK_LIBRARY
#undef WICK_LANES

template <class E, class G> WICK_FN Vec<E> eachPair(Vec<E> x, Vec<E> y, G f) {
  Vec<E> o;
  for (int i = 0; i < Vec<E>::N; i++) o.r[i] = f(x.r[i], y.r[i]);
  return o;
}
#define WICK_LANES(NAME, FLOAT, DOUBLE)                               \
  WICK_CALL F NAME(F x, F y) {                                        \
    return eachPair(x, y, [](float p, float q) { return FLOAT; });    \
  }                                                                   \
  WICK_CALL D NAME(D x, D y) {                                        \
    return eachPair(x, y, [](double p, double q) { return DOUBLE; }); \
  }
WICK_LANES(atan2g, __builtin_atan2f(p, q), __builtin_atan2(p, q))
WICK_LANES(hypotg, __builtin_hypotf(p, q), __builtin_hypot(p, q))
WICK_LANES(fmodg, __builtin_fmodf(p, q), __builtin_fmod(p, q))
WICK_LANES(polygammag, float(special_polygamma(p, q)), special_polygamma(p, q))
#undef WICK_LANES

template <class E> WICK_FN Vec<E> fmodg(Vec<E> p, Vec<E> q) { return p - divg(p, q) * q; }
template <class E> WICK_FN Vec<E> remainderg(Vec<E> p, Vec<E> q) {
  const Vec<E> r = fmodg(p, q), zero(E(0));
  return select((r != zero) & ((r < zero) != (q < zero)), r + q, r);
}
template <class E> WICK_FN Vec<E> floordivg(Vec<E> p, Vec<E> q) {
  const Vec<E> r = fmodg(p, q), zero(E(0)), one(E(1));
  const Vec<E> less = select((r != zero) & ((r < zero) != (q < zero)), one, zero);
  if constexpr (isFloating<E>) {
    const Vec<E> quotient = (p - r) / q - less, whole = floorg(quotient);
    const Vec<E> near = select(quotient - whole > Vec<E>(0.5), whole + one, whole);
    return select(q == zero, p / q, select(quotient == zero, copysigng(zero, p / q), near));
  } else {
    return select(q == zero, zero, divg(p, q) - less);
  }
}
template <class E> WICK_FN E divisorOf(E p, E q) {
  uint64_t a = p < 0 ? 0 - (uint64_t)p : (uint64_t)p, b = q < 0 ? 0 - (uint64_t)q : (uint64_t)q;
  while (b != 0) {
    const uint64_t left = a % b;
    a = b;
    b = left;
  }
  return E(a);
}
template <class E> WICK_FN Vec<E> gcdg(Vec<E> p, Vec<E> q) { return eachPair(p, q, divisorOf<E>); }
template <class E> WICK_FN Vec<E> lcmg(Vec<E> p, Vec<E> q) {
  return eachPair(p, q, [](E a, E b) {
    const int64_t common = (int64_t)divisorOf(a, b);
    if (common == 0) return E(0);
    const E product = E((common == -1 ? 0 - (uint64_t)a : uint64_t(a / common)) * uint64_t(b));
    return product < 0 ? E(0 - uint64_t(product)) : product;
  });
}
template <class E> WICK_FN Vec<E> shlg(Vec<E> p, Vec<E> q) {
  return eachPair(p, q, [](E a, E b) { return E(uint64_t(b) < sizeof(E) * 8 ? uint64_t(a) << b : 0); });
}
template <class E> WICK_FN Vec<E> shrg(Vec<E> p, Vec<E> q) {
  return eachPair(p, q, [](E a, E b) { return E(uint64_t(b) < sizeof(E) * 8 ? a >> b : a < 0 ? -1 : 0); });
}

#define WICK_BY_FOUR(f)                                          \
  template <class E> WICK_FN Quad<E> f(Quad<E> x, Quad<E> y) {   \
    return {f(x.a, y.a), f(x.b, y.b), f(x.c, y.c), f(x.d, y.d)}; \
  }
WICK_BY_FOUR(atan2g)
WICK_BY_FOUR(hypotg)
WICK_BY_FOUR(fmodg)
WICK_BY_FOUR(remainderg)
WICK_BY_FOUR(floordivg)
WICK_BY_FOUR(polygammag)
#undef WICK_BY_FOUR

// Part of portable.h: mathematics in the type computed in: float, double, and integers where a meaning exists.
#pragma once

/** The type two operands meet in: small integers are promoted by arithmetic, so p and q may differ. */
template <class P, class Q> struct Common { typedef decltype(true ? P() : Q()) type; };
template <class P> struct Common<P, P> { typedef P type; };
template <class P, class Q> using common_t = typename Common<P, Q>::type;

template <class M, class P, class Q> WICK_FN common_t<P, Q> select(M mask, P p, Q q) { return mask ? p : q; }

#define WICK_MATH(NAME, F)                        \
  WICK_FN float NAME(float x) { return F##f(x); } \
  WICK_FN double NAME(double x) { return F(x); }
WICK_MATH(expg, exp)
WICK_MATH(logg, log)
WICK_MATH(log1pg, log1p)
WICK_MATH(expm1g, expm1)
WICK_MATH(sing, sin)
WICK_MATH(cosg, cos)
WICK_MATH(tang, tan)
WICK_MATH(tanhg, tanh)
WICK_MATH(erfg, erf)
WICK_MATH(sqrtg, sqrt)
WICK_MATH(absg, fabs)
WICK_MATH(ceilg, ceil)
WICK_MATH(floorg, floor)
WICK_MATH(truncg, trunc)
#ifdef WICK_AMD
// LLVM before 16 adds +0 to what rounds to -0 (ROCm 5.2 has 15).
WICK_FN float roundg(float x) { return __builtin_copysignf(roundf(x), x); }
WICK_FN double roundg(double x) { return __builtin_copysign(round(x), x); }
#else
WICK_MATH(roundg, round)
#endif
WICK_MATH(rintg, rint)
WICK_MATH(asing, asin)
WICK_MATH(acosg, acos)
WICK_MATH(atang, atan)
WICK_MATH(sinhg, sinh)
WICK_MATH(coshg, cosh)
WICK_MATH(asinhg, asinh)
WICK_MATH(acoshg, acosh)
WICK_MATH(atanhg, atanh)
WICK_MATH(log2g, log2)
WICK_MATH(log10g, log10)
WICK_FN float atan2g(float y, float x) { return atan2f(y, x); }
WICK_FN double atan2g(double y, double x) { return atan2(y, x); }
WICK_FN float hypotg(float x, float y) { return hypotf(x, y); }
WICK_FN double hypotg(double x, double y) { return hypot(x, y); }
template <class T> WICK_FN T lgammag(T x) {
  if constexpr (same<T, float>)
    if (x > 0.0f) return single_lgamma(x);
  return (T)lgamma((double)x);
}
template <class T> WICK_FN T erfinvg(T x) {
  if constexpr (same<T, float>) return single_erfinv(x);
  else return (T)special_erfinv((double)x);
}
template <class T> WICK_FN T i0g(T x) { return (T)special_bessel_i(0, (double)x); }
template <class T> WICK_FN T i1g(T x) { return (T)special_bessel_i(1, (double)x); }
template <class T> WICK_FN T polygammag(T n, T x) {
  if constexpr (same<T, float>)
    if (n == 0.0f && x > 0.0f) return single_digamma(x);
  return (T)special_polygamma((double)n, (double)x);
}
WICK_FN float powg(float p, float q) { return powf(p, q); }
WICK_FN double powg(double p, double q) { return pow(p, q); }
WICK_FN float fmag(float p, float q, float r) { return fmaf(p, q, r); }
WICK_FN double fmag(double p, double q, double r) { return fma(p, q, r); }
/** Products and sums that no compiler fuses: numbers that must come out the same bit for bit everywhere. */
#ifdef WICK_NVIDIA
WICK_FN double mul_rn(double p, double q) { return __dmul_rn(p, q); }
WICK_FN double add_rn(double p, double q) { return __dadd_rn(p, q); }
#else
WICK_FN double mul_rn(double p, double q) { return p * q; }
WICK_FN double add_rn(double p, double q) { return p + q; }
#endif
WICK_FN bool signbitg(float x) { return bits_as<u32>(x) >> 31; }
WICK_FN bool signbitg(double x) { return bits_as<u64>(x) >> 63; }
WICK_FN bool isnang(float x) { return x != x; }
WICK_FN bool isnang(double x) { return x != x; }
#ifdef WICK_HOST
WICK_FN float normcdfg(float x) { return (float)(0.5 * erfc(x * -0.70710678118654752440)); }
WICK_FN double normcdfg(double x) {
  // The rounding of the argument is amplified by x^2, so it is carried along and corrected for.
  const double c = 0.70710678118654757274, rest = -4.8336466567264567e-17, a = -x * c, e = fma(-x, c, -a) - x * rest;
  const double tail = a * a < 700 ? e * exp(-a * a) * 0.56418958354775628 : 0;
  return 0.5 * erfc(a) - tail;
}
WICK_FN float rsqrtg(float x) { return 1.0f / sqrtf(x); }
WICK_FN double rsqrtg(double x) { return 1.0 / sqrt(x); }
#else
WICK_FN float normcdfg(float x) { return normcdff(x); }
WICK_FN double normcdfg(double x) { return normcdf(x); }
WICK_FN float rsqrtg(float x) { return rsqrtf(x); }
WICK_FN double rsqrtg(double x) { return rsqrt(x); }
#endif
WICK_FN float exp2g(float x) { return exp2f(x); }
WICK_FN double exp2g(double x) { return exp2(x); }
/** 2^x and e^x in a few ULP for softmax: denormal results may be 0. */
WICK_FN float fast_exp2(float x) {
#if defined(WICK_NVIDIA)
  float r;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(r) : "f"(x));
  return r;
#elif defined(WICK_AMD) && __has_builtin(__builtin_amdgcn_exp2f)
  return __builtin_amdgcn_exp2f(x);
#elif defined(WICK_AMD)
  float r;  // ROCm 5's compiler has no builtin for it
  asm("v_exp_f32 %0, %1" : "=v"(r) : "v"(x));
  return r;
#else
  return exp2f(x);
#endif
}
WICK_FN float fast_exp(float x) { return fast_exp2(x * 1.44269504f); }
template <class P, class Q> WICK_FN common_t<P, Q> divg(P left, Q right) {
  typedef common_t<P, Q> T;
  T p = left, q = right;
  if constexpr (is_float<T>) return p / q;
  else if constexpr (T(-1) < T(0)) return q == 0 ? T(0) : q == T(-1) ? (T)(0 - (u64)p) : (T)(p / q);
  else return q == 0 ? T(0) : (T)(p / q);
}
/** Remainders: fmodg has the sign of p, remainderg that of q; an integer's by zero is p. */
WICK_FN float fmodg(float p, float q) { return fmodf(p, q); }
WICK_FN double fmodg(double p, double q) { return fmod(p, q); }
template <class P, class Q> WICK_FN common_t<P, Q> fmodg(P p, Q q) {
  typedef common_t<P, Q> T;
  return (T)((u64)p - (u64)divg((T)p, (T)q) * (u64)q);
}
template <class P, class Q> WICK_FN common_t<P, Q> remainderg(P p, Q q) {
  typedef common_t<P, Q> T;
  const T r = fmodg((T)p, (T)q);
  return r != 0 && (r < 0) != (q < 0) ? (T)(r + q) : r;
}
/** The largest whole number not above p / q; an integer's by zero is 0. */
template <class P, class Q> WICK_FN common_t<P, Q> floordivg(P p, Q q) {
  typedef common_t<P, Q> T;
  const T r = fmodg((T)p, (T)q);
  const bool lower = r != 0 && (r < 0) != (q < 0);
  if constexpr (is_float<T>) {
    if (q == 0) return p / q;
    const T quotient = (p - r) / q - (lower ? T(1) : T(0));
    if (quotient == 0) return signbitg(p / q) ? -T(0) : T(0);
    const T whole = floorg(quotient);
    return quotient - whole > T(0.5) ? whole + T(1) : whole;
  } else {
    return q == 0 ? T(0) : (T)((u64)divg((T)p, (T)q) - (lower ? 1 : 0));
  }
}
/** Shifts by any count: what is as wide as the type, or negative, shifts everything out. */
template <class P, class Q> WICK_FN common_t<P, Q> shlg(P p, Q q) {
  return (u64)q < sizeof(P) * 8 ? (common_t<P, Q>)((u64)p << (u64)q) : 0;
}
template <class P, class Q> WICK_FN common_t<P, Q> shrg(P p, Q q) {
  return (u64)q < sizeof(P) * 8 ? (common_t<P, Q>)(p >> (u64)q) : p < 0 ? -1 : 0;
}
/** p*q+r on integers wraps. */
template <class T> WICK_FN T fmag(T p, T q, T r) { return (T)((u64)p * (u64)q + (u64)r); }

#define WICK_INT_MATH(T)                                      \
  WICK_FN T absg(T x) { return x < 0 ? (T)(0 - (u64)x) : x; } \
  WICK_FN T ceilg(T x) { return x; }                          \
  WICK_FN T floorg(T x) { return x; }                         \
  WICK_FN T truncg(T x) { return x; }                         \
  WICK_FN T roundg(T x) { return x; }                         \
  WICK_FN T rintg(T x) { return x; }                          \
  WICK_FN bool signbitg(T x) { return x < 0; }                \
  WICK_FN bool isnang(T) { return false; }
WICK_INT_MATH(i16)
WICK_INT_MATH(i32)
WICK_INT_MATH(i64)
#define WICK_UINT_MATH(T)                    \
  WICK_FN T absg(T x) { return x; }          \
  WICK_FN T ceilg(T x) { return x; }         \
  WICK_FN T floorg(T x) { return x; }        \
  WICK_FN T truncg(T x) { return x; }        \
  WICK_FN T roundg(T x) { return x; }        \
  WICK_FN T rintg(T x) { return x; }         \
  WICK_FN bool signbitg(T) { return false; } \
  WICK_FN bool isnang(T) { return false; }
WICK_UINT_MATH(u8)
WICK_UINT_MATH(u32)

/** The largest number that divides both, and the least that both divide; 0 where there is none. */
template <class P, class Q> WICK_FN common_t<P, Q> gcdg(P p, Q q) {
  typedef common_t<P, Q> T;
  const auto divisor = [](auto a, auto b) {
    ROLLED
    while (b != 0) {
      const auto left = a % b;
      a = b, b = left;
    }
    return (T)a;
  };
  const u64 a = (u64)absg((T)p), b = (u64)absg((T)q);
  if constexpr (sizeof(T) <= 4) return divisor((u32)a, (u32)b);
  else return divisor(a, b);
}
template <class P, class Q> WICK_FN common_t<P, Q> lcmg(P p, Q q) {
  typedef common_t<P, Q> T;
  const T common = gcdg((T)p, (T)q);
  return common == 0 ? T(0) : absg((T)((u64)divg((T)p, common) * (u64)q));
}

#if defined(WICK_NVIDIA) && defined(__CUDA_ARCH__)
/** One instruction does it; where NaN wins, from sm_80 on. */
template <class S, class T> constexpr bool one_bound = same<T, float> && (!nan_wins<S> || __CUDA_ARCH__ >= 800);
#elif defined(WICK_NVIDIA)
template <class S, class T> constexpr bool one_bound = false;
#endif
/** Maximum: NaN is ignored, or wins where S is a 16-bit float; +0 is above -0. */
template <class S, class P, class Q> WICK_FN common_t<P, Q> maxg(P left, Q right) {
  typedef common_t<P, Q> T;
  T p = left, q = right;
  if constexpr (!is_float<T>) return p > q ? p : q;
#ifdef WICK_NVIDIA
  else if constexpr (one_bound<S, T>) {
    float r;
    if constexpr (nan_wins<S>) asm("max.NaN.f32 %0, %1, %2;" : "=f"(r) : "f"(p), "f"(q));
    else asm("max.f32 %0, %1, %2;" : "=f"(r) : "f"(p), "f"(q));
    return r;
  }
#endif
  else {
    if (p != p) return nan_wins<S> ? p : q;
    if (q != q) return nan_wins<S> ? q : p;
    return p > q ? p : q > p ? q : signbitg(p) ? q : p;
  }
}
template <class S, class P, class Q> WICK_FN common_t<P, Q> ming(P left, Q right) {
  typedef common_t<P, Q> T;
  T p = left, q = right;
  if constexpr (!is_float<T>) return p < q ? p : q;
#ifdef WICK_NVIDIA
  else if constexpr (one_bound<S, T>) {
    float r;
    if constexpr (nan_wins<S>) asm("min.NaN.f32 %0, %1, %2;" : "=f"(r) : "f"(p), "f"(q));
    else asm("min.f32 %0, %1, %2;" : "=f"(r) : "f"(p), "f"(q));
    return r;
  }
#endif
  else {
    if (p != p) return nan_wins<S> ? p : q;
    if (q != q) return nan_wins<S> ? q : p;
    return p < q ? p : q < p ? q : signbitg(p) ? p : q;
  }
}

/** High 32 bits of a product: what divisions by precomputed magic numbers and Philox need. */
WICK_FN u32 mulhi32(u32 a, u32 b) {
#ifdef WICK_NVIDIA
  return __umulhi(a, b);
#else
  return (u32)((u64)a * b >> 32);
#endif
}
WICK_FN u64 mulhi64(u64 a, u64 b) {
#ifdef WICK_HOST
  return (u64)((unsigned __int128)a * b >> 64);
#else
  return __umul64hi(a, b);
#endif
}

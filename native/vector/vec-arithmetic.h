// Arithmetic that vectors' operators lack, and vectors of float as pairs of double. Included after vec-memory.h inside
// an unnamed namespace.

#if defined(WICK_ISA_NEON)
WICK_FN F sqrtg(F x) { return F((F::R)vsqrtq_f32((float32x4_t)x.r)); }
WICK_FN D sqrtg(D x) { return D((D::R)vsqrtq_f64((float64x2_t)x.r)); }
WICK_FN F rintg(F x) { return F((F::R)vrndnq_f32((float32x4_t)x.r)); }
WICK_FN D rintg(D x) { return D((D::R)vrndnq_f64((float64x2_t)x.r)); }
WICK_FN F floorg(F x) { return F((F::R)vrndmq_f32((float32x4_t)x.r)); }
WICK_FN D floorg(D x) { return D((D::R)vrndmq_f64((float64x2_t)x.r)); }
WICK_FN F ceilg(F x) { return F((F::R)vrndpq_f32((float32x4_t)x.r)); }
WICK_FN D ceilg(D x) { return D((D::R)vrndpq_f64((float64x2_t)x.r)); }
WICK_FN F truncg(F x) { return F((F::R)vrndq_f32((float32x4_t)x.r)); }
WICK_FN D truncg(D x) { return D((D::R)vrndq_f64((float64x2_t)x.r)); }
WICK_FN F mad(F a, F b, F c) { return F((F::R)vfmaq_f32((float32x4_t)c.r, (float32x4_t)a.r, (float32x4_t)b.r)); }
WICK_FN D mad(D a, D b, D c) { return D((D::R)vfmaq_f64((float64x2_t)c.r, (float64x2_t)a.r, (float64x2_t)b.r)); }
#elif defined(WICK_ISA_AVX512)
WICK_FN F sqrtg(F x) { return F((F::R)_mm512_sqrt_ps((__m512)x.r)); }
WICK_FN D sqrtg(D x) { return D((D::R)_mm512_sqrt_pd((__m512d)x.r)); }
WICK_FN F rintg(F x) { return F((F::R)_mm512_roundscale_ps((__m512)x.r, 8)); }
WICK_FN D rintg(D x) { return D((D::R)_mm512_roundscale_pd((__m512d)x.r, 8)); }
WICK_FN F floorg(F x) { return F((F::R)_mm512_roundscale_ps((__m512)x.r, 9)); }
WICK_FN D floorg(D x) { return D((D::R)_mm512_roundscale_pd((__m512d)x.r, 9)); }
WICK_FN F ceilg(F x) { return F((F::R)_mm512_roundscale_ps((__m512)x.r, 10)); }
WICK_FN D ceilg(D x) { return D((D::R)_mm512_roundscale_pd((__m512d)x.r, 10)); }
WICK_FN F truncg(F x) { return F((F::R)_mm512_roundscale_ps((__m512)x.r, 11)); }
WICK_FN D truncg(D x) { return D((D::R)_mm512_roundscale_pd((__m512d)x.r, 11)); }
WICK_FN F mad(F a, F b, F c) { return F((F::R)_mm512_fmadd_ps((__m512)a.r, (__m512)b.r, (__m512)c.r)); }
WICK_FN D mad(D a, D b, D c) { return D((D::R)_mm512_fmadd_pd((__m512d)a.r, (__m512d)b.r, (__m512d)c.r)); }
#elif defined(WICK_ISA_AVX2)
WICK_FN F sqrtg(F x) { return F((F::R)_mm256_sqrt_ps((__m256)x.r)); }
WICK_FN D sqrtg(D x) { return D((D::R)_mm256_sqrt_pd((__m256d)x.r)); }
WICK_FN F rintg(F x) { return F((F::R)_mm256_round_ps((__m256)x.r, 8)); }
WICK_FN D rintg(D x) { return D((D::R)_mm256_round_pd((__m256d)x.r, 8)); }
WICK_FN F floorg(F x) { return F((F::R)_mm256_round_ps((__m256)x.r, 9)); }
WICK_FN D floorg(D x) { return D((D::R)_mm256_round_pd((__m256d)x.r, 9)); }
WICK_FN F ceilg(F x) { return F((F::R)_mm256_round_ps((__m256)x.r, 10)); }
WICK_FN D ceilg(D x) { return D((D::R)_mm256_round_pd((__m256d)x.r, 10)); }
WICK_FN F truncg(F x) { return F((F::R)_mm256_round_ps((__m256)x.r, 11)); }
WICK_FN D truncg(D x) { return D((D::R)_mm256_round_pd((__m256d)x.r, 11)); }
WICK_FN F mad(F a, F b, F c) { return F((F::R)_mm256_fmadd_ps((__m256)a.r, (__m256)b.r, (__m256)c.r)); }
WICK_FN D mad(D a, D b, D c) { return D((D::R)_mm256_fmadd_pd((__m256d)a.r, (__m256d)b.r, (__m256d)c.r)); }
#elif defined(WICK_ISA_WASM)
WICK_FN F sqrtg(F x) { return F((F::R)wasm_f32x4_sqrt((v128_t)x.r)); }
WICK_FN D sqrtg(D x) { return D((D::R)wasm_f64x2_sqrt((v128_t)x.r)); }
WICK_FN F rintg(F x) { return F((F::R)wasm_f32x4_nearest((v128_t)x.r)); }
WICK_FN D rintg(D x) { return D((D::R)wasm_f64x2_nearest((v128_t)x.r)); }
WICK_FN F floorg(F x) { return F((F::R)wasm_f32x4_floor((v128_t)x.r)); }
WICK_FN D floorg(D x) { return D((D::R)wasm_f64x2_floor((v128_t)x.r)); }
WICK_FN F ceilg(F x) { return F((F::R)wasm_f32x4_ceil((v128_t)x.r)); }
WICK_FN D ceilg(D x) { return D((D::R)wasm_f64x2_ceil((v128_t)x.r)); }
WICK_FN F truncg(F x) { return F((F::R)wasm_f32x4_trunc((v128_t)x.r)); }
WICK_FN D truncg(D x) { return D((D::R)wasm_f64x2_trunc((v128_t)x.r)); }
WICK_FN F mad(F a, F b, F c) { return a * b + c; }
WICK_FN D mad(D a, D b, D c) { return a * b + c; }
#else
WICK_FN F sqrtg(F x) { return F((F::R)_mm_sqrt_ps((__m128)x.r)); }
WICK_FN D sqrtg(D x) { return D((D::R)_mm_sqrt_pd((__m128d)x.r)); }
WICK_FN F rintg(F x) {
  return eachLane(x, [](float v) { return __builtin_rintf(v); });
}
WICK_FN D rintg(D x) {
  return eachLane(x, [](double v) { return __builtin_rint(v); });
}
WICK_FN F floorg(F x) {
  return eachLane(x, [](float v) { return __builtin_floorf(v); });
}
WICK_FN D floorg(D x) {
  return eachLane(x, [](double v) { return __builtin_floor(v); });
}
WICK_FN F ceilg(F x) {
  return eachLane(x, [](float v) { return __builtin_ceilf(v); });
}
WICK_FN D ceilg(D x) {
  return eachLane(x, [](double v) { return __builtin_ceil(v); });
}
WICK_FN F truncg(F x) {
  return eachLane(x, [](float v) { return __builtin_truncf(v); });
}
WICK_FN D truncg(D x) {
  return eachLane(x, [](double v) { return __builtin_trunc(v); });
}
WICK_FN F mad(F a, F b, F c) { return a * b + c; }
WICK_FN D mad(D a, D b, D c) { return a * b + c; }
#endif

template <class E> WICK_FN Vec<E> fmag(Vec<E> a, Vec<E> b, Vec<E> c) {
#ifdef WICK_HAS_FMA
  if constexpr (isFloating<E>) return mad(a, b, c);
#else
  if constexpr (isFloating<E>) {
    Vec<E> o;
    for (int i = 0; i < Vec<E>::N; i++)
      o.r[i] = sizeof(E) == 4 ? __builtin_fmaf(a.r[i], b.r[i], c.r[i]) : __builtin_fma(a.r[i], b.r[i], c.r[i]);
    return o;
  }
#endif
  return a * b + c;
}

template <class E> WICK_FN Vec<E> absg(Vec<E> x) {
  if constexpr (isFloating<E>) {
    typedef typename Vec<E>::Bits U;
    return (x.template as<U>() & U(typename U::element(~typename U::element(0) >> 1))).template as<Vec<E>>();
  } else if constexpr (E(-1) < E(0)) return select(x < Vec<E>(E(0)), -x, x);
  else return x;
}

template <class E> WICK_FN Vec<E> copysigng(Vec<E> magnitude, Vec<E> sign) {
  typedef typename Vec<E>::Bits U;
  U top(typename U::element(typename U::element(1) << (sizeof(E) * 8 - 1)));
  return ((magnitude.template as<U>() & (top ^ U(typename U::element(-1)))) | (sign.template as<U>() & top))
      .template as<Vec<E>>();
}

template <class E> WICK_FN typename Vec<E>::M signbitg(Vec<E> x) {
  typedef typename Vec<E>::Int S;
  return x.template as<S>() < S(typename S::element(0));
}

// the float below 1/2: 0.49999997 stays down
WICK_FN F roundg(F x) { return copysigng(truncg(absg(x) + F(0x1.fffffep-2f)), x); }
WICK_FN D roundg(D x) { return copysigng(truncg(absg(x) + D(0x1.fffffffffffffp-2)), x); }
#define WICK_WHOLE(f) \
  template <class E> WICK_FN Vec<E> f(Vec<E> x) { return x; }
WICK_WHOLE(roundg)
WICK_WHOLE(rintg)
WICK_WHOLE(floorg)
WICK_WHOLE(ceilg)
WICK_WHOLE(truncg)
#undef WICK_WHOLE

template <class E> WICK_FN Vec<E> divg(Vec<E> p, Vec<E> q) {
  if constexpr (isFloating<E>) return p / q;
  Vec<E> o;
  for (int i = 0; i < Vec<E>::N; i++) {
    E a = p.r[i], b = q.r[i];
    o.r[i] = b == 0 ? 0 : (E(-1) < E(0) && b == E(-1)) ? E(0 - typename IntegerOf<sizeof(E)>::bits(a)) : E(a / b);
  }
  return o;
}

// On equal operands the bits decide between the zeros: and keeps +0 for max, or keeps -0 for min.
template <class S, class E> WICK_FN Vec<E> maxg(Vec<E> p, Vec<E> q) {
  Vec<E> m = select(p > q, p, q);
  if constexpr (isFloating<E>) {
    typedef typename Vec<E>::Bits U;
    m = select(p == q, (p.template as<U>() & q.template as<U>()).template as<Vec<E>>(), m);
    if constexpr (Same<S, half>::value || Same<S, bfloat>::value) m = select(p != p, p, m);
    else m = select(q != q, p, m);
  }
  return m;
}
template <class S, class E> WICK_FN Vec<E> ming(Vec<E> p, Vec<E> q) {
  Vec<E> m = select(p < q, p, q);
  if constexpr (isFloating<E>) {
    typedef typename Vec<E>::Bits U;
    m = select(p == q, (p.template as<U>() | q.template as<U>()).template as<Vec<E>>(), m);
    if constexpr (Same<S, half>::value || Same<S, bfloat>::value) m = select(p != p, p, m);
    else m = select(q != q, p, m);
  }
  return m;
}

#if defined(WICK_ISA_NEON)
// The instructions have both rules: FMAXNM passes NaN over, FMAX keeps it.
#define WICK_EXTREMUM(f, E, RAW, QUIET, LOUD)                                                                         \
  template <class S> WICK_FN Vec<E> f(Vec<E> p, Vec<E> q) {                                                           \
    if constexpr (Same<S, half>::value || Same<S, bfloat>::value) return Vec<E>((Vec<E>::R)LOUD((RAW)p.r, (RAW)q.r)); \
    else return Vec<E>((Vec<E>::R)QUIET((RAW)p.r, (RAW)q.r));                                                         \
  }
WICK_EXTREMUM(maxg, float, float32x4_t, vmaxnmq_f32, vmaxq_f32)
WICK_EXTREMUM(ming, float, float32x4_t, vminnmq_f32, vminq_f32)
WICK_EXTREMUM(maxg, double, float64x2_t, vmaxnmq_f64, vmaxq_f64)
WICK_EXTREMUM(ming, double, float64x2_t, vminnmq_f64, vminq_f64)
#undef WICK_EXTREMUM
#endif

// Whether every |x| is below the bound; NaN is not.
WICK_FN bool allWithin(F x, F bound) {
#if defined(WICK_ISA_NEON)
  return vminvq_u32(vcagtq_f32((float32x4_t)bound.r, (float32x4_t)x.r)) != 0;
#else
  return !(!(absg(x) < bound)).any();
#endif
}

// ---- float vectors as pairs of double vectors ----
struct Pair {
  D lo, hi;
};
#if defined(WICK_ISA_NEON)
WICK_FN Pair toDouble(F x) {
  return {D((D::R)vcvt_f64_f32(vget_low_f32((float32x4_t)x.r))), D((D::R)vcvt_high_f64_f32((float32x4_t)x.r))};
}
WICK_FN F toFloat(Pair p) { return F((F::R)vcvt_high_f32_f64(vcvt_f32_f64((float64x2_t)p.lo.r), (float64x2_t)p.hi.r)); }
#elif defined(WICK_ISA_AVX512)
WICK_FN Pair toDouble(F x) {
  __m512 v = (__m512)x.r;
  return {D((D::R)_mm512_cvtps_pd(_mm512_castps512_ps256(v))), D((D::R)_mm512_cvtps_pd(_mm512_extractf32x8_ps(v, 1)))};
}
WICK_FN F toFloat(Pair p) {
  return F((F::R)_mm512_insertf32x8(_mm512_castps256_ps512(_mm512_cvtpd_ps((__m512d)p.lo.r)),
                                    _mm512_cvtpd_ps((__m512d)p.hi.r), 1));
}
#elif defined(WICK_ISA_AVX2)
WICK_FN Pair toDouble(F x) {
  __m256 v = (__m256)x.r;
  return {D((D::R)_mm256_cvtps_pd(_mm256_castps256_ps128(v))), D((D::R)_mm256_cvtps_pd(_mm256_extractf128_ps(v, 1)))};
}
WICK_FN F toFloat(Pair p) {
  return F((F::R)_mm256_insertf128_ps(_mm256_castps128_ps256(_mm256_cvtpd_ps((__m256d)p.lo.r)),
                                      _mm256_cvtpd_ps((__m256d)p.hi.r), 1));
}
#elif defined(WICK_ISA_WASM)
WICK_FN Pair toDouble(F x) {
  v128_t v = (v128_t)x.r;
  return {D((D::R)wasm_f64x2_promote_low_f32x4(v)),
          D((D::R)wasm_f64x2_promote_low_f32x4(wasm_i64x2_shuffle(v, v, 1, 1)))};
}
WICK_FN F toFloat(Pair p) {
  return F((F::R)wasm_i64x2_shuffle(wasm_f32x4_demote_f64x2_zero((v128_t)p.lo.r),
                                    wasm_f32x4_demote_f64x2_zero((v128_t)p.hi.r), 0, 2));
}
#else
WICK_FN Pair toDouble(F x) {
  __m128 v = (__m128)x.r;
  return {D((D::R)_mm_cvtps_pd(v)), D((D::R)_mm_cvtps_pd(_mm_movehl_ps(v, v)))};
}
WICK_FN F toFloat(Pair p) {
  return F((F::R)_mm_movelh_ps(_mm_cvtpd_ps((__m128d)p.lo.r), _mm_cvtpd_ps((__m128d)p.hi.r)));
}
#endif
template <class G> WICK_FN F inDouble(F x, G f) {
  Pair p = toDouble(x);
  return toFloat({f(p.lo), f(p.hi)});
}
template <class E> WICK_FN E sumLanes(Vec<E> v) {
  E s = 0;
  for (int i = 0; i < Vec<E>::N; i++) s += v.r[i];
  return s;
}

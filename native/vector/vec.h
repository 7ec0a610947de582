// SIMD vectors of one width per instruction set: loads that widen small floats, stores that round them once, masks,
// rounding. Included inside an unnamed namespace by files compiled once per instruction set, so that no code of one
// leaks into another.

#if defined(WICK_ISA_AVX512)
constexpr int WIDTH = 64;
#elif defined(WICK_ISA_AVX2)
constexpr int WIDTH = 32;
#else
constexpr int WIDTH = 16;
#endif
#if defined(WICK_ISA_NEON) || defined(WICK_ISA_AVX2) || defined(WICK_ISA_AVX512)
#define WICK_HAS_FMA 1
#endif
#define WICK_FN static inline __attribute__((always_inline))

template <int BYTES> struct IntegerOf;
template <> struct IntegerOf<1> {
  typedef int8_t type;
  typedef uint8_t bits;
};
template <> struct IntegerOf<2> {
  typedef int16_t type;
  typedef uint16_t bits;
};
template <> struct IntegerOf<4> {
  typedef int32_t type;
  typedef uint32_t bits;
};
template <> struct IntegerOf<8> {
  typedef int64_t type;
  typedef uint64_t bits;
};

template <class E, int N> struct RawOf { typedef E type __attribute__((vector_size(N * sizeof(E)))); };
template <class E, int N> using Raw = typename RawOf<E, N>::type;

template <class A, class B> struct Same { static constexpr bool value = false; };
template <class A> struct Same<A, A> { static constexpr bool value = true; };
template <class E> constexpr bool isFloating = Same<E, float>::value || Same<E, double>::value;

// A truth value a lane: all bits set or none, as wide as the lanes it was compared from.
template <int BYTES> struct Mask {
  typedef Raw<typename IntegerOf<BYTES>::type, WIDTH / BYTES> R;
  R r;
  WICK_FN Mask of(R r) {
    Mask m;
    m.r = r;
    return m;
  }
  inline Mask operator&(Mask o) const { return of(r & o.r); }
  inline Mask operator|(Mask o) const { return of(r | o.r); }
  inline Mask operator!() const { return of(~r); }
  inline Mask operator!=(Mask o) const { return of(r ^ o.r); }
  inline Mask operator==(Mask o) const { return of(~(r ^ o.r)); }
  inline bool any() const {
#if defined(WICK_ISA_NEON)
    return vmaxvq_u32((uint32x4_t)r) != 0;
#elif defined(WICK_ISA_AVX512)
    return _mm512_test_epi32_mask((__m512i)r, (__m512i)r) != 0;
#elif defined(WICK_ISA_AVX2)
    return !_mm256_testz_si256((__m256i)r, (__m256i)r);
#elif defined(WICK_ISA_WASM)
    return wasm_v128_any_true((v128_t)r);
#else
    return _mm_movemask_epi8((__m128i)r) != 0;
#endif
  }
};

template <class E> struct Vec {
  static constexpr int N = WIDTH / sizeof(E);
  typedef E element;
  typedef Raw<E, N> R;
  typedef Mask<sizeof(E)> M;
  typedef Vec<typename IntegerOf<sizeof(E)>::type> Int;
  typedef Vec<typename IntegerOf<sizeof(E)>::bits> Bits;
  R r;
  inline Vec() {}
  inline Vec(R raw) : r(raw) {}
  inline Vec(E e) : r(e - R{}) {}
  // A constant or a scalar parameter: integers saturate, so that a bound beyond the type still bounds.
  template <class A> static inline E narrow(A a) {
    if constexpr (isFloating<E>) return E(a);
    else if constexpr (sizeof(E) == 8)
      return a >= 9223372036854775807.0 ? INT64_MAX : a <= -9223372036854775808.0 ? INT64_MIN : a != a ? 0 : E(a);
    else return E(int64_t(a));
  }
  template <class A, class = decltype(A() + 1), class = typename IntegerOf<sizeof(A)>::type>
  inline Vec(A a) : r(narrow(a) - R{}) {}
  WICK_FN Vec load(const E* p) {
    Vec v;
    __builtin_memcpy(&v.r, p, WIDTH);
    return v;
  }
  inline void store(E* p) const { __builtin_memcpy(p, &r, WIDTH); }
  inline E operator[](int i) const { return r[i]; }
  template <class O> inline O as() const {
    O o;
    __builtin_memcpy(&o.r, &r, WIDTH);
    return o;
  }
  inline Vec operator+(Vec o) const { return Vec(R(r + o.r)); }
  inline Vec operator-(Vec o) const { return Vec(R(r - o.r)); }
  inline Vec operator*(Vec o) const { return Vec(R(r * o.r)); }
  inline Vec operator/(Vec o) const { return Vec(R(r / o.r)); }
  inline Vec operator-() const { return Vec(R(-r)); }
  inline Vec operator&(Vec o) const { return Vec(R(r & o.r)); }
  inline Vec operator|(Vec o) const { return Vec(R(r | o.r)); }
  inline Vec operator^(Vec o) const { return Vec(R(r ^ o.r)); }
  inline Vec operator<<(int n) const { return Vec(R(r << n)); }
  inline Vec operator>>(int n) const { return Vec(R(r >> n)); }
  inline Vec& operator+=(Vec o) {
    r += o.r;
    return *this;
  }
  inline M operator<(Vec o) const { return M::of((typename M::R)(r < o.r)); }
  inline M operator<=(Vec o) const { return M::of((typename M::R)(r <= o.r)); }
  inline M operator>(Vec o) const { return M::of((typename M::R)(r > o.r)); }
  inline M operator>=(Vec o) const { return M::of((typename M::R)(r >= o.r)); }
  inline M operator==(Vec o) const { return M::of((typename M::R)(r == o.r)); }
  inline M operator!=(Vec o) const { return M::of((typename M::R)(r != o.r)); }
};
template <class E> struct Vec<Vec<E>>;  // vectors hold scalars

template <int B, class E> WICK_FN Vec<E> select(Mask<B> m, Vec<E> p, Vec<E> q) {
  return Vec<E>(typename Vec<E>::R(m.r ? p.r : q.r));
}

typedef Vec<float> F;
typedef Vec<double> D;
typedef Vec<int32_t> I;

template <class E, class G> WICK_FN Vec<E> eachLane(Vec<E> x, G f) {
  Vec<E> o;
  for (int i = 0; i < Vec<E>::N; i++) o.r[i] = f(x.r[i]);
  return o;
}

// The type computed in: float for the small floats, else the type itself.
template <class S> struct ComputeOf { typedef S type; };
template <> struct ComputeOf<half> { typedef float type; };
template <> struct ComputeOf<bfloat> { typedef float type; };
template <> struct ComputeOf<fp8> { typedef float type; };
template <> struct ComputeOf<bf8> { typedef float type; };
template <class S> using Compute = Vec<typename ComputeOf<S>::type>;

// ---- loads ----
template <class Wide, class Narrow, int N> WICK_FN Raw<Wide, N> widen(const Narrow* p) {
  Raw<Narrow, N> v;
  __builtin_memcpy(&v, p, sizeof v);
  return __builtin_convertvector(v, Raw<Wide, N>);
}

template <class S> WICK_FN Vec<S> load(const S* p) { return Vec<S>::load(p); }

WICK_FN F load(const bfloat* p) {
  typedef Vec<uint32_t> U;
  U bits(widen<uint32_t, uint16_t, F::N>(&p->bits));
  return (bits << 16).as<F>();
}

WICK_FN F load(const half* p) {
#if defined(WICK_ISA_NEON)
  float16x4_t h;
  __builtin_memcpy(&h, p, 8);
  return F((F::R)vcvt_f32_f16(h));
#elif defined(WICK_ISA_AVX512)
  return F((F::R)_mm512_cvtph_ps(_mm256_loadu_si256((const __m256i*)p)));
#elif defined(WICK_ISA_AVX2)
  return F((F::R)_mm256_cvtph_ps(_mm_loadu_si128((const __m128i*)p)));
#else
  typedef Vec<uint32_t> U;
  U h(widen<uint32_t, uint16_t, F::N>(&p->bits));
  U magnitude = (h & U(0x7fffu)) << 13;
  F value = magnitude.as<F>() * F(0x1p112f);  // moves the exponent from bias 15 to 127, denormals included
  U bits = value.as<U>() | select(magnitude >= U(0x0f800000u), U(0x7f800000u), U(0u));
  return (bits | ((h & U(0x8000u)) << 16)).as<F>();
#endif
}

WICK_FN F load(const fp8* p) {
  typedef Vec<uint32_t> U;
  U b(widen<uint32_t, uint8_t, F::N>(&p->bits));
  U magnitude = (b & U(0x7fu)) << 20;
  U bits = (magnitude.as<F>() * F(0x1p120f)).as<U>();
  bits = select((b & U(0x7fu)) == U(0x7fu), U(0x7fc00000u), bits);
  return (bits | ((b & U(0x80u)) << 24)).as<F>();
}

WICK_FN F load(const bf8* p) {
  typedef Vec<uint32_t> U;
  U b(widen<uint32_t, uint8_t, F::N>(&p->bits));
  U magnitude = (b & U(0x7fu)) << 21;
  U bits = (magnitude.as<F>() * F(0x1p112f)).as<U>();
  bits = bits | select(magnitude >= U(0x0f800000u), U(0x7f800000u), U(0u));
  return (bits | ((b & U(0x80u)) << 24)).as<F>();
}

// Any integer storage as 64-bit lanes: for rows whose scalars may not fit the storage type.
template <class S> WICK_FN Vec<int64_t> loadWide(const S* p) {
  return Vec<int64_t>(widen<int64_t, S, Vec<int64_t>::N>(p));
}
template <class S> WICK_FN void storeWide(S* p, Vec<int64_t> v) {
  auto n = __builtin_convertvector(v.r, Raw<S, Vec<int64_t>::N>);
  __builtin_memcpy(p, &n, sizeof n);
}

// A condition in u8 as a mask over lanes of E.
template <class E> WICK_FN Mask<sizeof(E)> loadMask(const uint8_t* p) {
  typedef typename IntegerOf<sizeof(E)>::type L;
  auto v = widen<L, uint8_t, Vec<E>::N>(p);
  return Mask<sizeof(E)>::of((typename Mask<sizeof(E)>::R)(v != Raw<L, Vec<E>::N>{}));
}

// ---- stores ----
template <class S> WICK_FN void store(S* p, Vec<S> v) { v.store(p); }

template <class U16> WICK_FN void storeLow16(U16* p, Vec<uint32_t> bits) {
  auto n = __builtin_convertvector(bits.r, Raw<uint16_t, F::N>);
  __builtin_memcpy(p, &n, sizeof n);
}

WICK_FN void store(bfloat* p, F v) {
  typedef Vec<uint32_t> U;
  U b = v.as<U>();
  U rounded = (b + U(0x7fffu) + ((b >> 16) & U(1u))) >> 16;
  storeLow16(p, select(v == v, rounded, U(0x7fffu)));
}

WICK_FN void store(half* p, F v) {
#if defined(WICK_ISA_NEON)
  float16x4_t h = vcvt_f16_f32((float32x4_t)v.r);
  __builtin_memcpy(p, &h, 8);
#elif defined(WICK_ISA_AVX512)
  _mm256_storeu_si256((__m256i*)p, _mm512_cvtps_ph((__m512)v.r, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
#elif defined(WICK_ISA_AVX2)
  _mm_storeu_si128((__m128i*)p, _mm256_cvtps_ph((__m256)v.r, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
#else
  typedef Vec<uint32_t> U;
  U b = v.as<U>();
  U sign = (b >> 16) & U(0x8000u);
  U a = b & U(0x7fffffffu);
  U normal = (a + U(0xfffu) + ((a >> 13) & U(1u)) - U(112u << 23)) >> 13;
  // Adding 0.5 lines the last half-precision denormal bit up with the last float bit: the adder rounds.
  U denormal = (a.as<F>() + F(0.5f)).as<U>() - U(0x3f000000u);
  U h = select(a < U(113u << 23), denormal, normal);
  h = select(a >= U(0x477ff000u), U(0x7c00u), h);
  h = select(a > U(0x7f800000u), U(0x7fffu), h);
  storeLow16(p, h | sign);
#endif
}

WICK_FN void store(fp8* p, F v) {
  typedef Vec<uint32_t> U;
  U b = v.as<U>();
  U sign = (b >> 24) & U(0x80u);
  U a = b & U(0x7fffffffu);
  U normal = (a + U(0x7ffffu) + ((a >> 20) & U(1u)) - U(120u << 23)) >> 20;
  U denormal = (a.as<F>() + F(0x1p14f)).as<U>() - U(0x46800000u);  // 2^14 has the spacing 2^-9 of fp8 denormals
  U h = select(a < U(121u << 23), denormal, normal);
  h = select(a >= U(0x43e00000u), U(0x7eu), h);
  h = select(a > U(0x7f800000u), U(0x7fu), h) | sign;
  auto n = __builtin_convertvector(h.r, Raw<uint8_t, F::N>);
  __builtin_memcpy(p, &n, sizeof n);
}

WICK_FN void store(bf8* p, F v) {
  typedef Vec<uint32_t> U;
  U b = v.as<U>();
  U sign = (b >> 24) & U(0x80u);
  U a = b & U(0x7fffffffu);
  U normal = (a + U(0xfffffu) + ((a >> 21) & U(1u)) - U(112u << 23)) >> 21;
  U denormal = (a.as<F>() + F(0x1p7f)).as<U>() - U(0x43000000u);  // 2^7 has the spacing 2^-16 of its denormals
  U h = select(a < U(113u << 23), denormal, normal);
  h = select(a >= U(0x47700000u), U(0x7cu), h);
  h = select(a > U(0x7f800000u), U(0x7fu), h) | sign;
  auto n = __builtin_convertvector(h.r, Raw<uint8_t, F::N>);
  __builtin_memcpy(p, &n, sizeof n);
}

template <int B> WICK_FN void store(uint8_t* p, Mask<B> m) {
  auto n = __builtin_convertvector(m.r & 1, Raw<uint8_t, WIDTH / B>);
  __builtin_memcpy(p, &n, sizeof n);
}

// ---- arithmetic the operators lack ----
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

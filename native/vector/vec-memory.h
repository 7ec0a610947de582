// Loads that widen small floats, and stores that round them once. Included after vec.h inside an unnamed namespace.

// ---- loads ----
template <class Wide, class Narrow, int N> WICK_FN Raw<Wide, N> widen(const Narrow* p) {
  Raw<Narrow, N> v;
  __builtin_memcpy(&v, p, sizeof v);
  return __builtin_convertvector(v, Raw<Wide, N>);
}

template <class S> WICK_FN Vec<S> load(const S* p) { return Vec<S>::load(p); }

WICK_FN F load(const bfloat* p) {
#if defined(WICK_ISA_NEON)
  uint16x4_t bits;
  __builtin_memcpy(&bits, p, 8);
  return F((F::R)vshll_n_u16(bits, 16));
#elif defined(WICK_ISA_AVX512)
  // One instruction, of which compilers make four when they are told to convert.
  return F((F::R)_mm512_slli_epi32(_mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i*)p)), 16));
#elif defined(WICK_ISA_AVX2)
  return F((F::R)_mm256_slli_epi32(_mm256_cvtepu16_epi32(_mm_loadu_si128((const __m128i*)p)), 16));
#else
  typedef Vec<uint32_t> U;
  U bits(widen<uint32_t, uint16_t, F::N>(&p->bits));
  return (bits << 16).as<F>();
#endif
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

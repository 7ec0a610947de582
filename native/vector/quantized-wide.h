// One row of activations with AVX-512: two chunks a vector. Sums meet in the same order as with shorter vectors.
// Included by quantized-row.h.

WICK_FN __m512i twice(const void* p) { return _mm512_broadcast_i64x4(_mm256_loadu_si256((const __m256i*)p)); }
WICK_FN __m512i wideEach(char b) { return _mm512_set1_epi8(b); }
// v's words with their first half shifted to the right by A bits and their second half by B, to the left where these
// are negative; bits of neighbours come in.
template <int A, int B> WICK_FN __m512i shifted(__m512i v) {
  static_assert((A >= 0) == (B >= 0) || A * B == 0, "both go the same way");
  constexpr bool LEFT = A < 0 || B < 0;
  const __m512i by = _mm512_inserti64x4(_mm512_set1_epi16(LEFT ? -A : A), _mm256_set1_epi16(LEFT ? -B : B), 1);
  return LEFT ? _mm512_sllv_epi16(v, by) : _mm512_srlv_epi16(v, by);
}
// Bits of `b` where `mask` has them, together with what `a` has.
WICK_FN __m512i withBits(__m512i a, __m512i b, char mask) {
  return _mm512_ternarylogic_epi64(a, b, wideEach(mask), 0xf8);  // a | (b & mask)
}
// 32 values in 16 bytes, of two blocks that are `stride` bytes apart.
WICK_FN __m512i wideNibbles(const uint8_t* b, int stride) {
  const __m512i first = _mm512_broadcast_i32x4(_mm_loadu_si128((const __m128i*)b));
  const __m512i both = _mm512_mask_broadcast_i32x4(first, 0xff00, _mm_loadu_si128((const __m128i*)(b + stride)));
  return _mm512_and_si512(_mm512_srlv_epi64(both, _mm512_setr_epi64(0, 0, 4, 4, 0, 0, 4, 4)), wideEach(15));
}
// Sixteens where the bits of two blocks' 32 are set.
WICK_FN __m512i withFifths(__m512i v, const uint8_t* bits, int stride) {
  const uint64_t both = readAs<uint32_t>(bits) | (uint64_t)readAs<uint32_t>(bits + stride) << 32;
  return _mm512_mask_add_epi8(v, both, v, wideEach(16));
}
// Levels that are LIFTED so that none is negative: what that adds to a product comes off its start.
template <int LIFTED> WICK_FN __m512i wideLevels(Half levels, __m512i index) {
  return _mm512_shuffle_epi8(_mm512_broadcast_i32x4((__m128i)(levels + (Half{} + (int8_t)LIFTED))), index);
}

// The values of chunks C and C + 1, and how much they are lifted. Absent: a format's chunks are taken one by one.
template <class T, int C> struct Two;
struct Plain {
  static constexpr int lifted = 0;
};
template <int C> struct Two<Q4_0, C> : Plain {
  WICK_FN __m512i values(const uint8_t* w) { return wideNibbles(w + C * Q4_0::bytes + 2, Q4_0::bytes); }
};
template <int C> struct Two<Q4_1, C> : Plain {
  WICK_FN __m512i values(const uint8_t* w) { return wideNibbles(w + C * Q4_1::bytes + 4, Q4_1::bytes); }
};
template <int C> struct Two<Q5_0, C> : Plain {
  WICK_FN __m512i values(const uint8_t* w) {
    const uint8_t* b = w + C * Q5_0::bytes;
    return withFifths(wideNibbles(b + 6, Q5_0::bytes), b + 2, Q5_0::bytes);
  }
};
template <int C> struct Two<Q5_1, C> : Plain {
  WICK_FN __m512i values(const uint8_t* w) {
    const uint8_t* b = w + C * Q5_1::bytes;
    return withFifths(wideNibbles(b + 8, Q5_1::bytes), b + 4, Q5_1::bytes);
  }
};
template <int C> struct Two<Q2_K, C> : Plain {
  WICK_FN __m512i values(const uint8_t* w) {
    return _mm512_and_si512(shifted<C % 4 * 2, C % 4 * 2 + 2>(twice(w + 16 + C / 4 * 32)), wideEach(3));
  }
};
template <int C> struct Two<Q3_K, C> : Plain {
  WICK_FN __m512i values(const uint8_t* w) {
    const __m512i low = shifted<C % 4 * 2, C % 4 * 2 + 2>(twice(w + 32 + C / 4 * 32));
    return withBits(_mm512_and_si512(low, wideEach(3)), shifted<C - 2, C - 1>(twice(w)), 4);
  }
};
template <int C> struct Two<Q4_K, C> : Plain {
  WICK_FN __m512i values(const uint8_t* w) {
    return _mm512_and_si512(shifted<0, 4>(twice(w + 16 + C / 2 * 32)), wideEach(15));
  }
};
template <int C> struct Two<Q5_K, C> : Plain {
  WICK_FN __m512i values(const uint8_t* w) {
    const __m512i low = _mm512_and_si512(shifted<0, 4>(twice(w + 48 + C / 2 * 32)), wideEach(15));
    return withBits(low, shifted<C - 4, C - 3>(twice(w + 16)), 16);
  }
};
template <int C> struct Two<Q6_K, C> : Plain {
  WICK_FN __m512i values(const uint8_t* w) {
    const __m512i v = _mm512_loadu_si512(w + C / 4 * 64), top = twice(w + 128 + C / 4 * 32);
    const __m512i low = _mm512_and_si512(C % 4 ? _mm512_srli_epi16(v, 4) : v, wideEach(15));
    return withBits(low, C % 4 ? shifted<0, 2>(top) : shifted<-4, -2>(top), 48);
  }
};
template <int C> struct Two<MXFP4, C> {
  static constexpr int lifted = 12;
  WICK_FN __m512i values(const uint8_t* w) {
    return wideLevels<lifted>(FP4_LEVELS, wideNibbles(w + C * MXFP4::bytes + 1, MXFP4::bytes));
  }
};
template <int C> struct Two<NVFP4, C> {
  static constexpr int lifted = 12;
  WICK_FN __m512i values(const uint8_t* w) {
    const __m512i both = _mm512_castsi256_si512(_mm256_loadu_si256((const __m256i*)(w + C / 2 * NVFP4::bytes + 4)));
    const __m512i eights = _mm512_permutexvar_epi64(_mm512_setr_epi64(0, 0, 1, 1, 2, 2, 3, 3), both);
    const __m512i nibbles = _mm512_srlv_epi64(eights, _mm512_setr_epi64(0, 4, 0, 4, 0, 4, 0, 4));
    return wideLevels<lifted>(FP4_LEVELS, _mm512_and_si512(nibbles, wideEach(15)));
  }
};
#if defined(__AVX512VNNI__)  // elsewhere sums of two such products have no room
template <int C> struct Two<IQ4_NL, C> {
  static constexpr int lifted = 127;
  WICK_FN __m512i values(const uint8_t* w) {
    return wideLevels<lifted>(IQ4_LEVELS, wideNibbles(w + C * IQ4_NL::bytes + 2, IQ4_NL::bytes));
  }
};
template <int C> struct Two<IQ4_XS, C> {
  static constexpr int lifted = 127;
  WICK_FN __m512i values(const uint8_t* w) { return wideLevels<lifted>(IQ4_LEVELS, wideNibbles(w + 8 + 16 * C, 16)); }
};
#endif

// Whole products by fours, added to `start`.
WICK_FN __m512i wideDot(__m512i start, __m512i w, __m512i a) {
#if defined(__AVX512VNNI__)
  return _mm512_dpbusd_epi32(start, w, a);
#else
  return _mm512_add_epi32(start, _mm512_madd_epi16(_mm512_maddubs_epi16(w, a), _mm512_set1_epi16(1)));
#endif
}
// Chunks C to COUNT of a batch, with a factor for each: those of the first halves, then of the second ones.
template <class T, int C, int COUNT>
WICK_FN void addWide(const uint8_t* w, const int8_t* q, const int32_t* starts, __m512 factors, __m512 (&acc)[2]) {
  constexpr int E = T::halves ? 8 : 0, LIFTED = Two<T, C>::lifted;
  __m512i values, a, start = _mm512_setzero_si512();
  if constexpr (C + 1 < COUNT) {
    values = Two<T, C>::values(w);
    a = _mm512_loadu_si512(q + 32 * C);
    if (LIFTED) start = _mm512_loadu_si512(starts + 8 * C);
  } else {
    const Bytes lone = T::values(w + C / T::chunks * T::bytes, C % T::chunks) + (Bytes)each(LIFTED);
    values = _mm512_zextsi256_si512((__m256i)lone);
    a = _mm512_zextsi256_si512((__m256i)loadBytes(q + 32 * C));
    if (LIFTED) start = _mm512_zextsi256_si512((__m256i)loadBytes(starts + 8 * C));
  }
  const __m512i at = _mm512_setr_epi32(C, C, C, C, C + E, C + E, C + E, C + E, C + 1, C + 1, C + 1, C + 1, C + 1 + E,
                                       C + 1 + E, C + 1 + E, C + 1 + E);
  __m512& to = acc[C % 4 / 2];
  to = _mm512_fmadd_ps(_mm512_cvtepi32_ps(wideDot(start, values, a)), _mm512_permutexvar_ps(at, factors), to);
  if constexpr (C + 2 < COUNT) addWide<T, C + 2, COUNT>(w, q, starts, factors, acc);
}
template <class T> struct WideSums {
  static constexpr int lifted = Two<T, 0>::lifted;
  __m512 acc[2];
  template <int COUNT>
  __attribute__((always_inline)) void add(const uint8_t* w, const int8_t* q, const int32_t* starts, Floats d,
                                          Floats e) {
    const __m512 first = _mm512_zextps256_ps512((__m256)d);
    addWide<T, 0, COUNT>(w, q, starts, T::halves ? _mm512_insertf32x8(first, (__m256)e, 1) : first, acc);
  }
};
template <> struct RunningSums<Q4_0> : WideSums<Q4_0> {};
template <> struct RunningSums<Q4_1> : WideSums<Q4_1> {};
template <> struct RunningSums<Q5_0> : WideSums<Q5_0> {};
template <> struct RunningSums<Q5_1> : WideSums<Q5_1> {};
template <> struct RunningSums<Q2_K> : WideSums<Q2_K> {};
template <> struct RunningSums<Q3_K> : WideSums<Q3_K> {};
template <> struct RunningSums<Q4_K> : WideSums<Q4_K> {};
template <> struct RunningSums<Q5_K> : WideSums<Q5_K> {};
template <> struct RunningSums<Q6_K> : WideSums<Q6_K> {};
template <> struct RunningSums<MXFP4> : WideSums<MXFP4> {};
template <> struct RunningSums<NVFP4> : WideSums<NVFP4> {};
#if defined(__AVX512VNNI__)
template <> struct RunningSums<IQ4_NL> : WideSums<IQ4_NL> {};
template <> struct RunningSums<IQ4_XS> : WideSums<IQ4_XS> {};
#endif

// ggml's block formats as the vector layer reads them: 32 whole numbers at a time, with the scales (and minima) of
// their halves.
//   value = d * (q - offset) - m
// A format says how many chunks of 32 its block has, whether the halves of a chunk differ in scale, whether there are
// minima, whether a q may be negative, and gives two functions: scales<BLOCKS>(block, s) for blocks that lie one behind
// another, up to eight chunks, and values(block, chunk) for the q of one chunk.

typedef int8_t Bytes __attribute__((vector_size(32)));
typedef uint8_t UBytes __attribute__((vector_size(32)));
typedef int8_t Half __attribute__((vector_size(16)));
typedef uint8_t UHalf __attribute__((vector_size(16)));
// One for each of eight chunks.
typedef int32_t Ints __attribute__((vector_size(32)));
typedef float Floats __attribute__((vector_size(32)));
typedef int16_t Words __attribute__((vector_size(16)));
typedef uint32_t Fours __attribute__((vector_size(16)));
typedef uint64_t Eights __attribute__((vector_size(16)));

template <class E> inline E readAs(const void* p) {
  E e;
  memcpy(&e, p, sizeof e);
  return e;
}
inline Bytes loadBytes(const void* p) { return readAs<Bytes>(p); }
inline UBytes loadUnsigned(const void* p) { return (UBytes)loadBytes(p); }
inline UBytes each(uint8_t b) { return UBytes{} + b; }
inline Half halfOf(Bytes v, int h) { return readAs<Half>(reinterpret_cast<const char*>(&v) + 16 * h); }
inline Bytes joined(Half low, Half high) {
#if defined(__AVX2__)
  return (Bytes)_mm256_inserti128_si256(_mm256_castsi128_si256((__m128i)low), (__m128i)high, 1);
#else
  Bytes v;
  memcpy(&v, &low, 16);
  memcpy(reinterpret_cast<char*>(&v) + 16, &high, 16);
  return v;
#endif
}
inline Bytes low4(UBytes v) { return (Bytes)(v & each(15)); }
inline Bytes high4(UBytes v) { return (Bytes)(v >> each(4)); }
// 32 values in 16 bytes: the low halves of all, then the high ones.
inline Bytes nibbles(const void* p) {
#if defined(__AVX2__)
  const __m256i twice = _mm256_broadcastsi128_si256(_mm_loadu_si128((const __m128i*)p));
  return low4((UBytes)_mm256_srlv_epi64(twice, _mm256_setr_epi64x(0, 0, 4, 4)));
#else
  const UHalf v = readAs<UHalf>(p);
  return joined((Half)(v & 15), (Half)(v >> 4));
#endif
}
inline Bytes lookUp(Half table, Bytes index) {
#if defined(__AVX2__)
  return (Bytes)_mm256_shuffle_epi8(_mm256_broadcastsi128_si256((__m128i)table), (__m256i)index);
#else
  Half out[2];
  for (int h = 0; h < 2; h++) {
    const Half at = halfOf(index, h);
#if defined(__aarch64__)
    out[h] = (Half)vqtbl1q_s8((int8x16_t)table, (uint8x16_t)at);
#elif defined(WICK_ISA_WASM)
    out[h] = (Half)wasm_i8x16_swizzle((v128_t)table, (v128_t)at);
#else
    for (int j = 0; j < 16; j++) out[h][j] = table[at[j]];
#endif
  }
  return joined(out[0], out[1]);
#endif
}
// 32 bits at p, bit j to bit 4 of byte j.
inline Bytes fifthBits(const uint8_t* p) {
#if defined(WICK_ISA_AVX512)
  return (Bytes)_mm256_maskz_set1_epi8(readAs<uint32_t>(p), 16);
#else
  const Bytes of = {0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1, 2, 2, 2, 2, 2, 2, 2, 2, 3, 3, 3, 3, 3, 3, 3, 3};
  const UBytes bit = {1, 2, 4, 8, 16, 32, 64, 128, 1, 2, 4, 8, 16, 32, 64, 128,
                      1, 2, 4, 8, 16, 32, 64, 128, 1, 2, 4, 8, 16, 32, 64, 128};
  Half bits = {};
  memcpy(&bits, p, 4);
  return (Bytes)((UBytes)(((UBytes)lookUp(bits, of) & bit) == bit) & each(16));
#endif
}

// Of the halves of eight chunks; the second ones only where they differ.
struct Scales {
  Floats d[2], m[2];
};
inline Floats floatsOf(Ints v) { return __builtin_convertvector(v, Floats); }
// COUNT elements that are `stride` bytes apart.
template <class V, int COUNT> inline V every(const uint8_t* p, int stride) {
  V v = {};
#pragma GCC unroll 8
  for (int i = 0; i < COUNT; i++) {
    auto element = v[0];
    memcpy(&element, p + i * stride, sizeof element);
    v[i] = element;
  }
  return v;
}
// Eight floats of 16 bits.
inline Floats f16s(Words v) {
#if defined(__AVX2__)
  return (Floats)_mm256_cvtph_ps((__m128i)v);
#else
  half h[8];
  memcpy(h, &v, sizeof h);
  const F halves[2] = {load(h), load(h + 4)};
  return readAs<Floats>(halves);
#endif
}
#if defined(WICK_ISA_AVX512)
// Two bytes of each of eight blocks that lie one behind another: all of them are in two vectors.
constexpr int CLOSE = 20;  // bytes of a block
inline Words wordsOf(const uint8_t* p, int bytes) {
  const auto at = [&](int i) { return (short)(i < 4 ? i * bytes / 2 : 32 + (i - 4) * bytes / 2); };
  const __m128i places = _mm_setr_epi16(at(0), at(1), at(2), at(3), at(4), at(5), at(6), at(7));
  return (Words)_mm512_castsi512_si128(_mm512_permutex2var_epi16(_mm512_loadu_si512(p), _mm512_castsi128_si512(places),
                                                                 _mm512_loadu_si512(p + 4 * bytes)));
}
#endif
template <int COUNT> inline Floats f16s(const uint8_t* p, int stride = 0) {
#if defined(WICK_ISA_AVX512)
  if (COUNT == 8 && stride <= CLOSE) return f16s(wordsOf(p, stride));
#endif
  return f16s(every<Words, COUNT>(p, stride));
}
inline float f16At(const uint8_t* p) { return f16s<1>(p)[0]; }
// The first eight bytes.
inline Ints bytesOf(UHalf v) {
#if defined(__AVX2__)
  return (Ints)_mm256_cvtepu8_epi32((__m128i)v);
#else
  return Ints{v[0], v[1], v[2], v[3], v[4], v[5], v[6], v[7]};
#endif
}
// The first byte of each of COUNT blocks.
template <int COUNT> inline Ints firstBytes(const uint8_t* p, int bytes) {
#if defined(WICK_ISA_AVX512)
  if (COUNT == 8 && bytes == 17) {  // every second one is the upper half of a word
    const __m128i words = (__m128i)wordsOf(p, bytes);
    return (Ints)_mm256_and_si256(
        _mm256_srlv_epi32(_mm256_cvtepu16_epi32(words), _mm256_setr_epi32(0, 8, 0, 8, 0, 8, 0, 8)),
        _mm256_set1_epi32(255));
  }
#endif
  return bytesOf(every<UHalf, COUNT>(p, bytes));
}
// Two bytes for each of eight chunks.
inline Ints pairsOf(Words v) { return __builtin_convertvector(v, Ints); }

struct Q4_0 {
  static constexpr int id = 2, chunks = 1, bytes = 18, offset = 8;
  static constexpr bool halves = false, minima = false, negative = false;
  template <int BLOCKS> static void scales(const uint8_t* b, Scales& s) { s.d[0] = f16s<BLOCKS>(b, bytes); }
  static Bytes values(const uint8_t* b, int) { return nibbles(b + 2); }
};
struct Q4_1 {
  static constexpr int id = 3, chunks = 1, bytes = 20, offset = 0;
  static constexpr bool halves = false, minima = true, negative = false;
  template <int BLOCKS> static void scales(const uint8_t* b, Scales& s) {
    s.d[0] = f16s<BLOCKS>(b, bytes);
    s.m[0] = -f16s<BLOCKS>(b + 2, bytes);
  }
  static Bytes values(const uint8_t* b, int) { return nibbles(b + 4); }
};
struct Q5_0 {
  static constexpr int id = 6, chunks = 1, bytes = 22, offset = 16;
  static constexpr bool halves = false, minima = false, negative = false;
  template <int BLOCKS> static void scales(const uint8_t* b, Scales& s) { s.d[0] = f16s<BLOCKS>(b, bytes); }
  static Bytes values(const uint8_t* b, int) { return fifthBits(b + 2) | nibbles(b + 6); }
};
struct Q5_1 {
  static constexpr int id = 7, chunks = 1, bytes = 24, offset = 0;
  static constexpr bool halves = false, minima = true, negative = false;
  template <int BLOCKS> static void scales(const uint8_t* b, Scales& s) {
    s.d[0] = f16s<BLOCKS>(b, bytes);
    s.m[0] = -f16s<BLOCKS>(b + 2, bytes);
  }
  static Bytes values(const uint8_t* b, int) { return fifthBits(b + 4) | nibbles(b + 8); }
};
struct Q8_0 {
  static constexpr int id = 8, chunks = 1, bytes = 34, offset = 0;
  static constexpr bool halves = false, minima = false, negative = true;
  template <int BLOCKS> static void scales(const uint8_t* b, Scales& s) { s.d[0] = f16s<BLOCKS>(b, bytes); }
  static Bytes values(const uint8_t* b, int) { return loadBytes(b + 2); }
};

struct Q2_K {
  static constexpr int id = 10, chunks = 8, bytes = 84, offset = 0;
  static constexpr bool halves = true, minima = true, negative = false;
  template <int> static void scales(const uint8_t* b, Scales& s) {
    const Ints both = pairsOf(readAs<Words>(b));
    for (int h = 0; h < 2; h++) {
      s.d[h] = f16At(b + 80) * floatsOf(both >> 8 * h & 15);
      s.m[h] = f16At(b + 82) * floatsOf(both >> (8 * h + 4) & 15);
    }
  }
  static Bytes values(const uint8_t* b, int c) {
    return (Bytes)(loadUnsigned(b + 16 + (c / 4) * 32) >> each(2 * (c & 3)) & each(3));
  }
};
struct Q3_K {
  static constexpr int id = 11, chunks = 8, bytes = 110, offset = 4;
  static constexpr bool halves = true, minima = false, negative = false;
  template <int> static void scales(const uint8_t* b, Scales& s) {
    constexpr uint64_t FOUR = 0x0f0f0f0f0f0f0f0f, TWO = 0x0303030303030303;
    const uint64_t low = readAs<uint64_t>(b + 96), top = readAs<uint32_t>(b + 104), tops = top | top >> 2 << 32;
    const Eights six = {(low & FOUR) | (tops & TWO) << 4, (low >> 4 & FOUR) | (tops >> 4 & TWO) << 4};
    const Ints both = pairsOf((Words)six);
    for (int h = 0; h < 2; h++) s.d[h] = f16At(b + 108) * floatsOf((both >> 8 * h & 63) - 32);
  }
  static Bytes values(const uint8_t* b, int c) {
    const UBytes low = loadUnsigned(b + 32 + (c / 4) * 32) >> each(2 * (c & 3)) & each(3);
    const UBytes high = loadUnsigned(b) >> each(c) & each(1);  // a set bit means that no 4 is taken off
    return (Bytes)(low | high << each(2));
  }
};

// Eight pairs of six bits in twelve bytes.
inline void sixBits(const uint8_t* b, Scales& s) {
  const uint32_t d = readAs<uint32_t>(b + 4), m = readAs<uint32_t>(b + 8), rest = readAs<uint32_t>(b + 12);
  const auto six = [](uint32_t v, uint32_t low) {
    const Fours all = {v & 0x3f3f3f3f, (low & 0x0f0f0f0f) | (v >> 2 & 0x30303030)};
    return floatsOf(bytesOf((UHalf)all));
  };
  s.d[0] = f16At(b) * six(d, rest);
  s.m[0] = f16At(b + 2) * six(m, rest >> 4);
}
struct Q4_K {
  static constexpr int id = 12, chunks = 8, bytes = 144, offset = 0;
  static constexpr bool halves = false, minima = true, negative = false;
  template <int> static void scales(const uint8_t* b, Scales& s) { sixBits(b, s); }
  static Bytes values(const uint8_t* b, int c) {
    const UBytes v = loadUnsigned(b + 16 + (c / 2) * 32);
    return c & 1 ? high4(v) : low4(v);
  }
};
struct Q5_K {
  static constexpr int id = 13, chunks = 8, bytes = 176, offset = 0;
  static constexpr bool halves = false, minima = true, negative = false;
  template <int> static void scales(const uint8_t* b, Scales& s) { sixBits(b, s); }
  static Bytes values(const uint8_t* b, int c) {
    const UBytes v = loadUnsigned(b + 48 + (c / 2) * 32), high = loadUnsigned(b + 16) >> each(c) & each(1);
    return (c & 1 ? high4(v) : low4(v)) | (Bytes)(high << each(4));
  }
};
struct Q6_K {
  static constexpr int id = 14, chunks = 8, bytes = 210, offset = 32;
  static constexpr bool halves = true, minima = false, negative = false;
  template <int> static void scales(const uint8_t* b, Scales& s) {
    const Ints both = pairsOf(readAs<Words>(b + 192));
    s.d[0] = f16At(b + 208) * floatsOf(both << 24 >> 24);
    s.d[1] = f16At(b + 208) * floatsOf(both >> 8);
  }
  static Bytes values(const uint8_t* b, int c) {
    const int half = c / 4, part = c & 3;
    const UBytes v = loadUnsigned(b + half * 64 + (part & 1) * 32);
    const UBytes top = loadUnsigned(b + 128 + half * 32) >> each(2 * part) & each(3);
    return (part > 1 ? high4(v) : low4(v)) | (Bytes)(top << each(4));
  }
};
struct Q8_K {
  static constexpr int id = 15, chunks = 8, bytes = 292, offset = 0;
  static constexpr bool halves = false, minima = false, negative = true;
  template <int> static void scales(const uint8_t* b, Scales& s) { s.d[0] = readAs<float>(b) - Floats{}; }
  static Bytes values(const uint8_t* b, int c) { return loadBytes(b + 4 + c * 32); }
};

const Half IQ4_LEVELS = {-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113};
const Half FP4_LEVELS = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};  // doubled
struct IQ4_NL {
  static constexpr int id = 20, chunks = 1, bytes = 18, offset = 0;
  static constexpr bool halves = false, minima = false, negative = true;
  template <int BLOCKS> static void scales(const uint8_t* b, Scales& s) { s.d[0] = f16s<BLOCKS>(b, bytes); }
  static Bytes values(const uint8_t* b, int) { return lookUp(IQ4_LEVELS, nibbles(b + 2)); }
};
struct IQ4_XS {
  static constexpr int id = 23, chunks = 8, bytes = 136, offset = 0;
  static constexpr bool halves = false, minima = false, negative = true;
  template <int> static void scales(const uint8_t* b, Scales& s) {
    const Ints low = Ints{} + readAs<int32_t>(b + 4), high = Ints{} + readAs<uint16_t>(b + 2),
               at = {0, 1, 2, 3, 4, 5, 6, 7};
    s.d[0] = f16At(b) * floatsOf(((low >> 4 * at & 15) | (high >> 2 * at & 3) << 4) - 32);
  }
  static Bytes values(const uint8_t* b, int c) { return lookUp(IQ4_LEVELS, nibbles(b + 8 + 16 * c)); }
};
struct MXFP4 {
  static constexpr int id = 39, chunks = 1, bytes = 17, offset = 0;
  static constexpr bool halves = false, minima = false, negative = true;
  template <int BLOCKS> static void scales(const uint8_t* b, Scales& s) {
    const Ints e = firstBytes<BLOCKS>(b, bytes);
    s.d[0] = (Floats)(e < 2 ? Ints{} + 0x00200000 << e : (e - 1) << 23);  // half of 2^(e - 127)
  }
  static Bytes values(const uint8_t* b, int) { return lookUp(FP4_LEVELS, nibbles(b + 1)); }
};
struct NVFP4 {
  static constexpr int id = 40, chunks = 2, bytes = 36, offset = 0;
  static constexpr bool halves = true, minima = false, negative = true;
  template <int BLOCKS> static void scales(const uint8_t* b, Scales& s) {
    const Ints both = pairsOf((Words)every<Fours, BLOCKS>(b, bytes));
    for (int h = 0; h < 2; h++) {  // halved: the levels are doubled
      const Ints code = both >> 8 * h & 127;
      const Floats d = code < 8 ? floatsOf(code) * 0x1p-10f : (Floats)((code << 20) + (119 << 23));
      s.d[h] = (Floats)((Ints)d & (code != 127));
    }
  }
  // A sub-block of 16 has eight bytes: their low nibbles are its first eight values.
  static Bytes values(const uint8_t* b, int c) {
    const Bytes v = nibbles(b + 4 + 16 * c);  // low: 0 to 7 of both sub-blocks, high: 8 to 15 of both
    typedef int64_t Quarters __attribute__((vector_size(32)));
    const Quarters q = (Quarters)v;
    return lookUp(FP4_LEVELS, (Bytes)Quarters{q[0], q[2], q[1], q[3]});
  }
};

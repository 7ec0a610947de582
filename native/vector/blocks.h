// ggml's block formats as the vector layer reads them: 32 whole numbers at a time, with the scales (and minima) of
// their halves.
//   value = d * q - m
// A format says how many chunks of 32 its block has, whether the halves of a chunk differ in scale, whether there are
// minima, and gives two functions: scales(block, s) for the whole block, values(block, chunk) for one chunk.

typedef int8_t Bytes __attribute__((vector_size(32)));
typedef uint8_t UBytes __attribute__((vector_size(32)));
typedef int8_t Half __attribute__((vector_size(16)));
typedef uint8_t UHalf __attribute__((vector_size(16)));

inline Bytes loadBytes(const void* p) {
  Bytes v;
  memcpy(&v, p, 32);
  return v;
}
inline UBytes loadUnsigned(const void* p) { return (UBytes)loadBytes(p); }
inline UBytes each(uint8_t b) { return UBytes{} + b; }
inline Half halfOf(Bytes v, int h) {
  Half x;
  memcpy(&x, reinterpret_cast<const char*>(&v) + 16 * h, 16);
  return x;
}
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
  UHalf v;
  memcpy(&v, p, 16);
  typedef uint16_t Words __attribute__((vector_size(16)));
  return low4((UBytes)joined((Half)v, (Half)(UHalf)((Words)v >> 4)));
}
inline float f16At(const uint8_t* p) {
  uint16_t bits;
  memcpy(&bits, p, 2);
#if defined(__aarch64__)
  __fp16 h;
  memcpy(&h, &bits, 2);
  return (float)h;
#elif defined(__F16C__)
  return _cvtsh_ss(bits);
#else
  const uint32_t sign = (uint32_t)(bits & 0x8000) << 16, exponent = bits >> 10 & 31, mantissa = bits & 1023;
  uint32_t word = sign | (exponent + 112) << 23 | mantissa << 13;
  if (exponent == 31) word = sign | 0x7f800000u | mantissa << 13;
  float f;
  if (exponent == 0) {
    f = (float)mantissa * 0x1p-24f;
    return sign ? -f : f;
  }
  memcpy(&f, &word, 4);
  return f;
#endif
}

struct Scales {
  float d[16], m[16];
};  // by half chunk

// 32 bits at p, bit j to bit 4 of byte j.
inline Bytes fifthBits(const uint8_t* p) {
  const UBytes bit = {1, 2, 4, 8, 16, 32, 64, 128, 1, 2, 4, 8, 16, 32, 64, 128,
                      1, 2, 4, 8, 16, 32, 64, 128, 1, 2, 4, 8, 16, 32, 64, 128};
  UBytes spread;
  for (int j = 0; j < 32; j++) spread[j] = p[j / 8];
  return (Bytes)((UBytes)((spread & bit) == bit) & each(16));
}

struct Q4_0 {
  static constexpr int id = 2, chunks = 1, bytes = 18;
  static constexpr bool halves = false, minima = false;
  static void scales(const uint8_t* b, Scales& s) { s.d[0] = f16At(b); }
  static Bytes values(const uint8_t* b, int) { return nibbles(b + 2) - (Bytes)each(8); }
};
struct Q4_1 {
  static constexpr int id = 3, chunks = 1, bytes = 20;
  static constexpr bool halves = false, minima = true;
  static void scales(const uint8_t* b, Scales& s) {
    s.d[0] = f16At(b);
    s.m[0] = -f16At(b + 2);
  }
  static Bytes values(const uint8_t* b, int) { return nibbles(b + 4); }
};
struct Q5_0 {
  static constexpr int id = 6, chunks = 1, bytes = 22;
  static constexpr bool halves = false, minima = false;
  static void scales(const uint8_t* b, Scales& s) { s.d[0] = f16At(b); }
  static Bytes values(const uint8_t* b, int) { return (fifthBits(b + 2) | nibbles(b + 6)) - (Bytes)each(16); }
};
struct Q5_1 {
  static constexpr int id = 7, chunks = 1, bytes = 24;
  static constexpr bool halves = false, minima = true;
  static void scales(const uint8_t* b, Scales& s) {
    s.d[0] = f16At(b);
    s.m[0] = -f16At(b + 2);
  }
  static Bytes values(const uint8_t* b, int) { return fifthBits(b + 4) | nibbles(b + 8); }
};
struct Q8_0 {
  static constexpr int id = 8, chunks = 1, bytes = 34;
  static constexpr bool halves = false, minima = false;
  static void scales(const uint8_t* b, Scales& s) { s.d[0] = f16At(b); }
  static Bytes values(const uint8_t* b, int) { return loadBytes(b + 2); }
};

struct Q2_K {
  static constexpr int id = 10, chunks = 8, bytes = 84;
  static constexpr bool halves = true, minima = true;
  static void scales(const uint8_t* b, Scales& s) {
    const float d = f16At(b + 80), m = f16At(b + 82);
    for (int j = 0; j < 16; j++) {
      s.d[j] = d * (b[j] & 15);
      s.m[j] = m * (b[j] >> 4);
    }
  }
  static Bytes values(const uint8_t* b, int c) {
    return (Bytes)(loadUnsigned(b + 16 + (c / 4) * 32) >> each(2 * (c & 3)) & each(3));
  }
};
struct Q3_K {
  static constexpr int id = 11, chunks = 8, bytes = 110;
  static constexpr bool halves = true, minima = false;
  static void scales(const uint8_t* b, Scales& s) {
    const float d = f16At(b + 108);
    const uint8_t* p = b + 96;
    for (int j = 0; j < 16; j++) {
      const int low = j < 8 ? p[j] & 15 : p[j - 8] >> 4, high = p[8 + (j & 3)] >> (2 * (j / 4)) & 3;
      s.d[j] = d * ((low | high << 4) - 32);
    }
  }
  static Bytes values(const uint8_t* b, int c) {
    const UBytes low = loadUnsigned(b + 32 + (c / 4) * 32) >> each(2 * (c & 3)) & each(3);
    const UBytes high = loadUnsigned(b) >> each(c) & each(1);  // a set bit means that no 4 is taken off
    return (Bytes)(low | high << each(2)) - (Bytes)each(4);
  }
};

// Eight pairs of six bits in twelve bytes.
inline void sixBits(const uint8_t* b, Scales& s) {
  const float d = f16At(b), m = f16At(b + 2);
  const uint8_t* p = b + 4;
  for (int j = 0; j < 4; j++) {
    s.d[2 * j] = d * (p[j] & 63);
    s.m[2 * j] = m * (p[j + 4] & 63);
    s.d[2 * j + 8] = d * ((p[j + 8] & 15) | (p[j] >> 6) << 4);
    s.m[2 * j + 8] = m * (p[j + 8] >> 4 | (p[j + 4] >> 6) << 4);
  }
}
struct Q4_K {
  static constexpr int id = 12, chunks = 8, bytes = 144;
  static constexpr bool halves = false, minima = true;
  static void scales(const uint8_t* b, Scales& s) { sixBits(b, s); }
  static Bytes values(const uint8_t* b, int c) {
    const UBytes v = loadUnsigned(b + 16 + (c / 2) * 32);
    return c & 1 ? high4(v) : low4(v);
  }
};
struct Q5_K {
  static constexpr int id = 13, chunks = 8, bytes = 176;
  static constexpr bool halves = false, minima = true;
  static void scales(const uint8_t* b, Scales& s) { sixBits(b, s); }
  static Bytes values(const uint8_t* b, int c) {
    const UBytes v = loadUnsigned(b + 48 + (c / 2) * 32), high = loadUnsigned(b + 16) >> each(c) & each(1);
    return (c & 1 ? high4(v) : low4(v)) | (Bytes)(high << each(4));
  }
};
struct Q6_K {
  static constexpr int id = 14, chunks = 8, bytes = 210;
  static constexpr bool halves = true, minima = false;
  static void scales(const uint8_t* b, Scales& s) {
    const float d = f16At(b + 208);
    for (int j = 0; j < 16; j++) s.d[j] = d * (int8_t)b[192 + j];
  }
  static Bytes values(const uint8_t* b, int c) {
    const int half = c / 4, part = c & 3;
    const UBytes v = loadUnsigned(b + half * 64 + (part & 1) * 32);
    const UBytes top = loadUnsigned(b + 128 + half * 32) >> each(2 * part) & each(3);
    return ((part > 1 ? high4(v) : low4(v)) | (Bytes)(top << each(4))) - (Bytes)each(32);
  }
};
struct Q8_K {
  static constexpr int id = 15, chunks = 8, bytes = 292;
  static constexpr bool halves = false, minima = false;
  static void scales(const uint8_t* b, Scales& s) {
    float d;
    memcpy(&d, b, 4);
    for (int j = 0; j < 16; j += 2) s.d[j] = d;
  }
  static Bytes values(const uint8_t* b, int c) { return loadBytes(b + 4 + c * 32); }
};

const Half IQ4_LEVELS = {-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113};
const Half FP4_LEVELS = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};  // doubled
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
struct IQ4_NL {
  static constexpr int id = 20, chunks = 1, bytes = 18;
  static constexpr bool halves = false, minima = false;
  static void scales(const uint8_t* b, Scales& s) { s.d[0] = f16At(b); }
  static Bytes values(const uint8_t* b, int) { return lookUp(IQ4_LEVELS, nibbles(b + 2)); }
};
struct IQ4_XS {
  static constexpr int id = 23, chunks = 8, bytes = 136;
  static constexpr bool halves = false, minima = false;
  static void scales(const uint8_t* b, Scales& s) {
    const float d = f16At(b);
    const int high = b[2] | b[3] << 8;
    for (int j = 0; j < 8; j++)
      s.d[2 * j] = d * (((b[4 + j / 2] >> (4 * (j & 1)) & 15) | (high >> (2 * j) & 3) << 4) - 32);
  }
  static Bytes values(const uint8_t* b, int c) { return lookUp(IQ4_LEVELS, nibbles(b + 8 + 16 * c)); }
};
struct MXFP4 {
  static constexpr int id = 39, chunks = 1, bytes = 17;
  static constexpr bool halves = false, minima = false;
  static void scales(const uint8_t* b, Scales& s) {
    const uint32_t bits = b[0] < 2 ? 0x00200000u << b[0] : (uint32_t)(b[0] - 1) << 23;  // half of 2^(b - 127)
    memcpy(&s.d[0], &bits, 4);
  }
  static Bytes values(const uint8_t* b, int) { return lookUp(FP4_LEVELS, nibbles(b + 1)); }
};
struct NVFP4 {
  static constexpr int id = 40, chunks = 2, bytes = 36;
  static constexpr bool halves = true, minima = false;
  static void scales(const uint8_t* b, Scales& s) {
    for (int j = 0; j < 4; j++) {
      const int code = b[j] & 127, exponent = code >> 3, mantissa = code & 7;
      const uint32_t bits = (uint32_t)(exponent + 120 - 1) << 23 | mantissa << 20;  // halved: the levels are doubled
      memcpy(&s.d[j], &bits, 4);
      if (exponent == 0) s.d[j] = mantissa * 0x1p-10f;
      if (code == 127) s.d[j] = 0;
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

// ggml's block formats as the vector layer reads them: 32 whole numbers at a time, with the scales (and minima) of
// their halves.
//   value = d * q - m
// A format says how many chunks of 32 its block has, whether the halves of a chunk differ in scale, whether there are
// minima, and gives two functions: scales(block, s) for the whole block, values(block, chunk, q) for one chunk.

typedef int8_t Bytes __attribute__((vector_size(16)));
typedef uint8_t UBytes __attribute__((vector_size(16)));

inline Bytes loadBytes(const void* p) {
  Bytes v;
  memcpy(&v, p, 16);
  return v;
}
inline UBytes loadUnsigned(const void* p) {
  UBytes v;
  memcpy(&v, p, 16);
  return v;
}
inline UBytes each(uint8_t b) { return UBytes{} + b; }
inline Bytes low4(UBytes v) { return (Bytes)(v & each(15)); }
inline Bytes high4(UBytes v) { return (Bytes)(v >> each(4)); }
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
inline void fifthBits(const uint8_t* p, Bytes q[2]) {
  const UBytes bit = {1, 2, 4, 8, 16, 32, 64, 128, 1, 2, 4, 8, 16, 32, 64, 128};
  for (int h = 0; h < 2; h++) {
    UBytes spread;
    for (int j = 0; j < 16; j++) spread[j] = p[2 * h + j / 8];
    q[h] = (Bytes)((UBytes)((spread & bit) == bit) & each(16));
  }
}

struct Q4_0 {
  static constexpr int id = 2, chunks = 1, bytes = 18;
  static constexpr bool halves = false, minima = false;
  static void scales(const uint8_t* b, Scales& s) { s.d[0] = f16At(b); }
  static void values(const uint8_t* b, int, Bytes q[2]) {
    const UBytes v = loadUnsigned(b + 2);
    q[0] = low4(v) - (Bytes)each(8);
    q[1] = high4(v) - (Bytes)each(8);
  }
};
struct Q4_1 {
  static constexpr int id = 3, chunks = 1, bytes = 20;
  static constexpr bool halves = false, minima = true;
  static void scales(const uint8_t* b, Scales& s) {
    s.d[0] = f16At(b);
    s.m[0] = -f16At(b + 2);
  }
  static void values(const uint8_t* b, int, Bytes q[2]) {
    const UBytes v = loadUnsigned(b + 4);
    q[0] = low4(v);
    q[1] = high4(v);
  }
};
struct Q5_0 {
  static constexpr int id = 6, chunks = 1, bytes = 22;
  static constexpr bool halves = false, minima = false;
  static void scales(const uint8_t* b, Scales& s) { s.d[0] = f16At(b); }
  static void values(const uint8_t* b, int, Bytes q[2]) {
    const UBytes v = loadUnsigned(b + 6);
    fifthBits(b + 2, q);
    q[0] = (q[0] | low4(v)) - (Bytes)each(16);
    q[1] = (q[1] | high4(v)) - (Bytes)each(16);
  }
};
struct Q5_1 {
  static constexpr int id = 7, chunks = 1, bytes = 24;
  static constexpr bool halves = false, minima = true;
  static void scales(const uint8_t* b, Scales& s) {
    s.d[0] = f16At(b);
    s.m[0] = -f16At(b + 2);
  }
  static void values(const uint8_t* b, int, Bytes q[2]) {
    const UBytes v = loadUnsigned(b + 8);
    fifthBits(b + 4, q);
    q[0] = q[0] | low4(v);
    q[1] = q[1] | high4(v);
  }
};
struct Q8_0 {
  static constexpr int id = 8, chunks = 1, bytes = 34;
  static constexpr bool halves = false, minima = false;
  static void scales(const uint8_t* b, Scales& s) { s.d[0] = f16At(b); }
  static void values(const uint8_t* b, int, Bytes q[2]) {
    q[0] = loadBytes(b + 2);
    q[1] = loadBytes(b + 18);
  }
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
  static void values(const uint8_t* b, int c, Bytes q[2]) {
    const uint8_t* p = b + 16 + (c / 4) * 32;
    for (int h = 0; h < 2; h++) q[h] = (Bytes)(loadUnsigned(p + 16 * h) >> each(2 * (c & 3)) & each(3));
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
  static void values(const uint8_t* b, int c, Bytes q[2]) {
    const uint8_t* p = b + 32 + (c / 4) * 32;
    for (int h = 0; h < 2; h++) {
      const UBytes low = loadUnsigned(p + 16 * h) >> each(2 * (c & 3)) & each(3);
      const UBytes high = loadUnsigned(b + 16 * h) >> each(c) & each(1);  // a set bit means that no 4 is taken off
      q[h] = (Bytes)(low | high << each(2)) - (Bytes)each(4);
    }
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
  static void values(const uint8_t* b, int c, Bytes q[2]) {
    const uint8_t* p = b + 16 + (c / 2) * 32;
    for (int h = 0; h < 2; h++) q[h] = c & 1 ? high4(loadUnsigned(p + 16 * h)) : low4(loadUnsigned(p + 16 * h));
  }
};
struct Q5_K {
  static constexpr int id = 13, chunks = 8, bytes = 176;
  static constexpr bool halves = false, minima = true;
  static void scales(const uint8_t* b, Scales& s) { sixBits(b, s); }
  static void values(const uint8_t* b, int c, Bytes q[2]) {
    const uint8_t* p = b + 48 + (c / 2) * 32;
    for (int h = 0; h < 2; h++) {
      const UBytes high = loadUnsigned(b + 16 + 16 * h) >> each(c) & each(1);
      q[h] = (c & 1 ? high4(loadUnsigned(p + 16 * h)) : low4(loadUnsigned(p + 16 * h))) | (Bytes)(high << each(4));
    }
  }
};
struct Q6_K {
  static constexpr int id = 14, chunks = 8, bytes = 210;
  static constexpr bool halves = true, minima = false;
  static void scales(const uint8_t* b, Scales& s) {
    const float d = f16At(b + 208);
    for (int j = 0; j < 16; j++) s.d[j] = d * (int8_t)b[192 + j];
  }
  static void values(const uint8_t* b, int c, Bytes q[2]) {
    const int half = c / 4, part = c & 3;
    const uint8_t* low = b + half * 64 + (part & 1) * 32;
    const uint8_t* high = b + 128 + half * 32;
    for (int h = 0; h < 2; h++) {
      const UBytes v = loadUnsigned(low + 16 * h);
      const UBytes top = loadUnsigned(high + 16 * h) >> each(2 * part) & each(3);
      q[h] = ((part > 1 ? high4(v) : low4(v)) | (Bytes)(top << each(4))) - (Bytes)each(32);
    }
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
  static void values(const uint8_t* b, int c, Bytes q[2]) {
    q[0] = loadBytes(b + 4 + c * 32);
    q[1] = loadBytes(b + 20 + c * 32);
  }
};

const Bytes IQ4_LEVELS = {-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113};
const Bytes FP4_LEVELS = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};  // doubled
inline Bytes lookUp(Bytes table, Bytes index) {
#if defined(__aarch64__)
  return (Bytes)vqtbl1q_s8((int8x16_t)table, (uint8x16_t)index);
#elif defined(__SSSE3__)
  return (Bytes)_mm_shuffle_epi8((__m128i)table, (__m128i)index);
#elif defined(WICK_ISA_WASM)
  return (Bytes)wasm_i8x16_swizzle((v128_t)table, (v128_t)index);
#else
  Bytes out;
  for (int j = 0; j < 16; j++) out[j] = table[index[j]];
  return out;
#endif
}
inline void levels16(const uint8_t* p, Bytes table, Bytes q[2]) {
  const UBytes v = loadUnsigned(p);
  q[0] = lookUp(table, low4(v));
  q[1] = lookUp(table, high4(v));
}
struct IQ4_NL {
  static constexpr int id = 20, chunks = 1, bytes = 18;
  static constexpr bool halves = false, minima = false;
  static void scales(const uint8_t* b, Scales& s) { s.d[0] = f16At(b); }
  static void values(const uint8_t* b, int, Bytes q[2]) { levels16(b + 2, IQ4_LEVELS, q); }
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
  static void values(const uint8_t* b, int c, Bytes q[2]) { levels16(b + 8 + 16 * c, IQ4_LEVELS, q); }
};
struct MXFP4 {
  static constexpr int id = 39, chunks = 1, bytes = 17;
  static constexpr bool halves = false, minima = false;
  static void scales(const uint8_t* b, Scales& s) {
    const uint32_t bits = b[0] < 2 ? 0x00200000u << b[0] : (uint32_t)(b[0] - 1) << 23;  // half of 2^(b - 127)
    memcpy(&s.d[0], &bits, 4);
  }
  static void values(const uint8_t* b, int, Bytes q[2]) { levels16(b + 1, FP4_LEVELS, q); }
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
  static void values(const uint8_t* b, int c, Bytes q[2]) {
    for (int h = 0; h < 2; h++) {
      UBytes v;
      memcpy(&v, b + 4 + 16 * c + 8 * h, 8);
      memcpy(reinterpret_cast<char*>(&v) + 8, &v, 8);
      const UBytes shift = {0, 0, 0, 0, 0, 0, 0, 0, 4, 4, 4, 4, 4, 4, 4, 4};
      q[h] = lookUp(FP4_LEVELS, (Bytes)(v >> shift & each(15)));
    }
  }
};

// The ggml block formats: how each packs its values, and the two things kernels ask of them (packed integers and their
// scales).
#pragma once
#include "portable.h"

// A block is cut into chunks of 32 values, the length of one q8_1 block, and a chunk into 8 quads of 4 values.
// quad(b, c, k) gives four int8 values in one register, in the order of the values they stand for;
// scale(b, c, h) gives the scale of half h of the chunk:  value = d * (q - bias) - m.
struct Scale {
  float d, m;
};

// Where the constant part of a product (m times the sum of the activations) takes that sum from, as Candle does:
// sum: the sum stored in the q8_1 block, made before rounding; parts: the rounded values added up again;
// mixed: parts in matrix-vector products, sum in tiled ones.
enum class Min { none, sum, parts, mixed };

WICK_FN float half_value(u16 bits) { return half_to_float(half{bits}); }

WICK_FN u32 word16(const u16* p, int i) { return p[2 * i] | (u32)p[2 * i + 1] << 16; }

// Bits 0..3 of n go to bit `bit` of the four bytes.
WICK_FN u32 spread(u32 n, int bit) { return ((n & 1u) | (n & 2u) << 7 | (n & 4u) << 14 | (n & 8u) << 21) << bit; }

// Subtracts n (at most 128) from four bytes below 128 without a borrow crossing them.
WICK_FN u32 sub_bytes(u32 x, u32 n) { return ((x | 0x80808080u) - n * 0x01010101u) ^ 0x80808080u; }

struct Q4_0 {
  struct Block {
    u16 d, qs[8];
  };
  static constexpr int chunks = 1, halves = 1, bias = 0;
  static constexpr Min min = Min::sum;
  static WICK_MEMBER u32 quad(const Block& b, int, int k) { return word16(b.qs, k & 3) >> (k & 4) & 0x0F0F0F0Fu; }
  static WICK_MEMBER Scale scale(const Block& b, int, int) { return {half_value(b.d), 8 * half_value(b.d)}; }
};

struct Q4_1 {
  struct Block {
    u16 d, m;
    u32 qs[4];
  };
  static constexpr int chunks = 1, halves = 1, bias = 0;
  static constexpr Min min = Min::sum;
  static WICK_MEMBER u32 quad(const Block& b, int, int k) { return b.qs[k & 3] >> (k & 4) & 0x0F0F0F0Fu; }
  static WICK_MEMBER Scale scale(const Block& b, int, int) { return {half_value(b.d), -half_value(b.m)}; }
};

struct Q5_0 {
  struct Block {
    u16 d, qh[2], qs[8];
  };
  static constexpr int chunks = 1, halves = 1, bias = 16;
  static constexpr Min min = Min::sum;
  static WICK_MEMBER u32 quad(const Block& b, int, int k) {
    return (word16(b.qs, k & 3) >> (k & 4) & 0x0F0F0F0Fu) | spread(word16(b.qh, 0) >> 4 * k, 4);
  }
  static WICK_MEMBER Scale scale(const Block& b, int, int) { return {half_value(b.d), 0}; }
};

struct Q5_1 {
  struct Block {
    u16 d, m;
    u32 qh, qs[4];
  };
  static constexpr int chunks = 1, halves = 1, bias = 0;
  static constexpr Min min = Min::sum;
  static WICK_MEMBER u32 quad(const Block& b, int, int k) {
    return (b.qs[k & 3] >> (k & 4) & 0x0F0F0F0Fu) | spread(b.qh >> 4 * k, 4);
  }
  static WICK_MEMBER Scale scale(const Block& b, int, int) { return {half_value(b.d), -half_value(b.m)}; }
};

struct Q8_0 {
  struct Block {
    u16 d, qs[16];
  };
  static constexpr int chunks = 1, halves = 1, bias = 0;
  static constexpr Min min = Min::none;
  static WICK_MEMBER u32 quad(const Block& b, int, int k) { return word16(b.qs, k); }
  static WICK_MEMBER Scale scale(const Block& b, int, int) { return {half_value(b.d), 0}; }
};

// Activations: d is the scale, s the sum of the 32 values before they were rounded.
struct Q8_1 {
  struct Block {
    u16 d, s;
    u32 qs[8];
  };
};

struct Q2_K {
  struct Block {
    u8 scales[16];
    u32 qs[16];
    u16 d, m;
  };
  static constexpr int chunks = 8, halves = 2, bias = 0;
  static constexpr Min min = Min::parts;
  static WICK_MEMBER u32 quad(const Block& b, int c, int k) {
    return b.qs[8 * (c / 4) + k] >> 2 * (c & 3) & 0x03030303u;
  }
  static WICK_MEMBER Scale scale(const Block& b, int c, int h) {
    int s = b.scales[2 * c + h];
    return {half_value(b.d) * (s & 15), half_value(b.m) * (s >> 4)};
  }
};

struct Q3_K {
  struct Block {
    u16 hmask[16], qs[32];
    u8 scales[12];
    u16 d;
  };
  static constexpr int chunks = 8, halves = 2, bias = 0;
  static constexpr Min min = Min::none;
  static WICK_MEMBER u32 quad(const Block& b, int c, int k) {
    u32 low = word16(b.qs, 8 * (c / 4) + k) >> 2 * (c & 3) & 0x03030303u;
    u32 high = word16(b.hmask, k) >> c & 0x01010101u;
    return sub_bytes(low | high << 2, 4);
  }
  static WICK_MEMBER Scale scale(const Block& b, int c, int h) {
    int s = 2 * c + h;
    int low = b.scales[s & 7] >> (s < 8 ? 0 : 4) & 15, high = b.scales[8 + (s & 3)] >> 2 * (s / 4) & 3;
    return {half_value(b.d) * ((low | high << 4) - 32), 0};
  }
};

// Six-bit scales and minima of q4_K and q5_K: 12 bytes for 8 pairs.
WICK_FN Scale scale_min6(const u8* s, int c, float d, float m) {
  int low = c < 4 ? s[c] & 63 : (s[c + 4] & 15) | s[c - 4] >> 6 << 4;
  int min = c < 4 ? s[c + 4] & 63 : s[c + 4] >> 4 | s[c] >> 6 << 4;
  return {d * low, m * min};
}

struct Q4_K {
  struct alignas(16) Block {  // 144 bytes and a tensor's start is aligned: whole vectors can be loaded
    u16 d, m;
    u8 scales[12];
    u32 qs[32];
  };
  static constexpr int chunks = 8, halves = 1, bias = 0;
  static constexpr Min min = Min::mixed;
  static WICK_MEMBER u32 quad(const Block& b, int c, int k) {
    return b.qs[8 * (c / 2) + k] >> 4 * (c & 1) & 0x0F0F0F0Fu;
  }
  static WICK_MEMBER Scale scale(const Block& b, int c, int) {
    return scale_min6(b.scales, c, half_value(b.d), half_value(b.m));
  }
};

struct Q5_K {
  struct alignas(16) Block {
    u16 d, m;
    u8 scales[12];
    u32 qh[8], qs[32];
  };
  static constexpr int chunks = 8, halves = 1, bias = 0;
  static constexpr Min min = Min::mixed;
  static WICK_MEMBER u32 quad(const Block& b, int c, int k) {
    return (b.qs[8 * (c / 2) + k] >> 4 * (c & 1) & 0x0F0F0F0Fu) | (b.qh[k] >> c & 0x01010101u) << 4;
  }
  static WICK_MEMBER Scale scale(const Block& b, int c, int) {
    return scale_min6(b.scales, c, half_value(b.d), half_value(b.m));
  }
};

struct Q6_K {
  struct Block {
    u16 ql[64], qh[32];
    i8 scales[16];
    u16 d;
  };
  static constexpr int chunks = 8, halves = 2, bias = 0;
  static constexpr Min min = Min::none;
  static WICK_MEMBER u32 quad(const Block& b, int c, int k) {
    int n = c / 4, j = c & 3;
    u32 low = word16(b.ql, 16 * n + 8 * (j & 1) + k) >> 4 * (j >> 1) & 0x0F0F0F0Fu;
    u32 high = word16(b.qh, 8 * n + k) >> 2 * j & 0x03030303u;
    return sub_bytes(low | high << 4, 32);
  }
  static WICK_MEMBER Scale scale(const Block& b, int c, int h) { return {half_value(b.d) * b.scales[2 * c + h], 0}; }
};

struct Q8_K {
  struct Block {
    float d;
    u32 qs[64];
    i16 sums[16];
  };
  static constexpr int chunks = 8, halves = 1, bias = 0;
  static constexpr Min min = Min::none;
  static WICK_MEMBER u32 quad(const Block& b, int c, int k) { return b.qs[8 * c + k]; }
  static WICK_MEMBER Scale scale(const Block& b, int, int) { return {b.d, 0}; }
};

// ---- uneven levels: a nibble names one of sixteen signed bytes ----

// Four bytes of 0 to 15 to the table's bytes; t holds it in four words.
WICK_FN u32 look_up(u32 index, u32 t0, u32 t1, u32 t2, u32 t3) {
#if defined(WICK_NVIDIA) || defined(WICK_AMD)
  const u32 which = index & 0x07070707u, upper = (index >> 3 & 0x01010101u) * 0xffu;
#if defined(WICK_NVIDIA)
  const u32 pairs = (which | which >> 4) & 0x00ff00ffu, select = (pairs | pairs >> 8) & 0xffffu;
  const u32 low = __byte_perm(t0, t1, select), high = __byte_perm(t2, t3, select);
#else
  const u32 low = __builtin_amdgcn_perm(t1, t0, which), high = __builtin_amdgcn_perm(t3, t2, which);
#endif
  return (low & ~upper) | (high & upper);
#else
  const u32 t[4] = {t0, t1, t2, t3};
  u32 out = 0;
  for (int i = 0; i < 32; i += 8) {
    const u32 at = index >> i & 15;
    out |= (t[at / 4] >> 8 * (at % 4) & 0xffu) << i;
  }
  return out;
#endif
}
// -127 -104 -83 -65 -49 -35 -22 -10 1 13 25 38 53 69 89 113
WICK_FN u32 iq4_levels(u32 index) { return look_up(index, 0xbfad9881u, 0xf6eaddcfu, 0x26190d01u, 0x71594535u); }
// Twice the values of a 4-bit float: 0 1 2 3 4 6 8 12 and their opposites.
WICK_FN u32 fp4_levels(u32 index) { return look_up(index, 0x03020100u, 0x0c080604u, 0xfdfeff00u, 0xf4f8fafcu); }

// The same for all nibbles of a word, in their order.
WICK_FN void look_up_paired(u32 w, u32 t0, u32 t1, u32 t2, u32 t3, u32& a, u32& b) {
#if defined(WICK_NVIDIA)
  // A byte permutation takes a selector a nibble.
  const u32 which = w & 0x77777777u, later = which >> 16, up = w << 4;
  u32 first, second;  // all bits of a byte as the highest of a nibble
  asm("prmt.b32 %0, %1, %2, 0xd9c8;" : "=r"(first) : "r"(up), "r"(w));
  asm("prmt.b32 %0, %1, %2, 0xfbea;" : "=r"(second) : "r"(up), "r"(w));
  a = (__byte_perm(t0, t1, which) & ~first) | (__byte_perm(t2, t3, which) & first);
  b = (__byte_perm(t0, t1, later) & ~second) | (__byte_perm(t2, t3, later) & second);
#else
  const u32 low = look_up(w & 0x0f0f0f0fu, t0, t1, t2, t3), high = look_up(w >> 4 & 0x0f0f0f0fu, t0, t1, t2, t3);
  a = (low & 0xffu) | (high & 0xffu) << 8 | (low & 0xff00u) << 8 | (high & 0xff00u) << 16;
  b = (low >> 16 & 0xffu) | (high >> 8 & 0xff00u) | (low >> 8 & 0xff0000u) | (high & 0xff000000u);
#endif
}
// The same in order: the quad of the low nibbles and that of the high ones.
WICK_FN void look_up_both(u32 w, u32 t0, u32 t1, u32 t2, u32 t3, u32& low, u32& high) {
#if defined(WICK_NVIDIA)
  u32 a, b;
  look_up_paired(w, t0, t1, t2, t3, a, b);
  low = __byte_perm(a, b, 0x6420), high = __byte_perm(a, b, 0x7531);
#else
  low = look_up(w & 0x0f0f0f0fu, t0, t1, t2, t3), high = look_up(w >> 4 & 0x0f0f0f0fu, t0, t1, t2, t3);
#endif
}
WICK_FN void iq4_levels(u32 w, u32& low, u32& high) {
  look_up_both(w, 0xbfad9881u, 0xf6eaddcfu, 0x26190d01u, 0x71594535u, low, high);
}
WICK_FN void fp4_levels(u32 w, u32& low, u32& high) {
  look_up_both(w, 0x03020100u, 0x0c080604u, 0xfdfeff00u, 0xf4f8fafcu, low, high);
}
WICK_FN void fp4_levels_paired(u32 w, u32& a, u32& b) {
  look_up_paired(w, 0x03020100u, 0x0c080604u, 0xfdfeff00u, 0xf4f8fafcu, a, b);
}
/** Half of 2^(e - 127), since the levels are doubled; without an exponent for a normal number the second is larger. */
WICK_FN float mxfp4_scale(u8 e) {
  const i32 usual = ((i32)e - 1) * (1 << 23), small = ((i32)e + 1) << 21;
  return bits_as<float>((u32)(usual > small ? usual : small));
}

struct IQ4_NL {
  struct Block {
    u16 d, qs[8];
  };
  static constexpr int chunks = 1, halves = 1, bias = 0;
  static constexpr Min min = Min::none;
  static WICK_MEMBER u32 quad(const Block& b, int, int k) {
    return iq4_levels(word16(b.qs, k & 3) >> (k & 4) & 0x0F0F0F0Fu);
  }
  static WICK_MEMBER Scale scale(const Block& b, int, int) { return {half_value(b.d), 0}; }
};

struct IQ4_XS {
  struct Block {
    u16 d, high;
    u8 low[4];
    u32 qs[32];
  };
  static constexpr int chunks = 8, halves = 1, bias = 0;
  static constexpr Min min = Min::none;
  static WICK_MEMBER u32 quad(const Block& b, int c, int k) {
    return iq4_levels(b.qs[4 * c + (k & 3)] >> (k & 4) & 0x0F0F0F0Fu);
  }
  static WICK_MEMBER Scale scale(const Block& b, int c, int) {
    const int s = (b.low[c / 2] >> 4 * (c & 1) & 15) | (b.high >> 2 * c & 3) << 4;
    return {half_value(b.d) * (s - 32), 0};
  }
};

struct MXFP4 {
  struct Block {
    u8 e, qs[16];
  };
  static constexpr int chunks = 1, halves = 1, bias = 0;
  static constexpr Min min = Min::none;
  static WICK_MEMBER u32 quad(const Block& b, int, int k) {
    const u8* p = b.qs + 4 * (k & 3);
    return fp4_levels((p[0] | p[1] << 8 | p[2] << 16 | (u32)p[3] << 24) >> (k & 4) & 0x0F0F0F0Fu);
  }
  static WICK_MEMBER Scale scale(const Block& b, int, int) { return {mxfp4_scale(b.e), 0}; }
};

struct NVFP4 {
  struct Block {
    u8 d[4];
    u32 qs[8];
  };
  static constexpr int chunks = 2, halves = 2, bias = 0;
  static constexpr Min min = Min::none;
  // Half a chunk is eight bytes, whose low nibbles are its first eight values.
  static WICK_MEMBER u32 quad(const Block& b, int c, int k) {
    return fp4_levels(b.qs[4 * c + 2 * (k / 4) + (k & 1)] >> 2 * (k & 2) & 0x0F0F0F0Fu);
  }
  static WICK_MEMBER Scale scale(const Block& b, int c, int h) {
    const u32 code = b.d[2 * c + h] & 127, exponent = code >> 3, mantissa = code & 7;
    const float tiny = (float)mantissa * 0.0009765625f;
    const float d = exponent == 0 ? tiny : bits_as<float>((exponent + 119) << 23 | mantissa << 20);
    return {code == 127 ? 0.0f : d, 0};
  }
};

static_assert(sizeof(IQ4_NL::Block) == 18 && sizeof(IQ4_XS::Block) == 136, "block size");
static_assert(sizeof(MXFP4::Block) == 17 && sizeof(NVFP4::Block) == 36, "block size");

static_assert(sizeof(Q4_0::Block) == 18 && sizeof(Q4_1::Block) == 20 && sizeof(Q5_0::Block) == 22, "block size");
static_assert(sizeof(Q5_1::Block) == 24 && sizeof(Q8_0::Block) == 34 && sizeof(Q8_1::Block) == 36, "block size");
static_assert(sizeof(Q2_K::Block) == 84 && sizeof(Q3_K::Block) == 110 && sizeof(Q4_K::Block) == 144, "block size");
static_assert(sizeof(Q5_K::Block) == 176 && sizeof(Q6_K::Block) == 210 && sizeof(Q8_K::Block) == 292, "block size");

// Byte i of a quad as a signed number.
WICK_FN int quad_at(u32 quad, int i) { return (i8)(quad >> 8 * i); }

// Quad number q of a row of blocks, as four floats.
template <class Q> WICK_FN void dequantize_quad(const typename Q::Block* row, u64 q, float (&out)[4]) {
  u64 chunk = q / 8;
  const typename Q::Block& b = row[chunk / Q::chunks];
  int c = (int)(chunk % Q::chunks), k = (int)(q % 8);
  Scale s = Q::scale(b, c, k / 4);
  u32 v = Q::quad(b, c, k);
  for (int i = 0; i < 4; i++) out[i] = s.d * (quad_at(v, i) - Q::bias) - s.m;
}

// A chunk in registers, ready for products.
template <class Q> struct Chunk {
  int v[8];
  float d[Q::halves], m[Q::halves];
};

template <class Q> WICK_FN Chunk<Q> load_chunk(const typename Q::Block* row, int chunk) {
  const typename Q::Block& b = row[chunk / Q::chunks];
  int c = chunk % Q::chunks;
  Chunk<Q> out;
  for (int k = 0; k < 8; k++) out.v[k] = (int)Q::quad(b, c, k);
  for (int h = 0; h < Q::halves; h++) {
    Scale s = Q::scale(b, c, h);
    out.d[h] = s.d;
    out.m[h] = s.m + Q::bias * s.d;
  }
  return out;
}

// What a product needs of 32 activations: their scale, and per half the sum that multiplies m.
template <class Q> struct Activation { float d, sum[Q::halves]; };

template <class Q, bool Tiled> WICK_FN Activation<Q> load_activation(const Q8_1::Block& y) {
  Activation<Q> out;
  out.d = half_value(y.d);
  constexpr bool stored = Q::min == Min::sum || (Q::min == Min::mixed && Tiled);
  for (int h = 0; h < Q::halves; h++) {
    int parts = 0;
    for (int k = 0; k < 8 / Q::halves; k++) {
      const int word = (int)y.qs[8 / Q::halves * h + k];
      parts = Tiled ? dp4a(0x01010101, word, parts) : dp4a_here(0x01010101, word, parts);
    }
    out.sum[h] = Q::min == Min::none ? 0 : stored ? half_value(y.s) : out.d * parts;
  }
  return out;
}

// The product of 32 weights with 32 activations.
template <class Q, bool Tiled>
WICK_FN float dot_chunk(const int (&v)[8], const float (&d)[Q::halves], const float (&m)[Q::halves], const int* u,
                        const Activation<Q>& y) {
  float scaled = 0, constant = 0;
  for (int h = 0; h < Q::halves; h++) {
    int sum = 0;
    for (int k = 8 / Q::halves * h; k < 8 / Q::halves * (h + 1); k++)
      sum = Tiled ? dp4a(v[k], u[k], sum) : dp4a_here(v[k], u[k], sum);
    scaled += d[h] * sum;
    if (Q::min != Min::none) constant += m[h] * y.sum[h];
  }
  return Q::min == Min::none ? y.d * scaled : y.d * scaled - constant;
}

// Weights in ggml's blocks as a lane takes them from a tile in shared memory (weight-stream.h): a unit of two or four
// chunks (32 values), from any byte on.
#pragma once
#include "matrix.h"
#include "rounded.h"

/** An address in shared memory that stays in a register: compilers would ask for it anew before every use. */
template <class P> WICK_FN P* kept_shared(P* p) {
#if defined(MATRIX_MMA)
  asm volatile("" : "+l"(p));
  __builtin_assume(__isShared(p));
#endif
  return p;
}

/** The word that begins `shift` bits (below 32) into low, followed by high. */
WICK_FN u32 funnel(u32 low, u32 high, u32 shift) {
#if defined(WICK_NVIDIA)
  return __funnelshift_r(low, high, shift);
#elif defined(WICK_AMD)
  return __builtin_amdgcn_alignbit(high, low, shift);
#else
  return (u32)(((u64)high << 32 | low) >> shift);
#endif
}
/** d times byte i of a word. */
WICK_FN float times_byte(float d, u32 w, int i) {
#if defined(WICK_NVIDIA)
  // 2^23 and the byte is a float whose last bits are the byte.
  return fmaf(d, bits_as<float>(__byte_perm(w, 0x4b000000u, 0x7440 | i)), -8388608.0f * d);
#else
  return d * (float)(w >> 8 * i & 255);
#endif
}
/** d times the signed byte i of a word. */
WICK_FN float times_signed_byte(float d, u32 w, int i) {
#if defined(WICK_NVIDIA)
  return d * (bits_as<float>(__byte_perm(w ^ 0x80808080u, 0x4b000000u, 0x7440 | i)) - 8388736.0f);
#else
  return d * (float)(i8)(w >> 8 * i);
#endif
}
/** N words from any byte of shared memory on; the word after the last is read too. */
template <int N> WICK_FN void words_at(const u8* p, u32 (&w)[N]) {
  const u32 skew = (u32)(u64)p & 3;
  const u32* from = (const u32*)(p - skew);
  u32 low = from[0];
#pragma unroll
  for (int i = 0; i < N; i++) {
    const u32 high = from[i + 1];
    w[i] = funnel(low, high, 8 * skew);
    low = high;
  }
}

/** Eight words from a multiple of 16 bytes on. */
WICK_FN void read_words(const u32* p, u32 (&w)[8]) {
  u32 four[4];
#pragma unroll
  for (int i = 0; i < 8; i += 4) {
    split_words(*(const word4*)(p + i), four);
#pragma unroll
    for (int k = 0; k < 4; k++) w[i + k] = four[k];
  }
}
/** Units whose bytes are the values, in order. */
struct PlainUnit {
  static constexpr int above = 0;
  static constexpr bool paired = false;
};
/** Blocks of whole words are read where they lie. */
template <class Q> struct UnitInPlace : PlainUnit {
  static constexpr int chunks = same<Q, Q2_K> ? 4 : 2;
  const typename Q::Block* row;
  int first;
  WICK_MEMBER void load(const u8* tile, int lane) {
    row = (const typename Q::Block*)tile;
    first = lane * chunks;
  }
  template <int j> WICK_MEMBER Chunk<Q> chunk() const { return load_chunk<Q>(row, first + j); }
};
/** Four-bit floats as words of nibbles, for a product with paired activations. */
struct Fp4Chunk {
  u32 w[4];
  float d;
};
/** Bytes that four nibbles name among those of t0 and t1; nibbles from 8 on name none and are 0. */
WICK_FN u32 look_up_low(u32 nibbles, u32 t0, u32 t1) {
#if defined(WICK_NVIDIA)
  u32 out;  // from 8 on: eight times the highest bit of a byte, which none of these has
  asm("prmt.b32 %0, %1, %2, %3;" : "=r"(out) : "r"(t0), "r"(t1), "r"(nibbles));
  return out;
#else
  u32 out = 0;
  for (int i = 0; i < 4; i++) {
    const u32 at = nibbles >> 4 * i & 15;
    const u32 byte = (at < 4 ? t0 : t1) >> 8 * (at & 3) & 0xffu;
    out |= (at < 8 ? byte : 0u) << 8 * i;
  }
  return out;
#endif
}
WICK_FN float dot_rounded(const Fp4Chunk& w, const Rounded32& v, float acc) {
  constexpr u32 Low = 0x03020100u, High = 0x0c080604u;
  int more = 0, less = 0;
#pragma unroll
  for (int k = 0; k < 4; k++) {
    const u32 turned = w.w[k] ^ 0x88888888u;
    more = dp4a((i32)look_up_low(w.w[k], Low, High), (i32)v.u[2 * k], more);
    less = dp4a((i32)look_up_low(turned, Low, High), (i32)v.u[2 * k], less);
    more = dp4a((i32)look_up_low(w.w[k] >> 16, Low, High), (i32)v.u[2 * k + 1], more);
    less = dp4a((i32)look_up_low(turned >> 16, Low, High), (i32)v.u[2 * k + 1], less);
  }
  return fmaf(v.scale * w.d, (float)(more - less), acc);
}
/** What words of small blocks hold from byte `At` on. */
template <int At, int N> WICK_FN u32 word_from(const u32 (&w)[N]) {
  if constexpr (At % 4 == 0) return w[At / 4];
  else return funnel(w[At / 4], w[At / 4 + 1], 8 * (At % 4));
}
/**
 * Small blocks, a chunk each, which may begin at any byte: a scale, and words of values at the end. No two lanes read
 * one bank where the words of a lane are an odd number.
 */
template <class Q, int Count> struct UnitOfBlocks {
  static constexpr int chunks = Count, above = 0, Bytes = sizeof(typename Q::Block);
  static constexpr bool paired = same<Q, MXFP4> && Count == 4;
  static constexpr int Words = same<Q, Q8_0> ? 8 : 4, All = (Count * Bytes + 3) / 4;
  u32 w[All];
  WICK_MEMBER void load(const u8* tile, int lane) {
    const u8* const unit = tile + lane * Count * Bytes;
    if (Count * Bytes % 4 || (u32)(u64)tile & 3) return words_at(unit, w);
#pragma unroll
    for (int i = 0; i < All; i++) w[i] = ((const u32*)unit)[i];
  }
  template <int j> WICK_MEMBER float scale() const {
    const u32 bits = w[Bytes * j / 4] >> 8 * (Bytes * j % 4);
    return same<Q, MXFP4> ? mxfp4_scale((u8)bits) : half_value((u16)bits);
  }
  template <int j> WICK_MEMBER auto chunk() const {
    constexpr int From = Bytes * (j + 1) - 4 * Words;
    u32 words[8] = {word_from<From>(w), word_from<From + 4>(w), word_from<From + 8>(w), word_from<From + 12>(w)};
    if constexpr (paired) {
      return Fp4Chunk{{words[0], words[1], words[2], words[3]}, scale<j>()};
    } else {
      Chunk<Q> out;
      if constexpr (Words == 8) {
        words[4] = word_from<From + 16>(w), words[5] = word_from<From + 20>(w);
        words[6] = word_from<From + 24>(w), words[7] = word_from<From + 28>(w);
      } else {
#pragma unroll
        for (int k = 0; k < 4; k++) {
          u32 low = words[k] & 0x0f0f0f0fu, high = words[k] >> 4 & 0x0f0f0f0fu;
          if constexpr (same<Q, IQ4_NL>) iq4_levels(words[k], low, high);
          if constexpr (same<Q, MXFP4>) fp4_levels(words[k], low, high);
          words[k] = low, words[k + 4] = high;
        }
      }
#pragma unroll
      for (int k = 0; k < 8; k++) {
        if constexpr (same<Q, Q5_0>) words[k] |= spread(word_from<Bytes * j + 2>(w) >> 4 * k, 4);
        out.v[k] = (int)words[k];
      }
      out.d[0] = scale<j>();
      out.m[0] = same<Q, Q4_0> ? 8 * out.d[0] : Q::bias * out.d[0];
      return out;
    }
  }
};
/** Two chunks of a block whose scales and minima have six bits each. */
template <class Q> struct UnitOfSixBits : PlainUnit {
  static constexpr int chunks = 2;
  /** Values of the second chunk stay where they are, as 16 times what they are. */
  static constexpr bool Tall = same<Q, Q4_K> && WHOLE_BYTES;
  const typename Q::Block* block;
  int pair;
  /** Of both chunks, in the lowest bytes. */
  u32 scales, minima;
  float d, m;
  /** Low bits of both chunks. */
  u32 low[8];
  WICK_MEMBER void load(const u8* tile, int lane) {
    block = (const typename Q::Block*)tile + lane / 4;
    pair = lane % 4;
    u32 head[4];
    split_words(*(const word4*)block, head);
    read_words(block->qs + 8 * pair, low);
    const bool late = pair >= 2;
    const int at = 16 * (pair & 1);
    scales = (late ? (head[3] & 0x0f0f0f0fu) | (head[1] >> 2 & 0x30303030u) : head[1] & 0x3f3f3f3fu) >> at;
    minima = (late ? (head[3] >> 4 & 0x0f0f0f0fu) | (head[2] >> 2 & 0x30303030u) : head[2] & 0x3f3f3f3fu) >> at;
    d = half_value((u16)head[0]), m = half_value((u16)(head[0] >> 16));
  }
  template <int j> WICK_MEMBER Chunk<Q> chunk() const {
    Chunk<Q> out;
#pragma unroll
    for (int k = 0; k < 8; k++) out.v[k] = (int)(Tall && j ? low[k] & 0xf0f0f0f0u : low[k] >> 4 * j & 0x0f0f0f0fu);
    if constexpr (same<Q, Q5_K>) {
      u32 fifth[8];
      read_words(block->qh, fifth);
#pragma unroll
      for (int k = 0; k < 8; k++) out.v[k] |= (int)((fifth[k] >> (2 * pair + j) & 0x01010101u) << 4);
    }
    out.d[0] = times_byte(Tall && j ? d / 16 : d, scales, j), out.m[0] = times_byte(m, minima, j);
    return out;
  }
};
/** Half a block of 128 values: 64 bytes of low bits, 32 of high bits, eight scales. Bytes are 32 above the values. */
struct UnitOfQ6 {
  static constexpr int chunks = 4, above = 32;
  static constexpr bool paired = false;
  u32 low[16], high[8], scales[2];
  float d;
  WICK_MEMBER void load(const u8* tile, int lane) {
    const u8* block = tile + lane / 2 * (int)sizeof(Q6_K::Block);
    const int n = lane % 2;
    words_at(block + 64 * n, low);
    words_at(block + 128 + 32 * n, high);
    words_at(block + 192 + 8 * n, scales);
    d = half_value(*(const u16*)(block + 208));
  }
  template <int j> WICK_MEMBER Chunk<Q6_K> chunk() const {
    Chunk<Q6_K> out;
#pragma unroll
    for (int k = 0; k < 8; k++) {
      const u32 two = j < 2 ? high[k] << (4 - 2 * j) : high[k] >> (2 * j - 4);
      out.v[k] = (int)((low[8 * (j & 1) + k] >> 4 * (j >> 1) & 0x0f0f0f0fu) | (two & 0x30303030u));
    }
#pragma unroll
    for (int h = 0; h < 2; h++) {
      out.d[h] = times_signed_byte(d, scales[j / 2], 2 * (j & 1) + h);
      out.m[h] = 0;
    }
    return out;
  }
};
/** The same in three bits: a mask of high bits is for the whole block. */
struct UnitOfQ3 {
  static constexpr int chunks = 4, above = 4;
  static constexpr bool paired = false;
  u32 low[8], high[8], scales[3];
  int n;
  float d;
  WICK_MEMBER void load(const u8* tile, int lane) {
    const u8* block = tile + lane / 2 * (int)sizeof(Q3_K::Block);
    n = lane % 2;
    words_at(block + 32 + 32 * n, low);
    words_at(block, high);
    words_at(block + 96, scales);
    d = half_value(*(const u16*)(block + 108));
  }
  template <int j> WICK_MEMBER Chunk<Q3_K> chunk() const {
    Chunk<Q3_K> out;
#pragma unroll
    for (int k = 0; k < 8; k++)
      out.v[k] = (int)((low[k] >> 2 * j & 0x03030303u) | (high[k] >> (4 * n + j) & 0x01010101u) << 2);
#pragma unroll
    for (int h = 0; h < 2; h++) {
      const int s = 2 * j + h;
      const u32 four = scales[s / 4] >> (8 * (s % 4) + 4 * n) & 15,
                two = scales[2] >> (8 * (s % 4) + 4 * n + 2 * (s / 4)) & 3;
      out.d[h] = d * (float)((int)(four | two << 4) - 32);
      out.m[h] = 0;
    }
    return out;
  }
};
template <class Q, bool Whole = sizeof(typename Q::Block) % 4 == 0> struct UnitOf { typedef UnitInPlace<Q> type; };
template <class Q> struct UnitOf<Q, false> { typedef UnitOfBlocks<Q, 2> type; };
template <> struct UnitOf<Q4_K, true> { typedef UnitOfSixBits<Q4_K> type; };
template <> struct UnitOf<Q5_K, true> { typedef UnitOfSixBits<Q5_K> type; };
template <> struct UnitOf<Q6_K, false> { typedef UnitOfQ6 type; };
template <> struct UnitOf<Q3_K, false> { typedef UnitOfQ3 type; };
/** For M rows of activations: one of them may be in an order that weights ask for. */
template <class Q, int M> struct UnitFor : UnitOf<Q> {};
template <> struct UnitFor<MXFP4, 1> { typedef UnitOfBlocks<MXFP4, 4> type; };

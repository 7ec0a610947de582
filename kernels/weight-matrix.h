// Rows of weights in ggml's blocks on the matrix units: 16 rows of weights by up to eight rows of activations, which
// take as long as one. The whole numbers of blocks become 16-bit numbers without loss, activations are taken as they
// are, and sums are floats. Scales come after the sums of what they belong to.
//
// A wave owns the same 256 values of all rows of weights, so that it holds its share of the activations in registers,
// and a ring of tiles in shared memory, 16 rows by these values. Waves do not wait for one another before all of a
// block's rows are multiplied; then their parts are added up. Of a chunk of 32 values a lane holds two quads of row
// lane / 4 and of the eighth row after it. Which value stands where along k does not matter as long as activations
// stand in the same order: theirs is chosen such that quads need few steps.
#pragma once
#include "attention-split.h"
#include "matrix.h"
#include "quant-blocks.h"
#include "weight-stream.h"

constexpr int MATRIX_ROWS = 16, MATRIX_COLUMNS = 8, MATRIX_VALUES = 256;

// ---- whole numbers as pairs of 16-bit numbers ----

/** Four values: the first and the third, the second and the fourth. */
struct Pairs {
  u32 even, odd;
};
/** Bits of `v` that `mask` has, and those of `more`. */
WICK_FN u32 take_bits(u32 v, u32 mask, u32 more) {
#if defined(WICK_NVIDIA)
  u32 r;  // one instruction, which compilers split where both words are constants
  asm("lop3.b32 %0, %1, %2, %3, 0xea;" : "=r"(r) : "r"(v), "r"(mask), "r"(more));
  return r;
#else
  return (v & mask) | more;
#endif
}
/** A number whose bits leave room for whole numbers to be added by writing them side by side: below 64, or 128. */
template <class T> constexpr int BASE = same<T, half> ? 64 : 128;
template <class T> constexpr u32 BASE_BITS = same<T, half> ? 0x54005400u : 0x43004300u;
/** It and 32. */
template <class T> constexpr u32 BASE_32_BITS = same<T, half> ? 0x56005600u : 0x43204320u;

/** BASE and the unsigned numbers of `Bits` at bit `At` of each byte. */
template <class T, int Bits, int At> WICK_FN Pairs pairs_over_base(u32 w) {
  constexpr int One = same<T, half> ? 4 : 0;
  constexpr u32 Mask = ((1u << Bits) - 1) * 0x00010001u << One;
  const u32 even = At < One ? w << (One - At) : w >> (At - One < 0 ? 0 : At - One), odd = w >> (At + 8 - One);
  return {take_bits(even, Mask, BASE_BITS<T>), take_bits(odd, Mask, BASE_BITS<T>)};
}
/** a - b of two pairs. */
template <class T> WICK_FN u32 sub_pair(u32 a, u32 b) {
#if defined(MATRIX_MMA)
  u32 r;
  if constexpr (same<T, half>) asm("sub.f16x2 %0, %1, %2;" : "=r"(r) : "r"(a), "r"(b));
  else asm("fma.rn.bf16x2 %0, %1, %2, %3;" : "=r"(r) : "r"(b), "r"(0xbf80bf80u), "r"(a));
  return r;
#else
  return pack_pair<T>(to_compute(T{(u16)a}) - to_compute(T{(u16)b}),
                      to_compute(T{(u16)(a >> 16)}) - to_compute(T{(u16)(b >> 16)}));
#endif
}
/** Two numbers times a power of two. */
template <class T> WICK_FN u32 scale_pair(u32 a, u32 by) {
#if defined(MATRIX_MMA)
  u32 r;
  if constexpr (same<T, half>) asm("mul.f16x2 %0, %1, %2;" : "=r"(r) : "r"(a), "r"(by));
  else asm("fma.rn.bf16x2 %0, %1, %2, %3;" : "=r"(r) : "r"(a), "r"(by), "r"(0x80008000u));
  return r;
#else
  return pack_pair<T>(to_compute(T{(u16)a}) * to_compute(T{(u16)by}),
                      to_compute(T{(u16)(a >> 16)}) * to_compute(T{(u16)(by >> 16)}));
#endif
}
/** Signed bytes. */
template <class T> WICK_FN Pairs signed_pairs(u32 w) {
  const u32 up = w >> 8;
  if constexpr (same<T, half>) {
    // 1024 + 128 + v
    return {sub_pair<T>((w & 0x00ff00ffu) ^ 0x64806480u, 0x64806480u),
            sub_pair<T>((up & 0x00ff00ffu) ^ 0x64806480u, 0x64806480u)};
  } else {
    // 128 and seven bits, less 128 or 256
    constexpr u32 Seven = 0x007f007fu, Sign = 0x00800080u, Base = 0x43004300u;
    return {sub_pair<T>(take_bits(w, Seven, Base), take_bits(w, Sign, Base)),
            sub_pair<T>(take_bits(up, Seven, Base), take_bits(up, Sign, Base))};
  }
}
/**
 * Floats of four bits at bit 4 * At of each half word, whose bits are those of a small number: 2^-14 of them, or 2^-126.
 * In bf16 they are multiplied with activations that are 2^64 of theirs, since sums would be too small.
 */
template <class T, int At> WICK_FN u32 fp4_pair(u32 w) {
  if constexpr (At > 1) return fp4_pair<T, At - 2>(w >> 8);
  else if constexpr (same<T, half>) return (w << (9 - 4 * At) & 0x0e000e00u) | (w << (12 - 4 * At) & 0x80008000u);
  else return (w & 0x000f000fu << 4 * At) * (0x1040u >> 4 * At) & 0x81c081c0u;
}
template <class Q, class T> constexpr float LESS = !same<Q, MXFP4> || same<T, half> ? 1.0f : 0x1p64f;
/** What sums are multiplied by in the end: scales of 4-bit floats are for twice these. */
template <class Q, class T> constexpr float UNIT = !same<Q, MXFP4> ? 1.0f : same<T, half> ? 0x1p15f : 0x1p63f;

// ---- tiles ----

/** Two words from a byte that is `Skew` past a multiple of 4. */
template <int Skew> WICK_FN void two_words(const u8* p, u32 (&w)[2]) {
  const u32* from = (const u32*)(p - Skew);
  if constexpr (Skew == 0) {
    w[0] = from[0], w[1] = from[1];
  } else {
    const u32 middle = from[1];
    w[0] = funnel(from[0], middle, 8 * Skew), w[1] = funnel(middle, from[2], 8 * Skew);
  }
}

/** The same for one word. */
template <int Skew> WICK_FN u32 one_word(const u8* p) {
  const u32* from = (const u32*)(p - Skew);
  if constexpr (Skew == 0) return from[0];
  else return funnel(from[0], from[1], 8 * Skew);
}

/** Of lane t's values: quads 2 * t and 2 * t + 1, or t and t + 4. */
enum class Order { quads, halves };

/**
 * A lane's share of a row of a tile. Of chunk c it holds two quads, as pairs of 16-bit numbers in an order that
 * activations have too: value = d * (pair - offset), where offset is `bias` above BASE if pairs are over that at all.
 * Bytes is what a row of a tile takes, which may begin Skew past a multiple of 16 bytes.
 */
template <class Q> struct MatrixRow;

template <> struct MatrixRow<Q8_0> {
  static constexpr Order order = Order::quads;
  static constexpr int Bytes = 272, Skew = 0, Pitch = 288, bias = 0;
  static constexpr bool over_base = false;
  const u8* row;
  int t;
  WICK_MEMBER void load(const u8* from, int lane) { row = from, t = lane; }
  template <class T, int c> WICK_MEMBER void pairs(Pairs (&to)[2]) const {
    u32 w[2];
    two_words<(34 * c + 2) % 4>(row + 34 * c + 2 + 8 * t, w);
    to[0] = signed_pairs<T>(w[0]), to[1] = signed_pairs<T>(w[1]);
  }
  template <int c> WICK_MEMBER void scale(float (&d)[1], u32) const { d[0] = half_value(*(const u16*)(row + 34 * c)); }
  WICK_MEMBER float last() const { return 1; }
};
template <> struct MatrixRow<Q4_0> {
  static constexpr Order order = Order::halves;
  static constexpr int Bytes = 144, Skew = 0, Pitch = 160, bias = 8;
  static constexpr bool over_base = true;
  const u8* row;
  int t;
  WICK_MEMBER void load(const u8* from, int lane) { row = from, t = lane; }
  template <class T, int c> WICK_MEMBER void pairs(Pairs (&to)[2]) const {
    const u32 w = one_word<(18 * c + 2) % 4>(row + 18 * c + 2 + 4 * t);
    to[0] = pairs_over_base<T, 4, 0>(w), to[1] = pairs_over_base<T, 4, 4>(w);
  }
  template <int c> WICK_MEMBER void scale(float (&d)[1], u32) const { d[0] = half_value(*(const u16*)(row + 18 * c)); }
  WICK_MEMBER float last() const { return 1; }
};
template <> struct MatrixRow<MXFP4> {
  static constexpr Order order = Order::halves;
  static constexpr int Bytes = 136, Skew = 8, Pitch = 160, bias = 0;
  static constexpr bool over_base = false;
  const u8* row;
  int t;
  WICK_MEMBER void load(const u8* from, int lane) { row = from, t = lane; }
  template <class T, int c> WICK_MEMBER void pairs(Pairs (&to)[2]) const {
    const u32 w = one_word<(17 * c + 1) % 4>(row + 17 * c + 1 + 4 * t);
    to[0] = {fp4_pair<T, 0>(w), fp4_pair<T, 2>(w)}, to[1] = {fp4_pair<T, 1>(w), fp4_pair<T, 3>(w)};
  }
  template <int c> WICK_MEMBER void scale(float (&d)[1], u32) const { d[0] = mxfp4_scale(row[17 * c]); }
  WICK_MEMBER float last() const { return 1; }
};
/** Blocks whose scales and minima have six bits each. */
template <class Q> struct MatrixRowOfSixBits {
  static constexpr Order order = Order::quads;
  static constexpr int Bytes = sizeof(typename Q::Block), Skew = 0, Pitch = Bytes + 16, bias = 0;
  static constexpr bool over_base = true;
  const typename Q::Block* block;
  int t;
  u32 scales[2], minima[2], both;
  WICK_MEMBER void load(const u8* from, int lane) {
    block = (const typename Q::Block*)from, t = lane;
    u32 head[4];
    split_words(*(const word4*)block, head);
    scales[0] = head[1] & 0x3f3f3f3fu, minima[0] = head[2] & 0x3f3f3f3fu;
    scales[1] = (head[3] & 0x0f0f0f0fu) | (head[1] >> 2 & 0x30303030u);
    minima[1] = (head[3] >> 4 & 0x0f0f0f0fu) | (head[2] >> 2 & 0x30303030u);
    both = head[0];
  }
  template <class T, int c> WICK_MEMBER void pairs(Pairs (&to)[2]) const {
    const u64 two = *(const u64*)(block->qs + 8 * (c / 2) + 2 * t);
    u64 fifth = 0;
    if constexpr (same<Q, Q5_K>) fifth = *(const u64*)(block->qh + 2 * t);
#pragma unroll
    for (int i = 0; i < 2; i++) {
      const u32 w = (u32)(two >> 32 * i);
      if constexpr (same<Q, Q5_K>)
        to[i] = pairs_over_base<T, 5, 0>((w >> 4 * (c & 1) & 0x0f0f0f0fu) | ((u32)(fifth >> 32 * i) >> c & 0x01010101u)
                                                                                << 4);
      else to[i] = pairs_over_base<T, 4, 4 * (c & 1)>(w);
    }
  }
  /** The six bits alone: the block's own scale comes last. */
  template <int c> WICK_MEMBER void scale(float (&d)[1], u32 large) const {
#if defined(WICK_NVIDIA)
    d[0] = bits_as<float>(__byte_perm(scales[c / 4], large, 0x7440 | c % 4)) - 8388608.0f;
#else
    d[0] = (float)(scales[c / 4] >> 8 * (c % 4) & 255);
#endif
  }
};
template <> struct MatrixRow<Q4_K> : MatrixRowOfSixBits<Q4_K> {};
template <> struct MatrixRow<Q5_K> : MatrixRowOfSixBits<Q5_K> {};
template <> struct MatrixRow<Q6_K> {
  static constexpr Order order = Order::halves;
  static constexpr int Bytes = 210, Skew = 14, Pitch = 240, bias = 0;
  static constexpr bool over_base = false;
  const u32* words;
  u32 shift, scales[4];
  WICK_MEMBER void load(const u8* from, int lane) {
    const u32 skew = (u32)(u64)from & 3;
    shift = 8 * skew, words = (const u32*)(from - skew);
    words_at(from + 192, scales);
    whole = half_value(*(const u16*)(from + 208));
    words += lane;
  }
  template <class T, int c> WICK_MEMBER void pairs(Pairs (&to)[2]) const {
    constexpr int n = c / 4, j = c % 4;
#pragma unroll
    for (int i = 0; i < 2; i++) {
      const u32 *const a = words + 16 * n + 8 * (j & 1) + 4 * i, *const b = words + 32 + 8 * n + 4 * i;
      const u32 low = funnel(a[0], a[1], shift), high = funnel(b[0], b[1], shift);
      const u32 two = j < 2 ? high << (4 - 2 * j) : high >> (2 * j - 4);
      const Pairs p = pairs_over_base<T, 6, 0>((low >> 4 * (j >> 1) & 0x0f0f0f0fu) | (two & 0x30303030u));
      to[i] = {sub_pair<T>(p.even, BASE_32_BITS<T>), sub_pair<T>(p.odd, BASE_32_BITS<T>)};
    }
  }
  template <int c> WICK_MEMBER void scale(float (&d)[2], u32) const {
#pragma unroll
    for (int h = 0; h < 2; h++) d[h] = (float)(i8)(scales[c / 2] >> (16 * (c & 1) + 8 * h));
  }
  float whole;
  WICK_MEMBER float last() const { return whole; }
};
template <class Q> constexpr bool SIX_BITS = same<Q, Q4_K> || same<Q, Q5_K>;

// ---- products: lanes have the results of rows lane / 4 and + 8, columns 2 * (lane % 4) and + 1 ----

/** c = or += the product of 16 rows by 16 with eight columns. */
template <class T, bool First> WICK_FN void multiply_eight(float (&c)[4], const Frag& a, u32 b0, u32 b1) {
#if defined(MATRIX_MMA)
  if constexpr (First) c[0] = c[1] = c[2] = c[3] = 0;
  if constexpr (same<T, half>) MMA_16816("f16", c, a, b0, b1);
  else MMA_16816("bf16", c, a, b0, b1);
#elif WICK_WAVE == 32 && defined(MATRIX_PLAIN)
  Acc acc = {};
  Frag b = {};
  b.w[0] = b0, b.w[1] = b1;
  multiply<T>(acc, a, b);
#pragma unroll
  for (int i = 0; i < 4; i++) c[i] = First ? acc.x[i] : c[i] + acc.x[i];
#endif
}
WICK_FN Frag frag_of(u32 a, u32 b, u32 c, u32 d) {
  Frag f = {};
  f.w[0] = a, f.w[1] = b, f.w[2] = c, f.w[3] = d;
  return f;
}

/** Begins to copy 16 bytes to shared memory; the rest of their 128 bytes will be asked for soon. */
WICK_FN void async_near16(void* to, const void* from) {
#if defined(MATRIX_MMA)
  asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16;" ::"r"(shared_address(to)), "l"(from));
#else
  *(word4*)to = *(const word4*)from;
#endif
}

/** Four values as pairs. */
WICK_FN void pair_up(u32 low, u32 high, u32& even, u32& odd) {
#if defined(WICK_NVIDIA)
  even = __byte_perm(low, high, 0x5410), odd = __byte_perm(low, high, 0x7632);
#else
  even = (low & 0xffffu) | high << 16, odd = low >> 16 | (high & 0xffff0000u);
#endif
}
/** A lane's two quads of a chunk. */
template <Order In, class T> WICK_FN void read_quads(const T* chunk, int t, u32 (&v)[4]) {
  if constexpr (In == Order::quads) {
    split_words(*(const word4*)(chunk + 8 * t), v);
  } else {
#pragma unroll
    for (int i = 0; i < 2; i++) {
      const u64 both = *(const u64*)(chunk + 4 * t + 16 * i);
      v[2 * i] = (u32)both, v[2 * i + 1] = (u32)(both >> 32);
    }
  }
}

/** A wave's 256 values of up to eight rows of activations. */
template <class Q, class T> struct Slice {
  u32 pairs[8][4];
  /** For columns 2 * t and + 1: what sums over chunks begin with where pairs are above their values. */
  float less[SIX_BITS<Q> ? 1 : 8][2];
  /**
   * Sums of chunks t and t + 4 of column lane / 4 as two bf16 each, which minima are multiplied with; the same times
   * -BASE for scales; what products with these begin with, since bytes become numbers above 128.
   */
  u32 sums[2], bases[2];
  float from[2], base_from[2];
  /** The bits of 2^23, which compilers do not know: they would make what selects bytes anew for every byte. */
  u32 large;

  /** Says whether a sum is not finite. `p` is this lane's column of the wave's values. */
  WICK_MEMBER bool load(const T* p, int lane) {
    const int g = lane / 4, t = lane % 4;
    large = 0x4b000000u + gridDim.z - 1;
#pragma unroll
    for (int c = 0; c < 8; c++) {
      u32 v[4];
      read_quads<MatrixRow<Q>::order>(p + 32 * c, t, v);
      pair_up(v[0], v[1], pairs[c][0], pairs[c][1]);
      pair_up(v[2], v[3], pairs[c][2], pairs[c][3]);
      if constexpr (LESS<Q, T> != 1)
#pragma unroll
        for (int i = 0; i < 4; i++) pairs[c][i] = scale_pair<T>(pairs[c][i], 0x5f805f80u);
    }
    constexpr u32 Ones = same<T, half> ? 0x3c003c00u : 0x3f803f80u;
    float finite = 0;
    if constexpr (MatrixRow<Q>::over_base && !SIX_BITS<Q>) {
      const Frag one = frag_of(Ones, Ones, Ones, Ones);
#pragma unroll
      for (int c = 0; c < 8; c++) {
        float sum[4];
        multiply_eight<T, true>(sum, one, pairs[c][0], pairs[c][1]);
        multiply_eight<T, false>(sum, one, pairs[c][2], pairs[c][3]);
#pragma unroll
        for (int i = 0; i < 2; i++) {
          finite += sum[i] - sum[i];
          less[c][i] = -(float)(BASE<T> + MatrixRow<Q>::bias) * sum[i];
        }
      }
    } else {
      // As rows of a product whose column 2 * t is the sum of chunk t, and 2 * t + 1 that of chunk t + 4.
      float half_sums[2][4] = {};
#pragma unroll
      for (int c = 0; c < 8; c++) {
        const u32 ones = g == c % 4 * 2 + c / 4 ? Ones : 0;
        multiply_eight<T, false>(half_sums[0], frag_of(pairs[c][0], 0, pairs[c][1], 0), ones, ones);
        multiply_eight<T, false>(half_sums[1], frag_of(pairs[c][2], 0, pairs[c][3], 0), ones, ones);
      }
      float all = 0;
#pragma unroll
      for (int h = 0; h < 2; h++) {
        const float sum = half_sums[0][h] + half_sums[1][h];
        finite += sum - sum;
        const float high = bits_as<float>(bits_as<u32>(sum) & 0xffff0000u);
        const float low = bits_as<float>(bits_as<u32>(sum - high) & 0xffff0000u);
        all += high + low;
        sums[h] = bits_as<u32>(high) >> 16 | bits_as<u32>(low);
        bases[h] = bits_as<u32>(-(float)BASE<T> * high) >> 16 | bits_as<u32>(-(float)BASE<T> * low);
      }
      if constexpr (SIX_BITS<Q>) {
        all += shfl_xor(all, 1, 4);
        all += shfl_xor(all, 2, 4);
#pragma unroll
        for (int i = 0; i < 2; i++) {
          const float column = shfl(all, 8 * t + 4 * i, 32);
          from[i] = -128.0f * column, base_from[i] = 128.0f * BASE<T> * column;
        }
      }
    }
    return !(finite == 0);
  }
};

/** Byte t of each word as 128 and the byte, twice. */
WICK_FN u32 byte_pair(u32 w, int t) {
#if defined(WICK_NVIDIA)
  return __byte_perm(w, 0x43000000u, 0x7070 | t * 0x0101);
#else
  return (w >> 8 * t & 255) * 0x00010001u | 0x43004300u;
#endif
}
/** Byte t of two words of each row, of the first row and the eighth after it, with columns of pairs of sums. */
WICK_FN void multiply_sums(float (&c)[4], const u32 (&low)[2], const u32 (&high)[2], int t, const u32 (&sums)[2],
                           const float (&from)[2]) {
  c[0] = c[2] = from[0], c[1] = c[3] = from[1];
  multiply_eight<bfloat, false>(
      c, frag_of(byte_pair(low[0], t), byte_pair(high[0], t), byte_pair(low[1], t), byte_pair(high[1], t)), sums[0],
      sums[1]);
}

/** Chunk c of a tile and those after it. */
template <class Q, class T, int c>
WICK_FN void multiply_chunks(const MatrixRow<Q> (&rows)[2], const Slice<Q, T>& x, float (&acc)[4]) {
  if constexpr (c < MATRIX_VALUES / 32) {
    constexpr bool Halves = Q::halves == 2;
    float d[2][Q::halves], part[4];
    Pairs low[2], high[2];
#pragma unroll
    for (int r = 0; r < 2; r++) rows[r].template scale<c>(d[r], x.large);
    rows[0].template pairs<T, c>(low);
    rows[1].template pairs<T, c>(high);
#pragma unroll
    for (int s = 0; s < 2; s++) {
      const Frag a = frag_of(low[s].even, high[s].even, low[s].odd, high[s].odd);
      constexpr bool Begun = MatrixRow<Q>::over_base && !SIX_BITS<Q>;
      if constexpr (Begun)
        if (s == 0) part[0] = part[2] = x.less[c][0], part[1] = part[3] = x.less[c][1];
      if (!Begun && (s == 0 || Halves)) multiply_eight<T, true>(part, a, x.pairs[c][2 * s], x.pairs[c][2 * s + 1]);
      else multiply_eight<T, false>(part, a, x.pairs[c][2 * s], x.pairs[c][2 * s + 1]);
      if (s == 0 && !Halves) continue;
#pragma unroll
      for (int i = 0; i < 4; i++) acc[i] = fmaf(d[i / 2][Halves ? s : 0], part[i], acc[i]);
    }
    multiply_chunks<Q, T, c + 1>(rows, x, acc);
  }
}
/** The product of a tile's rows `here` and eight after it with the wave's activations. */
template <class Q, class T>
WICK_FN void multiply_tile(const u8* here, const u8* there, int t, const Slice<Q, T>& x, float (&acc)[4]) {
  MatrixRow<Q> rows[2];
  rows[0].load(here, t);
  rows[1].load(there, t);
  if constexpr (SIX_BITS<Q>) {
    float least[4];
    multiply_sums(least, rows[0].minima, rows[1].minima, t, x.sums, x.from);
    multiply_sums(acc, rows[0].scales, rows[1].scales, t, x.bases, x.base_from);
    multiply_chunks<Q, T, 0>(rows, x, acc);
#pragma unroll
    for (int i = 0; i < 4; i++)
      acc[i] = half_value((u16)rows[i / 2].both) * acc[i] - half_value((u16)(rows[i / 2].both >> 16)) * least[i];
  } else {
    multiply_chunks<Q, T, 0>(rows, x, acc);
#pragma unroll
    for (int i = 0; i < 4; i++) acc[i] *= UNIT<Q, T> * (i < 2 ? rows[0].last() : rows[1].last());
  }
}

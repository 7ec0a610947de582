// Rows of weights in ggml's blocks on the matrix units: 16 rows of weights by up to eight rows of activations, which
// take as long as one. Activations are rounded to whole numbers, or 16-bit numbers as they are: then the whole numbers
// of blocks become such without loss and sums are floats. Scales come after the sums of what they belong to.
//
// A wave owns a ring of tiles in shared memory, 16 rows by 256 values, as in weight-stream.h. Of a chunk of 32 values a
// lane holds two quads of row lane / 4 and of the eighth row after it. Which value stands where along k does not matter
// as long as activations stand in the same order: theirs is chosen such that quads need few steps.
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
/** Bits of `v` that `mask` has, those of `more` turned round. */
WICK_FN u32 turn_bits(u32 v, u32 mask, u32 more) {
#if defined(WICK_NVIDIA)
  u32 r;
  asm("lop3.b32 %0, %1, %2, %3, 0x6a;" : "=r"(r) : "r"(v), "r"(mask), "r"(more));
  return r;
#else
  return (v & mask) ^ more;
#endif
}
/** 64 and whole numbers up to 63 are added by writing bits side by side. */
template <class T> constexpr u32 SIXTY_FOUR = same<T, half> ? 0x54005400u : 0x42804280u;
template <class T> constexpr u32 NINETY_SIX = same<T, half> ? 0x56005600u : 0x42c042c0u;

/** 64 and the unsigned numbers of `Bits` at bit `At` of each byte. */
template <class T, int Bits, int At> WICK_FN Pairs pairs_over_64(u32 w) {
  constexpr int One = same<T, half> ? 4 : 1;
  constexpr u32 Mask = ((1u << Bits) - 1) * 0x00010001u << One;
  const u32 even = At < One ? w << (One - At) : w >> (At - One < 0 ? 0 : At - One), odd = w >> (At + 8 - One);
  return {take_bits(even, Mask, SIXTY_FOUR<T>), take_bits(odd, Mask, SIXTY_FOUR<T>)};
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
/** Twice the floats of four bits in the low half of each byte: their bits are those of a small number. */
template <class T> WICK_FN u32 fp4_pair(u32 w) {
  if constexpr (same<T, half>) return scale_pair<T>((w << 9 & 0x0e000e00u) | (w << 12 & 0x80008000u), 0x78007800u);
  else return scale_pair<T>((w << 6 & 0x01c001c0u) | (w << 12 & 0x80008000u), 0x7f007f00u);
}

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

/** Of lane t's values: quads 2 * t and 2 * t + 1, or t and t + 4, or those two with their values in turn. */
enum class Order { quads, halves, paired };

/**
 * A lane's share of a row of a tile. Of chunk c it holds two quads in an order that activations have too:
 * `quads` as bytes, value = d * (quad - above) - m, or `pairs` as 16-bit numbers, value = d * (pair - offset) - m.
 * Bytes is what a row of a tile takes, which may begin Skew past a multiple of 16 bytes.
 */
template <class Q> struct MatrixRow;

template <> struct MatrixRow<Q8_0> {
  static constexpr Order order = Order::quads;
  static constexpr int Bytes = 272, Skew = 0, Pitch = 288, offset = 0, above = 0;
  const u8* row;
  int t;
  WICK_MEMBER void load(const u8* from, int lane) { row = from, t = lane; }
  template <int c> WICK_MEMBER void quads(u32 (&to)[2]) const {
    two_words<(34 * c + 2) % 4>(row + 34 * c + 2 + 8 * t, to);
  }
  template <class T, int c> WICK_MEMBER void pairs(Pairs (&to)[2]) const {
    u32 w[2];
    quads<c>(w);
    to[0] = signed_pairs<T>(w[0]), to[1] = signed_pairs<T>(w[1]);
  }
  template <int c> WICK_MEMBER void scale(float (&d)[1], float (&m)[1]) const {
    d[0] = half_value(*(const u16*)(row + 34 * c)), m[0] = 0;
  }
};
template <> struct MatrixRow<Q4_0> {
  static constexpr Order order = Order::halves;
  static constexpr int Bytes = 144, Skew = 0, Pitch = 160, offset = 64, above = 0;
  const u8* row;
  int t;
  WICK_MEMBER void load(const u8* from, int lane) { row = from, t = lane; }
  /** Both quads, in the halves of bytes; `quads` are 16 times the values without their scale. */
  template <int c> WICK_MEMBER u32 word() const { return one_word<(18 * c + 2) % 4>(row + 18 * c + 2 + 4 * t); }
  template <int c> WICK_MEMBER void quads(u32 (&to)[2]) const {
    const u32 w = word<c>();
    to[0] = turn_bits(w << 4, 0xf0f0f0f0u, 0x80808080u), to[1] = turn_bits(w, 0xf0f0f0f0u, 0x80808080u);
  }
  template <class T, int c> WICK_MEMBER void pairs(Pairs (&to)[2]) const {
    const u32 w = word<c>();
    to[0] = pairs_over_64<T, 4, 0>(w), to[1] = pairs_over_64<T, 4, 4>(w);
  }
  template <int c> WICK_MEMBER void scale(float (&d)[1], float (&m)[1]) const {
    d[0] = half_value(*(const u16*)(row + 18 * c)), m[0] = 8 * d[0];
  }
};
template <> struct MatrixRow<MXFP4> {
  static constexpr Order order = Order::halves;
  static constexpr int Bytes = 136, Skew = 8, Pitch = 160, offset = 0, above = 0;
  const u8* row;
  int t;
  /** 0, which compilers do not know: they would make the tables of levels anew for every word. */
  u32 zero;
  WICK_MEMBER void load(const u8* from, int lane) { row = from, t = lane, zero = gridDim.z - 1; }
  template <int c> WICK_MEMBER u32 word() const { return one_word<(17 * c + 1) % 4>(row + 17 * c + 1 + 4 * t); }
  template <int c> WICK_MEMBER void quads(u32 (&to)[2]) const {
    look_up_paired(word<c>(), 0x03020100u + zero, 0x0c080604u + zero, 0xfdfeff00u + zero, 0xf4f8fafcu + zero, to[0],
                   to[1]);
  }
  template <class T, int c> WICK_MEMBER void pairs(Pairs (&to)[2]) const {
    const u32 w = word<c>();
#pragma unroll
    for (int i = 0; i < 2; i++) to[i] = {fp4_pair<T>(w >> 4 * i), fp4_pair<T>(w >> (4 * i + 8))};
  }
  template <int c> WICK_MEMBER void scale(float (&d)[1], float (&m)[1]) const {
    d[0] = mxfp4_scale(row[17 * c]), m[0] = 0;
  }
};
/** Blocks whose scales and minima have six bits each. */
template <class Q> struct MatrixRowOfSixBits {
  static constexpr Order order = Order::quads;
  static constexpr int Bytes = sizeof(typename Q::Block), Skew = 0, Pitch = Bytes + 16, offset = 64, above = 0;
  const typename Q::Block* block;
  int t;
  u32 scales[2], minima[2];
  float dd, mm;
  WICK_MEMBER void load(const u8* from, int lane) {
    block = (const typename Q::Block*)from, t = lane;
    u32 head[4];
    split_words(*(const word4*)block, head);
    scales[0] = head[1] & 0x3f3f3f3fu, minima[0] = head[2] & 0x3f3f3f3fu;
    scales[1] = (head[3] & 0x0f0f0f0fu) | (head[1] >> 2 & 0x30303030u);
    minima[1] = (head[3] >> 4 & 0x0f0f0f0fu) | (head[2] >> 2 & 0x30303030u);
    dd = half_value((u16)head[0]), mm = half_value((u16)(head[0] >> 16));
  }
  template <int c> WICK_MEMBER void words(u32 (&to)[2]) const {
    const u64 both = *(const u64*)(block->qs + 8 * (c / 2) + 2 * t);
    to[0] = (u32)both, to[1] = (u32)(both >> 32);
  }
  template <int c> WICK_MEMBER void quads(u32 (&to)[2]) const {
    words<c>(to);
    to[0] = to[0] >> 4 * (c & 1) & 0x0f0f0f0fu, to[1] = to[1] >> 4 * (c & 1) & 0x0f0f0f0fu;
    if constexpr (same<Q, Q5_K>) {
      const u64 fifth = *(const u64*)(block->qh + 2 * t);
      to[0] |= ((u32)fifth >> c & 0x01010101u) << 4, to[1] |= ((u32)(fifth >> 32) >> c & 0x01010101u) << 4;
    }
  }
  template <class T, int c> WICK_MEMBER void pairs(Pairs (&to)[2]) const {
    u32 w[2];
    if constexpr (same<Q, Q5_K>) {
      quads<c>(w);
      to[0] = pairs_over_64<T, 5, 0>(w[0]), to[1] = pairs_over_64<T, 5, 0>(w[1]);
    } else {
      words<c>(w);
      to[0] = pairs_over_64<T, 4, 4 * (c & 1)>(w[0]), to[1] = pairs_over_64<T, 4, 4 * (c & 1)>(w[1]);
    }
  }
  template <int c> WICK_MEMBER void scale(float (&d)[1], float (&m)[1]) const {
    d[0] = times_byte(dd, scales[c / 4], c % 4), m[0] = times_byte(mm, minima[c / 4], c % 4);
  }
};
template <> struct MatrixRow<Q4_K> : MatrixRowOfSixBits<Q4_K> {};
template <> struct MatrixRow<Q5_K> : MatrixRowOfSixBits<Q5_K> {};
template <> struct MatrixRow<Q6_K> {
  static constexpr Order order = Order::halves;
  static constexpr int Bytes = 210, Skew = 14, Pitch = 240, offset = 0, above = 32;
  const u8* row;
  int t;
  WICK_MEMBER void load(const u8* from, int lane) { row = from, t = lane; }
  WICK_MEMBER float dd() const { return half_value(*(const u16*)(row + 208)); }
  template <int c> WICK_MEMBER void quads(u32 (&to)[2]) const {
    constexpr int n = c / 4, j = c % 4;
    const u32 skew = (u32)(u64)row & 3, shift = 8 * skew;
    const u32* const words = (const u32*)(row - skew) + t;
#pragma unroll
    for (int i = 0; i < 2; i++) {
      const u32 *const a = words + 16 * n + 8 * (j & 1) + 4 * i, *const b = words + 32 + 8 * n + 4 * i;
      const u32 low = funnel(a[0], a[1], shift), high = funnel(b[0], b[1], shift);
      const u32 two = j < 2 ? high << (4 - 2 * j) : high >> (2 * j - 4);
      to[i] = (low >> 4 * (j >> 1) & 0x0f0f0f0fu) | (two & 0x30303030u);
    }
  }
  template <class T, int c> WICK_MEMBER void pairs(Pairs (&to)[2]) const {
    u32 w[2];
    quads<c>(w);
#pragma unroll
    for (int i = 0; i < 2; i++) {
      const Pairs p = pairs_over_64<T, 6, 0>(w[i]);
      to[i] = {sub_pair<T>(p.even, NINETY_SIX<T>), sub_pair<T>(p.odd, NINETY_SIX<T>)};
    }
  }
  template <int c> WICK_MEMBER void whole_scales(i32 (&to)[2]) const {
    const u16 two = *(const u16*)(row + 192 + 2 * c);
    to[0] = (i8)two, to[1] = (i8)(two >> 8);
  }
  template <int c> WICK_MEMBER void scale(float (&d)[2], float (&m)[2]) const {
    i32 whole[2];
    whole_scales<c>(whole);
    d[0] = dd() * (float)whole[0], d[1] = dd() * (float)whole[1];
    m[0] = m[1] = 0;
  }
};

/** What sums of rounded activations are multiplied by in the end. */
template <class Q, bool Quick> constexpr float UNIT = Quick&& same<Q, Q4_0> ? 0.0625f : 1.0f;
/** Looking up quads of 4-bit floats by whole words leaves them in pairs. */
template <class Q, bool Quick> constexpr Order ORDER = Quick&& same<Q, MXFP4> ? Order::paired : MatrixRow<Q>::order;

// ---- activations ----

/** A chunk of a row of activations: what its whole numbers are multiplied by, and the sum of its values. */
struct alignas(8) Mark {
  float scale, sum;
};
/** Bytes from one row of activations in shared memory to the next: lanes that read neighbours meet no bank twice. */
template <bool Quick> WICK_FN int matrix_pitch(i64 n) { return Quick ? (int)n + 32 : (int)(2 * n) + 64; }

/**
 * Eight values, number `at` of a row, to where lanes find them, and the mark of their chunk: rounded to whole numbers,
 * or each quad as its pairs, in the order in which lanes hold quads. Four lanes have a chunk; nothing is written that
 * is not `in` the rows.
 */
template <bool Quick, Order In, class T> WICK_FN Mark hold_eight(const Eight<T>& held, u8* row, u32 at, bool in) {
  const u32 t = at % 4;
  float v[8];
  unpack_eight(held, v);
  if constexpr (Quick) {
    RoundedEight r = round_eight(v);
    const Mark mark = {r.scale, r.sum};
    if constexpr (In == Order::paired) pair_halves(r);
#pragma unroll
    for (int q = 0; q < 2; q++) {
      const u32 quad = 2 * t + q;
      const u32 place = In == Order::halves ? quad % 4 * 2 + quad / 4 : quad;
      if (in) *(u32*)(row + at / 4 * 32 + 4 * (In == Order::paired ? t % 2 * 4 + t / 2 * 2 + q : place)) = r.w[q];
    }
    return mark;
  } else {
    Mark mark = {1, 0};
#pragma unroll
    for (int k = 0; k < 8; k++) mark.sum += v[k];
    mark.sum += shfl_xor(mark.sum, 1, 4);
    mark.sum += shfl_xor(mark.sum, 2, 4);
    u32 w[4];
    split_words(held.w[0], w);
#pragma unroll
    for (int q = 0; q < 2; q++) {
      const u64 both =
          (u64)((w[2 * q] >> 16) | (w[2 * q + 1] & 0xffff0000u)) << 32 | ((w[2 * q] & 0xffffu) | w[2 * q + 1] << 16);
      const u32 quad = 2 * t + q;
      if (in) *(u64*)(row + at / 4 * 64 + 8 * (In == Order::quads ? quad : quad % 4 * 2 + quad / 4)) = both;
    }
    return mark;
  }
}
/**
 * By the whole block: what it holds of `count` rows of n activations; nobody asks for results of rows past these. Says
 * whether this thread met a sum that is not finite. `meanwhile` runs while the first ones are on their way.
 */
template <bool Quick, Order In, class T, class F>
WICK_FN bool hold_activations(u8* rows, Mark* marks, const T* x, int count, i64 n, F meanwhile) {
  constexpr int U = 2;  // worked on at a time, while as many are asked for
  const int eights = (int)(n / 8), pitch = matrix_pitch<Quick>(n), all = count * eights, step = blockDim.x;
  const float rows_each = 1.0f / (float)eights;
  auto load = [&](Eight<T>(&to)[U], int first) {
#pragma unroll
    for (int u = 0; u < U; u++) to[u] = read_eight(x + 8 * (first + u * step < all ? first + u * step : 0));
  };
  bool infinite = false;
  Eight<T> next[U];
  load(next, threadIdx.x);
  meanwhile();
  ROLLED for (int first = threadIdx.x; first < all; first += U * step) {  // whole waves: rows have 32 eights or more
    Eight<T> held[U];
#pragma unroll
    for (int u = 0; u < U; u++) held[u] = next[u];
    load(next, first + U * step);
#pragma unroll
    for (int u = 0; u < U; u++) {
      const int i = first + u * step;
      const u32 row = (u32)(((float)i + 0.5f) * rows_each), at = (u32)i - row * (u32)eights;
      const Mark mark = hold_eight<Quick, In>(held[u], rows + row * pitch, at, i < all);
      if (at % 4 == 0 && i < all) marks[at / 4 * MATRIX_COLUMNS + row] = mark;
      infinite |= i < all && !(mark.sum - mark.sum == 0);
    }
  }
  return infinite;
}

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
/** The product of 16 rows by 16 bytes that are `Above` their values with eight columns. */
template <int Above> WICK_FN void multiply_half(i32 (&sums)[4], u32 a0, u32 a1, u32 b) {
#if defined(MATRIX_MMA)
  // What is too much is a product with equal bytes.
  constexpr u32 Less = (256 - Above) % 256 * 0x01010101u;
  asm("mma.sync.aligned.m16n8k16.row.col.s32.s8.s8.s32 {%0,%1,%2,%3}, {%4,%4}, {%5}, {%6,%6,%6,%6};"
      : "=r"(sums[0]), "=r"(sums[1]), "=r"(sums[2]), "=r"(sums[3])
      : "r"(Less), "r"(b), "r"(0));
  asm("mma.sync.aligned.m16n8k16.row.col.s32.s8.s8.s32 {%0,%1,%2,%3}, {%4,%5}, {%6}, {%0,%1,%2,%3};"
      : "+r"(sums[0]), "+r"(sums[1]), "+r"(sums[2]), "+r"(sums[3])
      : "r"(a0), "r"(a1), "r"(b));
#else
  const int lane = lane_id() % 32, g = lane / 4, t = lane % 4;
  const u32 a[2] = {sub_bytes(a0, Above), sub_bytes(a1, Above)};
  for (int i = 0; i < 4; i++) sums[i] = 0;
  for (int from = 0; from < 4; from++)
    for (int i = 0; i < 4; i++)
      sums[i] = dp4a((i32)shfl(a[i / 2], 4 * g + from, 32), (i32)shfl(b, 8 * t + 4 * (i % 2) + from, 32), sums[i]);
#endif
}
/** The product of 16 rows by 32 bytes with eight columns, as floats. */
WICK_FN void multiply_bytes(float (&c)[4], const u32 (&a)[4], u32 b0, u32 b1) {
#if defined(MATRIX_MMA)
  // Sums begin at the bits of 1.5 * 2^23, so that they are floats whose last bits are the sums.
  constexpr i32 Bits = 0x4b400000;
  i32 sums[4];
  asm("mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%10,%10,%10,%10};"
      : "=r"(sums[0]), "=r"(sums[1]), "=r"(sums[2]), "=r"(sums[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1), "r"(Bits));
#pragma unroll
  for (int i = 0; i < 4; i++) c[i] = bits_as<float>(sums[i]) - 12582912.0f;
#else
  const int lane = lane_id() % 32, g = lane / 4, t = lane % 4;
  int sums[4] = {};
  for (int from = 0; from < 4; from++)
    for (int i = 0; i < 4; i++) {
      const u32 row = 4 * g + from, column = 8 * t + 4 * (i % 2) + from;
      sums[i] = dp4a((i32)shfl(a[i / 2], row, 32), (i32)shfl(b0, column, 32), sums[i]);
      sums[i] = dp4a((i32)shfl(a[2 + i / 2], row, 32), (i32)shfl(b1, column, 32), sums[i]);
    }
  for (int i = 0; i < 4; i++) c[i] = (float)sums[i];
#endif
}

/** Chunk c of a tile and those after it. */
template <class Q, bool Quick, class T, int c>
WICK_FN void multiply_chunks(const MatrixRow<Q> (&rows)[2], const u8* xs, const Mark* marks, float (&acc)[4]) {
  if constexpr (c < MATRIX_VALUES / 32) {
    constexpr bool Halves = Q::halves == 2;
    constexpr int Offset = Quick ? 0 : MatrixRow<Q>::offset;
    float d[2][Q::halves], m[2][Q::halves], part[4];
#pragma unroll
    for (int r = 0; r < 2; r++)
      if constexpr (!Quick || !Halves) rows[r].template scale<c>(d[r], m[r]);
    u32 mark[4];  // scale and sum of two columns
    split_words(*(const word4*)(marks + MATRIX_COLUMNS * c), mark);
    const float scale[2] = {bits_as<float>(mark[0]), bits_as<float>(mark[2])};
    const float sum[2] = {bits_as<float>(mark[1]), bits_as<float>(mark[3])};
    if constexpr (Quick) {
      u32 low[2], high[2];
      rows[0].template quads<c>(low);
      rows[1].template quads<c>(high);
      const u64 b = *(const u64*)(xs + 32 * c);
      if constexpr (Halves) {
        // Scales of halves are whole numbers: both halves are added up before anything is a float.
        i32 first[4], second[4];
        multiply_half<MatrixRow<Q>::above>(first, low[0], high[0], (u32)b);
        multiply_half<MatrixRow<Q>::above>(second, low[1], high[1], (u32)(b >> 32));
        i32 whole[2][2];
#pragma unroll
        for (int r = 0; r < 2; r++) rows[r].template whole_scales<c>(whole[r]);
#pragma unroll
        for (int i = 0; i < 4; i++) {
          const i32 both = first[i] * whole[i / 2][0] + second[i] * whole[i / 2][1];
          acc[i] = fmaf(rows[i / 2].dd() * scale[i % 2], (float)both, acc[i]);
        }
      } else {
        const u32 a[4] = {low[0], high[0], low[1], high[1]};
        multiply_bytes(part, a, (u32)b, (u32)(b >> 32));
#pragma unroll
        for (int i = 0; i < 4; i++) acc[i] = fmaf(d[i / 2][0], scale[i % 2] * part[i], acc[i]);
      }
    } else {
      Pairs low[2], high[2];
      rows[0].template pairs<T, c>(low);
      rows[1].template pairs<T, c>(high);
      u32 b[4];
      split_words(*(const word4*)(xs + 64 * c), b);
#pragma unroll
      for (int s = 0; s < 2; s++) {
        Frag a = {};
        a.w[0] = low[s].even, a.w[1] = high[s].even, a.w[2] = low[s].odd, a.w[3] = high[s].odd;
        if (s == 0 || Halves) multiply_eight<T, true>(part, a, b[2 * s], b[2 * s + 1]);
        else multiply_eight<T, false>(part, a, b[2 * s], b[2 * s + 1]);
        if (s == 0 && !Halves) continue;
#pragma unroll
        for (int i = 0; i < 4; i++) acc[i] = fmaf(d[i / 2][Halves ? s : 0], part[i], acc[i]);
      }
    }
    if constexpr (Offset != 0 || (Q::min != Min::none && UNIT<Q, Quick> == 1)) {
#pragma unroll
      for (int i = 0; i < 4; i++) {
        const float less = Offset == 0 ? m[i / 2][0] : fmaf((float)Offset, d[i / 2][0], m[i / 2][0]);
        acc[i] = fmaf(-less, sum[i % 2], acc[i]);
      }
    }
    multiply_chunks<Q, Quick, T, c + 1>(rows, xs, marks, acc);
  }
}

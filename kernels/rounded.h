// Activations rounded to whole numbers, a scale for every 32 of them, for products with weights in ggml's blocks.
#pragma once
#include "attention-split.h"
#include "quant-blocks.h"

/**
 * 64 activations as whole numbers with a scale for every 32, and the sums of these, by which minima are multiplied: 80
 * bytes, so that lanes that read neighbours meet no bank of shared memory twice.
 */
struct Rounded64 {
  word4 q[4];
  float scale[2], sum[2];
};
static_assert(sizeof(Rounded64) == 80, "record size");

/**
 * How a row's records lie in shared memory: `Paired` as pair_halves orders values; `Spaced` with 16 bytes after every
 * second one, for lanes that read two of them each.
 */
template <bool Paired, bool Spaced> struct RecordForm { static constexpr bool paired = Paired, spaced = Spaced; };
template <class Form, class R> WICK_FN R* record_at(R* row, int i) {
  return Form::spaced ? (R*)((const u8*)(row + i) + 16 * (i / 2)) : row + i;
}
/** Bytes of a row's records. */
template <class Form> WICK_FN i64 record_bytes(i64 n) {
  return (n + 63) / 64 * sizeof(Rounded64) + (Form::spaced ? (n + 127) / 128 * 16 : 0);
}

/** Eight values as whole numbers, with the scale and the sum of the 32 that four lanes have. */
struct RoundedEight {
  u32 w[2];
  float scale, sum;
};
/** The lowest byte of each word. */
WICK_FN u32 lowest_bytes(const u32 (&w)[4]) {
#if defined(WICK_NVIDIA)
  return __byte_perm(__byte_perm(w[0], w[1], 0x0040), __byte_perm(w[2], w[3], 0x0040), 0x5410);
#else
  return (w[0] & 255u) | (w[1] & 255u) << 8 | (w[2] & 255u) << 16 | w[3] << 24;
#endif
}
/** v / N and N / v; on NVIDIA without branches, where only the last bits of the smallest and largest may differ. */
template <int N> WICK_FN float quotient(float v) {
#if defined(WICK_NVIDIA)
  constexpr float By = 1.0f / N;
  const float q = v * By;
  return fmaf(fmaf(-(float)N, q, v), By, q);
#else
  return v / N;
#endif
}
template <int N> WICK_FN float over(float v) {
#if defined(WICK_NVIDIA)
  float by;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(by) : "f"(0.25f * v));
  by *= 0.25f;
  by = fmaf(fmaf(-v, by, 1.0f), by, by);
  const float q = N * by;
  return fmaf(fmaf(-v, q, (float)N), by, q);
#else
  return N / v;
#endif
}
/** Rounds eight values; four lanes have a chunk, and all of them take part. */
WICK_FN RoundedEight round_eight(const float (&v)[8]) {
  u32 largest = 0;
#pragma unroll
  for (int i = 0; i < 8; i++) {
    const u32 magnitude = bits_as<u32>(v[i]) & 0x7fffffffu;
    largest = magnitude > largest ? magnitude : largest;
  }
#pragma unroll
  for (int mask = 2; mask > 0; mask /= 2) {
    const u32 other = shfl_xor(largest, mask, 4);
    largest = other > largest ? other : largest;
  }
  const bool finite = largest < 0x7f800000u;
  const float most = bits_as<float>(largest);
  // Where all values are 0 the scale is 0, and where one is not finite it is NaN: then whole numbers do not matter.
  const float d = finite ? quotient<127>(most) : bits_as<float>(0x7fc00000u);
  const float inverse = over<127>(most);
  u32 words[2] = {};
  i32 part = 0;
#pragma unroll
  for (int k = 0; k < 2; k++) {
    // Of a float between 2^23 and 2^24 the last bits are a whole number: the sum is one, rounded.
    u32 whole[4];
#pragma unroll
    for (int i = 0; i < 4; i++) whole[i] = bits_as<u32>(v[4 * k + i] * inverse + 12582912.0f);
    words[k] = lowest_bytes(whole);
    part = dp4a(0x01010101, (i32)words[k], part);
  }
#pragma unroll
  for (int mask = 2; mask > 0; mask /= 2) part += shfl_xor(part, mask, 4);
  return {{words[0], words[1]}, d, d * part};
}
/**
 * The same in the order in which nibbles of a word follow one another: each value of the first half of a chunk, then
 * the one 16 after it.
 */
WICK_FN void pair_halves(RoundedEight& v) {
  const bool second = threadIdx.x & 2;
  u32 pairs[4];
#pragma unroll
  for (int i = 0; i < 2; i++) {
    const u32 other = shfl_xor(v.w[i], 2, 4);
    const u32 low = second ? other : v.w[i], high = second ? v.w[i] : other;
    pairs[2 * i] = (low & 0xffu) | (high & 0xffu) << 8 | (low & 0xff00u) << 8 | (high & 0xff00u) << 16;
    pairs[2 * i + 1] = (low >> 16 & 0xffu) | (high >> 8 & 0xff00u) | (low >> 8 & 0xff0000u) | (high & 0xff000000u);
  }
  v.w[0] = second ? pairs[2] : pairs[0], v.w[1] = second ? pairs[3] : pairs[1];
}
/** A lane's share of chunk `chunk` of a row to its place. */
template <class Form> WICK_FN void store_rounded(Rounded64* row, int chunk, bool in, RoundedEight v) {
  if constexpr (Form::paired) pair_halves(v);
  if (!in) return;
  const u32 lane = threadIdx.x % 4, place = Form::paired ? lane % 2 * 2 + lane / 2 : lane;
  Rounded64& to = *record_at<Form>(row, chunk / 2);
  *(u64*)((u32*)to.q + chunk % 2 * 8 + 2 * place) = (u64)v.w[1] << 32 | v.w[0];
  if (lane == 0) to.scale[chunk % 2] = v.scale, to.sum[chunk % 2] = v.sum;
}
/** Eight numbers from an address that is a multiple of 16, by loads that see what was written before. */
template <class T> WICK_FN Eight<T> read_eight(const T* at) {
  Eight<T> v;
#pragma unroll
  for (int i = 0; i < (int)sizeof(T) / 2; i++) v.w[i] = ((const word4*)at)[i];
  return v;
}
/**
 * Rounds a row of n values by the whole block; the caller waits for all. load(at) reads what the eight values from `at`
 * on are made of and make(it, in, values) makes them: much of what a thread needs is asked for before any of it is
 * used, and `meanwhile` runs while it is on its way.
 */
template <class Form, class L, class V, class F>
WICK_FN void round_row(Rounded64* row, i64 n, L load, V make, F meanwhile) {
  constexpr int U = 4;
  const int eights = (int)(n / 8), step = blockDim.x;
  ROLLED for (int first = 0; first < eights; first += U * step) {
    decltype(load(0)) held[U];
#pragma unroll
    for (int u = 0; u < U; u++) {
      if (first + u * step >= eights) break;
      const int i = first + u * step + threadIdx.x;
      held[u] = load(i < eights ? 8 * i : 0);
    }
    if (first == 0) meanwhile();
#pragma unroll
    for (int u = 0; u < U; u++) {
      if (first + u * step >= eights) break;
      const int i = first + u * step + threadIdx.x;
      float v[8];
      make(held[u], i < eights, v);
      store_rounded<Form>(row, i / 4, i < eights, round_eight(v));
    }
  }
}

/** The same for a row of numbers as they lie in memory. */
template <class Form, class T, class F> WICK_FN void round_row(Rounded64* row, i64 n, const T* x, F meanwhile) {
  round_row<Form>(
      row, n, [&](int at) { return read_eight(x + at); },
      [](const Eight<T>& held, bool, float(&v)[8]) { unpack_eight(held, v); }, meanwhile);
}

/** Half a record in registers, and what products of its halves begin with where weights are `Above` their values. */
struct Rounded32 {
  u32 u[8];
  float scale, sum;
  i32 less[2];
};
template <int Above> WICK_FN Rounded32 load_rounded(const Rounded64* records, int half) {
  Rounded32 v = {};
  split_words(records->q[2 * half], v.u);
  split_words(records->q[2 * half + 1], v.u + 4);
  v.scale = records->scale[half], v.sum = records->sum[half];
  if constexpr (Above > 0) {
#pragma unroll
    for (int k = 0; k < 8; k++)
      v.less[k / 4] = dp4a((i32)((u32)(256 - Above) * 0x01010101u), (i32)v.u[k], v.less[k / 4]);
  }
  return v;
}

/** Whether bytes of weights may be 128 and more where they have no sign. */
#if defined(WICK_NVIDIA)
constexpr bool WHOLE_BYTES = true;
WICK_FN i32 dp4a_unsigned(u32 a, i32 b, i32 c) {
  i32 r;
  asm("dp4a.u32.s32 %0, %1, %2, %3;" : "=r"(r) : "r"(a), "r"(b), "r"(c));
  return r;
}
#else
constexpr bool WHOLE_BYTES = false;
WICK_FN i32 dp4a_unsigned(u32 a, i32 b, i32 c) { return dp4a((i32)a, b, c); }
#endif

/** acc plus the product of 32 weights with 32 activations. */
template <class Q> WICK_FN float dot_rounded(const Chunk<Q>& w, const Rounded32& v, float acc) {
  constexpr int Each = 8 / Q::halves;
  float scaled = 0;
#pragma unroll
  for (int h = 0; h < Q::halves; h++) {
    int whole = v.less[h];
#pragma unroll
    for (int k = Each * h; k < Each * (h + 1); k++)
      whole = same<Q, Q4_K> ? dp4a_unsigned((u32)w.v[k], (i32)v.u[k], whole) : dp4a(w.v[k], (i32)v.u[k], whole);
    scaled = fmaf(w.d[h], (float)whole, scaled);
  }
  acc = fmaf(v.scale, scaled, acc);
  if constexpr (Q::min == Min::none && Q::bias == 0) return acc;
  if constexpr (Q::halves == 1) return fmaf(-w.m[0], v.sum, acc);
#pragma unroll
  for (int h = 0; h < Q::halves; h++) {
    int part = 0;
#pragma unroll
    for (int k = Each * h; k < Each * (h + 1); k++) part = dp4a(0x01010101, (i32)v.u[k], part);
    acc = fmaf(-w.m[h], v.scale * (float)part, acc);
  }
  return acc;
}

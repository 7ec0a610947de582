// What factorizations of batches of matrices share.
#pragma once
#include "portable.h"

/** Matrices of a batch that lie in any way: element (i, j) of matrix m. */
template <class S> struct Given {
  const S* first;
  i64 step, row, column;
  WICK_MEMBER S at(i64 m, i64 i, i64 j) const { return first[m * step + i * row + j * column]; }
};

struct Least {
  u64 v;
  WICK_MEMBER u64 operator()(u64 old) const { return old < v ? old : v; }
};
/** Tells of the pivot or minor (counted from 1) that stopped a matrix: the first matrix of a batch is the one kept. */
WICK_FN void tell(u64* trouble, i64 matrix, i64 n, i64 pivot) {
  atomic_update(trouble, Least{(u64)matrix * (u64)(n + 1) + (u64)pivot});
}

/** The largest of 32 lanes' words. */
WICK_FN u32 largest_word(u32 v) {
#if defined(WICK_NVIDIA) && defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
  return __reduce_max_sync(0xffffffffu, v);
#else
#pragma unroll
  for (u32 d = 16; d > 0; d /= 2) {
    const u32 other = shfl_xor(v, d, 32u);
    v = other > v ? other : v;
  }
  return v;
#endif
}

/** A candidate for a pivot: its size, and how far up its row stands, from 1; rank 0 is none. */
struct Candidate {
  u32 high, low, rank;
};
constexpr u32 PLACES = 1 << 20;
template <class T> WICK_FN Candidate candidate(T v, int place) {
  if constexpr (same<T, float>) return {bits_as<u32>(absg(v)), 0, PLACES - (u32)place};
  else {
    const u64 bits = bits_as<u64>(absg(v));
    return {(u32)(bits >> 32), (u32)bits, PLACES - (u32)place};
  }
}
/** Word by word: a choice between structs would lie in memory. */
WICK_FN Candidate better(Candidate a, Candidate b) {
  const bool second = b.rank && (!a.rank || b.high > a.high ||
                                 (b.high == a.high && (b.low > a.low || (b.low == a.low && b.rank > a.rank))));
  return {second ? b.high : a.high, second ? b.low : a.low, second ? b.rank : a.rank};
}
/** The best of each `Width` lanes. */
template <class T, int Width> WICK_FN Candidate best_of(Candidate c) {
  if constexpr (Width == 32) {
    const u32 high = largest_word(c.rank ? c.high : 0);
    const u32 low = same<T, float> ? 0 : largest_word(c.rank && c.high == high ? c.low : 0);
    return {high, low, largest_word(c.high == high && c.low == low ? c.rank : 0)};
  } else {
#pragma unroll
    for (u32 d = Width / 2; d > 0; d /= 2) {
      const u32 width = Width;
      c = better(c, {shfl_xor(c.high, d, width), shfl_xor(c.low, d, width), shfl_xor(c.rank, d, width)});
    }
    return c;
  }
}
WICK_FN int place_of(Candidate c) { return (int)(PLACES - c.rank); }
template <class T> WICK_FN T reciprocal(T v) { return v == 0 ? (T)0 : (T)1 / v; }

// What kernels with one or few queries share: rows read once, eight numbers a lane, and sums scattered over lanes.
#pragma once
#include "portable.h"

/** A load of what is read once, which need not stay in the nearest cache; an early one stays ahead of begin_in_turn where it is written so. */
template <bool Early = false> WICK_FN word4 load_once(const word4* p) {
#if defined(WICK_NVIDIA) && defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 700
  word4 v;
  if constexpr (Early) asm volatile("ld.global.nc.L1::no_allocate.v4.u32 {%0,%1,%2,%3}, [%4];" : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w) : "l"(p));
  else asm("ld.global.nc.L1::no_allocate.v4.u32 {%0,%1,%2,%3}, [%4];" : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w) : "l"(p));
  return v;
#else
  return *p;
#endif
}
/** Eight numbers of a row as they lie in memory. */
template <class T> struct Eight {
  word4 w[sizeof(T) / 2];
};
/** Numbers at .. at+7 of a row, zeros from dim on; `whole` where 16-byte loads serve. */
template <class T, bool Early = false> WICK_FN Eight<T> load_eight(const T* row, int at, int dim, bool whole) {
  Eight<T> r;
  u32 words[4];
#pragma unroll
  for (int i = 0; i < (int)sizeof(T) / 2; i++) {
    if (whole) {
      r.w[i] = load_once<Early>((const word4*)(row + at) + i);
      continue;
    }
#pragma unroll
    for (int k = 0; k < 4; k++) {
      words[k] = 0;
      constexpr int Each = sizeof(T) == 2 ? 2 : 1;
#pragma unroll
      for (int h = 0; h < Each; h++) {
        int e = at + (4 * i + k) * Each + h;
        if (e >= dim) continue;
        if constexpr (sizeof(T) == 2) words[k] |= (u32)row[e].bits << 16 * h;
        else words[k] = bits_as<u32>(row[e]);
      }
    }
    r.w[i] = join_words(words);
  }
  return r;
}
template <class T> WICK_FN void unpack_eight(const Eight<T>& from, float (&to)[8]) {
#pragma unroll
  for (int i = 0; i < (int)sizeof(T) / 2; i++) {
    u32 words[4];
    split_words(from.w[i], words);
#pragma unroll
    for (int k = 0; k < 4; k++) {
      if constexpr (sizeof(T) == 2) {
        to[2 * k] = to_compute(T{(u16)words[k]});
        to[2 * k + 1] = to_compute(T{(u16)(words[k] >> 16)});
      } else {
        to[4 * i + k] = bits_as<float>(words[k]);
      }
    }
  }
}

// Adds N numbers over L lanes, each lane keeping its own share of the results: x[0] .. are those from lane * N / L on. Half of what a
// lane holds goes to its partner at each step, so N sums cost N shuffles and not N log L.
template <int N, int M, int L, int Size> WICK_FN void scatter_sums(float (&x)[Size], int lane) {
  if constexpr (M > 0 && N > 1) {
    const bool high = lane & M;
#pragma unroll
    for (int i = 0; i < N / 2; i++) {
      const float low = x[i], up = x[i + N / 2];  // values, not places: a choice between places keeps the array in memory
      float give = high ? low : up, keep = high ? up : low;
      x[i] = keep + shfl_xor(give, M, L);
    }
    scatter_sums<N / 2, M / 2, L>(x, lane);
  } else if constexpr (M > 0) {
    x[0] += shfl_xor(x[0], M, L);
    scatter_sums<1, M / 2, L>(x, lane);
  }
}

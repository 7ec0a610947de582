// What kernels with one or few queries share: rows read once, eight numbers a lane, and sums scattered over lanes.
#pragma once
#include "portable.h"
#include "settle.h"

/**
 * A load of what is read once, which need not stay in the nearest cache; an early one stays ahead of begin_in_turn
 * where it is written so.
 */
template <bool Early = false> WICK_FN word4 load_once(const word4* p) {
#if defined(WICK_NVIDIA) && defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 700
  word4 v;
  if constexpr (Early)
    asm volatile("ld.global.nc.L1::no_allocate.v4.u32 {%0,%1,%2,%3}, [%4];"
                 : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
                 : "l"(p));
  else
    asm("ld.global.nc.L1::no_allocate.v4.u32 {%0,%1,%2,%3}, [%4];"
        : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
        : "l"(p));
  return v;
#else
  return *p;
#endif
}
/**
 * The same where `in`, else zeros: one conditional load, where a branch around each of many would take compilers long.
 */
template <bool Early = false> WICK_FN word4 load_once_if(bool in, const word4* p) {
#if defined(WICK_NVIDIA) && defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 700
#define LOAD_ONCE_IF                                                                                           \
  ("{\n.reg .pred p;\nsetp.ne.b32 p, %5, 0;\nmov.b32 %0, 0;\nmov.b32 %1, 0;\nmov.b32 %2, 0;\nmov.b32 %3, 0;\n" \
   "@p ld.global.nc.L1::no_allocate.v4.u32 {%0,%1,%2,%3}, [%4];\n}"                                            \
   : "=&r"(v.x), "=&r"(v.y), "=&r"(v.z), "=&r"(v.w)                                                            \
   : "l"(p), "r"((u32)in))
  word4 v;
  if constexpr (Early) asm volatile LOAD_ONCE_IF;
  else asm LOAD_ONCE_IF;
  return v;
#else
  return in ? *p : word4{};
#endif
}
/** Eight numbers of a row as they lie in memory. */
template <class T> struct Eight { word4 w[sizeof(T) / 2]; };
/** Numbers at .. at+7 of a row by 16-byte loads where `in`, else zeros. */
template <bool Early = false, class T> WICK_FN Eight<T> load_eight_if(bool in, const T* at) {
  Eight<T> r;
#pragma unroll
  for (int i = 0; i < (int)sizeof(T) / 2; i++) r.w[i] = load_once_if<Early>(in, (const word4*)at + i);
  return r;
}
/**
 * Numbers at .. at+7 of N rows that may begin anywhere and end before at+7, zeros from dim on; row(n, in) is a row that
 * is there, and `in` whether it is wanted.
 */
template <class T, int N, class F> WICK_FN void load_eights_anywhere(Eight<T> (&to)[N], int at, int dim, F row) {
  constexpr int Words = sizeof(T) * 2, Each = sizeof(T) == 2 ? 2 : 1;
  UNROLL(1, 1)
  for (int n = 0; n < N; n++) {
    bool in = true;
    const T* from = row(n, in);
    u32 words[Words] = {};
#pragma unroll
    for (int i = 0; i < 8; i++) {
      const bool inside = in && at + i < dim;
      const T x = from[inside ? at + i : 0];
      u32 bits;
      if constexpr (sizeof(T) == 2) bits = (u32)x.bits << 16 * (i % 2);
      else bits = bits_as<u32>(x);
      words[i / Each] |= inside ? bits : 0u;
    }
    // One text for all rows: what is there moves up, and arrays keep to registers.
#pragma unroll
    for (int i = 0; i + 1 < N; i++) to[i] = to[i + 1];
#pragma unroll
    for (int i = 0; i < Words / 4; i++) {
      const u32 four[4] = {words[4 * i], words[4 * i + 1], words[4 * i + 2], words[4 * i + 3]};
      to[N - 1].w[i] = join_words(four);
    }
  }
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

// Adds N numbers over L lanes, each lane keeping its own share of the results: x[0] .. are those from lane * N / L on.
// Half of what a lane holds goes to its partner at each step, so N sums cost N shuffles and not N log L.
template <int N, int M, int L, int Size> WICK_FN void scatter_sums(float (&x)[Size], int lane) {
  if constexpr (M > 0 && N > 1) {
    const bool high = lane & M;
#pragma unroll
    for (int i = 0; i < N / 2; i++) {
      // values, not places: a choice between places keeps the array in memory
      const float low = x[i], up = x[i + N / 2];
      float give = high ? low : up, keep = high ? up : low;
      x[i] = keep + shfl_xor(give, M, L);
    }
    scatter_sums<N / 2, M / 2, L>(x, lane);
  } else if constexpr (M > 0) {
    x[0] += shfl_xor(x[0], M, L);
    scatter_sums<1, M / 2, L>(x, lane);
  }
}

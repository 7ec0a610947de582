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
// ---- keys and values in 8 bits ----

/** A byte of Q8_0's blocks, which are a scale of 16 bits and 32 whole numbers. */
struct q8_byte {
  u8 bits;
};
template <> struct Eight<fp8> { u32 w[2]; };
template <> struct Eight<q8_byte> { u32 w[2], scale; };
/**
 * The eight numbers of a lane in a row where `in`, else zeros. Rows in 8 bits begin at multiples of 8 bytes, or, in
 * blocks, of 2; `safe` is a row that is there.
 */
template <class S> WICK_FN Eight<S> load_lane_if(bool in, const S* row, int lane, const S* safe) {
  if constexpr (same<S, fp8>) {
    const u64 v = *(const u64*)(in ? row + 8 * lane : safe);
    return {{in ? (u32)v : 0u, in ? (u32)(v >> 32) : 0u}};
  } else if constexpr (same<S, q8_byte>) {
    const u16* block = (const u16*)(in ? row + lane / 4 * 34 : safe);
    const u16* q = block + 1 + (in ? lane % 4 * 4 : 0);
    const u32 scale = block[0], low = q[0] | (u32)q[1] << 16, high = q[2] | (u32)q[3] << 16;
    return {{in ? low : 0u, in ? high : 0u}, in ? scale : 0u};
  } else {
    return load_eight_if(in, row + 8 * lane);
  }
}
WICK_FN void unpack_eight(const Eight<fp8>& from, float (&to)[8]) {
#pragma unroll
  for (int i = 0; i < 8; i += 2) {
    const u32 two = from.w[i / 4] >> 8 * (i % 4) & 0xffffu;
#if defined(WICK_NVIDIA) && defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 890
    u32 halves;
    asm("cvt.rn.f16x2.e4m3x2 %0, %1;" : "=r"(halves) : "h"((u16)two));
    to[i] = half_to_float(half{(u16)halves}), to[i + 1] = half_to_float(half{(u16)(halves >> 16)});
#else
    to[i] = fp8_to_float(fp8{(u8)two}), to[i + 1] = fp8_to_float(fp8{(u8)(two >> 8)});
#endif
  }
}
WICK_FN void unpack_eight(const Eight<q8_byte>& from, float (&to)[8]) {
  const float scale = half_to_float(half{(u16)from.scale});
#pragma unroll
  for (int i = 0; i < 8; i++) to[i] = scale * (float)(i8)(from.w[i / 4] >> 8 * (i % 4));
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

// What every kernel stands on: the vendor, how kernels and functions are declared, and the parts below, the same on
// NVIDIA, AMD and the host. What vendors name differently is named here and in portable/ (the matrix units: matrix.h).
// Under hipRTC and NVRTC nothing else is included; the host simulation brings simt.h.
#pragma once

#if defined(WICK_SIM)
#define WICK_HOST 1
#include "simt.h"
#elif defined(__HIP__) || defined(__HIPCC_RTC__) || defined(__AMDGCN__)
#define WICK_AMD 1
#elif defined(__CUDACC__) || defined(__CUDACC_RTC__)
#define WICK_NVIDIA 1
#else
#error "portable.h: compile with hipRTC, NVRTC, nvcc, or as host C++ with -DWICK_SIM"
#endif

#ifdef __clang__
#pragma clang fp contract(off)
#endif
#ifdef WICK_NVIDIA
#pragma nv_diag_suppress 177  // a unit uses some of these functions only
#endif

/** Lanes of a wave (warp): 32 on NVIDIA and RDNA, 64 on GCN and CDNA. The compile line says which. */
#ifndef WICK_WAVE
#define WICK_WAVE 32
#endif

// ---- declarations ----

/** A kernel: extern "C" under its own name, with the largest block it may be launched with. */
#define KERNEL(threads) extern "C" __global__ void __launch_bounds__(threads)
/** A device function; MEMBER is the same inside a struct. */
#ifdef WICK_HOST
#define WICK_FN static inline
#define WICK_MEMBER inline
#else
#define WICK_FN static __device__ __forceinline__
#define WICK_MEMBER __device__ __forceinline__
#endif

/**
 * Before a loop that gains nothing by being unrolled: compilers left alone make several copies of it, and take their
 * time.
 */
#ifdef WICK_HOST
#define ROLLED
#else
#define ROLLED _Pragma("unroll 1")
#endif

/** Shared memory whose size the launch gives, 16-byte aligned: DYNAMIC_SHARED(float, tile); */
#ifdef WICK_HOST
#define DYNAMIC_SHARED(T, name) T* name = (T*)simt::dynamic_shared()
#else
#define DYNAMIC_SHARED(T, name)                                               \
  extern __shared__ __attribute__((aligned(16))) unsigned char wick_shared[]; \
  T* name = (T*)wick_shared
#endif

/** A constant in the type computed in (kernels/README.md). */
#define C(value) ((T)(value))

#include "portable/types.h"
#include "portable/conversions.h"
#include "portable/special.h"
#include "portable/single.h"
#include "portable/mathematics.h"
#include "portable/small.h"
#include "portable/waves.h"
#include "portable/atomics.h"
#include "portable/access.h"
#include "portable/layout.h"

// ---- one line for several element types: FOR_FLOATS(ENTRY, usomething, op) makes ENTRY(usomething_f32, float, op) and
// so on ----

#define FOR_REALS(M, STEM, ...)        \
  M(STEM##_f32, float, ##__VA_ARGS__)  \
  M(STEM##_f64, double, ##__VA_ARGS__) \
  M(STEM##_f16, half, ##__VA_ARGS__)   \
  M(STEM##_bf16, bfloat, ##__VA_ARGS__)
#define FOR_INTS(M, STEM, ...)      \
  M(STEM##_u8, u8, ##__VA_ARGS__)   \
  M(STEM##_u32, u32, ##__VA_ARGS__) \
  M(STEM##_i16, i16, ##__VA_ARGS__) \
  M(STEM##_i32, i32, ##__VA_ARGS__) \
  M(STEM##_i64, i64, ##__VA_ARGS__)
#define FOR_CANDLE_INTS(M, STEM, ...) \
  M(STEM##_u8, u8, ##__VA_ARGS__)     \
  M(STEM##_u32, u32, ##__VA_ARGS__)   \
  M(STEM##_i64, i64, ##__VA_ARGS__)

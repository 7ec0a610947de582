// What the launches of a decoding step share.
#pragma once
#include "portable.h"

/** A kernel of which so many blocks are to fit on a multiprocessor. */
#ifdef WICK_NVIDIA
#define KERNEL_BESIDE(threads, blocks) extern "C" __global__ void __launch_bounds__(threads, blocks)
/** The same, of which so many along x are a cluster. */
#define KERNEL_CLUSTER(threads, blocks, together) \
  extern "C" __global__ void __cluster_dims__(together, 1, 1) __launch_bounds__(threads, blocks)
#else
#define KERNEL_CLUSTER(threads, blocks, together) KERNEL(threads)
#define KERNEL_BESIDE(threads, blocks) KERNEL(threads)
#endif

/**
 * The same number, of which compilers do not know that it is the same each time round a loop: they would make a loop
 * for each case.
 */
WICK_FN int unknown(int n) {
#ifdef WICK_NVIDIA
  asm volatile("" : "+r"(n));
#endif
  return n;
}

/** A pointer that is made by here: compilers would put it off past the wait for the launch before. */
template <class A> WICK_FN A* made(A* p) {
#ifdef WICK_NVIDIA
  asm volatile("" : "+l"(p));
#endif
  return p;
}

/**
 * Lets the next launch begin before this one's own turn: that one must read nothing ahead of its turn but what no launch
 * writes.
 */
WICK_FN void hurry_next() {
#if defined(WICK_NVIDIA) && defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

/** `arrive` for blocks whose threads have met: what they wrote is seen by those whom the last one meets. */
WICK_FN u32 arrive_together(u32* p) {
#if defined(WICK_NVIDIA) && defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 700
  u32 before;
  asm volatile("atom.acq_rel.gpu.global.add.u32 %0, [%1], 1;" : "=r"(before) : "l"(p) : "memory");
  return before;
#else
  return arrive(p);
#endif
}

template <class T> WICK_FN float rounded(float x) { return to_compute(from_compute<T>(x)); }

/** Activations of gates by number: src/backends/gpu/decode.ts lists them in this order. */
WICK_FN float activated(i32 which, float x) {
  if (which == 0) return x / (1.0f + expg(-x));
  if (which == 1) return 0.5f * x * (1.0f + tanhg(0.7978845608f * fmaf(0.044715f * x * x, x, x)));
  return 0.5f * x * (1.0f + erfg(x * 0.7071067812f));
}

// Larger floats have larger words; equal ones are told apart by the index, the smaller being better. 0 is less than any
// number.
WICK_FN u64 rank_of(float value, i32 index) {
  u32 bits = bits_as<u32>(value);
  return (u64)(bits >> 31 ? ~bits : bits | 0x80000000u) << 32 | (u32)~index;
}

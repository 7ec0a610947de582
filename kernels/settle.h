// A hold on compilers that fetch ahead too eagerly: AMD's would read the operands of a whole unrolled loop at once and
// put off its sums, and so run out of registers. NVIDIA's do not, and there these are nothing.
#pragma once
#include "portable.h"

/** Plain numbers are made by here, and no later load is moved ahead of this. */
template <class A> WICK_FN void settle(A& a) {
#ifdef WICK_AMD
  if constexpr (sizeof(A) <= 8) {
    asm volatile("" : "+v"(a)::"memory");
  } else {
    typedef u32 words __attribute__((ext_vector_type(sizeof(A) / 4)));
    words w = bits_as<words>(a);
    asm volatile("" : "+v"(w)::"memory");
    a = bits_as<A>(w);
  }
#endif
}
template <class A, int N> WICK_FN void settle(A (&many)[N]) {
#pragma unroll
  for (int i = 0; i < N; i++) settle(many[i]);
}
/**
 * The same where a wave has 32 lanes (RDNA): on CDNA results of matrix units lie in registers of their own, and there
 * is room.
 */
template <class A> WICK_FN void settle_rdna(A& a) {
#if WICK_WAVE == 32
  settle(a);
#endif
}
/**
 * How far a loop is unrolled: compilers left alone unroll it whole, and AMD's then fetch all it reads while NVIDIA's
 * take seconds over it.
 */
#define UNROLL_PRAGMA(text) _Pragma(#text)
#if defined(WICK_AMD)
#define UNROLL(amd, nvidia) UNROLL_PRAGMA(unroll amd)
#elif defined(WICK_NVIDIA)
#define UNROLL(amd, nvidia) UNROLL_PRAGMA(unroll nvidia)
#else
#define UNROLL(amd, nvidia)
#endif

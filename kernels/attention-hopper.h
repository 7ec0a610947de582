// What attention on Hopper shares, forward and backward: how rows lie in shared memory, and what happens to scores.
#pragma once
#include "attention.h"
#include "hopper.h"

/** Threads of a block, and one block a multiprocessor: compilers must know both to share out registers anew. */
#define HOPPER_BOUND 384, 1

/** What happens to scores beside their scale. */
constexpr int CAPPED = 1, BIASED = 2;
constexpr float LOG2_E = 1.44269504f, LN_2 = 0.693147181f;

#if defined(WICK_NVIDIA) && defined(__CUDA_ARCH_FEAT_SM90_ALL)

/** Where 16-byte part c of row r lies in a tile of `rows` rows: 64 columns side by side, then the next 64. */
WICK_FN u32 place(int r, int c, int rows) { return (u32)(c / 8 * rows * 128 + r * 128 + ((c ^ r) & 7) * 16); }

/** Of the numbers at 0, 1, 8, 9, 16, 17, ... 121: a bit for each that is less than n. */
WICK_FN u32 bits_below(int n) {
  const int whole = n < 0 ? 0 : n / 8, count = 2 * whole + (n < 0 ? 0 : n % 8 < 2 ? n % 8 : 2);
  return count < 32 ? (1u << count) - 1 : ~0u;
}

#endif

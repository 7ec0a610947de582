// How often numbers occur, or fall into bins. Kernels and launches: src/backends/gpu/count.ts.
//
//   count_numbers_*, count_bins_*   `blocks` blocks of 256 go round each row of n; `out` (u64) begins as 0. Where `copies` is not 0 a block
//                    counts in shared memory, in as many tables as that, and adds its counts to out at the end: whole
//                    numbers, so that their order changes nothing
#include "block.h"

constexpr int COUNT_AHEAD = 4;  // loads under way

/** Whole numbers from 0: each is its own place. */
struct NumberPlace {
  template <class S> WICK_MEMBER i64 operator()(S x, i64) const { return (i64)x; }
};
/** Equally wide bins between two bounds; both belong to them. */
template <class A> struct BinPlace {
  A least, most, width;
  template <class S> WICK_MEMBER i64 operator()(S stored, i64 bins) const {
    const A x = to_compute(stored);
    if (!(x >= least && x <= most)) return -1;
    const A share = (x - least) * (A)bins / width;
    return share < (A)(bins - 1) ? (i64)share : bins - 1;
  }
};

template <class S, class F>
WICK_FN void count_places(const S* src, u64* out, i64 n, i64 bins, u32 blocks, u32 copies, F place) {
  DYNAMIC_SHARED(u32, tables);
  const u32 size = (u32)bins * copies, block = blockIdx.x % blocks;
  src += (i64)(blockIdx.x / blocks) * n;
  out += (i64)(blockIdx.x / blocks) * bins;
  ROLLED
  for (u32 i = threadIdx.x; i < size; i += 256) tables[i] = 0;
  __syncthreads();
  u32* table = tables + (copies ? wave_id() % copies * (u32)bins : 0);
  ROLLED
  for (i64 base = (i64)block * (256 * COUNT_AHEAD); base < n; base += (i64)blocks * (256 * COUNT_AHEAD)) {
    i64 at[COUNT_AHEAD];
#pragma unroll
    for (int e = 0; e < COUNT_AHEAD; e++) {
      const i64 i = base + e * 256 + threadIdx.x;
      at[e] = i < n ? place(src[i], bins) : -1;
    }
#pragma unroll
    for (int e = 0; e < COUNT_AHEAD; e++) {
      if ((u64)at[e] >= (u64)bins) continue;
      if (copies) atomic_add(&table[at[e]], 1u);
      else atomic_add(&out[at[e]], (u64)1);
    }
  }
  __syncthreads();
  ROLLED
  for (u32 i = threadIdx.x; copies && i < (u32)bins; i += 256) {
    u32 sum = 0;
    ROLLED
    for (u32 c = 0; c < copies; c++) sum += tables[c * (u32)bins + i];
    if (sum) atomic_add(&out[i], (u64)sum);
  }
}

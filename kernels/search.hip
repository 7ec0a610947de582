// Where values would be inserted into sorted rows. Kernels and launches: src/backends/gpu/search.ts.
//
//   search_sorted_*   a thread a value, blocks of 256 go round; `rows` sorted rows of n, each for `each` values one
//                     after another; with `held` (one row) each block keeps the row in shared memory
#include "portable.h"

template <class S>
WICK_FN void search_sorted(const S* sorted, const S* values, i64* out, u64 numel, u64 each, i64 n, u32 right,
                           u32 held) {
  DYNAMIC_SHARED(S, kept);
  if (held) {
    ROLLED
    for (u32 i = threadIdx.x; i < (u32)n; i += 256) kept[i] = sorted[i];
    __syncthreads();
  }
  GRID_STRIDE(i, numel) {
    const S* row = held ? kept : each < numel ? sorted + i / each * n : sorted;
    const auto value = to_compute(values[i]);
    i64 low = 0, high = n;
    ROLLED
    while (low < high) {
      const i64 middle = (low + high) >> 1;
      const auto probe = to_compute(row[middle]);
      // What cannot be compared counts as before the value, as in PyTorch.
      if (right ? probe > value : probe >= value) high = middle;
      else low = middle + 1;
    }
    out[i] = low;
  }
}

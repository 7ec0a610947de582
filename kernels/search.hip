// Where values would be inserted into sorted rows. Kernels and launches: src/backends/gpu/search.ts.
//
//   search_sorted_*   a thread a value, blocks of 256 go round; `rows` sorted rows of n, each for `each` values one
//                     after another
//   search_kept_*     one row for many values: blocks of 512 keep the elements that the first `levels` steps of a
//                     search ask in shared memory, in the order of a heap: the same steps, most of them without the row
#include "portable.h"

/** Whether an element comes before the value; what cannot be compared counts as before it, as in PyTorch. */
template <class T> WICK_FN bool comes_before(T element, T value, bool right) {
  return right ? !(element > value) : !(element >= value);
}

template <class S>
WICK_FN void search_sorted(const S* sorted, const S* values, i64* out, u64 numel, u64 each, i64 n, u32 right) {
  GRID_STRIDE(i, numel) {
    const S* row = each < numel ? sorted + i / each * n : sorted;
    const auto value = to_compute(values[i]);
    i64 low = 0, high = n;
    ROLLED
    while (low < high) {
      const i64 middle = (low + high) >> 1;
      if (comes_before(to_compute(row[middle]), value, right != 0)) low = middle + 1;
      else high = middle;
    }
    out[i] = low;
  }
}

constexpr u32 SEARCH_THREADS = 512, SEARCH_EACH = 4;
/** Where a search stands: between two elements, and at which number of those that are asked, 1 first, then 2 or 3. */
struct Searching {
  u32 low, high, node;
  WICK_MEMBER u32 middle() const { return (low + high) >> 1; }
  WICK_MEMBER void go(bool before) {
    if (low == high) return;
    const u32 at = middle();
    if (before) low = at + 1;
    else high = at;
    node = 2 * node + before;
  }
};
template <class S>
WICK_FN void search_kept(const S* sorted, const S* values, i64* out, u64 numel, u32 n, u32 right, u32 levels) {
  DYNAMIC_SHARED(S, kept);
  ROLLED
  for (u32 node = threadIdx.x + 1; node < 1u << levels; node += SEARCH_THREADS) {
    Searching way = {0, n, 1};
    ROLLED
    for (i32 bit = 30 - (i32)clz32(node); bit >= 0; bit--) way.go(node >> bit & 1);
    // Searches that end early ask no more.
    if (way.low < way.high) kept[node] = sorted[way.middle()];
  }
  __syncthreads();
  constexpr u64 PART = SEARCH_THREADS * SEARCH_EACH;
  ROLLED
  for (u64 base = blockIdx.x * PART; base < numel; base += gridDim.x * PART) {
    compute_t<S> value[SEARCH_EACH];
    Searching way[SEARCH_EACH];
#pragma unroll
    for (u32 e = 0; e < SEARCH_EACH; e++) {
      const u64 i = base + e * SEARCH_THREADS + threadIdx.x;
      value[e] = to_compute(values[i < numel ? i : numel - 1]);
      way[e].low = 0, way[e].high = n, way[e].node = 1;
    }
    // Side by side, so that several wait for memory as long as one.
    ROLLED
    for (u32 level = 0; level < levels; level++) {
#pragma unroll
      for (u32 e = 0; e < SEARCH_EACH; e++)
        if (way[e].low < way[e].high) way[e].go(comes_before(to_compute(kept[way[e].node]), value[e], right != 0));
    }
    ROLLED
    for (u32 left = n >> levels; left > 0; left >>= 1) {
#pragma unroll
      for (u32 e = 0; e < SEARCH_EACH; e++)
        if (way[e].low < way[e].high)
          way[e].go(comes_before(to_compute(sorted[way[e].middle()]), value[e], right != 0));
    }
#pragma unroll
    for (u32 e = 0; e < SEARCH_EACH; e++) {
      const u64 i = base + e * SEARCH_THREADS + threadIdx.x;
      if (i < numel) out[i] = way[e].low;
    }
  }
}

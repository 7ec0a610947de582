// Running sums along one dimension, forward or backward, including the element itself or not.
//
// Kernels and launches: src/backends/gpu/scan.ts. Small floats add up in float, integers in 64 bits.
//   cumsum_rows   [rows, n] contiguous: grid (chunks, rows), block 256; one chunk walks its row carrying the sum along;
//                 with several,
//                 `offsets` [rows, chunks] says where each begins
//   cumsum_packs  the same forwards with 16-byte accesses, n and size multiples of them; the next round is on its way
//   cumsum_sums   sums of the chunks, same grid; their running sums, exclusive, are cumsum_rows again: grid (1, rows)
//   cumsum_cols   [outer, n, inner]: a thread a column, neighbours read together
#include "block.h"

/** Sum of the values of the threads before this one in the block (256 threads), and of all. */
template <class A> WICK_FN A block_scan(A value, A* slots, A& total) {
  A sum = value;
  for (u32 d = 1; d < WICK_WAVE; d *= 2) {
    const A before = shfl_up(sum, d, WICK_WAVE);
    if (lane_id() >= d) sum += before;
  }
  const A ahead = shfl_up(sum, 1, WICK_WAVE);
  __syncthreads();
  if (lane_id() == WICK_WAVE - 1) slots[wave_id()] = sum;
  __syncthreads();
  A base = 0;
  total = 0;
  for (u32 w = 0; w < 256 / WICK_WAVE; w++) {
    if (w == wave_id()) base = total;
    total += slots[w];
  }
  return lane_id() ? base + ahead : base;
}

constexpr int SCAN_EACH = 4;  // elements a thread and round

/** Positions count from the end when `reverse`. */
template <class S, class D>
WICK_FN void cumsum_rows(const S* src, D* dst, const typename TotalOf<S>::sum* offsets, i64 n, i64 size, bool reverse,
                         bool exclusive) {
  typedef typename TotalOf<S>::sum A;
  __shared__ A slots[256 / WICK_WAVE];
  const i64 row = blockIdx.y, from = (i64)blockIdx.x * size, to = from + size < n ? from + size : n;
  A carry = offsets ? offsets[row * gridDim.x + blockIdx.x] : (A)0;
  for (i64 base = from; base < to; base += 256 * SCAN_EACH) {
    A v[SCAN_EACH], sum = 0, total;
#pragma unroll
    for (int e = 0; e < SCAN_EACH; e++) {
      const i64 i = base + threadIdx.x * SCAN_EACH + e;
      v[e] = i < to ? (A)to_compute(src[row * n + (reverse ? n - 1 - i : i)]) : (A)0;
      sum += v[e];
    }
    A at = carry + block_scan(sum, slots, total);
#pragma unroll
    for (int e = 0; e < SCAN_EACH; e++) {
      const i64 i = base + threadIdx.x * SCAN_EACH + e;
      const A next = at + v[e];
      if (i < to) dst[row * n + (reverse ? n - 1 - i : i)] = from_compute<D>(exclusive ? at : next);
      at = next;
    }
    carry += total;
  }
}
/** Floats, whose sums are of their own type. */
template <class S>
WICK_FN void cumsum_packs(const S* src, S* dst, const compute_t<S>* offsets, i64 n, i64 size, bool exclusive) {
  typedef compute_t<S> A;
  constexpr int V = pack_size<S>;
  __shared__ A slots[256 / WICK_WAVE];
  const i64 row = blockIdx.y, from = (i64)blockIdx.x * size, to = from + size < n ? from + size : n;
  const S* line = src + row * n;
  A carry = offsets ? offsets[row * gridDim.x + blockIdx.x] : (A)0, next[V];
  i64 mine = from + (i64)threadIdx.x * V;
#pragma unroll
  for (int e = 0; e < V; e++) next[e] = 0;
  if (mine < to) load_v<V>(line + mine, next);
  for (i64 base = from; base < to; base += 256 * V, mine += 256 * V) {
    A v[V], sum = 0, total;
#pragma unroll
    for (int e = 0; e < V; e++) {
      v[e] = next[e];
      next[e] = 0;
      sum += v[e];
    }
    if (mine + 256 * V < to) load_v<V>(line + mine + 256 * V, next);
    A at = carry + block_scan(sum, slots, total);
#pragma unroll
    for (int e = 0; e < V; e++) {
      const A after = at + v[e];
      v[e] = exclusive ? at : after;
      at = after;
    }
    if (mine < to) store_v<V>(dst + row * n + mine, v);
    carry += total;
  }
}
template <class S>
WICK_FN void cumsum_sums(const S* src, typename TotalOf<S>::sum* sums, i64 n, i64 size, bool reverse) {
  typedef typename TotalOf<S>::sum A;
  __shared__ A slots[WAVE_SLOTS];
  const i64 row = blockIdx.y, from = (i64)blockIdx.x * size, to = from + size < n ? from + size : n;
  A sum = 0;
  ROLLED
  for (i64 i = from + threadIdx.x; i < to; i += 256) sum += (A)to_compute(src[row * n + (reverse ? n - 1 - i : i)]);
  sum = group_sum(sum, 256, slots);
  if (threadIdx.x == 0) sums[row * gridDim.x + blockIdx.x] = sum;
}

template <class S, class D>
WICK_FN void cumsum_cols(const S* src, D* dst, i64 outer, i64 n, i64 inner, u32 reverse, u32 exclusive) {
  typedef typename TotalOf<S>::sum A;
  GRID_STRIDE(c, outer * inner) {
    const i64 base = (i64)c / inner * n * inner + (i64)c % inner;
    A sum = 0;
    ROLLED
    for (i64 k = 0; k < n; k++) {
      const i64 i = base + (reverse ? n - 1 - k : k) * inner;
      const A next = sum + (A)to_compute(src[i]);
      dst[i] = from_compute<D>(exclusive ? sum : next);
      sum = next;
    }
  }
}

// Running sums along one dimension, forward or backward, including the element itself or not.
//
// Launch (src/kernels/launch.ts, scanLaunch). Small floats add up in float, integers in 64 bits.
//   cumsum_rows_T    [rows, n] contiguous: grid (chunks, rows), block 256; one chunk walks its row carrying the sum along; with several,
//                    `offsets` [rows, chunks] says where each begins
//   cumsum_sums_T    sums of the chunks, same grid;  cumsum_spine_T   their running sums, exclusive: grid (1, rows)
//   cumsum_cols_T    [outer, n, inner]: a thread a column, neighbours read together
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
template <class S, class D> WICK_FN void cumsum_rows(const S* src, D* dst, const typename TotalOf<S>::sum* offsets, i64 n, i64 size, bool reverse, bool exclusive) {
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
#define CUMSUM_ROWS(NAME, S)                                                                                                                                     \
  KERNEL(256) NAME(const S* src, TotalOf<S>::result* dst, const TotalOf<S>::sum* offsets, const i64 n, const i64 size, const u32 reverse, const u32 exclusive) { \
    cumsum_rows(src, dst, offsets, n, size, reverse != 0, exclusive != 0);                                                                                       \
  }
template <class S> WICK_FN void cumsum_sums(const S* src, typename TotalOf<S>::sum* sums, i64 n, i64 size, bool reverse) {
  typedef typename TotalOf<S>::sum A;
  __shared__ A slots[WAVE_SLOTS];
  const i64 row = blockIdx.y, from = (i64)blockIdx.x * size, to = from + size < n ? from + size : n;
  A sum = 0;
  ROLLED
  for (i64 i = from + threadIdx.x; i < to; i += 256) sum += (A)to_compute(src[row * n + (reverse ? n - 1 - i : i)]);
  sum = group_sum(sum, 256, slots);
  if (threadIdx.x == 0) sums[row * gridDim.x + blockIdx.x] = sum;
}
#define CUMSUM_SUMS(NAME, S)                                                                              \
  KERNEL(256) NAME(const S* src, TotalOf<S>::sum* sums, const i64 n, const i64 size, const u32 reverse) { \
    cumsum_sums(src, sums, n, size, reverse != 0);                                                        \
  }
#define CUMSUM_SPINE(NAME, A) \
  KERNEL(256) NAME(A* sums, const i64 chunks) { cumsum_rows(sums, sums, (const A*)nullptr, chunks, chunks, false, true); }

#define CUMSUM_COLS(NAME, S)                                                                                                                       \
  KERNEL(256) NAME(const S* src, TotalOf<S>::result* dst, const i64 outer, const i64 n, const i64 inner, const u32 reverse, const u32 exclusive) { \
    GRID_STRIDE(c, outer * inner) {                                                                                                                \
      const i64 base = (i64)c / inner * n * inner + (i64)c % inner;                                                                                \
      TotalOf<S>::sum sum = 0;                                                                                                                     \
      ROLLED                                                                                                                                       \
      for (i64 k = 0; k < n; k++) {                                                                                                                \
        const i64 i = base + (reverse ? n - 1 - k : k) * inner;                                                                                    \
        const TotalOf<S>::sum next = sum + (TotalOf<S>::sum)to_compute(src[i]);                                                                    \
        dst[i] = from_compute<TotalOf<S>::result>(exclusive ? sum : next);                                                                         \
        sum = next;                                                                                                                                \
      }                                                                                                                                            \
    }                                                                                                                                              \
  }

// ---- symbols ----

#define ALL_SCANS(NAME, S)          \
  CUMSUM_ROWS(cumsum_rows##NAME, S) \
  CUMSUM_SUMS(cumsum_sums##NAME, S) \
  CUMSUM_COLS(cumsum_cols##NAME, S)
FOR_REALS(ALL_SCANS, )
FOR_INTS(ALL_SCANS, )
ALL_SCANS(_f8_e4m3, fp8)
CUMSUM_SPINE(cumsum_spine_f32, float)
CUMSUM_SPINE(cumsum_spine_f64, double)
CUMSUM_SPINE(cumsum_spine_u64, u64)

// Running sums along one dimension, forward or backward, including the element itself or not.
//
// Kernels and launches: src/backends/gpu/scan.ts. Small floats add up in float, integers in 64 bits.
//   cumsum_rows   [rows, n] contiguous: grid (chunks, rows), block 256; one chunk walks its row carrying the sum along;
//                 with several, `offsets` [rows, chunks] says where each begins, or what each adds up to (`raw`): a
//                 block then takes the sum of those before its own
//   cumsum_packs  the same forwards with 16-byte accesses, n and size multiples of them; the next round is on its way
//   cumsum_sums   sums of the chunks, same grid, from their ends, so that caches hold their beginnings when running
//                 sums are made; where chunks are too many for a block, their running sums are cumsum_rows again: grid
//                 (1, rows)
//   cumsum_cols   [outer, n, inner]: a thread a chunk of a column, neighbours read together; with several chunks,
//                 `offsets` [outer, chunks, inner] says where each begins
//   cumsum_col_sums  sums of the chunks; their running sums, exclusive, are cumsum_cols again
#include "block-scan.h"

constexpr int SCAN_EACH = 4;  // elements a thread and round

/** What stands before a block's chunk; of raw sums there are as many as a round takes at most. */
template <class A> WICK_FN A before_chunk(const A* offsets, bool raw, A* slots) {
  if (!offsets) return (A)0;
  const A* const line = offsets + (i64)blockIdx.y * gridDim.x;
  if (!raw) return line[blockIdx.x];
  __shared__ A found;
  A v[SCAN_EACH], sum = 0, total;
#pragma unroll
  for (int e = 0; e < SCAN_EACH; e++) {
    const u32 i = threadIdx.x * SCAN_EACH + e;
    v[e] = i < gridDim.x ? line[i] : (A)0;
    sum += v[e];
  }
  A at = block_scan<256>(sum, slots, total);
#pragma unroll
  for (int e = 0; e < SCAN_EACH; e++) {
    if (threadIdx.x * SCAN_EACH + e == blockIdx.x) found = at;
    at += v[e];
  }
  __syncthreads();
  return found;
}
/** Positions count from the end when `reverse`. */
template <class S, class D>
WICK_FN void cumsum_rows(const S* src, D* dst, const typename TotalOf<S>::sum* offsets, i64 n, i64 size, bool raw,
                         bool reverse, bool exclusive) {
  typedef typename TotalOf<S>::sum A;
  __shared__ A slots[256 / WICK_WAVE];
  const i64 row = blockIdx.y, from = (i64)blockIdx.x * size, to = from + size < n ? from + size : n;
  A carry = before_chunk(offsets, raw, slots);
  for (i64 base = from; base < to; base += 256 * SCAN_EACH) {
    A v[SCAN_EACH], sum = 0, total;
#pragma unroll
    for (int e = 0; e < SCAN_EACH; e++) {
      const i64 i = base + threadIdx.x * SCAN_EACH + e;
      v[e] = i < to ? (A)to_compute(src[row * n + (reverse ? n - 1 - i : i)]) : (A)0;
      sum += v[e];
    }
    A at = carry + block_scan<256>(sum, slots, total);
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
WICK_FN void cumsum_packs(const S* src, S* dst, const compute_t<S>* offsets, i64 n, i64 size, bool raw,
                          bool exclusive) {
  typedef compute_t<S> A;
  constexpr int V = pack_size<S>;
  __shared__ A slots[256 / WICK_WAVE];
  const i64 row = blockIdx.y, from = (i64)blockIdx.x * size, to = from + size < n ? from + size : n;
  const S* line = src + row * n;
  A next[V];
  i64 mine = from + (i64)threadIdx.x * V;
#pragma unroll
  for (int e = 0; e < V; e++) next[e] = 0;
  if (mine < to) load_v<V>(line + mine, next);
  A carry = before_chunk(offsets, raw, slots);
  for (i64 base = from; base < to; base += 256 * V, mine += 256 * V) {
    A v[V], sum = 0, total;
#pragma unroll
    for (int e = 0; e < V; e++) {
      v[e] = next[e];
      next[e] = 0;
      sum += v[e];
    }
    if (mine + 256 * V < to) load_v<V>(line + mine + 256 * V, next);
    A at = carry + block_scan<256>(sum, slots, total);
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
constexpr int SUMS_AHEAD = 8;  // loads under way
template <class S>
WICK_FN void cumsum_sums(const S* src, typename TotalOf<S>::sum* sums, i64 n, i64 size, bool reverse) {
  typedef typename TotalOf<S>::sum A;
  __shared__ A slots[WAVE_SLOTS];
  const i64 row = blockIdx.y, from = (i64)blockIdx.x * size, to = from + size < n ? from + size : n;
  const S* line = src + row * n;
  A sum = 0;
  // From the end, so that caches hold the beginning when the running sums are made from there.
  const i64 whole = from + (to - from) / (SUMS_AHEAD * 256) * (SUMS_AHEAD * 256);
  ROLLED
  for (i64 i = whole + threadIdx.x; i < to; i += 256) sum += (A)to_compute(line[reverse ? n - 1 - i : i]);
  ROLLED
  for (i64 i = whole - SUMS_AHEAD * 256 + threadIdx.x; i >= from; i -= SUMS_AHEAD * 256) {
    S v[SUMS_AHEAD];
#pragma unroll
    for (int e = 0; e < SUMS_AHEAD; e++) v[e] = line[reverse ? n - 1 - (i + e * 256) : i + e * 256];
#pragma unroll
    for (int e = 0; e < SUMS_AHEAD; e++) sum += (A)to_compute(v[e]);
  }
  sum = group_sum(sum, 256, slots);
  if (threadIdx.x == 0) sums[row * gridDim.x + blockIdx.x] = sum;
}

constexpr int COLUMN_AHEAD = 8;  // loads under way

/** Calls f(element, number) for a chunk of a column; chunk c counts [outer, chunks, inner]. */
template <class S, class F>
WICK_FN void along_column(const S* src, i64 c, i64 n, i64 inner, i64 size, u32 reverse, F f) {
  const i64 chunks = (n + size - 1) / size, line = c / inner, from = line % chunks * size;
  const i64 step = reverse ? -inner : inner, count = from + size < n ? size : n - from;
  i64 at = (line / chunks * n + (reverse ? n - 1 - from : from)) * inner + c % inner, k = 0;
  ROLLED
  for (; k + COLUMN_AHEAD <= count; k += COLUMN_AHEAD) {
    S v[COLUMN_AHEAD];
#pragma unroll
    for (int e = 0; e < COLUMN_AHEAD; e++) v[e] = src[at + e * step];
#pragma unroll
    for (int e = 0; e < COLUMN_AHEAD; e++, at += step) f(at, to_compute(v[e]));
  }
  ROLLED
  for (; k < count; k++, at += step) f(at, to_compute(src[at]));
}
template <class S, class D>
WICK_FN void cumsum_cols(const S* src, D* dst, const typename TotalOf<S>::sum* offsets, i64 all, i64 n, i64 inner,
                         i64 size, u32 reverse, u32 exclusive) {
  typedef typename TotalOf<S>::sum A;
  GRID_STRIDE(c, all) {
    A sum = offsets ? offsets[c] : (A)0;
    along_column(src, c, n, inner, size, reverse, [&](i64 i, auto x) {
      const A next = sum + (A)x;
      dst[i] = from_compute<D>(exclusive ? sum : next);
      sum = next;
    });
  }
}
template <class S>
WICK_FN void cumsum_col_sums(const S* src, typename TotalOf<S>::sum* sums, i64 all, i64 n, i64 inner, i64 size,
                             u32 reverse) {
  typedef typename TotalOf<S>::sum A;
  GRID_STRIDE(c, all) {
    A sum = 0;
    along_column(src, c, n, inner, size, reverse, [&](i64, auto x) { sum += (A)x; });
    sums[c] = sum;
  }
}

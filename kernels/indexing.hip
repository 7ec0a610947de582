// Reading at indices of any layout, and row moves at copy speed. Kernels and launches:
// src/backends/gpu/indexing.ts.
//
// The index dtype's largest value means "no element": it reads 0 and writes nothing, for every value dtype. An index
// that is neither that nor inside its dimension is treated the same by Candle's; these set *fault, so that the backend
// can report it, and read all bits set: NaN in every float dtype, so that the result is not taken for zeros. Where such
// an index writes, all of its lane becomes that.
//
//   select_rows      rows of `words` words (of 16, 8, 4, 2 or 1 bytes), `lanes` threads a row: out[l, j] = src[l, ids[j
//                    * step]]
//                    what names no row is that of `rest`, where there is one; with `wrap` indices below 0 count from
//                    the end, here and in gather_lanes
//   store_rows       the same rows the other way, in place: dst[ids[j]] = src[j]
//   gather_any       any layouts and any smaller index shape; info: dims, ids strides, src strides (0 along dim)
//   gather_lanes     the same a lane along the last dimension at a time, whose place is found once for all of it
#include "indexing.h"

/** Rows are moved as words, so dtypes do not matter, only the largest word that divides a row and its addresses. */
template <class W, class I>
WICK_FN void select_rows(const I* ids, i64 step, const W* src, const W* rest, W* dst, u32* fault, i64 left, i64 src_dim,
                         i64 ids_dim, i64 words, u32 lanes, u32 wrap) {
  const RowWalk walk(lanes);
  EACH_ROW(walk, row, live, left * ids_dim) {
    if (live) {
      const i64 l = row / ids_dim, at = place_from_end(ids[(row - l * ids_dim) * step], (u64)src_dim, fault, wrap);
      const bool none = at < 0 && !(rest && at == -1);
      const W* from = at >= 0 ? src + (l * src_dim + at) * words : rest + row * words;
      W* to = dst + row * words;
      i64 w = walk.lane;
      if (none) ROLLED
      for (; w < words; w += lanes) to[w] = absent<W>(at);
      ROLLED
      for (; w + 3 * (i64)lanes < words; w += 4 * (i64)lanes) {
        W x[4];
#pragma unroll
        for (int u = 0; u < 4; u++) x[u] = from[w + u * (i64)lanes];
#pragma unroll
        for (int u = 0; u < 4; u++) to[w + u * (i64)lanes] = x[u];
      }
      ROLLED
      for (; w < words; w += lanes) to[w] = from[w];
    }
  }
}

/** Rows to their places in dst, which keeps its others: what select_rows reads, written. */
template <class W>
WICK_FN void store_rows(const i32* ids, const W* src, i64 src_step, W* dst, u32* fault, i64 dst_dim, i64 n, i64 words,
                        u32 lanes) {
  const RowWalk walk(lanes);
  EACH_ROW(walk, row, live, n) {
    const i64 at = live ? place(ids[row], (u64)dst_dim, fault) : -1;
    if (at >= 0) ROLLED
    for (i64 w = walk.lane; w < words; w += lanes) dst[at * words + w] = src[row * src_step + w];
  }
}

template <class I, class W>
WICK_FN void gather_any(const I* ids, const W* src, W* dst, u32* fault, const u64* info, u32 rank, u64 dim_size,
                        u64 dim_stride, u64 numel) {
  ROLLED
  GRID_STRIDE(i, numel) {
    u64 of[2];  // ids, src
    strided_indices(i, rank, info, info + rank, of);
    const i64 at = place(ids[of[0]], dim_size, fault);
    dst[i] = at < 0 ? absent<W>(at) : src[of[1] + (u64)at * dim_stride];
  }
}

constexpr u32 LANE_THREADS = 256, LANE_EACH = 4;
template <class I, class W>
WICK_FN void gather_lanes(const I* ids, const W* src, W* dst, u32* fault, const u64* info, u32 rank, u64 lanes,
                          u64 count, u64 ids_step, u64 src_step, u64 dim_size, u64 dim_stride, u32 across, u32 wrap) {
  constexpr u32 PART = LANE_THREADS * LANE_EACH;
  const u64 parts = (count + PART - 1) / PART;
  ROLLED
  for (u64 b = blockIdx.x; b < lanes * parts; b += gridDim.x) {
    // Where lanes read across each other's places, the same part of all lanes comes first: it is likelier to be near.
    const u64 lane = across ? b % lanes : b / parts, part = across ? b / lanes : b - lane * parts;
    const u64 first = part * PART + threadIdx.x;
    u64 of[2];  // ids, src
    strided_indices(lane, rank, info, info + rank, of);
    const I* id = ids + of[0];
    const W* from = src + of[1];
    W* to = dst + lane * count;
    // All indices, then all elements, so that a thread waits for memory twice and not eight times.
    I found[LANE_EACH];
#pragma unroll
    for (u32 u = 0; u < LANE_EACH; u++) {
      const u64 j = first + u * LANE_THREADS;
      found[u] = j < count ? id[j * ids_step] : Limits<I>::highest();
    }
    i64 at[LANE_EACH];
#pragma unroll
    for (u32 u = 0; u < LANE_EACH; u++) at[u] = place_from_end(found[u], dim_size, fault, wrap);
    W v[LANE_EACH];
#pragma unroll
    for (u32 u = 0; u < LANE_EACH; u++)
      v[u] = at[u] < 0 ? absent<W>(at[u]) : from[(first + u * LANE_THREADS) * src_step + (u64)at[u] * dim_stride];
#pragma unroll
    for (u32 u = 0; u < LANE_EACH; u++)
      if (first + u * LANE_THREADS < count) to[first + u * LANE_THREADS] = v[u];
  }
}

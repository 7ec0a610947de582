// Reading and writing at indices of any layout, and row moves at copy speed. Kernels and launches:
// src/backends/gpu/indexing.ts.
//
// The index dtype's largest value means "no element": it reads 0 and writes nothing, for every value dtype. An index
// that is neither that nor inside its dimension is treated the same by Candle's; these set *fault, so that the backend
// can report it, and read all bits set: NaN in every float dtype, so that the result is not taken for zeros. Where such
// an index writes, all of its lane becomes that.
//
//   select_rows      rows of `words` words (of 16, 8, 4, 2 or 1 bytes), `lanes` threads a row: out[l, j] = src[l, ids[j
//                    * step]]
//   store_rows       the same rows the other way, in place: dst[ids[j]] = src[j]
//   gather_any       any layouts and any smaller index shape; info: dims, ids strides, src strides (0 along dim)
//   gather_lanes     the same a lane along the last dimension at a time, whose place is found once for all of it
//   scatter_any      a thread a lane; info: dims without dim, strides of ids, src and dst
//   scatter_keys, scatter_sorted   few long lanes: indices become keys [lanes, count], each lane is sorted, and a
//                                  thread looks
//                    after each place that is written; the results are those of the thread a lane
//   scatter_clear, scatter_claim, scatter_claimed   few long lanes that are written and not added to: every index claims
//                    its place, the last one of a lane keeps it
//   scatter_held     lanes side by side, whose places fit the shared memory of a few blocks
//   index_keys       indices as u32 keys for argsort
//   add_sorted       out[l, ids[j]] += src[l, j] from sorted indices (`order` as argsort gives, `sorted` the indices in
//                    that order): a group a run of equal
//                    indices, rows added in their original order, so the result is that of the serial loop
#include "indexing.h"

/** Rows are moved as words, so dtypes do not matter, only the largest word that divides a row and its addresses. */
template <class W, class I>
WICK_FN void select_rows(const I* ids, i64 step, const W* src, W* dst, u32* fault, i64 left, i64 src_dim, i64 ids_dim,
                         i64 words, u32 lanes) {
  const RowWalk walk(lanes);
  EACH_ROW(walk, row, live, left * ids_dim) {
    if (live) {
      const i64 l = row / ids_dim, at = place(ids[(row - l * ids_dim) * step], (u64)src_dim, fault);
      const W* from = src + (l * src_dim + (at < 0 ? 0 : at)) * words;
      W* to = dst + row * words;
      i64 w = walk.lane;
      if (at < 0) ROLLED
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
                          u64 count, u64 ids_step, u64 src_step, u64 dim_size, u64 dim_stride) {
  constexpr u32 PART = LANE_THREADS * LANE_EACH;
  const u64 parts = (count + PART - 1) / PART;
  ROLLED
  for (u64 b = blockIdx.x; b < lanes * parts; b += gridDim.x) {
    const u64 lane = b / parts, first = (b - lane * parts) * PART + threadIdx.x;
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
    for (u32 u = 0; u < LANE_EACH; u++) at[u] = place(found[u], dim_size, fault);
    W v[LANE_EACH];
#pragma unroll
    for (u32 u = 0; u < LANE_EACH; u++)
      v[u] = at[u] < 0 ? absent<W>(at[u]) : from[(first + u * LANE_THREADS) * src_step + (u64)at[u] * dim_stride];
#pragma unroll
    for (u32 u = 0; u < LANE_EACH; u++)
      if (first + u * LANE_THREADS < count) to[first + u * LANE_THREADS] = v[u];
  }
}

template <bool ADD, class I, class S>
WICK_FN void scatter_any(const I* ids, const S* src, S* dst, u32* fault, const u64* info, u32 rank, u64 lanes,
                         u64 count, u64 ids_step, u64 src_step, u64 dst_dim, u64 dst_step) {
  ROLLED
  GRID_STRIDE(i, lanes) {
    u64 of[3];
    strided_indices(i, rank, info, info + rank, of);
    const I* id = ids + of[0];
    const S* from = src + of[1];
    S* to = dst + of[2];
    bool bad = false;
    ROLLED
    for (u64 j = 0; j < count; j++) {
      const i64 at = place(id[j * ids_step], dst_dim, fault);
      bad |= at == -2;
      if (at < 0) continue;
      S* element = to + (u64)at * dst_step;
      *element = ADD ? plus(*element, from[j * src_step]) : from[j * src_step];
    }
    if (bad) spoil(to, dst_dim, dst_step);
  }
}

/** The places of every lane as keys, what is none as the two largest. */
template <class I>
WICK_FN void scatter_keys(const I* ids, u32* keys, u32* fault, const u64* info, u32 rank, u64 lanes, u64 count,
                          u64 ids_step, u64 dst_dim) {
  GRID_STRIDE(e, lanes * count) {
    const u64 i = e / count, j = e % count;
    keys[e] = key_of(place(ids[strided_index(i, rank, info, info + rank) + j * ids_step], dst_dim, fault));
  }
}
/**
 * One thread does each run of equal places: its first adds the run up in the order it came, its last is what stays. A
 * lane with a bad index is left to its last thread.
 */
template <bool ADD, class S>
WICK_FN void scatter_sorted(const u32* order, const u32* sorted, const S* src, S* dst, const u64* info, u32 rank,
                            u64 lanes, u64 count, u64 src_step, u64 dst_dim, u64 dst_step) {
  ROLLED
  GRID_STRIDE(e, lanes * count) {
    const u64 i = e / count, j = e % count, lane = i * count;
    const u32 at = sorted[e];
    const bool bad = sorted[lane + count - 1] == BAD_KEY;
    if (bad ? j + 1 < count : at >= dst_dim) continue;
    if (!bad && (ADD ? j > 0 && sorted[e - 1] == at : j + 1 < count && sorted[e + 1] == at)) continue;
    u64 of[2];
    strided_indices(i, rank, info, info + 2 * rank, of);
    const S* from = src + of[0];
    if (bad) {
      spoil(dst + of[1], dst_dim, dst_step);
      continue;
    }
    S* to = dst + of[1] + at * dst_step;
    if constexpr (ADD) {
      S sum = *to;
      ROLLED
      for (u64 k = j; k < count && sorted[lane + k] == at; k++) sum = plus(sum, from[order[lane + k] * src_step]);
      *to = sum;
    } else *to = from[order[e] * src_step];
  }
}

WICK_FN void clear_claims(u32* words, u64 n) { GRID_STRIDE(i, n) words[i] = 0; }
/** claims[lane][place] = 1 + the last index of the lane that names it; behind them, whether a lane has a bad index. */
template <class I>
WICK_FN void scatter_claim(const I* ids, u32* claims, u32* fault, const u64* info, u32 rank, u64 lanes, u64 count,
                           u64 ids_step, u64 dst_dim) {
  GRID_STRIDE(e, lanes * count) {
    const u64 i = e / count, j = e - i * count;
    const i64 at = place(ids[strided_index(i, rank, info, info + rank) + j * ids_step], dst_dim, fault);
    if (at >= 0) atomic_max(&claims[i * dst_dim + (u64)at], (u32)j + 1);
    else if (at == -2) claims[lanes * dst_dim + i] = 1;
  }
}
template <class W>
WICK_FN void scatter_claimed(const u32* claims, const W* src, W* dst, const u64* info, u32 rank, u64 lanes,
                             u64 src_step, u64 dst_dim, u64 dst_step) {
  GRID_STRIDE(e, lanes * dst_dim) {
    const u64 i = e / dst_dim, k = e - i * dst_dim;
    const u32 claim = claims[e];
    const bool bad = claims[lanes * dst_dim + i] != 0;
    if (!bad && claim == 0) continue;
    u64 of[2];
    strided_indices(i, rank, info, info + 2 * rank, of);
    dst[of[1] + k * dst_step] = bad ? absent<W>(-2) : src[of[0] + (u64)(claim - 1) * src_step];
  }
}

/** Places of a lane that a block holds in shared memory: with who comes to each, 32 KB. */
template <class S> constexpr u32 held_places = sizeof(S) == 8 ? 2048 : 4096;
constexpr u32 HELD_THREADS = 256, NOBODY = 0xffffffffu;
/** Whether the order of additions cannot be told from the result. */
template <class S> constexpr bool adds_in_any_order = !is_float<S> && sizeof(S) >= 4;

/**
 * Contiguous lanes: a block holds a part of a lane's places and sees all of its indices. Of those that meet at one
 * place, the last one is found by its number, or they are added one a round, in their order: the results are those of
 * a thread a lane.
 */
template <bool ADD, class I, class S>
WICK_FN void scatter_held(const I* ids, const S* src, S* dst, u32* fault, u64 lanes, u64 count, u64 ids_lane,
                          u64 ids_step, u64 dst_dim) {
  constexpr u32 HELD = held_places<S>;
  __shared__ S held[ADD ? HELD : 1];
  __shared__ u32 comes[HELD];
  __shared__ u32 waiting, spoilt;
  const u64 parts = (dst_dim + HELD - 1) / HELD;
  ROLLED
  for (u64 b = blockIdx.x; b < lanes * parts; b += gridDim.x) {
    const u64 lane = b / parts, first = b % parts * HELD;
    const u32 size = (u32)(dst_dim - first < HELD ? dst_dim - first : HELD);
    const I* id = ids + lane * ids_lane;
    const S* from = src + lane * count;
    S* to = dst + lane * dst_dim + first;
    if (threadIdx.x == 0) spoilt = 0;
    ROLLED
    for (u32 k = threadIdx.x; k < size; k += HELD_THREADS) {
      comes[k] = ADD ? NOBODY : 0;
      if constexpr (ADD) held[k] = to[k];
    }
    __syncthreads();
    ROLLED
    for (u64 base = 0; base < count; base += HELD_THREADS) {
      const u64 j = base + threadIdx.x;
      const i64 at = j < count ? place(id[j * ids_step], dst_dim, fault) : -1;
      if (at == -2) spoilt = 1;
      const u64 k = (u64)at - first;
      bool mine = at >= 0 && k < size;
      if constexpr (!ADD) {
        if (mine) atomic_max(&comes[k], (u32)j + 1);
      } else if constexpr (adds_in_any_order<S>) {
        if (mine) atomic_add((typename SumOf<S>::type*)&held[k], (typename SumOf<S>::type)from[j]);
      } else {
        const S value = mine ? from[j] : S{};
        bool again;
        do {
          if (mine) atomic_min(&comes[k], threadIdx.x);
          __syncthreads();
          if (threadIdx.x == 0) waiting = 0;
          const bool turn = mine && comes[k] == threadIdx.x;
          if (turn) held[k] = plus(held[k], value);
          __syncthreads();
          if (turn) comes[k] = NOBODY, mine = false;
          if (mine) waiting = 1;
          __syncthreads();
          again = waiting != 0;
        } while (again);
      }
    }
    __syncthreads();
    ROLLED
    for (u32 k = threadIdx.x; k < size; k += HELD_THREADS) {
      if (spoilt) to[k] = absent<S>(-2);
      else if constexpr (ADD) to[k] = held[k];
      else if (comes[k]) to[k] = from[comes[k] - 1];
    }
    __syncthreads();
  }
}

/** One run of equal indices: rows of src are added to row `at` of dst in the order they came. */
template <class S>
WICK_FN void add_sorted(const u32* order, const u32* sorted, const S* src, S* dst, u64 left, u64 n, u64 dst_dim,
                        u64 right) {
  // blockIdx.y is the left index, blockIdx.z where in a row; each block looks at 8 positions, 32 threads each, and
  // works only where a run begins.
  const u64 j = (u64)blockIdx.x * 8 + threadIdx.y;
  if (j >= n || (j > 0 && sorted[j] == sorted[j - 1])) return;
  const u32 at = sorted[j];
  const bool bad = sorted[n - 1] == BAD_KEY;
  if (bad ? at != BAD_KEY : at >= dst_dim) return;
  ROLLED
  for (u64 l = blockIdx.y; l < left; l += gridDim.y) {
    S* const row = dst + l * dst_dim * right;
    ROLLED
    for (u64 r = blockIdx.z * 32 + threadIdx.x; r < right; r += 32 * (u64)gridDim.z) {
      if (bad) {
        spoil(row + r, dst_dim, right);
        continue;
      }
      S* to = row + at * right + r;
      typename SumOf<S>::type sum = (typename SumOf<S>::type)to_compute(*to);
      ROLLED
      for (u64 k = j; k < n && sorted[k] == at; k++)
        sum += (typename SumOf<S>::type)to_compute(src[(l * n + order[k]) * right + r]);
      *to = from_compute<S>(sum);
    }
  }
}
/**
 * Indices of any dtype as u32, what is not a place as the two largest, and for a strided index vector: what add_sorted
 * and its sort read.
 */
template <class I> WICK_FN void index_keys(const I* ids, i64 step, u32* keys, u32* fault, u64 n, u64 dim) {
  GRID_STRIDE(i, n) keys[i] = key_of(place(ids[(i64)i * step], dim, fault));
}

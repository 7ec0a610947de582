// Writing at indices of any layout, and sums by index. Kernels and launches: src/backends/gpu/scatter.ts. Indices mean
// what they mean to kernels/indexing.hip.
//
//   scatter_any      a thread a lane; info: dims without dim, strides of ids, src and dst
//   scatter_keys, scatter_sorted   few long lanes: indices become keys [lanes, count], each lane is sorted, and a
//                                  thread looks
//                    after each place that is written; the results are those of the thread a lane
//   scatter_clear, scatter_claim, scatter_claimed   few long lanes that are written and not added to: every index
//                    claims its place, the last one of a lane keeps it
//   scatter_held     lanes side by side, whose places fit the shared memory of a few blocks
//   index_keys       indices as u32 keys for argsort
//   run_starts       where each place begins among sorted indices
//   add_rows         x, and src added to it by index, from indices sorted so (`order` as argsort gives): rows in their
//                    original order, so the result is that of the serial loop
#include "indexing.h"

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

/** Where each place begins among sorted places, and where the last one ends. */
WICK_FN void run_starts(const u32* sorted, u32* starts, u64 n, u64 dst_dim) {
  GRID_STRIDE(at, dst_dim + 1) {
    u64 low = 0, high = n;
    ROLLED
    while (low < high) {
      const u64 middle = (low + high) >> 1;
      if (sorted[middle] < at) low = middle + 1;
      else high = middle;
    }
    starts[at] = (u32)low;
  }
}
/** Where element [l, j, r] of rows lies: steps of 0 stand for one number many times. */
struct RowSteps {
  i64 left, row, step;
};
/** V neighbours at p, which lie side by side or are all the same. */
template <int V, class S> WICK_FN void load_row(const S* p, i64 step, compute_t<S> (&x)[V]) {
  if constexpr (V == 1) x[0] = to_compute(*p);
  else if (step) load_v<V>(p, x);
  else {
#pragma unroll
    for (int v = 0; v < V; v++) x[v] = to_compute(*p);
  }
}
/**
 * out[l, i] = x[l, i] and, one after another, the rows of src whose indices are i: sorted[starts[i]] and those up to
 * the next start, in `order`. A thread V neighbours of a row.
 */
template <int V, class S>
WICK_FN void add_rows(const u32* order, const u32* sorted, const u32* starts, const S* x, const S* src, S* out,
                      u64 left, u64 n, u64 dst_dim, u64 right, RowSteps from, RowSteps add) {
  typedef typename SumOf<S>::type A;
  const bool bad = sorted[n - 1] == BAD_KEY;
  const u64 vectors = right / V;
  ROLLED
  GRID_STRIDE(e, left * dst_dim * vectors) {
    const u64 row = e / vectors, r = (e - row * vectors) * V, l = row / dst_dim, i = row - l * dst_dim;
    compute_t<S> v[V];
    A sum[V];
    load_row<V>(x + l * from.left + i * from.row + r * from.step, from.step, v);
#pragma unroll
    for (int u = 0; u < V; u++) sum[u] = (A)v[u];
    const u32 end = starts[i + 1];
    ROLLED
    for (u32 k = starts[i]; k < end; k++) {
      load_row<V>(src + l * add.left + order[k] * add.row + r * add.step, add.step, v);
#pragma unroll
      for (int u = 0; u < V; u++) sum[u] += (A)v[u];
    }
    if (bad) {
#pragma unroll
      for (int u = 0; u < V; u++) out[row * right + r + u] = absent<S>(-2);
      continue;
    }
    if constexpr (V == 1) out[row * right + r] = from_compute<S>(sum[0]);
    else {
#pragma unroll
      for (int u = 0; u < V; u++) v[u] = sum[u];
      store_v<V>(out + row * right + r, v);
    }
  }
}
/**
 * Indices of any dtype as u32, what is not a place as the two largest, and for a strided index vector: what a sort
 * and run_starts read.
 */
template <class I> WICK_FN void index_keys(const I* ids, i64 step, u32* keys, u32* fault, u64 n, u64 dim) {
  GRID_STRIDE(i, n) keys[i] = key_of(place(ids[(i64)i * step], dim, fault));
}

// Sorting rows that a block holds: stable, any dtype, NaN above everything. Kernels and launches:
// src/backends/gpu/sort.ts.
//
//   sort_rows     short rows: 4 elements a thread, `lanes` = padded length / 4 threads a row, block 256 or lanes when
//                 more; a bitonic network through registers, shuffles and, beyond a wave, shared memory (16 * lanes *
//                 element bytes). Writes the first `keep` indices, and values where asked: top-k is the same launch
//   sort_block    rows up to THREADS * ITEMS, a block a row: a pass a byte of the keys that is not the same in all
//   take_values, take_indices   values in the order of the indices; the first indices of each row
#include "radix.h"

// ---- rows in a block ----

/** A key with its index, so that no two are equal: up to 4 bytes of key fit one 64-bit word. */
struct WideItem {
  u64 key;
  u32 index, unused;
  WICK_MEMBER bool operator<(const WideItem& o) const { return key < o.key || (key == o.key && index < o.index); }
};
template <class U> struct ItemOf { typedef u64 type; };
template <> struct ItemOf<u64> { typedef WideItem type; };
template <class U> WICK_FN typename ItemOf<U>::type make_item(U key, u32 index) {
  if constexpr (sizeof(U) == 8) {
    WideItem item = {key, index, 0};
    return item;
  } else return (u64)key << 32 | index;
}
WICK_FN u32 item_index(u64 item) { return (u32)item; }
WICK_FN u32 item_index(const WideItem& item) { return item.index; }

constexpr int EACH = 4;  // elements a thread

template <class T> WICK_FN void settle(T& a, T& b, bool up) {
  const T x = a, y = b;
  const bool swap = (y < x) == up;
  a = swap ? y : x;
  b = swap ? x : y;
}
template <class S>
WICK_FN void sort_rows(const S* src, u32* indices, S* values, i64 rows, i64 cols, i64 keep, u32 descending, u32 lanes) {
  typedef key_t_of<S> U;
  typedef typename ItemOf<U>::type T;
  DYNAMIC_SHARED(T, shared);
  const RowWalk walk(lanes);
  const u32 lane = walk.lane, width = lanes < WICK_WAVE ? lanes : WICK_WAVE, n = lanes * EACH;
  EACH_ROW(walk, row, live, rows) {
    const S* from = src + (live ? row : 0) * cols;
    T v[EACH];
#pragma unroll
    for (int e = 0; e < EACH; e++) {
      const u32 c = (u32)e * lanes + lane;
      // Padding has the largest key and an index behind all others.
      v[e] = make_item<U>(live && c < cols ? sort_key(from[c], descending != 0) : (U) ~(U)0,
                          c < cols ? c : c | 0x80000000u);
    }
    for (u32 k = 2; k <= n; k *= 2) {
      for (u32 j = k / 2; j >= EACH; j /= 2) {
        const u32 step = j / EACH;
        const bool small = ((lane & step) == 0) == ((lane * EACH & k) == 0);
        T other[EACH];
        if (step < width) {
#pragma unroll
          for (int e = 0; e < EACH; e++) other[e] = shfl_xor(v[e], step, width);
        } else {
          __syncthreads();
#pragma unroll
          for (int e = 0; e < EACH; e++) shared[(u32)e * lanes + lane] = v[e];
          __syncthreads();
#pragma unroll
          for (int e = 0; e < EACH; e++) other[e] = shared[(u32)e * lanes + (lane ^ step)];
        }
#pragma unroll
        for (int e = 0; e < EACH; e++)
          if ((other[e] < v[e]) == small) v[e] = other[e];
      }
      if (k >= 4) {
        const bool up = (lane * EACH & k) == 0;
        settle(v[0], v[2], up);
        settle(v[1], v[3], up);
        settle(v[0], v[1], up);
        settle(v[2], v[3], up);
      } else {
        settle(v[0], v[1], true);
        settle(v[2], v[3], false);
      }
    }
    if (live) {
#pragma unroll
      for (int e = 0; e < EACH; e++) {
        const i64 at = (i64)lane * EACH + e;
        if (at >= keep) continue;
        const u32 index = item_index(v[e]);
        indices[row * keep + at] = index;
        if (values) values[row * keep + at] = from[index];
      }
    }
  }
}

// ---- longer ones: by bytes from the lowest up, in shared memory ----

struct Or {
  template <class A> WICK_MEMBER A operator()(A a, A b) const { return a | b; }
};
template <class S, int THREADS, int ITEMS>
WICK_FN void sort_block(const S* src, u32* indices, S* values, i64 rows, i64 cols, i64 keep, u32 descending) {
  typedef key_t_of<S> U;
  constexpr u32 TILE = THREADS * ITEMS;
  __shared__ RankRoom<THREADS> room;
  __shared__ U held[TILE];
  __shared__ u16 held_index[TILE];
  __shared__ U unlike[THREADS / WICK_WAVE];
  const u32 wave = threadIdx.x / WICK_WAVE, mine = wave * (WICK_WAVE * ITEMS) + threadIdx.x % WICK_WAVE;
  const bool down = descending != 0;
  ROLLED
  for (i64 row = blockIdx.x; row < rows; row += gridDim.x) {
    const S* from = src + row * cols;
    const U one = sort_key(from[0], down);
    U key[ITEMS], differs = 0;
    u32 index[ITEMS];
#pragma unroll
    for (int i = 0; i < ITEMS; i++) {
      const u32 at = mine + i * WICK_WAVE;
      const bool there = at < cols;
      key[i] = there ? sort_key(from[at], down) : (U) ~(U)0;  // past the end: behind all others
      if (there) differs |= key[i] ^ one;
      index[i] = at;
    }
    differs = group_reduce(differs, THREADS, unlike, Or());
    ROLLED
    for (u32 shift = 0; shift < sizeof(U) * 8; shift += 8) {
      if (!((differs >> shift) & 255)) continue;
      u32 place[ITEMS], count;
      rank_in_wave<THREADS, ITEMS>(room, key, shift, place);
      __syncthreads();
      byte_starts<THREADS>(room, count);
      __syncthreads();
#pragma unroll
      for (int i = 0; i < ITEMS; i++) {
        const u32 at = room.seen[wave][(u32)(key[i] >> shift) & 255] + place[i];
        held[at] = key[i];
        held_index[at] = (u16)index[i];
      }
      __syncthreads();
#pragma unroll
      for (int i = 0; i < ITEMS; i++) {
        key[i] = held[mine + i * WICK_WAVE];
        index[i] = held_index[mine + i * WICK_WAVE];
      }
    }
#pragma unroll
    for (int i = 0; i < ITEMS; i++) {
      const u32 at = mine + i * WICK_WAVE;
      if (at >= keep) continue;
      indices[row * keep + at] = index[i];
      if (values)
        values[row * keep + at] = is_shared_key<S>(key[i], down) ? from[index[i]] : value_of_key<S>(key[i], down);
    }
  }
}

template <class W> WICK_FN void take_values(const W* src, const u32* order, W* dst, u64 rows, u64 cols, u64 keep) {
  GRID_STRIDE(i, rows * keep) dst[i] = src[i / keep * cols + order[i / keep * cols + i % keep]];
}

/** The first `keep` indices of each row. */
WICK_FN void take_indices(const u32* order, u32* dst, u64 rows, u64 cols, u64 keep) {
  GRID_STRIDE(i, rows * keep) dst[i] = order[i / keep * cols + i % keep];
}

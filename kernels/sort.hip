// Sorting rows: stable, any length and dtype, NaN above everything. Kernels and launches: src/backends/gpu/sort.ts.
//
//   sort_rows     rows up to 4096 (8-byte keys: 2048) in one block: 4 elements a thread, `lanes` = padded length / 4
//                 threads a row, block 256 or
//                 lanes when more; a bitonic network through registers, shuffles and, beyond a wave, shared memory (16
//                 * lanes * element bytes).
//                 Writes the first `keep` indices, and values where asked: top-k is the same launch
//   radix_count, radix_starts, radix_scatter   longer rows: passes of 8 bits over the keys; blocks of 256 (count) and
//   512 threads (scatter) take
//                 tiles of 4096 (8-byte keys: 2048); count -> starts -> scatter each pass, indices carried along. The
//                 first pass reads the
//                 values and makes the keys
//   radix_spread  the same as radix_starts for rows of many tiles: a block a byte, whose totals radix_scatter adds up
//   choose_count, choose_byte, choose_tiles, choose_starts, choose_write   the first `keep` of long rows in the order of
//                 a sort, found byte by byte from the highest: how often each byte stands behind what is decided, which
//                 one the last of those kept has, and at the end what is before that key, and the first of those equal
//                 to it, in their order; sort_rows puts them in theirs
//   take_values, take_indices   values in the order of the indices; the first indices of each row
#include "block-scan.h"
#include "sort-key.h"

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

// ---- longer rows: radix passes from the lowest byte up ----

constexpr int RADIX_WAVES = 256 / WICK_WAVE;
/** A bit for each lane of a wave. */
#if WICK_WAVE == 32
typedef u32 WaveMask;
#else
typedef u64 WaveMask;
#endif
/** The lanes that hold the same byte as this one. */
WICK_FN WaveMask same_byte(u32 byte) {
  WaveMask same = (WaveMask) ~(WaveMask)0;
#pragma unroll
  for (u32 bit = 1; bit < 256; bit *= 2) {
#ifdef WICK_NVIDIA
    asm volatile(
        "{.reg .pred p; .reg .b32 t; and.b32 t, %1, %2; setp.ne.u32 p, t, 0; vote.sync.ballot.b32 t, p, 0xffffffff; "
        "@!p not.b32 t, t; and.b32 %0, %0, t;}"
        : "+r"(same)
        : "r"(byte), "r"(bit));
#else
    const WaveMask ones = (WaveMask)ballot64(byte & bit);
    same &= byte & bit ? ones : ~ones;
#endif
  }
  return same;
}
WICK_FN u32 lanes_in(u32 mask) {
#ifdef WICK_NVIDIA
  return (u32)__popc((i32)mask);
#else
  return popcount64(mask);
#endif
}
WICK_FN u32 lanes_in(u64 mask) { return popcount64(mask); }
template <class U> constexpr int radix_items = sizeof(U) == 8 ? 8 : 16;
template <class U> constexpr int radix_tile = 256 * radix_items<U>;

/** Keys as a pass reads them: the first makes them from the values, the others find them made. */
template <class S> struct KeysOf {
  typedef key_t_of<S> U;
  static constexpr bool FIRST = true;
  const S* src;
  bool descending;
  WICK_MEMBER U operator[](i64 i) const { return sort_key(src[i], descending); }
};
template <class T> struct MadeKeys {
  typedef T U;
  static constexpr bool FIRST = false;
  const T* src;
  WICK_MEMBER U operator[](i64 i) const { return src[i]; }
};

/**
 * Block (row, tile): how often each byte stands in it, to counts [row, byte, tile]. Each wave counts apart: leading
 * bytes are often the same.
 */
template <class K> WICK_FN void radix_count(const K& keys, u32* counts, i64 cols, i64 tiles, u32 shift) {
  typedef typename K::U U;
  constexpr int ITEMS = radix_items<U>;
  __shared__ u32 seen[RADIX_WAVES][256];
  const i64 row = blockIdx.x / tiles, tile = blockIdx.x % tiles, from = tile * radix_tile<U>;
  for (u32 w = 0; w < RADIX_WAVES; w++) seen[w][threadIdx.x] = 0;
  __syncthreads();
  u32* mine = seen[wave_id()];
#pragma unroll
  for (int i = 0; i < ITEMS; i++) {
    const i64 c = from + i * 256 + threadIdx.x;
    if (c < cols) atomic_add(&mine[(u32)(keys[row * cols + c] >> shift) & 255], 1u);
  }
  __syncthreads();
  u32 sum = 0;
  for (u32 w = 0; w < RADIX_WAVES; w++) sum += seen[w][threadIdx.x];
  counts[(row * 256 + threadIdx.x) * tiles + tile] = sum;
}

/** A block a row: counts become the places where each byte of each tile begins. */
WICK_FN void radix_starts(u32* counts, i64 size) {
  constexpr int EACH_SUM = 8, WAVES = 1024 / WICK_WAVE;
  __shared__ u32 slots[2][WAVES];
  u32* row = counts + (i64)blockIdx.x * size;
  u32 carry = 0, turn = 0;
  for (i64 base = 0; base < size; base += 1024 * EACH_SUM, turn ^= 1) {
    u32 v[EACH_SUM], sum = 0;
#pragma unroll
    for (int e = 0; e < EACH_SUM; e++) {
      const i64 i = base + threadIdx.x * EACH_SUM + e;
      v[e] = i < size ? row[i] : 0;
      sum += v[e];
    }
    u32 upto = sum;
    for (u32 d = 1; d < WICK_WAVE; d *= 2) {
      const u32 before = shfl_up(upto, d, WICK_WAVE);
      if (lane_id() >= d) upto += before;
    }
    if (lane_id() == WICK_WAVE - 1) slots[turn][wave_id()] = upto;
    __syncthreads();
    u32 at = carry + upto - sum;
    for (u32 w = 0; w < WAVES; w++) {
      if (w < wave_id()) at += slots[turn][w];
      carry += slots[turn][w];
    }
#pragma unroll
    for (int e = 0; e < EACH_SUM; e++) {
      const i64 i = base + threadIdx.x * EACH_SUM + e;
      if (i < size) row[i] = at;
      at += v[e];
    }
  }
}

/** A block a byte of a row of many tiles: where the byte begins in each tile, counted from its own first; its total. */
WICK_FN void radix_spread(u32* counts, u32* totals, i64 tiles) {
  constexpr int EACH_SUM = 4;
  __shared__ u32 slots[256 / WICK_WAVE];
  u32* mine = counts + (i64)blockIdx.x * tiles;
  u32 carry = 0;
  for (i64 base = 0; base < tiles; base += 256 * EACH_SUM) {
    u32 v[EACH_SUM], sum = 0, total;
#pragma unroll
    for (int e = 0; e < EACH_SUM; e++) {
      const i64 i = base + threadIdx.x * EACH_SUM + e;
      v[e] = i < tiles ? mine[i] : 0;
      sum += v[e];
    }
    u32 at = carry + block_scan<256>(sum, slots, total);
#pragma unroll
    for (int e = 0; e < EACH_SUM; e++) {
      const i64 i = base + threadIdx.x * EACH_SUM + e;
      if (i < tiles) mine[i] = at;
      at += v[e];
    }
    carry += total;
  }
  if (threadIdx.x == 0) totals[blockIdx.x] = carry;
}

/** Threads of a block that moves a tile: more than count it, so that each has few keys. */
constexpr int SCATTER_THREADS = 512, SCATTER_WAVES = SCATTER_THREADS / WICK_WAVE;

/** Sum of the values of the threads before this one in such a block. */
WICK_FN u32 scatter_scan(u32 value, u32* slots) {
  const u32 lane = threadIdx.x % WICK_WAVE, wave = threadIdx.x / WICK_WAVE;
  u32 sum = value;
  ROLLED
  for (u32 d = 1; d < WICK_WAVE; d *= 2) {
    const u32 before = shfl(sum, lane - d, WICK_WAVE);
    if (lane >= d) sum += before;
  }
  if (lane == WICK_WAVE - 1) slots[wave] = sum;
  __syncthreads();
  sum -= value;
  ROLLED
  for (u32 w = 0; w < wave; w++) sum += slots[w];
  return sum;
}

/**
 * Block (row, tile): moves its keys and indices to their places. Equal bytes keep their order: waves, rounds and lanes
 * are ranked in turn.
 */
template <class K>
WICK_FN void radix_scatter(const K& keys, const u32* order, const u32* starts, const u32* totals,
                           typename K::U* keys_out, u32* order_out, i64 cols, i64 tiles, u32 shift) {
  typedef typename K::U U;
  constexpr int TILE = radix_tile<U>, ITEMS = TILE / SCATTER_THREADS;
  __shared__ U shared_keys[TILE];
  __shared__ u32 shared_order[TILE], ahead_of[256], slots[SCATTER_WAVES];
  __shared__ u16 seen[SCATTER_WAVES][256];
  const u32 row = blockIdx.x / (u32)tiles, tile = blockIdx.x % (u32)tiles;
  const u32 t = threadIdx.x, wave = t / WICK_WAVE, lane = t % WICK_WAVE;
  const i64 base = row * cols;
  ROLLED
  for (u32 i = t; i < SCATTER_WAVES * 128; i += SCATTER_THREADS) ((u32*)seen)[i] = 0;
  u32 begin = t < 256 ? starts[((i64)row * 256 + t) * tiles + tile] : 0;
  if (totals) begin += scatter_scan(t < 256 ? totals[row * 256 + t] : 0, slots);
  U key[ITEMS];
  const u32 mine = wave * (WICK_WAVE * ITEMS) + lane;  // in the tile
  const i64 from = (i64)tile * TILE + mine;
  // in the tile, and from this thread's first element on
  const i32 total = (i32)(cols - from + mine < TILE ? cols - from + mine : TILE), left = total - (i32)mine;
  // All keys are on their way before the ranking, whose steps wait for each other; the indices come while places are
  // counted.
#pragma unroll
  // past the end: sorted behind all others
  for (int i = 0; i < ITEMS; i++) key[i] = i * WICK_WAVE < left ? keys[base + from + i * WICK_WAVE] : (U) ~(U)0;
    // The ranking finds them in memory: its loop is long and stays rolled.
#pragma unroll
  for (int i = 0; i < ITEMS; i++) shared_keys[mine + i * WICK_WAVE] = key[i];
  __syncthreads();
  const WaveMask before = ((WaveMask)1 << lane) - 1;
  ROLLED
  for (int i = 0; i < ITEMS; i++) {
    const u32 digit = (u32)(shared_keys[mine + i * WICK_WAVE] >> shift) & 255;
    const WaveMask same = same_byte(digit);
    const u32 prior = seen[wave][digit], ahead = lanes_in(same & before);
    sync_wave();
    if (ahead == 0) seen[wave][digit] = (u16)(prior + lanes_in(same));
    sync_wave();
    shared_order[mine + i * WICK_WAVE] = prior + ahead;
  }
  u32 index[ITEMS], place[ITEMS];
#pragma unroll
  for (int i = 0; i < ITEMS; i++) {
    if constexpr (K::FIRST) index[i] = (u32)from + i * WICK_WAVE;
    else index[i] = i * WICK_WAVE < left ? order[base + from + i * WICK_WAVE] : 0;
    place[i] = shared_order[mine + i * WICK_WAVE];
  }
  __syncthreads();
  // Thread t owns byte t: where it begins within the tile, for each wave.
  u32 count = 0;
  if (t < 256) ROLLED
  for (u32 w = 0; w < SCATTER_WAVES; w++) count += seen[w][t];
  u32 first = scatter_scan(count, slots);
  if (t < 256) {
    ahead_of[t] = begin - first;  // from a place in the tile to one in the row, modulo 2^32
    ROLLED
    for (u32 w = 0; w < SCATTER_WAVES; w++) {
      const u32 c = seen[w][t];
      seen[w][t] = (u16)first;
      first += c;
    }
  }
  __syncthreads();
#pragma unroll
  for (int i = 0; i < ITEMS; i++) {
    const u32 digit = (u32)(key[i] >> shift) & 255, at = seen[wave][digit] + place[i];
    shared_keys[at] = key[i];
    shared_order[at] = index[i];
  }
  __syncthreads();
  U* const keys_to = keys_out + base;
  u32* const order_to = order_out + base;
  ROLLED
  for (u32 at = t; at < (u32)total; at += SCATTER_THREADS) {
    const U k = shared_keys[at];
    const u32 to = ahead_of[(u32)(k >> shift) & 255] + at;
    if (keys_out) keys_to[to] = k;
    order_to[to] = shared_order[at];
  }
}
template <class W> WICK_FN void take_values(const W* src, const u32* order, W* dst, u64 rows, u64 cols, u64 keep) {
  GRID_STRIDE(i, rows * keep) dst[i] = src[i / keep * cols + order[i / keep * cols + i % keep]];
}

/** The first `keep` indices of each row. */
WICK_FN void take_indices(const u32* order, u32* dst, u64 rows, u64 cols, u64 keep) {
  GRID_STRIDE(i, rows * keep) dst[i] = order[i / keep * cols + i % keep];
}

// ---- the first of long rows ----

constexpr int CHOOSE_EACH = 16, CHOOSE_TILE = 256 * CHOOSE_EACH;
/** What is known of the last key that is kept: its highest bytes, and how many are kept of those that begin so. */
struct Chosen {
  u64 key;
  u32 left, before;  // before: how many keys are smaller
};
WICK_FN void clear_counts(u32* counts, u64 n) { GRID_STRIDE(i, n) counts[i] = 0; }
/** `blocks` blocks a row: bytes of keys that begin as far as is decided, added up in `counts` [row, byte]. */
template <class S>
WICK_FN void choose_count(const S* src, const Chosen* known, u32* counts, i64 cols, u32 blocks, u32 shift, u32 first,
                          u32 descending) {
  typedef key_t_of<S> U;
  __shared__ u32 seen[256 / WICK_WAVE][256];
  const u32 row = blockIdx.x / blocks, block = blockIdx.x % blocks;
  for (u32 w = 0; w < 256 / WICK_WAVE; w++) seen[w][threadIdx.x] = 0;
  __syncthreads();
  const u64 decided = first ? 0 : known[row].key;
  const u32 above = shift + 8;
  u32* mine = seen[wave_id()];
  const S* from = src + row * cols;
  ROLLED
  for (i64 base = (i64)block * 1024; base < cols; base += (i64)blocks * 1024) {
    S v[4];
#pragma unroll
    for (int e = 0; e < 4; e++) {
      const i64 i = base + e * 256 + threadIdx.x;
      v[e] = from[i < cols ? i : cols - 1];
    }
#pragma unroll
    for (int e = 0; e < 4; e++) {
      const u64 key = (U)sort_key(v[e], descending != 0);
      if (base + e * 256 + threadIdx.x < cols && (first || key >> above == decided >> above))
        atomic_add(&mine[(u32)(key >> shift) & 255], 1u);
    }
  }
  __syncthreads();
  u32 sum = 0;
  for (u32 w = 0; w < 256 / WICK_WAVE; w++) sum += seen[w][threadIdx.x];
  if (sum) atomic_add(&counts[(i64)row * 256 + threadIdx.x], sum);
}
/** A block a row: the byte at which `left` are reached; counts are 0 again for the next one. */
WICK_FN void choose_byte(Chosen* known, u32* counts, u32 shift, u32 first, u32 keep) {
  __shared__ u32 slots[256 / WICK_WAVE];
  Chosen* mine = known + blockIdx.x;
  u32* at = counts + (i64)blockIdx.x * 256 + threadIdx.x;
  const u32 left = first ? keep : mine->left, count = *at;
  const u64 key = first ? 0 : mine->key;
  const u32 smaller = first ? 0 : mine->before;
  u32 total;
  const u32 before = block_scan<256>(count, slots, total);
  __syncthreads();
  if (before < left && left <= before + count) {
    mine->key = key | (u64)threadIdx.x << shift;
    mine->left = left - before;
    mine->before = smaller + before;
  }
  *at = 0;
}
/** Of this thread's elements one after another: a bit for each key below the last one kept, and for each equal to it. */
template <class S>
WICK_FN void compared(const S* row, i64 from, i64 cols, u64 last, u32 descending, u32& below, u32& equal) {
  below = equal = 0;
#pragma unroll
  for (int e = 0; e < CHOOSE_EACH; e++) {
    if (from + e >= cols) continue;
    const u64 key = sort_key(row[from + e], descending != 0);
    if (key < last) below |= 1u << e;
    if (key == last) equal |= 1u << e;
  }
}
/** A block a tile: how many keys are below the last one kept, and how many equal it, [row, tile, 2]. */
template <class S>
WICK_FN void choose_tiles(const S* src, const Chosen* known, u32* found, i64 cols, u32 tiles, u32 descending) {
  __shared__ u32 slots[WAVE_SLOTS];
  const u32 row = blockIdx.x / tiles, tile = blockIdx.x % tiles;
  u32 below, equal;
  compared(src + row * cols, (i64)tile * CHOOSE_TILE + threadIdx.x * CHOOSE_EACH, cols, known[row].key, descending,
           below, equal);
  const u32 both = group_sum(popcount64(below) | popcount64(equal) << 16, 256, slots);
  if (threadIdx.x == 0) {
    found[(i64)blockIdx.x * 2] = both & 0xffff;
    found[(i64)blockIdx.x * 2 + 1] = both >> 16;
  }
}
/** A block a row: these counts become how many come before each tile. */
WICK_FN void choose_starts(u32* found, u32 tiles) {
  constexpr int EACH_SUM = 4;
  __shared__ u64 slots[1024 / WICK_WAVE];
  u32* row = found + (i64)blockIdx.x * tiles * 2;
  u64 carry = 0;
  for (u32 base = 0; base < tiles; base += 1024 * EACH_SUM) {
    u64 v[EACH_SUM], sum = 0, total;
#pragma unroll
    for (int e = 0; e < EACH_SUM; e++) {
      const u32 i = base + threadIdx.x * EACH_SUM + e;
      v[e] = i < tiles ? row[2 * i] | (u64)row[2 * i + 1] << 32 : 0;
      sum += v[e];
    }
    u64 at = carry + block_scan<1024>(sum, slots, total);
#pragma unroll
    for (int e = 0; e < EACH_SUM; e++) {
      const u32 i = base + threadIdx.x * EACH_SUM + e;
      if (i < tiles) {
        row[2 * i] = (u32)at;
        row[2 * i + 1] = (u32)(at >> 32);
      }
      at += v[e];
    }
    carry += total;
  }
}
/** A block a tile: what is kept of it, with its number in the row; those below the last key first, then those equal. */
template <class S>
WICK_FN void choose_write(const S* src, const Chosen* known, const u32* found, S* values, u32* indices, i64 cols,
                          u32 tiles, u32 keep, u32 descending) {
  __shared__ u32 slots[256 / WICK_WAVE];
  const u32 row = blockIdx.x / tiles, tile = blockIdx.x % tiles;
  const Chosen& mine = known[row];
  const u32* here = found + (i64)blockIdx.x * 2;
  const bool end = tile + 1 == tiles;
  // Nothing of this tile is kept: what comes before it and before the next is the same, or enough.
  if ((end ? mine.before : here[2]) == here[0] && (here[1] >= mine.left || (!end && here[3] == here[1]))) return;
  const i64 from = (i64)tile * CHOOSE_TILE + threadIdx.x * CHOOSE_EACH;
  const S* line = src + row * cols;
  u32 below, equal, total;
  compared(line, from, cols, mine.key, descending, below, equal);
  const u32 ahead = block_scan<256>(popcount64(below) | popcount64(equal) << 16, slots, total);
  u32 low = here[0] + (ahead & 0xffff), same = here[1] + (ahead >> 16);
  ROLLED
  for (u32 e = 0; e < CHOOSE_EACH; e++) {
    const bool is_low = below >> e & 1, is_same = equal >> e & 1;
    if (is_low || (is_same && same < mine.left)) {
      const u32 at = is_low ? low : mine.before + same;
      if (at < keep) {
        values[(i64)row * keep + at] = line[from + e];
        indices[(i64)row * keep + at] = (u32)(from + e);
      }
    }
    low += is_low;
    same += is_same;
  }
}

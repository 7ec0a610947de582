// The first of a row in the order of a sort, or the one at a place of that order, without sorting the row: found byte
// by byte from the highest. Kernels and launches: src/backends/gpu/choose.ts.
//
//   choose_rows   the first `keep` of rows that a block holds, in order
//   choose_rank   the element at one place in the order of such rows, or the first NaN
//   take_rank     the same of rows that are sorted
//   choose_count, choose_byte, choose_tiles, choose_starts, choose_write   the first `keep` of long rows: how often
//                 each byte stands behind what is decided, which one the last of those kept has, and at the end what is
//                 before that key, and the first of those equal to it, in their order; a sort puts them in theirs
#include "block-scan.h"
#include "sort-key.h"

// ---- rows in a block ----

constexpr int HELD_THREADS = 256, HELD_PACKS = 4, HELD_ITEMS = 4 * HELD_PACKS;
/** Longest list of those kept: each finds its place among the others. */
constexpr u32 HELD_KEEP = 256;

/** The keys of a row, four neighbours after another to each thread; past the end they are behind all others. */
template <class S, class U>
WICK_FN void keys_of_row(const S* row, u32 cols, bool packed, bool down, U (&key)[HELD_ITEMS]) {
#pragma unroll
  for (int p = 0; p < HELD_PACKS; p++) {
    const u32 from = (p * HELD_THREADS + threadIdx.x) * 4;
    S v[4];
    if (sizeof(S) == 4 && packed && from + 4 <= cols) {
      const Pack<S> pack = load_pack(row + from);
#pragma unroll
      for (int e = 0; e < 4; e++) v[e] = pack.v[e % pack_size<S>];
    } else {
#pragma unroll
      for (int e = 0; e < 4; e++) v[e] = row[from + e < cols ? from + e : 0];
    }
#pragma unroll
    for (int e = 0; e < 4; e++) key[p * 4 + e] = from + e < cols ? sort_key(v[e], down) : (U) ~(U)0;
  }
}
/** Keys whose bits from `shift` up are `known`: `left` of them are wanted, of `count`. */
struct Border {
  u64 known;
  u32 shift, left, count;
};
/** Finds the border behind the first `left` keys; with `one`, goes on until a single key is there or all is known. */
template <class U> WICK_FN Border border_of(const U (&key)[HELD_ITEMS], u32 left, bool one) {
  __shared__ u32 counts[2][256], slots[HELD_THREADS / WICK_WAVE], found[3];
  const u32 t = threadIdx.x;
  Border border = {0, sizeof(U) * 8, left, 0};
  U known = 0;
  u32 turn = 0;
  counts[0][t] = 0;
  __syncthreads();
  ROLLED
  do {
    const u32 above = border.shift, shift = above - 8;
    counts[turn ^ 1][t] = 0;
#pragma unroll
    for (int i = 0; i < HELD_ITEMS; i++)
      if (above == sizeof(U) * 8 || (U)(key[i] >> (above & (sizeof(U) * 8 - 1))) == known)
        atomic_add(&counts[turn][(u32)(key[i] >> shift) & 255], 1u);
    __syncthreads();
    const u32 count = counts[turn][t];
    u32 total;
    const u32 before = block_scan<HELD_THREADS>(count, slots, total);
    if (before < border.left && border.left <= before + count) found[0] = t, found[1] = before, found[2] = count;
    __syncthreads();
    known = (U)((U)(above == sizeof(U) * 8 ? 0 : known << 8) | (U)found[0]);
    border.shift = shift;
    border.left -= found[1];
    border.count = found[2];
    turn ^= 1;
  } while (border.shift > 0 && (one ? border.count > 1 : border.count > border.left));
  border.known = known;
  return border;
}
/** Numbers a thread's keys at the border among all of the row, in the order of the row; has: a bit for each of them. */
WICK_FN void number_at_border(u32 has, u32 (&number)[HELD_PACKS]) {
  __shared__ u64 slots[HELD_THREADS / WICK_WAVE];
  u64 mine = 0, total;
#pragma unroll
  for (int p = 0; p < HELD_PACKS; p++) mine |= (u64)popcount64(has >> 4 * p & 15) << 16 * p;
  const u64 before = block_scan<HELD_THREADS>(mine, slots, total);
  u32 packs_before = 0;
#pragma unroll
  for (int p = 0; p < HELD_PACKS; p++) {
    number[p] = packs_before + (u32)(before >> 16 * p & 0xffff);
    packs_before += (u32)(total >> 16 * p & 0xffff);
  }
}
template <class S>
WICK_FN void choose_rows(const S* src, u32* indices, i64 rows, u32 cols, u32 keep, u32 descending, u32 packed) {
  typedef key_t_of<S> U;
  __shared__ U chosen[HELD_KEEP];
  __shared__ u16 chosen_index[HELD_KEEP];
  __shared__ u32 filled;
  const u32 t = threadIdx.x;
  ROLLED
  for (i64 row = blockIdx.x; row < rows; row += gridDim.x) {
    U key[HELD_ITEMS];
    keys_of_row(src + row * cols, cols, packed != 0, descending != 0, key);
    if (t == 0) filled = 0;
    const Border border = border_of(key, keep, false);
    const U known = (U)border.known;
    u32 equal = 0;
#pragma unroll
    for (int i = 0; i < HELD_ITEMS; i++) {
      const U top = (U)(key[i] >> border.shift);
      if (top == known && border.count > border.left) equal |= 1u << i;
      else if (top <= known) {
        const u32 at = atomic_add(&filled, 1u);
        chosen[at] = key[i];
        chosen_index[at] = (u16)((i / 4 * HELD_THREADS + t) * 4 + i % 4);
      }
    }
    if (border.count > border.left) {
      u32 number[HELD_PACKS];
      number_at_border(equal, number);
#pragma unroll
      for (int i = 0; i < HELD_ITEMS; i++) {
        if (!(equal >> i & 1) || number[i / 4] >= border.left) continue;
        const u32 at = keep - border.left + number[i / 4]++;
        chosen[at] = key[i];
        chosen_index[at] = (u16)((i / 4 * HELD_THREADS + t) * 4 + i % 4);
      }
    }
    __syncthreads();
    if (t < keep) {
      const U mine = chosen[t];
      const u32 index = chosen_index[t];
      u32 place = 0;
      ROLLED
      for (u32 k = 0; k < keep; k++) place += chosen[k] < mine || (chosen[k] == mine && chosen_index[k] < index);
      indices[row * keep + place] = index;
    }
    __syncthreads();
  }
}
template <class S>
WICK_FN void choose_rank(const S* src, u32* indices, i64 rows, u32 cols, u32 rank, u32 nan, u32 packed) {
  typedef key_t_of<S> U;
  __shared__ u32 slots[WAVE_SLOTS];
  const u32 t = threadIdx.x;
  ROLLED
  for (i64 row = blockIdx.x; row < rows; row += gridDim.x) {
    U key[HELD_ITEMS];
    keys_of_row(src + row * cols, cols, packed != 0, false, key);
    u32 wanted = rank;
    if (is_float<S> && nan) {
      u32 none = 0;
#pragma unroll
      for (int i = 0; i < HELD_ITEMS; i++) none += key[i] == (U) ~(U)0;  // and what is past the end
      const u32 nans = group_sum(none, HELD_THREADS, slots) - (HELD_THREADS * HELD_ITEMS - cols);
      if (nans) wanted = cols - nans;
    }
    const Border border = border_of(key, wanted + 1, true);
    u32 equal = 0, number[HELD_PACKS];
#pragma unroll
    for (int i = 0; i < HELD_ITEMS; i++)
      if ((U)(key[i] >> border.shift) == (U)border.known) equal |= 1u << i;
#pragma unroll
    for (int p = 0; p < HELD_PACKS; p++) number[p] = 0;
    if (border.count > 1) number_at_border(equal, number);
#pragma unroll
    for (int i = 0; i < HELD_ITEMS; i++)
      if (equal >> i & 1 && number[i / 4]++ == (border.count > 1 ? border.left - 1 : 0))
        indices[row] = (i / 4 * HELD_THREADS + t) * 4 + i % 4;
    __syncthreads();
  }
}

/** The one at a place of sorted rows, or the first NaN, which is behind all others. */
template <class S>
WICK_FN void take_rank(const S* src, const u32* order, u32* indices, i64 rows, i64 cols, i64 rank, u32 nan) {
  GRID_STRIDE(row, rows) {
    const S* from = src + row * cols;
    const u32* sorted = order + row * cols;
    i64 low = nan ? 0 : cols, high = cols;
    ROLLED
    while (low < high) {
      const i64 middle = (low + high) >> 1;
      const auto x = to_compute(from[sorted[middle]]);
      if (x != x) high = middle;
      else low = middle + 1;
    }
    indices[row] = sorted[low < cols ? low : rank];
  }
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
/**
 * Of this thread's elements one after another: a bit for each key below the last one kept, and for each equal to it.
 */
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

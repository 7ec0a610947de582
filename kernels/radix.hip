// Sorting long rows: stable, any length and dtype, NaN above everything. Kernels and launches:
// src/backends/gpu/radix.ts.
//
// A pass a byte of the keys, from the lowest up, and each pass reads and writes every key once: blocks take tiles of
// the row in turn, tell how often each byte stands in theirs, and add up what the tiles before theirs have told.
//
//   radix_histogram  how often each byte stands at each place of the keys: counts [row, place, byte]; they begin as 0
//   radix_turns      a block a row: those counts become where each byte begins; and what the pass over each place does:
//                    nothing where all keys have the same byte there
//   radix_pass       a block a tile of a row: keys and their indices to their places. The first pass reads the values
//                    and makes the keys, the last one writes the order and, where asked, the values
#include "radix.h"

/** Places of bytes in the longest key; each row has so many words of turns, and of tickets. */
constexpr u32 MOST_PASSES = 8;
/** What a pass over a row does: nothing; the first and the last that does something; where its keys lie. */
constexpr u32 TURN_NONE = 1, TURN_FIRST = 2, TURN_LAST = 4, TURN_OTHER = 8;

WICK_FN void clear_words(u32* words, u64 n) { GRID_STRIDE(i, n) words[i] = 0; }

constexpr int HISTOGRAM_AHEAD = 8;  // loads under way
template <class S> WICK_FN void radix_histogram(const S* src, u32* counts, i64 cols, u32 blocks, u32 descending) {
  typedef key_t_of<S> U;
  constexpr u32 PASSES = sizeof(U);
  __shared__ u32 seen[PASSES][256];
  const u32 row = blockIdx.x / blocks, block = blockIdx.x % blocks;
#pragma unroll
  for (u32 p = 0; p < PASSES; p++) seen[p][threadIdx.x] = 0;
  __syncthreads();
  const S* from = src + (i64)row * cols;
  constexpr i64 STEP = 256 * HISTOGRAM_AHEAD;
  ROLLED
  for (i64 base = block * STEP; base < cols; base += blocks * STEP) {
    S v[HISTOGRAM_AHEAD];
#pragma unroll
    for (int e = 0; e < HISTOGRAM_AHEAD; e++) {
      const i64 i = base + e * 256 + threadIdx.x;
      v[e] = from[i < cols ? i : cols - 1];
    }
#pragma unroll
    for (int e = 0; e < HISTOGRAM_AHEAD; e++) {
      if (base + e * 256 + threadIdx.x >= cols) continue;
      const U key = sort_key(v[e], descending != 0);
#pragma unroll
      for (u32 p = 0; p < PASSES; p++) atomic_add(&seen[p][(u32)(key >> 8 * p) & 255], 1u);
    }
  }
  __syncthreads();
#pragma unroll
  for (u32 p = 0; p < PASSES; p++) {
    const u32 sum = seen[p][threadIdx.x];
    if (sum) atomic_add(&counts[((i64)row * PASSES + p) * 256 + threadIdx.x], sum);
  }
}

WICK_FN void radix_turns(u32* counts, u32* turns, i64 cols, u32 passes) {
  __shared__ u32 slots[256 / WICK_WAVE], same[MOST_PASSES];
  u32* mine = counts + (i64)blockIdx.x * passes * 256;
  if (threadIdx.x < MOST_PASSES) same[threadIdx.x] = 0;
  __syncthreads();
  ROLLED
  for (u32 p = 0; p < passes; p++) {
    const u32 count = mine[p * 256 + threadIdx.x];
    if (count == cols) same[p] = 1;
    u32 total;
    mine[p * 256 + threadIdx.x] = block_scan<256>(count, slots, total);
  }
  __syncthreads();
  if (threadIdx.x > 0) return;
  u32 first = passes, last = 0, other = 0;
  ROLLED
  for (u32 p = 0; p < passes; p++)
    if (!same[p]) {
      first = first < p ? first : p;
      last = p;
    }
  if (first == passes) first = 0;  // equal keys stay where they are, and somebody says so
  ROLLED
  for (u32 p = 0; p < passes; p++) {
    const bool idle = same[p] && p != first;
    turns[blockIdx.x * MOST_PASSES + p] =
        (idle ? TURN_NONE : 0) | (p == first ? TURN_FIRST : 0) | (p == last ? TURN_LAST : 0) | (other ? TURN_OTHER : 0);
    if (!idle) other ^= 1;
  }
}

/** What a tile tells of each byte: a tag that names the pass and what is told, above 40 bits of how many keys. */
constexpr u32 TOLD_BITS = 40;
WICK_FN u64 told(u64 tag, u64 keys) { return tag << TOLD_BITS | keys; }
/** Tiles that are asked at a time. */
constexpr int ASKED = 4;

/** How many keys with this byte the tiles before this one have, and where they begin; `mine` is what it tells. */
WICK_FN u64 keys_before(const u64* mine, u32 tile, u64 own, u64 all) {
  u64 sum = 0;
  i64 at = (i64)tile - 1;
  ROLLED
  for (;;) {
    u64 word[ASKED];
#pragma unroll
    for (int j = 0; j < ASKED; j++) word[j] = at >= j ? load_relaxed(mine - ((i64)tile - at + j) * 256) : 0;
    bool go = true;
#pragma unroll
    for (int j = 0; j < ASKED; j++) {
      const u64 tag = word[j] >> TOLD_BITS;
      if (!go || (tag != own && tag != all)) {
        go = false;
        continue;
      }
      sum += word[j] & (((u64)1 << TOLD_BITS) - 1);
      if (tag == all) return sum;
      at--;
    }
    if (!go) spin_wait();
  }
}

/** Room for a key, and after it for an index. */
template <int BYTES> struct RoomOf { typedef u32 type; };
template <> struct RoomOf<8> { typedef u64 type; };

/** Keys and orders go to and fro between two buffers each, the second one `numel` elements behind the first. */
template <class S, int THREADS, int ITEMS>
WICK_FN void radix_pass(const S* src, key_t_of<S>* keys, u32* orders, u32* indices, S* values, const u32* starts,
                        const u32* turns, u32* tickets, u64* tellings, i64 numel, i64 cols, u32 tiles, u32 pass,
                        u32 descending) {
  typedef key_t_of<S> U;
  constexpr u32 TILE = THREADS * ITEMS, PASSES = sizeof(U);
  __shared__ RankRoom<THREADS> room;
  __shared__ typename RoomOf<sizeof(U)>::type room_of_tile[TILE];
  __shared__ u32 ahead_of[256], ticket;
  U* const held = (U*)room_of_tile;
  u32* const held_order = (u32*)room_of_tile;
  const u32 row = blockIdx.x / tiles, t = threadIdx.x, wave = t / WICK_WAVE, lane = t % WICK_WAVE, shift = pass * 8;
  const u32 turn = turns[row * MOST_PASSES + pass];
  if (turn & TURN_NONE) return;
  if (t == 0) ticket = atomic_add(&tickets[row * MOST_PASSES + pass], 1u);
  __syncthreads();
  const u32 tile = ticket;
  const i64 base = (i64)row * cols, from = (i64)tile * TILE;
  const u32 total = (u32)(cols - from < TILE ? cols - from : TILE), mine = wave * (WICK_WAVE * ITEMS) + lane;
  const bool first = turn & TURN_FIRST, last = turn & TURN_LAST;
  const i64 read = turn & TURN_OTHER ? numel : 0, write = turn & TURN_OTHER ? 0 : numel;
  U key[ITEMS];
  u32 place[ITEMS];
  if (first) {
    const S* line = src + base + from;
#pragma unroll
    for (int i = 0; i < ITEMS; i++) {
      const u32 at = mine + i * WICK_WAVE;
      key[i] = at < total ? sort_key(line[at], descending != 0) : (U) ~(U)0;
    }
  } else {
    const U* line = keys + read + base + from;
#pragma unroll
    for (int i = 0; i < ITEMS; i++) {
      const u32 at = mine + i * WICK_WAVE;
      key[i] = at < total ? line[at] : (U) ~(U)0;  // past the end: behind all others
    }
  }
  rank_in_wave<THREADS, ITEMS>(room, key, shift, place);
  __syncthreads();
  u32 count;
  const u32 begin = byte_starts<THREADS>(room, count);
  u64* const mine_told = tellings + (((i64)row * tiles + tile) * 256 + t);
  const u64 own = 2 * pass + 1, all = 2 * pass + 2;
  if (t < 256 && tile > 0) store_relaxed(mine_told, told(own, count));
  __syncthreads();
#pragma unroll
  for (int i = 0; i < ITEMS; i++) {
    place[i] += room.seen[wave][(u32)(key[i] >> shift) & 255];
    held[place[i]] = key[i];
  }
  u32 index[ITEMS];
  if (first) {
#pragma unroll
    for (int i = 0; i < ITEMS; i++) index[i] = (u32)from + mine + i * WICK_WAVE;
  } else {
    const u32* line = orders + read + base + from;
#pragma unroll
    for (int i = 0; i < ITEMS; i++) {
      const u32 at = mine + i * WICK_WAVE;
      index[i] = at < total ? line[at] : 0;
    }
  }
  if (t < 256) {
    const u64 before =
        tile > 0 ? keys_before(mine_told, tile, own, all) : (u64)starts[((i64)row * PASSES + pass) * 256 + t];
    store_relaxed(mine_told, told(all, before + count));
    ahead_of[t] = (u32)before - begin;  // from a place in the tile to one in the row, modulo 2^32
  }
  __syncthreads();
  u32 to[ITEMS];
#pragma unroll
  for (int i = 0; i < ITEMS; i++) {
    const u32 at = i * THREADS + t;
    key[i] = held[at];
    to[i] = ahead_of[(u32)(key[i] >> shift) & 255] + at;
    if (!last && at < total) keys[write + base + to[i]] = key[i];
  }
  __syncthreads();
#pragma unroll
  for (int i = 0; i < ITEMS; i++) held_order[place[i]] = index[i];
  __syncthreads();
  u32* const order_to = (last ? indices : orders + write) + base;
#pragma unroll
  for (int i = 0; i < ITEMS; i++) {
    const u32 at = i * THREADS + t, from_index = held_order[at];
    if (at >= total) continue;
    order_to[to[i]] = from_index;
    if (last && values)
      values[base + to[i]] =
          is_shared_key<S>(key[i], descending != 0) ? src[base + from_index] : value_of_key<S>(key[i], descending != 0);
  }
}

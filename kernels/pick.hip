// Elements that flags choose, in their order. Kernels and launches: src/backends/gpu/pick.ts.
//
//   count_flags   a block of 256 a tile of 4096 flags: how many are set; `counts` has one more, 0
//   tile_starts   one block of 1024: counts become how many come before each tile; the last, how many there are
//   set_places    a block a tile: where each flag that is set stands, [rank, count]; info: sizes of the dimensions
//   take_set      a block a tile: the elements that the flags choose, as words
//   put_set       a block a tile: such elements back to where they stood, 0 elsewhere
//   number_runs   a block a tile: dst[order[i]] = the number of the run that i is in, where flags say that one begins
#include "block-scan.h"

constexpr u32 PICK_EACH = 16, PICK_TILE = 256 * PICK_EACH;

/** A bit for each of this thread's 16 flags that is set; flags are 16-byte aligned. */
WICK_FN u32 flags_here(const u8* flags, u64 n) {
  const u64 from = (u64)blockIdx.x * PICK_TILE + threadIdx.x * PICK_EACH;
  u32 set = 0;
  if (from + PICK_EACH <= n) {
    u32 words[4];
    split_words(*(const word4*)(flags + from), words);
#pragma unroll
    for (u32 w = 0; w < 4; w++) {
#pragma unroll
      for (u32 b = 0; b < 4; b++)
        if (words[w] >> (8 * b) & 255) set |= 1u << (4 * w + b);
    }
  } else ROLLED
  for (u32 i = 0; i < PICK_EACH && from + i < n; i++)
    if (flags[from + i]) set |= 1u << i;
  return set;
}

WICK_FN void count_flags(const u8* flags, i64* counts, u64 n) {
  __shared__ u32 slots[WAVE_SLOTS];
  const u32 found = group_sum(popcount64(flags_here(flags, n)), 256, slots);
  if (threadIdx.x == 0) counts[blockIdx.x] = found;
  if (blockIdx.x == 0 && threadIdx.x == 0) counts[gridDim.x] = 0;
}

WICK_FN void tile_starts(i64* counts, i64 size) {
  constexpr int EACH_SUM = 4;
  __shared__ i64 slots[1024 / WICK_WAVE];
  i64 carry = 0;
  for (i64 base = 0; base < size; base += 1024 * EACH_SUM) {
    i64 v[EACH_SUM], sum = 0, total;
#pragma unroll
    for (int e = 0; e < EACH_SUM; e++) {
      const i64 i = base + threadIdx.x * EACH_SUM + e;
      v[e] = i < size ? counts[i] : 0;
      sum += v[e];
    }
    i64 at = carry + block_scan<1024>(sum, slots, total);
#pragma unroll
    for (int e = 0; e < EACH_SUM; e++) {
      const i64 i = base + threadIdx.x * EACH_SUM + e;
      if (i < size) counts[i] = at;
      at += v[e];
    }
    carry += total;
  }
}

/** The places within the tile of its flags that are set, in order; how many there are. */
WICK_FN u32 places_in_tile(const u8* flags, u64 n, u16* places) {
  __shared__ u32 slots[256 / WICK_WAVE];
  const u32 set = flags_here(flags, n);
  u32 total, at = block_scan<256>(popcount64(set), slots, total);
#pragma unroll
  for (u32 i = 0; i < PICK_EACH; i++)
    if (set >> i & 1) places[at++] = (u16)(threadIdx.x * PICK_EACH + i);
  __syncthreads();
  return total;
}
/** How many of `found` have room behind `first`: nothing is written beyond what the counts were read for. */
WICK_FN u32 within(u32 found, i64 first, i64 count) {
  return first + found <= count ? found : first < count ? (u32)(count - first) : 0;
}

WICK_FN void set_places(const u8* flags, const i64* starts, const u64* info, u32 rank, i64* dst, u64 n, i64 count) {
  __shared__ u16 places[PICK_TILE];
  const i64 first = starts[blockIdx.x], base = (i64)blockIdx.x * PICK_TILE;
  const u32 found = within(places_in_tile(flags, n, places), first, count);
  ROLLED
  for (u32 k = threadIdx.x; k < found; k += 256) {
    u64 rest = base + places[k];
    ROLLED
    for (u32 d = rank - 1; d > 0; d--) {
      const u64 size = info[d], left = (rest | size) >> 32 ? rest / size : (u32)rest / (u32)size;
      dst[d * count + first + k] = (i64)(rest - left * size);
      rest = left;
    }
    dst[first + k] = (i64)rest;
  }
}

template <class W> WICK_FN void take_set(const W* src, const u8* flags, const i64* starts, W* dst, u64 n, i64 count) {
  __shared__ u16 places[PICK_TILE];
  const i64 first = starts[blockIdx.x];
  const W* from = src + (i64)blockIdx.x * PICK_TILE;
  const u32 found = within(places_in_tile(flags, n, places), first, count);
  ROLLED
  for (u32 k = threadIdx.x; k < found; k += 256) dst[first + k] = from[places[k]];
}

template <class W> WICK_FN void put_set(const W* src, const u8* flags, const i64* starts, W* dst, u64 n, i64 count) {
  constexpr u16 NONE = 0xffff;
  __shared__ u16 numbers[PICK_TILE];
  __shared__ u32 slots[256 / WICK_WAVE];
  const i64 first = starts[blockIdx.x];
  const u64 base = (u64)blockIdx.x * PICK_TILE;
  const u32 set = flags_here(flags, n);
  u32 total, at = block_scan<256>(popcount64(set), slots, total);
  const u32 room = within(total, first, count);
#pragma unroll
  for (u32 i = 0; i < PICK_EACH; i++) {
    const bool here = set >> i & 1;
    numbers[threadIdx.x * PICK_EACH + i] = here && at < room ? (u16)at : NONE;
    if (here) at++;
  }
  __syncthreads();
  ROLLED
  for (u32 i = threadIdx.x; i < PICK_TILE && base + i < n; i += 256)
    dst[base + i] = numbers[i] == NONE ? W{} : src[first + numbers[i]];
}

WICK_FN void number_runs(const u8* flags, const i64* starts, const u32* order, i64* dst, u64 n) {
  __shared__ u16 numbers[PICK_TILE];
  __shared__ u32 slots[256 / WICK_WAVE];
  const u64 base = (u64)blockIdx.x * PICK_TILE;
  const i64 first = starts[blockIdx.x] - 1;
  const u32 set = flags_here(flags, n);
  u32 total, at = block_scan<256>(popcount64(set), slots, total);
#pragma unroll
  for (u32 i = 0; i < PICK_EACH; i++) {
    at += set >> i & 1;
    numbers[threadIdx.x * PICK_EACH + i] = (u16)at;
  }
  __syncthreads();
  ROLLED
  for (u32 i = threadIdx.x; i < PICK_TILE && base + i < n; i += 256) {
    const u32 to = order[base + i];
    if (to < n) dst[to] = first + numbers[i];
  }
}

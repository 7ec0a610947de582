// Where each key of a block goes when it is sorted by one byte: what sorts of short and of long rows share. Keys lie a
// wave's run after another; within it, item i of lane l is number i * WICK_WAVE + l. Equal bytes keep their order.
#pragma once
#include "block-scan.h"
#include "sort-key.h"

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

/** What ranking needs of shared memory: how often each byte stands in each wave's keys, then where those begin. */
template <int THREADS> struct RankRoom {
  u16 seen[THREADS / WICK_WAVE][256];
  u32 slots[THREADS / WICK_WAVE];
};

/** Numbers each key among those of its wave that have its byte. The counts of other waves are not touched. */
template <int THREADS, int ITEMS, class U>
WICK_FN void rank_in_wave(RankRoom<THREADS>& room, const U (&key)[ITEMS], u32 shift, u32 (&place)[ITEMS]) {
  const u32 lane = threadIdx.x % WICK_WAVE;
  u16* seen = room.seen[threadIdx.x / WICK_WAVE];
#pragma unroll
  for (u32 i = 0; i < 128; i += WICK_WAVE) ((u32*)seen)[i + lane] = 0;
  sync_wave();
  const WaveMask before = ((WaveMask)1 << lane) - 1;
#pragma unroll
  for (int i = 0; i < ITEMS; i++) {
    const u32 digit = (u32)(key[i] >> shift) & 255;
    const WaveMask same = same_byte(digit);
    const u32 prior = seen[digit], ahead = lanes_in(same & before);
    sync_wave();
    if (ahead == 0) seen[digit] = (u16)(prior + lanes_in(same));
    sync_wave();
    place[i] = prior + ahead;
  }
}
/**
 * Thread t below 256 learns how many keys of the block have byte t, and where they begin; what was counted for each
 * wave becomes where its keys begin. Every thread takes part, and all see it after the next barrier.
 */
template <int THREADS> WICK_FN u32 byte_starts(RankRoom<THREADS>& room, u32& count) {
  constexpr u32 WAVES = THREADS / WICK_WAVE;
  const u32 t = threadIdx.x;
  count = 0;
  if (t < 256)
#pragma unroll
    for (u32 w = 0; w < WAVES; w++) count += room.seen[w][t];
  u32 total;
  const u32 first = block_scan<THREADS>(count, room.slots, total);
  if (t < 256) {
    u32 at = first;
#pragma unroll
    for (u32 w = 0; w < WAVES; w++) {
      const u32 c = room.seen[w][t];
      room.seen[w][t] = (u16)at;
      at += c;
    }
  }
  return first;
}

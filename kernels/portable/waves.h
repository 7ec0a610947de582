// Part of portable.h: positions in the grid, and what the lanes of a wave tell one another.
#pragma once

// ---- positions ----

WICK_FN u64 global_id() { return (u64)blockIdx.x * blockDim.x + threadIdx.x; }
WICK_FN u64 global_size() { return (u64)gridDim.x * blockDim.x; }
/** The lane within its wave; blocks are numbered x first. */
WICK_FN u32 thread_rank() { return threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z); }
WICK_FN u32 lane_id() { return thread_rank() % WICK_WAVE; }
WICK_FN u32 wave_id() { return thread_rank() / WICK_WAVE; }

/** for (i = this thread; i < n; i += all threads) */
#define GRID_STRIDE(i, n) for (u64 i = global_id(), wick_step = global_size(); i < (u64)(n); i += wick_step)

// ---- waves: every lane of the wave takes part, and every call names its width (a power of two up to WICK_WAVE) ----

#if defined(WICK_NVIDIA)
WICK_FN u32 shfl_word(u32 v, u32 from, u32 width) { return __shfl_sync(0xffffffffu, v, from, width); }
WICK_FN u32 shfl_xor_word(u32 v, u32 mask, u32 width) { return __shfl_xor_sync(0xffffffffu, v, mask, width); }
WICK_FN u64 ballot64(bool p) { return __ballot_sync(0xffffffffu, p); }
WICK_FN void sync_wave() { __syncwarp(); }
#elif defined(WICK_AMD)
WICK_FN u32 shfl_from_lane(u32 v, u32 lane) { return (u32)__builtin_amdgcn_ds_bpermute((i32)(lane << 2), (i32)v); }
WICK_FN u32 hardware_lane() { return __builtin_amdgcn_mbcnt_hi(~0u, __builtin_amdgcn_mbcnt_lo(~0u, 0u)); }
WICK_FN u32 shfl_word(u32 v, u32 from, u32 width) {
  u32 lane = hardware_lane();
  return shfl_from_lane(v, (lane & ~(width - 1)) | (from & (width - 1)));
}
WICK_FN u32 shfl_xor_word(u32 v, u32 mask, u32) { return shfl_from_lane(v, hardware_lane() ^ mask); }
WICK_FN u64 ballot64(bool p) { return __ballot(p); }
WICK_FN void sync_wave() {
  __builtin_amdgcn_fence(__ATOMIC_RELEASE, "wavefront");
  __builtin_amdgcn_wave_barrier();
  __builtin_amdgcn_fence(__ATOMIC_ACQUIRE, "wavefront");
}
#else
WICK_FN u32 shfl_word(u32 v, u32 from, u32 width) {
  return simt::shuffle(v, (lane_id() & ~(width - 1)) | (from & (width - 1)));
}
WICK_FN u32 shfl_xor_word(u32 v, u32 mask, u32) { return simt::shuffle(v, lane_id() ^ mask); }
WICK_FN u64 ballot64(bool p) { return simt::ballot(p); }
WICK_FN void sync_wave() { simt::sync_wave(); }
#endif

// Values of any size travel as 32-bit words, so that no vendor's list of overloads matters.
#define WICK_SHUFFLE(NAME, WORD)                                   \
  template <class V> WICK_FN V NAME(V value, u32 arg, u32 width) { \
    constexpr int words = (sizeof(V) + 3) / 4;                     \
    u32 w[words] = {};                                             \
    copy_bytes(w, &value, sizeof(V));                              \
    for (int i = 0; i < words; i++) w[i] = WORD(w[i], arg, width); \
    copy_bytes(&value, w, sizeof(V));                              \
    return value;                                                  \
  }
/** The value of lane `arg` within each group of `width` lanes. */
WICK_SHUFFLE(shfl, shfl_word)
/** The value of the lane whose number differs by the bits of `arg` (below width). */
WICK_SHUFFLE(shfl_xor, shfl_xor_word)
/** The value of the lane `delta` further on; lanes at the end keep their own. */
template <class V> WICK_FN V shfl_down(V value, u32 delta, u32 width) {
  u32 at = lane_id() & (width - 1);
  return shfl(value, at + delta < width ? at + delta : at, width);
}
/** The value of the lane `delta` before; lanes at the start keep their own. */
template <class V> WICK_FN V shfl_up(V value, u32 delta, u32 width) {
  u32 at = lane_id() & (width - 1);
  return shfl(value, at >= delta ? at - delta : at, width);
}
/** Ones for the lanes of this wave before mine: ranks within a ballot64. */
WICK_FN u64 lanes_before() { return (1ull << lane_id()) - 1; }
WICK_FN u32 popcount64(u64 mask) {
#ifdef WICK_HOST
  return (u32)__builtin_popcountll(mask);
#else
  return (u32)__popcll(mask);
#endif
}
/** Leading zeros of a word, 32 for 0. */
WICK_FN u32 clz32(u32 v) {
#ifdef WICK_HOST
  return v ? (u32)__builtin_clz(v) : 32u;
#else
  return (u32)__clz((i32)v);
#endif
}

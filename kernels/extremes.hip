// The largest or smallest of what goes to each place, in whatever order it comes. Kernels and launches:
// src/backends/gpu/extremes.ts. Indices mean what they mean to kernels/indexing.hip.
//
//   extreme_held    lanes side by side, whose places fit the shared memory of a few blocks
//   extreme_begin, extreme_join, extreme_end   any layout: a key for each place of each lane, made of what x holds or
//                   0, raised by every index, and written back; whether a place was named, where x does not count, and
//                   whether a lane has a bad index. `turned`: neighbouring threads have neighbouring lanes
#include "indexing.h"

template <int BYTES> struct RaisedOf { typedef u32 type; };
template <> struct RaisedOf<8> { typedef u64 type; };
/** What atomics raise, which know words of 4 and of 8 bytes. */
template <class S> using raised_t = typename RaisedOf<sizeof(S)>::type;
template <int BYTES> struct BitsOf { typedef u32 type; };
template <> struct BitsOf<1> { typedef u8 type; };
template <> struct BitsOf<2> { typedef u16 type; };
template <> struct BitsOf<8> { typedef u64 type; };

/** Greater keys are better: largest or smallest, 0 above -0, and NaN above all either way. */
template <class S> WICK_FN raised_t<S> extreme_key(S x, bool most) {
  typedef typename BitsOf<sizeof(S)>::type U;
  constexpr U sign = (U)((U)1 << (sizeof(U) * 8 - 1));
  U key = bits_as<U>(x);
  if constexpr (is_float<S>) {
    const auto v = to_compute(x);
    if (v != v) return (U) ~(U)0;
    key = key & sign ? (U)~key : (U)(key | sign);
  } else if constexpr (S(-1) < S(0)) key = (U)(key ^ sign);
  return most ? key : (U)~key;
}
template <class S> WICK_FN S extreme_of_key(raised_t<S> raised, bool most) {
  typedef typename BitsOf<sizeof(S)>::type U;
  constexpr U sign = (U)((U)1 << (sizeof(U) * 8 - 1));
  U key = (U)raised;
  if constexpr (is_float<S>) {
    if (key == (U) ~(U)0) return bits_as<S>((U)(key ^ sign));
    if (!most) key = (U)~key;
    key = key & sign ? (U)(key ^ sign) : (U)~key;
  } else {
    if (!most) key = (U)~key;
    if constexpr (S(-1) < S(0)) key = (U)(key ^ sign);
  }
  return bits_as<S>(key);
}

/** Places of a lane that a block holds in shared memory, with who was named: 20 KB. */
template <class S> constexpr u32 extreme_places = sizeof(S) == 8 ? 2048 : 4096;
constexpr u32 EXTREME_THREADS = 512, EXTREME_EACH = 4;
template <class I, class S>
WICK_FN void extreme_held(const I* ids, const S* x, const S* src, S* dst, u32* fault, u64 lanes, u64 count,
                          u64 ids_lane, u64 ids_step, u64 dst_dim, u32 most, u32 self) {
  typedef raised_t<S> W;
  constexpr u32 HELD = extreme_places<S>;
  __shared__ W held[HELD];
  __shared__ u8 named[HELD];
  __shared__ u32 spoilt;
  const u64 parts = (dst_dim + HELD - 1) / HELD;
  ROLLED
  for (u64 b = blockIdx.x; b < lanes * parts; b += gridDim.x) {
    const u64 lane = b / parts, first = b % parts * HELD;
    const u32 size = (u32)(dst_dim - first < HELD ? dst_dim - first : HELD);
    const I* id = ids + lane * ids_lane;
    const S* from = src + lane * count;
    const S* own = x + lane * dst_dim + first;
    S* to = dst + lane * dst_dim + first;
    if (threadIdx.x == 0) spoilt = 0;
    ROLLED
    for (u32 k = threadIdx.x; k < size; k += EXTREME_THREADS) {
      held[k] = self ? extreme_key(own[k], most != 0) : (W)0;
      named[k] = 0;
    }
    __syncthreads();
    ROLLED
    for (u64 base = 0; base < count; base += EXTREME_THREADS * EXTREME_EACH) {
      I found[EXTREME_EACH];
      S value[EXTREME_EACH];
#pragma unroll
      for (u32 e = 0; e < EXTREME_EACH; e++) {
        const u64 j = base + e * EXTREME_THREADS + threadIdx.x;
        found[e] = j < count ? id[j * ids_step] : Limits<I>::highest();
        value[e] = from[j < count ? j : 0];
      }
#pragma unroll
      for (u32 e = 0; e < EXTREME_EACH; e++) {
        const i64 at = place(found[e], dst_dim, fault);
        if (at == -2) spoilt = 1;
        const u64 k = (u64)at - first;
        if (at < 0 || k >= size) continue;
        const W key = extreme_key(value[e], most != 0);
        if (held[k] < key) atomic_max(&held[k], key);
        if (!self) named[k] = 1;
      }
    }
    __syncthreads();
    ROLLED
    for (u32 k = threadIdx.x; k < size; k += EXTREME_THREADS)
      to[k] = spoilt ? absent<S>(-2) : self || named[k] ? extreme_of_key<S>(held[k], most != 0) : own[k];
    __syncthreads();
  }
}

/** A lane and a place in it, of so many lanes and places. */
struct InLane {
  u64 lane, at;
  WICK_MEMBER InLane(u64 e, u64 lanes, u64 count, u32 turned)
      : lane(turned ? e % lanes : e / count), at(turned ? e / lanes : e % count) {}
};
/** info: dims, then strides of ids, src and dst, without the scattered dimension. */
template <class S>
WICK_FN void extreme_begin(const S* dst, raised_t<S>* keys, u8* named, u32* spoilt, const u64* info, u32 rank,
                           u64 lanes, u64 dst_dim, u64 dst_step, u32 turned, u32 most, u32 self) {
  GRID_STRIDE(e, lanes * dst_dim) {
    const InLane of(e, lanes, dst_dim, turned);
    keys[e] = self ? extreme_key(dst[strided_index(of.lane, rank, info, info + 3 * rank) + of.at * dst_step], most != 0)
                   : (raised_t<S>)0;
    named[e] = 0;
    if (of.at == 0) spoilt[of.lane] = 0;
  }
}
template <class I, class S>
WICK_FN void extreme_join(const I* ids, const S* src, raised_t<S>* keys, u8* named, u32* spoilt, u32* fault,
                          const u64* info, u32 rank, u64 lanes, u64 count, u64 ids_step, u64 src_step, u64 dst_dim,
                          u32 turned, u32 most) {
  GRID_STRIDE(e, lanes * count) {
    const InLane of(e, lanes, count, turned);
    u64 from[2];
    strided_indices(of.lane, rank, info, info + rank, from);
    const i64 at = place(ids[from[0] + of.at * ids_step], dst_dim, fault);
    if (at == -2) store_relaxed(&spoilt[of.lane], 1u);
    if (at < 0) continue;
    const u64 to = turned ? (u64)at * lanes + of.lane : of.lane * dst_dim + (u64)at;
    atomic_max(&keys[to], extreme_key(src[from[1] + of.at * src_step], most != 0));
    store_relaxed(&named[to], (u8)1);
  }
}
template <class S>
WICK_FN void extreme_end(S* dst, const raised_t<S>* keys, const u8* named, const u32* spoilt, const u64* info, u32 rank,
                         u64 lanes, u64 dst_dim, u64 dst_step, u32 turned, u32 most) {
  GRID_STRIDE(e, lanes * dst_dim) {
    const InLane of(e, lanes, dst_dim, turned);
    const bool bad = spoilt[of.lane] != 0;
    if (!bad && !named[e]) continue;
    dst[strided_index(of.lane, rank, info, info + 3 * rank) + of.at * dst_step] =
        bad ? absent<S>(-2) : extreme_of_key<S>(keys[e], most != 0);
  }
}

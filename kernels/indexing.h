// Where an index points, and addition as all dtypes do it: what reading and writing at indices share.
#pragma once
#include "block.h"

/** Where an index points in 0..n-1, -1 for the sentinel, -2 for one that is out of range where faults are told. */
template <class I> WICK_FN i64 place(I id, u64 n, u32* fault) {
  if (id == Limits<I>::highest()) return -1;
  if ((u64)(i64)id >= n) {  // negative ones are huge without their sign
    if (fault) *fault = 1;
    return fault ? -2 : -1;
  }
  return (i64)id;
}
/** The same where indices below 0 count from the end. */
template <class I> WICK_FN i64 place_from_end(I id, u64 n, u32* fault, u32 wrap) {
  if constexpr (I(-1) < I(0)) {
    if (wrap && id < 0) return place((i64)id + (i64)n, n, fault);
  }
  return place(id, n, fault);
}
/** What stands for an element that is not there: 0 for the sentinel (-1), all bits set for a bad index (-2). */
template <class W> WICK_FN W absent(i64 at) {
  W bad;
#pragma unroll
  for (u32 i = 0; i < sizeof(W); i++) ((u8*)&bad)[i] = 0xff;
  return at == -2 ? bad : W{};
}
/** The same as a key to sort by: what is not a place comes last, and after all others a bad index. */
#define BAD_KEY 0xffffffffu
WICK_FN u32 key_of(i64 at) { return at == -2 ? BAD_KEY : at < 0 ? BAD_KEY - 1 : (u32)at; }
/** After a bad index a lane of results is void. */
template <class S> WICK_FN void spoil(S* lane, u64 count, u64 step) {
  ROLLED
  for (u64 k = 0; k < count; k++) lane[k * step] = absent<S>(-2);
}
template <class S> WICK_FN S zero() { return from_compute<S>((compute_t<S>)0); }
template <class S> WICK_FN S plus(S a, S b) {
  return from_compute<S>((typename SumOf<S>::type)to_compute(a) + (typename SumOf<S>::type)to_compute(b));
}

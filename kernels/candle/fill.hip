// The rest of Candle's fill module: copy rows between pitches, and set all elements of a layout in place.
#include "portable.h"

/** d1 rows of d2 elements; rows begin src_s and dst_s elements apart. */
template <class S> WICK_FN void copy2d(const S* src, S* dst, u32 d1, u32 d2, u32 src_s, u32 dst_s) {
  GRID_STRIDE(i, (u64)d1 * d2) {
    const u64 row = i / d2, column = i - row * d2;
    dst[row * dst_s + column] = src[row * src_s + column];
  }
}
template <class S> WICK_FN void const_set(u64 numel, u64 num_dims, const u64* info, S inp, S* out) {
  const InfoLayout to(info, num_dims, 0);
  GRID_STRIDE(i, numel) out[to[i]] = inp;
}

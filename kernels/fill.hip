// Candle's fill module: fill a buffer, copy rows between pitches, and set all elements of a layout in place.
#include "portable.h"

#define FILL(NAME, S)                                   \
  KERNEL(1024) NAME(S* buf, S value, const u64 numel) { \
    GRID_STRIDE(i, numel) buf[i] = value;               \
  }
/** d1 rows of d2 elements; rows begin src_s and dst_s elements apart. */
#define COPY2D(NAME, S)                                                           \
  KERNEL(1024) NAME(const S* src, S* dst, u32 d1, u32 d2, u32 src_s, u32 dst_s) { \
    GRID_STRIDE(i, (u64)d1 * d2) {                                                \
      const u64 row = i / d2, column = i - row * d2;                              \
      dst[row * dst_s + column] = src[row * src_s + column];                      \
    }                                                                             \
  }
#define CONST_SET(NAME, S)                                                                       \
  KERNEL(1024) NAME(const u64 numel, const u64 num_dims, const u64* info, const S inp, S* out) { \
    const InfoLayout to(info, num_dims, 0);                                                      \
    GRID_STRIDE(i, numel) out[to[i]] = inp;                                                      \
  }
/** Ours: start + i * step, each element from its index, in double and rounded once. */
#define ARANGE(NAME, S)                                                                  \
  KERNEL(256) NAME(S* out, const double start, const double step, const u64 numel) {      \
    GRID_STRIDE(i, numel) out[i] = convert<S>(add_rn(start, mul_rn((double)i, step)));    \
  }
#define ALL(M, STEM) FOR_REALS(M, STEM) FOR_INTS(M, STEM) M(STEM##_f8_e4m3, fp8)

ALL(FILL, fill)
ALL(COPY2D, copy2d)
ALL(CONST_SET, const_set)
ALL(ARANGE, arange)

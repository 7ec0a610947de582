// Candle's ternary module: out[i] = ids[i] ? t[i] : f[i]. `info` is dims, then the strides of ids, t and f.
#include "portable.h"

#define WHERE(NAME, S, I)                                                                                                 \
  KERNEL(1024) NAME(const u64 numel, const u64 num_dims, const u64* info, const I* ids, const S* t, const S* f, S* out) { \
    const InfoLayout at(info, num_dims, 0), on(info, num_dims, 1), off(info, num_dims, 2);                                \
    GRID_STRIDE(i, numel) out[i] = ids[at[i]] ? t[on[i]] : f[off[i]];                                                     \
  }
#define WHERE_BY(STEM, I) FOR_REALS(WHERE, STEM, I) FOR_INTS(WHERE, STEM, I) WHERE(STEM##_fp8_e4m3, fp8, I)

WHERE_BY(where_u8, u8)
WHERE_BY(where_u32, u32)
WHERE_BY(where_i16, i16)
WHERE_BY(where_i32, i32)
WHERE_BY(where_i64, i64)

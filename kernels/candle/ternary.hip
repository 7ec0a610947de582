// Candle's ternary module: out[i] = ids[i] ? t[i] : f[i]. `info` is dims, then the strides of ids, t and f.
#include "portable.h"

template <class S, class I>
WICK_FN void where(u64 numel, u64 num_dims, const u64* info, const I* ids, const S* t, const S* f, S* out) {
  const InfoLayout at(info, num_dims, 0), on(info, num_dims, 1), off(info, num_dims, 2);
  GRID_STRIDE(i, numel) out[i] = ids[at[i]] ? t[on[i]] : f[off[i]];
}

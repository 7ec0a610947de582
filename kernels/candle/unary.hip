// Candle's unary module: out[i] = f(inp[i]) over any layout of inp. `info` is dims then strides, or null when inp is
// contiguous. These keep Candle's names and parameters; elementwise.hip holds the fast forms. `f` is a row of the op
// table.
#include "portable.h"
#include "table.h"

template <class S, class F> WICK_FN void unary(u64 numel, u64 num_dims, const u64* info, const S* inp, S* out, F f) {
  const InfoLayout from(info, num_dims, 0);
  GRID_STRIDE(i, numel) out[i] = from_compute<S>(f(to_compute(inp[from[i]])));
}
template <class S> WICK_FN void copy_from(u64 numel, u64 num_dims, const u64* info, const S* inp, S* out) {
  const InfoLayout from(info, num_dims, 0);
  GRID_STRIDE(i, numel) out[i] = inp[from[i]];
}

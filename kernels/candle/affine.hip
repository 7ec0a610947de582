// Candle's affine module: out[i] = inp[i] * mul + add; may run in place when inp is contiguous. The scalars follow the
// buffers.
#include "portable.h"
#include "table.h"

template <class S> WICK_FN void affine(u64 numel, u64 num_dims, const u64* info, const S* inp, S* out, S mul, S add) {
  const InfoLayout from(info, num_dims, 0);
  const auto a = to_compute(mul), b = to_compute(add);
  GRID_STRIDE(i, numel) {
    const auto x = to_compute(inp[from[i]]);
    out[i] = from_compute<S>(op_affine<S, compute_t<S>>(x, a, b));
  }
}

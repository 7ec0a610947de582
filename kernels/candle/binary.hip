// Candle's binary module: out[i] = f(lhs[i], rhs[i]); comparisons answer u8. `dims_and_strides` is dims, lhs strides,
// rhs strides, or null.
#include "portable.h"
#include "table.h"

template <class S, class D, class F>
WICK_FN void binary(u64 numel, u64 num_dims, const u64* dims_and_strides, const S* lhs, const S* rhs, D* out, F f) {
  const InfoLayout left(dims_and_strides, num_dims, 0), right(dims_and_strides, num_dims, 1);
  GRID_STRIDE(i, numel) out[i] = from_compute<D>(f(to_compute(lhs[left[i]]), to_compute(rhs[right[i]])));
}

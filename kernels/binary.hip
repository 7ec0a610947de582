// Candle's binary module: out[i] = f(lhs[i], rhs[i]); comparisons answer u8. `dims_and_strides` is dims, lhs strides, rhs strides, or null.
#include "portable.h"
#include "table.h"

#define BINARY_AS(NAME, S, D, OP)                                                                                           \
  KERNEL(1024) NAME(const u64 numel, const u64 num_dims, const u64* dims_and_strides, const S* lhs, const S* rhs, D* out) { \
    const InfoLayout left(dims_and_strides, num_dims, 0), right(dims_and_strides, num_dims, 1);                             \
    GRID_STRIDE(i, numel) {                                                                                                 \
      const auto x = to_compute(lhs[left[i]]);                                                                              \
      const auto y = to_compute(rhs[right[i]]);                                                                             \
      out[i] = from_compute<D>(op_##OP<S, compute_t<S>>(x, y));                                                             \
    }                                                                                                                       \
  }
#define BINARY(NAME, S, OP) BINARY_AS(NAME, S, S, OP)
#define COMPARE(NAME, S, OP) BINARY_AS(NAME, S, u8, OP)
#define ALL(M, STEM, OP) FOR_REALS(M, STEM, OP) FOR_INTS(M, STEM, OP) M(STEM##_f8_e4m3, fp8, OP)

ALL(BINARY, badd, add)
ALL(BINARY, bsub, sub)
ALL(BINARY, bmul, mul)
ALL(BINARY, bdiv, div)
ALL(BINARY, bminimum, minimum)
ALL(BINARY, bmaximum, maximum)
ALL(COMPARE, eq, eq)
ALL(COMPARE, ne, ne)
ALL(COMPARE, lt, lt)
ALL(COMPARE, le, le)
ALL(COMPARE, gt, gt)
ALL(COMPARE, ge, ge)

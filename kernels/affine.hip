// Candle's affine module: out[i] = inp[i] * mul + add; may run in place when inp is contiguous. The scalars follow the buffers.
#include "portable.h"
#include "table.h"

#define AFFINE(NAME, S)                                                                                                     \
  KERNEL(1024) NAME(const u64 numel, const u64 num_dims, const u64* info, const S* inp, S* out, const S mul, const S add) { \
    const InfoLayout from(info, num_dims, 0);                                                                               \
    const auto a = to_compute(mul), b = to_compute(add);                                                                    \
    GRID_STRIDE(i, numel) {                                                                                                 \
      const auto x = to_compute(inp[from[i]]);                                                                              \
      out[i] = from_compute<S>(op_affine<S, compute_t<S>>(x, a, b));                                                        \
    }                                                                                                                       \
  }

FOR_REALS(AFFINE, affine)
FOR_INTS(AFFINE, affine)
AFFINE(affine_f8_e4m3, fp8)

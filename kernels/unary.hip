// Candle's unary module: out[i] = f(inp[i]) over any layout of inp. `info` is dims then strides, or null when inp is contiguous.
// These keep Candle's names and parameters; elementwise.hip holds the fast forms.
#include "portable.h"
#include "table.h"

#define UNARY_BODY(S, RESULT)                \
  const InfoLayout from(info, num_dims, 0);  \
  GRID_STRIDE(i, numel) {                    \
    const auto x = to_compute(inp[from[i]]); \
    out[i] = from_compute<S>(RESULT);        \
  }

#define UNARY(NAME, S, OP)                                                                        \
  KERNEL(1024) NAME(const u64 numel, const u64 num_dims, const u64* info, const S* inp, S* out) { \
    UNARY_BODY(S, (op_##OP<S, compute_t<S>>(x)))                                                  \
  }
/** With one scalar, which stands before the buffers. */
#define UNARY_PARAM(NAME, S, OP)                                                                                 \
  KERNEL(1024) NAME(const u64 numel, const u64 num_dims, const u64* info, const S param, const S* inp, S* out) { \
    const auto a = to_compute(param);                                                                            \
    UNARY_BODY(S, (op_##OP<S, compute_t<S>>(x, a)))                                                              \
  }
#define COPY(NAME, S)                                                                             \
  KERNEL(1024) NAME(const u64 numel, const u64 num_dims, const u64* info, const S* inp, S* out) { \
    const InfoLayout from(info, num_dims, 0);                                                     \
    GRID_STRIDE(i, numel) out[i] = inp[from[i]];                                                  \
  }
#define FLOATS(M, STEM, OP) FOR_REALS(M, STEM, OP) M(STEM##_fp8_e4m3, fp8, OP)

FOR_REALS(COPY, ucopy)
FOR_INTS(COPY, ucopy)
COPY(ucopy_f8_e4m3, fp8)
FLOATS(UNARY, uneg, neg)
FLOATS(UNARY, urecip, recip)
FLOATS(UNARY, uexp, exp)
FLOATS(UNARY, ulog, log)
FLOATS(UNARY, usin, sin)
FLOATS(UNARY, ucos, cos)
FLOATS(UNARY, utanh, tanh)
FLOATS(UNARY, uerf, erf)
FLOATS(UNARY, uceil, ceil)
FLOATS(UNARY, ufloor, floor)
FLOATS(UNARY, uround, round)
FLOATS(UNARY, unormcdf, normcdf)
FLOATS(UNARY, uabs, abs)
FLOATS(UNARY, usqr, sqr)
FLOATS(UNARY, usqrt, sqrt)
FLOATS(UNARY, ugelu, gelu)
FLOATS(UNARY, ugelu_erf, geluErf)
FLOATS(UNARY, urelu, relu)
FLOATS(UNARY, usilu, silu)
FLOATS(UNARY, usign, sign)
FLOATS(UNARY, usigmoid, sigmoid)
FLOATS(UNARY_PARAM, uelu, elu)
FLOATS(UNARY_PARAM, upowf, powf)

// Ours: the ops that have a meaning on integers.
FOR_INTS(UNARY, uneg, neg)
FOR_INTS(UNARY, uceil, ceil)
FOR_INTS(UNARY, ufloor, floor)
FOR_INTS(UNARY, uround, round)
FOR_INTS(UNARY, uabs, abs)
FOR_INTS(UNARY, usqr, sqr)
FOR_INTS(UNARY, urelu, relu)
FOR_INTS(UNARY, usign, sign)

// Casts, copies and fills.
#include "ops.h"
#include "engine/strided.h"
#include "engine/threads.h"

namespace wick {
namespace {

Status cast(const Call& c, const void*) {
  const bool truth = c.params[0] != 0;  // 1 for what is not 0, instead of the nearest u8
  runStrided(truth ? isa->truth[c.in(0).dtype] : isa->cast[c.in(0).dtype][c.out().dtype], c.operand, 1, c.out(),
             nullptr);
  return OK;
}

Status copy(const Call& c, const void*) {
  copyStrided(c.in(0), c.out());
  return OK;
}

// A strided copy of one element: all strides zero.
Status fill(const Call& c, const void*) {
  const Operand& out = c.out();
  alignas(8) char value[8];
  castRun(F64, out.dtype, c.params, value, 1);
  Operand from = out;
  from.data = value;
  for (int d = 0; d < from.rank; d++) from.stride[d] = 0;
  copyStrided(from, out);
  return OK;
}

// start + i * step, each from its own index.
Status arange(const Call& c, const void*) {
  const Operand& out = c.out();
  const double start = c.params[0], step = c.params[1];
  constexpr int64_t RUN = 512;
  parallel(out.size(), 1 << 16, [&](int64_t begin, int64_t end) {
    double values[RUN];
    for (int64_t i = begin; i < end; i += RUN) {
      const int64_t n = end - i < RUN ? end - i : RUN;
      for (int64_t j = 0; j < n; j++) values[j] = start + (double)(i + j) * step;
      if (out.dtype == F64) memcpy(out.data + i * 8, values, n * 8);
      else castRun(F64, out.dtype, values, out.data + i * out.bytes(), n);
    }
  });
  return OK;
}

}  // namespace

WICK_OPS(cast) = {{"castTo", cast, nullptr},
                  {"copy", copy, nullptr},
                  {"newFull", fill, nullptr},
                  {"newArange", arange, nullptr},
                  {nullptr, nullptr, nullptr}};

}  // namespace wick

// Casts, copies and fills.
#include "ops.h"
#include "strided.h"
#include "threads.h"

namespace wick {
namespace {

Status cast(const Call& c, const void*) {
  runStrided(isa->cast[c.in(0).dtype][c.out().dtype], c.operand, 1, c.out(), nullptr);
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

}  // namespace

const Op MOVEMENT_OPS[] = {{"castTo", cast, nullptr}, {"copy", copy, nullptr}, {"newFull", fill, nullptr}, {nullptr, nullptr, nullptr}};

}  // namespace wick

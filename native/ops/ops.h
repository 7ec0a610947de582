// The engine's ops outside the elementwise table, by the names of their rows.
#pragma once
#include "engine/kernels.h"

namespace wick {

// The ops of a file, by the names of their rows and ended by a null name. Every file of native/ops has such a list; the
// engine knows them by the files' names (generated/names.h).
#define WICK_OPS(FILE)          \
  extern const Op FILE##_ops[]; \
  const Op FILE##_ops[]

inline bool isFloatType(int dtype) { return dtype >= F8; }
// What reductions and scans add up in: double for floats, 64-bit integers for integers.
inline int wideType(int dtype) { return isFloatType(dtype) ? F64 : I64; }

inline void castRun(int from, int to, const void* in, void* out, int64_t n) {
  const void* list[1] = {in};
  isa->cast[from][to](list, out, n, nullptr);
}

// An operand with one dimension split off: the others merged, outermost first.
struct Lanes {
  int64_t count = 1;     // lanes
  int64_t length, step;  // elements of a lane and their distance
  int rank = 0;          // the other dimensions, for a Walk
  int64_t shape[MAX_RANK], stride[1][MAX_RANK];
};
inline Lanes lanesOf(const Operand& x, int dim) {
  Lanes l;
  l.length = x.shape[dim];
  l.step = x.stride[dim];
  for (int d = 0; d < x.rank; d++) {
    if (d == dim) continue;
    l.count *= x.shape[d];
    l.shape[l.rank] = x.shape[d];
    l.stride[0][l.rank++] = x.stride[d];
  }
  return l;
}

}  // namespace wick

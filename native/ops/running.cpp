// Running products, logarithms of sums of exponentials and places of the best so far along one dimension: a lane after
// the other, in double or 64 bits.
#include <cmath>

#include "ops.h"
#include "engine/strided.h"
#include "engine/threads.h"

namespace wick {
namespace {

constexpr int64_t GRAIN = 32768;
enum Running : int { PRODUCT, LOG_SUM, LARGEST, SMALLEST };

void products(double* v, int64_t n) {
  for (int64_t k = 1; k < n; k++) v[k] *= v[k - 1];
}
void products(int64_t* v, int64_t n) {
  for (int64_t k = 1; k < n; k++) v[k] = (int64_t)((uint64_t)v[k] * (uint64_t)v[k - 1]);
}
void logSums(double* v, int64_t n) {
  double top = -INFINITY, sum = 0;
  for (int64_t k = 0; k < n; k++) {
    const double x = v[k], share = top == x ? 1 : exp(-fabs(top - x));
    if (top > x) sum += share;
    else sum = 1 + sum * share, top = x;
    v[k] = top + log(sum);
  }
}
// Places in the elements' own room, as whole numbers of 64 bits.
template <class W> void places(W* v, int64_t n, bool largest) {
  int64_t best = 0;
  W value = v[0];
  for (int64_t k = 0; k < n; k++) {
    const W x = v[k];
    if (x != x || (largest ? x >= value : x <= value)) best = k, value = x;
    memcpy(v + k, &best, 8);
  }
}
void laneOf(int kind, int wide, void* lane, int64_t n) {
  double* real = static_cast<double*>(lane);
  int64_t* whole = static_cast<int64_t*>(lane);
  if (kind == LOG_SUM) logSums(real, n);
  else if (kind == PRODUCT) wide == F64 ? products(real, n) : products(whole, n);
  else if (wide == F64) places(real, n, kind == LARGEST);
  else places(whole, n, kind == LARGEST);
}

Status running(const Call& c, const void* what) {
  const int kind = (int)(intptr_t)what;
  const Operand& x = c.in(0);
  const Operand& out = c.out();
  const int dim = (int)c.integer(0);
  Lanes in = lanesOf(x, dim), to = lanesOf(out, dim);
  const int wide = wideType(x.dtype), found = kind >= LARGEST ? I64 : wide;
  const int bytes = x.bytes(), outBytes = out.bytes();
  const int64_t n = in.length;
  if (n == 0 || in.count == 0) return OK;
  parallel(in.count, GRAIN / n + 1, [&](int64_t begin, int64_t end) {
    char* raw = static_cast<char*>(scratch(SCRATCH_A, n * (bytes < outBytes ? outBytes : bytes)));
    void* lane = scratch(SCRATCH_B, n * 8);
    Walk from(in.rank, in.shape, in.stride, 1, begin), into(to.rank, to.shape, to.stride, 1, begin);
    for (int64_t i = begin; i < end; i++, from.next(), into.next()) {
      gatherRun(raw, x.data + from.offset[0] * bytes, in.step, n, bytes);
      castRun(x.dtype, wide, raw, lane, n);
      laneOf(kind, wide, lane, n);
      castRun(found, out.dtype, lane, raw, n);
      scatterRun(out.data + into.offset[0] * outBytes, to.step, raw, n, outBytes);
    }
  });
  return OK;
}

const void* kind(Running r) { return reinterpret_cast<const void*>((intptr_t)r); }

}  // namespace

WICK_OPS(running) = {{"runningProduct", running, kind(PRODUCT)},
                     {"runningLogSum", running, kind(LOG_SUM)},
                     {"runningLargest", running, kind(LARGEST)},
                     {"runningSmallest", running, kind(SMALLEST)},
                     {nullptr, nullptr, nullptr}};

}  // namespace wick

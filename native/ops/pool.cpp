// Pooling: picture planes in double, results rounded once.
#include <cmath>

#include "planes.h"

namespace wick {
namespace {

enum Pool : int { AVERAGE, MAXIMUM, PLACE };

// Params: kernel, stride and padding as (h, w) pairs.
Status pool(const Call& c, const void* data) {
  const Operand &x = c.in(0), &out = c.out();
  const int kind = (int)(intptr_t)data;
  if (out.size() == 0) return OK;
  const int64_t kh = c.integer(0), kw = c.integer(1), sh = c.integer(2), sw = c.integer(3), ph = c.integer(4),
                pw = c.integer(5);
  const int64_t H = x.shape[2], W = x.shape[3], h = out.shape[2], w = out.shape[3];
  const bool nanWins = x.dtype == F16 || x.dtype == BF16, whole = !isFloatType(x.dtype);
  eachPlane(x, h * w * kh * kw, [&](int64_t p, const double* plane) {
    double* line = static_cast<double*>(scratch(SCRATCH_C, w * 8));
    for (int64_t y = 0; y < h; y++) {
      const int64_t r0 = y * sh - ph, top = r0 < 0 ? 0 : r0, bottom = r0 + kh < H ? r0 + kh : H;
      for (int64_t z = 0; z < w; z++) {
        const int64_t s0 = z * sw - pw, left = s0 < 0 ? 0 : s0, right = s0 + kw < W ? s0 + kw : W;
        if (kind == AVERAGE) {
          double sum = 0;
          for (int64_t r = top; r < bottom; r++)
            for (int64_t s = left; s < right; s++) sum += plane[r * W + s];
          sum /= (double)(kh * kw);
          line[z] = whole ? floor(sum) : sum;
          continue;
        }
        int64_t best = top * W + left;
        for (int64_t r = top; r < bottom; r++)
          for (int64_t s = left; s < right; s++) {
            const double v = plane[r * W + s], b = plane[best];
            if (v != v ? nanWins && b == b : b != b ? !nanWins : v > b) best = r * W + s;
          }
        line[z] = kind == MAXIMUM ? plane[best] : (double)best;
      }
      castRun(F64, out.dtype, line, out.data + (p * h + y) * w * out.bytes(), w);
    }
  });
  return OK;
}

const void* kind(Pool p) { return reinterpret_cast<const void*>((intptr_t)p); }

}  // namespace

WICK_OPS(pool) = {{"avgPool2d", pool, kind(AVERAGE)},
                  {"maxPool2d", pool, kind(MAXIMUM)},
                  {"argMaxPool2d", pool, kind(PLACE)},
                  {nullptr, nullptr, nullptr}};

}  // namespace wick

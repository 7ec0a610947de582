// Pooling and resizing: picture planes in double, results rounded once.
#include <cmath>

#include "ops.h"
#include "engine/strided.h"
#include "engine/threads.h"

namespace wick {
namespace {

constexpr int64_t GRAIN = 16384;

// Calls body(plane number, H x W values) for every plane of x, in double.
template <class G> void eachPlane(const Operand& x, int64_t work, G body) {
  const int r = x.rank, bytes = x.bytes();
  const int64_t H = r == 4 ? x.shape[2] : 1, W = x.shape[r - 1], sy = r == 4 ? x.stride[2] : 0, sx = x.stride[r - 1];
  parallel(x.shape[0] * x.shape[1], GRAIN / (work + 1) + 1, [&](int64_t begin, int64_t end) {
    char* line = static_cast<char*>(scratch(SCRATCH_A, W * bytes));
    double* plane = static_cast<double*>(scratch(SCRATCH_B, (size_t)(H * W * 8)));
    for (int64_t p = begin; p < end; p++) {
      const char* from = x.data + (p / x.shape[1] * x.stride[0] + p % x.shape[1] * x.stride[1]) * bytes;
      for (int64_t y = 0; y < H; y++) {
        const char* row = from + y * sy * bytes;
        if (sx != 1) {
          gatherRun(line, row, sx, W, bytes);
          row = line;
        }
        castRun(x.dtype, F64, row, plane + y * W, W);
      }
      body(p, plane);
    }
  });
}

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

int64_t nearestSource(int64_t i, int64_t size, int64_t out) {
  const int64_t at = (int64_t)floor((double)i * ((double)size / (double)out));
  return at < size - 1 ? at : size - 1;
}

Status nearest(const Call& c, const void*) {
  const Operand &x = c.in(0), &out = c.out();
  if (out.size() == 0) return OK;
  const int r = x.rank, bytes = x.bytes();
  const int64_t H = r == 4 ? x.shape[2] : 1, W = x.shape[r - 1], h = r == 4 ? out.shape[2] : 1, w = out.shape[r - 1];
  parallel(x.shape[0] * x.shape[1] * h, GRAIN / w + 1, [&](int64_t begin, int64_t end) {
    int64_t* source = static_cast<int64_t*>(scratch(SCRATCH_A, w * 8));
    for (int64_t z = 0; z < w; z++) source[z] = nearestSource(z, W, w) * x.stride[r - 1] * bytes;
    for (int64_t i = begin; i < end; i++) {
      const int64_t p = i / h, y = r == 4 ? nearestSource(i % h, H, h) * x.stride[2] : 0;
      const char* row = x.data + (p / x.shape[1] * x.stride[0] + p % x.shape[1] * x.stride[1] + y) * bytes;
      char* to = out.data + i * w * bytes;
      for (int64_t z = 0; z < w; z++, to += bytes) memcpy(to, row + source[z], bytes);
    }
  });
  return OK;
}

struct Source {
  int64_t low, high;
  double weight;
};
Source bilinearSource(int64_t i, int64_t size, int64_t out, bool corners, double scale) {
  const double step = corners      ? (out > 1 ? (double)(size - 1) / (double)(out - 1) : 0)
                      : scale != 0 ? 1 / scale
                                   : (double)size / (double)out;
  const double at = corners ? step * (double)i : fmax(0, fma(step, (double)i + 0.5, -0.5));
  int64_t low = (int64_t)floor(at);
  if (low > size - 1) low = size - 1;
  return {low, low + 1 < size ? low + 1 : size - 1, fmin(fmax(at - (double)low, 0), 1)};
}

// Params: size (h, w), align corners, scale (h, w) or zeros. Backward: the inputs are the resized pictures.
Status bilinear(const Call& c, const void* data) {
  const bool backward = data != nullptr;
  const Operand &x = c.in(0), &out = c.out();
  if (out.size() == 0) return OK;
  const Operand& source = backward ? out : x;
  const int64_t h = c.integer(0), w = c.integer(1), H = source.shape[2], W = source.shape[3];
  const bool corners = c.params[2] != 0;
  const double scaleY = c.params[3], scaleX = c.params[4];
  const int64_t size = backward ? H * W : h * w;
  // The inputs of a backward pass may come in another shape of the same size; planes are what counts.
  eachPlane(x, h * w * 4, [&](int64_t p, const double* plane) {
    double* result = static_cast<double*>(scratch(SCRATCH_C, (size_t)(size * 8)));
    Source* across = static_cast<Source*>(scratch(SCRATCH_X, (size_t)w * sizeof(Source)));
    for (int64_t z = 0; z < w; z++) across[z] = bilinearSource(z, W, w, corners, scaleX);
    memset(result, 0, size * 8);
    for (int64_t y = 0; y < h; y++) {
      const Source a = bilinearSource(y, H, h, corners, scaleY);
      for (int64_t z = 0; z < w; z++) {
        const Source b = across[z];
        const int64_t at[4] = {a.low * W + b.low, a.low * W + b.high, a.high * W + b.low, a.high * W + b.high};
        const double weight[4] = {(1 - a.weight) * (1 - b.weight), (1 - a.weight) * b.weight, a.weight * (1 - b.weight),
                                  a.weight * b.weight};
        if (backward)
          for (int k = 0; k < 4; k++) result[at[k]] += plane[y * w + z] * weight[k];
        else {
          // Candle's order, with the multiply-adds its compiler makes of it: integers are cut off, and a last bit would
          // show.
          const double top = fma(plane[at[0]], 1 - b.weight, plane[at[1]] * b.weight);
          const double bottom = fma(plane[at[2]], 1 - b.weight, plane[at[3]] * b.weight);
          result[y * w + z] = fma(top, 1 - a.weight, bottom * a.weight);
        }
      }
    }
    castRun(F64, out.dtype, result, out.data + p * size * out.bytes(), size);
  });
  return OK;
}

const void* kind(Pool p) { return reinterpret_cast<const void*>((intptr_t)p); }
const char BACKWARD = 1;

}  // namespace

const Op POOL_OPS[] = {{"avgPool2d", pool, kind(AVERAGE)},
                       {"maxPool2d", pool, kind(MAXIMUM)},
                       {"argMaxPool2d", pool, kind(PLACE)},
                       {"upsampleNearest1d", nearest, nullptr},
                       {"upsampleNearest2d", nearest, nullptr},
                       {"upsampleBilinear2d", bilinear, nullptr},
                       {"upsampleBilinear2dBackward", bilinear, &BACKWARD},
                       {nullptr, nullptr, nullptr}};

}  // namespace wick

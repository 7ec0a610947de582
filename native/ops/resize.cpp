// Resizing: nearest elements as they are, bilinear in double and rounded once.
#include <cmath>

#include "planes.h"

namespace wick {
namespace {

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
          for (int k = 0; k < 4; k++)
            result[at[k]] += weight[k] != 0 ? plane[y * w + z] * weight[k] : 0;  // infinity weighs nothing, too
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

const char BACKWARD = 1;

}  // namespace

WICK_OPS(resize) = {{"upsampleNearest1d", nearest, nullptr},
                    {"upsampleNearest2d", nearest, nullptr},
                    {"upsampleBilinear2d", bilinear, nullptr},
                    {"upsampleBilinear2dBackward", bilinear, &BACKWARD},
                    {nullptr, nullptr, nullptr}};

}  // namespace wick

// Resizing: nearest neighbours and bilinear, under Candle's names and with its parameters, and the gradient. Launches:
// src/backends/gpu/resample.ts.
//
// A thread an element, any grid; info holds dims then strides of the source; w is dimension 2 and h dimension 3 of
// nearest2d, the other way round of bilinear. bilinear_grad: each source pixel gathers from the pixels it was spread
// to, so sums have one order.
#include "block.h"
#include "settle.h"

/** floor(i * scale) in double, never past the end. */
WICK_FN u64 nearest(u64 i, double scale, u64 length) {
  const u64 at = (u64)((double)i * scale);
  return at < length ? at : length - 1;
}
template <class S>
WICK_FN void nearest2d(u64 w_out, u64 h_out, double w_scale, double h_scale, const size_t* info, const S* src, S* dst) {
  const size_t *x = info, *xs = info + 4;
  GRID_STRIDE(i, x[0] * x[1] * w_out * h_out) {
    const u64 z = nearest(i % h_out, h_scale, x[3]), y = nearest(i / h_out % w_out, w_scale, x[2]),
              plane = i / h_out / w_out;
    dst[i] = src[plane / x[1] * xs[0] + plane % x[1] * xs[1] + y * xs[2] + z * xs[3]];
  }
}
template <class S> WICK_FN void nearest1d(u64 l_out, double l_scale, const size_t* info, const S* src, S* dst) {
  const size_t *x = info, *xs = info + 3;
  GRID_STRIDE(i, x[0] * x[1] * l_out) {
    const u64 z = nearest(i % l_out, l_scale, x[2]), plane = i / l_out;
    dst[i] = src[plane / x[1] * xs[0] + plane % x[1] * xs[1] + z * xs[2]];
  }
}

/** Where a place of the resized axis lies between two source places. */
struct Between {
  i64 low, high;
  double weight;
};
WICK_FN double resize_step(u64 length, u64 out, bool corners, bool has_scale, double scale) {
  if (corners) return out > 1 ? (double)(length - 1) / (double)(out - 1) : 0.0;
  return has_scale ? 1.0 / scale : (double)length / (double)out;
}
WICK_FN Between between(i64 i, double step, bool corners, i64 length) {
  double at = corners ? step * (double)i : fmag(step, (double)i + 0.5, -0.5);
  if (at < 0) at = 0;
  i64 low = (i64)at;
  if (low > length - 1) low = length - 1;
  double weight = at - (double)low;
  Between b = {low, low + 1 < length ? low + 1 : length - 1, weight > 1 ? 1.0 : weight};
  return b;
}
/** A weighted sum of doubles in the dtype. */
template <class S> WICK_FN S rounded(double v) {
  if constexpr (is_float<S>) return round_to<S>(v);
  else return to_int<S>(v);
}
template <class S>
WICK_FN void bilinear(u64 w_out, u64 h_out, bool corners, double step_h, double step_w, const u64* info, const S* src,
                      S* dst) {
  const u64 *x = info, *xs = info + 4;
  GRID_STRIDE(i, x[0] * x[1] * h_out * w_out) {
    const Between c = between((i64)(i % w_out), step_w, corners, (i64)x[3]),
                  r = between((i64)(i / w_out % h_out), step_h, corners, (i64)x[2]);
    const u64 plane = i / w_out / h_out;
    const S* from = src + plane / x[1] * xs[0] + plane % x[1] * xs[1];
    const auto at = [&](i64 y, i64 z) { return (double)to_compute(from[(u64)y * xs[2] + (u64)z * xs[3]]); };
    // Candle's order, with the multiply-adds its compiler makes of it: integers are cut off, and a last bit would show.
    const double top = fmag(at(r.low, c.low), 1 - c.weight, at(r.low, c.high) * c.weight);
    const double bottom = fmag(at(r.high, c.low), 1 - c.weight, at(r.high, c.high) * c.weight);
    dst[i] = rounded<S>(fmag(top, 1 - r.weight, bottom * r.weight));
  }
}

/** The resized places that may show source place y: all between first and last, and no other. */
struct Shown {
  i64 first, last;
};
WICK_FN Shown shown(i64 y, double step, bool corners, i64 length, i64 out) {
  Shown s = {0, out - 1};
  if (step <= 0) return s;
  const double shift = corners ? 0.0 : 0.5;
  if (y > 0) s.first = (i64)(((double)(y - 1) + shift) / step - shift) - 1;
  if (y < length - 1) s.last = (i64)(((double)(y + 1) + shift) / step - shift) + 1;
  if (s.first < 0) s.first = 0;
  if (s.last > out - 1) s.last = out - 1;
  return s;
}
WICK_FN double share(const Between& b, i64 y) {
  return (b.low == y ? 1 - b.weight : 0.0) + (b.high == y ? b.weight : 0.0);
}
template <class S>
WICK_FN void bilinear_grad(const S* grad, S* dx, u64 planes, i64 h, i64 w, i64 h_out, i64 w_out, bool corners,
                           double step_h, double step_w) {
  GRID_STRIDE(i, planes * (u64)(h * w)) {
    const i64 z = (i64)(i % (u64)w), y = (i64)(i / (u64)w % (u64)h);
    const S* from = grad + i / (u64)(h * w) * (u64)(h_out * w_out);
    const Shown rows = shown(y, step_h, corners, h, h_out), cols = shown(z, step_w, corners, w, w_out);
    double sum = 0;
    for (i64 r = rows.first; r <= rows.last; r++) {
      const double part = share(between(r, step_h, corners, h), y);
      if (part == 0) continue;
      UNROLL(1, 1)
      for (i64 c = cols.first; c <= cols.last; c++)
        sum += (double)to_compute(from[r * w_out + c]) * (part * share(between(c, step_w, corners, w), z));
    }
    dx[i] = round_to<S>(sum);
  }
}

// Convolutions, pooling and resizing, with Candle's conv.cu symbol for symbol, and implicit matrix products for any groups and strides.
//
// Candle's (a thread an element, any grid; info holds dims then strides of each operand; w is dimension 2 and h dimension 3, except in
// im2col and upsample_bilinear2d, which say h for 2): conv1d conv2d conv_transpose1d conv_transpose2d im2col im2col1d col2im1d avg_pool2d
// max_pool2d upsample_nearest2d upsample_bilinear2d; dilation multiplies the kernel position alone, averages divide in the dtype's own precision.
//
// Ours (launch: src/kernels/launch.ts, convLaunch and friends). Conv says the shapes; 1-D is height 1; results are contiguous.
//   conv_{fma,mma}_T, conv_transpose_{fma,mma}_T   implicit matrix products: grid (tiles of channels x tiles of pixels, groups), block as in gemm.hip
//   conv_direct_T, conv_transpose_direct_T         depthwise and other narrow groups: a thread an element, grid-stride
//   pool_{avg,max,argmax}_T                        with padding, contiguous input; a thread an element
//   upsample_nearest1d_T                           in the manner of Candle's 2-D kernel
//   bilinear_grad_T                                each source pixel gathers from the pixels it was spread to, so sums have one order
#include "block.h"
#include "tile.h"

// ---- Candle's ----

/** One element's sum of products in the type products add up in. */
template <class S> WICK_FN product_t<S> wide(S x) { return (product_t<S>)to_compute(x); }

template <class S> WICK_FN void candle_conv1d(i64 stride, i64 padding, i64 dilation, const u64* info, const S* src, const S* kernel, S* dst) {
  const u64 *x = info, *xs = info + 3, *k = info + 6, *ks = info + 9;
  const i64 length = (i64)x[2], l_out = (length + 2 * padding - dilation * ((i64)k[2] - 1) - 1) / stride + 1;
  GRID_STRIDE(i, x[0] * k[0] * (u64)l_out) {
    const i64 l = (i64)(i % (u64)l_out);
    const u64 o = i / (u64)l_out % k[0], b = i / (u64)l_out / k[0];
    product_t<S> sum = 0;
    for (u64 c = 0; c < x[1]; c++)
      for (u64 j = 0; j < k[2]; j++) {
        const i64 at = l * stride + (i64)j * dilation - padding;
        if (at >= 0 && at < length) sum = fmag(wide(src[b * xs[0] + c * xs[1] + (u64)at * xs[2]]), wide(kernel[o * ks[0] + c * ks[1] + j * ks[2]]), sum);
      }
    dst[i] = from_compute<S>(sum);
  }
}
#define CONV1D(NAME, S)                                                                                                     \
  KERNEL(1024) NAME(const size_t src_numel, const size_t num_dims, const size_t stride, const size_t padding, const size_t dilation, \
                    const size_t* info, const S* src, const S* kernel, S* dst) {                                            \
    candle_conv1d((i64)stride, (i64)padding, (i64)dilation, (const u64*)info, src, kernel, dst);                            \
  }

template <class S>
WICK_FN void candle_conv2d(u64 w_out, u64 h_out, i64 stride, i64 padding, i64 dilation, const u64* info, const S* src, const S* kernel, S* dst) {
  const u64 *x = info, *xs = info + 4, *k = info + 8, *ks = info + 12;
  GRID_STRIDE(i, x[0] * k[0] * w_out * h_out) {
    const i64 h = (i64)(i % h_out), w = (i64)(i / h_out % w_out);
    const u64 o = i / h_out / w_out % k[0], b = i / h_out / w_out / k[0];
    product_t<S> sum = 0;
    for (u64 c = 0; c < x[1]; c++)
      for (u64 p = 0; p < k[2]; p++) {
        const i64 y = w * stride + (i64)p * dilation - padding;
        if (y < 0 || y >= (i64)x[2]) continue;
        for (u64 q = 0; q < k[3]; q++) {
          const i64 z = h * stride + (i64)q * dilation - padding;
          if (z < 0 || z >= (i64)x[3]) continue;
          sum = fmag(wide(src[b * xs[0] + c * xs[1] + (u64)y * xs[2] + (u64)z * xs[3]]),
                     wide(kernel[o * ks[0] + c * ks[1] + p * ks[2] + q * ks[3]]), sum);
        }
      }
    dst[i] = from_compute<S>(sum);
  }
}
#define CONV2D(NAME, S)                                                                                                    \
  KERNEL(1024) NAME(const size_t src_numel, const size_t w_out, const size_t h_out, const size_t stride, const size_t padding, \
                    const size_t dilation, const size_t* info, const S* src, const S* kernel, S* dst) {                    \
    candle_conv2d(w_out, h_out, (i64)stride, (i64)padding, (i64)dilation, (const u64*)info, src, kernel, dst);             \
  }

/** Where result position `to` takes its value from through kernel position `j`: -1 where nothing stands. */
WICK_FN i64 transposed_source(i64 to, i64 j, i64 stride, i64 padding, i64 dilation, i64 length) {
  const i64 at = to + padding - j * dilation;
  return at < 0 || at % stride != 0 || at / stride >= length ? -1 : at / stride;
}
template <class S> WICK_FN void candle_conv_transpose1d(u64 l_out, i64 stride, i64 padding, i64 dilation, const u64* info, const S* src, const S* kernel, S* dst) {
  const u64 *x = info, *xs = info + 3, *k = info + 6, *ks = info + 9;
  GRID_STRIDE(i, x[0] * k[1] * l_out) {
    const u64 o = i / l_out % k[1], b = i / l_out / k[1];
    product_t<S> sum = 0;
    for (u64 j = 0; j < k[2]; j++) {
      const i64 at = transposed_source((i64)(i % l_out), (i64)j, stride, padding, dilation, (i64)x[2]);
      if (at < 0) continue;
      for (u64 c = 0; c < x[1]; c++)
        sum = fmag(wide(src[b * xs[0] + c * xs[1] + (u64)at * xs[2]]), wide(kernel[c * ks[0] + o * ks[1] + j * ks[2]]), sum);
    }
    dst[i] = from_compute<S>(sum);
  }
}
#define CONV_TRANSPOSE1D(NAME, S)                                                                                          \
  KERNEL(1024) NAME(const size_t src_numel, const size_t l_out, const size_t stride, const size_t padding, const size_t out_padding, \
                    const size_t dilation, const size_t* info, const S* src, const S* kernel, S* dst) {                    \
    candle_conv_transpose1d(l_out, (i64)stride, (i64)padding, (i64)dilation, (const u64*)info, src, kernel, dst);          \
  }
template <class S>
WICK_FN void candle_conv_transpose2d(u64 w_out, u64 h_out, i64 stride, i64 padding, i64 dilation, const u64* info, const S* src, const S* kernel, S* dst) {
  const u64 *x = info, *xs = info + 4, *k = info + 8, *ks = info + 12;
  GRID_STRIDE(i, x[0] * k[1] * w_out * h_out) {
    const u64 o = i / h_out / w_out % k[1], b = i / h_out / w_out / k[1];
    product_t<S> sum = 0;
    for (u64 p = 0; p < k[2]; p++) {
      const i64 y = transposed_source((i64)(i / h_out % w_out), (i64)p, stride, padding, dilation, (i64)x[2]);
      if (y < 0) continue;
      for (u64 q = 0; q < k[3]; q++) {
        const i64 z = transposed_source((i64)(i % h_out), (i64)q, stride, padding, dilation, (i64)x[3]);
        if (z < 0) continue;
        UNROLL(4, 2)
        for (u64 c = 0; c < x[1]; c++)
          sum = fmag(wide(src[b * xs[0] + c * xs[1] + (u64)y * xs[2] + (u64)z * xs[3]]),
                     wide(kernel[c * ks[0] + o * ks[1] + p * ks[2] + q * ks[3]]), sum);
      }
    }
    dst[i] = from_compute<S>(sum);
  }
}
#define CONV_TRANSPOSE2D(NAME, S)                                                                                          \
  KERNEL(1024) NAME(const size_t src_numel, const size_t w_out, const size_t h_out, const size_t stride, const size_t padding, \
                    const size_t out_padding, const size_t dilation, const size_t* info, const S* src, const S* kernel, S* dst) { \
    candle_conv_transpose2d(w_out, h_out, (i64)stride, (i64)padding, (i64)dilation, (const u64*)info, src, kernel, dst);   \
  }

/** dst is (batch, h_out, w_out, channels, h_k, w_k); 1-D is height 1. */
template <class S>
WICK_FN void candle_im2col(u64 numel, u64 h_out, u64 w_out, u64 h_k, u64 w_k, i64 stride, i64 padding, i64 dilation, u64 channels, i64 height, i64 width,
                           u64 sb, u64 sc, u64 sh, u64 sw, i64 stride_h, i64 padding_h, i64 dilation_h, const S* src, S* dst) {
  GRID_STRIDE(i, numel) {
    const u64 q = i % w_k, p = i / w_k % h_k, c = i / w_k / h_k % channels, pixel = i / w_k / h_k / channels;
    const i64 y = (i64)(pixel / w_out % h_out) * stride_h + (i64)p * dilation_h - padding_h;
    const i64 z = (i64)(pixel % w_out) * stride + (i64)q * dilation - padding;
    const bool inside = y >= 0 && y < height && z >= 0 && z < width;
    dst[i] = inside ? src[pixel / w_out / h_out * sb + c * sc + (u64)y * sh + (u64)z * sw] : from_compute<S>((compute_t<S>)0);
  }
}
#define IM2COL(NAME, S)                                                                                                    \
  KERNEL(1024) NAME(const size_t dst_numel, const size_t h_out, const size_t w_out, const size_t h_k, const size_t w_k, const size_t stride, \
                    const size_t padding, const size_t dilation, const size_t* info, const S* src, S* dst) {               \
    candle_im2col(dst_numel, h_out, w_out, h_k, w_k, (i64)stride, (i64)padding, (i64)dilation, info[1], (i64)info[2], (i64)info[3], info[4], \
                  info[5], info[6], info[7], (i64)stride, (i64)padding, (i64)dilation, src, dst);                          \
  }
#define IM2COL1D(NAME, S)                                                                                                  \
  KERNEL(1024) NAME(const size_t dst_numel, const size_t l_out, const size_t l_k, const size_t stride, const size_t padding, \
                    const size_t dilation, const size_t* info, const S* src, S* dst) {                                     \
    candle_im2col(dst_numel, 1, l_out, 1, l_k, (i64)stride, (i64)padding, (i64)dilation, info[1], 1, (i64)info[2], info[3], info[4], 0, info[5], \
                  1, 0, 1, src, dst);                                                                                      \
  }

/** src is (batch, l_in, c_out, k_size); each result element adds up the products that fall on it. */
#define COL2IM1D(NAME, S)                                                                                                  \
  KERNEL(1024) NAME(const size_t dst_el, const size_t l_out, const size_t l_in, const size_t c_out, const size_t k_size, const size_t stride, \
                    const S* src, S* dst) {                                                                                \
    GRID_STRIDE(i, dst_el) {                                                                                               \
      const u64 l = i % l_out, c = i / l_out % c_out, b = i / l_out / c_out;                                               \
      product_t<S> sum = 0;                                                                                                \
      for (u64 j = l % stride; j < k_size && j <= l; j += stride) {                                                        \
        const u64 at = (l - j) / stride;                                                                                   \
        if (at < l_in) sum += wide(src[((b * l_in + at) * c_out + c) * k_size + j]);                                       \
      }                                                                                                                    \
      dst[i] = from_compute<S>(sum);                                                                                       \
    }                                                                                                                      \
  }

/** What windows of integers add up in: wide enough not to wrap. */
template <class S> struct AverageOf { typedef u64 type; };
template <> struct AverageOf<float> { typedef float type; };
template <> struct AverageOf<double> { typedef double type; };
template <> struct AverageOf<half> { typedef float type; };
template <> struct AverageOf<bfloat> { typedef float type; };

/** A window's rows [y0, y1) and columns [z0, z1) inside a plane. */
struct Window {
  i64 y0, y1, z0, z1;
};
template <class S> WICK_FN S average(const S* plane, u64 sy, u64 sz, Window v, i64 area) {
  typedef typename AverageOf<S>::type A;
  A sum = 0;
  for (i64 y = v.y0; y < v.y1; y++)
    for (i64 z = v.z0; z < v.z1; z++) sum += (A)to_compute(plane[(u64)y * sy + (u64)z * sz]);
  return from_compute<S>(sum / (A)area);
}
template <class S> WICK_FN S largest(const S* plane, u64 sy, u64 sz, Window v) {
  compute_t<S> top = Max<S>::identity();
  for (i64 y = v.y0; y < v.y1; y++)
    for (i64 z = v.z0; z < v.z1; z++) top = Max<S>::join(top, to_compute(plane[(u64)y * sy + (u64)z * sz]));
  return from_compute<S>(top);
}
template <bool AVERAGE, class S> WICK_FN void candle_pool(u64 w_k, u64 h_k, u64 w_stride, u64 h_stride, const u64* info, const S* src, S* dst) {
  const u64 *x = info, *xs = info + 4, w_out = (x[2] - w_k) / w_stride + 1, h_out = (x[3] - h_k) / h_stride + 1;
  GRID_STRIDE(i, x[0] * x[1] * w_out * h_out) {
    const u64 h = i % h_out * h_stride, w = i / h_out % w_out * w_stride, plane = i / h_out / w_out;
    const S* from = src + plane / x[1] * xs[0] + plane % x[1] * xs[1];
    const Window v = {(i64)w, (i64)(w + w_k), (i64)h, (i64)(h + h_k)};
    dst[i] = AVERAGE ? average(from, xs[2], xs[3], v, (i64)(w_k * h_k)) : largest(from, xs[2], xs[3], v);
  }
}
#define CANDLE_POOL(NAME, S, AVERAGE)                                                                                      \
  KERNEL(1024) NAME(const size_t src_numel, const size_t w_k, const size_t h_k, const size_t w_stride, const size_t h_stride, \
                    const size_t* info, const S* src, S* dst) {                                                            \
    candle_pool<AVERAGE>(w_k, h_k, w_stride, h_stride, (const u64*)info, src, dst);                                        \
  }

/** floor(i * scale) in double, never past the end. */
WICK_FN u64 nearest(u64 i, double scale, u64 length) {
  const u64 at = (u64)((double)i * scale);
  return at < length ? at : length - 1;
}
#define UPSAMPLE_NEAREST2D(NAME, S)                                                                                        \
  KERNEL(1024) NAME(const size_t w_out, const size_t h_out, const double w_scale, const double h_scale, const size_t* info, const S* src, \
                    S* dst) {                                                                                              \
    const size_t *x = info, *xs = info + 4;                                                                                \
    GRID_STRIDE(i, x[0] * x[1] * w_out * h_out) {                                                                          \
      const u64 z = nearest(i % h_out, h_scale, x[3]), y = nearest(i / h_out % w_out, w_scale, x[2]), plane = i / h_out / w_out; \
      dst[i] = src[plane / x[1] * xs[0] + plane % x[1] * xs[1] + y * xs[2] + z * xs[3]];                                   \
    }                                                                                                                      \
  }
#define UPSAMPLE_NEAREST1D(NAME, S)                                                                                        \
  KERNEL(1024) NAME(const size_t l_out, const double l_scale, const size_t* info, const S* src, S* dst) {                  \
    const size_t *x = info, *xs = info + 3;                                                                                \
    GRID_STRIDE(i, x[0] * x[1] * l_out) {                                                                                  \
      const u64 z = nearest(i % l_out, l_scale, x[2]), plane = i / l_out;                                                  \
      dst[i] = src[plane / x[1] * xs[0] + plane % x[1] * xs[1] + z * xs[2]];                                               \
    }                                                                                                                      \
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
  double at = corners ? step * (double)i : step * ((double)i + 0.5) - 0.5;
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
WICK_FN void bilinear(u64 w_out, u64 h_out, bool corners, double step_h, double step_w, const u64* info, const S* src, S* dst) {
  const u64 *x = info, *xs = info + 4;
  GRID_STRIDE(i, x[0] * x[1] * h_out * w_out) {
    const Between c = between((i64)(i % w_out), step_w, corners, (i64)x[3]), r = between((i64)(i / w_out % h_out), step_h, corners, (i64)x[2]);
    const u64 plane = i / w_out / h_out;
    const S* from = src + plane / x[1] * xs[0] + plane % x[1] * xs[1];
    const auto at = [&](i64 y, i64 z) { return (double)to_compute(from[(u64)y * xs[2] + (u64)z * xs[3]]); };
    // One order of additions everywhere: integers are cut off, and a last bit would show.
    double v = at(r.low, c.low) * ((1 - r.weight) * (1 - c.weight));
    v += at(r.low, c.high) * ((1 - r.weight) * c.weight);
    v += at(r.high, c.low) * (r.weight * (1 - c.weight));
    v += at(r.high, c.high) * (r.weight * c.weight);
    dst[i] = rounded<S>(v);
  }
}
#define UPSAMPLE_BILINEAR2D(NAME, S)                                                                                       \
  KERNEL(1024) NAME(const size_t w_out, const size_t h_out, const bool align_corners, const bool has_scale_h, const double scale_h_factor, \
                    const bool has_scale_w, const double scale_w_factor, const size_t* info, const S* src, S* dst) {       \
    bilinear(w_out, h_out, align_corners, resize_step(info[2], h_out, align_corners, has_scale_h, scale_h_factor),         \
             resize_step(info[3], w_out, align_corners, has_scale_w, scale_w_factor), (const u64*)info, src, dst);         \
  }

// ---- ours ----

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
WICK_FN double share(const Between& b, i64 y) { return (b.low == y ? 1 - b.weight : 0.0) + (b.high == y ? b.weight : 0.0); }
template <class S> WICK_FN void bilinear_grad(const S* grad, S* dx, u64 planes, i64 h, i64 w, i64 h_out, i64 w_out, bool corners, double step_h, double step_w) {
  GRID_STRIDE(i, planes * (u64)(h * w)) {
    const i64 z = (i64)(i % (u64)w), y = (i64)(i / (u64)w % (u64)h);
    const S* from = grad + i / (u64)(h * w) * (u64)(h_out * w_out);
    const Shown rows = shown(y, step_h, corners, h, h_out), cols = shown(z, step_w, corners, w, w_out);
    double sum = 0;
    for (i64 r = rows.first; r <= rows.last; r++) {
      const double part = share(between(r, step_h, corners, h), y);
      if (part == 0) continue;
      UNROLL(1, 1)
      for (i64 c = cols.first; c <= cols.last; c++) sum += (double)to_compute(from[r * w_out + c]) * (part * share(between(c, step_w, corners, w), z));
    }
    dx[i] = round_to<S>(sum);
  }
}
#define BILINEAR_GRAD(NAME, S)                                                                                             \
  KERNEL(256) NAME(const S* grad, S* dx, const u64 planes, const i64 h, const i64 w, const i64 h_out, const i64 w_out, const u32 corners, \
                   const double step_h, const double step_w) {                                                             \
    bilinear_grad(grad, dx, planes, h, w, h_out, w_out, corners != 0, step_h, step_w);                                     \
  }

/** Pooling with padding: sizes of a plane, its result, the window, its steps and the padding. */
struct Pool {
  i64 h, w, h_out, w_out, h_k, w_k, h_step, w_step, h_pad, w_pad;
};
WICK_FN Window window_of(const Pool& p, u64 i) {
  const i64 y = (i64)(i / (u64)p.w_out % (u64)p.h_out) * p.h_step - p.h_pad, z = (i64)(i % (u64)p.w_out) * p.w_step - p.w_pad;
  Window v = {y < 0 ? 0 : y, y + p.h_k < p.h ? y + p.h_k : p.h, z < 0 ? 0 : z, z + p.w_k < p.w ? z + p.w_k : p.w};
  return v;
}
#define POOL_AVG(NAME, S)                                                                                        \
  KERNEL(256) NAME(const S* src, S* dst, const u64 numel, const Pool p) {                                        \
    GRID_STRIDE(i, numel)                                                                                        \
      dst[i] = average(src + i / (u64)(p.h_out * p.w_out) * (u64)(p.h * p.w), (u64)p.w, 1, window_of(p, i), p.h_k * p.w_k); \
  }
#define POOL_MAX(NAME, S)                                                                                        \
  KERNEL(256) NAME(const S* src, S* dst, const u64 numel, const Pool p) {                                        \
    GRID_STRIDE(i, numel) dst[i] = largest(src + i / (u64)(p.h_out * p.w_out) * (u64)(p.h * p.w), (u64)p.w, 1, window_of(p, i)); \
  }
/** The first largest of each window, as row * width + column. */
template <class S> WICK_FN void pool_argmax(const S* src, u32* dst, u64 numel, const Pool& p) {
  GRID_STRIDE(i, numel) {
    const S* plane = src + i / (u64)(p.h_out * p.w_out) * (u64)(p.h * p.w);
    const Window v = window_of(p, i);
    i64 best = v.y0 * p.w + v.z0;
    for (i64 y = v.y0; y < v.y1; y++)
      for (i64 z = v.z0; z < v.z1; z++) {
        const compute_t<S> x = to_compute(plane[y * p.w + z]), b = to_compute(plane[best]);
        if (x != x ? nan_wins<S> && b == b : b != b ? !nan_wins<S> : x > b) best = y * p.w + z;
      }
    dst[i] = (u32)best;
  }
}
#define POOL_ARGMAX(NAME, S) \
  KERNEL(256) NAME(const S* src, u32* dst, const u64 numel, const Pool p) { pool_argmax(src, dst, numel, p); }

/** A convolution's shapes: channels count within a group, strides are in elements, the result is contiguous. */
struct Conv {
  i32 batch, groups, channels, outputs;  // channels read and results made by each group
  i32 h_k, w_k, h_step, w_step, h_pad, w_pad, h_gap, w_gap;
  i64 h, w, h_out, w_out;
  i64 x[4], kernel[4];
};
// Tiles are for images and results of fewer than 2^31 pixels: 32 bits count them, divisions of 64 would be most of the code.
/**
 * One k of the products: a channel and a place in the kernel. Where it lies from a pixel's first place in the image (and, where a transposed
 * convolution takes strides, what a pixel must leave over), and what it adds to offsets into image and kernel.
 */
struct Tap {
  i64 x, w;
  i32 y, z, over_y, over_z;
};
template <bool TRANSPOSED> WICK_FN Tap tap_of(const Conv& s, i64 at, bool inside) {
  if (!inside) {
    Tap none = {0, 0, Limits<i32>::lowest(), 0, 0, 0};  // above every image
    return none;
  }
  const u32 k = (u32)at, area = (u32)(s.h_k * s.w_k), c = k / area, p = (k - c * area) / (u32)s.w_k, q = k - c * area - p * (u32)s.w_k;
  Tap t = {0, (i64)c * s.kernel[TRANSPOSED ? 0 : 1] + p * s.kernel[2] + q * s.kernel[3], (i32)p * s.h_gap, (i32)q * s.w_gap, 0, 0};
  if constexpr (TRANSPOSED) {
    const i32 y = t.y / s.h_step, z = t.z / s.w_step;
    t.over_y = t.y - y * s.h_step;
    t.over_z = t.z - z * s.w_step;
    t.y = -y;
    t.z = -z;
  }
  t.x = c * s.x[1] + t.y * s.x[2] + t.z * s.x[3];
  return t;
}
/** The image as a matrix: row n is a result pixel, k a channel and kernel position. A thread keeps to one pixel. */
template <bool TRANSPOSED, class S> struct PatchLoad {
  const Conv& s;
  Tap* taps;  // of two tiles, in turns
  const S* from;
  i32 y, z, over_y, over_z;
  u32 h, w;
  static constexpr bool k_fast = false;
  static constexpr int LEAD = 1;
  WICK_MEMBER PatchLoad(const S* src, const Conv& conv, Tap* shared, i64 group, i64 pixels, i64 n) : s(conv), taps(shared) {
    const bool inside = n < pixels;
    const u32 at = inside ? (u32)n : 0, width = (u32)s.w_out, plane = (u32)s.h_out * width, b = at / plane, pixel = at - b * plane;
    const i32 oy = (i32)(pixel / width), ox = (i32)pixel - oy * (i32)width;
    if constexpr (TRANSPOSED) {
      y = (oy + s.h_pad) / s.h_step;
      z = (ox + s.w_pad) / s.w_step;
      over_y = oy + s.h_pad - y * s.h_step;
      over_z = ox + s.w_pad - z * s.w_step;
    } else {
      y = oy * s.h_step - s.h_pad;
      z = ox * s.w_step - s.w_pad;
      over_y = over_z = 0;
    }
    h = inside ? (u32)s.h : 0;
    w = (u32)s.w;
    from = src + (i64)b * s.x[0] + group * s.channels * s.x[1] + y * s.x[2] + z * s.x[3];
  }
  template <class P> WICK_MEMBER void start(const P&, i64) const {}
  template <int K> WICK_MEMBER void prepare(i64 k0, i64 left, int turn) const {
    if (threadIdx.x < K) taps[turn * K + threadIdx.x] = tap_of<TRANSPOSED>(s, k0 + threadIdx.x, (i64)threadIdx.x < left);
  }
  template <class P> WICK_MEMBER void fetch(const P& share, S (&to)[P::EACH], i64, int turn) const {
    const Tap* tap = taps + turn * P::DEPTH + share.k;
#pragma unroll
    for (int e = 0; e < P::EACH; e++) {
      const Tap& t = tap[e * share.k_step];
      bool in = (u32)(y + t.y) < h && (u32)(z + t.z) < w;
      if constexpr (TRANSPOSED) in = in && t.over_y == over_y && t.over_z == over_z;
      to[e] = load_if(in, from + t.x);
    }
  }
};
/** The kernel as a matrix: row m is an output channel of the group. */
template <bool TRANSPOSED, class S> struct KernelLoad {
  const S* from;  // the kernel, then this thread's first channel
  const Conv& s;
  const Tap* taps;
  i64 group, first;
  int inside;
  static constexpr bool k_fast = !TRANSPOSED;
  template <class P> WICK_MEMBER void start(const P& share, i64) {
    const i64 m = first + share.row;
    from += TRANSPOSED ? group * s.channels * s.kernel[0] + m * s.kernel[1] : (group * s.outputs + m) * s.kernel[0];
    inside = share.inside_rows(s.outputs - first);
  }
  template <class P> WICK_MEMBER void fetch(const P& share, S (&to)[P::EACH], i64 left, int turn) const {
    const int some = share.inside(inside, left);
    const Tap* tap = taps + turn * P::DEPTH + share.k;
    const i64 step = share.row_step * s.kernel[0];  // 0 where transposed: there each element has its tap
    const S* at = from;
#pragma unroll
    for (int e = 0; e < P::EACH; e++) {
      to[e] = load_if(e < some, at + tap[e * share.k_step].w);
      at += step;
    }
  }
};
template <class S> struct PixelStore {
  S* dst;
  const S* bias;
  const Conv& s;
  i64 group, pixels;
  template <int> WICK_MEMBER S* columns(i64 n) const {
    const u32 plane = (u32)s.h_out * (u32)s.w_out, b = (u32)n / plane;
    return n >= pixels ? nullptr : dst + ((i64)b * s.groups + group) * s.outputs * plane + ((u32)n - b * plane);
  }
  template <int> WICK_MEMBER void put(S* to, i64 m, const product_t<S>* sum) const {
    if (!to || m >= s.outputs) return;
    to[m * (s.h_out * s.w_out)] = from_compute<S>(bias ? *sum + wide(bias[group * s.outputs + m]) : *sum);
  }
};
#define CONV_TILES(NAME, S, HOW, TRANSPOSED, TILE, K, THREADS)                                                           \
  KERNEL(THREADS) NAME(const S* src, const S* kernel, const S* bias, S* dst, const Conv s) {                             \
    __shared__ Tap taps[2 * K];                                                                                          \
    const i64 pixels = s.batch * s.h_out * s.w_out, group = blockIdx.y, ks = (i64)s.channels * s.h_k * s.w_k;            \
    const Tile tile = tile_of(blockIdx.x, (s.outputs + TILE - 1) / TILE, (pixels + TILE - 1) / TILE);                    \
    const KernelLoad<TRANSPOSED, S> a = {kernel, s, taps, group, tile.m * TILE, 0};                                      \
    const PatchLoad<TRANSPOSED, S> b(src, s, taps, group, pixels, tile.n * TILE + threadIdx.x % TILE);                   \
    const PixelStore<S> to = {dst, bias, s, group, pixels};                                                              \
    HOW<S>(a, b, to, tile.m * TILE, tile.n * TILE, 0, ks);                                                               \
  }
#define CONV_FMA(NAME, S, TRANSPOSED) CONV_TILES(NAME, S, tile_fma, TRANSPOSED, fma_tile<S>, FMA_K, 256)
#define CONV_MMA(NAME, S, TRANSPOSED) CONV_TILES(NAME, S, tile_mma, TRANSPOSED, MMA_TILE, MMA_K, MMA_THREADS)

/** A thread an element: what pays when a group has few channels on either side. */
template <bool TRANSPOSED, class S> WICK_FN void conv_direct(const S* src, const S* kernel, const S* bias, S* dst, const Conv& s) {
  const u64 plane = (u64)(s.h_out * s.w_out);
  const u32 made = (u32)s.groups * (u32)s.outputs;  // channels of a result are fewer than 2^31, as the kernel's are
  GRID_STRIDE(i, (u64)s.batch * made * plane) {
    const u64 line = i / plane, b = line / made;
    const u32 channel = (u32)(line - b * made), group = channel / (u32)s.outputs;
    const i64 pixel = (i64)(i - line * plane), oy = pixel / s.w_out, ox = pixel - oy * s.w_out;
    const i64 first = (i64)group * s.channels;
    const S* image = src + (i64)b * s.x[0] + first * s.x[1];
    const S* weights = kernel + (TRANSPOSED ? first * s.kernel[0] + (channel - group * (u32)s.outputs) * s.kernel[1] : channel * s.kernel[0]);
    product_t<S> sum = bias ? wide(bias[channel]) : (product_t<S>)0;
    for (i32 p = 0; p < s.h_k; p++) {
      const i64 y = TRANSPOSED ? transposed_source(oy, p, s.h_step, s.h_pad, s.h_gap, s.h) : oy * s.h_step + (i64)p * s.h_gap - s.h_pad;
      if (y < 0 || y >= s.h) continue;
      for (i32 q = 0; q < s.w_k; q++) {
        const i64 z = TRANSPOSED ? transposed_source(ox, q, s.w_step, s.w_pad, s.w_gap, s.w) : ox * s.w_step + (i64)q * s.w_gap - s.w_pad;
        if (z < 0 || z >= s.w) continue;
        const S* from = image + y * s.x[2] + z * s.x[3];
        const S* by = weights + p * s.kernel[2] + q * s.kernel[3];
        const i64 step = TRANSPOSED ? s.kernel[0] : s.kernel[1];
        UNROLL(4, 2)
        for (i32 c = 0; c < s.channels; c++) sum = fmag(wide(from[c * s.x[1]]), wide(by[c * step]), sum);
      }
    }
    dst[i] = from_compute<S>(sum);
  }
}
#define CONV_DIRECT(NAME, S, TRANSPOSED) \
  KERNEL(256) NAME(const S* src, const S* kernel, const S* bias, S* dst, const Conv s) { conv_direct<TRANSPOSED>(src, kernel, bias, dst, s); }

// ---- symbols ----

#define FOR_CONV(M, STEM, ...)              \
  FOR_REALS(M, STEM, ##__VA_ARGS__)         \
  M(STEM##_u8, u8, ##__VA_ARGS__)           \
  M(STEM##_u32, u32, ##__VA_ARGS__)
FOR_CONV(CONV1D, conv1d)
FOR_CONV(CONV2D, conv2d)
FOR_CONV(CONV_TRANSPOSE1D, conv_transpose1d)
FOR_CONV(CONV_TRANSPOSE2D, conv_transpose2d)
FOR_CONV(IM2COL, im2col)
FOR_CONV(IM2COL1D, im2col1d)
FOR_CONV(COL2IM1D, col2im1d)
FOR_CONV(CANDLE_POOL, avg_pool2d, true)
FOR_CONV(CANDLE_POOL, max_pool2d, false)
FOR_CONV(UPSAMPLE_NEAREST2D, upsample_nearest2d)
FOR_CONV(UPSAMPLE_NEAREST1D, upsample_nearest1d)
FOR_CONV(UPSAMPLE_BILINEAR2D, upsample_bilinear2d)
FOR_REALS(BILINEAR_GRAD, bilinear_grad)
FOR_CONV(POOL_AVG, pool_avg)
FOR_CONV(POOL_MAX, pool_max)
FOR_CONV(POOL_ARGMAX, pool_argmax)
FOR_CONV(CONV_FMA, conv_fma, false)
FOR_CONV(CONV_FMA, conv_transpose_fma, true)
FOR_CONV(CONV_DIRECT, conv_direct, false)
FOR_CONV(CONV_DIRECT, conv_transpose_direct, true)
CONV_MMA(conv_mma_f16, half, false)
CONV_MMA(conv_mma_bf16, bfloat, false)
CONV_MMA(conv_transpose_mma_f16, half, true)
CONV_MMA(conv_transpose_mma_bf16, bfloat, true)

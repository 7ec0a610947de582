// Candle's conv.cu symbol for symbol, but for its resizing, which the backend launches (kernels/resample.hip). Ours:
// conv.hip, pool.hip.
//
// A thread an element, any grid; info holds dims then strides of each operand; w is dimension 2 and h dimension 3,
// except in im2col, which says h for 2: conv1d conv2d conv_transpose1d conv_transpose2d im2col im2col1d col2im1d
// avg_pool2d max_pool2d. Dilation multiplies the kernel position alone, averages divide in the dtype's own precision.
#include "conv.h"
#include "pool.h"

template <class S>
WICK_FN void candle_conv1d(i64 stride, i64 padding, i64 dilation, const u64* info, const S* src, const S* kernel,
                           S* dst) {
  const u64 *x = info, *xs = info + 3, *k = info + 6, *ks = info + 9;
  const i64 length = (i64)x[2], l_out = (length + 2 * padding - dilation * ((i64)k[2] - 1) - 1) / stride + 1;
  GRID_STRIDE(i, x[0] * k[0] * (u64)l_out) {
    const i64 l = (i64)(i % (u64)l_out);
    const u64 o = i / (u64)l_out % k[0], b = i / (u64)l_out / k[0];
    product_t<S> sum = 0;
    for (u64 c = 0; c < x[1]; c++)
      for (u64 j = 0; j < k[2]; j++) {
        const i64 at = l * stride + (i64)j * dilation - padding;
        if (at >= 0 && at < length)
          sum = fmag(wide(src[b * xs[0] + c * xs[1] + (u64)at * xs[2]]),
                     wide(kernel[o * ks[0] + c * ks[1] + j * ks[2]]), sum);
      }
    dst[i] = from_compute<S>(sum);
  }
}

template <class S>
WICK_FN void candle_conv2d(u64 w_out, u64 h_out, i64 stride, i64 padding, i64 dilation, const u64* info, const S* src,
                           const S* kernel, S* dst) {
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

template <class S>
WICK_FN void candle_conv_transpose1d(u64 l_out, i64 stride, i64 padding, i64 dilation, const u64* info, const S* src,
                                     const S* kernel, S* dst) {
  const u64 *x = info, *xs = info + 3, *k = info + 6, *ks = info + 9;
  GRID_STRIDE(i, x[0] * k[1] * l_out) {
    const u64 o = i / l_out % k[1], b = i / l_out / k[1];
    product_t<S> sum = 0;
    for (u64 j = 0; j < k[2]; j++) {
      const i64 at = transposed_source((i64)(i % l_out), (i64)j, stride, padding, dilation, (i64)x[2]);
      if (at < 0) continue;
      for (u64 c = 0; c < x[1]; c++)
        sum = fmag(wide(src[b * xs[0] + c * xs[1] + (u64)at * xs[2]]), wide(kernel[c * ks[0] + o * ks[1] + j * ks[2]]),
                   sum);
    }
    dst[i] = from_compute<S>(sum);
  }
}
template <class S>
WICK_FN void candle_conv_transpose2d(u64 w_out, u64 h_out, i64 stride, i64 padding, i64 dilation, const u64* info,
                                     const S* src, const S* kernel, S* dst) {
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

/** dst is (batch, h_out, w_out, channels, h_k, w_k); 1-D is height 1. */
template <class S>
WICK_FN void candle_im2col(u64 numel, u64 h_out, u64 w_out, u64 h_k, u64 w_k, i64 stride, i64 padding, i64 dilation,
                           u64 channels, i64 height, i64 width, u64 sb, u64 sc, u64 sh, u64 sw, i64 stride_h,
                           i64 padding_h, i64 dilation_h, const S* src, S* dst) {
  GRID_STRIDE(i, numel) {
    const u64 q = i % w_k, p = i / w_k % h_k, c = i / w_k / h_k % channels, pixel = i / w_k / h_k / channels;
    const i64 y = (i64)(pixel / w_out % h_out) * stride_h + (i64)p * dilation_h - padding_h;
    const i64 z = (i64)(pixel % w_out) * stride + (i64)q * dilation - padding;
    const bool inside = y >= 0 && y < height && z >= 0 && z < width;
    dst[i] = inside ? src[pixel / w_out / h_out * sb + c * sc + (u64)y * sh + (u64)z * sw]
                    : from_compute<S>((compute_t<S>)0);
  }
}
template <class S>
WICK_FN void candle_im2col2d(u64 numel, u64 h_out, u64 w_out, u64 h_k, u64 w_k, i64 stride, i64 padding, i64 dilation,
                             const u64* info, const S* src, S* dst) {
  candle_im2col(numel, h_out, w_out, h_k, w_k, stride, padding, dilation, info[1], (i64)info[2], (i64)info[3], info[4],
                info[5], info[6], info[7], stride, padding, dilation, src, dst);
}
template <class S>
WICK_FN void candle_im2col1d(u64 numel, u64 l_out, u64 l_k, i64 stride, i64 padding, i64 dilation, const u64* info,
                             const S* src, S* dst) {
  candle_im2col(numel, 1, l_out, 1, l_k, stride, padding, dilation, info[1], 1, (i64)info[2], info[3], info[4], 0,
                info[5], 1, 0, 1, src, dst);
}

/** src is (batch, l_in, c_out, k_size); each result element adds up the products that fall on it. */
template <class S>
WICK_FN void candle_col2im1d(u64 numel, u64 l_out, u64 l_in, u64 c_out, u64 k_size, u64 stride, const S* src, S* dst) {
  GRID_STRIDE(i, numel) {
    const u64 l = i % l_out, c = i / l_out % c_out, b = i / l_out / c_out;
    product_t<S> sum = 0;
    for (u64 j = l % stride; j < k_size && j <= l; j += stride) {
      const u64 at = (l - j) / stride;
      if (at < l_in) sum += wide(src[((b * l_in + at) * c_out + c) * k_size + j]);
    }
    dst[i] = from_compute<S>(sum);
  }
}

template <bool AVERAGE, class S>
WICK_FN void candle_pool(u64 w_k, u64 h_k, u64 w_stride, u64 h_stride, const u64* info, const S* src, S* dst) {
  const u64 *x = info, *xs = info + 4, w_out = (x[2] - w_k) / w_stride + 1, h_out = (x[3] - h_k) / h_stride + 1;
  GRID_STRIDE(i, x[0] * x[1] * w_out * h_out) {
    const u64 h = i % h_out * h_stride, w = i / h_out % w_out * w_stride, plane = i / h_out / w_out;
    const S* from = src + plane / x[1] * xs[0] + plane % x[1] * xs[1];
    const Window v = {(i64)w, (i64)(w + w_k), (i64)h, (i64)(h + h_k)};
    dst[i] = AVERAGE ? average(from, xs[2], xs[3], v, (i64)(w_k * h_k)) : largest(from, xs[2], xs[3], v);
  }
}

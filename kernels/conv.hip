// Convolutions of any groups and strides as implicit matrix products. Kernels and launches: src/backends/gpu/conv.ts.
//
// Conv says the shapes; 1-D is height 1; results are contiguous.
//   conv_tiles    grid (tiles of channels x tiles of pixels, groups), block as in gemm.hip
//   conv_direct   depthwise and other narrow groups: a thread an element, grid-stride
#include "conv.h"

/** A convolution's shapes: channels count within a group, strides are in elements, the result is contiguous. */
struct Conv {
  i32 batch, groups, channels, outputs;  // channels read and results made by each group
  i32 h_k, w_k, h_step, w_step, h_pad, w_pad, h_gap, w_gap;
  i64 h, w, h_out, w_out;
  i64 x[4], kernel[4];
};
// Tiles are for images and results of fewer than 2^31 pixels: 32 bits count them, divisions of 64 would be most of the
// code.
/**
 * One k of the products: a channel and a place in the kernel. Where it lies from a pixel's first place in the image
 * (and, where a transposed convolution takes strides, what a pixel must leave over), and what it adds to offsets into
 * image and kernel.
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
  const u32 k = (u32)at, area = (u32)(s.h_k * s.w_k), c = k / area, p = (k - c * area) / (u32)s.w_k,
            q = k - c * area - p * (u32)s.w_k;
  Tap t = {0,
           (i64)c * s.kernel[TRANSPOSED ? 0 : 1] + p * s.kernel[2] + q * s.kernel[3],
           (i32)p * s.h_gap,
           (i32)q * s.w_gap,
           0,
           0};
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
  WICK_MEMBER PatchLoad(const S* src, const Conv& conv, Tap* shared, i64 group, i64 pixels, i64 n)
      : s(conv), taps(shared) {
    const bool inside = n < pixels;
    const u32 at = inside ? (u32)n : 0, width = (u32)s.w_out, plane = (u32)s.h_out * width, b = at / plane,
              pixel = at - b * plane;
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
    if (threadIdx.x < K)
      taps[turn * K + threadIdx.x] = tap_of<TRANSPOSED>(s, k0 + threadIdx.x, (i64)threadIdx.x < left);
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
/** An implicit matrix product: through the matrix units, or by multiplications of every dtype. */
template <bool MATRIX, bool TRANSPOSED, class S>
WICK_FN void conv_tiles(const S* src, const S* kernel, const S* bias, S* dst, const Conv& s) {
  constexpr int TILE = MATRIX ? MMA_TILE : fma_tile<S>, K = MATRIX ? MMA_K : FMA_K;
  __shared__ Tap taps[2 * K];
  const i64 pixels = s.batch * s.h_out * s.w_out, group = blockIdx.y, ks = (i64)s.channels * s.h_k * s.w_k;
  const Tile tile = tile_of(blockIdx.x, (s.outputs + TILE - 1) / TILE, (pixels + TILE - 1) / TILE);
  const KernelLoad<TRANSPOSED, S> a = {kernel, s, taps, group, tile.m * TILE, 0};
  const PatchLoad<TRANSPOSED, S> b(src, s, taps, group, pixels, tile.n * TILE + threadIdx.x % TILE);
  const PixelStore<S> to = {dst, bias, s, group, pixels};
  if constexpr (MATRIX) tile_mma<S>(a, b, to, tile.m * TILE, tile.n * TILE, 0, ks);
  else tile_fma<S>(a, b, to, tile.m * TILE, tile.n * TILE, 0, ks);
}

/** A thread an element: what pays when a group has few channels on either side. */
template <bool TRANSPOSED, class S>
WICK_FN void conv_direct(const S* src, const S* kernel, const S* bias, S* dst, const Conv& s) {
  const u64 plane = (u64)(s.h_out * s.w_out);
  const u32 made = (u32)s.groups * (u32)s.outputs;  // channels of a result are fewer than 2^31, as the kernel's are
  GRID_STRIDE(i, (u64)s.batch * made * plane) {
    const u64 line = i / plane, b = line / made;
    const u32 channel = (u32)(line - b * made), group = channel / (u32)s.outputs;
    const i64 pixel = (i64)(i - line * plane), oy = pixel / s.w_out, ox = pixel - oy * s.w_out;
    const i64 first = (i64)group * s.channels;
    const S* image = src + (i64)b * s.x[0] + first * s.x[1];
    const S* weights = kernel + (TRANSPOSED ? first * s.kernel[0] + (channel - group * (u32)s.outputs) * s.kernel[1]
                                            : channel * s.kernel[0]);
    product_t<S> sum = bias ? wide(bias[channel]) : (product_t<S>)0;
    for (i32 p = 0; p < s.h_k; p++) {
      const i64 y = TRANSPOSED ? transposed_source(oy, p, s.h_step, s.h_pad, s.h_gap, s.h)
                               : oy * s.h_step + (i64)p * s.h_gap - s.h_pad;
      if (y < 0 || y >= s.h) continue;
      for (i32 q = 0; q < s.w_k; q++) {
        const i64 z = TRANSPOSED ? transposed_source(ox, q, s.w_step, s.w_pad, s.w_gap, s.w)
                                 : ox * s.w_step + (i64)q * s.w_gap - s.w_pad;
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

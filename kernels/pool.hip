// Windows over contiguous planes, with padding: a thread makes one element of some planes, whose windows lie alike.
// Launches: src/backends/gpu/pool.ts.
//   pool_avg, pool_max   a window's mean, its largest element
//   pool_argmax          the first largest of each window, as row * width + column
//   pool_spread          what flows back to each element: from the windows whose largest it is, in their order
//   pool_back            the same from the planes themselves, a plane a block
#include "pool.h"
#include "quotient.h"
#include "settle.h"

/** Pooling with padding: sizes of a plane, its result, the window, its steps and the padding. */
struct Pool {
  i64 h, w, h_out, w_out, h_k, w_k, h_step, w_step, h_pad, w_pad;
};
/** The same in the integers that count a plane's elements: i32 serves all but the largest. */
template <class I> struct Sizes {
  I h, w, h_out, w_out, h_k, w_k, h_step, w_step, h_pad, w_pad;
  WICK_MEMBER Sizes(const Pool& p)
      : h((I)p.h),
        w((I)p.w),
        h_out((I)p.h_out),
        w_out((I)p.w_out),
        h_k((I)p.h_k),
        w_k((I)p.w_k),
        h_step((I)p.h_step),
        w_step((I)p.w_step),
        h_pad((I)p.h_pad),
        w_pad((I)p.w_pad) {}
};
/** i / d of what is not below 0. */
WICK_FN i32 whole_part(i32 i, i32 d) { return (i32)((u32)i / (u32)d); }
WICK_FN i64 whole_part(i64 i, i64 d) { return (i64)quotient((u64)i, (u64)d); }
constexpr u32 POOL_PLANES = 4;
/** A place in `here` planes from `first` on. */
template <class I> struct PoolPlace {
  u64 first;
  I pixel, y, z;
  u32 here;
  WICK_MEMBER PoolPlace(u64 i, u64 planes, I h, I w) {
    const u64 pixels = (u64)h * (u64)w, some = quotient(i, pixels);
    first = some * POOL_PLANES;
    pixel = (I)(i - some * pixels);
    y = whole_part(pixel, w);
    z = pixel - y * w;
    here = planes - first < POOL_PLANES ? (u32)(planes - first) : POOL_PLANES;
  }
};
/** A window's rows [y0, y1) and columns [z0, z1) inside a plane. */
template <class I> struct Inside { I y0, y1, z0, z1; };
WICK_FN u64 pool_groups(u64 planes) { return (planes + POOL_PLANES - 1) / POOL_PLANES; }
template <class I> WICK_FN Inside<I> window_of(const Sizes<I>& p, const PoolPlace<I>& at) {
  const I y = at.y * p.h_step - p.h_pad, z = at.z * p.w_step - p.w_pad;
  Inside<I> v = {y < 0 ? 0 : y, y + p.h_k < p.h ? y + p.h_k : p.h, z < 0 ? 0 : z, z + p.w_k < p.w ? z + p.w_k : p.w};
  return v;
}
/** Calls f(k, element, place) for each element of the windows, all planes beside each other. */
template <class S, class I, class F>
WICK_FN void each_element(const S* src, const Sizes<I>& p, const PoolPlace<I>& at, const Inside<I>& v, F f) {
  const u64 plane = (u64)p.h * (u64)p.w;
  const S* from[POOL_PLANES];
#pragma unroll
  for (u32 k = 0; k < POOL_PLANES; k++) from[k] = src + (at.first + (k < at.here ? k : 0)) * plane;
  ROLLED
  for (I y = v.y0; y < v.y1; y++) {
    UNROLL(1, 3)
    for (I z = v.z0; z < v.z1; z++) {
      const I place = y * p.w + z;
      compute_t<S> x[POOL_PLANES];
#pragma unroll
      for (u32 k = 0; k < POOL_PLANES; k++) x[k] = to_compute(from[k][place]);
#pragma unroll
      for (u32 k = 0; k < POOL_PLANES; k++) f(k, x[k], place);
    }
  }
}
template <class I, class S> WICK_FN void pool_avg(const S* src, S* dst, u64 planes, const Pool& shape) {
  const Sizes<I> p(shape);
  typedef typename AverageOf<S>::type A;
  const u64 made = (u64)p.h_out * (u64)p.w_out;
  GRID_STRIDE(i, pool_groups(planes) * made) {
    const PoolPlace<I> at(i, planes, p.h_out, p.w_out);
    A sum[POOL_PLANES] = {};
    each_element(src, p, at, window_of(p, at), [&](u32 k, compute_t<S> x, I) { sum[k] += (A)x; });
#pragma unroll
    for (u32 k = 0; k < POOL_PLANES; k++)
      if (k < at.here) dst[(at.first + k) * made + at.pixel] = from_compute<S>(sum[k] / (A)((i64)p.h_k * p.w_k));
  }
}
template <class I, class S> WICK_FN void pool_max(const S* src, S* dst, u64 planes, const Pool& shape) {
  const Sizes<I> p(shape);
  const u64 made = (u64)p.h_out * (u64)p.w_out;
  GRID_STRIDE(i, pool_groups(planes) * made) {
    const PoolPlace<I> at(i, planes, p.h_out, p.w_out);
    compute_t<S> top[POOL_PLANES];
#pragma unroll
    for (u32 k = 0; k < POOL_PLANES; k++) top[k] = Max<S>::identity();
    each_element(src, p, at, window_of(p, at), [&](u32 k, compute_t<S> x, I) { top[k] = Max<S>::join(top[k], x); });
#pragma unroll
    for (u32 k = 0; k < POOL_PLANES; k++)
      if (k < at.here) dst[(at.first + k) * made + at.pixel] = from_compute<S>(top[k]);
  }
}
template <class I, class S> WICK_FN void pool_argmax(const S* src, u32* dst, u64 planes, const Pool& shape) {
  const Sizes<I> p(shape);
  const u64 made = (u64)p.h_out * (u64)p.w_out;
  GRID_STRIDE(i, pool_groups(planes) * made) {
    const PoolPlace<I> at(i, planes, p.h_out, p.w_out);
    const Inside<I> v = window_of(p, at);
    const I begin = v.y0 * p.w + v.z0;
    compute_t<S> top[POOL_PLANES] = {};
    I best[POOL_PLANES];
#pragma unroll
    for (u32 k = 0; k < POOL_PLANES; k++) best[k] = begin;
    each_element(src, p, at, v, [&](u32 k, compute_t<S> x, I place) {
      const compute_t<S> b = top[k];
      if (place == begin || (x != x ? nan_wins<S> && b == b : b != b ? !nan_wins<S> : x > b))
        top[k] = x, best[k] = place;
    });
#pragma unroll
    for (u32 k = 0; k < POOL_PLANES; k++)
      if (k < at.here) dst[(at.first + k) * made + at.pixel] = (u32)best[k];
  }
}
/** The windows along one axis that reach place i: first and behind the last. */
template <class I> WICK_FN I first_window(I i, I window, I step) {
  return i < window ? 0 : whole_part(i - window, step) + 1;
}
template <class I> WICK_FN I windows_end(I i, I step, I windows) {
  const I end = whole_part(i, step) + 1;
  return end < windows ? end : windows;
}
template <class I, class S>
WICK_FN void pool_spread(const u32* places, const S* grad, S* dst, u64 planes, const Pool& shape) {
  const Sizes<I> p(shape);
  const u64 plane = (u64)p.h * (u64)p.w, made = (u64)p.h_out * (u64)p.w_out;
  GRID_STRIDE(i, pool_groups(planes) * plane) {
    const PoolPlace<I> at(i, planes, p.h, p.w);
    const I y0 = first_window(at.y + p.h_pad, p.h_k, p.h_step), y1 = windows_end(at.y + p.h_pad, p.h_step, p.h_out),
            z0 = first_window(at.z + p.w_pad, p.w_k, p.w_step), z1 = windows_end(at.z + p.w_pad, p.w_step, p.w_out);
    compute_t<S> sum[POOL_PLANES] = {};
    const u32* their[POOL_PLANES];
    const S* from[POOL_PLANES];
#pragma unroll
    for (u32 k = 0; k < POOL_PLANES; k++) {
      const u64 begin = (at.first + (k < at.here ? k : 0)) * made;
      their[k] = places + begin, from[k] = grad + begin;
    }
    ROLLED
    for (I y = y0; y < y1; y++) {
      UNROLL(1, 2)
      for (I z = z0; z < z1; z++) {
        const I window = y * p.w_out + z;
        u32 place[POOL_PLANES];
        compute_t<S> g[POOL_PLANES];
#pragma unroll
        for (u32 k = 0; k < POOL_PLANES; k++) place[k] = their[k][window], g[k] = to_compute(from[k][window]);
#pragma unroll
        for (u32 k = 0; k < POOL_PLANES; k++)
          if (place[k] == (u32)at.pixel) sum[k] += g[k];
      }
    }
#pragma unroll
    for (u32 k = 0; k < POOL_PLANES; k++)
      if (k < at.here) dst[(at.first + k) * plane + at.pixel] = from_compute<S>(sum[k]);
  }
}
/** The number of windows that stand between one and the next that shares no element with it. */
template <class I> WICK_FN I apart(I window, I step) { return whole_part(window - 1, step) + 1; }
/**
 * The same from the planes themselves, where a block can hold one and what flows back to it: windows that share no
 * element go at once, so that sums have one order.
 */
template <class S> WICK_FN void pool_back(const S* src, const S* grad, S* dst, u64 planes, const Pool& shape) {
  typedef compute_t<S> A;
  typedef i32 I;
  const Sizes<I> p(shape);
  DYNAMIC_SHARED(A, sums);
  const I area = p.h * p.w;
  S* plane = (S*)(sums + area);
  const I down = apart(p.h_k, p.h_step), across = apart(p.w_k, p.w_step);
  for (u64 at = blockIdx.x; at < planes; at += gridDim.x) {
    const S* from = src + at * (u64)area;
    const S* by = grad + at * (u64)p.h_out * (u64)p.w_out;
    __syncthreads();
    UNROLL(2, 4)
    for (I i = (I)threadIdx.x; i < area; i += (I)blockDim.x) plane[i] = from[i], sums[i] = 0;
    __syncthreads();
    ROLLED
    for (I turn = 0; turn < down * across; turn++) {
      const I row = whole_part(turn, across), column = turn - row * across;
      const I rows = whole_part(p.h_out - row + down - 1, down),
              columns = whole_part(p.w_out - column + across - 1, across);
      ROLLED
      for (I i = (I)threadIdx.x; i < rows * columns; i += (I)blockDim.x) {
        const I k = whole_part(i, columns), y = row + k * down, z = column + (i - k * columns) * across;
        const I top = y * p.h_step - p.h_pad, left = z * p.w_step - p.w_pad;
        const I y0 = top < 0 ? 0 : top, y1 = top + p.h_k < p.h ? top + p.h_k : p.h, z0 = left < 0 ? 0 : left,
                z1 = left + p.w_k < p.w ? left + p.w_k : p.w;
        I best = y0 * p.w + z0;
        A b = to_compute(plane[best]);
        ROLLED
        for (I v = y0; v < y1; v++) {
          UNROLL(1, 3)
          for (I u = z0; u < z1; u++) {
            const A x = to_compute(plane[v * p.w + u]);
            if (x != x ? nan_wins<S> && b == b : b != b ? !nan_wins<S> : x > b) b = x, best = v * p.w + u;
          }
        }
        sums[best] += to_compute(by[y * p.w_out + z]);
      }
      __syncthreads();
    }
    S* to = dst + at * (u64)area;
    UNROLL(2, 4)
    for (I i = (I)threadIdx.x; i < area; i += (I)blockDim.x) to[i] = from_compute<S>(sums[i]);
  }
}

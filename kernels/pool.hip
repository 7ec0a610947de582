// Windows over contiguous planes, with padding: a thread makes one element of some planes, whose windows lie alike.
// Launches: src/backends/gpu/pool.ts.
//   pool_avg, pool_max   a window's mean, its largest element
//   pool_argmax          the first largest of each window, as row * width + column
//   pool_spread          what flows back to each element: from the windows whose largest it is, in their order
#include "pool.h"
#include "quotient.h"
#include "settle.h"

/** Pooling with padding: sizes of a plane, its result, the window, its steps and the padding. */
struct Pool {
  i64 h, w, h_out, w_out, h_k, w_k, h_step, w_step, h_pad, w_pad;
};
constexpr u32 POOL_PLANES = 4;
/** A place in `here` planes from `first` on. */
struct PoolPlace {
  u64 first, pixel;
  i64 y, z;
  u32 here;
  WICK_MEMBER PoolPlace(u64 i, u64 planes, i64 h, i64 w) {
    const u64 pixels = (u64)(h * w), some = quotient(i, pixels);
    first = some * POOL_PLANES;
    pixel = i - some * pixels;
    y = (i64)quotient(pixel, (u64)w);
    z = (i64)pixel - y * w;
    here = planes - first < POOL_PLANES ? (u32)(planes - first) : POOL_PLANES;
  }
};
WICK_FN u64 pool_groups(u64 planes) { return (planes + POOL_PLANES - 1) / POOL_PLANES; }
WICK_FN Window window_of(const Pool& p, const PoolPlace& at) {
  const i64 y = at.y * p.h_step - p.h_pad, z = at.z * p.w_step - p.w_pad;
  Window v = {y < 0 ? 0 : y, y + p.h_k < p.h ? y + p.h_k : p.h, z < 0 ? 0 : z, z + p.w_k < p.w ? z + p.w_k : p.w};
  return v;
}
/** Calls f(k, element, place) for each element of the windows, all planes beside each other. */
template <class S, class F>
WICK_FN void each_element(const S* src, const Pool& p, const PoolPlace& at, const Window& v, F f) {
  const u64 plane = (u64)(p.h * p.w);
  const S* from = src + at.first * plane;
  ROLLED
  for (i64 y = v.y0; y < v.y1; y++) {
    UNROLL(1, 2)
    for (i64 z = v.z0; z < v.z1; z++) {
      const u64 place = (u64)(y * p.w + z);
      compute_t<S> x[POOL_PLANES];
#pragma unroll
      for (u32 k = 0; k < POOL_PLANES; k++)
        if (k < at.here) x[k] = to_compute(from[k * plane + place]);
#pragma unroll
      for (u32 k = 0; k < POOL_PLANES; k++)
        if (k < at.here) f(k, x[k], (u32)place);
    }
  }
}
template <class S> WICK_FN void pool_avg(const S* src, S* dst, u64 planes, const Pool& p) {
  typedef typename AverageOf<S>::type A;
  const u64 made = (u64)(p.h_out * p.w_out);
  GRID_STRIDE(i, pool_groups(planes) * made) {
    const PoolPlace at(i, planes, p.h_out, p.w_out);
    A sum[POOL_PLANES] = {};
    each_element(src, p, at, window_of(p, at), [&](u32 k, compute_t<S> x, u32) { sum[k] += (A)x; });
#pragma unroll
    for (u32 k = 0; k < POOL_PLANES; k++)
      if (k < at.here) dst[(at.first + k) * made + at.pixel] = from_compute<S>(sum[k] / (A)(p.h_k * p.w_k));
  }
}
template <class S> WICK_FN void pool_max(const S* src, S* dst, u64 planes, const Pool& p) {
  const u64 made = (u64)(p.h_out * p.w_out);
  GRID_STRIDE(i, pool_groups(planes) * made) {
    const PoolPlace at(i, planes, p.h_out, p.w_out);
    compute_t<S> top[POOL_PLANES];
#pragma unroll
    for (u32 k = 0; k < POOL_PLANES; k++) top[k] = Max<S>::identity();
    each_element(src, p, at, window_of(p, at), [&](u32 k, compute_t<S> x, u32) { top[k] = Max<S>::join(top[k], x); });
#pragma unroll
    for (u32 k = 0; k < POOL_PLANES; k++)
      if (k < at.here) dst[(at.first + k) * made + at.pixel] = from_compute<S>(top[k]);
  }
}
template <class S> WICK_FN void pool_argmax(const S* src, u32* dst, u64 planes, const Pool& p) {
  const u64 made = (u64)(p.h_out * p.w_out);
  GRID_STRIDE(i, pool_groups(planes) * made) {
    const PoolPlace at(i, planes, p.h_out, p.w_out);
    const Window v = window_of(p, at);
    const u32 begin = (u32)(v.y0 * p.w + v.z0);
    compute_t<S> top[POOL_PLANES] = {};
    u32 best[POOL_PLANES];
#pragma unroll
    for (u32 k = 0; k < POOL_PLANES; k++) best[k] = begin;
    each_element(src, p, at, v, [&](u32 k, compute_t<S> x, u32 place) {
      const compute_t<S> b = top[k];
      if (place == begin || (x != x ? nan_wins<S> && b == b : b != b ? !nan_wins<S> : x > b))
        top[k] = x, best[k] = place;
    });
#pragma unroll
    for (u32 k = 0; k < POOL_PLANES; k++)
      if (k < at.here) dst[(at.first + k) * made + at.pixel] = best[k];
  }
}
/** The windows along one axis that reach place i: first and behind the last. */
WICK_FN i64 first_window(i64 i, i64 window, i64 step) {
  return i < window ? 0 : (i64)quotient((u64)(i - window), (u64)step) + 1;
}
WICK_FN i64 windows_end(i64 i, i64 step, i64 windows) {
  const i64 end = (i64)quotient((u64)i, (u64)step) + 1;
  return end < windows ? end : windows;
}
template <class S> WICK_FN void pool_spread(const u32* places, const S* grad, S* dst, u64 planes, const Pool& p) {
  const u64 plane = (u64)(p.h * p.w), made = (u64)(p.h_out * p.w_out);
  GRID_STRIDE(i, pool_groups(planes) * plane) {
    const PoolPlace at(i, planes, p.h, p.w);
    const i64 y0 = first_window(at.y + p.h_pad, p.h_k, p.h_step), y1 = windows_end(at.y + p.h_pad, p.h_step, p.h_out),
              z0 = first_window(at.z + p.w_pad, p.w_k, p.w_step), z1 = windows_end(at.z + p.w_pad, p.w_step, p.w_out);
    compute_t<S> sum[POOL_PLANES] = {};
    ROLLED
    for (i64 y = y0; y < y1; y++) {
      UNROLL(1, 2)
      for (i64 z = z0; z < z1; z++) {
        const u64 window = at.first * made + (u64)(y * p.w_out + z);
        u32 place[POOL_PLANES];
        compute_t<S> g[POOL_PLANES];
#pragma unroll
        for (u32 k = 0; k < POOL_PLANES; k++)
          if (k < at.here) place[k] = places[window + k * made], g[k] = to_compute(grad[window + k * made]);
#pragma unroll
        for (u32 k = 0; k < POOL_PLANES; k++)
          if (k < at.here && place[k] == (u32)at.pixel) sum[k] += g[k];
      }
    }
#pragma unroll
    for (u32 k = 0; k < POOL_PLANES; k++)
      if (k < at.here) dst[(at.first + k) * plane + at.pixel] = from_compute<S>(sum[k]);
  }
}

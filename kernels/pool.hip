// Windows over contiguous planes, with padding: a thread an element. Launches: src/backends/gpu/pool.ts.
#include "pool.h"

/** Pooling with padding: sizes of a plane, its result, the window, its steps and the padding. */
struct Pool {
  i64 h, w, h_out, w_out, h_k, w_k, h_step, w_step, h_pad, w_pad;
};
WICK_FN Window window_of(const Pool& p, u64 i) {
  const i64 y = (i64)(i / (u64)p.w_out % (u64)p.h_out) * p.h_step - p.h_pad,
            z = (i64)(i % (u64)p.w_out) * p.w_step - p.w_pad;
  Window v = {y < 0 ? 0 : y, y + p.h_k < p.h ? y + p.h_k : p.h, z < 0 ? 0 : z, z + p.w_k < p.w ? z + p.w_k : p.w};
  return v;
}
template <class S> WICK_FN void pool_avg(const S* src, S* dst, u64 numel, const Pool& p) {
  GRID_STRIDE(i, numel)
  dst[i] = average(src + i / (u64)(p.h_out * p.w_out) * (u64)(p.h * p.w), (u64)p.w, 1, window_of(p, i), p.h_k * p.w_k);
}
template <class S> WICK_FN void pool_max(const S* src, S* dst, u64 numel, const Pool& p) {
  GRID_STRIDE(i, numel)
  dst[i] = largest(src + i / (u64)(p.h_out * p.w_out) * (u64)(p.h * p.w), (u64)p.w, 1, window_of(p, i));
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

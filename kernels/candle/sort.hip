// Candle's sort.cu symbol for symbol; ours (kernels/sort.hip) take rows of any length at once.
//
//   asort_asc_T, asort_desc_T   grid of rows in x or y, any block; dynamic shared memory ncols_pad * 4 bytes up to
//                               ncols_pad 8192, none above
#include "sort-key.h"

template <class S> WICK_FN void asort(const S* x, u32* dst, i64 cols, i64 padded, bool descending) {
  DYNAMIC_SHARED(u32, kept);
  const i64 row = (i64)blockIdx.x + (i64)gridDim.x * blockIdx.y;
  const S* from = x + row * cols;
  u32* order = padded <= 8192 ? kept : dst + row * cols;
  for (i64 i = threadIdx.x; i < cols; i += blockDim.x) order[i] = (u32)i;
  // Every comparison puts the smaller in front, so that places past the end can be thought of as larger than all and
  // never move.
  const auto settle = [&](i64 a, i64 b) {
    if (b >= cols) return;
    const u32 p = order[a], q = order[b];
    const key_t_of<S> kp = sort_key(from[p], descending), kq = sort_key(from[q], descending);
    if (kq < kp || (kq == kp && q < p)) {
      order[a] = q;
      order[b] = p;
    }
  };
  for (i64 k = 2; k <= padded; k *= 2) {
    __syncthreads();
    for (i64 p = threadIdx.x; p < padded / 2; p += blockDim.x) {
      const i64 base = p / (k / 2) * k, at = p % (k / 2);
      settle(base + at, base + k - 1 - at);
    }
    for (i64 j = k / 4; j > 0; j /= 2) {
      __syncthreads();
      for (i64 p = threadIdx.x; p < padded / 2; p += blockDim.x)
        settle(p / j * 2 * j + p % j, p / j * 2 * j + p % j + j);
    }
  }
  __syncthreads();
  if (order == kept)
    for (i64 i = threadIdx.x; i < cols; i += blockDim.x) dst[row * cols + i] = order[i];
}

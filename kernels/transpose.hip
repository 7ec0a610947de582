// Transposed copies: matrices whose columns are contiguous become matrices whose rows are, through tiles in shared memory.
//
// Launch (src/kernels/launch.ts, transposeLaunch): block 256, grid (tiles of rows x tiles of columns, batch).
//   transpose_bB_v, _v1   elements of B bytes; src element (r, c) of batch b at b * src_batch + r + c * src_stride (rows contiguous),
//                         dst at b * dst_batch + r * dst_stride + c; v: 16-byte accesses, where both sides are aligned and rows, cols
//                         and strides are multiples of 16 / B; v1: any
#include "block.h"

/** Tiles of TILE x TILE elements; the padding spreads a column over the banks. */
template <int BYTES> constexpr int transpose_tile = BYTES == 8 ? 32 : 64;

template <class W, int V>
WICK_FN void transpose(const W* src, W* dst, i64 rows, i64 cols, i64 src_stride, i64 dst_stride, i64 src_batch, i64 dst_batch) {
  constexpr int TILE = transpose_tile<sizeof(W)>, PITCH = TILE + (sizeof(W) >= 4 ? 1 : 4 / (int)sizeof(W)), LINE = TILE / V;
  __shared__ W tile[TILE * PITCH];  // [column][row]
  const u32 across = (u32)((rows + TILE - 1) / TILE);  // no more than blocks
  const i64 r0 = (i64)(blockIdx.x % across) * TILE, c0 = (i64)(blockIdx.x / across) * TILE;
  const W* from = src + (i64)blockIdx.y * src_batch;
  W* to = dst + (i64)blockIdx.y * dst_batch;
  from += c0 * src_stride + r0;
  to += r0 * dst_stride + c0;
  // What there is of the tile, in 32 bits: comparisons of 64 would be most of the code.
  const int height = (int)(rows - r0 < TILE ? rows - r0 : TILE), width = (int)(cols - c0 < TILE ? cols - c0 : TILE);
  const int line0 = (int)threadIdx.x / LINE, at = (int)threadIdx.x % LINE * V;
#pragma unroll
  for (int i = 0; i < TILE * LINE / 256; i++) {
    const int line = line0 + 256 / LINE * i;
    if (line < width && at < height) {
      if constexpr (V == 1) tile[line * PITCH + at] = from[line * src_stride + at];
      else {
        const Pack<W> x = load_pack(from + line * src_stride + at);
#pragma unroll
        for (int v = 0; v < V; v++) tile[line * PITCH + at + v] = x.v[v];
      }
    }
  }
  __syncthreads();
#pragma unroll
  for (int i = 0; i < TILE * LINE / 256; i++) {
    const int line = line0 + 256 / LINE * i;
    if (line < height && at < width) {
      if constexpr (V == 1) to[line * dst_stride + at] = tile[at * PITCH + line];
      else {
        Pack<W> x;
#pragma unroll
        for (int v = 0; v < V; v++) x.v[v] = tile[(at + v) * PITCH + line];
        store_pack(to + line * dst_stride + at, x);
      }
    }
  }
}
#define TRANSPOSE(NAME, W, V)                                                                                                      \
  KERNEL(256) NAME(const W* src, W* dst, const i64 rows, const i64 cols, const i64 src_stride, const i64 dst_stride, const i64 src_batch, \
                   const i64 dst_batch) {                                                                                          \
    transpose<W, V>(src, dst, rows, cols, src_stride, dst_stride, src_batch, dst_batch);                                           \
  }

// ---- symbols ----

TRANSPOSE(transpose_b1_v1, u8, 1)
TRANSPOSE(transpose_b2_v1, u16, 1)
TRANSPOSE(transpose_b4_v1, u32, 1)
TRANSPOSE(transpose_b8_v1, u64, 1)
TRANSPOSE(transpose_b1_v, u8, 16)
TRANSPOSE(transpose_b2_v, u16, 8)
TRANSPOSE(transpose_b4_v, u32, 4)
TRANSPOSE(transpose_b8_v, u64, 2)

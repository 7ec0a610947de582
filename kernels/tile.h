// Matrix products over operands that loaders fetch: C(i, j) = sum over k of a(i, k) b(j, k), in tiles a block each.
// GEMM of any strides and implicit convolutions are this with different loaders and stores.
#pragma once
#include "matrix.h"

/** What products of S add up in: integers wrap. */
template <class S> struct ProductOf { typedef float type; };
template <> struct ProductOf<double> { typedef double type; };
template <> struct ProductOf<u8> { typedef u32 type; };
template <> struct ProductOf<u32> { typedef u32 type; };
template <class S> using product_t = typename ProductOf<S>::type;

/** Blocks are numbered so that neighbours share operands in the cache: columns of GROUP tiles, one beside the other. */
struct Tile {
  i64 m, n;
};
WICK_FN Tile tile_of(i64 block, i64 tiles_m, i64 tiles_n) {
  constexpr i64 GROUP = 8;
  const i64 per = GROUP * tiles_n, group = block / per, first = group * GROUP;
  const i64 height = tiles_m - first < GROUP ? tiles_m - first : GROUP, rest = block - group * per;
  Tile t = {first + rest % height, rest / height};
  return t;
}

// ---- plain multiply-adds: 256 threads, a T x T patch each, tiles of 16 T ----

constexpr int FMA_K = 16;
/** 8 x 8 a thread for 32-bit sums, 4 x 4 for doubles. */
template <class S> constexpr int fma_patch = sizeof(product_t<S>) == 8 ? 4 : 8;
template <class S> constexpr int fma_tile = 16 * fma_patch<S>;

/** LA, LB: load(i, k) gives the operand or zero outside; k_fast says along which of the two memory is contiguous. ST: store(i, j, sum). */
template <class S, class LA, class LB, class ST> WICK_FN void tile_fma(const LA& a, const LB& b, const ST& store, i64 m0, i64 n0, i64 k_from, i64 k_to) {
  typedef product_t<S> A;
  constexpr int P = fma_patch<S>, B = fma_tile<S>, EACH = B * FMA_K / 256, Q = B + 4;
  __shared__ __attribute__((aligned(16))) A as[FMA_K][Q], bs[FMA_K][Q];
  const u32 t = threadIdx.x, tx = t % 16, ty = t / 16;
  A ra[EACH], rb[EACH], sum[P][P];
#pragma unroll
  for (int i = 0; i < P; i++)
#pragma unroll
    for (int j = 0; j < P; j++) sum[i][j] = 0;
  const auto row_of = [&](bool k_fast, int e) { return k_fast ? (t + 256 * e) / FMA_K : (t + 256 * e) % B; };
  const auto k_of = [&](bool k_fast, int e) { return k_fast ? (t + 256 * e) % FMA_K : (t + 256 * e) / B; };
  const auto fetch = [&](i64 k0) {
#pragma unroll
    for (int e = 0; e < EACH; e++) {
      const i64 ka = k0 + k_of(a.k_fast, e), kb = k0 + k_of(b.k_fast, e);
      ra[e] = ka < k_to ? (A)a.load(m0 + row_of(a.k_fast, e), ka) : (A)0;
      rb[e] = kb < k_to ? (A)b.load(n0 + row_of(b.k_fast, e), kb) : (A)0;
    }
  };
  fetch(k_from);
  for (i64 k0 = k_from; k0 < k_to; k0 += FMA_K) {
    __syncthreads();
#pragma unroll
    for (int e = 0; e < EACH; e++) {
      as[k_of(a.k_fast, e)][row_of(a.k_fast, e)] = ra[e];
      bs[k_of(b.k_fast, e)][row_of(b.k_fast, e)] = rb[e];
    }
    __syncthreads();
    fetch(k0 + FMA_K);  // in flight while this tile is multiplied
#pragma unroll
    for (int k = 0; k < FMA_K; k++) {
      A x[P], y[P];
#pragma unroll
      for (int i = 0; i < P; i++) {
        x[i] = as[k][i / 4 * 64 + ty * 4 + i % 4];
        y[i] = bs[k][i / 4 * 64 + tx * 4 + i % 4];
      }
#pragma unroll
      for (int i = 0; i < P; i++)
#pragma unroll
        for (int j = 0; j < P; j++) sum[i][j] = fmag(x[i], y[j], sum[i][j]);
    }
  }
#pragma unroll
  for (int i = 0; i < P; i++)
#pragma unroll
    for (int j = 0; j < P; j++) store.store(m0 + i / 4 * 64 + ty * 4 + i % 4, n0 + j / 4 * 64 + tx * 4 + j % 4, sum[i][j]);
}

// ---- matrix units over loaders: 4 waves, 64 x 64 tiles of 32 x 32 a wave ----

constexpr int MMA_TILE = 64, MMA_K = 32;
constexpr int MMA_THREADS = 256 / 64 * WICK_WAVE;

template <class S, class LA, class LB, class ST> WICK_FN void tile_mma(const LA& a, const LB& b, const ST& store, i64 m0, i64 n0, i64 k_from, i64 k_to) {
  constexpr int Q = MMA_K + 8, EACH = MMA_TILE * MMA_K / MMA_THREADS;
  __shared__ __attribute__((aligned(16))) S as[MMA_TILE * Q], bs[MMA_TILE * Q];
  const u32 t = threadIdx.x, wave = wave_id(), wm = wave / 2 * 32, wn = wave % 2 * 32;
  S ra[EACH], rb[EACH];
  Acc sum[2][2] = {};
  const auto row_of = [&](bool k_fast, int e) { return k_fast ? (t + MMA_THREADS * e) / MMA_K : (t + MMA_THREADS * e) % MMA_TILE; };
  const auto k_of = [&](bool k_fast, int e) { return k_fast ? (t + MMA_THREADS * e) % MMA_K : (t + MMA_THREADS * e) / MMA_TILE; };
  const auto fetch = [&](i64 k0) {
#pragma unroll
    for (int e = 0; e < EACH; e++) {
      const i64 ka = k0 + k_of(a.k_fast, e), kb = k0 + k_of(b.k_fast, e);
      ra[e] = ka < k_to ? a.raw(m0 + row_of(a.k_fast, e), ka) : S{0};
      rb[e] = kb < k_to ? b.raw(n0 + row_of(b.k_fast, e), kb) : S{0};
    }
  };
  fetch(k_from);
  for (i64 k0 = k_from; k0 < k_to; k0 += MMA_K) {
    __syncthreads();
#pragma unroll
    for (int e = 0; e < EACH; e++) {
      as[row_of(a.k_fast, e) * Q + k_of(a.k_fast, e)] = ra[e];
      bs[row_of(b.k_fast, e) * Q + k_of(b.k_fast, e)] = rb[e];
    }
    __syncthreads();
    fetch(k0 + MMA_K);
#pragma unroll
    for (int k = 0; k < MMA_K; k += 16) {
      Frag fa[2], fb[2];
#pragma unroll
      for (int i = 0; i < 2; i++) {
        fa[i] = load_frag<true, true>(as + (wm + i * 16) * Q + k, Q);
        fb[i] = load_frag<false, true>(bs + (wn + i * 16) * Q + k, Q);
      }
#pragma unroll
      for (int i = 0; i < 2; i++)
#pragma unroll
        for (int j = 0; j < 2; j++) multiply<S>(sum[i][j], fa[i], fb[j]);
    }
  }
  const u32 lane = lane_id();
#pragma unroll
  for (int i = 0; i < 2; i++)
#pragma unroll
    for (int j = 0; j < 2; j++)
#pragma unroll
      for (int n = 0; n < ACC; n++)
        store.store(m0 + wm + i * 16 + acc_row(lane, n), n0 + wn + j * 16 + acc_col(lane, n), sum[i][j].x[n]);
}

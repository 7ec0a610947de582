// Batch norms and group norms over planes [n, c, space], forward and backward, without turning anything around: sums of
// pieces of planes, which few numbers join, then a pass over all. Launches: src/backends/gpu/plane-norm.ts.
//
// A statistic is of a channel over all samples (groups 0), or of a group of channels of a sample. A block has a piece
// of a plane at a time.
//   plane_stats      mean and squared distances of each piece
//   plane_join       pieces to mean and variance of each statistic, a wave or more each
//   plane_scale      y = (x - mean) / sqrt(variance + eps) * weight + bias
//   plane_slopes     sums of g and of g * xhat of each piece
//   plane_channels   pieces to sums of each channel: gradients of bias and weight
//   plane_means      pieces to means of each statistic, times the weights
//   plane_back       dx
#include "block.h"
#include "quotient.h"
#include "settle.h"

struct PlaneNorm {
  i64 n, c, groups, space, piece, pieces;  // elements of a piece, pieces of a plane
  double eps;
};
constexpr u32 PLANE_BLOCK = 256;
/** Two sums of a piece: its mean and squared distances, or those of gradients. */
struct Pieces {
  float a, b;
};
/** The piece of a block: its plane, channel and statistic, and where its elements lie. */
struct Piece {
  u64 plane;
  i64 channel, stat, begin, count;
  WICK_MEMBER Piece(u64 block, const PlaneNorm& s) {
    plane = quotient(block, (u64)s.pieces);
    const i64 k = (i64)(block - plane * (u64)s.pieces) * s.piece;
    const i64 sample = (i64)quotient(plane, (u64)s.c);
    channel = (i64)plane - sample * s.c;
    stat = s.groups == 0 ? channel : sample * s.groups + (i64)quotient((u64)channel, (u64)(s.c / s.groups));
    begin = (i64)plane * s.space + k;
    count = s.space - k < s.piece ? s.space - k : s.piece;
  }
};
#define EACH_PIECE(p, s)                                                                               \
  for (u64 wick_piece = blockIdx.x; wick_piece < (u64)(s.n * s.c * s.pieces); wick_piece += gridDim.x) \
    if (const Piece p(wick_piece, s); true)

/** Calls f(place, V numbers) for the vectors of a piece that are this thread's. */
template <int V, class S, class F> WICK_FN void each_of(const S* from, i64 count, F f) {
  UNROLL(2, 4)
  for (i64 i = (i64)threadIdx.x * V; i < count; i += (i64)blockDim.x * V) {
    float x[V];
    load_v<V>(from + i, x);
    f(i, x);
  }
}
template <int V, class S> WICK_FN void plane_stats(const S* src, Pieces* out, const PlaneNorm& s) {
  __shared__ float slots[2][WAVE_SLOTS];
  EACH_PIECE(p, s) {
    float sum = 0, far = 0;
    each_of<V>(src + p.begin, p.count, [&](i64, const float* x) {
#pragma unroll
      for (int v = 0; v < V; v++) sum += x[v];
    });
    const float mean = row_join(sum, blockDim.x, slots[0], Add()) / (float)p.count;
    each_of<V>(src + p.begin, p.count, [&](i64, const float* x) {
#pragma unroll
      for (int v = 0; v < V; v++) far = fmag(x[v] - mean, x[v] - mean, far);
    });
    far = row_join(far, blockDim.x, slots[1], Add());
    if (threadIdx.x == 0) out[wick_piece] = {mean, far};
  }
}
/** How many numbers a mean is of, the mean, and squared distances from it. */
struct PieceStats {
  float count, mean, far;
};
WICK_FN PieceStats stats_of_both(PieceStats a, PieceStats b) {
  const float count = a.count + b.count;
  if (!(count > 0)) return a;
  const float apart = b.mean - a.mean, share = b.count / count;
  if (a.count == 0) return b;
  if (b.count == 0) return a;
  return {count, fmag(apart, share, a.mean), a.far + b.far + apart * apart * a.count * share};
}
/** The pieces of a statistic, one after another: calls f(piece, channel, elements). */
template <class F> WICK_FN void each_piece_of(i64 stat, const PlaneNorm& s, F f) {
  const i64 wide = s.groups == 0 ? 1 : s.c / s.groups, planes = s.groups == 0 ? s.n : wide;
  const i64 first = s.groups == 0 ? stat : stat * wide;  // groups of all samples follow one another
  ROLLED
  for (i64 k = threadIdx.x; k < planes * s.pieces; k += blockDim.x) {
    const i64 j = (i64)quotient((u64)k, (u64)s.pieces), part = k - j * s.pieces,
              plane = s.groups == 0 ? j * s.c + first : first + j;
    const i64 left = s.space - part * s.piece;
    f(plane * s.pieces + part, s.groups == 0 ? stat : plane - (i64)quotient((u64)plane, (u64)s.c) * s.c,
      left < s.piece ? left : s.piece);
  }
}
WICK_FN void plane_join(const Pieces* pieces, float* mean, float* variance, const PlaneNorm& s) {
  __shared__ PieceStats slots[PLANE_BLOCK];
  const i64 stat = blockIdx.x;
  PieceStats mine = {0, 0, 0};
  each_piece_of(stat, s, [&](i64 i, i64, i64 count) {
    mine = stats_of_both(mine, {(float)count, pieces[i].a, pieces[i].b});
  });
  slots[threadIdx.x] = mine;
  __syncthreads();
  for (u32 half = blockDim.x / 2; half; half /= 2) {
    if (threadIdx.x < half) slots[threadIdx.x] = stats_of_both(slots[threadIdx.x], slots[threadIdx.x + half]);
    __syncthreads();
  }
  if (threadIdx.x == 0) {
    mean[stat] = slots[0].mean;
    variance[stat] = slots[0].far / slots[0].count;
  }
}
template <int V, class S>
WICK_FN void plane_scale(const S* src, const float* mean, const float* variance, const float* weight, const float* bias,
                         S* dst, const PlaneNorm& s) {
  EACH_PIECE(p, s) {
    const float m = mean[p.stat], r = rsqrtg(variance[p.stat] + (float)s.eps), w = weight ? weight[p.channel] : 1.0f,
                b = bias ? bias[p.channel] : -0.0f;
    S* to = dst + p.begin;
    each_of<V>(src + p.begin, p.count, [&](i64 i, float* x) {
#pragma unroll
      for (int v = 0; v < V; v++) x[v] = fmag((x[v] - m) * r, w, b);
      float y[V];
#pragma unroll
      for (int v = 0; v < V; v++) y[v] = x[v];
      store_v<V>(to + i, y);
    });
  }
}
template <int V, class S>
WICK_FN void plane_slopes(const S* src, const S* grad, const float* mean, const float* variance, Pieces* out,
                          const PlaneNorm& s) {
  __shared__ float slots[2][WAVE_SLOTS];
  EACH_PIECE(p, s) {
    const float m = mean[p.stat], r = rsqrtg(variance[p.stat] + (float)s.eps);
    const S* by = grad + p.begin;
    float sum = 0, along = 0;
    each_of<V>(src + p.begin, p.count, [&](i64 i, const float* x) {
      float g[V];
      load_v<V>(by + i, g);
#pragma unroll
      for (int v = 0; v < V; v++) sum += g[v], along = fmag(g[v], (x[v] - m) * r, along);
    });
    sum = row_join(sum, blockDim.x, slots[0], Add());
    along = row_join(along, blockDim.x, slots[1], Add());
    if (threadIdx.x == 0) out[wick_piece] = {sum, along};
  }
}
WICK_FN void plane_channels(const Pieces* pieces, float* dweight, float* dbias, const PlaneNorm& s) {
  __shared__ float slots[2][WAVE_SLOTS];
  PlaneNorm all = s;
  all.groups = 0;
  float sum = 0, along = 0;
  each_piece_of(blockIdx.x, all, [&](i64 i, i64, i64) { sum += pieces[i].a, along += pieces[i].b; });
  sum = row_join(sum, blockDim.x, slots[0], Add());
  along = row_join(along, blockDim.x, slots[1], Add());
  if (threadIdx.x == 0) dbias[blockIdx.x] = sum, dweight[blockIdx.x] = along;
}
WICK_FN void plane_means(const Pieces* pieces, const float* weight, Pieces* means, const PlaneNorm& s) {
  __shared__ float slots[2][WAVE_SLOTS];
  float sum = 0, along = 0, size = 0;
  each_piece_of(blockIdx.x, s, [&](i64 i, i64 channel, i64) {
    const float w = weight ? weight[channel] : 1.0f;
    sum = fmag(pieces[i].a, w, sum), along = fmag(pieces[i].b, w, along);
  });
  sum = row_join(sum, blockDim.x, slots[0], Add());
  along = row_join(along, blockDim.x, slots[1], Add());
  size = (float)(s.groups == 0 ? s.n * s.space : s.c / s.groups * s.space);
  if (threadIdx.x == 0) means[blockIdx.x] = {sum / size, along / size};
}
template <int V, class S>
WICK_FN void plane_back(const S* src, const S* grad, const float* mean, const float* variance, const float* weight,
                        const Pieces* means, S* dst, const PlaneNorm& s) {
  EACH_PIECE(p, s) {
    const float m = mean[p.stat], r = rsqrtg(variance[p.stat] + (float)s.eps), w = weight ? weight[p.channel] : 1.0f;
    const Pieces of = means[p.stat];
    const S* by = grad + p.begin;
    S* to = dst + p.begin;
    each_of<V>(src + p.begin, p.count, [&](i64 i, const float* x) {
      float g[V];
      load_v<V>(by + i, g);
#pragma unroll
      for (int v = 0; v < V; v++) g[v] = r * (g[v] * w - of.a - (x[v] - m) * r * of.b);
      store_v<V>(to + i, g);
    });
  }
}

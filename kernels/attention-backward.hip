// Gradients of attention for every element type and every GPU: scores are made again from the saved log-sum-exp.
//
// Two passes, one that owns queries and one that owns keys, each adding up in registers: no atomics, so results repeat bit for bit.
// attention_delta_T: grid (ceil(tq / 8), heads, batch); attention_backward_query_T_D: the grid of the forward kernel;
// attention_backward_key_T_D: grid (key tiles, key heads, batch). All have 256 threads.
#include "attention.h"
#include "attention-tile.h"

// delta = the product of a row of the output with its gradient: 32 lanes a row.
template <class T> WICK_FN void attention_delta(const Attention& p) {
  typedef compute_t<T> A;
  int lane = threadIdx.x % 32, i = blockIdx.x * 8 + threadIdx.x / 32, head = blockIdx.y;
  Sequence s = sequence_of(p, blockIdx.z);
  A sum = 0;
  if (i < s.nq) {
    const T* out = query_row<const T>(p.out, p.out_strides, s, head, i);
    const T* dout = query_row<const T>(p.dout, p.dout_strides, s, head, i);
    for (int d = lane; d < p.dim; d += 32) sum = fmag(to_compute(out[d]), to_compute(dout[d]), sum);
  }
  for (int m = 16; m; m /= 2) sum += shfl_xor(sum, m, 32);
  if (i < s.nq && lane == 0) ((A*)p.delta)[lse_index(p, s, head, i)] = sum;
}

// The weight of a pair from its product, as the forward pass had it.
template <class T, class A> WICK_FN A weight_of(const Attention& p, const Sequence& s, int head, int i, int j, A product, A lse) {
  if (!is_seen(p, s, i, j)) return 0;
  A x = logit_of<T>(p, s, head, i, j, product);
  return x == Limits<A>::lowest() ? A(0) : expg(x - lse);
}

template <class T, int D> WICK_FN void attention_backward_query(const Attention& p) {
  typedef compute_t<T> A;
  constexpr int R = tile_side<T>, B = 16 * R;
  __shared__ A left[B][33], right[B][33], slopes[B][B + 1];
  int tx = threadIdx.x % 16, ty = threadIdx.x / 16, head = blockIdx.y, kv_head = head / (p.heads / p.kv_heads);
  Sequence s = sequence_of(p, blockIdx.z);
  int i0 = blockIdx.x * B;
  if (i0 >= s.nq) return;
  Range keys = keys_seen(p, s, i0, i0 + B - 1);
  A dq[R][D / 16] = {};
  auto q = [&](int r) { return i0 + r < s.nq ? query_row<const T>(p.q, p.q_strides, s, head, i0 + r) : nullptr; };
  auto dout = [&](int r) { return i0 + r < s.nq ? query_row<const T>(p.dout, p.dout_strides, s, head, i0 + r) : nullptr; };

  for (int j0 = keys.begin / B * B; j0 < keys.end; j0 += B) {
    auto k = [&](int r) { return j0 + r < s.nk ? key_row<const T>(p, p.k, p.k_strides, s, kv_head, j0 + r) : nullptr; };
    auto v = [&](int r) { return j0 + r < s.nk ? key_row<const T>(p, p.v, p.v_strides, s, kv_head, j0 + r) : nullptr; };
    A product[R][R] = {}, dweight[R][R] = {};
    tile_dot<T>(product, left, right, p.dim, q, k);
    tile_dot<T>(dweight, left, right, p.dim, dout, v);
#pragma unroll
    for (int r = 0; r < R; r++) {
      int i = i0 + ty + 16 * r;
      i64 at = lse_index(p, s, head, i < s.nq ? i : s.nq - 1);
      A lse = ((const A*)p.lse)[at], delta = ((const A*)p.delta)[at];
#pragma unroll
      for (int c = 0; c < R; c++) {
        int j = j0 + tx + 16 * c;
        A w = weight_of<T>(p, s, head, i, j, product[r][c], lse);
        slopes[ty + 16 * r][tx + 16 * c] = w == 0 ? A(0) : w * (dweight[r][c] - delta) * logit_slope(p, product[r][c]);
      }
    }
    tile_sum<T, false>(dq, slopes, right, p.dim, k);
  }
#pragma unroll
  for (int r = 0; r < R; r++) {
    int i = i0 + ty + 16 * r;
    if (i >= s.nq) continue;
    T* row = query_row<T>(p.dq, p.dq_strides, s, head, i);
#pragma unroll
    for (int e = 0; e < D / 16; e++) if (tx + 16 * e < p.dim) row[tx + 16 * e] = from_compute<T>(dq[r][e]);
  }
}

template <class T, int D> WICK_FN void attention_backward_key(const Attention& p) {
  typedef compute_t<T> A;
  constexpr int R = tile_side<T>, B = 16 * R;
  __shared__ A left[B][33], right[B][33], tile[B][B + 1];
  int tx = threadIdx.x % 16, ty = threadIdx.x / 16, kv_head = blockIdx.y, group = p.heads / p.kv_heads;
  Sequence s = sequence_of(p, blockIdx.z);
  int j0 = blockIdx.x * B;
  if (j0 >= s.nk) return;
  Range queries = queries_seeing(p, s, j0, j0 + B - 1);
  A dk[R][D / 16] = {}, dv[R][D / 16] = {};
  auto k = [&](int r) { return j0 + r < s.nk ? key_row<const T>(p, p.k, p.k_strides, s, kv_head, j0 + r) : nullptr; };
  auto v = [&](int r) { return j0 + r < s.nk ? key_row<const T>(p, p.v, p.v_strides, s, kv_head, j0 + r) : nullptr; };

  for (int head = kv_head * group; head < (kv_head + 1) * group; head++) {
    for (int i0 = queries.begin / B * B; i0 < queries.end; i0 += B) {
      auto q = [&](int r) { return i0 + r < s.nq ? query_row<const T>(p.q, p.q_strides, s, head, i0 + r) : nullptr; };
      auto dout = [&](int r) { return i0 + r < s.nq ? query_row<const T>(p.dout, p.dout_strides, s, head, i0 + r) : nullptr; };
      A product[R][R] = {}, dweight[R][R] = {};
      tile_dot<T>(product, left, right, p.dim, q, k);
      tile_dot<T>(dweight, left, right, p.dim, dout, v);
#pragma unroll
      for (int r = 0; r < R; r++) {
        int i = i0 + ty + 16 * r;
        i64 at = lse_index(p, s, head, i < s.nq ? i : s.nq - 1);
        A lse = ((const A*)p.lse)[at], delta = ((const A*)p.delta)[at];
#pragma unroll
        for (int c = 0; c < R; c++) {
          A w = weight_of<T>(p, s, head, i, j0 + tx + 16 * c, product[r][c], lse);
          tile[ty + 16 * r][tx + 16 * c] = w;
          product[r][c] = w == 0 ? A(0) : w * (dweight[r][c] - delta) * logit_slope(p, product[r][c]);
        }
      }
      tile_sum<T, true>(dv, tile, right, p.dim, dout);
      __syncthreads();  // the weights have been read; their gradients take the place
#pragma unroll
      for (int r = 0; r < R; r++)
#pragma unroll
        for (int c = 0; c < R; c++) tile[ty + 16 * r][tx + 16 * c] = product[r][c];
      tile_sum<T, true>(dk, tile, right, p.dim, q);
    }
  }
#pragma unroll
  for (int r = 0; r < R; r++) {
    int j = j0 + ty + 16 * r;
    if (j >= s.nk) continue;
    T* to_k = key_row<T>(p, p.dk, p.dk_strides, s, kv_head, j);
    T* to_v = key_row<T>(p, p.dv, p.dv_strides, s, kv_head, j);
#pragma unroll
    for (int e = 0; e < D / 16; e++) {
      if (tx + 16 * e >= p.dim) continue;
      to_k[tx + 16 * e] = from_compute<T>(dk[r][e]);
      to_v[tx + 16 * e] = from_compute<T>(dv[r][e]);
    }
  }
}

#define ATTENTION_DELTA(name, T) KERNEL(256) name(Attention p) { attention_delta<T>(p); }
FOR_REALS(ATTENTION_DELTA, attention_delta)
#define ATTENTION_BACKWARD_QUERY(name, T)                                             \
  KERNEL(256) name##_64(Attention p) { attention_backward_query<T, 64>(p); }          \
  KERNEL(256) name##_128(Attention p) { attention_backward_query<T, 128>(p); }        \
  KERNEL(256) name##_256(Attention p) { attention_backward_query<T, 256>(p); }
FOR_REALS(ATTENTION_BACKWARD_QUERY, attention_backward_query)
#define ATTENTION_BACKWARD_KEY(name, T)                                             \
  KERNEL(256) name##_64(Attention p) { attention_backward_key<T, 64>(p); }          \
  KERNEL(256) name##_128(Attention p) { attention_backward_key<T, 128>(p); }        \
  KERNEL(256) name##_256(Attention p) { attention_backward_key<T, 256>(p); }
FOR_REALS(ATTENTION_BACKWARD_KEY, attention_backward_key)

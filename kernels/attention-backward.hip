// Gradients of attention for every element type and every GPU: scores are made again from the saved log-sum-exp.
//
// Two passes, one that owns queries and one that owns keys, each adding up in registers: no atomics, so results repeat
// bit for bit. attention_delta_T: grid (ceil(tq / 8), heads, batch); attention_backward_query_T_D: the grid of the
// forward kernel; attention_backward_key_T_D: grid (key tiles, key heads, batch). All have 256 threads.
#include "attention-again.h"
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

// The same for rows that 16-byte copies can read: 8 lanes a row. Grid (ceil(tq / 32), heads, batch).
template <class T> WICK_FN void attention_delta_packs(const Attention& p) {
  constexpr int V = pack_size<T>;
  int lane = threadIdx.x % 8, i = blockIdx.x * 32 + threadIdx.x / 8, head = blockIdx.y;
  Sequence s = sequence_of(p, blockIdx.z);
  float sum = 0, x[V], y[V];
  if (i < s.nq) {
    const T* out = query_row<const T>(p.out, p.out_strides, s, head, i);
    const T* dout = query_row<const T>(p.dout, p.dout_strides, s, head, i);
    for (int d = lane * V; d < p.dim; d += 8 * V) {
      unpack(load_pack(out + d), x);
      unpack(load_pack(dout + d), y);
#pragma unroll
      for (int k = 0; k < V; k++) sum = fmag(x[k], y[k], sum);
    }
  }
  for (int m = 4; m; m /= 2) sum += shfl_xor(sum, m, 8);
  if (i < s.nq && lane == 0) ((float*)p.delta)[lse_index(p, s, head, i)] = sum;
}

// A tile of queries and one of keys: from products to weights, in `tile`, and gradients of products, over the operands,
// pitch B + 1.
template <class T, class A, int B>
WICK_FN void weights_and_gradients(const Attention& p, const Sequence& s, int head, int i0, int j0,
                                   A (&stage)[2][B][33], A (&tile)[B][B + 1], const i64 (&queries)[2][B],
                                   const i64 (&keys)[2][B]) {
  constexpr int R = tile_side<T>;
  const int tx = threadIdx.x % 16, ty = threadIdx.x / 16;
  A* gradients = &stage[0][0][0];
  UNROLL(2, 1)
  for (int which = 0; which < 2; which++) {
    A acc[R][R] = {};
    tile_dot<T>(acc, stage, p.dim, which ? p.dout : p.q, queries[which], which ? p.v : p.k, keys[which]);
    if (which) __syncthreads();  // operands have been read; results take their place
    A* to = which ? gradients : &tile[0][0];
#pragma unroll
    for (int r = 0; r < R; r++)
#pragma unroll
      for (int c = 0; c < R; c++) to[(ty + 16 * r) * (B + 1) + tx + 16 * c] = acc[r][c];
  }
  // A thread's numbers lie in shared memory, so that loops over them need not be unrolled.
  const bool plain = is_plain(p);
  UNROLL(1, 1)
  for (int r = 0; r < R; r++) {
    const int row = ty + 16 * r, i = i0 + row;
    const Range seen = keys_of(p, s, i);
    const i64 at = lse_index(p, s, head, i < s.nq ? i : s.nq - 1);
    const A lse = ((const A*)p.lse)[at], delta = ((const A*)p.delta)[at];
    A* gradient = gradients + row * (B + 1);
    if (plain) {
#pragma unroll
      for (int c = 0; c < R; c++) {
        const int column = tx + 16 * c, j = j0 + column;
        const A x = tile[row][column] * (A)p.scale, power = expg(x - lse);
        const A w = j >= seen.begin && j < seen.end && x != Limits<A>::lowest() ? power : A(0);
        const A g = w * (gradient[column] - delta) * (A)p.scale;
        tile[row][column] = w;
        gradient[column] = w == 0 ? A(0) : g;
      }
    } else {
      UNROLL(1, 1)
      for (int c = 0; c < R; c++) {
        const int column = tx + 16 * c, j = j0 + column;
        const A product = tile[row][column];
        A w = 0, g = 0;
        if (j >= seen.begin && j < seen.end) {
          A slope;
          const A x = biased_of<T>(p, s, head, i, j, capped_of(p, product, slope));
          w = x == Limits<A>::lowest() ? A(0) : expg(x - lse);
          if (w != 0) g = w * (gradient[column] - delta) * slope;
        }
        tile[row][column] = w;
        gradient[column] = g;
      }
    }
  }
}

// Of a block's rows, which lie in memory by now, those with NaN, a wave each.
template <class T> WICK_FN void queries_again(const Attention& p, int first, int count) {
  const Sequence s = sequence_of(p, blockIdx.z);
  UNROLL(1, 1)
  for (int i = first + wave_again(); i < first + count && i < s.nq; i += 256 / WICK_WAVE)
    if (is_odd(query_row<const T>(p.dq, p.dq_strides, s, blockIdx.y, i), p.dim))
      query_gradient_again<T>(p, s, blockIdx.y, i);
}
template <class T> WICK_FN void keys_again(const Attention& p, int first, int count) {
  const Sequence s = sequence_of(p, blockIdx.z);
  UNROLL(1, 1)
  for (int j = first + wave_again(); j < first + count && j < s.nk; j += 256 / WICK_WAVE)
    if (is_odd(key_row<const T>(p, p.dk, p.dk_strides, s, blockIdx.y, j), p.dim) ||
        is_odd(key_row<const T>(p, p.dv, p.dv_strides, s, blockIdx.y, j), p.dim))
      key_gradients_again<T>(p, s, blockIdx.y, j);
}

template <class T, int D> WICK_FN void attention_backward_query(const Attention& p) {
  typedef compute_t<T> A;
  constexpr int R = tile_side<T>, B = 16 * R;
  __shared__ A stage[2][B][33], tile[B][B + 1];
  __shared__ i64 queries[2][B], keys[2][B];  // with gradients of outputs, and with values
  const int head = blockIdx.y, kv_head = head / (p.heads / p.kv_heads);
  const Sequence s = sequence_of(p, blockIdx.z);
  const int i0 = blockIdx.x * B;
  if (i0 >= s.nq) return;
  const Range seen = keys_seen(p, s, i0, i0 + B - 1);
  A dq[R][D / 16] = {};
  find_queries<T>(queries, p, s, head, i0);

  UNROLL(1, 1)
  for (int j0 = seen.begin / B * B; j0 < seen.end; j0 += B) {
    find_keys<T>(keys, p, s, kv_head, j0);
    weights_and_gradients<T>(p, s, head, i0, j0, stage, tile, queries, keys);
#pragma unroll
    for (int r = 0; r < R; r++)
#pragma unroll
      for (int c = 0; c < R; c++) {
        const int row = threadIdx.x / 16 + 16 * r, column = threadIdx.x % 16 + 16 * c;
        tile[row][column] = (&stage[0][0][0])[row * (B + 1) + column];
      }
    tile_sum<T, false>(dq, tile, stage, p.dim, p.k, keys[0]);
  }
  tile_store(dq, tile, s.nq - i0, p.dim,
             [&](int r, int d, A x) { query_row<T>(p.dq, p.dq_strides, s, head, i0 + r)[d] = from_compute<T>(x); });
  __syncthreads();
  queries_again<T>(call_again(p), blockIdx.x * B, B);
}

template <class T, int D> WICK_FN void attention_backward_key(const Attention& p) {
  typedef compute_t<T> A;
  constexpr int R = tile_side<T>, B = 16 * R, E = D / 16;
  __shared__ A stage[2][B][33], tile[B][B + 1];
  __shared__ i64 queries[2][B], keys[2][B];
  const int tx = threadIdx.x % 16, ty = threadIdx.x / 16, kv_head = blockIdx.y, group = p.heads / p.kv_heads;
  const Sequence s = sequence_of(p, blockIdx.z);
  const int j0 = blockIdx.x * B;
  if (j0 >= s.nk) return;
  const Range seeing = queries_seeing(p, s, j0, j0 + B - 1);
  A now[R][E] = {}, then[R][E] = {};  // gradients of values and of keys, which take turns
  auto take_turns = [&]() {
#pragma unroll
    for (int r = 0; r < R; r++)
#pragma unroll
      for (int e = 0; e < E; e++) {
        const A x = now[r][e];
        now[r][e] = then[r][e];
        then[r][e] = x;
      }
  };
  find_keys<T>(keys, p, s, kv_head, j0);

  UNROLL(1, 1)
  for (int head = kv_head * group; head < (kv_head + 1) * group; head++) {
    UNROLL(1, 1)
    for (int i0 = seeing.begin / B * B; i0 < seeing.end; i0 += B) {
      find_queries<T>(queries, p, s, head, i0);
      weights_and_gradients<T>(p, s, head, i0, j0, stage, tile, queries, keys);
      A gradient[R][R];
#pragma unroll
      for (int r = 0; r < R; r++)
#pragma unroll
        for (int c = 0; c < R; c++) gradient[r][c] = (&stage[0][0][0])[(ty + 16 * r) * (B + 1) + tx + 16 * c];
      UNROLL(2, 1)
      for (int which = 0; which < 2; which++) {
        tile_sum<T, true>(now, tile, stage, p.dim, which ? p.q : p.dout, queries[1 - which]);
        __syncthreads();  // the weights have been read; the gradients of products take their place
        if (which == 0) {
#pragma unroll
          for (int r = 0; r < R; r++)
#pragma unroll
            for (int c = 0; c < R; c++) tile[ty + 16 * r][tx + 16 * c] = gradient[r][c];
        }
        take_turns();
      }
    }
  }
  const Attention& again = call_again(p);
  const Sequence own = sequence_of(again, blockIdx.z);
  UNROLL(2, 1)
  for (int which = 0; which < 2; which++) {
    tile_store(now, tile, own.nk - j0, again.dim, [&](int r, int d, A x) {
      T* to = which ? key_row<T>(again, again.dk, again.dk_strides, own, blockIdx.y, j0 + r)
                    : key_row<T>(again, again.dv, again.dv_strides, own, blockIdx.y, j0 + r);
      to[d] = from_compute<T>(x);
    });
    take_turns();
  }
  __syncthreads();
  keys_again<T>(again, blockIdx.x * B, B);
}

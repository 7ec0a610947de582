// One token through a transformer: products of a matrix with a vector at copy speed, with the norm before and the
// residual after them, and the choice of the next token. Token, position and length are read from device memory;
// attention is in decode-attention.hip.
//
// `state` is { token, position, length }. All matrices are row-major and 16-byte aligned, k a multiple of 16 bytes.
// Every launch may begin early: weights are asked for before it is known that the vector is there.
//   decode_embed_T            grid ceil(n / 256), block 256
//   decode_store_T            grid ceil(heads * width / 256), block 256
//   decode_join_T_N           one block of 512 or 1024: a norm after a branch, and the residual
//   decode_product_T_RxU      grid ceil(n / R), block up to 256: a block makes R results, U words of each row under way
//                             a thread
//   decode_gate_T_RxU         grid ceil(n / (R/2)): R/2 results, each of two rows
//   decode_advance            one block: the best logit is the next token; state moves on, `tokens` remembers it by its
//                             position
#include "decode-rows.h"
#include "stream.h"

constexpr int DECODE_JOIN = 1024;

template <class T> WICK_FN void decode_embed(const T* table, const i32* state, T* out, float factor, i32 n) {
  begin_in_turn();
  int i = blockIdx.x * DECODE_THREADS + threadIdx.x;
  if (i >= n) return;
  const T x = table[(i64)state[0] * n + i];
  out[i] = factor == 1.0f ? x : from_compute<T>(to_compute(x) * factor);
}

// out = residual + norm(x), by one block: where a branch has a norm after it. The next launch asks for its weights
// meanwhile.
template <class T, class N>
WICK_FN void decode_join(const T* x, const N* norm, float eps, const T* residual, T* out, i32 n) {
  constexpr int P = pack_size<T>;
  __shared__ float parts[DECODE_JOIN / WICK_WAVE];
  const int from = threadIdx.x * P, step = blockDim.x * P;
  const bool in = from < n;
  Words<P * sizeof(N)> by = {};
  if (in) by.load(norm + from);
  hurry_next();
  begin_in_turn();
  word4 old = {}, fresh = {};
  if (in) fresh = *(const word4*)(x + from), old = *(const word4*)(residual + from);
  float squares = 0, v[P], m[P], r[P];
  unpack_word<T>(fresh, v);
#pragma unroll
  for (int e = 0; e < P; e++) squares = fmag(v[e], v[e], squares);
  UNROLL(1, 1)
  for (int c = from + step; c < n; c += step) {
    unpack_word<T>(*(const word4*)(x + c), v);
#pragma unroll
    for (int e = 0; e < P; e++) squares = fmag(v[e], v[e], squares);
  }
  const float factor = rsqrtg(block_sum(squares, parts) / (float)n + eps);
  UNROLL(1, 1)
  for (int c = from; c < n; c += step) {
    if (c != from) {
      by.load(norm + c);
      old = *(const word4*)(residual + c);
      fresh = *(const word4*)(x + c);
    }
    unpack_word<T>(fresh, v);
    unpack_word<T>(old, r);
    unpack_words<T, N>(by.w, m);
    Pack<T> sum;
#pragma unroll
    for (int e = 0; e < P; e++) sum.v[e] = from_compute<T>(r[e] + rounded<T>(v[e] * factor * m[e]));
    *(Pack<T>*)(out + c) = sum;
  }
}

// A new token's vectors, one a head, to its position in a cache of (heads, room, width).
template <class T> WICK_FN void decode_store(const T* x, const i32* state, T* cache, i32 heads, i32 width, i32 room) {
  begin_in_turn();
  int i = blockIdx.x * DECODE_THREADS + threadIdx.x;
  if (i < heads * width) cache[((i64)(i / width) * room + state[1]) * width + i % width] = x[i];
}

WICK_FN void advance(u64* best, i32* state, i32* tokens) {
  begin_in_turn();
  if (threadIdx.x != 0) return;
  const i32 token = *best ? (i32) ~(u32)*best : 0;
  *best = 0;
  tokens[state[1] + 1] = token;
  state[0] = token;
  state[1] += 1;
  state[2] += 1;
}

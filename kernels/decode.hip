// One token through a transformer: products of a matrix with a vector at copy speed, with the norm before and the residual after them,
// rotary embedding and cache in one, and the choice of the next token. Token, position and length are read from device memory.
//
// `state` is { token, position, length }. All matrices are row-major and 16-byte aligned, k a multiple of 16 bytes.
//   decode_embed_T            grid ceil(n / 256), block 256
//   decode_product_T          any grid, block 256, k floats of dynamic shared memory; a wave makes DECODE_ROWS results at a time
//   decode_gate_T             the same over n results, each of two rows
//   decode_rope_append_T      grid heads + 2 kv_heads, block 64 or more: queries out, keys and values into the caches
//   decode_argmax_T           grid parts, block 256: the largest logit of each part
//   decode_advance            one block of 128: the largest of all parts is the next token; state moves on, history remembers it
#include "block.h"

constexpr int DECODE_ROWS = 2, DECODE_WAVES = 256 / WICK_WAVE;

template <class T> WICK_FN void decode_embed(const T* table, const i32* state, T* out, i32 n) {
  int i = blockIdx.x * 256 + threadIdx.x;
  if (i < n) out[i] = table[(i64)state[0] * n + i];
}

// The vector in shared memory, normalised where there is a weight.
template <class T> WICK_FN void decode_load(const T* x, const T* norm, float eps, float* shared, i32 k) {
  __shared__ float slots[WAVE_SLOTS];
  float square = 0;
  for (int i = threadIdx.x; i < k; i += 256) {
    float v = to_compute(x[i]);
    shared[i] = v;
    square = fmag(v, v, square);
  }
  if (norm) {
    float factor = rsqrtg(group_sum(square, 256, slots) / (float)k + eps);
    for (int i = threadIdx.x; i < k; i += 256) shared[i] *= factor * (float)to_compute(norm[i]);
  }
  __syncthreads();
}

// Sums of R rows with the shared vector, the same on all lanes.
template <class T, int R> WICK_FN void decode_dots(const T* const (&rows)[R], const float* shared, i32 k, float (&sums)[R]) {
  constexpr int N = pack_size<T>;
#pragma unroll
  for (int r = 0; r < R; r++) sums[r] = 0;
#pragma unroll 4
  for (int c = lane_id() * N; c < k; c += WICK_WAVE * N) {
    Pack<T> p[R];
#pragma unroll
    for (int r = 0; r < R; r++) p[r] = load_pack(rows[r] + c);
#pragma unroll
    for (int e = 0; e < N; e += 4) {
      Pack<float> v = load_pack(shared + c + e);
#pragma unroll
      for (int f = 0; f < 4; f++)
#pragma unroll
        for (int r = 0; r < R; r++) sums[r] = fmag((float)to_compute(p[r].v[e + f]), v.v[f], sums[r]);
    }
  }
#pragma unroll
  for (int r = 0; r < R; r++)
    for (int m = WICK_WAVE / 2; m; m /= 2) sums[r] += shfl_xor(sums[r], m, WICK_WAVE);
}

template <class T> WICK_FN void decode_product(const T* x, const T* norm, float eps, const T* w, const T* bias, const T* residual, T* out, i32 n, i32 k) {
  DYNAMIC_SHARED(float, shared);
  decode_load(x, norm, eps, shared, k);
  for (int first = (blockIdx.x * DECODE_WAVES + wave_id()) * DECODE_ROWS; first < n; first += gridDim.x * DECODE_WAVES * DECODE_ROWS) {
    const T* rows[DECODE_ROWS];
    float sums[DECODE_ROWS];
#pragma unroll
    for (int r = 0; r < DECODE_ROWS; r++) rows[r] = w + (i64)(first + r < n ? first + r : first) * k;
    decode_dots(rows, shared, k, sums);
#pragma unroll
    for (int r = 0; r < DECODE_ROWS; r++) {
      int i = first + r;
      if (lane_id() != 0 || i >= n) continue;
      if (bias) sums[r] += (float)to_compute(bias[i]);
      if (residual) sums[r] += (float)to_compute(residual[i]);
      out[i] = from_compute<T>(sums[r]);
    }
  }
}

template <class T> WICK_FN void decode_gate(const T* x, const T* norm, float eps, const T* w, T* out, i32 n, i32 k) {
  DYNAMIC_SHARED(float, shared);
  decode_load(x, norm, eps, shared, k);
  for (int i = blockIdx.x * DECODE_WAVES + wave_id(); i < n; i += gridDim.x * DECODE_WAVES) {
    const T* rows[2] = {w + (i64)i * k, w + (i64)(n + i) * k};
    float sums[2];
    decode_dots(rows, shared, k, sums);
    if (lane_id() == 0) out[i] = from_compute<T>(sums[0] / (1.0f + expg(-sums[0])) * sums[1]);
  }
}

template <class T>
WICK_FN void decode_rope_append(const T* qkv, const T* cos, const T* sin, const i32* state, T* q, T* keys, T* values, i32 heads, i32 kv_heads, i32 dim, i32 room) {
  int head = blockIdx.x, position = state[1], half_dim = dim / 2;
  const T* from = qkv + (i64)head * dim;
  if (head >= heads + kv_heads) {
    T* to = values + ((i64)(head - heads - kv_heads) * room + position) * dim;
    for (int i = threadIdx.x; i < dim; i += blockDim.x) to[i] = from[i];
    return;
  }
  T* to = head < heads ? q + (i64)head * dim : keys + ((i64)(head - heads) * room + position) * dim;
  for (int i = threadIdx.x; i < half_dim; i += blockDim.x) {
    float c = to_compute(cos[(i64)position * half_dim + i]), s = to_compute(sin[(i64)position * half_dim + i]);
    float a = to_compute(from[i]), b = to_compute(from[i + half_dim]);
    to[i] = from_compute<T>(a * c - b * s);
    to[i + half_dim] = from_compute<T>(a * s + b * c);
  }
}

struct Best {
  float value;
  i32 index;
};
WICK_FN Best better(Best a, Best b) { return b.value > a.value || (b.value == a.value && b.index < a.index) ? b : a; }
WICK_FN Best wave_best(Best x) {
  for (int m = WICK_WAVE / 2; m; m /= 2) {
    Best other = {shfl_xor(x.value, m, WICK_WAVE), shfl_xor(x.index, m, WICK_WAVE)};
    x = better(x, other);
  }
  return x;
}

template <class T> WICK_FN void decode_argmax(const T* logits, float* values, i32* indices, i32 n) {
  __shared__ float best_value[256 / WICK_WAVE];
  __shared__ i32 best_index[256 / WICK_WAVE];
  Best best = {Limits<float>::lowest(), 0x7fffffff};
  for (int i = blockIdx.x * 256 + threadIdx.x; i < n; i += gridDim.x * 256) {
    Best mine = {(float)to_compute(logits[i]), i};
    best = better(best, mine);
  }
  best = wave_best(best);
  if (lane_id() == 0) best_value[wave_id()] = best.value, best_index[wave_id()] = best.index;
  __syncthreads();
  if (threadIdx.x != 0) return;
  for (int w = 1; w < 256 / WICK_WAVE; w++) {
    Best other = {best_value[w], best_index[w]};
    best = better(best, other);
  }
  values[blockIdx.x] = best.value;
  indices[blockIdx.x] = best.index;
}

KERNEL(128) decode_advance(const float* values, const i32* indices, i32 parts, i32* state, i32* history) {
  if (threadIdx.x != 0) return;
  Best best = {values[0], indices[0]};
  for (int p = 1; p < parts; p++) {
    Best other = {values[p], indices[p]};
    best = better(best, other);
  }
  history[state[1]] = best.index;
  state[0] = best.index;
  state[1] += 1;
  state[2] += 1;
}

#define DECODE(D, T)                                                                                                                     \
  KERNEL(256) decode_embed_##D(const T* table, const i32* state, T* out, i32 n) { decode_embed<T>(table, state, out, n); }                \
  KERNEL(256) decode_product_##D(const T* x, const T* norm, float eps, const T* w, const T* bias, const T* residual, T* out, i32 n, i32 k) { \
    decode_product<T>(x, norm, eps, w, bias, residual, out, n, k);                                                                       \
  }                                                                                                                                      \
  KERNEL(256) decode_gate_##D(const T* x, const T* norm, float eps, const T* w, T* out, i32 n, i32 k) { decode_gate<T>(x, norm, eps, w, out, n, k); } \
  KERNEL(256) decode_rope_append_##D(const T* qkv, const T* cos, const T* sin, const i32* state, T* q, T* keys, T* values, i32 heads, i32 kv_heads, i32 dim, i32 room) { \
    decode_rope_append<T>(qkv, cos, sin, state, q, keys, values, heads, kv_heads, dim, room);                                            \
  }                                                                                                                                      \
  KERNEL(256) decode_argmax_##D(const T* logits, float* values, i32* indices, i32 n) { decode_argmax<T>(logits, values, indices, n); }
DECODE(f32, float)
DECODE(f16, half)
DECODE(bf16, bfloat)

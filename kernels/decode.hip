// One token through a transformer: products of a matrix with a vector at copy speed, with the norm before and the
// residual after them, and the choice of the next token. Token, position and length are read from device memory;
// attention is in decode-attention.hip.
//
// `state` is { token, position, length }. All matrices are row-major and 16-byte aligned, k a multiple of 16 bytes.
// Every launch may begin early: weights are asked for before it is known that the vector is there.
//   decode_embed_T            grid ceil(n / 256), block 256
//   decode_store_T            grid ceil(heads * width / 256), block 256
//   decode_product_T_RxU      grid ceil(n / R), block up to 256: a block makes R results, U words of each row under way
//                             a thread
//   decode_gate_T_RxU         grid ceil(n / (R/2)): R/2 results, each of two rows
//   decode_advance            one block: the best logit is the next token; state moves on, `tokens` remembers it by its
//                             position
#include "attention-split.h"
#include "block.h"

constexpr int DECODE_THREADS = 256;
constexpr int DECODE_WAVES = DECODE_THREADS / WICK_WAVE;

template <class T> WICK_FN void decode_embed(const T* table, const i32* state, T* out, i32 n) {
  begin_in_turn();
  int i = blockIdx.x * DECODE_THREADS + threadIdx.x;
  if (i < n) out[i] = table[(i64)state[0] * n + i];
}

// A new token's vectors, one a head, to its position in a cache of (heads, room, width).
template <class T> WICK_FN void decode_store(const T* x, const i32* state, T* cache, i32 heads, i32 width, i32 room) {
  begin_in_turn();
  int i = blockIdx.x * DECODE_THREADS + threadIdx.x;
  if (i < heads * width) cache[((i64)(i / width) * room + state[1]) * width + i % width] = x[i];
}

template <class T> WICK_FN void unpack_word(word4 word, float (&to)[pack_size<T>]) {
  u32 w[4];
  split_words(word, w);
#pragma unroll
  for (int i = 0; i < 4; i++) {
    if constexpr (sizeof(T) == 2) {
      to[2 * i] = to_compute(T{(u16)w[i]});
      to[2 * i + 1] = to_compute(T{(u16)(w[i] >> 16)});
    } else {
      to[i] = bits_as<float>(w[i]);
    }
  }
}

// Larger floats have larger words; equal ones are told apart by the index, the smaller being better. 0 is less than any
// number.
WICK_FN u64 rank_of(float value, i32 index) {
  u32 bits = bits_as<u32>(value);
  return (u64)(bits >> 31 ? ~bits : bits | 0x80000000u) << 32 | (u32)~index;
}

// The threads of a block share out the columns, so that each reads the vector once for all rows of the block. The
// norm's factor is the same for the whole vector: it comes after the sums, and the squares are one more sum.
template <class T, int R, int U, bool Gate>
WICK_FN void decode_rows(const T* x, const T* norm, float eps, const T* w, const T* bias, const T* residual, T* out,
                         u64* best, i32 n, i32 k) {
  constexpr int N = pack_size<T>, Results = Gate ? R / 2 : R;
  __shared__ float parts[DECODE_WAVES][R + 1];
  const int lane = lane_id(), wave = wave_id(), chunk = blockDim.x * N, first = blockIdx.x * Results,
            from = threadIdx.x * N;
  const T* rows[R];
#pragma unroll
  for (int r = 0; r < R; r++) {
    int i = first + r % Results;
    rows[r] = w + (i64)((i < n ? i : n - 1) + (r >= Results ? n : 0)) * k + from;
  }
  float sums[R] = {}, squares = 0;
  UNROLL(1, 1)
  for (int c0 = 0; c0 < k; c0 += U * chunk) {
    word4 held[U][R], scale[U];
#pragma unroll
    for (int u = 0; u < U; u++) {
      const int c = c0 + u * chunk;
#pragma unroll
      for (int r = 0; r < R; r++) held[u][r] = load_once_if<true>(c + from < k, (const word4*)(rows[r] + c));
      scale[u] = c + from < k && norm ? *(const word4*)(norm + c + from) : word4{};
    }
    if (c0 == 0) begin_in_turn();
#pragma unroll
    for (int u = 0; u < U; u++) {
      const int c = c0 + u * chunk + from;
      float v[N], m[N];
      unpack_word<T>(c < k ? *(const word4*)(x + c) : word4{}, v);
      if (norm) {
        unpack_word<T>(scale[u], m);
#pragma unroll
        for (int e = 0; e < N; e++) {
          squares = fmag(v[e], v[e], squares);
          v[e] *= m[e];
        }
      }
#pragma unroll
      for (int r = 0; r < R; r++) {
        unpack_word<T>(held[u][r], m);
#pragma unroll
        for (int e = 0; e < N; e++) sums[r] = fmag(m[e], v[e], sums[r]);
      }
    }
  }
  scatter_sums<R, WICK_WAVE / 2, WICK_WAVE>(sums, lane);
  if (lane % (WICK_WAVE / R) == 0) parts[wave][lane / (WICK_WAVE / R)] = sums[0];
  if (norm) {
#pragma unroll
    for (int m = WICK_WAVE / 2; m; m /= 2) squares += shfl_xor(squares, m, WICK_WAVE);
    if (lane == 0) parts[wave][R] = squares;
  }
  __syncthreads();
  if (wave != 0) return;
  const int i = first + lane, waves = blockDim.x / WICK_WAVE;
  u64 rank = 0;
  if (lane < Results && i < n) {
    float value = 0, up = 0, square = 0;
    UNROLL(4, 4)
    for (int o = 0; o < DECODE_WAVES; o++) {
      if (o >= waves) break;
      value += parts[o][lane];
      if (Gate) up += parts[o][Results + lane];
      if (norm) square += parts[o][R];
    }
    const float factor = norm ? rsqrtg(square / (float)k + eps) : 1.0f;
    value *= factor;
    if (Gate) value = value / (1.0f + expg(-value)) * (up * factor);
    if (bias) value += (float)to_compute(bias[i]);
    if (residual) value += (float)to_compute(residual[i]);
    T rounded = from_compute<T>(value);
    out[i] = rounded;
    value = to_compute(rounded);
    if (value == value) rank = rank_of(value, i);
  }
  if (!best) return;
  UNROLL(1, 1)
  for (int m = Results / 2; m; m /= 2) {
    u64 other = shfl_xor(rank, m, WICK_WAVE);
    rank = other > rank ? other : rank;
  }
  // Few blocks find a better one than is known, so few write.
  if (lane == 0 && rank > *(volatile u64*)best) atomic_max(best, rank);
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

// A matrix times a vector at copy speed, with the norm before and the bias, gate or residual after it.
#pragma once
#include "attention-split.h"
#include "decode.h"

constexpr int DECODE_THREADS = 256;
constexpr int DECODE_WAVES = DECODE_THREADS / WICK_WAVE;

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

// What norms multiply by, as it lies in memory: T, or floats where T is smaller than what they are kept in.
template <int Bytes> struct Words {
  word4 w[Bytes / 16];
  template <class N> WICK_MEMBER void load(const N* from) {
#pragma unroll
    for (int i = 0; i < Bytes / 16; i++) w[i] = ((const word4*)from)[i];
  }
};
template <class T, class N, int Count>
WICK_FN void unpack_words(const word4 (&words)[Count], float (&to)[pack_size<T>]) {
#pragma unroll
  for (int i = 0; i < Count; i++) {
    float part[pack_size<N>];
    unpack_word<N>(words[i], part);
#pragma unroll
    for (int e = 0; e < pack_size<N>; e++) to[i * pack_size<N> + e] = part[e];
  }
}

/** What a root-mean-square norm divides a vector of k by, inverted; by the whole block. */
template <class T> WICK_FN float norm_factor(const T* x, float eps, i32 k) {
  constexpr int P = pack_size<T>;
  __shared__ float squares[DECODE_WAVES];
  float square = 0;
  UNROLL(1, 1)
  for (int c = threadIdx.x * P; c < k; c += blockDim.x * P) {
    float v[P];
    unpack_word<T>(*(const word4*)(x + c), v);
#pragma unroll
    for (int e = 0; e < P; e++) square = fmag(v[e], v[e], square);
  }
#pragma unroll
  for (int m = WICK_WAVE / 2; m; m /= 2) square += shfl_xor(square, m, WICK_WAVE);
  if (lane_id() == 0) squares[wave_id()] = square;
  __syncthreads();
  square = 0;
  ROLLED for (u32 i = 0; i < blockDim.x / WICK_WAVE; i++) square += squares[i];
  return rsqrtg(square / (float)k + eps);
}

// The threads of a block share out the columns, so that each reads the vector once for all rows of the block. The
// norm's factor is the same for the whole vector: it comes after the sums, and the squares are one more sum.
template <class T, class N, int R, int U, bool Gate>
WICK_FN void decode_tile(int tile, const T* x, const N* norm, float eps, const T* w, const T* bias, const T* residual,
                         T* out, u64* best, i32 act, i32 n, i32 k, bool hurry = false) {
  constexpr int P = pack_size<T>, Results = Gate ? R / 2 : R;
  __shared__ float parts[DECODE_WAVES][R + 1];
  const int lane = lane_id(), wave = wave_id(), chunk = blockDim.x * P, first = tile * Results, from = threadIdx.x * P;
  const T* const mine = w + (i64)first * k + from;
  const int i = first + lane;
  const bool ends = wave == 0 && lane < Results && i < n;
  T bias_here = {}, residual_here = {};
  float sums[R] = {}, squares = 0;
  UNROLL(1, 1)
  for (int c0 = 0; c0 < k; c0 += U * chunk) {
    word4 held[U][R];
    Words<P * sizeof(N)> scale = {};
    // Where rows begin takes registers, so it is found each time.
    const int last = unknown(n - 1 - first);
    auto word_of = [&](int r, int c) {
      const int at = r % Results;
      return (const word4*)(mine + c + (i64)((at < last ? at : last) + (r >= Results ? n : 0)) * k);
    };
#pragma unroll
    for (int u = 0; u < U; u++) {
      const int c = c0 + u * chunk;
#pragma unroll
      for (int r = 0; r < R; r++) held[u][r] = load_once_if<true>(c + from < k, word_of(r, c));
    }
    if (U == 1 && norm && c0 + from < k) scale.load(norm + c0 + from);
    if (c0 == 0) {
      if (hurry) hurry_next();
      begin_in_turn();
      // What comes after the sums is asked for along with the vector.
      if (!Gate && ends && bias) bias_here = bias[i];
      if (!Gate && ends && residual) residual_here = residual[i];
    }
#pragma unroll
    for (int u = 0; u < U; u++) {
      const int c = c0 + u * chunk + from;
      float v[P], m[P];
      unpack_word<T>(c < k ? *(const word4*)(x + c) : word4{}, v);
      if (norm) {
        if (U > 1 && c < k) scale.load(norm + c);
        unpack_words<T, N>(scale.w, m);
#pragma unroll
        for (int e = 0; e < P; e++) {
          squares = fmag(v[e], v[e], squares);
          v[e] *= m[e];
        }
      }
#pragma unroll
      for (int r = 0; r < R; r++) {
        unpack_word<T>(held[u][r], m);
#pragma unroll
        for (int e = 0; e < P; e++) sums[r] = fmag(m[e], v[e], sums[r]);
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
  const int waves = blockDim.x / WICK_WAVE;
  u64 rank = 0;
  if (ends) {
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
    if (Gate) value = activated(act, value) * (up * factor);
    if (!Gate && bias) value += (float)to_compute(bias_here);
    if (!Gate && residual) value += (float)to_compute(residual_here);
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
template <class T, class N, int R, int U, bool Gate>
WICK_FN void decode_rows(const T* x, const N* norm, float eps, const T* w, const T* bias, const T* residual, T* out,
                         u64* best, i32 act, i32 n, i32 k, i32 hurry) {
  decode_tile<T, N, R, U, Gate>(blockIdx.x, x, norm, eps, w, bias, residual, out, best, act, n, k, hurry);
}

// One token of each of a few sequences through a transformer: products of a matrix with up to 16 vectors, the matrix
// read once at copy speed, with the norm before and the residual after them. As decode.hip, for several sequences.
//
//   decode_batch_embed_T          grid (ceil(n / 256), vectors), block 256
//   decode_batch_product_T_V      grid ceil(n / 32), block 256: a block makes 32 results of each vector
//   decode_batch_gate_T_V         grid ceil(n / 16): 16 results of each vector, of two rows each
//
// Weights are the left operand of 16 x 16 products, vectors (V, 8 or 16 of them) the right one. The order of columns
// in a product is free as long as both operands have the same: a lane takes 16 bytes of a row, columns 8 q to 8 q + 7
// of 32 for the q-th of four lanes, and they serve two products. The waves of a block share out the columns.
#include "attention-split.h"
#include "decode.h"
#include "matrix.h"

constexpr int BATCH_THREADS = 256;
constexpr int BATCH_WAVES = BATCH_THREADS / WICK_WAVE;

template <class T> WICK_FN void decode_batch_embed(const T* table, const i32* tokens, T* out, float factor, i32 n) {
  begin_in_turn();
  const int i = blockIdx.x * BATCH_THREADS + threadIdx.x;
  if (i >= n) return;
  const T x = table[(i64)tokens[blockIdx.y] * n + i];
  out[(i64)blockIdx.y * n + i] = factor == 1.0f ? x : from_compute<T>(to_compute(x) * factor);
}

#if WICK_WAVE == 32
/** Two numbers of a word. */
template <class T> WICK_FN float low_of(u32 w) { return to_compute(T{(u16)w}); }
template <class T> WICK_FN float high_of(u32 w) { return to_compute(T{(u16)(w >> 16)}); }

/** Eight numbers of a norm, in pairs of floats as they are asked for. */
template <class N> struct EightOf {
  word4 w[sizeof(N) / 2];
  WICK_MEMBER void load(const N* from) {
#pragma unroll
    for (int i = 0; i < (int)sizeof(N) / 2; i++) w[i] = ((const word4*)from)[i];
  }
  WICK_MEMBER void unpack(float (&to)[8]) const {
#pragma unroll
    for (int i = 0; i < (int)sizeof(N) / 2; i++) {
      u32 words[4];
      split_words(w[i], words);
#pragma unroll
      for (int e = 0; e < 4; e++) {
        if constexpr (sizeof(N) == 2) to[2 * e] = low_of<N>(words[e]), to[2 * e + 1] = high_of<N>(words[e]);
        else to[4 * i + e] = bits_as<float>(words[e]);
      }
    }
  }
};

// The norm's factor is the same for the whole vector: it comes after the sums, and the squares are one more sum.
template <class T, class N, int V, bool Gate>
WICK_FN void decode_batch_rows(const T* x, const N* norm, float eps, const T* w, const T* bias, const T* residual,
                               T* out, i32 act, i32 vectors, i32 n, i32 k) {
  // Chunks of 32 columns under way, groups of eight vectors, results of a block.
  constexpr int U = 4, Eights = V / 8, Results = Gate ? 16 : 32, Step = BATCH_WAVES * U * 32;
  __shared__ float parts[BATCH_WAVES][2][16][V + 1];
  __shared__ float squares[BATCH_WAVES][V];
  const int lane = lane_id(), wave = wave_id(), quarter = lane % 4 * 8, first = blockIdx.x * Results;
  const T* rows[2][2];
#pragma unroll
  for (int t = 0; t < 2; t++)
#pragma unroll
    for (int h = 0; h < 2; h++) {
      const int i = first + lane / 4 + 8 * h + (Gate ? 0 : 16 * t), in = i < n ? i : n - 1;
      rows[t][h] = w + (i64)(in + (Gate && t ? n : 0)) * k + quarter;
    }
  int at = wave * U * 32;
  word4 held[U][2][2];
  auto fetch = [&]() {
#pragma unroll
    for (int u = 0; u < U; u++)
#pragma unroll
      for (int t = 0; t < 2; t++)
#pragma unroll
        for (int h = 0; h < 2; h++) {
          const int c = at + 32 * u;
          held[u][t][h] = load_once_if<true>(c + quarter < k, (const word4*)(rows[t][h] + c));
        }
  };
  fetch();
  begin_in_turn();
  Acc sums[2] = {};
  float square[Eights] = {};
  UNROLL(1, 1)
  for (; at < k; at += Step) {
    u32 given[U][Eights][4];
#pragma unroll
    for (int u = 0; u < U; u++)
#pragma unroll
      for (int e = 0; e < Eights; e++) {
        const int c = at + 32 * u + quarter, v = lane / 4 + 8 * e;
        const word4 nothing = {};
        split_words(c < k && v < vectors ? *(const word4*)(x + (i64)v * k + c) : nothing, given[u][e]);
      }
#pragma unroll
    for (int u = 0; u < U; u++) {
      const int c = at + 32 * u + quarter;
      if (norm) {
        EightOf<N> scale = {};
        if (c < k) scale.load(norm + c);
        float m[8];
        scale.unpack(m);
#pragma unroll
        for (int e = 0; e < Eights; e++)
#pragma unroll
          for (int i = 0; i < 4; i++) {
            const float a = low_of<T>(given[u][e][i]), b = high_of<T>(given[u][e][i]);
            square[e] = fmag(a, a, fmag(b, b, square[e]));
            given[u][e][i] = pack_pair<T>(a * m[2 * i], b * m[2 * i + 1]);
          }
      }
#pragma unroll
      for (int s = 0; s < 2; s++) {
        Frag right = {};
#pragma unroll
        for (int e = 0; e < Eights; e++)
          right.w[2 * e] = given[u][e][2 * s], right.w[2 * e + 1] = given[u][e][2 * s + 1];
#pragma unroll
        for (int t = 0; t < 2; t++) {
          u32 top[4], bottom[4];
          split_words(held[u][t][0], top);
          split_words(held[u][t][1], bottom);
          const Frag left = {{top[2 * s], bottom[2 * s], top[2 * s + 1], bottom[2 * s + 1]}};
          if constexpr (V == 8) multiply_eight<T>(sums[t], left, right);
          else multiply<T>(sums[t], left, right);
        }
      }
    }
    if (at + Step < k) {
      at += Step;
      fetch();
      at -= Step;
    }
  }
#pragma unroll
  for (int t = 0; t < 2; t++)
#pragma unroll
    for (int j = 0; j < 4 * Eights; j++) parts[wave][t][acc_row(lane, j)][acc_col(lane, j)] = sums[t].x[j];
  if (norm) {
#pragma unroll
    for (int e = 0; e < Eights; e++) {
      square[e] += shfl_xor(square[e], 1, WICK_WAVE);
      square[e] += shfl_xor(square[e], 2, WICK_WAVE);
      if (lane % 4 == 0) squares[wave][lane / 4 + 8 * e] = square[e];
    }
  }
  __syncthreads();
  UNROLL(1, 1)
  for (int r = threadIdx.x; r < Results * vectors; r += BATCH_THREADS) {
    const int v = r / Results, row = r % Results, i = first + row;
    if (i >= n) continue;
    float value = 0, up = 0, all = 0;
#pragma unroll
    for (int o = 0; o < BATCH_WAVES; o++) {
      value += parts[o][Gate ? 0 : row / 16][row % 16][v];
      if (Gate) up += parts[o][1][row][v];
      if (norm) all += squares[o][v];
    }
    const float factor = norm ? rsqrtg(all / (float)k + eps) : 1.0f;
    value *= factor;
    if (Gate) value = activated(act, value) * (up * factor);
    const i64 to = (i64)v * n + i;
    if (bias) value += (float)to_compute(bias[i]);
    if (residual) value += (float)to_compute(residual[to]);
    out[to] = from_compute<T>(value);
  }
}
#else
// Waves of 64 are not served: their products share out rows and columns in another way.
template <class T, class N, int V, bool Gate>
WICK_FN void decode_batch_rows(const T*, const N*, float, const T*, const T*, const T*, T*, i32, i32, i32, i32) {}
#endif

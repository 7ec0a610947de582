// One token through a mixture of experts in three launches: logits of the router, gates of the chosen experts, their
// weighted sum. Only what is chosen is read, as fast as dense weights (decode-rows.h).
//   decode_router_T_N        grid (experts), block up to 256; the last block to end chooses
//   decode_chosen_gate_T     grid (ceil(inner / (R/2)), chosen), block up to 256
//   decode_chosen_sum_T      grid (ceil(n / R)), block up to 256
// The sum knows the choice before it is known that its vector is there, and asks for weights ahead of that.
#include "decode-rows.h"

constexpr int MOST_EXPERTS = 1024, MOST_CHOSEN = 32;

/** How a router's logits become experts and their weights; src/backends/gpu/decode-experts.ts lists both in order. */
enum Score { SCORE_SOFTMAX, SCORE_SIGMOID, SCORE_LOGITS };
enum Weigh { WEIGH_KEPT, WEIGH_NORMALISED, WEIGH_SOFTMAX, WEIGH_SIGMOID };
struct Choice {
  float* logits;
  /** What is chosen, and its weights. */
  i32* id;
  float* weight;
  /** Counts blocks; 0 before and after. */
  u32* arrived;
  /** Takes part in the choice but not in the weights; null for none. */
  const float* bias;
  i32 experts, chosen, score, weigh;
  float factor;
  /** Added to the sum that normalises, and its least value. */
  float add, least;
};

/** A float's place among all, NaN above; larger ones have larger words. */
WICK_FN u32 choice_key(float x) {
  const u32 bits = bits_as<u32>(x);
  return x != x ? ~0u : bits >> 31 ? ~bits : bits | 0x80000000u;
}
template <class F> WICK_FN float wave_joined(float v, F join) {
#pragma unroll
  for (u32 m = WICK_WAVE / 2; m; m /= 2) v = join(v, shfl_xor(v, m, WICK_WAVE));
  return v;
}

/** By the whole block, once all logits are there; scores of the chosen become weights. */
WICK_FN void choose(const Choice& p) {
  __shared__ float kept[MOST_CHOSEN];
  __shared__ float scores[MOST_EXPERTS];
  __shared__ u32 keys[MOST_EXPERTS];
  const i32 lane = (i32)lane_id(), n = p.experts;
  // Not by the nearest cache, which may remember older ones.
  ROLLED for (i32 e = threadIdx.x; e < n; e += blockDim.x) scores[e] = ((volatile const float*)p.logits)[e];
  __syncthreads();
  float most = 0, sum = 1;
  if (p.score == SCORE_SOFTMAX) {
    most = bits_as<float>(0xff800000u);
    ROLLED for (i32 e = lane; e < n; e += WICK_WAVE) most = fmaxf(most, scores[e]);
    most = wave_joined(most, [](float a, float b) { return fmaxf(a, b); });
    sum = 0;
    ROLLED for (i32 e = lane; e < n; e += WICK_WAVE) sum += expg(scores[e] - most);
    sum = wave_joined(sum, [](float a, float b) { return a + b; });
  }
  __syncthreads();
  ROLLED for (i32 e = threadIdx.x; e < n; e += blockDim.x) {
    const float x = scores[e], score = p.score == SCORE_SOFTMAX   ? expg(x - most) / sum
                                       : p.score == SCORE_SIGMOID ? 1.0f / (1.0f + expg(-x))
                                                                  : x;
    scores[e] = score;
    keys[e] = choice_key(p.bias ? score + p.bias[e] : score);
  }
  __syncthreads();
  ROLLED for (i32 e = threadIdx.x; e < n; e += blockDim.x) {
    // Of equal ones the first comes first, so that no two have one place.
    const u32 mine = keys[e];
    i32 place = 0;
    UNROLL(8, 4)
    for (i32 o = 0; o < n; o++) place += keys[o] > mine || (keys[o] == mine && o < e);
    if (place < p.chosen) {
      p.id[place] = e;
      kept[place] = scores[e];
    }
  }
  __syncthreads();
  const i32 j = threadIdx.x;
  if (j >= p.chosen) return;
  float weight = kept[j];
  if (p.weigh == WEIGH_SIGMOID) weight = 1.0f / (1.0f + expg(-weight));
  if (p.weigh == WEIGH_NORMALISED) {
    float all = 0;
    ROLLED for (i32 o = 0; o < p.chosen; o++) all += kept[o];
    weight /= fmaxf(all + p.add, p.least);
  }
  if (p.weigh == WEIGH_SOFTMAX) {
    float best = weight, all = 0;
    ROLLED for (i32 o = 0; o < p.chosen; o++) best = fmaxf(best, kept[o]);
    ROLLED for (i32 o = 0; o < p.chosen; o++) all += expg(kept[o] - best);
    weight = expg(weight - best) / all;
  }
  p.weight[j] = weight * p.factor;
}

// logits[e] = w[e] norm(x) + bias[e], one expert a block. The norm's result is rounded as ops round it: a rounding
// less could choose another expert.
template <class T, class N>
WICK_FN void decode_router(const Choice& p, const T* x, const N* norm, float eps, const float* w, const float* bias,
                           i32 k) {
  constexpr int P = pack_size<T>, Q = P / 4;
  __shared__ float sums[DECODE_WAVES];
  __shared__ u32 before;
  const int from = threadIdx.x * P, chunk = blockDim.x * P, waves = blockDim.x / WICK_WAVE;
  const float* row = w + (i64)blockIdx.x * k;
  word4 first[Q];
#pragma unroll
  for (int q = 0; q < Q; q++) first[q] = load_once_if<true>(from < k, (const word4*)(row + from) + q);
  Words<P * sizeof(N)> scale = {};
  if (norm && from < k) scale.load(norm + from);
  begin_in_turn();
  const float factor = norm ? norm_factor(x, eps, k) : 1.0f;
  float sum = 0;
  UNROLL(1, 1)
  for (int c = from; c < k; c += chunk) {
    float v[P];
    unpack_word<T>(*(const word4*)(x + c), v);
    if (norm) {
      float m[P];
      if (c != from) scale.load(norm + c);
      unpack_words<T, N>(scale.w, m);
#pragma unroll
      for (int e = 0; e < P; e++) v[e] = rounded<T>(v[e] * factor * m[e]);
    }
#pragma unroll
    for (int q = 0; q < Q; q++) {
      float m[4];
      unpack_word<float>(c == from ? first[q] : load_once((const word4*)(row + c) + q), m);
#pragma unroll
      for (int e = 0; e < 4; e++) sum = fmag(v[4 * q + e], m[e], sum);
    }
  }
  sum = wave_joined(sum, [](float a, float b) { return a + b; });
  if (lane_id() == 0) sums[wave_id()] = sum;
  __syncthreads();
  if (threadIdx.x == 0) {
    sum = 0;
    ROLLED for (int i = 0; i < waves; i++) sum += sums[i];
    p.logits[blockIdx.x] = bias ? sum + bias[blockIdx.x] : sum;
    before = arrive(p.arrived);
  }
  __syncthreads();
  if (before + 1 != gridDim.x) return;
  if (threadIdx.x == 0) *p.arrived = 0;
  choose(p);
}

// out[j] = activation(gate) * up of the expert that is chosen as number j; w is (experts, 2 n, k), gates over ups.
template <class T, class N, int R, int U>
WICK_FN void decode_chosen_gate(const Choice& p, const T* x, const N* norm, float eps, const T* w, T* out, i32 act,
                                i32 n, i32 k) {
  begin_in_turn();
  decode_rows<T, N, R, U, true>(x, norm, eps, w + (i64)p.id[blockIdx.y] * 2 * n * k, nullptr, nullptr,
                                out + (i64)blockIdx.y * n, nullptr, act, n, k);
}

// out = residual + the sum over j of weight[j] times w[id[j]] x[j]; w is (experts, n, k), x (chosen, k). To the threads
// the rows of all chosen experts are one long row.
template <class T, int R, int U>
WICK_FN void decode_chosen_sum(const Choice& p, const T* x, const T* w, const T* residual, T* out, i32 n, i32 k) {
  constexpr int P = pack_size<T>;
  __shared__ i32 ids[MOST_CHOSEN];
  __shared__ float weights[MOST_CHOSEN], parts[DECODE_WAVES][R];
  // Two launches old; not by the nearest cache, which may remember another layer's.
  if ((int)threadIdx.x < p.chosen) {
    ids[threadIdx.x] = ((volatile const i32*)p.id)[threadIdx.x];
    weights[threadIdx.x] = ((volatile const float*)p.weight)[threadIdx.x];
  }
  __syncthreads();
  const int lane = lane_id(), wave = wave_id(), first = blockIdx.x * R, words = k / P, all = p.chosen * words,
            step = blockDim.x;
  float sums[R] = {};
  UNROLL(1, 1)
  for (int c0 = 0; c0 < all; c0 += U * step) {
    word4 held[U][R];
    float by[U];
#pragma unroll
    for (int u = 0; u < U; u++) {
      const int c = c0 + u * step + (int)threadIdx.x, j = c < all ? c / words : 0;
      const T* row = w + (i64)ids[j] * n * k + (c - j * words) * P;
      by[u] = weights[j];
#pragma unroll
      for (int r = 0; r < R; r++)
        held[u][r] = load_once_if<true>(c < all, (const word4*)(row + (i64)(first + r < n ? first + r : n - 1) * k));
    }
    if (c0 == 0) begin_in_turn();
#pragma unroll
    for (int u = 0; u < U; u++) {
      const int c = c0 + u * step + (int)threadIdx.x;
      float v[P], m[P];
      unpack_word<T>(c < all ? *(const word4*)(x + c * P) : word4{}, v);
#pragma unroll
      for (int e = 0; e < P; e++) v[e] *= by[u];
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
  __syncthreads();
  const int i = first + (int)threadIdx.x, waves = blockDim.x / WICK_WAVE;
  if (threadIdx.x >= R || i >= n) return;
  float value = residual ? (float)to_compute(residual[i]) : 0.0f;
  ROLLED for (int o = 0; o < waves; o++) value += parts[o][threadIdx.x];
  out[i] = from_compute<T>(value);
}

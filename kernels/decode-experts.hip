// One token through a mixture of experts in three launches: logits of the router, gates of the chosen experts, their
// weighted sum. Only what is chosen is read, as fast as dense weights (decode-rows.h). Experts that every token goes to
// stand beside the chosen ones: their gates come first and are asked for while the router is still at work.
//   decode_router_T_N        grid (experts), block up to 256
//   decode_chosen_gate_T     grid (ceil(every / (R/2)) + chosen * ceil(n / (R/2))), block up to 256
//   decode_chosen_sum_T      grid (ceil(n / R)), block up to 256
// Every block makes the choice by itself: a wave finds it faster than a launch's last block could tell all others. The
// sum knows the logits before it is known that its vector is there, and asks for weights ahead of that.
#include "decode-rows.h"

constexpr int MOST_EXPERTS = 1024, MOST_CHOSEN = 32;

/** How a router's logits become experts and their weights; src/backends/gpu/decode-experts.ts lists both in order. */
enum Score { SCORE_SOFTMAX, SCORE_SIGMOID, SCORE_LOGITS };
enum Weigh { WEIGH_KEPT, WEIGH_NORMALISED, WEIGH_SOFTMAX, WEIGH_SIGMOID };
struct Choice {
  const float* logits;
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

WICK_FN u32 wave_most(u32 v) {
#if defined(WICK_NVIDIA) && defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
  return __reduce_max_sync(~0u, v);
#else
#pragma unroll
  for (u32 m = WICK_WAVE / 2; m; m /= 2) {
    const u32 other = shfl_xor(v, m, WICK_WAVE);
    v = other > v ? other : v;
  }
  return v;
#endif
}

/** By a wave, once all logits are there: the first `count` experts of the choice and their scores. */
WICK_FN void choose(const Choice& p, i32 count, i32* ids, float* kept) {
  // A lane looks after its own experts alone.
  __shared__ float scores[MOST_EXPERTS];
  __shared__ u32 keys[MOST_EXPERTS];
  const i32 lane = (i32)lane_id(), n = p.experts;
  float most = bits_as<float>(0xff800000u), sum = 0;
  // Not by the nearest cache, which may remember another layer's.
  UNROLL(2, 4)
  for (i32 e = lane; e < n; e += WICK_WAVE) {
    const float x = ((volatile const float*)p.logits)[e];
    scores[e] = x;
    most = fmaxf(most, x);
  }
  if (p.score == SCORE_SOFTMAX) {
    most = wave_joined(most, [](float a, float b) { return fmaxf(a, b); });
    UNROLL(2, 4)
    for (i32 e = lane; e < n; e += WICK_WAVE) sum += expg(scores[e] - most);
    sum = wave_joined(sum, [](float a, float b) { return a + b; });
  }
  UNROLL(2, 4)
  for (i32 e = lane; e < n; e += WICK_WAVE) {
    const float x = scores[e], score = p.score == SCORE_SOFTMAX   ? expg(x - most) / sum
                                       : p.score == SCORE_SIGMOID ? 1.0f / (1.0f + expg(-x))
                                                                  : x;
    scores[e] = score;
    keys[e] = choice_key(p.bias ? score + p.bias[e] : score);
  }
  ROLLED for (i32 place = 0; place < count; place++) {
    u32 key = 0, e_of = 0;
    UNROLL(2, 4)
    for (i32 e = lane; e < n; e += WICK_WAVE)
      if (keys[e] > key) key = keys[e], e_of = (u32)e;
    // Of equal ones the first comes first. No number has the key 0, which those have that are chosen.
    const u32 best = wave_most(key), e = ~wave_most(key == best ? ~e_of : 0u);
    if (e_of != e || key != best) continue;
    keys[e] = 0;
    ids[place] = (i32)e;
    kept[place] = scores[e];
  }
  sync_wave();
}
/** The weight of number j among the chosen. */
WICK_FN float weight_of(const Choice& p, const float* kept, i32 j) {
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
  return weight * p.factor;
}

// logits[e] = w[e] norm(x) + bias[e], one expert a block. The norm's result is rounded as ops round it: a rounding
// less could choose another expert.
template <class T, class N>
WICK_FN void decode_router(const T* x, const N* norm, float eps, const float* w, const float* bias, float* logits,
                           i32 k) {
  constexpr int P = pack_size<T>, Q = P / 4;
  __shared__ float sums[DECODE_WAVES];
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
  if (threadIdx.x != 0) return;
  sum = 0;
  ROLLED for (int i = 0; i < waves; i++) sum += sums[i];
  logits[blockIdx.x] = bias ? sum + bias[blockIdx.x] : sum;
}

// out[j] = activation(gate) * up of the expert that is chosen as number j; w is (experts, 2 n, k), gates over ups. What
// follows them in out is the gate of `shared`, (2 every, k), where every token goes to.
template <class T, class N, int R, int U>
WICK_FN void decode_chosen_gate(const Choice& p, const T* x, const N* norm, float eps, const T* w, const T* shared,
                                T* out, i32 act, i32 n, i32 every, i32 k) {
  __shared__ i32 ids[MOST_CHOSEN];
  __shared__ float kept[MOST_CHOSEN];
  const int of_all = (every + R / 2 - 1) / (R / 2), tiles = (n + R / 2 - 1) / (R / 2);
  int tile = blockIdx.x;
  if (tile < of_all) {
    w = shared, out += (i64)p.chosen * n, n = every;
  } else {
    const int j = (tile - of_all) / tiles;
    tile = (tile - of_all) % tiles;
    begin_in_turn();
    if (wave_id() == 0) choose(p, j + 1, ids, kept);
    __syncthreads();
    w += (i64)ids[j] * 2 * n * k, out += (i64)j * n;
  }
  decode_tile<T, N, R, U, true>(tile, x, norm, eps, w, nullptr, nullptr, out, nullptr, act, n, k);
}

// out = residual + the sum over j of weight[j] times w[id[j]] x[j] + shared times what follows in x; w is (experts, n,
// k), x (chosen, k) and `every` more, shared (n, every). To the threads the rows of all experts are one long row.
template <class T, int R, int U>
WICK_FN void decode_chosen_sum(const Choice& p, const T* x, const T* w, const T* shared, const T* residual, T* out,
                               i32 n, i32 every, i32 k) {
  constexpr int P = pack_size<T>;
  __shared__ i32 ids[MOST_CHOSEN];
  __shared__ float kept[MOST_CHOSEN], weights[MOST_CHOSEN], parts[DECODE_WAVES][R];
  const int lane = lane_id(), wave = wave_id(), first = blockIdx.x * R, words = k / P, of_chosen = p.chosen * words,
            all = of_chosen + every / P, step = blockDim.x;
  if (wave == 0) {
    choose(p, p.chosen, ids, kept);
    if (lane < p.chosen) weights[lane] = weight_of(p, kept, lane);
  }
  __syncthreads();
  float sums[R] = {};
  UNROLL(1, 1)
  for (int c0 = 0; c0 < all; c0 += U * step) {
    word4 held[U][R];
    float by[U];
#pragma unroll
    for (int u = 0; u < U; u++) {
      const int c = c0 + u * step + (int)threadIdx.x, j = c < of_chosen ? c / words : 0;
      const bool chosen = c < of_chosen;
      const T* row = chosen ? w + (i64)ids[j] * n * k + (c - j * words) * P : shared + (c - of_chosen) * P;
      const i32 width = chosen ? k : every;
      by[u] = chosen ? weights[j] : 1.0f;
#pragma unroll
      for (int r = 0; r < R; r++)
        held[u][r] =
            load_once_if<true>(c < all, (const word4*)(row + (i64)(first + r < n ? first + r : n - 1) * width));
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

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

/** A logit, not by the nearest cache, which may remember another layer's. */
WICK_FN float logit_of(const Choice& p, i32 e) { return ((volatile const float*)p.logits)[e]; }
/** The largest logit and what softmax divides by. */
struct Softmax {
  float most, sum;
};
WICK_FN Softmax softmax_of(const Choice& p) {
  float most = bits_as<float>(0xff800000u), sum = 0;
  UNROLL(2, 4)
  for (i32 e = (i32)lane_id(); e < p.experts; e += WICK_WAVE) most = fmaxf(most, logit_of(p, e));
  most = wave_joined(most, [](float a, float b) { return fmaxf(a, b); });
  UNROLL(2, 4)
  for (i32 e = (i32)lane_id(); e < p.experts; e += WICK_WAVE) sum += expg(logit_of(p, e) - most);
  return {most, wave_joined(sum, [](float a, float b) { return a + b; })};
}
WICK_FN float score_of(const Choice& p, float x, const Softmax& all) {
  return p.score == SCORE_SOFTMAX   ? expg(x - all.most) / all.sum
         : p.score == SCORE_SIGMOID ? 1.0f / (1.0f + expg(-x))
                                    : x;
}

/** Experts of a lane that keeps them in registers. */
constexpr int HELD_EXPERTS = 4;
/**
 * By a wave, once all logits are there: the first `count` experts of the choice. Every block's weights wait for it, so a
 * lane keeps what it looks after in registers where that is `Few`.
 */
template <bool Few> WICK_FN void choose(const Choice& p, i32 count, i32* ids) {
  __shared__ u32 shared_keys[Few ? 1 : MOST_EXPERTS];
  u32 keys[Few ? HELD_EXPERTS : 1], most = 0;
  // Lanes have experts that follow one another, so that of equal ones the first lane's come first.
  const i32 each = Few ? HELD_EXPERTS : (p.experts + WICK_WAVE - 1) / WICK_WAVE, first = (i32)lane_id() * each;
  // Scores are in the order of logits, so they matter where something is added to them.
  Softmax all = {};
  if (p.bias && p.score == SCORE_SOFTMAX) all = softmax_of(p);
  auto key_of = [&](i32 e) {
    // No number has the key 0.
    if (e >= p.experts) return 0u;
    const float x = logit_of(p, e);
    return choice_key(p.bias ? score_of(p, x, all) + p.bias[e] : x);
  };
  if constexpr (Few) {
#pragma unroll
    for (i32 i = 0; i < HELD_EXPERTS; i++) keys[i] = key_of(first + i), most = keys[i] > most ? keys[i] : most;
  } else {
    UNROLL(2, 4)
    for (i32 i = 0; i < each; i++) {
      const u32 key = key_of(first + i);
      shared_keys[i * WICK_WAVE + (i32)lane_id()] = key, most = key > most ? key : most;
    }
  }
  ROLLED for (i32 place = 0; place < count; place++) {
    const u32 best = wave_most(most);
    const u64 lanes = ballot64(most == best);
    if (most != best || lanes & lanes_before()) continue;
    bool taken = false;
    most = 0;
    auto look = [&](i32 i, u32& key) {
      if (!taken && key == best) taken = true, key = 0, ids[place] = first + i;
      most = key > most ? key : most;
    };
    if constexpr (Few) {
#pragma unroll
      for (i32 i = 0; i < HELD_EXPERTS; i++) look(i, keys[i]);
    } else {
      UNROLL(2, 4)
      for (i32 i = 0; i < each; i++) look(i, shared_keys[i * WICK_WAVE + (i32)lane_id()]);
    }
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

/** Weights of all that are chosen, by a wave. */
WICK_FN void weigh(const Choice& p, const i32* ids, float* kept, float* weights) {
  const i32 lane = (i32)lane_id();
  Softmax all = {};
  if (p.score == SCORE_SOFTMAX) all = softmax_of(p);
  if (lane < p.chosen) kept[lane] = score_of(p, logit_of(p, ids[lane]), all);
  sync_wave();
  if (lane < p.chosen) weights[lane] = weight_of(p, kept, lane);
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
template <class T, class N, int R, int U, bool Few>
WICK_FN void decode_chosen_gate(const Choice& p, const T* x, const N* norm, float eps, const T* w, const T* shared,
                                T* out, i32 act, i32 n, i32 every, i32 k) {
  __shared__ i32 ids[MOST_CHOSEN];
  const int of_all = (every + R / 2 - 1) / (R / 2), tiles = (n + R / 2 - 1) / (R / 2);
  int tile = blockIdx.x;
  if (tile < of_all) {
    w = shared, out += (i64)p.chosen * n, n = every;
  } else {
    const int j = (tile - of_all) / tiles;
    tile = (tile - of_all) % tiles;
    begin_in_turn();
    if (wave_id() == 0) choose<Few>(p, j + 1, ids);
    __syncthreads();
    w += (i64)ids[j] * 2 * n * k, out += (i64)j * n;
  }
  decode_tile<T, N, R, U, true>(tile, x, norm, eps, w, nullptr, nullptr, out, nullptr, act, n, k);
}

// out = residual + the sum over j of weight[j] times w[id[j]] x[j] + shared times what follows in x; w is (experts, n,
// k), x (chosen, k) and `every` more, shared (n, every). To the threads the rows of all experts are one long row.
template <class T, int R, int U, bool Few>
WICK_FN void decode_chosen_sum(const Choice& p, const T* x, const T* w, const T* shared, const T* residual, T* out,
                               i32 n, i32 every, i32 k) {
  constexpr int P = pack_size<T>;
  __shared__ i32 ids[MOST_CHOSEN];
  __shared__ float kept[MOST_CHOSEN], weights[MOST_CHOSEN], parts[DECODE_WAVES][R];
  const int lane = lane_id(), wave = wave_id(), first = blockIdx.x * R, words = k / P, of_chosen = p.chosen * words,
            all = of_chosen + every / P, step = blockDim.x;
  if (wave == 0) choose<Few>(p, p.chosen, ids);
  __syncthreads();
  float sums[R] = {};
  UNROLL(1, 1)
  for (int c0 = 0; c0 < all; c0 += U * step) {
    word4 held[U][R];
#pragma unroll
    for (int u = 0; u < U; u++) {
      const int c = c0 + u * step + (int)threadIdx.x, j = c < of_chosen ? c / words : 0;
      const bool chosen = c < of_chosen;
      const T* row = chosen ? w + (i64)ids[j] * n * k + (c - j * words) * P : shared + (c - of_chosen) * P;
      const i32 width = chosen ? k : every;
#pragma unroll
      for (int r = 0; r < R; r++)
        held[u][r] =
            load_once_if<true>(c < all, (const word4*)(row + (i64)(first + r < n ? first + r : n - 1) * width));
    }
    if (c0 == 0) {
      // What the chosen weigh is found while theirs are on their way.
      if (wave == 0) weigh(p, ids, kept, weights);
      __syncthreads();
      begin_in_turn();
    }
#pragma unroll
    for (int u = 0; u < U; u++) {
      const int c = c0 + u * step + (int)threadIdx.x;
      const float by = c < of_chosen ? weights[c / words] : 1.0f;
      float v[P], m[P];
      unpack_word<T>(c < all ? *(const word4*)(x + c * P) : word4{}, v);
#pragma unroll
      for (int e = 0; e < P; e++) v[e] *= by;
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

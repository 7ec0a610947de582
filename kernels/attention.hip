// Attention for every element type and every GPU: tiled online softmax in plain arithmetic, and the split-keys pair for decoding.
//
// attention_T_D: grid (query tiles, heads, batch), 256 threads as 16 x 16; the tile is attention_rows queries by as many keys.
#include "attention.h"
#include "attention-split.h"
#include "attention-tile.h"
#include "block.h"

template <class T, int D> WICK_FN void attention_forward(const Attention& p) {
  typedef compute_t<T> A;
  constexpr int R = tile_side<T>, B = 16 * R;
  __shared__ A left[B][33], right[B][33], weights[B][B + 1];
  int tx = threadIdx.x % 16, ty = threadIdx.x / 16, head = blockIdx.y, kv_head = head / (p.heads / p.kv_heads);
  Sequence s = sequence_of(p, blockIdx.z);
  int i0 = blockIdx.x * B;
  if (i0 >= s.nq) return;
  Range keys = keys_seen(p, s, i0, i0 + B - 1);
  A out[R][D / 16] = {}, top[R], sum[R] = {};
#pragma unroll
  for (int r = 0; r < R; r++) top[r] = Limits<A>::lowest();

  for (int j0 = keys.begin / B * B; j0 < keys.end; j0 += B) {
    A score[R][R] = {};
    tile_dot<T>(score, left, right, p.dim,
      [&](int r) { return i0 + r < s.nq ? query_row<const T>(p.q, p.q_strides, s, head, i0 + r) : nullptr; },
      [&](int r) { return j0 + r < s.nk ? key_row<const T>(p, p.k, p.k_strides, s, kv_head, j0 + r) : nullptr; });
#pragma unroll
    for (int r = 0; r < R; r++) {
      int i = i0 + ty + 16 * r;
      A best = top[r];
#pragma unroll
      for (int c = 0; c < R; c++) {
        int j = j0 + tx + 16 * c;
        score[r][c] = is_seen(p, s, i, j) ? logit_of<T>(p, s, head, i, j, score[r][c]) : Limits<A>::lowest();
        best = score[r][c] > best ? score[r][c] : best;
      }
      for (int m = 8; m; m /= 2) {
        A other = shfl_xor(best, m, 16);
        best = other > best ? other : best;
      }
      A keep = top[r] == best ? A(1) : expg(top[r] - best), added = 0;
#pragma unroll
      for (int c = 0; c < R; c++) {
        A w = score[r][c] == Limits<A>::lowest() ? A(0) : expg(score[r][c] - best);
        weights[ty + 16 * r][tx + 16 * c] = w;
        added += w;
      }
      for (int m = 8; m; m /= 2) added += shfl_xor(added, m, 16);
      sum[r] = sum[r] * keep + added;
      top[r] = best;
#pragma unroll
      for (int e = 0; e < D / 16; e++) out[r][e] *= keep;
    }
    tile_sum<T, false>(out, weights, right, p.dim,
      [&](int r) { return j0 + r < s.nk ? key_row<const T>(p, p.v, p.v_strides, s, kv_head, j0 + r) : nullptr; });
  }

#pragma unroll
  for (int r = 0; r < R; r++) {
    int i = i0 + ty + 16 * r;
    if (p.sinks) add_sink(p.sinks[head], top[r], sum[r], out[r]);
    if (i >= s.nq) continue;
    A scale = sum[r] > 0 ? 1 / sum[r] : A(0);
    T* row = query_row<T>(p.out, p.out_strides, s, head, i);
#pragma unroll
    for (int e = 0; e < D / 16; e++) if (tx + 16 * e < p.dim) row[tx + 16 * e] = from_compute<T>(out[r][e] * scale);
    if (p.lse && tx == 0) ((A*)p.lse)[lse_index(p, s, head, i)] = top[r] + logg(sum[r]);
  }
}

#define ATTENTION_FORWARD(name, T)                                            \
  KERNEL(256) name##_64(Attention p) { attention_forward<T, 64>(p); }         \
  KERNEL(256) name##_128(Attention p) { attention_forward<T, 128>(p); }       \
  KERNEL(256) name##_256(Attention p) { attention_forward<T, 256>(p); }
FOR_REALS(ATTENTION_FORWARD, attention)

// ---- decoding: few queries, many keys -------------------------------------------------------------------------------------
//
// attention_split_T_D_G: grid (splits, query heads / G of one key head at a time, batch * tq), SPLIT_THREADS threads. A group of D/8
// lanes takes a key, eight numbers a lane, for G query heads that share it; every group keeps its own softmax, merged at the end.
// Speed is how many loads are under way: a lane asks for the keys and the values of Unroll rows before it uses one.

constexpr int SPLIT_THREADS = 128;

template <class T, int D, int G, int Unroll, int Threads, bool Ahead> WICK_FN void attention_split(const Attention& p) {
  constexpr int Lanes = D / 8, Groups = Threads / Lanes, Step = Groups * Unroll, HeadLanes = Lanes / G;
  constexpr int N = G * Unroll, Slots = N > Lanes ? N / Lanes : 1, Copies = N < Lanes ? Lanes / N : 1;  // scores: results a lane has, lanes a result has
  __shared__ float merged[Groups][G][2];
  __shared__ float outputs[Groups][D];
  const int lane = threadIdx.x % Lanes, group = threadIdx.x / Lanes, split = blockIdx.x;
  const int head0 = blockIdx.y * G, kv_head = head0 / (p.heads / p.kv_heads), batch = blockIdx.z / p.tq, i = blockIdx.z % p.tq;
  const Sequence s = sequence_of(p, batch);
  Range keys = keys_seen(p, s, i, i);
  if (i >= s.nq) keys.end = keys.begin;
  int each = (keys.end - keys.begin + p.splits - 1) / p.splits;
  each = (each + Step - 1) / Step * Step;
  const int begin = keys.begin + split * each, end = begin + each < keys.end ? begin + each : keys.end;
  const bool plain = is_plain(p);
  bool whole = p.dim % 8 == 0 && aligned16(p.k) && aligned16(p.v);
  for (int d = 0; d < 3; d++) whole &= p.k_strides[d] % 8 == 0 && p.v_strides[d] % 8 == 0;
  const float unit = plain ? (float)p.scale * 1.44269504f : 1.44269504f;  // from a score to a power of two

  float query[G][8], out[G][8] = {};
#pragma unroll
  for (int g = 0; g < G; g++)
#pragma unroll
    for (int e = 0; e < 8; e++) {
      int d = 8 * lane + e;
      query[g][e] = i < s.nq && d < p.dim ? (float)to_compute(query_row<const T>(p.q, p.q_strides, s, head0 + g, i)[d]) : 0.0f;
    }
  // This lane's share of the scores: of head `own`, keys `from` and following of a step.
  const int own = lane / HeadLanes, from = lane % HeadLanes * Slots / Copies;
  float top = Limits<float>::lowest(), sum = 0;
  auto fetch = [&](Eight<T> (&to)[Unroll], const void* base, const i64 (&strides)[3], int j0) {
    const T* at = p.pages ? nullptr : key_row<const T>(p, base, strides, s, kv_head, j0 + group);
    const i64 step = Groups * strides[2];
#pragma unroll
    for (int u = 0; u < Unroll; u++) {
      const int j = j0 + u * Groups + group;
      to[u] = Eight<T>{};
      if (j < end && 8 * lane < p.dim) to[u] = load_eight(p.pages ? key_row<const T>(p, base, strides, s, kv_head, j) : at, 8 * lane, p.dim, whole);
      if (!p.pages) at += step;
    }
  };

  Eight<T> key[Unroll], value[Unroll];
  if (Ahead) fetch(key, p.k, p.k_strides, begin);
  // Every group makes as many steps, since all lanes of a wave take part in shuffles.
  for (int j0 = begin; j0 < begin + each && j0 < keys.end; j0 += Step) {
    if (!Ahead) fetch(key, p.k, p.k_strides, j0);
    fetch(value, p.v, p.v_strides, j0);
    float score[N], x[8];
#pragma unroll
    for (int u = 0; u < Unroll; u++) {
      unpack_eight(key[u], x);
#pragma unroll
      for (int g = 0; g < G; g++) {
        float dot = 0;
#pragma unroll
        for (int e = 0; e < 8; e++) dot = fmaf(query[g][e], x[e], dot);
        score[g * Unroll + u] = dot;
      }
    }
    if (Ahead) fetch(key, p.k, p.k_strides, j0 + Step);
    scatter_sums<N, Lanes / 2, Lanes>(score, lane);
    float best = top;
#pragma unroll
    for (int c = 0; c < Slots; c++) {
      const int j = j0 + (from + c) * Groups + group;
      score[c] = j >= end ? Limits<float>::lowest() : plain ? score[c] * unit : logit_of<T>(p, s, head0 + own, i, j, score[c]) * unit;
      best = fmaxf(best, score[c]);
    }
#pragma unroll
    for (int m = HeadLanes / 2; m; m /= 2) best = fmaxf(best, shfl_xor(best, m, HeadLanes));
    const float shift = best == Limits<float>::lowest() ? 0 : best, keep = fast_exp2(top - shift);  // -infinity less itself would be NaN
    sum *= keep;
#pragma unroll
    for (int c = 0; c < Slots; c++) {
      score[c] = fast_exp2(score[c] - shift);
      sum += score[c];
    }
    if (ballot64(best != top)) {
#pragma unroll
      for (int g = 0; g < G; g++) {
        const float factor = shfl(keep, g * HeadLanes, Lanes);
#pragma unroll
        for (int e = 0; e < 8; e++) out[g][e] *= factor;
      }
    }
    top = best;
#pragma unroll
    for (int u = 0; u < Unroll; u++) {
      unpack_eight(value[u], x);
#pragma unroll
      for (int g = 0; g < G; g++) {
        const int n = g * Unroll + u;
        const float w = shfl(score[n % Slots], n / Slots * Copies, Lanes);
#pragma unroll
        for (int e = 0; e < 8; e++) out[g][e] = fmaf(w, x[e], out[g][e]);
      }
    }
  }

#pragma unroll
  for (int m = HeadLanes / 2; m; m /= 2) sum += shfl_xor(sum, m, HeadLanes);
  if (lane % HeadLanes == 0) merged[group][own][0] = top, merged[group][own][1] = sum / Copies;
  __syncthreads();
#pragma unroll
  for (int g = 0; g < G; g++) {
    float best = Limits<float>::lowest(), total = 0;
    for (int w = 0; w < Groups; w++) best = fmaxf(best, merged[w][g][0]);
    for (int w = 0; w < Groups; w++) if (merged[w][g][1] > 0) total += merged[w][g][1] * fast_exp2(merged[w][g][0] - best);
    const float keep = merged[group][g][1] > 0 ? fast_exp2(merged[group][g][0] - best) : 0;
#pragma unroll
    for (int e = 0; e < 8; e++) outputs[group][8 * lane + e] = out[g][e] * keep;
    __syncthreads();
    if (i < s.nq) {
      i64 row = (((i64)batch * p.heads + head0 + g) * p.tq + i) * p.splits + split;
      for (int d = threadIdx.x; d < p.dim; d += Threads) {
        float added = 0;
#pragma unroll
        for (int w = 0; w < Groups; w++) added += outputs[w][d];
        ((float*)p.partial)[row * p.dim + d] = total > 0 ? added / total : 0;
      }
      if (threadIdx.x == 0) ((float*)p.partial_lse)[row] = total > 0 ? best * 0.69314718f + logg(total) : Limits<float>::lowest();
    }
    __syncthreads();
  }
}

/** Rows a lane has under way for eight heads; on AMD as many as leave registers for the rest. */
#ifdef WICK_AMD
template <class T, int D> constexpr int EIGHT_AHEAD = sizeof(T) == 4 || D == 256 ? 2 : 4;
#else
template <class T, int D> constexpr int EIGHT_AHEAD = 4;
#endif
#define ATTENTION_SPLIT(name, T, D)                                                                            \
  KERNEL(SPLIT_THREADS) name##_##D##_1(Attention p) { attention_split<T, D, 1, sizeof(T) == 4 ? 4 : 8, SPLIT_THREADS, false>(p); }  \
  KERNEL(SPLIT_THREADS) name##_##D##_2(Attention p) { attention_split<T, D, 2, sizeof(T) == 4 ? 4 : 8, SPLIT_THREADS, false>(p); }  \
  KERNEL(SPLIT_THREADS) name##_##D##_4(Attention p) { attention_split<T, D, 4, 4, SPLIT_THREADS, false>(p); }  \
  KERNEL(SPLIT_THREADS) name##_##D##_8(Attention p) { attention_split<T, D, 8, EIGHT_AHEAD<T, D>, SPLIT_THREADS, false>(p); }
#define ATTENTION_SPLITS(name, T) \
  ATTENTION_SPLIT(name, T, 64)    \
  ATTENTION_SPLIT(name, T, 128)   \
  ATTENTION_SPLIT(name, T, 256)
ATTENTION_SPLITS(attention_split_f32, float)
ATTENTION_SPLITS(attention_split_f16, half)
ATTENTION_SPLITS(attention_split_bf16, bfloat)

// attention_combine_T: grid (tq, heads, batch), COMBINE_THREADS threads: the splits of a row weighed by their lse. Threads with the same
// number of the head dimension share out the splits, many loads under way at once.
constexpr int COMBINE_THREADS = 512;
template <class T> WICK_FN void attention_combine(const Attention& p) {
  __shared__ float sums[COMBINE_THREADS], slots[WAVE_SLOTS];
  const int i = blockIdx.x, head = blockIdx.y, width = p.dim <= 64 ? 64 : p.dim <= 128 ? 128 : 256, parts = COMBINE_THREADS / width;
  const Sequence s = sequence_of(p, blockIdx.z);
  if (i >= s.nq) return;
  const i64 first = (((i64)blockIdx.z * p.heads + head) * p.tq + i) * p.splits;
  const float* lse = (const float*)p.partial_lse + first;
  const int d = threadIdx.x % width, part = threadIdx.x / width;
  const float* partial = (const float*)p.partial + first * p.dim + (d < p.dim ? d : 0);
  float top = p.sinks ? p.sinks[head] : Limits<float>::lowest();
  for (int w = threadIdx.x; w < p.splits; w += COMBINE_THREADS) top = fmaxf(top, lse[w]);
  top = group_max(top, COMBINE_THREADS, slots);
  float sum = 0, out = 0;
#pragma unroll 8
  for (int w = part; w < p.splits; w += parts) {
    const float weight = lse[w] == Limits<float>::lowest() ? 0.0f : expg(lse[w] - top);
    sum += weight;  // the same for every number of a part
    out = fmaf(weight, partial[(i64)w * p.dim], out);
  }
  sums[threadIdx.x] = out;
  sum = group_sum(d == 0 ? sum : 0.0f, COMBINE_THREADS, slots);
  if (p.sinks) sum += expg(p.sinks[head] - top);
  __syncthreads();
  if (part == 0 && d < p.dim) {
    for (int w = 1; w < parts; w++) out += sums[w * width + d];
    query_row<T>(p.out, p.out_strides, s, head, i)[d] = from_compute<T>(sum > 0 ? out / sum : 0.0f);
  }
  if (p.lse && threadIdx.x == 0) ((float*)p.lse)[lse_index(p, s, head, i)] = top + logg(sum);
}
KERNEL(COMBINE_THREADS) attention_combine_f32(Attention p) { attention_combine<float>(p); }
KERNEL(COMBINE_THREADS) attention_combine_f16(Attention p) { attention_combine<half>(p); }
KERNEL(COMBINE_THREADS) attention_combine_bf16(Attention p) { attention_combine<bfloat>(p); }

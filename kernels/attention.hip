// Attention for every element type and every GPU: tiled online softmax in plain arithmetic, and the split-keys pair for decoding.
//
// attention_T_D: grid (query tiles, heads, batch), 256 threads as 16 x 16; the tile is attention_rows queries by as many keys.
#include "attention.h"
#include "attention-tile.h"

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
// attention_split_T_D_G: grid (splits, query heads / G of one key head at a time, batch * tq), 128 threads. A group of D/8 lanes takes
// a key, eight numbers a lane, for G query heads that share it; every group keeps its own softmax, merged at the end.

template <class T> WICK_FN void load_eight(const T* row, int at, int dim, bool aligned, float (&out)[8]) {
  if (aligned && sizeof(T) == 2) {
    Pack<T> pack = load_pack(row + at);
    for (int e = 0; e < 8; e++) out[e] = to_compute(pack.v[e % pack_size<T>]);
  } else {
    for (int e = 0; e < 8; e++) out[e] = at + e < dim ? (float)to_compute(row[at + e]) : 0.0f;
  }
}

template <class T, int D, int G> WICK_FN void attention_split(const Attention& p) {
  constexpr int Lanes = D / 8, Groups = 128 / Lanes, Unroll = 4;
  __shared__ float merged[Groups][G][2];
  __shared__ float outputs[Groups][D];
  int lane = threadIdx.x % Lanes, group = threadIdx.x / Lanes, split = blockIdx.x;
  int head0 = blockIdx.y * G, kv_head = head0 / (p.heads / p.kv_heads), batch = blockIdx.z / p.tq, i = blockIdx.z % p.tq;
  Sequence s = sequence_of(p, batch);
  Range keys = keys_seen(p, s, i, i);
  if (i >= s.nq) keys.end = keys.begin;
  int each = (keys.end - keys.begin + p.splits - 1) / p.splits;
  each = (each + Groups * Unroll - 1) / (Groups * Unroll) * (Groups * Unroll);
  int begin = keys.begin + split * each, end = begin + each < keys.end ? begin + each : keys.end;
  bool plain = is_plain(p), aligned = p.dim % 8 == 0 && aligned16(p.k) && aligned16(p.v);
  for (int d = 0; d < 3; d++) aligned &= p.k_strides[d] % 8 == 0 && p.v_strides[d] % 8 == 0;
  bool whole = aligned && p.dim == D;

  float query[G][8], out[G][8] = {}, top[G], sum[G] = {};
  for (int g = 0; g < G; g++) {
    top[g] = Limits<float>::lowest();
    if (i < s.nq) load_eight(query_row<const T>(p.q, p.q_strides, s, head0 + g, i), 8 * lane, p.dim, false, query[g]);
  }
  // Every group makes as many steps, since all lanes of a wave take part in shuffles.
  for (int j0 = begin; j0 < begin + each && j0 < keys.end; j0 += Groups * Unroll) {
    float score[G][Unroll], value[Unroll][8];
#pragma unroll
    for (int u = 0; u < Unroll; u++) {
      int j = j0 + u * Groups + group;
      float key[8] = {};
      bool mine = j < end && (whole || 8 * lane < p.dim);
      if (mine) load_eight(key_row<const T>(p, p.k, p.k_strides, s, kv_head, j), 8 * lane, p.dim, aligned, key);
      for (int e = 0; e < 8; e++) value[u][e] = 0;
      if (mine) load_eight(key_row<const T>(p, p.v, p.v_strides, s, kv_head, j), 8 * lane, p.dim, aligned, value[u]);
#pragma unroll
      for (int g = 0; g < G; g++) {
        float dot = 0;
        for (int e = 0; e < 8; e++) dot = fmaf(query[g][e], key[e], dot);
        score[g][u] = dot;
      }
    }
#pragma unroll
    for (int u = 0; u < Unroll; u++) {
#pragma unroll
      for (int g = 0; g < G; g++)
        for (int m = Lanes / 2; m; m /= 2) score[g][u] += shfl_xor(score[g][u], m, Lanes);
    }
#pragma unroll
    for (int g = 0; g < G; g++) {
      float best = top[g];
#pragma unroll
      for (int u = 0; u < Unroll; u++) {
        int j = j0 + u * Groups + group;
        score[g][u] = j >= end ? Limits<float>::lowest()
          : plain ? score[g][u] * (float)p.scale : logit_of<T>(p, s, head0 + g, i, j, score[g][u]);
        best = fmaxf(best, score[g][u]);
      }
      float keep = top[g] == best ? 1.0f : fast_exp(top[g] - best);
      sum[g] *= keep;
      for (int e = 0; e < 8; e++) out[g][e] *= keep;
#pragma unroll
      for (int u = 0; u < Unroll; u++) {
        float w = score[g][u] == Limits<float>::lowest() ? 0.0f : fast_exp(score[g][u] - best);
        sum[g] += w;
        for (int e = 0; e < 8; e++) out[g][e] = fmaf(w, value[u][e], out[g][e]);
      }
      top[g] = best;
    }
  }

  if (lane == 0) for (int g = 0; g < G; g++) merged[group][g][0] = top[g], merged[group][g][1] = sum[g];
  __syncthreads();
  for (int g = 0; g < G; g++) {
    float best = Limits<float>::lowest(), total = 0;
    for (int w = 0; w < Groups; w++) best = fmaxf(best, merged[w][g][0]);
    for (int w = 0; w < Groups; w++) if (merged[w][g][1] > 0) total += merged[w][g][1] * fast_exp(merged[w][g][0] - best);
    float keep = sum[g] > 0 ? fast_exp(top[g] - best) : 0;
    for (int e = 0; e < 8; e++) outputs[group][8 * lane + e] = out[g][e] * keep;
    __syncthreads();
    if (i < s.nq) {
      i64 row = (((i64)batch * p.heads + head0 + g) * p.tq + i) * p.splits + split;
      for (int d = threadIdx.x; d < p.dim; d += 128) {
        float added = 0;
        for (int w = 0; w < Groups; w++) added += outputs[w][d];
        ((float*)p.partial)[row * p.dim + d] = total > 0 ? added / total : 0;
      }
      if (threadIdx.x == 0) ((float*)p.partial_lse)[row] = total > 0 ? best + logg(total) : Limits<float>::lowest();
    }
    __syncthreads();
  }
}

#define ATTENTION_SPLIT(name, T, D)                                            \
  KERNEL(128) name##_##D##_1(Attention p) { attention_split<T, D, 1>(p); }     \
  KERNEL(128) name##_##D##_2(Attention p) { attention_split<T, D, 2>(p); }     \
  KERNEL(128) name##_##D##_4(Attention p) { attention_split<T, D, 4>(p); }     \
  KERNEL(128) name##_##D##_8(Attention p) { attention_split<T, D, 8>(p); }
#define ATTENTION_SPLITS(name, T) \
  ATTENTION_SPLIT(name, T, 64)    \
  ATTENTION_SPLIT(name, T, 128)   \
  ATTENTION_SPLIT(name, T, 256)
ATTENTION_SPLITS(attention_split_f32, float)
ATTENTION_SPLITS(attention_split_f16, half)
ATTENTION_SPLITS(attention_split_bf16, bfloat)

// attention_combine_T: grid (tq, heads, batch), 128 threads: the splits of a row weighed by their lse.
template <class T> WICK_FN void attention_combine(const Attention& p) {
  int i = blockIdx.x, head = blockIdx.y;
  Sequence s = sequence_of(p, blockIdx.z);
  if (i >= s.nq) return;
  i64 first = (((i64)blockIdx.z * p.heads + head) * p.tq + i) * p.splits;
  const float* lse = (const float*)p.partial_lse + first;
  const float* partial = (const float*)p.partial + first * p.dim;
  float top = p.sinks ? p.sinks[head] : Limits<float>::lowest();
  for (int w = 0; w < p.splits; w++) top = fmaxf(top, lse[w]);
  float sum = p.sinks ? expg(p.sinks[head] - top) : 0;
  for (int w = 0; w < p.splits; w++) sum += lse[w] == Limits<float>::lowest() ? 0 : expg(lse[w] - top);
  T* row = query_row<T>(p.out, p.out_strides, s, head, i);
  for (int d = threadIdx.x; d < p.dim; d += 128) {
    float out = 0;
    for (int w = 0; w < p.splits; w++)
      if (lse[w] != Limits<float>::lowest()) out = fmaf(expg(lse[w] - top), partial[(i64)w * p.dim + d], out);
    row[d] = from_compute<T>(sum > 0 ? out / sum : 0.0f);
  }
  if (p.lse && threadIdx.x == 0) ((float*)p.lse)[lse_index(p, s, head, i)] = top + logg(sum);
}
KERNEL(128) attention_combine_f32(Attention p) { attention_combine<float>(p); }
KERNEL(128) attention_combine_f16(Attention p) { attention_combine<half>(p); }
KERNEL(128) attention_combine_bf16(Attention p) { attention_combine<bfloat>(p); }

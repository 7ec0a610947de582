// Attention of 16-bit floats on matrix units (mma, MFMA, WMMA): keys and values copied ahead, scores and sums never leave registers.
//
// attention_matrix_T_D: grid (query tiles, heads, batch), 4 waves; a wave has Tiles x 16 queries. Rows must be 16-byte aligned.
// | symbol          | queries a block | shared bytes |
// | _64             | 128             | 55296        |
// | _128            | 64              | 52224        |
// | _128_large      | 128             | 104448       |
// | _256            | 64              | 50688        |
// | _256_large      | 64              | 101376       |
#include "attention-matrix.h"

template <class T, int D, int Tiles, int Keys, int Stages> WICK_FN void attention_matrix(const Attention& p) {
  constexpr int Rows = 16 * Tiles * 4, Pitch = D + 8, Parts = D / 16, KeyTiles = Keys / 16;  // the pitch keeps rows on different banks
  DYNAMIC_SHARED(T, shared);
  T* queries = shared;
  T* stages = shared + Rows * Pitch;
  int head = blockIdx.y, kv_head = head / (p.heads / p.kv_heads), wave = wave_id();
  u32 lane = lane_id();
  Sequence s = sequence_of(p, blockIdx.z);
  int i0 = (gridDim.x - 1 - blockIdx.x) * Rows;  // the longest rows of a causal problem first
  if (i0 >= s.nq) return;
  Range keys = keys_seen(p, s, i0, i0 + Rows - 1);
  int first = keys.begin / Keys, last = (keys.end + Keys - 1) / Keys;

  auto load_row = [&](T* to, const T* from, int c) {
    u32 bytes = from && 8 * c < p.dim ? (p.dim - 8 * c < 8 ? (p.dim - 8 * c) * 2 : 16) : 0;
    async_copy16(to + 8 * c, bytes ? from + 8 * c : (const T*)p.q, bytes);
  };
  auto load_keys = [&](int tile) {
    T* k = stages + tile % Stages * 2 * Keys * Pitch;
    T* v = k + Keys * Pitch;
    for (int at = threadIdx.x; at < Keys * D / 8; at += ATTENTION_THREADS) {
      int r = at / (D / 8), c = at % (D / 8), j = tile * Keys + r;
      load_row(k + r * Pitch, j < s.nk ? key_row<const T>(p, p.k, p.k_strides, s, kv_head, j) : nullptr, c);
      load_row(v + r * Pitch, j < s.nk ? key_row<const T>(p, p.v, p.v_strides, s, kv_head, j) : nullptr, c);
    }
    async_commit();
  };
  for (int at = threadIdx.x; at < Rows * D / 8; at += ATTENTION_THREADS) {
    int r = at / (D / 8);
    load_row(queries + r * Pitch, i0 + r < s.nq ? query_row<const T>(p.q, p.q_strides, s, head, i0 + r) : nullptr, at % (D / 8));
  }
  if (first < last) load_keys(first);
  else async_commit();

  Acc out[Tiles][Parts] = {};
  float top[Tiles][LANE_QUERIES], sum[Tiles][LANE_QUERIES] = {};
#pragma unroll
  for (int t = 0; t < Tiles; t++)
#pragma unroll
    for (int r = 0; r < LANE_QUERIES; r++) top[t][r] = Limits<float>::lowest();
  const bool plain = is_plain(p);
  const float unit = plain ? (float)p.scale * 1.44269504f : 1.44269504f;  // from a score to a power of two
  const int row0 = wave * 16 * Tiles;

  for (int tile = first; tile < last; tile++) {
    async_wait<0>();
    __syncthreads();
    if (Stages > 1 && tile + 1 < last) load_keys(tile + 1);
    const T* k = stages + tile % Stages * 2 * Keys * Pitch;
    const T* v = k + Keys * Pitch;
    int j0 = tile * Keys;

    Acc score[Tiles][KeyTiles] = {};
#pragma unroll
    for (int d = 0; d < Parts; d++) {
      Frag q[Tiles];
#pragma unroll
      for (int t = 0; t < Tiles; t++) q[t] = load_frag<RESULT_IS_LEFT, true>(queries + (row0 + 16 * t) * Pitch + 16 * d, Pitch);
#pragma unroll
      for (int n = 0; n < KeyTiles; n++) {
        Frag key = load_frag<!RESULT_IS_LEFT, true>(k + 16 * n * Pitch + 16 * d, Pitch);
#pragma unroll
        for (int t = 0; t < Tiles; t++) {
          if constexpr (RESULT_IS_LEFT) multiply<T>(score[t][n], q[t], key);
          else multiply<T>(score[t][n], key, q[t]);
        }
      }
      settle_rdna(score);
    }

#pragma unroll
    for (int t = 0; t < Tiles; t++) {
      int q0 = i0 + row0 + 16 * t;
      if (!plain || !all_seen(p, s, q0, q0 + 15, j0, j0 + Keys - 1)) {
#pragma unroll
        for (int n = 0; n < KeyTiles; n++)
#pragma unroll
          for (int e = 0; e < ACC; e++) {
            int i = q0 + query_of(lane, query_slot(e)), j = j0 + 16 * n + other_of(lane, e);
            float x = score[t][n].x[e];
            if (!is_seen(p, s, i, j)) x = Limits<float>::lowest();
            else if (!plain) x = logit_of<T>(p, s, head, i, j, x);
            score[t][n].x[e] = x;
          }
      }
      float shift[LANE_QUERIES], keep[LANE_QUERIES], added[LANE_QUERIES] = {};
#pragma unroll
      for (int r = 0; r < LANE_QUERIES; r++) {
        float best = top[t][r];
#pragma unroll
        for (int n = 0; n < KeyTiles; n++)
#pragma unroll
          for (int e = 0; e < ACC; e++)
            if (query_slot(e) == r) best = fmaxf(best, score[t][n].x[e]);
        best = over_query(best, [](float a, float b) { return fmaxf(a, b); });
        shift[r] = best == Limits<float>::lowest() ? 0 : best * unit;  // a row that saw no key yet must not give NaN
        keep[r] = fast_exp2(fmag(top[t][r], unit, -shift[r]));
        top[t][r] = best;
      }
#pragma unroll
      for (int n = 0; n < KeyTiles; n++)
#pragma unroll
        for (int e = 0; e < ACC; e++) {
          float w = fast_exp2(fmag(score[t][n].x[e], unit, -shift[query_slot(e)]));
          score[t][n].x[e] = w;
          added[query_slot(e)] += w;
        }
#pragma unroll
      for (int r = 0; r < LANE_QUERIES; r++) sum[t][r] = fmag(sum[t][r], keep[r], added[r]);  // this lane's share; joined at the end
#pragma unroll
      for (int d = 0; d < Parts; d++)
#pragma unroll
        for (int e = 0; e < ACC; e++) out[t][d].x[e] *= keep[query_slot(e)];
    }

#pragma unroll
    for (int n = 0; n < KeyTiles; n++) {
      Frag w[Tiles];
#pragma unroll
      for (int t = 0; t < Tiles; t++) w[t] = to_operand<T>(score[t][n]);
#pragma unroll
      for (int d = 0; d < Parts; d++) {
        Frag value = load_frag<!RESULT_IS_LEFT, false>(v + 16 * n * Pitch + 16 * d, Pitch);
#pragma unroll
        for (int t = 0; t < Tiles; t++) {
          if constexpr (RESULT_IS_LEFT) multiply<T>(out[t][d], w[t], value);
          else multiply<T>(out[t][d], value, w[t]);
        }
#pragma unroll
        for (int t = 0; t < Tiles; t++) settle_rdna(out[t][d]);
      }
    }
    if (Stages == 1) {
      __syncthreads();
      if (tile + 1 < last) load_keys(tile + 1);
    }
  }

#pragma unroll
  for (int t = 0; t < Tiles; t++)
#pragma unroll
    for (int r = 0; r < LANE_QUERIES; r++) {
      int i = i0 + row0 + 16 * t + query_of(lane, r);
      float total = over_query(sum[t][r], [](float a, float b) { return a + b; });
      float best = top[t][r] == Limits<float>::lowest() ? top[t][r] : plain ? top[t][r] * (float)p.scale : top[t][r], keep = 1;
      if (p.sinks) {
        float with = fmaxf(best, p.sinks[head]);
        keep = best == Limits<float>::lowest() ? 0 : expg(best - with);
        total = total * keep + expg(p.sinks[head] - with);
        best = with;
      }
      float scale = total > 0 ? keep / total : 0;
      if (i >= s.nq) continue;
      T* row = query_row<T>(p.out, p.out_strides, s, head, i);
#pragma unroll
      for (int d = 0; d < Parts; d++)
#pragma unroll
        for (int e = 0; e < ACC; e++) {
          int at = 16 * d + other_of(lane, e);
          if (query_slot(e) == r && at < p.dim) row[at] = round_to<T>(out[t][d].x[e] * scale);
        }
      if (p.lse && other_of(lane, 2 * r) == 0) ((float*)p.lse)[lse_index(p, s, head, i)] = best + logg(total);
    }
}

#define ATTENTION_MATRIX(name, T)                                                                       \
  KERNEL(ATTENTION_THREADS) name##_64(Attention p) { attention_matrix<T, 64, 2, 64, 2>(p); }            \
  KERNEL(ATTENTION_THREADS) name##_128(Attention p) { attention_matrix<T, 128, 1, 32, 2>(p); }          \
  KERNEL(ATTENTION_THREADS) name##_256(Attention p) { attention_matrix<T, 256, 1, 16, 1>(p); }          \
  KERNEL(ATTENTION_THREADS) name##_128_large(Attention p) { attention_matrix<T, 128, 2, 64, 2>(p); }    \
  KERNEL(ATTENTION_THREADS) name##_256_large(Attention p) { attention_matrix<T, 256, 1, 32, 2>(p); }
ATTENTION_MATRIX(attention_matrix_f16, half)
ATTENTION_MATRIX(attention_matrix_bf16, bfloat)

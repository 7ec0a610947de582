// Attention of 16-bit floats on matrix units (mma, MFMA, WMMA): keys and values copied ahead, scores and sums never
// leave registers.
//
// attention_matrix_T_D: grid (query tiles, heads, batch), 4 waves; a wave has Tiles x 16 queries. Rows must be 16-byte
// aligned.
// | symbol          | queries a block | shared bytes |
// | _64             | 128             | 55296        |
// | _128            | 64              | 52224        |
// | _128_large      | 128             | 104448       |
// | _256            | 64              | 50688        |
// | _256_large      | 64              | 101376       |
#include "attention-matrix.h"

template <class T, int D, int Tiles, int Keys, int Stages> WICK_FN void attention_matrix(const Attention& p) {
  // the pitch keeps rows on different banks
  constexpr int Rows = 16 * Tiles * 4, Pitch = D + 8, Parts = D / 16, KeyTiles = Keys / 16;
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

  // Rows of 16-byte parts, which are there or are zeros as a whole.
  auto load_row = [&](T* to, const T* from, int c, bool in) {
    async_copy16(to + 8 * c, in ? from + 8 * c : (const T*)p.q, in ? 16 : 0);
  };
  auto load_keys = [&](int tile) {
    constexpr int Copies = Keys * D / 8 / ATTENTION_THREADS;
    T* to = stages + tile % Stages * 2 * Keys * Pitch;
    UNROLL(2, 1)
    for (int which = 0; which < 2; which++) {
      const void* base = which ? p.v : p.k;
      const i64 strides[3] = {which ? p.v_strides[0] : p.k_strides[0], which ? p.v_strides[1] : p.k_strides[1],
                              which ? p.v_strides[2] : p.k_strides[2]};
      UNROLL(Copies, 1)
      for (int n = 0; n < Copies; n++) {
        const int at = threadIdx.x + n * ATTENTION_THREADS, r = at / (D / 8), c = at % (D / 8), j = tile * Keys + r;
        const bool in = j < s.nk && 8 * c < p.dim;
        load_row(to + (which * Keys + r) * Pitch,
                 in ? key_row<const T>(p, base, strides, s, kv_head, j) : (const T*)p.q, c, in);
      }
    }
    async_commit();
  };
  constexpr int Copies = Rows * D / 8 / ATTENTION_THREADS;
  UNROLL(Copies, 1)
  for (int n = 0; n < Copies; n++) {
    const int at = threadIdx.x + n * ATTENTION_THREADS, r = at / (D / 8), c = at % (D / 8);
    load_row(queries + r * Pitch, query_row<const T>(p.q, p.q_strides, s, head, i0 + r), c,
             i0 + r < s.nq && 8 * c < p.dim);
  }
  async_commit();

  Acc out[Tiles][Parts] = {};
  float top[Tiles][LANE_QUERIES], sum[Tiles][LANE_QUERIES] = {};
#pragma unroll
  for (int t = 0; t < Tiles; t++)
#pragma unroll
    for (int r = 0; r < LANE_QUERIES; r++) top[t][r] = Limits<float>::lowest();
  const bool plain = is_plain(p);
  const float unit = plain ? (float)p.scale * 1.44269504f : 1.44269504f;  // from a score to a power of two
  const int row0 = wave * 16 * Tiles;

  UNROLL(1, 1)
  for (int tile = Stages > 1 ? first - 1 : first; tile < last; tile++) {
    if (Stages == 1) {
      __syncthreads();
      load_keys(tile);
    }
    async_wait<0>();
    __syncthreads();
    if (Stages > 1) {
      if (tile + 1 < last) load_keys(tile + 1);
      if (tile < first) continue;  // the first round only asks for keys and values
    }
    const T* k = stages + tile % Stages * 2 * Keys * Pitch;
    const T* v = k + Keys * Pitch;
    int j0 = tile * Keys;

    Acc score[Tiles][KeyTiles] = {};
    UNROLL(Parts, 2)
    for (int d = 0; d < Parts; d++) {
      Frag q[Tiles];
#pragma unroll
      for (int t = 0; t < Tiles; t++)
        q[t] = load_frag<RESULT_IS_LEFT, true>(queries + (row0 + 16 * t) * Pitch + 16 * d, Pitch);
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
      if (!plain) {
        if (p.softcap != 0) {
          UNROLL(KeyTiles, 1)
          for (int n = 0; n < KeyTiles; n++) {
            UNROLL(ACC, 1)
            for (int e = 0; e < ACC; e++) {
              score[t][0].x[0] = capped_of(p, score[t][0].x[0]);
              move_up(score[t][0].x);
            }
            move_up(score[t]);
          }
        } else {
#pragma unroll
          for (int n = 0; n < KeyTiles; n++)
#pragma unroll
            for (int e = 0; e < ACC; e++) score[t][n].x[e] *= (float)p.scale;
        }
        UNROLL(KeyTiles, 1)
        for (int n = 0; n < KeyTiles; n++) {
          UNROLL(ACC / 2, 1)
          for (int e = 0; e < ACC; e += 2) {
#pragma unroll
            for (int h = 0; h < 2; h++) {
              const int i = q0 + query_of(lane, query_slot(e)), j = j0 + 16 * n + other_of(lane, e + h);
              if (is_seen(p, s, i, j)) score[t][0].x[0] = biased_of<T>(p, s, head, i, j, score[t][0].x[0]);
              move_up(score[t][0].x);
            }
          }
          move_up(score[t]);
        }
      }
      if (!all_seen(p, s, q0, q0 + 15, j0, j0 + Keys - 1)) {
#pragma unroll
        for (int r = 0; r < LANE_QUERIES; r++) {
          const Range seen = keys_of(p, s, q0 + query_of(lane, r));
#pragma unroll
          for (int n = 0; n < KeyTiles; n++)
#pragma unroll
            for (int e = 0; e < ACC; e++) {
              const int j = j0 + 16 * n + other_of(lane, e);
              if (query_slot(e) == r && (j < seen.begin || j >= seen.end)) score[t][n].x[e] = Limits<float>::lowest();
            }
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
      // this lane's share; joined at the end
      for (int r = 0; r < LANE_QUERIES; r++) sum[t][r] = fmag(sum[t][r], keep[r], added[r]);
#pragma unroll
      for (int d = 0; d < Parts; d++)
#pragma unroll
        for (int e = 0; e < ACC; e++) out[t][d].x[e] *= keep[query_slot(e)];
    }

    Frag w[Tiles][KeyTiles];
#pragma unroll
    for (int t = 0; t < Tiles; t++)
#pragma unroll
      for (int n = 0; n < KeyTiles; n++) w[t][n] = to_operand<T>(score[t][n]);
    UNROLL(KeyTiles, 1)
    for (int n = 0; n < KeyTiles; n++) {
#pragma unroll
      for (int d = 0; d < Parts; d++) {
        Frag value = load_frag<!RESULT_IS_LEFT, false>(v + 16 * n * Pitch + 16 * d, Pitch);
#pragma unroll
        for (int t = 0; t < Tiles; t++) {
          if constexpr (RESULT_IS_LEFT) multiply<T>(out[t][d], w[t][0], value);
          else multiply<T>(out[t][d], value, w[t][0]);
        }
#pragma unroll
        for (int t = 0; t < Tiles; t++) settle_rdna(out[t][d]);
      }
#pragma unroll
      for (int t = 0; t < Tiles; t++) move_up(w[t]);
    }
  }

  UNROLL(Tiles, 1)
  for (int t = 0; t < Tiles; t++) {
    UNROLL(LANE_QUERIES, 1)
    for (int r = 0; r < LANE_QUERIES; r++) {
      const int i = i0 + row0 + 16 * t + query_of(lane, r);
      float total = over_query(sum[0][0], [](float a, float b) { return a + b; });
      float best = top[0][0] == Limits<float>::lowest() ? top[0][0]
                   : plain                              ? top[0][0] * (float)p.scale
                                                        : top[0][0],
            keep = 1;
      if (p.sinks) {
        float with = fmaxf(best, p.sinks[head]);
        keep = best == Limits<float>::lowest() ? 0 : expg(best - with);
        total = total * keep + expg(p.sinks[head] - with);
        best = with;
      }
      sum[0][0] = total > 0 ? keep / total : 0;  // from here what a row is multiplied by
      if (p.lse && i < s.nq && other_of(lane, 2 * r) == 0)
        ((float*)p.lse)[lse_index(p, s, head, i)] = best + logg(total);
      move_up(top[0]);
      move_up(sum[0]);
    }
    move_up(top);
    move_up(sum);
  }
  UNROLL(Tiles, 1)
  for (int t = 0; t < Tiles; t++) {
    const int i = i0 + row0 + 16 * t;
    UNROLL(Parts, 1)
    for (int d = 0; d < Parts; d++) {
#pragma unroll
      for (int r = 0; r < LANE_QUERIES; r++) {
        const int row = i + query_of(lane, r);
        T* to = query_row<T>(p.out, p.out_strides, s, head, row);
#pragma unroll
        for (int e = 0; e < ACC; e++) {
          const int at = 16 * d + other_of(lane, e);
          if (query_slot(e) == r && row < s.nq && at < p.dim) to[at] = round_to<T>(out[0][0].x[e] * sum[0][r]);
        }
      }
      move_up(out[0]);
    }
    move_up(out);
    move_up(sum);
  }
}

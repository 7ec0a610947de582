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
#include "attention-again.h"
#include "attention-matrix.h"

// Rows of 16-byte parts, which are there or are zeros as a whole.
template <class T> WICK_FN void load_row(const Attention& p, T* to, const T* from, int c, bool in) {
  async_copy16(to + 8 * c, in ? from + 8 * c : (const T*)p.q, in ? 16 : 0);
}
// Queries stay for the whole block: they are read from shared memory again for every tile of keys.
template <class T, int D, int Rows, int Pitch>
WICK_FN void load_queries(const Attention& p, const Sequence& s, T* queries, int head, int i0) {
  constexpr int Copies = Rows * D / 8 / ATTENTION_THREADS;
  UNROLL(Copies, 1)
  for (int n = 0; n < Copies; n++) {
    const int at = threadIdx.x + n * ATTENTION_THREADS, r = at / (D / 8), c = at % (D / 8);
    load_row(p, queries + r * Pitch, query_row<const T>(p.q, p.q_strides, s, head, i0 + r), c,
             i0 + r < s.nq && 8 * c < p.dim);
  }
  async_commit();
}

/**
 * A block of queries and what it does with them. Scores, sums and what else changes stay variables of the kernel, so
 * that each keeps to registers of its own.
 */
template <class T, int D, int Tiles, int Keys, int Stages> struct QueryBlock {
  // the pitch keeps rows on different banks
  static constexpr int Rows = 16 * Tiles * 4, Pitch = D + 8, Parts = D / 16, KeyTiles = Keys / 16;
  const Attention& p;
  const Sequence& s;
  T* queries;  // in shared memory
  T* stages;   // there, too: keys and values
  int head, kv_head, i0;
  int row0;  // the first query of this wave, from i0 on
  u32 lane;

  WICK_MEMBER T* stage(int tile) const { return stages + tile % Stages * 2 * Keys * Pitch; }

  // Keys and values are one group of copies: whoever waits for a tile needs both.
  WICK_MEMBER void load_keys(int tile) const {
    constexpr int Copies = Keys * D / 8 / ATTENTION_THREADS;
    T* to = stage(tile);
    UNROLL(2, 1)
    for (int which = 0; which < 2; which++) {
      const void* base = which ? p.v : p.k;
      const i64 strides[3] = {which ? p.v_strides[0] : p.k_strides[0], which ? p.v_strides[1] : p.k_strides[1],
                              which ? p.v_strides[2] : p.k_strides[2]};
      UNROLL(Copies, 1)
      for (int n = 0; n < Copies; n++) {
        const int at = threadIdx.x + n * ATTENTION_THREADS, r = at / (D / 8), c = at % (D / 8), j = tile * Keys + r;
        const bool in = j < s.nk && 8 * c < p.dim;
        load_row(p, to + (which * Keys + r) * Pitch,
                 in ? key_row<const T>(p, base, strides, s, kv_head, j) : (const T*)p.q, c, in);
      }
    }
    async_commit();
  }

  // Products of queries and keys; a fragment of keys serves all of the wave's queries.
  WICK_MEMBER void add_scores(Acc (&score)[Tiles][KeyTiles], const T* k) const {
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
        for (int t = 0; t < Tiles; t++) multiply_other<T>(score[t][n], q[t], key);
      }
      settle_rdna(score);
    }
  }

  // Caps, alibi and masks are rare and take many instructions: their loops are not unrolled.
  WICK_MEMBER void change_scores(Acc (&score)[KeyTiles], int q0, int j0) const {
    if (p.softcap != 0) {
      UNROLL(KeyTiles, 1)
      for (int n = 0; n < KeyTiles; n++) {
        UNROLL(ACC, 1)
        for (int e = 0; e < ACC; e++) {
          score[0].x[0] = capped_of(p, score[0].x[0]);
          move_up(score[0].x);
        }
        move_up(score);
      }
    } else {
#pragma unroll
      for (int n = 0; n < KeyTiles; n++)
#pragma unroll
        for (int e = 0; e < ACC; e++) score[n].x[e] *= (float)p.scale;
    }
    UNROLL(KeyTiles, 1)
    for (int n = 0; n < KeyTiles; n++) {
      UNROLL(ACC / 2, 1)
      for (int e = 0; e < ACC; e += 2) {
#pragma unroll
        for (int h = 0; h < 2; h++) {
          const int i = q0 + query_of(lane, query_slot(e)), j = j0 + 16 * n + other_of(lane, e + h);
          if (is_seen(p, s, i, j)) score[0].x[0] = biased_of<T>(p, s, head, i, j, score[0].x[0]);
          move_up(score[0].x);
        }
      }
      move_up(score);
    }
  }
  // Most tiles of a causal problem are seen as a whole, and need no test of single scores.
  WICK_MEMBER void hide_unseen(Acc (&score)[KeyTiles], int q0, int j0) const {
    if (all_seen(p, s, q0, q0 + 15, j0, j0 + Keys - 1)) return;
#pragma unroll
    for (int r = 0; r < LANE_QUERIES; r++) {
      const Range seen = keys_of(p, s, q0 + query_of(lane, r));
#pragma unroll
      for (int n = 0; n < KeyTiles; n++)
#pragma unroll
        for (int e = 0; e < ACC; e++) {
          const int j = j0 + 16 * n + other_of(lane, e);
          if (query_slot(e) == r && (j < seen.begin || j >= seen.end)) score[n].x[e] = Limits<float>::lowest();
        }
    }
  }

  // From scores to weights against the best score so far; what was summed against an older best shrinks to match.
  WICK_MEMBER void update_softmax(Acc (&score)[KeyTiles], float (&top)[LANE_QUERIES], float (&sum)[LANE_QUERIES],
                                  Acc (&out)[Parts], float unit) const {
    float shift[LANE_QUERIES], keep[LANE_QUERIES], added[LANE_QUERIES] = {};
#pragma unroll
    for (int r = 0; r < LANE_QUERIES; r++) {
      float best = top[r];
#pragma unroll
      for (int n = 0; n < KeyTiles; n++)
#pragma unroll
        for (int e = 0; e < ACC; e++)
          if (query_slot(e) == r) best = fmaxf(best, score[n].x[e]);
      best = over_query(best, [](float a, float b) { return fmaxf(a, b); });
      shift[r] = best == Limits<float>::lowest() ? 0 : best * unit;  // a row that saw no key yet must not give NaN
      keep[r] = fast_exp2(fmag(top[r], unit, -shift[r]));
      top[r] = best;
    }
#pragma unroll
    for (int n = 0; n < KeyTiles; n++)
#pragma unroll
      for (int e = 0; e < ACC; e++) {
        float w = fast_exp2(fmag(score[n].x[e], unit, -shift[query_slot(e)]));
        score[n].x[e] = w;
        added[query_slot(e)] += w;
      }
#pragma unroll
    // this lane's share; joined at the end
    for (int r = 0; r < LANE_QUERIES; r++) sum[r] = fmag(sum[r], keep[r], added[r]);
#pragma unroll
    for (int d = 0; d < Parts; d++)
#pragma unroll
      for (int e = 0; e < ACC; e++) out[d].x[e] *= keep[query_slot(e)];
  }

  // Weights become operands in their lanes, so they never pass through shared memory.
  WICK_MEMBER void weigh_values(Acc (&out)[Tiles][Parts], const Acc (&weight)[Tiles][KeyTiles], const T* v) const {
    Frag w[Tiles][KeyTiles];
#pragma unroll
    for (int t = 0; t < Tiles; t++)
#pragma unroll
      for (int n = 0; n < KeyTiles; n++) w[t][n] = to_operand<T>(weight[t][n]);
    UNROLL(KeyTiles, 1)
    for (int n = 0; n < KeyTiles; n++) {
#pragma unroll
      for (int d = 0; d < Parts; d++) {
        Frag value = load_frag<!RESULT_IS_LEFT, false>(v + 16 * n * Pitch + 16 * d, Pitch);
#pragma unroll
        for (int t = 0; t < Tiles; t++) multiply_other<T>(out[t][d], w[t][0], value);
#pragma unroll
        for (int t = 0; t < Tiles; t++) settle_rdna(out[t][d]);
      }
#pragma unroll
      for (int t = 0; t < Tiles; t++) move_up(w[t]);
    }
  }

  // Joins the lanes' shares and the sink, keeps the log-sum-exp, and leaves in `sum` what a row is multiplied by.
  WICK_MEMBER void finish_sums(float (&top)[Tiles][LANE_QUERIES], float (&sum)[Tiles][LANE_QUERIES], bool plain) const {
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
          total = total * keep + (p.sinks[head] == Limits<float>::lowest() ? 0 : expg(p.sinks[head] - with));
          best = with;
        }
        sum[0][0] = total == 0 ? 0 : keep / total;  // NaN where a score is
        if (p.lse && i < s.nq && other_of(lane, 2 * r) == 0)
          ((float*)p.lse)[lse_index(p, s, head, i)] = best + logg(total);
        move_up(top[0]);
        move_up(sum[0]);
      }
      move_up(top);
      move_up(sum);
    }
  }
  // Once a block: its loops are short rather than fast. A bit for each row of the wave that this lane found NaN in.
  WICK_MEMBER u32 write_rows(Acc (&out)[Tiles][Parts], float (&factor)[Tiles][LANE_QUERIES]) const {
    u32 odd = 0;
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
            const float x = out[0][0].x[e] * factor[0][r];
            if (query_slot(e) != r || row >= s.nq || at >= p.dim) continue;
            to[at] = round_to<T>(x);
            odd |= (u32)(x != x) << (row - i0 - row0);
          }
        }
        move_up(out[0]);
      }
      move_up(out);
      move_up(factor);
    }
    return odd;
  }
};

template <class T, int D, int Tiles, int Keys, int Stages> WICK_FN void attention_matrix(const Attention& p) {
  typedef QueryBlock<T, D, Tiles, Keys, Stages> Block;
  DYNAMIC_SHARED(T, shared);
  T* queries = shared;
  T* stages = shared + Block::Rows * Block::Pitch;
  const int head = blockIdx.y, kv_head = head / (p.heads / p.kv_heads), wave = wave_id();
  const u32 lane = lane_id();
  const Sequence s = sequence_of(p, blockIdx.z);
  const int i0 = (gridDim.x - 1 - blockIdx.x) * Block::Rows;  // the longest rows of a causal problem first
  if (i0 >= s.nq) return;
  const Range keys = keys_seen(p, s, i0, i0 + Block::Rows - 1);
  const int first = keys.begin / Keys, last = (keys.end + Keys - 1) / Keys;
  load_queries<T, D, Block::Rows, Block::Pitch>(p, s, queries, head, i0);

  Acc out[Tiles][Block::Parts] = {};
  float top[Tiles][LANE_QUERIES], sum[Tiles][LANE_QUERIES] = {};
#pragma unroll
  for (int t = 0; t < Tiles; t++)
#pragma unroll
    for (int r = 0; r < LANE_QUERIES; r++) top[t][r] = Limits<float>::lowest();
  const bool plain = is_plain(p);
  const float unit = plain ? (float)p.scale * LOG2_E : LOG2_E;  // from a score to a power of two
  const int row0 = wave * 16 * Tiles;
  const Block block = {p, s, queries, stages, head, kv_head, i0, row0, lane};

  UNROLL(1, 1)
  for (int tile = Stages > 1 ? first - 1 : first; tile < last; tile++) {
    if (Stages == 1) {
      __syncthreads();
      block.load_keys(tile);
    }
    async_wait<0>();
    __syncthreads();
    if (Stages > 1) {
      if (tile + 1 < last) block.load_keys(tile + 1);
      if (tile < first) continue;  // the first round only asks for keys and values
    }
    const T* k = block.stage(tile);
    const T* v = k + Keys * Block::Pitch;
    Acc score[Tiles][Block::KeyTiles] = {};
    block.add_scores(score, k);
#pragma unroll
    for (int t = 0; t < Tiles; t++) {
      const int q0 = i0 + row0 + 16 * t, j0 = tile * Keys;
      if (!plain) block.change_scores(score[t], q0, j0);
      block.hide_unseen(score[t], q0, j0);
      block.update_softmax(score[t], top[t], sum[t], out[t], unit);
    }
    block.weigh_values(out, score, v);
  }
  block.finish_sums(top, sum, plain);
  each_again(block.write_rows(out, sum), [&](int r) { row_again<T>(p, s, head, i0 + row0 + r); });
}

// Gradients of attention in 16-bit floats on matrix units: scores are made again from the saved log-sum-exp, sums stay
// in registers.
//
// A block owns rows and streams the rows of the other side past them, so nothing is added by two blocks and results
// repeat bit for bit:
//   attention_backward_matrix_key_T_D    owns keys, grid (key tiles, key heads, batch): gradients of keys and values
//   attention_backward_matrix_query_T_D  owns queries, grid (query tiles, heads, batch): the gradient of queries
// 4 waves, 64 * Tiles rows a block. Rows must be 16-byte aligned; delta comes from attention_delta_T. Scores are only
// scaled but in _any, which has caps, alibi and masks too: their registers would not leave room for the sums of large
// tiles.
// | symbol        | rows a block | shared bytes |
// | _64           | 64           | 36864        |
// | _128          | 64           | 52224        |
// | _128_large    | 64           | 69632        |
// | _64_any       | 64           | 27648        |
// | _128_any      | 64           | 43520        |
#include "attention-again.h"
#include "attention-matrix.h"

// Rows of keys and values, or of queries and gradients of outputs, in 16-byte parts that are there or are zeros as a
// whole.
template <class T, int D>
WICK_FN void load_rows(const Attention& p, const Sequence& s, T* to, int rows, bool key, int head, int from,
                       int count) {
  UNROLL(1, 4)
  for (int at = threadIdx.x; at < 2 * rows * (D / 8); at += ATTENTION_THREADS) {
    const int both = at / (D / 8), c = at % (D / 8);
    const bool which = both >= rows;
    const int r = from + both - (which ? rows : 0);
    const bool in = r < count && 8 * c < p.dim;
    const void* base = key ? which ? p.v : p.k : which ? p.dout : p.q;
    i64 strides[3];
#pragma unroll
    for (int d = 0; d < 3; d++)
      strides[d] = key ? which ? p.v_strides[d] : p.k_strides[d] : which ? p.dout_strides[d] : p.q_strides[d];
    const T* row = (const T*)p.q;
    if (in)
      row = (key ? key_row<const T>(p, base, strides, s, head, r) : query_row<const T>(base, strides, s, head, r)) +
            8 * c;
    async_copy16(to + both * (D + 8) + 8 * c, row, in ? 16 : 0);
  }
  async_commit();
}
// Log-sum-exp (in powers of two, as weights are made) or delta of a query; 0 where there is none.
WICK_FN float stat_of(const Attention& p, const Sequence& s, int which, int head, int i) {
  if (i >= s.nq) return 0.0f;
  float x = ((const float*)(which ? p.delta : p.lse))[lse_index(p, s, head, i)];
  return which ? x : x * LOG2_E;
}
/**
 * A block of own rows and what it does with them. Weights, sums and what else changes stay variables of the kernel, so
 * that each keeps to registers of its own.
 */
template <class T, int D, int Tiles, int Others, bool OwnKeys> struct OwnBlock {
  // the pitch keeps rows on different banks
  static constexpr int Rows = 64 * Tiles, Pitch = D + 8, Parts = D / 16, N = Others / 16;
  static constexpr int ValueTiles = OwnKeys ? Tiles : 1, ValueParts = OwnKeys ? Parts : 1;
  typedef float Stats[2][Others];  // log-sum-exp and delta of queries that stream past
  const Attention& p;
  const Sequence& s;
  T* own;  // in shared memory: keys and values, or queries and the gradient of the output
  int head0, kv_head;
  int r0, mine;  // the block's first row, and how many rows the own side has
  int row0;      // the first row of this wave, from r0 on
  u32 lane;
  float unit;  // from a product to a power of two

  // Own queries are the same in every step, so a lane keeps what it needs of them.
  WICK_MEMBER void load_own_stats(float (&lse)[Tiles][LANE_QUERIES], float (&delta)[Tiles][LANE_QUERIES]) const {
#pragma unroll
    for (int t = 0; t < Tiles; t++)
#pragma unroll
      for (int r = 0; r < LANE_QUERIES; r++) {
        int i = r0 + row0 + 16 * t + query_of(lane, r);
        lse[t][r] = stat_of(p, s, 0, head0, i);
        delta[t][r] = stat_of(p, s, 1, head0, i);
      }
  }

  // Products of queries and keys, and of output gradients and values, together: their operands lie side by side.
  WICK_MEMBER void add_products(Acc (&weight)[Tiles][N], Acc (&slope)[Tiles][N], const T* x, const T* y) const {
    UNROLL(Parts, Parts)
    for (int d = 0; d < Parts; d++) {
      Frag a[Tiles], b[Tiles];
#pragma unroll
      for (int t = 0; t < Tiles; t++) {
        a[t] = load_frag<RESULT_IS_LEFT, true>(own + (row0 + 16 * t) * Pitch + 16 * d, Pitch);
        b[t] = load_frag<RESULT_IS_LEFT, true>(own + (Rows + row0 + 16 * t) * Pitch + 16 * d, Pitch);
      }
#pragma unroll
      for (int n = 0; n < N; n++) {
        Frag fx = load_frag<!RESULT_IS_LEFT, true>(x + 16 * n * Pitch + 16 * d, Pitch);
        Frag fy = load_frag<!RESULT_IS_LEFT, true>(y + 16 * n * Pitch + 16 * d, Pitch);
#pragma unroll
        for (int t = 0; t < Tiles; t++)
          multiply_other<T>(weight[t][n], a[t], fx), multiply_other<T>(slope[t][n], b[t], fy);
      }
      settle_rdna(weight);
      settle_rdna(slope);
    }
  }

  // Products to weights and the gradients of products, but for the scale: what is seen is a range of the other side,
  // found once a row.
  WICK_MEMBER void plain_gradients(Acc (&weight)[N], Acc (&slope)[N], const float (&lse)[LANE_QUERIES],
                                   const float (&delta)[LANE_QUERIES], const Stats& stats, int m0, int o0) const {
    const bool whole =
        OwnKeys ? all_seen(p, s, o0, o0 + Others - 1, m0, m0 + 15) : all_seen(p, s, m0, m0 + 15, o0, o0 + Others - 1);
    Range seen[LANE_QUERIES];  // of the other side, by what this lane has of the own
#pragma unroll
    for (int r = 0; r < LANE_QUERIES; r++) {
      const int m = m0 + query_of(lane, r);
      seen[r] = OwnKeys ? queries_seeing(p, s, m, m) : keys_seen(p, s, m, m);
      if (whole) seen[r] = {o0, o0 + Others};
      else if (m >= mine) seen[r].end = seen[r].begin;
    }
#pragma unroll
    for (int n = 0; n < N; n++)
#pragma unroll
      for (int e = 0; e < ACC; e++) {
        const int other = 16 * n + other_of(lane, e), r = query_slot(e);
        const float row_lse = OwnKeys ? stats[0][other] : lse[r], row_delta = OwnKeys ? stats[1][other] : delta[r];
        const float power = fast_exp2(fmag(weight[n].x[e], unit, -row_lse)),
                    w = o0 + other >= seen[r].begin && o0 + other < seen[r].end ? power : 0;
        const float g = w * (slope[n].x[e] - row_delta);
        weight[n].x[e] = w;
        slope[n].x[e] = w == 0 ? 0 : g;
      }
  }
  // The same with caps, alibi and masks, score by score.
  WICK_MEMBER void any_gradients(Acc (&weight)[N], Acc (&slope)[N], const float (&lse)[LANE_QUERIES],
                                 const float (&delta)[LANE_QUERIES], const Stats& stats, int head, int m0,
                                 int o0) const {
    UNROLL(N, 1)
    for (int n = 0; n < N; n++) {
      UNROLL(ACC, 1)
      for (int e = 0; e < ACC; e++) {
        const int other = 16 * n + other_of(lane, e), r = query_slot(e), own_row = m0 + query_of(lane, r);
        const float row_lse = OwnKeys ? stats[0][other] : r ? lse[LANE_QUERIES - 1] : lse[0];
        const float row_delta = OwnKeys ? stats[1][other] : r ? delta[LANE_QUERIES - 1] : delta[0];
        const int i = OwnKeys ? o0 + other : own_row, j = OwnKeys ? own_row : o0 + other;
        const float product = weight[0].x[0];
        float w = 0, g = 0;
        if (is_seen(p, s, i, j)) {
          float factor;
          const float logit = biased_of<T>(p, s, head, i, j, capped_of(p, product, factor));
          factor = p.softcap != 0 ? factor / (float)p.scale : 1.0f;
          w = logit == Limits<float>::lowest() ? 0 : fast_exp2(fmag(logit, LOG2_E, -row_lse));
          if (w != 0) g = w * (slope[0].x[0] - row_delta) * factor;
        }
        weight[0].x[0] = w;
        slope[0].x[0] = g;
        move_up(weight[0].x);
        move_up(slope[0].x);
      }
      move_up(weight);
      move_up(slope);
    }
  }

  // Gradients of products times rows of the other side; for own keys the weights times output gradients, too.
  WICK_MEMBER void add_sums(Acc (&sum)[Tiles][Parts], Acc (&value_sum)[ValueTiles][ValueParts],
                            const Acc (&weight)[Tiles][N], const Acc (&slope)[Tiles][N], const T* x, const T* y) const {
    Frag w[Tiles][N], g[Tiles][N];
#pragma unroll
    for (int t = 0; t < Tiles; t++)
#pragma unroll
      for (int n = 0; n < N; n++) {
        g[t][n] = to_operand<T>(slope[t][n]);
        if constexpr (OwnKeys) w[t][n] = to_operand<T>(weight[t][n]);
      }
    UNROLL(N, N)
    for (int n = 0; n < N; n++) {
#pragma unroll
      for (int d = 0; d < Parts; d++) {
        Frag fx = load_frag<!RESULT_IS_LEFT, false>(x + 16 * n * Pitch + 16 * d, Pitch);
#pragma unroll
        for (int t = 0; t < Tiles; t++) multiply_other<T>(sum[t][d], g[t][0], fx);
        if constexpr (OwnKeys) {
          Frag fy = load_frag<!RESULT_IS_LEFT, false>(y + 16 * n * Pitch + 16 * d, Pitch);
#pragma unroll
          for (int t = 0; t < Tiles; t++) multiply_other<T>(value_sum[t][d], w[t][0], fy);
        }
#pragma unroll
        for (int t = 0; t < Tiles; t++) {
          settle_rdna(sum[t][d]);
          if constexpr (OwnKeys) settle_rdna(value_sum[t][d]);
        }
      }
#pragma unroll
      for (int t = 0; t < Tiles; t++) {
        move_up(g[t]);
        if constexpr (OwnKeys) move_up(w[t]);
      }
    }
  }

  // Once a block: its loops are short rather than fast. A bit for each row of the wave that this lane found NaN in.
  WICK_MEMBER u32 write_rows(Acc (&sum)[Tiles][Parts], Acc (&value_sum)[ValueTiles][ValueParts]) const {
    u32 odd = 0;
    UNROLL(Tiles, 1)
    for (int t = 0; t < Tiles; t++) {
      UNROLL(Parts, 1)
      for (int d = 0; d < Parts; d++) {
#pragma unroll
        for (int r = 0; r < LANE_QUERIES; r++) {
          const int m = r0 + row0 + 16 * t + query_of(lane, r);
          if (m >= mine) continue;
          T* to = OwnKeys ? key_row<T>(p, p.dk, p.dk_strides, s, kv_head, m)
                          : query_row<T>(p.dq, p.dq_strides, s, head0, m);
          T* to_v = OwnKeys ? key_row<T>(p, p.dv, p.dv_strides, s, kv_head, m) : nullptr;
#pragma unroll
          for (int e = 0; e < ACC; e++) {
            const int at = 16 * d + other_of(lane, e);
            if (query_slot(e) != r || at >= p.dim) continue;
            const float x = sum[0][0].x[e] * (float)p.scale;
            float y = 0;
            to[at] = round_to<T>(x);
            if constexpr (OwnKeys) y = value_sum[0][0].x[e], to_v[at] = round_to<T>(y);
            odd |= (u32)(x != x || y != y) << (m - r0 - row0);
          }
        }
        move_up(sum[0]);
        if constexpr (OwnKeys) move_up(value_sum[0]);
      }
      move_up(sum);
      if constexpr (OwnKeys) move_up(value_sum);
    }
    return odd;
  }
};

template <class T, int D, int Tiles, int Others, int Stages, bool OwnKeys, bool Plain>
WICK_FN void attention_backward_matrix(const Attention& p) {
  typedef OwnBlock<T, D, Tiles, Others, OwnKeys> Block;
  constexpr int Rows = Block::Rows, Pair = 2 * Others * Block::Pitch;
  DYNAMIC_SHARED(T, shared);
  __shared__ typename Block::Stats stats[2];
  T* own = shared;
  T* stages = shared + 2 * Rows * Block::Pitch;
  const int group = p.heads / p.kv_heads, head0 = OwnKeys ? blockIdx.y * group : blockIdx.y,
            kv_head = OwnKeys ? blockIdx.y : blockIdx.y / group;
  const u32 lane = lane_id();
  const Sequence s = sequence_of(p, blockIdx.z);
  // the longest rows of a causal problem first
  const int r0 = (OwnKeys ? blockIdx.x : gridDim.x - 1 - blockIdx.x) * Rows;
  const int mine = OwnKeys ? s.nk : s.nq, theirs = OwnKeys ? s.nq : s.nk;
  if (r0 >= mine) return;
  const Range seen = OwnKeys ? queries_seeing(p, s, r0, r0 + Rows - 1) : keys_seen(p, s, r0, r0 + Rows - 1);
  const int first = seen.begin / Others, tiles = seen.begin < seen.end ? (seen.end + Others - 1) / Others - first : 0;
  const int steps = OwnKeys ? tiles * group : tiles, slot = threadIdx.x;
  load_rows<T, D>(p, s, own, Rows, OwnKeys, OwnKeys ? kv_head : head0, r0, mine);
  const int row0 = wave_id() * 16 * Tiles;
  const Block block = {p, s, own, head0, kv_head, r0, mine, row0, lane, (float)p.scale * LOG2_E};
  Acc sum[Tiles][Block::Parts] = {}, value_sum[Block::ValueTiles][Block::ValueParts] = {};
  float lse[Tiles][LANE_QUERIES], delta[Tiles][LANE_QUERIES];
  if (!OwnKeys) block.load_own_stats(lse, delta);

  // A step takes a tile of the other side; those of one head follow each other. With two stages a tile is asked for a
  // step ahead, and the first round does only that.
  constexpr int Ahead = Stages - 1;
  int next_head = head0, next_tile = 0, head = head0, o0 = 0, told_head = head0, told_o0 = 0;
  UNROLL(1, 1)
  for (int step = -Ahead; step < steps; step++) {
    if (Ahead) async_wait<0>();
    __syncthreads();
    head = told_head, o0 = told_o0;
    const int asked = step + Ahead;
    float stat = 0;
    if (asked < steps) {
      told_head = next_head, told_o0 = (first + next_tile) * Others;
      if (++next_tile == tiles) next_tile = 0, next_head++;
      load_rows<T, D>(p, s, stages + asked % Stages * Pair, Others, !OwnKeys, OwnKeys ? told_head : kv_head, told_o0,
                      theirs);
      if (OwnKeys && slot < 2 * Others) stat = stat_of(p, s, slot / Others, told_head, told_o0 + slot % Others);
    }
    auto keep_stat = [&]() {
      if (OwnKeys && asked < steps && slot < 2 * Others) stats[asked % 2][slot / Others][slot % Others] = stat;
    };
    if (!Ahead) {
      head = told_head, o0 = told_o0;
      keep_stat();
      async_wait<0>();
      __syncthreads();
    } else if (step < 0) {
      keep_stat();
      continue;
    }
    const T* x = stages + step % Stages * Pair;
    const T* y = x + Others * Block::Pitch;
    Acc weight[Tiles][Block::N] = {}, slope[Tiles][Block::N] = {};
    block.add_products(weight, slope, x, y);
#pragma unroll
    for (int t = 0; t < Tiles; t++) {
      const int m0 = r0 + row0 + 16 * t;
      if constexpr (Plain) block.plain_gradients(weight[t], slope[t], lse[t], delta[t], stats[step % 2], m0, o0);
      else block.any_gradients(weight[t], slope[t], lse[t], delta[t], stats[step % 2], head, m0, o0);
    }
    block.add_sums(sum, value_sum, weight, slope, x, y);
    if (Ahead) keep_stat();
  }
  each_again(block.write_rows(sum, value_sum), [&](int r) {
    if constexpr (OwnKeys) key_gradients_again<T>(p, s, kv_head, r0 + row0 + r);
    else query_gradient_again<T>(p, s, head0, r0 + row0 + r);
  });
}

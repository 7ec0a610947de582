// Attention of one new token: turns its query and key, appends key and value to the cache and weighs all values, in one
// launch.
//
// decode_attention_T_D_G: grid (splits, heads / G), DECODE_SPLIT threads. The cache is (kv_heads, room, dim); `state`
// is { token, position, length }; `partial` holds dim + 1 floats for every head and split, `arrived` a zero for every
// group of heads. As in attention_split, a group of D/8 lanes takes a key for G query heads that share it. The block
// that holds the last keys adds the new one, and the block that comes last joins the splits. Keys of earlier tokens are
// asked for before the new query is there.
//
// decode_attention_paged_T_D_G: the same where keys and values stand in pages of (rows, kv_heads, dim) that `table`
// names; `state` is { token, position, row of the new key, length } then, and a row past all others is nowhere. The
// grid's third dimension are sequences: `state` has each of its numbers for all of them, everything else a part for
// each.
//
// decode_attention_units_T_D: the same for heads of 16 bits through matrix units; decode-attention-units.h says how.
#include "attention-split.h"
#include "block.h"
#include "decode-attention-units.h"
#include "decode.h"
#include "new-token.h"

constexpr int DECODE_SPLIT = 128;
/** Results of a thread that joins splits at a time, and numbers of splits that it has under way for them. */
#ifdef WICK_AMD
constexpr int JOINED_AT_ONCE = 2, JOINED_UNDER_WAY = 8;
#else
constexpr int JOINED_AT_ONCE = 8, JOINED_UNDER_WAY = 64;
#endif

/**
 * What the threads of a block share, by reference: arrays of their own, since compilers know two arrays apart and two
 * parts of one not.
 */
template <int D, int G, int Groups> struct NewTokenMemory {
  float (&queries)[G][D], (&key_new)[D], (&value_new)[D];
  float (&outputs)[G][Groups][D];
  /** The best score and the sum of weights of each group of lanes and of the new key, by head. */
  float (&merged)[Groups + 1][G][2];
  float (&factors)[Groups + 1][G], (&totals)[G], (&lengths)[G + 1];
  float (&norms)[2][D], (&turns)[2][D / 2];
  u32& before;
};

/** From products of a query and keys to powers of two. */
struct ScoreScale {
  float unit, softcap, limit;
  /** A cap on dot * scale, of which the scale is taken out again. */
  WICK_MEMBER float capped(float dot) const { return softcap > 0 ? limit * tanhg(dot / limit) : dot; }
};

/** Which heads of which sequence a block serves, and how many blocks share their keys: one past these has no work. */
template <int G, int Lanes, int Step> struct NewTokenPart {
  const NewToken& p;
  const int lane = threadIdx.x % Lanes, group = threadIdx.x / Lanes, split = blockIdx.x, splits = gridDim.x;
  const int head0 = blockIdx.y * G, share = p.heads / p.kv_heads, kv_head = head0 / share, half_dim = p.dim / 2;
  // Written two launches before this one or earlier, so it may be read early.
  const int sequence = blockIdx.z, sequences = gridDim.z, position = p.state[sequences + sequence];
  // To join splits takes as long as a few steps, so a few steps are not split.
  const int start = p.window && position >= p.window ? position - p.window + 1 : 0, count = position - start;
  const int parts = count <= 4 * Step ? 1 : splits, each = ((count + parts - 1) / parts + Step - 1) / Step * Step;
  const int active = each == 0 ? 1 : (count + each - 1) / each;
};

/**
 * A block of decode_attention and what it does, in the order in which the kernel calls it. What lanes hold in registers
 * is passed in and out, and no part of it: an array in here would keep all the rest in memory.
 */
template <class T, int D, int G, int Unroll, bool PAGED> struct NewTokenBlock {
  static constexpr int Threads = DECODE_SPLIT, Waves = Threads / WICK_WAVE, Lanes = D / 8, Groups = Threads / Lanes;
  static constexpr int Step = Groups * Unroll, HeadLanes = Lanes / G;
  static constexpr int N = G * Unroll, Slots = N > Lanes ? N / Lanes : 1, Copies = N < Lanes ? Lanes / N : 1;
  /** Floats of a head in the outputs. */
  static constexpr int Row = Groups * D;
  using Part = NewTokenPart<G, Lanes, Step>;
  using Memory = NewTokenMemory<D, G, Groups>;
  using LaneRows = Eight<T>[2 * Unroll];  // of keys, then of values
  using HeadEights = float[G][8];

  const NewToken& p;
  const Part& part;
  const Memory& shared;
  const int lane = part.lane, group = part.group, half_dim = part.half_dim;
  const int begin = part.start + part.split * part.each,
            end = begin + part.each < part.position ? begin + part.each : part.position;
  const bool whole = p.dim % 8 == 0, newest = part.split == part.active - 1;
  T* const keys = (T*)p.keys + (i64)part.kv_head * (PAGED ? 1 : p.room) * p.dim;
  T* const values = (T*)p.values + (i64)part.kv_head * (PAGED ? 1 : p.room) * p.dim;

  /** Where key j and its value begin: after those before them, or in a page that the table names. */
  WICK_MEMBER i64 row_of(int j) const {
    if constexpr (!PAGED) return (i64)j * p.dim;
    else {
      const i64 page = p.table[part.sequence * p.width + (j >> p.page_shift)];
      return (page << p.page_shift | (j & ((1 << p.page_shift) - 1))) * p.kv_heads * p.dim;
    }
  }

  /** Asks for the keys (0) or values (1) of a step a step ahead of their use, which hides how long memory takes. */
  WICK_MEMBER void fetch(LaneRows& rows, int which, int j0) const {
    const int first = j0 + group;
    if constexpr (PAGED) {
#pragma unroll
      for (int u = 0; u < Unroll; u++) {
        const bool in = whole && first + u * Groups < end && 8 * lane < p.dim;
        const T* at = (which ? values : keys) + (in ? row_of(first + u * Groups) + 8 * lane : 0);
        rows[which * Unroll + u] = load_eight_if<true>(in, at);
      }
      return;
    }
    const T* at = (which ? values : keys) + (i64)first * p.dim + 8 * lane;
#pragma unroll
    for (int u = 0; u < Unroll; u++)
      rows[which * Unroll + u] =
          load_eight_if<true>(whole && first + u * Groups < end && 8 * lane < p.dim, at + u * Groups * p.dim);
  }

  /** The turn of this position and the norms' weights, which were written early, too. */
  WICK_MEMBER void bring_turn_and_norms() const {
    ROLLED for (int d = threadIdx.x; d < p.dim; d += Threads) {
      const i64 at = (i64)part.position * half_dim + d % half_dim;
      shared.turns[d / half_dim][d % half_dim] = to_compute(((const T*)(d < half_dim ? p.cos : p.sin))[at]);
      if (p.q_norm) shared.norms[0][d] = p.q_norm[d], shared.norms[1][d] = p.k_norm[d];
    }
  }

  /**
   * The new query of each head, and the new key and value where they are needed, all asked for at once. They lie where
   * outputs come later.
   */
  WICK_MEMBER T* bring_new_vectors() const {
    const T* qkv = (const T*)p.qkv + (i64)part.sequence * (p.heads + 2 * p.kv_heads) * p.dim;
    T* const fresh = (T*)shared.outputs;
    const int vectors = newest ? G + 2 : G;
    auto vector = [&](int g) {
      return qkv + (i64)(g < G ? part.head0 + g : p.heads + part.kv_head + (g == G ? 0 : p.kv_heads)) * p.dim;
    };
    if (whole) {
      constexpr int Batch = 4;
      const int each_words = p.dim * (int)sizeof(T) / 16, words = vectors * each_words;
      UNROLL(1, 1)
      for (int i0 = threadIdx.x; i0 < words; i0 += Batch * Threads) {
        word4 held[Batch];
#pragma unroll
        for (int u = 0; u < Batch; u++) {
          const int i = i0 + u * Threads, g = i / each_words;
          held[u] = i < words ? ((const word4*)vector(g))[i - g * each_words] : word4{};
        }
#pragma unroll
        for (int u = 0; u < Batch; u++)
          if (i0 + u * Threads < words) ((word4*)fresh)[i0 + u * Threads] = held[u];
      }
    } else {
      ROLLED for (int t = threadIdx.x; t < vectors * p.dim; t += Threads) fresh[t] = vector(t / p.dim)[t % p.dim];
    }
    __syncthreads();
    return fresh;
  }

  /** One over the length of each new query and key, where the model divides by it. */
  WICK_MEMBER void measure_lengths(const T* fresh) const {
    UNROLL(1, 1)
    for (int g = wave_id(); g < (newest ? G + 1 : G); g += Waves) {
      float squares = 0;
      UNROLL(1, 4)
      for (int d = lane_id(); d < p.dim; d += WICK_WAVE) {
        const float v = to_compute(fresh[g * p.dim + d]);
        squares = fmag(v, v, squares);
      }
#pragma unroll
      for (int m = WICK_WAVE / 2; m; m /= 2) squares += shfl_xor(squares, m, WICK_WAVE);
      if (lane_id() == 0) shared.lengths[g] = rsqrtg(squares / (float)p.dim + p.eps);
    }
    __syncthreads();
  }

  /** Turns new queries and the new key by their position; zeros fill what lanes read past the end of a row. */
  WICK_MEMBER void turn_new_vectors(const T* fresh) const {
    UNROLL(1, 1)
    for (int t = threadIdx.x; t < (newest ? G + 1 : G) * half_dim; t += Threads) {
      const int g = t / half_dim, i = t % half_dim;
      const T* from = fresh + g * p.dim;
      float* to = g < G ? shared.queries[g] : shared.key_new;
      const float c = shared.turns[0][i], s = shared.turns[1][i];
      float a = to_compute(from[i]), b = to_compute(from[i + half_dim]);
      if (p.q_norm) {
        const float* norm = shared.norms[g < G ? 0 : 1];
        a = rounded<T>(a * shared.lengths[g] * norm[i]);
        b = rounded<T>(b * shared.lengths[g] * norm[i + half_dim]);
      }
      to[i] = rounded<T>(a * c - b * s);
      to[i + half_dim] = rounded<T>(a * s + b * c);
    }
    UNROLL(1, 1)
    for (int d = p.dim + threadIdx.x; d < D; d += Threads) {
      UNROLL(1, 1)
      for (int g = 0; g < G; g++) shared.queries[g][d] = 0;
      shared.key_new[d] = shared.value_new[d] = 0;
    }
    UNROLL(1, 1)
    for (int d = threadIdx.x; d < p.dim; d += Threads)
      shared.value_new[d] = newest ? to_compute(fresh[(G + 1) * p.dim + d]) : 0.0f;
    __syncthreads();
  }

  /** Appends the new key and value to the cache, by one of the blocks that have them. */
  WICK_MEMBER void store_new_key() const {
    const i32 place = PAGED ? p.state[2 * part.sequences + part.sequence] : part.position;
    if (newest && part.head0 % part.share == 0 && place != Limits<i32>::highest()) {
      const i64 row = (i64)place * (PAGED ? p.kv_heads : 1) * p.dim;
      UNROLL(1, 1)
      for (int d = threadIdx.x; d < p.dim; d += Threads) {
        keys[row + d] = from_compute<T>(shared.key_new[d]);
        values[row + d] = from_compute<T>(shared.value_new[d]);
      }
    }
  }

  /** A lane's eight numbers of each query. */
  WICK_MEMBER void take_queries(HeadEights& query) const {
#pragma unroll
    for (int g = 0; g < G; g++)
#pragma unroll
      for (int e = 0; e < 8; e++) query[g][e] = shared.queries[g][8 * lane + e];
  }

  /** The new key counts as one more group, which is empty in blocks of earlier keys. */
  WICK_MEMBER void score_new_key(const HeadEights& query, const ScoreScale& scale) const {
    if (newest) {
#pragma unroll
      for (int g = 0; g < G; g++) {
        float dot = 0;
#pragma unroll
        for (int e = 0; e < 8; e++) dot = fmaf(query[g][e], shared.key_new[8 * lane + e], dot);
#pragma unroll
        for (int m = Lanes / 2; m; m /= 2) dot += shfl_xor(dot, m, Lanes);
        dot = scale.capped(dot);
        if (threadIdx.x == 0) shared.merged[Groups][g][0] = dot * scale.unit, shared.merged[Groups][g][1] = 1;
      }
    } else if (threadIdx.x < G) {
      shared.merged[Groups][threadIdx.x][0] = Limits<float>::lowest(), shared.merged[Groups][threadIdx.x][1] = 0;
    }
  }

  /** Rows of a step that begin where 16 bytes cannot be read at once: number by number, when they are needed. */
  WICK_MEMBER void load_unaligned(LaneRows& rows, int j0) const {
    load_eights_anywhere(rows, 8 * lane, p.dim, [&](int n, bool& in) {
      const int j = j0 + group + n % Unroll * Groups;
      in = j < end;
      return (n < Unroll ? keys : values) + row_of(in ? j : begin);
    });
  }

  /** A lane's part of the product of every query and every key of a step. */
  WICK_MEMBER void multiply_keys(float (&score)[N], const LaneRows& rows, const HeadEights& query) const {
    float x[8];
#pragma unroll
    for (int u = 0; u < Unroll; u++) {
      unpack_eight(rows[u], x);
#pragma unroll
      for (int g = 0; g < G; g++) {
        float dot = 0;
#pragma unroll
        for (int e = 0; e < 8; e++) dot = fmaf(query[g][e], x[e], dot);
        score[g * Unroll + u] = dot;
      }
    }
  }

  /** A weight stands in the lane that made it, and every lane of the group needs it for its eight numbers. */
  WICK_MEMBER void add_values(HeadEights& out, const LaneRows& rows, const float (&score)[N]) const {
    float x[8];
#pragma unroll
    for (int u = 0; u < Unroll; u++) {
      unpack_eight(rows[Unroll + u], x);
#pragma unroll
      for (int g = 0; g < G; g++) {
        const int n = g * Unroll + u;
        const float w = shfl(score[n % Slots], n / Slots * Copies, Lanes);
#pragma unroll
        for (int e = 0; e < 8; e++) out[g][e] = fmaf(w, x[e], out[g][e]);
      }
    }
  }

  /** Weighs values by groups of lanes, a key a group at a time. */
  WICK_MEMBER void weigh_by_lanes(LaneRows& rows, const HeadEights& query, const ScoreScale& scale) const {
    float out[G][8] = {};
    // This lane's share of the scores: of head `own`, keys `from` and following of a step.
    const int own = lane / HeadLanes, from = lane % HeadLanes * Slots / Copies;
    float sum = 0, top = Limits<float>::lowest();
    // Every group makes as many steps, since all lanes of a wave take part in shuffles.
    UNROLL(1, 1)
    for (int j0 = begin; j0 < end; j0 += Step) {
      if (!whole) load_unaligned(rows, j0);
      float score[N];
      multiply_keys(score, rows, query);
      fetch(rows, 0, j0 + Step);
      scatter_sums<N, Lanes / 2, Lanes>(score, lane);
      float best = top;
#pragma unroll
      for (int c = 0; c < Slots; c++) {
        score[c] = scale.capped(score[c]);
        score[c] = j0 + (from + c) * Groups + group < end ? score[c] * scale.unit : Limits<float>::lowest();
        best = fmaxf(best, score[c]);
      }
#pragma unroll
      for (int m = HeadLanes / 2; m; m /= 2) best = fmaxf(best, shfl_xor(best, m, HeadLanes));
      // -infinity less itself would be NaN
      const float shift = best == Limits<float>::lowest() ? 0 : best, keep = fast_exp2(top - shift);
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
      add_values(out, rows, score);
      fetch(rows, 1, j0 + Step);
    }

#pragma unroll
    for (int m = HeadLanes / 2; m; m /= 2) sum += shfl_xor(sum, m, HeadLanes);
    if (lane % HeadLanes == 0) shared.merged[group][own][0] = top, shared.merged[group][own][1] = sum / Copies;
#pragma unroll
    for (int g = 0; g < G; g++)
#pragma unroll
      for (int e = 0; e < 8; e++) shared.outputs[g][group][8 * lane + e] = out[g][e];
  }

  /** A wave weighs the groups of a head, a lane each, where a thread would take one after another. */
  WICK_MEMBER void weigh_groups(float* weighed) const {
    UNROLL(1, 1)
    for (int g = wave_id(); g < G; g += Waves) {
      static_assert(Groups < WICK_WAVE, "a lane for every group and the new key");
      const bool there = (int)lane_id() <= Groups;
      const float top = there ? shared.merged[lane_id()][g][0] : Limits<float>::lowest();
      const float sum = there ? shared.merged[lane_id()][g][1] : 0;
      float best = top;
#pragma unroll
      for (int m = WICK_WAVE / 2; m; m /= 2) best = fmaxf(best, shfl_xor(best, m, WICK_WAVE));
      // -infinity less itself would be NaN; a sum that is NaN stays it
      const float factor = top == Limits<float>::lowest() ? 0 : fast_exp2(top - best);
      float total = sum * factor;
#pragma unroll
      for (int m = WICK_WAVE / 2; m; m /= 2) total += shfl_xor(total, m, WICK_WAVE);
      if (there) shared.factors[lane_id()][g] = factor;
      if (lane_id() == 0) {
        shared.totals[g] = total;
        if (part.active > 1)
          weighed[(i64)(part.head0 + g) * part.splits + part.split] = best + logg(total) * 1.44269504f;
      }
    }
  }

  /** Adds what groups have, as the result, or as this split's part of it. */
  WICK_MEMBER void write_split(float* partial, T* result) const {
    UNROLL(1, 1)
    for (int t = threadIdx.x; t < G * p.dim; t += Threads) {
      const int g = t / p.dim, d = t % p.dim;
      float added = shared.factors[Groups][g] * shared.value_new[d];
#pragma unroll
      for (int w = 0; w < Groups; w++) added = fmaf(shared.factors[w][g], shared.outputs[g][w][d], added);
      added = shared.totals[g] == 0 ? 0 : added / shared.totals[g];
      if (unknown(part.active) == 1) result[t] = from_compute<T>(added);
      else partial[((i64)(part.head0 + g) * part.splits + part.split) * p.dim + d] = added;
    }
  }

  /** Whether this block came last, and so finds the parts of all others. */
  WICK_MEMBER bool comes_last() const {
    u32* const arrived = p.arrived + part.sequence * gridDim.y + blockIdx.y;
    if (threadIdx.x == 0) shared.before = arrive(arrived);
    __syncthreads();
    if (shared.before != (u32)part.active - 1) return false;
    if (threadIdx.x == 0) *arrived = 0;
    return true;
  }

  /** What each split weighs in each head, which lie by the rows of outputs, at most 1024 of a head. */
  WICK_MEMBER void weigh_splits(float* shares, const float* weighed) const {
    UNROLL(1, 4)
    for (int t = threadIdx.x; t < G * part.active; t += Threads) {
      const int g = t / part.active, w = t - g * part.active;
      shares[g * Row + w] = weighed[(i64)(part.head0 + g) * part.splits + w];
    }
    __syncthreads();
    UNROLL(1, 1)
    for (int g = wave_id(); g < G; g += Waves) {
      float best = Limits<float>::lowest(), total = 0;
      ROLLED for (int w = lane_id(); w < part.active; w += WICK_WAVE) best = fmaxf(best, shares[g * Row + w]);
#pragma unroll
      for (int m = WICK_WAVE / 2; m; m /= 2) best = fmaxf(best, shfl_xor(best, m, WICK_WAVE));
      const float shift = best == Limits<float>::lowest() ? 0 : best;
      ROLLED for (int w = lane_id(); w < part.active; w += WICK_WAVE) {
        const float share = fast_exp2(shares[g * Row + w] - shift);
        shares[g * Row + w] = share;
        total += share;
      }
#pragma unroll
      for (int m = WICK_WAVE / 2; m; m /= 2) total += shfl_xor(total, m, WICK_WAVE);
      if (lane_id() == 0) shared.totals[g] = total == 0 ? 1 : total;  // nothing weighs anything: the sum is 0
    }
  }

  /** Several results and splits of a thread under way at once; past the last split it is read again and left out. */
  WICK_MEMBER void join_splits(const float* shares, const float* partial, T* result) const {
    constexpr int Per = (G * D + Threads - 1) / Threads, Once = Per < JOINED_AT_ONCE ? Per : JOINED_AT_ONCE;
    constexpr int Ahead = JOINED_UNDER_WAY / Once < 32 ? JOINED_UNDER_WAY / Once : 32;
    UNROLL(1, 1)
    for (int t0 = threadIdx.x; t0 < G * p.dim; t0 += Once * Threads) {
      const float *from[Once], *share[Once];
      float added[Once] = {};
#pragma unroll
      for (int i = 0; i < Once; i++) {
        const int t = t0 + i * Threads < G * p.dim ? t0 + i * Threads : t0, g = t / p.dim;
        from[i] = partial + (i64)(part.head0 + g) * part.splits * p.dim + (t - g * p.dim);
        share[i] = shares + g * Row;
      }
      UNROLL(1, 1)
      for (int w0 = 0; w0 < part.active; w0 += Ahead) {
        float x[Ahead][Once];
#pragma unroll
        for (int u = 0; u < Ahead; u++)
#pragma unroll
          for (int i = 0; i < Once; i++)
            x[u][i] = from[i][(i64)(w0 + u < part.active ? w0 + u : part.active - 1) * p.dim];
#pragma unroll
        for (int u = 0; u < Ahead; u++)
#pragma unroll
          for (int i = 0; i < Once; i++)
            if (w0 + u < part.active) added[i] = fmaf(share[i][w0 + u], x[u][i], added[i]);
      }
#pragma unroll
      for (int i = 0; i < Once; i++) {
        const int t = t0 + i * Threads;
        if (t < G * p.dim) result[t] = from_compute<T>(added[i] / shared.totals[t / p.dim]);
      }
    }
  }
};

template <class T, int D, int G, int Unroll, bool PAGED> WICK_FN void decode_attention(const NewToken& p) {
  using Block = NewTokenBlock<T, D, G, Unroll, PAGED>;
  constexpr int Groups = Block::Groups;
  __shared__ __attribute__((aligned(16))) float queries[G][D], key_new[D], value_new[D];
  __shared__ __attribute__((aligned(16))) float outputs[G][Groups][D];
  __shared__ float merged[Groups + 1][G][2], factors[Groups + 1][G], totals[G], lengths[G + 1];
  __shared__ float norms[2][D], turns[2][D / 2];
  __shared__ u32 before;
  const typename Block::Memory shared{queries, key_new, value_new, outputs, merged, factors,
                                      totals,  lengths, norms,     turns,   before};
  const typename Block::Part part{p};
  if (part.split >= part.active) return;
  const Block block{p, part, shared};
  // Keys of earlier tokens are asked for before the new query is there.
  Eight<T> rows[2 * Unroll];
  block.fetch(rows, 0, block.begin), block.fetch(rows, 1, block.begin);
  block.bring_turn_and_norms();
  begin_in_turn();

  const T* fresh = block.bring_new_vectors();
  if (p.q_norm) block.measure_lengths(fresh);
  block.turn_new_vectors(fresh);
  block.store_new_key();
  // Outputs of all splits, then the logarithms of what they weigh.
  float* const partial = p.partial + (i64)part.sequence * p.heads * part.splits * (p.dim + 1);
  float* const weighed = partial + (i64)p.heads * part.splits * p.dim;
  float query[G][8];
  block.take_queries(query);
  const ScoreScale scale{p.scale * 1.44269504f, p.softcap, p.softcap / p.scale};
  block.score_new_key(query, scale);
  block.weigh_by_lanes(rows, query, scale);
  __syncthreads();
  block.weigh_groups(weighed);
  __syncthreads();
  T* const result = (T*)p.out + ((i64)part.sequence * p.heads + part.head0) * p.dim;
  block.write_split(partial, result);
  if (part.active == 1) return;

  __syncthreads();
  if (!block.comes_last()) return;
  float* const shares = &outputs[0][0][0];
  block.weigh_splits(shares, weighed);
  __syncthreads();
  block.join_splits(shares, partial, result);
}

/** Keys and values a lane has under way; on AMD as many as leave registers for the rest, which pages take more of. */
#ifdef WICK_AMD
template <class T, int D, int G> constexpr int KEYS_AHEAD = G == 8 ? 2 : G < 4 && sizeof(T) == 2 ? 8 : 4;
template <class T, int D, int G> constexpr int PAGED_AHEAD = KEYS_AHEAD<T, D, G> == 8 ? 4 : 2;
#else
template <class T, int D, int G> constexpr int KEYS_AHEAD = G < 4 ? 8 : 4;
template <class T, int D, int G> constexpr int PAGED_AHEAD = KEYS_AHEAD<T, D, G>;
#endif

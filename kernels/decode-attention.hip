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
// decode_attention_units_T_D_G: the same over pages through matrix units, for G heads of 16 bits: a wave takes 16 keys at
// a time, whose scores are a product with the queries and whose values are a product with the weights. Keys and values
// go from memory to registers as the products want them: the order in which a product adds does not matter as long as
// both operands agree on it, so a lane keeps the 16 bytes it has read.
#include "attention-split.h"
#include "block.h"
#include "decode.h"
#include "matrix.h"

constexpr int DECODE_SPLIT = 128;
/**
 * Threads of a block where matrix units serve, and those of a multiprocessor, which registers are left for: four
 * blocks. Sequences times heads are a power of two more often than not, and an H200 has 132 multiprocessors: 512 blocks
 * run at once, where three larger ones on each would leave a part of them for later.
 */
constexpr int UNITS_SPLIT = 96, UNITS_BOUND = 384;
/** Results of a thread that joins splits at a time, and numbers of splits that it has under way for them. */
#ifdef WICK_AMD
constexpr int JOINED_AT_ONCE = 2, JOINED_UNDER_WAY = 8;
#else
constexpr int JOINED_AT_ONCE = 8, JOINED_UNDER_WAY = 64;
#endif

struct NewToken {
  const void* qkv;
  const void* cos;
  const void* sin;
  const i32* state;
  void* keys;
  void* values;
  void* out;
  float* partial;
  u32* arrived;
  /** Weights of norms over each query and key before they are turned; null for none. */
  const float *q_norm, *k_norm;
  const i32* table;
  i32 heads, kv_heads, dim, room;
  /** Keys that a query sees, itself counted; 0 for all. */
  i32 window;
  /** A page has two to this power rows. */
  i32 page_shift;
  /** Pages of a row of the table. */
  i32 width;
  /** A cap on scores, 0 for none. */
  float scale, eps, softcap;
};

/** What a wave of matrix units knows of its keys and values: 16 of them at a time. */
template <class T, int D> struct UnitRows {
  /** Of keys n and n + 8: 32 numbers after another, of which a lane has eight. */
  word4 keys[2][D / 32];
  /** Of keys 2n, 2n + 1, 2n + 8 and 2n + 9: both halves of a row. */
  word4 values[4][2];
};
/** The j-th numbers of two lists of eight, side by side. */
WICK_FN u32 side_by_side(const u32 (&a)[4], const u32 (&b)[4], int j) {
  return j % 2 ? a[j / 2] >> 16 | (b[j / 2] & 0xffff0000u) : (a[j / 2] & 0xffffu) | b[j / 2] << 16;
}
template <class T, int D, int G, int Unroll, bool PAGED, bool MATRIX = false>
WICK_FN void decode_attention(const NewToken& p) {
  constexpr bool Units = MATRIX && RESULT_IS_LEFT;  // on others operands lie in another way
  static_assert(!Units || (PAGED && D == 128 && G <= 8), "halves of a row are eight lanes of eight numbers");
  constexpr int Threads = MATRIX ? UNITS_SPLIT : DECODE_SPLIT;
  constexpr int Lanes = D / 8, Held = DECODE_SPLIT / Lanes, Groups = Units ? Threads / 32 : Threads / Lanes;
  constexpr int Step = Units ? 16 * Groups : Groups * Unroll, HeadLanes = Lanes / G;
  constexpr int N = G * Unroll, Slots = N > Lanes ? N / Lanes : 1, Copies = N < Lanes ? Lanes / N : 1;
  __shared__ __attribute__((aligned(16))) float queries[G][D], key_new[D], value_new[D];
  __shared__ __attribute__((aligned(16))) float outputs[G][Held][D];
  __shared__ float merged[Groups + 1][G][2], factors[Groups + 1][G], totals[G], lengths[G + 1];
  __shared__ float norms[2][D], turns[2][D / 2];
  __shared__ u32 before;
  const int lane = threadIdx.x % Lanes, group = threadIdx.x / Lanes, split = blockIdx.x, splits = gridDim.x;
  const int head0 = blockIdx.y * G, share = p.heads / p.kv_heads, kv_head = head0 / share, half_dim = p.dim / 2;
  // Written two launches before this one or earlier, so it may be read early.
  const int sequence = blockIdx.z, sequences = gridDim.z, position = p.state[sequences + sequence];
  // To join splits takes as long as a few steps, so a few steps are not split.
  const int start = p.window && position >= p.window ? position - p.window + 1 : 0, count = position - start;
  const int parts = count <= 4 * Step ? 1 : splits, each = ((count + parts - 1) / parts + Step - 1) / Step * Step;
  const int active = each == 0 ? 1 : (count + each - 1) / each;
  if (split >= active) return;
  const int begin = start + split * each, end = begin + each < position ? begin + each : position;
  const bool whole = p.dim % 8 == 0, newest = split == active - 1;
  T* const keys = (T*)p.keys + (i64)kv_head * (PAGED ? 1 : p.room) * p.dim;
  T* const values = (T*)p.values + (i64)kv_head * (PAGED ? 1 : p.room) * p.dim;
  auto row_of = [&](int j) {
    if constexpr (!PAGED) return (i64)j * p.dim;
    else {
      const i64 page = p.table[sequence * p.width + (j >> p.page_shift)];
      return (page << p.page_shift | (j & ((1 << p.page_shift) - 1))) * p.kv_heads * p.dim;
    }
  };
  Eight<T> rows[2 * Unroll];  // of keys, then of values
  auto fetch = [&](int which, int j0) {
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
  };
  UnitRows<T, D> held;
  const int cell = lane_id() / 4, pair = lane_id() % 4;  // of a product's 8 x 4
  auto fetch_units = [&](int which, int j0) {
    const int first = j0 + 16 * (int)wave_id();
    if (which == 0) {
#pragma unroll
      for (int n = 0; n < 2; n++) {
        const int j = first + cell + 8 * n;
        const T* at = keys + (j < end ? row_of(j) : 0);
#pragma unroll
        for (int c = 0; c < D / 32; c++) {
          const int d = 32 * c + 8 * pair;
          held.keys[n][c] = load_once_if<true>(j < end && d < p.dim, (const word4*)(at + d));
        }
      }
    } else {
#pragma unroll
      for (int n = 0; n < 4; n++) {
        const int j = first + 2 * pair + n % 2 + n / 2 * 8;
        const T* at = values + (j < end ? row_of(j) : 0);
#pragma unroll
        for (int c = 0; c < 2; c++) {
          const int d = D / 2 * c + 8 * cell;
          held.values[n][c] = load_once_if<true>(j < end && d < p.dim, (const word4*)(at + d));
        }
      }
    }
  };
  if constexpr (Units) fetch_units(0, begin), fetch_units(1, begin);
  else fetch(0, begin), fetch(1, begin);
  // So are the turn of this position and the norms' weights.
  ROLLED for (int d = threadIdx.x; d < p.dim; d += Threads) {
    const i64 at = (i64)position * half_dim + d % half_dim;
    turns[d / half_dim][d % half_dim] = to_compute(((const T*)(d < half_dim ? p.cos : p.sin))[at]);
    if (p.q_norm) norms[0][d] = p.q_norm[d], norms[1][d] = p.k_norm[d];
  }
  begin_in_turn();

  // The new query of each head, and the new key and value where they are needed, all asked for at once. They lie where
  // outputs come later.
  const T* qkv = (const T*)p.qkv + (i64)sequence * (p.heads + 2 * p.kv_heads) * p.dim;
  T* const fresh = (T*)outputs;
  const int vectors = newest ? G + 2 : G;
  auto vector = [&](int g) {
    return qkv + (i64)(g < G ? head0 + g : p.heads + kv_head + (g == G ? 0 : p.kv_heads)) * p.dim;
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
  if (p.q_norm) {
    constexpr int Waves = Threads / WICK_WAVE;
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
      if (lane_id() == 0) lengths[g] = rsqrtg(squares / (float)p.dim + p.eps);
    }
    __syncthreads();
  }
  UNROLL(1, 1)
  for (int t = threadIdx.x; t < (newest ? G + 1 : G) * half_dim; t += Threads) {
    const int g = t / half_dim, i = t % half_dim;
    const T* from = fresh + g * p.dim;
    float* to = g < G ? queries[g] : key_new;
    const float c = turns[0][i], s = turns[1][i];
    float a = to_compute(from[i]), b = to_compute(from[i + half_dim]);
    if (p.q_norm) {
      const float* norm = norms[g < G ? 0 : 1];
      a = rounded<T>(a * lengths[g] * norm[i]);
      b = rounded<T>(b * lengths[g] * norm[i + half_dim]);
    }
    to[i] = rounded<T>(a * c - b * s);
    to[i + half_dim] = rounded<T>(a * s + b * c);
  }
  UNROLL(1, 1)
  for (int d = p.dim + threadIdx.x; d < D; d += Threads) {
    UNROLL(1, 1)
    for (int g = 0; g < G; g++) queries[g][d] = 0;
    key_new[d] = value_new[d] = 0;
  }
  UNROLL(1, 1)
  for (int d = threadIdx.x; d < p.dim; d += Threads)
    value_new[d] = newest ? to_compute(fresh[(G + 1) * p.dim + d]) : 0.0f;
  __syncthreads();
  const i32 place = PAGED ? p.state[2 * sequences + sequence] : position;
  if (newest && head0 % share == 0 && place != Limits<i32>::highest()) {
    const i64 row = (i64)place * (PAGED ? p.kv_heads : 1) * p.dim;
    UNROLL(1, 1)
    for (int d = threadIdx.x; d < p.dim; d += Threads) {
      keys[row + d] = from_compute<T>(key_new[d]);
      values[row + d] = from_compute<T>(value_new[d]);
    }
  }
  // Outputs of all splits, then the logarithms of what they weigh.
  float* const partial = p.partial + (i64)sequence * p.heads * splits * (p.dim + 1);
  float* const weighed = partial + (i64)p.heads * splits * p.dim;
  float query[G][8], out[G][8] = {};
#pragma unroll
  for (int g = 0; g < G; g++)
#pragma unroll
    for (int e = 0; e < 8; e++) query[g][e] = queries[g][8 * lane + e];
  const float unit = p.scale * 1.44269504f;  // from a score to a power of two
  // A cap on dot * scale, of which the scale is taken out again.
  const float limit = p.softcap / p.scale;
  auto capped = [&](float dot) { return limit * tanhg(dot / limit); };
  if (newest) {
#pragma unroll
    for (int g = 0; g < G; g++) {
      float dot = 0;
#pragma unroll
      for (int e = 0; e < 8; e++) dot = fmaf(query[g][e], key_new[8 * lane + e], dot);
#pragma unroll
      for (int m = Lanes / 2; m; m /= 2) dot += shfl_xor(dot, m, Lanes);
      if (p.softcap > 0) dot = capped(dot);
      if (threadIdx.x == 0) merged[Groups][g][0] = dot * unit, merged[Groups][g][1] = 1;
    }
  } else if (threadIdx.x < G) {
    merged[Groups][threadIdx.x][0] = Limits<float>::lowest(), merged[Groups][threadIdx.x][1] = 0;
  }

  if constexpr (Units) {
    // Queries are the left operand, of which no more than eight rows are anything.
    u32 wanted[D / 16][2];
#pragma unroll
    for (int c = 0; c < D / 16; c++) {
      const float* from = queries[cell % G] + c / 2 * 32 + 8 * pair + c % 2 * 4;
      const bool in = cell < G;
      wanted[c][0] = in ? pack_pair<T>(from[0], from[1]) : 0u, wanted[c][1] = in ? pack_pair<T>(from[2], from[3]) : 0u;
    }
    float weighed_sum[D / 16][4] = {}, top = Limits<float>::lowest(), sum = 0;
    UNROLL(1, 1)
    for (int j0 = begin; j0 < end; j0 += Step) {
      float score[2][4] = {};
#pragma unroll
      for (int n = 0; n < 2; n++)
#pragma unroll
        for (int c = 0; c < D / 32; c++) {
          u32 key[4];
          split_words(held.keys[n][c], key);
#pragma unroll
          for (int h = 0; h < 2; h++) {
            const u32(&q)[2] = wanted[2 * c + h];
            Frag left = {};  // eight rows: the other words are 0
            left.w[0] = q[0], left.w[2] = q[1];
            multiply_narrow<T>(score[n], left, key[2 * h], key[2 * h + 1]);
          }
        }
      fetch_units(0, j0 + Step);
      float best = top;
#pragma unroll
      for (int n = 0; n < 2; n++)
#pragma unroll
        for (int i = 0; i < 2; i++) {
          const int j = j0 + 16 * (int)wave_id() + 8 * n + 2 * pair + i;
          if (p.softcap > 0) score[n][i] = capped(score[n][i]);
          score[n][i] = j < end ? score[n][i] * unit : Limits<float>::lowest();
          best = fmaxf(best, score[n][i]);
        }
      best = fmaxf(best, shfl_xor(best, 1, 4));
      best = fmaxf(best, shfl_xor(best, 2, 4));
      // -infinity less itself would be NaN
      const float shift = best == Limits<float>::lowest() ? 0 : best, keep = fast_exp2(top - shift);
      u32 weights[2];
      sum *= keep;
#pragma unroll
      for (int n = 0; n < 2; n++) {
        const float a = fast_exp2(score[n][0] - shift), b = fast_exp2(score[n][1] - shift);
        sum += a + b;
        weights[n] = pack_pair<T>(a, b);
      }
      if (ballot64(best != top)) {
        // Sums are of heads 2 pair and 2 pair + 1.
        const float factors_of[2] = {shfl(keep, 8 * pair, 32), shfl(keep, 8 * pair + 4, 32)};
#pragma unroll
        for (int d = 0; d < D / 16; d++)
#pragma unroll
          for (int i = 0; i < 4; i++) weighed_sum[d][i] *= factors_of[i % 2];
      }
      top = best;
      u32 value[4][2][4];
#pragma unroll
      for (int n = 0; n < 8; n++) split_words(held.values[n / 2][n % 2], value[n / 2][n % 2]);
#pragma unroll
      for (int d = 0; d < D / 16; d++) {
        Frag left;
#pragma unroll
        for (int i = 0; i < 4; i++) left.w[i] = side_by_side(value[i / 2 * 2][i % 2], value[i / 2 * 2 + 1][i % 2], d);
        multiply_narrow<T>(weighed_sum[d], left, weights[0], weights[1]);
      }
      fetch_units(1, j0 + Step);
    }
    sum += shfl_xor(sum, 1, 4);
    sum += shfl_xor(sum, 2, 4);
    const int wave = wave_id();
    if (pair == 0 && cell < G) merged[wave][cell][0] = top, merged[wave][cell][1] = sum;
#pragma unroll
    for (int i = 0; i < 4; i++)
      if (2 * pair + i % 2 < G)
#pragma unroll
        for (int d = 0; d < D / 16; d++)
          outputs[2 * pair + i % 2][wave][i / 2 * (D / 2) + 8 * cell + d] = weighed_sum[d][i];
  } else {
    // This lane's share of the scores: of head `own`, keys `from` and following of a step.
    const int own = lane / HeadLanes, from = lane % HeadLanes * Slots / Copies;
    float top = Limits<float>::lowest(), sum = 0;
    // Every group makes as many steps, since all lanes of a wave take part in shuffles.
    UNROLL(1, 1)
    for (int j0 = begin; j0 < end; j0 += Step) {
      if (!whole) {
        load_eights_anywhere(rows, 8 * lane, p.dim, [&](int n, bool& in) {
          const int j = j0 + group + n % Unroll * Groups;
          in = j < end;
          return (n < Unroll ? keys : values) + row_of(in ? j : begin);
        });
      }
      float score[N], x[8];
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
      fetch(0, j0 + Step);
      scatter_sums<N, Lanes / 2, Lanes>(score, lane);
      float best = top;
#pragma unroll
      for (int c = 0; c < Slots; c++) {
        if (p.softcap > 0) score[c] = capped(score[c]);
        score[c] = j0 + (from + c) * Groups + group < end ? score[c] * unit : Limits<float>::lowest();
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
      fetch(1, j0 + Step);
    }

#pragma unroll
    for (int m = HeadLanes / 2; m; m /= 2) sum += shfl_xor(sum, m, HeadLanes);
    if (lane % HeadLanes == 0) merged[group][own][0] = top, merged[group][own][1] = sum / Copies;
#pragma unroll
    for (int g = 0; g < G; g++)
#pragma unroll
      for (int e = 0; e < 8; e++) outputs[g][group][8 * lane + e] = out[g][e];
  }
  __syncthreads();
  // A wave weighs the groups of a head, a lane each, where a thread would take one after another.
  UNROLL(1, 1)
  for (int g = wave_id(); g < G; g += Threads / WICK_WAVE) {
    static_assert(Groups < WICK_WAVE, "a lane for every group and the new key");
    const bool there = (int)lane_id() <= Groups;
    const float top = there ? merged[lane_id()][g][0] : Limits<float>::lowest();
    const float sum = there ? merged[lane_id()][g][1] : 0;
    float best = top;
#pragma unroll
    for (int m = WICK_WAVE / 2; m; m /= 2) best = fmaxf(best, shfl_xor(best, m, WICK_WAVE));
    const float factor = sum > 0 ? fast_exp2(top - best) : 0;
    float total = sum * factor;
#pragma unroll
    for (int m = WICK_WAVE / 2; m; m /= 2) total += shfl_xor(total, m, WICK_WAVE);
    if (there) factors[lane_id()][g] = factor;
    if (lane_id() == 0) {
      totals[g] = total;
      if (active > 1) weighed[(i64)(head0 + g) * splits + split] = best + logg(total) * 1.44269504f;
    }
  }
  __syncthreads();
  T* const result = (T*)p.out + ((i64)sequence * p.heads + head0) * p.dim;
  UNROLL(1, 1)
  for (int t = threadIdx.x; t < G * p.dim; t += Threads) {
    const int g = t / p.dim, d = t % p.dim;
    float added = factors[Groups][g] * value_new[d];
#pragma unroll
    for (int w = 0; w < Groups; w++) added = fmaf(factors[w][g], outputs[g][w][d], added);
    added /= totals[g];
    if (unknown(active) == 1) result[t] = from_compute<T>(added);
    else partial[((i64)(head0 + g) * splits + split) * p.dim + d] = added;
  }
  if (active == 1) return;

  __syncthreads();
  u32* const arrived = p.arrived + sequence * gridDim.y + blockIdx.y;
  if (threadIdx.x == 0) before = arrive(arrived);
  __syncthreads();
  if (before != (u32)active - 1) return;
  if (threadIdx.x == 0) *arrived = 0;
  // What each split weighs in each head, by a row of 1024 floats a head.
  constexpr int Row = Held * D, Waves = Threads / WICK_WAVE;
  float* const shares = &outputs[0][0][0];
  UNROLL(1, 4)
  for (int t = threadIdx.x; t < G * active; t += Threads) {
    const int g = t / active, w = t - g * active;
    shares[g * Row + w] = weighed[(i64)(head0 + g) * splits + w];
  }
  __syncthreads();
  UNROLL(1, 1)
  for (int g = wave_id(); g < G; g += Waves) {
    float best = Limits<float>::lowest(), total = 0;
    ROLLED for (int w = lane_id(); w < active; w += WICK_WAVE) best = fmaxf(best, shares[g * Row + w]);
#pragma unroll
    for (int m = WICK_WAVE / 2; m; m /= 2) best = fmaxf(best, shfl_xor(best, m, WICK_WAVE));
    ROLLED for (int w = lane_id(); w < active; w += WICK_WAVE) {
      const float share = fast_exp2(shares[g * Row + w] - best);
      shares[g * Row + w] = share;
      total += share;
    }
#pragma unroll
    for (int m = WICK_WAVE / 2; m; m /= 2) total += shfl_xor(total, m, WICK_WAVE);
    if (lane_id() == 0) totals[g] = total;
  }
  __syncthreads();
  // Several results of a thread and several splits under way at once; past the last one it is read again and left out.
  constexpr int Per = (G * D + Threads - 1) / Threads, Once = Per < JOINED_AT_ONCE ? Per : JOINED_AT_ONCE;
  constexpr int Ahead = JOINED_UNDER_WAY / Once < 32 ? JOINED_UNDER_WAY / Once : 32;
  UNROLL(1, 1)
  for (int t0 = threadIdx.x; t0 < G * p.dim; t0 += Once * Threads) {
    const float *from[Once], *share[Once];
    float added[Once] = {};
#pragma unroll
    for (int i = 0; i < Once; i++) {
      const int t = t0 + i * Threads < G * p.dim ? t0 + i * Threads : t0, g = t / p.dim;
      from[i] = partial + (i64)(head0 + g) * splits * p.dim + (t - g * p.dim);
      share[i] = shares + g * Row;
    }
    UNROLL(1, 1)
    for (int w0 = 0; w0 < active; w0 += Ahead) {
      float x[Ahead][Once];
#pragma unroll
      for (int u = 0; u < Ahead; u++)
#pragma unroll
        for (int i = 0; i < Once; i++) x[u][i] = from[i][(i64)(w0 + u < active ? w0 + u : active - 1) * p.dim];
#pragma unroll
      for (int u = 0; u < Ahead; u++)
#pragma unroll
        for (int i = 0; i < Once; i++)
          if (w0 + u < active) added[i] = fmaf(share[i][w0 + u], x[u][i], added[i]);
    }
#pragma unroll
    for (int i = 0; i < Once; i++) {
      const int t = t0 + i * Threads;
      if (t < G * p.dim) result[t] = from_compute<T>(added[i] / totals[t / p.dim]);
    }
  }
}

/** Keys and values a lane has under way; on AMD as many as leave registers for the rest, which pages take more of. */
#ifdef WICK_AMD
template <class T, int D, int G> constexpr int KEYS_AHEAD = G == 8 ? 2 : G < 4 && sizeof(T) == 2 ? 8 : 4;
template <class T, int D, int G> constexpr int PAGED_AHEAD = KEYS_AHEAD<T, D, G> == 8 ? 4 : 2;
#else
template <class T, int D, int G> constexpr int KEYS_AHEAD = G < 4 ? 8 : 4;
template <class T, int D, int G> constexpr int PAGED_AHEAD = KEYS_AHEAD<T, D, G>;
#endif

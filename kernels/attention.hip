// Attention for every element type and every GPU: tiled online softmax in plain arithmetic, and the split-keys pair for
// decoding.
//
// attention_T_D: grid (query tiles, heads, batch), 256 threads as 16 x 16; the tile is attention_rows queries by as
// many keys.
#include "attention-again.h"
#include "attention-tile.h"
#include "block.h"

template <class T, int D> WICK_FN void attention_forward(const Attention& p) {
  typedef compute_t<T> A;
  constexpr int R = tile_side<T>, B = 16 * R;
  __shared__ A stage[2][B][33], weights[B][B + 1], tops[B], sums[B], keeps[B];
  __shared__ i64 queries[2][B], keys_values[2][B];
  __shared__ bool odd[B];  // rows with NaN
  const int tx = threadIdx.x % 16, ty = threadIdx.x / 16, head = blockIdx.y, kv_head = head / (p.heads / p.kv_heads);
  const Sequence s = sequence_of(p, blockIdx.z);
  const int i0 = blockIdx.x * B;
  if (i0 >= s.nq) return;
  const Range keys = keys_seen(p, s, i0, i0 + B - 1);
  const bool plain = is_plain(p);
  const A unit = plain ? (A)p.scale : A(1);  // what makes a logit of what lies in `weights`
  A out[R][D / 16] = {};
  if (threadIdx.x < B) tops[threadIdx.x] = Limits<A>::lowest(), sums[threadIdx.x] = 0, odd[threadIdx.x] = false;
  find_queries<T>(queries, p, s, head, i0);

  UNROLL(1, 1)
  for (int j0 = keys.begin / B * B; j0 < keys.end; j0 += B) {
    find_keys<T>(keys_values, p, s, kv_head, j0);
    A score[R][R] = {};
    tile_dot<T>(score, stage, p.dim, p.q, queries[0], p.k, keys_values[0]);
#pragma unroll
    for (int r = 0; r < R; r++)
#pragma unroll
      for (int c = 0; c < R; c++) weights[ty + 16 * r][tx + 16 * c] = score[r][c];
    // From here a thread's numbers lie in shared memory, so that loops over them need not be unrolled.
    if (!plain) {
      UNROLL(1, 1)
      for (int n = 0; n < R * R; n++) {
        const int row = ty + n / R * 16, column = tx + n % R * 16;
        if (is_seen(p, s, i0 + row, j0 + column))
          weights[row][column] = logit_of<T>(p, s, head, i0 + row, j0 + column, weights[row][column]);
      }
    }
    UNROLL(1, 1)
    for (int row = ty; row < B; row += 16) {
      const Range seen = keys_of(p, s, i0 + row);
      const A top = tops[row];
      A x[R], best = top, added = 0;
#pragma unroll
      for (int c = 0; c < R; c++) {
        const int j = j0 + tx + 16 * c;
        x[c] = j >= seen.begin && j < seen.end ? weights[row][tx + 16 * c] * unit : Limits<A>::lowest();
        best = x[c] > best ? x[c] : best;
      }
#pragma unroll
      for (int m = 8; m; m /= 2) {
        const A other = shfl_xor(best, m, 16);
        best = other > best ? other : best;
      }
      const A raised = expg(top - best), keep = top == best ? A(1) : raised;
#pragma unroll
      for (int c = 0; c < R; c++) {
        const A power = expg(x[c] - best), w = x[c] == Limits<A>::lowest() ? A(0) : power;
        weights[row][tx + 16 * c] = w;
        added += w;
      }
#pragma unroll
      for (int m = 8; m; m /= 2) added += shfl_xor(added, m, 16);
      sync_wave();  // all have read the row's top: shuffles order no memory
      if (tx == 0) sums[row] = sums[row] * keep + added, tops[row] = best, keeps[row] = keep;
    }
    sync_wave();
#pragma unroll
    for (int r = 0; r < R; r++) {
      const A keep = keeps[ty + 16 * r];
#pragma unroll
      for (int e = 0; e < D / 16; e++) out[r][e] *= keep;
    }
    tile_sum<T, false>(out, weights, stage, p.dim, p.v, keys_values[1]);
  }

  __syncthreads();
  if (threadIdx.x < B) {
    const int r = threadIdx.x, i = i0 + r;
    A top = tops[r], sum = sums[r], keep = 1;
    if (p.sinks) {  // takes part in the sum only
      const A sink = (A)p.sinks[head], best = sink > top ? sink : top;
      if (top != best) keep = expg(top - best);
      sum = sum * keep + (sink == Limits<A>::lowest() ? A(0) : expg(sink - best));
      top = best;
    }
    keeps[r] = keep;
    sums[r] = sum == 0 ? A(0) : 1 / sum;  // NaN where a score is
    if (p.lse && i < s.nq) ((A*)p.lse)[lse_index(p, s, head, i)] = top + logg(sum);
  }
  tile_store(out, weights, s.nq - i0, p.dim, [&](int r, int d, A x) {
    const A y = x * keeps[r] * sums[r];
    if (y != y) odd[r] = true;
    query_row<T>(p.out, p.out_strides, s, head, i0 + r)[d] = from_compute<T>(y);
  });
  __syncthreads();
  UNROLL(1, 1)
  for (int r = wave_again(); r < B; r += 256 / WICK_WAVE)
    if (odd[r]) row_again<T>(p, s, head, i0 + r);
}

// ---- decoding: few queries, many keys
// -------------------------------------------------------------------------------------
//
// attention_split_T_D_G: grid (splits, query heads / G of one key head at a time, batch * tq), SPLIT_THREADS threads. A
// group of D/8 lanes takes a key, eight numbers a lane, for G query heads that share it; every group keeps its own
// softmax, merged at the end. Speed is how many loads are under way: a lane asks for the keys and the values of Unroll
// rows before it uses one. Keys and values are kept as S: T itself, or 8 bits (attention_split_f8_T_D_G and
// attention_split_q8_T_D_G, for rows that load_lane_if can read).

constexpr int SPLIT_THREADS = 128;

/**
 * A block with its share of the keys and what it does with them. Rows, scores and sums stay variables of the kernel, so
 * that each keeps to registers of its own.
 */
template <class T, int D, int G, int Unroll, class S> struct SplitBlock {
  static constexpr int Lanes = D / 8, Groups = SPLIT_THREADS / Lanes, Step = Groups * Unroll, HeadLanes = Lanes / G;
  // scores: results a lane has, lanes a result has
  static constexpr int N = G * Unroll, Slots = N > Lanes ? N / Lanes : 1, Copies = N < Lanes ? Lanes / N : 1;
  const Attention& p;
  const Sequence& s;
  int lane, group, head0, kv_head, i;
  int begin, end;  // keys
  int own, from;   // this lane's share of the scores: of head `own`, keys `from` and following of a step

  // By way of shared memory: a lane keeps eight numbers of every head, and threads read neighbours.
  static WICK_MEMBER void load_queries(float (&query)[G][8], float* through, const Attention& p, const Sequence& s,
                                       int head0, int i, int lane) {
    UNROLL(1, 1)
    for (int t = threadIdx.x; t < G * D; t += SPLIT_THREADS) {
      const int d = t % D;
      through[t] = i < s.nq && d < p.dim
                       ? (float)to_compute(query_row<const T>(p.q, p.q_strides, s, head0 + t / D, i)[d])
                       : 0.0f;
    }
    __syncthreads();
#pragma unroll
    for (int g = 0; g < G; g++)
#pragma unroll
      for (int e = 0; e < 8; e++) query[g][e] = through[g * D + 8 * lane + e];
    __syncthreads();
  }

  // Keys, then values, of rows that begin anywhere.
  WICK_MEMBER void load_anywhere(Eight<S> (&rows)[2 * Unroll], int first) const {
    load_eights_anywhere(rows, 8 * lane, p.dim, [&](int n, bool& in) {
      const bool value = n >= Unroll;
      const int j = first + n % Unroll * Groups;
      const i64 strides[3] = {value ? p.v_strides[0] : p.k_strides[0], value ? p.v_strides[1] : p.k_strides[1],
                              value ? p.v_strides[2] : p.k_strides[2]};
      in = j < end;
      return key_row<const T>(p, value ? p.v : p.k, strides, s, kv_head, in ? j : begin);
    });
  }
  // Keys, then values, of rows that whole loads can read; all are asked for before one is used.
  WICK_MEMBER void load_whole(Eight<S> (&rows)[2 * Unroll], int first) const {
#pragma unroll
    for (int which = 0; which < 2; which++) {
      const S* base = (const S*)(which ? p.v : p.k);
      const i64(&strides)[3] = which ? p.v_strides : p.k_strides;
      i64 at[Unroll];
      if (p.pages) {
        const int j = first + lane % Unroll * Groups;  // a page is looked up by one lane for all of the group
        const i64 own_row = key_row<const S>(p, nullptr, strides, s, kv_head, j < end ? j : begin) - (const S*)nullptr;
#pragma unroll
        for (int u = 0; u < Unroll; u++) at[u] = shfl(own_row, u, Lanes);
      } else {
        at[0] = key_row<const S>(p, nullptr, strides, s, kv_head, first) - (const S*)nullptr;
#pragma unroll
        for (int u = 1; u < Unroll; u++) at[u] = at[u - 1] + Groups * strides[2];
      }
#pragma unroll
      for (int u = 0; u < Unroll; u++)
        rows[which * Unroll + u] = load_lane_if(first + u * Groups < end && 8 * lane < p.dim, base + at[u], lane, base);
    }
  }

  // Products of all queries and keys, each lane left with its own share of the sums over lanes.
  WICK_MEMBER void make_scores(float (&score)[N], const Eight<S> (&rows)[2 * Unroll],
                               const float (&query)[G][8]) const {
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
    scatter_sums<N, Lanes / 2, Lanes>(score, lane);
  }
  // Caps, alibi and masks are rare and take many instructions: the loop is not unrolled.
  WICK_MEMBER void change_scores(float (&score)[N], int first) const {
    UNROLL(1, 1)
    for (int c = 0; c < Slots; c++) {
      const int j = first + (from + c) * Groups;
      const float logit = j < end ? logit_of<T>(p, s, head0 + own, i, j, score[0]) : 0;
#pragma unroll
      for (int n = 0; n + 1 < Slots; n++) score[n] = score[n + 1];
      score[Slots - 1] = logit;
    }
  }

  // From scores to weights against the best score so far; what was summed against an older best shrinks to match.
  WICK_MEMBER void update_softmax(float (&score)[N], float& top, float& sum, float (&out)[G][8], int first,
                                  float unit) const {
    float best = top;
#pragma unroll
    for (int c = 0; c < Slots; c++) {
      score[c] = first + (from + c) * Groups < end ? score[c] * unit : Limits<float>::lowest();
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
  }
  // A weight comes from the lane that made it to all lanes of its group.
  WICK_MEMBER void weigh_values(float (&out)[G][8], const float (&weight)[N],
                                const Eight<S> (&rows)[2 * Unroll]) const {
    float x[8];
#pragma unroll
    for (int u = 0; u < Unroll; u++) {
      unpack_eight(rows[Unroll + u], x);
#pragma unroll
      for (int g = 0; g < G; g++) {
        const int n = g * Unroll + u;
        const float w = shfl(weight[n % Slots], n / Slots * Copies, Lanes);
#pragma unroll
        for (int e = 0; e < 8; e++) out[g][e] = fmaf(w, x[e], out[g][e]);
      }
    }
  }

  // A wave that found NaN in its part of a row makes it again; so may another, which gives the same.
  WICK_MEMBER void part_again(const Attention& p, int head, int split) const {
    const int batch = blockIdx.z / p.tq, i = blockIdx.z % p.tq;
    const Sequence s = sequence_of(p, batch);
    const Range keys = {begin, end};
    const i64 row = (((i64)batch * p.heads + head) * p.tq + i) * p.splits + split;
    const float lse = lse_again<T, S, float>(p, s, head, i, keys);
    if (lse != lse) return;
    float out[AGAIN_EACH] = {};
    weigh_again<T, S>(out, p, s, head, i, keys, lse);
    write_again((float*)p.partial + row * p.dim, lane_again(), out, p.dim);
  }

  // Joins the groups' softmaxes head by head, and writes what attention_combine joins over blocks.
  WICK_MEMBER void write_heads(float (&out)[G][8], const float (&merged)[Groups][G][2], float* outputs, int batch,
                               int split) const {
    u32 odd = 0;  // heads in whose rows this thread found NaN
    UNROLL(1, 1)
    for (int g = 0; g < G; g++) {
      float best = Limits<float>::lowest(), total = 0;
      UNROLL(4, 4)
      for (int w = 0; w < Groups; w++) best = fmaxf(best, merged[w][g][0]);
      UNROLL(4, 4)
      for (int w = 0; w < Groups; w++) {
        const float weighed = merged[w][g][1] * fast_exp2(merged[w][g][0] - best);
        if (merged[w][g][1] != 0) total += weighed;
      }
      const float keep = merged[group][g][1] != 0 ? fast_exp2(merged[group][g][0] - best) : 0;
#pragma unroll
      for (int e = 0; e < 8; e++) outputs[group * D + 8 * lane + e] = out[0][e] * keep;
      __syncthreads();
      if (i < s.nq) {
        i64 row = (((i64)batch * p.heads + head0 + g) * p.tq + i) * p.splits + split;
        UNROLL(1, 1)
        for (int d = threadIdx.x; d < p.dim; d += SPLIT_THREADS) {
          float added = 0;
#pragma unroll
          for (int w = 0; w < Groups; w++) added += outputs[w * D + d];
          added = total == 0 ? 0 : added / total;
          odd |= (u32)is_nan(added) << g;
          ((float*)p.partial)[row * p.dim + d] = added;
        }
        if (threadIdx.x == 0)
          ((float*)p.partial_lse)[row] = total == 0 ? Limits<float>::lowest() : best * 0.69314718f + logg(total);
      }
      __syncthreads();
#pragma unroll
      for (int n = 0; n + 1 < G; n++)  // the next head's turn
#pragma unroll
        for (int e = 0; e < 8; e++) out[n][e] = out[n + 1][e];
    }
    if (p.mask_kind == 0) return;  // else nothing hides keys between others, and what NaN there is was seen
    UNROLL(1, 1)
    for (int g = 0; g < G; g++)
      if (ballot64(odd >> g & 1)) part_again(call_again(p), head0 + g, split);
  }
};

template <class T, int D, int G, int Unroll, class S = T> WICK_FN void attention_split(const Attention& p) {
  typedef SplitBlock<T, D, G, Unroll, S> Block;
  constexpr int Lanes = Block::Lanes, Groups = Block::Groups, Step = Block::Step, HeadLanes = Block::HeadLanes;
  __shared__ float merged[Groups][G][2];
  __shared__ __attribute__((aligned(16))) float queries_outputs[(G > Groups ? G : Groups) * D];
  const int lane = threadIdx.x % Lanes, group = threadIdx.x / Lanes, split = blockIdx.x;
  const int head0 = blockIdx.y * G, kv_head = head0 / (p.heads / p.kv_heads), batch = blockIdx.z / p.tq,
            i = blockIdx.z % p.tq;
  const Sequence s = sequence_of(p, batch);
  Range keys = keys_seen(p, s, i, i);
  if (i >= s.nq) keys.end = keys.begin;
  int each = (keys.end - keys.begin + p.splits - 1) / p.splits;
  each = (each + Step - 1) / Step * Step;
  const int begin = keys.begin + split * each, end = begin + each < keys.end ? begin + each : keys.end;
  const bool plain = is_plain(p);
  bool whole = p.dim % 8 == 0 && aligned16(p.k) && aligned16(p.v);
#pragma unroll
  for (int d = 0; d < 3; d++) whole &= p.k_strides[d] % 8 == 0 && p.v_strides[d] % 8 == 0;
  const float unit = plain ? (float)p.scale * 1.44269504f : 1.44269504f;  // from a score to a power of two
  float query[G][8], out[G][8] = {};
  Block::load_queries(query, queries_outputs, p, s, head0, i, lane);
  const int own = lane / HeadLanes, from = lane % HeadLanes * Block::Slots / Block::Copies;
  float top = Limits<float>::lowest(), sum = 0;
  const Block block = {p, s, lane, group, head0, kv_head, i, begin, end, own, from};

  Eight<S> rows[2 * Unroll];  // of keys, then of values
  // Every group makes as many steps, since all lanes of a wave take part in shuffles.
  UNROLL(1, 1)
  for (int j0 = begin; j0 < begin + each && j0 < keys.end; j0 += Step) {
    const int first = j0 + group;
    if (same<S, T> && !whole) {
      if constexpr (same<S, T>) block.load_anywhere(rows, first);
    } else {
      block.load_whole(rows, first);
    }
    float score[Block::N];
    block.make_scores(score, rows, query);
    if (!plain) block.change_scores(score, first);
    block.update_softmax(score, top, sum, out, first, unit);
    block.weigh_values(out, score, rows);
  }

#pragma unroll
  for (int m = HeadLanes / 2; m; m /= 2) sum += shfl_xor(sum, m, HeadLanes);
  if (lane % HeadLanes == 0) merged[group][own][0] = top, merged[group][own][1] = sum / Block::Copies;
  __syncthreads();
  block.write_heads(out, merged, queries_outputs, batch, split);
}

/** Rows a lane has under way for eight heads; on AMD as many as leave registers for the rest. */
#ifdef WICK_AMD
template <class T, int D> constexpr int EIGHT_AHEAD = 2;
#else
template <class T, int D> constexpr int EIGHT_AHEAD = 4;
#endif
/**
 * The block that bounds registers: on NVIDIA four blocks are to have room side by side where up to four heads share
 * rows of 16-bit numbers.
 */
#ifndef WICK_NVIDIA
constexpr int SPLIT_BOUND = 128;
#else
constexpr int SPLIT_BOUND = 512;
#endif

// attention_combine_T: grid (tq, heads, batch), COMBINE_THREADS threads: the splits of a row weighed by their lse.
// Threads with the same number of the head dimension share out the splits, many loads under way at once.
constexpr int COMBINE_THREADS = 512;
template <class T> WICK_FN void attention_combine(const Attention& p) {
  __shared__ float sums[COMBINE_THREADS], slots[WAVE_SLOTS];
  const int i = blockIdx.x, head = blockIdx.y,
            bits = p.dim <= 64    ? 6
                   : p.dim <= 128 ? 7
                                  : 8,
            width = 1 << bits, parts = COMBINE_THREADS >> bits;
  const Sequence s = sequence_of(p, blockIdx.z);
  if (i >= s.nq) return;
  const i64 first = (((i64)blockIdx.z * p.heads + head) * p.tq + i) * p.splits;
  const float* lse = (const float*)p.partial_lse + first;
  const int d = threadIdx.x & (width - 1), part = threadIdx.x >> bits;
  const float* partial = (const float*)p.partial + first * p.dim + (d < p.dim ? d : 0);
  float top = p.sinks ? p.sinks[head] : Limits<float>::lowest();
  UNROLL(1, 1)
  for (int w = threadIdx.x; w < p.splits; w += COMBINE_THREADS) top = fmaxf(top, lse[w]);
  top = group_max(top, COMBINE_THREADS, slots);
  float sum = 0, out = 0;
  UNROLL(1, 1)
  for (int w0 = 0; w0 < p.splits; w0 += COMBINE_THREADS) {
    const int own = w0 + threadIdx.x, count = p.splits - w0 < COMBINE_THREADS ? p.splits - w0 : COMBINE_THREADS;
    if (w0 > 0) __syncthreads();
    if (own < p.splits) sums[threadIdx.x] = lse[own] == Limits<float>::lowest() ? 0.0f : expg(lse[own] - top);
    __syncthreads();
    const float* rows = partial + (i64)w0 * p.dim;
    UNROLL(1, 1)
    for (int u0 = part; u0 < count; u0 += 8 * parts) {
#pragma unroll
      for (int u = 0; u < 8; u++) {
        const bool in = u0 + u * parts < count;
        const int w = in ? u0 + u * parts : part;
        const float weight = sums[w], x = rows[(i64)w * p.dim];
        if (in) sum += weight;  // the same for every number of a part
        if (in) out = fmaf(weight, x, out);
      }
    }
  }
  __syncthreads();
  sums[threadIdx.x] = out;
  sum = group_sum(d == 0 ? sum : 0.0f, COMBINE_THREADS, slots);
  if (p.sinks && p.sinks[head] != Limits<float>::lowest()) sum += expg(p.sinks[head] - top);
  __syncthreads();
  if (part == 0 && d < p.dim) {
    UNROLL(1, 1)
    for (int w = 1; w < parts; w++) out += sums[w * width + d];
    query_row<T>(p.out, p.out_strides, s, head, i)[d] = from_compute<T>(sum == 0 ? 0.0f : out / sum);
  }
  if (p.lse && threadIdx.x == 0) ((float*)p.lse)[lse_index(p, s, head, i)] = top + logg(sum);
}

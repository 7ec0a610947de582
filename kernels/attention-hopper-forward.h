// What forward attention on Hopper shares: which query tiles a block takes, and what happens to scores and to rows.
#pragma once
#include "attention-hopper.h"
#include "settle.h"

#if defined(WICK_NVIDIA) && defined(__CUDA_ARCH_FEAT_SM90_ALL)

/** Of a tile of keys and one of values, and how many of each are in shared memory. */
constexpr int HOPPER_KEYS = 128, HOPPER_STAGES = 2;

/** A query tile and its key tiles. */
struct HopperTile {
  int head, kv_head, i0, first, tiles;
  Sequence s;
};
/**
 * Query tile number `n` of a block: false when there are no more. Heads stay together, so that their keys stay in the
 * cache. Every query tile has a key tile: one past the last key is all zeros.
 */
template <int Rows> WICK_FN bool hopper_tile(const Attention& p, int n, HopperTile& t) {
  const u32 per_head = (u32)(p.tq + Rows - 1) / Rows, all = per_head * p.heads * p.batch;
  const bool pairs = all > gridDim.x;
  const u32 each = pairs ? (per_head + 1) / 2 : per_head, item = (pairs ? n / 2 : n) * gridDim.x + blockIdx.x;
  if (item >= each * p.heads * p.batch) return false;
  const u32 row = item / each, at = item - row * each, batch = row / (u32)p.heads;
  t.head = row - batch * p.heads;
  t.kv_head = (u32)t.head / ((u32)p.heads / (u32)p.kv_heads);
  t.s = sequence_of(p, batch);
  t.i0 = (pairs && n % 2 ? at : per_head - 1 - at) * Rows;
  // nothing to do, or the middle one a second time
  if (t.i0 >= t.s.nq || (pairs && n % 2 && at == per_head - 1 - at)) t.i0 = -1;
  else {
    const Range keys = keys_seen(p, t.s, t.i0, t.i0 + Rows - 1);
    const bool any = keys.begin < keys.end;  // else one tile past the last key, which is all zeros
    t.first = (any ? keys.begin : t.s.nk + HOPPER_KEYS - 1) / HOPPER_KEYS;
    t.tiles = any ? (keys.end + HOPPER_KEYS - 1) / HOPPER_KEYS - t.first : 1;
  }
  return true;
}

// ---- what happens to scores: a lane has rows i and i + 8, and of them columns j, j + 1, j + 8, j + 9, ... ----

WICK_FN int lane_row() { return threadIdx.x % 128 / 32 * 16 + threadIdx.x % 32 / 4; }
WICK_FN int lane_column() { return threadIdx.x % 4 * 2; }

/** What scores meet, made once. */
template <int Changes> struct ScoreUnits {
  float unit;  // from scores to powers of two
  Cap cap;
};
template <int Changes> WICK_FN ScoreUnits<Changes> units_of(const Attention& p) {
  ScoreUnits<Changes> units = {(float)p.scale * LOG2_E, {}};
  if constexpr (Changes & CAPPED) units.cap = cap_of(p, (float)p.softcap * LOG2_E);
  return units;
}
/** A team's part of a mask's tile. */
struct MaskPart {
  const unsigned char* at;
  u64 *full, *empty;
};
/** From products to powers of two, where scores are more than scaled; `n` key tiles came before this one. */
template <class T, int Changes>
WICK_FN void change_scores(const Attention& p, const HopperTile& w, const ScoreUnits<Changes>& units, int i, int j,
                           const MaskPart& mask, u32 n, float (&score)[64]) {
  if constexpr (Changes & CAPPED) {
    cap_scores(units.cap, score);
  } else {
#pragma unroll
    for (int e = 0; e < 64; e++) score[e] *= units.unit;
  }
  if constexpr (Changes & BIASED) {
    if (p.slopes) {
      const float slope = -LOG2_E * p.slopes[w.head];
#pragma unroll
      for (int e = 0; e < 64; e++) {
        const float far = (float)(i + e / 2 % 2 * 8 + w.s.offset - j) - (float)(e / 4 * 8 + e % 2);
        score[e] = fmag(fabsf(far), slope, score[e]);
      }
    }
    if (p.mask_kind) {
      barrier_wait(mask.full, n & 1);
#pragma unroll
      for (int g = 0; g < 8; g++) {
        const Frag f = mask_words<64, false>(mask.at, threadIdx.x % 128 / 32 * 16, 16 * g);
#pragma unroll
        for (int e = 0; e < 8; e++) score[8 * g + e] = mask_of<T>(f.w[e / 2], e % 2, score[8 * g + e]);
      }
      if (threadIdx.x % 32 == 0) barrier_arrive(mask.empty);
    }
  }
}
/**
 * Scores to powers of two in place; `keep` is what earlier sums and outputs are multiplied by, `unit` leads from scores
 * to powers of two.
 */
template <class T, int Changes>
WICK_FN void soften(const Attention& p, const HopperTile& w, const ScoreUnits<Changes>& units, int q0, int j0,
                    const MaskPart& mask, u32 n, float (&score)[64], float (&top)[2], float (&sum)[2],
                    float (&keep)[2]) {
  const int row = q0 + lane_row(), from = j0 + lane_column();
  const float unit = Changes ? 1 : units.unit;
  if constexpr (Changes) change_scores<T, Changes>(p, w, units, row, from, mask, n, score);
  if (!all_seen(p, w.s, q0, q0 + 63, j0, j0 + HOPPER_KEYS - 1)) {
#pragma unroll
    for (int r = 0; r < 2; r++) {
      const int x = row + 8 * r + w.s.offset;
      const int low = p.left >= 0 ? x - p.left - from : 0,
                high = (p.right >= 0 && x + p.right + 1 < w.s.nk ? x + p.right + 1 : w.s.nk) - from;
      const u32 seen = bits_below(high) & ~bits_below(low);
#pragma unroll
      for (int e = 0; e < 32; e++)
        if (!(seen >> e & 1)) score[e / 2 * 4 + 2 * r + e % 2] = Limits<float>::lowest();
    }
  }
#pragma unroll
  for (int r = 0; r < 2; r++) {
    float best = top[r];
#pragma unroll
    for (int e = 0; e < 64; e += 4) best = fmaxf(best, fmaxf(score[e + 2 * r], score[e + 2 * r + 1]));
    best = fmaxf(best, shfl_xor(best, 1, 4));
    best = fmaxf(best, shfl_xor(best, 2, 4));
    // a row that saw no key yet must not give NaN
    float shift = best == Limits<float>::lowest() ? 0 : best * unit, added = 0;
    keep[r] = top[r] == best ? 1 : fast_exp2(fmag(top[r], unit, -shift));
    top[r] = best;
#pragma unroll
    for (int e = 2 * r; e < 64; e += 4) {
      score[e] = fast_exp2(fmag(score[e], unit, -shift));
      score[e + 1] = fast_exp2(fmag(score[e + 1], unit, -shift));
      added += score[e] + score[e + 1];
    }
    sum[r] = fmag(sum[r], keep[r], added);  // this lane's share; joined at the end
  }
}
/** A row's end: what it is multiplied by, and its log-sum-exp where it is wanted. */
template <int Changes>
WICK_FN float end_row(const Attention& p, const HopperTile& w, int i, bool writes, float top, float sum) {
  float total = sum + shfl_xor(sum, 1, 4), scale = 1;
  total += shfl_xor(total, 2, 4);
  float best = top == Limits<float>::lowest() ? top : top * (Changes ? LN_2 : (float)p.scale);
  if (p.sinks) {
    const float with = fmaxf(best, p.sinks[w.head]);
    scale = best == Limits<float>::lowest() ? 0 : expg(best - with);
    total = total * scale + (p.sinks[w.head] == Limits<float>::lowest() ? 0 : expg(p.sinks[w.head] - with));
    best = with;
  }
  if (p.lse && writes && i < w.s.nq) ((float*)p.lse)[lse_index(p, w.s, w.head, i)] = best + logg(total);
  return total == 0 ? 0 : scale / total;  // NaN where a score is
}

/** Where a lane of a warp wrote NaN: all query tiles of its block once more, for rows that are to be made again. */
template <class T, int Rows> WICK_FN void tiles_again(const Attention& p, int team, bool odd) {
  if (!ballot64(odd)) return;
  sync_wave();  // what other lanes wrote of a row comes first
  HopperTile w;
  UNROLL(1, 1)
  for (int item = 0; hopper_tile<Rows>(p, item, w); item++) {
    const int first = w.i0 + 64 * team + threadIdx.x % 128 / 32 * 16;
    UNROLL(1, 1)
    for (int i = first; w.i0 >= 0 && i < first + 16 && i < w.s.nq; i++) {
      if (is_odd(query_row<const T>(p.out, p.out_strides, w.s, w.head, i), p.dim)) row_again<T>(p, w.s, w.head, i);
    }
  }
}

template <class T> WICK_FN void pack_weights(u32 (&weights)[32], const float (&score)[64]) {
#pragma unroll
  for (int e = 0; e < 32; e++) weights[e] = pack_pair<T>(score[2 * e], score[2 * e + 1]);
}
template <int N> WICK_FN void rescale(float (&out)[N], const float (&keep)[2]) {
#pragma unroll
  for (int e = 0; e < N; e++) out[e] *= keep[e / 2 % 2];
}

#endif

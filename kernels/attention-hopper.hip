// Attention of 16-bit floats on Hopper: warpgroup products that read shared memory, one warpgroup copying and two or
// three computing.
//
// attention_hopper_T_D for head dimensions 64 and 128, 128 * (1 + teams) threads, as many blocks as multiprocessors
// (fewer for small problems): a block takes query tiles of 64 * teams rows, in pairs of a long and a short one where
// causal rows differ, and copies the next one's queries and keys while it ends the one before. Dynamic shared memory:
// see below. Compiled for sm_90a, as its module declares. Rows must be 16-byte aligned.
//
// Scores are only scaled: with a cap, alibi or a mask the registers do not suffice, and attention-matrix.hip serves.
// While one computing group waits for its products another does its softmax; named barriers make them take turns. Two
// schedules, since each is measured to be the faster one of its head dimension: attention_hopper for 64,
// attention_hopper_joined for 128.
#include "attention.h"
#include "hopper.h"
#include "settle.h"

#if defined(WICK_NVIDIA) && defined(__CUDA_ARCH_FEAT_SM90_ALL)

constexpr int HOPPER_KEYS = 128, HOPPER_STAGES = 2;

/** Where 16-byte part c of row r lies in a tile of `rows` rows: 64 columns side by side, then the next 64. */
WICK_FN u32 place(int r, int c, int rows) { return (u32)(c / 8 * rows * 128 + r * 128 + ((c ^ r) & 7) * 16); }

/**
 * Query tile number `n` of a block: false when there are no more. Heads stay together, so that their keys stay in the
 * cache.
 */
struct HopperTile {
  int head, kv_head, i0, first, tiles;
  Sequence s;
};
template <int Rows> WICK_FN bool hopper_tile(const Attention& p, int n, HopperTile& t) {
  const int per_head = (p.tq + Rows - 1) / Rows, all = per_head * p.heads * p.batch;
  const bool pairs = all > (int)gridDim.x;
  const int each = pairs ? (per_head + 1) / 2 : per_head, item = (pairs ? n / 2 : n) * gridDim.x + blockIdx.x;
  if (item >= each * p.heads * p.batch) return false;
  const int at = item % each;
  t.head = item / each % p.heads;
  t.kv_head = t.head / (p.heads / p.kv_heads);
  t.s = sequence_of(p, item / each / p.heads);
  t.i0 = (pairs && n % 2 ? at : per_head - 1 - at) * Rows;
  t.tiles = 0;
  // nothing to do, or the middle one a second time
  if (t.i0 >= t.s.nq || (pairs && n % 2 && at == per_head - 1 - at)) t.i0 = -1;
  else {
    Range keys = keys_seen(p, t.s, t.i0, t.i0 + Rows - 1);
    t.first = keys.begin / HOPPER_KEYS;
    if (keys.begin < keys.end) t.tiles = (keys.end + HOPPER_KEYS - 1) / HOPPER_KEYS - t.first;
  }
  return true;
}

template <class T, int D, int Teams, bool Turns, bool Lazy> WICK_FN void attention_hopper(const Attention& p) {
  constexpr int Rows = 64 * Teams, Keys = HOPPER_KEYS, Stages = HOPPER_STAGES, Parts = D / 8;
  constexpr u32 TileBytes = Keys * D * 2, QueryBytes = Rows * D * 2;
  DYNAMIC_SHARED(unsigned char, raw);
  unsigned char* shared = raw + (1024 - (shared_address(raw) & 1023)) % 1024;
  unsigned char* k_tiles = shared + 2 * QueryBytes;
  unsigned char* v_tiles = k_tiles + Stages * TileBytes;
  __shared__ u64 full_q[2], empty_q[2], full_k[Stages], full_v[Stages], empty_k[Stages], empty_v[Stages];
  const int group = threadIdx.x / 128, t = threadIdx.x % 128;
  if (threadIdx.x == 0) {
    for (int i = 0; i < 2; i++) {
      barrier_init(full_q + i, 128);
      barrier_init(empty_q + i, 4 * Teams);  // a lane of every computing warp
    }
    for (int i = 0; i < Stages; i++) {
      barrier_init(full_k + i, 128);
      barrier_init(full_v + i, 128);
      barrier_init(empty_k + i, 4 * Teams);
      barrier_init(empty_v + i, 4 * Teams);
    }
  }
  __syncthreads();
  HopperTile w;
  int done = 0, queries = 0;  // key tiles and query tiles so far; both sides count alike

  if (group == 0) {
    if constexpr (Teams == 2) asm volatile("setmaxnreg.dec.sync.aligned.u32 40;");
    else asm volatile("setmaxnreg.dec.sync.aligned.u32 32;");
    const int c = t % Parts;
    auto load = [&](unsigned char* to, const void* base, const i64(&strides)[3], int j0) {
      const T* at = p.pages ? nullptr : key_row<const T>(p, base, strides, w.s, w.kv_head, j0 + t / Parts) + 8 * c;
#pragma unroll 4
      for (int r = t / Parts; r < Keys; r += 128 / Parts) {
        bool in = j0 + r < w.s.nk;
        const T* from = !in       ? (const T*)p.q
                        : p.pages ? key_row<const T>(p, base, strides, w.s, w.kv_head, j0 + r) + 8 * c
                                  : at;
        async_copy16(to + place(r, c, Keys), from, in ? 16 : 0);
        at += 128 / Parts * strides[2];
      }
    };
    for (int item = 0; hopper_tile<Rows>(p, item, w); item++) {
      if (w.i0 < 0) continue;
      barrier_wait(empty_q + queries % 2, (queries / 2 & 1) ^ 1);
      const T* at = query_row<const T>(p.q, p.q_strides, w.s, w.head, w.i0 + t / Parts) + 8 * c;
#pragma unroll 2
      for (int r = t / Parts; r < Rows; r += 128 / Parts) {
        bool in = w.i0 + r < w.s.nq;
        async_copy16(shared + queries % 2 * QueryBytes + place(r, c, Rows), in ? at : (const T*)p.q, in ? 16 : 0);
        at += 128 / Parts * p.q_strides[2];
      }
      barrier_arrive_copied(full_q + queries % 2);
      queries++;
      // Tiles are taken from the last to the first: those at the diagonal come first.
      for (int n = 0; n < w.tiles; n++, done++) {
        int stage = done % Stages, j0 = (w.first + w.tiles - 1 - n) * Keys;
        u32 free = (done / Stages & 1) ^ 1;
        barrier_wait(empty_k + stage, free);
        load(k_tiles + stage * TileBytes, p.k, p.k_strides, j0);
        barrier_arrive_copied(full_k + stage);
        barrier_wait(empty_v + stage, free);
        load(v_tiles + stage * TileBytes, p.v, p.v_strides, j0);
        barrier_arrive_copied(full_v + stage);
      }
    }
    async_commit();
    async_wait<0>();  // a thread must not leave while its copies are under way
    return;
  }

  if constexpr (Teams == 2) asm volatile("setmaxnreg.inc.sync.aligned.u32 232;");
  else asm volatile("setmaxnreg.inc.sync.aligned.u32 160;");
  const int team = group - 1, warp = t / 32, lane = t % 32;
  const int row = 16 * warp + lane / 4, column = lane % 4 * 2;  // rows row and row + 8 of the team's 64
  const u64 k_operand = operand(shared_address(k_tiles), 16), v_operand = operand(shared_address(v_tiles), Keys * 128);
  const float unit = (float)p.scale * 1.44269504f;  // from a score to a power of two
  float out[D / 2], score[64], top[2], sum[2], keep[2];
  u32 weights[32];
  u64 q_operand = 0;
  int q0 = 0;

  auto begin_scores = [&](int n) {
    barrier_wait(full_k + n % Stages, n / Stages & 1);
    fence_products();
    products_fence();
    u64 k = k_operand + n % Stages * (TileBytes >> 4);
#pragma unroll
    for (int d = 0; d < D / 16; d++)  // 16 columns are 32 bytes, 64 columns one part of the tile
      product<T>(score, q_operand + d / 4 * (Rows * 128 >> 4) + d % 4 * 2, k + d / 4 * (Keys * 128 >> 4) + d % 4 * 2,
                 d > 0);
    products_commit();
  };
  auto begin_sums = [&](int n) {
    barrier_wait(full_v + n % Stages, n / Stages & 1);
    fence_products();
    products_fence();
    u64 v = v_operand + n % Stages * (TileBytes >> 4);
#pragma unroll
    for (int j = 0; j < Keys / 16; j++) product<T>(out, weights + 4 * j, v + j * (16 * 128 >> 4));
    products_commit();
  };
  auto release = [&](u64* b) {
    if (lane == 0) barrier_arrive(b);
  };
  // Scores to powers of two; keep is what earlier sums and outputs are multiplied by.
  auto soften = [&](int n) {
    int j0 = (w.first + w.tiles - 1 - n) * Keys;
    if (!all_seen(p, w.s, q0, q0 + 63, j0, j0 + Keys - 1)) {
#pragma unroll
      for (int r = 0; r < 2; r++) {
        // Of the keys j0 + column + 0 .. this row sees those from `low` on and before `low + count`.
        const int x = q0 + row + 8 * r + w.s.offset, from = j0 + column;
        const int low = p.left >= 0 && x - p.left > from ? x - p.left - from : 0;
        const int high = (p.right >= 0 && x + p.right + 1 < w.s.nk ? x + p.right + 1 : w.s.nk) - from;
        const u32 count = high > low ? high - low : 0;
#pragma unroll
        for (int e = 0; e < 64; e++)
          if (e / 2 % 2 == r && (u32)(e / 4 * 8 + e % 2 - low) >= count) score[e] = Limits<float>::lowest();
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
  };
  auto pack = [&]() {
#pragma unroll
    for (int e = 0; e < 32; e++) weights[e] = pack_pair<T>(score[2 * e], score[2 * e + 1]);
  };
  auto rescale = [&]() {
    if (Lazy && !ballot64(keep[0] != 1 || keep[1] != 1)) return;  // most tiles do not raise the maximum
#pragma unroll
    for (int e = 0; e < D / 2; e++) out[e] *= keep[e / 2 % 2];
  };

  if (Turns && team == Teams - 1) named_arrive(3, 256);  // the first team goes first
  for (int item = 0; hopper_tile<Rows>(p, item, w); item++) {
    if (w.i0 < 0) continue;
    const int qs = queries % 2;
    barrier_wait(full_q + qs, queries / 2 & 1);
    queries++;
    q0 = w.i0 + 64 * team;
    q_operand = operand(shared_address(shared) + qs * QueryBytes + team * 64 * 128, 16);
    top[0] = top[1] = Limits<float>::lowest();
    sum[0] = sum[1] = 0;
#pragma unroll
    for (int e = 0; e < D / 2; e++) out[e] = 0;
    if (w.tiles > 0) {
      begin_scores(done);
      products_wait<0>();
      release(empty_k + done % Stages);
      if (w.tiles == 1) release(empty_q + qs);
      soften(0);
      pack();
      for (int n = 1; n < w.tiles; n++) {
        const int at = done + n;
        if (Turns) named_sync(3 + team, 256);
        begin_scores(at);
        begin_sums(at - 1);
        if (Turns) named_arrive(3 + (team + 1) % Teams, 256);
        products_wait<1>();
        release(empty_k + at % Stages);
        if (n == w.tiles - 1) release(empty_q + qs);
        soften(n);
        products_wait<0>();
        release(empty_v + (at - 1) % Stages);
        pack();
        rescale();
      }
      done += w.tiles;
      begin_sums(done - 1);
      products_wait<0>();
      release(empty_v + (done - 1) % Stages);
    } else {
      release(empty_q + qs);
    }

#pragma unroll
    for (int r = 0; r < 2; r++) {
      int i = q0 + row + 8 * r;
      float total = sum[r] + shfl_xor(sum[r], 1, 4);
      total += shfl_xor(total, 2, 4);
      float best = top[r] == Limits<float>::lowest() ? top[r] : top[r] * (float)p.scale, scale = 1;
      if (p.sinks) {
        float with = fmaxf(best, p.sinks[w.head]);
        scale = best == Limits<float>::lowest() ? 0 : expg(best - with);
        total = total * scale + expg(p.sinks[w.head] - with);
        best = with;
      }
      scale = total > 0 ? scale / total : 0;
      if (i >= w.s.nq) continue;
      T* to = query_row<T>(p.out, p.out_strides, w.s, w.head, i) + column;
#pragma unroll
      for (int e = 2 * r; e < D / 2; e += 4) *(u32*)(to + e / 4 * 8) = pack_pair<T>(out[e] * scale, out[e + 1] * scale);
      if (p.lse && column == 0) ((float*)p.lse)[lse_index(p, w.s, w.head, i)] = best + logg(total);
    }
  }
  if (Turns && team == 0) named_sync(3, 256);  // takes the turn the last team gave
}

// ---- heads of 128: a query tile's last values are weighed along with the next one's first scores; for heads of 64
// that is slower ----

/** The same for attention_hopper_joined, where every query tile has a key tile: one past the last key is all zeros. */
template <int Rows> WICK_FN bool joined_tile(const Attention& p, int n, HopperTile& t) {
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

/** Of the numbers at 0, 1, 8, 9, 16, 17, ... 121: a bit for each that is less than n. */
WICK_FN u32 bits_below(int n) {
  const int whole = n < 0 ? 0 : n / 8, count = 2 * whole + (n < 0 ? 0 : n % 8 < 2 ? n % 8 : 2);
  return count < 32 ? (1u << count) - 1 : ~0u;
}

template <class T, int D, int Teams, bool Turns, bool Lazy> WICK_FN void attention_hopper_joined(const Attention& p) {
  constexpr int Rows = 64 * Teams, Keys = HOPPER_KEYS, Stages = HOPPER_STAGES, Parts = D / 8;
  constexpr u32 TileBytes = Keys * D * 2, QueryBytes = Rows * D * 2;
  DYNAMIC_SHARED(unsigned char, raw);
  unsigned char* shared = raw + (1024 - (shared_address(raw) & 1023)) % 1024;
  unsigned char* k_tiles = shared + 2 * QueryBytes;
  unsigned char* v_tiles = k_tiles + Stages * TileBytes;
  __shared__ u64 full_q[2], empty_q[2], full[2][Stages], empty[2][Stages];  // of keys, of values
  const int group = threadIdx.x / 128, t = threadIdx.x % 128;
  if (threadIdx.x < 2) {
    barrier_init(full_q + threadIdx.x, 128);
    barrier_init(empty_q + threadIdx.x, 4 * Teams);  // a lane of every computing warp
  }
  if (threadIdx.x < 2 * Stages) {
    barrier_init(&full[0][0] + threadIdx.x, 128);
    barrier_init(&empty[0][0] + threadIdx.x, 4 * Teams);
  }
  __syncthreads();
  HopperTile w = {};
  u32 done = 0, queries = 0;  // key tiles and query tiles so far; both sides count alike

  if (group == 0) {
    if constexpr (Teams == 2) asm volatile("setmaxnreg.dec.sync.aligned.u32 40;");
    else asm volatile("setmaxnreg.dec.sync.aligned.u32 32;");
    // A thread copies part c of rows r0, r0 + Step, ...: a step is a multiple of 8 rows, so parts keep their places in
    // the line.
    constexpr int Step = 128 / Parts;
    const int c = t % Parts, r0 = t / Parts;
    UNROLL(1, 1)
    for (int item = 0; joined_tile<Rows>(p, item, w); item++) {
      if (w.i0 < 0) continue;
      barrier_wait(empty_q + queries % 2, (queries / 2 & 1) ^ 1);
      const T* at = query_row<const T>(p.q, p.q_strides, w.s, w.head, w.i0 + r0) + 8 * c;
      unsigned char* to = shared + queries % 2 * QueryBytes + place(r0, c, Rows);
      UNROLL(1, 2)
      for (int r = 0; r < Rows; r += Step) {
        const bool in = w.i0 + r0 + r < w.s.nq;
        async_copy16(to, in ? at : (const T*)p.q, in ? 16 : 0);
        at += Step * p.q_strides[2], to += Step * 128;
      }
      barrier_arrive_copied(full_q + queries % 2);
      queries++;
      // Tiles are taken from the last to the first: those at the diagonal come first. Keys and values take turns.
      UNROLL(1, 1)
      for (int n = 0; n < 2 * w.tiles; n++) {
        const int which = n % 2, j0 = (w.first + w.tiles - 1 - n / 2) * Keys;
        const u32 stage = done % Stages;
        const void* base = which ? p.v : p.k;
        const i64 strides[3] = {which ? p.v_strides[0] : p.k_strides[0], which ? p.v_strides[1] : p.k_strides[1],
                                which ? p.v_strides[2] : p.k_strides[2]};
        unsigned char* tile = (which ? v_tiles : k_tiles) + stage * TileBytes + place(r0, c, Keys);
        barrier_wait(&empty[which][stage], (done / Stages & 1) ^ 1);
        if (p.pages) {
          UNROLL(1, 1)
          for (int r = 0; r < Keys; r += Step) {
            const bool in = j0 + r0 + r < w.s.nk;
            async_copy16(tile,
                         in ? key_row<const T>(p, base, strides, w.s, w.kv_head, j0 + r0 + r) + 8 * c : (const T*)p.q,
                         in ? 16 : 0);
            tile += Step * 128;
          }
        } else {
          const T* from = (const T*)base + w.s.batch * strides[0] + w.kv_head * strides[1] +
                          (w.s.k_row + j0 + r0) * strides[2] + 8 * c;
          UNROLL(1, 4)
          for (int r = 0; r < Keys; r += Step) {
            const bool in = j0 + r0 + r < w.s.nk;
            async_copy16(tile, in ? from : (const T*)p.q, in ? 16 : 0);
            from += Step * strides[2], tile += Step * 128;
          }
        }
        barrier_arrive_copied(&full[which][stage]);
        done += which;
      }
    }
    async_commit();
    async_wait<0>();  // a thread must not leave while its copies are under way
    return;
  }

  if constexpr (Teams == 2) asm volatile("setmaxnreg.inc.sync.aligned.u32 232;");
  else asm volatile("setmaxnreg.inc.sync.aligned.u32 160;");
  const int team = group - 1, warp = t / 32, lane = t % 32;
  const int row = 16 * warp + lane / 4, column = lane % 4 * 2;  // rows row and row + 8 of the team's 64
  const u64 q_operands = operand(shared_address(shared) + team * 64 * 128, 16);
  const u64 k_operand = operand(shared_address(k_tiles), 16), v_operand = operand(shared_address(v_tiles), Keys * 128);
  const float unit = (float)p.scale * 1.44269504f;  // from a score to a power of two
  float out[D / 2], score[64], top[2] = {}, sum[2] = {}, keep[2];
  u32 weights[32];

  auto release = [&](u64* b) {
    if (lane == 0) barrier_arrive(b);
  };
  // Scores to powers of two; keep is what earlier sums and outputs are multiplied by.
  auto soften = [&](int q0, int j0) {
    if (!all_seen(p, w.s, q0, q0 + 63, j0, j0 + Keys - 1)) {
#pragma unroll
      for (int r = 0; r < 2; r++) {
        const int x = q0 + row + 8 * r + w.s.offset, from = j0 + column;
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
  };

  // A round begins the scores of a key tile and weighs the values of the one before it, be it of the same query tile or
  // not. All rounds run the same products: what the first one sums and the last one scores is nobody's.
  T* to = nullptr;       // of the query tile whose values are being weighed: where this lane's first row goes,
  int rows = 0;          // how many of its rows there are from there,
  float scales[2] = {};  // and what they are multiplied by
  bool more = true, first = true;                        // whether the values weighed are the first of their query tile
  if (Turns && team == Teams - 1) named_arrive(3, 256);  // the first team goes first
  UNROLL(1, 1)
  for (int n = 0, item = 0, tiles = 0;; n++) {
    const bool fresh = n == tiles;
    if (fresh) {
      if (done > 0) {
        const int i = w.i0 + 64 * team + row;
        to = query_row<T>(p.out, p.out_strides, w.s, w.head, i) + column;
        rows = w.s.nq - i;
        UNROLL(1, 1)
        for (int r = 0; r < 2; r++) {
          const float own = r ? sum[1] : sum[0], high = r ? top[1] : top[0];
          float total = own + shfl_xor(own, 1, 4);
          total += shfl_xor(total, 2, 4);
          float best = high == Limits<float>::lowest() ? high : high * (float)p.scale, scale = 1;
          if (p.sinks) {
            float with = fmaxf(best, p.sinks[w.head]);
            scale = best == Limits<float>::lowest() ? 0 : expg(best - with);
            total = total * scale + expg(p.sinks[w.head] - with);
            best = with;
          }
          scale = total > 0 ? scale / total : 0;
          if (r) scales[1] = scale;
          else scales[0] = scale;
          if (p.lse && column == 0 && 8 * r < rows)
            ((float*)p.lse)[lse_index(p, w.s, w.head, i + 8 * r)] = best + logg(total);
        }
      }
      UNROLL(1, 1)
      do more = joined_tile<Rows>(p, item++, w);
      while (more && w.i0 < 0);
      n = 0;
      tiles = w.tiles;
      if (more) {
        barrier_wait(full_q + queries % 2, queries / 2 & 1);
        queries++;
      }
      top[0] = top[1] = Limits<float>::lowest();
      sum[0] = sum[1] = 0;
    }
    const u32 stage = done % Stages, before = (done + Stages - 1) % Stages, qs = (queries + 1) % 2;
    if (Turns) named_sync(3 + team, 256);
    if (more) barrier_wait(&full[0][stage], done / Stages & 1);
    if (done > 0) barrier_wait(&full[1][before], (done - 1) / Stages & 1);
    fence_products();
    products_fence();
    const u64 q = q_operands + qs * (QueryBytes >> 4), k = k_operand + stage * (TileBytes >> 4),
              v = v_operand + before * (TileBytes >> 4);
    products<T, D>(score, q, k, Rows * 128, Keys * 128);
    products_commit();
    products<T>(out, weights, v, !first);
    products_commit();
    if (Turns) named_arrive(3 + (team + 1) % Teams, 256);
    products_wait<1>();
    if (more) {
      release(&empty[0][stage]);
      if (n == tiles - 1) release(empty_q + qs);
      soften(w.i0 + 64 * team, (w.first + tiles - 1 - n) * Keys);
    }
    products_wait<0>();
    if (done > 0) release(&empty[1][before]);
    if (fresh && done > 0) {
#pragma unroll
      for (int r = 0; r < 2; r++) {
        if (8 * r < rows) {
#pragma unroll
          for (int e = 2 * r; e < D / 2; e += 4)
            *(u32*)(to + e / 4 * 8) = pack_pair<T>(out[e] * scales[r], out[e + 1] * scales[r]);
        }
        to += 8 * p.out_strides[2];
      }
    }
    if (!more) break;
#pragma unroll
    for (int e = 0; e < 32; e++) weights[e] = pack_pair<T>(score[2 * e], score[2 * e + 1]);
    first = fresh;
    if (!Lazy || ballot64(keep[0] != 1 || keep[1] != 1)) {  // most tiles do not raise the maximum
#pragma unroll
      for (int e = 0; e < D / 2; e++) out[e] *= keep[e / 2 % 2];
    }
    done++;
  }
  if (Turns && team == 0) named_sync(3, 256);  // takes the turn the last team gave
}

#else
// launched without sm_90a
template <class T, int D, int Teams, bool Turns, bool Lazy> WICK_FN void attention_hopper(const Attention&) { trap(); }
template <class T, int D, int Teams, bool Turns, bool Lazy> WICK_FN void attention_hopper_joined(const Attention&) {
  trap();
}
#endif

// Shared bytes: 1024 + 2 * D * (2 * 64 * teams + 4 * 128).

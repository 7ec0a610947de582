// Attention of 16-bit floats on Hopper: warpgroup products that read shared memory, one warpgroup copying and two
// computing.
//
// attention_hopper_T_D for head dimensions 64 and 128, 384 threads, as many blocks as multiprocessors (fewer for small
// problems): a block takes query tiles of 128 rows, in pairs of a long and a short one where causal rows differ, and
// copies the next one's queries and keys while it ends the one before. Shared bytes: 1024 + 2 * D * (2 * 128 + 4 * 128),
// and where there is a mask 2 * 128 * 128 more.
// Compiled for sm_90a, as its module declares. Rows must be 16-byte aligned.
//
// Scores are scaled; what else changes them is compiled in: _capped, _biased (alibi, a mask), _capped_biased. While one
// computing group waits for its products another does its softmax. Two schedules, since each is measured to be the
// faster one of its head dimension: attention_hopper, where named barriers make groups take turns, for 64, and
// attention_hopper_joined for 128.
#include "attention-hopper-forward.h"

#if defined(WICK_NVIDIA) && defined(__CUDA_ARCH_FEAT_SM90_ALL)

constexpr int HOPPER_ROWS = 128;
/** Registers of a copying thread, which a mask passes through. */
template <int Changes> constexpr int HOPPER_COPYING = Changes& BIASED ? 88 : 40;

/** Barriers of query tiles, of the stages of keys and values, and of each team's part of a mask's tile. */
struct HopperBarriers {
  u64 full_q[2], empty_q[2], full[2][HOPPER_STAGES], empty[2][HOPPER_STAGES], full_mask[2], empty_mask[2];
};
WICK_FN void begin_barriers(HopperBarriers& b) {
  constexpr u32 Readers = HOPPER_ROWS / 16;  // a lane of every computing warp
  if (threadIdx.x < 2) {
    barrier_init(b.full_q + threadIdx.x, 128);
    barrier_init(b.empty_q + threadIdx.x, Readers);
    barrier_init(b.full_mask + threadIdx.x, 128);
    barrier_init(b.empty_mask + threadIdx.x, Readers / 2);
  }
  if (threadIdx.x < 2 * HOPPER_STAGES) {
    barrier_init(&b.full[0][0] + threadIdx.x, 128);
    barrier_init(&b.empty[0][0] + threadIdx.x, Readers);
  }
  __syncthreads();
}

/** Where a key lies; page -1 where there is none. */
struct PageRow {
  i32 page, inside;
};
WICK_FN PageRow look_up(const Attention& p, const Sequence& s, int j) {
  if (j >= s.nk) return {-1, 0};
  i32 page = p.pages[(i64)s.batch * p.page_table + j / p.page_rows];
  if ((u32)page >= (u32)p.pages_there) {  // negative ones are huge without their sign
    bad_place(p);
    page = 0;
  }
  return {page, j % p.page_rows};
}

/** Where a team's part of a mask's tile lies: behind queries, keys and values. */
template <int D> WICK_FN unsigned char* mask_tile(unsigned char* shared, int team) {
  return shared + 2 * D * (2 * HOPPER_ROWS + 2 * HOPPER_STAGES * HOPPER_KEYS) + team * 64 * HOPPER_KEYS * 2;
}

/** What the copying group does: queries, then the keys and values they see, tile by tile for as long as there are. */
template <class T, int D, int Changes>
WICK_FN void hopper_copies(const Attention& p, unsigned char* shared, HopperBarriers& b) {
  // A thread copies part c of rows r0, r0 + Step, ...: a step is a multiple of 8 rows, so parts keep their places in
  // the line.
  constexpr int Rows = HOPPER_ROWS, Keys = HOPPER_KEYS, Stages = HOPPER_STAGES, Parts = D / 8, Step = 128 / Parts;
  constexpr u32 TileBytes = Keys * D * 2, QueryBytes = Rows * D * 2;
  const int t = threadIdx.x, c = t % Parts, r0 = t / Parts;
  // Of pages the 32 rows of a warp, so many at once, are looked up by a lane each, a tile ahead.
  constexpr int Side = 32 / Parts;
  const int mine = t % Side + t / 32 * Side + t % 32 / Side * Step;
  PageRow row = {};
  HopperTile w;
  u32 done = 0, queries = 0;  // key tiles and query tiles so far; both sides count alike
  UNROLL(1, 1)
  for (int item = 0; hopper_tile<HOPPER_ROWS>(p, item, w); item++) {
    if (w.i0 < 0) continue;
    barrier_wait(b.empty_q + queries % 2, (queries / 2 & 1) ^ 1);
    const T* at = query_row<const T>(p.q, p.q_strides, w.s, w.head, w.i0 + r0) + 8 * c;
    unsigned char* to = shared + queries % 2 * QueryBytes + place(r0, c, Rows);
    UNROLL(1, 2)
    for (int r = 0; r < Rows; r += Step) {
      const bool in = w.i0 + r0 + r < w.s.nq;
      async_copy16(to, in ? at : (const T*)p.q, in ? 16 : 0);
      at += Step * p.q_strides[2], to += Step * 128;
    }
    barrier_arrive_copied(b.full_q + queries % 2);
    queries++;
    // Tiles are taken from the last to the first: those at the diagonal come first. Keys and values take turns.
    if (p.pages) row = look_up(p, w.s, (w.first + w.tiles - 1) * Keys + mine);
    UNROLL(1, 1)
    for (int n = 0; n < 2 * w.tiles; n++) {
      const int which = n % 2, j0 = (w.first + w.tiles - 1 - n / 2) * Keys;
      const u32 stage = done % Stages;
      const i64 strides[3] = {which ? p.v_strides[0] : p.k_strides[0], which ? p.v_strides[1] : p.k_strides[1],
                              which ? p.v_strides[2] : p.k_strides[2]};
      const T* from = (const T*)(which ? p.v : p.k) + w.kv_head * strides[1] + 8 * c;
      to = shared + 2 * QueryBytes + (which * Stages + stage) * TileBytes + place(r0, c, Keys);
      // Flags are on their way meanwhile, a team's part with each.
      MaskCopy<64, Keys> mask;
      u64 flags[MaskCopy<64, Keys>::Count];
      const bool masked = Changes & BIASED && p.mask_kind;
      if (masked) {
        mask = mask_copy<64, Keys>(p, w.s, w.head, w.i0 + 64 * which, j0);
        if (mask.flags) fetch_flags(p, mask, 0, flags);
      }
      if (p.pages) {
        const i64 place = row.page < 0 ? -1 : row.page * strides[0] + row.inside * strides[2];
        if (which && n + 1 < 2 * w.tiles) row = look_up(p, w.s, j0 - Keys + mine);
        barrier_wait(&b.empty[which][stage], (done / Stages & 1) ^ 1);
        UNROLL(1, 4)
        for (int r = 0; r < Keys; r += Step) {
          const i64 there = shfl(place, r / Step * Side + t % 32 / Parts, 32);
          async_copy16(to, there < 0 ? (const T*)p.q : from + there, there < 0 ? 0 : 16);
          to += Step * 128;
        }
      } else {
        barrier_wait(&b.empty[which][stage], (done / Stages & 1) ^ 1);
        from += w.s.batch * strides[0] + (w.s.k_row + j0 + r0) * strides[2];
        UNROLL(1, 4)
        for (int r = 0; r < Keys; r += Step) {
          const bool in = j0 + r0 + r < w.s.nk;
          async_copy16(to, in ? from : (const T*)p.q, in ? 16 : 0);
          from += Step * strides[2], to += Step * 128;
        }
      }
      barrier_arrive_copied(&b.full[which][stage]);
      if (masked && mask.flags) {
        barrier_wait(b.empty_mask + which, (done & 1) ^ 1);
        store_flags<T>(mask, 0, flags, mask_tile<D>(shared, which));
        barrier_arrive(b.full_mask + which);
      } else if (masked && !which) {
        UNROLL(1, 1)
        for (int team = 0; team < 2; team++) {
          barrier_wait(b.empty_mask + team, (done & 1) ^ 1);
          copy_mask<T>(p, mask_copy<64, Keys>(p, w.s, w.head, w.i0 + 64 * team, j0), w.s.nk % 8 == 0,
                       mask_tile<D>(shared, team), b.full_mask + team);
        }
      }
      done += which;
    }
  }
  async_commit();
  async_wait<0>();  // a thread must not leave while its copies are under way
}

/** A lane's two rows, from i on: whether NaN is among them. */
template <class T, int Changes, int N>
WICK_FN bool end_rows(const Attention& p, const HopperTile& w, int i, const float (&top)[2], const float (&sum)[2],
                      const float (&out)[N]) {
  bool odd = false;
#pragma unroll
  for (int r = 0; r < 2; r++, i += 8) {
    const float scale = end_row<Changes>(p, w, i, lane_column() == 0, top[r], sum[r]);
    if (i < w.s.nq) odd |= write_row(query_row<T>(p.out, p.out_strides, w.s, w.head, i) + lane_column(), out, r, scale);
  }
  return odd;
}
template <class T, int D, int Changes> WICK_FN void attention_hopper(const Attention& p) {
  constexpr int Rows = HOPPER_ROWS, Keys = HOPPER_KEYS, Stages = HOPPER_STAGES;
  constexpr u32 TileBytes = Keys * D * 2, QueryBytes = Rows * D * 2;
  DYNAMIC_SHARED(unsigned char, raw);
  unsigned char* shared = raw + (1024 - (shared_address(raw) & 1023)) % 1024;
  __shared__ HopperBarriers b;
  begin_barriers(b);
  const int group = threadIdx.x / 128;
  if (group == 0) {
    fewer_registers<HOPPER_COPYING<Changes>>();
    hopper_copies<T, D, Changes>(p, shared, b);
    return;
  }
  more_registers<HOPPER_COPYING<Changes>>();
  const int team = group - 1, lane = threadIdx.x % 32;
  const u32 k_tiles = shared_address(shared) + 2 * QueryBytes, v_tiles = k_tiles + Stages * TileBytes;
  const u64 k_operand = operand(k_tiles, 16), v_operand = operand(v_tiles, Keys * 128);
  HopperTile w = {};
  int done = 0, queries = 0;  // key tiles and query tiles so far; both sides count alike
  float out[D / 2], score[64], top[2], sum[2], keep[2];
  u32 weights[32];
  const ScoreUnits<Changes> units = units_of<Changes>(p);
  const MaskPart mask = {mask_tile<D>(shared, team), b.full_mask + team, b.empty_mask + team};
  u64 q_operand = 0;
  int q0 = 0;
  bool odd = false;  // whether NaN was written

  auto begin_scores = [&](int n) {
    barrier_wait(&b.full[0][n % Stages], n / Stages & 1);
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
    barrier_wait(&b.full[1][n % Stages], n / Stages & 1);
    fence_products();
    products_fence();
    u64 v = v_operand + n % Stages * (TileBytes >> 4);
#pragma unroll
    for (int j = 0; j < Keys / 16; j++) product<T>(out, weights + 4 * j, v + j * (16 * 128 >> 4));
    products_commit();
  };
  auto release = [&](u64* of) {
    if (lane == 0) barrier_arrive(of);
  };
  auto soften_tile = [&](int n) {
    soften<T, Changes>(p, w, units, q0, (w.first + w.tiles - 1 - n) * Keys, mask, done + n, score, top, sum, keep);
  };

  if (team == 1) named_arrive(3, 256);  // the first team goes first
  for (int item = 0; hopper_tile<HOPPER_ROWS>(p, item, w); item++) {
    if (w.i0 < 0) continue;
    const int qs = queries % 2;
    barrier_wait(b.full_q + qs, queries / 2 & 1);
    queries++;
    q0 = w.i0 + 64 * team;
    q_operand = operand(shared_address(shared) + qs * QueryBytes + team * 64 * 128, 16);
    top[0] = top[1] = Limits<float>::lowest();
    sum[0] = sum[1] = 0;
#pragma unroll
    for (int e = 0; e < D / 2; e++) out[e] = 0;
    begin_scores(done);
    products_wait<0>();
    release(&b.empty[0][done % Stages]);
    if (w.tiles == 1) release(b.empty_q + qs);
    soften_tile(0);
    pack_weights<T>(weights, score);
    for (int n = 1; n < w.tiles; n++) {
      const int at = done + n;
      named_sync(3 + team, 256);
      begin_scores(at);
      begin_sums(at - 1);
      named_arrive(3 + 1 - team, 256);
      products_wait<1>();
      release(&b.empty[0][at % Stages]);
      if (n == w.tiles - 1) release(b.empty_q + qs);
      soften_tile(n);
      products_wait<0>();
      release(&b.empty[1][(at - 1) % Stages]);
      pack_weights<T>(weights, score);
      rescale(out, keep);
    }
    done += w.tiles;
    begin_sums(done - 1);
    products_wait<0>();
    release(&b.empty[1][(done - 1) % Stages]);
    odd |= end_rows<T, Changes>(p, w, q0 + lane_row(), top, sum, out);
  }
  if (team == 0) named_sync(3, 256);  // takes the turn the last team gave
  tiles_again<T, Rows>(p, team, odd);
}

// ---- heads of 128: a query tile's last values are weighed along with the next one's first scores; for heads of 64
// that is slower ----

template <class T, int D, int Changes> WICK_FN void attention_hopper_joined(const Attention& p) {
  constexpr int Rows = HOPPER_ROWS, Keys = HOPPER_KEYS, Stages = HOPPER_STAGES;
  constexpr u32 TileBytes = Keys * D * 2, QueryBytes = Rows * D * 2;
  DYNAMIC_SHARED(unsigned char, raw);
  unsigned char* shared = raw + (1024 - (shared_address(raw) & 1023)) % 1024;
  __shared__ HopperBarriers b;
  begin_barriers(b);
  const int group = threadIdx.x / 128;
  if (group == 0) {
    fewer_registers<HOPPER_COPYING<Changes>>();
    hopper_copies<T, D, Changes>(p, shared, b);
    return;
  }
  more_registers<HOPPER_COPYING<Changes>>();
  const int team = group - 1, lane = threadIdx.x % 32;
  const int row = lane_row(), column = lane_column();  // rows row and row + 8 of the team's 64
  const u32 k_tiles = shared_address(shared) + 2 * QueryBytes, v_tiles = k_tiles + Stages * TileBytes;
  const u64 k_operand = operand(k_tiles, 16), v_operand = operand(v_tiles, Keys * 128);
  const u64 q_operands = operand(shared_address(shared) + team * 64 * 128, 16);
  HopperTile w = {};
  u32 done = 0, queries = 0;  // key tiles and query tiles so far; both sides count alike
  float out[D / 2], score[64], top[2] = {}, sum[2] = {}, keep[2];
  u32 weights[32];
  const ScoreUnits<Changes> units = units_of<Changes>(p);
  const MaskPart mask = {mask_tile<D>(shared, team), b.full_mask + team, b.empty_mask + team};

  auto release = [&](u64* of) {
    if (lane == 0) barrier_arrive(of);
  };
  // A round begins the scores of a key tile and weighs the values of the one before it, be it of the same query tile or
  // not. All rounds run the same products: what the first one sums and the last one scores is nobody's.
  T* to = nullptr;       // of the query tile whose values are being weighed: where this lane's first row goes,
  int rows = 0;          // how many of its rows there are from there,
  float scales[2] = {};  // and what they are multiplied by
  bool odd = false;      // whether NaN was among them
  bool more = true, first = true;  // whether the values weighed are the first of their query tile
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
          const float scale = end_row<Changes>(p, w, i + 8 * r, column == 0, r ? top[1] : top[0], r ? sum[1] : sum[0]);
          if (r) scales[1] = scale;
          else scales[0] = scale;
        }
      }
      UNROLL(1, 1)
      do more = hopper_tile<HOPPER_ROWS>(p, item++, w);
      while (more && w.i0 < 0);
      n = 0;
      tiles = w.tiles;
      if (more) {
        barrier_wait(b.full_q + queries % 2, queries / 2 & 1);
        queries++;
      }
      top[0] = top[1] = Limits<float>::lowest();
      sum[0] = sum[1] = 0;
    }
    const u32 stage = done % Stages, before = (done + Stages - 1) % Stages, qs = (queries + 1) % 2;
    if (more) barrier_wait(&b.full[0][stage], done / Stages & 1);
    if (done > 0) barrier_wait(&b.full[1][before], (done - 1) / Stages & 1);
    fence_products();
    products_fence();
    const u64 q = q_operands + qs * (QueryBytes >> 4), k = k_operand + stage * (TileBytes >> 4),
              v = v_operand + before * (TileBytes >> 4);
    products<T, D>(score, q, k, Rows * 128, Keys * 128);
    products_commit();
    products<T>(out, weights, v, !first);
    products_commit();
    products_wait<1>();
    if (more) {
      release(&b.empty[0][stage]);
      if (n == tiles - 1) release(b.empty_q + qs);
      soften<T, Changes>(p, w, units, w.i0 + 64 * team, (w.first + tiles - 1 - n) * Keys, mask, done, score, top, sum,
                         keep);
    }
    products_wait<0>();
    if (done > 0) release(&b.empty[1][before]);
    if (fresh && done > 0) {
#pragma unroll
      for (int r = 0; r < 2; r++) {
        if (8 * r < rows) odd |= write_row(to, out, r, scales[r]);
        to += 8 * p.out_strides[2];
      }
    }
    if (!more) break;
    pack_weights<T>(weights, score);
    first = fresh;
    if (ballot64(keep[0] != 1 || keep[1] != 1)) rescale(out, keep);  // most tiles do not raise the maximum
    done++;
  }
  tiles_again<T, Rows>(p, team, odd);
}

#else
// launched without sm_90a
template <class T, int D, int Changes> WICK_FN void attention_hopper(const Attention&) { trap(); }
template <class T, int D, int Changes> WICK_FN void attention_hopper_joined(const Attention&) { trap(); }
#endif

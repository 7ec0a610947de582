// Attention of 16-bit floats on Hopper where queries, keys and values are dense and scores are only scaled: whole tiles
// come by the unit for tensor copies, which one thread asks.
//
// attention_dense_hopper_T_TILE, 64 and 128 for these head dimensions: three and two computing warpgroups ("teams" of
// 64 queries each) and one that copies; 64_short, with two, for few queries. As many blocks as multiprocessors (fewer
// for small problems): a block takes query tiles in pairs of a long and a short one where causal rows differ, and
// copies the next one's queries and keys while it ends the one before. Shared bytes:
// 1024 + 2 * D * (2 * 64 * teams + 4 * 128). `maps`: 384 bytes a block, aligned to 128, for nobody else.
// Compiled for sm_90a, as its module declares. No starts, lengths, pages, mask, slopes or soft cap; at least one key.
// All tensors begin at a multiple of 16 bytes, and their strides are multiples of 8 numbers; those of queries, keys and
// values are more than 0.
//
// Nobody makes the teams of heads of 128 take turns, which is measured to be slower; three of heads of 64 do, and each
// leaves out the last keys where none of its queries sees them.
#include "attention-hopper-forward.h"

#if defined(WICK_NVIDIA) && defined(__CUDA_ARCH_FEAT_SM90_ALL)

/** Registers of a copying thread. */
template <int Teams> constexpr int DENSE_COPYING = Teams == 3 ? 32 : HAS_BOXES ? 24 : 40;

/** Barriers of query tiles, and of the stages of keys and values. */
struct DenseBarriers {
  u64 full_q[2], empty_q[2], full[2][HOPPER_STAGES], empty[2][HOPPER_STAGES];
};
template <int Teams> WICK_FN void begin_barriers(DenseBarriers& b) {
  constexpr u32 Writers = HAS_BOXES ? 1 : 128, Readers = 4 * Teams;  // a lane of every computing warp
  if (threadIdx.x == 0) {
#pragma unroll
    for (int i = 0; i < 2; i++) barrier_init(b.full_q + i, Writers), barrier_init(b.empty_q + i, Readers);
#pragma unroll
    for (int i = 0; i < 2 * HOPPER_STAGES; i++)
      barrier_init(&b.full[0][0] + i, Writers), barrier_init(&b.empty[0][0] + i, Readers);
    barriers_begin();
  }
  __syncthreads();
}

// ---- copies: queries, then the keys and values they see, tile by tile for as long as there are ----

/** A block's tensor maps, in global memory. */
struct DenseMaps {
  BoxMap q, k, v;
};
/** By the block's first warp. */
template <int D> WICK_FN void begin_maps(const Attention& p, DenseMaps& maps) {
  __shared__ DenseMaps made;
  if (threadIdx.x == 0) {
    make_map(made.q, p.q, p.q_strides, D, p.tq, p.heads, p.batch, 64);
    make_map(made.k, p.k, p.k_strides, D, p.tk, p.kv_heads, p.batch, HOPPER_KEYS);
    make_map(made.v, p.v, p.v_strides, D, p.tk, p.kv_heads, p.batch, HOPPER_KEYS);
  }
  __syncwarp();
  publish_map(maps.q, made.q);
  publish_map(maps.k, made.k);
  publish_map(maps.v, made.v);
}
/** By one thread, each of whose instructions counts. */
template <int D, int Teams>
WICK_FN void dense_boxes(const Attention& p, const DenseMaps& maps, u32 q_tiles, DenseBarriers& b) {
  constexpr int Rows = 64 * Teams, Keys = HOPPER_KEYS, Stages = HOPPER_STAGES;
  constexpr u32 TileBytes = Keys * D * 2, QueryBytes = Rows * D * 2;
  const u32 k_tiles = q_tiles + 2 * QueryBytes, v_tiles = k_tiles + Stages * TileBytes;
  HopperTile w;
  u32 done = 0, queries = 0;  // key tiles and query tiles so far; both sides count alike
  UNROLL(1, 1)
  for (int item = 0; hopper_tile<Rows>(p, item, w); item++) {
    if (w.i0 < 0) continue;
    const u32 qs = queries % 2;
    barrier_wait(b.empty_q + qs, (queries / 2 & 1) ^ 1);
    barrier_expect(b.full_q + qs, QueryBytes);
#pragma unroll
    for (int c = 0; c < D / 64; c++)
#pragma unroll
      for (int t = 0; t < Teams; t++)
        copy_box(q_tiles + qs * QueryBytes + c * Rows * 128 + t * 64 * 128, maps.q, 64 * c, w.i0 + 64 * t, w.head,
                 w.s.batch, b.full_q + qs);
    queries++;
    // Tiles are taken from the last to the first: those at the diagonal come first.
    UNROLL(1, 1)
    for (int n = 0; n < w.tiles; n++, done++) {
      const int j0 = (w.first + w.tiles - 1 - n) * Keys;
      const u32 stage = done % Stages, parity = (done / Stages & 1) ^ 1;
      barrier_wait(b.empty[0] + stage, parity);
      barrier_expect(b.full[0] + stage, TileBytes);
#pragma unroll
      for (int c = 0; c < D / 64; c++)
        copy_box(k_tiles + stage * TileBytes + c * Keys * 128, maps.k, 64 * c, j0, w.kv_head, w.s.batch,
                 b.full[0] + stage);
      barrier_wait(b.empty[1] + stage, parity);
      barrier_expect(b.full[1] + stage, TileBytes);
#pragma unroll
      for (int c = 0; c < D / 64; c++)
        copy_box(v_tiles + stage * TileBytes + c * Keys * 128, maps.v, 64 * c, j0, w.kv_head, w.s.batch,
                 b.full[1] + stage);
    }
  }
}
/** Where compilers know no boxes, 128 threads copy 16 bytes at a time. */
template <class T, int D, int Teams>
WICK_FN void dense_rows(const Attention& p, unsigned char* shared, DenseBarriers& b) {
  constexpr int Rows = 64 * Teams, Keys = HOPPER_KEYS, Stages = HOPPER_STAGES, Parts = D / 8, Step = 128 / Parts;
  constexpr u32 TileBytes = Keys * D * 2, QueryBytes = Rows * D * 2;
  const int c = threadIdx.x % Parts, r0 = threadIdx.x / Parts;
  HopperTile w;
  u32 done = 0, queries = 0;
  UNROLL(1, 1)
  for (int item = 0; hopper_tile<Rows>(p, item, w); item++) {
    if (w.i0 < 0) continue;
    const u32 qs = queries % 2;
    barrier_wait(b.empty_q + qs, (queries / 2 & 1) ^ 1);
    const T* at = query_row<const T>(p.q, p.q_strides, w.s, w.head, w.i0 + r0) + 8 * c;
    unsigned char* to = shared + qs * QueryBytes + place(r0, c, Rows);
    UNROLL(1, 2)
    for (int r = 0; r < Rows; r += Step) {
      const bool in = w.i0 + r0 + r < p.tq;
      async_copy16(to, in ? at : (const T*)p.q, in ? 16 : 0);
      at += Step * p.q_strides[2], to += Step * 128;
    }
    barrier_arrive_copied(b.full_q + qs);
    queries++;
    UNROLL(1, 1)
    for (int n = 0; n < 2 * w.tiles; n++) {
      const int which = n % 2, j0 = (w.first + w.tiles - 1 - n / 2) * Keys;
      const u32 stage = done % Stages;
      const i64 step = which ? p.v_strides[2] : p.k_strides[2];
      at = (which ? query_row<const T>(p.v, p.v_strides, w.s, w.kv_head, j0 + r0)
                  : query_row<const T>(p.k, p.k_strides, w.s, w.kv_head, j0 + r0)) +
           8 * c;
      to = shared + 2 * QueryBytes + (which * Stages + stage) * TileBytes + place(r0, c, Keys);
      barrier_wait(b.empty[which] + stage, (done / Stages & 1) ^ 1);
      UNROLL(1, 4)
      for (int r = 0; r < Keys; r += Step) {
        const bool in = j0 + r0 + r < p.tk;
        async_copy16(to, in ? at : (const T*)p.q, in ? 16 : 0);
        at += Step * step, to += Step * 128;
      }
      barrier_arrive_copied(b.full[which] + stage);
      done += which;
    }
  }
  async_commit();
  async_wait<0>();  // a thread must not leave while its copies are under way
}

// ---- products ----

/**
 * The first `rows` of a warp's 16, as whole lines from `to` on, by way of its part of the query tile from row `first`
 * on, which nobody else reads or writes. Whether this lane found NaN.
 */
template <class T, int D, int Rows>
WICK_FN bool write_lines(T* to, i64 step, int rows, unsigned char* tile, int first, const float (&out)[D / 2],
                         const float (&scales)[2]) {
  const int lane = threadIdx.x % 32, r0 = first + lane / 4;
  bool odd = false;
#pragma unroll
  for (int r = 0; r < 2; r++) {
    u32 oddest = 0;
#pragma unroll
    for (int e = 2 * r; e < D / 2; e += 4) {
      const u32 pair = pack_pair<T>(out[e] * scales[r], out[e + 1] * scales[r]);
      *(u32*)(tile + place(r0 + 8 * r, e / 4, Rows) + lane % 4 * 4) = pair;
      oddest = odder_pair<T>(oddest, pair);
    }
    odd |= has_nan<T>(oddest);  // of rows that are not there, too, which does no harm
  }
  __syncwarp();
  constexpr int Parts = D / 8, Step = 32 / Parts;
  const int c = lane % Parts, row = lane / Parts;
  to += row * step + 8 * c;
#pragma unroll
  for (int r = 0; r < 16; r += Step) {
    const word4 part = *(const word4*)(tile + place(first + r + row, c, Rows));
    if (r + row < rows) *(word4*)to = part;
    to += Step * step;
  }
  __syncwarp();
  fence_products();  // before the next queries are copied there
  return odd;
}

/** `Turns`: a team begins its products when the one before has begun its own. */
template <class T, int D, int Teams, bool Turns> WICK_FN void attention_dense(const Attention& p, u8* maps) {
  constexpr int Rows = 64 * Teams, Keys = HOPPER_KEYS, Stages = HOPPER_STAGES;
  constexpr u32 TileBytes = Keys * D * 2, QueryBytes = Rows * D * 2;
  DYNAMIC_SHARED(unsigned char, raw);
  unsigned char* shared = raw + (1024 - (shared_address(raw) & 1023)) % 1024;
  __shared__ DenseBarriers b;
  begin_barriers<Teams>(b);
  const int group = shfl((int)threadIdx.x / 128, 0, 32);  // so that compilers see that a warp has one
  if (group == 0) {
    fewer_registers<DENSE_COPYING<Teams>>();
    if constexpr (HAS_BOXES) {
      if (threadIdx.x >= 32) return;
      DenseMaps& mine = ((DenseMaps*)maps)[blockIdx.x];
      begin_maps<D>(p, mine);
      if (threadIdx.x == 0) dense_boxes<D, Teams>(p, mine, shared_address(shared), b);
    } else {
      dense_rows<T, D, Teams>(p, shared, b);
    }
    return;
  }
  more_registers<DENSE_COPYING<Teams>, Teams>();
  const int team = group - 1, lane = threadIdx.x % 32, warp_row = threadIdx.x % 128 / 32 * 16;
  const u32 k_tiles = shared_address(shared) + 2 * QueryBytes, v_tiles = k_tiles + Stages * TileBytes;
  const u64 k_operand = operand(k_tiles, 16), v_operand = operand(v_tiles, Keys * 128);
  const u64 q_operands = operand(shared_address(shared) + team * 64 * 128, 16);
  const ScoreUnits<0> units = units_of<0>(p);
  HopperTile w = {};
  u32 done = 0, queries = 0;  // as the copying side counts
  float out[D / 2], score[Keys / 2], top[2], sum[2], keep[2];
  u32 weights[Keys / 4];
  bool odd = false;  // whether NaN was written

  auto release = [&](u64* of) {
    if (lane == 0) barrier_arrive(of);
  };
  auto take_turn = [&]() {
    if constexpr (Turns) named_sync(3 + team, 256);
  };
  auto give_turn = [&]() {
    if constexpr (Turns) named_arrive(3 + (team + 1 == Teams ? 0 : team + 1), 256);
  };
  auto wait_for = [&](int which, u32 n) { barrier_wait(b.full[which] + n % Stages, n / Stages & 1); };
  auto begin_products = [&]() {
    if constexpr (!HAS_BOXES) fence_products();
    take_turn();
    products_fence();
  };
  auto begin_scores = [&](u32 qs, u32 n) {
    const u64 q = q_operands + qs * (QueryBytes >> 4), k = k_operand + n % Stages * (TileBytes >> 4);
#pragma unroll
    for (int d = 0; d < D / 16; d++)  // 16 columns are 32 bytes, 64 columns one part of the tile
      product<T>(score, q + d / 4 * (Rows * 128 >> 4) + d % 4 * 2, k + d / 4 * (Keys * 128 >> 4) + d % 4 * 2, d > 0);
    products_commit();
  };
  auto begin_sums = [&](u32 n) {
    const u64 v = v_operand + n % Stages * (TileBytes >> 4);
#pragma unroll
    for (int j = 0; j < Keys / 16; j++) product<T>(out, weights + 4 * j, v + j * (16 * 128 >> 4));
    products_commit();
  };

  if (Turns && team == Teams - 1) named_arrive(3, 256);  // the first team goes first
  UNROLL(1, 1)
  for (int item = 0; hopper_tile<Rows>(p, item, w); item++) {
    if (w.i0 < 0) continue;
    const u32 qs = queries % 2;
    barrier_wait(b.full_q + qs, queries / 2 & 1);
    queries++;
    const int q0 = w.i0 + 64 * team;
    int tiles = w.tiles;
    auto soften_tile = [&](int n) {
      soften<T, 0>(p, w, units, q0, (w.first + tiles - 1 - n) * Keys, MaskPart{}, 0, score, top, sum, keep);
    };
    top[0] = top[1] = Limits<float>::lowest();
    sum[0] = sum[1] = 0;
#pragma unroll
    for (int e = 0; e < D / 2; e++) out[e] = 0;
    if constexpr (Teams > 2) {  // without the last tiles of keys that none of the team's queries sees
      const int seen = q0 < p.tq ? (keys_seen(p, w.s, q0, q0 + 63).end + Keys - 1) / Keys - w.first : 1;
      UNROLL(1, 1)
      for (; tiles > seen && tiles > 1; tiles--, done++) {
#pragma unroll
        for (int which = 0; which < 2; which++) {
          wait_for(which, done);
          release(b.empty[which] + done % Stages);
        }
        take_turn();
        give_turn();
      }
    }
    wait_for(0, done);
    if constexpr (!HAS_BOXES) fence_products();
    products_fence();
    begin_scores(qs, done);
    products_wait<0>();
    release(b.empty[0] + done % Stages);
    soften_tile(0);
    pack_weights<T>(weights, score);
    // A tile's scores are begun with the sums of the one before it, which go on while they are softened.
    UNROLL(1, 1)
    for (int n = 1; n < tiles; n++) {
      const u32 at = done + n;
      wait_for(0, at);
      wait_for(1, at - 1);
      begin_products();
      begin_scores(qs, at);
      begin_sums(at - 1);
      give_turn();
      products_wait<1>();
      release(b.empty[0] + at % Stages);
      soften_tile(n);
      products_wait<0>();
      release(b.empty[1] + (at - 1) % Stages);
      pack_weights<T>(weights, score);
      if (ballot64(keep[0] != 1 || keep[1] != 1)) rescale(out, keep);  // most tiles do not raise the maximum
    }
    done += tiles;
    wait_for(1, done - 1);
    if constexpr (!HAS_BOXES) fence_products();
    products_fence();
    begin_sums(done - 1);
    float scales[2];
#pragma unroll
    for (int r = 0; r < 2; r++)
      scales[r] = end_row<0>(p, w, q0 + lane_row() + 8 * r, lane_column() == 0, top[r], sum[r]);
    products_wait<0>();
    release(b.empty[1] + (done - 1) % Stages);
    const int i = q0 + warp_row;
    odd |= write_lines<T, D, Rows>(query_row<T>(p.out, p.out_strides, w.s, w.head, i), p.out_strides[2], p.tq - i,
                                   shared + qs * QueryBytes, 64 * team + warp_row, out, scales);
    release(b.empty_q + qs);
  }
  if (Turns && team == 0) named_sync(3, 256);  // takes the turn the last team gave
  tiles_again<T, Rows>(p, team, odd);
}

#else
// launched without sm_90a
template <class T, int D, int Teams, bool Turns> WICK_FN void attention_dense(const Attention&, u8*) { trap(); }
#endif

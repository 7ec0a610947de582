// Gradients of attention in 16-bit floats on Hopper: warpgroup products that read shared memory, one warpgroup copying
// and two computing.
//
// A block owns 128 rows and streams the rows of the other side past them, 64 at a time, so nothing is added by two
// blocks and results repeat bit for bit:
//   attention_backward_hopper_key_T_D    owns keys, grid (key tiles, key heads, batch): gradients of keys and values
//   attention_backward_hopper_query_T_D  owns queries, grid (query tiles, heads, batch): the gradient of queries
// 384 threads, head dimensions 64 and 128; rows must be 16-byte aligned, delta comes from attention_delta_T. Scores are
// scaled; what else changes them is compiled in: _capped, _biased (alibi, a mask), _capped_biased. Shared bytes:
// 1024 + 4 * D * (128 + 3 * 64) + 1536, and where there is a mask 3 * 2 * 128 * 64 more.
#include "attention-hopper.h"
#include "settle.h"

#if defined(WICK_NVIDIA) && defined(__CUDA_ARCH_FEAT_SM90_ALL)

/** Copies one number, or makes it 0. */
WICK_FN void async_copy4(void* to, const float* from, bool in) {
  asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;" ::"r"(shared_address(to)), "l"(from), "r"(in ? 4 : 0)
               : "memory");
}
/** The first `there` of so many rows, zeros for the others; 128 threads. */
template <class T, int D, int Rows> WICK_FN void copy_rows(unsigned char* to, const T* from, i64 stride, int there) {
  constexpr int Parts = D / 8, Step = 128 / Parts;
  const int c = threadIdx.x % Parts, r0 = threadIdx.x / Parts;
  const T* at = from + r0 * stride + 8 * c;
  to += place(r0, c, Rows);
  UNROLL(1, 4)
  for (int r = r0; r < r0 + Rows; r += Step) {
    async_copy16(to, r < there ? at : from, r < there ? 16 : 0);
    at += Step * stride, to += Step * 128;
  }
}
/** In powers of two. A row of which a mask hides every key has none; its weights are 0 without it. */
template <int Changes> WICK_FN float lse_units(float lse) {
  return Changes & BIASED && lse == Limits<float>::lowest() ? 0 : lse * LOG2_E;
}
template <int N> struct Count { static constexpr int value = N; };
constexpr int BACKWARD_ROWS = 128, BACKWARD_OTHERS = 64, BACKWARD_STAGES = 3, BACKWARD_COPYING = 40;
constexpr u32 BACKWARD_MASK_BYTES = 2 * BACKWARD_ROWS * BACKWARD_OTHERS;

/** What a block owns, and the tiles that stream past it: of keys, or of the queries of all heads of a key head. */
struct BackwardWork {
  Sequence s;
  int head0, kv_head, r0, mine, theirs, first, tiles, steps;
};
template <bool OwnKeys> WICK_FN BackwardWork backward_work(const Attention& p) {
  constexpr int Rows = BACKWARD_ROWS, Others = BACKWARD_OTHERS;
  const int group = p.heads / p.kv_heads;
  BackwardWork w;
  w.s = sequence_of(p, blockIdx.z);
  w.head0 = OwnKeys ? blockIdx.y * group : blockIdx.y;
  w.kv_head = OwnKeys ? blockIdx.y : blockIdx.y / group;
  w.r0 = (OwnKeys ? blockIdx.x : gridDim.x - 1 - blockIdx.x) * Rows;  // the longest rows of a causal problem first
  w.mine = OwnKeys ? w.s.nk : w.s.nq, w.theirs = OwnKeys ? w.s.nq : w.s.nk;
  const Range seen = OwnKeys ? queries_seeing(p, w.s, w.r0, w.r0 + Rows - 1) : keys_seen(p, w.s, w.r0, w.r0 + Rows - 1);
  w.first = seen.begin / Others;
  w.tiles = seen.begin < seen.end ? (seen.end + Others - 1) / Others - w.first : 0;
  w.steps = OwnKeys ? w.tiles * group : w.tiles;
  return w;
}

/** Shared memory: own rows twice, stages of others twice, log-sum-exp and delta of queries that stream past, masks. */
template <int D> struct BackwardShared {
  static constexpr u32 OwnBytes = BACKWARD_ROWS * D * 2, OtherBytes = BACKWARD_OTHERS * D * 2;
  unsigned char* own;
  WICK_MEMBER unsigned char* others(int stage) const { return own + 2 * OwnBytes + 2 * stage * OtherBytes; }
  WICK_MEMBER float* stats(int stage) const { return (float*)others(BACKWARD_STAGES) + stage * 2 * BACKWARD_OTHERS; }
  WICK_MEMBER unsigned char* mask(int stage) const {
    return (unsigned char*)stats(BACKWARD_STAGES) + stage * BACKWARD_MASK_BYTES;
  }
};
struct BackwardBarriers {
  u64 full_own, full[BACKWARD_STAGES], empty[BACKWARD_STAGES];
};

/** What the copying group does: the rows that the block owns, then stage by stage what streams past them. */
template <class T, int D, bool OwnKeys, int Changes>
WICK_FN void backward_copies(const Attention& p, const BackwardWork& w, const BackwardShared<D>& shared,
                             BackwardBarriers& b) {
  constexpr int Rows = BACKWARD_ROWS, Others = BACKWARD_OTHERS, Stages = BACKWARD_STAGES;
  const Sequence& s = w.s;
  // Rows of keys and values, or of queries and the gradient of the output.
  auto copy = [&](unsigned char* to, auto rows, bool key, int head, int from, int count) {
    UNROLL(1, 1)
    for (int which = 0; which < 2; which++) {
      const void* base = key ? which ? p.v : p.k : which ? p.dout : p.q;
      i64 strides[3];
#pragma unroll
      for (int d = 0; d < 3; d++)
        strides[d] = key ? which ? p.v_strides[d] : p.k_strides[d] : which ? p.dout_strides[d] : p.q_strides[d];
      copy_rows<T, D, rows.value>(
          to + which * rows.value * D * 2,
          (const T*)base + s.batch * strides[0] + head * strides[1] + ((key ? s.k_row : s.q_row) + from) * strides[2],
          strides[2], count - from);
    }
  };
  copy(shared.own, Count<Rows>{}, OwnKeys, OwnKeys ? w.kv_head : w.head0, w.r0, w.mine);
  barrier_arrive_copied(&b.full_own);
  int head = w.head0, tile = 0;
  UNROLL(1, 1)
  for (int step = 0; step < w.steps; step++) {
    const int stage = step % Stages, o0 = (w.first + tile) * Others;
    barrier_wait(b.empty + stage, (step / Stages & 1) ^ 1);
    copy(shared.others(stage), Count<Others>{}, !OwnKeys, OwnKeys ? head : w.kv_head, o0, w.theirs);
    if constexpr (OwnKeys) {
      const int which = threadIdx.x / Others, i = o0 + threadIdx.x % Others;
      const float* from = (const float*)(which ? p.delta : p.lse);
      async_copy4(shared.stats(stage) + threadIdx.x, i < s.nq ? from + lse_index(p, s, head, i) : from, i < s.nq);
    }
    barrier_arrive_copied(b.full + stage);
    if constexpr (Changes & BIASED) {
      if (p.mask_kind) {
        const auto mask = mask_copy < OwnKeys ? Others : Rows,
                   OwnKeys ? Rows : Others > (p, s, head, OwnKeys ? o0 : w.r0, OwnKeys ? w.r0 : o0);
        if (mask.flags) {
          UNROLL(1, 1)
          for (int n = 0; n < mask.Count; n += 4) {
            u64 flags[4];
            fetch_flags(p, mask, n, flags);
            store_flags<T>(mask, n, flags, shared.mask(stage));
          }
          barrier_arrive(b.full + stage);
        } else copy_mask<T>(p, mask, s.nk % 8 == 0, shared.mask(stage), b.full + stage);
      }
    }
    if (++tile == w.tiles) tile = 0, head++;
  }
  async_commit();
  async_wait<0>();  // a thread must not leave while its copies are under way
}

/** Of the two rows that a lane has, m and m + 8: where they are, what they meet, and of queries their numbers. */
struct OwnRows {
  int m0, m, column;
  float unit, lse[2], delta[2];
  Cap cap;
};
template <bool OwnKeys, int Changes> WICK_FN OwnRows own_rows_of(const Attention& p, const BackwardWork& work) {
  const int lane = threadIdx.x % 32, m0 = work.r0 + (threadIdx.x / 128 - 1) * 64,
            m = m0 + threadIdx.x % 128 / 32 * 16 + lane / 4;
  OwnRows o = {m0, m, lane % 4 * 2, (float)(Changes & CAPPED ? p.softcap : p.scale) * LOG2_E, {}, {}, {}};
  if constexpr (Changes & CAPPED) o.cap = cap_of(p, 1);
#pragma unroll
  for (int r = 0; r < 2; r++) {
    if (OwnKeys || m + 8 * r >= work.s.nq) continue;
    const i64 index = lse_index(p, work.s, work.head0, m + 8 * r);
    o.lse[r] = lse_units<Changes>(((const float*)p.lse)[index]);
    o.delta[r] = ((const float*)p.delta)[index];
  }
  return o;
}
/** A bit for each score of a lane's two rows and others from o0 on: whether it is seen. */
template <bool OwnKeys>
WICK_FN void seen_bits(const Attention& p, const BackwardWork& work, const OwnRows& o, int o0, u32 (&seen)[2]) {
  const Sequence& s = work.s;
  const int m0 = o.m0, last = o0 + BACKWARD_OTHERS - 1, from = o0 + o.column;
  seen[0] = seen[1] = ~0u;
  if (OwnKeys ? all_seen(p, s, o0, last, m0, m0 + 63) : all_seen(p, s, m0, m0 + 63, o0, last)) return;
#pragma unroll
  for (int r = 0; r < 2; r++) {
    const int m = o.m + 8 * r;
    const Range range = OwnKeys ? queries_seeing(p, s, m, m) : keys_seen(p, s, m, m);
    seen[r] = m < work.mine ? bits_below(range.end - from) & ~bits_below(range.begin - from) : 0;
  }
}
/** Products to weights and the gradients of products, but for the scale. */
template <class T, int D, bool OwnKeys, int Changes>
WICK_FN void weigh(const Attention& p, const BackwardWork& work, const BackwardShared<D>& shared, const OwnRows& o,
                   int stage, int head, int o0, float (&weight)[32], const float (&slope)[32], u32 (&w)[16],
                   u32 (&g)[16]) {
  constexpr int Others = BACKWARD_OTHERS, MaskRows = OwnKeys ? Others : BACKWARD_ROWS;
  const float bias = Changes & BIASED && p.slopes ? -LOG2_E * p.slopes[head] : 0;
  const float apart = (float)(o0 + o.column + (OwnKeys ? work.s.offset : -work.s.offset) - o.m);
  const float* stat = shared.stats(stage) + o.column;
  u32 seen[2];
  seen_bits<OwnKeys>(p, work, o, o0, seen);
  if constexpr (Changes & CAPPED) cap_scores(o.cap, weight);
#pragma unroll
  for (int part = 0; part < 4; part++) {  // 16 columns each
    float power[8], row_delta[8];
#pragma unroll
    for (int e = 0; e < 8; e++) {
      const int r = e / 2 % 2, far = 16 * part + e / 4 * 8 + e % 2;
      row_delta[e] = OwnKeys ? stat[Others + far] : o.delta[r];
      power[e] = fmag(weight[8 * part + e], o.unit, OwnKeys ? -lse_units<Changes>(stat[far]) : -o.lse[r]);
      if constexpr (Changes & BIASED) power[e] = fmag(fabsf(apart + (float)(far - 8 * r)), bias, power[e]);
    }
    if (Changes & BIASED && p.mask_kind) {
      const Frag f = mask_words<MaskRows, OwnKeys>(shared.mask(stage), (threadIdx.x / 32 - 4) * 16, 16 * part);
#pragma unroll
      for (int e = 0; e < 8; e++) power[e] = mask_of<T>(f.w[e / 2], e % 2, power[e]);
    }
#pragma unroll
    for (int e = 0; e < 8; e++) {
      const float x = fast_exp2(power[e]), t = weight[8 * part + e];
      power[e] = seen[e / 2 % 2] >> (4 * part + e / 4 * 2 + e % 2) & 1 ? x : 0;
      row_delta[e] = power[e] * (slope[8 * part + e] - row_delta[e]);
      if constexpr (Changes & CAPPED) row_delta[e] *= fmag(-t, t, 1.0f);
    }
#pragma unroll
    for (int e = 0; e < 4; e++) {
      w[4 * part + e] = pack_pair<T>(power[2 * e], power[2 * e + 1]);
      g[4 * part + e] = pack_pair<T>(row_delta[2 * e], row_delta[2 * e + 1]);
    }
  }
}

template <class T, int D, bool OwnKeys, int Changes> WICK_FN void attention_backward_hopper(const Attention& p) {
  constexpr int Rows = BACKWARD_ROWS, Others = BACKWARD_OTHERS, Stages = BACKWARD_STAGES;
  // The next products are begun before the sums are made, where there are registers for both.
  constexpr bool Ahead = !OwnKeys || D == 64;
  constexpr u32 OwnBytes = Rows * D * 2, OtherBytes = Others * D * 2;
  const BackwardWork work = backward_work<OwnKeys>(p);
  const int steps = work.steps;
  if (work.r0 >= work.mine) return;

  DYNAMIC_SHARED(unsigned char, raw);
  const BackwardShared<D> shared = {raw + (1024 - (shared_address(raw) & 1023)) % 1024};
  __shared__ BackwardBarriers b;
  if (threadIdx.x == 0) barrier_init(&b.full_own, 128);
  if (threadIdx.x < Stages) {
    barrier_init(b.full + threadIdx.x, Changes & BIASED && p.mask_kind ? 256 : 128);  // a mask arrives by itself
    barrier_init(b.empty + threadIdx.x, Rows / 16);                                   // a lane of every computing warp
  }
  __syncthreads();

  if (threadIdx.x < 128) {
    fewer_registers<BACKWARD_COPYING>();
    return backward_copies<T, D, OwnKeys, Changes>(p, work, shared, b);
  }

  more_registers<BACKWARD_COPYING>();
  const int team = threadIdx.x / 128 - 1, lane = threadIdx.x % 32;
  const u32 at = shared_address(shared.own), others_at = at + 2 * OwnBytes;
  const u64 own = operand(at + team * 64 * 128, 16), rows = operand(others_at, 16),
            turned = operand(others_at, Others * 128);
  const OwnRows own_rows = own_rows_of<OwnKeys, Changes>(p, work);
  float sum[D / 2], value_sum[OwnKeys ? D / 2 : 1], weight[32], slope[32];
  u32 w[16], g[16];
#pragma unroll
  for (int e = 0; e < D / 2; e++) {
    sum[e] = 0;
    if constexpr (OwnKeys) value_sum[e] = 0;
  }

  // Products of the own rows with those of a step, and of what belongs to both.
  auto begin_products = [&](int step) {
    const u64 to = (u64)(step % Stages * 2 * (OtherBytes >> 4));
    if (step < steps) barrier_wait(b.full + step % Stages, step / Stages & 1);
    fence_products();
    products_fence();
#pragma unroll
    for (int d = 0; d < D / 16; d++)  // 16 columns are 32 bytes, 64 columns one part of the tile
      product<T>(weight, own + d / 4 * (Rows * 128 >> 4) + d % 4 * 2,
                 rows + to + d / 4 * (Others * 128 >> 4) + d % 4 * 2, d > 0);
#pragma unroll
    for (int d = 0; d < D / 16; d++)
      product<T>(slope, own + (OwnBytes >> 4) + d / 4 * (Rows * 128 >> 4) + d % 4 * 2,
                 rows + to + (OtherBytes >> 4) + d / 4 * (Others * 128 >> 4) + d % 4 * 2, d > 0);
    products_commit();
  };
  barrier_wait(&b.full_own, 0);
  if (Ahead) begin_products(0);
  int head = work.head0, tile = 0;
  UNROLL(1, 1)
  for (int step = 0; step < steps; step++) {
    if (!Ahead) begin_products(step);
    products_wait<0>();
    weigh<T, D, OwnKeys, Changes>(p, work, shared, own_rows, step % Stages, head, (work.first + tile) * Others, weight,
                                  slope, w, g);
    products_fence();
    const u64 x = turned + step % Stages * 2 * (OtherBytes >> 4);
#pragma unroll
    for (int j = 0; j < Others / 16; j++) {
      product<T>(sum, g + 4 * j, x + j * (16 * 128 >> 4));
      if constexpr (OwnKeys) product<T>(value_sum, w + 4 * j, x + (OtherBytes >> 4) + j * (16 * 128 >> 4));
    }
    products_commit();
    if (Ahead) begin_products(step + 1);  // past the last one they are nobody's
    products_wait<Ahead ? 1 : 0>();
    if (lane == 0) barrier_arrive(b.empty + step % Stages);
    if (++tile == work.tiles) tile = 0, head++;
  }
  products_wait<0>();

  u32 odd = 0;  // rows with NaN, which are made again
#pragma unroll
  for (int r = 0; r < 2; r++) {
    const int at = own_rows.m + 8 * r;
    if (at >= work.mine) continue;
    T* to = OwnKeys ? key_row<T>(p, p.dk, p.dk_strides, work.s, work.kv_head, at)
                    : query_row<T>(p.dq, p.dq_strides, work.s, work.head0, at);
    bool found = write_row(to + own_rows.column, sum, r, (float)p.scale);
    if constexpr (OwnKeys)
      found |=
          write_row(key_row<T>(p, p.dv, p.dv_strides, work.s, work.kv_head, at) + own_rows.column, value_sum, r, 1);
    odd |= (u32)found << (lane / 4 + 8 * r);
  }
  const int first = own_rows.m - lane / 4;
  each_again(odd, [&](int r) {
    if constexpr (OwnKeys) key_gradients_again<T>(p, work.s, work.kv_head, first + r);
    else query_gradient_again<T>(p, work.s, work.head0, first + r);
  });
}

#else
// launched without sm_90a
template <class T, int D, bool OwnKeys, int Changes> WICK_FN void attention_backward_hopper(const Attention&) {
  trap();
}
#endif

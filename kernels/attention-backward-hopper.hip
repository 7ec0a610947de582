// Gradients of attention in 16-bit floats on Hopper: warpgroup products that read shared memory, one warpgroup copying
// and two computing.
//
// A block owns 128 rows and streams the rows of the other side past them, 64 at a time, so nothing is added by two
// blocks and results repeat bit for bit:
//   attention_backward_hopper_key_T_D    owns keys, grid (key tiles, key heads, batch): gradients of keys and values
//   attention_backward_hopper_query_T_D  owns queries, grid (query tiles, heads, batch): the gradient of queries
// 384 threads, head dimensions 64 and 128; rows must be 16-byte aligned, delta comes from attention_delta_T. Scores are
// scaled; what else changes them is compiled in: _capped, _biased (alibi, a mask), _capped_biased. Shared bytes:
// 1024 + 4 * D * (128 + 3 * 64) + 1536.
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
template <int N> struct Count { static constexpr int value = N; };
/** What a mask adds to the score of query i and key j, by ln 2. */
template <class T> WICK_FN float mask_of(const Attention& p, i64 at) {
  if (p.mask_kind == 1) return ((const u8*)p.mask)[at] ? 0 : Limits<float>::lowest();
  return to_compute(((const T*)p.mask)[at]) * LOG2_E;
}

template <class T, int D, bool OwnKeys, int Changes> WICK_FN void attention_backward_hopper(const Attention& p) {
  constexpr int Rows = 128, Others = 64, Stages = 3;
  // The next products are begun before the sums are made, where there are registers for both.
  constexpr bool Ahead = !OwnKeys || D == 64;
  constexpr u32 OwnBytes = Rows * D * 2, OtherBytes = Others * D * 2;
  const int group = p.heads / p.kv_heads, head0 = OwnKeys ? blockIdx.y * group : blockIdx.y,
            kv_head = OwnKeys ? blockIdx.y : blockIdx.y / group;
  const Sequence s = sequence_of(p, blockIdx.z);
  // the longest rows of a causal problem first
  const int r0 = (OwnKeys ? blockIdx.x : gridDim.x - 1 - blockIdx.x) * Rows;
  const int mine = OwnKeys ? s.nk : s.nq, theirs = OwnKeys ? s.nq : s.nk;
  if (r0 >= mine) return;
  const Range seen = OwnKeys ? queries_seeing(p, s, r0, r0 + Rows - 1) : keys_seen(p, s, r0, r0 + Rows - 1);
  const int first = seen.begin / Others, tiles = seen.begin < seen.end ? (seen.end + Others - 1) / Others - first : 0;
  const int steps = OwnKeys ? tiles * group : tiles;

  DYNAMIC_SHARED(unsigned char, raw);
  unsigned char* shared = raw + (1024 - (shared_address(raw) & 1023)) % 1024;
  unsigned char* others = shared + 2 * OwnBytes;
  float* stats = (float*)(others + 2 * Stages * OtherBytes);  // log-sum-exp and delta of queries that stream past
  __shared__ u64 full_own, full[Stages], empty[Stages];
  if (threadIdx.x == 0) barrier_init(&full_own, 128);
  if (threadIdx.x < Stages) {
    barrier_init(full + threadIdx.x, 128);
    barrier_init(empty + threadIdx.x, Rows / 16);  // a lane of every computing warp
  }
  __syncthreads();

  if (threadIdx.x < 128) {
    asm volatile("setmaxnreg.dec.sync.aligned.u32 40;");
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
    copy(shared, Count<Rows>{}, OwnKeys, OwnKeys ? kv_head : head0, r0, mine);
    barrier_arrive_copied(&full_own);
    int head = head0, tile = 0;
    UNROLL(1, 1)
    for (int step = 0; step < steps; step++) {
      const int stage = step % Stages, o0 = (first + tile) * Others;
      barrier_wait(empty + stage, (step / Stages & 1) ^ 1);
      copy(others + 2 * stage * OtherBytes, Count<Others>{}, !OwnKeys, OwnKeys ? head : kv_head, o0, theirs);
      if constexpr (OwnKeys) {
        const int which = threadIdx.x / Others, i = o0 + threadIdx.x % Others;
        const float* from = (const float*)(which ? p.delta : p.lse);
        async_copy4(stats + stage * 2 * Others + threadIdx.x, i < s.nq ? from + lse_index(p, s, head, i) : from,
                    i < s.nq);
      }
      barrier_arrive_copied(full + stage);
      if (++tile == tiles) tile = 0, head++;
    }
    async_commit();
    async_wait<0>();  // a thread must not leave while its copies are under way
    return;
  }

  asm volatile("setmaxnreg.inc.sync.aligned.u32 232;");
  const int team = threadIdx.x / 128 - 1, lane = threadIdx.x % 32;
  const int m0 = r0 + 64 * team, m = m0 + threadIdx.x % 128 / 32 * 16 + lane / 4, column = lane % 4 * 2;
  const u32 at = shared_address(shared), others_at = at + 2 * OwnBytes;
  const u64 own = operand(at + team * 64 * 128, 16), rows = operand(others_at, 16),
            turned = operand(others_at, Others * 128);
  float sum[D / 2], value_sum[OwnKeys ? D / 2 : 1], weight[32], slope[32], lse[2], delta[2];
  u32 w[16], g[16];
#pragma unroll
  for (int e = 0; e < D / 2; e++) {
    sum[e] = 0;
    if constexpr (OwnKeys) value_sum[e] = 0;
  }
#pragma unroll
  for (int r = 0; r < 2; r++) {
    const bool in = !OwnKeys && m + 8 * r < s.nq;
    const i64 index = in ? lse_index(p, s, head0, m + 8 * r) : 0;
    lse[r] = in ? ((const float*)p.lse)[index] * LOG2_E : 0;
    delta[r] = in ? ((const float*)p.delta)[index] : 0;
  }

  // Products of the own rows with those of a step, and of what belongs to both.
  auto begin_products = [&](int step) {
    const u64 to = (u64)(step % Stages * 2 * (OtherBytes >> 4));
    if (step < steps) barrier_wait(full + step % Stages, step / Stages & 1);
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
  // Products to weights and the gradients of products, but for the scale.
  auto weigh = [&](int step, int head, int o0) {
    const float in = Changes & CAPPED ? (float)(p.scale / p.softcap) : 1,
                unit = (float)(Changes & CAPPED ? p.softcap : p.scale) * LOG2_E;
    const float bias = Changes & BIASED && p.slopes ? -LOG2_E * p.slopes[head] : 0;
    const int from = o0 + column;
    const float* stat = stats + step % Stages * 2 * Others + column;
    u32 seen[2] = {~0u, ~0u};
    if (!(OwnKeys ? all_seen(p, s, o0, o0 + Others - 1, m0, m0 + 63)
                  : all_seen(p, s, m0, m0 + 63, o0, o0 + Others - 1))) {
#pragma unroll
      for (int r = 0; r < 2; r++) {
        const Range range =
            OwnKeys ? queries_seeing(p, s, m + 8 * r, m + 8 * r) : keys_seen(p, s, m + 8 * r, m + 8 * r);
        seen[r] = m + 8 * r < mine ? bits_below(range.end - from) & ~bits_below(range.begin - from) : 0;
      }
    }
#pragma unroll
    for (int n = 0; n < Others / 8; n++) {
      // no more of a mask is fetched ahead than there are registers for
      if (Changes & BIASED && n == Others / 16) asm volatile("" ::: "memory");
#pragma unroll
      for (int r = 0; r < 2; r++) {
        float pair[2], pair_slope[2];
#pragma unroll
        for (int h = 0; h < 2; h++) {
          const int e = 4 * n + 2 * r + h;
          const float row_lse = OwnKeys ? stat[8 * n + h] * LOG2_E : lse[r],
                      row_delta = OwnKeys ? stat[Others + 8 * n + h] : delta[r];
          const bool there = seen[r] >> (2 * n + h) & 1;
          float power, factor = 1;
          if constexpr (Changes & CAPPED) {
            const float t = small_tanh(weight[e] * in);
            power = fmag(t, unit, -row_lse);
            factor = fmag(-t, t, 1.0f);
          } else {
            power = fmag(weight[e], unit, -row_lse);
          }
          if constexpr (Changes & BIASED) {
            const int apart = from + (OwnKeys ? s.offset : -s.offset) - m;
            power = fmag(fabsf((float)apart + (float)(8 * n + h - 8 * r)), bias, power);
            if (p.mask_kind && there) {
              const int i = OwnKeys ? from + 8 * n + h : m + 8 * r, j = OwnKeys ? m + 8 * r : from + 8 * n + h;
              const float more = mask_of<T>(p, s.batch * p.mask_strides[0] + head * p.mask_strides[1] +
                                                   i * p.mask_strides[2] + j * p.mask_strides[3]);
              power = more == Limits<float>::lowest() ? more : power + more;  // such a row's lse may be as low
            }
          }
          const float x = fast_exp2(power);
          pair[h] = there ? x : 0;
          pair_slope[h] = there ? x * (slope[e] - row_delta) * factor : 0;
        }
        w[2 * n + r] = pack_pair<T>(pair[0], pair[1]);
        g[2 * n + r] = pack_pair<T>(pair_slope[0], pair_slope[1]);
      }
    }
  };

  barrier_wait(&full_own, 0);
  if (Ahead) begin_products(0);
  int head = head0, tile = 0;
  UNROLL(1, 1)
  for (int step = 0; step < steps; step++) {
    if (!Ahead) begin_products(step);
    products_wait<0>();
    weigh(step, head, (first + tile) * Others);
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
    if (lane == 0) barrier_arrive(empty + step % Stages);
    if (++tile == tiles) tile = 0, head++;
  }
  products_wait<0>();

#pragma unroll
  for (int r = 0; r < 2; r++) {
    if (m + 8 * r >= mine) continue;
    T* to = OwnKeys ? key_row<T>(p, p.dk, p.dk_strides, s, kv_head, m + 8 * r)
                    : query_row<T>(p.dq, p.dq_strides, s, head0, m + 8 * r);
#pragma unroll
    for (int e = 2 * r; e < D / 2; e += 4)
      *(u32*)(to + column + e / 4 * 8) = pack_pair<T>(sum[e] * (float)p.scale, sum[e + 1] * (float)p.scale);
    if constexpr (OwnKeys) {
      to = key_row<T>(p, p.dv, p.dv_strides, s, kv_head, m + 8 * r);
#pragma unroll
      for (int e = 2 * r; e < D / 2; e += 4)
        *(u32*)(to + column + e / 4 * 8) = pack_pair<T>(value_sum[e], value_sum[e + 1]);
    }
  }
}

#else
// launched without sm_90a
template <class T, int D, bool OwnKeys, int Changes> WICK_FN void attention_backward_hopper(const Attention&) {
  trap();
}
#endif

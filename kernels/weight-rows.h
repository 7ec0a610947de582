// Rows of weights in ggml's blocks by one row of activations that is rounded to whole numbers, where memory copies whole
// rows by itself (Hopper and later).
//
// A lane owns the same 128 values of every row and keeps the activations for them in registers, so that nothing but
// weights is read while rows are multiplied. Warps in teams have a row each, 4,096 of its values a warp. One more warp
// asks for the rows of the block, one behind the other, as long copies to a ring that holds most of them: it begins
// before the launch's turn, and the activations, which come by loads, do not stand in line behind it. Elsewhere (the
// simulation) rows are read where they lie.
#pragma once
#include "copies.h"
#include "decode.h"
#include "weight-units.h"

constexpr int ROW_WARPS = 16;
/** Values that a lane owns, and bytes of the record that they are handed over in: with a scale for every 32. */
constexpr int LANE_VALUES = 128, LANE_RECORD = 144;
constexpr int MOST_SLOTS = 64;

/** A float whose last bits are a whole number: sums begin with it, and need no conversion. */
constexpr i32 WHOLE = 0x4b400000;
WICK_FN float whole_sum(i32 sum) { return bits_as<float>((u32)sum) - 12582912.0f; }

template <int N> WICK_FN i32 sum_bytes(const u32* x) {
  i32 sum = 0;
#pragma unroll
  for (int k = 0; k < N; k++) sum = dp4a(0x01010101, (i32)x[k], sum);
  return sum;
}

/** A lane's activations: words in the order in which it meets weights, and the scales of four chunks. */
template <class Q> struct LaneOf;
template <> struct LaneOf<Q6_K> {
  // Bytes of weights are 32 above their values: sums begin with what that is too much.
  u32 x[32];
  float scale[4];
  i32 begin[8];
  WICK_MEMBER LaneOf(const u32 (&given)[32], const float (&scales)[4]) {
#pragma unroll
    for (int k = 0; k < 32; k++) x[k] = given[k];
#pragma unroll
    for (int h = 0; h < 8; h++) begin[h] = WHOLE - 32 * sum_bytes<4>(given + 4 * h);
#pragma unroll
    for (int j = 0; j < 4; j++) scale[j] = scales[j];
  }
  WICK_MEMBER float product(const u8* row, int lane) const {
    const u8* const block = row + lane / 2 * (int)sizeof(Q6_K::Block);
    const int late = lane % 2;
    u32 low[16], high[8], factors[2];
    words_at(block + 64 * late, low);
    words_at(block + 128 + 32 * late, high);
    words_at(block + 192 + 8 * late, factors);
    float sum = 0;
#pragma unroll
    for (int j = 0; j < 4; j++) {
      i32 half_sums[2] = {begin[2 * j], begin[2 * j + 1]};
#pragma unroll
      for (int k = 0; k < 8; k++) {
        const u32 two = j < 2 ? high[k] << (4 - 2 * j) : high[k] >> (2 * j - 4);
        const u32 bytes = (low[8 * (j & 1) + k] >> 4 * (j >> 1) & 0x0f0f0f0fu) | (two & 0x30303030u);
        half_sums[k / 4] = dp4a((i32)bytes, (i32)x[8 * j + k], half_sums[k / 4]);
      }
      const u32 two = factors[j / 2] >> 16 * (j & 1);
      const float part = (float)(i8)two * whole_sum(half_sums[0]);
      sum = fmaf(scale[j], fmaf((float)(i8)(two >> 8), whole_sum(half_sums[1]), part), sum);
    }
    return half_value(*(const u16*)(block + 208)) * sum;
  }
};

/** The ring: so many slots, each for so many rows; those of teams that follow one another. */
struct RowRing {
  i32 slots, each;
  /** Slots that may be on their way at a time: activations of all blocks stand in line behind them. */
  i32 under_way;
};

/**
 * out = weights norm(x) + bias + residual; `best` remembers the largest result. Rows are dealt evenly to blocks. Shared
 * memory: the ring, 16 bytes, a record for every 128 values, and four bytes a row of the block and 4,096 values. Weights
 * and the norm's are read before what comes before has ended: it must not write them.
 */
template <class Q, class T, class N>
WICK_FN void weight_rows(const T* x, const N* norm, float eps, const u8* w, const T* bias, const T* residual, T* out,
                         u64* best, i64 all_rows, i64 all_bytes, i64 values, RowRing ring_of) {
  constexpr int Threads = 32 * ROW_WARPS;
  DYNAMIC_SHARED(u8, shared);
  __shared__ float squares[ROW_WARPS];
  const int rows = (int)all_rows, row_bytes = (int)all_bytes, n = (int)values, lanes = n / LANE_VALUES;
  const int slices = (lanes + 31) / 32, teams = ROW_WARPS / slices;
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, team = warp / slices, slice = warp % slices;
  const int first = (int)(all_rows * blockIdx.x / gridDim.x);
  const int mine = (int)(all_rows * (blockIdx.x + 1) / gridDim.x) - first;
  const int slots = ring_of.slots, each = ring_of.each, slot_bytes = each * row_bytes;
  u8* const ring = kept_shared(shared);
  u8* const records = kept_shared(shared + slots * slot_bytes + 16);
  float* const sums = (float*)(records + lanes * LANE_RECORD);
  const u8* from = w + (i64)first * row_bytes;

#if defined(LONG_COPIES)
  __shared__ u64 full[MOST_SLOTS], empty[MOST_SLOTS];
  if (warp == ROW_WARPS) {
    const int used = (mine + each - 1) / each, early = ring_of.under_way < used ? ring_of.under_way : used;
    auto ask = [&](int s, int slot) {
      const int bytes = (mine - s * each < each ? mine - s * each : each) * row_bytes;
      barrier_expect(full + slot, bytes);
      copy_long(ring + slot * slot_bytes, from, bytes, full + slot);
      from += each * row_bytes;
    };
    if (lane == 0) {
      for (int i = 0; i < slots; i++) barrier_init(full + i, 1), barrier_init(empty + i, each * slices);
      barriers_begin();
      for (int s = 0; s < early; s++) ask(s, s);
    }
    sync_wave();
    __syncthreads();
    if (lane == 0) {
      // The slot that is filled next, and that of the oldest copies under way.
      int slot = early, turn = 1, oldest = 0, oldest_turn = 0;
      if (slot == slots) slot = 0, turn = 0;
      ROLLED for (int s = early; s < used; s++) {
        if (s >= slots) barrier_wait(empty + slot, turn);
        barrier_wait(full + oldest, oldest_turn);
        if (++oldest == slots) oldest = 0, oldest_turn ^= 1;
        ask(s, slot);
        if (++slot == slots) slot = 0, turn ^= 1;
      }
    }
    return;
  }
  auto meet = [] { named_sync(1, Threads); };
#else
  auto meet = [] { __syncthreads(); };
#endif

  const int eights = n / 8;
  auto norm_at = [&](int i) { return norm && i < eights ? read_eight(norm + 8 * i) : Eight<N>{}; };
  const Eight<N> norm_first = norm_at(threadIdx.x);
#if defined(LONG_COPIES)
  __syncthreads();
#endif
  begin_in_turn();
  // The norm's factor is the same for the whole vector: it comes after the products.
  float square = 0;
  ROLLED for (int begin = 0; begin < eights; begin += Threads) {
    const int i = begin + (int)threadIdx.x;
    const bool in = i < eights;
    float v[8];
    unpack_eight(read_eight(x + (in ? 8 * i : 0)), v);
    if (norm) {
      float factor[8];
      unpack_eight(begin == 0 ? norm_first : norm_at(i), factor);
#pragma unroll
      for (int k = 0; k < 8; k++) {
        square = fmag(v[k], in ? v[k] : 0.0f, square);
        v[k] *= factor[k];
      }
    }
    const RoundedEight r = round_eight(v);
    if (!in) continue;
    u8* const to = records + i / 16 * LANE_RECORD;
    *(u64*)(to + i % 16 * 8) = (u64)r.w[1] << 32 | r.w[0];
    if (i % 4 == 0) *(float*)(to + LANE_VALUES + i % 16) = r.scale;
  }
  const bool early = (int)threadIdx.x < mine;
  const T first_bias = early && bias ? bias[first + threadIdx.x] : T{};
  const T first_residual = early && residual ? residual[first + threadIdx.x] : T{};
  if (norm) {
#pragma unroll
    for (int m = WICK_WAVE / 2; m; m /= 2) square += shfl_xor(square, m, WICK_WAVE);
    if (lane_id() == 0) squares[wave_id()] = square;
  }
  meet();
  float factor = 1;
  if (norm) {
    square = 0;
#pragma unroll
    for (int i = 0; i < Threads / WICK_WAVE; i++) square += squares[i];
    factor = rsqrtg(square / (float)n + eps);
  }

  // Lanes past the end of a row multiply what another one has with nothing.
  const bool busy = 32 * slice + lane < lanes;
  const u8* const record = records + (busy ? 32 * slice + lane : 0) * LANE_RECORD;
  u32 x_words[32], scale_bits[4];
  float scales[4];
#pragma unroll
  for (int i = 0; i < 8; i++) split_words(((const word4*)record)[i], x_words + 4 * i);
  split_words(((const word4*)record)[8], scale_bits);
#pragma unroll
  for (int j = 0; j < 4; j++) scales[j] = busy ? bits_as<float>(scale_bits[j]) : 0.0f;
  const LaneOf<Q> held(x_words, scales);
  const int at = (int)((i64)slice * 32 * LANE_VALUES * row_bytes / n), unit = busy ? lane : 0;

  // Compilers would divide anew for each row.
  const int step = unknown(teams / each);
  int slot = team / each, turn = 0;
  const u8* const mine_in_slot = kept_shared(ring + team % each * row_bytes + at);
  if (team < teams) ROLLED for (int r = team; r < mine; r += teams, slot += step) {
#if defined(LONG_COPIES)
      while (slot >= slots) slot -= slots, turn ^= 1;
      barrier_wait(full + slot, turn);
      const u8* const row = mine_in_slot + slot * slot_bytes;
#else
      const u8* const row = from + (i64)r * row_bytes + at;
#endif
      float v = held.product(row, unit);
#if defined(LONG_COPIES)
      sync_wave();
      if (lane == 0) barrier_arrive(empty + slot);
#endif
#pragma unroll
      for (int m = 16; m; m /= 2) v += shfl_xor(v, m, 32);
      if (lane == 0) sums[r * slices + slice] = v;
    }
  meet();

  u64 rank = 0;
  ROLLED for (int r = threadIdx.x; r < mine; r += Threads) {
    float value = 0;
    for (int s = 0; s < slices; s++) value += sums[r * slices + s];
    value *= factor;
    const bool known = r == (int)threadIdx.x;
    if (bias) value += (float)to_compute(known ? first_bias : bias[first + r]);
    if (residual) value += (float)to_compute(known ? first_residual : residual[first + r]);
    const T result = from_compute<T>(value);
    out[first + r] = result;
    value = to_compute(result);
    if (value == value) {
      const u64 mark = rank_of(value, first + r);
      rank = mark > rank ? mark : rank;
    }
  }
  // Few find a better one than is known, so few write.
  if (best && rank > *(volatile u64*)best) atomic_max(best, rank);
}

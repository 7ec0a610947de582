// Rows of weights in ggml's blocks on their way to products with activations that are rounded to whole numbers.
//
// A group of 32 lanes owns a ring of tiles in shared memory: while it multiplies one tile, copies of the next ones are
// under way, so that memory never waits for arithmetic. A tile is what 32 lanes take of R rows, a unit of two or four
// chunks (32 values) each. Rows may begin at any byte: copies begin at the 16 bytes before, and lanes shift words into
// place. Groups do not wait for one another.
#pragma once
#include "attention-split.h"
#include "matrix.h"
#include "quant-blocks.h"

// ---- activations ----

/**
 * 64 activations as whole numbers with a scale for every 32, and the sums of these, by which minima are multiplied: 80
 * bytes, so that lanes that read neighbours meet no bank of shared memory twice.
 */
struct Rounded64 {
  word4 q[4];
  float scale[2], sum[2];
};
static_assert(sizeof(Rounded64) == 80, "record size");

/** Rounds chunk `chunk` of a row; eight lanes have four values each, and all of them take part. */
template <class V> WICK_FN void round_chunk(Rounded64* row, i64 chunk, bool in, V value) {
  const u32 lane = threadIdx.x % 8;
  float v[4];
  u32 largest = 0;
#pragma unroll
  for (int i = 0; i < 4; i++) {
    v[i] = in ? value(chunk * 32 + 4 * lane + i) : 0.0f;
    const u32 magnitude = bits_as<u32>(v[i]) & 0x7fffffffu;
    largest = magnitude > largest ? magnitude : largest;
  }
#pragma unroll
  for (int mask = 4; mask > 0; mask /= 2) {
    const u32 other = shfl_xor(largest, mask, 8);
    largest = other > largest ? other : largest;
  }
  const bool finite = largest < 0x7f800000u;
  const float most = bits_as<float>(largest);
  const float d = finite ? most / 127 : bits_as<float>(0x7fc00000u);
  const float inverse = finite && largest > 0 ? 127 / most : 0;
  u32 word = 0;
  int part = 0;
#pragma unroll
  for (int i = 0; i < 4; i++) {
    const int whole = finite ? (int)rintf(v[i] * inverse) : 0;
    word |= ((u32)whole & 255u) << 8 * i;
    part += whole;
  }
#pragma unroll
  for (int mask = 4; mask > 0; mask /= 2) part += shfl_xor(part, mask, 8);
  if (!in) return;
  Rounded64& to = row[chunk / 2];
  ((u32*)to.q)[chunk % 2 * 8 + lane] = word;
  if (lane == 0) to.scale[chunk % 2] = d, to.sum[chunk % 2] = d * part;
}
/** Rounds a row of n values by the whole block; the caller waits for all. */
template <class V> WICK_FN void round_row(Rounded64* row, i64 n, V value) {
  const i64 chunks = n / 32, lanes = (chunks * 8 + blockDim.x - 1) / blockDim.x * blockDim.x;
  ROLLED for (i64 i = threadIdx.x; i < lanes; i += blockDim.x) round_chunk(row, i / 8, i / 8 < chunks, value);
}

/** Half a record in registers. */
struct Rounded32 {
  u32 u[8];
  float scale, sum;
};
WICK_FN Rounded32 load_rounded(const Rounded64* records, int half) {
  Rounded32 v;
  split_words(records->q[2 * half], v.u);
  split_words(records->q[2 * half + 1], v.u + 4);
  v.scale = records->scale[half], v.sum = records->sum[half];
  return v;
}

/** acc plus the product of 32 weights with 32 activations. */
template <class Q> WICK_FN float dot_rounded(const Chunk<Q>& w, const Rounded32& v, float acc) {
  constexpr int Each = 8 / Q::halves;
  float scaled = 0;
#pragma unroll
  for (int h = 0; h < Q::halves; h++) {
    int whole = 0;
#pragma unroll
    for (int k = Each * h; k < Each * (h + 1); k++) whole = dp4a(w.v[k], (i32)v.u[k], whole);
    scaled = fmaf(w.d[h], (float)whole, scaled);
  }
  acc = fmaf(v.scale, scaled, acc);
  if constexpr (Q::min == Min::none && Q::bias == 0) return acc;
  if constexpr (Q::halves == 1) return fmaf(-w.m[0], v.sum, acc);
#pragma unroll
  for (int h = 0; h < Q::halves; h++) {
    int part = 0;
#pragma unroll
    for (int k = Each * h; k < Each * (h + 1); k++) part = dp4a(0x01010101, (i32)v.u[k], part);
    acc = fmaf(-w.m[h], v.scale * (float)part, acc);
  }
  return acc;
}

// ---- units: what one lane takes of a tile ----

/** The word that begins `shift` bits (below 32) into low, followed by high. */
WICK_FN u32 funnel(u32 low, u32 high, u32 shift) {
#if defined(WICK_NVIDIA)
  return __funnelshift_r(low, high, shift);
#elif defined(WICK_AMD)
  return __builtin_amdgcn_alignbit(high, low, shift);
#else
  return (u32)(((u64)high << 32 | low) >> shift);
#endif
}
/** N words from any byte of shared memory on; the word after the last is read too. */
template <int N> WICK_FN void words_at(const u8* p, u32 (&w)[N]) {
  const u32 skew = (u32)(u64)p & 3;
  const u32* from = (const u32*)(p - skew);
  u32 low = from[0];
#pragma unroll
  for (int i = 0; i < N; i++) {
    const u32 high = from[i + 1];
    w[i] = funnel(low, high, 8 * skew);
    low = high;
  }
}

/** Blocks of whole words are read where they lie. */
template <class Q> struct UnitInPlace {
  static constexpr int chunks = same<Q, Q2_K> ? 4 : 2;
  const typename Q::Block* row;
  int first;
  WICK_MEMBER void load(const u8* tile, int lane) {
    row = (const typename Q::Block*)tile;
    first = lane * chunks;
  }
  template <int j> WICK_MEMBER Chunk<Q> chunk() const { return load_chunk<Q>(row, first + j); }
};
/** Two small blocks in registers. */
template <class Q> struct UnitOfTwo {
  static constexpr int chunks = 2, Bytes = sizeof(typename Q::Block), Words = (2 * Bytes + 3) / 4;
  u32 w[Words];
  WICK_MEMBER void load(const u8* tile, int lane) { words_at(tile + lane * 2 * Bytes, w); }
  /** The word at a byte that is known when this is compiled. */
  WICK_MEMBER u32 at(int byte) const {
    const u32 low = w[byte / 4];
    return byte % 4 == 0 ? low : funnel(low, byte / 4 + 1 < Words ? w[byte / 4 + 1] : 0u, 8 * (byte % 4));
  }
  template <int j> WICK_MEMBER Chunk<Q> chunk() const {
    u32 words[(Bytes + 3) / 4];
#pragma unroll
    for (int i = 0; i < (Bytes + 3) / 4; i++) words[i] = at(j * Bytes + 4 * i);
    typename Q::Block block;
    copy_bytes(&block, words, Bytes);
    return load_chunk<Q>(&block, 0);
  }
};
/** Two chunks of a block whose scales and minima have six bits each. */
template <class Q> struct UnitOfSixBits {
  static constexpr int chunks = 2;
  const typename Q::Block* block;
  int pair;
  u32 head[4];
  WICK_MEMBER void load(const u8* tile, int lane) {
    block = (const typename Q::Block*)tile + lane / 4;
    pair = lane % 4;
    split_words(*(const word4*)block, head);
  }
  template <int j> WICK_MEMBER Chunk<Q> chunk() const {
    Chunk<Q> out;
    const int c = 2 * pair + j;
#pragma unroll
    for (int k = 0; k < 8; k++) out.v[k] = (int)Q::quad(*block, c, k);
    const bool late = pair >= 2;
    const u32 low = late ? (head[3] & 0x0f0f0f0fu) | (head[1] >> 2 & 0x30303030u) : head[1] & 0x3f3f3f3fu;
    const u32 min = late ? (head[3] >> 4 & 0x0f0f0f0fu) | (head[2] >> 2 & 0x30303030u) : head[2] & 0x3f3f3f3fu;
    const int at = 8 * (c & 3);
    out.d[0] = half_value((u16)head[0]) * (float)(low >> at & 63);
    out.m[0] = half_value((u16)(head[0] >> 16)) * (float)(min >> at & 63);
    return out;
  }
};
/** Half a block of 128 values: 64 bytes of low bits, 32 of high bits, eight scales. */
struct UnitOfQ6 {
  static constexpr int chunks = 4;
  u32 low[16], high[8], scales[2];
  float d;
  WICK_MEMBER void load(const u8* tile, int lane) {
    const u8* block = tile + lane / 2 * (int)sizeof(Q6_K::Block);
    const int n = lane % 2;
    words_at(block + 64 * n, low);
    words_at(block + 128 + 32 * n, high);
    words_at(block + 192 + 8 * n, scales);
    d = half_value(*(const u16*)(block + 208));
  }
  template <int j> WICK_MEMBER Chunk<Q6_K> chunk() const {
    Chunk<Q6_K> out;
#pragma unroll
    for (int k = 0; k < 8; k++)
      out.v[k] = (int)sub_bytes(
          (low[8 * (j & 1) + k] >> 4 * (j >> 1) & 0x0f0f0f0fu) | (high[k] >> 2 * j & 0x03030303u) << 4, 32);
#pragma unroll
    for (int h = 0; h < 2; h++) {
      out.d[h] = d * (float)(i8)(scales[j / 2] >> (16 * (j & 1) + 8 * h));
      out.m[h] = 0;
    }
    return out;
  }
};
/** The same in three bits: a mask of high bits is for the whole block. */
struct UnitOfQ3 {
  static constexpr int chunks = 4;
  u32 low[8], high[8], scales[3];
  int n;
  float d;
  WICK_MEMBER void load(const u8* tile, int lane) {
    const u8* block = tile + lane / 2 * (int)sizeof(Q3_K::Block);
    n = lane % 2;
    words_at(block + 32 + 32 * n, low);
    words_at(block, high);
    words_at(block + 96, scales);
    d = half_value(*(const u16*)(block + 108));
  }
  template <int j> WICK_MEMBER Chunk<Q3_K> chunk() const {
    Chunk<Q3_K> out;
#pragma unroll
    for (int k = 0; k < 8; k++)
      out.v[k] = (int)sub_bytes((low[k] >> 2 * j & 0x03030303u) | (high[k] >> (4 * n + j) & 0x01010101u) << 2, 4);
#pragma unroll
    for (int h = 0; h < 2; h++) {
      const int s = 2 * j + h;
      const u32 four = scales[s / 4] >> (8 * (s % 4) + 4 * n) & 15,
                two = scales[2] >> (8 * (s % 4) + 4 * n + 2 * (s / 4)) & 3;
      out.d[h] = d * (float)((int)(four | two << 4) - 32);
      out.m[h] = 0;
    }
    return out;
  }
};
template <class Q, bool Whole = sizeof(typename Q::Block) % 4 == 0> struct UnitOf { typedef UnitInPlace<Q> type; };
template <class Q> struct UnitOf<Q, false> { typedef UnitOfTwo<Q> type; };
template <> struct UnitOf<Q4_K, true> { typedef UnitOfSixBits<Q4_K> type; };
template <> struct UnitOf<Q5_K, true> { typedef UnitOfSixBits<Q5_K> type; };
template <> struct UnitOf<Q6_K, false> { typedef UnitOfQ6 type; };
template <> struct UnitOf<Q3_K, false> { typedef UnitOfQ3 type; };

// ---- rows ----

/** Where rows lie: set s has the rows s * each + r * apart, r below R, as far as they are below `count`. */
struct Rows {
  const u8* w;
  i64 count, bytes, each, apart;
  /** The end of what may be read. */
  const u8* end;
};

/**
 * Multiplies all sets of rows that fall to this group with M rows of activations and calls finish(set, sums), sums[r *
 * M + m] scattered over the lanes as scatter_sums leaves them. `ring` is this group's room, STAGES * R * tile bytes;
 * `turn` begins the kernel in its turn and makes the activations ready, while weights are on their way.
 */
template <class Q, int R, int M, int STAGES> struct WeightStream {
  typedef typename UnitOf<Q>::type Unit;
  static constexpr int Span = 32 * Unit::chunks, Sums = R * M;
  static constexpr int SpanBytes = Span / Q::chunks * (int)sizeof(typename Q::Block);
  /** Room for a beginning within 16 bytes, and for the word after the last. */
  static constexpr int Tile = (SpanBytes + 15) / 16 * 16 + 32, Pieces = (SpanBytes / 16 + 1 + 31) / 32;
  static_assert(SpanBytes % 16 == 0, "tiles follow one another at multiples of 16 bytes");

  Rows rows;
  u8* ring;
  int lane, chunks, tiles;
  i64 set, stride, passes;

  WICK_MEMBER WeightStream(const Rows& given, i64 n, i64 sets, u8* shared) : rows(given) {
    const int groups = blockDim.x / 32, group = threadIdx.x / 32;
    lane = threadIdx.x % 32;
    chunks = (int)(n / 32);
    tiles = (chunks + Span - 1) / Span;
    set = (i64)blockIdx.x * groups + group;
    stride = (i64)gridDim.x * groups;
    passes = (sets + stride - 1) / stride;
    ring = shared + (i64)group * STAGES * R * Tile;
  }
  WICK_MEMBER i64 row_of(i64 s, int r) const { return s * rows.each + r * rows.apart; }

  /** Asks the cache that all share for the first tiles: allowed before what comes before has ended. */
  WICK_MEMBER void ask() const {
#if defined(WICK_NVIDIA)
#pragma unroll
    for (int r = 0; r < R; r++) {
      if (row_of(set, r) >= rows.count) continue;
      const u8* from = rows.w + row_of(set, r) * rows.bytes;
      const i64 most = (i64)(STAGES - 1) * SpanBytes < rows.bytes ? (i64)(STAGES - 1) * SpanBytes : rows.bytes;
      for (i64 at = lane * 128; at < most; at += 32 * 128) asm volatile("prefetch.global.L2 [%0];" ::"l"(from + at));
    }
#endif
  }
  WICK_MEMBER void fetch(i64 s, int tile, int slot) const {
#pragma unroll
    for (int r = 0; r < R; r++) {
      const i64 row = row_of(s, r);
      if (row >= rows.count) continue;
      const i64 offset = (i64)tile * SpanBytes, left = rows.bytes - offset;
      const u8* from = rows.w + row * rows.bytes + offset;
      const int skew = (int)((u64)from & 15), bytes = skew + (int)(left < SpanBytes ? left : SpanBytes);
      from -= skew;
      u8* to = ring + (slot * R + r) * Tile;
#pragma unroll
      for (int p = 0; p < Pieces; p++) {
        const int at = 16 * (lane + 32 * p);
        if (at >= bytes) break;
        if (from + at + 16 <= rows.end) async_all16(to + at, from + at, true);
        else
          for (int i = 0; from + at + i < rows.end; i++) to[at + i] = from[at + i];
      }
    }
  }

  /** Chunk j of each row's unit and those after it, as far as they are among the `left` chunks of the row. */
  template <int j>
  WICK_MEMBER void multiply(const Unit (&units)[R], const Rounded64* x, i64 records, int left,
                            float (&sums)[Sums]) const {
    if constexpr (j < Unit::chunks) {
      // Large blocks are whole.
      if (Q::chunks == 1 && j >= left) return;
      Chunk<Q> part[R];
#pragma unroll
      for (int r = 0; r < R; r++) part[r] = units[r].template chunk<j>();
#pragma unroll
      for (int m = 0; m < M; m++) {
        const Rounded32 v = load_rounded(x + m * records + j / 2, j % 2);
#pragma unroll
        for (int r = 0; r < R; r++) {
          sums[r * M + m] = dot_rounded<Q>(part[r], v, sums[r * M + m]);
          settle(sums[r * M + m]);
        }
      }
      multiply<j + 1>(units, x, records, left, sums);
    }
  }

  template <class X, class F> WICK_MEMBER void run(X turn, F finish) {
    ask();
    begin_in_turn();
    i64 ahead = set;
    int tile = 0, slot = 0;
    const i64 past = set + passes * stride;
    auto next = [&] {
      if (ahead < past) fetch(ahead, tile, slot);
      async_commit();
      if (++tile == tiles) tile = 0, ahead += stride;
      slot = slot + 1 == STAGES ? 0 : slot + 1;
    };
#pragma unroll
    for (int s = 0; s + 1 < STAGES; s++) next();
    const Rounded64* const x = turn();
    const i64 records = (chunks + 1) / 2;
    int at = 0;
    ROLLED for (i64 s = set; s < past; s += stride) {
      float sums[Sums] = {};
      ROLLED for (int t = 0; t < tiles; t++) {
        async_wait<STAGES - 2>();
        sync_wave();
        next();
        const int first = t * Span + lane * Unit::chunks;
        if (first < chunks && row_of(s, 0) < rows.count) {
          Unit units[R];
#pragma unroll
          for (int r = 0; r < R; r++) {
            const i64 row = row_of(s, r) < rows.count ? row_of(s, r) : 0;
            const int skew = (int)((u64)(rows.w + row * rows.bytes) & 15);
            units[r].load(ring + (at * R + r) * Tile + skew, lane);
          }
          multiply<0>(units, x + first / 2, records, chunks - first, sums);
        }
        at = at + 1 == STAGES ? 0 : at + 1;
      }
      scatter_sums<Sums, 16, 32>(sums, lane);
      finish(s, sums);
    }
    async_wait<0>();
  }
};

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

/**
 * How a row's records lie in shared memory: `Paired` as pair_halves orders values; `Spaced` with 16 bytes after every
 * second one, for lanes that read two of them each.
 */
template <bool Paired, bool Spaced> struct RecordForm { static constexpr bool paired = Paired, spaced = Spaced; };
template <class Form, class R> WICK_FN R* record_at(R* row, int i) {
  return Form::spaced ? (R*)((const u8*)(row + i) + 16 * (i / 2)) : row + i;
}
/** Bytes of a row's records. */
template <class Form> WICK_FN i64 record_bytes(i64 n) {
  return (n + 63) / 64 * sizeof(Rounded64) + (Form::spaced ? (n + 127) / 128 * 16 : 0);
}

/** Eight values as whole numbers, with the scale and the sum of the 32 that four lanes have. */
struct RoundedEight {
  u32 w[2];
  float scale, sum;
};
/** Rounds eight values; four lanes have a chunk, and all of them take part. */
WICK_FN RoundedEight round_eight(const float (&v)[8]) {
  u32 largest = 0;
#pragma unroll
  for (int i = 0; i < 8; i++) {
    const u32 magnitude = bits_as<u32>(v[i]) & 0x7fffffffu;
    largest = magnitude > largest ? magnitude : largest;
  }
#pragma unroll
  for (int mask = 2; mask > 0; mask /= 2) {
    const u32 other = shfl_xor(largest, mask, 4);
    largest = other > largest ? other : largest;
  }
  const bool finite = largest < 0x7f800000u;
  const float most = bits_as<float>(largest);
  const float d = finite ? most / 127 : bits_as<float>(0x7fc00000u);
  const float inverse = finite && largest > 0 ? 127 / most : 0;
  u32 words[2] = {};
  int part = 0;
#pragma unroll
  for (int i = 0; i < 8; i++) {
    const int whole = finite ? (int)rintf(v[i] * inverse) : 0;
    words[i / 4] |= ((u32)whole & 255u) << 8 * (i % 4);
    part += whole;
  }
#pragma unroll
  for (int mask = 2; mask > 0; mask /= 2) part += shfl_xor(part, mask, 4);
  return {{words[0], words[1]}, d, d * part};
}
/**
 * The same in the order in which nibbles of a word follow one another: each value of the first half of a chunk, then
 * the one 16 after it.
 */
WICK_FN void pair_halves(RoundedEight& v) {
  const bool second = threadIdx.x & 2;
  u32 pairs[4];
#pragma unroll
  for (int i = 0; i < 2; i++) {
    const u32 other = shfl_xor(v.w[i], 2, 4);
    const u32 low = second ? other : v.w[i], high = second ? v.w[i] : other;
    pairs[2 * i] = (low & 0xffu) | (high & 0xffu) << 8 | (low & 0xff00u) << 8 | (high & 0xff00u) << 16;
    pairs[2 * i + 1] = (low >> 16 & 0xffu) | (high >> 8 & 0xff00u) | (low >> 8 & 0xff0000u) | (high & 0xff000000u);
  }
  v.w[0] = second ? pairs[2] : pairs[0], v.w[1] = second ? pairs[3] : pairs[1];
}
/** A lane's share of chunk `chunk` of a row to its place. */
template <class Form> WICK_FN void store_rounded(Rounded64* row, int chunk, bool in, RoundedEight v) {
  if constexpr (Form::paired) pair_halves(v);
  if (!in) return;
  const u32 lane = threadIdx.x % 4, place = Form::paired ? lane % 2 * 2 + lane / 2 : lane;
  Rounded64& to = *record_at<Form>(row, chunk / 2);
  *(u64*)((u32*)to.q + chunk % 2 * 8 + 2 * place) = (u64)v.w[1] << 32 | v.w[0];
  if (lane == 0) to.scale[chunk % 2] = v.scale, to.sum[chunk % 2] = v.sum;
}
/** Eight numbers from an address that is a multiple of 16, by loads that see what was written before. */
template <class T> WICK_FN Eight<T> read_eight(const T* at) {
  Eight<T> v;
#pragma unroll
  for (int i = 0; i < (int)sizeof(T) / 2; i++) v.w[i] = ((const word4*)at)[i];
  return v;
}
/**
 * Rounds a row of n values by the whole block; the caller waits for all. load(at) reads what the eight values from `at`
 * on are made of and make(it, in, values) makes them: all that a thread needs is asked for before any of it is used,
 * and `fill` is called in between, once.
 */
template <class Form, class F, class L, class V> WICK_FN void round_row(Rounded64* row, i64 n, F fill, L load, V make) {
  constexpr int U = 2;
  const int eights = (int)(n / 8), step = blockDim.x;
  ROLLED for (int first = 0; first < eights; first += U * step) {
    decltype(load(0)) held[U];
#pragma unroll
    for (int u = 0; u < U; u++) {
      const int i = first + u * step + threadIdx.x;
      held[u] = load(i < eights ? 8 * i : 0);
    }
    if (first == 0) fill();
#pragma unroll
    for (int u = 0; u < U; u++) {
      if (first + u * step >= eights) break;
      const int i = first + u * step + threadIdx.x;
      float v[8];
      make(held[u], i < eights, v);
      store_rounded<Form>(row, i / 4, i < eights, round_eight(v));
    }
  }
}

/** The same for a row of numbers as they lie in memory. */
template <class Form, class T, class F> WICK_FN void round_row(Rounded64* row, i64 n, const T* x, F fill) {
  round_row<Form>(
      row, n, fill, [&](int at) { return read_eight(x + at); },
      [](const Eight<T>& held, bool, float(&v)[8]) { unpack_eight(held, v); });
}

/** Half a record in registers, and what products of its halves begin with where weights are `Above` their values. */
struct Rounded32 {
  u32 u[8];
  float scale, sum;
  i32 less[2];
};
template <int Above> WICK_FN Rounded32 load_rounded(const Rounded64* records, int half) {
  Rounded32 v = {};
  split_words(records->q[2 * half], v.u);
  split_words(records->q[2 * half + 1], v.u + 4);
  v.scale = records->scale[half], v.sum = records->sum[half];
  if constexpr (Above > 0) {
#pragma unroll
    for (int k = 0; k < 8; k++)
      v.less[k / 4] = dp4a((i32)((u32)(256 - Above) * 0x01010101u), (i32)v.u[k], v.less[k / 4]);
  }
  return v;
}

/** acc plus the product of 32 weights with 32 activations. */
template <class Q> WICK_FN float dot_rounded(const Chunk<Q>& w, const Rounded32& v, float acc) {
  constexpr int Each = 8 / Q::halves;
  float scaled = 0;
#pragma unroll
  for (int h = 0; h < Q::halves; h++) {
    int whole = v.less[h];
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

/** Eight words from a multiple of 16 bytes on. */
WICK_FN void read_words(const u32* p, u32 (&w)[8]) {
  u32 four[4];
#pragma unroll
  for (int i = 0; i < 8; i += 4) {
    split_words(*(const word4*)(p + i), four);
#pragma unroll
    for (int k = 0; k < 4; k++) w[i + k] = four[k];
  }
}
/** Units whose bytes are the values, in order. */
struct PlainUnit {
  static constexpr int above = 0;
  static constexpr bool paired = false;
};
/** Blocks of whole words are read where they lie. */
template <class Q> struct UnitInPlace : PlainUnit {
  static constexpr int chunks = same<Q, Q2_K> ? 4 : 2;
  const typename Q::Block* row;
  int first;
  WICK_MEMBER void load(const u8* tile, int lane) {
    row = (const typename Q::Block*)tile;
    first = lane * chunks;
  }
  template <int j> WICK_MEMBER Chunk<Q> chunk() const { return load_chunk<Q>(row, first + j); }
};
/** Two small blocks, a chunk each, which may begin at any byte: a scale, and words of values at the end. */
template <class Q> struct UnitOfTwo : PlainUnit {
  static constexpr int chunks = 2, Bytes = sizeof(typename Q::Block);
  static constexpr int Words = same<Q, Q8_0> ? 8 : 4;
  const u8* unit;
  WICK_MEMBER void load(const u8* tile, int lane) { unit = tile + lane * 2 * Bytes; }
  template <int j> WICK_MEMBER Chunk<Q> chunk() const {
    const u8* p = unit + j * Bytes;
    u32 w[Words];
    words_at(p + (Bytes - 4 * Words), w);
    Chunk<Q> out;
    if constexpr (Words == 8) {
#pragma unroll
      for (int k = 0; k < 8; k++) out.v[k] = (int)w[k];
    } else {
#pragma unroll
      for (int k = 0; k < 4; k++) {
        u32 low = w[k] & 0x0f0f0f0fu, high = w[k] >> 4 & 0x0f0f0f0fu;
        if constexpr (same<Q, IQ4_NL>) iq4_levels(w[k], low, high);
        if constexpr (same<Q, MXFP4>) fp4_levels(w[k], low, high);
        out.v[k] = (int)low, out.v[k + 4] = (int)high;
      }
    }
    if constexpr (same<Q, Q5_0>) {
      u32 fifth[1];
      words_at(p + 2, fifth);
#pragma unroll
      for (int k = 0; k < 8; k++) out.v[k] |= (int)spread(fifth[0] >> 4 * k, 4);
    }
    if constexpr (same<Q, MXFP4>) out.d[0] = mxfp4_scale(*p);
    else out.d[0] = half_value(*(const u16*)p);
    out.m[0] = same<Q, Q4_0> ? 8 * out.d[0] : Q::bias * out.d[0];
    return out;
  }
};
/** Four-bit floats as words of nibbles, for a product with paired activations. */
struct Fp4Chunk {
  u32 w[4];
  float d;
};
/** Bytes that four nibbles name among those of t0 and t1; nibbles from 8 on name none and are 0. */
WICK_FN u32 look_up_low(u32 nibbles, u32 t0, u32 t1) {
#if defined(WICK_NVIDIA)
  u32 out;  // from 8 on: eight times the highest bit of a byte, which none of these has
  asm("prmt.b32 %0, %1, %2, %3;" : "=r"(out) : "r"(t0), "r"(t1), "r"(nibbles));
  return out;
#else
  u32 out = 0;
  for (int i = 0; i < 4; i++) {
    const u32 at = nibbles >> 4 * i & 15;
    const u32 byte = (at < 4 ? t0 : t1) >> 8 * (at & 3) & 0xffu;
    out |= (at < 8 ? byte : 0u) << 8 * i;
  }
  return out;
#endif
}
WICK_FN float dot_rounded(const Fp4Chunk& w, const Rounded32& v, float acc) {
  constexpr u32 Low = 0x03020100u, High = 0x0c080604u;
  int more = 0, less = 0;
#pragma unroll
  for (int k = 0; k < 4; k++) {
    const u32 turned = w.w[k] ^ 0x88888888u;
    more = dp4a((i32)look_up_low(w.w[k], Low, High), (i32)v.u[2 * k], more);
    less = dp4a((i32)look_up_low(turned, Low, High), (i32)v.u[2 * k], less);
    more = dp4a((i32)look_up_low(w.w[k] >> 16, Low, High), (i32)v.u[2 * k + 1], more);
    less = dp4a((i32)look_up_low(turned >> 16, Low, High), (i32)v.u[2 * k + 1], less);
  }
  return fmaf(v.scale * w.d, (float)(more - less), acc);
}
/** Four blocks: 17 words from any byte on, of which no two lanes read one bank. */
struct UnitOfFp4 {
  static constexpr int chunks = 4, above = 0, Bytes = sizeof(MXFP4::Block);
  static constexpr bool paired = true;
  u32 w[Bytes];
  WICK_MEMBER void load(const u8* tile, int lane) {
    const u8* const unit = tile + lane * chunks * Bytes;
    if ((u32)(u64)tile & 3) return words_at(unit, w);
#pragma unroll
    for (int i = 0; i < Bytes; i++) w[i] = ((const u32*)unit)[i];
  }
  template <int j> WICK_MEMBER Fp4Chunk chunk() const {
    constexpr int Word = Bytes * j / 4, Shift = 8 * (Bytes * j % 4);
    Fp4Chunk out;
#pragma unroll
    for (int k = 0; k < 4; k++)
      out.w[k] = Shift == 24 ? w[Word + k + 1] : funnel(w[Word + k], w[Word + k + 1], (Shift + 8) % 32);
    out.d = mxfp4_scale((u8)(w[Word] >> Shift));
    return out;
  }
};
/** Two chunks of a block whose scales and minima have six bits each. */
template <class Q> struct UnitOfSixBits : PlainUnit {
  static constexpr int chunks = 2;
  const typename Q::Block* block;
  int pair;
  /** Of both chunks, in the lowest bytes. */
  u32 scales, minima;
  float d, m;
  /** Low bits of both chunks. */
  u32 low[8];
  WICK_MEMBER void load(const u8* tile, int lane) {
    block = (const typename Q::Block*)tile + lane / 4;
    pair = lane % 4;
    u32 head[4];
    split_words(*(const word4*)block, head);
    read_words(block->qs + 8 * pair, low);
    const bool late = pair >= 2;
    const int at = 16 * (pair & 1);
    scales = (late ? (head[3] & 0x0f0f0f0fu) | (head[1] >> 2 & 0x30303030u) : head[1] & 0x3f3f3f3fu) >> at;
    minima = (late ? (head[3] >> 4 & 0x0f0f0f0fu) | (head[2] >> 2 & 0x30303030u) : head[2] & 0x3f3f3f3fu) >> at;
    d = half_value((u16)head[0]), m = half_value((u16)(head[0] >> 16));
  }
  template <int j> WICK_MEMBER Chunk<Q> chunk() const {
    Chunk<Q> out;
#pragma unroll
    for (int k = 0; k < 8; k++) out.v[k] = (int)(low[k] >> 4 * j & 0x0f0f0f0fu);
    if constexpr (same<Q, Q5_K>) {
      u32 fifth[8];
      read_words(block->qh, fifth);
#pragma unroll
      for (int k = 0; k < 8; k++) out.v[k] |= (int)((fifth[k] >> (2 * pair + j) & 0x01010101u) << 4);
    }
    out.d[0] = d * (float)(scales >> 8 * j & 255);
    out.m[0] = m * (float)(minima >> 8 * j & 255);
    return out;
  }
};
/** Half a block of 128 values: 64 bytes of low bits, 32 of high bits, eight scales. Bytes are 32 above the values. */
struct UnitOfQ6 {
  static constexpr int chunks = 4, above = 32;
  static constexpr bool paired = false;
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
    for (int k = 0; k < 8; k++) {
      const u32 two = j < 2 ? high[k] << (4 - 2 * j) : high[k] >> (2 * j - 4);
      out.v[k] = (int)((low[8 * (j & 1) + k] >> 4 * (j >> 1) & 0x0f0f0f0fu) | (two & 0x30303030u));
    }
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
  static constexpr int chunks = 4, above = 4;
  static constexpr bool paired = false;
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
      out.v[k] = (int)((low[k] >> 2 * j & 0x03030303u) | (high[k] >> (4 * n + j) & 0x01010101u) << 2);
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
/** For M rows of activations: one of them may be in an order that weights ask for. */
template <class Q, int M> struct UnitFor : UnitOf<Q> {};
template <> struct UnitFor<MXFP4, 1> { typedef UnitOfFp4 type; };

// ---- rows ----

/** Where rows lie: set s has the rows s * each + r * apart, r below R, as far as they are below `count`. */
struct Rows {
  const u8* w;
  i64 count, bytes, each, apart;
  /** The end of what may be read. */
  const u8* end;
};

/** Bytes of a group's first rows that the cache is asked for: more of them come too early and cost what they gain. */
constexpr int ASKED = 4608;

/**
 * Multiplies all sets of rows that fall to this group with M rows of activations and calls finish(set, sums), sums[r *
 * M + m] scattered over the lanes as scatter_sums leaves them. `ring` is this group's room, STAGES * R * tile bytes;
 * `turn(fill)` makes the activations ready, and calls `fill` when it has asked for what they are made of: were weights
 * asked for first, activations would wait behind them.
 */
template <class Q, int R, int M, int STAGES> struct WeightStream {
  typedef typename UnitFor<Q, M>::type Unit;
  /** Of the activations; those of several rows lie as in memory. */
  typedef RecordForm<Unit::paired, M == 1 && Unit::chunks == 4> Form;
  static constexpr int Span = 32 * Unit::chunks, Sums = R * M;
  static constexpr int SpanBytes = Span / Q::chunks * (int)sizeof(typename Q::Block);
  /** Room for a beginning within 16 bytes, and for the word after the last. */
  static constexpr int Tile = (SpanBytes + 15) / 16 * 16 + 32, Pieces = (SpanBytes / 16 + 1 + 31) / 32;
  static_assert(SpanBytes % 16 == 0, "tiles follow one another at multiples of 16 bytes");

  Rows rows;
  u8* ring;
  int lane, chunks, tiles;
  int set, sets, stride, passes;
  /** From the beginning of a row's last tile to the beginning of the next set. */
  i64 jump;

  WICK_MEMBER WeightStream(const Rows& given, i64 n, i64 count, u8* shared) : rows(given) {
    const int groups = blockDim.x / 32, group = threadIdx.x / 32;
    lane = threadIdx.x % 32;
    chunks = (int)(n / 32);
    tiles = (chunks + Span - 1) / Span;
    set = (int)blockIdx.x * groups + group;
    sets = (int)count;
    stride = (int)gridDim.x * groups;
    passes = (sets + stride - 1) / stride;
    ring = shared + group * (STAGES * R * Tile);
    jump = stride * rows.each * rows.bytes - (i64)(tiles - 1) * SpanBytes;
  }
  /** Asks the cache that all share for the first rows: allowed before what comes before has ended. */
  WICK_MEMBER void ask() const {
#if defined(WICK_NVIDIA)
    if (set >= sets) return;
#pragma unroll
    for (int r = 0; r < R; r++) {
      const u8* row = rows.w + (set * rows.each + r * rows.apart) * rows.bytes;
      const i64 most = rows.bytes < ASKED ? rows.bytes : ASKED;
      for (i64 at = lane * 128; at < most && row + at < rows.end; at += 32 * 128)
        asm volatile("prefetch.global.L2 [%0];" ::"l"(row + at));
    }
#endif
  }
  /** Begins to copy the next tile to a slot of the ring, in whole words of 16 bytes. */
  WICK_MEMBER void fetch(const u8* from, int rest, int slot) const {
    const int bytes = rest < SpanBytes ? rest : SpanBytes;
#pragma unroll
    for (int r = 0; r < R; r++) {
      const u8* p = from + r * rows.apart * rows.bytes;
      const int skew = (int)((u64)p & 15);
      p += 16 * lane - skew;
      int have = ((skew + bytes + 15) & ~15) - 16 * lane;
#if defined(WICK_NVIDIA)
      // Memory is handed out in multiples of 16 bytes, so what lies behind the last row may be read.
      if (R > 1 && p >= rows.end) have = 0;
#else
      have = rows.end - p < have ? (int)(rows.end - p) : have;
#endif
      u8* to = ring + (slot * R + r) * Tile + 16 * lane;
#pragma unroll
      for (int i = 0; i < Pieces; i++)
        if (have > 512 * i) async_first16(to + 512 * i, p + 512 * i, have - 512 * i);
    }
  }

  /** Chunk j of each row's unit and those after it, as far as they are among the `left` chunks of the row. */
  template <int j>
  WICK_MEMBER void multiply(const Unit (&units)[R], const Rounded64* x, int records, int left,
                            float (&sums)[Sums]) const {
    if constexpr (j < Unit::chunks) {
      // Large blocks are whole.
      if (Q::chunks == 1 && j >= left) return;
      decltype(units[0].template chunk<j>()) part[R];
#pragma unroll
      for (int r = 0; r < R; r++) part[r] = units[r].template chunk<j>();
#pragma unroll
      for (int m = 0; m < M; m++) {
        const Rounded32 v = load_rounded<Unit::above>(x + m * records + j / 2, j % 2);
#pragma unroll
        for (int r = 0; r < R; r++) {
          sums[r * M + m] = dot_rounded(part[r], v, sums[r * M + m]);
          settle(sums[r * M + m]);
        }
      }
      multiply<j + 1>(units, x, records, left, sums);
    }
  }

  /** With Still nobody writes weights any more, so that they are read before what comes before has ended. */
  template <bool Still = false, class X, class F> WICK_MEMBER void run(X turn, F finish) const {
    // The tile that is fetched next: of which set, which of the row's, where it begins and what is left of the row.
    int ahead = set, tile = 0, rest = (int)rows.bytes;
    const u8* from = rows.w + set * rows.each * rows.bytes;
    auto next = [&](int slot) {
      if (ahead < sets) fetch(from, rest, slot);
      async_commit();
      const bool last = ++tile == tiles;
      from += last ? jump : SpanBytes;
      rest = last ? (int)rows.bytes : rest - SpanBytes;
      ahead += last ? stride : 0;
      tile = last ? 0 : tile;
    };
    auto fill = [&]() {
#pragma unroll
      for (int s = 0; s + 1 < STAGES; s++) next(s);
    };
    if (Still) fill();
    else ask();
    begin_in_turn();
    const Rounded64* const x = turn([&]() {
      if (!Still) fill();
    });
    const int records = (chunks + 1) / 2;
    int at = 0, free = STAGES - 1, s = set;
    ROLLED for (int pass = 0; pass < passes; pass++, s += stride) {
      float sums[Sums] = {};
      const u32 begin = (u32)(u64)rows.w + (u32)s * (u32)(rows.each * rows.bytes);
      ROLLED for (int t = 0; t < tiles; t++) {
        async_wait<STAGES - 2>();
        sync_wave();
        next(free);
        free = free + 1 == STAGES ? 0 : free + 1;
        const int chunk = t * Span + lane * Unit::chunks;
        if (chunk < chunks && s < sets) {
          Unit units[R];
#pragma unroll
          for (int r = 0; r < R; r++) {
            const int skew = (int)(begin + (u32)r * (u32)(rows.apart * rows.bytes)) & 15;
            units[r].load(ring + (at * R + r) * Tile + skew, lane);
          }
          multiply<0>(units, record_at<Form>(x, chunk / 2), records, chunks - chunk, sums);
        }
        at = at + 1 == STAGES ? 0 : at + 1;
      }
      scatter_sums<Sums, 16, 32>(sums, lane);
      finish((i64)s, sums);
    }
    async_wait<0>();
  }
};

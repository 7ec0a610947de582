// What attention on Hopper shares, forward and backward: how rows lie in shared memory, and what happens to scores.
#pragma once
#include "attention-again.h"
#include "hopper.h"

/**
 * Threads of a block with two or three computing groups, and one block a multiprocessor: compilers must know both to
 * share out registers anew.
 */
#define HOPPER_BOUND 384, 1
#define HOPPER_THREE_BOUND 512, 1

/** What happens to scores beside their scale. */
constexpr int CAPPED = 1, BIASED = 2;
constexpr float LOG2_E = 1.44269504f, LN_2 = 0.693147181f;

#if defined(WICK_NVIDIA) && defined(__CUDA_ARCH_FEAT_SM90_ALL)

/** Where 16-byte part c of row r lies in a tile of `rows` rows: 64 columns side by side, then the next 64. */
WICK_FN u32 place(int r, int c, int rows) { return (u32)(c / 8 * rows * 128 + r * 128 + ((c ^ r) & 7) * 16); }

/** Of the numbers at 0, 1, 8, 9, 16, 17, ... 121: a bit for each that is less than n. */
WICK_FN u32 bits_below(int n) {
  const int whole = n < 0 ? 0 : n / 8, count = 2 * whole + (n < 0 ? 0 : n % 8 < 2 ? n % 8 : 2);
  return count < 32 ? (1u << count) - 1 : ~0u;
}

/** A copying thread keeps so many registers; two or three computing ones share what is left of 3 * 168 or 4 * 128. */
template <int Copying> WICK_FN void fewer_registers() {
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(Copying));
}
template <int Copying, int Teams = 2> WICK_FN void more_registers() {
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(((Teams == 3 ? 4 * 128 : 3 * 168) - Copying) / Teams));
}

/** The larger numbers of two pairs; NaN wins. */
template <class T> WICK_FN u32 odder_pair(u32 a, u32 b) {
  u32 r;
  if constexpr (same<T, half>) asm("max.NaN.f16x2 %0, %1, %2;" : "=r"(r) : "r"(a), "r"(b));
  else asm("max.NaN.bf16x2 %0, %1, %2;" : "=r"(r) : "r"(a), "r"(b));
  return r;
}
template <class T> WICK_FN bool has_nan(u32 pair) {
  constexpr u32 Infinity = same<T, half> ? 0x7c00u : 0x7f80u;
  return (pair & 0x7fffu) > Infinity || (pair >> 16 & 0x7fffu) > Infinity;
}
/** Of the first or the second row that a lane has numbers of, two at a time, multiplied: whether one is NaN. */
template <class T, int N> WICK_FN bool write_row(T* to, const float (&numbers)[N], int which, float scale) {
  u32 oddest = 0;
#pragma unroll
  for (int e = 2 * which; e < N; e += 4) {
    const u32 pair = pack_pair<T>(numbers[e] * scale, numbers[e + 1] * scale);
    *(u32*)(to + e / 4 * 8) = pair;
    oddest = odder_pair<T>(oddest, pair);
  }
  return has_nan<T>(oddest);
}

// ---- masks: the copying group brings a tile of one, and lays it out as it is added ----

template <class T> constexpr u32 HIDDEN = same<T, half> ? 0xfc00u : 0xff80u;  // -infinity
/** Four numbers; of four bytes those that are 0 become what hides a key, others what adds nothing. */
struct Pairs {
  u32 x, y;
};
template <class T> WICK_FN Pairs added_of(u32 flags) {
  const u32 zero = ~(((flags & 0x7f7f7f7fu) + 0x7f7f7f7fu) | flags) & 0x80808080u;
  Pairs all;
  if constexpr (same<T, half>) {  // a byte's highest bit 16 times, of which six stay
    asm("prmt.b32 %0, %1, %1, 0x9988;" : "=r"(all.x) : "r"(zero));
    asm("prmt.b32 %0, %1, %1, 0xbbaa;" : "=r"(all.y) : "r"(zero));
    return {all.x & 0xfc00fc00u, all.y & 0xfc00fc00u};
  } else {  // the byte, and its highest bit eight times
    asm("prmt.b32 %0, %1, %1, 0x9180;" : "=r"(all.x) : "r"(zero));
    asm("prmt.b32 %0, %1, %1, 0xb3a2;" : "=r"(all.y) : "r"(zero));
    return all;
  }
}
/** What a mask adds, in 16 bits. */
template <class T> WICK_FN u32 added_at(const Attention& p, i64 at) {
  if (p.mask_kind == 2) return ((const u16*)p.mask)[at];
  return ((const u8*)p.mask)[at] ? 0 : HIDDEN<T>;
}
/** What a thread of 128 brings of a mask's tile: eight keys of every Step-th row. */
template <int Rows, int Keys> struct MaskCopy {
  static constexpr int Parts = Keys / 8, Step = 128 / Parts, Count = Rows / Step;
  i64 at, down;    // where the first eight are in the mask, and how far the next row's are
  int keys, rows;  // how many there are from there
  u32 to;          // the place of the first eight
  bool flags;      // whether eight are a word of flags
};
/** Queries from i0 on and keys from j0 on. */
template <int Rows, int Keys>
WICK_FN MaskCopy<Rows, Keys> mask_copy(const Attention& p, const Sequence& s, int head, int i0, int j0) {
  typedef MaskCopy<Rows, Keys> Copy;
  const int c = threadIdx.x % Copy::Parts, r0 = threadIdx.x / Copy::Parts;
  const i64 row = p.mask_strides[2], step = p.mask_strides[3],
            at = s.batch * p.mask_strides[0] + head * p.mask_strides[1] + (i0 + r0) * row + (j0 + 8 * c) * step;
  const bool flags = p.mask_kind == 1 && step == 1 && row % 8 == 0 && s.nk % 8 == 0 && ((u64)p.mask + at) % 8 == 0;
  return {at, Copy::Step * row, s.nk - j0 - 8 * c, s.nq - i0 - r0, place(r0, c, Rows), flags};
}
template <int Rows, int Keys, int N>
WICK_FN void fetch_flags(const Attention& p, const MaskCopy<Rows, Keys>& m, int first, u64 (&flags)[N]) {
#pragma unroll
  for (int n = 0; n < N; n++) {
    const bool there = (first + n) * m.Step < m.rows && m.keys > 0;
    flags[n] = there ? *(const u64*)((const u8*)p.mask + m.at + (first + n) * m.down) : 0;
  }
}
template <class T, int Rows, int Keys, int N>
WICK_FN void store_flags(const MaskCopy<Rows, Keys>& m, int first, const u64 (&flags)[N], unsigned char* tile) {
#pragma unroll
  for (int n = 0; n < N; n++) {
    const Pairs low = added_of<T>((u32)flags[n]), high = added_of<T>((u32)(flags[n] >> 32));
    *(word4*)(tile + m.to + (first + n) * m.Step * 128) = word4{low.x, low.y, high.x, high.y};
  }
}
/**
 * Brings what is no word of flags and arrives at `full`. Of rows and keys that are not there a mask says anything:
 * nobody sees them.
 */
template <class T, int Rows, int Keys>
WICK_FN void copy_mask(const Attention& p, const MaskCopy<Rows, Keys>& m, bool whole, unsigned char* tile, u64* full) {
  unsigned char* to = tile + m.to;
  i64 at = m.at;
  const i64 step = p.mask_strides[3];
  if (p.mask_kind == 2 && step == 1 && whole && p.mask_strides[2] % 8 == 0 && ((u64)p.mask + 2 * at) % 16 == 0) {
    UNROLL(1, 4)
    for (int n = 0; n < m.Count; n++, at += m.down, to += m.Step * 128) {
      const bool there = n * m.Step < m.rows && m.keys > 0;
      async_all16(to, (const u16*)p.mask + (there ? at : 0), there);
    }
    return barrier_arrive_copied(full);
  }
  UNROLL(1, 1)
  for (int n = 0; n < m.Count; n++, at += m.down, to += m.Step * 128) {
    u32 words[4] = {};
#pragma unroll
    for (int e = 0; e < 8; e++)
      if (n * m.Step < m.rows && e < m.keys) words[e / 2] |= added_at<T>(p, at + e * step) << e % 2 * 16;
    *(word4*)to = word4{words[0], words[1], words[2], words[3]};
  }
  barrier_arrive(full);
}
/**
 * Of a mask's tile what belongs to 16 scores a row that a lane has, from `others` on: words 0 and 1 of row and row + 8,
 * then those of eight further on. Turned: rows are keys, and `others` queries.
 */
template <int Rows, bool Turned> WICK_FN Frag mask_words(const unsigned char* tile, int row, int others) {
  const int lane = threadIdx.x % 32;
  Frag f;
  if constexpr (Turned)
    LDMATRIX(".trans", f, tile + place(others + lane / 16 * 8 + lane % 8, row / 8 + lane / 8 % 2, Rows));
  else LDMATRIX("", f, tile + place(row + lane % 16, others / 8 + lane / 16, Rows));
  return f;
}
/** What a word adds to the first or the second of two scores, by ln 2. */
template <class T> WICK_FN float mask_of(u32 word, int which, float score) {
  return fmag(to_compute(bits_as<T>((u16)(word >> 16 * which))), LOG2_E, score);
}

// ---- soft caps ----

/**
 * The tangent of small numbers is a polynomial, off by 6e-7 at most, which spares two steps of the slow unit; numbers
 * and result are scaled in its coefficients.
 */
struct Cap {
  float in, unit, near, k[4];
};
WICK_FN Cap cap_of(const Attention& p, float unit) {
  const float in = (float)(p.scale / p.softcap), square = in * in, first = in * unit;
  return {in,
          unit,
          in < 1e4f ? 0.6f / in : 0.0f,  // of larger ones coefficients would overflow
          {first * 0.999991f, first * square * -0.33298975f, first * square * square * 0.12974554f,
           first * square * square * square * -0.03961128f}};
}
WICK_FN float near_cap(const Cap& cap, float x) {
  const float u = x * x;
  return x * fmaf(u, fmaf(u, fmaf(u, cap.k[3], cap.k[2]), cap.k[1]), cap.k[0]);
}
/** Products to unit * tanh(in * product). */
template <int N> WICK_FN void cap_scores(const Cap& cap, float (&score)[N]) {
  float most[4] = {};  // one would wait for itself
#pragma unroll
  for (int e = 0; e < N; e++) most[e % 4] = fmaxf(most[e % 4], fabsf(score[e]));
  if (ballot64(!(fmaxf(fmaxf(most[0], most[1]), fmaxf(most[2], most[3])) < cap.near))) {
#pragma unroll
    for (int e = 0; e < N; e++) score[e] = small_tanh(score[e] * cap.in) * cap.unit;
  } else {
#pragma unroll
    for (int e = 0; e < N; e++) score[e] = near_cap(cap, score[e]);
  }
}

#endif

// Rows of attention that came out as NaN, made again key by key: in a tile's products a hidden key weighs 0, and 0 times
// NaN or infinity is NaN. Here only what weighs something is looked at, so that a NaN that stays is one that was seen.
// A wave makes a row, a key (or query) a lane, then a few numbers of the row a lane. Rare, so short rather than fast.
#pragma once
#include "attention.h"
#include "attention-split.h"
#include "settle.h"

/** Numbers of a row that a lane has, so many apart. */
constexpr int AGAIN_EACH = 256 / WICK_WAVE;

/** By its bits: LLVM of ROCm 5 cannot vote on a comparison of floats that are unordered. */
WICK_FN bool is_nan(float x) { return (bits_as<u32>(x) & 0x7fffffffu) > 0x7f800000u; }
WICK_FN bool is_nan(double x) { return (bits_as<u64>(x) & ~(1ull << 63)) > 0x7ff0000000000000ull; }

/** Number d of a row as it is kept. */
template <class S> WICK_FN auto kept_number(const S* row, int d) {
  if constexpr (same<S, q8_byte>) {
    const u8* block = (const u8*)row + d / 32 * 34;
    return half_to_float(*(const half*)block) * (float)(i8)block[2 + d % 32];
  } else return to_compute(row[d]);
}
template <class A, class S, class R> WICK_FN A product_again(const S* a, const R* b, int dim) {
  A sum = 0;
  UNROLL(1, 4)
  for (int d = 0; d < dim; d++) sum = fmag((A)kept_number(a, d), (A)kept_number(b, d), sum);
  return sum;
}
/** The logit of query i and key j, and its derivative by the product. */
template <class T, class S, class A>
WICK_FN A logit_again(const Attention& p, const Sequence& s, int head, int i, int j, A& slope) {
  const T* q = query_row<const T>(p.q, p.q_strides, s, head, i);
  const S* k = key_row<const S>(p, p.k, p.k_strides, s, head / (p.heads / p.kv_heads), j);
  return biased_of<T>(p, s, head, i, j, capped_of(p, product_again<A>(q, k, p.dim), slope));
}
/** A lane's number; what is made from it is not made, and kept, before the loops that come first. */
WICK_FN int lane_again() {
  int lane = lane_id();
  settle(lane);
  return lane;
}
/**
 * The problem read anew, for kernels whose first argument it is: what AMD's compilers have loaded of it need not stay in
 * registers until here.
 */
WICK_FN const Attention& call_again(const Attention& p) {
#ifdef WICK_AMD
  typedef const __attribute__((address_space(4))) Attention* Arguments;
  Arguments at = (Arguments)__builtin_amdgcn_kernarg_segment_ptr();
  asm volatile("" : "+s"(at));
  return *(const Attention*)at;
#else
  return p;
#endif
}
/** A wave's number, likewise. */
WICK_FN int wave_again() {
  int wave = wave_id();
  settle(wave);
  return wave;
}
/** Whether a row that was written has NaN. */
template <class T> WICK_FN bool is_odd(const T* row, int dim) {
  u32 found = 0;
  UNROLL(1, 1)
  for (int d = lane_again(); d < dim; d += WICK_WAVE) found |= is_nan(to_compute(row[d]));
  return ballot64(found != 0) != 0;
}
/** sums[e] += by * number of this lane. */
template <class S, class A> WICK_FN void add_again(A (&sums)[AGAIN_EACH], int lane, A by, const S* row, int dim) {
#pragma unroll
  for (int e = 0; e < AGAIN_EACH; e++) {
    const int d = lane + e * WICK_WAVE;
    if (d < dim) sums[e] = fmag(by, (A)kept_number(row, d), sums[e]);
  }
}
template <class A> WICK_FN bool all_nan(const A (&sums)[AGAIN_EACH], int lane, int dim) {
  bool number = false;
#pragma unroll
  for (int e = 0; e < AGAIN_EACH; e++) number |= lane + e * WICK_WAVE < dim && sums[e] == sums[e];
  return !ballot64(number);
}
template <class T, class A> WICK_FN void write_again(T* row, int lane, const A (&sums)[AGAIN_EACH], int dim) {
#pragma unroll
  for (int e = 0; e < AGAIN_EACH; e++) {
    const int d = lane + e * WICK_WAVE;
    if (d < dim) row[d] = from_compute<T>(sums[e]);
  }
}

/** The log-sum-exp of a query over some keys. */
template <class T, class S, class A>
WICK_FN A lse_again(const Attention& p, const Sequence& s, int head, int i, Range keys) {
  const int lane = lane_again();
  A top = Limits<A>::lowest(), sum = 0, slope;
  UNROLL(1, 1)
  for (int j0 = keys.begin; j0 < keys.end && !ballot64(is_nan(sum)); j0 += WICK_WAVE) {
    const int j = j0 + lane;
    if (j >= keys.end) continue;
    const A x = logit_again<T, S>(p, s, head, i, j, slope), best = x > top ? x : top;
    if (x == Limits<A>::lowest()) continue;
    if (top != best) sum *= expg(top - best);
    sum += expg(x - best);
    top = best;
  }
  UNROLL(1, 1)
  for (int m = WICK_WAVE / 2; m; m /= 2) {
    const A other = shfl_xor(top, m, WICK_WAVE), more = shfl_xor(sum, m, WICK_WAVE), best = other > top ? other : top;
    sum = (sum == 0 ? A(0) : sum * expg(top - best)) + (more == 0 ? A(0) : more * expg(other - best));
    top = best;
  }
  return sum == 0 ? Limits<A>::lowest() : top + logg(sum);
}
/** Values weighed against a log-sum-exp. */
template <class T, class S, class A>
WICK_FN void weigh_again(A (&out)[AGAIN_EACH], const Attention& p, const Sequence& s, int head, int i, Range keys,
                         A lse) {
  const int lane = lane_again();
  A slope;
  UNROLL(1, 1)
  for (int j0 = keys.begin; j0 < keys.end && !all_nan(out, lane, p.dim); j0 += WICK_WAVE) {
    const int j = j0 + lane;
    A w = 0;
    if (j < keys.end) {
      const A x = logit_again<T, S>(p, s, head, i, j, slope);
      if (x != Limits<A>::lowest()) w = expg(x - lse);
    }
    UNROLL(1, 1)
    for (int c = 0; c < WICK_WAVE && j0 + c < keys.end; c++) {
      const A by = shfl(w, c, WICK_WAVE);
      if (by != 0)
        add_again(out, lane, by, key_row<const S>(p, p.v, p.v_strides, s, head / (p.heads / p.kv_heads), j0 + c),
                  p.dim);
    }
  }
}
/** Query i of a head, by a wave: its result, and its log-sum-exp where that is wanted. */
template <class T> WICK_FN void row_again(const Attention& p, const Sequence& s, int head, int i) {
  typedef compute_t<T> A;
  const Range keys = keys_of(p, s, i);
  A lse = lse_again<T, T, A>(p, s, head, i, keys), out[AGAIN_EACH] = {};
  if (p.sinks) {
    const A sink = (A)p.sinks[head], best = sink > lse ? sink : lse;
    if (best != Limits<A>::lowest() || sink != sink) lse = best + logg(expg(lse - best) + expg(sink - best));
  }
  if (lse != lse) return;  // as it is
  weigh_again<T, T>(out, p, s, head, i, keys, lse);
  write_again(query_row<T>(p.out, p.out_strides, s, head, i), lane_again(), out, p.dim);
  if (p.lse && lane_id() == 0) ((A*)p.lse)[lse_index(p, s, head, i)] = lse;
}
/** Of a wave's 32 rows from `first` on those that a lane found NaN in, a bit each. */
template <class F> WICK_FN void each_again(u32 found, F again) {
  if (!ballot64(found != 0)) return;
  sync_wave();  // what other lanes wrote of a row comes first
  UNROLL(1, 1)
  for (int r = 0; r < 32; r++)
    if (ballot64(found >> r & 1)) again(r);
}

// ---- gradients; delta is there ----

/** What key j weighs for query i, and the gradient of their product. */
template <class A> struct PairAgain { A w, g; };
template <class T>
WICK_FN PairAgain<compute_t<T>> pair_again(const Attention& p, const Sequence& s, int head, int i, int j) {
  typedef compute_t<T> A;
  const i64 at = lse_index(p, s, head, i);
  A slope;
  const A x = logit_again<T, T>(p, s, head, i, j, slope);
  if (x == Limits<A>::lowest()) return {0, 0};
  const A w = expg(x - ((const A*)p.lse)[at]);
  if (w == 0) return {0, 0};
  const A inner = product_again<A>(query_row<const T>(p.dout, p.dout_strides, s, head, i),
                                   key_row<const T>(p, p.v, p.v_strides, s, head / (p.heads / p.kv_heads), j), p.dim);
  return {w, w * (inner - ((const A*)p.delta)[at]) * slope};
}
template <class T> WICK_FN void query_gradient_again(const Attention& p, const Sequence& s, int head, int i) {
  typedef compute_t<T> A;
  const int kv_head = head / (p.heads / p.kv_heads);
  const Range keys = keys_of(p, s, i);
  const int lane = lane_again();
  A dq[AGAIN_EACH] = {};
  UNROLL(1, 1)
  for (int j0 = keys.begin; j0 < keys.end && !all_nan(dq, lane, p.dim); j0 += WICK_WAVE) {
    const int j = j0 + lane;
    PairAgain<A> mine = {0, 0};
    if (j < keys.end) mine = pair_again<T>(p, s, head, i, j);
    UNROLL(1, 1)
    for (int c = 0; c < WICK_WAVE && j0 + c < keys.end; c++) {
      const PairAgain<A> by = shfl(mine, c, WICK_WAVE);
      if (by.w != 0) add_again(dq, lane, by.g, key_row<const T>(p, p.k, p.k_strides, s, kv_head, j0 + c), p.dim);
    }
  }
  write_again(query_row<T>(p.dq, p.dq_strides, s, head, i), lane, dq, p.dim);
}
template <class T> WICK_FN void key_gradients_again(const Attention& p, const Sequence& s, int kv_head, int j) {
  typedef compute_t<T> A;
  const int group = p.heads / p.kv_heads;
  const Range queries = queries_seeing(p, s, j, j);
  const int lane = lane_again();
  A dk[AGAIN_EACH] = {}, dv[AGAIN_EACH] = {};
  UNROLL(1, 1)
  for (int head = kv_head * group; head < (kv_head + 1) * group; head++) {
    UNROLL(1, 1)
    for (int i0 = queries.begin; i0 < queries.end && !(all_nan(dk, lane, p.dim) && all_nan(dv, lane, p.dim));
         i0 += WICK_WAVE) {
      const int i = i0 + lane;
      PairAgain<A> mine = {0, 0};
      if (i < queries.end) mine = pair_again<T>(p, s, head, i, j);
      UNROLL(1, 1)
      for (int c = 0; c < WICK_WAVE && i0 + c < queries.end; c++) {
        const PairAgain<A> by = shfl(mine, c, WICK_WAVE);
        if (by.w == 0) continue;
        add_again(dk, lane, by.g, query_row<const T>(p.q, p.q_strides, s, head, i0 + c), p.dim);
        add_again(dv, lane, by.w, query_row<const T>(p.dout, p.dout_strides, s, head, i0 + c), p.dim);
      }
    }
  }
  write_again(key_row<T>(p, p.dk, p.dk_strides, s, kv_head, j), lane, dk, p.dim);
  write_again(key_row<T>(p, p.dv, p.dv_strides, s, kv_head, j), lane, dv, p.dim);
}

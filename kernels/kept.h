// Types that tensors are kept in and that nothing computes in: i8, and f8e5m2 (bf8), the upper half of an f16. Casts
// read them as the next wider type and write them from any.
#pragma once
#include "portable.h"

struct bf8 {
  u8 bits;
};

WICK_FN i16 from_kept(i8 v) { return v; }
WICK_FN half from_kept(bf8 v) {
  half h = {(u16)((u32)v.bits << 8)};
  return h;
}

WICK_FN bf8 float_to_bf8(float f) {
  u32 x = bits_as<u32>(f), sign = x >> 24 & 0x80, a = x & 0x7fffffff, r;
  if (a > 0x7f800000u) {
    bf8 nan = {0x7f};
    return nan;
  }
  if (a >= 0x47700000u) r = 0x7c;                                                        // from 61440 on: infinity
  else if (a < 0x38800000u) r = bits_as<u32>(bits_as<float>(a) + 0x1p7f) - 0x43000000u;  // the adder rounds denormals
  else r = (a - 0x38000000u + 0xfffff + (a >> 21 & 1)) >> 21;
  bf8 v = {(u8)(sign | r)};
  return v;
}

/** Floats truncate and saturate, NaN is 0; integers keep their low bits. */
template <class S> WICK_FN i8 to_i8(S s) {
  auto t = to_compute(s);
  if constexpr (is_float<S>) {
    const i32 v = to_int<i32>(t);
    return (i8)(v < -128 ? -128 : v > 127 ? 127 : v);
  } else return (i8)t;
}

/** Rounded once: what a float does not hold is rounded to odd on the way. */
template <class S> WICK_FN bf8 to_bf8(S s) {
  auto t = to_compute(s);
  if constexpr (same<S, double>) return float_to_bf8(to_odd(t));
  else if constexpr (same<S, u32> || same<S, i32>) return float_to_bf8(to_odd((double)t));
  else if constexpr (same<S, i64>) {
    bool big = t > (1ll << 52) || t < -(1ll << 52);
    return float_to_bf8(to_odd((double)(big ? ((t >> 11) | ((t & 2047) != 0)) : t) * (big ? 2048.0 : 1.0)));
  } else return float_to_bf8((float)t);
}

// Part of portable.h: conversions between element types: round to nearest even; NaN becomes 0x7fff (0x7f in fp8), as
// CUDA gives.
#pragma once

WICK_FN float half_to_float(half h) {
#if defined(WICK_NVIDIA)
  float f;
  asm("cvt.f32.f16 %0, %1;" : "=f"(f) : "h"(h.bits));
  return f;
#elif defined(WICK_AMD)
  return (float)bits_as<_Float16>(h.bits);
#else
  u32 sign = (u32)(h.bits & 0x8000) << 16, magnitude = h.bits & 0x7fff;
  if (magnitude >= 0x7c00) return bits_as<float>(sign | 0x7f800000u | (magnitude & 0x3ff) << 13);
  // Scaling by 2^112 moves the exponent from bias 15 to 127 and is exact for denormals too.
  return bits_as<float>(sign | bits_as<u32>(bits_as<float>(magnitude << 13) * 0x1p112f));
#endif
}

WICK_FN half float_to_half(float f) {
#if defined(WICK_NVIDIA)
  half h;
  asm("cvt.rn.f16.f32 %0, %1;" : "=h"(h.bits) : "f"(f));
  return h;
#elif defined(WICK_AMD)
  asm("" : "+v"(f));  // LLVM 22 would fuse a product with this rounding, adding +0: a zero product would lose its sign
  half h = {f != f ? (u16)0x7fff : bits_as<u16>((_Float16)f)};
  return h;
#else
  u32 x = bits_as<u32>(f), sign = x >> 16 & 0x8000, a = x & 0x7fffffff, r;
  if (a > 0x7f800000u) return half{0x7fff};
  if (a >= 0x477ff000u) r = 0x7c00;                                                    // from 65520 on: infinity
  else if (a < 0x38800000u) r = bits_as<u32>(bits_as<float>(a) + 0.5f) - 0x3f000000u;  // the adder rounds denormals
  else r = (a - 0x38000000u + 0xfff + (a >> 13 & 1)) >> 13;
  return half{(u16)(sign | r)};
#endif
}

WICK_FN float bfloat_to_float(bfloat b) { return bits_as<float>((u32)b.bits << 16); }

WICK_FN bfloat float_to_bfloat(float f) {
#if defined(WICK_NVIDIA) && defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
  bfloat b;
  asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(b.bits) : "f"(f));
  return b;
#else
  u32 x = bits_as<u32>(f);
  bfloat b = {f != f ? (u16)0x7fff : (u16)((x + 0x7fff + (x >> 16 & 1)) >> 16)};
  return b;
#endif
}

WICK_FN float fp8_to_float(fp8 v) {
  u32 sign = (u32)(v.bits & 0x80) << 24, magnitude = v.bits & 0x7f;
  if (magnitude == 0x7f) return bits_as<float>(0x7fffffffu);
  return bits_as<float>(sign | bits_as<u32>(bits_as<float>(magnitude << 20) * 0x1p120f));
}

WICK_FN fp8 float_to_fp8(float f) {
  u32 x = bits_as<u32>(f), sign = x >> 24 & 0x80, a = x & 0x7fffffff, r;
  if (a > 0x7f800000u) {
    fp8 nan = {0x7f};
    return nan;
  }
  if (a >= 0x43e00000u) r = 0x7e;                                                         // from 448 on: saturates
  else if (a < 0x3c800000u) r = bits_as<u32>(bits_as<float>(a) + 0x1p14f) - 0x46800000u;  // the adder rounds denormals
  else r = (a - 0x3c000000u + 0x7ffff + (a >> 20 & 1)) >> 20;
  fp8 v = {(u8)(sign | (r > 0x7e ? 0x7e : r))};
  return v;
}

/** A double as float rounded to odd, so that a second rounding to a smaller float is as good as one. */
WICK_FN float to_odd(double d) {
  float f = (float)d;
  double back = (double)f;
  u32 x = bits_as<u32>(f);
  if (back == d || d != d || (x & 1) || (x & 0x7fffffff) == 0x7f800000u) return f;
  bool outward = d < 0 ? back > d : back < d;
  if ((x & 0x7fffffff) == 0) return bits_as<float>((d < 0 ? 0x80000000u : 0u) | 1u);
  return bits_as<float>(outward ? x + 1 : x - 1);
}

/** Storage to the type computed in. */
template <class S> WICK_FN compute_t<S> to_compute(S s) {
  if constexpr (same<S, half>) return half_to_float(s);
  else if constexpr (same<S, bfloat>) return bfloat_to_float(s);
  else if constexpr (same<S, fp8>) return fp8_to_float(s);
  else return s;
}

/** Rounds a float or double to storage S, once. */
template <class S, class T> WICK_FN S round_to(T t) {
  float f;
  if constexpr (same<T, double> && is_small_float<S>) f = to_odd(t);
  else f = (float)t;
  if constexpr (same<S, half>) return float_to_half(f);
  else if constexpr (same<S, bfloat>) return float_to_bfloat(f);
  else if constexpr (same<S, fp8>) return float_to_fp8(f);
  else return (S)t;
}

/** The type computed in back to storage; masks and promoted integers narrow. */
template <class S, class T> WICK_FN S from_compute(T t) {
  if constexpr (is_small_float<S>) return round_to<S>(t);
  else return (S)t;
}

/** A float to an integer: truncates, saturates, NaN is 0. */
template <class D, class T> WICK_FN D to_int(T t) {
  constexpr bool wide = sizeof(D) == 8, plain = same<D, u8> || same<D, u32>;
  // The first power of two above the type: exact in T where the type's largest value is not.
  const T top = (T)(wide             ? 9223372036854775808.0
                    : same<D, u32>   ? 4294967296.0
                    : sizeof(D) == 4 ? 2147483648.0
                    : plain          ? 256.0
                                     : 32768.0);
  const T bottom = plain ? (T)0 : -top;
  if (t != t) return 0;
  if (t >= top) return Limits<D>::highest();
  if (t <= bottom) return Limits<D>::lowest();
  if constexpr (wide) return (i64)t;
  else if constexpr (plain) return (D)(u32)t;
  else return (D)(i32)t;
}

/** Anything but zero is true; so is NaN. */
template <class S> WICK_FN u8 truth(S s) { return to_compute(s) != 0; }

/** Any storage type to any other, as a cast of tensors does it. */
template <class D, class S> WICK_FN D convert(S s) {
  auto t = to_compute(s);
  if constexpr (same<D, S>) return s;
  else if constexpr (is_float<S> && !is_float<D>) return to_int<D>(t);
  else if constexpr (is_small_float<D> && (same<S, u32> || same<S, i32>)) return round_to<D>((double)t);
  else if constexpr (is_small_float<D> && same<S, i64>) {
    // 64 bits do not fit a double: drop low bits but keep a sticky one.
    bool big = t > (1ll << 52) || t < -(1ll << 52);
    return round_to<D>((double)(big ? ((t >> 11) | ((t & 2047) != 0)) : t) * (big ? 2048.0 : 1.0));
  } else return from_compute<D>(t);
}

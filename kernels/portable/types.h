// Part of portable.h: element types, what they are computed in, their limits.
#pragma once

typedef unsigned char u8;
typedef signed char i8;
typedef unsigned short u16;
typedef short i16;
typedef unsigned int u32;
typedef int i32;
typedef unsigned long long u64;
typedef long long i64;

// hipRTC already owns the names half and __half, so ours are spelled privately and renamed.
struct wick_half {
  u16 bits;
};
struct wick_bfloat {
  u16 bits;
};
struct wick_fp8 {
  u8 bits;
};
#define half wick_half
#define bfloat wick_bfloat
#define fp8 wick_fp8

/** What a storage type is computed in: float for the small floats, else itself. */
template <class S> struct Compute { typedef S type; };
template <> struct Compute<half> { typedef float type; };
template <> struct Compute<bfloat> { typedef float type; };
template <> struct Compute<fp8> { typedef float type; };
template <class S> using compute_t = typename Compute<S>::type;

template <class A, class B> struct Same { static constexpr bool value = false; };
template <class A> struct Same<A, A> { static constexpr bool value = true; };
template <class A, class B> constexpr bool same = Same<A, B>::value;
template <class T> constexpr bool is_small_float = same<T, half> || same<T, bfloat> || same<T, fp8>;
template <class T> constexpr bool is_float = same<T, float> || same<T, double> || is_small_float<T>;
/** NaN wins in Candle's 16-bit max, min and relu, and is ignored elsewhere. */
template <class S> constexpr bool nan_wins = same<S, half> || same<S, bfloat>;

/** NVRTC knows memcpy but not the builtin; the others know the builtin without a header. */
#if defined(__CUDACC_RTC__)
#define copy_bytes memcpy
#else
#define copy_bytes __builtin_memcpy
#endif

/** The bits of a value as another type of the same size. */
template <class To, class From> WICK_FN To bits_as(From from) {
  static_assert(sizeof(To) == sizeof(From), "bits_as: sizes differ");
  To to;
  copy_bytes(&to, &from, sizeof(To));
  return to;
}

/**
 * Smallest, largest and special values; lowest and highest are infinities for floats, so that reductions may start
 * there.
 */
template <class T> struct Limits;
#define WICK_INT_LIMITS(T, LOW, HIGH)               \
  template <> struct Limits<T> {                    \
    static WICK_MEMBER T lowest() { return LOW; }   \
    static WICK_MEMBER T highest() { return HIGH; } \
  };
WICK_INT_LIMITS(u8, 0, 255)
WICK_INT_LIMITS(i8, -128, 127)
WICK_INT_LIMITS(u16, 0, 65535)
WICK_INT_LIMITS(i16, -32768, 32767)
WICK_INT_LIMITS(u32, 0, 0xffffffffu)
WICK_INT_LIMITS(i32, -2147483647 - 1, 2147483647)
WICK_INT_LIMITS(u64, 0, 0xffffffffffffffffull)
WICK_INT_LIMITS(i64, -9223372036854775807ll - 1, 9223372036854775807ll)
template <> struct Limits<float> {
  static WICK_MEMBER float lowest() { return bits_as<float>(0xff800000u); }
  static WICK_MEMBER float highest() { return bits_as<float>(0x7f800000u); }
  static WICK_MEMBER float nan() { return bits_as<float>(0x7fffffffu); }
};
template <> struct Limits<double> {
  static WICK_MEMBER double lowest() { return bits_as<double>(0xfff0000000000000ull); }
  static WICK_MEMBER double highest() { return bits_as<double>(0x7ff0000000000000ull); }
  static WICK_MEMBER double nan() { return bits_as<double>(0x7fffffffffffffffull); }
};

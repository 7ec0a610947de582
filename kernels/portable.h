// What every kernel stands on: types, rounding, mathematics, shuffles and atomics, the same on NVIDIA, AMD and the host.
// This is the only file with vendor #ifdefs. It includes nothing under hipRTC and NVRTC; the host simulation brings simt.h.
#pragma once

#if defined(WICK_SIM)
#define WICK_HOST 1
#include "simt.h"
#elif defined(__HIP__) || defined(__HIPCC_RTC__) || defined(__AMDGCN__)
#define WICK_AMD 1
#elif defined(__CUDACC__) || defined(__CUDACC_RTC__)
#define WICK_NVIDIA 1
#else
#error "portable.h: compile with hipRTC, NVRTC, nvcc, or as host C++ with -DWICK_SIM"
#endif

#ifdef __clang__
#pragma clang fp contract(off)
#endif
#ifdef WICK_NVIDIA
#pragma nv_diag_suppress 177  // a unit uses some of these functions only
#endif

/** Lanes of a wave (warp): 32 on NVIDIA and RDNA, 64 on GCN and CDNA. The compile line says which. */
#ifndef WICK_WAVE
#define WICK_WAVE 32
#endif

// ---- declarations ----

/** A kernel: extern "C" under its own name, with the largest block it may be launched with. */
#define KERNEL(threads) extern "C" __global__ void __launch_bounds__(threads)
/** A device function; MEMBER is the same inside a struct. */
#ifdef WICK_HOST
#define WICK_FN static inline
#define WICK_MEMBER inline
#else
#define WICK_FN static __device__ __forceinline__
#define WICK_MEMBER __device__ __forceinline__
#endif

/** Shared memory whose size the launch gives, 16-byte aligned: DYNAMIC_SHARED(float, tile); */
#ifdef WICK_HOST
#define DYNAMIC_SHARED(T, name) T* name = (T*)simt::dynamic_shared()
#else
#define DYNAMIC_SHARED(T, name)                                    \
  extern __shared__ __attribute__((aligned(16))) unsigned char wick_shared[]; \
  T* name = (T*)wick_shared
#endif

/** A constant in the type computed in (kernels/README.md). */
#define C(value) ((T)(value))

// ---- element types ----

typedef unsigned char u8;
typedef signed char i8;
typedef unsigned short u16;
typedef short i16;
typedef unsigned int u32;
typedef int i32;
typedef unsigned long long u64;
typedef long long i64;

// hipRTC already owns the names half and __half, so ours are spelled privately and renamed.
struct wick_half { u16 bits; };
struct wick_bfloat { u16 bits; };
struct wick_fp8 { u8 bits; };
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

/** Smallest, largest and special values; lowest and highest are infinities for floats, so that reductions may start there. */
template <class T> struct Limits;
#define WICK_INT_LIMITS(T, LOW, HIGH)                         \
  template <> struct Limits<T> {                              \
    static WICK_MEMBER T lowest() { return LOW; }             \
    static WICK_MEMBER T highest() { return HIGH; }           \
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

// ---- conversions between floats: round to nearest even; NaN becomes 0x7fff (0x7f in fp8), as CUDA gives ----

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
  half h = {f != f ? (u16)0x7fff : bits_as<u16>((_Float16)f)};
  return h;
#else
  u32 x = bits_as<u32>(f), sign = x >> 16 & 0x8000, a = x & 0x7fffffff, r;
  if (a > 0x7f800000u) return half{0x7fff};
  if (a >= 0x477ff000u) r = 0x7c00;  // from 65520 on: infinity
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
  if (a > 0x7f800000u) { fp8 nan = {0x7f}; return nan; }
  if (a >= 0x43e00000u) r = 0x7e;  // from 448 on: saturates
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

/** A float to an integer: truncates, saturates at the 32 or 64 bits converted through, NaN is 0; u8 and i16 keep the low bits. */
template <class D, class T> WICK_FN D to_int(T t) {
  constexpr bool wide = sizeof(D) == 8, plain = same<D, u8> || same<D, u32>;
  const T top = wide ? (T)9223372036854775808.0 : plain ? (T)4294967296.0 : (T)2147483648.0;
  const T bottom = plain ? (T)0 : -top;
  if (t != t) return 0;
  if constexpr (wide) return t >= top ? Limits<i64>::highest() : t <= bottom ? Limits<i64>::lowest() : (i64)t;
  else if constexpr (plain) return (D)(t >= top ? Limits<u32>::highest() : t <= bottom ? 0u : (u32)t);
  else return (D)(t >= top ? Limits<i32>::highest() : t <= bottom ? Limits<i32>::lowest() : (i32)t);
}

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

// ---- mathematics in the type computed in: float, double, and integers where a meaning exists ----

/** The type two operands meet in: small integers are promoted by arithmetic, so p and q may differ. */
template <class P, class Q> struct Common { typedef decltype(true ? P() : Q()) type; };
template <class P> struct Common<P, P> { typedef P type; };
template <class P, class Q> using common_t = typename Common<P, Q>::type;

template <class M, class P, class Q> WICK_FN common_t<P, Q> select(M mask, P p, Q q) { return mask ? p : q; }

#define WICK_MATH(NAME, F)                             \
  WICK_FN float NAME(float x) { return F##f(x); }      \
  WICK_FN double NAME(double x) { return F(x); }
WICK_MATH(expg, exp)
WICK_MATH(logg, log)
WICK_MATH(log1pg, log1p)
WICK_MATH(expm1g, expm1)
WICK_MATH(sing, sin)
WICK_MATH(cosg, cos)
WICK_MATH(tang, tan)
WICK_MATH(tanhg, tanh)
WICK_MATH(erfg, erf)
WICK_MATH(sqrtg, sqrt)
WICK_MATH(absg, fabs)
WICK_MATH(ceilg, ceil)
WICK_MATH(floorg, floor)
WICK_MATH(truncg, trunc)
#ifdef WICK_AMD
// LLVM before 16 adds +0 to what rounds to -0 (ROCm 5.2 has 15).
WICK_FN float roundg(float x) { return __builtin_copysignf(roundf(x), x); }
WICK_FN double roundg(double x) { return __builtin_copysign(round(x), x); }
#else
WICK_MATH(roundg, round)
#endif
WICK_MATH(rintg, rint)
WICK_FN float powg(float p, float q) { return powf(p, q); }
WICK_FN double powg(double p, double q) { return pow(p, q); }
WICK_FN float fmag(float p, float q, float r) { return fmaf(p, q, r); }
WICK_FN double fmag(double p, double q, double r) { return fma(p, q, r); }
/** Products and sums that no compiler fuses: numbers that must come out the same bit for bit everywhere. */
#ifdef WICK_NVIDIA
WICK_FN double mul_rn(double p, double q) { return __dmul_rn(p, q); }
WICK_FN double add_rn(double p, double q) { return __dadd_rn(p, q); }
#else
WICK_FN double mul_rn(double p, double q) { return p * q; }
WICK_FN double add_rn(double p, double q) { return p + q; }
#endif
WICK_FN bool signbitg(float x) { return bits_as<u32>(x) >> 31; }
WICK_FN bool signbitg(double x) { return bits_as<u64>(x) >> 63; }
WICK_FN bool isnang(float x) { return x != x; }
WICK_FN bool isnang(double x) { return x != x; }
#ifdef WICK_HOST
WICK_FN float normcdfg(float x) { return (float)(0.5 * erfc(x * -0.70710678118654752440)); }
WICK_FN double normcdfg(double x) {
  // The rounding of the argument is amplified by x^2, so it is carried along and corrected for.
  const double c = 0.70710678118654757274, rest = -4.8336466567264567e-17, a = -x * c, e = fma(-x, c, -a) - x * rest;
  const double tail = a * a < 700 ? e * exp(-a * a) * 0.56418958354775628 : 0;
  return 0.5 * erfc(a) - tail;
}
WICK_FN float rsqrtg(float x) { return 1.0f / sqrtf(x); }
WICK_FN double rsqrtg(double x) { return 1.0 / sqrt(x); }
WICK_FN float exp2g(float x) { return exp2f(x); }
#else
WICK_FN float normcdfg(float x) { return normcdff(x); }
WICK_FN double normcdfg(double x) { return normcdf(x); }
WICK_FN float rsqrtg(float x) { return rsqrtf(x); }
WICK_FN double rsqrtg(double x) { return rsqrt(x); }
WICK_FN float exp2g(float x) { return exp2f(x); }
#endif
/** 2^x and e^x in a few ULP for softmax: denormal results may be 0. */
WICK_FN float fast_exp2(float x) {
#if defined(WICK_NVIDIA)
  float r;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(r) : "f"(x));
  return r;
#elif defined(WICK_AMD) && __has_builtin(__builtin_amdgcn_exp2f)
  return __builtin_amdgcn_exp2f(x);
#elif defined(WICK_AMD)
  float r;  // ROCm 5's compiler has no builtin for it
  asm("v_exp_f32 %0, %1" : "=v"(r) : "v"(x));
  return r;
#else
  return exp2f(x);
#endif
}
WICK_FN float fast_exp(float x) { return fast_exp2(x * 1.44269504f); }
template <class P, class Q> WICK_FN common_t<P, Q> divg(P left, Q right) {
  typedef common_t<P, Q> T;
  T p = left, q = right;
  if constexpr (is_float<T>) return p / q;
  else if constexpr (T(-1) < T(0)) return q == 0 ? T(0) : q == T(-1) ? (T)(0 - (u64)p) : (T)(p / q);
  else return q == 0 ? T(0) : (T)(p / q);
}
/** p*q+r on integers wraps. */
template <class T> WICK_FN T fmag(T p, T q, T r) { return (T)((u64)p * (u64)q + (u64)r); }

#define WICK_INT_MATH(T)                                              \
  WICK_FN T absg(T x) { return x < 0 ? (T)(0 - (u64)x) : x; }         \
  WICK_FN T ceilg(T x) { return x; }                                  \
  WICK_FN T floorg(T x) { return x; }                                 \
  WICK_FN T truncg(T x) { return x; }                                 \
  WICK_FN T roundg(T x) { return x; }                                 \
  WICK_FN T rintg(T x) { return x; }                                  \
  WICK_FN bool signbitg(T x) { return x < 0; }                        \
  WICK_FN bool isnang(T) { return false; }
WICK_INT_MATH(i16)
WICK_INT_MATH(i32)
WICK_INT_MATH(i64)
#define WICK_UINT_MATH(T)                       \
  WICK_FN T absg(T x) { return x; }             \
  WICK_FN T ceilg(T x) { return x; }            \
  WICK_FN T floorg(T x) { return x; }           \
  WICK_FN T truncg(T x) { return x; }           \
  WICK_FN T roundg(T x) { return x; }           \
  WICK_FN T rintg(T x) { return x; }            \
  WICK_FN bool signbitg(T) { return false; }    \
  WICK_FN bool isnang(T) { return false; }
WICK_UINT_MATH(u8)
WICK_UINT_MATH(u32)

/** Maximum: NaN is ignored, or wins where S is a 16-bit float; +0 is above -0. */
template <class S, class P, class Q> WICK_FN common_t<P, Q> maxg(P left, Q right) {
  typedef common_t<P, Q> T;
  T p = left, q = right;
  if constexpr (!is_float<T>) return p > q ? p : q;
  else {
    if (p != p) return nan_wins<S> ? p : q;
    if (q != q) return nan_wins<S> ? q : p;
    return p > q ? p : q > p ? q : signbitg(p) ? q : p;
  }
}
template <class S, class P, class Q> WICK_FN common_t<P, Q> ming(P left, Q right) {
  typedef common_t<P, Q> T;
  T p = left, q = right;
  if constexpr (!is_float<T>) return p < q ? p : q;
  else {
    if (p != p) return nan_wins<S> ? p : q;
    if (q != q) return nan_wins<S> ? q : p;
    return p < q ? p : q < p ? q : signbitg(p) ? p : q;
  }
}

/** High 32 bits of a product: what divisions by precomputed magic numbers and Philox need. */
WICK_FN u32 mulhi32(u32 a, u32 b) { return (u32)((u64)a * b >> 32); }
WICK_FN u64 mulhi64(u64 a, u64 b) {
#ifdef WICK_HOST
  return (u64)((unsigned __int128)a * b >> 64);
#else
  return __umul64hi(a, b);
#endif
}

// ---- positions ----

WICK_FN u64 global_id() { return (u64)blockIdx.x * blockDim.x + threadIdx.x; }
WICK_FN u64 global_size() { return (u64)gridDim.x * blockDim.x; }
/** The lane within its wave; blocks are numbered x first. */
WICK_FN u32 thread_rank() { return threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z); }
WICK_FN u32 lane_id() { return thread_rank() % WICK_WAVE; }
WICK_FN u32 wave_id() { return thread_rank() / WICK_WAVE; }

/** for (i = this thread; i < n; i += all threads) */
#define GRID_STRIDE(i, n) for (u64 i = global_id(), wick_step = global_size(); i < (u64)(n); i += wick_step)

// ---- waves: every lane of the wave takes part, and every call names its width (a power of two up to WICK_WAVE) ----

#if defined(WICK_NVIDIA)
WICK_FN u32 shfl_word(u32 v, u32 from, u32 width) { return __shfl_sync(0xffffffffu, v, from, width); }
WICK_FN u32 shfl_xor_word(u32 v, u32 mask, u32 width) { return __shfl_xor_sync(0xffffffffu, v, mask, width); }
WICK_FN u64 ballot64(bool p) { return __ballot_sync(0xffffffffu, p); }
WICK_FN void sync_wave() { __syncwarp(); }
#elif defined(WICK_AMD)
WICK_FN u32 shfl_from_lane(u32 v, u32 lane) { return (u32)__builtin_amdgcn_ds_bpermute((i32)(lane << 2), (i32)v); }
WICK_FN u32 hardware_lane() { return __builtin_amdgcn_mbcnt_hi(~0u, __builtin_amdgcn_mbcnt_lo(~0u, 0u)); }
WICK_FN u32 shfl_word(u32 v, u32 from, u32 width) {
  u32 lane = hardware_lane();
  return shfl_from_lane(v, (lane & ~(width - 1)) | (from & (width - 1)));
}
WICK_FN u32 shfl_xor_word(u32 v, u32 mask, u32) { return shfl_from_lane(v, hardware_lane() ^ mask); }
WICK_FN u64 ballot64(bool p) { return __ballot(p); }
WICK_FN void sync_wave() {
  __builtin_amdgcn_fence(__ATOMIC_RELEASE, "wavefront");
  __builtin_amdgcn_wave_barrier();
  __builtin_amdgcn_fence(__ATOMIC_ACQUIRE, "wavefront");
}
#else
WICK_FN u32 shfl_word(u32 v, u32 from, u32 width) { return simt::shuffle(v, (lane_id() & ~(width - 1)) | (from & (width - 1))); }
WICK_FN u32 shfl_xor_word(u32 v, u32 mask, u32) { return simt::shuffle(v, lane_id() ^ mask); }
WICK_FN u64 ballot64(bool p) { return simt::ballot(p); }
WICK_FN void sync_wave() { simt::sync_wave(); }
#endif

// Values of any size travel as 32-bit words, so that no vendor's list of overloads matters.
#define WICK_SHUFFLE(NAME, WORD)                                             \
  template <class V> WICK_FN V NAME(V value, u32 arg, u32 width) {           \
    constexpr int words = (sizeof(V) + 3) / 4;                               \
    u32 w[words] = {};                                                       \
    copy_bytes(w, &value, sizeof(V));                                  \
    for (int i = 0; i < words; i++) w[i] = WORD(w[i], arg, width);           \
    copy_bytes(&value, w, sizeof(V));                                  \
    return value;                                                            \
  }
/** The value of lane `arg` within each group of `width` lanes. */
WICK_SHUFFLE(shfl, shfl_word)
/** The value of the lane whose number differs by the bits of `arg` (below width). */
WICK_SHUFFLE(shfl_xor, shfl_xor_word)
/** The value of the lane `delta` further on; lanes at the end keep their own. */
template <class V> WICK_FN V shfl_down(V value, u32 delta, u32 width) {
  u32 at = lane_id() & (width - 1);
  return shfl(value, at + delta < width ? at + delta : at, width);
}
/** The value of the lane `delta` before; lanes at the start keep their own. */
template <class V> WICK_FN V shfl_up(V value, u32 delta, u32 width) {
  u32 at = lane_id() & (width - 1);
  return shfl(value, at >= delta ? at - delta : at, width);
}
/** Ones for the lanes of this wave before mine: ranks within a ballot64. */
WICK_FN u64 lanes_before() { return (1ull << lane_id()) - 1; }
WICK_FN u32 popcount64(u64 mask) {
#ifdef WICK_HOST
  return (u32)__builtin_popcountll(mask);
#else
  return (u32)__popcll(mask);
#endif
}
/** Leading zeros of a word, 32 for 0. */
WICK_FN u32 clz32(u32 v) {
#ifdef WICK_HOST
  return v ? (u32)__builtin_clz(v) : 32u;
#else
  return (u32)__clz((i32)v);
#endif
}

// ---- atomics: relaxed, whole device; all answer the value before ----

#ifdef WICK_HOST
WICK_FN u32 cas(u32* p, u32 expected, u32 desired) { return simt::cas(p, expected, desired); }
WICK_FN u64 cas(u64* p, u64 expected, u64 desired) { return simt::cas(p, expected, desired); }
WICK_FN u32 atomic_add(u32* p, u32 v) { return __atomic_fetch_add(p, v, __ATOMIC_RELAXED); }
WICK_FN u64 atomic_add(u64* p, u64 v) { return __atomic_fetch_add(p, v, __ATOMIC_RELAXED); }
WICK_FN u32 atomic_exchange(u32* p, u32 v) { return __atomic_exchange_n(p, v, __ATOMIC_RELAXED); }
#else
WICK_FN u32 cas(u32* p, u32 expected, u32 desired) { return atomicCAS(p, expected, desired); }
WICK_FN u64 cas(u64* p, u64 expected, u64 desired) { return atomicCAS(p, expected, desired); }
WICK_FN u32 atomic_add(u32* p, u32 v) { return atomicAdd(p, v); }
WICK_FN u64 atomic_add(u64* p, u64 v) { return atomicAdd(p, v); }
WICK_FN u32 atomic_exchange(u32* p, u32 v) { return atomicExch(p, v); }
#endif

/** Flags between blocks: what was written before a release is seen after the acquire that reads it. */
template <class U> WICK_FN U load_acquire(const U* p) {
#if defined(WICK_NVIDIA)
  U v = *(const volatile U*)p;
  __threadfence();
  return v;
#elif defined(WICK_AMD)
  return __hip_atomic_load(p, __ATOMIC_ACQUIRE, __HIP_MEMORY_SCOPE_AGENT);
#else
  return __atomic_load_n(p, __ATOMIC_ACQUIRE);
#endif
}
template <class U> WICK_FN void store_release(U* p, U v) {
#if defined(WICK_NVIDIA)
  __threadfence();
  *(volatile U*)p = v;
#elif defined(WICK_AMD)
  __hip_atomic_store(p, v, __ATOMIC_RELEASE, __HIP_MEMORY_SCOPE_AGENT);
#else
  __atomic_store_n(p, v, __ATOMIC_RELEASE);
#endif
}
/** Counts an arrival and answers how many came before: what they wrote before arriving is seen after. */
WICK_FN u32 arrive(u32* p) {
#if defined(WICK_NVIDIA)
  __threadfence();
  u32 before = atomicAdd(p, 1u);
  __threadfence();
  return before;
#elif defined(WICK_AMD)
  return __hip_atomic_fetch_add(p, 1u, __ATOMIC_ACQ_REL, __HIP_MEMORY_SCOPE_AGENT);
#else
  return __atomic_fetch_add(p, 1u, __ATOMIC_ACQ_REL);
#endif
}
/**
 * For launches that may begin early: waits until the launch before is done, then lets the next one begin. So what the launch before the
 * last one wrote may be read ahead of it, and what the last one wrote only after it. Elsewhere launches begin in turn and this is nothing.
 */
WICK_FN void begin_in_turn() {
#if defined(WICK_NVIDIA) && defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}
/** Stops the kernel with an error. */
WICK_FN void trap() {
#ifdef WICK_NVIDIA
  __trap();
#else
  __builtin_trap();
#endif
}
/** Inside every loop that waits for a flag. */
WICK_FN void spin_wait() {
#if defined(WICK_NVIDIA) && defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 700
  __nanosleep(20);
#elif defined(WICK_AMD)
  __builtin_amdgcn_s_sleep(1);
#elif defined(WICK_HOST)
  simt::spin();
#endif
}

/** Replaces *p by f(*p) with compare-and-swap on the aligned word that holds it, whatever its size. */
template <class S, class F> WICK_FN S atomic_update(S* p, F f) {
  if constexpr (sizeof(S) == 8) {
    u64 seen = *(volatile u64*)p, was;
    do { was = seen; seen = cas((u64*)p, was, bits_as<u64>(f(bits_as<S>(was)))); } while (seen != was);
    return bits_as<S>(was);
  } else if constexpr (sizeof(S) == 4) {
    u32 seen = *(volatile u32*)p, was;
    do { was = seen; seen = cas((u32*)p, was, bits_as<u32>(f(bits_as<S>(was)))); } while (seen != was);
    return bits_as<S>(was);
  } else {
    typedef decltype(f(S())) R;
    static_assert(same<R, S>, "atomic_update: f must answer the storage type");
    u64 address = (u64)p;
    u32* word = (u32*)(address & ~3ull);
    u32 shift = (u32)(address & 3) * 8, mask = (sizeof(S) == 1 ? 0xffu : 0xffffu) << shift;
    u32 seen = *(volatile u32*)word, was;
    S old;
    do {
      was = seen;
      u32 part = (was & mask) >> shift;
      copy_bytes(&old, &part, sizeof(S));
      S next = f(old);
      u32 bits = 0;
      copy_bytes(&bits, &next, sizeof(S));
      seen = cas(word, was, (was & ~mask) | bits << shift);
    } while (seen != was);
    return old;
  }
}
template <class S> struct AtomicSum {
  S v;
  WICK_MEMBER S operator()(S old) const { return from_compute<S>(to_compute(old) + to_compute(v)); }
};
template <class S> struct AtomicMax {
  S v;
  WICK_MEMBER S operator()(S old) const { return from_compute<S>(maxg<S>(to_compute(old), to_compute(v))); }
};
template <class S> struct AtomicMin {
  S v;
  WICK_MEMBER S operator()(S old) const { return from_compute<S>(ming<S>(to_compute(old), to_compute(v))); }
};
template <class S> WICK_FN S atomic_add(S* p, S v) {
#ifndef WICK_HOST
  if constexpr (same<S, float>) return atomicAdd(p, v);
  else
#endif
  if constexpr (same<S, i32>) return (i32)atomic_add((u32*)p, (u32)v);
  else if constexpr (same<S, i64>) return (i64)atomic_add((u64*)p, (u64)v);
  else return atomic_update(p, AtomicSum<S>{v});
}
template <class S> WICK_FN S atomic_max(S* p, S v) { return atomic_update(p, AtomicMax<S>{v}); }
template <class S> WICK_FN S atomic_min(S* p, S v) { return atomic_update(p, AtomicMin<S>{v}); }

// ---- four signed bytes at a time ----

/** c plus the products of the four signed bytes of a and b. */
WICK_FN i32 dp4a(i32 a, i32 b, i32 c) {
#if defined(WICK_NVIDIA) && defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 610
  i32 r;
  asm("dp4a.s32.s32 %0, %1, %2, %3;" : "=r"(r) : "r"(a), "r"(b), "r"(c));
  return r;
#elif defined(__gfx906__) || defined(__gfx908__) || defined(__gfx90a__) || defined(__gfx942__) || defined(__gfx1011__) || \
    defined(__gfx1012__) || defined(__gfx1030__) || defined(__gfx1031__) || defined(__gfx1032__) || defined(__gfx1034__)
  return __builtin_amdgcn_sdot4(a, b, c, false);
#elif defined(__gfx1100__) || defined(__gfx1101__) || defined(__gfx1102__) || defined(__gfx1200__) || defined(__gfx1201__)
  return __builtin_amdgcn_sudot4(true, a, true, b, c, false);
#else
  for (int i = 0; i < 32; i += 8) c += (i32)(i8)(a >> i) * (i32)(i8)(b >> i);
  return c;
#endif
}

// ---- 16-byte accesses ----

#if defined(WICK_NVIDIA)
typedef uint4 word4;
#else
typedef u32 word4 __attribute__((vector_size(16)));
#endif
/** Its four 32-bit words, and back; arrays of words stay in registers where arrays of bytes may not. */
WICK_FN void split_words(word4 v, u32* w) {
#if defined(WICK_NVIDIA)
  w[0] = v.x, w[1] = v.y, w[2] = v.z, w[3] = v.w;
#else
  w[0] = v[0], w[1] = v[1], w[2] = v[2], w[3] = v[3];
#endif
}
WICK_FN word4 join_words(const u32* w) {
  word4 v = {w[0], w[1], w[2], w[3]};
  return v;
}
/** How many S fit one 16-byte access. */
template <class S> constexpr int pack_size = 16 / sizeof(S);
/** What a pack is moved as: cut like its elements, for LLVM leaves a union of differently cut vectors in memory. */
template <int Bytes> struct PackWords { typedef word4 type; };
#if !defined(WICK_NVIDIA)
typedef u8 word_bytes __attribute__((vector_size(16)));
typedef u16 word_halves __attribute__((vector_size(16)));
template <> struct PackWords<1> { typedef word_bytes type; };
template <> struct PackWords<2> { typedef word_halves type; };
#endif
template <class S> union Pack {
  typename PackWords<sizeof(S)>::type words;
  S v[16 / sizeof(S)];
};
/** p must be 16-byte aligned. */
template <class S> WICK_FN Pack<S> load_pack(const S* p) {
  Pack<S> r;
  r.words = *(const decltype(r.words)*)p;
  return r;
}
template <class S> WICK_FN void store_pack(S* p, Pack<S> value) { *(decltype(value.words)*)p = value.words; }
WICK_FN bool aligned16(const void* p) { return ((u64)p & 15) == 0; }

// ---- Candle's strided index: info = dims then strides per operand, in elements ----

WICK_FN u64 strided_index(u64 i, u64 rank, const u64* dims, const u64* strides) {
  u64 at = 0;
  for (u64 d = rank; d-- > 0;) {
    u64 q = i / dims[d];
    at += (i - q * dims[d]) * strides[d];
    i = q;
  }
  return at;
}
WICK_FN bool is_contiguous(u64 rank, const u64* dims, const u64* strides) {
  u64 size = 1;
  for (u64 d = rank; d-- > 0;) {
    if (dims[d] > 1 && strides[d] != size) return false;
    size *= dims[d];
  }
  return true;
}
/** Where element i of an operand lies, by Candle's `info`: dims, then the strides of operand 0, 1, ...; null means contiguous. */
struct InfoLayout {
  u64 rank;
  const u64* dims;
  const u64* strides;
  bool dense;
  WICK_MEMBER InfoLayout(const u64* info, u64 num_dims, u32 operand)
      : rank(num_dims), dims(info), strides(info ? info + num_dims * (1 + operand) : nullptr),
        dense(!info || is_contiguous(num_dims, info, strides)) {}
  WICK_MEMBER u64 operator[](u64 i) const { return dense ? i : strided_index(i, rank, dims, strides); }
};

// ---- one line for several element types: FOR_FLOATS(ENTRY, usomething, op) makes ENTRY(usomething_f32, float, op) and so on ----

#define FOR_REALS(M, STEM, ...)               \
  M(STEM##_f32, float, ##__VA_ARGS__)         \
  M(STEM##_f64, double, ##__VA_ARGS__)        \
  M(STEM##_f16, half, ##__VA_ARGS__)          \
  M(STEM##_bf16, bfloat, ##__VA_ARGS__)
#define FOR_INTS(M, STEM, ...)                \
  M(STEM##_u8, u8, ##__VA_ARGS__)             \
  M(STEM##_u32, u32, ##__VA_ARGS__)           \
  M(STEM##_i16, i16, ##__VA_ARGS__)           \
  M(STEM##_i32, i32, ##__VA_ARGS__)           \
  M(STEM##_i64, i64, ##__VA_ARGS__)
#define FOR_CANDLE_INTS(M, STEM, ...)         \
  M(STEM##_u8, u8, ##__VA_ARGS__)             \
  M(STEM##_u32, u32, ##__VA_ARGS__)           \
  M(STEM##_i64, i64, ##__VA_ARGS__)

// Candle's cast module: out[i] = inp[i] in another element type; ours has all hundred pairs.
// Floats become integers by truncation, saturating at 32 or 64 bits; u8 and i16 keep the low bits of that, as Candle's do
// (a cast of tensors saturates at the type itself); NaN is 0.
#include "portable.h"

template <class D, class S> WICK_FN D candle_cast(S s) {
  if constexpr (is_float<S> && same<D, u8>) return (u8)to_int<u32>(to_compute(s));
  else if constexpr (is_float<S> && same<D, i16>) return (i16)to_int<i32>(to_compute(s));
  else return convert<D>(s);
}

#define CAST(NAME, S, D)                                                                          \
  KERNEL(1024) NAME(const u64 numel, const u64 num_dims, const u64* info, const S* inp, D* out) { \
    const InfoLayout from(info, num_dims, 0);                                                     \
    GRID_STRIDE(i, numel) out[i] = candle_cast<D>(inp[from[i]]);                                  \
  }
#define CAST_FROM(STEM, S)     \
  CAST(STEM##_u8, S, u8)       \
  CAST(STEM##_u32, S, u32)     \
  CAST(STEM##_i16, S, i16)     \
  CAST(STEM##_i32, S, i32)     \
  CAST(STEM##_i64, S, i64)     \
  CAST(STEM##_f32, S, float)   \
  CAST(STEM##_f64, S, double)  \
  CAST(STEM##_f16, S, half)    \
  CAST(STEM##_bf16, S, bfloat) \
  CAST(STEM##_f8_e4m3, S, fp8)

CAST_FROM(cast_u8, u8)
CAST_FROM(cast_u32, u32)
CAST_FROM(cast_i16, i16)
CAST_FROM(cast_i32, i32)
CAST_FROM(cast_i64, i64)
CAST_FROM(cast_f32, float)
CAST_FROM(cast_f64, double)
CAST_FROM(cast_f16, half)
CAST_FROM(cast_bf16, bfloat)
CAST_FROM(cast_f8_e4m3, fp8)

// Candle's cast module: out[i] = inp[i] in another element type; ours has all hundred pairs.
// Floats become integers by truncation, saturating at 32 or 64 bits; u8 and i16 keep the low bits of that, as Candle's
// do (a cast of tensors saturates at the type itself); NaN is 0.
#include "portable.h"

template <class D, class S> WICK_FN D candle_cast(S s) {
  if constexpr (is_float<S> && same<D, u8>) return (u8)to_int<u32>(to_compute(s));
  else if constexpr (is_float<S> && same<D, i16>) return (i16)to_int<i32>(to_compute(s));
  else return convert<D>(s);
}

template <class S, class D> WICK_FN void cast(u64 numel, u64 num_dims, const u64* info, const S* inp, D* out) {
  const InfoLayout from(info, num_dims, 0);
  GRID_STRIDE(i, numel) out[i] = candle_cast<D>(inp[from[i]]);
}

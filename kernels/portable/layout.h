// Part of portable.h: Candle's strided index: info = dims then strides per operand, in elements.
#pragma once

WICK_FN u64 strided_index(u64 i, u64 rank, const u64* dims, const u64* strides) {
  u64 at = 0;
  ROLLED
  for (u64 d = rank; d-- > 0;) {
    u64 q = i / dims[d];
    at += (i - q * dims[d]) * strides[d];
    i = q;
  }
  return at;
}
/** The same for N operands in one walk; their strides follow one another. */
template <int N> WICK_FN void strided_indices(u64 i, u64 rank, const u64* dims, const u64* strides, u64 (&at)[N]) {
#pragma unroll
  for (int k = 0; k < N; k++) at[k] = 0;
  ROLLED
  for (u64 d = rank; d-- > 0;) {
    const u64 q = i / dims[d], r = i - q * dims[d];
#pragma unroll
    for (int k = 0; k < N; k++) at[k] += r * strides[k * rank + d];
    i = q;
  }
}
WICK_FN bool is_contiguous(u64 rank, const u64* dims, const u64* strides) {
  u64 size = 1;
  ROLLED
  for (u64 d = rank; d-- > 0;) {
    if (dims[d] > 1 && strides[d] != size) return false;
    size *= dims[d];
  }
  return true;
}
/**
 * Where element i of an operand lies, by Candle's `info`: dims, then the strides of operand 0, 1, ...; null means
 * contiguous.
 */
struct InfoLayout {
  u64 rank;
  const u64* dims;
  const u64* strides;
  bool dense;
  WICK_MEMBER InfoLayout(const u64* info, u64 num_dims, u32 operand)
      : rank(num_dims),
        dims(info),
        strides(info ? info + num_dims * (1 + operand) : nullptr),
        dense(!info || is_contiguous(num_dims, info, strides)) {}
  WICK_MEMBER u64 operator[](u64 i) const { return dense ? i : strided_index(i, rank, dims, strides); }
};

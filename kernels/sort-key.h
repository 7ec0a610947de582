// Keys of a sort: unsigned integers in the order of the values; -0 equals +0 and NaN is the largest.
#pragma once
#include "block.h"

template <int BYTES> struct UnsignedOf { typedef u32 type; };
template <> struct UnsignedOf<1> { typedef u8 type; };
template <> struct UnsignedOf<2> { typedef u16 type; };
template <> struct UnsignedOf<8> { typedef u64 type; };
template <class S> using key_t_of = typename UnsignedOf<sizeof(S)>::type;

template <class S> WICK_FN key_t_of<S> sort_key(S x, bool descending) {
  typedef key_t_of<S> U;
  constexpr U sign = (U)((U)1 << (sizeof(U) * 8 - 1));
  U key = bits_as<U>(x);
  if constexpr (is_float<S>) {
    const auto v = to_compute(x);
    if (v != v) key = (U) ~(U)0;
    else if (v == 0) key = sign;
    else key = key & sign ? (U)~key : (U)(key | sign);
  } else if constexpr (S(-1) < S(0)) key = (U)(key ^ sign);
  return descending ? (U)~key : key;
}
/** Whether several values have this key, so that it does not tell which of them it was made from: zeros and NaN. */
template <class S> WICK_FN bool is_shared_key(key_t_of<S> key, bool descending) {
  typedef key_t_of<S> U;
  if constexpr (!is_float<S>) return false;
  else {
    const U k = descending ? (U)~key : key;
    return k == (U) ~(U)0 || k == (U)((U)1 << (sizeof(U) * 8 - 1));
  }
}
/** The value of a key that no other value has. */
template <class S> WICK_FN S value_of_key(key_t_of<S> key, bool descending) {
  typedef key_t_of<S> U;
  constexpr U sign = (U)((U)1 << (sizeof(U) * 8 - 1));
  U k = descending ? (U)~key : key;
  if constexpr (is_float<S>) k = k & sign ? (U)(k ^ sign) : (U)~k;
  else if constexpr (S(-1) < S(0)) k = (U)(k ^ sign);
  return bits_as<S>(k);
}

// Windows over a plane: what pooling shares, ours and that under Candle's names.
#pragma once
#include "block.h"

/** What windows of integers add up in: wide enough not to wrap. */
template <class S> struct AverageOf { typedef u64 type; };
template <> struct AverageOf<float> { typedef float type; };
template <> struct AverageOf<double> { typedef double type; };
template <> struct AverageOf<half> { typedef float type; };
template <> struct AverageOf<bfloat> { typedef float type; };

/** A window's rows [y0, y1) and columns [z0, z1) inside a plane. */
struct Window {
  i64 y0, y1, z0, z1;
};
template <class S> WICK_FN S average(const S* plane, u64 sy, u64 sz, Window v, i64 area) {
  typedef typename AverageOf<S>::type A;
  A sum = 0;
  for (i64 y = v.y0; y < v.y1; y++)
    for (i64 z = v.z0; z < v.z1; z++) sum += (A)to_compute(plane[(u64)y * sy + (u64)z * sz]);
  return from_compute<S>(sum / (A)area);
}
template <class S> WICK_FN S largest(const S* plane, u64 sy, u64 sz, Window v) {
  compute_t<S> top = Max<S>::identity();
  for (i64 y = v.y0; y < v.y1; y++)
    for (i64 z = v.z0; z < v.z1; z++) top = Max<S>::join(top, to_compute(plane[(u64)y * sy + (u64)z * sz]));
  return from_compute<S>(top);
}

// What norms and their gradients know of a row: its mean and the inverse of its deviation, and its weights.
#pragma once
#include "stream.h"

template <class A> struct Stats { A mean, rstd; };

/**
 * Mean and reciprocal deviation of a row of which every lane has a share; deviations take the place of a share that is
 * unpacked.
 */
template <bool CENTER, class X, class W, class A>
WICK_FN Stats<A> share_stats(X& x, W& walk, i64 cols, double eps, A (&slots)[2][WAVE_SLOTS]) {
  A mean = 0, square = 0;
  if constexpr (CENTER) {
#pragma unroll
    for (int p = 0; p < X::VECTORS; p++) {
      const A* v = x.at(p);
#pragma unroll
      for (int i = 0; i < X::WIDTH; i++) mean += v[i];
    }
    mean = walk.join(mean, slots, Add()) / (A)cols;
  }
#pragma unroll
  for (int p = 0; p < X::VECTORS; p++) {
    A* v = x.at(p);
    const A middle = CENTER && x.has(p) ? mean : (A)0;
#pragma unroll
    for (int i = 0; i < X::WIDTH; i++) {
      if constexpr (CENTER) v[i] -= middle;
      square = fmag(v[i], v[i], square);
    }
  }
  Stats<A> stats = {mean, rsqrtg(walk.join(square, slots, Add()) / (A)cols + (A)eps)};
  return stats;
}
/** The same of a row that is read again at each use. */
template <bool CENTER, int V, class S, class W, class A>
WICK_FN Stats<A> row_stats(const S* row, W& walk, i64 n, i64 cols, double eps, A (&slots)[2][WAVE_SLOTS]) {
  const i64 first = (i64)walk.lane * V, step = (i64)walk.lanes * V;
  A mean = 0, square = 0, v[V];
  if constexpr (CENTER) {
    ROLLED
    for (i64 c = first; c < n; c += step) {
      load_v<V>(row + c, v);
#pragma unroll
      for (int i = 0; i < V; i++) mean += v[i];
    }
    mean = walk.join(mean, slots, Add()) / (A)cols;
  }
  ROLLED
  for (i64 c = first; c < n; c += step) {
    load_v<V>(row + c, v);
#pragma unroll
    for (int i = 0; i < V; i++) square = fmag(v[i] - mean, v[i] - mean, square);
  }
  Stats<A> stats = {mean, rsqrtg(walk.join(square, slots, Add()) / (A)cols + (A)eps)};
  return stats;
}

/**
 * V weights or biases, `otherwise` where there are none: asked anew each time, for compilers would make a loop for
 * every answer.
 */
template <int V, class S, class A> WICK_FN void load_or(const S* from, i64 c, A otherwise, A (&v)[V]) {
#ifdef WICK_NVIDIA
  asm volatile("" : "+l"(from));
#endif
  if (from) load_v<V>(from + c, v);
  else
#pragma unroll
    for (int i = 0; i < V; i++) v[i] = otherwise;
}
/** The weights or biases of a share as they are stored, all on their way at once. */
template <int V, int P, class S, class X>
WICK_FN void open_factors(decltype(load_some<V>((const S*)nullptr)) (&held)[P], const S* from, compute_t<S> otherwise,
                          const X& x) {
  if (from) {
#pragma unroll
    for (int p = 0; p < P; p++) held[p] = load_some<V>(from + (x.has(p) ? x.column(p) : 0));
  } else {
    compute_t<S> v[V];
    x.fill(v, otherwise);
    store_v<V>((S*)&held[0], v);
#pragma unroll
    for (int p = 1; p < P; p++) held[p] = held[0];
  }
}

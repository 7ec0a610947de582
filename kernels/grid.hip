// Pictures read at the places of a grid, and the gradients. Launches: src/backends/gpu/grid.ts.
//
// x is [n, c, h, w], the grid [n, count, 2] (the last dimension first), the result [n, c, count]; all contiguous.
//   grid_planes        a block has some planes of a picture in shared memory, for places jump about in them
//   grid_each          a thread a place of some planes, which are read where they are
//   grid_keys          the cell of each place, as keys to sort: cells lie between four pixels, so there is one more
//                      each way; nearest ones are the pixels; what lies outside comes last
//   grid_starts        where each cell's places begin among the sorted ones
//   grid_spots         the sorted places with their shares of the pixels around, once for all planes
//   grid_input, grid_input_each   gradient of x: every pixel adds up what the places around it have of it, cell by cell
//                      and place by place, so sums have one order; gradients in shared memory, or where they are
//   grid_moved         gradient of the grid: a thread a place, over all planes
#include "block.h"
#include "quotient.h"
#include "settle.h"

/** Sizes, and how places are meant: padding 0 zeros, 1 the border, 2 mirrored. */
struct Grid {
  i64 n, c, h, w, count;
  i32 padding, corners;
};
constexpr u32 GRID_PLANES = 4;

/** Where a number of the grid lies along n pixels, and how it moves with it. */
template <class A> struct Along { A at, slope; };
template <class A> WICK_FN Along<A> along(A told, i64 n, const Grid& s) {
  const A last = (A)(n - 1), half = (s.corners ? last : (A)n) * (A)0.5;
  A at = fmag(told, half, last * (A)0.5), slope = half;
  if (s.padding == 2) {
    const A low = s.corners ? (A)0 : (A)-0.5, span = s.corners ? last : (A)n;
    if (span == 0) {
      at = slope = 0;
    } else {
      const A away = absg(at - low), extra = fmodg(away, span), turns = floorg(away / span);
      const bool back = fmodg(turns, (A)2) == (A)1;
      slope = at < low ? -slope : slope;
      at = back ? span + low - extra : extra + low;
      slope = back ? -slope : slope;
    }
  }
  if (s.padding != 0) {
    slope = (at >= 0) & (at <= last) ? slope : (A)0;
    at = at < 0 ? (A)0 : at > last ? last : at;  // NaN stays
  }
  return {at, slope};
}
template <class A> WICK_FN bool within(A at, i64 n) { return (at >= 0) & (at <= (A)(n - 1)); }

constexpr u32 OUTSIDE = 0xffffffffu;
/** The pixels around a place (both low, the row high, the column high, both; or the nearest one), and their shares. */
template <class A> struct Around {
  u32 pixel[4];
  A share[4];
};
template <bool NEAREST, class A> WICK_FN Around<A> around(A y, A x, const Grid& s) {
  Around<A> r;
  if constexpr (NEAREST) {
    const A v = rintg(y), u = rintg(x);
    r.pixel[0] = within(v, s.h) && within(u, s.w) ? (u32)(i32)v * (u32)s.w + (u32)(i32)u : OUTSIDE;
  } else {
    const A v = floorg(y), u = floorg(x), fy = y - v, fx = x - u;
    const bool top = within(v, s.h), bottom = within(v + 1, s.h), left = within(u, s.w), right = within(u + 1, s.w);
    const bool any = (top | bottom) & (left | right);
    const i32 first = any ? (i32)v * (i32)s.w + (i32)u : 0;
    r.pixel[0] = top & left ? (u32)first : OUTSIDE;
    r.pixel[1] = bottom & left ? (u32)(first + (i32)s.w) : OUTSIDE;
    r.pixel[2] = top & right ? (u32)(first + 1) : OUTSIDE;
    r.pixel[3] = bottom & right ? (u32)(first + (i32)s.w + 1) : OUTSIDE;
    r.share[0] = (1 - fy) * (1 - fx), r.share[1] = fy * (1 - fx), r.share[2] = (1 - fy) * fx, r.share[3] = fy * fx;
  }
  return r;
}
template <class S> WICK_FN compute_t<S> pixel_of(const S* plane, u32 pixel) {
  return pixel == OUTSIDE ? (compute_t<S>)0 : to_compute(plane[pixel]);
}
template <bool NEAREST, class S> WICK_FN S shown_at(const S* plane, const Around<compute_t<S>>& p) {
  if constexpr (NEAREST) return p.pixel[0] == OUTSIDE ? from_compute<S>((compute_t<S>)0) : plane[p.pixel[0]];
  else {
    compute_t<S> sum = pixel_of(plane, p.pixel[0]) * p.share[0];
#pragma unroll
    for (int k = 1; k < 4; k++) sum = fmag(pixel_of(plane, p.pixel[k]), p.share[k], sum);
    return from_compute<S>(sum);
  }
}
/** Place i of picture n. */
template <bool NEAREST, class A> WICK_FN Around<A> around_place(const A* grid, u64 n, u64 i, const Grid& s) {
  const A* told = grid + 2 * (n * (u64)s.count + i);
  return around<NEAREST>(along(told[1], s.h, s).at, along(told[0], s.w, s).at, s);
}

/** Elements from memory to shared memory, 16 bytes at a time where they lie so. */
template <class S> WICK_FN void bring(const S* from, S* to, u32 count) {
  u32 i = threadIdx.x;
  if (aligned16(from)) {
    constexpr u32 V = pack_size<S>;
    UNROLL(2, 4)
    for (u32 p = threadIdx.x; p < count / V; p += blockDim.x) store_pack(to + p * V, load_pack(from + p * V));
    i += count / V * V;
  }
  ROLLED
  for (; i < count; i += blockDim.x) to[i] = from[i];
}
/** The planes of a block: picture, first channel and how many of `each`. */
struct BlockPlanes {
  u64 n, first;
  u32 here;
  WICK_MEMBER BlockPlanes(const Grid& s, u32 each) {
    const u64 groups = ((u64)s.c + each - 1) / each;
    n = quotient(blockIdx.x, groups);
    first = (blockIdx.x - n * groups) * each;
    here = (u64)s.c - first < each ? (u32)((u64)s.c - first) : each;
  }
};

template <bool NEAREST, class S>
WICK_FN void grid_planes(const S* src, const compute_t<S>* grid, S* dst, u32 each, const Grid& s) {
  DYNAMIC_SHARED(S, planes);
  const BlockPlanes some(s, each);
  const u32 plane = (u32)(s.h * s.w), count = (u32)s.count;
  const u64 first = some.n * (u64)s.c + some.first;
  bring(src + first * plane, planes, some.here * plane);
  __syncthreads();
  S* to = dst + first * count;
  UNROLL(1, 2)
  for (u32 i = threadIdx.x; i < count; i += blockDim.x) {
    const auto p = around_place<NEAREST>(grid, some.n, i, s);
#pragma unroll
    for (u32 k = 0; k < GRID_PLANES; k++)
      if (k < some.here) to[(u64)k * count + i] = shown_at<NEAREST>(planes + k * plane, p);
  }
}
template <bool NEAREST, class S> WICK_FN void grid_each(const S* src, const compute_t<S>* grid, S* dst, const Grid& s) {
  constexpr u32 P = 2 * GRID_PLANES;
  const u64 groups = ((u64)s.c + P - 1) / P, plane = (u64)(s.h * s.w), count = (u64)s.count;
  GRID_STRIDE(t, (u64)s.n * groups * count) {
    const u64 some = quotient(t, count), i = t - some * count, n = quotient(some, groups), c = (some - n * groups) * P,
              first = n * (u64)s.c + c;
    const u32 here = (u64)s.c - c < P ? (u32)((u64)s.c - c) : P;
    const auto p = around_place<NEAREST>(grid, n, i, s);
    S v[P];
#pragma unroll
    for (u32 k = 0; k < P; k++)
      if (k < here) v[k] = shown_at<NEAREST>(src + (first + k) * plane, p);
#pragma unroll
    for (u32 k = 0; k < P; k++)
      if (k < here) dst[(first + k) * count + i] = v[k];
  }
}

/** Cells of a picture, without the last one, of what lies outside. */
template <bool NEAREST> WICK_FN u64 cells_of(const Grid& s) {
  return NEAREST ? (u64)(s.h * s.w) : (u64)((s.h + 1) * (s.w + 1));
}
template <bool NEAREST, class A> WICK_FN void grid_keys(const A* grid, u32* keys, const Grid& s) {
  GRID_STRIDE(t, (u64)(s.n * s.count)) {
    const A *told = grid + 2 * t, y = along(told[1], s.h, s).at, x = along(told[0], s.w, s).at;
    u64 key = cells_of<NEAREST>(s);
    if constexpr (NEAREST) {
      const A v = rintg(y), u = rintg(x);
      if (within(v, s.h) && within(u, s.w)) key = (u64)v * (u64)s.w + (u64)u;
    } else {
      const A v = floorg(y) + 1, u = floorg(x) + 1;
      if (within(v, s.h + 1) && within(u, s.w + 1)) key = (u64)v * (u64)(s.w + 1) + (u64)u;
    }
    keys[t] = (u32)key;
  }
}
template <bool NEAREST> WICK_FN void grid_starts(const u32* sorted, u32* starts, const Grid& s) {
  const u64 ends = cells_of<NEAREST>(s) + 1;
  GRID_STRIDE(t, (u64)s.n * ends) {
    const u64 n = quotient(t, ends);
    const u32 cell = (u32)(t - n * ends);
    const u32* keys = sorted + n * (u64)s.count;
    u32 low = 0, high = (u32)s.count;
    ROLLED
    while (low < high) {
      const u32 middle = (low + high) / 2;
      if (keys[middle] < cell) low = middle + 1;
      else high = middle;
    }
    starts[t] = low;
  }
}
/** A place in the order of cells: how far it is from the cell's first pixel, and its number. */
template <class A> struct alignas(16) Spot {
  A y, x;
  u32 place, unused;
};
template <class A> WICK_FN void grid_spots(const A* grid, const u32* order, Spot<A>* spots, const Grid& s) {
  GRID_STRIDE(t, (u64)(s.n * s.count)) {
    const u64 n = quotient(t, (u64)s.count);
    const u32 i = order[t];
    const A *told = grid + 2 * (n * (u64)s.count + i), y = along(told[1], s.h, s).at, x = along(told[0], s.w, s).at;
    const Spot<A> spot = {y - floorg(y), x - floorg(x), i, 0};
    spots[t] = spot;
  }
}
/** What pixel (y, x) of each plane takes of the gradients of places; `plane` gradients from one plane to the next. */
template <bool NEAREST, u32 P, class S>
WICK_FN void gathered(compute_t<S> (&sum)[P], const S* grad, u64 plane, u32 here, const Spot<compute_t<S>>* spots,
                      const u32* starts, u32 y, u32 x, const Grid& s) {
  typedef compute_t<S> A;
  // Two cells beside each other follow one another among the sorted places, too: a pixel is the right one of the first.
  const auto add = [&](u32 cell, bool low) {
    const u32 left = starts[cell + 1], end = NEAREST ? left : starts[cell + 2];
    ROLLED
    for (u32 i = starts[cell]; i < end; i++) {
      const Spot<A> spot = spots[i];
      const S* from = grad + spot.place;
      const A share = (low ? 1 - spot.y : spot.y) * (i >= left ? 1 - spot.x : spot.x);
#pragma unroll
      for (u32 k = 0; k < P; k++)
        if (k < here) {
          const A g = to_compute(from[k * plane]);
          sum[k] = NEAREST ? sum[k] + g : fmag(g, share, sum[k]);
        }
    }
  };
  if constexpr (NEAREST) add(y * (u32)s.w + x, true);
  else {
    const u32 above = y * (u32)(s.w + 1) + x;
    add(above, false);
    add(above + (u32)(s.w + 1), true);
  }
}
template <bool NEAREST, class S>
WICK_FN void grid_input(const S* grad, const Spot<compute_t<S>>* spots, const u32* starts, S* dx, u32 each,
                        const Grid& s) {
  DYNAMIC_SHARED(S, grads);
  const BlockPlanes some(s, each);
  const u32 plane = (u32)(s.h * s.w), count = (u32)s.count;
  const u64 first = some.n * (u64)s.c + some.first;
  bring(grad + first * count, grads, some.here * count);
  __syncthreads();
  const u32* begin = starts + some.n * (cells_of<NEAREST>(s) + 1);
  for (u32 i = threadIdx.x; i < plane; i += blockDim.x) {
    compute_t<S> sum[GRID_PLANES] = {};
    const u32 y = i / (u32)s.w;
    gathered<NEAREST, GRID_PLANES>(sum, grads, count, some.here, spots + some.n * count, begin, y, i - y * (u32)s.w, s);
#pragma unroll
    for (u32 k = 0; k < GRID_PLANES; k++)
      if (k < some.here) dx[(first + k) * plane + i] = from_compute<S>(sum[k]);
  }
}
template <bool NEAREST, class S>
WICK_FN void grid_input_each(const S* grad, const Spot<compute_t<S>>* spots, const u32* starts, S* dx, const Grid& s) {
  constexpr u32 P = GRID_PLANES;
  const u64 groups = ((u64)s.c + P - 1) / P, plane = (u64)(s.h * s.w), count = (u64)s.count;
  GRID_STRIDE(t, (u64)s.n * groups * plane) {
    const u64 some = quotient(t, plane), i = t - some * plane, n = quotient(some, groups), c = (some - n * groups) * P,
              first = n * (u64)s.c + c, y = quotient(i, (u64)s.w);
    const u32 here = (u64)s.c - c < P ? (u32)((u64)s.c - c) : P;
    compute_t<S> sum[P] = {};
    gathered<NEAREST, P>(sum, grad + first * count, count, here, spots + n * count,
                         starts + n * (cells_of<NEAREST>(s) + 1), (u32)y, (u32)(i - y * (u64)s.w), s);
#pragma unroll
    for (u32 k = 0; k < P; k++)
      if (k < here) dx[(first + k) * plane + i] = from_compute<S>(sum[k]);
  }
}

template <class S>
WICK_FN void grid_moved(const S* src, const compute_t<S>* grid, const S* grad, compute_t<S>* dst, const Grid& s) {
  typedef compute_t<S> A;
  const u64 plane = (u64)(s.h * s.w), count = (u64)s.count;
  GRID_STRIDE(t, (u64)s.n * count) {
    const u64 n = quotient(t, count), i = t - n * count;
    const A* told = grid + 2 * t;
    const Along<A> y = along(told[1], s.h, s), x = along(told[0], s.w, s);
    const Around<A> p = around<false>(y.at, x.at, s);
    const A fy = y.at - floorg(y.at), fx = x.at - floorg(x.at);
    A down = 0, across = 0;
    const S* from = src + n * (u64)s.c * plane;
    const S* by = grad + n * (u64)s.c * count + i;
    UNROLL(1, 4)
    for (i64 c = 0; c < s.c; c++, from += plane, by += count) {
      const A g = to_compute(*by), v00 = pixel_of(from, p.pixel[0]), v10 = pixel_of(from, p.pixel[1]),
              v01 = pixel_of(from, p.pixel[2]), v11 = pixel_of(from, p.pixel[3]);
      down = fmag(g, fmag(v11 - v01, fx, (v10 - v00) * (1 - fx)), down);
      across = fmag(g, fmag(v11 - v10, fy, (v01 - v00) * (1 - fy)), across);
    }
    dst[2 * t] = across * x.slope;
    dst[2 * t + 1] = down * y.slope;
  }
}

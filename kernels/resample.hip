// Resizing: nearest neighbours and bilinear, under Candle's names and with its parameters, and the gradient; and axes
// by tables, for every other way. Launches: src/backends/gpu/resample.ts.
//
// A thread makes one pixel of some planes, since all planes are read at the same places with the same weights; any
// grid. info holds dims then strides of the source; w is dimension 2 and h dimension 3 of nearest2d, the other way
// round of bilinear. bilinear_grad: each source pixel gathers from the pixels it was spread
// to, so sums have one order.
#include "block.h"
#include "quotient.h"
#include "settle.h"

/** floor(i * scale) in double, never past the end. */
WICK_FN u64 nearest(u64 i, double scale, u64 length) {
  const u64 at = (u64)((double)i * scale);
  return at < length ? at : length - 1;
}
constexpr u32 PLANES = 8;
/** The planes of one thread: `here` from `first` on, which lie where `next` says, one after another. */
struct SomePlanes {
  u64 pixel, first;
  u32 here;
  u64 image, channel, channels, image_step, channel_step;
  WICK_MEMBER SomePlanes(u64 i, u64 pixels, u64 planes) {
    const u64 group = quotient(i, pixels);
    pixel = i - group * pixels, first = group * PLANES;
    here = planes - first < PLANES ? (u32)(planes - first) : PLANES;
  }
  WICK_MEMBER void lie(u64 count, u64 of_image, u64 of_channel) {
    channels = count, image_step = of_image, channel_step = of_channel;
    image = quotient(first, channels), channel = first - image * channels;
  }
  WICK_MEMBER u64 next() {
    const u64 at = image * image_step + channel * channel_step;
    if (++channel == channels) channel = 0, image++;
    return at;
  }
};
WICK_FN u64 plane_groups(u64 planes) { return (planes + PLANES - 1) / PLANES; }
template <class S>
WICK_FN void nearest2d(u64 w_out, u64 h_out, double w_scale, double h_scale, const size_t* info, const S* src, S* dst) {
  const size_t *x = info, *xs = info + 4;
  const u64 pixels = w_out * h_out, planes = x[0] * x[1];
  GRID_STRIDE(i, pixels * plane_groups(planes)) {
    SomePlanes some(i, pixels, planes);
    some.lie(x[1], xs[0], xs[1]);
    const u64 row = quotient(some.pixel, h_out), y = nearest(row, w_scale, x[2]),
              z = nearest(some.pixel - row * h_out, h_scale, x[3]);
    const S* from = src + y * xs[2] + z * xs[3];
    S v[PLANES];
#pragma unroll
    for (u32 k = 0; k < PLANES; k++)
      if (k < some.here) v[k] = from[some.next()];
#pragma unroll
    for (u32 k = 0; k < PLANES; k++)
      if (k < some.here) dst[(some.first + k) * pixels + some.pixel] = v[k];
  }
}
template <class S> WICK_FN void nearest1d(u64 l_out, double l_scale, const size_t* info, const S* src, S* dst) {
  const size_t *x = info, *xs = info + 3;
  GRID_STRIDE(i, x[0] * x[1] * l_out) {
    const u64 z = nearest(i % l_out, l_scale, x[2]), plane = i / l_out;
    dst[i] = src[plane / x[1] * xs[0] + plane % x[1] * xs[1] + z * xs[2]];
  }
}

/** Where a place of the resized axis lies between two source places. */
struct Between {
  i64 low, high;
  double weight;
};
WICK_FN double resize_step(u64 length, u64 out, bool corners, bool has_scale, double scale) {
  if (corners) return out > 1 ? (double)(length - 1) / (double)(out - 1) : 0.0;
  return has_scale ? 1.0 / scale : (double)length / (double)out;
}
WICK_FN Between between(i64 i, double step, bool corners, i64 length) {
  double at = corners ? step * (double)i : fmag(step, (double)i + 0.5, -0.5);
  if (at < 0) at = 0;
  i64 low = (i64)at;
  if (low > length - 1) low = length - 1;
  double weight = at - (double)low;
  Between b = {low, low + 1 < length ? low + 1 : length - 1, weight > 1 ? 1.0 : weight};
  return b;
}
/** A weighted sum of doubles in the dtype. */
template <class S> WICK_FN S rounded(double v) {
  if constexpr (is_float<S>) return round_to<S>(v);
  else return to_int<S>(v);
}
template <class S>
WICK_FN void bilinear(u64 w_out, u64 h_out, bool corners, double step_h, double step_w, const u64* info, const S* src,
                      S* dst) {
  const u64 *x = info, *xs = info + 4;
  const u64 pixels = h_out * w_out, planes = x[0] * x[1];
  GRID_STRIDE(i, pixels * plane_groups(planes)) {
    SomePlanes some(i, pixels, planes);
    some.lie(x[1], xs[0], xs[1]);
    const u64 row = quotient(some.pixel, w_out);
    const Between c = between((i64)(some.pixel - row * w_out), step_w, corners, (i64)x[3]),
                  r = between((i64)row, step_h, corners, (i64)x[2]);
    const u64 top = (u64)r.low * xs[2], bottom = (u64)r.high * xs[2], left = (u64)c.low * xs[3],
              right = (u64)c.high * xs[3];
#pragma unroll
    for (u32 some_of = 0; some_of < PLANES; some_of += 4) {
      S v[4][4];
#pragma unroll
      for (u32 k = 0; k < 4; k++) {
        if (some_of + k >= some.here) continue;
        const S* from = src + some.next();
        v[k][0] = from[top + left], v[k][1] = from[top + right];
        v[k][2] = from[bottom + left], v[k][3] = from[bottom + right];
      }
#pragma unroll
      for (u32 k = 0; k < 4; k++) {
        if (some_of + k >= some.here) continue;
        const auto at = [&](int corner) { return (double)to_compute(v[k][corner]); };
        // Candle's order, with the multiply-adds its compiler makes of it: integers are cut off, and a last bit would
        // show.
        const double above = fmag(at(0), 1 - c.weight, at(1) * c.weight);
        const double below = fmag(at(2), 1 - c.weight, at(3) * c.weight);
        dst[(some.first + some_of + k) * pixels + some.pixel] = rounded<S>(fmag(above, 1 - r.weight, below * r.weight));
      }
    }
  }
}

/** The resized places that may show source place y: all between first and last, and no other. */
struct Shown {
  i64 first, last;
};
WICK_FN Shown shown(i64 y, double step, bool corners, i64 length, i64 out) {
  Shown s = {0, out - 1};
  if (step <= 0) return s;
  const double shift = corners ? 0.0 : 0.5;
  if (y > 0) s.first = (i64)(((double)(y - 1) + shift) / step - shift) - 1;
  if (y < length - 1) s.last = (i64)(((double)(y + 1) + shift) / step - shift) + 1;
  if (s.first < 0) s.first = 0;
  if (s.last > out - 1) s.last = out - 1;
  return s;
}
WICK_FN double share(const Between& b, i64 y) {
  return (b.low == y ? 1 - b.weight : 0.0) + (b.high == y ? b.weight : 0.0);
}
template <class S>
WICK_FN void bilinear_grad(const S* grad, S* dx, u64 planes, i64 h, i64 w, i64 h_out, i64 w_out, bool corners,
                           double step_h, double step_w) {
  const u64 pixels = (u64)(h * w), shown_by = (u64)(h_out * w_out);
  GRID_STRIDE(i, pixels * plane_groups(planes)) {
    const SomePlanes some(i, pixels, planes);
    const i64 y = (i64)quotient(some.pixel, (u64)w), z = (i64)some.pixel - y * w;
    const S* from = grad + some.first * shown_by;
    const Shown rows = shown(y, step_h, corners, h, h_out), cols = shown(z, step_w, corners, w, w_out);
    double sum[PLANES] = {};
    for (i64 r = rows.first; r <= rows.last; r++) {
      const double part = share(between(r, step_h, corners, h), y);
      if (part == 0) continue;
      UNROLL(1, 1)
      for (i64 c = cols.first; c <= cols.last; c++) {
        const double weight = part * share(between(c, step_w, corners, w), z);
        if (weight == 0) continue;  // infinity weighs nothing, too
        const S* pixel = from + (u64)(r * w_out + c);
#pragma unroll
        for (u32 k = 0; k < PLANES; k++)
          if (k < some.here) sum[k] += (double)to_compute(pixel[k * shown_by]) * weight;
      }
    }
#pragma unroll
    for (u32 k = 0; k < PLANES; k++)
      if (k < some.here) dx[(some.first + k) * pixels + some.pixel] = round_to<S>(sum[k]);
  }
}

// ---- lines and planes by tables: what src/ops/taps.ts says, once per content in device memory ----

/** dst[p, y, x] = src[p, rows[y], cols[x]], where rows count elements: a thread has V neighbours of some planes. */
template <int V, class W>
WICK_FN void placed(const W* src, W* dst, const i64* rows, const i64* cols, u64 planes, u64 plane, u64 h, u64 w) {
  constexpr u32 P = V > 1 ? 4 : 8;
  const u64 groups = w / V, pixels = h * groups;
  GRID_STRIDE(i, (planes + P - 1) / P * pixels) {
    const u64 some = quotient(i, pixels), first = some * P, pixel = i - some * pixels, y = quotient(pixel, groups),
              x = (pixel - y * groups) * V;
    const u32 here = planes - first < P ? (u32)(planes - first) : P;
    const W* from = src + first * plane + (u64)rows[y];
    u64 at[V];
#pragma unroll
    for (int v = 0; v < V; v++) at[v] = (u64)cols[x + v];
    Pack<W> pack[P];
#pragma unroll
    for (u32 k = 0; k < P; k++)
#pragma unroll
      for (int v = 0; v < V; v++)
        if (k < here) pack[k].v[v] = from[k * plane + at[v]];
    W* to = dst + (first * h + y) * w + x;
#pragma unroll
    for (u32 k = 0; k < P; k++) {
      if (k >= here) continue;
      if constexpr (V > 1) store_pack(to + k * h * w, pack[k]);
      else to[k * h * w] = pack[k].v[0];
    }
  }
}

/** A weight of a table of taps: `total` of them. */
template <class A> WICK_FN A weight_of(const i64* weights, i64 total, i64 t) {
  if constexpr (sizeof(A) == 8) return bits_as<A>((u64)weights[t] << 32 | (u64)weights[total + t]);
  else return bits_as<A>((u32)weights[t]);
}
/**
 * [left, n, right] to [left, out, right]: element i of a line is a sum of weighted elements. The table: where the list
 * of each begins and the last one ends, places, bits of weights (of doubles the upper halves, then the lower ones).
 * A thread has V neighbours of some lines.
 */
template <int V, class D, class S>
WICK_FN void taps(const S* src, D* dst, const i64* table, u64 left, u64 n, u64 out, u64 right) {
  typedef compute_t<S> A;
  constexpr u32 L = V > 1 ? 4 : 8;
  const i64 total = table[out];
  const i64 *places = table + out + 1, *weights = places + total;
  const u64 width = right / V, line = n * right;
  GRID_STRIDE(i, (left + L - 1) / L * out * width) {
    const u64 row = quotient(i, width), some = quotient(row, out), o = row - some * out, r = (i - row * width) * V,
              first = some * L;
    const u32 here = left - first < L ? (u32)(left - first) : L;
    const i64 begin = table[o], end = table[o + 1];
    const S* from = src + first * line + r;
    A sum[L][V];
#pragma unroll
    for (u32 k = 0; k < L; k++)
#pragma unroll
      for (int v = 0; v < V; v++) sum[k][v] = begin < end ? -(A)0 : (A)0;  // leaves the sign of a zero alone
    ROLLED
    for (i64 t = begin; t < end; t++) {
      const A weight = weight_of<A>(weights, total, t);
      const S* at = from + (u64)places[t] * right;
      A x[L][V];
#pragma unroll
      for (u32 k = 0; k < L; k++)
        if (k < here) load_v<V>(at + k * line, x[k]);
#pragma unroll
      for (u32 k = 0; k < L; k++)
#pragma unroll
        for (int v = 0; v < V; v++)
          if (k < here) sum[k][v] = fmag(x[k][v], weight, sum[k][v]);
    }
    D* to = dst + (first * out + o) * right + r;
#pragma unroll
    for (u32 k = 0; k < L; k++)
      if (k < here) {
        if constexpr (V > 1) store_v<V>(to + k * out * right, sum[k]);
        else to[k * out * right] = from_compute<D>(sum[k][0]);
      }
  }
}

constexpr u32 LINE_GROUP = 8;
/**
 * Planes [h, w] to [h_out, w_out] by a table for rows and one for columns: a block makes some lines at a time as they
 * are between the two, in shared memory, a thread a column of LINE_GROUP of them. V neighbours are read at once.
 */
template <int V, class S>
WICK_FN void taps_lines(const S* src, S* dst, const i64* rows, const i64* cols, u64 lines, u64 h, u32 w, u64 h_out,
                        u32 w_out, u32 some) {
  typedef compute_t<S> A;
  DYNAMIC_SHARED(A, held);
  const i64 row_total = rows[h_out], col_total = cols[w_out];
  const i64 *row_places = rows + h_out + 1, *row_weights = row_places + row_total;
  const i64 *col_places = cols + w_out + 1, *col_weights = col_places + col_total;
  const u32 groups = w / V;
  for (u64 first = (u64)blockIdx.x * some; first < lines; first += (u64)gridDim.x * some) {
    const u32 here = lines - first < some ? (u32)(lines - first) : some;
    __syncthreads();  // lines may still be read
    UNROLL(1, 2)
    for (u32 i = threadIdx.x; i < here * groups; i += blockDim.x) {
      const u32 l = i / groups, x = (i - l * groups) * V;
      const u64 line = first + l, plane = quotient(line, h_out), y = line - plane * h_out;
      const i64 begin = rows[y], end = rows[y + 1];
      const S* from = src + plane * h * w + x;
      A sum[V];
#pragma unroll
      for (int v = 0; v < V; v++) sum[v] = begin < end ? -(A)0 : (A)0;  // leaves the sign of a zero alone
      UNROLL(1, 4)
      for (i64 t = begin; t < end; t++) {
        const A weight = weight_of<A>(row_weights, row_total, t);
        A v[V];
        load_v<V>(from + (u64)row_places[t] * w, v);
#pragma unroll
        for (int k = 0; k < V; k++) sum[k] = fmag(v[k], weight, sum[k]);
      }
#pragma unroll
      for (int v = 0; v < V; v++) held[l * w + x + v] = sum[v];
    }
    __syncthreads();
    for (u32 i = threadIdx.x; i < (here + LINE_GROUP - 1) / LINE_GROUP * w_out; i += blockDim.x) {
      const u32 group = i / w_out, o = i - group * w_out;
      const i64 begin = cols[o], end = cols[o + 1];
      const A* from = held + group * LINE_GROUP * w;
      A sum[LINE_GROUP];
#pragma unroll
      for (u32 k = 0; k < LINE_GROUP; k++) sum[k] = begin < end ? -(A)0 : (A)0;
      UNROLL(1, 4)
      for (i64 t = begin; t < end; t++) {
        const A weight = weight_of<A>(col_weights, col_total, t);
        const A* at = from + (u32)col_places[t];
#pragma unroll
        for (u32 k = 0; k < LINE_GROUP; k++)
          sum[k] = fmag(at[k * w], weight, sum[k]);  // those beyond `here` count nowhere
      }
      S* to = dst + (first + group * LINE_GROUP) * w_out + o;
#pragma unroll
      for (u32 k = 0; k < LINE_GROUP; k++)
        if (group * LINE_GROUP + k < here) to[(u64)k * w_out] = from_compute<S>(sum[k]);
    }
  }
}

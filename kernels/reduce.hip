// Reductions of contiguous operands over any dimensions; what each kernel takes and how it is launched:
// src/backends/gpu/reduce.ts.
//
//   row_reduce        [rows, cols]: `lanes` threads a row; V elements at once: 16-byte accesses (cols a multiple of the
//                     pack) or single ones
//   row_reduce_held   the same with 16-byte accesses where a row is at most 4 packs a lane, all packs in flight at
//                     once: short rows are
//                     a few instructions each, of which loops over lanes would be the larger part
//   part_reduce       few long rows: block (chunk, row) leaves one accumulator in scratch [rows, chunks]
//   col_reduce        [outer, n, inner] over n: block (x, 256 / x), x neighbouring columns read together; grid y > 1
//                     leaves accumulators
//   col_reduce_packs  the same with 16 bytes of neighbouring columns a thread, inner a multiple of them
//   merge_parts       accumulators [outer, chunks, inner] to results, a group of 32 threads each
// Op joins elements: Sum, Mean, Prod, Euclid, Deviations, Spread, Min, Max, ArgMin, ArgMax of block.h. Sums of small
// floats are kept in float.
#include "block.h"
#include "settle.h"

constexpr int UNROLL = 4;  // independent loads in flight a thread

/** The best of V elements. */
template <class Op, int V> WICK_FN typename Op::T best_in(const typename Op::T (&x)[V]) {
  typename Op::T best = x[0];
#pragma unroll
  for (int v = 1; v < V; v++) best = Op::better(best, x[v]);
  return best;
}
/**
 * The best of the columns of one row that fall to this lane: which pack it is in is noted on the way, where in the pack
 * at the end.
 */
template <class Op, int V, class S>
WICK_FN typename Op::A place_in_row(const S* row, i64 from, i64 to, u32 lane, u32 lanes) {
  typedef typename Op::T T;
  typedef decltype(load_some<V>(row)) X;
  const i64 step = (i64)lanes * V;
  i64 c = from + (i64)lane * V, where = c;
  if (c >= to) return Op::identity();
  T best = Op::nothing(), v[V];
  const auto look = [&](const X& x, i64 at) {
    unpack(x, v);
    const T now = Op::better(best, best_in<Op>(v));
    if (now != best) where = at;  // true as well while there is nothing but NaN
    best = now;
  };
  ROLLED
  for (; c + (UNROLL - 1) * step < to; c += UNROLL * step) {
    X x[UNROLL];
#pragma unroll
    for (int u = 0; u < UNROLL; u++) x[u] = load_some<V>(row + c + u * step);
#pragma unroll
    for (int u = 0; u < UNROLL; u++) look(x[u], c + u * step);
  }
  ROLLED
  for (; c < to; c += step) look(load_some<V>(row + c), c);
  typename Op::A found = Op::identity();
  load_v<V>(row + where, v);
#pragma unroll
  for (int k = V - 1; k >= 0; k--)
    if (v[k] == best) found.value = best, found.index = (u32)(where + k);
  return found;
}

/** An element as Op takes it: with its place, or with the first element of its group. */
template <class Op, class X> WICK_FN typename Op::A taken(X x, i64 place, X first) {
  if constexpr (Op::CENTERED) return Op::take(x, first);
  else return Op::take(x, place);
}

/** Joins the columns of one row that fall to this lane. */
template <class Op, int V, class S>
WICK_FN typename Op::A join_row(const S* row, i64 from, i64 to, u32 lane, u32 lanes) {
  typedef decltype(load_some<V>(row)) X;
  typename Op::A acc[UNROLL];
#pragma unroll
  for (int u = 0; u < UNROLL; u++) acc[u] = Op::identity();
  compute_t<S> first = 0;
  if constexpr (Op::CENTERED)
    if (from < to) first = to_compute(row[0]);
  const i64 step = (i64)lanes * V;
  i64 c = from + (i64)lane * V;
  const auto take = [&](const X& x, i64 at, int u) {
    compute_t<S> v[V];
    unpack(x, v);
#pragma unroll
    for (int k = 0; k < V; k++) acc[u] = Op::join(acc[u], taken<Op>(v[k], at + k, first));
  };
  ROLLED
  for (; c + (UNROLL - 1) * step < to; c += UNROLL * step) {
    X x[UNROLL];
#pragma unroll
    for (int u = 0; u < UNROLL; u++) x[u] = load_some<V>(row + c + u * step);
#pragma unroll
    for (int u = 0; u < UNROLL; u++) take(x[u], c + u * step, u);
  }
  ROLLED
  for (; c < to; c += step) take(load_some<V>(row + c), c, 0);
#pragma unroll
  for (int u = 1; u < UNROLL; u++) acc[0] = Op::join(acc[0], acc[u]);
  return acc[0];
}

template <class Op, int V, class S>
WICK_FN typename Op::A take_row(const S* row, i64 from, i64 to, u32 lane, u32 lanes) {
  if constexpr (Op::PLACES) return place_in_row<Op, V>(row, from, to, lane, lanes);
  else return join_row<Op, V>(row, from, to, lane, lanes);
}

template <class Op, int V, class S>
WICK_FN void row_reduce(const S* src, typename Op::Out* dst, i64 rows, i64 cols, u32 lanes) {
  __shared__ typename Op::A slots[WAVE_SLOTS];
  const RowWalk walk(lanes);
  EACH_ROW(walk, row, live, rows) {
    typename Op::A acc = take_row<Op, V>(src + (live ? row : 0) * cols, 0, live ? cols : 0, walk.lane, lanes);
    acc = row_join(acc, lanes, slots, Join<Op>());
    if (live && walk.lane == 0) dst[row] = Op::put(acc, cols);
  }
}

constexpr int HELD = 4;  // packs a lane
template <class Op, u32 lanes, class S>
WICK_FN void row_reduce_held(const S* src, typename Op::Out* dst, i64 rows, i64 cols) {
  constexpr int V = pack_size<S>;
  const RowWalk walk(lanes);
  EACH_ROW(walk, row, live, rows) {
    const u32 n = live ? (u32)cols : 0;
    const S* from = src + (live ? row : 0) * cols;
    Pack<S> x[HELD];
    const auto each = [&](auto f) {
#pragma unroll
      for (int p = 0; p < HELD; p++) {
        const u32 c = ((u32)p * lanes + walk.lane) * V;
        if (c < n) f(x[p], c);
      }
    };
    each([&](Pack<S>& pack, u32 c) { pack = load_pack(from + c); });
    typename Op::A acc = Op::identity();
    if constexpr (Op::PLACES) {
      typedef typename Op::T T;
      T best = Op::nothing();
      T v[V];
      each([&](const Pack<S>& pack, u32) {
        unpack(pack, v);
        best = Op::better(best, best_in<Op>(v));
      });
      best = group_reduce(best, lanes, (T*)nullptr, Better<Op>());
      if constexpr (sizeof(S) == 1) settle(x);  // bytes are unpacked anew: as floats they would fill all registers
      u32 found = 0xffffffffu;
      each([&](const Pack<S>& pack, u32 c) {
        u32 first = 0xffffffffu;
        unpack(pack, v);
#pragma unroll
        for (int k = V - 1; k >= 0; k--)
          if (v[k] == best) first = c + k;
        if (first < found) found = first;
      });
      acc.index = group_reduce(found, lanes, (u32*)nullptr, Smaller());
    } else {
      compute_t<S> v[V], first = 0;
      if constexpr (Op::CENTERED)
        if (live) first = to_compute(from[0]);
      each([&](const Pack<S>& pack, u32 c) {
        unpack(pack, v);
#pragma unroll
        for (int k = 0; k < V; k++) acc = Op::join(acc, taken<Op>(v[k], c + k, first));
      });
      acc = group_reduce(acc, lanes, (typename Op::A*)nullptr, Join<Op>());
    }
    if (live && walk.lane == 0) dst[row] = Op::put(acc, cols);
  }
}

/** Block (chunk, row): `size` columns (a multiple of the vector) become one accumulator. */
template <class Op, int V, class S>
WICK_FN void part_reduce(const S* src, typename Op::A* part, i64 rows, i64 cols, i64 size) {
  __shared__ typename Op::A slots[WAVE_SLOTS];
  const i64 from = (i64)blockIdx.x * size, to = from + size < cols ? from + size : cols;
  for (i64 row = blockIdx.y; row < rows; row += gridDim.y) {
    typename Op::A acc = take_row<Op, V>(src + row * cols, from, to, threadIdx.x, blockDim.x);
    acc = row_join(acc, blockDim.x, slots, Join<Op>());
    if (threadIdx.x == 0) part[row * gridDim.x + blockIdx.x] = acc;
  }
}

/** Block (x columns, y rows of them at a time): neighbouring threads read neighbouring columns. */
template <class Op, class S>
WICK_FN void col_reduce(const S* src, typename Op::Out* dst, typename Op::A* part, i64 outer, i64 n, i64 inner,
                        i64 size) {
  typedef typename Op::A A;
  __shared__ A slots[256];
  const i64 tiles = (inner + blockDim.x - 1) / blockDim.x, chunks = gridDim.y;
  const i64 from = (i64)blockIdx.y * size, to = from + size < n ? from + size : n;
  const u32 rank = thread_rank(), step = blockDim.y;
  for (i64 tile = blockIdx.x; tile < tiles * outer; tile += gridDim.x) {
    const i64 o = tile / tiles, c = tile % tiles * blockDim.x + threadIdx.x;
    const S* column = src + o * n * inner + c;
    A acc[UNROLL];
#pragma unroll
    for (int u = 0; u < UNROLL; u++) acc[u] = Op::identity();
    if (c < inner) {
      compute_t<S> first = 0;
      if constexpr (Op::CENTERED) first = to_compute(*column);
      i64 r = from + threadIdx.y;
      ROLLED
      for (; r + (UNROLL - 1) * step < to; r += UNROLL * step) {
        S x[UNROLL];
#pragma unroll
        for (int u = 0; u < UNROLL; u++) x[u] = column[(r + u * step) * inner];
#pragma unroll
        for (int u = 0; u < UNROLL; u++) acc[u] = Op::join(acc[u], taken<Op>(to_compute(x[u]), r + u * step, first));
      }
      ROLLED
      for (; r < to; r += step) acc[0] = Op::join(acc[0], taken<Op>(to_compute(column[r * inner]), r, first));
    }
#pragma unroll
    for (int u = 1; u < UNROLL; u++) acc[0] = Op::join(acc[0], acc[u]);
    __syncthreads();
    slots[rank] = acc[0];
    for (u32 rows = step / 2; rows; rows >>= 1) {
      __syncthreads();
      if (threadIdx.y < rows) slots[rank] = Op::join(slots[rank], slots[rank + rows * blockDim.x]);
    }
    if (threadIdx.y == 0 && c < inner) {
      if (chunks == 1) dst[o * inner + c] = Op::put(slots[rank], n);
      else part[(o * chunks + blockIdx.y) * inner + c] = slots[rank];
    }
  }
}

/** The same with 16 bytes of columns a thread. */
template <class Op, class S>
WICK_FN void col_reduce_packs(const S* src, typename Op::Out* dst, typename Op::A* part, i64 outer, i64 n, i64 inner,
                              i64 size) {
  typedef typename Op::A A;
  constexpr int V = pack_size<S>;
  __shared__ A slots[V][256];
  const i64 width = (i64)blockDim.x * V, tiles = (inner + width - 1) / width, chunks = gridDim.y;
  const i64 from = (i64)blockIdx.y * size, to = from + size < n ? from + size : n;
  const u32 rank = thread_rank(), step = blockDim.y;
  for (i64 tile = blockIdx.x; tile < tiles * outer; tile += gridDim.x) {
    const i64 o = tile / tiles, c = tile % tiles * width + (i64)threadIdx.x * V;
    const S* column = src + o * n * inner + c;
    A acc[V];
#pragma unroll
    for (int i = 0; i < V; i++) acc[i] = Op::identity();
    if (c < inner) {
      compute_t<S> x[UNROLL][V], first[V] = {};
      if constexpr (Op::CENTERED) load_v<V>(column, first);
      i64 r = from + threadIdx.y;
      ROLLED
      for (; r + (UNROLL - 1) * step < to; r += UNROLL * step) {
#pragma unroll
        for (int u = 0; u < UNROLL; u++) load_v<V>(column + (r + u * step) * inner, x[u]);
#pragma unroll
        for (int u = 0; u < UNROLL; u++)
#pragma unroll
          for (int i = 0; i < V; i++) acc[i] = Op::join(acc[i], taken<Op>(x[u][i], r + u * step, first[i]));
      }
      ROLLED
      for (; r < to; r += step) {
        load_v<V>(column + r * inner, x[0]);
#pragma unroll
        for (int i = 0; i < V; i++) acc[i] = Op::join(acc[i], taken<Op>(x[0][i], r, first[i]));
      }
    }
    __syncthreads();
#pragma unroll
    for (int i = 0; i < V; i++) slots[i][rank] = acc[i];
    for (u32 rows = step / 2; rows; rows >>= 1) {
      __syncthreads();
      if (threadIdx.y < rows)
#pragma unroll
        for (int i = 0; i < V; i++) slots[i][rank] = Op::join(slots[i][rank], slots[i][rank + rows * blockDim.x]);
    }
    if (threadIdx.y == 0 && c < inner)
#pragma unroll
      for (int i = 0; i < V; i++) {
        if (chunks == 1) dst[o * inner + c + i] = Op::put(slots[i][rank], n);
        else part[(o * chunks + blockIdx.y) * inner + c + i] = slots[i][rank];
      }
  }
}

/** Accumulators [outer, chunks, inner] to results; n is how many elements each result stands for. */
template <class Op>
WICK_FN void merge_parts(const typename Op::A* part, typename Op::Out* dst, i64 outer, i64 chunks, i64 inner, i64 n) {
  typedef typename Op::A A;
  const RowWalk walk(32);
  EACH_ROW(walk, row, live, outer * inner) {
    A acc = Op::identity();
    if (live)
      for (i64 k = walk.lane; k < chunks; k += 32)
        acc = Op::join(acc, part[(row / inner * chunks + k) * inner + row % inner]);
    acc = group_reduce(acc, 32, (A*)nullptr, Join<Op>());
    if (live && walk.lane == 0) dst[row] = Op::put(acc, n);
  }
}
// Launched with 256 threads; on NVIDIA a larger bound keeps registers few.
#ifndef WICK_NVIDIA
constexpr int MERGE_BOUND = 256;
#else
constexpr int MERGE_BOUND = 1024;
#endif

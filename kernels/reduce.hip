// Reductions over any dimensions, with Candle's reduce.cu symbol for symbol, and faster ones for contiguous operands.
//
// Candle's (its names, parameters and launches):
//   fast_{sum,min,max,argmin,argmax}_T   a block an output, the reduced dimensions last in info; block: a power of two up to 1024
//   sum_T                                atomic sums over any dimensions; info: dims, strides, lengths and contiguous strides of summed dims
//   softmax_T                            grid rows, block (1, 32)
//   rmsnorm_T, layernorm_T               grid rows, block (block_size): 32, or any multiple of the wave up to 1024
//   rope_T, rope_i_T, rope_thd_T         a thread a pair
// Sums of small floats are kept in float, argmin and argmax give the lowest index on ties at every length, variances are two-pass.
//
// Ours (launch: src/kernels/launch.ts, reduceLaunch):
//   row_OP_T_v, _v1   [rows, cols] contiguous: `lanes` threads a row; v: 16-byte accesses (cols a multiple of the pack), v1: any alignment
//   row_OP_T_heldL    the same with 16-byte accesses where a row is at most 4 packs a lane, L = 4 to 32 lanes, all packs in flight at once: short rows are
//                     a few instructions each, of which loops over lanes would be the larger part
//   part_OP_T_v, _v1  few long rows: block (chunk, row) leaves one accumulator in scratch [rows, chunks]
//   col_OP_T          [outer, n, inner] over n: block (x, 256 / x), x neighbouring columns read together; grid y > 1 leaves accumulators
//   merge_OP_T        accumulators [outer, chunks, inner] to results, a group of 32 threads each
#include "block.h"
#include "settle.h"

// ---- Candle's ----

template <class Op, class S>
WICK_FN void fast_reduce(u64 numel, u64 per_block, u64 rank, const u64* info, const S* src, typename Op::Out* dst) {
  typedef typename Op::A A;
  __shared__ A slots[1024];
  const u64 *dims = info, *strides = info + rank;
  const bool packed = is_contiguous(rank, dims, strides);
  const u64 last = rank ? dims[rank - 1] : 1, start = (u64)blockIdx.x * per_block;
  const u64 stop = start + per_block < numel ? start + per_block : numel;
  A acc = Op::identity();
  for (u64 i = start + threadIdx.x; i < stop; i += blockDim.x)
    acc = Op::join(acc, Op::take(to_compute(src[packed ? i : strided_index(i, rank, dims, strides)]), (i64)(i % last)));
  slots[threadIdx.x] = acc;
  // A tree over shared memory: the block may be smaller than a wave, where shuffles would read lanes that are not there.
  for (u32 half_size = blockDim.x / 2; half_size; half_size >>= 1) {
    __syncthreads();
    if (threadIdx.x < half_size) slots[threadIdx.x] = Op::join(slots[threadIdx.x], slots[threadIdx.x + half_size]);
  }
  if (threadIdx.x == 0) dst[blockIdx.x] = Op::put(slots[0], (i64)per_block);
}
#define FAST_REDUCE(NAME, S, OP)                                                                                          \
  KERNEL(1024) NAME(const size_t src_numel, const size_t el_to_sum_per_block, const size_t num_dims, const size_t* info, \
                    const S* src, OP<S>::Out* dst) {                                                                      \
    fast_reduce<OP<S>>(src_numel, el_to_sum_per_block, num_dims, (const u64*)info, src, dst);                             \
  }

template <class S> WICK_FN void atomic_sum(u64 numel, u64 rank, u64 summed, const u64* info, const S* inp, S* out) {
  const u64 *dims = info, *strides = info + rank, *lengths = info + 2 * rank, *steps = lengths + summed;
  const bool packed = is_contiguous(rank, dims, strides);
  GRID_STRIDE(i, numel) {
    u64 to = i;
    for (u64 d = 0; d < summed; d++) to = to / steps[d] / lengths[d] * steps[d] + to % steps[d];
    atomic_add(out + to, inp[packed ? i : strided_index(i, rank, dims, strides)]);
  }
}
#define ATOMIC_SUM(NAME, S)                                                                                              \
  KERNEL(1024) NAME(const size_t numel, const size_t num_dims, const size_t num_sum_dims, const size_t* info, const S* inp, S* out) { \
    atomic_sum(numel, num_dims, num_sum_dims, (const u64*)info, inp, out);                                               \
  }

template <class S> WICK_FN void softmax32(const S* src, S* dst, i64 cols) {
  typedef compute_t<S> A;
  const i64 at = ((i64)blockIdx.x * blockDim.x + threadIdx.x) * cols;
  A top = Limits<A>::lowest(), sum = 0;
  for (i64 c = threadIdx.y; c < cols; c += 32) top = Larger()(top, to_compute(src[at + c]));
  top = group_max(top, 32, (A*)nullptr);
  for (i64 c = threadIdx.y; c < cols; c += 32) sum += expg(to_compute(src[at + c]) - top);
  const A scale = A(1) / group_sum(sum, 32, (A*)nullptr);
  for (i64 c = threadIdx.y; c < cols; c += 32) dst[at + c] = from_compute<S>(expg(to_compute(src[at + c]) - top) * scale);
}
#define SOFTMAX(NAME, S) \
  KERNEL(32) NAME(const S* src, S* dst, const int n_cols) { softmax32(src, dst, n_cols); }

/** One row a block; CENTER makes it a layer norm. alpha and beta may be null. */
template <bool CENTER, class S> WICK_FN void norm_row(const S* src, S* dst, const S* alpha, const S* beta, i64 cols, u32 lanes, float eps) {
  typedef compute_t<S> A;
  __shared__ A slots[WAVE_SLOTS];
  const i64 at = (i64)blockIdx.x * cols;
  const u32 lane = threadIdx.x;
  A mean = 0, square = 0;
  if constexpr (CENTER) {
    for (i64 c = lane; c < cols; c += lanes) mean += to_compute(src[at + c]);
    mean = group_sum(mean, lanes, slots) / (A)cols;
  }
  for (i64 c = lane; c < cols; c += lanes) {
    A x = to_compute(src[at + c]) - mean;
    square += x * x;
  }
  const A scale = rsqrtg(group_sum(square, lanes, slots) / (A)cols + (A)eps);
  for (i64 c = lane; c < cols; c += lanes) {
    A y = (to_compute(src[at + c]) - mean) * scale;
    if (alpha) y *= to_compute(alpha[c]);
    if (beta) y += to_compute(beta[c]);
    dst[at + c] = from_compute<S>(y);
  }
}
#define RMSNORM(NAME, S)                                                                                        \
  KERNEL(1024) NAME(const S* src, S* dst, const S* alpha, const int n_cols, const int block_size, const float eps) { \
    norm_row<false>(src, dst, alpha, (const S*)nullptr, n_cols, (u32)block_size, eps);                           \
  }
#define LAYERNORM(NAME, S)                                                                                                     \
  KERNEL(1024) NAME(const S* src, S* dst, const S* alpha, const S* beta, const int n_cols, const int block_size, const float eps) { \
    norm_row<true>(src, dst, alpha, beta, n_cols, (u32)block_size, eps);                                                        \
  }

/** Turns the pair at (first, second) by the angle whose cosine and sine stand at `angle`. */
template <class S> WICK_FN void turn(const S* src, const S* cos, const S* sin, S* dst, u64 first, u64 second, u64 angle) {
  const compute_t<S> x = to_compute(src[first]), y = to_compute(src[second]), c = to_compute(cos[angle]), s = to_compute(sin[angle]);
  dst[first] = from_compute<S>(x * c - y * s);
  dst[second] = from_compute<S>(x * s + y * c);
}
#define ROPE_I(NAME, S)                                                                                                            \
  KERNEL(1024) NAME(const S* src, const S* cos, const S* sin, S* dst, const u32 bh, const u32 td, const u32 stride_b) {              \
    const u64 i = global_id(), per = td / 2;                                                                                        \
    if (2 * i >= (u64)bh * td) return;                                                                                              \
    turn(src, cos, sin, dst, 2 * i, 2 * i + 1, i % per + (stride_b ? 2 * i / stride_b * per : 0));                                   \
  }
#define ROPE(NAME, S)                                                                                                              \
  KERNEL(1024) NAME(const S* src, const S* cos, const S* sin, S* dst, const u32 bh, const u32 td, const u32 d, const u32 stride_b) { \
    const u64 i = global_id(), per = td / 2, half_d = d / 2;                                                                        \
    if (2 * i >= (u64)bh * td) return;                                                                                              \
    const u64 angle = i % per, first = i / per * td + angle / half_d * d + angle % half_d;                                          \
    turn(src, cos, sin, dst, first, first + half_d, angle + (stride_b ? 2 * i / stride_b * per : 0));                                \
  }
#define ROPE_THD(NAME, S)                                                                                                          \
  KERNEL(1024) NAME(const S* src, const S* cos, const S* sin, S* dst, const u32 b, const u32 t, const u32 h, const u32 d,            \
                    const u32 stride_b) {                                                                                          \
    const u64 i = global_id(), half_d = d / 2, row = i / half_d;                                                                    \
    if (2 * i >= (u64)b * t * h * d) return;                                                                                        \
    const u64 first = row * d + i % half_d, angle = row / h % t * half_d + i % half_d;                                              \
    turn(src, cos, sin, dst, first, first + half_d, angle + (stride_b ? 2 * i / stride_b * ((u64)t * half_d) : 0));                  \
  }

// ---- ours ----

constexpr int UNROLL = 4;  // independent loads in flight a thread

/** The best of V elements. */
template <class Op, int V> WICK_FN typename Op::T best_in(const typename Op::T (&x)[V]) {
  typename Op::T best = x[0];
#pragma unroll
  for (int v = 1; v < V; v++) best = Op::better(best, x[v]);
  return best;
}
/** The best of the columns of one row that fall to this lane: which pack it is in is noted on the way, where in the pack at the end. */
template <class Op, int V, class S> WICK_FN typename Op::A place_in_row(const S* row, i64 from, i64 to, u32 lane, u32 lanes) {
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

/** Joins the columns of one row that fall to this lane. */
template <class Op, int V, class S> WICK_FN typename Op::A join_row(const S* row, i64 from, i64 to, u32 lane, u32 lanes) {
  typedef decltype(load_some<V>(row)) X;
  typename Op::A acc[UNROLL];
#pragma unroll
  for (int u = 0; u < UNROLL; u++) acc[u] = Op::identity();
  const i64 step = (i64)lanes * V;
  i64 c = from + (i64)lane * V;
  const auto take = [&](const X& x, i64 at, int u) {
    compute_t<S> v[V];
    unpack(x, v);
#pragma unroll
    for (int k = 0; k < V; k++) acc[u] = Op::join(acc[u], Op::take(v[k], at + k));
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

template <class Op, int V, class S> WICK_FN typename Op::A take_row(const S* row, i64 from, i64 to, u32 lane, u32 lanes) {
  if constexpr (Op::PLACES) return place_in_row<Op, V>(row, from, to, lane, lanes);
  else return join_row<Op, V>(row, from, to, lane, lanes);
}

template <class Op, int V, class S> WICK_FN void row_reduce(const S* src, typename Op::Out* dst, i64 rows, i64 cols, u32 lanes) {
  __shared__ typename Op::A slots[WAVE_SLOTS];
  const RowWalk walk(lanes);
  EACH_ROW(walk, row, live, rows) {
    typename Op::A acc = take_row<Op, V>(src + (live ? row : 0) * cols, 0, live ? cols : 0, walk.lane, lanes);
    acc = row_join(acc, lanes, slots, Join<Op>());
    if (live && walk.lane == 0) dst[row] = Op::put(acc, cols);
  }
}
#define ROW_REDUCE(NAME, S, OP, V)                                                                    \
  KERNEL(1024) NAME(const S* src, OP<S>::Out* dst, const i64 rows, const i64 cols, const u32 lanes) { \
    row_reduce<OP<S>, V>(src, dst, rows, cols, lanes);                                                \
  }

constexpr int HELD = 4;  // packs a lane
template <class Op, u32 lanes, class S> WICK_FN void row_reduce_held(const S* src, typename Op::Out* dst, i64 rows, i64 cols) {
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
      compute_t<S> v[V];
      each([&](const Pack<S>& pack, u32 c) {
        unpack(pack, v);
#pragma unroll
        for (int k = 0; k < V; k++) acc = Op::join(acc, Op::take(v[k], c + k));
      });
      acc = group_reduce(acc, lanes, (typename Op::A*)nullptr, Join<Op>());
    }
    if (live && walk.lane == 0) dst[row] = Op::put(acc, cols);
  }
}
#define ROW_REDUCE_HELD(NAME, S, OP, LANES)                                        \
  KERNEL(256) NAME(const S* src, OP<S>::Out* dst, const i64 rows, const i64 cols) { \
    row_reduce_held<OP<S>, LANES>(src, dst, rows, cols);                            \
  }

/** Block (chunk, row): `size` columns (a multiple of the vector) become one accumulator. */
template <class Op, int V, class S> WICK_FN void part_reduce(const S* src, typename Op::A* part, i64 rows, i64 cols, i64 size) {
  __shared__ typename Op::A slots[WAVE_SLOTS];
  const i64 from = (i64)blockIdx.x * size, to = from + size < cols ? from + size : cols;
  for (i64 row = blockIdx.y; row < rows; row += gridDim.y) {
    typename Op::A acc = take_row<Op, V>(src + row * cols, from, to, threadIdx.x, blockDim.x);
    acc = row_join(acc, blockDim.x, slots, Join<Op>());
    if (threadIdx.x == 0) part[row * gridDim.x + blockIdx.x] = acc;
  }
}
#define PART_REDUCE(NAME, S, OP, V)                                                                 \
  KERNEL(1024) NAME(const S* src, OP<S>::A* part, const i64 rows, const i64 cols, const i64 size) { \
    part_reduce<OP<S>, V>(src, part, rows, cols, size);                                             \
  }

/** Block (x columns, y rows of them at a time): neighbouring threads read neighbouring columns. */
template <class Op, class S>
WICK_FN void col_reduce(const S* src, typename Op::Out* dst, typename Op::A* part, i64 outer, i64 n, i64 inner, i64 size) {
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
      i64 r = from + threadIdx.y;
      ROLLED
      for (; r + (UNROLL - 1) * step < to; r += UNROLL * step) {
        S x[UNROLL];
#pragma unroll
        for (int u = 0; u < UNROLL; u++) x[u] = column[(r + u * step) * inner];
#pragma unroll
        for (int u = 0; u < UNROLL; u++) acc[u] = Op::join(acc[u], Op::take(to_compute(x[u]), r + u * step));
      }
      ROLLED
      for (; r < to; r += step) acc[0] = Op::join(acc[0], Op::take(to_compute(column[r * inner]), r));
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
#define COL_REDUCE(NAME, S, OP)                                                                                              \
  KERNEL(256) NAME(const S* src, OP<S>::Out* dst, OP<S>::A* part, const i64 outer, const i64 n, const i64 inner, const i64 size) { \
    col_reduce<OP<S>>(src, dst, part, outer, n, inner, size);                                                                \
  }

/** Accumulators [outer, chunks, inner] to results; n is how many elements each result stands for. */
template <class Op> WICK_FN void merge_parts(const typename Op::A* part, typename Op::Out* dst, i64 outer, i64 chunks, i64 inner, i64 n) {
  typedef typename Op::A A;
  const RowWalk walk(32);
  EACH_ROW(walk, row, live, outer * inner) {
    A acc = Op::identity();
    if (live)
      for (i64 k = walk.lane; k < chunks; k += 32) acc = Op::join(acc, part[(row / inner * chunks + k) * inner + row % inner]);
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
#define MERGE_PARTS(NAME, S, OP)                                                                                            \
  KERNEL(MERGE_BOUND) NAME(const OP<S>::A* part, OP<S>::Out* dst, const i64 outer, const i64 chunks, const i64 inner, const i64 n) { \
    merge_parts<OP<S>>(part, dst, outer, chunks, inner, n);                                                                 \
  }

// ---- symbols ----

#define FOR_ALL(M, STEM, ...)       \
  FOR_REALS(M, STEM, __VA_ARGS__)   \
  FOR_INTS(M, STEM, __VA_ARGS__)    \
  M(STEM##_f8_e4m3, fp8, __VA_ARGS__)
FOR_ALL(FAST_REDUCE, fast_sum, Sum)
FOR_ALL(FAST_REDUCE, fast_min, Min)
FOR_ALL(FAST_REDUCE, fast_max, Max)
FOR_ALL(FAST_REDUCE, fast_argmin, ArgMin)
FOR_ALL(FAST_REDUCE, fast_argmax, ArgMax)
FOR_REALS(ATOMIC_SUM, sum)
ATOMIC_SUM(sum_u32, u32)
FOR_REALS(SOFTMAX, softmax)
FOR_REALS(RMSNORM, rmsnorm)
FOR_REALS(LAYERNORM, layernorm)
FOR_REALS(ROPE_I, rope_i)
FOR_REALS(ROPE, rope)
FOR_REALS(ROPE_THD, rope_thd)
#define OURS(NAME, S, OP)                                       \
  ROW_REDUCE(row_##NAME##_v1, S, OP, 1)                               \
  ROW_REDUCE(row_##NAME##_v, S, OP, pack_size<S>)                     \
  ROW_REDUCE_HELD(row_##NAME##_held4, S, OP, 4)                       \
  ROW_REDUCE_HELD(row_##NAME##_held8, S, OP, 8)                       \
  ROW_REDUCE_HELD(row_##NAME##_held16, S, OP, 16)                     \
  ROW_REDUCE_HELD(row_##NAME##_held32, S, OP, 32)                     \
  PART_REDUCE(part_##NAME##_v1, S, OP, 1)                             \
  PART_REDUCE(part_##NAME##_v, S, OP, pack_size<S>)                   \
  COL_REDUCE(col_##NAME, S, OP)                                       \
  MERGE_PARTS(merge_##NAME, S, OP)
FOR_ALL(OURS, sum, Sum)
FOR_ALL(OURS, prod, Prod)
FOR_ALL(OURS, min, Min)
FOR_ALL(OURS, max, Max)
FOR_ALL(OURS, argmin, ArgMin)
FOR_ALL(OURS, argmax, ArgMax)
FOR_REALS(OURS, mean, Mean)
OURS(mean_f8_e4m3, fp8, Mean)

// Candle's reduce.cu symbol for symbol: its names, parameters and launches. Ours (kernels/reduce.hip, softmax.hip,
// norm.hip, rope.hip) are faster.
//
//   fast_{sum,min,max,argmin,argmax}_T   a block an output, the reduced dimensions last in info; block: a power of two
//                                        up to 1024
//   sum_T                                atomic sums over any dimensions; info: dims, strides, lengths and contiguous
//                                        strides of summed dims
//   softmax_T                            grid rows, block (1, 32)
//   rmsnorm_T, layernorm_T               grid rows, block (block_size): 32, or any multiple of the wave up to 1024
//   rope_T, rope_i_T, rope_thd_T         a thread a pair
// Sums of small floats are kept in float, argmin and argmax give the lowest index on ties at every length, variances
// are two-pass.
#include "block.h"

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
  // A tree over shared memory: the block may be smaller than a wave, where shuffles would read lanes that are not
  // there.
  for (u32 half_size = blockDim.x / 2; half_size; half_size >>= 1) {
    __syncthreads();
    if (threadIdx.x < half_size) slots[threadIdx.x] = Op::join(slots[threadIdx.x], slots[threadIdx.x + half_size]);
  }
  if (threadIdx.x == 0) dst[blockIdx.x] = Op::put(slots[0], (i64)per_block);
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

template <class S> WICK_FN void softmax32(const S* src, S* dst, i64 cols) {
  typedef compute_t<S> A;
  const i64 at = ((i64)blockIdx.x * blockDim.x + threadIdx.x) * cols;
  A top = Limits<A>::lowest(), sum = 0;
  for (i64 c = threadIdx.y; c < cols; c += 32) top = Larger()(top, to_compute(src[at + c]));
  top = group_max(top, 32, (A*)nullptr);
  for (i64 c = threadIdx.y; c < cols; c += 32) sum += expg(to_compute(src[at + c]) - top);
  const A scale = A(1) / group_sum(sum, 32, (A*)nullptr);
  for (i64 c = threadIdx.y; c < cols; c += 32)
    dst[at + c] = from_compute<S>(expg(to_compute(src[at + c]) - top) * scale);
}

/** One row a block; CENTER makes it a layer norm. alpha and beta may be null. */
template <bool CENTER, class S>
WICK_FN void norm_row(const S* src, S* dst, const S* alpha, const S* beta, i64 cols, u32 lanes, float eps) {
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

/** Turns the pair at (first, second) by the angle whose cosine and sine stand at `angle`. */
template <class S>
WICK_FN void turn(const S* src, const S* cos, const S* sin, S* dst, u64 first, u64 second, u64 angle) {
  const compute_t<S> x = to_compute(src[first]), y = to_compute(src[second]), c = to_compute(cos[angle]),
                     s = to_compute(sin[angle]);
  dst[first] = from_compute<S>(x * c - y * s);
  dst[second] = from_compute<S>(x * s + y * c);
}
/** Neighbours turn together: (x[2i], x[2i+1]). */
template <class S> WICK_FN void rope_i(const S* src, const S* cos, const S* sin, S* dst, u32 bh, u32 td, u32 stride_b) {
  const u64 i = global_id(), per = td / 2;
  if (2 * i >= (u64)bh * td) return;
  turn(src, cos, sin, dst, 2 * i, 2 * i + 1, i % per + (stride_b ? 2 * i / stride_b * per : 0));
}
/** The halves of a head turn together: (x[i], x[i + d/2]). */
template <class S>
WICK_FN void rope(const S* src, const S* cos, const S* sin, S* dst, u32 bh, u32 td, u32 d, u32 stride_b) {
  const u64 i = global_id(), per = td / 2, half_d = d / 2;
  if (2 * i >= (u64)bh * td) return;
  const u64 angle = i % per, first = i / per * td + angle / half_d * d + angle % half_d;
  turn(src, cos, sin, dst, first, first + half_d, angle + (stride_b ? 2 * i / stride_b * per : 0));
}
/** Halves again, over [b, t, h, d]. */
template <class S>
WICK_FN void rope_thd(const S* src, const S* cos, const S* sin, S* dst, u32 b, u32 t, u32 h, u32 d, u32 stride_b) {
  const u64 i = global_id(), half_d = d / 2, row = i / half_d;
  if (2 * i >= (u64)b * t * h * d) return;
  const u64 first = row * d + i % half_d, angle = row / h % t * half_d + i % half_d;
  turn(src, cos, sin, dst, first, first + half_d, angle + (stride_b ? 2 * i / stride_b * ((u64)t * half_d) : 0));
}

// Rows on their way: while a block works on one row, the next ones are copied to its shared memory, so that memory
// never waits for arithmetic. A thread reads only what it has copied itself: nothing but its own copies is waited for.
#pragma once
#include "block.h"
#include "matrix.h"

/** Vectors of a row a thread takes, as many as leave the registers room. */
template <class S> constexpr int stream_vectors = sizeof(S) == 4 ? 8 : 4;

/**
 * Rows blockIdx.x, blockIdx.x + gridDim.x, ...; three of them in flight, the whole block on a row. Dynamic shared
 * memory: 3 * stream_vectors * 16 bytes a thread.
 */
template <class S> struct RowStream {
  static constexpr int V = pack_size<S>, P = stream_vectors<S>, STAGES = 3;
  const S* src;
  i64 rows, cols, next;
  word4* ring;
  u32 slot;
  WICK_MEMBER void fetch() {
    if (next < rows)
      each_vector<V, P>(cols, threadIdx.x, blockDim.x,
                        [&](int p, i64 c) { async_copy16(at(p), src + next * cols + c, 16); });
    async_commit();  // groups are counted, so an empty one keeps the count
    next += gridDim.x;
    slot = slot + 1 == STAGES ? 0 : slot + 1;
  }
  WICK_MEMBER word4* at(int p) const { return ring + (slot * P + p) * blockDim.x + threadIdx.x; }
  WICK_MEMBER RowStream(const S* from, i64 row_count, i64 col_count, word4* shared)
      : src(from), rows(row_count), cols(col_count), next(blockIdx.x), ring(shared), slot(0) {
#pragma unroll
    for (int s = 0; s < STAGES; s++) fetch();
  }
  /** The next row into registers as what is computed in; the copy of a later one takes its place. */
  WICK_MEMBER void take(compute_t<S> (&x)[P][V]) {
    async_wait<STAGES - 1>();
    each_vector<V, P>(cols, threadIdx.x, blockDim.x, [&](int p, i64) {
      const Pack<S> pack = load_pack((const S*)at(p));
#pragma unroll
      for (int v = 0; v < V; v++) x[p][v] = to_compute(pack.v[v]);
    });
    fetch();
  }
  /** The same with `missing` where it ends before the registers do. */
  WICK_MEMBER void take(compute_t<S> (&x)[P][V], compute_t<S> missing) {
    async_wait<STAGES - 1>();
#pragma unroll
    for (int p = 0; p < P; p++) {
#pragma unroll
      for (int v = 0; v < V; v++) x[p][v] = missing;
      if ((p * blockDim.x + threadIdx.x) * V < (u32)cols) load_v<V>((const S*)at(p), x[p]);
    }
    fetch();
  }
};

/** The sum over the whole block with one barrier: calls in a row must not be given the same slots. */
template <class A> WICK_FN A block_sum(A v, A* slots) {
#pragma unroll
  for (u32 m = WICK_WAVE / 2; m; m >>= 1) v += shfl_xor(v, m, WICK_WAVE);
  const u32 waves = blockDim.x / WICK_WAVE;
  if (lane_id() == 0) slots[wave_id()] = v;
  __syncthreads();
  v = slots[lane_id() % waves];
  for (u32 m = waves / 2; m; m >>= 1) v += shfl_xor(v, m, waves);
  return v;
}

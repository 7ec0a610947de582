// Candle's indexing.cu symbol for symbol; ours (kernels/indexing.hip) take any layout and are faster.
//
// A thread an element, grid-stride; ia, s, sa: a thread a lane, serial along the indices, so that results are
// deterministic:
//   is_I_T gather_I_T ia_I_T s_I_T sa_I_T    left, dimension and right sizes in contiguous order; info of is_* is the
//   source's layout, or null
// What an index means: indexing.h.
#include "indexing.h"

template <class I, class S>
WICK_FN void index_select(u64 numel, u64 rank, const u64* info, const I* ids, const S* inp, S* out, u64 src_dim,
                          u64 ids_dim, u64 right) {
  const bool packed = !info || is_contiguous(rank, info, info + rank);
  ROLLED
  GRID_STRIDE(i, numel) {
    const u64 r = i % right, j = i / right % ids_dim, l = i / right / ids_dim;
    const i64 at = place(ids[j], src_dim, nullptr);
    const u64 from = (l * src_dim + (u64)at) * right + r;
    out[i] = at < 0 ? zero<S>() : inp[packed ? from : strided_index(from, rank, info, info + rank)];
  }
}

template <bool ADD, class I, class S>
WICK_FN void scatter(const I* ids, const S* inp, S* out, u64 left, u64 src_dim, u64 dst_dim, u64 right) {
  ROLLED
  GRID_STRIDE(i, left * right) {
    const u64 l = i / right, r = i % right;
    ROLLED
    for (u64 j = 0; j < src_dim; j++) {
      const u64 from = (l * src_dim + j) * right + r;
      const i64 at = place(ids[from], dst_dim, nullptr);
      if (at < 0) continue;
      S* to = out + (l * dst_dim + (u64)at) * right + r;
      *to = ADD ? plus(*to, inp[from]) : inp[from];
    }
  }
}

template <class I, class S>
WICK_FN void gather(u64 numel, const I* ids, const S* inp, S* out, u64 src_dim, u64 ids_dim, u64 right) {
  GRID_STRIDE(i, numel) {
    const i64 at = place(ids[i], src_dim, nullptr);
    out[i] = at < 0 ? zero<S>() : inp[(i / right / ids_dim * src_dim + (u64)at) * right + i % right];
  }
}

template <class I, class S>
WICK_FN void index_add(const I* ids, u64 ids_dim, const S* inp, S* out, u64 left, u64 dst_dim, u64 right) {
  GRID_STRIDE(i, left * right) {
    const u64 l = i / right, r = i % right;
    for (u64 j = 0; j < ids_dim; j++) {
      const i64 at = place(ids[j], dst_dim, nullptr);
      if (at < 0) continue;
      S* to = out + (l * dst_dim + (u64)at) * right + r;
      *to = plus(*to, inp[(l * ids_dim + j) * right + r]);
    }
  }
}

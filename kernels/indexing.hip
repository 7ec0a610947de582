// Reading and writing at indices, with Candle's indexing.cu symbol for symbol, and row moves at copy speed.
//
// The index dtype's largest value means "no element": it reads 0 and writes nothing, for every value dtype. An index that is neither
// that nor inside its dimension is treated the same by Candle's; ours set *fault, so that the backend can report it, and read all bits set: NaN in
// every float dtype, so that nobody takes the result for zeros.
//
// Candle's (a thread an element, grid-stride; ia, s, sa: a thread a lane, serial along the indices, so that results are deterministic):
//   is_I_T gather_I_T ia_I_T s_I_T sa_I_T    left, dimension and right sizes in contiguous order; info of is_* is the source's layout, or null
//
// Ours (launch: src/kernels/launch.ts):
//   select_rows_wB_I      rows of `words` B-byte words (16, 8, 4, 2, 1), `lanes` threads a row: out[l, j] = src[l, ids[j * step]]
//   gather_any_I_bB       any layouts and any smaller index shape; info: dims, ids strides, src strides (0 along dim)
//   scatter_any_I_T, scatter_add_any_I_T   a thread a lane; info: dims without dim, strides of ids, src and dst
//   scatter_keys_I, scatter_sorted_T, scatter_add_sorted_T   few long lanes: indices become keys [lanes, count], each lane is sorted, and a thread looks
//                         after each place that is written; the results are those of the thread a lane
//   index_keys_I          indices as u32 keys for argsort
//   add_sorted_T          out[l, ids[j]] += src[l, j] from sorted indices (`order` as argsort gives, `sorted` the indices in that order): a group a run of equal
//                         indices, rows added in their original order, so the result is that of the serial loop
#include "block.h"

/** Where an index points in 0..n-1, -1 for the sentinel, -2 for one that is out of range where faults are told. */
template <class I> WICK_FN i64 place(I id, u64 n, u32* fault) {
  if (id == Limits<I>::highest()) return -1;
  if ((u64)(i64)id >= n) {  // negative ones are huge without their sign
    if (fault) *fault = 1;
    return fault ? -2 : -1;
  }
  return (i64)id;
}
/** What stands for an element that is not there: 0 for the sentinel (-1), all bits set for a bad index (-2). */
template <class W> WICK_FN W absent(i64 at) {
  W bad;
#pragma unroll
  for (u32 i = 0; i < sizeof(W); i++) ((u8*)&bad)[i] = 0xff;
  return at == -2 ? bad : W{};
}
/** The same as a key to sort by: what is no place comes last. */
WICK_FN u32 key_of(i64 at) { return at < 0 ? 0xffffffffu : (u32)at; }
template <class S> WICK_FN S zero() { return from_compute<S>((compute_t<S>)0); }
template <class S> WICK_FN S plus(S a, S b) { return from_compute<S>((typename SumOf<S>::type)to_compute(a) + (typename SumOf<S>::type)to_compute(b)); }

// ---- Candle's ----

template <class I, class S>
WICK_FN void index_select(u64 numel, u64 rank, const u64* info, const I* ids, const S* inp, S* out, u64 src_dim, u64 ids_dim, u64 right) {
  const bool packed = !info || is_contiguous(rank, info, info + rank);
  ROLLED
  GRID_STRIDE(i, numel) {
    const u64 r = i % right, j = i / right % ids_dim, l = i / right / ids_dim;
    const i64 at = place(ids[j], src_dim, nullptr);
    const u64 from = (l * src_dim + (u64)at) * right + r;
    out[i] = at < 0 ? zero<S>() : inp[packed ? from : strided_index(from, rank, info, info + rank)];
  }
}
#define INDEX_SELECT(NAME, I, S)                                                                                                \
  KERNEL(1024) NAME(const size_t numel, const size_t num_dims, const size_t* info, const I* ids, const S* inp, S* out,           \
                    const size_t left_size, const size_t src_dim_size, const size_t ids_dim_size, const size_t right_size) {     \
    index_select(numel, num_dims, (const u64*)info, ids, inp, out, src_dim_size, ids_dim_size, right_size);                      \
  }

#define GATHER(NAME, I, S)                                                                                                    \
  KERNEL(1024) NAME(const size_t numel, const I* ids, const S* inp, S* out, const size_t left_size, const size_t src_dim_size,  \
                    const size_t ids_dim_size, const size_t right_size) {                                                      \
    GRID_STRIDE(i, numel) {                                                                                                    \
      const i64 at = place(ids[i], src_dim_size, nullptr);                                                                     \
      out[i] = at < 0 ? zero<S>() : inp[(i / right_size / ids_dim_size * src_dim_size + (u64)at) * right_size + i % right_size]; \
    }                                                                                                                          \
  }

#define INDEX_ADD(NAME, I, S)                                                                                                 \
  KERNEL(1024) NAME(const I* ids, const size_t ids_dim_size, const S* inp, S* out, const size_t left_size, const size_t src_dim_size, \
                    const size_t dst_dim_size, const size_t right_size) {                                                      \
    GRID_STRIDE(i, left_size * right_size) {                                                                                   \
      const u64 l = i / right_size, r = i % right_size;                                                                        \
      for (u64 j = 0; j < ids_dim_size; j++) {                                                                                 \
        const i64 at = place(ids[j], dst_dim_size, nullptr);                                                                   \
        if (at < 0) continue;                                                                                                  \
        S* to = out + (l * dst_dim_size + (u64)at) * right_size + r;                                                           \
        *to = plus(*to, inp[(l * ids_dim_size + j) * right_size + r]);                                                         \
      }                                                                                                                        \
    }                                                                                                                          \
  }

template <bool ADD, class I, class S> WICK_FN void scatter(const I* ids, const S* inp, S* out, u64 left, u64 src_dim, u64 dst_dim, u64 right) {
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
#define SCATTER(NAME, I, S, ADD)                                                                                              \
  KERNEL(1024) NAME(const I* ids, const S* inp, S* out, const size_t left_size, const size_t src_dim_size, const size_t dst_dim_size, \
                    const size_t right_size) {                                                                                 \
    scatter<ADD>(ids, inp, out, left_size, src_dim_size, dst_dim_size, right_size);                                            \
  }

// ---- ours ----

/** Rows are moved as words, so dtypes do not matter, only the largest word that divides a row and its addresses. */
template <class W, class I>
WICK_FN void select_rows(const I* ids, i64 step, const W* src, W* dst, u32* fault, i64 left, i64 src_dim, i64 ids_dim, i64 words, u32 lanes) {
  const RowWalk walk(lanes);
  EACH_ROW(walk, row, live, left * ids_dim) {
    if (live) {
      const i64 l = row / ids_dim, at = place(ids[(row - l * ids_dim) * step], (u64)src_dim, fault);
      const W* from = src + (l * src_dim + (at < 0 ? 0 : at)) * words;
      W* to = dst + row * words;
      i64 w = walk.lane;
      if (at < 0)
        ROLLED
        for (; w < words; w += lanes) to[w] = absent<W>(at);
      ROLLED
      for (; w + 3 * (i64)lanes < words; w += 4 * (i64)lanes) {
        W x[4];
#pragma unroll
        for (int u = 0; u < 4; u++) x[u] = from[w + u * (i64)lanes];
#pragma unroll
        for (int u = 0; u < 4; u++) to[w + u * (i64)lanes] = x[u];
      }
      ROLLED
      for (; w < words; w += lanes) to[w] = from[w];
    }
  }
}
#define SELECT_ROWS(NAME, I, W)                                                                                                  \
  KERNEL(256) NAME(const I* ids, const i64 step, const W* src, W* dst, u32* fault, const i64 left, const i64 src_dim, const i64 ids_dim, \
                   const i64 words, const u32 lanes) {                                                                           \
    select_rows(ids, step, src, dst, fault, left, src_dim, ids_dim, words, lanes);                                               \
  }

#define GATHER_ANY(NAME, I, W)                                                                                                   \
  KERNEL(256) NAME(const I* ids, const W* src, W* dst, u32* fault, const u64* info, const u32 rank, const u64 dim_size,           \
                   const u64 dim_stride, const u64 numel) {                                                                      \
    ROLLED                                                                                                                       \
    GRID_STRIDE(i, numel) {                                                                                                      \
      u64 of[2]; /* ids, src */                                                                                                  \
      strided_indices(i, rank, info, info + rank, of);                                                                           \
      const i64 at = place(ids[of[0]], dim_size, fault);                                                                         \
      dst[i] = at < 0 ? absent<W>(at) : src[of[1] + (u64)at * dim_stride];                                                       \
    }                                                                                                                            \
  }

template <bool ADD, class I, class S>
WICK_FN void scatter_any(const I* ids, const S* src, S* dst, u32* fault, const u64* info, u32 rank, u64 lanes, u64 count, u64 ids_step, u64 src_step,
                         u64 dst_dim, u64 dst_step) {
  ROLLED
  GRID_STRIDE(i, lanes) {
    u64 of[3];
    strided_indices(i, rank, info, info + rank, of);
    const I* id = ids + of[0];
    const S* from = src + of[1];
    S* to = dst + of[2];
    ROLLED
    for (u64 j = 0; j < count; j++) {
      const i64 at = place(id[j * ids_step], dst_dim, fault);
      if (at < 0) continue;
      S* element = to + (u64)at * dst_step;
      *element = ADD ? plus(*element, from[j * src_step]) : from[j * src_step];
    }
  }
}
#define SCATTER_ANY(NAME, I, S, ADD)                                                                                             \
  KERNEL(256) NAME(const I* ids, const S* src, S* dst, u32* fault, const u64* info, const u32 rank, const u64 lanes, const u64 count, \
                   const u64 ids_step, const u64 src_step, const u64 dst_dim, const u64 dst_step) {                              \
    scatter_any<ADD>(ids, src, dst, fault, info, rank, lanes, count, ids_step, src_step, dst_dim, dst_step);                     \
  }

/** The places of every lane as keys, what is none as 0xffffffff. */
#define SCATTER_KEYS(NAME, I)                                                                                                     \
  KERNEL(256) NAME(const I* ids, u32* keys, u32* fault, const u64* info, const u32 rank, const u64 lanes, const u64 count, const u64 ids_step, \
                   const u64 dst_dim) {                                                                                           \
    GRID_STRIDE(e, lanes * count) {                                                                                               \
      const u64 i = e / count, j = e % count;                                                                                     \
      keys[e] = key_of(place(ids[strided_index(i, rank, info, info + rank) + j * ids_step], dst_dim, fault));                     \
    }                                                                                                                             \
  }
/** One thread does each run of equal places: its first adds the run up in the order it came, its last is what stays. */
template <bool ADD, class S>
WICK_FN void scatter_sorted(const u32* order, const u32* sorted, const S* src, S* dst, const u64* info, u32 rank, u64 lanes, u64 count, u64 src_step,
                            u64 dst_dim, u64 dst_step) {
  ROLLED
  GRID_STRIDE(e, lanes * count) {
    const u64 i = e / count, j = e % count, lane = i * count;
    const u32 at = sorted[e];
    if (at >= dst_dim) continue;
    if (ADD ? j > 0 && sorted[e - 1] == at : j + 1 < count && sorted[e + 1] == at) continue;
    u64 of[2];
    strided_indices(i, rank, info, info + 2 * rank, of);
    const S* from = src + of[0];
    S* to = dst + of[1] + at * dst_step;
    if constexpr (ADD) {
      S sum = *to;
      ROLLED
      for (u64 k = j; k < count && sorted[lane + k] == at; k++) sum = plus(sum, from[order[lane + k] * src_step]);
      *to = sum;
    } else *to = from[order[e] * src_step];
  }
}
#define SCATTER_SORTED(NAME, S, ADD)                                                                                              \
  KERNEL(256) NAME(const u32* order, const u32* sorted, const S* src, S* dst, const u64* info, const u32 rank, const u64 lanes,   \
                   const u64 count, const u64 src_step, const u64 dst_dim, const u64 dst_step) {                                  \
    scatter_sorted<ADD>(order, sorted, src, dst, info, rank, lanes, count, src_step, dst_dim, dst_step);                          \
  }

/** One run of equal indices: rows of src are added to row `at` of dst in the order they came. */
template <class S> WICK_FN void add_sorted(const u32* order, const u32* sorted, const S* src, S* dst, u64 n, u64 dst_dim, u64 right) {
  // blockIdx.y is the left index; each block looks at 8 positions, 32 threads each, and works only where a run begins.
  const u64 j = (u64)blockIdx.x * 8 + threadIdx.y, l = blockIdx.y;
  if (j >= n || (j > 0 && sorted[j] == sorted[j - 1]) || sorted[j] >= dst_dim) return;
  const u32 at = sorted[j];
  ROLLED
  for (u64 r = threadIdx.x; r < right; r += 32) {
    S* to = dst + (l * dst_dim + at) * right + r;
    typename SumOf<S>::type sum = (typename SumOf<S>::type)to_compute(*to);
    ROLLED
    for (u64 k = j; k < n && sorted[k] == at; k++) sum += (typename SumOf<S>::type)to_compute(src[(l * n + order[k]) * right + r]);
    *to = from_compute<S>(sum);
  }
}
#define ADD_SORTED(NAME, S)                                                                                                      \
  KERNEL(256) NAME(const u32* order, const u32* sorted, const S* src, S* dst, const u64 n, const u64 dst_dim, const u64 right) { \
    add_sorted(order, sorted, src, dst, n, dst_dim, right);                                                                      \
  }
/** Indices of any dtype as u32, what is no place as 0xffffffff, and for a strided index vector: what add_sorted and its sort read. */
#define INDEX_KEYS(NAME, I)                                                                                              \
  KERNEL(256) NAME(const I* ids, const i64 step, u32* keys, u32* fault, const u64 n, const u64 dim) {                     \
    GRID_STRIDE(i, n) keys[i] = key_of(place(ids[(i64)i * step], dim, fault));                                           \
  }

// ---- symbols ----

#define FOR_INDEX(M, STEM, ...)                 \
  M(STEM##_u8, u8, __VA_ARGS__)                 \
  M(STEM##_u32, u32, __VA_ARGS__)               \
  M(STEM##_i16, i16, __VA_ARGS__)               \
  M(STEM##_i32, i32, __VA_ARGS__)               \
  M(STEM##_i64, i64, __VA_ARGS__)
#define FOR_VALUES(M, STEM, I, ...)             \
  M(STEM##_f32, I, float, ##__VA_ARGS__)        \
  M(STEM##_f64, I, double, ##__VA_ARGS__)       \
  M(STEM##_f16, I, half, ##__VA_ARGS__)         \
  M(STEM##_bf16, I, bfloat, ##__VA_ARGS__)      \
  M(STEM##_f8_e4m3, I, fp8, ##__VA_ARGS__)      \
  M(STEM##_u8, I, u8, ##__VA_ARGS__)            \
  M(STEM##_u32, I, u32, ##__VA_ARGS__)          \
  M(STEM##_i16, I, i16, ##__VA_ARGS__)          \
  M(STEM##_i32, I, i32, ##__VA_ARGS__)          \
  M(STEM##_i64, I, i64, ##__VA_ARGS__)
#define ALL_OF_INDEX(NAME, I, ...)                           \
  FOR_VALUES(INDEX_SELECT, is##NAME, I)                      \
  FOR_VALUES(GATHER, gather##NAME, I)                        \
  FOR_VALUES(INDEX_ADD, ia##NAME, I)                         \
  FOR_VALUES(SCATTER, s##NAME, I, false)                     \
  FOR_VALUES(SCATTER, sa##NAME, I, true)                     \
  FOR_VALUES(SCATTER_ANY, scatter_any##NAME, I, false)       \
  FOR_VALUES(SCATTER_ANY, scatter_add_any##NAME, I, true)    \
  SELECT_ROWS(select_rows_w16##NAME, I, word4)               \
  SELECT_ROWS(select_rows_w8##NAME, I, u64)                  \
  SELECT_ROWS(select_rows_w4##NAME, I, u32)                  \
  SELECT_ROWS(select_rows_w2##NAME, I, u16)                  \
  SELECT_ROWS(select_rows_w1##NAME, I, u8)                   \
  GATHER_ANY(gather_any##NAME##_b8, I, u64)                  \
  GATHER_ANY(gather_any##NAME##_b4, I, u32)                  \
  GATHER_ANY(gather_any##NAME##_b2, I, u16)                  \
  GATHER_ANY(gather_any##NAME##_b1, I, u8)                   \
  INDEX_KEYS(index_keys##NAME, I)                            \
  SCATTER_KEYS(scatter_keys##NAME, I)
FOR_INDEX(ALL_OF_INDEX, , )
#define ALL_SORTED(NAME, S)                              \
  ADD_SORTED(add_sorted##NAME, S)                        \
  SCATTER_SORTED(scatter_sorted##NAME, S, false)         \
  SCATTER_SORTED(scatter_add_sorted##NAME, S, true)
FOR_REALS(ALL_SORTED, )
FOR_INTS(ALL_SORTED, )
ALL_SORTED(_f8_e4m3, fp8)

// Matrix products of our own, for machines without a vendor's BLAS: C[b] = A[b] B[b] (+ bias), 16-bit floats adding up
// in float.
//
// Kernels and launches: src/backends/gpu/matmul.ts. C is [batch, m, n] contiguous; A and B have any strides (in
// elements): Operand says them.
//   gemm_async_tile   f16, bf16 through the matrix units with asynchronous copies; AK, BK: contiguous along k, else
//                     along m or n; rows and
//                     base 16-byte aligned. Tiles 128 x 256 (8 waves) or 128 x 128 (8 waves, on AMD 4), dynamic shared
//                     memory
//   gemm_any          any strides. Through the matrix units: tiles 64 x 64, 4 waves; every dtype on every target: tiles
//                     128 x 128 (f64: 64 x 64), 256 threads
//   gemm_merge        joins split-k partial sums [splits, batch, m, n]; a thread an element
//   grouped_async, grouped_fma   rows by the expert each has chosen (grouped.h), tiles 128 x 128 or as gemm_any's; grid
//                     tiles of rows * tiles of n
//   matvec_part       1 to 8 rows of A against B whose columns are contiguous along k, at copy speed; grid (n / 4,
//                     batch, splits), 128 threads
//   dot_part, dot_end   one number of two long vectors: a sum a block, grid-stride, then one block joins them
// Grid of the first two: (tiles of m x tiles of n, batch, splits); with splits > 1 sums go to `part` in float (double)
// and gemm_merge follows.
#include "block.h"
#include "gemm.h"
#include "grouped.h"

template <class S> struct StridedLoad {
  const S* from;  // the matrix, then this thread's next element
  i64 first, rows, row, k;
  bool k_fast;
  i64 step;
  int inside;
  static constexpr int LEAD = 0;
  template <class P> WICK_MEMBER void start(const P& share, i64 k_from) {
    from += (first + share.row) * row + (k_from + share.k) * k;
    step = share.row_step * row + share.k_step * k;
    inside = share.inside_rows(rows - first);
  }
  template <int K> WICK_MEMBER void prepare(i64, i64, int) const {}
  template <class P> WICK_MEMBER void fetch(const P& share, S (&to)[P::EACH], i64 left, int) {
    const int some = share.inside(inside, left);
    const S* at = from;
#pragma unroll
    for (int e = 0; e < P::EACH; e++) {
      to[e] = load_if(e < some, at);
      at += step;
    }
    from += P::DEPTH * k;
  }
};
/** Any strides: through the matrix units, or by multiplications of every dtype. */
template <bool MATRIX, class S>
WICK_FN void gemm_any(const S* a, const S* b, S* c, product_t<S>* part, const S* bias, const Operand& oa,
                      const Operand& ob, const Product& p) {
  constexpr int TILE = MATRIX ? MMA_TILE : fma_tile<S>;
  const Tile tile = tile_of(blockIdx.x, (p.m + TILE - 1) / TILE, (p.n + TILE - 1) / TILE);
  StridedLoad<S> la = {a + batch_offset(oa, p), tile.m * TILE, p.m, oa.row, oa.k, oa.k <= oa.row};
  StridedLoad<S> lb = {b + batch_offset(ob, p), tile.n * TILE, p.n, ob.row, ob.k, ob.k <= ob.row};
  const i64 from = (i64)blockIdx.z * p.split, to = from + p.split < p.k ? from + p.split : p.k;
  if constexpr (MATRIX) tile_mma<S>(la, lb, store_of(c, part, bias, p), tile.m * TILE, tile.n * TILE, from, to);
  else tile_fma<S>(la, lb, store_of(c, part, bias, p), tile.m * TILE, tile.n * TILE, from, to);
}

template <class S> WICK_FN void gemm_merge(const product_t<S>* part, S* c, const S* bias, i64 size, i64 splits, i64 n) {
  GRID_STRIDE(i, size) {
    product_t<S> sum = bias ? (product_t<S>)to_compute(bias[i % n]) : (product_t<S>)0;
    for (i64 s = 0; s < splits; s++) sum += part[s * size + (i64)i];
    c[i] = from_compute<S>(sum);
  }
}

// ---- asynchronous copies, several tiles in flight, 64 columns by 64 rows a wave, or by 32 ----

// Eight waves; AMD's 64 KiB of shared memory hold two stages, and its small tiles take four waves.
constexpr int LARGE_THREADS = 512 / 64 * WICK_WAVE;
#ifndef WICK_NVIDIA
constexpr int SMALL_THREADS = 256 / 64 * WICK_WAVE;
constexpr int LARGE_K = 32, LARGE_STAGES = 2, SMALL_K = 32, SMALL_STAGES = 2;
#else
constexpr int SMALL_THREADS = 512 / 64 * WICK_WAVE;
constexpr int LARGE_K = 64, LARGE_STAGES = 3, SMALL_K = 32, SMALL_STAGES = 4;
#endif

/**
 * One operand's tile of ROWS x KT in shared memory: [row][k] or [k][row], padded so that eight rows fall on different
 * banks.
 */
template <class S, int ROWS, int KT, bool K> struct AsyncTile {
  static constexpr int LINES = K ? ROWS : KT, LINE = K ? KT : ROWS, PITCH = LINE + 8, SIZE = LINES * PITCH;
  /** `base` is the tile's first element; `rows` and `ks` of it lie inside the matrix. */
  template <int THREADS> static WICK_MEMBER void fetch(S* to, const S* base, i64 stride, i32 rows, i32 ks) {
    constexpr int PER = LINE / 8, STEP = THREADS / PER;  // threads a line, lines a round
    static_assert(THREADS % PER == 0 && LINES % STEP == 0, "a round of all threads must cover whole lines");
    const i32 line = (i32)threadIdx.x / PER, at = (i32)threadIdx.x % PER * 8, lines = K ? rows : ks,
              left = (K ? ks : rows) - at;
    const u32 bytes = left <= 0 ? 0 : left >= 8 ? 16 : (u32)left * 2;
    const S* from = base + line * stride + at;
    to += line * PITCH + at;
    if (bytes == 0 || bytes == 16) {
#pragma unroll
      for (int i = 0; i < LINES / STEP; i++) {
        const bool in = line + i * STEP < lines && bytes != 0;
        async_all16(to + i * STEP * PITCH, in ? from : base, in);
        from += STEP * stride;
      }
    } else {
      UNROLL(1, 1)
      for (int i = 0; i < LINES / STEP; i++) {
        copy_some16(to + i * STEP * PITCH, from, line + i * STEP < lines ? bytes : 0);
        from += STEP * stride;
      }
    }
  }
  static WICK_MEMBER const S* at(const S* tile, int row, int k) {
    return K ? tile + row * PITCH + k : tile + k * PITCH + row;
  }
};

/** The left operand's tiles, one after another along k, of rows that lie at equal distances. */
template <int THREADS, class S, int BM, int KT, bool K> struct AsyncRows {
  const S* from;
  i64 stride;
  i32 rows;
  WICK_MEMBER AsyncRows(const S* a, i64 a_stride, i64 m0, i64 m, i64 k_from)
      : from(a + m0 * (K ? a_stride : 1) + k_from * (K ? 1 : a_stride)),
        stride(a_stride),
        rows((i32)(m - m0 < BM ? m - m0 : BM)) {}
  WICK_MEMBER void fetch(S* to, i32 ks) {
    AsyncTile<S, BM, KT, K>::template fetch<THREADS>(to, from, stride, rows, ks);
    from += KT * (K ? 1 : stride);
  }
};

template <int THREADS, class S, bool AK, bool BK, int BM, int BN, int KT, int STAGES, class LA, class ST>
WICK_FN void gemm_async(LA a, const S* b, const ST& store, i64 b_stride, i64 m0, i64 n0, i64 n, i64 k_from, i64 k_to) {
  typedef AsyncTile<S, BM, KT, AK> TA;
  typedef AsyncTile<S, BN, KT, BK> TB;
  DYNAMIC_SHARED(S, tiles);
  S *as = tiles, *bs = tiles + STAGES * TA::SIZE;
  constexpr int WM = BM * BN / 64 / (THREADS / WICK_WAVE), MI = WM / 16;  // rows a wave, and tiles of 16 of them
  const u32 wave = wave_id();
  const int wm = (int)(wave / (BN / 64)) * WM, wn = (int)(wave % (BN / 64)) * 64;
  const i32 steps = (i32)((k_to - k_from + KT - 1) / KT);
  const i64 b_k = BK ? 1 : b_stride;
  const S* b0 = b + n0 * (BK ? b_stride : 1) + k_from * b_k;
  const i32 rows_b = (i32)(n - n0 < BN ? n - n0 : BN);
  i64 left = k_to - k_from;
  int into = 0, from = 0;  // stages
  Acc sum[MI][4] = {};
  // The first rounds only fetch.
  i32 step = 1 - STAGES;
  UNROLL(1, 1)
  do {
    if (step >= 0) {
      async_wait<STAGES - 2>();
      __syncthreads();
    }
    if (left > 0) {
      const i32 ks = (i32)(left < KT ? left : KT);
      a.fetch(as + into * TA::SIZE, ks);
      TB::template fetch<THREADS>(bs + into * TB::SIZE, b0, b_stride, rows_b, ks);
      b0 += KT * b_k;
      left -= KT;
      into = into + 1 == STAGES ? 0 : into + 1;
    }
    async_commit();          // groups are counted, so an empty one keeps the count
    if (step < 0) continue;  // to the condition below
    const S *ta = as + from * TA::SIZE, *tb = bs + from * TB::SIZE;
    from = from + 1 == STAGES ? 0 : from + 1;
    UNROLL(4, 1)
    for (int k = 0; k < KT; k += 16) {
      Frag fa[MI], fb[4];
#pragma unroll
      for (int i = 0; i < 4; i++) {
        if (i < MI) fa[i] = load_frag<true, AK>(TA::at(ta, wm + i * 16, k), TA::PITCH);
        fb[i] = load_frag<false, BK>(TB::at(tb, wn + i * 16, k), TB::PITCH);
        if constexpr (!AK) settle_rdna(fa[i < MI ? i : 0]);
        if constexpr (!BK) settle_rdna(fb[i]);
      }
#pragma unroll
      for (int i = 0; i < MI; i++)
#pragma unroll
        for (int j = 0; j < 4; j++) multiply<S>(sum[i][j], fa[i], fb[j]);
      settle_rdna(sum);
    }
  } while (++step < steps);
  // As many rows of every wave at a time as fit where the tiles lay.
  constexpr int BAND = STAGES > 2 ? MI : 1, ROWS = BM / MI * BAND, PITCH = BN + 4;
  static_assert(ROWS * PITCH * 4 <= STAGES * (TA::SIZE + TB::SIZE) * 2,
                "a band of results must fit where the tiles lay");
  float *staged = (float*)tiles,
        *mine = staged + (wm / MI * BAND + acc_row(lane_id(), 0)) * PITCH + wn + acc_col(lane_id(), 0);
#pragma unroll
  for (int band = 0; band < MI; band += BAND) {
    __syncthreads();
#pragma unroll
    for (int i = 0; i < BAND; i++)
#pragma unroll
      for (int j = 0; j < 4; j++) stage(mine + i * 16 * PITCH + j * 16, PITCH, sum[band + i][j]);
    __syncthreads();
    const auto row = [&](int r) { return m0 + r / (16 * BAND) * WM + band * 16 + r % (16 * BAND); };
    if (n % 4 == 0) store_staged<4, ROWS, BN, PITCH, THREADS>(staged, store, n0, row);
    else store_staged<1, ROWS, BN, PITCH, THREADS>(staged, store, n0, row);
  }
}
template <int THREADS, class S, bool AK, bool BK, int BM, int BN, int KT, int STAGES>
WICK_FN void gemm_async_tile(const S* a, const S* b, S* c, product_t<S>* part, const S* bias, const Operand& oa,
                             const Operand& ob, const Product& p) {
  const Tile tile = tile_of(blockIdx.x, (p.m + BM - 1) / BM, (p.n + BN - 1) / BN);
  const i64 from = (i64)blockIdx.z * p.split, to = from + p.split < p.k ? from + p.split : p.k;
  const AsyncRows<THREADS, S, BM, KT, AK> rows(a + batch_offset(oa, p), AK ? oa.row : oa.k, tile.m * BM, p.m, from);
  gemm_async<THREADS, S, AK, BK, BM, BN, KT, STAGES>(rows, b + batch_offset(ob, p), store_of(c, part, bias, p),
                                                     BK ? ob.row : ob.k, tile.m * BM, tile.n * BN, p.n, from, to);
}

// ---- rows by the expert each has chosen ----

template <class S> struct GatheredLoad {
  static constexpr bool k_fast = true;
  static constexpr int LEAD = 0, MOST = 4;
  const Grouped& p;
  const RowTile& tile;
  const S* from[MOST];
  int inside;
  WICK_MEMBER GatheredLoad(const Grouped& given, const RowTile& rows) : p(given), tile(rows) {}
  template <class P> WICK_MEMBER void start(const P& share, i64 k_from) {
    static_assert(P::EACH <= MOST, "a thread's rows");
#pragma unroll
    for (int e = 0; e < P::EACH; e++)
      from[e] = grouped_row<S>(p, tile, share.row + e * share.row_step) + k_from + share.k;
    inside = share.inside_rows(tile.rows);
  }
  template <int K> WICK_MEMBER void prepare(i64, i64, int) const {}
  template <class P> WICK_MEMBER void fetch(const P& share, S (&to)[P::EACH], i64 left, int) {
    const int some = share.inside(inside, left);
#pragma unroll
    for (int e = 0; e < P::EACH; e++) {
      to[e] = load_if(e < some, from[e]);
      from[e] += P::DEPTH;
    }
  }
};
template <class S> WICK_FN void grouped_fma(const Grouped& p) {
  constexpr int TILE = fma_tile<S>;
  const GroupedTile t = grouped_tile(p, TILE);
  if (t.rows.rows == 0 || without_expert<S>(p, t, TILE)) return;
  const GatheredLoad<S> la(p, t.rows);
  const StridedLoad<S> lb = {(const S*)p.w + t.rows.expert * p.n * p.k, t.n0, p.n, p.k, 1, true};
  tile_fma<S>(la, lb, store_of<S>(p, t.rows), 0, t.n0, 0, p.k);
}

template <int THREADS, class S, int BM, int KT> struct GatheredAsyncRows {
  typedef AsyncTile<S, BM, KT, true> Tile;
  static constexpr int PER = KT / 8, STEP = THREADS / PER, EACH = BM / STEP;
  const S *from[EACH], *somewhere;
  WICK_MEMBER GatheredAsyncRows(const Grouped& p, const RowTile& tile) : somewhere((const S*)p.x) {
#pragma unroll
    for (int i = 0; i < EACH; i++)
      from[i] = grouped_row<S>(p, tile, (int)threadIdx.x / PER + i * STEP) + threadIdx.x % PER * 8;
  }
  WICK_MEMBER void fetch(S* to, i32 ks) {
    const i32 at = (i32)threadIdx.x % PER * 8;
    const bool in = at < ks;
    to += (i32)threadIdx.x / PER * Tile::PITCH + at;
#pragma unroll
    for (int i = 0; i < EACH; i++) {
      async_all16(to + i * STEP * Tile::PITCH, in ? from[i] : somewhere, in);
      from[i] += KT;
    }
  }
};
template <class S> WICK_FN void grouped_async(const Grouped& p) {
  constexpr int BM = 128, BN = 128;
  const GroupedTile t = grouped_tile(p, BN);
  if (t.rows.rows == 0 || without_expert<S>(p, t, BN)) return;
  const GatheredAsyncRows<SMALL_THREADS, S, BM, SMALL_K> rows(p, t.rows);
  gemm_async<SMALL_THREADS, S, true, true, BM, BN, SMALL_K, SMALL_STAGES>(
      rows, (const S*)p.w + t.rows.expert * p.n * p.k, store_of<S>(p, t.rows), p.k, 0, t.n0, p.n, 0, p.k);
}

// ---- a few rows against a large matrix ----

/**
 * Each group of 32 threads makes one column's products with all ROWS rows; B's columns are contiguous along k, 16-byte
 * aligned.
 */
template <int ROWS, class S>
WICK_FN void matvec(const S* a, const S* b, const MatrixStore<S>& store, const Operand& oa, const Operand& ob, i64 n,
                    i64 from, i64 to) {
  typedef product_t<S> A;
#ifdef WICK_AMD
  // the compiler fetches all rows of these steps at once, which must fit the registers
  constexpr int V = pack_size<S>, AHEAD = ROWS > 4 ? 2 : 4;
#else
  constexpr int V = pack_size<S>, AHEAD = 4;
#endif
  const u32 lane = threadIdx.x % 32;
  const i64 j = (i64)blockIdx.x * (blockDim.x / 32) + threadIdx.x / 32;
  const S* column = b + (j < n ? j : 0) * ob.row;
  A sum[ROWS] = {};
  i64 k = from + (i64)lane * V;
  const auto step = [&](const Pack<S>& w, i64 at) {
    compute_t<S> x[V], y[V];
    unpack(w, y);
#pragma unroll
    for (int r = 0; r < ROWS; r++) {
      unpack(load_pack(a + r * oa.row + at), x);
#pragma unroll
      for (int v = 0; v < V; v++) sum[r] = fmag((A)x[v], (A)y[v], sum[r]);
    }
  };
  for (; k + (AHEAD - 1) * 32 * V < to; k += AHEAD * 32 * V) {
    Pack<S> w[AHEAD];
#pragma unroll
    for (int u = 0; u < AHEAD; u++) w[u] = load_pack(column + k + u * 32 * V);
#pragma unroll
    for (int u = 0; u < AHEAD; u++) step(w[u], k + u * 32 * V);
  }
  UNROLL(1, 1)
  for (; k < to; k += 32 * V) step(load_pack(column + k), k);
#pragma unroll
  for (int r = 0; r < ROWS; r++) sum[r] = group_sum(sum[r], 32, (A*)nullptr);
  if (lane != 0) return;
  const auto place = store.template columns<1>(j);
#pragma unroll
  for (int r = 0; r < ROWS; r++) store.template put<1>(place, r, sum + r);
}
template <int ROWS, class S>
WICK_FN void matvec_part(const S* a, const S* b, S* c, product_t<S>* part, const S* bias, const Operand& oa,
                         const Operand& ob, const Product& p) {
  const i64 from = (i64)blockIdx.z * p.split, to = from + p.split < p.k ? from + p.split : p.k;
  matvec<ROWS>(a + batch_offset(oa, p), b + batch_offset(ob, p), store_of(c, part, bias, p), oa, ob, p.n, from, to);
}

/** Packs of either vector that a thread has in flight. */
constexpr int DOT_PACKS = 4;
template <class S> WICK_FN void dot_part(const S* a, const S* b, product_t<S>* part, i64 k) {
  typedef product_t<S> A;
  constexpr int V = pack_size<S>;
  __shared__ A slots[WAVE_SLOTS];
  A sum[DOT_PACKS] = {};
  const i64 step = (i64)gridDim.x * blockDim.x, self = (i64)blockIdx.x * blockDim.x + threadIdx.x;
  i64 done = 0;
  if (aligned16(a) && aligned16(b)) {
    const i64 packs = k / V;
    done = packs * V;
    ROLLED
    for (i64 i = self; i < packs; i += DOT_PACKS * step) {
      Pack<S> pa[DOT_PACKS], pb[DOT_PACKS];
#pragma unroll
      for (int u = 0; u < DOT_PACKS; u++)
        if (i + u * step < packs) pa[u] = load_pack(a + (i + u * step) * V), pb[u] = load_pack(b + (i + u * step) * V);
#pragma unroll
      for (int u = 0; u < DOT_PACKS; u++) {
        if (i + u * step >= packs) break;
        compute_t<S> x[V], y[V];
        unpack(pa[u], x);
        unpack(pb[u], y);
#pragma unroll
        for (int v = 0; v < V; v++) sum[u] = fmag((A)x[v], (A)y[v], sum[u]);
      }
    }
  }
  ROLLED
  for (i64 i = done + self; i < k; i += step) sum[0] = fmag((A)to_compute(a[i]), (A)to_compute(b[i]), sum[0]);
  const A whole = group_sum((sum[0] + sum[1]) + (sum[2] + sum[3]), blockDim.x, slots);
  if (threadIdx.x == 0) part[blockIdx.x] = whole;
}
template <class S> WICK_FN void dot_end(const product_t<S>* part, S* c, u32 count) {
  __shared__ product_t<S> slots[WAVE_SLOTS];
  product_t<S> sum = 0;
  for (u32 i = threadIdx.x; i < count; i += blockDim.x) sum += part[i];
  sum = group_sum(sum, blockDim.x, slots);
  if (threadIdx.x == 0) c[0] = from_compute<S>((compute_t<S>)sum);
}

// Matrix products of our own, for machines without a vendor's BLAS: C[b] = A[b] B[b] (+ bias), 16-bit floats adding up in float.
//
// Launch (src/kernels/launch.ts, gemmLaunch). C is [batch, m, n] contiguous; A and B have any strides (in elements): Operand says them.
//   gemm_async_T_AB_{large,small}   f16, bf16 through the matrix units with asynchronous copies; A, B: k (contiguous along k) or r (along m or n);
//                                   rows and base 16-byte aligned. Tiles 128 x 256 (8 waves) or 128 x 128 (4 waves), dynamic shared memory
//   gemm_mma_T                      f16, bf16 through the matrix units, any strides: tiles 64 x 64, 4 waves
//   gemm_fma_T                      every dtype on every target: tiles 128 x 128 (f64: 64 x 64), 256 threads
//   gemm_merge_T                    joins split-k partial sums [splits, batch, m, n]; a thread an element
//   matvec_T_rN                     1 to 8 rows of A against B whose columns are contiguous along k, at copy speed; grid (n / 4, batch, splits), 128 threads
// Grid of the first three: (tiles of m x tiles of n, batch, splits); with splits > 1 sums go to `part` in float (double) and gemm_merge follows.
#include "block.h"
#include "gemm.h"

template <class S> struct StridedLoad {
  const S* base;
  i64 rows, row, k;
  bool k_fast;
  WICK_MEMBER S raw(i64 i, i64 at) const { return i < rows ? base[i * row + at * k] : S{}; }
  WICK_MEMBER compute_t<S> load(i64 i, i64 at) const { return to_compute(raw(i, at)); }
};
#define GEMM_ANY(NAME, S, HOW, TILE, THREADS)                                                                                   \
  KERNEL(THREADS) NAME(const S* a, const S* b, S* c, product_t<S>* part, const S* bias, const Operand oa, const Operand ob, const Product p) { \
    const Tile tile = tile_of(blockIdx.x, (p.m + TILE - 1) / TILE, (p.n + TILE - 1) / TILE);                                   \
    const StridedLoad<S> la = {a + batch_offset(oa, p), p.m, oa.row, oa.k, oa.k <= oa.row};                                     \
    const StridedLoad<S> lb = {b + batch_offset(ob, p), p.n, ob.row, ob.k, ob.k <= ob.row};                                     \
    const i64 from = (i64)blockIdx.z * p.split, to = from + p.split < p.k ? from + p.split : p.k;                               \
    HOW<S>(la, lb, store_of(c, part, bias, p), tile.m * TILE, tile.n * TILE, from, to);                                         \
  }
#define GEMM_FMA(NAME, S) GEMM_ANY(NAME, S, tile_fma, fma_tile<S>, 256)
#define GEMM_MMA(NAME, S) GEMM_ANY(NAME, S, tile_mma, MMA_TILE, MMA_THREADS)

#define GEMM_MERGE(NAME, S)                                                                                        \
  KERNEL(256) NAME(const product_t<S>* part, S* c, const S* bias, const i64 size, const i64 splits, const i64 n) {  \
    GRID_STRIDE(i, size) {                                                                                         \
      product_t<S> sum = bias ? (product_t<S>)to_compute(bias[i % n]) : (product_t<S>)0;                           \
      for (i64 s = 0; s < splits; s++) sum += part[s * size + (i64)i];                                             \
      c[i] = from_compute<S>(sum);                                                                                 \
    }                                                                                                              \
  }

// ---- asynchronous copies, several tiles in flight, 64 x 64 a wave ----

// Eight waves, four waves; AMD's 64 KiB of shared memory hold two stages.
constexpr int LARGE_THREADS = 512 / 64 * WICK_WAVE;
constexpr int SMALL_THREADS = 256 / 64 * WICK_WAVE;
#ifdef WICK_NVIDIA
constexpr int LARGE_K = 64, LARGE_STAGES = 3, SMALL_K = 32, SMALL_STAGES = 4;
#else
constexpr int LARGE_K = 32, LARGE_STAGES = 2, SMALL_K = 32, SMALL_STAGES = 2;
#endif

/** One operand's tile of ROWS x KT in shared memory: [row][k] or [k][row], padded so that eight rows fall on different banks. */
template <class S, int ROWS, int KT, bool K> struct AsyncTile {
  static constexpr int LINES = K ? ROWS : KT, LINE = K ? KT : ROWS, PITCH = LINE + 8, SIZE = LINES * PITCH;
  /** `base` is the tile's first element; `rows` and `ks` of it lie inside the matrix. */
  template <int THREADS> static WICK_MEMBER void fetch(S* to, const S* base, i64 stride, i32 rows, i32 ks) {
    constexpr int PER = LINE / 8, STEP = THREADS / PER;  // threads a line, lines a round
    static_assert(THREADS % PER == 0 && LINES % STEP == 0, "a round of all threads must cover whole lines");
    const i32 line = (i32)threadIdx.x / PER, at = (i32)threadIdx.x % PER * 8, lines = K ? rows : ks, left = (K ? ks : rows) - at;
    const u32 bytes = left <= 0 ? 0 : left >= 8 ? 16 : (u32)left * 2;
    const S* from = base + line * stride + at;
#pragma unroll
    for (int i = 0; i < LINES / STEP; i++) {
      const u32 some = line + i * STEP < lines ? bytes : 0;
      async_copy16(to + (line + i * STEP) * PITCH + at, some ? from : base, some);
      from += STEP * stride;
    }
  }
  static WICK_MEMBER const S* at(const S* tile, int row, int k) { return K ? tile + row * PITCH + k : tile + k * PITCH + row; }
};

template <int THREADS, class S, bool AK, bool BK, int BM, int BN, int KT, int STAGES>
WICK_FN void gemm_async(const S* a, const S* b, const MatrixStore<S>& store, i64 a_stride, i64 b_stride, i64 m0, i64 n0, i64 m, i64 n, i64 k_from, i64 k_to) {
  typedef AsyncTile<S, BM, KT, AK> TA;
  typedef AsyncTile<S, BN, KT, BK> TB;
  DYNAMIC_SHARED(S, tiles);
  S *as = tiles, *bs = tiles + STAGES * TA::SIZE;
  const u32 wave = wave_id();
  const int wm = (int)(wave / (BN / 64)) * 64, wn = (int)(wave % (BN / 64)) * 64;
  const i64 steps = (k_to - k_from + KT - 1) / KT, a_k = AK ? 1 : a_stride, b_k = BK ? 1 : b_stride;
  const S *a0 = a + m0 * (AK ? a_stride : 1), *b0 = b + n0 * (BK ? b_stride : 1);
  const i32 rows_a = (i32)(m - m0 < BM ? m - m0 : BM), rows_b = (i32)(n - n0 < BN ? n - n0 : BN);
  const auto fetch = [&](i64 step) {
    if (step < steps) {
      const i64 k0 = k_from + step * KT, s = step % STAGES;
      const i32 ks = (i32)(k_to - k0 < KT ? k_to - k0 : KT);
      TA::template fetch<THREADS>(as + s * TA::SIZE, a0 + k0 * a_k, a_stride, rows_a, ks);
      TB::template fetch<THREADS>(bs + s * TB::SIZE, b0 + k0 * b_k, b_stride, rows_b, ks);
    }
    async_commit();  // groups are counted, so an empty one keeps the count
  };
  Acc sum[4][4] = {};
#pragma unroll
  for (int s = 0; s < STAGES - 1; s++) fetch(s);
  for (i64 step = 0; step < steps; step++) {
    async_wait<STAGES - 2>();
    __syncthreads();
    fetch(step + STAGES - 1);
    const S *ta = as + step % STAGES * TA::SIZE, *tb = bs + step % STAGES * TB::SIZE;
#pragma unroll
    for (int k = 0; k < KT; k += 16) {
      Frag fa[4], fb[4];
#pragma unroll
      for (int i = 0; i < 4; i++) {
        fa[i] = load_frag<true, AK>(TA::at(ta, wm + i * 16, k), TA::PITCH);
        fb[i] = load_frag<false, BK>(TB::at(tb, wn + i * 16, k), TB::PITCH);
        if constexpr (!AK) settle_rdna(fa[i]);
        if constexpr (!BK) settle_rdna(fb[i]);
      }
#pragma unroll
      for (int i = 0; i < 4; i++)
#pragma unroll
        for (int j = 0; j < 4; j++) multiply<S>(sum[i][j], fa[i], fb[j]);
      settle_rdna(sum);
    }
  }
  const u32 lane = lane_id();
  const bool pairs = ACC_PAIRS && !store.part && n % 2 == 0;
#pragma unroll
  for (int i = 0; i < 4; i++)
#pragma unroll
    for (int j = 0; j < 4; j++)
#pragma unroll
      for (int e = 0; e < ACC; e += 2) {
        const i64 r = m0 + wm + i * 16, c = n0 + wn + j * 16;
        if (pairs) store.store_pair(r + acc_row(lane, e), c + acc_col(lane, e), sum[i][j].x[e], sum[i][j].x[e + 1]);
        else {
          store.store(r + acc_row(lane, e), c + acc_col(lane, e), sum[i][j].x[e]);
          store.store(r + acc_row(lane, e + 1), c + acc_col(lane, e + 1), sum[i][j].x[e + 1]);
        }
      }
}
#define GEMM_ASYNC(NAME, S, AK, BK, THREADS, BM, BN, KT, STAGES)                                                                          \
  KERNEL(THREADS) NAME(const S* a, const S* b, S* c, product_t<S>* part, const S* bias, const Operand oa, const Operand ob, \
                                                 const Product p) {                                                              \
    const Tile tile = tile_of(blockIdx.x, (p.m + BM - 1) / BM, (p.n + BN - 1) / BN);                                             \
    const i64 from = (i64)blockIdx.z * p.split, to = from + p.split < p.k ? from + p.split : p.k;                                \
    gemm_async<THREADS, S, AK, BK, BM, BN, KT, STAGES>(a + batch_offset(oa, p), b + batch_offset(ob, p), store_of(c, part, bias, p), AK ? oa.row : oa.k, \
                                              BK ? ob.row : ob.k, tile.m * BM, tile.n * BN, p.m, p.n, from, to);                 \
  }

// ---- a few rows against a large matrix ----

/** Each group of 32 threads makes one column's products with all ROWS rows; B's columns are contiguous along k, 16-byte aligned. */
template <int ROWS, class S>
WICK_FN void matvec(const S* a, const S* b, const MatrixStore<S>& store, const Operand& oa, const Operand& ob, i64 n, i64 from, i64 to) {
  typedef product_t<S> A;
#ifdef WICK_AMD
  constexpr int V = pack_size<S>, AHEAD = ROWS > 4 ? 2 : 4;  // the compiler fetches all rows of these steps at once, which must fit the registers
#else
  constexpr int V = pack_size<S>, AHEAD = 4;
#endif
  const u32 lane = threadIdx.x % 32;
  const i64 j = (i64)blockIdx.x * (blockDim.x / 32) + threadIdx.x / 32;
  const S* column = b + (j < n ? j : 0) * ob.row;
  A sum[ROWS] = {};
  i64 k = from + (i64)lane * V;
  const auto step = [&](const Pack<S>& w, i64 at) {
#pragma unroll
    for (int r = 0; r < ROWS; r++) {
      const Pack<S> x = load_pack(a + r * oa.row + at);
#pragma unroll
      for (int v = 0; v < V; v++) sum[r] = fmag((A)to_compute(x.v[v]), (A)to_compute(w.v[v]), sum[r]);
    }
  };
  for (; k + (AHEAD - 1) * 32 * V < to; k += AHEAD * 32 * V) {
    Pack<S> w[AHEAD];
#pragma unroll
    for (int u = 0; u < AHEAD; u++) w[u] = load_pack(column + k + u * 32 * V);
#pragma unroll
    for (int u = 0; u < AHEAD; u++) step(w[u], k + u * 32 * V);
  }
  for (; k < to; k += 32 * V) step(load_pack(column + k), k);
#pragma unroll
  for (int r = 0; r < ROWS; r++) sum[r] = group_sum(sum[r], 32, (A*)nullptr);
  if (lane == 0)
#pragma unroll
    for (int r = 0; r < ROWS; r++) store.store(r, j, sum[r]);
}
#define MATVEC(NAME, S, ROWS)                                                                                                    \
  KERNEL(128) NAME(const S* a, const S* b, S* c, product_t<S>* part, const S* bias, const Operand oa, const Operand ob, const Product p) { \
    const i64 from = (i64)blockIdx.z * p.split, to = from + p.split < p.k ? from + p.split : p.k;                                \
    matvec<ROWS>(a + batch_offset(oa, p), b + batch_offset(ob, p), store_of(c, part, bias, p), oa, ob, p.n, from, to);           \
  }

// ---- symbols ----

FOR_REALS(GEMM_FMA, gemm_fma)
FOR_REALS(GEMM_MERGE, gemm_merge)
#define MATVECS(NAME, S)      \
  MATVEC(NAME##_r1, S, 1)     \
  MATVEC(NAME##_r2, S, 2)     \
  MATVEC(NAME##_r3, S, 3)     \
  MATVEC(NAME##_r4, S, 4)     \
  MATVEC(NAME##_r5, S, 5)     \
  MATVEC(NAME##_r6, S, 6)     \
  MATVEC(NAME##_r7, S, 7)     \
  MATVEC(NAME##_r8, S, 8)
FOR_REALS(MATVECS, matvec)
#define ASYNC_ORDERS(NAME, S, SIZE, ...)                             \
  GEMM_ASYNC(NAME##_kk_##SIZE, S, true, true, __VA_ARGS__)           \
  GEMM_ASYNC(NAME##_kr_##SIZE, S, true, false, __VA_ARGS__)          \
  GEMM_ASYNC(NAME##_rk_##SIZE, S, false, true, __VA_ARGS__)          \
  GEMM_ASYNC(NAME##_rr_##SIZE, S, false, false, __VA_ARGS__)
GEMM_MMA(gemm_mma_f16, half)
GEMM_MMA(gemm_mma_bf16, bfloat)
ASYNC_ORDERS(gemm_async_f16, half, small, SMALL_THREADS, 128, 128, SMALL_K, SMALL_STAGES)
ASYNC_ORDERS(gemm_async_bf16, bfloat, small, SMALL_THREADS, 128, 128, SMALL_K, SMALL_STAGES)
ASYNC_ORDERS(gemm_async_f16, half, large, LARGE_THREADS, 128, 256, LARGE_K, LARGE_STAGES)
ASYNC_ORDERS(gemm_async_bf16, bfloat, large, LARGE_THREADS, 128, 256, LARGE_K, LARGE_STAGES)
